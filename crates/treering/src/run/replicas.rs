//! The level of a run in the memory of its ranks ([`Options::replicas`](super::Options::replicas)).
//!
//! The variables of a rank are one stream of blocks: a head that describes them, then every variable, from a block of its
//! own on. The streams of all ranks are a generation of a [`ReplicaStore`]. If no stream has moved since the generation
//! before and less than half has changed, only the chunks that have are sent. After deaths each survivor takes over its
//! own stream and some of those of the dead, and the arrays of all ranks are filled from these, as from a checkpoint.
//!
//! Ranks that join later (spares) have no part in a store that was made before. The next submit makes a store of all
//! ranks; the one before serves until a generation of the new one is agreed. Stores are numbered, and survivors take the
//! newest of which one of them knows such a generation: then all ranks that made it hold it.
//!
//! Laws: whether there is a generation, and which, is the same on all ranks and needs no file system. A stream comes back
//! as it was submitted, or what is lost of it is named.

use crate::array::{Description, Variable};
use crate::comm::{Comm, Reduction, garbled};
use crate::error::{Error, Result};
use crate::merkle::{Digest, digest};
use crate::replica::{GenerationInfo, ReplicaSettings, ReplicaStore, StartRank};
use crate::restore::{HeldState, HeldVariable, share_all};
use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

/// Blocks of a stream that are compared, and sent if they have changed, as one.
const CHUNK: u64 = 256;

/// The newest state in the memory of ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct MemoryState {
    pub(super) step: u64,
    /// The newest checkpoint that it was submitted with, or after.
    pub(super) sequence: u64,
    /// The number of ranks that submitted it.
    pub(super) ranks: u32,
}

/// The streams of a generation.
struct Streams {
    tag: u64,
    state: MemoryState,
    /// First block and blocks of the stream of every rank that submitted.
    shares: Vec<(u64, u64)>,
    /// The chunks of this rank's stream.
    digests: Vec<Digest>,
}

/// A store, and the streams of its last generations.
struct NumberedStore {
    number: u64,
    store: ReplicaStore,
    streams: Vec<Streams>,
}

impl NumberedStore {
    /// The newest generation that counts, and its streams.
    fn newest(&self) -> Option<(GenerationInfo, &Streams)> {
        let info = self.store.newest()?;
        let streams = self.streams.iter().find(|streams| streams.tag == info.tag)?;
        Some((info, streams))
    }
}

/// The states of a run in the memory of its ranks, as one of them sees them.
pub(super) struct ReplicaLevel {
    copies: u32,
    settings: ReplicaSettings,
    domain: Option<String>,
    current: Option<NumberedStore>,
    /// A store of which no generation is known to be agreed.
    next: Option<NumberedStore>,
    /// Whether all ranks are members of the current store.
    whole: bool,
    tags: u64,
}

impl ReplicaLevel {
    pub(super) fn new(copies: u32, settings: ReplicaSettings, domain: Option<String>) -> Self {
        let (current, next) = (None, None);
        ReplicaLevel { copies, settings, domain, current, next, whole: false, tags: 0 }
    }

    /// Submits the variables of this rank as the state of a step; collective.
    pub(super) fn submit(
        &mut self,
        comm: &Arc<dyn Comm>,
        (step, sequence): (u64, u64),
        variables: &[Variable],
    ) -> Result<()> {
        let stream = Stream::of(variables, self.settings.block_size)?;
        if !self.whole {
            self.make_store(comm)?;
        }
        let digests = stream.digests();
        let changed = self.unchanged_layout(&stream, &digests);
        let before = self.known_shares();
        let own = [stream.blocks, before.is_some().into(), changed.unwrap_or(u64::MAX), self.tags];
        let all: Vec<[u64; 4]> = share_all(&**comm, &own)?;
        self.tags = all.iter().map(|[.., tags]| *tags).max().unwrap_or(0) + 1;
        let mut first = 0;
        let mut share = |[blocks, ..]: &[u64; 4]| {
            first += blocks;
            (first - blocks, *blocks)
        };
        let shares: Vec<(u64, u64)> = all.iter().map(&mut share).collect();
        let sent = all.iter().try_fold(0u64, |sum, [.., changed, _]| sum.checked_add(*changed));
        // The same on all ranks.
        let in_part = all.iter().all(|[_, known, ..]| *known == 1)
            && sent.is_some_and(|sent| sent < first / 2)
            && before.as_ref().is_none_or(|before| *before == shares);
        let state = MemoryState { step, sequence, ranks: comm.size() };
        let own_first = shares[comm.rank().0 as usize].0;
        let tag = self.tags;
        let changes = match (in_part, self.current.as_ref().and_then(NumberedStore::newest)) {
            (true, Some((_, streams))) => {
                Some(stream.changes(own_first, &streams.digests, &digests))
            }
            _ => None,
        };
        let target = if self.whole { &mut self.current } else { &mut self.next };
        let Some(target) = target else { return Err(garbled()) };
        // A rank that does not hear of the end may still find that it counts.
        target.streams.push(Streams { tag, state, shares, digests });
        match changes {
            Some(changes) => {
                let changes: Vec<(u64, &[u8])> =
                    changes.iter().map(|(at, bytes)| (*at, &bytes[..])).collect();
                target.store.submit_changed(tag, &changes)?;
            }
            None => drop(target.store.submit_slices(tag, &stream.slices(), own_first)?),
        }
        let newest = target.streams.len() - 1;
        target.streams.drain(..newest);
        if let Some(next) = self.next.take() {
            (self.current, self.whole) = (Some(next), true);
        }
        Ok(())
    }

    /// Makes a store of all ranks; collective.
    fn make_store(&mut self, comm: &Arc<dyn Comm>) -> Result<()> {
        self.next = None;
        let mut number = [self.current.as_ref().map_or(0, |current| current.number)];
        comm.reduce(Reduction::Max, &mut number)?;
        let own = self.domain.clone().unwrap_or_default();
        let domains: Vec<String> = share_all(&**comm, &own)?;
        let mut settings = self.settings.clone();
        // Ranks without a domain have their node as one.
        if domains.iter().any(|domain| !domain.is_empty()) {
            let nodes: Vec<String> = share_all(&**comm, &comm.node().to_string())?;
            let name = |(domain, node): (String, String)| match domain.is_empty() {
                true => format!("node {node}"),
                false => domain,
            };
            settings.domains = domains.into_iter().zip(nodes).map(name).collect();
        }
        let store = ReplicaStore::new(comm.clone(), self.copies, settings)?;
        self.next = Some(NumberedStore { number: number[0] + 1, store, streams: Vec::new() });
        Ok(())
    }

    /// The shares of the newest generation, if changes to it suffice.
    fn known_shares(&self) -> Option<Vec<(u64, u64)>> {
        let current = self.current.as_ref().filter(|_| self.whole)?;
        let (info, streams) = current.newest()?;
        let complete = info.deaths == 0 && info.members == current.store.members();
        complete.then(|| streams.shares.clone())
    }

    /// The blocks of a stream that have changed since the newest generation, if its parts lie where they were.
    fn unchanged_layout(&self, stream: &Stream, digests: &[Digest]) -> Option<u64> {
        let (_, streams) = self.current.as_ref()?.newest()?;
        let changed = changed_chunks(&streams.digests, digests)?;
        Some(changed.iter().map(|chunks| stream.blocks_in(chunks)).sum())
    }

    /// Whether all ranks are members of the store that has the newest state.
    pub(super) fn is_whole(&self) -> bool {
        self.whole && self.current.is_some()
    }

    /// Forgets all states; all ranks do so.
    pub(super) fn forget(&mut self) {
        (self.current, self.next, self.whole) = (None, None, false);
    }

    /// Goes on with other ranks; collective. Nothing is lost if it fails.
    pub(super) fn go_on(&mut self, comm: &Arc<dyn Comm>) -> Result<()> {
        let agreed =
            |store: &NumberedStore| if store.store.newest().is_some() { store.number } else { 0 };
        let known = self.current.iter().chain(&self.next).map(agreed).max().unwrap_or(0);
        let mut numbers = [known, self.tags];
        comm.reduce(Reduction::Max, &mut numbers)?;
        let [number, tags] = numbers;
        let is = |store: &NumberedStore| number > 0 && store.number == number;
        let member = self.current.iter().chain(&self.next).any(is);
        let mut members = [u64::from(member)];
        comm.reduce(Reduction::Sum, &mut members)?;
        let veterans = comm.split(u32::from(!member), comm.rank().0)?;
        let mut stores = self.current.as_mut().into_iter().chain(&mut self.next);
        if let Some(store) = stores.find(|store| is(store)) {
            store.store.go_on_with(veterans)?;
        }
        self.current = self.current.take().filter(is).or(self.next.take().filter(is));
        (self.next, self.tags) = (None, tags);
        self.whole = members[0] == u64::from(comm.size());
        Ok(())
    }

    /// The newest state that the ranks have in memory; collective.
    pub(super) fn newest(&self, comm: &dyn Comm) -> Result<Option<MemoryState>> {
        let own = self.current.as_ref().and_then(NumberedStore::newest);
        let mut numbers = own.map_or([0; 4], |(_, streams)| {
            let MemoryState { step, sequence, ranks } = streams.state;
            [1, step, sequence, ranks.into()]
        });
        comm.reduce(Reduction::Max, &mut numbers)?;
        let [there, step, sequence, ranks] = numbers;
        Ok((there == 1).then_some(MemoryState { step, sequence, ranks: ranks as u32 }))
    }

    /// Loads this rank's share of the newest state; collective among those that have it. An error names what is lost.
    pub(super) fn load(&mut self, state: MemoryState) -> Result<HeldStreams> {
        let nothing = HeldStreams { state, variables: Vec::new(), bytes: Vec::new() };
        let Some(current) = &mut self.current else { return Ok(nothing) };
        let Some((info, streams)) = current.newest() else { return Ok(nothing) };
        let taken = taken_over(&info.members, current.store.members());
        let own = current.store.members().iter().position(|rank| *rank == current.store.own());
        let mine = taken.into_iter().zip(0..).filter(|(by, _)| Some(*by) == own).map(|(_, at)| at);
        let mine: Vec<usize> = mine.collect();
        let requests = mine.iter().filter_map(|at| streams.shares.get(*at));
        let requests: Vec<Range<u64>> =
            requests.map(|(first, blocks)| *first..first + blocks).collect();
        let loaded = current.store.load(&requests)?;
        if !loaded.lost.is_empty() {
            return Err(self.name_lost(state, &mine, &requests, &loaded.lost));
        }
        let mut held = HeldStreams { bytes: loaded.bytes, ..nothing };
        let (mut at, size) = (0, self.settings.block_size);
        for (rank, blocks) in mine.iter().zip(&requests) {
            let end = at + ((blocks.end - blocks.start) * size) as usize;
            held.add(*rank as u32, at..end, size)?;
            at = end;
        }
        Ok(held)
    }

    fn name_lost(
        &self,
        state: MemoryState,
        ranks: &[usize],
        streams: &[Range<u64>],
        lost: &[Range<u64>],
    ) -> Error {
        let size = self.settings.block_size;
        let of = |(rank, stream): (&usize, &Range<u64>)| {
            let common = |lost: &Range<u64>| {
                lost.end.min(stream.end).saturating_sub(lost.start.max(stream.start))
            };
            let bytes = lost.iter().map(common).sum::<u64>() * size;
            (bytes > 0).then(|| format!("{bytes} bytes of rank {rank}"))
        };
        let named: Vec<String> = ranks.iter().zip(streams).filter_map(of).collect();
        Error::damaged(format!(
            "of the state of step {} in the memory of ranks, {} are lost: all ranks with a copy have died",
            state.step,
            named.join(", ")
        ))
    }

    /// Makes lost copies again, if all ranks are members of the store; collective.
    pub(super) fn remake(&mut self) -> Result<()> {
        match &mut self.current {
            Some(current) if self.whole => current.store.remake().map(drop),
            _ => Ok(()),
        }
    }
}

/// The members that take over the streams of all ranks that submitted: each its own, and the dead ones' in turns.
fn taken_over(submitted: &[StartRank], members: &[StartRank]) -> Vec<usize> {
    let mut turns = (0..members.len().max(1)).cycle();
    let by = |rank: &StartRank| match members.binary_search(rank) {
        Ok(at) => at,
        Err(_) => turns.next().unwrap_or(0),
    };
    submitted.iter().map(by).collect()
}

/// The variables of a rank as blocks.
struct Stream<'a> {
    /// Whole blocks each.
    slices: Vec<Cow<'a, [u8]>>,
    block: u64,
    blocks: u64,
}

impl<'a> Stream<'a> {
    fn of(variables: &[Variable<'a>], block: u64) -> Result<Stream<'a>> {
        let listed: Vec<(&Description, u64)> =
            variables.iter().map(|v| (&v.description, v.bytes.len() as u64)).collect();
        let listed = serde_json::to_vec(&listed).map_err(|_| garbled())?;
        let mut head = (listed.len() as u64).to_le_bytes().to_vec();
        head.extend(listed);
        head.resize(head.len().next_multiple_of(block as usize), 0);
        let mut slices: Vec<Cow<[u8]>> = vec![head.into()];
        for variable in variables {
            let bytes = variable.bytes;
            let (whole, rest) = bytes.split_at(bytes.len() - bytes.len() % block as usize);
            let mut last = rest.to_vec();
            last.resize(rest.len().next_multiple_of(block as usize), 0);
            slices.extend(
                [Cow::from(whole), last.into()].into_iter().filter(|slice| !slice.is_empty()),
            );
        }
        let blocks = slices.iter().map(|slice| slice.len() as u64 / block).sum();
        Ok(Stream { slices, block, blocks })
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

    fn digests(&self) -> Vec<Digest> {
        self.chunks().map(|(_, bytes)| digest(bytes)).collect()
    }

    fn blocks_in(&self, chunks: &Range<usize>) -> u64 {
        let chunks = self.chunks().skip(chunks.start).take(chunks.len());
        chunks.map(|(_, bytes)| bytes.len() as u64 / self.block).sum()
    }

    /// The blocks that have changed, by their numbers in the generation, with their bytes.
    fn changes(&self, first: u64, before: &[Digest], now: &[Digest]) -> Vec<(u64, &[u8])> {
        let changed = before.iter().zip(now).map(|(before, now)| before != now);
        let chunks = self.chunks().zip(changed).filter(|(_, changed)| *changed);
        chunks.map(|((at, bytes), _)| (first + at, bytes)).collect()
    }
}

/// The chunks that differ, as ranges; `None` if there are other chunks.
fn changed_chunks(before: &[Digest], now: &[Digest]) -> Option<Vec<Range<usize>>> {
    if before.len() != now.len() {
        return None;
    }
    let differ = before.iter().zip(now).enumerate().filter(|(_, (before, now))| before != now);
    Some(differ.map(|(at, _)| at..at + 1).collect())
}

/// Streams that a rank has taken over.
pub(super) struct HeldStreams {
    state: MemoryState,
    /// Each with its place in the bytes.
    variables: Vec<(HeldVariable, Range<usize>)>,
    bytes: Vec<u8>,
}

impl HeldStreams {
    /// Takes apart the stream of a rank.
    fn add(&mut self, rank: u32, place: Range<usize>, block: u64) -> Result<()> {
        let stream = self.bytes.get(place.clone()).ok_or_else(garbled)?;
        let (head, rest) = stream.split_first_chunk::<8>().ok_or_else(garbled)?;
        let len = usize::try_from(u64::from_le_bytes(*head)).map_err(|_| garbled())?;
        let listed = rest.get(..len).ok_or_else(garbled)?;
        let listed: Vec<(Description, u64)> =
            serde_json::from_slice(listed).map_err(|_| garbled())?;
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
        self.state.ranks
    }

    fn place(&self) -> String {
        format!("step {} in the memory of ranks", self.state.step)
    }

    fn variables(&self) -> Vec<HeldVariable> {
        self.variables.iter().map(|(variable, _)| variable.clone()).collect()
    }

    fn read(&self, variable: usize, ranges: &[Range<u64>], mut to: &mut [u8]) -> Result<()> {
        let bytes = &self.bytes[self.variables[variable].1.clone()];
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
