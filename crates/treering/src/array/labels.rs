//! Labels: short texts under names, on checkpoints and, as attributes, on variables.
//!
//! They are for people and for filters; nothing is computed from them. All limits are checked here, once, for what a
//! program hands over and for what is read from a store alike: a set of labels always fits into a manifest.

use crate::error::{Error, Result};
use std::collections::BTreeMap;
use std::fmt;

/// The most labels of a checkpoint, and the most attributes of a variable.
const MAX_LABELS: usize = 64;
/// The longest key, in bytes.
const MAX_KEY: usize = 64;
/// The longest value, in bytes.
const MAX_TEXT: usize = 1024;
/// The most bytes of all keys and values together.
const MAX_TOTAL: usize = 4096;
/// Keys that every checkpoint has anyway.
const TAKEN: [&str; 2] = ["run", "step"];
/// The first letters of keys that exports use themselves.
const RESERVED: &str = "treering";

/// Texts by their keys: the labels of a checkpoint, or the attributes of a variable.
///
/// There are at most 64, with keys of 1 to 64 bytes and values of up to 1,024 bytes, and all of them together have at
/// most 4,096 bytes.
///
/// ```
/// use treering::Labels;
/// let labels: Labels = [("git", "4542149"), ("cells", "1000")].into_iter().collect();
/// assert_eq!(labels.get("git"), Some("4542149"));
/// assert_eq!(labels.to_string(), "cells=1000, git=4542149");
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "tools", derive(serde::Serialize), serde(transparent))]
pub struct Labels(BTreeMap<String, String>);

impl Labels {
    /// Sets the text of a key; an earlier text of it is replaced.
    pub(crate) fn set(&mut self, key: &str, text: impl fmt::Display) {
        self.0.insert(key.to_string(), text.to_string());
    }

    /// The text of a key.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.0.get(key).map(String::as_str)
    }

    /// Keys and texts, in the order of the keys.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, &str)> {
        self.0.iter().map(|(key, text)| (key.as_str(), text.as_str()))
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// These, and those of another set, which replace equal keys.
    pub(crate) fn with(&self, others: &Labels) -> Labels {
        let all = self.0.iter().chain(&others.0);
        Labels(all.map(|(key, text)| (key.clone(), text.clone())).collect())
    }

    /// Refuses keys and texts beyond the limits.
    pub(crate) fn check(&self) -> Result<()> {
        let total = self.0.iter().map(|(key, text)| key.len() + text.len()).sum::<usize>();
        let wrong = |what: String| Err(Error::usage(what));
        if self.0.len() > MAX_LABELS {
            return wrong(format!("{} labels are too many: at most {MAX_LABELS}", self.0.len()));
        }
        for (key, text) in &self.0 {
            if let Some(fault) = key_fault(key) {
                return wrong(format!("the key {key:?} {fault}"));
            }
            if text.len() > MAX_TEXT {
                let len = text.len();
                return wrong(format!("the value of {key:?} has {len} bytes: at most {MAX_TEXT}"));
            }
            let is_odd = |c: char| c.is_control() && c != '\n' && c != '\t';
            if text.chars().any(is_odd) {
                return wrong(format!("the value of {key:?} has a control character"));
            }
        }
        match total <= MAX_TOTAL {
            true => Ok(()),
            false => {
                wrong(format!("keys and values have {total} bytes together: at most {MAX_TOTAL}"))
            }
        }
    }
}

fn key_fault(key: &str) -> Option<String> {
    if key.is_empty() || key.len() > MAX_KEY {
        return Some(format!("has {} bytes: expected 1 to {MAX_KEY}", key.len()));
    }
    if key.chars().any(|c| c.is_control() || matches!(c, '=' | ':')) || key.trim() != key {
        return Some("has '=', ':', a control character, or a space at an end".into());
    }
    if TAKEN.contains(&key) || key.starts_with(RESERVED) {
        return Some("is reserved".into());
    }
    None
}

impl fmt::Display for Labels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, (key, text)) in self.0.iter().enumerate() {
            let between = if number == 0 { "" } else { ", " };
            write!(f, "{between}{key}={}", text.replace('\n', "\\n").replace('\t', "\\t"))?;
        }
        Ok(())
    }
}

impl<K: AsRef<str>, T: fmt::Display> FromIterator<(K, T)> for Labels {
    fn from_iter<I: IntoIterator<Item = (K, T)>>(items: I) -> Self {
        let mut labels = Labels::default();
        items.into_iter().for_each(|(key, text)| labels.set(key.as_ref(), text));
        labels
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_told_by_name() {
        let one = |key: &str, text: &str| Labels::from_iter([(key, text)]).check();
        let why = |checked: Result<()>| checked.unwrap_err().to_string();
        assert!(one("git commit", "4542149\n+ changes").is_ok() && one("ö", "").is_ok());
        assert!(one(&"k".repeat(64), &"v".repeat(1024)).is_ok());
        for key in ["", "a=b", "a:b", " a", "a\n", "run", "step", "treering_type"] {
            assert!(why(one(key, "x")).contains(&format!("{key:?}")), "{key:?}");
        }
        assert!(why(one(&"k".repeat(65), "x")).contains("65 bytes"));
        assert!(why(one("k", &"v".repeat(1025))).contains("1025 bytes"));
        assert!(why(one("k", "\u{1b}[31m")).contains("control character"));
        let many = |count: usize, len: usize| -> Labels {
            (0..count).map(|n| (format!("{n:02}"), "v".repeat(len))).collect()
        };
        assert!(many(64, 62).check().is_ok());
        assert!(why(many(65, 1).check()).contains("65 labels"));
        assert!(why(many(64, 63).check()).contains("4160 bytes"));
    }

    #[test]
    fn later_sets_replace_earlier_ones() {
        let all = Labels::from_iter([("a", 1), ("b", 2)]);
        let joined = all.with(&Labels::from_iter([("b", 3), ("c", 4)]));
        assert_eq!(joined.to_string(), "a=1, b=3, c=4");
        assert_eq!((joined.get("b"), joined.get("d"), joined.iter().len()), (Some("3"), None, 3));
    }
}
