//! The command `treering`: translation only; everything it does, the library does.

mod bench;
mod commands;
mod compare;
mod demo;
mod files;
mod listing;
mod loss;
mod output;
mod ranks;
mod watch;

use clap::{CommandFactory, Parser, Subcommand};
use rustix::process::{Resource, getrlimit, setrlimit};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use treering::{Error, ErrorKind, Keep};

const INGEST_EXAMPLES: &str = "Examples:
  treering ingest store#sim@100 out/step_100/          one checkpoint of the files of a folder
  treering ingest store#sim@100 state.raw --type f64   a raw file of numbers
  treering ingest --watch out/ store#sim               every set of files that appears in out/";
const EXPORT_EXAMPLES: &str = "Examples:
  treering export store#sim@100 --to restart/          the ingested files, byte for byte
  treering export store#rod@49 --to arrays/ --as npy   the arrays that a program saved";
const COMPARE_EXAMPLES: &str = "Examples:
  treering compare store#monday store#tuesday          two runs, all steps that both have
  treering compare a.npy b.npy --abs 1e-8 --rel 1e-5   two files, as numpy.allclose
  treering compare old/ new/ --report report.html      two folders, and a page with figures
  treering compare a.h5:/g/x b.h5:/g/y                 two arrays of files
  treering compare a.f64 b.f64 --type f64              raw files of numbers";
const GOLDEN_EXAMPLES: &str = "Examples:
  treering golden record result.npy --abs 1e-6 -o expected.tree
  treering golden check expected.tree result.npy       exit code 0: as expected";

/// Checkpoints of simulations: stores only what has changed, restores any state, and reports where two runs diverge.
///
/// A PLACE is STORE (a folder), STORE#RUN or STORE#RUN@STEP. Files and folders of files can be compared, too.
/// `treering demo` is a short tour. Exit codes: 0 done or equal, 1 different, 2 trouble or undecided.
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
    /// Runs a tour: kills and restarts a simulation, then compares two runs that diverge.
    Demo {
        /// Keep the stores of the demo, and its report page, in this new folder. Default: removed at the end.
        #[arg(long, value_name = "DIR")]
        keep: Option<PathBuf>,
    },
    /// Lists the runs of a store, or the checkpoints of a run.
    Ls(listing::LsArguments),
    /// Shows a checkpoint and its variables, or lists the content of a file or the trees of a tree file.
    Show {
        /// STORE#RUN (its newest checkpoint), STORE#RUN@STEP, a file of any format, FILE:NAME (an object of it), or a tree
        /// file.
        place: String,
    },
    /// Reads and checks every byte of a store.
    ///
    /// Damage is listed, and the exit code is then 2. Under mpirun, each rank checks a part (if built with the feature mpi).
    Verify {
        /// STORE or STORE#RUN.
        place: String,
        /// Restore every checkpoint in memory, not only the newest of each run.
        #[arg(long)]
        deep: bool,
    },
    /// Removes old checkpoints of a run, or of all runs of a store; data that kept checkpoints refer to stays.
    ///
    /// Of a run, --keep-last says how many stay. Of a store, --store-limit says how many bytes all runs may take: the oldest
    /// checkpoints go first, by the time of their commit, whichever runs they are of. Of each run at least the newest one
    /// stays.
    Prune {
        /// STORE#RUN with --keep-last, or STORE with --store-limit.
        place: String,
        /// Keep the newest N checkpoints. One checkpoint of an older epoch, which shares no stored bytes with the newest, is
        /// always kept as well.
        #[arg(long, value_name = "N")]
        keep_last: Option<u64>,
        /// Also keep every checkpoint whose step is a multiple of N. Default: none.
        #[arg(long, value_name = "N")]
        keep_every: Option<u64>,
        /// Then also remove the oldest of the kept checkpoints until the run takes no more than SIZE, as in 10GiB. The
        /// checkpoints that --keep-last 1 keeps always stay. Default: no limit.
        #[arg(long, value_name = "SIZE", value_parser = output::parse_bytes)]
        limit: Option<u64>,
        /// Then also remove the oldest of the kept checkpoints until all runs of the store together take no more than SIZE, as
        /// in 2TiB. Of STORE#RUN other runs stay as they are. Default: no limit.
        #[arg(long, value_name = "SIZE", value_parser = output::parse_bytes)]
        store_limit: Option<u64>,
        /// Drop damaged log entries. Caution: their checkpoints are lost. Default: prune removes nothing while an entry
        /// cannot be read.
        #[arg(long)]
        forget_damaged: bool,
        /// Only print what would be removed.
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
        /// Only print what would be removed.
        #[arg(long)]
        dry_run: bool,
    },
    /// Copies a run, or checkpoints of it, to another store or another name.
    ///
    /// Every byte is verified on the way, and the copy appears when it is complete.
    Cp(commands::CopyArguments),
    /// Renames a run.
    ///
    /// Copies its data within the store, reads the copy back, and removes the original.
    Mv {
        /// STORE#RUN.
        place: String,
        /// New name of the run.
        new: String,
    },
    /// Merges the many small files of closed epochs into a few bundles.
    ///
    /// A checkpoint takes two small files or more; a bundle of many of them takes two. A program may write to the run
    /// meanwhile.
    Compact {
        /// STORE (every run) or STORE#RUN.
        place: String,
        /// Only print what would be done.
        #[arg(long)]
        dry_run: bool,
    },
    /// Copies checkpoints that only the stores of nodes hold to the shared store, after a job died.
    Drain {
        /// STORE#RUN in the shared store.
        place: String,
        /// Folders of the stores of the nodes: all of them at once, or one call after another.
        #[arg(required = true, value_name = "NODE_STORE")]
        nodes: Vec<PathBuf>,
        /// Only print what would be copied.
        #[arg(long)]
        dry_run: bool,
    },
    /// Asks a running program to stop after its next checkpoint, which goes to the shared store.
    Halt {
        /// STORE#RUN.
        place: String,
        /// Withdraw the request.
        #[arg(long)]
        cancel: bool,
    },
    /// Begins a new run from a checkpoint of another one, without copying data.
    Branch {
        /// STORE#RUN (its newest checkpoint) or STORE#RUN@STEP.
        place: String,
        /// Name of the new run.
        new: String,
    },
    /// Ingests checkpoint files that a program wrote itself.
    ///
    /// The files become the checkpoint of a step. With --watch, every set of files that appears in a folder becomes one.
    #[command(after_help = INGEST_EXAMPLES)]
    Ingest(files::IngestArguments),
    /// Exports ingested files, byte for byte, or the arrays of a checkpoint as .npy, HDF5 or Zarr (--as).
    #[command(after_help = EXPORT_EXAMPLES)]
    Export(files::ExportArguments),
    /// Reports where two runs, checkpoints, folders or files diverge beyond a bound.
    ///
    /// Exit code: 0 equal, 1 different, 2 undecided or trouble. Under mpirun, each rank compares a part (if built with the
    /// feature mpi).
    ///
    /// Items that cannot be compared are listed with the reason, and everything else is compared. Values that cannot be
    /// decoded are equal if their stored bytes are the same, otherwise undecided. Types of one kind and different widths,
    /// such as f32 and f64 or i32 and i64, are compared by value in the wider type, with a note.
    #[command(after_help = COMPARE_EXAMPLES)]
    Compare(compare::CompareOptions),
    /// Makes trees for data that has none, so that comparing it reads a small part of it.
    ///
    /// The trees of a file are written beside it, as FILE.tree; those of a run are kept in its store, as the run RUN+trees.
    /// At least one bound is needed; a tree serves its own bound and larger ones.
    Tree(compare::TreeArguments),
    /// Records expected results as a small file, and checks results against it.
    #[command(after_help = GOLDEN_EXAMPLES)]
    Golden {
        #[command(subcommand)]
        command: compare::GoldenCommand,
    },
    /// Computes how likely random failures destroy all replicas of some data.
    Loss(loss::LossArguments),
    /// Runs a benchmark and prints ratios to limits measured in the same run.
    Bench {
        /// Name of the benchmark.
        #[arg(value_enum)]
        name: bench::Name,
        #[command(flatten)]
        options: bench::Options,
    },
    /// Prints a shell completion script, as in: source <(treering completions bash).
    Completions {
        /// Shell that the script is for.
        #[arg(value_enum)]
        shell: clap_complete::Shell,
    },
    /// Writes man pages to a folder: treering.1 and one for each command.
    Man {
        /// Folder for the pages, such as ~/.local/share/man/man1. It is made if it does not exist.
        folder: PathBuf,
    },
    /// The simulation that the demo runs as a child process.
    #[command(hide = true)]
    DemoSimulation(demo::simulation::Arguments),
}

fn main() -> ExitCode {
    let cli = Cli::try_parse().unwrap_or_else(|error| refuse(&error));
    let json = cli.json;
    match prepare().and_then(|()| carry_out(cli)) {
        Ok(code) => code,
        Err(error) => {
            output::fail(&error, json);
            ExitCode::from(2)
        }
    }
}

/// Ends the command that was called with wrong arguments, or asked for help.
fn refuse(error: &clap::Error) -> ! {
    let mut options = std::env::args_os().skip(1).take_while(|argument| argument != "--");
    if error.use_stderr() && options.any(|argument| argument == "--json") {
        let text = error.to_string();
        let what = text.lines().next().unwrap_or_default();
        output::json_line(&serde_json::json!({
            "error": what.strip_prefix("error: ").unwrap_or(what),
            "kind": format!("{:?}", ErrorKind::Usage),
            "code": ErrorKind::Usage.code(),
            "hint": "treering --help, or treering COMMAND --help, lists what there is",
        }));
    }
    error.exit()
}

/// Raises the limit of open files as far as the system permits, for folders of thousands of files, and starts a thread for
/// each core, or at least one.
fn prepare() -> treering::Result<()> {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    // Where this is not permitted, the limit stays as it was.
    let _ = setrlimit(Resource::Nofile, limit);
    // The pool of all can be made only once, so another one shows what there is room for.
    let threads = |count| rayon::ThreadPoolBuilder::new().num_threads(count);
    let count = if threads(0).build().is_ok() { 0 } else { 1 };
    threads(count).build_global().map_err(|error| {
        let error = std::io::Error::other(error);
        Error::io("the system gives this command no thread", error)
            .hint("end other programs of this user, or raise the limit of processes (ulimit -u)")
    })
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
        Command::Ls(arguments) => listing::ls(&arguments, json),
        Command::Show { place } => listing::show(&place, json),
        Command::Verify { place, deep } => commands::verify(&place, deep, json),
        Command::Prune {
            place,
            keep_last: last,
            keep_every: every,
            limit,
            store_limit,
            forget_damaged,
            dry_run,
        } => {
            let keep = Keep { last: last.unwrap_or(0), every, limit, store_limit, forget_damaged };
            match (last, store_limit) {
                (Some(_), _) => commands::prune(&place, keep, dry_run, json),
                (None, Some(limit)) if keep == Keep { store_limit, ..Keep::newest(0) } => {
                    commands::prune_store(&place, limit, dry_run, json)
                }
                (None, _) => Err(Error::usage("it is not said what stays")
                    .hint("give STORE#RUN with --keep-last, or STORE with --store-limit alone")),
            }
        }
        Command::Rm { place, whole_run, dry_run } => {
            commands::remove(&place, whole_run, dry_run, json)
        }
        Command::Cp(arguments) => commands::copy(&arguments, json),
        Command::Mv { place, new } => commands::rename(&place, &new, json),
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::{BTreeMap, BTreeSet};

    /// The long options of a command and of those below it, with what stands for their values; none for a flag.
    fn options(command: &clap::Command, found: &mut BTreeMap<String, BTreeSet<Vec<String>>>) {
        for argument in command.get_arguments() {
            let Some(long) = argument.get_long() else { continue };
            assert!(argument.get_all_aliases().is_none(), "--{long} has a second name");
            let names = argument.get_value_names().unwrap_or_default();
            let takes = argument.get_action().takes_values();
            let names = names.iter().filter(|_| takes).map(ToString::to_string).collect();
            found.entry(long.to_string()).or_default().insert(names);
        }
        command.get_subcommands().for_each(|below| options(below, found));
    }

    #[test]
    fn an_option_has_one_meaning_in_all_commands() {
        let mut command = Cli::command();
        command.build();
        let mut found = BTreeMap::new();
        options(&command, &mut found);
        assert!(found.len() > 60, "{}", found.len());
        found.retain(|_, values| values.len() > 1);
        assert!(found.is_empty(), "{found:#?}");
    }
}
