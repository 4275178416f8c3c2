//! HDF5, and so netCDF-4: the datasets of a file and where their values lie.
//!
//! Only what leads to the datasets is read: superblock, groups, object headers, chunk indices, in all
//! the versions that libraries have written, with their checksums; of attributes, those that tell which
//! values stand for something else. References, variable-length values and links to other files are
//! left where they are; `values` resolves them for comparison. Nothing outside of the file is looked at. The amount
//! that is read is bounded by the size of the file, however its structures point to each other.

mod bytes;
mod dataset;
mod datatype;
mod external;
mod group;
mod header;
mod heap;
mod index;
mod inventory;
mod mapped;
mod node;
mod selection;
mod shared;
mod tree;
mod values;

pub(crate) use self::bytes::lookup3 as checksum;

use self::bytes::Meta;
use self::group::LinkTarget;
pub(super) use self::inventory::inventory;
use self::values::ValueFile;
use super::Extent;
use super::chunks::Cache;
use super::found::Contents;
use super::undecoded::{StoredBytes, UndecodedArray};
use crate::error::{Error, ErrorKind, Result};
use crate::store::Blob;
use std::collections::HashSet;
use std::sync::Arc;

const SIGNATURE: &[u8; 8] = b"\x89HDF\r\n\x1a\n";
/// The message that every dataset has, and no other object.
const LAYOUT: u16 = 8;
/// The message that tells how a file is spread over others.
const DRIVER: u16 = 0x14;
/// Consistency flags: open for writing, and the same with readers beside (SWMR).
const OPEN_FOR_WRITING: u8 = 0b101;
/// No file is shorter than the shortest superblock with usual addresses.
const SHORTEST: u64 = 48;
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

/// The datasets of a file, by their paths; one that has several is found once. An object that is not understood does
/// not stand in the way of others.
pub(super) fn find(whole: &Extent, base: u64) -> Result<Contents> {
    let (meta, root) = superblock(whole, base)?;
    let cache = Arc::<Cache>::default();
    let values = ValueFile::new(whole, base);
    let (mut all, mut others, mut undecoded) = (Vec::new(), Vec::new(), Vec::new());
    let (mut referring, mut unknown) = (Vec::new(), Vec::new());
    let mut seen = HashSet::from([root]);
    let mut objects = vec![(String::new(), root, 0)];
    while let Some((path, at, depth)) = objects.pop() {
        let mut leave_out = |error: Error, elsewhere: bool| {
            // Nothing of a file is known without its root.
            if path.is_empty() || error.kind() == ErrorKind::Io {
                return Err(error);
            }
            let stored = if elsewhere { StoredBytes::elsewhere } else { StoredBytes::all };
            undecoded.push(UndecodedArray {
                name: path.clone(),
                description: None,
                why: error.at(format!("{path} in {}", whole.store())),
                stored: Some(stored(whole)),
                is_group: true,
            });
            Ok(())
        };
        let messages = match header::messages(&meta, at) {
            Ok(messages) => messages,
            Err(error) => {
                leave_out(error, false)?;
                continue;
            }
        };
        match dataset::find(&meta, &path, &messages, &cache, &values) {
            Ok(Some(found)) if found.refers && found.element.is_none() => {
                let why =
                    Error::usage("its values are references of a kind that is not understood");
                let why = why.at(format!("{path} in {}", whole.store()));
                unknown.push(found.undecoded(why, Some(StoredBytes::all(whole))));
            }
            Ok(Some(found)) if found.refers => {
                others.push((path.clone(), "its values have variable lengths, or are references"));
                referring.push(found);
            }
            Ok(Some(found)) => all.push(found),
            Ok(None) => {}
            Err(error) => {
                leave_out(error, dataset::lies_elsewhere(&messages))?;
                continue;
            }
        }
        if depth > DEEPEST || path.len() > LONGEST {
            return Err(Error::damaged("the groups of this HDF5 file have no end"));
        }
        let mut links = match group::links(&meta, &messages) {
            Ok(links) => links,
            Err(error) => {
                leave_out(error, false)?;
                continue;
            }
        };
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
    undecoded.append(&mut unknown);
    Ok(Contents { found: all, referring, heads: meta.heads(), others, undecoded })
}

fn superblock(whole: &Extent, base: u64) -> Result<(Meta<'_>, u64)> {
    let block = Superblock::read(whole, base)?;
    Ok((block.meta, block.root))
}

/// The first bytes of a file, from which all others are found.
struct Superblock<'a> {
    meta: Meta<'a>,
    version: u8,
    /// The file's consistency flags; none before version 2.
    flags: u8,
    /// Where the driver's block is, up to version 1.
    driver: Option<u64>,
    /// Where the file ends, counted from its first byte.
    end: Option<u64>,
    root: u64,
}

impl<'a> Superblock<'a> {
    fn read(whole: &'a Extent, base: u64) -> Result<Self> {
        let mut start = [0; 16];
        whole.part(base, 16)?.read_at(0, &mut start)?;
        let version = start[8];
        let (offsets, lengths, before) = match version {
            0 => (start[13], start[14], 24),
            1 => (start[13], start[14], 28),
            2 | 3 => (start[9], start[10], 12),
            _ => return Err(Error::damaged(format!("version {version} of HDF5 is not known"))),
        };
        let mut meta = Meta::new(whole, base, offsets, lengths)?;
        let addresses = match version {
            0 | 1 => meta.read(before, 6 * meta.offsets as u64)?,
            _ => meta.checked(0, before + 4 * meta.offsets as u64)?.split_off(before as usize),
        };
        let mut rest = meta.cursor(&addresses);
        // Beginning, free space, end, driver, name of the root, root; or beginning, extension, end, root.
        rest.skip(meta.offsets)?;
        let second = rest.address()?;
        let end = rest.address()?;
        let (driver, extension, flags) = match version {
            0 | 1 => (rest.address()?, None, 0),
            _ => (None, second, start[11]),
        };
        if version < 2 {
            rest.skip(meta.offsets)?;
        }
        let root = rest.defined()?;
        meta.extension = extension;
        Ok(Superblock { meta, version, flags, driver, end, root })
    }

    /// Whether the file may be spread over several (drivers "family" and "multi"): its end is then no
    /// place in this one.
    fn is_spread(&self) -> bool {
        let messages = self.meta.extension.map(|at| header::messages(&self.meta, at));
        let driver = |message: &header::HeaderMessage| message.kind == DRIVER;
        self.driver.is_some()
            || messages.is_some_and(|found| found.is_ok_and(|all| all.iter().any(driver)))
    }
}

/// Whether the library has marked the file as open for writing, with or without readers beside.
pub(super) fn is_marked_open(whole: &Extent, base: u64) -> Result<bool> {
    match Superblock::read(whole, base) {
        Ok(block) => Ok(block.version == 3 && block.flags & OPEN_FOR_WRITING != 0),
        Err(error) if error.kind() == ErrorKind::Io => Err(error),
        Err(_) => Ok(false),
    }
}

/// Where the file ends, as its superblock states; the library refuses files that are shorter. `None` if
/// that cannot be told.
pub(super) fn end(whole: &Extent, base: u64) -> Result<Option<u64>> {
    match Superblock::read(whole, base) {
        Ok(block) => Ok(block.end.filter(|_| !block.is_spread())),
        Err(error) if error.kind() == ErrorKind::Io => Err(error),
        Err(_) => Ok(base.checked_add(SHORTEST).filter(|end| whole.size() < *end)),
    }
}
