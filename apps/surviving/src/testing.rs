//! Stories of ranks that are threads and die, for tests of programs that survive.

use std::sync::Arc;
use std::time::Duration;
use treering::testing::{HookedStore, Locks};
use treering::{
    Comm, End, MemoryStore, Options, Pace, Rank, ReplicaSettings, Result, Steps, Store, Survival,
    ThreadRanks, survive,
};

/// Plays a program on ranks that are threads, none of which ends early; what each of them returns.
pub fn on_ranks<T: Send + std::fmt::Debug + 'static>(
    ranks: u32,
    program: impl Fn(Arc<dyn Comm>) -> T + Send + Sync + 'static,
) -> Vec<T> {
    let ends = ThreadRanks::new(ranks).run(program);
    ends.into_iter()
        .map(|end| match end {
            End::Done(value) => value,
            other => panic!("{other:?}"),
        })
        .collect()
}

/// Ranks, and how they keep states and die.
#[derive(Clone)]
pub struct Story {
    /// Ranks that work.
    pub ranks: u32,
    /// Ranks that wait.
    pub spares: u32,
    /// Copies of every state in the memory of ranks.
    pub copies: u32,
    /// Intervals at which states are kept.
    pub pace: Pace,
    /// Ranks, and the calls of their communicators at which they die.
    pub deaths: Vec<(u32, u64)>,
    /// The store of the run.
    pub store: Arc<dyn Store>,
}

impl Story {
    /// Four ranks that keep two copies of every other state, in an empty store.
    pub fn new() -> Story {
        Story {
            ranks: 4,
            spares: 0,
            copies: 2,
            pace: Pace { replicas: 2, checkpoints: 0 },
            deaths: Vec::new(),
            // A rank that is killed as a thread never lets go of a lock.
            store: Arc::new(HookedStore::with_locks(Arc::new(MemoryStore::new()), Locks::None)),
        }
    }

    /// Plays it: every rank makes its program, runs it to the end, and tells something of it.
    pub fn play<P: Steps, T: Send + 'static>(
        &self,
        make: impl Fn(&ThreadRanks, Rank) -> P + Send + Sync + 'static,
        tell: impl Fn(&P, Survival) -> T + Send + Sync + 'static,
    ) -> Vec<End<Result<T>>> {
        let mut world = ThreadRanks::new(self.ranks + self.spares);
        for (rank, call) in &self.deaths {
            world = world.killed_at(Rank(*rank), *call);
        }
        let (story, kills) = (self.clone(), world.clone());
        world.run(move |comm| {
            let mut program = make(&kills, comm.rank());
            let survival = survive(story.options(comm), story.pace, &mut program)?;
            Ok(tell(&program, survival))
        })
    }

    fn options(&self, comm: Arc<dyn Comm>) -> Options {
        let small = ReplicaSettings { range_blocks: 16, ..ReplicaSettings::default() };
        Options::in_store(self.store.clone(), "r")
            .ranks(comm)
            .spares(self.spares)
            .replicas(self.copies)
            .replica_settings(small)
            .patience(Duration::from_secs(120))
    }
}

impl Default for Story {
    fn default() -> Self {
        Story::new()
    }
}

/// The results of the ranks that have come to the end, and the number of those that were killed.
pub fn survivors<T>(ends: Vec<End<Result<T>>>) -> (Vec<T>, usize) {
    let (mut told, mut killed) = (Vec::new(), 0);
    for end in ends {
        match end {
            End::Done(Ok(value)) => told.push(value),
            End::Done(Err(error)) => panic!("{error}"),
            End::Killed => killed += 1,
            End::Panicked(text) => panic!("{text}"),
        }
    }
    (told, killed)
}

/// The error that has ended a program on all ranks; one of them has it as its own.
pub fn refusal<T>(ends: Vec<End<Result<T>>>) -> String {
    let mut errors = Vec::new();
    for end in ends {
        match end {
            End::Done(Err(error)) => errors.push(error),
            End::Done(Ok(_)) => panic!("a rank has come to the end"),
            End::Killed => panic!("a rank was killed"),
            End::Panicked(text) => panic!("{text}"),
        }
    }
    let own = errors.iter().filter(|error| !error.is_repeated()).count();
    assert_eq!(own, 1, "one rank reports the error: {errors:?}");
    errors.swap_remove(0).to_string()
}
