//! A reaction and a diffusion (Gray and Scott): two substances on a square that is quiet but for a
//! few drops, from which a pattern grows. Every cell is computed from the step before it, so the
//! result does not depend on the number of threads, and a restart must give the same bits.

use crate::output;
use rayon::prelude::*;
use std::path::PathBuf;
use std::time::Instant;
use treering::{Options, Result, Run, Variable, VariableMut};

/// The number of cells along each side.
pub const SIDE: usize = 640;

const FEED: f64 = 0.0545;
const KILL: f64 = 0.062;
const SPREAD_U: f64 = 0.16;
const SPREAD_V: f64 = 0.08;
/// Less than this of a substance in a cell is none.
const TRACE: f64 = 1e-12;

/// How the child is started.
#[derive(clap::Args)]
pub struct Arguments {
    /// The store.
    pub store: PathBuf,
    /// The run.
    pub run: String,
    /// The last step.
    #[arg(long)]
    pub steps: u64,
    /// How many steps lie between checkpoints.
    #[arg(long)]
    pub every: u64,
}

/// The state: two fields, row by row.
pub struct State {
    u: Vec<f64>,
    v: Vec<f64>,
}

impl State {
    fn new() -> Self {
        let mut state = State { u: vec![1.0; SIDE * SIDE], v: vec![0.0; SIDE * SIDE] };
        for (x, y) in [(200, 210), (420, 250), (300, 430)] {
            for (dx, dy) in (0..12).flat_map(|dy| (0..12).map(move |dx| (dx, dy))) {
                let at = (y + dy) * SIDE + x + dx;
                state.u[at] = 0.5;
                state.v[at] = 0.25 + 0.001 * (dx * dy) as f64;
            }
        }
        state
    }

    fn step(&self, next: &mut State) {
        let rows = next.u.par_chunks_mut(SIDE).zip(next.v.par_chunks_mut(SIDE)).enumerate();
        rows.for_each(|(y, (u_row, v_row))| {
            let (above, below) = ((y + SIDE - 1) % SIDE * SIDE, (y + 1) % SIDE * SIDE);
            let row = y * SIDE;
            for x in 0..SIDE {
                let (left, right) = ((x + SIDE - 1) % SIDE, (x + 1) % SIDE);
                let spread = |f: &[f64]| {
                    f[above + x] + f[below + x] + f[row + left] + f[row + right] - 4.0 * f[row + x]
                };
                let (u, v) = (self.u[row + x], self.v[row + x]);
                let reaction = u * v * v;
                u_row[x] = u + SPREAD_U * spread(&self.u) - reaction + FEED * (1.0 - u);
                let v = v + SPREAD_V * spread(&self.v) + reaction - (FEED + KILL) * v;
                v_row[x] = if v < TRACE { 0.0 } else { v };
            }
        });
    }
}

/// Runs to the last step; prints a line for each checkpoint and each step that is reached.
pub fn run(arguments: &Arguments) -> Result<()> {
    let start = Instant::now();
    let shape = [SIDE as u64, SIDE as u64];
    let mut run = Run::open(Options::directory(&arguments.store, &arguments.run))?;
    let mut state = State::new();
    let restored = run.restore(&mut [
        VariableMut::new("u", &mut state.u).shaped(&shape),
        VariableMut::new("v", &mut state.v).shaped(&shape),
    ])?;
    let first = restored.map_or(0, |restored| restored.step + 1);
    output::line(format!("from {first}"));
    let mut next = State { u: state.u.clone(), v: state.v.clone() };
    for step in first..=arguments.steps {
        state.step(&mut next);
        std::mem::swap(&mut state, &mut next);
        if step % arguments.every == 0 {
            run.checkpoint(
                step,
                &[
                    Variable::new("u", &state.u).shaped(&shape),
                    Variable::new("v", &state.v).shaped(&shape),
                ],
            )?;
        }
        output::line(format!("step {step}"));
    }
    let blocked = run.blocked().as_secs_f64();
    run.finish()?;
    output::line(format!("done {blocked} {}", start.elapsed().as_secs_f64()));
    Ok(())
}
