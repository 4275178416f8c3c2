//! A fast predictor of floating-point numbers after FPC (Burtscher and Ratanaworabhan 2009).
//!
//! Two tables that are indexed by a hash of what came before predict the next value, one directly and
//! one by its difference to the last; the better guess is XORed with the value, and only the bytes
//! behind the leading zero bytes of the result are kept, with four bits that say which guess and how
//! many bytes.

use crate::error::{Error, Result};

/// As many entries fit into the first-level cache for both tables.
const ENTRIES: usize = 1 << 11;

struct Tables {
    direct: Vec<u64>,
    by_difference: Vec<u64>,
    hash: usize,
    difference_hash: usize,
    last: u64,
    /// By how much a value is shifted for the hashes: its upper bits.
    shifts: [u32; 2],
}

impl Tables {
    fn new(size: usize) -> Self {
        let bits = 8 * size as u32;
        Tables {
            direct: vec![0; ENTRIES],
            by_difference: vec![0; ENTRIES],
            hash: 0,
            difference_hash: 0,
            last: 0,
            shifts: [bits - bits / 4, bits - bits * 3 / 8],
        }
    }

    #[inline(always)]
    fn guesses(&self, mask: u64) -> [u64; 2] {
        let by_difference = self.by_difference[self.difference_hash].wrapping_add(self.last);
        [self.direct[self.hash], by_difference & mask]
    }

    #[inline(always)]
    fn learn(&mut self, value: u64, mask: u64) {
        self.direct[self.hash] = value;
        self.hash = ((self.hash << 6) ^ (value >> self.shifts[0]) as usize) % ENTRIES;
        let difference = value.wrapping_sub(self.last) & mask;
        self.by_difference[self.difference_hash] = difference;
        self.difference_hash =
            ((self.difference_hash << 2) ^ (difference >> self.shifts[1]) as usize) % ENTRIES;
        self.last = value;
    }
}

#[inline(always)]
fn load(raw: &[u8]) -> u64 {
    let mut word = [0; 8];
    word[..raw.len()].copy_from_slice(raw);
    u64::from_le_bytes(word)
}

fn mask(size: usize) -> u64 {
    u64::MAX >> (64 - 8 * size)
}

/// The length comes first; then the codes, of which two share a byte; then the bytes of the values;
/// then what is left over.
pub(super) fn encode(raw: &[u8], size: usize) -> Vec<u8> {
    let (count, mask) = (raw.len() / size, mask(size));
    let mut tables = Tables::new(size);
    let codes = count.div_ceil(2);
    let mut out = Vec::with_capacity(4 + codes + raw.len());
    out.extend((raw.len() as u32).to_le_bytes());
    out.resize(4 + codes, 0);
    for (at, value) in raw.chunks_exact(size).map(load).enumerate() {
        let [a, b] = tables.guesses(mask).map(|guess| guess ^ value);
        let (rest, which) = if a <= b { (a, 0) } else { (b, 8) };
        let bytes = 8 - rest.leading_zeros() as usize / 8;
        // Eight bytes are written as seven are not: there are nine lengths and eight codes.
        let bytes = if bytes == 7 { 8 } else { bytes };
        let code = which | bytes.min(7) as u8;
        out[4 + at / 2] |= code << (4 * (at % 2));
        out.extend_from_slice(&rest.to_le_bytes()[..bytes]);
        tables.learn(value, mask);
    }
    out.extend_from_slice(&raw[count * size..]);
    out
}

pub(super) fn decode(encoded: &[u8], out: &mut [u8], size: usize) -> Result<()> {
    let bad = || Error::damaged("a predicted frame does not decode");
    let (count, mask) = (out.len() / size, mask(size));
    let mut tables = Tables::new(size);
    let (len, encoded) = encoded.split_first_chunk::<4>().ok_or_else(bad)?;
    if u32::from_le_bytes(*len) as usize != out.len() {
        return Err(bad());
    }
    let (codes, mut rest) = encoded.split_at_checked(count.div_ceil(2)).ok_or_else(bad)?;
    let (values, tail) = out.split_at_mut(count * size);
    for (at, value) in values.chunks_exact_mut(size).enumerate() {
        let code = codes[at / 2] >> (4 * (at % 2)) & 15;
        let bytes = if code & 7 == 7 { 8 } else { (code & 7) as usize };
        let (head, behind) = rest.split_at_checked(bytes).ok_or_else(bad)?;
        rest = behind;
        let guess = tables.guesses(mask)[usize::from(code >> 3)];
        let word = (guess ^ load(head)) & mask;
        value.copy_from_slice(&word.to_le_bytes()[..size]);
        tables.learn(word, mask);
    }
    match rest.len() == tail.len() {
        true => tail.copy_from_slice(rest),
        false => return Err(bad()),
    }
    Ok(())
}
