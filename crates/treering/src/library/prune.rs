//! Retention as a tool: planned first, carried out afterwards. Its laws stand at the head of [`retention`](crate::retention).

use super::{Library, Progress};
use crate::error::{Error, Result};
use crate::log::Log;
use crate::retention::{Keep, PrunePlan, Pruner, Rule, Sound};

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

    /// The newest checkpoint that can be restored.
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
