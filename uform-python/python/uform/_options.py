"""Names and enumerations of the arguments, turned into the numbers of the compiled half."""

import operator
import sys
from collections.abc import Iterable, Sequence
from enum import IntEnum
from typing import Any, TypedDict, TypeVar

from ._generated import (
    CPUClass,
    Dtype,
    Layout,
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

MOST = 2 * sys.maxsize + 1
"""The largest number of things, which is that of the C interface's `size_t`."""
MOST_ORDINAL = 2**31 - 1
"""The largest number of a memory domain or device."""
LEAST_SCALE, MOST_SCALE = 2.0**-149, 2.0**128 - 2.0**104
"""The smallest and largest positive binary32."""


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


class RawPacking(TypedDict):
    """How a model is packed, as the compiled half reads it."""

    precision: int
    layout: int


def shown(value: object) -> str:
    """How a value reads in the sentence of an error. Python refuses to write out very long numbers."""
    if isinstance(value, int) and value.bit_length() > 256:
        return f"a number of {value.bit_length()} bits"
    return repr(value)


def wrong_type(argument: str, expected: str, value: object) -> TypeError:
    """The error of a value of a type that the argument does not take."""
    return TypeError(f"{argument}: expected {expected}, found {type(value).__name__}")


def member(kind: type[Number], value: Number | str, argument: str) -> Number:
    """The member of an enumeration that `value` is or names."""
    try:
        return kind(value)  # type: ignore[arg-type]
    except ValueError:
        names = ", ".join(str(known) for known in kind)
        raise InvalidArgumentError(f"{argument}: expected one of {names}, found {shown(value)}") from None


def class_number(kind: type[Number], value: Number | str | None, argument: str) -> int:
    """The number of a class, and zero for none."""
    return 0 if value is None else int(member(kind, value, argument))


def integer(value: Any, argument: str, most: int) -> int:
    """A whole number from zero on."""
    try:
        number = operator.index(value)
    except TypeError:
        raise wrong_type(argument, "int", value) from None
    if not 0 <= number <= most:
        raise InvalidArgumentError(f"{argument}: expected a number from 0 to {most}, found {shown(number)}")
    return number


def count(value: int | None, argument: str) -> int:
    """A number of things, where none is given as zero."""
    return 0 if value is None else integer(value, argument, MOST)


def addresses(values: Iterable[int], argument: str) -> list[int]:
    """Addresses of what the caller lends."""
    return [integer(value, f"{argument}[{index}]", MOST) for index, value in enumerate(values)]


def domains(values: Iterable[int], argument: str = "memory_domains") -> list[int]:
    """Numbers of memory domains or devices."""
    return [integer(value, f"{argument}[{index}]", MOST_ORDINAL) for index, value in enumerate(values)]


def real(value: Any, argument: str) -> float:
    """A number that need not be whole."""
    if not hasattr(value, "__float__") and not hasattr(value, "__index__"):
        raise wrong_type(argument, "float", value)
    try:
        return float(value)
    except OverflowError:
        most = sys.float_info.max
        raise InvalidArgumentError(f"{argument}: expected a number up to {most}, found {shown(value)}") from None


def scale(value: float | None) -> float:
    """What values are multiplied with, where zero is the default. The C interface has 32 bits for it."""
    number = 0.0 if value is None else real(value, "output_scale")
    if number != 0 and not LEAST_SCALE <= number <= MOST_SCALE:
        expected = f"0 or a number from {LEAST_SCALE} to {MOST_SCALE}"
        raise InvalidArgumentError(f"output_scale: expected {expected}, found {shown(value)}")
    return number


def unicode(value: Any, argument: str) -> str:
    """A text that has an encoding in UTF-8."""
    if not isinstance(value, str):
        raise wrong_type(argument, "str", value)
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise InvalidArgumentError(f"{argument}: expected Unicode, found a lone surrogate at {error.start}") from None
    return value


def role_of_verb(role: Role, verb: str, options: dict[str, Any]) -> dict[str, Any]:
    """The options of a verb whose name says the role. Another role among them contradicts it."""
    given = options.get("role")
    if given is not None and member(Role, given, "role") is not role:
        raise InvalidArgumentError(f"role: expected none or {role} in {verb}, found {shown(given)}")
    return {**options, "role": role}


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
        "prompt": None if prompt is None else unicode(prompt, "prompt"),
        "prompt_name": None if prompt_name is None else unicode(prompt_name, "prompt_name"),
        "dimensions": count(dimensions, "dimensions"),
        "normalize": normalize_number(normalize),
        "length": member(Length, length, "length"),
        "token_limit": count(token_limit, "token_limit"),
        "token_budget": count(token_budget, "token_budget"),
        "reproducible": reproducible,
        "output_scale": scale(output_scale),
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


def packing(precision: Precision | str, layout: Layout | str) -> RawPacking:
    """The options of `Model.pack`."""
    return {"precision": member(Precision, precision, "precision"), "layout": member(Layout, layout, "layout")}


def as_texts(texts: str | Sequence[str] | Iterable[str]) -> list[str]:
    """One string is one text; everything else is a number of them."""
    if isinstance(texts, str):
        return [texts]
    if isinstance(texts, (bytes, bytearray, memoryview)):
        raise wrong_type("texts", "str", texts)
    listed = list(texts)
    for row, text in enumerate(listed):
        if not isinstance(text, str):
            raise wrong_type(f"texts[{row}]", "str", text)
    return listed
