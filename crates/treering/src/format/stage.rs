//! A stage: what one rank hands to the leader of its group, before it is joined into a pack.
//!
//! A stage is a block of memory, or a file on the node: the image of a pack with the large variables of the rank, the
//! changed chunks of its small variables as they are, and this head, which describes both. It never outlives the
//! programs that share it by more than a restart, but it is checked like everything else that comes from elsewhere.

use super::bytes::{Reader, Writer};
use super::manifest::Stats;
use super::pack::Seal;
use super::section::{parse_description, parse_rounding, write_description, write_rounding};
use crate::array::{Description, Rank, Rounding, Sequence};
use crate::error::Result;
use crate::lineage::Changed;
use crate::merkle::Digest;

const STAGE: &[u8; 8] = b"TREESTAG";

/// The head of a stage.
#[derive(Debug, PartialEq)]
pub struct StageHead {
    /// The checkpoint.
    pub sequence: Sequence,
    /// The rank.
    pub rank: Rank,
    /// Vouches for the image of the pack of its large variables, at the beginning of the stage.
    pub image: Seal,
    /// Bytes of the large variables by kind, and the time for which the program was blocked.
    pub stats: Stats,
    /// The small variables. Their bytes follow the image, in order.
    pub small: Vec<SmallVariable>,
}

/// A small variable of a stage.
#[derive(Debug, PartialEq)]
pub struct SmallVariable {
    /// Name, type, shape, box.
    pub description: Description,
    /// The rounding of its values.
    pub rounded: Option<Rounding>,
    /// The boughs of the state that was restored, if the leader does not know them.
    pub known: Vec<Digest>,
    /// The changed chunks, by strips.
    pub strips: Vec<SmallStrip>,
}

/// Changed chunks of a small variable.
#[derive(Debug, PartialEq)]
pub struct SmallStrip {
    /// The first chunk of the strip.
    pub first: u64,
    /// Whether the boughs are among the changes.
    pub hashed: bool,
    /// The changes of the strip.
    pub changed: Changed,
}

impl StageHead {
    /// The bytes of the small variables.
    pub fn small_bytes(&self) -> u64 {
        let strips = self.small.iter().flat_map(|small| &small.strips);
        strips.map(|strip| strip.changed.bytes as u64).fold(0, u64::saturating_add)
    }

    /// The bytes of the head.
    pub fn write(&self) -> Vec<u8> {
        let mut out = Writer::file(STAGE);
        out.int(self.sequence.0);
        out.int(u64::from(self.rank.0));
        out.int(self.image.size);
        out.int(self.image.footer);
        out.digest(self.image.digest);
        let Stats { same_bytes, duplicate_bytes, new_bytes, blocked_ns } = self.stats;
        [same_bytes, duplicate_bytes, new_bytes, blocked_ns].iter().for_each(|n| out.int(*n));
        out.int(self.small.len() as u64);
        for small in &self.small {
            write_description(&mut out, &small.description);
            write_rounding(&mut out, small.rounded);
            out.int(small.known.len() as u64);
            small.known.iter().for_each(|digest| out.digest(*digest));
            out.int(small.strips.len() as u64);
            small.strips.iter().for_each(|strip| strip.write(&mut out));
        }
        out.sealed()
    }

    /// Reads the bytes of a head.
    pub fn parse(bytes: &[u8]) -> Result<StageHead> {
        let mut reader = Reader::file(bytes, STAGE, "stage")?;
        let sequence = Sequence(reader.int()?);
        let rank = Rank(reader.u32()?);
        let image = Seal { size: reader.int()?, footer: reader.int()?, digest: reader.digest()? };
        let stats = Stats {
            same_bytes: reader.int()?,
            duplicate_bytes: reader.int()?,
            new_bytes: reader.int()?,
            blocked_ns: reader.int()?,
        };
        let count = reader.count()?;
        let small = (0..count).map(|_| SmallVariable::parse(&mut reader)).collect::<Result<_>>()?;
        reader.end()?;
        Ok(StageHead { sequence, rank, image, stats, small })
    }
}

impl SmallVariable {
    fn parse(reader: &mut Reader) -> Result<SmallVariable> {
        let description = parse_description(reader)?;
        let rounded = parse_rounding(reader, description.dtype)?;
        let known = (0..reader.count()?).map(|_| reader.digest()).collect::<Result<_>>()?;
        let strips = (0..reader.count()?).map(|_| SmallStrip::parse(reader));
        let strips = strips.collect::<Result<_>>()?;
        Ok(SmallVariable { description, rounded, known, strips })
    }
}

impl SmallStrip {
    fn write(&self, out: &mut Writer) {
        out.int(self.first);
        out.byte(u8::from(self.hashed));
        out.int(self.changed.bytes as u64);
        out.int(self.changed.runs.len() as u64);
        for (start, count) in &self.changed.runs {
            out.int(u64::from(*start));
            out.int(u64::from(*count));
        }
        out.int(self.changed.boughs.len() as u64);
        for (at, digest) in &self.changed.boughs {
            out.int(u64::from(*at));
            out.digest(*digest);
        }
    }

    fn parse(reader: &mut Reader) -> Result<SmallStrip> {
        let first = reader.int()?;
        let hashed = reader.byte()? != 0;
        let bytes = reader.int()? as usize;
        let runs = (0..reader.count()?).map(|_| Ok((reader.u32()?, reader.u32()?)));
        let runs = runs.collect::<Result<_>>()?;
        let boughs = (0..reader.count()?).map(|_| Ok((reader.u32()?, reader.digest()?)));
        let boughs = boughs.collect::<Result<_>>()?;
        Ok(SmallStrip { first, hashed, changed: Changed { runs, boughs, bytes } })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::array::Variable;

    #[test]
    fn heads_return_and_every_flipped_byte_is_seen() {
        let data = [1.5f64; 40];
        let strip = SmallStrip {
            first: 8,
            hashed: true,
            changed: Changed { runs: vec![(1, 2)], boughs: vec![(0, Digest([1, 2]))], bytes: 64 },
        };
        let head = StageHead {
            sequence: Sequence(7),
            rank: Rank(300),
            image: Seal { size: 1000, footer: 50, digest: Digest([3, 4]) },
            stats: Stats { same_bytes: 1, duplicate_bytes: 2, new_bytes: 3, blocked_ns: 4 },
            small: vec![SmallVariable {
                description: Variable::new("x", &data).shaped(&[8, 5]).description().clone(),
                rounded: None,
                known: vec![Digest([5, 6])],
                strips: vec![strip],
            }],
        };
        let bytes = head.write();
        assert_eq!(StageHead::parse(&bytes).unwrap(), head);
        assert_eq!(head.small_bytes(), 64);
        for at in 0..bytes.len() {
            let mut bad = bytes.clone();
            bad[at] ^= 1;
            assert!(StageHead::parse(&bad).is_err(), "byte {at}");
        }
    }
}
