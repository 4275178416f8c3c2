//! One rank's part of a checkpoint of its group: large variables packed, small ones as they are.
//!
//! A variable that fills frames by itself is packed by its rank, so that encoding is spread over all ranks. Smaller ones
//! go to the leader as they are, which packs those that are similar side by side: a frame then holds one kind of
//! values of many ranks. So do larger ones of ranks that have little in all ([`Options::pack_together`]): values repeat
//! from rank to rank, which only the leader sees. A variable stays on its side as long as the epoch lasts, because its tree
//! does.
//!
//! [`Options::pack_together`]: crate::Options::pack_together

use super::group::{GroupMember, Take};
use crate::array::{Rank, Sequence, VariableKey};
use crate::capture::{Declared, StagedBatch};
use crate::error::{Error, Result};
use crate::format::{
    Footer, Frame, HEADER_BYTES, Seal, SmallStrip, SmallVariable, StageHead, Stats, TRAILER_BYTES,
};
use crate::io;
use crate::merkle::{Digest, Tree, checksum};
use crate::pack::{FRAME, MergedVariable, Strip, stays_with_rank};
use crate::store::Put;
use std::collections::HashMap;
use std::fs::File;
use std::os::unix::fs::FileExt;

/// Variables of this size and more are packed by their rank.
const LARGE: u64 = FRAME as u64;
/// The most bytes that the small variables of a rank have; the others are packed by their rank.
const MOST_SMALL: u64 = 64 << 20;
/// The bytes of small variables that are packed at a time.
const TOGETHER: usize = 16 << 20;
/// The same in the middle of one kind.
const MOST_TOGETHER: usize = 4 * TOGETHER;

/// Which variables of a rank are packed by the rank itself, as long as an epoch lasts.
pub(super) struct VariableSides {
    large: HashMap<String, bool>,
    small_bytes: u64,
    /// The bytes of a rank that go to the leader whatever their variables are.
    together: u64,
}

impl VariableSides {
    pub(super) fn new(together: u64) -> VariableSides {
        VariableSides { large: HashMap::new(), small_bytes: 0, together }
    }

    fn is_large(&mut self, name: &str, bytes: u64) -> bool {
        if let Some(known) = self.large.get(name) {
            return *known;
        }
        let all = self.small_bytes.saturating_add(bytes);
        let large = all > self.together && (bytes >= LARGE || all > MOST_SMALL);
        self.small_bytes += if large { 0 } else { bytes };
        self.large.insert(name.to_string(), large);
        large
    }
}

/// The variables of a checkpoint, each on its side.
pub(super) struct SplitVariables {
    /// For each variable, whether it is large, and its number among those of its side.
    sides: Vec<(bool, usize)>,
    pub(super) large: Vec<GroupMember>,
    pub(super) small: SmallPart,
}

/// The small variables of a rank and their changed bytes, one variable after another.
#[derive(Default)]
pub(super) struct SmallPart {
    pub(super) variables: Vec<SmallVariable>,
    bytes: Vec<Vec<u8>>,
}

impl SplitVariables {
    /// `restored` has the trees of a state that the leader has not heard of.
    pub(super) fn new(
        rank: Rank,
        declared: &[Declared],
        sides: &mut VariableSides,
        restored: &HashMap<String, Tree>,
    ) -> SplitVariables {
        let mut split =
            SplitVariables { sides: Vec::new(), large: Vec::new(), small: SmallPart::default() };
        for Declared { description, rounded } in declared {
            let large = sides.is_large(&description.name, description.bytes().unwrap_or(0));
            match large {
                true => {
                    split.sides.push((true, split.large.len()));
                    split.large.push(GroupMember::own(rank, description, *rounded));
                }
                false => {
                    split.sides.push((false, split.small.variables.len()));
                    let known = restored.get(&description.name).map(|tree| tree.boughs().to_vec());
                    split.small.bytes.push(Vec::new());
                    split.small.variables.push(SmallVariable {
                        description: description.clone(),
                        rounded: *rounded,
                        known: known.unwrap_or_default(),
                        strips: Vec::new(),
                    });
                }
            }
        }
        split
    }

    /// Hands the strips of large variables on and keeps those of small ones.
    pub(super) fn take(
        sides: &[(bool, usize)],
        small: &mut SmallPart,
        batch: StagedBatch,
        take: &mut Take,
    ) -> Result<()> {
        let bytes = batch.staged.bytes();
        let mut large = Vec::new();
        for strip in batch.strips {
            match sides[strip.variable] {
                (true, variable) => large.push(Strip { variable, ..strip }),
                (false, at) => {
                    let changed = &bytes[strip.offset..][..strip.changed.bytes];
                    small.bytes[at].extend_from_slice(changed);
                    let Strip { first, hashed, changed, .. } = strip;
                    small.variables[at].strips.push(SmallStrip { first, hashed, changed });
                }
            }
        }
        if large.is_empty() { Ok(()) } else { take(&large, bytes) }
    }

    /// The sides apart from the variables, so that both can be lent.
    pub(super) fn parts(&mut self) -> (&[(bool, usize)], &[GroupMember], &mut SmallPart) {
        (&self.sides, &self.large, &mut self.small)
    }
}

impl SmallPart {
    /// All bytes, in the order of the variables.
    pub(super) fn into_bytes(self) -> (Vec<SmallVariable>, Vec<u8>) {
        (self.variables, self.bytes.concat())
    }

    pub(super) fn len(&self) -> u64 {
        self.bytes.iter().map(|bytes| bytes.len() as u64).sum()
    }
}

/// A stage that is being written.
pub(super) struct StagePut {
    file: File,
    len: u64,
}

impl StagePut {
    pub(super) fn new() -> Result<StagePut> {
        Ok(StagePut { file: io::memory()?, len: 0 })
    }

    /// The memory that it is written to.
    pub(super) fn file(&self) -> &File {
        &self.file
    }

    /// The same, for somebody else.
    pub(super) fn again(&self) -> Result<File> {
        let again = self.file.try_clone();
        again.map_err(|error| Error::io("cannot share the memory of a stage", error))
    }

    /// Adds the small variables and the head; where the head lies.
    pub(super) fn close(
        mut self,
        sequence: Sequence,
        rank: Rank,
        image: Seal,
        stats: Stats,
        small: SmallPart,
    ) -> Result<(File, u64)> {
        let (small, bytes) = small.into_bytes();
        self.append(&bytes)?;
        self.finish_with(&StageHead { sequence, rank, image, stats, small })
    }

    /// Adds the head; where it lies.
    pub(super) fn finish_with(mut self, head: &StageHead) -> Result<(File, u64)> {
        let at = self.len;
        self.append(&head.write())?;
        Ok((self.file, at))
    }
}

impl Put for StagePut {
    fn append(&mut self, bytes: &[u8]) -> Result<()> {
        let written = self.file.write_all_at(bytes, self.len);
        written.map_err(|error| Error::io("cannot stage a checkpoint in memory", error))?;
        self.len += bytes.len() as u64;
        Ok(())
    }

    fn read_back(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        let read = self.file.read_exact_at(buffer, offset);
        read.map_err(|error| Error::io("cannot read a stage", error))
    }

    fn finish(self: Box<Self>) -> Result<()> {
        Ok(())
    }
}

/// A stage of another rank.
pub(super) struct MemberStage {
    file: File,
    pub(super) head: StageHead,
    /// The footer of its large variables.
    pub(super) footer: Footer,
}

impl MemberStage {
    /// Opens a stage whose head lies at a place; everything but the frames is checked.
    pub(super) fn open(file: File, at: u64) -> Result<MemberStage> {
        let wrong = || Error::damaged("the stage of another rank is corrupt");
        let size = file.metadata().map_err(|error| Error::io("cannot read a stage", error))?.len();
        let read = |from: u64, end: u64| -> Result<Vec<u8>> {
            let len = end.checked_sub(from).filter(|_| end <= size).ok_or_else(wrong)?;
            let mut bytes = crate::memory::zeroed(len)?;
            let read = file.read_exact_at(&mut bytes, from);
            read.map_err(|error| Error::io("cannot read a stage", error))?;
            Ok(bytes)
        };
        let head = StageHead::parse(&read(at, size)?)?;
        let Seal { size: image, footer, .. } = head.image;
        if image.checked_add(head.small_bytes()) != Some(at) {
            return Err(wrong());
        }
        let end = image.checked_sub(TRAILER_BYTES).ok_or_else(wrong)?;
        let begin = end.checked_sub(footer).ok_or_else(wrong)?;
        let footer = Footer::parse(&read(0, HEADER_BYTES)?, &read(begin, end)?, &head.image, true)?;
        Ok(MemberStage { file, head, footer })
    }

    /// The bytes of a frame, as they are encoded.
    pub(super) fn frame(&self, frame: &Frame) -> Result<Vec<u8>> {
        let mut bytes = crate::memory::zeroed(frame.encoded)?;
        let read = self.file.read_exact_at(&mut bytes, frame.position);
        read.map_err(|error| Error::io("cannot read a stage", error))?;
        match checksum(&bytes) == frame.checksum {
            true => Ok(bytes),
            false => Err(Error::damaged("a frame of another rank's stage was changed")),
        }
    }

    /// The small variables and their changed bytes.
    pub(super) fn small(self) -> Result<(Vec<SmallVariable>, Vec<u8>)> {
        let mut bytes = crate::memory::zeroed(self.head.small_bytes())?;
        let read = self.file.read_exact_at(&mut bytes, self.head.image.size);
        read.map_err(|error| Error::io("cannot read a stage", error))?;
        Ok((self.head.small, bytes))
    }
}

/// The small variables of all ranks of a group, those that are similar side by side.
#[derive(Default)]
pub(super) struct SmallOfAll {
    variables: Vec<(Rank, SmallVariable, std::ops::Range<usize>)>,
    bytes: Vec<u8>,
}

impl SmallOfAll {
    /// Adds those of a rank.
    pub(super) fn add(&mut self, rank: Rank, variables: Vec<SmallVariable>, bytes: Vec<u8>) {
        let mut start = self.bytes.len();
        for small in variables {
            let len: usize = small.strips.iter().map(|strip| strip.changed.bytes).sum();
            self.variables.push((rank, small, start..start + len));
            start += len;
        }
        self.bytes.extend_from_slice(&bytes);
    }

    fn merged(&self) -> Vec<MergedVariable<'_>> {
        let merged = |(rank, small, range): &'_ (Rank, SmallVariable, std::ops::Range<usize>)| {
            (*rank, small.description.dtype, range.len() as u64, small.rounded.is_some())
        };
        let names = self.variables.iter().map(|(_, small, _)| &small.description.name[..]);
        let all = self.variables.iter().map(merged).zip(names);
        let variable = |((rank, dtype, len, rounded), like)| MergedVariable {
            rank,
            like,
            dtype,
            len,
            rounded,
        };
        all.map(variable).collect()
    }

    /// Whether those of a rank stay together, as a sample tells.
    pub(super) fn stays_with_rank(&self) -> Result<bool> {
        stays_with_rank(&self.merged(), &|number, out| {
            let (.., range) = &self.variables[number];
            out.copy_from_slice(&self.bytes[range.clone()][..out.len()]);
            Ok(())
        })
    }

    /// Puts similar ones side by side, or those of a rank. The boughs of restored states come out of them.
    pub(super) fn sort(&mut self, with_rank: bool) -> Vec<(VariableKey, Vec<Digest>)> {
        match with_rank {
            true => {
                let places: Vec<_> = self.merged().iter().map(|m| m.place_in_rank()).collect();
                let mut all: Vec<_> =
                    places.into_iter().zip(std::mem::take(&mut self.variables)).collect();
                all.sort_by_key(|(place, _)| *place);
                self.variables = all.into_iter().map(|(_, variable)| variable).collect();
            }
            false => self.variables.sort_by_cached_key(|(rank, small, _)| {
                (small.description.name.clone(), small.description.dtype.name(), *rank)
            }),
        }
        let known = self.variables.iter_mut().filter(|(_, small, _)| !small.known.is_empty());
        let known = known.map(|(rank, small, _)| {
            let key = VariableKey::new(*rank, &small.description.name);
            (key, std::mem::take(&mut small.known))
        });
        known.collect()
    }

    pub(super) fn members(&self, with_rank: bool) -> Vec<GroupMember> {
        let member = |(rank, small, _): &(Rank, SmallVariable, _)| {
            let own = GroupMember::own(*rank, &small.description, small.rounded);
            if with_rank { own.with_rank() } else { own }
        };
        self.variables.iter().map(member).collect()
    }

    /// Hands everything over, in the order of [`members`](Self::members).
    pub(super) fn feed(self, take: &mut Take) -> Result<()> {
        let (mut strips, mut bytes) = (Vec::new(), Vec::new());
        let names: Vec<String> =
            self.variables.iter().map(|(_, small, _)| small.description.name.clone()).collect();
        for (variable, (_, small, range)) in self.variables.into_iter().enumerate() {
            let mut offset = bytes.len();
            bytes.extend_from_slice(&self.bytes[range]);
            for SmallStrip { first, hashed, changed } in small.strips {
                let len = changed.bytes;
                strips.push(Strip { variable, first, changed, hashed, offset, whole: None });
                offset += len;
            }
            // Repeats of values of one kind are seen where those of all ranks come at once.
            let goes_on = names.get(variable + 1) == Some(&names[variable]);
            if bytes.len() >= if goes_on { MOST_TOGETHER } else { TOGETHER } {
                take(&strips, &bytes)?;
                (strips, bytes) = (Vec::new(), Vec::new());
            }
        }
        if strips.is_empty() { Ok(()) } else { take(&strips, &bytes) }
    }
}
