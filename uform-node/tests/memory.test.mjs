// That nothing grows: what was forgotten is collected, and a thousand calls leave no more behind than one.

import assert from "node:assert/strict";
import { readdirSync } from "node:fs";
import { test } from "node:test";
import { Executor, Model } from "uform";
import { realModel, someTexts, tiny } from "./paths.mjs";

const pause = (milliseconds) => new Promise((resolve) => setTimeout(resolve, milliseconds));

async function collect() {
  for (let round = 0; round < 5; round += 1) {
    globalThis.gc();
    await pause(10);
  }
}

/** Threads of this process, where the system tells. */
const threads = () => (process.platform === "linux" ? readdirSync("/proc/self/task").length : undefined);

test("collected executors take their threads with them", { skip: threads() === undefined }, async () => {
  await collect();
  const before = threads();
  (() => {
    for (let made = 0; made < 20; made += 1) Executor.forRam({ threads: 3 }).describe();
  })();
  assert.ok(threads() > before);
  for (let round = 0; round < 100 && threads() > before; round += 1) await collect();
  assert.ok(threads() <= before, `${threads()} threads, ${before} before`);
});

test("the promises of a collected executor resolve", async () => {
  const model = Model.loadRam(tiny());
  const texts = someTexts(500);
  const pending = (() => {
    const executor = Executor.forRam({ threads: 1 });
    return [1, 2, 3].map(() => model.on(executor).deferred.embedTexts(texts));
  })();
  await collect();
  for (const { rows } of await Promise.all(pending)) assert.equal(rows, 500);
  model.free();
});

test("memory is stable over a thousand calls and more", async () => {
  const executor = Executor.forRam({ threads: 2 });
  const model = Model.loadRam(tiny(), { executor });
  const on = model.on(executor);
  const texts = someTexts(12);
  const round = async (calls) => {
    for (let call = 0; call < calls; call += 1) {
      on.embedTexts(texts, { reports: true });
      await on.deferred.embedTexts(texts);
      model.embedTexts(texts.slice(0, 4));
      model.tokenize(texts[1]);
      model.clone();
    }
    await collect();
  };
  await round(200);
  const before = process.memoryUsage();
  await round(400);
  const { rss, external, arrayBuffers } = process.memoryUsage();
  assert.ok(rss < before.rss * 1.05 + (4 << 20), `${before.rss} bytes before, ${rss} after`);
  assert.ok(arrayBuffers < before.arrayBuffers + (1 << 20), `${before.arrayBuffers} before, ${arrayBuffers} after`);
  assert.ok(external < before.external + (1 << 20), `${before.external} before, ${external} after`);
  executor.free();
  model.free();
});

test("models that come and go leave nothing", async () => {
  const round = async (loads) => {
    for (let load = 0; load < loads; load += 1) {
      Model.loadRam(tiny());
      if (load % 20 === 19) await collect();
    }
  };
  await round(100);
  const before = process.memoryUsage().rss;
  await round(400);
  const after = process.memoryUsage().rss;
  assert.ok(after < before * 1.1 + (8 << 20), `${before} bytes before, ${after} after`);
});

test("the collector knows the weight of a forgotten model", { skip: realModel === undefined && "no real model here" }, async () => {
  const peak = { rss: 0 };
  const first = Model.loadRam(realModel);
  const { weightBytes } = first.describe();
  first.free();
  const before = process.memoryUsage().rss;
  for (let load = 0; load < 12; load += 1) {
    Model.loadRam(realModel);
    await pause(20);
    peak.rss = Math.max(peak.rss, process.memoryUsage().rss);
  }
  assert.ok(peak.rss < before + 6 * weightBytes, `${peak.rss} bytes at the most, ${before} before`);
});
