"""Text to vectors, inside the program that needs them.

    import uform

    threads = uform.Executor.for_ram()
    model = uform.Model.load_ram("all-MiniLM-L6-v2", executor=threads)
    vectors = model.on(threads).embed_texts(["a cat", "a dog"])
"""

import atexit
import logging
from collections.abc import Callable

from . import _uform, errors
from ._generated import (
    ArenaDescription,
    CPUClass,
    Dtype,
    ExecutorDescription,
    GPUClass,
    GPUDevice,
    GPUVendor,
    Layout,
    Length,
    ModelDescription,
    Mood,
    Normalize,
    Precision,
    Reading,
    Report,
    Residency,
    Role,
    Status,
    Token,
)
from ._uform import Matrix
from .arena import Arena
from .deferred import Deferred
from .errors import Error
from .executor import Executor, free_all
from .model import Model, On
from .verbs import OnDeferred

__all__ = [
    "Arena",
    "ArenaDescription",
    "CPUClass",
    "Deferred",
    "Dtype",
    "Error",
    "Executor",
    "ExecutorDescription",
    "GPUClass",
    "GPUDevice",
    "GPUVendor",
    "Layout",
    "Length",
    "Matrix",
    "Model",
    "ModelDescription",
    "Mood",
    "Normalize",
    "On",
    "OnDeferred",
    "Precision",
    "Reading",
    "Report",
    "Residency",
    "Role",
    "Status",
    "Token",
    "capabilities_available",
    "capabilities_compiled",
    "cpu_class_detected",
    "errors",
    "gpu_devices",
    "set_log_callback",
    "version",
]


def version() -> str:
    """The version of the library, like "4.0.0"."""
    return _uform.version()


def capabilities_compiled() -> str:
    """The names of the classes that this build has kernels for, separated by commas: CPU classes, then GPU classes."""
    return _uform.capabilities_compiled()


def capabilities_available() -> str:
    """The names of the classes that this machine offers to this build, in the form of `capabilities_compiled`."""
    return _uform.capabilities_available()


def cpu_class_detected() -> CPUClass | None:
    """The class that executors dispatch as unless one is pinned: the widest that this machine can run, or what the environment
    variable `UFORM_CPU_CLASS` names. None when that names none that can run here."""
    number = _uform.cpu_class_detected()
    return CPUClass(number) if number else None


def gpu_devices() -> list[GPUDevice]:
    """The GPUs that this process can drive and this build has kernels for. Positions in this list are the ordinals that
    executors and models name them by."""
    return [
        GPUDevice(GPUVendor(vendor), ordinal, GPUClass(gpu_class) if gpu_class else None, units, memory, name)
        for vendor, ordinal, gpu_class, units, memory, name in _uform.gpu_devices()
    ]


def set_log_callback(callback: Callable[[str], object] | None) -> None:
    """Sends the library's warnings to `callback` from now on, or nowhere with None. At first they go to the logger "uform". It
    is called on any thread; the library writes nothing to the standard streams."""
    _uform.set_log_callback(callback)


__version__ = version()
# Called in reverse order: callbacks of calls in line still run, and after that nothing enters the interpreter any more.
atexit.register(_uform.interpreter_ends)
atexit.register(free_all)
set_log_callback(logging.getLogger("uform").warning)
