//! Prediction of every value from its neighbours in up to three dimensions, the first stage of fpzip
//! (Lindstrom and Isenburg 2006): the value at a corner of a small cube follows from the other corners
//! if the field is smooth there.
//!
//! Floating-point numbers are predicted by their own arithmetic, which IEEE 754 makes the same
//! everywhere, and what is left is the difference of order-preserving maps of both to integers, so it
//! is exact. It is folded (0, −1, 1, −2 become 0, 1, 2, 3) and coded by the steps behind. Rows need not
//! begin where the bytes do: where a row ends the prediction is merely worse. A row of one value makes
//! two dimensions of one: the line goes on as it did.

use super::word::Word;

/// Arithmetic of the prediction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reckoning {
    /// Integers.
    Integers,
    /// Floating-point numbers, predicted as the integers in the same order.
    Ordered,
    /// Floating-point numbers of 4 or 8 bytes.
    Floats,
}

impl Reckoning {
    pub(super) const ALL: [Reckoning; 3] =
        [Reckoning::Integers, Reckoning::Ordered, Reckoning::Floats];
}

/// Grid and arithmetic of the values of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LorenzoGrid {
    /// Bytes of a value: 1, 2, 4 or 8.
    pub size: u8,
    /// Arithmetic of the prediction.
    pub reckoning: Reckoning,
    /// Values of a row; 0 if there is one axis only.
    pub row: u32,
    /// Values of a plane; 0 if there are two axes at most.
    pub plane: u32,
}

impl LorenzoGrid {
    pub(super) fn is_valid(self) -> bool {
        match self.reckoning {
            Reckoning::Floats => matches!(self.size, 4 | 8),
            _ => matches!(self.size, 1 | 2 | 4 | 8),
        }
    }

    /// The axes that a prediction looks along.
    pub(super) fn axes(self) -> usize {
        1 + usize::from(self.row > 0) + usize::from(self.row > 0 && self.plane > self.row)
    }
}

/// The longest row that is looked for, and at how many places.
const LONGEST: usize = 1024;
const PLACES: usize = 512;
/// Number of bits of a value that a row has to save.
const GAIN: f64 = 0.25;

/// The grid that predicts floating-point numbers best of which no shape is known: those before, the
/// line as it went on, or a row that is found by trying.
pub(super) fn found(raw: &[u8], size: u8) -> LorenzoGrid {
    match size {
        4 => found_among::<u32>(raw, size),
        _ => found_among::<u64>(raw, size),
    }
}

fn found_among<W: Word>(raw: &[u8], size: u8) -> LorenzoGrid {
    let words: Vec<W> = raw.chunks_exact(W::BYTES).map(W::read).collect();
    let longest = LONGEST.min(words.len() / 4);
    let first = longest + 1;
    let step = (words.len().saturating_sub(first) / PLACES).max(1);
    // Where nothing changes, every prediction is right.
    let changes = |at: &usize| words[*at].xor(words[*at - 1]).bits() > 0;
    let places: Vec<usize> = (first..words.len()).step_by(step).filter(changes).collect();
    let bits = |row: usize| -> f64 {
        let corners = if row == 0 { Corners::Line } else { Corners::Row(row) };
        let left = |at: &usize| {
            AsFloats::left(words[*at], AsFloats::foretold(|at| words[at], *at, corners)).bits()
        };
        places.iter().map(|at| f64::from(left(at))).sum::<f64>() / places.len().max(1) as f64
    };
    let mut best = (bits(0), 0);
    for row in 1..=longest {
        let bits = bits(row);
        if bits < best.0 - if best.1 == 0 { GAIN } else { 0.0 } {
            best = (bits, row);
        }
    }
    LorenzoGrid { size, reckoning: Reckoning::Floats, row: best.1 as u32, plane: 0 }
}

pub(super) fn encode(raw: &[u8], out: &mut [u8], grid: LorenzoGrid) {
    match grid.size {
        1 => residuals::<u8>(raw, out, grid),
        2 => residuals::<u16>(raw, out, grid),
        4 => residuals::<u32>(raw, out, grid),
        _ => residuals::<u64>(raw, out, grid),
    }
}

pub(super) fn decode(encoded: &[u8], out: &mut [u8], grid: LorenzoGrid) {
    match grid.size {
        1 => values::<u8>(encoded, out, grid),
        2 => values::<u16>(encoded, out, grid),
        4 => values::<u32>(encoded, out, grid),
        _ => values::<u64>(encoded, out, grid),
    }
}

fn residuals<W: Word>(raw: &[u8], out: &mut [u8], grid: LorenzoGrid) {
    let whole = raw.len() / W::BYTES * W::BYTES;
    out[whole..].copy_from_slice(&raw[whole..]);
    let (raw, out) = (&raw[..whole], &mut out[..whole]);
    match grid.reckoning {
        Reckoning::Integers => taken_off::<W, AsIntegers>(raw, out, grid),
        Reckoning::Ordered => taken_off::<W, AsOrdered>(raw, out, grid),
        Reckoning::Floats => taken_off::<W, AsFloats>(raw, out, grid),
    }
}

fn values<W: Word>(encoded: &[u8], out: &mut [u8], grid: LorenzoGrid) {
    let whole = encoded.len() / W::BYTES * W::BYTES;
    out[whole..].copy_from_slice(&encoded[whole..]);
    let (encoded, out) = (&encoded[..whole], &mut out[..whole]);
    match grid.reckoning {
        Reckoning::Integers => put_back::<W, AsIntegers>(encoded, out, grid),
        Reckoning::Ordered => put_back::<W, AsOrdered>(encoded, out, grid),
        Reckoning::Floats => put_back::<W, AsFloats>(encoded, out, grid),
    }
}

fn taken_off<W: Word, A: Arithmetic>(raw: &[u8], out: &mut [u8], grid: LorenzoGrid) {
    let words: Vec<W> = raw.chunks_exact(W::BYTES).map(|raw| A::held(W::read(raw))).collect();
    let mut from = 0;
    // Behind the first row and plane every neighbour is there, and no step asks for it.
    for (border, corners) in borders(grid, words.len()) {
        for (at, out) in
            out[from * W::BYTES..border * W::BYTES].chunks_exact_mut(W::BYTES).enumerate()
        {
            let at = from + at;
            A::left(words[at], A::foretold(|at| words[at], at, corners)).put(out);
        }
        from = border;
    }
}

fn put_back<W: Word, A: Arithmetic>(encoded: &[u8], out: &mut [u8], grid: LorenzoGrid) {
    let mut words = vec![W::default(); encoded.len() / W::BYTES];
    let mut from = 0;
    for (border, corners) in borders(grid, words.len()) {
        for at in from..border {
            let left = W::read(&encoded[at * W::BYTES..(at + 1) * W::BYTES]);
            words[at] = A::value(left, A::foretold(|at| words[at], at, corners));
        }
        from = border;
    }
    for (word, out) in words.iter().zip(out.chunks_exact_mut(W::BYTES)) {
        A::written(*word).put(out);
    }
}

/// Distances of the neighbours that a value is predicted from.
#[derive(Clone, Copy)]
pub(super) enum Corners {
    None,
    Line,
    Row(usize),
    Plane(usize, usize),
}

/// Up to where which neighbours are there.
pub(super) fn borders(grid: LorenzoGrid, count: usize) -> [(usize, Corners); 4] {
    let (row, plane) = (grid.row as usize, grid.plane as usize);
    let first_row = if grid.axes() > 1 { row + 1 } else { count };
    let first_plane = if grid.axes() > 2 { plane + row + 1 } else { count };
    [
        (1.min(count), Corners::None),
        (first_row.min(count), Corners::Line),
        (first_plane.min(count), Corners::Row(row)),
        (count, Corners::Plane(row, plane)),
    ]
}

/// Arithmetic of predictions and residuals.
pub(super) trait Arithmetic {
    /// The value that its neighbours predict, as it is held.
    fn foretold<W: Word>(held: impl Fn(usize) -> W, at: usize, corners: Corners) -> W;

    /// A word of the bytes as it is used in arithmetic.
    #[inline(always)]
    fn held<W: Word>(word: W) -> W {
        word
    }

    /// The word that was held so.
    #[inline(always)]
    fn written<W: Word>(held: W) -> W {
        held
    }

    /// Residual of a value after its prediction.
    #[inline(always)]
    fn left<W: Word>(held: W, foretold: W) -> W {
        held.sub(foretold).fold()
    }

    /// The value of which a prediction left this.
    #[inline(always)]
    fn value<W: Word>(left: W, foretold: W) -> W {
        left.unfold().add(foretold)
    }
}

pub(super) struct AsIntegers;
pub(super) struct AsOrdered;
pub(super) struct AsFloats;

impl Arithmetic for AsIntegers {
    #[inline(always)]
    fn foretold<W: Word>(held: impl Fn(usize) -> W, at: usize, corners: Corners) -> W {
        match corners {
            Corners::None => W::default(),
            Corners::Line => held(at - 1),
            Corners::Row(row) => held(at - 1).add(held(at - row)).sub(held(at - row - 1)),
            Corners::Plane(row, plane) => held(at - 1)
                .add(held(at - row))
                .add(held(at - plane))
                .add(held(at - plane - row - 1))
                .sub(held(at - row - 1))
                .sub(held(at - plane - 1))
                .sub(held(at - plane - row)),
        }
    }
}

impl Arithmetic for AsOrdered {
    #[inline(always)]
    fn foretold<W: Word>(held: impl Fn(usize) -> W, at: usize, corners: Corners) -> W {
        AsIntegers::foretold(held, at, corners)
    }

    #[inline(always)]
    fn held<W: Word>(word: W) -> W {
        word.ordered()
    }

    #[inline(always)]
    fn written<W: Word>(held: W) -> W {
        held.unordered()
    }
}

impl Arithmetic for AsFloats {
    #[inline(always)]
    fn foretold<W: Word>(held: impl Fn(usize) -> W, at: usize, corners: Corners) -> W {
        match corners {
            Corners::None => W::default(),
            Corners::Line => held(at - 1),
            Corners::Row(row) => {
                W::float_sum(&[held(at - 1), held(at - row)], &[held(at - row - 1)])
            }
            Corners::Plane(row, plane) => W::float_sum(
                &[held(at - 1), held(at - row), held(at - plane), held(at - plane - row - 1)],
                &[held(at - row - 1), held(at - plane - 1), held(at - plane - row)],
            ),
        }
    }

    #[inline(always)]
    fn left<W: Word>(held: W, foretold: W) -> W {
        held.ordered().sub(foretold.ordered()).fold()
    }

    #[inline(always)]
    fn value<W: Word>(left: W, foretold: W) -> W {
        left.unfold().add(foretold.ordered()).unordered()
    }
}
