// Promises: that they never block, can be stopped, report progress, and outlive what they were made from.

import assert from "node:assert/strict";
import { after, test } from "node:test";
import { Executor, Model } from "uform";
import { manyTexts, realModel, someTexts, tiny } from "./paths.mjs";

const executor = Executor.forRam({ threads: 1 });
const model = Model.loadRam(realModel ?? tiny());
const on = model.on(executor);
/** A call that takes long enough to be seen while it runs. */
const long = realModel === undefined ? manyTexts : someTexts(100);
after(() => {
  model.free();
  executor.free();
});

test("the event loop goes on during a long call", async () => {
  const gaps = [];
  let last = performance.now();
  const timer = setInterval(() => {
    gaps.push(performance.now() - last);
    last = performance.now();
  }, 5);
  const started = performance.now();
  await on.deferred.embedTexts(long);
  const took = performance.now() - started;
  clearInterval(timer);
  assert.ok(took > 50, `the call took ${took} ms, too short to tell`);
  assert.ok(gaps.length > took / 50, `${gaps.length} ticks in ${took} ms`);
  assert.ok(Math.max(...gaps) < took / 2, `a gap of ${Math.max(...gaps)} in ${took} ms`);
});

test("a signal stops a call with its reason", async () => {
  const reason = new Error("enough");
  await assert.rejects(on.deferred.embedTexts("a", { signal: AbortSignal.abort(reason) }), reason);

  const running = new AbortController();
  const started = performance.now();
  const stopped = on.deferred.embedTexts(long, { signal: running.signal });
  setTimeout(() => running.abort(reason), 20);
  await assert.rejects(stopped, reason);
  const stoppedAfter = performance.now() - started;

  const whole = performance.now();
  await on.deferred.embedTexts(long);
  assert.ok(stoppedAfter < (performance.now() - whole) / 2, `stopped after ${stoppedAfter} ms`);

  const queued = new AbortController();
  const first = on.deferred.embedTexts(long);
  const second = on.deferred.embedTexts("never", { signal: queued.signal });
  queued.abort();
  await assert.rejects(second, { name: "AbortError" });
  assert.equal((await first).rows, long.length);
  await assert.rejects(on.deferred.embedTexts("a", { signal: {} }), { code: "invalid-argument" });
});

test("progress is told, and answers stop the call", async () => {
  for (const embed of [
    async (options) => on.embedTexts(long, options),
    async (options) => model.embedTexts(long.slice(0, 20), options),
    (options) => on.deferred.embedTexts(long, options),
  ]) {
    const told = [];
    const { rows } = await embed({ progress: (done, total) => void told.push([done, total]) });
    assert.ok(told.length > 0);
    assert.ok(told.every(([done, total], at) => total === rows && done <= total && done >= (told[at - 1]?.[0] ?? 0)));
    assert.equal(told.at(-1)[0], rows);
    await assert.rejects(embed({ progress: () => false }), { code: "cancelled" });
    const thrown = new RangeError("from the callback");
    await assert.rejects(embed({ progress: () => { throw thrown; } }), (error) => error === thrown);
  }
});

test("a busy event loop hears of the latest progress alone", async () => {
  const told = [];
  const call = on.deferred.embedTexts(long, { tokenBudget: 64, progress: (...both) => void told.push(both) });
  executor.drain();
  await call;
  assert.deepEqual(told, [[long.length, long.length]]);
});

test("an array that changed during the call is refused", async () => {
  const elements = model.dimensions;
  const changed = (found) => ({
    name: "UFormError",
    code: "invalid-argument",
    message: new RegExp(`into: expected ${elements} elements .*found ${found}`),
  });
  const into = new Float32Array(elements);
  const call = on.deferred.embedTexts("a", { into });
  structuredClone(into, { transfer: [into.buffer] });
  await assert.rejects(call, changed(0));

  const given = new Float32Array(elements);
  const progress = () => {
    if (given.length > 0) structuredClone(given, { transfer: [given.buffer] });
  };
  assert.throws(() => on.embedTexts("a", { into: given, progress }), changed(0));

  const resizable = new Float32Array(new ArrayBuffer(4 * elements, { maxByteLength: 4 * elements }));
  if (resizable.buffer.resizable) {
    const shrunk = on.deferred.embedTexts("a", { into: resizable });
    resizable.buffer.resize(8);
    await assert.rejects(shrunk, changed(2));
  }
});

test("a progress callback may use anything but the executor that computes", () => {
  const asked = [];
  on.embedTexts(long.slice(0, 50), {
    progress: () => {
      asked.push(model.embedTexts("a").rows);
      assert.throws(() => on.embedTexts("a"), { code: "contended", status: 200 });
      assert.throws(() => executor.describe(), { code: "contended" });
    },
  });
  assert.ok(asked.length > 0 && asked.every((rows) => rows === 1));
});

test("loading tells progress and can be stopped", async () => {
  for (const load of [async (path, options) => Model.loadRam(path, options), Model.deferred.loadRam]) {
    const told = [];
    const loaded = await load(realModel ?? tiny(), { executor, progress: (...both) => void told.push(both) });
    assert.ok(told.length > 0);
    assert.ok(told.every(([done, total]) => done <= total));
    loaded.free();
    await assert.rejects(load(realModel ?? tiny(), { progress: () => false }), { code: "cancelled" });
  }
  const reason = new Error("enough");
  await assert.rejects(Model.deferred.loadRam(tiny(), { signal: AbortSignal.abort(reason) }), reason);
  const controller = new AbortController();
  const loading = Model.deferred.loadRam(realModel ?? tiny(), { signal: controller.signal });
  controller.abort(reason);
  await assert.rejects(loading, reason);
});

test("an executor that lends its threads is contended until the load has ended", async () => {
  const lent = Executor.forRam({ threads: 1 });
  const contended = () => assert.throws(() => model.on(lent).embedTexts("a"), { code: "contended", status: 200 });
  let asked = 0;
  const told = Model.loadRam(tiny(), { executor: lent, progress: () => void (contended(), (asked += 1)) });
  assert.ok(asked > 0);
  assert.equal(told.on(lent).embedTexts("a").rows, 1);
  told.free();

  let seen = 0;
  const loading = Model.deferred.loadRam(realModel ?? tiny(), {
    executor: lent,
    progress: () => {
      try {
        model.on(lent).embedTexts("a");
      } catch (error) {
        assert.equal(error.code, "contended");
        seen += 1;
      }
    },
  });
  const loaded = await loading;
  assert.equal(loaded.on(lent).embedTexts("a").rows, 1);
  // A tiny model may be loaded before this thread hears of it.
  if (realModel !== undefined) assert.ok(seen > 0);
  lent.free();
  loaded.free();
});

test("a load in the background is never contended", async () => {
  const lent = Executor.forRam({ threads: 1 });
  for (let round = 0; round < 100; round += 1) {
    const loads = [Model.deferred.loadRam(tiny(), { executor: lent }), Model.deferred.loadRam(tiny(), { executor: lent })];
    try {
      model.on(lent).embedTexts("a");
    } catch (error) {
      assert.match(error.message, /loads in the background/);
    }
    for (const loaded of await Promise.all(loads)) {
      assert.equal(loaded.on(lent).embedTexts("a").rows, 1);
      loaded.free();
    }
  }
  lent.free();
});

test("a load in the background has the executor from its submission on, and waits for its turn", async () => {
  const lent = Executor.forRam({ threads: 1 });
  const refused = [
    () => model.on(lent).embedTexts("a"),
    () => lent.describe(),
    () => lent.drain(),
    () => Model.loadRam(tiny(), { executor: lent }),
    () => model.plan(1, 0, { executor: lent }),
  ];
  const loads = [];
  const stopping = new AbortController();
  let later;
  const { rows } = model.on(lent).embedTexts(long.slice(0, 50), {
    // The loads cannot begin before this call has ended.
    progress: () => {
      if (loads.length > 0) return;
      loads.push(Model.deferred.loadRam(tiny(), { executor: lent }));
      loads.push(Model.deferred.loadRamFromBytes({}, { executor: lent }));
      loads.push(Model.deferred.loadRam(tiny(), { executor: lent, signal: stopping.signal }));
      stopping.abort("enough");
      for (const call of refused) assert.throws(call, { code: "contended", message: /loads in the background/ });
      later = assert.rejects(model.on(lent).deferred.embedTexts("a"), { code: "contended" });
    },
  });
  assert.equal(rows, 50);
  await later;
  const [loaded, missing, stopped] = await Promise.allSettled(loads);
  assert.deepEqual([missing.reason.code, stopped.reason], ["invalid-argument", "enough"]);
  assert.equal(loaded.value.on(lent).embedTexts("a").rows, 1);

  // The executor ends after the load that was submitted before.
  const last = Model.deferred.loadRam(tiny(), { executor: lent });
  lent.free();
  for (const each of [loaded.value, await last]) {
    assert.equal(each.embedTexts("a").rows, 1);
    each.free();
  }
});

test("one call too many is contended", async () => {
  const narrow = Executor.forRam({ threads: 1, deferredLimit: 2 });
  const calls = Array.from({ length: 3 }, () => model.on(narrow).deferred.embedTexts(long.slice(0, 100)));
  const outcomes = await Promise.allSettled(calls);
  assert.deepEqual(outcomes.map(({ status }) => status), ["fulfilled", "fulfilled", "rejected"]);
  assert.equal(outcomes[2].reason.code, "contended");
  narrow.free();
});

test("freeing the executor runs what is pending", async () => {
  const short = Executor.forRam({ threads: 1 });
  const texts = long.slice(0, 20);
  const pending = [1, 2, 3].map(() => model.on(short).deferred.embedTexts(texts));
  short.free();
  short.free();
  assert.throws(() => model.on(short).embedTexts("a"), { code: "invalid-argument", message: /freed/ });
  const expected = on.embedTexts(texts).data;
  for (const { data } of await Promise.all(pending)) assert.deepEqual(data, expected);
});

test("freeing the model does not disturb its calls", async () => {
  const clone = model.clone();
  const pending = clone.on(executor).deferred.embedTexts(long.slice(0, 20));
  clone.free();
  assert.deepEqual((await pending).data, on.embedTexts(long.slice(0, 20)).data);
});

test("calls of one executor end in the order of submission", async () => {
  const ended = [];
  await Promise.all(
    [0, 1, 2, 3].map((call) => on.deferred.embedTexts(long.slice(0, 40 >> call)).then(() => ended.push(call))),
  );
  assert.deepEqual(ended, [0, 1, 2, 3]);
});
