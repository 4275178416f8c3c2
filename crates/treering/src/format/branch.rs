//! Branches: parts of a checkpoint of many groups, and what they make together.
//!
//! The groups of a checkpoint are the leaves of a tree. A *section* is a branch of level 0: what one group adds. A
//! branch of level 1 holds the groups of some sections, one of a higher level references branches. Each is a pure
//! function of those below it, and so is the manifest at the top: whoever makes one writes the same bytes.

use super::bytes::{Reader, Writer};
use super::manifest::{BranchRef, Branches, Groups, Manifest, Origin};
use super::names::BranchName;
use crate::error::{Error, Result};
use crate::merkle::digest;

const BRANCH: &[u8; 8] = b"TREEBRAN";

/// The most branches or groups right below a branch or a manifest. With one less there would be a branch more than G/63 + 1
/// for some numbers of groups G.
pub const FAN: u32 = 65;

/// A manifest is no larger than this: else its groups stand in branches.
const MANIFEST_BYTES: usize = 8 << 10;

/// Levels are below this: with two below each, 32 are more than there can be.
pub(super) const MAX_LEVEL: u8 = 32;

/// A part of a checkpoint: some groups that follow each other.
#[derive(Clone, Debug, PartialEq)]
pub struct Branch {
    /// The number of groups of the whole checkpoint.
    pub of: u32,
    /// 0 for the section of one group.
    pub level: u8,
    /// Its number among all of its level.
    pub index: u32,
    /// The manifest of these groups, as if there were no others.
    pub part: Manifest,
}

impl Branch {
    /// Its place in the tree of its checkpoint.
    pub fn name(&self) -> BranchName {
        let (sequence, writer) = (self.part.sequence, self.part.writer);
        BranchName { sequence, writer, level: self.level, index: self.index }
    }

    /// The bytes of the file.
    pub fn write(&self) -> Vec<u8> {
        let mut out = Writer::file(BRANCH);
        out.int(u64::from(self.of));
        out.byte(self.level);
        out.int(u64::from(self.index));
        self.part.write_body(&mut out);
        out.sealed()
    }

    /// Reads the bytes of the file.
    pub fn parse(bytes: &[u8]) -> Result<Self> {
        let mut reader = Reader::file(bytes, BRANCH, "section or branch")?;
        let branch = Branch {
            of: reader.u32()?,
            level: reader.byte()?,
            index: reader.u32()?,
            part: Manifest::parse_body(&mut reader)?,
        };
        reader.end()?;
        let fits = match (&branch.part.groups, branch.level) {
            (Groups::Here(groups), 0) => groups.len() == 1,
            (Groups::Here(groups), 1) => !groups.is_empty(),
            (Groups::Below(below), level) => level < MAX_LEVEL && below.level + 1 == level,
            (Groups::Here(_), _) => false,
        };
        match fits {
            true => Ok(branch),
            false => Err(Error::damaged("the content of a branch does not belong on its level")),
        }
    }

    /// The reference to it in the branch above.
    fn reference(&self) -> BranchRef {
        let bytes = self.write();
        BranchRef {
            digest: digest(&bytes),
            groups: u32::try_from(self.part.groups.count()).unwrap_or(u32::MAX),
            added: self.part.added_below().saturating_add(bytes.len() as u64),
        }
    }

    /// Joins the contents of branches or sections that follow each other.
    pub fn join(children: Vec<Branch>) -> Result<Manifest> {
        let wrong = || Error::damaged("the sections of a checkpoint do not belong together");
        let first = children.first().ok_or_else(wrong)?;
        let (of, level, index) = (first.of, first.level, first.index);
        let mut groups = match level {
            0 => Groups::Here(Vec::with_capacity(children.len())),
            _ => Groups::Below(Branches { level, first: index, refs: Vec::new() }),
        };
        let mut joined: Option<Manifest> = None;
        for (place, mut child) in children.into_iter().enumerate() {
            if (child.of, child.level) != (of, level) || child.index != index + place as u32 {
                return Err(wrong());
            }
            match &mut groups {
                Groups::Below(below) => below.refs.push(child.reference()),
                Groups::Here(all) => match &mut child.part.groups {
                    Groups::Here(own) => all.append(own),
                    Groups::Below(_) => return Err(wrong()),
                },
            }
            match &mut joined {
                None => joined = Some(child.part),
                Some(joined) => joined.add(child.part).ok_or_else(wrong)?,
            }
        }
        let joined = joined.ok_or_else(wrong)?;
        Ok(Manifest { groups, ..joined })
    }
}

impl Manifest {
    /// Adds the numbers of another part of the same checkpoint; nothing if it is of another one.
    fn add(&mut self, part: Manifest) -> Option<()> {
        let alike = (&self.run, self.sequence, self.writer, self.step)
            == (&part.run, part.sequence, part.writer, part.step)
            && (self.time, &self.epoch) == (part.time, &part.epoch)
            && (self.seed, self.ranks) == (part.seed, part.ranks);
        // A rank whose part of the checkpoint before failed names an older one, which exists.
        let older = |origin: &Option<Origin>| origin.as_ref().map_or(0, |origin| origin.sequence.0);
        if older(&part.parent) < older(&self.parent) {
            self.parent = part.parent;
        }
        self.variables = self.variables.saturating_add(part.variables);
        self.rounded = self.rounded.saturating_add(part.rounded);
        self.files = self.files.saturating_add(part.files);
        self.full_bytes = self.full_bytes.saturating_add(part.full_bytes);
        self.source_bytes = self.source_bytes.saturating_add(part.source_bytes);
        let (stats, other) = (&mut self.stats, part.stats);
        stats.same_bytes = stats.same_bytes.saturating_add(other.same_bytes);
        stats.duplicate_bytes = stats.duplicate_bytes.saturating_add(other.duplicate_bytes);
        stats.new_bytes = stats.new_bytes.saturating_add(other.new_bytes);
        stats.blocked_ns = stats.blocked_ns.max(other.blocked_ns);
        // The first part has the labels.
        (alike && part.labels.is_empty()).then_some(())
    }

    /// Whether it may stand in the log as it is: lists read all manifests of a run.
    pub(crate) fn is_small(&self) -> bool {
        matches!(self.groups, Groups::Below(_)) || self.write().len() <= MANIFEST_BYTES
    }

    /// The branches that take its groups out of it, those of level 1 first, and what is left of it. The branches
    /// make it: the first has its numbers, the others have none.
    pub fn split(self, fan: u32) -> Result<(Vec<Branch>, Manifest)> {
        let Groups::Here(groups) = self.groups else { return Ok((Vec::new(), self)) };
        let wide = || Error::damaged("a checkpoint has more groups than can be");
        let of = u32::try_from(groups.len()).map_err(|_| wide())?;
        let fan = fan.max(2) as usize;
        let mut head = Manifest { groups: Groups::Here(Vec::new()), ..self };
        let mut level = Vec::new();
        for (index, groups) in groups.chunks(fan).enumerate() {
            let part = Manifest { groups: Groups::Here(groups.to_vec()), ..head.clone() };
            level.push(Branch { of, level: 1, index: index as u32, part });
            (head.variables, head.rounded, head.files, head.full_bytes) = (0, 0, 0, 0);
            head.stats = Default::default();
            (head.labels, head.source_bytes) = (Default::default(), 0);
        }
        let mut all = Vec::new();
        while level.len() > fan {
            let mut above = Vec::new();
            for (index, children) in level.chunks(fan).enumerate() {
                let (of, level) = (children[0].of, children[0].level + 1);
                let part = Branch::join(children.to_vec())?;
                above.push(Branch { of, level, index: index as u32, part });
            }
            all.append(&mut std::mem::replace(&mut level, above));
        }
        let manifest = Branch::join(level.clone())?;
        all.append(&mut level);
        Ok((all, manifest))
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Group, PackName, Seal, Stats, WriterId};
    use super::*;
    use crate::array::{GroupId, Sequence, Step};
    use crate::merkle::Digest;
    use proptest::prelude::*;

    const WRITER: WriterId = WriterId { opening: Sequence(4), nonce: 0x0123_4567_89ab_cdef };

    fn group(number: u32) -> Group {
        let seal = Seal { size: 4096, footer: 99, digest: Digest([u64::from(number), 6]) };
        let mut group = Group { packs: Vec::new(), seal };
        group.push("a", PackName { writer: WRITER, attempt: 7, group: GroupId(number) }, seal);
        group
    }

    fn manifest(groups: impl Iterator<Item = u32>) -> Manifest {
        Manifest {
            run: "a".into(),
            sequence: Sequence(7),
            writer: WRITER,
            step: Step(100),
            time: 1_700_000_000_000,
            parent: None,
            epoch: Origin { run: None, sequence: Sequence(7) },
            seed: 42,
            ranks: 5,
            variables: 3,
            rounded: 2,
            files: 1,
            full_bytes: 12345,
            stats: Stats { same_bytes: 1, duplicate_bytes: 2, new_bytes: 3, blocked_ns: 4 },
            groups: groups.map(group).collect(),
            labels: Default::default(),
            source_bytes: 12345,
        }
    }

    fn section(of: u32, index: u32) -> Branch {
        Branch { of, level: 0, index, part: manifest(index..index + 1) }
    }

    #[test]
    fn branches_return_and_every_flipped_byte_is_seen() {
        let sections: Vec<Branch> = (0..5).map(|group| section(5, group)).collect();
        let low = Branch { of: 5, level: 1, index: 0, part: Branch::join(sections).unwrap() };
        let part = Branch::join(vec![low.clone()]).unwrap();
        let high = Branch { of: 5, level: 2, index: 0, part };
        for branch in [section(5, 3), low, high] {
            let bytes = branch.write();
            assert_eq!(Branch::parse(&bytes).unwrap(), branch);
            for at in 0..bytes.len() {
                let mut bad = bytes.clone();
                bad[at] ^= 1;
                assert!(Branch::parse(&bad).is_err() && Branch::parse(&bytes[..at]).is_err());
            }
            let other = Branch { level: branch.level + 1, ..branch };
            assert!(Branch::parse(&other.write()).is_err() || other.level == 1);
        }
    }

    #[test]
    fn what_does_not_belong_together_is_not_joined() {
        let good = || (0..3).map(|group| section(3, group)).collect::<Vec<_>>();
        let joined = Branch::join(good()).unwrap();
        assert_eq!((joined.variables, joined.full_bytes, joined.groups.count()), (9, 3 * 12345, 3));
        type Spoil = fn(&mut Branch);
        let spoils: [Spoil; 7] = [
            |b| b.of = 4,
            |b| b.index = 5,
            |b| b.part.step = Step(9),
            |b| b.part.time = 9,
            |b| b.part.seed = 9,
            |b| b.part.writer.nonce = 9,
            |b| b.part.labels = [("a", "b")].into_iter().collect(),
        ];
        for spoil in spoils {
            let mut bad = good();
            spoil(&mut bad[1]);
            assert!(Branch::join(bad).is_err());
        }
        assert!(Branch::join(Vec::new()).is_err());
    }

    /// Labels are as long as can be, and so are all numbers.
    #[test]
    fn a_manifest_is_small_whatever_it_has() {
        let labels: crate::array::Labels =
            (0..64).map(|n| (format!("{n:02}"), "v".repeat(62))).collect();
        labels.check().unwrap();
        let (step, time, full_bytes) = (Step(u64::MAX), u64::MAX, u64::MAX);
        let run = "r".repeat(100);
        let origin = Origin { run: Some(run.clone()), sequence: Sequence(u64::MAX) };
        let (parent, epoch) = (Some(origin.clone()), origin);
        for count in [1, 65, 66, 5000] {
            let own = manifest(0..count);
            let (labels, epoch, parent) = (labels.clone(), epoch.clone(), parent.clone());
            let run = run.clone();
            let whole = Manifest { run, labels, epoch, parent, step, time, full_bytes, ..own };
            let small = if whole.is_small() { whole } else { whole.split(FAN).unwrap().1 };
            assert!(small.write().len() <= MANIFEST_BYTES, "{count}: {}", small.write().len());
            assert_eq!(Manifest::parse(&small.write()).unwrap(), small);
        }
    }

    proptest! {
        /// Splitting takes the groups out, keeps them in their order, and the branches make the manifest again.
        #[test]
        fn split_manifests_hold_the_same(count in 1u32..300, fan in 2u32..20) {
            let labels = (0..63).map(|n| (format!("{n:02}"), "v".repeat(63))).collect();
            let whole = Manifest { labels, source_bytes: 5, ..manifest(0..count) };
            let (branches, small) = whole.clone().split(fan).unwrap();
            prop_assert_eq!(small.groups.count(), u64::from(count));
            prop_assert_eq!(small.full_bytes, whole.full_bytes);
            prop_assert_eq!((&small.labels, small.source_bytes), (&whole.labels, whole.source_bytes));
            let low = branches.iter().filter(|b| b.level == 1);
            let groups: Vec<Group> =
                low.flat_map(|b| b.part.groups.here().unwrap().to_vec()).collect();
            prop_assert_eq!(Groups::Here(groups), whole.groups);
            let top = branches.last().unwrap().level;
            let tops: Vec<Branch> = branches.iter().filter(|b| b.level == top).cloned().collect();
            prop_assert!(tops.len() <= fan as usize);
            prop_assert_eq!(Branch::join(tops).unwrap(), small.clone());
            prop_assert_eq!(Manifest::parse(&small.write()).unwrap(), small);
        }

        /// Behind a valid digest any bytes may stand; parsing them must not panic or allocate much.
        #[test]
        fn sealed_junk_never_panics(junk in proptest::collection::vec(any::<u8>(), 0..300), cut in 0usize..120) {
            let mut body = section(3, 1).write();
            body.truncate(body.len() - 16 - cut.min(body.len() - 40));
            body.extend_from_slice(&junk);
            let sealed = Writer(body).sealed();
            if let Ok(branch) = Branch::parse(&sealed) {
                prop_assert_eq!(Branch::parse(&branch.write()).unwrap(), branch);
            }
        }
    }
}
