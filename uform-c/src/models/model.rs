//! A model: loading it, and what there is to know about it.

use std::fmt;
use std::sync::Arc;

use crate::base::{Dtype, Result, err};
use crate::executors::{Alone, Context, Executor, Team};
use crate::kernels::for_class;
use crate::system::budget::Budget;
use crate::system::cpu::{self, CpuClass};
use crate::system::topology::Topology;

use super::bert::Encoder;
use super::config::Shape;
use super::finish::Finish;
use super::json::Keys;
use super::loading::{Loading, Slot};
use super::modules::Plan;
use super::prompts::Prompts;
use super::registry;
use super::source::{Files, Reading, Source};
use super::tensors::Tensors;
use super::tokenizer::{Settings, Tokenizer};
use super::{embed::Progress, limit};

/// The type of the factors of a transformer's matrix products. Sums are f32, or whole numbers of i8; embeddings, norms, pooling
/// and the modules behind it are in f32 in each.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(u32)]
pub enum Precision {
    /// The type of the weights' file where the class has instructions for it, else f32.
    #[default]
    Auto = 0,
    /// IEEE 754 binary32.
    F32 = 1,
    /// The upper half of a binary32; so are the factors of attention where the class has it.
    Bf16 = 2,
    /// IEEE 754 binary16, with attention in f32.
    F16 = 3,
    /// Signed bytes with scales per row and per output channel; attention is as in bf16.
    I8 = 4,
}

impl Precision {
    /// The precision of that number, if there is one.
    pub fn from_number(number: u32) -> Option<Self> {
        let all = [Self::Auto, Self::F32, Self::Bf16, Self::F16, Self::I8];
        all.into_iter().find(|precision| *precision as u32 == number)
    }

    /// The type that weights are packed in, where it is named.
    pub(super) fn dtype(self) -> Option<Dtype> {
        match self {
            Self::Auto => None,
            Self::F32 => Some(Dtype::F32),
            Self::Bf16 => Some(Dtype::Bf16),
            Self::F16 => Some(Dtype::F16),
            Self::I8 => Some(Dtype::I8),
        }
    }

    /// The precision of models whose weights are packed in that type.
    fn of(dtype: Dtype) -> Self {
        match dtype {
            Dtype::F32 => Self::F32,
            Dtype::Bf16 => Self::Bf16,
            Dtype::F16 => Self::F16,
            Dtype::I8 => Self::I8,
            Dtype::U8 | Dtype::B1 => unreachable!("weights are never packed in this type"),
        }
    }

    /// Its name in messages.
    pub fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::F32 => "f32",
            Self::Bf16 => "bf16",
            Self::F16 => "f16",
            Self::I8 => "i8",
        }
    }
}

/// How a model is loaded.
#[derive(Clone, Default)]
pub struct LoadOptions<'a> {
    /// Memory domains over which the weights are spread; none for all.
    pub memory_domains: Vec<i32>,
    /// The class for which the weights are laid out, one that this machine runs; all classes of an instruction-set family
    /// read the same layout.
    pub class: Option<CpuClass>,
    /// The type of the inputs of matrix multiplications.
    pub precision: Precision,
    /// How weights are read.
    pub reading: Reading,
    /// Told on the calling thread how many of the bytes of the weights' files are read; an answer of false cancels.
    pub progress: Option<Progress<'a>>,
}

impl LoadOptions<'_> {
    /// The type that weights are packed in: the one that was asked for, else that of the file if the class that the
    /// weights are for, `executing` where none was named, has instructions for it. For a packed file it was asked for when
    /// that was packed.
    fn dtype(&self, tensors: &Tensors, executing: CpuClass) -> Result<Dtype> {
        let kernels = for_class(self.class.unwrap_or(executing))?;
        match self.precision.dtype() {
            None if tensors.format().is_some() || kernels.is_native(tensors.stored_dtype()) => {
                Ok(tensors.stored_dtype())
            }
            asked => {
                let asked = asked.unwrap_or(Dtype::F32);
                tensors.format().map_or(Ok(()), |format| format.allow(asked))?;
                Ok(asked)
            }
        }
    }

    /// The memory domains to spread weights over; none where the machine has but one.
    fn placement(&self) -> Result<Vec<i32>> {
        let topology = Topology::of_machine(&Budget::of_process());
        let chosen = topology.choose(&self.memory_domains)?;
        Ok(match topology.domains.len() {
            0 | 1 => Vec::new(),
            _ => chosen.iter().map(|domain| domain.number).collect(),
        })
    }
}

/// What a model is.
#[derive(Clone, PartialEq, Debug)]
pub struct Description {
    /// The `model_type` of its configuration.
    pub architecture: &'static str,
    /// Elements of a vector.
    pub dimensions: usize,
    /// Elements of a vector where the caller asks for no number: fewer where the model's files say so.
    pub default_dimensions: usize,
    /// The most tokens of a text, the special ones among them.
    pub token_limit: usize,
    /// Special tokens that are put around a text.
    pub special_tokens: usize,
    /// Rows of its vocabulary.
    pub vocabulary: usize,
    /// Layers of its transformer.
    pub layers: usize,
    /// Elements of the vector of a token.
    pub hidden: usize,
    /// Elements of it inside a feed-forward block.
    pub intermediate: usize,
    /// Heads of its attention.
    pub heads: usize,
    /// The ways of pooling, by their names in sentence-transformers.
    pub pooling: Vec<&'static str>,
    /// Whether its vectors have length one.
    pub normalizes: bool,
    /// Its prompts by name; an empty one is none.
    pub prompts: Vec<(String, String)>,
    /// The prompt for texts without a role.
    pub default_prompt: Option<String>,
    /// `similarity_fn_name` of its files: what compares its vectors, one of `cosine`, `dot`, `euclidean` and `manhattan`.
    pub similarity: Option<String>,
    /// How many numbers its weights are.
    pub parameters: u64,
    /// Bytes that its weights take, in memory or in the mapped file.
    pub weight_bytes: u64,
    /// The type that most of the weights have in the file.
    pub file_dtype: Dtype,
    /// The type of the inputs of its matrix multiplications.
    pub precision: Precision,
    /// Keys of its files that nothing here reads, as `file: key`.
    pub unread: Vec<String>,
}

/// Weights, tokenizer and rules of one model: immutable, shared by threads and executors through an [`Arc`].
pub struct Model {
    pub(super) encoder: Encoder,
    pub(super) tokenizer: Tokenizer,
    pub(super) prompts: Prompts,
    pub(super) finish: Finish,
    pub(super) default_dimensions: usize,
    description: Description,
}

impl fmt::Debug for Model {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Model")
            .field("architecture", &self.description.architecture)
            .finish_non_exhaustive()
    }
}

/// An optional JSON file of a directory.
fn optional(files: &Files, name: String) -> Result<Keys> {
    match files.text(&name)? {
        Some(bytes) => Keys::parse(&name, &bytes),
        None => Ok(Keys::empty(&name)),
    }
}

fn required(files: &Files, name: &str) -> Result<Vec<u8>> {
    match files.text(name)? {
        Some(bytes) => Ok(bytes),
        None => err!(NotFound, "{name}: no such file in {}", files.place()),
    }
}

/// Names under which sentence-transformers looks for the settings of its transformer, in this order.
const SENTENCE_CONFIGS: [&str; 7] = [
    "sentence_bert_config.json",
    "sentence_roberta_config.json",
    "sentence_distilbert_config.json",
    "sentence_camembert_config.json",
    "sentence_albert_config.json",
    "sentence_xlm-roberta_config.json",
    "sentence_xlnet_config.json",
];

/// The settings of the transformer: those of the first file that is there and not empty.
fn sentence_config(files: &Files, folder: &str) -> Result<Keys> {
    for name in SENTENCE_CONFIGS {
        let keys = optional(files, format!("{folder}{name}"))?;
        if keys.names().next().is_some() {
            let text = [serde_json::Value::from("feature-extraction")];
            keys.refuse("transformer_task", &text)?;
            for key in ["query_length", "document_length", "query_expansion", "processing_kwargs"] {
                keys.refuse(key, &[])?;
            }
            for key in [
                "model_args",
                "tokenizer_args",
                "config_args",
                "model_kwargs",
                "processor_kwargs",
                "config_kwargs",
            ] {
                keys.refuse(key, &[])?;
            }
            keys.refuse("tokenizer_name_or_path", &[])?;
            keys.refuse("module_output_name", &[serde_json::Value::from("token_embeddings")])?;
            return Ok(keys);
        }
    }
    Ok(Keys::empty("sentence_bert_config.json"))
}

/// `config_sentence_transformers.json`, which the reference reads beside a `modules.json` only.
fn library_config(files: &Files, declared: bool) -> Result<Keys> {
    let name = "config_sentence_transformers.json";
    if !declared {
        return Ok(Keys::empty(name));
    }
    let keys = optional(files, name.to_owned())?;
    keys.refuse("model_type", &[serde_json::Value::from("SentenceTransformer")])?;
    Ok(keys)
}

/// What the reference compares vectors with; it passes over every other name.
const SIMILARITIES: [&str; 4] = ["cosine", "dot", "euclidean", "manhattan"];

fn similarity(library: &Keys, unread: &mut Vec<String>) -> Option<String> {
    let key = "similarity_fn_name";
    let found = library.get(key)?;
    let known = found.as_str().filter(|name| SIMILARITIES.contains(name)).map(str::to_owned);
    if known.is_none() {
        unread.push(format!("{}: {key}", library.file()));
    }
    known
}

impl Model {
    /// Loads a model into memory, on the threads of `executor` or else on the calling thread. The model does not keep the
    /// executor. `Unsupported` names what this engine does not compute, `CorruptData` the file and key that contradict
    /// themselves, `NotFound` the file that is missing. Any thread.
    pub fn load_ram(source: Source, options: &LoadOptions, executor: Option<&Executor>) -> Result<Arc<Self>> {
        if options.class.is_some() {
            cpu::resolve(options.class)?;
        }
        let domains = options.placement()?;
        match executor {
            Some(executor) => {
                let load = |context: &Context| {
                    Self::load_with(source, options, &domains, context.kernels.class, context.team)
                };
                executor.run(load)
            }
            None => Self::load_with(source, options, &domains, cpu::resolve(None)?, &Alone),
        }
    }

    fn load_with(
        source: Source,
        options: &LoadOptions,
        domains: &[i32],
        class: CpuClass,
        team: &dyn Team,
    ) -> Result<Arc<Self>> {
        let files = Files::find(source)?;
        let opened = Opened::read(&files, options.reading)?;
        let tensors = &opened.tensors;
        let all = tensors.bytes();
        let report = |done: u64| match options.progress {
            Some(progress) if !progress(done.min(all), all) => {
                err!(Cancelled, "loading was cancelled by its progress callback")
            }
            _ => Ok(()),
        };
        let told = || report(tensors.taken_bytes());
        let dtype = options.dtype(tensors, class)?;
        let (shape, layout) = (opened.shape.clone(), opened.architecture.layout);
        let loading = Loading { team, domains, progress: &told };
        let around = Slot::new();
        // A large tokenizer takes as long as the weights.
        let beside = || around.fill(opened.surroundings(&files, options.reading, domains));
        let encoder = Encoder::read(shape, layout, tensors, dtype, &loading, &beside)?;
        let around = around.take();
        let Surroundings { tokenizer, prompts, finish, default_dimensions, .. } = around;
        let description = Description {
            architecture: opened.architecture.model_type,
            dimensions: finish.dimensions(),
            default_dimensions,
            token_limit: tokenizer.limit,
            special_tokens: tokenizer.around(),
            vocabulary: encoder.shape().vocabulary,
            layers: encoder.shape().layers,
            hidden: encoder.shape().hidden,
            intermediate: encoder.shape().intermediate,
            heads: encoder.shape().heads,
            pooling: finish.pooling.names(),
            normalizes: finish.normalizes(),
            prompts: prompts.all().map(|(name, text)| (name.to_owned(), text.to_owned())).collect(),
            default_prompt: prompts.default_name().map(str::to_owned),
            similarity: around.similarity,
            parameters: tensors.taken() + around.parameters,
            weight_bytes: encoder.bytes() + finish.bytes(),
            file_dtype: tensors.main_dtype(),
            precision: Precision::of(dtype),
            unread: around.unread,
        };
        // What nobody asked for, as heads that are not run, is not read, but done with.
        report(all)?;
        Ok(Arc::new(Self { encoder, tokenizer, prompts, finish, default_dimensions, description }))
    }

    /// What the model is. Any thread.
    pub fn describe(&self) -> &Description {
        &self.description
    }
}

/// A model's transformer before its weights are read.
pub(super) struct Opened<'a> {
    pub(super) architecture: &'static registry::Architecture,
    pub(super) shape: Shape,
    /// The folder of the transformer: empty, or ending in a slash.
    pub(super) folder: String,
    /// The tensors of that folder.
    pub(super) tensors: Tensors<'a>,
    plan: Plan,
    config: Keys,
}

/// All of a model but its encoder.
pub(super) struct Surroundings {
    tokenizer: Tokenizer,
    prompts: Prompts,
    finish: Finish,
    default_dimensions: usize,
    similarity: Option<String>,
    /// How many numbers the weights of the modules behind the transformer are.
    parameters: u64,
    unread: Vec<String>,
}

impl<'a> Opened<'a> {
    /// Finds and checks it. Errors as [`Model::load_ram`].
    pub(super) fn read(files: &Files<'a>, reading: Reading) -> Result<Self> {
        let plan = Plan::read(files)?;
        let folder = plan.folder().to_owned();
        if files.has(&format!("{folder}adapter_config.json")) {
            return err!(Unsupported, "{folder}adapter_config.json: adapters are not supported");
        }
        let config_name = format!("{folder}config.json");
        let config = Keys::parse(&config_name, &required(files, &config_name)?)?;
        let architecture = registry::find(&config)?;
        let tensors = Tensors::open(files, &folder, reading)?;
        let shape = Shape::read(&config, architecture.layout)?;
        Ok(Self { architecture, shape, folder, tensors, plan, config })
    }

    /// Reads what is around it, with matrices spread over `domains`. Errors as [`Model::load_ram`].
    pub(super) fn surroundings(
        &self,
        files: &Files,
        reading: Reading,
        domains: &[i32],
    ) -> Result<Surroundings> {
        let Self { architecture, shape, folder, plan, config, .. } = self;
        let chain = plan.chain(files, shape.hidden, reading, domains)?;
        let sentence = match chain.declared {
            true => sentence_config(files, folder)?,
            false => Keys::empty("sentence_bert_config.json"),
        };
        let library = library_config(files, chain.declared)?;
        let tokenizer_config = optional(files, format!("{folder}tokenizer_config.json"))?;
        let mut tokenizer =
            read_tokenizer(files, folder, config, &tokenizer_config, &sentence, architecture)?;
        tokenizer.set_limit(&limit::find(&sentence, &tokenizer_config, config, shape.longest())?)?;
        let prompts = Prompts::read(&library)?;
        let finish = Finish::new(chain.pooling, chain.steps, shape.hidden);
        let native = finish.dimensions();
        // As in the reference, what is longer than the vectors cuts nothing.
        let default_dimensions = library.size("truncate_dim", native, usize::MAX)?.min(native);
        let mut unread = chain.unread;
        let similarity = similarity(&library, &mut unread);
        for keys in [config, &sentence, &library, &tokenizer_config] {
            unread.extend(keys.unread());
        }
        let parameters = chain.parameters;
        Ok(Surroundings { tokenizer, prompts, finish, default_dimensions, similarity, parameters, unread })
    }
}

fn read_tokenizer(
    files: &Files,
    folder: &str,
    config: &Keys,
    tokenizer_config: &Keys,
    sentence: &Keys,
    architecture: &registry::Architecture,
) -> Result<Tokenizer> {
    let name = format!("{folder}tokenizer.json");
    let settings = Settings {
        config: tokenizer_config,
        model_type: architecture.model_type,
        model_class: config.text("tokenizer_class")?,
        lower_case: sentence.flag("do_lower_case", false)?,
        token_types: architecture.layout.types_from_tokenizer,
    };
    Tokenizer::read(&name, &required(files, &name)?, &settings)
}
