//! The one layout of f32 weights on x86, which every class reads, Serial included.

use crate::base::Matrix;

use super::PANEL;

/// Weights in panels of 16 outputs. A panel holds, for input after input, the weights of its 16 outputs side by side, and
/// zeros for outputs beyond the last.
#[derive(Clone, Copy)]
pub struct Packed<'a> {
    panels: &'a [f32],
    inputs: usize,
    outputs: usize,
}

/// Floats that packed weights take.
pub const fn packed_len(inputs: usize, outputs: usize) -> usize {
    inputs * outputs.next_multiple_of(PANEL)
}

/// Writes rows of `weight` (outputs × inputs, as PyTorch stores them) into `panels`, the first row as output number
/// `first` of weights that have `weight.columns()` inputs. Outputs that no row is given for are left as they are.
/// Panics when the panels are too short for that.
pub fn pack(weight: Matrix<f32>, first: usize, panels: &mut [f32]) {
    let (rows, inputs) = (weight.rows(), weight.columns());
    if inputs == 0 {
        return;
    }
    let mut row = 0;
    while row < rows {
        let (panel, column) = ((first + row) / PANEL, (first + row) % PANEL);
        let panel = &mut panels[panel * inputs * PANEL..][..inputs * PANEL];
        if column % BLOCK == 0 && rows - row >= BLOCK {
            pack_block([0, 1, 2, 3].map(|index| weight.row(row + index)), &mut panel[column..]);
            row += BLOCK;
        } else {
            panel
                .iter_mut()
                .skip(column)
                .step_by(PANEL)
                .zip(weight.row(row))
                .for_each(|(to, from)| *to = *from);
            row += 1;
        }
    }
}

/// Rows that are turned into columns together, in registers.
const BLOCK: usize = 4;

/// Packs four rows as the first columns of `panel`, whose last step may be cut off behind them.
fn pack_block(rows: [&[f32]; BLOCK], panel: &mut [f32]) {
    let [first, second, third, fourth] = rows.map(|row| row.as_chunks::<BLOCK>());
    let whole = first.0.iter().zip(second.0).zip(third.0).zip(fourth.0);
    for ((((a, b), c), d), to) in whole.zip(panel.chunks_mut(BLOCK * PANEL)) {
        to[..BLOCK].copy_from_slice(&[a[0], b[0], c[0], d[0]]);
        to[PANEL..PANEL + BLOCK].copy_from_slice(&[a[1], b[1], c[1], d[1]]);
        to[2 * PANEL..2 * PANEL + BLOCK].copy_from_slice(&[a[2], b[2], c[2], d[2]]);
        to[3 * PANEL..3 * PANEL + BLOCK].copy_from_slice(&[a[3], b[3], c[3], d[3]]);
    }
    let rest = first.1.iter().zip(second.1).zip(third.1).zip(fourth.1);
    for ((((a, b), c), d), to) in rest.zip(panel.chunks_mut(PANEL).skip(first.0.len() * BLOCK)) {
        to[..BLOCK].copy_from_slice(&[*a, *b, *c, *d]);
    }
}

impl<'a> Packed<'a> {
    /// Views `panels` as packed weights of that shape. Panics when they are too short: a shape is computed by us.
    pub fn new(panels: &'a [f32], inputs: usize, outputs: usize) -> Self {
        assert!(panels.len() >= packed_len(inputs, outputs), "packed weights outside their data");
        Self { panels, inputs, outputs }
    }

    /// Columns of the matrices that these weights multiply.
    pub fn inputs(&self) -> usize {
        self.inputs
    }

    /// Columns of the products.
    pub fn outputs(&self) -> usize {
        self.outputs
    }

    /// Panels of 16 outputs, the last of which may be partly empty.
    pub fn panels(&self) -> usize {
        self.outputs.div_ceil(PANEL)
    }

    /// The first float of a panel, of which there must be that many.
    pub(super) fn panel(&self, panel: usize) -> *const f32 {
        self.panels[panel * self.inputs * PANEL..].as_ptr()
    }
}
