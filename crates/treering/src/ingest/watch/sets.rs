//! Finished files and complete sets: pure logic over events and a clock that is given.
//!
//! A file is *finished* when nobody was seen to have it open for writing any more and its stamp (size,
//! time, inode) stayed the same for the settle time. A file that is found unfinished all the same, when
//! its set is about to be ingested, is *held*: it is looked at again when it is closed or changes, and
//! after pauses that grow. The set of a step is all files of it that are not
//! in the run yet. It is *complete* when all of them are finished and there are enough: as many as the
//! user says, else as many as the set before had. A smaller set is taken only when that of a later
//! step came to rest with just as many files: then the program writes fewer now. Otherwise it stays, and is reported: when
//! a later set was taken, or when all of it has rested for a grace time.
//!
//! A step that is in the run already is rewritten as a whole: files that were taken do not count
//! again, so that old and new ones are never mixed. Only files that are late, under names that the
//! step had none of, join those that were taken.
//!
//! The law: no file is in two sets in the same state, but for those that late ones join; none is in a
//! set before it is finished; and what is finished and enough is taken.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::Duration;

/// The pause after trouble, at first and at most.
const PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// The pause before a held file is looked at again, at first and at most.
const HOLD: Duration = Duration::from_millis(100);
const LONGEST_HOLD: Duration = Duration::from_secs(30);
/// Time for which a set is held before that is reported.
const REPORT_AFTER: Duration = Duration::from_secs(5);

/// Time since the service began.
pub(super) type Moment = Duration;

/// Signature of a file, by which a write or a replacement is noticed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct FileStamp {
    pub(super) size: u64,
    /// Nanoseconds since 1970.
    pub(super) modified: u64,
    pub(super) inode: u64,
}

/// Event by which a file was noticed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FileSign {
    /// The file is there; its writers are unknown.
    Found,
    /// It was made: by somebody who has it open, or as a second name of a file that is whole.
    Made,
    /// A process writes the file, and has it open.
    Written,
    /// It was closed after writing, or moved in.
    Finished,
}

/// When a set is complete.
#[derive(Clone, Copy, Debug)]
pub(super) struct SetRule {
    /// Number of files of a set. Default: that of the set before.
    pub(super) files: Option<usize>,
    pub(super) settle: Duration,
    /// Time for which a set with too few files rests before that is reported.
    pub(super) grace: Duration,
}

/// A file that a checkpoint of the step holds: name, size, time; and whether it is the newest.
pub(super) type HeldVersion = (String, u64, u64, bool);

/// A set that is complete: the step, and its files as they came to rest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FileSet {
    pub(super) step: u64,
    pub(super) files: BTreeMap<String, FileStamp>,
}

/// A set that has too few files although it is at rest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ShortSet {
    pub(super) step: u64,
    pub(super) files: usize,
    pub(super) expected: usize,
}

/// All files that were noticed.
pub(super) struct Sets {
    rule: SetRule,
    /// Number of files of the set before.
    usual: Option<usize>,
    steps: BTreeMap<u64, StepFiles>,
}

#[derive(Default)]
struct StepFiles {
    waiting: BTreeMap<String, Waiting>,
    /// Files that are there as they were taken, and whether the newest set has them.
    taken: BTreeMap<String, (FileStamp, bool)>,
    /// Files of this step that the run holds.
    held: HashMap<(String, u64, u64), bool>,
    names: HashSet<String>,
    /// It cannot be taken as it is.
    refused: bool,
    /// It could not be taken: how long the pause was, and when that is over.
    pause: Option<(Duration, Moment)>,
    told: bool,
    /// Since when files are held, and whether that was reported.
    held_since: Option<(Moment, bool)>,
}

struct Waiting {
    stamp: FileStamp,
    since: Moment,
    /// Whether somebody has it open.
    open: Open,
}

#[derive(PartialEq)]
enum Open {
    No,
    /// It was made, and no more is known.
    Perhaps,
    Yes,
    /// It is unfinished although nothing was noticed: how long the pause is, and when that is over.
    Held(Duration, Moment),
}

impl Sets {
    /// `usual` is how many files the newest set of the run has.
    pub(super) fn new(rule: SetRule, usual: Option<usize>) -> Sets {
        Sets { rule, usual, steps: BTreeMap::new() }
    }

    /// Whether files of this step were noticed; else [`Sets::begin`] comes before the first.
    pub(super) fn knows(&self, step: u64) -> bool {
        self.steps.contains_key(&step)
    }

    /// Files that the run holds of a step whose first file is about to be seen.
    pub(super) fn begin(&mut self, step: u64, held: impl IntoIterator<Item = HeldVersion>) {
        let own = self.steps.entry(step).or_default();
        for (name, size, modified, newest) in held {
            own.names.insert(name.clone());
            *own.held.entry((name, size, modified)).or_default() |= newest;
        }
    }

    /// A file is there. Tells whether it is in the run already, as it is.
    pub(super) fn seen(
        &mut self,
        step: u64,
        name: &str,
        stamp: FileStamp,
        sign: FileSign,
        now: Moment,
    ) -> bool {
        let own = self.steps.entry(step).or_default();
        let held = own.held.get(&(name.to_string(), stamp.size, stamp.modified)).copied();
        if let Some(newest) = held {
            own.waiting.remove(name);
            own.taken.insert(name.to_string(), (stamp, newest));
            return true;
        }
        own.taken.remove(name);
        let fresh = || Waiting { stamp, since: now, open: Open::No };
        let mut changed = !own.waiting.contains_key(name);
        let file = own.waiting.entry(name.to_string()).or_insert_with(fresh);
        changed |= file.stamp != stamp;
        if changed || sign != FileSign::Found {
            (file.stamp, file.since) = (stamp, now);
        }
        match sign {
            FileSign::Made if file.open == Open::No => file.open = Open::Perhaps,
            FileSign::Found | FileSign::Made => {}
            FileSign::Written => file.open = Open::Yes,
            FileSign::Finished => file.open = Open::No,
        }
        if changed {
            (own.refused, own.told, own.pause, own.held_since) = (false, false, None, None);
        }
        false
    }

    /// A file turned out not to be in the run although its name, size and time are: it waits.
    pub(super) fn mistaken(&mut self, step: u64, name: &str, stamp: FileStamp, now: Moment) {
        if let Some(own) = self.steps.get_mut(&step) {
            own.held.remove(&(name.to_string(), stamp.size, stamp.modified));
            self.seen(step, name, stamp, FileSign::Found, now);
        }
    }

    /// A file is not there any more.
    pub(super) fn gone(&mut self, step: u64, name: &str) {
        if let Some(own) = self.steps.get_mut(&step) {
            own.waiting.remove(name);
            own.taken.remove(name);
            if own.waiting.is_empty() && own.taken.is_empty() {
                self.steps.remove(&step);
            }
        }
    }

    /// Signs were missed: nobody knows any more who has a file open, and all come to rest anew.
    pub(super) fn missed(&mut self, now: Moment) {
        for file in self.steps.values_mut().flat_map(|own| own.waiting.values_mut()) {
            (file.open, file.since) = (Open::No, now);
        }
    }

    /// A while has passed. A file that was made and is neither empty nor written to since then is a
    /// second name of another: nobody will close it.
    pub(super) fn listed(&mut self, now: Moment) {
        for file in self.steps.values_mut().flat_map(|own| own.waiting.values_mut()) {
            if file.open == Open::Perhaps && file.stamp.size > 0 {
                (file.open, file.since) = (Open::No, now);
            }
        }
    }

    /// All files.
    pub(super) fn names(&self) -> Vec<String> {
        let of = |own: &StepFiles| {
            own.waiting.keys().chain(own.taken.keys()).cloned().collect::<Vec<_>>()
        };
        self.steps.values().flat_map(of).collect()
    }

    /// Steps with files that are in no set yet, how many there are, and how many a set has, if that is
    /// known.
    pub(super) fn unfinished(&self) -> Vec<(u64, usize, Option<usize>)> {
        let expected = self.rule.files.or(self.usual);
        let waits = |own: &StepFiles| !own.refused && !own.waiting.is_empty();
        let steps = self.steps.iter().filter(|(_, own)| waits(own));
        steps.map(|(step, own)| (*step, own.count(), expected)).collect()
    }

    /// The complete set of the lowest step that has one.
    pub(super) fn complete(&self, now: Moment) -> Option<FileSet> {
        self.steps.keys().find_map(|step| self.complete_at(*step, now))
    }

    /// The set of a step, if it is complete.
    pub(super) fn complete_at(&self, step: u64, now: Moment) -> Option<FileSet> {
        let own = self.steps.get(&step)?;
        let paused = own.pause.is_some_and(|(_, until)| now < until);
        if own.refused || paused || !self.settled(own, now) || !self.enough(step, own, now) {
            return None;
        }
        let waiting = own.waiting.iter().map(|(name, file)| (name.clone(), file.stamp));
        let joined = own.joined().map(|(name, (stamp, _))| (name.clone(), *stamp));
        Some(FileSet { step, files: waiting.chain(joined).collect() })
    }

    fn settled(&self, own: &StepFiles, now: Moment) -> bool {
        let rests = |file: &Waiting| self.rests_at(file).is_some_and(|moment| now >= moment);
        !own.waiting.is_empty() && own.waiting.values().all(rests)
    }

    /// When a file is finished if nothing is noticed until then.
    fn rests_at(&self, file: &Waiting) -> Option<Moment> {
        let settled = file.since + self.rule.settle;
        match file.open {
            Open::No => Some(settled),
            Open::Held(_, until) => Some(until.max(settled)),
            Open::Perhaps | Open::Yes => None,
        }
    }

    fn enough(&self, step: u64, own: &StepFiles, now: Moment) -> bool {
        let count = own.count();
        match (self.rule.files, self.usual) {
            (Some(files), _) => count >= files,
            // Late files are no set without the files they belong to.
            (None, _) if own.is_late() && !own.joins() => false,
            (None, None) => true,
            (None, Some(usual)) if count >= usual => true,
            (None, Some(_)) => {
                let later = self.steps.iter().filter(|(other, _)| **other > step);
                let alike = |other: &StepFiles| !other.is_late() && other.count() == count;
                !own.is_late() && later.into_iter().any(|(_, o)| self.settled(o, now) && alike(o))
            }
        }
    }

    /// Steps with finished files that came after the others of the step were taken and went away: they are in no set.
    /// Each is listed once, with the number of its files.
    pub(super) fn stranded(&mut self, now: Moment) -> Vec<(u64, usize)> {
        let left = |own: &StepFiles| own.is_late() && !own.joins() && !own.told && !own.refused;
        let alone: Vec<u64> =
            self.steps.iter().filter(|(_, own)| left(own)).map(|(s, _)| *s).collect();
        let mut all = Vec::new();
        for step in alone {
            let Some(own) = self.steps.get(&step) else { continue };
            if !self.settled(own, now) || self.enough(step, own, now) {
                continue;
            }
            all.push((step, own.waiting.len()));
            self.steps.entry(step).and_modify(|own| own.told = true);
        }
        all
    }

    /// Sets that have too few files and have rested for the grace time. Each is listed once.
    pub(super) fn short(&mut self, now: Moment) -> Vec<ShortSet> {
        let expected = self.rule.files.or(self.usual);
        let is_short = |(step, own): &(&u64, &StepFiles)| {
            self.grace_ends(own).is_some_and(|end| now >= end) && !self.enough(**step, own, now)
        };
        let short = self.steps.iter().filter(is_short).filter_map(|(step, own)| {
            Some(ShortSet { step: *step, files: own.count(), expected: expected? })
        });
        let short: Vec<ShortSet> = short.collect();
        for one in &short {
            self.steps.entry(one.step).and_modify(|own| own.told = true);
        }
        short
    }

    /// When a set that is at rest, and was not reported, is reported if it has too few files.
    fn grace_ends(&self, own: &StepFiles) -> Option<Moment> {
        if own.told || own.refused || own.is_late() {
            return None;
        }
        let rest: Option<Vec<Moment>> =
            own.waiting.values().map(|file| self.rests_at(file)).collect();
        rest?.into_iter().max().map(|last| last + self.rule.grace)
    }

    /// When to look again, if nothing is noticed until then.
    pub(super) fn wake(&self, now: Moment) -> Option<Moment> {
        let waiting = self.steps.values().flat_map(|own| own.waiting.values());
        let rest = waiting.filter_map(|file| self.rests_at(file));
        let pauses = self.steps.values().filter_map(|own| own.pause.map(|(_, until)| until));
        let graces = self.steps.values().filter_map(|own| self.grace_ends(own));
        rest.chain(pauses).chain(graces).filter(|moment| *moment > now).min()
    }

    /// A set is in the run now. Tells of earlier ones that have too few files, once.
    pub(super) fn taken(&mut self, set: &FileSet, now: Moment) -> Vec<ShortSet> {
        self.usual = Some(set.files.len());
        let own = self.steps.entry(set.step).or_default();
        (own.pause, own.held_since) = (None, None);
        own.taken.values_mut().for_each(|(_, newest)| *newest = false);
        own.held.values_mut().for_each(|newest| *newest = false);
        for (name, stamp) in &set.files {
            if own.waiting.get(name).is_some_and(|file| file.stamp == *stamp) {
                own.waiting.remove(name);
            }
            own.taken.insert(name.clone(), (*stamp, true));
            own.names.insert(name.clone());
            own.held.insert((name.clone(), stamp.size, stamp.modified), true);
        }
        let expected = self.rule.files.unwrap_or(set.files.len());
        let mut short = Vec::new();
        let earlier = self.steps.range(..set.step).filter(|(_, own)| !own.told && !own.refused);
        for (step, own) in earlier {
            if self.settled(own, now) && !self.enough(*step, own, now) {
                let missing = if own.is_late() { own.count() + own.newest() } else { expected };
                short.push(ShortSet { step: *step, files: own.count(), expected: missing });
            }
        }
        for one in &short {
            self.steps.entry(one.step).and_modify(|own| own.told = true);
        }
        short
    }

    /// A set could not be taken, which may pass: it waits, longer every time. Tells how long.
    pub(super) fn later(&mut self, step: u64, now: Moment) -> Duration {
        let own = self.steps.entry(step).or_default();
        let pause = own.pause.map_or(PAUSE, |(last, _)| (last * 2).min(LONGEST_PAUSE));
        own.pause = Some((pause, now + pause));
        pause
    }

    /// Files of a complete set turned out to be unfinished. Whether this is to be reported now.
    pub(super) fn hold(&mut self, step: u64, names: &[&str], now: Moment) -> bool {
        let Some(own) = self.steps.get_mut(&step) else { return false };
        let mut held = false;
        for name in names {
            let Some(file) = own.waiting.get_mut(*name) else { continue };
            let pause = match file.open {
                Open::Held(last, _) => (last * 2).min(LONGEST_HOLD),
                _ => HOLD,
            };
            (file.open, held) = (Open::Held(pause, now + pause), true);
        }
        let (since, told) = own.held_since.unwrap_or((now, false));
        let report = !told && now >= since + REPORT_AFTER;
        own.held_since = Some((since, told || report));
        if !held {
            // Only files that late ones join are open.
            self.later(step, now);
        }
        report
    }

    /// A set cannot be taken as it is: it waits until a file of it changes.
    pub(super) fn refuse(&mut self, step: u64) {
        self.steps.entry(step).and_modify(|own| own.refused = true);
    }
}

impl StepFiles {
    fn count(&self) -> usize {
        self.waiting.len() + self.joined().count()
    }

    /// Whether all that waits has names which the step had none of when it was taken.
    fn is_late(&self) -> bool {
        self.newest() > 0 && self.waiting.keys().all(|name| !self.names.contains(name))
    }

    /// Number of files of the newest set of this step.
    fn newest(&self) -> usize {
        self.held.values().filter(|newest| **newest).count()
    }

    /// Whether what waits is late, and everything that it belongs to is still there.
    fn joins(&self) -> bool {
        let there = self.taken.values().filter(|(_, newest)| *newest).count();
        self.is_late() && there == self.newest()
    }

    /// The files that were taken and belong to those that are late.
    fn joined(&self) -> impl Iterator<Item = (&String, &(FileStamp, bool))> {
        let joins = self.joins();
        self.taken.iter().filter(move |(_, (_, newest))| joins && *newest)
    }
}

#[cfg(test)]
mod tests;
