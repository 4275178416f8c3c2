//! Virtual datasets: arrays made of parts of other datasets, in this file or in others. Where nothing is mapped, or a
//! source is missing, the values are the fill value, as the library reads them.
//!
//! A mapping may grow: with its source, or with the number of sources whose names follow a pattern (`%b` is the number of a
//! block). Then the extent is not the one that the file has: it ends with the last available value, as the library finds it
//! if nobody asks for another view.

use super::bytes::{Meta, MetaCursor, check};
use super::selection::{AxisBlocks, Selection};
use super::values::{ObjectPaths, Resolver};
use crate::array::{DType, Description, Shape};
use crate::error::{Error, Result};
use crate::source::chunks::repeat;
use crate::source::found::FoundArray;
use crate::source::outside::{Outside, OutsideValues, Viewpoint, check_paid};
use crate::source::{Widened, common_type};
use crate::store::{Blob, read_each};
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::{Arc, Mutex};

/// Flags of a mapping: its source has the file name of a mapping before, or the name of its dataset, or is this file.
const SAME_FILE_NAME: u8 = 1;
const SAME_DATASET_NAME: u8 = 2;
const SAME_FILE: u8 = 4;
/// Number of sources that are kept open.
const KEPT: usize = 32;
/// Number of names that a note lists.
const MOST_NAMES: usize = 3;
/// More sources than a pattern has.
const MOST_BLOCKS: u64 = 1 << 12;

/// The mappings of a virtual dataset.
pub(super) struct VirtualLayout {
    mappings: Vec<MappedSource>,
    /// The value of what is not mapped, little-endian.
    fill: Vec<u8>,
}

/// A part of another dataset, and where it stands in the virtual one.
struct MappedSource {
    file: String,
    dataset: String,
    from: Selection,
    to: Selection,
}

impl VirtualLayout {
    /// From what follows the class in a layout message: an object of a global heap.
    pub(super) fn parse(meta: &Meta, rest: &mut MetaCursor, fill: Vec<u8>) -> Result<Self> {
        let none = ObjectPaths::new();
        let object = Resolver::new(meta, &none).object(rest)?;
        if object.is_empty() {
            return Ok(VirtualLayout { mappings: Vec::new(), fill });
        }
        check(&object)?;
        let mut rest = meta.cursor(&object[..object.len() - 4]);
        let (version, count) = (rest.u8()?, rest.length()?);
        if version > 1 {
            return Err(Error::usage("its mapping to other datasets is not understood"));
        }
        let mut mappings: Vec<MappedSource> = Vec::new();
        for _ in 0..count {
            let flags = if version == 1 { rest.u8()? } else { 0 };
            let file = match flags & SAME_FILE {
                0 => name(&mut rest, flags & SAME_FILE_NAME != 0, &mappings, |m| &m.file)?,
                _ => ".".to_string(),
            };
            let shared = flags & SAME_DATASET_NAME != 0;
            let dataset = name(&mut rest, shared, &mappings, |m| &m.dataset)?;
            let (from, to) = (Selection::parse(&mut rest)?, Selection::parse(&mut rest)?);
            let pattern = is_pattern(&file)? | is_pattern(&dataset)?;
            // What grows must know by how much: by one source, or by the number of sources.
            let ends = (from.endless_axis().is_some(), to.endless_axis().is_some());
            if ends != (!pattern && ends.1, ends.1) || pattern && !ends.1 {
                return Err(Error::usage("its mapping to other datasets is not understood"));
            }
            mappings.push(MappedSource { file, dataset, from, to });
        }
        Ok(VirtualLayout { mappings, fill })
    }

    /// Whether the extent depends on the sources.
    pub(super) fn grows(&self) -> bool {
        self.mappings.iter().any(|mapping| mapping.to.endless_axis().is_some())
    }

    /// The mappings as they are now, without any that grow, and the extent that they have.
    fn settled(&self, stored: &[u64], from: &Viewpoint) -> Result<(Vec<MappedSource>, Vec<u64>)> {
        let wrong = || Error::damaged("a mapping of a virtual dataset has no end");
        let (mut all, mut ends) = (Vec::new(), vec![None; stored.len()]);
        let mut least = vec![0; stored.len()];
        for mapping in &self.mappings {
            let own = mapping.to.least_shape();
            least.iter_mut().zip(own).for_each(|(least, own)| *least = own.max(*least));
            let Some(axis) = mapping.to.endless_axis() else {
                all.push(mapping.named(0));
                continue;
            };
            let to = mapping.to.axis(axis).filter(|_| axis < stored.len()).ok_or_else(wrong)?;
            let end = match mapping.from.endless_axis() {
                // As many blocks as there are sources.
                None => {
                    let mut count = 0;
                    loop {
                        let block = to.block_at(count).filter(|_| count < MOST_BLOCKS);
                        let block = block.ok_or_else(wrong)?;
                        let one = mapping.named(count);
                        let there = from.array(&one.file, &one.dataset)?.is_some();
                        // Without any source, the first one is missing.
                        if there || count == 0 {
                            all.push(MappedSource { to: mapping.to.with(axis, block), ..one });
                        }
                        if !there {
                            break;
                        }
                        count += 1;
                    }
                    count.checked_mul(to.block_len()).and_then(|len| to.extent_of(len))
                }
                Some(source_axis) => {
                    let one = mapping.named(0);
                    let own = mapping.from.axis(source_axis).ok_or_else(wrong)?;
                    let source = from.array(&one.file, &one.dataset)?;
                    let extent = source
                        .as_ref()
                        .map_or(Some(0), |s| s.description.shape.0.get(source_axis).copied());
                    let len = own.first_from(extent.ok_or_else(wrong)?);
                    let cut = || Error::usage("a block of its mapping to another dataset is cut");
                    let (own, there) =
                        (own.first(len).ok_or_else(cut)?, to.first(len).ok_or_else(cut)?);
                    all.push(MappedSource {
                        from: mapping.from.with(source_axis, own),
                        to: mapping.to.with(axis, there),
                        ..one
                    });
                    to.extent_of(len)
                }
            };
            let end = end.ok_or_else(wrong)?;
            ends[axis] = Some(ends[axis].map_or(end, |before: u64| before.max(end)));
        }
        let extent = |((stored, end), least): ((&u64, Option<u64>), u64)| {
            end.map_or(*stored, |end| end.max(least))
        };
        Ok((all, stored.iter().zip(ends).zip(least).map(extent).collect()))
    }
}

impl MappedSource {
    /// The same with the names of the source with a number.
    fn named(&self, number: u64) -> MappedSource {
        let name = |pattern: &str| {
            let parts: Vec<String> =
                pattern.split("%%").map(|part| part.replace("%b", &number.to_string())).collect();
            parts.join("%")
        };
        MappedSource {
            file: name(&self.file),
            dataset: name(&self.dataset),
            from: self.from.clone(),
            to: self.to.clone(),
        }
    }
}

/// Whether a name has the number of a block in it.
fn is_pattern(name: &str) -> Result<bool> {
    let mut rest = name.split('%').skip(1);
    let mut found = false;
    while let Some(part) = rest.next() {
        match part.chars().next() {
            Some('b') => found = true,
            // A sign that stands for itself is written twice.
            None if rest.next().is_some() => {}
            _ => {
                return Err(Error::usage(
                    "its sources are named by a pattern that is not understood",
                ));
            }
        }
    }
    Ok(found)
}

/// A name, or that of a mapping before by the number of it.
fn name(
    rest: &mut MetaCursor,
    shared: bool,
    before: &[MappedSource],
    of: impl Fn(&MappedSource) -> &String,
) -> Result<String> {
    if !shared {
        return Ok(String::from_utf8_lossy(rest.name(1)?).into_owned());
    }
    let number = usize::try_from(rest.length()?).ok();
    let mapping = number.and_then(|number| before.get(number));
    let mapping = mapping.ok_or_else(|| Error::damaged("a mapping to a dataset has no name"))?;
    Ok(of(mapping).clone())
}

impl Outside for VirtualLayout {
    fn open(&self, array: &FoundArray, from: &Viewpoint) -> Result<OutsideValues> {
        let mut whole = array.description.clone();
        if whole.dtype == DType::Bytes {
            return Err(Error::usage("its values lie in other datasets and are not numbers"));
        }
        let (mappings, shape) = self.settled(&whole.shape.0, from)?;
        whole.shape = Shape(shape);
        whole.check()?;
        let whole = &whole;
        let (mut pieces, mut missing, mut held) = (Vec::new(), Vec::new(), 0u64);
        for mapping in &mappings {
            let Some(source) = from.array(&mapping.file, &mapping.dataset)? else {
                missing.push(format!("{}:{}", mapping.file, mapping.dataset));
                continue;
            };
            let Some(to) = mapping.to.within(&whole.shape.0)? else { continue };
            let there = &source.description;
            // Numbers of a source become those of the array: exactly, if these are wider.
            if there.dtype != whole.dtype
                && common_type(there.dtype, whole.dtype) != Some(whole.dtype)
            {
                let types = format!("{} and {}", whole.dtype, there.dtype);
                return Err(Error::usage(format!("it and its source have types {types}")));
            }
            let Some(from) = mapping.from.within(&there.shape.0)? else { continue };
            if elements(&from) != elements(&to) {
                return Err(Error::damaged("a mapping to another dataset has two sizes"));
            }
            held = held.saturating_add(elements(&to).saturating_mul(whole.dtype.size()));
            let shape = there.shape.0.clone();
            let (file, dataset) = (mapping.file.clone(), mapping.dataset.clone());
            pieces.push(MappedPiece { file, dataset, dtype: there.dtype, shape, from, to });
        }
        check_paid(whole, held)?;
        // Sources that lie one over another would be read again and again.
        if held > whole.bytes().unwrap_or(0).saturating_mul(4) {
            return Err(Error::usage("its sources overlap"));
        }
        let missing = (!missing.is_empty()).then(|| {
            let more = if missing.len() > MOST_NAMES { ", …" } else { "" };
            missing.truncate(MOST_NAMES);
            let names = missing.join(", ");
            Error::usage(format!("sources are missing, and have its fill value: {names}{more}"))
        });
        let bytes = MappedValues {
            whole: whole.clone(),
            pieces,
            fill: self.fill.clone(),
            from: from.clone(),
            open: Mutex::default(),
        };
        let shape = self.grows().then(|| whole.shape.clone());
        Ok(OutsideValues { bytes: Arc::new(bytes), shape, missing })
    }
}

/// Number of selected elements.
fn elements(axes: &[AxisBlocks]) -> u64 {
    axes.iter().map(AxisBlocks::len).fold(1, u64::saturating_mul)
}

struct MappedPiece {
    file: String,
    dataset: String,
    /// The type and the extent of the source.
    dtype: DType,
    shape: Vec<u64>,
    from: Vec<AxisBlocks>,
    to: Vec<AxisBlocks>,
}

/// The values of a virtual dataset.
struct MappedValues {
    whole: Description,
    pieces: Vec<MappedPiece>,
    fill: Vec<u8>,
    from: Viewpoint,
    /// Sources by the number of their piece, the one that was used last at the end.
    open: Mutex<VecDeque<(usize, Arc<dyn Blob>)>>,
}

impl MappedValues {
    fn source(&self, number: usize) -> Result<Arc<dyn Blob>> {
        let kept = || self.open.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if let Some((_, blob)) = kept().iter().find(|(own, _)| *own == number) {
            return Ok(blob.clone());
        }
        let piece = &self.pieces[number];
        let changed = || Error::damaged("a source of a virtual dataset changed while it was read");
        let field = self.from.renewed().array(&piece.file, &piece.dataset)?;
        let field = field.ok_or_else(changed)?;
        let there = &field.description;
        if there.shape.0 != piece.shape || there.dtype != piece.dtype {
            return Err(changed());
        }
        let (from, to, inner) = (there.dtype, self.whole.dtype, field.bytes);
        let bytes: Arc<dyn Blob> = match from == to {
            true => inner,
            false => Arc::new(Widened { inner, from, to }),
        };
        let mut open = kept();
        if open.len() >= KEPT {
            open.pop_front();
        }
        open.push_back((number, bytes.clone()));
        Ok(bytes)
    }

    /// Fills those of these elements that a piece has.
    fn fill_from(&self, number: usize, wanted: &Range<u64>, buffer: &mut [u8]) -> Result<()> {
        let piece = &self.pieces[number];
        let size = self.whole.dtype.size();
        piece.runs(&self.whole.shape.0, wanted, &mut |place, from, count| {
            let at = ((place - wanted.start) * size) as usize;
            let part = &mut buffer[at..at + (count * size) as usize];
            self.source(number)?.read_at(from * size, part)
        })
    }
}

impl MappedPiece {
    /// Runs of elements within a range of the virtual array: place in it, place in the source, count.
    fn runs(
        &self,
        shape: &[u64],
        wanted: &Range<u64>,
        visit: &mut dyn FnMut(u64, u64, u64) -> Result<()>,
    ) -> Result<()> {
        let Some((last, outer)) = self.to.split_last() else {
            // A scalar.
            return if wanted.contains(&0) { visit(0, 0, 1) } else { Ok(()) };
        };
        let row_len = shape[outer.len()];
        // Rows of the slowest axis that reach into the range.
        let below = |axis: usize| shape[axis + 1..].iter().product::<u64>().max(1);
        let (first, end) = match outer.first() {
            Some(axis) => (
                axis.first_from(wanted.start / below(0)),
                axis.first_from(wanted.end.div_ceil(below(0))),
            ),
            None => (0, 1),
        };
        let inner: u64 = outer.iter().skip(1).map(AxisBlocks::len).product();
        for row in first * inner..end * inner {
            let start = position(outer, &shape[..outer.len()], row) * row_len;
            let mut number = last.first_from(wanted.start.saturating_sub(start));
            // A run that began before may reach into the range; single indices are found by themselves.
            while number < last.len() {
                let place = start + last.index(number);
                if place >= wanted.end {
                    break;
                }
                let count = last.run(number).min(wanted.end - place);
                self.source_runs(row * last.len() + number, place, count, visit)?;
                number += count;
            }
        }
        Ok(())
    }

    /// The same elements in the source, from the selected one with a number on.
    fn source_runs(
        &self,
        mut number: u64,
        mut place: u64,
        mut count: u64,
        visit: &mut dyn FnMut(u64, u64, u64) -> Result<()>,
    ) -> Result<()> {
        while count > 0 {
            let run = match self.from.last() {
                Some(last) => last.run(number % last.len()).min(count),
                None => 1,
            };
            visit(place, position(&self.from, &self.shape, number), run)?;
            (number, place, count) = (number + run, place + run, count - run);
        }
        Ok(())
    }
}

/// The place in an array of the selected element with a number.
fn position(axes: &[AxisBlocks], shape: &[u64], mut number: u64) -> u64 {
    let (mut place, mut distance) = (0, 1);
    for (axis, extent) in axes.iter().zip(shape).rev() {
        place += axis.index(number % axis.len()) * distance;
        number /= axis.len();
        distance *= extent;
    }
    place
}

impl Blob for MappedValues {
    fn store(&self) -> &str {
        "other datasets"
    }

    fn size(&self) -> u64 {
        self.whole.bytes().unwrap_or(0)
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        let size = self.whole.dtype.size();
        let end = offset + buffer.len() as u64;
        let wanted = offset / size..end.div_ceil(size);
        let mut values = crate::memory::zeroed((wanted.end - wanted.start) * size)?;
        repeat(&self.fill, 0, &mut values);
        for number in 0..self.pieces.len() {
            self.fill_from(number, &wanted, &mut values)?;
        }
        let from = (offset - wanted.start * size) as usize;
        buffer.copy_from_slice(&values[from..from + buffer.len()]);
        Ok(())
    }

    fn read_many(&self, ranges: &mut [(u64, &mut [u8])]) -> Result<()> {
        read_each(self, ranges)
    }

    fn file(&self) -> Option<(&std::fs::File, &std::path::Path, u64)> {
        None
    }

    fn in_order(&self) -> bool {
        false
    }
}
