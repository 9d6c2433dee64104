"""The snapshot include/uform.abi is that of the header, says all that the committed ones and those of releases said,
and the built shared library exports the functions of the header and nothing else."""

import re
import subprocess
import sys
from pathlib import Path

from declarations import header

SNAPSHOT = "include/uform.abi"


def entries(text: str) -> dict[str, str]:
    """What each line is about, like "function uform_version", and what it says of it."""
    return dict(line.split(": ", 1) for line in text.splitlines())


def shrunk(old: str, new: str) -> list[str]:
    """What programs compiled against the old snapshot miss in the new one. A structure that begins with its own size
    may become longer; nothing else changes."""
    before, after = entries(old), entries(new)
    found = []
    for key, value in before.items():
        if key not in after:
            found.append(f"{key} is gone")
        elif after[key] != value:
            sized = f"member {key.split(' ')[1]}.size" in before and key.startswith("structure ")
            if not (sized and int(after[key].split()[0]) > int(value.split()[0])):
                found.append(f"{key}: expected {value}, found {after[key]}")
    return found


def git(root: Path, *arguments: str) -> str | None:
    run = subprocess.run(["git", *arguments], cwd=root, capture_output=True, text=True)
    return run.stdout if run.returncode == 0 else None


def earlier(root: Path) -> dict[str, str]:
    """The snapshots that must stay true: of the last two commits, of the branch point from the main line, and of the
    releases with this major version."""
    major = re.search(r"VERSION_MAJOR (\d+)", (root / "include" / "uform.h").read_text())[1]
    commits = ["HEAD", "HEAD^"]
    for line in ("origin/main", "main"):
        if base := git(root, "merge-base", "HEAD", line):
            commits.append(base.strip())
    commits += (git(root, "tag", "--list", f"v{major}.*") or "").split()
    texts = {commit: git(root, "show", f"{commit}:{SNAPSHOT}") for commit in commits}
    return {commit: text for commit, text in texts.items() if text is not None}


def library(root: Path) -> Path | None:
    """The shared library that was built last."""
    names = [f"target/{profile}/libuform_c.{ending}" for profile in ("debug", "release") for ending in ("so", "dylib")]
    built = [root / name for name in names if (root / name).exists()]
    return max(built, key=lambda path: path.stat().st_mtime, default=None)


def exports(root: Path) -> list[str]:
    path = library(root)
    if path is None:
        return ["no library in target/; build it with 'cargo build -p uform-c'"]
    options = ["-gU"] if path.suffix == ".dylib" else ["-D", "--defined-only"]
    listed = subprocess.run(["nm", *options, path], check=True, capture_output=True, text=True).stdout
    found = {line.split()[-1].split("@")[0] for line in listed.splitlines() if line.strip()}
    if path.suffix == ".dylib":
        found = {name.removeprefix("_") for name in found}
    expected = {item.name for item in header(root / "include" / "uform.h") if item.kind == "function"}
    name = path.relative_to(root)
    return [f"{name} does not export {symbol}" for symbol in sorted(expected - found)] + [
        f"{name} exports {symbol}, which the header does not declare" for symbol in sorted(found - expected)
    ]


def problems(root: Path) -> list[str]:
    snapshot = root / SNAPSHOT
    if not snapshot.exists():
        return [f"{SNAPSHOT} is missing; run scripts/generate.sh"]
    current = snapshot.read_text()
    fresh = subprocess.run(
        [sys.executable, "-c", "import snapshot; print(snapshot.snapshot(), end='')"],
        cwd=root / "scripts" / "generate", check=True, capture_output=True, text=True,
    ).stdout
    found = [] if fresh == current else [f"{SNAPSHOT} is not that of the header; run scripts/generate.sh"]
    for commit, text in earlier(root).items():
        found += [f"against {commit[:12]}: {line}" for line in shrunk(text, current)]
    return found + exports(root)
