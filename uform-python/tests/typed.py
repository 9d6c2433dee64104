"""What type checkers say about the package; checked by `mypy --strict`, never run."""

import asyncio
from typing import Any, assert_type

import numpy
from numpy.typing import NDArray

import uform
from uform import Arena, Deferred, Executor, Matrix, Model, Report


def load() -> tuple[Model, Executor]:
    threads = Executor.for_ram(memory_domains=[0], cpu_class=uform.CPUClass.INTEL_HASWELL, threads=2)
    model = Model.load_ram("model", executor=threads, precision="bf16", reading=uform.Reading.MAPPED)
    assert_type(Model.load_ram_from_bytes({"config.json": b"{}"}), Model)
    assert_type(model.describe().dimensions, int)
    assert_type(threads.describe().cpu_class, uform.CPUClass)
    return model, threads


def embed(model: Model, threads: Executor) -> None:
    on = model.on(threads)
    assert_type(on.embed_texts("a"), NDArray[Any])
    assert_type(model.embed_queries(["a"], dtype="i8", dimensions=8), NDArray[Any])
    assert_type(on.embed_documents(["a"], reports=True), tuple[NDArray[Any], list[Report]])
    matrix = Arena(threads).allocate(1, 8, "f32")
    assert_type(on.embed_texts("a", out=matrix), Matrix)
    assert_type(on.embed_texts("a", out=numpy.zeros((1, 8)), reports=True)[1], list[Report])
    assert_type(on.deferred.embed_texts("a"), Deferred[NDArray[Any]])
    assert_type(on.deferred.embed_queries("a", reports=True).result(1.5), tuple[NDArray[Any], list[Report]])
    assert_type(memoryview(matrix), memoryview[int])
    on.embed_texts("a", colour="red")  # type: ignore[call-overload]
    on.embed_texts(7)  # type: ignore[call-overload]
    on.embed_queries("a", role="query")  # type: ignore[call-overload]


async def wait(later: Deferred[NDArray[Any]]) -> None:
    assert_type(await later, NDArray[Any])
    await asyncio.gather(asyncio.ensure_future(later))


def report(error: uform.Error) -> None:
    assert_type(error.status, uform.Status | int)
