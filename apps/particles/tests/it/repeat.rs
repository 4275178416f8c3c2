//! The same simulation twice: equal bits with one thread, and with two a difference that is small
//! at first.

use particles::{Particles, Settings, Simulation};

fn settings(threads: u32) -> Settings {
    Settings { particles_per_side: 16, mesh: 32, threads, ..Settings::default() }
}

fn after(steps: u32, settings: &Settings) -> Simulation {
    let mut simulation = Simulation::new(settings).unwrap();
    (0..steps).for_each(|_| simulation.step());
    simulation
}

fn bits(particles: &Particles) -> Vec<u32> {
    particles.arrays().into_iter().flatten().map(|value| value.to_bits()).collect()
}

#[test]
fn one_thread_gives_equal_bits() {
    let once = bits(after(10, &settings(1)).particles());
    assert!(once == bits(after(10, &settings(1)).particles()));
}

#[test]
fn the_first_places_do_not_depend_on_the_threads() {
    let one = after(0, &settings(1));
    let many = after(0, &settings(3));
    for (a, b) in one.particles().arrays().iter().zip(many.particles().arrays()).take(6) {
        assert!(a.iter().zip(b).all(|(a, b)| a.to_bits() == b.to_bits()));
    }
}

#[test]
fn the_seed_makes_another_simulation() {
    let other = Settings { seed: 2, ..settings(1) };
    assert!(after(0, &settings(1)).particles() != after(0, &other).particles());
}

#[test]
fn two_threads_part() {
    let first = bits(after(10, &settings(2)).particles());
    // At the default size every pair parts; a busy machine may keep the order of a small one.
    let mut others = (0..20).map(|_| bits(after(10, &settings(2)).particles()));
    assert!(others.any(|other| other != first));
}

#[test]
fn two_threads_stay_close_at_first() {
    let (one, two) = (after(10, &settings(1)), after(10, &settings(2)));
    for axis in 0..3 {
        let pairs = one.particles().arrays()[axis].iter().zip(two.particles().arrays()[axis]);
        // The way around the cube may be the shorter one.
        let apart = pairs.map(|(a, b)| (a - b).abs().min(1.0 - (a - b).abs()));
        let largest = apart.fold(0.0, f32::max);
        assert!(largest < 1e-5, "{largest}");
    }
    let (a, b) = (one.energy(), two.energy());
    assert!((a.kinetic - b.kinetic).abs() < 1e-5 * a.kinetic, "{a:?} {b:?}");
    assert!((a.potential - b.potential).abs() < 1e-5 * a.potential.abs(), "{a:?} {b:?}");
}
