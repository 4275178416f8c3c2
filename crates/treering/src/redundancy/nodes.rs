//! The ranks of a run by their nodes: the first rank of each node communicates for it.

use super::Redundancy;
use super::placement::{PlacedNode, RankPlace, nodes_of};
use crate::array::Rank;
pub(super) use crate::comm::garbled;
use crate::comm::{Comm, Reduction, died};
use crate::error::{Error, ErrorKind, Result};
use std::sync::Arc;

/// Outcomes of a part of the work, the worst first.
const DEAD: u64 = 0;
const FAILED: u64 = 1;
const WELL: u64 = 2;

/// The nodes of a run, as one rank sees them.
pub(crate) struct NodeRanks {
    pub(super) comm: Arc<dyn Comm>,
    pub(crate) nodes: Vec<PlacedNode>,
    /// Of the first rank of a node: a communicator of these ranks, in the order of `nodes`.
    pub(super) heads: Option<Arc<dyn Comm>>,
}

/// Strings one after another, for messages between ranks of one release.
pub(super) fn pack_parts<P: AsRef<[u8]>>(parts: &[P]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for part in parts {
        bytes.extend_from_slice(&(part.as_ref().len() as u64).to_le_bytes());
        bytes.extend_from_slice(part.as_ref());
    }
    bytes
}

/// The strings of a message.
pub(super) fn unpack_parts(mut bytes: &[u8]) -> Result<Vec<&[u8]>> {
    let mut parts = Vec::new();
    while !bytes.is_empty() {
        let (len, rest) = bytes.split_first_chunk::<8>().ok_or_else(garbled)?;
        let len = usize::try_from(u64::from_le_bytes(*len)).map_err(|_| garbled())?;
        let (part, rest) = rest.split_at_checked(len).ok_or_else(garbled)?;
        parts.push(part);
        bytes = rest;
    }
    Ok(parts)
}

/// The numbers of a message.
pub(super) fn unpack_numbers(bytes: &[u8]) -> Vec<u32> {
    bytes.chunks_exact(4).map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect()
}

/// A message of numbers.
pub(super) fn pack_numbers(numbers: impl IntoIterator<Item = u32>) -> Vec<u8> {
    numbers.into_iter().flat_map(u32::to_le_bytes).collect()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

impl NodeRanks {
    /// Learns which ranks share a node; collective. `domain` is what this rank's node fails together with; default: the
    /// node by itself. All ranks ask for the same redundancy, or all get an error.
    pub(crate) fn meet(
        comm: Arc<dyn Comm>,
        domain: Option<&str>,
        scheme: Redundancy,
    ) -> Result<NodeRanks> {
        let node = comm.node();
        let own = pack_parts(&[node, domain.unwrap_or(node), &format!("{scheme:?}")]);
        let all = comm.gather(Rank(0), &own)?;
        let mut table = pack_parts(&all);
        comm.broadcast(Rank(0), &mut table)?;
        let mut ranks = Vec::new();
        for rank in unpack_parts(&table)? {
            match unpack_parts(rank)?[..] {
                [node, domain, scheme] => ranks.push(RankPlace {
                    node: text(node),
                    domain: text(domain),
                    scheme: text(scheme),
                }),
                _ => return Err(garbled()),
            }
        }
        let first = comm.rank() == Rank(0);
        let nodes = nodes_of(&ranks).map_err(|e| if first { e } else { e.repeated() });
        let heads = |nodes: &[PlacedNode]| nodes.iter().any(|node| node.rank == comm.rank());
        let is_head = nodes.as_ref().is_ok_and(|nodes| heads(nodes));
        let part = comm.split(u32::from(!is_head), 0)?;
        Ok(NodeRanks { nodes: nodes?, heads: is_head.then_some(part), comm })
    }

    /// Whether this rank is the first of its node, which looks after the node's store.
    pub(crate) fn leads_node(&self) -> bool {
        self.heads.is_some()
    }

    /// Brings strings of all ranks to the first rank of their node; collective.
    pub(super) fn to_heads(&self, own: &[String]) -> Result<Vec<String>> {
        let head = self.nodes.iter().find(|node| node.name == self.comm.node());
        let head = head.ok_or_else(garbled)?.rank;
        let message = pack_parts(own);
        let messages = [(head, &message[..])];
        let send = head != self.comm.rank() && !own.is_empty();
        let mut all = own.to_vec();
        for (_, bytes) in self.comm.exchange(if send { &messages } else { &[] })? {
            all.extend(unpack_parts(&bytes)?.into_iter().map(text));
        }
        Ok(all)
    }

    /// Carries out the part of the first rank of each node, after something that all ranks have prepared; all ranks get
    /// an error if one of them does, and that of a death if that is the reason. An outer error of the work is one of communication, by which others may wait for
    /// this rank: it ends the communicator of the nodes. An inner one concerns this node.
    pub(super) fn together<P, T>(
        &self,
        what: &str,
        prepared: Result<P>,
        work: impl FnOnce(&dyn Comm, P) -> Result<Result<T>>,
    ) -> Result<Option<T>> {
        let done = match (self.heads.as_deref(), prepared) {
            (None, prepared) => prepared.map(|_| Ok(None)),
            (Some(heads), prepared) => prepared
                .and_then(|prepared| work(heads, prepared))
                .map(|done| done.map(Some))
                .inspect_err(|_| drop(heads.revoke())),
        };
        let done = done.and_then(|done| done);
        // No agreement of those that live: whoever has heard of a death before never comes to it, and revoking ends a
        // reduction, but no agreement.
        let mut least = [match &done {
            Ok(_) => WELL,
            Err(error) if error.is_death() => DEAD,
            Err(_) => FAILED,
        }];
        let reduced = self.comm.reduce(Reduction::Min, &mut least);
        reduced.inspect_err(|_| drop(self.comm.revoke()))?;
        done.and_then(|done| match least {
            [WELL] => Ok(done),
            [DEAD] => Err(died(&[])),
            _ => Err(Error::new(ErrorKind::Lost, format!("another node could not {what}"))),
        })
    }
}
