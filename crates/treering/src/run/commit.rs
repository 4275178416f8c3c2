//! Making a checkpoint appear: its manifest under the next sequence number.

use super::open::Opened;
use super::options::Options;
use crate::error::{Error, ErrorKind, Result};
use crate::format::{LogEntry, Manifest, Names, Origin};
use crate::log::Log;
use crate::store::Store;
use std::sync::Arc;

/// Writes the log of a run that this process has taken.
pub(crate) struct LogWriter {
    /// All tiers, for reading.
    pub(crate) store: Arc<dyn Store>,
    /// The tier that saves go to first.
    pub(crate) first: Arc<dyn Store>,
    pub(crate) run: String,
    /// The opening, which names this writer.
    pub(crate) writer: u64,
    /// The newest sequence number that is in use.
    pub(crate) sequence: u64,
}

impl LogWriter {
    pub(crate) fn new(options: &Options, opened: &Opened) -> Self {
        LogWriter {
            store: opened.store.clone(),
            first: options.node.clone().unwrap_or_else(|| options.shared.clone()),
            run: options.run.clone(),
            writer: opened.writer,
            sequence: opened.writer,
        }
    }

    /// Commits under the next sequence number. If that is taken, either somebody else has the run
    /// now, or an earlier commit of ours came through although it was reported as failed.
    pub(crate) fn commit(&mut self, mut manifest: Manifest) -> Result<Manifest> {
        let names = Names::new(&self.run);
        loop {
            if self.first.commit(&names.entry(manifest.sequence), &manifest.write())? {
                self.sequence = manifest.sequence;
                return Ok(manifest);
            }
            let log = Log::read(self.store.clone(), &self.run)?;
            let ours = match log.entry(manifest.sequence)? {
                LogEntry::Manifest(other) => {
                    let last = other.groups.iter().flat_map(|g| g.packs.last()).next();
                    last.is_some_and(|range| range.writer == self.writer && range.run == self.run)
                }
                LogEntry::Opening(_) => false,
            };
            if !ours {
                return Err(Error::new(ErrorKind::Busy, "another process has taken this run over")
                    .hint("end this one; it must not write any more"));
            }
            let begins_epoch = manifest.epoch == Origin { run: None, sequence: manifest.sequence };
            manifest.sequence += 1;
            if begins_epoch {
                manifest.epoch.sequence = manifest.sequence;
            }
        }
    }
}
