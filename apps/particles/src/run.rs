//! A simulation with checkpoints: goes on from the newest one, steps, and saves now and then.
//!
//! Besides the seven arrays a checkpoint holds `settings`, so that a run cannot silently go on as
//! another simulation. The number of threads is not among them: it may change over a restart.

use crate::Simulation;
use std::time::Duration;
use treering::{Error, ErrorKind, Options, Result, Run, Variable, VariableMut};

/// The number of steps, and the times to save.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Schedule {
    /// The last step.
    pub steps: u64,
    /// A checkpoint is taken after each step that is a multiple of this, but for the last.
    pub every: u64,
}

impl Default for Schedule {
    fn default() -> Self {
        Schedule { steps: 50, every: 10 }
    }
}

impl Schedule {
    /// Whether the state after a step is saved.
    pub fn saves(&self, step: u64) -> bool {
        step < self.steps && step.checked_rem(self.every) == Some(0)
    }

    pub(crate) fn check(&self) -> Result<()> {
        match self.every {
            0 => Err(Error::usage("checkpoints are at least one step apart, but 0 was asked for")),
            _ => Ok(()),
        }
    }
}

/// Events of a simulation.
#[derive(Clone, Debug)]
pub enum Progress {
    /// It goes on from a checkpoint.
    Resumed {
        /// The step of the checkpoint.
        step: u64,
        /// Damaged copies, and newer checkpoints that could not be used.
        notes: Vec<String>,
    },
    /// A step is done.
    Stepped(u64),
    /// The state after a step was handed over to be saved.
    Captured(u64),
    /// A save failed; the simulation goes on.
    Failed {
        /// The step of the state that is not saved.
        step: u64,
        /// The problem.
        error: Error,
    },
}

/// Summary of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Summary {
    /// The step of the checkpoint it went on from, if it did.
    pub resumed: Option<u64>,
    /// The steps it took itself.
    pub steps: u64,
    /// The checkpoints it took.
    pub checkpoints: u64,
    /// Time for which checkpoints blocked it.
    pub blocked: Duration,
}

/// Steps to the end of the schedule; with options, goes on from the newest checkpoint of that run
/// and takes new ones. Returns when these are durable.
pub fn run(
    simulation: &mut Simulation,
    schedule: Schedule,
    options: Option<Options>,
    mut progress: impl FnMut(Progress),
) -> Result<Summary> {
    schedule.check()?;
    let mut run = options.map(Run::open).transpose()?;
    let resumed = match &mut run {
        Some(run) => resume(run, simulation, &mut progress)?,
        None => None,
    };
    let first = resumed.unwrap_or(0) + 1;
    let mut summary = Summary { resumed, steps: 0, checkpoints: 0, blocked: Duration::ZERO };
    for step in first..=schedule.steps {
        simulation.step();
        summary.steps += 1;
        progress(Progress::Stepped(step));
        if let Some(run) = run.as_mut().filter(|_| schedule.saves(step)) {
            save(run, simulation, step, &mut progress)?;
            summary.checkpoints += 1;
        }
    }
    if let Some(run) = run {
        summary.blocked = run.blocked();
        run.finish()?;
    }
    Ok(summary)
}

fn resume(
    run: &mut Run,
    simulation: &mut Simulation,
    progress: &mut impl FnMut(Progress),
) -> Result<Option<u64>> {
    let expected = simulation.settings().fingerprint();
    let mut found = expected;
    let mut variables = Vec::from(simulation.variables_mut());
    variables.push(VariableMut::new("settings", &mut found));
    let Some(restored) = run.restore(&mut variables)? else {
        return Ok(None);
    };
    if found != expected {
        let what = "the run belongs to a simulation with other settings";
        let hint = "give the settings it was begun with, or another run";
        return Err(Error::new(ErrorKind::Mismatch, what).hint(hint));
    }
    progress(Progress::Resumed { step: restored.step, notes: restored.notes });
    Ok(Some(restored.step))
}

fn save(
    run: &mut Run,
    simulation: &Simulation,
    step: u64,
    progress: &mut impl FnMut(Progress),
) -> Result<()> {
    let settings = simulation.settings().fingerprint();
    let mut variables = Vec::from(simulation.variables());
    variables.push(Variable::new("settings", &settings));
    run.checkpoint(step, &variables)?;
    progress(Progress::Captured(step));
    for (step, error) in run.failures() {
        progress(Progress::Failed { step, error });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_step_is_not_saved() {
        let saved = |schedule: Schedule| -> Vec<u64> {
            (1..=schedule.steps).filter(|&step| schedule.saves(step)).collect()
        };
        assert_eq!(saved(Schedule::default()), [10, 20, 30, 40]);
        assert_eq!(saved(Schedule { steps: 7, every: 3 }), [3, 6]);
        assert!(saved(Schedule { steps: 7, every: 8 }).is_empty());
    }
}
