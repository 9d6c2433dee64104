"""No hand-written source file has more than 600 lines."""

from pathlib import Path

from tree import GENERATED, files, read

LIMIT = 600
SUFFIXES = (".rs", ".ts", ".mjs", ".py", ".pyi", ".c", ".h", ".hpp", ".cpp", ".sh")


def problems(root: Path) -> list[str]:
    found = []
    for path in files(root, *SUFFIXES):
        lines = len((read(root, path) or "").splitlines())
        if lines > LIMIT and str(path) not in GENERATED:
            found.append(f"{path}: expected at most {LIMIT} lines, found {lines}")
    return found
