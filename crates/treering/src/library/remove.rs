//! Removing one checkpoint, or a whole run.
//!
//! A checkpoint goes by the rules of retention, as if it were the only one that is not kept. A run goes from its end:
//! first everything that makes its checkpoints visible, durably, then what they consist of; whoever is interrupted
//! leaves whole checkpoints or none, and can begin again. Runs that share its packs keep it from going. A program that
//! is at work on it finds its opening gone and stops with an error.

use super::{Library, Progress};
use crate::compact::Bundler;
use crate::error::{Error, ErrorKind, Result};
use crate::format::{Names, PackName};
use crate::log::{FullManifest, Log, named_packs, runs};
use crate::retention::{LOCK, PATIENCE, PrunePlan, Rule};
use crate::store::{Store, lock_patiently};
use serde::Serialize;

/// A run that was removed, or would be. Returned by [`Library::plan_remove_run`] and [`Library::remove_run`], which has an
/// example.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct RemovedRun {
    /// Its name.
    pub run: String,
    /// Its checkpoints.
    pub checkpoints: u64,
    /// Number of its files in the last tier.
    pub files: u64,
    /// Size of these files in bytes.
    pub bytes: u64,
}

/// A file of a run.
struct RunFile {
    key: String,
    bytes: u64,
}

impl Library {
    /// Plan of [`Library::remove_checkpoint`].
    pub fn plan_remove_checkpoint(
        &self,
        run: &str,
        step: u64,
        progress: Progress,
    ) -> Result<PrunePlan> {
        let plan = self.plan_by(run, Rule::Without(step), progress)?;
        removes(plan, run, step)
    }

    /// Removes the checkpoints of a step, and nothing else. The newest checkpoint of a run stays, because a program may go
    /// on from it, and so does the newest that can be restored: asking for these is an error of kind
    /// [`ErrorKind::Usage`]. Waiting, other errors and the state after an interruption are those of [`Library::prune`].
    pub fn remove_checkpoint(&self, run: &str, step: u64, progress: Progress) -> Result<PrunePlan> {
        self.plan_remove_checkpoint(run, step, progress)?;
        let plan = self.prune_by(run, Rule::Without(step), progress)?;
        removes(plan, run, step)
    }

    /// Plan of [`Library::remove_run`].
    pub fn plan_remove_run(&self, run: &str) -> Result<RemovedRun> {
        self.refuse_tier(run)?;
        let (manifests, trouble) = self.log(run)?.manifests();
        let files = files_of(self.last.as_ref(), run)?;
        self.refuse_shared(run)?;
        Ok(RemovedRun {
            run: run.to_string(),
            checkpoints: (manifests.len() + trouble.len()) as u64,
            files: files.len() as u64,
            bytes: files.iter().map(|file| file.bytes).sum(),
        })
    }

    /// Removes a run with all its checkpoints. If others share its packs (branches of it), or a program has it open, nothing
    /// is removed, and the error is of kind [`ErrorKind::Usage`] or [`ErrorKind::Busy`]. Where the store has no locks, a
    /// program that has the run open stops with an error at its next save.
    ///
    /// **Waiting**: takes the store's lock, for which it waits up to ten seconds while other tools remove or share packs;
    /// then the error is of kind [`ErrorKind::Busy`]. **Errors**: the files that make checkpoints visible go first: after an
    /// error or an interruption the remaining checkpoints are whole, and calling this again removes them. If none remain,
    /// the run is gone ([`ErrorKind::NotFound`]), and packs that are left are removed when a run of this name is opened.
    ///
    /// ```
    /// use treering::{Library, Options, Run, Variable};
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let store = folder.path().join("store");
    /// let mut run = Run::open(Options::directory(&store, "rod"))?;
    /// run.checkpoint(0, &[Variable::new("heat", &[0.0f64; 100])])?;
    /// run.finish()?;
    /// let library = Library::open(&store)?;
    /// let planned = library.plan_remove_run("rod")?; // removes nothing
    /// assert_eq!((planned.checkpoints, library.remove_run("rod")?), (1, planned));
    /// assert!(library.run_names()?.is_empty());
    /// # Ok::<(), treering::Error>(())
    /// ```
    pub fn remove_run(&self, run: &str) -> Result<RemovedRun> {
        let _lock = lock_patiently(self.last.as_ref(), LOCK, PATIENCE)?;
        let names = Names::new(run);
        let removed = self.plan_remove_run(run)?;
        let _writer = self.last.lock(&names.lock())?;
        self.remove_files(run)?;
        Ok(removed)
    }

    /// Removes everything of a run, first what makes its checkpoints visible. Packs stay that another run names by now.
    pub(super) fn remove_files(&self, run: &str) -> Result<()> {
        let names = Names::new(run);
        for (number, tier) in std::iter::once(&self.last).chain(&self.near).enumerate() {
            let files = files_of(tier.as_ref(), run)?;
            let (mut shows, mut openings, mut rest) = (Vec::new(), Vec::new(), Vec::new());
            for RunFile { key, .. } in files {
                let name = key.rsplit('/').next().unwrap_or_default();
                let bundle = Names::parse_bundle(name);
                match () {
                    () if key.starts_with(&names.log()) => shows.push(key),
                    () if bundle.is_some_and(|(_, is_index)| is_index) => shows.push(key),
                    () if key.starts_with(&names.openings()) => openings.push(key),
                    () => rest.push(key),
                }
            }
            delete(tier.as_ref(), &shows)?;
            if !shows.is_empty() {
                tier.settle(&names.log())?;
                tier.settle(&names.bundles())?;
            }
            // They would overtake the next run of this name.
            delete(tier.as_ref(), &openings)?;
            if number > 0 {
                delete(tier.as_ref(), &rest)?;
                continue;
            }
            // Who branches off looks for the source once more behind its own manifest: either that is seen here, or the
            // source was gone.
            let needed = named_packs(&self.seen, run)?;
            let needs = |pack: Option<PackName>| pack.is_some_and(|pack| needed.contains(&pack));
            let is_bundle = |name: &str| Names::parse_bundle(name).is_some();
            rest.retain(|key| {
                let name = key.rsplit('/').next().unwrap_or_default();
                let stays = !needed.is_empty() && is_bundle(name);
                !stays && !needs(Names::parse_pack(name))
            });
            delete(tier.as_ref(), &rest)?;
            if !needed.is_empty() {
                let indexes = shows.iter().filter_map(|key| key.rsplit('/').next());
                let unpublished = indexes.filter_map(Names::parse_bundle).map(|(name, _)| name);
                let bundler = Bundler::new(tier.clone(), run);
                bundler.tidy(&|| Ok(needed.clone()), &unpublished.collect())?;
            }
        }
        Ok(())
    }

    /// Refuses a run whose packs others name.
    pub(super) fn refuse_shared(&self, run: &str) -> Result<()> {
        for other in runs(self.last.as_ref())?.iter().filter(|other| *other != run) {
            let mut survey = Log::read(self.seen.clone(), other)?.survey();
            let full = survey.take_full(self.seen.as_ref());
            let shares = full.iter().flat_map(FullManifest::packs).any(|(of, _)| of == run);
            if let Some((_, error)) = survey.unreadable.first() {
                let what = format!("an entry of the log of run {other:?} cannot be read: {error}");
                return Err(Error::new(error.kind(), what)
                    .hint("nothing is removed while it is unknown what it needs"));
            }
            if shares {
                return Err(Error::usage(format!(
                    "run {other:?} is a branch that shares data of run {run:?}"
                ))
                .hint(format!("remove {other:?} first")));
            }
        }
        Ok(())
    }
}

fn delete(store: &dyn Store, keys: &[String]) -> Result<()> {
    if keys.is_empty() { Ok(()) } else { store.delete(keys) }
}

/// The files of a run, but for its lock, which others may wait for.
fn files_of(store: &dyn Store, run: &str) -> Result<Vec<RunFile>> {
    let names = Names::new(run);
    let mut folders = vec![format!("{}/{run}", Names::RUNS)];
    let mut files = Vec::new();
    while let Some(folder) = folders.pop() {
        let items = match store.list(&folder) {
            Err(error) if error.kind() == ErrorKind::NotFound => continue,
            items => items?,
        };
        for item in items {
            let key = format!("{folder}/{}", item.name);
            match item.folder {
                true => folders.push(key),
                false if key == names.lock() => {}
                false => files.push(RunFile { key, bytes: item.size }),
            }
        }
    }
    Ok(files)
}

/// Refuses a plan that removes nothing.
fn removes(plan: PrunePlan, run: &str, step: u64) -> Result<PrunePlan> {
    if !plan.removed.is_empty() {
        return Ok(plan);
    }
    match plan.kept.iter().any(|kept| kept.step == step) {
        true => Err(Error::usage(format!("{run}@{step} is needed and stays"))
            .hint("it is the newest checkpoint, or the newest one that can be restored; a later `treering rm` removes it \
                   once the run has continued from an older step (Run::restore_step)")),
        false => Err(Error::new(ErrorKind::NotFound, format!("run {run:?} has no checkpoint of step {step}"))
            .hint(format!("`treering ls STORE#{run}` lists them"))),
    }
}
