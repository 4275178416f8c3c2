//! Whose entries a log holds: its openings, and which of them anything follows.
//!
//! A writer is known by its opening: the number and a random number that only this opening has. What a node holds under
//! the name of a run may be another run's, which had the name before or has it in another store; it is told by the random
//! number, and is neither used nor removed.

use super::Log;
use crate::array::Sequence;
use crate::error::{Error, ErrorKind, Result};
use crate::format::{LogEntry, Names, Opening, WriterId};
use crate::store::{Store, read_small};
use std::collections::BTreeSet;

/// Whether an object is as good as absent: gone, or damaged.
fn is_lost(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::NotFound | ErrorKind::Damaged)
}

impl Log {
    /// The opening under a number, or `None` if another entry has it. There are two copies of each, so that damage to one
    /// is no reason to doubt it.
    pub(crate) fn opening(&self, number: Sequence) -> Result<Option<Opening>> {
        let trouble = match self.entry(number) {
            Ok(LogEntry::Opening(opening)) => return Ok(Some(opening)),
            Ok(_) => return Ok(None),
            Err(error) if is_lost(&error) => error,
            Err(error) => return Err(error),
        };
        let read = self.store.open(&self.names.opening(number));
        let read = read.and_then(|blob| read_small(blob.as_ref()));
        match read.and_then(|bytes| Opening::parse(&bytes)) {
            Ok(opening) if opening.run == self.run && opening.writer.opening == number => {
                Ok(Some(opening))
            }
            Err(error) if error.kind() == ErrorKind::NotFound => match trouble.kind() {
                ErrorKind::NotFound => Ok(None),
                _ => Err(trouble),
            },
            Err(error) if !is_lost(&error) => Err(error),
            _ => Err(trouble),
        }
    }

    /// The newest opening; `None` if there is none, or if both copies of it are damaged.
    pub(crate) fn newest_opening(&self) -> Result<Option<Opening>> {
        match self.openings.last().map(|number| self.opening(*number)) {
            None => Ok(None),
            Some(Err(error)) if is_lost(&error) => Ok(None),
            Some(found) => found,
        }
    }

    /// Whether a writer has opened this run, and no other one of the same name. An opening that cannot be read is taken for
    /// its own.
    pub(crate) fn was_opened_by(&self, writer: WriterId) -> Result<bool> {
        match self.opening(writer.opening) {
            Ok(opening) => Ok(opening.is_some_and(|opening| opening.writer == writer)),
            Err(error) if is_lost(&error) => Ok(true),
            Err(error) => Err(error),
        }
    }
}

/// The newest entries of a log, behind which it has no checkpoint: openings, and marks of numbers that a writer has used for
/// none. A writer marks the numbers of checkpoints that stay on nodes, too, before it commits a later one, and may die
/// between. None of them keeps a checkpoint on a node from going on.
pub(crate) struct EndOfLog<'l> {
    log: &'l Log,
    /// Openings that have made nothing.
    idle: BTreeSet<Sequence>,
    marks: BTreeSet<Sequence>,
}

impl<'l> EndOfLog<'l> {
    pub(crate) fn of(log: &'l Log) -> Result<EndOfLog<'l>> {
        let mut end = EndOfLog { log, idle: BTreeSet::new(), marks: BTreeSet::new() };
        for number in log.sequences.iter().rev().copied() {
            // One that was not announced any more is read.
            match log.openings.contains(&number) {
                true => drop(end.idle.insert(number)),
                false => match log.entry(number) {
                    Ok(LogEntry::Opening(_)) => drop(end.idle.insert(number)),
                    Ok(LogEntry::Mark(_)) => drop(end.marks.insert(number)),
                    Err(error) if !is_lost(&error) => return Err(error),
                    _ => break,
                },
            }
        }
        Ok(end)
    }

    pub(crate) fn is_idle(&self, opening: Sequence) -> bool {
        self.idle.contains(&opening)
    }

    /// Takes note that an opening has made something, if not here.
    pub(crate) fn has_made(&mut self, opening: Sequence) {
        self.idle.remove(&opening);
    }

    /// The newest number that counts; 0 if there is none.
    pub(crate) fn used(&self) -> Sequence {
        let counts =
            |number: &&Sequence| !self.idle.contains(number) && !self.marks.contains(number);
        self.log.sequences.iter().rev().find(counts).copied().unwrap_or_default()
    }

    /// Whether somebody has opened the run, and made something, after a writer and before its checkpoint of that number.
    pub(crate) fn overtakes(&self, own: Sequence, number: Sequence) -> bool {
        let mut counting = self.log.openings.iter().filter(|other| !self.idle.contains(other));
        counting.any(|other| own < *other && *other <= number)
    }

    /// Whether an opening that has made nothing stands between a writer and its checkpoint of that number.
    pub(crate) fn is_idle_between(&self, own: Sequence, number: Sequence) -> bool {
        self.idle.iter().any(|other| own < *other && *other <= number)
    }

    /// Whether a checkpoint that a node holds may still go on to the last tier.
    pub(crate) fn waits(&self, writer: WriterId, number: Sequence) -> Result<bool> {
        let goes_on = number > self.used() && !self.overtakes(writer.opening, number);
        Ok(goes_on && self.log.was_opened_by(writer)?)
    }
}

/// Removes announcements of openings behind the end of the log: what an interrupted removal of an earlier run of this name
/// has left. An opening is in the log before it is announced. Those before the end stay, because checkpoints that the log has
/// may be of openings whose entries are lost. Whether there were any.
pub(crate) fn remove_stale_openings(store: &dyn Store, log: &Log) -> Result<bool> {
    let names = Names::new(&log.run);
    let mut stale = Vec::new();
    for number in log.openings.iter().filter(|number| **number > log.newest()) {
        match store.open(&names.entry(*number)) {
            Err(error) if error.kind() == ErrorKind::NotFound => stale.push(names.opening(*number)),
            opened => drop(opened?),
        }
    }
    if stale.is_empty() {
        return Ok(false);
    }
    store.delete(&stale)?;
    store.settle(&names.openings())?;
    Ok(true)
}
