// The conformance suite on the npm package in a browser: the cases are held against what a page computes.

import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { chromium } from "playwright-core";
import { filesOf, runSuite } from "../../../uform-node/tests/conformance.mjs";
import { serve } from "./server.mjs";

const dist = fileURLToPath(new URL("../../../uform-node/dist/esm", import.meta.url));
const html = await readFile(new URL("page.html", import.meta.url), "utf8");

/** Runs in the page: the package, and what the suite asks of it. Bytes and errors cross as plain values. */
async function prepare() {
  const uform = await import("/index.js");
  await uform.init();
  const executor = uform.Executor.forRam();
  const bytes = (text) => Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  const plain = (call) => {
    try {
      return { value: call() };
    } catch ({ name, code, message }) {
      return { error: { name, code, message } };
    }
  };
  const models = [];
  globalThis.suite = {
    load: (files, precision) =>
      plain(() => {
        const named = Object.fromEntries(files.map(([name, text]) => [name, bytes(text)]));
        return models.push(uform.Model.loadRamFromBytes(named, { executor, precision })) - 1;
      }),
    tokenLimit: (model) => plain(() => models[model].describe().tokenLimit),
    tokenize: (model, text, options) => plain(() => models[model].tokenize(text, options)),
    embed: (model, texts, options) =>
      plain(() => {
        const { data, ...rest } = models[model].on(executor).embedTexts(texts, options);
        return { data: [...new Uint8Array(data.buffer, data.byteOffset, data.byteLength)], ...rest };
      }),
  };
  return { isolated: globalThis.crossOriginIsolated, available: uform.capabilitiesAvailable() };
}

/** The page, as the suite uses it. */
function there(page, end) {
  const ask = async (verb, ...values) => {
    const { value, error } = await page.evaluate(([verb, values]) => globalThis.suite[verb](...values), [verb, values]);
    if (error === undefined) return value;
    throw Object.assign(new Error(error.message), error);
  };
  return {
    async load(item) {
      const files = Object.entries(filesOf(item)).map(([name, data]) => [name, Buffer.from(data).toString("base64")]);
      const model = await ask("load", files, item.precision);
      return {
        tokenLimit: () => ask("tokenLimit", model),
        tokenize: (text, options) => ask("tokenize", model, text, options),
        async embed(texts, options) {
          const { data, ...rest } = await ask("embed", model, texts, options);
          return { data: Uint8Array.from(data), ...rest };
        },
      };
    },
    end,
  };
}

test("conformance", async (suite) => {
  const { address, server } = await serve(dist);
  const args = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"];
  const browser = await chromium.launch({ executablePath: "/usr/bin/chromium", args });
  const end = async () => {
    await browser.close();
    server.close();
  };
  // At once: a server that goes on listening would keep the process of a failing test alive.
  suite.after(end);
  const page = await browser.newPage();
  await page.route(`${address}/page.html`, (route) => route.fulfill({ contentType: "text/html", body: html }));
  await page.goto(`${address}/page.html`);
  assert.deepEqual(await page.evaluate(prepare), { isolated: false, available: "serial,wasm32-v128" });
  await runSuite(suite, there(page, () => {}), ({ path }) => path && "WebAssembly has no files");
});
