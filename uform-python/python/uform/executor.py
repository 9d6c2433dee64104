"""Executors: the host threads or device streams that calls run on."""

import weakref
from collections.abc import Sequence
from types import TracebackType
from typing import Self

from . import _uform
from ._generated import CPUClass, ExecutorDescription, GPUClass, Mood, Residency
from ._options import addresses, class_number, count, domains, member
from .errors import ForkedError

_alive: "set[weakref.ref[Executor]]" = set()
"""The executors that own threads."""


def free_all() -> None:
    """Frees every executor of this process; what the interpreter does first when it exits."""
    for reference in tuple(_alive):
        executor = reference()
        if executor is not None:
            try:
                executor.free()
            except ForkedError:
                # The process from which this one was forked frees it.
                pass


class Executor:
    """Host threads with their scratch. It runs one call at a time, in the order of submission, and serves any number of
    models. Made without arguments it is the null executor, which owns nothing and computes on the calling thread.

    Any thread may use it: one that finds it in use waits, with the interpreter released. In a forked child it answers
    `ForkedError`; make a new one there. Leaving a `with` block frees it, and so does the exit of the interpreter: before it
    ends, the deferred calls in line run and their callbacks are called. Ctrl-C ends that wait and drops what is left.
    """

    __slots__ = ("_handle", "__weakref__")

    _handle: _uform.Executor

    def __init__(self) -> None:
        self._handle = _uform.Executor()

    @classmethod
    def _of(cls, handle: _uform.Executor) -> Self:
        self = cls.__new__(cls)
        self._handle = handle
        _alive.add(weakref.ref(self, _alive.discard))
        return self

    @classmethod
    def for_ram(
        cls,
        memory_domains: Sequence[int] = (),
        cpu_class: CPUClass | str | None = None,
        threads: int = 0,
        deferred_limit: int = 0,
    ) -> Self:
        """Starts threads for models in RAM, spread over the NUMA domains `memory_domains` (none: all of them).

        `cpu_class` pins the class that calls dispatch as, like "intel-haswell"; by default it is what the environment
        variable `UFORM_CPU_CLASS` says, or else the machine's own. Zero `threads` takes 7/8 of the usable cores, rounded
        up. `deferred_limit` bounds the unfinished deferred calls; zero takes 64.
        """
        number = class_number(CPUClass, cpu_class, "cpu_class")
        numbers = domains(memory_domains)
        limits = count(threads, "threads"), count(deferred_limit, "deferred_limit")
        return cls._of(_uform.Executor.for_ram(numbers, number, *limits))

    @classmethod
    def on_pool(
        cls,
        memory_domains: Sequence[int] = (),
        cpu_class: CPUClass | str | None = None,
        pool: int = 0,
        deferred_limit: int = 0,
    ) -> Self:
        """Would compute on the threads of a borrowed ForkUnion pool, given by the address of its `fu_pool_t`, which has to
        outlive the executor. Answers `UnsupportedError` until borrowing is designed."""
        number = class_number(CPUClass, cpu_class, "cpu_class")
        numbers = domains(memory_domains)
        limit = count(deferred_limit, "deferred_limit")
        return cls._of(_uform.Executor.on_pool(numbers, number, count(pool, "pool"), limit))

    @classmethod
    def for_vram(
        cls,
        devices: Sequence[int] = (),
        gpu_class: GPUClass | str | None = None,
        memory_domains: Sequence[int] = (),
        cpu_class: CPUClass | str | None = None,
        streams: Sequence[int] = (),
        scratch_limit: int = 0,
        deferred_limit: int = 0,
    ) -> Self:
        """Would open one stream on each of `devices`, which are positions in what `gpu_devices` lists, or borrow the CUDA
        streams with the addresses `streams`. Answers `UnsupportedError`: this version computes in RAM only."""
        return cls._of(
            _uform.Executor.for_vram(
                domains(devices, "devices"),
                class_number(GPUClass, gpu_class, "gpu_class"),
                domains(memory_domains),
                class_number(CPUClass, cpu_class, "cpu_class"),
                addresses(streams, "streams"),
                count(scratch_limit, "scratch_limit"),
                count(deferred_limit, "deferred_limit"),
            )
        )

    def drain(self, mood: Mood | str = Mood.PARKED) -> None:
        """Waits until the calls submitted before have ended, then sets what the threads do whenever they are idle: sleep
        ("parked") or keep spinning ("spinning"). A failure is the executor's own, never one of a call. Ctrl-C ends the wait,
        and the threads are set all the same when those calls have ended. `InvalidArgumentError` in a callback of a deferred
        call of this executor."""
        self._handle.drain(member(Mood, mood, "mood"))

    def describe(self) -> ExecutorDescription:
        """Says what the executor is and holds now."""
        fields = self._handle.describe()
        gpu_class = fields["gpu_class"]
        return ExecutorDescription(
            residency=Residency(fields["residency"]),
            cpu_class=CPUClass(fields["cpu_class"]),
            gpu_class=None if gpu_class is None else GPUClass(gpu_class),
            mood=Mood(fields["mood"]),
            threads=fields["threads"],
            deferred_limit=fields["deferred_limit"],
            deferred_waiting=fields["deferred_waiting"],
            scratch_bytes=fields["scratch_bytes"],
            scratch_high_water_bytes=fields["scratch_high_water_bytes"],
            memory_domains=fields["memory_domains"],
        )

    def trim(self) -> None:
        """Waits until the calls submitted before have ended, then gives the scratch back to the system. Ctrl-C ends the wait.
        `InvalidArgumentError` in the progress callback of a deferred call of this executor."""
        self._handle.trim()

    def free(self) -> None:
        """Runs every deferred call, joins the threads and ends the executor. A second time it does nothing. Deferred calls keep
        their results, and arenas their memory. Ctrl-C ends the wait, and the executor ends all the same when those calls have.
        `InvalidArgumentError` in a callback of a deferred call of this executor."""
        self._handle.free()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.free()

    def __repr__(self) -> str:
        return f"<uform.Executor at {id(self):#x}>"
