//! Arrays that a run knows by name, so that they are saved and restored without being handed over each time.
//!
//! The program and the run share such an array: the program reads and changes it through guards, and the run borrows it for
//! the time of a call. A program in another language has no guards: it registers memory by address, with a contract
//! ([`RawArray`]).
//!
//! Laws: an array is never read while somebody changes it, nor filled while somebody reads it: the run refuses at once,
//! and never waits for a guard. An array whose change ended in a panic is not saved.

use super::strided::{Strided, StridedMut, ViewLayout, ViewPlace};
use super::{ArrayBytes, DType, Description, Element, Memory, Part, Shape, Variable, VariableMut};
use crate::error::{Error, Result};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard, TryLockError};

/// Memory that a run saves and fills without being passed it each time.
pub trait ArrayMemory: Send + Sync + 'static {
    /// The array, to be saved.
    #[doc(hidden)]
    fn variable(&self, name: &str) -> Variable<'_>;

    /// The array, to be filled.
    #[doc(hidden)]
    fn array(&mut self, name: &str, growing: bool) -> VariableMut<'_>;
}

/// Values that a program lends to a run: a `Vec` of elements, or a single element.
pub trait Protectable: ArrayMemory {}

impl<T: Element> Protectable for Vec<T> {}
impl<T: Element> ArrayMemory for Vec<T> {
    fn variable(&self, name: &str) -> Variable<'_> {
        Variable::new(name, self)
    }

    fn array(&mut self, name: &str, growing: bool) -> VariableMut<'_> {
        match growing {
            true => VariableMut::growing(name, self),
            false => VariableMut::new(name, self),
        }
    }
}

impl<T: Element> Protectable for T {}
impl<T: Element> ArrayMemory for T {
    fn variable(&self, name: &str) -> Variable<'_> {
        Variable::scalar(name, self)
    }

    fn array(&mut self, name: &str, _: bool) -> VariableMut<'_> {
        VariableMut::scalar(name, self)
    }
}

/// Completes the description of an array.
type Describe = dyn for<'a> Fn(Variable<'a>) -> Variable<'a> + Send + Sync;

/// The settings of a protected array.
#[derive(Clone, Default)]
struct ProtectedUse {
    describe: Option<Arc<Describe>>,
    growing: bool,
    optional: bool,
}

/// A protected array, as the program and its run share it.
struct ProtectedSlot<D> {
    name: String,
    data: RwLock<D>,
    usage: RwLock<ProtectedUse>,
}

/// The program's handle to an array that [`Run::protect`](crate::Run::protect) has registered.
///
/// The array is read and changed through guards. The run borrows it during calls that save or restore it; a guard that is
/// held meanwhile is an error of that call. The run keeps the array when the handle is dropped.
///
/// ```
/// use treering::{Options, Run};
/// # let folder = tempfile::tempdir().unwrap();
/// # let store = folder.path().join("store");
/// let mut run = Run::open(Options::directory(&store, "rod"))?;
/// let heat = run.protect("heat", vec![0.0f64; 600])?.describe(|heat| heat.shaped(&[20, 30]));
/// heat.write()[7] = 1.0;
/// assert_eq!(heat.read().iter().sum::<f64>(), 1.0);
/// # Ok::<(), treering::Error>(())
/// ```
pub struct Protected<D>(Arc<ProtectedSlot<D>>);

impl<D> Clone for Protected<D> {
    fn clone(&self) -> Self {
        Protected(self.0.clone())
    }
}

impl<D: ArrayMemory> Protected<D> {
    pub(crate) fn new(name: &str, data: D) -> Self {
        let (data, usage) = (RwLock::new(data), RwLock::default());
        Protected(Arc::new(ProtectedSlot { name: name.to_string(), data, usage }))
    }

    /// The run's side of it.
    pub(crate) fn shared(&self) -> Arc<dyn ProtectedArray> {
        self.0.clone()
    }

    fn change(&self, change: impl FnOnce(&mut ProtectedUse)) {
        change(&mut self.0.usage.write().unwrap_or_else(PoisonError::into_inner));
    }

    /// Completes the description of the array with the methods of [`Variable`]: shape, order, box, bound. The function is
    /// called at every checkpoint and restore with the array as it is then, so a shape can follow its length. Called again,
    /// it replaces the function before, for example when a rank gets another box.
    ///
    /// ```
    /// # use treering::{Bound, Options, Run};
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let mut run = Run::open(Options::directory(folder.path(), "rod"))?;
    /// let rows = run.protect("rows", vec![0.0f64; 300])?.growing().describe(|rows| {
    ///     let len = rows.description().shape.0[0];
    ///     rows.shaped(&[len / 3, 3]).error_bound(Bound::abs(1e-6))
    /// });
    /// # Ok::<(), treering::Error>(())
    /// ```
    pub fn describe(
        self,
        describe: impl for<'a> Fn(Variable<'a>) -> Variable<'a> + Send + Sync + 'static,
    ) -> Self {
        self.change(|usage| usage.describe = Some(Arc::new(describe)));
        self
    }

    /// Leaves the array as it is if a checkpoint does not have it; without this, that is an error of the restore.
    pub fn optional(self) -> Self {
        self.change(|usage| usage.optional = true);
        self
    }
}

impl<D: Protectable> Protected<D> {
    /// The array, to be read. Waits while another thread changes it.
    pub fn read(&self) -> RwLockReadGuard<'_, D> {
        self.0.data.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// The array, to be changed. Waits while another thread reads or changes it.
    ///
    /// If a panic ends the change, checkpoints of the array are refused until it is restored: its values may be half
    /// changed.
    pub fn write(&self) -> RwLockWriteGuard<'_, D> {
        self.0.data.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T: Element> Protected<Vec<T>> {
    /// Lets a restore give the array the stored length; without this, another length is an error.
    pub fn growing(self) -> Self {
        self.change(|usage| usage.growing = true);
        self
    }
}

/// A protected array of any type, as its run sees it.
pub(crate) trait ProtectedArray: Send + Sync {
    fn name(&self) -> &str;
    /// Borrows it to be saved; an error if somebody changes it.
    fn lend(&self) -> Result<Box<dyn LentArray + '_>>;
    /// Borrows it to be filled; an error if somebody uses it.
    fn lend_mut(&self) -> Result<Box<dyn LentArrayMut + '_>>;
}

/// An array that is borrowed to be saved.
pub(crate) trait LentArray {
    fn variable(&self) -> Variable<'_>;
}

/// An array that is borrowed to be filled.
pub(crate) trait LentArrayMut {
    fn array(&mut self) -> VariableMut<'_>;
}

struct ReadArray<'a, D> {
    data: RwLockReadGuard<'a, D>,
    name: &'a str,
    usage: ProtectedUse,
}

struct FilledArray<'a, D> {
    data: RwLockWriteGuard<'a, D>,
    name: &'a str,
    usage: ProtectedUse,
}

impl ProtectedUse {
    fn described<'a>(&self, variable: Variable<'a>) -> Variable<'a> {
        match &self.describe {
            Some(describe) => describe(variable),
            None => variable,
        }
    }
}

impl<D: ArrayMemory> LentArray for ReadArray<'_, D> {
    fn variable(&self) -> Variable<'_> {
        self.usage.described(self.data.variable(self.name))
    }
}

impl<D: ArrayMemory> LentArrayMut for FilledArray<'_, D> {
    fn array(&mut self) -> VariableMut<'_> {
        let described = self.usage.described(self.data.variable(self.name)).description;
        let mut array = self.data.array(self.name, self.usage.growing).described_as(&described);
        array.optional = self.usage.optional;
        array
    }
}

impl<D: ArrayMemory> ProtectedSlot<D> {
    fn usage(&self) -> ProtectedUse {
        self.usage.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn in_use(&self, what: &str) -> Error {
        Error::usage(format!("variable {:?} is in use while it is to be {what}", self.name))
            .hint("drop the guards of Protected::read and Protected::write before the call")
    }
}

impl<D: ArrayMemory> ProtectedArray for ProtectedSlot<D> {
    fn name(&self) -> &str {
        &self.name
    }

    fn lend(&self) -> Result<Box<dyn LentArray + '_>> {
        let data = match self.data.try_read() {
            Ok(data) => data,
            Err(TryLockError::WouldBlock) => return Err(self.in_use("saved")),
            Err(TryLockError::Poisoned(_)) => {
                let what = format!("a change of variable {:?} ended in a panic", self.name);
                return Err(Error::usage(what)
                    .hint("its values may be half changed: restore it, or protect it again"));
            }
        };
        Ok(Box::new(ReadArray { data, name: &self.name, usage: self.usage() }))
    }

    fn lend_mut(&self) -> Result<Box<dyn LentArrayMut + '_>> {
        // All of it is filled anew.
        self.data.clear_poison();
        let data = self.data.try_write().map_err(|_| self.in_use("restored"))?;
        Ok(Box::new(FilledArray { data, name: &self.name, usage: self.usage() }))
    }
}

impl VariableMut<'_> {
    /// Takes shape, order and box of a description; an array that grows takes its shape from what is stored.
    fn described_as(mut self, like: &Description) -> Self {
        self.take_order(like.order);
        self.description.part = like.part.clone().filter(|part| matches!(part, Part::Box(_)));
        if !self.memory.grows() {
            (self.description.shape, self.is_shaped) = (like.shape.clone(), true);
        }
        self
    }
}

/// Memory that another language owns, by its address. Registered by [`Run::protect_raw`](crate::Run::protect_raw), which
/// has an example.
///
/// The caller promises that the memory of all elements stays valid and initialized as long as this exists, that it is not
/// changed while it is saved, and that it is not used while it is filled.
pub struct RawArray {
    dtype: DType,
    shape: Vec<u64>,
    first: *mut u8,
    bytes: usize,
    /// The places of elements that do not lie one behind another, and of those that need a look before they are filled in.
    layout: ViewLayout,
    is_strided: bool,
}

// SAFETY: the memory may be used by any thread, as whoever made it has promised.
unsafe impl Send for RawArray {}
// SAFETY: as above; shared references to it only read.
unsafe impl Sync for RawArray {}

impl RawArray {
    /// Describes memory that begins at `first`; `strides` count elements, and without them the elements lie one behind
    /// another. An error if no memory can be that large.
    ///
    /// # Safety
    /// See [`Run::protect_raw`](crate::Run::protect_raw).
    pub(crate) unsafe fn new(
        dtype: DType,
        shape: &[u64],
        strides: Option<&[i64]>,
        first: *mut u8,
    ) -> Result<RawArray> {
        let size = dtype.size() as usize;
        let most = isize::MAX as u64 / size as u64;
        let elements = Shape(shape.to_vec()).elements().filter(|elements| *elements <= most);
        let Some(elements) = elements else {
            return Err(Error::usage(format!(
                "an array of shape {shape:?} does not fit into memory"
            )));
        };
        if first.is_null() && elements > 0 {
            return Err(Error::usage("the address of the array is null"));
        }
        let layout = match strides {
            Some(strides) => {
                let place = ViewPlace::new(size, shape, strides.to_vec());
                ViewLayout::new(&place, most, most)?
            }
            None => ViewLayout::contiguous(size, elements),
        };
        let bytes = elements as usize * size;
        let is_strided = strides.is_some();
        Ok(RawArray { dtype, shape: shape.to_vec(), first, bytes, layout, is_strided })
    }
}

impl ArrayMemory for RawArray {
    fn variable(&self, name: &str) -> Variable<'_> {
        let mut variable = Variable::from_bytes(name, self.dtype, &self.shape, &[]);
        // SAFETY: the memory is valid and nobody changes it meanwhile, as whoever made this has promised; the layout
        // was checked.
        variable.bytes = unsafe {
            match self.is_strided {
                _ if self.bytes == 0 => ArrayBytes::Whole(&[]),
                true => ArrayBytes::Strided(Strided::raw(self.first, self.layout.clone())),
                false => ArrayBytes::Whole(std::slice::from_raw_parts(self.first, self.bytes)),
            }
        };
        variable
    }

    fn array(&mut self, name: &str, _: bool) -> VariableMut<'_> {
        let mut array = VariableMut::from_bytes(name, self.dtype, &self.shape, &mut []);
        // SAFETY: as above, and nobody uses the memory meanwhile.
        array.memory = unsafe {
            match self.is_strided || self.dtype == DType::Bool {
                _ if self.bytes == 0 => Memory::Fixed(&mut []),
                true => {
                    let flags = self.dtype == DType::Bool;
                    Memory::Strided(StridedMut::raw(self.first, self.layout.clone(), flags))
                }
                false => Memory::Fixed(std::slice::from_raw_parts_mut(self.first, self.bytes)),
            }
        };
        array
    }
}
