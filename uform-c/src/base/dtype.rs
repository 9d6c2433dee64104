//! Element types of tensors and outputs.

/// The type of a matrix's elements, numbered as the C ABI numbers it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
#[repr(u32)]
pub enum Dtype {
    /// IEEE 754 binary32.
    F32 = 1,
    /// IEEE 754 binary16.
    F16 = 2,
    /// The upper half of a binary32.
    Bf16 = 3,
    /// Signed bytes.
    I8 = 4,
    /// Unsigned bytes.
    U8 = 5,
    /// One bit an element, eight to a byte, the first element in the most significant bit.
    B1 = 6,
}

impl Dtype {
    /// The element type of that number, if there is one.
    pub fn from_number(number: u32) -> Option<Self> {
        [Self::F32, Self::F16, Self::Bf16, Self::I8, Self::U8, Self::B1]
            .into_iter()
            .find(|dtype| *dtype as u32 == number)
    }

    /// Its name in messages and files.
    pub fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::F16 => "f16",
            Self::Bf16 => "bf16",
            Self::I8 => "i8",
            Self::U8 => "u8",
            Self::B1 => "b1",
        }
    }

    /// Bytes that a row of `columns` elements takes; rows of bits are rounded up to whole bytes. What no memory holds
    /// saturates.
    pub fn row_bytes(self, columns: usize) -> usize {
        match self {
            Self::F32 => columns.saturating_mul(4),
            Self::F16 | Self::Bf16 => columns.saturating_mul(2),
            Self::I8 | Self::U8 => columns,
            Self::B1 => columns.div_ceil(8),
        }
    }
}
