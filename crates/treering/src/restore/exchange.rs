//! Filling the arrays of all ranks from a state of which each rank has a part at hand: of a checkpoint, what it has
//! loaded; of a generation in the memory of ranks, the pieces that it has taken over.
//!
//! Ranks that read for themselves would read the same frames many times: a box of another decomposition cuts frames
//! of many ranks, and all of them need the footers of all. So each frame is read and decoded by one rank, which hands
//! its bytes on (mcrEngine, §4.2). First all ranks exchange what they need and what they hold: about 150 bytes for
//! each variable of each rank, the only thing that every rank has of all others. Then holders offer, and whoever
//! needs something checks that the offers are complete before anything is read. Then data flows in rounds: a holder
//! sends [`ROUND`] bytes at most in each.
//!
//! Every rank takes part in every round, and a failure of one ends them for all: nobody waits for a rank that has
//! given up. Every message has a checksum: bytes that were verified when they were read may still be damaged on the way.

use super::checkpoint::Checkpoint;
use super::delivery::{BytePiece, HeldVariable, Known, Need, Share, WINDOW, covering, pieces};
use crate::array::{Description, IndexBox, Part, Rank, VariableMut};
use crate::comm::{Comm, Message, Reduction, Wire, garbled, opened, seal, wire};
use crate::error::{Error, ErrorKind, Result};
use crate::format::VariableEntry;
use crate::memory::zeroed;
use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::ops::Range;

/// The bytes that a rank reads, or sends, in one round.
const ROUND: u64 = 64 << 20;

/// The part of a state that a rank holds and sends to others; each variable has one holder.
pub(crate) trait HeldState {
    /// The number of ranks that have saved the state.
    fn saved_by(&self) -> u32;

    /// The state in words, for errors.
    fn place(&self) -> String;

    /// The variables that this rank hands on.
    fn variables(&self) -> Vec<HeldVariable>;

    /// Reads ranges of one of these variables, one after another into `to`.
    fn read(&self, variable: usize, ranges: &[Range<u64>], to: &mut [u8]) -> Result<()>;
}

/// A part of a checkpoint: what a rank has loaded of it, and which of these variables it hands on.
pub(crate) struct HeldCheckpoint<'a> {
    checkpoint: &'a Checkpoint,
    entries: Vec<&'a VariableEntry>,
}

impl<'a> HeldCheckpoint<'a> {
    pub(crate) fn new(
        checkpoint: &'a Checkpoint,
        serves: &dyn Fn(&VariableEntry) -> bool,
    ) -> HeldCheckpoint<'a> {
        let entries = checkpoint.entries().iter();
        let entries = entries.filter(|entry| !entry.is_hidden() && serves(entry)).collect();
        HeldCheckpoint { checkpoint, entries }
    }
}

impl HeldState for HeldCheckpoint<'_> {
    fn saved_by(&self) -> u32 {
        self.checkpoint.manifest().ranks
    }

    fn place(&self) -> String {
        self.checkpoint.place()
    }

    fn variables(&self) -> Vec<HeldVariable> {
        let held = |entry: &&VariableEntry| {
            let description = entry.description.clone();
            HeldVariable { source: entry.rank.0, description }
        };
        self.entries.iter().map(held).collect()
    }

    fn read(&self, variable: usize, ranges: &[Range<u64>], to: &mut [u8]) -> Result<()> {
        let entry = self.entries[variable];
        match ranges {
            // A variable that is read as a whole is checked by its root, too.
            [whole] if *whole == (0..entry.bytes()) => {
                self.checkpoint.read_bytes(entry, whole.clone(), to).map(drop)
            }
            _ => self.checkpoint.read_ranges(entry, ranges, to),
        }
    }
}

/// Fills arrays of all ranks; collective. The positions of optional ones that the checkpoint does not have.
pub(crate) fn fill_together(
    comm: &dyn Comm,
    held: Result<&dyn HeldState>,
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
    let own_variables = held.variables();
    let own = Announcement::of(targets, &own_variables);
    let all: Vec<Announcement> = all_well(comm, gather_all(comm, &own)?)?;
    let (needs, variables): (Vec<Vec<Need>>, Vec<Vec<HeldVariable>>) =
        all.into_iter().map(|announcement| (announcement.needs, announcement.held)).unzip();
    let variables = variables.into_iter().flatten().collect();
    let known = Known::new(held.saved_by(), comm.size(), variables);

    let (queue, offers) = offer(&known, &own_variables, &needs);
    let received = hand_out(comm, &offers)?;
    let read = received.iter().map(|(_, bytes)| parse::<Vec<Offer>>(bytes));
    let checked = read.collect::<Result<Vec<_>>>().and_then(|offers| {
        let offers: Vec<Offer> = offers.into_iter().flatten().collect();
        check(held, &known, comm.rank(), &own.needs, &offers, targets)
    });
    let (missing, expected) = all_well(comm, checked)?;

    let sender = Sender { held, needs: &needs, queue, window: None };
    let filled = deliver(comm, sender, targets)?;
    match filled == expected {
        true => Ok(missing),
        false => Err(Error::damaged("a restore did not fill its arrays; please report it")),
    }
}

/// Needs and holdings of a rank.
struct Announcement {
    needs: Vec<Need>,
    /// Every variable of rows, and the first of each other name.
    held: Vec<HeldVariable>,
}

wire! { struct Announcement { needs, held } }

impl Announcement {
    fn of(targets: &[&mut VariableMut], variables: &[HeldVariable]) -> Announcement {
        let mut names = HashSet::new();
        let told = variables.iter().filter(|variable| {
            let new = names.insert(&variable.description.name);
            new || variable.description.part == Some(Part::Rows)
        });
        Announcement {
            needs: targets.iter().map(|target| Need::of(target.description())).collect(),
            held: told.cloned().collect(),
        }
    }
}

/// A share of a stored variable that a rank gets.
struct Offer {
    /// Which of its needs.
    need: u32,
    share: Share,
    variable: HeldVariable,
}

wire! { struct Offer { need, share, variable } }

/// A stored variable, and the shares of ranks in it.
struct Served<'a> {
    variable: usize,
    description: &'a Description,
    shares: Vec<(Rank, u32, Share)>,
}

/// The data that this rank hands on, and its messages to the others about that.
fn offer<'a>(
    known: &Known,
    variables: &'a [HeldVariable],
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
    for (at, variable) in variables.iter().enumerate() {
        let description = &variable.description;
        let mut shares = Vec::new();
        for (rank, number) in by_name.get(description.name.as_str()).into_iter().flatten() {
            let need = &needs[rank.0 as usize][*number as usize];
            let Some(share) = known.share(variable, need, *rank) else { continue };
            // A rank that gets rows knows which: all ranks know the number of rows that each had.
            if !matches!(share, Share::Rows { .. }) {
                let (share, variable) = (share.clone(), variable.clone());
                let offer = Offer { need: *number, share, variable };
                offers.entry(*rank).or_default().push(offer);
            }
            shares.push((*rank, *number, share));
        }
        if !shares.is_empty() {
            queue.push_back(Served { variable: at, description, shares });
        }
    }
    (queue, offers)
}

/// Hands offers to the ranks that they are for; those for this one, not parsed.
fn hand_out(comm: &dyn Comm, offers: &BTreeMap<Rank, Vec<Offer>>) -> Result<Vec<Message>> {
    let written: Vec<(Rank, Vec<u8>)> =
        offers.iter().map(|(rank, offers)| (*rank, offers.to_letter())).collect();
    let messages: Vec<(Rank, &[u8])> = written.iter().map(|(rank, m)| (*rank, &m[..])).collect();
    comm.exchange(&messages)
}

/// Checks that offers are what this rank needs, and makes room for them; what is missing, and the bytes that come.
fn check(
    held: &dyn HeldState,
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
                false => return Err(known.has_no(&need.name, rank).at(held.place())),
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
            received.iter().try_for_each(|(_, bytes)| take(opened(bytes)?, targets, &mut filled))
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
    held: &'a dyn HeldState,
    needs: &'a [Vec<Need>],
    queue: VecDeque<Served<'a>>,
    window: Option<ReadWindow>,
}

/// Bytes of a variable that were read, and pieces that are still to be sent.
struct ReadWindow {
    variable: usize,
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
        messages.values_mut().for_each(seal);
        Ok(messages)
    }

    /// The window that holds the next piece, read if need be; `None` if there are no more pieces.
    fn window(&mut self, read: &mut u64) -> Result<Option<&mut ReadWindow>> {
        while self.window.is_none() {
            let Some(served) = self.queue.pop_front() else { return Ok(None) };
            let Served { variable, description, shares } = served;
            let of = |(rank, number, share): &(Rank, u32, Share)| {
                let need = &self.needs[rank.0 as usize][*number as usize];
                pieces(description, (share, need), (*rank, *number))
            };
            let mut pieces: Vec<BytePiece> = shares.iter().flat_map(of).collect();
            pieces.sort_by_key(|piece| piece.from);
            if !pieces.is_empty() {
                let (ranges, buffer) = (Vec::new(), Vec::new());
                self.window =
                    Some(ReadWindow { variable, pieces: pieces.into(), end: 0, ranges, buffer });
            }
        }
        if let Some(window) = &mut self.window {
            *read += window.load(self.held)?;
        }
        Ok(self.window.as_mut())
    }
}

impl ReadWindow {
    /// Reads the window of the next piece unless it was; how many bytes that are.
    fn load(&mut self, held: &dyn HeldState) -> Result<u64> {
        let Some(next) = self.pieces.front().filter(|piece| piece.from >= self.end) else {
            return Ok(0);
        };
        self.end = (next.from / WINDOW + 1) * WINDOW;
        let here = self.pieces.partition_point(|piece| piece.from < self.end);
        let ranges = covering(&self.pieces.make_contiguous()[..here]);
        let bytes: u64 = ranges.iter().map(|range| range.end - range.start).sum();
        self.buffer = zeroed(bytes)?;
        held.read(self.variable, &ranges, &mut self.buffer)?;
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
pub(crate) fn share_all<T: Wire>(comm: &dyn Comm, own: &T) -> Result<Vec<T>> {
    gather_all(comm, own)?
}

/// The same. An error inside is about content that came damaged, which other ranks may not have.
fn gather_all<T: Wire>(comm: &dyn Comm, own: &T) -> Result<Result<Vec<T>>> {
    let root = Rank(0);
    let gathered = comm.gather(root, &own.to_letter())?;
    let mut all = Vec::new();
    for bytes in &gathered {
        all.extend_from_slice(&(bytes.len() as u64).to_le_bytes());
        all.extend_from_slice(bytes);
    }
    drop(gathered);
    comm.broadcast(root, &mut all)?;
    Ok(parse_all(&all, comm.size()))
}

fn parse_all<T: Wire>(all: &[u8], ranks: u32) -> Result<Vec<T>> {
    let (mut values, mut rest) = (Vec::new(), all);
    while let Some((head, behind)) = rest.split_first_chunk::<8>() {
        let len = u64::from_le_bytes(*head) as usize;
        values.push(parse(behind.get(..len).ok_or_else(garbled)?)?);
        rest = &behind[len..];
    }
    match values.len() == ranks as usize {
        true => Ok(values),
        false => Err(garbled()),
    }
}

/// Reads a letter. If it came damaged, something older may serve.
fn parse<T: Wire>(letter: &[u8]) -> Result<T> {
    opened(letter)?;
    T::from_letter(letter)
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
