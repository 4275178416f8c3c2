//! The centre that is nearest to each point, several points at a time.
//!
//! A tile holds some points, axis by axis, so that the same axis of all of them is one vector. Every lane adds the
//! squares in the same order, so that the result for a point does not depend on its place in a tile, nor on the width of
//! the processor's vectors.

/// Points of a tile: four vectors of AVX2, two of AVX-512.
pub(crate) const LANES: usize = 16;

/// The same axis of the points of a tile.
pub(crate) type Lanes = [f64; LANES];

/// The nearest centre of each point of a tile, and the square of the distance. Of equally near centres the first counts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Nearest {
    pub centres: [u64; LANES],
    pub squares: Lanes,
}

/// Instructions of the processor that the search uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Vectors {
    Plain,
    #[cfg(target_arch = "x86_64")]
    Avx2,
    #[cfg(target_arch = "x86_64")]
    Avx512,
}

impl Vectors {
    /// The widest that this processor has.
    pub fn widest() -> Vectors {
        #[cfg(target_arch = "x86_64")]
        {
            if is_x86_feature_detected!("avx512f") {
                return Vectors::Avx512;
            }
            if is_x86_feature_detected!("avx2") {
                return Vectors::Avx2;
            }
        }
        Vectors::Plain
    }

    /// Finds the nearest centres; `tile` has one entry for each axis, `centres` one centre after another.
    pub fn nearest(self, tile: &[Lanes], centres: &[f64]) -> Nearest {
        match self {
            Vectors::Plain => nearest(tile, centres),
            // SAFETY: `widest` makes these where the processor has the instructions, and nobody else does.
            #[cfg(target_arch = "x86_64")]
            Vectors::Avx2 => unsafe { nearest_avx2(tile, centres) },
            // SAFETY: as above.
            #[cfg(target_arch = "x86_64")]
            Vectors::Avx512 => unsafe { nearest_avx512(tile, centres) },
        }
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn nearest_avx2(tile: &[Lanes], centres: &[f64]) -> Nearest {
    nearest(tile, centres)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
fn nearest_avx512(tile: &[Lanes], centres: &[f64]) -> Nearest {
    nearest(tile, centres)
}

#[inline(always)]
fn nearest(tile: &[Lanes], centres: &[f64]) -> Nearest {
    let mut best = Nearest { centres: [0; LANES], squares: [f64::INFINITY; LANES] };
    for (number, centre) in (0..).zip(centres.chunks_exact(tile.len())) {
        let mut squares = [0.0; LANES];
        for (points, at) in tile.iter().zip(centre) {
            for (square, point) in squares.iter_mut().zip(points) {
                let apart = point - at;
                *square += apart * apart;
            }
        }
        let Nearest { centres, squares: least } = &mut best;
        for ((centre, least), square) in centres.iter_mut().zip(least).zip(squares) {
            let nearer = square < *least;
            *least = if nearer { square } else { *least };
            *centre = if nearer { number } else { *centre };
        }
    }
    best
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::points::make_points;
    use proptest::prelude::*;

    fn tile_of(points: &[f64], dimensions: usize) -> Vec<Lanes> {
        let axis = |axis| std::array::from_fn(|lane| points[lane * dimensions + axis]);
        (0..dimensions).map(axis).collect()
    }

    proptest! {
        #[test]
        fn vectors_of_any_width_find_what_a_plain_search_finds(
            seed: u64, dimensions in 1usize..40, count in 1usize..25,
        ) {
            let points = make_points(seed, 0, LANES as u64, dimensions as u32);
            let centres = make_points(seed, 1000, count as u64, dimensions as u32);
            let found = Vectors::widest().nearest(&tile_of(&points, dimensions), &centres);
            prop_assert_eq!(found, Vectors::Plain.nearest(&tile_of(&points, dimensions), &centres));
            for (lane, point) in points.chunks_exact(dimensions).enumerate() {
                let squares = centres.chunks_exact(dimensions).map(|centre| {
                    point.iter().zip(centre).map(|(a, b)| (a - b) * (a - b)).fold(0.0, |a, b| a + b)
                });
                let squares: Vec<f64> = squares.collect();
                let least = squares.iter().copied().fold(f64::INFINITY, f64::min);
                prop_assert_eq!(found.squares[lane], least);
                let first = squares.iter().position(|square| *square == least);
                prop_assert_eq!(Some(found.centres[lane] as usize), first);
            }
        }
    }
}
