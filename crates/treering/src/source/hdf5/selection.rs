//! Selections of elements: blocks of the same size at the same distance, along each axis.

use super::bytes::MetaCursor;
use crate::error::{Error, Result};

/// More axes than arrays have.
const MOST_AXES: u32 = 32;
/// More blocks than are looked through.
const MOST_BLOCKS: u64 = 1 << 16;

/// Blocks along one axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct AxisBlocks {
    start: u64,
    stride: u64,
    count: u64,
    block: u64,
}

impl AxisBlocks {
    /// Number of selected indices.
    pub(super) fn len(&self) -> u64 {
        self.count.saturating_mul(self.block)
    }

    /// The index of the selected one with this number.
    pub(super) fn index(&self, number: u64) -> u64 {
        self.start + number / self.block * self.stride + number % self.block
    }

    /// Number of consecutive indices from this number on.
    pub(super) fn run(&self, number: u64) -> u64 {
        match self.stride == self.block || self.count == 1 {
            true => self.len() - number,
            false => self.block - number % self.block,
        }
    }

    /// The number of the first that is not below an index.
    pub(super) fn first_from(&self, index: u64) -> u64 {
        let Some(distance) = index.checked_sub(self.start) else { return 0 };
        let (block, inside) = (distance / self.stride, distance % self.stride);
        match block < self.count {
            true => block * self.block + inside.min(self.block),
            false => self.len(),
        }
    }

    /// Whether there is no last block: the selection grows with the array.
    pub(super) fn is_endless(&self) -> bool {
        self.count == u64::MAX
    }

    /// The length of a block.
    pub(super) fn block_len(&self) -> u64 {
        self.block
    }

    /// The block with a number, by itself.
    pub(super) fn block_at(&self, number: u64) -> Option<AxisBlocks> {
        let start = number.checked_mul(self.stride)?.checked_add(self.start)?;
        Some(AxisBlocks { start, stride: self.block, count: 1, block: self.block })
    }

    /// The first indices, this number of them; none if the last block would be cut.
    pub(super) fn first(&self, len: u64) -> Option<AxisBlocks> {
        let AxisBlocks { start, stride, block, .. } = *self;
        match stride == block {
            _ if len == 0 => Some(AxisBlocks { count: 0, ..*self }),
            true => Some(AxisBlocks { start, stride: len, count: 1, block: len }),
            false => len.is_multiple_of(block).then(|| AxisBlocks { count: len / block, ..*self }),
        }
    }

    /// The extent that ends with the last of the first indices, this number of them.
    pub(super) fn extent_of(&self, len: u64) -> Option<u64> {
        let last = len.checked_sub(1);
        let end = |last: u64| {
            let blocks = (last / self.block).checked_mul(self.stride)?;
            blocks.checked_add(self.start)?.checked_add(last % self.block + 1)
        };
        last.map_or(Some(0), end)
    }

    /// Whether all lie within an extent, and none twice.
    fn fits(&self, extent: u64) -> bool {
        let apart = self.stride >= self.block;
        let last = self.count.checked_sub(1).and_then(|n| n.checked_mul(self.stride));
        let end = last.and_then(|l| l.checked_add(self.start)?.checked_add(self.block));
        self.block > 0 && self.stride > 0 && apart && end.is_some_and(|end| end <= extent)
    }
}

/// A selection as a file tells it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Selection {
    None,
    All,
    Blocks(Vec<AxisBlocks>),
}

fn unusual() -> Error {
    Error::usage("its mapping to other datasets is not understood")
}

impl Selection {
    /// Reads a selection and moves behind it.
    pub(super) fn parse(rest: &mut MetaCursor) -> Result<Selection> {
        let (kind, version) = (rest.u32()?, rest.u32()?);
        match (kind, version) {
            (0 | 3, _) => {
                rest.skip(8)?;
                Ok(if kind == 0 { Selection::None } else { Selection::All })
            }
            (2, 1) => {
                rest.skip(8)?;
                let axes = rest.u32()?;
                blocks(rest, axes, 4)
            }
            (2, 2) => {
                let flags = rest.u8()?;
                rest.skip(4)?;
                let axes = rest.u32()?;
                if flags & 1 != 0 { regular(rest, axes, 8) } else { blocks(rest, axes, 8) }
            }
            (2, 3) => {
                let (flags, width) = (rest.u8()?, usize::from(rest.u8()?));
                let axes = rest.u32()?;
                if flags & 1 != 0 { regular(rest, axes, width) } else { blocks(rest, axes, width) }
            }
            _ => Err(unusual()),
        }
    }

    /// The same bytes for the same elements, whichever way a library has written them.
    pub(super) fn canonical(&self) -> Vec<u8> {
        match self {
            Selection::None => vec![0],
            Selection::All => vec![1],
            Selection::Blocks(axes) if axes.iter().any(|axis| axis.len() == 0) => vec![0],
            Selection::Blocks(axes) => {
                let whole = |axis: &AxisBlocks| match axis.stride == axis.block || axis.count == 1 {
                    true => [axis.start, axis.len(), 1, axis.len()],
                    false => [axis.start, axis.stride, axis.count, axis.block],
                };
                let numbers = axes.iter().flat_map(whole).flat_map(u64::to_le_bytes);
                std::iter::once(2).chain(numbers).collect()
            }
        }
    }

    /// The axis along which it grows with the array, if there is one.
    pub(super) fn endless_axis(&self) -> Option<usize> {
        match self {
            Selection::Blocks(axes) => axes.iter().position(AxisBlocks::is_endless),
            Selection::None | Selection::All => None,
        }
    }

    /// The blocks along an axis.
    pub(super) fn axis(&self, axis: usize) -> Option<AxisBlocks> {
        match self {
            Selection::Blocks(axes) => axes.get(axis).copied(),
            Selection::None | Selection::All => None,
        }
    }

    /// The same with other blocks along an axis.
    pub(super) fn with(&self, axis: usize, blocks: AxisBlocks) -> Selection {
        let mut with = self.clone();
        if let Selection::Blocks(axes) = &mut with
            && let Some(own) = axes.get_mut(axis)
        {
            *own = blocks;
        }
        with
    }

    /// The extents that hold all of it, as far as it has ends.
    pub(super) fn least_shape(&self) -> Vec<u64> {
        let end = |axis: &AxisBlocks| match axis.is_endless() {
            true => 0,
            false => axis.extent_of(axis.len()).unwrap_or(0),
        };
        match self {
            Selection::Blocks(axes) => axes.iter().map(end).collect(),
            Selection::None | Selection::All => Vec::new(),
        }
    }

    /// The blocks in an array of this extent; none if nothing is selected.
    pub(super) fn within(&self, shape: &[u64]) -> Result<Option<Vec<AxisBlocks>>> {
        let outside = || Error::damaged("a selection lies outside of its array");
        match self {
            Selection::None => Ok(None),
            Selection::All if shape.contains(&0) => Ok(None),
            Selection::All => {
                let whole = |n: &u64| AxisBlocks { start: 0, stride: *n, count: 1, block: *n };
                Ok(Some(shape.iter().map(whole).collect()))
            }
            Selection::Blocks(axes) if axes.len() != shape.len() => Err(outside()),
            Selection::Blocks(axes) if axes.iter().any(|axis| axis.count == 0) => Ok(None),
            Selection::Blocks(axes) => {
                let fit = axes.iter().zip(shape).all(|(axis, extent)| axis.fits(*extent));
                if fit { Ok(Some(axes.clone())) } else { Err(outside()) }
            }
        }
    }
}

fn regular(rest: &mut MetaCursor, axes: u32, width: usize) -> Result<Selection> {
    if axes > MOST_AXES {
        return Err(unusual());
    }
    let endless = u64::MAX >> (64 - 8 * width.clamp(1, 8));
    let mut all = Vec::new();
    for _ in 0..axes {
        let mut next = || rest.uint(width);
        let mut axis =
            AxisBlocks { start: next()?, stride: next()?, count: next()?, block: next()? };
        // The distance of one block to the next says nothing if there is no next one.
        if axis.count == 1 {
            axis.stride = axis.block;
        }
        // An endless block is as many blocks of one.
        if axis.block == endless {
            (axis.stride, axis.block, axis.count) = (1, 1, endless);
        }
        if axis.count == endless {
            axis.count = u64::MAX;
            if axis.block == 0 || axis.stride < axis.block {
                return Err(unusual());
            }
        }
        all.push(axis);
    }
    Ok(Selection::Blocks(all))
}

/// A list of blocks, each with its first and last index, that are regular.
fn blocks(rest: &mut MetaCursor, axes: u32, width: usize) -> Result<Selection> {
    let count = rest.uint(width)?;
    if axes > MOST_AXES || count > MOST_BLOCKS {
        return Err(unusual());
    }
    let mut spans = vec![Vec::new(); axes as usize];
    for _ in 0..count {
        let corner = |rest: &mut MetaCursor| -> Result<Vec<u64>> {
            (0..axes).map(|_| rest.uint(width)).collect()
        };
        let (first, last) = (corner(rest)?, corner(rest)?);
        for (axis, (first, last)) in first.into_iter().zip(last).enumerate() {
            let len = last.checked_sub(first).and_then(|len| len.checked_add(1));
            spans[axis].push((first, len.ok_or_else(unusual)?));
        }
    }
    if count == 0 {
        return Ok(Selection::None);
    }
    let mut all = Vec::new();
    for mut spans in spans {
        spans.sort_unstable();
        spans.dedup();
        let (start, block) = spans[0];
        let stride = spans.get(1).map_or(block, |second| second.0 - start);
        let at = |number: usize| (number as u64).checked_mul(stride)?.checked_add(start);
        let is_regular =
            spans.iter().enumerate().all(|(n, span)| at(n).is_some_and(|at| *span == (at, block)));
        if !is_regular {
            return Err(unusual());
        }
        all.push(AxisBlocks { start, stride, count: spans.len() as u64, block });
    }
    // Each block of the product must be there; blocks of a list do not overlap.
    let product = all.iter().try_fold(1u64, |n, axis| n.checked_mul(axis.count));
    if product == Some(count) { Ok(Selection::Blocks(all)) } else { Err(unusual()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A selection of two axes, each with start, stride, count and block, in the way of recent libraries.
    fn of(axes: [[u64; 4]; 2]) -> Vec<u8> {
        let mut bytes = [2u32, 3].map(u32::to_le_bytes).concat();
        bytes.extend([1, 8]);
        bytes.extend(2u32.to_le_bytes());
        bytes.extend(axes.into_iter().flatten().flat_map(u64::to_le_bytes));
        bytes
    }

    /// The same as a list of its blocks, in the way of early libraries.
    fn listed(axes: [[u64; 4]; 2]) -> Vec<u8> {
        let spans = |[start, stride, count, block]: [u64; 4]| {
            (0..count).map(move |n| (start + n * stride, start + n * stride + block - 1))
        };
        let mut bytes = [2u32, 1, 0, 0, 2].map(u32::to_le_bytes).concat();
        bytes.extend(((axes[0][2] * axes[1][2]) as u32).to_le_bytes());
        for rows in spans(axes[0]) {
            for columns in spans(axes[1]) {
                let corners = [rows.0, columns.0, rows.1, columns.1];
                bytes.extend(corners.iter().flat_map(|at| (*at as u32).to_le_bytes()));
            }
        }
        bytes
    }

    fn canonical(bytes: &[u8]) -> Vec<u8> {
        let mut rest = MetaCursor::of(bytes);
        let selection = Selection::parse(&mut rest).unwrap();
        assert!(rest.rest.is_empty());
        selection.canonical()
    }

    #[test]
    fn the_same_elements_have_the_same_canonical_bytes() {
        let some = [[3, 4, 5, 2], [0, 7, 1, 6]];
        assert_eq!(canonical(&of(some)), canonical(&listed(some)));
        // Blocks that touch each other are one.
        assert_eq!(
            canonical(&of([[3, 1, 5, 1], [0, 7, 1, 6]])),
            canonical(&of([[3, 9, 1, 5], [0, 6, 1, 6]]))
        );
        for other in [
            [[3, 4, 5, 2], [0, 7, 1, 5]],
            [[3, 4, 5, 1], [0, 7, 1, 6]],
            [[2, 4, 5, 2], [0, 7, 1, 6]],
        ] {
            assert_ne!(canonical(&of(some)), canonical(&of(other)));
        }
    }

    proptest! {
        #[test]
        fn numbers_and_indices_belong_together(start in 0u64..9, gap in 0u64..4, count in 1u64..6, block in 1u64..5) {
            let axis = AxisBlocks { start, stride: block + gap, count, block };
            let all: Vec<u64> = (0..axis.len()).map(|n| axis.index(n)).collect();
            prop_assert!(all.windows(2).all(|two| two[0] < two[1]));
            prop_assert!(axis.fits(all[all.len() - 1] + 1) && !axis.fits(all[all.len() - 1]));
            for (number, index) in all.iter().enumerate() {
                let run = axis.run(number as u64) as usize;
                prop_assert!(all[number..number + run].windows(2).all(|two| two[0] + 1 == two[1]));
                prop_assert_eq!(axis.first_from(*index), number as u64);
            }
            for index in 0..60 {
                let expected = all.partition_point(|at| *at < index) as u64;
                prop_assert_eq!(axis.first_from(index), expected);
            }
        }

        #[test]
        fn junk_never_panics(junk in proptest::collection::vec(any::<u8>(), 0..200), kind in 0u8..4, version in 0u8..4) {
            let mut bytes = vec![kind, 0, 0, 0, version, 0, 0, 0];
            bytes.extend(junk);
            if let Ok(selection) = Selection::parse(&mut MetaCursor::of(&bytes)) {
                let _ = selection.within(&[5, 7]);
            }
        }
    }
}
