//! Arrays whose values lie in other files, by names relative to the folder of their own. Only comparison looks for
//! them, and only for files on a disk; what was ingested has no folder.
//!
//! Files can name each other in circles, and many times: the depth and the number of files that are opened for one
//! array are limited.

use super::found::FoundArray;
use super::{Extent, Field, OpenFile};
use crate::array::{DType, Description, Shape};
use crate::error::{Error, ErrorKind, Result};
use crate::store::Blob;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// Number of files through which an array is followed.
const DEEPEST: u32 = 4;
/// Most files that are opened for one array.
const MOST_FILES: u32 = 1 << 14;

/// Values that lie in other files.
pub(super) trait Outside: Send + Sync {
    /// Finds the values of an array, little-endian.
    fn open(&self, array: &FoundArray, from: &Viewpoint) -> Result<OutsideValues>;
}

/// Values that were found in other files.
pub(super) struct OutsideValues {
    pub(super) bytes: Arc<dyn Blob>,
    /// The extent, if it follows from other files.
    pub(super) shape: Option<Shape>,
    /// Says which values are missing, if some are. The library reads other values in their place, and so does this.
    pub(super) missing: Option<Error>,
}

/// The path of a file by its name in another one, or in the same folder, as HDF5 looks for it; none if there is none.
pub(crate) fn beside(file: &Path, name: &Path) -> Option<PathBuf> {
    let folder = file.parent().unwrap_or(Path::new(""));
    let moved = name.file_name().map(|name| folder.join(name));
    Some(folder.join(name)).into_iter().chain(moved).find(|path| path.is_file())
}

/// A file from which others are looked for.
#[derive(Clone)]
pub(super) struct Viewpoint {
    file: PathBuf,
    depth: u32,
    left: Arc<AtomicU32>,
}

impl OutsideValues {
    /// An array as a field with these values.
    pub(super) fn field(self, found: &FoundArray) -> Field {
        let mut field = found.field_of(self.bytes);
        field.description.shape = self.shape.unwrap_or(field.description.shape);
        field
    }
}

impl Viewpoint {
    /// From a file; none if it is on no disk.
    pub(super) fn of(whole: &Extent) -> Option<Viewpoint> {
        let (_, file, _) = whole.file()?;
        let left = Arc::new(AtomicU32::new(MOST_FILES));
        Some(Viewpoint { file: file.to_path_buf(), depth: 0, left })
    }

    /// The same with all files to be opened again.
    pub(super) fn renewed(&self) -> Viewpoint {
        Viewpoint { left: Arc::new(AtomicU32::new(MOST_FILES)), ..self.clone() }
    }

    /// The path of a file by its name in this one; none if there is no such file.
    pub(super) fn path(&self, name: &Path) -> Option<PathBuf> {
        beside(&self.file, name)
    }

    /// An array of another file, or of this one; none if there is no such file or array.
    pub(super) fn array(&self, name: &str, array: &str) -> Result<Option<Field>> {
        let (deep, many) = (self.depth >= DEEPEST, self.left.load(Ordering::Relaxed) == 0);
        if deep || many {
            return Err(Error::new(ErrorKind::Limit, "its values lie behind too many other files"));
        }
        self.left.fetch_sub(1, Ordering::Relaxed);
        let path = match name {
            "." => Some(self.file.clone()),
            _ => self.path(Path::new(name)),
        };
        let Some(path) = path else { return Ok(None) };
        let opened = OpenFile::new(&path)?;
        let Some((_, contents)) = opened.find()? else {
            return Err(
                Error::usage("its values lie in a file that is not understood").at(path.display())
            );
        };
        let array = array.trim_matches('/');
        if let Some(other) = contents.undecoded.iter().find(|other| other.name == array) {
            return Err(other.why.clone());
        }
        let mut all = contents.found.iter().chain(&contents.referring);
        let Some(found) = all.find(|found| found.description.name == array) else {
            return Ok(None);
        };
        if found.description.dtype == DType::Bytes {
            return Err(Error::usage("its values lie in other files and are not numbers"));
        }
        match &found.outside {
            None => found.field(&opened.whole).map(Some),
            Some(outside) => {
                let there = Viewpoint { file: path, depth: self.depth + 1, ..self.clone() };
                Ok(Some(outside.open(found, &there)?.field(found)))
            }
        }
    }
}

/// Refuses an array of which other files hold hardly any values: its size would be believed.
pub(super) fn check_paid(whole: &Description, held: u64) -> Result<()> {
    let most = held.saturating_mul(4).saturating_add(super::found::MOST_UNPAID);
    match whole.bytes().is_some_and(|bytes| bytes <= most) {
        true => Ok(()),
        false => Err(Error::new(ErrorKind::Limit, "other files hold hardly any of its values")
            .hint("`compare --exclude` leaves the variable out")),
    }
}
