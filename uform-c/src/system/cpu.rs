//! Which CPU classes this build and machine offer, and which one a call dispatches as.

use std::collections::BTreeSet;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::base::{Error, Result, err};

use super::cpu_class::names;
pub use super::cpu_class::{Architecture, BUILT_FOR, CpuClass};
use super::cpu_features::Features;
use super::gpu::{self, GpuClass};

/// The environment variable that names the class to dispatch as where no class is pinned.
pub const CLASS_VARIABLE: &str = "UFORM_CPU_CLASS";

/// The classes that this build and this machine can run, by number. Any thread.
pub fn runnable() -> &'static [CpuClass] {
    static RUNNABLE: OnceLock<Vec<CpuClass>> = OnceLock::new();
    RUNNABLE.get_or_init(|| {
        let features = Features::of_machine();
        CpuClass::all().filter(|class| class.runs_with(features)).collect()
    })
}

/// Whether this build and this machine can run `class`. Any thread.
pub fn can_run(class: CpuClass) -> bool {
    runnable().contains(&class)
}

/// The widest class of this build that this machine can run; where it can run none, the only one of the build. Any thread.
pub fn detected() -> CpuClass {
    // Numbers grow with the instructions inside an architecture.
    runnable().last().copied().unwrap_or(CpuClass::Monoversioned)
}

/// `class` if this build and this machine can run it, else `Unsupported` with those that they can. Any thread.
pub fn demand(class: CpuClass) -> Result<CpuClass> {
    match can_run(class) {
        true => Ok(class),
        false if !has_built() => err!(Unsupported, "{LACKING}"),
        false => {
            err!(Unsupported, "CPU class {class} cannot run here; this machine runs {}", runnable_names())
        }
    }
}

/// What is said on a machine that lacks what this build may use anywhere.
pub const LACKING: &str =
    "CPU class monoversioned cannot run here; this machine lacks instructions that this build was made with";

/// Whether this machine has what the compiler may use anywhere in this build, as far as classes know of it: always, but in a
/// build for one kind of machine. Looked at once, and without anything that the compiler would move in wide registers. Any thread.
pub fn has_built() -> bool {
    static FOUND: AtomicU32 = AtomicU32::new(UNKNOWN);
    const UNKNOWN: u32 = 0;
    const LACKS: u32 = 1;
    const HAS: u32 = 2;

    if cfg!(not(feature = "monoversioned")) {
        return true;
    }
    if FOUND.load(Ordering::Relaxed) == UNKNOWN {
        let has = Features::of_machine().contains(Features::OF_BUILD);
        FOUND.store(if has { HAS } else { LACKS }, Ordering::Relaxed);
    }
    FOUND.load(Ordering::Relaxed) == HAS
}

/// The names of [`runnable`], comma-separated, for messages.
fn runnable_names() -> String {
    names(runnable().iter().copied())
}

/// The class to dispatch as: `pin`, else the one that `UFORM_CPU_CLASS` names, else the one detected.
/// A class that cannot run here is `Unsupported`, a variable that names no class is `InvalidArgument`, and both errors
/// say which classes can run. The variable is read once per process. Any thread.
pub fn resolve(pin: Option<CpuClass>) -> Result<CpuClass> {
    static UNPINNED: OnceLock<Result<CpuClass>> = OnceLock::new();

    let read = || {
        let variable = std::env::var_os(CLASS_VARIABLE);
        unpinned(variable.map(|value| value.to_string_lossy().into_owned()).as_deref())
    };
    pin.map_or_else(|| UNPINNED.get_or_init(read).clone(), demand)
}

/// The class to dispatch as where none is pinned and [`CLASS_VARIABLE`] is `variable`.
fn unpinned(variable: Option<&str>) -> Result<CpuClass> {
    let Some(name) = variable.filter(|name| !name.is_empty()) else { return demand(detected()) };
    let Ok(class) = CpuClass::parse(name) else {
        return err!(
            InvalidArgument,
            "{CLASS_VARIABLE}={name} is no CPU class; this machine runs {}",
            runnable_names()
        );
    };
    demand(class)
        .map_err(|error| Error::new(error.status, format!("{CLASS_VARIABLE}={name}: {}", error.message)))
}

/// The classes that this build has kernels for, its own or inherited ones: CPU classes by number, then GPU classes by
/// number, comma-separated without spaces. Any thread.
pub fn capabilities_compiled() -> &'static str {
    static COMPILED: OnceLock<String> = OnceLock::new();
    COMPILED.get_or_init(|| {
        let cpus = CpuClass::all().filter(|class| class.is_compiled());
        listed(cpus, GpuClass::all().filter(|class| class.is_compiled()))
    })
}

/// Those of [`capabilities_compiled`] that this machine can run, in the same form. Looked at once. Any thread.
pub fn capabilities_available() -> &'static str {
    static AVAILABLE: OnceLock<String> = OnceLock::new();
    AVAILABLE.get_or_init(|| {
        // Without kernels for any GPU the drivers have nothing to say.
        let compiled = GpuClass::all().any(GpuClass::is_compiled);
        let devices = if compiled { gpu::devices().unwrap_or_default() } else { Vec::new() };
        let gpus: BTreeSet<GpuClass> = devices.iter().filter_map(|device| device.gpu_class).collect();
        listed(runnable().iter().copied(), gpus.into_iter())
    })
}

fn listed(cpus: impl Iterator<Item = CpuClass>, gpus: impl Iterator<Item = GpuClass>) -> String {
    let all: Vec<&str> = cpus.map(CpuClass::name).chain(gpus.map(GpuClass::name)).collect();
    all.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::Status;

    /// The class that runs wherever this build does.
    const FLOOR: CpuClass =
        if cfg!(feature = "monoversioned") { CpuClass::Monoversioned } else { CpuClass::Serial };

    #[test]
    fn the_floor_of_the_build_runs_and_the_last_runnable_class_is_detected() {
        assert_eq!(runnable().first(), Some(&FLOOR));
        assert_eq!(runnable().last(), Some(&detected()));
        assert_eq!(can_run(CpuClass::Monoversioned), cfg!(feature = "monoversioned"));
        assert_eq!(can_run(CpuClass::Serial), !cfg!(feature = "monoversioned"));
        assert!(has_built());
        assert!(runnable().iter().all(|class| class.is_compiled()));
    }

    #[test]
    fn a_pin_goes_before_the_variable_and_the_variable_before_detection() {
        assert_eq!(resolve(Some(FLOOR)).unwrap(), FLOOR);
        assert_eq!(unpinned(Some(FLOOR.name())).unwrap(), FLOOR);
        assert_eq!(unpinned(Some("")).unwrap(), detected());
        assert_eq!(unpinned(None).unwrap(), detected());
    }

    #[test]
    fn what_cannot_run_is_refused_with_what_can() {
        let foreign = if cfg!(target_arch = "x86_64") { CpuClass::AppleM4 } else { CpuClass::IntelHaswell };
        let pinned = resolve(Some(foreign)).unwrap_err();
        assert_eq!(pinned.status, Status::Unsupported);
        let named = unpinned(Some(foreign.name())).unwrap_err();
        assert_eq!(named.status, Status::Unsupported);
        let unknown = unpinned(Some("z80")).unwrap_err();
        assert_eq!(unknown.status, Status::InvalidArgument);
        for error in [&pinned, &named, &unknown] {
            assert!(error.message.ends_with(&runnable_names()), "{error}");
        }
        let tiles = [CpuClass::IntelSapphire, CpuClass::IntelGranite, CpuClass::IntelDiamond];
        for class in tiles.into_iter().filter(|class| !can_run(*class)) {
            for error in [resolve(Some(class)).unwrap_err(), unpinned(Some(class.name())).unwrap_err()] {
                assert!(
                    error.status == Status::Unsupported && error.message.contains(class.name()),
                    "{error}"
                );
            }
        }
    }

    #[test]
    fn gpu_classes_come_after_cpu_classes() {
        let gpus = [GpuClass::NvidiaAmpere, GpuClass::AppleMetal9];
        assert_eq!(
            listed([CpuClass::Serial].into_iter(), gpus.into_iter()),
            "serial,nvidia-ampere,apple-metal9"
        );
    }

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn capabilities_are_names_by_number_without_spaces() {
        let all = "serial,intel-haswell,intel-sierra,intel-skylake,intel-icelake,amd-genoa,intel-sapphire,intel-granite,intel-diamond";
        assert_eq!(
            capabilities_compiled(),
            if cfg!(feature = "monoversioned") { "monoversioned" } else { all }
        );
        assert!(capabilities_available().starts_with(FLOOR.name()));
        for name in capabilities_available().split(',') {
            assert!(can_run(CpuClass::parse(name).unwrap()));
        }
    }
}
