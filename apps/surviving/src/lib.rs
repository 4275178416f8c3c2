//! Arguments and reports of programs that survive the death of ranks: `kmeans`, `pagerank` and `particles-ranks`.
//!
//! [`play`] lets a program of steps run to its end and reports on the way, one line for each event:
//!
//! ```text
//! begun 4 ranks
//! resumed STEP PLACE [DIGEST]      a crew begins; PLACE is start, memory, node or shared
//! saved STEP DIGEST                with --digests, after every step whose state is kept
//! end RANK STEP DIGEST             with --digests, of every rank that has come to the end; `end RANK spare` of a spare
//! ```
//!
//! A digest is one of the whole state of all ranks. Programs whose states do not depend on the number of ranks have the
//! same digests whoever dies: that is how tests compare a run with an undisturbed one.

#[cfg(feature = "mpi")]
mod on_mpi;
#[cfg(feature = "testing")]
pub mod testing;

#[cfg(feature = "mpi")]
pub use on_mpi::on_mpi;

use clap::Args;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};
use treering::{
    Comm, Crew, Level, Options, Pace, Rank, Restored, Result, Role, Steps, Survival, Variable,
    VariableMut, survive,
};

/// Arguments that say how states are kept.
#[derive(Args, Clone, Debug)]
pub struct SurvivalArguments {
    /// Copies of every state in the memory of ranks. 0: none.
    #[arg(long, default_value_t = 0)]
    pub replicas: u32,
    /// Keep copies in memory after every N steps.
    #[arg(long, default_value_t = 10, value_name = "STEPS")]
    pub replicate_every: u64,
    /// Ranks that wait to take the places of others that die.
    #[arg(long, default_value_t = 0, value_name = "RANKS")]
    pub spares: u32,
    /// Print a digest of the state of all ranks whenever it is kept, after a recovery and at the end.
    #[arg(long)]
    pub digests: bool,
    /// Where to keep the run and its checkpoints.
    #[arg(long, value_name = "FOLDER")]
    pub store: PathBuf,
}

/// A program that has come to its end.
pub struct Played {
    /// Its way there.
    pub survival: Survival,
    /// The time that it took, on this rank.
    pub time: Duration,
    /// Whether this rank is the first of those that have worked to the end.
    pub first: bool,
}

impl Played {
    /// Sentences for people: the recoveries, the notes, and the time that went into keeping states.
    pub fn sentences(&self) -> Vec<String> {
        let Played { survival, time, .. } = self;
        let recovery = |recovery: &treering::Recovery| {
            let from = recovery.from.map_or("the start".to_string(), |(step, level)| {
                format!("step {step} ({})", place(level))
            });
            let (ranks, time) = (recovery.ranks, recovery.time.as_secs_f64());
            format!("recovered {from} on {ranks} ranks in {time:.3} s")
        };
        let notes = survival.notes.iter().map(|note| format!("note: {note}"));
        let (all, saving) = (time.as_secs_f64(), survival.saving.as_secs_f64());
        let share = 100.0 * saving / all.max(f64::MIN_POSITIVE);
        let summary = format!(
            "{} steps in {all:.3} s, of which {saving:.3} s ({share:.2} %) to keep and recover states",
            survival.step
        );
        notes.chain(survival.recoveries.iter().map(recovery)).chain([summary]).collect()
    }
}

/// The word for a level in lines and sentences.
pub fn place(level: Level) -> &'static str {
    match level {
        Level::Memory => "memory",
        Level::Node => "node",
        Level::Shared => "shared",
    }
}

/// Runs a program to its end on all ranks; collective. `checkpoints` is the number of steps between checkpoints in the
/// store, 0 for none.
pub fn play<P: Steps>(
    arguments: &SurvivalArguments,
    (run, checkpoints): (&str, u64),
    world: &Arc<dyn Comm>,
    program: &mut P,
    digest: impl Fn(&P, &dyn Comm) -> Result<u64>,
) -> Result<Played> {
    let own = world.rank();
    if own == Rank(0) {
        println!("begun {} ranks", world.size());
    }
    let SurvivalArguments { replicas, spares, digests, replicate_every, ref store } = *arguments;
    let options = Options::directory(store, run).patience(Duration::from_secs(60));
    let options = options.ranks(world.clone()).replicas(replicas).spares(spares);
    let pace = Pace { replicas: replicate_every, checkpoints };
    let digest = |program: &P, comm: &dyn Comm| match digests {
        true => digest(program, comm).map(|digest| format!(" {digest:016x}")),
        false => Ok(String::new()),
    };
    let mut reporting = Reporting { program, digest, pace, digests, first: false, end: None };
    let start = Instant::now();
    let survival = survive(options, pace, &mut reporting)?;
    let Reporting { first, end, .. } = reporting;
    let time = start.elapsed();
    if digests {
        let end = end.filter(|_| survival.role != Role::Spare);
        println!("end {own} {}", end.unwrap_or_else(|| "spare".to_string()));
    }
    Ok(Played { survival, time, first })
}

/// A program that reports what happens.
struct Reporting<'a, P, D> {
    program: &'a mut P,
    digest: D,
    pace: Pace,
    digests: bool,
    /// Whether this rank is the first of those that have come to the end.
    first: bool,
    /// The last step and the digest of its state.
    end: Option<String>,
}

impl<P: Steps, D: Fn(&P, &dyn Comm) -> Result<String>> Reporting<'_, P, D> {
    fn digest(&self, crew: &Crew) -> Result<String> {
        (self.digest)(self.program, &**crew.comm())
    }

    fn is_kept(&self, step: u64) -> bool {
        let Pace { replicas, checkpoints } = self.pace;
        [replicas, checkpoints].into_iter().any(|every| every > 0 && step.is_multiple_of(every))
    }
}

fn say(crew: &Crew, line: &str) {
    if crew.comm().rank() == Rank(0) {
        println!("{line}");
    }
}

impl<P: Steps, D: Fn(&P, &dyn Comm) -> Result<String>> Steps for Reporting<'_, P, D> {
    fn begin(&mut self, crew: &Crew) -> Result<()> {
        self.program.begin(crew)
    }

    fn state(&self) -> Vec<Variable<'_>> {
        self.program.state()
    }

    fn arrays(&mut self) -> Vec<VariableMut<'_>> {
        self.program.arrays()
    }

    fn resumed(&mut self, crew: &Crew, restored: Option<&Restored>) -> Result<()> {
        self.program.resumed(crew, restored)?;
        let from = restored.map_or((0, "start"), |from| (from.step, place(from.level)));
        let digest = self.digest(crew)?;
        say(crew, &format!("resumed {} {}{digest}", from.0, from.1));
        Ok(())
    }

    fn is_done(&self, step: u64) -> bool {
        self.program.is_done(step)
    }

    fn step(&mut self, crew: &Crew, step: u64) -> Result<()> {
        self.program.step(crew, step)?;
        if self.digests && self.is_kept(step) {
            let digest = self.digest(crew)?;
            say(crew, &format!("saved {step}{digest}"));
        }
        Ok(())
    }

    fn end(&mut self, crew: &Crew, step: u64) -> Result<()> {
        self.program.end(crew, step)?;
        self.end = Some(format!("{step}{}", self.digest(crew)?));
        self.first = crew.comm().rank() == Rank(0);
        Ok(())
    }
}
