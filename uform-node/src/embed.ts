import type { ArenaMatrix } from "./arena.js";
import type { CompiledModel } from "./backend.js";
import { refuse } from "./checks.js";
import { settle, watched } from "./deferred.js";
import { bytesOf, dataOver, elementBytes, rowElements, type DataOf, type Embeddings } from "./embeddings.js";
import { UFormError } from "./errors.js";
import type { Executor } from "./executor.js";
import type { Dtype, Report } from "./generated.js";
import {
  deferredEmbedTextsNames,
  embedSettings,
  embedTextsNames,
  type DeferredEmbedTextsOptions,
  type EmbedTextsOptions,
} from "./options.js";

/** A model with what this layer keeps of its description. */
export interface Embedder {
  readonly compiled: CompiledModel;
  readonly dimensions: number;
  readonly allDimensions: number;
}

/** One text is one row. */
function rowsOf(texts: string | readonly string[]): string[] {
  if (typeof texts === "string") return [texts];
  if (!Array.isArray(texts)) refuse("texts", "a string or an array of strings", texts);
  const wrong = texts.findIndex((text) => typeof text !== "string");
  if (wrong >= 0) refuse(`texts[${wrong}]`, "a string", texts[wrong]);
  return texts as string[];
}

/** Where the vectors of one call go. */
interface Destination<Type extends Dtype> {
  readonly dtype: Type;
  readonly dimensions: number;
  readonly matrix: ArenaMatrix<Type> | undefined;
  readonly data: DataOf<Type> | undefined;
}

function destination<Type extends Dtype>(
  embedder: Embedder,
  rows: number,
  options: EmbedTextsOptions<Type>,
): Destination<Type> {
  const { into } = options;
  const dimensions = options.dimensions || embedder.dimensions;
  if (dimensions > embedder.allDimensions) {
    throw new UFormError(
      "invalid-argument",
      `dimensions: the model has ${embedder.allDimensions}, and ${dimensions} were asked for`,
    );
  }
  if (into !== undefined && "compiled" in into) {
    const { dtype } = into;
    if (options.dtype !== undefined && options.dtype !== dtype) refuse("into", `a matrix of ${options.dtype}`, dtype);
    return { dtype, dimensions, matrix: into, data: undefined };
  }
  const dtype = options.dtype ?? ("f32" as Type);
  if (into === undefined) return { dtype, dimensions, matrix: undefined, data: undefined };
  const wanted = dataOver(dtype, new ArrayBuffer(0));
  const elements = rows * rowElements(dtype, dimensions);
  if (Object.getPrototypeOf(into) !== Object.getPrototypeOf(wanted) || !(into.buffer instanceof ArrayBuffer)) {
    refuse("into", `a matrix of an arena or a ${wanted.constructor.name} of its own memory`, into);
  }
  if (into.length !== elements) refuse("into", `${elements} elements`, into.length);
  return { dtype, dimensions, matrix: undefined, data: into };
}

function newData<Type extends Dtype>(dtype: Type, elements: number): DataOf<Type> {
  const bytes = elements * elementBytes(dtype);
  try {
    return dataOver(dtype, new ArrayBuffer(bytes));
  } catch {
    throw new UFormError("out-of-memory", `no memory for an output of ${bytes} bytes`);
  }
}

function embeddings<Type extends Dtype>(
  { dtype, dimensions, matrix }: Destination<Type>,
  rows: number,
  data: DataOf<Type> | undefined,
  reports: Report[] | null | undefined,
): Embeddings<Type> {
  const shared = { rows, dimensions, dtype, ...(reports ? { reports } : {}) };
  if (matrix === undefined) {
    return { data: data as DataOf<Type>, ...shared, rowStride: rowElements(dtype, dimensions) };
  }
  return {
    get data() {
      return matrix.data;
    },
    ...shared,
    rowStride: matrix.rowStride,
  };
}

/** Copies the vectors into the caller's array, which other code may have shrunk or transferred during the call. */
function fill<Type extends Dtype>(into: DataOf<Type>, vectors: DataOf<Type>): void {
  if (into.length !== vectors.length) refuse("into", `${vectors.length} elements still, after the call`, into.length);
  // Even so a transferred array would refuse to be filled with nothing.
  if (vectors.length > 0) into.set(vectors as never);
}

/** Embeds at once, on the calling thread and those of the executor. Engine memory is filled in place. */
export function embedNow<Type extends Dtype>(
  embedder: Embedder,
  executor: Executor | null,
  texts: string | readonly string[],
  options: EmbedTextsOptions<Type>,
): Embeddings<Type> {
  const list = rowsOf(texts);
  const to = destination(embedder, list.length, options);
  const settings = embedSettings({ ...options, dtype: to.dtype }, embedTextsNames);
  const { progress } = options;
  const handle = executor?.compiled ?? null;
  if (to.matrix !== undefined) {
    const matrix = to.matrix.compiled;
    const reports = watched(progress, (answer) =>
      embedder.compiled.embedIntoMatrix(handle, list, settings, matrix, answer),
    );
    return embeddings(to, list.length, undefined, reports);
  }
  // A progress callback could take the caller's memory away while kernels write there, so they do not write there.
  const apart = to.data === undefined || progress !== undefined;
  const written = apart ? newData(to.dtype, list.length * rowElements(to.dtype, to.dimensions)) : to.data;
  const reports = watched(progress, (answer) =>
    embedder.compiled.embed(handle, list, settings, bytesOf(written as ArrayBufferView<ArrayBuffer>), answer),
  );
  if (apart && to.data !== undefined) fill(to.data, written as DataOf<Type>);
  return embeddings(to, list.length, to.data ?? written, reports);
}

/** Submits the call and returns at once. It fills memory of the backend, which is copied once at the end. */
export async function embedLater<Type extends Dtype>(
  embedder: Embedder,
  executor: Executor,
  texts: string | readonly string[],
  options: DeferredEmbedTextsOptions<Type>,
): Promise<Embeddings<Type>> {
  const { signal, ...rest } = options;
  const list = rowsOf(texts);
  const to = destination(embedder, list.length, rest);
  const settings = embedSettings({ ...rest, dtype: to.dtype }, deferredEmbedTextsNames);
  const matrix = to.matrix?.compiled ?? null;
  const watch = rest.progress !== undefined;
  return settle(
    { signal, progress: rest.progress },
    (notice) => embedder.compiled.embedDeferred(executor.compiled, list, settings, matrix, watch, notice),
    ({ data, rows, reports }) => {
      const fresh = data === undefined ? undefined : dataOver(to.dtype, data);
      if (to.data !== undefined && fresh !== undefined) fill(to.data, fresh);
      return embeddings(to, rows, to.data ?? fresh, reports);
    },
  );
}
