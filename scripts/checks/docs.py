"""Every declaration of the header is documented, every function says its thread safety in one line, every member of a
structure is documented, and every Rust file begins by saying what it is for."""

import re
from pathlib import Path

import tree
from declarations import header


def problems(root: Path) -> list[str]:
    found = []
    for item in header(root / "include" / "uform.h"):
        if not item.doc.strip():
            found.append(f"{item.name}: no comment")
        if item.kind == "function":
            lines = re.findall(r"^Thread safety: \S.*\.$", item.doc, re.M)
            if len(lines) != 1:
                found.append(f"{item.name}: expected one line 'Thread safety: ….' in its comment, found {len(lines)}")
        if item.kind == "structure":
            found += [f"{item.name}.{member.name}: no comment" for member in item.members if not member.doc.strip()]
    for path in tree.files(root, ".rs"):
        if not re.match(r"(#!.*\n)?(//! \S|#!\[doc = )", tree.read(root, path) or ""):
            found.append(f"{path}: expected a comment '//! …' at its beginning, on what the file is for")
    return found
