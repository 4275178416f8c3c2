//! Numbers, dates and times in the names of files.

use regex::Regex;
use std::ops::Range;
use std::sync::LazyLock;

/// The fewest digits of a number that is taken for a step that is known: `mesh2.h5` has a 2 at every step.
const STEP_DIGITS: usize = 2;

/// The name of a file of a step with `{step}` in place of it, so that files of successive steps share it.
///
/// The law: it depends on the name and the step alone.
pub(crate) fn without_step(name: &str, step: u64) -> String {
    let times = times(name);
    let numbers = apart(&numbers(name), &times);
    let is_step = |place: &Range<usize>| {
        place.len() >= STEP_DIGITS && digits_of(&name[place.clone()]) == Some(step)
    };
    let mut places: Vec<Range<usize>> = numbers.into_iter().chain(times).filter(is_step).collect();
    places.sort_by_key(|place| place.start);
    let mut out = name.to_string();
    for place in places.into_iter().rev() {
        out.replace_range(place, "{step}");
    }
    out
}

/// Dates, and dates with times: 2024-01-31, 2024-01-31_12:00:00 (also with _ or - in the time), 2024-01-31-43200 (seconds of
/// the day), 20240131, 2024013112, 202401311200, 20240131120000, 20240131T1200.
static TIMES: LazyLock<Option<Regex>> = LazyLock::new(|| {
    let date = r"(?:19|20|21)\d\d-(?:0[1-9]|1[0-2])-(?:0[1-9]|[12]\d|3[01])";
    let compact = r"(?:19|20|21)\d\d(?:0[1-9]|1[0-2])(?:0[1-9]|[12]\d|3[01])";
    let (hour, more) = (r"(?:[01]\d|2[0-3])", r"[0-5]\d");
    let clock = format!("{hour}[:_-]{more}(?:[:_-]{more})?");
    let close = format!("{hour}:?{more}(?::?{more})?");
    let of_day = r"-[0-8]\d{4}";
    Regex::new(&format!(
        "{date}(?:T{close}|[T_ -]{clock}|{of_day})?|{compact}(?:T{close}|{hour}(?:{more}){{0,2}})?"
    ))
    .ok()
});

/// Places of dates and times in a name. One within a longer number is none.
pub(crate) fn times(name: &str) -> Vec<Range<usize>> {
    let Some(pattern) = TIMES.as_ref() else { return Vec::new() };
    let digit = |at: usize| name.as_bytes().get(at).is_some_and(u8::is_ascii_digit);
    let whole = |at: Range<usize>| {
        let found = pattern.find(&name[at.clone()]).map(|found| found.range());
        found == Some(0..at.len()) && !digit(at.end)
    };
    let mut all = Vec::new();
    for found in pattern.find_iter(name).map(|found| found.range()) {
        if found.start > 0 && digit(found.start - 1) {
            continue;
        }
        // A number behind it, such as a rank, may begin like minutes or seconds.
        let shorter = found.clone().rev().filter(|end| !digit(*end));
        let ends = std::iter::once(found.end).chain(shorter);
        all.extend(ends.map(|end| found.start..end).find(|at| whole(at.clone())));
    }
    all
}

pub(crate) fn digits(text: &str) -> String {
    text.chars().filter(char::is_ascii_digit).collect()
}

pub(crate) fn digits_of(text: &str) -> Option<u64> {
    digits(text).parse().ok()
}

/// The places that overlap none of others.
pub(crate) fn apart(places: &[Range<usize>], others: &[Range<usize>]) -> Vec<Range<usize>> {
    let free = |place: &&Range<usize>| !others.iter().any(|other| overlap(place, other));
    places.iter().filter(free).cloned().collect()
}

/// Positions of the numbers in a name. Digits of an extension such as `.h5` do not count, unless the
/// extension is nothing but a number.
pub(crate) fn numbers(name: &str) -> Vec<Range<usize>> {
    let end = match name.rfind('.') {
        Some(dot) if dot + 1 < name.len() && !name[dot + 1..].contains('/') => {
            let number = name[dot + 1..].bytes().all(|b| b.is_ascii_digit());
            if number { name.len() } else { dot }
        }
        _ => name.len(),
    };
    let digit = |at: usize| name.as_bytes()[at].is_ascii_digit();
    let starts = (0..end).filter(|at| digit(*at) && (*at == 0 || !digit(at - 1)));
    starts.map(|start| start..(start..end).find(|at| !digit(*at)).unwrap_or(end)).collect()
}

pub(crate) fn overlap(a: &Range<usize>, b: &Range<usize>) -> bool {
    a.start < b.end && b.start < a.end
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_successive_steps_share_a_name() {
        for (name, step, without) in [
            ("out_000100.h5", 100, "out_{step}.h5"),
            ("out_000100.h5", 200, "out_000100.h5"),
            ("step_100/rank_{rank}_100.h5", 100, "step_{step}/rank_{rank}_{step}.h5"),
            ("wrfout_d01_2024-01-31.nc", 20_240_131, "wrfout_d01_{step}.nc"),
            ("out_01.h5", 1, "out_{step}.h5"),
            // By chance.
            ("mesh2.h5", 2, "mesh2.h5"),
            ("x.h55", 55, "x.h55"),
            ("out_{step}.h5", 100, "out_{step}.h5"),
        ] {
            assert_eq!(without_step(name, step), without);
        }
    }
}
