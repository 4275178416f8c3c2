//! The commands that look at a store and tidy it.

use crate::output;
use crate::ranks::CommandRanks;
use serde_json::json;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use treering::{
    CheckpointInfo, CompactPlan, Compaction, DirectoryStore, DrainPlan, Error, ErrorKind, Keep,
    Library, Part, Place, PlannedStep, PrunePlan, Result, RunInfo, Store,
};

/// The store of a place, and the place.
fn open(place: &str) -> Result<(Library, Place)> {
    // A folder's name may hold what looks like a run.
    let place = match Path::new(place).is_dir() {
        true => Place { store: place.into(), run: None, step: None },
        false => Place::parse(place)?,
    };
    Ok((Library::open(&place.store)?, place))
}

/// The run that a place must name.
fn run_of(place: &Place) -> Result<&str> {
    place.run.as_deref().ok_or_else(|| {
        Error::usage(format!("{place} names no run"))
            .hint("write STORE#RUN; `treering ls STORE` lists the runs")
    })
}

/// A place without a step, for commands that work on whole runs.
fn no_step(place: &Place) -> Result<()> {
    match place.step {
        None => Ok(()),
        Some(_) => {
            Err(Error::usage(format!("{place} names one checkpoint")).hint("leave out the @STEP"))
        }
    }
}

pub fn ls(place: &str, all: bool, json: bool) -> Result<()> {
    let (library, place) = open(place)?;
    if place.step.is_some() {
        return show(&place.to_string(), json);
    }
    match place.run {
        Some(run) => ls_run(&library, &run, all, json),
        None => ls_store(&library, json),
    }
}

fn ls_store(library: &Library, json: bool) -> Result<()> {
    let runs = library.runs()?;
    if json {
        return output::json(&json!({ "runs": runs }));
    }
    let row = |run: &RunInfo| {
        vec![
            run.name.clone(),
            run.checkpoints.to_string(),
            run.newest_step.map_or("–".into(), |s| s.to_string()),
            run.newest_time.map_or("–".into(), output::moment),
            output::bytes(run.full_bytes),
            output::bytes(run.stored_bytes),
            output::ratio(run.full_bytes, run.stored_bytes),
            match run.unreadable {
                0 => String::new(),
                n => format!("{n} unreadable"),
            },
        ]
    };
    let header =
        ["run", "checkpoints", "newest step", "captured", "full copies", "stored", "ratio", ""];
    output::line(output::table(&header, &[3, 7], runs.iter().map(row)));
    Ok(())
}

fn ls_run(library: &Library, run: &str, all: bool, json: bool) -> Result<()> {
    let (mut checkpoints, trouble) = library.checkpoints(run)?;
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
    let row = |c: &CheckpointInfo| {
        let whole = c.epoch.run.is_none() && c.epoch.sequence == c.sequence;
        let mut remark = Vec::new();
        remark.extend((c.ranks > 1).then(|| format!("{} ranks", c.ranks)));
        remark.extend(whole.then(|| "whole".to_string()));
        remark.extend(c.abandoned.then(|| "abandoned".to_string()));
        if let Some(from) = c.parent.as_ref().and_then(|p| p.run.as_ref()) {
            remark.push(format!("branch of {from}"));
        }
        vec![
            c.step.to_string(),
            output::moment(c.time),
            output::bytes(c.full_bytes),
            output::bytes(c.stats.same_bytes),
            output::bytes(c.stats.moved_bytes),
            output::bytes(c.stats.new_bytes),
            output::bytes(c.stored_bytes),
            output::ratio(c.full_bytes, c.stored_bytes),
            output::seconds(c.stats.blocked_ns as f64 / 1e9),
            remark.join(", "),
        ]
    };
    let header =
        ["step", "captured", "size", "same", "moved", "new", "stored", "ratio", "blocked", ""];
    output::line(output::table(&header, &[1, 9], checkpoints.iter().map(row)));
    if abandoned > 0 && !all {
        output::line(format!("and {abandoned} of abandoned branches (--all lists them)"));
    }
    for error in &trouble {
        eprintln!("treering: unreadable: {error}");
    }
    Ok(())
}

pub fn show(place: &str, json: bool) -> Result<()> {
    if Path::new(place).is_file() {
        return crate::compare::show_trees(Path::new(place), json);
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
            "groups": manifest.groups.count(), "packs": packs, "full_bytes": manifest.full_bytes,
            "stats": manifest.stats, "variables": variables,
            "not_taken_apart": whole, "notes": checkpoint.notes(),
        }));
    }
    output::line(format!(
        "{run}@{}   captured {}   {} in {} of {}   needs {}",
        manifest.step,
        output::moment(manifest.time),
        output::bytes(manifest.full_bytes),
        output::count(variables.len() as u64, "variable"),
        output::count(manifest.ranks.into(), "rank"),
        output::count(packs, "pack"),
    ));
    let row = |v: &treering::VariableInfo| {
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
                treering::Order::C => v.shape.to_string(),
                treering::Order::Fortran => format!("{} Fortran", v.shape),
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
            output::bytes(v.moved_bytes),
            output::bytes(v.chunk_bytes),
            v.root[..12].to_string(),
            v.error_bound.map(|bound| bound.to_string()).unwrap_or_default(),
            v.bounds.iter().map(|t| t.bound.to_string()).collect::<Vec<_>>().join(" "),
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
        "moved",
        "chunk",
        "root",
        "error bound",
        "trees for",
    ];
    output::line(output::table(&header, &[2, 3, 4, 8, 11, 12, 13], variables.iter().map(row)));
    print_not_taken_apart(&whole);
    output::notes(&checkpoint.notes());
    Ok(())
}

/// How many datasets that were not taken apart are listed.
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

pub fn verify(place: &str, deep: bool, json: bool) -> Result<()> {
    let ranks = CommandRanks::start()?;
    let opened =
        open(place).and_then(|(library, place)| no_step(&place).map(|()| (library, place)));
    let (library, run) = match opened {
        Ok((library, place)) => (Ok(library), place.run),
        Err(error) => (Err(error), None),
    };
    let bar = output::progress("verifying");
    let told = |done, total| {
        bar.set_length(total);
        bar.set_position(done);
    };
    let report = Library::verify_with_ranks(ranks.comm(), library, run.as_deref(), deep, &told)?;
    bar.finish_and_clear();
    if json {
        output::json(&report)?;
    } else {
        for finding in &report.findings {
            output::line(format!("damaged: {}: {}", finding.place, finding.what));
        }
        for key in &report.unreferenced {
            output::line(format!("not referred to by any checkpoint: {key}"));
        }
        output::line(format!(
            "sound: {} of {}; {} in {} read and checked",
            report.sound,
            output::count(report.checkpoints, "checkpoint"),
            output::bytes(report.bytes),
            output::count(report.packs, "pack")
        ));
    }
    match report.findings.len() {
        0 => Ok(()),
        count => Err(Error::new(
            ErrorKind::Damaged,
            format!("{count} thing{} wrong in {place}", if count == 1 { " is" } else { "s are" }),
        )
        .hint(
            "checkpoints that are not named above restore; Run::restore takes the newest that does",
        )),
    }
}

pub fn prune(place: &str, keep: Keep, dry_run: bool, json: bool) -> Result<()> {
    let (library, place) = open(place)?;
    no_step(&place)?;
    let run = run_of(&place)?;
    carry_out(dry_run, json, |told| match dry_run {
        true => library.plan_prune(run, keep, told),
        false => library.prune(run, keep, told),
    })
}

/// Computes a plan with progress, or carries it out, and shows it.
fn carry_out(
    dry_run: bool,
    json: bool,
    work: impl FnOnce(&(dyn Fn(u64, u64) + Sync)) -> Result<PrunePlan>,
) -> Result<()> {
    let bar = output::progress("checking what stays");
    let told = |done, total| {
        bar.set_length(total);
        bar.set_position(done);
    };
    let plan = work(&told)?;
    bar.finish_and_clear();
    match json {
        true => output::json(&json!({ "dry_run": dry_run, "plan": plan })),
        false => {
            print_plan(&plan, dry_run);
            Ok(())
        }
    }
}

pub fn remove(place: &str, whole_run: bool, dry_run: bool, json: bool) -> Result<()> {
    let (library, place) = open(place)?;
    let run = run_of(&place)?;
    match (place.step, whole_run) {
        (Some(step), false) => carry_out(dry_run, json, |told| match dry_run {
            true => library.plan_remove_checkpoint(run, step, told),
            false => library.remove_checkpoint(run, step, told),
        }),
        (None, true) => {
            let removed = match dry_run {
                true => library.plan_remove_run(run)?,
                false => library.remove_run(run)?,
            };
            if json {
                return output::json(&json!({ "dry_run": dry_run, "removed": removed }));
            }
            output::line(format!(
                "{} run {run} with {}: {} in {}",
                if dry_run { "would remove" } else { "removed" },
                output::count(removed.checkpoints, "checkpoint"),
                output::bytes(removed.bytes),
                output::count(removed.files, "file"),
            ));
            Ok(())
        }
        (Some(_), true) => Err(Error::usage("a step and --whole-run contradict each other")
            .hint("leave one of them out")),
        (None, false) => Err(Error::usage(format!("{run} is a whole run"))
            .hint("give STORE#RUN@STEP for one checkpoint, or --whole-run")),
    }
}

fn print_plan(plan: &PrunePlan, dry_run: bool) {
    let steps = |planned: &[PlannedStep]| {
        output::ranges(&planned.iter().map(|planned| planned.step).collect::<Vec<_>>())
    };
    let (verb, freed) = match dry_run {
        true => ("would remove", "would free"),
        false => ("removed", "freed"),
    };
    output::line(format!("keeps steps: {}", steps(&plan.kept)));
    output::line(format!("{verb} steps: {}", steps(&plan.removed)));
    if !plan.forgotten.is_empty() {
        output::line(format!(
            "{verb} {}",
            output::count(plan.forgotten.len() as u64, "damaged file") + " of the log"
        ));
    }
    let packs = output::count(plan.packs.len() as u64, "pack");
    output::line(format!("{freed} {} in {packs}", output::bytes(plan.bytes)));
    if plan.held > 0 {
        output::line(format!(
            "{} of {} of these steps: steps that are kept build on them",
            output::bytes(plan.held_bytes),
            output::count(plan.held, "pack") + " stay",
        ));
    }
    plan.notes.iter().for_each(|note| output::line(format!("note: {note}")));
}

/// A bundle takes two files itself.
const FEWEST_FILES: u64 = 3;

pub fn compact(place: &str, dry_run: bool, json: bool) -> Result<()> {
    let (library, place) = open(place)?;
    no_step(&place)?;
    let runs = match &place.run {
        Some(run) => vec![run.clone()],
        None => library.run_names()?,
    };
    let rule = Compaction { files: FEWEST_FILES, ..Compaction::default() };
    let bar = output::progress("compacting");
    let told = |done, total| {
        bar.set_length(total);
        bar.set_position(done);
    };
    let mut plans: Vec<CompactPlan> = Vec::new();
    for run in &runs {
        plans.push(match dry_run {
            true => library.plan_compact(run, rule)?,
            false => library.compact(run, rule, &told)?,
        });
    }
    bar.finish_and_clear();
    match json {
        true => output::json(&json!({ "dry_run": dry_run, "plans": plans })),
        false => {
            plans.iter().for_each(|plan| print_compaction(plan, dry_run));
            Ok(())
        }
    }
}

fn print_compaction(plan: &CompactPlan, dry_run: bool) {
    let CompactPlan { run, files_before, files_after, .. } = plan;
    let verb = if dry_run { "would become" } else { "became" };
    match files_before == files_after {
        true => output::line(format!("{run}: {files_before} files, nothing to compact")),
        false => output::line(format!(
            "{run}: {files_before} files {verb} {files_after}; {} in {}",
            output::bytes(plan.bytes),
            output::count(plan.bundles.len() as u64, "new bundle"),
        )),
    }
    plan.notes.iter().for_each(|note| output::line(format!("note: {note}")));
}

pub fn drain(place: &str, nodes: &[PathBuf], dry_run: bool, json: bool) -> Result<()> {
    let (library, place) = open(place)?;
    no_step(&place)?;
    let run = run_of(&place)?;
    let mut stores: Vec<Arc<dyn Store>> = Vec::new();
    for node in nodes {
        if !node.is_dir() {
            let what = format!("{} is no folder", node.display());
            return Err(Error::new(ErrorKind::NotFound, what)
                .hint("give the folders that the program gave to Options::node"));
        }
        stores.push(Arc::new(DirectoryStore::new(node)));
    }
    let bar = output::progress("bringing checkpoints to the shared store");
    let told = |done, total| {
        bar.set_length(total);
        bar.set_position(done);
    };
    let plan = match dry_run {
        true => library.plan_drain(run, &stores)?,
        false => library.drain(run, &stores, &told)?,
    };
    bar.finish_and_clear();
    match json {
        true => output::json(&json!({ "dry_run": dry_run, "plan": plan })),
        false => {
            print_drain(&plan, dry_run);
            Ok(())
        }
    }
}

fn print_drain(plan: &DrainPlan, dry_run: bool) {
    let steps = |planned: &[PlannedStep]| {
        output::ranges(&planned.iter().map(|planned| planned.step).collect::<Vec<_>>())
    };
    let parts = output::count(plan.parts.len() as u64, "part");
    let verb = if dry_run { "would bring" } else { "brought" };
    output::line(format!("{verb} {parts} of checkpoints, {}", output::bytes(plan.bytes)));
    for (what, planned) in [("complete", &plan.completed), ("incomplete", &plan.incomplete)] {
        if !planned.is_empty() {
            output::line(format!("{what} steps: {}", steps(planned)));
        }
    }
    plan.notes.iter().for_each(|note| output::line(format!("note: {note}")));
}

pub fn halt(place: &str, cancel: bool, json: bool) -> Result<()> {
    let (library, place) = open(place)?;
    no_step(&place)?;
    let run = run_of(&place)?;
    let (changed, requested) = match cancel {
        true => (library.cancel_halt(run)?, false),
        false => (library.halt(run)?, true),
    };
    if json {
        return output::json(&json!({ "run": run, "requested": requested, "changed": changed }));
    }
    output::line(match (requested, changed) {
        (true, true) => format!("{run} is asked to stop after its next checkpoint"),
        (true, false) => format!("{run} was asked to stop already"),
        (false, true) => format!("{run} is not asked to stop any more"),
        (false, false) => format!("nobody has asked {run} to stop"),
    });
    Ok(())
}

pub fn branch(place: &str, new: &str, json: bool) -> Result<()> {
    let (library, place) = open(place)?;
    let run = run_of(&place)?;
    let source = library.checkpoint(run, place.step)?;
    let manifest = library.branch(run, Some(source.step()), new)?;
    output::notes(&source.notes());
    if json {
        return output::json(
            &json!({ "run": manifest.run, "step": manifest.step, "parent": manifest.parent }),
        );
    }
    output::line(format!(
        "run {:?} begins with step {} and shares its bytes",
        manifest.run, manifest.step
    ));
    Ok(())
}
