//! Retention behind a program: when, by whom, and what becomes of its errors.
//!
//! One thread of one rank does it, besides those that save: neither the program nor its saves wait for it, but for the end
//! of the run, which waits for the last pass. It looks when a checkpoint has reached the last tier, removes by the same plan
//! as the tool, and rests nine times as long as that took. An error is a note: the checkpoints are where they were.
//!
//! Before anything goes, the newest checkpoint is verified. A tool restores it; here every pack of it is read back once,
//! frame by frame. Of a checkpoint of several groups only the chain of footers is read: one rank cannot read
//! the data of all. If no checkpoint is sound, nothing goes.

use super::plan::{Keep, Rule};
use super::pruner::Pruner;
use crate::compact::UpkeepNotes;
use crate::error::{Error, Result};
use crate::format::{Manifest, Names, PackName};
use crate::log::FullManifest;
use crate::points::inherited;
use crate::restore::{Checkpoint, check_frames, read_footer};
use crate::store::Store;
use std::collections::HashSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The pause between two looks of whoever waits for the end.
const LOOK: Duration = Duration::from_millis(50);
/// A pass may take one of this many parts of the time.
const PART: u32 = 10;

enum RetentionMessage {
    Look,
    End,
}

/// The program's end of the thread.
pub(crate) struct Retention {
    sender: Sender<RetentionMessage>,
    ended: Receiver<()>,
    thread: Option<JoinHandle<()>>,
}

impl Retention {
    pub(crate) fn start(
        last: Arc<dyn Store>,
        run: &str,
        keep: Keep,
        notes: UpkeepNotes,
    ) -> Result<Retention> {
        let mut work = RetentionWork {
            pruner: Pruner::new(Vec::new(), last, run),
            keep,
            notes,
            verified: HashSet::new(),
        };
        let (sender, looks) = channel();
        let (done, ended) = channel();
        let thread = std::thread::Builder::new().name("treering-retention".into());
        let thread = thread.spawn(inherited(move || {
            work.work(&looks);
            let _ = done.send(());
        }));
        let thread = thread.map_err(|e| Error::io("cannot start the threads of a run", e))?;
        Ok(Retention { sender, ended, thread: Some(thread) })
    }

    /// A function that tells the thread of a checkpoint in the last tier.
    pub(crate) fn bell(&self) -> Box<dyn FnOnce() + Send> {
        let sender = self.sender.clone();
        // A thread that has ended needs no bell.
        Box::new(move || drop(sender.send(RetentionMessage::Look)))
    }

    /// Waits for the last pass; `look` is called now and then meanwhile.
    pub(crate) fn end(&mut self, look: impl Fn()) {
        let Some(thread) = self.thread.take() else { return };
        let _ = self.sender.send(RetentionMessage::End);
        while self.ended.recv_timeout(LOOK) == Err(RecvTimeoutError::Timeout) {
            look();
        }
        let _ = thread.join();
    }

    /// Lets go without waiting: in a forked child the thread does not exist.
    pub(crate) fn abandon(&mut self) {
        std::mem::forget(self.thread.take());
    }
}

impl Drop for Retention {
    fn drop(&mut self) {
        self.end(|| {});
    }
}

/// The thread's end.
struct RetentionWork {
    pruner: Pruner,
    keep: Keep,
    notes: UpkeepNotes,
    /// The packs that were read back.
    verified: HashSet<(String, PackName)>,
}

impl RetentionWork {
    fn work(&mut self, messages: &Receiver<RetentionMessage>) {
        let (mut rest, mut put_off) = (Instant::now(), false);
        let mut more = true;
        while more {
            // A look that came during the rest is due when that is over, also if no other comes.
            let wait = put_off.then(|| rest.saturating_duration_since(Instant::now()));
            put_off |= more_looks(messages, wait, &mut more);
            if !put_off || more && Instant::now() < rest {
                continue;
            }
            let begun = Instant::now();
            match catch_unwind(AssertUnwindSafe(|| self.pass())) {
                Ok(Ok(())) => {}
                Ok(Err(error)) => {
                    self.notes.add(format!("old checkpoints were not removed: {error}"));
                }
                Err(_) => self.notes.add(
                    "removing old checkpoints ended in an internal error; please report it".into(),
                ),
            }
            rest = Instant::now() + begun.elapsed() * (PART - 1);
            put_off = false;
        }
    }

    fn pass(&mut self) -> Result<()> {
        let notes = self.notes.clone();
        // A compaction and a pruning of one process would only undo each other's work.
        let _turn = notes.turn();
        let rule = Rule::Keep(self.keep);
        self.pruner.refuse_tier()?;
        let first = self.pruner.plan(rule, Default::default())?;
        if first.removed.is_empty() {
            self.report(first.notes, first.excess);
            return Ok(());
        }
        let seen = self.pruner.seen.clone();
        let sound = self
            .pruner
            .newest_sound(&mut |manifest| verify(&seen, manifest, &mut self.verified))?;
        sound.notes.iter().for_each(|note| self.notes.add(note.clone()));
        if sound.sequence.is_none() {
            return Ok(());
        }
        let plan = self.pruner.prune(rule, sound)?;
        let gone: HashSet<&String> = plan.packs.iter().collect();
        self.verified.retain(|(run, pack)| !gone.contains(&Names::new(run).pack(*pack)));
        self.report(plan.notes, plan.excess);
        Ok(())
    }

    /// That a limit cannot be held is worth a note; that a checkpoint stays a little longer is not.
    fn report(&self, notes: Vec<String>, excess: u64) {
        if excess > 0 {
            notes.into_iter().last().into_iter().for_each(|note| self.notes.add(note));
        }
    }
}

/// Waits for messages, no longer than `wait` if it is given, and takes all there are; whether one of them is a look. `more`
/// becomes false at the end.
fn more_looks(
    messages: &Receiver<RetentionMessage>,
    wait: Option<Duration>,
    more: &mut bool,
) -> bool {
    let first = match wait {
        Some(wait) => messages.recv_timeout(wait),
        None => messages.recv().map_err(|_| RecvTimeoutError::Disconnected),
    };
    *more &= !matches!(first, Err(RecvTimeoutError::Disconnected));
    let mut looks = false;
    for message in first.into_iter().chain(messages.try_iter()) {
        match message {
            RetentionMessage::Look => looks = true,
            RetentionMessage::End => *more = false,
        }
    }
    looks
}

/// Reads back what was not read back before of a checkpoint.
fn verify(
    store: &Arc<dyn Store>,
    manifest: Manifest,
    verified: &mut HashSet<(String, PackName)>,
) -> Result<()> {
    let full = FullManifest::read(store.as_ref(), manifest.clone())?;
    let checkpoint = Checkpoint::load(store.clone(), manifest)?;
    checkpoint.entries().iter().try_for_each(|entry| checkpoint.check_references(entry))?;
    if full.groups().len() > 1 {
        return Ok(());
    }
    // One thread: the others belong to the program and to its saves.
    let pool = rayon::ThreadPoolBuilder::new().num_threads(1).build();
    let failed = |e| Error::io("cannot start a thread", std::io::Error::other(e));
    let pool = pool.map_err(failed)?;
    for (run, name) in full.packs() {
        if verified.contains(&(run.clone(), name)) {
            continue;
        }
        let pack = store.open(&Names::new(&run).pack(name))?;
        let (_, footer) = read_footer(pack.as_ref(), true)?;
        let bad = pool.install(|| check_frames(pack.as_ref(), &footer, &|_| {}));
        if let Some((_, error)) = bad.into_iter().next() {
            return Err(error);
        }
        verified.insert((run, name));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A look that came during a rest is not left to the next checkpoint.
    #[test]
    fn who_rests_with_a_look_put_off_waits_no_longer_than_the_rest() {
        let (sender, messages) = channel();
        let mut more = true;
        sender.send(RetentionMessage::Look).unwrap();
        assert!(more_looks(&messages, None, &mut more) && more);
        assert!(!more_looks(&messages, Some(Duration::from_millis(1)), &mut more) && more);
        sender.send(RetentionMessage::End).unwrap();
        assert!(!more_looks(&messages, None, &mut more) && !more);
        more = true;
        drop(sender);
        assert!(!more_looks(&messages, Some(Duration::from_secs(600)), &mut more) && !more);
    }
}
