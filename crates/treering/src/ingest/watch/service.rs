//! The watcher itself: changes of the folder in, checkpoints out.

mod take;

use super::notice::{self, Noticed};
use super::sets::{FileSign, FileStamp, HeldVersion, Moment, SetRule, Sets};
use super::writers::{Probe, ThisMachine};
use super::{WatchEvent, WatchSettings};
use crate::error::{Error, ErrorKind, Result};
use crate::format::{LogEntry, Names, WriterId};
use crate::ingest::Ingest;
use crate::library::{HeldSet, Holdings, Library};
use crate::run::Options;
use crate::store::{DirectoryStore, Store, read_small};
use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

/// Whether a store has the opening of a writer.
fn has_opening(store: &dyn Store, run: &str, writer: WriterId) -> Result<bool> {
    let key = Names::new(run).entry(writer.opening);
    match store.open(&key).and_then(|blob| read_small(blob.as_ref())) {
        Ok(bytes) => {
            let entry = LogEntry::parse(&bytes)?;
            Ok(matches!(entry, LogEntry::Opening(opening) if opening.writer == writer))
        }
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// Time for which a set with too few files rests before that is reported.
const GRACE: Duration = Duration::from_secs(60);

/// Longest wait for events.
const LONG: Duration = Duration::from_secs(3600);

/// Number of files left out for their names that are reported.
const MOST_TOLD: usize = 100;

/// A callback that hears of events, on the thread that watches.
type Told = Box<dyn Fn(WatchEvent<'_>) + Send>;

/// Ingests every complete set of files that is in a folder or appears in it.
///
/// ```no_run
/// use treering::{Place, WatchSettings, Watcher};
/// let settings = WatchSettings::new(Place::parse("store#sim")?, "out");
/// let mut watcher = Watcher::open(settings, |event| println!("{event}"))?;
/// watcher.serve()?; // until `watcher.stopper().stop()` is called elsewhere
/// # Ok::<(), treering::Error>(())
/// ```
pub struct Watcher {
    settings: WatchSettings,
    run: String,
    told: Told,
    probe: Box<dyn Probe>,
    events: Sender<Noticed>,
    noticed: Receiver<Noticed>,
    sets: Sets,
    holdings: Holdings,
    /// Open as long as all goes well: what it knows of the step before is why little is stored.
    ingest: Option<Ingest>,
    /// The writer that opened the run last. A store without its opening is not the one that this service wrote to.
    opened: Option<WriterId>,
    began: Instant,
    /// Files that are in the run and may be removed, by step.
    leftovers: BTreeMap<u64, Vec<(String, FileStamp)>>,
    /// Files that could not be removed.
    kept: HashSet<(String, FileStamp)>,
    /// Unfinished files that sets wait for, by step: a file, and why it is one.
    unfinished: BTreeMap<u64, (String, String)>,
    /// Files that may be open for writing without anybody seeing it have been reported.
    told_hidden: bool,
    told_ranks: bool,
    /// Nothing is ingested before this moment: the store is full.
    resume: Moment,
    /// Files that were left out for their names and have been reported.
    told_odd: HashSet<PathBuf>,
    /// The files that were there at the start have been listed.
    listed: bool,
    stopped: bool,
}

/// Ends a [`Watcher`] from another thread. Returned by [`Watcher::stopper`].
///
/// ```no_run
/// use treering::{Place, WatchSettings, Watcher};
/// let settings = WatchSettings::new(Place::parse("store#sim")?, "out");
/// let mut watcher = Watcher::open(settings, |event| println!("{event}"))?;
/// let stop = watcher.stopper();
/// std::thread::spawn(move || {
///     std::thread::sleep(std::time::Duration::from_secs(3600));
///     stop.stop();
/// });
/// watcher.serve()?; // returns after an hour
/// # Ok::<(), treering::Error>(())
/// ```
#[derive(Clone)]
pub struct WatchStop {
    events: Sender<Noticed>,
}

impl WatchStop {
    /// Ends the watcher after the set in hand. A watcher that has ended already is left alone.
    pub fn stop(&self) {
        let _ = self.events.send(Noticed::Stop);
    }
}

impl Watcher {
    /// Begins to watch. The function `told` is called with every event, on the thread that calls
    /// [`serve`](Self::serve) or [`once`](Self::once).
    pub fn open(
        settings: WatchSettings,
        told: impl Fn(WatchEvent<'_>) + Send + 'static,
    ) -> Result<Watcher> {
        let run = settings.check()?;
        let (events, noticed) = channel();
        notice::start(&settings.folder, events.clone())?;
        let library = Library::of(Arc::new(DirectoryStore::new(&settings.place.store)));
        let (holdings, trouble) = library.holdings(&run)?;
        let rule = SetRule { files: settings.files, settle: settings.settle, grace: GRACE };
        let watcher = Watcher {
            settings,
            run,
            told: Box::new(told),
            probe: Box::new(ThisMachine),
            events,
            noticed,
            sets: Sets::new(rule, holdings.newest_count()),
            holdings,
            ingest: None,
            opened: None,
            began: Instant::now(),
            leftovers: BTreeMap::new(),
            kept: HashSet::new(),
            unfinished: BTreeMap::new(),
            told_hidden: false,
            told_ranks: false,
            resume: Moment::ZERO,
            told_odd: HashSet::new(),
            listed: false,
            stopped: false,
        };
        watcher.note_all(&trouble);
        Ok(watcher)
    }

    /// A handle that ends this watcher.
    pub fn stopper(&self) -> WatchStop {
        WatchStop { events: self.events.clone() }
    }

    /// Opens the run; once more after a failure, but never in another store that has taken the place of the first, such
    /// as the folder below a file system that is not mounted any more.
    fn open_ingest(&mut self) -> Result<Ingest> {
        let settings = &self.settings;
        if let Some(opened) = self.opened {
            let store = DirectoryStore::new(&settings.place.store);
            if !has_opening(&store, &self.run, opened)? {
                let path = settings.place.store.display();
                return Err(Error::new(
                    ErrorKind::NotFound,
                    format!("{path} has lost what this service wrote to run {:?}", self.run),
                )
                .hint(
                    "mount or move the store back to where it was, and the service continues; restart the \
                     service if it is to begin a new store",
                ));
            }
        }
        let options = Options::directory(&settings.place.store, &self.run);
        let labels = settings.labels.iter();
        let options = labels.fold(options, |options, (key, text)| options.label(key, text));
        let ingest = Ingest::open(options.encoding(settings.encoding), settings.ingest.clone())?;
        self.opened = Some(ingest.writer());
        Ok(ingest)
    }

    fn now(&self) -> Moment {
        self.began.elapsed()
    }

    /// Ingests complete sets until it is stopped ([`WatchStop::stop`]). Sets that are not complete by then are reported
    /// ([`WatchEvent::NotTaken`]).
    ///
    /// **Errors**: a store that cannot be opened at the start, and later another process that takes over the run
    /// ([`ErrorKind::Busy`]). Other failures are events: after a full disk or an I/O error the set is tried again
    /// ([`WatchEvent::Retry`]), and an invalid set is passed over ([`WatchEvent::Refused`]).
    pub fn serve(&mut self) -> Result<()> {
        // A service reports at once what is wrong with its store.
        self.ingest = Some(self.open_ingest()?);
        while !self.stopped {
            self.remove_leftovers();
            let now = self.now();
            let set = self.sets.complete(now).filter(|_| now >= self.resume);
            for (step, files) in self.sets.stranded(now) {
                self.tell(WatchEvent::Late { step, files });
            }
            for short in self.sets.short(now) {
                let (step, files, expected) = (short.step, short.files, short.expected);
                self.tell(WatchEvent::Short { step, files, expected });
            }
            let wait = match &set {
                Some(_) => Duration::ZERO,
                None => self.wake(now).map_or(LONG, |moment| moment.saturating_sub(now)),
            };
            if let Some(set) = set
                && let Err(error) = self.take(&set)
            {
                self.trouble(&set, error)?;
            }
            self.hear(wait)?;
        }
        self.tell_unfinished();
        Ok(())
    }

    /// Ingests the sets that are complete after the settle time, and returns. The store is opened for
    /// writing only if there is a set to ingest. A set that fails does not keep others from being ingested; the first error
    /// is returned at the end.
    pub fn once(&mut self) -> Result<()> {
        while !self.listed && !self.stopped {
            self.hear(LONG)?;
        }
        let until = self.now() + self.settings.settle;
        while self.now() < until && !self.stopped {
            self.hear(until.saturating_sub(self.now()))?;
        }
        self.look_again(&|_| true);
        let (now, mut failed) = (self.now(), None);
        while let Some(set) = self.sets.complete(now).filter(|_| !self.stopped) {
            if let Err(error) = self.take(&set) {
                self.sets.refuse(set.step);
                failed = failed.or_else(|| self.is_still(&set).then_some(error));
            }
            self.hear(Duration::ZERO)?;
        }
        self.remove_leftovers();
        self.tell_unfinished();
        failed.map_or(Ok(()), Err)
    }

    /// Reports the sets that are not ingested when the service ends.
    fn tell_unfinished(&self) {
        for (step, files, expected) in self.sets.unfinished() {
            let held = self.unfinished.get(&step).map(|(file, why)| (file.as_str(), why.as_str()));
            self.tell(WatchEvent::NotTaken { step, files, expected, held });
        }
    }

    fn wake(&self, now: Moment) -> Option<Moment> {
        match now < self.resume {
            true => Some(self.resume),
            false => self.sets.wake(now),
        }
    }

    /// Waits for an event, and hears all that came.
    fn hear(&mut self, wait: Duration) -> Result<()> {
        let lost = || Error::new(ErrorKind::Io, "nothing is noticed any more");
        let mut event = match self.noticed.recv_timeout(wait) {
            Ok(event) => Some(event),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => return Err(lost()),
        };
        while let Some(now) = event {
            self.heard(now)?;
            event = self.noticed.try_recv().ok();
        }
        Ok(())
    }

    fn heard(&mut self, event: Noticed) -> Result<()> {
        match event {
            Noticed::All { files, missed } => {
                if missed {
                    self.sets.missed(self.now());
                }
                if !std::mem::replace(&mut self.listed, true) && self.settings.remove {
                    self.remove_empty_folders();
                }
                self.sets.listed(self.now());
                let there: HashSet<&Path> = files.iter().map(PathBuf::as_path).collect();
                self.look_again(&|file| !there.contains(file));
                files.iter().for_each(|path| self.see(path, FileSign::Found));
            }
            Noticed::Found(path) => self.see(&path, FileSign::Found),
            Noticed::Made(path) => self.see(&path, FileSign::Made),
            Noticed::Written(path) => self.see(&path, FileSign::Written),
            Noticed::Finished(path) => self.see(&path, FileSign::Finished),
            Noticed::FolderGone(path) => self.look_again(&|file| file.starts_with(&path)),
            Noticed::Note(text) => self.tell(WatchEvent::Note(&text)),
            Noticed::Lost(error) => return Err(error),
            Noticed::Stop => self.stopped = true,
        }
        Ok(())
    }

    /// A file was noticed.
    fn see(&mut self, path: &Path, sign: FileSign) {
        let odd = "has a name that is not UTF-8".to_string();
        let named =
            path.to_str().ok_or(odd).and_then(|name| Ok((name, self.settings.rules.read(name)?)));
        let (name, named) = match named {
            Ok(named) => named,
            Err(why) => return self.leave_out(path, &why),
        };
        let Some(stamp) = FileStamp::of(&self.settings.folder.join(path)) else {
            return self.sets.gone(named.step, name);
        };
        if !self.sets.knows(named.step) {
            let versions = self.versions(named.step);
            self.sets.begin(named.step, versions);
        }
        let now = self.now();
        let known = self.sets.seen(named.step, name, stamp, sign, now);
        if known && self.settings.remove && !self.kept.contains(&(name.to_string(), stamp)) {
            let leftovers = self.leftovers.entry(named.step).or_default();
            leftovers.push((name.to_string(), stamp));
        }
    }

    /// Reports a file that is left out for its name, once; of very many, the first.
    fn leave_out(&mut self, path: &Path, why: &str) {
        let count = self.told_odd.len();
        if count > MOST_TOLD || !self.told_odd.insert(path.to_path_buf()) {
            return;
        }
        self.tell(WatchEvent::LeftOut { file: path, why });
        if count == MOST_TOLD {
            self.tell(WatchEvent::Note(
                "more files are left out for their names, and are not listed",
            ));
        }
    }

    fn look(&mut self, name: &str) {
        self.see(Path::new(name), FileSign::Found);
    }

    fn look_again(&mut self, at: &dyn Fn(&Path) -> bool) {
        let names = self.sets.names();
        names.iter().filter(|name| at(Path::new(name))).for_each(|name| self.look(name));
    }

    fn held(&self, step: u64) -> Vec<HeldSet> {
        let (sets, trouble) = self.holdings.of_step(step);
        self.note_all(&trouble);
        sets
    }

    fn versions(&self, step: u64) -> Vec<HeldVersion> {
        let held = self.held(step);
        let versions = held.iter().enumerate().flat_map(|(age, set)| {
            set.files().map(move |(name, size, time)| (name.to_string(), size, time, age == 0))
        });
        versions.collect()
    }

    fn tell(&self, event: WatchEvent<'_>) {
        (self.told)(event);
    }

    fn note_all(&self, trouble: &[Error]) {
        trouble.iter().for_each(|error| self.tell(WatchEvent::Note(&error.to_string())));
    }
}

#[cfg(test)]
mod tests;
