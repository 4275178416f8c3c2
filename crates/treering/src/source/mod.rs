//! Foreign files as variables: `.npy`, `.npz`, raw files of a given type.
//!
//! A file is opened and its head is read; a variable then is a description and a view of bytes that
//! are read when somebody asks. A file is known by its first bytes, not by its name. What a file
//! claims is checked against its length before anything else sees it.

mod extent;
mod npy;
mod npz;
mod raw;

pub use extent::Extent;
pub use raw::RawType;

use crate::array::Description;
use crate::error::{Error, ErrorKind, Result};
use crate::store::Blob;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A variable of a foreign file.
#[derive(Clone)]
pub struct Field {
    /// Name, type and extent, as the file tells them.
    pub description: Description,
    /// Whether the first axis is the fastest; else the last one is.
    pub fortran: bool,
    /// Its bytes, little-endian.
    pub bytes: Arc<dyn Blob>,
}

/// Opens a file; `raw` says what it is if it does not say so itself.
///
/// The only variable of a file is named after it, without the extension.
pub fn open(path: &Path, raw: Option<&RawType>) -> Result<Vec<Field>> {
    let shown = path.display();
    let file = File::open(path).map_err(|e| unreadable(path, e))?;
    let meta = file.metadata().map_err(|e| unreadable(path, e))?;
    if !meta.is_file() {
        return Err(Error::usage(format!("{shown} is no file")).hint("give a file or a folder"));
    }
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    let whole = Extent::new(Arc::new(file), 0, meta.len(), path);
    let mut start = [0u8; 8];
    let known = whole.read_at(0, &mut start[..meta.len().min(8) as usize]);
    known.map_err(|e| e.at(shown.to_string()))?;
    let fields = match start {
        _ if start.starts_with(npy::MAGIC) => npy::open(&whole, &stem).map(|field| vec![field]),
        _ if start.starts_with(npz::MAGIC) || start.starts_with(npz::EMPTY) => npz::open(&whole),
        _ => match raw {
            Some(raw) => raw.open(&whole, &stem).map(|field| vec![field]),
            None => Err(Error::usage("this is no .npy and no .npz file")
                .hint("say with --type what its values are, as in --type f32")),
        },
    };
    fields.map_err(|error| error.at(shown))
}

/// The files of a folder and its folders, sorted; tree files and hidden ones are left out.
pub fn files(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).map_err(|e| unreadable(&folder, e))? {
            let entry = entry.map_err(|e| unreadable(&folder, e))?;
            let path = entry.path();
            let kind = entry.file_type().map_err(|e| unreadable(&path, e))?;
            let hidden = entry.file_name().to_string_lossy().starts_with('.');
            match hidden || path.extension().is_some_and(|e| e == "tree") {
                true => {}
                false if kind.is_dir() => folders.push(path),
                false if path.is_file() => found.push(path),
                false => {}
            }
        }
    }
    found.sort();
    Ok(found)
}

fn unreadable(path: &Path, error: std::io::Error) -> Error {
    let what = match error.kind() {
        std::io::ErrorKind::NotFound => {
            return Error::new(ErrorKind::NotFound, format!("there is no {}", path.display()))
                .hint("give a file, a folder, or STORE#RUN");
        }
        std::io::ErrorKind::PermissionDenied => {
            return Error::new(ErrorKind::Io, format!("{} may not be read", path.display()))
                .hint("check its owner and permissions");
        }
        _ => format!("cannot read {}", path.display()),
    };
    Error::io(what, error)
}
