//! Parameters of a clustering, checked once.

use treering::{Error, Result};

/// Parameters of a clustering. All but `iterations` must stay the same over a restart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Number of points of all ranks together.
    pub points: u64,
    /// Coordinates of a point.
    pub dimensions: u32,
    /// Number of centres.
    pub centres: u32,
    /// Seed of the points.
    pub seed: u64,
    /// Number of iterations.
    pub iterations: u64,
}

impl Default for Settings {
    fn default() -> Self {
        Settings { points: 65_536, dimensions: 32, centres: 20, seed: 1, iterations: 500 }
    }
}

impl Settings {
    /// With more points, sums of coordinates would not fit into 63 bits; see `sums`.
    pub const MOST_POINTS: u64 = 1 << 32;

    /// Refuses parameters that cannot be computed with.
    pub fn check(&self) -> Result<()> {
        within("dimensions", self.dimensions.into(), 1, 4096)?;
        within("centres", self.centres.into(), 1, 65_536)?;
        within("points", self.points, self.centres.into(), Self::MOST_POINTS)
    }

    /// Numbers that tell one clustering from another.
    pub fn fingerprint(&self) -> [u64; 4] {
        [self.points, self.dimensions.into(), self.centres.into(), self.seed]
    }

    /// The first point of a rank, and the number of its points: an even share, in the order of ranks.
    pub fn share(&self, rank: u32, ranks: u32) -> (u64, u64) {
        let at = |rank: u32| {
            // At most the number of points.
            (u128::from(self.points) * u128::from(rank) / u128::from(ranks.max(1))) as u64
        };
        (at(rank), at(rank + 1) - at(rank))
    }
}

fn within(what: &str, value: u64, least: u64, most: u64) -> Result<()> {
    match (least..=most).contains(&value) {
        true => Ok(()),
        false => Err(Error::usage(format!(
            "invalid number of {what} {value}: expected {least} to {most}"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_parameters_are_refused_by_name() {
        let good = Settings::default();
        assert!(good.check().is_ok());
        for (bad, word) in [
            (Settings { points: 19, ..good.clone() }, "points 19: expected 20 to"),
            (Settings { points: 1 << 33, ..good.clone() }, "points"),
            (Settings { dimensions: 0, ..good.clone() }, "dimensions"),
            (Settings { centres: 0, ..good.clone() }, "centres"),
        ] {
            assert!(bad.check().unwrap_err().to_string().contains(word), "{bad:?}");
        }
    }

    #[test]
    fn shares_are_even_and_cover_all_points() {
        for (points, ranks) in [(65_536, 8), (100, 7), (5, 8), (Settings::MOST_POINTS, 3)] {
            let settings = Settings { points, ..Settings::default() };
            let mut next = 0;
            for rank in 0..ranks {
                let (first, count) = settings.share(rank, ranks);
                assert_eq!(first, next);
                assert!(count.abs_diff(points / u64::from(ranks)) <= 1);
                next = first + count;
            }
            assert_eq!(next, points);
        }
    }
}
