//! `bench restore`: how fast a state comes back, against reading and copying its bytes; and whether
//! that stays so along a lineage.

use super::pattern::{Pattern, Touch};
use super::{Options, bytes_of, limits};
use crate::output;
use serde_json::json;
use std::path::Path;
use treering::{ChunkSize, Encoding, Library, Result, Run, Variable, VariableMut};

const LATE: u64 = 200;
const ROUNDS: usize = 5;

pub fn run(options: &Options, json: bool) -> Result<()> {
    let folder = options.folder()?;
    let mut pattern = Pattern::new(options.size as usize, Touch::Scattered);
    let raw = treering::Options::directory(folder.path(), "raw")
        .chunk(ChunkSize::new(128)?)
        .encoding(Encoding::Raw)
        .record(4 << 30);
    save(&mut pattern, raw, 20)?;
    let io = |e| treering::Error::io("cannot measure the file system", e);
    let bytes = bytes_of(&pattern.table).to_vec();
    let copy = limits::memory_copy(&bytes);
    let read = limits::file_read(folder.path(), &bytes).map_err(io)?;
    let newest = time(folder.path(), "raw", 20, &mut pattern)?;
    let needed = needed_bytes(folder.path(), "raw", 20)? as f64 / bytes.len() as f64;
    let limit = read * needed + copy;
    std::fs::remove_dir_all(folder.path().join("runs/raw")).map_err(io)?;

    let mut pattern = Pattern::new(options.size as usize, Touch::Scattered);
    save(&mut pattern, treering::Options::directory(folder.path(), "default"), LATE)?;
    let mut late = Vec::new();
    for step in [2, 50, 100, 150, LATE] {
        late.push((step, time(folder.path(), "default", step, &mut pattern)?));
    }
    let worst = late.iter().map(|(_, t)| *t).fold(0.0, f64::max);
    let (second, last) = (late[0].1, late[late.len() - 1].1);
    if json {
        return output::json(&json!({
            "size": options.size, "threads": rayon::current_num_threads(),
            "newest_raw": { "of_limit": newest / limit, "seconds": newest, "read_seconds": read * needed, "copy_seconds": copy },
            "default": late.iter().map(|(s, t)| json!({"step": s, "seconds": t, "of_step_2": t / second})).collect::<Vec<_>>(),
            "late_of_step_2": last / second, "worst_of_step_2": worst / second,
        }));
    }
    output::line(format!(
        "State {}, {} threads.",
        output::bytes(options.size),
        rayon::current_num_threads()
    ));
    output::line(format!(
        "Newest of 21 checkpoints, codec raw, 128 B chunks: {} = {:.2} × (reading its {} + one memcpy).",
        output::seconds(newest),
        newest / limit,
        output::bytes((bytes.len() as f64 * needed) as u64),
    ));
    output::line("One store, default settings, one row in a hundred touched between checkpoints:");
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

/// The bytes that a restore has to read: all packs of the epoch that hold a part of the state.
fn needed_bytes(folder: &Path, run: &str, step: u64) -> Result<u64> {
    Library::open(folder)?.checkpoint(run, Some(step))?.read_bytes_needed()
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
