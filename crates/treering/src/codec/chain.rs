//! Steps one behind another, and how they are written down.

use super::columns::{self, TableShape};
use super::difference::{Difference, DifferenceKind};
use super::lorenzo::{self, LorenzoGrid, Reckoning};
use super::numbers::{self, Numbers};
use super::{Codec, fpc, general, multiples, repeats, rows, shuffle};
use crate::array::Spacing;
use crate::array::float_env::plain;
use crate::error::{Error, ErrorKind, Result};
use crate::memory::Scratch;
use std::fmt;
use std::ops::Deref;

/// The greatest number of a step.
const NEWEST: u8 = 15;
/// The most steps a chain has.
const MAX_STEPS: usize = 4;

/// One step of encoding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CodecStep {
    /// The difference to the step before; only the first of a chain.
    Difference(Difference),
    /// The bytes of values of this size, plane by plane.
    Shuffle(u8),
    /// Their bits.
    BitShuffle(u8),
    /// The parts of records: bytes of a part, and parts of a record.
    Split(u8, u8),
    /// Residuals of a prediction from neighbours.
    Lorenzo(LorenzoGrid),
    /// Residuals of a prediction from earlier values, for values of this size.
    Fpc(u8),
    /// Values that were not there before, and where the others were, for values of this size.
    Repeats(u8),
    /// Repeats, with the residuals of a prediction for values that are not repeated.
    News(u8, LorenzoGrid),
    /// Rows that were not there before, and which ones the others are, for values of this size and this many of a row.
    Rows(u8, u8),
    /// Multiples of a spacing as whole numbers, for floating-point values of this size.
    Multiples(u8, Spacing),
    /// Bins of numbers, at a level.
    Pco(Numbers, u8),
    /// Integers of a table, coded by others of their rows.
    Columns(TableShape),
    /// LZ4.
    Lz4,
    /// Zstandard at a level.
    Zstd(u8),
    /// Deflate at a level.
    Deflate(u8),
}

/// Steps, the first of which takes the bytes as they are. No steps leave them so.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Chain(Vec<CodecStep>);

impl CodecStep {
    /// Whether the output is as long as the input.
    pub(super) fn keeps_length(self) -> bool {
        matches!(
            self,
            CodecStep::Difference(_)
                | CodecStep::Shuffle(_)
                | CodecStep::BitShuffle(_)
                | CodecStep::Split(..)
                | CodecStep::Lorenzo(_)
        )
    }

    /// Fills `out`, which is as long as the bytes given, if the output is.
    pub(super) fn transform(self, raw: &[u8], out: &mut [u8]) -> Result<()> {
        match self {
            CodecStep::Shuffle(size) => shuffle::bytes(raw, out, size as usize),
            CodecStep::BitShuffle(size) => shuffle::bits(raw, out, size as usize),
            CodecStep::Split(element, count) => {
                shuffle::split(raw, out, element as usize, count as usize);
            }
            CodecStep::Lorenzo(grid) => lorenzo::encode(raw, out, grid),
            _ => return Err(needs_before()),
        }
        Ok(())
    }

    /// Whether they are the same but for the grid or the length of rows.
    pub(super) fn is_like(self, other: CodecStep) -> bool {
        match (self, other) {
            (CodecStep::Lorenzo(_), CodecStep::Lorenzo(_)) => true,
            (CodecStep::News(a, _), CodecStep::News(b, _)) => a == b,
            (CodecStep::Rows(a, _), CodecStep::Rows(b, _)) => a == b,
            (CodecStep::Columns(a), CodecStep::Columns(b)) => a == TableShape { row: a.row, ..b },
            _ => self == other,
        }
    }

    /// The step with little effort.
    pub(super) fn quick(self) -> CodecStep {
        match self {
            CodecStep::Zstd(level) => CodecStep::Zstd(level.min(6)),
            CodecStep::Pco(numbers, level) => {
                let predicted = level & numbers::PREDICTED;
                CodecStep::Pco(numbers, (level & !numbers::PREDICTED).min(8) | predicted)
            }
            CodecStep::Repeats(size) => CodecStep::Repeats(size & !repeats::THOROUGH),
            CodecStep::News(size, grid) => CodecStep::News(size & !repeats::THOROUGH, grid),
            CodecStep::Rows(size, row) => CodecStep::Rows(size & !repeats::THOROUGH, row),
            CodecStep::Columns(table) => {
                CodecStep::Columns(TableShape { thorough: false, ..table })
            }
            other => other,
        }
    }

    fn is_valid(self) -> bool {
        match self {
            CodecStep::Difference(difference) => matches!(difference.size, 1 | 2 | 4 | 8),
            CodecStep::Shuffle(size) => (2..=32).contains(&size),
            CodecStep::BitShuffle(size) => (1..=16).contains(&size),
            CodecStep::Split(element, count) => {
                (1..=16).contains(&element) && (2..=64).contains(&count)
            }
            CodecStep::Lorenzo(grid) => grid.is_valid(),
            CodecStep::Fpc(size) | CodecStep::Multiples(size, _) => matches!(size, 4 | 8),
            CodecStep::Repeats(size) => matches!(size & !repeats::THOROUGH, 2 | 4 | 8),
            CodecStep::News(size, grid) => {
                CodecStep::Repeats(size).is_valid()
                    && grid.is_valid()
                    && grid.size == size & !repeats::THOROUGH
            }
            CodecStep::Rows(size, row) => {
                matches!(size & !repeats::THOROUGH, 1 | 2 | 4 | 8) && rows::ROW.contains(&row)
            }
            CodecStep::Pco(_, level) => level & !numbers::PREDICTED <= 12,
            CodecStep::Columns(shape) => shape.is_valid(),
            CodecStep::Lz4 => true,
            CodecStep::Zstd(level) => (1..=19).contains(&level),
            CodecStep::Deflate(level) => level <= 9,
        }
    }

    fn write(self, out: &mut Vec<u8>) {
        match self {
            CodecStep::Shuffle(size) => out.extend([1, size]),
            CodecStep::BitShuffle(size) => out.extend([2, size]),
            CodecStep::Split(element, count) => out.extend([3, element, count]),
            CodecStep::Lorenzo(grid) => {
                out.extend([4, grid.size]);
                write_grid(grid, out);
            }
            CodecStep::Fpc(size) => out.extend([5, size]),
            CodecStep::Pco(numbers, level) => out.extend([6, numbers as u8, level]),
            CodecStep::Lz4 => out.push(7),
            CodecStep::Zstd(level) => out.extend([8, level]),
            CodecStep::Deflate(level) => out.extend([9, level]),
            CodecStep::Repeats(size) => out.extend([11, size]),
            CodecStep::Multiples(size, spacing) => {
                out.extend([12, size]);
                out.extend(spacing.bits().to_le_bytes());
            }
            CodecStep::News(size, grid) => {
                out.extend([13, size]);
                write_grid(grid, out);
            }
            CodecStep::Columns(TableShape { size, signed, row, thorough }) => {
                let size = if thorough { size | repeats::THOROUGH } else { size };
                out.extend([14, size, u8::from(signed), row]);
            }
            CodecStep::Rows(size, row) => out.extend([15, size, row]),
            CodecStep::Difference(Difference { way, size, float }) => {
                out.extend([10, way as u8, size, u8::from(float)]);
            }
        }
    }

    fn parse(bytes: &mut &[u8]) -> Option<CodecStep> {
        fn take<const N: usize>(bytes: &mut &[u8]) -> Option<[u8; N]> {
            let (head, rest) = bytes.split_first_chunk::<N>()?;
            *bytes = rest;
            Some(*head)
        }
        fn grid(size: u8, bytes: &mut &[u8]) -> Option<LorenzoGrid> {
            let [reckoning] = take(bytes)?;
            let reckoning = *Reckoning::ALL.get(reckoning as usize)?;
            let row = u32::from_le_bytes(take(bytes)?);
            let plane = u32::from_le_bytes(take(bytes)?);
            Some(LorenzoGrid { size, reckoning, row, plane })
        }
        fn flag(byte: u8) -> Option<bool> {
            (byte <= 1).then_some(byte == 1)
        }
        let [id] = take(bytes)?;
        let step = match id {
            1 => CodecStep::Shuffle(take::<1>(bytes)?[0]),
            2 => CodecStep::BitShuffle(take::<1>(bytes)?[0]),
            3 => {
                let [element, count] = take(bytes)?;
                CodecStep::Split(element, count)
            }
            4 => {
                let [size] = take(bytes)?;
                CodecStep::Lorenzo(grid(size, bytes)?)
            }
            5 => CodecStep::Fpc(take::<1>(bytes)?[0]),
            6 => {
                let [numbers, level] = take(bytes)?;
                CodecStep::Pco(*Numbers::ALL.get(numbers as usize)?, level)
            }
            7 => CodecStep::Lz4,
            8 => CodecStep::Zstd(take::<1>(bytes)?[0]),
            9 => CodecStep::Deflate(take::<1>(bytes)?[0]),
            10 => {
                let [way, size, float] = take(bytes)?;
                let way = *[DifferenceKind::Subtract, DifferenceKind::Fold, DifferenceKind::Xor]
                    .get(way as usize)?;
                CodecStep::Difference(Difference { way, size, float: float == 1 })
            }
            11 => CodecStep::Repeats(take::<1>(bytes)?[0]),
            12 => {
                let [size] = take(bytes)?;
                CodecStep::Multiples(size, Spacing::from_bits(u64::from_le_bytes(take(bytes)?))?)
            }
            13 => {
                let [size] = take(bytes)?;
                CodecStep::News(size, grid(size & !repeats::THOROUGH, bytes)?)
            }
            14 => {
                let [size, signed, row] = take(bytes)?;
                let thorough = size & repeats::THOROUGH != 0;
                let size = size & !repeats::THOROUGH;
                CodecStep::Columns(TableShape { size, signed: flag(signed)?, row, thorough })
            }
            15 => {
                let [size, row] = take(bytes)?;
                CodecStep::Rows(size, row)
            }
            _ => return None,
        };
        Some(step).filter(|step| step.is_valid())
    }
}

impl Codec for CodecStep {
    fn encode(&self, raw: &[u8]) -> Result<Vec<u8>> {
        if self.keeps_length() {
            let mut out = vec![0; raw.len()];
            self.transform(raw, &mut out)?;
            return Ok(out);
        }
        match *self {
            CodecStep::Fpc(size) => Ok(fpc::encode(raw, size as usize)),
            CodecStep::Repeats(size) => repeats::encode(raw, size, None),
            CodecStep::News(size, grid) => repeats::encode(raw, size, Some(grid)),
            CodecStep::Rows(size, row) => rows::encode(raw, size, row),
            CodecStep::Multiples(size, spacing) => Ok(multiples::encode(raw, size, spacing)),
            CodecStep::Pco(numbers, level) => numbers::encode(raw, numbers, level),
            CodecStep::Columns(shape) => Ok(columns::encode(raw, shape)),
            CodecStep::Lz4 => Ok(lz4_flex::block::compress(raw)),
            CodecStep::Zstd(level) => general::zstd_encode(raw, i32::from(level)),
            CodecStep::Deflate(level) => general::deflate_encode(raw, level),
            _ => Err(needs_before()),
        }
    }

    fn decode(&self, encoded: &[u8], raw: &mut [u8]) -> Result<()> {
        if self.keeps_length() && encoded.len() != raw.len() {
            return Err(Error::damaged("a frame has the wrong length"));
        }
        match *self {
            CodecStep::Difference(_) => return Err(needs_before()),
            CodecStep::Shuffle(size) => shuffle::unbytes(encoded, raw, size as usize),
            CodecStep::BitShuffle(size) => shuffle::unbits(encoded, raw, size as usize),
            CodecStep::Split(element, count) => {
                shuffle::unsplit(encoded, raw, element as usize, count as usize);
            }
            CodecStep::Lorenzo(grid) => lorenzo::decode(encoded, raw, grid),
            CodecStep::Fpc(size) => fpc::decode(encoded, raw, size as usize)?,
            CodecStep::Repeats(size) => repeats::decode(encoded, raw, size, None)?,
            CodecStep::News(size, grid) => repeats::decode(encoded, raw, size, Some(grid))?,
            CodecStep::Rows(size, row) => rows::decode(encoded, raw, size, row)?,
            CodecStep::Multiples(size, spacing) => multiples::decode(encoded, raw, size, spacing)?,
            CodecStep::Pco(numbers, _) => numbers::decode(encoded, raw, numbers)?,
            CodecStep::Columns(shape) => columns::decode(encoded, raw, shape)?,
            CodecStep::Lz4 => general::lz4_decode(encoded, raw)?,
            CodecStep::Zstd(_) => general::zstd_decode(encoded, raw)?,
            CodecStep::Deflate(_) => general::deflate_decode(encoded, raw)?,
        }
        Ok(())
    }
}

/// Output of one step for the next.
enum Between {
    Kept(Scratch),
    Made(Vec<u8>),
}

impl Deref for Between {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Between::Kept(bytes) => bytes,
            Between::Made(bytes) => bytes,
        }
    }
}

fn write_grid(grid: LorenzoGrid, out: &mut Vec<u8>) {
    out.push(grid.reckoning as u8);
    out.extend(grid.row.to_le_bytes());
    out.extend(grid.plane.to_le_bytes());
}

fn needs_before() -> Error {
    Error::usage("a difference needs the bytes before")
}

/// Whether these make a chain.
fn is_chain(steps: &[CodecStep]) -> bool {
    let differences = steps.iter().skip(1).filter(|step| matches!(step, CodecStep::Difference(_)));
    steps.len() <= MAX_STEPS && steps.iter().all(|step| step.is_valid()) && differences.count() == 0
}

impl Chain {
    /// Up to four steps.
    pub fn new(steps: &[CodecStep]) -> Result<Chain> {
        match is_chain(steps) {
            true => Ok(Chain(steps.to_vec())),
            false => Err(Error::usage("invalid chain of encoders")
                .hint("give up to four steps, with levels and sizes that exist")),
        }
    }

    pub(crate) fn steps(&self) -> &[CodecStep] {
        &self.0
    }

    /// Whether it needs the bytes before.
    pub fn is_difference(&self) -> bool {
        matches!(self.0.first(), Some(CodecStep::Difference(_)))
    }

    /// Whether it codes integers as a table.
    pub(crate) fn is_table(&self) -> bool {
        self.0.iter().any(|step| matches!(step, CodecStep::Columns(_)))
    }

    /// Encodes what is left of `raw` without `before`, which has the same length.
    pub fn encode_beside(&self, raw: &[u8], before: &[u8]) -> Result<Vec<u8>> {
        let Some(CodecStep::Difference(difference)) = self.0.first() else {
            return self.encode(raw);
        };
        if raw.len() != before.len() {
            return Err(needs_before());
        }
        let mut left = Scratch::new(raw.len())?;
        difference.take(raw, before, &mut left);
        self.behind().encode(&left)
    }

    /// Decodes what was encoded beside `before`.
    pub fn decode_beside(&self, encoded: &[u8], before: &[u8], raw: &mut [u8]) -> Result<()> {
        let Some(CodecStep::Difference(difference)) = self.0.first() else {
            return self.decode(encoded, raw);
        };
        if raw.len() != before.len() {
            return Err(Error::damaged("the bytes before a frame have another length"));
        }
        let mut left = Scratch::new(raw.len())?;
        self.behind().decode(encoded, &mut left)?;
        difference.put_back(&left, before, raw);
        Ok(())
    }

    /// The steps behind the difference.
    pub(crate) fn behind(&self) -> Chain {
        Chain(self.0[usize::from(self.is_difference())..].to_vec())
    }

    /// The bytes that name it in a pack.
    pub fn write(&self) -> Vec<u8> {
        let mut out = vec![self.0.len() as u8];
        self.0.iter().for_each(|step| step.write(&mut out));
        out
    }

    /// Reads the bytes that name a chain.
    pub fn parse(mut bytes: &[u8]) -> Result<Chain> {
        let bad = || Error::damaged("a pack names no chain of encoders");
        let (count, rest) = bytes.split_first().ok_or_else(bad)?;
        bytes = rest;
        let mut steps = Vec::new();
        for _ in 0..*count {
            if let Some(number) = bytes.first().filter(|number| **number > NEWEST) {
                let text = format!("this release has no encoder {number}");
                return Err(
                    Error::new(ErrorKind::Mismatch, text).hint("use a newer release of treering")
                );
            }
            steps.push(CodecStep::parse(&mut bytes).ok_or_else(bad)?);
        }
        match bytes.is_empty() && is_chain(&steps) {
            true => Ok(Chain(steps)),
            false => Err(bad()),
        }
    }
}

impl Codec for Chain {
    /// The lengths between steps that change it come first, four bytes each, the last one first.
    fn encode(&self, raw: &[u8]) -> Result<Vec<u8>> {
        let Some((last, first)) = self.0.split_last() else { return Ok(raw.to_vec()) };
        let mut lengths = Vec::new();
        let mut between: Option<Between> = None;
        for step in first {
            let given = between.as_deref().unwrap_or(raw);
            let made = match step.keeps_length() {
                true => {
                    let mut out = Scratch::new(given.len())?;
                    plain(|| step.transform(given, &mut out))?;
                    Between::Kept(out)
                }
                false => Between::Made(plain(|| step.encode(given))?),
            };
            if !step.keeps_length() {
                lengths.push(made.len() as u32);
            }
            between = Some(made);
        }
        let bytes = plain(|| last.encode(between.as_deref().unwrap_or(raw)))?;
        if lengths.is_empty() {
            return Ok(bytes);
        }
        let head = lengths.iter().rev().flat_map(|len| len.to_le_bytes());
        Ok(head.chain(bytes).collect())
    }

    fn decode(&self, encoded: &[u8], raw: &mut [u8]) -> Result<()> {
        let bad = || Error::damaged("a frame does not decode");
        let Some((first, rest)) = self.0.split_first() else {
            return match encoded.len() == raw.len() {
                true => {
                    raw.copy_from_slice(encoded);
                    Ok(())
                }
                false => Err(bad()),
            };
        };
        // Length of the input of each step; all but those behind a step that changes it are as
        // long as the frame was.
        let mut given = vec![raw.len(); self.0.len()];
        let mut bytes = encoded;
        for at in (1..self.0.len()).rev().filter(|at| !self.0[at - 1].keeps_length()) {
            let (len, behind) = bytes.split_first_chunk::<4>().ok_or_else(bad)?;
            let len = u32::from_le_bytes(*len) as usize;
            if len > 2 * raw.len() + 4096 {
                return Err(bad());
            }
            bytes = behind;
            let until = (at..self.0.len()).find(|at| !self.0[*at].keeps_length());
            (at..=until.unwrap_or(self.0.len() - 1)).for_each(|at| given[at] = len);
        }
        let mut between: Option<Scratch> = None;
        for (step, len) in rest.iter().zip(&given[1..]).rev() {
            let mut out = Scratch::new(*len)?;
            plain(|| step.decode(between.as_deref().unwrap_or(bytes), &mut out))?;
            between = Some(out);
        }
        plain(|| first.decode(between.as_deref().unwrap_or(bytes), raw))
    }
}

impl fmt::Display for CodecStep {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            CodecStep::Difference(Difference { way: DifferenceKind::Xor, .. }) => {
                f.write_str("xor step before")
            }
            CodecStep::Difference(_) => f.write_str("minus step before"),
            CodecStep::Shuffle(size) => write!(f, "shuffle {size}"),
            CodecStep::BitShuffle(size) => write!(f, "bit shuffle {size}"),
            CodecStep::Split(_, count) => write!(f, "split {count}"),
            CodecStep::Lorenzo(grid) => write!(f, "predict {}-D", grid.axes()),
            CodecStep::Fpc(_) => f.write_str("fpc"),
            CodecStep::Repeats(_) => f.write_str("repeats"),
            CodecStep::News(_, grid) => write!(f, "repeats and predict {}-D", grid.axes()),
            CodecStep::Rows(_, row) => write!(f, "rows {row}"),
            CodecStep::Multiples(..) => f.write_str("multiples"),
            CodecStep::Pco(_, level) => write!(f, "pco {}", level & !numbers::PREDICTED),
            CodecStep::Columns(TableShape { row: 1, .. }) => f.write_str("contexts"),
            CodecStep::Columns(shape) => write!(f, "columns {}", shape.row),
            CodecStep::Lz4 => f.write_str("lz4"),
            CodecStep::Zstd(level) => write!(f, "zstd {level}"),
            CodecStep::Deflate(level) => write!(f, "deflate {level}"),
        }
    }
}

impl fmt::Display for Chain {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let Some((first, rest)) = self.0.split_first() else { return f.write_str("raw") };
        write!(f, "{first}")?;
        rest.iter().try_for_each(|step| write!(f, " + {step}"))
    }
}
