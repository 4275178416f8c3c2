//! The catalogue of a run: its sequence numbers, and the entries behind them.
//!
//! The law: an entry belongs to the run only if no opening contradicts it. A writer commits behind its own
//! opening and before any later one; an entry behind another's opening, or behind one of the same number
//! but another random number (somebody replaced the store while an old job was writing), is a *stray*. It
//! is never listed, restored or built on.

mod groups;
mod openings;

pub(crate) use groups::{FullManifest, read_group};
pub(crate) use openings::{EndOfLog, remove_stale_openings};

use crate::array::{Sequence, Step};
use crate::error::{Error, ErrorKind, Result};
use crate::format::{LogEntry, Manifest, Names, Origin, PackName, check_run_name};
use crate::store::{Store, read_small};
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard};

/// The first number of a log.
const FIRST: Sequence = Sequence(1);

/// Entries that were read before. They never change while the run exists, so they are read once.
#[derive(Clone, Default)]
pub(crate) struct KnownEntries(Arc<Mutex<EntriesOfRun>>);

#[derive(Default)]
struct EntriesOfRun {
    entries: HashMap<Sequence, LogEntry>,
    /// An opening of the run, as it was written. Another run may have taken the name since, whose entries have the same
    /// numbers; its openings have other random numbers.
    opening: Option<(Sequence, Vec<u8>)>,
}

impl KnownEntries {
    fn held(&self) -> MutexGuard<'_, EntriesOfRun> {
        self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

/// The log of a run as it was when it was listed.
pub(crate) struct Log {
    store: Arc<dyn Store>,
    run: String,
    names: Names,
    known: KnownEntries,
    /// Ascending.
    pub(crate) sequences: Vec<Sequence>,
    /// The sequence numbers of openings, ascending.
    pub(crate) openings: Vec<Sequence>,
}

/// Everything that a log holds.
#[derive(Default)]
pub(crate) struct Survey {
    /// The checkpoints that can be read, ascending.
    pub(crate) manifests: Vec<Manifest>,
    /// Entries that may be checkpoints and cannot be read.
    pub(crate) unreadable: Vec<(Sequence, Error)>,
    /// Entries that cannot be read and are surely no checkpoints.
    pub(crate) others: Vec<Error>,
    /// Entries that a writer left which did not have the run any more.
    pub(crate) strays: Vec<Sequence>,
}

impl Log {
    pub(crate) fn read(store: Arc<dyn Store>, run: &str) -> Result<Log> {
        Self::list(store, run, KnownEntries::default())
    }

    /// Lists the log again; entries that are known are not read again.
    pub(crate) fn read_beside(
        store: Arc<dyn Store>,
        run: &str,
        known: KnownEntries,
    ) -> Result<Log> {
        let log = Self::list(store, run, known)?;
        let written = |opening: Sequence| {
            let blob = log.store.open(&log.names.opening(opening))?;
            Ok((opening, read_small(blob.as_ref())?))
        };
        let known = log.known.held().opening.clone();
        let still = known.as_ref().and_then(|(opening, _)| written(*opening).ok());
        if known.is_none() || known != still {
            let newest = log.openings.last().map(|opening| written(*opening));
            let newest: Option<Result<_>> = newest;
            *log.known.held() =
                EntriesOfRun { entries: HashMap::new(), opening: newest.and_then(Result::ok) };
        }
        Ok(log)
    }

    fn list(store: Arc<dyn Store>, run: &str, known: KnownEntries) -> Result<Log> {
        let names = Names::new(run);
        let numbers = |folder: &str| -> Result<Vec<Sequence>> {
            let items = store.list(folder)?;
            let mut numbers: Vec<Sequence> =
                items.iter().filter_map(|item| Names::parse_entry(&item.name)).collect();
            numbers.sort_unstable();
            Ok(numbers)
        };
        // A writer announces its opening before it does anything else; so the entries come first.
        let sequences = numbers(&names.log())?;
        let openings = numbers(&names.openings())?;
        Ok(Log { store, run: run.to_string(), names, known, sequences, openings })
    }

    /// The entry of a sequence number; the last tier, which all writers share, is asked first.
    pub(crate) fn entry(&self, sequence: Sequence) -> Result<LogEntry> {
        if let Some(known) = self.known.held().entries.get(&sequence) {
            return Ok(known.clone());
        }
        let key = self.names.entry(sequence);
        let mut trouble = Error::new(ErrorKind::NotFound, "an entry of the log is gone").at(&key);
        for copy in self.store.copies(&key).into_iter().rev() {
            let read = copy.and_then(|copy| {
                let entry = read_small(copy.as_ref()).and_then(|b| self.parse(sequence, &b));
                entry.map_err(|error| error.at(format!("{} in {}", key, copy.store())))
            });
            match read {
                Ok(entry) => {
                    self.known.held().entries.insert(sequence, entry.clone());
                    return Ok(entry);
                }
                // An error of access says that the entry may be fine; damage in another copy does not.
                Err(error) if trouble.kind() != ErrorKind::Io => trouble = error.at(&key),
                Err(_) => {}
            }
        }
        Err(trouble)
    }

    fn parse(&self, sequence: Sequence, bytes: &[u8]) -> Result<LogEntry> {
        let entry = LogEntry::parse(bytes)?;
        let (run, number, _) = entry.head();
        match run == self.run && number == sequence {
            true => Ok(entry),
            false => {
                Err(Error::damaged(format!("this file belongs to {run} number {number}, not here")))
            }
        }
    }

    /// The manifest of a sequence number; `None` for an entry that is no checkpoint of this run.
    pub(crate) fn manifest(&self, sequence: Sequence) -> Result<Option<Manifest>> {
        let manifest = self.entry(sequence)?.into_manifest();
        Ok(manifest.filter(|manifest| !self.is_stray(manifest)))
    }

    /// The same for a manifest of one step; `None` for one of another step. Known parts are not copied.
    pub(crate) fn manifest_of(
        &self,
        sequence: Sequence,
        step: Option<Step>,
    ) -> Result<Option<Manifest>> {
        let other = |m: &Manifest| step.is_some_and(|step| step != m.step);
        match self.known.held().entries.get(&sequence) {
            Some(LogEntry::Manifest(manifest)) if other(manifest) => return Ok(None),
            _ => {}
        }
        Ok(self.manifest(sequence)?.filter(|manifest| !other(manifest)))
    }

    /// Whether an opening contradicts a manifest: one between its writer's and itself, or another one in
    /// the place of its writer's. Where there are openings, its writer's is one of them, unless the run was copied or
    /// branched off: then the first number was its writer's.
    fn is_stray(&self, manifest: &Manifest) -> bool {
        let own = manifest.writer.opening;
        if self.openings.iter().any(|other| own < *other && *other < manifest.sequence) {
            return true;
        }
        let lists = [&self.sequences, &self.openings];
        let may_be_absent = own <= FIRST || self.openings.is_empty();
        if may_be_absent && lists.iter().all(|list| list.binary_search(&own).is_err()) {
            return false;
        }
        match self.opening(own) {
            Ok(Some(opening)) => opening.writer != manifest.writer,
            // Another entry has its number, or none.
            Ok(None) => !may_be_absent,
            // It may be its own.
            Err(_) => false,
        }
    }

    /// All manifests that can be read, ascending, and what is wrong with the others.
    pub(crate) fn manifests(&self) -> (Vec<Manifest>, Vec<Error>) {
        let survey = self.survey();
        let unreadable = survey.unreadable.into_iter().map(|(_, error)| error);
        (survey.manifests, unreadable.chain(survey.others).collect())
    }

    /// Reads the whole log.
    pub(crate) fn survey(&self) -> Survey {
        let mut survey = Survey::default();
        for &sequence in &self.sequences {
            match self.entry(sequence) {
                Ok(LogEntry::Opening(_) | LogEntry::Mark(_)) => {}
                Ok(LogEntry::Manifest(manifest)) => match self.is_stray(&manifest) {
                    true => survey.strays.push(sequence),
                    false => survey.manifests.push(*manifest),
                },
                Err(error) if self.is_surely_no_manifest(sequence) => survey.others.push(error),
                Err(error) => survey.unreadable.push((sequence, error)),
            }
        }
        survey
    }

    /// Whether an entry that cannot be read is surely no manifest.
    pub(crate) fn is_surely_no_manifest(&self, sequence: Sequence) -> bool {
        let copies = self.store.copies(&self.names.entry(sequence));
        copies.iter().flatten().any(|copy| {
            read_small(copy.as_ref()).is_ok_and(|bytes| LogEntry::is_surely_no_manifest(&bytes))
        })
    }

    /// The checkpoint that stands for `parent`: itself, or, if it was pruned, the next older one.
    pub(crate) fn ancestor(&self, parent: Sequence) -> Option<Sequence> {
        let older = self.sequences.iter().rev().filter(|s| **s <= parent);
        older.copied().find(|s| !matches!(self.manifest(*s), Ok(None)))
    }

    /// The checkpoint before another one in its lineage; if its manifest cannot be read, the next older.
    pub(crate) fn before(
        &self,
        sequence: Sequence,
        manifest: Option<&Manifest>,
    ) -> Option<Sequence> {
        let parent = manifest.and_then(|m| m.parent.as_ref());
        match parent {
            Some(Origin { run: Some(_), .. }) => None,
            Some(parent) if parent.sequence < sequence => self.ancestor(parent.sequence),
            Some(_) => None,
            None if manifest.is_some() => None,
            None => self.older(sequence),
        }
    }

    /// The next older checkpoint, of whatever lineage.
    pub(crate) fn older(&self, sequence: Sequence) -> Option<Sequence> {
        sequence.0.checked_sub(1).and_then(|older| self.ancestor(Sequence(older)))
    }

    /// The epoch of the newest checkpoint that can be read.
    pub(crate) fn newest_epoch(&self) -> Option<Origin> {
        let newest_first = self.sequences.iter().rev();
        newest_first.filter_map(|s| self.manifest(*s).ok().flatten()).map(|m| m.epoch).next()
    }

    /// Adds entries behind the newest that was listed, up to a number that is in use: where listings come late, entries
    /// are found by their names.
    pub(crate) fn look_up_to(&mut self, newest: Sequence) -> Result<()> {
        for number in (self.newest().0 + 1..=newest.0).map(Sequence) {
            match self.store.open(&self.names.entry(number)) {
                Ok(_) => self.sequences.push(number),
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// The newest sequence number; 0 before the first.
    pub(crate) fn newest(&self) -> Sequence {
        self.sequences.last().copied().unwrap_or_default()
    }
}

/// The sequence numbers from which the newest checkpoint descends, its own included. Where a parent
/// was pruned, the next older checkpoint stands for it.
pub(crate) fn lineage(manifests: &[Manifest]) -> HashSet<Sequence> {
    let mut line = HashSet::new();
    let mut next = manifests.len().checked_sub(1);
    while let Some(at) = next {
        let manifest = &manifests[at];
        line.insert(manifest.sequence);
        let parent = manifest.parent.as_ref().filter(|p| p.run.is_none()).map(|p| p.sequence);
        next = parent.and_then(|p| manifests[..at].iter().rposition(|m| m.sequence <= p));
    }
    line
}

/// The names of all runs in a store.
pub(crate) fn runs(store: &dyn Store) -> Result<Vec<String>> {
    let items = store.list(Names::RUNS)?;
    let folders = items.into_iter().filter(|item| item.folder).map(|item| item.name);
    Ok(folders.filter(|name| check_run_name(name).is_ok()).collect())
}

/// Every pack of `of` that a manifest of any run names; an error if a manifest cannot be read.
pub(crate) fn named_packs(store: &Arc<dyn Store>, of: &str) -> Result<HashSet<PackName>> {
    let mut named = HashSet::new();
    for run in runs(store.as_ref())? {
        let mut survey = Log::read(store.clone(), &run)?.survey();
        let full = survey.take_full(store.as_ref());
        if let Some((_, error)) = survey.unreadable.into_iter().next() {
            return Err(error);
        }
        let packs = full.iter().flat_map(FullManifest::packs);
        named.extend(packs.filter(|(run, _)| run == of).map(|(_, pack)| pack));
    }
    Ok(named)
}

/// Makes durable whatever was removed from the log of any run. A pack is removed because no manifest
/// names it; so no manifest may come back.
pub(crate) fn settle_logs(store: &Arc<dyn Store>) -> Result<()> {
    let names = runs(store.as_ref())?;
    names.iter().map(|run| Names::new(run)).try_for_each(|names| {
        store.settle(&names.log())?;
        store.settle(&names.bundles())
    })
}
