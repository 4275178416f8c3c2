//! Which ranks share a pack: the ranks of a node form groups, in the order of ranks. Pure.

use crate::array::{GroupId, Rank};
use std::collections::HashMap;

/// The place of a rank among the groups of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct GroupSeat {
    pub(crate) group: GroupId,
    /// The number of groups of the run.
    pub(crate) groups: u32,
    /// The ranks of its group, ascending; the first one leads it.
    pub(crate) members: Vec<Rank>,
    /// The number of ranks on its node, whatever their groups.
    pub(crate) on_node: u32,
}

impl GroupSeat {
    /// The seat of a rank that shares its pack with nobody.
    pub(crate) fn alone(rank: Rank, ranks: u32, on_node: u32) -> GroupSeat {
        GroupSeat { group: GroupId(rank.0), groups: ranks, members: vec![rank], on_node }
    }
}

/// The inputs of the seat of a rank: its node, and its aggregator if it has one.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct SeatWish {
    pub(crate) node: Vec<u8>,
    pub(crate) aggregator: Option<Rank>,
}

impl SeatWish {
    pub(crate) fn write(&self) -> Vec<u8> {
        let number = self.aggregator.map_or(0, |rank| u64::from(rank.0) + 1);
        [&number.to_le_bytes()[..], &self.node].concat()
    }

    pub(crate) fn parse(bytes: &[u8]) -> Option<SeatWish> {
        let (number, node) = bytes.split_first_chunk::<8>()?;
        let number = u64::from_le_bytes(*number).checked_sub(1);
        Some(SeatWish { node: node.to_vec(), aggregator: number.map(|n| Rank(n as u32)) })
    }
}

/// The group and the node of every rank. Groups and nodes are numbered in the order of their first rank. The ranks of an
/// aggregator are one group, however many they are.
pub(crate) fn assign(wishes: &[SeatWish], per_group: u32) -> Vec<(GroupId, u32)> {
    let mut nodes: HashMap<&[u8], u32> = HashMap::new();
    let mut known: HashMap<&SeatWish, (u32, GroupId)> = HashMap::new();
    let mut groups = 0;
    let mut seats = Vec::with_capacity(wishes.len());
    for wish in wishes {
        let next = nodes.len() as u32;
        let node = *nodes.entry(&wish.node).or_insert(next);
        let (filled, group) = known.entry(wish).or_insert((u32::MAX, GroupId(0)));
        let most = if wish.aggregator.is_some() { u32::MAX } else { per_group.max(1) };
        if *filled >= most {
            (*filled, *group) = (0, GroupId(groups));
            groups += 1;
        }
        *filled += 1;
        seats.push((*group, node));
    }
    seats
}

/// The role of a rank where some ranks of a node write the checkpoints of the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NodeRole {
    Aggregates,
    /// The rank computes, and hands its checkpoints to this rank if there is one.
    Computes(Option<Rank>),
}

/// The role of every rank, from the names of nodes. The last ranks of each node become aggregators, at most half of
/// them; the others are spread evenly over these, in their order.
pub(crate) fn roles(nodes: &[Vec<u8>], per_node: u32) -> Vec<NodeRole> {
    let mut by_node: HashMap<&[u8], Vec<usize>> = HashMap::new();
    for (rank, node) in nodes.iter().enumerate() {
        by_node.entry(node).or_default().push(rank);
    }
    let mut roles = vec![NodeRole::Computes(None); nodes.len()];
    for ranks in by_node.values() {
        let count = (per_node as usize).min(ranks.len() / 2);
        let (compute, aggregators) = ranks.split_at(ranks.len() - count);
        for rank in aggregators {
            roles[*rank] = NodeRole::Aggregates;
        }
        for (at, rank) in compute.iter().enumerate().filter(|_| count > 0) {
            let aggregator = aggregators[at * count / compute.len()];
            roles[*rank] = NodeRole::Computes(Some(Rank(aggregator as u32)));
        }
    }
    roles
}

/// The seat of a rank.
pub(crate) fn seat(rank: Rank, assigned: &[(GroupId, u32)]) -> Option<GroupSeat> {
    let (group, node) = *assigned.get(rank.0 as usize)?;
    let of_group = (0..).zip(assigned).filter(|(_, (other, _))| *other == group);
    Some(GroupSeat {
        group,
        groups: assigned.iter().map(|(group, _)| group.0 + 1).max().unwrap_or(1),
        members: of_group.map(|(rank, _)| Rank(rank)).collect(),
        on_node: assigned.iter().filter(|(_, other)| *other == node).count() as u32,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_rank_has_one_seat_on_its_own_node(
            nodes in proptest::collection::vec(0u8..5, 1..80), per_group in 1u32..9,
        ) {
            let wish = |node: &u8| SeatWish { node: vec![*node], aggregator: None };
            let names: Vec<SeatWish> = nodes.iter().map(wish).collect();
            let assigned = assign(&names, per_group);
            let seats: Vec<GroupSeat> = (0..nodes.len() as u32)
                .map(|rank| seat(Rank(rank), &assigned).unwrap())
                .collect();
            let mut leaders = Vec::new();
            for (rank, own) in seats.iter().enumerate() {
                prop_assert!(own.members.contains(&Rank(rank as u32)));
                prop_assert!(own.members.len() <= per_group as usize && own.group.0 < own.groups);
                prop_assert!(own.members.iter().all(|m| nodes[m.0 as usize] == nodes[rank]));
                prop_assert!(own.members.iter().all(|m| &seats[m.0 as usize] == own));
                let on_node = nodes.iter().filter(|node| **node == nodes[rank]).count();
                prop_assert_eq!(own.on_node as usize, on_node);
                if own.members[0].0 as usize == rank {
                    leaders.push(own.group);
                }
            }
            // Groups are numbered by their leaders, without gaps, and only the last of a node is not full.
            prop_assert_eq!(leaders, (0..seats[0].groups).map(GroupId).collect::<Vec<_>>());
            for node in 0u8..5 {
                let open = seats.iter().zip(&nodes).filter(|(seat, on)| {
                    **on == node && seat.members.len() < per_group as usize
                });
                let open: std::collections::BTreeSet<GroupId> =
                    open.map(|(seat, _)| seat.group).collect();
                prop_assert!(open.len() <= 1);
            }
        }

        /// Every rank computes for one aggregator of its own node, whose ranks are one group and as many as those of
        /// the others, give or take one.
        #[test]
        fn aggregators_serve_their_own_nodes_evenly(
            nodes in proptest::collection::vec(0u8..4, 1..60), per_node in 0u32..4, per_group in 1u32..5,
        ) {
            let names: Vec<Vec<u8>> = nodes.iter().map(|node| vec![*node]).collect();
            let roles = roles(&names, per_node);
            for node in 0u8..4 {
                let on_node: Vec<usize> = (0..nodes.len()).filter(|r| nodes[*r] == node).collect();
                let aggregators: Vec<usize> = on_node.iter().copied()
                    .filter(|rank| roles[*rank] == NodeRole::Aggregates).collect();
                prop_assert_eq!(aggregators.len(), (per_node as usize).min(on_node.len() / 2));
                let served = |a: &usize| on_node.iter()
                    .filter(|rank| roles[**rank] == NodeRole::Computes(Some(Rank(*a as u32)))).count();
                let counts: Vec<usize> = aggregators.iter().map(served).collect();
                let compute = on_node.len() - aggregators.len();
                match aggregators.is_empty() {
                    true => prop_assert!(on_node.iter().all(|r| roles[*r] == NodeRole::Computes(None))),
                    false => prop_assert_eq!(counts.iter().sum::<usize>(), compute),
                }
                let (least, most) = (counts.iter().min(), counts.iter().max());
                prop_assert!(least.zip(most).is_none_or(|(least, most)| most - least <= 1));
            }
            let wishes: Vec<SeatWish> = (0..nodes.len()).filter_map(|rank| match roles[rank] {
                NodeRole::Aggregates => None,
                NodeRole::Computes(aggregator) => {
                    let wish = SeatWish { node: names[rank].clone(), aggregator };
                    assert_eq!(SeatWish::parse(&wish.write()), Some(wish.clone()));
                    Some(wish)
                }
            }).collect();
            let assigned = assign(&wishes, per_group);
            for (a, of_a) in wishes.iter().zip(&assigned) {
                for (b, of_b) in wishes.iter().zip(&assigned) {
                    prop_assert_eq!(a.node == b.node, of_a.1 == of_b.1);
                    prop_assert!(of_a.0 != of_b.0 || a == b);
                    prop_assert!(a != b || a.aggregator.is_none() || of_a.0 == of_b.0);
                }
            }
        }
    }
}
