//! The first state: a lattice, displaced by a random field that is about to collapse.
//!
//! As in cosmology (Zel'dovich 1970), the displacement is the gradient of a Gaussian random field,
//! and the velocities are those of its growing mode: in a cube of mean density 1 that does not
//! expand, small displacements grow as exp(t √4π). The seed tells every bit of the state.

mod random;

use crate::fourier::{Fourier, derivative_wave_numbers};
use crate::particles::{Particles, wrapped};
use random::Random;
use rustfft::num_complex::Complex32;
use std::f64::consts::PI;

/// The root mean square of the displacements, in spacings of the lattice.
const DISPLACEMENT: f64 = 0.35;

/// The density varies over waves of wave number k with a power of k to this.
const SLOPE: f64 = -1.5;

/// Places and velocities of `per_side`³ particles; their potentials are left at zero.
pub fn lattice(per_side: usize, seed: u64) -> Particles {
    let displacements = displacements(per_side, seed);
    let mut particles = Particles::at_origin(per_side.pow(3));
    let growth = (4.0 * PI).sqrt();
    let site = |index: usize, axis: u32| {
        let along = index / per_side.pow(2 - axis) % per_side;
        (along as f64 + 0.5) / per_side as f64
    };
    for (index, moved) in displacements.iter().enumerate() {
        particles.x[index] = wrapped((site(index, 0) + moved[0]) as f32);
        particles.y[index] = wrapped((site(index, 1) + moved[1]) as f32);
        particles.z[index] = wrapped((site(index, 2) + moved[2]) as f32);
        particles.vx[index] = (growth * moved[0]) as f32;
        particles.vy[index] = (growth * moved[1]) as f32;
        particles.vz[index] = (growth * moved[2]) as f32;
    }
    particles
}

/// Distance that each site of the lattice moves, along each axis.
fn displacements(per_side: usize, seed: u64) -> Vec<[f64; 3]> {
    let mut random = Random::new(seed);
    let noise = || Complex32::new(random.normal() as f32, 0.0);
    let mut xy: Vec<Complex32> = std::iter::repeat_with(noise).take(per_side.pow(3)).collect();
    let mut fourier = Fourier::new(per_side);
    fourier.forward(&mut xy);
    let mut z = xy.clone();
    let waves = derivative_wave_numbers(per_side);
    for (index, (xy, z)) in xy.iter_mut().zip(&mut z).enumerate() {
        let wave = [index / per_side / per_side, index / per_side % per_side, index % per_side];
        let [kx, ky, kz] = wave.map(|i| waves[i]);
        let square = kx * kx + ky * ky + kz * kz;
        let scale = if square > 0.0 { square.powf(SLOPE / 4.0) / square } else { 0.0 };
        // Two real fields travel as one: the amplitudes of x, and those of y times i.
        *xy *= Complex32::new((-ky * scale) as f32, (kx * scale) as f32);
        *z *= Complex32::new(0.0, (kz * scale) as f32);
    }
    fourier.inverse(&mut xy);
    fourier.inverse(&mut z);
    let raw = xy.iter().zip(&z).map(|(xy, z)| [xy.re, xy.im, z.re].map(f64::from));
    scaled(raw.collect(), DISPLACEMENT / per_side as f64)
}

/// Gives the vectors the root mean square length that is asked for.
fn scaled(mut vectors: Vec<[f64; 3]>, length: f64) -> Vec<[f64; 3]> {
    let squares: f64 = vectors.iter().flatten().map(|part| part * part).sum();
    let factor = match squares > 0.0 {
        true => length / (squares / vectors.len() as f64).sqrt(),
        false => 0.0, // Two sites a side carry no wave with a direction.
    };
    vectors.iter_mut().flatten().for_each(|part| *part *= factor);
    vectors
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_seed_tells_the_state() {
        assert_eq!(lattice(10, 7), lattice(10, 7));
        assert_ne!(lattice(10, 7), lattice(10, 8));
    }

    #[test]
    fn displacements_have_the_length_asked_for_and_no_drift() {
        for per_side in [7, 12] {
            let moved = displacements(per_side, 3);
            let squares: f64 = moved.iter().flatten().map(|part| part * part).sum();
            let length = (squares / moved.len() as f64).sqrt() * per_side as f64;
            assert!((length - DISPLACEMENT).abs() < 1e-9);
            for axis in 0..3 {
                let drift = moved.iter().map(|m| m[axis]).sum::<f64>() / moved.len() as f64;
                assert!(drift.abs() < 1e-7, "{drift}");
            }
        }
    }

    #[test]
    fn the_smallest_lattice_is_just_a_lattice() {
        let particles = lattice(2, 1);
        assert!(particles.x.iter().all(|x| [0.25, 0.75].contains(x)));
        assert!(particles.vx.iter().all(|&v| v == 0.0));
    }
}
