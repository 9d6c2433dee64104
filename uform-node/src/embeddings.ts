import { dtypeNumbers, type Dtype, type Report } from "./generated.js";

/** The typed array that holds elements of a type: halves as their bits, and bits eight to a byte. */
export type DataOf<Type extends Dtype> = Type extends "f32"
  ? Float32Array<ArrayBuffer>
  : Type extends "f16" | "bf16"
    ? Uint16Array<ArrayBuffer>
    : Type extends "i8"
      ? Int8Array<ArrayBuffer>
      : Uint8Array<ArrayBuffer>;

/** Rows of vectors, one per text in the order of the texts. */
export interface Embeddings<Type extends Dtype = "f32"> {
  /** The elements, row after row. */
  readonly data: DataOf<Type>;
  /** Rows: one per text. */
  readonly rows: number;
  /** Dimensions of a row. */
  readonly dimensions: number;
  /** The type of the elements. */
  readonly dtype: Type;
  /** Elements of `data` from the start of one row to the start of the next; more than a row has in some arenas. */
  readonly rowStride: number;
  /** What became of each row, where the options asked. */
  readonly reports?: Report[];
}

/** Bytes of one element of `data`; a byte holds eight dimensions of "b1". */
export function elementBytes(dtype: Dtype): number {
  return dtype === "f32" ? 4 : dtype === "f16" || dtype === "bf16" ? 2 : 1;
}

/** Elements of `data` that a row of so many dimensions fills. */
export function rowElements(dtype: Dtype, dimensions: number): number {
  return dtype === "b1" ? Math.ceil(dimensions / 8) : dimensions;
}

/** A typed array over `buffer`. */
export function dataOver<Type extends Dtype>(dtype: Type, buffer: ArrayBuffer): DataOf<Type> {
  switch (dtypeNumbers[dtype]) {
    case dtypeNumbers.f32:
      return new Float32Array(buffer) as DataOf<Type>;
    case dtypeNumbers.f16:
    case dtypeNumbers.bf16:
      return new Uint16Array(buffer) as DataOf<Type>;
    case dtypeNumbers.i8:
      return new Int8Array(buffer) as DataOf<Type>;
    default:
      return new Uint8Array(buffer) as DataOf<Type>;
  }
}

/** The bytes that a typed array covers. */
export function bytesOf(data: ArrayBufferView<ArrayBuffer>): Uint8Array {
  return new Uint8Array(data.buffer, data.byteOffset, data.byteLength);
}
