//! Options as they cross from the TypeScript layer, turned into those of the crate.

use js_sys::Function;
use uform::{
    CPUClass, Dtype, EmbedOptions, GPUClass, Length, LoadOptions, Normalize, Precision, Prompt, Reading,
    Role, Status,
};
use wasm_bindgen::prelude::wasm_bindgen;

use crate::errors::{Result, failed, failure};
use crate::progress::progress;

#[wasm_bindgen]
extern "C" {
    /// How a model is loaded.
    pub type LoadSettings;
    #[wasm_bindgen(method, getter)]
    fn precision(this: &LoadSettings) -> i32;
    #[wasm_bindgen(method, getter)]
    fn reading(this: &LoadSettings) -> i32;
    #[wasm_bindgen(method, getter, js_name = cpuClass)]
    fn cpu_class(this: &LoadSettings) -> Option<String>;
    #[wasm_bindgen(method, getter, js_name = memoryDomains)]
    fn memory_domains(this: &LoadSettings) -> Vec<i32>;

    /// How texts are embedded.
    pub type EmbedSettings;
    #[wasm_bindgen(method, getter)]
    fn role(this: &EmbedSettings) -> i32;
    #[wasm_bindgen(method, getter)]
    fn normalize(this: &EmbedSettings) -> i32;
    #[wasm_bindgen(method, getter)]
    fn length(this: &EmbedSettings) -> i32;
    #[wasm_bindgen(method, getter)]
    fn reproducible(this: &EmbedSettings) -> bool;
    #[wasm_bindgen(method, getter, js_name = promptName)]
    fn prompt_name(this: &EmbedSettings) -> Option<String>;
    #[wasm_bindgen(method, getter)]
    fn prompt(this: &EmbedSettings) -> Option<String>;
    #[wasm_bindgen(method, getter)]
    fn dimensions(this: &EmbedSettings) -> f64;
    #[wasm_bindgen(method, getter, js_name = tokenLimit)]
    fn token_limit(this: &EmbedSettings) -> f64;
    #[wasm_bindgen(method, getter, js_name = tokenBudget)]
    fn token_budget(this: &EmbedSettings) -> f64;
    #[wasm_bindgen(method, getter, js_name = outputScale)]
    fn output_scale(this: &EmbedSettings) -> f64;
    #[wasm_bindgen(method, getter)]
    fn dtype(this: &EmbedSettings) -> i32;
    #[wasm_bindgen(method, getter)]
    fn reports(this: &EmbedSettings) -> bool;
}

/// The value of an enumeration that has this number.
fn numbered<T>(noun: &str, number: i32, value: Option<T>) -> Result<T> {
    value.ok_or_else(|| failure(Status::InvalidArgument, &format!("{noun}: there is no number {number}")))
}

/// A count that crossed as a number of JavaScript, which the layer above has checked to be whole. One beyond the addresses of
/// this machine becomes the greatest.
pub(crate) fn count(number: f64) -> usize {
    number as usize
}

/// An element type by its number.
pub(crate) fn dtype(number: i32) -> Result<Dtype> {
    numbered("dtype", number, Dtype::from_number(number))
}

/// A CPU class by its name.
pub(crate) fn cpu_class(name: Option<String>) -> Result<Option<CPUClass>> {
    name.map(|name| name.parse().map_err(failed)).transpose()
}

/// A GPU class by its name.
pub(crate) fn gpu_class(name: Option<String>) -> Result<Option<GPUClass>> {
    name.map(|name| name.parse().map_err(failed)).transpose()
}

impl LoadSettings {
    /// The options of the crate.
    pub(crate) fn options(&self, callback: Option<Function>) -> Result<LoadOptions> {
        let (precision, reading) = (self.precision(), self.reading());
        Ok(LoadOptions {
            memory_domains: self.memory_domains(),
            cpu_class: cpu_class(self.cpu_class())?,
            precision: numbered("precision", precision, Precision::from_number(precision))?,
            reading: numbered("reading", reading, Reading::from_number(reading))?,
            progress: progress(callback),
        })
    }
}

impl EmbedSettings {
    /// The options of the crate.
    pub(crate) fn options(&self, callback: Option<Function>) -> Result<EmbedOptions> {
        let prompt = match (self.prompt(), self.prompt_name()) {
            (Some(text), _) => Prompt::Text(text),
            (None, Some(name)) => Prompt::Name(name),
            (None, None) => Prompt::Model,
        };
        let (role, normalize, length) = (self.role(), self.normalize(), self.length());
        Ok(EmbedOptions {
            role: numbered("role", role, Role::from_number(role))?,
            prompt,
            dimensions: count(self.dimensions()),
            normalize: numbered("normalize", normalize, Normalize::from_number(normalize))?,
            length: numbered("length", length, Length::from_number(length))?,
            token_limit: count(self.token_limit()),
            token_budget: count(self.token_budget()),
            reproducible: self.reproducible(),
            output_scale: self.output_scale() as f32,
            dtype: dtype(self.dtype())?,
            reports: self.reports(),
            progress: progress(callback),
        })
    }
}
