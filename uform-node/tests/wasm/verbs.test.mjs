// What is different in WebAssembly: one thread, no files, memory that is copied out, and an end of the instance.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import {
  Arena,
  Executor,
  Model,
  Mood,
  capabilitiesAvailable,
  capabilitiesCompiled,
  cpuClassDetected,
  gpuDevices,
  version,
} from "uform";
import * as module from "../../dist/esm/wasm/uform_wasm.js";
import { filesOf } from "../conformance.mjs";
import { someTexts } from "../paths.mjs";
import { ready } from "./module.mjs";

assert.throws(() => version(), { name: "UFormError", code: "invalid-argument", message: /init/ });
await Promise.all([ready(), ready()]);

const tiny = (name = "bert-mean", options = {}) => Model.loadRamFromBytes(filesOf({ model: name }), options);
const executor = Executor.forRam({ threads: 4 });
const model = tiny("bert-mean", { executor });
const on = model.on(executor);
const texts = someTexts(40);

test("what it is", () => {
  const { version: expected } = JSON.parse(readFileSync(new URL("../../package.json", import.meta.url), "utf8"));
  assert.equal(version(), expected);
  assert.equal(capabilitiesCompiled(), "serial,wasm32-v128");
  assert.equal(capabilitiesAvailable(), "serial,wasm32-v128");
  assert.equal(cpuClassDetected(), "wasm32-v128");
  assert.deepEqual(gpuDevices(), []);
  const { threads, cpuClass, gpuClass, mood, residency } = executor.describe();
  assert.deepEqual(
    { threads, cpuClass, gpuClass, mood, residency },
    { threads: 1, cpuClass: "wasm32-v128", gpuClass: null, mood: Mood.Parked, residency: "ram" },
  );
  executor.drain(Mood.Spinning);
  assert.equal(executor.describe().mood, Mood.Spinning);
  assert.ok(model.plan(8, 16, { executor }) > 0 && model.plan(8) > 0);
  assert.ok(model.describe().promptNames.length > 0);
});

test("what needs files, other devices or other threads is unsupported", async () => {
  const unsupported = { name: "UFormError", code: "unsupported" };
  assert.throws(() => Model.loadRam("folder"), unsupported);
  await assert.rejects(Model.deferred.loadRam("folder"), unsupported);
  assert.throws(() => Model.pack("folder", "file.safetensors"), unsupported);
  assert.throws(() => Model.loadVram("folder", { devices: [0] }), unsupported);
  assert.throws(() => Executor.forVram({ streams: [1n] }), unsupported);
  assert.throws(() => Executor.onPool(4096n), unsupported);
  assert.throws(() => Executor.forRam({ cpuClass: "intel-haswell" }), unsupported);
  assert.throws(() => Executor.forRam({ cpuClass: "none-such" }), { code: "invalid-argument" });
});

test("promises, the calling thread, the executor and the serial class agree", async () => {
  const expected = on.embedTexts(texts, { reports: true });
  assert.deepEqual(model.embedTexts(texts, { reports: true }), expected);
  const [first, second] = [on.deferred.embedTexts(texts, { reports: true }), on.deferred.embedTexts("a")];
  assert.deepEqual(await first, expected);
  assert.equal((await second).rows, 1);
  const into = new Float32Array(expected.data.length);
  assert.equal((await on.deferred.embedTexts(texts, { into })).data, into);
  assert.deepEqual(into, expected.data);
  const serial = Executor.forRam({ cpuClass: "serial" });
  const other = model.on(serial).embedTexts(texts).data;
  assert.ok(other.every((value, at) => Math.abs(value - expected.data[at]) < 2e-6));
  serial.free();
});

test("progress is told, and stops a call that runs while it is submitted", async () => {
  const reason = new Error("enough");
  for (const embed of [
    async (options) => on.embedTexts(texts, options),
    async (options) => model.embedTexts(texts, options),
    (options) => on.deferred.embedTexts(texts, options),
  ]) {
    const told = [];
    await embed({ tokenBudget: 64, progress: (...both) => void told.push(both) });
    assert.ok(told.length > 1);
    assert.deepEqual(told.at(-1), [texts.length, texts.length]);
    await assert.rejects(embed({ progress: () => false }), { code: "cancelled" });
    const throwing = () => {
      throw reason;
    };
    await assert.rejects(embed({ progress: throwing }), reason);
  }
  const controller = new AbortController();
  let calls = 0;
  const progress = () => {
    calls += 1;
    controller.abort(reason);
  };
  const stopped = on.deferred.embedTexts(texts, { tokenBudget: 64, signal: controller.signal, progress });
  await assert.rejects(stopped, reason);
  assert.equal(calls, 1);
  await assert.rejects(on.deferred.embedTexts("a", { signal: AbortSignal.abort(reason) }), reason);
  on.embedTexts(texts, {
    progress: () => {
      assert.equal(model.embedTexts("a").rows, 1);
      assert.throws(() => on.embedTexts("a"), { code: "contended" });
    },
  });
});

test("a model loads later, and its promise can be stopped", async () => {
  const files = new Map(["config.json", "model.safetensors", "tokenizer.json"].map((name) => [name, read("bert-plain", name)]));
  const loaded = await Model.deferred.loadRamFromBytes(files, { executor });
  assert.equal(loaded.describe().architecture, "bert");
  loaded.free();
  await assert.rejects(Model.deferred.loadRamFromBytes(files, { progress: () => false }), { code: "cancelled" });
  await assert.rejects(Model.deferred.loadRamFromBytes({ "config.json": new Uint8Array(2) }), { code: "corrupt-data" });
});

function read(name, file) {
  return readFileSync(new URL(`../../../tests/conformance/models/${name}/${file}`, import.meta.url));
}

/** A packed file in f32, as ARCHITECTURE.md describes them: the weights with the text files of the model in their metadata. */
function packed(name) {
  const weights = read(name, "model.safetensors");
  const length = Number(weights.readBigUInt64LE());
  const tensors = JSON.parse(weights.subarray(8, 8 + length));
  const texts = ["config.json", "tokenizer.json", "tokenizer_config.json"].map((file) => [file, String(read(name, file))]);
  const facts = { "uform.version": "1", "uform.precision": "f32", "uform.layout": "portable" };
  const header = Buffer.from(JSON.stringify({ ...tensors, __metadata__: { ...facts, ...Object.fromEntries(texts) } }));
  const size = Buffer.alloc(8);
  size.writeBigUInt64LE(BigInt(header.length));
  return Buffer.concat([size, header, weights.subarray(8 + length)]);
}

test("a packed file is the model that it was made of", () => {
  const loaded = Model.loadRamFromBytes({ "any.safetensors": packed("bert-plain") });
  const folder = tiny("bert-plain");
  assert.deepEqual(loaded.on(executor).embedTexts(texts).data, folder.on(executor).embedTexts(texts).data);
  loaded.free();
  folder.free();
  assert.throws(() => Model.loadRamFromBytes({ "any.safetensors": packed("bert-plain").subarray(0, 9000) }), {
    code: "corrupt-data",
  });
});

test("matrices of an arena are copied out", async () => {
  const arena = Arena.newIn(executor);
  for (const dtype of ["f32", "bf16", "i8", "b1"]) {
    const expected = on.embedTexts(texts, { dtype });
    const matrix = arena.allocate(texts.length, model.dimensions, dtype);
    assert.ok(matrix.data.every((element) => element === 0));
    for (const embed of [on, on.deferred]) {
      const result = await embed.embedTexts(texts, { into: matrix, reports: true });
      assert.equal(result.reports.length, texts.length);
      assert.deepEqual(matrix.copy(), expected.data);
      assert.deepEqual(matrix.row(2), expected.data.slice(2 * expected.rowStride, 3 * expected.rowStride));
      assert.equal(result.data.length, matrix.data.length);
    }
    assert.throws(() => arena.reset(), { code: "contended", message: /in use: 1/ });
    matrix.free();
    matrix.free();
    assert.throws(() => matrix.data, { code: "invalid-argument", message: /freed/ });
    arena.reset();
  }
  assert.equal(arena.describe().usedBytes, 0);
  arena.free();
});

test("a model is shared within the instance, while a handle of it is alive", () => {
  const another = tiny();
  const token = another.share();
  const opened = Model.open(token);
  another.free();
  assert.equal(opened.embedTexts("a").rows, 1);
  opened.free();
  opened[Symbol.dispose]();
  assert.throws(() => opened.describe(), { code: "invalid-argument", message: /freed/ });
  assert.throws(() => Model.open(token), { code: "not-found" });
  assert.throws(() => Model.open({ uformModel: "1-0" }), { code: "not-found" });
});

test("memory of models that were freed is used again", async () => {
  const { memory } = await module.default();
  const loads = (count) => {
    for (let load = 0; load < count; load += 1) {
      const loaded = tiny();
      loaded.embedTexts(texts);
      loaded.free();
    }
    return memory.buffer.byteLength;
  };
  const most = loads(200);
  assert.equal(loads(200), most);
});

/** Bytes that are more each time they are counted, on which the module panics. */
class Growing extends Uint8Array {
  #counted = 0;

  get length() {
    this.#counted += 1;
    return this.#counted;
  }
}

test("after a panic or a trap every call is refused until init makes a new instance", async () => {
  const expected = on.embedTexts(texts).data;
  const internal = { name: "UFormError", code: "internal" };
  const defects = [
    () => assert.throws(() => Model.loadRamFromBytes({ "config.json": new Growing(9) }), { ...internal, message: /panicked/ }),
    () => {
      const broken = Executor.forRam();
      // An address outside of the module's memory stands for a defect in it.
      broken.compiled.__wbg_ptr = 2 ** 31;
      assert.throws(() => broken.describe(), internal);
      broken.free();
    },
  ];
  let [old, older] = [executor, model];
  for (const defect of defects) {
    defect();
    assert.throws(() => version(), internal);
    assert.throws(() => older.on(old).embedTexts("a"), internal);
    await assert.rejects(older.on(old).deferred.embedTexts("a"), internal);
    old.free();
    await ready();
    assert.equal(cpuClassDetected(), "wasm32-v128");
    assert.throws(() => older.describe(), internal);
    assert.throws(() => old.drain(), internal);
    older.free();
    const [again, fresh] = [Executor.forRam(), tiny()];
    assert.deepEqual(fresh.on(again).embedTexts(texts).data, expected);
    assert.throws(() => fresh.on(old).embedTexts("a"), internal);
    [old, older] = [again, fresh];
  }
  old.free();
  older.free();
});
