"""Models: loading, what they are, and the receiver that computes on an executor."""

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

from . import _uform
from ._generated import (
    CPUClass,
    Dtype,
    Layout,
    Length,
    ModelDescription,
    Precision,
    Reading,
    Residency,
    Role,
    Token,
)
from ._options import RawLoading, count, domains, embedding, loading, packing, unicode
from .errors import InvalidArgumentError, MissingFileError, NotFoundError
from .executor import Executor
from .verbs import OnDeferred, Verbs

Path = str | os.PathLike[str]


def _handle_of(executor: Executor | None) -> _uform.Executor | None:
    return None if executor is None else executor._handle


class Model(Verbs):
    """The weights, tokenizer and configuration of a model; immutable, and used by any number of threads at once.

    The verbs of the model itself compute on the calling thread; `model.on(executor)` has those that compute on an executor's.
    Copies share the weights. Pickling keeps the path and the options, and loads again where it is unpickled; a model that was
    loaded from bytes has no path to keep.
    """

    __slots__ = ("_handle", "_origin", "__weakref__")

    _handle: _uform.Model
    _origin: tuple[str, RawLoading] | None

    @classmethod
    def _of(cls, handle: _uform.Model, origin: tuple[str, RawLoading] | None) -> Self:
        self = cls.__new__(cls)
        self._handle = handle
        self._origin = origin
        return self

    def __init__(self) -> None:
        raise TypeError("a model is made by Model.load_ram or Model.load_ram_from_bytes")

    @classmethod
    def load_ram(
        cls,
        path: Path,
        executor: Executor | None = None,
        precision: Precision | str = Precision.AUTO,
        reading: Reading | str = Reading.SEQUENTIAL,
        memory_domains: Sequence[int] = (),
        cpu_class: CPUClass | str | None = None,
        progress: Callable[[int, int], object] | None = None,
    ) -> Self:
        """Loads a model into RAM: a directory in the layout of sentence-transformers or Hugging Face, a `model.safetensors`
        inside one, a file made by `pack`, or, where there is no such file, a model of that name in the local Hugging Face cache.
        Nothing is ever downloaded.

        - `executor`: lends its threads for loading, and is not kept.
        - `precision`: the type of the matmuls' inputs; "auto" is the file's own where the CPU has it, else f32.
        - `reading`: "sequential" reads the files into memory; "mapped" maps them, and then nobody may change them.
        - `memory_domains`: NUMA domains that the weights are spread over; all by default.
        - `cpu_class`: the class that the layout of the weights is meant for; every executor runs the model all the same.
        - `progress`: called with the work done and all of it, on the calling thread, from time to time. An exception in it
          ends the loading and is raised; an answer of `False` ends it with `CancelledError`.

        `MissingFileError` (a `FileNotFoundError`) for a file that is not there, `CorruptDataError` for one that contradicts its
        format, `UnsupportedError` for an architecture, a module or a value of a key that is not known.
        """
        raw = loading(precision=precision, reading=reading, memory_domains=memory_domains, cpu_class=cpu_class)
        return cls._load(os.fspath(path), raw, executor, progress)

    @classmethod
    def _load(
        cls,
        path: str,
        raw: RawLoading,
        executor: Executor | None = None,
        progress: Callable[[int, int], object] | None = None,
    ) -> Self:
        try:
            handle = _uform.Model.load_ram(path, _handle_of(executor), raw, progress)
        except NotFoundError as error:
            raise MissingFileError(str(error)) from None
        # Whoever unpickles the model may be in another directory. What is no file is a name in the cache.
        return cls._of(handle, (os.path.abspath(path) if os.path.exists(path) else path, raw))

    @classmethod
    def load_ram_from_bytes(
        cls,
        files: Mapping[str, Any],
        executor: Executor | None = None,
        precision: Precision | str = Precision.AUTO,
        reading: Reading | str = Reading.SEQUENTIAL,
        memory_domains: Sequence[int] = (),
        cpu_class: CPUClass | str | None = None,
        progress: Callable[[int, int], object] | None = None,
    ) -> Self:
        """Loads a model into RAM from the files of its directory: a mapping from names, like "1_Pooling/config.json", to
        bytes or other buffers; or from one file made by `pack`, under any name. They are copied as far as needed and not kept.
        Otherwise as `load_ram`."""
        if not isinstance(files, Mapping):
            found = type(files).__name__
            raise TypeError(f"files: expected a mapping from names of files to their bytes, found {found}")
        raw = loading(precision=precision, reading=reading, memory_domains=memory_domains, cpu_class=cpu_class)
        try:
            named = [(unicode(name, f"files[{name!r}]"), buffer) for name, buffer in files.items()]
            handle = _uform.Model.load_ram_from_bytes(named, _handle_of(executor), raw, progress)
        except NotFoundError as error:
            raise MissingFileError(str(error)) from None
        return cls._of(handle, None)

    @classmethod
    def load_vram(
        cls,
        path: Path,
        executor: Executor,
        devices: Sequence[int] = (),
        precision: Precision | str = Precision.AUTO,
        reading: Reading | str = Reading.SEQUENTIAL,
    ) -> Self:
        """Would load a model into the memory of GPUs. Answers `UnsupportedError`: this version computes in RAM only."""
        raw = loading(precision=precision, reading=reading)
        handle = _uform.Model.load_vram(os.fspath(path), executor._handle, domains(devices, "devices"), raw)
        return cls._of(handle, None)

    @staticmethod
    def pack(
        path: Path,
        destination: Path,
        precision: Precision | str = Precision.AUTO,
        layout: Layout | str = Layout.PORTABLE,
    ) -> None:
        """Writes the model that `path` names for `load_ram` as one file, whose name ends in ".safetensors": weights, configuration,
        tokenizer and pooling. `load_ram` and `load_ram_from_bytes` load it as the same model in that precision, to the bit. The
        file appears at its destination when it is whole.

        - `precision`: the type of the weights of linear layers; "auto" is that of the model's files.
        - `layout`: "portable" is for every machine; with "x86" those weights lie as the kernels of that family read them, so that
          a mapped file is used in place.
        """
        try:
            _uform.Model.pack(os.fspath(path), os.fspath(destination), packing(precision, layout))
        except NotFoundError as error:
            raise MissingFileError(str(error)) from None

    def on(self, executor: Executor) -> "On":
        """The verbs of this model on `executor`."""
        return On(self, executor)

    @property
    def deferred(self) -> OnDeferred:
        """The verbs as deferred calls on the null executor: they run when they are submitted."""
        return OnDeferred(self._handle, None)

    def _target(self) -> tuple[_uform.Model, _uform.Executor | None]:
        return self._handle, None

    def describe(self) -> ModelDescription:
        """Says what the model is."""
        fields = self._handle.describe()
        fields["residency"] = Residency(fields["residency"])
        fields["precision"] = Precision(fields["precision"])
        fields["file_dtype"] = Dtype(fields["file_dtype"])
        return ModelDescription(**fields)

    def tokenize(
        self,
        text: str,
        *,
        role: Role | str | None = None,
        prompt: str | None = None,
        prompt_name: str | None = None,
        length: Length | str = Length.TRUNCATE,
        token_limit: int | None = None,
    ) -> list[Token]:
        """Splits one text into tokens, after the prompt that the options choose: all of them, also those beyond the limit, which
        embedding cuts off. With `length="refuse"` a text that has such is an `InvalidArgumentError`."""
        raw = embedding(role=role, prompt=prompt, prompt_name=prompt_name, length=length, token_limit=token_limit)
        return [Token(*token) for token in self._handle.tokenize(unicode(text, "text"), raw)]

    def plan(
        self,
        rows: int,
        tokens: int | None = None,
        *,
        executor: Executor | None = None,
        dimensions: int | None = None,
        token_limit: int | None = None,
        token_budget: int | None = None,
    ) -> int:
        """The most bytes that a call may need besides its inputs, outputs and the weights: for `rows` texts of up to `tokens`
        tokens each (by default the model's limit), on `executor`."""
        raw = embedding(dimensions=dimensions, token_limit=token_limit, token_budget=token_budget)
        return self._handle.plan(_handle_of(executor), count(rows, "rows"), count(tokens, "tokens"), raw)

    def clone(self) -> Self:
        """Another handle to the same weights."""
        return type(self)._of(self._handle.clone(), self._origin)

    def __copy__(self) -> Self:
        return self.clone()

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self.clone()

    def __reduce__(self) -> tuple[Any, ...]:
        if self._origin is None:
            raise InvalidArgumentError("a model that was loaded from bytes cannot be pickled: it has no path to load from")
        return _load, (type(self), *self._origin)

    def __repr__(self) -> str:
        about = self.describe()
        source = "bytes" if self._origin is None else repr(self._origin[0])
        return f"<uform.Model {about.architecture}, {about.dimensions} dimensions, from {source}>"


def _load(cls: type[Model], path: str, raw: RawLoading) -> Model:
    """What unpickling calls."""
    return cls._load(path, raw)


class On(Verbs):
    """A model on an executor, made by `model.on(executor)`. Its verbs wait their turn there and return when they are done."""

    __slots__ = ("model", "executor")

    model: Model
    """The model."""
    executor: Executor
    """The executor."""

    def __init__(self, model: Model, executor: Executor) -> None:
        self.model = model
        self.executor = executor

    def _target(self) -> tuple[_uform.Model, _uform.Executor | None]:
        return self.model._handle, self.executor._handle

    @property
    def deferred(self) -> OnDeferred:
        """The verbs as deferred calls."""
        return OnDeferred(self.model._handle, self.executor._handle)

    def __repr__(self) -> str:
        return f"<uform.On {self.model!r}, {self.executor!r}>"
