//! What Python says about a call, in the engine's words. The Python layer has turned names into numbers.

use std::borrow::Cow;

use pyo3::exceptions::PyUnicodeEncodeError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyString};

/// How texts are embedded.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct Options {
    role: i32,
    prompt: Option<String>,
    prompt_name: Option<String>,
    pub(crate) dimensions: usize,
    normalize: i32,
    length: i32,
    token_limit: usize,
    token_budget: usize,
    reproducible: bool,
    output_scale: f32,
    pub(crate) dtype: Option<i32>,
    pub(crate) reports: bool,
}

impl Options {
    pub(crate) fn to_engine(&self) -> uform::EmbedOptions {
        let prompt = match (&self.prompt, &self.prompt_name) {
            (Some(text), _) => uform::Prompt::Text(text.clone()),
            (None, Some(name)) => uform::Prompt::Name(name.clone()),
            (None, None) => uform::Prompt::Model,
        };
        uform::EmbedOptions {
            role: uform::Role::from_number(self.role).unwrap_or_default(),
            prompt,
            dimensions: self.dimensions,
            normalize: uform::Normalize::from_number(self.normalize).unwrap_or_default(),
            length: uform::Length::from_number(self.length).unwrap_or_default(),
            token_limit: self.token_limit,
            token_budget: self.token_budget,
            reproducible: self.reproducible,
            output_scale: self.output_scale,
            reports: self.reports,
            ..Default::default()
        }
    }
}

/// How a model is loaded.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct Loading {
    precision: i32,
    reading: i32,
    cpu_class: i32,
    memory_domains: Vec<i32>,
}

impl Loading {
    pub(crate) fn to_engine(&self) -> uform::LoadOptions {
        uform::LoadOptions {
            memory_domains: self.memory_domains.clone(),
            cpu_class: uform::CPUClass::from_number(self.cpu_class),
            precision: uform::Precision::from_number(self.precision).unwrap_or_default(),
            reading: uform::Reading::from_number(self.reading).unwrap_or_default(),
            ..Default::default()
        }
    }
}

/// How a model is packed.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct Packing {
    precision: i32,
    layout: i32,
}

impl Packing {
    pub(crate) fn to_engine(&self) -> uform::PackOptions {
        uform::PackOptions {
            precision: uform::Precision::from_number(self.precision).unwrap_or_default(),
            layout: uform::Layout::from_number(self.layout).unwrap_or_default(),
        }
    }
}

/// The UTF-8 of texts, which lies in the Python strings themselves. A string with lone surrogates has none; it gets bytes
/// that are no UTF-8 either, so that its row fails in the engine as it does in every language.
pub(crate) fn bytes<'a>(py: Python<'_>, texts: &'a [Bound<'_, PyString>]) -> PyResult<Vec<Cow<'a, [u8]>>> {
    let read = |text: &'a Bound<'_, PyString>| match text.to_str() {
        Ok(text) => Ok(Cow::Borrowed(text.as_bytes())),
        Err(error) if error.is_instance_of::<PyUnicodeEncodeError>(py) => {
            // The method of `str` itself, as a subclass may have another one.
            let arguments = (text, "utf-8", "surrogatepass");
            let encoded = py.get_type::<PyString>().call_method1("encode", arguments)?;
            Ok(Cow::Owned(encoded.cast::<PyBytes>()?.as_bytes().to_vec()))
        }
        Err(error) => Err(error),
    };
    texts.iter().map(read).collect()
}
