//! Boxes of arrays: which runs of elements two boxes have in common.
//!
//! A box is an offset and an extent along each axis. Two boxes of one array overlap in a box again, and the elements of
//! that lie in both memories as runs along the fastest axis. Runs that touch in both memories are one, so that a
//! slab is a single run. Everything here is arithmetic.

use super::Order;

/// A box of an array's indices: the first index and the extent along each axis.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct IndexBox {
    pub(crate) offset: Vec<u64>,
    pub(crate) extent: Vec<u64>,
}

/// Elements that lie one after another in two boxes: where they begin in each, and how many they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CommonRun {
    pub(crate) from: u64,
    pub(crate) to: u64,
    pub(crate) len: u64,
}

impl IndexBox {
    /// The number of elements, or `None` beyond 2^64.
    pub(crate) fn elements(&self) -> Option<u64> {
        self.extent.iter().try_fold(1u64, |n, extent| n.checked_mul(*extent))
    }

    /// The box of indices that are in both, if there are any.
    pub(crate) fn common(&self, other: &IndexBox) -> Option<IndexBox> {
        let mut common = IndexBox { offset: Vec::new(), extent: Vec::new() };
        for axis in 0..self.offset.len() {
            let (a, b) = (self.offset[axis], *other.offset.get(axis)?);
            let end = (a + self.extent[axis]).min(b + other.extent[axis]);
            let start = a.max(b);
            common.offset.push(start);
            common.extent.push(end.checked_sub(start).filter(|extent| *extent > 0)?);
        }
        Some(common)
    }

    /// The axes from the slowest to the fastest.
    fn axes(&self, order: Order) -> Vec<usize> {
        let axes = 0..self.offset.len();
        match order {
            Order::C => axes.collect(),
            Order::Fortran => axes.rev().collect(),
        }
    }

    /// The position of an index of the array in the memory of this box, in elements. Offsets may have wrapped
    /// around below zero, where a box has ghost cells before the first index.
    fn position(&self, index: &[u64], axes: &[usize]) -> u64 {
        let place = |at: u64, axis: &usize| {
            at * self.extent[*axis] + index[*axis].wrapping_sub(self.offset[*axis])
        };
        axes.iter().fold(0, place)
    }

    /// The runs of elements that this box and another one have in common, in the order of memory.
    #[cfg(test)]
    pub(crate) fn runs_in(&self, other: &IndexBox, order: Order) -> Vec<CommonRun> {
        let common = self.common(other);
        common.map_or_else(Vec::new, |common| self.runs_of(&common, other, order))
    }

    /// The runs of elements of `common`, which is inside of this box and another one, in the order of memory.
    pub(crate) fn runs_of(
        &self,
        common: &IndexBox,
        other: &IndexBox,
        order: Order,
    ) -> Vec<CommonRun> {
        let axes = self.axes(order);
        // The fastest axes that the common part fills in both boxes are one with the next slower.
        let mut fast = axes.len();
        let mut len = 1;
        while fast > 0 {
            let axis = axes[fast - 1];
            fast -= 1;
            len *= common.extent[axis];
            let is_full = |b: &IndexBox| b.extent[axis] == common.extent[axis];
            if !(is_full(self) && is_full(other)) {
                break;
            }
        }
        let slow = &axes[..fast];
        let mut index = common.offset.clone();
        let mut runs = Vec::new();
        loop {
            let (from, to) = (self.position(&index, &axes), other.position(&index, &axes));
            runs.push(CommonRun { from, to, len });
            // Counts up the slow axes, the fastest of them first.
            let next = slow.iter().rev().find(|axis| {
                index[**axis] += 1;
                let more = index[**axis] < common.offset[**axis] + common.extent[**axis];
                if !more {
                    index[**axis] = common.offset[**axis];
                }
                more
            });
            if next.is_none() {
                return runs;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Every index of a box, in the order of memory.
    fn indices(of: &IndexBox, order: Order) -> Vec<Vec<u64>> {
        let mut all = vec![vec![0; of.offset.len()]];
        for axis in of.axes(order) {
            let grow = |index: Vec<u64>| {
                (0..of.extent[axis]).map(move |at| {
                    let mut index = index.clone();
                    index[axis] = at;
                    index
                })
            };
            all = all.into_iter().flat_map(grow).collect();
        }
        let absolute = |index: Vec<u64>| index.iter().zip(&of.offset).map(|(i, o)| i + o).collect();
        all.into_iter().map(absolute).collect()
    }

    fn any_box(axes: usize) -> impl Strategy<Value = IndexBox> {
        let axis = prop::collection::vec((0u64..6, 0u64..6), axes);
        axis.prop_map(|axes| IndexBox {
            offset: axes.iter().map(|(offset, _)| *offset).collect(),
            extent: axes.iter().map(|(_, extent)| *extent).collect(),
        })
    }

    proptest! {
        #[test]
        fn runs_are_what_both_boxes_hold(
            (a, b) in (0usize..4).prop_flat_map(|axes| (any_box(axes), any_box(axes))),
            fortran: bool,
        ) {
            let order = if fortran { Order::Fortran } else { Order::C };
            let (of_a, of_b) = (indices(&a, order), indices(&b, order));
            let runs = a.runs_in(&b, order);
            let mut moved = vec![None; of_b.len()];
            for run in &runs {
                prop_assert!(run.len > 0);
                for at in 0..run.len {
                    let to = &mut moved[(run.to + at) as usize];
                    prop_assert!(to.is_none(), "an element moves once");
                    *to = Some(&of_a[(run.from + at) as usize]);
                }
            }
            for (index, moved) in of_b.iter().zip(moved) {
                prop_assert_eq!(of_a.contains(index).then_some(index), moved);
            }
            // In order, and no two could be one.
            for pair in runs.windows(2) {
                prop_assert!(pair[0].from + pair[0].len <= pair[1].from);
                prop_assert!(pair[0].to + pair[0].len <= pair[1].to);
                let touch = pair[0].from + pair[0].len == pair[1].from
                    && pair[0].to + pair[0].len == pair[1].to;
                // Axes of extent one may separate what touches; nothing else does.
                prop_assert!(!touch || a.extent.contains(&1) || b.extent.contains(&1)
                    || a.common(&b).is_some_and(|c| c.extent.contains(&1)));
            }
        }
    }

    #[test]
    fn a_slab_is_one_run_and_a_cube_has_rows() {
        let whole = IndexBox { offset: vec![0, 0, 0], extent: vec![8, 4, 5] };
        let slab = IndexBox { offset: vec![2, 0, 0], extent: vec![3, 4, 5] };
        assert_eq!(whole.runs_in(&slab, Order::C), [CommonRun { from: 40, to: 0, len: 60 }]);
        let cube = IndexBox { offset: vec![2, 1, 1], extent: vec![2, 2, 3] };
        let runs = whole.runs_in(&cube, Order::C);
        assert_eq!(runs.len(), 4);
        assert_eq!(runs[1], CommonRun { from: 51, to: 3, len: 3 });
        assert_eq!(whole.runs_in(&whole, Order::Fortran).len(), 1);
        let scalar = IndexBox { offset: vec![], extent: vec![] };
        assert_eq!(scalar.runs_in(&scalar, Order::C), [CommonRun { from: 0, to: 0, len: 1 }]);
    }
}
