//! The rows of a rank's vertices, and what crosses its borders: plain arithmetic on the edges of the rank.

use crate::ranks::garbled;
use std::ops::Range;
use treering::{Comm, Rank, Result};

/// Vertices, evenly divided among ranks in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Division {
    pub vertices: u32,
    pub ranks: u32,
}

impl Division {
    /// The vertices of a rank.
    pub fn of(self, rank: Rank) -> Range<u32> {
        let (all, ranks) = (u64::from(self.vertices), u64::from(self.ranks.max(1)));
        // At most the number of vertices.
        let begin = |rank: u64| (all * rank / ranks) as u32;
        begin(rank.0.into())..begin(u64::from(rank.0) + 1)
    }

    /// The rank that owns a vertex.
    pub fn owner(self, vertex: u32) -> Rank {
        let (all, ranks) = (u64::from(self.vertices.max(1)), u64::from(self.ranks.max(1)));
        // The last rank that begins at the vertex or before it.
        Rank((((u64::from(vertex) + 1) * ranks - 1) / all) as u32)
    }
}

/// An edge as one number, so that edges in order are in the order of their vertices, then of the neighbours.
pub(super) fn edge(vertex: u32, neighbour: u32) -> u64 {
    u64::from(vertex) << 32 | u64::from(neighbour)
}

/// The vertex and the neighbour of an edge.
pub(super) fn ends(edge: u64) -> (u32, u32) {
    ((edge >> 32) as u32, edge as u32)
}

/// The rows of a rank's vertices.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Rows {
    /// The place in `sources` where each row begins, and the end of the last.
    begins: Vec<usize>,
    /// Places of the neighbours' contributions: first those of own vertices, then those that other ranks send.
    sources: Vec<u32>,
    /// Own vertices, from 0 on, whose contributions a rank needs.
    sends: Vec<(Rank, Vec<u32>)>,
    /// The number of contributions that come from a rank.
    receives: Vec<(Rank, usize)>,
}

impl Rows {
    /// The rows of the vertices of a rank, from their edges, which are ascending.
    pub fn new(division: Division, rank: Rank, edges: &[u64]) -> Result<Rows> {
        let own = division.of(rank);
        let proper = |edge: &u64| {
            let (v, u) = ends(*edge);
            own.contains(&v) && u < division.vertices
        };
        if !edges.iter().all(proper) || !edges.is_sorted() {
            return Err(garbled());
        }
        let mut foreign: Vec<u32> =
            edges.iter().map(|edge| ends(*edge).1).filter(|u| !own.contains(u)).collect();
        foreign.sort_unstable();
        foreign.dedup();
        let mut rows = Rows::default();
        for group in foreign.chunk_by(|a, b| division.owner(*a) == division.owner(*b)) {
            rows.receives.push((division.owner(group[0]), group.len()));
            rows.sends.push((division.owner(group[0]), Vec::new()));
        }
        for vertex in own.clone() {
            rows.begins.push(rows.sources.len());
            let rest = &edges[rows.sources.len()..];
            for (_, u) in rest.iter().map(|edge| ends(*edge)).take_while(|(v, _)| *v == vertex) {
                rows.sources.push(match own.contains(&u) {
                    true => u - own.start,
                    false => own.len() as u32 + foreign.partition_point(|f| *f < u) as u32,
                });
                let owner = division.owner(u);
                let to = rows.sends.iter_mut().find(|(rank, _)| *rank == owner);
                if let Some((_, needed)) = to
                    && needed.last() != Some(&(vertex - own.start))
                {
                    needed.push(vertex - own.start);
                }
            }
        }
        rows.begins.push(rows.sources.len());
        Ok(rows)
    }

    /// The number of neighbours of an own vertex, from 0 on.
    pub fn degree(&self, row: usize) -> usize {
        self.begins[row + 1] - self.begins[row]
    }

    /// The places of the contributions to an own vertex, from 0 on.
    pub fn sources(&self, row: usize) -> &[u32] {
        &self.sources[self.begins[row]..self.begins[row + 1]]
    }

    /// Appends the contributions of other ranks to those of the own vertices; collective.
    pub fn exchange(&self, comm: &dyn Comm, contributions: &mut Vec<f64>) -> Result<()> {
        let bytes = |own: &[u32]| -> Vec<u8> {
            own.iter().flat_map(|at| contributions[*at as usize].to_le_bytes()).collect()
        };
        let all: Vec<(Rank, Vec<u8>)> =
            self.sends.iter().map(|(to, own)| (*to, bytes(own))).collect();
        let messages: Vec<(Rank, &[u8])> =
            all.iter().map(|(to, bytes)| (*to, &bytes[..])).collect();
        let received = comm.exchange(&messages)?;
        let lengths = received.iter().map(|(from, bytes)| (*from, bytes.len() / 8));
        if !lengths.eq(self.receives.iter().copied()) {
            return Err(garbled());
        }
        for (_, bytes) in received {
            let values = bytes.as_chunks::<8>().0.iter().map(|value| f64::from_le_bytes(*value));
            contributions.extend(values);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_vertex_has_one_owner(vertices in 0u32..500, ranks in 1u32..40) {
            let division = Division { vertices, ranks };
            let mut next = 0;
            for rank in (0..ranks).map(Rank) {
                let own = division.of(rank);
                prop_assert_eq!(own.start, next);
                prop_assert!(own.clone().all(|vertex| division.owner(vertex) == rank));
                next = own.end;
            }
            prop_assert_eq!(next, vertices);
        }
    }

    #[test]
    fn borders_are_known_from_ones_own_edges() {
        // A path 0-1-2-3-4-5 and an edge 0-5, on three ranks.
        let division = Division { vertices: 6, ranks: 3 };
        let edges = |ends: [(u32, u32); 4]| ends.map(|(v, u)| edge(v, u));
        let own = edges([(2, 1), (2, 3), (3, 2), (3, 4)]);
        let rows = Rows::new(division, Rank(1), &own).unwrap();
        assert_eq!(rows.sends, [(Rank(0), vec![0]), (Rank(2), vec![1])]);
        assert_eq!(rows.receives, [(Rank(0), 1), (Rank(2), 1)]);
        assert_eq!((rows.sources(0), rows.sources(1)), (&[2, 1][..], &[0, 3][..]));
        let own = edges([(0, 1), (0, 5), (1, 0), (1, 2)]);
        let first = Rows::new(division, Rank(0), &own).unwrap();
        assert_eq!(first.sends, [(Rank(1), vec![1]), (Rank(2), vec![0])]);
        assert_eq!((first.degree(0), first.degree(1)), (2, 2));
    }

    #[test]
    fn edges_that_make_no_sense_are_refused() {
        let division = Division { vertices: 6, ranks: 3 };
        for bad in [&[edge(1, 2)][..], &[edge(2, 6)], &[edge(3, 2), edge(2, 3)]] {
            assert!(Rows::new(division, Rank(1), bad).is_err(), "{bad:?}");
        }
        assert!(Rows::new(Division { vertices: 0, ranks: 3 }, Rank(1), &[]).is_ok());
    }
}
