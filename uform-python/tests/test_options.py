"""What verbs refuse: values out of range, of other types, and texts that are not Unicode."""

import math
import sys

import numpy
import pytest

import uform
from uform import errors

TEXTS = ["a cat", "a dog", "the quick brown fox"]
MOST = 2 * sys.maxsize + 1
HUGE = 10**5000
"""More digits than Python writes out."""


@pytest.fixture(params=["model", "executor"])
def on(request: pytest.FixtureRequest, model: uform.Model, threads: uform.Executor) -> uform.Model | uform.On:
    """The same verbs on the calling thread and on an executor."""
    return model if request.param == "model" else model.on(threads)


@pytest.mark.parametrize(
    ("arguments", "options", "kind", "sentence"),
    [
        ((b"a cat",), {}, TypeError, "expected str, found bytes"),
        ((["a", None],), {}, TypeError, "texts[1]: expected str, found NoneType"),
        ((7,), {}, TypeError, "not iterable"),
        (("a",), {"dimensions": 33}, ValueError, "33"),
        (("a",), {"dimensions": -1}, ValueError, f"dimensions: expected a number from 0 to {MOST}, found -1"),
        (("a",), {"dimensions": 2**64}, ValueError, f"dimensions: expected a number from 0 to {MOST}, found {2**64}"),
        (("a",), {"token_limit": HUGE}, ValueError, "token_limit: expected a number from 0 to "),
        (("a",), {"token_budget": HUGE}, ValueError, "found a number of 16610 bits"),
        (("a",), {"dimensions": 1.5}, TypeError, "dimensions: expected int, found float"),
        (("a",), {"dimensions": "8"}, TypeError, "dimensions: expected int, found str"),
        (("a",), {"dtype": "f64"}, ValueError, "dtype: expected one of f32, f16, bf16, i8, u8, b1, found 'f64'"),
        (("a",), {"dtype": HUGE}, ValueError, "dtype: expected one of f32, f16, bf16, i8, u8, b1, found a number of 16610 bits"),
        (("a",), {"role": "nobody"}, ValueError, "role: expected one of as-given, query, document, found 'nobody'"),
        (("a",), {"normalize": 2**64}, ValueError, "normalize: expected one of model, yes, no, found 18446744073709551616"),
        (("a",), {"length": -1}, ValueError, "length: expected one of truncate, refuse, found -1"),
        (("a",), {"prompt": "", "prompt_name": "query"}, ValueError, "expected one of the two at most"),
        (("a",), {"prompt": "ab\ud800"}, ValueError, "prompt: expected Unicode, found a lone surrogate at 2"),
        (("a",), {"prompt_name": 7}, TypeError, "prompt_name: expected str, found int"),
        (("a",), {"output_scale": -1.0, "dtype": "i8"}, ValueError, "output_scale: expected 0 or a number from 1.4"),
        (("a",), {"output_scale": 1e300}, ValueError, "found 1e+300"),
        (("a",), {"output_scale": 1e-300}, ValueError, "found 1e-300"),
        (("a",), {"output_scale": math.nan}, ValueError, "found nan"),
        (("a",), {"output_scale": HUGE}, ValueError, "output_scale: expected a number up to 1.79"),
        (("a",), {"output_scale": "1"}, TypeError, "output_scale: expected float, found str"),
        (("a",), {"colour": "red"}, TypeError, "colour"),
    ],
)
def test_arguments_that_are_refused(
    on: uform.Model | uform.On, arguments: tuple, options: dict, kind: type[Exception], sentence: str
) -> None:
    with pytest.raises(kind) as raised:
        on.embed_texts(*arguments, **options)
    assert sentence in str(raised.value)
    assert isinstance(raised.value, TypeError if kind is TypeError else errors.InvalidArgumentError)


def test_options_of_executors_models_and_arenas(model: uform.Model, threads: uform.Executor, path: str) -> None:
    arena = uform.Arena()
    uses = {
        "threads: expected a number from 0": lambda: uform.Executor.for_ram(threads=2**64),
        "threads: at most 4096": lambda: uform.Executor.for_ram(threads=2**63),
        "deferred_limit: expected a number from 0": lambda: uform.Executor.for_ram(deferred_limit=HUGE),
        f"memory_domains[1]: expected a number from 0 to {2**31 - 1}, found {2**31}": lambda: uform.Executor.for_ram([0, 2**31]),
        "memory_domains[0]: expected a number from 0": lambda: uform.Model.load_ram(path, memory_domains=[-1]),
        "devices[0]: expected a number from 0": lambda: uform.Executor.for_vram([2**64]),
        "devices[2]: expected a number from 0": lambda: uform.Model.load_vram(path, threads, [0, 1, 2**31]),
        "streams[0]: expected a number from 0": lambda: uform.Executor.for_vram(streams=[2**64]),
        "scratch_limit: expected a number from 0": lambda: uform.Executor.for_vram(scratch_limit=2**64),
        "pool: expected a number from 0": lambda: uform.Executor.on_pool(pool=-1),
        "rows: expected a number from 0": lambda: arena.allocate(2**64, 1),
        "columns: expected a number from 0": lambda: arena.allocate(1, -1),
        "tokens: expected a number from 0": lambda: model.plan(1, 2**64),
        "cpu_class: expected one of serial": lambda: uform.Executor.for_ram(cpu_class=2**64),
        "mood: expected one of parked, spinning": lambda: threads.drain(2**64),
        "text: expected Unicode, found a lone surrogate at 1": lambda: model.tokenize("a\udfff"),
        "files['\\udc00']: expected Unicode": lambda: uform.Model.load_ram_from_bytes({"\udc00": b""}),
    }
    for sentence, use in uses.items():
        with pytest.raises(errors.InvalidArgumentError) as raised:
            use()
        assert isinstance(raised.value, ValueError) and sentence in str(raised.value)
    with pytest.raises(TypeError, match=r"memory_domains\[0\]: expected int, found float"):
        uform.Executor.for_ram([0.5])  # type: ignore[list-item]
    assert model.embed_texts("a", dimensions=numpy.int64(8)).shape == (1, 8)


def test_a_lone_surrogate_fails_its_row_alone(on: uform.Model | uform.On) -> None:
    class Named(str):
        """A string whose own `encode` is not to be asked."""

        def encode(self, *_: object) -> bytes:
            return b"a cat"

    bad = ["a \ud800", "\udfff", "a cat \udc80 \ud83d\ude00", Named("\ud800")]
    texts = [TEXTS[0], bad[0], TEXTS[1], *bad[1:], TEXTS[2]]
    vectors, reports = on.embed_texts(texts, reports=True)
    good = [row for row, text in enumerate(texts) if text in TEXTS]
    assert (vectors[good] == on.embed_texts(TEXTS)).all()
    for row, report in enumerate(reports):
        assert report.status == (uform.Status.OK if row in good else uform.Status.INVALID_ARGUMENT)
        assert row in good or numpy.isnan(vectors[row]).all()
    with pytest.raises(errors.RowFailedError, match="row 1: expected UTF-8, found a lone surrogate at 2"):
        on.embed_texts(texts)
    deferred = on.deferred.embed_texts(texts, reports=True)
    again, _ = deferred.result()
    assert numpy.array_equal(again, vectors, equal_nan=True)
    with pytest.raises(errors.RowFailedError, match="row 0"):
        on.deferred.embed_texts("\ud800").result()
    # Both halves of a character are one of their own where they stand together in Python's string.
    assert on.embed_texts("\U0001f600").shape == (1, 32)


def test_roles_of_verbs(path: str) -> None:
    model = uform.Model.load_ram(path.replace("bert-mean", "bert-prompts"))
    for verbs in (model, model.deferred):
        for verb, role, other in (("embed_queries", "query", "document"), ("embed_documents", "document", "query")):
            embed = getattr(verbs, verb)
            for same in (None, role, uform.Role(role)):
                embed("a cat", role=same)
            for contradiction in (other, uform.Role(other), "as-given"):
                with pytest.raises(errors.InvalidArgumentError) as raised:
                    embed("a cat", role=contradiction)
                assert f"role: expected none or {role} in {verb}, found " in str(raised.value)
            with pytest.raises(errors.InvalidArgumentError, match="role: expected one of as-given, query, document"):
                embed("a cat", role="nobody")
