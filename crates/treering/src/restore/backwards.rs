//! Going backwards through a lineage, as adjoint codes do: while the program works on one state, the
//! one before it is made ready.
//!
//! Neighbouring checkpoints of an epoch share most chunks, and their places tell which: only the
//! chunks whose place differs are fetched, into a copy of the newer state. Each state is verified
//! by its roots before it is handed out. A state that cannot be read is an error in its place, and the
//! next older one follows.

use super::checkpoint::{Checkpoint, only_array};
use crate::array::{Rank, Sequence, VariableKey, filled};
use crate::error::{Error, Result};
use crate::format::{FILE_PREFIX, Manifest};
use crate::log::Log;
use crate::store::Store;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread::JoinHandle;

/// The whole state of one step. Returned by [`Backwards`], which has an example.
#[derive(Clone, Debug, Default)]
pub struct State {
    /// The step.
    pub step: u64,
    /// The bytes of each variable, by rank and name.
    pub variables: HashMap<VariableKey, Vec<u8>>,
}

impl State {
    /// The elements of a variable of rank 0.
    pub fn get<T: crate::array::Element>(&self, name: &str) -> Result<Vec<T>> {
        self.get_of(Rank(0), name)
    }

    /// The elements of a variable of a rank, named as in [`Checkpoint::variable`].
    pub fn get_of<T: crate::array::Element>(&self, rank: Rank, name: &str) -> Result<Vec<T>> {
        let bytes = match self.variables.get(&VariableKey::new(rank, name)) {
            Some(bytes) => Some(bytes),
            None => self.only_array(rank, name)?,
        };
        let bytes = bytes
            .ok_or_else(|| Error::usage(format!("there is no variable {name:?} of rank {rank}")))?;
        let size = T::DTYPE.size();
        if !(bytes.len() as u64).is_multiple_of(size) {
            return Err(Error::usage(format!("variable {name:?} does not hold such elements")));
        }
        filled(bytes.len() as u64 / size, |to| {
            to.copy_from_slice(bytes);
            Ok(())
        })
    }

    /// The bytes of an array by its name in its file.
    fn only_array(&self, rank: Rank, array: &str) -> Result<Option<&Vec<u8>>> {
        let of_rank = self.variables.keys().filter(|key| key.rank == rank);
        let names = of_rank.map(|key| (key.rank, &key.name[..]));
        let record = |rank, file: &str| VariableKey::new(rank, &format!("{FILE_PREFIX}{file}"));
        let is_file = |rank, file: &str| self.variables.contains_key(&record(rank, file));
        let name = only_array(names, is_file, array)?;
        Ok(name.and_then(|name| self.variables.get(&VariableKey::new(rank, name))))
    }
}

/// The states of a lineage, newest first; the next one is prefetched. Returned by
/// [`Run::backwards`](crate::Run::backwards) and `Library::backwards`.
///
/// ```
/// use treering::{Options, Run, Variable};
/// # let folder = tempfile::tempdir().unwrap();
/// # let store = folder.path().join("store");
/// let mut run = Run::open(Options::directory(&store, "rod"))?;
/// for step in 0..3 {
///     run.checkpoint(step, &[Variable::new("heat", &[step as f64; 100])])?;
/// }
/// for state in run.backwards()? {
///     let state = state?; // steps 2, 1, 0
///     assert_eq!(state.get::<f64>("heat")?, [state.step as f64; 100]);
/// }
/// run.finish()?;
/// # Ok::<(), treering::Error>(())
/// ```
pub struct Backwards {
    states: Option<Receiver<Result<State>>>,
    /// Errors of checkpoints before the first of them.
    trouble: VecDeque<Error>,
    worker: Option<JoinHandle<()>>,
}

impl Backwards {
    /// From the checkpoint with that sequence number back to the first.
    pub(crate) fn new(store: Arc<dyn Store>, run: &str, from: Sequence) -> Result<Self> {
        let log = Log::read(store.clone(), run)?;
        // Without room in the channel, one state is made ready and then waits to be taken.
        let (send, states) = sync_channel(0);
        let spawned =
            std::thread::Builder::new().name("treering-prefetch".into()).spawn(move || {
                let mut newer: Option<(Checkpoint, State)> = None;
                let mut next = Some(from);
                while let Some(sequence) = next {
                    let manifest = log.manifest(sequence);
                    next = log.before(sequence, manifest.as_ref().ok().and_then(Option::as_ref));
                    let made = match manifest {
                        Ok(Some(manifest)) => step_back(&store, manifest, newer.take()),
                        Ok(None) => Err(Error::damaged("a parent in the log is not a checkpoint")),
                        Err(error) => Err(error),
                    };
                    let state = made.map(|(checkpoint, state)| {
                        newer = Some((checkpoint, state.clone()));
                        state
                    });
                    if send.send(state).is_err() {
                        return;
                    }
                }
            });
        let worker = spawned.map_err(|e| Error::io("cannot start a thread", e))?;
        Ok(Backwards { states: Some(states), trouble: VecDeque::new(), worker: Some(worker) })
    }

    /// Puts errors of newer checkpoints in front, the newest first.
    pub(crate) fn behind(mut self, trouble: Vec<Error>) -> Self {
        self.trouble = trouble.into();
        self
    }
}

impl Iterator for Backwards {
    type Item = Result<State>;

    fn next(&mut self) -> Option<Self::Item> {
        match self.trouble.pop_front() {
            Some(error) => Some(Err(error)),
            None => self.states.as_ref()?.recv().ok(),
        }
    }
}

impl Drop for Backwards {
    fn drop(&mut self) {
        // Without a receiver the worker ends at its next state.
        self.states = None;
        if let Some(worker) = self.worker.take() {
            let _ = worker.join();
        }
    }
}

/// The state of one checkpoint, made from the newer one where they share an epoch.
fn step_back(
    store: &Arc<dyn Store>,
    manifest: Manifest,
    mut newer: Option<(Checkpoint, State)>,
) -> Result<(Checkpoint, State)> {
    let checkpoint = Checkpoint::load(store.clone(), manifest)?;
    let mut state = State { step: checkpoint.step(), ..State::default() };
    for entry in checkpoint.entries() {
        let key = entry.key();
        let base = newer.as_mut().and_then(|(newer, state)| {
            let bytes = state.variables.remove(&key)?;
            Some((&*newer, bytes))
        });
        let bytes = checkpoint.read_beside(entry, base)?;
        state.variables.insert(key, bytes);
    }
    Ok((checkpoint, state))
}
