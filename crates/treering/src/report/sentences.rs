//! The verdict of a comparison and its first difference, in words.

use crate::array::Bound;
use crate::compare::{Answer, First, Number, Outcome, Value, VariableOutcome};
use std::collections::BTreeSet;

impl Outcome {
    /// The verdict and the first difference in one sentence.
    pub fn sentence(&self) -> String {
        let Some(first) = &self.first else { return self.verdict_line() };
        let values = match (&first.a, &first.b) {
            (Some(a), Some(b)) => format!(": {a} and {b}"),
            _ => String::new(),
        };
        format!("{}; the first: {}{values}", beyond(self), place(first))
    }

    /// The verdict in one short line, without the first difference.
    pub fn verdict_line(&self) -> String {
        if self.first.is_some() {
            let named = |v: &&VariableOutcome| v.differences > 0;
            let (bad, all) = (names(self.variables.iter().filter(named)), names(&self.variables));
            return format!("{}, in {bad} of {}", beyond(self), count(all, "variable"));
        }
        if let Some(content) = self.contents.first() {
            let detail = match content.detail.is_empty() {
                true => String::new(),
                false => format!(" ({})", content.detail),
            };
            let number = self.contents.len() as u64;
            let (item, of) = (&content.item, content.of());
            return match content.file.is_some() {
                true => format!(
                    "different: no value differs, but files differ in {} beside their arrays; the first: {item} in {of}{detail}",
                    count(number, "item")
                ),
                false => format!(
                    "different: no value differs, but variables differ in {}; the first: {item} of {of}{detail}",
                    count(number, "attribute")
                ),
            };
        }
        match self.verdict {
            Answer::Different if self.unmatched.iter().any(|u| u.variable.is_some()) => {
                "different: the two sides do not have the same variables".to_string()
            }
            Answer::Different => "different: steps that are expected are missing".to_string(),
            Answer::Undecided => undecided(self),
            Answer::Equal => equal(self),
        }
    }

    /// The location of the first difference: step, rank, variable and index.
    pub fn first_place(&self) -> Option<String> {
        self.first.as_ref().map(place)
    }

    /// The variable that holds the first difference.
    pub fn first_variable(&self) -> Option<&VariableOutcome> {
        let first = self.first.as_ref()?;
        self.variables.iter().find(|v| {
            v.step == first.step
                && v.name == first.variable
                && v.first_index.as_ref() == Some(&first.index)
        })
    }

    /// The first difference against its bound, such as `|a − b| = 0.5, 5e5 times the bound (abs:1e-6)`.
    pub fn first_excess(&self) -> Option<String> {
        let first = self.first.as_ref()?;
        let bound = self.first_variable()?.bound;
        let (Some(a), Some(b)) = (&first.a, &first.b) else {
            return Some(format!("found by its tree; values were not read (bound {bound})"));
        };
        Some(excess(a, b, bound))
    }
}

impl VariableOutcome {
    /// The location of the first difference of a variable, as far as that is known.
    pub fn span(&self) -> String {
        match (&self.first_index, &self.first_until) {
            (Some(from), Some(until)) => format!("{} to {}", index(from), index(until)),
            (Some(at), None) => index(at),
            _ => "–".to_string(),
        }
    }
}

impl Number {
    /// The number in a few digits, for tables.
    pub fn short(self) -> String {
        let x = self.0;
        match x {
            0.0 => "0".to_string(),
            _ if x.is_nan() => "–".to_string(),
            _ if x.is_infinite() => if x > 0.0 { "∞" } else { "−∞" }.to_string(),
            _ if (1e-3..1e6).contains(&x.abs()) => format!("{x:.4}"),
            _ => format!("{x:.2e}"),
        }
    }
}

/// The count of values beyond their bounds.
fn beyond(outcome: &Outcome) -> String {
    let values: u64 = outcome.variables.iter().map(|v| v.values).sum();
    let more = outcome.stopped || outcome.variables.iter().any(|v| v.at_least);
    let most = if more { "at least " } else { "" };
    let (differences, values) = (outcome.differences, count(values, "value"));
    format!("different: {most}{differences} of {values} beyond their bounds")
}

fn undecided(outcome: &Outcome) -> String {
    let chunks: u64 = outcome.variables.iter().map(|v| v.undecided).sum();
    match (outcome.not_compared.len() as u64, chunks, outcome.unreadable) {
        (0, 0, unreadable) => {
            format!("undecided: {} cannot be read", count(unreadable, "checkpoint"))
        }
        (0, chunks, _) => {
            format!("undecided: {} cannot be judged without values", count(chunks, "chunk"))
        }
        (items, _, _) => {
            format!(
                "undecided: nothing differs, but {} could not be compared",
                count(items, "item")
            )
        }
    }
}

fn equal(outcome: &Outcome) -> String {
    let steps: BTreeSet<u64> = outcome.variables.iter().filter_map(|v| v.step).collect();
    let (steps, lone) = (steps.len() as u64, lone_steps(outcome));
    let (equal, at) = match (lone.is_empty(), steps) {
        (true, 0 | 1) => ("equal".to_string(), String::new()),
        (true, steps) => ("equal".to_string(), format!(" at {steps} steps")),
        (false, 0) => ("equal in the steps that both have".to_string(), String::new()),
        (false, steps) => {
            (format!("equal in the {} that both have", count(steps, "step")), String::new())
        }
    };
    if outcome.variables.is_empty() {
        return format!("{equal}: there are no arrays, and all other content is the same{lone}");
    }
    let values: u64 = outcome.variables.iter().map(|v| v.values).sum();
    let (values, variables) =
        (count(values, "value"), count(names(&outcome.variables), "variable"));
    format!("{equal}: all {values} of {variables}{at} are within their bounds{lone}")
}

/// The numbers of steps that only one side has, behind semicolons; nothing if there are none.
fn lone_steps(outcome: &Outcome) -> String {
    let only_in = |side: &str| {
        let what = format!("step only in the {side}");
        let lone = outcome.unmatched.iter().filter(|u| u.variable.is_none() && u.what == what);
        match lone.count() as u64 {
            0 => String::new(),
            1 => format!("; 1 step is only in the {side}"),
            steps => format!("; {steps} steps are only in the {side}"),
        }
    };
    ["first", "second"].map(only_in).concat()
}

/// The number of different names of variables.
fn names<'o>(variables: impl IntoIterator<Item = &'o VariableOutcome>) -> u64 {
    variables.into_iter().map(|v| &v.name).collect::<BTreeSet<_>>().len() as u64
}

fn place(first: &First) -> String {
    let step = first.step.map_or(String::new(), |step| format!("step {step}, "));
    let rank = if first.rank.0 > 0 { format!("rank {}, ", first.rank) } else { String::new() };
    let place = match &first.until {
        Some(until) => format!("index between {} and {}", index(&first.index), index(until)),
        None => format!("index {}", index(&first.index)),
    };
    let place = if first.global { format!("global {place}") } else { place };
    format!("{step}{rank}variable {}, {place}", first.variable)
}

/// The difference between two values against a bound.
fn excess(a: &Value, b: &Value, bound: Bound) -> String {
    if let (Value::Text(_), _) | (_, Value::Text(_)) = (a, b) {
        return "they are not numbers: a difference has no size".to_string();
    }
    let size = a.difference(b);
    if size.is_nan() {
        let both = [a, b].iter().all(|value| value.difference(value).is_nan());
        return match both {
            true => "NaN on both sides, which count as different here".to_string(),
            false => format!("NaN on one side, which no bound permits (bound {bound})"),
        };
    }
    let apart = format!("|a − b| = {}", short(size));
    match bound {
        Bound::Bits if size == 0.0 => format!("{apart}, but other bits (bound {bound})"),
        _ if bound.is_exact() => format!("{apart}; the bound permits no difference"),
        Bound::Ulp(_) => format!("{apart}; beyond the bound {bound}"),
        _ => match size / b.limit(bound) {
            times if times.is_finite() => {
                format!("{apart}, {} times the bound ({bound})", times_text(times))
            }
            _ => format!("{apart}; beyond the bound {bound}"),
        },
    }
}

/// A size in up to six significant digits.
fn short(x: f64) -> String {
    match x.abs() {
        _ if x == 0.0 || x.is_infinite() => Number(x).short(),
        1e-4..1e6 => {
            let digits = (5 - x.abs().log10().floor() as i32).clamp(0, 9) as usize;
            let text = format!("{x:.digits$}");
            match text.contains('.') {
                true => text.trim_end_matches('0').trim_end_matches('.').to_string(),
                false => text,
            }
        }
        _ => format!("{:e}", format!("{x:.5e}").parse::<f64>().unwrap_or(x)),
    }
}

/// A multiple of the bound in three significant digits.
pub(super) fn times_text(times: f64) -> String {
    match times {
        _ if times.is_nan() => "–".to_string(),
        _ if times.is_infinite() => "∞".to_string(),
        _ if times < 10.0 => format!("{times:.2}"),
        _ if times < 100.0 => format!("{times:.1}"),
        _ if times < 1e5 => format!("{times:.0}"),
        _ => format!("{times:.1e}"),
    }
}

/// An index along all axes.
fn index(index: &[u64]) -> String {
    let parts: Vec<String> = index.iter().map(u64::to_string).collect();
    format!("({})", parts.join(", "))
}

fn count(number: u64, thing: &str) -> String {
    format!("{number} {thing}{}", if number == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_the_digits_that_matter() {
        for (x, text) in [
            (1.5, "1.5"),
            (0.1 + 0.2, "0.3"),
            (123456.7, "123457"),
            (0.000123456789, "0.000123457"),
            (1.23456789e-9, "1.23457e-9"),
            (5e300, "5e300"),
            (0.0, "0"),
            (1000.0, "1000"),
            (999_999.9, "1000000"),
            (f64::INFINITY, "∞"),
        ] {
            assert_eq!(short(x), text);
        }
    }

    #[test]
    fn a_difference_is_shown_against_its_bound() {
        let excess = |a, b, bound| super::excess(&Value::Float(a), &Value::Float(b), bound);
        let text = excess(1.5, 1.0, Bound::abs(1e-3));
        assert_eq!(text, "|a − b| = 0.5, 500 times the bound (abs:0.001)");
        let text = excess(3.0, 2.0, Bound::Within { abs: 0.05, rel: 0.1 });
        assert_eq!(text, "|a − b| = 1, 4.00 times the bound (abs:0.05,rel:0.1)");
        assert!(excess(1.0, 0.0, Bound::rel(0.5)).ends_with("beyond the bound rel:0.5"));
        assert!(excess(1.0, f64::INFINITY, Bound::rel(0.5)).starts_with("|a − b| = ∞; "));
        assert!(excess(0.0, -0.0, Bound::Bits).contains("other bits"));
        assert!(excess(1.0, 2.0, Bound::EQUAL).contains("permits no difference"));
        assert!(excess(1.0, f64::NAN, Bound::abs(9.0)).starts_with("NaN"));
    }
}
