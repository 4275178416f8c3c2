//! Seats of ranks: ranks in the order of their domains and nodes, divided into layers.
//!
//! Law: the ranks of a node are on consecutive seats, and so are those of a domain, except that units with more than
//! p/r ranks leave the shared layer for one of their own.

use super::layers::CopyLayer;
use crate::replica::topology::{FailureUnit, OriginalRank, Topology};

/// The order of ranks, in both directions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Seats {
    pub(super) rank_at: Vec<u32>,
    pub(super) seat_of: Vec<u32>,
}

/// Layers and seats of ranks on any nodes.
pub(super) fn seat(
    topology: &Topology,
    separate: FailureUnit,
    copies: u32,
) -> (Vec<CopyLayer>, Option<Seats>) {
    let class_sizes = sizes(topology, separate, &mut (0..topology.ranks()));
    let alone = oversized(&class_sizes, topology.ranks(), copies);
    let layer_of = |rank: u32| {
        let class = topology.unit_of(separate, OriginalRank(rank));
        alone.iter().position(|large| *large == class).map_or(0, |at| at + 1)
    };
    let place = |rank: &u32| {
        let rank = OriginalRank(*rank);
        (
            topology.unit_of(FailureUnit::Domain, rank),
            topology.unit_of(FailureUnit::Node, rank),
            rank,
        )
    };
    let mut rank_at: Vec<u32> = (0..topology.ranks()).collect();
    rank_at.sort_by_key(|rank| (layer_of(*rank), place(rank)));
    let shared = rank_at.partition_point(|rank| layer_of(*rank) == 0);
    let mut nodes = sizes(topology, FailureUnit::Node, &mut rank_at[..shared].iter().copied());
    nodes.retain(|size| *size > 0);
    let even = nodes.first().copied().filter(|first| nodes.iter().all(|size| size == first));
    let mut layers = vec![CopyLayer::new(0, shared as u32, copies - alone.len() as u32, even)];
    let mut first = shared as u32;
    for class in alone {
        layers.push(CopyLayer::new(first, class_sizes[class as usize], 1, None));
        first += class_sizes[class as usize];
    }
    if rank_at.is_sorted() {
        return (layers, None);
    }
    let mut seat_of = vec![0; rank_at.len()];
    (0..).zip(&rank_at).for_each(|(seat, rank)| seat_of[*rank as usize] = seat);
    (layers, Some(Seats { rank_at, seat_of }))
}

/// The number of the given ranks in every unit of a kind.
pub(super) fn sizes(
    topology: &Topology,
    unit: FailureUnit,
    ranks: &mut dyn Iterator<Item = u32>,
) -> Vec<u32> {
    let mut sizes = vec![0; topology.count(unit) as usize];
    ranks.for_each(|rank| sizes[topology.unit_of(unit, OriginalRank(rank)) as usize] += 1);
    sizes
}

/// The classes that need a layer of their own, the largest first, given the sizes of all classes.
fn oversized(sizes: &[u32], ranks: u32, copies: u32) -> Vec<u32> {
    let mut by_size: Vec<u32> = (0..sizes.len() as u32).collect();
    by_size.sort_by_key(|class| (std::cmp::Reverse(sizes[*class as usize]), *class));
    let (mut ranks, mut copies) = (u64::from(ranks), u64::from(copies));
    let too_large = |class: &u32| {
        let size = u64::from(sizes[*class as usize]);
        let large = copies > 1 && size * copies > ranks;
        (ranks, copies) = (ranks - size, copies - 1);
        large
    };
    by_size.into_iter().take_while(too_large).collect()
}
