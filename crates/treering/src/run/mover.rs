//! From the node's store to the shared one, behind the worker.
//!
//! Packs before manifests, in order. A pack that is missing in the shared store because an earlier
//! move failed is brought along, so a passing fault heals by itself. Whoever finds a number taken in
//! the shared store has lost the run for good. What the node holds of closed
//! epochs is removed once the shared store has it.

use super::save::{Failures, Progress};
use crate::error::{Error, ErrorKind, Result};
use crate::format::{Footer, Manifest, Names, PackName};
use crate::log::{Log, packs_of};
use crate::merkle::checksum;
use crate::restore::read_footer;
use crate::store::{Blob, Put, Store, read_small};
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;

enum Message {
    Move(Box<Manifest>, Progress),
    Drain(Sender<()>),
}

/// The worker's end of the mover.
pub(super) struct Mover {
    sender: Option<Sender<Message>>,
    thread: Option<JoinHandle<()>>,
    fenced: Arc<AtomicBool>,
}

impl Mover {
    pub(super) fn start(mut way: Way, failures: Failures) -> Result<Self> {
        let (sender, receiver) = channel();
        let fenced = way.fenced.clone();
        let thread = std::thread::Builder::new().name("treering-mover".into());
        let spawned = thread.spawn(move || {
            while let Ok(message) = receiver.recv() {
                match message {
                    Message::Drain(done) => drop(done.send(())),
                    Message::Move(manifest, progress) => match way.bring(&manifest) {
                        Ok(()) => {
                            progress.durable();
                            // What cannot be removed now is removed after the next move.
                            let _ = way.evict(&manifest);
                        }
                        Err(error) => {
                            failures.add(manifest.step, error.clone());
                            progress.failed(error);
                        }
                    },
                }
            }
        });
        let thread = spawned.map_err(|e| Error::io("cannot start the threads of a run", e))?;
        Ok(Mover { sender: Some(sender), thread: Some(thread), fenced })
    }

    /// Refuses to go on when somebody else has taken the run over.
    pub(super) fn check(&self) -> Result<()> {
        match self.fenced.load(Ordering::SeqCst) {
            true => Err(overtaken()),
            false => Ok(()),
        }
    }

    pub(super) fn send(&self, manifest: Manifest, progress: Progress) {
        self.tell(Message::Move(Box::new(manifest), progress));
    }

    pub(super) fn drain(&self) {
        let (done, wait) = channel();
        self.tell(Message::Drain(done));
        let _ = wait.recv();
    }

    fn tell(&self, message: Message) {
        if let Some(sender) = &self.sender {
            let _ = sender.send(message);
        }
    }
}

impl Drop for Mover {
    fn drop(&mut self) {
        self.sender = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// From a node to the shared store.
pub(crate) struct Way {
    node: Arc<dyn Store>,
    shared: Arc<dyn Store>,
    /// The packs that are durable in the shared store: a manifest there names them, or this process
    /// has put them. One that is merely there may be what a kill has left of a move, and a power
    /// cut may still take it.
    durable: HashSet<(String, PackName)>,
    fenced: Arc<AtomicBool>,
}

fn overtaken() -> Error {
    Error::new(ErrorKind::Busy, "another process has taken this run over")
        .hint("end this one; it must not write any more")
}

impl Way {
    pub(super) fn new(node: Arc<dyn Store>, shared: Arc<dyn Store>, run: &str) -> Result<Self> {
        let manifests = Log::read(shared.clone(), run)?.manifests().0;
        let durable = manifests.iter().flat_map(packs_of).collect();
        Ok(Way { node, shared, durable, fenced: Arc::default() })
    }

    /// Brings a checkpoint over: its packs, then its manifest.
    fn bring(&mut self, manifest: &Manifest) -> Result<()> {
        if self.fenced.load(Ordering::SeqCst) {
            return Err(overtaken());
        }
        for pack in packs_of(manifest) {
            if self.durable.contains(&pack) {
                continue;
            }
            let key = Names::new(&pack.0).pack(pack.1);
            // The packs of a branch that came from another run were never on this node.
            match self.node.open(&key) {
                Ok(blob) => {
                    self.shared.delete(std::slice::from_ref(&key))?;
                    copy(blob.as_ref(), self.shared.put(&key)?)?;
                }
                Err(error) => drop(self.shared.open(&key).map_err(|_| error)?),
            }
            self.durable.insert(pack);
        }
        let key = Names::new(&manifest.run).entry(manifest.sequence);
        let bytes = manifest.write();
        if !self.shared.commit(&key, &bytes)? {
            let there = self.shared.open(&key).and_then(|blob| read_small(blob.as_ref()))?;
            if there != bytes {
                self.fenced.store(true, Ordering::SeqCst);
                self.node.delete(&[key])?;
                return Err(overtaken());
            }
        }
        Ok(())
    }

    /// Brings over whatever an earlier process left complete on the node only. What could not be
    /// brought is told with its step.
    ///
    /// If somebody has opened the run since then, through another node, the past that this node
    /// knows of is over, and it is removed.
    pub(super) fn roll_forward(&mut self, run: &str) -> Result<Vec<(u64, Error)>> {
        let near = Log::read(self.node.clone(), run)?;
        let far = Log::read(self.shared.clone(), run)?;
        let newest_writer = far.newest_writer();
        let mut trouble = Vec::new();
        for sequence in near.sequences.iter().filter(|s| !far.sequences.contains(s)) {
            let manifest = match near.manifest(*sequence) {
                Ok(Some(manifest)) => manifest,
                Ok(None) => continue,
                Err(error) => {
                    trouble.push((*sequence, error));
                    continue;
                }
            };
            let written_by = packs_of(&manifest).last().map(|(_, name)| name.writer);
            if newest_writer.is_some() && written_by != newest_writer {
                self.node.delete(&[Names::new(run).entry(*sequence)])?;
                continue;
            }
            if let Err(error) = self.bring(&manifest) {
                trouble.push((manifest.step, error));
            }
        }
        Ok(trouble)
    }

    /// Removes from the node what belongs to closed epochs and is in the shared store.
    fn evict(&self, newest: &Manifest) -> Result<()> {
        let names = Names::new(&newest.run);
        let log = Log::read(self.node.clone(), &newest.run)?;
        let mut old_entries = Vec::new();
        for sequence in log.sequences.iter().filter(|s| **s < newest.sequence) {
            let closed = log.manifest(*sequence)?.is_none_or(|m| m.epoch != newest.epoch);
            if closed && self.shared.open(&names.entry(*sequence)).is_ok() {
                old_entries.push(names.entry(*sequence));
            }
        }
        self.node.delete(&old_entries)?;
        let kept: HashSet<(String, PackName)> = packs_of(newest).collect();
        let newest_pack = kept.iter().filter(|(run, _)| *run == newest.run).map(|(_, p)| *p).max();
        let mut old_packs = Vec::new();
        for item in self.node.list(&names.packs())? {
            let Some(name) = Names::parse_pack(&item.name) else {
                continue;
            };
            let pack = (newest.run.clone(), name);
            let done = !kept.contains(&pack) && Some(name) < newest_pack;
            if done && self.durable.contains(&pack) {
                old_packs.push(names.pack(name));
            }
        }
        self.node.delete(&old_packs)
    }
}

/// Copies a pack, checking every frame on the way.
fn copy(from: &dyn Blob, mut to: Box<dyn Put>) -> Result<()> {
    let (_, footer): (_, Footer) = read_footer(from)?;
    let mut buffer = Vec::new();
    let mut at = 0;
    for frame in &footer.frames {
        buffer.resize((frame.position + frame.encoded - at) as usize, 0);
        from.read_at(at, &mut buffer)?;
        let encoded = &buffer[(frame.position - at) as usize..];
        if checksum(encoded) != frame.checksum {
            return Err(Error::damaged("a frame on the node is damaged; it was not moved on"));
        }
        to.append(&buffer)?;
        at = frame.position + frame.encoded;
    }
    buffer.resize((from.size() - at) as usize, 0);
    from.read_at(at, &mut buffer)?;
    to.append(&buffer)?;
    to.finish()
}
