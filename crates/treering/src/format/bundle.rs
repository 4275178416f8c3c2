//! A bundle: many small objects of a run (log entries and packs) in one file.
//!
//! A bundle is two files. The *data* holds the objects as they were, one behind another, then its own copy of
//! the index, then a trailer. The *index* beside it is what readers of the log need, and what makes the log
//! entries of the bundle count: without its index, a bundle only holds packs. So all entries of a bundle can be
//! taken back, without space for a new file, by removing its index. An index without objects is *void*: it
//! keeps the bundle's writer from publishing a bundle that somebody is about to remove.

use super::bytes::{Reader, Writer};
use super::names::{BundleName, Names, PackName, WriterId, check_run_name};
use crate::array::{GroupId, Sequence};
use crate::error::{Error, Result};
use crate::merkle::Digest;

const MAGIC: &[u8; 8] = b"TREEBNDL";
const TRAILER: &[u8; 8] = b"BNDLTREE";

/// The size of the trailer of a bundle: the length of the index before it, and a magic number.
pub(crate) const BUNDLE_TRAILER: u64 = 16;

/// Kinds of bundled objects.
const ENTRY: u8 = 1;
const PACK: u8 = 2;

/// The name of an object in a bundle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum BundledName {
    /// A manifest or a mark; never an opening.
    Entry(Sequence),
    /// A pack.
    Pack(PackName),
}

impl BundledName {
    /// Whether it is a log entry.
    pub fn is_entry(&self) -> bool {
        matches!(self, BundledName::Entry(_))
    }

    /// The key that the object has as a file of its own.
    pub fn key(&self, names: &Names) -> String {
        match self {
            BundledName::Entry(sequence) => names.entry(*sequence),
            BundledName::Pack(pack) => names.pack(*pack),
        }
    }
}

/// An object in a bundle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BundledObject {
    /// Its name.
    pub name: BundledName,
    /// Its size.
    pub size: u64,
    /// The digest of its bytes.
    pub digest: Digest,
}

/// The index of a bundle.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BundleIndex {
    /// The run whose objects it holds.
    pub run: String,
    /// The bundle it belongs to.
    pub name: BundleName,
    /// The objects in the order of their bytes: ascending by name, entries before packs.
    pub objects: Vec<BundledObject>,
}

impl BundleIndex {
    /// An index that publishes nothing.
    pub fn void(run: &str, name: BundleName) -> Self {
        BundleIndex { run: run.to_string(), name, objects: Vec::new() }
    }

    /// Whether it publishes nothing.
    pub fn is_void(&self) -> bool {
        self.objects.is_empty()
    }

    /// The bytes of all objects together.
    pub fn object_bytes(&self) -> u64 {
        self.objects.iter().map(|object| object.size).sum()
    }

    /// The objects and the offsets at which they begin.
    pub fn places(&self) -> impl Iterator<Item = (u64, &BundledObject)> {
        self.objects.iter().scan(0, |at, object| {
            let offset = *at;
            *at += object.size;
            Some((offset, object))
        })
    }

    /// The bytes of the index.
    pub fn write(&self) -> Vec<u8> {
        let mut out = Writer::file(MAGIC);
        out.string(&self.run);
        out.int(self.name.generation);
        out.u64(self.name.nonce);
        out.int(self.name.first.0);
        out.int(self.name.last.0);
        out.int(self.objects.len() as u64);
        for object in &self.objects {
            match object.name {
                BundledName::Entry(sequence) => {
                    out.byte(ENTRY);
                    out.int(sequence.0);
                }
                BundledName::Pack(pack) => {
                    out.byte(PACK);
                    out.int(pack.writer.opening.0);
                    out.u64(pack.writer.nonce);
                    out.int(pack.attempt);
                    out.int(u64::from(pack.group.0));
                }
            }
            out.int(object.size);
            out.digest(object.digest);
        }
        out.sealed()
    }

    /// The bytes behind the objects in the data: the index again, and the trailer.
    pub fn write_tail(&self) -> Vec<u8> {
        let mut out = Writer(self.write());
        out.u64(out.0.len() as u64);
        out.raw(TRAILER);
        out.0
    }

    /// The length of the index that stands before the trailer of a bundle of this size.
    pub fn tail_len(trailer: &[u8], size: u64) -> Result<u64> {
        let (len, magic) = trailer.split_at_checked(8).unwrap_or_default();
        let len = Reader::new(len).u64()?;
        match magic == TRAILER && len <= size.saturating_sub(BUNDLE_TRAILER) {
            true => Ok(len),
            false => Err(Error::damaged("a bundle has no trailer")),
        }
    }

    /// Reads the bytes of an index.
    pub fn parse(bytes: &[u8]) -> Result<Self> {
        let mut reader = Reader::file(bytes, MAGIC, "index of a bundle")?;
        let run = reader.string()?;
        check_run_name(&run).map_err(|_| Error::damaged("a bundle has an impossible run name"))?;
        let name = BundleName {
            generation: reader.int()?,
            nonce: reader.u64()?,
            first: Sequence(reader.int()?),
            last: Sequence(reader.int()?),
        };
        let count = reader.count()?;
        let mut objects: Vec<BundledObject> = Vec::with_capacity(count.min(bytes.len() / 18));
        let mut end = 0u64;
        for _ in 0..count {
            let object = parse_object(&mut reader)?;
            let sum = end.checked_add(object.size);
            end = sum.ok_or_else(|| Error::damaged("a bundle is larger than any can be"))?;
            if objects.last().is_some_and(|last| last.name >= object.name) {
                return Err(Error::damaged("the objects of a bundle are not in order"));
            }
            objects.push(object);
        }
        reader.end()?;
        Ok(BundleIndex { run, name, objects })
    }
}

fn parse_object(reader: &mut Reader) -> Result<BundledObject> {
    let name = match reader.byte()? {
        ENTRY => BundledName::Entry(Sequence(reader.int()?)),
        PACK => BundledName::Pack(PackName {
            writer: WriterId { opening: Sequence(reader.int()?), nonce: reader.u64()? },
            attempt: reader.int()?,
            group: GroupId(reader.u32()?),
        }),
        _ => return Err(Error::damaged("a bundle holds an object of an unknown kind")),
    };
    Ok(BundledObject { name, size: reader.int()?, digest: reader.digest()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> BundleIndex {
        let writer = WriterId { opening: Sequence(1), nonce: 7 };
        let object = |name, size| BundledObject { name, size, digest: Digest([size, 2]) };
        BundleIndex {
            run: "r".into(),
            name: BundleName { generation: 3, nonce: 9, first: Sequence(2), last: Sequence(4) },
            objects: vec![
                object(BundledName::Entry(Sequence(2)), 10),
                object(BundledName::Entry(Sequence(4)), 0),
                object(
                    BundledName::Pack(PackName { writer, attempt: 2, group: GroupId(0) }),
                    1 << 40,
                ),
            ],
        }
    }

    #[test]
    fn an_index_returns_and_neither_cut_nor_flipped_byte_passes() {
        let index = sample();
        let bytes = index.write();
        assert_eq!(BundleIndex::parse(&bytes).unwrap(), index);
        let places: Vec<u64> = index.places().map(|(at, _)| at).collect();
        assert_eq!(places, [0, 10, 10]);
        for at in 0..bytes.len() {
            assert!(BundleIndex::parse(&bytes[..at]).is_err());
            let mut bad = bytes.clone();
            bad[at] ^= 1;
            assert!(BundleIndex::parse(&bad).is_err());
        }
        let tail = index.write_tail();
        let trailer = &tail[tail.len() - 16..];
        assert_eq!(BundleIndex::tail_len(trailer, 1000).unwrap(), bytes.len() as u64);
        assert!(BundleIndex::tail_len(trailer, 30).is_err());
        assert!(BundleIndex::tail_len(&trailer[1..], 1000).is_err());
    }

    #[test]
    fn disorder_and_impossible_sizes_are_refused() {
        let mut index = sample();
        index.objects.swap(0, 1);
        assert!(BundleIndex::parse(&index.write()).is_err());
        let mut index = sample();
        index.objects[0].size = u64::MAX;
        assert!(BundleIndex::parse(&index.write()).is_err());
    }
}
