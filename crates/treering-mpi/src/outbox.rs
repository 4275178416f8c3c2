//! Large messages between ranks of a machine, through memory that they share.
//!
//! Every rank has an outbox: a little anonymous memory (`memfd`) that the other ranks of its machine map. A large message
//! is copied into it once, however many ranks it goes to, or is made there at once. Each of them gets a note through MPI
//! that says where it lies, copies it out, and counts itself off. An outbox is small, so that what lies in it is in the
//! cache. Where processes may not open each other's memory (containers, other users), messages travel through MPI as
//! between machines.
//!
//! Laws: only its owner writes what lies in an outbox, and a place is used again when all receivers have counted
//! themselves off. After a failure the owner takes all places back; a receiver that is late finds another number there,
//! before or after it has copied, and the message does not count. Nothing is left of an outbox when its last user dies.

use bytes::Bytes;
use memmap2::{Mmap, MmapMut, MmapOptions, MmapRaw};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use std::collections::{HashMap, HashSet, VecDeque};
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering, fence};
use treering::{Comm, Error, ErrorKind, MessageMemory, MessageRoom, Rank, Result};

/// The bytes for messages.
const ROOM: usize = 4 << 20;
/// The head: a token, who has mapped it, and the places in use.
const HEAD: usize = 4096;
const TOKEN: usize = 16;
const READERS: usize = 1024;
const PLACES: usize = 128;

/// Messages lie at borders of pages: some processors copy slowly between places that are a few bytes off each other.
const ALIGNED: usize = 4096;

/// The least bytes that are worth the way through an outbox.
const LARGE: usize = 16 << 10;
/// The length of a note. Messages of this length go through the outbox, too, so that they are not taken for one.
pub(crate) const NOTE: usize = 25;

/// Where a message lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Note {
    /// A number that no other message of this outbox has.
    number: u64,
    at: u64,
    len: u64,
}

impl Note {
    fn write(self) -> Bytes {
        let mut note = vec![1];
        note.extend([self.number, self.at, self.len].iter().flat_map(|n| n.to_le_bytes()));
        note.into()
    }

    fn parse(note: &[u8]) -> Result<Note> {
        let numbers = note.get(1..).map(|rest| rest.as_chunks::<8>().0).unwrap_or_default();
        match numbers {
            [number, at, len] if note.len() == NOTE && note[0] == 1 => {
                let [number, at, len] = [number, at, len].map(|n| u64::from_le_bytes(*n));
                Ok(Note { number, at, len })
            }
            _ => Err(Error::new(ErrorKind::Damaged, "corrupt note of another rank")),
        }
    }
}

/// A message in an outbox.
struct Placed {
    number: u64,
    place: Range<usize>,
    /// Address and length of the message that was copied, or of this place.
    message: (usize, usize),
    /// Memory of the copy, so that nothing else uses it meanwhile.
    copied: Bytes,
    /// Of a message that was made here: somebody has its bytes as long as there are two of these.
    made: Option<Arc<()>>,
}

/// Where bytes lie.
fn address(bytes: &Bytes) -> (usize, usize) {
    (bytes.as_ptr().addr(), bytes.len())
}

/// A message that was made in an outbox.
struct MadeMessage {
    memory: Arc<MmapRaw>,
    place: Range<usize>,
    _used: Arc<()>,
}

impl AsRef<[u8]> for MadeMessage {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: the place was written before, and is not written again as long as this lives.
        unsafe {
            let start = self.memory.as_ptr().add(HEAD + self.place.start);
            std::slice::from_raw_parts(start, self.place.len())
        }
    }
}

/// The outbox of this rank.
struct Outbox {
    file: File,
    memory: Arc<MmapRaw>,
    placed: VecDeque<Placed>,
    last_number: u64,
}

/// The word of a place: its number, and how many ranks have not copied it yet.
fn word(head: *const u8, number: u64) -> *const AtomicU64 {
    let index = number as usize % PLACES;
    head.wrapping_add(TOKEN + READERS + index * size_of::<u64>()).cast()
}

fn left(word: u64) -> u64 {
    word & 0xffff
}

impl Outbox {
    fn new(token: [u8; TOKEN]) -> io::Result<Outbox> {
        let file = File::from(memfd_create("treering-outbox", MemfdFlags::CLOEXEC)?);
        ftruncate(&file, (HEAD + ROOM) as u64)?;
        let memory = Arc::new(MmapRaw::map_raw(&file)?);
        // SAFETY: the token lies at the start of the memory, which nobody else knows yet.
        unsafe { memory.as_mut_ptr().copy_from_nonoverlapping(token.as_ptr(), TOKEN) };
        Ok(Outbox { file, memory, placed: VecDeque::new(), last_number: 0 })
    }

    fn word(&self, number: u64) -> &AtomicU64 {
        // SAFETY: the words lie in the head, which is mapped as long as this lives, and are aligned.
        unsafe { &*word(self.memory.as_ptr(), number) }
    }

    /// Whether a rank has mapped it.
    fn is_read_by(&self, reader: usize) -> bool {
        // SAFETY: the byte lies in the head.
        let mapped = || unsafe { &*self.memory.as_ptr().add(TOKEN + reader).cast::<AtomicU8>() };
        reader < READERS && mapped().load(Ordering::Acquire) == 1
    }

    /// Where a message lies for one more receiver; `None`: there is no room now.
    fn put(&mut self, bytes: &Bytes) -> Option<Note> {
        let same = |placed: &&Placed| placed.message == address(bytes);
        if let Some(placed) = self.placed.iter().find(same) {
            self.word(placed.number).fetch_add(1, Ordering::AcqRel);
            return Some(note_of(placed));
        }
        let place = self.place(bytes.len())?;
        self.write(&place, &mut |to| to[..bytes.len()].copy_from_slice(bytes));
        let message = address(bytes);
        let number =
            self.add(Placed { number: 0, place, message, copied: bytes.clone(), made: None });
        self.word(number).fetch_add(1, Ordering::AcqRel);
        self.placed.back().map(note_of)
    }

    /// Makes a message, for receivers that will be named; `None`: there is no room now.
    fn make(&mut self, len: usize, fill: &mut dyn FnMut(&mut [u8])) -> Option<Bytes> {
        let place = self.place(len)?;
        self.write(&place, &mut |to| fill(&mut to[..len]));
        let (memory, used) = (self.memory.clone(), Arc::new(()));
        let made =
            MadeMessage { memory, place: place.start..place.start + len, _used: used.clone() };
        let bytes = Bytes::from_owner(made);
        let message = address(&bytes);
        self.add(Placed { number: 0, place, message, copied: Bytes::new(), made: Some(used) });
        Some(bytes)
    }

    /// A place for a message.
    fn place(&mut self, len: usize) -> Option<Range<usize>> {
        let used: usize = self.placed.iter().map(|placed| placed.place.len()).sum();
        if used + len > ROOM / 2 {
            self.tidy();
        }
        let len = len.max(1).next_multiple_of(ALIGNED);
        self.room(len).map(|at| at..at + len)
    }

    fn write(&mut self, place: &Range<usize>, write: &mut dyn FnMut(&mut [u8])) {
        // SAFETY: the place is within the memory, and nobody reads it before its number is there.
        write(unsafe {
            let start = self.memory.as_mut_ptr().add(HEAD + place.start);
            std::slice::from_raw_parts_mut(start, place.len())
        });
    }

    /// Adds a message that was written; its number. It has no receivers yet.
    fn add(&mut self, placed: Placed) -> u64 {
        self.last_number += 1;
        let number = self.last_number;
        self.word(number).store(number << 16, Ordering::Release);
        self.placed.push_back(Placed { number, ..placed });
        number
    }

    /// The bytes of places of which somebody has a note and has not copied them yet.
    fn on_their_way(&self) -> usize {
        let left = |placed: &&Placed| left(self.word(placed.number).load(Ordering::Acquire)) > 0;
        self.placed.iter().filter(left).map(|placed| placed.place.len()).sum()
    }

    /// Takes back the oldest places that all receivers have copied.
    fn tidy(&mut self) {
        let is_free = |outbox: &Outbox, placed: &Placed| {
            left(outbox.word(placed.number).load(Ordering::Acquire)) == 0 && !placed.is_held()
        };
        while self.placed.front().is_some_and(|first| is_free(self, first)) {
            self.placed.pop_front();
        }
    }

    /// Room for this many bytes in one piece.
    fn room(&self, len: usize) -> Option<usize> {
        let (Some(first), Some(last)) = (self.placed.front(), self.placed.back()) else {
            return (len <= ROOM).then_some(0);
        };
        let (start, end) = (first.place.start, last.place.end);
        let fits = match start < end {
            true if end + len <= ROOM => Some(end),
            true => (len <= start).then_some(0),
            false => (end + len <= start).then_some(end),
        };
        fits.filter(|_| self.placed.len() < PLACES)
    }

    /// Lets go of the memory of messages; their places stay until they have been copied.
    fn release(&mut self) {
        self.tidy();
        for placed in self.placed.iter_mut().filter(|placed| placed.made.is_none()) {
            (placed.message, placed.copied) = ((0, 0), Bytes::new());
        }
    }

    /// Takes all places back, whichever rank may still read them.
    fn clear(&mut self) {
        for placed in &self.placed {
            self.word(placed.number).store(placed.number << 16, Ordering::Release);
        }
        self.release();
    }
}

impl Placed {
    /// Whether this process still has its bytes.
    fn is_held(&self) -> bool {
        self.made.as_ref().is_some_and(|used| Arc::strong_count(used) > 1)
    }
}

fn note_of(placed: &Placed) -> Note {
    Note { number: placed.number, at: placed.place.start as u64, len: placed.message.1 as u64 }
}

/// The outbox of another rank.
struct OtherOutbox {
    head: MmapMut,
    messages: Mmap,
}

impl OtherOutbox {
    /// Maps the outbox of a process, and says so there.
    fn open(process: u64, descriptor: u64, token: &[u8], reader: usize) -> io::Result<OtherOutbox> {
        let path = format!("/proc/{process}/fd/{descriptor}");
        let file = File::options().read(true).write(true).open(path)?;
        if file.metadata()?.len() != (HEAD + ROOM) as u64 {
            return Err(io::ErrorKind::InvalidData.into());
        }
        // SAFETY: the memory is anonymous; its owner keeps to the laws above.
        let (head, messages) = unsafe {
            let head = MmapOptions::new().len(HEAD).map_mut(&file)?;
            (head, MmapOptions::new().offset(HEAD as u64).len(ROOM).map(&file)?)
        };
        // Another process may have that number by now, or this one is in another namespace.
        if &head[..TOKEN] != token || reader >= READERS {
            return Err(io::ErrorKind::InvalidData.into());
        }
        // SAFETY: the byte lies in the head, and every reader has one of its own.
        let mapped = unsafe { &*head.as_ptr().add(TOKEN + reader).cast::<AtomicU8>() };
        mapped.store(1, Ordering::Release);
        Ok(OtherOutbox { head, messages })
    }

    /// Copies a message, and says so there.
    fn take(&self, note: Note, to: &mut MessageRoom) -> Result<()> {
        let overtaken = || {
            let what = "the sender of a message has taken it back after a failure";
            Err(Error::new(ErrorKind::Revoked, what))
        };
        // SAFETY: the words lie in the head, which is mapped as long as this lives, and are aligned.
        let word = unsafe { &*word(self.head.as_ptr(), note.number) };
        let is_current = |word: u64| word >> 16 == note.number && left(word) > 0;
        if !is_current(word.load(Ordering::Acquire)) {
            return overtaken();
        }
        let end = note.at.checked_add(note.len).filter(|end| *end <= ROOM as u64);
        let Some(end) = end else {
            return Err(Error::new(ErrorKind::Damaged, "a message lies outside of its outbox"));
        };
        to.fill(&self.messages[note.at as usize..end as usize]);
        fence(Ordering::AcqRel);
        let count_off = |word: u64| is_current(word).then(|| word - 1);
        match word.fetch_update(Ordering::AcqRel, Ordering::Acquire, count_off) {
            Ok(_) => Ok(()),
            Err(_) => overtaken(),
        }
    }
}

/// The way in which a message travels.
pub(crate) enum Outgoing {
    /// Through MPI.
    Through,
    /// It lies in the outbox, and this note is sent.
    Noted(Bytes),
    /// There will be room in the outbox.
    Later,
}

/// The outboxes of the ranks of a machine, as one of them sees them. Ranks are those of `MPI_COMM_WORLD`.
pub(crate) struct Outboxes {
    own: Outbox,
    /// The ranks that have mapped the own one.
    readers: HashSet<i32>,
    others: HashMap<i32, OtherOutbox>,
}

impl Outboxes {
    /// Shares outboxes among the ranks of a machine; collective. A rank that cannot share has none, and the others know.
    pub(crate) fn share(machine: &dyn Comm, world_rank: i32) -> Result<Option<Outboxes>> {
        let mut token = [0; TOKEN];
        let own = random(&mut token).and_then(|()| Outbox::new(token)).ok();
        let letter = own.as_ref().map_or_else(Vec::new, |own| {
            let numbers =
                [world_rank as u64, std::process::id().into(), own.file.as_raw_fd() as u64];
            let numbers = numbers.iter().flat_map(|number| number.to_le_bytes());
            numbers.chain(token).collect()
        });
        // Letters of one length, so that one broadcast has them all.
        const LETTER: usize = 3 * 8 + TOKEN;
        let mut all = machine.gather(Rank(0), &letter)?;
        all.iter_mut().for_each(|letter| letter.resize(LETTER, 0xff));
        let mut table = all.concat();
        machine.broadcast(Rank(0), &mut table)?;
        let reader = machine.rank().0 as usize;
        let (mut others, mut ranks) = (HashMap::new(), Vec::new());
        for letter in table.chunks_exact(LETTER) {
            let number = |at: usize| {
                letter[at * 8..].first_chunk().map_or(u64::MAX, |n| u64::from_le_bytes(*n))
            };
            let rank = number(0) as i32;
            ranks.push(rank);
            if own.is_some() && rank >= 0 && rank != world_rank {
                let opened = OtherOutbox::open(number(1), number(2), &letter[3 * 8..], reader);
                others.extend(opened.ok().map(|other| (rank, other)));
            }
        }
        // All have mapped what they can.
        machine.reduce(treering::Reduction::Sum, &mut [0])?;
        Ok(own.map(|own| {
            let readers = ranks.into_iter().enumerate();
            let readers = readers.filter(|(reader, _)| own.is_read_by(*reader));
            let readers = readers.map(|(_, rank)| rank).collect();
            Outboxes { own, readers, others }
        }))
    }

    /// Whether a message to a rank goes through the outbox.
    fn carries(&self, to: i32, len: usize) -> bool {
        let fits = (LARGE..=ROOM / 2).contains(&len) || len == NOTE;
        fits && self.readers.contains(&to)
    }

    /// Puts a message into the outbox for one more receiver, if that is its way.
    pub(crate) fn put(&mut self, to: i32, bytes: &Bytes) -> Outgoing {
        if !self.carries(to, bytes.len()) {
            return Outgoing::Through;
        }
        let note = self.own.put(bytes).or_else(|| {
            self.own.tidy();
            self.own.put(bytes)
        });
        match note {
            Some(note) => Outgoing::Noted(note.write()),
            // A message that is not on its way may wait for this message itself.
            None if bytes.len() != NOTE && self.own.on_their_way() == 0 => Outgoing::Through,
            None => Outgoing::Later,
        }
    }

    /// Whether so little is on its way that more messages may be made.
    pub(crate) fn has_room(&self) -> bool {
        self.own.on_their_way() <= ROOM / 2
    }

    /// Whether messages of a rank may come through its outbox.
    pub(crate) fn reads(&self, from: i32) -> bool {
        self.others.contains_key(&from)
    }

    /// The length of the message of a note: at most the room of an outbox.
    pub(crate) fn length(note: &[u8]) -> Result<usize> {
        Note::parse(note).map(|note| (note.len as usize).min(ROOM))
    }

    /// Copies the message of a note.
    pub(crate) fn take(&self, from: i32, note: &[u8], to: &mut MessageRoom) -> Result<()> {
        let note = Note::parse(note)?;
        match self.others.get(&from) {
            Some(other) => other.take(note, to),
            None => Err(Error::new(ErrorKind::Damaged, "a note comes from an unknown outbox")),
        }
    }

    /// Ends an exchange. After a failure, everything is taken back.
    pub(crate) fn end(&mut self, well: bool) {
        match well {
            true => self.own.release(),
            false => self.own.clear(),
        }
    }
}

impl MessageMemory for Outboxes {
    fn make(&mut self, len: usize, fill: &mut dyn FnMut(&mut [u8])) -> Option<Bytes> {
        let worth = (LARGE..=ROOM / 2).contains(&len) && !self.readers.is_empty();
        worth.then(|| self.own.make(len, fill)).flatten()
    }
}

fn random(to: &mut [u8]) -> io::Result<()> {
    io::Read::read_exact(&mut File::open("/dev/urandom")?, to)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An outbox and its one reader.
    fn pair() -> (Outbox, OtherOutbox) {
        let own = Outbox::new([7; TOKEN]).unwrap();
        let (process, descriptor) = (std::process::id().into(), own.file.as_raw_fd() as u64);
        assert!(OtherOutbox::open(process, descriptor, &[8; TOKEN], 0).is_err());
        assert!(!own.is_read_by(3));
        let other = OtherOutbox::open(process, descriptor, &[7; TOKEN], 3).unwrap();
        assert!(own.is_read_by(3) && !own.is_read_by(4));
        (own, other)
    }

    fn message(number: usize, len: usize) -> Bytes {
        (0..len).map(|at| (at * 7 + number) as u8).collect::<Vec<u8>>().into()
    }

    fn taken(other: &OtherOutbox, note: Note) -> Result<Vec<u8>> {
        let mut to = MessageRoom::new(0);
        other.take(note, &mut to).map(|()| to.bytes.to_vec())
    }

    #[test]
    fn messages_come_out_as_they_were_put_in_however_far_behind_their_readers_are() {
        let (mut own, other) = pair();
        let mut waiting: VecDeque<(Note, Bytes)> = VecDeque::new();
        for number in 0..3000 {
            let message = message(number, 1 + number * 7919 % (ROOM / 3));
            // Each goes to two readers, the second of which is later.
            for _ in 0..2 {
                loop {
                    match own.put(&message) {
                        Some(note) => break waiting.push_back((note, message.clone())),
                        None => {
                            let (note, expected) = waiting.pop_front().expect("room for one");
                            assert!(taken(&other, note).unwrap() == expected, "{number}");
                            own.tidy();
                        }
                    }
                }
            }
            while waiting.len() > number % 50 {
                let (note, expected) = waiting.pop_front().unwrap();
                assert!(taken(&other, note).unwrap() == expected, "{number}");
            }
        }
    }

    #[test]
    fn what_was_taken_back_does_not_count() {
        let (mut own, other) = pair();
        let note = own.put(&message(1, 100_000)).unwrap();
        own.clear();
        let next = own.put(&message(2, 100_000)).unwrap();
        assert_eq!(taken(&other, note).unwrap_err().kind(), ErrorKind::Revoked);
        // The late reader has not counted itself off in the place of another message.
        assert!(taken(&other, next).unwrap() == message(2, 100_000));
        assert_eq!(taken(&other, next).unwrap_err().kind(), ErrorKind::Revoked);
        // A message that is made here stays while somebody has it, and can be read by those who get a note of it.
        let made = own.make(50_000, &mut |to| to.copy_from_slice(&message(4, 50_000))).unwrap();
        own.clear();
        let note = own.put(&made).unwrap();
        assert!(made == message(4, 50_000) && taken(&other, note).unwrap() == made);
        own.tidy();
        assert_eq!(own.placed.len(), 1);
        drop(made);
        own.tidy();
        assert!(own.placed.is_empty());
        let outside = Note { at: u64::MAX - 3, ..own.put(&message(3, 10)).unwrap() };
        assert_eq!(taken(&other, outside).unwrap_err().kind(), ErrorKind::Damaged);
    }

    #[test]
    fn notes_are_understood_and_junk_is_refused() {
        let note = Note { number: u64::MAX >> 16, at: 5, len: 1 << 20 };
        assert_eq!(Note::parse(&note.write()).unwrap(), note);
        for len in (0..40).filter(|len| *len != NOTE) {
            assert!(Note::parse(&vec![1; len]).is_err());
        }
        assert!(Note::parse(&[2; NOTE]).is_err());
    }
}
