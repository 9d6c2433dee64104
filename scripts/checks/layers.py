"""Inside uform-c imports only go down: base, system, kernels, executors, ops, models, trainers, mesh, abi. Node, Python
and wasm know the crate `uform` alone, and `uform` takes nothing but symbols from `uform-c`."""

import re
import tomllib
from pathlib import Path

import rust
from tree import files, read

LAYERS = ["base", "system", "kernels", "executors", "ops", "models", "trainers", "mesh", "abi"]
BINDINGS = ["uform-node", "uform-python", "uform-wasm"]


def segments(text: str, start: int) -> list[str]:
    """The first names of `{a::b, c}` or `a::b` at `start`."""
    if text[start] != "{":
        return re.findall(r"\w+", text[start : start + 100])[:1]
    inside, depth, names, fresh = rust.body(text, start), 0, [], True
    for token in re.findall(r"\w+|[{},]", inside):
        if token in "{}":
            depth += 1 if token == "{" else -1
        elif token == ",":
            fresh = fresh or depth == 0
        elif depth == 0 and fresh:
            names.append(token)
            fresh = False
    return names


def imports(text: str, depth: int) -> set[str]:
    """The names of the crate's root that a file refers to whose own module is `depth` below the root."""
    found = set()
    for match in re.finditer(r"\bcrate\s*::\s*(?=[\w{])", text):
        found.update(segments(text, match.end()))
    for match in re.finditer(r"\b(?:super\s*::\s*)+(?=[\w{])", text):
        if match[0].count("super") >= depth:
            found.update(name for name in segments(text, match.end()) if name in LAYERS)
    return found


def engine(root: Path) -> list[str]:
    found = []
    source = Path("uform-c/src")
    for path in files(root, ".rs"):
        if not path.is_relative_to(source):
            continue
        inside = path.relative_to(source)
        own = inside.parts[0].removesuffix(".rs")
        if own == "lib":
            continue
        if own not in LAYERS:
            found.append(f"{path}: {own} is none of the layers {', '.join(LAYERS)}")
            continue
        depth = len(inside.parts) - (inside.name == "mod.rs")
        for name in sorted(imports(rust.code(read(root, path) or ""), depth)):
            if name in LAYERS and LAYERS.index(name) > LAYERS.index(own):
                found.append(f"{path}: {own} refers up to {name}")
            elif name not in LAYERS:
                found.append(f"{path}: refers to crate::{name}, which is no layer")
    return found


def dependencies(manifest: dict) -> set[str]:
    """The names of the packages that a Cargo manifest depends on, of every kind and target."""
    found = set()
    for table in [manifest, *manifest.get("target", {}).values()]:
        for kind in ("dependencies", "dev-dependencies", "build-dependencies"):
            for name, value in table.get(kind, {}).items():
                found.add(value.get("package", name) if isinstance(value, dict) else name)
    return found


def bindings(root: Path) -> list[str]:
    found = []
    for crate in BINDINGS:
        needed = dependencies(tomllib.loads((root / crate / "Cargo.toml").read_text()))
        if "uform" not in needed or "uform-c" in needed:
            found.append(f"{crate}/Cargo.toml: expected the dependency uform and not uform-c, found {', '.join(sorted(needed))}")
    for path in files(root, ".rs"):
        text = rust.code(read(root, path) or "")
        for line in text.splitlines():
            if not re.search(r"\buform_c\b", line):
                continue
            if path.parts[0] in BINDINGS:
                found.append(f"{path}: names uform_c: {line.strip()}")
            if path.is_relative_to("uform-rs/src") and not re.fullmatch(r"\s*(extern crate|use) uform_c as _;\s*", line):
                found.append(f"{path}: takes more than symbols from uform_c: {line.strip()}")
    return found


def problems(root: Path) -> list[str]:
    return engine(root) + bindings(root)
