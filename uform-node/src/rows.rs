//! Reports and tokens as JavaScript sees them.

use napi_derive::napi;
use uform::{Report, Token};

/// What became of one row.
#[napi(object, object_from_js = false)]
pub struct RowReport {
    /// The name of a status.
    pub status: String,
    /// Whether tokens were cut off.
    pub truncated: bool,
    /// Tokens of the text.
    pub tokens_found: f64,
    /// Tokens that were read.
    pub tokens_kept: f64,
}

impl From<&Report> for RowReport {
    fn from(report: &Report) -> Self {
        Self {
            status: report.status.name().to_owned(),
            truncated: report.truncated,
            tokens_found: report.tokens_found as f64,
            tokens_kept: report.tokens_kept as f64,
        }
    }
}

/// One token of a text.
#[napi(object, object_from_js = false)]
pub struct TextToken {
    /// Its number in the vocabulary.
    pub id: u32,
    /// Whether the tokenizer added it.
    pub special: bool,
    /// The first byte that it stands for.
    pub begin: f64,
    /// One past the last such byte.
    pub end: f64,
}

impl From<Token> for TextToken {
    fn from(token: Token) -> Self {
        Self { id: token.id, special: token.special, begin: token.begin as f64, end: token.end as f64 }
    }
}
