//! Results as people read them: a sentence, and one page with figures.
//!
//! Pages have one look, light and dark, and need nothing but themselves. The figures of a comparison are drawn by the
//! page, which answers to clicks; those of the probability of loss are drawn here.

mod chart;
mod loss;
mod loss_page;
mod scales;

use crate::compare::{Answer, Number, Outcome, VariableOutcome};
use crate::error::{Error, Result};

/// The page without its data.
const PAGE: &str = include_str!("page.html");
/// The look of all pages.
const STYLE: &str = include_str!("style.css");
/// Where it goes.
const STYLE_PLACE: &str = "/*__TREERING_STYLE__*/";
/// The choice between light and dark.
const THEME: &str = include_str!("theme.js");
/// Where it goes.
const THEME_PLACE: &str = "//__TREERING_THEME__";
/// Where the data goes.
const PLACE: &str = "\"__TREERING_DATA__\"";

/// Where the sentence goes that is there without scripts.
const SUMMARY: &str = "<!--__TREERING_SUMMARY__-->";

/// Text that a page shows as it is, and never takes for the place of the data.
fn escaped(text: &str) -> String {
    let text = text.replace('&', "&amp;").replace('<', "&lt;");
    text.replace('>', "&gt;").replace('"', "&quot;")
}

/// A page with its look.
fn dressed(page: &str) -> String {
    page.replacen(STYLE_PLACE, STYLE, 1).replacen(THEME_PLACE, THEME, 1)
}

impl Outcome {
    /// The verdict in a sentence.
    pub fn sentence(&self) -> String {
        sentence(self)
    }

    /// A page with figures, complete in one file; `created` is when, as it is to be shown.
    pub fn html(&self, created: &str) -> Result<String> {
        html(self, created)
    }
}

impl VariableOutcome {
    /// Where the first difference of a variable is, as far as that is known.
    pub fn span(&self) -> String {
        span(self)
    }
}

impl Number {
    /// The number in a few digits, for tables.
    pub fn short(self) -> String {
        number(self.0)
    }
}

fn html(outcome: &Outcome, created: &str) -> Result<String> {
    let failed = |e| Error::usage(format!("the result cannot be written as JSON: {e}"));
    let mut data = serde_json::to_value(outcome).map_err(failed)?;
    data["created"] = created.into();
    data["version"] = env!("CARGO_PKG_VERSION").into();
    // What looks like the end of a script must not be one.
    let data = data.to_string().replace("</", "<\\/");
    // The sentence first: the data may hold anything.
    Ok(dressed(PAGE).replacen(SUMMARY, &escaped(&sentence(outcome)), 1).replacen(PLACE, &data, 1))
}

fn sentence(outcome: &Outcome) -> String {
    let values: u64 = outcome.variables.iter().map(|v| v.values).sum();
    let variables = outcome.variables.len();
    if let Some(first) = &outcome.first {
        let step = first.step.map_or(String::new(), |step| format!("step {step}, "));
        let rank = if first.rank.0 > 0 { format!("rank {}, ", first.rank) } else { String::new() };
        let place = match &first.until {
            Some(until) => format!("index between {} and {}", index(&first.index), index(until)),
            None => format!("index {}", index(&first.index)),
        };
        let place = if first.global { format!("global {place}") } else { place };
        let at = format!("{step}{rank}variable {}, {place}", first.variable);
        let values_there = match (first.a, first.b) {
            (Some(a), Some(b)) => format!(": {a} and {b}"),
            _ => String::new(),
        };
        let more = outcome.stopped || outcome.variables.iter().any(|v| v.at_least);
        let most = if more { "at least " } else { "" };
        return format!(
            "different: {most}{} of {values} values beyond their bounds; the first: {at}{values_there}",
            outcome.differences
        );
    }
    if let Some(content) = outcome.contents.first() {
        let detail = match content.detail.is_empty() {
            true => String::new(),
            false => format!(" ({})", content.detail),
        };
        let (file, item, count) = (&content.file, &content.item, outcome.contents.len());
        let items = if count == 1 { "item" } else { "items" };
        return format!(
            "different: no value differs, but files differ in {count} {items} beside their arrays; \
             the first: {item} in {file}{detail}"
        );
    }
    match outcome.verdict {
        Answer::Different if outcome.unmatched.iter().any(|u| u.variable.is_some()) => {
            "different: the two sides do not have the same variables".to_string()
        }
        Answer::Different => "different: steps that are expected are missing".to_string(),
        Answer::Undecided => {
            let chunks: u64 = outcome.variables.iter().map(|v| v.undecided).sum();
            match (outcome.not_compared.len(), chunks, outcome.unreadable) {
                (0, 0, count) => format!("undecided: checkpoints that cannot be read: {count}"),
                (0, chunks, _) => format!("undecided: {chunks} chunks need their values to tell"),
                (count, _, _) => {
                    format!("undecided: nothing differs, but {count} could not be compared")
                }
            }
        }
        Answer::Equal => {
            format!("equal: all {values} values of {variables} variables are within their bounds")
        }
    }
}

fn span(variable: &VariableOutcome) -> String {
    match (&variable.first_index, &variable.first_until) {
        (Some(from), Some(until)) => format!("{} to {}", index(from), index(until)),
        (Some(at), None) => index(at),
        _ => "–".to_string(),
    }
}

/// An index along all axes.
fn index(index: &[u64]) -> String {
    let parts: Vec<String> = index.iter().map(u64::to_string).collect();
    format!("({})", parts.join(", "))
}

/// A size in a few digits.
fn number(x: f64) -> String {
    match x {
        0.0 => "0".to_string(),
        _ if x.is_nan() => "–".to_string(),
        _ if !x.is_finite() => x.to_string(),
        _ if (1e-3..1e6).contains(&x.abs()) => format!("{x:.4}"),
        _ => format!("{x:.2e}"),
    }
}
