//! Making a checkpoint appear in a store: its manifest under its sequence number.
//!
//! The law: in the last tier a writer commits its numbers in order and without gaps, so that whoever has
//! taken the run since stands at the very number it would use next. A writer that has lost its run, or
//! whose opening is gone from the store, stops for good: it writes nothing more, not even packs.

use crate::array::Sequence;
use crate::error::{Error, ErrorKind, Result};
use crate::format::{Branch, FAN, LogEntry, Manifest, Mark, Names, Opening, WriterId};
use crate::points::reach;
use crate::store::{Store, read_small};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether the writer has lost its run; shared by all its threads.
#[derive(Clone, Default)]
pub(crate) struct Fence(Arc<AtomicBool>);

impl Fence {
    /// Refuses to go on when somebody else has taken the run over.
    pub(crate) fn check(&self) -> Result<()> {
        match self.0.load(Ordering::SeqCst) {
            true => Err(overtaken()),
            false => Ok(()),
        }
    }

    fn raise<T>(&self, error: Error) -> Result<T> {
        self.0.store(true, Ordering::SeqCst);
        Err(error)
    }
}

pub(super) fn overtaken() -> Error {
    Error::new(ErrorKind::Busy, "another process has taken this run over")
        .hint("end this one; it must not write any more")
}

/// The log of a run in one tier, as its writer sees it.
pub(crate) struct LogWriter {
    store: Arc<dyn Store>,
    names: Names,
    opening: Opening,
    /// Whether this is the last tier, which has the opening and every number.
    last: bool,
    /// The newest number that is in use there.
    committed: Sequence,
    fence: Fence,
}

impl LogWriter {
    pub(crate) fn new(store: Arc<dyn Store>, opening: Opening, last: bool, fence: Fence) -> Self {
        let (names, committed) = (Names::new(&opening.run), opening.writer.opening);
        LogWriter { store, names, opening, last, committed, fence }
    }

    pub(crate) fn writer(&self) -> WriterId {
        self.opening.writer
    }

    /// The newest number that is in use.
    pub(crate) fn committed(&self) -> Sequence {
        self.committed
    }

    /// Makes sure that this writer still has the run, before anything is written.
    pub(crate) fn check(&self) -> Result<()> {
        self.fence.check()?;
        if !self.last {
            return Ok(());
        }
        let key = self.names.entry(self.writer().opening);
        let gone = |kind, what: &str| {
            Error::new(kind, what).at(format!("{key} in {}", self.store.name())).hint(
                "the store was removed, moved or replaced: put it back, or end this program and \
                 start it again on the store that it should use",
            )
        };
        match self.store.open(&key).and_then(|blob| read_small(blob.as_ref())) {
            Ok(bytes) if bytes == self.opening.write() => {}
            Ok(_) => {
                let what = "another run stands where this one was opened";
                return self.fence.raise(gone(ErrorKind::Busy, what));
            }
            // It may be back when the next checkpoint comes.
            Err(error) if error.kind() == ErrorKind::NotFound => {
                let what = "the opening of this run is gone from its store";
                return Err(gone(ErrorKind::NotFound, what));
            }
            Err(error) => return Err(error),
        }
        match self.store.open(&self.names.entry(self.committed.next())) {
            Ok(_) => self.look(self.committed.next()).map(drop),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Commits a manifest under its number.
    pub(crate) fn commit(&mut self, manifest: &Manifest) -> Result<()> {
        self.fill_up_to(manifest.sequence)?;
        let bytes = match self.last {
            true => with_branches(self.store.as_ref(), &self.names, manifest.clone())?.write(),
            // One file moves on.
            false => manifest.write(),
        };
        let key = self.names.entry(manifest.sequence);
        if !self.store.commit(&key, &bytes)? {
            self.look(manifest.sequence)?;
            let there = self.store.open(&key).and_then(|blob| read_small(blob.as_ref()))?;
            // An earlier commit may have come through although it was reported as failed.
            if there != bytes {
                return Err(Error::new(ErrorKind::Lost, "the number of a checkpoint is in use")
                    .at(key)
                    .hint("the next checkpoint takes another one"));
            }
            // Its name may not be durable yet.
            self.store.settle(&self.names.log())?;
        }
        self.committed = manifest.sequence;
        reach("manifest-committed");
        Ok(())
    }

    /// Takes note of what other ranks of this writer have committed.
    pub(crate) fn catch_up(&mut self) -> Result<()> {
        self.fence.check()?;
        loop {
            match self.look(self.committed.next()) {
                Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
                done => done?,
            }
            self.committed = self.committed.next();
        }
    }

    /// The same where entries may have been removed. Numbers are used without gaps, so one that is not there before
    /// one that is was removed since. This lists the log, so it is only for whoever lacks an entry.
    pub(crate) fn catch_up_over_gaps(&mut self) -> Result<()> {
        self.fence.check()?;
        let newest = format!("{:012}", self.committed.0);
        let items = self.store.list_after(&self.names.log(), &newest)?;
        for number in items.iter().filter_map(|item| Names::parse_entry(&item.name)) {
            match self.look(number) {
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                done => done?,
            }
            self.committed = self.committed.max(number);
        }
        Ok(())
    }

    /// The numbers before another one that are in no use yet.
    pub(crate) fn missing_before(&self, end: Sequence) -> Vec<Sequence> {
        (self.committed.0 + 1..end.0).map(Sequence).collect()
    }

    /// Whether an entry of this writer holds no checkpoint.
    pub(crate) fn is_mark(&self, sequence: Sequence) -> Result<bool> {
        let blob = self.store.open(&self.names.entry(sequence));
        match blob.and_then(|blob| read_small(blob.as_ref())) {
            Ok(bytes) => Ok(matches!(LogEntry::parse(&bytes), Ok(LogEntry::Mark(_)))),
            // It was pruned, or put into a bundle: it was a checkpoint.
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Marks the numbers of saves that failed.
    fn fill_up_to(&mut self, end: Sequence) -> Result<()> {
        while self.last && self.committed.next() < end {
            let sequence = self.committed.next();
            let (run, writer) = (self.opening.run.clone(), self.writer());
            let mark = Mark { run, sequence, writer };
            if !self.store.commit(&self.names.entry(sequence), &mark.write())? {
                self.look(sequence)?;
            }
            self.committed = sequence;
        }
        Ok(())
    }

    /// Looks at an entry that stands where one of this writer was to be.
    fn look(&self, sequence: Sequence) -> Result<()> {
        let key = self.names.entry(sequence);
        let bytes = self.store.open(&key).and_then(|blob| read_small(blob.as_ref()))?;
        match LogEntry::parse(&bytes) {
            Ok(LogEntry::Opening(_)) => self.fence.raise(overtaken()),
            // An entry of a writer without an opening here is a stray, and takes nothing over.
            Ok(_) => Ok(()),
            Err(_) if Opening::is_magic(&bytes) => self.fence.raise(overtaken()),
            Err(error) => Err(error.at(key)),
        }
    }
}

/// Publishes the branches of a manifest with more groups than it can hold; the manifest that is left.
pub(crate) fn with_branches(
    store: &dyn Store,
    names: &Names,
    manifest: Manifest,
) -> Result<Manifest> {
    if manifest.is_small() {
        return Ok(manifest);
    }
    let (branches, manifest) = manifest.split(FAN)?;
    branches.iter().try_for_each(|branch| commit_once(store, names, branch))?;
    Ok(manifest)
}

/// Publishes a branch or a section; it may be there already.
pub(crate) fn commit_once(store: &dyn Store, names: &Names, branch: &Branch) -> Result<()> {
    let (key, bytes) = (names.branch(branch.name()), branch.write());
    if store.commit(&key, &bytes)? {
        return Ok(());
    }
    let there = store.open(&key).and_then(|blob| read_small(blob.as_ref()));
    match there {
        Ok(there) if there != bytes => {
            Err(Error::new(ErrorKind::Io, "the section or branch of a checkpoint is in use")
                .at(key))
        }
        // An earlier try may have come this far, and its name may not be durable yet.
        Ok(_) => store.settle(key.rsplit_once('/').map_or("", |(folder, _)| folder)),
        // Others may have made what stands above a section, and removed it.
        Err(_) => Ok(()),
    }
}
