"""Vectors as ndarrays, without NumPy, in memory of the caller and through DLPack."""

import hashlib
from collections.abc import Callable

import numpy
import pytest

import uform
from uform import errors

TEXTS = ["a cat", "a dog", "the quick brown fox"]
NUMPY_TYPES = {"f32": "float32", "f16": "float16", "bf16": "uint16", "i8": "int8", "u8": "uint8", "b1": "uint8"}


@pytest.fixture
def matrix(model: uform.Model) -> uform.Matrix:
    """What a call gives where NumPy is not there."""
    arena = uform.Arena()
    return model.embed_texts(TEXTS, out=arena.allocate(3, 32))


def test_an_ndarray_over_our_memory(model: uform.Model) -> None:
    vectors = model.embed_texts(TEXTS)
    assert isinstance(vectors, numpy.ndarray)
    assert (vectors.shape, vectors.dtype) == ((3, 32), numpy.float32)
    assert vectors.flags.writeable and not vectors.flags.owndata
    assert vectors.ctypes.data % 64 == 0
    assert numpy.linalg.norm(vectors, axis=1) == pytest.approx(1, abs=1e-6)


def test_one_string_is_one_row_and_none_are_none(model: uform.Model) -> None:
    assert model.embed_texts("a cat").shape == (1, 32)
    assert (model.embed_texts("a cat") == model.embed_texts(["a cat"])).all()
    assert model.embed_texts([]).shape == (0, 32)
    assert model.embed_texts(text for text in TEXTS).shape == (3, 32)


@pytest.mark.parametrize("dtype", NUMPY_TYPES)
def test_dtypes(model: uform.Model, dtype: str) -> None:
    exact = model.embed_texts(TEXTS)
    vectors = model.embed_texts(TEXTS, dtype=dtype)
    assert vectors.dtype == NUMPY_TYPES[dtype]
    expected = {
        "f32": lambda: exact,
        "f16": lambda: exact.astype("float16"),
        "i8": lambda: numpy.clip(numpy.rint(exact * numpy.float32(127)), -128, 127).astype("int8"),
        "u8": lambda: (numpy.clip(numpy.rint(exact * numpy.float32(127)), -128, 127) + 128).astype("uint8"),
        "b1": lambda: numpy.packbits(exact > 0, axis=1),
        "bf16": lambda: to_bf16(exact),
    }[dtype]()
    assert (vectors == expected).all()
    assert (model.embed_texts(TEXTS, dtype=uform.Dtype(dtype)) == vectors).all()


def to_bf16(exact: numpy.ndarray) -> numpy.ndarray:
    """Rounds to nearest even."""
    bits = exact.view("uint32").astype("uint64")
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype("uint16")


def test_without_numpy(run_python: Callable[..., str]) -> None:
    script = """
import sys
sys.modules["numpy"] = None
import uform
model = uform.Model.load_ram(path)
vectors = model.embed_texts(["a cat", "a dog"])
assert type(vectors) is uform.Matrix
assert vectors.shape == (2, 32) and len(vectors) == 2 and vectors.dtype == uform.Dtype.F32
view = memoryview(vectors)
assert (view.shape, view.format, view.itemsize, view.strides) == ((2, 32), "f", 4, (128, 4)), view.strides
assert abs(sum(value * value for value in view.tolist()[1]) - 1) < 1e-5
assert vectors[-1].tolist() == view.tolist()[1] and len(list(vectors)) == 2
for dtype, format, width in [("f16", "e", 32), ("bf16", "H", 32), ("i8", "b", 32), ("u8", "B", 32), ("b1", "B", 4)]:
    matrix = model.embed_texts("a cat", dtype=dtype)
    view = memoryview(matrix)
    assert (view.format, view.shape) == (format, (1, width)), (dtype, view.format, view.shape)
    assert matrix.shape == (1, 32)
    assert bytes(matrix[0]) == bytes(view)
capsule = vectors.__dlpack__()
assert "dltensor" in repr(capsule)
del capsule
try:
    vectors[2]
except IndexError as error:
    print(error)
"""
    assert run_python(script) == "row 2 of 2\n"


def test_import_takes_no_numpy(run_python: Callable[..., str]) -> None:
    assert run_python("import sys, uform; print('numpy' in sys.modules)") == "False\n"


@pytest.mark.parametrize("dtype", ["f32", "f16", "i8", "u8"])
def test_dlpack(model: uform.Model, dtype: str) -> None:
    arena = uform.Arena()
    matrix = model.embed_texts(TEXTS, out=arena.allocate(3, 32, dtype))
    array = numpy.from_dlpack(matrix)
    assert (array == numpy.asarray(matrix)).all() and array.shape == (3, 32)
    assert array.ctypes.data == numpy.asarray(matrix).ctypes.data
    assert matrix.__dlpack_device__() == (1, 0)


@pytest.mark.parametrize("version", [None, (0, 8), (1, 0), (1, 2)])
def test_dlpack_versions(matrix: uform.Matrix, version: tuple[int, int] | None) -> None:
    name = "dltensor_versioned" if version is not None and version >= (1, 0) else "dltensor"
    assert f'"{name}"' in repr(matrix.__dlpack__(max_version=version))


def test_array_interface(matrix: uform.Matrix) -> None:
    array = matrix.__array__()
    assert (array == numpy.asarray(matrix)).all() and numpy.shares_memory(array, numpy.asarray(matrix))
    assert matrix.__array__("float64").dtype == numpy.asarray(matrix, dtype="float64").dtype == numpy.float64
    assert not numpy.shares_memory(matrix.__array__(copy=True), array)
    assert not numpy.shares_memory(numpy.array(matrix), array)


def test_dlpack_refuses_what_it_cannot_do(matrix: uform.Matrix) -> None:
    with pytest.raises(BufferError):
        matrix.__dlpack__(copy=True)
    with pytest.raises(BufferError):
        matrix.__dlpack__(dl_device=(2, 0))
    with pytest.raises(ValueError):
        matrix.__dlpack__(stream=1)


def test_out(model: uform.Model, threads: uform.Executor) -> None:
    expected = model.embed_texts(TEXTS)
    out = numpy.zeros((3, 32), "float32")
    assert model.on(threads).embed_texts(TEXTS, out=out) is out
    assert (out == expected).all()


def test_out_with_strides(model: uform.Model) -> None:
    wide = numpy.full((7, 40), 9, "float32")
    out = wide[1::2, 4:36]
    model.embed_texts(TEXTS, out=out)
    assert (out == model.embed_texts(TEXTS)).all()
    wide[1::2, 4:36] = 9
    assert (wide == 9).all()


def test_out_with_reports(model: uform.Model) -> None:
    out = numpy.zeros((3, 32), "float16")
    vectors, reports = model.embed_texts(TEXTS, out=out, reports=True)
    assert vectors is out and len(reports) == 3 and out.any(axis=1).all()


def test_out_of_other_kinds(model: uform.Model) -> None:
    out = memoryview(bytearray(3 * 32)).cast("b", (3, 32))
    model.embed_texts(TEXTS, out=out)
    assert (numpy.asarray(out) == model.embed_texts(TEXTS, dtype="i8")).all()
    bits = bytearray(3 * 4)
    model.embed_texts(TEXTS, dtype="b1", out=memoryview(bits).cast("B", (3, 4)))
    assert bytes(bits) == model.embed_texts(TEXTS, dtype="b1").tobytes()


@pytest.mark.parametrize(
    ("out", "options", "sentence"),
    [
        (numpy.zeros((3, 31), "float32"), {}, "expected the shape (3, 32), found (3, 31)"),
        (numpy.zeros((2, 32), "float32"), {}, "expected the shape (3, 32), found (2, 32)"),
        (numpy.zeros((3, 32), "float64"), {}, 'items of format "d" hold no dtype'),
        (numpy.zeros((3, 32), "float32"), {"dtype": "f16"}, 'expected items of format "e" for f16, found "f"'),
        (numpy.zeros((3, 32), ">f4"), {}, 'items of format ">f" hold no dtype'),
        (numpy.zeros(96, "float32"), {}, "expected 2 axes, found 1"),
        (numpy.zeros((), "float32"), {}, "expected 2 axes, found 0"),
        (numpy.zeros((32, 3), "float32").T, {}, "items side by side"),
        (numpy.zeros((3, 32), "float32")[::-1], {}, "one after the other"),
        (numpy.broadcast_to(numpy.zeros((1, 32), "float32"), (3, 32)), {}, "read-only"),
        (numpy.lib.stride_tricks.as_strided(numpy.zeros(40, "float32"), (3, 32), (16, 4)), {}, "one after the other"),
    ],
)
def test_out_that_is_refused(model: uform.Model, out: numpy.ndarray, options: dict, sentence: str) -> None:
    with pytest.raises(ValueError) as raised:
        model.embed_texts(TEXTS, out=out, **options)
    assert sentence in str(raised.value)


def test_out_that_is_no_buffer(model: uform.Model) -> None:
    with pytest.raises(TypeError):
        model.embed_texts(TEXTS, out=[0.0])


def test_arena(model: uform.Model, threads: uform.Executor) -> None:
    arena = uform.Arena.new_in(threads)
    matrix = arena.allocate(3, 32)
    assert model.on(threads).embed_texts(TEXTS, out=matrix) is matrix
    vectors = numpy.asarray(matrix)
    assert (vectors == model.embed_texts(TEXTS)).all()
    assert arena.describe().used_bytes >= 3 * 128
    with pytest.raises(errors.ContendedError, match="1 views of the arena's memory are alive"):
        arena.reset()
    del vectors
    arena.reset()
    assert arena.describe().used_bytes == 0
    for dtype in ("b1", "i8", "f16", "f32"):
        assert not numpy.asarray(arena.allocate(3, 32, dtype)).any()
    assert arena.allocate(1 << 40, 0).shape == (1 << 40, 0)
    uses: list[Callable[[uform.Matrix], object]] = [
        memoryview,
        lambda old: old[0],
        lambda old: old.__dlpack__(),
        lambda old: model.embed_texts(TEXTS, out=old),
        numpy.asarray,
        numpy.from_dlpack,
        lambda old: numpy.array(old, dtype="float64"),
        lambda old: numpy.stack([old, old]),
    ]
    for use in uses:
        with pytest.raises(errors.InvalidArgumentError, match="reset since the matrix was allocated"):
            use(matrix)
    with pytest.raises(ValueError, match="elements are i8"):
        model.embed_texts(TEXTS, out=arena.allocate(3, 32, "i8"), dtype="f32")


def test_arena_is_not_reset_under_capsules_rows_and_calls(model: uform.Model, threads: uform.Executor) -> None:
    arena = uform.Arena()
    matrix, large = arena.allocate(3, 32), arena.allocate(20_000, 32)
    holders: list[Callable[[], object]] = [
        lambda: matrix.__dlpack__(),
        lambda: matrix.__dlpack__(max_version=(1, 0)),
        lambda: numpy.from_dlpack(matrix),
        lambda: matrix[1],
        lambda: model.on(threads).deferred.embed_texts(["the quick brown fox " * 40] * 20_000, out=large),
    ]
    for hold in holders:
        held = hold()
        with pytest.raises(errors.ContendedError, match="views of the arena's memory are alive"):
            arena.reset()
        del held
    arena.reset()


def test_arena_outlives_what_made_it(model: uform.Model) -> None:
    with uform.Executor.for_ram(threads=1) as threads:
        arena = uform.Arena(threads)
        matrix = model.on(threads).embed_texts(TEXTS, out=arena.allocate(3, 32, "i8"))
    del arena
    assert (numpy.asarray(matrix) == model.embed_texts(TEXTS, dtype="i8")).all()


def test_arena_with_gaps_between_rows(model: uform.Model) -> None:
    matrix = uform.Arena().allocate(3, 8)
    model.embed_texts(TEXTS, dimensions=8, out=matrix)
    array = numpy.asarray(matrix)
    assert array.strides == (64, 4) and numpy.linalg.norm(array, axis=1) == pytest.approx(1, abs=1e-6)
    assert matrix[2].tolist() == array[2].tolist()
    assert (numpy.from_dlpack(matrix) == array).all()
    with pytest.raises(BufferError):
        hashlib.sha256(matrix)
