//! The links of a group: an old one has a symbol table, a new one has messages or a heap.

use super::bytes::Meta;
use super::header::HeaderMessage;
use super::heap::Heap;
use super::tree;
use crate::error::{Error, Result};

/// The kind of a link to a path of the same file, and to one of another file.
pub(super) const SOFT: u8 = 1;
pub(super) const EXTERNAL: u8 = 64;

/// Destination of a link.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum LinkTarget {
    /// The address of an object.
    Object(u64),
    /// A path, a path in another file, or what a user has defined: the kind of the link and its bytes.
    Elsewhere(u8, Vec<u8>),
}

/// The links of a group: names and destinations.
pub(super) fn links(meta: &Meta, messages: &[HeaderMessage]) -> Result<Vec<(String, LinkTarget)>> {
    let mut links = Vec::new();
    for message in messages {
        let mut rest = meta.cursor(&message.bytes);
        match message.kind {
            0x06 => links.push(link(meta, &message.bytes)?),
            0x02 => {
                let flags = rest.take(2)?[1];
                rest.skip(if flags & 1 != 0 { 8 } else { 0 })?;
                if let (Some(heap), Some(index)) = (rest.address()?, rest.address()?) {
                    dense(meta, heap, index, &mut links)?;
                }
            }
            0x11 => {
                let (tree, heap) = (rest.defined()?, rest.defined()?);
                symbols(meta, tree, heap, &mut links)?;
            }
            _ => {}
        }
    }
    Ok(links)
}

fn link(meta: &Meta, bytes: &[u8]) -> Result<(String, LinkTarget)> {
    let mut rest = meta.cursor(bytes);
    let flags = rest.take(2)?[1];
    let kind = if flags & 8 != 0 { rest.u8()? } else { 0 };
    rest.skip(if flags & 4 != 0 { 8 } else { 0 })?;
    rest.skip(if flags & 0x10 != 0 { 1 } else { 0 })?;
    let len = rest.uint(1 << (flags & 3))?;
    let len = usize::try_from(len).map_err(|_| Error::damaged("a name is too long"))?;
    let name = String::from_utf8_lossy(rest.take(len)?).into_owned();
    Ok(match kind {
        0 => (name, LinkTarget::Object(rest.defined()?)),
        _ => {
            let len = usize::from(rest.u16()?);
            (name, LinkTarget::Elsewhere(kind, rest.take(len)?.to_vec()))
        }
    })
}

fn dense(meta: &Meta, heap: u64, index: u64, links: &mut Vec<(String, LinkTarget)>) -> Result<()> {
    let heap = Heap::new(meta, heap)?;
    tree::second(meta, index, &mut |kind, record| {
        let id = match kind {
            5 => record.get(4..),
            6 => record.get(8..),
            _ => None,
        };
        let id = id.ok_or_else(|| Error::damaged("corrupt HDF5 file: invalid links of a group"))?;
        links.push(link(meta, &heap.object(id)?)?);
        Ok(())
    })
}

/// The bytes of a local heap, which keeps names.
pub(super) fn local_heap(meta: &Meta, heap: u64) -> Result<Vec<u8>> {
    let head = meta.signed(heap, (8 + 2 * meta.lengths + meta.offsets) as u64, b"HEAP")?;
    let mut rest = meta.cursor(&head[8..]);
    let (len, _, at) = (rest.length()?, rest.length()?, rest.defined()?);
    meta.read(at, len)
}

fn symbols(meta: &Meta, tree: u64, heap: u64, links: &mut Vec<(String, LinkTarget)>) -> Result<()> {
    let names = local_heap(meta, heap)?;
    let entry = 2 * meta.offsets + 24;
    tree::first(meta, tree, 0, meta.lengths, &mut |_, child| {
        let head = meta.signed(child, 8, b"SNOD")?;
        let count = u16::from_le_bytes([head[6], head[7]]);
        let entries = meta.read(child + 8, u64::from(count) * entry as u64)?;
        for bytes in entries.chunks_exact(entry) {
            let mut rest = meta.cursor(bytes);
            let name = rest.uint(meta.offsets)?;
            let object = rest.address()?;
            let symbolic = rest.u32()? == 2;
            rest.skip(4)?;
            let path = u64::from(rest.u32()?);
            let text = |at: u64| {
                let name = usize::try_from(at).ok().and_then(|at| names.get(at..));
                let name = name.ok_or_else(|| Error::damaged("a name is out of its heap"))?;
                meta.cursor(name).name(1)
            };
            let name = String::from_utf8_lossy(text(name)?).into_owned();
            match object.filter(|_| !symbolic) {
                Some(object) => links.push((name, LinkTarget::Object(object))),
                None if symbolic => {
                    links.push((name, LinkTarget::Elsewhere(SOFT, text(path)?.to_vec())));
                }
                None => {}
            }
        }
        Ok(())
    })
}
