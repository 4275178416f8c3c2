//! The command `treering`: translation only; everything it does, the library does.

mod bench;
mod commands;
mod compare;
mod demo;
mod files;
mod loss;
mod output;
mod ranks;
mod watch;

use clap::{CommandFactory, Parser, Subcommand};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use treering::{Error, Keep};

/// Keeps the states that a simulation passes through: stores what is new, gives any state back, and
/// tells where two runs part.
///
/// A PLACE is STORE, STORE#RUN or STORE#RUN@STEP; what is compared may also be a file or a folder.
#[derive(Parser)]
#[command(name = "treering", version, max_term_width = 100)]
struct Cli {
    /// Print one JSON document instead of text.
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// The tour: a simulation is killed and restarted; two runs of another one part, and are compared.
    Demo {
        /// Keep the demo's store in this folder instead of removing it.
        #[arg(long, value_name = "DIR")]
        keep: Option<PathBuf>,
    },
    /// Lists runs, or the checkpoints of a run.
    Ls {
        /// STORE or STORE#RUN.
        #[arg(default_value = ".")]
        place: String,
        /// Also list checkpoints of abandoned branches.
        #[arg(long)]
        all: bool,
    },
    /// Shows a checkpoint and its variables.
    Show {
        /// STORE#RUN (the newest) or STORE#RUN@STEP.
        place: String,
    },
    /// Reads and checks every byte; under mpirun, each rank a part (if built with the feature mpi).
    Verify {
        /// STORE or STORE#RUN.
        place: String,
        /// Restore every checkpoint in memory, not only the newest of each run.
        #[arg(long)]
        deep: bool,
    },
    /// Removes old checkpoints; what kept ones refer to stays.
    Prune {
        /// STORE#RUN.
        place: String,
        /// Keep the newest N; always also one of a second epoch, which shares no bytes with them.
        #[arg(long, value_name = "N")]
        keep_last: u64,
        /// Also keep every checkpoint whose step is a multiple of N.
        #[arg(long, value_name = "N")]
        keep_every: Option<u64>,
        /// Give up entries of the log that are damaged; else they keep everything from being removed.
        #[arg(long)]
        forget_damaged: bool,
        /// Only say what would be removed.
        #[arg(long)]
        dry_run: bool,
    },
    /// Removes the checkpoints of one step, or a whole run.
    Rm {
        /// STORE#RUN@STEP, or STORE#RUN with --whole-run.
        place: String,
        /// Remove the run with all its checkpoints.
        #[arg(long)]
        whole_run: bool,
        /// Only say what would be removed.
        #[arg(long)]
        dry_run: bool,
    },
    /// Puts the many small files of closed epochs into a few bundles; beside a running program, too.
    Compact {
        /// STORE (every run) or STORE#RUN.
        place: String,
        /// Only say what would be done.
        #[arg(long)]
        dry_run: bool,
    },
    /// After a job died: brings what only its nodes' stores hold to the shared store.
    Drain {
        /// STORE#RUN: the shared store, and the run.
        place: String,
        /// The stores of nodes: all of them, or one at a time.
        #[arg(required = true, value_name = "NODE_STORE")]
        nodes: Vec<PathBuf>,
        /// Only say what would be brought.
        #[arg(long)]
        dry_run: bool,
    },
    /// Asks a running program to stop after its next checkpoint, which goes to the shared store.
    Halt {
        /// STORE#RUN.
        place: String,
        /// Take the request back.
        #[arg(long)]
        cancel: bool,
    },
    /// Begins a new run with a checkpoint of another one; no data is copied.
    Branch {
        /// STORE#RUN (the newest) or STORE#RUN@STEP.
        place: String,
        /// The name of the new run.
        new: String,
    },
    /// Takes in checkpoint files that a program wrote itself, as the checkpoint of a step; with
    /// --watch, every set of files that appears in a folder.
    Ingest(files::IngestArguments),
    /// Exports ingested files, byte for byte; or arrays of a checkpoint as .npy, HDF5 or Zarr (--as).
    Export(files::ExportArguments),
    /// Tells where two runs, checkpoints or files part within a bound: exit code 0 equal, 1 different, 2 undecided or
    /// trouble. Under mpirun, each rank compares a part (if built with the feature mpi).
    ///
    /// Everything that can be compared is compared, and the rest is listed with the reason. Values that cannot be
    /// decoded are equal if their stored bytes are the same, else undecided. Types of one kind and different widths,
    /// such as f32 and f64 or i32 and i64, are compared by value in the wider type, with a note.
    Compare(compare::CompareOptions),
    /// Makes trees and sketches for data that has none, so that comparing it reads little.
    Tree(compare::TreeArguments),
    /// A small file of expected trees, for continuous integration.
    Golden {
        #[command(subcommand)]
        command: compare::GoldenCommand,
    },
    /// Computes how likely random failures destroy all replicas of some data, and how many failures are survived.
    Loss(loss::LossArguments),
    /// Runs a benchmark; prints ratios to limits measured in the same run.
    Bench {
        /// Which one.
        #[arg(value_enum)]
        name: bench::Name,
        #[command(flatten)]
        options: bench::Options,
    },
    /// Prints a script that completes commands and options in a shell.
    Completions {
        /// The shell.
        #[arg(value_enum)]
        shell: clap_complete::Shell,
    },
    /// Writes man pages to a folder: treering.1, and one for each command.
    Man {
        /// The folder, as ~/.local/share/man/man1.
        folder: PathBuf,
    },
    /// The simulation that the demo runs as a child process.
    #[command(hide = true)]
    DemoSimulation(demo::simulation::Arguments),
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    match carry_out(cli) {
        Ok(code) => code,
        Err(error) => {
            output::complain(error.to_string());
            ExitCode::from(2)
        }
    }
}

/// Prints a script that completes commands and options.
fn completions(shell: clap_complete::Shell) {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "treering", &mut script);
    output::line(String::from_utf8_lossy(&script).trim_end());
}

/// Writes man pages to a folder.
fn man(folder: &Path) -> treering::Result<()> {
    let failed = |e| Error::io(format!("cannot write man pages to {}", folder.display()), e);
    std::fs::create_dir_all(folder).map_err(failed)?;
    clap_mangen::generate_to(Cli::command(), folder).map_err(failed)?;
    output::line(format!("man pages are in {}", folder.display()));
    Ok(())
}

fn carry_out(cli: Cli) -> treering::Result<ExitCode> {
    let json = cli.json;
    let done = match cli.command {
        Command::Compare(options) => return compare::run(&options, json),
        Command::Golden { command } => return compare::golden(&command, json),
        Command::Tree(arguments) => compare::tree(&arguments, json),
        Command::Ingest(arguments) => files::ingest(&arguments, json),
        Command::Export(arguments) => files::export(&arguments, json),
        Command::Demo { keep } => demo::run(keep, json),
        Command::Ls { place, all } => commands::ls(&place, all, json),
        Command::Show { place } => commands::show(&place, json),
        Command::Verify { place, deep } => commands::verify(&place, deep, json),
        Command::Prune { place, keep_last, keep_every, forget_damaged, dry_run } => {
            let keep = Keep { last: keep_last, every: keep_every, forget_damaged };
            commands::prune(&place, keep, dry_run, json)
        }
        Command::Rm { place, whole_run, dry_run } => {
            commands::remove(&place, whole_run, dry_run, json)
        }
        Command::Compact { place, dry_run } => commands::compact(&place, dry_run, json),
        Command::Drain { place, nodes, dry_run } => commands::drain(&place, &nodes, dry_run, json),
        Command::Halt { place, cancel } => commands::halt(&place, cancel, json),
        Command::Branch { place, new } => commands::branch(&place, &new, json),
        Command::Loss(arguments) => loss::run(&arguments, json),
        Command::Bench { name, options } => bench::run(name, &options, json),
        Command::Completions { shell } => {
            completions(shell);
            Ok(())
        }
        Command::Man { folder } => man(&folder),
        Command::DemoSimulation(arguments) => demo::simulation::run(&arguments),
    };
    done.map(|()| ExitCode::SUCCESS)
}
