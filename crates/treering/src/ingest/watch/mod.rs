//! Watching a folder for the checkpoint files of programs that know nothing of Treering.
//!
//! Changes in the folder (`notice`) are sorted by step (`names`, `sets`). A complete set whose files
//! nobody has open for writing (`writers`) becomes a checkpoint, and its originals may be removed
//! (`remove`). The run itself records what was ingested,
//! so a watcher keeps no state of its own: it may be killed at any moment and started again.

mod event;
mod notice;
mod remove;
mod service;
mod sets;
mod writers;

pub use event::WatchEvent;
pub use service::{WatchStop, Watcher};

use super::{FileRules, IngestSettings, is_inside};
use crate::array::Labels;
use crate::codec::Encoding;
use crate::error::{Error, Result};
use crate::library::Place;
use std::path::PathBuf;
use std::time::Duration;

/// Settings of a [`Watcher`].
///
/// ```
/// use std::time::Duration;
/// use treering::{Place, WatchSettings};
/// let settings = WatchSettings {
///     files: Some(4),             // every set has four files
///     settle: Duration::ZERO,     // the program renames complete files into place
///     ..WatchSettings::new(Place::parse("store#sim")?, "out")
/// };
/// # Ok::<(), treering::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct WatchSettings {
    /// Store and run. Steps are read from the names of files.
    pub place: Place,
    /// Folder to watch, with all folders below it.
    pub folder: PathBuf,
    /// Rules for step and rank.
    pub rules: FileRules,
    /// Number of files of a set. `None`: as many as the set before had; the first one is a guess.
    pub files: Option<usize>,
    /// Time for which a closed file must stay unchanged. Default: 2 seconds. Zero is for programs that
    /// rename complete files into place, and needs `files`.
    pub settle: Duration,
    /// Remove originals once the store has been shown to export their exact bytes, and step folders that are then
    /// empty. Default: false.
    pub remove: bool,
    /// Settings of every ingested set.
    pub ingest: IngestSettings,
    /// Encoding of new data. Default: `Aim::Balanced`, chosen by sampling each variable.
    pub encoding: Encoding,
    /// Labels of every checkpoint.
    pub labels: Labels,
}

impl WatchSettings {
    /// Settings with defaults.
    pub fn new(place: Place, folder: impl Into<PathBuf>) -> WatchSettings {
        WatchSettings {
            place,
            folder: folder.into(),
            rules: FileRules::default(),
            files: None,
            settle: Duration::from_secs(2),
            remove: false,
            ingest: IngestSettings::default(),
            encoding: Encoding::default(),
            labels: Labels::default(),
        }
    }

    /// Checks everything that can be checked without opening the store; gives the name of the run.
    fn check(&self) -> Result<String> {
        let place = &self.place;
        let (Some(run), None) = (place.run.clone(), place.step) else {
            return Err(Error::usage(format!("{place} names no run, or more than that"))
                .hint("write STORE#RUN; the steps are read from the names of the files"));
        };
        if self.remove && !self.ingest.error_bounds.is_empty() {
            return Err(Error::usage(
                "originals of rounded variables are not removed: the store does not hold them",
            )
            .hint("leave out --remove, or --error-bound"));
        }
        if self.settle.is_zero() && self.files.is_none() {
            return Err(Error::usage(
                "without a settle time, the end of a set cannot be recognized",
            )
            .hint("give the number of files of a set with --files"));
        }
        if self.files == Some(0) {
            return Err(Error::usage("a set needs one file at least"));
        }
        if is_inside(&place.store, &self.folder) {
            return Err(Error::usage(format!("the store lies in {}", self.folder.display()))
                .hint("keep it outside of the folder that is watched"));
        }
        Ok(run)
    }
}
