//! Reading the log of a run: which sequence numbers there are, and what stands behind them.

use crate::error::{Error, ErrorKind, Result};
use crate::format::{LogEntry, Manifest, Names, Opening, PackName, check_run_name};
use crate::store::{Store, read_small};
use std::collections::HashSet;
use std::sync::Arc;

/// The log of a run as it was when it was listed.
pub(crate) struct Log {
    store: Arc<dyn Store>,
    run: String,
    names: Names,
    /// Ascending.
    pub(crate) sequences: Vec<u64>,
}

impl Log {
    pub(crate) fn read(store: Arc<dyn Store>, run: &str) -> Result<Log> {
        let names = Names::new(run);
        let items = store.list(&names.log())?;
        let mut sequences: Vec<u64> =
            items.iter().filter_map(|item| Names::parse_entry(&item.name)).collect();
        sequences.sort_unstable();
        Ok(Log { store, run: run.to_string(), names, sequences })
    }

    /// What stands behind a sequence number; the last tier, which all writers share, is asked first.
    pub(crate) fn entry(&self, sequence: u64) -> Result<LogEntry> {
        let key = self.names.entry(sequence);
        let copies = self.store.copies(&key);
        // Without any copy, opening it tells why: it may be there and not be ours to read.
        let mut trouble = match copies.is_empty() {
            true => self.store.open(&key).err(),
            false => None,
        }
        .unwrap_or_else(|| Error::new(ErrorKind::NotFound, "it is gone").at(&key));
        for copy in copies.iter().rev() {
            let read = read_small(copy.as_ref()).and_then(|bytes| self.parse(sequence, &bytes));
            match read {
                Ok(entry) => return Ok(entry),
                Err(error) => trouble = error.at(format!("{} in {}", key, copy.store())),
            }
        }
        Err(trouble)
    }

    fn parse(&self, sequence: u64, bytes: &[u8]) -> Result<LogEntry> {
        let entry = LogEntry::parse(bytes)?;
        let (run, number) = match &entry {
            LogEntry::Opening(opening) => (&opening.run, opening.sequence),
            LogEntry::Manifest(manifest) => (&manifest.run, manifest.sequence),
        };
        match *run == self.run && number == sequence {
            true => Ok(entry),
            false => {
                Err(Error::damaged(format!("this file belongs to {run} number {number}, not here")))
            }
        }
    }

    /// The manifest of a sequence number, or `None` for an opening.
    pub(crate) fn manifest(&self, sequence: u64) -> Result<Option<Manifest>> {
        match self.entry(sequence)? {
            LogEntry::Opening(_) => Ok(None),
            LogEntry::Manifest(manifest) => Ok(Some(*manifest)),
        }
    }

    /// All manifests that can be read, ascending, and what is wrong with the others.
    pub(crate) fn manifests(&self) -> (Vec<Manifest>, Vec<Error>) {
        let (mut good, mut bad) = (Vec::new(), Vec::new());
        for &sequence in &self.sequences {
            match self.manifest(sequence) {
                Ok(manifest) => good.extend(manifest),
                Err(error) => bad.push(error),
            }
        }
        (good, bad)
    }

    /// All manifests, and the entries that cannot be read and may be manifests, too: nobody knows
    /// what those name. One pass, because an entry that could be read a moment ago may not be now.
    pub(crate) fn survey(&self) -> (Vec<Manifest>, Vec<(u64, Error)>) {
        let (mut manifests, mut unknown) = (Vec::new(), Vec::new());
        for &sequence in &self.sequences {
            match self.manifest(sequence) {
                Ok(manifest) => manifests.extend(manifest),
                Err(_) if self.looks_like_opening(sequence) => {}
                Err(error) => unknown.push((sequence, error)),
            }
        }
        (manifests, unknown)
    }

    /// Whether an entry that cannot be read is surely no manifest.
    pub(crate) fn looks_like_opening(&self, sequence: u64) -> bool {
        let copies = self.store.copies(&self.names.entry(sequence));
        copies.iter().any(|copy| read_small(copy.as_ref()).is_ok_and(|b| Opening::is_magic(&b)))
    }

    /// The checkpoint that stands for `parent`: itself, or, if it was pruned, the next older one.
    pub(crate) fn ancestor(&self, parent: u64) -> Option<u64> {
        let older = self.sequences.iter().rev().filter(|s| **s <= parent);
        older.copied().find(|s| !matches!(self.manifest(*s), Ok(None)))
    }

    /// The sequence number of the newest opening: the writer that may be at work.
    pub(crate) fn newest_writer(&self) -> Option<u64> {
        let is_opening = |s: &&u64| matches!(self.entry(**s), Ok(LogEntry::Opening(_)));
        self.sequences.iter().rev().find(is_opening).copied()
    }

    /// The newest sequence number; 0 before the first.
    pub(crate) fn newest(&self) -> u64 {
        self.sequences.last().copied().unwrap_or(0)
    }
}

/// The sequence numbers from which the newest checkpoint descends, its own included. Where a parent
/// was pruned, the next older checkpoint stands for it.
pub(crate) fn lineage(manifests: &[Manifest]) -> HashSet<u64> {
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

/// Every pack that any manifest of any run names; an error if one cannot be read.
pub(crate) fn named_packs(store: &Arc<dyn Store>) -> Result<HashSet<(String, PackName)>> {
    let mut named = HashSet::new();
    for run in runs(store.as_ref())? {
        let (manifests, unknown) = Log::read(store.clone(), &run)?.survey();
        if let Some((_, error)) = unknown.into_iter().next() {
            return Err(error);
        }
        manifests.iter().for_each(|manifest| named.extend(packs_of(manifest)));
    }
    Ok(named)
}

/// The packs that a manifest names.
pub(crate) fn packs_of(manifest: &Manifest) -> impl Iterator<Item = (String, PackName)> {
    let groups = manifest.groups.iter().enumerate();
    groups.flat_map(|(number, group)| {
        group.names(number as u32).map(|(run, name)| (run.to_string(), name))
    })
}

/// Makes durable whatever was removed from the log of any run. Whoever is about to remove a pack
/// because no manifest names it must be sure that none comes back.
pub(crate) fn settle_logs(store: &Arc<dyn Store>) -> Result<()> {
    for run in runs(store.as_ref())? {
        // There is no number 0: this removes nothing, and makes that durable.
        store.delete(&[Names::new(&run).entry(0)])?;
    }
    Ok(())
}
