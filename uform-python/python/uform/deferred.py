"""Calls that were submitted and end later."""

from collections.abc import Callable, Generator
from typing import Any, Generic, TypeVar

from . import _uform
from ._options import Outcome, real

Result = TypeVar("Result", covariant=True)


class Deferred(Generic[Result]):
    """A call that the executor's own thread computes: wait for `result()`, or `await` it. Any thread may use it.

    Letting go of one that has not ended, and that has no callbacks, cancels it.
    """

    __slots__ = ("_handle", "_finish", "__weakref__")

    def __init__(self, handle: _uform.Deferred, finish: Callable[[Outcome], Result]) -> None:
        self._handle = handle
        self._finish = finish

    def done(self) -> bool:
        """Whether the call has ended, well or not."""
        return self._handle.done()

    def cancel(self) -> None:
        """Asks the call to stop: before it starts, or else at the next block of tokens. It then ends with `CancelledError`;
        one that has ended is not changed. Does not wait."""
        self._handle.cancel()

    def result(self, timeout: float | None = None) -> Result:
        """Waits for the end of the call and gives what the verb gives, or raises what it raises. `TimedOutError` when it has
        not ended after `timeout` seconds; the call goes on. None, a negative or an infinite timeout waits for as long as it
        takes, zero does not wait, and NaN is an `InvalidArgumentError`."""
        return self._finish(self._handle.result(None if timeout is None else real(timeout, "timeout")))

    def add_done_callback(self, callback: "Callable[[Deferred[Result]], object]") -> None:
        """Has `callback` called once with this object when the call has ended: on the executor's thread, or at once if it has
        ended already. It may do anything but drain or free that executor."""
        self._handle.on_done(lambda: callback(self))

    def __await__(self) -> Generator[Any, None, Result]:
        import asyncio

        loop = asyncio.get_running_loop()
        ended: asyncio.Future[None] = loop.create_future()

        def settle() -> None:
            if not ended.done():
                ended.set_result(None)

        def wake(_: "Deferred[Result]") -> None:
            try:
                loop.call_soon_threadsafe(settle)
            except RuntimeError:
                # A loop that was closed meanwhile has nobody left to wake.
                if not loop.is_closed():
                    raise

        if not self.done():
            self.add_done_callback(wake)
            try:
                yield from ended
            except asyncio.CancelledError:
                self.cancel()
                raise
        return self.result()

    def __repr__(self) -> str:
        state = "done" if self.done() else "pending"
        return f"<uform.Deferred {state} at {id(self):#x}>"
