import { statusNumbers, type Status } from "./generated.js";

/** What every failure of this package throws or rejects with: one sentence with the facts, and its status. */
export class UFormError extends Error {
  override readonly name: string = "UFormError";

  /** The status by name, like "contended" or "not-found". */
  readonly code: Status;

  /** The status by number, as in the C interface. */
  readonly status: number;

  constructor(code: Status, message: string) {
    super(message);
    this.code = code;
    this.status = statusNumbers[code];
  }
}

function isStatus(code: unknown): code is Status {
  return typeof code === "string" && Object.hasOwn(statusNumbers, code);
}

/**
 * Runs `call`, which enters the compiled backend, and turns what that throws into a `UFormError`. A backend throws
 * plain errors with the name of a status in `code`; other codes are those of the layer that converts arguments.
 */
export function compiled<T>(call: () => T): T {
  try {
    return call();
  } catch (error) {
    throw toUFormError(error);
  }
}

/** The `UFormError` that says what `error`, thrown by a backend, says. */
export function toUFormError(error: unknown): UFormError {
  if (error instanceof UFormError) return error;
  const { code, message } = Object(error) as { code?: unknown; message?: unknown };
  const sentence = typeof message === "string" ? message : String(error);
  if (isStatus(code)) return new UFormError(code, sentence);
  if (error instanceof RangeError) return new UFormError("out-of-memory", sentence);
  const conversion = typeof code === "string" && /(Expected|InvalidArg)$/.test(code);
  return new UFormError(conversion ? "invalid-argument" : "internal", sentence);
}
