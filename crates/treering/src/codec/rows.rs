//! Rows of a table that were there before, taken out, for the steps behind to see each of them once.
//!
//! In tables of counts, of states, of kinds, thousands of rows are one of a few hundred. An LZ finds them, and has to
//! tell for each how long it is and how far back; here all rows are equally long, and a number tells which one it
//! is, the smaller the more often it comes. A number costs about a byte.
//!
//! Where a row begins is not known: a frame may begin within one, and where chunks were left out the rows go on at
//! another place. So some values may stand between two rows, fewer than a row has. The first row begins where most
//! rows of a sample come again; later, where no row is known, and neither is the next one, it is looked for the next
//! known one.
//!
//! Rows that come more than once are told in ascending order, since those next to each other are alike then, and how
//! often each comes: that makes the numbers.
//!
//! Output: how many rows and parts of rows there are, the length of their numbers, that of the encoded numbers, and
//! how many rows come more than once (4 bytes each); the encoded numbers; zeros up to a whole value; the rows that
//! come more than once, then the others and the parts of rows in their order; what is left over behind the last
//! whole value. A number is 0 for a row that comes once, 1 for a part of a row, else 2 plus the place among those
//! that come more than once, the most frequent first and of equally frequent ones the first. Of all numbers there are
//! the lowest bytes, then the next ones if one of them has more; then for each part how many values it has, and for
//! each row that comes more than once how often it does less 2, at most 255.

use super::general;
use super::repeats::THOROUGH;
use crate::error::{Error, Result};
use std::cmp::Reverse;

/// Bytes in front of the numbers.
const HEAD: usize = 16;
/// The levels of zstd for numbers: in a hurry, and with time.
const LEVELS: [i32; 2] = [9, 19];
/// The fewest values of a row, and the most.
pub(super) const ROW: std::ops::RangeInclusive<u8> = 2..=254;
/// Number of rows of a sample from which the beginning of rows is found.
const SAMPLE: usize = 128;

/// A row that comes once, and a part of a row; the others follow.
const ONCE: usize = 0;
const PART: usize = 1;
const OFTEN: usize = 2;

pub(super) fn encode(raw: &[u8], size: u8, row: u8) -> Result<Vec<u8>> {
    let level = LEVELS[usize::from(size & THOROUGH != 0)];
    let size = usize::from(size & !THOROUGH);
    let row = usize::from(row);
    match size {
        1 => encode_as::<1>(raw, row, level),
        2 => encode_as::<2>(raw, row, level),
        4 => encode_as::<4>(raw, row, level),
        _ => encode_as::<8>(raw, row, level),
    }
}

pub(super) fn decode(encoded: &[u8], raw: &mut [u8], size: u8, row: u8) -> Result<()> {
    let row = usize::from(row);
    let decoded = match size & !THOROUGH {
        1 => decode_as::<1>(encoded, raw, row),
        2 => decode_as::<2>(encoded, raw, row),
        4 => decode_as::<4>(encoded, raw, row),
        _ => decode_as::<8>(encoded, raw, row),
    };
    decoded?.ok_or_else(|| Error::damaged("a frame of rows does not decode"))
}

/// A piece of the values: a row, by its number, or this many values that are none.
enum RowPiece {
    Row(usize),
    Part(usize),
}

fn encode_as<const N: usize>(raw: &[u8], row: usize, level: i32) -> Result<Vec<u8>> {
    let (values, left) = raw.as_chunks::<N>();
    let (pieces, rows) = RowFinder::new(values, row).pieces();
    let bytes_of = |at: usize| values[rows[at].at..][..row].as_flattened();
    let mut often: Vec<usize> = (0..rows.len()).filter(|at| rows[*at].count > 1).collect();
    often.sort_unstable_by_key(|at| values_of::<N>(bytes_of(*at)).collect::<Vec<u64>>());
    let counts: Vec<u8> =
        often.iter().map(|at| (rows[*at].count - 2).min(u8::MAX.into()) as u8).collect();
    let mut numbers = vec![ONCE; rows.len()];
    (OFTEN..).zip(by_count(&counts)).for_each(|(number, at)| numbers[often[at]] = number);
    let mut others: Vec<u8> = Vec::new();
    often.iter().for_each(|at| others.extend_from_slice(bytes_of(*at)));
    let (mut told, mut parts, mut at) = (Vec::with_capacity(pieces.len()), Vec::new(), 0);
    for piece in &pieces {
        let (number, len) = match piece {
            RowPiece::Row(which) => (numbers[*which], row),
            RowPiece::Part(len) => (PART, *len),
        };
        if number < OFTEN {
            others.extend_from_slice(values[at..at + len].as_flattened());
        }
        if number == PART {
            parts.push(len as u8);
        }
        told.push(number);
        at += len;
    }
    let width = width_of(often.len());
    let mut bytes = Vec::with_capacity(told.len() * width + parts.len());
    for byte in 0..width {
        bytes.extend(told.iter().map(|number| (number >> (8 * byte)) as u8));
    }
    bytes.extend(parts);
    bytes.extend(counts);
    let packed = general::zstd_encode(&bytes, level)?;
    let start = (HEAD + packed.len()).next_multiple_of(N);
    let mut out = Vec::with_capacity(start + others.len() + left.len());
    for number in [told.len(), bytes.len(), packed.len(), often.len()] {
        out.extend((number as u32).to_le_bytes());
    }
    out.extend(packed);
    out.resize(start, 0);
    out.extend(others);
    out.extend_from_slice(left);
    Ok(out)
}

/// The places of rows, the most frequent first.
fn by_count(counts: &[u8]) -> Vec<usize> {
    let mut places: Vec<usize> = (0..counts.len()).collect();
    places.sort_by_key(|at| Reverse(counts[*at]));
    places
}

fn values_of<const N: usize>(bytes: &[u8]) -> impl Iterator<Item = u64> {
    bytes.as_chunks::<N>().0.iter().map(|value| {
        let mut word = [0; 8];
        word[..N].copy_from_slice(value);
        u64::from_le_bytes(word)
    })
}

/// Width in bytes of the numbers if this many rows come more than once.
fn width_of(often: usize) -> usize {
    match OFTEN + often {
        0..=0x100 => 1,
        0x101..=0x1_0000 => 2,
        0x1_0001..=0x100_0000 => 3,
        _ => 4,
    }
}

fn decode_as<const N: usize>(encoded: &[u8], raw: &mut [u8], row: usize) -> Result<Option<()>> {
    let (values, rest) = raw.as_chunks_mut::<N>();
    let Some((head, behind)) = encoded.split_first_chunk::<HEAD>() else { return Ok(None) };
    let head: Vec<usize> =
        head.as_chunks::<4>().0.iter().map(|word| u32::from_le_bytes(*word) as usize).collect();
    let [count, len, packed, often] = head[..] else { return Ok(None) };
    let width = width_of(often);
    // Every piece has a value at least, and a part one byte more. A row that comes more than once does.
    let least = count * width + often;
    if count > values.len() || often > count / 2 || !(least..=least + count).contains(&len) {
        return Ok(None);
    }
    let Some(numbers) = behind.get(..packed) else { return Ok(None) };
    let mut bytes = vec![0; len];
    general::zstd_decode(numbers, &mut bytes)?;
    let Some(others) = encoded.get((HEAD + packed).next_multiple_of(N)..) else { return Ok(None) };
    Ok(put_back(&bytes, (count, width, often), others, values, row, rest))
}

fn put_back<const N: usize>(
    numbers: &[u8],
    (count, width, counts): (usize, usize, usize),
    others: &[u8],
    values: &mut [[u8; N]],
    row: usize,
    rest: &mut [u8],
) -> Option<()> {
    let (others, left) = others.as_chunks::<N>();
    let (often, mut others) = others.split_at_checked(counts.checked_mul(row)?)?;
    let (numbers, counts) = numbers.split_at(numbers.len() - counts);
    let (planes, mut parts) = numbers.split_at(count * width);
    let places = by_count(counts);
    let mut at = 0;
    for piece in 0..count {
        let byte = |plane: usize| usize::from(planes[plane * count + piece]) << (8 * plane);
        let number: usize = (0..width).map(byte).sum();
        let len = match number {
            PART => {
                let (len, behind) = parts.split_first()?;
                parts = behind;
                usize::from(*len)
            }
            _ => row,
        };
        let out = values.get_mut(at..at + len)?;
        match number.checked_sub(OFTEN) {
            Some(which) => out.copy_from_slice(&often[*places.get(which)? * row..][..row]),
            None => {
                let (these, behind) = others.split_at_checked(len)?;
                out.copy_from_slice(these);
                others = behind;
            }
        }
        at += len;
    }
    let whole = parts.is_empty() && others.is_empty() && at == values.len();
    (whole && left.len() == rest.len()).then(|| rest.copy_from_slice(left))
}

/// A row that was seen: where first, and how often.
struct SeenRow {
    at: usize,
    count: u32,
}

/// Finds rows that come again.
struct RowFinder<'v, const N: usize> {
    values: &'v [[u8; N]],
    row: usize,
    /// Factor of the hash of a value that leaves a row.
    leaves: u64,
    seen: Vec<SeenRow>,
    /// One more than the place of a row in `seen`, by its hash.
    table: Vec<u32>,
}

/// Factor of the hash of a row for each value.
const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;

#[inline(always)]
fn mixed<const N: usize>(value: &[u8; N]) -> u64 {
    let mut word = [0; 8];
    word[..N].copy_from_slice(value);
    // Not 0 for the value 0, and its high bits tell of all others.
    let word = u64::from_le_bytes(word).wrapping_add(1).wrapping_mul(0xd6e8_feb8_6659_fd93);
    word ^ word >> 32
}

impl<'v, const N: usize> RowFinder<'v, N> {
    fn new(values: &'v [[u8; N]], row: usize) -> Self {
        let leaves = (0..row).fold(1u64, |all, _| all.wrapping_mul(FACTOR));
        let places = (2 * (values.len() / row + 1)).next_power_of_two();
        RowFinder { values, row, leaves, seen: Vec::new(), table: vec![0; places] }
    }

    /// The rows and what lies between them.
    fn pieces(mut self) -> (Vec<RowPiece>, Vec<SeenRow>) {
        let (end, mut pieces) = (self.values.len(), Vec::new());
        let mut at = self.begin();
        if at > 0 {
            pieces.push(RowPiece::Part(at));
        }
        let mut hash = (at + self.row <= end).then(|| self.hash(at));
        while let Some(this) = hash {
            let next = (at + 2 * self.row <= end).then(|| self.hash(at + self.row));
            let known = self.find(at, this).ok();
            let follows =
                known.is_some() || next.is_some_and(|next| self.find(at + self.row, next).is_ok());
            match if follows { None } else { self.resumed(at, this) } {
                Some((further, its)) => {
                    pieces.push(RowPiece::Part(further));
                    (at, hash) = (at + further, Some(its));
                    continue;
                }
                None => pieces.push(RowPiece::Row(self.note(at, this))),
            }
            (at, hash) = (at + self.row, next);
        }
        if at < end {
            pieces.push(RowPiece::Part(end - at));
        }
        (pieces, self.seen)
    }

    /// Where rows begin: where most of the first ones come again, but for those whose values are all the same.
    fn begin(&self) -> usize {
        let (row, most) = (self.row, SAMPLE * self.row);
        let mut hashes = Vec::new();
        let mut same = 0;
        let mut hash = 0u64;
        for (at, value) in self.values.iter().enumerate() {
            same = if at > 0 && self.values[at - 1] == *value { same + 1 } else { 1 };
            hash = hash.wrapping_mul(FACTOR).wrapping_add(mixed(value));
            if at >= row {
                let left = mixed(&self.values[at - row]);
                hash = hash.wrapping_sub(left.wrapping_mul(self.leaves));
            }
            if at + 1 >= row && same < row {
                hashes.push((hash, (at + 1 - row) % row));
                if hashes.len() == most {
                    break;
                }
            }
        }
        hashes.sort_unstable();
        let mut again = vec![0u32; row];
        hashes.windows(2).filter(|pair| pair[0] == pair[1]).for_each(|pair| again[pair[0].1] += 1);
        (0..row).rev().max_by_key(|at| again[*at]).unwrap_or(0)
    }

    /// Number of values to the begin of the next known row, if there is one.
    fn resumed(&self, from: usize, hash: u64) -> Option<(usize, u64)> {
        let (row, mut hash) = (self.row, hash);
        for at in from + 1..from + row {
            let new = mixed(self.values.get(at + row - 1)?);
            let left = mixed(&self.values[at - 1]);
            hash = hash.wrapping_mul(FACTOR).wrapping_add(new);
            hash = hash.wrapping_sub(left.wrapping_mul(self.leaves));
            if self.find(at, hash).is_ok() && self.is_sure(at) {
                return Some((at - from, hash));
            }
        }
        None
    }

    /// Whether a known row is one: zeros are one wherever they are looked at, unless one more follows.
    fn is_sure(&self, at: usize) -> bool {
        let these = &self.values[at..at + self.row];
        let next = at + self.row;
        these.iter().any(|value| *value != these[0])
            || next + self.row <= self.values.len() && self.find(next, self.hash(next)).is_ok()
    }

    fn hash(&self, at: usize) -> u64 {
        let add = |hash: u64, value| hash.wrapping_mul(FACTOR).wrapping_add(mixed(value));
        self.values[at..at + self.row].iter().fold(0, add)
    }

    /// The place of a row among those seen, or the free one in the table.
    fn find(&self, at: usize, hash: u64) -> std::result::Result<usize, usize> {
        let shift = u64::BITS - self.table.len().trailing_zeros();
        let mut place = (hash.wrapping_mul(FACTOR) >> shift) as usize;
        loop {
            match (self.table[place] as usize).checked_sub(1) {
                None => return Err(place),
                Some(seen) => {
                    let row = |at: usize| &self.values[at..at + self.row];
                    if row(self.seen[seen].at) == row(at) {
                        return Ok(seen);
                    }
                }
            }
            place = (place + 1) % self.table.len();
        }
    }

    /// Notes that a row is there; its place among those seen.
    fn note(&mut self, at: usize, hash: u64) -> usize {
        match self.find(at, hash) {
            Ok(seen) => {
                self.seen[seen].count += 1;
                seen
            }
            Err(place) => {
                self.seen.push(SeenRow { at, count: 1 });
                self.table[place] = self.seen.len() as u32;
                self.seen.len() - 1
            }
        }
    }
}
