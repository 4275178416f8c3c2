//! Sums over the points of all ranks that do not depend on the order in which they are added.
//!
//! Coordinates are multiples of a grid, so sums of them are whole numbers, and integer addition is exact. Squares of
//! distances are rounded to a fixed point that leaves room for the sum of all of them. So the ranks reduce 64-bit
//! numbers, and the centres and the inertia are the same bit for bit on any number of ranks.

use crate::points::{GRID, LARGEST};
use crate::settings::Settings;
use treering::{Comm, Reduction, Result};

/// Points whose coordinates are added as floats before they are added as integers: 2^12 points times 2^27 multiples of
/// the grid are far below 2^53, up to which floats are exact.
pub(crate) const BATCH: usize = 1 << 12;

/// Sums over points, by their nearest centre.
#[derive(Default)]
pub(crate) struct Sums {
    dimensions: usize,
    /// Coordinates of a batch, one centre after another.
    batch: Vec<f64>,
    /// Coordinates in multiples of the grid, the points of each centre, and the squares, as the ranks reduce them.
    words: Vec<u64>,
    /// The fixed-point value of a square of 1.
    unit: f64,
}

impl Sums {
    pub fn new(settings: &Settings) -> Sums {
        let (centres, dimensions) = (settings.centres as usize, settings.dimensions as usize);
        let coordinates = centres * dimensions;
        Sums {
            dimensions,
            batch: vec![0.0; coordinates],
            words: vec![0; coordinates + centres + 1],
            unit: unit(settings),
        }
    }

    pub fn clear(&mut self) {
        self.words.fill(0);
    }

    /// Adds a point to the sums of its nearest centre.
    #[inline]
    pub fn add(&mut self, point: &[f64], centre: usize, square: f64) {
        let sums = &mut self.batch[centre * self.dimensions..][..self.dimensions];
        sums.iter_mut().zip(point).for_each(|(sum, x)| *sum += x);
        let (squares, counts) = (self.words.len() - 1, self.batch.len());
        self.words[counts + centre] += 1;
        let square = (square * self.unit).round() as u64;
        self.words[squares] = self.words[squares].wrapping_add(square);
    }

    /// Ends a batch of at most [`BATCH`] points.
    pub fn end_batch(&mut self) {
        for (word, sum) in self.words.iter_mut().zip(&mut self.batch) {
            let grids = (*sum / GRID) as i64;
            *word = word.wrapping_add(grids.cast_unsigned());
            *sum = 0.0;
        }
    }

    /// Adds up the sums of all ranks; collective.
    pub fn reduce(&mut self, comm: &dyn Comm) -> Result<()> {
        comm.reduce(Reduction::Sum, &mut self.words)
    }

    /// Moves each centre to the mean of its points. A centre without any stays where it is.
    pub fn move_centres(&self, centres: &mut [f64]) {
        let (coordinates, rest) = self.words.split_at(self.batch.len());
        let sums = coordinates.chunks_exact(self.dimensions);
        for ((centre, sums), count) in centres.chunks_exact_mut(self.dimensions).zip(sums).zip(rest)
        {
            if *count > 0 {
                let mean = |sum: &u64| sum.cast_signed() as f64 * GRID / *count as f64;
                centre.iter_mut().zip(sums).for_each(|(x, sum)| *x = mean(sum));
            }
        }
    }

    /// The sum of the squares.
    pub fn inertia(&self) -> f64 {
        self.words.last().map_or(0.0, |squares| *squares as f64 / self.unit)
    }
}

/// The largest power of two with which all squares together stay below 2^63.
fn unit(settings: &Settings) -> f64 {
    let square = (2.0 * LARGEST) * (2.0 * LARGEST) * f64::from(settings.dimensions);
    let most = square * settings.points as f64;
    (62.0 - most.log2().ceil()).exp2()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::points::make_points;
    use treering::Alone;

    #[test]
    fn any_order_and_any_batches_give_the_same_sums() {
        let settings = Settings { points: 100, dimensions: 3, centres: 4, ..Settings::default() };
        let points = make_points(3, 0, 100, 3);
        let all: Vec<&[f64]> = points.chunks_exact(3).collect();
        let square = |index: usize| all[index].iter().map(|x| x * x).sum::<f64>();
        let (mut straight, mut shuffled) = (Sums::new(&settings), Sums::new(&settings));
        for index in 0..100 {
            straight.add(all[index], index % 3, square(index));
            let other = index * 37 % 100;
            shuffled.add(all[other], other % 3, square(other));
            if index % 7 == 0 {
                shuffled.end_batch();
            }
        }
        straight.end_batch();
        shuffled.end_batch();
        assert_eq!(straight.words, shuffled.words);
        straight.reduce(&Alone::new()).unwrap();
        let mut centres = vec![9.0; 12];
        straight.move_centres(&mut centres);
        let mean = (0..100).step_by(3).map(|index| all[index][1]).sum::<f64>() / 34.0;
        assert!((centres[1] - mean).abs() < 1e-15);
        assert_eq!(centres[9..], [9.0; 3]);
        let inertia: f64 = (0..100).map(square).sum();
        assert!((straight.inertia() - inertia).abs() < 1e-12 * inertia);
        straight.clear();
        assert_eq!(straight.inertia(), 0.0);
    }

    #[test]
    fn the_largest_clustering_does_not_overflow() {
        let largest =
            Settings { points: Settings::MOST_POINTS, dimensions: 4096, ..Settings::default() };
        let square = 4.0 * LARGEST * LARGEST * 4096.0;
        assert!(square * largest.points as f64 * unit(&largest) < (1u64 << 63) as f64);
        assert!(LARGEST / GRID * (largest.points as f64) < (1u64 << 62) as f64);
        assert!(LARGEST / GRID * (BATCH as f64) < (1u64 << 53) as f64);
    }
}
