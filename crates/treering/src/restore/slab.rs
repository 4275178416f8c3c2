//! Slabs: elements at regular strides along each axis of a box, as HDF5's hyperslabs, and whole arrays of any type.
//!
//! The elements of a slab are runs of stored elements; runs that lie close together are read as one range, and only the
//! frames that hold them are read. A run is as long as the fastest axis where that is taken whole, and one element where
//! it is not, so runs are made and read in batches of bounded size.
//!
//! Law: a slab holds what the same elements of the whole array hold, whoever wrote which part of it.

use super::boxes::{ArraySource, ArraySources};
use super::checkpoint::Checkpoint;
use crate::array::{CommonRun, DType, Description, Element, IndexBox, Order, Shape};
use crate::array::{fill, filled, scalars_of};
use crate::error::{Error, ErrorKind, Result};
use crate::memory::zeroed;
use std::collections::BTreeSet;

/// Runs that are made and read at a time.
const RUNS: usize = 1 << 18;

/// Elements of an array: along each axis, `extent` of them from `offset` on, each `stride` behind the one before.
/// [`Checkpoint::read_slab`] reads them.
///
/// ```
/// use treering::Slab;
/// let column = Slab::new(&[0, 7], &[100, 1]); // column 7 of 100 rows
/// let every_tenth = Slab::new(&[0, 0], &[10, 30]).stride(&[10, 1]); // rows 0, 10, …, 90
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slab {
    offset: Vec<u64>,
    extent: Vec<u64>,
    stride: Vec<u64>,
}

impl Slab {
    /// A box: the first index and the number of elements along each axis.
    pub fn new(offset: &[u64], extent: &[u64]) -> Slab {
        let stride = vec![1; offset.len()];
        Slab { offset: offset.to_vec(), extent: extent.to_vec(), stride }
    }

    /// Selects every `stride`-th element along each axis.
    #[must_use]
    pub fn stride(mut self, stride: &[u64]) -> Slab {
        self.stride = stride.to_vec();
        self
    }

    /// Whether it is a box: all elements from the first to the last.
    fn is_box(&self) -> bool {
        self.stride.iter().zip(&self.extent).all(|(stride, extent)| *stride == 1 || *extent < 2)
    }

    fn elements(&self) -> Option<u64> {
        self.extent.iter().try_fold(1u64, |n, extent| n.checked_mul(*extent))
    }

    /// The box from its first element to its last.
    fn cover(&self) -> Option<IndexBox> {
        let axes = self.extent.iter().zip(&self.stride);
        let extent = axes.map(|(extent, stride)| match extent.checked_sub(1) {
            None => Some(0),
            Some(steps) => steps.checked_mul(*stride)?.checked_add(1),
        });
        Some(IndexBox { offset: self.offset.clone(), extent: extent.collect::<Option<_>>()? })
    }

    /// The elements along an axis that lie in a box: their numbers in the slab.
    fn within(&self, of: &IndexBox, axis: usize) -> std::ops::Range<u64> {
        let (offset, stride) = (self.offset[axis], self.stride[axis]);
        let steps = |index: u64| index.saturating_sub(offset).div_ceil(stride);
        let end = steps(of.offset[axis] + of.extent[axis]).min(self.extent[axis]);
        steps(of.offset[axis]).min(end)..end
    }
}

/// An array of any type, or a slab of one. Returned by [`Checkpoint::read_array`] and [`Checkpoint::read_array_slab`], which
/// have examples.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredArray {
    /// Its name.
    pub name: String,
    /// The type of its elements.
    pub dtype: DType,
    /// The extent along each axis.
    pub shape: Shape,
    /// The order of the elements in memory.
    pub order: Order,
    /// The elements, in the order of the machine's bytes.
    pub bytes: Vec<u8>,
}

impl StoredArray {
    /// The elements, if they have that type.
    pub fn values<T: Element>(&self) -> Result<Vec<T>> {
        super::delivery::check_type(&self.name, self.dtype, T::DTYPE)?;
        filled(self.bytes.len() as u64 / self.dtype.size(), |to| {
            to.copy_from_slice(&self.bytes);
            Ok(())
        })
    }
}

impl Checkpoint {
    /// The elements of a slab, in the order of memory of its array. Indices are those of the global array if ranks
    /// saved parts of one, as in [`read_box`](Checkpoint::read_box). Only the frames that hold them are read.
    ///
    /// ```
    /// use treering::{Library, Options, Run, Slab, Variable};
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let store = folder.path().join("store");
    /// let grid: Vec<f64> = (0..600).map(f64::from).collect();
    /// let mut run = Run::open(Options::directory(&store, "grids"))?;
    /// run.checkpoint(7, &[Variable::new("grid", &grid).shaped(&[20, 30])])?;
    /// run.finish()?;
    /// let checkpoint = Library::open(&store)?.checkpoint("grids", Some(7))?;
    /// let slab = Slab::new(&[1, 0], &[2, 3]).stride(&[10, 5]);
    /// assert_eq!(checkpoint.read_slab::<f64>("grid", &slab)?, [30.0, 35.0, 40.0, 330.0, 335.0, 340.0]);
    /// # Ok::<(), treering::Error>(())
    /// ```
    pub fn read_slab<T: Element>(&self, name: &str, slab: &Slab) -> Result<Vec<T>> {
        let sources = self.checked_sources(name, Some(T::DTYPE), slab)?;
        let elements = slab.elements().unwrap_or(u64::MAX);
        filled(elements, |out| self.fill_slab(&sources, slab, out))
    }

    /// Reads the elements of a slab as [`read_slab`](Checkpoint::read_slab) does, into memory of the caller: `to` has as
    /// many elements as the slab. If name, type, slab or length do not fit, the error leaves `to` as it was. After any other
    /// error, for example of damaged data, the content of `to` is unspecified.
    pub fn read_slab_into<T: Element>(&self, name: &str, slab: &Slab, to: &mut [T]) -> Result<()> {
        let sources = self.checked_sources(name, Some(T::DTYPE), slab)?;
        let (elements, room) = (slab.elements(), to.len() as u64 * scalars_of::<T>());
        if elements != Some(room) {
            let elements = elements.unwrap_or(u64::MAX);
            let what = format!("a slab of {elements} values does not fit into {room}");
            return Err(Error::new(ErrorKind::Mismatch, what).at(format!("variable {name:?}")));
        }
        fill(to, |out| self.fill_slab(&sources, slab, out))
    }

    /// Reads a whole array of any type: the global one if ranks saved parts of one, or that of the only rank that has it.
    /// If several ranks have arrays of that name, [`of_rank`](Checkpoint::of_rank) selects one. Memory for all of its elements is allocated; without it, the error is of kind
    /// [`ErrorKind::Limit`](crate::ErrorKind::Limit).
    ///
    /// ```
    /// use treering::{DType, Library, Options, Run, Variable};
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let store = folder.path().join("store");
    /// let mut run = Run::open(Options::directory(&store, "rod"))?;
    /// run.checkpoint(7, &[Variable::new("heat", &[1.0f64, 2.0, 3.0])])?;
    /// run.finish()?;
    /// let heat = Library::open(&store)?.checkpoint("rod", None)?.read_array("heat")?;
    /// assert_eq!((heat.dtype, heat.values::<f64>()?), (DType::F64, vec![1.0, 2.0, 3.0]));
    /// # Ok::<(), treering::Error>(())
    /// ```
    pub fn read_array(&self, name: &str) -> Result<StoredArray> {
        let shape = self.sources(name)?.global.clone();
        self.read_array_slab(name, &Slab::new(&vec![0; shape.0.len()], &shape.0))
    }

    /// The elements of a slab of an array of any type, as [`read_slab`](Checkpoint::read_slab) reads those of a known type:
    /// only the frames that hold them are read. The shape of the result is the extent of the slab.
    ///
    /// ```
    /// use treering::{DType, Library, Options, Run, Shape, Slab, Variable};
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let store = folder.path().join("store");
    /// let grid: Vec<f32> = (0..600u16).map(f32::from).collect();
    /// let mut run = Run::open(Options::directory(&store, "grids"))?;
    /// run.checkpoint(7, &[Variable::new("grid", &grid).shaped(&[20, 30])])?;
    /// run.finish()?;
    /// let checkpoint = Library::open(&store)?.checkpoint("grids", Some(7))?;
    /// let part = checkpoint.read_array_slab("grid", &Slab::new(&[1, 0], &[2, 3]).stride(&[10, 5]))?;
    /// assert_eq!((part.dtype, &part.shape), (DType::F32, &Shape(vec![2, 3])));
    /// assert_eq!(part.values::<f32>()?, [30.0, 35.0, 40.0, 330.0, 335.0, 340.0]);
    /// # Ok::<(), treering::Error>(())
    /// ```
    pub fn read_array_slab(&self, name: &str, slab: &Slab) -> Result<StoredArray> {
        let sources = self.checked_sources(name, None, slab)?;
        let dtype = sources.dtype().ok_or_else(|| nothing_of(name))?;
        let bytes = slab.elements().and_then(|elements| elements.checked_mul(dtype.size()));
        let mut bytes = zeroed(bytes.unwrap_or(u64::MAX))?;
        let shape = Shape(slab.extent.clone());
        if slab.is_box() {
            let whole = IndexBox { offset: slab.offset.clone(), extent: slab.extent.clone() };
            self.read_sources(&sources, &whole, &mut bytes)?;
        } else {
            self.fill_slab(&sources, slab, &mut bytes)?;
        }
        // It may have been named without its file.
        let name = sources.entries.first().map_or(name, |source| &source.entry.description.name);
        Ok(StoredArray { name: name.to_string(), dtype, shape, order: sources.order, bytes })
    }

    /// Reads all arrays, each as [`read_array`](Checkpoint::read_array) does, except those that belong to one of several
    /// ranks alone, which [`of_rank`](Checkpoint::of_rank) reads. All of them are in memory at once. One array that cannot be
    /// read is an error of the whole call.
    pub fn read_arrays(&self) -> Result<Vec<StoredArray>> {
        let mut seen = BTreeSet::new();
        let mut arrays = Vec::new();
        for entry in self.entries().iter().filter(|entry| !entry.is_hidden()) {
            let Description { name, part, .. } = &entry.description;
            let is_wanted = match self.chosen_rank() {
                Some(rank) => entry.rank == rank,
                None => part.is_some() || self.manifest().ranks == 1,
            };
            if is_wanted && seen.insert(name.as_str()) {
                arrays.push(self.read_array(name)?);
            }
        }
        Ok(arrays)
    }

    fn checked_sources(
        &self,
        name: &str,
        dtype: Option<DType>,
        slab: &Slab,
    ) -> Result<ArraySources<'_>> {
        let sources = self.sources(name)?;
        let dtype = dtype.or(sources.dtype()).ok_or_else(|| nothing_of(name))?;
        let axes = sources.global.0.len();
        let fits = [&slab.offset, &slab.extent, &slab.stride].iter().all(|list| list.len() == axes);
        let cover = slab.cover().filter(|_| fits && !slab.stride.contains(&0));
        let cover = cover.ok_or_else(|| {
            Error::usage(format!("{slab:?} does not fit variable {name:?}"))
                .at(format!("shape {}", sources.global))
                .hint("give offset, extent and stride for each axis; a stride is 1 or more")
        })?;
        sources.check(name, dtype, &cover)?;
        Ok(sources)
    }

    fn fill_slab(&self, sources: &ArraySources, slab: &Slab, out: &mut [u8]) -> Result<()> {
        for ArraySource { owned, memory, entry } in &sources.entries {
            let mut runs = Vec::new();
            let read = |runs: &mut Vec<CommonRun>, out: &mut [u8]| {
                let done = self.read_runs(entry, runs, out);
                runs.clear();
                done
            };
            for_runs(slab, owned, memory, sources.order, |run| {
                runs.push(run);
                match runs.len() < RUNS {
                    true => Ok(()),
                    false => read(&mut runs, out),
                }
            })?;
            read(&mut runs, out)?;
        }
        Ok(())
    }
}

fn nothing_of(name: &str) -> Error {
    Error::new(ErrorKind::NotFound, format!("there is no variable {name:?}"))
}

/// The runs of elements of a slab that a rank owns, in the order of its memory.
fn for_runs(
    slab: &Slab,
    owned: &IndexBox,
    memory: &IndexBox,
    order: Order,
    mut each: impl FnMut(CommonRun) -> Result<()>,
) -> Result<()> {
    let mut axes: Vec<usize> = (0..slab.offset.len()).collect();
    if order == Order::Fortran {
        axes.reverse();
    }
    let ranges: Vec<_> = (0..axes.len()).map(|axis| slab.within(owned, axis)).collect();
    if ranges.iter().any(std::ops::Range::is_empty) {
        return Ok(());
    }
    // Along the fastest axis, elements that follow each other are one run.
    let whole = axes.last().copied().filter(|fastest| slab.stride[*fastest] == 1);
    let counted = match whole {
        Some(_) => &axes[..axes.len() - 1],
        None => &axes[..],
    };
    let len = whole.map_or(1, |fastest| ranges[fastest].end - ranges[fastest].start);
    let mut numbers: Vec<u64> = ranges.iter().map(|range| range.start).collect();
    loop {
        let index = |axis: usize| slab.offset[axis] + numbers[axis] * slab.stride[axis];
        let from = axes.iter().fold(0, |at, axis| {
            at * memory.extent[*axis] + index(*axis).wrapping_sub(memory.offset[*axis])
        });
        let to = axes.iter().fold(0, |at, axis| at * slab.extent[*axis] + numbers[*axis]);
        each(CommonRun { from, to, len })?;
        let next = counted.iter().rev().find(|axis| {
            numbers[**axis] += 1;
            let more = numbers[**axis] < ranges[**axis].end;
            if !more {
                numbers[**axis] = ranges[**axis].start;
            }
            more
        });
        if next.is_none() {
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn any_slab() -> impl Strategy<Value = (Vec<u64>, Slab)> {
        let axis = (1u64..9).prop_flat_map(|len| {
            (Just(len), 0..len, 1u64..4).prop_flat_map(|(len, offset, stride)| {
                let most = (len - offset).div_ceil(stride);
                (Just(len), Just(offset), 0..=most, Just(stride))
            })
        });
        prop::collection::vec(axis, 0..4).prop_map(|axes| {
            let shape = axes.iter().map(|axis| axis.0).collect();
            let slab = Slab {
                offset: axes.iter().map(|axis| axis.1).collect(),
                extent: axes.iter().map(|axis| axis.2).collect(),
                stride: axes.iter().map(|axis| axis.3).collect(),
            };
            (shape, slab)
        })
    }

    proptest! {
        /// Against the plain meaning: every element of the slab, found by its index.
        #[test]
        fn runs_are_the_elements_of_the_slab((shape, slab) in any_slab(), fortran: bool, cut in 0u64..9) {
            let order = if fortran { Order::Fortran } else { Order::C };
            let mut axes: Vec<usize> = (0..shape.len()).collect();
            if fortran {
                axes.reverse();
            }
            let place = |index: &[u64], extent: &[u64]| {
                axes.iter().fold(0, |at, axis| at * extent[*axis] + index[*axis])
            };
            // Two ranks, which have the array in two parts along the first axis.
            let first = cut.min(shape.first().copied().unwrap_or(0));
            let mut boxes = vec![IndexBox { offset: vec![0; shape.len()], extent: shape.clone() }];
            if !shape.is_empty() {
                let mut second = boxes[0].clone();
                (second.offset[0], second.extent[0]) = (first, shape[0] - first);
                boxes[0].extent[0] = first;
                boxes.push(second);
            }
            let elements = slab.elements().unwrap();
            let mut found = vec![None; elements as usize];
            for of in &boxes {
                let mut last = None;
                for_runs(&slab, of, of, order, |run| {
                    assert!(last.is_none_or(|last| run.from >= last));
                    last = Some(run.from + run.len);
                    for at in 0..run.len {
                        let before = found[(run.to + at) as usize].replace((of.clone(), run.from + at));
                        assert!(before.is_none());
                    }
                    Ok(())
                }).unwrap();
            }
            let mut number = vec![0u64; shape.len()];
            for _ in 0..elements {
                let index: Vec<u64> =
                    (0..shape.len()).map(|axis| slab.offset[axis] + number[axis] * slab.stride[axis]).collect();
                let (of, at) = found[place(&number, &slab.extent) as usize].clone().expect("every element");
                let local: Vec<u64> = index.iter().zip(&of.offset).map(|(i, o)| i - o).collect();
                prop_assert_eq!(at, place(&local, &of.extent));
                for axis in axes.iter().rev() {
                    number[*axis] += 1;
                    if number[*axis] < slab.extent[*axis] {
                        break;
                    }
                    number[*axis] = 0;
                }
            }
        }
    }
}
