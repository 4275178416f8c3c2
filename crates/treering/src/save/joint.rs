//! Writing the pack of a group, alone or together with the other ranks of the group.
//!
//! ```text
//!  member:  large variables ──► pack in a stage ┐
//!           small variables ──► as they are ────┴─► leader: its own large variables ──► the group's pack
//!                                                           stages, frame by frame ───►
//!                                                           small variables of all, packed side by side ──►
//! ```
//! The leader streams its own frames to the store while the members encode theirs.

use super::WriterSettings;
use super::group::{GroupMember, GroupWriter, PackJob, SealedPack};
use super::seats::GroupSeat;
use super::stage::{SmallOfAll, SplitVariables, StagePut, VariableSides};
use super::team::Team;
use crate::array::{Rank, Sequence, VariableKey};
use crate::capture::{Declared, StagedBatch};
use crate::codec::Codec;
use crate::error::{Error, ErrorKind, Result};
use crate::format::{Footer, Frame, Group, RAW, Stats, WriterId, header};
use crate::memory::zeroed;
use crate::merkle::{Hasher, Tree, checksum};
use crate::pack::{Before, JoinedPack, Keeper, PartMaker, PartStarts};
use crate::store::Put;
use std::collections::HashMap;
use std::time::Duration;

/// Takes one batch.
pub(super) type TakeBatch<'t> = dyn FnMut(StagedBatch) -> Result<()> + 't;

/// Hands over all batches of a save; how long the program was held up.
pub(super) type BatchFeed<'f> = dyn FnMut(&mut TakeBatch) -> Result<Duration> + 'f;

/// One checkpoint to be written.
pub(super) struct GroupJob<'a> {
    pub(super) settings: &'a WriterSettings,
    pub(super) writer: WriterId,
    pub(super) sequence: Sequence,
    pub(super) declared: &'a [Declared],
    pub(super) hasher: &'a Hasher,
    pub(super) before: Option<&'a dyn Before>,
    pub(super) pool: &'a rayon::ThreadPool,
}

impl<'a> GroupJob<'a> {
    fn pack(&self, members: &'a [GroupMember]) -> PackJob<'a> {
        PackJob {
            writer: self.writer,
            attempt: self.sequence.0,
            members,
            hasher: self.hasher,
            before: self.before,
            turns: false,
            pool: Some(self.pool),
        }
    }
}

/// A rank's share of its group's packs.
pub(super) struct GroupWork {
    rank: Rank,
    pub(super) team: Team,
    /// Its own variables, or, in a team, the large ones.
    pub(super) own: GroupWriter,
    /// The small variables of all ranks, on the leader.
    small: GroupWriter,
    starts: PartStarts,
    sides: VariableSides,
    /// The trees of the state that was restored, which the leader has not heard of.
    restored: HashMap<String, Tree>,
}

impl GroupWork {
    pub(super) fn new(rank: Rank, seat: &GroupSeat, team: Team, settings: &WriterSettings) -> Self {
        let keeper = |part| Keeper::new(settings.record / part, settings.encoding);
        GroupWork {
            rank,
            own: GroupWriter::new(seat.group, keeper(1)),
            small: GroupWriter::new(seat.group, keeper(4)),
            team,
            starts: PartStarts::default(),
            sides: VariableSides::default(),
            restored: HashMap::new(),
        }
    }

    /// The next pack builds on nothing.
    pub(super) fn begin_epoch(&mut self) {
        self.own.begin_epoch();
        self.small.begin_epoch();
        self.starts.clear();
        (self.sides, self.restored) = (VariableSides::default(), HashMap::new());
    }

    /// Goes on with an epoch that was read: its packs, and the tree of each variable of this rank.
    pub(super) fn resume(&mut self, packs: Group, trees: Vec<(String, Tree)>) {
        self.begin_epoch();
        if !matches!(self.team, Team::Alone) {
            self.restored = trees.iter().cloned().collect();
        }
        let rank = self.rank;
        let trees = trees.into_iter().map(|(name, tree)| (VariableKey { rank, name }, tree));
        self.small.resume(packs.clone(), []);
        self.own.resume(packs, trees);
    }

    /// A checkpoint with these packs exists now.
    pub(super) fn keep(&mut self, packs: Group) {
        self.small.keep(packs.clone());
        self.own.keep(packs);
        self.restored.clear();
    }

    /// Writes the group's pack to `put`, which is left to be finished; how long the program was held up.
    pub(super) fn write(
        &mut self,
        job: &GroupJob,
        put: &mut dyn Put,
        feed: &mut BatchFeed,
    ) -> Result<SealedPack> {
        match self.team {
            Team::Alone => self.write_alone(job, put, feed),
            _ => self.write_joined(job, put, feed),
        }
    }

    fn write_alone(
        &mut self,
        job: &GroupJob,
        put: &mut dyn Put,
        feed: &mut BatchFeed,
    ) -> Result<SealedPack> {
        let member = |d: &Declared| GroupMember::own(self.rank, &d.description, d.rounded);
        let members: Vec<GroupMember> = job.declared.iter().map(member).collect();
        let mut blocked = Duration::ZERO;
        let mut sealed = self.own.write(job.settings, job.pack(&members), put, |take| {
            blocked = feed(&mut |batch| take(&batch.strips, batch.staged.bytes()))?;
            Ok(())
        })?;
        sealed.stats.blocked_ns = blocked.as_nanos() as u64;
        Ok(sealed)
    }

    /// As the leader: its own large variables, the stages of the members, the small variables of all.
    fn write_joined(
        &mut self,
        job: &GroupJob,
        put: &mut dyn Put,
        feed: &mut BatchFeed,
    ) -> Result<SealedPack> {
        put.append(&header())?;
        let mut split =
            SplitVariables::new(self.rank, job.declared, &mut self.sides, &self.restored);
        let (sides, large, small) = split.parts();
        let mut blocked = Duration::ZERO;
        let written = self.own.write_frames(job.settings, job.pack(large), put, |take| {
            blocked = feed(&mut |batch| SplitVariables::take(sides, small, batch, take))?;
            Ok(())
        });
        let (footer, mut stats) = written?;
        stats.blocked_ns = blocked.as_nanos() as u64;
        let mut of_all = SmallOfAll::default();
        let (variables, bytes) = split.small.into_bytes();
        of_all.add(self.rank, variables, bytes);
        let Team::Leader(leader) = &mut self.team else {
            return Err(Error::new(ErrorKind::Io, "only the leader of a group writes its pack"));
        };
        let stages = leader.collect(job.sequence)?;
        let mut joined = JoinedPack::new(&footer, self.own.newest_seal(), &mut self.starts);
        joined.numbers(&footer);
        let frames = footer.frames.clone();
        joined.add(PartMaker::Member(0), footer, frames)?;
        for (number, stage) in (1..).zip(stages) {
            add(&mut stats, stage.head.stats);
            let (maker, rank) = (PartMaker::Member(number), stage.head.rank);
            append(&mut joined, maker, &stage.footer, &|frame| stage.frame(frame), put)?;
            let (variables, bytes) = stage.small()?;
            of_all.add(rank, variables, bytes);
        }
        for (key, boughs) in of_all.sort() {
            self.small.keeper.trees.insert(key, Tree::build(boughs));
        }
        let members = of_all.members();
        let mut memory = StagePut::new()?;
        memory.append(&header())?;
        let (footer, of_small) =
            self.small.write_frames(job.settings, job.pack(&members), &mut memory, |take| {
                of_all.feed(take)
            })?;
        add(&mut stats, of_small);
        let read = |frame: &Frame| {
            let mut bytes = zeroed(frame.encoded)?;
            memory.read_back(frame.position, &mut bytes)?;
            Ok(bytes)
        };
        append(&mut joined, PartMaker::Leader, &footer, &read, put)?;
        let footer = joined.finish();
        let (bytes, seal) = footer.write();
        put.append(&bytes)?;
        Ok(SealedPack { footer, seal, stats })
    }

    /// As a member: makes the stage, hands it over and waits until it is published; what a restore of this part costs.
    pub(super) fn write_stage(
        &mut self,
        job: &GroupJob,
        feed: &mut BatchFeed,
    ) -> Result<(SealedPack, u64)> {
        let mut put = StagePut::new()?;
        let mut split =
            SplitVariables::new(self.rank, job.declared, &mut self.sides, &self.restored);
        let (sides, large, small) = split.parts();
        let mut blocked = Duration::ZERO;
        let mut sealed = self.own.write(job.settings, job.pack(large), &mut put, |take| {
            blocked = feed(&mut |batch| SplitVariables::take(sides, small, batch, take))?;
            Ok(())
        })?;
        sealed.stats.blocked_ns = blocked.as_nanos() as u64;
        let (sequence, small_bytes) = (job.sequence, split.small.len());
        let (stage, head) =
            put.close(sequence, self.rank, sealed.seal, sealed.stats, split.small)?;
        let Team::Member(member) = &self.team else {
            return Err(Error::new(ErrorKind::Io, "only a member of a group hands a stage over"));
        };
        member.publish(sequence, &stage, head)?;
        self.keep(self.own.with(&sealed));
        Ok((sealed, small_bytes))
    }
}

fn add(all: &mut Stats, other: Stats) {
    all.same_bytes += other.same_bytes;
    all.moved_bytes += other.moved_bytes;
    all.new_bytes += other.new_bytes;
    all.blocked_ns = all.blocked_ns.max(other.blocked_ns);
}

/// Appends the frames of a part to the file, and the part to the pack that is being joined.
fn append(
    joined: &mut JoinedPack,
    maker: PartMaker,
    part: &Footer,
    read: &dyn Fn(&Frame) -> Result<Vec<u8>>,
    put: &mut dyn Put,
) -> Result<()> {
    let numbers = joined.numbers(part);
    let mut frames = Vec::with_capacity(part.frames.len());
    for frame in &part.frames {
        let number = frame.chain().and_then(|chain| numbers.get(chain).copied().flatten());
        let bytes = read(frame)?;
        let (bytes, frame) = match (frame.chain(), number) {
            (None, _) => (bytes, *frame),
            (Some(_), Some(codec)) => (bytes, Frame { codec, ..*frame }),
            // So many chains come together that this one gets no number: its frames are stored as they are.
            (Some(_), None) => {
                let mut raw = zeroed(frame.len)?;
                part.chain(frame)?.decode(&bytes, &mut raw)?;
                let checksum = checksum(&raw);
                (raw, Frame { codec: RAW, encoded: frame.len, checksum, ..*frame })
            }
        };
        put.append(&bytes)?;
        frames.push(frame);
    }
    joined.add(maker, part.clone(), frames)
}
