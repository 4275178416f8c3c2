//! Boxes of arrays, whoever wrote which part of them.
//!
//! A variable of one rank is an array of its own. Variables of several ranks with one name are boxes of a global array,
//! and any box of that is put together from those that overlap it: box ∩ box, runs of elements, bytes, frames. Runs
//! that lie close together are read as one range, because a frame is read as a whole anyway. An element that no rank
//! wrote, or two of them did, is an error that names the place; nothing is guessed.

use super::checkpoint::Checkpoint;
use super::delivery::{check_cover, check_type};
use crate::array::{
    CommonRun, DType, Description, Element, IndexBox, Order, Part, Rank, Shape, filled,
};
use crate::error::{Error, ErrorKind, Result};
use crate::format::VariableEntry;
use crate::memory::zeroed;
use std::ops::Range;

/// Bytes between two runs that are read rather than skipped.
const GAP: u64 = 32 << 10;
/// The bytes that are read at a time.
const BATCH: u64 = 64 << 20;

impl Checkpoint {
    /// The elements of a box of an array, in the order of memory of that array; `offset` is the first index and
    /// `extent` the number of elements along each axis.
    ///
    /// If ranks saved boxes of a global array
    /// ([`Variable::part_of`](crate::Variable::part_of)), indices are those of the global array, and the box may
    /// cross theirs. Only the frames that hold the box are read, and each is verified.
    ///
    /// ```
    /// # use treering::{Library, Options, Run, Variable};
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let store = folder.path().join("store");
    /// let grid: Vec<f64> = (0..600).map(f64::from).collect();
    /// let mut run = Run::open(Options::directory(&store, "grids"))?;
    /// run.checkpoint(7, &[Variable::new("grid", &grid).shaped(&[20, 30])])?;
    /// run.finish()?;
    /// let checkpoint = Library::open(&store)?.checkpoint("grids", Some(7))?;
    /// let corner = checkpoint.read_box::<f64>("grid", &[18, 28], &[2, 2])?;
    /// assert_eq!(corner, [568.0, 569.0, 598.0, 599.0]);
    /// # Ok::<(), treering::Error>(())
    /// ```
    pub fn read_box<T: Element>(
        &self,
        name: &str,
        offset: &[u64],
        extent: &[u64],
    ) -> Result<Vec<T>> {
        let sources = self.sources(name)?;
        let wanted = IndexBox { offset: offset.to_vec(), extent: extent.to_vec() };
        sources.check(name, T::DTYPE, &wanted)?;
        let elements = wanted.elements().unwrap_or(u64::MAX);
        filled(elements, |out| self.fill_box(&sources, &wanted, out))
    }

    /// Fills `out` with a box of an array whose sources were checked. A variable as a whole is checked by its root, too.
    pub(crate) fn read_sources(
        &self,
        sources: &ArraySources,
        wanted: &IndexBox,
        out: &mut [u8],
    ) -> Result<()> {
        match &sources.entries[..] {
            [ArraySource { memory, entry, .. }] if memory == wanted => {
                self.read_bytes(entry, 0..entry.bytes(), out)
            }
            _ => self.fill_box(sources, wanted, out),
        }
    }

    fn fill_box(&self, sources: &ArraySources, wanted: &IndexBox, out: &mut [u8]) -> Result<()> {
        for ArraySource { owned, memory, entry } in &sources.entries {
            let Some(common) = owned.common(wanted) else { continue };
            self.read_runs(entry, &memory.runs_of(&common, wanted, sources.order), out)?;
        }
        Ok(())
    }

    /// The boxes of an array, and what they are boxes of; of a chosen rank, its own array.
    pub(super) fn sources(&self, name: &str) -> Result<ArraySources<'_>> {
        if let Some(rank) = self.chosen_rank() {
            return self.variable(rank, name).map(ArraySources::own);
        }
        let of_name = |entry: &&VariableEntry| entry.description.name == name;
        let entries: Vec<&VariableEntry> = self.entries().iter().filter(of_name).collect();
        match entries.is_empty() {
            true => match self.only_array(self.entries().iter(), name)? {
                Some(name) => self.sources(name),
                None => self.exact(Rank(0), name).map(|_| ArraySources::default()),
            },
            false => ArraySources::joined(name, &entries),
        }
    }

    /// Fills runs of elements from the bytes of a variable.
    pub(super) fn read_runs(
        &self,
        entry: &VariableEntry,
        runs: &[CommonRun],
        out: &mut [u8],
    ) -> Result<()> {
        let size = entry.description.dtype.size();
        let mut rest = runs;
        while !rest.is_empty() {
            let (ranges, count) = together(rest, size);
            let bytes: u64 = ranges.iter().map(|range| range.end - range.start).sum();
            let mut buffer: Vec<u8> = zeroed(bytes)?;
            self.read_ranges(entry, &ranges, &mut buffer)?;
            let (mut range, mut before) = (0, 0);
            for run in &rest[..count] {
                let (from, to, len) = (run.from * size, run.to * size, run.len * size);
                while ranges[range].end <= from {
                    before += ranges[range].end - ranges[range].start;
                    range += 1;
                }
                let from = (before + from - ranges[range].start) as usize;
                out[to as usize..][..len as usize].copy_from_slice(&buffer[from..][..len as usize]);
            }
            rest = &rest[count..];
        }
        Ok(())
    }
}

/// The ranges of bytes that hold the first runs, and how many runs these are.
fn together(runs: &[CommonRun], size: u64) -> (Vec<Range<u64>>, usize) {
    let mut ranges: Vec<Range<u64>> = Vec::new();
    let mut bytes = 0;
    for (count, run) in runs.iter().enumerate() {
        let (start, end) = (run.from * size, (run.from + run.len) * size);
        if count > 0 && bytes + (end - start) > BATCH {
            return (ranges, count);
        }
        match ranges.last_mut() {
            Some(last) if start - last.end <= GAP => {
                bytes += end - last.end;
                last.end = end;
            }
            _ => {
                bytes += end - start;
                ranges.push(start..end);
            }
        }
    }
    (ranges, runs.len())
}

/// The boxes that an array was handed over in.
pub(crate) struct ArraySources<'a> {
    pub(crate) global: Shape,
    pub(crate) order: Order,
    pub(super) entries: Vec<ArraySource<'a>>,
}

/// A stored box: the elements that its rank owns, and those that lie in memory with them.
pub(super) struct ArraySource<'a> {
    pub(super) owned: IndexBox,
    pub(super) memory: IndexBox,
    pub(super) entry: &'a VariableEntry,
}

impl<'a> ArraySource<'a> {
    /// The box of a variable; `above` counts the rows of the ranks before.
    fn new(entry: &'a VariableEntry, above: &mut u64) -> Self {
        let Description { shape, order, part, .. } = &entry.description;
        let mut whole = IndexBox { offset: vec![0; shape.0.len()], extent: shape.0.clone() };
        match part {
            Some(Part::Box(part)) => {
                return ArraySource { owned: part.owned(shape), memory: part.memory(shape), entry };
            }
            Some(Part::Rows) => {
                slowest(&mut whole.offset, *order).into_iter().for_each(|offset| *offset = *above);
                *above += entry.description.rows().0;
            }
            None | Some(Part::Same) => {}
        }
        ArraySource { owned: whole.clone(), memory: whole, entry }
    }
}

/// The number along the slowest axis.
fn slowest(numbers: &mut [u64], order: Order) -> Option<&mut u64> {
    match order {
        Order::C => numbers.first_mut(),
        Order::Fortran => numbers.last_mut(),
    }
}

/// The shape of an array with another number of rows.
fn with_rows(description: &Description, rows: u64) -> Shape {
    let mut shape = description.shape.clone();
    slowest(&mut shape.0, description.order).into_iter().for_each(|extent| *extent = rows);
    shape
}

impl Default for ArraySources<'_> {
    fn default() -> Self {
        ArraySources { global: Shape(Vec::new()), order: Order::C, entries: Vec::new() }
    }
}

impl<'a> ArraySources<'a> {
    /// The array of one rank, as it was handed over.
    pub(crate) fn own(entry: &'a VariableEntry) -> Self {
        let Description { shape, order, .. } = &entry.description;
        let whole = IndexBox { offset: vec![0; shape.0.len()], extent: shape.0.clone() };
        let source = ArraySource { owned: whole.clone(), memory: whole, entry };
        ArraySources { global: shape.clone(), order: *order, entries: vec![source] }
    }

    /// The array that variables of one name are boxes or rows of.
    pub(crate) fn joined(name: &str, entries: &[&'a VariableEntry]) -> Result<Self> {
        let Some(first) = entries.first() else { return Ok(ArraySources::default()) };
        let rows = entries.iter().map(|entry| entry.description.rows().0).sum::<u64>();
        let global = |entry: &VariableEntry| match &entry.description.part {
            Some(Part::Box(part)) => Some(part.global.clone()),
            Some(Part::Rows) => Some(with_rows(&entry.description, rows)),
            None | Some(Part::Same) if entries.len() == 1 => Some(entry.description.shape.clone()),
            None | Some(Part::Same) => None,
        };
        let whole = global(first);
        for entry in entries {
            let (a, b) = (&first.description, &entry.description);
            let alike = a.dtype == b.dtype && a.order == b.order && global(entry) == whole;
            if whole.is_none() || !alike {
                let what = format!(
                    "variable {name:?} of rank {} and that of rank {} are not boxes of the same array",
                    first.rank, entry.rank
                );
                return Err(Error::new(ErrorKind::Mismatch, what).hint(
                    "each rank has an array of its own: choose one with Checkpoint::of_rank",
                ));
            }
        }
        // Rows of a global array are in the order of ranks.
        let mut in_order = entries.to_vec();
        in_order.sort_by_key(|entry| entry.rank);
        let mut above = 0;
        Ok(ArraySources {
            global: whole.unwrap_or(Shape(Vec::new())),
            order: first.description.order,
            entries: in_order
                .into_iter()
                .map(|entry| ArraySource::new(entry, &mut above))
                .collect(),
        })
    }

    /// Whether values of it were rounded before they were stored.
    pub(crate) fn is_rounded(&self) -> bool {
        self.entries.iter().any(|source| source.entry.rounded.is_some())
    }

    /// The type of its elements.
    pub(super) fn dtype(&self) -> Option<DType> {
        self.entries.first().map(|first| first.entry.description.dtype)
    }

    /// Refuses an array that is too large to be addressed, or that the ranks did not hand over as a whole, once.
    pub(crate) fn check_whole(&self, name: &str, dtype: DType) -> Result<()> {
        let elements = self.global.elements();
        if elements.and_then(|elements| elements.checked_mul(dtype.size())).is_none() {
            let what = format!("variable {name:?} has more than 2^64 bytes");
            return Err(Error::new(ErrorKind::Limit, what));
        }
        let (offset, extent) = (vec![0; self.global.0.len()], self.global.0.clone());
        self.check(name, dtype, &IndexBox { offset, extent })
    }

    /// Refuses a box that is not inside the array, or that the ranks did not hand over once.
    pub(super) fn check(&self, name: &str, dtype: DType, wanted: &IndexBox) -> Result<()> {
        let stored = self.entries.first().map_or(dtype, |first| first.entry.description.dtype);
        check_type(name, stored, dtype)?;
        let global = &self.global.0;
        let ends = wanted.offset.iter().zip(&wanted.extent).zip(global);
        let inside = wanted.offset.len() == global.len()
            && wanted.extent.len() == global.len()
            && ends.clone().all(|((o, e), g)| o.checked_add(*e).is_some_and(|end| end <= *g));
        if !inside {
            return Err(Error::usage(format!(
                "the box {:?} + {:?} is not inside of variable {name:?}, which has {}",
                wanted.offset, wanted.extent, self.global
            )));
        }
        let parts: Vec<(IndexBox, Rank)> = self
            .entries
            .iter()
            .filter_map(|source| Some((source.owned.common(wanted)?, source.entry.rank)))
            .collect();
        check_cover(name, wanted, &parts)
    }
}

#[cfg(test)]
mod tests;
