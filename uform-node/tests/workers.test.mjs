// Worker threads: sharing a model with them, and their end.

import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { once } from "node:events";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { Worker } from "node:worker_threads";
import { Executor, Model } from "uform";
import { tiny } from "./paths.mjs";

const script = new URL("./worker.mjs", import.meta.url);
const start = (workerData) => new Worker(script, { workerData: { path: tiny(), ...workerData } });

test("twenty workers open a shared model and end", async () => {
  const model = Model.loadRam(tiny());
  const expected = model.embedTexts("the cat").data;
  const token = structuredClone(model.share());
  assert.deepEqual(model.share(), token);
  for (let round = 0; round < 20; round += 1) {
    const worker = start({ token, task: "embed" });
    const [data] = await once(worker, "message");
    assert.deepEqual(data, expected);
    worker.postMessage("end");
    assert.deepEqual(await once(worker, "exit"), [0]);
  }
  model.free();
  assert.throws(() => Model.open(token), { code: "not-found" });
});

test("twenty workers are terminated with promises pending", async () => {
  const model = Model.loadRam(tiny());
  const token = model.share();
  for (let round = 0; round < 20; round += 1) {
    const worker = start({ token, task: "pending" });
    await once(worker, "message");
    await worker.terminate();
  }
  assert.equal(model.embedTexts("the cat").rows, 1);
  model.free();
});

test("twenty workers at once", async () => {
  const model = Model.loadRam(tiny());
  const token = model.share();
  const expected = model.embedTexts("the cat").data;
  const ends = Array.from({ length: 20 }, async (_, index) => {
    const worker = start({ token, task: index % 2 === 0 ? "embed" : "forget" });
    const exit = once(worker, "exit");
    const [message] = await once(worker, "message");
    if (index % 2 === 0) assert.deepEqual(message, expected);
    worker.postMessage("end");
    assert.deepEqual(await exit, [0]);
  });
  await Promise.all(ends);
  model.free();
});

test("a token opens while any handle is alive", async () => {
  const model = Model.loadRam(tiny());
  const token = model.share();
  const other = Model.open(token);
  model.free();
  const third = Model.open(token);
  other.free();
  assert.deepEqual(third.share(), token);
  third.free();
  assert.throws(() => Model.open(token), { code: "not-found", status: 4 });
  assert.throws(() => Model.open({ uformModel: "0123456789abcdef-0" }), { code: "not-found", message: /process/ });
});

test("a process ends well with everything forgotten and promises pending", () => {
  const source = `
    import { Executor, Model, Arena } from "uform";
    const executor = Executor.forRam({ threads: 2 });
    const model = Model.loadRam(${JSON.stringify(tiny())});
    const matrix = Arena.newIn(executor).allocate(1, model.dimensions);
    matrix.data.fill(1);
    void model.on(executor).deferred.embedTexts(Array(20000).fill("the cat and dog"));
    void Model.deferred.loadRam(${JSON.stringify(tiny())}, { executor: Executor.forRam({ threads: 1 }) });
    setTimeout(() => process.exit(0), 20);`;
  for (let round = 0; round < 5; round += 1) {
    const { status, signal, stderr } = spawnSync(process.execPath, ["--input-type=module", "-e", source], {
      cwd: fileURLToPath(new URL("..", import.meta.url)),
      encoding: "utf8",
    });
    assert.deepEqual([status, signal, stderr], [0, null, ""]);
  }
});

test("workers that load the addon first take it with them", () => {
  // The addon is loaded by workers alone here, which is when a runtime may unload it again.
  const source = `
    const { Worker } = require("node:worker_threads");
    const { once } = require("node:events");
    (async () => {
      for (let round = 0; round < 5; round += 1) {
        const worker = new Worker(new URL(${JSON.stringify(script.href)}), {
          workerData: { task: round % 2 ? "forget" : "pending", path: ${JSON.stringify(tiny())} },
        });
        await once(worker, "message");
        await worker.terminate();
      }
    })();`;
  const { status, signal, stderr } = spawnSync(process.execPath, ["-e", source], { encoding: "utf8" });
  assert.deepEqual([status, signal, stderr], [0, null, ""]);
});

test("executors belong to the thread that made them, models to all", () => {
  const executor = Executor.forRam({ threads: 1 });
  const model = Model.loadRam(tiny());
  // Handles are no data: a copy, on this thread or another, has nothing of them.
  const copies = [executor.compiled, model.compiled].map((handle) => structuredClone(handle));
  for (const copy of copies) assert.deepEqual([Object.getPrototypeOf(copy), Object.keys(copy)], [Object.prototype, []]);
  const copy = structuredClone(executor);
  assert.throws(() => model.on(copy).embedTexts("a"), { name: "UFormError", code: "invalid-argument" });
  assert.throws(() => Model.loadRam(tiny(), { executor: copy }), { name: "UFormError", code: "invalid-argument" });
  assert.equal(Model.open(structuredClone(model.share())).on(executor).embedTexts("a").rows, 1);
  model.free();
  executor.free();
});
