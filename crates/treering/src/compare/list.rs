//! Every differing index with both values, written as it is found.

use super::judge::Value;
use crate::array::Rank;
use crate::error::{Error, Result};
use crate::io::AtomicFile;
use serde::Serialize;
use std::path::Path;

/// One difference.
#[derive(Serialize)]
pub(super) struct Line<'a> {
    pub(super) step: Option<u64>,
    pub(super) rank: Rank,
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

/// A file of differences: records of an `.npy` array if its name ends so, otherwise JSON lines.
///
/// ```
/// use treering::{CompareSettings, DType, DifferenceList, RawLayout, compare, open_side};
/// # let folder = tempfile::tempdir().unwrap();
/// # let [a, b] = ["a.f64", "b.f64"].map(|name| folder.path().join(name).display().to_string());
/// # std::fs::write(&a, 1.0f64.to_le_bytes()).unwrap();
/// # std::fs::write(&b, 1.5f64.to_le_bytes()).unwrap();
/// # let raw = RawLayout::values(DType::F64, None);
/// # let path = folder.path().join("differences.jsonl");
/// let (a, b) = (open_side(&a, Some(&raw), true)?, open_side(&b, Some(&raw), true)?);
/// let mut list = DifferenceList::create(&path)?;
/// compare(a.as_ref(), b.as_ref(), &CompareSettings::default(), Some(&mut list), &|_, _| {})?;
/// assert_eq!(list.finish()?, 1); // the file appears now
/// # Ok::<(), treering::Error>(())
/// ```
pub struct DifferenceList {
    out: AtomicFile,
    records: bool,
    count: u64,
}

/// The length of the head of an `.npy` file with a count of up to 20 digits.
const HEAD: usize = 256;

impl DifferenceList {
    /// Begins a file. It appears when it is complete, and replaces an older one.
    pub fn create(path: &Path) -> Result<DifferenceList> {
        let records = path.extension().is_some_and(|e| e == "npy");
        let mut list = DifferenceList { out: AtomicFile::create(path)?, records, count: 0 };
        if records {
            list.out.write(&head(0))?;
        }
        Ok(list)
    }

    pub(super) fn add(&mut self, line: &Line) -> Result<()> {
        self.count += 1;
        if !self.records {
            let mut text = serde_json::to_vec(line)
                .map_err(|e| Error::usage(format!("a difference cannot be written: {e}")))?;
            text.push(b'\n');
            return self.out.write(&text);
        }
        let parts = |value: &Value| match value {
            Value::Int(x) => [*x as f64, 0.0],
            Value::Float(x) => [*x, 0.0],
            Value::Complex(re, im) => [*re, *im],
            Value::Text(_) => [f64::NAN, 0.0],
        };
        let mut record = Vec::with_capacity(64);
        record.extend((line.step.map_or(-1, |step| step as i64)).to_le_bytes());
        record.extend(line.rank.0.to_le_bytes());
        record.extend(line.number.to_le_bytes());
        record.extend(line.place.to_le_bytes());
        for part in [parts(&line.a), parts(&line.b)].concat() {
            record.extend(part.to_le_bytes());
        }
        self.out.write(&record)
    }

    /// Completes the file, and returns the number of differences in it.
    pub fn finish(mut self) -> Result<u64> {
        if self.records {
            self.out.rewrite_start(&head(self.count))?;
        }
        self.out.finish()?;
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
