//! What this machine's vector units can do at most, as `uform bench` measures it.
//!
//!     ceilings THREADS        prints {"f32": ..., "bf16": ..., "i8": ...}; null where the processor has no such instruction
//!
//! Built with `rustc -O` by setup.sh.

#[path = "../../uform-rs/src/bin/uform/ceilings.rs"]
mod ceilings;

fn main() {
    let threads =
        std::env::args().nth(1).and_then(|word| word.parse().ok()).expect("usage: ceilings THREADS");
    let figures = ["f32", "bf16", "i8"].map(|name| match ceilings::measure(name, threads) {
        Some(ceiling) => format!("\"{name}\": {ceiling:.4e}"),
        None => format!("\"{name}\": null"),
    });
    println!("{{{}}}", figures.join(", "));
}
