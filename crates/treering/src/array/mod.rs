//! Named typed arrays as they are handed over by a program: the type, the shape, the bytes, and
//! where a rank's part lies in a global array.
//!
//! A variable is a description and a view of bytes in the machine's (little-endian) order; nothing here
//! copies them. Everything is checked once, by [`Description::check`], before any other module sees it.
//! Values that are to be kept within a bound are rounded by [`Rounding`] on their way.

mod bound;
mod boxes;
mod element;
pub(crate) mod float_env;
mod ids;
mod labels;
mod part;
mod protected;
mod rounding;
mod strided;
#[cfg(feature = "ndarray")]
mod views;

pub use bound::Bound;
pub(crate) use boxes::{CommonRun, IndexBox};
pub use element::Element;
use element::Memory;
pub(crate) use element::{fill, filled, scalars_of, settled};
pub use ids::{GroupId, Rank, Sequence, Step, VariableKey};
pub use labels::Labels;
pub use part::{Ghosts, GlobalBox, Part};
pub(crate) use protected::{LentArray, LentArrayMut, ProtectedArray};
pub use protected::{Protectable, Protected, RawArray};
pub(crate) use rounding::{Marks, whole};
pub use rounding::{Rounding, Spacing};
pub(crate) use strided::ArrayBytes;
use strided::{Strided, StridedMut, ViewPlace};

use crate::error::{Error, ErrorKind, Result};
use std::fmt;

macro_rules! dtypes {
    ($($variant:ident $name:literal $size:literal $code:literal),* $(,)?) => {
        /// The type of one element.
        ///
        /// ```
        /// use treering::{DType, Variable};
        /// let heat = vec![0.0f64; 1000];
        /// let variable = Variable::new("heat", &heat);
        /// assert_eq!(variable.description().dtype, DType::F64);
        /// assert_eq!((DType::F64.size(), DType::F64.name()), (8, "f64"));
        /// ```
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        #[allow(missing_docs)]
        pub enum DType { $($variant),* }

        impl DType {
            /// All types.
            pub const ALL: &'static [DType] = &[$(DType::$variant),*];

            /// The size of one element in bytes.
            pub fn size(self) -> u64 { match self { $(DType::$variant => $size),* } }

            /// The name used in tables and JSON, such as `f64`.
            pub fn name(self) -> &'static str { match self { $(DType::$variant => $name),* } }

            pub(crate) fn code(self) -> u8 { match self { $(DType::$variant => $code),* } }

            pub(crate) fn from_code(code: u8) -> Option<DType> {
                match code { $($code => Some(DType::$variant),)* _ => None }
            }
        }
    };
}

dtypes! {
    U8 "u8" 1 1, I8 "i8" 1 2, U16 "u16" 2 3, I16 "i16" 2 4, U32 "u32" 4 5, I32 "i32" 4 6,
    U64 "u64" 8 7, I64 "i64" 8 8, F16 "f16" 2 9, BF16 "bf16" 2 10, F32 "f32" 4 11, F64 "f64" 8 12,
    C64 "c64" 8 13, C128 "c128" 16 14, Bool "bool" 1 15, Bytes "bytes" 1 16,
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(feature = "tools")]
impl serde::Serialize for DType {
    fn serialize<S: serde::Serializer>(&self, s: S) -> std::result::Result<S::Ok, S::Error> {
        s.serialize_str(self.name())
    }
}

/// The most axes an array may have.
pub const MAX_AXES: usize = 32;
/// The longest name of a variable, in bytes.
pub const MAX_NAME: usize = 1024;

/// The extent of an array along each axis, in the order of indices; no axes is a scalar.
///
/// ```
/// use treering::Shape;
/// let shape = Shape(vec![200, 300]);
/// assert_eq!((shape.elements(), shape.to_string()), (Some(60_000), "200×300".to_string()));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "tools", derive(serde::Serialize))]
pub struct Shape(pub Vec<u64>);

impl Shape {
    /// The number of elements, or `None` beyond 2^64.
    pub fn elements(&self) -> Option<u64> {
        self.0.iter().try_fold(1u64, |n, &e| n.checked_mul(e))
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str("scalar");
        }
        let extents: Vec<String> = self.0.iter().map(u64::to_string).collect();
        f.write_str(&extents.join("×"))
    }
}

/// The order of the elements of an array in memory.
///
/// ```
/// use treering::{Order, Variable};
/// let grid = vec![0.0f64; 12];
/// let grid = Variable::new("grid", &grid).shaped(&[3, 4]).fortran();
/// assert_eq!(grid.description().order, Order::Fortran); // the first axis, of extent 3, is the fastest
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "tools", derive(serde::Serialize), serde(rename_all = "lowercase"))]
pub enum Order {
    /// The last axis is the fastest, as in C and NumPy.
    #[default]
    C,
    /// The first axis is the fastest, as in Fortran.
    Fortran,
}

/// The description of a variable: everything but its bytes.
///
/// ```
/// use treering::Variable;
/// let grid = vec![0.0f32; 12];
/// let variable = Variable::new("grid", &grid).shaped(&[3, 4]);
/// let description = variable.description();
/// assert_eq!((&description.name[..], description.bytes()), ("grid", Some(48)));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "tools", derive(serde::Serialize))]
pub struct Description {
    /// The name; unique within a checkpoint and rank.
    pub name: String,
    /// The element type.
    pub dtype: DType,
    /// The extent along each axis, in the order of indices.
    pub shape: Shape,
    /// The order of the elements in memory.
    pub order: Order,
    /// The relation to the variables of other ranks; `None` if it belongs to its rank alone.
    pub part: Option<Part>,
    /// Texts about it by their keys, such as its units.
    pub attributes: Labels,
}

impl Description {
    /// Whether both are of the same array: equal in everything but attributes.
    pub(crate) fn is_same_array(&self, other: &Description) -> bool {
        (&self.name, self.dtype, &self.shape) == (&other.name, other.dtype, &other.shape)
            && (self.order, &self.part) == (other.order, &other.part)
    }

    /// The extents in the order of memory: the slowest axis first.
    pub fn extents(&self) -> Vec<u64> {
        let mut extents = self.shape.0.clone();
        if self.order == Order::Fortran {
            extents.reverse();
        }
        extents
    }

    /// Whether the elements of two arrays of the same shape lie in the same order.
    pub fn is_ordered_as(&self, other: &Description) -> bool {
        self.order == other.order || self.shape.0.iter().filter(|extent| **extent > 1).count() < 2
    }

    /// The length in bytes, by type and shape; `None` beyond 2^64.
    pub fn bytes(&self) -> Option<u64> {
        self.shape.elements()?.checked_mul(self.dtype.size())
    }

    /// Refuses invalid names, shapes and parts.
    pub fn check(&self) -> Result<u64> {
        let wrong = |what: String| Err(Error::usage(what).at(format!("variable {:?}", self.name)));
        if self.name.is_empty() || self.name.len() > MAX_NAME {
            return wrong(format!("a name has 1 to {MAX_NAME} bytes"));
        }
        if self.name.chars().any(char::is_control) {
            return wrong("a name has no control characters".into());
        }
        if self.shape.0.len() > MAX_AXES {
            return wrong(format!("an array has at most {MAX_AXES} axes"));
        }
        let fault = match &self.part {
            Some(Part::Box(part)) => part.fault(&self.shape),
            Some(Part::Rows) if self.shape.0.is_empty() => Some("a scalar has no rows".into()),
            _ => None,
        };
        if let Some(fault) = fault {
            return wrong(fault);
        }
        self.attributes.check().map_err(|e| e.at(format!("variable {:?}", self.name)))?;
        match self.bytes() {
            Some(bytes) => Ok(bytes),
            None => wrong("the shape has more than 2^64 bytes".into()),
        }
    }

    /// Refuses anything but the same type, shape, order and part; the error names the difference.
    pub fn expect(&self, stored: &Description) -> Result<()> {
        let differs = |what: &str, a: String, b: String| {
            Err(Error::new(
                ErrorKind::Mismatch,
                format!("variable {:?} has {what} {a} here but {b} in the checkpoint", self.name),
            )
            .hint("restore into arrays of the stored type and shape; `treering show` lists them"))
        };
        if self.dtype != stored.dtype {
            return differs("type", self.dtype.to_string(), stored.dtype.to_string());
        }
        if self.shape != stored.shape {
            return differs("shape", self.shape.to_string(), stored.shape.to_string());
        }
        if !self.is_ordered_as(stored) {
            let order = |description: &Description| format!("{:?}", description.order);
            return differs("order", order(self), order(stored));
        }
        // Whether an array is the same on all ranks, or rows of a global one, is the choice of who saved it.
        if self.global_box() != stored.global_box() {
            let shown = |of: &Description| match of.global_box() {
                Some(part) => format!("{:?} of {}", part.offset, part.global),
                None => "none".to_string(),
            };
            return differs("box", shown(self), shown(stored));
        }
        Ok(())
    }

    /// The box of a global array, if it is one.
    pub fn global_box(&self) -> Option<&GlobalBox> {
        match &self.part {
            Some(Part::Box(part)) => Some(part),
            _ => None,
        }
    }

    /// The number of rows and the elements of each: rows lie along the slowest axis.
    pub(crate) fn rows(&self) -> (u64, u64) {
        let extents = self.extents();
        let rows = extents.first().copied().unwrap_or(1);
        (rows, extents.iter().skip(1).fold(1, |n: u64, extent| n.saturating_mul(*extent)))
    }

    fn put_in(&mut self, global: &[u64], offset: &[u64]) {
        let ghosts = self.global_box().and_then(|part| part.ghosts.clone());
        let global = Shape(global.to_vec());
        self.part = Some(Part::Box(GlobalBox { global, offset: offset.to_vec(), ghosts }));
    }

    fn surround(&mut self, low: &[u64], high: &[u64]) {
        let none = GlobalBox { global: Shape(Vec::new()), offset: Vec::new(), ghosts: None };
        let part = self.global_box().cloned().unwrap_or(none);
        self.part = Some(Part::Box(GlobalBox { ghosts: Ghosts::new(low, high), ..part }));
    }
}

/// An array to be saved: its name, type and shape, and a view of its elements. Nothing is copied when it is made.
///
/// ```
/// use treering::Variable;
/// let (grid, time) = (vec![0.0f32; 200 * 300], 1.5f64);
/// let state = [
///     Variable::new("grid", &grid).shaped(&[200, 300]), // C order; `Variable::strided` for views
///     Variable::scalar("time", &time),
/// ];
/// assert_eq!(state[0].description().shape.to_string(), "200×300");
/// ```
///
/// A name may have up to 1024 bytes, and must be unique on its rank. Whether length and shape agree is checked by
/// [`Run::checkpoint`](crate::Run::checkpoint).
#[derive(Clone, Debug)]
pub struct Variable<'a> {
    pub(crate) description: Description,
    pub(crate) bytes: ArrayBytes<'a>,
    error_bound: Option<Bound>,
    pub(crate) constant: bool,
    /// Whether the last axes are those of elements that are arrays.
    inner: bool,
}

impl<'a> Variable<'a> {
    /// A one-dimensional array.
    ///
    /// ```
    /// use treering::Variable;
    /// let grid = vec![0.0f64; 12];
    /// let variable = Variable::new("grid", &grid).shaped(&[3, 4]);
    /// ```
    pub fn new<T: Element>(name: &str, data: &'a [T]) -> Self {
        let description = described::<T>(name, data.len());
        let inner = description.shape.0.len() > 1;
        Variable {
            description,
            bytes: ArrayBytes::Whole(T::bytes(data)),
            error_bound: None,
            constant: false,
            inner,
        }
    }

    /// A single value: an array without axes.
    ///
    /// ```
    /// use treering::Variable;
    /// let time = 0.25f64;
    /// let variable = Variable::scalar("time", &time);
    /// assert_eq!(variable.description().shape.to_string(), "scalar");
    /// ```
    pub fn scalar<T: Element>(name: &str, value: &'a T) -> Self {
        let mut variable = Variable::new(name, std::slice::from_ref(value));
        variable.description.shape.0.remove(0);
        variable
    }

    /// An array of any type, from its bytes; for types without an equivalent in Rust.
    pub fn from_bytes(name: &str, dtype: DType, shape: &[u64], bytes: &'a [u8]) -> Self {
        let mut description = flat(name, dtype, 0);
        description.shape = Shape(shape.to_vec());
        let bytes = ArrayBytes::Whole(bytes);
        Variable { description, bytes, error_bound: None, constant: false, inner: false }
    }

    /// A strided view of `data`, whose elements are not contiguous: it begins with element `offset`, has the shape `shape`,
    /// and neighbours along each axis are `strides` elements apart. It is stored in C order. Changes are found without a copy
    /// of the view; trees, replicas and the comparison with a reference make one. A view that reaches beyond `data` is an
    /// error.
    ///
    /// ```
    /// use treering::Variable;
    /// let grid = vec![0.0f64; 40 * 30];
    /// // Every other column of rows 5 to 9: 5×15.
    /// let view = Variable::strided("view", &grid, 5 * 30, &[5, 15], &[30, 2])?;
    /// # Ok::<(), treering::Error>(())
    /// ```
    pub fn strided<T: Element>(
        name: &str,
        data: &'a [T],
        offset: u64,
        shape: &[u64],
        strides: &[i64],
    ) -> Result<Self> {
        let place = ViewPlace::of::<T>(offset, shape, strides);
        let view = place.and_then(|place| Strided::new(T::bytes(data), &place));
        let mut variable = Variable::new(name, data);
        variable.bytes = ArrayBytes::Strided(view.map_err(|e| e.at(format!("variable {name:?}")))?);
        variable.description.shape.0.splice(..1, shape.iter().copied());
        variable.inner = false;
        Ok(variable)
    }

    /// Gives the array another shape, with as many elements.
    #[must_use]
    pub fn shaped(mut self, shape: &[u64]) -> Self {
        (self.description.shape, self.inner) = (Shape(shape.to_vec()), false);
        self
    }

    /// Declares Fortran order: the first axis is the fastest in memory. The shape and all indices stay in
    /// the order in which the program writes them; of elements `[T; N]` without another shape, N is the first axis. The
    /// elements of a strided view keep their indices and are stored in Fortran order.
    #[must_use]
    pub fn fortran(mut self) -> Self {
        if std::mem::replace(&mut self.description.order, Order::Fortran) == Order::C {
            if self.inner {
                self.description.shape.0.reverse();
            }
            if let ArrayBytes::Strided(view) = &mut self.bytes {
                view.reverse();
            }
        }
        self
    }

    /// Declares the array as a box of a global array. `offset` is the index of the first element that this rank owns.
    #[must_use]
    pub fn part_of(mut self, global: &[u64], offset: &[u64]) -> Self {
        self.description.put_in(global, offset);
        self
    }

    /// Declares ghost cells around the elements that this rank owns, in the box of [`part_of`](Self::part_of): their number
    /// before (`low`) and behind (`high`) the owned elements on each axis. The shape counts all cells, the offset is that of
    /// the first owned one.
    ///
    /// Ghost cells are stored as well, and a restore into the same box returns them bit for bit. Only owned
    /// elements count for the global array: together, the ranks must own each of its elements once.
    ///
    /// ```
    /// use treering::Variable;
    /// let u = vec![0.0f64; 12 * 11];
    /// // 10 × 10 owned elements, from (0, 20) on; a ghost row on both sides, a ghost column before.
    /// let variable = Variable::new("u", &u)
    ///     .shaped(&[12, 11])
    ///     .part_of(&[100, 100], &[0, 20])
    ///     .ghosts(&[1, 1], &[1, 0]);
    /// ```
    #[must_use]
    pub fn ghosts(mut self, low: &[u64], high: &[u64]) -> Self {
        self.description.surround(low, high);
        self
    }

    /// Declares the variable as equal on all ranks: a time step, parameters, the state of a random number generator.
    /// All ranks pass it to the checkpoint; they compare digests of it before anything is saved, and a difference is an
    /// error on all of them. Rank 0 stores it, and it is restored on every rank, for any number of ranks.
    ///
    /// ```
    /// use treering::Variable;
    /// let dt = [1e-3f64];
    /// let variable = Variable::new("dt", &dt).same();
    /// ```
    #[must_use]
    pub fn same(mut self) -> Self {
        self.description.part = Some(Part::Same);
        self
    }

    /// Declares the elements as rows of a global array: those of rank 0, then those of rank 1, and so on. No rank needs
    /// to know how many rows the others have, or how many there are. Rows lie along the slowest axis: the first one,
    /// or the last one in Fortran order.
    ///
    /// Restored on as many ranks ([`VariableMut::growing`]), every rank gets its own rows back. On another number
    /// the rows are split evenly, in order: of N rows, rank r of P gets those from N·r/P up to N·(r+1)/P, so that
    /// arrays with as many rows are split in the same way. [`redistribute`](crate::redistribute) then brings each
    /// row to the rank that wants it.
    ///
    /// ```
    /// use treering::Variable;
    /// let positions = vec![0.5f64; 3 * 1000];
    /// let variable = Variable::new("positions", &positions).shaped(&[1000, 3]).rows();
    /// ```
    #[must_use]
    pub fn rows(mut self) -> Self {
        self.description.part = Some(Part::Rows);
        self
    }

    /// Lossy: stores values that differ from these by an absolute or a relative bound at most, and take
    /// fewer bytes. Without a bound, the values are stored bit for bit. The array itself
    /// is not touched. Only f32, f64 and complex variables can have a bound.
    ///
    /// **Caution**: a number that stands for something else, such as −9999 for land, is rounded as any other: give such a
    /// variable no bound.
    ///
    /// ```
    /// use treering::{Bound, Variable};
    /// let pressure = vec![101_325.25f64; 12];
    /// let variable = Variable::new("pressure", &pressure).error_bound(Bound::abs(0.01));
    /// ```
    #[must_use]
    pub fn error_bound(mut self, bound: Bound) -> Self {
        self.error_bound = Some(bound);
        self
    }

    /// Adds an attribute: a text about the variable, such as its units. It is stored with every checkpoint, shown by
    /// `treering show`, and exported to HDF5 and Zarr. With several ranks, all of them give the same. Keys have 1 to 64
    /// bytes, values up to 1,024; there are at most 64, of 4,096 bytes together.
    ///
    /// ```
    /// use treering::Variable;
    /// let heat = vec![293.15f64; 12];
    /// let variable = Variable::new("heat", &heat).attribute("units", "K").attribute("level", 3);
    /// assert_eq!(variable.description().attributes.get("level"), Some("3"));
    /// ```
    #[must_use]
    pub fn attribute(mut self, key: &str, value: impl fmt::Display) -> Self {
        self.description.attributes.set(key, value);
        self
    }

    /// Promises that the program does not change the array while its address is the same: points that are clustered, a
    /// mesh. Replicas in memory ([`Options::replicas`](crate::Options::replicas)) are then kept without hashing all of it
    /// again. A sixty-fourth of the array is checked each time, in turns. A change that is found is an error of
    /// [`ReplicaStore`](crate::ReplicaStore); in a run, replicas are then not kept, and a note reports it. After a restore
    /// the whole array is checked. Checkpoints find changes of it as of any other array.
    #[must_use]
    pub fn constant(mut self) -> Self {
        self.constant = true;
        self
    }

    /// The description: name, type, shape, order and part.
    pub fn description(&self) -> &Description {
        &self.description
    }

    /// The rounding of its values within the bound, if there is one.
    pub(crate) fn rounding(&self) -> Result<Option<Rounding>> {
        let rounding = |bound| Rounding::new(bound, self.description.dtype);
        let named = |e: Error| e.at(format!("variable {:?}", self.description.name));
        self.error_bound.map(rounding).transpose().map_err(named)
    }

    pub(crate) fn check(&self) -> Result<()> {
        check_length(&self.description, self.bytes.len())?;
        self.rounding().map(drop)
    }
}

/// An array to be filled by a restore. Name, type and shape must be those of the stored variable, or it is an error.
///
/// ```
/// use treering::VariableMut;
/// let (mut grid, mut particles, mut salt) = (vec![0.0f32; 60], Vec::<f64>::new(), vec![0.0f64; 60]);
/// let state = [
///     VariableMut::new("grid", &mut grid).shaped(&[6, 10]),
///     VariableMut::growing("particles", &mut particles), // gets the stored length
///     VariableMut::new("salt", &mut salt).optional(), // may be missing: it then stays as it is
/// ];
/// ```
pub struct VariableMut<'a> {
    description: Description,
    memory: Memory<'a>,
    optional: bool,
    /// The axes of elements that are arrays, and whether another shape was given.
    inner: Vec<u64>,
    is_shaped: bool,
}

impl<'a> VariableMut<'a> {
    /// A one-dimensional array; the stored one must have the same length.
    pub fn new<T: Element>(name: &str, data: &'a mut [T]) -> Self {
        let description = described::<T>(name, data.len());
        let inner = description.shape.0[1..].to_vec();
        VariableMut {
            description,
            memory: T::memory(data),
            optional: false,
            inner,
            is_shaped: false,
        }
    }

    /// A single value, as [`Variable::scalar`] saves it.
    ///
    /// ```
    /// use treering::VariableMut;
    /// let mut time = 0.0f64;
    /// let variable = VariableMut::scalar("time", &mut time);
    /// ```
    pub fn scalar<T: Element>(name: &str, value: &'a mut T) -> Self {
        let mut variable = VariableMut::new(name, std::slice::from_mut(value));
        variable.description.shape.0.remove(0);
        variable
    }

    /// An array that is resized to the length of the stored one. The elements of a stored array of several
    /// dimensions are filled in the order of memory.
    ///
    /// ```
    /// use treering::VariableMut;
    /// let mut particles: Vec<f64> = Vec::new();
    /// let variable = VariableMut::growing("particles", &mut particles);
    /// ```
    pub fn growing<T: Element>(name: &str, data: &'a mut Vec<T>) -> Self {
        let description = described::<T>(name, data.len());
        let inner = description.shape.0[1..].to_vec();
        VariableMut {
            description,
            memory: T::growing(data),
            optional: false,
            inner,
            is_shaped: false,
        }
    }

    /// A strided view of an array, as [`Variable::strided`] saves it; the bytes between its elements stay as they are.
    ///
    /// ```
    /// use treering::VariableMut;
    /// let mut grid = vec![0.0f64; 40 * 30];
    /// let view = VariableMut::strided("view", &mut grid, 5 * 30, &[5, 15], &[30, 2])?;
    /// # Ok::<(), treering::Error>(())
    /// ```
    pub fn strided<T: Element>(
        name: &str,
        data: &'a mut [T],
        offset: u64,
        shape: &[u64],
        strides: &[i64],
    ) -> Result<Self> {
        let mut description = described::<T>(name, data.len());
        description.shape.0.splice(..1, shape.iter().copied());
        let place = ViewPlace::of::<T>(offset, shape, strides);
        let view = place.and_then(|place| StridedMut::new(data, &place));
        let view = view.map_err(|error| error.at(format!("variable {name:?}")))?;
        let memory = Memory::Strided(view);
        Ok(VariableMut { description, memory, optional: false, inner: Vec::new(), is_shaped: true })
    }

    /// An array of any type, into its bytes.
    pub fn from_bytes(name: &str, dtype: DType, shape: &[u64], bytes: &'a mut [u8]) -> Self {
        let mut description = flat(name, dtype, 0);
        description.shape = Shape(shape.to_vec());
        VariableMut {
            description,
            memory: Memory::Fixed(bytes),
            optional: false,
            inner: Vec::new(),
            is_shaped: true,
        }
    }

    /// Gives the array another shape, with as many elements.
    #[must_use]
    pub fn shaped(mut self, shape: &[u64]) -> Self {
        self.description.shape = Shape(shape.to_vec());
        self.is_shaped = true;
        self
    }

    /// Declares Fortran order, as [`Variable::fortran`] does.
    #[must_use]
    pub fn fortran(mut self) -> Self {
        let is_new = self.description.order == Order::C;
        if is_new && !self.inner.is_empty() && !self.is_shaped {
            self.description.shape.0.reverse();
        }
        self.take_order(Order::Fortran);
        self
    }

    /// Takes an order; the elements of a strided view keep their indices.
    fn take_order(&mut self, order: Order) {
        if std::mem::replace(&mut self.description.order, order) != order
            && let Memory::Strided(view) = &mut self.memory
        {
            view.reverse();
        }
    }

    /// Declares the array as a box of a global array. `offset` is the index of the first element that this rank owns.
    #[must_use]
    pub fn part_of(mut self, global: &[u64], offset: &[u64]) -> Self {
        self.description.put_in(global, offset);
        self
    }

    /// Declares ghost cells of the box, as [`Variable::ghosts`] does. If it is not the box that this rank saved,
    /// ghost cells inside of the global array get the values of the ranks that owned these elements, and all others
    /// (beyond the edge, or periodic) are left as they are.
    #[must_use]
    pub fn ghosts(mut self, low: &[u64], high: &[u64]) -> Self {
        self.description.surround(low, high);
        self
    }

    /// Leaves the array as it is if the checkpoint does not have it; without this, that is an error.
    #[must_use]
    pub fn optional(mut self) -> Self {
        self.optional = true;
        self
    }

    pub(crate) fn name(&self) -> &str {
        &self.description.name
    }

    pub(crate) fn description(&self) -> &Description {
        &self.description
    }

    /// Whether the stored variable is just this one.
    pub(crate) fn is_as(&self, stored: &Description) -> bool {
        match self.memory.grows() {
            true => self.description.dtype == stored.dtype,
            false => self.description.expect(stored).is_ok(),
        }
    }

    pub(crate) fn is_optional(&self) -> bool {
        self.optional
    }

    pub(crate) fn bytes(&mut self) -> &mut [u8] {
        self.memory.bytes()
    }

    /// Refuses invalid descriptions.
    pub(crate) fn check(&mut self) -> Result<()> {
        match self.memory.len() {
            Some(len) => check_length(&self.description, len),
            None => self.description.check().map(drop),
        }
    }

    /// Takes another number of elements, if it can.
    pub(crate) fn resize(&mut self, elements: u64) -> Result<()> {
        match self.memory.resize(elements)? {
            true => Ok(()),
            false => {
                let what = format!("variable {:?} has a fixed length", self.description.name);
                Err(Error::usage(what).hint("use VariableMut::growing"))
            }
        }
    }

    /// Takes the extent of the stored variable, or refuses it.
    pub(crate) fn fit(&mut self, stored: &Description) -> Result<()> {
        if self.memory.grows() {
            let (name, inner) = (&self.description.name, Shape(self.inner.clone()));
            if stored.shape.0.len() > 1 && !stored.extents().ends_with(&inner.0) {
                let what = format!(
                    "variable {name:?} is an array of arrays of {inner} here, but has the shape {} in the checkpoint",
                    stored.shape
                );
                return Err(Error::new(ErrorKind::Mismatch, what)
                    .hint("restore into arrays of the stored shape; `treering show` lists them"));
            }
            self.description.shape = stored.shape.clone();
            self.description.part = stored.part.clone();
            self.description.expect(stored)?;
            self.resize(stored.shape.elements().unwrap_or(u64::MAX))?;
        }
        self.description.expect(stored)
    }
}

/// The description of a slice: an axis for its elements, and theirs.
fn described<T: Element>(name: &str, len: usize) -> Description {
    let mut description = flat(name, T::DTYPE, len);
    T::axes(&mut description.shape.0);
    description
}

fn flat(name: &str, dtype: DType, len: usize) -> Description {
    let (shape, order) = (Shape(vec![len as u64]), Order::C);
    let attributes = Labels::default();
    Description { name: name.to_string(), dtype, shape, order, part: None, attributes }
}

fn check_length(description: &Description, len: usize) -> Result<()> {
    let wanted = description.check()?;
    if wanted != len as u64 {
        return Err(Error::usage(format!(
            "variable {:?} of type {} and shape {} needs {wanted} bytes, but {len} were given",
            description.name, description.dtype, description.shape
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_unique_and_return() {
        for &dtype in DType::ALL {
            assert_eq!(DType::from_code(dtype.code()), Some(dtype));
        }
        assert_eq!(DType::from_code(0), None);
    }

    #[test]
    fn shapes_that_do_not_fit_are_refused() {
        let data = [0f32; 6];
        assert!(Variable::new("x", &data).shaped(&[2, 3]).check().is_ok());
        assert!(Variable::new("x", &data).shaped(&[2, 4]).check().is_err());
        assert!(Variable::new("", &data).check().is_err());
        assert!(Variable::new("a\nb", &data).check().is_err());
        assert!(Variable::new("x", &data).shaped(&[u64::MAX, 2]).check().is_err());
        assert!(Variable::new("x", &data).part_of(&[10], &[4]).check().is_ok());
        assert!(Variable::new("x", &data).part_of(&[10], &[5]).check().is_err());
        assert!(Variable::new("x", &data).part_of(&[10], &[u64::MAX]).check().is_err());
        let ghosts = |low: &[u64], high: &[u64], offset: u64| {
            Variable::new("x", &data).ghosts(low, high).part_of(&[10], &[offset]).check()
        };
        assert!(ghosts(&[1], &[2], 7).is_ok() && ghosts(&[1], &[2], 8).is_err());
        assert!(ghosts(&[3], &[3], 10).is_ok() && ghosts(&[4], &[3], 0).is_err());
        assert!(ghosts(&[1, 1], &[1], 0).is_err() && ghosts(&[u64::MAX], &[1], 0).is_err());
        assert!(Variable::new("x", &data).ghosts(&[1], &[1]).check().is_err());
        assert!(Variable::new("x", &data[..1]).shaped(&[]).rows().check().is_err());
    }
}
