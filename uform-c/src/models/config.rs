//! `config.json` of the BERT family, typed. The facts are those of the configuration classes of `transformers` 5.

use serde_json::Value;

use crate::base::{Result, err};
use crate::kernels::activation::Activation;

use super::bert::Layout;
use super::json::Keys;

/// Caps on what a configuration may ask for, far above any model, so that products of sizes do not overflow.
const LARGEST_SIZE: usize = 1 << 20;
const LARGEST_VOCABULARY: usize = 1 << 28;
const MOST_LAYERS: usize = 4096;

/// How a token gets its position.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Positions {
    /// Counted from zero.
    FromZero,
    /// Counted from behind the padding token; tokens that are padding have its own number.
    AfterPadding(u32),
}

/// The sizes of a model and what its layers compute.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Shape {
    pub(super) vocabulary: usize,
    pub(super) hidden: usize,
    pub(super) layers: usize,
    pub(super) heads: usize,
    pub(super) intermediate: usize,
    /// Rows of the position table.
    pub(super) position_rows: usize,
    /// Rows of the token type table; zero where there is none.
    pub(super) token_types: usize,
    pub(super) positions: Positions,
    pub(super) activation: Activation,
    pub(super) epsilon: f32,
}

impl Shape {
    /// Reads the configuration in the spelling of `layout`.
    pub(super) fn read(config: &Keys, layout: &Layout) -> Result<Self> {
        let hidden = config.size(layout.hidden_key, 768, LARGEST_SIZE)?;
        let heads = config.size(layout.heads_key, 12, LARGEST_SIZE)?;
        let file = config.file();
        if !hidden.is_multiple_of(heads) {
            let key = layout.heads_key;
            return err!(
                CorruptData,
                "{file}: {key}: expected a divisor of {} {hidden}, found {heads}",
                layout.hidden_key
            );
        }
        refuse_other_graphs(config)?;
        let token_types = match layout.token_types {
            true => config.size("type_vocab_size", 2, LARGEST_VOCABULARY)?,
            false => 0,
        };
        let shape = Self {
            vocabulary: config.size("vocab_size", layout.default_vocabulary, LARGEST_VOCABULARY)?,
            hidden,
            layers: config.size(layout.layers_key, layout.default_layers, MOST_LAYERS)?,
            heads,
            intermediate: config.size(layout.intermediate_key, 3072, LARGEST_SIZE)?,
            position_rows: config.size("max_position_embeddings", 512, LARGEST_VOCABULARY)?,
            token_types,
            positions: positions(config, layout)?,
            activation: activation(config, layout.activation_key)?,
            epsilon: epsilon(config, layout)?,
        };
        if shape.longest() == 0 {
            let rows = shape.position_rows;
            return err!(
                CorruptData,
                "{file}: max_position_embeddings: expected room for a token, found {rows}"
            );
        }
        Ok(shape)
    }

    /// The most tokens for which the table has positions.
    pub(super) fn longest(&self) -> usize {
        match self.positions {
            Positions::FromZero => self.position_rows,
            Positions::AfterPadding(padding) => self.position_rows.saturating_sub(padding as usize + 1),
        }
    }
}

fn refuse_other_graphs(config: &Keys) -> Result<()> {
    let no = [Value::Bool(false)];
    config.refuse("is_decoder", &no)?;
    config.refuse("is_encoder_decoder", &no)?;
    config.refuse("add_cross_attention", &no)?;
    config.refuse("position_embedding_type", &[Value::from("absolute")])?;
    for key in ["pruned_heads", "quantization_config", "embedding_size", "adapters", "is_causal"] {
        config.refuse(key, if key == "is_causal" { &no } else { &[] })?;
    }
    Ok(())
}

fn positions(config: &Keys, layout: &Layout) -> Result<Positions> {
    match layout.default_padding {
        None => Ok(Positions::FromZero),
        Some(default) => {
            let padding = config.whole("pad_token_id", LARGEST_VOCABULARY as u64)?;
            Ok(Positions::AfterPadding(padding.map_or(default, |padding| padding as u32)))
        }
    }
}

fn epsilon(config: &Keys, layout: &Layout) -> Result<f32> {
    match layout.epsilon_key {
        None => Ok(1e-12),
        Some(key) => {
            let found = config.number(key, 1e-12)?;
            let epsilon = found as f32;
            match epsilon.is_normal() {
                true => Ok(epsilon),
                // Zero divides by zero, and infinity gives every text the same vector.
                false => err!(
                    CorruptData,
                    "{}: {key}: expected a number from {:e} to {:e}, found {found:e}",
                    config.file(),
                    f32::MIN_POSITIVE,
                    f32::MAX
                ),
            }
        }
    }
}

fn activation(config: &Keys, key: &str) -> Result<Activation> {
    // The names of transformers' `ACT2FN`; those in one row compute the same function up to rounding.
    match config.text(key)?.unwrap_or("gelu") {
        "gelu" | "gelu_python" => Ok(Activation::Gelu),
        "gelu_new" | "gelu_fast" | "gelu_pytorch_tanh" | "gelu_python_tanh" | "gelu_accurate" => {
            Ok(Activation::GeluTanh)
        }
        "relu" => Ok(Activation::Relu),
        "silu" | "swish" => Ok(Activation::Silu),
        "tanh" => Ok(Activation::Tanh),
        "sigmoid" => Ok(Activation::Sigmoid),
        "linear" => Ok(Activation::None),
        other => {
            let known = "gelu, gelu_new, relu, silu, tanh, sigmoid or linear";
            err!(Unsupported, "{}: {key}: expected {known}, found {other:?}", config.file())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::models::bert::{BERT, DISTILBERT, ROBERTA};

    fn read(layout: &Layout, text: &str) -> Result<Shape> {
        Shape::read(&Keys::parse("config.json", text.as_bytes()).unwrap(), layout)
    }

    #[test]
    fn missing_keys_have_the_defaults_of_the_reference() {
        let shape = read(&BERT, "{}").unwrap();
        assert_eq!((shape.vocabulary, shape.hidden, shape.layers, shape.heads), (30522, 768, 12, 12));
        assert_eq!((shape.intermediate, shape.position_rows, shape.token_types), (3072, 512, 2));
        assert_eq!((shape.activation, shape.epsilon, shape.longest()), (Activation::Gelu, 1e-12, 512));
        assert_eq!(read(&DISTILBERT, "{}").unwrap().layers, 6);
    }

    #[test]
    fn positions_of_roberta_start_behind_the_padding() {
        assert_eq!(read(&ROBERTA, r#"{"max_position_embeddings": 514}"#).unwrap().longest(), 512);
        let shape = read(&ROBERTA, r#"{"max_position_embeddings": 514, "pad_token_id": 0}"#).unwrap();
        assert_eq!((shape.longest(), shape.positions), (513, Positions::AfterPadding(0)));
        assert!(read(&ROBERTA, r#"{"max_position_embeddings": 2}"#).is_err());
    }

    #[test]
    fn other_graphs_and_values_are_errors_that_name_the_key() {
        for (key, value) in [
            ("is_decoder", "true"),
            ("add_cross_attention", "true"),
            ("position_embedding_type", r#""relative_key""#),
            ("hidden_act", r#""quick_gelu""#),
            ("hidden_act", "3"),
            ("hidden_size", "0"),
            ("hidden_size", "1e30"),
            ("hidden_size", r#""big""#),
            ("num_attention_heads", "7"),
            ("num_hidden_layers", "-1"),
            ("layer_norm_eps", "-1"),
            ("layer_norm_eps", "0"),
            ("layer_norm_eps", "1e-50"),
            ("layer_norm_eps", "1e300"),
            ("pruned_heads", r#"{"0": [1]}"#),
            ("quantization_config", r#"{"bits": 4}"#),
        ] {
            let error = read(&BERT, &format!("{{\"{key}\": {value}}}")).unwrap_err();
            assert!(error.message.starts_with(&format!("config.json: {key}: ")), "{error}");
        }
    }
}
