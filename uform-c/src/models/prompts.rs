//! Prompts and roles, byte for byte as sentence-transformers applies them.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::base::{Result, err};

use super::json::{self, Keys};

/// What a text is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(u32)]
pub enum Role {
    /// Nothing in particular: the model's default prompt, if it names one (`encode` of the reference).
    #[default]
    AsGiven = 0,
    /// A question that looks for documents (`encode_query`).
    Query = 1,
    /// A document that is looked for (`encode_document`).
    Document = 2,
}

impl Role {
    /// The role of that number, if there is one.
    pub fn from_number(number: u32) -> Option<Self> {
        [Self::AsGiven, Self::Query, Self::Document].into_iter().find(|role| *role as u32 == number)
    }
}

/// What is put before every text.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Prompt<'a> {
    /// What the model has for the role.
    #[default]
    Model,
    /// The model's prompt of that name.
    Name(&'a str),
    /// This text itself; empty for none.
    Text(&'a str),
}

/// The prompts of a model.
#[derive(Debug)]
pub(super) struct Prompts {
    by_name: BTreeMap<String, String>,
    default: Option<String>,
}

impl Prompts {
    /// Reads `prompts` and `default_prompt_name`. As in the reference, `query` and `document` are always there, empty
    /// unless the file has them.
    pub(super) fn read(keys: &Keys) -> Result<Self> {
        let mut by_name: BTreeMap<String, String> =
            ["query", "document"].map(|name| (name.to_owned(), String::new())).into();
        let file = keys.file();
        match keys.get("prompts") {
            None => {}
            Some(Value::Object(prompts)) => {
                for (name, text) in prompts {
                    let text = match text {
                        Value::String(text) => text.clone(),
                        Value::Null => String::new(),
                        other => {
                            let found = json::shown(other);
                            return err!(
                                CorruptData,
                                "{file}: prompts: {name}: expected a text, found {found}"
                            );
                        }
                    };
                    by_name.insert(name.clone(), text);
                }
            }
            Some(other) => {
                return err!(
                    CorruptData,
                    "{file}: prompts: expected an object, found {}",
                    json::shown(other)
                );
            }
        }
        let default = keys.text("default_prompt_name")?.map(str::to_owned);
        let prompts = Self { by_name, default };
        if let Some(name) = prompts.default.as_deref().filter(|name| !prompts.by_name.contains_key(*name)) {
            let names = prompts.names();
            return err!(CorruptData, "{file}: default_prompt_name: expected one of {names}, found {name:?}");
        }
        Ok(prompts)
    }

    /// The prompt for a text of that role; empty for none.
    pub(super) fn find<'p>(&'p self, role: Role, prompt: Prompt<'p>) -> Result<&'p str> {
        let name = match (prompt, role) {
            (Prompt::Text(text), _) => return Ok(text),
            (Prompt::Name(name), _) => name,
            (Prompt::Model, Role::Query) => "query",
            // `encode_document` also looks for `passage` and `corpus`, but only where there is no `document`, and there
            // always is one.
            (Prompt::Model, Role::Document) => "document",
            (Prompt::Model, Role::AsGiven) => match &self.default {
                Some(name) => name,
                None => return Ok(""),
            },
        };
        match self.by_name.get(name) {
            Some(text) => Ok(text),
            None => err!(NotFound, "prompt {name:?}: the model has {}", self.names()),
        }
    }

    fn names(&self) -> String {
        self.by_name.keys().map(|name| format!("{name:?}")).collect::<Vec<_>>().join(", ")
    }

    /// All of them, by name.
    pub(super) fn all(&self) -> impl Iterator<Item = (&str, &str)> {
        self.by_name.iter().map(|(name, text)| (name.as_str(), text.as_str()))
    }

    /// The name of the one that is used where neither role nor prompt is given.
    pub(super) fn default_name(&self) -> Option<&str> {
        self.default.as_deref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Prompts> {
        Prompts::read(&Keys::parse("config_sentence_transformers.json", text.as_bytes()).unwrap())
    }

    #[test]
    fn roles_find_their_prompts() {
        let plain = read("{}").unwrap();
        for role in [Role::AsGiven, Role::Query, Role::Document] {
            assert_eq!(plain.find(role, Prompt::Model).unwrap(), "");
        }
        let e5 = read(
            r#"{"prompts": {"query": "query: ", "passage": "passage: "}, "default_prompt_name": "passage"}"#,
        )
        .unwrap();
        assert_eq!(e5.find(Role::Query, Prompt::Model).unwrap(), "query: ");
        assert_eq!(e5.find(Role::Document, Prompt::Model).unwrap(), "");
        assert_eq!(e5.find(Role::AsGiven, Prompt::Model).unwrap(), "passage: ");
        assert_eq!(e5.find(Role::Query, Prompt::Name("passage")).unwrap(), "passage: ");
        assert_eq!(e5.find(Role::Query, Prompt::Text("")).unwrap(), "");
        let error = e5.find(Role::Query, Prompt::Name("other")).unwrap_err();
        assert_eq!(error.message, r#"prompt "other": the model has "document", "passage", "query""#);
    }

    #[test]
    fn bad_prompts_are_errors() {
        for text in [r#"{"prompts": []}"#, r#"{"prompts": {"a": 3}}"#, r#"{"default_prompt_name": "a"}"#] {
            assert!(
                read(text).unwrap_err().message.starts_with("config_sentence_transformers.json: "),
                "{text}"
            );
        }
    }
}
