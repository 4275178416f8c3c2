//! Packs: a header, frames one after another, a footer that describes them, a trailer.
//!
//! The footer names every frame with its checksum and holds the deltas; the trailer holds the
//! digest of header and footer. A [`Seal`] (size of the file, length and digest of its footer)
//! therefore vouches for every byte of a pack. A manifest holds the seal of its newest pack, and
//! each footer holds the seal of the pack before it in the epoch.

use super::bytes::{Reader, Writer, check_version_of};
use super::delta::{self, read_bitmap, read_regions, write_bitmap, write_regions};
use super::names::{PackName, WriterId};
use super::section::{VariableEntry, parse_section, write_section};
use crate::array::{GroupId, Rank, Sequence};
use crate::codec::{Chain, CodecStep};
use crate::error::{Error, ErrorKind, Result};
use crate::lineage::{ChunkSize, Location, Region};
use crate::merkle::{Digest, digest};
use std::borrow::Cow;

const MAGIC: &[u8; 8] = b"TREEPACK";
const END: &[u8; 8] = b"PACKTREE";
/// The bytes before the first frame.
pub(crate) const HEADER_BYTES: u64 = 16;
/// The bytes behind the footer.
pub(crate) const TRAILER_BYTES: u64 = 32;
/// The most bytes a frame may hold, before and after encoding.
pub(crate) const MAX_FRAME: u64 = 1 << 26;

/// Frames as they are.
pub const RAW: u8 = 0;
/// Frames encoded by zstd.
pub const ZSTD: u8 = 1;
/// The number of a pack's first chain.
const CHAINS: u8 = 2;

/// Largest number of differences on top of each other.
pub(crate) const MAX_DEPTH: u8 = 7;

/// Vouches for a pack: with these three, no other bytes pass for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seal {
    /// The size of the file.
    pub size: u64,
    /// The length of the footer.
    pub footer: u64,
    /// The digest of header and footer.
    pub digest: Digest,
}

/// One frame: a range of the pack's bytes that is encoded and checked as a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Offset of its bytes in the pack's (not encoded) bytes.
    pub offset: u64,
    /// Number of its (not encoded) bytes.
    pub len: u64,
    /// Its offset in the file.
    pub position: u64,
    /// Its encoded size: bytes in the file.
    pub encoded: u64,
    /// Its encoding: [`RAW`], [`ZSTD`], or the number of a chain of the pack behind these.
    pub codec: u8,
    /// The checksum of its bytes in the file.
    pub checksum: u64,
}

impl Frame {
    /// The number of its chain among those of the pack; `None` if it needs none of these.
    pub(crate) fn chain(&self) -> Option<usize> {
        self.codec.checked_sub(CHAINS).map(usize::from)
    }
}

/// The delta of one variable: what a checkpoint adds to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VariableDelta {
    /// The rank.
    pub rank: Rank,
    /// The variable's name.
    pub name: String,
    /// The chunk size.
    pub chunk: ChunkSize,
    /// The length of the variable in bytes.
    pub bytes: u64,
    /// Offset of its new bytes in the pack.
    pub base: u64,
    /// Whether the regions are written as a bitmap (the Basic method).
    pub bitmap: bool,
    /// Regions of new bytes and of duplicates; chunks that no region covers are unchanged.
    pub regions: Vec<Region>,
}

/// The footer of a pack: everything in it but the bytes of frames.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Footer {
    /// The run that wrote it.
    pub run: String,
    /// Its name.
    pub name: PackName,
    /// Its position in the epoch; 0 holds everything.
    pub ordinal: u32,
    /// The seal of the pack before it in the epoch.
    pub parent: Option<Seal>,
    /// The frames, in order.
    pub frames: Vec<Frame>,
    /// The chains that frames are encoded by.
    pub chains: Vec<Chain>,
    /// The bytes that frames are differences to, by the frame's number, ascending.
    pub before: Vec<(u32, Vec<PackExtent>)>,
    /// The deltas of the variables.
    pub deltas: Vec<VariableDelta>,
    /// The section: all variables of the group at this checkpoint. Empty if it was not read.
    pub variables: Vec<VariableEntry>,
}

/// Bytes of an earlier pack of the epoch, one after another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PackExtent {
    /// Location of the first byte.
    pub place: Location,
    /// Number of bytes.
    pub len: u64,
}

/// The first bytes of a pack.
pub(crate) fn header() -> [u8; HEADER_BYTES as usize] {
    let mut bytes = [0; HEADER_BYTES as usize];
    bytes[..8].copy_from_slice(MAGIC);
    bytes[8..10].copy_from_slice(&super::VERSION.to_le_bytes());
    bytes
}

/// The length of the footer and its digest, from a pack's last bytes.
pub(crate) fn parse_trailer(bytes: &[u8], size: u64) -> Result<Seal> {
    let mut reader = Reader::new(bytes);
    let footer = reader.u64()?;
    let digest = reader.digest()?;
    let room = size.checked_sub(HEADER_BYTES + TRAILER_BYTES);
    if reader.raw(8)? != END || room.is_none_or(|room| footer > room) {
        return Err(Error::damaged("incomplete pack"));
    }
    Ok(Seal { size, footer, digest })
}

impl Footer {
    /// Footer and trailer as they follow the frames, and the seal of the whole.
    pub fn write(&self) -> (Vec<u8>, Seal) {
        let mut out = Writer::default();
        out.bytes(&write_section(&self.variables));
        out.string(&self.run);
        out.int(self.name.writer.opening.0);
        out.u64(self.name.writer.nonce);
        out.int(self.name.attempt);
        out.int(u64::from(self.name.group.0));
        out.int(u64::from(self.ordinal));
        if let Some(parent) = &self.parent {
            out.int(parent.size);
            out.int(parent.footer);
            out.digest(parent.digest);
        }
        self.write_frames(&mut out);
        out.int(self.deltas.len() as u64);
        self.deltas.iter().for_each(|d| d.write(self.ordinal, &mut out));
        let end = self.frames.last().map_or(HEADER_BYTES, |f| f.position + f.encoded);
        let seal = Seal {
            size: end + out.0.len() as u64 + TRAILER_BYTES,
            footer: out.0.len() as u64,
            digest: sealed(&header(), &out.0),
        };
        out.u64(seal.footer);
        out.digest(seal.digest);
        out.raw(END);
        (out.0, seal)
    }

    fn write_frames(&self, out: &mut Writer) {
        out.int(self.frames.len() as u64);
        for frame in &self.frames {
            out.byte(frame.codec);
            out.int(frame.len);
            out.int(frame.encoded);
            out.u64(frame.checksum);
        }
        if self.frames.iter().any(|frame| frame.codec >= CHAINS) {
            out.int(self.chains.len() as u64);
            self.chains.iter().for_each(|chain| out.bytes(&chain.write()));
        }
        for (_, runs) in &self.before {
            out.int(runs.len() as u64);
            for run in runs {
                out.int(u64::from(run.place.pack));
                out.int(run.place.offset);
                out.int(run.len);
            }
        }
    }

    /// Reads a footer; `head` and `bytes` are the file's header and footer as they were read. Only the
    /// newest pack of a checkpoint needs its section.
    pub fn parse(head: &[u8], bytes: &[u8], seal: &Seal, section: bool) -> Result<Footer> {
        if head.len() as u64 != HEADER_BYTES || &head[..8] != MAGIC {
            return Err(Error::damaged("not a pack"));
        }
        check_version_of([head[8], head[9]], || sealed(&header(), bytes) == seal.digest)?;
        if head != header() || sealed(head, bytes) != seal.digest {
            return Err(Error::damaged("the digest of a pack's footer does not match"));
        }
        let mut reader = Reader::new(bytes);
        let variables = reader.bytes()?;
        let run = reader.string()?;
        let writer = WriterId { opening: Sequence(reader.int()?), nonce: reader.u64()? };
        let name = PackName { writer, attempt: reader.int()?, group: GroupId(reader.u32()?) };
        let variables = match section {
            true => parse_section(variables, name.group)?,
            false => Vec::new(),
        };
        let ordinal = reader.u32()?;
        let parent = match ordinal {
            0 => None,
            _ => {
                Some(Seal { size: reader.int()?, footer: reader.int()?, digest: reader.digest()? })
            }
        };
        let frames = parse_frames(&mut reader, seal)?;
        let chains = parse_chains(&mut reader, &frames)?;
        let before = parse_before(&mut reader, &frames, &chains, ordinal)?;
        let count = reader.count()?;
        let deltas = (0..count)
            .map(|_| VariableDelta::parse(ordinal, &mut reader))
            .collect::<Result<_>>()?;
        reader.end()?;
        Ok(Footer { run, name, ordinal, parent, frames, chains, before, deltas, variables })
    }

    /// The chain that a frame is encoded by.
    pub fn chain(&self, frame: &Frame) -> Result<Cow<'_, Chain>> {
        match frame.codec {
            RAW => Ok(Cow::Owned(Chain::default())),
            ZSTD => Chain::new(&[CodecStep::Zstd(1)]).map(Cow::Owned),
            number => {
                self.chains.get(usize::from(number - CHAINS)).map(Cow::Borrowed).ok_or_else(|| {
                    Error::new(ErrorKind::Mismatch, format!("this release has no codec {number}"))
                        .hint("use a newer release of treering")
                })
            }
        }
    }

    /// The bytes that a frame is a difference to.
    pub fn before(&self, frame: usize) -> Option<&[PackExtent]> {
        let at = self.before.binary_search_by_key(&frame, |(frame, _)| *frame as usize).ok()?;
        Some(&self.before[at].1)
    }

    /// The number by which frames name a chain, which is added if it is new and there is room.
    pub(crate) fn number(chains: &mut Vec<Chain>, chain: &Chain) -> Option<u8> {
        let at = match chain.steps() {
            [] => return Some(RAW),
            [CodecStep::Zstd(_)] => return Some(ZSTD),
            _ => chains.iter().position(|other| other == chain),
        };
        let at = at.unwrap_or_else(|| {
            chains.push(chain.clone());
            chains.len() - 1
        });
        let number = u8::try_from(at).ok()?.checked_add(CHAINS);
        if number.is_none() {
            chains.truncate(at);
        }
        number
    }

    /// Number of (not encoded) bytes in the pack.
    pub fn len(&self) -> u64 {
        self.frames.last().map_or(0, |f| f.offset + f.len)
    }

    #[cfg(any(test, feature = "testing"))]
    /// Whether it holds no bytes at all.
    pub fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }

    /// The index of the frame that holds the byte at `offset`.
    pub fn frame_at(&self, offset: u64) -> Option<usize> {
        let at = self.frames.partition_point(|f| f.offset + f.len <= offset);
        (at < self.frames.len()).then_some(at)
    }
}

fn sealed(head: &[u8], footer: &[u8]) -> Digest {
    let mut all = head.to_vec();
    all.extend_from_slice(footer);
    digest(&all)
}

fn parse_frames(reader: &mut Reader, seal: &Seal) -> Result<Vec<Frame>> {
    let wrong = || Error::damaged("corrupt pack: invalid table of frames");
    let count = reader.count()?;
    let mut frames = Vec::with_capacity(count);
    let (mut offset, mut position) = (0u64, HEADER_BYTES);
    for _ in 0..count {
        let frame = Frame {
            offset,
            position,
            codec: reader.byte()?,
            len: reader.int()?,
            encoded: reader.int()?,
            checksum: reader.u64()?,
        };
        if frame.len == 0 || frame.len > MAX_FRAME || frame.encoded > MAX_FRAME {
            return Err(wrong());
        }
        offset += frame.len;
        position += frame.encoded;
        frames.push(frame);
    }
    let behind = seal.footer.checked_add(TRAILER_BYTES);
    if behind.and_then(|b| seal.size.checked_sub(b)) != Some(position) {
        return Err(wrong());
    }
    Ok(frames)
}

fn parse_chains(reader: &mut Reader, frames: &[Frame]) -> Result<Vec<Chain>> {
    let Some(most) = frames.iter().map(|frame| frame.codec).max().filter(|most| *most >= CHAINS)
    else {
        return Ok(Vec::new());
    };
    let count = reader.count()?;
    if count > usize::from(u8::MAX - CHAINS) + 1 || count <= usize::from(most - CHAINS) {
        return Err(Error::damaged("corrupt pack: invalid table of chains"));
    }
    (0..count).map(|_| Chain::parse(reader.bytes()?)).collect()
}

/// Reads the sources of frames whose chain begins with a difference.
fn parse_before(
    reader: &mut Reader,
    frames: &[Frame],
    chains: &[Chain],
    ordinal: u32,
) -> Result<Vec<(u32, Vec<PackExtent>)>> {
    let wrong = || Error::damaged("a difference leads out of its epoch");
    let is_difference = |frame: &Frame| {
        let at = frame.codec.checked_sub(CHAINS).map(usize::from);
        at.and_then(|at| chains.get(at)).is_some_and(Chain::is_difference)
    };
    let mut before = Vec::new();
    for (number, frame) in (0..).zip(frames).filter(|(_, frame)| is_difference(frame)) {
        let mut runs = Vec::new();
        let mut len = 0u64;
        for _ in 0..reader.count()? {
            let place = Location { pack: reader.u32()?, offset: reader.int()? };
            let run = PackExtent { place, len: reader.int()? };
            let end = place.offset.checked_add(run.len);
            if place.pack >= ordinal || end.is_none() || !(1..=frame.len).contains(&run.len) {
                return Err(wrong());
            }
            len += run.len;
            runs.push(run);
        }
        if len != frame.len {
            return Err(wrong());
        }
        before.push((number, runs));
    }
    Ok(before)
}

impl VariableDelta {
    /// The bytes of the variable that its regions cover.
    pub(crate) fn covered_bytes(&self) -> u64 {
        let chunks = self.regions.iter().map(|r| r.count).fold(0, u64::saturating_add);
        chunks.saturating_mul(self.chunk.bytes() as u64).min(self.bytes)
    }

    fn frame(&self, ordinal: u32) -> delta::RegionContext {
        delta::RegionContext {
            ordinal,
            chunk: self.chunk.bytes() as u64,
            chunks: self.chunk.count(self.bytes),
            base: self.base,
        }
    }

    fn write(&self, ordinal: u32, out: &mut Writer) {
        out.int(u64::from(self.rank.0));
        out.string(&self.name);
        out.int(self.chunk.bytes() as u64);
        out.int(self.bytes);
        out.int(self.base);
        out.byte(u8::from(self.bitmap));
        match self.bitmap {
            true => write_bitmap(out, &self.regions, self.chunk.count(self.bytes)),
            false => write_regions(out, &self.regions, self.frame(ordinal)),
        }
    }

    fn parse(ordinal: u32, reader: &mut Reader) -> Result<Self> {
        let mut delta = VariableDelta {
            rank: Rank(reader.u32()?),
            name: reader.string()?,
            chunk: ChunkSize::new(reader.int()?)
                .map_err(|_| Error::damaged("a delta has an impossible chunk size"))?,
            bytes: reader.int()?,
            base: reader.int()?,
            bitmap: match reader.byte()? {
                0 => false,
                1 => true,
                _ => return Err(Error::damaged("a delta has an unknown form")),
            },
            regions: Vec::new(),
        };
        let frame = delta.frame(ordinal);
        delta.regions = match delta.bitmap {
            true => read_bitmap(reader, frame)?,
            false => read_regions(reader, frame)?,
        };
        Ok(delta)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn footer() -> Footer {
        let frame = Frame { offset: 0, len: 128, position: 16, encoded: 99, codec: 3, checksum: 7 };
        let chains = [&[CodecStep::Shuffle(4), CodecStep::Zstd(3)][..], &[CodecStep::Lz4]];
        let place = Location { pack: 2, offset: 0 };
        Footer {
            run: "a".into(),
            name: PackName {
                writer: WriterId { opening: Sequence(1), nonce: 9 },
                attempt: 4,
                group: GroupId(0),
            },
            ordinal: 2,
            parent: Some(Seal { size: 1000, footer: 50, digest: Digest([1, 2]) }),
            frames: vec![frame],
            chains: chains.map(|steps| Chain::new(steps).unwrap()).to_vec(),
            before: Vec::new(),
            deltas: vec![VariableDelta {
                rank: Rank(0),
                name: "x".into(),
                chunk: ChunkSize::new(128).unwrap(),
                bytes: 5000,
                base: 0,
                bitmap: false,
                regions: vec![Region { start: 3, count: 1, place, period: 0, fresh: true }],
            }],
            variables: vec![VariableEntry {
                rank: Rank(0),
                group: GroupId(0),
                description: crate::array::Description {
                    name: "x".into(),
                    dtype: crate::array::DType::Bytes,
                    shape: crate::array::Shape(vec![5000]),
                    order: crate::array::Order::C,
                    part: None,
                    attributes: Default::default(),
                },
                chunk: ChunkSize::new(128).unwrap(),
                root: Digest([3, 4]),
                rounded: None,
            }],
        }
    }

    #[test]
    fn footers_return_and_every_flipped_byte_is_seen() {
        let footer = footer();
        let (bytes, seal) = footer.write();
        let (body, trailer) = bytes.split_at(seal.footer as usize);
        let head = header();
        assert_eq!(parse_trailer(trailer, seal.size).unwrap(), seal);
        assert_eq!(Footer::parse(&head, body, &seal, true).unwrap(), footer);
        let without = Footer { variables: Vec::new(), ..footer };
        assert_eq!(Footer::parse(&head, body, &seal, false).unwrap(), without);
        for at in 0..body.len() {
            let mut bad = body.to_vec();
            bad[at] ^= 1;
            assert!(Footer::parse(&head, &bad, &seal, true).is_err());
        }
        for at in 0..head.len() {
            let mut bad = head;
            bad[at] ^= 1;
            assert!(Footer::parse(&bad, body, &seal, true).is_err());
        }
        for at in 0..trailer.len() {
            let mut bad = trailer.to_vec();
            bad[at] ^= 1;
            let read = parse_trailer(&bad, seal.size);
            assert!(read.is_err() || read.unwrap() != seal);
        }
    }
}
