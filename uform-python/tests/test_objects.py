"""Executors, models and errors as Python objects: `with`, pickle, copies, fork, threads, memory."""

import copy
import gc
import multiprocessing
import os
import pickle
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy
import pytest

import uform
from uform import errors

TEXTS = ["a cat", "a dog", "the quick brown fox"]


def test_executor() -> None:
    with uform.Executor.for_ram(threads=2, deferred_limit=5) as executor:
        about = executor.describe()
        assert (about.threads, about.deferred_limit, about.deferred_waiting) == (2, 5, 0)
        assert (about.residency, about.gpu_class, about.mood) == (uform.Residency.RAM, None, uform.Mood.PARKED)
        assert about.cpu_class == uform.cpu_class_detected()
        executor.drain(uform.Mood.SPINNING)
        assert executor.describe().mood == uform.Mood.SPINNING
        executor.drain()
        assert executor.describe().mood == uform.Mood.PARKED
    executor.free()
    with pytest.raises(ValueError, match="the executor was freed"):
        executor.describe()


def test_null_executor(model: uform.Model) -> None:
    executor = uform.Executor()
    assert executor.describe().threads == 1
    executor.drain()
    executor.trim()
    executor.free()
    assert model.on(executor).embed_texts(TEXTS).shape == (3, 32)


def test_classes(model: uform.Model) -> None:
    names = uform.capabilities_available().split(",")
    assert "serial" in names and set(names) <= set(uform.capabilities_compiled().split(","))
    for name in [name for name in names if name in map(str, uform.CPUClass)]:
        with uform.Executor.for_ram(cpu_class=name, threads=1) as executor:
            assert str(executor.describe().cpu_class) == name
            vectors = model.on(executor).embed_texts(TEXTS)
            assert numpy.abs(vectors - model.embed_texts(TEXTS)).max() < 1e-5
    missing = next(one for one in uform.CPUClass if str(one) not in names)
    with pytest.raises(errors.UnsupportedError, match="serial"):
        uform.Executor.for_ram(cpu_class=missing)
    with pytest.raises(ValueError, match="cpu_class: expected one of serial, "):
        uform.Executor.for_ram(cpu_class="pentium")


def test_what_is_not_supported(model: uform.Model, path: str) -> None:
    for make in (uform.Executor.on_pool, uform.Executor.for_vram):
        with pytest.raises(errors.UnsupportedError) as raised:
            make()
        assert str(raised.value) and raised.value.status == uform.Status.UNSUPPORTED
    with pytest.raises(errors.UnsupportedError):
        uform.Model.load_vram(path, uform.Executor())
    with pytest.raises(ValueError, match="domain"):
        uform.Executor.for_ram([12345])
    with pytest.raises(TypeError):
        uform.Model()


def test_devices_and_version() -> None:
    assert uform.__version__ == uform.version() and uform.version().count(".") == 2
    for device in uform.gpu_devices():
        assert isinstance(device.vendor, uform.GPUVendor) and device.name and device.memory_bytes > 0


def test_scratch(model: uform.Model, sentences: list[str]) -> None:
    with uform.Executor.for_ram(threads=2) as executor:
        model.on(executor).embed_texts(sentences[:64])
        about = executor.describe()
        assert 0 < about.scratch_high_water_bytes <= about.scratch_bytes
        executor.trim()
        assert executor.describe().scratch_bytes == 0


def test_description(model: uform.Model) -> None:
    about = model.describe()
    assert (about.architecture, about.dimensions, about.token_limit, about.pooling) == ("bert", 32, 48, "mean")
    assert about.normalized is True and about.file_dtype == uform.Dtype.F32
    with pytest.raises(AttributeError):
        about.dimensions = 7  # type: ignore[misc]
    assert "bert, 32 dimensions" in repr(model)


def test_enumerations() -> None:
    assert uform.CPUClass("intel-haswell") is uform.CPUClass.INTEL_HASWELL is uform.CPUClass(2)
    assert str(uform.CPUClass.WASM64_EXTENDED) == "wasm64-extended" and len(uform.CPUClass) == 18
    assert len(uform.GPUClass) == 12 and f"{uform.Dtype.BF16}" == "bf16"


def test_loading_from_bytes(path: str, model: uform.Model) -> None:
    files = {str(file.relative_to(path)): file.read_bytes() for file in Path(path).rglob("*") if file.is_file()}
    loaded = uform.Model.load_ram_from_bytes(files)
    assert (loaded.embed_texts(TEXTS) == model.embed_texts(TEXTS)).all()
    views = {name: memoryview(bytearray(content)) for name, content in files.items()}
    assert (uform.Model.load_ram_from_bytes(views).embed_texts(TEXTS) == model.embed_texts(TEXTS)).all()
    with pytest.raises(FileNotFoundError, match="config.json"):
        uform.Model.load_ram_from_bytes({"model.safetensors": files["model.safetensors"]})
    with pytest.raises(ValueError, match="bytes cannot be pickled"):
        pickle.dumps(loaded)


def test_ways_to_load(path: str, model: uform.Model, threads: uform.Executor) -> None:
    expected = model.embed_texts(TEXTS)
    for options in ({"reading": "mapped"}, {"precision": "f32"}, {"executor": threads}, {"cpu_class": "serial"}):
        assert (uform.Model.load_ram(Path(path), **options).embed_texts(TEXTS) == expected).all()


def test_failures_of_loading(tmp_path: Path, path: str) -> None:
    with pytest.raises(FileNotFoundError) as missing:
        uform.Model.load_ram(tmp_path / "nothing")
    assert isinstance(missing.value, uform.Error) and missing.value.status == uform.Status.NOT_FOUND
    assert "nothing" in str(missing.value)
    for file in Path(path).rglob("*"):
        if file.is_file():
            (tmp_path / file.relative_to(path)).parent.mkdir(exist_ok=True)
            (tmp_path / file.relative_to(path)).write_bytes(file.read_bytes())
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(errors.CorruptDataError, match="config.json") as corrupt:
        uform.Model.load_ram(tmp_path)
    assert isinstance(corrupt.value, ValueError)


def test_kinds_of_errors() -> None:
    kinds = {
        uform.Status.INVALID_ARGUMENT: ValueError,
        uform.Status.NOT_FOUND: LookupError,
        uform.Status.CORRUPT_DATA: ValueError,
        uform.Status.OUT_OF_MEMORY: MemoryError,
        uform.Status.IO: OSError,
        uform.Status.TIMED_OUT: TimeoutError,
    }
    for status in uform.Status:
        error = errors.from_status(status, "a sentence")
        assert isinstance(error, uform.Error) and isinstance(error, kinds.get(status, Exception))
        assert (error.status, str(error)) == (status, "a sentence")
        copied = pickle.loads(pickle.dumps(error))
        assert (type(copied), copied.status, str(copied)) == (type(error), status, "a sentence")
    unknown = pickle.loads(pickle.dumps(errors.from_status(12345, "later")))
    assert unknown.status == 12345


def test_pickle_and_copies(path: str, model: uform.Model, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = model.embed_texts(TEXTS)
    for clone in (model.clone(), copy.copy(model), copy.deepcopy(model)):
        assert clone is not model and (clone.embed_texts(TEXTS) == expected).all()
    monkeypatch.chdir(Path(path).parent)
    kept = pickle.dumps(uform.Model.load_ram(Path(path).name, reading="mapped", precision="f32"))
    monkeypatch.chdir("/")
    loaded = pickle.loads(kept)
    assert (loaded.embed_texts(TEXTS) == expected).all()
    assert loaded._origin[1]["reading"] == uform.Reading.MAPPED
    for other in (uform.Executor(), uform.Arena(), model.deferred.embed_texts(TEXTS)):
        with pytest.raises(TypeError):
            pickle.dumps(other)


def embed_in_another_process(model: uform.Model, text: str) -> numpy.ndarray:
    return model.embed_texts(text)


def test_processes(model: uform.Model) -> None:
    with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("spawn")) as pool:
        rows = list(pool.map(embed_in_another_process, [model] * 3, TEXTS))
    assert (numpy.vstack(rows) == model.embed_texts(TEXTS)).all()


FORKED = """
import os, sys, threading, time
import uform
model = uform.Model.load_ram(path)
texts = ["a cat", "a dog"]
threads = uform.Executor.for_ram(threads=2)
expected = bytes(model.on(threads).embed_texts(texts))
arena = uform.Arena(threads)
# The child is born while another thread computes and holds whatever locks there are.
long = ["the quick brown fox jumps over the lazy dog " * 4] * 30_000
later = model.on(threads).deferred.embed_texts(long)
busy = threading.Thread(target=lambda: model.on(threads).embed_texts(texts * 200))
busy.start()
time.sleep(0.05)
child = os.fork()
if child == 0:
    uses = [
        lambda: model.on(threads).embed_texts(texts), lambda: model.on(threads).deferred.embed_texts(texts),
        threads.describe, threads.drain, threads.trim, threads.free, later.result, later.done, later.cancel,
        lambda: uform.Arena(threads), lambda: arena.allocate(1, 1),
    ]
    for use in uses:
        try:
            use()
            print("no error")
        except uform.Error as error:
            assert error.status == uform.Status.FORKED and "forked" in str(error), error
    assert bytes(model.embed_texts(texts)) == expected
    with uform.Executor.for_ram(threads=2) as own:
        assert bytes(model.on(own).embed_texts(texts)) == expected
        assert bytes(model.on(own).deferred.embed_texts(texts).result()) == expected
    assert bytes(uform.Model.load_ram(path).embed_texts(texts)) == expected
    del threads, later, arena, model
    print("child")
    sys.exit(0)
_, status = os.waitpid(child, 0)
assert status == 0, status
later.cancel()
busy.join()
assert bytes(model.on(threads).embed_texts(texts)) == expected
print("parent")
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_fork(run_python: Callable[..., str]) -> None:
    assert run_python(FORKED) == "child\nparent\n"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_fork_by_multiprocessing(run_python: Callable[..., str]) -> None:
    script = """
import multiprocessing
import uform
model = uform.Model.load_ram(path)
threads = uform.Executor.for_ram(threads=2)
expected = [bytes(model.on(threads).embed_texts(text)) for text in ("a", "b", "c")]
def embed(text):
    return bytes(model.embed_texts(text))
def embed_on(text):
    try:
        model.on(threads).embed_texts(text)
    except uform.Error as error:
        return error
with multiprocessing.get_context("fork").Pool(2) as pool:
    print(pool.map(embed, ["a", "b", "c"]) == expected)
    print({(type(error).__name__, error.status.name) for error in pool.map(embed_on, ["a", "b"])})
"""
    assert run_python(script) == "True\n{('ForkedError', 'FORKED')}\n"


@pytest.mark.parametrize("shared", ["null", "one executor", "own executors"])
def test_sixteen_threads(model: uform.Model, sentences: list[str], shared: str) -> None:
    texts = sentences[:160] + ["cat " * 100, "", " "]
    expected = {text: row.tobytes() for text, row in zip(texts, model.embed_texts(texts), strict=True)}
    common = uform.Executor.for_ram(threads=2)
    wrong: list[object] = []

    def work(index: int) -> None:
        try:
            own = uform.Executor.for_ram(threads=2) if shared == "own executors" else common
            on = model if shared == "null" else model.on(own)
            for turn in range(6):
                mine = texts[index + turn :: 16]
                rows = on.embed_texts(mine)
                if turn == 3 and isinstance(on, uform.On):
                    rows = on.deferred.embed_texts(mine).result()
                wrong.extend(text for text, row in zip(mine, rows, strict=True) if row.tobytes() != expected[text])
        except BaseException as error:  # noqa: BLE001 - whatever it is, the test reports it
            wrong.append(error)

    workers = [threading.Thread(target=work, args=(index,)) for index in range(16)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
    assert not any(worker.is_alive() for worker in workers)
    assert wrong == []
    common.free()


def test_the_interpreter_is_released(model: uform.Model, sentences: list[str]) -> None:
    """Python code runs on while another thread computes."""
    done = threading.Event()
    counted = 0

    def work() -> None:
        model.embed_texts(sentences * 2)
        done.set()

    worker = threading.Thread(target=work)
    worker.start()
    while not done.wait(0.001):
        counted += 1
    worker.join()
    assert counted > 5


def test_freeing_while_others_use_it(model: uform.Model, sentences: list[str]) -> None:
    for _ in range(5):
        executor = uform.Executor.for_ram(threads=2)
        later = model.on(executor).deferred.embed_texts(sentences[:100])
        failed: list[str] = []

        def work(executor: uform.Executor = executor, failed: list[str] = failed) -> None:
            try:
                while True:
                    model.on(executor).embed_texts(TEXTS)
            except uform.Error as error:
                failed.append(str(error))

        worker = threading.Thread(target=work)
        worker.start()
        executor.free()
        worker.join(30)
        assert failed == ["the executor was freed"]
        assert later.result(0).shape == (100, 32)


def test_warnings_go_to_the_logger(run_python: Callable[..., str]) -> None:
    script = """
import logging, sys
logging.basicConfig(format="%(name)s %(levelname)s %(message)s", stream=sys.stdout)
import uform
on = uform.Model.load_ram(path).on(uform.Executor.for_ram(threads=2))
def warn():
    # A call that is let go in its own progress callback causes a warning.
    held = []
    def drop(done, total):
        while not held: pass
        held.clear()
        return False
    held.append(on.deferred.embed_texts(["a cat"] * 2000, progress=drop, token_budget=8))
    on.embed_texts("a cat")
warn()
seen = []
uform.set_log_callback(seen.append)
warn()
print(seen)
uform.set_log_callback(None)
warn()
"""
    message = "a deferred call was freed from inside, and touches its buffers until it has ended"
    assert run_python(script) == f"uform WARNING {message}\n[{message!r}]\n"


def resident_bytes() -> int:
    with open("/proc/self/statm", encoding="ascii") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_memory_is_stable(model: uform.Model, threads: uform.Executor, sentences: list[str]) -> None:
    texts = sentences[:64]

    def work(rounds: int) -> None:
        for _ in range(rounds):
            vectors, _ = model.on(threads).embed_texts(texts, reports=True)
            model.on(threads).deferred.embed_texts(texts).result()
            arena = uform.Arena(threads)
            numpy.from_dlpack(model.embed_texts(texts[:8], out=arena.allocate(8, 32)))
            model.clone().tokenize(texts[0])
            with pytest.raises(ValueError):
                model.on(threads).embed_texts(texts, dimensions=99)
            del vectors
        gc.collect()

    work(20)
    before = resident_bytes()
    work(60)
    grown = resident_bytes() - before
    assert grown < 2 << 20, grown


def test_references_are_let_go(model: uform.Model, threads: uform.Executor) -> None:
    text, out = "".join(["the ", "cat"]), numpy.zeros((1, 32), "float32")

    def progress(done: int, total: int) -> None: ...

    counted = [text, out, progress]
    before = [sys.getrefcount(one) for one in counted]
    for _ in range(10):
        model.embed_texts([text], out=out, progress=progress)
        model.on(threads).embed_texts([text], out=out, progress=progress)
        model.on(threads).deferred.embed_texts([text], out=out, progress=progress).result()
    gc.collect()
    # What the executor's thread held goes when the interpreter is entered next.
    model.embed_texts("a")
    assert [sys.getrefcount(one) for one in counted] == before


def test_limits_of_memory(model: uform.Model) -> None:
    arena = uform.Arena()
    with pytest.raises(uform.Error):
        arena.allocate(1 << 40, 1 << 20)
    with pytest.raises(ValueError):
        arena.allocate(-1, 4)
