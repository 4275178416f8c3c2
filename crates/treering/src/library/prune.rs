//! Retention as a tool: planned first, carried out afterwards. Its laws stand at the head of [`retention`](crate::retention).

use super::{Library, Progress};
use crate::error::{Error, Result};
use crate::log::Log;
use crate::retention::{Keep, PrunePlan, Pruner, Rule, Sound, StorePrunePlan};
use std::collections::{BTreeMap, BTreeSet};

impl Library {
    /// Plans a pruning: which checkpoints and packs it removes. Reads all data of the newest checkpoint to be sure that it
    /// can be restored, and of older ones until one is sound. Takes no lock and removes nothing.
    pub fn plan_prune(&self, run: &str, keep: Keep, progress: Progress) -> Result<PrunePlan> {
        self.plan_by(run, Rule::Keep(keep), progress)
    }

    /// Removes the checkpoints that `keep` does not keep, with the packs that only they need. Returns the plan that was
    /// carried out.
    ///
    /// **Waiting**: the newest checkpoint is read first, as by [`plan_prune`](Library::plan_prune). Then the store's lock is
    /// taken, for which it waits up to ten seconds while other tools remove or share packs; then the error is of kind
    /// [`ErrorKind::Busy`](crate::ErrorKind::Busy), and nothing was removed.
    ///
    /// **Errors**: nothing is removed while an entry of any log cannot be read ([`Keep::forget_damaged`] allows it for
    /// damaged ones of this run), or if no checkpoint can be restored. Manifests go before packs: after an error or an
    /// interruption every checkpoint is whole or gone, and packs that nothing refers to may remain. The next pruning removes
    /// these.
    ///
    /// ```
    /// use treering::{Keep, Library, Options, Run, Variable};
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let store = folder.path().join("store");
    /// let mut run = Run::open(Options::directory(&store, "rod"))?;
    /// for step in 0..5 {
    ///     run.checkpoint(step, &[Variable::new("heat", &[step as f64; 100])])?;
    /// }
    /// run.finish()?;
    /// let library = Library::open(&store)?;
    /// let plan = library.prune("rod", Keep::newest(2), &|_, _| {})?;
    /// assert_eq!(library.checkpoints("rod")?.0.len(), plan.kept.len());
    /// # Ok::<(), treering::Error>(())
    /// ```
    pub fn prune(&self, run: &str, keep: Keep, progress: Progress) -> Result<PrunePlan> {
        self.prune_by(run, Rule::Keep(keep), progress)
    }

    /// Computes what [`prune_store`](Library::prune_store) would remove. Removes nothing.
    pub fn plan_prune_store(&self, limit: u64, progress: Progress) -> Result<StorePrunePlan> {
        self.plan_store(limit, progress).map(|(plan, _)| plan)
    }

    /// Removes the oldest checkpoints of all runs, by the time of their commit, until the runs of the store take no more than
    /// `limit` bytes together. Returns the plan that was carried out.
    ///
    /// Of each run stays what [`prune`](Library::prune) with `Keep::newest(1)` keeps: the newest checkpoint, the newest that
    /// can be restored, the newest of a second epoch, those that a program may continue from, and everything that is not in
    /// the last tier. Packs that a checkpoint of another run needs, such as a branch, go with the last checkpoint that needs
    /// them. If the limit cannot be kept, [`StorePrunePlan::excess`] and a note report it.
    ///
    /// **Waiting**: as for [`prune`](Library::prune); the newest checkpoint of each run from which something goes is read
    /// first. **Errors**: nothing is removed while an entry of any log cannot be read. Runs are pruned one after another: after
    /// an error those before are pruned, and every checkpoint is whole or gone.
    ///
    /// ```
    /// use treering::{Library, Options, Run, Variable};
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let store = folder.path().join("store");
    /// for name in ["monday", "tuesday"] {
    ///     let mut run = Run::open(Options::directory(&store, name))?;
    ///     for step in 0..5 {
    ///         run.checkpoint(step, &[Variable::new("heat", &[step as f64; 100])])?;
    ///     }
    ///     run.finish()?;
    /// }
    /// let plan = Library::open(&store)?.plan_prune_store(1 << 30, &|_, _| {})?;
    /// assert!(plan.removed.is_empty()); // they take less than 1 GiB
    /// # Ok::<(), treering::Error>(())
    /// ```
    pub fn prune_store(&self, limit: u64, progress: Progress) -> Result<StorePrunePlan> {
        let (mut plan, sounds) = self.plan_store(limit, progress)?;
        let planned = std::mem::take(&mut plan.runs);
        for of_run in &planned {
            let gone = of_run.removed.iter().map(|gone| gone.sequence).collect();
            let sound = sounds.get(&of_run.run).cloned().unwrap_or_default();
            plan.runs.push(self.pruner(&of_run.run).prune(Rule::These(&gone), sound)?);
        }
        // Packs that checkpoints of runs needed which came later.
        for of_run in plan.runs.iter_mut().filter(|_| planned.len() > 1) {
            let pruner = self.pruner(&of_run.run);
            let more = pruner.prune(Rule::These(&BTreeSet::new()), Sound::default())?;
            of_run.bytes += more.bytes;
            of_run.packs.extend(more.packs);
            of_run.branches.extend(more.branches);
        }
        plan.settle();
        Ok(plan)
    }

    /// A plan for all runs, with what is known of those from which checkpoints go.
    fn plan_store(
        &self,
        limit: u64,
        progress: Progress,
    ) -> Result<(StorePrunePlan, BTreeMap<String, Sound>)> {
        if limit == 0 {
            return Err(Error::usage("runs with checkpoints take more than 0 bytes")
                .hint("give a limit of several times the size of a checkpoint"));
        }
        let holding = Pruner::store(&self.near, &self.last)?;
        let mut sounds: BTreeMap<String, Sound> = BTreeMap::new();
        loop {
            let plan = holding.plan(limit, &sounds)?;
            let from = plan.removed.iter().map(|(run, _)| run);
            let Some(run) = from.into_iter().find(|run| !sounds.contains_key(*run)) else {
                return Ok((plan, sounds));
            };
            let sound = self.judge(&self.pruner(run), run, progress)?;
            sounds.insert(run.clone(), sound);
        }
    }

    pub(super) fn plan_by(&self, run: &str, rule: Rule, progress: Progress) -> Result<PrunePlan> {
        let pruner = self.pruner(run);
        pruner.refuse_tier()?;
        pruner.plan(rule, self.newest_sound(&pruner, run, progress)?)
    }

    pub(super) fn prune_by(&self, run: &str, rule: Rule, progress: Progress) -> Result<PrunePlan> {
        let pruner = self.pruner(run);
        pruner.refuse_tier()?;
        pruner.prune(rule, self.newest_sound(&pruner, run, progress)?)
    }

    fn pruner(&self, run: &str) -> Pruner {
        Pruner::new(self.near.clone(), self.last.clone(), run)
    }

    /// Refuses a store of a node.
    pub(super) fn refuse_tier(&self, run: &str) -> Result<()> {
        self.pruner(run).refuse_tier()
    }

    /// Finds the newest checkpoint that can be restored, or nothing.
    fn judge(&self, pruner: &Pruner, run: &str, progress: Progress) -> Result<Sound> {
        self.log(run)?;
        let manifests = Log::read(self.seen.clone(), run)?.manifests().0;
        let total = manifests.iter().map(|m| m.full_bytes).max().unwrap_or(0);
        progress(0, total);
        let last = Library::of(self.last.clone());
        let sound =
            pruner.newest_sound(&mut |manifest| last.check_checkpoint(manifest, true).map(drop))?;
        progress(total, total);
        Ok(sound)
    }

    /// Finds the newest checkpoint that can be restored; there must be one if there are any.
    fn newest_sound(&self, pruner: &Pruner, run: &str, progress: Progress) -> Result<Sound> {
        let sound = self.judge(pruner, run, progress)?;
        match sound.is_none() {
            false => Ok(sound),
            true => Err(Error::damaged(format!("no checkpoint of run {run:?} can be restored"))
                .hint(
                    "nothing is removed: `treering verify` reports what is damaged, and `treering rm --whole-run` removes \
                     the run",
                )),
        }
    }
}
