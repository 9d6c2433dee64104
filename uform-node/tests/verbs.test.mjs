// What the verbs yield, and how they fail.

import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { mkdtempSync, readdirSync, readFileSync, rmSync, statSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import { Executor, Model, Mood, UFormError, capabilitiesAvailable, init, setLogCallback, version } from "uform";
import { realModel, someTexts, tiny } from "./paths.mjs";

const executor = Executor.forRam({ threads: 2 });
const model = Model.loadRam(tiny(), { executor });
const on = model.on(executor);
after(() => {
  model.free();
  executor.free();
});

test("the version is that of the package", async () => {
  await init();
  const { version: expected } = JSON.parse(readFileSync(new URL("../package.json", import.meta.url), "utf8"));
  assert.equal(version(), expected);
});

test("an executor says what it is", () => {
  const described = executor.describe();
  assert.equal(described.threads, 2);
  assert.equal(described.residency, "ram");
  assert.equal(described.mood, Mood.Parked);
  assert.equal(described.gpuClass, null);
  assert.ok(capabilitiesAvailable().split(",").includes(described.cpuClass), described.cpuClass);
  executor.drain(Mood.Spinning);
  assert.equal(executor.describe().mood, Mood.Spinning);
  executor.drain();
  assert.equal(executor.describe().mood, Mood.Parked);
  on.embedTexts(someTexts(50));
  assert.ok(executor.describe().scratchHighWaterBytes > 0);
  executor.trim();
  assert.equal(executor.describe().scratchBytes, 0);
});

test("a class can be pinned by name", () => {
  const serial = Executor.forRam({ threads: 1, cpuClass: "serial", deferredLimit: 3, memoryDomains: [] });
  assert.equal(serial.describe().cpuClass, "serial");
  assert.equal(serial.describe().deferredLimit, 3);
  serial.free();
  assert.throws(() => Executor.forRam({ cpuClass: "intel-386" }), { code: "invalid-argument", message: /intel-386/ });
  const lacking = ["apple-m4", "intel-diamond"].find((name) => !capabilitiesAvailable().includes(name));
  assert.throws(() => Executor.forRam({ cpuClass: lacking }), { code: "unsupported", status: 2 });
});

test("what does not work yet says so", () => {
  const unsupported = { name: "UFormError", code: "unsupported", status: 2 };
  assert.throws(() => Executor.forVram(), unsupported);
  assert.throws(() => Executor.onPool(4096n), unsupported);
  assert.throws(() => Model.loadVram(tiny(), { devices: [0] }), unsupported);
});

test("one string is one row, and no string is no row", () => {
  const one = on.embedTexts("the cat");
  assert.deepEqual([one.rows, one.dimensions, one.dtype], [1, model.dimensions, "f32"]);
  assert.equal(one.reports, undefined);
  assert.deepEqual(on.embedTexts(["the cat"]).data, one.data);
  const none = on.embedTexts([]);
  assert.deepEqual([none.rows, none.dimensions, none.data.length], [0, model.dimensions, 0]);
});

test("promises, the calling thread and the executor agree to the bit", async () => {
  const texts = someTexts(40);
  const expected = on.embedTexts(texts, { reports: true });
  assert.deepEqual(model.embedTexts(texts, { reports: true }), expected);
  assert.deepEqual(await on.deferred.embedTexts(texts, { reports: true }), expected);
  for (const dtype of ["f16", "bf16", "i8", "u8", "b1"]) {
    const now = on.embedTexts(texts, { dtype, dimensions: 8 });
    assert.deepEqual(await on.deferred.embedTexts(texts, { dtype, dimensions: 8 }), now, dtype);
    assert.equal(now.data.byteLength, texts.length * { f16: 16, bf16: 16, i8: 8, u8: 8, b1: 1 }[dtype]);
  }
});

test("roles by name and by option are the same", async () => {
  const prompted = Model.loadRam(tiny("bert-prompts"), { executor });
  const { promptNames } = prompted.describe();
  assert.ok(promptNames.includes("query"), promptNames.join());
  const with_ = prompted.on(executor);
  const queries = with_.embedQueries("the cat");
  assert.deepEqual(with_.embedTexts("the cat", { role: "query" }), queries);
  assert.deepEqual(await with_.deferred.embedQueries("the cat"), queries);
  assert.deepEqual(prompted.embedQueries("the cat"), queries);
  const documents = with_.embedDocuments("the cat");
  assert.notDeepEqual(documents.data, queries.data);
  assert.deepEqual(await with_.deferred.embedDocuments("the cat"), documents);
  assert.deepEqual(prompted.embedDocuments("the cat"), documents);
  assert.notDeepEqual(with_.embedTexts("the cat", { prompt: "" }).data, queries.data);
  assert.throws(() => with_.embedTexts("the cat", { promptName: "none-such" }), { code: "not-found" });
  for (const [verb, role, other] of [["embedQueries", "query", "document"], ["embedDocuments", "document", "query"]]) {
    const expected = role === "query" ? queries : documents;
    for (const verbs of [prompted, with_, with_.deferred]) {
      // Where promises reject, the other verbs throw.
      const embed = async (options) => verbs[verb]("the cat", options);
      assert.deepEqual(await embed({ role }), expected);
      assert.deepEqual(await embed({ role: undefined }), expected);
      for (const contradiction of [other, "as-given", null, 1]) {
        const message = `role: expected none, or "${role}" as the verb says, found `;
        await assert.rejects(embed({ role: contradiction }), (error) => {
          assert.deepEqual([error.code, error.message.slice(0, message.length)], ["invalid-argument", message]);
          return true;
        });
      }
      await assert.rejects(embed(null), { code: "invalid-argument", message: /options/ });
    }
  }
  prompted.free();
});

test("outputs may land in memory of the caller", async () => {
  const texts = someTexts(5);
  const expected = on.embedTexts(texts);
  const into = new Float32Array(5 * model.dimensions);
  const result = on.embedTexts(texts, { into });
  assert.equal(result.data, into);
  assert.deepEqual(into, expected.data);
  into.fill(0);
  on.embedTexts(texts, { into, progress: () => {} });
  assert.deepEqual(into, expected.data);
  into.fill(0);
  assert.equal((await on.deferred.embedTexts(texts, { into })).data, into);
  assert.deepEqual(into, expected.data);
  const invalid = { code: "invalid-argument" };
  assert.throws(() => on.embedTexts(texts, { into: new Float32Array(3) }), invalid);
  assert.throws(() => on.embedTexts(texts, { into: new Uint8Array(5 * model.dimensions) }), invalid);
  const shared = new Float32Array(new SharedArrayBuffer(20 * model.dimensions));
  assert.throws(() => on.embedTexts(texts, { into: shared }), invalid);
});

test("reports tell tokens, truncation and failures", async () => {
  const texts = ["the cat", "the cat and dog ".repeat(200)];
  const { reports } = on.embedTexts(texts, { reports: true, tokenLimit: 8 });
  assert.deepEqual(reports.map(({ truncated, tokensKept }) => [truncated, tokensKept]), [[false, 4], [true, 8]]);
  const refused = on.embedTexts(texts, { reports: true, tokenLimit: 8, length: "refuse" });
  assert.deepEqual(refused.reports.map(({ status }) => status), ["ok", "invalid-argument"]);
  assert.ok(refused.data.slice(model.dimensions).every(Number.isNaN));
  const failed = { code: "row-failed", status: 6, message: /row 1/ };
  assert.throws(() => on.embedTexts(texts, { tokenLimit: 8, length: "refuse" }), failed);
  await assert.rejects(on.deferred.embedTexts(texts, { tokenLimit: 8, length: "refuse" }), failed);
});

test("tokens, plan and description", () => {
  const tokens = model.tokenize("the cat");
  assert.equal(tokens.length, 4);
  assert.deepEqual(tokens.map(({ special }) => special), [true, false, false, true]);
  assert.deepEqual([tokens[1].begin, tokens[1].end], [0, 3]);
  assert.ok(model.plan(32) > 0);
  assert.ok(on.plan(32, 16) <= on.plan(32, 0));
  const described = model.describe();
  assert.equal(described.dimensions, model.dimensions);
  assert.deepEqual([described.residency, described.precision, described.fileDtype], ["ram", "f32", "f32"]);
  assert.ok(described.parameters > 0 && described.weightBytes > 0 && described.vocabulary > 0);
  assert.ok(Array.isArray(described.unreadKeys));
});

test("a model from bytes and its clones give the same bits", async () => {
  const folder = tiny();
  const files = {};
  for (const name of readdirSync(folder, { recursive: true })) {
    if (statSync(join(folder, name)).isFile()) files[name.replaceAll("\\", "/")] = readFileSync(join(folder, name));
  }
  const expected = on.embedTexts("the cat").data;
  const loaded = Model.loadRamFromBytes(files, { executor });
  const clone = loaded.clone();
  loaded.free();
  loaded.free();
  assert.throws(() => loaded.embedTexts("the cat"), { code: "invalid-argument", message: /freed/ });
  assert.deepEqual(clone.on(executor).embedTexts("the cat").data, expected);
  clone.free();
  const later = await Model.deferred.loadRamFromBytes(new Map(Object.entries(files)));
  assert.deepEqual(later.embedTexts("the cat").data, expected);
  later.free();
});

test("mistakes of the caller are invalid arguments that name them", async () => {
  const mistakes = [
    [() => on.embedTexts(7), /texts/],
    [() => on.embedTexts(["a", 7]), /texts\[1\]/],
    [() => on.embedTexts("a", { dtyp: "i8" }), /dtyp/],
    [() => on.embedTexts("a", { dimensions: -1 }), /dimensions/],
    [() => on.embedTexts("a", { dimensions: 1.5 }), /dimensions/],
    [() => on.embedTexts("a", { dimensions: model.dimensions + 1 }), new RegExp(String(model.dimensions))],
    [() => on.embedTexts("a", { role: "toString" }), /role/],
    [() => on.embedTexts("a", { prompt: "a", promptName: "b" }), /prompt/],
    [() => on.embedTexts("a", { progress: 1 }), /progress/],
    [() => Executor.forRam({ threads: -1 }), /threads/],
    [() => Executor.forRam({ memoryDomains: [2 ** 40] }), /memoryDomains/],
    [() => Executor.onPool(-1n), /pool/],
    [() => executor.drain(2), /mood/],
    [() => model.on(undefined), /executor/],
    [() => Model.open({}), /token/],
    [() => Model.loadRam(7), /path/],
    [() => Model.loadRam(tiny(), { precision: "f64" }), /precision/],
    [() => Model.loadRam(tiny(), { signal: new AbortController().signal }), /signal/],
    [() => Model.loadRam(tiny(), { devices: [0] }), /devices/],
    [() => Model.loadVram(tiny(), { signal: new AbortController().signal }), /signal/],
    [() => on.embedTexts("a", { signal: new AbortController().signal }), /signal/],
    [() => model.tokenize("a", { executor }), /executor/],
    [() => model.tokenize("a", { progress: () => {} }), /progress/],
    [() => model.plan(1, 0, { progress: () => {} }), /progress/],
  ];
  for (const [call, message] of mistakes) {
    assert.throws(call, (error) => {
      assert.ok(error instanceof UFormError, String(error));
      assert.equal(error.code, "invalid-argument", error.message);
      assert.equal(error.status, 1);
      assert.match(error.message, message);
      return true;
    });
  }
  assert.throws(() => Model.loadRam("/no/such/model"), { code: "not-found", message: /no\/such\/model/ });
  await assert.rejects(Model.deferred.loadRam("/no/such/model"), { name: "UFormError", code: "not-found" });
  await assert.rejects(on.deferred.embedTexts(7), { code: "invalid-argument" });
  await assert.rejects(Model.deferred.loadRam(tiny(), { devices: [0] }), { code: "invalid-argument", message: /devices/ });
});

test("warnings go to the callback that is set, and nowhere without one", () => {
  // hwloc is told to look at nothing, which the library warns of.
  const warnings = (callback) => {
    const source = `
      import { Executor, setLogCallback } from "uform";
      ${callback}
      Executor.forRam({ threads: 1 }).free();
      setTimeout(() => {}, 50);`;
    return spawnSync(process.execPath, ["--input-type=module", "-e", source], {
      cwd: new URL("..", import.meta.url),
      encoding: "utf8",
      env: { ...process.env, HWLOC_COMPONENTS: "stop" },
    });
  };
  const told = warnings("setLogCallback((message) => console.log(message));");
  assert.deepEqual([told.status, told.stderr], [0, ""]);
  assert.match(told.stdout, /^hwloc cannot read this machine.*\n$/);
  for (const callback of ["", "setLogCallback(() => console.log(1)); setLogCallback();"]) {
    const { status, stdout, stderr } = warnings(callback);
    assert.deepEqual([status, stdout, stderr], [0, "", ""]);
  }
  assert.throws(() => setLogCallback(1), { code: "invalid-argument", message: /callback/ });
});

test("lone surrogates are text all the same", () => {
  assert.deepEqual(on.embedTexts("cat \ud800").data, on.embedTexts("cat \ufffd").data);
});

test("a real model finds what is alike", { skip: realModel === undefined && "no real model here" }, async () => {
  const real = await Model.deferred.loadRam(realModel, { executor });
  const rows = real.on(executor);
  const { data, dimensions } = rows.embedTexts(["A cat sleeps on the sofa.", "A kitten naps on a couch.", "Taxes rose."]);
  const similarity = (a, b) => {
    let sum = 0;
    for (let at = 0; at < dimensions; at += 1) sum += data[a * dimensions + at] * data[b * dimensions + at];
    return sum;
  };
  assert.equal(dimensions, 384);
  assert.ok(Math.abs(similarity(0, 0) - 1) < 1e-5);
  assert.ok(similarity(0, 1) > 0.5 && similarity(0, 2) < 0.3, `${similarity(0, 1)}, ${similarity(0, 2)}`);
  real.free();
});

test("a packed model is one file that embeds the same", async () => {
  const folder = mkdtempSync(join(tmpdir(), "uform-pack-"));
  try {
    const path = join(folder, "packed.safetensors");
    const expected = Model.loadRam(tiny("bert-dense"), { precision: "i8" }).embedTexts(["a cat", "a dog"]).data;
    for (const layout of ["portable", "x86"]) {
      Model.pack(tiny("bert-dense"), path, { precision: "i8", layout });
      for (const packed of [
        Model.loadRam(path),
        Model.loadRam(path, { reading: "mapped" }),
        Model.loadRamFromBytes({ "any.safetensors": readFileSync(path) }),
        await Model.deferred.loadRam(path),
      ]) {
        assert.equal(packed.describe().precision, "i8");
        assert.deepEqual(packed.embedTexts(["a cat", "a dog"]).data, expected);
      }
      assert.throws(() => Model.loadRam(path, { precision: "f32" }), { code: "unsupported", message: /precision.*i8/ });
    }
    const refused = { code: "invalid-argument" };
    assert.throws(() => Model.pack(tiny(), join(folder, "packed.bin")), refused);
    assert.throws(() => Model.pack(tiny(), path, { layout: "arm" }), { ...refused, message: /portable, x86/ });
    assert.throws(() => Model.pack(tiny(), path, { reading: "mapped" }), refused);
    assert.throws(() => Model.pack(tiny(), undefined), refused);
    assert.throws(() => Model.pack(join(folder, "none"), path), { code: "not-found" });
  } finally {
    rmSync(folder, { recursive: true });
  }
});
