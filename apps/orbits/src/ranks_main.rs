//! Counts graphlet orbits on the ranks of MPI: `mpirun -n 4 orbits-ranks …`.
//!
//! Rank 0 reads or makes the graph and writes the counts. An error that all ranks have is
//! reported once.

mod arguments;
mod graph_source;

use arguments::{GraphArguments, Outcome, Width, write_counts};
use clap::Parser;
use orbits::ranks::{CountProgress, CountSchedule, RankCount, count_on_ranks, share_graph};
use orbits::{Counter, Graph, Permutation};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};
use treering::{ChunkSize, Comm, Element, Options, Place, Rank, Run};
use treering_mpi::MpiRanks;

/// Counts the graphlet orbits (2 to 5 vertices, 73 orbits) of every vertex of a graph on the ranks of MPI, with
/// checkpoints. A run that is in the store already is continued, on any number of ranks.
#[derive(Parser)]
#[command(name = "orbits-ranks", version, max_term_width = 100)]
struct Cli {
    #[command(flatten)]
    graph: GraphArguments,
    /// The width of the counters.
    #[arg(long, value_enum, default_value = "u32")]
    counters: Width,
    /// Threads of each rank.
    #[arg(long, default_value_t = 1)]
    threads: usize,
    /// Where to keep checkpoints: STORE#RUN. A run that is there already is continued.
    #[arg(long, value_name = "PLACE")]
    store: String,
    /// Number of checkpoints to take during the count.
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..))]
    checkpoints: u32,
    /// Wait after each checkpoint until it is durable.
    #[arg(long)]
    wait: bool,
    /// The size of the chunks by which changes are found.
    #[arg(long, default_value_t = 128)]
    chunk: u64,
    /// Where to write the counts: 73 columns for each vertex.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

/// The time within which rank 0 reports an error that other ranks have, too.
const REPORTED_WITHIN: Duration = Duration::from_secs(2);

fn main() {
    let cli = Cli::parse();
    let mpi = match MpiRanks::init() {
        Ok(mpi) => std::mem::ManuallyDrop::new(mpi),
        Err(error) => fail(&error.to_string()),
    };
    let comm = match mpi.world() {
        Ok(comm) => comm,
        Err(error) => fail(&error.to_string()),
    };
    let done = match cli.counters {
        Width::U32 => on_ranks::<u32>(&cli, &comm),
        Width::U64 => on_ranks::<u64>(&cli, &comm),
    };
    if let Err(error) = done {
        fail_once(comm.as_ref(), &error.to_string());
    }
    drop(comm);
    drop(std::mem::ManuallyDrop::into_inner(mpi));
}

/// Ends this rank. MPI is not ended: after the death of a rank that may wait for ever.
fn fail(error: &str) -> ! {
    eprintln!("orbits-ranks: {error}");
    std::process::exit(2)
}

/// Ends this rank; an error that rank 0 has reported already is not reported again.
fn fail_once(comm: &dyn Comm, error: &str) -> ! {
    if comm.rank() == Rank(0) {
        eprintln!("orbits-ranks: {error}");
        // A rank that does not hear of it reports it, too.
        (1..comm.size()).for_each(|rank| drop(comm.send(Rank(rank), error.as_bytes())));
        std::process::exit(2);
    }
    let until = Instant::now() + REPORTED_WITHIN;
    // The rest of earlier messages comes first.
    while let Ok(Some((_, told))) =
        comm.receive(Some(Rank(0)), until.saturating_duration_since(Instant::now()))
    {
        if told == error.as_bytes() {
            std::process::exit(2);
        }
    }
    fail(error)
}

fn on_ranks<T: Counter + Element>(cli: &Cli, comm: &Arc<dyn Comm>) -> Outcome<()> {
    let (graph, order) = shared_graph(cli, comm.as_ref())?;
    let place = Place::parse(&cli.store)?;
    let name = place.run.ok_or_else(|| treering::Error::usage("give --store as STORE#RUN"))?;
    let options = Options::directory(&place.store, &name).chunk(ChunkSize::new(cli.chunk)?);
    let options = options.ranks(comm.clone()).patience(Duration::from_secs(60));
    let run = Run::open(options)?;
    let mut count = RankCount::<T>::new(graph, comm.clone(), cli.threads)?;
    let schedule = CountSchedule { checkpoints: cli.checkpoints, wait: cli.wait };
    let vertices = count.graph().vertices();
    let first = comm.rank() == Rank(0);
    count_on_ranks(&mut count, run, schedule, &mut |progress| match progress {
        CountProgress::Resumed { step, next, notes } if first => {
            notes.iter().for_each(|note| eprintln!("orbits-ranks: {note}"));
            println!("goes on from checkpoint {step} at vertex {next}");
        }
        CountProgress::Saved { step, next } if first => {
            println!("checkpoint {step}: {next} of {vertices} vertices");
        }
        CountProgress::Failed { step, error } => {
            eprintln!("orbits-ranks: rank {}: checkpoint {step} failed: {error}", comm.rank());
        }
        CountProgress::Resumed { .. } | CountProgress::Saved { .. } => {}
    })?;
    match (&cli.out, count.gather()?) {
        (Some(path), Some(counts)) => write_counts(&counts, &order, path),
        _ => Ok(()),
    }
}

/// The graph on every rank, and its order on rank 0.
fn shared_graph(cli: &Cli, comm: &dyn Comm) -> Outcome<(Graph, Permutation)> {
    let mut order = Permutation::identity(0);
    let graph = share_graph(comm, || {
        let (graph, found) = cli.graph.graph()?;
        order = found;
        Ok(graph)
    })?;
    Ok((graph, order))
}
