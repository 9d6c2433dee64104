"""The conformance suite, as its README describes a runner."""

import math
import struct
from collections.abc import Iterator
from typing import Any

import pytest
from conftest import MODELS, load_cases

import uform

SUITE = load_cases()

KEYS = {"name", "verb", "model", "precision", "path", "derive", "options", "reports", "texts", "expect"}
OPTIONS = {"role", "prompt_name", "prompt", "dimensions", "token_limit", "normalize", "length", "dtype"}
DERIVATIONS = {"remove", "replace", "patch", "truncate"}
EXPECTATIONS = {
    "status",
    "message_contains",
    "dimensions",
    "token_limit",
    "difference",
    "least_difference",
    "rows",
    "tokens",
}
ROW_KEYS = {"status", "tokens_found", "tokens_kept", "truncated", "vector"}

FORMATS = {"f32": "f", "f16": "H", "bf16": "H", "i8": "b", "u8": "B", "b1": "B"}


def check_keys(case: dict[str, Any]) -> None:
    """Fails on anything that this runner does not know."""
    assert case.keys() <= KEYS
    assert case.get("options", {}).keys() <= OPTIONS
    assert case.get("derive", {}).keys() <= DERIVATIONS
    assert case["expect"].keys() <= EXPECTATIONS
    assert all(row.keys() <= ROW_KEYS for row in case["expect"].get("rows", []))


def derived_files(case: dict[str, Any]) -> dict[str, bytes]:
    directory = MODELS / case["model"]
    derive = case["derive"]
    names = [name for name in SUITE["models"][case["model"]]["files"] if name not in derive.get("remove", [])]
    files = {name: bytearray((directory / name).read_bytes()) for name in names}
    for name, text in derive.get("replace", {}).items():
        files[name] = bytearray(text.encode())
    for patch in derive.get("patch", []):
        new = bytes.fromhex(patch["hex"])
        files[patch["file"]][patch["offset"] : patch["offset"] + len(new)] = new
    for name, length in derive.get("truncate", {}).items():
        del files[name][length:]
    return {name: bytes(content) for name, content in files.items()}


def load(case: dict[str, Any]) -> uform.Model:
    precision = case.get("precision", "auto")
    if "derive" in case:
        return uform.Model.load_ram_from_bytes(derived_files(case), precision=precision)
    directory = MODELS / case["model"]
    return uform.Model.load_ram(directory / case["path"] if "path" in case else directory, precision=precision)


def check_error(error: uform.Error, expect: dict[str, Any]) -> None:
    assert isinstance(error.status, uform.Status)
    assert "STATUS_" + error.status.name == "STATUS_" + expect["status"].removeprefix("STATUS_"), str(error)
    for part in expect.get("message_contains", []):
        assert part in str(error)


def row_bytes(vectors: Any) -> list[bytes]:
    return [bytes(row) for row in vectors]


def difference(found: bytes, expected: bytes, dtype: str) -> float:
    """The largest difference of an element; infinite where rows of bits differ, or one is not a number."""
    assert len(found) == len(expected)
    if dtype == "b1":
        return 0 if found == expected else math.inf
    pairs = zip(values(found, dtype), values(expected, dtype), strict=True)
    differences = [abs(left - right) for left, right in pairs]
    return math.inf if any(math.isnan(each) for each in differences) else max(differences)


def values(row: bytes, dtype: str) -> Iterator[Any]:
    return (value for (value,) in struct.iter_unpack("<" + FORMATS[dtype], row))


def check_rows(vectors: Any, reports: list[uform.Report] | None, case: dict[str, Any]) -> None:
    expect = case["expect"]
    dtype = case.get("options", {}).get("dtype", "f32")
    found = row_bytes(vectors)
    assert len(found) == len(expect["rows"])
    largest = 0.0
    for index, row in enumerate(expect["rows"]):
        status = row.get("status", "OK")
        if reports is not None:
            report = reports[index]
            assert isinstance(report.status, uform.Status)
            assert report.status.name == status, index
            for key in ("tokens_found", "tokens_kept", "truncated"):
                if key in row:
                    assert getattr(report, key) == row[key], (index, key)
        if "vector" in row:
            differs = difference(found[index], bytes.fromhex(row["vector"]), dtype)
            assert differs <= expect.get("difference", 0), index
            largest = max(largest, differs)
        elif status != "OK" and dtype == "f32":
            assert all(math.isnan(value) for value in values(found[index], dtype)), index
    assert largest >= expect.get("least_difference", 0)


def run_embed(model: uform.Model, case: dict[str, Any]) -> None:
    expect, options = case["expect"], case.get("options", {})
    wants_reports = case.get("reports", True)
    if "token_limit" in expect:
        assert model.describe().token_limit == expect["token_limit"]
    with uform.Executor.for_ram(threads=2) as threads:
        on = model.on(threads)
        if expect["status"] != "OK":
            with pytest.raises(uform.Error) as raised:
                on.embed_texts(case["texts"], reports=wants_reports, **options)
            return check_error(raised.value, expect)
        result = on.embed_texts(case["texts"], reports=wants_reports, **options)
        vectors, reports = result if wants_reports else (result, None)
        dimensions = expect["dimensions"]
        columns = -(-dimensions // 8) if options.get("dtype") == "b1" else dimensions
        assert vectors.shape == (len(case["texts"]), columns)
        check_rows(vectors, reports, case)
        together = row_bytes(vectors)
    for text, row in zip(case["texts"], together, strict=True):
        alone = model.embed_texts(text, reports=wants_reports, **options)
        assert row_bytes(alone[0] if wants_reports else alone) == [row]
    return None


def run_tokenize(model: uform.Model, case: dict[str, Any]) -> None:
    for text, expected in zip(case["texts"], case["expect"]["tokens"], strict=True):
        tokens = model.tokenize(text, **case.get("options", {}))
        assert len(tokens) == len(expected)
        for token, (number, begin, end, special) in zip(tokens, expected, strict=True):
            assert (token.id, token.begin, token.end) == (number, begin, end)
            assert special is None or token.special == special


@pytest.mark.parametrize("case", SUITE["cases"], ids=lambda case: case["name"])
def test_case(case: dict[str, Any]) -> None:
    check_keys(case)
    if any(isinstance(text, dict) for text in case.get("texts", [])):
        pytest.skip("a str holds no bytes that are not Unicode")
    if case["verb"] == "load":
        with pytest.raises(uform.Error) as raised:
            load(case)
        return check_error(raised.value, case["expect"])
    run = {"embed": run_embed, "tokenize": run_tokenize}[case["verb"]]
    return run(load(case), case)


@pytest.mark.parametrize("name", SUITE["models"])
def test_descriptions(name: str) -> None:
    found = uform.Model.load_ram(MODELS / name).describe()
    expected = SUITE["models"][name]
    assert (found.dimensions, found.token_limit) == (expected["dimensions"], expected["token_limit"])
