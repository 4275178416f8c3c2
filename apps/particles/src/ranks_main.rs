//! Runs a gravitational N-body simulation on the ranks of MPI: `mpirun -n 4 particles-ranks …`.

use clap::Parser;
use particles::ranks::{
    RankProgress, RankSchedule, RankSimulation, SurvivingSimulation, run_on_ranks,
};
use particles::{Schedule, Settings};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use surviving::{SurvivalArguments, on_mpi, play};
use treering::{Comm, Error, ErrorKind, Options, Rank, Result, write_whole};

/// Simulates gravity between particles in a periodic cube on the ranks of MPI, with checkpoints. A run
/// that is in the store already is continued, on any number of ranks. With --replicas or --spares, and where the MPI
/// survives deaths (mpirun --with-ft ulfm), the survivors of a death go on to the same end.
#[derive(Parser)]
#[command(name = "particles-ranks", version, max_term_width = 100)]
struct Cli {
    /// Particles along each side of the cube.
    #[arg(long, default_value_t = 16, value_name = "PER_SIDE")]
    particles: u32,
    /// Cells of the mesh along each side of the cube.
    #[arg(long, default_value_t = 32, value_name = "PER_SIDE")]
    mesh: u32,
    /// The seed of the first state.
    #[arg(long, default_value_t = Settings::default().seed)]
    seed: u64,
    /// The time that a step takes.
    #[arg(long, default_value_t = Settings::default().timestep)]
    timestep: f32,
    /// Threads of each rank.
    #[arg(long, default_value_t = 1)]
    threads: u32,
    /// The last step.
    #[arg(long, default_value_t = Schedule::default().steps)]
    steps: u64,
    /// Take a checkpoint after every N steps, but not after the last.
    #[arg(long, default_value_t = Schedule::default().every)]
    every: u64,
    /// Wait after every N checkpoints until the newest is durable. 0: only at the end.
    #[arg(long, default_value_t = 0, conflicts_with_all = ["replicas", "spares"])]
    wait: u64,
    /// The name of the run in the store.
    #[arg(long, default_value = "particles")]
    run: String,
    /// Write the state of all ranks to a file there when it is restored, when it is saved, and at
    /// the end: numbers and seven arrays in the order of the numbers.
    #[arg(long, value_name = "FOLDER", conflicts_with_all = ["replicas", "spares"])]
    states: Option<PathBuf>,
    /// Keep a file for each rank there that has its process and what it is doing, for tests.
    #[arg(long, value_name = "FOLDER", conflicts_with_all = ["replicas", "spares"])]
    phases: Option<PathBuf>,
    #[command(flatten)]
    survival: SurvivalArguments,
}

fn main() {
    let cli = Cli::parse();
    on_mpi("particles-ranks", |world| match cli.survival.replicas + cli.survival.spares {
        0 => on_ranks(&cli, world),
        _ => with_replicas(&cli, &world),
    });
}

fn settings(cli: &Cli) -> Settings {
    Settings {
        particles_per_side: cli.particles,
        mesh: cli.mesh,
        seed: cli.seed,
        timestep: cli.timestep,
        threads: cli.threads,
    }
}

/// Simulates on ranks that may die.
fn with_replicas(cli: &Cli, world: &Arc<dyn Comm>) -> Result<()> {
    let mut program = SurvivingSimulation::new(&settings(cli), cli.steps);
    let run = (&cli.run[..], cli.every);
    let played = play(&cli.survival, run, world, &mut program, SurvivingSimulation::digest)?;
    if played.first {
        played.sentences().iter().for_each(|sentence| println!("{sentence}"));
    }
    Ok(())
}

fn on_ranks(cli: &Cli, comm: Arc<dyn Comm>) -> Result<()> {
    let settings = settings(cli);
    let board =
        cli.phases.as_ref().map(|folder| PhaseBoard::new(folder, comm.rank())).transpose()?;
    let mut simulation = RankSimulation::new(&settings, comm.clone())?;
    let schedule = Schedule { steps: cli.steps, every: cli.every };
    let schedule = RankSchedule { schedule, wait: cli.wait };
    let options =
        Options::directory(&cli.survival.store, &cli.run).patience(Duration::from_secs(60));
    let resumed =
        run_on_ranks(
            &mut simulation,
            schedule,
            options,
            &mut |simulation, progress| match progress {
                RankProgress::Begins(phase) => board.iter().try_for_each(|b| b.show(phase.name())),
                RankProgress::Resumed { step, notes } => {
                    notes.iter().for_each(|note| eprintln!("particles-ranks: {note}"));
                    write_state(cli.states.as_deref(), simulation, &format!("restored-{step}"))
                }
                RankProgress::Captured(step) => {
                    write_state(cli.states.as_deref(), simulation, &format!("saved-{step}"))
                }
                RankProgress::Failed { step, error } => {
                    let what = format!("the save of step {step} failed, and the run goes on");
                    eprintln!(
                        "particles-ranks: rank {}: {what}: {error}",
                        simulation.comm().rank()
                    );
                    Ok(())
                }
                RankProgress::Ended(step) => {
                    write_state(cli.states.as_deref(), simulation, &format!("end-{step}"))
                }
            },
        )?;
    let energy = simulation.energy()?;
    if comm.rank() == Rank(0) {
        let begun = resumed.map_or("the start".to_string(), |step| format!("step {step}"));
        let (ranks, steps) = (comm.size(), cli.steps);
        println!("{ranks} ranks, from {begun} to step {steps}, energy {:.6}", energy.total());
    }
    Ok(())
}

/// Writes the state of all ranks to a file; all ranks take part.
fn write_state(folder: Option<&Path>, simulation: &RankSimulation, name: &str) -> Result<()> {
    let Some(folder) = folder else { return Ok(()) };
    match simulation.gather()? {
        Some(all) => {
            let path = folder.join(name);
            // Whole or not at all, whenever a rank is killed.
            write_whole(&path, &all.bytes())
        }
        None => Ok(()),
    }
}

fn cannot_write(path: &Path, error: std::io::Error) -> Error {
    Error::new(ErrorKind::Io, format!("cannot write {}: {error}", path.display()))
}

/// A file with the process of a rank and what it is doing. A write to a file outlives the process, so whoever kills
/// it can read afterwards what it was doing.
struct PhaseBoard {
    path: PathBuf,
    file: File,
}

impl PhaseBoard {
    /// Bytes of each of the two entries.
    const ENTRY: usize = 32;

    fn new(folder: &Path, rank: Rank) -> Result<PhaseBoard> {
        let path = folder.join(rank.to_string());
        let file = File::create(&path).map_err(|error| cannot_write(&path, error))?;
        let board = PhaseBoard { path, file };
        board.write(Self::ENTRY, "start")?;
        // The process comes last: whoever sees it can read the rest.
        board.write(0, &std::process::id().to_string())?;
        Ok(board)
    }

    fn show(&self, phase: &str) -> Result<()> {
        self.write(Self::ENTRY, phase)
    }

    fn write(&self, at: usize, text: &str) -> Result<()> {
        let entry = format!("{text:<width$}", width = Self::ENTRY);
        let written = self.file.write_all_at(entry.as_bytes(), at as u64);
        written.map_err(|error| cannot_write(&self.path, error))
    }
}
