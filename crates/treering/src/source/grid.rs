//! An array in chunks of one shape: which bytes of the array are which bytes of which chunk.
//!
//! Chunks are numbered in row-major order and all have the same size; where they reach beyond the
//! array they are padded. Axes that a chunk spans as a whole are joined with the axis before them,
//! so that a row, the longest run of bytes that lie together in both, is as long as it can be.

use crate::error::Result;
use std::ops::Range;

/// The geometry of a chunked array, in bytes.
#[derive(Clone, Debug)]
pub(super) struct ChunkGrid {
    /// The extent of the array; the last axis counts bytes.
    shape: Vec<u64>,
    chunk: Vec<u64>,
    /// Number of chunks along each axis.
    counts: Vec<u64>,
    /// Bytes of the array from one index of an axis to the next.
    strides: Vec<u64>,
    /// The same within a chunk.
    chunk_strides: Vec<u64>,
}

impl ChunkGrid {
    /// For an array and chunks of whose sizes in bytes are known to be numbers.
    pub(super) fn new(shape: &[u64], chunk: &[u64], element: u64) -> ChunkGrid {
        let (mut joined, mut chunks) = (Vec::new(), Vec::new());
        for (&extent, &chunk) in shape.iter().zip(chunk).chain([(&element, &element)]) {
            match (joined.last_mut(), chunks.last_mut()) {
                (Some(last), Some(last_chunk)) if extent == chunk => {
                    *last *= extent;
                    *last_chunk *= chunk;
                }
                _ => {
                    joined.push(extent);
                    chunks.push(chunk);
                }
            }
        }
        let counts = joined.iter().zip(&chunks).map(|(s, c)| s.div_ceil(*c)).collect();
        let (strides, chunk_strides) = (strides(&joined), strides(&chunks));
        ChunkGrid { shape: joined, chunk: chunks, counts, strides, chunk_strides }
    }

    /// Number of chunks.
    pub(super) fn chunks(&self) -> u64 {
        self.counts.iter().fold(1, |n, c| n.saturating_mul(*c))
    }

    /// The size of a chunk.
    pub(super) fn chunk_bytes(&self) -> u64 {
        self.chunk.iter().product()
    }

    /// The band of a byte of the array: the bytes of all chunks that begin at the same index of the first axis.
    pub(super) fn band_at(&self, byte: u64) -> Range<u64> {
        self.band_of(byte / self.strides[0] / self.chunk[0])
    }

    /// The band of a chunk.
    pub(super) fn band(&self, index: u64) -> Range<u64> {
        self.band_of(index / self.chunks_of_band())
    }

    fn band_of(&self, number: u64) -> Range<u64> {
        let start = number.saturating_mul(self.chunk[0]).min(self.shape[0]);
        let end = start.saturating_add(self.chunk[0]).min(self.shape[0]);
        start * self.strides[0]..end * self.strides[0]
    }

    /// Number of chunks of a band.
    pub(super) fn chunks_of_band(&self) -> u64 {
        self.counts[1..].iter().fold(1u64, |n, c| n.saturating_mul(*c)).max(1)
    }

    /// Whether a chunk reaches beyond the array.
    pub(super) fn padded(&self, index: u64) -> bool {
        let at = self.coordinates(index);
        (0..at.len()).any(|axis| (at[axis] + 1).saturating_mul(self.chunk[axis]) > self.shape[axis])
    }

    /// The chunks that have bytes from `from` up to `to`.
    pub(super) fn within(
        &self,
        from: u64,
        to: u64,
        visit: &mut dyn FnMut(u64) -> Result<()>,
    ) -> Result<()> {
        if from < to { self.within_axis(0, from, to, 0, visit) } else { Ok(()) }
    }

    fn within_axis(
        &self,
        axis: usize,
        from: u64,
        to: u64,
        index: u64,
        visit: &mut dyn FnMut(u64) -> Result<()>,
    ) -> Result<()> {
        let stride = self.strides[axis];
        let (first, last) = (from / stride, (to - 1) / stride);
        for at in first / self.chunk[axis]..=last / self.chunk[axis] {
            let index = index * self.counts[axis] + at;
            if axis + 1 == self.shape.len() {
                visit(index)?;
            } else if first == last {
                let skipped = first * stride;
                self.within_axis(axis + 1, from - skipped, to - skipped, index, visit)?;
            } else {
                self.within_axis(axis + 1, 0, stride, index, visit)?;
            }
        }
        Ok(())
    }

    /// The rows of a chunk in the bytes from `from` up to `to` of the array: place in the array,
    /// place in the chunk, length.
    pub(super) fn rows(
        &self,
        index: u64,
        from: u64,
        to: u64,
        visit: &mut dyn FnMut(u64, usize, usize) -> Result<()>,
    ) -> Result<()> {
        self.rows_of(&self.coordinates(index), 0, (0, 0), (from, to), visit)
    }

    fn rows_of(
        &self,
        at: &[u64],
        axis: usize,
        (array, chunk): (u64, u64),
        (from, to): (u64, u64),
        visit: &mut dyn FnMut(u64, usize, usize) -> Result<()>,
    ) -> Result<()> {
        let start = at[axis] * self.chunk[axis];
        let end = start.saturating_add(self.chunk[axis]).min(self.shape[axis]);
        let stride = self.strides[axis];
        let first = start.max(from.saturating_sub(array) / stride);
        let last = end.min(to.saturating_sub(array).div_ceil(stride));
        if axis + 1 == self.shape.len() {
            return match first < last {
                true => {
                    visit(array + first, (chunk + first - start) as usize, (last - first) as usize)
                }
                false => Ok(()),
            };
        }
        for i in first..last {
            let place = (array + i * stride, chunk + (i - start) * self.chunk_strides[axis]);
            self.rows_of(at, axis + 1, place, (from, to), visit)?;
        }
        Ok(())
    }

    fn coordinates(&self, mut index: u64) -> Vec<u64> {
        let mut at = vec![0; self.counts.len()];
        for axis in (0..at.len()).rev() {
            at[axis] = index % self.counts[axis].max(1);
            index /= self.counts[axis].max(1);
        }
        at
    }
}

fn strides(shape: &[u64]) -> Vec<u64> {
    let mut strides = vec![1; shape.len()];
    for axis in (1..shape.len()).rev() {
        strides[axis - 1] = (strides[axis] * shape[axis]).max(1);
    }
    strides
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_byte_is_in_one_chunk(
            axes in proptest::collection::vec((1u64..7, 1u64..5), 1..4),
            element in 1u64..4,
            cut in any::<(u16, u16)>(),
        ) {
            let shape: Vec<u64> = axes.iter().map(|a| a.0).collect();
            let chunk: Vec<u64> = axes.iter().map(|a| a.1).collect();
            let bytes = shape.iter().product::<u64>() * element;
            let grid = ChunkGrid::new(&shape, &chunk, element);
            let (a, b) = (u64::from(cut.0) % (bytes + 1), u64::from(cut.1) % (bytes + 1));
            let (from, to) = (a.min(b), a.max(b));
            let mut seen = vec![0; bytes as usize];
            let mut chunks = std::collections::HashSet::new();
            grid.within(from, to, &mut |index| {
                assert!(index < grid.chunks() && chunks.insert(index));
                let mut inside = vec![false; grid.chunk_bytes() as usize];
                grid.rows(index, from, to, &mut |array, place, len| {
                    seen[array as usize..][..len].iter_mut().for_each(|s| *s += 1);
                    for byte in &mut inside[place..][..len] {
                        assert!(!std::mem::replace(byte, true));
                    }
                    Ok(())
                })
            }).unwrap();
            for (at, seen) in seen.iter().enumerate() {
                prop_assert_eq!(*seen, u64::from((from..to).contains(&(at as u64))));
            }
        }
    }
}
