//! netCDF in its classic forms: version 1, 64-bit offsets, 64-bit data (CDF-5).
//!
//! A head, then the variables, big-endian; those along the record axis lie interleaved, record by
//! record. Lengths and extents are computed from the shapes, never taken from the head's own sums.

use super::Extent;
use super::filter;
use super::found::{Contents, FoundArray, Placement, SignWord, ValueAttribute};
use super::inventory::{Inventory, shown};
use super::spread::Runs;
use crate::array::{DType, MAX_AXES};
use crate::error::{Error, Result};
use crate::store::Blob;

/// No head is longer.
const MOST_HEAD: u64 = 1 << 28;

pub(super) fn known(start: &[u8]) -> bool {
    matches!(start, [b'C', b'D', b'F', 1 | 2 | 5, ..])
}

/// The variables of a file, in its order.
pub(super) fn find(whole: &Extent) -> Result<Contents> {
    read(whole, &mut Inventory::default())
}

/// Adds dimensions and attributes.
pub(super) fn inventory(whole: &Extent, all: &mut Inventory) -> Result<()> {
    read(whole, all).map(drop)
}

fn read(whole: &Extent, all: &mut Inventory) -> Result<Contents> {
    let mut head = NetcdfHead { whole, bytes: Vec::new(), at: 4, wide: false };
    let version = head.take_at(3, 1)?[0];
    head.wide = version == 5;
    let records = head.count()?;
    if records == if head.wide { u64::MAX } else { u64::from(u32::MAX) } {
        return Err(Error::damaged("this netCDF file does not say how many records it has"));
    }
    let mut extents = Vec::new();
    let mut axes_names = Vec::new();
    for _ in 0..head.list(10)? {
        let (name, extent) = (head.name()?, head.count()?);
        all.add(format!("dimension {name}"), &extent.to_le_bytes(), extent.to_string());
        axes_names.push(name);
        extents.push(extent);
    }
    head.attributes("the file", all)?;
    let mut variables = Vec::new();
    for _ in 0..head.list(11)? {
        let name = head.name()?;
        let axes = head.count()?;
        if axes > MAX_AXES as u64 {
            return Err(Error::damaged("a variable of this netCDF file has too many axes"));
        }
        let mut shape = Vec::new();
        let mut record = false;
        for axis in 0..axes {
            let number = head.count()?;
            let extent = usize::try_from(number).ok().and_then(|n| extents.get(n));
            let extent = *extent
                .ok_or_else(|| Error::damaged("a variable has an axis that is not there"))?;
            let along = axes_names.get(number as usize).map_or("", |name| name);
            all.add(format!("axis {axis} of {name}"), along.as_bytes(), along.to_string());
            record |= axis == 0 && extent == 0;
            shape.push(if axis == 0 && extent == 0 { records } else { extent });
        }
        let attributes = head.attributes(&name, all)?;
        let dtype = number_type(head.number(4)?)?;
        head.count()?;
        let at = head.number(if version == 1 { 4 } else { 8 })?;
        variables.push(NetcdfVariable { name, dtype, shape, record, at, attributes });
    }
    let heads = vec![(0, head.at)];
    Ok(Contents { heads, ..place(whole, variables)?.into() })
}

struct NetcdfVariable {
    name: String,
    dtype: DType,
    shape: Vec<u64>,
    /// Whether it lies along the record axis.
    record: bool,
    at: u64,
    attributes: Vec<Attribute>,
}

/// An attribute that says what the values of an array mean.
struct Attribute {
    kind: ValueAttribute,
    dtype: DType,
    bytes: Vec<u8>,
}

/// Notes values that stand for something else, as attributes tell and the library fills with, limits and packing.
fn mark(found: &mut FoundArray, attributes: &[Attribute]) {
    const FILL: f64 = 9.969_209_968_386_869e36;
    let dtype = found.description.dtype;
    for Attribute { kind, dtype: own, bytes } in attributes {
        if *kind == ValueAttribute::Unsigned {
            found.sign = Some(SignWord::of(bytes));
            continue;
        }
        for value in bytes.chunks_exact(own.size() as usize) {
            let mut little = value.to_vec();
            little.reverse();
            match kind {
                ValueAttribute::Limit => found.limit(*own, &little),
                ValueAttribute::Mark => found.mark_number(*own, &little),
                kind => found.packing(*kind, *own, &little),
            }
        }
    }
    match dtype {
        DType::F32 => found.mark(&(FILL as f32).to_be_bytes()),
        DType::F64 => found.mark(&FILL.to_be_bytes()),
        _ => {}
    }
}

fn place(whole: &Extent, variables: Vec<NetcdfVariable>) -> Result<Vec<FoundArray>> {
    let large = || Error::damaged("a variable of this netCDF file is larger than any file");
    let slab = |dtype: DType, shape: &[u64]| {
        shape.iter().try_fold(dtype.size(), |n, e| n.checked_mul(*e)).ok_or_else(large)
    };
    let mut stride = 0u64;
    let interleaved = variables.iter().filter(|variable| variable.record).count();
    for NetcdfVariable { dtype, shape, .. } in variables.iter().filter(|variable| variable.record) {
        let len = slab(*dtype, &shape[1..])?;
        let padded = len.checked_next_multiple_of(4).ok_or_else(large)?;
        stride =
            stride.checked_add(if interleaved == 1 { len } else { padded }).ok_or_else(large)?;
    }
    let mut all = Vec::new();
    for NetcdfVariable { name, dtype, shape, record, at, attributes } in variables {
        let len = match record {
            true => slab(dtype, &shape[1..])?,
            false => slab(dtype, &shape)?,
        };
        let count = if record { shape[0] } else { 1 };
        let place = match record && count > 0 && len > 0 {
            true => Placement::Runs(Runs { at, len, stride, count }),
            false if record || len == 0 => Placement::Filled(vec![0]),
            false => Placement::Plain { at },
        };
        if let Placement::Runs(_) | Placement::Plain { .. } = &place {
            let last = stride.checked_mul(count - 1).and_then(|n| n.checked_add(at));
            whole.part(last.ok_or_else(large)?, len)?;
        }
        let mut found = FoundArray::new(&name, dtype, shape, true, place)?;
        mark(&mut found, &attributes);
        all.push(found);
    }
    Ok(all)
}

fn number_type(code: u64) -> Result<DType> {
    Ok(match code {
        1 => DType::I8,
        2 => DType::Bytes,
        3 => DType::I16,
        4 => DType::I32,
        5 => DType::F32,
        6 => DType::F64,
        7 => DType::U8,
        8 => DType::U16,
        9 => DType::U32,
        10 => DType::I64,
        11 => DType::U64,
        _ => return Err(Error::damaged(format!("type {code} of netCDF is not known"))),
    })
}

/// The head as far as it has been read.
struct NetcdfHead<'a> {
    whole: &'a Extent,
    bytes: Vec<u8>,
    at: u64,
    /// Whether counts take eight bytes.
    wide: bool,
}

impl NetcdfHead<'_> {
    fn take_at(&mut self, at: u64, len: u64) -> Result<&[u8]> {
        let end = at.checked_add(len).filter(|end| *end <= MOST_HEAD.min(self.whole.size()));
        let end = end.ok_or_else(|| Error::damaged("the file ends within its head"))?;
        let have = self.bytes.len() as u64;
        if end > have {
            let want = (end * 2).max(1 << 16).min(self.whole.size());
            self.bytes.resize(want as usize, 0);
            self.whole.read_at(have, &mut self.bytes[have as usize..])?;
        }
        Ok(&self.bytes[at as usize..end as usize])
    }

    fn take(&mut self, len: u64) -> Result<&[u8]> {
        let at = self.at;
        self.at = at.saturating_add(len);
        self.take_at(at, len)
    }

    fn number(&mut self, width: u64) -> Result<u64> {
        Ok(self.take(width)?.iter().fold(0, |n, byte| n << 8 | u64::from(*byte)))
    }

    fn count(&mut self) -> Result<u64> {
        self.number(if self.wide { 8 } else { 4 })
    }

    /// Number of entries of a list; it may be absent.
    fn list(&mut self, tag: u64) -> Result<u64> {
        let (found, count) = (self.number(4)?, self.count()?);
        match found == tag || found == 0 && count == 0 {
            true => Ok(count),
            false => Err(Error::damaged("corrupt netCDF file: invalid header")),
        }
    }

    fn padded(&mut self, len: u64) -> Result<&[u8]> {
        let all = len.checked_next_multiple_of(4);
        let all = all.ok_or_else(|| Error::damaged("the file ends within its head"))?;
        Ok(&self.take(all)?[..len as usize])
    }

    fn name(&mut self) -> Result<String> {
        let len = self.count()?;
        Ok(String::from_utf8_lossy(self.padded(len)?).into_owned())
    }

    /// Lists the attributes of a variable, and gives those that tell which values stand for something else or are valid.
    fn attributes(&mut self, of: &str, all: &mut Inventory) -> Result<Vec<Attribute>> {
        let mut told = Vec::new();
        for _ in 0..self.list(12)? {
            let name = self.name()?;
            let code = self.number(4)?;
            let dtype = number_type(code)?;
            let len = self.count()?.saturating_mul(dtype.size());
            let bytes = self.padded(len)?;
            let content = [&code.to_le_bytes(), bytes].concat();
            let mut values = bytes.to_vec();
            filter::swap(&mut values, dtype.size() as u8);
            all.add(format!("attribute {name} of {of}"), &content, shown(dtype, &values));
            if let Some(kind) = ValueAttribute::of(&name) {
                told.push(Attribute { kind, dtype, bytes: bytes.to_vec() });
            }
        }
        Ok(told)
    }
}
