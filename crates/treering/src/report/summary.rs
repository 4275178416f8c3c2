//! The variables of a comparison, all steps and ranks of each taken together, worst first.

use super::sentences::times_text;
use crate::array::Bound;
use crate::compare::{Number, Outcome, Severity, VariableOutcome};
use std::cmp::Ordering;
use std::collections::HashMap;

/// A variable that differs or is undecided, at all its steps and ranks.
///
/// ```
/// use treering::{CompareSettings, DirectoryStore, Options, Run, StoredSide, Variable, compare};
/// # let folder = tempfile::tempdir().unwrap();
/// # let store = std::sync::Arc::new(DirectoryStore::new(folder.path()));
/// for (name, heat) in [("monday", [1.0, 2.0]), ("tuesday", [1.0, 2.5])] {
///     let mut run = Run::open(Options::in_store(store.clone(), name))?;
///     run.checkpoint(0, &[Variable::new("heat", &heat)])?;
///     run.finish()?;
/// }
/// let side = |run| StoredSide::open(store.clone(), run, None);
/// let settings = CompareSettings::default();
/// let outcome = compare(&side("monday")?, &side("tuesday")?, &settings, None, &|_, _| {})?;
/// let worst = outcome.worst();
/// assert_eq!((worst[0].name, worst[0].differences), ("heat", 1));
/// # Ok::<(), treering::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct VariableSummary<'o> {
    /// Name of the variable.
    pub name: &'o str,
    /// Bound of the comparison. A variable that is compared within several bounds has a summary for each.
    pub bound: Bound,
    /// Number of values, those of steps and ranks at which it does not differ included.
    pub values: u64,
    /// Number of values that differ beyond the bound.
    pub differences: u64,
    /// Whether there may be more differences than were counted.
    pub at_least: bool,
    /// Number of chunks that could not be decided.
    pub undecided: u64,
    /// Number of differences with a NaN.
    pub nan_differences: u64,
    /// The largest difference; NaN if no values were read.
    pub max_difference: Number,
    /// The largest difference in units of the bound; infinite under a bound of 0, NaN if no values were read.
    pub times_bound: Number,
    /// Number of steps and ranks at which it differs, or is undecided.
    pub places: u64,
    /// The first of these.
    pub first: &'o VariableOutcome,
}

impl Outcome {
    /// All variables that differ or are undecided, worst first: by the largest difference in units of the bound
    /// (differences with NaN count as infinite), then by the share of values that differ.
    pub fn worst(&self) -> Vec<VariableSummary<'_>> {
        let mut found: Vec<VariableSummary> = Vec::new();
        let mut known: HashMap<(&str, String), usize> = HashMap::new();
        for variable in self.variables.iter().filter(|v| v.differences > 0 || v.undecided > 0) {
            let key = (&variable.name[..], variable.bound.to_string());
            let at = *known.entry(key).or_insert(found.len());
            match found.get_mut(at) {
                Some(summary) => summary.add(variable),
                None => found.push(VariableSummary::of(variable)),
            }
        }
        // Where it does not differ, it has values all the same.
        for variable in self.variables.iter().filter(|v| v.differences == 0 && v.undecided == 0) {
            let key = (&variable.name[..], variable.bound.to_string());
            if let Some(summary) = known.get(&key).and_then(|at| found.get_mut(*at)) {
                summary.values += variable.values;
            }
        }
        found.sort_by(VariableSummary::worse);
        found
    }
}

impl<'o> VariableSummary<'o> {
    fn of(first: &'o VariableOutcome) -> Self {
        VariableSummary {
            name: &first.name,
            bound: first.bound,
            values: first.values,
            differences: first.differences,
            at_least: first.at_least,
            undecided: first.undecided,
            nan_differences: first.nan_differences,
            max_difference: first.max_difference,
            times_bound: first.times_bound,
            places: 1,
            first,
        }
    }

    fn add(&mut self, other: &'o VariableOutcome) {
        self.values += other.values;
        self.differences += other.differences;
        self.at_least |= other.at_least;
        self.undecided += other.undecided;
        self.nan_differences += other.nan_differences;
        self.places += 1;
        self.max_difference.0 = self.max_difference.0.max(other.max_difference.0);
        self.times_bound.0 = self.times_bound.0.max(other.times_bound.0);
    }

    /// The share of values that differ.
    pub fn share(&self) -> f64 {
        self.differences as f64 / self.values.max(1) as f64
    }

    /// The largest difference in units of the bound, in a few digits; a dash where there is no unit.
    pub fn times(&self) -> String {
        match self.bound.is_exact() || self.differences == 0 {
            true => "–".to_string(),
            false if self.nan_differences > 0 => "∞".to_string(),
            false => times_text(self.times_bound.0),
        }
    }

    /// Sorts the worse of two variables before the other.
    fn worse(&self, other: &Self) -> Ordering {
        let severity = |s: &Self| Severity::of(s.nan_differences, s.times_bound, s.share());
        let only_undecided = |s: &Self| s.differences == 0;
        let by_severity = severity(self).worst_first(severity(other));
        only_undecided(self).cmp(&only_undecided(other)).then(by_severity)
    }
}
