//! The split of a force between the mesh and the direct sum.
//!
//! The mesh sees each particle as a Gaussian cloud of width σ = √2 `scale` and gives the smooth
//! force between a cloud and a point; the direct sum adds what is missing to the softened force
//! between two points. Far away nothing is missing, so the direct sum ends at a cutoff.
//!
//! With w = (r / 2 scale)², the smooth potential of a unit mass is −g(w) / 2 scale and its force is
//! h(w) / 8 scale³ times the distance vector, where g(w) = erf(√w)/√w and h = −2 g′ are smooth at
//! w = 0 too. A polynomial in r² stands in for each (as in HACC), so that the inner loop has neither
//! branches nor tables.

use std::f64::consts::PI;

/// The scale of the split in cells of the mesh: the mesh cannot follow anything sharper.
const SCALE: f64 = 1.25;

/// The cutoff in scales; there 0.17 % of the force between two points is missing.
const REACH: f64 = 5.5;

/// Enough for errors of 1e-6 of the smooth force at its steepest.
const TERMS: usize = 14;

/// The lengths of the split.
#[derive(Clone, Copy)]
pub(super) struct Split {
    /// Where the mesh takes over from the direct sum.
    pub scale: f64,
    /// Where the direct sum ends.
    pub cutoff: f64,
}

impl Split {
    pub fn of_mesh(cells: usize) -> Self {
        let scale = SCALE / cells as f64;
        Split { scale, cutoff: REACH * scale }
    }

    /// The smooth force between two unit masses over their distance, by the distance's square.
    pub fn smooth_force(self) -> Polynomial {
        let factor = 1.0 / (8.0 * self.scale.powi(3));
        self.fit(|w| factor * 4.0 / PI.sqrt() * series(w, 3))
    }

    /// Minus the smooth potential of a unit mass, by the distance's square.
    pub fn smooth_potential(self) -> Polynomial {
        let factor = 1.0 / (2.0 * self.scale);
        self.fit(|w| factor * 2.0 / PI.sqrt() * series(w, 1))
    }

    fn fit(self, of_w: impl Fn(f64) -> f64) -> Polynomial {
        let square = self.cutoff * self.cutoff;
        let per_square = 1.0 / (2.0 * self.scale).powi(2);
        let coefficients = fit(|t| of_w(per_square * square * (t + 1.0) / 2.0));
        Polynomial { per_square: (2.0 / square) as f32, coefficients }
    }
}

/// Σ (−w)ⁿ / (n! (2n + first)); the terms fall fast for the arguments within the cutoff.
fn series(w: f64, first: u32) -> f64 {
    let (mut sum, mut power) = (0.0, 1.0);
    for n in 0..60 {
        sum += power / f64::from(2 * n + first);
        power *= -w / f64::from(n + 1);
    }
    sum
}

/// A function of the square of a distance, up to the cutoff.
#[derive(Clone, Copy)]
pub(super) struct Polynomial {
    per_square: f32,
    coefficients: [f32; TERMS],
}

impl Polynomial {
    #[inline(always)]
    pub fn at(&self, square: f32) -> f32 {
        let t = square * self.per_square - 1.0;
        let highest = self.coefficients[TERMS - 1];
        self.coefficients[..TERMS - 1].iter().rev().fold(highest, |value, c| value * t + c)
    }
}

/// The polynomial through a function on −1..1 at the Chebyshev nodes, by powers of t.
fn fit(function: impl Fn(f64) -> f64) -> [f32; TERMS] {
    let angle = |node: usize| PI * (node as f64 + 0.5) / TERMS as f64;
    let mut powers = [0.0; TERMS];
    let (mut before, mut chebyshev) = ([0.0; TERMS], [0.0; TERMS]);
    chebyshev[0] = 1.0;
    for order in 0..TERMS {
        let weight = if order == 0 { 1.0 } else { 2.0 } / TERMS as f64;
        let nodes = (0..TERMS).map(angle);
        let sum: f64 = nodes.map(|a| function(a.cos()) * (order as f64 * a).cos()).sum();
        powers.iter_mut().zip(chebyshev).for_each(|(power, c)| *power += weight * sum * c);
        let after = next_chebyshev(order, &before, &chebyshev);
        (before, chebyshev) = (chebyshev, after);
    }
    powers.map(|power| power as f32)
}

/// T(n+1) = 2 t T(n) − T(n−1), but T(1) = t T(0).
fn next_chebyshev(order: usize, before: &[f64; TERMS], now: &[f64; TERMS]) -> [f64; TERMS] {
    let factor = if order == 0 { 1.0 } else { 2.0 };
    let lower = |power: usize| power.checked_sub(1).map_or(0.0, |p| now[p]);
    std::array::from_fn(|power| factor * lower(power) - before[power])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_polynomials_follow_the_smooth_force_and_potential() {
        let split = Split::of_mesh(64);
        let (force, potential) = (split.smooth_force(), split.smooth_potential());
        let per_scale = 1.0 / (2.0 * split.scale);
        for i in 0..=1000 {
            let r = split.cutoff * f64::from(i) / 1000.0;
            let w = (r * per_scale).powi(2);
            let exact = per_scale.powi(3) * 4.0 / PI.sqrt() * series(w, 3);
            let off = (f64::from(force.at((r * r) as f32)) - exact).abs();
            assert!(off < 1e-6 * per_scale.powi(3), "force {r}: {off} of {exact}");
            let exact = per_scale * 2.0 / PI.sqrt() * series(w, 1);
            let off = (f64::from(potential.at((r * r) as f32)) - exact).abs();
            assert!(off < 1e-6 * per_scale, "potential {r}: {off} of {exact}");
        }
    }

    #[test]
    fn at_the_cutoff_hardly_anything_is_missing() {
        let split = Split::of_mesh(64);
        let square = (split.cutoff * split.cutoff) as f32;
        let force = f64::from(split.smooth_force().at(square)) * split.cutoff.powi(3);
        assert!((0.998..1.0).contains(&force), "{force}");
        let potential = f64::from(split.smooth_potential().at(square)) * split.cutoff;
        assert!((0.9998..1.0).contains(&potential), "{potential}");
    }
}
