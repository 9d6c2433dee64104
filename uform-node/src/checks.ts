import { UFormError } from "./errors.js";

/** How a value reads in the sentence of an error. */
function shown(value: unknown): string {
  return typeof value === "string" ? JSON.stringify(value) : String(value);
}

/** Refuses an argument: `name` was to be `expected`. */
export function refuse(name: string, expected: string, found: unknown): never {
  throw new UFormError("invalid-argument", `${name}: expected ${expected}, found ${shown(found)}`);
}

/** A number of things: zero when absent, which everywhere means the default. */
export function count(name: string, value: number | undefined): number {
  if (value === undefined) return 0;
  if (!Number.isSafeInteger(value) || value < 0) refuse(name, "a whole number from zero on", value);
  return value;
}

/** A list of numbers that fit 32 bits with sign, like domains and device ordinals. */
export function ordinals(name: string, values: readonly number[] | undefined): number[] {
  if (values === undefined) return [];
  if (!Array.isArray(values)) refuse(name, "an array of whole numbers", values);
  for (const value of values) {
    if (!Number.isInteger(value) || value !== (value | 0)) refuse(name, "whole numbers of 32 bits", value);
  }
  return [...values];
}

/** The number of one of the names in `numbers`, or `fallback` when absent. */
export function numbered<Name extends string>(
  name: string,
  value: Name | undefined,
  numbers: Readonly<Record<Name, number>>,
  fallback: NoInfer<Name>,
): number {
  if (value === undefined) return numbers[fallback];
  if (typeof value !== "string" || !Object.hasOwn(numbers, value)) {
    refuse(name, `one of ${Object.keys(numbers).join(", ")}`, value);
  }
  return numbers[value];
}

/** A value of one type of the language, or nothing. */
export function optional<T>(
  name: string,
  value: T | undefined,
  type: "string" | "boolean" | "number" | "function",
): T | undefined {
  if (value !== undefined && typeof value !== type) refuse(name, `a ${type}`, value);
  return value;
}

/** Refuses options that do not exist, so that a misspelt one is not silently without effect. */
export function known(options: object, names: readonly string[]): void {
  if (options === null || typeof options !== "object") refuse("options", "an object", options);
  for (const name of Object.keys(options)) {
    if (!names.includes(name)) {
      throw new UFormError("invalid-argument", `there is no option ${shown(name)}; there are ${names.join(", ")}`);
    }
  }
}
