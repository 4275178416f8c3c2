//! Arrays of the crate `ndarray` as variables, whatever their strides.
//!
//! An array in C order, or in Fortran's, is one of these without further ado. Any other view is strided: its elements are
//! gathered in C order while changes are looked for, and taken over at the end of a restore.

use super::protected::{ArrayMemory, Protectable};
use super::strided::{Strided, StridedMut, ViewLayout, ViewPlace};
use super::{ArrayBytes, DType, Element, Memory, Variable, VariableMut};
use crate::error::Result;
use ndarray::{Array, ArrayView, ArrayViewMut, Dimension};

/// The places of the elements of a view.
fn layout<T: Element>(name: &str, shape: &[u64], strides: &[isize]) -> Result<ViewLayout> {
    let strides: Vec<i64> = strides.iter().map(|stride| *stride as i64).collect();
    let most = isize::MAX as u64 / T::DTYPE.size();
    let layout = ViewPlace::of::<T>(0, shape, &strides)
        .and_then(|place| ViewLayout::new(&place, most, most));
    layout.map_err(|error| error.at(format!("variable {name:?}")))
}

fn extents(shape: &[usize]) -> Vec<u64> {
    shape.iter().map(|extent| *extent as u64).collect()
}

impl<'a> Variable<'a> {
    /// A view of an array of the crate `ndarray` (feature `ndarray`) with any strides, without a copy. An array in
    /// Fortran's order is stored as such, as [`fortran`](Self::fortran) does; any other view is stored in C order.
    ///
    /// ```
    /// use ndarray::{Array2, s};
    /// use treering::Variable;
    /// let grid = Array2::<f64>::zeros((40, 30));
    /// let whole = Variable::from_ndarray("grid", grid.view())?;
    /// let view = Variable::from_ndarray("view", grid.slice(s![5..10, ..;-2]))?; // every other column, from the last one
    /// assert_eq!(view.description().shape.0, [5, 15]);
    /// # Ok::<(), treering::Error>(())
    /// ```
    pub fn from_ndarray<T: Element, D: Dimension>(
        name: &str,
        view: ArrayView<'a, T, D>,
    ) -> Result<Self> {
        let (shape, strides) = (extents(view.shape()), view.strides().to_vec());
        let (first, inner) = (view.as_ptr(), described_axes::<T>());
        let with_inner = || [&shape[..], &inner[..]].concat();
        if let Some(slice) = view.clone().to_slice() {
            return Ok(Variable::new(name, slice).shaped(&with_inner()));
        }
        // Elements that are arrays have axes of their own, which are the fastest, and would have to be the slowest.
        if let Some(slice) = view.reversed_axes().to_slice().filter(|_| inner.is_empty()) {
            return Ok(Variable::new(name, slice).shaped(&shape).fortran());
        }
        let layout = layout::<T>(name, &shape, &strides)?;
        let mut variable = Variable::from_bytes(name, T::DTYPE, &with_inner(), &[]);
        // SAFETY: all elements of a view are valid as long as it is borrowed, which its lifetime says.
        variable.bytes = ArrayBytes::Strided(unsafe { Strided::raw(first.cast(), layout) });
        Ok(variable)
    }
}

impl<'a> VariableMut<'a> {
    /// A view of an array of the crate `ndarray` (feature `ndarray`), as [`Variable::from_ndarray`] saves it; the bytes
    /// between its elements stay as they are.
    ///
    /// ```
    /// use ndarray::Array2;
    /// use treering::VariableMut;
    /// let mut grid = Array2::<f64>::zeros((40, 30));
    /// let variable = VariableMut::from_ndarray("grid", grid.view_mut())?;
    /// # Ok::<(), treering::Error>(())
    /// ```
    pub fn from_ndarray<T: Element, D: Dimension>(
        name: &str,
        mut view: ArrayViewMut<'a, T, D>,
    ) -> Result<Self> {
        let (shape, strides) = (extents(view.shape()), view.strides().to_vec());
        let (first, inner) = (view.as_mut_ptr(), described_axes::<T>());
        let with_inner = || [&shape[..], &inner[..]].concat();
        if view.is_standard_layout() {
            let slice = view.into_slice().unwrap_or_default();
            return Ok(VariableMut::new(name, slice).shaped(&with_inner()));
        }
        let reversed = view.reversed_axes();
        if reversed.is_standard_layout() && inner.is_empty() {
            let slice = reversed.into_slice().unwrap_or_default();
            return Ok(VariableMut::new(name, slice).shaped(&shape).fortran());
        }
        let layout = layout::<T>(name, &shape, &strides)?;
        let mut variable = VariableMut::from_bytes(name, T::DTYPE, &with_inner(), &mut []);
        // SAFETY: all elements of a view are valid and nobody else's as long as it is borrowed, which its lifetime says;
        // only a `bool` may not hold any bytes, and gets 0 or 1.
        let view = unsafe { StridedMut::raw(first.cast(), layout, T::DTYPE == DType::Bool) };
        variable.memory = Memory::Strided(view);
        Ok(variable)
    }
}

/// The axes that an element has itself.
fn described_axes<T: Element>() -> Vec<u64> {
    let mut axes = Vec::new();
    T::axes(&mut axes);
    axes
}

impl<T: Element, D: Dimension + 'static> Protectable for Array<T, D> {}
impl<T: Element, D: Dimension + 'static> ArrayMemory for Array<T, D> {
    fn variable(&self, name: &str) -> Variable<'_> {
        // An array that owns its elements has them all in memory; if not, the empty variable is refused for its shape.
        let of = Variable::from_ndarray(name, self.view());
        of.unwrap_or_else(|_| Variable::from_bytes(name, T::DTYPE, &extents(self.shape()), &[]))
    }

    fn array(&mut self, name: &str, _: bool) -> VariableMut<'_> {
        let shape = extents(self.shape());
        let of = VariableMut::from_ndarray(name, self.view_mut());
        of.unwrap_or_else(|_| VariableMut::from_bytes(name, T::DTYPE, &shape, &mut []))
    }
}
