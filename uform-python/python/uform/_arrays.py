"""Vectors as arrays: of NumPy where it can be imported, else as they are."""

from functools import cache
from typing import TYPE_CHECKING, Any

from ._uform import Matrix

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Vectors = NDArray[Any]
else:
    Vectors = Any


@cache
def _asarray() -> Any:
    # NumPy is looked for when the first vectors are there, not when this package is imported, which needs none.
    try:
        from numpy import asarray
    except ImportError:
        return None
    return asarray


def as_vectors(matrix: Matrix) -> Any:
    """An ndarray over the memory of the matrix where NumPy is there, else the matrix."""
    asarray = _asarray()
    return matrix if asarray is None else asarray(matrix)
