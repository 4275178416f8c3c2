//! Variables of ranks: arrays, boxes of global arrays, rows, and what is the same on all ranks.
//!
//! The variables of a rank are one stream of blocks: a head that describes them, then every variable, from a block of its
//! own on. If no stream has moved since the generation before and less than half of the blocks has changed, only the
//! chunks that have are sent. Of what is said to be constant, and lies where it lay, some chunks are looked at each time, in
//! turns. To be loaded, each member takes over its own stream and some of those of the dead; then the
//! arrays of all ranks are filled from these as from a checkpoint, in whatever boxes they want them.
//!
//! Law: a stream comes back as it was submitted, or what is lost of it is named.

use super::ReplicaStore;
use super::generation::{GenerationNumber, StartRank};
use super::link::StoreCall;
use crate::array::{Description, Variable, VariableMut, settled};
use crate::comm::{Wire, garbled};
use crate::error::{Error, Result};
use crate::merkle::{Digest, digest};
use crate::restore::{HeldState, HeldVariable, fill_together};
use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

/// Blocks of a stream that are compared, and sent if they have changed, as one.
const CHUNK: u64 = 256;
/// Every chunk that is constant is looked at once in this many submits.
pub(crate) const TURNS: u64 = 64;

/// The streams of a generation.
#[derive(Debug)]
pub(crate) struct Streams {
    /// First block and blocks of the stream of every rank that submitted.
    shares: Vec<(u64, u64)>,
    /// The chunks of this rank's stream.
    digests: Vec<Digest>,
    /// Addresses and lengths of its slices.
    places: Vec<(usize, usize)>,
    /// Whether most of it is constant: then the next generation shares most of its memory.
    pub(crate) mostly_constant: bool,
    /// A number of the caller's besides the tag.
    pub(crate) label: u64,
}

impl ReplicaStore {
    /// Submits the variables of this rank; collective. `tag` is a number of the caller's, such as its step, the same on all
    /// ranks. Only what has changed since the last time is sent, if that is less than half.
    pub fn submit_variables(
        &mut self,
        tag: u64,
        variables: &[Variable],
    ) -> Result<GenerationNumber> {
        self.submit_labelled((tag, 0), Ok(variables))
    }

    /// Submits variables with a second number of the caller's. An error in place of variables is that of all ranks.
    pub(crate) fn submit_labelled(
        &mut self,
        (tag, label): (u64, u64),
        variables: Result<&[Variable]>,
    ) -> Result<GenerationNumber> {
        self.finish()?;
        let stream =
            variables.and_then(|variables| Stream::of(variables, self.settings.block_size));
        let stream = stream.and_then(|stream| {
            let known = self.unmoved_streams().filter(|_| !self.looks_again);
            let digests = stream.digests(known.as_deref(), self.last_number)?;
            Ok((stream, digests))
        });
        self.looks_again = false;
        let opened = stream.as_ref().map(|_| [0; 2]).map_err(Clone::clone);
        self.open(StoreCall::SubmitVariables, (tag, "the tag of a submit"), opened)?;
        let (stream, digests) = stream?;
        let before = self.unmoved_streams();
        let changed = before.as_ref().and_then(|before| stream.changed(before, &digests));
        let own = [stream.blocks, changed.unwrap_or(u64::MAX)];
        let all = self.link.gather_all(own.map(u64::to_le_bytes).as_flattened())?;
        let number = |bytes: &[u8]| bytes.try_into().map(u64::from_le_bytes).map_err(|_| garbled());
        let pair = |bytes: &Vec<u8>| {
            let (blocks, changed) = bytes.split_at_checked(8).ok_or_else(garbled)?;
            Ok([number(blocks)?, number(changed)?])
        };
        let all = all.iter().map(pair).collect::<Result<Vec<[u64; 2]>>>()?;
        let mut blocks = 0u64;
        let mut share = |[own, _]: &[u64; 2]| {
            blocks += own;
            (blocks - own, *own)
        };
        let shares: Vec<(u64, u64)> = all.iter().map(&mut share).collect();
        let (first, _) = shares.get(self.link.rank().0 as usize).copied().ok_or_else(garbled)?;
        let sent = all.iter().try_fold(0u64, |sum, [_, changed]| sum.checked_add(*changed));
        // The same on all ranks.
        let before = before.filter(|before| before.shares == shares);
        let before = before.filter(|_| sent.is_some_and(|sent| sent < blocks / 2));
        let (places, mostly_constant) = (stream.places(), stream.is_mostly_constant());
        let streams =
            |digests| Some(Arc::new(Streams { shares, digests, places, mostly_constant, label }));
        match before {
            Some(before) => {
                let changes = stream.changes(first, &before.digests, &digests);
                self.submit_changed_streams(tag, &changes, streams(digests))
            }
            None => self.submit_slices(tag, &stream.slices(), first, streams(digests)),
        }
    }

    /// Arrays were filled by somebody else than the program: the next submit looks at all of what is constant.
    pub(crate) fn look_again(&mut self) {
        self.looks_again = true;
    }

    /// The second number that the newest variables were submitted with.
    pub(crate) fn label(&self) -> Option<u64> {
        Some(self.current.as_ref()?.streams.as_ref()?.label)
    }

    /// The streams of the newest generation, if all members that submitted it are there and hold it.
    fn unmoved_streams(&self) -> Option<Arc<Streams>> {
        let current = self.current.as_ref()?;
        let whole = current.deaths == 0 && current.members[..] == self.roster.ranks[..];
        current.streams.clone().filter(|_| whole)
    }

    /// Fills arrays from the newest generation, which was submitted as variables; collective. Each rank passes the
    /// arrays that it wants. An error names lost data; the content of the arrays is then unspecified.
    pub fn load_variables(&mut self, arrays: &mut [VariableMut]) -> Result<()> {
        let held = self.hold_streams();
        let held = held.as_ref().map(|held| held as &dyn HeldState).map_err(Clone::clone);
        let mut targets: Vec<&mut VariableMut> = arrays.iter_mut().collect();
        let filled = fill_together(self.link.comm(), held, &mut targets).map(drop);
        settled(filled, arrays)
    }

    /// Loads this rank's share of the newest streams; collective. An error, which other ranks may not have, names what is
    /// lost of it.
    pub(crate) fn hold_streams(&mut self) -> Result<HeldStreams> {
        let found = self.submitted().and_then(|generation| match &generation.streams {
            Some(streams) => Ok((generation.members.clone(), streams.clone(), generation.tag)),
            None => Err(Error::usage("the newest generation was not submitted as variables")
                .hint("submit variables, or load blocks")),
        });
        let requests = found.as_ref().map_err(Clone::clone).map(|(submitted, streams, _)| {
            let taken = taken_over(submitted, &self.roster.ranks);
            let mine = taken.into_iter().zip(streams.shares.iter().enumerate());
            let mine = mine.filter(|(by, _)| *by == self.own);
            mine.map(|(_, (rank, (first, blocks)))| (rank, *first..first + blocks)).collect()
        });
        let mine: Vec<(usize, Range<u64>)> = requests.as_ref().cloned().unwrap_or_default();
        let blocks = requests.map(|_| mine.iter().map(|(_, blocks)| blocks.clone()).collect());
        let loaded = self.load_checked(blocks)?;
        let (submitted, _, tag) = found?;
        let size = self.settings.block_size;
        if !loaded.lost.is_empty() {
            return Err(name_lost(tag, &mine, &loaded.lost, size));
        }
        let (ranks, variables) = (submitted.len() as u32, Vec::new());
        let mut held = HeldStreams { ranks, tag, variables, bytes: loaded.bytes };
        let mut at = 0;
        for (rank, blocks) in mine {
            let end = at + ((blocks.end - blocks.start) * size) as usize;
            held.add(rank as u32, at..end, size)?;
            at = end;
        }
        Ok(held)
    }
}

fn name_lost(tag: u64, streams: &[(usize, Range<u64>)], lost: &[Range<u64>], size: u64) -> Error {
    let of = |(rank, stream): &(usize, Range<u64>)| {
        let common = |lost: &Range<u64>| {
            lost.end.min(stream.end).saturating_sub(lost.start.max(stream.start))
        };
        let bytes = lost.iter().map(common).sum::<u64>() * size;
        (bytes > 0).then(|| format!("{bytes} bytes of rank {rank}"))
    };
    let named: Vec<String> = streams.iter().filter_map(of).collect();
    Error::damaged(format!(
        "of the state of step {tag} in the memory of ranks, {} are lost: no rank that lives has an intact copy",
        named.join(", ")
    ))
}

/// The members that take over the streams of all ranks that submitted: each its own, and the dead ones' in turns.
fn taken_over(submitted: &[StartRank], members: &[StartRank]) -> Vec<StartRank> {
    let mut turns = members.iter().cycle();
    let by = |rank: &StartRank| match members.contains(rank) {
        true => *rank,
        false => turns.next().copied().unwrap_or(*rank),
    };
    submitted.iter().map(by).collect()
}

/// The variables of a rank as blocks.
struct Stream<'a> {
    /// Whole blocks each.
    slices: Vec<Cow<'a, [u8]>>,
    /// The owner of the slices, if it is constant.
    constant: Vec<Option<String>>,
    block: u64,
    blocks: u64,
}

impl<'a> Stream<'a> {
    fn of(variables: &[Variable<'a>], block: u64) -> Result<Stream<'a>> {
        variables.iter().try_for_each(Variable::check)?;
        let listed: Vec<(Description, u64)> =
            variables.iter().map(|v| (v.description.clone(), v.bytes.len() as u64)).collect();
        let listed = listed.to_letter();
        let mut head = (listed.len() as u64).to_le_bytes().to_vec();
        head.extend(listed);
        head.resize(head.len().next_multiple_of(block as usize), 0);
        let mut slices: Vec<Cow<[u8]>> = vec![head.into()];
        let mut constant = vec![None];
        for variable in variables {
            let bytes = variable.bytes.whole();
            let full = bytes.len() - bytes.len() % block as usize;
            let mut last = bytes[full..].to_vec();
            last.resize(last.len().next_multiple_of(block as usize), 0);
            let whole = match bytes {
                Cow::Borrowed(bytes) => Cow::Borrowed(&bytes[..full]),
                Cow::Owned(mut bytes) => {
                    bytes.truncate(full);
                    Cow::Owned(bytes)
                }
            };
            let both = [whole, last.into()];
            slices.extend(both.into_iter().filter(|slice| !slice.is_empty()));
            let name = variable.constant.then(|| variable.description.name.clone());
            constant.resize(slices.len(), name);
        }
        let blocks = slices.iter().map(|slice| slice.len() as u64 / block).sum();
        Ok(Stream { slices, constant, block, blocks })
    }

    /// Addresses and lengths of the slices.
    fn places(&self) -> Vec<(usize, usize)> {
        self.slices.iter().map(|slice| (slice.as_ptr().addr(), slice.len())).collect()
    }

    fn is_mostly_constant(&self) -> bool {
        let constant = self.slices.iter().zip(&self.constant).filter(|(_, of)| of.is_some());
        2 * constant.map(|(slice, _)| slice.len() as u64).sum::<u64>() > self.blocks * self.block
    }

    fn slices(&self) -> Vec<&[u8]> {
        self.slices.iter().map(|slice| &slice[..]).collect()
    }

    /// The first block and the bytes of every chunk. A chunk ends where its slice does.
    fn chunks(&self) -> impl Iterator<Item = (u64, &[u8])> {
        let mut at = 0;
        self.slices.iter().flat_map(move |slice| {
            let first = at;
            at += slice.len() as u64 / self.block;
            let chunks = slice.chunks((CHUNK * self.block) as usize);
            chunks.enumerate().map(move |(chunk, bytes)| (first + chunk as u64 * CHUNK, bytes))
        })
    }

    /// The digests of all chunks. Digests of constant variables at the same address are taken from before, except for
    /// the ones whose turn it is; an error names a variable that has changed nevertheless.
    fn digests(&self, before: Option<&Streams>, turn: u64) -> Result<Vec<Digest>> {
        let places = self.places();
        let before = before.filter(|before| self.is_laid_out_as(before));
        let mut digests: Vec<Digest> = Vec::new();
        for (at, slice) in self.slices.iter().enumerate() {
            let constant = self.constant[at].as_ref();
            let lay = before.filter(|before| before.places[at] == places[at]);
            for bytes in slice.chunks((CHUNK * self.block) as usize) {
                let number = digests.len();
                let known = lay.and_then(|lay| lay.digests.get(number)).zip(constant);
                let is_turn = (number as u64).wrapping_add(turn).is_multiple_of(TURNS);
                digests.push(match known {
                    None => digest(bytes),
                    Some((known, _)) if !is_turn || digest(bytes) == *known => *known,
                    Some((_, name)) => {
                        return Err(Error::usage(format!(
                            "variable {name:?} is said to be constant, but has changed"
                        ))
                        .hint("leave Variable::constant out"));
                    }
                });
            }
        }
        Ok(digests)
    }

    /// Whether every slice has the length that it had, so that every chunk has the blocks that it had. Equal numbers of
    /// chunks and of blocks do not say so: one array may be shorter by what another is longer.
    fn is_laid_out_as(&self, before: &Streams) -> bool {
        let lengths = before.places.iter().map(|(_, length)| *length);
        lengths.eq(self.slices.iter().map(|slice| slice.len()))
    }

    /// The number of blocks that have changed; `None` if chunks lie elsewhere in the stream than they did.
    fn changed(&self, before: &Streams, now: &[Digest]) -> Option<u64> {
        let changes = self.changes(0, &before.digests, now);
        let blocks = changes.iter().map(|(_, bytes)| bytes.len() as u64 / self.block).sum();
        self.is_laid_out_as(before).then_some(blocks)
    }

    /// The blocks that have changed, by their numbers in the generation, with their bytes.
    fn changes(&self, first: u64, before: &[Digest], now: &[Digest]) -> Vec<(u64, &[u8])> {
        let changed = before.iter().zip(now).map(|(before, now)| before != now);
        let chunks = self.chunks().zip(changed).filter(|(_, changed)| *changed);
        chunks.map(|((at, bytes), _)| (first + at, bytes)).collect()
    }
}

/// Streams that a rank has taken over.
pub(crate) struct HeldStreams {
    ranks: u32,
    tag: u64,
    /// Each with its place in the bytes.
    variables: Vec<(HeldVariable, Range<usize>)>,
    bytes: Vec<u8>,
}

impl HeldStreams {
    /// The part of a state that a rank has and others hold.
    pub(crate) fn nothing(ranks: u32, tag: u64) -> HeldStreams {
        HeldStreams { ranks, tag, variables: Vec::new(), bytes: Vec::new() }
    }

    /// Takes apart the stream of a rank.
    fn add(&mut self, rank: u32, place: Range<usize>, block: u64) -> Result<()> {
        let stream = self.bytes.get(place.clone()).ok_or_else(garbled)?;
        let (head, rest) = stream.split_first_chunk::<8>().ok_or_else(garbled)?;
        let len = usize::try_from(u64::from_le_bytes(*head)).map_err(|_| garbled())?;
        let listed = rest.get(..len).ok_or_else(garbled)?;
        let listed = Vec::<(Description, u64)>::from_letter(listed)?;
        let mut at = place.start + (8 + len).next_multiple_of(block as usize);
        for (description, bytes) in listed {
            let end = usize::try_from(bytes).ok().and_then(|bytes| at.checked_add(bytes));
            let end = end.filter(|end| *end <= place.end).ok_or_else(garbled)?;
            self.variables.push((HeldVariable { source: rank, description }, at..end));
            at += (end - at).next_multiple_of(block as usize);
        }
        Ok(())
    }
}

impl HeldState for HeldStreams {
    fn saved_by(&self) -> u32 {
        self.ranks
    }

    fn place(&self) -> String {
        format!("step {} in the memory of ranks", self.tag)
    }

    fn variables(&self) -> Vec<HeldVariable> {
        self.variables.iter().map(|(variable, _)| variable.clone()).collect()
    }

    fn read(&self, variable: usize, ranges: &[Range<u64>], mut to: &mut [u8]) -> Result<()> {
        let (_, place) = self.variables.get(variable).ok_or_else(garbled)?;
        let bytes = &self.bytes[place.clone()];
        for range in ranges {
            let from = bytes.get(range.start as usize..range.end as usize);
            let from = from.ok_or_else(garbled)?;
            let (place, rest) = to.split_at_mut_checked(from.len()).ok_or_else(garbled)?;
            place.copy_from_slice(from);
            to = rest;
        }
        Ok(())
    }
}
