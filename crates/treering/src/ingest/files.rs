//! Files and folders that a person names, as the files of one checkpoint.

use super::{FileRules, RankFile};
use crate::error::{Error, Result};
use crate::source::{self, LeftOut};
use std::path::{Path, PathBuf};

/// Files to ingest, and entries of folders that are left out. Returned by [`rank_files`], which has an example.
pub struct ChosenFiles {
    /// Files to ingest.
    pub files: Vec<RankFile>,
    /// Entries that are left out, and why.
    pub left_out: Vec<(PathBuf, LeftOut)>,
}

/// Lists files and the files of folders, each with its rank and its name below the folder. Content is not read.
///
/// ```
/// use treering::{FileRules, rank_files};
/// # let folder = tempfile::tempdir().unwrap();
/// # let out = folder.path().join("out");
/// # std::fs::create_dir(&out)?;
/// std::fs::write(out.join("state_0.raw"), [1u8; 4096])?;
/// std::fs::write(out.join("state_1.raw"), [2u8; 4096])?;
/// let chosen = rank_files(&[out], &FileRules::default())?;
/// let found: Vec<(u32, &str)> = chosen.files.iter().map(|file| (file.rank.0, &file.name[..])).collect();
/// assert_eq!(found, [(0, "state_0.raw"), (1, "state_1.raw")]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn rank_files(paths: &[PathBuf], rules: &FileRules) -> Result<ChosenFiles> {
    let (mut files, mut left_out) = (Vec::new(), Vec::new());
    for given in paths {
        let found = match given.is_dir() {
            true => {
                let found = source::files(given)?;
                left_out.extend(found.others);
                found.files
            }
            false => vec![given.clone()],
        };
        for path in found {
            let inside = match given.is_dir() {
                true => path.strip_prefix(given).unwrap_or(&path),
                false => Path::new(path.file_name().unwrap_or_default()),
            };
            let Some(name) = inside.to_str() else {
                return Err(Error::usage(format!("the name of {} is not UTF-8", path.display()))
                    .hint("rename it"));
            };
            files.push((name.to_string(), path));
        }
    }
    Ok(ChosenFiles { files: rules.rank_files(&files)?, left_out })
}

/// Whether a file or a store, which may not exist yet, lies in a folder. Links are followed.
///
/// ```
/// # let folder = tempfile::tempdir().unwrap();
/// # let out = folder.path();
/// assert!(treering::is_inside(&out.join("store"), out)); // a store among the files that it is to hold
/// assert!(!treering::is_inside(out, &out.join("store")));
/// ```
pub fn is_inside(path: &Path, folder: &Path) -> bool {
    let Ok(folder) = folder.canonicalize() else {
        return false;
    };
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf());
    let real = path.ancestors().find_map(|above| above.canonicalize().ok());
    real.is_some_and(|real| real.starts_with(&folder))
}
