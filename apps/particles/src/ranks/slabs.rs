//! Which rank has which part of the cube.

use treering::Rank;

/// The cube, cut into slabs of equal width along the first axis.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slabs {
    count: u32,
}

impl Slabs {
    pub fn new(ranks: u32) -> Self {
        Slabs { count: ranks.max(1) }
    }

    /// The rank whose slab has a coordinate.
    pub fn home(self, x: f32) -> Rank {
        Rank(((f64::from(x) * f64::from(self.count)) as u32).min(self.count - 1))
    }

    /// The other ranks whose slabs are within reach of a coordinate, around the cube.
    pub fn near(self, x: f32, reach: f64) -> impl Iterator<Item = Rank> {
        let home = self.home(x);
        let half = 0.5 / f64::from(self.count);
        (0..self.count).map(Rank).filter(move |rank| {
            let centre = 2.0 * half * f64::from(rank.0) + half;
            let apart = (f64::from(x) - centre).abs();
            *rank != home && apart.min(1.0 - apart) - half <= reach
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The distance of a coordinate from a slab, by looking at many places in the slab.
    fn distance(x: f32, rank: Rank, count: u32) -> f64 {
        let places =
            (0..=200).map(|i| (f64::from(rank.0) + f64::from(i) / 200.0) / f64::from(count));
        let apart = places.map(|place| (f64::from(x) - place).abs());
        apart.map(|apart| apart.min(1.0 - apart)).fold(1.0, f64::min)
    }

    #[test]
    fn every_place_has_one_home_and_all_slabs_within_reach() {
        for count in [1, 2, 3, 5, 8] {
            let slabs = Slabs::new(count);
            for x in (0..1000).map(|i| i as f32 / 1000.0).chain([1.0 - f32::EPSILON / 2.0]) {
                let home = slabs.home(x);
                assert!(home.0 < count && distance(x, home, count) < 0.01);
                let near: Vec<Rank> = slabs.near(x, 0.23).collect();
                for rank in (0..count).map(Rank).filter(|rank| *rank != home) {
                    let apart = distance(x, rank, count);
                    assert!(near.contains(&rank) || apart > 0.229, "{x} {rank} of {count}");
                    assert!(!near.contains(&rank) || apart < 0.24, "{x} {rank} of {count}");
                }
                assert!(!near.contains(&home));
            }
        }
    }
}
