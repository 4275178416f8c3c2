//! What goes so that all runs of a store together take no more than a limit.
//!
//! Of all checkpoints that may go, the oldest go first, by the time of their commit, whichever runs they are of. What a
//! pruning always keeps stays in each run. A pack goes with the last checkpoint that names it, in whichever run that is.

use super::plan::{
    GoingCheckpoint, HeldRun, Holding, PlannedStep, PrunePlan, Rule, Sound, least, oldest_until,
    plan,
};
use crate::array::Sequence;
use crate::error::Result;
use crate::format::PackName;
use crate::log::FullManifest;
use std::collections::{BTreeMap, BTreeSet, HashSet};

/// Plan of a pruning of a whole store. [`Library::prune_store`](crate::Library::prune_store) returns it and has an example.
#[derive(Clone, Debug, Default)]
#[cfg_attr(feature = "tools", derive(serde::Serialize))]
pub struct StorePrunePlan {
    /// The checkpoints that go, the oldest first, each with its run.
    pub removed: Vec<(String, PlannedStep)>,
    /// The plans of the runs from which something goes.
    pub runs: Vec<PrunePlan>,
    /// The bytes that this frees.
    pub bytes: u64,
    /// The bytes that the runs take beyond the limit although nothing more may go.
    pub excess: u64,
    /// Notes for people.
    pub notes: Vec<String>,
}

/// The runs of a store as they are now, each with the packs of it that others name.
pub(crate) struct StoreHolding {
    pub(super) runs: Vec<(String, Holding)>,
}

/// The checkpoints that go, by run.
type Gone<'h> = BTreeMap<&'h str, BTreeSet<Sequence>>;

impl StoreHolding {
    /// Computes what goes. `sounds` has the newest checkpoint that can be restored, of runs of which it is known: a plan may be
    /// carried out when that is known of all runs from which checkpoints go.
    pub(crate) fn plan(
        &self,
        limit: u64,
        sounds: &BTreeMap<String, Sound>,
    ) -> Result<StorePrunePlan> {
        let all: Vec<BTreeSet<Sequence>> =
            self.runs.iter().map(|(_, holding)| numbers(holding)).collect();
        let needed = HashSet::new();
        let held = self.runs.iter().zip(&all);
        let held =
            held.map(|((run, holding), kept)| HeldRun { run, holding, kept, needed: &needed });
        let held: Vec<HeldRun> = held.collect();
        let (gone, bytes) = oldest_until(limit, &held, &self.may_go(sounds));
        let mut store =
            StorePrunePlan { excess: bytes.saturating_sub(limit), ..Default::default() };
        let broken = sounds.iter().filter(|(_, sound)| sound.is_none());
        store.notes.extend(broken.map(|(run, _)| {
            format!("run {run:?} stays as it is: none of its checkpoints can be restored")
        }));
        if store.excess > 0 {
            store.notes.push(format!(
                "the runs of the store take {bytes} bytes, more than the limit of {limit}: of each run stay the newest \
                 checkpoint, the newest of a second epoch, and those whose data others need; raise the limit, or remove \
                 runs with `treering rm --whole-run`"
            ));
        }
        if gone.is_empty() {
            return Ok(store);
        }
        let mut by_run: Gone = BTreeMap::new();
        for (at, sequence) in &gone {
            by_run.entry(&self.runs[*at].0).or_default().insert(*sequence);
        }
        for (run, holding) in &self.runs {
            let plan = self.plan_of(run, holding, &by_run, sounds)?;
            if !(plan.removed.is_empty() && plan.packs.is_empty() && plan.branches.is_empty()) {
                store.runs.push(plan);
            }
        }
        store.bytes = store.runs.iter().map(|plan| plan.bytes).sum();
        store.removed = gone.iter().filter_map(|turn| self.planned(turn)).collect();
        Ok(store)
    }

    pub(super) fn new(mut runs: Vec<(String, Holding)>) -> StoreHolding {
        let named: Vec<HashSet<PackName>> =
            runs.iter().map(|(run, _)| named_by_others(&runs, run, |_, _| true)).collect();
        for ((_, holding), named) in runs.iter_mut().zip(named) {
            holding.shared = named;
        }
        StoreHolding { runs }
    }

    /// The checkpoints that may go, the oldest first. In a run they go in its order, whatever its clocks said.
    fn may_go(&self, sounds: &BTreeMap<String, Sound>) -> Vec<GoingCheckpoint> {
        let mut may_go: Vec<(u64, GoingCheckpoint)> = Vec::new();
        for (at, (run, holding)) in self.runs.iter().enumerate() {
            let stays = match sounds.get(run) {
                Some(sound) if sound.is_none() => numbers(holding),
                Some(sound) => sound.stays(&holding.manifests),
                None => BTreeSet::new(),
            };
            let least = least(holding, &stays);
            let mut time = 0;
            for FullManifest { manifest, .. } in &holding.manifests {
                time = manifest.time.max(time);
                if !least.contains(&manifest.sequence) {
                    may_go.push((time, (at, manifest.sequence)));
                }
            }
        }
        may_go.sort_unstable();
        may_go.into_iter().map(|(_, turn)| turn).collect()
    }

    /// The plan of one run when these checkpoints of it and of others go.
    fn plan_of(
        &self,
        run: &str,
        holding: &Holding,
        gone: &Gone,
        sounds: &BTreeMap<String, Sound>,
    ) -> Result<PrunePlan> {
        let nothing = BTreeSet::new();
        let goes = |run: &str, full: &FullManifest| {
            gone.get(run).is_some_and(|gone| gone.contains(&full.manifest.sequence))
        };
        let shared = named_by_others(&self.runs, run, |other, full| !goes(other, full));
        let own = gone.get(run).unwrap_or(&nothing);
        let sound = sounds.get(run).cloned().unwrap_or_default();
        plan(run, Rule::These(own), &holding.sharing(shared), sound)
    }

    fn planned(&self, (at, sequence): &GoingCheckpoint) -> Option<(String, PlannedStep)> {
        let (run, holding) = self.runs.get(*at)?;
        let full = holding.manifests.iter().find(|full| full.manifest.sequence == *sequence)?;
        Some((run.clone(), PlannedStep::of(&full.manifest)))
    }
}

impl StorePrunePlan {
    /// Leaves out what was planned and was not carried out.
    pub(crate) fn settle(&mut self) {
        let done: BTreeSet<(String, PlannedStep)> = self
            .runs
            .iter()
            .flat_map(|plan| plan.removed.iter().map(|step| (plan.run.clone(), *step)))
            .collect();
        self.removed.retain(|gone| done.contains(gone));
        self.bytes = self.runs.iter().map(|plan| plan.bytes).sum();
    }
}

/// The packs of a run that other runs name in checkpoints that stay.
fn named_by_others(
    runs: &[(String, Holding)],
    run: &str,
    stays: impl Fn(&str, &FullManifest) -> bool,
) -> HashSet<PackName> {
    let mut named = HashSet::new();
    for (other, holding) in runs.iter().filter(|(other, _)| other != run) {
        let stay = holding.manifests.iter().filter(|full| stays(other, full));
        let packs = stay.flat_map(FullManifest::packs).filter(|(of, _)| of == run);
        named.extend(packs.map(|(_, pack)| pack));
    }
    named
}

fn numbers(holding: &Holding) -> BTreeSet<Sequence> {
    holding.manifests.iter().map(|full| full.manifest.sequence).collect()
}
