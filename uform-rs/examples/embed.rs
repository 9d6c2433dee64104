//! Embeds a few sentences and prints how near they are to each other.
//!
//! ```sh
//! cargo run --release --package uform --example embed -- all-MiniLM-L6-v2
//! ```

use uform::{EmbedOptions, Executor, LoadOptions, Model, Normalize};

fn main() -> uform::Result<()> {
    let path = std::env::args().nth(1).unwrap_or_else(|| "all-MiniLM-L6-v2".to_owned());
    let threads = Executor::for_ram(&[], None, 0, 0)?;
    let model = Model::load_ram(path, &threads, &LoadOptions::default())?;

    let texts = ["A cat sleeps on the sofa", "A kitten naps on a couch", "Interest rates rose again"];
    let options = EmbedOptions { normalize: Normalize::Yes, ..Default::default() };
    let vectors = model.on(&threads).embed_texts(&texts, &options)?;

    let rows: Vec<&[f32]> = (0..vectors.rows()).filter_map(|row| vectors.row(row)).collect();
    for (text, one) in texts.iter().zip(&rows) {
        for other in &rows {
            let cosine: f32 = one.iter().zip(*other).map(|(one, other)| one * other).sum();
            print!("{cosine:6.3} ");
        }
        println!(" {text}");
    }
    Ok(())
}
