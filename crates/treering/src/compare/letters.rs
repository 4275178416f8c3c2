//! Findings of strips on their way to other ranks, with all their bits. Pure.

use super::judge::{Number, Value};
use super::outcome::Picture;
use super::strip::StripFinding;
use super::tally::{Classes, Tally};
use crate::comm::garbled;
use crate::error::{Error, ErrorKind, Result};

/// Findings of a rank: the number of its first task, the bytes that it has read, and the result of each task.
pub(super) struct FoundShare {
    pub(super) first: usize,
    pub(super) read: u64,
    pub(super) found: Vec<Result<StripFinding>>,
}

/// Collects numbers and texts.
#[derive(Default)]
struct LetterWriter(Vec<u8>);

impl LetterWriter {
    fn word(&mut self, word: u64) {
        self.0.extend_from_slice(&word.to_le_bytes());
    }

    fn words(&mut self, words: &[u64]) {
        self.word(words.len() as u64);
        words.iter().for_each(|word| self.word(*word));
    }

    fn value(&mut self, value: &Value) {
        let (kind, a, b) = match value {
            Value::Int(x) => (0, *x as u64, (x >> 64) as u64),
            Value::Float(x) => (1, x.to_bits(), 0),
            Value::Complex(x, y) => (2, x.to_bits(), y.to_bits()),
            // Texts are looked up where all findings are.
            Value::Text(_) => (0, 0, 0),
        };
        [kind, a, b].into_iter().for_each(|word| self.word(word));
    }

    fn error(&mut self, error: &Error) {
        let text = error.to_string();
        self.word(u64::from(error.kind().code()));
        self.word(text.len() as u64);
        self.0.extend_from_slice(text.as_bytes());
    }

    fn finding(&mut self, found: &StripFinding) {
        let StripFinding { tally, undecided, mismatched, read, placed, listed, pictures, trouble } =
            found;
        let Tally {
            differences,
            nan_differences,
            largest,
            times_bound,
            finite,
            squares,
            first,
            nans,
            classes,
        } = tally;
        [*differences, *nan_differences, *finite].into_iter().for_each(|word| self.word(word));
        [*largest, *times_bound, *squares].into_iter().for_each(|size| self.word(size.to_bits()));
        nans.iter().for_each(|count| self.word(*count));
        self.word(u64::from(first.is_some()));
        first.iter().for_each(|(index, a, b)| {
            self.word(*index);
            self.value(a);
            self.value(b);
        });
        self.words(&classes.0);
        [*undecided, *mismatched, *read].into_iter().for_each(|word| self.word(word));
        self.words(&placed.iter().flat_map(|p| [p.start, p.end]).collect::<Vec<_>>());
        self.word(listed.len() as u64);
        for (place, a, b) in listed {
            self.word(*place);
            self.value(a);
            self.value(b);
        }
        self.word(pictures.len() as u64);
        // Slices are cut when everything has arrived.
        for Picture { axes, extent, size, cells, slice: _ } in pictures {
            self.words(&axes.iter().map(|axis| *axis as u64).collect::<Vec<_>>());
            self.words(extent);
            self.words(size);
            self.words(&cells.iter().map(|cell| cell.0.to_bits()).collect::<Vec<_>>());
        }
        self.word(u64::from(trouble.is_some()));
        trouble.iter().for_each(|error| self.error(error));
    }
}

struct LetterReader<'a>(&'a [u8]);

impl LetterReader<'_> {
    fn word(&mut self) -> Result<u64> {
        let (word, rest) = self.0.split_first_chunk::<8>().ok_or_else(garbled)?;
        self.0 = rest;
        Ok(u64::from_le_bytes(*word))
    }

    /// A number of things that take a word each at least.
    fn count(&mut self) -> Result<usize> {
        let count = self.word()?;
        match count <= self.0.len() as u64 / 8 {
            true => Ok(count as usize),
            false => Err(garbled()),
        }
    }

    fn words(&mut self) -> Result<Vec<u64>> {
        let count = self.count()?;
        (0..count).map(|_| self.word()).collect()
    }

    fn value(&mut self) -> Result<Value> {
        let (kind, a, b) = (self.word()?, self.word()?, self.word()?);
        Ok(match kind {
            0 => Value::Int(i128::from(b as i64) << 64 | i128::from(a)),
            1 => Value::Float(f64::from_bits(a)),
            2 => Value::Complex(f64::from_bits(a), f64::from_bits(b)),
            _ => return Err(garbled()),
        })
    }

    fn place(&mut self) -> Result<(u64, Value, Value)> {
        Ok((self.word()?, self.value()?, self.value()?))
    }

    fn error(&mut self) -> Result<Error> {
        let code = self.word()?;
        let len = usize::try_from(self.word()?).map_err(|_| garbled())?;
        let (text, rest) = self.0.split_at_checked(len).ok_or_else(garbled)?;
        self.0 = rest;
        let kind = u8::try_from(code).ok().and_then(ErrorKind::from_code);
        let text = String::from_utf8_lossy(text).into_owned();
        Ok(Error::new(kind.unwrap_or(ErrorKind::Io), text))
    }

    fn finding(&mut self) -> Result<StripFinding> {
        let mut tally = Tally {
            differences: self.word()?,
            nan_differences: self.word()?,
            finite: self.word()?,
            largest: f64::from_bits(self.word()?),
            times_bound: f64::from_bits(self.word()?),
            squares: f64::from_bits(self.word()?),
            nans: [self.word()?, self.word()?],
            ..Tally::default()
        };
        tally.first = if self.word()? == 1 { Some(self.place()?) } else { None };
        tally.classes = Classes(self.words()?);
        let (undecided, mismatched, read) = (self.word()?, self.word()?, self.word()?);
        let placed = match self.words()?[..] {
            [start, end] => Some(start..end),
            _ => None,
        };
        let listed = (0..self.count()?).map(|_| self.place()).collect::<Result<_>>()?;
        let pictures = (0..self.count()?).map(|_| self.picture()).collect::<Result<_>>()?;
        let trouble = if self.word()? == 1 { Some(self.error()?) } else { None };
        Ok(StripFinding { tally, undecided, mismatched, read, placed, listed, pictures, trouble })
    }

    fn picture(&mut self) -> Result<Picture> {
        let axes = self.words()?.into_iter().map(|axis| axis as usize).collect();
        let (extent, size) = (self.words()?, self.words()?);
        let cells = self.words()?.into_iter().map(|bits| Number(f64::from_bits(bits))).collect();
        Ok(Picture { axes, extent, size, cells, slice: None })
    }
}

impl FoundShare {
    pub(super) fn write(&self) -> Vec<u8> {
        let mut out = LetterWriter::default();
        let words = [self.first as u64, self.read, self.found.len() as u64];
        words.into_iter().for_each(|word| out.word(word));
        for found in &self.found {
            out.word(u64::from(found.is_err()));
            match found {
                Ok(found) => out.finding(found),
                Err(error) => out.error(error),
            }
        }
        out.0
    }

    pub(super) fn parse(bytes: &[u8]) -> Result<FoundShare> {
        let mut reader = LetterReader(bytes);
        let (first, read, count) = (reader.word()? as usize, reader.word()?, reader.count()?);
        let mut found = Vec::new();
        for _ in 0..count {
            found.push(match reader.word()? {
                0 => Ok(reader.finding()?),
                _ => Err(reader.error()?),
            });
        }
        Ok(FoundShare { first, read, found })
    }
}
