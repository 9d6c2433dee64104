// The wasm backend: compiles the module once, and refuses calls before that.
// `dist` is what scripts/wasm/build.sh writes. In a browser the module is fetched from there; elsewhere its bytes are
// handed to `init`.

import * as compiled from './dist/uform_wasm.js';

let ready;
let loaded = false;

/** Compiles the module. Call it once before anything else; later calls wait for the same module. */
export async function init(source) {
    ready ??= compiled.default(source === undefined ? undefined : { module_or_path: source });
    await ready;
    loaded = true;
}

function demand() {
    if (!loaded) throw new Error('uform: call `await init()` before anything else');
    return compiled;
}

/** The version of the library, like "4.0.0". */
export const version = () => demand().version();

/** The names of the classes that this module has kernels for, separated by commas. */
export const capabilitiesCompiled = () => demand().capabilitiesCompiled();

/** The names of the classes that this engine offers to the module, separated by commas. */
export const capabilitiesAvailable = () => demand().capabilitiesAvailable();
