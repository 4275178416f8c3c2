//! A dataset: its type, its extent, and where its values lie.

use super::bytes::Meta;
use super::datatype::{self, Type, TypeKind};
use super::external::ExternalPieces;
use super::header::HeaderMessage;
use super::heap::Heap;
use super::index::{self, Array, Index};
use super::mapped::VirtualLayout;
use super::node::{self, TypeNode};
use super::shared;
use super::tree;
use super::values::{Resolver, ValueFile};
use crate::array::{DType, MAX_AXES};
use crate::error::{Error, ErrorKind, Result};
use crate::format::{ChunkRecipe, MAX_CHUNK};
use crate::source::chunks::{Cache, Chunks, Stored};
use crate::source::filter::{Coding, most_inflated, swap};
use crate::source::found::{
    FoundArray, MOST_MARKS, MOST_UNPAID, Placement, SignWord, ValueAttribute,
};
use crate::source::outside::Outside;
use crate::source::undecoded::StoredBytes;
use std::sync::Arc;

/// The extent of a dataset, and how far it may grow.
struct Space {
    shape: Vec<u64>,
    largest: Vec<u64>,
}

/// The array of an object; none if it is no dataset.
pub(super) fn find(
    meta: &Meta,
    name: &str,
    messages: &[HeaderMessage],
    cache: &Arc<Cache>,
    values: &Arc<ValueFile>,
) -> Result<Option<FoundArray>> {
    let message = |kind: u16| messages.iter().find(|message| message.kind == kind);
    let (Some(space), Some(element), Some(layout)) = (message(1), message(3), message(8)) else {
        return Ok(None);
    };
    for kind in [1, 4, 5, 8, 0xb] {
        if message(kind).is_some_and(|message| message.flags & 2 != 0) {
            return Err(Error::damaged("this HDF5 file lacks a message that objects share"));
        }
    }
    let of_type = type_bytes(meta, &element.bytes, element.flags & 2 != 0)?;
    let element = datatype::parse(&mut meta.cursor(&of_type), 0)?;
    let space = extent(meta, &space.bytes)?;
    let (dtype, swapped, inner) = match &element.kind {
        TypeKind::Numbers(dtype, swapped, axes) => (*dtype, *swapped, axes.clone()),
        TypeKind::Bytes if element.size == 1 => (DType::Bytes, false, Vec::new()),
        TypeKind::Bytes | TypeKind::Pointers => (DType::Bytes, false, vec![element.size]),
    };
    let shape = space.shape.iter().copied().chain(inner).collect();
    let mut found = FoundArray::new(name, dtype, shape, swapped, Placement::Filled(Vec::new()))?;
    found.refers = element.kind == TypeKind::Pointers;
    found.element = values.element_type(meta, &of_type, &element.kind).map(Arc::new);
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
    found.unmarked |= attributes.is_err();
    for attribute in attributes.unwrap_or_default() {
        match MarkAttribute::parse(meta, &attribute) {
            Ok(Some(mark)) => mark.apply(&mut found),
            Ok(None) => {}
            // It may say which values stand for something else.
            Err(_) => found.unmarked = true,
        }
    }
    if fill.len() as u64 != element.size {
        fill = vec![0; usize::try_from(element.size.min(1 << 20)).unwrap_or(0)];
    }
    let outside = message(7).map(|message| ExternalPieces::parse(meta, &message.bytes));
    let pipeline = message(0xb).map(|m| filters(meta, &m.bytes)).transpose()?.unwrap_or_default();
    let mut dataset =
        Dataset { meta, element, of_type, space, fill, pipeline, cache, found: &mut found };
    let place = match outside {
        Some(outside) => dataset.outside(outside, "its values lie in other files"),
        None => dataset.place(layout)?,
    };
    found.place = place;
    Ok(Some(found))
}

/// Whether values of a dataset lie in other files or datasets.
pub(super) fn lies_elsewhere(messages: &[HeaderMessage]) -> bool {
    let virtual_layout = |message: &HeaderMessage| {
        message.kind == 8 && matches!(message.bytes[..], [version, 3, ..] if version >= 3)
    };
    messages.iter().any(|message| message.kind == 7 || virtual_layout(message))
}

/// The bytes of a type, which may be a named one elsewhere in the file.
pub(super) fn type_bytes(meta: &Meta, bytes: &[u8], elsewhere: bool) -> Result<Vec<u8>> {
    if elsewhere { shared::message(meta, 3, bytes) } else { Ok(bytes.to_vec()) }
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

/// The attributes of an object. Many of them are kept in a heap.
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
                    all.push(match flags & 2 {
                        0 => heap.object(id)?,
                        _ => shared::in_heap(meta, 0xc, id)?,
                    });
                    Ok(())
                })?;
            }
            _ => {}
        }
    }
    Ok(all)
}

/// The message of an attribute: its name, the bytes of its type and extent or where these are, and its values.
pub(super) struct AttributeMessage<'a> {
    pub(super) name: &'a [u8],
    element: &'a [u8],
    space: &'a [u8],
    flags: u8,
    pub(super) values: &'a [u8],
}

impl<'a> AttributeMessage<'a> {
    pub(super) fn parse(meta: &Meta, bytes: &'a [u8]) -> Result<Self> {
        let mut rest = meta.cursor(bytes);
        let (version, flags) = (rest.u8()?, rest.u8()?);
        let lengths = [rest.u16()?, rest.u16()?, rest.u16()?].map(usize::from);
        rest.skip(if version == 3 { 1 } else { 0 })?;
        let mut part = |len: usize| match version {
            1 => Ok(&rest.take(len.next_multiple_of(8))?[..len]),
            _ => rest.take(len),
        };
        let [name, element, space] = [part(lengths[0])?, part(lengths[1])?, part(lengths[2])?];
        let name = name.strip_suffix(b"\0").unwrap_or(name);
        let flags = if version > 1 { flags } else { 0 };
        Ok(AttributeMessage { name, element, space, flags, values: rest.rest })
    }

    /// The bytes of its type.
    pub(super) fn element(&self, meta: &Meta) -> Result<Vec<u8>> {
        type_bytes(meta, self.element, self.flags & 1 != 0)
    }

    /// The bytes of its extent.
    pub(super) fn space(&self, meta: &Meta) -> Result<Vec<u8>> {
        match self.flags & 2 {
            0 => Ok(self.space.to_vec()),
            _ => shared::message(meta, 1, self.space),
        }
    }
}

/// An attribute that says what the values of an array mean.
struct MarkAttribute<'a> {
    kind: ValueAttribute,
    dtype: DType,
    swapped: bool,
    values: &'a [u8],
    sign: Option<SignWord>,
}

impl<'a> MarkAttribute<'a> {
    /// The attribute, if its name is one of these.
    fn parse(meta: &Meta, attribute: &'a [u8]) -> Result<Option<Self>> {
        let message = AttributeMessage::parse(meta, attribute)?;
        let kind = std::str::from_utf8(message.name).ok().and_then(ValueAttribute::of);
        let Some(kind) = kind else { return Ok(None) };
        if kind == ValueAttribute::Unsigned {
            let sign = Some(sign_word(meta, &message));
            let (dtype, swapped, values) = (DType::U8, false, &[][..]);
            return Ok(Some(MarkAttribute { kind, dtype, swapped, values, sign }));
        }
        let odd = || Error::usage("an attribute of marked values is not understood");
        let element = datatype::parse(&mut meta.cursor(&message.element(meta)?), 0)?;
        let TypeKind::Numbers(dtype, swapped, axes) = element.kind else { return Err(odd()) };
        let shape = extent(meta, &message.space(meta)?)?.shape;
        let count = shape.into_iter().fold(1, u64::saturating_mul);
        if !axes.is_empty() || count > MOST_MARKS as u64 {
            return Err(odd());
        }
        let values = message.values.get(..(count * dtype.size()) as usize).ok_or_else(odd)?;
        Ok(Some(MarkAttribute { kind, dtype, swapped, values, sign: None }))
    }

    /// Notes marks, limits and packing.
    fn apply(&self, found: &mut FoundArray) {
        found.sign = found.sign.or(self.sign);
        let size = self.dtype.size() as usize;
        let complex = matches!(self.dtype, DType::C64 | DType::C128);
        let number = (if complex { size / 2 } else { size }) as u8;
        for value in self.values.chunks_exact(size) {
            let mut value = value.to_vec();
            swap(&mut value, if self.swapped { number } else { 0 });
            match self.kind {
                ValueAttribute::Limit => found.limit(self.dtype, &value),
                ValueAttribute::Mark => found.mark_number(self.dtype, &value),
                kind => found.packing(kind, self.dtype, &value),
            }
        }
    }
}

/// The text of an attribute that says whether integers have a sign, wherever it lies.
fn sign_word(meta: &Meta, message: &AttributeMessage) -> SignWord {
    let text = || -> Result<Vec<u8>> {
        let of_type = message.element(meta)?;
        let (size, node) = node::parse(&mut meta.cursor(&of_type), 0, &mut Vec::new())?;
        let text = matches!(node, TypeNode::Text(_) | TypeNode::Sequence(_, _, true));
        let values = message.values.get(..size as usize).filter(|_| text);
        let values = values.ok_or_else(|| Error::usage("it is no text"))?;
        let mut out = Vec::new();
        Resolver::new(meta, &Default::default()).element(&node, values, &mut out)?;
        // The letters stand behind their number.
        Ok(out.split_off(8))
    };
    text().map_or(SignWord::Unknown, |text| SignWord::of(&text))
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

/// The filters, or why one of them is not understood.
fn codings(pipeline: &[FilterStep], found: &FoundArray) -> Result<Vec<Coding>> {
    let (dtype, swapped) = (found.description.dtype, found.swap > 0);
    let coding = |(number, values): &FilterStep| Coding::new(*number, values, dtype, swapped);
    pipeline.iter().map(coding).collect()
}

struct Dataset<'a> {
    meta: &'a Meta<'a>,
    element: Type,
    /// The bytes of the type.
    of_type: Vec<u8>,
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
                    _ => return Ok(self.opaque(odd())),
                }
            }
            3..=5 => rest.u8()?,
            _ => return Ok(self.opaque(odd())),
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
                    _ => return Ok(self.opaque(odd())),
                };
                let at = rest.address()?;
                self.chunked(&dims, at, index, flags & 1 != 0)
            }
            (3, _) => {
                let mut fill = self.fill.clone();
                swap(&mut fill, self.found.swap);
                let mapped = VirtualLayout::parse(self.meta, &mut rest, fill);
                // The library finds its extent in the sources.
                let grows = mapped.as_ref().map_or(true, VirtualLayout::grows);
                self.found.grows = grows && self.space.largest != self.space.shape;
                Ok(self.outside(mapped, "its values lie in other datasets"))
            }
            _ => Ok(self.opaque(odd())),
        }
    }

    /// Values that are not understood, wherever in the file they lie.
    fn opaque(&self, why: Error) -> Placement {
        Placement::Unreadable(why, Some(StoredBytes::all(self.meta.whole)))
    }

    /// Values that lie elsewhere, where comparison looks for them.
    fn outside(&mut self, outside: Result<impl Outside + 'static>, why: &str) -> Placement {
        let why = match outside {
            Ok(outside) => {
                self.found.outside = Some(Arc::new(outside));
                Error::usage(why)
            }
            Err(error) => error,
        };
        Placement::Unreadable(why, Some(StoredBytes::elsewhere(self.meta.whole)))
    }

    /// Stored chunks, with everything that their values depend on: the whole file if values are addresses in it.
    fn stored(&self, dims: &[u64], bare: bool, chunks: &[Stored]) -> Arc<StoredBytes> {
        if self.found.refers {
            return StoredBytes::all(self.meta.whole);
        }
        let spans = chunks.iter().map(|chunk| (chunk.at, chunk.len)).collect();
        let places: Vec<_> = chunks.iter().map(|chunk| (chunk.index, chunk.left_out)).collect();
        let how = (&self.of_type, &self.fill, &self.pipeline, dims, bare, places);
        StoredBytes::at(self.meta.whole, spans, format!("{how:?}"))
    }

    /// An array of which hardly any value was written. Its size would be believed by whoever plans to read it.
    fn unwritten(&self) -> Placement {
        let mut fill = self.fill.clone();
        swap(&mut fill, self.found.swap);
        let stored = match (self.found.refers, &self.found.element) {
            (true, _) => StoredBytes::all(self.meta.whole),
            // Nothing was written, so nothing else matters: neither filters nor chunks.
            (false, None) => {
                let how = format!("unwritten: {:?} {fill:?}", self.found.description.dtype);
                StoredBytes::at(self.meta.whole, Vec::new(), how)
            }
            (false, Some(_)) => self.stored(&[], false, &[]),
        };
        Placement::Unreadable(hardly_written(), Some(stored))
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
            None => Ok(self.unwritten()),
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
            return Ok(self.unwritten());
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
        let wrong = || Error::damaged("corrupt HDF5 file: invalid chunks of a dataset");
        let (element, chunk) = dims.split_last().ok_or_else(wrong)?;
        let size = chunk.iter().try_fold(*element, |n, c| n.checked_mul(*c));
        let size = size.filter(|size| *size > 0).ok_or_else(wrong)?;
        if chunk.len() != self.space.shape.len() || *element != self.element.size {
            return Err(wrong());
        }
        let Some(at) = at.filter(|_| self.found.bytes() > 0) else { return self.filled() };
        let (shape, largest) = (&self.space.shape, &self.space.largest);
        let array = Array { shape, largest, chunk, bytes: size };
        let stored = index::chunks(self.meta, &array, &index, at);
        let too_large = || Error::new(ErrorKind::Limit, "its chunks are too large");
        let codings = match codings(&self.pipeline, self.found) {
            Ok(codings) if size <= MAX_CHUNK && codings.len() <= 32 => Ok(codings),
            Ok(_) => Err(too_large()),
            Err(why) => Err(why),
        };
        let (codings, mut stored) = match (codings, stored) {
            (Ok(codings), stored) => (codings, stored?),
            (Err(why), Ok(stored)) => {
                return Ok(Placement::Unreadable(why, Some(self.stored(dims, bare, &stored))));
            }
            (Err(why), Err(_)) => return Ok(self.opaque(why)),
        };
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
        let most = written.saturating_mul(most_inflated(&codings)).saturating_add(MOST_UNPAID);
        if self.found.bytes() > most && stored.is_empty() {
            return Ok(self.unwritten());
        }
        if self.found.bytes() > most || overlap(&stored) {
            return Ok(Placement::Unreadable(
                hardly_written(),
                Some(self.stored(dims, bare, &stored)),
            ));
        }
        let chunks = Chunks::new(recipe, codings, stored, self.meta.whole, self.cache)?;
        Ok(Placement::Chunks(Arc::new(chunks)))
    }
}

/// Whether bytes of the file belong to two chunks.
fn overlap(stored: &[Stored]) -> bool {
    let mut spans: Vec<(u64, u64)> = stored.iter().map(|chunk| (chunk.at, chunk.len)).collect();
    spans.sort_unstable();
    spans.windows(2).any(|pair| pair[0].0.saturating_add(pair[0].1) > pair[1].0)
}

fn hardly_written() -> Error {
    Error::new(ErrorKind::Limit, "hardly any of its values were ever written")
        .hint("`compare --exclude` leaves the variable out")
}
