//! Node and failure domain of every rank.
//!
//! Law: every rank is on one node and every node is in one domain. Nodes and domains are numbered in the order of their
//! first rank, so that all ranks compute the same numbers from the same names.

use crate::error::{Error, Result};
use std::collections::HashMap;
use std::fmt;

/// A rank of the communicator that submitted the data. It keeps its number when the communicator shrinks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OriginalRank(pub u32);

impl fmt::Display for OriginalRank {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A kind of unit whose ranks fail together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FailureUnit {
    /// A single rank.
    Rank,
    /// All ranks of a node.
    Node,
    /// All ranks of a failure domain.
    Domain,
}

/// Node and failure domain of every rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Topology {
    ranks: u32,
    nodes: u32,
    domains: u32,
    map: NodeMap,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum NodeMap {
    /// Consecutive ranks share a node; every node is a domain.
    Blocks {
        per_node: u32,
    },
    Listed {
        node: Vec<u32>,
        domain: Vec<u32>,
    },
}

impl Topology {
    /// Nodes of `per_node` consecutive ranks (the last may have fewer), each a failure domain of its own. It takes no
    /// memory per rank.
    pub fn blocks(ranks: u32, per_node: u32) -> Result<Self> {
        if ranks == 0 || per_node == 0 {
            return Err(Error::usage(format!(
                "invalid topology: {ranks} ranks, {per_node} per node; expected 1 or more"
            )));
        }
        let nodes = ranks.div_ceil(per_node);
        Ok(Topology { ranks, nodes, domains: nodes, map: NodeMap::Blocks { per_node } })
    }

    /// The topology of ranks with the names of their nodes and failure domains.
    pub fn named<'a>(places: impl IntoIterator<Item = (&'a str, &'a str)>) -> Result<Self> {
        let (mut nodes, mut domains) = (HashMap::new(), HashMap::new());
        let (mut node, mut domain) = (Vec::new(), Vec::new());
        for (rank, (node_name, domain_name)) in places.into_iter().enumerate() {
            let next = domains.len() as u32;
            let its_domain = *domains.entry(domain_name).or_insert(next);
            let next = nodes.len() as u32;
            let (its_node, known, first) =
                *nodes.entry(node_name).or_insert((next, its_domain, rank));
            if known != its_domain {
                return Err(Error::usage(format!(
                    "node {node_name} is in one failure domain by rank {first} and in {domain_name:?} by rank {rank}"
                )));
            }
            node.push(its_node);
            domain.push(its_domain);
        }
        let Ok(ranks @ 1..) = u32::try_from(node.len()) else {
            return Err(Error::usage(format!(
                "invalid topology: {} ranks; expected 1 to 2^32 - 1",
                node.len()
            )));
        };
        let (nodes, domains) = (nodes.len() as u32, domains.len() as u32);
        Ok(Topology { ranks, nodes, domains, map: NodeMap::Listed { node, domain } })
    }

    /// The number of ranks.
    pub fn ranks(&self) -> u32 {
        self.ranks
    }

    /// The number of ranks, nodes or domains.
    pub fn count(&self, unit: FailureUnit) -> u32 {
        match unit {
            FailureUnit::Rank => self.ranks,
            FailureUnit::Node => self.nodes,
            FailureUnit::Domain => self.domains,
        }
    }

    /// The number of the unit that a rank belongs to. Ranks that do not exist belong to the unit of the last one.
    #[inline]
    pub fn unit_of(&self, unit: FailureUnit, rank: OriginalRank) -> u32 {
        let rank = rank.0.min(self.ranks - 1);
        match (unit, &self.map) {
            (FailureUnit::Rank, _) => rank,
            (_, NodeMap::Blocks { per_node }) => rank / per_node,
            (FailureUnit::Node, NodeMap::Listed { node, .. }) => node[rank as usize],
            (FailureUnit::Domain, NodeMap::Listed { domain, .. }) => domain[rank as usize],
        }
    }

    /// The coarsest unit of which there are at least `copies`: copies of a range are in different units of this kind.
    pub fn separable(&self, copies: u32) -> FailureUnit {
        let units = [FailureUnit::Domain, FailureUnit::Node];
        units.into_iter().find(|unit| self.count(*unit) >= copies).unwrap_or(FailureUnit::Rank)
    }

    /// The ranks of every unit of a kind.
    pub fn members(&self, unit: FailureUnit) -> UnitMembers {
        match (unit, &self.map) {
            (FailureUnit::Rank, _) => UnitMembers::Blocks { ranks: self.ranks, size: 1 },
            (_, NodeMap::Blocks { per_node }) => {
                UnitMembers::Blocks { ranks: self.ranks, size: *per_node }
            }
            (FailureUnit::Node, NodeMap::Listed { node, .. }) => listed_members(node, self.nodes),
            (FailureUnit::Domain, NodeMap::Listed { domain, .. }) => {
                listed_members(domain, self.domains)
            }
        }
    }

    /// The number of ranks of every node, if all have the same number of consecutive ranks.
    pub fn even_blocks(&self) -> Option<u32> {
        match &self.map {
            NodeMap::Blocks { per_node } => (self.ranks.is_multiple_of(*per_node)
                || self.nodes == 1)
                .then_some((*per_node).min(self.ranks)),
            NodeMap::Listed { .. } => None,
        }
    }
}

/// The ranks of every unit of a kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UnitMembers {
    /// Units of consecutive ranks.
    Blocks {
        /// The number of ranks.
        ranks: u32,
        /// The number of ranks in a unit; the last may have fewer.
        size: u32,
    },
    /// Units of any ranks.
    Listed {
        /// All ranks, unit by unit.
        ranks: Vec<u32>,
        /// The end of each unit in `ranks`.
        ends: Vec<u32>,
    },
}

impl UnitMembers {
    /// The ranks of a unit; none if there is no such unit.
    pub fn of(&self, unit: u32) -> impl Iterator<Item = OriginalRank> + '_ {
        let (range, list): (_, &[u32]) = match self {
            UnitMembers::Blocks { ranks, size } => {
                let start = unit.saturating_mul(*size).min(*ranks);
                (start..start.saturating_add(*size).min(*ranks), &[])
            }
            UnitMembers::Listed { ranks, ends } => {
                let end =
                    |unit: Option<u32>| unit.and_then(|unit| ends.get(unit as usize)).copied();
                (end(unit.checked_sub(1)).unwrap_or(0)..end(Some(unit)).unwrap_or(0), ranks)
            }
        };
        range.map(|at| OriginalRank(list.get(at as usize).copied().unwrap_or(at)))
    }
}

fn listed_members(unit_of: &[u32], units: u32) -> UnitMembers {
    let mut ranks: Vec<u32> = (0..unit_of.len() as u32).collect();
    ranks.sort_by_key(|rank| unit_of[*rank as usize]);
    let end = |unit| ranks.partition_point(|rank| unit_of[*rank as usize] <= unit) as u32;
    let ends = (0..units).map(end).collect();
    UnitMembers::Listed { ranks, ends }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_become_numbers_in_the_order_of_ranks() {
        let places = [("n7", "left"), ("n3", "right"), ("n7", "left"), ("n1", "left")];
        let topology = Topology::named(places).unwrap();
        let all = |unit| {
            (0..4).map(|rank| topology.unit_of(unit, OriginalRank(rank))).collect::<Vec<_>>()
        };
        assert_eq!(all(FailureUnit::Node), [0, 1, 0, 2]);
        assert_eq!(all(FailureUnit::Domain), [0, 1, 0, 0]);
        assert_eq!(all(FailureUnit::Rank), [0, 1, 2, 3]);
        let left = topology.members(FailureUnit::Domain);
        assert!(left.of(0).map(|rank| rank.0).eq([0, 2, 3]) && left.of(2).count() == 0);
        assert_eq!([1, 2, 3, 4].map(|copies| topology.separable(copies)), {
            use FailureUnit::*;
            [Domain, Domain, Node, Rank]
        });
    }

    #[test]
    fn blocks_are_the_same_as_their_names() {
        let blocks = Topology::blocks(11, 4).unwrap();
        let names: Vec<String> = (0..11).map(|rank| format!("n{}", rank / 4)).collect();
        let named = Topology::named(names.iter().map(|name| (&name[..], &name[..]))).unwrap();
        for unit in [FailureUnit::Rank, FailureUnit::Node, FailureUnit::Domain] {
            assert_eq!(blocks.count(unit), named.count(unit));
            let same = |rank| blocks.unit_of(unit, rank) == named.unit_of(unit, rank);
            assert!((0..11).map(OriginalRank).all(same));
            for number in 0..blocks.count(unit) + 2 {
                let members: Vec<OriginalRank> = blocks.members(unit).of(number).collect();
                assert!(named.members(unit).of(number).eq(members.iter().copied()));
                assert!(members.iter().all(|rank| blocks.unit_of(unit, *rank) == number));
            }
        }
        assert_eq!(
            (blocks.even_blocks(), Topology::blocks(12, 4).unwrap().even_blocks()),
            (None, Some(4))
        );
    }

    #[test]
    fn contradictions_and_empty_topologies_are_refused() {
        let error = Topology::named([("n", "left"), ("m", "left"), ("n", "right")])
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("node n is in one failure domain by rank 0 and in \"right\" by rank 2"),
            "{error}"
        );
        assert!(
            Topology::named([]).is_err()
                && Topology::blocks(0, 1).is_err()
                && Topology::blocks(1, 0).is_err()
        );
    }
}
