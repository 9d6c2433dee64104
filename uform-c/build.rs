//! Gives the shared library the name that programs look for at run time: `libuform` with the major version, whatever
//! Cargo calls the file.

use std::env;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let major = env::var("CARGO_PKG_VERSION_MAJOR").unwrap_or_default();
    match env::var("CARGO_CFG_TARGET_OS").unwrap_or_default().as_str() {
        "linux" | "android" | "freebsd" | "netbsd" | "openbsd" => {
            println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libuform.so.{major}");
        }
        "macos" | "ios" => {
            println!("cargo::rustc-cdylib-link-arg=-Wl,-install_name,@rpath/libuform.{major}.dylib");
        }
        _ => {}
    }
}
