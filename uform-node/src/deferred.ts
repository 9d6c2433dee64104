import type { CompiledCall, CompiledNotice } from "./backend.js";
import { compiled, toUFormError, UFormError } from "./errors.js";

/** What stops and watches a deferred call. */
export interface DeferredControls {
  /** Told of the work done so far and all of it. An answer of `false` stops the call, an exception rejects it. */
  progress?: ((done: number, total: number) => boolean | void) | undefined;
  /** Stops the call before it starts, or at its next block of work; the promise is rejected with the reason. */
  signal?: AbortSignal | undefined;
}

/**
 * A promise for a deferred call of the backend. `submit` receives the function that the backend tells of progress and
 * of the end, both on this thread; of the end never before `submit` has returned. What the call fails with rejects the
 * promise.
 */
export function settle<Result, Value>(
  controls: DeferredControls,
  submit: (notice: CompiledNotice) => CompiledCall<Result>,
  convert: (result: Result) => Value,
): Promise<Value> {
  return new Promise<Value>((resolve, reject) => {
    const { progress, signal } = controls;
    if (signal !== undefined && !(signal instanceof AbortSignal)) {
      throw new UFormError("invalid-argument", "signal: expected an AbortSignal");
    }
    signal?.throwIfAborted();
    let thrown: { error: unknown } | undefined;
    let stopped = false;
    let call: CompiledCall<Result> | undefined;
    const stop = () => {
      stopped = true;
      call?.cancel();
    };
    const notice: CompiledNotice = (done, total) => {
      if (typeof done === "number" && typeof total === "number") {
        if (stopped) return false;
        try {
          if (progress?.(done, total) === false) stop();
        } catch (error) {
          thrown = { error };
          stop();
        }
        return !stopped;
      }
      signal?.removeEventListener("abort", stop);
      try {
        const result = (call as CompiledCall<Result>).result();
        if (thrown !== undefined) reject(thrown.error);
        else if (signal?.aborted) reject(signal.reason);
        else resolve(convert(result));
      } catch (error) {
        if (thrown !== undefined) reject(thrown.error);
        else if (signal?.aborted) reject(signal.reason);
        else reject(toUFormError(error));
      }
      return true;
    };
    signal?.addEventListener("abort", stop, { once: true });
    try {
      call = submit(notice);
    } catch (error) {
      signal?.removeEventListener("abort", stop);
      throw toUFormError(error);
    }
  });
}

/**
 * Runs a synchronous call with a progress callback. The backend wants a plain answer and no exceptions, so what the
 * callback throws stops the call and is thrown from here.
 */
export function watched<Value>(
  progress: ((done: number, total: number) => boolean | void) | undefined,
  call: (progress?: (done: number, total: number) => boolean) => Value,
): Value {
  if (progress === undefined) return compiled(() => call());
  let thrown: { error: unknown } | undefined;
  const answer = (done: number, total: number): boolean => {
    if (thrown !== undefined) return false;
    try {
      return progress(done, total) !== false;
    } catch (error) {
      thrown = { error };
      return false;
    }
  };
  let value: Value;
  try {
    value = call(answer);
  } catch (error) {
    throw thrown === undefined ? toUFormError(error) : (thrown as { error: unknown }).error;
  }
  if (thrown !== undefined) throw (thrown as { error: unknown }).error;
  return value;
}
