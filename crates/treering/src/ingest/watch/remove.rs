//! Removing originals, the one thing here that could lose data.
//!
//! The law: a file is removed only if the store, asked at that moment, exports its exact bytes, and
//! if the file is still the one (size, time, inode) that was read for this, and if nobody has it open
//! for writing: the rest of it would be lost. Names, sizes and times alone never suffice.

use super::sets::FileStamp;
use super::writers::{Openness, Probe};
use crate::error::{Error, ErrorKind, Result};
use crate::library::HeldSet;
use rayon::prelude::*;
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::UNIX_EPOCH;

/// Fate of an original.
#[derive(Debug)]
pub(super) enum Fate {
    Removed,
    /// The file was changed or is gone: it is not the one that was ingested.
    Changed,
    /// A process has the file open for writing.
    Open,
    /// No checkpoint of its step holds these bytes.
    NotHeld,
}

impl FileStamp {
    /// The stamp of a regular file, if there is one.
    pub(super) fn of(path: &Path) -> Option<FileStamp> {
        let meta = std::fs::symlink_metadata(path).ok()?;
        meta.is_file().then(|| FileStamp::from(&meta))
    }
}

impl From<&Metadata> for FileStamp {
    fn from(meta: &Metadata) -> FileStamp {
        let modified = meta.modified().ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok());
        let modified = modified.map_or(0, |time| time.as_nanos() as u64);
        FileStamp { size: meta.len(), modified, inode: meta.ino() }
    }
}

/// Removes files below a folder that one of the sets holds.
pub(super) fn remove(
    folder: &Path,
    files: &[(String, FileStamp)],
    held: &[HeldSet],
    probe: &dyn Probe,
) -> Vec<(String, FileStamp, Result<Fate>)> {
    let fates = files.par_iter().map(|(name, stamp)| {
        let fate = remove_one(&folder.join(name), name, *stamp, held, probe);
        (name.clone(), *stamp, fate)
    });
    fates.collect()
}

fn remove_one(
    path: &Path,
    name: &str,
    stamp: FileStamp,
    held: &[HeldSet],
    probe: &dyn Probe,
) -> Result<Fate> {
    if is_open(path, probe)? {
        return Ok(Fate::Open);
    }
    let still = || FileStamp::of(path) == Some(stamp);
    if !still() {
        return Ok(Fate::Changed);
    }
    let mut trouble = None;
    for set in held {
        match set.gives(name, path) {
            // Reading took its time.
            Ok(true) if is_open(path, probe)? => return Ok(Fate::Open),
            Ok(true) if still() => {
                std::fs::remove_file(path)
                    .map_err(|e| Error::io(format!("cannot remove {}", path.display()), e))?;
                return Ok(Fate::Removed);
            }
            Ok(true) => return Ok(Fate::Changed),
            Ok(false) => {}
            Err(error) => trouble = Some(error),
        }
    }
    match trouble {
        Some(error) => Err(error),
        None => Ok(Fate::NotHeld),
    }
}

/// Whether somebody has a file open for writing; an error if that cannot be seen.
fn is_open(path: &Path, probe: &dyn Probe) -> Result<bool> {
    match probe.look(&[path.to_path_buf()]).first() {
        Some(Openness::Open(_)) => Ok(true),
        Some(Openness::Hidden) => Err(Error::new(
            ErrorKind::Io,
            "it may be open for writing: processes of its owner cannot be looked at",
        )
        .hint("run the service as the user who runs the program")),
        Some(Openness::Closed) | None => Ok(false),
    }
}

/// The folders below one that are empty, by their paths from there.
pub(super) fn empty_folders(folder: &Path) -> Vec<String> {
    let (mut left, mut empty) = (vec![folder.to_path_buf()], Vec::new());
    while let Some(now) = left.pop() {
        let Ok(entries) = std::fs::read_dir(&now) else { continue };
        let mut is_empty = true;
        for entry in entries.flatten() {
            is_empty = false;
            // Links are not followed.
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                left.push(entry.path());
            }
        }
        let name = now.strip_prefix(folder).ok().and_then(Path::to_str);
        empty.extend(name.filter(|name| is_empty && !name.is_empty()).map(String::from));
    }
    empty
}

/// Removes the folders of a file that are empty now, from the innermost up to the one that has the
/// step in its name: those above are the program's own.
pub(super) fn remove_folders(folder: &Path, name: &str, step_folder: usize) {
    let mut inner = Path::new(name);
    while let Some(parent) = inner.parent() {
        inner = parent;
        let len = inner.as_os_str().len();
        // One that is not empty stays, and so do those around it.
        if len < step_folder || std::fs::remove_dir(folder.join(inner)).is_err() {
            return;
        }
    }
}
