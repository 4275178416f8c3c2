//! Runs a gravitational N-body simulation, with checkpoints if a store is given.

use clap::Parser;
use particles::{Progress, Schedule, Settings, Simulation, run};
use std::path::PathBuf;
use std::process::ExitCode;
use treering::{Options, Result};

/// Simulates gravity between particles in a periodic cube, with checkpoints if a store is given.
#[derive(Parser)]
#[command(name = "particles", version, max_term_width = 100)]
struct Cli {
    /// Particles along each side of the cube.
    #[arg(long, default_value_t = Settings::default().particles_per_side, value_name = "PER_SIDE")]
    particles: u32,
    /// Cells of the mesh along each side of the cube. Default: twice the particles.
    #[arg(long, value_name = "PER_SIDE")]
    mesh: Option<u32>,
    /// The seed of the first state.
    #[arg(long, default_value_t = Settings::default().seed)]
    seed: u64,
    /// The time that a step takes.
    #[arg(long, default_value_t = Settings::default().timestep)]
    timestep: f32,
    /// Number of threads. With one, the result is the same bit for bit every time. Default: all cores.
    #[arg(long)]
    threads: Option<u32>,
    /// The last step.
    #[arg(long, default_value_t = Schedule::default().steps)]
    steps: u64,
    /// Take a checkpoint after every N steps, but not after the last.
    #[arg(long, default_value_t = Schedule::default().every)]
    every: u64,
    /// Where to keep checkpoints. A run that is there already is continued.
    #[arg(long, value_name = "FOLDER")]
    store: Option<PathBuf>,
    /// The name of the run in the store.
    #[arg(long, default_value = "particles", requires = "store")]
    run: String,
}

impl Cli {
    fn settings(&self) -> Settings {
        let default = Settings::default();
        // Small cubes get the coarsest mesh there is.
        let mesh = self.particles.saturating_mul(2).max(Settings::COARSEST_MESH);
        Settings {
            particles_per_side: self.particles,
            mesh: self.mesh.unwrap_or(mesh),
            seed: self.seed,
            timestep: self.timestep,
            threads: self.threads.unwrap_or(default.threads),
        }
    }
}

fn main() -> ExitCode {
    match simulate(&Cli::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("particles: {error}");
            ExitCode::from(2)
        }
    }
}

fn simulate(cli: &Cli) -> Result<()> {
    let mut simulation = Simulation::new(&cli.settings())?;
    println!("{} particles, {} threads", simulation.particles().len(), cli.settings().threads);
    let before = simulation.energy();
    let schedule = Schedule { steps: cli.steps, every: cli.every };
    let options = cli.store.as_ref().map(|store| Options::directory(store, &cli.run));
    let summary = run(&mut simulation, schedule, options, tell)?;
    let after = simulation.energy();
    println!("{} steps, {} checkpoints", summary.steps, summary.checkpoints);
    println!(
        "energy {:.6} (kinetic {:.6}, potential {:.6}), at the start {:.6}",
        after.total(),
        after.kinetic,
        after.potential,
        before.total()
    );
    Ok(())
}

fn tell(progress: Progress) {
    match progress {
        Progress::Resumed { step, notes } => {
            notes.iter().for_each(|note| eprintln!("particles: {note}"));
            println!("goes on from step {step}");
        }
        Progress::Stepped(_) => {}
        Progress::Captured(step) => println!("checkpoint of step {step}"),
        Progress::Failed { step, error } => {
            eprintln!("particles: the save of step {step} failed, and the run goes on: {error}");
        }
    }
}
