//! Models.

use std::cell::{Cell, RefCell};
use std::sync::Arc;

use napi::Env;
use napi::bindgen_prelude::ObjectFinalize;
use napi_derive::napi;
use uform::{Model, ModelDescription};

use crate::errors::{Result, failed, freed, refused};
use crate::executor::{CompiledExecutor, on_executor};
use crate::options::{EmbedSettings, PackSettings, count};
use crate::rows::TextToken;
use crate::shared::SharedModel;

/// A handle of a model.
#[napi(custom_finalize)]
pub struct CompiledModel {
    model: RefCell<Option<Arc<SharedModel>>>,
    /// Bytes that the collector was told of, so that it sees more in a forgotten model than a small object.
    accounted: Cell<i64>,
}

/// What a model is.
#[napi(object, object_from_js = false)]
pub struct DescribedModel {
    /// Where the weights lie.
    pub residency: String,
    /// The type of the matmuls' inputs.
    pub precision: String,
    /// The type of the weights in the file.
    pub file_dtype: String,
    /// Whether rows have norm one.
    pub normalized: bool,
    /// Dimensions of a row.
    pub dimensions: f64,
    /// Dimensions of a row unless the options say otherwise.
    pub default_dimensions: f64,
    /// The most tokens of a text.
    pub token_limit: f64,
    /// Layers of the encoder.
    pub layers: f64,
    /// Attention heads of a layer.
    pub heads: f64,
    /// Dimensions of a token inside.
    pub hidden: f64,
    pub intermediate: f64,
    /// Tokens of the vocabulary.
    pub vocabulary: f64,
    /// Learned numbers.
    pub parameters: f64,
    /// Bytes of weights.
    pub weight_bytes: f64,
    /// The architecture.
    pub architecture: String,
    /// The modes of pooling.
    pub pooling: String,
    /// How vectors are compared.
    pub similarity: String,
    /// The model's prompts.
    pub prompt_names: Vec<String>,
    /// The default prompt.
    pub default_prompt_name: String,
    /// Keys without influence.
    pub unread_keys: Vec<String>,
}

impl From<ModelDescription> for DescribedModel {
    fn from(description: ModelDescription) -> Self {
        Self {
            residency: description.residency.to_string(),
            precision: description.precision.to_string(),
            file_dtype: description.file_dtype.to_string(),
            normalized: description.normalized,
            dimensions: description.dimensions as f64,
            default_dimensions: description.default_dimensions as f64,
            token_limit: description.token_limit as f64,
            layers: description.layers as f64,
            heads: description.heads as f64,
            hidden: description.hidden as f64,
            intermediate: description.intermediate as f64,
            vocabulary: description.vocabulary as f64,
            parameters: description.parameters as f64,
            weight_bytes: description.weight_bytes as f64,
            architecture: description.architecture,
            pooling: description.pooling,
            similarity: description.similarity.unwrap_or_default(),
            prompt_names: description.prompt_names,
            default_prompt_name: description.default_prompt_name.unwrap_or_default(),
            unread_keys: description.unread_keys,
        }
    }
}

impl CompiledModel {
    /// A handle of a model that others share.
    pub(crate) fn new(model: Arc<SharedModel>) -> Self {
        Self { model: RefCell::new(Some(model)), accounted: Cell::new(0) }
    }

    /// The first handle of a model, which stands for its memory.
    pub(crate) fn loaded(env: &Env, model: Model) -> Result<Self> {
        let weights = model.describe().map_err(failed)?.weight_bytes;
        let handle = Self::new(SharedModel::new(model));
        handle.accounted.set(i64::try_from(weights).unwrap_or(i64::MAX));
        env.adjust_external_memory(handle.accounted.get()).map_err(refused)?;
        Ok(handle)
    }

    fn end(&self, env: &Env) -> napi::Result<()> {
        self.model.take();
        match self.accounted.take() {
            0 => Ok(()),
            bytes => env.adjust_external_memory(-bytes).map(|_| ()),
        }
    }

    /// The model, unless the handle has been freed.
    pub(crate) fn model(&self) -> Result<Arc<SharedModel>> {
        self.model.borrow().clone().ok_or_else(|| freed("model"))
    }
}

#[napi]
impl CompiledModel {
    /// Says what the model is.
    #[napi]
    pub fn describe(&self) -> Result<DescribedModel> {
        self.model()?.describe().map(DescribedModel::from).map_err(failed)
    }

    /// Splits a text into tokens.
    #[napi]
    pub fn tokenize(&self, text: String, settings: EmbedSettings) -> Result<Vec<TextToken>> {
        let tokens = self.model()?.tokenize(&text, &settings.options()?).map_err(failed)?;
        Ok(tokens.into_iter().map(TextToken::from).collect())
    }

    /// Says how many bytes a call may need.
    #[napi]
    pub fn plan(
        &self,
        executor: Option<&CompiledExecutor>,
        rows: f64,
        tokens: f64,
        settings: EmbedSettings,
    ) -> Result<f64> {
        let model = self.model()?;
        let cell = executor.map(CompiledExecutor::cell).transpose()?;
        let options = settings.options()?;
        let bytes = on_executor(cell.as_deref(), |executor| {
            model.plan(executor, count(rows), count(tokens), &options)
        })?;
        Ok(bytes as f64)
    }

    /// Makes another handle of the model.
    #[napi(js_name = "clone")]
    pub fn another(&self) -> Result<CompiledModel> {
        self.model().map(Self::new)
    }

    /// Makes the key that opens the model on other threads.
    #[napi]
    pub fn share(&self) -> Result<String> {
        Ok(self.model()?.share())
    }

    /// Ends the handle.
    #[napi]
    pub fn free(&self, env: &Env) -> Result<()> {
        self.end(env).map_err(refused)
    }
}

impl ObjectFinalize for CompiledModel {
    fn finalize(self, env: Env) -> napi::Result<()> {
        self.end(&env)
    }
}

/// Writes a model as one file.
#[napi]
pub fn pack(path: String, destination: String, settings: PackSettings) -> Result<()> {
    Model::pack(path, destination, &settings.options()?).map_err(failed)
}

/// Opens a model that another thread shares.
#[napi]
pub fn open_shared(key: String) -> Result<CompiledModel> {
    SharedModel::open(&key).map(CompiledModel::new)
}
