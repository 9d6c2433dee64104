"""Every exported function is declared in uform-c/src/abi and runs its body inside `guard` or `guard_value`, besides
the one that only returns the constant version."""

import re
from pathlib import Path

import rust
from tree import files, read

CONSTANT = {"uform_version"}
EXPORT = re.compile(r"#\[(?:unsafe\()?no_mangle\)?\]\s*(?:#\[[^\]]*\]\s*)*pub (?:unsafe )?extern\s+fn (\w+)")


def problems(root: Path) -> list[str]:
    found = []
    abi = Path("uform-c/src/abi")
    for path in files(root, ".rs"):
        if path.parts[0] != "uform-c" or "src" not in path.parts:
            continue
        text = rust.code(read(root, path) or "")
        exported = list(EXPORT.finditer(text))
        if len(exported) != len(re.findall(r"\bno_mangle\b|\bexport_name\b", text)):
            found.append(f"{path}: exports something that is no 'pub extern \"C\" fn'")
        for match in exported:
            if path.parent != abi:
                found.append(f"{path}: exports {match[1]}; only files of {abi} may")
            inside = rust.body(text, match.end())
            # What comes before the guard cannot fail: bindings of plain values at most.
            before = re.split(r"\bguard(?:_value)?\s*\(", inside, maxsplit=1)
            if len(before) == 1 and match[1] not in CONSTANT:
                found.append(f"{path}: {match[1]} does not go through guard or guard_value")
            elif len(before) == 2 and re.search(r"\w!\s*\(|\.unwrap|\.expect|\[\w+\]", before[0]):
                found.append(f"{path}: {match[1]} does something before its guard that may panic")
    return found
