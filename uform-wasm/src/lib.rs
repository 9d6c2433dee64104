//! UForm in the browser: what this build and this engine can do. The verbs that compute come with the kernels for
//! WebAssembly; a symbol exists only when it works.

use wasm_bindgen::prelude::*;

/// The version of the library, like "4.0.0".
#[wasm_bindgen]
pub fn version() -> String {
    uform::version().to_owned()
}

/// The names of the classes that this module has kernels for, separated by commas.
#[wasm_bindgen(js_name = capabilitiesCompiled)]
pub fn capabilities_compiled() -> String {
    uform::capabilities_compiled().to_owned()
}

/// The names of the classes that this engine offers to the module, separated by commas.
#[wasm_bindgen(js_name = capabilitiesAvailable)]
pub fn capabilities_available() -> String {
    uform::capabilities_available().to_owned()
}
