//! Steps in time: kick, drift, kick (leapfrog).
//!
//! The accelerations of a state follow from its places alone. So whoever has the seven arrays can
//! go on, and with one thread the way on is the same bit for bit.

use crate::force::{Pull, Solver};
use crate::particles::wrapped;
use crate::{Particles, Settings, start};
use rayon::ThreadPool;
use treering::{Error, Result, Variable, VariableMut};

/// A simulation in progress.
pub struct Simulation {
    settings: Settings,
    threads: ThreadPool,
    solver: Solver,
    particles: Particles,
    /// The pulls on the particles in their places, unless they have been moved from outside.
    pulls: Option<Vec<Pull>>,
}

/// The energy of all particles.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Energy {
    /// Of their motion.
    pub kinetic: f64,
    /// Of their places.
    pub potential: f64,
}

impl Energy {
    /// Quantities that stay the same over time, but for the errors of the steps.
    pub fn total(&self) -> f64 {
        self.kinetic + self.potential
    }
}

impl Simulation {
    /// Makes the first state.
    pub fn new(settings: &Settings) -> Result<Self> {
        settings.check()?;
        let threads = rayon::ThreadPoolBuilder::new()
            .num_threads(settings.threads as usize)
            .build()
            .map_err(|error| Error::usage(format!("cannot start the threads: {error}")))?;
        let per_side = settings.particles_per_side as usize;
        let particles = threads.install(|| start::lattice(per_side, settings.seed));
        let solver = Solver::new(settings);
        let mut simulation =
            Simulation { settings: settings.clone(), threads, solver, particles, pulls: None };
        simulation.pulls();
        Ok(simulation)
    }

    /// Goes on by one time step.
    pub fn step(&mut self) {
        let half = 0.5 * self.settings.timestep;
        self.kick(half);
        self.drift(self.settings.timestep);
        self.kick(half);
    }

    /// The settings it was made with.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The state.
    pub fn particles(&self) -> &Particles {
        &self.particles
    }

    /// The state as variables `x`, `y`, `z`, `vx`, `vy`, `vz` and `potential`.
    pub fn variables(&self) -> [Variable<'_>; 7] {
        self.particles.variables()
    }

    /// The same variables, to be filled with another state; the next step goes on from that.
    pub fn variables_mut(&mut self) -> [VariableMut<'_>; 7] {
        self.pulls = None;
        self.particles.variables_mut()
    }

    /// Puts other particles in the place of these; there must be as many.
    pub fn replace(&mut self, particles: Particles) -> Result<()> {
        let count = self.particles.len();
        if particles.arrays().iter().any(|array| array.len() != count) {
            return Err(Error::usage(format!("each of the seven arrays needs {count} values")));
        }
        self.pulls = None;
        self.particles = particles;
        Ok(())
    }

    /// The pull on each particle in its place.
    pub fn pulls(&mut self) -> &[Pull] {
        let (solver, particles) = (&mut self.solver, &mut self.particles);
        self.pulls.get_or_insert_with(|| {
            for axis in [&mut particles.x, &mut particles.y, &mut particles.z] {
                axis.iter_mut().for_each(|coordinate| *coordinate = wrapped(*coordinate));
            }
            let pulls = self.threads.install(|| solver.pulls(particles));
            let potentials = particles.potential.iter_mut().zip(&pulls);
            potentials.for_each(|(potential, pull)| *potential = pull.potential);
            pulls
        })
    }

    /// The energy of the state.
    pub fn energy(&self) -> Energy {
        let mass = 1.0 / self.particles.len() as f64;
        let Particles { vx, vy, vz, potential, .. } = &self.particles;
        let squares = [vx, vy, vz].map(|v| v.iter().map(|&v| f64::from(v).powi(2)).sum::<f64>());
        let potential: f64 = potential.iter().map(|&p| f64::from(p)).sum();
        // Each pair of particles is in the potential of both.
        Energy {
            kinetic: 0.5 * mass * squares.iter().sum::<f64>(),
            potential: 0.5 * mass * potential,
        }
    }

    /// The momentum of all particles, along the three axes.
    pub fn momentum(&self) -> [f64; 3] {
        let mass = 1.0 / self.particles.len() as f64;
        let Particles { vx, vy, vz, .. } = &self.particles;
        [vx, vy, vz].map(|v| mass * v.iter().map(|&v| f64::from(v)).sum::<f64>())
    }

    fn kick(&mut self, time: f32) {
        self.pulls();
        let pulls = self.pulls.as_deref().unwrap_or_default();
        let Particles { vx, vy, vz, .. } = &mut self.particles;
        for (axis, velocities) in [vx, vy, vz].into_iter().enumerate() {
            for (velocity, pull) in velocities.iter_mut().zip(pulls) {
                *velocity += time * pull.acceleration[axis];
            }
        }
    }

    fn drift(&mut self, time: f32) {
        self.pulls = None;
        let Particles { x, y, z, vx, vy, vz, .. } = &mut self.particles;
        for (coordinates, velocities) in [(x, vx), (y, vy), (z, vz)] {
            for (coordinate, velocity) in coordinates.iter_mut().zip(velocities.iter()) {
                *coordinate = wrapped(*coordinate + time * velocity);
            }
        }
    }
}
