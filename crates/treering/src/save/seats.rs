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

/// The group and the node of every rank, from the names of nodes. Groups and nodes are numbered in the order of their
/// first rank.
pub(crate) fn assign(nodes: &[Vec<u8>], per_group: u32) -> Vec<(GroupId, u32)> {
    let mut known: HashMap<&[u8], (u32, u32, GroupId)> = HashMap::new();
    let mut groups = 0;
    let mut seats = Vec::with_capacity(nodes.len());
    for node in nodes {
        let number = known.len() as u32;
        let (number, filled, group) = known.entry(node).or_insert((number, per_group, GroupId(0)));
        if *filled >= per_group.max(1) {
            (*filled, *group) = (0, GroupId(groups));
            groups += 1;
        }
        *filled += 1;
        seats.push((*group, *number));
    }
    seats
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
            let names: Vec<Vec<u8>> = nodes.iter().map(|node| vec![*node]).collect();
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
    }
}
