//! Which rank reads which group of a checkpoint when nodes hold packs of it. Pure.
//!
//! A group whose packs a node holds is read by a rank of that node, whoever wants its variables, and these travel between
//! ranks; so the shared store is read only for what no node holds. Where ranks sit beside their own groups already, nothing
//! travels and every rank reads for itself.

use super::delivery::readers;
use crate::array::Rank;
use crate::format::PackName;
use std::collections::{BTreeMap, HashSet};

/// A node: its ranks, and the packs in its store.
#[derive(Clone, Debug, Default)]
pub(crate) struct NodeView {
    pub(crate) ranks: Vec<Rank>,
    pub(crate) packs: HashSet<PackName>,
}

/// A group of a checkpoint.
#[derive(Clone, Debug)]
pub(crate) struct NearGroup {
    /// Its packs; `None` if some are of another run, which no node has.
    pub(crate) packs: Option<Vec<PackName>>,
    pub(crate) size: u64,
    /// The node whose ranks read it for themselves, if there are such.
    pub(crate) seat: Option<usize>,
}

/// The reader of each group; `None` if each is best read by those who want it.
pub(crate) fn near_readers(
    groups: &[NearGroup],
    nodes: &[NodeView],
    ranks: u32,
) -> Option<Vec<Rank>> {
    let holds = |node: &NodeView, group: &NearGroup| {
        let packs = group.packs.as_ref();
        packs.is_some_and(|packs| packs.iter().all(|pack| node.packs.contains(pack)))
    };
    let holders: Vec<Vec<usize>> = groups
        .iter()
        .map(|group| (0..nodes.len()).filter(|node| holds(&nodes[*node], group)).collect())
        .collect();
    let displaced = groups.iter().zip(&holders).any(|(group, holders)| {
        !holders.is_empty() && !group.seat.is_some_and(|seat| holders.contains(&seat))
    });
    if !displaced {
        return None;
    }
    let sizes: Vec<u64> = groups.iter().map(|group| group.size).collect();
    let mut table = readers(&sizes, ranks);
    let mut load: BTreeMap<Rank, u64> = BTreeMap::new();
    for ((group, holders), reader) in groups.iter().zip(&holders).zip(&mut table) {
        let near = holders.iter().flat_map(|node| &nodes[*node].ranks);
        let least = near.min_by_key(|rank| (load.get(rank).copied().unwrap_or(0), **rank));
        *reader = least.copied().unwrap_or(*reader);
        *load.entry(*reader).or_default() += group.size;
    }
    Some(table)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::array::{GroupId, Sequence};
    use crate::format::WriterId;
    use proptest::prelude::*;

    fn pack(group: u32, attempt: u64) -> PackName {
        let writer = WriterId { opening: Sequence(1), nonce: 7 };
        PackName { writer, attempt, group: GroupId(group) }
    }

    proptest! {
        /// A group that a node holds is read there; if that changes nothing for anybody, everything stays as it is.
        #[test]
        fn groups_are_read_where_they_are(
            at in proptest::collection::vec((0usize..4, 0usize..4, any::<bool>()), 1..20),
            per_node in 1u32..4,
        ) {
            let mut nodes = vec![NodeView::default(); 3];
            let mut groups = Vec::new();
            for (number, (holder, seat, half)) in (0u32..).zip(&at) {
                let packs = vec![pack(number, 3), pack(number, 4)];
                if let Some(node) = nodes.get_mut(*holder) {
                    node.packs.extend(&packs[usize::from(*half)..]);
                }
                let seat = (*seat < 3).then_some(*seat);
                groups.push(NearGroup { packs: Some(packs), size: 10, seat });
            }
            for (number, node) in (0u32..).zip(&mut nodes) {
                node.ranks = (number * per_node..(number + 1) * per_node).map(Rank).collect();
            }
            let held = |at: &(usize, usize, bool)| at.0 < 3 && !at.2;
            match near_readers(&groups, &nodes, 3 * per_node) {
                None => prop_assert!(at.iter().all(|at| !held(at) || at.0 == at.1)),
                Some(table) => {
                    prop_assert!(at.iter().any(|at| held(at) && at.0 != at.1));
                    for (at, rank) in at.iter().zip(&table) {
                        prop_assert!(rank.0 < 3 * per_node);
                        prop_assert!(!held(at) || (rank.0 / per_node) as usize == at.0);
                    }
                }
            }
        }
    }

    #[test]
    fn packs_of_other_runs_are_on_no_node() {
        let node = NodeView { ranks: vec![Rank(0)], packs: [pack(0, 3)].into() };
        let group = NearGroup { packs: None, size: 1, seat: None };
        assert_eq!(near_readers(&[group], &[node], 1), None);
    }
}
