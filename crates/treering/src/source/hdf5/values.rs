//! Values that lie elsewhere in the file: of variable length, or references to objects.
//!
//! Such a value is an address, and addresses differ between files of the same content. Here each value is
//! replaced by what it leads to: the bytes in a global heap, or the path of an object.

use super::bytes::{Meta, MetaCursor};
use crate::error::{Error, Result};
use crate::merkle::Digester;
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;

const DEEPEST: u32 = 16;
/// The most bytes of heaps that are kept.
const MOST_KEPT: usize = 1 << 28;

/// The structure of a type, as far as addresses matter.
pub(super) enum TypeNode {
    /// Bytes that mean the same wherever they stand.
    Fixed,
    /// A sequence of variable length; the size and the structure of its elements.
    Sequence(u64, Box<TypeNode>),
    /// The address of an object.
    Object,
    /// A region of a dataset.
    Region,
    /// Members: offset, size, structure.
    Members(Vec<(u64, u64, TypeNode)>),
    /// Elements one after another: size, structure.
    Elements(u64, Box<TypeNode>),
}

fn wrong() -> Error {
    Error::damaged("a type of this HDF5 file makes no sense")
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
        0 | 4 => fixed(input, 4, told)?,
        1 => fixed(input, 12, told)?,
        2 => fixed(input, 2, told)?,
        3 => TypeNode::Fixed,
        5 => fixed(input, usize::from(bits[0]), told)?,
        6 => {
            let mut all = Vec::new();
            for _ in 0..members {
                name(input, multiple, told)?;
                let width = if version < 3 { 4 } else { size.max(1).ilog2() as usize / 8 + 1 };
                let offset = input.uint(width)?;
                input.skip(if version == 1 { 28 } else { 0 })?;
                told.extend(offset.to_le_bytes());
                let (len, node) = parse(input, depth + 1, told)?;
                if offset.checked_add(len).is_none_or(|end| end > size) {
                    return Err(wrong());
                }
                all.push((offset, len, node));
            }
            TypeNode::Members(all)
        }
        7 => match bits[0] & 15 {
            0 => TypeNode::Object,
            1 => TypeNode::Region,
            _ => return Err(Error::usage("references of this kind are not understood")),
        },
        8 => {
            let (len, _) = parse(input, depth + 1, told)?;
            for _ in 0..members {
                name(input, multiple, told)?;
            }
            fixed(input, usize::from(members).saturating_mul(len as usize), told)?
        }
        9 => {
            let (len, node) = parse(input, depth + 1, told)?;
            TypeNode::Sequence(len, Box::new(node))
        }
        10 => {
            let axes = usize::from(input.u8()?);
            input.skip(if version < 3 { 3 } else { 0 })?;
            told.extend(input.take(4 * axes)?);
            input.skip(if version < 3 { 4 * axes } else { 0 })?;
            let (len, node) = parse(input, depth + 1, told)?;
            if len == 0 || size % len != 0 {
                return Err(wrong());
            }
            TypeNode::Elements(len, Box::new(node))
        }
        11 => {
            parse(input, depth + 1, told)?;
            TypeNode::Fixed
        }
        _ => return Err(wrong()),
    };
    Ok((size, node))
}

fn fixed(input: &mut MetaCursor, properties: usize, told: &mut Vec<u8>) -> Result<TypeNode> {
    told.extend(input.take(properties)?);
    Ok(TypeNode::Fixed)
}

fn name(input: &mut MetaCursor, multiple: usize, told: &mut Vec<u8>) -> Result<()> {
    told.extend(input.name(multiple)?);
    told.push(0);
    Ok(())
}

/// A heap of a file: its bytes, and where its objects lie in them.
type Collection = Rc<(Vec<u8>, HashMap<u16, std::ops::Range<usize>>)>;

/// Resolves values of a file.
pub(super) struct Resolver<'m> {
    meta: &'m Meta<'m>,
    /// Paths of objects by address.
    paths: &'m HashMap<u64, String>,
    heaps: RefCell<HashMap<u64, Collection>>,
    kept: Cell<usize>,
    /// How many bytes may still come out: values can all lead to the same place.
    budget: Cell<u64>,
}

impl<'m> Resolver<'m> {
    pub(super) fn new(meta: &'m Meta<'m>, paths: &'m HashMap<u64, String>, size: u64) -> Self {
        let budget = Cell::new(size.saturating_mul(64).saturating_add(1 << 24));
        Resolver { meta, paths, heaps: RefCell::default(), kept: Cell::new(0), budget }
    }

    /// Adds the content of one element; two elements add the same bytes only if they mean the same.
    pub(super) fn element(&self, node: &TypeNode, bytes: &[u8], out: &mut Digester) -> Result<()> {
        let cost = (bytes.len() as u64).max(16);
        let left = self.budget.get().checked_sub(cost);
        self.budget
            .set(left.ok_or_else(|| Error::damaged("values of this HDF5 file have no end"))?);
        let mut rest = self.meta.cursor(bytes);
        match node {
            TypeNode::Fixed => out.update(bytes),
            TypeNode::Members(all) => {
                for (offset, len, node) in all {
                    let part = bytes.get(*offset as usize..(offset + len) as usize);
                    self.element(node, part.ok_or_else(wrong)?, out)?;
                }
            }
            TypeNode::Elements(len, node) => {
                for part in bytes.chunks_exact((*len).max(1) as usize) {
                    self.element(node, part, out)?;
                }
            }
            TypeNode::Object => {
                let path = self.path(rest.uint(self.meta.offsets)?)?;
                text(&path, out);
            }
            TypeNode::Region => {
                let object = self.object(&mut rest)?;
                let mut inside = self.meta.cursor(&object);
                match inside.rest.is_empty() {
                    true => text("", out),
                    false => {
                        text(&self.path(inside.uint(self.meta.offsets)?)?, out);
                        out.update(&(inside.rest.len() as u64).to_le_bytes());
                        out.update(inside.rest);
                    }
                }
            }
            TypeNode::Sequence(len, node) => {
                let count = u64::from(rest.u32()?);
                let object = if count == 0 { Vec::new() } else { self.object(&mut rest)? };
                out.update(&count.to_le_bytes());
                let all = count.checked_mul(*len).and_then(|all| usize::try_from(all).ok());
                let values = all.and_then(|all| object.get(..all)).ok_or_else(wrong)?;
                match **node {
                    TypeNode::Fixed => self.element(node, values, out)?,
                    _ => {
                        for part in values.chunks_exact((*len).max(1) as usize) {
                            self.element(node, part, out)?;
                        }
                    }
                }
            }
        }
        Ok(())
    }

    fn path(&self, address: u64) -> Result<String> {
        let undefined = u64::MAX >> (64 - 8 * self.meta.offsets);
        if address == 0 || address == undefined {
            return Ok(String::new());
        }
        let path = self.paths.get(&address).map(|path| format!("/{path}"));
        path.ok_or_else(|| Error::damaged("a reference leads to no object of this HDF5 file"))
    }

    /// The object of a global heap that an identifier names; nothing for none.
    fn object(&self, id: &mut MetaCursor) -> Result<Vec<u8>> {
        let (at, index) = (id.uint(self.meta.offsets)?, id.u32()?);
        if at == 0 {
            return Ok(Vec::new());
        }
        let heap = self.heap(at)?;
        let range = u16::try_from(index).ok().and_then(|index| heap.1.get(&index));
        let range = range.ok_or_else(|| Error::damaged("a heap lacks an object"))?;
        Ok(heap.0[range.clone()].to_vec())
    }

    fn heap(&self, at: u64) -> Result<Collection> {
        if let Some(heap) = self.heaps.borrow().get(&at) {
            return Ok(heap.clone());
        }
        let before = 8 + self.meta.lengths;
        let head = self.meta.signed(at, before as u64, b"GCOL")?;
        let size = self.meta.cursor(&head[8..]).length()?;
        let bytes = self.meta.read(at, size)?;
        self.kept.set(self.kept.get() + bytes.len());
        if self.kept.get() > MOST_KEPT {
            return Err(Error::damaged("the heaps of this HDF5 file are too large"));
        }
        let mut objects = HashMap::new();
        let mut rest = self.meta.cursor(bytes.get(before..).unwrap_or_default());
        while rest.rest.len() >= 8 + self.meta.lengths {
            let index = rest.u16()?;
            rest.skip(6)?;
            let len = usize::try_from(rest.length()?).map_err(|_| wrong())?;
            // Number 0 is free space, to the end.
            if index == 0 {
                break;
            }
            let start = bytes.len() - rest.rest.len();
            rest.skip(len)?;
            rest.skip((len.next_multiple_of(8) - len).min(rest.rest.len()))?;
            objects.insert(index, start..start + len);
        }
        let heap = Rc::new((bytes, objects));
        self.heaps.borrow_mut().insert(at, heap.clone());
        Ok(heap)
    }
}

fn text(text: &str, out: &mut Digester) {
    out.update(&(text.len() as u64).to_le_bytes());
    out.update(text.as_bytes());
}
