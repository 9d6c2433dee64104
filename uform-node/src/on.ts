import { embedLater, embedNow, type Embedder } from "./embed.js";
import type { Embeddings } from "./embeddings.js";
import type { Executor } from "./executor.js";
import type { Dtype, EmbedOptions } from "./generated.js";
import type { Model } from "./model.js";
import { withRole, type DeferredEmbedTextsOptions, type EmbedTextsOptions, type RoleOptions } from "./options.js";

/** The verbs of a model on an executor in their deferred form: each returns a promise and never blocks. */
export class OnDeferred {
  readonly #embedder: Embedder;
  readonly #executor: Executor;

  /** @internal */
  constructor(embedder: Embedder, executor: Executor) {
    this.#embedder = embedder;
    this.#executor = executor;
  }

  /**
   * Submits what `On.embedTexts` does. Rejects with "contended" when the executor tracks as many unfinished calls as
   * it may, and with the reason of the signal when that stops the call. The process stays alive until it has ended.
   */
  async embedTexts<Type extends Dtype = "f32">(
    texts: string | readonly string[],
    options: DeferredEmbedTextsOptions<Type> = {},
  ): Promise<Embeddings<Type>> {
    return embedLater(this.#embedder, this.#executor, texts, options);
  }

  /** `embedTexts` of texts to search with. Another role is "invalid-argument". */
  async embedQueries<Type extends Dtype = "f32">(
    texts: string | readonly string[],
    options: RoleOptions<DeferredEmbedTextsOptions<Type>> = {},
  ): Promise<Embeddings<Type>> {
    return embedLater(this.#embedder, this.#executor, texts, withRole("query", options));
  }

  /** `embedTexts` of texts to be found. Another role is "invalid-argument". */
  async embedDocuments<Type extends Dtype = "f32">(
    texts: string | readonly string[],
    options: RoleOptions<DeferredEmbedTextsOptions<Type>> = {},
  ): Promise<Embeddings<Type>> {
    return embedLater(this.#embedder, this.#executor, texts, withRole("document", options));
  }
}

/** A model on an executor: the verbs that compute. Owns nothing. */
export class On {
  /** The model. */
  readonly model: Model;
  /** The executor. */
  readonly executor: Executor;
  /** The same verbs in their deferred form. */
  readonly deferred: OnDeferred;

  /** @internal */
  constructor(model: Model, executor: Executor) {
    this.model = model;
    this.executor = executor;
    this.deferred = new OnDeferred(model, executor);
  }

  /**
   * Embeds texts, one row each; one string is one row. Waits for its turn on the executor, then computes on the
   * calling thread and those of the executor. A progress callback is called on this thread while the call runs; it
   * may not use the executor.
   */
  embedTexts<Type extends Dtype = "f32">(
    texts: string | readonly string[],
    options: EmbedTextsOptions<Type> = {},
  ): Embeddings<Type> {
    return embedNow(this.model, this.executor, texts, options);
  }

  /** `embedTexts` of texts to search with. Another role is "invalid-argument". */
  embedQueries<Type extends Dtype = "f32">(
    texts: string | readonly string[],
    options: RoleOptions<EmbedTextsOptions<Type>> = {},
  ): Embeddings<Type> {
    return embedNow(this.model, this.executor, texts, withRole("query", options));
  }

  /** `embedTexts` of texts to be found. Another role is "invalid-argument". */
  embedDocuments<Type extends Dtype = "f32">(
    texts: string | readonly string[],
    options: RoleOptions<EmbedTextsOptions<Type>> = {},
  ): Embeddings<Type> {
    return embedNow(this.model, this.executor, texts, withRole("document", options));
  }

  /** As `Model.plan`, on this executor. */
  plan(rows: number, tokens = 0, options: Omit<EmbedOptions, "progress"> = {}): number {
    return this.model.plan(rows, tokens, { ...options, executor: this.executor });
  }
}
