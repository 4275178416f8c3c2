//! Random geometric graphs: points in a square, joined when closer than a radius.
//!
//! The square is cut into cells no narrower than the radius, so that the neighbours of a
//! point lie in its own cell or the eight around it. Points are numbered cell by cell, row
//! after row, hence near points mostly have near numbers.

use std::f64::consts::PI;
use std::ops::Range;

use super::random::Random;
use crate::{Graph, GraphError};

/// Joins `n` random points by a radius that gives about `mean_degree`, a little less near
/// the border of the square.
pub fn geometric(n: u32, mean_degree: f64, seed: u64) -> Result<Graph, GraphError> {
    if !(mean_degree >= 0.0 && mean_degree <= f64::from(n)) {
        return Err(GraphError::new(format!(
            "a mean degree of {mean_degree} is not possible: in a graph of {n} vertices it \
             must be at least 0 and at most {n}"
        )));
    }
    let radius = (mean_degree / (PI * f64::from(n.max(1)))).sqrt();
    let cells = Cells::new(n, radius, &mut Random::new(seed));
    let mut edges = Vec::new();
    for row in 0..cells.side {
        for column in 0..cells.side {
            cells.join_with_later(row, column, radius, &mut edges);
        }
    }
    Graph::from_edges(n, edges)
}

struct Cells {
    side: usize,
    /// Where the points of each cell begin, and at last where they all end.
    begin: Vec<usize>,
    points: Vec<(f64, f64)>,
}

impl Cells {
    fn new(n: u32, radius: f64, random: &mut Random) -> Self {
        // More cells than points would only cost memory.
        let finest = f64::from(n).sqrt().max(1.0);
        let side = (1.0 / radius).clamp(1.0, finest) as usize;
        let cell = |(x, y): (f64, f64)| {
            let at = |z: f64| ((z * side as f64) as usize).min(side - 1);
            at(y) * side + at(x)
        };
        let mut points: Vec<_> = (0..n).map(|_| (random.unit(), random.unit())).collect();
        points.sort_by_key(|&point| cell(point));
        let mut begin = vec![0; side * side + 1];
        for &point in &points {
            begin[cell(point) + 1] += 1;
        }
        for i in 1..begin.len() {
            begin[i] += begin[i - 1];
        }
        Self { side, begin, points }
    }

    fn points_of(&self, row: usize, column: usize) -> Range<usize> {
        let cell = row * self.side + column;
        self.begin[cell]..self.begin[cell + 1]
    }

    /// Joins the points of a cell among themselves and with those of the four cells around
    /// it that come later.
    fn join_with_later(&self, row: usize, column: usize, radius: f64, edges: &mut Vec<(u32, u32)>) {
        let mut join = |p: usize, q: usize| {
            let ((px, py), (qx, qy)) = (self.points[p], self.points[q]);
            if (px - qx).powi(2) + (py - qy).powi(2) < radius * radius {
                edges.push((p as u32, q as u32));
            }
        };
        let own = self.points_of(row, column);
        for p in own.clone() {
            (p + 1..own.end).for_each(|q| join(p, q));
        }
        let right = column + 1;
        let around = [
            (row, Some(right)),
            (row + 1, column.checked_sub(1)),
            (row + 1, Some(column)),
            (row + 1, Some(right)),
        ];
        for (row, column) in around {
            let Some(column) = column.filter(|&c| c < self.side && row < self.side) else {
                continue;
            };
            for p in own.clone() {
                self.points_of(row, column).for_each(|q| join(p, q));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cells_find_every_close_pair() {
        let (n, degree) = (300, 9.0);
        let graph = geometric(n, degree, 4).unwrap();
        let radius = (degree / (PI * f64::from(n))).sqrt();
        let points = Cells::new(n, radius, &mut Random::new(4)).points;
        let mut expected = Vec::new();
        for (p, a) in points.iter().enumerate() {
            for (q, b) in points.iter().enumerate().skip(p + 1) {
                if (a.0 - b.0).hypot(a.1 - b.1) < radius {
                    expected.push((p as u32, q as u32));
                }
            }
        }
        assert_eq!(graph.edge_list().collect::<Vec<_>>(), expected);
    }

    #[test]
    fn impossible_degrees_are_refused() {
        for degree in [-1.0, f64::NAN, f64::INFINITY, 11.0] {
            let error = geometric(10, degree, 0).unwrap_err();
            assert!(error.to_string().contains("mean degree"));
        }
        assert_eq!(geometric(10, 0.0, 0).unwrap().edges(), 0);
    }
}
