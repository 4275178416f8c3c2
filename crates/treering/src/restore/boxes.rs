//! Boxes of arrays, whoever wrote which part of them.
//!
//! A variable of one rank is an array of its own. Variables of several ranks with one name are boxes of a global array,
//! and any box of that is put together from those that overlap it: box ∩ box, runs of elements, bytes, frames. Runs
//! that lie close together are read as one range, because a frame is read as a whole anyway. What no rank wrote, or
//! two of them did, is an error that names the place; nothing is guessed.

use super::checkpoint::Checkpoint;
use crate::array::{CommonRun, DType, Element, IndexBox, Order, Rank, Shape, VariableMut};
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
    /// If ranks handed over boxes of a global array
    /// ([`Variable::part_of`](crate::Variable::part_of)), indices are those of the global array, and the box may
    /// cross any of theirs. Only the frames that hold the box are read, and each is verified.
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
        let mut out: Vec<T> = zeroed(wanted.elements().unwrap_or(u64::MAX))?;
        self.fill_box(&sources, &wanted, bytemuck::cast_slice_mut(&mut out))?;
        Ok(out)
    }

    /// Fills an array of a rank that is a box of a global one, whoever wrote that.
    pub(crate) fn read_box_into(&self, target: &mut VariableMut) -> Result<()> {
        let description = target.description().clone();
        let Some(part) = &description.part else {
            return Err(self.belongs_to_its_rank(&description.name));
        };
        let sources = self.sources(&description.name)?;
        let wanted = IndexBox { offset: part.offset.clone(), extent: description.shape.0.clone() };
        sources.check(&description.name, description.dtype, &wanted)?;
        let axes = wanted.extent.iter().filter(|extent| **extent > 1).count();
        if sources.global != part.global || (sources.order != description.order && axes > 1) {
            let what = format!(
                "variable {:?} is a box of {} in {:?} order here, but of {} in {:?} order in the checkpoint",
                description.name, part.global, description.order, sources.global, sources.order
            );
            return Err(Error::new(ErrorKind::Mismatch, what));
        }
        self.fill_box(&sources, &wanted, target.bytes())
    }

    /// The error of a variable that only its own rank can restore.
    pub(crate) fn belongs_to_its_rank(&self, name: &str) -> Error {
        let ranks = self.manifest().ranks;
        Error::new(
            ErrorKind::Mismatch,
            format!("variable {name:?} belongs to one rank each, and {ranks} ranks have saved it"),
        )
        .hint(format!(
            "restart with {ranks} ranks, or save it as boxes of a global array (Variable::part_of)"
        ))
    }

    fn fill_box(&self, sources: &ArraySources, wanted: &IndexBox, out: &mut [u8]) -> Result<()> {
        for (place, entry) in &sources.entries {
            self.read_runs(entry, &place.runs_in(wanted, sources.order), out)?;
        }
        Ok(())
    }

    /// The boxes of an array, and what they are boxes of.
    fn sources(&self, name: &str) -> Result<ArraySources<'_>> {
        let of_name = |entry: &&VariableEntry| entry.description.name == name;
        let entries: Vec<&VariableEntry> = self.entries().iter().filter(of_name).collect();
        let Some(first) = entries.first() else {
            return self.variable(Rank(0), name).map(|_| ArraySources::default());
        };
        let global = |entry: &VariableEntry| match &entry.description.part {
            Some(part) => Some(part.global.clone()),
            None if entries.len() == 1 => Some(entry.description.shape.clone()),
            None => None,
        };
        let whole = global(first);
        for entry in &entries {
            let (a, b) = (&first.description, &entry.description);
            let alike = a.dtype == b.dtype && a.order == b.order && global(entry) == whole;
            if whole.is_none() || !alike {
                let what = format!(
                    "variable {name:?} of rank {} and that of rank {} are no boxes of one array",
                    first.rank, entry.rank
                );
                return Err(Error::new(ErrorKind::Mismatch, what)
                    .hint("read the variable of each rank by itself"));
            }
        }
        let place = |entry: &VariableEntry| IndexBox {
            offset: entry.description.part.as_ref().map_or_else(
                || vec![0; entry.description.shape.0.len()],
                |part| part.offset.clone(),
            ),
            extent: entry.description.shape.0.clone(),
        };
        Ok(ArraySources {
            global: whole.unwrap_or(Shape(Vec::new())),
            order: first.description.order,
            entries: entries.iter().map(|entry| (place(entry), *entry)).collect(),
        })
    }

    /// Fills runs of elements from the bytes of a variable.
    fn read_runs(&self, entry: &VariableEntry, runs: &[CommonRun], out: &mut [u8]) -> Result<()> {
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
struct ArraySources<'a> {
    global: Shape,
    order: Order,
    entries: Vec<(IndexBox, &'a VariableEntry)>,
}

impl Default for ArraySources<'_> {
    fn default() -> Self {
        ArraySources { global: Shape(Vec::new()), order: Order::C, entries: Vec::new() }
    }
}

impl ArraySources<'_> {
    /// Refuses a box that is not inside the array, or that the ranks did not hand over once.
    fn check(&self, name: &str, dtype: DType, wanted: &IndexBox) -> Result<()> {
        let stored = self.entries.first().map_or(dtype, |(_, entry)| entry.description.dtype);
        if stored != dtype {
            return Err(Error::new(
                ErrorKind::Mismatch,
                format!("variable {name:?} has type {stored}, not {dtype}"),
            ));
        }
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
            .filter_map(|(place, entry)| Some((place.common(wanted)?, entry.rank)))
            .collect();
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
                format!("no rank has index {:?} of variable {name:?}", first_gap(wanted, &parts)),
            )),
        }
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

#[cfg(test)]
mod tests;
