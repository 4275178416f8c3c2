//! The proof that a file comes back: it is rendered from its fields and held against the original.

use super::{Extent, Field};
use crate::error::{ErrorKind, Result};
use crate::format::{Piece, Skeleton};
use crate::store::Blob;
use std::collections::HashSet;

/// Fields, and the skeleton that goes with them.
pub(super) struct Built {
    pub(super) fields: Vec<Field>,
    pub(super) skeleton: Skeleton,
}

/// What did not come out.
pub(super) struct Proof {
    /// Where pieces begin that came out different.
    pub(super) unequal: HashSet<u64>,
    /// Fields that cannot be read.
    pub(super) unreadable: HashSet<u64>,
}

impl Built {
    /// Renders the file and holds it against the original.
    pub(super) fn prove(&self, whole: &Extent) -> Result<Proof> {
        let mut proof = Proof { unequal: HashSet::new(), unreadable: HashSet::new() };
        let pieces = &self.skeleton.pieces;
        let mut starts = vec![0u64; pieces.len() + 1];
        for (at, piece) in pieces.iter().enumerate() {
            starts[at + 1] = starts[at] + piece.bytes().unwrap_or(0);
        }
        let mut came = vec![0u64; pieces.len()];
        let mut original = Vec::new();
        let read = |field: usize, offset: u64, buffer: &mut [u8]| {
            self.fields[field].bytes.read_at(offset, buffer)
        };
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
        self.skeleton.render(&read, &|number| !same[number], &mut |number, bytes| {
            let (start, end) = (starts[number], starts[number + 1]);
            let bytes = match bytes {
                Ok(bytes) => bytes,
                Err(error) if error.kind() == ErrorKind::Io => return Err(error),
                Err(_) => {
                    proof.unequal.insert(start);
                    proof.unreadable.extend(fields_of(&pieces[number]));
                    return Ok(());
                }
            };
            let at = start + came[number];
            came[number] += bytes.len() as u64;
            if start + came[number] > end {
                proof.unequal.insert(start);
                return Ok(());
            }
            original.resize(bytes.len(), 0);
            whole.read_at(at, &mut original)?;
            if original != bytes {
                proof.unequal.insert(start);
            }
            Ok(())
        })?;
        for (number, came) in came.iter().enumerate() {
            if !same[number] && starts[number] + came != starts[number + 1] {
                proof.unequal.insert(starts[number]);
            }
        }
        Ok(proof)
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
