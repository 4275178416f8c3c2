//! The names of things in a store: where a run keeps its log and its packs.

use crate::array::{GroupId, Sequence};
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

/// A writer of a run. The random number distinguishes it from a writer of another store that once stood at the same
/// path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WriterId {
    /// The sequence number of its opening.
    pub opening: Sequence,
    /// A random number.
    pub nonce: u64,
}

/// A pack of a run: its writer, and its running number there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PackName {
    /// The writer.
    pub writer: WriterId,
    /// The running number among the packs of that writer.
    pub attempt: u64,
    /// The group of ranks.
    pub group: GroupId,
}

/// A bundle of a run. Bundles are ordered by age: one that copies from others is of a later generation than
/// any of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BundleName {
    /// Generation: one more than the greatest that its writer saw.
    pub generation: u64,
    /// A random number.
    pub nonce: u64,
    /// The first log entry that it holds; 0 if it holds packs only.
    pub first: Sequence,
    /// The last one.
    pub last: Sequence,
}

/// A place in the tree over the groups of a checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BranchName {
    /// The checkpoint.
    pub sequence: Sequence,
    /// The writer.
    pub writer: WriterId,
    /// 0 for the section of a group, 1 for a branch that holds groups, 2 for one that holds those, and so on.
    pub level: u8,
    /// Its number among all of its level, from left to right.
    pub index: u32,
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
    pub fn entry(&self, sequence: Sequence) -> String {
        let sequence = sequence.0;
        format!("runs/{}/log/{sequence:012}", self.run)
    }

    /// The folder of the numbers of openings, so that they are known without reading the log.
    pub fn openings(&self) -> String {
        format!("runs/{}/openings", self.run)
    }

    /// The file that says that a sequence number is an opening.
    pub fn opening(&self, sequence: Sequence) -> String {
        format!("runs/{}/openings/{:012}", self.run, sequence.0)
    }

    /// The sequence number of a file in the folders of the log and of openings.
    pub fn parse_entry(file: &str) -> Option<Sequence> {
        let digits = file.len() >= 12 && file.bytes().all(|b| b.is_ascii_digit());
        digits.then(|| file.parse().ok().map(Sequence)).flatten()
    }

    /// The folder of packs.
    pub fn packs(&self) -> String {
        format!("runs/{}/packs", self.run)
    }

    /// A pack.
    pub fn pack(&self, name: PackName) -> String {
        let PackName { writer: WriterId { opening, nonce }, attempt, group } = name;
        let opening = opening.0;
        format!("runs/{}/packs/{opening:06}-{nonce:016x}-{attempt:06}-g{group}.pack", self.run)
    }

    /// The pack that a file in the packs folder is.
    pub fn parse_pack(file: &str) -> Option<PackName> {
        let mut parts = file.strip_suffix(".pack")?.split('-');
        let name = PackName {
            writer: WriterId {
                opening: Sequence(parts.next()?.parse().ok()?),
                nonce: u64::from_str_radix(parts.next()?, 16).ok()?,
            },
            attempt: parts.next()?.parse().ok()?,
            group: GroupId(parts.next()?.strip_prefix('g')?.parse().ok()?),
        };
        parts.next().is_none().then_some(name)
    }

    /// The request that a program stop at its next checkpoint.
    pub fn halt(&self) -> String {
        format!("runs/{}/halt", self.run)
    }

    /// An object that is begun and never finished, to find out whether a store can be written to.
    pub(crate) fn probe(&self, random: u64) -> String {
        format!("runs/{}/probe-{random:016x}", self.run)
    }

    /// The folder of bundles.
    pub fn bundles(&self) -> String {
        format!("runs/{}/bundles", self.run)
    }

    /// The data of a bundle.
    pub fn bundle(&self, name: BundleName) -> String {
        format!("{}.bundle", self.bundle_stem(name))
    }

    /// The index of a bundle, which makes its log entries count.
    pub fn bundle_index(&self, name: BundleName) -> String {
        format!("{}.index", self.bundle_stem(name))
    }

    fn bundle_stem(&self, name: BundleName) -> String {
        let BundleName { generation, nonce, first, last } = name;
        let (first, last) = (first.0, last.0);
        format!("runs/{}/bundles/{generation:06}-{nonce:016x}-{first:012}-{last:012}", self.run)
    }

    /// The bundle that a file in the bundles folder belongs to, and whether it is its index.
    pub fn parse_bundle(file: &str) -> Option<(BundleName, bool)> {
        let (stem, is_index) = match file.strip_suffix(".index") {
            Some(stem) => (stem, true),
            None => (file.strip_suffix(".bundle")?, false),
        };
        let mut parts = stem.split('-');
        let name = BundleName {
            generation: parts.next()?.parse().ok()?,
            nonce: u64::from_str_radix(parts.next()?, 16).ok()?,
            first: Sequence(parts.next()?.parse().ok()?),
            last: Sequence(parts.next()?.parse().ok()?),
        };
        let whole = Names::new("r").bundle_stem(name);
        (parts.next().is_none() && whole.strip_prefix("runs/r/bundles/") == Some(stem))
            .then_some((name, is_index))
    }

    /// The folder of the sections of checkpoints whose manifest is not there yet.
    pub fn sections(&self) -> String {
        format!("runs/{}/sections", self.run)
    }

    /// The folder of the branches of checkpoints of many groups.
    pub fn branches(&self) -> String {
        format!("runs/{}/branches", self.run)
    }

    /// A branch, or a section, which is one of level 0.
    pub fn branch(&self, name: BranchName) -> String {
        let BranchName { sequence, writer, level, index } = name;
        let (opening, nonce) = (writer.opening.0, writer.nonce);
        let of = format!("{:012}-{opening:06}-{nonce:016x}", sequence.0);
        match level {
            0 => format!("{}/{of}-g{index:06}", self.sections()),
            _ => format!("{}/{of}-b{level}-{index:06}", self.branches()),
        }
    }

    /// The branch or section that a file in the folder of branches or of sections is.
    pub fn parse_branch(file: &str) -> Option<BranchName> {
        let mut parts = file.split('-');
        let sequence = Names::parse_entry(parts.next()?)?;
        let opening = Sequence(parts.next()?.parse().ok()?);
        let writer = WriterId { opening, nonce: u64::from_str_radix(parts.next()?, 16).ok()? };
        let last = parts.next()?;
        let (level, index) = match last.strip_prefix('g') {
            Some(group) => (0, group.parse().ok()?),
            None => (last.strip_prefix('b')?.parse().ok()?, parts.next()?.parse().ok()?),
        };
        parts.next().is_none().then_some(BranchName { sequence, writer, level, index })
    }

    /// The note in a tier that is in front of others: which store its checkpoints move to.
    pub fn tier(&self) -> String {
        format!("runs/{}/tier", self.run)
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
        let writer = WriterId { opening: Sequence(1), nonce: 0xfedc };
        let pack = PackName { writer, attempt: 1_000_000, group: GroupId(3) };
        let key = names.pack(pack);
        assert_eq!(Names::parse_pack(key.rsplit('/').next().unwrap()), Some(pack));
        let bundle =
            BundleName { generation: 4, nonce: 0xab, first: Sequence(2), last: Sequence(9) };
        for (key, is_index) in [(names.bundle(bundle), false), (names.bundle_index(bundle), true)] {
            let file = key.rsplit('/').next().unwrap();
            assert_eq!(Names::parse_bundle(file), Some((bundle, is_index)));
            for junk in [format!("0{file}"), format!("+{}", &file[1..]), file.replace("-", "")] {
                assert_eq!(Names::parse_bundle(&junk), None, "{junk}");
            }
        }
        assert_eq!(Names::parse_entry("000000000012"), Some(Sequence(12)));
        for (level, index, folder) in [(0, 1_048_575, "sections"), (2, 17, "branches")] {
            let name = BranchName { sequence: Sequence(12), writer, level, index };
            let key = names.branch(name);
            let file = key.strip_prefix(&format!("runs/a/{folder}/")).unwrap();
            assert_eq!(Names::parse_branch(file), Some(name));
        }
        let begin = "000000000012-1-2";
        for junk in ["", begin, "x-1-2-g3", "000000000012-1-2-3"] {
            assert_eq!(Names::parse_branch(junk), None);
        }
        for junk in ["-3", "-g3-4", "-b1", "-b1-2-3", "-b300-1"] {
            assert_eq!(Names::parse_branch(&format!("{begin}{junk}")), None);
        }
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
