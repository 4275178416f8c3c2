//! A simulation on ranks with checkpoints.
//!
//! The arrays of a checkpoint are global ones of all particles: first those of rank 0, then those of
//! rank 1, and so on, and `id` has their numbers. A restart on the same number of ranks gives each
//! rank its own particles back, and the lineage goes on. On another number each rank restores an even
//! share of the arrays and hands the particles to the ranks whose slabs they are in. Both ways lead
//! to the same state, bit for bit.

use super::simulation::{OwnParticles, RankSimulation};
use crate::{Particles, Schedule};
use treering::{Error, ErrorKind, Options, Rank, Reduction, Restored, Result, Run};
use treering::{Variable, VariableMut};

/// The number of steps, and the times to save and to wait.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RankSchedule {
    /// The last step, and the steps between two checkpoints.
    pub schedule: Schedule,
    /// Wait after every N checkpoints until the newest is durable. 0: only at the end.
    pub wait: u64,
}

/// The activity of a rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RankPhase {
    /// Opening the run.
    Open,
    /// Restoring a checkpoint.
    Restore,
    /// Computing.
    Step,
    /// Handing over a checkpoint.
    Checkpoint,
    /// Waiting until a checkpoint is durable.
    Durable,
    /// Waiting at the end until all checkpoints are durable.
    Finish,
}

impl RankPhase {
    /// All phases, in the order in which a run first meets them.
    pub const ALL: [RankPhase; 6] = [
        RankPhase::Open,
        RankPhase::Restore,
        RankPhase::Step,
        RankPhase::Checkpoint,
        RankPhase::Durable,
        RankPhase::Finish,
    ];

    /// The name of the phase.
    pub fn name(self) -> &'static str {
        match self {
            RankPhase::Open => "open",
            RankPhase::Restore => "restore",
            RankPhase::Step => "step",
            RankPhase::Checkpoint => "checkpoint",
            RankPhase::Durable => "durable",
            RankPhase::Finish => "finish",
        }
    }
}

/// Events of a simulation on ranks; all but `Failed` and `Resumed`'s notes are the same
/// on all ranks.
#[derive(Clone, Debug)]
pub enum RankProgress {
    /// A phase begins.
    Begins(RankPhase),
    /// It goes on from a checkpoint.
    Resumed {
        /// The step of the checkpoint.
        step: u64,
        /// Damaged copies, and newer checkpoints that could not be used.
        notes: Vec<String>,
    },
    /// The state after a step was handed over to be saved.
    Captured(u64),
    /// A save failed; the simulation goes on.
    Failed {
        /// The step of the state that is not saved.
        step: u64,
        /// The problem.
        error: Error,
    },
    /// The last step is done, and all checkpoints are durable.
    Ended(u64),
}

/// Is told what happens, on every rank; it may make collective calls where all ranks are told the same.
pub type RankObserver<'a> = dyn FnMut(&RankSimulation, RankProgress) -> Result<()> + 'a;

/// Steps to the end of the schedule on all ranks of the simulation, going on from the newest
/// checkpoint of the run. Returns the step that it went on from, when all checkpoints are durable.
pub fn run_on_ranks(
    simulation: &mut RankSimulation,
    schedule: RankSchedule,
    options: Options,
    observer: &mut RankObserver,
) -> Result<Option<u64>> {
    let RankSchedule { schedule, wait } = schedule;
    schedule.check()?;
    observer(simulation, RankProgress::Begins(RankPhase::Open))?;
    let mut run = Run::open(options.ranks(simulation.comm().clone()))?;
    observer(simulation, RankProgress::Begins(RankPhase::Restore))?;
    let resumed = resume(&mut run, simulation, observer)?;
    let mut checkpoints = 0;
    for step in resumed.unwrap_or(0) + 1..=schedule.steps {
        observer(simulation, RankProgress::Begins(RankPhase::Step))?;
        simulation.step()?;
        if schedule.saves(step) {
            checkpoints += 1;
            let wait = checkpoints % wait.max(1) == 0 && wait > 0;
            save(&mut run, simulation, (step, wait), observer)?;
        }
    }
    observer(simulation, RankProgress::Begins(RankPhase::Finish))?;
    run.finish()?;
    observer(simulation, RankProgress::Ended(schedule.steps))?;
    Ok(resumed)
}

fn resume(
    run: &mut Run,
    simulation: &mut RankSimulation,
    observer: &mut RankObserver,
) -> Result<Option<u64>> {
    // Boxes that other ranks wrote are no boxes of these: the error of that is the same everywhere.
    let restored = match own_boxes(run) {
        Err(error) if error.kind() == ErrorKind::Mismatch => even_shares(run, simulation)?,
        restored => restored?,
    };
    let Some((restored, brought, settings)) = restored else { return Ok(None) };
    // Not every rank may have the settings, but all of them must hear of others.
    let same = settings.is_empty() || settings == simulation.settings().fingerprint();
    let mut all_same = [u64::from(same)];
    simulation.comm().reduce(Reduction::Min, &mut all_same)?;
    if all_same == [0] {
        return Err(other_settings());
    }
    simulation.replace(brought)?;
    let (step, notes) = (restored.step, restored.notes);
    observer(simulation, RankProgress::Resumed { step, notes })?;
    Ok(Some(step))
}

pub(super) fn other_settings() -> Error {
    Error::new(ErrorKind::Mismatch, "the run belongs to a simulation with other settings")
        .hint("give the settings it was begun with, or another run")
}

/// The restored state, this rank's part of the particles, and the settings where this rank has them.
type Brought = Option<(Restored, OwnParticles, Vec<u64>)>;

/// Restores what this very rank has saved.
fn own_boxes(run: &mut Run) -> Result<Brought> {
    let (mut brought, mut settings) = (OwnParticles::default(), Vec::new());
    let mut variables = brought.variables_mut();
    variables.push(VariableMut::growing("settings", &mut settings));
    let restored = run.restore(&mut variables)?;
    Ok(restored.map(|restored| (restored, brought, settings)))
}

/// Restores an even share of all particles, whoever has saved them.
fn even_shares(run: &mut Run, simulation: &RankSimulation) -> Result<Brought> {
    let (rank, ranks) = (simulation.comm().rank(), simulation.comm().size());
    let all = simulation.settings().particles() as u64;
    let begin = |rank: u32| all * u64::from(rank) / u64::from(ranks);
    let (first, end) = (begin(rank.0), begin(rank.0 + 1));
    let count = (end - first) as usize;
    let mut brought = OwnParticles { ids: vec![0; count], particles: Particles::at_origin(count) };
    let mut settings = simulation.settings().fingerprint().to_vec();
    let length = settings.len() as u64;
    let arrays = brought.particles.variables_mut().into_iter();
    let mut variables: Vec<VariableMut> =
        arrays.map(|variable| variable.part_of(&[all], &[first])).collect();
    variables.push(VariableMut::new("id", &mut brought.ids).part_of(&[all], &[first]));
    variables.push(VariableMut::new("settings", &mut settings).part_of(&[length], &[0]));
    let restored = run.restore(&mut variables)?;
    Ok(restored.map(|restored| (restored, brought, settings)))
}

fn save(
    run: &mut Run,
    simulation: &RankSimulation,
    (step, wait): (u64, bool),
    observer: &mut RankObserver,
) -> Result<()> {
    let counts = simulation.counts()?;
    observer(simulation, RankProgress::Begins(RankPhase::Checkpoint))?;
    let rank = simulation.comm().rank();
    let first: u64 = counts[..rank.0 as usize].iter().sum();
    let all: u64 = counts.iter().sum();
    let own = simulation.own();
    let arrays = own.particles.variables().into_iter();
    let mut variables: Vec<Variable> =
        arrays.map(|variable| variable.part_of(&[all], &[first])).collect();
    variables.push(Variable::new("id", &own.ids).part_of(&[all], &[first]));
    // The first rank has the settings; the others have empty boxes behind them.
    let settings = simulation.settings().fingerprint();
    let length = settings.len() as u64;
    let settings = if rank == Rank(0) { &settings[..] } else { &[] };
    let behind = length - settings.len() as u64;
    variables.push(Variable::new("settings", settings).part_of(&[length], &[behind]));
    let save = run.checkpoint(step, &variables)?;
    observer(simulation, RankProgress::Captured(step))?;
    if wait {
        observer(simulation, RankProgress::Begins(RankPhase::Durable))?;
        // A save that fails is reported with the others.
        let _ = save.durable();
    }
    for (step, error) in run.failures() {
        observer(simulation, RankProgress::Failed { step, error })?;
    }
    Ok(())
}
