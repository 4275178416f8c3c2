//! The study as tables.

use super::aims::Aimed;
use super::ends::End;
use super::passes::Pass;
use super::schemes::Scheme;
use super::study::{Gain, Moment, Row, Study};
use super::throttle;
use crate::output;

pub fn types(study: &Study) {
    output::line(
        "\nContents of the files (bytes: everything but arrays, and how the files are made)",
    );
    let rows = study.types().into_iter().map(|(name, count, bytes)| {
        vec![name.to_string(), count.to_string(), output::bytes(bytes as u64)]
    });
    output::line(output::table(&["type", "variables", "size"], &[], rows));
}

/// The scheme of a row, with its block.
fn scheme_of(row: &Row) -> String {
    match row.block_bytes {
        Some(block) => format!("{} of {}", row.scheme, output::bytes(block as u64)),
        None => row.scheme.clone(),
    }
}

/// A table of ratios: a row for each pass and `by`, a column for each `of`.
fn ratios(rows: &[Row], head: &str, by: impl Fn(&Row) -> String, of: impl Fn(&Row) -> usize) {
    let mut columns: Vec<usize> = rows.iter().map(&of).collect();
    columns.sort_unstable();
    columns.dedup();
    let mut kinds: Vec<String> = Vec::new();
    for row in rows {
        if !kinds.contains(&by(row)) {
            kinds.push(by(row));
        }
    }
    let mut lines = Vec::new();
    for pass in Pass::ALL.map(|pass| pass.to_string()) {
        for kind in &kinds {
            let cell = |column: &usize| {
                let fits = |row: &&Row| row.pass == pass && by(row) == *kind && of(row) == *column;
                rows.iter().find(fits).map_or(String::new(), |row| format!("{:.3}", row.ratio))
            };
            let cells = columns.iter().map(cell);
            lines.push([pass.clone(), kind.clone()].into_iter().chain(cells).collect());
        }
    }
    let unit = |column: &usize| match head {
        "group" => format!("{head} {column}"),
        _ => output::bytes(*column as u64),
    };
    let columns: Vec<String> = columns.iter().map(unit).collect();
    let header = ["pass", "scheme"].into_iter().chain(columns.iter().map(String::as_str));
    output::line(output::table(&header.collect::<Vec<_>>(), &[1], lines));
}

pub fn groups(rows: &[Row]) {
    output::line("\nBytes of files over bytes stored, by the number of ranks of a group");
    ratios(rows, "group", scheme_of, |row| row.group);
}

pub fn blocks(rows: &[Row], group: usize) {
    output::line(format!("\nThe same by the size of blocks, in groups of {group}"));
    ratios(rows, "block", |row| row.scheme.clone(), |row| row.block_bytes.unwrap_or(0));
}

pub fn speeds(rows: &[Row], group: usize) {
    output::line(format!("\nSpeed in groups of {group}, and as a part of a memcpy's"));
    let mut rows: Vec<&Row> = rows.iter().filter(|row| row.group == group).collect();
    let order = Pass::ALL.map(|pass| pass.to_string());
    rows.sort_by_key(|row| order.iter().position(|pass| *pass == row.pass));
    let cells = |row: &Row| {
        vec![
            row.pass.clone(),
            scheme_of(row),
            format!("{:.3}", row.ratio),
            format!("{:.0}", row.encode_mb_s),
            format!("{:.3}", row.encode_of_memcpy),
            format!("{:.0}", row.decode_mb_s),
            format!("{:.3}", row.decode_of_memcpy),
        ]
    };
    let header =
        ["pass", "scheme", "ratio", "encode MB/s", "of memcpy", "decode MB/s", "of memcpy"];
    output::line(output::table(&header, &[1], rows.into_iter().map(cells)));
}

pub fn gains(gains: &[Gain]) {
    output::line("\nTwo passes by meaning beside one over whole files: gain (in groups of)");
    let cells = |gain: &Gain| {
        vec![
            gain.scheme.clone(),
            gain.general.clone(),
            format!("{:+.1} % ({})", gain.best_percent, gain.best_group),
            format!("{:+.1} % ({})", gain.worst_percent, gain.worst_group),
        ]
    };
    let header = ["scheme", "general", "best", "worst"];
    output::line(output::table(&header, &[1], gains.iter().map(cells)));
}

pub fn moments(moments: &[Moment], schemes: &[Scheme; 4]) {
    if moments.is_empty() {
        return;
    }
    output::line(
        "\nThe schemes over time, two passes by meaning and one over whole files, deflate",
    );
    let cells = |moment: &Moment| {
        let ratios = moment.ratios.iter().map(|ratio| format!("{ratio:.3}"));
        std::iter::once(moment.folder.clone()).chain(ratios).collect()
    };
    let names = schemes.map(|scheme| scheme.to_string());
    let header = std::iter::once("step").chain(names.iter().map(String::as_str));
    let rows = moments.iter().map(cells);
    output::line(output::table(&header.collect::<Vec<_>>(), &[], rows));
}

pub fn ends(ends: &[End], rate: f64, group: usize) {
    output::line(format!(
        "\nTo a store of {rate} MB/s that opens a file in {:.0} ms, and back; groups of {group}. \
         \"Of rate\": bytes of\nfiles a second over what the store moves in one.",
        throttle::LATENCY * 1e3
    ));
    let maybe = |seconds: Option<f64>| seconds.map_or("–".to_string(), output::seconds);
    let saved = |end: &End| {
        vec![
            end.name.clone(),
            end.files.to_string(),
            format!("{:.3}", end.ratio),
            maybe(end.read_s),
            maybe(end.merge_s),
            maybe(end.encode_s),
            output::seconds(end.write_s),
            output::seconds(end.checkpoint_s),
            format!("{:.2}", end.checkpoint_of_throttle),
        ]
    };
    let header =
        ["checkpoint", "files", "ratio", "read", "merge", "encode", "write", "all", "of rate"];
    output::line(output::table(&header, &[], ends.iter().map(saved)));
    let restored = |end: &End| {
        vec![
            end.name.clone(),
            format!("{:.2}", end.fetched),
            output::seconds(end.fetch_s),
            maybe(end.decode_s),
            maybe(end.scatter_s),
            output::seconds(end.restart_s),
            format!("{:.2}", end.restart_of_throttle),
        ]
    };
    let header = ["restart", "bytes read of stored", "read", "decode", "scatter", "all", "of rate"];
    output::line("");
    output::line(output::table(&header, &[], ends.iter().map(restored)));
}

pub fn aims(aims: &[Aimed]) {
    output::line(
        "\nOn one core, files from memory to memory and back, MB for each second of processor time",
    );
    let row = |aim: &Aimed| {
        let rate = |rate: f64| format!("{rate:.0}");
        let ratio = format!("{:.3}", aim.ratio);
        vec![aim.name.clone(), ratio, rate(aim.encode_mb_s), rate(aim.decode_mb_s)]
    };
    let header = ["aim", "ratio", "encode MB/s", "decode MB/s"];
    output::line(output::table(&header, &[], aims.iter().map(row)));
}
