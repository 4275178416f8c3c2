//! The state: seven arrays with one value for each particle. A particle keeps its index for ever,
//! so that the arrays of two runs can be compared value by value.

use treering::{Variable, VariableMut};

/// The names of the arrays, in the order in which they are handed over.
pub const NAMES: [&str; 7] = ["x", "y", "z", "vx", "vy", "vz", "potential"];

/// Places, velocities and potentials of all particles.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Particles {
    /// The first coordinate, from 0 up to but without 1.
    pub x: Vec<f32>,
    /// The second coordinate.
    pub y: Vec<f32>,
    /// The third coordinate.
    pub z: Vec<f32>,
    /// The velocity along the first axis.
    pub vx: Vec<f32>,
    /// The velocity along the second axis.
    pub vy: Vec<f32>,
    /// The velocity along the third axis.
    pub vz: Vec<f32>,
    /// The potential of all other particles, and of all images, at each particle.
    pub potential: Vec<f32>,
}

impl Particles {
    pub(crate) fn at_origin(count: usize) -> Self {
        let zeros = || vec![0.0; count];
        Particles {
            x: zeros(),
            y: zeros(),
            z: zeros(),
            vx: zeros(),
            vy: zeros(),
            vz: zeros(),
            potential: zeros(),
        }
    }

    /// Their number.
    pub fn len(&self) -> usize {
        self.x.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.x.is_empty()
    }

    /// The arrays in the order of [`NAMES`].
    pub fn arrays(&self) -> [&[f32]; 7] {
        [&self.x, &self.y, &self.z, &self.vx, &self.vy, &self.vz, &self.potential]
    }

    /// The arrays in the order of [`NAMES`], to be filled.
    pub fn arrays_mut(&mut self) -> [&mut [f32]; 7] {
        [
            &mut self.x,
            &mut self.y,
            &mut self.z,
            &mut self.vx,
            &mut self.vy,
            &mut self.vz,
            &mut self.potential,
        ]
    }

    pub(crate) fn variables(&self) -> [Variable<'_>; 7] {
        let mut names = NAMES.iter();
        self.arrays().map(|array| Variable::new(names.next().expect("seven names"), array))
    }

    pub(crate) fn variables_mut(&mut self) -> [VariableMut<'_>; 7] {
        let mut names = NAMES.iter();
        self.arrays_mut().map(|array| VariableMut::new(names.next().expect("seven names"), array))
    }

    /// The place of a particle.
    pub(crate) fn place(&self, index: usize) -> [f32; 3] {
        [self.x[index], self.y[index], self.z[index]]
    }
}

/// Brings a coordinate back into the cube.
pub(crate) fn wrapped(coordinate: f32) -> f32 {
    let inside = coordinate - coordinate.floor();
    // Just below zero the difference rounds to 1, which is the place 0.
    if inside < 1.0 { inside } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn coordinates_come_back_into_the_cube() {
        for (coordinate, inside) in [(0.0, 0.0), (0.75, 0.75), (1.0, 0.0), (-0.25, 0.75)] {
            assert_eq!(wrapped(coordinate), inside);
        }
        for coordinate in [-1e-12, -0.0, 1.0 - f32::EPSILON, 7.3, -7.3, 1e30] {
            assert!((0.0..1.0).contains(&wrapped(coordinate)), "{coordinate}");
        }
    }
}
