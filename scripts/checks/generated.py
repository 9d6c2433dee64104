"""Running scripts/generate.sh changes no byte of any file."""

import shutil
import subprocess
import tempfile
from pathlib import Path

from tree import files


def problems(root: Path) -> list[str]:
    with tempfile.TemporaryDirectory() as directory:
        copy = Path(directory) / "copy"
        names = files(root)
        for name in names:
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(root / name, copy / name)
        run = subprocess.run(["bash", "scripts/generate.sh"], cwd=copy, capture_output=True, text=True)
        if run.returncode:
            return [f"scripts/generate.sh ended with {run.returncode}: {run.stderr.strip()}"]
        found = [f"{name} is stale; run scripts/generate.sh" for name in names
                 if not (copy / name).exists() or (copy / name).read_bytes() != (root / name).read_bytes()]
        fresh = {path.relative_to(copy) for path in copy.rglob("*") if path.is_file() and "__pycache__" not in path.parts}
        return found + [f"{name} is missing; run scripts/generate.sh" for name in sorted(fresh - set(names))]
