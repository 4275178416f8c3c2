//! Gorder (Wei, Yu, Lu, Lin: Speedup Graph Processing by Graph Ordering, SIGMOD 2016).
//!
//! Vertices are placed one after the other. The next is the one with the highest score
//! towards the last `WINDOW` placed: one point for each edge to them, one for each
//! neighbour shared with them. The scores of all vertices stand in a heap; when a vertex
//! enters the window its neighbours and their neighbours gain a point, when it leaves they
//! lose it. Shared neighbours of very high degree are not counted, as in the authors'
//! program: they relate nearly everything, and would cost the square of their degree.

use super::Permutation;
use super::unit_heap::UnitHeap;
use crate::Graph;

/// The authors' choice, which they found good on all their graphs.
const WINDOW: usize = 5;

/// Finds a numbering that puts related vertices close to each other.
pub fn gorder(graph: &Graph) -> Permutation {
    let mut heap = UnitHeap::new(graph.vertices());
    let mut sequence: Vec<u32> = Vec::with_capacity(graph.vertices() as usize);
    let mut next = (0..graph.vertices()).max_by_key(|&v| graph.degree(v));
    if let Some(first) = next {
        heap.remove(first);
    }
    while let Some(placed) = next {
        sequence.push(placed);
        for_each_related(graph, placed, |v| heap.raise(v));
        if let Some(leaving) = sequence.len().checked_sub(WINDOW + 1) {
            for_each_related(graph, sequence[leaving], |v| heap.lower(v));
        }
        next = heap.pop();
    }
    Permutation::from_sequence(&sequence)
}

/// Visits each vertex once per point of its score towards `v`.
fn for_each_related(graph: &Graph, v: u32, mut visit: impl FnMut(u32)) {
    let huge = f64::from(graph.vertices()).sqrt() as usize;
    for &u in graph.neighbours(v) {
        visit(u);
        if graph.degree(u) <= huge {
            graph.neighbours(u).iter().for_each(|&w| visit(w));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::make;

    /// The share of edges whose ends have numbers less than 20 apart.
    fn near_edges(graph: &Graph) -> f64 {
        let near = graph.edge_list().filter(|(a, b)| b - a < 20).count();
        near as f64 / graph.edges() as f64
    }

    #[test]
    fn neighbours_come_closer() {
        let graph = make::delaunay(2000, 1).unwrap();
        let ordered = graph.relabel(&gorder(&graph)).unwrap();
        assert_eq!(ordered.edges(), graph.edges());
        assert!(near_edges(&graph) < 0.1);
        assert!(near_edges(&ordered) > 0.5);
    }

    #[test]
    fn each_vertex_gets_one_number_even_if_isolated() {
        let graph = crate::Graph::from_edges(6, [(0, 4), (4, 2)]).unwrap();
        let order = gorder(&graph);
        assert!(Permutation::from_labels(order.labels().to_vec()).is_ok());
        assert_eq!(order.label(4), 0);
        assert!(gorder(&Graph::from_edges(0, []).unwrap()).is_empty());
    }
}
