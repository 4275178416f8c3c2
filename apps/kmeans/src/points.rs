//! Points from a seed: each coordinate is a function of the seed and the number of the point alone, so that any rank
//! can make any point and compare it with what came back.
//!
//! The numbers are those of SplitMix64 (Steele, Lea, Flood 2014), which can be computed at any place of the sequence. A
//! point is one of 32 random places plus much more noise: the clusters overlap, and with many points it takes hundreds of
//! iterations until no point changes its centre.
//!
//! Law: coordinates are multiples of [`GRID`] between −[`LARGEST`] and [`LARGEST`].

/// Coordinates are multiples of this.
pub const GRID: f64 = 1.0 / (1u64 << 26) as f64;
/// No coordinate is larger, nor is its opposite.
pub const LARGEST: f64 = 1.125;

/// The number of random places that points gather around.
const PLACES: u64 = 32;

/// Number `at` of the sequence of a seed.
pub(crate) fn random(seed: u64, at: u64) -> u64 {
    let mut z = seed.wrapping_add(at.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15));
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// Multiples of the grid between −1/2 and 1/2.
fn centred(number: u64) -> i64 {
    (number >> 38) as i64 - (1 << 25)
}

/// Appends the coordinates of a point.
pub fn push_point(seed: u64, point: u64, dimensions: u32, to: &mut Vec<f64>) {
    let (homes, noise) = (random(seed, 0), random(seed, 1));
    let home = random(homes, PLACES + point) % PLACES;
    for axis in 0..u64::from(dimensions) {
        let at = point.wrapping_mul(dimensions.into()).wrapping_add(axis);
        let number = random(noise, at);
        let place = centred(random(random(homes, home), axis));
        let grids = place / 4 + centred(number) + centred(number << 26);
        to.push(grids as f64 * GRID);
    }
}

/// The coordinates of `count` points from `first` on, one point after another.
pub fn make_points(seed: u64, first: u64, count: u64, dimensions: u32) -> Vec<f64> {
    let mut all = Vec::with_capacity(count as usize * dimensions as usize);
    (first..first + count).for_each(|point| push_point(seed, point, dimensions, &mut all));
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sequence_is_that_of_the_reference_program() {
        let expected = [6457827717110365317, 3203168211198807973, 9817491932198370423];
        assert_eq!([0, 1, 2].map(|at| random(1234567, at)), expected);
    }

    #[test]
    fn points_lie_on_the_grid_and_do_not_depend_on_where_they_are_made() {
        let all = make_points(7, 0, 1000, 5);
        assert_eq!(all.len(), 5000);
        assert!(all.iter().all(|x| x.abs() <= LARGEST && (x / GRID).fract() == 0.0));
        assert_eq!(all[5 * 600..5 * 700], make_points(7, 600, 100, 5));
        assert_ne!(all, make_points(8, 0, 1000, 5));
        let mean = all.iter().sum::<f64>() / 5000.0;
        let variance = all.iter().map(|x| x * x).sum::<f64>() / 5000.0;
        // Two uniform numbers of variance 1/12, and a quarter of one.
        assert!(mean.abs() < 0.05 && (variance - 0.172).abs() < 0.02, "{mean} {variance}");
    }
}
