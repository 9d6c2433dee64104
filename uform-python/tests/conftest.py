"""Models and executors that the tests share."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import uform

CONFORMANCE = Path(__file__).resolve().parents[2] / "tests" / "conformance"
MODELS = CONFORMANCE / "models"
SENTENCES = CONFORMANCE.parent / "data" / "sentences.txt"


@pytest.fixture(scope="session")
def sentences() -> list[str]:
    """Real English sentences of mixed length."""
    return SENTENCES.read_text(encoding="utf-8").splitlines()


@pytest.fixture(scope="session")
def path() -> str:
    """The directory of a small model with mean pooling and normalization."""
    return str(MODELS / "bert-mean")


@pytest.fixture(scope="session")
def model(path: str) -> uform.Model:
    return uform.Model.load_ram(path)


@pytest.fixture(scope="session")
def minilm_path() -> str:
    """The directory of all-MiniLM-L6-v2, where it was fetched. Where `UFORM_CACHE` says so, it has to be there."""
    cache = Path(os.environ.get("UFORM_CACHE") or Path.home() / ".cache" / "uform")
    directory = cache / "models" / "all-MiniLM-L6-v2"
    if not directory.is_dir():
        assert not os.environ.get("UFORM_CACHE"), f"{directory} is not there; scripts/quickstart.sh fetches it"
        pytest.skip(f"{directory} is not there; scripts/quickstart.sh fetches it")
    return str(directory)


@pytest.fixture(scope="session")
def minilm(minilm_path: str) -> uform.Model:
    return uform.Model.load_ram(minilm_path)


@pytest.fixture
def threads() -> Iterator[uform.Executor]:
    with uform.Executor.for_ram(threads=2) as executor:
        yield executor


@pytest.fixture
def run_python(path: str) -> Callable[..., str]:
    """Runs a script in a fresh interpreter, which finds the model's directory in `path`, and gives what it prints."""

    def run(script: str, *arguments: str, timeout: float = 60) -> str:
        done = subprocess.run(
            [sys.executable, "-W", "ignore::DeprecationWarning", "-c", f"path = {path!r}\n{script}", *arguments],
            capture_output=True,
            text=True,
            timeout=timeout,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


def load_cases() -> dict:
    return json.loads((CONFORMANCE / "cases.json").read_text(encoding="ascii"))
