//! Output that appears under its name when it is whole and durable, and replaces nothing.
//!
//! Until then it has a hidden name beside. Whatever ends the export before, an error, a full disk or a kill, nothing
//! appears; an error also removes what was written.

use crate::error::{Error, ErrorKind, Result};
use crate::store::{Disk, OsDisk};
use std::fs::File;
use std::io::ErrorKind as Os;
use std::path::{Path, PathBuf};

/// Hidden names that are tried: earlier exports may have been killed.
const MOST_NAMES: u32 = 1000;

/// A file or a folder that is being written.
pub(super) struct UnfinishedOutput {
    path: PathBuf,
    /// The name that it has until it is whole.
    pub(super) temporary: PathBuf,
    folder: bool,
    done: bool,
}

impl UnfinishedOutput {
    /// A file that will be at `path`.
    pub(super) fn file(path: &Path) -> Result<(Self, File)> {
        Self::begin(path, false, |path| File::create_new(path))
    }

    /// A folder that will be at `path`.
    pub(super) fn folder(path: &Path) -> Result<Self> {
        Self::begin(path, true, |path| std::fs::create_dir(path)).map(|(output, ())| output)
    }

    fn begin<T>(
        path: &Path,
        folder: bool,
        make: impl Fn(&Path) -> std::io::Result<T>,
    ) -> Result<(Self, T)> {
        if path.symlink_metadata().is_ok() {
            return Err(Error::usage(format!("{} is there already", path.display()))
                .hint("export to another folder"));
        }
        let parent = folder_of(path);
        std::fs::create_dir_all(parent).map_err(|e| failed(parent, e))?;
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        for number in 0..MOST_NAMES {
            let hidden = format!(".{name}.new-{}-{number}", std::process::id());
            let temporary = parent.join(hidden);
            match make(&temporary) {
                Err(error) if error.kind() == Os::AlreadyExists => {}
                Err(error) => return Err(failed(path, error)),
                Ok(made) => {
                    let path = path.to_path_buf();
                    return Ok((UnfinishedOutput { path, temporary, folder, done: false }, made));
                }
            }
        }
        Err(Error::usage(format!("{} holds too many unfinished exports", parent.display()))
            .hint(format!("remove its hidden files .{name}.new-*")))
    }

    /// Gives it its name. All of it is durable already.
    pub(super) fn finish(mut self) -> Result<()> {
        let named = match self.folder {
            // A folder never takes the place of a file or of a folder that holds something.
            true => std::fs::rename(&self.temporary, &self.path),
            false => OsDisk.rename_new(&self.temporary, &self.path),
        };
        named.map_err(|e| failed(&self.path, e))?;
        self.done = true;
        let parent = folder_of(&self.path);
        OsDisk.sync_folder(parent).map_err(|e| failed(parent, e))
    }
}

fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

impl Drop for UnfinishedOutput {
    fn drop(&mut self) {
        // Its remains are hidden, and nothing refers to them.
        let _ = match (self.done, self.folder) {
            (true, _) => Ok(()),
            (false, true) => std::fs::remove_dir_all(&self.temporary),
            (false, false) => std::fs::remove_file(&self.temporary),
        };
    }
}

/// The error of something that cannot be written.
pub(super) fn failed(path: &Path, error: std::io::Error) -> Error {
    let what = format!("cannot write {}", path.display());
    let (kind, hint) = match error.kind() {
        Os::StorageFull | Os::QuotaExceeded | Os::FileTooLarge => {
            (ErrorKind::Full, "free some space, or export to another folder")
        }
        Os::PermissionDenied | Os::ReadOnlyFilesystem => {
            (ErrorKind::Io, "export to a folder that can be written to")
        }
        _ => return Error::io(what, error),
    };
    Error::new(kind, format!("{what}: {error}")).hint(hint)
}
