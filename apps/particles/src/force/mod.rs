//! The pull of all particles on each: the smooth part from a mesh, the rest from the particles
//! nearby (P³M, Hockney and Eastwood 1988).
//!
//! The law: both together are the gravity of all other particles and of all periodic images,
//! softened at short distances after Plummer, over a background of the opposite mean density. What
//! one particle does to another is done back to it, so momentum is kept but for rounding.

mod block;
mod cells;
mod cloud;
mod long_range;
mod shared_sum;
mod short_range;
mod split;

use crate::{Particles, Settings};
use long_range::LongRange;
use short_range::ShortRange;
use split::Split;
use std::f64::consts::PI;

/// The length below which forces are softened, in cells of the mesh: so small that at the cutoff of
/// the direct sum softening changes 0.13 % of the force, and nothing beyond it.
pub const SOFTENING: f64 = 0.2;

/// The pull on a particle.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Pull {
    /// Along the three axes.
    pub acceleration: [f32; 3],
    /// Of all other particles, and of all images.
    pub potential: f32,
}

/// Computes the pull on each particle, with whatever threads it is called on.
pub(crate) struct Solver {
    long_range: LongRange,
    short_range: ShortRange,
    /// The potential of a particle's own cloud and of the mean density on the mesh.
    own_potential: f32,
}

impl Solver {
    pub fn new(settings: &Settings) -> Self {
        let side = settings.mesh as usize;
        let mass = 1.0 / settings.particles() as f64;
        let softening = SOFTENING / f64::from(settings.mesh);
        let split = Split::of_mesh(side);
        // A cloud's potential at its own centre; and the direct part of the mean density, which
        // the mesh leaves out with the wave k = 0 but the direct sum contains.
        let own_cloud = -mass / (split.scale * PI.sqrt());
        let direct_mean = -4.0 * PI * split.scale * split.scale;
        Solver {
            long_range: LongRange::new(side, mass, split),
            short_range: ShortRange::new(mass, softening, split),
            own_potential: (own_cloud + direct_mean) as f32,
        }
    }

    pub fn pulls(&mut self, particles: &Particles) -> Vec<Pull> {
        let mut pulls = self.long_range.pull(particles);
        self.short_range.add_to(&mut pulls, particles);
        pulls.iter_mut().for_each(|pull| pull.potential -= self.own_potential);
        pulls
    }

    /// The contribution of a rank's particles to the mesh; the sum of all ranks goes to [`Self::pulls_of`].
    pub fn fixed_density(&self, particles: &Particles) -> Vec<u64> {
        self.long_range.fixed_density(particles)
    }

    /// Largest distance of a particle that [`Self::pulls_of`] needs beside those of the rank.
    pub fn reach(&self) -> f64 {
        self.short_range.reach()
    }

    /// The pull on the particles of a rank. `near` begins with them and goes on with all others within
    /// reach, in any order; only its places count.
    pub fn pulls_of(&mut self, density: &[u64], own: &Particles, near: &Particles) -> Vec<Pull> {
        let mut pulls = self.long_range.pull_of(density, own);
        self.short_range.add_nearby(&mut pulls, near);
        pulls.iter_mut().for_each(|pull| pull.potential -= self.own_potential);
        pulls
    }
}
