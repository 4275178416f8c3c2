//! Steps one behind another, and how they are written down.

use super::difference::{Difference, Way};
use super::lorenzo::{self, Grid, Reckoning};
use super::numbers::{self, Numbers};
use super::{Codec, fpc, general, multiples, repeats, shuffle};
use crate::array::Spacing;
use crate::array::float_env::plain;
use crate::error::{Error, Result};
use crate::memory::Scratch;
use std::fmt;
use std::ops::Deref;

/// The most steps a chain has.
const MAX_STEPS: usize = 4;

/// One step of encoding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Step {
    /// The difference to the step before; only the first of a chain.
    Difference(Difference),
    /// The bytes of values of this size, plane by plane.
    Shuffle(u8),
    /// Their bits.
    BitShuffle(u8),
    /// The parts of records: bytes of a part, and parts of a record.
    Split(u8, u8),
    /// What a prediction from neighbours leaves.
    Lorenzo(Grid),
    /// What a prediction from what came before leaves, for values of this size.
    Fpc(u8),
    /// Values that were not there before, and where the others were, for values of this size.
    Repeats(u8),
    /// The same, of the values that were not there what a prediction leaves.
    News(u8, Grid),
    /// Multiples of a spacing as whole numbers, for floating-point values of this size.
    Multiples(u8, Spacing),
    /// Bins of numbers, at a level.
    Pco(Numbers, u8),
    /// LZ4.
    Lz4,
    /// Zstandard at a level.
    Zstd(u8),
    /// Deflate at a level.
    Deflate(u8),
}

/// Steps, the first of which takes the bytes as they are. No steps leave them so.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Chain(Vec<Step>);

impl Step {
    /// Whether the output is as long as the input.
    pub(super) fn keeps_length(self) -> bool {
        matches!(
            self,
            Step::Difference(_)
                | Step::Shuffle(_)
                | Step::BitShuffle(_)
                | Step::Split(..)
                | Step::Lorenzo(_)
        )
    }

    /// Fills `out`, which is as long as the bytes given, if the output is.
    pub(super) fn transform(self, raw: &[u8], out: &mut [u8]) -> Result<()> {
        match self {
            Step::Shuffle(size) => shuffle::bytes(raw, out, size as usize),
            Step::BitShuffle(size) => shuffle::bits(raw, out, size as usize),
            Step::Split(element, count) => {
                shuffle::split(raw, out, element as usize, count as usize);
            }
            Step::Lorenzo(grid) => lorenzo::encode(raw, out, grid),
            _ => return Err(needs_before()),
        }
        Ok(())
    }

    /// Whether they are the same but for the grid.
    pub(super) fn is_like(self, other: Step) -> bool {
        match (self, other) {
            (Step::Lorenzo(_), Step::Lorenzo(_)) => true,
            (Step::News(a, _), Step::News(b, _)) => a == b,
            _ => self == other,
        }
    }

    fn is_valid(self) -> bool {
        match self {
            Step::Difference(difference) => matches!(difference.size, 1 | 2 | 4 | 8),
            Step::Shuffle(size) => (2..=32).contains(&size),
            Step::BitShuffle(size) => (1..=16).contains(&size),
            Step::Split(element, count) => (1..=16).contains(&element) && (2..=64).contains(&count),
            Step::Lorenzo(grid) => grid.is_valid(),
            Step::Fpc(size) | Step::Multiples(size, _) => matches!(size, 4 | 8),
            Step::Repeats(size) => matches!(size & !repeats::THOROUGH, 2 | 4 | 8),
            Step::News(size, grid) => {
                Step::Repeats(size).is_valid()
                    && grid.is_valid()
                    && grid.size == size & !repeats::THOROUGH
            }
            Step::Pco(_, level) => level & !numbers::PREDICTED <= 12,
            Step::Lz4 => true,
            Step::Zstd(level) => (1..=19).contains(&level),
            Step::Deflate(level) => level <= 9,
        }
    }

    fn write(self, out: &mut Vec<u8>) {
        match self {
            Step::Shuffle(size) => out.extend([1, size]),
            Step::BitShuffle(size) => out.extend([2, size]),
            Step::Split(element, count) => out.extend([3, element, count]),
            Step::Lorenzo(grid) => {
                out.extend([4, grid.size]);
                write_grid(grid, out);
            }
            Step::Fpc(size) => out.extend([5, size]),
            Step::Pco(numbers, level) => out.extend([6, numbers as u8, level]),
            Step::Lz4 => out.push(7),
            Step::Zstd(level) => out.extend([8, level]),
            Step::Deflate(level) => out.extend([9, level]),
            Step::Repeats(size) => out.extend([11, size]),
            Step::Multiples(size, spacing) => {
                out.extend([12, size]);
                out.extend(spacing.bits().to_le_bytes());
            }
            Step::News(size, grid) => {
                out.extend([13, size]);
                write_grid(grid, out);
            }
            Step::Difference(Difference { way, size, float }) => {
                out.extend([10, way as u8, size, u8::from(float)]);
            }
        }
    }

    fn parse(bytes: &mut &[u8]) -> Option<Step> {
        fn take<const N: usize>(bytes: &mut &[u8]) -> Option<[u8; N]> {
            let (head, rest) = bytes.split_first_chunk::<N>()?;
            *bytes = rest;
            Some(*head)
        }
        fn grid(size: u8, bytes: &mut &[u8]) -> Option<Grid> {
            let [reckoning] = take(bytes)?;
            let reckoning = *Reckoning::ALL.get(reckoning as usize)?;
            let row = u32::from_le_bytes(take(bytes)?);
            let plane = u32::from_le_bytes(take(bytes)?);
            Some(Grid { size, reckoning, row, plane })
        }
        let [id] = take(bytes)?;
        let step = match id {
            1 => Step::Shuffle(take::<1>(bytes)?[0]),
            2 => Step::BitShuffle(take::<1>(bytes)?[0]),
            3 => {
                let [element, count] = take(bytes)?;
                Step::Split(element, count)
            }
            4 => {
                let [size] = take(bytes)?;
                Step::Lorenzo(grid(size, bytes)?)
            }
            5 => Step::Fpc(take::<1>(bytes)?[0]),
            6 => {
                let [numbers, level] = take(bytes)?;
                Step::Pco(*Numbers::ALL.get(numbers as usize)?, level)
            }
            7 => Step::Lz4,
            8 => Step::Zstd(take::<1>(bytes)?[0]),
            9 => Step::Deflate(take::<1>(bytes)?[0]),
            10 => {
                let [way, size, float] = take(bytes)?;
                let way = *[Way::Subtract, Way::Fold, Way::Xor].get(way as usize)?;
                Step::Difference(Difference { way, size, float: float == 1 })
            }
            11 => Step::Repeats(take::<1>(bytes)?[0]),
            12 => {
                let [size] = take(bytes)?;
                Step::Multiples(size, Spacing::from_bits(u64::from_le_bytes(take(bytes)?))?)
            }
            13 => {
                let [size] = take(bytes)?;
                Step::News(size, grid(size & !repeats::THOROUGH, bytes)?)
            }
            _ => return None,
        };
        Some(step).filter(|step| step.is_valid())
    }
}

impl Codec for Step {
    fn encode(&self, raw: &[u8]) -> Result<Vec<u8>> {
        if self.keeps_length() {
            let mut out = vec![0; raw.len()];
            self.transform(raw, &mut out)?;
            return Ok(out);
        }
        match *self {
            Step::Fpc(size) => Ok(fpc::encode(raw, size as usize)),
            Step::Repeats(size) => repeats::encode(raw, size, None),
            Step::News(size, grid) => repeats::encode(raw, size, Some(grid)),
            Step::Multiples(size, spacing) => Ok(multiples::encode(raw, size, spacing)),
            Step::Pco(numbers, level) => numbers::encode(raw, numbers, level),
            Step::Lz4 => Ok(lz4_flex::block::compress(raw)),
            Step::Zstd(level) => general::zstd_encode(raw, i32::from(level)),
            Step::Deflate(level) => general::deflate_encode(raw, level),
            _ => Err(needs_before()),
        }
    }

    fn decode(&self, encoded: &[u8], raw: &mut [u8]) -> Result<()> {
        if self.keeps_length() && encoded.len() != raw.len() {
            return Err(Error::damaged("a frame has the wrong length"));
        }
        match *self {
            Step::Difference(_) => return Err(needs_before()),
            Step::Shuffle(size) => shuffle::unbytes(encoded, raw, size as usize),
            Step::BitShuffle(size) => shuffle::unbits(encoded, raw, size as usize),
            Step::Split(element, count) => {
                shuffle::unsplit(encoded, raw, element as usize, count as usize);
            }
            Step::Lorenzo(grid) => lorenzo::decode(encoded, raw, grid),
            Step::Fpc(size) => fpc::decode(encoded, raw, size as usize)?,
            Step::Repeats(size) => repeats::decode(encoded, raw, size, None)?,
            Step::News(size, grid) => repeats::decode(encoded, raw, size, Some(grid))?,
            Step::Multiples(size, spacing) => multiples::decode(encoded, raw, size, spacing)?,
            Step::Pco(numbers, _) => numbers::decode(encoded, raw, numbers)?,
            Step::Lz4 => general::lz4_decode(encoded, raw)?,
            Step::Zstd(_) => general::zstd_decode(encoded, raw)?,
            Step::Deflate(_) => general::deflate_decode(encoded, raw)?,
        }
        Ok(())
    }
}

/// What one step has made for the next.
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

fn write_grid(grid: Grid, out: &mut Vec<u8>) {
    out.push(grid.reckoning as u8);
    out.extend(grid.row.to_le_bytes());
    out.extend(grid.plane.to_le_bytes());
}

fn needs_before() -> Error {
    Error::usage("a difference needs the bytes before")
}

/// Whether these make a chain.
fn is_chain(steps: &[Step]) -> bool {
    let differences = steps.iter().skip(1).filter(|step| matches!(step, Step::Difference(_)));
    steps.len() <= MAX_STEPS && steps.iter().all(|step| step.is_valid()) && differences.count() == 0
}

impl Chain {
    /// Up to four steps.
    pub fn new(steps: &[Step]) -> Result<Chain> {
        match is_chain(steps) {
            true => Ok(Chain(steps.to_vec())),
            false => Err(Error::usage("this is no chain of encoders")
                .hint("give up to four steps, with levels and sizes that exist")),
        }
    }

    pub(crate) fn steps(&self) -> &[Step] {
        &self.0
    }

    /// Whether it needs the bytes before.
    pub fn is_difference(&self) -> bool {
        matches!(self.0.first(), Some(Step::Difference(_)))
    }

    /// Encodes what is left of `raw` without `before`, which has the same length.
    pub fn encode_beside(&self, raw: &[u8], before: &[u8]) -> Result<Vec<u8>> {
        let Some(Step::Difference(difference)) = self.0.first() else { return self.encode(raw) };
        if raw.len() != before.len() {
            return Err(needs_before());
        }
        let mut left = Scratch::new(raw.len())?;
        difference.take(raw, before, &mut left);
        self.behind().encode(&left)
    }

    /// Decodes what was encoded beside `before`.
    pub fn decode_beside(&self, encoded: &[u8], before: &[u8], raw: &mut [u8]) -> Result<()> {
        let Some(Step::Difference(difference)) = self.0.first() else {
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
        let unknown = || {
            Error::damaged("a pack names a codec that this release does not have")
                .hint("use a newer release of treering")
        };
        let (count, rest) = bytes.split_first().ok_or_else(unknown)?;
        bytes = rest;
        let steps: Option<Vec<Step>> = (0..*count).map(|_| Step::parse(&mut bytes)).collect();
        match steps.filter(|steps| bytes.is_empty() && is_chain(steps)) {
            Some(steps) => Ok(Chain(steps)),
            None => Err(unknown()),
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
        // How long what each step was given is; all but those behind a step that changes it are as
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

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Step::Difference(Difference { way: Way::Xor, .. }) => f.write_str("xor step before"),
            Step::Difference(_) => f.write_str("minus step before"),
            Step::Shuffle(size) => write!(f, "shuffle {size}"),
            Step::BitShuffle(size) => write!(f, "bit shuffle {size}"),
            Step::Split(_, count) => write!(f, "split {count}"),
            Step::Lorenzo(grid) => write!(f, "predict {}-D", grid.axes()),
            Step::Fpc(_) => f.write_str("fpc"),
            Step::Repeats(_) => f.write_str("repeats"),
            Step::News(_, grid) => write!(f, "repeats and predict {}-D", grid.axes()),
            Step::Multiples(..) => f.write_str("multiples"),
            Step::Pco(_, level) => write!(f, "pco {}", level & !numbers::PREDICTED),
            Step::Lz4 => f.write_str("lz4"),
            Step::Zstd(level) => write!(f, "zstd {level}"),
            Step::Deflate(level) => write!(f, "deflate {level}"),
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
