//! Writing the pack of a group, alone or together with the other ranks of the group.
//!
//! ```text
//!  member:  large variables ──► pack in a stage ┐
//!           small variables ──► as they are ────┴─► leader: its own large variables ──► the group's pack
//!                                                           stages, frame by frame ───►
//!                                                           small variables of all, packed side by side ──►
//! ```
//! The leader streams its own frames to the store while the members encode theirs. When the pack is published, each
//! member hears where its part lies, so that its next part can hold differences to it.

use super::WriterSettings;
use super::aggregator::{HandedDecision, ResumedFrom};
use super::behind::BehindPut;
use super::group::{GroupMember, PackJob, SealedPack, draft, pack_of, within};
use super::handed::{HandedPut, PullPlan};
use super::image::EntrustedPack;
use super::maker::{EpochBase, PackSource, PartWriter};
use super::seats::GroupSeat;
use super::stage::{SmallOfAll, SplitVariables, StagePut, VariableSides};
use super::team::{Leader, StageEnd, Team};
use crate::array::{Rank, Sequence, VariableKey};
use crate::capture::{Declared, StagedBatch};
use crate::codec::{Codec, Encoding};
use crate::error::{Error, ErrorKind, Result};
use crate::format::{Footer, Frame, Manifest, PackName, RAW, Stats, WriterId, header};
use crate::memory::zeroed;
use crate::merkle::{Hasher, Tree, checksum};
use crate::pack::{JoinedPack, Keeper, PartMaker, PartStarts, moved_to};
use crate::restore::Pack;
use crate::store::Put;
use std::collections::HashMap;
use std::sync::mpsc::sync_channel;
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
    pub(super) pool: &'a rayon::ThreadPool,
}

impl<'a> GroupJob<'a> {
    fn pack(&self, members: &'a [GroupMember]) -> PackJob<'a> {
        PackJob {
            writer: self.writer,
            attempt: self.sequence.0,
            members,
            hasher: self.hasher,
            before: None,
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
    own: PartWriter,
    /// The small variables of all ranks, on the leader.
    small: PartWriter,
    starts: PartStarts,
    /// The parts of the newest joined pack that this rank has made, as they lie there.
    made: MadeParts,
    sides: VariableSides,
    together: u64,
    /// Whether small variables are packed with their rank, as long as the epoch lasts.
    with_rank: Option<bool>,
    /// The trees of the state that was restored, which the leader has not heard of.
    restored: HashMap<String, Tree>,
    /// Where the run goes on from, for an aggregator that has not heard of it.
    pub(super) resumed: Option<ResumedFrom>,
    /// Whether an aggregator has a pack to build on.
    handed: bool,
}

/// Parts of a joined pack; of frames that lie there in another encoding nothing is known.
#[derive(Default)]
struct MadeParts {
    own: Option<Pack>,
    small: Option<Pack>,
}

impl GroupWork {
    pub(super) fn new(
        rank: Rank,
        seat: &GroupSeat,
        team: Team,
        settings: &WriterSettings,
        source: &PackSource,
    ) -> Self {
        let maker = |part| {
            let keeper = Keeper::new(settings.record / part, settings.encoding);
            PartWriter::new(seat.group, keeper, source.clone())
        };
        GroupWork {
            rank,
            own: maker(1),
            small: maker(4),
            team,
            starts: PartStarts::default(),
            made: MadeParts::default(),
            sides: VariableSides::new(settings.together),
            together: settings.together,
            with_rank: None,
            restored: HashMap::new(),
            resumed: None,
            handed: false,
        }
    }

    /// The next pack builds on nothing.
    pub(super) fn begin_epoch(&mut self) {
        self.own.begin_epoch();
        self.small.begin_epoch();
        self.starts.clear();
        (self.made, self.with_rank) = (MadeParts::default(), None);
        (self.sides, self.restored) = (VariableSides::new(self.together), HashMap::new());
        self.handed = false;
        self.resumed.iter_mut().for_each(|resumed| resumed.base = None);
    }

    /// Whether there is a pack to build on.
    pub(super) fn has_base(&self) -> bool {
        self.handed || self.own.writer.has_base()
    }

    /// The name that the pack of a checkpoint would have.
    pub(super) fn name(&self, writer: WriterId, sequence: Sequence) -> PackName {
        self.own.writer.name(writer, sequence.0)
    }

    /// The checkpoint of a pack of this group; see [`draft`].
    pub(super) fn draft(&self, run: &str, sealed: &SealedPack, ranks: u32) -> Manifest {
        draft(run, std::slice::from_ref(&self.own.writer), std::slice::from_ref(sealed), ranks)
    }

    /// Goes on with an epoch that was read: its packs, and the tree of each variable of this rank.
    pub(super) fn resume(&mut self, base: EpochBase, trees: Vec<(String, Tree)>) {
        self.begin_epoch();
        self.starts.resume(base.packs.count());
        let rank = self.rank;
        if !matches!(self.team, Team::Alone) {
            self.restored = trees.iter().cloned().collect();
        }
        match self.team {
            Team::Leader(_) => self.small.resume(base.clone(), [], None),
            Team::Aggregator(_) => return self.own.resume(base, [], None),
            Team::Hander(_) => {
                self.resumed.iter_mut().for_each(|from| from.base = Some(base.manifest.write()));
                self.handed = true;
                return;
            }
            Team::Alone | Team::Member(_) => {}
        }
        let trees = trees.into_iter().map(|(name, tree)| (VariableKey { rank, name }, tree));
        self.own.resume(base, trees, Some(rank));
    }

    /// A checkpoint with this pack exists now.
    pub(super) fn keep(&mut self, sealed: SealedPack) {
        let packs = self.own.writer.with(&sealed);
        let MadeParts { own, small } = std::mem::take(&mut self.made);
        match self.team {
            Team::Alone | Team::Aggregator(_) => self.own.keep(packs, Some(sealed.into_pack())),
            _ => {
                self.small.keep(packs.clone(), small);
                self.own.keep(packs, own);
            }
        }
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
            Team::Aggregator(_) => self.write_pulled(job, put),
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
        let mut joined = JoinedPack::new(&footer, self.own.writer.newest_seal(), &mut self.starts);
        joined.numbers(&footer);
        let frames = footer.frames.clone();
        joined.add(PartMaker::Member(0), footer.clone(), frames)?;
        self.made.own = Some(pack_of(footer));
        for (number, stage) in (1..).zip(stages) {
            add(&mut stats, stage.head.stats);
            let (maker, rank) = (PartMaker::Member(number), stage.head.rank);
            let read = |frame: &Frame| stage.frame(frame);
            let at = append(&mut joined, maker, &stage.footer, &read, put)?;
            leader.places(rank, at);
            let (variables, bytes) = stage.small()?;
            of_all.add(rank, variables, bytes);
        }
        let with_rank = match (self.with_rank, job.settings.encoding) {
            (Some(known), _) => known,
            (None, Encoding::Best(_)) => of_all.stays_with_rank()?,
            (None, _) => false,
        };
        self.with_rank = Some(with_rank);
        for (key, boughs) in of_all.sort(with_rank) {
            self.small.writer.keeper.trees.insert(key, Tree::build(boughs));
        }
        let members = of_all.members(with_rank);
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
        let at = append(&mut joined, PartMaker::Leader, &footer, &read, put)?;
        self.made.small = at.map(|at| part_at(footer, at));
        let footer = joined.finish();
        let (bytes, seal) = within(Some(job.pool), || footer.write());
        put.append(&bytes)?;
        Ok(SealedPack { footer, seal, stats })
    }

    /// As an aggregator: pulls what its ranks have handed over, and packs it by meaning. Fetching, encoding and writing go
    /// on at the same time.
    fn write_pulled(&mut self, job: &GroupJob, put: &mut dyn Put) -> Result<SealedPack> {
        let Team::Aggregator(aggregator) = &mut self.team else {
            return Err(Error::new(ErrorKind::Io, "only an aggregator pulls"));
        };
        let stages = std::mem::take(&mut aggregator.stages);
        let (budget, count) = (PullBudget::of(aggregator.budget), aggregator.count.clone());
        let blocked = stages.iter().map(|stage| stage.head.stats.blocked_ns).max();
        let mut plan = PullPlan::new(stages);
        for (key, boughs) in plan.known() {
            self.own.writer.keeper.trees.insert(key, Tree::build(boughs));
        }
        let (members, mut turns) = (plan.members(), plan.strips());
        let mut sealed = std::thread::scope(|scope| {
            let mut behind = BehindPut::start(scope, put, budget.waiting, count.clone())?;
            let (sender, pieces) = sync_channel(0);
            let (plan, counted) = (&plan, &count);
            let fetch = move || loop {
                let piece = plan.fetch(&mut turns, budget.piece).transpose();
                let Some(piece) = piece else { return };
                // While a piece is packed, what stood there before and what it is encoded to are held, too.
                let held = piece.as_ref().map_or(0, |piece| 4 * piece.bytes.len() as u64);
                counted.add(held);
                if sender.send(piece).is_err() {
                    return counted.remove(held);
                }
            };
            let thread = std::thread::Builder::new().name("treering-fetch".into());
            let thread = thread.spawn_scoped(scope, fetch);
            thread.map_err(|e| Error::io("cannot start the threads of a run", e))?;
            let sealed = self.own.write(job.settings, job.pack(&members), &mut behind, |take| {
                for piece in pieces {
                    let piece = piece?;
                    let taken = take(&piece.strips, &piece.bytes);
                    count.remove(4 * piece.bytes.len() as u64);
                    taken?;
                    plan.give_back(&piece);
                }
                Ok(())
            });
            behind.end().and(sealed)
        })?;
        sealed.stats.blocked_ns = blocked.unwrap_or(0);
        Ok(sealed)
    }

    /// As a compute rank with an aggregator: copies what changed, hands it over and waits until it is published; what a
    /// restore of this part costs.
    pub(super) fn hand_over(
        &mut self,
        job: &GroupJob,
        decision: HandedDecision,
        feed: &mut BatchFeed,
    ) -> Result<u64> {
        let mut put = HandedPut::new(job.declared, &self.restored)?;
        let blocked = feed(&mut |batch| put.take(batch))?;
        let (stage, head) = put.close(job.sequence, self.rank, blocked)?;
        let Team::Hander(hander) = &self.team else {
            return Err(Error::new(ErrorKind::Io, "there is no aggregator to hand anything to"));
        };
        let cost = hander.publish(decision.from(self.resumed.clone()), &stage, head)?;
        (self.handed, self.resumed) = (true, None);
        self.restored.clear();
        Ok(cost)
    }

    /// The leader, if it has a deputy.
    pub(super) fn leader_with_deputy(&self) -> Option<&Leader> {
        match &self.team {
            Team::Leader(leader) if leader.has_deputy() => Some(leader),
            _ => None,
        }
    }

    /// As a member: makes the stage, hands it over and waits until it is published, or until it is left to this rank to
    /// do that. Returns the bytes that were packed, and those of small variables.
    pub(super) fn write_stage(
        &mut self,
        job: &GroupJob,
        feed: &mut BatchFeed,
    ) -> Result<(SealedPack, u64, Option<EntrustedPack>)> {
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
        match member.publish(sequence, &stage, head)? {
            StageEnd::Published(at) => {
                self.made.own = at.map(|at| part_at(sealed.footer.clone(), at));
                Ok((sealed, small_bytes, None))
            }
            StageEnd::Left(pack) => Ok((sealed, small_bytes, Some(*pack))),
        }
    }
}

/// A part of a pack, whose frames begin at a position of its file.
fn part_at(mut part: Footer, at: u64) -> Pack {
    moved_to(&mut part, at);
    pack_of(part)
}

/// Division of an aggregator's memory.
struct PullBudget {
    /// The bytes that are fetched at a time.
    piece: u64,
    /// The bytes that wait to be written.
    waiting: u64,
}

impl PullBudget {
    /// Two pieces are there at a time, one that was fetched and one that is packed, and each counts four times.
    fn of(budget: u64) -> PullBudget {
        PullBudget { piece: budget / 12, waiting: budget / 6 }
    }
}

fn add(all: &mut Stats, other: Stats) {
    all.same_bytes += other.same_bytes;
    all.duplicate_bytes += other.duplicate_bytes;
    all.new_bytes += other.new_bytes;
    all.blocked_ns = all.blocked_ns.max(other.blocked_ns);
}

/// Appends the frames of a part to the file, and the part to the pack that is being joined. Where its frames begin, if
/// they lie there as they were.
fn append(
    joined: &mut JoinedPack,
    maker: PartMaker,
    part: &Footer,
    read: &dyn Fn(&Frame) -> Result<Vec<u8>>,
    put: &mut dyn Put,
) -> Result<Option<u64>> {
    let numbers = joined.numbers(part);
    let mut at = Some(joined.end());
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
                at = None;
                (raw, Frame { codec: RAW, encoded: frame.len, checksum, ..*frame })
            }
        };
        put.append(&bytes)?;
        frames.push(frame);
    }
    joined.add(maker, part.clone(), frames)?;
    Ok(at)
}
