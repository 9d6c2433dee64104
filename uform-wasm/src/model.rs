//! Models: loading, what they are, and who shares them.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::{Rc, Weak};

use js_sys::{Array, Function, Uint8Array};
use uform::{Model, Status};
use wasm_bindgen::JsValue;
use wasm_bindgen::prelude::wasm_bindgen;

use crate::errors::{Result, failed, failure, freed};
use crate::executor::CompiledExecutor;
use crate::objects::{object, tokens};
use crate::options::{EmbedSettings, LoadSettings, count};

#[wasm_bindgen]
extern "C" {
    /// One file of a model.
    pub type ModelFile;
    #[wasm_bindgen(method, getter)]
    fn name(this: &ModelFile) -> String;
    #[wasm_bindgen(method, getter)]
    fn data(this: &ModelFile) -> Uint8Array;
}

/// A handle of a model.
#[wasm_bindgen]
pub struct CompiledModel {
    model: RefCell<Option<Rc<Model>>>,
}

thread_local! {
    /// Models that were shared, by their key, which opens them for as long as a handle of them is alive.
    static SHARED: RefCell<HashMap<String, Weak<Model>>> = RefCell::default();
    static LAST_KEY: Cell<u64> = const { Cell::new(0) };
}

impl CompiledModel {
    fn new(model: Rc<Model>) -> Self {
        Self { model: RefCell::new(Some(model)) }
    }

    /// The model, unless the handle has ended.
    pub(crate) fn model(&self) -> Result<Rc<Model>> {
        self.model.borrow().clone().ok_or_else(|| freed("model"))
    }
}

/// Texts as an array of JavaScript.
fn texts(texts: &[String]) -> JsValue {
    texts.iter().map(JsValue::from).collect::<Array>().into()
}

#[wasm_bindgen]
impl CompiledModel {
    /// Says what the model is.
    pub fn describe(&self) -> Result<JsValue> {
        let description = self.model()?.describe().map_err(failed)?;
        Ok(object([
            ("residency", description.residency.to_string().into()),
            ("precision", description.precision.to_string().into()),
            ("fileDtype", description.file_dtype.to_string().into()),
            ("normalized", description.normalized.into()),
            ("dimensions", (description.dimensions as f64).into()),
            ("defaultDimensions", (description.default_dimensions as f64).into()),
            ("tokenLimit", (description.token_limit as f64).into()),
            ("layers", (description.layers as f64).into()),
            ("heads", (description.heads as f64).into()),
            ("hidden", (description.hidden as f64).into()),
            ("intermediate", (description.intermediate as f64).into()),
            ("vocabulary", (description.vocabulary as f64).into()),
            ("parameters", (description.parameters as f64).into()),
            ("weightBytes", (description.weight_bytes as f64).into()),
            ("architecture", description.architecture.into()),
            ("pooling", description.pooling.into()),
            ("similarity", description.similarity.unwrap_or_default().into()),
            ("promptNames", texts(&description.prompt_names)),
            ("defaultPromptName", description.default_prompt_name.unwrap_or_default().into()),
            ("unreadKeys", texts(&description.unread_keys)),
        ]))
    }

    /// Splits a text into tokens.
    pub fn tokenize(&self, text: &str, settings: &EmbedSettings) -> Result<JsValue> {
        let found = self.model()?.tokenize(text, &settings.options(None)?).map_err(failed)?;
        Ok(tokens(&found))
    }

    /// Says how many bytes a call may need.
    pub fn plan(
        &self,
        executor: &CompiledExecutor,
        rows: f64,
        tokens: f64,
        settings: &EmbedSettings,
    ) -> Result<f64> {
        let (executor, options) = (executor.executor()?, settings.options(None)?);
        let bytes = self.model()?.plan(&executor, count(rows), count(tokens), &options).map_err(failed)?;
        Ok(bytes as f64)
    }

    /// Makes another handle of the model.
    #[wasm_bindgen(js_name = clone)]
    pub fn another(&self) -> Result<CompiledModel> {
        self.model().map(Self::new)
    }

    /// Makes the key that opens the model in this instance of the module.
    pub fn share(&self) -> Result<String> {
        let model = self.model()?;
        let number = LAST_KEY.get() + 1;
        LAST_KEY.set(number);
        // Other instances count too, and must not know the key.
        let key = format!("{number}-{:x}", (js_sys::Math::random() * 9_007_199_254_740_992.0) as u64);
        SHARED.with_borrow_mut(|shared| {
            shared.retain(|_, model| model.strong_count() > 0);
            shared.insert(key.clone(), Rc::downgrade(&model));
        });
        Ok(key)
    }

    /// Ends the handle.
    pub fn end(&self) {
        self.model.take();
    }
}

/// Loads a model from the bytes of its files, which are copied into this module's memory until it is loaded.
#[wasm_bindgen(js_name = loadRamFromBytes)]
pub fn load_ram_from_bytes(
    files: Vec<ModelFile>,
    executor: &CompiledExecutor,
    settings: &LoadSettings,
    progress: Option<Function>,
) -> Result<CompiledModel> {
    let (executor, options) = (executor.executor()?, settings.options(progress)?);
    let files = files.iter().map(|file| Ok((file.name(), copied(&file.data())?)));
    let files = files.collect::<Result<Vec<_>>>()?;
    let files: Vec<(&str, &[u8])> = files.iter().map(|(name, data)| (&name[..], &data[..])).collect();
    let model = Model::load_ram_from_bytes(&files, &executor, &options).map_err(failed)?;
    Ok(CompiledModel::new(Rc::new(model)))
}

/// The bytes of an array of JavaScript.
fn copied(data: &Uint8Array) -> Result<Vec<u8>> {
    let length = data.length() as usize;
    let mut bytes = Vec::new();
    if bytes.try_reserve_exact(length).is_err() {
        return Err(failure(Status::OutOfMemory, &format!("no memory for a file of {length} bytes")));
    }
    bytes.resize(length, 0);
    data.copy_to(&mut bytes);
    Ok(bytes)
}

/// Would load a model into the memory of GPUs.
#[wasm_bindgen(js_name = loadVram)]
pub fn load_vram(
    path: &str,
    executor: &CompiledExecutor,
    devices: Vec<i32>,
    settings: &LoadSettings,
    progress: Option<Function>,
) -> Result<CompiledModel> {
    let (executor, options) = (executor.executor()?, settings.options(progress)?);
    let model = Model::load_vram(path, &executor, &devices, &options).map_err(failed)?;
    Ok(CompiledModel::new(Rc::new(model)))
}

/// Opens a model that this instance shares.
#[wasm_bindgen(js_name = openShared)]
pub fn open_shared(key: &str) -> Result<CompiledModel> {
    let model = SHARED.with_borrow(|shared| shared.get(key).and_then(Weak::upgrade));
    model.map(CompiledModel::new).ok_or_else(|| {
        failure(Status::NotFound, "no handle of the shared model is alive in this instance of the module")
    })
}
