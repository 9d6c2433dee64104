//! The architectures that are read: one row each. A newcomer adds a file beside this one and a row here.

use crate::base::{Result, err};

use super::bert::{self, Layout};
use super::json::Keys;

/// One architecture: how its configuration names it, and how its weights are laid out.
pub(super) struct Architecture {
    /// The value of `model_type` in `config.json`.
    pub(super) model_type: &'static str,
    /// What every entry of `architectures` starts with, as `BertForMaskedLM`.
    class_prefix: &'static str,
    /// Keys and names of the BERT family's graph in the spelling of this architecture.
    pub(super) layout: &'static Layout,
}

const ARCHITECTURES: &[Architecture] = &[
    Architecture { model_type: "bert", class_prefix: "Bert", layout: &bert::BERT },
    Architecture { model_type: "roberta", class_prefix: "Roberta", layout: &bert::ROBERTA },
    Architecture { model_type: "xlm-roberta", class_prefix: "XLMRoberta", layout: &bert::ROBERTA },
    Architecture { model_type: "distilbert", class_prefix: "DistilBert", layout: &bert::DISTILBERT },
];

/// Heads that turn the encoder into a model with another graph.
const OTHER_GRAPHS: &[&str] = &["LMHeadModel", "ForCausalLM"];

/// The row for what `config.json` names.
pub(super) fn find(config: &Keys) -> Result<&'static Architecture> {
    let known: Vec<&str> = ARCHITECTURES.iter().map(|row| row.model_type).collect();
    let file = config.file();
    let Some(model_type) = config.text("model_type")? else {
        return err!(CorruptData, "{file}: model_type: expected one of {}, found none", known.join(", "));
    };
    let Some(row) = ARCHITECTURES.iter().find(|row| row.model_type == model_type) else {
        return err!(
            Unsupported,
            "{file}: model_type: expected one of {}, found {model_type:?}",
            known.join(", ")
        );
    };
    let classes = match config.get("architectures") {
        None => &[],
        Some(serde_json::Value::Array(classes)) => &classes[..],
        Some(other) => {
            return err!(
                CorruptData,
                "{file}: architectures: expected a list, found {}",
                super::json::shown(other)
            );
        }
    };
    for class in classes {
        let name = class.as_str().unwrap_or_default();
        let rest = name.strip_prefix(row.class_prefix);
        if rest
            .is_none_or(|rest| !(rest == "Model" || rest.starts_with("For")) || OTHER_GRAPHS.contains(&rest))
        {
            let expected = format!("{0}Model or {0}For…", row.class_prefix);
            return err!(
                Unsupported,
                "{file}: architectures: expected {expected}, found {}",
                super::json::shown(class)
            );
        }
    }
    Ok(row)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_known_architectures_are_found() {
        let find = |text: &str| {
            find(&Keys::parse("config.json", text.as_bytes()).unwrap()).map(|row| row.model_type)
        };
        for (text, expected) in [
            (r#"{"model_type": "bert"}"#, "bert"),
            (r#"{"model_type": "bert", "architectures": ["BertForMaskedLM"]}"#, "bert"),
            (r#"{"model_type": "xlm-roberta", "architectures": ["XLMRobertaModel"]}"#, "xlm-roberta"),
            (r#"{"model_type": "distilbert", "architectures": null}"#, "distilbert"),
        ] {
            assert_eq!(find(text).unwrap(), expected);
        }
        for text in [
            "{}",
            r#"{"model_type": 3}"#,
            r#"{"model_type": "mamba"}"#,
            r#"{"model_type": "bert", "architectures": ["JinaBertForMaskedLM"]}"#,
            r#"{"model_type": "bert", "architectures": ["BertLMHeadModel"]}"#,
            r#"{"model_type": "bert", "architectures": "BertModel"}"#,
            r#"{"model_type": "bert", "architectures": [null]}"#,
        ] {
            let error = find(text).unwrap_err();
            assert!(error.message.starts_with("config.json: "), "{text}: {error}");
        }
    }
}
