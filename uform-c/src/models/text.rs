//! The rows of a call: texts to token ids on the threads of the executor, ragged and never padded.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::base::{Error, Result, Status};
use crate::executors::Context;

use super::config::Shape;
use super::tokenizer::{Check, Opening, Tokenizer, Tokens, utf8};

/// Texts that one thread takes at a time, and bytes after which it takes no more.
const TEXTS_AT_A_TIME: usize = 16;
const BYTES_AT_A_TIME: usize = 16 << 10;

/// One text as the model is given it, or why it is not.
pub(super) struct Row {
    pub(super) tokens: Tokens,
    pub(super) error: Option<Error>,
}

/// What is done with every text of a call.
pub(super) struct Rule<'p> {
    /// The prompt.
    pub(super) opening: Opening<'p>,
    /// The most tokens of a text.
    pub(super) limit: usize,
    /// Whether a longer text is an error or is cut.
    pub(super) refuse: bool,
}

/// The tokens of every text, in the order of the texts. `progress` is called now and then on the calling thread, between
/// texts and between the pieces of long ones, and an error of its ends the work.
pub(super) fn tokenize(
    context: &Context,
    tokenizer: &Tokenizer,
    shape: &Shape,
    rule: &Rule,
    texts: &[&[u8]],
    progress: &(dyn Fn() -> Result<()> + Sync),
) -> Result<Vec<Row>> {
    let parts = split(texts);
    let rows: Vec<Mutex<Vec<Row>>> = parts.iter().map(|_| Mutex::default()).collect();
    let (stopped, fault) = (AtomicBool::new(false), Mutex::new(None));
    context.team.run(parts.len(), &|thread, part| {
        // No row is done yet, but whoever watches the progress may want to stop here as well.
        let check = || {
            let told = if thread == context.thread { progress() } else { Ok(()) };
            context.cancel.check().and(told)
        };
        let work = || {
            check()?;
            let (begin, end) = parts[part];
            texts[begin..end].iter().map(|text| row(tokenizer, shape, rule, text, &check)).collect()
        };
        if stopped.load(Ordering::Relaxed) {
            return;
        }
        match work() {
            Ok(found) => *rows[part].lock().unwrap_or_else(|poisoned| poisoned.into_inner()) = found,
            Err(error) => {
                stopped.store(true, Ordering::Relaxed);
                fault.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).get_or_insert(error);
            }
        }
    })?;
    match fault.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner()) {
        Some(error) => Err(error),
        None => Ok(rows
            .into_iter()
            .flat_map(|rows| rows.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner()))
            .collect()),
    }
}

/// Cuts the texts into parts of bounded number and size.
fn split(texts: &[&[u8]]) -> Vec<(usize, usize)> {
    let mut parts = Vec::new();
    let (mut begin, mut bytes) = (0, 0);
    for (index, text) in texts.iter().enumerate() {
        bytes += text.len();
        if bytes >= BYTES_AT_A_TIME || index + 1 - begin == TEXTS_AT_A_TIME || index + 1 == texts.len() {
            parts.push((begin, index + 1));
            (begin, bytes) = (index + 1, 0);
        }
    }
    parts
}

/// One row, which says itself why it has no tokens; an error ends the whole call.
fn row(tokenizer: &Tokenizer, shape: &Shape, rule: &Rule, text: &[u8], check: Check) -> Result<Row> {
    match utf8(text).and_then(|text| tokenizer.tokens(&rule.opening, text, rule.limit, check)) {
        Ok(tokens) => {
            let error = fits(shape, rule, &tokens).err();
            Ok(Row { tokens, error })
        }
        Err(error) if matches!(error.status, Status::Cancelled | Status::OutOfMemory) => Err(error),
        Err(error) => Ok(Row { tokens: Tokens::default(), error: Some(error) }),
    }
}

/// Whether the model can be given these tokens.
fn fits(shape: &Shape, rule: &Rule, tokens: &Tokens) -> Result<()> {
    let error = |status, message: String| Err(Error::new(status, message));
    if rule.refuse && tokens.found > rule.limit {
        let message = format!("expected at most {} tokens, found {}", rule.limit, tokens.found);
        return error(Status::InvalidArgument, message);
    }
    if tokens.ids.len() > rule.limit {
        let (limit, found) = (rule.limit, tokens.ids.len());
        let message = format!("the tokenizer made {found} tokens of a text that was cut to {limit}");
        return error(Status::CorruptData, message);
    }
    if tokens.ids.is_empty() {
        return error(Status::RowFailed, "the text has no tokens, and the model adds none".to_owned());
    }
    if let Some(id) = tokens.ids.iter().find(|id| **id as usize >= shape.vocabulary) {
        let message = format!("the tokenizer gave token {id}, and the model has {}", shape.vocabulary);
        return error(Status::CorruptData, message);
    }
    let types = shape.token_types.max(1);
    if let Some(kind) = tokens.types.iter().find(|kind| **kind as usize >= types) {
        let message = format!("the tokenizer gave token type {kind}, and the model has {types}");
        return error(Status::CorruptData, message);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_cover_all_texts_in_order() {
        let long = vec![b'a'; BYTES_AT_A_TIME];
        for texts in
            [vec![], vec![&b"a"[..]], vec![&b"a"[..]; 100], vec![&long[..]; 3], vec![b"a", &long, b"b"]]
        {
            let parts = split(&texts);
            let covered: Vec<usize> = parts.iter().flat_map(|(begin, end)| *begin..*end).collect();
            assert_eq!(covered, (0..texts.len()).collect::<Vec<_>>());
            assert!(parts.iter().all(|(begin, end)| end - begin <= TEXTS_AT_A_TIME));
        }
    }
}
