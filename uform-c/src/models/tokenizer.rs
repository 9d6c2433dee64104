//! Text to token ids, as `transformers` configures the `tokenizers` library.
//!
//! Padding and truncation that `tokenizer.json` ships with are switched off: rows are ragged here, and the limit is
//! that of `limit.rs`. Everything is immutable after loading and may be used from any thread.

use std::panic::{AssertUnwindSafe, catch_unwind};

use tokenizers::normalizers::{BertNormalizer, Lowercase, NormalizerWrapper, Sequence};
use tokenizers::pre_tokenizers::PreTokenizerWrapper;
use tokenizers::tokenizer::pre_tokenizer::OffsetType;
use tokenizers::{Encoding, Model, PostProcessor, PreTokenizer, Tokenizer as Library, TruncationDirection};

use crate::base::{Error, Result, Status, err};
use crate::system::pages;

use super::json::Keys;
use super::limit::Limit;
use super::pieces::{Cuts, Gathered, PIECE};
use super::tokenizer_file;

/// Bytes that the library takes for a byte of the text that it is given: it keeps copies, places and lists of every word,
/// and a word may be one byte. A bound for the tokenizers of BERT and of RoBERTa, found by measuring texts of the worst
/// kinds (`tests/tokenizing.rs`); one whose steps make texts longer may take more.
const BYTES_FOR_A_BYTE: u128 = 640;

/// How many times that much is asked for before texts are tokenized: allocators lose room between pieces of many sizes, the
/// more so where several threads share a heap. Found by calls under limits of address space.
const ROOM_TO_MOVE: u128 = 4;

/// How many times as long the forms of Unicode make a text in UTF-8 at most (U+FDFA under NFKC and NFKD, Unicode Standard
/// Annex 15).
const MOST_OF_FORMS: u128 = 11;

/// The tokenizer of one model.
pub(super) struct Tokenizer {
    library: Library,
    pub(super) cuts: Cuts,
    /// How many times as long as a text its longest form on the way may be, rounded up, the forms of Unicode aside.
    growth: u128,
    pub(super) side: TruncationDirection,
    /// Special tokens that are put around a text.
    around: usize,
    /// The most tokens that a text gets, the special ones among them.
    pub(super) limit: usize,
    /// Whether the model is given the token types that the tokenizer finds.
    token_types: bool,
}

/// The tokens of one text as the model is given them.
#[derive(Clone, PartialEq, Debug, Default)]
pub(super) struct Tokens {
    pub(super) ids: Vec<u32>,
    /// The types of the tokens; empty where the model is given none.
    pub(super) types: Vec<u32>,
    /// Tokens before the text was cut to the limit.
    pub(super) found: usize,
}

/// What stands before every text of a call.
pub(super) struct Opening<'p> {
    /// The tokens of its beginning, which no text changes.
    tokens: Gathered,
    /// What has to be tokenized together with each text.
    rest: &'p str,
}

impl Opening<'_> {
    /// Bytes of text that are tokenized, or have been, for a text behind it.
    pub(super) fn bytes(&self) -> usize {
        self.rest.len() + self.tokens.tokens.len()
    }
}

/// Asked between the pieces of a long text; an error of its ends the work.
pub(super) type Check<'c> = &'c dyn Fn() -> Result<()>;

/// One token of a text.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Token {
    /// Its number in the vocabulary.
    pub id: u32,
    /// Where it begins in the text, in bytes of the text without its prompt; zero for tokens of the prompt and for those
    /// around the text.
    pub begin: usize,
    /// Where it ends in the text, in the same bytes.
    pub end: usize,
    /// Whether it is a special token of the vocabulary, put around the text or spelled by it.
    pub special: bool,
}

/// What else decides how a text is cut.
pub(super) struct Settings<'k> {
    /// `tokenizer_config.json`.
    pub(super) config: &'k Keys,
    /// The class for which `tokenizer_config.json` is meant where it names none.
    pub(super) model_type: &'k str,
    /// `tokenizer_class` of the model's own configuration.
    pub(super) model_class: Option<&'k str>,
    /// `do_lower_case` of `sentence_bert_config.json`.
    pub(super) lower_case: bool,
    /// Whether the model has a table of token types.
    pub(super) token_types: bool,
}

/// Bytes that the library takes on one thread for a text of that many bytes, if that can be cut where it is longer than a
/// piece.
pub(super) fn memory(bytes: usize) -> u128 {
    memory_of_piece(bytes.min(PIECE))
}

/// What has to be there before a text of that many bytes is tokenized.
pub(super) fn room(bytes: usize) -> u128 {
    ROOM_TO_MOVE * memory(bytes)
}

fn memory_of_piece(bytes: usize) -> u128 {
    bytes as u128 * BYTES_FOR_A_BYTE
}

/// The tokenizer library may panic over files that contradict themselves; here that is an error.
pub(super) fn guarded<T>(what: &str, body: impl FnOnce() -> tokenizers::Result<T>) -> Result<T> {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(error)) => err!(CorruptData, "{what}: {error}"),
        Err(_) => err!(CorruptData, "{what}: the tokenizer library gave up"),
    }
}

impl Tokenizer {
    /// Reads `tokenizer.json`, named `file` in messages.
    pub(super) fn read(file: &str, bytes: &[u8], settings: &Settings) -> Result<Self> {
        tokenizer_file::check_depth(file, bytes)?;
        let mut library = guarded(file, || Library::from_bytes(bytes))?;
        let config = settings.config;
        let shipped_side = library.get_truncation().map(|truncation| truncation.direction);
        let side = match config.text("truncation_side")? {
            Some("right") => TruncationDirection::Right,
            Some("left") => TruncationDirection::Left,
            // transformers, too, takes over the side, and only the side, that tokenizer.json was shipped with.
            None => shipped_side.unwrap_or(TruncationDirection::Right),
            Some(other) => {
                return err!(
                    CorruptData,
                    "{}: truncation_side: expected right or left, found {other:?}",
                    config.file()
                );
            }
        };
        guarded(file, || {
            library.with_truncation(None)?.with_padding(None);
            Ok(())
        })?;
        follow_class(&mut library, file, settings)?;
        if settings.lower_case {
            lower_case(&mut library, file)?;
        }
        library.set_encode_special_tokens(config.flag("split_special_tokens", false)?);
        check_added_tokens(&library, config)?;
        let around = library.get_post_processor().map_or(0, |processor| processor.added_tokens(false));
        let growth = tokenizer_file::check(&mut library, file, around)?.ceil() as u128;
        let (cuts, limit) = (Cuts::of(&library, file)?, usize::MAX);
        Ok(Self { library, cuts, growth, side, around, limit, token_types: settings.token_types })
    }

    /// Sets the limit, which has to leave room for the special tokens.
    pub(super) fn set_limit(&mut self, limit: &Limit) -> Result<()> {
        let (least, found) = (self.around.max(1), limit.tokens);
        if found < least {
            return err!(
                CorruptData,
                "{}: expected room for {} special tokens, at least {least}, found {found}",
                limit.key,
                self.around
            );
        }
        self.limit = found;
        Ok(())
    }

    /// Special tokens that are put around a text.
    pub(super) fn around(&self) -> usize {
        self.around
    }

    /// The most tokens that a text of that many bytes has.
    pub(super) fn most_tokens(&self, bytes: usize) -> usize {
        let of_text = bytes as u128 * self.growth * MOST_OF_FORMS;
        usize::try_from(of_text).unwrap_or(usize::MAX).saturating_add(self.around)
    }

    /// Tokenizes as much of `prompt` as can be done once for all texts.
    pub(super) fn opening<'p>(&self, prompt: &'p str, limit: usize, check: Check) -> Result<Opening<'p>> {
        let (first, rest) = prompt.split_at(self.cuts.last(prompt).unwrap_or(0));
        let mut tokens = Gathered::default();
        if !first.is_empty() {
            self.gather(first, 0, self.room(limit), OffsetType::None, &mut tokens, check)?;
        }
        Ok(Opening { tokens, rest })
    }

    /// The tokens of `text` behind `opening`, which was made for the same limit, cut to `limit` with the special tokens
    /// kept.
    pub(super) fn tokens(&self, opening: &Opening, text: &str, limit: usize, check: Check) -> Result<Tokens> {
        let mut gathered = opening.tokens.clone();
        let together;
        let text = match opening.rest {
            "" => text,
            rest => {
                together = joined(rest, text)?;
                &together
            }
        };
        self.gather(text, 0, self.room(limit), OffsetType::None, &mut gathered, check)?;
        let found = gathered.found + self.around;
        let encoding = self.finish(gathered)?;
        let types = if self.token_types { encoding.get_type_ids().to_vec() } else { Vec::new() };
        Ok(Tokens { ids: encoding.get_ids().to_vec(), types, found })
    }

    /// Tokens of a text that `limit` leaves room for.
    fn room(&self, limit: usize) -> usize {
        limit.saturating_sub(self.around)
    }

    /// The tokens of `text` piece by piece, without special ones around; `start` is where it begins.
    fn gather(
        &self,
        text: &str,
        start: usize,
        keep: usize,
        places: OffsetType,
        gathered: &mut Gathered,
        check: Check,
    ) -> Result<()> {
        let mut done = 0;
        loop {
            let rest = &text[done..];
            let piece = &rest[..self.cuts.first_piece(rest)];
            if piece.len() > PIECE {
                // Callers see to it that there is memory for a piece of the usual size.
                pages::probe(memory_of_piece(piece.len()), "tokenizing")?;
            }
            let encoding = guarded("tokenizing", || self.encode(piece, places))?;
            gathered.add(&encoding, start + done, keep, self.side);
            done += piece.len();
            if done == text.len() {
                return Ok(());
            }
            check()?;
        }
    }

    /// What `encode` of the library does, without its post-processor.
    pub(super) fn encode(&self, text: &str, places: OffsetType) -> tokenizers::Result<Encoding> {
        let library = &self.library;
        let mut words = library.get_added_vocabulary().extract_and_normalize(library.get_normalizer(), text);
        if let Some(splitter) = library.get_pre_tokenizer() {
            splitter.pre_tokenize(&mut words)?;
        }
        library.get_model().tokenize_in_pretokenized(&mut words, None)?;
        words.into_encoding(None, 0, places)
    }

    /// Puts the special tokens around.
    pub(super) fn finish(&self, gathered: Gathered) -> Result<Encoding> {
        guarded("tokenizing", || self.library.post_process(gathered.into_encoding(), None, true))
    }

    /// How many tokens at the start of every text `prompt` takes: its own, without a special token behind them.
    pub(super) fn prompt_tokens(&self, prompt: &str, limit: usize, check: Check) -> Result<usize> {
        let nothing = Opening { tokens: Gathered::default(), rest: "" };
        let tokens = self.tokens(&nothing, prompt, limit, check)?;
        let special_end = tokens.ids.last().is_some_and(|id| self.is_special(*id));
        Ok(tokens.ids.len() - usize::from(special_end))
    }

    fn is_special(&self, id: u32) -> bool {
        let token = self.library.id_to_token(id);
        token.is_some_and(|token| self.library.get_added_vocabulary().is_special_token(&token))
    }

    /// The tokens of `prompt` and `text` together, cut to `limit` with the special tokens kept, with their places in
    /// `text`; and how many there were before.
    pub(super) fn spans(&self, prompt: &str, text: &str, limit: usize) -> Result<(Vec<Token>, usize)> {
        let whole = joined(prompt, text)?;
        let most = self.room(limit);
        // One more than is kept on the left: the library treats the places of the first token of a text in another way.
        let keep = most + usize::from(self.side == TruncationDirection::Left);
        let list = size_of::<Token>() as u128 * self.most_tokens(whole.len()).min(limit) as u128;
        pages::probe(room(whole.len()) + list, "tokenizing")?;
        let mut gathered = Gathered::default();
        self.gather(&whole, 0, keep, OffsetType::Byte, &mut gathered, &|| Ok(()))?;
        let (found, mut surplus) = (gathered.found + self.around, gathered.tokens.len().saturating_sub(most));
        let encoding = self.finish(gathered)?;
        let mut tokens = Vec::with_capacity(encoding.len());
        let around = encoding.get_special_tokens_mask();
        for ((id, (begin, end)), around) in encoding.get_ids().iter().zip(encoding.get_offsets()).zip(around)
        {
            let around = *around == 1;
            if !around && surplus > 0 {
                surplus -= 1;
                continue;
            }
            let place = |offset: usize| if around { 0 } else { offset.saturating_sub(prompt.len()) };
            let special = around || self.is_special(*id);
            tokens.push(Token { id: *id, begin: place(*begin), end: place(*end), special });
        }
        Ok((tokens, found))
    }
}

/// `first` and `second` as one text; `OutOfMemory` where there is no room for it.
fn joined(first: &str, second: &str) -> Result<String> {
    let bytes = first.len() + second.len();
    let mut whole = String::new();
    if whole.try_reserve_exact(bytes).is_err() {
        return Err(Error::out_of_memory("a text behind its prompt", bytes as u128));
    }
    whole.push_str(first);
    whole.push_str(second);
    Ok(whole)
}

/// The classes of transformers for BERT and RoBERTa build the first steps of the tokenizer from
/// `tokenizer_config.json` and from their own defaults, whatever `tokenizer.json` has.
fn follow_class(library: &mut Library, file: &str, settings: &Settings) -> Result<()> {
    let config = settings.config;
    let class = match config.text("tokenizer_class")?.or(settings.model_class) {
        Some(class) => class.strip_suffix("Fast").unwrap_or(class),
        None => match settings.model_type {
            "bert" | "distilbert" => "BertTokenizer",
            "roberta" => "RobertaTokenizer",
            _ => "",
        },
    };
    match class {
        "BertTokenizer" | "DistilBertTokenizer" => {
            let lower_case = config.flag("do_lower_case", true)?;
            let strip_accents = match config.get("strip_accents") {
                None => None,
                Some(_) => Some(config.flag("strip_accents", false)?),
            };
            let chinese = config.flag("tokenize_chinese_chars", true)?;
            if let Some(NormalizerWrapper::BertNormalizer(_)) = library.get_normalizer() {
                let normalizer = BertNormalizer::new(true, chinese, strip_accents, lower_case);
                guarded(file, || library.with_normalizer(Some(normalizer)).map(|_| ()))?;
            }
        }
        "RobertaTokenizer" => {
            let prefix = config.flag("add_prefix_space", false)?;
            if let Some(PreTokenizerWrapper::ByteLevel(bytes)) = library.get_pre_tokenizer() {
                let bytes = bytes.add_prefix_space(prefix);
                library.with_pre_tokenizer(Some(bytes));
            }
        }
        _ => {}
    }
    Ok(())
}

/// Lower case before everything else, unless a step of the normalizer does that already.
fn lower_case(library: &mut Library, file: &str) -> Result<()> {
    let steps: Vec<NormalizerWrapper> = match library.get_normalizer() {
        None => vec![],
        Some(NormalizerWrapper::Sequence(sequence)) => sequence.as_ref().to_vec(),
        Some(other) => vec![other.clone()],
    };
    if steps.iter().any(|step| matches!(step, NormalizerWrapper::Lowercase(_))) {
        return Ok(());
    }
    let all = std::iter::once(NormalizerWrapper::Lowercase(Lowercase)).chain(steps).collect();
    guarded(file, || library.with_normalizer(Some(Sequence::new(all))).map(|_| ()))
}

/// `added_tokens_decoder` repeats tokens of `tokenizer.json`; transformers would add those that are not there.
fn check_added_tokens(library: &Library, config: &Keys) -> Result<()> {
    let Some(added) = config.get("added_tokens_decoder").and_then(|value| value.as_object()) else {
        return Ok(());
    };
    for (id, token) in added {
        let content = token.get("content").and_then(|content| content.as_str());
        let (Some(content), Ok(id)) = (content, id.parse::<u32>()) else {
            let found = super::json::shown(token);
            return err!(
                CorruptData,
                "{}: added_tokens_decoder: {id}: expected a token, found {found}",
                config.file()
            );
        };
        if library.token_to_id(content) != Some(id) {
            let expected = format!("{content:?} to be {id} in tokenizer.json, too");
            let found = library.token_to_id(content);
            return err!(
                CorruptData,
                "{}: added_tokens_decoder: expected {expected}, found {found:?}",
                config.file()
            );
        }
    }
    Ok(())
}

/// The text of one row, or the error that its bytes are no UTF-8.
pub(super) fn utf8(bytes: &[u8]) -> Result<&str> {
    std::str::from_utf8(bytes).map_err(|error| {
        let place = error.valid_up_to();
        // Languages whose strings are UTF-16 or code points hand one over in this form.
        let found = match bytes[place..] {
            [0xed, 0xa0..=0xbf, ..] => "a lone surrogate",
            _ => "another byte",
        };
        let message = format!("expected UTF-8, found {found} at {place}");
        Error::new(Status::InvalidArgument, message)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(model: &str) -> Vec<u8> {
        let models = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/conformance/models");
        let path = models.join(model).join("tokenizer.json");
        std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    }

    impl Tokenizer {
        /// The tokens of a text without a prompt.
        fn alone(&self, text: &str, limit: usize) -> Tokens {
            let opening = self.opening("", limit, &|| Ok(())).unwrap();
            self.tokens(&opening, text, limit, &|| Ok(())).unwrap()
        }
    }

    fn read(model: &str, config: &str, lower_case: bool) -> Result<Tokenizer> {
        let keys = Keys::parse("tokenizer_config.json", config.as_bytes()).unwrap();
        let settings =
            Settings { config: &keys, model_type: "bert", model_class: None, lower_case, token_types: true };
        Tokenizer::read("tokenizer.json", &file(model), &settings)
    }

    #[test]
    fn texts_are_cut_on_either_side_with_the_special_tokens_kept() {
        let (right, left) = (read("bert-tiny", "{}", false).unwrap(), r#"{"truncation_side": "left"}"#);
        let left = read("bert-tiny", left, false).unwrap();
        let text = "one two one two two";
        let whole = right.alone(text, 100);
        assert_eq!((whole.ids.len(), whole.found, right.around()), (7, 7, 2));
        let (cut, cut_left) = (right.alone(text, 5), left.alone(text, 5));
        assert_eq!(cut.ids, [&whole.ids[..4], &whole.ids[6..]].concat());
        assert_eq!(cut_left.ids, [&whole.ids[..1], &whole.ids[3..]].concat());
        assert_eq!((cut.found, cut.types.len()), (7, 5));
        assert_eq!(right.alone(text, 2).ids, [whole.ids[0], whole.ids[6]]);
        for (tokenizer, limit) in [(&right, 100), (&right, 5), (&right, 2), (&left, 5), (&left, 2)] {
            let (spans, found) = tokenizer.spans("one ", "two one two two", limit).unwrap();
            let ids: Vec<u32> = spans.iter().map(|token| token.id).collect();
            assert_eq!((ids, found), (tokenizer.alone(text, limit).ids, 7));
        }
    }

    #[test]
    fn what_the_file_pads_and_cuts_is_left_alone() {
        let tokenizer = read("bert-padded-tokenizer", "{}", false).unwrap();
        assert_eq!(tokenizer.alone("one", 1000).ids.len(), 3);
        assert_eq!(tokenizer.alone(&"one ".repeat(500), 1000).ids.len(), 502);
    }

    #[test]
    fn lower_case_comes_from_the_class_or_from_sentence_transformers() {
        let ids =
            |config, lower_case, text| read("bert-cased", config, lower_case).unwrap().alone(text, 50).ids;
        let cased = r#"{"do_lower_case": false}"#;
        assert_ne!(ids(cased, false, "HOUSE"), ids(cased, false, "house"));
        assert_eq!(ids(cased, true, "HOUSE"), ids(cased, false, "house"));
        assert_eq!(ids("{}", false, "HOUSE"), ids(cased, false, "house"));
        let as_it_is = r#"{"tokenizer_class": "PreTrainedTokenizerFast"}"#;
        assert_eq!(ids(as_it_is, false, "HOUSE"), ids(cased, false, "HOUSE"));
    }

    #[test]
    fn contradictions_are_errors() {
        for config in [
            r#"{"truncation_side": "middle"}"#,
            r#"{"do_lower_case": "yes"}"#,
            r#"{"added_tokens_decoder": {"0": {"content": "[NONE]"}}}"#,
            r#"{"added_tokens_decoder": {"zero": {"content": "[PAD]"}}}"#,
            r#"{"added_tokens_decoder": {"0": "[PAD]"}}"#,
        ] {
            let error = read("bert-tiny", config, false).err().unwrap();
            assert!(error.message.starts_with("tokenizer_config.json: "), "{config}: {error}");
        }
        assert_eq!(utf8(b"ab\xff").unwrap_err().message, "expected UTF-8, found another byte at 2");
        assert_eq!(
            utf8(b"a\xed\xa0\x80").unwrap_err().message,
            "expected UTF-8, found a lone surrogate at 1"
        );
        let limit = Limit { tokens: 1, key: "sentence_bert_config.json: max_seq_length".to_owned() };
        let error = read("bert-tiny", "{}", false).unwrap().set_limit(&limit).unwrap_err();
        assert_eq!(
            error.message,
            "sentence_bert_config.json: max_seq_length: expected room for 2 special tokens, at least 2, found 1"
        );
    }
}
