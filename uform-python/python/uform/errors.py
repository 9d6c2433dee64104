"""The exceptions of this package: `Error`, and one class per status, also of Python's own kind where there is one.

An exception is chosen by what went wrong, `except uform.errors.ContendedError`, by Python's kind, `except ValueError`, or by
`error.status`.
"""

from ._generated import Status


class Error(Exception):
    """A call failed. The text of the exception says which file, key or argument, what was expected and what was found."""

    status: Status | int = Status.INTERNAL
    """Why, as something to branch on. A plain number where the library is newer than this package."""


class InvalidArgumentError(Error, ValueError):
    """An argument is out of range, malformed, or contradicts another."""

    status = Status.INVALID_ARGUMENT


class UnsupportedError(Error):
    """This build, machine or model cannot do what was asked."""

    status = Status.UNSUPPORTED


class BufferTooSmallError(Error, ValueError):
    """The output does not fit the memory that was given."""

    status = Status.BUFFER_TOO_SMALL


class NotFoundError(Error, LookupError):
    """A prompt, name or file does not exist."""

    status = Status.NOT_FOUND


class MissingFileError(NotFoundError, FileNotFoundError):
    """A file of a model does not exist."""


class CorruptDataError(Error, ValueError):
    """A file contradicts its own format."""

    status = Status.CORRUPT_DATA


class RowFailedError(Error, ValueError):
    """A text could not be embedded, and no reports were asked for."""

    status = Status.ROW_FAILED


class OutOfMemoryError(Error, MemoryError):
    """Memory ran out."""

    status = Status.OUT_OF_MEMORY


class InputOutputError(Error, OSError):
    """The operating system refused to read or write."""

    status = Status.IO


class DeviceUnavailableError(Error):
    """A device that was asked for cannot be had."""

    status = Status.DEVICE_UNAVAILABLE


class DeviceLostError(Error):
    """A device stopped working."""

    status = Status.DEVICE_LOST


class ContendedError(Error):
    """The executor tracks as many unfinished deferred calls as it may."""

    status = Status.CONTENDED


class CancelledError(Error):
    """The call was cancelled."""

    status = Status.CANCELLED


class TimedOutError(Error, TimeoutError):
    """The time given for waiting has passed."""

    status = Status.TIMED_OUT


class ForkedError(Error):
    """The object belongs to the process from which this one was forked."""

    status = Status.FORKED


class InternalError(Error):
    """A defect of the library."""

    status = Status.INTERNAL


_CLASSES: dict[int, type[Error]] = {
    int(kind.status): kind
    for kind in (
        InvalidArgumentError,
        UnsupportedError,
        BufferTooSmallError,
        NotFoundError,
        CorruptDataError,
        RowFailedError,
        OutOfMemoryError,
        InputOutputError,
        DeviceUnavailableError,
        DeviceLostError,
        ContendedError,
        CancelledError,
        TimedOutError,
        ForkedError,
        InternalError,
    )
}


def status_of(code: int) -> Status | int:
    """The status with that number, or the number itself."""
    try:
        return Status(code)
    except ValueError:
        return code


def from_status(code: int, message: str) -> Error:
    """The exception for a status of the C interface, with its sentence."""
    kind = _CLASSES.get(code)
    if kind is not None:
        return kind(message)
    error = Error(message)
    error.status = status_of(code)
    return error
