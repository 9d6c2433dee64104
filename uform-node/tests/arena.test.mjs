// Arenas: memory that verbs write into and that JavaScript sees without a copy.

import assert from "node:assert/strict";
import { after, test } from "node:test";
import { Arena, Executor, Model } from "uform";
import { someTexts, tiny } from "./paths.mjs";

const executor = Executor.forRam({ threads: 2 });
const model = Model.loadRam(tiny());
const on = model.on(executor);
after(() => {
  model.free();
  executor.free();
});

test("verbs write into a matrix, and its view sees it", async () => {
  const texts = someTexts(3);
  const arena = Arena.newIn(executor);
  for (const dtype of ["f32", "bf16", "i8", "b1"]) {
    const expected = on.embedTexts(texts, { dtype });
    for (const embed of [(options) => on.embedTexts(texts, options), (options) => on.deferred.embedTexts(texts, options)]) {
      const matrix = arena.allocate(3, model.dimensions, dtype);
      assert.ok(matrix.data.every((element) => element === 0));
      const result = await embed({ into: matrix, reports: true });
      assert.deepEqual([result.dtype, result.rows, result.dimensions], [dtype, 3, model.dimensions]);
      assert.equal(result.rowStride, matrix.rowStride);
      assert.equal(result.data.buffer, matrix.data.buffer);
      assert.equal(result.reports.length, 3);
      assert.deepEqual(matrix.copy(), expected.data);
      assert.deepEqual(matrix.row(2), expected.data.slice(2 * expected.rowStride));
      assert.equal((matrix.rowStride * matrix.data.BYTES_PER_ELEMENT) % 64, 0);
      matrix.free();
    }
  }
  assert.throws(() => on.embedTexts(texts, { into: arena.allocate(2, model.dimensions) }), {
    code: "buffer-too-small",
    message: /3 rows/,
  });
  assert.throws(() => arena.allocate(1, 4).row(1), { code: "invalid-argument" });
  assert.equal(arena.allocate(0, 4).data.length, 0);
  arena.free();
});

test("an arena refuses to be reset while a matrix or a view is alive", async () => {
  const arena = Arena.newIn(executor);
  const [first, second] = [arena.allocate(4, 16), arena.allocate(4, 16)];
  const view = first.data;
  assert.ok(arena.describe().usedBytes >= 2 * 4 * 64);
  assert.throws(() => arena.reset(), { code: "contended", message: /in use: 2/ });
  first.free();
  first.free();
  assert.equal(view.length, 0, "a freed matrix has empty views");
  assert.throws(() => first.data, { code: "invalid-argument", message: /freed/ });
  assert.throws(() => arena.reset(), { code: "contended" });
  second.free();
  arena.reset();
  assert.deepEqual([arena.describe().usedBytes, arena.describe().residency], [0, "ram"]);
  const reused = arena.describe().reservedBytes;
  arena.allocate(4, 16).free();
  arena.reset();
  assert.equal(arena.describe().reservedBytes, reused);
  arena.free();
});

test("a forgotten matrix frees its arena for the next reset", async () => {
  const arena = Arena.newIn(executor);
  (() => arena.allocate(4, 16).data.fill(1))();
  for (let round = 0; round < 50; round += 1) {
    globalThis.gc();
    await new Promise((resolve) => setTimeout(resolve, 10));
    try {
      arena.reset();
      break;
    } catch (error) {
      assert.equal(error.code, "contended");
    }
  }
  arena.reset();
  arena.free();
});

test("views outlive the arena and the executor", async () => {
  const short = Executor.forRam({ threads: 1 });
  const arena = Arena.newIn(short);
  const matrix = arena.allocate(1, model.dimensions);
  const view = matrix.data;
  const pending = model.on(short).deferred.embedTexts("the cat", { into: matrix });
  arena.free();
  short.free();
  arena.free();
  assert.throws(() => arena.allocate(1, 1), { code: "invalid-argument", message: /freed/ });
  await pending;
  assert.deepEqual(view, on.embedTexts("the cat").data);
});

test("a matrix that is freed under a pending call is no trouble", async () => {
  const arena = Arena.newIn(executor);
  const matrix = arena.allocate(2000, model.dimensions);
  const pending = on.deferred.embedTexts(someTexts(2000), { into: matrix });
  matrix.free();
  await pending;
  arena.free();
});
