//! The proof that a file comes back: it is rendered from its fields and compared with the original, which is read once, from
//! front to back, and whose digest is taken on the way.

use super::{Extent, Field};
use crate::error::{ErrorKind, Result};
use crate::format::{Piece, Skeleton};
use crate::merkle::{Digest, Digester};
use crate::store::Blob;
use std::collections::HashSet;

/// Number of bytes of the original that are read at a time where nothing is compared with them.
const BLOCK: u64 = 1 << 20;

/// Fields, and the skeleton that goes with them.
pub(super) struct Built {
    pub(super) fields: Vec<Field>,
    pub(super) skeleton: Skeleton,
}

/// The part that did not come back the same, and the digest of the original.
pub(super) struct Proof {
    pub(super) digest: Digest,
    /// Where pieces begin that came out different.
    pub(super) unequal: HashSet<u64>,
    /// Fields that cannot be read.
    pub(super) unreadable: HashSet<u64>,
}

impl Built {
    /// Renders the file and holds it against the original.
    pub(super) fn prove(&self, whole: &Extent) -> Result<Proof> {
        let (mut unequal, mut unreadable) = (HashSet::new(), HashSet::new());
        let pieces = &self.skeleton.pieces;
        let mut starts = vec![0u64; pieces.len() + 1];
        for (at, piece) in pieces.iter().enumerate() {
            starts[at + 1] = starts[at] + piece.bytes().unwrap_or(0);
        }
        let mut came = vec![0u64; pieces.len()];
        let mut original = Original::new(whole);
        // Values that are these very bytes of the file need no proof.
        let same: Vec<bool> = (0..pieces.len())
            .map(|number| {
                let Piece::Values(values) = &pieces[number] else { return false };
                let field = self.fields.get(values.field as usize).map(|field| &field.bytes);
                let place = field.and_then(|bytes| bytes.file()).map(|(_, _, start)| start);
                values.swap <= 1
                    && place.and_then(|start| start.checked_add(values.offset))
                        == Some(starts[number])
                    && field.is_some_and(|bytes| {
                        values.offset.checked_add(values.len).is_some_and(|end| end <= bytes.size())
                    })
            })
            .collect();
        self.skeleton.render(&self.fields, &|number| !same[number], &mut |number, bytes| {
            let (start, end) = (starts[number], starts[number + 1]);
            let bytes = match bytes {
                Ok(bytes) => bytes,
                Err(error) if error.kind() == ErrorKind::Io => return Err(error),
                Err(_) => {
                    unequal.insert(start);
                    unreadable.extend(fields_of(&pieces[number]));
                    return Ok(());
                }
            };
            let at = start + came[number];
            came[number] += bytes.len() as u64;
            if start + came[number] > end || !original.goes_on_with(at, bytes)? {
                unequal.insert(start);
            }
            Ok(())
        })?;
        for (number, came) in came.iter().enumerate() {
            if !same[number] && starts[number] + came != starts[number + 1] {
                unequal.insert(starts[number]);
            }
        }
        Ok(Proof { digest: original.digest()?, unequal, unreadable })
    }
}

/// The original, as far as it was read.
struct Original<'a> {
    whole: &'a Extent,
    at: u64,
    digester: Digester,
    buffer: Vec<u8>,
}

impl<'a> Original<'a> {
    fn new(whole: &'a Extent) -> Self {
        Original { whole, at: 0, digester: Digester::new(), buffer: Vec::new() }
    }

    /// Reads up to `end`.
    fn read_to(&mut self, end: u64) -> Result<()> {
        while self.at < end {
            self.next((end - self.at).min(BLOCK) as usize)?;
        }
        Ok(())
    }

    fn next(&mut self, len: usize) -> Result<&[u8]> {
        self.buffer.resize(len, 0);
        self.whole.read_at(self.at, &mut self.buffer)?;
        self.digester.update(&self.buffer);
        self.at += len as u64;
        Ok(&self.buffer)
    }

    /// Whether it has these bytes at a place behind everything that was asked for before.
    fn goes_on_with(&mut self, at: u64, bytes: &[u8]) -> Result<bool> {
        self.read_to(at)?;
        let inside = self.at == at && bytes.len() as u64 <= self.whole.size() - at;
        Ok(inside && self.next(bytes.len())? == bytes)
    }

    /// The digest of all of it.
    fn digest(mut self) -> Result<Digest> {
        self.read_to(self.whole.size())?;
        Ok(self.digester.finish())
    }
}

fn fields_of(piece: &Piece) -> Vec<u64> {
    match piece {
        Piece::Literal { .. } => Vec::new(),
        Piece::Values(values) | Piece::Stream { values, .. } => vec![values.field],
        Piece::Chunk(chunk) => vec![chunk.field],
        Piece::Repeat { cycle, .. } => cycle.iter().flat_map(fields_of).collect(),
    }
}
