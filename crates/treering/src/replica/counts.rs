//! Messages and bytes of replicas at the rank that has the most, counted without sending anything.
//!
//! The counts are arithmetic on the placement that a store uses, so they hold for numbers of ranks that no test has.
//! Every rank submits the same number of bytes. Parts of 16 KiB or more are messages of their own, and a list comes
//! before them: one for each receiver of a parcel. A request is one message to every sender that was chosen. The
//! messages of collective calls are left out.
//!
//! Law: a submit of a real store sends exactly this many messages and bytes, and so does a load whose senders serve no
//! more than a parcel.

use super::placement::{FirstCopy, RangeId, RangePart, ReplicaLayout, ReplicaPlacement};
use super::store::{PARCEL, ReplicaSettings, SenderChoice, head_len, is_packed, request_len};
use super::topology::{OriginalRank, Topology};
use crate::array::Rank;
use crate::error::{Error, Result};
use std::collections::HashMap;
use std::ops::Range;

/// Messages and bytes of an operation at the rank that has the most of each. Returned by [`ReplicaScale::count`], which has
/// an example.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplicaCount {
    /// The operation.
    pub operation: ReplicaOperation,
    /// Messages that a rank sends.
    pub messages_sent: u64,
    /// Messages that a rank receives.
    pub messages_received: u64,
    /// Bytes that a rank sends.
    pub bytes_sent: u64,
    /// Bytes that a rank receives.
    pub bytes_received: u64,
}

/// An operation of a replica store whose messages are counted. [`ReplicaScale::count`] has an example.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplicaOperation {
    /// A submit of all blocks.
    Submit,
    /// A load of 1 % of all blocks, the same number by every rank.
    LoadHundredth,
    /// A load of one rank's blocks, the same number by every rank.
    LoadOneByAll,
    /// A load of one rank's blocks by another.
    LoadOneByOne,
    /// A load of all blocks: every rank loads those of the next one.
    LoadAll,
}

impl ReplicaOperation {
    /// All of them.
    pub const ALL: [ReplicaOperation; 5] = [
        ReplicaOperation::Submit,
        ReplicaOperation::LoadHundredth,
        ReplicaOperation::LoadOneByAll,
        ReplicaOperation::LoadOneByOne,
        ReplicaOperation::LoadAll,
    ];

    /// The blocks that a rank loads.
    fn requests(self, rank: u64, ranks: u64, blocks: u64) -> Range<u64> {
        let share = |of: Range<u64>| {
            let at = |rank: u64| of.start + (of.end - of.start) * rank / ranks;
            at(rank)..at(rank + 1)
        };
        match self {
            ReplicaOperation::Submit => 0..0,
            ReplicaOperation::LoadHundredth => share(0..ranks * blocks / 100),
            ReplicaOperation::LoadOneByAll => share(0..blocks),
            ReplicaOperation::LoadOneByOne => {
                0..if rank + 1 == ranks && ranks > 1 { blocks } else { 0 }
            }
            ReplicaOperation::LoadAll => {
                let next = (rank + 1) % ranks;
                next * blocks..(next + 1) * blocks
            }
        }
    }
}

/// Ranks, copies and bytes that messages are counted for. [`ReplicaScale::count`] has an example.
#[derive(Clone, Debug)]
pub struct ReplicaScale {
    /// The number of ranks.
    pub ranks: u32,
    /// Ranks of a node.
    pub per_node: u32,
    /// The number of copies.
    pub copies: u32,
    /// Blocks that every rank submits.
    pub blocks: u64,
    /// Settings of the store.
    pub settings: ReplicaSettings,
}

impl ReplicaScale {
    /// Counts the messages of an operation, without sending any.
    ///
    /// ```
    /// use treering::{ReplicaOperation, ReplicaScale, ReplicaSettings};
    /// let settings = ReplicaSettings::default();
    /// let scale = ReplicaScale { ranks: 48, per_node: 8, copies: 4, blocks: 4096, settings };
    /// let most = scale.count(ReplicaOperation::Submit)?; // at the busiest rank
    /// println!("{} messages, {} bytes", most.messages_sent, most.bytes_sent);
    /// assert!(most.bytes_sent > 3 * 4096 * 64);
    /// # Ok::<(), treering::Error>(())
    /// ```
    pub fn count(&self, operation: ReplicaOperation) -> Result<ReplicaCount> {
        let blocks = self.blocks.checked_mul(u64::from(self.ranks));
        let blocks = blocks.ok_or_else(|| Error::usage("there are more than 2^64 blocks"))?;
        let ReplicaSettings { range_blocks, seed, .. } = self.settings;
        let (copies, first_copy) = (self.copies, FirstCopy::Permuted);
        let layout = ReplicaLayout { blocks, range_blocks, copies, seed, first_copy };
        let topology = Topology::blocks(self.ranks, self.per_node)?;
        let mut tally = RankTraffic {
            placement: ReplicaPlacement::new(layout, topology)?,
            block_size: self.settings.block_size,
            parcel: PARCEL.min(self.settings.piece),
            sent: vec![Counted::default(); self.ranks as usize],
            received: vec![Counted::default(); self.ranks as usize],
        };
        for rank in 0..self.ranks {
            match operation {
                ReplicaOperation::Submit => {
                    let first = u64::from(rank) * self.blocks;
                    tally.submit(rank, first..first + self.blocks)?;
                }
                _ => {
                    let requests = operation.requests(rank.into(), self.ranks.into(), self.blocks);
                    tally.load(rank, requests)?;
                }
            }
        }
        Ok(tally.most(operation))
    }
}

#[derive(Clone, Copy, Default)]
struct Counted {
    messages: u64,
    bytes: u64,
}

struct RankTraffic {
    placement: ReplicaPlacement,
    block_size: u64,
    parcel: u64,
    sent: Vec<Counted>,
    received: Vec<Counted>,
}

impl RankTraffic {
    fn message(&mut self, from: u32, to: u32, messages: u64, bytes: u64) {
        for counted in [&mut self.sent[from as usize], &mut self.received[to as usize]] {
            counted.messages += messages;
            counted.bytes += bytes;
        }
    }

    /// The messages of parts from one rank to another in one parcel.
    fn parcel(&mut self, from: u32, to: u32, parts: &[u64]) {
        let whole = parts.iter().filter(|len| !is_packed(**len)).count() as u64;
        let bytes = parts.iter().sum::<u64>() + head_len(parts.len() as u64);
        self.message(from, to, whole + 1, bytes);
    }

    fn len(&self, part: &RangePart) -> u64 {
        (part.blocks.end - part.blocks.start) * self.block_size
    }

    fn submit(&mut self, rank: u32, blocks: Range<u64>) -> Result<()> {
        let (mut parcel, mut packed, mut holders) = (HashMap::new(), 0, Vec::new());
        for part in self.placement.parts(&[blocks])? {
            let len = self.len(&part);
            self.placement.holders_into(part.range, &mut holders);
            for to in holders.iter().filter(|to| to.0 != rank) {
                parcel.entry(to.0).or_insert_with(Vec::new).push(len);
            }
            packed += len;
            if packed >= self.parcel {
                parcel.drain().for_each(|(to, parts)| self.parcel(rank, to, &parts));
                packed = 0;
            }
        }
        parcel.drain().for_each(|(to, parts)| self.parcel(rank, to, &parts));
        Ok(())
    }

    fn load(&mut self, rank: u32, blocks: Range<u64>) -> Result<()> {
        let (mut choice, mut from, mut holders) =
            (SenderChoice::default(), HashMap::new(), Vec::new());
        for part in self.placement.parts(&[blocks])? {
            let RangePart { range, .. } = part;
            let len = self.len(&part);
            self.placement.holders_into(range, &mut holders);
            if holders.contains(&OriginalRank(rank)) {
                continue;
            }
            let candidates: Vec<Rank> = holders.iter().map(|holder| Rank(holder.0)).collect();
            let sender = choice.choose(Rank(rank), RangeId(range.0), &candidates, len);
            if let Some(sender) = sender {
                from.entry(sender.0).or_insert_with(Vec::new).push(len);
            }
        }
        for (sender, parts) in from {
            self.message(rank, sender, 1, request_len(parts.len() as u64));
            self.parcel(sender, rank, &parts);
        }
        Ok(())
    }

    fn most(&self, operation: ReplicaOperation) -> ReplicaCount {
        let most = |all: &[Counted], of: fn(&Counted) -> u64| all.iter().map(of).max().unwrap_or(0);
        ReplicaCount {
            operation,
            messages_sent: most(&self.sent, |counted| counted.messages),
            messages_received: most(&self.received, |counted| counted.messages),
            bytes_sent: most(&self.sent, |counted| counted.bytes),
            bytes_received: most(&self.received, |counted| counted.bytes),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::comm::ThreadRanks;
    use crate::replica::store::{ReplicaStore, ReplicaTraffic};

    /// The traffic of an operation of a real store.
    fn real(scale: &ReplicaScale, operation: ReplicaOperation) -> Vec<ReplicaTraffic> {
        let nodes: Vec<String> =
            (0..scale.ranks).map(|rank| format!("node {}", rank / scale.per_node)).collect();
        let scale = scale.clone();
        let ends = ThreadRanks::on_nodes(&nodes).run(move |comm| {
            let rank = u64::from(comm.rank().0);
            let ranks = u64::from(comm.size());
            let mut store = ReplicaStore::new(comm, scale.copies, scale.settings.clone()).unwrap();
            let bytes = vec![rank as u8; (scale.blocks * scale.settings.block_size) as usize];
            store.submit(1, &bytes, rank * scale.blocks).unwrap();
            let before = store.traffic();
            if operation == ReplicaOperation::Submit {
                return before;
            }
            let requests = operation.requests(rank, ranks, scale.blocks);
            let held = store.held(requests.clone());
            let loaded = store.load(std::slice::from_ref(&requests)).unwrap();
            assert!(loaded.lost.is_empty() && held.iter().all(|held| !held.is_empty()));
            let after = store.traffic();
            ReplicaTraffic {
                messages_sent: after.messages_sent - before.messages_sent,
                bytes_sent: after.bytes_sent - before.bytes_sent,
                messages_received: after.messages_received - before.messages_received,
                bytes_received: after.bytes_received - before.bytes_received,
                collectives: 0,
            }
        });
        ends.into_iter().filter_map(|end| end.done()).collect()
    }

    #[test]
    fn counts_are_those_of_a_real_store() {
        for (ranks, per_node, copies, range_blocks, seed) in
            [(8, 1, 4, 512, Some(0)), (6, 2, 2, 37, Some(3)), (5, 1, 3, 300, None)]
        {
            let settings = ReplicaSettings { range_blocks, seed, ..ReplicaSettings::default() };
            // More than one parcel of a submit.
            let scale = ReplicaScale { ranks, per_node, copies, blocks: 20_000, settings };
            for operation in ReplicaOperation::ALL {
                let counted = scale.count(operation).unwrap();
                let all = real(&scale, operation);
                assert_eq!(all.len(), ranks as usize);
                let most = |of: fn(&ReplicaTraffic) -> u64| all.iter().map(of).max().unwrap();
                let real = ReplicaCount {
                    operation,
                    messages_sent: most(|traffic| traffic.messages_sent),
                    messages_received: most(|traffic| traffic.messages_received),
                    bytes_sent: most(|traffic| traffic.bytes_sent),
                    bytes_received: most(|traffic| traffic.bytes_received),
                };
                assert_eq!(counted, real, "{operation:?} on {ranks} ranks");
                assert!(counted.bytes_sent > 0);
            }
        }
    }
}
