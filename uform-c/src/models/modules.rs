//! What follows the transformer: the chain of `modules.json` as sentence-transformers runs it.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::base::{Dtype, Error, Matrix, Result, err};
use crate::kernels::activation::Activation;
use crate::ops::linear::Linear;
use crate::ops::pool::Pooling;

use super::json::{self, Keys};
use super::source::{Files, Reading, inside};
use super::tensors::Tensors;

/// What is done with the vectors of tokens.
pub(super) struct Chain {
    /// Whether `modules.json` was there, so that the other files of sentence-transformers are read.
    pub(super) declared: bool,
    pub(super) pooling: PoolingRule,
    pub(super) steps: Vec<Step>,
    /// How many numbers the weights of the steps are.
    pub(super) parameters: u64,
    /// Keys that nobody read.
    pub(super) unread: Vec<String>,
}

/// How the vectors of a text's tokens become one.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct PoolingRule {
    /// One or more ways, whose results are put side by side.
    pub(super) modes: Vec<Pooling>,
    /// Whether the tokens of the prompt take part.
    pub(super) include_prompt: bool,
}

impl PoolingRule {
    /// The names of its ways in sentence-transformers.
    pub(super) fn names(&self) -> Vec<&'static str> {
        let name = |mode: &Pooling| {
            POOLING_NAMES.iter().find(|(known, _)| known == mode).map_or("", |(_, name)| name)
        };
        self.modes.iter().map(name).collect()
    }
}

/// One module behind the pooling.
pub(super) enum Step {
    /// An affine map, an activation, and a residual connection around both.
    Dense { linear: Box<Linear>, activation: Activation, residual: Residual },
    /// A layer norm over the whole vector.
    LayerNorm { weight: Vec<f32>, bias: Vec<f32> },
    /// Length one.
    Normalize,
}

/// What is added to the result of a dense module.
pub(super) enum Residual {
    None,
    /// The module's input.
    Input,
    /// A linear map of the module's input.
    Projected(Box<Linear>),
}

/// The epsilon of `torch.nn.LayerNorm`.
pub(super) const LAYER_NORM_EPSILON: f32 = 1e-5;
const LARGEST_DIMENSIONS: usize = 1 << 20;

struct Module {
    kind: String,
    folder: String,
}

/// Where the transformer is, before its sizes are known.
pub(super) struct Plan {
    modules: Option<Vec<Module>>,
    /// Keys of `modules.json` that nobody read.
    unread: Vec<String>,
}

impl Plan {
    /// Reads `modules.json`, or nothing where there is none.
    pub(super) fn read(files: &Files) -> Result<Self> {
        let Some(bytes) = files.text("modules.json")? else {
            return Ok(Self { modules: None, unread: vec![] });
        };
        let Value::Array(entries) = json::parse("modules.json", &bytes)? else {
            return err!(CorruptData, "modules.json: expected a list of modules");
        };
        let mut unread = BTreeSet::new();
        let modules =
            entries.into_iter().map(|entry| module(entry, &mut unread)).collect::<Result<Vec<_>>>()?;
        match modules.iter().map(|module| module.kind.as_str()).take(2).collect::<Vec<_>>()[..] {
            ["Transformer", "Pooling"] => {
                Ok(Self { modules: Some(modules), unread: unread.into_iter().collect() })
            }
            ref found => {
                err!(Unsupported, "modules.json: expected Transformer, then Pooling, found {found:?}")
            }
        }
    }

    /// The folder of the transformer: empty, or ending in a slash.
    pub(super) fn folder(&self) -> &str {
        self.modules.as_ref().map_or("", |modules| &modules[0].folder)
    }

    /// Reads the rest, for a transformer whose tokens have `hidden` elements.
    /// Matrices are spread over those memory domains.
    pub(super) fn chain(
        &self,
        files: &Files,
        hidden: usize,
        reading: Reading,
        domains: &[i32],
    ) -> Result<Chain> {
        let Some(modules) = &self.modules else {
            // Without modules.json, sentence-transformers takes the mean of an encoder's tokens.
            let pooling = PoolingRule { modes: vec![Pooling::Mean], include_prompt: true };
            return Ok(Chain { declared: false, pooling, steps: vec![], parameters: 0, unread: vec![] });
        };
        let mut reader = StepReader {
            files,
            reading,
            domains,
            dimensions: 0,
            steps: vec![],
            parameters: 0,
            unread: self.unread.clone(),
        };
        let pooling = read_pooling(files, &modules[1].folder, hidden, &mut reader.unread)?;
        reader.dimensions = hidden * pooling.modes.len();
        for module in &modules[2..] {
            reader.step(module)?;
        }
        Ok(Chain {
            declared: true,
            pooling,
            steps: reader.steps,
            parameters: reader.parameters,
            unread: reader.unread,
        })
    }
}

/// Every place where some release of sentence-transformers keeps the modules that are known here.
const PACKAGES: &[&str] = &[
    "sentence_transformers.models.",
    "sentence_transformers.base.modules.",
    "sentence_transformers.sentence_transformer.modules.",
];

fn module(entry: Value, unread: &mut BTreeSet<String>) -> Result<Module> {
    let keys = Keys::of("modules.json", entry)?;
    let Some(kind) = keys.text("type")? else {
        return err!(CorruptData, "modules.json: type: expected a name, found none");
    };
    let Some(path) = keys.text("path")? else {
        return err!(CorruptData, "modules.json: path: expected a folder, found none");
    };
    keys.refuse("kwargs", &[])?;
    unread.extend(keys.unread());
    let rest = PACKAGES.iter().find_map(|package| kind.strip_prefix(package));
    // `models.Pooling` and `models.pooling.Pooling` are the same class.
    let class = rest.and_then(|rest| rest.rsplit('.').next().filter(|_| rest.split('.').count() <= 2));
    let Some(class) = class else {
        return err!(
            Unsupported,
            "modules.json: type: expected a module of sentence-transformers, found {kind:?}"
        );
    };
    let folder = match path.trim_end_matches('/') {
        "" => String::new(),
        path => {
            let named = |error: Error| Error::new(error.status, format!("modules.json: path: {error}"));
            inside(path).map_err(named)?;
            format!("{path}/")
        }
    };
    Ok(Module { kind: class.to_owned(), folder })
}

fn required(files: &Files, file: &str) -> Result<Keys> {
    match files.text(file)? {
        Some(bytes) => Keys::parse(file, &bytes),
        None => {
            err!(NotFound, "{file}: no such file in {}, and modules.json names its folder", files.place())
        }
    }
}

/// The keys of releases before 5.4, in the order in which their results are put side by side.
const POOLING_FLAGS: [(&str, Pooling); 6] = [
    ("pooling_mode_cls_token", Pooling::Cls),
    ("pooling_mode_max_tokens", Pooling::Max),
    ("pooling_mode_mean_tokens", Pooling::Mean),
    ("pooling_mode_mean_sqrt_len_tokens", Pooling::MeanSqrtLength),
    ("pooling_mode_weightedmean_tokens", Pooling::WeightedMean),
    ("pooling_mode_lasttoken", Pooling::LastToken),
];

fn read_pooling(files: &Files, folder: &str, hidden: usize, unread: &mut Vec<String>) -> Result<PoolingRule> {
    let keys = required(files, &format!("{folder}config.json"))?;
    for key in ["embedding_dimension", "word_embedding_dimension"] {
        if let Some(declared) = keys.whole(key, LARGEST_DIMENSIONS as u64)?
            && declared != hidden as u64
        {
            return err!(
                CorruptData,
                "{}: {key}: expected the transformer's {hidden}, found {declared}",
                keys.file()
            );
        }
    }
    let mut flagged = Vec::new();
    for (key, mode) in POOLING_FLAGS {
        if keys.flag(key, false)? {
            flagged.push(mode);
        }
    }
    let unknown = keys
        .names()
        .find(|key| key.starts_with("pooling_mode_") && POOLING_FLAGS.iter().all(|(known, _)| known != key));
    if let Some(key) = unknown {
        return err!(Unsupported, "{}: {key}: no such way of pooling is known", keys.file());
    }
    let modes = match keys.get("pooling_mode") {
        None if flagged.is_empty() => vec![Pooling::Mean],
        None => flagged,
        Some(Value::Array(names)) if !names.is_empty() => {
            names.iter().map(|name| pooling_mode(&keys, name)).collect::<Result<_>>()?
        }
        Some(name) => vec![pooling_mode(&keys, name)?],
    };
    let rule = PoolingRule { modes, include_prompt: keys.flag("include_prompt", true)? };
    unread.extend(keys.unread());
    Ok(rule)
}

/// The names of releases from 5.4 on.
const POOLING_NAMES: [(Pooling, &str); 6] = [
    (Pooling::Cls, "cls"),
    (Pooling::Max, "max"),
    (Pooling::Mean, "mean"),
    (Pooling::MeanSqrtLength, "mean_sqrt_len_tokens"),
    (Pooling::WeightedMean, "weightedmean"),
    (Pooling::LastToken, "lasttoken"),
];

fn pooling_mode(keys: &Keys, name: &Value) -> Result<Pooling> {
    match POOLING_NAMES.iter().find(|(_, known)| name.as_str() == Some(known)) {
        Some((mode, _)) => Ok(*mode),
        None => {
            let known = POOLING_NAMES.map(|(_, name)| name).join(", ");
            err!(
                Unsupported,
                "{}: pooling_mode: expected one of {known}, found {}",
                keys.file(),
                json::shown(name)
            )
        }
    }
}

/// Modules may read and write other entries than the vector of the text; only that one exists here.
fn refuse_other_entries(keys: &Keys) -> Result<()> {
    keys.refuse("module_input_name", &[Value::from("sentence_embedding")])?;
    keys.refuse("module_output_name", &[Value::from("sentence_embedding")])
}

/// Reads the modules behind the pooling, one after the other.
struct StepReader<'f, 'a> {
    files: &'f Files<'a>,
    reading: Reading,
    domains: &'f [i32],
    /// Elements of a vector at this place of the chain.
    dimensions: usize,
    steps: Vec<Step>,
    parameters: u64,
    unread: Vec<String>,
}

impl StepReader<'_, '_> {
    fn step(&mut self, module: &Module) -> Result<()> {
        let step = match module.kind.as_str() {
            "Dense" => self.dense(&module.folder)?,
            "LayerNorm" => self.layer_norm(&module.folder)?,
            "Normalize" => self.normalize(&module.folder)?,
            // Dropout does nothing outside training.
            "Dropout" => return Ok(()),
            other => return err!(Unsupported, "modules.json: type: the module {other:?} is not supported"),
        };
        self.steps.push(step);
        Ok(())
    }

    fn dense(&mut self, folder: &str) -> Result<Step> {
        let keys = required(self.files, &format!("{folder}config.json"))?;
        let (file, expected) = (keys.file(), self.dimensions);
        let inputs = required_size(&keys, "in_features")?;
        let outputs = required_size(&keys, "out_features")?;
        if inputs != expected {
            return err!(CorruptData, "{file}: in_features: expected {expected}, found {inputs}");
        }
        let activation = dense_activation(&keys)?;
        refuse_other_entries(&keys)?;
        let (with_bias, with_residual) = (keys.flag("bias", true)?, keys.flag("use_residual", false)?);
        let tensors = Tensors::open(self.files, folder, self.reading)?;
        let weight = tensors.matrix("linear.weight", outputs, inputs)?;
        let bias = if with_bias { Some(tensors.vector("linear.bias", outputs)?) } else { None };
        let linear = Linear::stack_in(
            Dtype::F32,
            &[(Matrix::dense(&weight, outputs, inputs), bias.as_deref())],
            self.domains,
        )?;
        let residual = match with_residual {
            false => Residual::None,
            true if inputs == outputs => Residual::Input,
            true => {
                let weight = tensors.matrix("residual.weight", outputs, inputs)?;
                let layers = [(Matrix::dense(&weight, outputs, inputs), None)];
                Residual::Projected(Box::new(Linear::stack_in(Dtype::F32, &layers, self.domains)?))
            }
        };
        self.dimensions = outputs;
        self.parameters += tensors.taken();
        self.unread.extend(keys.unread());
        Ok(Step::Dense { linear: Box::new(linear), activation, residual })
    }

    fn layer_norm(&mut self, folder: &str) -> Result<Step> {
        let keys = required(self.files, &format!("{folder}config.json"))?;
        let (declared, dimensions) = (required_size(&keys, "dimension")?, self.dimensions);
        if declared != dimensions {
            return err!(CorruptData, "{}: dimension: expected {dimensions}, found {declared}", keys.file());
        }
        let tensors = Tensors::open(self.files, folder, self.reading)?;
        let weight = tensors.vector("norm.weight", dimensions)?;
        let bias = tensors.vector("norm.bias", dimensions)?;
        self.parameters += tensors.taken();
        self.unread.extend(keys.unread());
        Ok(Step::LayerNorm { weight, bias })
    }

    fn normalize(&mut self, folder: &str) -> Result<Step> {
        // The folder of this module is usually empty and so not there.
        let file = format!("{folder}config.json");
        if !folder.is_empty()
            && let Some(bytes) = self.files.text(&file)?
        {
            let keys = Keys::parse(&file, &bytes)?;
            refuse_other_entries(&keys)?;
            self.unread.extend(keys.unread());
        }
        Ok(Step::Normalize)
    }
}

/// A size that the file has to name.
fn required_size(keys: &Keys, key: &str) -> Result<usize> {
    match keys.size(key, 0, LARGEST_DIMENSIONS)? {
        0 => err!(CorruptData, "{}: {key}: expected a number from 1 up, found none", keys.file()),
        size => Ok(size),
    }
}

fn dense_activation(keys: &Keys) -> Result<Activation> {
    // The module's default where the key is missing is Tanh.
    let Some(path) = keys.text("activation_function")? else { return Ok(Activation::Tanh) };
    let class = ["torch.nn.modules.activation.", "torch.nn.modules.linear.", "torch.nn."]
        .iter()
        .find_map(|package| path.strip_prefix(package))
        .unwrap_or_default();
    match class {
        "Identity" => Ok(Activation::None),
        "Tanh" => Ok(Activation::Tanh),
        "ReLU" => Ok(Activation::Relu),
        "GELU" => Ok(Activation::Gelu),
        "SiLU" => Ok(Activation::Silu),
        "Sigmoid" => Ok(Activation::Sigmoid),
        _ => {
            let known = "Identity, Tanh, ReLU, GELU, SiLU or Sigmoid of torch.nn";
            err!(Unsupported, "{}: activation_function: expected {known}, found {path:?}", keys.file())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::Status;
    use crate::models::source::Source;

    fn plan(modules: &str) -> Result<Plan> {
        Plan::read(&Files::find(Source::Files(&[("modules.json", modules.as_bytes())]))?)
    }

    fn listed(modules: &[(&str, &str)]) -> String {
        let entries = modules.iter().map(|(kind, path)| format!(r#"{{"type": "{kind}", "path": "{path}"}}"#));
        format!("[{}]", entries.collect::<Vec<_>>().join(", "))
    }

    #[test]
    fn modules_are_known_by_all_their_names() {
        for (transformer, pooling) in [
            ("sentence_transformers.models.Transformer", "sentence_transformers.models.Pooling"),
            (
                "sentence_transformers.models.transformer.Transformer",
                "sentence_transformers.models.pooling.Pooling",
            ),
            (
                "sentence_transformers.base.modules.transformer.Transformer",
                "sentence_transformers.sentence_transformer.modules.pooling.Pooling",
            ),
        ] {
            let plan = plan(&listed(&[(transformer, "0_Transformer/"), (pooling, "1_Pooling")])).unwrap();
            assert_eq!(plan.folder(), "0_Transformer/");
        }
    }

    #[test]
    fn strange_chains_are_errors() {
        let transformer = ("sentence_transformers.models.Transformer", "");
        let pooling = ("sentence_transformers.models.Pooling", "1_Pooling");
        for (modules, status) in [
            ("{}".to_owned(), Status::CorruptData),
            ("[3]".to_owned(), Status::CorruptData),
            (r#"[{"type": "sentence_transformers.models.Transformer"}]"#.to_owned(), Status::CorruptData),
            ("[]".to_owned(), Status::Unsupported),
            (listed(&[transformer]), Status::Unsupported),
            (listed(&[pooling, transformer]), Status::Unsupported),
            (listed(&[transformer, ("mine.Pooling", "1_Pooling")]), Status::Unsupported),
            (listed(&[transformer, ("sentence_transformers.models.a.b.Pooling", "")]), Status::Unsupported),
            (
                listed(&[transformer, ("sentence_transformers.models.Pooling", "../1_Pooling")]),
                Status::CorruptData,
            ),
            (listed(&[transformer, ("sentence_transformers.models.Pooling", "/etc")]), Status::CorruptData),
        ] {
            assert_eq!(plan(&modules).err().map(|error| error.status), Some(status), "{modules}");
        }
    }

    #[test]
    fn a_folder_outside_is_named_with_its_file_and_key() {
        let modules = listed(&[
            ("sentence_transformers.models.Transformer", ""),
            ("sentence_transformers.models.Pooling", "/etc"),
        ]);
        assert_eq!(
            plan(&modules).err().unwrap().message,
            r#"modules.json: path: expected a path inside the model's directory, found "/etc""#
        );
    }

    #[test]
    fn sizes_that_are_missing_are_named() {
        let chain = |kind: &str, config: &str| {
            let modules = listed(&[
                ("sentence_transformers.models.Transformer", ""),
                ("sentence_transformers.models.Pooling", "1_Pooling"),
                (&format!("sentence_transformers.models.{kind}"), "2_Step"),
            ]);
            let files = [
                ("modules.json", modules.as_bytes()),
                ("1_Pooling/config.json", b"{}"),
                ("2_Step/config.json", config.as_bytes()),
            ];
            let files = Files::find(Source::Files(&files))?;
            Plan::read(&files)?.chain(&files, 8, Reading::Sequential, &[])
        };
        for (kind, config, expected) in [
            ("Dense", "{}", "in_features: expected a number from 1 up, found none"),
            ("Dense", r#"{"in_features": 8}"#, "out_features: expected a number from 1 up, found none"),
            ("Dense", r#"{"in_features": 9, "out_features": 4}"#, "in_features: expected 8, found 9"),
            ("LayerNorm", "{}", "dimension: expected a number from 1 up, found none"),
        ] {
            let error = chain(kind, config).err().unwrap();
            assert_eq!(error.status, Status::CorruptData);
            assert_eq!(error.message, format!("2_Step/config.json: {expected}"));
        }
    }

    fn pooling(config: &str) -> Result<PoolingRule> {
        let files = [("1_Pooling/config.json", config.as_bytes())];
        read_pooling(&Files::find(Source::Files(&files))?, "1_Pooling/", 8, &mut Vec::new())
    }

    #[test]
    fn pooling_is_read_in_both_spellings() {
        for (config, modes) in [
            ("{}", &[Pooling::Mean][..]),
            (r#"{"pooling_mode_cls_token": true, "word_embedding_dimension": 8}"#, &[Pooling::Cls]),
            (
                r#"{"pooling_mode_mean_tokens": true, "pooling_mode_cls_token": true}"#,
                &[Pooling::Cls, Pooling::Mean],
            ),
            (r#"{"pooling_mode": "lasttoken", "pooling_mode_mean_tokens": true}"#, &[Pooling::LastToken]),
            (
                r#"{"pooling_mode": ["mean", "cls"], "embedding_dimension": 8}"#,
                &[Pooling::Mean, Pooling::Cls],
            ),
        ] {
            let rule = pooling(config).unwrap();
            assert_eq!((&rule.modes[..], rule.include_prompt), (modes, true), "{config}");
        }
        assert!(!pooling(r#"{"include_prompt": false}"#).unwrap().include_prompt);
        for config in [
            r#"{"word_embedding_dimension": 9}"#,
            r#"{"pooling_mode_cls_token": 1}"#,
            r#"{"pooling_mode_attention": true}"#,
            r#"{"pooling_mode": "attention"}"#,
            r#"{"pooling_mode": []}"#,
            r#"{"pooling_mode": [3]}"#,
        ] {
            let error = pooling(config).unwrap_err();
            assert!(error.message.starts_with("1_Pooling/config.json: "), "{config}: {error}");
        }
    }
}
