"""Arenas: output memory that the caller owns."""

from typing import Self

from . import _uform
from ._generated import ArenaDescription, Dtype, Residency
from ._options import count, member
from .executor import Executor

Matrix = _uform.Matrix


class Arena:
    """Output memory in the place where an executor computes, for `out=`. It is reused after `reset`, and may outlive its
    executor. Any thread may use it.

    A matrix of an arena is seen without a copy by `memoryview`, `numpy.asarray` and everything that reads DLPack; as long as
    such a view is alive, `reset` is refused.
    """

    __slots__ = ("_handle", "__weakref__")

    _handle: _uform.Arena

    def __init__(self, executor: Executor | None = None) -> None:
        self._handle = _uform.Arena(None if executor is None else executor._handle)

    @classmethod
    def new_in(cls, executor: Executor | None = None) -> Self:
        """An empty arena where `executor` computes; the null executor by default."""
        return cls(executor)

    def allocate(self, rows: int, columns: int, dtype: Dtype | str = Dtype.F32) -> Matrix:
        """Places a matrix of zeros, its rows aligned to 64 bytes. It lives until the next `reset`."""
        number = member(Dtype, dtype, "dtype")
        return self._handle.allocate(count(rows, "rows"), count(columns, "columns"), number)

    def reset(self) -> None:
        """Forgets every matrix and keeps the memory for the next ones. `ContendedError` while a view of any is alive."""
        self._handle.reset()

    def describe(self) -> ArenaDescription:
        """Says what the arena holds."""
        residency, used_bytes, reserved_bytes = self._handle.describe()
        return ArenaDescription(Residency(residency), used_bytes, reserved_bytes)

    def __repr__(self) -> str:
        return f"<uform.Arena at {id(self):#x}>"
