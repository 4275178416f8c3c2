//! The content of an HDF5 file beside its arrays of numbers and bytes: links, attributes, types, and
//! values of variable length.

use super::bytes::Meta;
use super::dataset::AttributeMessage;
use super::datatype::{self, TypeKind};
use super::group::{self, LinkTarget};
use super::header::{self, HeaderMessage};
use super::heap::Heap;
use super::node::{self, TypeNode};
use super::values::{ObjectPaths, Resolver, ValueFile};
use super::{DEEPEST, LAYOUT, LONGEST, dataset, shared, superblock, tree};
use crate::array::DType;
use crate::error::{Error, ErrorKind, Result};
use crate::merkle::Digester;
use crate::source::Extent;
use crate::source::chunks::Cache;
use crate::source::filter::swap;
use crate::source::found::Placement;
use crate::source::inventory::{Inventory, LINK, LinkedPlace, OBJECT, shown};
use crate::store::Blob;
use std::collections::HashMap;
use std::sync::Arc;

/// Messages that hold structure, no content, or are listed elsewhere: extents, types, fill values,
/// layouts, filters, times, counts and the places of other messages.
const STRUCTURE: [u16; 19] = [
    0x00, 0x01, 0x02, 0x04, 0x05, 0x06, 0x07, 0x08, 0x0a, 0x0b, 0x0e, 0x10, 0x11, 0x12, 0x13, 0x14,
    0x16, 0x17, 0x18,
];

/// The kind of messages that hold types.
const TYPE: u16 = 3;

/// An object, with its path.
pub(super) struct Object {
    path: String,
    messages: Vec<HeaderMessage>,
}

/// Lists the content of a file.
pub(in crate::source) fn inventory(whole: &Extent, base: u64, all: &mut Inventory) -> Result<()> {
    let (meta, root) = superblock(whole, base)?;
    if base > 0 {
        let mut block = crate::memory::zeroed(base)?;
        whole.read_at(0, &mut block)?;
        all.add("user block".into(), &block, String::new());
    }
    let (objects, paths) = objects(&meta, root, all)?;
    let (resolver, values) = (Resolver::new(&meta, &paths), ValueFile::new(whole, base));
    for object in &objects {
        for message in &object.messages {
            let list = Lister { meta: &meta, resolver: &resolver, values: &values, object };
            list.message(message, all)?;
        }
    }
    Ok(())
}

/// All objects by their paths, and their addresses; links that are more than a path are listed.
pub(super) fn objects(
    meta: &Meta,
    root: u64,
    all: &mut Inventory,
) -> Result<(Vec<Object>, ObjectPaths)> {
    let mut objects = Vec::new();
    let mut paths = HashMap::from([(root, String::new())]);
    let mut left = vec![(String::new(), root, 0)];
    while let Some((path, at, depth)) = left.pop() {
        if depth > DEEPEST || path.len() > LONGEST {
            return Err(Error::damaged("the groups of this HDF5 file have no end"));
        }
        let read = || -> Result<_> {
            let messages = header::messages(meta, at)?;
            let links = group::links(meta, &messages)?;
            Ok((messages, links))
        };
        let (messages, mut links) = match read() {
            Ok(read) => read,
            // Nothing of a file is known without its root.
            Err(error) if path.is_empty() || error.kind() == ErrorKind::Io => return Err(error),
            Err(error) => {
                all.add_unknown(format!("{OBJECT}{path}"), error);
                continue;
            }
        };
        links.sort();
        let prefix = if path.is_empty() { String::new() } else { format!("{path}/") };
        let mut below = Vec::new();
        for (name, target) in links {
            let name = format!("{prefix}{name}");
            match target {
                LinkTarget::Elsewhere(kind, bytes) => {
                    let to = linked(kind, &bytes);
                    let shown = to.as_ref().map_or(String::new(), LinkedPlace::to_string);
                    all.add(format!("{LINK}{name}"), &[&[kind], &bytes[..]].concat(), shown);
                    to.into_iter().for_each(|to| all.add_link(&name, to));
                }
                LinkTarget::Object(at) => match paths.get(&at) {
                    Some(other) => all.add_hard_link(&name, other),
                    None => {
                        // Its kind is told when it is looked at.
                        all.add(format!("{OBJECT}{name}"), &[], String::new());
                        paths.insert(at, name.clone());
                        below.push((name, at, depth + 1));
                    }
                },
            }
        }
        left.extend(below.into_iter().rev());
        if !path.is_empty() {
            // An empty group is content, too.
            let has = |kind: u16| messages.iter().any(|message| message.kind == kind);
            let kind = match (has(LAYOUT), has(TYPE)) {
                (true, _) => "dataset",
                (_, true) => "type",
                _ => "group",
            };
            all.add(format!("{OBJECT}{path}"), kind.as_bytes(), kind.into());
        }
        objects.push(Object { path, messages });
    }
    Ok((objects, paths))
}

/// The place that a link leads to; none if its kind is not known.
fn linked(kind: u8, bytes: &[u8]) -> Option<LinkedPlace> {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    match kind {
        group::SOFT => Some(LinkedPlace::Here(text(bytes))),
        // Flags, then a file and a path, each with a zero behind.
        group::EXTERNAL => {
            let mut parts = bytes.get(1..)?.split(|byte| *byte == 0);
            Some(LinkedPlace::Elsewhere(text(parts.next()?), text(parts.next()?)))
        }
        _ => None,
    }
}

struct Lister<'a> {
    meta: &'a Meta<'a>,
    resolver: &'a Resolver<'a>,
    values: &'a Arc<ValueFile>,
    object: &'a Object,
}

impl Lister<'_> {
    fn message(&self, message: &HeaderMessage, all: &mut Inventory) -> Result<()> {
        let path = &self.object.path;
        let shared = message.flags & 2 != 0;
        match message.kind {
            TYPE => self.of_type(message, all),
            0xd => {
                let text = String::from_utf8_lossy(&message.bytes).into_owned();
                all.add(format!("comment of /{path}"), &message.bytes, text);
            }
            0xc | 0x15 if shared => {
                all.add_unknown(format!("an attribute of /{path}"), "it is shared by objects");
            }
            0xc => self.attribute(&message.bytes, all),
            0x15 => {
                if let Err(error) = self.many_attributes(message, all) {
                    all.add_unknown(format!("attributes of /{path}"), error);
                }
            }
            kind if STRUCTURE.contains(&kind) => {}
            kind => all.add_unknown(format!("message {kind} of /{path}"), "its kind is not known"),
        }
        Ok(())
    }

    /// Lists a type that is more than numbers, and the values of a dataset that lie elsewhere.
    fn of_type(&self, message: &HeaderMessage, all: &mut Inventory) {
        let path = &self.object.path;
        let name = format!("type of /{path}");
        let read = || -> Result<()> {
            let bytes = dataset::type_bytes(self.meta, &message.bytes, message.flags & 2 != 0)?;
            let kind = datatype::parse(&mut self.meta.cursor(&bytes), 0)?.kind;
            let mut told = Vec::new();
            let (size, node) = node::parse(&mut self.meta.cursor(&bytes), 0, &mut told)?;
            let is_dataset = self.object.messages.iter().any(|message| message.kind == LAYOUT);
            let parts = self.values.element_type(self.meta, &bytes, &kind).filter(|_| is_dataset);
            match (&parts, &kind) {
                // Of arrays whose parts are compared, only names and tags are left.
                (Some(_), _) => {
                    told.clear();
                    node.beside(false, &mut told);
                }
                (None, TypeKind::Numbers(..)) if is_dataset => return Ok(()),
                (None, TypeKind::Pointers) => self.values(size, &node, all),
                (None, _) => {}
            }
            all.add(name.clone(), &told, String::new());
            Ok(())
        };
        let mut read = read;
        if let Err(error) = read() {
            all.add_unknown(name, error);
        }
    }

    /// Lists the values of a dataset of addresses.
    fn values(&self, size: u64, node: &TypeNode, all: &mut Inventory) {
        let Object { path, messages } = self.object;
        let digest = || -> Result<_> {
            let cache = Arc::<Cache>::default();
            let found = dataset::find(self.meta, path, messages, &cache, self.values)?;
            let Some(found) = found else { return Ok(None) };
            if let Placement::Unreadable(why, _) = &found.place {
                return Err(why.clone());
            }
            let bytes = found.field(self.meta.whole)?.bytes;
            let mut digester = Digester::new();
            found.description.shape.0.iter().for_each(|n| digester.update(&n.to_le_bytes()));
            // A size that no value has would be believed, and one of 0 has no end.
            if size == 0 || size > bytes.size() {
                return Ok(Some(digester.finish()));
            }
            let mut element = crate::memory::zeroed(size)?;
            let (mut at, mut meaning) = (0, Vec::new());
            while at + size <= bytes.size() {
                bytes.read_at(at, &mut element)?;
                meaning.clear();
                self.resolver.element(node, &element, &mut meaning)?;
                digester.update(&meaning);
                at += size;
            }
            Ok(Some(digester.finish()))
        };
        match digest() {
            Ok(Some(digest)) => all.add_digest(format!("values of /{path}"), digest, String::new()),
            Ok(None) => {}
            Err(error) => all.add_unknown(format!("values of /{path}"), error),
        }
    }

    /// Lists attributes that are kept in a heap.
    fn many_attributes(&self, message: &HeaderMessage, all: &mut Inventory) -> Result<()> {
        let mut rest = self.meta.cursor(&message.bytes);
        let flags = rest.take(2)?[1];
        rest.skip(if flags & 1 != 0 { 2 } else { 0 })?;
        let (Some(heap), Some(index)) = (rest.address()?, rest.address()?) else { return Ok(()) };
        let heap = Heap::new(self.meta, heap)?;
        tree::second(self.meta, index, &mut |_, record| {
            let mut rest = self.meta.cursor(record);
            let (id, flags) = (rest.take(8)?, rest.u8()?);
            let attribute = match flags & 2 {
                0 => heap.object(id)?,
                _ => shared::in_heap(self.meta, 0xc, id)?,
            };
            self.attribute(&attribute, all);
            Ok(())
        })
    }

    fn attribute(&self, bytes: &[u8], all: &mut Inventory) {
        let of = format!("/{}", self.object.path);
        if let Err((name, error)) = self.try_attribute(bytes, &of, all) {
            all.add_unknown(format!("attribute {name} of {of}"), error);
        }
    }

    fn try_attribute(
        &self,
        bytes: &[u8],
        of: &str,
        all: &mut Inventory,
    ) -> std::result::Result<(), (String, Error)> {
        let unnamed = |error| (String::new(), error);
        let message = AttributeMessage::parse(self.meta, bytes).map_err(unnamed)?;
        let name = String::from_utf8_lossy(message.name).into_owned();
        let named = |error| (name.clone(), error);
        let element = message.element(self.meta).map_err(named)?;
        let space = message.space(self.meta).map_err(named)?;
        let (digest, text) = self.values_of(&element, &space, message.values).map_err(named)?;
        all.add_digest(format!("attribute {name} of {of}"), digest, text);
        Ok(())
    }

    /// The content of the values of an attribute, and the same as text where they are few.
    fn values_of(
        &self,
        element: &[u8],
        space: &[u8],
        data: &[u8],
    ) -> Result<(crate::merkle::Digest, String)> {
        let short = || Error::damaged("an attribute of this HDF5 file is cut short");
        let kind = datatype::parse(&mut self.meta.cursor(element), 0)?.kind;
        let (size, node) = node::parse(&mut self.meta.cursor(element), 0, &mut Vec::new())?;
        // Lengths of texts, padding and byte order are no content.
        let mut told = Vec::new();
        node.beside(true, &mut told);
        let shape = dataset::shape(self.meta, space)?;
        let count = shape.iter().copied().fold(1, u64::saturating_mul);
        let all = count.checked_mul(size).and_then(|all| usize::try_from(all).ok());
        let data = all.and_then(|all| data.get(..all)).ok_or_else(short)?;
        let mut digester = Digester::new();
        shape.iter().for_each(|n| digester.update(&n.to_le_bytes()));
        if let TypeKind::Numbers(dtype, swapped, _) = kind {
            let mut bytes = data.to_vec();
            let complex = dtype.name().starts_with('c');
            let number = if complex { dtype.size() / 2 } else { dtype.size() };
            swap(&mut bytes, if swapped { number as u8 } else { 0 });
            digester.update(&by_value(dtype, &bytes));
            return Ok((digester.finish(), shown(dtype, &bytes)));
        }
        digester.update(&told);
        let (mut meaning, mut text) = (Vec::new(), String::new());
        for (at, part) in data.chunks_exact(size.max(1) as usize).enumerate() {
            meaning.clear();
            self.resolver.element(&node, part, &mut meaning)?;
            digester.update(&meaning);
            text.push_str(if at > 0 { ", " } else { "" });
            self.resolver.text(&node, part, &mut text)?;
        }
        Ok((digester.finish(), text))
    }
}

/// Numbers as those of the widest type of their kind, and the kind: an attribute of another width can have the same
/// values.
fn by_value(dtype: DType, bytes: &[u8]) -> Vec<u8> {
    let word = |raw: &[u8]| {
        let mut word = [0; 8];
        word[..raw.len()].copy_from_slice(raw);
        u64::from_le_bytes(word)
    };
    let signed = matches!(dtype, DType::I8 | DType::I16 | DType::I32 | DType::I64);
    let unsigned = matches!(dtype, DType::U8 | DType::U16 | DType::U32 | DType::U64);
    let size = dtype.size() as usize;
    let mut out = Vec::new();
    match dtype {
        DType::F32 => {
            out.push(b'f');
            let wide = |raw: &[u8]| f64::from(f32::from_bits(word(raw) as u32)).to_le_bytes();
            out.extend(bytes.chunks_exact(size).flat_map(wide));
        }
        DType::F64 => {
            out.push(b'f');
            out.extend(bytes);
        }
        _ if signed => {
            out.push(b'i');
            let unused = 64 - 8 * size;
            let wide = |raw: &[u8]| ((word(raw) << unused) as i64 >> unused).to_le_bytes();
            out.extend(bytes.chunks_exact(size).flat_map(wide));
        }
        _ if unsigned => {
            out.push(b'u');
            out.extend(bytes.chunks_exact(size).flat_map(|raw| word(raw).to_le_bytes()));
        }
        _ => {
            out.extend(dtype.name().as_bytes());
            out.extend(bytes);
        }
    }
    out
}
