//! An undirected simple graph in compressed sparse rows.
//!
//! The neighbours of all vertices lie in one array, sorted within each vertex; `offsets`
//! tells where those of a vertex begin. An edge stands there twice, once per end. Rows are
//! built by counting sort: count the degrees, place both ends of each edge, then sort each
//! row, drop the duplicates and close the gaps in place.

use crate::{GraphError, Permutation};
use std::ops::Range;

/// An undirected graph without self-loops and without parallel edges.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Graph {
    offsets: Vec<usize>,
    neighbours: Vec<u32>,
}

impl Graph {
    /// Builds the graph of `vertices` vertices; self-loops and repeated edges are dropped.
    pub fn from_edges(
        vertices: u32,
        edges: impl IntoIterator<Item = (u32, u32)>,
    ) -> Result<Self, GraphError> {
        let edges: Vec<(u32, u32)> = edges.into_iter().collect();
        for &(a, b) in &edges {
            let largest = a.max(b);
            if largest >= vertices {
                return Err(GraphError::new(format!(
                    "the edge {a}-{b} names vertex {largest}, but the graph has only \
                     {vertices} vertices, numbered from 0"
                )));
            }
        }
        Ok(Self::from_valid_edges(vertices, &edges))
    }

    fn from_valid_edges(vertices: u32, edges: &[(u32, u32)]) -> Self {
        let proper = || edges.iter().filter(|(a, b)| a != b);
        let mut offsets = vec![0_usize; vertices as usize + 1];
        for &(a, b) in proper() {
            offsets[a as usize + 1] += 1;
            offsets[b as usize + 1] += 1;
        }
        for v in 1..offsets.len() {
            offsets[v] += offsets[v - 1];
        }
        let mut free = offsets.clone();
        let mut neighbours = vec![0_u32; offsets[vertices as usize]];
        let mut place = |of: u32, neighbour: u32| {
            neighbours[free[of as usize]] = neighbour;
            free[of as usize] += 1;
        };
        for &(a, b) in proper() {
            place(a, b);
            place(b, a);
        }
        let mut graph = Self { offsets, neighbours };
        graph.sort_and_dedup_rows();
        graph
    }

    fn sort_and_dedup_rows(&mut self) {
        let mut filled = 0;
        let mut begin = 0;
        for v in 0..self.offsets.len() - 1 {
            let end = self.offsets[v + 1];
            self.neighbours[begin..end].sort_unstable();
            let row = filled;
            for i in begin..end {
                let u = self.neighbours[i];
                if filled == row || self.neighbours[filled - 1] != u {
                    self.neighbours[filled] = u;
                    filled += 1;
                }
            }
            self.offsets[v] = row;
            begin = end;
        }
        if let Some(last) = self.offsets.last_mut() {
            *last = filled;
        }
        self.neighbours.truncate(filled);
    }

    /// The number of vertices; they are numbered from 0.
    pub fn vertices(&self) -> u32 {
        // At most u32::MAX by construction: `from_edges` takes the number as a u32.
        (self.offsets.len() - 1) as u32
    }

    /// The number of undirected edges.
    pub fn edges(&self) -> usize {
        self.neighbours.len() / 2
    }

    /// The number of neighbours of `v`.
    pub fn degree(&self, v: u32) -> usize {
        self.neighbours(v).len()
    }

    /// The neighbours of `v`, ascending.
    pub fn neighbours(&self, v: u32) -> &[u32] {
        let v = v as usize;
        &self.neighbours[self.offsets[v]..self.offsets[v + 1]]
    }

    /// Each edge once, as (smaller vertex, larger vertex), ascending.
    pub fn edge_list(&self) -> impl Iterator<Item = (u32, u32)> + '_ {
        (0..self.vertices()).flat_map(move |v| {
            let row = self.neighbours(v);
            let larger = row.partition_point(|&u| u < v);
            row[larger..].iter().map(move |&u| (v, u))
        })
    }

    /// A number that two graphs share only if they have the same edges between the same vertices.
    pub fn fingerprint(&self) -> [u64; 2] {
        let mut bytes = Vec::with_capacity(self.edges() * 8);
        for (a, b) in self.edge_list() {
            bytes.extend_from_slice(&a.to_le_bytes());
            bytes.extend_from_slice(&b.to_le_bytes());
        }
        let hash = xxhash_rust::xxh3::xxh3_128(&bytes);
        [hash as u64, (hash >> 64) as u64]
    }

    /// The subgraph of all vertices within `distance` edges of `roots` on paths that meet no vertex before the first
    /// root, and the numbers of its vertices, ascending. The roots are its first vertices, in order.
    pub fn within(&self, roots: Range<u32>, distance: usize) -> (Graph, Vec<u32>) {
        let mut label = vec![u32::MAX; self.vertices() as usize];
        let mut members: Vec<u32> = roots.clone().collect();
        members.iter().for_each(|&root| label[root as usize] = 0);
        let mut newest = 0;
        for _ in 0..distance {
            let end = members.len();
            for member in newest..end {
                for &near in self.neighbours(members[member]) {
                    if near >= roots.start && label[near as usize] == u32::MAX {
                        label[near as usize] = 0;
                        members.push(near);
                    }
                }
            }
            newest = end;
        }
        members.sort_unstable();
        (0..).zip(&members).for_each(|(number, &member)| label[member as usize] = number);
        let (mut offsets, mut neighbours) = (vec![0], Vec::new());
        for &member in &members {
            // Numbers ascend with those of the whole graph, so that rows stay sorted.
            let row = self.neighbours(member).iter().map(|&near| label[near as usize]);
            neighbours.extend(row.filter(|&near| near != u32::MAX));
            offsets.push(neighbours.len());
        }
        (Graph { offsets, neighbours }, members)
    }

    /// The same graph with each vertex renumbered as `order` says.
    pub fn relabel(&self, order: &Permutation) -> Result<Self, GraphError> {
        if order.len() != self.vertices() {
            return Err(GraphError::new(format!(
                "an order of {} vertices cannot renumber a graph of {}",
                order.len(),
                self.vertices()
            )));
        }
        let mut offsets = Vec::with_capacity(self.offsets.len());
        let mut neighbours = Vec::with_capacity(self.neighbours.len());
        offsets.push(0);
        for old in order.inverse().labels() {
            let begin = neighbours.len();
            neighbours.extend(self.neighbours(*old).iter().map(|&u| order.label(u)));
            neighbours[begin..].sort_unstable();
            offsets.push(neighbours.len());
        }
        Ok(Self { offsets, neighbours })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_sorted_and_simple() {
        let graph = Graph::from_edges(5, [(3, 1), (1, 3), (2, 2), (1, 0), (3, 0)]).unwrap();
        assert_eq!(graph.vertices(), 5);
        assert_eq!(graph.edges(), 3);
        assert_eq!(graph.neighbours(0), [1, 3]);
        assert_eq!(graph.neighbours(1), [0, 3]);
        assert!(graph.neighbours(2).is_empty());
        assert_eq!(graph.neighbours(3), [0, 1]);
        assert_eq!(graph.degree(4), 0);
        let edges: Vec<_> = graph.edge_list().collect();
        assert_eq!(edges, [(0, 1), (0, 3), (1, 3)]);
    }

    #[test]
    fn an_empty_graph_is_a_graph() {
        let graph = Graph::from_edges(0, []).unwrap();
        assert_eq!((graph.vertices(), graph.edges()), (0, 0));
    }

    #[test]
    fn an_edge_to_nowhere_is_named() {
        let error = Graph::from_edges(3, [(0, 1), (7, 2)]).unwrap_err();
        assert_eq!(
            error.to_string(),
            "the edge 7-2 names vertex 7, but the graph has only 3 vertices, numbered from 0"
        );
    }

    #[test]
    fn a_neighbourhood_ends_at_its_distance_and_before_its_roots() {
        let path = Graph::from_edges(7, (0..6).map(|v| (v, v + 1))).unwrap();
        let (near, members) = path.within(2..4, 2);
        assert_eq!(members, [2, 3, 4, 5]);
        assert_eq!(near, Graph::from_edges(4, [(0, 1), (1, 2), (2, 3)]).unwrap());
        // Vertex 6 is next to vertex 0 now, but only on a way around the roots.
        let ring = Graph::from_edges(7, (0..7).map(|v| (v, (v + 1) % 7))).unwrap();
        assert_eq!(ring.within(1..2, 2).1, [1, 2, 3]);
        assert_eq!(ring.within(0..1, 2).1, [0, 1, 2, 5, 6]);
        assert!(ring.within(3..3, 2).1.is_empty());
    }

    #[test]
    fn relabel_moves_the_edges() {
        let path = Graph::from_edges(3, [(0, 1), (1, 2)]).unwrap();
        let order = Permutation::from_labels(vec![2, 0, 1]).unwrap();
        let moved = path.relabel(&order).unwrap();
        assert_eq!(moved, Graph::from_edges(3, [(2, 0), (0, 1)]).unwrap());
        assert!(moved.relabel(&Permutation::identity(2)).is_err());
    }
}
