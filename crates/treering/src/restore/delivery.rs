//! Which rank reads what of a checkpoint, and which bytes of it go to which ranks, as plain values.
//!
//! Every rank says what it needs and what it holds. From that, each holder computes what its variables are to the
//! others: a variable as a whole (it is the same on all ranks, or the rank's own), elements of a box, or rows. All of
//! them become pieces, runs of bytes from a stored variable to an array, which are read window by window so that
//! every byte is read once, however many ranks want it.

use crate::array::{DType, Description, GlobalBox, IndexBox, Order, Part, Rank, Shape};
use crate::comm::wire;
use crate::error::{Error, ErrorKind, Result};
use std::collections::BTreeMap;
use std::ops::Range;

/// Pieces are cut at multiples of this many bytes of a variable, which are read at a time.
pub(super) const WINDOW: u64 = 32 << 20;
/// Bytes between two pieces that are read rather than skipped.
const GAP: u64 = 32 << 10;

/// The rank that reads each group of a checkpoint: ranges of groups of about as many bytes.
pub(crate) fn readers(sizes: &[u64], ranks: u32) -> Vec<Rank> {
    let all = sizes.iter().map(|size| u128::from(*size)).sum::<u128>().max(1);
    let mut before = 0u128;
    let reader = |size: &u64| {
        let middle = 2 * before + u128::from(*size);
        before += u128::from(*size);
        let rank = middle * u128::from(ranks) / (2 * all);
        Rank(rank.min(u128::from(ranks.max(1) - 1)) as u32)
    };
    sizes.iter().map(reader).collect()
}

/// A variable that a rank wants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Need {
    pub(super) name: String,
    /// The box of a global array, if it is one.
    wanted: Option<NeededBox>,
}

wire! { struct Need { name, wanted } }

/// A box of a global array that a rank wants.
#[derive(Clone, Debug, PartialEq, Eq)]
struct NeededBox {
    /// The elements that exist.
    inside: IndexBox,
    /// The array in memory, cells outside of the global array included.
    memory: IndexBox,
}

wire! { struct NeededBox { inside, memory } }

impl Need {
    pub(super) fn of(target: &Description) -> Need {
        let wanted = target.global_box().map(|part| NeededBox {
            inside: part.inside(&target.shape),
            memory: part.memory(&target.shape),
        });
        Need { name: target.name.clone(), wanted }
    }
}

/// A variable that a rank holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HeldVariable {
    /// The rank that saved it.
    pub(crate) source: u32,
    pub(crate) description: Description,
}

wire! { struct HeldVariable { source, description } }

/// Relation of a stored variable to a rank that needs one of its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Share {
    /// All of it.
    Whole,
    /// The elements of this box of a global array.
    Common(IndexBox),
    /// So many rows: the first one in the variable, and in the rank's array.
    Rows { from: u64, to: u64, count: u64 },
}

wire! { enum Share { 0 Whole, 1 Common(part), 2 Rows { from, to, count } } }

/// Facts that all ranks know before anything is read.
pub(super) struct Known {
    /// The ranks that saved the checkpoint.
    pub(super) saved_by: u32,
    /// The ranks that restore it.
    pub(super) ranks: u32,
    rows: BTreeMap<String, GlobalRows>,
    /// One variable of each name.
    examples: BTreeMap<String, HeldVariable>,
}

/// The rows of a global array.
struct GlobalRows {
    /// The first row of each rank that saved some, by rank.
    starts: BTreeMap<u32, Range<u64>>,
    all: u64,
}

impl Known {
    pub(super) fn new(saved_by: u32, ranks: u32, held: Vec<HeldVariable>) -> Known {
        let mut counts: BTreeMap<String, BTreeMap<u32, u64>> = BTreeMap::new();
        let mut examples: BTreeMap<String, HeldVariable> = BTreeMap::new();
        for variable in held {
            let name = variable.description.name.clone();
            if variable.description.part == Some(Part::Rows) {
                let of_name = counts.entry(name.clone()).or_default();
                of_name.insert(variable.source, variable.description.rows().0);
            }
            examples.entry(name).or_insert(variable);
        }
        let rows = counts.into_iter().map(|(name, counts)| {
            let mut all = 0u64;
            let follow = |(source, count): (u32, u64)| {
                let start = all;
                all = all.saturating_add(count);
                (source, start..all)
            };
            let starts = counts.into_iter().map(follow).collect();
            (name, GlobalRows { starts, all })
        });
        Known { saved_by, ranks, rows: rows.collect(), examples }
    }

    /// Whether any rank holds a variable of that name.
    pub(super) fn has(&self, name: &str) -> bool {
        self.examples.contains_key(name)
    }

    /// The error of a variable that nobody has.
    pub(super) fn has_no(&self, name: &str, rank: Rank) -> Error {
        let names: Vec<&str> = self.examples.keys().map(String::as_str).take(20).collect();
        let hint = match names.is_empty() {
            true => "this checkpoint holds trees only, and no data that could be restored".into(),
            false => format!("it has {}", names.join(", ")),
        };
        Error::new(ErrorKind::Mismatch, format!("there is no variable {name:?} of rank {rank}"))
            .hint(hint)
    }

    /// The error of a variable that only its own rank can restore.
    pub(super) fn belongs_to_its_rank(&self, name: &str) -> Error {
        let part = self.examples.get(name).and_then(|held| held.description.part.as_ref());
        if let Some(Part::Box(part)) = part {
            let what = format!(
                "variable {name:?} is a box of {} in the checkpoint, and none here",
                part.global
            );
            return Error::new(ErrorKind::Mismatch, what)
                .hint("declare the box that this rank wants, with VariableMut::part_of");
        }
        let ranks = self.saved_by;
        Error::new(
            ErrorKind::Mismatch,
            format!("variable {name:?} belongs to one rank each, and {ranks} ranks have saved it"),
        )
        .hint(format!(
            "restart with {ranks} ranks, or save it as boxes or rows of a global array, or as the same on all ranks (Variable::part_of, rows, same)"
        ))
    }

    /// The rows of a global array that a rank gets: its own, or an even share of all.
    fn rows_for(&self, name: &str, rank: Rank) -> Option<Range<u64>> {
        let rows = self.rows.get(name)?;
        if self.saved_by == self.ranks {
            return Some(rows.starts.get(&rank.0).cloned().unwrap_or(0..0));
        }
        let at = |rank: u32| {
            let row = u128::from(rows.all) * u128::from(rank) / u128::from(self.ranks.max(1));
            row as u64
        };
        Some(at(rank.0)..at(rank.0 + 1))
    }

    /// The array of rows that a rank gets, if the variable is one.
    pub(super) fn rows_of(&self, need: &Need, rank: Rank) -> Option<Description> {
        let rows = self.rows_for(&need.name, rank).filter(|_| need.wanted.is_none())?;
        let mut description = self.examples.get(&need.name)?.description.clone();
        let slowest = match description.order {
            Order::C => description.shape.0.first_mut(),
            Order::Fortran => description.shape.0.last_mut(),
        };
        *slowest? = rows.end - rows.start;
        Some(description)
    }

    /// The relation of a stored variable to a rank that needs one of its name.
    pub(super) fn share(&self, held: &HeldVariable, need: &Need, to: Rank) -> Option<Share> {
        let HeldVariable { source, description } = held;
        match (&description.part, &need.wanted) {
            (Some(Part::Same), None) => Some(Share::Whole),
            (Some(Part::Rows), None) => self.common_rows(held, to),
            (None | Some(Part::Box(_)), None) => {
                (self.saved_by == self.ranks && *source == to.0).then_some(Share::Whole)
            }
            (Some(Part::Rows), Some(_)) => None,
            (_, Some(wanted)) => {
                let (_, owned) = self.as_box(description)?;
                owned.common(&wanted.inside).map(Share::Common)
            }
        }
    }

    fn common_rows(&self, held: &HeldVariable, to: Rank) -> Option<Share> {
        let name = &held.description.name;
        let own = self.rows.get(name)?.starts.get(&held.source)?;
        let wanted = self.rows_for(name, to)?;
        let (start, end) = (own.start.max(wanted.start), own.end.min(wanted.end));
        (start < end).then(|| Share::Rows {
            from: start - own.start,
            to: start - wanted.start,
            count: end - start,
        })
    }

    /// The global array of a variable, and the box of it that it holds. A variable that is the same on all ranks, or
    /// that a single rank saved, is a global array by itself.
    fn as_box(&self, stored: &Description) -> Option<(Shape, IndexBox)> {
        let whole = || {
            let (offset, extent) = (vec![0; stored.shape.0.len()], stored.shape.0.clone());
            (stored.shape.clone(), IndexBox { offset, extent })
        };
        match &stored.part {
            Some(Part::Box(part)) => Some((part.global.clone(), part.owned(&stored.shape))),
            Some(Part::Same) => Some(whole()),
            None if self.saved_by == 1 => Some(whole()),
            None | Some(Part::Rows) => None,
        }
    }

    /// Refuses a box that is not one of the stored array, or of which elements are missing or there twice.
    pub(super) fn check_box(
        &self,
        target: &Description,
        part: &GlobalBox,
        offers: &[(Rank, IndexBox, &Description)],
    ) -> Result<()> {
        let name = &target.name;
        let examples = self.examples.get(name).map(|held| &held.description);
        for stored in examples.into_iter().chain(offers.iter().map(|(_, _, stored)| *stored)) {
            check_type(name, stored.dtype, target.dtype)?;
            let Some((global, _)) = self.as_box(stored) else {
                let what = format!(
                    "variable {name:?} is a box of {} here, but not in the checkpoint",
                    part.global
                );
                return Err(Error::new(ErrorKind::Mismatch, what));
            };
            let axes = target.shape.0.iter().filter(|extent| **extent > 1).count();
            if global != part.global || (stored.order != target.order && axes > 1) {
                let what = format!(
                    "variable {name:?} is a box of {} in {:?} order here, but of {global} in {:?} order in the checkpoint",
                    part.global, target.order, stored.order
                );
                return Err(Error::new(ErrorKind::Mismatch, what));
            }
        }
        let parts: Vec<(IndexBox, Rank)> =
            offers.iter().map(|(rank, common, _)| (common.clone(), *rank)).collect();
        check_cover(name, &part.inside(&target.shape), &parts)
    }
}

/// Refuses another type than the stored one.
pub(super) fn check_type(name: &str, stored: DType, wanted: DType) -> Result<()> {
    match stored == wanted {
        true => Ok(()),
        false => Err(Error::new(
            ErrorKind::Mismatch,
            format!("variable {name:?} has type {stored}, not {wanted}"),
        )),
    }
}

/// Refuses parts of a box that leave gaps or overlap.
pub(super) fn check_cover(name: &str, wanted: &IndexBox, parts: &[(IndexBox, Rank)]) -> Result<()> {
    for (at, (part, rank)) in parts.iter().enumerate() {
        let twice = |(other, of): &(IndexBox, Rank)| Some((part.common(other)?, *of));
        if let Some((both, other)) = parts[..at].iter().find_map(twice) {
            return Err(Error::new(
                ErrorKind::Mismatch,
                format!(
                    "ranks {other} and {rank} both have index {:?} of variable {name:?}",
                    both.offset
                ),
            ));
        }
    }
    let covered: u64 = parts.iter().filter_map(|(part, _)| part.elements()).sum();
    match wanted.elements() == Some(covered) {
        true => Ok(()),
        false => Err(Error::new(
            ErrorKind::Mismatch,
            format!("no rank has index {:?} of variable {name:?}", first_gap(wanted, parts)),
        )),
    }
}

/// The first index of a box that is in no part. The box is cut along one axis after another where a part begins or
/// ends, so that every piece is in a part as a whole or not at all.
fn first_gap(wanted: &IndexBox, parts: &[(IndexBox, Rank)]) -> Vec<u64> {
    let mut index = Vec::new();
    let mut parts: Vec<&IndexBox> = parts.iter().map(|(part, _)| part).collect();
    for axis in 0..wanted.offset.len() {
        let end = |part: &IndexBox| part.offset[axis] + part.extent[axis];
        let mut cuts: Vec<u64> = parts.iter().flat_map(|p| [p.offset[axis], end(p)]).collect();
        cuts.push(wanted.offset[axis]);
        cuts.sort_unstable();
        cuts.retain(|cut| *cut < wanted.offset[axis] + wanted.extent[axis]);
        let rest = |part: &IndexBox| -> u64 { part.extent[axis + 1..].iter().product() };
        let needed = rest(wanted);
        let holds = |part: &IndexBox, cut: u64| part.offset[axis] <= cut && cut < end(part);
        let gap = cuts.iter().find(|cut| {
            parts.iter().filter(|p| holds(p, **cut)).map(|p| rest(p)).sum::<u64>() < needed
        });
        let at = gap.copied().unwrap_or(wanted.offset[axis]);
        index.push(at);
        parts.retain(|part| holds(part, at));
    }
    index
}

/// Bytes of a stored variable that go to one place of one array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BytePiece {
    pub(super) rank: Rank,
    /// Which of the rank's needs.
    pub(super) need: u32,
    pub(super) from: u64,
    pub(super) to: u64,
    pub(super) len: u64,
}

/// The pieces of a stored variable that a rank gets, cut at windows.
pub(super) fn pieces(
    stored: &Description,
    (share, need): (&Share, &Need),
    (rank, number): (Rank, u32),
) -> Vec<BytePiece> {
    let size = stored.dtype.size();
    let mut all = Vec::new();
    let mut put = |mut from: u64, mut to: u64, mut len: u64| {
        while len > 0 {
            let part = len.min(WINDOW - from % WINDOW);
            all.push(BytePiece { rank, need: number, from, to, len: part });
            (from, to, len) = (from + part, to + part, len - part);
        }
    };
    match (share, &need.wanted) {
        (Share::Whole, _) => put(0, 0, stored.bytes().unwrap_or(0)),
        (Share::Rows { from, to, count }, _) => {
            let row = stored.rows().1 * size;
            put(from * row, to * row, count * row);
        }
        (Share::Common(common), Some(wanted)) => {
            let memory = match stored.global_box() {
                Some(part) => part.memory(&stored.shape),
                None => {
                    let (offset, extent) = (vec![0; stored.shape.0.len()], stored.shape.0.clone());
                    IndexBox { offset, extent }
                }
            };
            for run in memory.runs_of(common, &wanted.memory, stored.order) {
                put(run.from * size, run.to * size, run.len * size);
            }
        }
        (Share::Common(_), None) => {}
    }
    all
}

/// The ranges of bytes that hold pieces, which are sorted by where they begin and may overlap.
pub(super) fn covering(pieces: &[BytePiece]) -> Vec<Range<u64>> {
    let mut ranges: Vec<Range<u64>> = Vec::new();
    for piece in pieces {
        let end = piece.from + piece.len;
        match ranges.last_mut() {
            Some(last) if piece.from <= last.end.saturating_add(GAP) => {
                last.end = last.end.max(end);
            }
            _ => ranges.push(piece.from..end),
        }
    }
    ranges
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::array::Variable;
    use proptest::prelude::*;

    #[test]
    fn groups_are_spread_by_their_bytes() {
        let of = |sizes: &[u64], ranks: u32| -> Vec<u32> {
            readers(sizes, ranks).iter().map(|rank| rank.0).collect()
        };
        assert_eq!(of(&[1, 1, 1, 1], 2), [0, 0, 1, 1]);
        assert_eq!(of(&[1, 1, 1, 1], 1), [0, 0, 0, 0]);
        assert_eq!(of(&[1, 1], 4), [1, 3]);
        assert_eq!(of(&[1, 1, 6, 1, 1], 2), [0, 0, 1, 1, 1]);
        assert_eq!(of(&[0, 0], 3), [0, 0]);
        assert_eq!(of(&[u64::MAX, u64::MAX], 2), [0, 1]);
        assert!(of(&[], 3).is_empty());
    }

    fn held(source: u32, variable: &Variable) -> HeldVariable {
        HeldVariable { source, description: variable.description().clone() }
    }

    proptest! {
        /// Every row goes to one rank, at its place in the global order, whatever the numbers of ranks.
        #[test]
        fn rows_are_split_evenly_and_in_order(
            counts in prop::collection::vec(0u64..50, 1..6),
            ranks in 1u32..8,
        ) {
            let data = vec![0u16; 150];
            let held: Vec<HeldVariable> = counts.iter().enumerate().map(|(source, count)| {
                let rows = &data[..3 * *count as usize];
                held(source as u32, &Variable::new("x", rows).shaped(&[*count, 3]).rows())
            }).collect();
            let known = Known::new(counts.len() as u32, ranks, held.clone());
            let need = Need { name: "x".into(), wanted: None };
            let all: u64 = counts.iter().sum();
            let mut next = 0;
            for rank in (0..ranks).map(Rank) {
                let rows = known.rows_of(&need, rank).unwrap().rows().0;
                if counts.len() as u32 == ranks {
                    prop_assert_eq!(rows, counts[rank.0 as usize]);
                } else {
                    let even = all / u64::from(ranks);
                    prop_assert!(rows == even || rows == even + 1);
                }
                let mut filled = 0;
                for source in &held {
                    let Some(share) = known.share(source, &need, rank) else { continue };
                    for piece in pieces(&source.description, (&share, &need), (rank, 7)) {
                        prop_assert_eq!((piece.rank, piece.need, piece.to), (rank, 7, filled));
                        let before: u64 = counts[..source.source as usize].iter().sum();
                        prop_assert_eq!(before * 6 + piece.from, next * 6 + filled);
                        filled += piece.len;
                    }
                }
                prop_assert_eq!(filled, rows * 6);
                next += rows;
            }
            prop_assert_eq!(next, all);
        }

        #[test]
        fn ranges_cover_every_piece(
            pieces in prop::collection::vec((0u64..300_000, 1u64..60_000), 0..12),
        ) {
            let piece = |(from, len)| BytePiece { rank: Rank(0), need: 0, from, to: 0, len };
            let mut pieces: Vec<BytePiece> = pieces.into_iter().map(piece).collect();
            pieces.sort_by_key(|piece| piece.from);
            let ranges = covering(&pieces);
            for piece in &pieces {
                let holds = |r: &Range<u64>| r.start <= piece.from && piece.from + piece.len <= r.end;
                prop_assert_eq!(ranges.iter().filter(|range| holds(range)).count(), 1);
            }
            for pair in ranges.windows(2) {
                prop_assert!(pair[0].end + GAP < pair[1].start);
            }
        }
    }

    #[test]
    fn pieces_are_cut_at_windows() {
        let stored = Description {
            name: "x".into(),
            dtype: DType::U8,
            shape: Shape(vec![2 * WINDOW + 5]),
            order: Order::C,
            part: Some(Part::Same),
            attributes: Default::default(),
        };
        let need = Need { name: "x".into(), wanted: None };
        let all = pieces(&stored, (&Share::Whole, &need), (Rank(3), 1));
        let places: Vec<(u64, u64, u64)> = all.iter().map(|p| (p.from, p.to, p.len)).collect();
        assert_eq!(places, [(0, 0, WINDOW), (WINDOW, WINDOW, WINDOW), (2 * WINDOW, 2 * WINDOW, 5)]);
    }
}
