//! The service itself: events in, checkpoints out.

mod take;

use super::names::Naming;
use super::notice::Event;
use super::sets::{Moment, Rule, Sets, Sign, Stamp, Version};
use crate::files::IngestArguments;
use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};
use treering::{
    DirectoryStore, Error, ErrorKind, HeldSet, Holdings, Ingest, IngestSettings, Library, Options,
    Place, Result,
};

/// How long to wait for events when there is nothing to wait for.
const LONG: Duration = Duration::from_secs(3600);

pub struct Service {
    folder: PathBuf,
    place: Place,
    naming: Naming,
    sets: Sets,
    holdings: Holdings,
    options: Options,
    settings: IngestSettings,
    /// Open as long as all goes well: what it knows of the step before is why little is stored.
    ingest: Option<Ingest>,
    settle: Duration,
    remove: bool,
    json: bool,
    began: Instant,
    /// Files that are in the run and may be removed, by step.
    leftovers: BTreeMap<u64, Vec<(String, Stamp)>>,
    /// Files that could not be removed.
    kept: HashSet<(String, Stamp)>,
    /// Nothing is taken before this moment: the store is full.
    resume: Moment,
    /// A file that was left out for its name has been told.
    told_odd: bool,
    /// What was there at the start has been told.
    listed: bool,
    stopped: bool,
}

impl Service {
    pub fn open(
        arguments: &IngestArguments,
        (place, run): (Place, String),
        folder: &Path,
        json: bool,
    ) -> Result<Service> {
        let own = &arguments.watch;
        let naming = Naming::new(own.step.as_deref(), arguments.rank.as_deref())?;
        let (options, settings) = (arguments.options(&place, &run), arguments.settings()?);
        // A service says at once what is wrong with its store. One that only looks leaves no trace.
        let ingest = match own.once {
            true => None,
            false => Some(Ingest::open(options.clone(), settings.clone())?),
        };
        let library = Library::of(std::sync::Arc::new(DirectoryStore::new(&place.store)));
        let (holdings, trouble) = library.holdings(&run)?;
        trouble.iter().for_each(note);
        let rule = Rule { files: own.count, settle: own.settle };
        Ok(Service {
            folder: folder.to_path_buf(),
            place,
            naming,
            sets: Sets::new(rule, holdings.newest_count()),
            holdings,
            options,
            settings,
            ingest,
            settle: own.settle,
            remove: own.remove,
            json,
            began: Instant::now(),
            leftovers: BTreeMap::new(),
            kept: HashSet::new(),
            resume: Moment::ZERO,
            told_odd: false,
            listed: false,
            stopped: false,
        })
    }

    fn now(&self) -> Moment {
        self.began.elapsed()
    }

    /// Takes what is complete until it is told to end.
    pub fn serve(&mut self, noticed: &Receiver<Event>) -> Result<()> {
        while !self.stopped {
            self.remove_leftovers();
            let now = self.now();
            let set = self.sets.complete(now).filter(|_| now >= self.resume);
            let wait = match &set {
                Some(_) => Duration::ZERO,
                None => self.wake(now).map_or(LONG, |moment| moment.saturating_sub(now)),
            };
            if let Some(set) = set
                && let Err(error) = self.take(&set)
            {
                self.trouble(&set, error)?;
            }
            self.hear(noticed, wait)?;
        }
        Ok(())
    }

    /// Takes what comes to rest within the settle time, and ends.
    pub fn once(&mut self, noticed: &Receiver<Event>) -> Result<()> {
        while !self.listed && !self.stopped {
            self.hear(noticed, LONG)?;
        }
        let until = self.now() + self.settle;
        while self.now() < until && !self.stopped {
            self.hear(noticed, until.saturating_sub(self.now()))?;
        }
        self.look_again(&|_| true);
        let (now, mut failed) = (self.now(), None);
        while let Some(set) = self.sets.complete(now).filter(|_| !self.stopped) {
            if let Err(error) = self.take(&set) {
                self.sets.refuse(set.step);
                failed = failed.or_else(|| self.is_still(&set).then_some(error));
            }
            self.hear(noticed, Duration::ZERO)?;
        }
        self.remove_leftovers();
        for (step, files, expected) in self.sets.unfinished() {
            let files = crate::output::count(files as u64, "file");
            note(match expected {
                Some(expected) => format!("step {step} is not taken in: {files} of {expected}"),
                None => format!("step {step} is not taken in: {files}, not at rest yet"),
            });
        }
        failed.map_or(Ok(()), Err)
    }

    fn wake(&self, now: Moment) -> Option<Moment> {
        match now < self.resume {
            true => Some(self.resume),
            false => self.sets.wake(now),
        }
    }

    /// Waits for an event, and hears all that came.
    fn hear(&mut self, noticed: &Receiver<Event>, wait: Duration) -> Result<()> {
        let lost = || Error::new(ErrorKind::Io, "nothing is noticed any more");
        let mut event = match noticed.recv_timeout(wait) {
            Ok(event) => Some(event),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => return Err(lost()),
        };
        while let Some(now) = event {
            self.heard(now)?;
            event = noticed.try_recv().ok();
        }
        Ok(())
    }

    fn heard(&mut self, event: Event) -> Result<()> {
        match event {
            Event::All { files, missed } => {
                if missed {
                    self.sets.missed(self.now());
                }
                self.listed = true;
                self.sets.listed(self.now());
                let there: HashSet<&Path> = files.iter().map(PathBuf::as_path).collect();
                self.look_again(&|file| !there.contains(file));
                files.iter().for_each(|path| self.see(path, Sign::Found));
            }
            Event::Found(path) => self.see(&path, Sign::Found),
            Event::Made(path) => self.see(&path, Sign::Made),
            Event::Written(path) => self.see(&path, Sign::Written),
            Event::Finished(path) => self.see(&path, Sign::Finished),
            Event::FolderGone(path) => self.look_again(&|file| file.starts_with(&path)),
            Event::Note(text) => note(text),
            Event::Lost(error) => return Err(error),
            Event::Stop => self.stopped = true,
        }
        Ok(())
    }

    /// A file was noticed.
    fn see(&mut self, path: &Path, sign: Sign) {
        let odd = "has a name that is no text".to_string();
        let named = path.to_str().ok_or(odd).and_then(|name| Ok((name, self.naming.read(name)?)));
        let (name, named) = match named {
            Ok(named) => named,
            Err(why) if self.told_odd => return drop(why),
            Err(why) => {
                self.told_odd = true;
                return note(format!(
                    "{} {why} and is left out, as will be others; --step and --rank say how names \
                     are read",
                    path.display()
                ));
            }
        };
        let Some(stamp) = Stamp::of(&self.folder.join(path)) else {
            return self.sets.gone(named.step, name);
        };
        if !self.sets.knows(named.step) {
            let versions = self.versions(named.step);
            self.sets.begin(named.step, versions);
        }
        let now = self.now();
        let known = self.sets.seen(named.step, name, stamp, sign, now);
        if known && self.remove && !self.kept.contains(&(name.to_string(), stamp)) {
            let leftovers = self.leftovers.entry(named.step).or_default();
            leftovers.push((name.to_string(), stamp));
        }
    }

    fn look(&mut self, name: &str) {
        self.see(Path::new(name), Sign::Found);
    }

    fn look_again(&mut self, at: &dyn Fn(&Path) -> bool) {
        let names = self.sets.names();
        names.iter().filter(|name| at(Path::new(name))).for_each(|name| self.look(name));
    }

    fn held(&self, step: u64) -> Vec<HeldSet> {
        let (sets, trouble) = self.holdings.of_step(step);
        trouble.iter().for_each(note);
        sets
    }

    fn versions(&self, step: u64) -> Vec<Version> {
        let held = self.held(step);
        let versions = held.iter().enumerate().flat_map(|(age, set)| {
            set.files().map(move |(name, size, time)| (name.to_string(), size, time, age == 0))
        });
        versions.collect()
    }
}

fn note(text: impl std::fmt::Display) {
    eprintln!("treering: {text}");
}
