//! Particles sorted into cells that are at least as wide as the cutoff, so that whoever feels a
//! particle directly is in its cell or in one of the 26 around it.

use crate::Particles;

/// Particles by cell; within a cell they stand in the order of their indices.
pub(super) struct Cells {
    side: usize,
    /// Where each cell begins in the sorted order, and the end of the last.
    starts: Vec<usize>,
    /// The index of the particle at each place of the sorted order.
    pub order: Vec<u32>,
    /// The coordinates of the particles in sorted order.
    pub x: Vec<f32>,
    pub y: Vec<f32>,
    pub z: Vec<f32>,
}

/// Another cell that touches a cell: its number, and what to add to its particles' coordinates
/// where the cube ends between the two.
pub(super) struct Neighbour {
    pub cell: usize,
    pub shift: [f32; 3],
}

impl Cells {
    pub fn sort(particles: &Particles, cutoff: f64) -> Self {
        let side = (1.0 / cutoff) as usize;
        let homes: Vec<usize> =
            (0..particles.len()).map(|index| cell_of(particles.place(index), side)).collect();
        let mut starts = vec![0; side.pow(3) + 1];
        homes.iter().for_each(|home| starts[home + 1] += 1);
        (1..starts.len()).for_each(|cell| starts[cell] += starts[cell - 1]);
        let mut next = starts.clone();
        let mut order = vec![0; particles.len()];
        for (index, &home) in homes.iter().enumerate() {
            order[next[home]] = index as u32;
            next[home] += 1;
        }
        let sorted = |values: &[f32]| order.iter().map(|&i| values[i as usize]).collect();
        let (x, y, z) = (sorted(&particles.x), sorted(&particles.y), sorted(&particles.z));
        Cells { side, starts, order, x, y, z }
    }

    pub fn count(&self) -> usize {
        self.starts.len() - 1
    }

    /// The places of a cell's particles in the sorted order.
    pub fn range(&self, cell: usize) -> std::ops::Range<usize> {
        self.starts[cell]..self.starts[cell + 1]
    }

    /// One of each two opposite neighbours: over all cells, each pair of cells comes once.
    pub fn half_of_neighbours(&self, cell: usize) -> impl Iterator<Item = Neighbour> {
        self.neighbours(cell, 14..27)
    }

    /// The cell of a place and the 26 around it.
    pub fn around(&self, place: [f32; 3]) -> impl Iterator<Item = usize> {
        self.neighbours(cell_of(place, self.side), 0..27).map(|neighbour| neighbour.cell)
    }

    fn neighbours(
        &self,
        cell: usize,
        codes: std::ops::Range<usize>,
    ) -> impl Iterator<Item = Neighbour> {
        let home = [cell / self.side / self.side, cell / self.side % self.side, cell % self.side];
        codes.map(move |code| {
            let offsets = [code / 9, code / 3 % 3, code % 3];
            let mut neighbour = Neighbour { cell: 0, shift: [0.0; 3] };
            for axis in 0..3 {
                // One more than the index along the axis, so that it cannot be negative.
                let along = home[axis] + offsets[axis];
                neighbour.shift[axis] = match along {
                    0 => -1.0,
                    beyond if beyond > self.side => 1.0,
                    _ => 0.0,
                };
                let inside = (along + self.side - 1) % self.side;
                neighbour.cell = neighbour.cell * self.side + inside;
            }
            neighbour
        })
    }
}

fn cell_of(place: [f32; 3], side: usize) -> usize {
    let along = |coordinate: f32| ((coordinate * side as f32) as usize).min(side - 1);
    let [x, y, z] = place.map(along);
    (x * side + y) * side + z
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::start::lattice;
    use std::collections::HashSet;

    #[test]
    fn every_particle_is_in_its_cell_once() {
        let particles = lattice(9, 2);
        let cells = Cells::sort(&particles, 0.24);
        assert_eq!(cells.count(), 64);
        let seen: HashSet<u32> = cells.order.iter().copied().collect();
        assert_eq!(seen.len(), particles.len());
        for cell in 0..cells.count() {
            for place in cells.range(cell) {
                let corner = [cell / 16, cell / 4 % 4, cell % 4].map(|i| i as f32 / 4.0);
                let found = [cells.x[place], cells.y[place], cells.z[place]];
                let inside = |(c, f): (&f32, &f32)| (*c..c + 0.25).contains(f);
                assert!(corner.iter().zip(&found).all(inside));
                assert_eq!(found, particles.place(cells.order[place] as usize));
            }
        }
    }

    #[test]
    fn each_pair_of_touching_cells_comes_once() {
        for cutoff in [0.33, 0.24, 0.19] {
            let cells = Cells::sort(&lattice(4, 2), cutoff);
            let mut pairs = HashSet::new();
            for cell in 0..cells.count() {
                for neighbour in cells.half_of_neighbours(cell) {
                    let pair = (cell.min(neighbour.cell), cell.max(neighbour.cell));
                    assert!(pair.0 != pair.1 && pairs.insert(pair));
                }
            }
            assert_eq!(pairs.len(), 13 * cells.count());
            let around: HashSet<usize> = cells.around([0.99, 0.5, 0.0]).collect();
            assert_eq!(around.len(), 27);
        }
    }
}
