//! Forces and potentials against a sum over all pairs, images and waves.

use crate::ewald::{length, periodic_pull};
use particles::force::SOFTENING;
use particles::{Particles, Settings, Simulation};

fn simulation(mesh: u32) -> Simulation {
    let settings = Settings { particles_per_side: 4, mesh, threads: 2, ..Settings::default() };
    Simulation::new(&settings).unwrap()
}

/// 64 places without any order in a part of the cube that lies across its edges.
fn scattered(spread: f64) -> Particles {
    let mut particles = simulation(24).particles().clone();
    for index in 0..particles.len() {
        let random = |factor: f64| ((index * index) as f64 * factor).fract();
        let place = |factor: f64| (0.97 + spread * random(factor)).fract() as f32;
        particles.x[index] = place(0.754877666);
        particles.y[index] = place(0.569840291);
        particles.z[index] = place(0.362406135);
    }
    particles
}

fn place(particles: &Particles, index: usize) -> [f64; 3] {
    [particles.x[index], particles.y[index], particles.z[index]].map(f64::from)
}

/// Accelerations and potentials of the reference.
fn expected(particles: &Particles, mesh: u32) -> Vec<([f64; 3], f64)> {
    let mass = 1.0 / particles.len() as f64;
    let softening = SOFTENING / f64::from(mesh);
    let pull = |index: usize| {
        let (mut acceleration, mut potential) = ([0.0; 3], 0.0);
        for other in 0..particles.len() {
            let (here, there) = (place(particles, index), place(particles, other));
            let distance = [0, 1, 2].map(|axis| there[axis] - here[axis]);
            let (felt, deep) = periodic_pull(distance, softening);
            (0..3).for_each(|axis| acceleration[axis] += mass * felt[axis]);
            potential += mass * deep;
        }
        (acceleration, potential)
    };
    (0..particles.len()).map(pull).collect()
}

/// The root mean square of many values.
fn typical(values: impl ExactSizeIterator<Item = f64>) -> f64 {
    let count = values.len() as f64;
    (values.map(|value| value * value).sum::<f64>() / count).sqrt()
}

fn check(spread: f64, mesh: u32) {
    let particles = scattered(spread);
    let expected = expected(&particles, mesh);
    let mut simulation = simulation(mesh);
    simulation.replace(particles).unwrap();
    let both = simulation.pulls().iter().zip(&expected);
    let off = both.clone().map(|(pull, (acceleration, _))| {
        length([0, 1, 2].map(|axis| f64::from(pull.acceleration[axis]) - acceleration[axis]))
    });
    let error = typical(off) / typical(expected.iter().map(|e| length(e.0)));
    // Some tenths of a per cent are what a mesh with a split of 1.25 cells leaves of waves that it
    // cannot tell apart, and what is missing at the cutoff. Spread over the whole cube, the forces
    // of neighbours cancel, but their errors do not.
    let bound = if spread == 1.0 { 0.02 } else { 0.01 };
    assert!(error < bound, "acceleration, spread {spread}, mesh {mesh}: {error}");

    let off = both.map(|(pull, (_, potential))| f64::from(pull.potential) - potential);
    // The potential of a particle's own cloud is taken off again; the mesh gives it with an error of
    // about 1 %, which depends on where in a mesh cell the particle is.
    let own_cloud = f64::from(mesh) / 1.25 / std::f64::consts::PI.sqrt() / expected.len() as f64;
    let error = typical(off) / (typical(expected.iter().map(|e| e.1)) + own_cloud);
    assert!(error < 0.02, "potential, spread {spread}, mesh {mesh}: {error}");
}

#[test]
fn forces_and_potentials_are_those_of_periodic_gravity() {
    for spread in [1.0, 0.3, 0.1, 0.02] {
        [24, 33, 64].into_iter().for_each(|mesh| check(spread, mesh));
    }
}

#[test]
fn a_regular_lattice_is_in_balance() {
    let mut simulation = simulation(32);
    let mut particles = simulation.particles().clone();
    for index in 0..particles.len() {
        particles.x[index] = (index / 16) as f32 / 4.0 + 0.1;
        particles.y[index] = (index / 4 % 4) as f32 / 4.0 + 0.1;
        particles.z[index] = (index % 4) as f32 / 4.0 + 0.1;
    }
    simulation.replace(particles).unwrap();
    // One neighbour alone pulls with 1/64 / (1/4)² = 0.25.
    for pull in simulation.pulls() {
        assert!(pull.acceleration.iter().all(|part| part.abs() < 2.5e-6), "{pull:?}");
    }
}
