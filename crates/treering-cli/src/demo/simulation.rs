//! A reaction and a diffusion (Gray and Scott): two substances on a square that is quiet but for a
//! few drops, from which a pattern grows. Every cell is computed from the step before it, so the
//! result does not depend on the number of threads, and a restart must give the same bits.

use crate::output;
use rayon::prelude::*;
use std::path::PathBuf;
use std::time::Instant;
use treering::{Options, Result, Run, Variable, VariableMut};

/// Number of cells along each side.
pub const SIDE: usize = 640;

const FEED: f64 = 0.0545;
const KILL: f64 = 0.062;
const SPREAD_U: f64 = 0.16;
const SPREAD_V: f64 = 0.08;
/// Less than this of a substance in a cell is none.
const TRACE: f64 = 1e-12;

/// The way in which the child is started.
#[derive(clap::Args)]
pub struct Arguments {
    /// The store.
    pub store: PathBuf,
    /// The run.
    pub run: String,
    /// The last step.
    #[arg(long)]
    pub steps: u64,
    /// Number of steps between checkpoints.
    #[arg(long)]
    pub every: u64,
    /// The number of cells along each side.
    #[arg(long, default_value_t = SIDE, value_parser = side)]
    pub side: usize,
}

fn side(text: &str) -> std::result::Result<usize, String> {
    match text.parse() {
        Ok(side) if (32..=1 << 15).contains(&side) => Ok(side),
        _ => Err("a side has 32 to 32768 cells".into()),
    }
}

/// The state: two fields, row by row.
#[derive(Clone)]
pub struct State {
    side: usize,
    u: Vec<f64>,
    v: Vec<f64>,
}

impl State {
    fn new(side: usize) -> Self {
        let mut state = State { side, u: vec![1.0; side * side], v: vec![0.0; side * side] };
        // Three drops, at these parts of the sides.
        for (x, y) in [(0.31, 0.33), (0.66, 0.39), (0.47, 0.67)] {
            let (x, y) = ((x * side as f64) as usize, (y * side as f64) as usize);
            for (dx, dy) in (0..8).flat_map(|dy| (0..8).map(move |dx| (dx, dy))) {
                let at = (y + dy) * side + x + dx;
                state.u[at] = 0.5;
                state.v[at] = 0.25 + 0.001 * (dx * dy) as f64;
            }
        }
        state
    }

    fn step(&self, next: &mut State) {
        let side = self.side;
        let rows = next.u.par_chunks_mut(side).zip(next.v.par_chunks_mut(side)).enumerate();
        rows.for_each(|(y, (u_row, v_row))| {
            let (above, below) = ((y + side - 1) % side * side, (y + 1) % side * side);
            let row = y * side;
            for x in 0..side {
                let (left, right) = ((x + side - 1) % side, (x + 1) % side);
                let spread = |f: &[f64]| {
                    let around = f[above + x] + f[below + x] + f[row + left] + f[row + right];
                    around - 4.0 * f[row + x]
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
    let shape = [arguments.side as u64; 2];
    let mut run = Run::open(Options::directory(&arguments.store, &arguments.run))?;
    let mut state = State::new(arguments.side);
    let restored = run.restore(&mut [
        VariableMut::new("u", &mut state.u).shaped(&shape),
        VariableMut::new("v", &mut state.v).shaped(&shape),
    ])?;
    let first = restored.map_or(0, |restored| restored.step + 1);
    output::line(format!("from {first}"));
    let mut next = state.clone();
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
