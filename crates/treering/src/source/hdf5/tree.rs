//! The two kinds of B-trees: version 1 for groups and chunks, version 2 for links and chunks.

use super::bytes::Meta;
use crate::error::{Error, Result};
use std::collections::HashSet;

/// The leaves of a version 1 tree: the key before each child, and the child.
pub(super) fn first(
    meta: &Meta,
    root: u64,
    kind: u8,
    key: usize,
    visit: &mut dyn FnMut(&[u8], u64) -> Result<()>,
) -> Result<()> {
    let wrong = || Error::damaged("corrupt HDF5 file: invalid B-tree");
    let mut nodes = vec![(root, None::<u8>)];
    let mut seen = HashSet::new();
    while let Some((at, level)) = nodes.pop() {
        let head_len = 8 + 2 * meta.offsets;
        let head = meta.signed(at, head_len as u64, b"TREE")?;
        let (own, entries) = (head[5], u16::from_le_bytes([head[6], head[7]]));
        if head[4] != kind || level.is_some_and(|level| level != own) || !seen.insert(at) {
            return Err(wrong());
        }
        let body =
            meta.read(at + head_len as u64, u64::from(entries) * (key + meta.offsets) as u64)?;
        let mut rest = meta.cursor(&body);
        let mut below = Vec::new();
        for _ in 0..entries {
            let key = rest.take(key)?;
            let child = rest.defined()?;
            match own {
                0 => visit(key, child)?,
                _ => below.push((child, Some(own - 1))),
            }
        }
        nodes.extend(below.into_iter().rev());
    }
    Ok(())
}

/// The records of a version 2 tree; `visit` also gets the kind of the tree.
pub(super) fn second(
    meta: &Meta,
    at: u64,
    visit: &mut dyn FnMut(u8, &[u8]) -> Result<()>,
) -> Result<()> {
    let head = meta.sealed(at, (16 + meta.offsets + 2 + meta.lengths) as u64, b"BTHD")?;
    let mut rest = meta.cursor(&head[5..]);
    let kind = rest.u8()?;
    let (node, record, depth) = (u64::from(rest.u32()?), u64::from(rest.u16()?), rest.u16()?);
    rest.skip(2)?;
    let (root, count) = (rest.address()?, u64::from(rest.u16()?));
    let Some(root) = root else { return Ok(()) };
    let wrong = || Error::damaged("corrupt HDF5 file: invalid B-tree");
    if record == 0 || node < 10 + record || depth > 32 {
        return Err(wrong());
    }
    let widths = widths(meta, node, record, depth).ok_or_else(wrong)?;
    let mut nodes = vec![(root, count, depth)];
    let mut seen = HashSet::new();
    while let Some((at, count, depth)) = nodes.pop() {
        if !seen.insert(at) {
            return Err(wrong());
        }
        let (records, below) = match depth {
            0 => (meta.sealed(at, 6 + count * record, b"BTLF")?, Vec::new()),
            _ => inner(meta, at, count, record, &widths[..depth as usize])?,
        };
        for record in records[6..].chunks_exact(record as usize).take(count as usize) {
            visit(kind, record)?;
        }
        nodes.extend(below.into_iter().map(|(at, count)| (at, count, depth - 1)));
    }
    Ok(())
}

type InnerNode = (Vec<u8>, Vec<(u64, u64)>);

fn inner(
    meta: &Meta,
    at: u64,
    count: u64,
    record: u64,
    widths: &[(usize, usize)],
) -> Result<InnerNode> {
    let (own, all) = widths[widths.len() - 1];
    let pointers = (count + 1) * (meta.offsets + own + all) as u64;
    let bytes = meta.sealed(at, 6 + count * record + pointers, b"BTIN")?;
    let mut rest = meta.cursor(&bytes[6 + (count * record) as usize..]);
    let mut below = Vec::new();
    for _ in 0..=count {
        below.push((rest.defined()?, rest.uint(own)?));
        rest.skip(all)?;
    }
    Ok((bytes, below))
}

/// For each depth from 1 on, how many bytes count the records of a child and of all below it.
fn widths(meta: &Meta, node: u64, record: u64, depth: u16) -> Option<Vec<(usize, usize)>> {
    let bytes = |value: u64| value.checked_ilog2().unwrap_or(0) as usize / 8 + 1;
    let leaf = (node - 10) / record;
    let own = bytes(leaf);
    let (mut all, mut all_width) = (leaf, 0);
    let mut widths = Vec::new();
    for _ in 0..depth {
        widths.push((own, all_width));
        let pointer = (meta.offsets + own + all_width) as u64;
        let most = node.checked_sub(10 + pointer)? / (record + pointer);
        all = (most + 1).checked_mul(all)?.checked_add(most)?;
        all_width = bytes(all);
    }
    Some(widths)
}
