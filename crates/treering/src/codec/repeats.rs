//! Values that were there before, taken out: LZ77 in units of values, for the steps behind to see the
//! rest only.
//!
//! Arrays of programs hold the same values again and again: zeros, a constant background, a field that
//! equals another one where a coefficient is one. A coder of numbers sees none of it, a byte-wise LZ
//! sees it and codes the rest badly. Here values with an equal one before them become tokens (how many
//! others come first, how many repeat, how far back), which zstd codes, and the others stay behind one
//! another as numbers.
//!
//! The others may be predicted from all values before them, those that were taken out included: behind
//! this step they have lost their neighbours.
//!
//! Output: the length of the tokens (4 bytes), their encoded length (4 bytes), the encoded tokens,
//! zeros up to a whole value, the other values or what a prediction leaves of them, and what is left
//! over behind the last whole value.

use super::general;
use super::lorenzo::{
    Arithmetic, AsFloats, AsIntegers, AsOrdered, Corners, LorenzoGrid, Reckoning, borders,
};
use super::word::Word;
use crate::error::{Error, Result};
use crate::memory::zeroed;

/// Bytes in front of the tokens.
const HEAD: usize = 8;
/// The most places of the table of values seen.
const TABLE: usize = 1 << 20;
/// The levels of zstd for tokens: in a hurry, and with time.
const LEVELS: [i32; 2] = [3, 12];
/// Sizes with this bit are those of values for which there is time.
pub(super) const THOROUGH: u8 = 0x80;

/// Minimum number of repeated values: fewer cost more as a token than as values.
fn least(size: usize) -> usize {
    match size {
        8 => 1,
        4 => 2,
        _ => 4,
    }
}

/// Handling of values that are not repeated.
trait Others<const N: usize> {
    /// Writes those from one place to another.
    fn take(&self, values: &[[u8; N]], from: usize, to: usize, out: &mut Vec<u8>);
    /// Puts some back; all values before them are there.
    fn put_back(&self, others: &[[u8; N]], values: &mut [[u8; N]], from: usize);
}

/// They stay as they are.
struct AsTheyAre;

impl<const N: usize> Others<N> for AsTheyAre {
    fn take(&self, values: &[[u8; N]], from: usize, to: usize, out: &mut Vec<u8>) {
        out.extend_from_slice(values[from..to].as_flattened());
    }

    fn put_back(&self, others: &[[u8; N]], values: &mut [[u8; N]], from: usize) {
        values[from..from + others.len()].copy_from_slice(others);
    }
}

/// They are predicted.
struct Predicted<W, A> {
    borders: [(usize, Corners); 4],
    kind: std::marker::PhantomData<(W, A)>,
}

impl<W, A> Predicted<W, A> {
    fn new(grid: LorenzoGrid, count: usize) -> Self {
        Predicted { borders: borders(grid, count), kind: std::marker::PhantomData }
    }

    /// The parts of a range in which the same neighbours are there.
    fn parts(&self, from: usize, to: usize) -> impl Iterator<Item = (usize, usize, Corners)> {
        let mut start = from;
        self.borders.into_iter().filter_map(move |(border, corners)| {
            let part = (start, to.min(border).max(start), corners);
            start = part.1;
            (part.0 < part.1).then_some(part)
        })
    }
}

impl<const N: usize, W: Word, A: Arithmetic> Others<N> for Predicted<W, A> {
    fn take(&self, values: &[[u8; N]], from: usize, to: usize, out: &mut Vec<u8>) {
        let held = |at: usize| A::held(W::read(&values[at]));
        for (from, to, corners) in self.parts(from, to) {
            for at in from..to {
                let mut left = [0; N];
                A::left(held(at), A::foretold(held, at, corners)).put(&mut left);
                out.extend(left);
            }
        }
    }

    fn put_back(&self, others: &[[u8; N]], values: &mut [[u8; N]], first: usize) {
        for (from, to, corners) in self.parts(first, first + others.len()) {
            for at in from..to {
                let held = |at: usize| A::held(W::read(&values[at]));
                let left = W::read(&others[at - first]);
                let value = A::value(left, A::foretold(held, at, corners));
                A::written(value).put(&mut values[at]);
            }
        }
    }
}

/// Runs something with the way in which a grid predicts, for values of N bytes.
macro_rules! with_prediction {
    ($grid:expr, $word:ty, $count:expr, |$others:ident| $work:expr) => {
        match $grid.map(|grid: LorenzoGrid| (grid, grid.reckoning)) {
            None => {
                let $others = &AsTheyAre;
                $work
            }
            Some((grid, Reckoning::Integers)) => {
                let $others = &Predicted::<$word, AsIntegers>::new(grid, $count);
                $work
            }
            Some((grid, Reckoning::Ordered)) => {
                let $others = &Predicted::<$word, AsOrdered>::new(grid, $count);
                $work
            }
            Some((grid, Reckoning::Floats)) => {
                let $others = &Predicted::<$word, AsFloats>::new(grid, $count);
                $work
            }
        }
    };
}

/// A grid, if there is one, has values of the same size.
pub(super) fn encode(raw: &[u8], size: u8, grid: Option<LorenzoGrid>) -> Result<Vec<u8>> {
    let level = LEVELS[usize::from(size & THOROUGH != 0)];
    let size = usize::from(size & !THOROUGH);
    let count = raw.len() / size;
    let (tokens, others) = match size {
        2 => with_prediction!(grid, u16, count, |others| find::<2>(raw, others)),
        4 => with_prediction!(grid, u32, count, |others| find::<4>(raw, others)),
        _ => with_prediction!(grid, u64, count, |others| find::<8>(raw, others)),
    }?;
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

/// Cost of a token in bits: the values that it stands for should have as many.
const TOKEN: u32 = 32;

/// Minimum number of repeated values for a token: numbers with few digits are cheap as they are.
fn worthwhile<const N: usize>(values: &[[u8; N]]) -> usize {
    let digits = |pair: &[[u8; N]]| {
        let word = |value: &[u8; N]| {
            let mut word = if value[N - 1] >= 0x80 { [0xff; 8] } else { [0; 8] };
            word[..N].copy_from_slice(value);
            i64::from_le_bytes(word)
        };
        let value = word(&pair[1]);
        let bits = 65 - value.leading_zeros().max(value.leading_ones());
        (value != 0 && pair[0] != pair[1]).then_some(bits)
    };
    let found = values.windows(2).step_by(61).filter_map(digits);
    let (bits, count) = found.fold((0, 0), |(bits, count), one| (bits + one, count + 1));
    match bits {
        0 => least(N),
        _ => (TOKEN * count).div_ceil(bits).max(least(N) as u32) as usize,
    }
}

/// The tokens, and the values that are none.
fn find<const N: usize>(raw: &[u8], kind: &impl Others<N>) -> Result<(Vec<u8>, Vec<u8>)> {
    let values = raw.as_chunks::<N>().0;
    let shortest = worthwhile(values);
    let places = values.len().next_power_of_two().clamp(1 << 8, TABLE);
    let shift = 64 - places.trailing_zeros();
    // One more than the place where a value was seen last.
    let mut table: Vec<u32> = zeroed(places as u64)?;
    let (mut counts, mut ways) = (Vec::new(), Vec::new());
    let mut others = Vec::new();
    let (mut at, mut from, mut last) = (0, 0, 1);
    while at < values.len() {
        let slot = &mut table[place(&values[at], shift)];
        let seen = (*slot as usize).checked_sub(1);
        *slot = at as u32 + 1;
        let length = |back: usize| {
            let same = values[at..].iter().zip(&values[at - back..]);
            same.take_while(|(a, b)| a == b).count()
        };
        // The way of the token before costs least, and often goes on.
        let again = if last <= at { length(last) } else { 0 };
        let found = match seen.filter(|seen| values[*seen] == values[at]) {
            Some(seen) => (length(at - seen), at - seen),
            None => (0, 0),
        };
        let (len, back) = match found.0 > again + usize::from(again > 0) {
            true => found,
            false => (again, last),
        };
        if len < shortest {
            at += 1;
            continue;
        }
        kind.take(values, from, at, &mut others);
        number(&mut counts, at - from);
        number(&mut counts, len - least(N));
        number(&mut ways, if back == last { 0 } else { back });
        for (past, value) in values[at..at + len].iter().enumerate().skip(1) {
            table[place(value, shift)] = (at + past) as u32 + 1;
        }
        (at, last) = (at + len, back);
        from = at;
    }
    kind.take(values, from, values.len(), &mut others);
    counts.extend(ways);
    Ok((counts, others))
}

/// Number of distinct values of a part that were in another part before it: what looking for repeats
/// in all parts together may gain over looking in each. One value of 64 is looked at, chosen by what it
/// is.
pub(crate) fn between<'p>(parts: impl Iterator<Item = &'p [u8]>, size: usize) -> f64 {
    match size {
        4 => between_values::<4>(parts),
        _ => between_values::<8>(parts),
    }
}

fn between_values<'p, const N: usize>(parts: impl Iterator<Item = &'p [u8]>) -> f64 {
    let mut there = Vec::new();
    for (number, part) in parts.enumerate() {
        let mut last = None;
        for value in part.as_chunks::<N>().0 {
            let mixed = mixed(value);
            if mixed >> 58 == 0 && last.replace(mixed) != Some(mixed) {
                there.push((mixed, number as u32));
            }
        }
    }
    there.sort_unstable();
    there.dedup();
    let different = there.chunk_by(|one, other| one.0 == other.0).count();
    (there.len() - different) as f64 / there.len().max(1) as f64
}

/// Position of a value in the table.
fn place<const N: usize>(value: &[u8; N], shift: u32) -> usize {
    (mixed(value) >> shift) as usize
}

#[inline(always)]
fn mixed<const N: usize>(value: &[u8; N]) -> u64 {
    let mut word = [0; 8];
    word[..N].copy_from_slice(value);
    u64::from_le_bytes(word).wrapping_mul(0x9e37_79b9_7f4a_7c15)
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

pub(super) fn decode(
    encoded: &[u8],
    raw: &mut [u8],
    size: u8,
    grid: Option<LorenzoGrid>,
) -> Result<()> {
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
    let (tokens, count) = (&tokens[..], raw.len() / size);
    let filled = match size {
        2 => with_prediction!(grid, u16, count, |kind| put_back::<2>(tokens, others, raw, kind)),
        4 => with_prediction!(grid, u32, count, |kind| put_back::<4>(tokens, others, raw, kind)),
        _ => with_prediction!(grid, u64, count, |kind| put_back::<8>(tokens, others, raw, kind)),
    };
    filled.ok_or_else(bad)
}

fn put_back<const N: usize>(
    tokens: &[u8],
    others: &[u8],
    raw: &mut [u8],
    kind: &impl Others<N>,
) -> Option<()> {
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
        if at + count > values.len() {
            return None;
        }
        kind.put_back(others.get(taken..taken + count)?, values, at);
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
    let rest = others.get(taken..)?;
    (at + rest.len() == values.len()).then(|| kind.put_back(rest, values, at))
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
