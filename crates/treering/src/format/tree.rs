//! Tree files: the bounded trees of some variables, and what they were made from.
//!
//! The same bytes lie beside a foreign file, in a repository as a golden file, and in a checkpoint as
//! a variable of their own. The head has a digest and names the root of each tree; a walk from the
//! root checks every node and leaf it reads; planes need no checksum (see `merkle::bounded`).

use super::bytes::{Reader, Writer};
use super::file_variable::FileOrigin;
use super::section::{parse_description, write_description};
use crate::array::{Description, Rank, Step};
use crate::error::{Error, Result};
use crate::merkle::bounded::{Bound, Grid, Image, Layout, Recipe};
use crate::merkle::{Digest, digest};

const TREES: &[u8; 8] = b"TREETREE";
/// Bodies begin at multiples of this.
const ALIGN: u64 = 4096;
/// The most bytes a head may have.
const MAX_HEAD: u64 = 1 << 28;
/// The room that one tree's head needs at most, in front of its body.
pub const TREE_FRONT: usize = 8192;

/// The data that a tree was made from, so that a tree of older or other data is not used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TreeOrigin {
    /// Unknown data: the trees stand for themselves.
    None,
    /// A file of this size, last changed at these times (nanoseconds since 1970); each tree has the digest of where the
    /// values lie in it.
    File {
        /// Its size in bytes.
        size: u64,
        /// When it was changed last.
        changed: u64,
        /// When its entry in the file system was changed last: a file that takes the place of another has another one.
        entered: u64,
    },
    /// Stored variables; each tree names the exact root of its own.
    Stored,
    /// Results that are expected, recorded as a golden file; each tree names the file whose array it is of.
    Recorded,
    /// Variables whose trees were kept without their data; each tree names the rank of its own.
    Kept,
}

impl TreeOrigin {
    /// Whether the bounds of the trees are meant as those of the data, because a program or a golden file declared
    /// them. Trees that were made afterwards, of a file or of a run, only save reading.
    pub fn declares_bounds(&self) -> bool {
        matches!(self, TreeOrigin::None | TreeOrigin::Recorded)
    }
}

/// One tree of a tree file: the description of a tree that [`Golden::views`](crate::Golden::views) returns.
/// [`Golden`](crate::Golden) has an example.
#[derive(Clone, Debug, PartialEq)]
pub struct TreeEntry {
    /// The step it belongs to.
    pub step: Option<Step>,
    /// The rank.
    pub rank: Rank,
    /// The variable.
    pub description: Description,
    /// Bound, chunk size and planes of the tree.
    pub recipe: Recipe,
    /// Its root.
    pub root: Digest,
    /// Number of values that are NaN.
    pub nans: u64,
    /// The digest of the numbers of NaN.
    pub nans_digest: Digest,
    /// The exact root of the variable it was made from, if that is stored; of a file, the digest of where its values lie.
    pub exact: Digest,
    /// The file that it is an array of, if it was recorded from one.
    pub file: Option<FileOrigin>,
    /// Offset of its body.
    pub offset: u64,
}

impl TreeEntry {
    /// The entry of a tree of `description`; its place is given when the file is written.
    pub fn new(description: &Description, image: &Image) -> Self {
        let nans = image.layout.nans.start as usize..image.layout.nans.end as usize;
        TreeEntry {
            step: None,
            rank: Rank(0),
            description: description.clone(),
            recipe: image.recipe,
            root: image.root,
            nans: image.nans,
            nans_digest: crate::merkle::digest(&image.body()[nans]),
            exact: Digest::default(),
            file: None,
            offset: 0,
        }
    }

    /// Byte ranges of the sections of its body (levels, leaves, planes).
    pub fn layout(&self) -> Result<Layout> {
        let bytes = self.description.bytes().unwrap_or(0);
        Layout::new(self.description.dtype, bytes, &self.recipe)
    }
}

/// The head of a tree file.
#[derive(Clone, Debug, PartialEq)]
pub struct TreeFile {
    /// The data that all trees were made from.
    pub origin: TreeOrigin,
    /// The trees.
    pub entries: Vec<TreeEntry>,
}

impl TreeFile {
    /// Number of bytes at the beginning from which the length of the head is known.
    pub const PREFIX: usize = 18;

    /// Whether a file that begins so may hold trees.
    pub(crate) fn is_magic(bytes: &[u8]) -> bool {
        bytes.starts_with(TREES)
    }

    /// The head, with every body's place set; they follow in this order.
    pub fn write(&mut self) -> Result<Vec<u8>> {
        // The places are part of the head: they take as much room as the largest could.
        self.entries.iter_mut().for_each(|entry| entry.offset = u64::MAX);
        let room = self.encode().len() as u64;
        self.place(room.next_multiple_of(ALIGN))?;
        let mut head = self.encode();
        head.resize(room.next_multiple_of(ALIGN) as usize, 0);
        Ok(head)
    }

    /// The head of one tree whose body begins after [`TREE_FRONT`] bytes.
    pub fn write_front(&mut self) -> Result<Vec<u8>> {
        self.place(TREE_FRONT as u64)?;
        let mut head = self.encode();
        match head.len() <= TREE_FRONT {
            true => {
                head.resize(TREE_FRONT, 0);
                Ok(head)
            }
            false => Err(Error::usage("the name of this variable is too long for a tree")),
        }
    }

    fn place(&mut self, mut next: u64) -> Result<()> {
        for entry in &mut self.entries {
            entry.offset = next;
            next = (next + entry.layout()?.len()).next_multiple_of(ALIGN);
        }
        Ok(())
    }

    /// The length of the whole file.
    pub fn len(&self) -> Result<u64> {
        let mut ends = self.entries.iter().map(|e| Ok(e.offset + e.layout()?.len()));
        ends.try_fold(0, |end, next: Result<u64>| Ok(end.max(next?)))
    }

    #[cfg(any(test, feature = "testing"))]
    /// Whether there are no trees.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    fn encode(&self) -> Vec<u8> {
        let mut body = Writer::default();
        match self.origin {
            TreeOrigin::None => body.byte(0),
            TreeOrigin::File { size, changed, entered } => {
                body.byte(1);
                [size, changed, entered].into_iter().for_each(|number| body.int(number));
            }
            TreeOrigin::Stored => body.byte(2),
            TreeOrigin::Recorded => body.byte(3),
            TreeOrigin::Kept => body.byte(4),
        }
        body.int(self.entries.len() as u64);
        for entry in &self.entries {
            write_entry(&mut body, entry);
            if self.origin == TreeOrigin::Recorded {
                write_file(&mut body, entry.file.as_ref());
            }
        }
        let mut out = Writer::file(TREES);
        out.u64(body.0.len() as u64);
        out.raw(&body.0);
        out.sealed()
    }

    /// The length of the head that begins with these bytes.
    pub fn head_len(prefix: &[u8]) -> Result<u64> {
        let mut reader = Reader::new(prefix);
        if reader.raw(8)? != TREES {
            return Err(Error::damaged("this is not a tree file"));
        }
        super::bytes::check_version([reader.byte()?, reader.byte()?])?;
        match reader.u64()? {
            len if len <= MAX_HEAD => Ok(len + Self::PREFIX as u64 + 16),
            _ => Err(Error::damaged("the head of a tree file is larger than any can be")),
        }
    }

    /// Reads a head of exactly the length that [`TreeFile::head_len`] returns.
    pub fn parse(bytes: &[u8]) -> Result<TreeFile> {
        let mut reader = Reader::file(bytes, TREES, "tree file")?;
        reader.u64()?;
        let origin = match reader.byte()? {
            0 => TreeOrigin::None,
            1 => TreeOrigin::File {
                size: reader.int()?,
                changed: reader.int()?,
                entered: reader.int()?,
            },
            2 => TreeOrigin::Stored,
            3 => TreeOrigin::Recorded,
            4 => TreeOrigin::Kept,
            _ => return Err(Error::damaged("a tree file has an unknown origin")),
        };
        let count = reader.count()?;
        let entry = |_| {
            let mut entry = parse_entry(&mut reader)?;
            if origin == TreeOrigin::Recorded {
                entry.file = parse_file(&mut reader)?;
            }
            Ok(entry)
        };
        let entries = (0..count).map(entry).collect::<Result<_>>()?;
        reader.end()?;
        Ok(TreeFile { origin, entries })
    }
}

/// The prefix of variables that are trees; programs cannot use it.
pub const TREE_PREFIX: &str = "treering:tree:";
/// The suffix of the run that holds the trees that were made for another run afterwards.
pub(crate) const TREES_RUN: &str = "+trees";

/// The name of the variable that holds a tree: the same for the same variable, bound and grid.
pub(crate) fn tree_name(rank: Rank, variable: &str, recipe: &Recipe) -> String {
    let mut out = Writer::default();
    out.int(u64::from(rank.0));
    out.string(variable);
    write_cells(&mut out, recipe);
    format!("{TREE_PREFIX}{}", digest(&out.0))
}

/// The bound and the grid of a tree.
fn write_cells(out: &mut Writer, recipe: &Recipe) {
    match recipe.bound {
        Bound::Bits => out.byte(0),
        Bound::Within { abs, rel } => {
            out.byte(1);
            out.u64(abs.to_bits());
            out.u64(rel.to_bits());
        }
        Bound::Ulp(count) => {
            out.byte(2);
            out.u64(count);
        }
    }
    match recipe.grid {
        Grid::Bits => out.byte(0),
        Grid::Uniform { e, m } => {
            out.byte(1);
            out.signed(e as i64);
            out.byte(m);
        }
        Grid::Ordinal { s, denormals } => {
            out.byte(2 + u8::from(denormals));
            out.byte(s);
        }
    }
}

fn write_entry(out: &mut Writer, entry: &TreeEntry) {
    out.int(entry.step.map_or(0, |step| step.0.saturating_add(1)));
    out.int(u64::from(entry.rank.0));
    write_description(out, &entry.description);
    write_cells(out, &entry.recipe);
    out.int(u64::from(entry.recipe.chunk));
    out.byte(entry.recipe.planes);
    out.digest(entry.root);
    out.int(entry.nans);
    out.digest(entry.nans_digest);
    out.digest(entry.exact);
    out.u64(entry.offset);
}

/// The file of an array: its name, the name it had when it was ingested, and where the array's own name begins.
fn write_file(out: &mut Writer, file: Option<&FileOrigin>) {
    out.byte(u8::from(file.is_some()));
    let Some(file) = file else { return };
    out.string(&file.file);
    out.string(file.original.as_deref().unwrap_or_default());
    let (start, named) = file.place();
    out.int(start as u64);
    out.byte(u8::from(named));
}

fn parse_file(reader: &mut Reader) -> Result<Option<FileOrigin>> {
    let wrong = || Error::damaged("a tree has an impossible file");
    let flag = |byte| match byte {
        0 | 1 => Ok(byte == 1),
        _ => Err(wrong()),
    };
    if !flag(reader.byte()?)? {
        return Ok(None);
    }
    let (file, original) = (reader.string()?, reader.string()?);
    let start = usize::try_from(reader.int()?).map_err(|_| wrong())?;
    let named = flag(reader.byte()?)?;
    let original = (!original.is_empty()).then_some(original);
    Ok(Some(FileOrigin::at(file, original, start, named)))
}

fn parse_entry(reader: &mut Reader) -> Result<TreeEntry> {
    let step = reader.int()?.checked_sub(1).map(Step);
    let rank = Rank(reader.u32()?);
    let description = parse_description(reader)?;
    let bound = match reader.byte()? {
        0 => Bound::Bits,
        1 => {
            Bound::Within { abs: f64::from_bits(reader.u64()?), rel: f64::from_bits(reader.u64()?) }
        }
        2 => Bound::Ulp(reader.u64()?),
        _ => return Err(Error::damaged("a tree has an unknown bound")),
    };
    let grid = match reader.byte()? {
        0 => Grid::Bits,
        1 => Grid::Uniform {
            e: i16::try_from(reader.signed()?)
                .map_err(|_| Error::damaged("a tree has an impossible grid"))?,
            m: reader.byte()?,
        },
        kind @ (2 | 3) => Grid::Ordinal { s: reader.byte()?, denormals: kind == 3 },
        _ => return Err(Error::damaged("a tree has an unknown grid")),
    };
    let recipe = Recipe { bound, grid, chunk: reader.u32()?, planes: reader.byte()? };
    let sound = recipe.check().is_ok()
        && bound.check().is_ok()
        && grid.fits(description.dtype)
        && (grid != Grid::Bits || recipe.planes == 0);
    if !sound {
        return Err(Error::damaged("a tree has an impossible recipe"));
    }
    let entry = TreeEntry {
        step,
        rank,
        description,
        recipe,
        root: reader.digest()?,
        nans: reader.int()?,
        nans_digest: reader.digest()?,
        exact: reader.digest()?,
        file: None,
        offset: reader.u64()?,
    };
    let end = entry.layout().ok().and_then(|layout| entry.offset.checked_add(layout.len()));
    match end {
        Some(_) => Ok(entry),
        None => Err(Error::damaged("a tree lies at an impossible place")),
    }
}
