//! Clusters points on the ranks of MPI: `mpirun --with-ft ulfm -n 4 kmeans …`.

use clap::Parser;
use kmeans::{Clustering, Failures, Settings, SurvivingClustering};
use rustix::process::{Signal, getpid, kill_process};
use std::sync::Arc;
use surviving::{SurvivalArguments, on_mpi, play};
use treering::{Comm, Result};

/// Clusters points by k-means on the ranks of MPI. With --replicas, and where the MPI survives deaths (mpirun --with-ft
/// ulfm), the survivors of a death go on with all points and end with the same centres. A run that is in the store
/// already is continued.
#[derive(Parser)]
#[command(name = "kmeans", version, max_term_width = 100)]
struct Cli {
    /// Points for each rank that works.
    #[arg(long, default_value_t = 65_536, value_name = "COUNT")]
    points_per_rank: u64,
    /// Points of all ranks together, in place of --points-per-rank.
    #[arg(long, conflicts_with = "points_per_rank", value_name = "COUNT")]
    points: Option<u64>,
    /// Coordinates of a point.
    #[arg(long, default_value_t = Settings::default().dimensions)]
    dimensions: u32,
    /// Number of centres.
    #[arg(long, default_value_t = Settings::default().centres)]
    centres: u32,
    /// Number of iterations.
    #[arg(long, default_value_t = Settings::default().iterations)]
    iterations: u64,
    /// Seed of the points.
    #[arg(long, default_value_t = Settings::default().seed)]
    seed: u64,
    /// Let ranks kill themselves at random: half of them within this many iterations.
    #[arg(long, value_name = "ITERATIONS")]
    failures_half_life: Option<f64>,
    /// Seed of these failures.
    #[arg(long, default_value_t = 1, value_name = "SEED")]
    failures_seed: u64,
    /// Take a checkpoint after every N iterations, and after the last. 0: none.
    #[arg(long, default_value_t = 0, value_name = "STEPS")]
    every: u64,
    #[command(flatten)]
    survival: SurvivalArguments,
}

fn main() {
    let cli = Cli::parse();
    on_mpi("kmeans", |world| cluster(&cli, &world));
}

fn cluster(cli: &Cli, world: &Arc<dyn Comm>) -> Result<()> {
    let working = world.size().saturating_sub(cli.survival.spares);
    let settings = Settings {
        points: cli.points.unwrap_or(cli.points_per_rank.saturating_mul(working.into())),
        dimensions: cli.dimensions,
        centres: cli.centres,
        seed: cli.seed,
        iterations: cli.iterations,
    };
    let mut program = SurvivingClustering::new(Clustering::new(&settings));
    if let Some(half_life) = cli.failures_half_life {
        let (failures, own) =
            (Failures::with_half_life(half_life, cli.failures_seed)?, world.rank());
        program.before_iteration = Box::new(move |iteration| {
            if failures.hit(own.0, iteration) {
                // Nobody lives to hear that it failed, or everybody goes on.
                let _ = kill_process(getpid(), Signal::KILL);
            }
        });
    }
    let played =
        play(&cli.survival, ("kmeans", cli.every), world, &mut program, |program, comm| {
            program.clustering.digest(comm)
        })?;
    if played.first {
        played.sentences().iter().for_each(|sentence| println!("{sentence}"));
        println!("inertia {:e}", program.clustering.inertia());
    }
    Ok(())
}
