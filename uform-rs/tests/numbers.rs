//! Every constant of the header has its place in the crate, by name and number.

use std::collections::BTreeMap;

use uform::{
    CPUClass, Dtype, GPUClass, GPUVendor, Length, Mood, Normalize, Precision, Reading, Residency, Role,
    Status,
};

/// The constants of the declarations whose names begin with `prefix`, as "kebab-case" to number.
fn constants(prefix: &str) -> BTreeMap<String, i32> {
    include_str!("../src/sys.rs")
        .lines()
        .filter_map(|line| {
            let (name, number) = line.strip_prefix(&format!("pub const {prefix}"))?.split_once(": i32 = ")?;
            Some((name.to_lowercase().replace('_', "-"), number.strip_suffix(';')?.parse().unwrap()))
        })
        .filter(|(name, _)| !name.ends_with("capacity"))
        .collect()
}

fn of<T: Copy>(all: &[T], name: impl Fn(T) -> String, number: impl Fn(T) -> i32) -> BTreeMap<String, i32> {
    all.iter().map(|value| (name(*value), number(*value))).collect()
}

#[test]
fn statuses() {
    let found = of(Status::ALL, |status| status.name().to_owned(), Status::code);
    assert_eq!(found, constants("UFORM_STATUS_"));
    for status in Status::ALL {
        assert_eq!(Status::from_code(status.code()), *status);
    }
    assert_eq!(Status::from_code(12_345), Status::Unknown(12_345));
    assert_eq!(Status::Unknown(12_345).code(), 12_345);
    assert_eq!(Status::Unknown(-1).to_string(), "unknown status -1");
}

#[test]
fn enumerations() {
    macro_rules! same {
        ($($type:ident $prefix:literal)*) => {$(
            let found = of($type::ALL, |value| value.to_string(), $type::number);
            assert_eq!(found, constants($prefix));
            for value in $type::ALL {
                assert_eq!(value.to_string().parse(), Ok(*value));
                assert_eq!($type::from_number(value.number()), Some(*value));
            }
            assert_eq!($type::from_number(-1), None);
            assert_eq!("no such thing".parse::<$type>().unwrap_err().status(), Status::InvalidArgument);
        )*};
    }
    same!(CPUClass "UFORM_CPU_CLASS_" GPUClass "UFORM_GPU_CLASS_" Mood "UFORM_MOOD_" Dtype "UFORM_DTYPE_");
    same!(Residency "UFORM_RESIDENCY_" Precision "UFORM_PRECISION_" Reading "UFORM_READING_" Role "UFORM_ROLE_");
    same!(Normalize "UFORM_NORMALIZE_" Length "UFORM_LENGTH_");
    let vendors = of(GPUVendor::ALL, |vendor| format!("{vendor:?}").to_lowercase(), GPUVendor::number);
    assert_eq!(vendors, constants("UFORM_GPU_VENDOR_"));
}

#[test]
fn defaults_are_zero_where_zero_is_a_value() {
    assert_eq!((Mood::default().number(), Precision::default().number()), (0, 0));
    assert_eq!((Reading::default().number(), Role::default().number()), (0, 0));
    assert_eq!((Normalize::default().number(), Length::default().number()), (0, 0));
    assert_eq!(Dtype::default(), Dtype::F32);
}
