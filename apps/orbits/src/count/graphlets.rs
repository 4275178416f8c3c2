//! The 30 graphlets and the numbering of their 73 orbits (Przulj 2007, as in ORCA).
//!
//! A graphlet stands here as its edges between vertices 0..k and the orbit of each of these
//! vertices. From it comes what the counter needs: a table that gives, for the adjacency
//! code of k vertices in any order, the orbit of each position. The code has one bit per
//! pair of positions, ordered (0,1) (0,2) (1,2) (0,3) (1,3) (2,3) (0,4) ..., so that adding
//! a vertex appends the mask of its neighbours among the earlier ones:
//! `code(k+1) = code(k) | mask << k(k-1)/2`.

use std::sync::LazyLock;

/// The number of orbits of the graphlets of 2 to 5 vertices.
pub const ORBITS: usize = 73;

/// The orbit of each position, for one adjacency code; positions beyond the code's are 0.
pub(super) type Positions = [u8; 8];

struct Graphlet {
    orbits: &'static [u8],
    edges: &'static [(usize, usize)],
}

const fn graphlet(orbits: &'static [u8], edges: &'static [(usize, usize)]) -> Graphlet {
    Graphlet { orbits, edges }
}

#[rustfmt::skip]
const GRAPHLETS: [Graphlet; 30] = [
    graphlet(&[0, 0], &[(0, 1)]),
    graphlet(&[2, 1, 1], &[(0, 1), (0, 2)]),
    graphlet(&[3, 3, 3], &[(0, 1), (0, 2), (1, 2)]),
    graphlet(&[5, 5, 4, 4], &[(0, 1), (0, 2), (1, 3)]),
    graphlet(&[7, 6, 6, 6], &[(0, 1), (0, 2), (0, 3)]),
    graphlet(&[8, 8, 8, 8], &[(0, 1), (0, 2), (1, 3), (2, 3)]),
    graphlet(&[11, 10, 10, 9], &[(0, 1), (0, 2), (0, 3), (1, 2)]),
    graphlet(&[13, 13, 12, 12], &[(0, 1), (0, 2), (0, 3), (1, 2), (1, 3)]),
    graphlet(&[14, 14, 14, 14], &[(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)]),
    graphlet(&[17, 16, 16, 15, 15], &[(0, 1), (0, 2), (1, 3), (2, 4)]),
    graphlet(&[21, 20, 19, 19, 18], &[(0, 1), (0, 2), (0, 3), (1, 4)]),
    graphlet(&[23, 22, 22, 22, 22], &[(0, 1), (0, 2), (0, 3), (0, 4)]),
    graphlet(&[26, 26, 25, 24, 24], &[(0, 1), (0, 2), (0, 3), (1, 2), (1, 4)]),
    graphlet(&[30, 29, 29, 28, 27], &[(0, 1), (0, 2), (0, 3), (1, 2), (3, 4)]),
    graphlet(&[33, 32, 32, 31, 31], &[(0, 1), (0, 2), (0, 3), (0, 4), (1, 2)]),
    graphlet(&[34, 34, 34, 34, 34], &[(0, 1), (0, 2), (1, 3), (2, 4), (3, 4)]),
    graphlet(&[38, 37, 37, 35, 36], &[(0, 1), (0, 2), (0, 3), (1, 4), (2, 4)]),
    graphlet(&[42, 41, 40, 40, 39], &[(0, 1), (0, 2), (0, 3), (0, 4), (1, 2), (1, 3)]),
    graphlet(&[44, 43, 43, 43, 43], &[(0, 1), (0, 2), (0, 3), (0, 4), (1, 2), (3, 4)]),
    graphlet(&[48, 48, 47, 46, 45], &[(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 4)]),
    graphlet(&[50, 49, 49, 49, 50], &[(0, 1), (0, 2), (0, 3), (1, 4), (2, 4), (3, 4)]),
    graphlet(&[53, 53, 52, 51, 51], &[(0, 1), (0, 2), (0, 3), (1, 2), (1, 4), (3, 4)]),
    graphlet(&[55, 55, 54, 54, 54], &[(0, 1), (0, 2), (0, 3), (0, 4), (1, 2), (1, 3), (1, 4)]),
    graphlet(&[58, 57, 57, 57, 56], &[(0, 1), (0, 2), (0, 3), (0, 4), (1, 2), (1, 3), (2, 3)]),
    graphlet(&[61, 60, 60, 59, 59], &[(0, 1), (0, 2), (0, 3), (0, 4), (1, 2), (1, 3), (2, 4)]),
    graphlet(&[64, 64, 63, 63, 62], &[(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 4), (3, 4)]),
    graphlet(&[67, 67, 66, 66, 65], &[(0, 1), (0, 2), (0, 3), (0, 4), (1, 2), (1, 3), (1, 4), (2, 3)]),
    graphlet(&[69, 68, 68, 68, 68], &[(0, 1), (0, 2), (0, 3), (0, 4), (1, 2), (1, 3), (2, 4), (3, 4)]),
    graphlet(&[71, 71, 71, 70, 70], &[(0, 1), (0, 2), (0, 3), (0, 4), (1, 2), (1, 3), (1, 4), (2, 3), (2, 4)]),
    graphlet(&[72, 72, 72, 72, 72], &[(0, 1), (0, 2), (0, 3), (0, 4), (1, 2), (1, 3), (1, 4), (2, 3), (2, 4), (3, 4)]),
];

/// Orbits by adjacency code, for each number of vertices.
pub(super) struct OrbitTables {
    /// By the code of 3 vertices.
    pub three: [Positions; 8],
    /// By the code of 4 vertices.
    pub four: [Positions; 64],
    /// By the code of the first 4 vertices, then the mask of the fifth: the lines that the
    /// innermost loop needs at a time lie side by side.
    pub five: [[Positions; 16]; 64],
}

/// The tables, computed on first use.
pub(super) static TABLES: LazyLock<OrbitTables> = LazyLock::new(OrbitTables::compute);

impl OrbitTables {
    fn compute() -> Self {
        let mut tables = Self { three: [[0; 8]; 8], four: [[0; 8]; 64], five: [[[0; 8]; 16]; 64] };
        for graphlet in &GRAPHLETS {
            for order in permutations(graphlet.orbits.len()) {
                let (code, positions) = graphlet.arranged(&order);
                match order.len() {
                    3 => tables.three[code] = positions,
                    4 => tables.four[code] = positions,
                    5 => tables.five[code & 63][code >> 6] = positions,
                    _ => {}
                }
            }
        }
        tables
    }
}

impl Graphlet {
    /// The code and the orbits by position when vertex `i` stands at position `order[i]`.
    fn arranged(&self, order: &[usize]) -> (usize, Positions) {
        let code = self.edges.iter().fold(0, |code, &(a, b)| {
            let (low, high) = (order[a].min(order[b]), order[a].max(order[b]));
            code | 1 << (high * (high - 1) / 2 + low)
        });
        let mut positions = [0; 8];
        for (&at, &orbit) in order.iter().zip(self.orbits) {
            positions[at] = orbit;
        }
        (code, positions)
    }
}

fn permutations(k: usize) -> Vec<Vec<usize>> {
    if k == 0 {
        return vec![vec![]];
    }
    let mut all = Vec::new();
    for shorter in permutations(k - 1) {
        for at in 0..k {
            let mut longer = shorter.clone();
            longer.insert(at, k - 1);
            all.push(longer);
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_orbit_belongs_to_one_graphlet() {
        let mut owner = [None; ORBITS];
        for (index, graphlet) in GRAPHLETS.iter().enumerate() {
            for &orbit in graphlet.orbits {
                let known = owner[orbit as usize].get_or_insert(index);
                assert_eq!(*known, index, "orbit {orbit}");
            }
        }
        assert!(owner.iter().all(Option::is_some));
    }

    #[test]
    fn vertices_of_an_orbit_are_those_that_a_symmetry_exchanges() {
        for graphlet in &GRAPHLETS {
            let k = graphlet.orbits.len();
            let (own, _) = graphlet.arranged(&(0..k).collect::<Vec<_>>());
            let mut reached = vec![vec![false; k]; k];
            for order in permutations(k) {
                if graphlet.arranged(&order).0 == own {
                    (0..k).for_each(|v| reached[v][order[v]] = true);
                }
            }
            for (a, row) in reached.iter().enumerate() {
                for (b, &symmetric) in row.iter().enumerate() {
                    assert_eq!(symmetric, graphlet.orbits[a] == graphlet.orbits[b]);
                }
            }
        }
    }

    #[test]
    fn every_connected_code_of_five_vertices_is_in_the_table() {
        // 728 labelled connected graphs on 5 vertices (OEIS A001187).
        let known = TABLES.five.iter().flatten().filter(|p| p[0] != 0).count();
        assert_eq!(known, 728);
        assert_eq!(TABLES.four.iter().filter(|p| p[0] != 0).count(), 38);
        assert_eq!(TABLES.three.iter().filter(|p| p[0] != 0).count(), 4);
    }
}
