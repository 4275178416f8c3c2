//! The chains that are tried for a kind of values, by aim.
//!
//! Each has a penalty, measured once: what it has to be smaller by than chains without, because it takes
//! longer to encode or to decode.

use super::chain::CodecStep;
use super::choice::Aim;
use super::columns::TableShape;
use super::difference::{Difference, DifferenceKind};
use super::lorenzo::{LorenzoGrid, Reckoning};
use super::nature::Nature;
use super::numbers::{Numbers, PREDICTED};
use super::repeats::THOROUGH;

/// The steps of a chain, and its penalty.
pub(super) type Candidate = (Vec<CodecStep>, f64);

/// Shape that was found by sampling values whose shape is unknown.
#[derive(Clone, Copy, Default)]
pub(super) struct FoundShape {
    /// The grid that predicts floating-point numbers best.
    pub(super) grid: Option<LorenzoGrid>,
    /// The length of the rows of integers.
    pub(super) row: Option<u8>,
}

/// Chains to be tried.
pub(super) fn candidates(nature: Nature, aim: Aim, found: FoundShape) -> Vec<Candidate> {
    let size = nature.number();
    let shuffled = |behind: CodecStep| match size {
        1 => vec![behind],
        _ => vec![CodecStep::Shuffle(size), behind],
    };
    if aim == Aim::Fastest {
        return vec![
            (shuffled(CodecStep::Lz4), 0.0),
            (vec![CodecStep::Lz4], 0.0),
            (shuffled(CodecStep::Zstd(1)), 0.02),
            (vec![CodecStep::Zstd(1)], 0.02),
        ]
        .into_iter()
        .chain(multiples(nature, aim))
        .chain(with_repeats(nature, aim, found.grid))
        .collect();
    }
    let (zstd, level) = efforts(aim);
    let mut all = vec![(vec![zstd], 0.0)];
    if size > 1 {
        all.push((shuffled(zstd), 0.0));
        all.push((vec![CodecStep::BitShuffle(size), zstd], 0.01));
    }
    let numbers = CodecStep::Pco(Numbers::of(nature.dtype), level);
    all.push((vec![numbers], 0.005));
    let records = nature.split();
    for grid in nature.grids().into_iter().chain(found.grid.filter(|grid| grid.row > 0)) {
        for (coder, penalty) in coders_of_left(size, aim, level) {
            let left = [CodecStep::Lorenzo(grid), coder];
            let split = records.filter(|_| grid.row > 0);
            all.push((split.into_iter().chain(left).collect(), 0.01 + penalty));
        }
    }
    let line = CodecStep::Lorenzo(nature.grids()[0]);
    all.push((vec![line, CodecStep::Shuffle(size.max(2)), zstd], 0.01));
    if let Some(split) = records {
        all.push((vec![split, numbers], 0.005));
        all.push(([vec![split], shuffled(zstd)].concat(), 0.005));
    }
    if nature.is_float() && size >= 4 {
        all.push((vec![CodecStep::Fpc(size), zstd], 0.01));
    }
    all.extend(multiples(nature, aim));
    all.extend(with_repeats(nature, aim, found.grid));
    all
}

/// Zstd, and the level of pco.
fn efforts(aim: Aim) -> (CodecStep, u8) {
    match aim {
        Aim::Smallest => (CodecStep::Zstd(SMALLEST_ZSTD), SMALLEST_PCO),
        _ => (CodecStep::Zstd(3), BALANCED_PCO),
    }
}

/// Coders of what a prediction or a difference leaves, and what they have to gain.
fn coders_of_left(size: u8, aim: Aim, level: u8) -> Vec<(CodecStep, f64)> {
    let mut all = vec![(CodecStep::Pco(Numbers::unsigned(size), level | PREDICTED), 0.0)];
    if aim == Aim::Smallest {
        let line = TableShape { size, signed: false, row: 1, thorough: true };
        all.push((CodecStep::Columns(line), CONTEXTS));
    }
    all
}

/// Chains that take integers as a table, or their differences to the step before. They have to learn each
/// column, so a small sample tells little of them. Their penalties leave [`COLUMNS`] out.
pub(super) fn tables(nature: Nature, aim: Aim, found: FoundShape, beside: bool) -> Vec<Candidate> {
    let Some(table) = table_of(nature, aim, found) else { return Vec::new() };
    let (first, penalty) = difference_of(table.size, beside);
    let columns = TableShape { signed: table.signed && !beside, ..table };
    let mut all = vec![vec![CodecStep::Columns(columns)]];
    all.extend(table.rows().map(|rows| vec![rows, CodecStep::Columns(columns)]));
    all.into_iter().map(|steps| ([&first[..], &steps].concat(), penalty)).collect()
}

/// The table that integers lie in, if there is time to look at it.
fn table_of(nature: Nature, aim: Aim, found: FoundShape) -> Option<TableShape> {
    let table = nature.table(aim == Aim::Smallest).filter(|_| aim != Aim::Fastest)?;
    Some(TableShape { row: found.row.unwrap_or(table.row), ..table })
}

/// Chains that take rows out that were there before, of integers or their differences to the step before.
pub(super) fn with_rows(
    nature: Nature,
    aim: Aim,
    found: FoundShape,
    beside: bool,
) -> Vec<Candidate> {
    let Some(table) = table_of(nature, aim, found) else { return Vec::new() };
    let Some(rows) = table.rows() else { return Vec::new() };
    let (first, penalty) = difference_of(table.size, beside);
    let planes = (table.size > 1).then_some(CodecStep::Shuffle(table.size));
    let steps = first.into_iter().chain([rows]).chain(planes).chain([efforts(aim).0]);
    vec![(steps.collect(), penalty)]
}

/// The step that takes the difference if the bytes before are at hand, and its penalty.
fn difference_of(size: u8, beside: bool) -> (Vec<CodecStep>, f64) {
    let fold = Difference { way: DifferenceKind::Fold, size, float: false };
    match beside {
        true => (vec![CodecStep::Difference(fold)], DIFFERENCE),
        false => (Vec::new(), 0.0),
    }
}

/// Chains that take rounded values as whole numbers.
pub(super) fn multiples(nature: Nature, aim: Aim) -> Vec<Candidate> {
    let size = nature.number();
    let Some(spacing) = nature.spacing.filter(|_| matches!(size, 4 | 8)) else {
        return Vec::new();
    };
    let first: Vec<CodecStep> =
        nature.split().into_iter().chain([CodecStep::Multiples(size, spacing)]).collect();
    let grids = nature
        .grids()
        .into_iter()
        .map(|grid| LorenzoGrid { reckoning: Reckoning::Integers, ..grid });
    let planes = CodecStep::Shuffle(size);
    if aim == Aim::Fastest {
        let line =
            CodecStep::Lorenzo(LorenzoGrid { reckoning: Reckoning::Integers, ..nature.grids()[0] });
        return vec![
            ([&first[..], &[planes, CodecStep::Lz4]].concat(), 0.01),
            ([&first[..], &[line, CodecStep::Zstd(1)]].concat(), 0.03),
        ];
    }
    let (zstd, pco) = efforts(aim);
    let mut all =
        vec![([&first[..], &[CodecStep::Pco(Numbers::signed(size), pco)]].concat(), 0.005)];
    for grid in grids {
        for (coder, penalty) in coders_of_left(size, aim, pco) {
            let steps = [&first[..], &[CodecStep::Lorenzo(grid), coder]].concat();
            all.push((steps, 0.01 + penalty));
        }
        // Parts of records are split first, and then there is room for two more steps only.
        let ends = match first.len() {
            1 => [CodecStep::Lorenzo(grid), planes, zstd].to_vec(),
            _ => [CodecStep::Lorenzo(grid), zstd].to_vec(),
        };
        all.push(([&first[..], &ends].concat(), 0.01));
    }
    all.push(([&first[..], &[planes, zstd]].concat(), 0.0));
    all
}

/// Chains that take out values that were there before.
pub(super) fn with_repeats(nature: Nature, aim: Aim, found: Option<LorenzoGrid>) -> Vec<Candidate> {
    let size = nature.number();
    if !matches!(size, 2 | 4 | 8) {
        return Vec::new();
    }
    let effort = if aim == Aim::Smallest { size | THOROUGH } else { size };
    let first = CodecStep::Repeats(effort);
    let numbers = Numbers::of(nature.dtype);
    let line = nature.grids()[0];
    let grids = found.map_or_else(|| nature.grids_of_records(), |grid| vec![grid]);
    let mut all = match aim {
        Aim::Smallest => vec![
            (vec![first, CodecStep::Pco(numbers, SMALLEST_PCO)], 0.0),
            (vec![first, CodecStep::Shuffle(size), efforts(aim).0], 0.0),
            (vec![first, CodecStep::Lorenzo(line), CodecStep::Shuffle(size), efforts(aim).0], 0.0),
        ],
        Aim::Fastest => vec![
            (vec![first, CodecStep::Shuffle(size), CodecStep::Lz4], 0.05),
            (vec![first, CodecStep::Shuffle(size), CodecStep::Zstd(1)], 0.07),
        ],
        Aim::Balanced => vec![
            // Half or less is left, so there is time for a higher level.
            (vec![first, CodecStep::Pco(numbers, 8)], 0.01),
            (vec![first, CodecStep::Shuffle(size), CodecStep::Zstd(3)], 0.005),
        ],
    };
    let (level, penalty) = match aim {
        Aim::Smallest => (SMALLEST_PCO, 0.0),
        Aim::Balanced => (8, 0.01),
        Aim::Fastest => return all,
    };
    let coders = coders_of_left(size, aim, level);
    let left = |first: &[CodecStep], grid: LorenzoGrid| {
        let steps = [first, &[CodecStep::News(effort, grid)]].concat();
        let with = |(coder, more): &(CodecStep, f64)| {
            (steps.iter().copied().chain([*coder]).collect(), penalty + more)
        };
        coders.iter().map(with).collect::<Vec<_>>()
    };
    all.extend(grids.iter().flat_map(|grid| left(&[], *grid)));
    if let Some(spacing) = nature.spacing.filter(|_| size > 2) {
        let whole = CodecStep::Multiples(size, spacing);
        all.push((vec![whole, first, CodecStep::Pco(Numbers::signed(size), level)], penalty));
        all.extend(grids.iter().flat_map(|grid| {
            left(&[whole], LorenzoGrid { reckoning: Reckoning::Integers, ..*grid })
        }));
    }
    all
}

/// Chains that begin with the difference to the step before.
pub(super) fn differences(nature: Nature, aim: Aim) -> Vec<Candidate> {
    let size = nature.number();
    if !matches!(size, 1 | 2 | 4 | 8) {
        return Vec::new();
    }
    let by = |way| CodecStep::Difference(Difference { way, size, float: nature.is_float() });
    let planes = CodecStep::Shuffle(size.max(2));
    if aim == Aim::Fastest {
        return vec![
            (vec![by(DifferenceKind::Xor), planes, CodecStep::Lz4], 0.05),
            (vec![by(DifferenceKind::Fold), planes, CodecStep::Zstd(1)], 0.07),
        ];
    }
    let (zstd, pco) = efforts(aim);
    let numbers = CodecStep::Pco(Numbers::unsigned(size), pco | PREDICTED);
    let mut all = vec![
        (vec![by(DifferenceKind::Fold), planes, zstd], DIFFERENCE),
        (vec![by(DifferenceKind::Xor), planes, zstd], DIFFERENCE),
        (vec![by(DifferenceKind::Xor), zstd], DIFFERENCE),
    ];
    for (coder, penalty) in coders_of_left(size, aim, pco) {
        all.push((vec![by(DifferenceKind::Fold), coder], DIFFERENCE + penalty));
        // Where a field moves as a whole, its change is smooth as well.
        for grid in nature.grids() {
            let grid = LorenzoGrid { reckoning: Reckoning::Integers, ..grid };
            all.push((
                vec![by(DifferenceKind::Subtract), CodecStep::Lorenzo(grid), coder],
                DIFFERENCE + penalty + 0.01,
            ));
        }
    }
    if let Some(split) = nature.split() {
        all.push((vec![by(DifferenceKind::Fold), split, numbers], DIFFERENCE));
    }
    all
}

/// Minimum gain of a table coded by columns under the balanced aim, by the share of its rows that are coded: these
/// are decoded at a sixth of the rate of other chains.
pub(super) const COLUMNS: f64 = 0.25;
/// Minimum gain of contexts where there is another coder of numbers, which is decoded faster.
const CONTEXTS: f64 = 0.005;
/// The level of pco for the balanced aim, and for the smallest: the highest takes six times as long for one
/// byte in a thousand.
const BALANCED_PCO: u8 = 6;
const SMALLEST_PCO: u8 = 9;
/// The level of zstd for the smallest aim.
const SMALLEST_ZSTD: u8 = 12;
/// Minimum gain of a difference: it makes restores read more.
const DIFFERENCE: f64 = 0.02;
