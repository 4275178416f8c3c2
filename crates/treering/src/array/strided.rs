//! Arrays whose elements do not lie one behind another: every other column, a plane of a cube, a transposed view.
//!
//! The scan of a checkpoint gathers them strip by strip into memory of its threads, as it does with values that are
//! rounded; nothing is copied before. Code that needs an array as a whole (replicas, trees, the comparison with a
//! reference) gathers it. A restore fills memory beside the array, whose elements are taken over at the end of the
//! call.
//!
//! Laws: only elements of the view are read or written, whatever lies between them. Gathered bytes are the elements in the
//! order of the description, C or Fortran: an element keeps its index.

use super::DType;
use super::element::{Element, scalars_of};
use crate::error::{Error, Result};
use std::borrow::Cow;
use std::marker::PhantomData;
use std::ops::Range;
use std::sync::Arc;

/// A view as it was asked for, in numbers: elements that are arrays are one more axis.
pub(super) struct ViewPlace {
    size: usize,
    offset: u64,
    shape: Vec<u64>,
    strides: Vec<i64>,
}

impl ViewPlace {
    /// A view of memory whose first element is that of the view.
    pub(super) fn new(size: usize, shape: &[u64], strides: Vec<i64>) -> ViewPlace {
        ViewPlace { size, offset: 0, shape: shape.to_vec(), strides }
    }

    pub(super) fn of<T: Element>(offset: u64, shape: &[u64], strides: &[i64]) -> Result<ViewPlace> {
        let each = scalars_of::<T>();
        let (mut shape, scaled) =
            (shape.to_vec(), strides.iter().map(|s| s.checked_mul(each as i64)));
        let (offset, scaled) = (offset.checked_mul(each), scaled.collect::<Option<Vec<i64>>>());
        let (Some(offset), Some(mut strides)) = (offset, scaled) else {
            return Err(leaves(&shape));
        };
        if each != 1 {
            shape.push(each);
            strides.push(1);
        }
        Ok(ViewPlace { size: T::DTYPE.size() as usize, offset, shape, strides })
    }
}

fn leaves(shape: &[u64]) -> Error {
    Error::usage(format!("a view of shape {shape:?} leaves its memory"))
        .hint("strides count elements, one for each axis; offset is the first element")
}

/// Layout of a view: its axes, the slowest first, each with its extent and the bytes from one element to the next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ViewLayout {
    size: usize,
    axes: Vec<(u64, i64)>,
    elements: u64,
}

impl ViewLayout {
    /// Refuses shapes and strides that leave `before` and `behind`: the elements of the memory before the first one of the
    /// view, and from it on.
    pub(super) fn new(place: &ViewPlace, before: u64, behind: u64) -> Result<ViewLayout> {
        let ViewPlace { size, shape, strides, .. } = place;
        let (size, wrong) = (*size, || leaves(shape));
        let elements = shape.iter().try_fold(1u64, |n, e| n.checked_mul(*e)).ok_or_else(wrong)?;
        let (mut low, mut high) = (0u64, 0u64);
        for (extent, stride) in shape.iter().zip(strides) {
            let reach = extent.saturating_sub(1).checked_mul(stride.unsigned_abs());
            let end = if *stride < 0 { &mut low } else { &mut high };
            *end = reach.and_then(|reach| end.checked_add(reach)).ok_or_else(wrong)?;
        }
        let inside = elements == 0 || low <= before && high < behind;
        let bytes = |stride: &i64| stride.checked_mul(size as i64).ok_or_else(wrong);
        let strides_in_bytes: Vec<i64> = strides.iter().map(bytes).collect::<Result<_>>()?;
        if shape.len() != strides.len() || !inside {
            return Err(wrong());
        }
        let axes = shape.iter().copied().zip(strides_in_bytes).collect();
        Ok(ViewLayout { size, axes, elements })
    }

    /// Elements one behind another: as one axis, they are the same in either order.
    pub(super) fn contiguous(size: usize, elements: u64) -> ViewLayout {
        ViewLayout { size, axes: vec![(elements, size as i64)], elements }
    }

    /// Gathers in the other order from now on: from C to Fortran, or back.
    fn reverse(&mut self) {
        self.axes.reverse();
    }

    fn bytes(&self) -> usize {
        self.elements as usize * self.size
    }

    /// Calls a function with the place of each element of a range, and the bytes from the first one of the view to it.
    fn each(&self, elements: Range<u64>, mut call: impl FnMut(usize, isize)) {
        if elements.is_empty() {
            return;
        }
        let mut index = vec![0u64; self.axes.len()];
        let mut rest = elements.start;
        for (at, (extent, _)) in index.iter_mut().zip(&self.axes).rev() {
            (*at, rest) = (rest % extent, rest / extent);
        }
        let place = |index: &[u64]| {
            let steps = index.iter().zip(&self.axes).map(|(at, (_, stride))| *at as i64 * stride);
            steps.sum::<i64>() as isize
        };
        let (fast, stride) = self.axes.last().copied().unwrap_or((1, 0));
        let mut done = 0;
        let count = elements.end - elements.start;
        while done < count {
            let from = place(&index);
            let first = index.last().copied().unwrap_or(0);
            let run = (fast - first).min(count - done);
            for step in 0..run {
                call((done + step) as usize * self.size, from + (step as i64 * stride) as isize);
            }
            done += run;
            let Some(last) = index.last_mut() else { return };
            *last += run;
            for axis in (1..index.len()).rev() {
                if index[axis] < self.axes[axis].0 {
                    break;
                }
                index[axis] = 0;
                index[axis - 1] += 1;
            }
        }
    }
}

/// A view of elements that is read.
#[derive(Clone, Debug)]
pub(crate) struct Strided<'a> {
    first: *const u8,
    layout: Arc<ViewLayout>,
    of: PhantomData<&'a [u8]>,
}

// SAFETY: it is a shared view of plain bytes, as a slice is.
unsafe impl Send for Strided<'_> {}
// SAFETY: as above.
unsafe impl Sync for Strided<'_> {}

impl<'a> Strided<'a> {
    /// A view of a slice.
    pub(super) fn new(bytes: &'a [u8], place: &ViewPlace) -> Result<Self> {
        let (all, offset) = ((bytes.len() / place.size) as u64, place.offset);
        let layout = ViewLayout::new(place, offset, all.saturating_sub(offset))?;
        // Without elements nothing is read, wherever it begins.
        let first = bytes.as_ptr().wrapping_add(offset.min(all) as usize * place.size);
        Ok(Strided { first, layout: Arc::new(layout), of: PhantomData })
    }

    /// A view of memory by the address of its first element.
    ///
    /// # Safety
    /// All elements of the layout are valid, and nobody changes them as long as this lives.
    pub(super) unsafe fn raw(first: *const u8, layout: ViewLayout) -> Self {
        Strided { first, layout: Arc::new(layout), of: PhantomData }
    }

    /// Gathers in the other order.
    pub(super) fn reverse(&mut self) {
        Arc::make_mut(&mut self.layout).reverse();
    }

    fn gather(&self, bytes: Range<usize>, to: &mut Vec<u8>) {
        let size = self.layout.size;
        to.clear();
        to.resize(bytes.len(), 0);
        let elements = (bytes.start / size) as u64..(bytes.end / size) as u64;
        self.layout.each(elements, |at, from| {
            // SAFETY: the element lies in the memory of the view, as its layout was checked, and `to` has room for it.
            unsafe {
                let from = self.first.wrapping_offset(from);
                std::ptr::copy_nonoverlapping(from, to.as_mut_ptr().add(at), size);
            }
        });
    }
}

/// The bytes of a variable.
#[derive(Clone, Debug)]
pub(crate) enum ArrayBytes<'a> {
    /// Contiguous bytes.
    Whole(&'a [u8]),
    /// Gathered when they are needed.
    Strided(Strided<'a>),
}

impl<'a> ArrayBytes<'a> {
    pub(crate) fn len(&self) -> usize {
        match self {
            ArrayBytes::Whole(bytes) => bytes.len(),
            ArrayBytes::Strided(view) => view.layout.bytes(),
        }
    }

    /// A part of them, which begins and ends with elements; `memory` is used if it has to be gathered.
    pub(crate) fn part<'p>(&'p self, range: Range<usize>, memory: &'p mut Vec<u8>) -> &'p [u8] {
        match self {
            ArrayBytes::Whole(bytes) => &bytes[range],
            ArrayBytes::Strided(view) => {
                view.gather(range, memory);
                memory
            }
        }
    }

    /// All of them, if they lie one behind another.
    pub(crate) fn lent(&self) -> Option<&'a [u8]> {
        match self {
            ArrayBytes::Whole(bytes) => Some(bytes),
            ArrayBytes::Strided(_) => None,
        }
    }

    /// All of them.
    pub(crate) fn whole(&self) -> Cow<'a, [u8]> {
        match self {
            ArrayBytes::Whole(bytes) => Cow::Borrowed(bytes),
            ArrayBytes::Strided(view) => {
                let mut all = Vec::new();
                view.gather(0..self.len(), &mut all);
                Cow::Owned(all)
            }
        }
    }
}

/// A view of elements that is written: bytes that are filled beside it, and taken over at the end.
#[doc(hidden)]
pub struct StridedMut<'a> {
    first: *mut u8,
    layout: ViewLayout,
    pub(super) bytes: Vec<u8>,
    /// Whether elements are 0 or 1 and nothing else.
    flags: bool,
    of: PhantomData<&'a mut [u8]>,
}

// SAFETY: it is an exclusive view of plain bytes, as a slice is.
unsafe impl Send for StridedMut<'_> {}
// SAFETY: as above; a shared reference to it writes nothing.
unsafe impl Sync for StridedMut<'_> {}

impl<'a> StridedMut<'a> {
    /// A view of a slice. Of elements that may not hold any bytes (`bool`), only valid values are written.
    pub(super) fn new<T: Element>(data: &'a mut [T], place: &ViewPlace) -> Result<Self> {
        let view = Strided::new(T::bytes(data), place)?;
        let (layout, mut now) = (ViewLayout::clone(&view.layout), Vec::new());
        view.gather(0..layout.bytes(), &mut now);
        let all = (size_of_val(data) / place.size) as u64;
        let offset = place.offset.min(all) as usize * place.size;
        let first = data.as_mut_ptr().cast::<u8>().wrapping_add(offset);
        let flags = T::DTYPE == DType::Bool;
        Ok(StridedMut { first, layout, bytes: now, flags, of: PhantomData })
    }

    /// A view of memory by the address of its first element.
    ///
    /// # Safety
    /// All elements of the layout are valid, and nobody uses them as long as this lives.
    pub(super) unsafe fn raw(first: *mut u8, layout: ViewLayout, flags: bool) -> Self {
        // SAFETY: as the caller has promised.
        let view = unsafe { Strided::raw(first, layout.clone()) };
        let mut bytes = Vec::new();
        view.gather(0..layout.bytes(), &mut bytes);
        StridedMut { first, layout, bytes, flags, of: PhantomData }
    }

    /// Takes the bytes in the other order.
    pub(super) fn reverse(&mut self) {
        self.layout.reverse();
        // SAFETY: the memory is that of `self`, which is borrowed exclusively, and is only read here.
        let view = unsafe { Strided::<'_>::raw(self.first, self.layout.clone()) };
        view.gather(0..self.layout.bytes(), &mut self.bytes);
    }

    /// Takes the bytes over. Elements that several indices share get the value of the last.
    pub(super) fn settle(&mut self) {
        let size = self.layout.size;
        if self.flags {
            self.bytes.iter_mut().for_each(|flag| *flag = u8::from(*flag != 0));
        }
        self.layout.each(0..self.layout.elements, |at, to| {
            // SAFETY: the element lies in the memory of the view, which is borrowed exclusively, and `bytes` holds it.
            unsafe {
                let to = self.first.wrapping_offset(to);
                std::ptr::copy_nonoverlapping(self.bytes.as_ptr().add(at), to, size);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Against the plain meaning: the element of each index, found by its offset.
        #[test]
        fn gathered_parts_are_the_elements_and_filling_changes_nothing_else(
            axes in prop::collection::vec((0u64..5, -4i64..5), 0..4),
            offset in 0u64..60, len in 0usize..120, cut in 0usize..30, more in 0usize..30,
        ) {
            let memory: Vec<u32> = (0..len as u32).map(|at| at * 7919).collect();
            let shape: Vec<u64> = axes.iter().map(|axis| axis.0).collect();
            let strides: Vec<i64> = axes.iter().map(|axis| axis.1).collect();
            let mut places = vec![offset as i64];
            for (extent, stride) in &axes {
                let grow = |from: i64| (0..*extent as i64).map(move |at| from + at * stride);
                places = places.into_iter().flat_map(grow).collect();
            }
            let inside = places.iter().all(|place| (0..len as i64).contains(place));
            let bytes: &[u8] = bytemuck::cast_slice(&memory);
            let place = ViewPlace::of::<u32>(offset, &shape, &strides).unwrap();
            let view = Strided::new(bytes, &place);
            prop_assert_eq!(view.is_ok(), inside);
            let Ok(view) = view else { return Ok(()) };
            let expected: Vec<u32> = places.iter().map(|place| memory[*place as usize]).collect();
            let view = ArrayBytes::Strided(view);
            prop_assert_eq!(&view.whole()[..], bytemuck::cast_slice::<u32, u8>(&expected));
            let (from, to) = (cut.min(expected.len()), (cut + more).min(expected.len()));
            let mut room = vec![9; 3];
            let part = view.part(from * 4..to * 4, &mut room);
            prop_assert_eq!(part, bytemuck::cast_slice::<u32, u8>(&expected[from..to]));
            // Each element gets its place as its value; of those that several indices share, the last counts.
            let mut changed = memory.clone();
            let mut filled = memory.clone();
            places.iter().enumerate().for_each(|(at, place)| changed[*place as usize] = at as u32);
            let values: Vec<u32> = (0..places.len() as u32).collect();
            let mut view = StridedMut::new(&mut filled[..], &place).unwrap();
            view.bytes.copy_from_slice(bytemuck::cast_slice(&values));
            view.settle();
            prop_assert_eq!(filled, changed);
        }
    }
}
