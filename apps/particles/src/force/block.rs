//! A private copy of a cell's particles, in lanes that the processor works on together, with the
//! sums of what they feel. The last lanes are filled up with particles too far away to matter.

use super::cells::Cells;
use super::shared_sum::SharedSum;

/// Particles that are worked on together.
pub(super) const LANES: usize = 8;

/// One value for each of the particles that are worked on together.
pub(super) type Lanes = [f32; LANES];

/// Further from the cube than any cutoff.
const FAR: f32 = 8.0;

#[derive(Default)]
pub(super) struct Block {
    /// Where the particles are in the sorted order.
    range: std::ops::Range<usize>,
    places: [Vec<Lanes>; 3],
    /// Three parts of the acceleration, and the potential.
    sums: [Vec<Lanes>; 4],
}

impl Block {
    pub fn fill(&mut self, cells: &Cells, cell: usize) {
        self.range = cells.range(cell);
        let chunks = self.range.len().div_ceil(LANES);
        let axes = [&cells.x, &cells.y, &cells.z];
        for (places, coordinates) in self.places.iter_mut().zip(axes) {
            places.clear();
            for chunk in coordinates[self.range.clone()].chunks(LANES) {
                let mut lanes = [FAR; LANES];
                lanes[..chunk.len()].copy_from_slice(chunk);
                places.push(lanes);
            }
        }
        for sums in &mut self.sums {
            sums.clear();
            sums.resize(chunks, [0.0; LANES]);
        }
    }

    pub fn len(&self) -> usize {
        self.range.len()
    }

    pub fn chunks(&self) -> usize {
        self.places[0].len()
    }

    pub fn place(&self, index: usize) -> [f32; 3] {
        [0, 1, 2].map(|axis| self.places[axis][index / LANES][index % LANES])
    }

    #[inline(always)]
    pub fn places(&self, chunk: usize) -> [&Lanes; 3] {
        [0, 1, 2].map(|axis| &self.places[axis][chunk])
    }

    /// Adds what one particle feels.
    pub fn feel(&mut self, index: usize, felt: [Lanes; 4]) {
        for (sums, felt) in self.sums.iter_mut().zip(felt) {
            sums[index / LANES][index % LANES] += felt.iter().sum::<f32>();
        }
    }

    /// Adds the reaction of a chunk's particles to what they did: the opposite acceleration, the
    /// same potential.
    #[inline(always)]
    pub fn feel_opposite(&mut self, chunk: usize, parts: &[Lanes; 4]) {
        let [x, y, z, potential] = &mut self.sums;
        for (sums, parts) in [x, y, z].into_iter().zip(parts) {
            sums[chunk].iter_mut().zip(parts).for_each(|(sum, part)| *sum -= part);
        }
        potential[chunk].iter_mut().zip(&parts[3]).for_each(|(sum, part)| *sum += part);
    }

    /// Hands the sums over to all threads.
    pub fn add_to(&self, shared: &[[SharedSum; 4]]) {
        for (index, shared) in shared[self.range.clone()].iter().enumerate() {
            for (sums, shared) in self.sums.iter().zip(shared) {
                shared.add(sums[index / LANES][index % LANES]);
            }
        }
    }
}
