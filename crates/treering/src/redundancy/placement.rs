//! Which node keeps what for which others, from the names of nodes, their failure domains and the scheme. Pure.
//!
//! Nodes are dealt out in the order of their domains, the largest domain first. Dealt out to sets in turn, a domain is
//! spread evenly: two nodes of one domain share a set only if the domain has more nodes than there are sets. A partner is
//! the node as many places further on as the largest domain has nodes: it is in another domain unless one domain has more
//! than half of all nodes, and every node keeps exactly one copy.

use super::Redundancy;
use crate::array::{Rank, Sequence};
use crate::error::{Error, Result};
use crate::format::{MOST_MEMBERS, ParityName};
use std::collections::HashMap;

/// A node with ranks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PlacedNode {
    pub(crate) name: String,
    /// Failure domain: a switch, a power supply, or the node itself.
    pub(crate) domain: String,
    /// The first of its ranks, which communicates for it.
    pub(crate) rank: Rank,
}

/// Nodes that are protected together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ProtectionSet {
    /// The nodes whose objects are protected.
    pub(crate) members: Vec<usize>,
    /// The nodes that keep the parity files, by slot.
    pub(crate) keepers: Vec<usize>,
}

/// Which node keeps what for which others.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct NodePlacement {
    pub(crate) nodes: Vec<PlacedNode>,
    pub(crate) sets: Vec<ProtectionSet>,
    /// Note for people: nodes without protection, or with less than was asked for.
    pub(crate) note: Option<String>,
}

/// Where a rank is, and how it wants the nodes to be protected.
pub(crate) struct RankPlace {
    pub(crate) node: String,
    pub(crate) domain: String,
    pub(crate) scheme: String,
}

/// The nodes of ranks, in the order of their first rank.
pub(crate) fn nodes_of(ranks: &[RankPlace]) -> Result<Vec<PlacedNode>> {
    let mut known: HashMap<&str, usize> = HashMap::new();
    let mut nodes: Vec<PlacedNode> = Vec::new();
    for (rank, RankPlace { node: name, domain, scheme }) in (0..).zip(ranks) {
        if *scheme != ranks[0].scheme {
            let what = format!(
                "rank 0 asks for redundancy {}, and rank {rank} for {scheme}",
                ranks[0].scheme
            );
            return Err(Error::usage(what).hint("give all ranks the same Options::redundancy"));
        }
        match known.get(&name[..]) {
            None => {
                known.insert(name, nodes.len());
                let (name, domain) = (name.clone(), domain.clone());
                nodes.push(PlacedNode { name, domain, rank: Rank(rank) });
            }
            Some(node) if nodes[*node].domain != *domain => {
                let first = &nodes[*node];
                return Err(Error::usage(format!(
                    "node {name} is in failure domain {:?} by rank {} and in {domain:?} by rank {rank}",
                    first.domain, first.rank
                ))
                .hint("give all ranks of a node the same Options::domain"));
            }
            Some(_) => {}
        }
    }
    Ok(nodes)
}

/// Places the redundancy of nodes.
pub(crate) fn place(nodes: Vec<PlacedNode>, scheme: Redundancy) -> Result<NodePlacement> {
    scheme.check()?;
    if scheme == Redundancy::None {
        return Ok(NodePlacement { nodes, ..NodePlacement::default() });
    }
    if nodes.len() < 2 {
        let note = "all ranks are on one node: what is only there is lost with it".to_string();
        return Ok(NodePlacement { nodes, note: Some(note), ..NodePlacement::default() });
    }
    let (order, largest) = by_domain(&nodes);
    let sets = match scheme {
        Redundancy::Xor { set } => xor_sets(&order, set as usize),
        _ => partners(&order, largest),
    };
    let note = shared_domains(&nodes, &sets);
    Ok(NodePlacement { nodes, sets, note })
}

/// The nodes, domain by domain, the largest domain first; and how many nodes that has.
fn by_domain(nodes: &[PlacedNode]) -> (Vec<usize>, usize) {
    let mut domains: HashMap<&str, (usize, usize)> = HashMap::new();
    for (at, node) in nodes.iter().enumerate() {
        domains.entry(&node.domain).or_insert((0, at)).0 += 1;
    }
    let mut order: Vec<usize> = (0..nodes.len()).collect();
    order.sort_by_key(|at| {
        let (count, first) = domains[&nodes[*at].domain[..]];
        (std::cmp::Reverse(count), first, *at)
    });
    let largest = domains.values().map(|(count, _)| *count).max().unwrap_or(1);
    (order, largest)
}

/// Sets whose sizes differ by one at most, as near to the size that was asked for as their number allows.
fn xor_sets(order: &[usize], size: usize) -> Vec<ProtectionSet> {
    let size = size.min(MOST_MEMBERS / 2);
    let count = ((order.len() + size / 2) / size).clamp(1, (order.len() / 2).max(1));
    let mut sets: Vec<Vec<usize>> = vec![Vec::new(); count];
    for (turn, node) in order.iter().enumerate() {
        sets[turn % count].push(*node);
    }
    let set = |members: Vec<usize>| ProtectionSet { keepers: members.clone(), members };
    sets.into_iter().map(set).collect()
}

fn partners(order: &[usize], largest: usize) -> Vec<ProtectionSet> {
    let nodes = order.len();
    let distance = if largest == nodes { 1 } else { largest };
    let set = |(at, node): (usize, &usize)| ProtectionSet {
        members: vec![*node],
        keepers: vec![order[(at + distance) % nodes]],
    };
    order.iter().enumerate().map(set).collect()
}

/// Whether a single failure of a domain can take more than one set survives.
fn shared_domains(nodes: &[PlacedNode], sets: &[ProtectionSet]) -> Option<String> {
    let shares = |set: &&ProtectionSet| {
        let mut all: Vec<usize> = set.members.iter().chain(&set.keepers).copied().collect();
        all.sort_unstable();
        all.dedup();
        let mut domains: Vec<&str> = all.iter().map(|node| &nodes[*node].domain[..]).collect();
        domains.sort_unstable();
        domains.windows(2).any(|pair| pair[0] == pair[1])
    };
    let sharing = sets.iter().filter(shares).count();
    (sharing > 0).then(|| {
        format!(
            "{sharing} of {} sets of nodes have two nodes in one failure domain: there are too few domains",
            sets.len()
        )
    })
}

/// The keys of the parity files of a run, by the names of their files, that protect nothing but checkpoints up to this one.
pub(crate) fn spent<'f>(
    run: &str,
    files: impl IntoIterator<Item = &'f str>,
    through: Sequence,
) -> Vec<String> {
    let names = files.into_iter().filter_map(ParityName::parse);
    names.filter(|name| name.sequence <= through).map(|name| name.key(run)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::WriterId;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn nodes(domains: &[u8]) -> Vec<PlacedNode> {
        let twice = domains.iter().enumerate().flat_map(|place| [place; 2]);
        let place = |(node, domain)| place_of(&format!("n{node}"), &format!("d{domain}"));
        nodes_of(&twice.map(place).collect::<Vec<_>>()).unwrap()
    }

    fn place_of(node: &str, domain: &str) -> RankPlace {
        let (node, domain) = (node.to_string(), domain.to_string());
        RankPlace { node, domain, scheme: "Partner".to_string() }
    }

    fn most_of_one_domain(domains: &[u8], members: &[usize]) -> usize {
        let mut counts: BTreeMap<u8, usize> = BTreeMap::new();
        members.iter().for_each(|node| *counts.entry(domains[*node]).or_default() += 1);
        counts.values().copied().max().unwrap_or(0)
    }

    proptest! {
        #[test]
        fn sets_cover_every_node_once_and_spread_domains(
            domains in prop::collection::vec(0u8..6, 2..60), size in 2u32..12,
        ) {
            let placed = place(nodes(&domains), Redundancy::Xor { set: size }).unwrap();
            prop_assert_eq!(&placed, &place(nodes(&domains), Redundancy::Xor { set: size }).unwrap());
            let mut all: Vec<usize> = placed.sets.iter().flat_map(|set| set.members.clone()).collect();
            all.sort_unstable();
            prop_assert_eq!(all, (0..domains.len()).collect::<Vec<_>>());
            let sizes: Vec<usize> = placed.sets.iter().map(|set| set.members.len()).collect();
            let (least, most) = (*sizes.iter().min().unwrap(), *sizes.iter().max().unwrap());
            prop_assert!(least >= 2 && most - least <= 1);
            // About the size that was asked for.
            prop_assert!(most <= 2 * size as usize && (placed.sets.len() == 1 || least >= size as usize / 2));
            let mut counts: BTreeMap<u8, usize> = BTreeMap::new();
            domains.iter().for_each(|domain| *counts.entry(*domain).or_default() += 1);
            let mut shared = false;
            for set in &placed.sets {
                prop_assert_eq!(&set.members, &set.keepers);
                // No set has more nodes of a domain than the pigeons demand.
                let needed = counts.values().map(|count| count.div_ceil(placed.sets.len())).max();
                prop_assert!(most_of_one_domain(&domains, &set.members) <= needed.unwrap());
                shared |= most_of_one_domain(&domains, &set.members) > 1;
            }
            prop_assert_eq!(placed.note.is_some(), shared);
        }

        #[test]
        fn every_node_has_a_partner_elsewhere_and_keeps_one_copy(domains in prop::collection::vec(0u8..6, 2..60)) {
            let placed = place(nodes(&domains), Redundancy::Partner).unwrap();
            prop_assert_eq!(&placed, &place(nodes(&domains), Redundancy::Partner).unwrap());
            let mut members: Vec<usize> = placed.sets.iter().map(|set| set.members[0]).collect();
            let mut keepers: Vec<usize> = placed.sets.iter().map(|set| set.keepers[0]).collect();
            members.sort_unstable();
            keepers.sort_unstable();
            prop_assert_eq!(&members, &(0..domains.len()).collect::<Vec<_>>());
            prop_assert_eq!(keepers, members);
            let same = |set: &&ProtectionSet| domains[set.members[0]] == domains[set.keepers[0]];
            let largest = most_of_one_domain(&domains, &(0..domains.len()).collect::<Vec<_>>());
            // As many partners in the same domain as cannot be avoided.
            let unavoidable = (2 * largest).saturating_sub(domains.len());
            prop_assert_eq!(placed.sets.iter().filter(same).count(), unavoidable);
            prop_assert!(placed.sets.iter().all(|set| set.members != set.keepers));
            prop_assert_eq!(placed.note.is_some(), unavoidable > 0);
        }

        #[test]
        fn what_protects_old_checkpoints_only_is_spent(sequences in prop::collection::vec(0u64..20, 0..30), through in 0u64..20) {
            let name = |(slot, sequence): (u32, &u64)| {
                let writer = WriterId { opening: Sequence(1), nonce: 2 };
                ParityName { sequence: Sequence(*sequence), writer, set: 3, slot }.key("r")
            };
            let keys: Vec<String> = (0..).zip(&sequences).map(name).collect();
            let files: Vec<&str> = keys.iter().map(|key| key.rsplit('/').next().unwrap()).collect();
            let gone = spent("r", files.into_iter().chain(["junk"]), Sequence(through));
            let expected: Vec<&String> =
                keys.iter().zip(&sequences).filter(|(_, s)| **s <= through).map(|(key, _)| key).collect();
            prop_assert_eq!(gone.iter().collect::<Vec<_>>(), expected);
        }
    }

    #[test]
    fn one_node_has_no_redundancy_and_says_so() {
        for scheme in [Redundancy::Partner, Redundancy::Xor { set: 4 }] {
            let placed = place(nodes(&[0]), scheme).unwrap();
            assert!(placed.sets.is_empty() && placed.note.unwrap().contains("one node"));
        }
        assert_eq!(place(nodes(&[0, 0]), Redundancy::None).unwrap().note, None);
        assert!(place(nodes(&[0, 1]), Redundancy::Xor { set: 1 }).is_err());
        let ranks = [("n", "left"), ("m", "left"), ("n", "right")];
        let error = nodes_of(&ranks.map(|(n, d)| place_of(n, d))).unwrap_err();
        assert!(
            error.to_string().contains("node n is in failure domain \"left\" by rank 0"),
            "{error}"
        );
        let mut ranks = ranks.map(|(n, _)| place_of(n, n));
        ranks[1].scheme = "None".to_string();
        let error = nodes_of(&ranks).unwrap_err().to_string();
        assert!(error.contains("Partner, and rank 1 for None"), "{error}");
    }
}
