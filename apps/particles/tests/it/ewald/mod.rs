//! Gravity in a periodic cube summed without a mesh (Ewald 1921), in double precision, as the
//! reference: real and Fourier sums so long that what is left out is below 1e-9.

use std::f64::consts::{PI, TAU};

/// Splits the sums so that images up to 2 cubes away and waves up to 5 a side suffice.
const ALPHA: f64 = 2.0;
const IMAGES: i32 = 2;
const WAVES: i32 = 5;

/// The effect of a particle of unit mass and all its images at a distance: the acceleration and the
/// potential, without the particle itself where the distance is zero.
pub fn periodic_pull(distance: [f64; 3], softening: f64) -> ([f64; 3], f64) {
    let (mut acceleration, mut potential) = ([0.0; 3], PI / ALPHA.powi(2));
    for image in cube(IMAGES) {
        let d = [0, 1, 2].map(|axis| distance[axis] + f64::from(image[axis]));
        let r = length(d);
        if r == 0.0 {
            potential += 2.0 * ALPHA / PI.sqrt();
            continue;
        }
        let screened = 1.0 - erf(ALPHA * r);
        let slope = 2.0 * ALPHA / PI.sqrt() * (-(ALPHA * r).powi(2)).exp();
        let soft = (r * r + softening * softening).sqrt();
        let force = screened / r.powi(3) + slope / r.powi(2) + (soft.powi(-3) - r.powi(-3));
        potential -= screened / r + (1.0 / soft - 1.0 / r);
        (0..3).for_each(|axis| acceleration[axis] += force * d[axis]);
    }
    for wave in cube(WAVES).filter(|wave| *wave != [0; 3]) {
        let k = wave.map(|i| TAU * f64::from(i));
        let square = length(k).powi(2);
        let strength = 4.0 * PI / square * (-square / (4.0 * ALPHA * ALPHA)).exp();
        let phase: f64 = k.iter().zip(distance).map(|(k, d)| k * d).sum();
        potential -= strength * phase.cos();
        (0..3).for_each(|axis| acceleration[axis] += strength * k[axis] * phase.sin());
    }
    (acceleration, potential)
}

pub fn length(vector: [f64; 3]) -> f64 {
    vector.iter().map(|part| part * part).sum::<f64>().sqrt()
}

fn cube(reach: i32) -> impl Iterator<Item = [i32; 3]> {
    let range = -reach..=reach;
    let plane = move |x| range.clone().flat_map(move |y| (-reach..=reach).map(move |z| [x, y, z]));
    (-reach..=reach).flat_map(plane)
}

/// A series of positive terms only, so that nothing cancels.
fn erf(x: f64) -> f64 {
    let (mut term, mut sum) = (x, 0.0);
    for n in 1..400 {
        sum += term;
        term *= 2.0 * x * x / f64::from(2 * n + 1);
    }
    2.0 / PI.sqrt() * (-x * x).exp() * sum
}

#[test]
fn the_reference_knows_the_constant_of_the_simple_cubic_lattice() {
    let (acceleration, potential) = periodic_pull([0.0; 3], 0.0);
    assert!(length(acceleration) < 1e-12);
    assert!((potential - 2.837297479).abs() < 1e-8, "{potential}");
}
