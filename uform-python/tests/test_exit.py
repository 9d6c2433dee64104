"""The end of the interpreter: calls in line run, with their callbacks, and nothing hangs or crashes."""

import signal
import subprocess
import sys
import time
from collections.abc import Callable

import pytest

SETUP = """
import atexit, os, signal, sys, threading, time
atexit.register(lambda: finish())   # called after what the package does at exit, which is imported later
import uform
signal.signal(signal.SIGINT, signal.default_int_handler)   # which jobs in the background of a shell ignore
finish = lambda: None
model = uform.Model.load_ram(path)
threads = uform.Executor.for_ram(threads=2)
on = model.on(threads)
texts = ["the quick brown fox jumps over the lazy dog " * 4] * 500
"""


@pytest.mark.parametrize("callbacks", [False, True])
@pytest.mark.parametrize("kept", ["by the module", "by a cycle"])
def test_calls_in_line_run(run_python: Callable[..., str], callbacks: bool, kept: str) -> None:
    script = SETUP + f"""
told = []
calls = [on.deferred.embed_texts(texts, progress=None) for _ in range(8)]
if {callbacks}:
    calls[3:6] = [on.deferred.embed_texts(texts, progress=lambda done, total: told.append(done)) for _ in range(3)]
    for call in calls:
        call.add_done_callback(lambda call: told.append(call.result(0).shape))
if {kept == "by a cycle"}:
    class Cycle: pass
    cycle = Cycle()
    cycle.on, cycle.self = on, cycle
    del cycle, on, threads
def finish():
    print([call.result(0).shape for call in calls] == [(500, 32)] * 8, told.count((500, 32)), 500 in told)
print("end", any(call.done() for call in calls[2:]))
"""
    # Those that have their place in the list taken were let go of, and so cancelled.
    expected = "end False\nTrue 8 True\n" if callbacks else "end False\nTrue 0 False\n"
    assert run_python(script) == expected


def test_callbacks_may_submit_nothing_more(run_python: Callable[..., str]) -> None:
    script = SETUP + """
told = []
def again(call):
    try:
        on.deferred.embed_texts("a cat").add_done_callback(again)
        told.append("submitted")
    except uform.Error as error:
        told.append(str(error))
def finish():
    print(told[-1], threads.free())
on.deferred.embed_texts(texts * 10).add_done_callback(again)
"""
    assert run_python(script) == "the executor was freed None\n"


def test_what_fails_meanwhile(run_python: Callable[..., str]) -> None:
    """Exceptions in callbacks and refused calls end no process."""
    script = SETUP + """
sys.unraisablehook = lambda failure: told.append(type(failure.exc_value).__name__)
told = []
def fail(*_):
    raise KeyError("no")
first = on.deferred.embed_texts(texts)
failing = on.deferred.embed_texts(texts, progress=fail)
calling = on.deferred.embed_texts(texts)
calling.add_done_callback(fail)
freeing = on.deferred.embed_texts(texts)
freeing.add_done_callback(lambda call: threads.free())
def finish():
    try:
        failing.result(0)
    except KeyError:
        print("KeyError", told, calling.result(0).shape)
"""
    assert run_python(script) == "KeyError ['KeyError', 'InvalidArgumentError'] (500, 32)\n"


def test_others_at_work(run_python: Callable[..., str]) -> None:
    """Threads that nobody joins wait for calls, compute, and hold executors of their own."""
    script = SETUP + """
later = on.deferred.embed_texts(texts * 4)
def wait():
    later.result()
def compute():
    while True:
        on.embed_texts(texts[:5])
def make():
    while True:
        own = uform.Executor.for_ram(threads=1)
        model.on(own).deferred.embed_texts(texts[:20]).add_done_callback(lambda call: None)
for work in (wait, compute, compute, make):
    threading.Thread(target=work, daemon=True).start()
time.sleep(0.3)
print("end")
"""
    for _ in range(5):
        assert run_python(script) == "end\n"


def test_verbs_in_later_handlers(run_python: Callable[..., str]) -> None:
    """What runs at exit after the package's own handlers may compute on its own thread and on new executors."""
    script = SETUP + """
def finish():
    print(model.embed_texts("a cat", progress=lambda done, total: None).shape)
    with uform.Executor.for_ram(threads=1) as own:
        print(model.on(own).embed_texts(texts).shape, model.on(own).deferred.embed_texts("a").result().shape)
    try:
        on.embed_texts("a")
    except uform.errors.InvalidArgumentError as error:
        print(error)
"""
    assert run_python(script) == "(1, 32)\n(500, 32) (1, 32)\nthe executor was freed\n"


def test_after_an_uncaught_exception(path: str) -> None:
    script = SETUP + """
later = on.deferred.embed_texts(texts)
later.add_done_callback(lambda call: print(call.result().shape))
raise SystemExit(3)
"""
    done = subprocess.run([sys.executable, "-c", f"path = {path!r}\n{script}"], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (3, "(500, 32)\n", "")


@pytest.mark.skipif(sys.platform == "win32", reason="sends a signal")
def test_ctrl_c_ends_the_wait(path: str) -> None:
    script = SETUP + """
calls = [on.deferred.embed_texts(texts * 400) for _ in range(20)]
for call in calls[::2]:
    call.add_done_callback(lambda call: None)
def finish():
    print("finished", flush=True)
print("end", flush=True)
"""
    command = [sys.executable, "-c", f"path = {path!r}\n{script}"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None and process.stdout.readline() == "end\n"
            time.sleep(0.5)
            assert process.poll() is None
            before = time.monotonic()
            process.send_signal(signal.SIGINT)
            output, complaints = process.communicate(timeout=30)
            assert time.monotonic() - before < 5 and process.returncode == 0, complaints
        finally:
            process.kill()
    assert output == "finished\n" and "KeyboardInterrupt" in complaints
