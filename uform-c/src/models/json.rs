//! Reading JSON configurations by key, with errors that name file and key, and a record of the keys nobody asked for.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde_json::{Map, Value};

use crate::base::{Result, err};

/// The object at the top of one JSON file, or one nested in it, with its keys in alphabetical order.
pub(super) struct Keys {
    file: String,
    values: Map<String, Value>,
    read: Mutex<BTreeSet<String>>,
}

/// What kind of JSON value it is, for messages.
pub(super) fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

/// A value as it is written in messages: short, on one line.
pub(super) fn shown(value: &Value) -> String {
    let text = value.to_string();
    match text.char_indices().nth(80) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

/// Parses the bytes of `file` as JSON of any kind.
pub(super) fn parse(file: &str, bytes: &[u8]) -> Result<Value> {
    match serde_json::from_slice(bytes) {
        Ok(value) => Ok(value),
        Err(error) => err!(CorruptData, "{file}: expected JSON: {error}"),
    }
}

impl Keys {
    fn read(&self) -> MutexGuard<'_, BTreeSet<String>> {
        self.read.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Parses the bytes of `file`, which must hold one JSON object.
    pub(super) fn parse(file: &str, bytes: &[u8]) -> Result<Self> {
        Self::of(file, parse(file, bytes)?)
    }

    /// Takes a parsed value, which must be an object; `file` names where it stands.
    pub(super) fn of(file: &str, value: Value) -> Result<Self> {
        match value {
            Value::Object(mut values) => {
                values.sort_keys();
                Ok(Self { file: file.to_owned(), values, read: Mutex::default() })
            }
            other => err!(CorruptData, "{file}: expected an object, found {}", kind(&other)),
        }
    }

    /// An object without keys, for a file that may be missing and is.
    pub(super) fn empty(file: &str) -> Self {
        Self { file: file.to_owned(), values: Map::new(), read: Mutex::default() }
    }

    /// The file it stands in.
    pub(super) fn file(&self) -> &str {
        &self.file
    }

    /// The value of that key; null counts as missing.
    pub(super) fn get(&self, key: &str) -> Option<&Value> {
        self.read().insert(key.to_owned());
        self.values.get(key).filter(|value| !value.is_null())
    }

    /// Every key that the file has, in alphabetical order.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.values.keys().map(String::as_str)
    }

    /// A whole number from 0 to `most`.
    pub(super) fn whole(&self, key: &str, most: u64) -> Result<Option<u64>> {
        let Some(value) = self.get(key) else { return Ok(None) };
        match whole(value) {
            Some(number) if number <= most => Ok(Some(number)),
            _ => err!(
                CorruptData,
                "{}: {key}: expected a whole number up to {most}, found {}",
                self.file,
                shown(value)
            ),
        }
    }

    /// A size: a whole number from 1 to `most`, or `default` when the key is missing.
    pub(super) fn size(&self, key: &str, default: usize, most: usize) -> Result<usize> {
        match self.whole(key, most as u64)? {
            None => Ok(default),
            Some(0) => err!(CorruptData, "{}: {key}: expected a number from 1 to {most}, found 0", self.file),
            Some(number) => Ok(number as usize),
        }
    }

    /// A finite number that is not negative.
    pub(super) fn number(&self, key: &str, default: f64) -> Result<f64> {
        let Some(value) = self.get(key) else { return Ok(default) };
        match value.as_f64() {
            Some(number) if number.is_finite() && number >= 0.0 => Ok(number),
            _ => {
                err!(CorruptData, "{}: {key}: expected a number from 0 up, found {}", self.file, shown(value))
            }
        }
    }

    /// A boolean.
    pub(super) fn flag(&self, key: &str, default: bool) -> Result<bool> {
        match self.get(key) {
            None => Ok(default),
            Some(Value::Bool(flag)) => Ok(*flag),
            Some(other) => {
                err!(CorruptData, "{}: {key}: expected a boolean, found {}", self.file, shown(other))
            }
        }
    }

    /// A string.
    pub(super) fn text(&self, key: &str) -> Result<Option<&str>> {
        match self.get(key) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(other) => {
                err!(CorruptData, "{}: {key}: expected a string, found {}", self.file, shown(other))
            }
        }
    }

    /// An `Unsupported` error unless the key is missing or has a value that changes nothing: one of `harmless`, or an
    /// empty list or object.
    pub(super) fn refuse(&self, key: &str, harmless: &[Value]) -> Result<()> {
        let Some(value) = self.get(key) else { return Ok(()) };
        let empty =
            value.as_array().is_some_and(Vec::is_empty) || value.as_object().is_some_and(Map::is_empty);
        if empty || harmless.contains(value) {
            return Ok(());
        }
        match harmless.first() {
            Some(only) => {
                err!(Unsupported, "{}: {key}: expected {}, found {}", self.file, shown(only), shown(value))
            }
            None => err!(Unsupported, "{}: {key}: not supported, found {}", self.file, shown(value)),
        }
    }

    /// The keys that were there and that nobody asked for, as `file: key`.
    pub(super) fn unread(&self) -> Vec<String> {
        let read = self.read();
        let left = self.values.keys().filter(|key| !read.contains(*key));
        left.map(|key| format!("{}: {key}", self.file)).collect()
    }
}

/// A JSON number that is whole and not negative, written as `512` or as `512.0`.
pub(super) fn whole(value: &Value) -> Option<u64> {
    let float = || value.as_f64().filter(|number| *number >= 0.0 && *number < 1e18 && number.fract() == 0.0);
    value.as_u64().or_else(|| float().map(|number| number as u64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_file_and_key_in_every_complaint() {
        let keys =
            Keys::parse("config.json", br#"{"a": -1, "b": "x", "c": 2.5, "d": 3.0, "e": null, "f": []}"#)
                .unwrap();
        assert_eq!(keys.size("d", 7, 10).unwrap(), 3);
        assert_eq!(keys.size("e", 7, 10).unwrap(), 7);
        keys.refuse("f", &[]).unwrap();
        for message in [
            keys.size("a", 1, 10).unwrap_err().message,
            keys.size("c", 1, 10).unwrap_err().message,
            keys.flag("b", false).unwrap_err().message,
            keys.size("d", 1, 2).unwrap_err().message,
            keys.refuse("b", &[Value::Bool(false)]).unwrap_err().message,
        ] {
            assert!(message.starts_with("config.json: ") && message.contains("found"), "{message}");
        }
    }

    #[test]
    fn reports_what_nobody_read() {
        let keys = Keys::parse("a.json", br#"{"x": 1, "y": 2, "z": 3}"#).unwrap();
        keys.size("y", 1, 9).unwrap();
        assert_eq!(keys.unread(), ["a.json: x", "a.json: z"]);
    }

    #[test]
    fn refuses_what_is_not_an_object() {
        for text in ["", "[]", "3", "{", "{\"a\":}", "\u{feff}{}"] {
            assert!(Keys::parse("a.json", text.as_bytes()).is_err(), "{text:?}");
        }
    }
}
