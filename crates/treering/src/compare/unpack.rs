//! Packed integers, compared by the values that they stand for: number × `scale_factor` + `add_offset`, in f64.
//!
//! Values that stand for none (`_FillValue`, `missing_value`) become NaN. Integers are taken with or without a sign as
//! `_Unsigned` says. Trees of the packed numbers do not serve. Numbers that cannot be unpacked are not compared: the same
//! ones may stand for different values, and others that no f64 equals for the same.

use super::side::{FileContent, FileView, SideEntry, Unread};
use crate::array::DType;
use crate::error::{Error, Result};
use crate::format::variable_name;
use crate::source::{PackedNumbers, is_integer, number, packed_arrays, real};
use crate::store::{Blob, read_each};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Unpacks the variables of a side whose files say how; their names behind those of the files.
pub(super) fn unpack(entries: &mut [SideEntry], files: &[FileView]) -> Result<BTreeSet<String>> {
    let mut names = BTreeSet::new();
    for file in files {
        let content = (file.open)()?.content;
        let arrays = match &content {
            FileContent::Whole(whole, _) => packed_arrays(whole)?,
            FileContent::View(view) => view.packed_arrays()?,
            FileContent::Beside(..) | FileContent::Unread => continue,
        };
        let only = arrays.len() == 1;
        for (name, packed) in arrays.iter().filter_map(|(n, p)| Some((n, p.as_ref()?))) {
            let of_file = entries.iter_mut().filter(|entry| entry.is_in(file));
            for entry in of_file.filter(|e| is_array(e.array_name(), name, only)) {
                entry.unpack(packed);
                names.insert(variable_name(&file.name, name));
                // Its attributes are those of all that is compared.
                if matches!(&content, FileContent::View(view) if view.is_array(name)) {
                    names.insert(file.name.clone());
                }
            }
        }
    }
    Ok(names)
}

/// Whether a variable is an array of a file. In stores of early releases, the only one was named after the file.
fn is_array(own: &str, array: &str, only: bool) -> bool {
    own == array || only && own.is_empty()
}

impl<'a> SideEntry<'a> {
    /// Whether it is an array of this file.
    fn is_in(&self, file: &FileView) -> bool {
        let name = self.origin.as_ref().map(|origin| &origin.file);
        self.rank == file.rank && name == Some(&file.name)
    }

    /// The variable as the values that it represents, or as one that cannot be read.
    fn unpack(&mut self, packed: &PackedNumbers) {
        if self.unread.is_some() {
            return;
        }
        let from = self.description.dtype;
        let why = match from {
            _ if packed.dtype != from => "they are stored in another type",
            _ if packed.read_as.is_none() => "their attribute _Unsigned is neither true nor false",
            DType::C64 | DType::C128 => "they are complex",
            _ => "",
        };
        if !why.is_empty() {
            let why = Error::usage(format!("its numbers cannot be unpacked: {why}"))
                .hint("compare without --unpack, or leave the variable out with --exclude");
            self.unread = Some(Unread::from(why));
            return;
        }
        self.description.dtype = DType::F64;
        self.trees.clear();
        let unpacked = |inner| -> Arc<dyn Blob + 'a> {
            Arc::new(UnpackedValues { inner, packed: packed.clone() })
        };
        self.values = self.values.take().map(unpacked);
    }
}

/// Packed numbers, read as the values that they stand for.
struct UnpackedValues<'a> {
    inner: Arc<dyn Blob + 'a>,
    packed: PackedNumbers,
}

const UNPACKED: u64 = size_of::<f64>() as u64;

impl Blob for UnpackedValues<'_> {
    fn store(&self) -> &str {
        self.inner.store()
    }

    fn size(&self) -> u64 {
        self.inner.size() / self.packed.dtype.size() * UNPACKED
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        let narrow = self.packed.dtype.size();
        let end = offset + buffer.len() as u64;
        let (first, last) = (offset / UNPACKED, end.div_ceil(UNPACKED));
        let mut numbers = crate::memory::zeroed((last - first) * narrow)?;
        self.inner.read_at(first * narrow, &mut numbers)?;
        let mut values = Vec::with_capacity(((last - first) * UNPACKED) as usize);
        for raw in numbers.chunks_exact(narrow as usize) {
            values.extend(unpacked(&self.packed, raw)?.to_le_bytes());
        }
        let from = (offset - first * UNPACKED) as usize;
        buffer.copy_from_slice(&values[from..][..buffer.len()]);
        Ok(())
    }

    fn read_many(&self, ranges: &mut [(u64, &mut [u8])]) -> Result<()> {
        read_each(self, ranges)
    }

    fn in_order(&self) -> bool {
        self.inner.in_order()
    }

    fn file(&self) -> Option<(&std::fs::File, &std::path::Path, u64)> {
        None
    }
}

/// The value that a number stands for.
fn unpacked(packed: &PackedNumbers, raw: &[u8]) -> Result<f64> {
    if packed.marks.iter().any(|mark| mark == raw) {
        return Ok(f64::NAN);
    }
    let mut word = [0; 8];
    word[..raw.len()].copy_from_slice(raw);
    let bits = u64::from_le_bytes(word);
    let number = match packed.read_as.unwrap_or(packed.dtype) {
        float @ (DType::F16 | DType::BF16 | DType::F32 | DType::F64) => number(float, bits),
        integer if is_integer(integer) => f64::from_bits(real(integer, bits)?),
        _ => bits as f64,
    };
    Ok(number * packed.scale + packed.offset)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_stand_for_values() {
        let marks = vec![(-9i16).to_le_bytes().to_vec()];
        let (dtype, read_as) = (DType::I16, Some(DType::I16));
        let packed = PackedNumbers { dtype, read_as, scale: 0.5, offset: 10.0, marks };
        let value = |packed: &PackedNumbers, raw: &[u8]| unpacked(packed, raw).unwrap();
        assert_eq!(value(&packed, &(-3i16).to_le_bytes()), 8.5);
        assert!(value(&packed, &(-9i16).to_le_bytes()).is_nan());
        let unsigned = PackedNumbers { read_as: Some(DType::U16), ..packed.clone() };
        assert_eq!(value(&unsigned, &(-3i16).to_le_bytes()), 32776.5);
        assert!(value(&unsigned, &(-9i16).to_le_bytes()).is_nan());
        let (dtype, read_as) = (DType::U8, Some(DType::U8));
        let packed = PackedNumbers { dtype, read_as, ..packed };
        assert_eq!(value(&packed, &[255]), 137.5);
        let signed = PackedNumbers { read_as: Some(DType::I8), ..packed.clone() };
        assert_eq!(value(&signed, &[255]), 9.5);
        let (dtype, read_as) = (DType::I64, Some(DType::I64));
        let long = PackedNumbers { dtype, read_as, ..packed };
        assert_eq!(value(&long, &(-1i64 << 60).to_le_bytes()), -(2f64.powi(59)) + 10.0);
        assert!(unpacked(&long, &((1i64 << 53) + 1).to_le_bytes()).is_err());
    }

    #[test]
    fn variables_have_the_names_of_arrays() {
        for (own, array, only, answer) in
            [("x", "x", false, true), ("g/x", "x", true, false), ("", "x", true, true)]
        {
            assert_eq!(is_array(own, array, only), answer, "{own} {array}");
        }
        assert!(!is_array("", "x", false));
    }
}
