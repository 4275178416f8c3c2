//! A file that is in a store, read as if it lay on a disk: from its skeleton and its fields.
//!
//! Literals and values are read where they are; a chunk or a stream is made again when somebody asks for
//! its bytes. A search for the structure of a file reads literals only.

use super::FieldValues;
use super::filter;
use crate::error::{Error, Result};
use crate::format::{Piece, Skeleton, Values};
use crate::store::{Blob, read_each};
use std::ops::Range;
use std::sync::Arc;

/// The bytes of a file, made when they are read.
pub(crate) struct Rendered {
    skeleton: Skeleton,
    fields: Vec<Arc<dyn Blob>>,
    /// Where each piece begins in the file, and its literals among the literals.
    starts: Vec<(u64, u64)>,
    name: String,
}

impl Rendered {
    /// The file of a skeleton and the bytes of its fields.
    pub(crate) fn new(skeleton: Skeleton, fields: Vec<Arc<dyn Blob>>, name: &str) -> Self {
        let mut at = (0u64, 0u64);
        let mut starts = Vec::with_capacity(skeleton.pieces.len());
        for piece in &skeleton.pieces {
            starts.push(at);
            // A parsed skeleton makes up its size and uses up its literals: there is no overflow.
            at.0 = at.0.saturating_add(piece.bytes().unwrap_or(0));
            at.1 = at.1.saturating_add(piece.literals().unwrap_or(0));
        }
        Rendered { skeleton, fields, starts, name: name.into() }
    }

    /// A field that has all of these ranges.
    fn field(&self, field: usize, ranges: &[(u64, &mut [u8])]) -> Result<&dyn Blob> {
        let blob = self.fields.get(field);
        let blob =
            blob.ok_or_else(|| Error::damaged("a skeleton names a field that is not there"))?;
        let inside = |(offset, out): &(u64, &mut [u8])| {
            offset.checked_add(out.len() as u64).is_some_and(|end| end <= blob.size())
        };
        match ranges.iter().all(inside) {
            true => Ok(blob.as_ref()),
            false => Err(Error::damaged("a skeleton leads past the end of a field")),
        }
    }

    /// Bytes of a piece, from one of its bytes on.
    fn piece(&self, number: usize, from: u64, out: &mut [u8]) -> Result<()> {
        let piece = &self.skeleton.pieces[number];
        let first = self.starts[number].1 as usize;
        match piece {
            Piece::Literal { .. } => {
                let at = first + from as usize;
                let bytes = self.skeleton.literals.get(at..at + out.len());
                out.copy_from_slice(bytes.ok_or_else(short)?);
                Ok(())
            }
            Piece::Values(values) => self.values(values, from, out),
            _ => {
                let count = piece.literals().unwrap_or(0) as usize;
                let literals = self.skeleton.literals.get(first..first + count);
                self.made(piece, literals.ok_or_else(short)?, from, out)
            }
        }
    }

    /// Values of which the bytes of each number may be swapped.
    fn values(&self, values: &Values, from: u64, out: &mut [u8]) -> Result<()> {
        let size = u64::from(values.swap.max(1));
        let end = from + out.len() as u64;
        let whole = from - from % size..end.next_multiple_of(size);
        let mut bytes = crate::memory::zeroed(whole.end - whole.start)?;
        self.read(values.field as usize, values.offset + whole.start, &mut bytes)?;
        filter::swap(&mut bytes, values.swap);
        out.copy_from_slice(&bytes[(from - whole.start) as usize..][..out.len()]);
        Ok(())
    }

    /// Makes a piece from its beginning on, as far as it is wanted.
    fn made(&self, piece: &Piece, literals: &[u8], from: u64, out: &mut [u8]) -> Result<()> {
        let alone = Skeleton {
            size: piece.bytes().unwrap_or(0),
            digest: Default::default(),
            recipes: self.skeleton.recipes.clone(),
            pieces: vec![piece.clone()],
            literals: literals.to_vec(),
        };
        let wanted = from..from + out.len() as u64;
        let mut came = 0u64;
        let rendered = alone.render(self, &|_| true, &mut |_, bytes| {
            let bytes = bytes?;
            copy_common(came, bytes, &wanted, out);
            came += bytes.len() as u64;
            if came >= wanted.end { Err(enough()) } else { Ok(()) }
        });
        match rendered {
            _ if came >= wanted.end => Ok(()),
            Err(error) => Err(error),
            Ok(()) => Err(short()),
        }
    }
}

impl FieldValues for Rendered {
    fn read(&self, field: usize, offset: u64, out: &mut [u8]) -> Result<()> {
        self.read_rows(field, &mut [(offset, out)])
    }

    fn read_rows(&self, field: usize, rows: &mut [(u64, &mut [u8])]) -> Result<()> {
        self.field(field, rows)?.read_many(rows)
    }

    fn batch(&self) -> u64 {
        0
    }
}

/// Copies the bytes that a part at `at` and a wanted range have in common.
fn copy_common(at: u64, part: &[u8], wanted: &Range<u64>, out: &mut [u8]) {
    let start = at.max(wanted.start);
    let end = (at + part.len() as u64).min(wanted.end);
    if start < end {
        let from = &part[(start - at) as usize..(end - at) as usize];
        out[(start - wanted.start) as usize..(end - wanted.start) as usize].copy_from_slice(from);
    }
}

fn short() -> Error {
    Error::damaged("a file of this store comes out shorter than it was")
}

fn enough() -> Error {
    Error::usage("no more bytes are wanted")
}

impl Blob for Rendered {
    fn store(&self) -> &str {
        &self.name
    }

    fn size(&self) -> u64 {
        self.skeleton.size
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        let end = offset.checked_add(buffer.len() as u64).filter(|end| *end <= self.size());
        let end = end.ok_or_else(short)?;
        let mut at = offset;
        while at < end {
            let number = self.starts.partition_point(|start| start.0 <= at);
            let number = number.checked_sub(1).ok_or_else(short)?;
            let next = self.starts.get(number + 1).map_or(self.size(), |start| start.0);
            let to = next.min(end);
            if to <= at {
                return Err(short());
            }
            let part = &mut buffer[(at - offset) as usize..(to - offset) as usize];
            self.piece(number, at - self.starts[number].0, part)?;
            at = to;
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
