//! Options as they cross from the TypeScript layer, turned into those of the crate.

use napi_derive::napi;
use uform::{
    CPUClass, Dtype, EmbedOptions, GPUClass, Layout, Length, LoadOptions, Normalize, PackOptions, Precision,
    Progress, Prompt, Reading, Role, Status,
};

use crate::errors::{Result, failed, failure};

/// How a model is loaded.
#[napi(object, object_to_js = false)]
pub struct LoadSettings {
    /// A number of `Precision`.
    pub precision: i32,
    /// A number of `Reading`.
    pub reading: i32,
    /// The name of a class.
    pub cpu_class: Option<String>,
    /// NUMA domains.
    pub memory_domains: Vec<i32>,
}

/// How a model is packed.
#[napi(object, object_to_js = false)]
pub struct PackSettings {
    /// A number of `Precision`.
    pub precision: i32,
    /// A number of `Layout`.
    pub layout: i32,
}

impl PackSettings {
    /// The options of the crate.
    pub(crate) fn options(&self) -> Result<PackOptions> {
        Ok(PackOptions {
            precision: numbered("precision", self.precision, Precision::from_number(self.precision))?,
            layout: numbered("layout", self.layout, Layout::from_number(self.layout))?,
        })
    }
}

/// How texts are embedded.
#[napi(object, object_to_js = false)]
pub struct EmbedSettings {
    /// A number of `Role`.
    pub role: i32,
    /// A number of `Normalize`.
    pub normalize: i32,
    /// A number of `Length`.
    pub length: i32,
    /// Whether the bits must be those of any batch.
    pub reproducible: bool,
    /// A prompt by its name.
    pub prompt_name: Option<String>,
    /// A prompt by its text.
    pub prompt: Option<String>,
    /// Dimensions that are kept, or zero.
    pub dimensions: f64,
    /// Tokens of a text, or zero.
    pub token_limit: f64,
    /// Tokens of a block, or zero.
    pub token_budget: f64,
    /// The scale of bytes, or zero.
    pub output_scale: f64,
    /// A number of `Dtype`.
    pub dtype: i32,
    /// Whether reports are wanted.
    pub reports: bool,
}

/// The value of an enumeration that has this number.
fn numbered<T>(noun: &str, number: i32, value: Option<T>) -> Result<T> {
    value.ok_or_else(|| failure(Status::InvalidArgument, format!("{noun}: there is no number {number}")))
}

/// A count that crossed as a number of JavaScript, which the layer above has checked to be whole.
pub(crate) fn count(number: f64) -> usize {
    number as usize
}

/// An element type by its number.
pub(crate) fn dtype(number: i32) -> Result<Dtype> {
    numbered("dtype", number, Dtype::from_number(number))
}

/// A CPU class by its name.
pub(crate) fn cpu_class(name: Option<&str>) -> Result<Option<CPUClass>> {
    name.map(|name| name.parse().map_err(failed)).transpose()
}

/// A GPU class by its name.
pub(crate) fn gpu_class(name: Option<&str>) -> Result<Option<GPUClass>> {
    name.map(|name| name.parse().map_err(failed)).transpose()
}

impl LoadSettings {
    /// The options of the crate.
    pub(crate) fn options(self, progress: Option<Progress>) -> Result<LoadOptions> {
        Ok(LoadOptions {
            memory_domains: self.memory_domains,
            cpu_class: cpu_class(self.cpu_class.as_deref())?,
            precision: numbered("precision", self.precision, Precision::from_number(self.precision))?,
            reading: numbered("reading", self.reading, Reading::from_number(self.reading))?,
            progress,
        })
    }
}

impl EmbedSettings {
    /// The options of the crate, without a progress callback.
    pub(crate) fn options(self) -> Result<EmbedOptions> {
        let prompt = match (self.prompt, self.prompt_name) {
            (Some(text), _) => Prompt::Text(text),
            (None, Some(name)) => Prompt::Name(name),
            (None, None) => Prompt::Model,
        };
        Ok(EmbedOptions {
            role: numbered("role", self.role, Role::from_number(self.role))?,
            prompt,
            dimensions: count(self.dimensions),
            normalize: numbered("normalize", self.normalize, Normalize::from_number(self.normalize))?,
            length: numbered("length", self.length, Length::from_number(self.length))?,
            token_limit: count(self.token_limit),
            token_budget: count(self.token_budget),
            reproducible: self.reproducible,
            output_scale: self.output_scale as f32,
            dtype: dtype(self.dtype)?,
            reports: self.reports,
            progress: None,
        })
    }
}
