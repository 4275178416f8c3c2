//! Carrying plans out.

use super::plan::{
    Holding, Over, PlannedStep, PrunePlan, Rule, Sound, plan, removable, removable_branches,
    unknown,
};
use super::store_plan::StoreHolding;
use super::{LOCK, PATIENCE};
use crate::array::Sequence;
use crate::compact::{Bundler, HeldBundle};
use crate::error::{Error, ErrorKind, Result};
use crate::format::{BundleName, BundledName, Manifest, Names, PackName};
use crate::log::{FullManifest, Log, Survey, settle_logs};
use crate::merkle::Digest;
use crate::points::reach;
use crate::store::{BundledStore, Store, lock_patiently, read_small};
use crate::trace::{TracedKind, TracedWork};
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;

/// Number of times that a log is listed if it changes while it is read.
const LISTINGS: usize = 10;

/// The checkpoints of a run that may go.
pub(crate) struct Pruner {
    run: String,
    /// The tier that lasts, the same for reading, and those in front of it.
    last: Arc<dyn Store>,
    pub(super) seen: Arc<dyn Store>,
    near: Vec<Arc<dyn Store>>,
}

impl Pruner {
    pub(crate) fn new(near: Vec<Arc<dyn Store>>, last: Arc<dyn Store>, run: &str) -> Pruner {
        let seen = Arc::new(BundledStore::new(last.clone()));
        Pruner { run: run.to_string(), last, seen, near }
    }

    /// Computes what may go.
    pub(crate) fn plan(&self, rule: Rule, sound: Sound) -> Result<PrunePlan> {
        plan(&self.run, rule, &self.holding(rule)?, sound)
    }

    /// Computes and carries out.
    pub(crate) fn prune(&self, rule: Rule, sound: Sound) -> Result<PrunePlan> {
        let traced = TracedWork::begin(TracedKind::Prune, &self.run, None);
        traced.end(self.carry_out(rule, sound), |plan| (None, plan.bytes))
    }

    fn carry_out(&self, rule: Rule, sound: Sound) -> Result<PrunePlan> {
        let _lock = lock_patiently(self.last.as_ref(), LOCK, PATIENCE)?;
        let before = self.holding(rule)?;
        let mut plan = plan(&self.run, rule, &before, sound)?;
        let names = Names::new(&self.run);
        let removed = plan.removed.iter().map(|gone| gone.sequence).chain(plan.forgotten.clone());
        let entries: Vec<String> = removed.map(|sequence| names.entry(sequence)).collect();
        let bundler = Bundler::new(self.last.clone(), &self.run);
        // Nothing goes while a bundle is in the way that cannot be read.
        bundler.held(&plan.forgotten)?;
        self.last.delete(&entries)?;
        reach("entries-removed");
        let unpublished = take_back(&bundler, &mut plan)?;
        settle_logs(&self.last)?;
        // Somebody may have begun to share packs since the plan was made.
        let mut now = self.holding(rule)?;
        now.over = now.over.and(before.over);
        if let Some((_, error)) = now.unreadable.first() {
            return Err(unknown(&self.run, error));
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
            // Remains of others can wait until there is room for a void index.
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
    pub(crate) fn refuse_tier(&self) -> Result<()> {
        let Ok(note) = self.last.open(&Names::new(&self.run).tier()) else { return Ok(()) };
        let behind = read_small(note.as_ref()).unwrap_or_default();
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

    /// The checkpoints of a run. Its entries may be removed or compacted while they are read; then it is listed again.
    fn survey(&self, run: &str) -> Result<(Survey, Vec<FullManifest>)> {
        let mut tries = 0;
        loop {
            let mut survey = Log::read(self.seen.clone(), run)?.survey();
            let manifests = survey.take_full(self.seen.as_ref());
            let gone = |(_, error): &(Sequence, Error)| error.kind() == ErrorKind::NotFound;
            tries += 1;
            if tries == LISTINGS || !survey.unreadable.iter().any(gone) {
                return Ok((survey, manifests));
            }
        }
    }

    fn holding(&self, rule: Rule) -> Result<Holding> {
        let run = &self.run;
        let (survey, manifests) = self.survey(run)?;
        let (mut shared, mut bytes_of_others) = (HashSet::new(), 0);
        for other in crate::log::runs(self.last.as_ref())?.iter().filter(|other| *other != run) {
            let (others, full) = self.survey(other)?;
            if let Some((_, error)) = others.unreadable.first() {
                return Err(unknown(other, error));
            }
            let packs = full.iter().flat_map(FullManifest::packs);
            shared.extend(packs.filter(|(of, _)| of == run).map(|(_, pack)| pack));
            if rule.counts_others() {
                bytes_of_others += self.bytes(other)?;
            }
        }
        self.listed(survey.unreadable, manifests, (shared, bytes_of_others))
    }

    /// The runs of a store as they are now, each with the packs that others name of it. Nothing is known while an entry of any
    /// log cannot be read.
    pub(crate) fn store(near: &[Arc<dyn Store>], last: &Arc<dyn Store>) -> Result<StoreHolding> {
        let mut runs = Vec::new();
        for run in crate::log::runs(last.as_ref())? {
            let pruner = Pruner::new(near.to_vec(), last.clone(), &run);
            pruner.refuse_tier()?;
            let (survey, manifests) = pruner.survey(&run)?;
            if let Some((_, error)) = survey.unreadable.first() {
                return Err(unknown(&run, error));
            }
            let holding = pruner.listed(Vec::new(), manifests, (HashSet::new(), 0))?;
            runs.push((run, holding));
        }
        Ok(StoreHolding::new(runs))
    }

    /// The manifests of the run, with the files that are there.
    fn listed(
        &self,
        unreadable: Vec<(Sequence, Error)>,
        manifests: Vec<FullManifest>,
        (shared, others): (HashSet<PackName>, u64),
    ) -> Result<Holding> {
        let run = &self.run;
        let items = self.seen.list(&Names::new(run).packs())?;
        let packs =
            items.iter().filter_map(|item| Some((Names::parse_pack(&item.name)?, item.size)));
        let items = self.seen.list(&Names::new(run).branches())?;
        let branches =
            items.iter().filter_map(|item| Some((Names::parse_branch(&item.name)?, item.size)));
        let items = self.seen.list(&Names::new(run).log())?;
        let entries =
            items.iter().filter_map(|item| Some((Names::parse_entry(&item.name)?, item.size)));
        Ok(Holding {
            entries: entries.collect(),
            branches: branches.collect(),
            over: Over::of(run, &manifests),
            manifests,
            unreadable,
            shared,
            packs: packs.collect(),
            others,
        })
    }

    /// The bytes that a run takes in the last tier.
    fn bytes(&self, run: &str) -> Result<u64> {
        let names = Names::new(run);
        let folders = [names.packs(), names.branches(), names.log()];
        let items = folders.iter().map(|folder| self.seen.list(folder));
        Ok(items.collect::<Result<Vec<_>>>()?.iter().flatten().map(|item| item.size).sum())
    }

    /// The newest checkpoint that passes a check, which comes before any lock is taken: it may take long. One that the
    /// system does not let us read may be the only good one, so then nothing is removed.
    pub(crate) fn newest_sound(
        &self,
        check: &mut dyn FnMut(Manifest) -> Result<()>,
    ) -> Result<Sound> {
        let manifests = Log::read(self.seen.clone(), &self.run)?.manifests().0;
        let judged = manifests.last().map(|newest| newest.sequence);
        let mut sound = Sound { judged, ..Sound::default() };
        for manifest in manifests.into_iter().rev() {
            let (step, sequence) = (manifest.step, manifest.sequence);
            match check(manifest) {
                Ok(()) => {
                    sound.sequence = Some(sequence);
                    break;
                }
                Err(error) if matches!(error.kind(), ErrorKind::Damaged | ErrorKind::NotFound) => {
                    sound.notes.push(format!("step {step} cannot be restored: {error}"));
                }
                Err(error) => {
                    let what =
                        format!("it is not known whether step {step} can be restored: {error}");
                    return Err(Error::new(error.kind(), what)
                        .at(format!("{}@{step}", self.run))
                        .hint("nothing is removed until it can be read"));
                }
            }
        }
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
