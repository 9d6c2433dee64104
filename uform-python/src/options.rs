//! What Python says about a call, in the engine's words. The Python layer has turned names into numbers.

use pyo3::prelude::*;
use pyo3::types::PyString;

use crate::errors;

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

/// The UTF-8 of texts, which lies in the Python strings themselves.
pub(crate) fn utf8<'a>(py: Python<'_>, texts: &'a [Bound<'_, PyString>]) -> PyResult<Vec<&'a str>> {
    let read = |(row, text): (usize, &'a Bound<'_, PyString>)| {
        text.to_str().map_err(|error| {
            let failure = errors::invalid(py, &format!("texts[{row}] is not Unicode: {}", error.value(py)));
            failure.set_cause(py, Some(error));
            failure
        })
    };
    texts.iter().enumerate().map(read).collect()
}
