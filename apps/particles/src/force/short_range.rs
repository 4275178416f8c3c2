//! The force that the mesh is missing, summed directly over all pairs within the cutoff.
//!
//! A thread takes a cell and pairs its particles with each other and with those of half of the
//! neighbouring cells. The force of a pair on one particle acts on the other with the opposite
//! sign, so momentum is kept. Each cell's particles get their sums from fourteen such tasks, in the
//! order in which the threads come to them.

use super::Pull;
use super::block::{Block, LANES, Lanes};
use super::cells::Cells;
use super::shared_sum::SharedSum;
use super::split::{Polynomial, Split};
use crate::Particles;
use crate::fixed::{fixed, real};
use rayon::prelude::*;

pub(super) struct ShortRange {
    mass: f32,
    cutoff: f64,
    cutoff_square: f32,
    softening_square: f32,
    smooth_force: Polynomial,
    smooth_potential: Polynomial,
}

/// No particle of a block: all lanes count.
const NOBODY: usize = usize::MAX;

impl ShortRange {
    pub fn new(mass: f64, softening: f64, split: Split) -> Self {
        ShortRange {
            mass: mass as f32,
            cutoff: split.cutoff,
            cutoff_square: (split.cutoff * split.cutoff) as f32,
            softening_square: (softening * softening) as f32,
            smooth_force: split.smooth_force(),
            smooth_potential: split.smooth_potential(),
        }
    }

    /// Adds the direct pull on each particle.
    pub fn add_to(&self, pulls: &mut [Pull], particles: &Particles) {
        let cells = Cells::sort(particles, self.cutoff);
        let sums = self.sum(&cells);
        for (&index, sum) in cells.order.iter().zip(&sums) {
            let pull = &mut pulls[index as usize];
            pull.potential += sum[3].get();
            pull.acceleration.iter_mut().zip(sum).for_each(|(a, s)| *a += s.get());
        }
    }

    /// The distance within which pairs pull, and a little more than the rounding of distances.
    pub fn reach(&self) -> f64 {
        self.cutoff + 1e-5
    }

    /// Adds the direct pull on the first particles of `near`, one for each of `pulls`. The sums are
    /// of fixed-point numbers, so they depend on neither the order of the particles nor the threads.
    pub fn add_nearby(&self, pulls: &mut [Pull], near: &Particles) {
        let cells = Cells::sort(near, self.cutoff);
        pulls.par_iter_mut().enumerate().for_each(|(index, pull)| {
            let place = near.place(index);
            let mut sums = [0i64; 4];
            for at in cells.around(place).flat_map(|cell| cells.range(cell)) {
                if cells.order[at] as usize == index {
                    continue;
                }
                if let Some(parts) = self.pair(place, [cells.x[at], cells.y[at], cells.z[at]]) {
                    let both = sums.iter_mut().zip(parts);
                    both.for_each(|(sum, part)| *sum = sum.wrapping_add(fixed(part.into())));
                }
            }
            let [x, y, z, potential] = sums.map(|sum| real(sum) as f32);
            pull.potential += potential;
            pull.acceleration.iter_mut().zip([x, y, z]).for_each(|(a, sum)| *a += sum);
        });
    }

    /// The pull of one particle on another at `place`, or on its nearest image, within the cutoff: the
    /// acceleration and the potential. Seen from the other side, the acceleration has the opposite
    /// sign and the same bits.
    fn pair(&self, place: [f32; 3], other: [f32; 3]) -> Option<[f32; 4]> {
        let distance: [f32; 3] = std::array::from_fn(|axis| nearest(other[axis] - place[axis]));
        let square: f32 = distance.iter().map(|d| d * d).sum();
        if square >= self.cutoff_square {
            return None;
        }
        let inverse = 1.0 / (square + self.softening_square).sqrt();
        let force = self.mass * (inverse * inverse * inverse - self.smooth_force.at(square));
        let potential = self.mass * (self.smooth_potential.at(square) - inverse);
        Some([distance[0] * force, distance[1] * force, distance[2] * force, potential])
    }

    fn sum(&self, cells: &Cells) -> Vec<[SharedSum; 4]> {
        let zeros = std::iter::repeat_with(Default::default);
        let sums: Vec<[SharedSum; 4]> = zeros.take(cells.order.len()).collect();
        let tasks = (0..cells.count()).into_par_iter().with_max_len(1);
        tasks.for_each_init(Default::default, |(own, other): &mut (Block, Block), cell| {
            own.fill(cells, cell);
            self.within(own);
            for neighbour in cells.half_of_neighbours(cell) {
                other.fill(cells, neighbour.cell);
                self.between(own, other, neighbour.shift);
                other.add_to(&sums);
            }
            own.add_to(&sums);
        });
        sums
    }

    /// All pairs within a cell, each from both sides.
    fn within(&self, block: &mut Block) {
        for index in 0..block.len() {
            let place = block.place(index);
            let mut felt = [[0.0; LANES]; 4];
            for chunk in 0..block.chunks() {
                let own_lane = index.checked_sub(chunk * LANES).unwrap_or(NOBODY);
                let (_, parts) = self.parts(place, block.places(chunk), own_lane);
                add(&mut felt, &parts);
            }
            block.feel(index, felt);
        }
    }

    /// All pairs between two cells, where the second lies at `shift` from where its particles say.
    fn between(&self, own: &mut Block, other: &mut Block, shift: [f32; 3]) {
        for index in 0..own.len() {
            let place = own.place(index);
            let place = std::array::from_fn(|axis| place[axis] - shift[axis]);
            let mut felt = [[0.0; LANES]; 4];
            for chunk in 0..other.chunks() {
                let (near, parts) = self.parts(place, other.places(chunk), NOBODY);
                if near {
                    add(&mut felt, &parts);
                    other.feel_opposite(chunk, &parts);
                }
            }
            own.feel(index, felt);
        }
    }

    /// The pull of each of the particles at `others`, but for the lane `own`, on one at `place`:
    /// three parts of the acceleration and one of the potential; and whether it does anything.
    #[inline(always)]
    fn parts(&self, place: [f32; 3], others: [&Lanes; 3], own: usize) -> (bool, [Lanes; 4]) {
        let mut parts = [[0.0; LANES]; 4];
        let mut square = [0.0; LANES];
        for axis in 0..3 {
            for lane in 0..LANES {
                let distance = others[axis][lane] - place[axis];
                parts[axis][lane] = distance;
                square[lane] += distance * distance;
            }
        }
        if own < LANES {
            square[own] = f32::INFINITY;
        }
        if square.iter().all(|&s| s >= self.cutoff_square) {
            return (false, [[0.0; LANES]; 4]);
        }
        for lane in 0..LANES {
            // Beyond the cutoff a finite force times no mass: no branch holds the lanes up.
            let mass = if square[lane] < self.cutoff_square { self.mass } else { 0.0 };
            let square = square[lane].min(self.cutoff_square);
            let inverse = 1.0 / (square + self.softening_square).sqrt();
            let force = mass * (inverse * inverse * inverse - self.smooth_force.at(square));
            parts[0][lane] *= force;
            parts[1][lane] *= force;
            parts[2][lane] *= force;
            parts[3][lane] = mass * (self.smooth_potential.at(square) - inverse);
        }
        (true, parts)
    }
}

/// The distance to the nearest image.
fn nearest(distance: f32) -> f32 {
    match distance {
        far if far > 0.5 => far - 1.0,
        far if far < -0.5 => far + 1.0,
        near => near,
    }
}

#[inline(always)]
fn add(sums: &mut [Lanes; 4], parts: &[Lanes; 4]) {
    for (sums, parts) in sums.iter_mut().zip(parts) {
        for (sum, part) in sums.iter_mut().zip(parts) {
            *sum += part;
        }
    }
}
