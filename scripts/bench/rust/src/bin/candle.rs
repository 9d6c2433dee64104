//! candle in f32 or bf16, with its own BERT.

use anyhow::{Error, Result, bail};
use candle_core::{DType, Device, Tensor};
use candle_nn::VarBuilder;
use candle_transformers::models::bert::{BertModel, Config};
use tokenizers::Tokenizer;
use uform_bench_workers::{Arguments, BATCH, Engine, serve};

struct Candle {
    model: BertModel,
    tokenizer: Tokenizer,
}

impl Candle {
    fn load(given: &Arguments) -> Result<Self> {
        let kind = match given.precision.as_str() {
            "f32" => DType::F32,
            "bf16" => DType::BF16,
            other => bail!("candle's BERT does not compute in {other}"),
        };
        let folder = given.work.join("model");
        let config: Config = serde_json::from_slice(&std::fs::read(folder.join("config.json"))?)?;
        // SAFETY: nobody writes to the model while the benchmark runs.
        let weights = unsafe {
            VarBuilder::from_mmaped_safetensors(&[folder.join("model.safetensors")], kind, &Device::Cpu)?
        };
        let tokenizer = Tokenizer::from_file(given.work.join("tokenizer.json")).map_err(Error::msg)?;
        Ok(Self { model: BertModel::load(weights, &config)?, tokenizer })
    }

    fn tokens(&self, texts: &[String]) -> Result<Vec<Vec<u32>>> {
        let encodings = self.tokenizer.encode_batch_fast(texts.to_vec(), true).map_err(Error::msg)?;
        Ok(encodings.iter().map(|encoding| encoding.get_ids().to_vec()).collect())
    }

    fn rows(&self, ids: &[&[u32]]) -> Result<Vec<f32>> {
        let longest = ids.iter().map(|numbers| numbers.len()).max().unwrap_or(0);
        let shape = (ids.len(), longest);
        let (mut tokens, mut mask) = (vec![0u32; ids.len() * longest], vec![0u32; ids.len() * longest]);
        for (row, numbers) in ids.iter().enumerate() {
            tokens[row * longest..][..numbers.len()].copy_from_slice(numbers);
            mask[row * longest..][..numbers.len()].fill(1);
        }
        let tokens = Tensor::from_vec(tokens, shape, &Device::Cpu)?;
        let mask = Tensor::from_vec(mask, shape, &Device::Cpu)?;
        let padded = ids.iter().any(|numbers| numbers.len() < longest);
        let hidden = self
            .model
            .forward(&tokens, &tokens.zeros_like()?, padded.then_some(&mask))?
            .to_dtype(DType::F32)?;
        let weights = mask.to_dtype(DType::F32)?.unsqueeze(2)?;
        let pooled = hidden.broadcast_mul(&weights)?.sum(1)?.broadcast_div(&weights.sum(1)?)?;
        let rows = pooled.broadcast_div(&pooled.sqr()?.sum_keepdim(1)?.sqrt()?)?;
        Ok(rows.flatten_all()?.to_vec1()?)
    }
}

impl Engine for Candle {
    fn embed(&self, texts: &[String]) -> Result<Vec<f32>> {
        let ids = self.tokens(texts)?;
        self.rows(&ids.iter().map(Vec::as_slice).collect::<Vec<_>>())
    }

    fn embed_by_length(&self, texts: &[String]) -> Result<Vec<f32>> {
        let ids = self.tokens(texts)?;
        let mut order: Vec<usize> = (0..ids.len()).collect();
        order.sort_by_key(|&index| std::cmp::Reverse(ids[index].len()));
        let mut output = Vec::new();
        for batch in order.chunks(BATCH) {
            let rows = self.rows(&batch.iter().map(|&index| ids[index].as_slice()).collect::<Vec<_>>())?;
            let columns = rows.len() / batch.len();
            output.resize(ids.len() * columns, 0.0);
            for (row, &index) in rows.chunks(columns).zip(batch) {
                output[index * columns..][..columns].copy_from_slice(row);
            }
        }
        Ok(output)
    }
}

fn main() -> Result<()> {
    let given = Arguments::parse()?;
    let engine = Candle::load(&given)?;
    serve(&given, &engine, "candle 0.11")
}
