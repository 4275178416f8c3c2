//! `bench tables`: what the aims make of tables of graphlet orbits, beside zstd and xz.
//!
//! Graphs that `orbits` makes, with their vertices in Gorder and in random order, so that neighbours lie
//! near each other or anywhere. One early and the last state of a count stand alone; all states one after
//! another are a lineage, for which `zstd -19 --patch-from` is the measure. Rates are MB of the table for
//! each second of processor time of all threads.

use super::lineage::states;
use super::packs::aims::least;
use super::{Options, bytes_of};
use crate::output;
use orbits::{Graph, GraphError, ORBITS, Permutation, gorder, make};
use serde::Serialize;
use serde_json::json;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use treering::testing::VariableEntry;
use treering::{Aim, Encoding, Error, Library, MemoryStore, Result, Run, Variable};

/// States of a count, and the early one that is studied.
const STATES: u32 = 10;
const EARLY: usize = 1;
const RUN: &str = "tables";

/// One encoding of one state.
#[derive(Serialize)]
struct Aimed {
    ratio: f64,
    encode_mb_s: f64,
    decode_mb_s: f64,
}

/// One state on its own.
#[derive(Serialize)]
struct StateRow {
    graph: &'static str,
    order: &'static str,
    state: usize,
    zstd_19: f64,
    /// Only where xz is installed.
    xz_6: Option<f64>,
    balanced: Aimed,
    smallest: Aimed,
}

/// All states, one after another.
#[derive(Serialize)]
struct LineageRow {
    graph: &'static str,
    order: &'static str,
    states: usize,
    /// Only where zstd is installed.
    patch_from: Option<f64>,
    balanced: f64,
    smallest: f64,
}

type Made = std::result::Result<Graph, GraphError>;

pub fn run(options: &Options, json: bool) -> Result<()> {
    let folder = options.folder()?;
    type Maker = fn(u32, u64) -> Made;
    let made: [(&'static str, Maker); 5] = [
        ("delaunay", make::delaunay),
        ("geometric", |vertices, seed| make::geometric(vertices, 6.0, seed)),
        ("road", make::road),
        ("message race", make::message_race),
        ("unstructured mesh", make::unstructured_mesh),
    ];
    let (mut alone, mut lineages) = (Vec::new(), Vec::new());
    let bar = output::progress("measuring");
    bar.set_length(2 * made.len() as u64);
    for (graph, maker) in made {
        let failed = |e: GraphError| Error::usage(e.to_string());
        let plain = maker(options.vertices, 1).map_err(failed)?;
        let orders = [("Gorder", gorder(&plain)), ("random", shuffled(plain.vertices())?)];
        for (order, permutation) in orders {
            let states = states(&plain.relabel(&permutation).map_err(failed)?, STATES)?;
            for state in [EARLY, states.len() - 1] {
                let path = folder.path().join("state");
                alone.push(state_row(graph, order, state, &states[state], &path)?);
            }
            lineages.push(LineageRow {
                graph,
                order,
                states: states.len(),
                patch_from: patches(&states, folder.path())?,
                balanced: lineage(&states, Aim::Balanced)?,
                smallest: lineage(&states, Aim::Smallest)?,
            });
            bar.inc(1);
        }
    }
    bar.finish_and_clear();
    if json {
        let vertices = options.vertices;
        return output::json(&json!({"vertices": vertices, "states": alone, "lineages": lineages}));
    }
    print(&alone, &lineages, options.vertices);
    Ok(())
}

/// Vertices in random order, always the same one.
fn shuffled(vertices: u32) -> Result<Permutation> {
    let mut labels: Vec<u32> = (0..vertices).collect();
    let mut state = 1u64;
    for at in (1..labels.len()).rev() {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        labels.swap(at, ((state >> 33) % (at as u64 + 1)) as usize);
    }
    Permutation::from_labels(labels).map_err(|e| Error::usage(e.to_string()))
}

fn state_row(
    graph: &'static str,
    order: &'static str,
    at: usize,
    state: &[u32],
    path: &Path,
) -> Result<StateRow> {
    let bytes = bytes_of(state);
    let zstd = zstd::bulk::compress(bytes, 19).map_err(|e| Error::io("zstd failed", e))?;
    write(path, bytes)?;
    let xz = output_len(Command::new("xz").args(["-6", "-k", "-c"]).arg(path))?;
    let ratio = |stored: u64| bytes.len() as f64 / stored as f64;
    Ok(StateRow {
        graph,
        order,
        state: at + 1,
        zstd_19: ratio(zstd.len() as u64),
        xz_6: xz.map(ratio),
        balanced: aimed(state, Aim::Balanced)?,
        smallest: aimed(state, Aim::Smallest)?,
    })
}

fn aimed(state: &[u32], aim: Aim) -> Result<Aimed> {
    let (store, encode) = least(|| saved(&[state], aim))?;
    let library = Library::of(store);
    let (_, decode) = least(|| {
        let checkpoint = library.checkpoint(RUN, None)?;
        let all: Vec<&VariableEntry> = checkpoint.entries().iter().collect();
        checkpoint.read_together(&all)
    })?;
    let bytes = size_of_val(state) as f64;
    let ratio = bytes / stored(&library)? as f64;
    Ok(Aimed { ratio, encode_mb_s: bytes / encode / 1e6, decode_mb_s: bytes / decode / 1e6 })
}

fn lineage(states: &[Vec<u32>], aim: Aim) -> Result<f64> {
    let all: Vec<&[u32]> = states.iter().map(|state| &state[..]).collect();
    let full: usize = states.iter().map(|state| size_of_val(&state[..])).sum();
    Ok(full as f64 / stored(&Library::of(saved(&all, aim)?))? as f64)
}

/// A store in memory with these states as checkpoints.
fn saved(states: &[&[u32]], aim: Aim) -> Result<Arc<MemoryStore>> {
    let store = Arc::new(MemoryStore::new());
    let options = treering::Options::in_store(store.clone(), RUN).encoding(Encoding::Best(aim));
    let mut run = Run::open(options)?;
    for (step, state) in (0..).zip(states) {
        let shape = [state.len() as u64 / ORBITS as u64, ORBITS as u64];
        run.checkpoint(step, &[Variable::new("counts", state).shaped(&shape)])?.durable()?;
    }
    run.finish()?;
    Ok(store)
}

fn stored(library: &Library) -> Result<u64> {
    let (checkpoints, _) = library.checkpoints(RUN)?;
    Ok(checkpoints.iter().map(|checkpoint| checkpoint.stored_bytes).sum())
}

/// The ratio of each state as a patch of the one before.
fn patches(states: &[Vec<u32>], folder: &Path) -> Result<Option<f64>> {
    let [old, new] = ["old", "new"].map(|name| folder.join(name));
    let mut stored = 0;
    for (at, state) in states.iter().enumerate() {
        write(&new, bytes_of(state))?;
        let mut zstd = Command::new("zstd");
        zstd.args(["-q", "-19", "-c"]).arg(&new);
        if at > 0 {
            zstd.arg(format!("--patch-from={}", old.display()));
        }
        let Some(len) = output_len(&mut zstd)? else { return Ok(None) };
        stored += len;
        std::fs::rename(&new, &old).map_err(|e| Error::io("cannot rename a file", e))?;
    }
    let full: usize = states.iter().map(|state| size_of_val(&state[..])).sum();
    Ok(Some(full as f64 / stored as f64))
}

fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    std::fs::write(path, bytes).map_err(|e| Error::io("cannot write a file for a peer", e))
}

/// Bytes that a program writes; `None` if it is not installed.
fn output_len(command: &mut Command) -> Result<Option<u64>> {
    match command.output() {
        Ok(output) if output.status.success() => Ok(Some(output.stdout.len() as u64)),
        Ok(output) => Err(Error::usage(String::from_utf8_lossy(&output.stderr).into_owned())),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Error::io("cannot run a peer", error)),
    }
}

fn print(alone: &[StateRow], lineages: &[LineageRow], vertices: u32) {
    output::line(format!(
        "{ORBITS} counters (u32) for each of {vertices} vertices, {STATES} states; ratios, and MB for each second of \
         processor time (encode / decode)."
    ));
    let maybe = |ratio: Option<f64>| ratio.map_or("–".to_string(), |ratio| format!("{ratio:.2}"));
    let rates = |aim: &Aimed| format!("{:.0} / {:.0}", aim.encode_mb_s, aim.decode_mb_s);
    let cells = |row: &StateRow| {
        vec![
            row.graph.to_string(),
            row.order.to_string(),
            row.state.to_string(),
            format!("{:.2}", row.zstd_19),
            maybe(row.xz_6),
            format!("{:.2}", row.balanced.ratio),
            rates(&row.balanced),
            format!("{:.2}", row.smallest.ratio),
            rates(&row.smallest),
        ]
    };
    let header =
        ["graph", "order", "state", "zstd -19", "xz -6", "balanced", "MB/s", "smallest", "MB/s"];
    output::line(output::table(&header, &[1], alone.iter().map(cells)));
    let cells = |row: &LineageRow| {
        vec![
            row.graph.to_string(),
            row.order.to_string(),
            row.states.to_string(),
            maybe(row.patch_from),
            format!("{:.2}", row.balanced),
            format!("{:.2}", row.smallest),
        ]
    };
    let header = ["lineage of", "order", "states", "zstd -19 --patch-from", "balanced", "smallest"];
    output::line(output::table(&header, &[1], lineages.iter().map(cells)));
}
