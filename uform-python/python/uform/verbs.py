"""The verbs that compute, for a model itself and for a model on an executor."""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Generic, Literal, TypedDict, TypeVar, Unpack, overload

from . import _uform
from ._arrays import Vectors, as_vectors
from ._generated import Dtype, Length, Normalize, Report, Role
from ._options import Outcome, as_texts, embedding, role_of_verb
from .deferred import Deferred
from .errors import status_of

Out = TypeVar("Out")
Progress = Callable[[int, int], object]


class RoleOptions(TypedDict, total=False):
    """The options of `embed_queries` and `embed_documents`; `embed_texts` explains them."""

    prompt: str | None
    prompt_name: str | None
    dimensions: int | None
    normalize: Normalize | str | bool | None
    length: Length | str
    token_limit: int | None
    token_budget: int | None
    reproducible: bool
    dtype: Dtype | str | None
    output_scale: float | None
    progress: Progress | None


class TextOptions(RoleOptions, total=False):
    """The options of `embed_texts`, which explains them."""

    role: Role | str | None


def _finish(outcome: Outcome, is_own: bool) -> Any:
    """What a verb gives: the vectors, with reports where they were asked for. `is_own` says that the caller gave no `out`."""
    output, rows = outcome
    vectors = as_vectors(output) if is_own else output
    if rows is None:
        return vectors
    return vectors, [Report(status_of(status), *rest) for status, *rest in rows]  # type: ignore[arg-type]


class Verbs:
    """Verbs that compute before they return."""

    __slots__ = ()

    def _target(self) -> tuple[_uform.Model, _uform.Executor | None]:
        raise NotImplementedError

    @overload
    def embed_texts(
        self, texts: Iterable[str], *, reports: Literal[False] = False, out: None = None, **options: Unpack[TextOptions]
    ) -> Vectors: ...
    @overload
    def embed_texts(
        self, texts: Iterable[str], *, reports: Literal[True], out: None = None, **options: Unpack[TextOptions]
    ) -> tuple[Vectors, list[Report]]: ...
    @overload
    def embed_texts(
        self, texts: Iterable[str], *, reports: Literal[False] = False, out: Out, **options: Unpack[TextOptions]
    ) -> Out: ...
    @overload
    def embed_texts(
        self, texts: Iterable[str], *, reports: Literal[True], out: Out, **options: Unpack[TextOptions]
    ) -> tuple[Out, list[Report]]: ...
    def embed_texts(
        self,
        texts: Iterable[str],
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
        progress: Progress | None = None,
        out: Any = None,
    ) -> Any:
        """Embeds texts, one row each; a string is one text. The vector of a text depends on that text, the options and the
        class of the CPU alone.

        - `role`: "query" or "document" puts the model's prompt of that name before each text; "as-given" its default one.
        - `prompt`, `prompt_name`: another prompt, as it is ("" for none) or by its name in the model.
        - `dimensions`: the leading dimensions that are kept, for Matryoshka models; all by default.
        - `normalize`: True or False scales rows to norm one or leaves them; the model decides by default.
        - `length`: "truncate" cuts a text that has too many tokens, "refuse" fails its row.
        - `token_limit`: the most tokens of a text, below the model's own limit.
        - `token_budget`: the tokens that are computed together; bounds memory and changes no bit of the result.
        - `reproducible`: demands bits that no batch, order or thread count changes; every class gives them anyway.
        - `dtype`: the type of the elements: "f32", "f16", "bf16", "i8", "u8" or "b1". By default it is that of `out`, or
          else "f32". bf16 arrives as 16-bit integers with its bits; b1 as bytes of eight dimensions, the first in the most
          significant bit.
        - `output_scale`: what values are multiplied with before they are rounded to i8 or u8; 127 by default.
        - `reports`: asks for a report per text. A bad row is then NaN and says why; without reports it fails the call as
          `RowFailedError`, which names the row. Bad are refused lengths, and strings with lone surrogates, which no UTF-8 has.
        - `progress`: called with the rows done and all rows, on the calling thread, from time to time. An exception in
          it ends the call and is raised; an answer of `False` ends it with `CancelledError`.
        - `out`: where the rows go: a matrix of an arena, or a writable buffer with two axes, whose rows may lie apart.

        Gives the vectors, of shape (rows, dimensions): an ndarray where NumPy can be imported, else a `Matrix`; or `out`.
        With reports, gives both.
        """
        model, executor = self._target()
        raw = embedding(
            role=role,
            prompt=prompt,
            prompt_name=prompt_name,
            dimensions=dimensions,
            normalize=normalize,
            length=length,
            token_limit=token_limit,
            token_budget=token_budget,
            reproducible=reproducible,
            dtype=dtype,
            output_scale=output_scale,
            reports=reports,
        )
        return _finish(model.embed(executor, as_texts(texts), raw, progress, out), out is None)

    @overload
    def embed_queries(
        self, texts: Iterable[str], *, reports: Literal[False] = False, out: None = None, **options: Unpack[RoleOptions]
    ) -> Vectors: ...
    @overload
    def embed_queries(
        self, texts: Iterable[str], *, reports: Literal[True], out: None = None, **options: Unpack[RoleOptions]
    ) -> tuple[Vectors, list[Report]]: ...
    @overload
    def embed_queries(
        self, texts: Iterable[str], *, reports: Literal[False] = False, out: Out, **options: Unpack[RoleOptions]
    ) -> Out: ...
    @overload
    def embed_queries(
        self, texts: Iterable[str], *, reports: Literal[True], out: Out, **options: Unpack[RoleOptions]
    ) -> tuple[Out, list[Report]]: ...
    def embed_queries(self, texts: Iterable[str], **options: Any) -> Any:
        """`embed_texts` with the role of queries. Another role is an `InvalidArgumentError`."""
        return self.embed_texts(texts, **role_of_verb(Role.QUERY, "embed_queries", options))

    @overload
    def embed_documents(
        self, texts: Iterable[str], *, reports: Literal[False] = False, out: None = None, **options: Unpack[RoleOptions]
    ) -> Vectors: ...
    @overload
    def embed_documents(
        self, texts: Iterable[str], *, reports: Literal[True], out: None = None, **options: Unpack[RoleOptions]
    ) -> tuple[Vectors, list[Report]]: ...
    @overload
    def embed_documents(
        self, texts: Iterable[str], *, reports: Literal[False] = False, out: Out, **options: Unpack[RoleOptions]
    ) -> Out: ...
    @overload
    def embed_documents(
        self, texts: Iterable[str], *, reports: Literal[True], out: Out, **options: Unpack[RoleOptions]
    ) -> tuple[Out, list[Report]]: ...
    def embed_documents(self, texts: Iterable[str], **options: Any) -> Any:
        """`embed_texts` with the role of documents. Another role is an `InvalidArgumentError`."""
        return self.embed_texts(texts, **role_of_verb(Role.DOCUMENT, "embed_documents", options))


class OnDeferred:
    """The same verbs as deferred calls, which are submitted and return before they are done. One more than the executor tracks
    fails with `ContendedError`. On the null executor a call runs at once."""

    __slots__ = ("_model", "_executor")

    def __init__(self, model: _uform.Model, executor: _uform.Executor | None) -> None:
        self._model = model
        self._executor = executor

    @overload
    def embed_texts(
        self, texts: Iterable[str], *, reports: Literal[False] = False, out: None = None, **options: Unpack[TextOptions]
    ) -> Deferred[Vectors]: ...
    @overload
    def embed_texts(
        self, texts: Iterable[str], *, reports: Literal[True], out: None = None, **options: Unpack[TextOptions]
    ) -> Deferred[tuple[Vectors, list[Report]]]: ...
    @overload
    def embed_texts(
        self, texts: Iterable[str], *, reports: Literal[False] = False, out: Out, **options: Unpack[TextOptions]
    ) -> Deferred[Out]: ...
    @overload
    def embed_texts(
        self, texts: Iterable[str], *, reports: Literal[True], out: Out, **options: Unpack[TextOptions]
    ) -> Deferred[tuple[Out, list[Report]]]: ...
    def embed_texts(
        self,
        texts: Iterable[str],
        *,
        reports: bool = False,
        progress: Progress | None = None,
        out: Any = None,
        **options: Any,
    ) -> Any:
        """Submits what `Verbs.embed_texts` does, with the same options. `progress` is called on the executor's thread;
        what computes on that executor or waits for it raises `InvalidArgumentError` in there. The memory of `out` is not to be
        touched until the call has ended."""
        raw = embedding(reports=reports, **options)
        handle = self._model.defer(self._executor, as_texts(texts), raw, progress, out)
        return Deferred(handle, partial(_finish, is_own=out is None))

    @overload
    def embed_queries(
        self, texts: Iterable[str], *, reports: Literal[False] = False, out: None = None, **options: Unpack[RoleOptions]
    ) -> Deferred[Vectors]: ...
    @overload
    def embed_queries(
        self, texts: Iterable[str], *, reports: Literal[True], out: None = None, **options: Unpack[RoleOptions]
    ) -> Deferred[tuple[Vectors, list[Report]]]: ...
    @overload
    def embed_queries(
        self, texts: Iterable[str], *, reports: Literal[False] = False, out: Out, **options: Unpack[RoleOptions]
    ) -> Deferred[Out]: ...
    @overload
    def embed_queries(
        self, texts: Iterable[str], *, reports: Literal[True], out: Out, **options: Unpack[RoleOptions]
    ) -> Deferred[tuple[Out, list[Report]]]: ...
    def embed_queries(self, texts: Iterable[str], **options: Any) -> Any:
        """`embed_texts` with the role of queries. Another role is an `InvalidArgumentError`."""
        return self.embed_texts(texts, **role_of_verb(Role.QUERY, "embed_queries", options))

    @overload
    def embed_documents(
        self, texts: Iterable[str], *, reports: Literal[False] = False, out: None = None, **options: Unpack[RoleOptions]
    ) -> Deferred[Vectors]: ...
    @overload
    def embed_documents(
        self, texts: Iterable[str], *, reports: Literal[True], out: None = None, **options: Unpack[RoleOptions]
    ) -> Deferred[tuple[Vectors, list[Report]]]: ...
    @overload
    def embed_documents(
        self, texts: Iterable[str], *, reports: Literal[False] = False, out: Out, **options: Unpack[RoleOptions]
    ) -> Deferred[Out]: ...
    @overload
    def embed_documents(
        self, texts: Iterable[str], *, reports: Literal[True], out: Out, **options: Unpack[RoleOptions]
    ) -> Deferred[tuple[Out, list[Report]]]: ...
    def embed_documents(self, texts: Iterable[str], **options: Any) -> Any:
        """`embed_texts` with the role of documents. Another role is an `InvalidArgumentError`."""
        return self.embed_texts(texts, **role_of_verb(Role.DOCUMENT, "embed_documents", options))
