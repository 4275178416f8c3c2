//! Object headers, versions 1 and 2, as lists of messages.

use super::bytes::{self, Meta};
use super::shared;
use crate::error::{Error, Result};
use std::collections::HashSet;

/// A message of an object header.
pub(super) struct HeaderMessage {
    pub(super) kind: u16,
    pub(super) flags: u8,
    pub(super) bytes: Vec<u8>,
    /// Where these bytes lie in the file.
    pub(super) place: u64,
}

/// The flag of a message that is kept elsewhere and shared by objects.
pub(super) const SHARED: u8 = 2;
/// More messages than any object has.
const MOST: usize = 1 << 20;

/// The messages of the object at an address, continuations followed. Messages that objects share are looked up; one
/// that cannot be found keeps its flag.
pub(super) fn messages(meta: &Meta, at: u64) -> Result<Vec<HeaderMessage>> {
    let mut all = own_messages(meta, at)?;
    for message in all.iter_mut().filter(|message| message.flags & SHARED != 0) {
        if let Ok(bytes) = shared::message(meta, message.kind, &message.bytes) {
            message.bytes = bytes;
            message.flags &= !SHARED;
        }
    }
    Ok(all)
}

/// The same as they are in the header.
pub(super) fn own_messages(meta: &Meta, at: u64) -> Result<Vec<HeaderMessage>> {
    let start = meta.read(at, 16)?;
    match start.starts_with(b"OHDR") {
        true => second(meta, at),
        false => first(meta, at, &start),
    }
}

fn first(meta: &Meta, at: u64, start: &[u8]) -> Result<Vec<HeaderMessage>> {
    if start[0] != 1 {
        return Err(Error::damaged("an object of this HDF5 file has no header"));
    }
    let len = u64::from(meta.cursor(&start[8..]).u32()?);
    collect(meta, (at + 16, len), &mut |block, at, out| {
        let mut rest = meta.cursor(block);
        while rest.rest.len() >= 8 {
            let (kind, len, flags) = (rest.u16()?, rest.u16()?, rest.u8()?);
            rest.skip(3)?;
            let place = at + (block.len() - rest.rest.len()) as u64;
            let bytes = rest.take(len.into())?.to_vec();
            out.push(HeaderMessage { kind, flags, bytes, place });
        }
        Ok(())
    })
}

fn second(meta: &Meta, at: u64) -> Result<Vec<HeaderMessage>> {
    let start = meta.read(at, 6)?;
    let flags = start[5];
    let times = if flags & 0x20 != 0 { 16 } else { 0 };
    let attributes = if flags & 0x10 != 0 { 4 } else { 0 };
    let width = 1usize << (flags & 3);
    let before = 6 + times + attributes + width as u64;
    let head = meta.read(at, before)?;
    let len = meta.cursor(&head[head.len() - width..]).uint(width)?;
    meta.checked(at, before.saturating_add(len))?;
    let ordered = if flags & 4 != 0 { 2 } else { 0 };
    let first = at + before;
    collect(meta, (first, len), &mut |block, at, out| {
        let mut rest = meta.cursor(block);
        if at != meta.place(first)? {
            if rest.take(4)? != b"OCHK" {
                return Err(Error::damaged("OCHK is missing in this HDF5 file"));
            }
            bytes::check(block)?;
            let inside = rest.rest.len().saturating_sub(4);
            rest.rest = &rest.rest[..inside];
        }
        let end = block.len() - if at == meta.place(first)? { 0 } else { 4 };
        while rest.rest.len() >= 4 + ordered {
            let (kind, len, flags) = (rest.u8()?, rest.u16()?, rest.u8()?);
            rest.skip(ordered)?;
            let place = at + (end - rest.rest.len()) as u64;
            let bytes = rest.take(len.into())?.to_vec();
            out.push(HeaderMessage { kind: kind.into(), flags, bytes, place });
        }
        Ok(())
    })
}

type Split<'a> = &'a mut dyn FnMut(&[u8], u64, &mut Vec<HeaderMessage>) -> Result<()>;

/// Splits blocks, the first and those that its messages name.
fn collect(meta: &Meta, block: (u64, u64), split: Split) -> Result<Vec<HeaderMessage>> {
    let mut blocks = vec![block];
    let mut seen = HashSet::new();
    let mut out = Vec::new();
    while let Some((at, len)) = blocks.pop() {
        if !seen.insert(at) || out.len() > MOST {
            return Err(Error::damaged("an object of this HDF5 file has no end"));
        }
        let bytes = meta.read(at, len)?;
        let from = out.len();
        split(&bytes, meta.place(at)?, &mut out)?;
        for message in &out[from..] {
            if message.kind == 0x10 {
                let mut rest = meta.cursor(&message.bytes);
                blocks.push((rest.defined()?, rest.length()?));
            }
        }
    }
    Ok(out)
}
