"""The examples of the README run, one after the other."""

import re
from pathlib import Path

import pytest

README = Path(__file__).resolve().parents[1] / "README.md"


def test_examples(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    blocks = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    assert len(blocks) >= 6
    names: dict[str, object] = {"path": path}
    for block in blocks:
        exec(compile(block, README.name, "exec"), names)
    assert "no/such/model" in capsys.readouterr().out
    names["threads"].free()  # type: ignore[attr-defined]
