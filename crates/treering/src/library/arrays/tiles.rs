//! Cutting an array into tiles that fit into memory, and putting the elements of a tile into C order.
//!
//! A slab is one run of memory, so that slabs in their order are the whole array in its order. An array that is to be
//! written in the other order is cut into blocks instead, which are long along the fastest axes of both orders: every
//! element is read and written once, in runs that are as long as the memory permits on both sides.

use crate::array::{IndexBox, Order};

/// The number of elements along each side of the squares in which a block is put into the other order: their
/// elements stay in a cache.
const SQUARE: usize = 32;

/// The tiles of an array: all of one extent, but for the last ones along each axis.
pub(super) struct Tiles {
    shape: Vec<u64>,
    /// The extent of a tile.
    pub(super) tile: Vec<u64>,
    order: Order,
}

impl Tiles {
    /// Tiles of up to this many elements, each of which is one run of an array in memory.
    pub(super) fn slabs(shape: &[u64], order: Order, most: u64) -> Tiles {
        let mut tile = vec![1; shape.len()];
        let mut room = most.max(1);
        for axis in slowest_first(shape.len(), order).into_iter().rev() {
            let extent = shape[axis].max(1);
            if extent > room {
                // Tiles of about the same extent.
                tile[axis] = extent.div_ceil(extent.div_ceil(room));
                break;
            }
            tile[axis] = extent;
            room /= extent;
        }
        Tiles { shape: shape.to_vec(), tile, order }
    }

    /// Tiles of up to this many elements that are long along the first axes and along the last ones.
    pub(super) fn blocks(shape: &[u64], most: u64) -> Tiles {
        let mut tile = vec![1; shape.len()];
        let mut room = most.max(1);
        let (mut first, mut behind) = (0, shape.len());
        while first < behind {
            let last = behind - 1;
            let (a, b) = (shape[first].max(1), shape[last].max(1));
            if first == last {
                tile[first] = a.min(room);
                break;
            }
            match a.checked_mul(b).filter(|both| *both <= room) {
                Some(both) => {
                    (tile[first], tile[last]) = (a, b);
                    room /= both;
                }
                None => {
                    let side = room.isqrt();
                    tile[first] = if b < side { room / b } else { a.min(side) };
                    tile[last] = b.min(room / tile[first]);
                    break;
                }
            }
            (first, behind) = (first + 1, last);
        }
        Tiles { shape: shape.to_vec(), tile, order: Order::C }
    }

    fn along(&self, axis: usize) -> u64 {
        self.shape[axis].div_ceil(self.tile[axis])
    }

    /// The number of tiles.
    pub(super) fn count(&self) -> u64 {
        (0..self.shape.len()).map(|axis| self.along(axis)).product()
    }

    /// The place of a tile among the others, along each axis. Tiles are numbered in the order of memory.
    pub(super) fn index(&self, mut number: u64) -> Vec<u64> {
        let mut index = vec![0; self.shape.len()];
        for axis in slowest_first(self.shape.len(), self.order).into_iter().rev() {
            index[axis] = number % self.along(axis);
            number /= self.along(axis);
        }
        index
    }

    /// The elements of the tile at a place.
    pub(super) fn at(&self, index: &[u64]) -> IndexBox {
        let offset: Vec<u64> = index.iter().zip(&self.tile).map(|(at, tile)| at * tile).collect();
        let rest = self.shape.iter().zip(&offset).zip(&self.tile);
        let extent = rest.map(|((extent, offset), tile)| (extent - offset).min(*tile)).collect();
        IndexBox { offset, extent }
    }
}

/// The axes of an array, the slowest first.
fn slowest_first(axes: usize, order: Order) -> Vec<usize> {
    match order {
        Order::C => (0..axes).collect(),
        Order::Fortran => (0..axes).rev().collect(),
    }
}

/// Puts elements of `size` bytes from Fortran order into C order.
pub(super) fn into_c_order(extent: &[u64], size: u64, from: &[u8], to: &mut [u8]) {
    match size {
        1 => into_c_order_of::<1>(extent, from, to),
        2 => into_c_order_of::<2>(extent, from, to),
        4 => into_c_order_of::<4>(extent, from, to),
        8 => into_c_order_of::<8>(extent, from, to),
        _ => into_c_order_of::<16>(extent, from, to),
    }
}

fn into_c_order_of<const SIZE: usize>(extent: &[u64], from: &[u8], to: &mut [u8]) {
    let (from, to) = (from.as_chunks::<SIZE>().0, to.as_chunks_mut::<SIZE>().0);
    let extent: Vec<usize> = extent.iter().map(|extent| *extent as usize).collect();
    let [rows, middle @ .., columns] = &extent[..] else {
        to.copy_from_slice(from);
        return;
    };
    let between: usize = middle.iter().product();
    for at in 0..between {
        // The index along the axes in the middle, as their place in Fortran order.
        let (mut rest, mut stride, mut place) = (at, rows * between, 0);
        for extent in middle.iter().rev() {
            stride /= extent;
            place += rest % extent * stride;
            rest /= extent;
        }
        for row in (0..*rows).step_by(SQUARE) {
            for column in (0..*columns).step_by(SQUARE) {
                for row in row..(row + SQUARE).min(*rows) {
                    let start = (row * between + at) * columns;
                    for column in column..(column + SQUARE).min(*columns) {
                        to[start + column] = from[place + row + column * rows * between];
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn shapes() -> impl Strategy<Value = Vec<u64>> {
        prop::collection::vec(0u64..9, 0..5)
    }

    proptest! {
        /// Slabs in their order are the array in its order, and none has more elements than it may.
        #[test]
        fn slabs_follow_each_other_in_memory(shape in shapes(), most in 1u64..200, fortran: bool) {
            let order = if fortran { Order::Fortran } else { Order::C };
            let tiles = Tiles::slabs(&shape, order, most);
            let whole = IndexBox { offset: vec![0; shape.len()], extent: shape.clone() };
            let mut next = 0;
            for number in 0..tiles.count() {
                let tile = tiles.at(&tiles.index(number));
                prop_assert!(tile.elements().unwrap() <= most);
                // Axes of extent one may cut a run in two.
                for run in tile.runs_in(&whole, order) {
                    prop_assert_eq!(run.to, next);
                    next += run.len;
                }
            }
            prop_assert_eq!(next, shape.iter().product::<u64>());
        }

        /// Every element is in one block, and its place in C order is where `into_c_order` puts it.
        #[test]
        fn blocks_turn_an_array_around(
            shape in shapes(),
            most in 1u64..200,
            size in prop::sample::select(vec![1u64, 2, 4, 8, 16]),
        ) {
            let whole = IndexBox { offset: vec![0; shape.len()], extent: shape.clone() };
            let count = whole.elements().unwrap() as usize;
            let number = |at: usize| (at as u128 * 0x0101_0301).to_le_bytes();
            let tiles = Tiles::blocks(&shape, most);
            let mut found = vec![None; count];
            for at in 0..tiles.count() {
                let tile = tiles.at(&tiles.index(at));
                let elements = tile.elements().unwrap();
                prop_assert!(elements <= most);
                // The place of each element in the whole array is its value.
                let mut from = vec![0; (elements * size) as usize];
                for run in whole.runs_in(&tile, Order::Fortran) {
                    for at in 0..run.len {
                        let to = ((run.to + at) * size) as usize;
                        let value = number((run.from + at) as usize);
                        from[to..to + size as usize].copy_from_slice(&value[..size as usize]);
                    }
                }
                let mut to = vec![0; from.len()];
                into_c_order(&tile.extent, size, &from, &mut to);
                for run in tile.runs_in(&whole, Order::C) {
                    for at in 0..run.len {
                        let from = ((run.from + at) * size) as usize;
                        let place = &mut found[(run.to + at) as usize];
                        prop_assert!(place.is_none());
                        *place = Some(to[from..from + size as usize].to_vec());
                    }
                }
            }
            for (place, value) in found.iter().enumerate() {
                // The index in C order, and with it the place in Fortran order.
                let (mut rest, mut index) = (place as u64, vec![0; shape.len()]);
                for axis in (0..shape.len()).rev() {
                    index[axis] = rest % shape[axis];
                    rest /= shape[axis];
                }
                let fortran = (0..shape.len()).rev().fold(0, |at, axis| at * shape[axis] + index[axis]);
                prop_assert_eq!(value.as_deref(), Some(&number(fortran as usize)[..size as usize]));
            }
        }
    }

    #[test]
    fn tiles_have_the_extents_that_they_should() {
        assert_eq!(Tiles::slabs(&[100, 50, 8], Order::C, 1000).tile, [2, 50, 8]);
        assert_eq!(Tiles::slabs(&[100, 50, 8], Order::Fortran, 1000).tile, [100, 10, 1]);
        assert_eq!(Tiles::slabs(&[], Order::C, 1000).count(), 1);
        assert_eq!(Tiles::slabs(&[0, 7], Order::C, 1000).count(), 0);
        assert_eq!(Tiles::blocks(&[100, 100], 400).tile, [20, 20]);
        assert_eq!(Tiles::blocks(&[1000, 10], 400).tile, [40, 10]);
        assert_eq!(Tiles::blocks(&[10, 1000], 400).tile, [10, 40]);
        assert_eq!(Tiles::blocks(&[4, 1000, 5], 400).tile, [4, 20, 5]);
        let huge = Tiles::blocks(&[u64::MAX, 1], 400);
        assert_eq!(huge.tile, [400, 1]);
    }
}
