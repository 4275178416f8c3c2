//! The force of the mesh: masses to the mesh, Poisson's equation by Fourier transform, smooth
//! accelerations and potentials back to the particles.
//!
//! In Fourier space the potential is −4π ρ/k², times exp(−k² scale²) for the Gaussian split, and
//! over the window of the cloud once for the way to the mesh and once for the way back. The wave
//! k = 0 is left out: the mean density attracts nobody.

use super::Pull;
use super::cloud::Cloud;
use super::shared_sum::SharedSum;
use super::split::Split;
use crate::Particles;
use crate::fixed::{fixed, real};
use crate::fourier::{Fourier, derivative_wave_numbers, wave_numbers};
use rayon::prelude::*;
use rustfft::num_complex::Complex32;
use std::f64::consts::PI;

/// Particles that a thread takes at a time: few enough that who gets which is open.
const BLOCK: usize = 256;

pub(super) struct LongRange {
    side: usize,
    mass: f64,
    axis: Vec<Wave>,
    fourier: Fourier,
    /// Number of particles at each point of the mesh.
    density: Vec<SharedSum>,
    /// After a solution: the potential, and the acceleration along x times i.
    potential_x: Vec<Complex32>,
    /// After a solution: the acceleration along y, and that along z times i.
    yz: Vec<Complex32>,
}

/// Contribution of a wave along one axis.
#[derive(Clone, Copy)]
struct Wave {
    number: f64,
    derivative: f64,
    /// The split and both windows.
    filter: f64,
}

impl LongRange {
    pub fn new(side: usize, mass: f64, split: Split) -> Self {
        let points = side.pow(3);
        LongRange {
            side,
            mass,
            axis: waves(side, split),
            fourier: Fourier::new(side),
            density: std::iter::repeat_with(SharedSum::default).take(points).collect(),
            potential_x: vec![Complex32::default(); points],
            yz: vec![Complex32::default(); points],
        }
    }

    /// The smooth pull on each particle, its own cloud included.
    pub fn pull(&mut self, particles: &Particles) -> Vec<Pull> {
        self.deposit(particles);
        self.solve();
        self.felt(particles)
    }

    /// Number of particles at each point of the mesh, as sums of [`fixed`] numbers: ranks add
    /// theirs up in any order, modulo 2^64, and get the same bits.
    pub fn fixed_density(&self, particles: &Particles) -> Vec<u64> {
        let mut density = vec![0u64; self.density.len()];
        for index in 0..particles.len() {
            let cloud = Cloud::around(particles.place(index), self.side);
            for (point, share) in cloud.points.into_iter().zip(cloud.shares) {
                density[point] = density[point].wrapping_add_signed(fixed(share.into()));
            }
        }
        density
    }

    /// The smooth pull on each particle of a rank, by the density of all ranks.
    pub fn pull_of(&mut self, density: &[u64], particles: &Particles) -> Vec<Pull> {
        for (sum, density) in self.density.iter_mut().zip(density) {
            sum.clear();
            sum.add(real(density.cast_signed()) as f32);
        }
        self.solve();
        self.felt(particles)
    }

    fn felt(&self, particles: &Particles) -> Vec<Pull> {
        let indices = (0..particles.len()).into_par_iter();
        indices.map(|index| self.gather(particles.place(index))).collect()
    }

    fn deposit(&mut self, particles: &Particles) {
        self.density.par_iter_mut().for_each(SharedSum::clear);
        let blocks = (0..particles.len().div_ceil(BLOCK)).into_par_iter().with_max_len(1);
        blocks.for_each(|block| {
            let end = particles.len().min((block + 1) * BLOCK);
            for index in block * BLOCK..end {
                let cloud = Cloud::around(particles.place(index), self.side);
                for (point, share) in cloud.points.into_iter().zip(cloud.shares) {
                    self.density[point].add(share);
                }
            }
        });
    }

    fn solve(&mut self) {
        let filled = self.potential_x.par_iter_mut().zip(&self.density);
        filled.for_each(|(value, density)| *value = Complex32::new(density.get(), 0.0));
        self.fourier.forward(&mut self.potential_x);
        let (side, axis, mass) = (self.side, &self.axis, self.mass);
        let lines = self.potential_x.par_chunks_mut(side).zip(self.yz.par_chunks_mut(side));
        lines.enumerate().for_each(|(line, (potential_x, yz))| {
            let (x, y) = (axis[line / side], axis[line % side]);
            for ((potential_x, yz), z) in potential_x.iter_mut().zip(yz).zip(axis) {
                let potential = *potential_x * green(mass, [&x, &y, z]) as f32;
                // An acceleration is −i k times the potential. Two real fields travel as one,
                // the second times i.
                *potential_x = potential * (1.0 + x.derivative as f32);
                *yz = potential * Complex32::new(z.derivative as f32, -y.derivative as f32);
            }
        });
        self.fourier.inverse(&mut self.potential_x);
        self.fourier.inverse(&mut self.yz);
    }

    fn gather(&self, place: [f32; 3]) -> Pull {
        let cloud = Cloud::around(place, self.side);
        let mut pull = Pull::default();
        for (point, share) in cloud.points.into_iter().zip(cloud.shares) {
            let (potential_x, yz) = (self.potential_x[point], self.yz[point]);
            pull.potential += share * potential_x.re;
            pull.acceleration[0] += share * potential_x.im;
            pull.acceleration[1] += share * yz.re;
            pull.acceleration[2] += share * yz.im;
        }
        pull
    }
}

fn waves(side: usize, split: Split) -> Vec<Wave> {
    let numbers = wave_numbers(side).into_iter().zip(derivative_wave_numbers(side));
    let wave = |(number, derivative): (f64, f64)| {
        let half_cell = number / side as f64 / 2.0;
        let window = if number == 0.0 { 1.0 } else { (half_cell.sin() / half_cell).powi(2) };
        let filter = (-(number * split.scale).powi(2)).exp() / (window * window);
        Wave { number, derivative, filter }
    };
    numbers.map(wave).collect()
}

/// The potential of a wave of the particles' number; the factors of mesh volume cancel.
fn green(mass: f64, wave: [&Wave; 3]) -> f64 {
    let square: f64 = wave.iter().map(|w| w.number * w.number).sum();
    let filter: f64 = wave.iter().map(|w| w.filter).product();
    if square > 0.0 { -4.0 * PI * mass * filter / square } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::start::lattice;

    #[test]
    fn the_deposit_conserves_mass() {
        let particles = lattice(12, 5);
        let mut mesh = LongRange::new(30, 1.0, Split::of_mesh(30));
        mesh.deposit(&particles);
        mesh.deposit(&particles);
        let mass: f64 = mesh.density.iter().map(|d| f64::from(d.get())).sum();
        // Every share is rounded to 24 bits.
        assert!((mass / particles.len() as f64 - 1.0).abs() < 1e-7, "{mass}");
    }

    #[test]
    fn fixed_densities_of_parts_add_up_to_that_of_all() {
        let particles = lattice(12, 5);
        let mesh = LongRange::new(30, 1.0, Split::of_mesh(30));
        let part = |range: std::ops::Range<usize>| {
            let [x, y, z] =
                [&particles.x, &particles.y, &particles.z].map(|c| c[range.clone()].to_vec());
            mesh.fixed_density(&Particles { x, y, z, ..Particles::default() })
        };
        let (low, high) = (part(0..700), part(700..particles.len()));
        let sum: Vec<u64> = high.iter().zip(&low).map(|(a, b)| a.wrapping_add(*b)).collect();
        assert!(sum == mesh.fixed_density(&particles));
        let mass: f64 = sum.iter().map(|density| real(density.cast_signed())).sum();
        assert!((mass / particles.len() as f64 - 1.0).abs() < 1e-7, "{mass}");
    }

    #[test]
    fn a_wave_of_mass_pulls_towards_its_crests() {
        let side = 24;
        let mut mesh = LongRange::new(side, 1.0 / side.pow(3) as f64, Split::of_mesh(side));
        let wave = |x: usize| (std::f64::consts::TAU * x as f64 / side as f64).cos();
        for (point, density) in mesh.density.iter().enumerate() {
            density.add((1.0 + 0.5 * wave(point / side / side)) as f32);
        }
        mesh.solve();
        let k = std::f64::consts::TAU;
        // The longest wave behind the split and the windows of the cloud.
        let filter = mesh.axis[1].filter;
        for x in 0..side {
            let found = mesh.potential_x[x * side * side];
            let potential = -4.0 * PI * 0.5 * wave(x) * filter / (k * k);
            assert!((f64::from(found.re) - potential).abs() < 1e-6);
            let sine = (k * x as f64 / side as f64).sin();
            let acceleration = -4.0 * PI * 0.5 * sine * filter / k;
            assert!((f64::from(found.im) - acceleration).abs() < 1e-6);
        }
    }
}
