//! Arrays that ranks hold boxes of, so that two decompositions of one array can be compared.
//!
//! The variables of one name on a side are the boxes of a global array if they say so ([`SideArray`]). Two
//! sides are compared box by box of the side that has more boxes. Where the other side has the very same box,
//! the two variables are a pair like any other, with their trees. Where it does not, its values in that box
//! are put together from its own boxes ([`GatheredBlob`]): box ∩ box, read from front to back, so that each
//! source is read from front to back, too, through a window of bounded size. Indices in results are global.

use super::side::SideEntry;
use crate::array::{DType, Description, GlobalBox, IndexBox, Order, Part, Rank, Shape};
use crate::error::{Error, ErrorKind, Result};
use crate::memory::zeroed;
use crate::store::{Blob, read_each};
use std::borrow::Cow;
use std::collections::HashMap;
use std::ops::{ControlFlow, Range};
use std::sync::{Arc, Mutex};

/// Memory for the windows of all sources of one box.
const WINDOWS: u64 = 32 << 20;
/// The most memory for the window of one source.
const MOST_WINDOW: u64 = 1 << 20;
/// Gaps up to this size between two runs are read rather than skipped.
const GAP: u64 = 512;

/// Two variables, or boxes of arrays, that are compared with each other.
pub(super) type EntryPair<'e> = (Cow<'e, SideEntry<'e>>, Cow<'e, SideEntry<'e>>);

/// The boxes of one array that one side has.
#[derive(Clone)]
pub(super) struct SideArray<'e> {
    pub(super) dtype: DType,
    pub(super) global: Shape,
    pub(super) order: Order,
    pub(super) boxes: Vec<(IndexBox, &'e SideEntry<'e>)>,
}

impl<'e> SideArray<'e> {
    /// The array that variables of one name are boxes of; one variable alone may be all of it. `None` if
    /// they are no boxes of one array.
    pub(super) fn of(entries: &[&'e SideEntry<'e>]) -> Option<SideArray<'e>> {
        let first = &entries.first()?.description;
        let global = match (&first.part, first.global_box()) {
            (_, Some(part)) => part.global.clone(),
            (None, None) if entries.len() == 1 => first.shape.clone(),
            _ => return None,
        };
        let (dtype, order) = (first.dtype, first.order);
        let fits = |d: &Description| {
            let part = d.global_box();
            let of_same = entries.len() == 1 || part.is_some_and(|part| part.global == global);
            of_same && d.dtype == dtype && d.order == order && d.check().is_ok()
        };
        let all = entries.iter().all(|entry| fits(&entry.description));
        let boxes = entries.iter().map(|entry| (place(&entry.description), *entry)).collect();
        all.then_some(SideArray { dtype, global, order, boxes })
    }

    /// Number of elements of all boxes.
    pub(super) fn elements(&self) -> u64 {
        let elements = |(place, _): &(IndexBox, _)| place.elements().unwrap_or(u64::MAX);
        self.boxes.iter().map(elements).fold(0, u64::saturating_add)
    }

    /// Refuses boxes that overlap, and those that leave gaps if they are to be all of the array.
    pub(super) fn check(&self, whole: bool, which: &str) -> Result<()> {
        let name = self.boxes.first().map_or("", |(_, entry)| &entry.description.name);
        let refuse = |what: String| Err(Error::new(ErrorKind::Mismatch, what));
        let places: Vec<&IndexBox> = self.boxes.iter().map(|(place, _)| place).collect();
        let mut twice = None;
        crossings(&places, &places, |i, j, common| {
            if i >= j {
                return ControlFlow::Continue(());
            }
            twice = Some((self.boxes[i].1.rank, self.boxes[j].1.rank, common.offset));
            ControlFlow::Break(())
        });
        if let Some((i, j, at)) = twice {
            return refuse(format!(
                "ranks {i} and {j} of the {which} side both have index {at:?} of variable {name:?}"
            ));
        }
        let all = self.global.0.iter().fold(1u128, |n, e| n.saturating_mul((*e).into()));
        let held: u128 = places.iter().map(|place| u128::from(place.elements().unwrap_or(0))).sum();
        match whole && held != all {
            true => refuse(format!(
                "the ranks of the {which} side have {held} of the {all} values of variable {name:?}"
            )),
            false => Ok(()),
        }
    }

    /// The rank whose box holds an index.
    pub(super) fn rank_at(&self, index: &[u64]) -> Option<Rank> {
        let holds = |place: &IndexBox| {
            let axes = index.iter().zip(&place.offset).zip(&place.extent);
            axes.into_iter().all(|((i, o), e)| i >= o && i - o < *e)
        };
        self.boxes.iter().find(|(place, _)| holds(place)).map(|(_, entry)| entry.rank)
    }

    /// This side's values in boxes of the other side: its own variables where these are the same boxes, else
    /// put together from several. In the order of the boxes; `which` side this is.
    fn in_boxes(
        &self,
        units: &[&(IndexBox, &SideEntry)],
        which: &str,
    ) -> Vec<Cow<'e, SideEntry<'e>>> {
        let plain = self.boxes.iter().filter(|(_, entry)| !has_ghosts(&entry.description));
        let own: HashMap<(&[u64], &[u64]), &'e SideEntry<'e>> =
            plain.map(|(b, entry)| ((&b.offset[..], &b.extent[..]), *entry)).collect();
        let same = |unit: &IndexBox| own.get(&(&unit.offset[..], &unit.extent[..])).copied();
        let found: Vec<_> = units.iter().map(|(unit, _)| same(unit)).collect();
        let apart: Vec<usize> = (0..units.len()).filter(|at| found[*at].is_none()).collect();
        let targets: Vec<&IndexBox> = apart.iter().map(|at| &units[*at].0).collect();
        let sources: Vec<&IndexBox> = self.boxes.iter().map(|(place, _)| place).collect();
        let mut parts: Vec<Vec<(usize, IndexBox)>> = vec![Vec::new(); targets.len()];
        crossings(&targets, &sources, |target, source, common| {
            parts[target].push((source, common));
            ControlFlow::Continue(())
        });
        let mut gathered =
            targets.iter().zip(&parts).map(|(t, parts)| self.gather(t, parts, which));
        let mut entry = |same: Option<&'e SideEntry<'e>>| match same {
            Some(entry) => Some(Cow::Borrowed(entry)),
            None => gathered.next().map(Cow::Owned),
        };
        found.into_iter().filter_map(&mut entry).collect()
    }

    /// A variable that is a box of this array, put together from the common parts with its own boxes.
    fn gather(&self, target: &IndexBox, parts: &[(usize, IndexBox)], which: &str) -> SideEntry<'e> {
        let first = parts.first().map_or(0, |(source, _)| *source);
        let model = self.boxes[first].1;
        let mut pieces = Vec::new();
        let mut unread = None;
        for (source, common) in parts {
            let (_, entry) = &self.boxes[*source];
            let without_values = || {
                let what = format!(
                    "the boxes of variable {:?} are not the same on both sides, and the {which} side has \
                     no values",
                    model.description.name
                );
                Error::new(ErrorKind::Mismatch, what)
                    .hint("trees are compared only between the same boxes")
            };
            match (&entry.values, &entry.unread) {
                (_, Some(error)) => drop(unread.get_or_insert(error.clone())),
                (None, None) => drop(unread.get_or_insert_with(|| without_values().into())),
                (Some(values), None) => pieces.push(BoxPiece {
                    values: values.clone(),
                    from: BoxStrides::new(
                        common,
                        &memory(&entry.description),
                        self.order,
                        self.dtype,
                    ),
                    to: BoxStrides::new(common, target, self.order, self.dtype),
                    window: Mutex::default(),
                }),
            }
        }
        let (global, offset) = (self.global.clone(), target.offset.clone());
        let description = Description {
            shape: Shape(target.extent.clone()),
            part: Some(Part::Box(GlobalBox { global, offset, ghosts: None })),
            ..model.description.clone()
        };
        let size = description.bytes().unwrap_or(0);
        let values: Arc<dyn Blob + 'e> = Arc::new(GatheredBlob::new(pieces, size));
        let values = unread.is_none().then_some(values);
        let (rank, origin) = (model.rank, model.origin.clone());
        let (trees, meaning) = Default::default();
        SideEntry { rank, description, origin, values, trees, unread, chunk: None, meaning }
    }
}

/// The box of the array that a variable is: what its rank owns.
fn place(description: &Description) -> IndexBox {
    match description.global_box() {
        Some(part) => part.owned(&description.shape),
        None => memory(description),
    }
}

/// The box of the array that its values are in memory, ghost cells included.
fn memory(description: &Description) -> IndexBox {
    let (shape, axes) = (&description.shape, description.shape.0.len());
    let whole = || IndexBox { offset: vec![0; axes], extent: shape.0.clone() };
    description.global_box().map_or_else(whole, |part| part.memory(shape))
}

fn has_ghosts(description: &Description) -> bool {
    description.global_box().is_some_and(|part| part.ghosts.is_some())
}

/// The pairs by which two sides' boxes of an array are compared, in the order of memory of their first
/// elements. With `share`, the first side has a share of the array, which is all that is compared.
pub(super) fn box_pairs<'e>(
    a: &SideArray<'e>,
    b: &SideArray<'e>,
    share: bool,
) -> Vec<EntryPair<'e>> {
    let of_a = share || a.boxes.len() >= b.boxes.len();
    let (unit, other) = if of_a { (a, b) } else { (b, a) };
    let (own, which) = if of_a { ("first", "second") } else { ("second", "first") };
    let holds = |place: &IndexBox| place.elements().is_none_or(|elements| elements > 0);
    let mut units: Vec<_> = unit.boxes.iter().filter(|(place, _)| holds(place)).collect();
    // Ghost cells are copies of what others own: the owned values are compared, without trees, which cover both.
    let owned = |at: &(IndexBox, &'e SideEntry<'e>)| match has_ghosts(&at.1.description) {
        false => Cow::Borrowed(at.1),
        true => {
            let number = unit.boxes.iter().position(|(place, _)| *place == at.0).unwrap_or(0);
            Cow::Owned(unit.gather(&at.0, &[(number, at.0.clone())], own))
        }
    };
    units.sort_by_cached_key(|(place, _)| position(&place.offset, &a.global.0, a.order));
    let others = other.in_boxes(&units, which);
    let pair = |(unit, other): (&&(IndexBox, &'e SideEntry<'e>), Cow<'e, SideEntry<'e>>)| {
        let unit = owned(unit);
        if of_a { (unit, other) } else { (other, unit) }
    };
    units.iter().zip(others).map(pair).collect()
}

/// The position of an index in the memory of an array, in elements.
pub(super) fn position(index: &[u64], extent: &[u64], order: Order) -> u128 {
    let step = |at: u128, axis: usize| {
        at.saturating_mul(extent[axis].into()).saturating_add(index[axis].into())
    };
    match order {
        Order::C => (0..index.len()).fold(0, step),
        Order::Fortran => (0..index.len()).rev().fold(0, step),
    }
}

/// Visits every pair of boxes that have elements in common, until it is told to stop. Boxes are sorted along
/// the axis that tells most of them apart, so that few others have to be looked at for each.
fn crossings(
    a: &[&IndexBox],
    b: &[&IndexBox],
    mut visit: impl FnMut(usize, usize, IndexBox) -> ControlFlow<()>,
) {
    let axes = a.first().map_or(0, |place| place.offset.len());
    let starts = |axis: usize| {
        let mut starts: Vec<u64> = b.iter().map(|place| place.offset[axis]).collect();
        starts.sort_unstable();
        starts.dedup();
        starts.len()
    };
    let axis = (0..axes).max_by_key(|axis| starts(*axis));
    let span = |place: &IndexBox| match axis {
        Some(axis) => place.offset[axis]..place.offset[axis] + place.extent[axis],
        None => 0..1,
    };
    let mut sorted: Vec<usize> = (0..b.len()).collect();
    sorted.sort_by_key(|at| span(b[*at]).start);
    // The furthest end of each box and of those before it tells when to stop looking back.
    let mut furthest = 0;
    let ends: Vec<u64> = sorted
        .iter()
        .map(|at| {
            furthest = furthest.max(span(b[*at]).end);
            furthest
        })
        .collect();
    for (i, place) in a.iter().enumerate() {
        let own = span(place);
        let until = sorted.partition_point(|at| span(b[*at]).start < own.end);
        for at in (0..until).rev().take_while(|at| ends[*at] > own.start) {
            let j = sorted[at];
            if let Some(common) = place.common(b[j])
                && visit(i, j, common).is_break()
            {
                return;
            }
        }
    }
}

/// Strides of the bytes of a box within those of a box around it: runs at regular distances.
struct BoxStrides {
    start: u64,
    run: u64,
    /// Number of runs and their distance along each axis, the slowest first.
    axes: Vec<(u64, u64)>,
    size: u64,
}

impl BoxStrides {
    fn new(inside: &IndexBox, around: &IndexBox, order: Order, dtype: DType) -> BoxStrides {
        let axes = 0..around.offset.len();
        let fastest_first: Vec<usize> = match order {
            Order::C => axes.rev().collect(),
            Order::Fortran => axes.collect(),
        };
        let mut strides = BoxStrides { start: 0, run: dtype.size(), axes: Vec::new(), size: 0 };
        let mut stride = dtype.size();
        strides.size = stride;
        for axis in fastest_first {
            let extent = inside.extent[axis];
            strides.start += inside.offset[axis].wrapping_sub(around.offset[axis]) * stride;
            strides.size *= extent;
            match strides.axes.is_empty() && strides.run == stride {
                true => strides.run *= extent,
                false if extent > 1 => strides.axes.push((extent, stride)),
                false => {}
            }
            stride *= around.extent[axis];
        }
        strides.axes.reverse();
        strides
    }

    fn runs(&self) -> u64 {
        self.size / self.run.max(1)
    }

    /// Beginning of a run.
    fn at(&self, mut number: u64) -> u64 {
        let mut at = self.start;
        for (count, stride) in self.axes.iter().rev() {
            at += number % count * stride;
            number /= count;
        }
        at
    }

    /// The runs, or parts of them, that hold a range of the bytes of the box: where they lie.
    fn places(&self, range: Range<u64>) -> impl Iterator<Item = Range<u64>> {
        let numbers = range.start / self.run..range.end.div_ceil(self.run);
        numbers.map(move |number| {
            let (begin, at) = (number * self.run, self.at(number));
            let (from, to) = (range.start.max(begin), range.end.min(begin + self.run));
            at + from - begin..at + to - begin
        })
    }

    /// The bytes of the box that lie in a range of what is around it. Runs lie in their order, so these
    /// are one range, too.
    fn within(&self, range: &Range<u64>) -> Range<u64> {
        let before = |bound: u64| {
            let whole = lower_bound(self.runs(), |run| self.at(run) + self.run <= bound);
            let begun = match whole < self.runs() {
                true => bound.saturating_sub(self.at(whole)).min(self.run),
                false => 0,
            };
            whole * self.run + begun
        };
        before(range.start)..before(range.end)
    }
}

/// The first number below `count` of which something does not hold any longer.
fn lower_bound(count: u64, holds: impl Fn(u64) -> bool) -> u64 {
    let (mut low, mut high) = (0, count);
    while low < high {
        let middle = low + (high - low) / 2;
        match holds(middle) {
            true => low = middle + 1,
            false => high = middle,
        }
    }
    low
}

/// Intersection of two boxes: the bytes of one of them, wanted in the place of the other.
struct BoxPiece<'a> {
    values: Arc<dyn Blob + 'a>,
    from: BoxStrides,
    to: BoxStrides,
    window: Mutex<PieceWindow>,
}

/// Bytes of a piece that were read ahead.
#[derive(Default)]
struct PieceWindow {
    start: u64,
    bytes: Vec<u8>,
}

impl BoxPiece<'_> {
    /// Fills `out` with the bytes of this piece that lie in a range of the target.
    fn fill(&self, range: &Range<u64>, window: u64, out: &mut [u8]) -> Result<()> {
        let own = self.to.within(range);
        if own.is_empty() {
            return Ok(());
        }
        let mut ahead = self.window.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let held = ahead.start..ahead.start + ahead.bytes.len() as u64;
        if own.start < held.start || own.end > held.end {
            let end = own.end.max((own.start + window).min(self.from.size));
            ahead.bytes.clear();
            ahead.bytes = self.read(own.start..end)?;
            ahead.start = own.start;
        }
        let mut from = (own.start - ahead.start) as usize;
        for place in self.to.places(own.clone()) {
            let to = (place.start - range.start) as usize..(place.end - range.start) as usize;
            let len = to.len();
            out[to].copy_from_slice(&ahead.bytes[from..from + len]);
            from += len;
        }
        if own.end == self.from.size {
            *ahead = PieceWindow::default();
        }
        Ok(())
    }

    /// Reads a range of the bytes of this piece, with small gaps between its runs.
    fn read(&self, range: Range<u64>) -> Result<Vec<u8>> {
        let gap = GAP.max(self.from.run);
        let mut joined: Vec<Range<u64>> = Vec::new();
        for place in self.from.places(range.clone()) {
            match joined.last_mut() {
                Some(last) if place.start - last.end <= gap => last.end = place.end,
                _ => joined.push(place),
            }
        }
        let total = joined.iter().map(|range| range.end - range.start).sum();
        let mut bytes: Vec<u8> = zeroed(total)?;
        let mut rest = &mut bytes[..];
        let mut reads: Vec<(u64, &mut [u8])> = Vec::with_capacity(joined.len());
        for range in &joined {
            let (head, tail) = rest.split_at_mut((range.end - range.start) as usize);
            reads.push((range.start, head));
            rest = tail;
        }
        self.values.read_many(&mut reads)?;
        if total == range.end - range.start {
            return Ok(bytes);
        }
        // Bytes that were read between the runs go.
        let (mut at, mut before, mut end) = (0, 0, 0);
        for place in self.from.places(range) {
            while joined[at].end <= place.start {
                before += joined[at].end - joined[at].start;
                at += 1;
            }
            let from = (before + place.start - joined[at].start) as usize;
            let len = (place.end - place.start) as usize;
            bytes.copy_within(from..from + len, end);
            end += len;
        }
        bytes.truncate(end);
        Ok(bytes)
    }
}

/// A box of an array, put together from the boxes that hold its elements.
struct GatheredBlob<'a> {
    pieces: Vec<BoxPiece<'a>>,
    size: u64,
    window: u64,
}

impl<'a> GatheredBlob<'a> {
    fn new(pieces: Vec<BoxPiece<'a>>, size: u64) -> Self {
        let window = (WINDOWS / pieces.len().max(1) as u64).min(MOST_WINDOW);
        GatheredBlob { pieces, size, window }
    }

    /// The only source, if the box is one range of its bytes: where that begins.
    fn slab(&self) -> Option<(&BoxPiece<'a>, u64)> {
        match &self.pieces[..] {
            [piece] if piece.from.axes.is_empty() => Some((piece, piece.from.start)),
            _ => None,
        }
    }
}

impl Blob for GatheredBlob<'_> {
    fn store(&self) -> &str {
        self.pieces.first().map_or("memory", |piece| piece.values.store())
    }

    fn size(&self) -> u64 {
        self.size
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        let range = offset..offset.saturating_add(buffer.len() as u64);
        if range.end > self.size {
            return Err(Error::damaged("the data ends too early"));
        }
        if let Some((piece, start)) = self.slab() {
            return piece.values.read_at(start + offset, buffer);
        }
        self.pieces.iter().try_for_each(|piece| piece.fill(&range, self.window, buffer))
    }

    fn read_many(&self, ranges: &mut [(u64, &mut [u8])]) -> Result<()> {
        read_each(self, ranges)
    }

    fn file(&self) -> Option<(&std::fs::File, &std::path::Path, u64)> {
        let (piece, start) = self.slab()?;
        piece.values.file().map(|(file, path, base)| (file, path, base + start))
    }

    /// Sources are read ahead, so going back would read them again.
    fn in_order(&self) -> bool {
        match self.slab() {
            Some((piece, _)) => piece.values.in_order(),
            None => true,
        }
    }
}

#[cfg(test)]
mod tests;
