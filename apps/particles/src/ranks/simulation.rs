//! One rank's end of a simulation: the steps of `Simulation`, with particles that come and go.

use super::exchange::{hand_over, nearby};
use super::slabs::Slabs;
use crate::fixed::{fixed, real};
use crate::force::{Pull, Solver};
use crate::particles::wrapped;
use crate::{Energy, NAMES, Particles, Settings, start};
use rayon::ThreadPool;
use std::sync::Arc;
use treering::{Comm, Error, ErrorKind, Rank, Reduction, Result, VariableMut};
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// Particles of one rank, in the order of their numbers.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OwnParticles {
    /// The index of each particle in the first state of all ranks.
    pub ids: Vec<u32>,
    /// Their places, velocities and potentials.
    pub particles: Particles,
}

impl OwnParticles {
    /// Their number.
    pub fn len(&self) -> usize {
        self.ids.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }

    /// All arrays, which get the length of what they are filled with.
    pub(super) fn variables_mut(&mut self) -> Vec<VariableMut<'_>> {
        let Particles { x, y, z, vx, vy, vz, potential } = &mut self.particles;
        let arrays = NAMES.into_iter().zip([x, y, z, vx, vy, vz, potential]);
        let arrays = arrays.map(|(name, array)| VariableMut::growing(name, array));
        arrays.chain([VariableMut::growing("id", &mut self.ids)]).collect()
    }

    /// A number and the values in the order of [`NAMES`](crate::NAMES).
    pub(super) fn particle(&self, index: usize) -> (u32, [f32; 7]) {
        (self.ids[index], self.particles.arrays().map(|array| array[index]))
    }

    pub(super) fn push(&mut self, id: u32, values: [f32; 7]) {
        self.ids.push(id);
        let Particles { x, y, z, vx, vy, vz, potential } = &mut self.particles;
        for (array, value) in [x, y, z, vx, vy, vz, potential].into_iter().zip(values) {
            array.push(value);
        }
    }

    pub(super) fn sort(&mut self) {
        if self.ids.is_sorted() {
            return;
        }
        let mut order: Vec<usize> = (0..self.len()).collect();
        order.sort_unstable_by_key(|&index| self.ids[index]);
        let mut sorted = OwnParticles::default();
        for index in order {
            let (id, values) = self.particle(index);
            sorted.push(id, values);
        }
        *self = sorted;
    }

    /// All bits, array after array, the numbers first.
    pub fn bytes(&self) -> Vec<u8> {
        let values = self.particles.arrays().into_iter().flatten().map(|value| value.to_bits());
        self.ids.iter().copied().chain(values).flat_map(u32::to_le_bytes).collect()
    }

    fn from_bytes(bytes: &[u8]) -> OwnParticles {
        let word = |bytes: &[u8]| u32::from_le_bytes(bytes.try_into().unwrap_or_default());
        let words: Vec<u32> = bytes.chunks_exact(4).map(word).collect();
        let count = words.len() / 8;
        let mut own = OwnParticles::default();
        for index in 0..count {
            let value = |array: usize| f32::from_bits(words[(array + 1) * count + index]);
            own.push(words[index], std::array::from_fn(value));
        }
        own
    }
}

/// A rank's end of a simulation in progress. All calls but those of `settings` and `own` are
/// collective.
pub struct RankSimulation {
    settings: Settings,
    comm: Arc<dyn Comm>,
    slabs: Slabs,
    threads: ThreadPool,
    solver: Solver,
    own: OwnParticles,
    /// The pulls on the particles in their places.
    pulls: Vec<Pull>,
}

impl RankSimulation {
    /// Makes the first state, which is that of [`Simulation`](crate::Simulation).
    pub fn new(settings: &Settings, comm: Arc<dyn Comm>) -> Result<Self> {
        let mut simulation = Self::empty(settings, comm)?;
        let per_side = settings.particles_per_side as usize;
        let all = simulation.threads.install(|| start::lattice(per_side, settings.seed));
        let own = simulation.comm.rank();
        for index in (0..all.len()).filter(|&at| simulation.slabs.home(all.x[at]) == own) {
            simulation.own.push(index as u32, all.arrays().map(|array| array[index]));
        }
        simulation.feel()?;
        Ok(simulation)
    }

    /// Goes on from particles of which each rank brings some, whose slabs may be anywhere.
    pub fn with(settings: &Settings, comm: Arc<dyn Comm>, brought: OwnParticles) -> Result<Self> {
        let mut simulation = Self::empty(settings, comm)?;
        simulation.replace(brought)?;
        Ok(simulation)
    }

    fn empty(settings: &Settings, comm: Arc<dyn Comm>) -> Result<Self> {
        settings.check()?;
        let threads = rayon::ThreadPoolBuilder::new()
            .num_threads(settings.threads as usize)
            .build()
            .map_err(|error| Error::usage(format!("cannot start the threads: {error}")))?;
        let (slabs, solver) = (Slabs::new(comm.size()), Solver::new(settings));
        let (own, pulls, settings) = (OwnParticles::default(), Vec::new(), settings.clone());
        Ok(RankSimulation { settings, comm, slabs, threads, solver, own, pulls })
    }

    /// Goes on by one time step: kick, drift, kick.
    pub fn step(&mut self) -> Result<()> {
        let half = 0.5 * self.settings.timestep;
        self.kick(half);
        self.drift(self.settings.timestep);
        hand_over(&*self.comm, self.slabs, &mut self.own)?;
        self.feel()?;
        self.kick(half);
        Ok(())
    }

    /// The settings it was made with.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The ranks.
    pub fn comm(&self) -> &Arc<dyn Comm> {
        &self.comm
    }

    /// The particles of this rank.
    pub fn own(&self) -> &OwnParticles {
        &self.own
    }

    /// Goes on from other particles: each rank brings some of them, whose slabs may be anywhere.
    pub fn replace(&mut self, brought: OwnParticles) -> Result<()> {
        self.own = brought;
        hand_over(&*self.comm, self.slabs, &mut self.own)?;
        let counts = self.counts()?;
        let (found, wanted) = (counts.iter().sum::<u64>(), self.settings.particles() as u64);
        if found != wanted {
            let what = format!("the ranks brought {found} particles, but there are {wanted}");
            return Err(Error::new(ErrorKind::Mismatch, what));
        }
        self.feel()
    }

    /// Number of particles of each rank.
    pub fn counts(&self) -> Result<Vec<u64>> {
        let mut counts = vec![0; self.comm.size() as usize];
        counts[self.comm.rank().0 as usize] = self.own.len() as u64;
        self.comm.reduce(Reduction::Sum, &mut counts)?;
        Ok(counts)
    }

    /// The particles of all ranks, in the order of their numbers, on rank 0; none elsewhere.
    pub fn gather(&self) -> Result<Option<OwnParticles>> {
        let parts = self.comm.gather(Rank(0), &self.own.bytes())?;
        if self.comm.rank() != Rank(0) {
            return Ok(None);
        }
        let mut all = OwnParticles::default();
        for part in parts.iter().map(|bytes| OwnParticles::from_bytes(bytes)) {
            (0..part.len()).map(|index| part.particle(index)).for_each(|(id, v)| all.push(id, v));
        }
        all.sort();
        Ok(Some(all))
    }

    /// A digest of the particles of all ranks that does not depend on which rank has which. Every particle counts once.
    pub fn digest(&self) -> Result<u64> {
        let of = |index: usize| {
            let (id, values) = self.own.particle(index);
            let mut bytes = [0; 28];
            for (place, value) in bytes.as_chunks_mut::<4>().0.iter_mut().zip(values) {
                *place = value.to_le_bytes();
            }
            xxh3_64_with_seed(&bytes, id.into())
        };
        let mut sum = [(0..self.own.len()).map(of).fold(0, u64::wrapping_add)];
        self.comm.reduce(Reduction::Sum, &mut sum)?;
        Ok(sum[0])
    }

    /// The energy of the particles of all ranks.
    pub fn energy(&self) -> Result<Energy> {
        let Particles { vx, vy, vz, potential, .. } = &self.own.particles;
        // Sums over all particles need more room in front of the point than pulls.
        const ROOM: f64 = 64.0;
        let square = |v: &f32| fixed(f64::from(*v).powi(2) / ROOM);
        let squares: i64 = [vx, vy, vz].into_iter().flatten().map(square).sum();
        let potentials: i64 = potential.iter().map(|p| fixed(f64::from(*p) / ROOM)).sum();
        let mut sums = [squares.cast_unsigned(), potentials.cast_unsigned()];
        self.comm.reduce(Reduction::Sum, &mut sums)?;
        let [squares, potentials] = sums.map(|sum| ROOM * real(sum.cast_signed()));
        // Each pair of particles is in the potential of both.
        let half_mass = 0.5 / self.settings.particles() as f64;
        Ok(Energy { kinetic: half_mass * squares, potential: half_mass * potentials })
    }

    /// The pulls on the particles of this rank in their places.
    pub fn pulls(&self) -> &[Pull] {
        &self.pulls
    }

    /// Computes the pulls; only this thread talks to other ranks, whoever computes.
    fn feel(&mut self) -> Result<()> {
        let (comm, own) = (&*self.comm, &mut self.own.particles);
        let mut density = self.solver.fixed_density(own);
        comm.reduce(Reduction::Sum, &mut density)?;
        let near = nearby(comm, self.slabs, self.solver.reach(), own)?;
        let solver = &mut self.solver;
        self.pulls = self.threads.install(|| solver.pulls_of(&density, own, &near));
        for (potential, pull) in own.potential.iter_mut().zip(&self.pulls) {
            *potential = pull.potential;
        }
        Ok(())
    }

    fn kick(&mut self, time: f32) {
        let Particles { vx, vy, vz, .. } = &mut self.own.particles;
        for (axis, velocities) in [vx, vy, vz].into_iter().enumerate() {
            for (velocity, pull) in velocities.iter_mut().zip(&self.pulls) {
                *velocity += time * pull.acceleration[axis];
            }
        }
    }

    fn drift(&mut self, time: f32) {
        let Particles { x, y, z, vx, vy, vz, .. } = &mut self.own.particles;
        for (coordinates, velocities) in [(x, vx), (y, vy), (z, vz)] {
            for (coordinate, velocity) in coordinates.iter_mut().zip(velocities.iter()) {
                *coordinate = wrapped(*coordinate + time * velocity);
            }
        }
    }
}
