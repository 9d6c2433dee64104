"""Calls: their options, progress, Ctrl-C, deferred calls and asyncio."""

import asyncio
import gc
import threading
import time
import weakref
from collections.abc import Callable

import numpy
import pytest

import uform
from uform import errors

TEXTS = ["a cat", "a dog", "the quick brown fox"]
LONG = ["the quick brown fox jumps over the lazy dog " * 4] * 20_000
"""Seconds of work, even for the smallest of models."""


@pytest.fixture(params=["model", "executor"])
def on(request: pytest.FixtureRequest, model: uform.Model, threads: uform.Executor) -> uform.Model | uform.On:
    """The same verbs on the calling thread and on an executor."""
    return model if request.param == "model" else model.on(threads)


def test_same_bits_everywhere(model: uform.Model, threads: uform.Executor, sentences: list[str]) -> None:
    texts = sentences[:200]
    expected = model.embed_texts(texts)
    assert (model.on(threads).embed_texts(texts) == expected).all()
    assert (model.on(threads).deferred.embed_texts(texts).result() == expected).all()
    assert (model.on(uform.Executor()).embed_texts(texts) == expected).all()
    assert (model.deferred.embed_texts(texts).result() == expected).all()
    assert (numpy.vstack([model.on(threads).embed_texts(text) for text in texts]) == expected).all()


def test_roles_and_prompts(path: str) -> None:
    model = uform.Model.load_ram(path.replace("bert-mean", "bert-prompts"))
    names = model.describe().prompt_names
    assert {"query", "document"} <= set(names)
    query = model.embed_queries("a cat")
    assert (query == model.embed_texts("a cat", role="query")).all()
    assert (query == model.embed_texts("a cat", prompt_name="query")).all()
    assert (query != model.embed_texts("a cat", prompt="")).any()
    assert (model.embed_documents("a cat") == model.embed_texts("a cat", role=uform.Role.DOCUMENT)).all()
    with pytest.raises(LookupError) as raised:
        model.embed_texts("a cat", prompt_name="nothing")
    assert raised.value.status == uform.Status.NOT_FOUND and "query" in str(raised.value)
    assert not isinstance(raised.value, FileNotFoundError)


def test_options(on: uform.Model | uform.On) -> None:
    whole = on.embed_texts(TEXTS, normalize=False)
    norms = numpy.linalg.norm(whole, axis=1)
    assert (numpy.abs(norms - 1) > 1e-3).all()
    assert on.embed_texts(TEXTS, normalize="no") == pytest.approx(whole)
    assert on.embed_texts(TEXTS, normalize=True) == pytest.approx(whole / norms[:, None], abs=1e-6)
    half = on.embed_texts(TEXTS, dimensions=16)
    assert half.shape == (3, 16) and numpy.linalg.norm(half, axis=1) == pytest.approx(1, abs=1e-6)
    assert (on.embed_texts(TEXTS, token_budget=1, reproducible=True) == on.embed_texts(TEXTS)).all()
    assert on.embed_texts("a cat", dtype="i8", output_scale=10).max() <= 10


def test_reports(on: uform.Model | uform.On) -> None:
    vectors, reports = on.embed_texts([*TEXTS, "cat " * 100], reports=True, length="refuse")
    assert [report.status for report in reports] == [uform.Status.OK] * 3 + [uform.Status.INVALID_ARGUMENT]
    assert numpy.isfinite(vectors[:3]).all() and numpy.isnan(vectors[3]).all()
    _, (report,) = on.embed_texts("cat " * 100, reports=True)
    assert report.truncated and report.tokens_kept == 48 and report.tokens_found > 48
    with pytest.raises(errors.RowFailedError, match="row 1"):
        on.embed_texts(["ok", "cat " * 100], length=uform.Length.REFUSE)


def test_tokens_and_plan(model: uform.Model, threads: uform.Executor) -> None:
    tokens = model.tokenize("the cat")
    assert tokens[0].special and tokens[-1].special
    assert b"the cat"[tokens[1].begin : tokens[1].end] == b"the"
    assert len(model.tokenize("cat " * 100)) == 48 and len(model.tokenize("cat " * 2, token_limit=4, length="refuse")) == 4
    with pytest.raises(ValueError, match="102"):
        model.tokenize("cat " * 100, length="refuse")
    assert 0 < model.plan(1, 8) <= model.plan(64)
    assert model.plan(64, executor=threads) > 0


def test_progress(on: uform.Model | uform.On) -> None:
    seen: list[tuple[int, int, threading.Thread]] = []

    def progress(done: int, total: int) -> None:
        seen.append((done, total, threading.current_thread()))

    on.embed_texts(TEXTS * 100, token_budget=64, progress=progress)
    assert seen[-1][:2] == (300, 300)
    assert [done for done, _, _ in seen] == sorted(done for done, _, _ in seen)
    assert {thread for _, _, thread in seen} == {threading.current_thread()}


def test_an_exception_in_progress_ends_the_call(on: uform.Model | uform.On) -> None:
    def progress(done: int, total: int) -> None:
        raise KeyError(f"at {total}")

    before = time.monotonic()
    with pytest.raises(KeyError, match="at 20000"):
        on.embed_texts(LONG, progress=progress)
    assert time.monotonic() - before < 5
    assert on.embed_texts("a cat").shape == (1, 32)


def test_progress_that_answers_false_ends_the_call(on: uform.Model | uform.On) -> None:
    with pytest.raises(errors.CancelledError, match="progress callback"):
        on.embed_texts(LONG, progress=lambda done, total: False)
    on.embed_texts("a cat", progress=lambda done, total: None)


def test_progress_of_loading(path: str, threads: uform.Executor) -> None:
    seen: list[tuple[int, int]] = []
    uform.Model.load_ram(path, threads, progress=lambda done, total: seen.append((done, total)))
    assert seen[-1][0] == seen[-1][1] > 0
    with pytest.raises(ZeroDivisionError):
        uform.Model.load_ram(path, progress=lambda done, total: 1 / 0)
    with pytest.raises(errors.CancelledError):
        uform.Model.load_ram(path, progress=lambda done, total: False)


INTERRUPTED = """
import os, signal, sys, threading, time
import uform
signal.signal(signal.SIGINT, signal.default_int_handler)   # which jobs in the background of a shell ignore
model = uform.Model.load_ram(path)
texts = ["the quick brown fox jumps over the lazy dog " * 4] * 200_000
threads = uform.Executor.for_ram(threads=2)
on = {"model": model, "executor": model.on(threads)}[sys.argv[1]]
pid = os.getpid()
def interrupt():
    global sent
    sent = time.monotonic()
    os.kill(pid, signal.SIGINT)
threading.Timer(1.0, interrupt).start()
try:
    on.embed_texts(texts)
except KeyboardInterrupt:
    print(time.monotonic() - sent < 1.0)
print(on.embed_texts("a cat").shape)
"""


@pytest.mark.parametrize("where", ["model", "executor"])
def test_ctrl_c(run_python: Callable[..., str], where: str) -> None:
    assert run_python(INTERRUPTED, where) == "True\n(1, 32)\n"


def test_ctrl_c_while_waiting(run_python: Callable[..., str]) -> None:
    script = INTERRUPTED.split("threading.Timer")[0] + """
later = on.deferred.embed_texts(texts)
threading.Timer(0.5, interrupt).start()
try:
    later.result()
except KeyboardInterrupt:
    print(time.monotonic() - sent < 1.0, later.done())
later.cancel()
try:
    later.result()
except uform.errors.CancelledError:
    print("cancelled")
"""
    assert run_python(script, "executor") == "True False\ncancelled\n"


def test_deferred(model: uform.Model, threads: uform.Executor) -> None:
    later = model.on(threads).deferred.embed_texts(TEXTS, reports=True)
    vectors, reports = later.result(timeout=30)
    assert later.done() and len(reports) == 3
    again, _ = later.result()
    assert (again == vectors).all() and (vectors == model.embed_texts(TEXTS)).all()
    later.cancel()
    assert later.result(0)[1] == reports
    out = numpy.zeros((3, 32), "float32")
    assert model.on(threads).deferred.embed_queries(TEXTS, out=out).result() is out
    assert out.any(axis=1).all()


def test_deferred_failures(model: uform.Model, threads: uform.Executor) -> None:
    later = model.on(threads).deferred.embed_texts("cat " * 100, length="refuse")
    for _ in range(2):
        with pytest.raises(errors.RowFailedError):
            later.result()


def test_deferred_timeout_and_cancel(model: uform.Model, threads: uform.Executor) -> None:
    later = model.on(threads).deferred.embed_texts(LONG)
    before = time.monotonic()
    with pytest.raises(TimeoutError, match="not done after 0.05 seconds"):
        later.result(timeout=0.05)
    with pytest.raises(uform.Error) as raised:
        later.result(timeout=0)
    assert raised.value.status == uform.Status.TIMED_OUT
    later.cancel()
    with pytest.raises(errors.CancelledError):
        later.result()
    assert time.monotonic() - before < 3


@pytest.mark.parametrize("forever", [None, -1, -0.5, float("-inf"), float("inf"), 1e300])
def test_timeouts_that_never_pass(model: uform.Model, threads: uform.Executor, forever: float | None) -> None:
    """As `uform_deferred_wait` has it."""
    assert model.on(threads).deferred.embed_texts(LONG[:200]).result(forever).shape == (200, 32)


@pytest.mark.parametrize("ended", [False, True])
def test_timeouts_that_are_refused(model: uform.Model, threads: uform.Executor, ended: bool) -> None:
    later = model.on(threads).deferred.embed_texts(TEXTS if ended else LONG)
    if ended:
        later.result()
    with pytest.raises(errors.InvalidArgumentError, match="timeout: expected seconds, found NaN"):
        later.result(float("nan"))
    with pytest.raises(errors.InvalidArgumentError, match="timeout: expected a number up to 1.79.*, found a number of 4001 bits"):
        later.result(2**4000)
    with pytest.raises(TypeError, match="timeout: expected float, found str"):
        later.result("1")  # type: ignore[arg-type]


def test_too_many_deferred_calls(model: uform.Model) -> None:
    with uform.Executor.for_ram(threads=1, deferred_limit=2) as one:
        calls = [model.on(one).deferred.embed_texts(LONG) for _ in range(2)]
        with pytest.raises(errors.ContendedError, match="2"):
            model.on(one).deferred.embed_texts(TEXTS)
        assert one.describe().deferred_waiting == 2
        # A call that waits takes its turn behind them instead.
        threading.Timer(0.2, lambda: [call.cancel() for call in calls]).start()
        assert model.on(one).embed_texts(TEXTS).shape == (3, 32)


def test_letting_go_cancels(model: uform.Model, threads: uform.Executor) -> None:
    before = time.monotonic()
    later = model.on(threads).deferred.embed_texts(LONG)
    del later
    assert model.on(threads).embed_texts(TEXTS).shape == (3, 32)
    assert time.monotonic() - before < 3


def test_callbacks(model: uform.Model, threads: uform.Executor) -> None:
    told = threading.Event()
    results: list[object] = []

    def callback(later: uform.Deferred) -> None:
        results.append(later.result(0).shape)
        told.set()

    # Nobody keeps the call but its callback.
    model.on(threads).deferred.embed_texts(LONG[:500]).add_done_callback(callback)
    assert told.wait(30) and results == [(500, 32)]
    done = model.on(threads).deferred.embed_texts(TEXTS)
    done.result()
    told.clear()
    done.add_done_callback(callback)
    assert told.wait(30) and results[1] == (3, 32)


def test_callbacks_may_call(model: uform.Model, threads: uform.Executor) -> None:
    """A callback runs on the thread that computes deferred calls, and may itself ask for some and wait for them."""
    told = threading.Event()
    found: list[object] = []

    def callback(_: uform.Deferred) -> None:
        on = model.on(threads)
        found.append(on.embed_texts(TEXTS))
        found.append(on.embed_texts(LONG[:100]))
        found.append(on.deferred.embed_texts(TEXTS).result())
        told.set()

    others = [model.on(threads).deferred.embed_texts(LONG[:50]) for _ in range(5)]
    model.on(threads).deferred.embed_texts(TEXTS).add_done_callback(callback)
    others += [model.on(threads).deferred.embed_texts(LONG[:50]) for _ in range(5)]
    threads.drain("spinning")
    assert told.wait(30)
    assert (found[0] == found[2]).all() and found[1].shape == (100, 32)
    assert all(other.done() for other in others)
    threads.drain()


def test_progress_of_deferred_calls(model: uform.Model, threads: uform.Executor) -> None:
    seen: list[int] = []
    model.on(threads).deferred.embed_texts(TEXTS, progress=lambda done, total: seen.append(done)).result()
    assert seen[-1] == 3

    def fail(done: int, total: int) -> None:
        raise KeyError("no")

    with pytest.raises(KeyError):
        model.on(threads).deferred.embed_texts(LONG, progress=fail).result()


def test_asyncio(model: uform.Model, threads: uform.Executor) -> None:
    async def main() -> None:
        deferred = model.on(threads).deferred
        ticks = 0

        async def tick() -> None:
            nonlocal ticks
            while True:
                ticks += 1
                await asyncio.sleep(0.001)

        ticker = asyncio.create_task(tick())
        vectors = await deferred.embed_texts(LONG[:2000])
        assert vectors.shape == (2000, 32) and ticks > 3
        done = deferred.embed_texts(TEXTS)
        done.result()
        assert (await done == await done).all()
        both = await asyncio.gather(*(wait(deferred.embed_texts(text)) for text in TEXTS))
        assert (numpy.vstack(both) == model.embed_texts(TEXTS)).all()
        with pytest.raises(errors.RowFailedError):
            await deferred.embed_texts("cat " * 100, length="refuse")
        ticker.cancel()

    asyncio.run(main())


async def wait(later: uform.Deferred) -> object:
    return await later


def test_cancelling_a_task_cancels_the_call(model: uform.Model, threads: uform.Executor) -> None:
    async def main() -> None:
        later = model.on(threads).deferred.embed_texts(LONG)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(wait(later), 0.1)
        with pytest.raises(errors.CancelledError):
            later.result(5)

    asyncio.run(main())


def test_a_loop_that_closed_before_the_call_ended(
    model: uform.Model, threads: uform.Executor, monkeypatch: pytest.MonkeyPatch
) -> None:
    failures: list[object] = []
    monkeypatch.setattr("sys.unraisablehook", failures.append)
    loop = asyncio.new_event_loop()
    told = threading.Event()
    later = model.on(threads).deferred.embed_texts(LONG)
    task = loop.create_task(wait(later))
    loop.run_until_complete(asyncio.sleep(0))
    later.add_done_callback(lambda _: told.set())
    # The loop closes after the callback has found it open.
    monkeypatch.setattr(loop, "call_soon_threadsafe", lambda settle: loop.close() or loop._check_closed())
    later.cancel()
    assert told.wait(30) and loop.is_closed() and not task.done()
    assert failures == []
    with pytest.raises(errors.CancelledError):
        later.result()
    # A task that is destroyed while it is pending complains to its loop.
    loop.set_exception_handler(lambda loop, context: None)


LET_GO_INSIDE = """
import threading
import numpy
import uform
model = uform.Model.load_ram(path)
on = model.on(uform.Executor.for_ram(threads=2))
uform.set_log_callback(None)
texts = ["the quick brown fox jumps over the lazy dog"] * 20_000
for out in (False, True):
    for answer in (None, False):
        holder, ready = [], threading.Event()
        def progress(done, total):
            ready.wait()
            if done:
                holder.clear()
            return answer if done else None
        place = numpy.zeros((20_000, 32), "float32") if out else None
        holder.append(on.deferred.embed_texts(texts, progress=progress, token_budget=8000, out=place))
        del place
        ready.set()
        # What takes the place of the freed memory, if it is.
        while holder:
            pass
        rows = [numpy.ones((20_000, 32), "float32") for _ in range(4)]
        on.embed_texts("a cat")
        print(all((row == 1).all() for row in rows))
"""


def test_letting_go_inside_the_call(run_python: Callable[..., str]) -> None:
    """The output stays until the call has ended."""
    assert run_python(LET_GO_INSIDE) == "True\n" * 4


def test_progress_cannot_wait_for_its_executor(model: uform.Model, threads: uform.Executor, path: str) -> None:
    on = model.on(threads)
    waiting = on.deferred.embed_texts(LONG)
    uses: dict[str, Callable[[], object]] = {
        "short": lambda: on.embed_texts("a cat"),
        "long": lambda: on.embed_texts(LONG[:100]),
        "result": lambda: later.result(),
        "result of the next": lambda: after.result(1),
        "drain": threads.drain,
        "trim": threads.trim,
        "free": threads.free,
        "load": lambda: uform.Model.load_ram(path, threads),
    }
    found: dict[str, object] = {}

    def progress(done: int, total: int) -> None:
        for name, use in uses.items():
            try:
                found[name] = use()
            except errors.InvalidArgumentError as error:
                found[name] = str(error)
        # Everything else goes on.
        found["describe"] = threads.describe().deferred_waiting
        found["model"] = model.embed_texts("a cat").shape
        with uform.Executor.for_ram(threads=1) as other:
            found["other"] = model.on(other).deferred.embed_texts("a cat").result().shape
            other.drain()

    later = on.deferred.embed_texts(TEXTS, progress=progress)
    after = on.deferred.embed_texts(TEXTS)
    # Meanwhile another thread waits for the calls, which are not kept from using the executor.
    drainer = threading.Thread(target=threads.drain)
    drainer.start()
    time.sleep(0.05)
    waiting.cancel()
    assert later.result(30).shape == after.result(30).shape == (3, 32)
    drainer.join(30)
    assert not drainer.is_alive()
    message = "the progress callback of a deferred call cannot wait for the executor that runs it"
    assert {name: found[name] for name in uses} == dict.fromkeys(uses, message)
    assert (found["describe"], found["model"], found["other"]) == (2, (1, 32), (1, 32))
    # Out of the callback, all is as before.
    threads.trim()
    assert on.embed_texts("a cat").shape == (1, 32)


def test_a_completion_callback_cannot_drain_or_free(model: uform.Model, threads: uform.Executor) -> None:
    found: list[object] = []
    told = threading.Event()

    def callback(_: uform.Deferred) -> None:
        for wait_for_calls in (threads.trim, threads.drain, threads.free):
            try:
                found.append(wait_for_calls())
            except errors.InvalidArgumentError as error:
                found.append(str(error))
        told.set()

    blocker = model.on(threads).deferred.embed_texts(LONG[:200])
    blocker.add_done_callback(callback)
    model.on(threads).deferred.embed_texts(LONG[:200]).add_done_callback(lambda _: None)
    assert told.wait(30)
    message = "a completion callback cannot {} its executor"
    assert found == [None, message.format("drain"), message.format("free")]
    assert model.on(threads).embed_texts("a cat").shape == (1, 32)


@pytest.mark.parametrize("what", ["drain", "trim"])
def test_waiting_for_the_calls_before(model: uform.Model, threads: uform.Executor, what: str) -> None:
    """Calls that are submitted while it waits keep nobody waiting, and are not kept waiting: two chains of calls, each of which
    submits the next, always have one in line."""
    on = model.on(threads)
    started, ended, stopped = threading.Event(), threading.Event(), threading.Event()
    counts = {"before": 0, "meanwhile": 0, "after": 0}
    failures: list[BaseException] = []

    def again(_: uform.Deferred) -> None:
        counts["after" if ended.is_set() else "meanwhile" if started.is_set() else "before"] += 1
        try:
            if not stopped.is_set():
                on.deferred.embed_texts(LONG[:20]).add_done_callback(again)
        except BaseException as error:  # noqa: BLE001 - the test reports it
            failures.append(error)

    def wait() -> None:
        started.set()
        getattr(threads, what)()
        state["before done"], state["waiting"] = before.done(), threads.describe().deferred_waiting
        ended.set()

    state: dict[str, object] = {}
    # Keeps the others in line until somebody waits for them.
    on.deferred.embed_texts(LONG[:2000]).add_done_callback(lambda _: None)
    for _ in range(2):
        on.deferred.embed_texts(LONG[:20]).add_done_callback(again)
    before = on.deferred.embed_texts(LONG[:200])
    waiter = threading.Thread(target=wait)
    waiter.start()
    try:
        assert ended.wait(20), "the chains keep it waiting"
        assert state["before done"], "it did not wait"
        assert state["waiting"] >= 1, "the chains had broken off"
        before_more = counts["after"]
        deadline = time.monotonic() + 10
        while counts["after"] < before_more + 3 and time.monotonic() < deadline:
            time.sleep(0.001)
        assert counts["after"] >= before_more + 3 and failures == []
        assert counts["before"] == 0 and counts["meanwhile"] >= 1, "the callbacks were kept waiting"
    finally:
        stopped.set()
        waiter.join(30)
    threads.drain()
    assert threads.describe().deferred_waiting == 0


def test_ctrl_c_while_draining(run_python: Callable[..., str]) -> None:
    script = INTERRUPTED.split("threading.Timer")[0] + """
later = on.deferred.embed_texts(texts)
threading.Timer(0.5, interrupt).start()
try:
    threads.drain("spinning")
except KeyboardInterrupt:
    print(time.monotonic() - sent < 1.0, later.done())
later.cancel()
threads.trim()
print(threads.describe().mood)
"""
    assert run_python(script, "executor") == "True False\nspinning\n"


@pytest.mark.parametrize("how", ["progress", "failing progress", "callback", "out"])
def test_cycles_are_collected(model: uform.Model, threads: uform.Executor, how: str) -> None:
    class Place(numpy.ndarray):
        """An array that refers to other things."""

    class Owner:
        def __init__(self) -> None:
            deferred = model.on(threads).deferred
            if how == "out":
                self.out = numpy.zeros((3, 32), "float32").view(Place)
                self.out.owner = self
                self.later = deferred.embed_texts(TEXTS, out=self.out)
            elif how == "callback":
                self.later = deferred.embed_texts(TEXTS)
                self.later.add_done_callback(self.done)
            else:
                self.later = deferred.embed_texts(TEXTS, progress=self.tick)

        def tick(self, done: int, total: int) -> None:
            if how == "failing progress":
                raise KeyError(self)

        def done(self, later: uform.Deferred) -> None: ...

    owner = Owner()
    try:
        owner.later.result()
    except KeyError:
        assert how == "failing progress"
    gone = weakref.ref(owner)
    del owner
    deadline = time.monotonic() + 5
    # The executor's thread may still be about to let go.
    while gone() is not None and time.monotonic() < deadline:
        gc.collect()
        time.sleep(0.01)
    assert gone() is None
