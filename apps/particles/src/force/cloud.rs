//! Cloud in cell: a particle is a cube of the size of a mesh cell, shared between the eight mesh
//! points around it in proportion to what lies next to each. Masses go to the mesh and forces come
//! back with the same shares, so that no particle pulls itself and none gains momentum.

/// The mesh points around a place, and their shares of it; shares sum to 1.
pub(super) struct Cloud {
    pub points: [usize; 8],
    pub shares: [f32; 8],
}

impl Cloud {
    pub fn around(place: [f32; 3], side: usize) -> Self {
        let axes = place.map(|coordinate| {
            let scaled = coordinate * side as f32;
            let low = (scaled as usize).min(side - 1);
            let high = if low + 1 < side { low + 1 } else { 0 };
            let share = scaled - low as f32;
            ([low, high], [1.0 - share, share])
        });
        let bits = |corner: usize| [corner >> 2 & 1, corner >> 1 & 1, corner & 1];
        Cloud {
            points: std::array::from_fn(|corner| {
                let [x, y, z] = bits(corner);
                (axes[0].0[x] * side + axes[1].0[y]) * side + axes[2].0[z]
            }),
            shares: std::array::from_fn(|corner| {
                let [x, y, z] = bits(corner);
                axes[0].1[x] * axes[1].1[y] * axes[2].1[z]
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_sum_to_one_and_points_wrap_around() {
        for place in [[0.0; 3], [0.5, 0.26, 0.999], [1.0 - f32::EPSILON / 2.0; 3]] {
            let cloud = Cloud::around(place, 24);
            assert!((cloud.shares.iter().sum::<f32>() - 1.0).abs() < 1e-6);
            assert!(cloud.points.iter().all(|&point| point < 24 * 24 * 24));
        }
        assert!(Cloud::around([0.99; 3], 24).points.contains(&0));
    }

    #[test]
    fn the_centre_of_the_shares_is_the_place() {
        let place = [0.31, 0.52, 0.77];
        let cloud = Cloud::around(place, 24);
        let mut centre = [0.0; 3];
        for (&point, share) in cloud.points.iter().zip(cloud.shares) {
            let indices = [point / 576, point / 24 % 24, point % 24];
            centre.iter_mut().zip(indices).for_each(|(c, i)| *c += share * i as f32 / 24.0);
        }
        assert!(centre.iter().zip(place).all(|(c, p)| (c - p).abs() < 1e-6), "{centre:?}");
    }
}
