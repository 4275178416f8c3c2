//! A count on ranks with checkpoints.
//!
//! A checkpoint holds the table as one global array, of which each rank has a box of rows, and what is the same on all
//! ranks: the next root and the fingerprint of the graph. So a restart takes any number of ranks.

use super::count::RankCount;
use crate::count::{Counter, ORBITS};
use treering::{Element, Error, ErrorKind, Result, Run, Variable, VariableMut};

/// When to save, and when to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CountSchedule {
    /// The number of checkpoints in the course of a count.
    pub checkpoints: u32,
    /// Wait after each checkpoint until it is durable.
    pub wait: bool,
}

/// Events of a count on ranks; all but `Failed` are the same on all ranks.
#[derive(Clone, Debug)]
pub enum CountProgress {
    /// The count goes on from a checkpoint.
    Resumed {
        /// The step of the checkpoint.
        step: u64,
        /// The next root.
        next: u32,
        /// Damaged copies, and newer checkpoints that could not be used.
        notes: Vec<String>,
    },
    /// A checkpoint was handed over to be saved, or is durable if the schedule waits.
    Saved {
        /// The step of the checkpoint.
        step: u64,
        /// The next root.
        next: u32,
    },
    /// A save failed; the count goes on.
    Failed {
        /// The step of the state that is not saved.
        step: u64,
        /// The cause.
        error: Error,
    },
}

/// Counts all roots on all ranks, going on from the newest checkpoint of the run. Returns when all checkpoints are
/// durable. Collective.
pub fn count_on_ranks<T: Counter + Element>(
    count: &mut RankCount<T>,
    mut run: Run,
    schedule: CountSchedule,
    observer: &mut dyn FnMut(CountProgress),
) -> Result<()> {
    resume(&mut run, count, observer)?;
    let vertices = count.graph().vertices();
    let batch = vertices.div_ceil(schedule.checkpoints.max(1)).max(1);
    while count.next < vertices {
        count.count_to((count.next / batch + 1).saturating_mul(batch))?;
        save(&mut run, count, u64::from(count.next.div_ceil(batch)), schedule, observer)?;
    }
    run.finish()
}

/// The extents of the table and of the rows of this rank, and where these begin.
fn boxes<T: Counter + Element>(count: &RankCount<T>) -> ([u64; 2], [u64; 2], [u64; 2]) {
    let rows = count.rows_of(count.comm().rank());
    let orbits = ORBITS as u64;
    let table = [u64::from(count.graph().vertices()), orbits];
    (table, [rows.len() as u64, orbits], [rows.start.into(), 0])
}

fn resume<T: Counter + Element>(
    run: &mut Run,
    count: &mut RankCount<T>,
    observer: &mut dyn FnMut(CountProgress),
) -> Result<()> {
    let (table, own, at) = boxes(count);
    let expected = count.graph().fingerprint();
    let (mut found, mut next) = (expected, [0u32]);
    let restored = run.restore(&mut [
        VariableMut::new("graph", &mut found),
        VariableMut::new("next", &mut next),
        VariableMut::new("counts", &mut count.table).shaped(&own).part_of(&table, &at),
    ])?;
    let Some(restored) = restored else { return Ok(()) };
    // Both are the same on all ranks, so that all of them end here or none.
    if found != expected || next[0] > count.graph().vertices() {
        return Err(Error::new(ErrorKind::Mismatch, "the run belongs to another graph")
            .hint("give the graph and the order that it was begun with, or another run"));
    }
    count.next = next[0];
    let (step, notes) = (restored.step, restored.notes);
    observer(CountProgress::Resumed { step, next: count.next, notes });
    Ok(())
}

fn save<T: Counter + Element>(
    run: &mut Run,
    count: &RankCount<T>,
    step: u64,
    schedule: CountSchedule,
    observer: &mut dyn FnMut(CountProgress),
) -> Result<()> {
    let (table, own, at) = boxes(count);
    let (graph, next) = (count.graph().fingerprint(), [count.next]);
    let save = run.checkpoint(
        step,
        &[
            Variable::new("graph", &graph).same(),
            Variable::new("next", &next).same(),
            Variable::new("counts", &count.table).shaped(&own).part_of(&table, &at),
        ],
    )?;
    if schedule.wait {
        // A save that fails is reported with the others.
        let _ = save.durable();
    }
    for (step, error) in run.failures() {
        observer(CountProgress::Failed { step, error });
    }
    observer(CountProgress::Saved { step, next: count.next });
    Ok(())
}
