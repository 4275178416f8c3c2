//! The frame in which the Blosc2 filter of HDF5 stores a chunk: a head in MessagePack, chunks of Blosc, and an index of
//! them. An array of several axes is stored in blocks that are boxes of it.

use super::{blosc, broken};
use crate::error::Result;

const MAGIC: &[u8] = b"\x9e\xa8b2frame\0";

/// The most chunks of a frame; HDF5 writes one.
const MOST_CHUNKS: usize = 1 << 16;

/// Blocks at the edges of an array are padded. A frame may be this many times as large as its array.
const MOST_PADDING: usize = 16;

/// The bytes of a chunk of HDF5, at most this many.
pub(super) fn decode(bytes: &[u8], most: usize) -> Result<Vec<u8>> {
    if !bytes.starts_with(MAGIC) {
        return blosc::decode(bytes, most);
    }
    let wrong = || broken("Blosc2");
    let frame = BloscFrame::parse(bytes).ok_or_else(wrong)?;
    match frame.grid().ok_or_else(wrong)? {
        Some(grid) => grid.join(&frame, most),
        None => {
            let mut out = Vec::new();
            for number in 0..frame.chunks {
                out.extend(frame.chunk(number, most - out.len())?);
            }
            Ok(out)
        }
    }
}

/// The head of a frame, and the places of its chunks.
struct BloscFrame<'a> {
    bytes: &'a [u8],
    head: usize,
    element: usize,
    /// Bytes of all chunks and of each, before they were packed.
    len: usize,
    chunk_len: usize,
    chunks: usize,
    places: Vec<i64>,
}

/// A big-endian number of this many bytes.
fn number(bytes: &[u8], at: usize, width: usize) -> Option<usize> {
    let bytes = bytes.get(at..at.checked_add(width)?)?;
    let number = bytes.iter().fold(0u64, |n, byte| n << 8 | u64::from(*byte));
    usize::try_from(number).ok().filter(|number| *number <= isize::MAX as usize)
}

impl<'a> BloscFrame<'a> {
    fn parse(bytes: &'a [u8]) -> Option<Self> {
        let (head, all) = (number(bytes, 0xb, 4)?, number(bytes, 0x10, 8)?);
        let bytes = bytes.get(..all)?;
        let (len, stored) = (number(bytes, 0x1e, 8)?, number(bytes, 0x27, 8)?);
        let (element, chunk_len) = (number(bytes, 0x30, 4)?, number(bytes, 0x3a, 4)?);
        // Another kind of frame, or chunks of several lengths.
        if bytes.get(0x1a)? & 15 != 0 || element == 0 || len > 0 && chunk_len == 0 {
            return None;
        }
        let chunks = if len == 0 { 0 } else { len.div_ceil(chunk_len) };
        if chunks > MOST_CHUNKS {
            return None;
        }
        let mut places = Vec::new();
        if chunks > 0 {
            let index = bytes.get(head.checked_add(stored)?..)?;
            let index = blosc::decode(index, 8 * chunks).ok()?;
            places.extend(index.as_chunks::<8>().0.iter().map(|place| i64::from_le_bytes(*place)));
        }
        let whole = places.len() == chunks;
        whole.then_some(BloscFrame { bytes, head, element, len, chunk_len, chunks, places })
    }

    /// The bytes of a chunk, at most this many.
    fn chunk(&self, number: usize, most: usize) -> Result<Vec<u8>> {
        let wrong = || broken("Blosc2");
        let len = self.chunk_len.min(self.len - number * self.chunk_len);
        if len > most {
            return Err(wrong());
        }
        let place = self.places[number];
        let bytes = match usize::try_from(place) {
            Ok(place) => {
                let place = self.head.checked_add(place).and_then(|at| self.bytes.get(at..));
                blosc::decode(place.ok_or_else(wrong)?, len)?
            }
            // A chunk of one value has no place but that value.
            Err(_) => {
                let kind = (place >> 56 & 7) as u8;
                blosc::special(kind, &[], self.element, len).ok_or_else(wrong)?
            }
        };
        if bytes.len() == len { Ok(bytes) } else { Err(wrong()) }
    }

    /// The boxes in which an array of several axes is stored, if this is one. The outer `None`: it is corrupt.
    fn grid(&self) -> Option<Option<BoxGrid>> {
        let head = self.bytes.get(..self.head)?;
        let count = number(head, 0x5c, 2)?;
        let mut at = 0x5e;
        for _ in 0..count {
            let len = usize::from(head.get(at)? & 31);
            let name = head.get(at + 1..at + 1 + len)?;
            let place = number(head, at + 2 + len, 4)?;
            at += 6 + len;
            if name == b"b2nd" || name == b"caterva" {
                return BoxGrid::parse(head.get(place.checked_add(5)?..)?).map(Some);
            }
        }
        Some(None)
    }
}

/// An array that is cut into chunks and these into blocks.
struct BoxGrid {
    shape: Vec<usize>,
    chunk: Vec<usize>,
    block: Vec<usize>,
}

/// The most axes of an array.
const MOST_AXES: usize = 16;

impl BoxGrid {
    fn parse(bytes: &[u8]) -> Option<Self> {
        let axes = usize::from(*bytes.get(2)?);
        if !(1..=MOST_AXES).contains(&axes) {
            return None;
        }
        let mut at = 3;
        // A byte before each list, and before each number.
        let mut list = |width: usize| -> Option<Vec<usize>> {
            at += if axes < 16 { 1 } else { 3 };
            let numbers = (0..axes).map(|axis| number(bytes, at + axis * (width + 1) + 1, width));
            let numbers = numbers.collect::<Option<Vec<usize>>>()?;
            at += axes * (width + 1);
            numbers.iter().all(|number| *number > 0).then_some(numbers)
        };
        let (shape, chunk, block) = (list(8)?, list(4)?, list(4)?);
        Some(BoxGrid { shape, chunk, block })
    }

    /// The array, whose elements lie in boxes of boxes.
    fn join(&self, frame: &BloscFrame, most: usize) -> Result<Vec<u8>> {
        let wrong = || broken("Blosc2");
        let element = frame.element;
        let product = |all: &[usize]| all.iter().try_fold(element, |n, e| n.checked_mul(*e));
        let blocks = ratio(&self.chunk, &self.block);
        let padded: Vec<usize> = blocks.iter().zip(&self.block).map(|(n, b)| n * b).collect();
        let len = product(&self.shape).filter(|len| *len <= most).ok_or_else(wrong)?;
        let chunk_len = product(&padded).ok_or_else(wrong)?;
        let chunks = ratio(&self.shape, &self.chunk);
        let whole = product(&chunks).map(|n| n / element);
        if frame.chunk_len != chunk_len
            || whole != Some(frame.chunks)
            || frame.len > most.saturating_mul(MOST_PADDING).saturating_add(1 << 16)
        {
            return Err(wrong());
        }
        let mut out = vec![0; len];
        for (number, chunk) in places(&chunks).enumerate() {
            let bytes = frame.chunk(number, chunk_len)?;
            let mut rest = &bytes[..];
            for block in places(&blocks) {
                let (of_block, after) = rest.split_at(product(&self.block).ok_or_else(wrong)?);
                rest = after;
                self.put(&chunk, &block, of_block, element, &mut out);
            }
        }
        Ok(out)
    }

    /// Puts the rows of a block to their places, as far as they belong to the array and to their chunk.
    fn put(&self, chunk: &[usize], block: &[usize], bytes: &[u8], element: usize, out: &mut [u8]) {
        let axes = self.shape.len();
        let (last, row) = (axes - 1, self.block[axes - 1]);
        let in_chunk = |axis: usize, within: usize| block[axis] * self.block[axis] + within;
        let in_array = |axis: usize, at: usize| chunk[axis] * self.chunk[axis] + at;
        let room = |axis: usize, at: usize| {
            let of_chunk = self.chunk[axis].saturating_sub(at);
            of_chunk.min(self.shape[axis].saturating_sub(in_array(axis, at)))
        };
        let first = in_chunk(last, 0);
        let count = row.min(room(last, first));
        for (number, place) in places(&self.block[..last]).enumerate() {
            let ats: Vec<usize> = (0..last).map(|axis| in_chunk(axis, place[axis])).collect();
            if count == 0 || (0..last).any(|axis| room(axis, ats[axis]) == 0) {
                continue;
            }
            let place =
                (0..last).fold(0, |n, axis| n * self.shape[axis] + in_array(axis, ats[axis]));
            let place = (place * self.shape[last] + in_array(last, first)) * element;
            let row = &bytes[number * row * element..][..count * element];
            out[place..place + row.len()].copy_from_slice(row);
        }
    }
}

/// Number of pieces of the second that go into the first, along each axis.
fn ratio(whole: &[usize], piece: &[usize]) -> Vec<usize> {
    whole.iter().zip(piece).map(|(whole, piece)| whole.div_ceil(*piece)).collect()
}

/// All places of a box, the last axis the fastest.
fn places(extents: &[usize]) -> impl Iterator<Item = Vec<usize>> + '_ {
    let count: usize = extents.iter().product();
    (0..count).map(move |number| {
        let mut rest = number;
        let mut place: Vec<usize> = extents
            .iter()
            .rev()
            .map(|extent| {
                let at = rest % extent;
                rest /= extent;
                at
            })
            .collect();
        place.reverse();
        place
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_of_a_box_in_order() {
        let all: Vec<Vec<usize>> = places(&[2, 3]).collect();
        assert_eq!(all, [[0, 0], [0, 1], [0, 2], [1, 0], [1, 1], [1, 2]]);
        assert_eq!(places(&[]).count(), 1);
    }

    #[test]
    fn blocks_go_to_their_places() {
        let grid = BoxGrid { shape: vec![3, 5], chunk: vec![3, 4], block: vec![2, 3] };
        let mut out = vec![0u8; 15];
        let mut next = 1;
        for chunk in places(&[1, 2]) {
            for block in places(&[2, 2]) {
                let bytes: Vec<u8> = (next..next + 6).collect();
                next += 6;
                grid.put(&chunk, &block, &bytes, 1, &mut out);
            }
        }
        assert_eq!(out, [1, 2, 3, 7, 25, 4, 5, 6, 10, 28, 13, 14, 15, 19, 37]);
    }
}
