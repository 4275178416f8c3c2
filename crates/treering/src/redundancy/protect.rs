//! Protecting what nodes have: every node hands the lanes of its string to the nodes that keep them.
//!
//! First the members of a set describe their objects to each other, from which follow the stripes and the number of
//! rounds. In each round a member reads the next piece of its string and sends each lane of it to the node that keeps it,
//! which combines what comes and appends it to its parity file. At last the digests of all objects, known by then, go
//! into the heads. A node whose store fails goes on communicating, so that nobody waits for it, and says that its bytes
//! are not to be used; a parity file of which one byte is missing is dropped.

use super::nodes::{NodeRanks, garbled, pack_parts, unpack_parts};
use super::placement::{NodePlacement, ProtectionSet};
use super::strings::{ObjectString, xor};
use crate::array::{Rank, Sequence};
use crate::comm::{Comm, Reduction};
use crate::error::{Error, ErrorKind, Result};
use crate::format::{ParityHead, ParityMember, ParityName, ParityObject, Striping, WriterId};
use crate::merkle::{Digest, Digester};
use crate::store::{Put, Store};
use std::collections::HashMap;

/// The largest stripe, and the most bytes that go to all lanes in one turn.
const STRIPE: u64 = 64 << 10;
const ROW: u64 = 256 << 10;

/// Data to be protected.
#[derive(Clone, Copy)]
pub(crate) struct ProtectJob<'a> {
    pub(crate) run: &'a str,
    pub(crate) writer: WriterId,
    /// The newest checkpoint that the objects belong to.
    pub(crate) sequence: Sequence,
    /// A number that no other set has.
    pub(crate) random: u64,
    /// The keys of this rank's objects in the store of its node.
    pub(crate) objects: &'a [String],
    /// The bytes that a node hands over at a time.
    pub(crate) piece: u64,
}

/// Amount of data that was protected, on this node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ProtectedBytes {
    /// The number of objects, and their bytes.
    pub(crate) objects: u64,
    pub(crate) bytes: u64,
    /// The bytes that this node keeps for others.
    pub(crate) kept: u64,
}

/// Protects the objects of all nodes; collective. When it returns, the parity files of every node are durable, or there
/// is an error on all ranks.
pub(crate) fn protect(
    ranks: &NodeRanks,
    placement: &NodePlacement,
    store: &dyn Store,
    job: &ProtectJob,
) -> Result<ProtectedBytes> {
    if placement.sets.is_empty() {
        return Ok(ProtectedBytes::default());
    }
    let keys = ranks.to_heads(job.objects);
    let done = ranks.together("keep what it should for others", keys, |heads, keys| {
        NodePart::new(heads, placement, store, job, keys).work()
    })?;
    Ok(done.unwrap_or_default())
}

/// The stripes of a set whose longest string has this many bytes.
pub(super) fn stripes(members: usize, longest: u64) -> Striping {
    let one = Striping { members, stripe: 1 };
    let lanes = one.lanes() as u64;
    let stripe = longest.div_ceil(lanes).clamp(1, STRIPE.min(ROW / lanes).max(1));
    Striping { stripe, ..one }
}

/// The bytes of a string that are handed over in a round: whole rows.
pub(super) fn block(striping: Striping, piece: u64) -> u64 {
    striping.row() * (piece / striping.row()).max(1)
}

/// A member as its node describes it.
struct Described {
    random: u64,
    /// Nothing if the node cannot read its objects.
    member: Option<ParityMember>,
}

/// One node's part.
struct NodePart<'a> {
    heads: &'a dyn Comm,
    placement: &'a NodePlacement,
    store: &'a dyn Store,
    job: &'a ProtectJob<'a>,
    node: usize,
    own: ParityMember,
    /// The set that it is a member of, and its number there.
    set: &'a ProtectionSet,
    number: usize,
    /// The set that it keeps a slot of, and which.
    kept: (&'a ProtectionSet, usize),
    described: HashMap<usize, Described>,
    /// Whether the own objects cannot be read.
    unreadable: bool,
    failed: Option<Error>,
}

/// A parity file that is being written.
struct Keeping {
    put: Box<dyn Put>,
    digester: Digester,
    len: u64,
    striping: Striping,
    name: ParityName,
}

fn place_in(list: &[usize], node: usize) -> Option<usize> {
    list.iter().position(|other| *other == node)
}

impl<'a> NodePart<'a> {
    fn new(
        heads: &'a dyn Comm,
        placement: &'a NodePlacement,
        store: &'a dyn Store,
        job: &'a ProtectJob<'a>,
        keys: Vec<String>,
    ) -> Self {
        let node = heads.rank().0 as usize;
        // Every node is a member of one set, and keeps one slot of one.
        let member = placement.sets.iter().find_map(|s| Some((s, place_in(&s.members, node)?)));
        let kept = placement.sets.iter().find_map(|s| Some((s, place_in(&s.keepers, node)?)));
        let first = (&placement.sets[0], 0);
        let (set, number) = member.unwrap_or(first);
        let (mut failed, mut unreadable) = (None, false);
        let object = |key: String| {
            let size = store.open(&key)?.size();
            Ok(ParityObject { key, size, digest: Digest::default() })
        };
        let objects = keys.into_iter().map(object).collect::<Result<_>>();
        let objects = objects.unwrap_or_else(|error| {
            (failed, unreadable) = (Some(error), true);
            Vec::new()
        });
        let own = ParityMember { node: placement.nodes[node].name.clone(), objects };
        let (kept, described) = (kept.unwrap_or(first), HashMap::new());
        NodePart {
            heads,
            placement,
            store,
            job,
            node,
            own,
            set,
            number,
            kept,
            described,
            unreadable,
            failed,
        }
    }

    fn fail(&mut self, error: Error) {
        self.failed.get_or_insert(error);
    }

    fn fail_with(&mut self, node: usize) {
        let what = format!("node {} cannot read its objects", self.placement.nodes[node].name);
        self.fail(Error::new(ErrorKind::Lost, what));
    }

    fn work(mut self) -> Result<Result<ProtectedBytes>> {
        self.describe()?;
        let striping = self.striping(self.set);
        let rounds = striping.map_or(0, |s| self.own.bytes().div_ceil(block(s, self.job.piece)));
        let mut most = [rounds];
        self.heads.reduce(Reduction::Max, &mut most)?;
        let mut keeping = self.begin();
        let objects = self.own.objects.clone();
        let mut string = ObjectString::whole(self.store, &objects);
        let mut digesters: Vec<Digester> = objects.iter().map(|_| Digester::new()).collect();
        for round in 0..most[0] {
            let messages = match striping {
                Some(striping) => self.lanes(striping, round, &mut string, &mut digesters),
                None => Vec::new(),
            };
            let messages: Vec<(Rank, &[u8])> =
                messages.iter().map(|(to, bytes)| (*to, &bytes[..])).collect();
            let received = self.heads.exchange(&messages)?;
            drop(messages);
            self.keep(&mut keeping, received);
        }
        for (object, digester) in self.own.objects.iter_mut().zip(&digesters) {
            object.digest = digester.finish();
        }
        self.describe()?;
        let kept = self.end(keeping);
        let done = ProtectedBytes {
            objects: self.own.objects.len() as u64,
            bytes: self.own.bytes(),
            kept,
        };
        Ok(match self.failed {
            None => Ok(done),
            Some(error) => Err(error),
        })
    }

    /// Describes the own objects to those who keep lanes of them.
    fn describe(&mut self) -> Result<()> {
        let member = (!self.unreadable).then_some(&self.own);
        let bytes = member.map(ParityMember::write).unwrap_or_default();
        let message = pack_parts(&[&self.job.random.to_le_bytes()[..], &bytes[..]]);
        let others = self.set.keepers.iter().filter(|keeper| **keeper != self.node);
        let messages: Vec<(Rank, &[u8])> =
            others.map(|keeper| (Rank(*keeper as u32), &message[..])).collect();
        let received = self.heads.exchange(&messages)?;
        let own = Described { random: self.job.random, member: member.cloned() };
        self.described.insert(self.node, own);
        for (from, bytes) in received {
            let parts = unpack_parts(&bytes)?;
            let [random, member] = parts[..] else { return Err(garbled()) };
            let random = u64::from_le_bytes(random.try_into().map_err(|_| garbled())?);
            let member = match member {
                [] => None,
                bytes => Some(ParityMember::parse(bytes)?),
            };
            self.described.insert(from.0 as usize, Described { random, member });
        }
        Ok(())
    }

    /// The members of a set, if all of them can read their objects.
    fn members(&self, set: &ProtectionSet) -> std::result::Result<Vec<&ParityMember>, usize> {
        let member = |node: &usize| {
            let described =
                self.described.get(node).and_then(|described| described.member.as_ref());
            described.ok_or(*node)
        };
        set.members.iter().map(member).collect()
    }

    fn striping(&self, set: &ProtectionSet) -> Option<Striping> {
        let members = self.members(set).ok()?;
        let longest = members.iter().map(|member| member.bytes()).max().unwrap_or(0);
        Some(stripes(members.len(), longest))
    }

    /// Begins the parity file that this node keeps, unless there is nothing to protect.
    fn begin(&mut self) -> Option<Keeping> {
        let (set, slot) = self.kept;
        let members = match self.members(set) {
            Ok(members) => members,
            Err(node) => {
                self.fail_with(node);
                return None;
            }
        };
        if members.iter().all(|member| member.objects.is_empty()) {
            return None;
        }
        let striping = self.striping(set)?;
        let random = self.described.get(&set.members[0]).map_or(0, |first| first.random);
        let ProtectJob { run, sequence, writer, .. } = *self.job;
        let name = ParityName { sequence, writer, set: random, slot: slot as u32 };
        match self.store.put(&name.key(run)) {
            Ok(put) => Some(Keeping { put, digester: Digester::new(), len: 0, striping, name }),
            Err(error) => {
                self.fail(error);
                None
            }
        }
    }

    /// The next piece of every lane of the own string, and who keeps it.
    fn lanes(
        &mut self,
        striping: Striping,
        round: u64,
        string: &mut ObjectString,
        digesters: &mut [Digester],
    ) -> Vec<(Rank, Vec<u8>)> {
        let block = block(striping, self.job.piece);
        let start = round * block;
        let len = self.own.bytes().saturating_sub(start).min(block);
        let mut piece = vec![0; len as usize];
        let read = match self.unreadable {
            false => {
                string.read(start, &mut piece, &mut |number, bytes| digesters[number].update(bytes))
            }
            true => Ok(()),
        };
        if let Err(error) = read {
            self.unreadable = true;
            self.fail(error);
        }
        let stripe = striping.stripe as usize;
        let lane = |lane: usize| {
            let mut message = vec![u8::from(self.unreadable)];
            message.reserve(striping.lane_len(len, lane) as usize);
            for row in piece.chunks(striping.row() as usize) {
                let from = (lane * stripe).min(row.len());
                message.extend_from_slice(&row[from..(from + stripe).min(row.len())]);
            }
            (Rank(self.set.keepers[striping.slot(self.number, lane)] as u32), message)
        };
        (0..striping.lanes()).filter(|_| len > 0).map(lane).collect()
    }

    /// Combines what has come and appends it to the parity file.
    fn keep(&mut self, keeping: &mut Option<Keeping>, received: Vec<(Rank, Vec<u8>)>) {
        let mut sum: Vec<u8> = Vec::new();
        for (from, message) in received {
            match message.split_first() {
                Some((0, lane)) => {
                    sum.resize(sum.len().max(lane.len()), 0);
                    xor(&mut sum, lane);
                }
                _ => {
                    *keeping = None;
                    self.fail_with(from.0 as usize);
                }
            }
        }
        let Some(file) = keeping else { return };
        file.digester.update(&sum);
        file.len += sum.len() as u64;
        if let Err(error) = file.put.append(&sum) {
            *keeping = None;
            self.fail(error);
        }
    }

    /// Closes the parity file; the bytes of its body.
    fn end(&mut self, keeping: Option<Keeping>) -> u64 {
        let Some(Keeping { mut put, digester, len, striping, name }) = keeping else { return 0 };
        let members = match self.members(self.kept.0) {
            Ok(members) => members.into_iter().cloned().collect(),
            Err(node) => {
                self.fail_with(node);
                return 0;
            }
        };
        let (run, stripe) = (self.job.run.to_string(), striping.stripe);
        let head = ParityHead { run, name, members, stripe, digest: digester.finish() };
        let written = match head.body() == len {
            true => put.append(&head.write_tail()).and_then(|()| put.finish()),
            false => Err(garbled()),
        };
        match written {
            Ok(()) => len,
            Err(error) => {
                self.fail(error);
                0
            }
        }
    }
}
