//! A dataset: its type, its extent, and where its values lie.

use super::bytes::Meta;
use super::datatype::{self, Type, TypeKind};
use super::header::{self, HeaderMessage};
use super::heap::Heap;
use super::index::{self, Array, Index};
use super::tree;
use crate::array::{DType, MAX_AXES};
use crate::error::{Error, ErrorKind, Result};
use crate::format::{ChunkRecipe, Filter, MAX_CHUNK};
use crate::source::chunks::{Cache, Chunks};
use crate::source::filter::{Coding, MOST_INFLATED, swap};
use crate::source::found::{FoundArray, MARKS, MOST_MARKS, MOST_UNPAID, Placement};
use crate::source::scaled::Scaled;
use std::sync::Arc;

/// The extent of a dataset, and how far it may grow.
struct Space {
    shape: Vec<u64>,
    largest: Vec<u64>,
}

/// The array of an object; none if it is no dataset. A dataset of addresses is none either, unless
/// `pointers` asks for its bytes.
pub(super) fn find(
    meta: &Meta,
    name: &str,
    messages: &[HeaderMessage],
    cache: &Arc<Cache>,
    pointers: bool,
) -> Result<Option<FoundArray>> {
    let message = |kind: u16| messages.iter().find(|message| message.kind == kind);
    let (Some(space), Some(element), Some(layout)) = (message(1), message(3), message(8)) else {
        return Ok(None);
    };
    for kind in [1, 4, 5, 8, 0xb] {
        if message(kind).is_some_and(|message| message.flags & 2 != 0) {
            return Err(Error::usage("this HDF5 file shares messages of objects")
                .hint("repack it with h5repack"));
        }
    }
    let element = element_type(meta, element)?;
    let space = extent(meta, &space.bytes)?;
    let (dtype, swapped, inner) = match &element.kind {
        TypeKind::Numbers(dtype, swapped, axes) => (*dtype, *swapped, axes.clone()),
        TypeKind::Bytes if element.size == 1 => (DType::Bytes, false, Vec::new()),
        TypeKind::Bytes => (DType::Bytes, false, vec![element.size]),
        TypeKind::Pointers if pointers => (DType::Bytes, false, vec![element.size]),
        TypeKind::Pointers => return Ok(None),
    };
    let shape = space.shape.iter().copied().chain(inner).collect();
    let mut found = FoundArray::new(name, dtype, shape, swapped, Placement::Filled(Vec::new()))?;
    let old = message(4).map(|m| (&m.bytes, true));
    let mut fill = match message(5).map(|m| (&m.bytes, false)).or(old) {
        Some((bytes, old)) => fill_value(meta, bytes, old)?,
        None => Vec::new(),
    };
    // Zeros are what memory is filled with, and mean themselves unless an attribute says otherwise.
    if fill.iter().any(|byte| *byte != 0) {
        found.mark(&fill);
    }
    let attributes = attributes(meta, messages);
    found.unmarked = attributes.is_err();
    for attribute in attributes.unwrap_or_default() {
        // An attribute that is not understood tells nothing.
        for value in marks(meta, &attribute, (dtype, swapped)).unwrap_or_default() {
            found.mark(&value);
        }
    }
    found.marks.truncate(MOST_MARKS);
    if fill.len() as u64 != element.size {
        fill = vec![0; usize::try_from(element.size.min(1 << 20)).unwrap_or(0)];
    }
    let outside = message(7).is_some();
    let pipeline = message(0xb).map(|m| filters(meta, &m.bytes)).transpose()?.unwrap_or_default();
    let mut dataset = Dataset { meta, element, space, fill, pipeline, cache, found: &mut found };
    let place = match outside {
        true => Placement::Unreadable(Error::usage("its values lie in other files")),
        false => dataset.place(layout)?,
    };
    found.place = place;
    Ok(Some(found))
}

fn element_type(meta: &Meta, message: &HeaderMessage) -> Result<Type> {
    let bytes = type_bytes(meta, &message.bytes, message.flags & 2 != 0)?;
    datatype::parse(&mut meta.cursor(&bytes), 0)
}

/// The bytes of a type, which may be a named one elsewhere in the file.
pub(super) fn type_bytes(meta: &Meta, bytes: &[u8], elsewhere: bool) -> Result<Vec<u8>> {
    if !elsewhere {
        return Ok(bytes.to_vec());
    }
    let mut rest = meta.cursor(bytes);
    let (version, kind) = (rest.u8()?, rest.u8()?);
    rest.skip(if version == 1 { 6 } else { 0 })?;
    if version == 3 && kind == 1 {
        return Err(Error::usage("this HDF5 file shares messages of objects")
            .hint("repack it with h5repack"));
    }
    let messages = header::messages(meta, rest.defined()?)?;
    let own = messages.iter().find(|message| message.kind == 3 && message.flags & 2 == 0);
    let own = own.ok_or_else(|| Error::damaged("a named type of this HDF5 file is none"))?;
    Ok(own.bytes.clone())
}

/// The extents of a dataspace.
pub(super) fn shape(meta: &Meta, bytes: &[u8]) -> Result<Vec<u64>> {
    Ok(extent(meta, bytes)?.shape)
}

fn extent(meta: &Meta, bytes: &[u8]) -> Result<Space> {
    let mut rest = meta.cursor(bytes);
    let (version, axes, flags) = (rest.u8()?, usize::from(rest.u8()?), rest.u8()?);
    let kind = rest.u8()?;
    match version {
        1 => rest.skip(4)?,
        2 if kind == 2 => return Ok(Space { shape: vec![0], largest: vec![0] }),
        2 => {}
        _ => return Err(Error::damaged("an extent of this HDF5 file is not understood")),
    }
    if axes > MAX_AXES {
        return Err(Error::damaged("an array of this HDF5 file has too many axes"));
    }
    let mut list = || (0..axes).map(|_| rest.length()).collect::<Result<Vec<u64>>>();
    let shape = list()?;
    let none = u64::MAX >> (64 - 8 * meta.lengths);
    let largest = match flags & 1 {
        0 => shape.clone(),
        _ => list()?.into_iter().map(|e| if e == none { u64::MAX } else { e }).collect(),
    };
    Ok(Space { shape, largest })
}

fn fill_value(meta: &Meta, bytes: &[u8], old: bool) -> Result<Vec<u8>> {
    let mut rest = meta.cursor(bytes);
    let there = match old {
        true => true,
        false => match rest.u8()? {
            3 => rest.u8()? & 0x20 != 0,
            version => {
                rest.skip(2)?;
                let defined = rest.u8()? != 0;
                defined || version == 1
            }
        },
    };
    if !there {
        return Ok(Vec::new());
    }
    let len = rest.u32()?;
    // A size of −1 says that there is none.
    if len == u32::MAX { Ok(Vec::new()) } else { Ok(rest.take(len as usize)?.to_vec()) }
}

/// The attributes of an object whose types do not stand elsewhere. Many of them are kept in a heap.
fn attributes(meta: &Meta, messages: &[HeaderMessage]) -> Result<Vec<Vec<u8>>> {
    let mut all = Vec::new();
    for message in messages.iter().filter(|message| message.flags & 2 == 0) {
        let mut rest = meta.cursor(&message.bytes);
        match message.kind {
            0xc => all.push(message.bytes.clone()),
            0x15 => {
                let flags = rest.take(2)?[1];
                rest.skip(if flags & 1 != 0 { 2 } else { 0 })?;
                let (Some(heap), Some(index)) = (rest.address()?, rest.address()?) else {
                    continue;
                };
                let heap = Heap::new(meta, heap)?;
                tree::second(meta, index, &mut |_, record| {
                    let mut rest = meta.cursor(record);
                    let (id, flags) = (rest.take(8)?, rest.u8()?);
                    if flags & 2 == 0 {
                        all.push(heap.object(id)?);
                    }
                    Ok(())
                })?;
            }
            _ => {}
        }
    }
    Ok(all)
}

/// The values of an attribute that tells which of them stand for something else, if they are of this
/// type; in the same order of bytes.
fn marks(meta: &Meta, attribute: &[u8], array: (DType, bool)) -> Result<Vec<Vec<u8>>> {
    let mut rest = meta.cursor(attribute);
    let (version, flags) = (rest.u8()?, rest.u8()?);
    let lengths = [rest.u16()?, rest.u16()?, rest.u16()?].map(usize::from);
    rest.skip(if version == 3 { 1 } else { 0 })?;
    let mut part = |len: usize| match version {
        1 => Ok(&rest.take(len.next_multiple_of(8))?[..len]),
        _ => rest.take(len),
    };
    let [name, element, space] = [part(lengths[0])?, part(lengths[1])?, part(lengths[2])?];
    let name = name.strip_suffix(b"\0").unwrap_or(name);
    let shared = version > 1 && flags & 3 != 0;
    if shared || !MARKS.iter().any(|mark| mark.as_bytes() == name) {
        return Ok(Vec::new());
    }
    let element = datatype::parse(&mut meta.cursor(element), 0)?;
    let TypeKind::Numbers(dtype, swapped, axes) = element.kind else { return Ok(Vec::new()) };
    let count = extent(meta, space)?.shape.into_iter().fold(1, u64::saturating_mul);
    if dtype != array.0 || !axes.is_empty() || count > MOST_MARKS as u64 {
        return Ok(Vec::new());
    }
    let size = dtype.size() as usize;
    let mut values: Vec<Vec<u8>> =
        rest.take(count as usize * size)?.chunks(size).map(<[u8]>::to_vec).collect();
    if swapped != array.1 {
        let number = if matches!(dtype, DType::C64 | DType::C128) { size / 2 } else { size };
        values.iter_mut().for_each(|value| swap(value, number as u8));
    }
    Ok(values)
}

/// A filter: its number and the parameters.
type FilterStep = (u16, Vec<u32>);

fn filters(meta: &Meta, bytes: &[u8]) -> Result<Vec<FilterStep>> {
    let mut rest = meta.cursor(bytes);
    let (version, count) = (rest.u8()?, rest.u8()?);
    rest.skip(if version == 1 { 6 } else { 0 })?;
    let mut all = Vec::new();
    for _ in 0..count {
        let number = rest.u16()?;
        let name = if version == 1 || number >= 256 { usize::from(rest.u16()?) } else { 0 };
        rest.skip(2)?;
        let parameters = usize::from(rest.u16()?);
        rest.skip(name)?;
        let values = (0..parameters).map(|_| rest.u32()).collect::<Result<_>>()?;
        rest.skip(if version == 1 && parameters % 2 == 1 { 4 } else { 0 })?;
        all.push((number, values));
    }
    Ok(all)
}

/// The filters that are understood, or why they are not.
fn codings(pipeline: &[FilterStep], found: &FoundArray) -> Result<Vec<Coding>> {
    let scaled = |values: &[u32]| {
        Scaled::new(values, found.description.dtype, found.swap > 0).map(Coding::Scaled)
    };
    let coding = |(number, values): &FilterStep| match number {
        1 => Ok(Coding::Known(Filter::Deflate(values.first().map_or(6, |v| *v.min(&9)) as u8))),
        2 => Ok(Coding::Known(Filter::Shuffle(values.first().copied().unwrap_or(1)))),
        3 => Ok(Coding::Known(Filter::Fletcher32)),
        32000 => Ok(Coding::Lzf),
        _ => {
            if let Some(scaled) = scaled(values).filter(|_| *number == 6) {
                return Ok(scaled);
            }
            let name = match number {
                4 => "szip".to_string(),
                5 => "nbit".to_string(),
                6 => "scale-offset".to_string(),
                _ => format!("filter {number} of HDF5"),
            };
            Err(Error::usage(format!("its chunks are packed by {name}"))
                .hint("repack them with h5repack, or leave the variable out with --vars"))
        }
    };
    pipeline.iter().map(coding).collect()
}

struct Dataset<'a> {
    meta: &'a Meta<'a>,
    element: Type,
    space: Space,
    fill: Vec<u8>,
    pipeline: Vec<FilterStep>,
    cache: &'a Arc<Cache>,
    found: &'a mut FoundArray,
}

impl Dataset<'_> {
    fn place(&mut self, layout: &HeaderMessage) -> Result<Placement> {
        let odd =
            || Error::usage("its layout is not understood").hint("repack the file with h5repack");
        let mut rest = self.meta.cursor(&layout.bytes);
        let version = rest.u8()?;
        let bytes = self.found.bytes();
        let class = match version {
            1 | 2 => {
                let axes = usize::from(rest.u8()?);
                let class = rest.u8()?;
                rest.skip(5)?;
                let at = if class == 0 { None } else { rest.address()? };
                let dims: Vec<u64> = (0..axes).map(|_| rest.uint(4)).collect::<Result<_>>()?;
                match class {
                    0 => {
                        self.found.in_record = true;
                        let len = u64::from(rest.u32()?);
                        let used = layout.bytes.len() - rest.rest.len();
                        return self.plain(Some(layout.place + used as u64), len);
                    }
                    1 => return self.contiguous(at, bytes),
                    2 => return self.chunked(&dims, at, Index::First, false),
                    _ => return Ok(Placement::Unreadable(odd())),
                }
            }
            3..=5 => rest.u8()?,
            _ => return Ok(Placement::Unreadable(odd())),
        };
        match (class, version) {
            (0, _) => {
                self.found.in_record = true;
                let len = u64::from(rest.u16()?);
                let used = layout.bytes.len() - rest.rest.len();
                self.plain(Some(layout.place + used as u64), len)
            }
            (1, _) => {
                let (at, len) = (rest.address()?, rest.length()?);
                self.contiguous(at, len)
            }
            (2, 3) => {
                let axes = usize::from(rest.u8()?);
                let at = rest.address()?;
                let dims: Vec<u64> = (0..axes).map(|_| rest.uint(4)).collect::<Result<_>>()?;
                self.chunked(&dims, at, Index::First, false)
            }
            (2, _) => {
                let (flags, axes, width) = (rest.u8()?, usize::from(rest.u8()?), rest.u8()?);
                let dims: Vec<u64> =
                    (0..axes).map(|_| rest.uint(width.into())).collect::<Result<_>>()?;
                let index = match rest.u8()? {
                    1 if flags & 2 != 0 => {
                        Index::Single { len: Some(rest.length()?), left_out: rest.u32()? }
                    }
                    1 => Index::Single { len: None, left_out: 0 },
                    2 => Index::Implicit,
                    3 => {
                        rest.skip(1)?;
                        Index::Fixed
                    }
                    4 => {
                        rest.skip(5)?;
                        Index::Extensible
                    }
                    5 => {
                        rest.skip(6)?;
                        Index::Second
                    }
                    _ => return Ok(Placement::Unreadable(odd())),
                };
                let at = rest.address()?;
                self.chunked(&dims, at, index, flags & 1 != 0)
            }
            (3, _) => Ok(Placement::Unreadable(Error::usage("its values lie in other datasets"))),
            _ => Ok(Placement::Unreadable(odd())),
        }
    }

    fn contiguous(&self, at: Option<u64>, len: u64) -> Result<Placement> {
        self.plain(at.map(|at| self.meta.place(at)).transpose()?, len)
    }

    /// Values one after another, from this place in the file on.
    fn plain(&self, at: Option<u64>, len: u64) -> Result<Placement> {
        let bytes = self.found.bytes();
        match at {
            None if len == 0 || bytes <= MOST_UNPAID => self.filled(),
            _ if bytes == 0 => self.filled(),
            None => Ok(unwritten()),
            Some(_) if len < bytes => {
                Err(Error::damaged("a dataset has less space than its values take"))
            }
            Some(at) => {
                self.meta.whole.part(at, bytes)?;
                Ok(Placement::Plain { at })
            }
        }
    }

    fn filled(&self) -> Result<Placement> {
        if self.found.bytes() > MOST_UNPAID {
            return Ok(unwritten());
        }
        let mut value = self.fill.clone();
        swap(&mut value, self.found.swap);
        Ok(Placement::Filled(value))
    }

    fn chunked(
        &self,
        dims: &[u64],
        at: Option<u64>,
        index: Index,
        bare: bool,
    ) -> Result<Placement> {
        let wrong = || Error::damaged("the chunks of a dataset make no sense");
        let (element, chunk) = dims.split_last().ok_or_else(wrong)?;
        let size = chunk.iter().try_fold(*element, |n, c| n.checked_mul(*c));
        let size = size.filter(|size| *size > 0).ok_or_else(wrong)?;
        if chunk.len() != self.space.shape.len() || *element != self.element.size {
            return Err(wrong());
        }
        let Some(at) = at.filter(|_| self.found.bytes() > 0) else { return self.filled() };
        let codings = match codings(&self.pipeline, self.found) {
            Ok(codings) if size <= MAX_CHUNK && codings.len() <= 32 => codings,
            Ok(_) => {
                return Ok(Placement::Unreadable(Error::new(
                    ErrorKind::Limit,
                    "its chunks are too large",
                )));
            }
            Err(why) => return Ok(Placement::Unreadable(why)),
        };
        let (shape, largest) = (&self.space.shape, &self.space.largest);
        let array = Array { shape, largest, chunk, bytes: size };
        let mut stored = index::chunks(self.meta, &array, &index, at)?;
        let recipe = ChunkRecipe {
            shape: shape.clone(),
            chunk: chunk.to_vec(),
            swap: self.found.swap,
            padding: self.fill.clone(),
            filters: Vec::new(),
        };
        recipe.check()?;
        if bare {
            let grid = crate::source::grid::ChunkGrid::new(shape, chunk, *element);
            for chunk in stored.iter_mut().filter(|chunk| grid.padded(chunk.index)) {
                chunk.left_out = u32::MAX;
            }
        }
        let written = stored.iter().fold(0u64, |n, chunk| n.saturating_add(chunk.len));
        let most = written.saturating_mul(MOST_INFLATED).saturating_add(MOST_UNPAID);
        if self.found.bytes() > most || overlap(&stored) {
            return Ok(unwritten());
        }
        let chunks = Chunks::new(recipe, codings, stored, self.meta.whole, self.cache)?;
        Ok(Placement::Chunks(Arc::new(chunks)))
    }
}

/// Whether bytes of the file belong to two chunks.
fn overlap(stored: &[crate::source::chunks::Stored]) -> bool {
    let mut spans: Vec<(u64, u64)> = stored.iter().map(|chunk| (chunk.at, chunk.len)).collect();
    spans.sort_unstable();
    spans.windows(2).any(|pair| pair[0].0.saturating_add(pair[0].1) > pair[1].0)
}

fn unwritten() -> Placement {
    Placement::Unreadable(
        Error::new(ErrorKind::Limit, "hardly any of its values were ever written")
            .hint("leave the variable out with --vars"),
    )
}
