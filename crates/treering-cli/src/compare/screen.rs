//! The text of a comparison: one screen with what a person needs first, the rest on request.

use crate::output;
use treering::{
    Answer, ContentDifference, NotCompared, Outcome, Rank, Timings, Unmatched, VariableOutcome,
    VariableSummary,
};

/// Rows of a table, and of a list of items, by default.
pub const ROWS: usize = 8;
/// The least room of a name or an index in a table.
const LEAST: usize = 12;

/// The parts of a comparison to print.
#[derive(Clone, Copy)]
pub struct ScreenSettings {
    /// Everything: each variable at each step and rank, and every item.
    pub all: bool,
    /// The most rows of a table or list otherwise.
    pub rows: usize,
    pub timings: bool,
}

/// Prints a comparison.
pub fn show(outcome: &Outcome, settings: ScreenSettings) {
    let width = output::terminal_width();
    let screen = Screen { outcome, settings, width };
    screen.lines().iter().for_each(output::line);
}

struct Screen<'o> {
    outcome: &'o Outcome,
    settings: ScreenSettings,
    /// Columns of the terminal; none in a pipe.
    width: Option<usize>,
}

impl Screen<'_> {
    fn lines(&self) -> Vec<String> {
        let outcome = self.outcome;
        let mut lines = vec![self.verdict()];
        lines.extend(self.first());
        lines.extend(self.variables());
        lines.extend(self.examples());
        // Without values that differ, these items are the answer.
        let items = if outcome.differences > 0 { 1 } else { self.settings.rows };
        self.list(&mut lines, items, "not in both", &outcome.unmatched, unmatched_line);
        self.list(&mut lines, items, "beside the arrays", &outcome.contents, content_line);
        self.list(&mut lines, 1, "not compared", &outcome.not_compared, not_compared_line);
        if self.width.is_some() {
            self.list(&mut lines, 1, "note", &outcome.notes, |note| note.clone());
        }
        lines.push(self.effort());
        if self.settings.timings {
            lines.push(timings(&outcome.timings));
        }
        lines.extend(self.more());
        lines
    }

    fn verdict(&self) -> String {
        let line = self.outcome.verdict_line();
        let colour = match self.outcome.verdict {
            Answer::Equal => output::GREEN,
            Answer::Different => output::RED,
            Answer::Undecided => output::YELLOW,
        };
        match line.split_once(':') {
            Some((word, rest)) => format!("{}:{rest}", output::coloured(word, colour)),
            None => line,
        }
    }

    fn first(&self) -> Vec<String> {
        let outcome = self.outcome;
        let Some(place) = outcome.first_place() else { return Vec::new() };
        let mut lines = vec![format!("first: {place}")];
        if let Some((Some(a), Some(b))) = outcome.first.as_ref().map(|first| (&first.a, &first.b)) {
            lines.push(format!("       a = {a}, b = {b}"));
        }
        lines.extend(outcome.first_excess().map(|excess| format!("       {excess}")));
        lines
    }

    /// The table of variables: the worst, or all at each step and rank.
    fn variables(&self) -> Vec<String> {
        let worst = self.outcome.worst();
        if worst.is_empty() {
            return Vec::new();
        }
        let mut lines = vec![String::new()];
        if self.settings.all {
            lines.push(every_variable(self.outcome));
            return lines;
        }
        let most = self.settings.rows.min(worst.len());
        lines.push(self.worst_variables(&worst[..most]));
        if worst.len() > most {
            let others = output::count((worst.len() - most) as u64, "more variable");
            lines.push(format!("and {others} (--all)"));
        }
        lines.push(String::new());
        lines
    }

    fn worst_variables(&self, worst: &[VariableSummary]) -> String {
        let cells = |cell: &dyn Fn(&VariableSummary) -> String| worst.iter().map(cell).collect();
        let mut columns: Vec<(&str, Vec<String>)> = vec![
            ("beyond", cells(&|v| format!("{}{}", least(v.at_least), v.differences))),
            ("share", cells(&|v| percent(v.share()))),
            ("largest", cells(&|v| v.max_difference.short())),
            ("× bound", cells(&|v| v.times())),
            ("undecided", cells(&|v| v.undecided.to_string())),
        ];
        // A column that says nothing takes room from names.
        columns
            .retain(|(_, cells)| cells.iter().any(|cell| !["–", "0", "0 %"].contains(&&cell[..])));
        let (mut names, mut places): (Vec<String>, Vec<String>) =
            worst.iter().map(|v| (v.name.to_string(), first_at(v.first))).unzip();
        let header = ["worst variables", "first at"];
        if let Some(width) = self.width {
            // Two spaces and a line of its own beside each column, but for the last.
            let taken: usize = columns.iter().map(|(head, cells)| longest(head, cells) + 3).sum();
            let room = width.saturating_sub(taken + 5);
            let (name, place) = (longest(header[0], &names), longest(header[1], &places));
            let place = if name + place > room { place.min(room / 3).max(LEAST) } else { place };
            let name = room.saturating_sub(place).max(LEAST);
            names.iter_mut().for_each(|text| *text = shortened(text, name));
            places.iter_mut().for_each(|text| *text = shortened(text, place));
        }
        columns.insert(0, (header[0], names));
        columns.push((header[1], places));
        let heads: Vec<&str> = columns.iter().map(|(head, _)| *head).collect();
        let row = |at: usize| columns.iter().map(|(_, cells)| cells[at].clone()).collect();
        output::table(&heads, &[heads.len() - 1], (0..worst.len()).map(row))
    }

    /// A list of items: the first ones with a title, or all of them.
    fn list<T>(
        &self,
        lines: &mut Vec<String>,
        most: usize,
        title: &str,
        items: &[T],
        line: impl Fn(&T) -> String,
    ) {
        let Some(last) = items.len().checked_sub(1) else { return };
        let most = if self.settings.all { items.len() } else { most.max(1) };
        for (at, item) in items.iter().take(most).enumerate() {
            let more = match last + 1 - most.min(last + 1) {
                0 => String::new(),
                more if at + 1 == most => format!(" (and {more} more: --all)"),
                _ => String::new(),
            };
            let text = format!("{title}: {}", line(item));
            let text = match (self.width, self.settings.all) {
                (Some(width), false) => {
                    let room = (2 * width).saturating_sub(more.chars().count());
                    cut(&text, room)
                }
                _ => text,
            };
            lines.push(text + &more);
        }
    }

    /// Prints values that differ, variable by variable.
    fn examples(&self) -> Vec<String> {
        let mut lines = Vec::new();
        let most = if self.settings.all { usize::MAX } else { self.settings.rows };
        let with = self.outcome.variables.iter().filter(|v| !v.examples.is_empty());
        for variable in with.clone().take(most) {
            lines.push(location(Some(&variable.name), variable.step, Some(variable.rank)));
            for example in &variable.examples {
                let index: Vec<String> = example.index.iter().map(u64::to_string).collect();
                lines.push(format!("  ({}): {} and {}", index.join(", "), example.a, example.b));
            }
        }
        let others = with.count().saturating_sub(most);
        if others > 0 {
            let others = output::count(others as u64, "more variable");
            lines.push(format!("and values of {others} (--all)"));
        }
        lines
    }

    /// Bytes that were read, and the time that it took.
    fn effort(&self) -> String {
        let outcome = self.outcome;
        let [read, total] = [outcome.bytes_read, outcome.bytes_total];
        let time = output::seconds(outcome.timings.total);
        // Small arrays have larger trees and heads than values.
        let of = match read <= total {
            true => {
                let share = percent(read as f64 / (total as f64).max(1.0));
                format!("of {} ({share})", output::bytes(total))
            }
            false => format!("to compare {}", output::bytes(total)),
        };
        format!("read {} {of} in {time}", output::bytes(read))
    }

    /// The way to the rest, for a person at a terminal.
    fn more(&self) -> Option<String> {
        let wanted = self.width.is_some() && !self.settings.all;
        (wanted && self.outcome.verdict != Answer::Equal).then(|| {
            "more: --all (everything), --print N (values), --report FILE.html (figures)".to_string()
        })
    }
}

/// The length of the longest text of a column, its head included.
fn longest(head: &str, cells: &[String]) -> usize {
    let cells = cells.iter().map(|cell| cell.chars().count());
    cells.chain([head.chars().count()]).max().unwrap_or(0)
}

/// A text without its middle, if it is too long; its end tells more.
fn shortened(text: &str, room: usize) -> String {
    let length = text.chars().count();
    if length <= room {
        return text.to_string();
    }
    let (front, back) = (room / 3, room.saturating_sub(room / 3 + 1));
    let head: String = text.chars().take(front).collect();
    let tail: String = text.chars().skip(length - back).collect();
    format!("{head}…{tail}")
}

/// The sign of a count that may be larger.
fn least(at_least: bool) -> &'static str {
    if at_least { "≥ " } else { "" }
}

/// The beginning of a text.
fn cut(text: &str, room: usize) -> String {
    match text.chars().count() <= room {
        true => text.to_string(),
        false => text.chars().take(room.saturating_sub(1)).chain(['…']).collect(),
    }
}

/// A share, in percent.
fn percent(share: f64) -> String {
    match 100.0 * share {
        0.0 => "0 %".to_string(),
        p if p < 0.01 => format!("{p:.0e} %"),
        p if p < 10.0 => format!("{p:.2} %"),
        p if p < 100.0 => format!("{p:.1} %"),
        p => format!("{p:.0} %"),
    }
}

/// Step, rank and index of the first difference of a variable.
fn first_at(variable: &VariableOutcome) -> String {
    let place = location(None, variable.step, Some(variable.rank));
    match place.is_empty() {
        true => variable.span(),
        false => format!("{place} {}", variable.span()),
    }
}

/// Variable, step and rank, as far as there are any.
fn location(variable: Option<&String>, step: Option<u64>, rank: Option<Rank>) -> String {
    let mut parts = Vec::new();
    parts.extend(variable.map(|name| format!("variable {name}")));
    parts.extend(step.map(|step| format!("step {step}")));
    parts.extend(rank.filter(|rank| rank.0 > 0).map(|rank| format!("rank {rank}")));
    parts.join(", ")
}

/// A text behind a colon, if there is any.
fn behind_colon(text: &str) -> String {
    if text.is_empty() { String::new() } else { format!(": {text}") }
}

fn content_line(content: &ContentDifference) -> String {
    let place = location(None, content.step, Some(content.rank));
    let place = if place.is_empty() { place } else { format!(", {place}") };
    let detail = behind_colon(&content.detail);
    let file = if content.file.is_some() { "file " } else { "" };
    format!("{file}{}{place}: {} differs{detail}", content.of(), content.item)
}

fn not_compared_line(left: &NotCompared) -> String {
    let place = location(left.variable.as_ref(), left.step, left.rank);
    match place.is_empty() {
        true => left.why.clone(),
        false => format!("{place}: {}", left.why),
    }
}

fn unmatched_line(unmatched: &Unmatched) -> String {
    let place = location(unmatched.variable.as_ref(), unmatched.step, unmatched.rank);
    format!("{place}: {}{}", unmatched.what, behind_colon(&unmatched.detail))
}

/// The table of every variable that differs or is undecided, at each step and rank.
fn every_variable(outcome: &Outcome) -> String {
    let row = |v: &VariableOutcome| {
        vec![
            v.name.clone(),
            v.step.map_or("–".into(), |step| step.to_string()),
            v.rank.to_string(),
            v.bound.to_string(),
            v.values.to_string(),
            format!("{}{}", least(v.at_least), v.differences),
            v.max_difference.short(),
            v.rms.short(),
            v.nan_differences.to_string(),
            v.undecided.to_string(),
            v.span(),
        ]
    };
    let header = [
        "variable",
        "step",
        "rank",
        "bound",
        "values",
        "beyond",
        "largest",
        "rms",
        "NaN",
        "undecided",
        "first index",
    ];
    let of_interest = outcome.variables.iter().filter(|v| v.differences > 0 || v.undecided > 0);
    output::table(&header, &[3], of_interest.map(row))
}

fn timings(timings: &Timings) -> String {
    let parts = [
        ("set-up", timings.setup),
        ("reading trees", timings.trees),
        ("walking", timings.walking),
        ("sketches", timings.sketches),
        ("reading values", timings.reading),
        ("comparing values", timings.comparing),
        ("total", timings.total),
    ];
    let rows = parts.map(|(name, time)| vec![name.to_string(), output::seconds(time)]);
    output::table(&["stage", "time"], &[], rows)
}
