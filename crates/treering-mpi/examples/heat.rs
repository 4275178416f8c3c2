//! Heat on a plate, on any number of ranks: `mpirun -n 4 heat STORE STEPS [DIES [VICTIM [AGGREGATORS]]]`.
//!
//! Every rank has some rows of the plate, a box of one global array, and saves it after every step. Started again, the
//! program goes on from the newest checkpoint, whatever the number of ranks was before, and ends with the same bits. With
//! DIES, the last rank, or VICTIM, is killed (SIGKILL) in the middle of that step. Where the MPI survives that
//! (`mpirun --with-ft ulfm`), the other ranks go on with the same run, and end with the same bits. With AGGREGATORS, so
//! many ranks of each node write the checkpoints of the others.

use rustix::process::Signal;
use std::process::ExitCode;
use std::time::Duration;
use treering::{
    Aggregation, Comm, Error, Options, Rank, Reduction, Result, Run, Variable, VariableMut,
    aggregate,
};
use treering_mpi::MpiRanks;

const ROWS: u64 = 200;
const COLUMNS: u64 = 300;

/// The rows of a rank: where they begin, and how many.
fn rows(rank: u32, ranks: u32) -> (u64, u64) {
    let at = |rank: u32| ROWS * u64::from(rank) / u64::from(ranks);
    (at(rank), at(rank + 1) - at(rank))
}

/// The arguments of the command line.
struct Plan {
    store: String,
    steps: u64,
    /// The step in which a rank dies, and which one.
    dies: Option<(u64, Option<u32>)>,
    /// The ranks of each node that write the checkpoints of the others.
    aggregators: u32,
}

impl Plan {
    fn read() -> Result<Plan> {
        let usage = || Error::usage("use: heat STORE STEPS [DIES [VICTIM [AGGREGATORS]]]");
        let mut arguments = std::env::args().skip(1);
        let store = arguments.next().ok_or_else(usage)?;
        let mut number = || arguments.next().map(|text| text.parse::<u64>().map_err(|_| usage()));
        let steps = number().ok_or_else(usage)??;
        let (dies, victim) = (number().transpose()?, number().transpose()?);
        let aggregators = number().transpose()?.unwrap_or(0) as u32;
        let dies = dies.map(|step| (step, victim.map(|rank| rank as u32)));
        Ok(Plan { store, steps, dies, aggregators })
    }
}

fn main() -> ExitCode {
    match heat() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // An error that all ranks return is printed by one of them.
            if !error.is_repeated() {
                eprintln!("heat: {error}");
            }
            ExitCode::FAILURE
        }
    }
}

fn heat() -> Result<()> {
    let plan = Plan::read()?;
    let mpi = MpiRanks::init()?;
    let aggregation = Aggregation::new(mpi.world()?, plan.aggregators)?;
    let options = Options::directory(&plan.store, "plate").patience(Duration::from_secs(60));
    if aggregation.is_aggregator() {
        return aggregate(options, &aggregation).map(drop);
    }
    let mut comm = aggregation.comm();
    let all = comm.size();
    let mut run = Run::open(options.aggregated(&aggregation))?;
    let mut done = simulate(&plan, &mut run, &*comm, comm.size() == all);
    while done.as_ref().is_err_and(Error::is_death) && mpi.survives() {
        comm.revoke()?;
        comm = comm.shrink()?;
        let went_on = run.go_on_with(comm.clone());
        for (step, error) in run.failures() {
            eprintln!("step {step} was lost with the rank that died: {error}");
        }
        done = went_on.and_then(|()| simulate(&plan, &mut run, &*comm, false));
    }
    let (heat, begun) = done?;
    run.finish()?;
    report(&*comm, &heat, begun)
}

/// Heats the plate from the newest checkpoint to the last step; its rows here, and the step at which it began.
fn simulate(
    plan: &Plan,
    run: &mut Run,
    comm: &dyn Comm,
    complete: bool,
) -> Result<(Vec<f64>, u64)> {
    let (first, count) = rows(comm.rank().0, comm.size());
    let mut heat = vec![0.0f64; (count * COLUMNS) as usize];
    let plate = [ROWS, COLUMNS];
    let state = VariableMut::new("heat", &mut heat).shaped(&[count, COLUMNS]);
    let restored = run.restore(&mut [state.part_of(&plate, &[first, 0])])?;
    let begun = restored.map_or(0, |restored| restored.step + 1);
    for step in begun..plan.steps {
        advance(comm, &mut heat, first, count)?;
        if let Some((dies, victim)) = plan.dies
            && complete
            && dies == step
            && comm.rank().0 == victim.unwrap_or(comm.size() - 1)
        {
            die()?;
        }
        let state = Variable::new("heat", &heat).shaped(&[count, COLUMNS]);
        run.checkpoint(step, &[state.part_of(&plate, &[first, 0])])?;
    }
    // Nobody leaves before all have come here: whoever has left could not go on with the others.
    comm.reduce(Reduction::Max, &mut [0])?;
    Ok((heat, begun))
}

/// Kills this very process, as a failing node would.
fn die() -> Result<()> {
    let killed = rustix::process::kill_process(rustix::process::getpid(), Signal::KILL);
    killed.map_err(|error| Error::usage(format!("cannot kill this process: {error}")))
}

/// One step: rows at the borders are exchanged with the neighbours.
fn advance(comm: &dyn Comm, heat: &mut Vec<f64>, first: u64, count: u64) -> Result<()> {
    let (rank, width) = (comm.rank().0, COLUMNS as usize);
    let bytes = |row: &[f64]| -> Vec<u8> { row.iter().flat_map(|v| v.to_le_bytes()).collect() };
    let top = bytes(&heat[..width.min(heat.len())]);
    let bottom = bytes(&heat[heat.len().saturating_sub(width)..]);
    let mut messages: Vec<(Rank, &[u8])> = Vec::new();
    if rank > 0 && count > 0 {
        messages.push((Rank(rank - 1), &top));
    }
    if rank + 1 < comm.size() && count > 0 {
        messages.push((Rank(rank + 1), &bottom));
    }
    let (mut above, mut below) = (vec![1.0; width], vec![0.0; width]);
    for (from, bytes) in comm.exchange(&messages)? {
        let row = if from.0 < rank { &mut above } else { &mut below };
        for (value, bytes) in row.iter_mut().zip(bytes.chunks_exact(8)) {
            *value = f64::from_le_bytes(bytes.try_into().unwrap_or_default());
        }
    }
    let old = std::mem::take(heat);
    let value = |row: i64, column: usize| match row {
        -1 => above[column],
        row if row as u64 == count => below[column],
        row => old[row as usize * width + column],
    };
    for row in 0..count as i64 {
        for column in 0..width {
            let here = value(row, column);
            let left = if column > 0 { value(row, column - 1) } else { here };
            let right = if column + 1 < width { value(row, column + 1) } else { here };
            let source =
                if (first + row as u64) % 40 == 7 && column % 50 == 3 { 0.01 } else { 0.0 };
            let around = value(row - 1, column) + value(row + 1, column) + left + right;
            heat.push(here + 0.2 * (around - 4.0 * here) + source);
        }
    }
    Ok(())
}

/// Prints a fingerprint of the whole plate.
fn report(comm: &dyn Comm, heat: &[f64], begun: u64) -> Result<()> {
    let bytes: Vec<u8> = heat.iter().flat_map(|value| value.to_le_bytes()).collect();
    let all = comm.gather(Rank(0), &bytes)?;
    if comm.rank() == Rank(0) {
        let mix = |print: u64, byte: &u8| (print ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
        let print = all.iter().flatten().fold(0xcbf2_9ce4_8422_2325, mix);
        println!("plate {print:016x}, began at step {begun}, {} ranks", comm.size());
    }
    Ok(())
}
