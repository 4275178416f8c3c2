//! HDF5, and so netCDF-4: the datasets of a file and where their values lie.
//!
//! Only what leads to the datasets is read: superblock, groups, object headers, chunk indices, in all
//! the versions that libraries have written, with their checksums; of attributes, those that tell which
//! values stand for something else. References, variable-length values and links to other files are
//! left where they are; `inventory` resolves them for comparison. Nothing outside of the file is looked at. What is read
//! is bounded by the size of the file, however its structures point to each other.

mod bytes;
mod dataset;
mod datatype;
mod group;
mod header;
mod heap;
mod index;
mod inventory;
mod tree;
mod values;

use self::bytes::Meta;
use self::group::LinkTarget;
pub(super) use self::inventory::inventory;
use super::Extent;
use super::chunks::Cache;
use super::found::Contents;
use crate::error::{Error, Result};
use crate::store::Blob;
use std::collections::HashSet;
use std::sync::Arc;

const SIGNATURE: &[u8; 8] = b"\x89HDF\r\n\x1a\n";
/// The message that every dataset has.
const LAYOUT: u16 = 8;
/// The deepest group, and the longest name of one, that are followed.
const DEEPEST: usize = 200;
const LONGEST: usize = 1 << 14;

/// Where the file begins: at its start, or behind a block of the user's.
pub(super) fn base(whole: &Extent) -> Result<Option<u64>> {
    let mut at = 0;
    while at + 8 <= whole.size() {
        let mut start = [0; 8];
        whole.read_at(at, &mut start)?;
        if start == *SIGNATURE {
            return Ok(Some(at));
        }
        at = (at * 2).max(512);
    }
    Ok(None)
}

/// The datasets of a file, by their paths; one that has several is found once.
pub(super) fn find(whole: &Extent, base: u64) -> Result<Contents> {
    let (meta, root) = superblock(whole, base)?;
    let cache = Arc::<Cache>::default();
    let (mut all, mut others) = (Vec::new(), Vec::new());
    let mut seen = HashSet::from([root]);
    let mut objects = vec![(String::new(), root, 0)];
    while let Some((path, at, depth)) = objects.pop() {
        let messages = header::messages(&meta, at)?;
        let of = |error: Error| error.at(format!("{path} in {}", whole.store()));
        let found = dataset::find(&meta, &path, &messages, &cache, false).map_err(of)?;
        if found.is_none() && messages.iter().any(|message| message.kind == LAYOUT) {
            others.push((path.clone(), "its values have variable lengths, or are references"));
        }
        all.extend(found);
        if depth > DEEPEST || path.len() > LONGEST {
            return Err(Error::damaged("the groups of this HDF5 file have no end"));
        }
        let mut links = group::links(&meta, &messages)?;
        links.sort();
        let prefix = if path.is_empty() { String::new() } else { format!("{path}/") };
        let mut below = Vec::new();
        for (name, target) in links {
            let LinkTarget::Object(at) = target else { continue };
            if seen.insert(at) {
                below.push((format!("{prefix}{name}"), at, depth + 1));
            }
        }
        objects.extend(below.into_iter().rev());
    }
    Ok(Contents { found: all, heads: meta.heads(), others })
}

fn superblock(whole: &Extent, base: u64) -> Result<(Meta<'_>, u64)> {
    let mut start = [0; 16];
    whole.part(base, 16)?.read_at(0, &mut start)?;
    let version = start[8];
    let (offsets, lengths, before) = match version {
        0 => (start[13], start[14], 24),
        1 => (start[13], start[14], 28),
        2 | 3 => (start[9], start[10], 12),
        _ => return Err(Error::damaged(format!("version {version} of HDF5 is not known"))),
    };
    let meta = Meta::new(whole, base, offsets, lengths)?;
    let addresses = match version {
        0 | 1 => meta.read(before, 6 * meta.offsets as u64)?,
        _ => meta.checked(0, before + 4 * meta.offsets as u64)?.split_off(before as usize),
    };
    let mut rest = meta.cursor(&addresses);
    // Beginning, free space, end, driver, name of the root; or beginning, extension, end.
    rest.skip(meta.offsets * if version < 2 { 5 } else { 3 })?;
    let root = rest.defined()?;
    Ok((meta, root))
}
