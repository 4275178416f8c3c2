//! The walk down two trees: only where nodes differ, and only over what the root vouches for.

use super::side::{Meter, TreeView};
use crate::error::{Error, Result};
use crate::merkle::bounded::{NODE, tree_root};
use crate::merkle::{Digest, digest};

/// A node just above the leaves that the two trees do not agree on.
pub(super) struct DifferingNode {
    pub(super) at: u64,
    pub(super) digests: [Digest; 2],
}

/// An error, and the side whose tree it is about.
pub(super) type Blamed<T> = std::result::Result<T, (usize, Error)>;

/// The lowest nodes that differ, ascending.
pub(super) fn walk(views: [&TreeView; 2], meter: &Meter) -> Blamed<Vec<DifferingNode>> {
    let layout = &views[0].layout;
    let Some(top) = layout.levels.last() else { return Ok(Vec::new()) };
    let mut tops = [Digest::default(); 2];
    for (side, view) in views.iter().enumerate() {
        let bytes = view.read(top.clone(), meter).map_err(|e| (side, e))?;
        if tree_root(layout, &bytes, view.entry.nans_digest) != view.entry.root {
            return Err((side, damaged()));
        }
        tops[side] = digest_at(&bytes, 0);
    }
    let mut nodes = vec![DifferingNode { at: 0, digests: tops }];
    nodes.retain(|node| node.digests[0] != node.digests[1]);
    for level in layout.levels.iter().rev().skip(1) {
        let mut below = Vec::new();
        for node in &nodes {
            let start = level.start + node.at * NODE * 16;
            let end = level.end.min(start + NODE * 16);
            let children = read_both(views, start..end, &node.digests, meter)?;
            for at in 0..children[0].len() / 16 {
                let digests = [digest_at(&children[0], at), digest_at(&children[1], at)];
                if digests[0] != digests[1] {
                    below.push(DifferingNode { at: node.at * NODE + at as u64, digests });
                }
            }
        }
        nodes = below;
    }
    Ok(nodes)
}

/// The leaves under a lowest node, both sides', checked.
pub(super) fn leaves(
    views: [&TreeView; 2],
    node: &DifferingNode,
    meter: &Meter,
) -> Blamed<[Vec<u8>; 2]> {
    let leaves = &views[0].layout.leaves;
    let start = leaves.start + node.at * NODE * 16;
    read_both(views, start..leaves.end.min(start + NODE * 16), &node.digests, meter)
}

/// The numbers of NaN in each chunk, with the mark of finite values without a cell, checked.
pub(super) fn nans(view: &TreeView, meter: &Meter) -> Result<Vec<u32>> {
    let bytes = view.read(view.layout.nans.clone(), meter)?;
    match digest(&bytes) == view.entry.nans_digest {
        true => Ok(bytes.as_chunks::<4>().0.iter().map(|four| u32::from_le_bytes(*four)).collect()),
        false => Err(damaged()),
    }
}

fn read_both(
    views: [&TreeView; 2],
    range: std::ops::Range<u64>,
    digests: &[Digest; 2],
    meter: &Meter,
) -> Blamed<[Vec<u8>; 2]> {
    let read = |side: usize| {
        let bytes = views[side].read(range.clone(), meter).map_err(|e| (side, e))?;
        match digest(&bytes) == digests[side] {
            true => Ok(bytes),
            false => Err((side, damaged())),
        }
    };
    Ok([read(0)?, read(1)?])
}

fn digest_at(bytes: &[u8], at: usize) -> Digest {
    let word = |from: usize| {
        bytes[from..from + 8].iter().rev().fold(0, |word, byte| word << 8 | *byte as u64)
    };
    Digest([word(at * 16), word(at * 16 + 8)])
}

fn damaged() -> Error {
    Error::damaged("a tree does not agree with its own root")
}
