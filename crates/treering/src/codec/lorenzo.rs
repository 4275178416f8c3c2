//! Prediction of every value from its neighbours in up to three dimensions, the first stage of fpzip
//! (Lindstrom and Isenburg 2006): the value at a corner of a small cube follows from the other corners
//! if the field is smooth there.
//!
//! All of it is integer arithmetic on an order-preserving map of the values, so it is exact; what
//! is left is folded (0, −1, 1, −2 become 0, 1, 2, 3) and coded by the steps behind. Rows need not
//! begin where the bytes do: where a row ends the prediction is merely worse.

use super::word::Word;

/// How values lie, and what they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Grid {
    /// Bytes of a value: 1, 2, 4 or 8.
    pub size: u8,
    /// Whether they are floating-point numbers.
    pub float: bool,
    /// Values of a row; 0 if there is one axis only.
    pub row: u32,
    /// Values of a plane; 0 if there are two axes at most.
    pub plane: u32,
}

pub(super) fn encode(raw: &[u8], out: &mut [u8], grid: Grid) {
    match grid.size {
        1 => residuals::<u8>(raw, out, grid),
        2 => residuals::<u16>(raw, out, grid),
        4 => residuals::<u32>(raw, out, grid),
        _ => residuals::<u64>(raw, out, grid),
    }
}

pub(super) fn decode(encoded: &[u8], out: &mut [u8], grid: Grid) {
    match grid.size {
        1 => values::<u8>(encoded, out, grid),
        2 => values::<u16>(encoded, out, grid),
        4 => values::<u32>(encoded, out, grid),
        _ => values::<u64>(encoded, out, grid),
    }
}

fn residuals<W: Word>(raw: &[u8], out: &mut [u8], grid: Grid) {
    let whole = raw.len() / W::BYTES * W::BYTES;
    out[whole..].copy_from_slice(&raw[whole..]);
    let load = |raw: &[u8]| if grid.float { W::read(raw).ordered() } else { W::read(raw) };
    let words: Vec<W> = raw[..whole].chunks_exact(W::BYTES).map(load).collect();
    let mut from = 0;
    // Behind the first row and plane every neighbour is there, and no step asks for it.
    for (border, corners) in borders(grid, words.len()) {
        for (at, out) in
            out[from * W::BYTES..border * W::BYTES].chunks_exact_mut(W::BYTES).enumerate()
        {
            let at = from + at;
            words[at].sub(predicted(&words, at, corners)).fold().put(out);
        }
        from = border;
    }
}

fn values<W: Word>(encoded: &[u8], out: &mut [u8], grid: Grid) {
    let whole = encoded.len() / W::BYTES * W::BYTES;
    out[whole..].copy_from_slice(&encoded[whole..]);
    let count = whole / W::BYTES;
    let mut words = vec![W::default(); count];
    let mut from = 0;
    for (border, corners) in borders(grid, count) {
        for at in from..border {
            let residual = W::read(&encoded[at * W::BYTES..(at + 1) * W::BYTES]).unfold();
            words[at] = residual.add(predicted(&words, at, corners));
        }
        from = border;
    }
    for (word, out) in words.iter().zip(out[..whole].chunks_exact_mut(W::BYTES)) {
        if grid.float { word.unordered() } else { *word }.put(out);
    }
}

/// How far back the neighbours lie that a value is predicted from.
#[derive(Clone, Copy)]
enum Corners {
    None,
    Line,
    Row(usize),
    Plane(usize, usize),
}

/// Up to where which neighbours are there.
fn borders(grid: Grid, count: usize) -> impl Iterator<Item = (usize, Corners)> {
    let (row, plane) = (grid.row as usize, grid.plane as usize);
    let (flat, deep) = (row > 1, row > 1 && plane > row);
    let first_row = if flat { row + 1 } else { count };
    let first_plane = if deep { plane + row + 1 } else { count };
    [
        (1, Corners::None),
        (first_row, Corners::Line),
        (first_plane, Corners::Row(row)),
        (count, Corners::Plane(row, plane)),
    ]
    .into_iter()
    .map(move |(border, corners)| (border.min(count), corners))
}

#[inline(always)]
fn predicted<W: Word>(words: &[W], at: usize, corners: Corners) -> W {
    match corners {
        Corners::None => W::default(),
        Corners::Line => words[at - 1],
        Corners::Row(row) => words[at - 1].add(words[at - row]).sub(words[at - row - 1]),
        Corners::Plane(row, plane) => words[at - 1]
            .add(words[at - row])
            .add(words[at - plane])
            .add(words[at - plane - row - 1])
            .sub(words[at - row - 1])
            .sub(words[at - plane - 1])
            .sub(words[at - plane - row]),
    }
}
