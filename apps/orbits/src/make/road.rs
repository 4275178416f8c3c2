//! Road-like graphs: few junctions, long chains between them, hardly a triangle.
//!
//! A quarter of the vertices are junctions on a square grid. A random spanning tree keeps
//! the grid connected; of the other grid edges two in five stay, as loops around blocks.
//! The remaining vertices subdivide the kept edges at random, like the shape points of a
//! street map. The mean degree is then about 2.2.

use super::random::Random;
use crate::{Graph, GraphError};

const EXTRA_EDGES: f64 = 0.4;

/// Makes a connected road-like graph of exactly `n` vertices.
pub fn road(n: u32, seed: u64) -> Result<Graph, GraphError> {
    let mut random = Random::new(seed);
    let side = f64::from(n / 4).sqrt() as u32;
    if side < 2 {
        // Too small for a grid: a single street.
        return Graph::from_edges(n, (1..n).map(|v| (v - 1, v)));
    }
    let streets = kept_streets(side, &mut random);
    let mut points = vec![0_u32; streets.len()];
    for _ in side * side..n {
        points[random.below(streets.len())] += 1;
    }
    let mut edges = Vec::new();
    let mut fresh = side * side;
    for (&(from, to), &points) in streets.iter().zip(&points) {
        let mut last = from;
        for point in fresh..fresh + points {
            edges.push((last, point));
            last = point;
        }
        edges.push((last, to));
        fresh += points;
    }
    Graph::from_edges(n, edges)
}

/// The grid edges that become streets, in grid order.
fn kept_streets(side: u32, random: &mut Random) -> Vec<(u32, u32)> {
    let mut streets = Vec::new();
    for v in 0..side * side {
        if v % side + 1 < side {
            streets.push((v, v + 1));
        }
        if v + side < side * side {
            streets.push((v, v + side));
        }
    }
    random.shuffle(&mut streets);
    let mut parts = Parts::new(side * side);
    streets.retain(|&(a, b)| parts.unite(a, b) || random.unit() < EXTRA_EDGES);
    streets.sort_unstable();
    streets
}

/// Disjoint sets of junctions that are connected so far.
struct Parts(Vec<u32>);

impl Parts {
    fn new(vertices: u32) -> Self {
        Self((0..vertices).collect())
    }

    fn part_of(&mut self, mut v: u32) -> u32 {
        while self.0[v as usize] != v {
            let grandparent = self.0[self.0[v as usize] as usize];
            self.0[v as usize] = grandparent;
            v = grandparent;
        }
        v
    }

    /// Joins two parts; false if they were one before.
    fn unite(&mut self, a: u32, b: u32) -> bool {
        let (a, b) = (self.part_of(a), self.part_of(b));
        self.0[a as usize] = b;
        a != b
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roads_lead_everywhere_and_meet_in_at_most_four() {
        let graph = road(1000, 9).unwrap();
        assert_eq!(graph.vertices(), 1000);
        let mut parts = Parts::new(1000);
        let joins = graph.edge_list().filter(|&(a, b)| parts.unite(a, b));
        assert_eq!(joins.count(), 999);
        assert!((0..1000).all(|v| graph.degree(v) <= 4));
    }
}
