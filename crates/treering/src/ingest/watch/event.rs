//! Events of a watcher, as data and as sentences.

use crate::error::Error;
use crate::format::Manifest;
use crate::ingest::RankFile;
use crate::library::Place;
use std::fmt;
use std::path::Path;
use std::time::Duration;

/// An event that a [`Watcher`](super::Watcher) reports. Its `Display` is a sentence for people.
///
/// ```no_run
/// use treering::{Place, WatchEvent, WatchSettings, Watcher};
/// let settings = WatchSettings::new(Place::parse("store#sim")?, "out");
/// let mut watcher = Watcher::open(settings, |event| match event {
///     WatchEvent::Taken { place, bytes, .. } => println!("{place}: {bytes} bytes"),
///     WatchEvent::Retry { step, error, .. } => eprintln!("step {step}: {error}"),
///     other => println!("{other}"),
/// })?;
/// watcher.once()?;
/// # Ok::<(), treering::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum WatchEvent<'a> {
    /// A set was ingested and is durable.
    Taken {
        /// Store, run and step.
        place: &'a Place,
        /// Files of the set.
        files: &'a [RankFile],
        /// Size of all files.
        bytes: u64,
        /// Manifest of the new checkpoint.
        manifest: &'a Manifest,
    },
    /// A set has too few files although a later one is complete. It stays where it is.
    TooFew {
        /// Step of the set.
        step: u64,
        /// Files that are there.
        files: usize,
        /// Files that were expected.
        expected: usize,
    },
    /// A set has too few files, and none has come for a minute. It stays where it is. Reported once.
    Short {
        /// Step of the set.
        step: u64,
        /// Files that are there.
        files: usize,
        /// Files that were expected.
        expected: usize,
    },
    /// Files of a step came after its other files were ingested and went away. They stay where they are.
    Late {
        /// Step of the files.
        step: u64,
        /// Files that came late.
        files: usize,
    },
    /// [`Watcher::serve`](super::Watcher::serve) or [`Watcher::once`](super::Watcher::once) ends without this set.
    NotTaken {
        /// Step of the set.
        step: u64,
        /// Files that are there.
        files: usize,
        /// Files that a set has, if that is known.
        expected: Option<usize>,
        /// An unfinished file and why it is one; completes a sentence that begins with the file.
        held: Option<(&'a str, &'a str)>,
    },
    /// A set waits for a file that is unfinished: open for writing, or incomplete in its structure.
    /// Reported once, after a while.
    Waiting {
        /// Step of the set.
        step: u64,
        /// Path below the folder.
        file: &'a str,
        /// Cause; completes a sentence that begins with the file.
        why: &'a str,
    },
    /// A set could not be ingested, and will be tried again.
    Retry {
        /// Step of the set.
        step: u64,
        /// Time until then.
        pause: Duration,
        /// Cause.
        error: &'a Error,
    },
    /// A set cannot be ingested as it is. It stays until one of its files changes.
    Refused {
        /// Step of the set.
        step: u64,
        /// Cause.
        error: &'a Error,
    },
    /// A file is not part of any set because of its name. Reported once for each file.
    LeftOut {
        /// Path below the folder.
        file: &'a Path,
        /// Cause; completes a sentence that begins with the file.
        why: &'a str,
    },
    /// An original is kept although originals are to be removed.
    NotRemoved {
        /// Path below the folder.
        file: &'a str,
        /// Cause.
        error: &'a Error,
    },
    /// Anything else that a person should know.
    Note(&'a str),
}

impl fmt::Display for WatchEvent<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            WatchEvent::Taken { place, files, .. } => {
                write!(f, "{place}: {} ingested", count(files.len()))
            }
            WatchEvent::TooFew { step, files, expected } => write!(
                f,
                "step {step} has {} where {expected} were expected, and a later step is complete: it \
                 stays where it is until the rest comes",
                count(*files)
            ),
            WatchEvent::Short { step, files, expected } => write!(
                f,
                "step {step} has {} where {expected} were expected, and no more have come: it stays where it is until \
                 the rest comes",
                count(*files)
            ),
            WatchEvent::Late { step, files } => write!(
                f,
                "step {step} is in the run already, and its files are gone: {} of it came later and stay; \
                 --step-pattern sets the position of the step in a name",
                count(*files)
            ),
            WatchEvent::NotTaken { step, held: Some((file, why)), .. } => {
                write!(f, "step {step} is not ingested: {file} {why}")
            }
            WatchEvent::NotTaken { step, files, expected: Some(expected), .. }
                if files >= expected =>
            {
                write!(f, "step {step} is not ingested yet: {}", count(*files))
            }
            WatchEvent::NotTaken { step, files, expected: Some(expected), .. } => {
                write!(f, "step {step} is not ingested: {} of {expected}", count(*files))
            }
            WatchEvent::NotTaken { step, files, expected: None, .. } => {
                write!(f, "step {step} is not ingested: {}, not at rest yet", count(*files))
            }
            WatchEvent::Waiting { step, file, why } => {
                write!(f, "step {step} waits to be ingested: {file} {why}")
            }
            WatchEvent::Retry { step, pause, error } => {
                write!(f, "step {step} is tried again in {} s: {error}", pause.as_secs())
            }
            WatchEvent::Refused { step, error } => {
                write!(f, "step {step} stays where it is: {error}")
            }
            WatchEvent::LeftOut { file, why } => write!(
                f,
                "{} {why} and is left out; --step-pattern and --rank-pattern set how names are read",
                file.display()
            ),
            WatchEvent::NotRemoved { file, error } => write!(f, "{file} is not removed: {error}"),
            WatchEvent::Note(text) => f.write_str(text),
        }
    }
}

fn count(files: usize) -> String {
    format!("{files} file{}", if files == 1 { "" } else { "s" })
}
