//! A chunk of Blosc, of version 1 or 2, undone: blocks, each shuffled and packed as one stream or as one for each byte
//! of an element.

use super::bitshuffle::unshuffle_bits;
use super::{broken, lz, unshuffle};
use crate::error::Result;

/// The head of a chunk.
struct BloscHead {
    version: u8,
    flags: u8,
    element: usize,
    /// Bytes of the chunk before it was packed, of a block, and of the chunk as it is.
    len: usize,
    block: usize,
    stored: usize,
    /// Filters, in the order in which they were applied, with a parameter each.
    filters: Vec<(u8, u8)>,
    special: u8,
    size: usize,
}

const SHUFFLED: u8 = 1;
const COPIED: u8 = 2;
const BITS_SHUFFLED: u8 = 4;
const NOT_SPLIT: u8 = 16;
/// Elements of more bytes, and blocks of fewer elements, were never split by Blosc 1.
const MOST_SPLIT: usize = 16;
const LEAST_SPLIT: usize = 128;

impl BloscHead {
    fn parse(bytes: &[u8]) -> Option<Self> {
        let (head, rest) = bytes.split_first_chunk::<16>()?;
        let number = |at: usize| -> Option<usize> {
            let bytes = head[at..].first_chunk::<4>()?;
            usize::try_from(i32::from_le_bytes(*bytes)).ok()
        };
        let [version, _, flags, element, ..] = *head;
        let mut parsed = BloscHead {
            version,
            flags,
            element: usize::from(element),
            len: number(4)?,
            block: number(8)?,
            stored: number(12)?,
            filters: Vec::new(),
            special: 0,
            size: 16,
        };
        if flags & SHUFFLED != 0 && flags & BITS_SHUFFLED != 0 {
            // The longer head of Blosc 2. Dictionaries, lazy chunks and blocks of several lengths are not understood.
            let more = rest.first_chunk::<16>()?;
            if more[15] & 0x89 != 0 || more[14] != 0 {
                return None;
            }
            parsed.filters = (0..6).map(|slot| (more[slot], more[8 + slot])).collect();
            parsed.special = more[15] >> 4 & 7;
            parsed.size = 32;
        } else if flags & BITS_SHUFFLED != 0 {
            parsed.filters.push((2, 0));
        } else if flags & SHUFFLED != 0 {
            parsed.filters.push((1, 0));
        }
        parsed.filters.retain(|(filter, _)| *filter != 0);
        // Numbers of filters that are applied to reading: bytes, bits, differences, lost digits.
        let known = parsed.filters.iter().all(|(filter, _)| *filter <= 4);
        let sound = version > 0 && parsed.element > 0 && known && parsed.stored <= bytes.len();
        (sound && parsed.stored >= parsed.size).then_some(parsed)
    }

    /// Numbers of streams of a block.
    fn streams(&self, last: bool) -> usize {
        let fits = self.element <= MOST_SPLIT && self.block / self.element >= LEAST_SPLIT;
        let split = self.flags & NOT_SPLIT == 0 && !last && (self.version > 2 || fits);
        if split { self.element } else { 1 }
    }
}

/// The bytes of a chunk, at most this many.
pub(super) fn decode(bytes: &[u8], most: usize) -> Result<Vec<u8>> {
    chunk(bytes, most).ok_or_else(|| broken("Blosc"))?
}

/// The bytes of a chunk. `None`: it is corrupt.
fn chunk(bytes: &[u8], most: usize) -> Option<Result<Vec<u8>>> {
    let head = BloscHead::parse(bytes)?;
    let bytes = &bytes[..head.stored];
    if head.len > most {
        return None;
    }
    let body = &bytes[head.size..];
    if head.special != 0 {
        return special(head.special, body, head.element, head.len).map(Ok);
    }
    if head.flags & COPIED != 0 {
        return body.get(..head.len).map(|bytes| Ok(bytes.to_vec()));
    }
    if head.len == 0 {
        return Some(Ok(Vec::new()));
    }
    if head.block == 0 || head.block > head.len.max(head.element) {
        return None;
    }
    let mut out: Vec<u8> = Vec::new();
    let mut starts = body;
    while out.len() < head.len {
        let (start, rest) = starts.split_first_chunk::<4>()?;
        starts = rest;
        let start = usize::try_from(i32::from_le_bytes(*start)).ok()?;
        let len = head.block.min(head.len - out.len());
        let block = match block(&head, bytes.get(start..)?, len) {
            Some(Ok(block)) => block,
            failed => return failed,
        };
        unfilter(&head, block, &mut out);
    }
    Some(Ok(out))
}

/// A chunk of one value: zeros, NaN, or one that follows.
pub(super) fn special(kind: u8, body: &[u8], element: usize, len: usize) -> Option<Vec<u8>> {
    let not_a_number = (f32::NAN.to_le_bytes(), f64::NAN.to_le_bytes());
    let value = match (kind, element) {
        (1, _) => return Some(vec![0; len]),
        (2, 4) => &not_a_number.0[..],
        (2, 8) => &not_a_number.1[..],
        (3, _) => body,
        _ => return None,
    };
    let fits = !value.is_empty() && len.is_multiple_of(value.len());
    fits.then(|| value.repeat(len / value.len()))
}

/// A block of this many bytes, unpacked.
fn block(head: &BloscHead, stored: &[u8], len: usize) -> Option<Result<Vec<u8>>> {
    let streams = head.streams(len < head.block);
    let size = len / streams;
    if size == 0 || size * streams != len {
        return None;
    }
    let (mut out, mut rest) = (Vec::new(), stored);
    for _ in 0..streams {
        let (stored, after) = rest.split_first_chunk::<4>()?;
        rest = after;
        match i32::from_le_bytes(*stored) {
            0 if head.size == 32 => out.resize(out.len() + size, 0),
            // Blosc 2 writes a run of a byte as minus the byte, and a mark.
            run @ -255..0 if head.size == 32 => {
                let (mark, after) = rest.split_first()?;
                rest = after;
                if mark & 1 == 0 {
                    return None;
                }
                out.resize(out.len() + size, (-run) as u8);
            }
            stored => {
                let (stored, after) = rest.split_at_checked(usize::try_from(stored).ok()?)?;
                rest = after;
                match stream(head.flags >> 5, stored, size)? {
                    Ok(bytes) if bytes.len() == size => out.extend(bytes),
                    Ok(_) => return None,
                    failed => return Some(failed),
                }
            }
        }
    }
    Some(Ok(out))
}

/// A stream of a compressor, or bytes as they are if there is nothing to gain.
fn stream(compressor: u8, stored: &[u8], len: usize) -> Option<Result<Vec<u8>>> {
    if stored.len() == len {
        return Some(Ok(stored.to_vec()));
    }
    Some(match compressor {
        0 => lz::blosclz(stored, len),
        1 => lz::lz4_block(stored, len),
        2 => lz::snappy(stored, len),
        3 => lz::zlib(stored, len),
        4 => lz::zstd(stored, len),
        _ => return None,
    })
}

/// Adds a block of which the filters are undone, the last one first.
fn unfilter(head: &BloscHead, block: Vec<u8>, out: &mut Vec<u8>) {
    let mut block = block;
    for (filter, parameter) in head.filters.iter().rev() {
        match (filter, parameter) {
            (1, 0) => block = unshuffle(&block, head.element),
            (1, bytes) => block = unshuffle(&block, usize::from(*bytes)),
            (2, _) => block = bits(head, block),
            (3, _) => differences(head.element, &mut block, out),
            // Digits that were lost stay lost.
            _ => {}
        }
    }
    out.extend(block);
}

/// A block of which the bits were shuffled, as far as eight elements go.
fn bits(head: &BloscHead, block: Vec<u8>) -> Vec<u8> {
    let count = block.len() / head.element;
    let whole = count / 8 * 8 * head.element;
    // Blosc 1 left such a block as it was.
    if whole == 0 || head.version <= 2 && !count.is_multiple_of(8) {
        return block;
    }
    let mut out = Vec::with_capacity(block.len());
    unshuffle_bits(&block[..whole], head.element, &mut out);
    out.extend_from_slice(&block[whole..]);
    out
}

/// Undoes differences by exclusive or: from the element before in the first block, from the first block in the others.
fn differences(element: usize, block: &mut [u8], first: &[u8]) {
    let unit = match element {
        1 | 2 | 4 | 8 => element,
        more if more.is_multiple_of(8) => 8,
        _ => 1,
    };
    let whole = block.len() / unit * unit;
    if first.is_empty() {
        for at in unit..whole {
            block[at] ^= block[at - unit];
        }
    } else {
        block[..whole].iter_mut().zip(first).for_each(|(byte, of_first)| *byte ^= of_first);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copied_chunk_and_damaged_heads() {
        let mut chunk = vec![2, 1, COPIED, 4];
        for number in [8u32, 8, 24] {
            chunk.extend(number.to_le_bytes());
        }
        chunk.extend(1..=8);
        assert_eq!(decode(&chunk, 8).unwrap(), [1, 2, 3, 4, 5, 6, 7, 8]);
        assert!(decode(&chunk, 7).is_err());
        assert!(decode(&chunk[..23], 8).is_err());
        assert!(decode(&[], 8).is_err());
        chunk[3] = 0;
        assert!(decode(&chunk, 8).is_err());
    }

    #[test]
    fn special_chunks_are_one_value() {
        assert_eq!(special(1, &[], 4, 8).unwrap(), [0; 8]);
        assert_eq!(special(2, &[], 4, 8).unwrap(), f32::NAN.to_le_bytes().repeat(2));
        assert_eq!(special(3, &[1, 2], 2, 4).unwrap(), [1, 2, 1, 2]);
        assert!(special(3, &[], 2, 4).is_none());
        // Values that were never set.
        assert!(special(4, &[], 2, 4).is_none());
    }
}
