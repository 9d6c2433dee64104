import { backend, type ModuleSource } from "./backend.js";
import { optional } from "./checks.js";
import { compiled, toUFormError } from "./errors.js";
import type { CpuClass, GpuDevice } from "./generated.js";

/**
 * Makes the compiled backend ready, before anything else of this package is called. In Node importing has done so, and this
 * does nothing. In browsers it compiles the module of WebAssembly, which lies beside this file unless `source` says where it
 * is. A defect in the module ends it: all calls throw "internal" from then on, until `init` makes a new one, in which nothing
 * of the old is left.
 */
export async function init(source?: ModuleSource): Promise<void> {
  try {
    await backend.init?.(source);
  } catch (error) {
    throw toUFormError(error);
  }
}

/** The version of the compiled backend, like "4.0.0". */
export function version(): string {
  return compiled(() => backend.version());
}

/** The classes that the backend has kernels for, separated by commas: CPU classes by number, then GPU classes. */
export function capabilitiesCompiled(): string {
  return compiled(() => backend.capabilitiesCompiled());
}

/** Those of the compiled classes that the machine at hand can run, in the same form. */
export function capabilitiesAvailable(): string {
  return compiled(() => backend.capabilitiesAvailable());
}

/**
 * The class that executors dispatch as unless one is pinned: the widest that this machine can run, or what the
 * environment variable `UFORM_CPU_CLASS` names. Null when that names none that can run here.
 */
export function cpuClassDetected(): CpuClass | null {
  return compiled(() => backend.cpuClassDetected());
}

/**
 * Sends the warnings of this process, on all threads, to `callback` from now on, or nowhere without one. The library
 * writes nothing to the console. The callback is called on the thread that sets it, and ends with that thread.
 */
export function setLogCallback(callback?: (message: string) => void): void {
  optional("callback", callback, "function");
  compiled(() => backend.setLogCallback(callback));
}

/**
 * The GPUs that this process can drive: NVIDIA's first, then AMD's. The position of a device in the list is the
 * ordinal by which executors and models name it. Empty on a machine without GPUs.
 */
export function gpuDevices(): GpuDevice[] {
  return compiled(() => backend.gpuDevices());
}
