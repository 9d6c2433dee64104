import type { ArenaMatrix } from "./arena.js";
import type { EmbedSettings, LoadSettings, PackSettings } from "./backend.js";
import { count, known, numbered, optional, ordinals, refuse } from "./checks.js";
import type { DataOf } from "./embeddings.js";
import type { Executor } from "./executor.js";
import { UFormError } from "./errors.js";
import {
  dtypeNumbers,
  layoutNumbers,
  lengthNumbers,
  normalizeNumbers,
  precisionNumbers,
  readingNumbers,
  roleNumbers,
  type Dtype,
  type EmbedOptions,
  type Layout,
  type LoadOptions,
  type PackOptions,
  type Precision,
  type Role,
} from "./generated.js";

/** How a model is loaded into RAM, and on whose threads. */
export interface LoadRamOptions extends LoadOptions {
  /** Lends its threads for loading and is not kept; without one the calling thread loads. */
  executor?: Executor;
}

/** How a model would be loaded into VRAM. */
export interface LoadVramOptions extends LoadRamOptions {
  /** Ordinals of the devices, which are positions in `gpuDevices()`; those of the executor by default. */
  devices?: number[];
}

/** How a model is loaded by a deferred call. */
export interface DeferredLoadOptions extends LoadRamOptions {
  /** Stops the call; its promise is rejected with the reason. */
  signal?: AbortSignal;
}

/** How texts are embedded, and where the vectors go. */
export interface EmbedTextsOptions<Type extends Dtype = "f32"> extends EmbedOptions {
  /** The type of the elements; that of `into` if it is a matrix, else "f32". */
  dtype?: Type;
  /** Asks for a report per row. Bad rows are then reported, each by its status, and do not fail the call. */
  reports?: boolean;
  /** Where the vectors go: a matrix of an arena, or a typed array with room for exactly them. */
  into?: ArenaMatrix<Type> | DataOf<Type>;
}

/** How texts are embedded by a verb whose name says their role. */
export type RoleOptions<Options> = Omit<Options, "role"> & {
  /** Not to be given: another role than that of the verb is refused. */
  role?: never;
};

/** How texts are embedded by a deferred call. */
export interface DeferredEmbedTextsOptions<Type extends Dtype = "f32"> extends EmbedTextsOptions<Type> {
  /** Stops the call before its start or at the next block of tokens; its promise is rejected with the reason. */
  signal?: AbortSignal;
}

/** How the memory of an embedding call is planned. */
export interface PlanOptions extends Omit<EmbedOptions, "progress"> {
  /** The executor that would run the call; without one, the calling thread. */
  executor?: Executor;
}

/** The names of the options of `loadRam`. An option that a verb does not have would be without effect there. */
export const loadNames = ["executor", "precision", "reading", "memoryDomains", "cpuClass", "progress"];

/** The names of the options of `loadVram`. */
export const loadVramNames = [...loadNames, "devices"];

/** The names of the options of deferred loads. */
export const deferredLoadNames = [...loadNames, "signal"];

/** The names of the options of `tokenize`, which every use of embed options knows. */
export const embedNames = [
  "role",
  "normalize",
  "length",
  "reproducible",
  "promptName",
  "prompt",
  "dimensions",
  "tokenLimit",
  "tokenBudget",
  "outputScale",
];

/** The names of the options of `plan`. */
export const planNames = [...embedNames, "executor"];

/** The names of the options of verbs that compute at once. */
export const embedTextsNames = [...embedNames, "progress", "dtype", "reports", "into"];

/** The names of the options of verbs that compute later. */
export const deferredEmbedTextsNames = [...embedTextsNames, "signal"];

/** The options of a verb whose name says the role. Another role among them contradicts it. */
export function withRole<Options>(role: Role, options: RoleOptions<Options>): Options & { role: Role } {
  if (options === null || typeof options !== "object") refuse("options", "an object", options);
  const given: unknown = options.role;
  if (given !== undefined && given !== role) refuse("role", `none, or "${role}" as the verb says`, given);
  return { ...options, role } as Options & { role: Role };
}

/** Checks load options, which may have only the names given, and puts them into the backend's form. */
export function loadSettings(
  options: LoadVramOptions & DeferredLoadOptions,
  names: readonly string[],
): LoadSettings {
  known(options, names);
  optional("progress", options.progress, "function");
  return {
    precision: numbered("precision", options.precision, precisionNumbers, "auto"),
    reading: numbered("reading", options.reading, readingNumbers, "sequential"),
    cpuClass: optional("cpuClass", options.cpuClass, "string"),
    memoryDomains: ordinals("memoryDomains", options.memoryDomains),
  };
}

/** Checks pack options and puts them into the backend's form. */
export function packSettings(options: PackOptions): PackSettings {
  known(options, ["precision", "layout"]);
  return {
    precision: numbered<Precision>("precision", options.precision, precisionNumbers, "auto"),
    layout: numbered<Layout>("layout", options.layout, layoutNumbers, "portable"),
  };
}

/** Checks embed options, which may have only the names given, and puts them into the backend's form. */
export function embedSettings(options: EmbedTextsOptions<Dtype>, names: readonly string[]): EmbedSettings {
  known(options, names);
  optional("progress", options.progress, "function");
  const outputScale = optional("outputScale", options.outputScale, "number") ?? 0;
  const { promptName, prompt } = options;
  if (promptName !== undefined && prompt !== undefined) {
    throw new UFormError("invalid-argument", "promptName and prompt exclude each other; both are given");
  }
  return {
    role: numbered("role", options.role, roleNumbers, "as-given"),
    normalize: numbered("normalize", options.normalize, normalizeNumbers, "model"),
    length: numbered("length", options.length, lengthNumbers, "truncate"),
    reproducible: optional("reproducible", options.reproducible, "boolean") ?? false,
    promptName: optional("promptName", promptName, "string"),
    prompt: optional("prompt", prompt, "string"),
    dimensions: count("dimensions", options.dimensions),
    tokenLimit: count("tokenLimit", options.tokenLimit),
    tokenBudget: count("tokenBudget", options.tokenBudget),
    outputScale,
    dtype: numbered<Dtype>("dtype", options.dtype, dtypeNumbers, "f32"),
    reports: optional("reports", options.reports, "boolean") ?? false,
  };
}
