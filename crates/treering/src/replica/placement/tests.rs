//! Laws of the placement.

use super::*;
use proptest::prelude::*;
use std::collections::BTreeSet;

fn layout(blocks: u64, range_blocks: u64, copies: u32, seed: Option<u64>) -> ReplicaLayout {
    ReplicaLayout { blocks, range_blocks, copies, seed, first_copy: FirstCopy::Permuted }
}

fn plain(ranks: u32) -> Topology {
    Topology::blocks(ranks, 1).unwrap()
}

/// Ranks on nodes `node`, and nodes in domains `node / per_domain`.
fn listed(nodes: &[u8], per_domain: u8) -> Topology {
    let names: Vec<(String, String)> =
        nodes.iter().map(|node| (format!("n{node}"), format!("d{}", node / per_domain))).collect();
    Topology::named(names.iter().map(|(node, domain)| (&node[..], &domain[..]))).unwrap()
}

fn distinct(topology: &Topology, unit: FailureUnit, holders: &[OriginalRank]) -> usize {
    holders.iter().map(|rank| topology.unit_of(unit, *rank)).collect::<BTreeSet<_>>().len()
}

fn starts(shares: &[u64]) -> Vec<u64> {
    let sum = |sum: &mut u64, share: &u64| {
        *sum += share;
        Some(*sum)
    };
    std::iter::once(0).chain(shares.iter().scan(0, sum)).collect()
}

/// Every law that holds for each placement.
fn check_laws(placement: &ReplicaPlacement) {
    let topology = placement.topology();
    let mut held: Vec<Vec<RangeId>> = vec![Vec::new(); topology.ranks() as usize];
    for id in (0..placement.ranges()).map(RangeId) {
        let holders = placement.holders(id);
        assert_eq!(holders.len(), placement.copies() as usize);
        assert_eq!(distinct(topology, FailureUnit::Rank, &holders), holders.len());
        for unit in [FailureUnit::Domain, FailureUnit::Node] {
            if topology.count(unit) >= placement.copies() {
                assert_eq!(
                    distinct(topology, unit, &holders),
                    holders.len(),
                    "{unit:?} {holders:?}"
                );
            }
        }
        if let Some(submitter) = placement.submitter(id) {
            assert_eq!(holders[0], submitter);
        }
        holders.iter().for_each(|rank| held[rank.0 as usize].push(id));
        let lost = |rank: OriginalRank| holders.contains(&rank);
        assert!(holders.iter().all(|rank| placement.loses_any(*rank, lost)));
    }
    for (rank, held) in (0..).map(OriginalRank).zip(held) {
        let mut listed: Vec<RangeId> = placement.ranges_of(rank).collect();
        listed.sort_unstable();
        assert_eq!(listed, held);
        assert!(!placement.loses_any(rank, |other| other != rank));
    }
}

/// Ranges of a rank are within k·⌊m/q⌋ and k·⌈m/q⌉ of its layer; there is one layer if no unit has more than p/r ranks.
fn check_balance(placement: &ReplicaPlacement) {
    let topology = placement.topology();
    let sizes = sizes(topology, placement.separate(), &mut (0..topology.ranks()));
    let largest = u64::from(*sizes.iter().max().unwrap());
    let fits = largest * u64::from(placement.copies()) <= u64::from(topology.ranks());
    assert_eq!(placement.layers.len() == 1, fits);
    assert_eq!(placement.layers.iter().map(|layer| layer.copies).sum::<u32>(), placement.copies());
    for layer in &placement.layers {
        let (q, k) = (u64::from(layer.seats), u64::from(layer.copies));
        for seat in layer.first..layer.first + layer.seats {
            let load = placement.ranges_of(placement.rank_at(seat)).count() as u64;
            let bounds = k * (placement.ranges() / q)..=k * placement.ranges().div_ceil(q);
            assert!(bounds.contains(&load), "{load} ranges, {bounds:?} allowed, {layer:?}");
            assert!(load <= placement.most_ranges());
        }
    }
}

#[test]
fn figure_1_and_the_equation_of_the_paper() {
    let placement = ReplicaPlacement::new(layout(16, 1, 2, None), plain(4)).unwrap();
    let first: Vec<u64> = placement.ranges_of(OriginalRank(0)).map(|range| range.0).collect();
    assert_eq!(first, [0, 1, 2, 3, 8, 9, 10, 11]);
    for (ranks, copies, per_node) in [(4, 2, 1), (12, 4, 1), (24, 3, 2), (64, 4, 8), (5, 5, 1)] {
        let topology = Topology::blocks(ranks, per_node).unwrap();
        let placement = ReplicaPlacement::new(layout(1000, 3, copies, Some(9)), topology).unwrap();
        let m = placement.ranges();
        for id in 0..m {
            let primary = placement.permuted(RangeId(id)) * u64::from(ranks) / m;
            let paper =
                (0..copies).map(|k| OriginalRank((primary as u32 + k * (ranks / copies)) % ranks));
            assert!(paper.eq(placement.holders(RangeId(id))));
        }
    }
}

#[test]
fn a_lone_rank_in_its_domain_holds_a_copy_of_everything() {
    let placement =
        ReplicaPlacement::new(layout(100, 1, 2, Some(1)), listed(&[0, 0, 0, 0, 0, 1], 1)).unwrap();
    check_laws(&placement);
    check_balance(&placement);
    assert_eq!(placement.ranges_of(OriginalRank(5)).count(), 100);
    assert_eq!(placement.most_ranges(), 100);
}

#[test]
fn whole_nodes_are_dealt_where_this_leaves_fewer_sets_of_nodes() {
    let sets = |nodes: u32, per_node: u32, copies: u32| {
        let topology = Topology::blocks(nodes * per_node, per_node).unwrap();
        let placement =
            ReplicaPlacement::new(layout(20_000, 1, copies, Some(1)), topology).unwrap();
        let nodes_of = |id| {
            let holders = placement.holders(RangeId(id));
            holders.iter().map(|rank| rank.0 / per_node).collect::<BTreeSet<u32>>()
        };
        (0..20_000).map(nodes_of).collect::<BTreeSet<_>>().len()
    };
    // 100 nodes: 25 sets. 101 nodes: 24 sets of four nodes, and five of the group with five nodes.
    assert_eq!((sets(100, 4, 4), sets(101, 4, 4)), (25, 29));
    assert_eq!((sets(8, 6, 2), sets(5, 4, 4)), (4, 5));
}

#[test]
fn bad_parameters_are_refused_by_one_sentence() {
    let bad = [layout(1, 0, 1, None), layout(1, 1, 0, None), layout(u64::MAX, 1, 1, None)];
    for layout in bad {
        let error = ReplicaPlacement::new(layout, plain(2)).unwrap_err().to_string();
        assert!(error.starts_with("invalid replicas"), "{error}");
    }
    for starts in [vec![], vec![0, 5], vec![0, 6, 5], vec![1, 2, 5], vec![0, 2, 6]] {
        let layout =
            ReplicaLayout { first_copy: FirstCopy::Submitter { starts }, ..layout(5, 1, 2, None) };
        assert!(ReplicaPlacement::new(layout, plain(2)).is_err());
    }
    let placement = ReplicaPlacement::new(layout(5, 2, 2, Some(1)), plain(2)).unwrap();
    assert!(placement.holders(RangeId(3)).is_empty() && placement.blocks_of(RangeId(3)).is_empty());
    assert_eq!(placement.ranges_of(OriginalRank(2)).count(), 0);
    let error = placement.parts(&[0..3, 4..6]).unwrap_err().to_string();
    assert!(error.contains("blocks 4..6 were never submitted"), "{error}");
    let empty = ReplicaPlacement::new(layout(0, 2, 2, Some(1)), plain(2)).unwrap();
    check_laws(&empty);
    let huge = ReplicaPlacement::new(layout(1 << 63, 1, 4, Some(1)), plain(1 << 25)).unwrap();
    assert_eq!(huge.holders(RangeId((1 << 63) - 1)).len(), 4);
}

proptest! {
    #[test]
    fn copies_are_distinct_separate_and_balanced_on_any_nodes(
        nodes in prop::collection::vec(0u8..12, 1..50), per_domain in 1u8..5, copies in 1u32..7,
        blocks in 0u64..600, size in 1u64..9, seed: Option<u64>,
    ) {
        let placement = ReplicaPlacement::new(layout(blocks, size, copies, seed), listed(&nodes, per_domain)).unwrap();
        check_laws(&placement);
        check_balance(&placement);
        let again = ReplicaPlacement::new(layout(blocks, size, copies, seed), listed(&nodes, per_domain)).unwrap();
        prop_assert_eq!(placement, again);
    }

    #[test]
    fn copies_are_distinct_separate_and_balanced_on_blocks_of_ranks(
        ranks in 1u32..80, per_node in 1u32..9, copies in 1u32..7, blocks in 0u64..600, seed: Option<u64>,
    ) {
        let topology = Topology::blocks(ranks, per_node).unwrap();
        let placement = ReplicaPlacement::new(layout(blocks, 2, copies, seed), topology).unwrap();
        check_laws(&placement);
        check_balance(&placement);
        prop_assert!(placement.seats.is_none() || placement.layers.len() > 1);
    }

    #[test]
    fn the_first_copy_can_stay_on_the_submitter(
        ranks in prop::collection::vec((0u8..12, 0u64..40), 1..40), per_domain in 1u8..5, copies in 1u32..6,
        size in 1u64..9, seed: Option<u64>,
    ) {
        let (nodes, shares): (Vec<u8>, Vec<u64>) = ranks.into_iter().unzip();
        let starts = starts(&shares);
        let first_copy = FirstCopy::Submitter { starts: starts.clone() };
        let layout = ReplicaLayout { first_copy, ..layout(*starts.last().unwrap(), size, copies, seed) };
        let placement = ReplicaPlacement::new(layout, listed(&nodes, per_domain)).unwrap();
        check_laws(&placement);
        for (rank, share) in (0..).zip(&shares) {
            let held = placement.ranges_of(OriginalRank(rank)).count() as u64;
            prop_assert!(held <= placement.most_ranges() + share.div_ceil(size));
        }
        for id in 0..placement.ranges() {
            let submitter = placement.submitter(RangeId(id)).unwrap().0 as usize;
            prop_assert!((starts[submitter]..starts[submitter + 1]).contains(&(id * size)));
        }
    }

    #[test]
    fn parts_cover_the_requested_blocks_in_order(
        blocks in 1u64..500, size in 1u64..30, cuts in prop::collection::vec((0u64..500, 0u64..500), 0..6),
    ) {
        let placement = ReplicaPlacement::new(layout(blocks, size, 2, Some(3)), plain(7)).unwrap();
        let request = |(a, b): &(u64, u64)| (a % blocks).min(b % blocks)..(a % blocks).max(b % blocks) + 1;
        let requests: Vec<Range<u64>> = cuts.iter().map(request).collect();
        let parts = placement.parts(&requests).unwrap();
        let asked: Vec<u64> = requests.into_iter().flatten().collect();
        let got: Vec<u64> = parts.iter().flat_map(|part| part.blocks.clone()).collect();
        prop_assert_eq!(asked, got);
        for part in parts {
            let whole = placement.blocks_of(part.range);
            prop_assert!(whole.start <= part.blocks.start && part.blocks.end <= whole.end && !part.blocks.is_empty());
        }
    }
}
