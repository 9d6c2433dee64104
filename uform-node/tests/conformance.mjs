// The conformance suite of all languages, wherever the package computes: tests/conformance/README.md says what a runner does.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { conformance } from "./paths.mjs";

const { models, cases } = JSON.parse(readFileSync(join(conformance, "cases.json"), "utf8"));
const caseKeys = ["name", "verb", "model", "precision", "path", "derive", "options", "reports", "texts", "expect"];
const expectKeys = [
  "status",
  "message_contains",
  "dimensions",
  "token_limit",
  "difference",
  "least_difference",
  "rows",
  "tokens",
];
const rowKeys = ["status", "tokens_found", "tokens_kept", "truncated", "vector"];
const deriveKeys = ["remove", "replace", "patch", "truncate"];
const optionNames = {
  role: "role",
  prompt_name: "promptName",
  prompt: "prompt",
  dimensions: "dimensions",
  token_limit: "tokenLimit",
  normalize: "normalize",
  length: "length",
  dtype: "dtype",
};

function onlyKeys(object, keys) {
  for (const key of Object.keys(object)) assert.ok(keys.includes(key), `unknown key ${key}`);
}

/** The files of a case's model, changed as it asks: what the README of the suite calls `derive`, in its order. */
export function filesOf({ model, derive = {} }) {
  onlyKeys(derive, deriveKeys);
  const { remove = [], replace = {}, patch = [], truncate = {} } = derive;
  const files = {};
  for (const file of models[model].files) {
    if (!remove.includes(file)) files[file] = readFileSync(join(conformance, "models", model, file));
  }
  for (const [file, text] of Object.entries(replace)) files[file] = Buffer.from(text, "utf8");
  for (const { file, offset, hex } of patch) Buffer.from(hex, "hex").copy(files[file], offset);
  for (const [file, length] of Object.entries(truncate)) files[file] = files[file].subarray(0, length);
  return files;
}

/**
 * The package in this process, as the suite uses it. A model comes from the bytes of its files, or, where there are files,
 * by its path unless the case changes it.
 */
export function here({ Executor, Model }, hasFiles) {
  const executor = Executor.forRam({ threads: 2 });
  const load = (item) => {
    const options = { executor, precision: item.precision };
    if (!hasFiles || item.derive !== undefined) return Model.loadRamFromBytes(filesOf(item), options);
    const folder = join(conformance, "models", item.model);
    return Model.loadRam(item.path === undefined ? folder : join(folder, item.path), options);
  };
  return {
    load(item) {
      const model = load(item);
      return {
        tokenLimit: () => model.describe().tokenLimit,
        tokenize: (text, options) => model.tokenize(text, options),
        embed: (texts, options) => model.on(executor).embedTexts(texts, options),
      };
    },
    end: () => executor.free(),
  };
}

const statusOf = (name) => name.replace(/^STATUS_/, "").toLowerCase().replaceAll("_", "-");

/** Calls, and compares the status with the expected one. Answers what came out if the call was to succeed. */
async function expecting(expect, call) {
  const status = statusOf(expect.status ?? "OK");
  if (status === "ok") return call();
  await assert.rejects(async () => call(), (error) => {
    assert.equal(error.name, "UFormError");
    assert.equal(error.code, status, error.message);
    for (const part of expect.message_contains ?? []) assert.ok(error.message.includes(part), error.message);
    return true;
  });
  return undefined;
}

/** The elements of a row as numbers that may be compared with a difference: f32 as they are, others without decoding. */
function elements(dtype, bytes) {
  const copy = new Uint8Array(bytes).buffer;
  if (dtype === "f32") return new Float32Array(copy);
  if (dtype === "f16" || dtype === "bf16") return new Uint16Array(copy);
  return dtype === "i8" ? new Int8Array(copy) : new Uint8Array(copy);
}

function rowBytes({ data, rows }, row) {
  const length = data.byteLength / rows;
  return Buffer.from(data.buffer, data.byteOffset + row * length, length);
}

/** Answers the largest difference of an element, which is at most the one given. */
function compareRow(result, row, expected, difference) {
  onlyKeys(expected, rowKeys);
  const report = result.reports[row];
  assert.equal(report.status, statusOf(expected.status ?? "OK"));
  if (expected.tokens_found !== undefined) assert.equal(report.tokensFound, expected.tokens_found);
  if (expected.tokens_kept !== undefined) assert.equal(report.tokensKept, expected.tokens_kept);
  if (expected.truncated !== undefined) assert.equal(report.truncated, expected.truncated);
  const bytes = rowBytes(result, row);
  const found = elements(result.dtype, bytes);
  if (report.status !== "ok") {
    if (result.dtype === "f32") assert.ok(found.every(Number.isNaN), "a bad row is NaN");
    return 0;
  }
  if (expected.vector === undefined) return 0;
  const wanted = elements(result.dtype, Buffer.from(expected.vector, "hex"));
  assert.equal(found.length, wanted.length);
  if (result.dtype === "b1") {
    assert.deepEqual(found, wanted);
    return 0;
  }
  let largest = 0;
  for (const [index, value] of wanted.entries()) {
    const far = Math.abs(found[index] - value);
    assert.ok(far <= difference, `row ${row}, element ${index}: ${found[index]} is ${far} from ${value}`);
    largest = Math.max(largest, far);
  }
  return largest;
}

function callOptions(item) {
  const options = { reports: item.reports !== false };
  for (const [name, value] of Object.entries(item.options ?? {})) {
    assert.ok(name in optionNames, `unknown option ${name}`);
    options[optionNames[name]] = value;
  }
  return options;
}

async function runEmbed(item, model) {
  const { expect, texts } = item;
  const options = callOptions(item);
  const result = await expecting(expect, () => model.embed(texts, options));
  if (result === undefined) return;
  if (expect.dimensions !== undefined) assert.equal(result.dimensions, expect.dimensions);
  if (expect.token_limit !== undefined) assert.equal(await model.tokenLimit(), expect.token_limit);
  assert.equal(result.rows, texts.length);
  let largest = 0;
  for (const [row, expected] of (expect.rows ?? []).entries()) {
    largest = Math.max(largest, compareRow(result, row, expected, expect.difference));
  }
  const least = expect.least_difference ?? 0;
  assert.ok(largest >= least, `the vectors differ by ${largest}, less than ${least}`);
  for (const [row, text] of texts.entries()) {
    const alone = await model.embed(text, options);
    assert.ok(rowBytes(alone, 0).equals(rowBytes(result, row)), `row ${row} alone has other bits`);
  }
}

async function runTokenize(item, model) {
  const { reports: _, ...options } = callOptions(item);
  for (const [index, text] of item.texts.entries()) {
    const tokens = await expecting(item.expect, () => model.tokenize(text, options));
    if (tokens === undefined) continue;
    const wanted = item.expect.tokens[index];
    const found = tokens.map(({ id, begin, end, special }, at) => [
      id,
      begin,
      end,
      wanted[at]?.[3] === null ? null : special,
    ]);
    assert.deepEqual(found, wanted, JSON.stringify(text));
  }
}

/** Runs every case as a test of its own below `suite`, on what `here` returns. `skipped` says why a case is left out. */
export async function runSuite(suite, place, skipped = () => undefined) {
  suite.after(() => place.end());
  const counts = { passed: 0, failed: 0, skipped: 0 };
  for (const item of cases) {
    await suite.test(item.name, async (context) => {
      onlyKeys(item, caseKeys);
      onlyKeys(item.expect, expectKeys);
      const texts = item.texts?.some((text) => typeof text !== "string");
      const reason = texts ? "strings of this language are always text" : skipped(item);
      if (reason !== undefined) {
        counts.skipped += 1;
        return context.skip(reason);
      }
      counts.failed += 1;
      if (item.verb === "load") await expecting(item.expect, () => place.load(item));
      else if (item.verb === "embed") await runEmbed(item, await place.load(item));
      else if (item.verb === "tokenize") await runTokenize(item, await place.load(item));
      else assert.fail(`unknown verb ${item.verb}`);
      counts.failed -= 1;
      counts.passed += 1;
    });
  }
  console.log(`${counts.passed} passed, ${counts.failed} failed, ${counts.skipped} skipped`);
}
