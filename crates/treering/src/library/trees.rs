//! Trees of runs that were captured without them.

use super::{Library, Progress};
use crate::array::{DType, Rank, Step, Variable};
use crate::compare::{
    Side, SideEntry, StoredSide, TreeSettings, build_trees, matches_variable, put_head,
};
use crate::error::{Error, ErrorKind, Result};
use crate::format::{TREE_FRONT, TREES_RUN, TreeOrigin, tree_name};
use crate::merkle::Digest;
use crate::restore::Checkpoint;
use crate::run::{Options, Run};
use std::sync::atomic::{AtomicU64, Ordering};

/// A tree and the name it is saved under.
struct Made {
    name: String,
    bytes: Vec<u8>,
}

impl Made {
    fn variable(&self) -> Variable<'_> {
        let shape = [self.bytes.len() as u64];
        Variable::from_bytes(&self.name, DType::Bytes, &shape, &self.bytes)
    }
}

impl Library {
    /// Makes trees of all checkpoints of a run, or of one step, and keeps them in the same store, in
    /// a run of their own beside it. Returns the number of trees that were made, and notes on what was left out.
    ///
    /// Reads the data of the checkpoints, one after another. The trees of each are durable before the next is read: after an
    /// error those that were made stay, and a second call adds the others. **Errors**: [`ErrorKind::NotFound`] if nothing
    /// matches, [`ErrorKind::Busy`] if another process makes trees of this run. The run itself is not changed.
    ///
    /// ```
    /// use treering::{Bound, Library, Options, Run, TreeSettings, Variable};
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let store = folder.path().join("store");
    /// let mut run = Run::open(Options::directory(&store, "rod"))?;
    /// run.checkpoint(1, &[Variable::new("heat", &[293.15f64; 1000])])?;
    /// run.finish()?;
    /// let settings = TreeSettings { bounds: vec![Bound::abs(1e-6)], ..TreeSettings::default() };
    /// let library = Library::open(&store)?;
    /// let (trees, _notes) = library.make_trees("rod", None, &[], &settings, &|_, _| {})?;
    /// assert_eq!(trees, 1);
    /// # Ok::<(), treering::Error>(())
    /// ```
    pub fn make_trees(
        &self,
        run: &str,
        step: Option<u64>,
        patterns: &[String],
        settings: &TreeSettings,
        progress: Progress,
    ) -> Result<(u64, Vec<String>)> {
        settings.check()?;
        let side = StoredSide::open(self.store.clone(), run, step.map(Step))?;
        let beside = format!("{run}{TREES_RUN}");
        let mut keeper = Run::open(Options::in_store(self.store.clone(), &beside))?;
        // Goes on from what was kept before, so that it stays in the run's lineage.
        keeper.restore(&mut [])?;
        let mut count = 0;
        for Step(step) in side.steps()?.into_iter().flatten() {
            let new = self.trees_of(run, step, patterns, settings, progress)?;
            if new.is_empty() {
                continue;
            }
            count += new.len() as u64;
            let mut made = self.trees_there(&beside, step);
            made.retain(|old| new.iter().all(|new| new.name != old.name));
            made.extend(new);
            save(&mut keeper, step, &made)?;
        }
        keeper.finish()?;
        match count {
            0 => Err(nothing()),
            count => Ok((count, side.notes())),
        }
    }

    /// Makes trees of the variables of sides, such as files, and keeps them as a checkpoint of a run, without the data. All
    /// trees are in memory at once, and durable when this returns.
    ///
    /// **Errors**: [`ErrorKind::Usage`] if a side has several steps, or two sides have a variable of one name,
    /// [`ErrorKind::NotFound`] if nothing matches, [`ErrorKind::Busy`] if another process has the run open. After an error the run has no such checkpoint.
    pub fn keep_trees(
        &self,
        run: &str,
        step: u64,
        sides: &[Box<dyn Side>],
        patterns: &[String],
        settings: &TreeSettings,
        progress: Progress,
    ) -> Result<()> {
        settings.check()?;
        let mut made = Vec::new();
        for side in sides {
            let steps = side.steps()?;
            if steps.len() > 1 {
                return Err(Error::usage("the trees of one step are kept as one checkpoint")
                    .hint("name the step, as in STORE#RUN@STEP"));
            }
            for at in steps {
                let kept = |_: &SideEntry| Ok((TreeOrigin::Kept, Digest::default()));
                made.extend(make(&side.entries(at)?, patterns, settings, progress, kept)?);
            }
        }
        let mut names: Vec<&str> = made.iter().map(|tree| tree.name.as_str()).collect();
        names.sort_unstable();
        if names.windows(2).any(|pair| pair[0] == pair[1]) {
            return Err(Error::usage("two of the files have a variable of the same name")
                .hint("keep their trees in different runs or steps"));
        }
        if made.is_empty() {
            return Err(nothing());
        }
        let mut keeper = Run::open(Options::in_store(self.store.clone(), run))?;
        keeper.restore(&mut [])?;
        save(&mut keeper, step, &made)?;
        keeper.finish()
    }

    /// The trees that were made of a step before.
    fn trees_there(&self, beside: &str, step: u64) -> Vec<Made> {
        let Ok(checkpoint) = self.checkpoint(beside, Some(step)) else { return Vec::new() };
        let names = checkpoint.variables().map(|v| v.name.clone());
        let read = |name: String| {
            let bytes = read_tree(&checkpoint, &name).ok()?;
            Some(Made { name, bytes })
        };
        names.filter_map(read).collect()
    }

    fn trees_of(
        &self,
        run: &str,
        step: u64,
        patterns: &[String],
        settings: &TreeSettings,
        progress: Progress,
    ) -> Result<Vec<Made>> {
        let side = StoredSide::open(self.store.clone(), run, Some(Step(step)))?;
        let checkpoint = self.checkpoint(run, Some(step))?;
        // Datasets in the skeletons of files have no root that a tree could name.
        let mut entries = side.entries(Some(Step(step)))?;
        entries.retain(|e| checkpoint.exact(e.rank, &e.description.name).is_ok());
        make(&entries, patterns, settings, progress, |entry| {
            let exact = checkpoint.exact(entry.rank, &entry.description.name)?.root;
            Ok((TreeOrigin::Stored, exact))
        })
    }
}

fn nothing() -> Error {
    Error::new(ErrorKind::NotFound, "there is nothing to make trees of")
        .hint("no variable matches, or only trees were kept")
}

/// Makes the trees of variables; `of` tells what each was made from.
fn make(
    entries: &[SideEntry],
    patterns: &[String],
    settings: &TreeSettings,
    progress: Progress,
    of: impl Fn(&SideEntry) -> Result<(TreeOrigin, Digest)>,
) -> Result<Vec<Made>> {
    let mut made = Vec::new();
    for entry in entries {
        let (name, rank, dtype) = (&entry.description.name, entry.rank, entry.description.dtype);
        let named = |pattern: &str| matches_variable(pattern, name, entry.origin.as_ref());
        let wanted = patterns.is_empty() || patterns.iter().any(|pattern| named(pattern));
        let Some(values) = entry.values.as_ref().filter(|_| wanted) else { continue };
        let recipes = settings.recipes(dtype, named)?;
        if recipes.is_empty() {
            continue;
        }
        let done = AtomicU64::new(0);
        let told =
            |bytes| progress(done.fetch_add(bytes, Ordering::Relaxed) + bytes, values.size());
        let (origin, exact) = of(entry)?;
        for mut image in build_trees(dtype, &recipes, values.as_ref(), TREE_FRONT, &told)? {
            put_head(&entry.description, &mut image, origin, (rank, exact))?;
            let name = tree_name(rank, name, &image.recipe);
            made.push(Made { name, bytes: image.bytes });
        }
    }
    Ok(made)
}

/// Saves trees as the variables of a checkpoint, durably.
fn save(keeper: &mut Run, step: u64, made: &[Made]) -> Result<()> {
    let variables: Vec<Variable> = made.iter().map(Made::variable).collect();
    keeper.checkpoint_trees(step, &variables)?.durable()
}

fn read_tree(checkpoint: &Checkpoint, name: &str) -> Result<Vec<u8>> {
    let entry = checkpoint.exact(Rank(0), name)?;
    let bytes = entry.description.bytes().unwrap_or(0);
    let mut out = crate::memory::zeroed(bytes)?;
    checkpoint.read_bytes(entry, 0..bytes, &mut out)?;
    Ok(out)
}
