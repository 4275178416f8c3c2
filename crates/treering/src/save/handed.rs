//! The data that a compute rank hands to an aggregator: the changed bytes of all its variables as they are, in shared
//! memory.
//!
//! The head says which variables there are and which of their chunks changed; the bytes lie in the order of the
//! variables. The rank encodes nothing, and the aggregator takes the bytes when their turn comes, whatever their order
//! here. Memory that has been packed is released at once, while the rest still waits.

use super::stage::StagePut;
use crate::array::{Rank, Sequence, VariableKey};
use crate::capture::{Declared, StagedBatch};
use crate::error::{Error, Result};
use crate::format::{Seal, SmallStrip, SmallVariable, StageHead, Stats};
use crate::io;
use crate::memory::zeroed;
use crate::merkle::{Digest, Tree};
use crate::pack::Strip;
use crate::save::group::GroupMember;
use crate::store::Put;
use std::collections::{HashMap, VecDeque};
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::time::Duration;

/// The variables of a rank on their way into shared memory.
pub(super) struct HandedPut {
    put: StagePut,
    variables: Vec<SmallVariable>,
}

impl HandedPut {
    /// `restored` has the trees of a state that the aggregator has not heard of.
    pub(super) fn new(declared: &[Declared], restored: &HashMap<String, Tree>) -> Result<Self> {
        let variable = |Declared { description, rounded }: &Declared| SmallVariable {
            description: description.clone(),
            rounded: *rounded,
            known: restored
                .get(&description.name)
                .map(|tree| tree.boughs().to_vec())
                .unwrap_or_default(),
            strips: Vec::new(),
        };
        let variables = declared.iter().map(variable).collect();
        Ok(HandedPut { put: StagePut::new()?, variables })
    }

    /// Copies a batch, whose staging memory is free then. Strips come variable by variable.
    pub(super) fn take(&mut self, batch: StagedBatch) -> Result<()> {
        let bytes = batch.staged.bytes();
        for Strip { variable, first, changed, hashed, offset, .. } in batch.strips {
            self.put.append(&bytes[offset..][..changed.bytes])?;
            self.variables[variable].strips.push(SmallStrip { first, hashed, changed });
        }
        Ok(())
    }

    /// Adds the head; where it lies.
    pub(super) fn close(
        self,
        sequence: Sequence,
        rank: Rank,
        blocked: Duration,
    ) -> Result<(File, u64)> {
        let image = Seal { size: 0, footer: 0, digest: Digest::default() };
        let stats = Stats { blocked_ns: blocked.as_nanos() as u64, ..Stats::default() };
        self.put.finish_with(&StageHead { sequence, rank, image, stats, small: self.variables })
    }
}

/// The data that one rank has handed over.
pub(crate) struct HandedStage {
    file: File,
    pub(super) head: StageHead,
}

impl HandedStage {
    /// Reads and checks the head.
    pub(super) fn open(file: File, at: u64) -> Result<HandedStage> {
        let wrong = || Error::damaged("a message with the data of another rank is corrupt");
        let failed = |error| Error::io("cannot read what another rank has handed over", error);
        let size = file.metadata().map_err(failed)?.len();
        let mut bytes = zeroed(size.checked_sub(at).ok_or_else(wrong)?)?;
        file.read_exact_at(&mut bytes, at).map_err(failed)?;
        let head = StageHead::parse(&bytes)?;
        match head.image.size == 0 && head.small_bytes() == at {
            true => Ok(HandedStage { file, head }),
            false => Err(wrong()),
        }
    }
}

/// A variable that waits to be pulled.
struct Pulled {
    rank: Rank,
    small: SmallVariable,
    /// The stage that holds its bytes, and where they begin.
    stage: usize,
    start: u64,
}

/// The variables of all ranks, those that are similar side by side, and the memory that holds their bytes.
pub(super) struct PullPlan {
    variables: Vec<Pulled>,
    files: Vec<File>,
}

/// Some strips, with their bytes one after another.
pub(super) struct PulledPiece {
    pub(super) strips: Vec<Strip>,
    pub(super) bytes: Vec<u8>,
    /// The memory that they came from.
    from: Vec<(usize, Range<u64>)>,
}

impl PullPlan {
    pub(super) fn new(stages: Vec<HandedStage>) -> PullPlan {
        let mut plan = PullPlan { variables: Vec::new(), files: Vec::new() };
        for HandedStage { file, head } in stages {
            let mut start = 0;
            for small in head.small {
                let len: u64 = small.strips.iter().map(|strip| strip.changed.bytes as u64).sum();
                let (rank, stage) = (head.rank, plan.files.len());
                plan.variables.push(Pulled { rank, small, stage, start });
                start += len;
            }
            plan.files.push(file);
        }
        plan.variables.sort_by_cached_key(|Pulled { rank, small, .. }| {
            (small.description.name.clone(), small.description.dtype.name(), *rank)
        });
        plan
    }

    /// The boughs of restored states.
    pub(super) fn known(&mut self) -> Vec<(VariableKey, Vec<Digest>)> {
        let known = self.variables.iter_mut().filter(|pulled| !pulled.small.known.is_empty());
        let known = known.map(|Pulled { rank, small, .. }| {
            let key = VariableKey::new(*rank, &small.description.name);
            (key, std::mem::take(&mut small.known))
        });
        known.collect()
    }

    pub(super) fn members(&self) -> Vec<GroupMember> {
        let member = |Pulled { rank, small, .. }: &Pulled| {
            GroupMember::own(*rank, &small.description, small.rounded)
        };
        self.variables.iter().map(member).collect()
    }

    /// The strips of all variables, in the order of [`members`](Self::members), with the places of their bytes.
    pub(super) fn strips(&mut self) -> PullTurns {
        let mut turns = VecDeque::new();
        for (number, pulled) in self.variables.iter_mut().enumerate() {
            let mut at = pulled.start;
            for strip in std::mem::take(&mut pulled.small.strips) {
                let end = at + strip.changed.bytes as u64;
                turns.push_back((number, strip, pulled.stage, at..end));
                at = end;
            }
        }
        PullTurns(turns)
    }

    /// Reads the next strips, up to about this many bytes; `None` at the end.
    pub(super) fn fetch(&self, turns: &mut PullTurns, most: u64) -> Result<Option<PulledPiece>> {
        let taken = turns.take(most);
        if taken.is_empty() {
            return Ok(None);
        }
        let mut bytes =
            zeroed(taken.iter().map(|(_, strip, ..)| strip.changed.bytes as u64).sum())?;
        let (mut strips, mut from, mut offset) = (Vec::new(), Vec::new(), 0);
        for (variable, SmallStrip { first, hashed, changed }, stage, range) in taken {
            let len = changed.bytes;
            let read =
                self.files[stage].read_exact_at(&mut bytes[offset..offset + len], range.start);
            read.map_err(|e| Error::io("cannot read what another rank has handed over", e))?;
            strips.push(Strip { variable, first, changed, hashed, offset, whole: None });
            from.push((stage, range));
            offset += len;
        }
        Ok(Some(PulledPiece { strips, bytes, from }))
    }

    /// Gives memory back whose bytes are packed.
    pub(super) fn give_back(&self, piece: &PulledPiece) {
        for (stage, range) in &piece.from {
            io::give_back(&self.files[*stage], range.clone());
        }
    }
}

/// Strips in the order in which they are pulled: the variable, the strip, its stage and the place of its bytes there.
pub(super) struct PullTurns(VecDeque<(usize, SmallStrip, usize, Range<u64>)>);

impl PullTurns {
    /// The next strips of this many bytes at most, but one at least.
    fn take(&mut self, most: u64) -> Vec<(usize, SmallStrip, usize, Range<u64>)> {
        let (mut taken, mut all) = (Vec::new(), 0u64);
        while let Some((_, strip, ..)) = self.0.front() {
            all += strip.changed.bytes as u64;
            if all > most && !taken.is_empty() {
                break;
            }
            taken.extend(self.0.pop_front());
        }
        taken
    }
}
