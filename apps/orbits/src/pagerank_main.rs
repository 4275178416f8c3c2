//! Scores the vertices of a graph on the ranks of MPI: `mpirun --with-ft ulfm -n 4 pagerank …`.

mod graph_source;

use clap::Parser;
use graph_source::GraphSource;
use orbits::pagerank::{PageRank, PageRankSettings, SurvivingPageRank};
use orbits::ranks::share_graph;
use std::path::PathBuf;
use std::sync::Arc;
use surviving::{SurvivalArguments, on_mpi, play};
use treering::{Comm, Result, write_whole};

/// Scores the vertices of a graph by PageRank on the ranks of MPI. With --replicas, and where the MPI survives deaths
/// (mpirun --with-ft ulfm), the survivors of a death go on with the whole graph and end with the same scores. A run that
/// is in the store already is continued.
#[derive(Parser)]
#[command(name = "pagerank", version, max_term_width = 100)]
struct Cli {
    #[command(flatten)]
    graph: GraphSource,
    /// The part of a score that a vertex gives to its neighbours.
    #[arg(long, default_value_t = PageRankSettings::default().damping)]
    damping: f64,
    /// End when all scores together change by less than this. 0: go on to the last iteration.
    #[arg(long, default_value_t = PageRankSettings::default().tolerance)]
    tolerance: f64,
    /// The last iteration at the latest.
    #[arg(long, default_value_t = PageRankSettings::default().iterations)]
    iterations: u64,
    /// Where to write the scores: a line for each vertex.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Take a checkpoint after every N iterations, and after the last. 0: none.
    #[arg(long, default_value_t = 0, value_name = "STEPS")]
    every: u64,
    #[command(flatten)]
    survival: SurvivalArguments,
}

fn main() {
    let cli = Cli::parse();
    on_mpi("pagerank", |world| score(&cli, &world));
}

fn score(cli: &Cli, world: &Arc<dyn Comm>) -> Result<()> {
    let Cli { damping, tolerance, iterations, .. } = *cli;
    let pages = PageRank::new(PageRankSettings { damping, tolerance, iterations });
    let bring = |comm: &dyn Comm| share_graph(comm, || cli.graph.graph());
    let mut program = SurvivingPageRank::new(pages, bring);
    let run = ("pagerank", cli.every);
    let played = play(&cli.survival, run, world, &mut program, |p, comm| p.pages.digest(comm))?;
    if played.first {
        played.sentences().iter().for_each(|sentence| println!("{sentence}"));
        println!("last change {:e}", program.pages.change());
    }
    match (&cli.out, program.scores.filter(|_| played.first)) {
        (Some(path), Some(scores)) => {
            let lines: String = scores.iter().map(|score| format!("{score:e}\n")).collect();
            write_whole(path, lines.as_bytes())
        }
        _ => Ok(()),
    }
}
