import { backend, type CompiledFile, type CompiledModel } from "./backend.js";
import { count, ordinals, refuse } from "./checks.js";
import { settle, watched } from "./deferred.js";
import { embedNow } from "./embed.js";
import type { Embeddings } from "./embeddings.js";
import { compiled, UFormError } from "./errors.js";
import type { Executor } from "./executor.js";
import type { Dtype, EmbedOptions, ModelDescription, PackOptions, Token } from "./generated.js";
import { On } from "./on.js";
import {
  deferredLoadNames,
  embedNames,
  embedSettings,
  loadNames,
  loadSettings,
  loadVramNames,
  packSettings,
  planNames,
  withRole,
  type DeferredLoadOptions,
  type EmbedTextsOptions,
  type LoadRamOptions,
  type LoadVramOptions,
  type PlanOptions,
  type RoleOptions,
} from "./options.js";

/** The files of a model's directory: their bytes by path inside it, with forward slashes, like "1_Pooling/config.json". */
export type ModelFiles = Readonly<Record<string, Uint8Array>> | ReadonlyMap<string, Uint8Array>;

/** A plain object that names a model to other threads of this process. It owns nothing; see `Model.share`. */
export interface ModelToken {
  readonly uformModel: string;
}

function pathOf(path: string): string {
  if (typeof path !== "string") refuse("path", "a string", path);
  return path;
}

function filesOf(files: ModelFiles): CompiledFile[] {
  const entries = files instanceof Map ? [...files] : Object.entries(files);
  return entries.map(([name, data]) => {
    if (!(data instanceof Uint8Array)) refuse(`files[${JSON.stringify(name)}]`, "a Uint8Array", data);
    return { name, data };
  });
}

/** The weights, tokenizer and configuration of a model: immutable once loaded, and shared by its clones. */
export class Model implements Disposable {
  /** The backend's handle. */
  readonly compiled: CompiledModel;
  /** Dimensions of a row unless the options say otherwise. */
  readonly dimensions: number;
  /** The most dimensions of a row. */
  readonly allDimensions: number;

  private constructor(handle: CompiledModel) {
    this.compiled = handle;
    const { dimensions, defaultDimensions } = compiled(() => handle.describe());
    this.dimensions = defaultDimensions;
    this.allDimensions = dimensions;
  }

  /**
   * Loads a model into RAM. `path` names a directory in the layout of sentence-transformers or Hugging Face, a
   * `model.safetensors` inside one, a file made by `Model.pack`, or a model in the local Hugging Face cache; nothing is ever
   * downloaded. Throws "not-found", "io", "corrupt-data" or "unsupported" with the file, and the key in it, that was the reason.
   */
  static loadRam(path: string, options: LoadRamOptions = {}): Model {
    const settings = loadSettings(options, loadNames);
    const executor = options.executor?.compiled ?? null;
    return new Model(watched(options.progress, (answer) => backend.loadRam(pathOf(path), executor, settings, answer)));
  }

  /**
   * Loads a model into RAM from the bytes of its files, or of one file made by `Model.pack` under any name that ends in
   * ".safetensors". They are not kept.
   */
  static loadRamFromBytes(files: ModelFiles, options: LoadRamOptions = {}): Model {
    const settings = loadSettings(options, loadNames);
    const executor = options.executor?.compiled ?? null;
    const list = filesOf(files);
    return new Model(watched(options.progress, (answer) => backend.loadRamFromBytes(list, executor, settings, answer)));
  }

  /** Would load a model into the memory of GPUs. Throws "unsupported" until GPUs compute here. */
  static loadVram(path: string, options: LoadVramOptions = {}): Model {
    const settings = loadSettings(options, loadVramNames);
    const executor = options.executor?.compiled ?? null;
    const devices = ordinals("devices", options.devices);
    return new Model(
      watched(options.progress, (answer) => backend.loadVram(pathOf(path), executor, devices, settings, answer)),
    );
  }

  /**
   * Writes the model that `path` names for `loadRam` as one file, whose name ends in ".safetensors": weights in the chosen
   * precision, configuration, tokenizer and pooling. `loadRam` and `loadRamFromBytes` load it as the same model in that
   * precision, to the bit. The file appears at its destination when it is whole.
   */
  static pack(path: string, destination: string, options: PackOptions = {}): void {
    const settings = packSettings(options);
    if (typeof destination !== "string") refuse("destination", "a string", destination);
    compiled(() => backend.pack(pathOf(path), destination, settings));
  }

  /**
   * Loading in its deferred form: on a thread of its own, never blocking this one. An executor that lends its threads
   * belongs to the load from this call until its end, and answers "contended" to others meanwhile; the load itself waits
   * for its turn, after the call that is running and the loads before it.
   */
  static readonly deferred = {
    /** As `Model.loadRam`. */
    async loadRam(path: string, options: DeferredLoadOptions = {}): Promise<Model> {
      const settings = loadSettings(options, deferredLoadNames);
      const executor = options.executor?.compiled ?? null;
      const watch = options.progress !== undefined;
      return settle(
        options,
        (notice) => backend.loadRamDeferred(pathOf(path), executor, settings, watch, notice),
        (handle) => new Model(handle),
      );
    },

    /** As `Model.loadRamFromBytes`; the files are copied first, as this thread may change them meanwhile. */
    async loadRamFromBytes(files: ModelFiles, options: DeferredLoadOptions = {}): Promise<Model> {
      const settings = loadSettings(options, deferredLoadNames);
      const executor = options.executor?.compiled ?? null;
      const watch = options.progress !== undefined;
      const list = filesOf(files);
      return settle(
        options,
        (notice) => backend.loadRamFromBytesDeferred(list, executor, settings, watch, notice),
        (handle) => new Model(handle),
      );
    },
  };

  /**
   * Opens a model that another thread of this process shares. Throws "not-found" when no handle of it is alive any
   * more, or when the token comes from another process.
   */
  static open(token: ModelToken): Model {
    const key = Object(token).uformModel as unknown;
    if (typeof key !== "string") throw new UFormError("invalid-argument", "token: expected what Model.share returned");
    return new Model(compiled(() => backend.openShared(key)));
  }

  /** What the model is. */
  describe(): ModelDescription {
    return compiled(() => this.compiled.describe());
  }

  /**
   * Splits a text into the tokens that the model reads: after the prompt that the options choose, cut at their limit.
   * With `length: "refuse"`, a text above the limit throws "invalid-argument".
   */
  tokenize(text: string, options: Omit<EmbedOptions, "progress"> = {}): Token[] {
    if (typeof text !== "string") refuse("text", "a string", text);
    const settings = embedSettings(options, embedNames);
    return compiled(() => this.compiled.tokenize(text, settings));
  }

  /**
   * The most bytes that a call may need besides inputs, outputs and weights: `rows` texts of up to `tokens` tokens
   * each, special ones included. Zero tokens are the model's limit.
   */
  plan(rows: number, tokens = 0, options: PlanOptions = {}): number {
    const settings = embedSettings(options, planNames);
    const executor = options.executor?.compiled ?? null;
    return compiled(() => this.compiled.plan(executor, count("rows", rows), count("tokens", tokens), settings));
  }

  /** Another handle to the same weights. */
  clone(): Model {
    return new Model(compiled(() => this.compiled.clone()));
  }

  /**
   * A token that other threads of this process open with `Model.open`; it crosses by `postMessage` or as worker data.
   * It owns nothing and needs no freeing: it opens while at least one handle of the model is alive on any thread, so
   * keep this one until the other thread has opened its own. The weights go with the last handle.
   */
  share(): ModelToken {
    return { uformModel: compiled(() => this.compiled.share()) };
  }

  /** The verbs that compute, on an executor. */
  on(executor: Executor): On {
    if (Object(executor).compiled === undefined) refuse("executor", "an Executor", executor);
    return new On(this, executor);
  }

  /** As `On.embedTexts`, on the calling thread alone. */
  embedTexts<Type extends Dtype = "f32">(
    texts: string | readonly string[],
    options: EmbedTextsOptions<Type> = {},
  ): Embeddings<Type> {
    return embedNow(this, null, texts, options);
  }

  /** `embedTexts` of texts to search with. Another role is "invalid-argument". */
  embedQueries<Type extends Dtype = "f32">(
    texts: string | readonly string[],
    options: RoleOptions<EmbedTextsOptions<Type>> = {},
  ): Embeddings<Type> {
    return embedNow(this, null, texts, withRole("query", options));
  }

  /** `embedTexts` of texts to be found. Another role is "invalid-argument". */
  embedDocuments<Type extends Dtype = "f32">(
    texts: string | readonly string[],
    options: RoleOptions<EmbedTextsOptions<Type>> = {},
  ): Embeddings<Type> {
    return embedNow(this, null, texts, withRole("document", options));
  }

  /** Ends this handle. The weights go with the last handle and the last deferred call. A second call does nothing. */
  free(): void {
    compiled(() => this.compiled.free());
  }

  /** Frees the handle at the end of a `using` block. */
  [Symbol.dispose](): void {
    this.free();
  }
}
