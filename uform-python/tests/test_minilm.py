"""A real model against a fifth of the reference library's vectors."""

import json
from pathlib import Path

import numpy
import uform

PARITY = Path(__file__).resolve().parents[2] / "tests" / "data" / "parity"


def test_parity(minilm: uform.Model) -> None:
    rows = [json.loads(line) for line in (PARITY / "texts.jsonl").read_text(encoding="utf-8").splitlines()][::5]
    expected = numpy.load(PARITY / "vectors.npy")[::5]
    with uform.Executor.for_ram() as threads:
        vectors, reports = minilm.on(threads).embed_texts([row["text"] for row in rows], reports=True)
    assert numpy.abs(vectors - expected).max() <= 2e-6
    assert (vectors.astype("f8") * expected).sum(axis=1).min() >= 0.999999
    for row, report in zip(rows, reports, strict=True):
        found = (report.status, report.tokens_found, report.tokens_kept, report.truncated)
        assert found == (uform.Status.OK, row["tokens_found"], row["tokens_kept"], row["truncated"])
