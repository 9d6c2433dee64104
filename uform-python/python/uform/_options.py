"""Names and enumerations of the arguments, turned into the numbers of the compiled half."""

from collections.abc import Iterable, Sequence
from enum import IntEnum
from typing import Any, TypedDict, TypeVar

from ._generated import (
    CPUClass,
    Dtype,
    Length,
    Normalize,
    Precision,
    Reading,
    Role,
)
from .errors import InvalidArgumentError

Outcome = tuple[Any, list[tuple[int, bool, int, int]] | None]
"""The output of a call, and what became of each row: status, truncated or not, tokens found, tokens kept."""

Number = TypeVar("Number", bound=IntEnum)


class RawOptions(TypedDict):
    """How texts are embedded, as the compiled half reads it."""

    role: int
    prompt: str | None
    prompt_name: str | None
    dimensions: int
    normalize: int
    length: int
    token_limit: int
    token_budget: int
    reproducible: bool
    output_scale: float
    dtype: int | None
    reports: bool


class RawLoading(TypedDict):
    """How a model is loaded, as the compiled half reads it."""

    precision: int
    reading: int
    cpu_class: int
    memory_domains: list[int]


def member(kind: type[Number], value: Number | str, argument: str) -> Number:
    """The member of an enumeration that `value` is or names."""
    try:
        return kind(value)  # type: ignore[arg-type]
    except ValueError:
        names = ", ".join(str(known) for known in kind)
        raise InvalidArgumentError(f"{argument}: expected one of {names}, found {value!r}") from None


def class_number(kind: type[Number], value: Number | str | None, argument: str) -> int:
    """The number of a class, and zero for none."""
    return 0 if value is None else int(member(kind, value, argument))


def count(value: int | None, argument: str) -> int:
    """A number of things, where none is given as zero."""
    if value is None:
        return 0
    if value < 0:
        raise InvalidArgumentError(f"{argument}: expected a number that is not negative, found {value}")
    return value


def domains(values: Iterable[int]) -> list[int]:
    """Numbers of memory domains or devices."""
    return [int(value) for value in values]


def normalize_number(value: Normalize | str | bool | None) -> int:
    """Whether rows are scaled, where the model decides if nothing is said."""
    if value is None:
        return Normalize.MODEL
    if isinstance(value, bool):
        return Normalize.YES if value else Normalize.NO
    return member(Normalize, value, "normalize")


def embedding(
    *,
    role: Role | str | None = None,
    prompt: str | None = None,
    prompt_name: str | None = None,
    dimensions: int | None = None,
    normalize: Normalize | str | bool | None = None,
    length: Length | str = Length.TRUNCATE,
    token_limit: int | None = None,
    token_budget: int | None = None,
    reproducible: bool = False,
    dtype: Dtype | str | None = None,
    output_scale: float | None = None,
    reports: bool = False,
) -> RawOptions:
    """The options of a call. Their meaning is that of `Verbs.embed_texts`."""
    if prompt is not None and prompt_name is not None:
        raise InvalidArgumentError("prompt and prompt_name: expected one of the two at most")
    return {
        "role": Role.AS_GIVEN if role is None else member(Role, role, "role"),
        "prompt": prompt,
        "prompt_name": prompt_name,
        "dimensions": count(dimensions, "dimensions"),
        "normalize": normalize_number(normalize),
        "length": member(Length, length, "length"),
        "token_limit": count(token_limit, "token_limit"),
        "token_budget": count(token_budget, "token_budget"),
        "reproducible": reproducible,
        "output_scale": 0.0 if output_scale is None else output_scale,
        "dtype": None if dtype is None else member(Dtype, dtype, "dtype"),
        "reports": reports,
    }


def loading(
    *,
    precision: Precision | str = Precision.AUTO,
    reading: Reading | str = Reading.SEQUENTIAL,
    memory_domains: Iterable[int] = (),
    cpu_class: CPUClass | str | None = None,
) -> RawLoading:
    """The options of a load. Their meaning is that of `Model.load_ram`."""
    return {
        "precision": member(Precision, precision, "precision"),
        "reading": member(Reading, reading, "reading"),
        "cpu_class": class_number(CPUClass, cpu_class, "cpu_class"),
        "memory_domains": domains(memory_domains),
    }


def as_texts(texts: str | Sequence[str] | Iterable[str]) -> list[str]:
    """One string is one text; everything else is a number of them."""
    if isinstance(texts, str):
        return [texts]
    if isinstance(texts, (bytes, bytearray, memoryview)):
        raise TypeError(f"texts: expected str, found {type(texts).__name__}")
    listed = list(texts)
    for row, text in enumerate(listed):
        if not isinstance(text, str):
            raise TypeError(f"texts[{row}]: expected str, found {type(text).__name__}")
    return listed
