//! `treering ingest --watch`: a quiet service for programs that write their own checkpoint files.
//!
//! What was noticed in the folder (`notice`) is put in order by step (`names`, `sets`); a set that is
//! complete becomes a checkpoint, and its originals may be removed (`remove`). What is in the run
//! already is known by the run itself, so the service keeps no state of its own: it may be killed at
//! any moment and started again.

mod names;
mod notice;
mod remove;
mod service;
mod sets;

use crate::files::IngestArguments;
use notice::Event;
use service::Service;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use signal_hook::low_level::emulate_default_handler;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;
use treering::{Error, Place, Result};

#[derive(clap::Args)]
#[command(next_help_heading = "Watching a folder")]
pub struct Arguments {
    /// Take in every complete set of files that is or appears in this folder or below it; place is
    /// STORE#RUN.
    ///
    /// A set is all files of one step, and becomes a checkpoint. Step and rank are read from the path
    /// below the folder: the last number is the rank and the one before it the step, as in
    /// step_000100/rank_3.h5 or ckpt.000100.3.h5; a lone number is the step, as in restart_000100.nc.
    /// Files without a number are left out, and so are links and what is hidden or ends in .tmp,
    /// .temp, .part, .partial or ~.
    ///
    /// A file is finished when it was closed and then did not change for the settle time. A set is
    /// complete when all its files are finished and there are as many as --files says; without that,
    /// as many as the set before had (the first one is a guess). A smaller one waits until the next
    /// step has just as many, and otherwise stays where it is. A set that is in the run already is not
    /// taken again; one that was rewritten with other content is, as soon as all of it is.
    ///
    /// One line is printed for each checkpoint (with --json, one object). SIGTERM or SIGINT ends the
    /// service after the set in hand.
    #[arg(long, value_name = "DIR")]
    pub watch: Option<PathBuf>,
    /// How the step stands in a file's path: a regular expression with one group, as in 'step(\d+)';
    /// files that it does not match are left out. Those that --rank does not match are of rank 0.
    #[arg(long, value_name = "REGEX", requires = "watch")]
    step: Option<String>,
    /// How many files a set has.
    #[arg(long = "files", value_name = "N", requires = "watch", value_parser = at_least_one)]
    count: Option<usize>,
    /// How long a file must stay the same; 0 is for programs that give files their names when they
    /// are whole, and needs --files.
    #[arg(long, value_name = "SECONDS", requires = "watch", default_value = "2", value_parser = seconds)]
    settle: Duration,
    /// Remove originals once the store gives back their very bytes, and step folders that are empty
    /// then.
    #[arg(long, requires = "watch")]
    remove: bool,
    /// Take what is complete after the settle time, and end.
    #[arg(long, requires = "watch")]
    once: bool,
}

fn at_least_one(text: &str) -> std::result::Result<usize, String> {
    match text.parse() {
        Ok(number) if number > 0 => Ok(number),
        _ => Err(format!("{text:?} is no number of files")),
    }
}

fn seconds(text: &str) -> std::result::Result<Duration, String> {
    let seconds = text.parse().ok().and_then(|s| Duration::try_from_secs_f64(s).ok());
    seconds.filter(|s| s.as_secs() < 1 << 32).ok_or_else(|| format!("{text:?} is no time"))
}

/// Watches until it is told to end.
pub fn run(arguments: &IngestArguments, json: bool) -> Result<()> {
    let own = &arguments.watch;
    let folder = own.watch.as_deref().unwrap_or(Path::new("."));
    let place = Place::parse(&arguments.place)?;
    let (Some(run), None) = (place.run.clone(), place.step) else {
        return Err(Error::usage(format!("{place} names no run, or more than that"))
            .hint("write STORE#RUN; the steps are read from the names of the files"));
    };
    if !arguments.files.is_empty() {
        return Err(Error::usage("with --watch, files are found, not given")
            .hint("leave them out, or leave out --watch"));
    }
    if own.remove && !arguments.within.is_empty() {
        return Err(Error::usage(
            "originals of rounded variables are not removed: the store does not hold them",
        )
        .hint("leave out --remove, or --within"));
    }
    if own.settle.is_zero() && own.count.is_none() {
        return Err(Error::usage("without a settle time, nothing tells when a set is complete")
            .hint("say with --files how many files a set has"));
    }
    if is_inside(&place.store, folder) {
        return Err(Error::usage(format!("the store lies in {}", folder.display()))
            .hint("keep it outside of the folder that is watched"));
    }
    let (events, noticed) = channel();
    notice::start(folder, events.clone())?;
    end_on_signals(events)?;
    let mut service = Service::open(arguments, (place, run), folder, json)?;
    match own.once {
        true => service.once(&noticed),
        false => service.serve(&noticed),
    }
}

/// Whether a file or a store, which may not be there yet, lies in a folder.
pub fn is_inside(path: &Path, folder: &Path) -> bool {
    let Ok(folder) = folder.canonicalize() else {
        return false;
    };
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf());
    let real = path.ancestors().find_map(|above| above.canonicalize().ok());
    real.is_some_and(|real| real.starts_with(&folder))
}

/// The first signal ends the service in good order, the second one at once.
fn end_on_signals(events: Sender<Event>) -> Result<()> {
    let failed = |e| Error::io("cannot listen for signals", e);
    let mut signals = Signals::new([SIGINT, SIGTERM]).map_err(failed)?;
    let listen = move || {
        for (count, signal) in signals.forever().enumerate() {
            match count {
                // Nobody is there to be told: the service ends already.
                0 => drop(events.send(Event::Stop)),
                _ => drop(emulate_default_handler(signal)),
            }
        }
    };
    let thread = std::thread::Builder::new().name("treering-signals".into());
    thread.spawn(listen).map_err(failed)?;
    Ok(())
}
