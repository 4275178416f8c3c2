//! Labels of checkpoints and attributes of variables: keys and texts, in the order of the keys.

use super::bytes::{Reader, Writer};
use crate::array::Labels;
use crate::error::{Error, Result};

pub(super) fn write_labels(out: &mut Writer, labels: &Labels) {
    out.int(labels.iter().len() as u64);
    for (key, text) in labels.iter() {
        out.string(key);
        out.string(text);
    }
}

/// Reads labels; there is at least one, and each key comes behind the one before it.
pub(super) fn parse_labels(reader: &mut Reader) -> Result<Labels> {
    let wrong = || Error::damaged("corrupt list of labels");
    let mut labels = Labels::default();
    let mut last = String::new();
    for _ in 0..reader.count()? {
        let (key, text) = (reader.string()?, reader.string()?);
        if key <= last {
            return Err(wrong());
        }
        labels.set(&key, text);
        last = key;
    }
    match labels.is_empty() || labels.check().is_err() {
        true => Err(wrong()),
        false => Ok(labels),
    }
}
