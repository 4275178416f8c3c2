//! The tour: run, kill, restart; then two runs that part, compare, report.

mod parting;
pub mod simulation;

use crate::output;
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;
use std::io::{BufRead, BufReader, IsTerminal};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use treering::{CheckpointInfo, Error, Library, Result};

const STEPS: u64 = 1500;
const EVERY: u64 = 100;
/// Between two checkpoints, a little after the middle.
const KILL_AT: u64 = 860;

/// The report of a child that ended by itself.
struct Ended {
    from: u64,
    blocked: f64,
    seconds: f64,
}

pub fn run(keep: Option<PathBuf>, json: bool) -> Result<()> {
    let temporary =
        tempfile::tempdir().map_err(|e| Error::io("cannot make a temporary folder", e))?;
    let store = keep.clone().unwrap_or_else(|| temporary.path().join("store"));
    if keep.is_some() && store.join("runs").exists() {
        return Err(Error::usage(format!("{} holds a store already", store.display()))
            .hint("give --keep a folder that is new or empty"));
    }
    let say = |text: String| {
        if !json {
            output::line(text);
        }
    };
    let side = simulation::SIDE;
    say(format!(
        "A reaction and a diffusion on {side} × {side} cells, {STEPS} steps, a checkpoint every {EVERY}."
    ));
    let undisturbed = finish(&store, "undisturbed")?;
    say(format!("1. Undisturbed: finished in {}.", output::seconds(undisturbed.seconds)));
    let reached = kill(&store, "killed")?;
    say(format!("2. Again, and killed with SIGKILL at step {reached}."));
    let restarted = finish(&store, "killed")?;
    say(format!("3. Restarted from step {}, and finished.", restarted.from.saturating_sub(1)));
    let library = Library::open(&store)?;
    let identical = same_state(&library, "undisturbed", "killed")?;
    say(format!(
        "4. The final states are {}.",
        if identical { "identical, bit for bit" } else { "DIFFERENT" }
    ));
    let parted = parting::run(&store, say)?;
    let (checkpoints, _) = library.checkpoints("undisturbed")?;
    let full: u64 = checkpoints.iter().map(|c| c.full_bytes).sum();
    let stored: u64 = checkpoints.iter().map(|c| c.stored_bytes).sum();
    if json {
        output::json(&json!({
            "bit_identical": identical, "checkpoints": checkpoints.len(), "full_bytes": full,
            "stored_bytes": stored, "blocked_seconds": undisturbed.blocked,
            "run_seconds": undisturbed.seconds, "killed_at": reached,
            "restarted_from": restarted.from.saturating_sub(1), "first_divergence": parted.first,
            "differences": parted.differences, "compare_bytes_read": parted.bytes_read,
            "compare_bytes_total": parted.bytes_total,
        }))?;
    } else {
        summary(&checkpoints, full, stored, &undisturbed);
        if let Some(store) = keep {
            let store = store.display();
            output::line(format!("Look around: treering ls '{store}#killed'"));
            output::line(format!("             treering compare '{store}#first' '{store}#second'"));
            output::line(format!("The comparison with figures: {store}/report.html"));
        } else {
            output::line(
                "With --keep DIR the stores stay, and a page with figures of the comparison.",
            );
        }
    }
    match identical {
        true => Ok(()),
        false => {
            Err(Error::damaged("the restarted run ended in another state")
                .hint("please report this"))
        }
    }
}

fn summary(checkpoints: &[CheckpointInfo], full: u64, stored: u64, ended: &Ended) {
    let row = |c: &CheckpointInfo| {
        vec![
            c.step.to_string(),
            output::bytes(c.full_bytes),
            output::bytes(c.stats.same_bytes),
            output::bytes(c.stats.duplicate_bytes),
            output::bytes(c.stats.new_bytes),
            output::bytes(c.stored_bytes),
            output::seconds(c.stats.blocked_ns as f64 / 1e9),
        ]
    };
    let mut rows: Vec<Vec<String>> = checkpoints.iter().map(row).collect();
    let total =
        |part: fn(&CheckpointInfo) -> u64| output::bytes(checkpoints.iter().map(part).sum());
    rows.push(vec![
        "all".into(),
        output::bytes(full),
        total(|c| c.stats.same_bytes),
        total(|c| c.stats.duplicate_bytes),
        total(|c| c.stats.new_bytes),
        output::bytes(stored),
        output::seconds(ended.blocked),
    ]);
    let header = ["step", "full copy", "same", "duplicate", "new", "stored", "program waited"];
    output::line(output::table(&header, &[], rows));
    output::line(format!(
        "{} checkpoints took {} instead of {} ({}), and blocked the program for {:.2} % of its time.",
        checkpoints.len(),
        output::bytes(stored),
        output::bytes(full),
        output::ratio(full, stored),
        100.0 * ended.blocked / ended.seconds,
    ));
}

fn spawn(store: &Path, run: &str) -> Result<Child> {
    let failed = |e| Error::io("cannot start the simulation", e);
    let program = std::env::current_exe().map_err(failed)?;
    let mut command = Command::new(program);
    command.arg("demo-simulation").arg(store).arg(run);
    command.args(["--steps", &STEPS.to_string(), "--every", &EVERY.to_string()]);
    command.stdout(Stdio::piped()).stdin(Stdio::null());
    command.spawn().map_err(failed)
}

/// Follows a child's lines until it ends or `until` says so.
fn follow(child: &mut Child, what: &str, mut until: impl FnMut(&str) -> bool) -> Result<()> {
    let bar = match std::io::stderr().is_terminal() {
        true => ProgressBar::new(STEPS).with_message(what.to_string()),
        false => ProgressBar::hidden(),
    };
    if let Ok(style) = ProgressStyle::with_template("{msg} {bar:40} step {pos} of {len}") {
        bar.set_style(style);
    }
    let lines = child.stdout.take().into_iter().flat_map(|out| BufReader::new(out).lines());
    for line in lines {
        let line = line.map_err(|e| Error::io("cannot follow the simulation", e))?;
        if let Some(step) = line.strip_prefix("step ").and_then(|s| s.parse().ok()) {
            bar.set_position(step);
        }
        if until(&line) {
            break;
        }
    }
    bar.finish_and_clear();
    Ok(())
}

/// Runs the simulation to its end.
fn finish(store: &Path, run: &str) -> Result<Ended> {
    let mut child = spawn(store, run)?;
    let mut ended = Ended { from: 0, blocked: 0.0, seconds: 0.0 };
    follow(&mut child, run, |line| {
        let mut words = line.split(' ');
        match words.next() {
            Some("from") => ended.from = words.next().and_then(|w| w.parse().ok()).unwrap_or(0),
            Some("done") => {
                ended.blocked = words.next().and_then(|w| w.parse().ok()).unwrap_or(0.0);
                ended.seconds = words.next().and_then(|w| w.parse().ok()).unwrap_or(0.0);
            }
            _ => {}
        }
        false
    })?;
    let status = child.wait().map_err(|e| Error::io("cannot wait for the simulation", e))?;
    match status.success() && ended.seconds > 0.0 {
        true => Ok(ended),
        false => Err(Error::usage(format!("the simulation failed: {status}"))),
    }
}

/// Kills the simulation in the middle; the step it had reached.
fn kill(store: &Path, run: &str) -> Result<u64> {
    let mut child = spawn(store, run)?;
    let mut reached = 0;
    let followed = follow(&mut child, run, |line| {
        reached = line.strip_prefix("step ").and_then(|s| s.parse().ok()).unwrap_or(reached);
        reached >= KILL_AT
    });
    let killed = child.kill().and_then(|()| child.wait());
    followed?;
    killed.map_err(|e| Error::io("cannot kill the simulation", e))?;
    Ok(reached)
}

/// Whether the newest states of two runs have the same bytes.
fn same_state(library: &Library, a: &str, b: &str) -> Result<bool> {
    let (a, b) = (library.checkpoint(a, None)?, library.checkpoint(b, None)?);
    for name in ["u", "v"] {
        let (left, right) = (a.read::<f64>(name)?, b.read::<f64>(name)?);
        let same = left.iter().zip(&right).all(|(x, y)| x.to_bits() == y.to_bits());
        if !same || left.len() != right.len() {
            return Ok(false);
        }
    }
    Ok(a.step() == b.step())
}
