//! `bench restore`: how fast a state comes back, against reading and copying its bytes; and whether
//! that stays so along a lineage.

use super::pattern::{Pattern, Touch};
use super::{Options, bytes_of, limits};
use crate::output;
use serde::Serialize;
use serde_json::json;
use std::path::Path;
use treering::{CheckpointInfo, ChunkSize, Encoding, Library, Result, Run, Variable, VariableMut};

const LATE: u64 = 200;
const ROUNDS: usize = 5;

pub fn run(options: &Options, json: bool) -> Result<()> {
    let folder = options.folder()?;
    let default = ChunkSize::default().bytes() as u64;
    let newest = [default, 128].map(|chunk| newest(options.size as usize, chunk, folder.path()));
    let newest: Vec<Newest> = newest.into_iter().collect::<Result<_>>()?;

    let mut pattern = Pattern::new(options.size as usize, Touch::Scattered);
    pattern.settle();
    save(&mut pattern, treering::Options::directory(folder.path(), "default"), LATE)?;
    let mut late = Vec::new();
    for step in [2, 50, 100, 150, slowest(folder.path(), "default")?, LATE] {
        late.push((step, time(folder.path(), "default", step, &mut pattern)?));
    }
    let worst = late.iter().map(|(_, t)| *t).fold(0.0, f64::max);
    let (second, last) = (late[0].1, late[late.len() - 1].1);
    if json {
        return output::json(&json!({
            "size": options.size, "threads": rayon::current_num_threads(),
            "newest_raw": newest,
            "default": late.iter().map(|(s, t)| json!({"step": s, "seconds": t, "of_step_2": t / second})).collect::<Vec<_>>(),
            "late_of_step_2": last / second, "worst_of_step_2": worst / second,
        }));
    }
    output::line(format!(
        "State {}, {} threads.",
        output::bytes(options.size),
        rayon::current_num_threads()
    ));
    output::line(
        "Newest of 21 checkpoints, codec raw; the limit is reading its bytes and one memcpy:",
    );
    let row = |n: &Newest| {
        vec![
            output::bytes(n.chunk_bytes),
            output::bytes(n.needed_bytes),
            output::seconds(n.seconds),
            output::seconds(n.read_seconds + n.copy_seconds),
            format!("{:.2}", n.of_limit),
        ]
    };
    let header = ["chunk", "bytes needed", "restored in", "limit", "of limit"];
    output::line(output::table(&header, &[], newest.iter().map(row)));
    output::line(
        "One store, default settings, nearly all rows touched before, one in a hundred between checkpoints:",
    );
    let row = |(step, t): &(u64, f64)| {
        vec![step.to_string(), output::seconds(*t), format!("{:.2}", t / second)]
    };
    output::line(output::table(
        &["checkpoint", "restored in", "of checkpoint 2"],
        &[],
        late.iter().map(row),
    ));
    Ok(())
}

/// The newest of 21 checkpoints, against what reading its bytes and copying the state take.
#[derive(Serialize)]
struct Newest {
    chunk_bytes: u64,
    needed_bytes: u64,
    seconds: f64,
    read_seconds: f64,
    copy_seconds: f64,
    of_limit: f64,
}

fn newest(size: usize, chunk: u64, folder: &Path) -> Result<Newest> {
    let io = |e| treering::Error::io("cannot measure the file system", e);
    let mut pattern = Pattern::new(size, Touch::Scattered);
    let options = treering::Options::directory(folder, "raw");
    let options = options.chunk(ChunkSize::new(chunk)?).encoding(Encoding::Raw).record(4 << 30);
    save(&mut pattern, options, 20)?;
    let checkpoint = Library::open(folder)?.checkpoint("raw", Some(20))?;
    let needed_bytes = checkpoint.read_bytes_needed()?;
    let bytes = bytes_of(&pattern.table).to_vec();
    let copy_seconds = limits::memory_copy(&bytes);
    let whole = limits::file_read(folder, &bytes).map_err(io)?;
    let read_seconds = whole * needed_bytes as f64 / bytes.len() as f64;
    let seconds = time(folder, "raw", 20, &mut pattern)?;
    std::fs::remove_dir_all(folder.join("runs/raw")).map_err(io)?;
    let of_limit = seconds / (read_seconds + copy_seconds);
    Ok(Newest { chunk_bytes: chunk, needed_bytes, seconds, read_seconds, copy_seconds, of_limit })
}

/// The checkpoint with the longest way back to the beginning of its epoch.
fn slowest(folder: &Path, run: &str) -> Result<u64> {
    let (checkpoints, _) = Library::open(folder)?.checkpoints(run)?;
    let way = |c: &CheckpointInfo| c.sequence.0 - c.epoch.sequence.0;
    Ok(checkpoints.iter().max_by_key(|c| way(c)).map_or(0, |c| c.step))
}

/// Saves `count` steps after the first.
fn save(pattern: &mut Pattern, options: treering::Options, count: u64) -> Result<()> {
    let mut run = Run::open(options)?;
    for step in 0..=count {
        if step > 0 {
            pattern.step();
        }
        run.checkpoint(step, &[Variable::new("counters", &pattern.table)])?.durable()?;
    }
    run.finish()
}

/// The best of some restores into memory that has been touched before, in seconds.
fn time(folder: &Path, run: &str, step: u64, pattern: &mut Pattern) -> Result<f64> {
    let library = Library::open(folder)?;
    let mut outcome = Ok(());
    let best = limits::best_of(ROUNDS, || {
        outcome = library.checkpoint(run, Some(step)).and_then(|checkpoint| {
            checkpoint.read_into(&mut [VariableMut::new("counters", &mut pattern.table)])
        });
    });
    outcome.map(|()| best)
}
