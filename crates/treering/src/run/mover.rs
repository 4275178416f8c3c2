//! From the node's store to the shared one, behind the worker.
//!
//! Packs before manifests, in order. A pack that is missing in the shared store because an earlier
//! move failed is brought along, so a passing fault heals by itself. What the node holds of closed
//! epochs is removed once the shared store has it.

use super::options::Options;
use super::save::{Failures, Progress};
use crate::error::{Error, ErrorKind, Result};
use crate::format::{Footer, LogEntry, Manifest, Names};
use crate::merkle::checksum;
use crate::restore::{Log, read_footer};
use crate::store::{Blob, Put, Store};
use std::collections::HashSet;
use std::sync::Arc;
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
}

impl Mover {
    pub(super) fn start(
        node: Arc<dyn Store>,
        options: &Options,
        failures: Failures,
    ) -> Result<Self> {
        let (sender, receiver) = channel();
        let shared = options.shared.clone();
        let thread = std::thread::Builder::new().name("treering-mover".into());
        let spawned = thread.spawn(move || {
            while let Ok(message) = receiver.recv() {
                match message {
                    Message::Drain(done) => drop(done.send(())),
                    Message::Move(manifest, progress) => {
                        let moved = bring(node.as_ref(), shared.as_ref(), &manifest);
                        match moved {
                            Ok(()) => {
                                progress.durable();
                                // What cannot be removed now is removed after the next move.
                                let _ = evict(&node, shared.as_ref(), &manifest);
                            }
                            Err(error) => {
                                failures.add(manifest.step, error.clone());
                                progress.failed(error);
                            }
                        }
                    }
                }
            }
        });
        let thread = spawned.map_err(|e| Error::io("cannot start the threads of a run", e))?;
        Ok(Mover { sender: Some(sender), thread: Some(thread) })
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

/// Brings a checkpoint from the node to the shared store: its packs, then its manifest.
pub(super) fn bring(node: &dyn Store, shared: &dyn Store, manifest: &Manifest) -> Result<()> {
    for (number, group) in manifest.groups.iter().enumerate() {
        for (run, name) in group.names(number as u32) {
            let key = Names::new(run).pack(name);
            if shared.open(&key).is_ok_and(|blob| is_whole(blob.as_ref())) {
                continue;
            }
            // What a broken move left behind has no manifest, so nothing refers to it.
            shared.delete(std::slice::from_ref(&key))?;
            copy(node.open(&key)?.as_ref(), shared.put(&key)?)?;
        }
    }
    let key = Names::new(&manifest.run).entry(manifest.sequence);
    let bytes = manifest.write();
    if !shared.commit(&key, &bytes)? {
        let there = shared.open(&key).and_then(|blob| crate::store::read_small(blob.as_ref()))?;
        if there != bytes {
            node.delete(&[key])?;
            return Err(Error::new(ErrorKind::Busy, "another process has taken this run over")
                .hint("end this one; it must not write any more"));
        }
    }
    Ok(())
}

/// Whether a pack was put to its end: its trailer and footer agree.
fn is_whole(blob: &dyn Blob) -> bool {
    read_footer(blob).is_ok()
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

/// Removes from the node what belongs to closed epochs and is in the shared store.
fn evict(node: &Arc<dyn Store>, shared: &dyn Store, newest: &Manifest) -> Result<()> {
    let names = Names::new(&newest.run);
    let log = Log::read(node.clone(), &newest.run)?;
    let mut old_entries = Vec::new();
    for sequence in &log.sequences {
        let closed = log.manifest(*sequence)?.is_none_or(|m| m.epoch != newest.epoch);
        if closed && *sequence < newest.sequence && shared.open(&names.entry(*sequence)).is_ok() {
            old_entries.push(names.entry(*sequence));
        }
    }
    node.delete(&old_entries)?;
    let kept: HashSet<_> = newest.groups[0].names(0).map(|(_, name)| name).collect();
    let newest_attempt = kept.iter().max().copied();
    let mut old_packs = Vec::new();
    for item in node.list(&names.packs())? {
        let Some(name) = Names::parse_pack(&item.name) else {
            continue;
        };
        let key = names.pack(name);
        let done = !kept.contains(&name) && Some(name) < newest_attempt;
        if done && shared.open(&key).is_ok_and(|blob| blob.size() == item.size) {
            old_packs.push(key);
        }
    }
    node.delete(&old_packs)
}

/// Brings over whatever an earlier process left complete on the node only.
pub(super) fn roll_forward(
    node: &Arc<dyn Store>,
    shared: &Arc<dyn Store>,
    run: &str,
) -> Result<()> {
    let near = Log::read(node.clone(), run)?;
    let far = Log::read(shared.clone(), run)?;
    for sequence in near.sequences.iter().filter(|s| !far.sequences.contains(s)) {
        if let Ok(LogEntry::Manifest(manifest)) = near.entry(*sequence) {
            bring(node.as_ref(), shared.as_ref(), &manifest)?;
        }
    }
    Ok(())
}
