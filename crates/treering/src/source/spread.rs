//! Bytes that lie in many places of a file.

use super::Extent;
use crate::error::{Error, Result};
use crate::store::{Blob, read_each};

/// Bytes that are read to pick short runs from.
const AT_ONCE: u64 = 1 << 20;

/// Runs of one length at equal distances, one after another.
#[derive(Clone, Copy, Debug)]
pub(super) struct Runs {
    /// Where the first begins in the file.
    pub(super) at: u64,
    /// Length of each; not 0.
    pub(super) len: u64,
    /// From the beginning of one to that of the next; not less than the length.
    pub(super) stride: u64,
    /// Their number.
    pub(super) count: u64,
}

/// Parts of a file, joined.
pub(super) struct Spread {
    whole: Extent,
    /// Where each begins in the whole of them.
    starts: Vec<u64>,
    runs: Vec<Runs>,
    size: u64,
}

impl Spread {
    /// The file has all of these.
    pub(super) fn new(whole: &Extent, runs: Vec<Runs>) -> Self {
        let mut size = 0;
        let starts = runs.iter().map(|runs| {
            size += runs.len * runs.count;
            size - runs.len * runs.count
        });
        let starts = starts.collect();
        Spread { whole: whole.clone(), starts, runs, size }
    }

    /// Short runs are picked out of a block that is read at once.
    fn read_runs(&self, at: u64, runs: &Runs, buffer: &mut [u8]) -> Result<()> {
        let (len, stride) = (runs.len as usize, runs.stride as usize);
        let mut block = vec![0; (buffer.len() / len - 1) * stride + len];
        self.whole.read_at(at, &mut block)?;
        for (to, from) in buffer.chunks_exact_mut(len).zip(block.chunks(stride)) {
            to.copy_from_slice(&from[..len]);
        }
        Ok(())
    }
}

impl Blob for Spread {
    fn store(&self) -> &str {
        self.whole.store()
    }

    fn size(&self) -> u64 {
        self.size
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        let (mut offset, mut rest) = (offset, buffer);
        let mut which = self.starts.partition_point(|start| *start <= offset).saturating_sub(1);
        while !rest.is_empty() {
            let Some(runs) = self.runs.get(which) else {
                return Err(Error::usage("a read goes beyond the end").at(self.store()));
            };
            let inside = offset - self.starts[which];
            if inside >= runs.len * runs.count {
                which += 1;
                continue;
            }
            let (run, skipped) = (inside / runs.len, inside % runs.len);
            let whole =
                ((rest.len() as u64) / runs.len).min(runs.count - run).min(AT_ONCE / runs.stride);
            let len = match skipped == 0 && whole > 1 {
                true => whole * runs.len,
                false => (runs.len - skipped).min(rest.len() as u64),
            };
            let (now, later) = rest.split_at_mut(len as usize);
            let at = runs.at + run * runs.stride + skipped;
            match skipped == 0 && whole > 1 {
                true => self.read_runs(at, runs, now)?,
                false => self.whole.read_at(at, now)?,
            }
            offset += len;
            rest = later;
        }
        Ok(())
    }

    fn read_many(&self, ranges: &mut [(u64, &mut [u8])]) -> Result<()> {
        read_each(self, ranges)
    }

    fn file(&self) -> Option<(&std::fs::File, &std::path::Path, u64)> {
        None
    }

    fn in_order(&self) -> bool {
        false
    }
}
