//! The arrays and other content of a file, listed without ingesting it.

use super::sides::named_object;
use crate::array::Shape;
use crate::compare::FileSide;
use crate::compare::Side;
use crate::error::Result;
use crate::source::{RawLayout, printable, printable_value};
use serde::Serialize;
use std::path::Path;

/// The content of a file: its arrays as comparison sees them, and everything else.
///
/// ```
/// use treering::{DType, FileListing, RawLayout, Shape};
/// # let folder = tempfile::tempdir().unwrap();
/// # let file = folder.path().join("x.f64").display().to_string();
/// # std::fs::write(&file, [0u8; 800]).unwrap();
/// let raw = RawLayout::values(DType::F64, None); // most formats describe themselves and need none
/// let listing = FileListing::read(&file, Some(&raw))?.expect("the file is there");
/// assert_eq!(listing.arrays[0].shape, Shape(vec![100]));
/// # Ok::<(), treering::Error>(())
/// ```
#[derive(Clone, Debug, Serialize)]
pub struct FileListing {
    /// The format, in a word.
    pub format: String,
    /// Arrays; of records, each member is one.
    pub arrays: Vec<ListedArray>,
    /// Groups, attributes, links, types, texts: names, and values as far as they are short.
    pub contents: Vec<(String, String)>,
}

/// An array of a file: one of [`FileListing::arrays`]. [`FileListing`] has an example.
#[derive(Clone, Debug, Serialize)]
pub struct ListedArray {
    /// The name in the file.
    pub name: String,
    /// The type, or the kind of values that are not numbers.
    pub kind: String,
    /// The extent.
    pub shape: Shape,
    /// The reason why its values cannot be read, if they cannot.
    pub unread: Option<String>,
}

impl FileListing {
    /// Lists a file, or an object of it (`FILE:NAME`); `None` if there is no such file. `raw` is the layout of a file that
    /// does not describe itself.
    pub fn read(place: &str, raw: Option<&RawLayout>) -> Result<Option<FileListing>> {
        let side = match named_object(place) {
            Some((file, object)) => FileSide::open_object(file, object, raw, false, false)?,
            None if Path::new(place).is_file() => FileSide::open(Path::new(place), raw, false)?,
            None => return Ok(None),
        };
        let (mut format, mut contents) = (String::new(), Vec::new());
        let entries = side.entries(None)?;
        for file in side.files(None)? {
            let all = file.inventory()?;
            let array = |item: &str| entries.iter().any(|entry| entry.is_object(item));
            let items = all.items().filter(|(item, _)| !array(item));
            contents.extend(items.map(|(item, value)| (printable(item), printable_value(value))));
            let unknown = all.unknown().iter();
            contents.extend(unknown.map(|(item, why)| {
                (printable(item), format!("not understood: {}", printable_value(why)))
            }));
            format = all.format;
        }
        let arrays = entries.iter().map(|entry| ListedArray {
            name: entry.description.name.clone(),
            kind: entry.type_name().to_string(),
            shape: entry.description.shape.clone(),
            unread: entry.why_unread().map(|why| why.to_string()),
        });
        Ok(Some(FileListing { format, arrays: arrays.collect(), contents }))
    }
}
