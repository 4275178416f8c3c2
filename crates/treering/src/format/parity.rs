//! A parity file: what a node keeps so that objects of other nodes can be made again when these are lost.
//!
//! The objects of a node (a *member* of a set) are regarded as one string of bytes. It is cut into stripes, which go in
//! turn to as many *lanes* as there are other members; the parity file of a slot is the XOR of one lane of every member
//! but the one that the slot belongs to, as in RAID 5. A set of one member has one lane and one slot, so that its parity
//! file is a copy. Stripes, rather than one long segment for each lane, let every string be read once from front to
//! back while the digests of its objects are computed.
//!
//! The body comes first, then the head, which describes all members, then a trailer. Every rebuilt object is checked
//! against the digest in the head.

use super::bytes::{Reader, Writer};
use super::names::{Names, WriterId, check_run_name};
use crate::array::Sequence;
use crate::error::{Error, Result};
use crate::merkle::Digest;

const PARITY: &[u8; 8] = b"TREEPARI";
const PARITY_END: &[u8; 8] = b"PARITYOK";
/// The bytes behind the head: its length and a magic number.
pub(crate) const PARITY_TRAILER: u64 = 16;
/// The most members of a set, and the largest stripe.
pub(crate) const MOST_MEMBERS: usize = 1 << 12;
const LARGEST_STRIPE: u64 = 1 << 24;

/// A parity file of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ParityName {
    /// The newest checkpoint whose objects it protects.
    pub sequence: Sequence,
    /// The writer.
    pub writer: WriterId,
    /// A random number, which all files of a set have in common.
    pub set: u64,
    /// Its number in the set.
    pub slot: u32,
}

/// An object of a member.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ParityObject {
    /// Its key in the store of its node.
    pub key: String,
    /// Its size.
    pub size: u64,
    /// The digest of its bytes.
    pub digest: Digest,
}

/// A node whose objects a set protects.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ParityMember {
    /// The name of the node.
    pub node: String,
    /// Its objects, in the order of the string that they make up.
    pub objects: Vec<ParityObject>,
}

/// The head of a parity file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParityHead {
    /// The run.
    pub run: String,
    /// The file.
    pub name: ParityName,
    /// The members of its set.
    pub members: Vec<ParityMember>,
    /// The bytes of a stripe.
    pub stripe: u64,
    /// The digest of the body.
    pub digest: Digest,
}

/// Division of strings into lanes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Striping {
    /// The number of members.
    pub members: usize,
    /// The bytes of a stripe.
    pub stripe: u64,
}

impl Striping {
    /// The number of lanes of each member.
    pub fn lanes(self) -> usize {
        self.members.saturating_sub(1).max(1)
    }

    /// The number of slots, and so of parity files.
    pub fn slots(self) -> usize {
        self.members
    }

    /// The bytes of a member's string that go to all lanes in one turn.
    pub fn row(self) -> u64 {
        self.stripe * self.lanes() as u64
    }

    /// The lane of a member that a slot holds; none of the member that the slot belongs to.
    pub fn lane(self, member: usize, slot: usize) -> Option<usize> {
        match self.members {
            1 => Some(0),
            _ if member == slot => None,
            _ => Some(slot - usize::from(slot > member)),
        }
    }

    /// The slot that holds a lane of a member.
    pub fn slot(self, member: usize, lane: usize) -> usize {
        match self.members {
            1 => 0,
            _ => lane + usize::from(lane >= member),
        }
    }

    /// The bytes of a string of `len` bytes that are in a lane.
    pub fn lane_len(self, len: u64, lane: usize) -> u64 {
        let (rows, rest) = (len / self.row(), len % self.row());
        let before = lane as u64 * self.stripe;
        rows * self.stripe + rest.saturating_sub(before).min(self.stripe)
    }

    /// The bytes of the body of a slot, for strings of these lengths.
    pub fn slot_len(self, lens: &[u64], slot: usize) -> u64 {
        let lane = |(member, len): (usize, &u64)| {
            self.lane(member, slot).map_or(0, |lane| self.lane_len(*len, lane))
        };
        lens.iter().enumerate().map(lane).max().unwrap_or(0)
    }
}

impl ParityName {
    /// The folder of the parity files of a run.
    pub fn folder(run: &str) -> String {
        format!("runs/{run}/parity")
    }

    /// The key of this file.
    pub fn key(&self, run: &str) -> String {
        format!("{}/{}", Self::folder(run), self.file())
    }

    fn file(&self) -> String {
        let ParityName { sequence, writer: WriterId { opening, nonce }, set, slot } = self;
        format!("{:012}-{:06}-{nonce:016x}-{set:016x}-{slot:04}", sequence.0, opening.0)
    }

    /// The parity file that a file in the folder is.
    pub fn parse(file: &str) -> Option<ParityName> {
        let mut parts = file.split('-');
        let sequence = Names::parse_entry(parts.next()?)?;
        let opening = Sequence(parts.next()?.parse().ok()?);
        let mut hex = || u64::from_str_radix(parts.next()?, 16).ok();
        let writer = WriterId { opening, nonce: hex()? };
        let set = hex()?;
        let slot = parts.next()?.parse().ok()?;
        let name = ParityName { sequence, writer, set, slot };
        (name.file() == file).then_some(name)
    }
}

impl ParityMember {
    /// The bytes of its string.
    pub fn bytes(&self) -> u64 {
        self.objects.iter().map(|object| object.size).sum()
    }

    fn put(&self, out: &mut Writer) {
        out.string(&self.node);
        out.int(self.objects.len() as u64);
        for object in &self.objects {
            out.string(&object.key);
            out.int(object.size);
            out.digest(object.digest);
        }
    }

    fn take(reader: &mut Reader) -> Result<ParityMember> {
        let node = reader.string()?;
        let count = reader.count()?;
        let mut objects = Vec::new();
        let mut len = 0u64;
        for _ in 0..count {
            let (key, size) = (reader.string()?, reader.int()?);
            let object = ParityObject { key, size, digest: reader.digest()? };
            len = len.checked_add(object.size).filter(|len| *len < 1 << 60).ok_or_else(wrong)?;
            objects.push(object);
        }
        Ok(ParityMember { node, objects })
    }

    /// The bytes of a message about it.
    pub(crate) fn write(&self) -> Vec<u8> {
        let mut out = Writer::default();
        self.put(&mut out);
        out.0
    }

    /// Reads a message.
    pub(crate) fn parse(bytes: &[u8]) -> Result<ParityMember> {
        let mut reader = Reader::new(bytes);
        let member = Self::take(&mut reader)?;
        reader.end()?;
        Ok(member)
    }
}

fn wrong() -> Error {
    Error::damaged("corrupt parity file: invalid header")
}

impl ParityHead {
    /// The division of its members' strings into lanes.
    pub fn striping(&self) -> Striping {
        Striping { members: self.members.len(), stripe: self.stripe }
    }

    /// The bytes of the body.
    pub fn body(&self) -> u64 {
        let lens: Vec<u64> = self.members.iter().map(ParityMember::bytes).collect();
        self.striping().slot_len(&lens, self.name.slot as usize)
    }

    /// The bytes of the head.
    pub fn write(&self) -> Vec<u8> {
        let mut out = Writer::file(PARITY);
        out.string(&self.run);
        let ParityName { sequence, writer, set, slot } = self.name;
        out.int(sequence.0);
        out.int(writer.opening.0);
        out.u64(writer.nonce);
        out.u64(set);
        out.int(u64::from(slot));
        out.int(self.stripe);
        out.digest(self.digest);
        out.int(self.members.len() as u64);
        self.members.iter().for_each(|member| member.put(&mut out));
        out.sealed()
    }

    /// The bytes behind the body.
    pub fn write_tail(&self) -> Vec<u8> {
        let mut out = Writer(self.write());
        out.u64(out.0.len() as u64);
        out.raw(PARITY_END);
        out.0
    }

    /// The length of the head that stands before the trailer of a file of this size.
    pub fn tail_len(trailer: &[u8], size: u64) -> Result<u64> {
        let (len, magic) = trailer.split_at_checked(8).unwrap_or_default();
        let len = Reader::new(len).u64()?;
        match magic == PARITY_END && len <= size.saturating_sub(PARITY_TRAILER) {
            true => Ok(len),
            false => Err(Error::damaged("a parity file has no trailer")),
        }
    }

    /// Reads the bytes of a head.
    pub fn parse(bytes: &[u8]) -> Result<ParityHead> {
        let mut reader = Reader::file(bytes, PARITY, "head of a parity file")?;
        let run = reader.string()?;
        check_run_name(&run).map_err(|_| wrong())?;
        let name = ParityName {
            sequence: Sequence(reader.int()?),
            writer: WriterId { opening: Sequence(reader.int()?), nonce: reader.u64()? },
            set: reader.u64()?,
            slot: reader.u32()?,
        };
        let stripe = reader.int()?;
        let digest = reader.digest()?;
        let count = reader.count()?;
        let fits = (1..=MOST_MEMBERS).contains(&count)
            && (name.slot as usize) < count
            && (1..=LARGEST_STRIPE).contains(&stripe);
        if !fits {
            return Err(wrong());
        }
        let members = (0..count).map(|_| ParityMember::take(&mut reader)).collect::<Result<_>>()?;
        reader.end()?;
        Ok(ParityHead { run, name, members, stripe, digest })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn head() -> ParityHead {
        let object =
            |key: &str, size| ParityObject { key: key.into(), size, digest: Digest([size, 7]) };
        let member = |node: &str, size| ParityMember {
            node: node.into(),
            objects: vec![object("runs/r/packs/a", size), object("runs/r/sections/b", 9)],
        };
        let writer = WriterId { opening: Sequence(3), nonce: 0xabcdef };
        ParityHead {
            run: "r".into(),
            name: ParityName { sequence: Sequence(12), writer, set: 99, slot: 1 },
            members: vec![member("n1", 1000), member("n2", 0), member("n3", 70_000)],
            stripe: 512,
            digest: Digest([1, 2]),
        }
    }

    #[test]
    fn heads_and_names_return_and_every_flipped_byte_is_seen() {
        let head = head();
        let bytes = head.write();
        assert_eq!(ParityHead::parse(&bytes).unwrap(), head);
        for at in 0..bytes.len() {
            let mut bad = bytes.clone();
            bad[at] ^= 1;
            assert!(ParityHead::parse(&bad).is_err(), "byte {at}");
        }
        let tail = head.write_tail();
        let len = ParityHead::tail_len(&tail[tail.len() - 16..], tail.len() as u64).unwrap();
        assert_eq!(tail[..len as usize], bytes);
        let key = head.name.key("r");
        let file = key.strip_prefix("runs/r/parity/").unwrap();
        assert_eq!(ParityName::parse(file), Some(head.name));
        for junk in ["", "x", &file[1..], &format!("{file}-1"), &file.replace('-', "+")] {
            assert_eq!(ParityName::parse(junk), None, "{junk}");
        }
    }

    proptest! {
        #[test]
        fn every_byte_of_a_string_is_in_one_lane_and_every_lane_in_a_slot_of_another(
            members in 1usize..9, stripe in 1u64..70, len in 0u64..5000,
        ) {
            let striping = Striping { members, stripe };
            let lanes = striping.lanes();
            let sum: u64 = (0..lanes).map(|lane| striping.lane_len(len, lane)).sum();
            prop_assert_eq!(sum, len);
            for member in 0..members {
                let slots: Vec<usize> = (0..lanes).map(|lane| striping.slot(member, lane)).collect();
                prop_assert!(members == 1 || !slots.contains(&member));
                for (lane, slot) in slots.iter().enumerate() {
                    prop_assert!(*slot < striping.slots());
                    prop_assert_eq!(striping.lane(member, *slot), Some(lane));
                }
            }
            // Parity takes the longest string divided by the number of lanes, and at most one stripe more.
            let most = (0..members).map(|slot| striping.slot_len(&vec![len; members], slot)).max();
            prop_assert!(most.unwrap() <= len / lanes as u64 + stripe);
        }
    }
}
