//! `uform-wasm-bindgen nodejs|web MODULE.wasm FOLDER`

use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [kind, module, folder] = arguments.as_slice() else {
        eprintln!("usage: uform-wasm-bindgen nodejs|web MODULE.wasm FOLDER");
        return ExitCode::from(2);
    };
    let mut bindgen = wasm_bindgen_cli_support::Bindgen::new();
    // Without a default path, the web module's own loading of the .wasm beside it would be left out.
    bindgen.input_path(module).typescript(true).omit_default_module_path(false);
    // Names of functions are a fourth of the module, and no message needs them.
    bindgen.remove_name_section(true);
    // An instance in which a panic or a trap has happened is not to be used again; this makes another one.
    bindgen.reset_state_function(true);
    let chosen = match kind.as_str() {
        "nodejs" => bindgen.nodejs(true).map(|_| ()),
        "web" => bindgen.web(true).map(|_| ()),
        other => {
            eprintln!("expected nodejs or web, found {other}");
            return ExitCode::from(2);
        }
    };
    match chosen.and_then(|()| bindgen.generate(folder)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{module}: {error:#}");
            ExitCode::FAILURE
        }
    }
}
