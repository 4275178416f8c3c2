//! A part of a file.

use crate::error::{Error, Result};
use crate::store::{Blob, read_each};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Bytes of a file, from an offset on.
#[derive(Clone)]
pub struct Extent {
    origin: ExtentOrigin,
    offset: u64,
    len: u64,
    path: PathBuf,
    name: String,
}

/// The file itself, or the bytes that it has when it is made again.
#[derive(Clone)]
enum ExtentOrigin {
    File(Arc<File>),
    Blob(Arc<dyn Blob>),
}

impl Extent {
    /// All bytes of a file that is not on a disk.
    pub(crate) fn of(blob: Arc<dyn Blob>, name: &str) -> Self {
        let (len, path) = (blob.size(), PathBuf::from(name));
        Extent { origin: ExtentOrigin::Blob(blob), offset: 0, len, path, name: name.into() }
    }

    /// `len` bytes from `offset` on, which the file has.
    pub fn new(file: Arc<File>, offset: u64, len: u64, path: &Path) -> Self {
        let name = path.display().to_string();
        Extent { origin: ExtentOrigin::File(file), offset, len, path: path.into(), name }
    }

    /// A part of this part.
    pub fn part(&self, offset: u64, len: u64) -> Result<Extent> {
        match offset.checked_add(len).is_some_and(|end| end <= self.len) {
            true => Ok(Extent { offset: self.offset + offset, len, ..self.clone() }),
            false => Err(Error::damaged(format!(
                "the file ends after {} bytes, but its head promises {}",
                self.len,
                offset.saturating_add(len)
            ))
            .hint("it was cut, or is still being written")),
        }
    }
}

impl Blob for Extent {
    fn store(&self) -> &str {
        &self.name
    }

    fn size(&self) -> u64 {
        self.len
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        let file = match &self.origin {
            ExtentOrigin::File(file) => file,
            ExtentOrigin::Blob(blob) => return blob.read_at(self.offset + offset, buffer),
        };
        file.read_exact_at(buffer, self.offset + offset).map_err(|error| match error.kind() {
            std::io::ErrorKind::UnexpectedEof => {
                Error::damaged("a file became shorter while it was read").at(&self.name)
            }
            _ => Error::io("cannot read a file", error).at(&self.name),
        })
    }

    fn read_many(&self, ranges: &mut [(u64, &mut [u8])]) -> Result<()> {
        read_each(self, ranges)
    }

    fn file(&self) -> Option<(&File, &Path, u64)> {
        match &self.origin {
            ExtentOrigin::File(file) => Some((file, &self.path, self.offset)),
            ExtentOrigin::Blob(_) => None,
        }
    }

    fn in_order(&self) -> bool {
        false
    }
}
