//! `bench capture`: how long the program waits, against reading and copying the same bytes.

use super::pattern::{Pattern, Random, Touch};
use super::{Options, bytes_of, limits};
use crate::output;
use serde::Serialize;
use serde_json::json;
use std::path::Path;
use std::time::{Duration, Instant};
use treering::{ChunkSize, Encoding, Library, Result, Run, Variable, VariableMut};

const CHUNKS: [u64; 5] = [32, 64, 128, 256, 512];
const CHECKPOINTS: u64 = 20;
/// The time for which a program computes before its first checkpoint.
const TO_THE_FIRST: Duration = Duration::from_secs(1);

/// A pattern at a chunk size.
#[derive(Serialize)]
struct Sparse {
    pattern: &'static str,
    chunk_bytes: u64,
    /// Rate at which the program's wait went through the state, as a fraction of the memory-read rate.
    blocked_seconds: f64,
    /// Time of the fastest plain read of the state, before or after the checkpoints.
    read_seconds: f64,
    best_of_memory_read: f64,
    median_of_memory_read: f64,
    /// Size of full copies, divided by the stored bytes; the first checkpoint left out.
    ratio: f64,
}

/// Every byte changes every time; the wait in copies of the same bytes.
#[derive(Serialize)]
struct Dense {
    chunk_bytes: u64,
    first_memcpys: f64,
    watched_memcpys: f64,
    learned_memcpys: f64,
}

pub fn run(options: &Options, json: bool) -> Result<()> {
    let folder = options.folder()?;
    // These come first: the first checkpoint of all is the first of the process.
    let dense = [128, 512].map(|chunk| dense(options.size as usize, chunk, folder.path()));
    let dense: Vec<Dense> = dense.into_iter().collect::<Result<_>>()?;
    let mut sparse = Vec::new();
    let mut read_rate: f64 = 0.0;
    for (touch, name) in Touch::ALL {
        for chunk in CHUNKS {
            let mut pattern = Pattern::new(options.size as usize, touch);
            let (row, rate) = measure(&mut pattern, name, chunk, folder.path())?;
            read_rate = read_rate.max(rate);
            sparse.push(row);
        }
    }
    if json {
        return output::json(&json!({
            "size": options.size, "threads": rayon::current_num_threads(),
            "memory_read_bytes_per_second": read_rate, "sparse": sparse, "dense": dense,
        }));
    }
    output::line(format!(
        "State {}, {} threads, codec raw; memory read {:.1} GB/s.",
        output::bytes(options.size),
        rayon::current_num_threads(),
        read_rate / 1e9
    ));
    output::line("One row in a hundred changes between checkpoints:");
    let row = |s: &Sparse| {
        vec![
            s.pattern.to_string(),
            output::bytes(s.chunk_bytes),
            format!("{:.2}", s.best_of_memory_read),
            format!("{:.2}", s.median_of_memory_read),
            format!("{:.1}", s.ratio),
        ]
    };
    let header = ["pattern", "chunk", "blocked, of memory read (best)", "(median)", "ratio"];
    output::line(output::table(&header, &[], sparse.iter().map(row)));
    output::line("Everything changes between checkpoints; blocked, in copies of the state:");
    let row = |d: &Dense| {
        vec![
            output::bytes(d.chunk_bytes),
            format!("{:.2}", d.first_memcpys),
            format!("{:.2}", d.watched_memcpys),
            format!("{:.2}", d.learned_memcpys),
        ]
    };
    let header = ["chunk", "first of all", "watched", "learned"];
    output::line(output::table(&header, &[], dense.iter().map(row)));
    Ok(())
}

fn options(folder: &Path, run: &str, chunk: u64, size: u64) -> Result<treering::Options> {
    Ok(treering::Options::directory(folder, run)
        .chunk(ChunkSize::new(chunk)?)
        .encoding(Encoding::Raw)
        .staging(2 * size.max(1 << 28))
        .record(4 << 30))
}

fn measure(
    pattern: &mut Pattern,
    name: &'static str,
    chunk: u64,
    folder: &Path,
) -> Result<(Sparse, f64)> {
    let bytes = bytes_of(&pattern.table);
    let size = bytes.len() as u64;
    let read = limits::memory_read(bytes);
    let run_name = format!("{name}-{chunk}");
    let mut run = Run::open(options(folder, &run_name, chunk, size)?)?;
    let mut blocked = Vec::new();
    for step in 0..=CHECKPOINTS {
        if step > 0 {
            pattern.step();
        }
        let save = run.checkpoint(step, &[Variable::new("counters", &pattern.table)])?;
        save.durable()?;
        if step > 0 {
            blocked.push(save.blocked().as_secs_f64());
        }
    }
    // The limit again, so that a machine that slows down or speeds up meanwhile is noticed.
    let read = read.min(limits::memory_read(bytes_of(&pattern.table)));
    run.finish()?;
    let (checkpoints, _) = Library::open(folder)?.checkpoints(&run_name)?;
    let stored: u64 = checkpoints[1..].iter().map(|c| c.stored_bytes).sum();
    std::fs::remove_dir_all(folder.join("runs").join(&run_name))
        .map_err(|e| treering::Error::io("cannot remove the benchmark's run", e))?;
    blocked.sort_by(f64::total_cmp);
    let row = Sparse {
        pattern: name,
        chunk_bytes: chunk,
        blocked_seconds: blocked[0],
        read_seconds: read,
        best_of_memory_read: read / blocked[0],
        median_of_memory_read: read / blocked[blocked.len() / 2],
        ratio: (CHECKPOINTS * size) as f64 / stored as f64,
    };
    Ok((row, size as f64 / read))
}

fn dense(size: usize, chunk: u64, folder: &Path) -> Result<Dense> {
    let mut data = vec![u64::MAX; size / 8];
    let copy = limits::memory_copy(bytes_of(&data));
    let run_name = format!("dense-{chunk}");
    let mut run = Run::open(options(folder, &run_name, chunk, size as u64)?)?;
    // As programs do when they start: it finds nothing, and tells how much memory the first checkpoint will need.
    run.restore(&mut [VariableMut::new("noise", &mut data)])?;
    let mut random = Random::new();
    let mut compute = |data: &mut [u64]| {
        let mark = random.next();
        data.iter_mut()
            .enumerate()
            .for_each(|(at, word)| *word = (at as u64 ^ mark).wrapping_mul(0x9E3779B97F4A7C15));
    };
    // The memory of the first checkpoint is touched while the program computes towards it.
    let begun = Instant::now();
    while begun.elapsed() < TO_THE_FIRST {
        compute(&mut data);
    }
    let mut times = Vec::new();
    for step in 0..12u64 {
        compute(&mut data);
        let save = run.checkpoint(step, &[Variable::new("noise", &data)])?;
        save.durable()?;
        times.push(save.blocked().as_secs_f64());
    }
    run.finish()?;
    let copy = copy.min(limits::memory_copy(bytes_of(&data)));
    std::fs::remove_dir_all(folder.join("runs").join(&run_name))
        .map_err(|e| treering::Error::io("cannot remove the benchmark's run", e))?;
    // It is watched until it has not paid three times; whole checkpoints in between do not tell.
    let best = |times: &[f64]| times.iter().copied().fold(f64::MAX, f64::min);
    Ok(Dense {
        chunk_bytes: chunk,
        first_memcpys: times[0] / copy,
        watched_memcpys: best(&times[1..6]) / copy,
        learned_memcpys: best(&times[7..]) / copy,
    })
}
