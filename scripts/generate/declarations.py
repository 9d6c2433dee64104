"""Reads include/uform.h: constants, types, structures and functions with their comments, in the order of the file.

Everything that is made from or checked against the header goes through here: TypeScript, Python stubs, the ABI
snapshot, and the checks of coverage and documentation. Knows the header's own regular form, not C in general.
"""

import re
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
HEADER = ROOT / "include" / "uform.h"


@dataclass
class Member:
    """A field of a structure or a parameter of a function."""

    name: str
    type: str
    doc: str = ""
    count: str = ""


@dataclass
class Declaration:
    """One item of the header. `kind` is constant, type, callback, structure, opaque or function."""

    kind: str
    name: str
    doc: str
    type: str = ""
    value: int | None = None
    members: list[Member] = field(default_factory=list)


def _comment(lines: list[str]) -> str:
    return "\n".join(re.sub(r"^\s*//+ ?", "", line) for line in lines)


def _members(text: str, separator: str) -> list[Member]:
    found, doc = [], []
    for line in text.splitlines() if separator == ";" else [part for part in text.split(separator)]:
        line = line.strip()
        if line.startswith("//"):
            doc.append(line)
        elif line and line != "void":
            match = re.fullmatch(r"(.*?[\s*])(\w+)(?:\[(\w+)\])?;?", line)
            found.append(Member(match[2], match[1].strip().replace(" *", " *"), _comment(doc), match[3] or ""))
            doc = []
    return found


def parse(text: str) -> list[Declaration]:
    """The declarations of a header that cbindgen wrote, or that was made from one."""
    items, doc, body = [], [], []
    for line in text.splitlines():
        if line.startswith("//") and not body:
            doc.append(line)
        elif not line.strip() and not body:
            doc = []
        elif line.startswith("#define UFORM_") and re.match(r"#define (\w+) (-?\d+)$", line):
            name, value = line.split()[1:]
            items.append(Declaration("constant", name, _comment(doc), value=int(value)))
            doc = []
        elif body or re.match(r"(typedef|struct|UFORM_API)\b", line):
            body.append(line)
            whole = "\n".join(body)
            if line.endswith(";") and whole.count("{") == whole.count("}"):
                items.append(_declaration(whole, _comment(doc)))
                doc, body = [], []
    return items


def _declaration(text: str, doc: str) -> Declaration:
    if match := re.fullmatch(r"typedef struct (\w+) \1;|struct (\w+);", text):
        return Declaration("opaque", match[1] or match[2], doc)
    if match := re.fullmatch(r"typedef struct \{(?P<body>.*)\} (?P<name>\w+);|struct (?P<tag>\w+) \{(?P<rest>.*)\};", text, re.S):
        name, body = match["name"] or match["tag"], match["body"] or match["rest"]
        return Declaration("structure", name, doc, members=_members(body, ";"))
    flat = re.sub(r"\s+", " ", text)
    if match := re.fullmatch(r"typedef (.+?) ?\(\*(\w+)\)\((.*)\);", flat):
        return Declaration("callback", match[2], doc, match[1], members=_members(match[3], ","))
    if match := re.fullmatch(r"typedef (.+?) (\w+);", flat):
        return Declaration("type", match[2], doc, match[1])
    if match := re.fullmatch(r"UFORM_API (.+?[ *])(\w+)\((.*)\);", flat):
        return Declaration("function", match[2], doc, match[1].strip(), members=_members(match[3], ","))
    raise ValueError(f"not understood: {text}")


def header(path: Path = HEADER) -> list[Declaration]:
    """The declarations of a header, without the forward ones at its top."""
    items = parse(path.read_text())
    forward = {item.name for item in items if item.kind == "opaque" and not item.doc}
    defined = {item.name for item in items if item.kind == "structure" or item.kind == "opaque" and item.doc}
    if missing := forward - defined:
        raise ValueError(f"never defined: {', '.join(sorted(missing))}")
    return [item for item in items if item.kind != "opaque" or item.doc]
