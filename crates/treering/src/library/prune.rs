//! Retention as a tool: planned first, carried out afterwards. Its laws stand at the head of [`retention`](crate::retention).

use super::{Library, Progress};
use crate::error::{Error, Result};
use crate::log::Log;
use crate::retention::{Keep, PrunePlan, Pruner, Rule, Sound};

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

    /// Finds the newest checkpoint that can be restored.
    fn newest_sound(&self, pruner: &Pruner, run: &str, progress: Progress) -> Result<Sound> {
        self.log(run)?;
        let manifests = Log::read(self.seen.clone(), run)?.manifests().0;
        let total = manifests.iter().map(|m| m.full_bytes).max().unwrap_or(0);
        progress(0, total);
        let last = Library::of(self.last.clone());
        let sound =
            pruner.newest_sound(&mut |manifest| last.check_checkpoint(manifest, true).map(drop))?;
        progress(total, total);
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
