//! Bytes of packs that are other bytes now.

use super::{World, read};
use std::collections::BTreeSet;
use std::sync::Arc;
use treering::testing::{Call, HookedStore};
use treering::{CheckpointInfo, Error, ErrorKind, Library, Store};

/// The epoch of a checkpoint: the run and the sequence number with which it begins.
fn epoch_of(run: &str, info: &CheckpointInfo) -> (String, u64) {
    let begun = info.epoch.run.clone().unwrap_or_else(|| run.to_string());
    (begun, info.epoch.sequence.0)
}

impl World {
    /// One byte of a pack in the shared store is another one, if a checkpoint needs the pack. All of its epoch may be
    /// damaged then, also what will be saved in it.
    pub(super) fn damage(&mut self) {
        let runs: Vec<String> =
            self.sides.iter().filter(|(_, side)| !side.archived).map(|(n, _)| n.clone()).collect();
        let runs: Vec<&str> = std::iter::once("r").chain(runs.iter().map(String::as_str)).collect();
        let run = runs[self.dice.roll(runs.len() as u64) as usize];
        let folder = format!("runs/{run}/packs");
        let packs = self.shared.list(&folder).unwrap_or_default();
        if packs.is_empty() {
            return;
        }
        let key = format!("{folder}/{}", packs[self.dice.roll(packs.len() as u64) as usize].name);
        let needs: BTreeSet<(String, u64)> =
            runs.iter().flat_map(|run| self.epochs_with(run, &key)).collect();
        let Ok(blob) = self.shared.open(&key) else { return };
        let mut bytes = vec![0; blob.size() as usize];
        if needs.is_empty() || blob.read_at(0, &mut bytes).is_err() {
            return;
        }
        let at = self.dice.roll(bytes.len() as u64) as usize;
        bytes[at] ^= 1 << self.dice.roll(8);
        self.shared.delete(std::slice::from_ref(&key)).unwrap();
        let mut put = self.shared.put(&key).unwrap();
        put.append(&bytes).unwrap();
        put.finish().unwrap();
        self.note(format!("byte {at} of {key} is damaged, and with it epochs {needs:?}"));
        self.spoiled.extend(needs);
    }

    /// The epochs of a run of which a checkpoint cannot be opened without a pack.
    fn epochs_with(&self, run: &str, key: &str) -> Vec<(String, u64)> {
        let missing = key.to_string();
        let without = move |call: Call| match call {
            Call::Open(key) if key == missing => {
                Err(Error::new(ErrorKind::NotFound, "it is not there"))
            }
            _ => Ok(()),
        };
        let without: Arc<dyn Store> = Arc::new(HookedStore::new(self.shared.clone(), without));
        let needs = |info: &CheckpointInfo| {
            Library::of(without.clone()).checkpoint(run, Some(info.step)).is_err()
        };
        self.checkpoints(&self.shared, run)
            .iter()
            .filter(|info| needs(info))
            .map(|info| epoch_of(run, info))
            .collect()
    }

    /// Whether an error of a checkpoint is no wonder.
    pub(super) fn is_spoiled(&self, run: &str, info: &CheckpointInfo, error: &Error) -> bool {
        error.kind() == ErrorKind::Damaged && self.spoiled.contains(&epoch_of(run, info))
    }

    /// The newest durable step of which no byte is damaged.
    pub(super) fn newest_sound(&self) -> Option<u64> {
        let of_sound = |info: &&CheckpointInfo| !self.spoiled.contains(&epoch_of("r", info));
        let listed = self.checkpoints(&self.shared, "r");
        let sound = listed.iter().filter(of_sound).map(|info| info.step);
        sound.filter(|step| self.durable.contains(step)).max()
    }

    /// Whether all durable checkpoints may be damaged.
    pub(super) fn is_lost(&self) -> bool {
        !self.spoiled.is_empty() && self.newest_sound().is_none()
    }

    /// The steps of a run in the shared store that can be read, in worlds with damage.
    pub(super) fn sound_steps(&self, run: &str) -> Vec<u64> {
        if self.spoiled.is_empty() {
            return Vec::new();
        }
        let listed = self.checkpoints(&self.shared, run);
        listed
            .iter()
            .map(|info| info.step)
            .filter(|step| read(&self.shared, run, *step).is_ok())
            .collect()
    }

    /// Where there was a checkpoint that could be read, there still is one.
    pub(super) fn still_sound(&self, run: &str, before: &[u64]) {
        if !before.is_empty() && self.sound_steps(run).is_empty() {
            self.fail(&format!("the last sound checkpoint of {run} was removed: {before:?}"));
        }
    }
}
