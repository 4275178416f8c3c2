//! The structure of a type: the numbers, texts and addresses that an element is made of.

use super::bytes::MetaCursor;
use super::datatype::{self, TypeKind};
use crate::array::DType;
use crate::error::{Error, Result};
use crate::source::parts::{ElementPart, PartKind};
use crate::source::unusual::{BitRange, FloatLayout};
pub(super) use crate::source::{filter::swap_size as swap, parts::word};
use std::collections::BTreeMap;
use std::sync::Arc;

const DEEPEST: u32 = 16;

/// The structure of a type.
#[derive(Clone)]
pub(super) enum TypeNode {
    /// A number, and whether its bytes are swapped.
    Number(DType, bool),
    /// A number that has a name; names by the bytes of the number, little-endian.
    Enumeration(DType, bool, Arc<BTreeMap<Vec<u8>, String>>),
    /// A number of another layout than processors have today, such as a long double.
    Float(FloatLayout),
    /// An integer of another width, or a field of bits.
    Bits(BitRange),
    /// Text of a fixed length, and how it is padded.
    Text(u8),
    /// Bytes that mean the same wherever they stand, and the properties of their type.
    Opaque(Vec<u8>),
    /// A sequence of variable length: the size and the structure of its elements, and whether it is text.
    Sequence(u64, Arc<TypeNode>, bool),
    /// The address of an object.
    Object,
    /// A region of a dataset.
    Region,
    Members(Vec<TypeMember>),
    /// Elements one after another: extents, size, structure.
    Elements(Vec<u64>, u64, Arc<TypeNode>),
}

/// A member of a record.
#[derive(Clone)]
pub(super) struct TypeMember {
    pub(super) name: String,
    pub(super) offset: u64,
    pub(super) size: u64,
    pub(super) node: Arc<TypeNode>,
}

pub(super) fn wrong() -> Error {
    Error::damaged("corrupt HDF5 file: invalid type")
}

/// Reads a type and moves behind it: its size and structure. `told` gets its meaning: two types get the
/// same bytes if and only if they mean the same, whichever version of the format they were written in.
pub(super) fn parse(
    input: &mut MetaCursor,
    depth: u32,
    told: &mut Vec<u8>,
) -> Result<(u64, TypeNode)> {
    if depth > DEEPEST {
        return Err(wrong());
    }
    let head = input.u8()?;
    let (class, version) = (head & 15, head >> 4);
    let bits = input.take(3)?;
    let size = u64::from(input.u32()?);
    let members = u16::from_le_bytes([bits[0], bits[1]]);
    let multiple = if version < 3 { 8 } else { 1 };
    told.push(class);
    told.extend(bits);
    told.extend(size.to_le_bytes());
    let node = match class {
        0 | 4 => {
            let properties = fixed(input, 4, told)?;
            match class {
                0 => integer(properties, bits, size)?,
                _ => bits_of(properties, bits, None, size),
            }
        }
        1 => float(fixed(input, 12, told)?, bits, size)?,
        2 => TypeNode::Opaque(fixed(input, 2, told)?.to_vec()),
        3 => TypeNode::Text(bits[0] & 15),
        5 => TypeNode::Opaque(fixed(input, usize::from(bits[0]), told)?.to_vec()),
        6 => {
            let mut all = Vec::new();
            for _ in 0..members {
                let name = name(input, multiple, told)?;
                let width = if version < 3 { 4 } else { size.max(1).ilog2() as usize / 8 + 1 };
                let offset = input.uint(width)?;
                input.skip(if version == 1 { 28 } else { 0 })?;
                told.extend(offset.to_le_bytes());
                let (len, node) = parse(input, depth + 1, told)?;
                if offset.checked_add(len).is_none_or(|end| end > size) {
                    return Err(wrong());
                }
                all.push(TypeMember { name, offset, size: len, node: Arc::new(node) });
            }
            complex_of(&all, size).unwrap_or(TypeNode::Members(all))
        }
        7 => match bits[0] & 15 {
            0 => TypeNode::Object,
            1 => TypeNode::Region,
            _ => return Err(Error::usage("references of this kind are not understood")),
        },
        8 => {
            let (len, node) = parse(input, depth + 1, told)?;
            let mut names = Vec::new();
            for _ in 0..members {
                names.push(name(input, multiple, told)?);
            }
            let values = fixed(input, usize::from(members).saturating_mul(len as usize), told)?;
            enumeration(node, len, names, values)
        }
        9 => {
            let (len, node) = parse(input, depth + 1, told)?;
            TypeNode::Sequence(len, Arc::new(node), bits[0] & 15 == 1)
        }
        10 => {
            let axes = usize::from(input.u8()?);
            input.skip(if version < 3 { 3 } else { 0 })?;
            let extents = input.take(4 * axes)?;
            told.extend(extents);
            input.skip(if version < 3 { 4 * axes } else { 0 })?;
            let (len, node) = parse(input, depth + 1, told)?;
            if len == 0 || size % len != 0 {
                return Err(wrong());
            }
            let extents = extents.as_chunks::<4>().0.iter();
            let extents = extents.map(|e| u64::from(u32::from_le_bytes(*e))).collect();
            TypeNode::Elements(extents, len, Arc::new(node))
        }
        11 => {
            let (len, node) = parse(input, depth + 1, told)?;
            match node {
                TypeNode::Number(DType::F32, swapped) if 2 * len == size => {
                    TypeNode::Number(DType::C64, swapped)
                }
                TypeNode::Number(DType::F64, swapped) if 2 * len == size => {
                    TypeNode::Number(DType::C128, swapped)
                }
                _ => TypeNode::Opaque(Vec::new()),
            }
        }
        _ => return Err(wrong()),
    };
    Ok((size, node))
}

fn fixed<'b>(
    input: &mut MetaCursor<'b>,
    properties: usize,
    told: &mut Vec<u8>,
) -> Result<&'b [u8]> {
    let properties = input.take(properties)?;
    told.extend(properties);
    Ok(properties)
}

fn name(input: &mut MetaCursor, multiple: usize, told: &mut Vec<u8>) -> Result<String> {
    let name = input.name(multiple)?;
    told.extend(name);
    told.push(0);
    Ok(String::from_utf8_lossy(name).into_owned())
}

fn integer(properties: &[u8], bits: &[u8], size: u64) -> Result<TypeNode> {
    let kind = datatype::integer(&mut MetaCursor::of(properties), bits, size)?;
    let signed = Some(bits[0] & 8 != 0);
    Ok(match kind {
        TypeKind::Numbers(dtype, swapped, _) => TypeNode::Number(dtype, swapped),
        _ => bits_of(properties, bits, signed, size),
    })
}

fn bits_of(properties: &[u8], bits: &[u8], signed: Option<bool>, size: u64) -> TypeNode {
    match BitRange::new(properties, bits[0] & 1 != 0, signed, size) {
        Some(range) => TypeNode::Bits(range),
        None => TypeNode::Opaque([bits, properties].concat()),
    }
}

fn float(properties: &[u8], bits: &[u8], size: u64) -> Result<TypeNode> {
    let kind = datatype::float(&mut MetaCursor::of(properties), bits, size)?;
    Ok(match kind {
        TypeKind::Numbers(dtype, swapped, _) => TypeNode::Number(dtype, swapped),
        _ => match FloatLayout::new(properties, bits, size) {
            Some(layout) => TypeNode::Float(layout),
            None => TypeNode::Opaque([bits, properties].concat()),
        },
    })
}

/// The complex numbers of h5py: records of two numbers.
fn complex_of(members: &[TypeMember], size: u64) -> Option<TypeNode> {
    let [real, imaginary] = members else { return None };
    let named = (&real.name[..], &imaginary.name[..]) == ("r", "i");
    let close = real.offset == 0 && imaginary.offset == real.size && 2 * real.size == size;
    match (&*real.node, &*imaginary.node) {
        (TypeNode::Number(p, s), TypeNode::Number(q, t)) if p == q && s == t && named && close => {
            let dtype = match p {
                DType::F32 => DType::C64,
                DType::F64 => DType::C128,
                _ => return None,
            };
            Some(TypeNode::Number(dtype, *s))
        }
        _ => None,
    }
}

fn enumeration(base: TypeNode, size: u64, names: Vec<String>, values: &[u8]) -> TypeNode {
    let TypeNode::Number(dtype, swapped) = base else { return TypeNode::Opaque(Vec::new()) };
    let values = values.chunks_exact(size.max(1) as usize).map(|value| {
        let mut value = value.to_vec();
        if swapped {
            value.reverse();
        }
        value
    });
    TypeNode::Enumeration(dtype, swapped, Arc::new(values.zip(names).collect()))
}

impl TypeNode {
    /// Whether values may be addresses of objects.
    pub(super) fn has_references(&self) -> bool {
        match self {
            TypeNode::Object | TypeNode::Region => true,
            TypeNode::Sequence(_, node, _) | TypeNode::Elements(_, _, node) => {
                node.has_references()
            }
            TypeNode::Members(all) => all.iter().any(|member| member.node.has_references()),
            _ => false,
        }
    }

    /// The kind of values in a word.
    pub(super) fn kind(&self) -> &'static str {
        match self {
            TypeNode::Number(..) | TypeNode::Float(_) => "number",
            TypeNode::Enumeration(..) => "enumeration",
            TypeNode::Bits(_) => "bits",
            TypeNode::Text(_) | TypeNode::Sequence(_, _, true) => "text",
            TypeNode::Opaque(_) => "opaque",
            TypeNode::Sequence(..) => "sequence",
            TypeNode::Object | TypeNode::Region => "reference",
            TypeNode::Members(_) => "record",
            TypeNode::Elements(..) => "array",
        }
    }

    /// The parts of elements of this structure, each with the kind that `other` makes of what is no number.
    pub(super) fn parts(
        self: &Arc<Self>,
        size: u64,
        other: &dyn Fn(u64, &Arc<TypeNode>) -> PartKind,
    ) -> Vec<ElementPart> {
        let mut parts = Vec::new();
        let at = ElementPart::whole(PartKind::Numbers(DType::U8, 0));
        self.add_parts(size, at, other, &mut parts);
        parts
    }

    fn add_parts(
        self: &Arc<Self>,
        size: u64,
        mut at: ElementPart,
        other: &dyn Fn(u64, &Arc<TypeNode>) -> PartKind,
        parts: &mut Vec<ElementPart>,
    ) {
        match &**self {
            TypeNode::Members(all) => {
                for member in all {
                    let name = member.name.replace(char::is_control, "\u{fffd}");
                    let at = ElementPart {
                        suffix: format!("{}.{name}", at.suffix),
                        offset: at.offset + member.offset,
                        axes: at.axes.clone(),
                        kind: at.kind.clone(),
                    };
                    member.node.add_parts(member.size, at, other, parts);
                }
            }
            TypeNode::Elements(extents, len, node) => {
                let mut distance = *len;
                let mut axes = Vec::new();
                for extent in extents.iter().rev() {
                    axes.push((*extent, distance));
                    distance = distance.saturating_mul(*extent);
                }
                at.axes.extend(axes.into_iter().rev());
                node.add_parts(*len, at, other, parts);
            }
            TypeNode::Number(dtype, swapped) => {
                parts.push(ElementPart {
                    kind: PartKind::Numbers(*dtype, swap(*dtype, *swapped)),
                    ..at
                });
            }
            TypeNode::Enumeration(dtype, swapped, names) => {
                let kind = PartKind::Named(*dtype, swap(*dtype, *swapped), names.clone());
                parts.push(ElementPart { kind, ..at });
            }
            TypeNode::Float(layout) if layout.quads().is_some() => {
                parts.push(ElementPart { kind: PartKind::Quads(size, *layout), ..at });
            }
            _ => parts.push(ElementPart { kind: other(size, self), ..at }),
        }
    }

    /// Adds what a type means beside what its parts show when they are compared as arrays of their own: names,
    /// order and kinds of members, names of numbers, tags. With `exact`, types of numbers, too.
    pub(super) fn beside(&self, exact: bool, out: &mut Vec<u8>) {
        let number = |dtype: &DType, out: &mut Vec<u8>| match exact {
            true => word(dtype.name().as_bytes(), out),
            false => out.push(b'n'),
        };
        match self {
            TypeNode::Number(dtype, _) => number(dtype, out),
            TypeNode::Enumeration(dtype, _, names) => {
                number(dtype, out);
                for (value, name) in &**names {
                    // The same number may have another width.
                    let end = value.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
                    word(&value[..end], out);
                    word(name.as_bytes(), out);
                }
            }
            TypeNode::Members(all) => {
                out.push(b'{');
                for member in all {
                    word(member.name.as_bytes(), out);
                    member.node.beside(exact, out);
                }
                out.push(b'}');
            }
            TypeNode::Elements(extents, _, node) => {
                out.push(b'[');
                extents.iter().for_each(|extent| out.extend(extent.to_le_bytes()));
                node.beside(exact, out);
            }
            // The same texts can be stored with a fixed length.
            TypeNode::Sequence(_, _, true) => word(self.kind().as_bytes(), out),
            TypeNode::Sequence(_, node, false) => {
                word(self.kind().as_bytes(), out);
                node.beside(true, out);
            }
            TypeNode::Opaque(properties) => {
                word(self.kind().as_bytes(), out);
                word(properties, out);
            }
            TypeNode::Region => word(b"region", out),
            TypeNode::Float(_) | TypeNode::Bits(_) | TypeNode::Text(_) | TypeNode::Object => {
                word(self.kind().as_bytes(), out);
            }
        }
    }
}
