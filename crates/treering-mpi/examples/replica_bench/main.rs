//! Times of a replica store over MPI, and the limits that they are compared with. One JSON line per run:
//!
//! - `mpirun -n 2 replica_bench memcpy MIB`: two processes, each pinned to a core, copy half of the bytes each.
//! - `mpirun -n P replica_bench store COPIES RANGE_KIB PERMUTED`: submits and loads; PERMUTED is 1 or 0.
//! - `mpirun -n P replica_bench files COPIES FOLDER`: data of one rank from replicas, and from files of the page cache and
//!   of the disk.
//! - `mpirun --with-ft ulfm -n P replica_bench remake COPIES`: the last rank dies; its copies are made again, beside
//!   plain sends of the same messages between the same ranks.
//!
//! 16 MiB per rank in blocks of 64 bytes. A time is that from the moment at which all ranks begin until the last one
//! is done. Loads go to memory that was used before, and request only blocks that their rank has no copy of.

mod recorded;

use recorded::{Plain, Recorded};
use rustix::fs::{Advice, fadvise};
use rustix::process::Signal;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::io::{Read, Seek, SeekFrom};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Instant;
use treering::{Comm, Error, ErrorKind, Rank, Reduction, ReplicaSettings, ReplicaStore, Result};
use treering_mpi::MpiRanks;

const BYTES: u64 = 16 << 20;
const BLOCK: u64 = 64;
const BLOCKS: u64 = BYTES / BLOCK;
/// Times that everything which can be repeated is repeated; medians are printed.
const TIMES: usize = 9;

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize| arguments.get(at).and_then(|text| text.parse::<u64>().ok());
    let mode = arguments.first().map_or("", |mode| mode);
    if mode == "memcpy" {
        pin()?;
    }
    let mpi = MpiRanks::init()?;
    let world = mpi.world()?;
    let line = match (mode, number(1)) {
        ("memcpy", Some(mib)) => memcpy(&*world, mib)?,
        ("store", Some(copies)) => {
            let (kib, permuted) = (number(2).unwrap_or(256), number(3).unwrap_or(1) > 0);
            store(&world, copies as u32, kib, permuted)?
        }
        ("files", Some(copies)) => files(&world, copies as u32, arguments.get(2))?,
        ("remake", Some(copies)) => remake(&world, copies as u32)?,
        _ => {
            return Err(Error::usage(
                "expected memcpy MIB, store COPIES, files COPIES or remake COPIES",
            ));
        }
    };
    if !line.is_empty() {
        println!("{{{line}}}");
    }
    Ok(())
}

/// Pins this process to a core of its own, before MPI starts threads.
fn pin() -> Result<()> {
    let failed = |error| Error::usage(format!("cannot pin this process to a core: {error}"));
    let all = sched_getaffinity(None).map_err(failed)?;
    let cores: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|core| all.is_set(*core)).collect();
    let rank = std::env::var("OMPI_COMM_WORLD_RANK").ok().and_then(|text| text.parse().ok());
    let mut set = CpuSet::new();
    set.set(cores[rank.unwrap_or(0) % cores.len().max(1)]);
    sched_setaffinity(None, &set).map_err(failed)
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times.get(times.len() / 2).copied().unwrap_or(0.0)
}

/// Milliseconds from the moment at which all ranks begin until the last one is done.
fn together(comm: &dyn Comm, work: impl FnOnce() -> Result<()>) -> Result<f64> {
    comm.reduce(Reduction::Max, &mut [0])?;
    let start = Instant::now();
    work()?;
    let mut took = [start.elapsed().as_nanos() as u64];
    comm.reduce(Reduction::Max, &mut took)?;
    Ok(took[0] as f64 * 1e-6)
}

/// The sum over all ranks.
fn total(comm: &dyn Comm, value: u64) -> Result<u64> {
    let mut values = [value];
    comm.reduce(Reduction::Sum, &mut values)?;
    Ok(values[0])
}

fn row(comm: &dyn Comm, figures: &[(&str, f64)]) -> String {
    let ranks = ("ranks", f64::from(comm.size()));
    let figure = |(name, value): &(&str, f64)| format!("\"{name}\": {value:.3}");
    let all: Vec<String> = [ranks].iter().chain(figures).map(figure).collect();
    if comm.rank() == Rank(0) { all.join(", ") } else { String::new() }
}

fn memcpy(comm: &dyn Comm, mib: u64) -> Result<String> {
    let half = (mib << 20) as usize / comm.size() as usize;
    let (from, mut to) = (vec![3u8; half], vec![5u8; half]);
    let mut times = Vec::new();
    for _ in 0..10 {
        times.push(together(comm, || {
            to.copy_from_slice(&from);
            std::hint::black_box(&mut to);
            Ok(())
        })?);
    }
    Ok(row(comm, &[("mib", mib as f64), ("memcpy_ms", median(times))]))
}

/// The bytes that a rank submits as a step.
fn data(rank: u64, step: u64) -> Vec<u8> {
    let value = |at: u64| (rank * BYTES + at).wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ step;
    (0..BYTES / 8).flat_map(|at| value(at * 8).to_le_bytes()).collect()
}

fn settings(range_kib: u64, permuted: bool) -> ReplicaSettings {
    ReplicaSettings {
        block_size: BLOCK,
        range_blocks: (range_kib << 10) / BLOCK,
        seed: permuted.then_some(0),
        ..ReplicaSettings::default()
    }
}

fn store(world: &Arc<dyn Comm>, copies: u32, range_kib: u64, permuted: bool) -> Result<String> {
    let comm = &**world;
    let own = u64::from(comm.rank().0);
    let mut store = ReplicaStore::new(world.clone(), copies, settings(range_kib, permuted))?;
    let mut steps: Vec<Vec<u8>> = (1..3).map(|step| data(own, step)).collect();
    let first = together(comm, || store.submit(1, &steps[0], own * BLOCKS).map(drop))?;
    let sent = store.traffic().bytes_sent;
    let second = together(comm, || store.submit(2, &steps[1], own * BLOCKS).map(drop))?;
    let sent = total(comm, store.traffic().bytes_sent - sent)?;
    let mut later = Vec::new();
    for step in 3..3 + TIMES as u64 {
        let bytes = &steps[step as usize % 2];
        later.push(together(comm, || store.submit(step, bytes, own * BLOCKS).map(drop))?);
    }
    // In pieces: what one call takes at most, and all of them.
    let snapshot = Arc::new(steps.swap_remove(1));
    let (mut begins, mut pieces, mut wholes) = (Vec::new(), Vec::new(), Vec::new());
    for step in 20..20 + TIMES as u64 {
        let begin = || store.begin_submit(step, snapshot.clone(), own * BLOCKS);
        let mut whole = together(comm, begin)?;
        let (mut longest, mut left) = (0.0f64, 1);
        begins.push(whole);
        while left > 0 {
            let piece = together(comm, || {
                left = store.progress()?.rounds_left;
                Ok(())
            })?;
            (longest, whole) = (longest.max(piece), whole + piece);
        }
        pieces.push(longest);
        wholes.push(whole);
    }
    let mut figures = vec![
        ("copies", f64::from(copies)),
        ("range_kib", range_kib as f64),
        ("permuted", f64::from(u8::from(permuted))),
        ("submit_first_ms", first),
        ("submit_second_ms", second),
        ("submit_later_ms", median(later)),
        ("submit_remote_mib", sent as f64 / 1048576.0),
        ("begin_ms", median(begins)),
        ("longest_piece_ms", median(pieces)),
        ("pieces_ms", median(wholes)),
    ];
    let ranks = u64::from(comm.size());
    let mut load = |name, remote, requests: Vec<Range<u64>>| -> Result<()> {
        let (ms, mib) = load(comm, &mut store, &requests)?;
        figures.extend([(name, ms), (remote, mib)]);
        Ok(())
    };
    let share = |of: Range<u64>, rank: u64| {
        let at = |rank: u64| of.start + (of.end - of.start) * rank / ranks;
        at(rank)..at(rank + 1)
    };
    let whole_rank = |rank: u64| rank * BLOCKS..(rank + 1) * BLOCKS;
    let hundredth = 0..ranks * BLOCKS / 100;
    load("load_hundredth_ms", "load_hundredth_mib", vec![share(hundredth, own)])?;
    load("load_one_by_all_ms", "load_one_by_all_mib", vec![share(whole_rank(0), own)])?;
    let mine = if own == ranks - 1 { vec![whole_rank(0)] } else { Vec::new() };
    load("load_one_by_one_ms", "load_one_by_one_mib", mine)?;
    load("load_all_ms", "load_all_mib", vec![whole_rank((own + 1) % ranks)])?;
    let memory = store.memory();
    let mut most = [memory.peak, memory.now];
    comm.reduce(Reduction::Max, &mut most)?;
    figures.push(("peak_of_paper", most[0] as f64 / memory.paper_peak as f64));
    Ok(row(comm, &figures))
}

/// The median time of a load of the blocks that this rank has no copy of, and the MiB that other ranks sent.
fn load(comm: &dyn Comm, store: &mut ReplicaStore, requests: &[Range<u64>]) -> Result<(f64, f64)> {
    let mut wanted = Vec::new();
    for blocks in requests {
        let mut at = blocks.start;
        for held in store.held(blocks.clone()) {
            wanted.extend((at < held.start).then_some(at..held.start));
            at = held.end;
        }
        wanted.extend((at < blocks.end).then_some(at..blocks.end));
    }
    let len: u64 = wanted.iter().map(|blocks| (blocks.end - blocks.start) * BLOCK).sum();
    let mut memory = vec![1; len as usize];
    let (mut times, mut received) = (Vec::new(), 0);
    for _ in 0..TIMES {
        received = store.traffic().bytes_received;
        times.push(together(comm, || {
            let loaded = store.load_into(&wanted, &mut memory)?;
            match loaded.lost.is_empty() {
                true => Ok(()),
                false => Err(Error::new(ErrorKind::Lost, "blocks are lost")),
            }
        })?);
        received = store.traffic().bytes_received - received;
    }
    Ok((median(times), total(comm, received)? as f64 / 1048576.0))
}

fn files(world: &Arc<dyn Comm>, copies: u32, folder: Option<&String>) -> Result<String> {
    let comm = &**world;
    let (own, ranks) = (u64::from(comm.rank().0), u64::from(comm.size()));
    let folder = folder.map(PathBuf::from).ok_or_else(|| Error::usage("expected a folder"))?;
    let file = |rank: u64| folder.join(format!("rank-{rank}"));
    let bytes = data(own, 1);
    let failed = |error| Error::io("cannot write a file", error);
    std::fs::write(file(own), &bytes).map_err(failed)?;
    std::fs::File::open(file(own)).and_then(|file| file.sync_all()).map_err(failed)?;
    let mut store = ReplicaStore::new(world.clone(), copies, settings(256, true))?;
    store.submit(1, &bytes, own * BLOCKS)?;
    // The data of rank 0, spread over all ranks.
    let at = |rank: u64| BLOCKS * rank / ranks;
    let part = at(own)..at(own + 1);
    let (ms, mib) = load(comm, &mut store, std::slice::from_ref(&part))?;
    let mut memory = vec![1; ((part.end - part.start) * BLOCK) as usize];
    let (mut warm, mut cold) = (Vec::new(), Vec::new());
    for _ in 0..TIMES {
        warm.push(together(comm, || read(&file(0), part.start * BLOCK, &mut memory))?);
        forget(&file(0))?;
        cold.push(together(comm, || read(&file(0), part.start * BLOCK, &mut memory))?);
    }
    let figures = [
        ("copies", f64::from(copies)),
        ("replicas_ms", ms),
        ("replicas_remote_mib", mib),
        ("files_warm_ms", median(warm)),
        ("files_cold_ms", median(cold)),
    ];
    Ok(row(comm, &figures))
}

fn read(path: &Path, from: u64, to: &mut [u8]) -> Result<()> {
    let whole = |mut file: std::fs::File| {
        file.seek(SeekFrom::Start(from))?;
        file.read_exact(to)
    };
    std::fs::File::open(path)
        .and_then(whole)
        .map_err(|error| Error::io("cannot read a file", error))
}

/// Drops the pages of a file from the page cache.
fn forget(path: &Path) -> Result<()> {
    let file = std::fs::File::open(path).map_err(|error| Error::io("cannot open a file", error))?;
    fadvise(&file, 0, None, Advice::DontNeed)
        .map_err(|error| Error::io("cannot drop a file from the page cache", error.into()))
}

fn remake(world: &Arc<dyn Comm>, copies: u32) -> Result<String> {
    let (own, ranks) = (u64::from(world.rank().0), u64::from(world.size()));
    let mut store = ReplicaStore::new(world.clone(), copies, settings(256, true))?;
    for step in 1..4 {
        store.submit(step, &data(own, step), own * BLOCKS)?;
    }
    store.settle()?;
    if own == ranks - 1 {
        let _ = rustix::process::kill_process(rustix::process::getpid(), Signal::KILL);
    }
    let start = Instant::now();
    let mut comm = world.clone();
    let mut done = store.settle();
    let sent = Arc::new(Mutex::new(Vec::new()));
    while let Err(error) = done {
        if !error.is_death() {
            return Err(error);
        }
        comm.revoke()?;
        comm = comm.shrink()?;
        let recorded = Arc::new(Recorded { inner: comm.clone(), sent: sent.clone() });
        done = store.go_on_with(recorded).map(drop);
    }
    let usable = start.elapsed().as_secs_f64() * 1e3;
    let mut remade = 0;
    sent.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).clear();
    let took = together(&*comm, || {
        let made = store.remake()?;
        remade = made.bytes;
        match made.lost.is_empty() {
            true => Ok(()),
            false => Err(Error::new(ErrorKind::Lost, "blocks are lost")),
        }
    })?;
    let remade = total(&*comm, remade)?;
    let messages = sent.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).clone();
    let all = messages.iter().map(|(_, len)| *len).sum();
    let mut plain = Plain { from: vec![7; all].into(), ..Plain::default() };
    let mut times = Vec::new();
    for _ in 0..TIMES {
        (plain.messages, plain.at) = (messages.iter().copied().collect(), 0);
        times.push(together(&*comm, || comm.exchange_mail(&mut plain))?);
        plain.spare.append(&mut plain.received);
    }
    let figures = [
        ("copies", f64::from(copies)),
        ("kill_to_usable_ms", usable),
        ("remake_ms", took),
        ("remade_mib", remade as f64 / 1048576.0),
        ("plain_sends_first_ms", times[0]),
        ("plain_sends_ms", median(times)),
    ];
    let line = row(&*comm, &figures);
    comm.agree(true)?;
    Ok(line)
}
