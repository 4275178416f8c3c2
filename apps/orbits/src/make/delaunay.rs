//! The Delaunay triangulation of random points in a square.

use delaunator::{Point, triangulate};

use super::random::Random;
use crate::{Graph, GraphError};

/// Triangulates `n` uniformly random points: mean degree 6, many triangles.
pub fn delaunay(n: u32, seed: u64) -> Result<Graph, GraphError> {
    let mut random = Random::new(seed);
    let mut point = || Point { x: random.unit(), y: random.unit() };
    let points: Vec<Point> = (0..n).map(|_| point()).collect();
    if n < 3 {
        // No triangle to be had; two points are still neighbours.
        return Graph::from_edges(n, (1..n).map(|v| (0, v)));
    }
    let corners = triangulate(&points).triangles;
    let edges = corners.chunks_exact(3).flat_map(|t| {
        let [a, b, c] = [t[0] as u32, t[1] as u32, t[2] as u32];
        [(a, b), (b, c), (c, a)]
    });
    Graph::from_edges(n, edges)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_triangulation_is_planar_and_has_no_lonely_vertex() {
        let graph = delaunay(500, 11).unwrap();
        assert!(graph.edges() <= 3 * 500 - 6);
        assert!((0..500).all(|v| graph.degree(v) >= 2));
    }
}
