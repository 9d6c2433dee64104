"""The compiled half of the package; the Python half is the interface."""

from collections.abc import Callable
from typing import Any, final

from typing_extensions import Buffer

from ._options import Outcome, RawLoading, RawOptions, RawPacking

__all__ = [
    "Arena",
    "Deferred",
    "Executor",
    "Matrix",
    "MatrixRow",
    "Model",
    "capabilities_available",
    "capabilities_compiled",
    "cpu_class_detected",
    "gpu_devices",
    "interpreter_ends",
    "set_log_callback",
    "version",
]

_Progress = Callable[[int, int], object]

def interpreter_ends() -> None: ...
def version() -> str: ...
def capabilities_compiled() -> str: ...
def capabilities_available() -> str: ...
def cpu_class_detected() -> int: ...
def gpu_devices() -> list[tuple[int, int, int, int, int, str]]: ...
def set_log_callback(callback: Callable[[str], object] | None) -> None: ...

@final
class Executor:
    def __new__(cls) -> Executor: ...
    @staticmethod
    def for_ram(memory_domains: list[int], cpu_class: int, threads: int, deferred_limit: int) -> Executor: ...
    @staticmethod
    def on_pool(memory_domains: list[int], cpu_class: int, pool: int, deferred_limit: int) -> Executor: ...
    @staticmethod
    def for_vram(
        devices: list[int],
        gpu_class: int,
        memory_domains: list[int],
        cpu_class: int,
        streams: list[int],
        scratch_limit: int,
        deferred_limit: int,
    ) -> Executor: ...
    def drain(self, mood: int) -> None: ...
    def trim(self) -> None: ...
    def describe(self) -> dict[str, Any]: ...
    def free(self) -> None: ...

@final
class Model:
    @staticmethod
    def load_ram(path: str, executor: Executor | None, options: RawLoading, progress: _Progress | None) -> Model: ...
    @staticmethod
    def load_ram_from_bytes(
        files: list[tuple[str, Buffer]], executor: Executor | None, options: RawLoading, progress: _Progress | None
    ) -> Model: ...
    @staticmethod
    def load_vram(path: str, executor: Executor, devices: list[int], options: RawLoading) -> Model: ...
    @staticmethod
    def pack(path: str, destination: str, options: RawPacking) -> None: ...
    def clone(self) -> Model: ...
    def describe(self) -> dict[str, Any]: ...
    def tokenize(self, text: str, options: RawOptions) -> list[tuple[int, bool, int, int]]: ...
    def plan(self, executor: Executor | None, rows: int, tokens: int, options: RawOptions) -> int: ...
    def embed(
        self,
        executor: Executor | None,
        texts: list[str],
        options: RawOptions,
        progress: _Progress | None,
        out: Any,
    ) -> Outcome: ...
    def defer(
        self,
        executor: Executor | None,
        texts: list[str],
        options: RawOptions,
        progress: _Progress | None,
        out: Any,
    ) -> Deferred: ...

@final
class Deferred:
    def done(self) -> bool: ...
    def cancel(self) -> None: ...
    def result(self, timeout: float | None) -> Outcome: ...
    def on_done(self, callback: Callable[[], object]) -> None: ...

@final
class Arena:
    def __new__(cls, executor: Executor | None) -> Arena: ...
    def allocate(self, rows: int, columns: int, dtype: int) -> Matrix: ...
    def reset(self) -> None: ...
    def describe(self) -> tuple[int, int, int]: ...

@final
class Matrix(Buffer):
    """Rows of numbers without NumPy. `memoryview`, `numpy.asarray` and everything that reads DLPack see them without a copy;
    `matrix[row]` is a memoryview of one row."""

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and dimensions."""

    @property
    def dtype(self) -> int:
        """The number of the `Dtype` of the elements."""

    def __len__(self) -> int: ...
    def __getitem__(self, index: int, /) -> memoryview: ...
    def __dlpack__(
        self,
        *,
        stream: Any = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any: ...
    def __dlpack_device__(self) -> tuple[int, int]: ...
    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any: ...

@final
class MatrixRow(Buffer): ...
