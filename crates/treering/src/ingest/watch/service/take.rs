//! Ingesting a set, errors of that, and removing its originals.

use super::Watcher;
use crate::error::{Error, ErrorKind, Result};
use crate::format::Manifest;
use crate::ingest::watch::WatchEvent;
use crate::ingest::watch::remove::{Fate, empty_folders, remove, remove_folders};
use crate::ingest::watch::sets::{FileSet, FileStamp};
use crate::ingest::watch::writers::Openness;
use crate::ingest::{Merge, RankFile};
use crate::library::{HeldSet, Place};
use crate::source::unfinished;
use rayon::prelude::*;
use std::path::{Path, PathBuf};

impl Watcher {
    /// Takes a set in, unless it is in the run or no longer what it was.
    pub(super) fn take(&mut self, set: &FileSet) -> Result<()> {
        set.files.keys().for_each(|name| self.look(name));
        if self.sets.complete_at(set.step, self.now()).as_ref() != Some(set) {
            return Ok(());
        }
        if self.is_unfinished(set) {
            return Ok(());
        }
        if self.ingest.is_none() {
            self.holdings = self.holdings.again()?;
        }
        if !self.is_held(set) {
            let files = self.rank_files(set)?;
            self.tell_odd_ranks(set);
            let manifest = self.ingest(set, &files)?;
            self.tell_taken(set, &files, &manifest);
            self.holdings.add(&manifest);
        }
        for short in self.sets.taken(set, self.now()) {
            let (step, files, expected) = (short.step, short.files, short.expected);
            self.tell(WatchEvent::TooFew { step, files, expected });
        }
        if self.settings.remove {
            let files = set.files.iter().map(|(name, stamp)| (name.clone(), *stamp));
            self.leftovers.entry(set.step).or_default().extend(files);
            self.remove_leftovers();
        }
        Ok(())
    }

    /// Whether a file of a complete set is open for writing, or incomplete as its structure shows. A set like
    /// this is held.
    fn is_unfinished(&mut self, set: &FileSet) -> bool {
        let names: Vec<&str> = set.files.keys().map(String::as_str).collect();
        let paths: Vec<PathBuf> = names.iter().map(|n| self.settings.folder.join(n)).collect();
        let seen = self.probe.look(&paths);
        let mut waits: Vec<(&str, String)> = Vec::new();
        let merge = self.settings.ingest.merge;
        let lacking: Vec<_> = paths.par_iter().map(|path| lacks_bytes(path, merge)).collect();
        for ((name, openness), lacking) in names.into_iter().zip(seen).zip(lacking) {
            if openness == Openness::Hidden {
                self.tell_hidden(name, &openness);
            }
            match (&openness, lacking) {
                (Openness::Open(_), _) => waits.push((name, openness.to_string())),
                (_, Some(why)) => {
                    waits.push((name, format!("{why}: it was cut, or is still being written")));
                }
                (_, None) => {}
            }
        }
        let Some((file, why)) = waits.first().cloned() else {
            self.unfinished.remove(&set.step);
            return false;
        };
        let names: Vec<&str> = waits.iter().map(|(name, _)| *name).collect();
        if self.sets.hold(set.step, &names, self.now()) {
            self.tell(WatchEvent::Waiting { step: set.step, file, why: &why });
        }
        self.unfinished.insert(set.step, (file.to_string(), why));
        true
    }

    fn tell_hidden(&mut self, name: &str, openness: &Openness) {
        if !std::mem::replace(&mut self.told_hidden, true) {
            self.tell(WatchEvent::Note(&format!(
                "{name} {openness}; it is ingested when it has not changed for the settle time, as are \
                 others; run the service as the user who runs the program",
            )));
        }
    }

    /// Whether the newest checkpoint of the step exports exactly these files, or was made of them.
    fn is_held(&self, set: &FileSet) -> bool {
        let held = self.held(set.step);
        let Some(newest) = held.first() else {
            return false;
        };
        let mut names: Vec<&str> = newest.files().map(|(name, ..)| name).collect();
        names.sort_unstable();
        // A set that cannot be read back is taken again.
        let same = |name: &str| {
            let path = self.settings.folder.join(name);
            let held = match self.settings.ingest.error_bounds.is_empty() {
                true => newest.gives(name, &path),
                false => newest.took(name, &path, self.settings.ingest.raw.as_ref()),
            };
            held.unwrap_or(false)
        };
        names.iter().copied().eq(set.files.keys()) && names.into_iter().all(same)
    }

    /// The ranks of a set are decided once it is complete, from all of its files; late files that join decide them anew.
    fn rank_files(&self, set: &FileSet) -> Result<Vec<RankFile>> {
        let file = |name: &String| (name.clone(), self.settings.folder.join(name));
        let files: Vec<_> = set.files.keys().map(file).collect();
        self.settings.rules.rank_files_of_step(&files)
    }

    /// Ranks begin with 0 or 1. If the numbers behind the steps do not, the last number may be the step.
    fn tell_odd_ranks(&mut self, set: &FileSet) {
        let rules = &self.settings.rules;
        let read = |name: &String| rules.read(name).ok().map(|named| (named.rank, name.clone()));
        let first = set.files.keys().filter_map(read).min();
        let Some((rank, name)) = first.filter(|(rank, _)| *rank > 1) else { return };
        if rules.guesses_ranks() && !std::mem::replace(&mut self.told_ranks, true) {
            self.tell(WatchEvent::Note(&format!(
                "{name} was read as step {}, with {rank} in the place of a rank: if the last number is the step, give \
                 --no-ranks",
                set.step
            )));
        }
    }

    fn ingest(&mut self, set: &FileSet, files: &[RankFile]) -> Result<Manifest> {
        let mut ingest = match self.ingest.take() {
            Some(ingest) => ingest,
            // Somebody who prunes may have the run for a while: that passes.
            None => self.open_ingest().map_err(|error| match error.kind() {
                ErrorKind::Busy => Error::new(ErrorKind::Io, error.to_string()),
                _ => error,
            })?,
        };
        let still = || match self.is_still(set) {
            true => Ok(()),
            false => Err(Error::new(ErrorKind::Busy, "a file changed while it was read")),
        };
        let manifest = ingest.take_if(set.step, files, &|_, _| {}, &still)?;
        // One that failed is not kept: opening the run again removes what it left behind.
        self.ingest = Some(ingest);
        Ok(manifest)
    }

    fn tell_taken(&self, set: &FileSet, files: &[RankFile], manifest: &Manifest) {
        let place = &Place { step: Some(set.step), ..self.settings.place.clone() };
        let bytes = set.files.values().map(|stamp| stamp.size).sum();
        self.tell(WatchEvent::Taken { place, files, bytes, manifest });
    }

    /// A failure that cannot be helped ends the service; a set that cannot be taken stays; the rest is tried
    /// again, later and later.
    pub(super) fn trouble(&mut self, set: &FileSet, error: Error) -> Result<()> {
        if !self.is_still(set) {
            set.files.keys().for_each(|name| self.look(name));
            return Ok(());
        }
        match error.kind() {
            ErrorKind::Busy => return Err(error),
            ErrorKind::Usage | ErrorKind::Limit | ErrorKind::Mismatch => {
                self.sets.refuse(set.step);
                self.tell(WatchEvent::Refused { step: set.step, error: &error });
            }
            kind => {
                let pause = self.sets.later(set.step, self.now());
                // Others would not fit either.
                if kind == ErrorKind::Full {
                    self.resume = self.now() + pause;
                }
                self.tell(WatchEvent::Retry { step: set.step, pause, error: &error });
            }
        }
        Ok(())
    }

    /// Removes originals that are in the run; what turns out not to be waits to be taken.
    pub(super) fn remove_leftovers(&mut self) {
        for (step, mut files) in std::mem::take(&mut self.leftovers) {
            files.sort_by(|a, b| a.0.cmp(&b.0));
            files.dedup();
            let held = self.held(step);
            let fates = remove(&self.settings.folder, &files, &held, self.probe.as_ref());
            for (name, stamp, fate) in fates {
                match fate {
                    Ok(Fate::Removed) => {
                        self.sets.gone(step, &name);
                        let named = self.settings.rules.read(&name);
                        let end = named.map_or(usize::MAX, |named| named.step_folder);
                        remove_folders(&self.settings.folder, &name, end);
                    }
                    Ok(Fate::Changed) => self.look(&name),
                    // It is seen again when it is closed, and whenever everything is listed.
                    Ok(Fate::Open) => {}
                    Ok(Fate::NotHeld) => self.sets.mistaken(step, &name, stamp, self.now()),
                    Err(error) => {
                        self.tell(WatchEvent::NotRemoved { file: &name, error: &error });
                        self.kept.insert((name, stamp));
                    }
                }
            }
        }
    }

    /// Removes folders that a service has emptied which was killed before it removed them: those that files of the run
    /// were in. Other empty folders are the program's.
    pub(super) fn remove_empty_folders(&self) {
        for name in empty_folders(&self.settings.folder) {
            let file = format!("{name}/0");
            let Ok(named) = self.settings.rules.read(&file) else { continue };
            let inside = |held: &str| Path::new(held).parent() == Some(Path::new(&name));
            let held = self.held(named.step);
            if held.iter().flat_map(HeldSet::files).any(|(held, ..)| inside(held)) {
                remove_folders(&self.settings.folder, &file, named.step_folder);
            }
        }
    }

    /// Whether the files of a set are as they were when it was complete.
    pub(super) fn is_still(&self, set: &FileSet) -> bool {
        let same = |(name, stamp): (&String, &FileStamp)| {
            FileStamp::of(&self.settings.folder.join(name)) == Some(*stamp)
        };
        set.files.iter().all(same)
    }
}

/// Why a file is incomplete. Files that are ingested as bytes are not looked into, and an error is
/// reported when the file is ingested.
fn lacks_bytes(path: &Path, merge: Merge) -> Option<String> {
    match merge {
        Merge::Files => None,
        _ => unfinished(path).ok().flatten(),
    }
}
