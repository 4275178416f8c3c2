//! Quantities that gravity keeps: momentum, and energy up to the error of the steps.

use particles::{Settings, Simulation};

fn settings(timestep: f32) -> Settings {
    Settings { particles_per_side: 12, mesh: 24, threads: 2, timestep, ..Settings::default() }
}

#[test]
fn momentum_stays_zero() {
    let mut simulation = Simulation::new(&settings(0.025)).unwrap();
    (0..40).for_each(|_| simulation.step());
    let speed = (2.0 * simulation.energy().kinetic).sqrt();
    // Velocities and sums of forces are rounded to 24 bits in each of 80 kicks. If all errors of a
    // particle agreed, that would be some 5e-6; but they have no direction, and average out.
    for part in simulation.momentum() {
        assert!(part.abs() < 1e-6 * speed, "{part} of {speed}");
    }
}

#[test]
fn energy_stays_while_clumps_collapse() {
    let mut simulation = Simulation::new(&settings(0.005)).unwrap();
    let before = simulation.energy();
    (0..160).for_each(|_| simulation.step());
    let after = simulation.energy();
    // It is a collapse: sixty times as much energy is in motion.
    assert!(after.kinetic > 30.0 * before.kinetic, "{before:?} {after:?}");
    let drift = (after.total() - before.total()).abs() / after.kinetic;
    // Steps a fifth as long as usual, so that the error of the forces would show: it is 0.03 %.
    assert!(drift < 0.002, "{drift}: {before:?} {after:?}");
}
