//! The record of everything stored in this epoch: the digest of each new chunk and its place.

use super::region::Location;
use crate::merkle::Digest;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::{BuildHasherDefault, Hasher};

const SHARDS: usize = 64;

/// The digests of all chunks stored in this epoch, with their places.
///
/// An entry takes 25 bytes in a table that is between half and seven eighths full: 29 to 57 bytes
/// for each new chunk. When the limit is reached, nothing more is entered until the next epoch;
/// what is in it is still found.
pub struct Record {
    /// Many small tables instead of one, so that a growing table copies little at a time.
    shards: Vec<HashMap<Digest, u64, BuildHasherDefault<Direct>>>,
    entries: u64,
    limit: u64,
}

impl Record {
    /// The most memory an entry takes, in bytes.
    pub const ENTRY_BYTES: u64 = 57;

    /// An empty record that takes at most about `limit` bytes.
    pub fn new(limit: u64) -> Self {
        Record {
            shards: (0..SHARDS).map(|_| HashMap::default()).collect(),
            entries: 0,
            limit: limit / Self::ENTRY_BYTES,
        }
    }

    /// The place where these bytes are stored already; if there is none, they are entered at `new`.
    pub fn find_or_enter(&mut self, digest: Digest, new: Location) -> Option<Location> {
        let shard = &mut self.shards[(digest.0[1] % SHARDS as u64) as usize];
        if self.entries >= self.limit {
            return shard.get(&digest).map(|p| Location::from_packed(*p));
        }
        match shard.entry(digest) {
            Entry::Occupied(entry) => Some(Location::from_packed(*entry.get())),
            Entry::Vacant(entry) => {
                if let Some(packed) = new.packed() {
                    entry.insert(packed);
                    self.entries += 1;
                }
                None
            }
        }
    }

    /// The place where these bytes are stored already.
    pub(crate) fn find(&self, digest: &Digest) -> Option<Location> {
        let shard = &self.shards[(digest.0[1] % SHARDS as u64) as usize];
        shard.get(digest).map(|place| Location::from_packed(*place))
    }

    /// Forgets everything and gives the memory back.
    pub fn clear(&mut self) {
        self.shards.iter_mut().for_each(|s| *s = HashMap::default());
        self.entries = 0;
    }
}

/// Hands the one word that a digest gives through.
#[derive(Default)]
struct Direct(u64);

impl Hasher for Direct {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, _: &[u8]) {
        unreachable!("a digest hashes as one word");
    }
    fn write_u64(&mut self, word: u64) {
        self.0 = word;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_record_still_finds_what_it_has() {
        let mut record = Record::new(2 * Record::ENTRY_BYTES);
        let place = |offset| Location { pack: 3, offset };
        let digest = |n| Digest([n, n * 7]);
        assert_eq!(record.find_or_enter(digest(1), place(10)), None);
        assert_eq!(record.find_or_enter(digest(2), place(20)), None);
        assert_eq!(record.find_or_enter(digest(3), place(30)), None);
        assert_eq!(record.find_or_enter(digest(3), place(40)), None);
        assert_eq!(record.find_or_enter(digest(2), place(50)), Some(place(20)));
        assert_eq!(record.entries, 2);
    }
}
