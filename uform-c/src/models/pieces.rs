//! Where a text may be cut so that the tokens of its pieces, one after the other, are those of the whole.
//!
//! The `tokenizers` library takes hundreds of bytes for each byte of the text at hand and cannot be stopped. Long texts are
//! therefore handed to it in pieces, and a prompt is tokenized once for all texts of a call, where that provably changes no
//! token. A cut is made before white space, or between two ideographs, and only in pipelines for which the following holds:
//!
//! - **Added tokens** are found first. None of theirs contains what stands at a cut, so that no match spans one; none
//!   swallows white space on its right; one that does so on its left either finds a cut before all of it, or cuts inside
//!   runs of white space are not made. What counts as the border of a single word is the same at white space and at an end.
//! - **Normalizers** that are let through map characters one by one, or are forms of Unicode, for which white space of
//!   ASCII starts a sequence of its own: nothing before it composes with it or is ordered behind it.
//! - **Pre-tokenizers** that are let through drop white space and look at nothing beyond it, or are the expression of
//!   byte-level encoding, in which a space after something else always begins a match and nothing looks behind.
//! - **Models** see one word at a time.
//!
//! Everything else is tokenized in one piece: SentencePiece's normalizers and `Metaspace`, custom expressions, added tokens
//! that contain or swallow white space, and texts without a place to cut, as one word of megabytes.

use tokenizers::normalizers::NormalizerWrapper;
use tokenizers::pre_tokenizers::PreTokenizerWrapper;
use tokenizers::tokenizer::normalizer::NormalizedString;
use tokenizers::{Encoding, Normalizer, Tokenizer as Library, TruncationDirection};

use crate::base::Result;

use super::tokenizer::guarded;

/// Bytes of a text that the library is given at a time, where it can be cut.
pub(super) const PIECE: usize = 2 << 10;

/// The places where texts may be cut for one tokenizer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Cuts {
    /// Before which characters.
    spaces: &'static [char],
    /// Also where white space stands before the cut.
    inside_runs: bool,
    /// Also between two ideographs.
    between_ideographs: bool,
}

const WHITE_SPACE: &[char] = &[' ', '\t', '\n', '\r'];

impl Cuts {
    /// The places for this tokenizer, named `file` in messages.
    pub(super) fn of(library: &Library, file: &str) -> Result<Self> {
        let (normalizer, splitter) = (library.get_normalizer(), library.get_pre_tokenizer());
        let steps = normalizer.map_or(Some(vec![]), plain_steps);
        let (Some(steps), Some(splitter)) = (steps, splitter) else { return Ok(Self::default()) };
        let drops_space = drops_white_space(splitter);
        let bytes = matches!(splitter, PreTokenizerWrapper::ByteLevel(bytes) if bytes.use_regex);
        let keeps_characters = |step: &&NormalizerWrapper| {
            matches!(
                step,
                NormalizerWrapper::NFC(_) | NormalizerWrapper::NFD(_) | NormalizerWrapper::Lowercase(_)
            )
        };
        if !(drops_space || bytes && steps.iter().all(keeps_characters)) {
            return Ok(Self::default());
        }
        let (mut strips_left, mut ideographs) = (false, false);
        for token in library.get_added_vocabulary().get_added_tokens_decoder().values() {
            let mut form = NormalizedString::from(&token.content[..]);
            if let Some(normalizer) = normalizer {
                guarded(file, || normalizer.normalize(&mut form))?;
            }
            let form = if token.normalized { form.get() } else { &token.content };
            if form.is_empty() || form.contains(WHITE_SPACE) || token.rstrip {
                return Ok(Self::default());
            }
            if token.normalized && token.lstrip {
                // What the normalizer removes may stand between a cut and white space before it.
                return Ok(Self::default());
            }
            strips_left |= token.lstrip;
            ideographs |= form.chars().chain(token.content.chars()).any(is_ideograph);
        }
        // Each ideograph gets a space on either side, so that it is a word of its own.
        let apart = match &steps[..] {
            [NormalizerWrapper::BertNormalizer(bert)]
            | [NormalizerWrapper::Lowercase(_), NormalizerWrapper::BertNormalizer(bert)] => {
                bert.handle_chinese_chars
            }
            _ => false,
        };
        Ok(Self {
            spaces: if drops_space { WHITE_SPACE } else { &[' '] },
            inside_runs: drops_space && !strips_left,
            between_ideographs: drops_space && apart && !ideographs,
        })
    }

    fn between(&self, before: char, after: char) -> bool {
        let space = self.spaces.contains(&after) && (self.inside_runs || !before.is_whitespace());
        space || (self.between_ideographs && is_ideograph(before) && is_ideograph(after))
    }

    /// The last place inside `text`.
    pub(super) fn last(&self, text: &str) -> Option<usize> {
        let mut backwards = text.char_indices().rev().peekable();
        while let Some((place, after)) = backwards.next() {
            let (_, before) = *backwards.peek()?;
            if self.between(before, after) {
                return Some(place);
            }
        }
        None
    }

    /// Where the first piece of `text` ends: at most [`PIECE`] bytes from its start, unless there is no place to cut.
    pub(super) fn first_piece(&self, text: &str) -> usize {
        if text.len() <= PIECE || self.spaces.is_empty() {
            return text.len();
        }
        let (near, _) = text.split_at(text.floor_char_boundary(PIECE));
        self.last(near).unwrap_or_else(|| {
            let mut before = near.chars().next_back().unwrap_or(' ');
            let far = text[near.len()..].char_indices().find(|(_, after)| {
                let found = self.between(before, *after);
                before = *after;
                found
            });
            far.map_or(text.len(), |(place, _)| near.len() + place)
        })
    }
}

/// The steps of a normalizer, if each of them maps characters one by one or is a form of Unicode.
fn plain_steps(normalizer: &NormalizerWrapper) -> Option<Vec<&NormalizerWrapper>> {
    match normalizer {
        NormalizerWrapper::Sequence(steps) => {
            let steps: Option<Vec<_>> = steps.as_ref().iter().map(plain_steps).collect();
            steps.map(|steps| steps.concat())
        }
        NormalizerWrapper::BertNormalizer(_)
        | NormalizerWrapper::NFC(_)
        | NormalizerWrapper::NFD(_)
        | NormalizerWrapper::NFKC(_)
        | NormalizerWrapper::NFKD(_)
        | NormalizerWrapper::Lowercase(_)
        | NormalizerWrapper::StripAccents(_)
        | NormalizerWrapper::Nmt(_) => Some(vec![normalizer]),
        _ => None,
    }
}

/// Whether white space is dropped first, and every other step looks at one word at a time.
fn drops_white_space(splitter: &PreTokenizerWrapper) -> bool {
    let splits = |step: &PreTokenizerWrapper| {
        matches!(
            step,
            PreTokenizerWrapper::BertPreTokenizer(_)
                | PreTokenizerWrapper::Whitespace(_)
                | PreTokenizerWrapper::WhitespaceSplit(_)
        )
    };
    let follows = |step: &PreTokenizerWrapper| {
        splits(step) || matches!(step, PreTokenizerWrapper::Punctuation(_) | PreTokenizerWrapper::Digits(_))
    };
    match splitter {
        PreTokenizerWrapper::Sequence(steps) => match steps.as_ref() {
            [first, rest @ ..] => splits(first) && rest.iter().all(follows),
            [] => false,
        },
        step => splits(step),
    }
}

/// What the normalizer of BERT counts as such: the blocks of CJK ideographs.
fn is_ideograph(character: char) -> bool {
    matches!(character as u32,
        0x4E00..=0x9FFF | 0x3400..=0x4DBF | 0x20000..=0x2A6DF | 0x2A700..=0x2B73F | 0x2B740..=0x2B81F
        | 0x2B920..=0x2CEAF | 0xF900..=0xFAFF | 0x2F800..=0x2FA1F)
}

/// The tokens of the pieces of a text, without special ones around: as many as are needed, and the number of all.
#[derive(Clone, Default)]
pub(super) struct Gathered {
    /// Number, spelling and place of each.
    pub(super) tokens: Vec<(u32, String, (usize, usize))>,
    pub(super) found: usize,
}

impl Gathered {
    /// Takes in the tokens of the next piece, which begins at byte `start`: of all so far `keep` stay, the first of them, or
    /// the last where texts are cut on their left.
    pub(super) fn add(&mut self, piece: &Encoding, start: usize, keep: usize, side: TruncationDirection) {
        let count = piece.len();
        self.found += count;
        let wanted = match side {
            TruncationDirection::Right => 0..count.min(keep.saturating_sub(self.tokens.len())),
            TruncationDirection::Left => count - count.min(keep)..count,
        };
        let (ids, spellings, places) = (piece.get_ids(), piece.get_tokens(), piece.get_offsets());
        self.tokens.extend(wanted.map(|index| {
            let (begin, end) = places[index];
            (ids[index], spellings[index].clone(), (start + begin, start + end))
        }));
        self.tokens.drain(..self.tokens.len().saturating_sub(keep));
    }

    /// All of them in the form of the library.
    pub(super) fn into_encoding(self) -> Encoding {
        self.tokens.into_iter().map(|(id, spelling, place)| (id, spelling, place, None, 0)).collect()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use tokenizers::tokenizer::pre_tokenizer::OffsetType;

    use super::*;
    use crate::models::json::Keys;
    use crate::models::tokenizer::{Settings, Tokenizer};

    /// SplitMix64 of Steele, Lea and Flood (2014).
    struct Random(u64);

    impl Random {
        fn below(&mut self, bound: usize) -> usize {
            self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            ((mixed ^ (mixed >> 31)) % bound as u64) as usize
        }
    }

    /// What texts are made of: white space of all kinds, marks that combine, what normalizers remove, split, compose and
    /// reorder, and what added tokens are spelled with.
    #[rustfmt::skip]
    const PARTS: &[&str] = &[
        " ", " ", " ", "  ", "   ", "\t", "\n", "\r\n", "\u{a0}", "\u{2003}", "\u{3000}", "\u{85}", "\u{2028}", "\u{b}", "a",
        "one", "two", "house", "HOUSE", "wind", "don't", "'s", "'ll", "x1", "12", "3.5", ",", ".", "!?", "_", "-", "(", "\u{301}",
        "\u{308}", "\u{323}\u{307}", "\u{307}\u{323}", "e\u{301}", "é", "Å", "ﬁ", "¨", "İ", "ß", "ς", "\u{1}", "\u{7f}", "\u{200b}",
        "\u{200d}", "\u{feff}", "\u{fffd}", "\u{0}", "\u{ad}", "中", "文", "日本", "語", "\u{f900}", "\u{2f800}", "の", "ア", "한국",
        "각", "각", "\u{e33}", "ก\u{e33}", "कि", "слово", "שָׁלוֹם", "😀", "👩\u{200d}👩", "\u{fdfa}", "≮", "<\u{338}", "[MASK]",
        "[CLS]", "[SEP", "<mask>", "<s>", "</s>", "Word", "word", "wordy", "two words", "字符", "[GAP]", "[gap]",
        "supercalifragilisticexpialidocious", "##a",
    ];

    fn text(random: &mut Random, parts: usize) -> String {
        (0..parts).map(|_| PARTS[random.below(PARTS.len())]).collect()
    }

    fn read(model: &str, change: impl FnOnce(&mut Value)) -> Tokenizer {
        let models = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/conformance/models");
        let bytes = std::fs::read(models.join(model).join("tokenizer.json")).unwrap();
        let mut file: Value = serde_json::from_slice(&bytes).unwrap();
        change(&mut file);
        let config = r#"{"tokenizer_class": "PreTrainedTokenizerFast"}"#;
        let settings = Settings {
            config: &Keys::parse("tokenizer_config.json", config.as_bytes()).unwrap(),
            model_type: "bert",
            model_class: None,
            lower_case: false,
            token_types: false,
        };
        Tokenizer::read("tokenizer.json", file.to_string().as_bytes(), &settings)
            .unwrap_or_else(|error| panic!("{error}"))
    }

    /// Adds a token that is not in the vocabulary.
    fn add(file: &mut Value, content: &str, flags: &[&str]) {
        let tokens = file["added_tokens"].as_array_mut().unwrap();
        let mut token = json!({"id": 5000 + tokens.len(), "content": content, "single_word": false, "lstrip": false,
            "rstrip": false, "normalized": false, "special": false});
        flags.iter().for_each(|flag| token[*flag] = json!(true));
        tokens.push(token);
    }

    /// Numbers, spellings and places of the tokens.
    fn tokens(tokenizer: &Tokenizer, text: &str) -> Gathered {
        let mut all = Gathered::default();
        let encoding = tokenizer.encode(text, OffsetType::Byte).unwrap();
        all.add(&encoding, 0, usize::MAX, TruncationDirection::Right);
        all
    }

    /// Cuts random texts at each place where that is allowed. Answers how many cuts that were.
    fn attack(name: &str, tokenizer: &Tokenizer, rounds: usize) -> usize {
        let (mut random, mut made) = (Random(0x7e87), 0);
        for _ in 0..rounds {
            let parts = 2 + random.below(24);
            let text = text(&mut random, parts);
            let whole = tokens(tokenizer, &text);
            let mut end = text.len();
            while let Some(place) = tokenizer.cuts.last(&text[..end]) {
                let mut pieces = tokens(tokenizer, &text[..place]);
                let rest = tokenizer.encode(&text[place..], OffsetType::Byte).unwrap();
                pieces.add(&rest, place, usize::MAX, TruncationDirection::Right);
                assert_eq!(pieces.tokens, whole.tokens, "{name}: {text:?} was cut at {place}");
                (end, made) = (place, made + 1);
            }
        }
        made
    }

    fn plain(_: &mut Value) {}

    fn normalizers(steps: Value) -> impl FnOnce(&mut Value) {
        move |file| file["normalizer"] = json!({"type": "Sequence", "normalizers": steps})
    }

    fn bert(lower_case: bool, strip_accents: bool) -> Value {
        json!({"type": "BertNormalizer", "clean_text": true, "handle_chinese_chars": true,
            "strip_accents": strip_accents, "lowercase": lower_case})
    }

    #[test]
    fn pieces_have_the_tokens_of_the_whole() {
        let words = |file: &mut Value| {
            file["normalizer"] =
                json!({"type": "Sequence", "normalizers": [{"type": "NFKC"}, {"type": "Lowercase"}]});
            file["pre_tokenizer"] = json!({"type": "Sequence", "pretokenizers": [{"type": "WhitespaceSplit"},
                {"type": "Punctuation", "behavior": "MergedWithPrevious"}, {"type": "Digits", "individual_digits": false}]});
        };
        let with_tokens = |file: &mut Value| {
            add(file, "<mask>", &["lstrip", "special"]);
            add(file, "word", &["single_word"]);
            add(file, "Word", &["normalized"]);
            add(file, "[GAP]", &["normalized", "single_word"]);
        };
        let bytes = |prefix: bool| {
            move |file: &mut Value| {
                file["pre_tokenizer"]["add_prefix_space"] = json!(prefix);
                with_tokens(file);
                add(file, "字符", &["special"]);
            }
        };
        for (name, tokenizer) in [
            ("as it is", read("bert-tiny", plain)),
            ("cased", read("bert-cased", plain)),
            ("accents", read("bert-tiny", normalizers(json!([bert(true, false)])))),
            (
                "lower case first",
                read("bert-tiny", normalizers(json!([{"type": "Lowercase"}, bert(false, true)]))),
            ),
            (
                "decomposed",
                read(
                    "bert-tiny",
                    normalizers(json!([{"type": "NFD"}, {"type": "StripAccents"}, {"type": "Nmt"}])),
                ),
            ),
            ("words", read("bert-tiny", words)),
            ("expression", read("bert-tiny", |file| file["pre_tokenizer"] = json!({"type": "Whitespace"}))),
            ("added tokens", read("bert-tiny", with_tokens)),
            ("added ideographs", read("bert-tiny", |file| add(file, "字符", &[]))),
            ("bytes", read("roberta-mean", plain)),
            ("bytes with tokens", read("roberta-mean", bytes(false))),
            ("bytes with a prefix", read("roberta-mean", bytes(true))),
            (
                "composed bytes",
                read("roberta-mean", normalizers(json!([{"type": "NFC"}, {"type": "Lowercase"}]))),
            ),
        ] {
            let made = attack(name, &tokenizer, 1000);
            assert!(made > 700, "{name}: only {made} cuts were tried");
        }
    }

    #[test]
    fn what_cannot_be_cut_is_not() {
        let normalized = |step: Value| normalizers(json!([bert(true, true), step]));
        for (name, tokenizer) in [
            ("space in a token", read("bert-tiny", |file| add(file, "two words", &[]))),
            ("space in a token's form", read("bert-tiny", |file| add(file, "字", &["normalized"]))),
            ("space after a token", read("bert-tiny", |file| add(file, "[GAP]", &["rstrip"]))),
            ("space before a form", read("bert-tiny", |file| add(file, "[GAP]", &["lstrip", "normalized"]))),
            (
                "strip",
                read(
                    "bert-tiny",
                    normalized(json!({"type": "Strip", "strip_left": true, "strip_right": true})),
                ),
            ),
            ("prepend", read("bert-tiny", normalized(json!({"type": "Prepend", "prepend": "x"})))),
            (
                "replace",
                read(
                    "bert-tiny",
                    normalized(json!({"type": "Replace", "pattern": {"String": " "}, "content": "_"})),
                ),
            ),
            ("no splitter", read("bert-tiny", |file| file["pre_tokenizer"] = Value::Null)),
            (
                "metaspace",
                read("bert-tiny", |file| {
                    file["pre_tokenizer"] = json!({"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": true});
                }),
            ),
            (
                "bytes that are not split",
                read("roberta-mean", |file| file["pre_tokenizer"]["use_regex"] = json!(false)),
            ),
            ("bytes and removed marks", read("roberta-mean", normalizers(json!([{"type": "StripAccents"}])))),
        ] {
            assert_eq!(tokenizer.cuts, Cuts::default(), "{name}");
            let long = "one two ".repeat(PIECE);
            assert_eq!(tokenizer.cuts.first_piece(&long), long.len(), "{name}");
        }
        assert!(!read("bert-tiny", |file| add(file, "字符", &[])).cuts.between_ideographs);
    }

    /// Long texts, prompts and both sides: the ids, places and counts are those of one piece.
    #[test]
    fn long_texts_are_cut_and_counted() {
        let mut random = Random(0x10e6);
        let nothing = || Ok(());
        for (model, side) in [
            ("bert-tiny", "right"),
            ("bert-tiny", "left"),
            ("roberta-mean", "right"),
            ("roberta-mean", "left"),
        ] {
            let mut tokenizer = read(model, plain);
            if side == "left" {
                tokenizer.side = TruncationDirection::Left;
            }
            for round in 0..6 {
                let word = "ü".repeat([0, 3 * PIECE][round % 2]);
                let long = text(&mut random, 3000) + &word + &text(&mut random, 3000);
                let prompt = text(&mut random, [0, 3, 2000][round % 3]);
                let whole = tokens(&tokenizer, &format!("{prompt}{long}"));
                for limit in [2, 3, 100, 4000, usize::MAX] {
                    let opening = tokenizer.opening(&prompt, limit, &nothing).unwrap();
                    let found = tokenizer.tokens(&opening, &long, limit, &nothing).unwrap();
                    assert_eq!(found.found, whole.found + 2);
                    let room = (limit - 2).min(whole.found);
                    let kept = if side == "left" { whole.found - room..whole.found } else { 0..room };
                    let expected: Vec<u32> = whole.tokens[kept.clone()].iter().map(|(id, ..)| *id).collect();
                    assert!(found.ids[1..=room] == expected, "{model}, {side}, round {round}, limit {limit}");
                    let (spans, count) = tokenizer.spans(&prompt, &long, limit).unwrap();
                    assert_eq!((count, spans.len()), (whole.found + 2, room + 2));
                    let trimmed = tokenizer.finish(whole.clone()).unwrap();
                    let trimmed = &trimmed.get_offsets()[1..=whole.found];
                    for (span, (begin, end)) in spans[1..=room].iter().zip(&trimmed[kept]) {
                        let place = |offset: &usize| offset.saturating_sub(prompt.len());
                        assert_eq!((span.begin, span.end), (place(begin), place(end)), "{model}, {side}");
                    }
                }
            }
        }
    }

    #[test]
    fn a_long_text_asks_between_its_pieces() {
        let tokenizer = read("bert-tiny", plain);
        let opening = tokenizer.opening("", 10, &|| Ok(())).unwrap();
        for long in ["one two ".repeat(PIECE), " ".repeat(20 * PIECE), "中文".repeat(20 * PIECE)] {
            let asked = std::cell::Cell::new(0);
            let check = || {
                asked.set(asked.get() + 1);
                if asked.get() < 5 { Ok(()) } else { crate::base::err!(Cancelled, "enough") }
            };
            let error = tokenizer.tokens(&opening, &long, 10, &check).err().unwrap();
            assert_eq!((error.message.as_str(), asked.get()), ("enough", 5));
        }
    }
}
