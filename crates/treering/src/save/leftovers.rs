//! What an ended writer has left complete in nearer tiers, and not in the last one.
//!
//! A writer moves its checkpoints in order, and every opener takes the next number of the last tier. So what
//! has not been moved stands behind the newest number there; the opener goes on from it, and publishes it
//! again under its own numbers. What stands at or behind a later opening is a past that nobody goes on with:
//! another node has opened the run since. Everything else was moved, whatever was pruned since.
//!
//! An opener may die, or find no room, before it has published all of them again. So an opening that nothing has
//! followed counts for nothing here, and the old entries go when all new ones are there: then all old ones are left, or
//! all new ones. Two entries of the same packs are one checkpoint. Only one thing is lost with such an opening: the packs
//! of a save that was under way then, whose writer may have lived on and committed it in front of the last tier.
//!
//! A node may hold checkpoints that writers of another run of the same name have made, for another store or before the
//! name was given anew. They are told by their openings, and are neither taken over nor removed.

use super::Tiers;
use super::open::Opened;
use crate::array::{Sequence, Step};
use crate::error::{Error, ErrorKind, Result};
use crate::format::{LogEntry, Manifest, Names, PackName, WriterId};
use crate::log::{EndOfLog, FullManifest, Log};
use crate::store::{BundledStore, Store};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use std::sync::Arc;

/// Checkpoints of ended writers that nearer tiers hold.
#[derive(Default)]
pub(crate) struct Leftovers {
    /// Those that go on, in the order in which they were made.
    checkpoints: BTreeMap<LeftoverAge, Leftover>,
    /// Those that nobody goes on with, and where they are.
    abandoned: Vec<(Manifest, usize)>,
    /// The newest number in the nearer tiers.
    newest: Sequence,
    pub(crate) notes: Vec<String>,
}

/// The opening and the number under which a checkpoint was first made, and its packs.
type LeftoverAge = (Sequence, u64, Vec<(String, PackName)>);

/// A checkpoint with all its entries.
struct Leftover {
    /// The newest of its entries.
    manifest: Manifest,
    /// The numbers of its entries, and the tiers that have them.
    entries: Vec<(Sequence, usize)>,
}

/// A checkpoint under a number of the writer that goes on with it, and the tiers that have it.
pub(crate) struct TakenOver {
    pub(crate) manifest: Manifest,
    pub(crate) places: BTreeSet<usize>,
}

/// The age of a checkpoint, which stays the same under all its numbers.
fn age(full: &FullManifest) -> LeftoverAge {
    let own = (full.manifest.writer.opening, full.manifest.sequence.0);
    let made = full.made().map(|pack| (pack.writer.opening, pack.attempt)).max();
    let (opening, number) = made.unwrap_or(own);
    (opening, number, full.packs().collect())
}

/// Whether all packs of a checkpoint are in some tier; those of other runs are taken for granted.
fn is_complete(tiers: &Tiers, run: &str, full: &FullManifest) -> Result<bool> {
    let (names, store) = (Names::new(run), tiers.together(BundledStore::new(tiers.last.clone())));
    for (_, pack) in full.packs().filter(|(of, _)| of == run) {
        match store.open(&names.pack(pack)) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(false),
            opened => drop(opened?),
        }
    }
    Ok(true)
}

/// The manifests of a run that the nearer tiers hold, and the tier of each; notes say what is wrong with others.
fn held(
    tiers: &Tiers,
    run: &str,
    last: &Log,
    left: &mut Leftovers,
) -> Result<Vec<(Manifest, usize)>> {
    let mut found = Vec::new();
    for (number, tier) in tiers.near.iter().enumerate() {
        let near = Log::read(tier.clone(), run)?;
        left.newest = left.newest.max(near.newest());
        let mut foreign = BTreeSet::new();
        for sequence in near.sequences.iter().copied() {
            match near.entry(sequence) {
                Ok(LogEntry::Manifest(manifest)) => match last.was_opened_by(manifest.writer)? {
                    true => found.push((*manifest, number)),
                    false => drop(foreign.insert(manifest.step)),
                },
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::Damaged => {
                    let what = format!("an entry of {} cannot be read: {error}", tier.name());
                    left.notes.push(what);
                }
                // It was removed since the log was listed.
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                // It may be fine, and the run would go on without it for good.
                Err(error) => {
                    return Err(error.hint(
                        "it may be the newest checkpoint; remove the store of this node to go on without it",
                    ));
                }
            }
        }
        if !foreign.is_empty() {
            left.notes.push(format!(
                "{} also holds checkpoints of steps {} of another run {run:?}, made for another store or before the \
                 run was removed; they are neither used nor removed: give each store its own folder on the node",
                tier.name(),
                listed(&foreign)
            ));
        }
    }
    Ok(found)
}

fn listed(steps: &BTreeSet<Step>) -> String {
    steps.iter().map(Step::to_string).collect::<Vec<_>>().join(", ")
}

impl Leftovers {
    pub(crate) fn find(tiers: &Tiers, run: &str, last: &Log) -> Result<Leftovers> {
        let mut left = Leftovers::default();
        if tiers.near.is_empty() {
            return Ok(left);
        }
        let found = held(tiers, run, last, &mut left)?;
        // Openings that have made nothing, in the last tier or here: what was before them goes on.
        let mut end = EndOfLog::of(last)?;
        for (manifest, place) in &found {
            let own = manifest.writer;
            if end.is_idle(own.opening) {
                let full = FullManifest::read(tiers.near[*place].as_ref(), manifest.clone())?;
                if full.made().any(|pack| pack.writer == own) {
                    end.has_made(own.opening);
                }
            }
        }
        let used = end.used();
        for (manifest, place) in found {
            let (own, sequence) = (manifest.writer.opening, manifest.sequence);
            if end.overtakes(own, sequence) {
                left.abandoned.push((manifest, place));
            } else if sequence > used {
                let full = FullManifest::read(tiers.near[place].as_ref(), manifest)?;
                if end.is_idle_between(own, sequence) && !is_complete(tiers, run, &full)? {
                    left.abandoned.push((full.manifest, place));
                    continue;
                }
                let entry = left.checkpoints.entry(age(&full));
                let manifest = full.manifest;
                let known = entry.or_insert_with(|| Leftover {
                    manifest: manifest.clone(),
                    entries: Vec::new(),
                });
                known.entries.push((sequence, place));
                if known.manifest.sequence < sequence {
                    known.manifest = manifest;
                }
            }
        }
        Ok(left)
    }

    /// The checkpoints that go on, with the tiers that have them.
    pub(crate) fn waiting(&self) -> impl Iterator<Item = TakenOver> + '_ {
        self.checkpoints.values().map(|leftover| TakenOver {
            manifest: leftover.manifest.clone(),
            places: leftover.entries.iter().map(|(_, place)| *place).collect(),
        })
    }

    /// The same under the numbers of another writer, which follow `newest`.
    pub(crate) fn taken_over(&self, newest: Sequence, writer: WriterId) -> Vec<TakenOver> {
        let mut renamed: HashMap<Sequence, Sequence> = HashMap::new();
        let mut sequence = newest;
        let numbered = self.checkpoints.values().zip(self.waiting());
        numbered
            .map(|(leftover, mut taken)| {
                sequence = sequence.next();
                renamed.extend(leftover.entries.iter().map(|(old, _)| (*old, sequence)));
                let manifest = &mut taken.manifest;
                (manifest.sequence, manifest.writer) = (sequence, writer);
                for origin in manifest.parent.iter_mut().chain([&mut manifest.epoch]) {
                    let new = origin.run.is_none().then(|| renamed.get(&origin.sequence)).flatten();
                    new.into_iter().for_each(|new| origin.sequence = *new);
                }
                taken
            })
            .collect()
    }

    /// Publishes them again under the numbers that follow the opening, in the tiers where they are; for each
    /// tier, those that are still to be moved to the next one.
    pub(super) fn adopt(
        self,
        tiers: &Tiers,
        run: &str,
        opened: &mut Opened,
    ) -> Result<Vec<VecDeque<Manifest>>> {
        let names = Names::new(run);
        let mut waiting: Vec<VecDeque<Manifest>> =
            tiers.near.iter().map(|_| VecDeque::new()).collect();
        // Behind every number that is in use anywhere; the last tier gets marks for those between.
        opened.newest = opened.newest.max(self.newest);
        for TakenOver { manifest, places } in self.taken_over(opened.newest, opened.opening.writer)
        {
            let key = names.entry(manifest.sequence);
            for place in &places {
                let published = tiers.near[*place].commit(&key, &manifest.write());
                if !published.map_err(Error::on_node)? {
                    let what = "another process writes to the store of this node";
                    return Err(Error::new(ErrorKind::Busy, what)
                        .at(key)
                        .hint("end it, and open the run again: nothing of it is lost"));
                }
                if !places.contains(&(place + 1)) {
                    waiting[*place].push_back(manifest.clone());
                }
            }
            opened.newest = manifest.sequence;
        }
        for (place, tier) in tiers.near.iter().enumerate() {
            let entries = self.checkpoints.values().flat_map(|leftover| &leftover.entries);
            let old: Vec<String> =
                entries.filter(|e| e.1 == place).map(|e| names.entry(e.0)).collect();
            tier.delete(&old)?;
        }
        opened.notes.extend(self.give_up(tiers, run)?);
        Ok(waiting)
    }

    /// Removes the checkpoints that nobody goes on with; what a person should know.
    fn give_up(self, tiers: &Tiers, run: &str) -> Result<Vec<String>> {
        let (names, mut notes) = (Names::new(run), self.notes);
        if self.abandoned.is_empty() {
            return Ok(notes);
        }
        // An opener before this one, or a drain, may have published a checkpoint again and left its old entry.
        let seen: Arc<dyn Store> = Arc::new(BundledStore::new(tiers.last.clone()));
        let there = Log::read(seen.clone(), run)?.survey().take_full(seen.as_ref());
        let mut known: HashSet<Vec<(String, PackName)>> =
            there.iter().map(|full| full.packs().collect()).collect();
        known.extend(self.checkpoints.into_keys().map(|(.., packs)| packs));
        let mut given_up: BTreeMap<usize, BTreeSet<Step>> = BTreeMap::new();
        for (manifest, place) in self.abandoned {
            let (step, key) = (manifest.step, names.entry(manifest.sequence));
            let full = FullManifest::read(tiers.near[place].as_ref(), manifest)?;
            tiers.near[place].delete(&[key])?;
            if !known.contains(&full.packs().collect::<Vec<_>>()) {
                given_up.entry(place).or_default().insert(step);
            }
        }
        for (place, steps) in given_up {
            notes.push(format!(
                "checkpoints of steps {} were on {} only and are given up: the run was opened elsewhere \
                 since, and continues from the newest checkpoint of the last tier",
                listed(&steps),
                tiers.near[place].name()
            ));
        }
        Ok(notes)
    }
}
