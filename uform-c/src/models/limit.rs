//! How many tokens of a text are read: the one rule, in one place.
//!
//! 1. `max_seq_length` of `sentence_bert_config.json`, where `modules.json` makes the directory one of
//!    sentence-transformers;
//! 2. else `model_max_length` (formerly `max_len`) of `tokenizer_config.json`; a million and more means unset;
//! 3. else the rows of the position table.
//!
//! Whatever it says, a text never gets more tokens than the table has positions for. The special tokens around the
//! text count. A limit anywhere else, as `truncation.max_length` of `tokenizer.json` or a stray `max_length`, has no
//! effect, as it has none in sentence-transformers.

use crate::base::{Result, err};

use super::json::Keys;

/// From here on a number stands for no limit: the files of Hugging Face have 1e30.
const UNSET: f64 = 1e6;

/// The most tokens of a text.
#[derive(Debug)]
pub(super) struct Limit {
    pub(super) tokens: usize,
    /// What says so, as `file: key`.
    pub(super) key: String,
}

/// The limit by the rule above, for a model whose table has positions for `longest` tokens by its configuration `model`.
pub(super) fn find(sentence_bert: &Keys, tokenizer: &Keys, model: &Keys, longest: usize) -> Result<Limit> {
    let declared = match limit(sentence_bert, "max_seq_length")? {
        Some(limit) => Some(limit),
        None => match tokenizer.get("model_max_length") {
            Some(_) => limit(tokenizer, "model_max_length")?,
            None => limit(tokenizer, "max_len")?,
        },
    };
    let table = || Limit { tokens: longest, key: format!("{}: max_position_embeddings", model.file()) };
    Ok(declared.filter(|limit| limit.tokens <= longest).unwrap_or_else(table))
}

fn limit(keys: &Keys, key: &str) -> Result<Option<Limit>> {
    let Some(value) = keys.get(key) else { return Ok(None) };
    match value.as_f64() {
        Some(number) if number >= UNSET => Ok(None),
        Some(number) if number >= 1.0 && number.fract() == 0.0 => {
            Ok(Some(Limit { tokens: number as usize, key: format!("{}: {key}", keys.file()) }))
        }
        _ => err!(CorruptData, "{}: {key}: expected a whole number from 1 up, found {value}", keys.file()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_rule() {
        for (sentence_bert, tokenizer, expected) in [
            ("{}", "{}", Some(512)),
            (r#"{"max_seq_length": 256}"#, r#"{"model_max_length": 128}"#, Some(256)),
            (r#"{"max_seq_length": null}"#, r#"{"model_max_length": 128}"#, Some(128)),
            (r#"{"max_seq_length": 8192}"#, "{}", Some(512)),
            (r#"{"max_seq_length": 1000000}"#, r#"{"model_max_length": 64}"#, Some(64)),
            ("{}", r#"{"model_max_length": 1000000000000000019884624838656}"#, Some(512)),
            ("{}", r#"{"model_max_length": 1e30}"#, Some(512)),
            ("{}", r#"{"max_len": 100}"#, Some(100)),
            ("{}", r#"{"model_max_length": 200, "max_len": 100}"#, Some(200)),
            (r#"{"max_length": 128}"#, r#"{"max_length": 128}"#, Some(512)),
            (r#"{"max_seq_length": 0}"#, "{}", None),
            (r#"{"max_seq_length": -1}"#, "{}", None),
            (r#"{"max_seq_length": 2.5}"#, "{}", None),
            (r#"{"max_seq_length": "256"}"#, "{}", None),
        ] {
            let keys = |file: &str, text: &str| Keys::parse(file, text.as_bytes()).unwrap();
            let found = find(
                &keys("sentence_bert_config.json", sentence_bert),
                &keys("tokenizer_config.json", tokenizer),
                &keys("config.json", "{}"),
                512,
            );
            let tokens = found.as_ref().ok().map(|limit| limit.tokens);
            assert_eq!(tokens, expected, "{sentence_bert} {tokenizer} {found:?}");
        }
    }
}
