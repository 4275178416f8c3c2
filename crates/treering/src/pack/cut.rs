//! Bytes that make a frame, and those that stood in their place before.

use crate::codec::Chain;
use crate::error::Result;
use crate::format::{PackExtent, RAW};
use crate::merkle::checksum;
use std::borrow::Cow;

/// Which bytes a frame holds: of the variable at this place of the plan, or of several.
pub(super) type FrameKind = Option<usize>;

/// Bytes that make a frame, and those before, if it may be a difference.
pub(super) struct Cut<'b> {
    pub(super) bytes: Cow<'b, [u8]>,
    pub(super) kind: FrameKind,
    pub(super) before: Option<Old>,
}

/// Bytes of the state before, and where they lie.
#[derive(Default)]
pub(super) struct Old {
    pub(super) bytes: Vec<u8>,
    pub(super) runs: Vec<PackExtent>,
    /// Number of bytes, and of runs, that have been taken.
    taken: (usize, usize),
}

impl Old {
    pub(super) fn new(bytes: Vec<u8>, runs: Vec<PackExtent>) -> Old {
        Old { bytes, runs, taken: (0, 0) }
    }

    /// The next bytes of it.
    pub(super) fn take(&mut self, len: usize) -> Old {
        let bytes = self.bytes[self.taken.0..self.taken.0 + len].to_vec();
        self.taken.0 += len;
        let (mut runs, mut left) = (Vec::new(), len as u64);
        while left > 0 {
            let run = &mut self.runs[self.taken.1];
            let part = run.len.min(left);
            runs.push(PackExtent { place: run.place, len: part });
            left -= part;
            run.place.offset += part;
            run.len -= part;
            self.taken.1 += usize::from(run.len == 0);
        }
        Old::new(bytes, runs)
    }

    pub(super) fn append(&mut self, other: &Old) {
        self.bytes.extend_from_slice(&other.bytes);
        for run in &other.runs {
            match self.runs.last_mut() {
                Some(last)
                    if last.place.pack == run.place.pack
                        && last.place.offset + last.len == run.place.offset =>
                {
                    last.len += run.len;
                }
                _ => self.runs.push(*run),
            }
        }
    }
}

impl Cut<'_> {
    pub(super) fn before(&self) -> Option<&[u8]> {
        self.before.as_ref().map(|old| &old.bytes[..])
    }
}

/// Encodes a frame, with the checksum of what is stored; one that does not get smaller stays raw.
pub(super) fn encode((chain, number): &(Chain, u8), cut: &Cut) -> Result<(Option<Vec<u8>>, u64)> {
    if *number != RAW {
        let encoded = chain.encode_beside(&cut.bytes, cut.before().unwrap_or_default())?;
        if encoded.len() < cut.bytes.len() {
            let sum = checksum(&encoded);
            return Ok((Some(encoded), sum));
        }
    }
    Ok((None, checksum(&cut.bytes)))
}
