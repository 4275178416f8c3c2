//! PageRank on several ranks: known scores, and the same bits on any number of ranks.

use orbits::pagerank::{PageRank, PageRankSettings};
use orbits::{Graph, make};
use std::sync::Arc;
use treering::{Comm, ThreadRanks};

/// The scores of all vertices after some iterations at most, their digest, and the iterations.
fn on_ranks(
    ranks: u32,
    graph: &Graph,
    settings: PageRankSettings,
    iterations: u64,
) -> (Vec<f64>, u64, u64) {
    let graph = graph.clone();
    let play = move |comm: Arc<dyn Comm>| {
        let mut pages = PageRank::new(settings);
        pages.begin(&graph, &*comm).unwrap();
        let mut done = 0;
        while done < iterations && !pages.is_settled() {
            pages.iterate(&*comm).unwrap();
            done += 1;
        }
        let digest = pages.digest(&*comm).unwrap();
        let sum = pages.sum(&*comm).unwrap();
        assert!(graph.vertices() == 0 || (sum - 1.0).abs() < 1e-12, "{sum}");
        (pages.gather(&*comm).unwrap(), digest, done)
    };
    let ends = ThreadRanks::new(ranks).run(play);
    let mut ends = ends.into_iter().map(|end| end.done().unwrap());
    let (scores, digest, done) = ends.next().unwrap();
    assert!(ends.all(|(scores, other, _)| scores.is_none() && other == digest));
    (scores.unwrap(), digest, done)
}

/// The same by the definition, with a matrix.
fn dense(graph: &Graph, damping: f64, iterations: u64) -> Vec<f64> {
    let n = graph.vertices() as usize;
    let mut scores = vec![1.0 / n as f64; n];
    for _ in 0..iterations {
        let mut new = vec![(1.0 - damping) / n as f64; n];
        for (from, score) in scores.iter().enumerate() {
            let degree = graph.degree(from as u32);
            for (to, new) in new.iter_mut().enumerate() {
                let linked = graph.neighbours(from as u32).contains(&(to as u32));
                let part = match (degree, linked) {
                    (0, _) => 1.0 / n as f64,
                    (_, true) => 1.0 / degree as f64,
                    (_, false) => 0.0,
                };
                *new += damping * part * score;
            }
        }
        scores = new;
    }
    scores
}

/// A star whose middle is vertex 4, a triangle, and two vertices without neighbours.
fn small() -> Graph {
    let star = [0, 1, 2, 3, 5, 6].map(|leaf| (leaf, 4));
    Graph::from_edges(12, star.into_iter().chain([(7, 8), (8, 9), (9, 7)])).unwrap()
}

#[test]
fn scores_are_those_of_the_definition() {
    let settings = PageRankSettings { tolerance: 0.0, ..PageRankSettings::default() };
    for graph in [small(), make::geometric(60, 5.0, 3).unwrap()] {
        for ranks in [1, 4] {
            let (scores, _, _) = on_ranks(ranks, &graph, settings, 30);
            for (found, expected) in scores.iter().zip(dense(&graph, 0.85, 30)) {
                assert!((found - expected).abs() < 1e-14, "{found} {expected}");
            }
        }
    }
    // Vertices of a ring are alike.
    let ring = Graph::from_edges(10, (0..10).map(|v| (v, (v + 1) % 10))).unwrap();
    let (scores, _, done) = on_ranks(3, &ring, PageRankSettings::default(), 99);
    assert!(scores.iter().all(|score| (score - 0.1).abs() < 1e-15) && done == 1);
}

#[test]
fn any_number_of_ranks_gives_the_same_bits() {
    let graphs = [small(), make::delaunay(500, 1).unwrap(), Graph::from_edges(3, []).unwrap()];
    for graph in graphs {
        let one = on_ranks(1, &graph, PageRankSettings::default(), 200);
        for ranks in [2, 3, 5, 8, 13] {
            assert_eq!(on_ranks(ranks, &graph, PageRankSettings::default(), 200), one);
        }
        let other = on_ranks(2, &graph, PageRankSettings::default(), one.2 - 1);
        assert_ne!(other.1, one.1);
    }
}

#[test]
fn an_empty_graph_is_settled_at_once() {
    let empty = Graph::from_edges(0, []).unwrap();
    assert!(on_ranks(3, &empty, PageRankSettings::default(), 5).0.is_empty());
}

#[test]
fn invalid_settings_are_refused() {
    assert!(PageRankSettings::default().check().is_ok());
    for (damping, tolerance) in [(1.0, 0.0), (-0.1, 0.0), (f64::NAN, 0.0), (0.85, -1.0)] {
        let settings = PageRankSettings { damping, tolerance, ..PageRankSettings::default() };
        assert!(settings.check().unwrap_err().to_string().contains("invalid"));
    }
}
