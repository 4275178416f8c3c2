//! Retention: what to keep is computed first, as a plan, and carried out afterwards.
//!
//! Always kept: the newest checkpoint, a checkpoint of a second epoch (one bad frame can spoil all
//! checkpoints of an epoch), and, if the newest kept one cannot be restored, the newest that can.
//! Manifests go first, durably; packs go when no manifest of any run names them. Whatever is
//! interrupted leaves packs without a manifest, which the next time removes. A run that is being
//! written keeps its open epoch: its writer may refer to any of it.

use super::{LOCK, Library, Progress};
use crate::error::{Error, ErrorKind, Result};
use crate::format::{Manifest, Names, PackName};
use crate::log::{Log, packs_of, settle_logs};
use crate::store::lock_patiently;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::time::Duration;

/// How long tools wait for each other.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);

/// What to keep of a run.
#[derive(Clone, Copy, Debug)]
pub struct Keep {
    /// The newest so many.
    pub last: u64,
    /// And every checkpoint whose step is a multiple of this.
    pub every: Option<u64>,
    /// Whether to remove entries of the log that are damaged, so that their checkpoints are lost
    /// for good; else they keep everything from being removed.
    pub forget_damaged: bool,
}

/// What a pruning would remove, and why it keeps the rest.
#[derive(Clone, Debug, Default, Serialize)]
pub struct PrunePlan {
    /// The run.
    pub run: String,
    /// The steps that stay, with their sequence numbers.
    pub kept: Vec<(u64, u64)>,
    /// The steps that go, with their sequence numbers.
    pub removed: Vec<(u64, u64)>,
    /// The sequence numbers of damaged entries of the log that go.
    pub forgotten: Vec<u64>,
    /// The keys of packs that go.
    pub packs: Vec<String>,
    /// How many bytes that frees.
    pub bytes: u64,
    /// How many packs that steps which go have made stay, because others build on them.
    pub held: u64,
    /// The bytes of these.
    pub held_bytes: u64,
    /// What is worth knowing.
    pub notes: Vec<String>,
}

impl Library {
    /// Computes what may go; reads the newest checkpoint to be sure that it can be restored.
    pub fn plan_prune(&self, run: &str, keep: Keep, progress: Progress) -> Result<PrunePlan> {
        let sound = self.newest_sound(run, progress)?;
        // A lock that cannot be taken, for whatever reason, counts as a living writer: it is safe.
        let writer_is_gone = self.store.lock(&Names::new(run).lock()).is_ok();
        self.plan(run, keep, writer_is_gone, sound)
    }

    /// Computes and carries out.
    pub fn prune(&self, run: &str, keep: Keep, progress: Progress) -> Result<PrunePlan> {
        // What takes long is done before any lock is taken.
        let sound = self.newest_sound(run, progress)?;
        let _lock = lock_patiently(self.store.as_ref(), LOCK, PATIENCE)?;
        // Held to the end, so that no writer begins while its packs are being counted.
        let writer = self.store.lock(&Names::new(run).lock());
        let closed = match &writer {
            Ok(_) => true,
            Err(error) if error.kind() == ErrorKind::Busy => false,
            Err(error) => return Err(error.clone()),
        };
        let plan = self.plan(run, keep, closed, sound)?;
        let names = Names::new(run);
        let removed = plan.removed.iter().map(|(_, sequence)| sequence).chain(&plan.forgotten);
        let entries: Vec<String> = removed.map(|sequence| names.entry(*sequence)).collect();
        self.store.delete(&entries)?;
        settle_logs(&self.store)?;
        self.store.delete(&plan.packs)?;
        Ok(plan)
    }

    fn plan(&self, run: &str, keep: Keep, closed: bool, sound: Sound) -> Result<PrunePlan> {
        if keep.last == 0 {
            return Err(Error::usage("at least one checkpoint must be kept")
                .hint("--keep-last 1 keeps the newest"));
        }
        if keep.every == Some(0) {
            return Err(
                Error::usage("every 0th step makes no sense").hint("give --keep-every 1 or more")
            );
        }
        let mut plan =
            PrunePlan { run: run.to_string(), notes: sound.notes, ..PrunePlan::default() };
        let (manifests, unreadable) = self.log(run)?.survey();
        for (sequence, error) in unreadable {
            match keep.forget_damaged && error.kind() == ErrorKind::Damaged {
                true => plan.forgotten.push(sequence),
                false => return Err(unknown(run, &error)),
            }
        }
        let mut kept = choose(&manifests, keep, closed, &mut plan.notes);
        kept.extend(sound.sequence);
        for manifest in &manifests {
            let pair = (manifest.step, manifest.sequence);
            match kept.contains(&manifest.sequence) {
                true => plan.kept.push(pair),
                false => plan.removed.push(pair),
            }
        }
        self.add_packs(&manifests, &kept, closed, &mut plan)?;
        Ok(plan)
    }

    /// The newest checkpoint that can be restored.
    fn newest_sound(&self, run: &str, progress: Progress) -> Result<Sound> {
        let manifests = self.log(run)?.manifests().0;
        let total = manifests.iter().map(Manifest::full_bytes).max().unwrap_or(0);
        progress(0, total);
        let mut sound = Sound::default();
        for manifest in manifests.into_iter().rev() {
            let (step, sequence) = (manifest.step, manifest.sequence);
            match self.check_checkpoint(manifest, true) {
                Ok(()) => {
                    sound.sequence = Some(sequence);
                    break;
                }
                Err(error) => {
                    sound.notes.push(format!("step {step} cannot be restored: {error}"));
                }
            }
        }
        progress(total, total);
        Ok(sound)
    }

    fn add_packs(
        &self,
        manifests: &[Manifest],
        kept: &BTreeSet<u64>,
        closed: bool,
        plan: &mut PrunePlan,
    ) -> Result<()> {
        let run = plan.run.clone();
        let names = Names::new(&run);
        let mut needed: HashSet<(String, PackName)> = HashSet::new();
        for other in self.run_names()?.iter().filter(|other| **other != run) {
            let (others, unreadable) = Log::read(self.store.clone(), other)?.survey();
            if let Some((_, error)) = unreadable.first() {
                return Err(unknown(other, error));
            }
            needed.extend(others.iter().flat_map(packs_of).filter(|(of, _)| *of == run));
        }
        let stays = manifests.iter().filter(|m| kept.contains(&m.sequence));
        needed.extend(stays.flat_map(packs_of));
        // Packs newer than any that a manifest names may belong to a save that is under way.
        let own = manifests.iter().flat_map(packs_of).filter(|(of, _)| *of == run);
        let newest_named = own.map(|(_, pack)| pack).max();
        let goes = manifests.iter().filter(|m| !kept.contains(&m.sequence));
        let made: HashSet<PackName> = goes.flat_map(made_by).collect();
        for item in self.store.list(&names.packs())? {
            let Some(pack) = Names::parse_pack(&item.name) else {
                continue;
            };
            let may_be_under_way = !closed && Some(pack) > newest_named;
            if needed.contains(&(run.clone(), pack)) || may_be_under_way {
                let held = u64::from(made.contains(&pack));
                plan.held += held;
                plan.held_bytes += held * item.size;
                continue;
            }
            plan.bytes += item.size;
            plan.packs.push(names.pack(pack));
        }
        Ok(())
    }
}

/// The packs that a checkpoint has added to its run.
fn made_by(manifest: &Manifest) -> impl Iterator<Item = PackName> {
    let groups = manifest.groups.iter().enumerate();
    groups.filter_map(|(number, group)| {
        let newest = group.names(number as u32).last();
        newest.filter(|(run, _)| *run == manifest.run).map(|(_, name)| name)
    })
}

/// The newest checkpoint that can be restored, and what is wrong with newer ones.
#[derive(Default)]
struct Sound {
    sequence: Option<u64>,
    notes: Vec<String>,
}

/// Nothing is removed while it is unknown what is needed.
fn unknown(run: &str, error: &Error) -> Error {
    let what = format!("an entry of the log of run {run:?} cannot be read: {error}");
    Error::new(ErrorKind::Damaged, what).hint(format!(
        "nothing is removed while it is unknown what it needs; `treering prune STORE#{run} --forget-damaged` \
         gives the damaged entry up"
    ))
}

/// The sequence numbers to keep.
fn choose(
    manifests: &[Manifest],
    keep: Keep,
    closed: bool,
    notes: &mut Vec<String>,
) -> BTreeSet<u64> {
    let newest_first = || manifests.iter().rev();
    let mut kept: BTreeSet<u64> =
        newest_first().take(keep.last as usize).map(|m| m.sequence).collect();
    if let Some(every) = keep.every {
        kept.extend(manifests.iter().filter(|m| m.step % every == 0).map(|m| m.sequence));
    }
    let Some(newest) = manifests.last() else {
        return kept;
    };
    if !closed {
        let open = manifests.iter().filter(|m| m.epoch == newest.epoch);
        kept.extend(open.map(|m| m.sequence));
        notes.push("the run is being written, so its open epoch stays".into());
    }
    let epochs: BTreeMap<_, _> = manifests
        .iter()
        .filter(|m| kept.contains(&m.sequence))
        .map(|m| ((m.epoch.run.clone(), m.epoch.sequence), m.sequence))
        .collect();
    if epochs.len() < 2
        && let Some(second) = newest_first().find(|m| m.epoch != newest.epoch)
    {
        kept.insert(second.sequence);
        notes.push(format!("step {} stays as the newest of a second epoch", second.step));
    }
    kept
}
