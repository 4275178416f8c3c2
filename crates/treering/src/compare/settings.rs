//! Settings of a comparison.

#[cfg(feature = "tools")]
use super::side::SideEntry;
use crate::array::Description;
use crate::error::{Error, Result};
use crate::format::FileOrigin;
#[cfg(feature = "tools")]
use crate::io::Reading;
use crate::merkle::bounded::Bound;
use std::collections::BTreeSet;

/// Settings of a comparison.
///
/// ```
/// use treering::{Bound, CompareSettings};
/// let settings = CompareSettings {
///     bounds: vec![("temperature*".to_string(), Bound::rel(1e-5))],
///     exclude: vec!["time".to_string()],
///     ..CompareSettings::within(Bound::abs(1e-8))
/// };
/// settings.check()?;
/// # Ok::<(), treering::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct CompareSettings {
    /// Bound of all variables. Default: `None`, the bounds that the trees of both sides were made for, otherwise 0.
    pub bound: Option<Bound>,
    /// Bounds of variables by pattern (`*` and `?`); the first that matches counts. A pattern that matches no variable is
    /// an error. Here and below, a pattern is for the whole name of a variable, or for the name without the file.
    pub bounds: Vec<(String, Bound)>,
    /// Patterns of the variables to compare. Default: empty, all variables.
    pub variables: Vec<String>,
    /// Patterns of variables to leave out, with everything else of a file that belongs to them.
    pub exclude: Vec<String>,
    /// Whether attributes are compared: those of files, and those of a program's variables
    /// ([`Variable::attribute`](crate::Variable::attribute)). Default: true.
    pub attributes: bool,
    /// Whether bounds hold for integers, too: they are compared as real numbers. Integers beyond 2^53 that no f64 equals
    /// are then not compared.
    pub integers: bool,
    /// Whether NaN equals NaN. Default: true.
    pub nan_equal: bool,
    /// Whether to stop at the first difference. Default: false.
    pub first: bool,
    /// Whether the first side is the expectation, for example a golden file: steps that it has and the second side
    /// lacks are then differences. Default: false.
    pub expected: bool,
    /// Whether packed numbers of HDF5 and netCDF files are compared by the values that they stand for: number ×
    /// `scale_factor` + `add_offset`, NaN for fill values. Default: false.
    pub unpack: bool,
    /// Number of differences of each variable that the outcome lists with both values. Default: 0.
    pub examples: usize,
    /// Whether to map where differences are, for the first difference and the worst variables. Default: false.
    pub pictures: bool,
    /// Whether trees may be used. Default: true.
    pub trees: bool,
    /// Memory for decoded chunks of both sides, where an array is compared tile by tile because a file holds it in
    /// chunks that reach far along its slow axes. Default: 256 MiB.
    pub memory: u64,
    /// Method of reading data that is not in the page cache.
    #[cfg(feature = "tools")]
    pub reading: Reading,
    /// Whether data in the page cache may be mapped, which saves a copy. Default: false.
    ///
    /// **Caution**: the process then handles SIGBUS, so that a file that becomes shorter is an error and does not end it.
    pub mapped: bool,
}

impl Default for CompareSettings {
    fn default() -> Self {
        CompareSettings {
            bound: None,
            bounds: Vec::new(),
            variables: Vec::new(),
            exclude: Vec::new(),
            attributes: true,
            integers: false,
            nan_equal: true,
            first: false,
            expected: false,
            unpack: false,
            examples: 0,
            pictures: false,
            trees: true,
            memory: 256 << 20,
            #[cfg(feature = "tools")]
            reading: Reading::Ring,
            mapped: false,
        }
    }
}

impl CompareSettings {
    /// Settings with one bound for all variables.
    pub fn within(bound: Bound) -> Self {
        CompareSettings { bound: Some(bound), ..CompareSettings::default() }
    }

    /// Returns an error if a bound is negative, infinite or NaN.
    pub fn check(&self) -> Result<()> {
        self.bound.map_or(Ok(Bound::Bits), Bound::check)?;
        self.bounds.iter().try_for_each(|(_, bound)| bound.check().map(drop))
    }

    /// Whether a variable is to be compared.
    #[cfg(feature = "tools")]
    pub(super) fn wants(&self, entry: &SideEntry) -> bool {
        self.wants_pair(entry, None)
    }

    /// Whether a variable and its partner, which may be in a file of another name, are to be compared.
    #[cfg(feature = "tools")]
    pub(super) fn wants_pair(&self, entry: &SideEntry, partner: Option<&SideEntry>) -> bool {
        let named = |pattern: &String| is_for(pattern, entry, partner);
        let chosen = self.variables.is_empty() || self.variables.iter().any(named);
        chosen && !self.excludes(entry) && !partner.is_some_and(|partner| self.excludes(partner))
    }

    /// Whether variables are chosen, and one of this name is.
    #[cfg(feature = "tools")]
    pub(super) fn chooses_name(&self, name: &str) -> bool {
        self.variables.iter().any(|pattern| matches(pattern, name))
    }

    /// Whether patterns exclude a variable.
    #[cfg(feature = "tools")]
    pub(super) fn excludes(&self, entry: &SideEntry) -> bool {
        entry.names().any(|name| self.excludes_name(&name))
    }

    /// Whether patterns exclude a variable or another object of this name.
    pub(super) fn excludes_name(&self, name: &str) -> bool {
        self.exclude.iter().any(|pattern| covers(pattern, name))
    }

    /// Refuses patterns that exclude nothing: a variable of another name would stay in silently.
    pub(super) fn check_exclude(&self, names: &BTreeSet<String>) -> Result<()> {
        for pattern in &self.exclude {
            if !names.iter().any(|name| covers(pattern, name)) {
                let hint = match names.first() {
                    Some(first) => format!("names are, for example, {first:?}"),
                    None => "there are no variables".into(),
                };
                return Err(Error::usage(format!("no variable matches the exclusion {pattern:?}"))
                    .hint(hint));
            }
        }
        Ok(())
    }

    /// The bound that was asked for a variable. One that was asked for records holds for those of their members that
    /// are real numbers.
    #[cfg(feature = "tools")]
    pub(super) fn bound_of(
        &self,
        entry: &SideEntry,
        partner: Option<&SideEntry>,
    ) -> Result<Option<Bound>> {
        let own = self.bounds.iter().find(|(pattern, _)| is_for(pattern, entry, partner));
        let Some((pattern, bound)) = own else { return Ok(self.bound) };
        if entry.meaning.array.is_some() {
            return Ok(Some(*bound));
        }
        let Description { name, dtype, .. } = &entry.description;
        if bound.of_type(*dtype) != *bound && *bound != Bound::EQUAL {
            return Err(Error::usage(format!(
                "variable {name:?} has type {dtype}, to which the bound {bound} of {pattern:?} cannot apply",
            ))
            .hint("integers, booleans and bytes are compared exactly; give bounds to other variables"));
        }
        Ok(Some(*bound))
    }
}

/// Whether a pattern matches a name, or that of a group that it is in.
fn covers(pattern: &str, name: &str) -> bool {
    let pattern = pattern.trim_start_matches('/');
    let ends = name.match_indices('/').map(|(at, _)| at).chain([name.len()]);
    ends.into_iter().any(|end| matches(pattern, &name[..end]))
}

/// Whether a pattern is for one of two partners.
#[cfg(feature = "tools")]
fn is_for(pattern: &str, entry: &SideEntry, partner: Option<&SideEntry>) -> bool {
    entry.is_named(pattern) || partner.is_some_and(|partner| partner.is_named(pattern))
}

/// Whether the name of a variable matches a pattern: as a whole or, of an array of a file, without the name of the file.
pub(crate) fn matches_variable(pattern: &str, name: &str, origin: Option<&FileOrigin>) -> bool {
    let array = origin.map(|origin| origin.array(name)).filter(|array| !array.is_empty());
    matches(pattern, name) || array.is_some_and(|array| matches(pattern, array))
}

/// Whether a name matches a pattern with `*` and `?`.
pub(crate) fn matches(pattern: &str, name: &str) -> bool {
    let (pattern, name): (Vec<char>, Vec<char>) =
        (pattern.chars().collect(), name.chars().collect());
    let (mut p, mut n) = (0, 0);
    // Where to go back to: the last star, and where it began to match.
    let mut star: Option<(usize, usize)> = None;
    while n < name.len() {
        match pattern.get(p) {
            Some('*') => {
                star = Some((p, n));
                p += 1;
            }
            Some(c) if *c == '?' || *c == name[n] => (p, n) = (p + 1, n + 1),
            _ => match star {
                Some((at, from)) => {
                    (p, n) = (at + 1, from + 1);
                    star = Some((at, from + 1));
                }
                None => return false,
            },
        }
    }
    pattern[p..].iter().all(|c| *c == '*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_as_in_a_shell() {
        for (pattern, name) in [
            ("*", ""),
            ("v*", "vx"),
            ("v?", "vx"),
            ("*x*", "axbx"),
            ("a*b*c", "a1b2b3c"),
            ("é?", "éa"),
        ] {
            assert!(matches(pattern, name), "{pattern} {name}");
        }
        for (pattern, name) in [("", "a"), ("v?", "v"), ("v", "vx"), ("a*b", "abc"), ("?", "")] {
            assert!(!matches(pattern, name), "{pattern} {name}");
        }
    }

    #[test]
    fn patterns_match_without_the_name_of_the_file() {
        let origin = FileOrigin::of("a.h5", "a.h5/g/T");
        for (pattern, answer) in [
            ("a.h5/g/T", true),
            ("g/T", true),
            ("g/*", true),
            ("a*", true),
            ("*/T", true),
            ("T", false),
            ("", false),
        ] {
            assert_eq!(matches_variable(pattern, "a.h5/g/T", origin.as_ref()), answer, "{pattern}");
        }
        assert!(!matches_variable("T", "a/T", None));
        assert!(!matches_variable("", "x.npy", FileOrigin::of("x.npy", "x.npy").as_ref()));
    }
}
