#!/usr/bin/env python3
"""Runs every example of README.md, so that none can go stale: Rust, C, C++, JavaScript, TypeScript and Python.

The examples name a model by the path "all-MiniLM-L6-v2"; they run in a folder where that is the model that
scripts/get-model.sh fetched. Shell blocks are commands for people and have their own tests."""

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
CACHE = Path(os.environ.get("UFORM_CACHE", Path.home() / ".cache" / "uform"))
TARGET = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
MODELS = CACHE / "models"
SHARED = TARGET / "debug"


def run(*command: object, **options: object) -> None:
    subprocess.run([str(word) for word in command], check=True, cwd=MODELS, timeout=600, **options)


def compiled(compiler: str, standard: str, source: Path) -> None:
    binary = source.with_suffix("")
    flags = ["-Wall", "-Wextra", "-Wpedantic", "-Werror", f"-I{ROOT / 'include'}"]
    soname = source.parent / "libuform.so.4"  # what programs ask for, whatever Cargo calls the file
    soname.unlink(missing_ok=True)
    soname.symlink_to(SHARED / "libuform_c.so")
    run(compiler, f"-std={standard}", *flags, source, soname, "-lm", "-o", binary)
    run(binary, env={**os.environ, "LD_LIBRARY_PATH": str(soname.parent)})


def rust(source: Path) -> None:
    """Compiled as a program of its own against the crate, outside the workspace."""
    package = source.with_suffix("")
    (package / "src").mkdir(parents=True)
    (package / "src" / "main.rs").write_text(source.read_text())
    manifest = f'[package]\nname = "readme"\nversion = "0.0.0"\nedition = "2024"\n\n[workspace]\n\n[dependencies]\nuform = {{ path = "{ROOT / "uform-rs"}" }}\n'
    (package / "Cargo.toml").write_text(manifest)
    (package / "Cargo.lock").write_text((ROOT / "Cargo.lock").read_text())
    run("cargo", "run", "--quiet", "--config", "profile.dev.opt-level=2", "--config", 'profile.dev.debug="line-tables-only"',
        "--target-dir", TARGET, "--manifest-path", package / "Cargo.toml")


def javascript(source: Path) -> None:
    modules = source.parent / "node_modules"
    modules.mkdir(exist_ok=True)
    (modules / "uform").symlink_to(ROOT / "uform-node")
    run("node", source)


LANGUAGES = {
    "rust": (".rs", rust),
    "c": (".c", lambda source: compiled("gcc", "c99", source)),
    "cpp": (".cpp", lambda source: compiled("g++", "c++17", source)),
    "javascript": (".mjs", javascript),
    "python": (".py", lambda source: run(CACHE / "python" / "bin" / "python", source)),
}


def main() -> None:
    if not (MODELS / "all-MiniLM-L6-v2" / "model.safetensors").exists():
        sys.exit("readme.py: all-MiniLM-L6-v2 is not there; scripts/get-model.sh fetches it")
    subprocess.run(["cargo", "build", "--quiet", "-p", "uform-c", "--features", "numa"], check=True, cwd=ROOT)
    blocks = re.findall(r"^```(\w+)\n(.*?)^```", (ROOT / "README.md").read_text(), re.M | re.S)
    seen = set()
    for language, text in blocks:
        if language not in LANGUAGES:
            continue
        suffix, runner = LANGUAGES[language]
        with tempfile.TemporaryDirectory() as folder:
            source = Path(folder) / f"example{suffix}"
            source.write_text(text)
            print(f"README: {language}", flush=True)
            runner(source)
        seen.add(language)
    if missing := set(LANGUAGES) - seen:
        sys.exit(f"README.md has no example in {', '.join(sorted(missing))}")


main()
