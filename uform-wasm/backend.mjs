// The backend of the package `uform` in WebAssembly: `Backend` of uform-node/src/backend.ts over the module that
// scripts/wasm/build.sh writes beside this file. What it adds to the module's own functions and classes is what only
// JavaScript can do: to compile the module, to end with it, and to answer calls later.

import * as module from "./uform_wasm.js";

let state = "absent";
let ready;
/** What the instance ended with. */
let end = "";
/** The executor of calls that have none. */
let callingThread;

/** An error as the layer above expects it. */
function failure(code, message) {
  return Object.assign(new Error(message), { code });
}

/**
 * Compiles the module, once, from `source` or the file beside this one. After the end of an instance it makes a new one,
 * which knows nothing of the models, executors and arenas of the old.
 */
async function init(source) {
  if (state === "ready") return;
  if (state === "ended") {
    module.__wbg_reset_state();
  } else {
    ready ??= module.default(source === undefined ? undefined : { module_or_path: source });
    try {
      await ready;
    } catch (error) {
      ready = undefined;
      throw failure("io", `the WebAssembly module could not be loaded: ${error.message}`);
    }
    if (state === "ready") return;
  }
  state = "ready";
  callingThread = module.callingThread();
}

/** What nothing in the module catches: panics, traps, and too deep a stack. They leave it in pieces. */
function isFatal(error) {
  return error?.fatal === true || error instanceof WebAssembly.RuntimeError || error instanceof RangeError;
}

/** Runs `call`, which enters the module. */
function enter(call) {
  if (state === "absent") throw failure("invalid-argument", "call `await init()` before anything else");
  if (state === "ended") throw failure("internal", `this instance has ended, \`await init()\` makes a new one: ${end}`);
  try {
    return call();
  } catch (error) {
    if (!isFatal(error)) throw error;
    state = "ended";
    end = error.message;
    throw failure("internal", end);
  }
}

/** Lets the methods and getters of a class of the module enter it as functions do. A second `free` does nothing. */
function guard(type) {
  const { prototype } = type;
  for (const [name, { value, get }] of Object.entries(Object.getOwnPropertyDescriptors(prototype))) {
    if (name.startsWith("__") || name === "constructor") continue;
    if (get !== undefined) Object.defineProperty(prototype, name, { get: entering(get) });
    else if (typeof value === "function") prototype[name] = entering(value);
  }
  const { end } = prototype;
  prototype.free = function () {
    // What belonged to an instance that has ended went with it.
    if (state === "ready" && isAlive(this)) end.call(this);
  };
}

function entering(method) {
  return function (...values) {
    if (state === "ready" && !isAlive(this)) throw failure("internal", "the object belongs to an instance that has ended");
    return enter(() => method.apply(this, values));
  };
}

/** Whether a handle belongs to the instance at hand. */
function isAlive(handle) {
  return handle.__wbg_inst === callingThread.__wbg_inst;
}

/** A deferred call, which has ended when it is submitted. Its notice comes when the caller has heard of it. */
function ended(call, notice) {
  let result;
  try {
    const value = call();
    result = () => value;
  } catch (error) {
    result = () => {
      throw error;
    };
  }
  queueMicrotask(() => notice());
  return { cancel() {}, result };
}

const { CompiledArena, CompiledEmbedding, CompiledExecutor, CompiledMatrix, CompiledModel } = module;
[CompiledArena, CompiledEmbedding, CompiledExecutor, CompiledMatrix, CompiledModel].forEach(guard);

/** Views are copies, as the memory of a module moves when it grows. */
CompiledMatrix.prototype.copies = true;

const { embed, embedIntoMatrix, plan, submit, submitIntoMatrix } = CompiledModel.prototype;

Object.assign(CompiledModel.prototype, {
  embed(executor, texts, settings, output, progress) {
    return embed.call(this, executor ?? callingThread, texts, settings, output, progress);
  },
  embedIntoMatrix(executor, texts, settings, output, progress) {
    return embedIntoMatrix.call(this, executor ?? callingThread, texts, settings, output, progress);
  },
  plan(executor, rows, tokens, settings) {
    return plan.call(this, executor ?? callingThread, rows, tokens, settings);
  },
  embedDeferred(executor, texts, settings, matrix, watched, notice) {
    const progress = watched ? notice : undefined;
    const call =
      matrix === null
        ? submit.call(this, executor, texts, settings, progress)
        : submitIntoMatrix.call(this, executor, texts, settings, matrix, progress);
    return ended(() => call.result(), notice);
  },
});

const functions = Object.fromEntries(
  [
    "version",
    "capabilitiesCompiled",
    "capabilitiesAvailable",
    "cpuClassDetected",
    "gpuDevices",
    "setLogCallback",
    "executorForRam",
    "executorOnPool",
    "executorForVram",
    "arenaNewIn",
    "openShared",
  ].map((name) => [name, (...values) => enter(() => module[name](...values))]),
);

function loadRamFromBytes(files, executor, settings, progress) {
  return enter(() => module.loadRamFromBytes(files, executor ?? callingThread, settings, progress));
}

function loadVram(path, executor, devices, settings, progress) {
  return enter(() => module.loadVram(path, executor ?? callingThread, devices, settings, progress));
}

function loadRamFromBytesDeferred(files, executor, settings, watched, notice) {
  return ended(() => loadRamFromBytes(files, executor, settings, watched ? notice : undefined), notice);
}

function noFiles() {
  throw failure("unsupported", "WebAssembly has no files: load the model from the bytes of its files, `loadRamFromBytes`");
}

export default {
  init,
  ...functions,
  loadRam: noFiles,
  loadRamDeferred: noFiles,
  loadRamFromBytes,
  loadRamFromBytesDeferred,
  loadVram,
  pack: noFiles,
};
