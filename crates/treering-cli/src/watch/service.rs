//! The service itself: events in, checkpoints out.

use super::names::Naming;
use super::notice::Event;
use super::remove::{Fate, remove, remove_folders};
use super::sets::{Moment, Rule, Set, Sets, Sign, Stamp};
use crate::files::{IngestArguments, Taken};
use crate::output;
use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};
use treering::format::Manifest;
use treering::library::{HeldSet, Holdings, Place};
use treering::store::DirectoryStore;
use treering::{Error, ErrorKind, Ingest, IngestSettings, Library, Options, RankFile, Result};

/// The pause after trouble, at first and at most.
const PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
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
    /// Nothing is taken before this moment; and how long the next pause is.
    resume: Moment,
    pause: Duration,
    /// A file that was left out for its name has been told.
    told_odd: bool,
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
        let (options, settings) = (arguments.options(&place, &run), arguments.settings());
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
            pause: PAUSE,
            told_odd: false,
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
            if let Some(set) = set {
                match self.take(&set) {
                    Ok(()) => self.pause = PAUSE,
                    Err(error) => self.trouble(&set, error)?,
                }
            }
            self.hear(noticed, wait)?;
        }
        Ok(())
    }

    /// Takes what comes to rest within the settle time, and ends.
    pub fn once(&mut self, noticed: &Receiver<Event>) -> Result<()> {
        // The first event tells everything that is there.
        self.hear(noticed, LONG)?;
        let until = self.now() + self.settle;
        while self.now() < until && !self.stopped {
            self.hear(noticed, until - self.now())?;
        }
        self.look_again(&|_| true);
        let now = self.now();
        while let Some(set) = self.sets.complete(now).filter(|_| !self.stopped) {
            self.take(&set)?;
            self.hear(noticed, Duration::ZERO)?;
        }
        self.remove_leftovers();
        Ok(())
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
                let there: HashSet<&Path> = files.iter().map(PathBuf::as_path).collect();
                self.look_again(&|file| !there.contains(file));
                files.iter().for_each(|path| self.see(path, Some(Sign::Found)));
            }
            Event::Found(path) => self.see(&path, Some(Sign::Found)),
            Event::Made(path) => self.see(&path, None),
            Event::Written(path) => self.see(&path, Some(Sign::Written)),
            Event::Finished(path) => self.see(&path, Some(Sign::Finished)),
            Event::FolderGone(path) => self.look_again(&|file| file.starts_with(&path)),
            Event::Note(text) => note(text),
            Event::Lost(error) => return Err(error),
            Event::Stop => self.stopped = true,
        }
        Ok(())
    }

    /// A file was noticed. One that was just made is being written if it is empty: else it may be a
    /// second name of a whole one.
    fn see(&mut self, path: &Path, sign: Option<Sign>) {
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
        let made = if stamp.size == 0 { Sign::Written } else { Sign::Found };
        let now = self.now();
        let known = self.sets.seen(named.step, name, stamp, sign.unwrap_or(made), now);
        if known && self.remove && !self.kept.contains(&(name.to_string(), stamp)) {
            let leftovers = self.leftovers.entry(named.step).or_default();
            leftovers.push((name.to_string(), stamp));
        }
    }

    fn look(&mut self, name: &str) {
        self.see(Path::new(name), Some(Sign::Found));
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

    fn versions(&self, step: u64) -> Vec<super::sets::Version> {
        let held = self.held(step);
        let versions = held.iter().enumerate().flat_map(|(age, set)| {
            set.files().map(move |(name, size, time)| (name.to_string(), size, time, age == 0))
        });
        versions.collect()
    }

    /// Takes a set in, unless it is in the run or no longer what it was.
    fn take(&mut self, set: &Set) -> Result<()> {
        set.files.keys().for_each(|name| self.look(name));
        if self.sets.complete_at(set.step, self.now()).as_ref() != Some(set) {
            return Ok(());
        }
        if !self.is_held(set) {
            let files = self.rank_files(set);
            let manifest = self.ingest(set, &files)?;
            self.tell(set, &files, &manifest);
            self.holdings.add(&manifest);
        }
        for short in self.sets.taken(set, self.now()) {
            note(format!(
                "step {} has {} where {} were expected, and a later step is complete: it stays \
                 where it is until the rest comes",
                short.step,
                output::count(short.files as u64, "file"),
                short.expected
            ));
        }
        if self.remove {
            let files = set.files.iter().map(|(name, stamp)| (name.clone(), *stamp));
            self.leftovers.entry(set.step).or_default().extend(files);
            self.remove_leftovers();
        }
        Ok(())
    }

    /// Whether the newest checkpoint of the step gives back just these files.
    fn is_held(&self, set: &Set) -> bool {
        let held = self.held(set.step);
        let Some(newest) = held.first() else {
            return false;
        };
        let mut names: Vec<&str> = newest.files().map(|(name, ..)| name).collect();
        names.sort_unstable();
        // What cannot be read back is taken again.
        let same = |name: &str| newest.gives(name, &self.folder.join(name)).unwrap_or(false);
        names.iter().copied().eq(set.files.keys()) && names.into_iter().all(same)
    }

    fn rank_files(&self, set: &Set) -> Vec<RankFile> {
        let file = |name: &String| {
            let named = self.naming.read(name).ok()?;
            let path = self.folder.join(name);
            Some(RankFile { rank: named.rank, path, name: name.clone(), like: named.like })
        };
        set.files.keys().filter_map(file).collect()
    }

    fn ingest(&mut self, set: &Set, files: &[RankFile]) -> Result<Manifest> {
        let mut ingest = match self.ingest.take() {
            Some(ingest) => ingest,
            // Somebody who prunes may have the run for a while: that passes.
            None => Ingest::open(self.options.clone(), self.settings.clone())
                .map_err(|e| Error::new(ErrorKind::Io, e.to_string()))?,
        };
        let still = || match is_still(&self.folder, set) {
            true => Ok(()),
            false => Err(Error::new(ErrorKind::Busy, "a file changed while it was read")),
        };
        let manifest = ingest.take_if(set.step, files, &|_, _| {}, &still)?;
        // One that failed is not kept: opening the run again removes what it left behind.
        self.ingest = Some(ingest);
        Ok(manifest)
    }

    fn tell(&self, set: &Set, files: &[RankFile], manifest: &Manifest) {
        let place = Place { step: Some(set.step), ..self.place.clone() }.to_string();
        let size = set.files.values().map(|stamp| stamp.size).sum();
        let taken = Taken { place: &place, files, size, manifest };
        match self.json {
            true => output::json_line(&taken.json()),
            false => output::line(taken.line()),
        }
    }

    /// What cannot be helped ends the service; a set that cannot be taken stays; the rest is tried
    /// again, later and later.
    fn trouble(&mut self, set: &Set, error: Error) -> Result<()> {
        if !is_still(&self.folder, set) {
            set.files.keys().for_each(|name| self.look(name));
            return Ok(());
        }
        match error.kind() {
            ErrorKind::Busy => return Err(error),
            ErrorKind::Usage | ErrorKind::Limit | ErrorKind::Mismatch => {
                self.sets.refuse(set.step);
                note(format!("step {} stays where it is: {error}", set.step));
            }
            _ => {
                self.resume = self.now() + self.pause;
                let pause = self.pause.as_secs();
                note(format!("step {} is tried again in {pause} s: {error}", set.step));
                self.pause = (self.pause * 2).min(LONGEST_PAUSE);
            }
        }
        Ok(())
    }

    fn remove_leftovers(&mut self) {
        for (step, mut files) in std::mem::take(&mut self.leftovers) {
            files.sort_by(|a, b| a.0.cmp(&b.0));
            files.dedup();
            let held = self.held(step);
            for (name, stamp, fate) in remove(&self.folder, &files, &held) {
                match fate {
                    Ok(Fate::Removed) => {
                        self.sets.gone(step, &name);
                        let named = self.naming.read(&name);
                        let end = named.map_or(usize::MAX, |named| named.step_folder);
                        remove_folders(&self.folder, &name, end);
                    }
                    Ok(Fate::Changed) => self.look(&name),
                    Ok(Fate::NotHeld) => self.sets.mistaken(step, &name, stamp, self.now()),
                    Err(error) => {
                        note(format!("{name} is not removed: {error}"));
                        self.kept.insert((name, stamp));
                    }
                }
            }
        }
    }
}

fn is_still(folder: &Path, set: &Set) -> bool {
    set.files.iter().all(|(name, stamp)| Stamp::of(&folder.join(name)) == Some(*stamp))
}

fn note(text: impl std::fmt::Display) {
    eprintln!("treering: {text}");
}
