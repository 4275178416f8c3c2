//! Making a checkpoint of many ranks appear: every group publishes its section, and whoever finds all of them there
//! writes the manifest.
//!
//! A section is the manifest of one group alone, under a name of its own. Nobody waits for anybody and nobody is special:
//! after a rank has published its section it looks at the sections of that checkpoint, and if none is missing it
//! makes the manifest of them. The manifest is a pure function of the sections ([`join`]), so two ranks that do so at once
//! write the same bytes, and put-if-absent takes one. The law:
//! - a manifest appears only when every section has, and each section only when its pack is durable;
//! - a delta's manifest appears only behind that of the checkpoint before; a whole checkpoint marks the numbers before it
//!   that are still missing, which gives them up;
//! - sections whose manifest is there are removed, and an opener removes all others that it cannot complete.

use super::ballot::Outcomes;
use super::handle::held;
use super::publish::LogWriter;
use crate::array::{GroupId, Sequence};
use crate::error::{Error, ErrorKind, Result};
use crate::format::{Manifest, Names, Origin, WriterId};
use crate::log::Log;
use crate::store::{Store, read_small};
use std::sync::{Arc, Mutex};

/// The sections of a run in its last tier.
pub(crate) struct Sections {
    store: Arc<dyn Store>,
    names: Names,
    /// What this process knows has become of checkpoints.
    outcomes: Arc<Mutex<Outcomes>>,
}

impl Sections {
    pub(crate) fn new(store: Arc<dyn Store>, run: &str, outcomes: Arc<Mutex<Outcomes>>) -> Self {
        Sections { store, names: Names::new(run), outcomes }
    }

    /// Publishes the section of a group, and completes every checkpoint that is complete now.
    pub(crate) fn publish(
        &self,
        log: &mut LogWriter,
        part: &Manifest,
        group: (GroupId, u32),
    ) -> Result<()> {
        let (key, bytes) = (self.names.section(part.sequence, part.writer, group), part.write());
        if !self.store.commit(&key, &bytes)? {
            let there = self.store.open(&key).and_then(|blob| read_small(blob.as_ref()));
            // Others may have made the manifest of it, and removed it, after a commit that was reported as failed.
            if there.is_ok_and(|there| there != bytes) {
                return Err(
                    Error::new(ErrorKind::Io, "the section of a checkpoint is in use").at(key)
                );
            }
        }
        self.complete_from(log, part.sequence)
    }

    /// Looks again for what has become of checkpoints: listings of some stores are late.
    pub(crate) fn look_again(&self, log: &mut LogWriter, published: &mut Vec<Sequence>) {
        published.retain(|sequence| held(&self.outcomes).of(*sequence).is_none());
        // What cannot be found out now is found out later.
        published.retain(|sequence| !matches!(self.complete(log, *sequence), Ok(true)));
    }

    /// Completes a checkpoint and those behind it, as far as they are complete.
    pub(crate) fn complete_from(&self, log: &mut LogWriter, first: Sequence) -> Result<()> {
        let mut sequence = first;
        while self.complete(log, sequence)? {
            sequence = sequence.next();
        }
        Ok(())
    }

    /// Writes the manifest of a checkpoint if all its sections are there; whether it has one now.
    fn complete(&self, log: &mut LogWriter, sequence: Sequence) -> Result<bool> {
        log.catch_up()?;
        if sequence <= log.committed() {
            self.note(sequence, log.is_mark(sequence)?);
            return Ok(true);
        }
        let Some(parts) = self.parts(sequence, log.writer())? else { return Ok(false) };
        let manifest = join(parts)?;
        let begins = manifest.epoch.run.is_none() && manifest.epoch.sequence == sequence;
        let mut before = log.committed().next();
        while before < sequence {
            // What this checkpoint builds on comes first; without that it never appears.
            let there = self.complete(log, before)?;
            if !there && !begins {
                return Ok(false);
            }
            before = before.next();
        }
        let given_up: Vec<Sequence> = log.missing_before(sequence);
        log.commit(&manifest)?;
        given_up.into_iter().for_each(|number| self.note(number, true));
        self.note(sequence, false);
        // What cannot be removed now is removed when the run is opened again.
        let groups = manifest.groups.len() as u32;
        let keys = (0..groups)
            .map(|group| self.names.section(sequence, manifest.writer, (GroupId(group), groups)));
        let _ = self.store.delete(&keys.collect::<Vec<_>>());
        Ok(true)
    }

    /// All sections of a checkpoint, by group; nothing if one is missing.
    fn parts(&self, sequence: Sequence, writer: WriterId) -> Result<Option<Vec<Manifest>>> {
        let mut parts: Vec<Manifest> = Vec::new();
        let mut all = 0;
        let prefix = Names::section_prefix(sequence, writer);
        let items = self.store.list_after(&self.names.sections(), &prefix)?;
        for item in items.iter().take_while(|item| item.name.starts_with(&prefix)) {
            match Names::parse_section(&item.name) {
                Some((.., (group, groups))) if group.index() == parts.len() => all = groups,
                _ => return Ok(None),
            }
            let key = format!("{}/{}", self.names.sections(), item.name);
            let part = self.store.open(&key).and_then(|blob| read_small(blob.as_ref()));
            match part {
                Ok(bytes) => parts.push(Manifest::parse(&bytes).map_err(|error| error.at(&key))?),
                // Somebody else has completed the checkpoint meanwhile.
                Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
                Err(error) => return Err(error),
            }
        }
        Ok((!parts.is_empty() && parts.len() == all as usize).then_some(parts))
    }

    fn note(&self, sequence: Sequence, given_up: bool) {
        let mut outcomes = held(&self.outcomes);
        match given_up {
            true => outcomes.given_up.insert(sequence.0),
            false => outcomes.committed.insert(sequence.0),
        };
    }

    /// Completes, for an opener, the checkpoint of the newest writer behind the newest entry if its sections are all
    /// there; whether it did. Its number is the one that the opener would take.
    pub(crate) fn roll_forward(&self, log: &Log) -> Result<bool> {
        let sequence = log.newest().next();
        let writer = log.openings.last().and_then(|opening| log.entry(*opening).ok());
        let Some(writer) = writer.map(|opening| opening.head().2) else { return Ok(false) };
        // A section that cannot be read completes nothing.
        let manifest =
            match self.parts(sequence, writer).and_then(|parts| parts.map(join).transpose()) {
                Ok(Some(manifest)) => manifest,
                Ok(None) => return Ok(false),
                Err(error) if error.kind() == ErrorKind::Damaged => return Ok(false),
                Err(error) => return Err(error),
            };
        self.store.commit(&self.names.entry(sequence), &manifest.write())?;
        Ok(true)
    }

    /// Removes all sections up to a number: they are complete, or never will be.
    pub(crate) fn clean(&self, up_to: Sequence) -> Result<()> {
        let items = self.store.list(&self.names.sections())?;
        let old = items.iter().filter(|item| {
            Names::parse_section(&item.name).is_some_and(|(sequence, ..)| sequence <= up_to)
        });
        let keys = old.map(|item| format!("{}/{}", self.names.sections(), item.name));
        self.store.delete(&keys.collect::<Vec<_>>())
    }
}

/// The manifest of a checkpoint, made of its sections.
pub(crate) fn join(parts: Vec<Manifest>) -> Result<Manifest> {
    let wrong = || Error::damaged("the sections of a checkpoint do not belong together");
    let mut parts = parts.into_iter();
    let mut manifest = parts.next().ok_or_else(wrong)?;
    for mut part in parts {
        let alike = (&manifest.run, manifest.sequence, manifest.writer, manifest.step)
            == (&part.run, part.sequence, part.writer, part.step)
            && (manifest.time, &manifest.epoch) == (part.time, &part.epoch)
            && (manifest.seed, manifest.ranks) == (part.seed, part.ranks);
        if !alike {
            return Err(wrong());
        }
        // A rank whose part of the checkpoint before failed names an older one, which exists.
        let older = |origin: &Option<Origin>| origin.as_ref().map_or(0, |origin| origin.sequence.0);
        if older(&part.parent) < older(&manifest.parent) {
            manifest.parent = part.parent.take();
        }
        manifest.variables += part.variables;
        manifest.rounded += part.rounded;
        manifest.files += part.files;
        manifest.full_bytes = manifest.full_bytes.saturating_add(part.full_bytes);
        let (stats, other) = (&mut manifest.stats, part.stats);
        stats.same_bytes += other.same_bytes;
        stats.moved_bytes += other.moved_bytes;
        stats.new_bytes += other.new_bytes;
        stats.blocked_ns = stats.blocked_ns.max(other.blocked_ns);
        manifest.groups.append(&mut part.groups);
    }
    Ok(manifest)
}
