//! The front door for tools: what a store holds, whether it is sound, and what may go.
//!
//! Everything here works on any store, beside running programs: reading needs no lock, and removing
//! leaves alone whatever a living writer may still refer to, whatever locks say.

mod arrays;
mod compact;
mod copy;
mod copy_plan;
mod drain;
mod export;
mod holdings;
mod info;
mod labelled;
mod listing;
mod place;
mod prune;
mod remove;
mod sides;
mod trees;
mod verify;

pub use arrays::{ArrayExport, ArrayFormat, ExportedArray, ExportedArrays, export_arrays};
pub use copy::CopiedRun;
pub use drain::{DrainPlan, DrainedPart};
pub use export::{Exported, NotTakenApart, export};
pub use holdings::{HeldSet, Holdings};
pub use info::{CheckpointInfo, RunInfo, TreeInfo, VariableInfo};
pub use labelled::LabelTest;
pub use listing::{FileListing, ListedArray};
pub use place::Place;
pub use remove::RemovedRun;
pub use sides::{open_side, open_side_following};
pub use verify::{Finding, VerifyReport};

use crate::array::{Sequence, Step};
use crate::compare::Progress;
use crate::error::{Error, ErrorKind, Result};
use crate::format::{Branch, FAN, Manifest, Names, Origin, WriterId, check_run_name};
use crate::log::{KnownEntries, Log, runs};
use crate::restore::{Backwards, Checkpoint, KnownFooters};
use crate::retention::{LOCK, PATIENCE};
use crate::store::{BundledStore, DirectoryStore, Store, TieredStore, lock_patiently};
use std::collections::HashMap;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::path::Path;
use std::sync::{Arc, Mutex};

/// Number of times that a log is listed again if it changes while it is read.
const LISTINGS: usize = 10;

/// A store as tools see it: lists runs and checkpoints, reads, verifies, prunes and exports them.
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
/// assert_eq!(library.run_names()?, ["rod"]);
/// let (checkpoints, unreadable) = library.checkpoints("rod")?;
/// assert_eq!((checkpoints.len(), unreadable.len()), (5, 0));
/// let keep = Keep::newest(2);
/// let plan = library.plan_prune("rod", keep, &|_, _| {})?; // what `prune` would remove
/// # assert!(plan.removed.len() <= 3);
/// # Ok::<(), treering::Error>(())
/// ```
///
/// It takes no lock for reading, and may be used while a program writes to the store: it sees complete checkpoints only.
#[derive(Clone)]
pub struct Library {
    /// All tiers as one, for reading.
    store: Arc<dyn Store>,
    /// The tier that lasts, the same for reading, and those in front of it.
    last: Arc<dyn Store>,
    seen: Arc<dyn Store>,
    near: Vec<Arc<dyn Store>>,
    /// The entries of each run's log that were read before.
    known: Arc<Mutex<HashMap<String, KnownEntries>>>,
    footers: KnownFooters,
}

impl Library {
    /// Opens a store that is a folder.
    pub fn open(folder: impl AsRef<Path>) -> Result<Self> {
        let folder = folder.as_ref();
        let library = Library::of(Arc::new(DirectoryStore::new(folder)));
        let items = library.store.list("")?;
        if !items.iter().any(|item| item.folder && item.name == Names::RUNS) {
            return Err(Error::new(
                ErrorKind::NotFound,
                format!("{} is not a store", folder.display()),
            )
            .hint("give the folder in which a run was opened"));
        }
        Ok(library)
    }

    /// A store that is a folder, which need not exist yet: copies of runs make it.
    pub fn directory(folder: impl AsRef<Path>) -> Self {
        Library::of(Arc::new(DirectoryStore::new(folder.as_ref())))
    }

    /// Opens any store. Nothing is read yet, so this cannot fail.
    pub fn of(store: Arc<dyn Store>) -> Self {
        let seen: Arc<dyn Store> = Arc::new(BundledStore::new(store.clone()));
        Library {
            store: seen.clone(),
            last: store,
            seen,
            near: Vec::new(),
            known: Arc::default(),
            footers: KnownFooters::default(),
        }
    }

    /// Opens a store and the tiers in front of it, the nearest first.
    pub fn of_tiers(near: Vec<Arc<dyn Store>>, last: Arc<dyn Store>) -> Self {
        let seen: Arc<dyn Store> = Arc::new(BundledStore::new(last.clone()));
        let store = Arc::new(TieredStore::new(near.clone(), seen.clone()));
        let footers = KnownFooters::default();
        Library { store, last, seen, near, known: Arc::default(), footers }
    }

    /// Lists the names of all runs, including those whose log cannot be read. The folder of a run that was removed, or whose
    /// opening was never completed, is none.
    pub fn run_names(&self) -> Result<Vec<String>> {
        let mut names = Vec::new();
        for name in runs(self.store.as_ref())? {
            // One whose log cannot be read is a run all the same: whoever asks for it hears why.
            if Log::read(self.store.clone(), &name).map_or(true, |log| !log.sequences.is_empty()) {
                names.push(name);
            }
        }
        Ok(names)
    }

    /// Summarizes all runs.
    ///
    /// ```
    /// use treering::{Library, Options, Run, Variable};
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let store = folder.path().join("store");
    /// let mut run = Run::open(Options::directory(&store, "rod"))?;
    /// run.checkpoint(7, &[Variable::new("heat", &[293.15f64; 100])])?;
    /// run.finish()?;
    /// for run in Library::open(&store)?.runs()? {
    ///     println!("{}: {} checkpoints, {} B in the store", run.name, run.checkpoints, run.stored_bytes);
    /// #   assert_eq!((&run.name[..], run.newest_step), ("rod", Some(7)));
    /// }
    /// # Ok::<(), treering::Error>(())
    /// ```
    pub fn runs(&self) -> Result<Vec<RunInfo>> {
        let runs = self.run_names()?;
        runs.iter().filter_map(|run| info::run(self, run).transpose()).collect()
    }

    /// Lists the checkpoints of a run, oldest first, and the errors of entries of its log that cannot be read: these do
    /// not make the call fail. The call fails if there is no such run ([`ErrorKind::NotFound`]) or its log cannot be listed.
    /// No pack is read, so a listed checkpoint may be damaged.
    ///
    /// ```
    /// use treering::{Library, Options, Run, Variable};
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let store = folder.path().join("store");
    /// let mut run = Run::open(Options::directory(&store, "rod"))?;
    /// run.checkpoint(7, &[Variable::new("heat", &[293.15f64; 100])])?;
    /// run.finish()?;
    /// let (checkpoints, unreadable) = Library::open(&store)?.checkpoints("rod")?;
    /// unreadable.iter().for_each(|error| eprintln!("{error}"));
    /// assert_eq!((checkpoints[0].step, checkpoints[0].variables), (7, 1));
    /// # Ok::<(), treering::Error>(())
    /// ```
    pub fn checkpoints(&self, run: &str) -> Result<(Vec<CheckpointInfo>, Vec<Error>)> {
        let (mut manifests, mut trouble) = self.log(run)?.manifests();
        // Entries that are removed or compacted while they are read are no trouble: the next listing tells.
        for _ in 0..LISTINGS {
            if !trouble.iter().any(|error| error.kind() == ErrorKind::NotFound) {
                break;
            }
            (manifests, trouble) = self.log(run)?.manifests();
        }
        Ok((info::checkpoints(&manifests), trouble))
    }

    /// Opens the newest checkpoint of a run, or the newest of a step. Newer entries of the log that are damaged are passed
    /// over, and reported by its [`notes`](Checkpoint::notes).
    ///
    /// **Errors**: [`ErrorKind::NotFound`] without such a run or step; [`ErrorKind::Damaged`] if descriptions in the packs
    /// of this checkpoint are damaged in every copy: no older checkpoint serves then. An entry that the system does not let
    /// us read (no permission, a failing disk) is an error, too, because it may be the one that is asked for.
    pub fn checkpoint(&self, run: &str, step: Option<u64>) -> Result<Checkpoint> {
        let (manifest, newer) = self.newest(run, step)?;
        let checkpoint = Checkpoint::load_beside(self.store.clone(), manifest, &self.footers)?;
        for error in &newer {
            // It may be of any step.
            let what = if step.is_none() { "a newer checkpoint" } else { "a newer entry" };
            checkpoint.note(format!("{what} than this cannot be read: {error}"));
        }
        Ok(checkpoint)
    }

    /// Describes the variables of a checkpoint, and the data that it added to each. Trees that cannot be read are left out.
    ///
    /// ```
    /// use treering::{Library, Options, Run, Variable};
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let store = folder.path().join("store");
    /// let mut run = Run::open(Options::directory(&store, "rod"))?;
    /// run.checkpoint(7, &[Variable::new("heat", &[293.15f64; 100])])?;
    /// run.finish()?;
    /// let library = Library::open(&store)?;
    /// let variables = library.variables(&library.checkpoint("rod", None)?);
    /// assert_eq!((&variables[0].name[..], variables[0].bytes), ("heat", 800));
    /// # Ok::<(), treering::Error>(())
    /// ```
    pub fn variables(&self, checkpoint: &Checkpoint) -> Vec<VariableInfo> {
        info::variables(checkpoint)
    }

    /// Iterates over the states of a run from its newest checkpoint back to the first. A state that cannot be read is an
    /// error in its place; the next older one follows. The example of [`Backwards`] shows its use.
    pub fn backwards(&self, run: &str) -> Result<Backwards> {
        let (newest, trouble) = self.newest(run, None)?;
        Ok(Backwards::new(self.store.clone(), run, newest.sequence)?.behind(trouble))
    }

    /// Begins a new run with a checkpoint of another one; no data is copied.
    ///
    /// **Waiting**: takes the store's lock, for which it waits up to ten seconds while other tools remove or share packs;
    /// then the error is of kind [`ErrorKind::Busy`]. **Errors**: [`ErrorKind::Usage`] if the new name is taken,
    /// [`ErrorKind::Busy`] if the checkpoint is pruned meanwhile. The new run appears when its one manifest is written:
    /// after an error or an interruption it exists or it does not. Files that an interruption leaves are removed when a run
    /// of that name is opened.
    ///
    /// ```
    /// use treering::{Library, Options, Run, Variable};
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let store = folder.path().join("store");
    /// let mut run = Run::open(Options::directory(&store, "rod"))?;
    /// run.checkpoint(1, &[Variable::new("heat", &[293.15f64; 1000])])?;
    /// run.finish()?;
    /// let library = Library::open(&store)?;
    /// library.branch("rod", Some(1), "rod-hot")?; // a run of its own, which begins with step 1
    /// assert_eq!(library.checkpoint("rod-hot", None)?.step(), 1);
    /// # Ok::<(), treering::Error>(())
    /// ```
    pub fn branch(&self, run: &str, step: Option<u64>, new: &str) -> Result<Manifest> {
        check_run_name(new)?;
        let _lock = lock_patiently(self.store.as_ref(), LOCK, PATIENCE)?;
        // A state that cannot be restored is no beginning. Only the last tier outlives the node.
        let last = Library::of(self.last.clone());
        let checkpoint = last.checkpoint(run, step)?;
        let source = checkpoint.manifest().clone();
        let names = Names::new(new);
        let _writer = self.store.lock(&names.lock())?;
        let taken = || {
            Error::usage(format!("there is a run {new:?} already"))
                .hint("choose another name for the branch")
        };
        if !Log::read(self.store.clone(), new)?.sequences.is_empty() {
            return Err(taken());
        }
        let from = |sequence, of: &Option<String>| Origin {
            run: Some(of.clone().unwrap_or_else(|| run.to_string())),
            sequence,
        };
        let manifest = Manifest {
            run: new.to_string(),
            sequence: Sequence(1),
            writer: WriterId::default(),
            parent: Some(from(source.sequence, &None)),
            epoch: from(source.epoch.sequence, &source.epoch.run),
            groups: checkpoint.groups().cloned().collect(),
            ..source.clone()
        };
        // Remains of an earlier try must not be in the way of branches.
        let nonce = RandomState::new().build_hasher().finish();
        let writer = WriterId { opening: Sequence(0), nonce };
        let (branches, manifest) = match manifest.is_small() {
            true => (Vec::new(), manifest),
            false => Manifest { writer, ..manifest }.split(FAN)?,
        };
        for branch in &branches {
            self.last.commit(&names.branch(branch.name()), &branch.write())?;
        }
        if !self.last.commit(&names.entry(manifest.sequence), &manifest.write())? {
            self.remove_branches(&names, &branches)?;
            return Err(taken());
        }
        // Prune removes manifests, then looks who else names their packs. Either it has seen this one, or
        // the source is gone by now.
        match Log::read(self.seen.clone(), run)?.manifest(source.sequence) {
            Ok(Some(still)) if still == source => Ok(manifest),
            _ => {
                self.last.delete(&[names.entry(manifest.sequence)])?;
                self.remove_branches(&names, &branches)?;
                Err(Error::new(ErrorKind::Busy, "the checkpoint was pruned meanwhile")
                    .at(format!("{run}@{}", source.step))
                    .hint("branch from another one"))
            }
        }
    }

    fn remove_branches(&self, names: &Names, branches: &[Branch]) -> Result<()> {
        let keys: Vec<String> = branches.iter().map(|b| names.branch(b.name())).collect();
        if keys.is_empty() { Ok(()) } else { self.last.delete(&keys) }
    }

    fn log(&self, run: &str) -> Result<Log> {
        check_run_name(run)?;
        let known = {
            let mut known = self.known.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
            known.entry(run.to_string()).or_default().clone()
        };
        let log = Log::read_beside(self.store.clone(), run, known)?;
        if log.sequences.is_empty() {
            let mut names = self.run_names()?;
            names.retain(|name| name != run);
            let names = names.join(", ");
            let hint = match names.is_empty() {
                true => "the store has no other".to_string(),
                false => format!("it has {names}"),
            };
            return Err(Error::new(ErrorKind::NotFound, format!("there is no run {run:?}"))
                .at(self.store.name())
                .hint(hint));
        }
        Ok(log)
    }

    /// The newest checkpoint, or the newest of a step, and what is wrong with newer ones. One that the system does not let
    /// us read may be the one that is asked for, and is an error.
    fn newest(&self, run: &str, step: Option<u64>) -> Result<(Manifest, Vec<Error>)> {
        let log = self.log(run)?;
        let mut trouble = Vec::new();
        for sequence in log.sequences.iter().rev() {
            match log.manifest_of(*sequence, step.map(Step)) {
                Ok(Some(manifest)) => return Ok((manifest, trouble)),
                Ok(None) => {}
                Err(_) if log.is_surely_no_manifest(*sequence) => {}
                Err(error) if error.kind().lets_older_serve() => trouble.push(error),
                Err(error) => return Err(error.at(format!("entry {sequence} of run {run:?}"))),
            }
        }
        Err(trouble.pop().unwrap_or_else(|| {
            let what = match step {
                Some(step) => format!("run {run:?} has no checkpoint of step {step}"),
                None => format!("run {run:?} has no checkpoint yet"),
            };
            Error::new(ErrorKind::NotFound, what)
                .at(self.store.name())
                .hint("`treering ls` lists what there is")
        }))
    }
}
