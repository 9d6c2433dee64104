// Where the tests find models.

import { existsSync } from "node:fs";
import { homedir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

const cases = fileURLToPath(new URL("../../tests/conformance/", import.meta.url));

/** The folder of the conformance suite. */
export const conformance = cases;

/** A tiny model of the conformance suite. */
export const tiny = (name = "bert-mean") => join(cases, "models", name);

/** A real model, where this machine has it. Whoever says where it is, by a variable, must have it there. */
export const realModel = (() => {
  const { UFORM_TEST_MODEL: named, UFORM_CACHE: cache } = process.env;
  const path = named || join(cache || join(homedir(), ".cache/uform"), "models/all-MiniLM-L6-v2");
  if (existsSync(path)) return path;
  if (named || cache) throw new Error(`the model of the tests is not there: ${path}`);
  return undefined;
})();

/** Texts of many lengths, so many of them. */
export function someTexts(count) {
  const words = "the cat and dog see a house at night while one man or two women walk home".split(" ");
  return Array.from({ length: count }, (_, row) =>
    Array.from({ length: 1 + ((row * 7) % 40) }, (_, word) => words[(row * 5 + word * 3) % words.length]).join(" "),
  );
}

/** A load that takes about a second for tiny models, so that calls are seen while they run. */
export const manyTexts = someTexts(20_000);
