import addon from "#backend";
import type {
  ArenaDescription,
  CpuClass,
  ExecutorDescription,
  GpuDevice,
  ModelDescription,
  Report,
  Token,
} from "./generated.js";

/*
 * What this layer needs of a compiled backend. The addon of Node is one and the module of WebAssembly another; the
 * conditions of the package choose.
 * Enumerations cross as their numbers in the C interface, zero counts and absent texts mean defaults, and a failure
 * is an error with the name of its status in `code`. Handles free what they hold when `free` is called, or when they
 * are collected; a second `free` does nothing.
 */

/** Load options as they cross to the backend. */
export interface LoadSettings {
  precision: number;
  reading: number;
  cpuClass?: string | undefined;
  memoryDomains: number[];
}

/** Pack options as they cross to the backend. */
export interface PackSettings {
  precision: number;
  layout: number;
}

/** Embed options as they cross to the backend. */
export interface EmbedSettings {
  role: number;
  normalize: number;
  length: number;
  reproducible: boolean;
  promptName?: string | undefined;
  prompt?: string | undefined;
  dimensions: number;
  tokenLimit: number;
  tokenBudget: number;
  outputScale: number;
  dtype: number;
  reports: boolean;
}

/** Told, on the thread of JavaScript, of the work done and all of it. An answer of `false` stops the call. */
export type CompiledProgress = (done: number, total: number) => boolean;

/**
 * Told, on the thread of JavaScript, of progress with both numbers, and without them once the call has ended. A backend that
 * computes while a call is submitted stops where the answer is `false`, as there is nothing yet to be cancelled.
 */
export type CompiledNotice = (done?: number | null, total?: number | null) => boolean;

/** What a deferred embedding call yields: `data` unless it wrote into a matrix, `reports` where they were wanted. */
export interface CompiledRows {
  data?: ArrayBuffer | undefined;
  rows: number;
  dimensions: number;
  reports?: Report[] | undefined;
}

/** A deferred call of a backend. */
export interface CompiledCall<Result> {
  /** Asks the call to stop; its notice comes all the same. */
  cancel(): void;
  /** The outcome, once, after the notice of the end; throws if the call failed. */
  result(): Result;
}

/** The backend's handle of an executor. */
export interface CompiledExecutor {
  drain(mood: number): void;
  describe(): ExecutorDescription;
  trim(): void;
  free(): void;
}

/** The backend's handle of a matrix in an arena. */
export interface CompiledMatrix {
  readonly rows: number;
  readonly columns: number;
  /** Bytes from the start of one row to the start of the next. */
  readonly rowStride: number;
  /** Whether `view` copies, where the memory cannot be shown. */
  readonly copies?: boolean;
  /** The memory of the matrix itself, called once; or a copy of it, as often as it is called. */
  view(): ArrayBuffer;
  /** Copies the rows without gaps. */
  copy(target: Uint8Array): void;
  /** Ends the matrix, detaching its view. */
  free(view?: ArrayBuffer): void;
}

/** The backend's handle of an arena. */
export interface CompiledArena {
  allocate(rows: number, columns: number, dtype: number): CompiledMatrix;
  reset(): void;
  describe(): ArenaDescription;
  free(): void;
}

/** The backend's handle of a model. */
export interface CompiledModel {
  describe(): ModelDescription;
  tokenize(text: string, settings: EmbedSettings): Token[];
  plan(executor: CompiledExecutor | null, rows: number, tokens: number, settings: EmbedSettings): number;
  clone(): CompiledModel;
  /** A key that `openShared` takes on any thread of this process while a handle of the model is alive. */
  share(): string;
  free(): void;
  /** Embeds into memory without gaps, on the calling thread and the threads of the executor. */
  embed(
    executor: CompiledExecutor | null,
    texts: string[],
    settings: EmbedSettings,
    output: Uint8Array,
    progress?: CompiledProgress,
  ): Report[] | null;
  embedIntoMatrix(
    executor: CompiledExecutor | null,
    texts: string[],
    settings: EmbedSettings,
    output: CompiledMatrix,
    progress?: CompiledProgress,
  ): Report[] | null;
  /** Submits the call, which owns its memory unless `matrix` is given, and returns at once. */
  embedDeferred(
    executor: CompiledExecutor,
    texts: string[],
    settings: EmbedSettings,
    matrix: CompiledMatrix | null,
    progress: boolean,
    notice: CompiledNotice,
  ): CompiledCall<CompiledRows>;
}

/** A file of a model in memory. */
export interface CompiledFile {
  name: string;
  data: Uint8Array;
}

/** Where the module of WebAssembly is: its address, or its bytes. */
export type ModuleSource = string | URL | ArrayBuffer | ArrayBufferView;

/** A compiled backend. */
export interface Backend {
  /** Makes it ready, also again after it has ended; one that is ready once it is imported has none. */
  init?(source?: ModuleSource): Promise<void>;
  version(): string;
  capabilitiesCompiled(): string;
  capabilitiesAvailable(): string;
  cpuClassDetected(): CpuClass | null;
  gpuDevices(): GpuDevice[];
  setLogCallback(callback: ((message: string) => void) | undefined): void;
  executorForRam(
    memoryDomains: number[],
    cpuClass: string | undefined,
    threads: number,
    deferredLimit: number,
  ): CompiledExecutor;
  executorOnPool(
    memoryDomains: number[],
    cpuClass: string | undefined,
    pool: bigint,
    deferredLimit: number,
  ): CompiledExecutor;
  executorForVram(
    devices: number[],
    gpuClass: string | undefined,
    memoryDomains: number[],
    cpuClass: string | undefined,
    streams: bigint[],
    scratchLimit: number,
    deferredLimit: number,
  ): CompiledExecutor;
  arenaNewIn(executor: CompiledExecutor): CompiledArena;
  loadRam(
    path: string,
    executor: CompiledExecutor | null,
    settings: LoadSettings,
    progress?: CompiledProgress,
  ): CompiledModel;
  loadRamFromBytes(
    files: CompiledFile[],
    executor: CompiledExecutor | null,
    settings: LoadSettings,
    progress?: CompiledProgress,
  ): CompiledModel;
  loadVram(
    path: string,
    executor: CompiledExecutor | null,
    devices: number[],
    settings: LoadSettings,
    progress?: CompiledProgress,
  ): CompiledModel;
  /** Loads on a thread of its own, which borrows the executor until the end. */
  loadRamDeferred(
    path: string,
    executor: CompiledExecutor | null,
    settings: LoadSettings,
    progress: boolean,
    notice: CompiledNotice,
  ): CompiledCall<CompiledModel>;
  loadRamFromBytesDeferred(
    files: CompiledFile[],
    executor: CompiledExecutor | null,
    settings: LoadSettings,
    progress: boolean,
    notice: CompiledNotice,
  ): CompiledCall<CompiledModel>;
  openShared(key: string): CompiledModel;
  pack(path: string, destination: string, settings: PackSettings): void;
}

/** The backend that the export conditions chose. */
export const backend: Backend = addon;
