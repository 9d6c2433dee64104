//! Lets the addon find the symbols of the Node process at run time.

fn main() {
    napi_build::setup();
}
