//! The time for which checkpoints block a program: `mpirun -n 2 --bind-to none blocked STORE MIB`.
//!
//! The ranks share the cores of the machine and this many MiB of state. With one rank, its threads have all cores; with
//! several, each rank is pinned to one core. Every checkpoint is timed from the moment at which all ranks have come
//! until the last of them goes on. Prints medians, and the limits of the same memory: a copy and a read of the state.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::hint::black_box;
use std::time::{Duration, Instant};
use treering::{Comm, Encoding, Error, Options, Rank, Reduction, Result, Run, Variable};
use treering_mpi::MpiRanks;

const WARM_UP: u64 = 4;
const MEASURED: u64 = 15;

/// Pins this process to its share of the cores, before any thread is started; the number of cores it has.
fn pin(rank: u32, ranks: u32) -> Result<usize> {
    let failed = |error| Error::usage(format!("cannot pin this process to a core: {error}"));
    let all = sched_getaffinity(None).map_err(failed)?;
    let cores: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|core| all.is_set(*core)).collect();
    let own: Vec<usize> = match ranks {
        1 => cores,
        _ => vec![cores[rank as usize % cores.len().max(1)]],
    };
    let mut set = CpuSet::new();
    own.iter().for_each(|core| set.set(*core));
    sched_setaffinity(None, &set).map_err(failed)?;
    Ok(own.len())
}

/// The rank and the number of ranks as the launcher tells them: MPI starts threads, which must be pinned, too.
fn place() -> (u32, u32) {
    let number = |names: [&str; 2]| {
        let found = names.iter().find_map(|name| std::env::var(name).ok());
        found.and_then(|text| text.parse().ok())
    };
    let rank = number(["OMPI_COMM_WORLD_RANK", "PMI_RANK"]).unwrap_or(0);
    (rank, number(["OMPI_COMM_WORLD_SIZE", "PMI_SIZE"]).unwrap_or(1))
}

fn median(mut times: Vec<u64>) -> f64 {
    times.sort_unstable();
    times.get(times.len() / 2).copied().unwrap_or(0) as f64 * 1e-6
}

/// The milliseconds until all ranks have done their part of some work, which all begin together.
fn together(comm: &dyn Comm, work: impl FnOnce() -> Result<()>) -> Result<u64> {
    comm.reduce(Reduction::Max, &mut [0])?;
    let start = Instant::now();
    work()?;
    let mut took = [start.elapsed().as_nanos() as u64];
    comm.reduce(Reduction::Max, &mut took)?;
    Ok(took[0])
}

/// Does something with pieces of memory on this many threads.
fn on_threads(threads: usize, to: &mut [u64], from: &[u64], work: fn(&mut [u64], &[u64])) {
    let part = from.len().div_ceil(threads.max(1)).max(1);
    std::thread::scope(|scope| {
        for (to, from) in to.chunks_mut(part).zip(from.chunks(part)) {
            scope.spawn(move || work(to, from));
        }
    });
    black_box(to);
}

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let usage = || Error::usage("use: blocked STORE MIB");
    let store = arguments.next().ok_or_else(usage)?;
    let mib: usize = arguments.next().and_then(|text| text.parse().ok()).ok_or_else(usage)?;
    let (rank, ranks) = place();
    let threads = pin(rank, ranks)?;
    let mpi = MpiRanks::init()?;
    let comm = mpi.world()?;
    let count = (mib << 17) / comm.size() as usize;
    let mut state: Vec<u64> = (0..count as u64).map(|at| at ^ u64::from(rank) << 40).collect();
    let mut copy = vec![1u64; count];
    let (mut copies, mut reads) = (Vec::new(), Vec::new());
    for _ in 0..7 {
        copies.push(together(&*comm, || {
            on_threads(threads, &mut copy, &state, <[u64]>::copy_from_slice);
            Ok(())
        })?);
        reads.push(together(&*comm, || {
            on_threads(threads, &mut copy, &state, |to, from| {
                to[0] = from.iter().fold(0, |sum, word| sum ^ word);
            });
            Ok(())
        })?);
    }
    drop(copy);
    let mut line = format!(
        "{{\"ranks\": {ranks}, \"threads\": {threads}, \"mib\": {mib}, \"memcpy_ms\": {:.2}, \"read_ms\": {:.2}",
        median(copies),
        median(reads)
    );
    for (name, part) in [("all", 1), ("hundredth", 100)] {
        let options = Options::directory(&store, &format!("{name}-{ranks}")).ranks(comm.clone());
        let options = options.encoding(Encoding::Raw).staging((4 * mib as u64) << 20);
        let mut run = Run::open(options.patience(Duration::from_secs(600)))?;
        let (mut waited, mut blocked) = (Vec::new(), Vec::new());
        for step in 0..WARM_UP + MEASURED {
            // Runs of 64 words, so that chunks are touched as a program touches them.
            for run in state.chunks_mut(64 * part) {
                let end = run.len().min(64);
                run[..end]
                    .iter_mut()
                    .for_each(|word| *word = word.wrapping_mul(0x9E37_79B9) + step);
            }
            let mut save = None;
            let time = together(&*comm, || {
                save = Some(run.checkpoint(step, &[Variable::new("state", &state)])?);
                Ok(())
            })?;
            let Some(save) = save else { continue };
            let mut longest = [save.blocked().as_nanos() as u64];
            comm.reduce(Reduction::Max, &mut longest)?;
            save.durable()?;
            if step >= WARM_UP {
                waited.push(time);
                blocked.push(longest[0]);
            }
        }
        run.finish()?;
        line += &format!(
            ", \"{name}_ms\": {:.2}, \"{name}_blocked_ms\": {:.2}",
            median(waited),
            median(blocked)
        );
    }
    if comm.rank() == Rank(0) {
        println!("{line}}}");
    }
    Ok(())
}
