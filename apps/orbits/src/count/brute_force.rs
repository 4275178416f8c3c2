//! The definition, for tests: look at every set of 2 to 5 vertices.

use proptest::prelude::*;

use super::graphlets::TABLES;
use super::{Counts, ORBITS, count_range};
use crate::Graph;

/// The orbit of each vertex of a set, or nothing if the set is not connected.
fn orbits_of(graph: &Graph, set: &[u32]) -> Option<Vec<usize>> {
    let mut code = 0;
    let mut pair = 0;
    for (high, a) in set.iter().enumerate() {
        for b in &set[..high] {
            code |= usize::from(graph.neighbours(*a).contains(b)) << pair;
            pair += 1;
        }
    }
    let positions = match set.len() {
        2 => return (code == 1).then(|| vec![0, 0]),
        3 => TABLES.three[code],
        4 => TABLES.four[code],
        _ => TABLES.five[code & 63][code >> 6],
    };
    // Orbit 0 belongs to the single edge: here it marks a code that is not connected.
    let orbits = positions[..set.len()].iter().map(|&o| usize::from(o));
    (positions[0] != 0).then(|| orbits.collect())
}

fn add_sets(graph: &Graph, set: &mut Vec<u32>, counts: &mut [u64]) {
    if set.len() >= 2
        && let Some(orbits) = orbits_of(graph, set)
    {
        for (&v, orbit) in set.iter().zip(orbits) {
            counts[v as usize * ORBITS + orbit] += 1;
        }
    }
    if set.len() < 5 {
        for v in set.last().map_or(0, |&v| v + 1)..graph.vertices() {
            set.push(v);
            add_sets(graph, set, counts);
            set.pop();
        }
    }
}

fn check(graph: &Graph) {
    let mut expected = Counts::<u64>::new(graph.vertices());
    add_sets(graph, &mut Vec::new(), expected.as_mut_slice());
    let mut counts = Counts::<u64>::new(graph.vertices());
    count_range(graph, 0..graph.vertices(), &mut counts).unwrap();
    assert_eq!(counts, expected);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn the_count_is_that_of_all_sets(
        (n, edges) in (1..13_u32).prop_flat_map(|n| {
            (Just(n), proptest::collection::vec((0..n, 0..n), 0..60))
        })
    ) {
        check(&Graph::from_edges(n, edges).unwrap());
    }
}

#[test]
fn a_clique_is_counted_as_all_its_sets() {
    let pairs = (0..9).flat_map(|a| (0..a).map(move |b| (a, b)));
    check(&Graph::from_edges(9, pairs).unwrap());
}
