//! The names of things in a store: where a run keeps its log and its packs.

use crate::error::{Error, Result};

/// Refuses run names that could be confused with paths, options or places.
pub fn check_run_name(name: &str) -> Result<()> {
    let good = |c: char| c.is_ascii_alphanumeric() || "._-+=".contains(c);
    let fine = !name.is_empty()
        && name.len() <= 100
        && name.chars().all(good)
        && !name.starts_with(['.', '-']);
    match fine {
        true => Ok(()),
        false => Err(Error::usage(format!("{name:?} cannot name a run"))
            .hint("use 1 to 100 letters, digits or . _ - + = and begin with a letter or a digit")),
    }
}

/// The keys of one run in a store.
#[derive(Clone, Debug)]
pub struct Names {
    run: String,
}

/// A pack of a run: which opening wrote it, and its running number there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PackName {
    /// The sequence number of the opening that wrote it.
    pub writer: u64,
    /// The running number among the packs of that writer.
    pub attempt: u64,
    /// The group of ranks.
    pub group: u32,
}

impl Names {
    /// The keys of `run`, whose name has been checked.
    pub fn new(run: &str) -> Self {
        Names { run: run.into() }
    }

    /// The folder that holds all runs.
    pub const RUNS: &'static str = "runs";

    /// The folder of openings and manifests.
    pub fn log(&self) -> String {
        format!("runs/{}/log", self.run)
    }

    /// The entry with a sequence number.
    pub fn entry(&self, sequence: u64) -> String {
        format!("runs/{}/log/{sequence:012}", self.run)
    }

    /// The sequence number of a file in the log folder.
    pub fn parse_entry(file: &str) -> Option<u64> {
        let digits = file.len() >= 12 && file.bytes().all(|b| b.is_ascii_digit());
        digits.then(|| file.parse().ok()).flatten()
    }

    /// The folder of packs.
    pub fn packs(&self) -> String {
        format!("runs/{}/packs", self.run)
    }

    /// A pack.
    pub fn pack(&self, name: PackName) -> String {
        let PackName { writer, attempt, group } = name;
        format!("runs/{}/packs/{writer:06}-{attempt:06}-g{group}.pack", self.run)
    }

    /// The pack that a file in the packs folder is.
    pub fn parse_pack(file: &str) -> Option<PackName> {
        let mut parts = file.strip_suffix(".pack")?.split('-');
        let name = PackName {
            writer: parts.next()?.parse().ok()?,
            attempt: parts.next()?.parse().ok()?,
            group: parts.next()?.strip_prefix('g')?.parse().ok()?,
        };
        parts.next().is_none().then_some(name)
    }

    /// The lock that its writer holds.
    pub fn lock(&self) -> String {
        format!("runs/{}/lock", self.run)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_return_and_bad_ones_are_refused() {
        let names = Names::new("a");
        let pack = PackName { writer: 1, attempt: 1_000_000, group: 3 };
        let key = names.pack(pack);
        assert_eq!(Names::parse_pack(key.rsplit('/').next().unwrap()), Some(pack));
        assert_eq!(Names::parse_entry("000000000012"), Some(12));
        for junk in ["", "12", "00000000001x", "+00000000012", ".000000000012"] {
            assert_eq!(Names::parse_entry(junk), None);
        }
        for bad in ["", "..", ".a", "a/b", "a#b", "a@1", "-x", "ü", "a b"] {
            assert!(check_run_name(bad).is_err(), "{bad}");
        }
        for good in ["a", "Run_7.2-b", "2024-01-01"] {
            assert!(check_run_name(good).is_ok());
        }
    }
}
