//! Rust types that are elements of arrays, and memory of them that a restore fills.
//!
//! Numbers lie in memory as they are stored, and are filled in place. A `bool` may be nothing but 0 and 1 in memory,
//! whatever a store holds; so bytes are filled beside it, and taken over at the end of every call that fills arrays
//! ([`settled`]): what is not 0 is true.
//!
//! Laws: whatever bytes come, an element is a valid value of its type at any time. Memory has no `Drop`, so that a program
//! can read its arrays while the list of them is in scope.

use super::strided::StridedMut;
use super::{DType, VariableMut};
use crate::error::{Error, ErrorKind, Result};
use crate::memory::zeroed;
use bytemuck::{Pod, Zeroable};

mod sealed {
    /// Only types whose size is that of their [`DType`](crate::DType) are elements.
    pub trait Sealed {}
}
use sealed::Sealed;

/// A Rust type that is an element of an array: a number, a `bool`, or an array `[T; N]` of numbers, which is one more
/// axis of N (a `Vec<[f64; 3]>` of 100 positions has the shape 100×3). With the features `num-complex` and `half` these
/// are `Complex<f32>`, `Complex<f64>`, `f16` and `bf16`, too. Other types are passed as bytes with their
/// [`DType`], see [`Variable::from_bytes`](crate::Variable::from_bytes).
///
/// ```
/// use treering::{DType, Element, Variable};
/// fn described<T: Element>(data: &[T]) -> (DType, Vec<u64>) {
///     let variable = Variable::new("x", data);
///     let description = variable.description();
///     (description.dtype, description.shape.0.clone())
/// }
/// assert_eq!(described(&[0.0f64; 100]), (DType::F64, vec![100]));
/// assert_eq!(described(&[[0.0f32; 3]; 100]), (DType::F32, vec![100, 3])); // positions: one more axis
/// assert_eq!(described(&[true; 8]), (DType::Bool, vec![8]));
/// ```
///
/// No other crate can add types: one whose size is not that of its [`DType`] would be read wrong.
///
/// ```compile_fail,E0277
/// #[derive(Clone, Copy)]
/// struct Particle(u8);
/// let _ = treering::Variable::new("x", &[Particle(1)]);
/// ```
///
/// ```compile_fail,E0603
/// #[derive(Clone, Copy)]
/// struct Particle(u8);
/// impl treering::array::element::sealed::Sealed for Particle {}
/// ```
pub trait Element: Copy + Zeroable + Send + Sync + Sealed + 'static {
    /// The stored type.
    const DTYPE: DType;

    /// Adds the axes that an element has itself.
    #[doc(hidden)]
    fn axes(_axes: &mut Vec<u64>) {}

    /// The bytes of elements.
    #[doc(hidden)]
    fn bytes(data: &[Self]) -> &[u8];

    /// The memory of elements.
    #[doc(hidden)]
    fn memory(data: &mut [Self]) -> Memory<'_>;

    /// Memory that takes the length of what is stored.
    #[doc(hidden)]
    fn growing(data: &mut Vec<Self>) -> Memory<'_>;
}

macro_rules! plain_element {
    () => {
        fn bytes(data: &[Self]) -> &[u8] {
            bytemuck::cast_slice(data)
        }

        fn memory(data: &mut [Self]) -> Memory<'_> {
            Memory::Fixed(bytemuck::cast_slice_mut(data))
        }

        fn growing(data: &mut Vec<Self>) -> Memory<'_> {
            Memory::Growing(data)
        }
    };
}

macro_rules! elements {
    ($($t:ty => $d:ident),* $(,)?) => { $(
        impl Sealed for $t {}
        impl Element for $t {
            const DTYPE: DType = DType::$d;
            plain_element!();
        }
    )* };
}
elements! {
    u8 => U8, i8 => I8, u16 => U16, i16 => I16, u32 => U32, i32 => I32, u64 => U64, i64 => I64,
    f32 => F32, f64 => F64,
}
#[cfg(feature = "num-complex")]
elements! { num_complex::Complex<f32> => C64, num_complex::Complex<f64> => C128 }
#[cfg(feature = "half")]
elements! { half::f16 => F16, half::bf16 => BF16 }

impl<T: Sealed, const N: usize> Sealed for [T; N] {}
impl<T: Element + Pod, const N: usize> Element for [T; N] {
    const DTYPE: DType = T::DTYPE;

    fn axes(axes: &mut Vec<u64>) {
        axes.push(N as u64);
        T::axes(axes);
    }

    plain_element!();
}

impl Sealed for bool {}
impl Element for bool {
    const DTYPE: DType = DType::Bool;

    fn bytes(data: &[Self]) -> &[u8] {
        bytemuck::cast_slice(data)
    }

    fn memory(data: &mut [Self]) -> Memory<'_> {
        Memory::Flags(Self::bytes(data).to_vec(), data)
    }

    fn growing(data: &mut Vec<Self>) -> Memory<'_> {
        Memory::GrowingFlags(Self::bytes(data).to_vec(), data)
    }
}

/// The memory that a restore fills.
#[doc(hidden)]
pub enum Memory<'a> {
    Fixed(&'a mut [u8]),
    /// The bytes that are filled, and what they become.
    Flags(Vec<u8>, &'a mut [bool]),
    Strided(StridedMut<'a>),
    Growing(&'a mut dyn Grow),
    GrowingFlags(Vec<u8>, &'a mut Vec<bool>),
}

impl Memory<'_> {
    pub(crate) fn bytes(&mut self) -> &mut [u8] {
        match self {
            Memory::Fixed(bytes) => bytes,
            Memory::Flags(bytes, _) | Memory::GrowingFlags(bytes, _) => bytes,
            Memory::Strided(view) => &mut view.bytes,
            Memory::Growing(growing) => growing.bytes(),
        }
    }

    /// Takes this many numbers; false if it cannot grow.
    pub(super) fn resize(&mut self, scalars: u64) -> Result<bool> {
        match self {
            Memory::Fixed(_) | Memory::Flags(..) | Memory::Strided(_) => return Ok(false),
            Memory::Growing(growing) => growing.resize(scalars)?,
            Memory::GrowingFlags(bytes, flags) => {
                resize(bytes, scalars)?;
                resize(flags, scalars)?;
            }
        }
        Ok(true)
    }

    pub(super) fn grows(&self) -> bool {
        matches!(self, Memory::Growing(_) | Memory::GrowingFlags(..))
    }

    /// Takes the bytes over.
    pub(super) fn settle(&mut self) {
        let (bytes, flags): (&[u8], &mut [bool]) = match self {
            Memory::Fixed(_) | Memory::Growing(_) => return,
            Memory::Strided(view) => return view.settle(),
            Memory::Flags(bytes, flags) => (bytes, flags),
            Memory::GrowingFlags(bytes, flags) => (bytes, flags),
        };
        flags.iter_mut().zip(bytes).for_each(|(flag, byte)| *flag = *byte != 0);
    }

    /// Its bytes, if their number is fixed.
    pub(super) fn len(&self) -> Option<usize> {
        match self {
            Memory::Fixed(bytes) => Some(bytes.len()),
            Memory::Flags(bytes, _) => Some(bytes.len()),
            Memory::Strided(view) => Some(view.bytes.len()),
            Memory::Growing(_) | Memory::GrowingFlags(..) => None,
        }
    }
}

/// An array that takes the size of the stored one.
#[doc(hidden)]
pub trait Grow {
    /// Takes this many numbers.
    fn resize(&mut self, scalars: u64) -> Result<()>;
    /// The bytes that are filled.
    fn bytes(&mut self) -> &mut [u8];
}

/// The numbers of an element.
pub(crate) fn scalars_of<T: Element>() -> u64 {
    let mut axes = Vec::new();
    T::axes(&mut axes);
    axes.iter().product()
}

/// The elements that this many numbers are.
fn elements<T: Element>(scalars: u64) -> Result<u64> {
    let each = scalars_of::<T>();
    match scalars.checked_rem(each) {
        Some(0) => Ok(scalars / each),
        _ => {
            let what = format!("{scalars} values are not a whole number of elements of {each}");
            Err(Error::new(ErrorKind::Mismatch, what))
        }
    }
}

/// New elements of this many numbers, whose bytes are filled.
pub(crate) fn filled<T: Element>(
    scalars: u64,
    fill: impl FnOnce(&mut [u8]) -> Result<()>,
) -> Result<Vec<T>> {
    let mut data: Vec<T> = zeroed(elements::<T>(scalars)?)?;
    let mut memory = T::memory(&mut data);
    fill(memory.bytes())?;
    memory.settle();
    Ok(data)
}

/// Fills memory that is there.
pub(crate) fn fill<T: Element>(
    data: &mut [T],
    fill: impl FnOnce(&mut [u8]) -> Result<()>,
) -> Result<()> {
    let mut memory = T::memory(data);
    let done = fill(memory.bytes());
    memory.settle();
    done
}

/// Ends a call that has filled arrays, or tried to.
pub(crate) fn settled<T>(done: Result<T>, arrays: &mut [VariableMut]) -> Result<T> {
    arrays.iter_mut().for_each(|array| array.memory.settle());
    done
}

fn resize<T: Element>(data: &mut Vec<T>, scalars: u64) -> Result<()> {
    let elements = elements::<T>(scalars)?;
    let more = (elements as usize).saturating_sub(data.len());
    data.try_reserve_exact(more).map_err(|_| {
        Error::new(ErrorKind::Limit, format!("there is no memory for {elements} elements"))
    })?;
    data.resize(elements as usize, T::zeroed());
    Ok(())
}

impl<T: Element + Pod> Grow for Vec<T> {
    fn resize(&mut self, scalars: u64) -> Result<()> {
        resize(self, scalars)
    }

    fn bytes(&mut self) -> &mut [u8] {
        bytemuck::cast_slice_mut(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every scalar type, and that the list is whole.
    #[test]
    fn an_element_has_the_size_of_its_type() {
        let mut seen = Vec::new();
        macro_rules! sizes {
            ($($t:ty),* $(,)?) => { $(
                assert_eq!(size_of::<$t>() as u64, <$t>::DTYPE.size(), "{:?}", <$t>::DTYPE);
                seen.push(<$t>::DTYPE);
            )* };
        }
        sizes!(u8, i8, u16, i16, u32, i32, u64, i64, f32, f64, bool);
        #[cfg(feature = "num-complex")]
        sizes!(num_complex::Complex<f32>, num_complex::Complex<f64>);
        #[cfg(feature = "half")]
        sizes!(half::f16, half::bf16);
        if cfg!(all(feature = "num-complex", feature = "half")) {
            // Bytes are handed over as such.
            seen.push(DType::Bytes);
            let missing: Vec<_> = DType::ALL.iter().filter(|d| !seen.contains(d)).collect();
            assert!(missing.is_empty(), "{missing:?}");
        }
    }

    #[test]
    fn arrays_are_axes_and_take_whole_elements_only() {
        let mut axes = vec![7];
        <[[f64; 3]; 2]>::axes(&mut axes);
        assert_eq!(axes, [7, 2, 3]);
        assert_eq!(scalars_of::<[[f64; 3]; 2]>(), 6);
        let positions = filled::<[f32; 3]>(6, |bytes| {
            bytes.copy_from_slice(bytemuck::cast_slice(&[1f32, 2., 3., 4., 5., 6.]));
            Ok(())
        });
        assert_eq!(positions.unwrap(), [[1., 2., 3.], [4., 5., 6.]]);
        assert_eq!(filled::<[f32; 3]>(7, |_| Ok(())).unwrap_err().kind(), ErrorKind::Mismatch);
        assert!(filled::<[f32; 0]>(0, |_| Ok(())).is_err());
    }

    #[test]
    fn whatever_bytes_come_flags_are_true_or_false() {
        let mut flags = [true, false, true];
        let mut memory = bool::memory(&mut flags);
        assert_eq!((memory.len(), &*memory.bytes()), (Some(3), &[1u8, 0, 1][..]));
        memory.bytes().copy_from_slice(&[0, 255, 2]);
        memory.settle();
        assert_eq!(flags, [false, true, true]);
        let mut growing = vec![true];
        let mut memory = bool::growing(&mut growing);
        assert!(memory.resize(4).unwrap());
        assert_eq!(memory.bytes(), [1, 0, 0, 0]);
        memory.bytes()[2] = 77;
        memory.settle();
        assert_eq!(growing, [true, false, true, false]);
        // Bytes that are not taken over leave what was there.
        bool::memory(&mut flags).bytes().fill(9);
        assert_eq!(flags, [false, true, true]);
    }
}
