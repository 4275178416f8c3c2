//! Packs of several makers joined into one.
//!
//! Every rank of a group packs its large variables by itself, and the leader those that are small; each such part has
//! places of its own, which begin at 0 in every pack of the epoch. The joined pack holds the parts one after another, so
//! a place of a part becomes a place of the pack by adding where the part began in that pack. The law: a reader of the
//! joined packs finds under every place the bytes that the reader of the parts alone would find.

use crate::error::{Error, ErrorKind, Result};
use crate::format::{Footer, Frame, HEADER_BYTES, Seal};
use crate::lineage::Location;
use std::collections::HashMap;

/// The maker of a part: the number of a rank within its group, or the leader for what it packs for all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum PartMaker {
    Member(u32),
    Leader,
}

/// Beginning of the parts of the packs of an epoch.
#[derive(Clone, Debug, Default)]
pub(crate) struct PartStarts {
    starts: HashMap<(u32, PartMaker), u64>,
    /// The packs that were there already: every maker sees them as they are.
    there: u32,
}

impl PartStarts {
    /// A new epoch begins.
    pub(crate) fn clear(&mut self) {
        *self = PartStarts::default();
    }

    /// Goes on with an epoch that has this many packs.
    pub(crate) fn resume(&mut self, packs: u64) {
        *self = PartStarts { starts: HashMap::new(), there: packs.min(u32::MAX.into()) as u32 };
    }

    /// A place of a part as a place of the joined packs.
    fn place(&self, maker: PartMaker, place: Location) -> Result<Location> {
        if place.pack < self.there {
            return Ok(place);
        }
        let start = self.starts.get(&(place.pack, maker)).ok_or_else(|| {
            Error::new(ErrorKind::Io, "a part refers to a pack that its group has not joined")
        })?;
        Ok(Location { offset: place.offset + start, ..place })
    }
}

/// A pack that is being joined.
pub(crate) struct JoinedPack<'a> {
    footer: Footer,
    starts: &'a mut PartStarts,
}

impl<'a> JoinedPack<'a> {
    /// Begins with a footer that names the pack; whatever else it holds is left out.
    pub(crate) fn new(like: &Footer, parent: Option<Seal>, starts: &'a mut PartStarts) -> Self {
        let footer = Footer {
            run: like.run.clone(),
            name: like.name,
            ordinal: like.ordinal,
            parent,
            frames: Vec::new(),
            chains: Vec::new(),
            before: Vec::new(),
            deltas: Vec::new(),
            variables: Vec::new(),
        };
        JoinedPack { footer, starts }
    }

    /// The number that the joined pack has for each chain of a part; `None` for those that it has no number for. Frames of
    /// these must be handed over raw.
    pub(crate) fn numbers(&mut self, part: &Footer) -> Vec<Option<u8>> {
        part.chains.iter().map(|chain| Footer::number(&mut self.footer.chains, chain)).collect()
    }

    /// The position in the file at which the next part begins.
    pub(crate) fn end(&self) -> u64 {
        self.footer.frames.last().map_or(HEADER_BYTES, |last| last.position + last.encoded)
    }

    /// Adds a part whose frames have been appended to the file, in the encoding that they have there.
    pub(crate) fn add(
        &mut self,
        maker: PartMaker,
        part: Footer,
        frames: impl IntoIterator<Item = Frame>,
    ) -> Result<()> {
        let start = self.footer.len();
        let first = self.footer.frames.len() as u32;
        self.starts.starts.insert((self.footer.ordinal, maker), start);
        for frame in frames {
            let position = self.end();
            self.footer.frames.push(Frame { offset: start + frame.offset, position, ..frame });
        }
        for (frame, mut runs) in part.before {
            for run in &mut runs {
                run.place = self.starts.place(maker, run.place)?;
            }
            self.footer.before.push((first + frame, runs));
        }
        for mut delta in part.deltas {
            delta.base += start;
            for region in &mut delta.regions {
                region.place = self.starts.place(maker, region.place)?;
            }
            self.footer.deltas.push(delta);
        }
        self.footer.variables.extend(part.variables);
        Ok(())
    }

    pub(crate) fn finish(self) -> Footer {
        self.footer
    }
}

/// Moves the frames of a part, which had a file for itself, to where they lie in the file of the joined pack.
pub(crate) fn moved_to(part: &mut Footer, at: u64) {
    for frame in &mut part.frames {
        frame.position = frame.position - HEADER_BYTES + at;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::array::{GroupId, Rank, Sequence};
    use crate::format::{PackName, RAW, VariableDelta, WriterId};
    use crate::lineage::{ChunkSize, Region};
    use proptest::prelude::*;

    const CHUNK: u64 = 32;

    /// A part of which `fresh` chunks are new, and which refers to places of its own.
    fn part(ordinal: u32, rank: u32, fresh: u64, refers: &[Location]) -> Footer {
        let writer = WriterId { opening: Sequence(1), nonce: 7 };
        let place = Location { pack: ordinal, offset: 0 };
        let mut regions = Vec::new();
        if fresh > 0 {
            regions.push(Region { start: 0, count: fresh, place, period: 0, fresh: true });
        }
        for (at, place) in refers.iter().enumerate() {
            let start = fresh + 2 * at as u64;
            regions.push(Region { start, count: 1, place: *place, period: 0, fresh: false });
        }
        let frame = |at: u64| Frame {
            offset: at * CHUNK,
            len: CHUNK,
            position: HEADER_BYTES + at * CHUNK,
            encoded: CHUNK,
            codec: RAW,
            checksum: at,
        };
        Footer {
            run: "r".into(),
            name: PackName { writer, attempt: ordinal.into(), group: GroupId(0) },
            ordinal,
            parent: None,
            frames: (0..fresh).map(frame).collect(),
            chains: Vec::new(),
            before: Vec::new(),
            deltas: vec![VariableDelta {
                rank: Rank(rank),
                name: "x".into(),
                chunk: ChunkSize::new(CHUNK).unwrap(),
                bytes: 1 << 20,
                base: 0,
                bitmap: false,
                regions,
            }],
            variables: Vec::new(),
        }
    }

    proptest! {
        /// Every place leads to the bytes of its own part, in whichever pack, and the footer can be written and read.
        #[test]
        fn places_lead_to_the_bytes_of_their_part(
            fresh in proptest::collection::vec(proptest::collection::vec(0u64..5, 3), 1..5),
            picks in proptest::collection::vec(0u64..1000, 12),
        ) {
            let mut starts = PartStarts::default();
            // The content of the joined packs, chunk by chunk: pack, maker, chunk of the part.
            let mut packs: Vec<Vec<(u32, u32, u64)>> = Vec::new();
            for (ordinal, counts) in fresh.iter().enumerate() {
                let ordinal = ordinal as u32;
                let none = part(ordinal, 0, 0, &[]);
                let seal = Seal { size: 1, footer: 1, digest: Default::default() };
                let mut joined =
                    JoinedPack::new(&none, (ordinal > 0).then_some(seal), &mut starts);
                let mut content = Vec::new();
                let mut wanted = Vec::new();
                for (rank, count) in (0..).zip(counts) {
                    content.extend((0..*count).map(|at| (ordinal, rank, at)));
                    let refers: Vec<Location> = picks.iter().filter_map(|pick| {
                        let pack = (pick % u64::from(ordinal + 1)) as u32;
                        let has = fresh[pack as usize][rank as usize];
                        (has > 0).then(|| Location { pack, offset: pick / 7 % has * CHUNK })
                    }).collect();
                    let own = part(ordinal, rank, *count, &refers);
                    wanted.push((rank, refers));
                    let frames = own.frames.clone();
                    joined.add(PartMaker::Member(rank), own, frames).unwrap();
                }
                let footer = joined.finish();
                packs.push(content);
                for (delta, (rank, refers)) in footer.deltas.iter().zip(wanted) {
                    let duplicates = delta.regions.iter().filter(|region| !region.fresh);
                    for (region, place) in duplicates.zip(&refers) {
                        let found = packs[region.place.pack as usize]
                            [(region.place.offset / CHUNK) as usize];
                        prop_assert_eq!(found, (place.pack, rank, place.offset / CHUNK));
                    }
                    let holder = |region: &Region| {
                        packs[ordinal as usize][(region.place.offset / CHUNK) as usize].1
                    };
                    let mut fresh = delta.regions.iter().filter(|region| region.fresh);
                    prop_assert!(fresh.all(|region| holder(region) == rank));
                }
                let (bytes, seal) = footer.write();
                let body = &bytes[..seal.footer as usize];
                prop_assert_eq!(
                    Footer::parse(&crate::format::header(), body, &seal, true).unwrap(), footer
                );
            }
        }
    }

    #[test]
    fn a_place_of_a_pack_that_was_not_joined_is_an_error() {
        let mut starts = PartStarts::default();
        let own = part(3, 0, 1, &[Location { pack: 1, offset: 0 }]);
        let mut joined = JoinedPack::new(&own, None, &mut starts);
        let frames = own.frames.clone();
        assert!(joined.add(PartMaker::Leader, own.clone(), frames.clone()).is_err());
        // One that was there when the epoch was resumed is seen as it is.
        for (there, known) in [(1, false), (2, true)] {
            starts.resume(there);
            let mut joined = JoinedPack::new(&own, None, &mut starts);
            let first = part(3, 1, 2, &[]);
            joined.add(PartMaker::Member(0), first.clone(), first.frames).unwrap();
            let added = joined.add(PartMaker::Leader, own.clone(), frames.clone());
            assert_eq!(added.is_ok(), known);
            let place = Location { pack: 1, offset: 0 };
            let mut regions = joined.footer.deltas.iter().flat_map(|delta| &delta.regions);
            assert_eq!(regions.any(|region| region.place == place), known);
        }
    }
}
