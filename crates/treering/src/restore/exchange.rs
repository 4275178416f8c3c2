//! Filling the arrays of all ranks from a checkpoint of which each rank has loaded a part.
//!
//! Ranks that read for themselves would read the same frames many times: a box of another decomposition cuts frames
//! of many ranks, and all of them need the footers of all. So each frame is read and decoded by one rank, which hands
//! its bytes on (mcrEngine, §4.2). First all ranks exchange what they need and what they hold: about 150 bytes for
//! each variable of each rank, the only thing that every rank has of all others. Then holders offer, and whoever
//! needs something checks that the offers are complete before anything is read. Then data flows in rounds: a holder
//! sends [`ROUND`] bytes at most in each.
//!
//! Every rank takes part in every round, and a failure of one ends them for all: nobody waits for a rank that has
//! given up.

use super::checkpoint::Checkpoint;
use super::delivery::{BytePiece, HeldVariable, Known, Need, Share, WINDOW, covering, pieces};
use crate::array::{Description, IndexBox, Part, Rank, VariableMut};
use crate::comm::{Comm, Message, Reduction};
use crate::error::{Error, ErrorKind, Result};
use crate::format::VariableEntry;
use crate::memory::zeroed;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::ops::Range;

/// The bytes that a rank reads, or sends, in one round.
const ROUND: u64 = 64 << 20;

/// What a rank has loaded of a checkpoint, and which of these variables it hands on; each variable has one holder.
pub(crate) struct HeldCheckpoint<'a> {
    pub(crate) checkpoint: &'a Checkpoint,
    pub(crate) serves: &'a dyn Fn(&VariableEntry) -> bool,
}

/// Fills arrays of all ranks; collective. The positions of optional ones that the checkpoint does not have.
pub(crate) fn fill_together(
    comm: &dyn Comm,
    held: Result<HeldCheckpoint>,
    targets: &mut [&mut VariableMut],
) -> Result<Vec<usize>> {
    let mut flags = [u64::from(held.is_err()), u64::from(!targets.is_empty())];
    comm.reduce(Reduction::Max, &mut flags)?;
    let held = match (held, flags) {
        (Err(error), _) => return Err(error),
        (Ok(_), [1, _]) => return Err(failed_elsewhere()),
        (Ok(_), [_, 0]) => return Ok(Vec::new()),
        (Ok(held), _) => held,
    };
    let entries = held.checkpoint.entries().iter();
    let entries: Vec<&VariableEntry> =
        entries.filter(|entry| !entry.is_hidden() && (held.serves)(entry)).collect();
    let own = Announcement::of(targets, &entries);
    let all: Vec<Announcement> = share_all(comm, &own)?;
    let (needs, variables): (Vec<Vec<Need>>, Vec<Vec<HeldVariable>>) =
        all.into_iter().map(|announcement| (announcement.needs, announcement.held)).unzip();
    let saved_by = held.checkpoint.manifest().ranks;
    let known = Known::new(saved_by, comm.size(), variables.into_iter().flatten().collect());

    let (queue, offers) = offer(&known, &entries, &needs);
    let received = hand_out(comm, &offers)?;
    let read = received.iter().map(|(_, bytes)| parse::<Vec<Offer>>(bytes));
    let checked = read.collect::<Result<Vec<_>>>().and_then(|offers| {
        let offers: Vec<Offer> = offers.into_iter().flatten().collect();
        check(held.checkpoint, &known, comm.rank(), &own.needs, &offers, targets)
    });
    let (missing, expected) = all_well(comm, checked)?;

    let sender = Sender { checkpoint: held.checkpoint, needs: &needs, queue, window: None };
    let filled = deliver(comm, sender, targets)?;
    match filled == expected {
        true => Ok(missing),
        false => Err(Error::damaged("a restore did not fill its arrays; please report it")),
    }
}

/// What a rank needs and holds.
#[derive(Serialize, Deserialize)]
struct Announcement {
    needs: Vec<Need>,
    /// Every variable of rows, and the first of each other name.
    held: Vec<HeldVariable>,
}

impl Announcement {
    fn of(targets: &[&mut VariableMut], entries: &[&VariableEntry]) -> Announcement {
        let mut names = HashSet::new();
        let told = entries.iter().filter(|entry| {
            let new = names.insert(&entry.description.name);
            new || entry.description.part == Some(Part::Rows)
        });
        Announcement {
            needs: targets.iter().map(|target| Need::of(target.description())).collect(),
            held: told.map(|entry| held_variable(entry)).collect(),
        }
    }
}

fn held_variable(entry: &VariableEntry) -> HeldVariable {
    HeldVariable { source: entry.rank.0, description: entry.description.clone() }
}

/// A share of a stored variable that a rank gets.
#[derive(Serialize, Deserialize)]
struct Offer {
    /// Which of its needs.
    need: u32,
    share: Share,
    variable: HeldVariable,
}

/// A stored variable, and the shares of ranks in it.
struct Served<'a> {
    entry: &'a VariableEntry,
    shares: Vec<(Rank, u32, Share)>,
}

/// What this rank hands on, and what it tells the others about that.
fn offer<'a>(
    known: &Known,
    entries: &[&'a VariableEntry],
    needs: &[Vec<Need>],
) -> (VecDeque<Served<'a>>, BTreeMap<Rank, Vec<Offer>>) {
    let mut by_name: HashMap<&str, Vec<(Rank, u32)>> = HashMap::new();
    for (rank, needs) in needs.iter().enumerate() {
        for (number, need) in needs.iter().enumerate() {
            let place = (Rank(rank as u32), number as u32);
            by_name.entry(&need.name).or_default().push(place);
        }
    }
    let (mut queue, mut offers) = (VecDeque::new(), BTreeMap::<Rank, Vec<Offer>>::new());
    for entry in entries {
        let variable = held_variable(entry);
        let mut shares = Vec::new();
        for (rank, number) in by_name.get(entry.description.name.as_str()).into_iter().flatten() {
            let need = &needs[rank.0 as usize][*number as usize];
            let Some(share) = known.share(&variable, need, *rank) else { continue };
            // Whoever gets rows knows which: everybody knows how many rows everybody had.
            if !matches!(share, Share::Rows { .. }) {
                let (share, variable) = (share.clone(), variable.clone());
                let offer = Offer { need: *number, share, variable };
                offers.entry(*rank).or_default().push(offer);
            }
            shares.push((*rank, *number, share));
        }
        if !shares.is_empty() {
            queue.push_back(Served { entry, shares });
        }
    }
    (queue, offers)
}

/// Hands offers to the ranks that they are for; those for this one, not parsed.
fn hand_out(comm: &dyn Comm, offers: &BTreeMap<Rank, Vec<Offer>>) -> Result<Vec<Message>> {
    let written = offers.iter().map(|(rank, offers)| Ok((*rank, write(offers)?)));
    let written: Vec<(Rank, Vec<u8>)> = written.collect::<Result<_>>()?;
    let messages: Vec<(Rank, &[u8])> = written.iter().map(|(rank, m)| (*rank, &m[..])).collect();
    comm.exchange(&messages)
}

/// Checks that offers are what this rank needs, and makes room for them; what is missing, and the bytes that come.
fn check(
    checkpoint: &Checkpoint,
    known: &Known,
    rank: Rank,
    needs: &[Need],
    offers: &[Offer],
    targets: &mut [&mut VariableMut],
) -> Result<(Vec<usize>, u64)> {
    let (mut missing, mut expected) = (Vec::new(), 0u64);
    for (number, (target, need)) in targets.iter_mut().zip(needs).enumerate() {
        let for_this = offers.iter().filter(|offer| offer.need as usize == number);
        if !known.has(&need.name) {
            match target.is_optional() {
                true => missing.push(number),
                false => return Err(known.has_no(&need.name, rank).at(checkpoint.place())),
            }
            continue;
        }
        expected += match target.description().global_box().cloned() {
            Some(part) => {
                let boxes = for_this.filter_map(|offer| match &offer.share {
                    Share::Common(common) => Some((
                        Rank(offer.variable.source),
                        common.clone(),
                        &offer.variable.description,
                    )),
                    _ => None,
                });
                let boxes: Vec<(Rank, IndexBox, &Description)> = boxes.collect();
                let description = target.description().clone();
                known.check_box(&description, &part, &boxes)?;
                let elements = part.inside(&description.shape).elements().unwrap_or(0);
                elements * description.dtype.size()
            }
            None => {
                let whole = for_this.map(|offer| offer.variable.description.clone()).next();
                let stored = known.rows_of(need, rank).or(whole);
                let stored = stored.ok_or_else(|| known.belongs_to_its_rank(&need.name))?;
                target.fit(&stored)?;
                stored.bytes().unwrap_or(0)
            }
        };
    }
    Ok((missing, expected))
}

/// Sends and receives data until nobody has more; the bytes that arrived here.
fn deliver(comm: &dyn Comm, mut sender: Sender, targets: &mut [&mut VariableMut]) -> Result<u64> {
    let mut filled = 0;
    loop {
        let round = sender.round(comm.rank(), targets, &mut filled);
        let none = BTreeMap::new();
        let outgoing = round.as_ref().unwrap_or(&none).iter();
        let messages: Vec<(Rank, &[u8])> = outgoing.map(|(rank, m)| (*rank, &m[..])).collect();
        let received = comm.exchange(&messages)?;
        drop(messages);
        let done = round.and_then(|_| {
            received.iter().try_for_each(|(_, bytes)| take(bytes, targets, &mut filled))
        });
        let mut flags = [u64::from(done.is_err()), u64::from(sender.has_more())];
        comm.reduce(Reduction::Max, &mut flags)?;
        done?;
        match flags {
            [1, _] => return Err(failed_elsewhere()),
            [_, 0] => return Ok(filled),
            _ => {}
        }
    }
}

/// The variables that this rank hands on, window by window.
struct Sender<'a> {
    checkpoint: &'a Checkpoint,
    needs: &'a [Vec<Need>],
    queue: VecDeque<Served<'a>>,
    window: Option<ReadWindow<'a>>,
}

/// Bytes of a variable that were read, and pieces that are still to be sent.
struct ReadWindow<'a> {
    entry: &'a VariableEntry,
    /// Sorted by where they begin in the variable.
    pieces: VecDeque<BytePiece>,
    /// The end of what was read, and the place of each range in the buffer.
    end: u64,
    ranges: Vec<(Range<u64>, usize)>,
    buffer: Vec<u8>,
}

impl<'a> Sender<'a> {
    fn has_more(&self) -> bool {
        !self.queue.is_empty() || self.window.is_some()
    }

    /// The messages of the next round; what this rank needs itself is filled at once.
    fn round(
        &mut self,
        own: Rank,
        targets: &mut [&mut VariableMut],
        filled: &mut u64,
    ) -> Result<BTreeMap<Rank, Vec<u8>>> {
        let mut messages = BTreeMap::<Rank, Vec<u8>>::new();
        let (mut read, mut sent) = (0, 0);
        while read < ROUND && sent < ROUND {
            let Some(window) = self.window(&mut read)? else { break };
            let Some(piece) = window.pieces.pop_front() else { continue };
            let bytes = window.bytes(&piece);
            match piece.rank == own {
                true => fill(targets, &piece, bytes, filled)?,
                false => {
                    sent += piece.len;
                    let message = messages.entry(piece.rank).or_default();
                    message.extend_from_slice(&piece.need.to_le_bytes());
                    message.extend_from_slice(&piece.to.to_le_bytes());
                    message.extend_from_slice(&piece.len.to_le_bytes());
                    message.extend_from_slice(bytes);
                }
            }
            if window.pieces.is_empty() {
                self.window = None;
            }
        }
        Ok(messages)
    }

    /// The window that holds the next piece, read if need be; `None` if there are no more pieces.
    fn window(&mut self, read: &mut u64) -> Result<Option<&mut ReadWindow<'a>>> {
        while self.window.is_none() {
            let Some(Served { entry, shares }) = self.queue.pop_front() else { return Ok(None) };
            let of = |(rank, number, share): &(Rank, u32, Share)| {
                let need = &self.needs[rank.0 as usize][*number as usize];
                pieces(&entry.description, (share, need), (*rank, *number))
            };
            let mut pieces: Vec<BytePiece> = shares.iter().flat_map(of).collect();
            pieces.sort_by_key(|piece| piece.from);
            if !pieces.is_empty() {
                let (ranges, buffer) = (Vec::new(), Vec::new());
                self.window =
                    Some(ReadWindow { entry, pieces: pieces.into(), end: 0, ranges, buffer });
            }
        }
        if let Some(window) = &mut self.window {
            *read += window.load(self.checkpoint)?;
        }
        Ok(self.window.as_mut())
    }
}

impl ReadWindow<'_> {
    /// Reads the window of the next piece unless it was; how many bytes that are.
    fn load(&mut self, checkpoint: &Checkpoint) -> Result<u64> {
        let Some(next) = self.pieces.front().filter(|piece| piece.from >= self.end) else {
            return Ok(0);
        };
        self.end = (next.from / WINDOW + 1) * WINDOW;
        let here = self.pieces.partition_point(|piece| piece.from < self.end);
        let ranges = covering(&self.pieces.make_contiguous()[..here]);
        let bytes: u64 = ranges.iter().map(|range| range.end - range.start).sum();
        self.buffer = zeroed(bytes)?;
        match &ranges[..] {
            // A variable that is read as a whole is checked by its root, too.
            [whole] if *whole == (0..self.entry.bytes()) => {
                checkpoint.read_bytes(self.entry, whole.clone(), &mut self.buffer)?;
            }
            _ => checkpoint.read_ranges(self.entry, &ranges, &mut self.buffer)?,
        }
        let mut at = 0;
        let place = |range: Range<u64>| {
            let start = at;
            at += (range.end - range.start) as usize;
            (range, start)
        };
        self.ranges = ranges.into_iter().map(place).collect();
        Ok(bytes)
    }

    /// The bytes of a piece, which was read.
    fn bytes(&self, piece: &BytePiece) -> &[u8] {
        let behind = self.ranges.partition_point(|(range, _)| range.start <= piece.from);
        let (range, start) = &self.ranges[behind - 1];
        &self.buffer[start + (piece.from - range.start) as usize..][..piece.len as usize]
    }
}

/// Fills the pieces of a message.
fn take(message: &[u8], targets: &mut [&mut VariableMut], filled: &mut u64) -> Result<()> {
    let mut rest = message;
    while let Some((head, behind)) = rest.split_first_chunk::<20>() {
        let number = |bytes: &[u8]| bytes.iter().rev().fold(0u64, |n, b| n << 8 | u64::from(*b));
        let (need, to, len) = (number(&head[..4]), number(&head[4..12]), number(&head[12..]));
        let bytes = behind.get(..len as usize).ok_or_else(garbled)?;
        let piece = BytePiece { rank: Rank(0), need: need as u32, from: 0, to, len };
        fill(targets, &piece, bytes, filled)?;
        rest = &behind[len as usize..];
    }
    match rest.is_empty() {
        true => Ok(()),
        false => Err(garbled()),
    }
}

fn fill(
    targets: &mut [&mut VariableMut],
    piece: &BytePiece,
    bytes: &[u8],
    filled: &mut u64,
) -> Result<()> {
    let target = targets.get_mut(piece.need as usize).ok_or_else(garbled)?.bytes();
    let place = target.get_mut(piece.to as usize..).and_then(|t| t.get_mut(..bytes.len()));
    place.ok_or_else(garbled)?.copy_from_slice(bytes);
    *filled += bytes.len() as u64;
    Ok(())
}

/// The values of all ranks, on every rank.
fn share_all<T: Serialize + DeserializeOwned>(comm: &dyn Comm, own: &T) -> Result<Vec<T>> {
    let root = Rank(0);
    let gathered = comm.gather(root, &write(own)?)?;
    let mut all = Vec::new();
    for bytes in &gathered {
        all.extend_from_slice(&(bytes.len() as u64).to_le_bytes());
        all.extend_from_slice(bytes);
    }
    drop(gathered);
    comm.broadcast(root, &mut all)?;
    let (mut values, mut rest) = (Vec::new(), &all[..]);
    while let Some((head, behind)) = rest.split_first_chunk::<8>() {
        let len = u64::from_le_bytes(*head) as usize;
        values.push(parse(behind.get(..len).ok_or_else(garbled)?)?);
        rest = &behind[len..];
    }
    match values.len() == comm.size() as usize {
        true => Ok(values),
        false => Err(garbled()),
    }
}

/// Goes on if all ranks can; whoever cannot has the reason.
fn all_well<T>(comm: &dyn Comm, own: Result<T>) -> Result<T> {
    let mut failed = [u64::from(own.is_err())];
    comm.reduce(Reduction::Max, &mut failed)?;
    match (own, failed) {
        (Ok(_), [1]) => Err(failed_elsewhere()),
        (own, _) => own,
    }
}

/// The error of a rank that stops because another one has failed, which tells why.
fn failed_elsewhere() -> Error {
    Error::new(ErrorKind::Lost, "another rank cannot restore its part of this checkpoint")
}

fn garbled() -> Error {
    Error::new(ErrorKind::Mismatch, "a message of another rank is not understood")
        .hint("all ranks must use the same release of treering")
}

fn write<T: Serialize>(value: &T) -> Result<Vec<u8>> {
    serde_json::to_vec(value).map_err(|_| garbled())
}

fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T> {
    serde_json::from_slice(bytes).map_err(|_| garbled())
}
