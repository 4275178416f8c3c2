//! The output of commands: tables, numbers with units, progress, JSON.

use comfy_table::{CellAlignment, ContentArrangement, Table};
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;
use std::io::{IsTerminal, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, UNIX_EPOCH};
use treering::{Error, Result};

/// A size in the unit that suits it.
pub fn bytes(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let power = (bytes.ilog2() / 10).min(UNITS.len() as u32);
    let value = bytes as f64 / 1024f64.powi(power as i32);
    let digits = if value < 10.0 { 2 } else { usize::from(value < 100.0) };
    format!("{value:.digits$} {}", UNITS[power as usize - 1])
}

/// A size such as `512MiB`, `2 GiB`, `10GB` or `4096`.
pub fn parse_bytes(text: &str) -> std::result::Result<u64, String> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let factor: u64 = match unit.trim().to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" | "kib" => 1 << 10,
        "m" | "mib" => 1 << 20,
        "g" | "gib" => 1 << 30,
        "t" | "tib" => 1 << 40,
        "kb" => 1000,
        "mb" => 1_000_000,
        "gb" => 1_000_000_000,
        "tb" => 1_000_000_000_000,
        _ => {
            return Err(format!(
                "invalid size {text:?}: write a whole number and B, KiB, MiB, GiB, TiB, kB, MB, GB or TB"
            ));
        }
    };
    let number: u64 = number
        .parse()
        .map_err(|_| format!("invalid size {text:?}: write a number and a unit, as in 64MiB"))?;
    number.checked_mul(factor).ok_or_else(|| format!("{text:?} is too large"))
}

/// A time span in the unit that suits it.
pub fn seconds(seconds: f64) -> String {
    match seconds {
        s if s < 1e-3 => format!("{:.0} µs", s * 1e6),
        s if s < 1.0 => format!("{:.1} ms", s * 1e3),
        s if s < 120.0 => format!("{s:.2} s"),
        s => format!("{:.0} min", s / 60.0),
    }
}

/// A moment, in UTC.
pub fn moment(milliseconds: u64) -> String {
    let time = UNIX_EPOCH + Duration::from_millis(milliseconds);
    humantime::format_rfc3339_seconds(time).to_string().replace('T', " ").replace('Z', " UTC")
}

/// This moment, in UTC.
pub fn now() -> String {
    let now = std::time::SystemTime::now().duration_since(UNIX_EPOCH);
    moment(now.map_or(0, |now| now.as_millis() as u64))
}

/// A ratio: the number of times something is smaller.
pub fn ratio(full: u64, stored: u64) -> String {
    match (full, stored) {
        (0, _) | (_, 0) => "–".to_string(),
        _ => match full as f64 / stored as f64 {
            r if r < 10.0 => format!("{r:.2}×"),
            r if r < 100.0 => format!("{r:.1}×"),
            r => format!("{r:.0}×"),
        },
    }
}

/// A line under the header and nothing else; in a pipe, not even that.
const PLAIN: &str = "     ──            ";
const BARE: &str = "                   ";

/// Colours of a terminal.
pub const RED: u8 = 31;
pub const GREEN: u8 = 32;
pub const YELLOW: u8 = 33;

/// Columns of the terminal that standard output is; none if it is a pipe or a file.
pub fn terminal_width() -> Option<usize> {
    let out = std::io::stdout();
    out.is_terminal().then(|| match rustix::termios::tcgetwinsize(&out) {
        Ok(size) if size.ws_col > 0 => usize::from(size.ws_col),
        _ => 80,
    })
}

/// A bold word in a colour, on terminals that have colours and people who did not set NO_COLOR.
pub fn coloured(text: &str, colour: u8) -> String {
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    let dumb = set("TERM").is_none_or(|term| term == "dumb");
    match terminal_width().is_none() || dumb || set("NO_COLOR").is_some() {
        true => text.to_string(),
        false => format!("\x1b[1;{colour}m{text}\x1b[0m"),
    }
}

/// So many of something.
pub fn count(number: u64, thing: &str) -> String {
    format!("{number} {thing}{}", if number == 1 { "" } else { "s" })
}

/// Ascending numbers, neighbours by `stride` joined: `0 to 90 by 10, 95`.
pub fn ranges(numbers: &[u64]) -> String {
    let mut parts = Vec::new();
    let mut rest = numbers;
    while let [first, ..] = rest {
        let stride = rest.get(1).map_or(0, |second| second.wrapping_sub(*first));
        let steady = rest.windows(2).take_while(|w| w[1].wrapping_sub(w[0]) == stride).count();
        let (run, tail) = rest.split_at(if steady < 3 { 1 } else { steady + 1 });
        parts.push(match (run, stride) {
            ([one], _) => one.to_string(),
            (run, 1) => format!("{first} to {}", run[run.len() - 1]),
            (run, stride) => format!("{first} to {} by {stride}", run[run.len() - 1]),
        });
        rest = tail;
    }
    match parts.is_empty() {
        true => "none".to_string(),
        false => parts.join(", "),
    }
}

/// A table whose first column is text and whose others, unless named in `left`, are numbers.
pub fn table(
    header: &[&str],
    left: &[usize],
    rows: impl IntoIterator<Item = Vec<String>>,
) -> String {
    let mut table = Table::new();
    let preset = if std::io::stdout().is_terminal() { PLAIN } else { BARE };
    table.load_preset(preset).set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(header);
    for row in rows {
        table.add_row(row);
    }
    for (at, column) in table.column_iter_mut().enumerate() {
        if at > 0 && !left.contains(&at) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table.to_string()
}

/// Whether another rank prints the result.
static QUIET: AtomicBool = AtomicBool::new(false);

/// Prints nothing any more: another rank does.
#[cfg(feature = "mpi")]
pub fn be_quiet() {
    QUIET.store(true, Ordering::Relaxed);
}

/// Prints a message on standard error. Where it cannot be written, the exit code tells.
pub fn complain(text: impl AsRef<str>) {
    if !QUIET.load(Ordering::Relaxed) {
        let _ = writeln!(std::io::stderr(), "treering: {}", text.as_ref());
    }
}

/// Prints a line. Nobody may be listening any more: then the command goes on quietly to its verdict.
pub fn line(text: impl AsRef<str>) {
    static CLOSED: AtomicBool = AtomicBool::new(false);
    if CLOSED.load(Ordering::Relaxed) || QUIET.load(Ordering::Relaxed) {
        return;
    }
    match writeln!(std::io::stdout(), "{}", text.as_ref()) {
        Ok(()) => {}
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => {
            CLOSED.store(true, Ordering::Relaxed);
        }
        Err(error) => {
            complain(format!("cannot write the result: {error}"));
            std::process::exit(2);
        }
    }
}

/// Whether a JSON document was printed.
static PRINTED: AtomicBool = AtomicBool::new(false);

/// Prints an error: the sentence on standard error; before it, if JSON was asked for and no document was printed yet, one
/// that has the error.
pub fn fail(error: &Error, json: bool) {
    if json && !PRINTED.load(Ordering::Relaxed) {
        json_line(&serde_json::json!({
            "error": error.to_string(),
            "kind": format!("{:?}", error.kind()),
            "code": error.kind().code(),
            "hint": error.advice(),
        }));
    }
    complain(error.to_string());
}

/// Prints one JSON document.
pub fn json(value: &impl Serialize) -> Result<()> {
    PRINTED.store(true, Ordering::Relaxed);
    let text = serde_json::to_string_pretty(value)
        .map_err(|e| Error::usage(format!("the result cannot be written as JSON: {e}")))?;
    line(text);
    Ok(())
}

/// Prints one JSON object on a line of its own.
pub fn json_line(value: &serde_json::Value) {
    line(value.to_string());
}

/// Prints notes beside the answer, on standard error.
pub fn notes(notes: &[String]) {
    notes.iter().for_each(|note| complain(format!("note: {note}")));
}

/// A progress bar of bytes on a terminal; nothing in a pipe.
pub fn progress(what: &str) -> ProgressBar {
    bar(what, "{msg} {bar:40} {binary_bytes} of {binary_total_bytes}, {eta} left")
}

/// A progress bar of things that are counted.
pub fn counting(what: &str) -> ProgressBar {
    bar(what, "{msg} {bar:40} {pos} of {len}, {eta} left")
}

/// A sign of life on a terminal while something is computed whose end is not known.
pub fn waiting(what: &str) -> ProgressBar {
    let bar = bar(what, "{spinner} {msg}, {elapsed}");
    if !bar.is_hidden() {
        bar.enable_steady_tick(Duration::from_millis(200));
    }
    bar
}

fn bar(what: &str, style: &str) -> ProgressBar {
    if !std::io::stderr().is_terminal() || QUIET.load(Ordering::Relaxed) {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new(0).with_message(what.to_string());
    if let Ok(style) = ProgressStyle::with_template(style) {
        bar.set_style(style);
    }
    bar
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_are_joined_into_ranges() {
        assert_eq!(ranges(&[]), "none");
        assert_eq!(ranges(&[7]), "7");
        assert_eq!(ranges(&[1, 2, 3, 4, 9]), "1 to 4, 9");
        assert_eq!(ranges(&[0, 10, 20, 30, 31]), "0 to 30 by 10, 31");
        assert_eq!(ranges(&[90, 100, 90]), "90, 100, 90");
    }

    #[test]
    fn sizes_have_units_and_return() {
        assert_eq!(bytes(0), "0 B");
        assert_eq!(bytes(1023), "1023 B");
        assert_eq!(bytes(1536), "1.50 KiB");
        assert_eq!(bytes(512 << 20), "512 MiB");
        assert_eq!(bytes(u64::MAX), "16.0 EiB");
        assert_eq!(parse_bytes("512MiB"), Ok(512 << 20));
        assert_eq!(parse_bytes("2 GiB"), Ok(2 << 30));
        assert_eq!(parse_bytes("10GB"), Ok(10_000_000_000));
        assert_eq!(parse_bytes("77"), Ok(77));
        for junk in ["", "MiB", "-1", "5x", "99999999999999999999", "99999999999TiB"] {
            assert!(parse_bytes(junk).is_err(), "{junk}");
        }
    }
}
