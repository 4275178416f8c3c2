//! Fourier transforms of periodic cubes of values, one axis after the other.
//!
//! A transform works along the last axis, where values lie side by side; then the axes are rotated,
//! so that after three rounds each axis had its turn and all stand where they were. Every line is
//! transformed by itself, so the result does not depend on the number of threads.

use rayon::prelude::*;
use rustfft::num_complex::Complex32;
use rustfft::{Fft, FftPlanner};
use std::f64::consts::TAU;
use std::sync::Arc;

/// Values along the last axis that are moved together: a cache line of them.
const LINE: usize = 8;

/// The transforms of cubes of one size.
pub(crate) struct Fourier {
    side: usize,
    forward: Arc<dyn Fft<f32>>,
    inverse: Arc<dyn Fft<f32>>,
    rotated: Vec<Complex32>,
}

impl Fourier {
    pub fn new(side: usize) -> Self {
        let mut planner = FftPlanner::new();
        Fourier {
            side,
            forward: planner.plan_fft_forward(side),
            inverse: planner.plan_fft_inverse(side),
            rotated: vec![Complex32::default(); side.pow(3)],
        }
    }

    /// Values to amplitudes.
    pub fn forward(&mut self, cube: &mut Vec<Complex32>) {
        self.transform(&self.forward.clone(), cube);
    }

    /// Amplitudes to values, times the number of values.
    pub fn inverse(&mut self, cube: &mut Vec<Complex32>) {
        self.transform(&self.inverse.clone(), cube);
    }

    fn transform(&mut self, lines: &Arc<dyn Fft<f32>>, cube: &mut Vec<Complex32>) {
        let plane = self.side * self.side;
        for _axis in 0..3 {
            cube.par_chunks_mut(plane).for_each(|plane| lines.process(plane));
            rotate(cube, &mut self.rotated, self.side);
            std::mem::swap(cube, &mut self.rotated);
        }
    }
}

/// Makes the last axis the first.
fn rotate(from: &[Complex32], to: &mut [Complex32], side: usize) {
    let plane = side * side;
    to.par_chunks_mut(LINE * plane).enumerate().for_each(|(chunk, planes)| {
        let first = chunk * LINE;
        for (row, line) in from.chunks_exact(side).enumerate() {
            let values = &line[first..side.min(first + LINE)];
            for (offset, &value) in values.iter().enumerate() {
                planes[offset * plane + row] = value;
            }
        }
    });
}

/// The wave number of each amplitude along an axis of the unit cube.
pub(crate) fn wave_numbers(side: usize) -> Vec<f64> {
    let signed = |i: usize| if 2 * i > side { i as f64 - side as f64 } else { i as f64 };
    (0..side).map(|i| TAU * signed(i)).collect()
}

/// The wave numbers to take derivatives with: the shortest wave has no direction, and none here.
pub(crate) fn derivative_wave_numbers(side: usize) -> Vec<f64> {
    let mut waves = wave_numbers(side);
    if side.is_multiple_of(2) {
        waves[side / 2] = 0.0;
    }
    waves
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wave_has_one_amplitude_and_comes_back() {
        for side in [6, 8, 9, 20] {
            let angle = |i: usize| {
                let (x, y, z) = (i / side / side, i / side % side, i % side);
                TAU * (x + 2 * y + side * z - 2 * z) as f64 / side as f64
            };
            let wave: Vec<_> = (0..side.pow(3)).map(|i| Complex32::cis(angle(i) as f32)).collect();
            let mut cube = wave.clone();
            let mut fourier = Fourier::new(side);
            fourier.forward(&mut cube);
            let count = side.pow(3) as f32;
            let home = (side + 2) * side + side - 2;
            for (i, amplitude) in cube.iter().enumerate() {
                let expected = if i == home { count } else { 0.0 };
                assert!((amplitude - expected).norm() < 1e-4 * count, "side {side}, {i}");
            }
            fourier.inverse(&mut cube);
            let back = cube.iter().zip(&wave).all(|(a, b)| (a / count - b).norm() < 1e-5);
            assert!(back, "side {side}");
        }
    }

    #[test]
    fn wave_numbers_are_odd_but_for_the_shortest_wave() {
        for side in [7, 8] {
            let waves = derivative_wave_numbers(side);
            (1..side).for_each(|i| assert_eq!(waves[i], -waves[side - i]));
            assert_eq!(wave_numbers(side)[1], TAU);
        }
    }
}
