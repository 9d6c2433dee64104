//! What a `tokenizer.json` may ask for: the same tokens in every call, text that grows within bounds, and the tokens of
//! a text once among the special ones.

use std::borrow::Cow;
use std::fmt::{self, Formatter};

use serde::de::{IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use tokenizers::normalizers::NormalizerWrapper;
use tokenizers::pre_tokenizers::PreTokenizerWrapper;
use tokenizers::{Encoding, ModelWrapper, Token, Tokenizer as Library};

use crate::base::{Result, err};

use super::tokenizer::guarded;

/// Steps that the normalizer and the pre-tokenizer may have, each.
const MOST_STEPS: usize = 64;

/// How deeply values may lie in one another inside a step. Those of known models stay below 8.
const DEEPEST: usize = 16;

/// How many times as long as a text what the model splits may be. The tokenizers of known models stay below 32.
const MOST_GROWTH: f64 = 64.0;

/// The keys of steps that may hold steps again.
const STEPS: [&str; 4] = ["normalizer", "pre_tokenizer", "post_processor", "decoder"];

/// The depth of the deepest value under each of [`STEPS`]. A key may stand there twice, as the library takes the last one.
struct Depths([usize; 4]);

impl<'de> Deserialize<'de> for Depths {
    fn deserialize<D: Deserializer<'de>>(file: D) -> std::result::Result<Self, D::Error> {
        file.deserialize_map(DepthsVisitor)
    }
}

struct DepthsVisitor;

impl<'de> Visitor<'de> for DepthsVisitor {
    type Value = Depths;

    fn expecting(&self, to: &mut Formatter) -> fmt::Result {
        to.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> std::result::Result<Depths, A::Error> {
        let mut depths = [0; STEPS.len()];
        while let Some(key) = map.next_key::<Cow<str>>()? {
            match STEPS.iter().position(|step| *step == key) {
                Some(step) => depths[step] = depths[step].max(depth(&map.next_value()?)),
                None => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(Depths(depths))
    }
}

/// Refuses steps that lie deeply in one another, before the library reads the file: it copies everything inside a step once
/// more for every step around it. What is no JSON object is an error, too: the library may panic over it.
pub(super) fn check_depth(file: &str, bytes: &[u8]) -> Result<()> {
    let Depths(depths) = match serde_json::from_slice(bytes) {
        Ok(depths) => depths,
        Err(error) if error.is_data() => return err!(CorruptData, "{file}: expected an object: {error}"),
        Err(error) => return err!(CorruptData, "{file}: expected JSON: {error}"),
    };
    for (key, found) in STEPS.into_iter().zip(depths) {
        if found > DEEPEST {
            return err!(Unsupported, "{file}: {key}: expected at most {DEEPEST} levels, found {found}");
        }
    }
    Ok(())
}

/// Levels of lists and objects in one another, which the parser keeps to about a hundred.
fn depth(value: &Value) -> usize {
    match value {
        Value::Array(list) => 1 + list.iter().map(depth).max().unwrap_or(0),
        Value::Object(object) => 1 + object.values().map(depth).max().unwrap_or(0),
        _ => 0,
    }
}

/// Refuses what makes tokens random, text endless or tokens appear twice, and switches off what outlives the tokenizer.
/// `around` is how many special tokens the post-processor says that it adds. Answers how many times as long as a text its
/// longest form on the way may be.
pub(super) fn check(library: &mut Library, file: &str, around: usize) -> Result<f64> {
    settle_model(library, file)?;
    let growth = check_growth(library, file)?;
    check_template(library, file, around)?;
    Ok(growth)
}

/// Tokens without chance, and without the cache of byte pair encoding: the library keeps one per thread and tokenizer,
/// and never removes it.
fn settle_model(library: &mut Library, file: &str) -> Result<()> {
    let ModelWrapper::BPE(model) = library.get_model() else { return Ok(()) };
    if let Some(dropout) = model.dropout.filter(|dropout| *dropout != 0.0) {
        return err!(Unsupported, "{file}: model: dropout: expected 0, found {dropout}");
    }
    let mut model = model.clone();
    model.resize_cache(0);
    library.with_model(model);
    Ok(())
}

/// How much longer than a text its longest form on the way may be.
#[derive(Debug)]
struct Growth {
    steps: usize,
    factor: f64,
    /// Character maps of SentencePiece, whose own growth is not known here.
    maps: usize,
}

impl Growth {
    const NONE: Self = Self { steps: 0, factor: 1.0, maps: 0 };

    fn step(&mut self, factor: f64) {
        self.steps += 1;
        self.factor *= factor.max(1.0);
    }

    fn normalize(&mut self, normalizer: &NormalizerWrapper) {
        match normalizer {
            NormalizerWrapper::Sequence(steps) => steps.as_ref().iter().for_each(|step| self.normalize(step)),
            NormalizerWrapper::Replace(replace) => {
                let written = serde_json::to_value(replace).unwrap_or_default();
                let pattern = written["pattern"]["String"].as_str().map_or(0, str::len);
                self.step(match (pattern, replace.content.len()) {
                    // A regular expression may match between any two bytes.
                    (0, content) => content as f64 + 1.0,
                    (pattern, content) => content as f64 / pattern as f64,
                });
            }
            // Every part of a text between added tokens gets it, and a part has at least one byte.
            NormalizerWrapper::Prepend(prepend) => self.step(1.0 + prepend.prepend.len() as f64),
            NormalizerWrapper::ByteLevel(_) => self.step(2.0),
            NormalizerWrapper::Precompiled(_) => {
                self.maps += 1;
                self.step(1.0);
            }
            // The forms of Unicode and the like grow a text once and not again.
            _ => self.step(1.0),
        }
    }

    fn split(&mut self, splitter: &PreTokenizerWrapper) {
        match splitter {
            PreTokenizerWrapper::Sequence(steps) => steps.as_ref().iter().for_each(|step| self.split(step)),
            // Two bytes for a byte, and for a space before each part.
            PreTokenizerWrapper::ByteLevel(bytes) => {
                self.step(if bytes.add_prefix_space { 4.0 } else { 2.0 })
            }
            // A character of up to four bytes for a space and before each part.
            PreTokenizerWrapper::Metaspace(_) => self.step(5.0),
            _ => self.step(1.0),
        }
    }
}

fn check_growth(library: &Library, file: &str) -> Result<f64> {
    let (mut normalizer, mut splitter) = (Growth::NONE, Growth::NONE);
    library.get_normalizer().into_iter().for_each(|step| normalizer.normalize(step));
    library.get_pre_tokenizer().into_iter().for_each(|step| splitter.split(step));
    for (key, growth) in [("normalizer", &normalizer), ("pre_tokenizer", &splitter)] {
        if growth.steps > MOST_STEPS {
            return err!(
                Unsupported,
                "{file}: {key}: expected at most {MOST_STEPS} steps, found {}",
                growth.steps
            );
        }
    }
    if normalizer.maps > 1 {
        return err!(
            Unsupported,
            "{file}: normalizer: expected one step of type Precompiled, found {}",
            normalizer.maps
        );
    }
    let factor = normalizer.factor * splitter.factor;
    match factor <= MOST_GROWTH {
        true => Ok(factor),
        false => err!(
            Unsupported,
            "{file}: normalizer and pre_tokenizer: expected text to grow {MOST_GROWTH} times at most, found {factor}"
        ),
    }
}

/// Sends made-up tokens through the post-processor: they have to come out once, in order, with as many special ones
/// around as it says, as that is what texts are cut for.
fn check_template(library: &Library, file: &str, around: usize) -> Result<()> {
    let given = [0, 1, 2];
    let tokens = given.map(|id| Token::new(id, "a".to_owned(), (id as usize, id as usize + 1)));
    let bare = Encoding::from_tokens(tokens.to_vec(), 0);
    let whole = guarded(file, || library.post_process(bare, None, true))?;
    let of_text = whole.get_ids().iter().zip(whole.get_special_tokens_mask());
    let of_text: Vec<u32> = of_text.filter(|(_, special)| **special == 0).map(|(id, _)| *id).collect();
    if of_text == given && whole.len() == given.len() + around {
        return Ok(());
    }
    err!(
        Unsupported,
        "{file}: post_processor: expected the {} tokens of a text once among {around} special ones, found {} of {} tokens",
        given.len(),
        of_text.len(),
        whole.len()
    )
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::base::Status;
    use tokenizers::PostProcessor;

    fn file(model: &str) -> Value {
        let models = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/conformance/models");
        let path = models.join(model).join("tokenizer.json");
        let bytes = std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        serde_json::from_slice(&bytes).unwrap()
    }

    fn checked(file: &Value) -> Result<Library> {
        let mut library = Library::from_bytes(file.to_string()).unwrap();
        let around = library.get_post_processor().map_or(0, |processor| processor.added_tokens(false));
        check(&mut library, "tokenizer.json", around).map(|_| library)
    }

    fn refused(file: &Value, key: &str) {
        let error = checked(file).err().unwrap_or_else(|| panic!("{key} was not refused"));
        assert_eq!(error.status, Status::Unsupported);
        assert!(error.message.starts_with(&format!("tokenizer.json: {key}")), "{error}");
    }

    #[test]
    fn tokens_are_never_random() {
        let mut roberta = file("roberta-mean");
        for harmless in [json!(null), json!(0.0)] {
            roberta["model"]["dropout"] = harmless;
            checked(&roberta).unwrap();
        }
        roberta["model"]["dropout"] = json!(0.1);
        refused(&roberta, "model: dropout: ");
    }

    #[test]
    fn text_grows_within_bounds() {
        let mut tiny = file("bert-tiny");
        let double = json!({"type": "Replace", "pattern": {"String": "a"}, "content": "aa"});
        let anything = json!({"type": "Replace", "pattern": {"Regex": "b*"}, "content": "x".repeat(70)});
        let prepend = json!({"type": "Prepend", "prepend": "x".repeat(70)});
        let sequence = |steps: Vec<Value>| json!({"type": "Sequence", "normalizers": steps});
        tiny["normalizer"] = sequence(vec![double.clone(); 6]);
        checked(&tiny).unwrap();
        for bomb in [
            sequence(vec![double.clone(); 7]),
            sequence(vec![sequence(vec![double.clone(); 4]); 4]),
            sequence(vec![json!({"type": "ByteLevel"}); 40]),
            sequence(vec![json!({"type": "Lowercase"}); 65]),
            anything,
            prepend,
        ] {
            tiny["normalizer"] = bomb;
            refused(&tiny, "normalizer");
        }
        tiny["normalizer"] = json!(null);
        let bytes =
            json!({"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true});
        tiny["pre_tokenizer"] = json!({"type": "Sequence", "pretokenizers": vec![bytes; 40]});
        refused(&tiny, "normalizer and pre_tokenizer");
    }

    #[test]
    fn steps_lie_in_one_another_within_bounds() {
        let mut tiny = file("bert-tiny");
        let nested = |levels: usize, list: &str, inner: Value| {
            (0..levels).fold(inner, |step, _| json!({"type": "Sequence", list: [step]}))
        };
        let lower_case = json!({"type": "Lowercase"});
        tiny["normalizer"] = nested(6, "normalizers", lower_case.clone());
        check_depth("tokenizer.json", tiny.to_string().as_bytes()).unwrap();
        for (key, list) in [
            ("normalizer", "normalizers"),
            ("pre_tokenizer", "pretokenizers"),
            ("post_processor", "processors"),
            ("decoder", "decoders"),
        ] {
            let mut deep = tiny.clone();
            deep[key] = nested(8, list, lower_case.clone());
            let error = check_depth("tokenizer.json", deep.to_string().as_bytes()).unwrap_err();
            assert_eq!(error.status, Status::Unsupported);
            assert_eq!(error.message, format!("tokenizer.json: {key}: expected at most 16 levels, found 17"));
        }
        let nested = nested(8, "normalizers", lower_case).to_string();
        for (first, second) in [("null", &nested[..]), (&nested[..], "null")] {
            let twice = format!(r#"{{"normalizer":{first},"normalizer":{second}}}"#);
            assert_eq!(
                check_depth("tokenizer.json", twice.as_bytes()).unwrap_err().status,
                Status::Unsupported
            );
        }
        assert!(check_depth("tokenizer.json", br#"{"decoder":null,"decoder":null, no JSON"#).is_err());
        let error = check_depth("tokenizer.json", b"no JSON").unwrap_err();
        assert!(error.message.starts_with("tokenizer.json: expected JSON: "), "{error}");
    }

    #[test]
    fn templates_have_the_text_once() {
        let mut tiny = file("bert-tiny");
        let special = |name: &str, id: u32| json!({name: {"id": name, "ids": [id], "tokens": [name]}});
        let template = |single: Value| {
            json!({"type": "TemplateProcessing", "single": single, "pair": [{"Sequence": {"id": "A", "type_id": 0}},
                {"Sequence": {"id": "B", "type_id": 1}}], "special_tokens": special("[CLS]", 2)})
        };
        let (text, class) = (
            json!({"Sequence": {"id": "A", "type_id": 0}}),
            json!({"SpecialToken": {"id": "[CLS]", "type_id": 0}}),
        );
        tiny["post_processor"] = template(json!([class, text]));
        checked(&tiny).unwrap();
        for bad in [json!([text, text]), json!([class, text, class, text]), json!([class])] {
            tiny["post_processor"] = template(bad);
            refused(&tiny, "post_processor: ");
        }
    }
}
