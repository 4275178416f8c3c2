//! Names of variables that are arrays of files.
//!
//! The law: the name of such a variable follows from the names of its file and of its array alone. Other files of the
//! set, and other arrays of the file, never change it. Otherwise one file more would rename variables, and with them
//! their lineage and their partners in comparisons.
//!
//! The one exception: files of a set whose names differ in one number alone are files of ranks, and `{rank}` stands for
//! that number in their names. A lone `state_1.h5` keeps its name until there is a `state_2.h5` beside it. Comparisons
//! find its partner by the name that the file had when it was ingested.

/// The name of the variable that an array of a file is: `FILE/ARRAY`, or `FILE` if the array has no name of its own.
pub fn variable_name(file: &str, array: &str) -> String {
    match array {
        "" => file.to_string(),
        _ => format!("{file}/{array}"),
    }
}

/// The file that a variable is an array of, and the start of the array's own name in that of the variable.
///
/// ```
/// use treering::FileOrigin;
/// let origin = FileOrigin::of("state.h5", "state.h5/ocean/salt").expect("it is named after the file");
/// assert_eq!(origin.array("state.h5/ocean/salt"), "ocean/salt");
/// assert!(FileOrigin::of("other.h5", "state.h5/ocean/salt").is_none());
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileOrigin {
    /// The name of the file, in a checkpoint without its rank and its step.
    pub file: String,
    /// The name that the file of a checkpoint had, if it is known.
    pub original: Option<String>,
    start: usize,
    /// Whether the array has a name of its own.
    named: bool,
}

impl FileOrigin {
    /// The origin of a variable that is named after this file and an array of it. `None` if it is not.
    pub fn of(file: &str, variable: &str) -> Option<FileOrigin> {
        let rest = variable.strip_prefix(file)?;
        let named = !rest.is_empty();
        let start = file.len() + usize::from(named);
        let fits = !named || rest.starts_with('/');
        fits.then(|| FileOrigin { file: file.to_string(), original: None, start, named })
    }

    /// The origin of a variable of a checkpoint; `is_file` says which files it has a record of. No file lies in a folder
    /// that has the name of another one, so that one fits.
    pub fn among(variable: &str, is_file: impl Fn(&str) -> bool) -> Option<FileOrigin> {
        let ends = variable.match_indices('/').map(|(at, _)| at).chain([variable.len()]);
        let file = ends.map(|end| &variable[..end]).find(|file| is_file(file))?;
        FileOrigin::of(file, variable)
    }

    /// The origin of a variable whose name is the array's own one.
    pub fn named(file: &str) -> FileOrigin {
        FileOrigin { file: file.to_string(), original: None, start: 0, named: true }
    }

    /// The origin of a variable whose name stands for that of an array without one.
    pub fn unnamed(file: &str, variable: &str) -> FileOrigin {
        FileOrigin { file: file.to_string(), original: None, start: variable.len(), named: false }
    }

    /// The origin of a variable as it was recorded; see [`place`](Self::place).
    pub fn at(file: String, original: Option<String>, start: usize, named: bool) -> FileOrigin {
        FileOrigin { file, original, start, named }
    }

    /// Offset of the array's own name in the name of its variable, and whether it has a name.
    pub fn place(&self) -> (usize, bool) {
        (self.start, self.named)
    }

    /// The array's own name in that of its variable, or of a member of it; empty if it has none.
    pub fn array<'n>(&self, variable: &'n str) -> &'n str {
        variable.get(self.start..).unwrap_or(variable)
    }

    /// The name that the variable, or a member of it, has behind that of its file.
    pub fn full_name(&self, variable: &str) -> String {
        match (self.named, self.array(variable)) {
            (true, array) => variable_name(&self.file, array),
            (false, member) => format!("{}{member}", self.file),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn names_are_those_of_file_and_array() {
        for (file, array, name) in [
            ("a.h5", "T", "a.h5/T"),
            ("sub/a.h5", "g/T", "sub/a.h5/g/T"),
            ("rank_{rank}.h5", "T", "rank_{rank}.h5/T"),
            ("x.npy", "", "x.npy"),
            ("x.npz", ".hidden", "x.npz/.hidden"),
        ] {
            assert_eq!(variable_name(file, array), name);
        }
    }

    #[test]
    fn the_start_of_an_array_is_known() {
        let origin = FileOrigin::of("a.h5", "a.h5/g/T").unwrap();
        assert_eq!((origin.array("a.h5/g/T"), origin.array("a.h5/g/T.x")), ("g/T", "g/T.x"));
        let alone = FileOrigin::named("a.h5");
        assert_eq!((alone.array("g/T"), &alone.full_name("g/T")[..]), ("g/T", "a.h5/g/T"));
        let stem = FileOrigin::unnamed("x.npy", "x");
        assert_eq!((stem.array("x"), stem.array("x.vx")), ("", ".vx"));
        assert_eq!((&stem.full_name("x")[..], &stem.full_name("x.vx")[..]), ("x.npy", "x.npy.vx"));
        let files = |file: &str| ["a.h5", "sub/b.h5"].contains(&file);
        assert_eq!(FileOrigin::among("sub/b.h5/T", files).unwrap().file, "sub/b.h5");
        assert_eq!(FileOrigin::among("a.h5", files).unwrap().array("a.h5"), "");
        assert!(FileOrigin::among("sub/T", files).is_none());
        assert!(FileOrigin::of("a.h5", "a.h55/T").is_none());
        assert!(FileOrigin::of("a.h5", "T").is_none());
    }

    proptest! {
        #[test]
        fn files_and_arrays_come_back(file in "[a-z./{}]{1,12}", array in "([a-z.][a-z/.]{0,8})?") {
            let name = variable_name(&file, &array);
            let origin = FileOrigin::of(&file, &name).unwrap();
            prop_assert_eq!(origin.array(&name), &array[..]);
            prop_assert_eq!(origin.full_name(&name), name);
        }
    }
}
