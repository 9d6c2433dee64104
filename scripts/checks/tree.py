"""The files of the project as the checks see them: committed or not, but never what git ignores."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts" / "generate"))

# Files that scripts write. Rules for hand-written files do not hold for them.
GENERATED = {
    "include/uform.h",
    "include/uform.abi",
    "uform-rs/src/sys.rs",
    "uform-node/src/generated.ts",
    "uform-python/python/uform/_generated.py",
}


def files(root: Path, *suffixes: str) -> list[Path]:
    """Paths below `root`, relative to it, of the files with one of the suffixes; all files if none is given."""
    if (root / ".git").exists():
        listed = subprocess.run(
            ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
            cwd=root, check=True, capture_output=True, text=True,
        ).stdout.split("\0")
        found = [Path(name) for name in listed if name and (root / name).is_file()]
    else:
        found = [path.relative_to(root) for path in root.rglob("*") if path.is_file()]
    return sorted({path for path in found if not suffixes or path.suffix in suffixes})


def read(root: Path, path: Path) -> str | None:
    """The text of a file, or None if it is none."""
    try:
        return (root / path).read_text(encoding="utf-8")
    except UnicodeDecodeError:
        return None
