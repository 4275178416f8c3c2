//! The log of a run: openings, manifests and marks, one file for each sequence number.
//!
//! A writer begins with an opening and commits without gaps from there on; a number whose save failed is
//! filled by a mark. Two writers therefore always meet at a number, and put-if-absent decides between
//! them. Every entry names its writer, so an entry of somebody else's opening is never taken for one of
//! this run's.

use super::branch::MAX_LEVEL;
use super::bytes::{Reader, Writer};
use super::labels::{parse_labels, write_labels};
use super::names::{PackName, WriterId, check_run_name};
use super::pack::Seal;
use crate::array::{GroupId, Labels, Sequence, Step};
use crate::error::{Error, ErrorKind, Result};
use crate::lineage::MAX_PACKS;
use crate::merkle::Digest;

const OPENING: &[u8; 8] = b"TREEOPEN";
const MANIFEST: &[u8; 8] = b"TREERING";
const MARK: &[u8; 8] = b"TREEMARK";

/// Kinds of optional items at the end of a manifest, each once and in this order.
const LABELS: u8 = 1;
const SOURCE_BYTES: u8 = 2;

/// The number of the hash of prints: xxh3-64 with a secret derived from the seed.
const XXH3: u8 = 1;

/// A file of the log.
#[derive(Clone, Debug, PartialEq)]
pub enum LogEntry {
    /// A writer has taken the run.
    Opening(Opening),
    /// A checkpoint is complete.
    Manifest(Box<Manifest>),
    /// A writer has used this number for no checkpoint.
    Mark(Mark),
}

impl LogEntry {
    /// Reads any kind.
    pub fn parse(bytes: &[u8]) -> Result<LogEntry> {
        if bytes.starts_with(OPENING) {
            return Opening::parse(bytes).map(LogEntry::Opening);
        }
        if bytes.starts_with(MARK) {
            return Mark::parse(bytes).map(LogEntry::Mark);
        }
        Manifest::parse(bytes).map(|m| LogEntry::Manifest(Box::new(m)))
    }

    /// The manifest, if it is one.
    pub fn into_manifest(self) -> Option<Manifest> {
        match self {
            LogEntry::Manifest(manifest) => Some(*manifest),
            _ => None,
        }
    }

    /// Run, sequence number and writer.
    pub(crate) fn head(&self) -> (&str, Sequence, WriterId) {
        match self {
            LogEntry::Opening(o) => (&o.run, o.writer.opening, o.writer),
            LogEntry::Manifest(m) => (&m.run, m.sequence, m.writer),
            LogEntry::Mark(m) => (&m.run, m.sequence, m.writer),
        }
    }

    /// Whether a file begins as one that is no manifest does, whatever follows.
    pub(crate) fn is_surely_no_manifest(bytes: &[u8]) -> bool {
        bytes.starts_with(OPENING) || bytes.starts_with(MARK)
    }
}

/// A writer has taken the run. Earlier writers find their next sequence number used.
#[derive(Clone, Debug, PartialEq)]
pub struct Opening {
    /// The run.
    pub run: String,
    /// The writer, with the sequence number of this entry.
    pub writer: WriterId,
    /// Milliseconds since 1970.
    pub time: u64,
    /// Host and process, for people.
    pub who: String,
}

impl Opening {
    /// Whether a file begins as an opening does, whatever follows.
    pub(crate) fn is_magic(bytes: &[u8]) -> bool {
        bytes.starts_with(OPENING)
    }

    /// The bytes of the file.
    pub fn write(&self) -> Vec<u8> {
        let mut out = Writer::file(OPENING);
        out.string(&self.run);
        write_writer(&mut out, self.writer);
        out.int(self.time);
        out.string(&self.who);
        out.sealed()
    }

    /// Reads the bytes of the file.
    pub fn parse(bytes: &[u8]) -> Result<Self> {
        let mut reader = Reader::file(bytes, OPENING, "opening")?;
        let opening = Opening {
            run: reader.string()?,
            writer: parse_writer(&mut reader)?,
            time: reader.int()?,
            who: reader.string()?,
        };
        reader.end()?;
        Ok(opening)
    }
}

/// A number of the log that holds no checkpoint, because its save failed.
#[derive(Clone, Debug, PartialEq)]
pub struct Mark {
    /// The run.
    pub run: String,
    /// The sequence number.
    pub sequence: Sequence,
    /// The writer that used it.
    pub writer: WriterId,
}

impl Mark {
    /// The bytes of the file.
    pub fn write(&self) -> Vec<u8> {
        let mut out = Writer::file(MARK);
        out.string(&self.run);
        out.int(self.sequence.0);
        write_writer(&mut out, self.writer);
        out.sealed()
    }

    /// Reads the bytes of the file.
    pub fn parse(bytes: &[u8]) -> Result<Self> {
        let mut reader = Reader::file(bytes, MARK, "mark")?;
        let mark = Mark {
            run: reader.string()?,
            sequence: Sequence(reader.int()?),
            writer: parse_writer(&mut reader)?,
        };
        reader.end()?;
        Ok(mark)
    }
}

/// The checkpoint that another one continues: its run and its number.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(feature = "tools", derive(serde::Serialize))]
pub struct Origin {
    /// The run, where it is another one (a branch).
    pub run: Option<String>,
    /// The sequence number there.
    pub sequence: Sequence,
}

/// Packs of one writer with running numbers one after another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PackRange {
    /// The run that wrote them.
    pub run: String,
    /// The writer.
    pub writer: WriterId,
    /// The first running number.
    pub first: u64,
    /// The number of packs.
    pub count: u64,
}

/// The packs of one group of ranks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// All packs of the epoch up to this checkpoint, oldest first.
    pub packs: Vec<PackRange>,
    /// Vouches for the newest, and through it for all.
    pub seal: Seal,
}

impl Group {
    /// The number of packs.
    pub fn count(&self) -> u64 {
        self.packs.iter().map(|r| r.count).sum()
    }

    /// Run and name of every pack, in the order of their ordinals.
    pub fn names(&self, group: GroupId) -> impl Iterator<Item = (&str, PackName)> {
        self.packs.iter().flat_map(move |range| {
            (0..range.count).map(move |at| {
                let name = PackName { writer: range.writer, attempt: range.first + at, group };
                (range.run.as_str(), name)
            })
        })
    }

    /// Adds a pack behind the others.
    pub fn push(&mut self, run: &str, name: PackName, seal: Seal) {
        self.seal = seal;
        match self.packs.last_mut() {
            Some(last)
                if last.run == run
                    && last.writer == name.writer
                    && last.first + last.count == name.attempt =>
            {
                last.count += 1;
            }
            _ => self.packs.push(PackRange {
                run: run.to_string(),
                writer: name.writer,
                first: name.attempt,
                count: 1,
            }),
        }
    }
}

/// The groups of ranks of a checkpoint: in its manifest, or, if these are too many, in branches below it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Groups {
    /// All of them, in the order of their numbers.
    Here(Vec<Group>),
    /// The branches that hold them.
    Below(Branches),
}

impl Groups {
    /// The number of groups.
    pub fn count(&self) -> u64 {
        match self {
            Groups::Here(groups) => groups.len() as u64,
            Groups::Below(below) => below.refs.iter().map(|child| u64::from(child.groups)).sum(),
        }
    }

    /// All of them, if they are here.
    pub fn here(&self) -> Option<&[Group]> {
        match self {
            Groups::Here(groups) => Some(groups),
            Groups::Below(_) => None,
        }
    }
}

impl FromIterator<Group> for Groups {
    fn from_iter<I: IntoIterator<Item = Group>>(groups: I) -> Self {
        Groups::Here(groups.into_iter().collect())
    }
}

/// The branches right below a manifest or another branch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Branches {
    /// Their level: those of level 1 hold groups.
    pub level: u8,
    /// The index of the first among all branches of that level.
    pub first: u32,
    /// The branches, one after another.
    pub refs: Vec<BranchRef>,
}

/// Reference to a branch: its digest and its totals.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BranchRef {
    /// The digest of its bytes.
    pub digest: Digest,
    /// The number of groups in it and below it.
    pub groups: u32,
    /// Bytes that the checkpoint has added to its run there: this branch, those below it, and packs.
    pub added: u64,
}

/// Bytes of a checkpoint by kind, and the time for which the program was blocked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "tools", derive(serde::Serialize))]
pub struct Stats {
    /// Bytes that are the same as in the checkpoint before.
    pub same_bytes: u64,
    /// Bytes that were stored already, elsewhere.
    pub duplicate_bytes: u64,
    /// Bytes that are new.
    pub new_bytes: u64,
    /// Time for which the program was blocked, in nanoseconds.
    pub blocked_ns: u64,
}

/// The head of a complete checkpoint. The variables of each group are described in its newest pack. Returned by
/// [`Checkpoint::manifest`](crate::Checkpoint::manifest).
///
/// ```
/// use treering::{Library, Options, Run, Step, Variable};
/// # let folder = tempfile::tempdir().unwrap();
/// # let store = folder.path().join("store");
/// let mut run = Run::open(Options::directory(&store, "rod"))?;
/// run.checkpoint(7, &[Variable::new("heat", &[293.15f64; 100])])?;
/// run.finish()?;
/// let checkpoint = Library::open(&store)?.checkpoint("rod", None)?;
/// let manifest = checkpoint.manifest();
/// assert_eq!((manifest.step, manifest.ranks, manifest.full_bytes), (Step(7), 1, 800));
/// # Ok::<(), treering::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Manifest {
    /// The run.
    pub run: String,
    /// The sequence number.
    pub sequence: Sequence,
    /// The writer that committed it; the default for the first entry of a branch.
    pub writer: WriterId,
    /// The program's own iteration number.
    pub step: Step,
    /// Milliseconds since 1970.
    pub time: u64,
    /// The checkpoint it continues.
    pub parent: Option<Origin>,
    /// The first checkpoint of its epoch: its sequence number, and its run if that is another one.
    pub epoch: Origin,
    /// The seed of the prints.
    pub seed: u64,
    /// The number of ranks.
    pub ranks: u32,
    /// The number of variables of all ranks, trees and records of files left out.
    pub variables: u64,
    /// The number of variables whose values are kept within a bound, not exactly.
    pub rounded: u64,
    /// The number of files of other programs it holds.
    pub files: u64,
    /// The bytes of all variables: the size of a full copy.
    pub full_bytes: u64,
    /// Bytes that are the same, duplicate and new.
    pub stats: Stats,
    /// The groups of ranks and their packs.
    pub groups: Groups,
    /// Texts about the checkpoint by their keys.
    pub labels: Labels,
    /// The bytes as the program has them: the files as they were, or the arrays without trees.
    pub source_bytes: u64,
}

impl Manifest {
    /// The bytes of the file.
    pub fn write(&self) -> Vec<u8> {
        let mut out = Writer::file(MANIFEST);
        self.write_body(&mut out);
        out.sealed()
    }

    pub(super) fn write_body(&self, out: &mut Writer) {
        out.string(&self.run);
        out.int(self.sequence.0);
        write_writer(out, self.writer);
        out.int(self.step.0);
        out.int(self.time);
        out.byte(u8::from(self.parent.is_some()));
        if let Some(parent) = &self.parent {
            write_origin(out, parent);
        }
        write_origin(out, &self.epoch);
        out.byte(XXH3);
        out.u64(self.seed);
        out.int(u64::from(self.ranks));
        let stats = &self.stats;
        let numbers = [self.variables, self.rounded, self.files, self.full_bytes];
        let shares = [stats.same_bytes, stats.duplicate_bytes, stats.new_bytes, stats.blocked_ns];
        numbers.iter().chain(&shares).for_each(|number| out.int(*number));
        match &self.groups {
            Groups::Here(groups) => {
                out.int(groups.len() as u64);
                groups.iter().for_each(|group| self.write_group(out, group));
                if groups.is_empty() {
                    out.int(0);
                }
            }
            // No group is here: the level of the branches follows.
            Groups::Below(below) => {
                out.int(0);
                write_branches(out, below);
            }
        }
        if !self.labels.is_empty() {
            out.byte(LABELS);
            write_labels(out, &self.labels);
        }
        if self.source_bytes != self.full_bytes {
            out.byte(SOURCE_BYTES);
            out.int(self.source_bytes);
        }
    }

    /// Bytes that the checkpoint has added to its run: this file and everything below it.
    pub fn stored_bytes(&self) -> u64 {
        self.added_below().saturating_add(self.write().len() as u64)
    }

    /// Bytes that the checkpoint has added to its run beside this file: its own packs, unless it only shares another
    /// run's, and branches.
    pub(crate) fn added_below(&self) -> u64 {
        match &self.groups {
            Groups::Here(groups) => {
                let is_own = |group: &&Group| group.packs.last().is_some_and(|p| p.run == self.run);
                groups
                    .iter()
                    .filter(is_own)
                    .fold(0, |all, group| group.seal.size.saturating_add(all))
            }
            Groups::Below(below) => {
                below.refs.iter().fold(0, |all: u64, child| all.saturating_add(child.added))
            }
        }
    }

    fn write_group(&self, out: &mut Writer, group: &Group) {
        out.int(group.seal.size);
        out.int(group.seal.footer);
        out.digest(group.seal.digest);
        out.int(group.packs.len() as u64);
        for range in &group.packs {
            // Its own name is the common case and takes one byte.
            out.string(if range.run == self.run { "" } else { &range.run });
            write_writer(out, range.writer);
            out.int(range.first);
            out.int(range.count);
        }
    }

    /// Reads the bytes of the file.
    pub fn parse(bytes: &[u8]) -> Result<Self> {
        let mut reader = Reader::file(bytes, MANIFEST, "manifest")?;
        let manifest = Self::parse_body(&mut reader)?;
        reader.end()?;
        Ok(manifest)
    }

    pub(super) fn parse_body(reader: &mut Reader) -> Result<Self> {
        let run = reader.string()?;
        check_run_name(&run)
            .map_err(|_| Error::damaged("a manifest has an impossible run name"))?;
        let mut manifest = Manifest {
            sequence: Sequence(reader.int()?),
            writer: parse_writer(reader)?,
            step: Step(reader.int()?),
            time: reader.int()?,
            parent: match reader.byte()? {
                0 => None,
                _ => Some(parse_origin(reader)?),
            },
            epoch: parse_origin(reader)?,
            seed: parse_seed(reader)?,
            ranks: reader.u32()?,
            variables: reader.int()?,
            rounded: reader.int()?,
            files: reader.int()?,
            full_bytes: reader.int()?,
            stats: Stats {
                same_bytes: reader.int()?,
                duplicate_bytes: reader.int()?,
                new_bytes: reader.int()?,
                blocked_ns: reader.int()?,
            },
            run,
            groups: Groups::Here(Vec::new()),
            labels: Labels::default(),
            source_bytes: 0,
        };
        let count = reader.count()?;
        manifest.groups = match count {
            0 => parse_branches(reader)?.map_or(Groups::Here(Vec::new()), Groups::Below),
            _ => (0..count)
                .map(|_| parse_group(reader, &manifest.run))
                .collect::<Result<Groups>>()?,
        };
        manifest.source_bytes = manifest.full_bytes;
        manifest.parse_end(reader)?;
        Ok(manifest)
    }

    /// Reads what may stand behind the groups.
    fn parse_end(&mut self, reader: &mut Reader) -> Result<()> {
        let mut last = 0;
        while !reader.is_empty() {
            let kind = reader.byte()?;
            if kind <= last {
                return Err(Error::damaged("corrupt manifest: invalid end"));
            }
            match kind {
                LABELS => self.labels = parse_labels(reader)?,
                SOURCE_BYTES => self.source_bytes = reader.int()?,
                _ => {
                    let what = format!("a manifest has a part of kind {kind}, which is not known");
                    return Err(Error::new(ErrorKind::Mismatch, what)
                        .hint("use a newer release of treering"));
                }
            }
            last = kind;
        }
        Ok(())
    }
}

fn write_branches(out: &mut Writer, below: &Branches) {
    out.int(u64::from(below.level));
    out.int(u64::from(below.first));
    out.int(below.refs.len() as u64);
    for child in &below.refs {
        out.digest(child.digest);
        out.int(u64::from(child.groups));
        out.int(child.added);
    }
}

/// The branches below, if there are any.
fn parse_branches(reader: &mut Reader) -> Result<Option<Branches>> {
    let wrong = || Error::damaged("corrupt list of branches");
    let level = match reader.int()? {
        0 => return Ok(None),
        level => u8::try_from(level).ok().filter(|level| *level < MAX_LEVEL).ok_or_else(wrong)?,
    };
    let first = reader.u32()?;
    let count = reader.count()?;
    let mut refs = Vec::with_capacity(count.min(1024));
    let mut groups = 0u32;
    for _ in 0..count {
        let child =
            BranchRef { digest: reader.digest()?, groups: reader.u32()?, added: reader.int()? };
        groups = groups.checked_add(child.groups).ok_or_else(wrong)?;
        if child.groups == 0 {
            return Err(wrong());
        }
        refs.push(child);
    }
    let fits = u32::try_from(count).is_ok_and(|count| first.checked_add(count).is_some());
    match fits && count > 0 {
        true => Ok(Some(Branches { level, first, refs })),
        false => Err(wrong()),
    }
}

fn parse_seed(reader: &mut Reader) -> Result<u64> {
    match reader.byte()? {
        XXH3 => reader.u64(),
        hash => Err(Error::new(
            ErrorKind::Mismatch,
            format!("a checkpoint was made with hash {hash}, which this release does not know"),
        )
        .hint("use a newer release of treering")),
    }
}

fn write_writer(out: &mut Writer, writer: WriterId) {
    out.int(writer.opening.0);
    out.u64(writer.nonce);
}

fn parse_writer(reader: &mut Reader) -> Result<WriterId> {
    Ok(WriterId { opening: Sequence(reader.int()?), nonce: reader.u64()? })
}

fn write_origin(out: &mut Writer, origin: &Origin) {
    out.string(origin.run.as_deref().unwrap_or(""));
    out.int(origin.sequence.0);
}

fn parse_origin(reader: &mut Reader) -> Result<Origin> {
    let run = reader.string()?;
    Ok(Origin { run: (!run.is_empty()).then_some(run), sequence: Sequence(reader.int()?) })
}

fn parse_group(reader: &mut Reader, own: &str) -> Result<Group> {
    let wrong = || Error::damaged("corrupt manifest: invalid list of packs");
    let seal = Seal { size: reader.int()?, footer: reader.int()?, digest: reader.digest()? };
    let ranges = reader.count()?;
    let mut packs = Vec::with_capacity(ranges);
    let mut total = 0u64;
    for _ in 0..ranges {
        let mut run = reader.string()?;
        match run.is_empty() {
            true => run = own.to_string(),
            false => check_run_name(&run).map_err(|_| wrong())?,
        }
        let range = PackRange {
            run,
            writer: parse_writer(reader)?,
            first: reader.int()?,
            count: reader.int()?,
        };
        total = total.checked_add(range.count).ok_or_else(wrong)?;
        if range.first.checked_add(range.count).is_none() || range.count == 0 {
            return Err(wrong());
        }
        packs.push(range);
    }
    if total == 0 || total > u64::from(MAX_PACKS) {
        return Err(wrong());
    }
    Ok(Group { packs, seal })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const WRITER: WriterId = WriterId { opening: Sequence(4), nonce: 0x0123_4567_89ab_cdef };

    fn sample() -> Manifest {
        let mut group = Group {
            packs: Vec::new(),
            seal: Seal { size: 0, footer: 0, digest: Digest::default() },
        };
        let seal = Seal { size: 4096, footer: 99, digest: Digest([5, 6]) };
        let other = WriterId { opening: Sequence(1), nonce: 7 };
        for (run, writer, attempt) in
            [("b", other, 0), ("b", other, 1), ("a", WRITER, 0), ("a", WRITER, 2)]
        {
            group.push(run, PackName { writer, attempt, group: GroupId(0) }, seal);
        }
        Manifest {
            run: "a".into(),
            sequence: Sequence(7),
            writer: WRITER,
            step: Step(100),
            time: 1_700_000_000_000,
            parent: Some(Origin { run: Some("b".into()), sequence: Sequence(3) }),
            epoch: Origin { run: Some("b".into()), sequence: Sequence(2) },
            seed: 42,
            ranks: 2,
            variables: 3,
            rounded: 2,
            files: 1,
            full_bytes: 12345,
            stats: Stats { same_bytes: 1, duplicate_bytes: 2, new_bytes: 3, blocked_ns: 4 },
            groups: Groups::Here(vec![group]),
            labels: [("git", "4542149"), ("grid", "64×64")].into_iter().collect(),
            source_bytes: 999,
        }
    }

    fn returns(entry: &LogEntry, bytes: &[u8]) {
        assert_eq!(LogEntry::parse(bytes).unwrap(), *entry);
        for at in 0..bytes.len() {
            for bit in 0..8 {
                let mut bad = bytes.to_vec();
                bad[at] ^= 1 << bit;
                assert!(LogEntry::parse(&bad).is_err(), "byte {at}");
            }
            assert!(LogEntry::parse(&bytes[..at]).is_err());
        }
    }

    #[test]
    fn entries_return_and_every_flipped_byte_is_seen() {
        let manifest = sample();
        let group = &manifest.groups.here().unwrap()[0];
        assert_eq!(group.packs.len(), 3);
        assert_eq!(group.names(GroupId(0)).count(), 4);
        returns(&LogEntry::Manifest(Box::new(manifest.clone())), &manifest.write());
        let plain = Manifest { labels: Labels::default(), source_bytes: 12345, ..manifest.clone() };
        returns(&LogEntry::Manifest(Box::new(plain.clone())), &plain.write());
        let child = BranchRef { digest: Digest([7, 8]), groups: 64, added: 1 << 40 };
        let refs = vec![child.clone(), BranchRef { groups: 3, ..child }];
        let groups = Groups::Below(Branches { level: 2, first: 0, refs });
        let large = Manifest { groups, ..manifest };
        assert_eq!((large.groups.count(), large.added_below()), (67, 2 << 40));
        returns(&LogEntry::Manifest(Box::new(large.clone())), &large.write());
        let opening = Opening { run: "a".into(), writer: WRITER, time: 9, who: "process 1".into() };
        returns(&LogEntry::Opening(opening.clone()), &opening.write());
        let mark = Mark { run: "a".into(), sequence: Sequence(9), writer: WRITER };
        returns(&LogEntry::Mark(mark.clone()), &mark.write());
    }

    proptest! {
        /// Behind a valid digest any bytes may stand; parsing them must not panic or allocate much.
        #[test]
        fn sealed_junk_never_panics(junk in proptest::collection::vec(any::<u8>(), 0..300), cut in 0usize..200) {
            let mut body = sample().write();
            body.truncate(body.len() - 16 - cut.min(body.len() - 40));
            body.extend_from_slice(&junk);
            let sealed = Writer(body).sealed();
            let _ = LogEntry::parse(&sealed);
        }
    }
}
