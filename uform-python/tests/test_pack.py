"""Packed models: one file that embeds as its directory does."""

import json
from pathlib import Path

import pytest

import uform
from uform import errors

TEXTS = ["a cat", "a dog", "the quick brown fox"]


@pytest.mark.parametrize("layout", uform.Layout)
@pytest.mark.parametrize("precision", ["f32", "bf16", "f16", "i8"])
def test_packed_models(path: str, tmp_path: Path, precision: str, layout: uform.Layout) -> None:
    packed = tmp_path / "packed.safetensors"
    uform.Model.pack(path, packed, precision, layout)
    expected = uform.Model.load_ram(path, precision=precision).embed_texts(TEXTS)
    for model in (
        uform.Model.load_ram(packed),
        uform.Model.load_ram(packed, reading="mapped"),
        uform.Model.load_ram_from_bytes({"any.safetensors": packed.read_bytes()}),
    ):
        assert str(model.describe().precision) == precision
        assert (model.embed_texts(TEXTS) == expected).all()


def test_the_header_is_that_of_safetensors(path: str, tmp_path: Path) -> None:
    packed = tmp_path / "packed.safetensors"
    uform.Model.pack(path, packed, precision="i8")
    content = packed.read_bytes()
    length = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + length])
    texts = header.pop("__metadata__")
    assert all(isinstance(text, str) for text in texts.values())
    assert texts["config.json"] == (Path(path) / "config.json").read_text(encoding="utf-8")
    ends = sorted(tensor["data_offsets"] for tensor in header.values())
    assert ends[0][0] == 0 and ends[-1][1] == len(content) - 8 - length
    assert all(before[1] == after[0] for before, after in zip(ends, ends[1:]))


def test_refusals(path: str, tmp_path: Path) -> None:
    packed = tmp_path / "packed.safetensors"
    uform.Model.pack(path, packed, "i8")
    with pytest.raises(errors.UnsupportedError, match="packed.safetensors: precision: expected auto or i8"):
        uform.Model.load_ram(packed, precision="f32")
    with pytest.raises(ValueError, match="destination: expected a name that ends in .safetensors"):
        uform.Model.pack(path, tmp_path / "packed.bin")
    with pytest.raises(ValueError, match="layout: expected one of portable, x86"):
        uform.Model.pack(path, packed, layout="arm")
    with pytest.raises(FileNotFoundError):
        uform.Model.pack(tmp_path / "none", packed)
    packed.write_bytes(packed.read_bytes()[:-1])
    with pytest.raises(errors.CorruptDataError, match="packed.safetensors: expected [0-9]+ bytes by its header"):
        uform.Model.load_ram(packed)
