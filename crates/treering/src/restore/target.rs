//! The memory that a restore fills, and the prints of its chunks, which are made while their bytes are in the cache.
//!
//! The root of a variable is checked over the prints of all its chunks. To hash the array after it was filled would
//! read it from memory once more, which takes as long as filling it. So each piece of a frame that is put in its place is
//! hashed there and then. A chunk whose bytes lie in two frames is *torn*: it is hashed when everything is there.

use super::plan::FramePiece;
use crate::memory::{settle, stream};
use crate::merkle::{Hasher, Print};
use std::sync::Mutex;

/// From this many bytes on, a piece is copied past the cache; parts of cache lines at the ends of smaller ones would take
/// longer than what is saved.
const STREAMED: usize = 512;

/// Memory that several threads fill at places that do not overlap.
pub(crate) struct SharedTarget<'h> {
    start: *mut u8,
    len: usize,
    prints: Option<SharedPrints<'h>>,
}

// SAFETY: the pieces of a plan write to disjoint ranges of a target, see `SharedTarget::slice_of`.
unsafe impl Sync for SharedTarget<'_> {}
unsafe impl Send for SharedTarget<'_> {}

/// The prints of a target's chunks, each of which is made by whoever fills the chunk.
struct SharedPrints<'h> {
    hasher: &'h Hasher,
    chunk: usize,
    prints: *mut Print,
    torn: Mutex<Vec<usize>>,
}

impl<'h> SharedTarget<'h> {
    /// Memory to be filled, without prints.
    pub(super) fn new(bytes: &mut [u8]) -> Self {
        SharedTarget { start: bytes.as_mut_ptr(), len: bytes.len(), prints: None }
    }

    /// A variable to be filled as a whole, and the prints of its chunks.
    pub(super) fn with_prints(
        bytes: &mut [u8],
        prints: &mut [Print],
        chunk: usize,
        hasher: &'h Hasher,
    ) -> Self {
        assert_eq!(prints.len(), bytes.len().div_ceil(chunk), "a chunk has no room for its print");
        let shared =
            SharedPrints { hasher, chunk, prints: prints.as_mut_ptr(), torn: Mutex::default() };
        SharedTarget { prints: Some(shared), ..SharedTarget::new(bytes) }
    }

    /// The bytes that one piece fills.
    ///
    /// # Safety
    /// No two pieces may overlap. A plan takes each chunk of a variable once and cuts it into
    /// pieces that do not overlap, and targets are distinct slices.
    #[allow(clippy::mut_from_ref)]
    pub(super) unsafe fn slice_of(&self, piece: &FramePiece) -> &mut [u8] {
        let (to, len) = (piece.to as usize, piece.len as usize);
        assert!(to + len <= self.len, "a piece lies outside of its target");
        // SAFETY: in bounds by the assertion, disjoint by the caller.
        unsafe { std::slice::from_raw_parts_mut(self.start.add(to), len) }
    }

    /// Copies what pieces want of a frame's bytes.
    ///
    /// # Safety
    /// As [`slice_of`](Self::slice_of).
    pub(super) unsafe fn put(&self, frame: &[u8], pieces: &[FramePiece]) {
        let mut before: Option<(u32, Print)> = None;
        for piece in pieces {
            let from = piece.from as usize;
            let bytes = &frame[from..from + piece.len as usize];
            // SAFETY: by the caller.
            let slice = unsafe { self.slice_of(piece) };
            match bytes.len() >= STREAMED {
                true => stream(slice, bytes),
                false => slice.copy_from_slice(bytes),
            }
            let Some(shared) = &self.prints else { continue };
            match before {
                // One chunk of a frame at many places, as zeros are.
                Some((same, print)) if same == piece.from && shared.is_chunk(piece) => {
                    // SAFETY: the piece is this chunk as a whole, and no other piece has a part of it.
                    unsafe { *shared.prints.add(piece.to as usize / shared.chunk) = print };
                }
                _ => {
                    // SAFETY: by the caller.
                    let print = unsafe { shared.print(bytes, piece.to as usize, self.len) };
                    before = print.filter(|_| shared.is_chunk(piece)).map(|p| (piece.from, p));
                }
            }
        }
        settle();
    }

    /// Takes note of a piece whose bytes are in their place.
    ///
    /// # Safety
    /// As [`slice_of`](Self::slice_of).
    pub(super) unsafe fn came(&self, piece: &FramePiece) {
        if let Some(shared) = &self.prints {
            // SAFETY: by the caller.
            unsafe { shared.print(self.slice_of(piece), piece.to as usize, self.len) };
        }
    }

    /// Makes the prints that are still missing, of a target that is filled.
    pub(super) fn finish(self) {
        let Some(shared) = self.prints else { return };
        let mut torn = shared.torn.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner());
        torn.sort_unstable();
        torn.dedup();
        for chunk in torn {
            let bytes = chunk * shared.chunk..self.len.min((chunk + 1) * shared.chunk);
            // SAFETY: `finish` has the target for itself, and a torn chunk is one of it.
            unsafe {
                let bytes = std::slice::from_raw_parts(self.start.add(bytes.start), bytes.len());
                *shared.prints.add(chunk) = shared.hasher.print(bytes);
            }
        }
    }
}

impl SharedPrints<'_> {
    /// Whether a piece is one whole chunk, and not the last, which may be short.
    fn is_chunk(&self, piece: &FramePiece) -> bool {
        piece.len as usize == self.chunk && (piece.to as usize).is_multiple_of(self.chunk)
    }

    /// Makes the prints of the chunks that lie in a piece as a whole, and returns the first one.
    ///
    /// # Safety
    /// No two pieces may overlap, and this one lies within the target.
    unsafe fn print(&self, bytes: &[u8], to: usize, all: usize) -> Option<Print> {
        let (chunk, end) = (self.chunk, to + bytes.len());
        let whole = to.next_multiple_of(chunk).min(end)..match end == all {
            true => end,
            false => (end / chunk * chunk).max(to),
        };
        let mut first = None;
        if whole.start < whole.end && whole.start.is_multiple_of(chunk) {
            let inside = &bytes[whole.start - to..whole.end - to];
            for (at, piece) in (whole.start / chunk..).zip(inside.chunks(chunk)) {
                let print = self.hasher.print(piece);
                first = first.or(Some(print));
                // SAFETY: the chunk lies in this piece alone.
                unsafe { *self.prints.add(at) = print };
            }
        }
        let head = !to.is_multiple_of(chunk);
        let tail = !end.is_multiple_of(chunk) && end != all;
        if head || tail {
            let mut torn = self.torn.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
            torn.extend(head.then_some(to / chunk));
            torn.extend(tail.then_some(end / chunk));
        }
        first
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Wherever a target is cut into pieces, in whatever order they come, copied or read straight to their
        /// place: its bytes are those of the frame, and its prints those of its bytes.
        #[test]
        fn prints_are_those_of_the_bytes_however_they_are_cut(
            len in 0usize..5000,
            zeros in proptest::option::of(0usize..5000),
            cuts in proptest::collection::vec((any::<prop::sample::Index>(), any::<bool>()), 0..20),
            aligned in any::<bool>(),
            chunk in prop::sample::select(vec![32usize, 64, 512]),
            turn in any::<prop::sample::Index>(),
        ) {
            let mut frame: Vec<u8> = (0..len).map(|at| (at * at / 7) as u8).collect();
            frame[zeros.map_or(len, |from| from.min(len))..].fill(0);
            let mut places: Vec<(usize, bool)> = cuts
                .iter()
                .map(|(at, copied)| (at.index(len + 1), *copied))
                .map(|(at, copied)| (if aligned { at / chunk * chunk } else { at }, copied))
                .collect();
            places.push((0, true));
            places.push((len, true));
            places.sort_unstable();
            let mut pieces: Vec<(FramePiece, bool)> = places
                .windows(2)
                .filter(|pair| pair[0].0 < pair[1].0)
                .map(|pair| {
                    let (from, piece_len) = (pair[0].0 as u32, (pair[1].0 - pair[0].0) as u32);
                    let piece = FramePiece { to: u64::from(from), from, len: piece_len, ..FramePiece::default() };
                    (piece, pair[0].1)
                })
                .collect();
            if !pieces.is_empty() {
                let turn = turn.index(pieces.len());
                pieces.rotate_left(turn);
            }
            let hasher = Hasher::new(3);
            let mut bytes = vec![0xaa; len];
            let mut prints = vec![0; len.div_ceil(chunk)];
            let target = SharedTarget::with_prints(&mut bytes, &mut prints, chunk, &hasher);
            for same in pieces.chunk_by(|a, b| a.1 == b.1) {
                let all: Vec<FramePiece> = same.iter().map(|(piece, _)| *piece).collect();
                // SAFETY: pieces do not overlap.
                unsafe {
                    if same[0].1 {
                        target.put(&frame, &all);
                        continue;
                    }
                    for piece in &all {
                        let from = piece.from as usize..(piece.from + piece.len) as usize;
                        target.slice_of(piece).copy_from_slice(&frame[from]);
                        target.came(piece);
                    }
                }
            }
            target.finish();
            prop_assert!(bytes == frame);
            prop_assert_eq!(prints, crate::merkle::prints(&frame, chunk, &hasher));
        }

        /// One chunk of a frame at many places has the same print everywhere.
        #[test]
        fn a_chunk_at_many_places_is_printed_at_each(count in 1usize..50, chosen in proptest::collection::vec(0u32..3, 50)) {
            let chunk = 512;
            let frame: Vec<u8> = (0..3 * chunk).map(|at| (at / chunk * (at + 1)) as u8).collect();
            let pieces: Vec<FramePiece> = (0..count)
                .map(|at| FramePiece {
                    to: (at * chunk) as u64,
                    from: chosen[at] * chunk as u32,
                    len: chunk as u32,
                    ..FramePiece::default()
                })
                .collect();
            let hasher = Hasher::new(4);
            let (mut bytes, mut prints) = (vec![0xaa; count * chunk], vec![0; count]);
            let target = SharedTarget::with_prints(&mut bytes, &mut prints, chunk, &hasher);
            // SAFETY: pieces do not overlap.
            unsafe { target.put(&frame, &pieces) };
            target.finish();
            let expected: Vec<u8> =
                chosen[..count].iter().flat_map(|c| &frame[*c as usize * chunk..][..chunk]).copied().collect();
            prop_assert!(bytes == expected);
            prop_assert_eq!(prints, crate::merkle::prints(&expected, chunk, &hasher));
        }
    }
}
