//! Raw files: nothing but values of one type.

use super::Extent;
use super::found::{Found, Place};
use crate::array::{DType, Shape};
use crate::error::{Error, Result};
use crate::store::Blob;

/// What the values of a raw file are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RawType {
    /// The type of one value, little-endian.
    pub dtype: DType,
    /// The extent; one axis of all there are unless told.
    pub shape: Option<Shape>,
}

impl RawType {
    pub(super) fn find(&self, whole: &Extent, name: &str) -> Result<Found> {
        let size = self.dtype.size();
        let elements = whole.size() / size;
        let shape = self.shape.clone().unwrap_or(Shape(vec![elements]));
        let found = Found::new(name, self.dtype, shape.0, false, Place::Plain { at: 0 })?;
        let wanted = found.bytes();
        match wanted == whole.size() {
            true => Ok(found),
            false if self.shape.is_none() => Err(Error::usage(format!(
                "{} bytes are no whole number of {} values",
                whole.size(),
                self.dtype
            ))
            .hint("give the type that the file was written with")),
            false => Err(Error::usage(format!(
                "{} values of type {} take {wanted} bytes, but the file has {}",
                found.description.shape,
                self.dtype,
                whole.size()
            ))
            .hint("give the shape that the file was written with")),
        }
    }
}
