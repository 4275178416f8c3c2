//! `treering ingest --watch`: arguments, signals and lines of output of the library's watcher.

use crate::files::{IngestArguments, Taken};
use crate::output;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use signal_hook::low_level::emulate_default_handler;
use std::path::{Path, PathBuf};
use std::time::Duration;
use treering::{Error, Place, Result, WatchEvent, WatchSettings, WatchStop, Watcher};

#[derive(clap::Args)]
#[command(next_help_heading = "Watching a folder")]
pub struct Arguments {
    /// Ingest every complete set of files that is or appears in this folder or below it; the place is STORE#RUN.
    ///
    /// A set is all files of one step, and becomes a checkpoint. Step and rank are read from the path
    /// below the folder: the last number is the rank and the one before it the step, as in
    /// step_000100/rank_3.h5 or ckpt.000100.3.h5; a lone number is the step, as in restart_000100.nc. A date, or a
    /// date and a time, is the step, as in wrfout_d01_2024-01-31_06:00:00, and only a number behind it is a rank.
    /// Files without a number are left out, and so are links, hidden files and names that end in .tmp,
    /// .temp, .part, .partial or ~.
    ///
    /// A file is finished when it was closed and then did not change for the settle time. A file that any
    /// process of this machine has open for writing is waited for, also if it was opened before the
    /// service started, and so is a file whose size differs from the one in its header (HDF5, netCDF-4, .npy,
    /// .npz, safetensors; not with --merge files). A wait of several seconds is reported.
    ///
    /// Caution: a file that a program on another machine or of another user has open for writing, or that
    /// is closed and will be opened again to write more, is ingested as it is after the settle time,
    /// unless its format shows that it is incomplete. Give a settle time longer than any pause of the program,
    /// or let the program rename complete files into place.
    ///
    /// A set is complete when all its files are finished and their number is that of --files, or by default
    /// that of the set before (for the first set, this is a guess). A smaller one waits until the next
    /// step has the same number, and is otherwise not ingested; it is reported after a minute, and when the service
    /// ends. The ranks of a set are decided from all of its files, as without --watch. A set that is in the run already is not
    /// ingested again, unless all of it was rewritten with other content.
    ///
    /// One line is printed for each checkpoint (with --json, one object). SIGTERM or SIGINT ends the
    /// service after the set in hand.
    #[arg(long, value_name = "DIR")]
    pub watch: Option<PathBuf>,
    /// Position of the step in a file's path: a regular expression with groups, as in 'step(\d+)' or
    /// '(\d{4})-(\d\d)-(\d\d)', which are read as one number. Files that do not match are left out. A set with a
    /// file that --rank-pattern does not match is not ingested.
    #[arg(long, value_name = "REGEX", requires = "watch")]
    step_pattern: Option<String>,
    /// Number of files of a complete set. Default: that of the set before.
    #[arg(long = "files", value_name = "N", requires = "watch", value_parser = at_least_one)]
    count: Option<usize>,
    /// Time for which a file must not change before it is ingested. 0 is for programs that rename complete files into
    /// place, and needs --files.
    #[arg(long, value_name = "SECONDS", requires = "watch", default_value = "2", value_parser = seconds)]
    settle: Duration,
    /// Remove an original once the store has been shown to export its exact bytes, and step folders that are then
    /// empty.
    #[arg(long, requires = "watch")]
    remove: bool,
    /// Ingest the sets that are complete after the settle time, and exit.
    #[arg(long, requires = "watch")]
    once: bool,
}

fn at_least_one(text: &str) -> std::result::Result<usize, String> {
    match text.parse() {
        Ok(number) if number > 0 => Ok(number),
        _ => Err(format!("invalid number of files {text:?}: expected a whole number > 0")),
    }
}

fn seconds(text: &str) -> std::result::Result<Duration, String> {
    let seconds = text.parse().ok().and_then(|s| Duration::try_from_secs_f64(s).ok());
    seconds
        .filter(|s| s.as_secs() < 1 << 32)
        .ok_or_else(|| format!("invalid time {text:?}: expected seconds, as in 2 or 0.5"))
}

/// Watches until a signal ends it.
pub fn run(arguments: &IngestArguments, json: bool) -> Result<()> {
    let settings = settings(arguments)?;
    if !arguments.files.is_empty() {
        return Err(Error::usage(
            "files were given together with --watch, which finds files itself",
        )
        .hint("leave out the files, or --watch"));
    }
    let mut watcher = Watcher::open(settings, move |event| print(event, json))?;
    end_on_signals(watcher.stopper())?;
    match arguments.watch.once {
        true => watcher.once(),
        false => watcher.serve(),
    }
}

fn settings(arguments: &IngestArguments) -> Result<WatchSettings> {
    let own = &arguments.watch;
    Ok(WatchSettings {
        rules: arguments.rules(own.step_pattern.as_deref())?,
        files: own.count,
        settle: own.settle,
        remove: own.remove,
        ingest: arguments.settings()?,
        encoding: arguments.encoding(),
        labels: arguments.labels()?,
        ..WatchSettings::new(
            Place::parse(&arguments.place)?,
            own.watch.as_deref().unwrap_or(Path::new(".")),
        )
    })
}

/// Checkpoints go to standard output, everything else is a note.
fn print(event: WatchEvent, json: bool) {
    let WatchEvent::Taken { place, files, bytes, manifest } = event else {
        return output::complain(event.to_string());
    };
    let taken = Taken { place: &place.to_string(), files, size: bytes, manifest };
    match json {
        true => output::json_line(&taken.json()),
        false => output::line(taken.line()),
    }
}

/// The first signal ends the service in good order, the second one at once.
fn end_on_signals(watcher: WatchStop) -> Result<()> {
    let failed = |e| Error::io("cannot listen for signals", e);
    let mut signals = Signals::new([SIGINT, SIGTERM]).map_err(failed)?;
    let listen = move || {
        for (count, signal) in signals.forever().enumerate() {
            match count {
                0 => watcher.stop(),
                _ => drop(emulate_default_handler(signal)),
            }
        }
    };
    let thread = std::thread::Builder::new().name("treering-signals".into());
    thread.spawn(listen).map_err(failed)?;
    Ok(())
}
