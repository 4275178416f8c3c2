//! Results as people read them: sentences, summaries of variables, and one page with figures.
//!
//! Pages have one look, light and dark, and need nothing but themselves. The figures of a comparison are drawn by the
//! page, which answers to clicks; those of the probability of loss are drawn here.

mod chart;
mod loss;
mod loss_page;
mod scales;
mod sentences;
mod summary;

use crate::compare::Outcome;
use crate::error::{Error, Result};
use serde_json::Value;
pub use summary::VariableSummary;

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
    /// A page with figures, complete in one file; `created` is the time of its creation as the page shows it.
    pub fn html(&self, created: &str) -> Result<String> {
        html(self, created)
    }
}

/// The most rows of variables in a page, and of every other list: a page stays small enough to open.
const MOST_VARIABLES: usize = 20_000;
const MOST_ITEMS: usize = 1_000;

fn html(outcome: &Outcome, created: &str) -> Result<String> {
    let failed = |e| Error::usage(format!("the result cannot be written as JSON: {e}"));
    let mut data = serde_json::to_value(outcome).map_err(failed)?;
    data["created"] = created.into();
    data["version"] = env!("CARGO_PKG_VERSION").into();
    bounded(&mut data);
    // Text that looks like the end of a script must not be one.
    let data = data.to_string().replace("</", "<\\/");
    // The sentence first: the data may hold anything.
    let page = dressed(PAGE).replacen(SUMMARY, &escaped(&outcome.sentence()), 1);
    Ok(page.replacen(PLACE, &data, 1))
}

/// Cuts what can be long: rows that are equal, then rows at the end, and items; maps have three digits.
fn bounded(data: &mut Value) {
    let list = |data: &mut Value, key: &str| data[key].as_array_mut().map(std::mem::take);
    let mut variables = list(data, "variables").unwrap_or_default();
    let total = variables.len();
    let sum = |key: &str| variables.iter().filter_map(|v| v[key].as_u64()).sum::<u64>();
    data["values"] = sum("values").into();
    data["undecided"] = sum("undecided").into();
    if total > MOST_VARIABLES {
        let equal = |v: &Value| v["differences"] == 0 && v["undecided"] == 0;
        let differing = variables.iter().filter(|v| !equal(v)).count();
        let room = MOST_VARIABLES.saturating_sub(differing);
        let mut seen = 0;
        variables.retain(|v| {
            seen += usize::from(equal(v));
            !equal(v) || seen <= room
        });
        variables.truncate(MOST_VARIABLES);
    }
    data["rows_left_out"] = (total - variables.len()).into();
    for cells in variables.iter_mut().filter_map(|v| v["pictures"].as_array_mut()).flatten() {
        cells["cells"].as_array_mut().into_iter().flatten().for_each(three_digits);
    }
    data["variables"] = variables.into();
    for key in ["unmatched", "contents", "not_compared", "notes"] {
        let mut items = list(data, key).unwrap_or_default();
        data[format!("{key}_count")] = items.len().into();
        items.truncate(MOST_ITEMS);
        data[key] = items.into();
    }
}

/// Rounds a number to three digits.
fn three_digits(cell: &mut Value) {
    let Some(x) = cell.as_f64() else { return };
    *cell = match x {
        0.0 => 0.into(),
        _ => format!("{x:.2e}").parse::<f64>().map_or(Value::Null, Value::from),
    };
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_page_leaves_out_rows_without_differences_first() {
        let row =
            |i: usize| json!({ "name": i, "values": 2, "differences": i % 2, "undecided": 0 });
        let rows: Vec<Value> = (0..MOST_VARIABLES + 100).map(row).collect();
        let map = json!([{ "cells": [0.0, 1.23456e-7, "inf", 98765.4] }]);
        let mut data = json!({ "variables": rows, "notes": vec!["x"; MOST_ITEMS + 1] });
        data["variables"][1]["pictures"] = map;
        bounded(&mut data);
        let rows = data["variables"].as_array().unwrap();
        assert_eq!((rows.len(), &data["rows_left_out"]), (MOST_VARIABLES, &100.into()));
        assert_eq!(data["values"], 2 * (MOST_VARIABLES + 100));
        let differing = rows.iter().filter(|row| row["differences"] == 1).count();
        assert_eq!(differing, MOST_VARIABLES / 2 + 50);
        assert!(rows.windows(2).all(|two| two[0]["name"].as_u64() < two[1]["name"].as_u64()));
        assert_eq!(rows[1]["pictures"][0]["cells"], json!([0, 1.23e-7, "inf", 98800.0]));
        let notes = data["notes"].as_array().unwrap();
        assert_eq!((notes.len(), &data["notes_count"]), (MOST_ITEMS, &(MOST_ITEMS + 1).into()));
        assert_eq!(data["unmatched_count"], 0);
    }
}
