//! The type of the elements of a dataset, as far as it matters here: numbers, or bytes of a size.

use super::bytes::MetaCursor;
use crate::array::DType;
use crate::error::{Error, Result};

/// The type of an element.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Type {
    /// Its size in the file.
    pub(super) size: u64,
    pub(super) kind: TypeKind,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum TypeKind {
    /// Numbers, with axes of their own if there are several; and whether their bytes are swapped.
    Numbers(DType, bool, Vec<u64>),
    /// Bytes that mean the same wherever they stand.
    Bytes,
    /// Addresses of something elsewhere in the file.
    Pointers,
}

const DEEPEST: u32 = 16;

/// Reads a type and moves behind it.
pub(super) fn parse(input: &mut MetaCursor, depth: u32) -> Result<Type> {
    let wrong = || Error::damaged("corrupt HDF5 file: invalid type");
    if depth > DEEPEST {
        return Err(wrong());
    }
    let head = input.u8()?;
    let (class, version) = (head & 15, head >> 4);
    let bits = input.take(3)?;
    let size = u64::from(input.u32()?);
    if size == 0 || version == 0 {
        return Err(wrong());
    }
    let members = u16::from_le_bytes([bits[0], bits[1]]);
    let kind = match class {
        0 => integer(input, bits, size)?,
        1 => float(input, bits, size)?,
        2 => opaque(input, 2)?,
        3 => TypeKind::Bytes,
        4 => opaque(input, 4)?,
        5 => opaque(input, usize::from(bits[0]))?,
        6 => compound(input, members, version, size, depth)?,
        7 => TypeKind::Pointers,
        8 => enumeration(input, members, version, depth)?,
        9 => {
            parse(input, depth + 1)?;
            TypeKind::Pointers
        }
        10 => array(input, version, size, depth)?,
        11 => complex(parse(input, depth + 1)?.kind),
        _ => return Err(wrong()),
    };
    let fits = match &kind {
        TypeKind::Numbers(dtype, _, axes) => {
            axes.iter().try_fold(dtype.size(), |n, a| n.checked_mul(*a)) == Some(size)
        }
        _ => true,
    };
    Ok(Type { size, kind: if fits { kind } else { TypeKind::Bytes } })
}

fn opaque(input: &mut MetaCursor, properties: usize) -> Result<TypeKind> {
    input.skip(properties)?;
    Ok(TypeKind::Bytes)
}

pub(super) fn integer(input: &mut MetaCursor, bits: &[u8], size: u64) -> Result<TypeKind> {
    let (offset, precision) = (input.u16()?, u64::from(input.u16()?));
    let signed = bits[0] & 8 != 0;
    let dtype = match (size, signed) {
        (1, false) => DType::U8,
        (1, true) => DType::I8,
        (2, false) => DType::U16,
        (2, true) => DType::I16,
        (4, false) => DType::U32,
        (4, true) => DType::I32,
        (8, false) => DType::U64,
        (8, true) => DType::I64,
        _ => return Ok(TypeKind::Bytes),
    };
    Ok(match offset == 0 && precision == 8 * size {
        true => TypeKind::Numbers(dtype, bits[0] & 1 != 0, Vec::new()),
        false => TypeKind::Bytes,
    })
}

pub(super) fn float(input: &mut MetaCursor, bits: &[u8], size: u64) -> Result<TypeKind> {
    let (offset, precision) = (input.u16()?, u64::from(input.u16()?));
    let layout = [input.u8()?, input.u8()?, input.u8()?, input.u8()?];
    let bias = input.u32()?;
    // Where the exponent is and how wide, the same for the mantissa, and the sign.
    let dtype = match (size, layout, bias, bits[1]) {
        (2, [10, 5, 0, 10], 15, 15) => DType::F16,
        (2, [7, 8, 0, 7], 127, 15) => DType::BF16,
        (4, [23, 8, 0, 23], 127, 31) => DType::F32,
        (8, [52, 11, 0, 52], 1023, 63) => DType::F64,
        _ => return Ok(TypeKind::Bytes),
    };
    // A VAX order has another bit, and the first bit of the mantissa is implied.
    let usual = bits[0] & 0x40 == 0 && bits[0] >> 4 & 3 == 2;
    Ok(match usual && offset == 0 && precision == 8 * size {
        true => TypeKind::Numbers(dtype, bits[0] & 1 != 0, Vec::new()),
        false => TypeKind::Bytes,
    })
}

fn complex(of: TypeKind) -> TypeKind {
    match of {
        TypeKind::Numbers(DType::F32, swapped, axes) if axes.is_empty() => {
            TypeKind::Numbers(DType::C64, swapped, axes)
        }
        TypeKind::Numbers(DType::F64, swapped, axes) if axes.is_empty() => {
            TypeKind::Numbers(DType::C128, swapped, axes)
        }
        _ => TypeKind::Bytes,
    }
}

fn compound(
    input: &mut MetaCursor,
    members: u16,
    version: u8,
    size: u64,
    depth: u32,
) -> Result<TypeKind> {
    let mut kinds = Vec::new();
    for _ in 0..members {
        let name = input.name(if version < 3 { 8 } else { 1 })?;
        let width = match version {
            1 | 2 => 4,
            _ => size.ilog2() as usize / 8 + 1,
        };
        let offset = input.uint(width)?;
        if version == 1 {
            input.skip(28)?;
        }
        kinds.push((name, offset, parse(input, depth + 1)?));
    }
    // The complex numbers of h5py.
    if let [(b"r", 0, real), (b"i", at, imaginary)] = &kinds[..]
        && real == imaginary
        && *at == real.size
    {
        return Ok(complex(real.kind.clone()));
    }
    Ok(match kinds.iter().any(|(_, _, member)| member.kind == TypeKind::Pointers) {
        true => TypeKind::Pointers,
        false => TypeKind::Bytes,
    })
}

fn enumeration(input: &mut MetaCursor, members: u16, version: u8, depth: u32) -> Result<TypeKind> {
    let base = parse(input, depth + 1)?;
    for _ in 0..members {
        input.name(if version < 3 { 8 } else { 1 })?;
    }
    let values = usize::from(members).saturating_mul(base.size as usize);
    input.skip(values)?;
    Ok(base.kind)
}

fn array(input: &mut MetaCursor, version: u8, size: u64, depth: u32) -> Result<TypeKind> {
    let axes = usize::from(input.u8()?);
    input.skip(if version < 3 { 3 } else { 0 })?;
    let mut extents = Vec::new();
    for _ in 0..axes {
        extents.push(u64::from(input.u32()?));
    }
    input.skip(if version < 3 { 4 * axes } else { 0 })?;
    let base = parse(input, depth + 1)?;
    Ok(match base.kind {
        TypeKind::Numbers(dtype, swapped, inner) if base.size <= size => {
            extents.extend(inner);
            TypeKind::Numbers(dtype, swapped, extents)
        }
        TypeKind::Pointers => TypeKind::Pointers,
        _ => TypeKind::Bytes,
    })
}
