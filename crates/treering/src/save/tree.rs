//! The shape of the tree over the groups of a checkpoint.

use crate::array::GroupId;
use std::ops::Range;

/// A group, and the number of all groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct GroupOf {
    pub(crate) group: GroupId,
    pub(crate) groups: u32,
}

/// Sections are its leaves (level 0), the manifest is its root, and branches are what lies between.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct GroupTree {
    pub(crate) groups: u32,
    pub(crate) fan: u32,
}

impl GroupTree {
    /// The number of sections below a branch that is full.
    fn span(self, level: u8) -> u64 {
        u64::from(self.fan.max(2)).saturating_pow(level.into())
    }

    /// The number of branches of a level.
    pub(crate) fn width(self, level: u8) -> u32 {
        u64::from(self.groups).div_ceil(self.span(level)) as u32
    }

    /// The level right below the manifest.
    pub(crate) fn top(self) -> u8 {
        let mut level = 0;
        while self.width(level) > self.fan.max(2) {
            level += 1;
        }
        level
    }

    /// The branch of a level above a group.
    pub(crate) fn above(self, group: GroupId, level: u8) -> u32 {
        (u64::from(group.0) / self.span(level)) as u32
    }

    /// The objects right below a branch, on the level below its own.
    pub(crate) fn children(self, level: u8, index: u32) -> Range<u32> {
        let (first, fan) = (u64::from(index) * self.span(1), self.span(1));
        let end = (first + fan).min(self.width(level.saturating_sub(1)).into());
        first.min(end) as u32..end as u32
    }

    /// The number of all branches.
    #[cfg(test)]
    pub(crate) fn branches(self) -> u64 {
        (1..=self.top()).map(|level| u64::from(self.width(level))).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::FAN;
    use proptest::prelude::*;

    proptest! {
        /// Every branch below the manifest is the child of exactly one above it, and no family is larger than the fan.
        #[test]
        fn the_tree_has_every_group_once(groups in 1u32..100_000, fan in 2u32..100) {
            let tree = GroupTree { groups, fan };
            prop_assert!((1..=fan).contains(&tree.width(tree.top())));
            for level in 1..=tree.top() {
                let mut next = 0;
                for index in 0..tree.width(level) {
                    let children = tree.children(level, index);
                    prop_assert_eq!(children.start, next);
                    prop_assert!((1..=fan as usize).contains(&children.len()));
                    next = children.end;
                }
                prop_assert_eq!(next, tree.width(level - 1));
                let last = GroupId(groups - 1);
                prop_assert_eq!(tree.above(last, level), tree.width(level) - 1);
            }
        }

        /// Packs, sections, branches and the manifest of a checkpoint.
        #[test]
        fn there_are_few_objects(groups in 1u32..10_000_000) {
            let tree = GroupTree { groups, fan: FAN };
            prop_assert!(tree.branches() <= u64::from(groups / 63 + 1));
        }
    }

    #[test]
    fn a_manifest_of_few_groups_has_no_branches() {
        for (groups, branches) in [(1, 0), (65, 0), (66, 2), (4225, 65), (4226, 68), (1 << 15, 513)]
        {
            assert_eq!(GroupTree { groups, fan: FAN }.branches(), branches);
        }
    }
}
