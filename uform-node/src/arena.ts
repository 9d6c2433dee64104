import { backend, type CompiledArena, type CompiledMatrix } from "./backend.js";
import { count, numbered } from "./checks.js";
import { bytesOf, dataOver, elementBytes, rowElements, type DataOf } from "./embeddings.js";
import { compiled, UFormError } from "./errors.js";
import type { Executor } from "./executor.js";
import { dtypeNumbers, type ArenaDescription, type Dtype } from "./generated.js";

/**
 * A matrix in an arena, which verbs write into with the option `into`. It lives until it is freed or collected
 * together with its views, and while it lives its arena refuses to be reset.
 */
export class ArenaMatrix<Type extends Dtype = Dtype> implements Disposable {
  /** The backend's handle. */
  readonly compiled: CompiledMatrix;
  /** Rows. */
  readonly rows: number;
  /** Dimensions of a row. */
  readonly columns: number;
  /** The type of the elements. */
  readonly dtype: Type;
  /** Elements of `data` from the start of one row to the start of the next. */
  readonly rowStride: number;

  #view: ArrayBuffer | undefined;

  /** @internal */
  constructor(handle: CompiledMatrix, dtype: Type) {
    this.compiled = handle;
    this.rows = handle.rows;
    this.columns = handle.columns;
    this.dtype = dtype;
    this.rowStride = handle.rowStride / elementBytes(dtype);
  }

  /**
   * The memory of the matrix, shared and not copied: row `i` starts at element `i * rowStride`. Reading it while a
   * deferred call writes there yields anything. Throws "unsupported" where the engine of the language forbids memory
   * of others, as Electron's does; `copy` works everywhere. In WebAssembly it is a copy, made anew each time.
   */
  get data(): DataOf<Type> {
    const view = this.#view ?? compiled(() => this.compiled.view());
    if (!this.compiled.copies) this.#view = view;
    return dataOver(this.dtype, view);
  }

  /** One row of `data`. */
  row(index: number): DataOf<Type> {
    if (!Number.isInteger(index) || index < 0 || index >= this.rows) {
      throw new UFormError("invalid-argument", `there is no row ${index} in a matrix of ${this.rows} rows`);
    }
    const start = index * this.rowStride;
    return this.data.subarray(start, start + rowElements(this.dtype, this.columns)) as DataOf<Type>;
  }

  /** A copy of the rows without gaps, in memory of the engine of the language. */
  copy(): DataOf<Type> {
    const bytes = this.rows * rowElements(this.dtype, this.columns) * elementBytes(this.dtype);
    const data = dataOver(this.dtype, new ArrayBuffer(bytes));
    compiled(() => this.compiled.copy(bytesOf(data)));
    return data;
  }

  /** Ends the matrix: its views become empty, and its arena may be reset. A second call does nothing. */
  free(): void {
    const view = this.#view;
    this.#view = undefined;
    compiled(() => this.compiled.free(view));
  }

  /** Frees the matrix at the end of a `using` block. */
  [Symbol.dispose](): void {
    this.free();
  }
}

/** Memory for outputs, placed where an executor computes. Matrices go into it one after the other and go all at once. */
export class Arena implements Disposable {
  /** The backend's handle. */
  readonly compiled: CompiledArena;

  private constructor(handle: CompiledArena) {
    this.compiled = handle;
  }

  /** Makes an empty arena in the memory where `executor` computes. A host arena may outlive its executor. */
  static newIn(executor: Executor): Arena {
    return new Arena(compiled(() => backend.arenaNewIn(executor.compiled)));
  }

  /** Places a matrix, its rows aligned to 64 bytes and its contents unspecified. */
  allocate<Type extends Dtype = "f32">(rows: number, columns: number, dtype?: Type): ArenaMatrix<Type> {
    const type = dtype ?? ("f32" as Type);
    const number = numbered<Dtype>("dtype", type, dtypeNumbers, "f32");
    const matrix = compiled(() => this.compiled.allocate(count("rows", rows), count("columns", columns), number));
    return new ArenaMatrix(matrix, type);
  }

  /** Keeps the memory for the next matrices. Throws "contended" while a matrix or a view of one is alive. */
  reset(): void {
    compiled(() => this.compiled.reset());
  }

  /** What the arena holds. */
  describe(): ArenaDescription {
    return compiled(() => this.compiled.describe());
  }

  /** Ends the arena; its memory goes with the last matrix or view of one. A second call does nothing. */
  free(): void {
    compiled(() => this.compiled.free());
  }

  /** Frees the arena at the end of a `using` block. */
  [Symbol.dispose](): void {
    this.free();
  }
}
