//! The bytes of an HDF5 file around the values: superblock, object headers, links, attributes.
//!
//! Everything has a place before anything is written. Values come first, one array behind another, then texts, then
//! the headers of arrays and groups, inner ones before those that link to them; the superblock, which makes a file of
//! it all, is written last. Superblock and headers have version 2 (HDF5 1.8 and later), with checksums. Links are
//! kept in the headers of their groups, and arrays are contiguous. Types are those that h5py writes: bool is an
//! enumeration, complex numbers are pairs `r` and `i`; bf16 is a floating-point type that the library converts.

use super::plan::{OutputArray, OutputGroup};
use crate::array::{DType, Shape};
use crate::error::{Error, ErrorKind, Result};
use crate::format::Manifest;
use crate::source::hdf5_checksum;

const SUPERBLOCK: u64 = 48;
/// Values begin at multiples of this.
const ALIGN: u64 = 64;
const UNDEFINED: u64 = u64::MAX;
/// The library makes no smaller collection of texts.
const SMALLEST_HEAP: usize = 4096;
/// Texts of one collection.
const MOST_TEXTS: usize = 10_000;

/// Kinds of messages.
const SPACE: u8 = 1;
const LINK_INFO: u8 = 2;
const TYPE: u8 = 3;
const FILL: u8 = 5;
const LINK: u8 = 6;
const LAYOUT: u8 = 8;
const GROUP_INFO: u8 = 10;
const ATTRIBUTE: u8 = 12;

/// Everything of a file but the values.
pub(super) struct Hdf5Layout {
    /// The place of the values of each array.
    pub(super) starts: Vec<u64>,
    /// The place of texts and headers, and their bytes. The file ends with them.
    pub(super) tail: (u64, Vec<u8>),
    /// The first bytes of the file.
    pub(super) superblock: Vec<u8>,
}

/// Lays out a file of arrays; run, step and labels of the checkpoint become attributes of its root.
pub(super) fn lay_out(arrays: &[OutputArray], of: &Manifest) -> Result<Hdf5Layout> {
    let large = || Error::new(ErrorKind::Limit, "the arrays do not fit into one HDF5 file");
    let mut end = SUPERBLOCK;
    let mut starts = Vec::with_capacity(arrays.len());
    for array in arrays {
        let start = end.checked_next_multiple_of(ALIGN).ok_or_else(large)?;
        starts.push(start);
        end = start.checked_add(array.bytes()).ok_or_else(large)?;
    }
    let mut tail =
        Tail { start: end.checked_next_multiple_of(8).ok_or_else(large)?, bytes: vec![] };
    let root: Vec<(&str, &str)> =
        [("run", of.run.as_str())].into_iter().chain(of.labels.iter()).collect();
    let noted: Vec<Vec<(&str, &str)>> = arrays.iter().map(noted).collect();
    let texts: Vec<&str> =
        root.iter().chain(noted.iter().flatten()).map(|(_, text)| *text).collect();
    let mut places = tail.put_texts(&texts).into_iter();
    let mut attributes = |named: &[(&str, &str)]| -> Result<Vec<Vec<u8>>> {
        let placed = named.iter().zip(places.by_ref());
        placed.map(|((name, _), place)| attribute(name, &text_type(), &place)).collect()
    };
    let mut about = attributes(&root)?;
    about.push(attribute("step", &integer(8, false), &of.step.0.to_le_bytes())?);
    let mut headers = Vec::with_capacity(arrays.len());
    for ((array, start), noted) in arrays.iter().zip(&starts).zip(&noted) {
        let start = if array.bytes() == 0 { UNDEFINED } else { *start };
        let mut messages = vec![
            message(SPACE, &space(array.shape()))?,
            message(TYPE, &datatype(array.dtype))?,
            // No value of its own; memory for values is taken when they are written.
            message(FILL, &[3, 0x0a])?,
            message(
                LAYOUT,
                &[&[3, 1], &start.to_le_bytes()[..], &array.bytes().to_le_bytes()].concat(),
            )?,
        ];
        messages.extend(attributes(noted)?);
        headers.push(tail.put(&header(&messages)?));
    }
    let root = tail.put_group(&OutputGroup::root(arrays), &headers, about)?;
    let end = tail.start.checked_add(tail.bytes.len() as u64).ok_or_else(large)?;
    let addresses = [0, UNDEFINED, end, root].map(u64::to_le_bytes);
    let mut superblock = [b"\x89HDF\r\n\x1a\n\x02\x08\x08\x00", addresses.as_flattened()].concat();
    superblock.extend(hdf5_checksum(&superblock).to_le_bytes());
    Ok(Hdf5Layout { starts, tail: (tail.start, tail.bytes), superblock })
}

/// The attributes of an array: the variable's, and its type where that of the array does not tell.
fn noted<'a>(array: &'a OutputArray) -> Vec<(&'a str, &'a str)> {
    let untold = matches!(array.dtype, DType::BF16 | DType::Bytes);
    let named = untold.then(|| ("treering_type", array.dtype.name()));
    array.attributes.iter().chain(named).collect()
}

/// Texts and headers, behind the values.
struct Tail {
    start: u64,
    bytes: Vec<u8>,
}

impl Tail {
    /// Adds bytes and returns their address.
    fn put(&mut self, bytes: &[u8]) -> u64 {
        self.bytes.resize(self.bytes.len().next_multiple_of(8), 0);
        let at = self.start + self.bytes.len() as u64;
        self.bytes.extend(bytes);
        at
    }

    /// Adds texts and returns the value of an attribute for each: its length and its place in a global heap.
    fn put_texts(&mut self, texts: &[&str]) -> Vec<Vec<u8>> {
        let mut values = Vec::with_capacity(texts.len());
        for texts in texts.chunks(MOST_TEXTS) {
            let mut objects = Vec::new();
            for (text, number) in texts.iter().zip(1u16..) {
                objects.extend(number.to_le_bytes());
                objects.extend([1, 0, 0, 0, 0, 0]);
                objects.extend((text.len() as u64).to_le_bytes());
                objects.extend(text.as_bytes());
                objects.resize(objects.len().next_multiple_of(8), 0);
            }
            // A head, the texts, and an object that stands for free space.
            let size = (16 + objects.len() + 16).max(SMALLEST_HEAP);
            let free = size - 16 - objects.len();
            let mut heap = b"GCOL\x01\0\0\0".to_vec();
            heap.extend((size as u64).to_le_bytes());
            heap.extend(objects);
            heap.extend([0; 8]);
            heap.extend((free as u64).to_le_bytes());
            heap.resize(size, 0);
            let at = self.put(&heap);
            for (text, number) in texts.iter().zip(1u32..) {
                let len = text.len() as u32;
                let place = [&len.to_le_bytes()[..], &at.to_le_bytes(), &number.to_le_bytes()];
                values.push(place.concat());
            }
        }
        values
    }

    /// Adds a group and what is in it, and returns its address.
    fn put_group(
        &mut self,
        group: &OutputGroup,
        arrays: &[u64],
        attributes: Vec<Vec<u8>>,
    ) -> Result<u64> {
        let nowhere = [[0, 0].as_slice(), &UNDEFINED.to_le_bytes(), &UNDEFINED.to_le_bytes()];
        let mut messages =
            vec![message(LINK_INFO, &nowhere.concat())?, message(GROUP_INFO, &[0, 0])?];
        for (name, below) in &group.groups {
            let at = self.put_group(below, arrays, Vec::new())?;
            messages.push(link(name, at)?);
        }
        for (name, number) in &group.arrays {
            messages.push(link(name, arrays[*number])?);
        }
        messages.extend(attributes);
        Ok(self.put(&header(&messages)?))
    }
}

/// An object header of messages.
fn header(messages: &[Vec<u8>]) -> Result<Vec<u8>> {
    let len = messages.iter().map(Vec::len).sum::<usize>();
    let len = u32::try_from(len)
        .map_err(|_| Error::new(ErrorKind::Limit, "a group of HDF5 cannot have so many members"))?;
    // The length has four bytes, and no times are kept.
    let mut bytes = b"OHDR\x02\x02".to_vec();
    bytes.extend(len.to_le_bytes());
    messages.iter().for_each(|message| bytes.extend(message));
    bytes.extend(hdf5_checksum(&bytes).to_le_bytes());
    Ok(bytes)
}

fn message(kind: u8, body: &[u8]) -> Result<Vec<u8>> {
    let len = u16::try_from(body.len())
        .map_err(|_| Error::new(ErrorKind::Limit, "a name is too long for HDF5"))?;
    // A type does not change.
    let flags = u8::from(kind == TYPE);
    Ok([&[kind], &len.to_le_bytes()[..], &[flags], body].concat())
}

/// A link to an object, with a name in UTF-8.
fn link(name: &str, at: u64) -> Result<Vec<u8>> {
    let len = u16::try_from(name.len())
        .map_err(|_| Error::new(ErrorKind::Limit, "a name is too long for HDF5"))?;
    let head = [&[1, 0x11, 1], &len.to_le_bytes()[..]].concat();
    message(LINK, &[&head[..], name.as_bytes(), &at.to_le_bytes()].concat())
}

/// An attribute of a single value.
fn attribute(name: &str, datatype: &[u8], value: &[u8]) -> Result<Vec<u8>> {
    let space = space(&Shape(Vec::new()));
    let lengths =
        [name.len() + 1, datatype.len(), space.len()].map(|len| (len as u16).to_le_bytes());
    let head = [&[3, 0], lengths.as_flattened(), &[1]].concat();
    message(ATTRIBUTE, &[&head[..], name.as_bytes(), &[0], datatype, &space, value].concat())
}

/// The extent of an array.
fn space(shape: &Shape) -> Vec<u8> {
    let mut bytes = vec![2, shape.0.len() as u8, 0, u8::from(!shape.0.is_empty())];
    shape.0.iter().for_each(|extent| bytes.extend(extent.to_le_bytes()));
    bytes
}

/// The type of the values of an array.
fn datatype(dtype: DType) -> Vec<u8> {
    let float = |dtype: DType| match dtype {
        DType::F16 => floating(2, [10, 5, 0, 10], 15),
        DType::BF16 => floating(2, [7, 8, 0, 7], 127),
        DType::F32 | DType::C64 => floating(4, [23, 8, 0, 23], 127),
        _ => floating(8, [52, 11, 0, 52], 1023),
    };
    match dtype {
        DType::U8 | DType::U16 | DType::U32 | DType::U64 | DType::Bytes => {
            integer(dtype.size() as u8, false)
        }
        DType::I8 | DType::I16 | DType::I32 | DType::I64 => integer(dtype.size() as u8, true),
        DType::F16 | DType::BF16 | DType::F32 | DType::F64 => float(dtype),
        DType::C64 | DType::C128 => {
            let (size, part) = (dtype.size() as u8, float(dtype));
            let head = [0x36, 2, 0, 0, size, 0, 0, 0];
            [&head[..], b"r\0", &[0], &part, b"i\0", &[size / 2], &part].concat()
        }
        DType::Bool => {
            let head = [0x18, 2, 0, 0, 1, 0, 0, 0];
            [&head[..], &integer(1, true), b"FALSE\0\0\0TRUE\0\0\0\0", &[0, 1]].concat()
        }
    }
}

fn integer(size: u8, signed: bool) -> Vec<u8> {
    vec![0x10, if signed { 8 } else { 0 }, 0, 0, size, 0, 0, 0, 0, 0, 8 * size, 0]
}

/// A floating-point type: the place and width of the exponent, the same of the mantissa, and the bias.
fn floating(size: u8, layout: [u8; 4], bias: u32) -> Vec<u8> {
    let head = [0x11, 0x20, 8 * size - 1, 0, size, 0, 0, 0, 0, 0, 8 * size, 0];
    [&head[..], &layout, &bias.to_le_bytes()].concat()
}

/// Text of any length, in UTF-8.
fn text_type() -> Vec<u8> {
    [&[0x19, 1, 1, 0, 16, 0, 0, 0][..], &integer(1, false)].concat()
}
