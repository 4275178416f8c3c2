//! The log of a run: openings and manifests, one file for each sequence number.

use super::bytes::{Reader, Writer};
use super::names::{PackName, check_run_name};
use super::pack::Seal;
use crate::array::{Bound, DType, Description, Order, Part, Rounding, Shape};
use crate::error::{Error, ErrorKind, Result};
use crate::lineage::{ChunkSize, MAX_PACKS};
use crate::merkle::Digest;
use serde::Serialize;

const OPENING: &[u8; 8] = b"TREEOPEN";
const MANIFEST: &[u8; 8] = b"TREERING";

/// A file of the log.
#[derive(Clone, Debug, PartialEq)]
pub enum LogEntry {
    /// A writer has taken the run.
    Opening(Opening),
    /// A checkpoint is complete.
    Manifest(Box<Manifest>),
}

impl LogEntry {
    /// Reads either kind.
    pub fn parse(bytes: &[u8]) -> Result<LogEntry> {
        if bytes.starts_with(OPENING) {
            return Opening::parse(bytes).map(LogEntry::Opening);
        }
        Manifest::parse(bytes).map(|m| LogEntry::Manifest(Box::new(m)))
    }
}

/// A writer has taken the run; whoever had it before finds its next sequence number used.
#[derive(Clone, Debug, PartialEq)]
pub struct Opening {
    /// The run.
    pub run: String,
    /// Its sequence number, which names this writer.
    pub sequence: u64,
    /// When, in milliseconds since 1970.
    pub time: u64,
    /// Who: host and process.
    pub writer: String,
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
        out.int(self.sequence);
        out.int(self.time);
        out.string(&self.writer);
        out.sealed()
    }

    /// Reads the bytes of the file.
    pub fn parse(bytes: &[u8]) -> Result<Self> {
        let mut reader = Reader::file(bytes, OPENING, "opening")?;
        let opening = Opening {
            run: reader.string()?,
            sequence: reader.int()?,
            time: reader.int()?,
            writer: reader.string()?,
        };
        reader.end()?;
        Ok(opening)
    }
}

/// Where a checkpoint came from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Origin {
    /// The run, where it is another one (a branch).
    pub run: Option<String>,
    /// The sequence number there.
    pub sequence: u64,
}

/// Packs of one writer with running numbers one after another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PackRange {
    /// The run that wrote them.
    pub run: String,
    /// The opening that wrote them.
    pub writer: u64,
    /// The first running number.
    pub first: u64,
    /// How many.
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
    /// How many packs there are.
    pub fn count(&self) -> u64 {
        self.packs.iter().map(|r| r.count).sum()
    }

    /// Run and name of every pack, in the order of their ordinals.
    pub fn names(&self, group: u32) -> impl Iterator<Item = (&str, PackName)> {
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

/// A tree for comparison, kept in a pack: what it was made with, and where it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TreeRef {
    /// The kind of tree.
    pub kind: u8,
    /// Its parameters (bound, chunk size, planes), as its kind writes them.
    pub parameters: Vec<u8>,
    /// The pack's position in the epoch.
    pub pack: u32,
    /// Where its bytes begin in the pack.
    pub offset: u64,
    /// How many bytes it has.
    pub len: u64,
}

/// A variable of a checkpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VariableEntry {
    /// The rank it belongs to.
    pub rank: u32,
    /// The group whose packs hold it.
    pub group: u32,
    /// Name, type, shape, part.
    pub description: Description,
    /// The chunk size of its tree.
    pub chunk: ChunkSize,
    /// The root of its tree.
    pub root: Digest,
    /// How the program's values were rounded before anything else; nothing if they are exact.
    pub rounded: Option<Rounding>,
    /// Trees for comparison.
    pub trees: Vec<TreeRef>,
}

/// What begins the names of variables that are no program's: trees, and records of files.
pub const HIDDEN: &str = "treering:";

impl VariableEntry {
    /// Whether it is no variable of the program.
    pub fn is_hidden(&self) -> bool {
        self.description.name.starts_with(HIDDEN)
    }
}

/// How the bytes of a checkpoint divide, and how long the program was held up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Stats {
    /// Bytes that are the same as in the checkpoint before.
    pub same_bytes: u64,
    /// Bytes that were stored already, elsewhere.
    pub moved_bytes: u64,
    /// Bytes that are new.
    pub new_bytes: u64,
    /// How long the program waited, in nanoseconds.
    pub blocked_ns: u64,
}

/// A complete checkpoint.
#[derive(Clone, Debug, PartialEq)]
pub struct Manifest {
    /// The run.
    pub run: String,
    /// The sequence number.
    pub sequence: u64,
    /// The program's own iteration number.
    pub step: u64,
    /// When, in milliseconds since 1970.
    pub time: u64,
    /// The checkpoint it continues.
    pub parent: Option<Origin>,
    /// The sequence number at which its epoch began; with the run that began it, its name.
    pub epoch: Origin,
    /// The seed of the prints.
    pub seed: u64,
    /// How many ranks the run has.
    pub ranks: u32,
    /// The groups of ranks and their packs.
    pub groups: Vec<Group>,
    /// The variables of all ranks.
    pub variables: Vec<VariableEntry>,
    /// What was same, moved and new.
    pub stats: Stats,
}

impl Manifest {
    /// The bytes of the file.
    pub fn write(&self) -> Vec<u8> {
        let mut out = Writer::file(MANIFEST);
        out.string(&self.run);
        out.int(self.sequence);
        out.int(self.step);
        out.int(self.time);
        out.byte(u8::from(self.parent.is_some()));
        if let Some(parent) = &self.parent {
            write_origin(&mut out, parent);
        }
        write_origin(&mut out, &self.epoch);
        out.u64(self.seed);
        out.int(u64::from(self.ranks));
        let stats = &self.stats;
        out.int(stats.same_bytes);
        out.int(stats.moved_bytes);
        out.int(stats.new_bytes);
        out.int(stats.blocked_ns);
        out.int(self.groups.len() as u64);
        self.groups.iter().for_each(|g| self.write_group(&mut out, g));
        out.int(self.variables.len() as u64);
        self.variables.iter().for_each(|v| write_variable(&mut out, v));
        out.sealed()
    }

    fn write_group(&self, out: &mut Writer, group: &Group) {
        out.int(group.seal.size);
        out.int(group.seal.footer);
        out.digest(group.seal.digest);
        out.int(group.packs.len() as u64);
        for range in &group.packs {
            // Its own name is the common case and takes one byte.
            out.string(if range.run == self.run { "" } else { &range.run });
            out.int(range.writer);
            out.int(range.first);
            out.int(range.count);
        }
    }

    /// Reads the bytes of the file.
    pub fn parse(bytes: &[u8]) -> Result<Self> {
        let mut reader = Reader::file(bytes, MANIFEST, "manifest")?;
        let run = reader.string()?;
        check_run_name(&run)
            .map_err(|_| Error::damaged("a manifest has an impossible run name"))?;
        let mut manifest = Manifest {
            sequence: reader.int()?,
            step: reader.int()?,
            time: reader.int()?,
            parent: match reader.byte()? {
                0 => None,
                _ => Some(parse_origin(&mut reader)?),
            },
            epoch: parse_origin(&mut reader)?,
            seed: reader.u64()?,
            ranks: reader.u32()?,
            stats: Stats {
                same_bytes: reader.int()?,
                moved_bytes: reader.int()?,
                new_bytes: reader.int()?,
                blocked_ns: reader.int()?,
            },
            run,
            groups: Vec::new(),
            variables: Vec::new(),
        };
        let groups = reader.count()?;
        for _ in 0..groups {
            manifest.groups.push(parse_group(&mut reader, &manifest.run)?);
        }
        let variables = reader.count()?;
        for _ in 0..variables {
            let variable = parse_variable(&mut reader)?;
            if variable.group as usize >= groups || variable.rank >= manifest.ranks {
                return Err(Error::damaged("a variable belongs to a rank that does not exist"));
            }
            manifest.variables.push(variable);
        }
        reader.end()?;
        Ok(manifest)
    }

    /// The bytes of all variables: what a full copy would take.
    pub fn full_bytes(&self) -> u64 {
        let bytes = self.variables.iter().filter_map(|v| v.description.bytes());
        bytes.fold(0, u64::saturating_add)
    }

    /// The variable of that rank and name.
    pub fn variable(&self, rank: u32, name: &str) -> Result<&VariableEntry> {
        let found = self.variables.iter().find(|v| v.rank == rank && v.description.name == name);
        found.ok_or_else(|| {
            let names: Vec<&str> =
                self.variables.iter().map(|v| v.description.name.as_str()).collect();
            Error::new(ErrorKind::Mismatch, format!("there is no variable {name:?} of rank {rank}"))
                .at(format!("{}@{}", self.run, self.step))
                .hint(format!("it has {}", names.join(", ")))
        })
    }
}

fn write_origin(out: &mut Writer, origin: &Origin) {
    out.string(origin.run.as_deref().unwrap_or(""));
    out.int(origin.sequence);
}

fn parse_origin(reader: &mut Reader) -> Result<Origin> {
    let run = reader.string()?;
    Ok(Origin { run: (!run.is_empty()).then_some(run), sequence: reader.int()? })
}

fn parse_group(reader: &mut Reader, own: &str) -> Result<Group> {
    let wrong = || Error::damaged("a manifest's list of packs makes no sense");
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
        let range =
            PackRange { run, writer: reader.int()?, first: reader.int()?, count: reader.int()? };
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

fn write_variable(out: &mut Writer, variable: &VariableEntry) {
    out.int(u64::from(variable.rank));
    out.int(u64::from(variable.group));
    write_description(out, &variable.description);
    out.int(variable.chunk.bytes() as u64);
    out.digest(variable.root);
    write_rounding(out, variable.rounded);
    out.int(variable.trees.len() as u64);
    for tree in &variable.trees {
        out.byte(tree.kind);
        out.bytes(&tree.parameters);
        out.int(u64::from(tree.pack));
        out.int(tree.offset);
        out.int(tree.len);
    }
}

/// The mark of an array whose first axis is the fastest.
const COLUMN_MAJOR: u8 = 2;

pub(super) fn write_description(out: &mut Writer, description: &Description) {
    out.string(&description.name);
    out.byte(description.dtype.code());
    out.ints(&description.shape.0);
    let column_major = if description.order == Order::Fortran { COLUMN_MAJOR } else { 0 };
    out.byte(u8::from(description.part.is_some()) | column_major);
    if let Some(part) = &description.part {
        out.ints(&part.global.0);
        out.ints(&part.offset);
    }
}

pub(super) fn parse_description(reader: &mut Reader) -> Result<Description> {
    let name = reader.string()?;
    let dtype = DType::from_code(reader.byte()?)
        .ok_or_else(|| Error::damaged("a variable has an unknown type"))?;
    let shape = Shape(reader.ints()?);
    let marks = reader.byte()?;
    let order = if marks & COLUMN_MAJOR == 0 { Order::C } else { Order::Fortran };
    let part = match marks & !COLUMN_MAJOR {
        0 => None,
        _ => Some(Part { global: Shape(reader.ints()?), offset: reader.ints()? }),
    };
    let description = Description { name, dtype, shape, order, part };
    description.check().map_err(|e| {
        Error::damaged(format!("the description of a variable makes no sense: {e}"))
    })?;
    Ok(description)
}

fn parse_variable(reader: &mut Reader) -> Result<VariableEntry> {
    let rank = reader.u32()?;
    let group = reader.u32()?;
    let description = parse_description(reader)?;
    let chunk = ChunkSize::new(reader.int()?)
        .map_err(|_| Error::damaged("a variable has an impossible chunk size"))?;
    let root = reader.digest()?;
    let rounded = parse_rounding(reader, description.dtype)?;
    let count = reader.count()?;
    let mut trees = Vec::with_capacity(count);
    for _ in 0..count {
        trees.push(TreeRef {
            kind: reader.byte()?,
            parameters: reader.bytes()?.to_vec(),
            pack: reader.u32()?,
            offset: reader.int()?,
            len: reader.int()?,
        });
    }
    Ok(VariableEntry { rank, group, description, chunk, root, rounded, trees })
}

/// Numbers of the ways in which values are kept.
const EXACT: u64 = 0;
const ABSOLUTE: u64 = 1;
const RELATIVE: u64 = 2;

fn write_rounding(out: &mut Writer, rounded: Option<Rounding>) {
    let (way, bound) = match rounded.map(|rounding| rounding.bound()) {
        Some(Bound::Within { abs: 0.0, rel }) => (RELATIVE, rel),
        Some(Bound::Within { abs, .. }) => (ABSOLUTE, abs),
        _ => return out.int(EXACT),
    };
    out.int(way);
    out.u64(bound.to_bits());
}

fn parse_rounding(reader: &mut Reader, dtype: DType) -> Result<Option<Rounding>> {
    let bound = match reader.int()? {
        EXACT => return Ok(None),
        ABSOLUTE => Bound::abs(f64::from_bits(reader.u64()?)),
        RELATIVE => Bound::rel(f64::from_bits(reader.u64()?)),
        _ => {
            return Err(Error::new(
                ErrorKind::Mismatch,
                "a variable is stored in a way of later releases",
            )
            .hint("use a newer release of treering"));
        }
    };
    let wrong = |e| Error::damaged(format!("the bound of a variable makes no sense: {e}"));
    Rounding::new(bound, dtype).map(Some).map_err(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn sample() -> Manifest {
        let mut group = Group {
            packs: Vec::new(),
            seal: Seal { size: 0, footer: 0, digest: Digest::default() },
        };
        let seal = Seal { size: 4096, footer: 99, digest: Digest([5, 6]) };
        for (run, writer, attempt) in [("b", 1, 0), ("b", 1, 1), ("a", 4, 0), ("a", 4, 2)] {
            group.push(run, PackName { writer, attempt, group: 0 }, seal);
        }
        Manifest {
            run: "a".into(),
            sequence: 7,
            step: 100,
            time: 1_700_000_000_000,
            parent: Some(Origin { run: Some("b".into()), sequence: 3 }),
            epoch: Origin { run: Some("b".into()), sequence: 2 },
            seed: 42,
            ranks: 2,
            groups: vec![group],
            variables: vec![VariableEntry {
                rank: 1,
                group: 0,
                description: Description {
                    name: "grid/ρ".into(),
                    dtype: DType::F64,
                    shape: Shape(vec![4, 5]),
                    order: Order::Fortran,
                    part: Some(Part { global: Shape(vec![8, 5]), offset: vec![4, 0] }),
                },
                chunk: ChunkSize::default(),
                root: Digest([1, 2]),
                rounded: None,
                trees: vec![TreeRef {
                    kind: 1,
                    parameters: vec![1, 2],
                    pack: 1,
                    offset: 9,
                    len: 8,
                }],
            }],
            stats: Stats { same_bytes: 1, moved_bytes: 2, new_bytes: 3, blocked_ns: 4 },
        }
    }

    #[test]
    fn manifests_return_and_every_flipped_byte_is_seen() {
        returns(&sample());
        for bound in [Bound::abs(1e-6), Bound::rel(1e-4)] {
            let mut manifest = sample();
            manifest.variables[0].rounded = Some(Rounding::new(bound, DType::F64).unwrap());
            returns(&manifest);
        }
    }

    fn returns(manifest: &Manifest) {
        assert_eq!(manifest.groups[0].packs.len(), 3);
        assert_eq!(manifest.groups[0].names(0).count(), 4);
        let bytes = manifest.write();
        assert_eq!(Manifest::parse(&bytes).unwrap(), *manifest);
        for at in 0..bytes.len() {
            for bit in 0..8 {
                let mut bad = bytes.clone();
                bad[at] ^= 1 << bit;
                assert!(LogEntry::parse(&bad).is_err(), "byte {at}");
            }
            assert!(LogEntry::parse(&bytes[..at]).is_err());
        }
    }

    #[test]
    fn bounds_that_make_no_sense_are_refused() {
        let with = |way: u64, bits: u64, dtype: DType| {
            let mut out = Writer(Vec::new());
            out.int(way);
            out.u64(bits);
            parse_rounding(&mut Reader::new(&out.0), dtype)
        };
        assert!(with(1, 1e-6f64.to_bits(), DType::C64).unwrap().is_some());
        assert!(with(2, 1e-6f64.to_bits(), DType::F32).unwrap().is_some());
        let bad = [(1, 0.0, DType::F64), (1, f64::NAN, DType::F64), (1, 1e-6, DType::I32)];
        for (way, bound, dtype) in bad.into_iter().chain([(2, 1.0, DType::F64)]) {
            let error = with(way, bound.to_bits(), dtype).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Damaged);
        }
        assert_eq!(with(3, 0, DType::F64).unwrap_err().kind(), ErrorKind::Mismatch);
        assert!(parse_rounding(&mut Reader::new(&[1, 0, 0]), DType::F64).is_err());
    }

    #[test]
    fn openings_return() {
        let opening =
            Opening { run: "a".into(), sequence: 3, time: 9, writer: "host, process 1".into() };
        assert_eq!(LogEntry::parse(&opening.write()).unwrap(), LogEntry::Opening(opening));
    }

    proptest! {
        /// Behind a valid digest any bytes may stand; parsing them must not panic or allocate much.
        #[test]
        fn sealed_junk_never_panics(junk in proptest::collection::vec(any::<u8>(), 0..300), cut in 0usize..200, rounded in any::<bool>()) {
            let mut manifest = sample();
            if rounded {
                manifest.variables[0].rounded = Rounding::new(Bound::abs(0.5), DType::F64).ok();
            }
            let mut body = manifest.write();
            body.truncate(body.len() - 16 - cut.min(body.len() - 40));
            body.extend_from_slice(&junk);
            let sealed = Writer(body).sealed();
            let _ = LogEntry::parse(&sealed);
        }
    }
}
