//! Counts the orbits of all graphlets of 2 to 5 vertices.
//!
//! Each connected induced subgraph is visited once, from its smallest vertex, its root (the
//! ESU order of Wernicke 2006). The roots are cut into short runs. For a run, a
//! `Neighbourhood` copies all that its subgraphs can reach into a small renumbered graph
//! that fits the cache, a `Walk` enumerates the subgraphs in it, and their counts collect
//! in private rows which are at last added to the shared table, atomically. Sums do not
//! depend on their order, so that the table is the same for any number of threads and any
//! cut of the roots.
//!
//! Where the reach of a run is too large for the cache, the run is halved; where a single
//! root reaches too far (a hub is near), its subgraphs are shared out among the threads by
//! their second vertex, and what lies too far for a private row is added to the table at
//! once.

#[cfg(test)]
mod brute_force;
mod counts;
mod graphlets;
mod neighbourhood;
mod rows;
mod run;
mod table;
mod walk;

use std::fmt;
use std::ops::Range;

pub use counts::{Counter, Counts};
pub use graphlets::ORBITS;

use crate::Graph;
use run::Run;

/// Why a count could not be made, or is not to be trusted.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum CountError {
    /// A counter went beyond its type; the table holds wrong counts from then on.
    Overflow { vertex: u32, orbit: usize, bits: u32 },
    /// The table was made for a graph of another size.
    WrongTable { rows: usize, vertices: u32 },
    /// The range of roots reaches beyond the last vertex.
    NoSuchRoot { end: u32, vertices: u32 },
}

impl fmt::Display for CountError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Overflow { vertex, orbit, bits } => {
                let advice = match bits {
                    32 => "count with 64-bit counters (u64) instead",
                    _ => "no wider counter exists, so leave out the vertices of highest degree",
                };
                write!(
                    f,
                    "the count of orbit {orbit} at vertex {vertex} does not fit a {bits}-bit \
                     counter, and the table is no longer valid; {advice}"
                )
            }
            Self::WrongTable { rows, vertices } => write!(
                f,
                "the table has {rows} rows, but the graph has {vertices} vertices; \
                 make the table with as many rows as the graph has vertices"
            ),
            Self::NoSuchRoot { end, vertices } => write!(
                f,
                "the roots end before vertex {end}, but the graph has only {vertices} \
                 vertices; end the range at {vertices} or before"
            ),
        }
    }
}

impl std::error::Error for CountError {}

/// Adds to `counts` all subgraphs whose smallest vertex is in `roots`.
///
/// Uses all threads of the current rayon pool. When the calls for a graph cover each vertex
/// once, in any order and cut, the table holds the orbit counts of the graph.
pub fn count_range<T: Counter>(
    graph: &Graph,
    roots: Range<u32>,
    counts: &mut Counts<T>,
) -> Result<(), CountError> {
    let vertices = graph.vertices();
    if counts.rows() != vertices as usize {
        let rows = counts.rows();
        return Err(CountError::WrongTable { rows, vertices });
    }
    if roots.end > vertices {
        let end = roots.end;
        return Err(CountError::NoSuchRoot { end, vertices });
    }
    Run::new(graph, counts).count(roots)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn star(leaves: u32) -> Graph {
        Graph::from_edges(leaves + 1, (1..=leaves).map(|leaf| (0, leaf))).unwrap()
    }

    fn choose(n: u64, k: u64) -> u64 {
        (0..k).fold(1, |product, i| product * n.saturating_sub(i) / (i + 1))
    }

    #[test]
    fn a_star_has_binomial_counts() {
        for leaves in [1, 4, 30] {
            let graph = star(leaves);
            let mut counts = Counts::<u64>::new(graph.vertices());
            count_range(&graph, 0..graph.vertices(), &mut counts).unwrap();
            let n = u64::from(leaves);
            for (orbit, k) in [(0, 1), (2, 2), (7, 3), (23, 4)] {
                assert_eq!(counts.row(0)[orbit], choose(n, k));
            }
            for (orbit, k) in [(0, 0), (1, 1), (6, 2), (22, 3)] {
                assert_eq!(counts.row(1)[orbit], choose(n - 1, k));
            }
        }
    }

    #[test]
    fn a_hub_beyond_all_private_rows_is_counted_exactly() {
        // 0 - 1 - 2 - hub, and the spokes of the hub are 4 edges away from vertex 0.
        let spokes = 3 * rows::MAX_MEMBERS as u32;
        let edges = [(0, 1), (1, 2), (2, 3)];
        let edges = edges.into_iter().chain((4..4 + spokes).map(|v| (3, v)));
        let graph = Graph::from_edges(4 + spokes, edges).unwrap();
        let mut counts = Counts::<u64>::new(graph.vertices());
        count_range(&graph, 0..1, &mut counts).unwrap();
        let n = u64::from(spokes);
        // Vertex 0 ends an edge, a path of 3, a path of 4, and n paths of 5.
        for (vertex, orbit, count) in [(0, 0, 1), (0, 1, 1), (0, 4, 1), (0, 15, n)] {
            assert_eq!(counts.row(vertex)[orbit], count);
        }
        assert_eq!(counts.row(2)[17], n);
        assert!((4..4 + spokes).all(|v| counts.row(v)[15] == 1));
        assert_eq!(counts.as_slice().iter().sum::<u64>(), 2 + 3 + 4 + 5 * n);
    }

    #[test]
    fn a_count_beyond_32_bits_is_an_error_that_recommends_u64() {
        // Counting a small star on top of an almost full counter stands for a long count.
        let graph = star(5);
        let mut counts = Counts::<u32>::new(6);
        counts.as_mut_slice()[7] = u32::MAX - 9;
        let error = count_range(&graph, 0..6, &mut counts).unwrap_err();
        let expected = CountError::Overflow { vertex: 0, orbit: 7, bits: 32 };
        assert_eq!(error, expected);
        assert!(error.to_string().contains("u64"));

        let mut wide = Counts::<u64>::new(6);
        wide.as_mut_slice()[7] = u64::from(u32::MAX - 9);
        count_range(&graph, 0..6, &mut wide).unwrap();
        assert_eq!(wide.row(0)[7], u64::from(u32::MAX) + 1);
    }

    #[test]
    fn a_table_or_range_that_does_not_fit_is_refused() {
        let graph = star(3);
        let mut small = Counts::<u32>::new(3);
        assert_eq!(
            count_range(&graph, 0..4, &mut small),
            Err(CountError::WrongTable { rows: 3, vertices: 4 })
        );
        let mut counts = Counts::<u32>::new(4);
        assert_eq!(
            count_range(&graph, 0..5, &mut counts),
            Err(CountError::NoSuchRoot { end: 5, vertices: 4 })
        );
    }
}
