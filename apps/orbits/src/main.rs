//! Counts graphlet orbits, with checkpoints during the count.
//!
//! The state is the table of counters and the number of the next vertex: whoever has both can go
//! on. A restart finds the newest complete checkpoint by itself; a store that belongs to another
//! graph, or to another order of its vertices, is refused.

mod arguments;
mod graph_source;

use arguments::{GraphArguments, Outcome, Width, create, write_counts};
use clap::{Args, Parser, Subcommand};
use graph_source::Kind;
use orbits::{Counter, Counts, Graph, ORBITS, count_range};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use treering::{ChunkSize, Element, Options, Place, Run, Variable, VariableMut};

/// Counts the graphlet orbits (2 to 5 vertices, 73 orbits) of every vertex of a graph.
#[derive(Parser)]
#[command(name = "orbits", version, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Counts, with checkpoints if a store is given.
    Count(CountArguments),
    /// Makes a graph and writes it as an edge list.
    Make {
        /// Kind of graph.
        #[arg(value_enum)]
        kind: Kind,
        /// Number of vertices.
        vertices: u32,
        /// The seed of its random numbers.
        #[arg(long, default_value_t = 1)]
        seed: u64,
        /// The edge list to write.
        #[arg(long, value_name = "FILE")]
        out: PathBuf,
    },
}

#[derive(Args)]
struct CountArguments {
    #[command(flatten)]
    graph: GraphArguments,
    /// The width of the counters.
    #[arg(long, value_enum, default_value = "u32")]
    counters: Width,
    /// Where to keep checkpoints: STORE#RUN. A run that is there already is continued.
    #[arg(long, value_name = "PLACE")]
    store: Option<String>,
    /// Number of checkpoints to take during the count.
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..))]
    checkpoints: u32,
    /// The size of the chunks by which changes are found.
    #[arg(long, default_value_t = 128)]
    chunk: u64,
    /// Where to write the counts: 73 columns for each vertex.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

fn main() -> ExitCode {
    let outcome = match Cli::parse().command {
        Command::Make { kind, vertices, seed, out } => write_edges(kind, vertices, seed, &out),
        Command::Count(arguments) => match arguments.counters {
            Width::U32 => count::<u32>(&arguments),
            Width::U64 => count::<u64>(&arguments),
        },
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("orbits: {error}");
            ExitCode::from(2)
        }
    }
}

fn write_edges(kind: Kind, vertices: u32, seed: u64, out: &Path) -> Outcome<()> {
    let graph = kind.make(vertices, seed)?;
    let mut file = create(out)?;
    graph.edge_list().try_for_each(|(a, b)| writeln!(file, "{a} {b}"))?;
    file.flush()?;
    println!("{} vertices, {} edges", graph.vertices(), graph.edges());
    Ok(())
}

fn count<T: Counter + Element>(arguments: &CountArguments) -> Outcome<()> {
    let (graph, order) = arguments.graph.graph()?;
    let mut counts = Counts::<T>::new(graph.vertices());
    match &arguments.store {
        Some(place) => count_with_checkpoints(&graph, &mut counts, place, arguments)?,
        None => count_range(&graph, 0..graph.vertices(), &mut counts)?,
    }
    if let Some(path) = &arguments.out {
        write_counts(&counts, &order, path)?;
    }
    Ok(())
}

fn count_with_checkpoints<T: Counter + Element>(
    graph: &Graph,
    counts: &mut Counts<T>,
    place: &str,
    arguments: &CountArguments,
) -> Outcome<()> {
    let place = Place::parse(place)?;
    let name = place.run.ok_or("give --store as STORE#RUN")?;
    let options = Options::directory(&place.store, &name).chunk(ChunkSize::new(arguments.chunk)?);
    let shape = [u64::from(graph.vertices()), ORBITS as u64];
    let mut run = Run::open(options)?;
    let expected = graph.fingerprint();
    let (mut found, mut next) = (expected, [0u32]);
    let restored = run.restore(&mut [
        VariableMut::new("graph", &mut found),
        VariableMut::new("next", &mut next),
        VariableMut::new("counts", counts.as_mut_slice()).shaped(&shape),
    ])?;
    if let Some(restored) = restored {
        if found != expected {
            return Err(format!("{name:?} belongs to another graph; choose another run").into());
        }
        restored.notes.iter().for_each(|note| eprintln!("orbits: {note}"));
        println!("goes on from checkpoint {} at vertex {}", restored.step, next[0]);
    }
    let vertices = graph.vertices();
    let batch = vertices.div_ceil(arguments.checkpoints).max(1);
    while next[0] < vertices {
        let end = vertices.min((next[0] / batch + 1) * batch);
        count_range(graph, next[0]..end, counts)?;
        next[0] = end;
        let step = u64::from(end.div_ceil(batch));
        run.checkpoint(
            step,
            &[
                Variable::new("graph", &expected),
                Variable::new("next", &next),
                Variable::new("counts", counts.as_slice()).shaped(&shape),
            ],
        )?;
        // A save that failed is told, and the count goes on: the next one may succeed.
        for (step, error) in run.failures() {
            eprintln!("orbits: checkpoint {step} failed: {error}");
        }
        println!("checkpoint {step}: {end} of {vertices} vertices");
    }
    Ok(run.finish()?)
}
