//! Restoring a state: from the memory of ranks if there is a generation, otherwise from the newest checkpoint that can be
//! read.
//!
//! Every decision on the way is one of all ranks: which generation or checkpoint is tried, and whether it served.

use super::Run;
use super::nearby;
use super::ranks::RankSide;
use super::replicas::{MemoryState, ReplicaLevel};
use crate::array::{GroupId, Rank, Sequence, Step, VariableKey, VariableMut, settled};
use crate::comm::{Alone, Comm, garbled};
use crate::error::{Error, ErrorKind, Result};
use crate::format::{Group, Manifest, Names, Origin, VariableEntry};
use crate::log::Log;
use crate::points::reach;
use crate::restore::{
    Checkpoint, HeldCheckpoint, HeldState, RestoredVariable, fill_together, readers,
};
use crate::save::{Level, RankOf, Together};
use crate::trace::{TracedKind, TracedWork};
use std::collections::HashSet;

/// Result of a restore: the step and the location of the state.
///
/// ```
/// use treering::{Options, Run, Variable, VariableMut};
/// # let folder = tempfile::tempdir().unwrap();
/// # let options = Options::directory(folder.path().join("store"), "rod");
/// let mut run = Run::open(options.clone())?;
/// run.checkpoint(7, &[Variable::new("heat", &[1.0f64, 2.0])])?;
/// run.finish()?;
/// let mut run = Run::open(options)?; // after a crash, say
/// let (mut heat, mut salt) = (vec![0.0f64; 2], vec![0.0f64; 2]);
/// let mut state = [VariableMut::new("heat", &mut heat), VariableMut::new("salt", &mut salt).optional()];
/// let restored = run.restore(&mut state)?.expect("there is a checkpoint");
/// assert_eq!((restored.step, heat), (7, vec![1.0, 2.0]));
/// assert_eq!(restored.missing, ["salt"]); // added to the program after that checkpoint
/// restored.notes.iter().for_each(|note| eprintln!("{note}"));
/// # run.finish()?;
/// # Ok::<(), treering::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Restored {
    /// The step of the state.
    pub step: u64,
    /// Location of the state: the memory of ranks, the nodes, or the shared store. Data that only some nodes have comes
    /// from the shared store.
    pub level: Level,
    /// Problems that the restore has worked around: damaged copies, or newer checkpoints that could not be used.
    pub notes: Vec<String>,
    /// Optional variables that the checkpoint does not have; their arrays were left as they are.
    pub missing: Vec<String>,
}

impl Run {
    /// Fills the arrays from the newest state in the memory of ranks ([`Options::replicas`](super::Options::replicas)) or
    /// else from the newest complete checkpoint. Returns `None` if there is neither, and leaves the arrays as they are. With
    /// several ranks this call is collective.
    ///
    /// A checkpoint that turns out to be damaged is noted, and the one before it serves. An error of access
    /// (no permission, too many open files, a failing disk) is no reason for that: it is returned. Later
    /// checkpoints continue the lineage of the one that was restored.
    ///
    /// **Waiting**: a restore from the store first waits for all saves that are under way, and for the removal of old
    /// checkpoints and compactions behind the program. These waits have no time limit; notices on standard error report
    /// those for saves and for the log. With several ranks, each vote waits for
    /// [`Options::patience`](super::Options::patience).
    ///
    /// **Errors**: [`ErrorKind::Usage`] for invalid arrays or two of one name, [`ErrorKind::Mismatch`] if the checkpoint has
    /// other types or shapes or lacks a variable, [`ErrorKind::Damaged`] if there are checkpoints and none can be restored,
    /// [`ErrorKind::Late`], [`ErrorKind::Dead`] and [`ErrorKind::Revoked`] with several ranks. After an error the content of
    /// the arrays is unspecified; the checkpoints are as they were, and a restore may be tried again.
    pub fn restore(&mut self, variables: &mut [VariableMut]) -> Result<Option<Restored>> {
        self.looked_back = true;
        let upkeep = self.upkeep.clone();
        // Nothing is removed meanwhile.
        let _turn = upkeep.turn();
        let traced = TracedWork::begin(TracedKind::Restore, &self.options.writer.run, None);
        let restored = self.restore_newest(variables);
        let restored = traced.end(restored, |restored| {
            (restored.as_ref().map(|restored| restored.step), self.restored_bytes)
        });
        self.prepare(variables);
        settled(restored, variables)
    }

    /// Touches memory for the checkpoints to come, behind the program: these are the arrays that they will hold.
    fn prepare(&self, variables: &[VariableMut]) {
        let bytes = variables.iter().filter_map(|v| v.description().bytes());
        self.capture.prepare(bytes.fold(0, u64::saturating_add));
    }

    fn restore_newest(&mut self, variables: &mut [VariableMut]) -> Result<Option<Restored>> {
        let mut notes = Vec::new();
        if let Some(restored) = self.restore_from_memory(None, variables, &mut notes)? {
            return Ok(Some(restored));
        }
        let mut candidates = self.candidates()?;
        while let Some((manifest, open)) = self.next_candidate(&mut candidates, &mut notes)? {
            let step = manifest.step;
            match self.restore_one(manifest, open, variables) {
                Ok(mut restored) => {
                    notes.append(&mut restored.notes);
                    return Ok(Some(Restored { notes, ..restored }));
                }
                Err(error) if error.kind().lets_older_serve() => {
                    notes.push(format!("step {step} cannot be used: {error}"));
                }
                Err(error) => return Err(with_notes(error, &notes)),
            }
        }
        Ok(None)
    }

    /// The checkpoints that may be restored, the newest first; with several ranks, one of them has them.
    fn candidates(&mut self) -> Result<Option<Result<Candidates>>> {
        let log = self.read_log();
        match &mut self.ranks {
            None => Ok(Some(log.map(Candidates::new))),
            Some(ranks) => {
                let ballot = ranks.ballot(Together::Restore, self.saver.newest);
                ranks.vote(log.as_ref().map(|_| ballot).map_err(Clone::clone), &self.failures)?;
                self.promote(Together::Restore)?;
                let Some(ranks) = &self.ranks else { return Ok(None) };
                // Every rank has published its sections now, so everything that can appear has.
                let first = ranks.rank() == Rank(0);
                Ok(first.then(|| self.read_log().map(Candidates::new)))
            }
        }
    }

    /// The next checkpoint to try, and whether its epoch is the open one; the same on all ranks.
    fn next_candidate(
        &mut self,
        candidates: &mut Option<Result<Candidates>>,
        notes: &mut Vec<String>,
    ) -> Result<Option<(Manifest, bool)>> {
        let own = match candidates {
            None => Ok(None),
            Some(Err(error)) => Err(error.clone()),
            Some(Ok(candidates)) => match candidates.next(notes) {
                Ok(None) if !notes.is_empty() => Err(Error::damaged(format!(
                    "no checkpoint can be restored: {}",
                    notes.join("; ")
                ))
                .hint("`treering verify` reports what is damaged")),
                own => own.map_err(|error| with_notes(error, notes)),
            },
        };
        let offered = match &self.ranks {
            None => own?,
            Some(ranks) => ranks.share(own)?,
        };
        Ok(offered.map(|manifest| {
            let open = is_open(candidates, &manifest);
            (manifest, open)
        }))
    }

    /// Fills the arrays from the newest state of a step, in the memory of ranks or in the store. With several ranks this
    /// call is collective, and all give the same step. Later checkpoints continue from there: they make a branch, and the
    /// abandoned one stays.
    ///
    /// **Waiting**: as [`Run::restore`]. **Errors**: those of [`Run::restore`], and [`ErrorKind::NotFound`] if there is no
    /// checkpoint of the step. No other checkpoint serves in the place of a damaged one: the error is of kind
    /// [`ErrorKind::Damaged`]. After an error the content of the arrays is unspecified.
    pub fn restore_step(&mut self, step: u64, variables: &mut [VariableMut]) -> Result<Restored> {
        self.looked_back = true;
        let upkeep = self.upkeep.clone();
        let _turn = upkeep.turn();
        let traced = TracedWork::begin(TracedKind::Restore, &self.options.writer.run, Some(step));
        let restored = self.restore_of(step, variables);
        let restored = traced.end(restored, |_| (None, self.restored_bytes));
        self.prepare(variables);
        settled(restored, variables)
    }

    fn restore_of(&mut self, step: u64, variables: &mut [VariableMut]) -> Result<Restored> {
        let mut notes = Vec::new();
        if let Some(restored) = self.restore_from_memory(Some(step), variables, &mut notes)? {
            return Ok(restored);
        }
        let candidates = self.candidates()?;
        let own = match &candidates {
            None => Ok(None),
            Some(Err(error)) => Err(error.clone()),
            Some(Ok(candidates)) => self.of_step(&candidates.log, step).map(Some),
        };
        let manifest = match &self.ranks {
            None => own?,
            Some(ranks) => ranks.share(own)?,
        };
        let Some(manifest) = manifest else { return Err(self.has_no_step(step)) };
        let (open, sequence) = (is_open(&candidates, &manifest), manifest.sequence);
        let restored = self.restore_one(manifest, open, variables);
        let mut restored = restored.map_err(|error| match self.was_removed(sequence, &error) {
            true => self.has_no_step(step),
            false => error,
        })?;
        restored.notes.splice(..0, notes);
        Ok(restored)
    }

    /// Whether a checkpoint that could not be read has been removed meanwhile, as by a process that had the run before and
    /// still removes old ones: that is no damage. Several ranks report what they have found.
    fn was_removed(&self, sequence: Sequence, error: &Error) -> bool {
        let log = || Log::read(self.store.clone(), &self.options.writer.run);
        error.kind() == ErrorKind::Damaged
            && self.ranks.is_none()
            && log().is_ok_and(|log| !log.sequences.contains(&sequence))
    }

    /// The newest checkpoint of a step.
    fn of_step(&self, log: &Log, step: u64) -> Result<Manifest> {
        let mut trouble = None;
        for sequence in log.sequences.iter().rev() {
            match log.manifest(*sequence) {
                Ok(Some(manifest)) if manifest.step == Step(step) => return Ok(manifest),
                Ok(_) => {}
                Err(_) if log.is_surely_no_manifest(*sequence) => {}
                Err(error) => drop(trouble.get_or_insert(error)),
            }
        }
        Err(trouble.unwrap_or_else(|| self.has_no_step(step)))
    }

    fn has_no_step(&self, step: u64) -> Error {
        let run = &self.options.writer.run;
        Error::new(ErrorKind::NotFound, format!("run {run:?} has no checkpoint of step {step}"))
            .hint("`treering ls` lists what there is")
    }

    fn restore_one(
        &mut self,
        manifest: Manifest,
        open: bool,
        variables: &mut [VariableMut],
    ) -> Result<Restored> {
        let filled = self.fill(manifest, variables);
        self.restored_bytes = variables.iter_mut().map(|array| array.bytes().len() as u64).sum();
        self.replicas.iter_mut().for_each(ReplicaLevel::restored);
        let mut goes_on = open && filled.as_ref().is_ok_and(|filled| filled.goes_on);
        // An epoch goes on for all ranks, or for none.
        goes_on = self.agree_on_restored(filled.as_ref().err(), goes_on)?;
        let FilledArrays { checkpoint, restored, missing, near, .. } = filled?;
        self.saver.resume(&checkpoint, goes_on.then_some(&restored));
        match goes_on {
            true => self.capture.resume(checkpoint.manifest().seed, restored),
            false => self.capture.forget(),
        }
        let level = if near { Level::Node } else { Level::Shared };
        if let Some(progress) = &self.options.progress {
            progress(self.restored_bytes, self.restored_bytes);
        }
        Ok(Restored { step: checkpoint.step(), level, notes: checkpoint.notes(), missing })
    }

    /// Whether all ranks have filled their arrays, and whether the epoch goes on for all; an error tells of ranks that
    /// have not.
    fn agree_on_restored(&mut self, filled: Option<&Error>, goes_on: bool) -> Result<bool> {
        let Some(ranks) = &mut self.ranks else {
            return filled.map_or(Ok(goes_on), |error| Err(error.clone()));
        };
        let mut ballot = ranks.ballot(Together::Restored, self.saver.newest).going_on(goes_on);
        let own = match filled {
            // The rank that has failed says why.
            Some(error) if error.kind() == ErrorKind::Lost => Ok(ballot),
            Some(error) if !error.kind().lets_older_serve() => Err(error.clone()),
            Some(error) => {
                ballot.doubts.insert(format!("rank {}: {error}", ranks.rank()));
                Ok(ballot)
            }
            None => Ok(ballot),
        };
        let verdict = ranks.vote(own, &self.failures)?;
        match verdict.doubts.is_empty() {
            true => Ok(!verdict.decision().whole),
            false => {
                let doubts: Vec<String> = verdict.doubts.into_iter().collect();
                Err(Error::damaged(doubts.join("; ")))
            }
        }
    }

    /// Fills the arrays from the newest state in the memory of ranks, if there is one (of that step) and nothing of it is
    /// lost. Lost data is noted.
    fn restore_from_memory(
        &mut self,
        step: Option<u64>,
        variables: &mut [VariableMut],
        notes: &mut Vec<String>,
    ) -> Result<Option<Restored>> {
        let (Some(level), Some(comm)) = (&mut self.replicas, &self.options.ranks) else {
            return Ok(None);
        };
        let comm = comm.clone();
        if let Some(ranks) = &mut self.ranks {
            let ballot = ranks.ballot(Together::Restore, self.saver.newest);
            ranks.vote(Ok(ballot), &self.failures)?;
        }
        let state = level.newest(&*comm);
        let state = self.or_all_stop(state)?;
        let Some(state) = state.filter(|state| step.is_none_or(|step| step == state.step)) else {
            return Ok(None);
        };
        let filled = self.fill_from_memory(state, &*comm, variables);
        self.replicas.iter_mut().for_each(ReplicaLevel::restored);
        let agreed = self.agree_on_restored(filled.as_ref().err(), false);
        let missing = match (agreed, filled) {
            (Ok(_), Ok(missing)) => missing,
            (Err(error), _) | (_, Err(error)) if error.kind().lets_older_serve() => {
                notes.push(error.to_string());
                return Ok(None);
            }
            (Err(error), _) | (_, Err(error)) => return Err(error),
        };
        reach("replicas-restored");
        let parent = self.checkpoint_up_to(Sequence(state.sequence))?;
        self.saver.resume_at(parent);
        self.capture.forget();
        if let Some(level) = &mut self.replicas {
            let remade = level.remake();
            match self.or_all_stop(remade) {
                // The arrays are filled: fewer copies, the same on all ranks, are no reason to stop.
                Err(error) if !error.is_death() => notes.push(format!(
                    "lost replicas of step {} are not made again: {error}",
                    state.step
                )),
                remade => remade?,
            }
        }
        reach("replicas-remade");
        let notes = std::mem::take(notes);
        Ok(Some(Restored { step: state.step, level: Level::Memory, notes, missing }))
    }

    /// Fills arrays from streams of the ranks that hold them; the optional ones that no stream has.
    fn fill_from_memory(
        &mut self,
        state: MemoryState,
        comm: &dyn Comm,
        variables: &mut [VariableMut],
    ) -> Result<Vec<String>> {
        let checked = check_targets(variables);
        let loaded = self.replicas.as_mut().map(|level| level.load(state));
        let loaded = self.or_all_stop(loaded.unwrap_or_else(|| Err(garbled())));
        if let Err(error) = &loaded
            && error.is_death()
        {
            return Err(error.clone());
        }
        reach("replicas-loaded");
        // A rank that has not got its share takes part: the others would wait for it.
        let held = loaded.as_ref().map(|held| held as &dyn HeldState).map_err(Clone::clone);
        let held = checked.and(held);
        let mut targets: Vec<&mut VariableMut> = variables.iter_mut().collect();
        let missing = self.or_all_stop(fill_together(comm, held, &mut targets))?;
        Ok(missing.into_iter().map(|at| targets[at].name().to_string()).collect())
    }

    /// The newest checkpoint up to a number that exists; the same on all ranks.
    fn checkpoint_up_to(&mut self, sequence: Sequence) -> Result<Option<Sequence>> {
        let find = || {
            let log = self.read_log()?;
            let older = log.sequences.iter().rev().filter(|found| **found <= sequence);
            // An unreadable entry is no reason to refuse a good state.
            Ok(older.filter_map(|found| log.manifest(*found).ok().flatten()).next())
        };
        let found = match &self.ranks {
            None => find()?,
            Some(ranks) if ranks.rank() == Rank(0) => ranks.share(find())?,
            Some(ranks) => ranks.share(Ok(None))?,
        };
        Ok(found.map(|manifest| manifest.sequence))
    }

    pub(super) fn or_all_stop<T>(&self, done: Result<T>) -> Result<T> {
        match &self.ranks {
            None => done,
            Some(ranks) => ranks.or_all_stop(done),
        }
    }

    /// Fills arrays from a checkpoint, with the other ranks if there are some.
    ///
    /// Variables that this rank saved as it wants them now are read by itself, and continue its lineage. Everything
    /// else comes from the ranks that hold it: boxes, rows, and what is the same on all ranks.
    fn fill(&self, manifest: Manifest, variables: &mut [VariableMut]) -> Result<FilledArrays> {
        let own = self.ranks.as_ref().map_or(RankOf { rank: Rank(0), ranks: 1 }, RankSide::own);
        let seat = &self.saver.seat;
        let in_place =
            manifest.ranks == own.ranks && manifest.groups.count() == u64::from(seat.groups);
        let near = match self.ranks.as_ref().filter(|ranks| ranks.has_nodes()) {
            Some(ranks) => {
                let tiers = &self.options.writer.tiers;
                nearby::readers_near(ranks, tiers, &manifest, seat.group, in_place)?
            }
            None => None,
        };
        let is_near = near.is_some() || self.ranks.is_none() && self.is_on_node(&manifest);
        let in_place = in_place && near.is_none();
        let loaded =
            check_targets(variables).and_then(|()| self.load(manifest, own, in_place, near));
        if let (Ok(checkpoint), Some(progress)) = (&loaded, self.options.progress.clone()) {
            let total: u64 =
                variables.iter().map(|array| wanted(checkpoint, own.rank, array)).sum();
            checkpoint.tell(Box::new(move |filled| progress(filled.min(total), total)));
        }
        let is_own = |checkpoint: &Checkpoint, variable: &VariableMut| {
            let entry = checkpoint.entry(&VariableKey::new(own.rank, variable.name()));
            in_place && entry.is_some_and(|entry| variable.is_as(&entry.description))
        };
        let of_others = |variable: &&mut VariableMut| {
            loaded.as_ref().is_ok_and(|checkpoint| !is_own(checkpoint, variable))
        };
        let (mut others, mut owned): (Vec<_>, Vec<_>) = variables.iter_mut().partition(of_others);

        // A rank that was in another group left its variables to the leader of that one.
        let leads = seat.members.first() == Some(&own.rank);
        let serves = |entry: &VariableEntry| {
            !in_place || entry.rank == own.rank || leads && !seat.members.contains(&entry.rank)
        };
        let held = loaded.as_ref().map_err(Clone::clone);
        let held = held.map(|checkpoint| HeldCheckpoint::new(checkpoint, &serves));
        let held = held.as_ref().map(|held| held as &dyn HeldState).map_err(Clone::clone);
        let alone = Alone::new();
        let comm = self.ranks.as_ref().map_or(&alone as &dyn Comm, RankSide::comm);
        let missing = fill_together(comm, held, &mut others);
        let missing = self.or_all_stop(missing)?;
        let missing = missing.into_iter().map(|at| others[at].name().to_string()).collect();

        let checkpoint = loaded?;
        let chunk = self.options.writer.chunk;
        let moved = |variable: &&mut VariableMut| {
            checkpoint.entry(&VariableKey::new(own.rank, variable.name())).is_some()
        };
        // References never leave their epoch, and only the newest is open: going further back starts a new one. So
        // does a state of other ranks, of other groups, or of other boxes.
        let of_group = |v: &VariableEntry| v.chunk == chunk && seat.members.contains(&v.rank);
        let goes_on =
            in_place && checkpoint.entries().iter().all(of_group) && !others.iter().any(moved);
        let restored = checkpoint.resume_into(own.rank, &mut owned)?;
        let restored = restored.into_iter().flatten().collect();
        Ok(FilledArrays { checkpoint, restored, missing, goes_on, near: is_near })
    }

    /// Whether a store of the node has a checkpoint, for a run of one rank.
    fn is_on_node(&self, manifest: &Manifest) -> bool {
        let entry = Names::new(&self.options.writer.run).entry(manifest.sequence);
        self.options.writer.tiers.near.iter().any(|tier| tier.open(&entry).is_ok())
    }

    /// Loads what this rank reads of a checkpoint: its own group, or some groups of a checkpoint of other ranks.
    fn load(
        &self,
        manifest: Manifest,
        own: RankOf,
        in_place: bool,
        near: Option<Vec<Rank>>,
    ) -> Result<Checkpoint> {
        let (store, group) = (self.store.clone(), self.saver.seat.group);
        if in_place {
            return Checkpoint::load_group_of(store, manifest, group);
        }
        Checkpoint::load_groups(store, manifest, |groups| {
            // The size of the newest pack is known, which says little of an epoch of several.
            let whole = groups.iter().all(|group| group.count() == 1);
            let size = |group: &Group| if whole { group.seal.size } else { 1 };
            let evenly = || readers(&groups.iter().map(size).collect::<Vec<_>>(), own.ranks);
            let readers = near.unwrap_or_else(evenly);
            let read = (0..).map(GroupId).zip(readers).filter(|(_, reader)| *reader == own.rank);
            read.map(|(group, _)| group).collect()
        })
    }
}

/// The bytes that an array will have.
fn wanted(checkpoint: &Checkpoint, rank: Rank, array: &VariableMut) -> u64 {
    let stored = checkpoint.entry(&VariableKey::new(rank, array.name()));
    let description = stored.map_or(array.description(), |entry| &entry.description);
    description.bytes().unwrap_or(0)
}

/// Refuses invalid arrays, or two of one name.
fn check_targets(variables: &mut [VariableMut]) -> Result<()> {
    let mut names = HashSet::new();
    for variable in variables {
        variable.check()?;
        if !names.insert(variable.name().to_string()) {
            let name = variable.name();
            return Err(Error::usage(format!("variable {name:?} was given twice in one restore")));
        }
    }
    Ok(())
}

/// Arrays that were filled from a checkpoint.
struct FilledArrays {
    checkpoint: Checkpoint,
    /// State by which the lineage of each variable continues.
    restored: Vec<RestoredVariable>,
    missing: Vec<String>,
    /// Whether the epoch can go on, as far as this rank is concerned.
    goes_on: bool,
    /// Whether the data came from the nodes.
    near: bool,
}

/// Whether the epoch of a checkpoint is the open one, as far as this rank knows.
fn is_open(candidates: &Option<Result<Candidates>>, manifest: &Manifest) -> bool {
    let newest = candidates.as_ref().and_then(|c| c.as_ref().ok()?.newest_epoch.as_ref());
    newest.is_none_or(|newest| *newest == manifest.epoch)
}

/// The checkpoints of a log that may be restored, the newest first.
struct Candidates {
    log: Log,
    next: Option<Sequence>,
    newest_epoch: Option<Origin>,
}

impl Candidates {
    fn new(log: Log) -> Candidates {
        let (next, newest_epoch) = (log.ancestor(log.newest()), log.newest_epoch());
        Candidates { log, next, newest_epoch }
    }

    /// The next one whose manifest can be read; those that cannot be are noted.
    fn next(&mut self, notes: &mut Vec<String>) -> Result<Option<Manifest>> {
        while let Some(sequence) = self.next {
            match self.log.manifest(sequence) {
                Ok(Some(manifest)) => {
                    let before = self.log.before(sequence, Some(&manifest));
                    self.next = before.or_else(|| self.log.older(sequence));
                    return Ok(Some(manifest));
                }
                Ok(None) => {}
                Err(error) if error.kind().lets_older_serve() => {
                    notes.push(format!("number {sequence} of the log cannot be used: {error}"));
                }
                Err(error) => return Err(error),
            }
            self.next = self.log.older(sequence);
        }
        Ok(None)
    }
}

/// An error about an older checkpoint says why the newer ones did not serve.
fn with_notes(error: Error, notes: &[String]) -> Error {
    match notes.is_empty() {
        true => error,
        false => Error::new(
            error.kind(),
            format!("{error}; this is about an older checkpoint, because {}", notes.join(", and ")),
        ),
    }
}
