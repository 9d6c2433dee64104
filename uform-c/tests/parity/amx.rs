//! The tiles of AMX over their model, and the model itself.

use half::{bf16, f16};
use uform_c::base::{Dtype, Matrix, MatrixMut};
use uform_c::kernels::Kernels;
use uform_c::kernels::activation::Activation;
use uform_c::kernels::gemm::{Amx, Configuration, PANEL, Packed, Product, Quantized, pack, packed_len};
use uform_c::kernels::simd::Portable;

use crate::amx_model::{Model, add, element, multiply_add, pair_bf16, pair_f16};
use crate::support::{Guarded, numbers};

fn kernels() -> Kernels {
    // SAFETY: neither portable vectors nor the model need special instructions.
    unsafe { Kernels::granite::<Portable<16, true>, Model>() }
}

/// Tiles 0, 1 and 2 as `rows` of `row_bytes`.
fn shapes(rows: [u8; 3], row_bytes: [u16; 3]) -> Configuration {
    let mut configuration =
        Configuration { palette: 1, start_row: 0, reserved: [0; 14], row_bytes: [0; 16], rows: [0; 16] };
    configuration.rows[..3].copy_from_slice(&rows);
    configuration.row_bytes[..3].copy_from_slice(&row_bytes);
    configuration
}

/// What a product adds to one sum: `dot` of one row of pairs or quads and a column of as many.
fn one_sum(sum: u32, row: &[u32], column: &[u32], dot: impl Fn()) -> u32 {
    let (steps, mut found) = (row.len(), [sum; 1]);
    // SAFETY: all memory has the shapes that the tiles are given.
    unsafe {
        Model::configure(&shapes([1, 1, steps as u8], [4, 4 * steps as u16, 4]));
        Model::load::<0>(found.as_ptr(), 1);
        Model::load::<1>(row.as_ptr(), steps);
        Model::load::<2>(column.as_ptr(), 1);
        dot();
        Model::store::<0>(found.as_mut_ptr(), 1);
        Model::release();
    }
    found[0]
}

macro_rules! instructions {
    ($($name:ident: $method:ident::<$($tile:literal),+>;)+) => {
        $(fn $name() {
            // SAFETY: on tiles that are not right for it the model panics, and touches no memory.
            unsafe { Model::$method::<$($tile),+>() }
        })+
    };
}
instructions! {
    dot_bf16: dot_bf16::<0, 1, 2>;
    dot_f16: dot_f16::<0, 1, 2>;
    dot_bytes: dot_bytes::<0, 1, 2>;
    dot_one_with_itself: dot_f16::<0, 1, 1>;
    dot_into_an_operand: dot_bytes::<0, 0, 2>;
    zero_the_first: zero::<0>;
    zero_the_second: zero::<1>;
    zero_the_fourth: zero::<3>;
}

/// The nearest f32 of `integer * 2^exponent`, ties to even, as only integers are needed to say.
fn nearest(integer: i128, exponent: i32) -> f32 {
    let sign = if integer < 0 { -1.0 } else { 1.0 };
    let mut magnitude = integer.unsigned_abs();
    if magnitude == 0 {
        return 0.0;
    }
    let mut exponent = exponent;
    let extra = (128 - magnitude.leading_zeros() as i32) - 24;
    if extra > 0 {
        let (half, rest) = (1u128 << (extra - 1), magnitude & ((1 << extra) - 1));
        magnitude >>= extra;
        magnitude += u128::from(rest > half || (rest == half && magnitude & 1 == 1));
        exponent += extra;
    }
    // Below the least normal number, as it stands now.
    if (magnitude as f64).log2().floor() as i32 + exponent < -126 {
        return sign * 0.0;
    }
    sign * (magnitude as f64 * 2f64.powi(exponent)) as f32
}

/// Whole numbers up to `most` with a sign, and small ones, that depend on `seed` alone.
fn whole_numbers(seed: u64, count: usize, most: f32) -> impl Iterator<Item = i128> {
    numbers(seed, count).into_iter().map(move |number| (number / 2.0 * most) as i128)
}

#[test]
fn products_are_added_with_one_rounding_to_nearest_even() {
    for (turn, scale) in [0, -20, -60, -76, -78, -80, -84, -100, 30].into_iter().enumerate() {
        let factors = whole_numbers(turn as u64, 20_000, 2048.0);
        let others = whole_numbers(turn as u64 + 100, 20_000, 2048.0);
        let addends = whole_numbers(turn as u64 + 200, 20_000, 16_777_216.0);
        for (index, ((a, b), c)) in factors.zip(others).zip(addends).enumerate() {
            // The addend is from far above the product to far below it.
            let shift = (index % 60) as i32 - 30;
            let exponent = 2 * scale - 20;
            let least = exponent.min(exponent + shift);
            let exact = ((a * b) << (exponent - least)) + (c << (exponent + shift - least));
            let power = |exponent: i32| 2f64.powi(exponent);
            let (x, y) = ((a as f64 * power(scale)) as f32, (b as f64 * power(scale - 20)) as f32);
            let z = (c as f64 * power(exponent + shift)) as f32;
            if [x, y, z].iter().any(|number| number.is_subnormal()) || (z == 0.0) != (c == 0) {
                continue;
            }
            let (found, expected) = (multiply_add(x, y, z), nearest(exact, least));
            assert!(
                found.to_bits() & 0x7fff_ffff == expected.to_bits() & 0x7fff_ffff && found == expected,
                "{x:e} * {y:e} + {z:e}: {found:e} for {expected:e}"
            );
        }
    }
}

#[test]
fn subnormal_numbers_are_zeros_in_bf16_and_sums_and_numbers_in_f16() {
    let tiny = f32::from_bits(1 << 16);
    let huge = 2f32.powi(100);
    assert_eq!(one_sum(0, &[pair_bf16([tiny, tiny])], &[pair_bf16([huge, huge])], dot_bf16), 0);
    let least = f16::from_bits(1).to_f32();
    let found = one_sum(0, &[pair_f16([least, 0.0])], &[pair_f16([1024.0, 0.0])], dot_f16);
    assert_eq!(f32::from_bits(found), least * 1024.0);
    // A subnormal sum that was there counts for nothing, and none comes out.
    assert_eq!(one_sum(1 << 20, &[0], &[0], dot_bf16), 0);
    let small = 2f32.powi(-70);
    assert_eq!(one_sum(0, &[pair_bf16([small, 0.0])], &[pair_bf16([small, 0.0])], dot_bf16), 0);
    assert_eq!(multiply_add(-small, small, 0.0).to_bits(), 1 << 31);
    // With any exponent, 2⁻¹⁵⁰ below the least normal number is a number of its own, and a quarter of that is not.
    let normal = f32::MIN_POSITIVE;
    let step = 2f32.powi(-75);
    assert_eq!(multiply_add(-step, step, normal), 0.0);
    assert_eq!(multiply_add(-step / 2.0, step / 2.0, normal), normal);
}

#[test]
fn the_first_and_the_second_of_all_pairs_are_summed_apart() {
    let big = 2f32.powi(24);
    let (row, ones) = ([[big, 1.0], [-big, 1.0], [0.0, 1.0]], [[1.0, 1.0]; 3]);
    let found = one_sum(3f32.to_bits(), &row.map(pair_bf16), &ones.map(pair_bf16), dot_bf16);
    assert_eq!(f32::from_bits(found), 6.0);
    let (row, ones) = ([[2048.0, 1.0], [-2048.0, 0.5]], [[16384.0, 1.0]; 2]);
    let found = one_sum(0, &row.map(pair_f16), &ones.map(pair_f16), dot_f16);
    assert_eq!(f32::from_bits(found), 1.5);
    // One sum over all of them, as VDPBF16PS has it, is another number.
    let one = row.iter().zip(&ones).flat_map(|(row, ones)| row.iter().zip(ones));
    assert_eq!(one.fold(0.0, |sum, (a, b)| multiply_add(*a, *b, sum)), 0.5);
    assert_eq!(add(big, 1.0), big);
}

#[test]
fn bytes_are_unsigned_by_signed_and_their_sums_exact() {
    let (row, column) = ([u32::MAX; 16], [0x8080_8080u32; 16]);
    assert_eq!(one_sum(0, &row, &column, dot_bytes) as i32, 64 * 255 * -128);
    let found = one_sum(5, &[0xff01_0203], &[0x807f_ff01], dot_bytes) as i32;
    assert_eq!(found, 5 + 3 - 2 + 127 - 255 * 128);
    assert_eq!(one_sum(i32::MAX as u32, &[1], &[1], dot_bytes) as i32, i32::MIN);
}

#[test]
fn tiles_of_any_shape_are_products_of_matrices() {
    let (rows, steps, columns) = (5u8, 7u8, 3u16);
    let words: Vec<u32> = (0..64u32).map(|index| index.wrapping_mul(0x0123_4567)).collect();
    let mut sums = [9u32; 5 * 4];
    // SAFETY: the memory has the shapes that the tiles are given, with gaps.
    unsafe {
        Model::configure(&shapes([rows, rows, steps], [4 * columns, 4 * u16::from(steps), 4 * columns]));
        Model::zero::<0>();
        Model::load::<1>(words.as_ptr(), 8);
        Model::load::<2>(words.as_ptr().add(1), 4);
        Model::dot_bytes::<0, 1, 2>();
        Model::store::<0>(sums.as_mut_ptr(), 4);
        Model::release();
    }
    for row in 0..5 {
        for column in 0..3 {
            let expected: i32 = (0..7 * 4)
                .map(|k| {
                    let (step, byte) = (k / 4, k % 4);
                    let a = words[row * 8 + step].to_le_bytes()[byte];
                    let b = words[1 + step * 4 + column].to_le_bytes()[byte];
                    i32::from(a) * i32::from(b as i8)
                })
                .sum();
            assert_eq!(sums[row * 4 + column] as i32, expected);
        }
        assert_eq!(sums[row * 4 + 3], 9, "wrote beside row {row}");
    }
}

#[test]
fn misuse_is_found() {
    let full = shapes([16; 3], [64; 3]);
    let spoilt = |change: fn(&mut Configuration)| {
        let mut configuration = full;
        change(&mut configuration);
        Some(configuration)
    };
    let narrow = |rows, row_bytes| Some(shapes(rows, row_bytes));
    let none: fn() = || ();
    let cases = [
        ("not configured", None, zero_the_first as fn()),
        ("not configured", None, dot_bf16),
        ("palette 0", spoilt(|wrong| wrong.palette = 0), none),
        ("row 3", spoilt(|wrong| wrong.start_row = 3), none),
        ("reserved", spoilt(|wrong| wrong.rows[8] = 1), none),
        ("reserved", spoilt(|wrong| wrong.reserved[5] = 1), none),
        ("17 rows", spoilt(|wrong| wrong.rows[1] = 17), none),
        ("68 bytes", spoilt(|wrong| wrong.row_bytes[1] = 68), none),
        ("0 rows of 64 bytes", spoilt(|wrong| wrong.rows[1] = 0), none),
        ("no shape", Some(full), zero_the_fourth),
        ("parts of words", narrow([16; 3], [63; 3]), zero_the_second),
        ("one tile", Some(full), dot_one_with_itself),
        ("one tile", Some(full), dot_into_an_operand),
        ("sums of 16 rows, inputs of 8", narrow([16, 8, 16], [64; 3]), dot_bf16),
        ("sums of 64 bytes, weights of 32", narrow([16; 3], [64, 64, 32]), dot_bytes),
        ("inputs of 8 steps, weights of 16", narrow([16; 3], [64, 32, 64]), dot_f16),
    ];
    for (expected, configuration, instruction) in cases {
        let run = || {
            if let Some(configuration) = &configuration {
                // SAFETY: the model panics where the configuration is wrong, and touches no other memory.
                unsafe { Model::configure(configuration) };
            }
            instruction();
        };
        let panic = std::panic::catch_unwind(run).expect_err(expected);
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.unwrap_or_else(|| (*panic.downcast_ref::<&str>().expect("a message")).to_owned());
        assert!(text.contains(expected), "{text:?} instead of {expected:?}");
        // SAFETY: the model needs nothing.
        unsafe { Model::release() };
    }
}

#[test]
fn sixteen_steps_of_a_panel_are_a_tile_of_weights() {
    let (inputs, outputs) = (64, 2 * PANEL);
    let weight = numbers(1, inputs * outputs);
    let mut packed = vec![0; packed_len(Dtype::Bf16, inputs, outputs)];
    pack(Dtype::Bf16, Matrix::dense(&weight, outputs, inputs), 0, &mut packed);
    let steps = inputs / 2;
    for (panel, first) in [(0, 0), (0, 16), (1, 0), (1, 16)] {
        let from = &packed[(panel * steps + first) * PANEL..][..16 * PANEL];
        let mut found = [0; 16 * PANEL];
        // SAFETY: 16 rows of 16 words are read and written.
        unsafe {
            Model::configure(&shapes([16; 3], [64; 3]));
            Model::load::<0>(from.as_ptr(), PANEL);
            Model::store::<0>(found.as_mut_ptr(), PANEL);
            Model::release();
        }
        for step in 0..16 {
            for column in 0..PANEL {
                let at = |half| weight[(panel * PANEL + column) * inputs + 2 * (first + step) + half];
                assert_eq!(found[step * PANEL + column], pair_bf16([at(0), at(1)]));
            }
        }
    }
}

/// Every element is the sum that its row and its weights make alone, in blocks of 32 inputs from the first one on.
#[test]
fn elements_are_one_scheme_of_sums_whatever_the_tile() {
    let kernels = kernels();
    for (dtype, round) in [
        (Dtype::Bf16, (|number| bf16::from_f32(number).to_f32()) as fn(f32) -> f32),
        (Dtype::F16, |number| f16::from_f32(number).to_f32()),
    ] {
        for (inputs, outputs) in [(1, 1), (31, 40), (32, 16), (33, 64), (100, 70), (700, 33), (2000, 20)] {
            let weight: Vec<f32> = numbers(inputs as u64, inputs * outputs).into_iter().map(round).collect();
            let mut packed = vec![0; packed_len(dtype, inputs, outputs)];
            pack(dtype, Matrix::dense(&weight, outputs, inputs), 0, &mut packed);
            let weights = Packed::new(dtype, &packed, inputs, outputs, None);
            for rows in [1, 2, 15, 16, 17, 32, 33, 49, 65, 100] {
                let input = Guarded::filled(rows as u64, rows, inputs, 3);
                let mut output = Guarded::new(rows, outputs, 1);
                kernels.gemm(Product {
                    input: input.view(),
                    weights,
                    panels: 0..weights.panels(),
                    bias: None,
                    activation: Activation::None,
                    residual: None,
                    scratch: &mut vec![u32::MAX; kernels.gemm_scratch_len(dtype, rows, inputs)],
                    output: output.view_mut(),
                });
                output.check("tiles");
                assert!(Model::is_released(), "tiles are left to be saved");
                for row in 0..rows {
                    let held: Vec<f32> = input.view().row(row).iter().map(|number| round(*number)).collect();
                    for (column, found) in output.view().row(row).iter().enumerate() {
                        let expected = element(&held, &weight[column * inputs..][..inputs]);
                        let shape = format!("{rows} × {inputs} × {outputs}: {row}, {column}");
                        assert_eq!(found.to_bits(), expected.to_bits(), "{shape}: {found} for {expected}");
                    }
                }
            }
        }
    }
}

/// Words that end where memory ends: the next one cannot be touched.
#[cfg(unix)]
struct Fenced {
    start: *mut libc::c_void,
    bytes: usize,
    count: usize,
}

#[cfg(unix)]
impl Fenced {
    const PAGE: usize = 1 << 16;

    fn new(count: usize) -> Self {
        let bytes = (count * 4).next_multiple_of(Self::PAGE) + Self::PAGE;
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: new pages, the last of which are taken away again.
        let start = unsafe {
            let start = libc::mmap(std::ptr::null_mut(), bytes, access, flags, -1, 0);
            assert!(start != libc::MAP_FAILED);
            let fence = start.byte_add(bytes - Self::PAGE);
            assert!(libc::mprotect(fence, Self::PAGE, libc::PROT_NONE) == 0);
            start
        };
        Self { start, bytes, count }
    }

    fn words<T: Copy>(&mut self) -> &mut [T] {
        const { assert!(size_of::<T>() == 4) };
        // SAFETY: so many words before the fence, which are zeros at first, and numbers of any bits.
        unsafe {
            let first = self.start.byte_add(self.bytes - Self::PAGE - self.count * 4);
            std::slice::from_raw_parts_mut(first.cast(), self.count)
        }
    }
}

#[cfg(unix)]
impl Drop for Fenced {
    fn drop(&mut self) {
        // SAFETY: mapped by us, and nothing borrows it any more.
        unsafe { libc::munmap(self.start, self.bytes) };
    }
}

#[cfg(unix)]
#[test]
fn nothing_beyond_the_ends_of_memory_is_touched() {
    let kernels = kernels();
    for dtype in [Dtype::Bf16, Dtype::F16, Dtype::I8] {
        for (rows, inputs, outputs) in [
            (1, 1, 1),
            (3, 64, 16),
            (16, 100, 48),
            (17, 33, 40),
            (33, 65, 32),
            (70, 130, 100),
            (64, 1600, 64),
        ] {
            let mut packed = Fenced::new(packed_len(dtype, inputs, outputs));
            let (scales, sums) = (vec![1.0; outputs], vec![0; outputs]);
            let quantized =
                (dtype == Dtype::I8).then_some(Quantized { scales: &scales, sums: &sums, rotated: 1 });
            let mut scratch = Fenced::new(kernels.gemm_scratch_len(dtype, rows, inputs));
            let (mut input, mut output) = (Fenced::new(rows * inputs), Fenced::new(rows * outputs));
            output.words::<f32>().fill(1.0);
            let weights = Packed::new(dtype, packed.words(), inputs, outputs, quantized);
            kernels.gemm(Product {
                input: Matrix::dense(input.words(), rows, inputs),
                weights,
                panels: 0..weights.panels(),
                bias: None,
                activation: Activation::None,
                residual: None,
                scratch: scratch.words(),
                output: MatrixMut::dense(output.words(), rows, outputs),
            });
            assert!(output.words::<f32>().iter().all(|number| *number == 0.0));
        }
    }
}
