//! The part of a checkpoint that the program waits for: hash, compare, copy what changed.

use crate::memory::{settle, stream};
use crate::merkle::{BOUGH, Digest, Hasher, Print, bough, prefetch};

/// Distance in bytes by which data is requested ahead of the hash; hardware prefetchers alone leave a
/// third of the memory's speed unused with small chunks.
const AHEAD: usize = 2048;

/// Changes that [`scan`] has found in one strip.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Changed {
    /// Runs of changed chunks: first and count, relative to the strip.
    pub runs: Vec<(u32, u32)>,
    /// The boughs over changed chunks: their index relative to the strip, and their new digest.
    pub boughs: Vec<(u32, Digest)>,
    /// Number of bytes that were copied.
    pub bytes: usize,
}

/// Compares the chunks of `data` with `prints`, brings these up to date, and copies the chunks that
/// changed, one after another, to the front of `slot`.
///
/// The first `known` prints are valid; chunks beyond them count as changed. A strip starts at a
/// bough, and `slot` is as long as `data`.
pub fn scan(
    data: &[u8],
    chunk: usize,
    known: usize,
    prints: &mut [Print],
    hasher: &Hasher,
    slot: &mut [u8],
) -> Changed {
    scan_into(data, chunk, known, prints, hasher, slot, Vec::new())
}

/// Scans as [`scan`] does, with memory for the boughs, which is empty.
pub fn scan_into(
    data: &[u8],
    chunk: usize,
    known: usize,
    prints: &mut [Print],
    hasher: &Hasher,
    slot: &mut [u8],
    boughs: Vec<(u32, Digest)>,
) -> Changed {
    let strip = StripScan { data, chunk, known, prints, hasher, slot, boughs };
    // The loop over small chunks is as fast as memory only if the compiler knows their size.
    match chunk {
        32 => strip.scan::<32>(),
        64 => strip.scan::<64>(),
        128 => strip.scan::<128>(),
        256 => strip.scan::<256>(),
        512 => strip.scan::<512>(),
        _ => strip.scan::<0>(),
    }
}

struct StripScan<'a> {
    data: &'a [u8],
    chunk: usize,
    known: usize,
    prints: &'a mut [Print],
    hasher: &'a Hasher,
    slot: &'a mut [u8],
    boughs: Vec<(u32, Digest)>,
}

impl StripScan<'_> {
    /// `N` is the chunk size, or 0 where it need not be known in advance.
    fn scan<const N: usize>(self) -> Changed {
        let chunk = if N == 0 { self.chunk } else { N };
        let mut found = Changed { boughs: self.boughs, ..Changed::default() };
        if self.known == 0 {
            found.boughs.reserve_exact(self.prints.len().div_ceil(BOUGH));
        }
        let groups = self.data.chunks(chunk * BOUGH).zip(self.prints.chunks_mut(BOUGH));
        for (group, (data, prints)) in groups.enumerate() {
            let first = group * BOUGH;
            let mask = match self.known >= first + BOUGH && data.len() == chunk * BOUGH {
                true => compare::<N>(data, chunk, prints, self.hasher),
                false => {
                    compare_edge(data, chunk, self.known.saturating_sub(first), prints, self.hasher)
                }
            };
            if mask != 0 {
                found.boughs.push((group as u32, bough(prints)));
                gather(data, chunk, first, mask, self.slot, &mut found);
            }
        }
        settle();
        found
    }
}

/// Brings the prints of [`BOUGH`] whole chunks up to date; a bit is set for each that differs.
#[inline(always)]
fn compare<const N: usize>(
    data: &[u8],
    chunk: usize,
    prints: &mut [Print],
    hasher: &Hasher,
) -> u32 {
    let chunk = if N == 0 { chunk } else { N };
    let mut mask = 0;
    for (at, (piece, old)) in data.chunks_exact(chunk).zip(prints).enumerate() {
        for line in (0..chunk.min(AHEAD)).step_by(64) {
            prefetch(piece.as_ptr().wrapping_add(AHEAD + line));
        }
        let print = hasher.print(piece);
        if print != *old {
            *old = print;
            mask |= 1 << at;
        }
    }
    mask
}

/// The same where chunks are short or their prints not known yet.
fn compare_edge(
    data: &[u8],
    chunk: usize,
    known: usize,
    prints: &mut [Print],
    hasher: &Hasher,
) -> u32 {
    let mut mask = 0;
    for (at, (piece, old)) in data.chunks(chunk).zip(prints).enumerate() {
        let print = hasher.print(piece);
        if print != *old || at >= known {
            *old = print;
            mask |= 1 << at;
        }
    }
    mask
}

/// Copies the chunks of a group whose bit is set behind what was found before.
fn gather(
    data: &[u8],
    chunk: usize,
    first: usize,
    mask: u32,
    slot: &mut [u8],
    found: &mut Changed,
) {
    let chunks = data.len().div_ceil(chunk);
    if mask.count_ones() as usize == chunks {
        stream(&mut slot[found.bytes..found.bytes + data.len()], data);
        found.bytes += data.len();
        push_run(&mut found.runs, first as u32, chunks as u32);
        return;
    }
    for at in (0..chunks).filter(|at| mask & 1 << at != 0) {
        let piece = &data[at * chunk..data.len().min((at + 1) * chunk)];
        slot[found.bytes..found.bytes + piece.len()].copy_from_slice(piece);
        found.bytes += piece.len();
        push_run(&mut found.runs, (first + at) as u32, 1);
    }
    // Where few chunks change, the next one's slot has long left the cache: ask for it now.
    for line in (0..2 * chunk.min(AHEAD)).step_by(64) {
        prefetch(slot.as_ptr().wrapping_add(found.bytes + line));
    }
}

fn push_run(runs: &mut Vec<(u32, u32)>, start: u32, count: u32) {
    match runs.last_mut() {
        Some((first, n)) if *first + *n == start => *n += count,
        _ => runs.push((start, count)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::merkle::{boughs, prints};
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_scan_finds_exactly_what_changed(
            data in proptest::collection::vec(0u8..3, 0..4000),
            flips in proptest::collection::vec(any::<prop::sample::Index>(), 0..30),
            known_part in 0usize..=8,
        ) {
            let chunk = 32;
            let hasher = Hasher::new(9);
            let mut table = prints(&data, chunk, &hasher);
            let known = table.len() * known_part / 8;
            let mut next = data.clone();
            if !next.is_empty() {
                for flip in &flips {
                    let at = flip.index(next.len());
                    next[at] ^= 0x10;
                }
            }
            let mut slot = vec![0; next.len()];
            let found = scan(&next, chunk, known, &mut table, &hasher, &mut slot);
            prop_assert_eq!(&table, &prints(&next, chunk, &hasher));
            let all = boughs(&table);
            for (at, digest) in &found.boughs {
                prop_assert_eq!(&all[*at as usize], digest);
            }
            let mut copied = Vec::new();
            let mut listed = vec![false; table.len()];
            for &(start, count) in &found.runs {
                for at in start as usize..(start + count) as usize {
                    listed[at] = true;
                    copied.extend_from_slice(&next[at * chunk..next.len().min((at + 1) * chunk)]);
                }
            }
            prop_assert_eq!(&slot[..found.bytes], &copied[..]);
            for (at, listed) in listed.iter().enumerate() {
                let range = at * chunk..next.len().min((at + 1) * chunk);
                prop_assert_eq!(*listed, at >= known || data[range.clone()] != next[range]);
            }
        }
    }
}
