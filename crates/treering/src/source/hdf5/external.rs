//! Values in raw files beside an HDF5 file: pieces one after another.

use super::bytes::Meta;
use crate::error::{Error, Result};
use crate::io::open_file;
use crate::source::found::FoundArray;
use crate::source::outside::{Outside, OutsideValues, Viewpoint, check_paid};
use crate::store::{Blob, read_each};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;

/// A piece of a raw file: its name, and offset and size.
pub(super) struct ExternalPieces(Vec<(PathBuf, u64, u64)>);

impl ExternalPieces {
    /// From the message of a dataset.
    pub(super) fn parse(meta: &Meta, message: &[u8]) -> Result<Self> {
        let mut rest = meta.cursor(message);
        let version = rest.u8()?;
        rest.skip(5)?;
        let (count, heap) = (rest.u16()?, rest.defined()?);
        if version != 1 {
            return Err(Error::usage("its list of other files is not understood"));
        }
        let names = super::group::local_heap(meta, heap)?;
        let mut pieces = Vec::new();
        for _ in 0..count {
            let (name, offset, size) = (rest.length()?, rest.length()?, rest.length()?);
            let name = usize::try_from(name).ok().and_then(|at| names.get(at..));
            let name = name.ok_or_else(|| Error::damaged("a name is out of its heap"))?;
            let name = String::from_utf8_lossy(meta.cursor(name).name(1)?).into_owned();
            pieces.push((PathBuf::from(name), offset, size));
        }
        Ok(ExternalPieces(pieces))
    }
}

impl Outside for ExternalPieces {
    fn open(&self, array: &FoundArray, from: &Viewpoint) -> Result<OutsideValues> {
        let size = array.bytes();
        let (mut pieces, mut missing, mut at, mut held) = (Vec::new(), None, 0, 0u64);
        for (name, offset, len) in &self.0 {
            if at >= size {
                break;
            }
            let path = from.path(name).ok_or_else(|| {
                Error::usage(format!("its values lie in {}, which is missing", name.display()))
            })?;
            let failed = |e| Error::io(format!("cannot read {}", path.display()), e);
            let file = open_file(&path).map_err(failed)?;
            let there = file.metadata().map_err(failed)?.len().saturating_sub(*offset);
            let len = (*len).min(size - at);
            if there < len {
                let path = path.display();
                missing = Some(Error::damaged(format!("{path} ends within its values")));
            }
            held = held.saturating_add(there.min(len));
            pieces.push(ExternalPiece { file, path, at, offset: *offset, len, there });
            at += len;
        }
        if at < size {
            return Err(Error::damaged("a dataset has less space than its values take"));
        }
        check_paid(&array.description, held)?;
        let bytes = array.swapped(Arc::new(ExternalBytes { pieces, size }));
        Ok(OutsideValues { bytes, shape: None, missing })
    }
}

struct ExternalPiece {
    file: File,
    path: PathBuf,
    /// The place in the array, and in the file.
    at: u64,
    offset: u64,
    len: u64,
    /// Bytes of it that the file has.
    there: u64,
}

/// The bytes of an array, read from other files.
struct ExternalBytes {
    pieces: Vec<ExternalPiece>,
    size: u64,
}

impl Blob for ExternalBytes {
    fn store(&self) -> &str {
        "other files"
    }

    fn size(&self) -> u64 {
        self.size
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        buffer.fill(0);
        let end = offset + buffer.len() as u64;
        for piece in &self.pieces {
            let (from, to) = (offset.max(piece.at), end.min(piece.at + piece.len.min(piece.there)));
            if from < to {
                let part = &mut buffer[(from - offset) as usize..(to - offset) as usize];
                let at = piece.offset + (from - piece.at);
                piece
                    .file
                    .read_exact_at(part, at)
                    .map_err(|e| Error::io(format!("cannot read {}", piece.path.display()), e))?;
            }
        }
        Ok(())
    }

    fn read_many(&self, ranges: &mut [(u64, &mut [u8])]) -> Result<()> {
        read_each(self, ranges)
    }

    fn file(&self) -> Option<(&File, &std::path::Path, u64)> {
        None
    }

    fn in_order(&self) -> bool {
        false
    }
}
