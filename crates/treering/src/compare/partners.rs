//! Names by which the variables of two sides are partners, decided once for each pair of states.
//!
//! An array of a file is known by its file and its own name. If each side is arrays of one file, the names of the files
//! tell nothing: a person has named them, or runs were made of them. Then arrays are partners by their own names.

use super::side::{FileView, SideEntry};
use crate::array::{Rank, Step};
use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

/// The names by which variables are partners.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PartnerNames {
    /// File and array; the name of the variable where no file is known.
    Full,
    /// The array alone.
    Array,
}

/// A variable, and its name among partners.
pub(super) struct PartnerCandidate<'e> {
    pub(super) entry: &'e SideEntry<'e>,
    pub(super) name: Cow<'e, str>,
}

impl PartnerNames {
    /// The names for two sides. Trees and programs tell nothing of files: arrays of one file are their partners by full
    /// names if there are such, as in a golden file that was made of a folder, otherwise by their own names.
    pub(super) fn of(a: &[SideEntry], b: &[SideEntry]) -> PartnerNames {
        match (only_file(a), only_file(b)) {
            (Some(Some(_)), Some(Some(_))) => PartnerNames::Array,
            (Some(Some(_)), Some(None)) | (Some(None), Some(Some(_))) => {
                let names: HashSet<Cow<str>> = a.iter().map(|entry| entry.full_name()).collect();
                match b.iter().any(|entry| names.contains(&entry.full_name())) {
                    true => PartnerNames::Full,
                    false => PartnerNames::Array,
                }
            }
            _ => PartnerNames::Full,
        }
    }

    /// The name of a variable among partners.
    pub(super) fn name<'e>(self, entry: &'e SideEntry) -> Cow<'e, str> {
        match self {
            PartnerNames::Full => entry.full_name(),
            PartnerNames::Array => Cow::Borrowed(entry.array_name()),
        }
    }

    pub(super) fn candidates<'e>(self, entries: &'e [SideEntry<'e>]) -> Vec<PartnerCandidate<'e>> {
        entries.iter().map(|entry| PartnerCandidate { entry, name: self.name(entry) }).collect()
    }
}

/// The one file that all variables are arrays of, or that there is none; nothing if there are several.
fn only_file<'e>(entries: &'e [SideEntry]) -> Option<Option<&'e str>> {
    let mut files = entries.iter().map(|entry| entry.origin.as_ref().map(|o| &o.file[..]));
    let first = files.next().unwrap_or(None);
    files.all(|file| file == first).then_some(first)
}

/// The variables and files of one side at a step.
type Named<'x, 'e> = (Option<Step>, &'x mut [SideEntry<'e>], &'x mut [FileView]);

/// Gives variables and files the ranks and names that their partners have on the other side, where a checkpoint was made of
/// them.
pub(super) fn name_as_partners(a: Named, b: Named) {
    let ((of_a, left, files_a), (of_b, right, files_b)) = (a, b);
    match (of_a, of_b) {
        (None, Some(_)) => name_as_stored(left, files_a, right),
        (Some(_), None) => name_as_stored(right, files_b, left),
        (Some(_), Some(_)) => name_as_ingested(right, files_b, left),
        (None, None) => {}
    }
}

/// Gives files that a checkpoint was made of the ranks and names that they have there: a folder tells nothing of steps and
/// ranks.
fn name_as_stored(entries: &mut [SideEntry], files: &mut [FileView], stored: &[SideEntry]) {
    let names = ingested_names(stored);
    for entry in entries {
        if let Some(origin) = &mut entry.origin
            && let Some((rank, file)) = names.get(&origin.file)
        {
            (entry.rank, origin.file) = (*rank, file.clone());
        }
    }
    for file in files {
        if let Some((rank, name)) = names.get(&file.name) {
            (file.rank, file.known_as) = (*rank, name.clone());
        }
    }
}

/// Rank and name of the files of a checkpoint, by the names that they had when they were ingested.
fn ingested_names(stored: &[SideEntry]) -> HashMap<String, (Rank, String)> {
    let origin = |entry: &SideEntry| {
        let origin = entry.origin.clone()?;
        Some((origin.original?, (entry.rank, origin.file)))
    };
    stored.iter().filter_map(origin).collect()
}

/// Gives files of a checkpoint that have no partner the ranks and names of those that had the same names when they were
/// ingested: `state_1.h5` is of rank 1 if it was ingested with `state_2.h5`, and of rank 0 if it was not.
fn name_as_ingested(entries: &mut [SideEntry], files: &mut [FileView], others: &[SideEntry]) {
    let file = |entry: &SideEntry| Some((entry.rank, entry.origin.as_ref()?.file.clone()));
    let theirs: HashSet<(Rank, String)> = others.iter().filter_map(file).collect();
    let own: HashSet<(Rank, String)> = entries.iter().filter_map(file).collect();
    if own.is_subset(&theirs) {
        return;
    }
    let names = ingested_names(others);
    let renamed = |entry: &SideEntry| {
        let to = names.get(entry.origin.as_ref()?.original.as_ref()?)?;
        let from = file(entry).filter(|from| !theirs.contains(from) && !own.contains(to))?;
        Some((from, to.clone()))
    };
    let renamed: HashMap<(Rank, String), (Rank, String)> =
        entries.iter().filter_map(renamed).collect();
    for entry in entries {
        if let Some((rank, name)) = file(entry).and_then(|from| renamed.get(&from))
            && let Some(origin) = &mut entry.origin
        {
            (entry.rank, origin.file) = (*rank, name.clone());
        }
    }
    for file in files {
        if let Some((rank, name)) = renamed.get(&(file.rank, file.known_as.clone())) {
            (file.rank, file.known_as) = (*rank, name.clone());
        }
    }
}

impl PartnerCandidate<'_> {
    /// Whether a variable of the other side may be a part of this one, of which only the name is known.
    pub(super) fn is_above(&self, other: &PartnerCandidate) -> bool {
        let below = other.name.strip_prefix(&self.name[..]);
        !self.entry.is_described()
            && self.entry.rank == other.entry.rank
            && below.is_some_and(|rest| self.name.is_empty() || rest.starts_with('/'))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::array::Variable;
    use crate::compare::MemorySide;
    use crate::format::{FileOrigin, variable_name};
    use proptest::prelude::*;

    /// Variables of rank 0: names, and their files if they have some.
    fn side(variables: &[(String, Option<FileOrigin>)]) -> Vec<SideEntry<'static>> {
        let entry = |(name, origin): &(String, Option<FileOrigin>)| {
            let side = MemorySide::new(0, &[Variable::new(name, &[0u8; 0])], &[]);
            let mut entry = side.unwrap().into_entries().remove(0);
            entry.origin = origin.clone();
            entry
        };
        variables.iter().map(entry).collect()
    }

    fn of_folder(files: &[(&str, &str)]) -> Vec<SideEntry<'static>> {
        let variable = |(file, array): &(&str, &str)| {
            let name = variable_name(file, array);
            let origin = FileOrigin::of(file, &name);
            (name, origin)
        };
        side(&files.iter().map(variable).collect::<Vec<_>>())
    }

    fn of_file(file: &str, arrays: &[&str]) -> Vec<SideEntry<'static>> {
        let variable = |array: &&str| (array.to_string(), Some(FileOrigin::named(file)));
        side(&arrays.iter().map(variable).collect::<Vec<_>>())
    }

    fn of_program(names: &[&str]) -> Vec<SideEntry<'static>> {
        side(&names.iter().map(|name| (name.to_string(), None)).collect::<Vec<_>>())
    }

    /// The names that both sides have.
    fn common(a: &[SideEntry], b: &[SideEntry]) -> Vec<String> {
        let names = PartnerNames::of(a, b);
        assert_eq!(names, PartnerNames::of(b, a), "the order of sides does not matter");
        let of_b: HashSet<_> = b.iter().map(|entry| names.name(entry)).collect();
        let of_a = a.iter().map(|entry| names.name(entry));
        of_a.filter(|name| of_b.contains(name)).map(Cow::into_owned).collect()
    }

    #[test]
    fn arrays_of_one_file_are_partners_by_their_own_names() {
        let run = of_folder(&[("a.h5", "T"), ("a.h5", "g/p")]);
        assert_eq!(common(&run, &of_folder(&[("b.h5", "T"), ("b.h5", "x")])), ["T"]);
        assert_eq!(common(&run, &of_file("b.h5", &["T", "g/p"])), ["T", "g/p"]);
        assert_eq!(common(&of_file("a.h5", &["T"]), &of_file("b.h5", &["T"])), ["T"]);
        assert_eq!(common(&run, &of_program(&["T"])), ["T"]);
        let ranks = of_folder(&[("rank_{rank}.h5", "T")]);
        assert_eq!(common(&ranks, &of_folder(&[("r{rank}.h5", "T")])), ["T"]);
        // An array without a name is its file.
        let stem = side(&[("y".into(), Some(FileOrigin::unnamed("y.npy", "y")))]);
        assert_eq!(common(&of_folder(&[("x.npy", "")]), &stem), [""]);
    }

    #[test]
    fn several_files_are_told_apart_by_their_names() {
        let two = of_folder(&[("a.h5", "T"), ("b.h5", "T")]);
        assert_eq!(common(&two, &of_folder(&[("b.h5", "T")])), ["b.h5/T"]);
        // A file that a person names has its name, too.
        assert_eq!(common(&two, &of_file("a.h5", &["T"])), ["a.h5/T"]);
        assert!(common(&two, &of_file("c.h5", &["T"])).is_empty());
        // In a store of an early release, arrays had their own names.
        let old = of_file("a.h5", &["T"]);
        assert_eq!(common(&two, &old), ["a.h5/T"]);
    }

    #[test]
    fn golden_files_tell_nothing_of_files() {
        let golden = of_program(&["a.h5/T", "a.h5/p"]);
        let folder = of_folder(&[("a.h5", "T"), ("a.h5", "p")]);
        assert_eq!(common(&golden, &folder), ["a.h5/T", "a.h5/p"]);
        assert_eq!(common(&of_program(&["T"]), &folder), ["T"]);
        assert_eq!(common(&golden, &golden), ["a.h5/T", "a.h5/p"]);
    }

    proptest! {
        /// Of the same files on both sides, every array has its partner, whatever else is there.
        #[test]
        fn files_more_on_one_side_hide_no_partner(
            both in proptest::collection::btree_set(("[a-c]\\.h5", "[s-v]"), 1..8),
            more in proptest::collection::btree_set(("[d-f]\\.h5", "[s-v]"), 0..8),
        ) {
            let pairs = |set: &std::collections::BTreeSet<(String, String)>| {
                set.iter().map(|(f, a)| (f.clone(), a.clone())).collect::<Vec<_>>()
            };
            let (both, more) = (pairs(&both), pairs(&more));
            let text = |all: &[(String, String)]| {
                let all: Vec<(&str, &str)> = all.iter().map(|(f, a)| (&f[..], &a[..])).collect();
                of_folder(&all)
            };
            let (a, b) = (text(&both), text(&[&both[..], &more[..]].concat()));
            prop_assert_eq!(common(&a, &b).len(), both.len());
        }
    }
}
