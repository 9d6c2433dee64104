//! `uform info`.

use std::path::PathBuf;

use clap::Args;
use serde_json::{Value, json};
use uform::{CPUClass, Executor, GPUDevice, LoadOptions, Model, ModelDescription};

use super::failure::Outcome;
use super::say;

/// Say what a model is, or what this machine can do
///
/// With a model: its shape, limits, prompts, and the keys of its files that have no influence. Without one: the version,
/// the classes of CPU and GPU, and the devices.
#[derive(Args)]
pub(crate) struct Arguments {
    /// The model; none describes the machine
    model: Option<PathBuf>,
    /// As JSON
    #[arg(long)]
    json: bool,
    /// Only the CPU classes that this machine can run, one a line, the widest last
    #[arg(long, conflicts_with_all = ["model", "json"])]
    classes: bool,
}

pub(crate) fn run(arguments: &Arguments) -> Outcome<()> {
    if arguments.classes {
        return list_classes();
    }
    let facts = match &arguments.model {
        Some(path) => {
            let model = Model::load_ram(path, &Executor::default(), &LoadOptions::default())?;
            of_model(&model.describe()?)
        }
        None => of_machine()?,
    };
    match arguments.json {
        true => say::line(Value::Object(facts.into_iter().map(|(name, fact)| (name.into(), fact)).collect())),
        false => facts.iter().try_for_each(|(name, fact)| show(name, fact)),
    }
}

/// An executor is asked for first, so that a class which the environment demands in vain is an error.
fn list_classes() -> Outcome<()> {
    Executor::for_ram(&[], None, 1, 0)?;
    uform::capabilities_available()
        .split(',')
        .filter(|name| name.parse::<CPUClass>().is_ok())
        .try_for_each(say::line)
}

type Facts = Vec<(&'static str, Value)>;

fn of_model(model: &ModelDescription) -> Facts {
    vec![
        ("architecture", json!(model.architecture)),
        ("dimensions", json!(model.dimensions)),
        ("default_dimensions", json!(model.default_dimensions)),
        ("token_limit", json!(model.token_limit)),
        ("pooling", json!(model.pooling)),
        ("normalized", json!(model.normalized)),
        ("similarity", json!(model.similarity)),
        ("prompt_names", json!(model.prompt_names)),
        ("default_prompt_name", json!(model.default_prompt_name)),
        ("layers", json!(model.layers)),
        ("heads", json!(model.heads)),
        ("hidden", json!(model.hidden)),
        ("intermediate", json!(model.intermediate)),
        ("vocabulary", json!(model.vocabulary)),
        ("parameters", json!(model.parameters)),
        ("weight_bytes", json!(model.weight_bytes)),
        ("file_dtype", json!(model.file_dtype.name())),
        ("precision", json!(model.precision.name())),
        ("residency", json!(model.residency.name())),
        ("unread_keys", json!(model.unread_keys)),
    ]
}

fn of_machine() -> Outcome<Facts> {
    let names = |list: &str| list.split(',').map(str::to_owned).collect::<Vec<_>>();
    let mut devices = vec![GPUDevice::default(); uform::gpu_devices(&mut [])?];
    let found = uform::gpu_devices(&mut devices)?;
    devices.truncate(found);
    let executor = Executor::for_ram(&[], None, 0, 0)?.describe()?;
    Ok(vec![
        ("version", json!(uform::version())),
        ("capabilities_compiled", json!(names(uform::capabilities_compiled()))),
        ("capabilities_available", json!(names(uform::capabilities_available()))),
        ("cpu_class", json!(uform::cpu_class_detected().map(|class| class.to_string()))),
        ("threads", json!(executor.threads)),
        ("memory_domains", json!(executor.memory_domains)),
        ("gpu_devices", json!(devices.iter().map(device).collect::<Vec<_>>())),
    ])
}

fn device(device: &GPUDevice) -> String {
    let class = device.gpu_class().map_or("no class".to_owned(), |class| class.to_string());
    let gib = device.memory_bytes() as f64 / f64::from(1 << 30);
    format!("{} ({class}, {} units, {gib:.0} GiB)", device.name(), device.compute_units())
}

/// One fact on a line; lists have one element on each further line.
fn show(name: &str, fact: &Value) -> Outcome<()> {
    let name = name.replace('_', " ");
    match fact {
        Value::Array(list) if list.is_empty() => say::line(format_args!("{name:<24}none")),
        Value::Array(list) => list.iter().enumerate().try_for_each(|(index, element)| {
            let name = if index == 0 { &name } else { "" };
            say::line(format_args!("{name:<24}{}", plain(element)))
        }),
        fact => say::line(format_args!("{name:<24}{}", plain(fact))),
    }
}

fn plain(value: &Value) -> String {
    match value {
        Value::Null => "none".to_owned(),
        Value::String(text) => text.clone(),
        Value::Bool(true) => "yes".to_owned(),
        Value::Bool(false) => "no".to_owned(),
        other => other.to_string(),
    }
}
