"""Every function of the header is called by the crate uform and by uform.hpp, and wrapped or excused in Node, Python and wasm as
scripts/coverage.toml says."""

import re
import tomllib
from pathlib import Path

import rust
from declarations import header
from tree import GENERATED, files, read

TABLE = "scripts/coverage.toml"
# Where the wrappers of a language are, and the sources that hold them.
LANGUAGES = {
    "node": ("uform-node/src", (".ts",)),
    "python": ("uform-python", (".rs", ".py")),
    "wasm": ("uform-wasm", (".rs", ".mjs")),
}


# How a verb is defined in a language, by the ending of its sources: not called, and not spoken of in a comment.
DEFINITIONS = {
    ".ts": r"^\s*(?:(?:export|default|public|static|async|get|readonly|function|const|class)\s+)*{verb}\b\??\s*[(<=:{{]",
    ".mjs": r"^\s*(?:(?:export|static|async|function|const|class)\s+)*{verb}\b\s*[(={{]",
    ".py": r"^\s*(?:async\s+)?(?:def|class)\s+{verb}\b",
    ".rs": r"\b(?:fn|struct|enum)\s+{verb}\b|\bname\s*=\s*\"?{verb}\b",
}


def sources(root: Path, folder: str, suffixes: tuple[str, ...]) -> list[tuple[str, str]]:
    """Ending and text of the sources of a language."""
    return [(path.suffix, read(root, path) or "") for path in files(root, *suffixes)
            if path.is_relative_to(folder) and not {"tests", "test"} & set(path.parts)]


def wrapped(name: str, texts: list[tuple[str, str]]) -> bool:
    """Whether the verb is defined, in a source that defines its noun, if it has one."""
    noun, _, verb = name.rpartition(".")
    owner = re.compile(rf"\b(?:class|struct|impl|interface)\s+{noun}\b", re.M)
    return any(re.search(DEFINITIONS[ending].format(verb=verb), text, re.M) and (not noun or owner.search(text))
               for ending, text in texts)


def problems(root: Path) -> list[str]:
    table = tomllib.loads((root / TABLE).read_text())
    excuses = table.pop("excuses", {})
    functions = [item.name for item in header(root / "include" / "uform.h") if item.kind == "function"]
    found = [f"{TABLE}: {name} is not in the header" for name in table if name not in functions]
    skin = [rust.code(text) for path in files(root, ".rs") if path.is_relative_to("uform-rs/src") and str(path) not in GENERATED
            for text in [read(root, path) or ""]]
    calls = set(re.findall(r"\b(uform_\w+)\s*\(", "\n".join(skin))) | set(re.findall(r"\bsys::(uform_\w+)", "\n".join(skin)))
    plus = read(root, Path("include/uform.hpp")) or ""
    for name in functions:
        if name not in calls:
            found.append(f"uform-rs does not call {name}")
        if not re.search(rf"^(?!\s*//).*\b{name}\b", plus, re.M):
            found.append(f"include/uform.hpp does not call {name}")
        for language, (folder, suffixes) in LANGUAGES.items():
            entry = table.get(name, {}).get(language)
            if isinstance(entry, dict) and entry.get("excused", "").strip():
                continue
            if isinstance(entry, str):
                if not wrapped(entry, sources(root, folder, suffixes)):
                    found.append(f"{name}: {TABLE} names {entry} in {language}, but {folder} does not define it")
            elif not excuses.get(language):
                found.append(f"{name}: neither wrapped nor excused in {language} by {TABLE}")
    return found
