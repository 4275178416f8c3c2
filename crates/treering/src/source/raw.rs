//! Raw files: values without a description. The user describes them, as one type for the
//! whole file or as a layout of fields in a small TOML file; bytes that no field covers are kept as they are.

use super::Extent;
use super::found::{FoundArray, Placement};
use crate::array::{DType, Shape};
use crate::error::{Error, Result};
use crate::store::Blob;
use serde::Deserialize;
use std::collections::HashSet;

/// Layout of raw files: one type for all values, or named fields.
///
/// ```
/// use treering::{DType, RawLayout, Shape};
/// let grid = RawLayout::values(DType::F64, Some(Shape(vec![64, 64]))); // as `--type f64 --shape 64,64`
/// let state = RawLayout::parse(
///     r#"
///     [[field]]
///     name = "density"
///     type = "f64"
///     shape = [64, 64]
///     offset = 512 # bytes
///     "#,
/// )?; // as `--layout state.toml`
/// # assert!(grid != state);
/// # Ok::<(), treering::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RawLayout {
    fields: Vec<RawField>,
    /// Whether the fields have to be the whole file.
    whole: bool,
}

/// An array of a raw file.
#[derive(Clone, Debug, PartialEq, Eq)]
struct RawField {
    /// Name of the field. Default: the name of the file.
    name: Option<String>,
    dtype: DType,
    /// Shape. Default: one axis, up to the next field.
    shape: Option<Shape>,
    /// Offset in bytes. Default: the end of the field before.
    offset: Option<u64>,
    big_endian: bool,
    fortran: bool,
}

/// The text of a layout.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Text {
    #[serde(default)]
    field: Vec<TextField>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TextField {
    name: String,
    r#type: String,
    shape: Option<Vec<u64>>,
    offset: Option<u64>,
    #[serde(default)]
    big_endian: bool,
    #[serde(default)]
    fortran: bool,
}

impl RawLayout {
    /// A file of nothing but values of one type, little-endian; one axis of all there are without a
    /// shape.
    pub fn values(dtype: DType, shape: Option<Shape>) -> Self {
        let field =
            RawField { name: None, dtype, shape, offset: None, big_endian: false, fortran: false };
        RawLayout { fields: vec![field], whole: true }
    }

    /// Reads a layout: `[[field]]` tables with `name`, `type` and, if need be, `shape` (slowest axis
    /// first), `offset` (in bytes), `big_endian` and `fortran` (the first axis is the fastest).
    pub fn parse(text: &str) -> Result<Self> {
        const HINT: &str = "write it as in\n  [[field]]\n  name = \"density\"\n  type = \"f64\"\n  \
                            shape = [64, 64]\n  offset = 512";
        let bad = |why: String| Error::usage(format!("invalid layout: {why}")).hint(HINT);
        let text: Text = toml::from_str(text).map_err(|e| bad(e.to_string().trim().to_string()))?;
        if text.field.is_empty() {
            return Err(bad("it has no [[field]]".into()));
        }
        let field = |field: TextField| {
            let dtype = DType::ALL.iter().find(|dtype| dtype.name() == field.r#type);
            let dtype = dtype.copied().ok_or_else(|| {
                let names: Vec<&str> = DType::ALL.iter().map(|dtype| dtype.name()).collect();
                bad(format!("unknown type {:?}; the types are {}", field.r#type, names.join(", ")))
            })?;
            let (name, shape) = (Some(field.name), field.shape.map(Shape));
            let (big_endian, fortran) = (field.big_endian, field.fortran);
            Ok(RawField { name, dtype, shape, offset: field.offset, big_endian, fortran })
        };
        let mut names = HashSet::new();
        if let Some(twice) = text.field.iter().find(|field| !names.insert(field.name.clone())) {
            return Err(bad(format!("two fields are named {:?}", twice.name)));
        }
        let fields = text.field.into_iter().map(field).collect::<Result<_>>()?;
        Ok(RawLayout { fields, whole: false })
    }

    /// Whether its fields have names of their own.
    pub(super) fn has_names(&self) -> bool {
        self.fields.iter().all(|field| field.name.is_some())
    }

    /// The fields of a file.
    pub(super) fn find(&self, whole: &Extent, stem: &str) -> Result<Vec<FoundArray>> {
        let (mut all, mut end) = (Vec::new(), 0);
        for (at, field) in self.fields.iter().enumerate() {
            let start = field.offset.unwrap_or(end);
            let next = self.fields.get(at + 1).and_then(|next| next.offset);
            let found = field.find(whole.size(), start, next, stem)?;
            if start < end {
                return Err(Error::usage(format!(
                    "field {:?} begins at byte {start}, where the one before has not ended ({end})",
                    found.description.name
                ))
                .hint("fields stand in the order of the file and do not overlap"));
            }
            end = start + found.bytes();
            all.push(found);
        }
        match self.whole && end != whole.size() {
            true => Err(self.fields[0].too_much(&all[0], whole.size())),
            false => Ok(all),
        }
    }
}

impl RawField {
    fn find(&self, size: u64, start: u64, next: Option<u64>, stem: &str) -> Result<FoundArray> {
        let name = self.name.as_deref().unwrap_or(stem);
        let room = next.unwrap_or(size).min(size).saturating_sub(start);
        let all = || Shape(vec![room / self.dtype.size()]);
        let shape = self.shape.clone().unwrap_or_else(all);
        let found = FoundArray::new(
            name,
            self.dtype,
            shape.0,
            self.big_endian,
            Placement::Plain { at: start },
        )?;
        let found = found.ordered(self.fortran);
        if start.checked_add(found.bytes()).is_none_or(|end| end > size) {
            return Err(match self.name {
                None => self.too_much(&found, size),
                Some(_) => Error::usage(format!(
                    "field {name:?} takes {} bytes from byte {start} on, but the file has {size}",
                    found.bytes()
                ))
                .hint("check the layout: type, shape and offset"),
            });
        }
        Ok(found)
    }

    /// A file that is not as long as its values.
    fn too_much(&self, found: &FoundArray, size: u64) -> Error {
        match self.shape {
            None => Error::usage(format!(
                "{size} bytes are not a whole number of {} values",
                self.dtype
            ))
            .hint("give the type that the file was written with"),
            Some(_) => Error::usage(format!(
                "{} values of type {} take {} bytes, but the file has {size}",
                found.description.shape,
                self.dtype,
                found.bytes(),
            ))
            .hint("give the shape that the file was written with"),
        }
    }
}
