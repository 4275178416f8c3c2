//! What can be chosen about a comparison.

use crate::array::Description;
use crate::error::{Error, Result};
use crate::io::Reading;
use crate::merkle::bounded::Bound;
use std::collections::BTreeSet;

/// How two sides are compared.
#[derive(Clone, Debug)]
pub struct CompareSettings {
    /// The bound of all variables; nothing takes that of the trees, if both sides agree, else 0.
    pub bound: Option<Bound>,
    /// Bounds of variables by pattern; the first that matches counts.
    pub bounds: Vec<(String, Bound)>,
    /// Only variables that match one of these; empty is all.
    pub variables: Vec<String>,
    /// No variables that match one of these, and nothing else of a file that belongs to them.
    pub exclude: Vec<String>,
    /// Whether NaN equals NaN.
    pub nan_equal: bool,
    /// Whether to stop at the first difference.
    pub first: bool,
    /// Whether the first side is the expectation, such as a golden file: steps that it has and the
    /// second side lacks are then differences.
    pub expected: bool,
    /// Number of differences of each variable that are given with their values.
    pub examples: usize,
    /// Whether to draw where differences are.
    pub pictures: bool,
    /// Whether trees may be used.
    pub trees: bool,
    /// How cold data is read.
    pub reading: Reading,
    /// Whether what the page cache holds may be mapped, which saves a copy. It makes the process
    /// handle SIGBUS from then on, so that a file that becomes shorter is an error and not its end.
    pub mapped: bool,
}

impl Default for CompareSettings {
    fn default() -> Self {
        CompareSettings {
            bound: None,
            bounds: Vec::new(),
            variables: Vec::new(),
            exclude: Vec::new(),
            nan_equal: true,
            first: false,
            expected: false,
            examples: 0,
            pictures: false,
            trees: true,
            reading: Reading::Ring,
            mapped: false,
        }
    }
}

impl CompareSettings {
    /// Values within an absolute bound.
    pub fn within(bound: Bound) -> Self {
        CompareSettings { bound: Some(bound), ..CompareSettings::default() }
    }

    /// Refuses bounds that make no sense.
    pub fn check(&self) -> Result<()> {
        self.bound.map_or(Ok(Bound::Bits), Bound::check)?;
        self.bounds.iter().try_for_each(|(_, bound)| bound.check().map(drop))
    }

    pub(super) fn wants(&self, name: &str) -> bool {
        let chosen = self.variables.is_empty() || self.variables.iter().any(|p| matches(p, name));
        chosen && !self.excludes(name)
    }

    pub(super) fn excludes(&self, name: &str) -> bool {
        self.exclude.iter().any(|p| matches(p, name))
    }

    /// Refuses patterns that exclude nothing: a variable of another name would stay in silently.
    pub(super) fn check_exclude(&self, names: &BTreeSet<String>) -> Result<()> {
        for pattern in &self.exclude {
            if !names.iter().any(|name| matches(pattern, name)) {
                let first =
                    names.first().map_or(String::new(), |name| format!(", such as {name:?}"));
                return Err(Error::usage(format!("no variable matches the exclusion {pattern:?}"))
                    .hint(format!("there are {} variables{first}", names.len())));
            }
        }
        Ok(())
    }

    /// The bound that was asked for a variable.
    pub(super) fn bound_of(&self, description: &Description) -> Result<Option<Bound>> {
        let name = &description.name;
        let own = self.bounds.iter().find(|(pattern, _)| matches(pattern, name));
        let Some((pattern, bound)) = own else { return Ok(self.bound) };
        if bound.of_type(description.dtype) != *bound && *bound != Bound::EQUAL {
            return Err(Error::usage(format!(
                "variable {name:?} has type {}, to which the bound {bound} of {pattern:?} cannot apply",
                description.dtype
            ))
            .hint("integers, booleans and bytes are compared exactly; give bounds to other variables"));
        }
        Ok(Some(*bound))
    }
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
    use super::matches;

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
}
