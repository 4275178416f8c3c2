//! Known properties of values: their type and layout.

use super::chain::CodecStep;
use super::columns::TableShape;
use super::lorenzo::{LorenzoGrid, Reckoning};
use crate::array::{DType, Description, Rounding, Spacing};

/// Type and layout of the bytes of a frame, as far as known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Nature {
    /// Their type.
    pub dtype: DType,
    /// Values that belong together: the length of a short last axis, or 1.
    pub record: u8,
    /// Records of a row, 0 if there is one axis only.
    pub row: u32,
    /// Records of a plane, 0 if there are two axes at most.
    pub plane: u32,
    /// Spacing whose multiples most values are, if they were rounded.
    pub spacing: Option<Spacing>,
}

/// A last axis up to this length holds the parts of a record.
const MAX_RECORD: u64 = 16;

impl Nature {
    /// Bytes of which nothing is known.
    pub const BYTES: Nature =
        Nature { dtype: DType::Bytes, record: 1, row: 0, plane: 0, spacing: None };

    /// Values of a type one after another.
    pub fn flat(dtype: DType) -> Nature {
        Nature { dtype, ..Nature::BYTES }
    }

    /// That of a variable.
    pub fn of(description: &Description) -> Nature {
        let axes = description.extents();
        let axes = &axes[axes.iter().take_while(|len| **len <= 1).count()..];
        let (record, axes) = match axes.split_last() {
            Some((last, rest)) if !rest.is_empty() && (2..=MAX_RECORD).contains(last) => {
                (*last as u8, rest)
            }
            _ => (1, axes),
        };
        let fits = |len: u64| u32::try_from(len).unwrap_or(0);
        let row = axes.last().filter(|_| axes.len() > 1).map_or(0, |row| fits(*row));
        let plane = match axes {
            [_, .., a, b] if row > 0 => fits(a.saturating_mul(*b)),
            _ => 0,
        };
        Nature { dtype: description.dtype, record, row, plane, spacing: None }
    }

    /// Type and layout of values that were rounded.
    #[must_use]
    pub fn rounded(self, rounding: Option<&Rounding>) -> Nature {
        Nature { spacing: rounding.and_then(Rounding::spacing), ..self }
    }

    /// Whether values are predicted from rows or planes or known by their rows, which have to stay as they are for that.
    pub(crate) fn has_rows(self) -> bool {
        self.has_planes() || self.row > 0 && self.rows().is_some()
    }

    /// Whether values are predicted from rows or planes.
    pub(crate) fn has_planes(self) -> bool {
        self.row > 0 && self.is_float()
    }

    /// The step that takes rows of integers out, if there are any long enough.
    pub(super) fn rows(self) -> Option<CodecStep> {
        self.table(false).and_then(TableShape::rows)
    }

    /// The size of one number; complex ones have two.
    pub(super) fn number(self) -> u8 {
        match self.dtype {
            DType::C64 => 4,
            DType::C128 => 8,
            other => other.size() as u8,
        }
    }

    /// Distance, in numbers, between two of the same meaning.
    pub(super) fn stride(self) -> u8 {
        let complex = matches!(self.dtype, DType::C64 | DType::C128);
        self.record * if complex { 2 } else { 1 }
    }

    /// The step that splits the parts of records, if there are records.
    pub(super) fn split(self) -> Option<CodecStep> {
        match self.stride() {
            1 => None,
            stride => Some(CodecStep::Split(self.number(), stride)),
        }
    }

    /// The neighbours that a value may be predicted from: along one axis and along all.
    pub(super) fn grids(self) -> Vec<LorenzoGrid> {
        let reckoning = match (self.is_float(), self.number()) {
            (true, 4 | 8) => Reckoning::Floats,
            (true, _) => Reckoning::Ordered,
            (false, _) => Reckoning::Integers,
        };
        let line = LorenzoGrid { size: self.number(), reckoning, row: 0, plane: 0 };
        let mut all = vec![line];
        if self.row > 1 {
            let plane = if self.plane > self.row { self.plane } else { 0 };
            all.push(LorenzoGrid { row: self.row, plane, ..line });
        }
        all
    }

    /// Grids where the parts of records are not split, for records on all axes: from the part before and the record
    /// before, or from the same parts of neighbours.
    pub(super) fn grids_of_records(self) -> Vec<LorenzoGrid> {
        let (record, line) = (u32::from(self.stride()), self.grids()[0]);
        let of = |row: u32, plane: u32| {
            let plane = plane.checked_mul(record).filter(|plane| *plane > row).unwrap_or(0);
            LorenzoGrid { row, plane, ..line }
        };
        match (record, self.row) {
            (1, 0) => vec![line],
            (1, _) => vec![of(self.row, self.plane)],
            (_, 0) => vec![of(record, 0)],
            (_, row) => {
                let farthest = self.plane.max(row);
                let rows = row.checked_mul(record).unwrap_or(0);
                vec![of(record, farthest), of(rows, self.plane)]
            }
        }
    }

    /// The table that integers lie in: rows of the array, records, or one column.
    pub(super) fn table(self, thorough: bool) -> Option<TableShape> {
        use DType::{I8, I16, I32, I64};
        let whole = !self.is_float() && self.dtype != DType::Bytes;
        if !whole || !matches!(self.number(), 1 | 2 | 4 | 8) {
            return None;
        }
        let record = u32::from(self.stride());
        let row = record * self.row.max(1);
        let row = if row <= TableShape::LONGEST.into() { row } else { record };
        let signed = matches!(self.dtype, I8 | I16 | I32 | I64);
        Some(TableShape { size: self.number(), signed, row: row as u8, thorough })
    }

    pub(super) fn is_float(self) -> bool {
        use DType::{BF16, C64, C128, F16, F32, F64};
        matches!(self.dtype, F16 | BF16 | F32 | F64 | C64 | C128)
    }
}
