//! The commands that list the content of a store.

use crate::commands::{open, run_of};
use crate::output;
use serde_json::json;
use std::path::Path;
use treering::{
    CheckpointInfo, Error, FileListing, Golden, LabelTest, Library, ListedArray, Order, Part,
    Result, RunInfo, VariableInfo,
};

#[derive(clap::Args)]
pub struct LsArguments {
    /// STORE (lists its runs) or STORE#RUN (lists its checkpoints).
    #[arg(default_value = ".")]
    place: String,
    /// Also list checkpoints of abandoned branches: steps after the one from which a program has restarted.
    #[arg(long)]
    all: bool,
    /// Only checkpoints with this label, as in 'git=4542*', or with a variable that has this attribute, as in
    /// 'temp*:units=K'; * and ? stand for anything. For a STORE: runs that
    /// have such a checkpoint. May be given several times; a checkpoint must pass all.
    #[arg(long = "where", value_name = "KEY=GLOB")]
    tests: Vec<String>,
}

pub fn ls(arguments: &LsArguments, json: bool) -> Result<()> {
    let (library, place) = open(&arguments.place)?;
    let tests = arguments.tests.iter().map(|text| LabelTest::parse(text));
    let tests: Vec<LabelTest> = tests.collect::<Result<_>>()?;
    if place.step.is_some() {
        if !tests.is_empty() {
            return Err(Error::usage("--where chooses among checkpoints, and this is one")
                .hint("leave out the @STEP"));
        }
        return show(&place.to_string(), json);
    }
    match place.run {
        Some(run) => ls_run(&library, &run, (arguments.all, &tests), json),
        None => ls_store(&library, &tests, json),
    }
}

/// The checkpoints that pass all tests. One whose variables cannot be read passes none of them, with a note.
fn chosen(
    library: &Library,
    run: &str,
    checkpoints: Vec<CheckpointInfo>,
    tests: &[LabelTest],
) -> Vec<CheckpointInfo> {
    let passes = |info: &CheckpointInfo| {
        library.passes(run, info, tests).unwrap_or_else(|error| {
            output::notes(&[format!("{run}@{} cannot be tested: {error}", info.step)]);
            false
        })
    };
    checkpoints.into_iter().filter(passes).collect()
}

/// Whether arrays have another size than what they were made of: then both are shown.
fn differ(sizes: impl IntoIterator<Item = (u64, u64)>) -> bool {
    sizes.into_iter().any(|(source, decoded)| source != decoded)
}

fn ls_store(library: &Library, tests: &[LabelTest], json: bool) -> Result<()> {
    let mut runs = library.runs()?;
    if !tests.is_empty() {
        runs.retain(|run| {
            let checkpoints = library.checkpoints(&run.name).map_or(Vec::new(), |(all, _)| all);
            !chosen(library, &run.name, checkpoints, tests).is_empty()
        });
    }
    if json {
        return output::json(&json!({ "runs": runs }));
    }
    let decoded = differ(runs.iter().map(|run| (run.source_bytes, run.full_bytes)));
    let row = |run: &RunInfo| {
        let mut row = vec![
            run.name.clone(),
            run.checkpoints.to_string(),
            run.newest_step.map_or("–".into(), |s| s.to_string()),
            run.newest_time.map_or("–".into(), output::moment),
            output::bytes(run.source_bytes),
        ];
        row.extend(decoded.then(|| output::bytes(run.full_bytes)));
        row.extend([
            output::bytes(run.stored_bytes),
            output::ratio(run.source_bytes, run.stored_bytes),
            match run.unreadable {
                0 => String::new(),
                n => format!("{n} unreadable"),
            },
        ]);
        row
    };
    let mut header = vec!["run", "checkpoints", "newest step", "captured", "full copies"];
    header.extend(decoded.then_some("decoded"));
    header.extend(["stored", "ratio", ""]);
    let left = [3, header.len() - 1];
    output::line(output::table(&header, &left, runs.iter().map(row)));
    Ok(())
}

fn ls_run(
    library: &Library,
    run: &str,
    (all, tests): (bool, &[LabelTest]),
    json: bool,
) -> Result<()> {
    let (checkpoints, trouble) = library.checkpoints(run)?;
    let mut checkpoints = chosen(library, run, checkpoints, tests);
    let abandoned = checkpoints.iter().filter(|c| c.abandoned).count();
    if !all {
        checkpoints.retain(|c| !c.abandoned);
    }
    if json {
        let unreadable: Vec<String> = trouble.iter().map(Error::to_string).collect();
        return output::json(
            &json!({ "run": run, "checkpoints": checkpoints, "unreadable": unreadable }),
        );
    }
    let decoded = differ(checkpoints.iter().map(|c| (c.source_bytes, c.full_bytes)));
    let row = |c: &CheckpointInfo| {
        let whole = c.epoch.run.is_none() && c.epoch.sequence == c.sequence;
        let mut remark = Vec::new();
        remark.extend((c.ranks > 1).then(|| format!("{} ranks", c.ranks)));
        remark.extend(whole.then(|| "whole".to_string()));
        remark.extend(c.abandoned.then(|| "abandoned".to_string()));
        if let Some(from) = c.parent.as_ref().and_then(|p| p.run.as_ref()) {
            remark.push(format!("branch of {from}"));
        }
        let mut row =
            vec![c.step.to_string(), output::moment(c.time), output::bytes(c.source_bytes)];
        row.extend(decoded.then(|| output::bytes(c.full_bytes)));
        row.extend([
            output::bytes(c.stats.same_bytes),
            output::bytes(c.stats.duplicate_bytes),
            output::bytes(c.stats.new_bytes),
            output::bytes(c.stored_bytes),
            output::ratio(c.source_bytes, c.stored_bytes),
            output::seconds(c.stats.blocked_ns as f64 / 1e9),
            remark.join(", "),
        ]);
        row
    };
    let mut header = vec!["step", "captured", "size"];
    header.extend(decoded.then_some("decoded"));
    header.extend(["same", "duplicate", "new", "stored", "ratio", "blocked", ""]);
    let left = [1, header.len() - 1];
    output::line(output::table(&header, &left, checkpoints.iter().map(row)));
    if abandoned > 0 && !all {
        output::line(format!("and {abandoned} of abandoned branches (--all lists them)"));
    }
    for error in &trouble {
        output::complain(format!("unreadable: {error}"));
    }
    Ok(())
}

/// Lists what a file holds.
fn show_file(listing: &FileListing, json: bool) -> Result<()> {
    if json {
        return output::json(listing);
    }
    let row = |array: &ListedArray| {
        let unread = array.unread.clone().unwrap_or_default();
        vec![array.name.clone(), array.kind.clone(), array.shape.to_string(), unread]
    };
    let noun = output::count(listing.arrays.len() as u64, "array");
    output::line(format!("{} file of {noun}", listing.format));
    if !listing.arrays.is_empty() {
        let header = ["array", "type", "shape", "not decoded"];
        output::line(output::table(&header, &[0, 1, 2, 3], listing.arrays.iter().map(row)));
    }
    for (item, value) in &listing.contents {
        let value = if value.is_empty() { String::new() } else { format!(": {value}") };
        output::line(format!("{item}{value}"));
    }
    Ok(())
}

pub fn show(place: &str, json: bool) -> Result<()> {
    let path = Path::new(place);
    let is_tree = || path.extension().is_some_and(|e| e == "tree") || Golden::open(path).is_ok();
    if path.is_file() && is_tree() {
        return crate::compare::show_trees(path, json);
    }
    if let Some(listing) = FileListing::read(place, None)? {
        return show_file(&listing, json);
    }
    let (library, place) = open(place)?;
    let run = run_of(&place)?;
    let checkpoint = library.checkpoint(run, place.step)?;
    let manifest = checkpoint.manifest();
    let variables = library.variables(&checkpoint);
    let whole = library.not_taken_apart(&checkpoint).unwrap_or_else(|error| {
        output::notes(&[format!("the records of files cannot be read: {error}")]);
        Vec::new()
    });
    let packs: u64 = checkpoint.groups().map(|group| group.count()).sum();
    if json {
        return output::json(&json!({
            "run": run, "step": manifest.step, "sequence": manifest.sequence, "time": manifest.time,
            "parent": manifest.parent, "epoch": manifest.epoch, "ranks": manifest.ranks,
            "groups": manifest.groups.count(), "packs": packs, "labels": manifest.labels,
            "source_bytes": manifest.source_bytes, "full_bytes": manifest.full_bytes,
            "stats": manifest.stats, "variables": variables,
            "not_taken_apart": whole, "notes": checkpoint.notes(),
        }));
    }
    let decoded = match manifest.source_bytes == manifest.full_bytes {
        true => String::new(),
        false => format!(" ({} decoded)", output::bytes(manifest.full_bytes)),
    };
    output::line(format!(
        "{run}@{}   captured {}   {}{decoded} in {} of {}   needs {}",
        manifest.step,
        output::moment(manifest.time),
        output::bytes(manifest.source_bytes),
        output::count(variables.len() as u64, "variable"),
        output::count(manifest.ranks.into(), "rank"),
        output::count(packs, "pack"),
    ));
    for (key, text) in manifest.labels.iter() {
        output::line(format!("{key}: {}", text.replace('\n', "\n  ")));
    }
    print_variables(&variables);
    print_not_taken_apart(&whole);
    output::notes(&checkpoint.notes());
    Ok(())
}

fn print_variables(variables: &[VariableInfo]) {
    let row = |v: &VariableInfo| {
        let part = v.part.as_ref().map(|part| match part {
            Part::Same => "the same on all ranks".to_string(),
            Part::Rows => "rows of all ranks".to_string(),
            Part::Box(p) => match p.ghosts {
                None => format!("at {:?} of {}", p.offset, p.global),
                Some(_) => format!("at {:?} of {}, with ghost cells", p.offset, p.global),
            },
        });
        vec![
            v.name.clone(),
            v.rank.to_string(),
            v.dtype.to_string(),
            match v.order {
                Order::C => v.shape.to_string(),
                Order::Fortran => format!("{} Fortran", v.shape),
            },
            part.unwrap_or_default(),
            output::bytes(v.bytes),
            output::bytes(v.new_bytes),
            output::bytes(v.encoded_bytes),
            match &v.codecs[..] {
                [] => "–".to_string(),
                [one] => one.clone(),
                [first, rest @ ..] => format!("{first}, {} more", rest.len()),
            },
            output::bytes(v.duplicate_bytes),
            output::bytes(v.chunk_bytes),
            v.root[..12].to_string(),
            v.error_bound.map(|bound| bound.to_string()).unwrap_or_default(),
            v.bounds.iter().map(|t| t.bound.to_string()).collect::<Vec<_>>().join(" "),
            v.attributes.to_string(),
        ]
    };
    let header = [
        "variable",
        "rank",
        "type",
        "shape",
        "part",
        "size",
        "new",
        "stored",
        "encoded by",
        "duplicate",
        "chunk",
        "root",
        "error bound",
        "trees for",
        "attributes",
    ];
    output::line(output::table(&header, &[2, 3, 4, 8, 11, 12, 13, 14], variables.iter().map(row)));
}

/// Number of listed datasets that were not taken apart.
const MOST_LISTED: usize = 20;

/// Lists datasets that are stored as the bytes of their files.
pub fn print_not_taken_apart(all: &[treering::NotTakenApart]) {
    for one in all.iter().take(MOST_LISTED) {
        let (name, why) = (&one.dataset.name, &one.dataset.why);
        output::line(format!("not taken apart: {name} of {}: {why}", one.file));
    }
    if all.len() > MOST_LISTED {
        output::line(format!("not taken apart: {} more", all.len() - MOST_LISTED));
    }
}
