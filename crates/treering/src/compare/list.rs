//! Every differing index with both values, written as it is found.

use super::judge::Value;
use crate::error::{Error, Result};
use serde::Serialize;
use std::fs::File;
use std::io::{BufWriter, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

/// One difference.
#[derive(Serialize)]
pub(super) struct Line<'a> {
    pub(super) step: Option<u64>,
    pub(super) rank: u32,
    pub(super) variable: &'a str,
    pub(super) index: &'a [u64],
    #[serde(skip)]
    pub(super) place: u64,
    /// The position of the variable in the outcome.
    #[serde(skip)]
    pub(super) number: u32,
    pub(super) a: Value,
    pub(super) b: Value,
}

/// A file of differences: records of an `.npy` array if it is named so, else JSON lines.
pub struct List {
    path: PathBuf,
    out: BufWriter<File>,
    records: bool,
    count: u64,
}

/// The length of the head of an `.npy` file with a count of up to 20 digits.
const HEAD: usize = 256;

impl List {
    /// Creates the file, or replaces it.
    pub fn create(path: &Path) -> Result<List> {
        let failed = |e| Error::io(format!("cannot write {}", path.display()), e);
        let out = BufWriter::new(File::create(path).map_err(failed)?);
        let records = path.extension().is_some_and(|e| e == "npy");
        let mut list = List { path: path.into(), out, records, count: 0 };
        if records {
            list.write(&head(0))?;
        }
        Ok(list)
    }

    fn write(&mut self, bytes: &[u8]) -> Result<()> {
        let failed = |e| Error::io(format!("cannot write {}", self.path.display()), e);
        self.out.write_all(bytes).map_err(failed)
    }

    pub(super) fn add(&mut self, line: &Line) -> Result<()> {
        self.count += 1;
        if !self.records {
            let mut text = serde_json::to_vec(line)
                .map_err(|e| Error::usage(format!("a difference cannot be written: {e}")))?;
            text.push(b'\n');
            return self.write(&text);
        }
        let parts = |value: Value| match value {
            Value::Int(x) => [x as f64, 0.0],
            Value::Float(x) => [x, 0.0],
            Value::Complex(re, im) => [re, im],
        };
        let mut record = Vec::with_capacity(64);
        record.extend((line.step.map_or(-1, |step| step as i64)).to_le_bytes());
        record.extend(line.rank.to_le_bytes());
        record.extend(line.number.to_le_bytes());
        record.extend(line.place.to_le_bytes());
        for part in [parts(line.a), parts(line.b)].concat() {
            record.extend(part.to_le_bytes());
        }
        self.write(&record)
    }

    /// Completes the file.
    pub fn finish(mut self) -> Result<u64> {
        let failed = |e| Error::io(format!("cannot write {}", self.path.display()), e);
        if self.records {
            self.out.seek(SeekFrom::Start(0)).map_err(failed)?;
            self.out.write_all(&head(self.count)).map_err(failed)?;
        }
        self.out.flush().map_err(failed)?;
        Ok(self.count)
    }
}

/// A head whose length does not depend on the count. A value of a real array has no imaginary part.
fn head(count: u64) -> Vec<u8> {
    let text = format!(
        "{{'descr': [('step', '<i8'), ('rank', '<u4'), ('variable', '<u4'), ('index', '<u8'), \
         ('a', '<c16'), ('b', '<c16')], 'fortran_order': False, 'shape': ({count},), }}"
    );
    let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
    bytes.extend(((HEAD - 10) as u16).to_le_bytes());
    bytes.extend(text.as_bytes());
    bytes.resize(HEAD - 1, b' ');
    bytes.push(b'\n');
    bytes
}
