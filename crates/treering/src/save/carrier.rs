//! From the nodes' stores to the shared one, for the leader of a group of ranks: one thread behind the writer.
//!
//! On the node, a checkpoint of a group is its pack and its section, the same bytes under the same names as in the shared
//! store; no node has all sections, so nodes have no manifests. A checkpoint that goes to the shared store needs all packs
//! of its epoch there: those that are only on the node are copied first, verified, then the section is published, and
//! whoever finds all sections makes the manifest ([`Sections`]). A checkpoint that cannot be carried now waits, in its
//! order, and is tried again at the next checkpoint and at the end. The law of what leaves a node:
//! - sections before a number that the ranks have agreed on, because a later checkpoint is complete on all nodes, unless
//!   they wait; then packs that no section left here needs;
//! - when the node is full, also what the shared store has.
//!
//! Where nodes protect each other ([`redundancy`](crate::redundancy)), a pack can be made again only if everything is
//! there that was protected with it: a section stays as long as its pack does, and a full node removes nothing of a
//! checkpoint that is not in the shared store as a whole.

use super::epoch::Epoch;
use super::handle::{Failures, SaveProgress, held};
use super::mover::{PackPath, guarded, is_hopeless};
use super::publish::{LogWriter, commit_once};
use super::sections::Sections;
use super::tree::GroupOf;
use crate::array::{GroupId, Sequence, Step};
use crate::error::{Error, ErrorKind, Result};
use crate::format::{Branch, Names, PackName};
use crate::store::Store;
use crate::trace::{TracedKind, TracedWork};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

/// A checkpoint on its way to the shared store.
#[derive(Clone)]
pub(crate) struct Carried {
    pub(crate) sequence: Sequence,
    pub(crate) step: Step,
    pub(crate) progress: SaveProgress,
}

enum CarrierMessage {
    /// A section is on the node, or else in the shared store.
    Staged(Box<Branch>, bool),
    Carry(Carried),
    ForgetBefore(Sequence),
    MakeRoom(Sender<()>),
    Drain(Sender<()>),
}

/// The writer's end.
pub(crate) struct Carrier {
    sender: Option<Sender<CarrierMessage>>,
    thread: Option<JoinHandle<()>>,
    from: Arc<dyn Store>,
    to: Arc<dyn Store>,
    names: Names,
}

/// The thread's end.
pub(crate) struct CarrierWork {
    pub(crate) path: PackPath,
    /// The log of the shared store.
    pub(crate) log: LogWriter,
    pub(crate) sections: Sections,
    pub(crate) own: GroupOf,
    pub(crate) run: String,
    pub(crate) names: Names,
    /// The sections of this writer that the node holds.
    pub(crate) staged: BTreeMap<Sequence, Branch>,
    /// Checkpoints that are in the shared store instead.
    pub(crate) past: BTreeSet<Sequence>,
    pub(crate) waiting: VecDeque<Carried>,
    /// The sections that were published and whose outcome is not known.
    pub(crate) published: Vec<Sequence>,
    pub(crate) failures: Failures,
    pub(crate) epoch: Arc<Mutex<Epoch>>,
    /// Whether nodes protect each other.
    pub(crate) protected: bool,
}

impl Carrier {
    pub(crate) fn start(mut work: CarrierWork) -> Result<Carrier> {
        let (sender, receiver) = channel();
        let (from, to) = (work.path.from.clone(), work.path.to.clone());
        let names = work.names.clone();
        let thread = std::thread::Builder::new().name("treering-carrier".into());
        let spawned = thread.spawn(move || work.work(&receiver));
        let thread = spawned.map_err(|e| Error::io("cannot start the threads of a run", e))?;
        Ok(Carrier { sender: Some(sender), thread: Some(thread), from, to, names })
    }

    fn tell(&self, message: CarrierMessage) {
        if let Some(sender) = &self.sender {
            // The thread ends only when this is dropped; a panic in it is caught.
            let _ = sender.send(message);
        }
    }

    /// Puts a section on the node, or, if that has no room at all, into the shared store.
    pub(crate) fn stage(&self, section: Branch) -> Result<()> {
        let put = |store: &dyn Store| commit_once(store, &self.names, &section);
        let is_full = |done: &Result<()>| done.as_ref().is_err_and(|e| e.kind() == ErrorKind::Full);
        let mut done = put(self.from.as_ref());
        if is_full(&done) {
            self.make_room();
            done = put(self.from.as_ref());
        }
        let past = is_full(&done);
        if past {
            done = put(self.to.as_ref());
        }
        done?;
        self.tell(CarrierMessage::Staged(Box::new(section), past));
        Ok(())
    }

    /// Carries a checkpoint that was staged to the shared store.
    pub(crate) fn carry(&self, carried: Carried) {
        self.tell(CarrierMessage::Carry(carried));
    }

    /// Checkpoints before a number are needed no more.
    pub(crate) fn forget_before(&self, sequence: Sequence) {
        self.tell(CarrierMessage::ForgetBefore(sequence));
    }

    /// Removes everything from the node that the shared store has.
    pub(crate) fn make_room(&self) {
        let (done, wait) = channel();
        self.tell(CarrierMessage::MakeRoom(done));
        let _ = wait.recv();
    }

    /// Waits until everything was tried that waits.
    pub(crate) fn drain(&self) {
        let (done, wait) = channel();
        self.tell(CarrierMessage::Drain(done));
        let _ = wait.recv();
    }
}

impl Drop for Carrier {
    fn drop(&mut self) {
        self.sender = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl CarrierWork {
    fn work(&mut self, messages: &Receiver<CarrierMessage>) {
        while let Ok(message) = messages.recv() {
            match message {
                CarrierMessage::Staged(section, past) => {
                    if past {
                        self.past.insert(section.part.sequence);
                    }
                    self.staged.insert(section.part.sequence, *section);
                }
                CarrierMessage::Carry(carried) => {
                    self.waiting.push_back(carried);
                    self.carry_all();
                }
                // Files that cannot be removed now are removed after the next checkpoint.
                CarrierMessage::ForgetBefore(first) => drop(guarded(|| self.forget_before(first))),
                CarrierMessage::MakeRoom(done) => {
                    self.carry_all();
                    // Files that cannot be removed stay, and the caller finds that there is no room.
                    let _ = guarded(|| self.make_room());
                    let _ = done.send(());
                }
                CarrierMessage::Drain(done) => {
                    self.carry_all();
                    let _ = guarded(|| {
                        self.sections.look_again(&mut self.log, &mut self.published);
                        Ok(())
                    });
                    let _ = done.send(());
                }
            }
        }
        self.carry_all();
    }

    /// Carries what waits, in order, up to the first that cannot be carried now.
    fn carry_all(&mut self) {
        while let Some(carried) = self.waiting.pop_front() {
            let traced = TracedWork::begin(TracedKind::Move, &self.run, Some(carried.step.0));
            let moved = guarded(|| self.carry(carried.sequence));
            let Err(error) = traced.end(moved, |bytes| (None, *bytes)) else { continue };
            let hopeless = is_hopeless(&error);
            if hopeless {
                // Nothing that builds on it could be carried either.
                held(&self.epoch).failed(carried.sequence);
                self.sections.give_up(carried.sequence);
            }
            self.waiting.push_front(carried);
            self.report(&error);
            match hopeless {
                true => drop(self.waiting.pop_front()),
                false => return,
            }
        }
    }

    fn carry(&mut self, sequence: Sequence) -> Result<u64> {
        let gone = || Error::new(ErrorKind::Lost, "this checkpoint is not on the node any more");
        let section = self.staged.get(&sequence).ok_or_else(gone)?;
        self.log.catch_up()?;
        self.log.check()?;
        let bytes = self.path.bring_all(packs(section))?;
        if let Err(error) = self.sections.publish(&mut self.log, &section.part, self.own) {
            // Perhaps nobody names the newest of them there yet, so they are looked for again the next time.
            self.path.forget(packs(section));
            return Err(error);
        }
        self.published.push(sequence);
        Ok(bytes)
    }

    /// Tells the program, once, about each checkpoint that could not be carried.
    fn report(&mut self, error: &Error) {
        for Carried { step, progress, .. } in &self.waiting {
            if !progress.has_failed() {
                self.failures.add(*step, error.clone(), progress);
                progress.failed(error.clone());
            }
        }
    }

    fn waits(&self, sequence: Sequence) -> bool {
        self.waiting.iter().any(|carried| carried.sequence == sequence)
    }

    fn forget_before(&mut self, first: Sequence) -> Result<()> {
        let old = self.staged.range(..first).map(|(sequence, _)| *sequence);
        let mut old: Vec<Sequence> = old.filter(|sequence| !self.waits(*sequence)).collect();
        let kept = self.staged.iter().filter(|(sequence, _)| !old.contains(sequence));
        let needed: BTreeSet<(String, PackName)> = kept.flat_map(|(_, s)| packs(s)).collect();
        if self.protected {
            let packs: BTreeSet<u64> = needed.iter().map(|(_, pack)| pack.attempt).collect();
            old.retain(|sequence| !packs.contains(&sequence.0));
        }
        self.remove_sections(&old)?;
        let gone = old.iter().filter_map(|sequence| self.staged.get(sequence)).flat_map(packs);
        self.remove_packs(gone.filter(|pack| !needed.contains(pack)).collect())?;
        for sequence in &old {
            self.staged.remove(sequence);
            self.past.remove(sequence);
        }
        Ok(())
    }

    fn make_room(&mut self) -> Result<()> {
        let there = self.staged.keys().copied();
        let there = there.filter(|s| *s <= self.log.committed() && !self.waits(*s));
        self.remove_sections(&there.collect::<Vec<_>>())?;
        let all = self.staged.values().flat_map(packs);
        let whole = |pack: &PackName| !self.protected || pack.attempt <= self.log.committed().0;
        let durable = all.filter(|pack| self.path.is_durable(pack) && whole(&pack.1));
        self.remove_packs(durable.collect())
    }

    fn remove_sections(&self, of: &[Sequence]) -> Result<()> {
        let sections = of.iter().filter_map(|sequence| self.staged.get(sequence));
        let (past, here): (Vec<_>, Vec<_>) =
            sections.map(Branch::name).partition(|name| self.past.contains(&name.sequence));
        for (store, names) in [(&self.path.from, here), (&self.path.to, past)] {
            let keys: Vec<String> = names.into_iter().map(|name| self.names.branch(name)).collect();
            if !keys.is_empty() {
                store.delete(&keys)?;
            }
        }
        Ok(())
    }

    fn remove_packs(&self, packs: BTreeSet<(String, PackName)>) -> Result<()> {
        // Packs of the run that this one branched off are only in the shared store.
        let keys = packs.iter().map(|(run, name)| (Names::new(run), name));
        let keys: Vec<String> = keys.map(|(names, name)| names.pack(*name)).collect();
        let own = format!("{}/", self.names.packs());
        let keys: Vec<String> = keys.into_iter().filter(|key| key.starts_with(&own)).collect();
        if keys.is_empty() { Ok(()) } else { self.path.from.delete(&keys) }
    }
}

/// The packs that a section needs.
pub(crate) fn packs(section: &Branch) -> impl Iterator<Item = (String, PackName)> {
    let groups = section.part.groups.here().unwrap_or_default();
    groups.iter().flat_map(|group| {
        let names = group.names(GroupId(section.index));
        names.map(|(run, name)| (run.to_string(), name))
    })
}
