"""No file besides lock files names the host of a package registry or a path of somebody's machine, and no source has
a mark of unfinished work."""

import re
from pathlib import Path

from tree import files, read

LOCKS = {"Cargo.lock", "package-lock.json", "pnpm-lock.yaml", "yarn.lock", "uv.lock"}
SOURCES = {".rs", ".ts", ".mts", ".cts", ".js", ".mjs", ".cjs", ".py", ".pyi", ".c", ".h", ".hpp", ".cpp", ".sh", ".toml", ".cmake", ".in"}
# Written in pieces, so that this file keeps its own rule.
HOSTS = [("crates", "io"), ("npmjs", "org"), ("npmjs", "com"), ("pypi", "org"), ("pythonhosted", "org"),
         ("rubygems", "org"), ("conda", "anaconda", "org"), ("proxy", "golang", "org"), ("deb", "debian", "org")]
HOST = re.compile(r"(?<![\w-])(?:[\w-]+\.)*(?:" + "|".join(r"\.".join(parts) for parts in HOSTS) + r")\b")
HOME = re.compile(r"(?<![\w.~])/" + r"(?:home|root|Users)/\w|\b[A-Z]:\\+" + r"Users\b")
UNFINISHED = re.compile(r"\b(?:to" + r"do|unim" + r"plemented)!|\b(?:TO" + r"DO|FIX" + r"ME|XX" + r"X)\b")


def problems(root: Path) -> list[str]:
    found = []
    here = root.resolve()
    checkout = re.compile(re.escape(str(here.parent if len(here.parents) > 2 else here)) + r"\b")
    for path in files(root):
        text = None if path.name in LOCKS else read(root, path)
        if text is None:
            continue
        for number, line in enumerate(text.splitlines(), 1):
            rules = [("the host of a registry", HOST), ("a path of one machine", HOME), ("a path of this machine", checkout)]
            if path.suffix in SOURCES:
                rules.append(("a mark of unfinished work", UNFINISHED))
            for what, pattern in rules:
                if match := pattern.search(line):
                    found.append(f"{path}:{number}: {what}: {match[0]}")
    return found
