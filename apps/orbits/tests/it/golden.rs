//! Compares with the counts of an independent tool, kept beside the graphs in `tests/data`.
//! The `.orca` files hold what orca-graphlets 0.1.4 (a port of ORCA) gives: a row of 73
//! columns per vertex.

use std::path::Path;

use orbits::{Counts, ORBITS, count_range, gorder, read_graph};

const NAMES: [&str; 9] = [
    "clique",
    "delaunay",
    "dense",
    "geometric",
    "hub",
    "message_race",
    "random",
    "road",
    "unstructured_mesh",
];

fn data(file: String) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(file)
}

fn expected(name: &str) -> Vec<u64> {
    let text = std::fs::read_to_string(data(format!("{name}.orca"))).unwrap();
    let fields = text.split_ascii_whitespace();
    fields.map(|field| field.parse().unwrap()).collect()
}

#[test]
fn counts_equal_those_of_orca() {
    for name in NAMES {
        let graph = read_graph(data(format!("{name}.edges"))).unwrap();
        let mut counts = Counts::<u64>::new(graph.vertices());
        count_range(&graph, 0..graph.vertices(), &mut counts).unwrap();
        assert!(counts.as_slice() == expected(name), "{name}");
    }
}

#[test]
fn renumbering_moves_the_rows_and_changes_no_count() {
    for name in NAMES {
        let graph = read_graph(data(format!("{name}.edges"))).unwrap();
        let order = gorder(&graph);
        let ordered = graph.relabel(&order).unwrap();
        let mut counts = Counts::<u32>::new(graph.vertices());
        count_range(&ordered, 0..graph.vertices(), &mut counts).unwrap();
        for (v, expected) in (0..).zip(expected(name).chunks_exact(ORBITS)) {
            let row = counts.row(order.label(v)).iter().map(|&c| u64::from(c));
            assert!(row.eq(expected.iter().copied()), "{name}, vertex {v}");
        }
    }
}

#[test]
fn every_orbit_occurs() {
    let mut sums = [0; ORBITS];
    for row in expected("dense").chunks_exact(ORBITS) {
        sums.iter_mut().zip(row).for_each(|(sum, count)| *sum += count);
    }
    assert!(sums.iter().all(|&sum| sum > 0));
}
