//! Retention: what to keep is computed first, as a plan, and carried out afterwards.
//!
//! Only the last tier counts: a checkpoint that is on a node alone is neither kept for the user's number nor
//! removed. Always kept: the newest checkpoint, a checkpoint of a second epoch (one bad frame can spoil all
//! checkpoints of an epoch), and, if the newest kept one cannot be restored, the newest that can.
//!
//! Nothing here rests on a lock. A writer that is at work, here or on another machine, builds on a
//! checkpoint of the newest epoch; so every pack of that epoch stays: a manifest of it is removed only if the
//! newest manifest names all its packs. A pack that no manifest names may be part of a save that is under
//! way; it goes only if its writer has used its number, which is that of its checkpoint, in the log (the
//! next opening of the run removes what a crash has left). Manifests go first, durably; then all runs are
//! asked again which packs they name. Branches go with their manifests, by the same rule.

use super::{LOCK, Library, Progress};
use crate::array::Sequence;
use crate::compact::{Bundler, HeldBundle};
use crate::error::{Error, ErrorKind, Result};
use crate::format::{
    BranchName, BundleName, BundledName, Groups, Manifest, Names, PackName, WriterId,
};
use crate::log::{FullManifest, Log, settle_logs};
use crate::merkle::Digest;
use crate::points::reach;
use crate::store::lock_patiently;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::time::Duration;

/// The time for which tools wait for each other.
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

/// What goes.
#[derive(Clone, Copy, Debug)]
pub(super) enum Rule {
    /// All but what is kept.
    Keep(Keep),
    /// The checkpoints of a step.
    Without(u64),
}

/// A checkpoint in a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct PlannedStep {
    /// Its step.
    pub step: u64,
    /// Its number in the log.
    pub sequence: Sequence,
}

/// What a pruning would remove, and why it keeps the rest.
#[derive(Clone, Debug, Default, Serialize)]
pub struct PrunePlan {
    /// The run.
    pub run: String,
    /// The checkpoints that stay.
    pub kept: Vec<PlannedStep>,
    /// The checkpoints that go.
    pub removed: Vec<PlannedStep>,
    /// The sequence numbers of damaged entries of the log that go.
    pub forgotten: Vec<Sequence>,
    /// The keys of packs that go.
    pub packs: Vec<String>,
    /// The keys of branches that go.
    pub branches: Vec<String>,
    /// The bytes that this frees.
    pub bytes: u64,
    /// The packs of checkpoints that go which stay, because others build on them.
    pub held: u64,
    /// The bytes of these.
    pub held_bytes: u64,
    /// Things worth knowing.
    pub notes: Vec<String>,
}

/// The manifests and packs of a run as they are now.
struct Holding {
    manifests: Vec<FullManifest>,
    unreadable: Vec<(Sequence, Error)>,
    /// Packs of this run that other runs name.
    shared: HashSet<PackName>,
    /// The newest number of each writer in the log.
    newest_of: HashMap<WriterId, Sequence>,
    /// The packs that are there, and their sizes.
    packs: Vec<(PackName, u64)>,
    /// The same for branches.
    branches: Vec<(BranchName, u64)>,
}

impl Library {
    /// Computes what may go; reads the newest checkpoint to be sure that it can be restored.
    pub fn plan_prune(&self, run: &str, keep: Keep, progress: Progress) -> Result<PrunePlan> {
        self.plan_by(run, Rule::Keep(keep), progress)
    }

    /// Computes and carries out.
    pub fn prune(&self, run: &str, keep: Keep, progress: Progress) -> Result<PrunePlan> {
        self.prune_by(run, Rule::Keep(keep), progress)
    }

    pub(super) fn plan_by(&self, run: &str, rule: Rule, progress: Progress) -> Result<PrunePlan> {
        self.refuse_tier(run)?;
        let sound = self.newest_sound(run, progress)?;
        plan(run, rule, &self.holding(run)?, sound)
    }

    pub(super) fn prune_by(&self, run: &str, rule: Rule, progress: Progress) -> Result<PrunePlan> {
        self.refuse_tier(run)?;
        // What takes long is done before any lock is taken.
        let sound = self.newest_sound(run, progress)?;
        let _lock = lock_patiently(self.last.as_ref(), LOCK, PATIENCE)?;
        let before = self.holding(run)?;
        let mut plan = plan(run, rule, &before, sound)?;
        let names = Names::new(run);
        let removed = plan.removed.iter().map(|gone| gone.sequence).chain(plan.forgotten.clone());
        let entries: Vec<String> = removed.map(|sequence| names.entry(sequence)).collect();
        let bundler = Bundler::new(self.last.clone(), run);
        // Nothing goes while a bundle is in the way that cannot be read.
        bundler.held(&plan.forgotten)?;
        self.last.delete(&entries)?;
        reach("entries-removed");
        let unpublished = take_back(&bundler, &mut plan)?;
        settle_logs(&self.last)?;
        // Somebody may have begun to share packs since the plan was made.
        // The manifests that are gone have told which saves are over.
        let mut now = self.holding(run)?;
        now.newest_of.extend(before.newest_of);
        if let Some((_, error)) = now.unreadable.first() {
            return Err(unknown(run, error));
        }
        let all: BTreeSet<Sequence> = now.manifests.iter().map(|m| m.manifest.sequence).collect();
        let (packs, bytes) = removable(&now, &all);
        plan.packs = packs.iter().map(|pack| names.pack(*pack)).collect();
        let (branches, branch_bytes) = removable_branches(&now, &all);
        plan.branches = branches.iter().map(|branch| names.branch(*branch)).collect();
        plan.bytes = bytes + branch_bytes;
        self.last.delete(&plan.packs)?;
        reach("packs-removed");
        self.last.delete(&plan.branches)?;
        let needed = now.manifests.iter().flat_map(FullManifest::packs).map(|(_, pack)| pack);
        let needed: HashSet<PackName> = needed.chain(now.shared.iter().copied()).collect();
        match bundler.tidy(&|| Ok(needed.clone()), &unpublished) {
            // What others have left can wait until there is room for a void index.
            Err(error) if error.kind() == ErrorKind::Full => {}
            tidied => tidied?,
        }
        for tier in &self.near {
            tier.delete(&entries)?;
            tier.delete(&plan.packs)?;
        }
        Ok(plan)
    }

    /// A node's store holds what has not reached the last tier yet, and leaves the rest by itself.
    pub(super) fn refuse_tier(&self, run: &str) -> Result<()> {
        let Ok(note) = self.last.open(&Names::new(run).tier()) else { return Ok(()) };
        let behind = crate::store::read_small(note.as_ref()).unwrap_or_default();
        let behind = String::from_utf8_lossy(&behind).into_owned();
        Err(Error::usage(format!(
            "this is a node's store in front of {behind}; it is neither pruned nor compacted"
        ))
        .at(self.last.name())
        .hint(format!(
            "give {behind}; checkpoints leave a node's store once they are there, and a run whose \
                 node is full makes room by itself"
        )))
    }

    fn holding(&self, run: &str) -> Result<Holding> {
        let mut survey = Log::read(self.seen.clone(), run)?.survey();
        let manifests = survey.take_full(self.seen.as_ref());
        let mut shared = HashSet::new();
        for other in crate::log::runs(self.last.as_ref())?.iter().filter(|other| *other != run) {
            let mut others = Log::read(self.seen.clone(), other)?.survey();
            let full = others.take_full(self.seen.as_ref());
            if let Some((_, error)) = others.unreadable.first() {
                return Err(unknown(other, error));
            }
            let packs = full.iter().flat_map(FullManifest::packs);
            shared.extend(packs.filter(|(of, _)| of == run).map(|(_, pack)| pack));
        }
        let items = self.seen.list(&Names::new(run).packs())?;
        let packs =
            items.iter().filter_map(|item| Some((Names::parse_pack(&item.name)?, item.size)));
        let items = self.seen.list(&Names::new(run).branches())?;
        let branches =
            items.iter().filter_map(|item| Some((Names::parse_branch(&item.name)?, item.size)));
        Ok(Holding {
            branches: branches.collect(),
            manifests,
            unreadable: survey.unreadable,
            shared,
            newest_of: survey.newest_of,
            packs: packs.collect(),
        })
    }

    /// The newest checkpoint that can be restored.
    fn newest_sound(&self, run: &str, progress: Progress) -> Result<Sound> {
        self.log(run)?;
        let manifests = Log::read(self.seen.clone(), run)?.manifests().0;
        let total = manifests.iter().map(|m| m.full_bytes).max().unwrap_or(0);
        progress(0, total);
        let mut sound = Sound::default();
        let last = Library::of(self.last.clone());
        for manifest in manifests.into_iter().rev() {
            let (step, sequence) = (manifest.step, manifest.sequence);
            match last.check_checkpoint(manifest, true) {
                Ok(_) => {
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
}

/// Takes removed entries of bundles back, and packs that go with them: what else a bundle holds is in a new
/// one before. Bundles of which nothing is left come first, because they need no space; one for which there is
/// no room stays as it is, with its checkpoints. The bundles whose data may go now.
fn take_back(bundler: &Bundler, plan: &mut PrunePlan) -> Result<BTreeSet<BundleName>> {
    let gone: HashSet<Sequence> =
        plan.removed.iter().map(|gone| gone.sequence).chain(plan.forgotten.clone()).collect();
    let names = Names::new(&plan.run);
    let packs: HashSet<&String> = plan.packs.iter().collect();
    let goes = |object: &BundledName| match object {
        BundledName::Entry(number) => gone.contains(number),
        BundledName::Pack(_) => packs.contains(&object.key(&names)),
    };
    let mut changed: Vec<(HeldBundle, BTreeMap<BundledName, Option<Digest>>)> = Vec::new();
    for bundle in bundler.held(&plan.forgotten)? {
        let objects = &bundle.index.objects;
        let left: BTreeMap<_, _> = objects
            .iter()
            .filter(|object| !goes(&object.name))
            .map(|object| (object.name, Some(object.digest)))
            .collect();
        if left.len() < objects.len() && bundle.published {
            changed.push((bundle, left));
        }
    }
    changed.sort_by_key(|(_, left)| !left.is_empty());
    let mut unpublished = BTreeSet::new();
    for (bundle, left) in changed {
        let one = BTreeSet::from([bundle.name]);
        if !left.is_empty() {
            match bundler.write(&left, || bundler.published(&one).map(drop), &|_| {}) {
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::Full => {
                    stays(plan, &bundle, &error);
                    continue;
                }
                Err(error) => return Err(error),
            }
        }
        bundler.unpublish(&one)?;
        unpublished.extend(one);
    }
    unpublished.extend(bundler.forget(&plan.forgotten)?);
    Ok(unpublished)
}

/// A bundle cannot be written anew: its checkpoints stay.
fn stays(plan: &mut PrunePlan, bundle: &HeldBundle, error: &Error) {
    let held: HashSet<BundledName> = bundle.index.objects.iter().map(|o| o.name).collect();
    let is_held = |planned: &PlannedStep| held.contains(&BundledName::Entry(planned.sequence));
    let (stay, go) = plan.removed.iter().partition(|planned| is_held(planned));
    let stay: Vec<PlannedStep> = stay;
    plan.removed = go;
    plan.notes.push(format!(
        "{} checkpoints stay in a bundle for which there is no room to write it anew: {error}",
        stay.len()
    ));
    plan.kept.extend(stay);
    plan.kept.sort_by_key(|planned| planned.sequence);
}

fn plan(run: &str, rule: Rule, holding: &Holding, sound: Sound) -> Result<PrunePlan> {
    let forget_damaged = match rule {
        Rule::Keep(Keep { last: 0, .. }) => {
            return Err(Error::usage("at least one checkpoint must be kept")
                .hint("--keep-last 1 keeps the newest"));
        }
        Rule::Keep(Keep { every: Some(0), .. }) => {
            return Err(Error::usage("invalid interval 0: expected every first step or more")
                .hint("give --keep-every 1 or more"));
        }
        Rule::Keep(keep) => keep.forget_damaged,
        Rule::Without(_) => false,
    };
    let mut plan = PrunePlan { run: run.to_string(), notes: sound.notes, ..PrunePlan::default() };
    for (sequence, error) in &holding.unreadable {
        match forget_damaged && error.kind() == ErrorKind::Damaged {
            true => plan.forgotten.push(*sequence),
            false => return Err(unknown(run, error)),
        }
    }
    let mut kept = choose(&holding.manifests, rule, &mut plan.notes);
    kept.extend(sound.sequence);
    for FullManifest { manifest, .. } in &holding.manifests {
        let planned = PlannedStep { step: manifest.step.0, sequence: manifest.sequence };
        match kept.contains(&manifest.sequence) {
            true => plan.kept.push(planned),
            false => plan.removed.push(planned),
        }
    }
    let (packs, bytes) = removable(holding, &kept);
    let goes = holding.manifests.iter().filter(|m| !kept.contains(&m.manifest.sequence));
    let made: HashSet<PackName> = goes.flat_map(FullManifest::made).collect();
    let held =
        holding.packs.iter().filter(|(pack, _)| made.contains(pack) && !packs.contains(pack));
    (plan.held, plan.held_bytes) = held.fold((0, 0), |(n, all), (_, size)| (n + 1, all + size));
    let names = Names::new(run);
    plan.packs = packs.iter().map(|pack| names.pack(*pack)).collect();
    let (branches, branch_bytes) = removable_branches(holding, &kept);
    plan.branches = branches.iter().map(|branch| names.branch(*branch)).collect();
    plan.bytes = bytes + branch_bytes;
    Ok(plan)
}

/// The packs that may go when only `kept` checkpoints stay, and their bytes.
fn removable(holding: &Holding, kept: &BTreeSet<Sequence>) -> (BTreeSet<PackName>, u64) {
    let stays = holding.manifests.iter().filter(|m| kept.contains(&m.manifest.sequence));
    let mut needed: HashSet<PackName> =
        stays.flat_map(FullManifest::packs).map(|(_, pack)| pack).collect();
    needed.extend(&holding.shared);
    // A writer's numbers come to the log in their order: up to its newest, every save is over.
    let is_over = |pack: &PackName| {
        holding.newest_of.get(&pack.writer).is_some_and(|newest| pack.attempt <= newest.0)
    };
    let mut bytes = 0;
    let goes = holding.packs.iter().filter(|(pack, _)| !needed.contains(pack) && is_over(pack));
    let goes = goes.map(|(pack, size)| {
        bytes += size;
        *pack
    });
    (goes.collect(), bytes)
}

/// The branches that may go when only `kept` checkpoints stay, and their bytes.
fn removable_branches(holding: &Holding, kept: &BTreeSet<Sequence>) -> (BTreeSet<BranchName>, u64) {
    let stays = holding.manifests.iter().map(|m| &m.manifest).filter(|manifest| {
        kept.contains(&manifest.sequence) && matches!(manifest.groups, Groups::Below(_))
    });
    let needed: HashSet<(Sequence, WriterId)> = stays.map(|m| (m.sequence, m.writer)).collect();
    // As with packs: one of a checkpoint that is under way stays.
    let is_over = |branch: &BranchName| {
        holding.newest_of.get(&branch.writer).is_some_and(|newest| branch.sequence <= *newest)
    };
    let goes = holding.branches.iter().filter(|(branch, _)| {
        !needed.contains(&(branch.sequence, branch.writer)) && is_over(branch)
    });
    let bytes = goes.clone().map(|(_, size)| size).sum();
    (goes.map(|(branch, _)| *branch).collect(), bytes)
}

/// The newest checkpoint that can be restored, and what is wrong with newer ones.
#[derive(Default)]
struct Sound {
    sequence: Option<Sequence>,
    notes: Vec<String>,
}

/// Nothing is removed while it is unknown what is needed.
fn unknown(run: &str, error: &Error) -> Error {
    let what = format!("an entry of the log of run {run:?} cannot be read: {error}");
    Error::new(error.kind(), what).hint(format!(
        "nothing is removed while it is unknown what it needs; `treering prune STORE#{run} --forget-damaged` \
         gives the damaged entry up"
    ))
}

/// The sequence numbers to keep.
fn choose(manifests: &[FullManifest], rule: Rule, notes: &mut Vec<String>) -> BTreeSet<Sequence> {
    let newest_first = || manifests.iter().rev().map(|m| &m.manifest);
    let (last, is_kept): (u64, Box<dyn Fn(u64) -> bool>) = match rule {
        Rule::Keep(Keep { last, every, .. }) => {
            (last, Box::new(move |step| every.is_some_and(|every| step % every == 0)))
        }
        Rule::Without(gone) => (1, Box::new(move |step| step != gone)),
    };
    let mut kept: BTreeSet<Sequence> =
        newest_first().take(last as usize).map(|m| m.sequence).collect();
    kept.extend(newest_first().filter(|m| is_kept(m.step.0)).map(|m| m.sequence));
    let Some(newest) = manifests.last() else {
        return kept;
    };
    let packs: HashSet<_> = newest.packs().collect();
    let newest = &newest.manifest;
    let open = manifests.iter().rev().filter(|m| m.manifest.epoch == newest.epoch);
    for full in open.filter(|m| !m.packs().all(|pack| packs.contains(&pack))) {
        let manifest = &full.manifest;
        if kept.insert(manifest.sequence) {
            let step = manifest.step;
            notes.push(format!(
                "step {step} stays: a program could go on from it in the open epoch"
            ));
        }
    }
    let is_second = |m: &&Manifest| m.epoch != newest.epoch;
    if !newest_first().filter(|m| kept.contains(&m.sequence)).any(|m| is_second(&m))
        && let Some(second) = newest_first().find(is_second)
    {
        kept.insert(second.sequence);
        notes.push(format!("step {} stays as the newest of a second epoch", second.step));
    }
    kept
}
