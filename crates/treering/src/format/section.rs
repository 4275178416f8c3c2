//! A section: the variables that a group of ranks hands over at a checkpoint, in the footer of its pack.

use super::bytes::{Reader, Writer};
use super::labels::{parse_labels, write_labels};
use crate::array::{
    Bound, DType, Description, Ghosts, GlobalBox, GroupId, Labels, Order, Part, Rank, Rounding,
    Shape, VariableKey,
};
use crate::error::{Error, ErrorKind, Result};
use crate::lineage::ChunkSize;
use crate::merkle::Digest;

/// The prefix of variables that are not a program's: trees, and records of files.
pub const HIDDEN: &str = "treering:";

/// A variable of a checkpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VariableEntry {
    /// The rank it belongs to.
    pub rank: Rank,
    /// The group whose packs hold it.
    pub group: GroupId,
    /// Name, type, shape, box.
    pub description: Description,
    /// The chunk size of its tree.
    pub chunk: ChunkSize,
    /// The root of its tree.
    pub root: Digest,
    /// The rounding of the program's values before anything else; `None` if they are exact.
    pub rounded: Option<Rounding>,
}

impl VariableEntry {
    /// Whether it is no variable of the program.
    pub fn is_hidden(&self) -> bool {
        self.description.name.starts_with(HIDDEN)
    }

    /// Its rank and name.
    pub(crate) fn key(&self) -> VariableKey {
        VariableKey::new(self.rank, &self.description.name)
    }

    /// Its length; the description was checked when it was made or read.
    pub(crate) fn bytes(&self) -> u64 {
        self.description.bytes().unwrap_or(0)
    }
}

/// The bytes of a section.
pub(super) fn write_section(variables: &[VariableEntry]) -> Vec<u8> {
    let mut out = Writer::default();
    out.int(variables.len() as u64);
    for variable in variables {
        out.int(u64::from(variable.rank.0));
        write_description(&mut out, &variable.description);
        out.int(variable.chunk.bytes() as u64);
        out.digest(variable.root);
        write_rounding(&mut out, variable.rounded);
    }
    out.0
}

/// Reads the section of a group.
pub(super) fn parse_section(bytes: &[u8], group: GroupId) -> Result<Vec<VariableEntry>> {
    let mut reader = Reader::new(bytes);
    let count = reader.count()?;
    let mut variables = Vec::with_capacity(count);
    for _ in 0..count {
        let rank = Rank(reader.u32()?);
        let description = parse_description(&mut reader)?;
        let chunk = ChunkSize::new(reader.int()?)
            .map_err(|_| Error::damaged("a variable has an impossible chunk size"))?;
        let root = reader.digest()?;
        let rounded = parse_rounding(&mut reader, description.dtype)?;
        variables.push(VariableEntry { rank, group, description, chunk, root, rounded });
    }
    reader.end()?;
    Ok(variables)
}

/// The marks of a description: how its elements lie, and its relation to the variables of other ranks.
const BOX: u8 = 1;
const COLUMN_MAJOR: u8 = 2;
const SAME: u8 = 4;
const ROWS: u8 = 8;
const GHOSTS: u8 = 16;
const ATTRIBUTES: u8 = 32;
const BOX_WITH_GHOSTS: u8 = BOX | GHOSTS;

pub(crate) fn write_description(out: &mut Writer, description: &Description) {
    out.string(&description.name);
    out.byte(description.dtype.code());
    out.ints(&description.shape.0);
    let column_major = if description.order == Order::Fortran { COLUMN_MAJOR } else { 0 };
    let relation = match &description.part {
        None => 0,
        Some(Part::Same) => SAME,
        Some(Part::Rows) => ROWS,
        Some(Part::Box(GlobalBox { ghosts: None, .. })) => BOX,
        Some(Part::Box(_)) => BOX_WITH_GHOSTS,
    };
    let attributes = if description.attributes.is_empty() { 0 } else { ATTRIBUTES };
    out.byte(relation | column_major | attributes);
    if let Some(Part::Box(part)) = &description.part {
        out.ints(&part.global.0);
        out.ints(&part.offset);
        if let Some(ghosts) = &part.ghosts {
            out.ints(&ghosts.low);
            out.ints(&ghosts.high);
        }
    }
    if !description.attributes.is_empty() {
        write_labels(out, &description.attributes);
    }
}

pub(crate) fn parse_description(reader: &mut Reader) -> Result<Description> {
    let name = reader.string()?;
    let dtype = DType::from_code(reader.byte()?)
        .ok_or_else(|| Error::damaged("a variable has an unknown type"))?;
    let shape = Shape(reader.ints()?);
    let marks = reader.byte()?;
    let order = if marks & COLUMN_MAJOR == 0 { Order::C } else { Order::Fortran };
    let part = match marks & !(COLUMN_MAJOR | ATTRIBUTES) {
        0 => None,
        SAME => Some(Part::Same),
        ROWS => Some(Part::Rows),
        BOX => Some(Part::Box(parse_box(reader)?)),
        BOX_WITH_GHOSTS => {
            let part = parse_box(reader)?;
            let ghosts = Ghosts { low: reader.ints()?, high: reader.ints()? };
            Some(Part::Box(GlobalBox { ghosts: Some(ghosts), ..part }))
        }
        _ => return Err(Error::damaged("a variable has an unknown mark")),
    };
    let attributes = match marks & ATTRIBUTES {
        0 => Labels::default(),
        _ => parse_labels(reader)?,
    };
    let description = Description { name, dtype, shape, order, part, attributes };
    description
        .check()
        .map_err(|e| Error::damaged(format!("corrupt description of a variable: {e}")))?;
    Ok(description)
}

fn parse_box(reader: &mut Reader) -> Result<GlobalBox> {
    Ok(GlobalBox { global: Shape(reader.ints()?), offset: reader.ints()?, ghosts: None })
}

/// Numbers of the ways in which values are kept.
const EXACT: u64 = 0;
const ABSOLUTE: u64 = 1;
const RELATIVE: u64 = 2;

pub(super) fn write_rounding(out: &mut Writer, rounded: Option<Rounding>) {
    let (way, bound) = match rounded.map(|rounding| rounding.bound()) {
        Some(Bound::Within { abs: 0.0, rel }) => (RELATIVE, rel),
        Some(Bound::Within { abs, .. }) => (ABSOLUTE, abs),
        _ => return out.int(EXACT),
    };
    out.int(way);
    out.u64(bound.to_bits());
}

pub(super) fn parse_rounding(reader: &mut Reader, dtype: DType) -> Result<Option<Rounding>> {
    let bound = match reader.int()? {
        EXACT => return Ok(None),
        ABSOLUTE => Bound::abs(f64::from_bits(reader.u64()?)),
        RELATIVE => Bound::rel(f64::from_bits(reader.u64()?)),
        _ => {
            return Err(Error::new(
                ErrorKind::Mismatch,
                "a variable is stored in a way of later releases",
            )
            .hint("use a newer release of treering"));
        }
    };
    let wrong = |e| Error::damaged(format!("corrupt bound of a variable: {e}"));
    Rounding::new(bound, dtype).map(Some).map_err(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> VariableEntry {
        VariableEntry {
            rank: Rank(1),
            group: GroupId(3),
            description: Description {
                name: "grid/ρ".into(),
                dtype: DType::F64,
                shape: Shape(vec![4, 5]),
                order: Order::Fortran,
                part: Some(Part::Box(GlobalBox {
                    global: Shape(vec![8, 5]),
                    offset: vec![4, 0],
                    ghosts: None,
                })),
                attributes: Labels::default(),
            },
            chunk: ChunkSize::default(),
            root: Digest([1, 2]),
            rounded: None,
        }
    }

    #[test]
    fn sections_return_and_no_cut_passes() {
        let mut variables = vec![sample()];
        for bound in [Bound::abs(1e-6), Bound::rel(1e-4)] {
            let rounded = Some(Rounding::new(bound, DType::F64).unwrap());
            variables.push(VariableEntry { rounded, ..sample() });
        }
        let ghosts = Some(Ghosts { low: vec![0, 1], high: vec![2, 0] });
        let part = sample().description.global_box().cloned().unwrap();
        for part in [Part::Same, Part::Rows, Part::Box(GlobalBox { ghosts, ..part })] {
            let description = Description { part: Some(part), ..sample().description };
            variables.push(VariableEntry { description, ..sample() });
        }
        for part in [None, sample().description.part] {
            let attributes = [("units", "K"), ("é", "")].into_iter().collect();
            let description = Description { part, attributes, ..sample().description };
            variables.push(VariableEntry { description, ..sample() });
        }
        let bytes = write_section(&variables);
        assert_eq!(parse_section(&bytes, GroupId(3)).unwrap(), variables);
        for at in 0..bytes.len() {
            assert!(parse_section(&bytes[..at], GroupId(3)).is_err());
        }
    }

    #[test]
    fn bounds_that_make_no_sense_are_refused() {
        let with = |way: u64, bits: u64, dtype: DType| {
            let mut out = Writer(Vec::new());
            out.int(way);
            out.u64(bits);
            parse_rounding(&mut Reader::new(&out.0), dtype)
        };
        assert!(with(1, 1e-6f64.to_bits(), DType::C64).unwrap().is_some());
        assert!(with(2, 1e-6f64.to_bits(), DType::F32).unwrap().is_some());
        let bad = [(1, 0.0, DType::F64), (1, f64::NAN, DType::F64), (1, 1e-6, DType::I32)];
        for (way, bound, dtype) in bad.into_iter().chain([(2, 1.0, DType::F64)]) {
            let error = with(way, bound.to_bits(), dtype).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Damaged);
        }
        assert_eq!(with(3, 0, DType::F64).unwrap_err().kind(), ErrorKind::Mismatch);
        assert!(parse_rounding(&mut Reader::new(&[1, 0, 0]), DType::F64).is_err());
    }
}
