//! Values that were there before, taken out: LZ77 in units of values, for the steps behind to see the
//! rest only.
//!
//! Arrays of programs hold the same values again and again: zeros, a constant background, a field that
//! equals another one where a coefficient is one. A coder of numbers sees none of it, a byte-wise LZ
//! sees it and codes the rest badly. Here values with an equal one before them become tokens (how many
//! others come first, how many repeat, how far back), which zstd codes, and the others stay behind one
//! another as numbers.
//!
//! Output: the length of the tokens (4 bytes), their encoded length (4 bytes), the encoded tokens,
//! zeros up to a whole value, the other values, and what is left over behind the last whole value.

use super::general;
use crate::error::{Error, Result};

/// Bytes in front of the tokens.
const HEAD: usize = 8;
/// The most places of the table of values seen.
const TABLE: usize = 1 << 19;
/// The levels of zstd for tokens: in a hurry, and with time.
const LEVELS: [i32; 2] = [3, 19];
/// Sizes with this bit are those of values for which there is time.
pub(super) const THOROUGH: u8 = 0x80;

/// How many values have to repeat: fewer cost more as a token than as values.
fn least(size: usize) -> usize {
    match size {
        8 => 1,
        4 => 2,
        _ => 4,
    }
}

pub(super) fn encode(raw: &[u8], size: u8) -> Result<Vec<u8>> {
    let level = LEVELS[usize::from(size & THOROUGH != 0)];
    let size = usize::from(size & !THOROUGH);
    let (tokens, others) = match size {
        2 => find::<2>(raw),
        4 => find::<4>(raw),
        _ => find::<8>(raw),
    };
    let encoded = general::zstd_encode(&tokens, level)?;
    let start = (HEAD + encoded.len()).next_multiple_of(size);
    let left = &raw[raw.len() / size * size..];
    let mut out = Vec::with_capacity(start + others.len() + left.len());
    out.extend((tokens.len() as u32).to_le_bytes());
    out.extend((encoded.len() as u32).to_le_bytes());
    out.extend(encoded);
    out.resize(start, 0);
    out.extend(others);
    out.extend(left);
    Ok(out)
}

/// The tokens, and the values that are none.
fn find<const N: usize>(raw: &[u8]) -> (Vec<u8>, Vec<u8>) {
    let values = raw.as_chunks::<N>().0;
    let places = values.len().next_power_of_two().clamp(1 << 8, TABLE);
    let shift = 64 - places.trailing_zeros();
    let mut table = vec![u32::MAX; places];
    let (mut counts, mut ways) = (Vec::new(), Vec::new());
    let mut others = Vec::new();
    let (mut at, mut from, mut last) = (0, 0, 1);
    while at < values.len() {
        let slot = &mut table[place(&values[at], shift)];
        let seen = *slot as usize;
        *slot = at as u32;
        let length = |back: usize| {
            let same = values[at..].iter().zip(&values[at - back..]);
            same.take_while(|(a, b)| a == b).count()
        };
        // The way of the token before costs least, and often goes on.
        let again = if last <= at { length(last) } else { 0 };
        let found = match seen < at && values[seen] == values[at] {
            true => length(at - seen),
            false => 0,
        };
        let (len, back) = match found > again + 1 {
            true => (found, at - seen),
            false => (again, last),
        };
        if len < least(N) {
            at += 1;
            continue;
        }
        others.extend_from_slice(values[from..at].as_flattened());
        number(&mut counts, at - from);
        number(&mut counts, len - least(N));
        number(&mut ways, if back == last { 0 } else { back });
        for (past, value) in values[at..at + len].iter().enumerate().skip(1) {
            table[place(value, shift)] = (at + past) as u32;
        }
        (at, last) = (at + len, back);
        from = at;
    }
    others.extend_from_slice(values[from..].as_flattened());
    counts.extend(ways);
    (counts, others)
}

/// Where a value stands in the table.
fn place<const N: usize>(value: &[u8; N], shift: u32) -> usize {
    let mut word = [0; 8];
    word[..N].copy_from_slice(value);
    let mixed = u64::from_le_bytes(word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed >> shift) as usize
}

/// Seven bits a byte, the lowest first; the highest bit says that more follow.
fn number(out: &mut Vec<u8>, mut value: usize) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

fn take_number(bytes: &[u8], at: &mut usize) -> Option<usize> {
    let mut value = 0;
    for shift in (0..=28).step_by(7) {
        let byte = *bytes.get(*at)?;
        *at += 1;
        value |= (byte as usize & 0x7f) << shift;
        if byte < 0x80 {
            return Some(value);
        }
    }
    None
}

pub(super) fn decode(encoded: &[u8], raw: &mut [u8], size: u8) -> Result<()> {
    let size = usize::from(size & !THOROUGH);
    let bad = || Error::damaged("a frame of repeats does not decode");
    let word = |at: usize| {
        let bytes = encoded.get(at..at + 4).and_then(|b| b.first_chunk::<4>());
        bytes.map(|b| u32::from_le_bytes(*b) as usize).ok_or_else(bad)
    };
    let (count, len) = (word(0)?, word(4)?);
    // No token takes more than ten bytes, and each has a value at least.
    if count > 10 * (raw.len() / size + 1) {
        return Err(bad());
    }
    let mut tokens = vec![0; count];
    let packed = encoded.get(HEAD..HEAD + len).ok_or_else(bad)?;
    general::zstd_decode(packed, &mut tokens)?;
    let others = encoded.get((HEAD + len).next_multiple_of(size)..).ok_or_else(bad)?;
    let filled = match size {
        2 => put_back::<2>(&tokens, others, raw),
        4 => put_back::<4>(&tokens, others, raw),
        _ => put_back::<8>(&tokens, others, raw),
    };
    filled.ok_or_else(bad)
}

fn put_back<const N: usize>(tokens: &[u8], others: &[u8], raw: &mut [u8]) -> Option<()> {
    let (others, left) = others.as_chunks::<N>();
    let (values, rest) = raw.as_chunks_mut::<N>();
    if left.len() != rest.len() {
        return None;
    }
    rest.copy_from_slice(left);
    let ways = start_of_ways(tokens)?;
    let (mut token, mut way) = (0, ways);
    let (mut at, mut taken, mut last) = (0, 0, 1);
    while token < ways {
        let count = take_number(tokens, &mut token)?;
        let len = take_number(tokens, &mut token)? + least(N);
        last = match take_number(tokens, &mut way)? {
            0 => last,
            back => back,
        };
        values.get_mut(at..at + count)?.copy_from_slice(others.get(taken..taken + count)?);
        (at, taken) = (at + count, taken + count);
        let from = at.checked_sub(last)?;
        if at + len > values.len() {
            return None;
        }
        for past in 0..len {
            values[at + past] = values[from + past];
        }
        at += len;
    }
    (way == tokens.len()).then_some(())?;
    let (end, rest) = (values.get_mut(at..)?, others.get(taken..)?);
    (end.len() == rest.len()).then(|| end.copy_from_slice(rest))
}

/// Every token has two counts and one way, so the ways begin behind two thirds of the numbers.
fn start_of_ways(tokens: &[u8]) -> Option<usize> {
    let numbers = tokens.iter().filter(|byte| **byte < 0x80).count();
    if !numbers.is_multiple_of(3) {
        return None;
    }
    let mut left = numbers / 3 * 2;
    let mut at = 0;
    while left > 0 {
        left -= usize::from(tokens[at] < 0x80);
        at += 1;
    }
    Some(at)
}
