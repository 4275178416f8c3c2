//! Values as they mean, wherever they lie in the file.
//!
//! A value of variable length or a reference is an address, and addresses differ between files of the same content.
//! Here each value is replaced by what it leads to: the bytes in a global heap, or the path of an object. Padding and
//! the order of bytes do not count.

use super::bytes::{Meta, MetaCursor};
use super::datatype::TypeKind;
use super::node::{self, TypeNode, swap, word, wrong};
use super::selection::Selection;
use super::superblock;
use crate::error::{Error, Result};
use crate::merkle::digest;
use crate::source::Extent;
use crate::source::filter;
use crate::source::inventory::{Inventory, shown};
use crate::source::parts::{
    ElementPart, ElementType, LONGEST_TEXT, Meaning, PartKind, hexadecimal, quote,
};
use crate::store::Blob;
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::{Arc, OnceLock};

/// The most bytes of heaps that are kept at a time.
const MOST_KEPT: usize = 1 << 26;

/// A heap of a file: its bytes, and where its objects lie in them.
type Collection = Rc<(Vec<u8>, HashMap<u16, std::ops::Range<usize>>)>;

/// Paths of objects by address.
pub(super) type ObjectPaths = HashMap<u64, String>;

/// Resolves values of a file.
pub(super) struct Resolver<'m> {
    meta: &'m Meta<'m>,
    paths: &'m ObjectPaths,
    heaps: RefCell<HashMap<u64, Collection>>,
    kept: Cell<usize>,
    /// Bytes that may still come out: values can all lead to the same place.
    budget: Cell<u64>,
}

impl<'m> Resolver<'m> {
    pub(super) fn new(meta: &'m Meta<'m>, paths: &'m ObjectPaths) -> Self {
        let budget = Cell::new(meta.whole.size().saturating_mul(64).saturating_add(1 << 24));
        Resolver { meta, paths, heaps: RefCell::default(), kept: Cell::new(0), budget }
    }

    fn spend(&self, bytes: usize) -> Result<()> {
        let left = self.budget.get().checked_sub((bytes as u64).max(16));
        let left = left.ok_or_else(|| Error::damaged("values of this HDF5 file have no end"))?;
        self.budget.set(left);
        Ok(())
    }

    /// Adds the content of one element; two elements add the same bytes only if they mean the same.
    pub(super) fn element(&self, node: &TypeNode, bytes: &[u8], out: &mut Vec<u8>) -> Result<()> {
        self.spend(bytes.len())?;
        match node {
            TypeNode::Number(dtype, swapped) | TypeNode::Enumeration(dtype, swapped, _) => {
                let from = out.len();
                out.extend(bytes);
                filter::swap(&mut out[from..], swap(*dtype, *swapped));
            }
            TypeNode::Float(layout) => word(&layout.value(bytes), out),
            TypeNode::Bits(range) => out.extend(range.value(bytes)),
            TypeNode::Text(padding) => word(content(*padding, bytes), out),
            TypeNode::Opaque(_) => word(bytes, out),
            TypeNode::Members(all) => {
                for member in all {
                    self.element(&member.node, part(bytes, member.offset, member.size)?, out)?;
                }
            }
            TypeNode::Elements(_, len, node) => self.elements(node, *len, bytes, out)?,
            TypeNode::Object => word(self.object_path(bytes)?.as_bytes(), out),
            TypeNode::Region => {
                let (path, selection) = self.region(bytes)?;
                word(path.as_bytes(), out);
                word(&selection, out);
            }
            TypeNode::Sequence(len, node, text) => {
                let (count, values) = self.sequence(bytes, *len)?;
                if *text {
                    word(content(ZEROS, &values), out);
                    return Ok(());
                }
                let mut inside = Vec::with_capacity(values.len());
                self.elements(node, *len, &values, &mut inside)?;
                out.extend(count.to_le_bytes());
                // However deep sequences lead, what is kept of one is short.
                digest(&inside).0.iter().for_each(|half| out.extend(half.to_le_bytes()));
            }
        }
        Ok(())
    }

    fn elements(&self, node: &TypeNode, len: u64, bytes: &[u8], out: &mut Vec<u8>) -> Result<()> {
        // Numbers of variable length are many.
        if let TypeNode::Number(dtype, swapped) = node {
            self.spend(bytes.len())?;
            let from = out.len();
            out.extend(bytes);
            filter::swap(&mut out[from..], swap(*dtype, *swapped));
            return Ok(());
        }
        let mut parts = bytes.chunks_exact(len.max(1) as usize);
        parts.try_for_each(|part| self.element(node, part, out))
    }

    /// Adds an element as text; a long one is cut.
    pub(super) fn text(&self, node: &TypeNode, bytes: &[u8], out: &mut String) -> Result<()> {
        if out.len() > LONGEST_TEXT {
            return Ok(());
        }
        self.spend(bytes.len())?;
        match node {
            TypeNode::Number(dtype, swapped) => out.push_str(&number(*dtype, *swapped, bytes)),
            TypeNode::Enumeration(dtype, swapped, names) => {
                let mut value = bytes.to_vec();
                filter::swap(&mut value, swap(*dtype, *swapped));
                match names.get(&value) {
                    Some(name) => out.push_str(name),
                    None => out.push_str(&shown(*dtype, &value)),
                }
            }
            TypeNode::Float(layout) => out.push_str(&layout.text(bytes)),
            TypeNode::Bits(range) => out.push_str(&range.text(bytes)),
            TypeNode::Text(padding) => quote(content(*padding, bytes), out),
            TypeNode::Opaque(_) => hexadecimal(bytes, out),
            TypeNode::Members(all) => {
                let parts = all
                    .iter()
                    .map(|member| Ok((&member.node, part(bytes, member.offset, member.size)?)));
                self.list(('{', '}'), parts, out)?;
            }
            TypeNode::Elements(_, len, node) => {
                let parts = bytes.chunks_exact((*len).max(1) as usize);
                self.list(('[', ']'), parts.map(|part| Ok((node, part))), out)?;
            }
            TypeNode::Object => reference(&self.object_path(bytes)?, "", out),
            TypeNode::Region => {
                let (path, selection) = self.region(bytes)?;
                reference(&path, &format!(" (region {:016x})", digest(&selection).0[0]), out);
            }
            TypeNode::Sequence(len, node, text) => {
                let (_, values) = self.sequence(bytes, *len)?;
                match text {
                    true => quote(content(ZEROS, &values), out),
                    false => {
                        let parts = values.chunks_exact((*len).max(1) as usize);
                        self.list(('[', ']'), parts.map(|part| Ok((node, part))), out)?;
                    }
                }
            }
        }
        Ok(())
    }

    fn list<'b>(
        &self,
        (open, close): (char, char),
        parts: impl Iterator<Item = Result<(&'b Arc<TypeNode>, &'b [u8])>>,
        out: &mut String,
    ) -> Result<()> {
        out.push(open);
        for (at, part) in parts.enumerate() {
            out.push_str(if at > 0 { ", " } else { "" });
            if out.len() > LONGEST_TEXT {
                out.push('…');
                break;
            }
            let (node, bytes) = part?;
            self.text(node, bytes, out)?;
        }
        out.push(close);
        Ok(())
    }

    /// The values of a sequence, and their number.
    fn sequence(&self, bytes: &[u8], len: u64) -> Result<(u64, Vec<u8>)> {
        let mut rest = self.meta.cursor(bytes);
        let count = u64::from(rest.u32()?);
        let mut object = if count == 0 { Vec::new() } else { self.object(&mut rest)? };
        let all = count.checked_mul(len).and_then(|all| usize::try_from(all).ok());
        let all = all.filter(|all| *all <= object.len()).ok_or_else(wrong)?;
        object.truncate(all);
        Ok((count, object))
    }

    fn object_path(&self, bytes: &[u8]) -> Result<String> {
        self.path(self.meta.cursor(bytes).uint(self.meta.offsets)?)
    }

    /// The dataset of a region, and the selection in it; nothing for none.
    fn region(&self, bytes: &[u8]) -> Result<(String, Vec<u8>)> {
        let object = self.object(&mut self.meta.cursor(bytes))?;
        let mut inside = self.meta.cursor(&object);
        match inside.rest.is_empty() {
            true => Ok((String::new(), Vec::new())),
            false => {
                let path = self.path(inside.uint(self.meta.offsets)?)?;
                // Selections that are not understood are compared as they were written.
                let written = inside.rest.to_vec();
                let selection =
                    Selection::parse(&mut inside).ok().filter(|_| inside.rest.is_empty());
                Ok((path, selection.map_or(written, |selection| selection.canonical())))
            }
        }
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
    pub(super) fn object(&self, id: &mut MetaCursor) -> Result<Vec<u8>> {
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
            self.heaps.borrow_mut().clear();
            self.kept.set(bytes.len());
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

fn part(bytes: &[u8], offset: u64, len: u64) -> Result<&[u8]> {
    bytes.get(offset as usize..(offset + len) as usize).ok_or_else(wrong)
}

/// The padding of texts that may end with zeros.
const ZEROS: u8 = 1;

/// Text without its padding: 0 ends it with a zero, 1 pads with zeros, 2 with spaces.
fn content(padding: u8, bytes: &[u8]) -> &[u8] {
    let end = match padding {
        0 => bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len()),
        2 => bytes.iter().rposition(|byte| *byte != b' ').map_or(0, |last| last + 1),
        _ => bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1),
    };
    &bytes[..end]
}

fn number(dtype: crate::array::DType, swapped: bool, bytes: &[u8]) -> String {
    let mut value = bytes.to_vec();
    filter::swap(&mut value, swap(dtype, swapped));
    shown(dtype, &value)
}

fn reference(path: &str, more: &str, out: &mut String) {
    match path {
        "" => out.push_str("no reference"),
        _ => out.push_str(&format!("→ {path}{more}")),
    }
}

/// A file whose values are resolved when somebody asks.
pub(super) struct ValueFile {
    whole: Extent,
    base: u64,
    paths: OnceLock<Result<ObjectPaths>>,
}

impl ValueFile {
    pub(super) fn new(whole: &Extent, base: u64) -> Arc<Self> {
        Arc::new(ValueFile { whole: whole.clone(), base, paths: OnceLock::new() })
    }

    /// The parts of elements of a type that are more than one number; none if a type has none or is not understood.
    pub(super) fn element_type(
        self: &Arc<Self>,
        meta: &Meta,
        of_type: &[u8],
        kind: &TypeKind,
    ) -> Option<ElementType> {
        let (size, node) = node::parse(&mut meta.cursor(of_type), 0, &mut Vec::new()).ok()?;
        if let TypeKind::Numbers(dtype, ..) = kind {
            let TypeNode::Enumeration(_, _, names) = node else { return None };
            // An array like this holds numbers in this processor's order already.
            let kind = PartKind::Named(*dtype, 0, names);
            return ElementType::new(size, vec![ElementPart::whole(kind)]);
        }
        // Bytes one by one are compared as such.
        let bytes = matches!(node, TypeNode::Text(_) | TypeNode::Opaque(_) | TypeNode::Bits(_));
        if bytes && size == 1 {
            return None;
        }
        let other = |size: u64, node: &Arc<TypeNode>| {
            let meaning = NodeMeaning { file: self.clone(), node: node.clone() };
            PartKind::Other(size, Arc::new(meaning))
        };
        ElementType::new(size, Arc::new(node).parts(size, &other))
    }

    /// The paths of all objects.
    fn paths(&self) -> Result<&ObjectPaths> {
        let find = || {
            let (meta, root) = superblock(&self.whole, self.base)?;
            Ok(super::inventory::objects(&meta, root, &mut Inventory::default())?.1)
        };
        self.paths.get_or_init(find).as_ref().map_err(Clone::clone)
    }
}

/// The meaning of values of one type in a file.
pub(super) struct NodeMeaning {
    pub(super) file: Arc<ValueFile>,
    pub(super) node: Arc<TypeNode>,
}

impl NodeMeaning {
    fn resolve<T>(&self, work: impl FnOnce(&Resolver) -> Result<T>) -> Result<T> {
        let none = ObjectPaths::new();
        let paths = if self.node.has_references() { self.file.paths()? } else { &none };
        let (meta, _) = superblock(&self.file.whole, self.file.base)?;
        work(&Resolver::new(&meta, paths)).map_err(|error| error.at(self.file.whole.store()))
    }
}

impl Meaning for NodeMeaning {
    fn kind(&self) -> &'static str {
        self.node.kind()
    }

    fn digests(&self, values: &[u8], size: usize) -> Result<Vec<u64>> {
        self.resolve(|resolver| {
            let mut meaning = Vec::new();
            let mut all = Vec::with_capacity(values.len() / size.max(1));
            for value in values.chunks_exact(size.max(1)) {
                meaning.clear();
                resolver.element(&self.node, value, &mut meaning)?;
                all.push(digest(&meaning).0[0]);
            }
            Ok(all)
        })
    }

    fn text(&self, value: &[u8]) -> Result<String> {
        self.resolve(|resolver| {
            let mut text = String::new();
            resolver.text(&self.node, value, &mut text)?;
            Ok(text)
        })
    }
}
