//! Messages that objects share: named types, and messages in the heaps of a file that shares equal ones.

use super::bytes::Meta;
use super::header::{self, SHARED};
use super::heap::Heap;
use crate::error::{Error, Result};

/// The message that tells where the table of shared messages is.
const TABLE: u16 = 0xf;

/// The message that stands for a reference to it.
pub(super) fn message(meta: &Meta, kind: u16, reference: &[u8]) -> Result<Vec<u8>> {
    let mut rest = meta.cursor(reference);
    let (version, place) = (rest.u8()?, rest.u8()?);
    if version == 3 && place == 1 {
        return in_heap(meta, kind, rest.take(8)?);
    }
    rest.skip(if version == 1 { 6 } else { 0 })?;
    let messages = header::own_messages(meta, rest.defined()?)?;
    let own = messages.into_iter().find(|m| m.kind == kind && m.flags & SHARED == 0);
    let own = own.ok_or_else(|| Error::damaged("corrupt HDF5 file: invalid named type"))?;
    Ok(own.bytes)
}

/// A message of a kind in the heap for its kind.
pub(super) fn in_heap(meta: &Meta, kind: u16, id: &[u8]) -> Result<Vec<u8>> {
    let wrong = || Error::damaged("this HDF5 file lacks a message that objects share");
    let extension = header::own_messages(meta, meta.extension.ok_or_else(wrong)?)?;
    let table = extension.iter().find(|message| message.kind == TABLE).ok_or_else(wrong)?;
    let mut rest = meta.cursor(&table.bytes);
    rest.skip(1)?;
    let (at, count) = (rest.defined()?, u64::from(rest.u8()?));
    // Of each index: version, kind, kinds of messages, sizes and counts, its address and that of its heap.
    let entry = 14 + 2 * meta.offsets;
    let indices = meta.sealed(at, 4 + count * entry as u64, b"SMTB")?;
    for index in indices[4..].chunks_exact(entry) {
        let mut rest = meta.cursor(index);
        rest.skip(2)?;
        let kinds = rest.u16()?;
        if kinds & flag(kind) == 0 {
            continue;
        }
        rest.skip(10 + meta.offsets)?;
        return Heap::new(meta, rest.defined()?)?.object(id);
    }
    Err(wrong())
}

/// The flag of a kind of messages in a table.
fn flag(kind: u16) -> u16 {
    match kind {
        0x1 => 1,
        0x3 => 2,
        // Fill values, new and old.
        0x4 | 0x5 => 4,
        0xb => 8,
        0xc => 16,
        _ => 0,
    }
}
