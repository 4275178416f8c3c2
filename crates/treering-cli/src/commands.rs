//! The commands that check a store and tidy it.

use crate::output;
use crate::ranks::CommandRanks;
use serde_json::json;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use treering::{
    CompactPlan, Compaction, CopiedRun, DirectoryStore, DrainPlan, Error, ErrorKind, Keep, Library,
    Place, PlannedStep, PrunePlan, Result, Store,
};

/// The store of a place, and the place.
pub fn open(place: &str) -> Result<(Library, Place)> {
    // A folder's name may hold what looks like a run.
    let place = match Path::new(place).is_dir() {
        true => Place { store: place.into(), run: None, step: None },
        false => Place::parse(place)?,
    };
    Ok((Library::open(&place.store)?, place))
}

/// The run that a place must name.
pub fn run_of(place: &Place) -> Result<&str> {
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
            output::line(format!("wrong: {}: {}", finding.place, finding.what));
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
            format!("{} found in {place}", output::count(count as u64, "problem")),
        )
        .hint(
            "checkpoints that are not named above can be restored; Run::restore takes the newest of them",
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

pub fn prune_store(place: &str, limit: u64, dry_run: bool, json: bool) -> Result<()> {
    let (library, place) = open(place)?;
    if place.run.is_some() {
        return Err(Error::usage("without --keep-last, --store-limit is for all runs of a store")
            .hint("give STORE, or STORE#RUN with --keep-last"));
    }
    let plan = planned(|told| match dry_run {
        true => library.plan_prune_store(limit, told),
        false => library.prune_store(limit, told),
    })?;
    if json {
        return output::json(&json!({ "dry_run": dry_run, "plan": plan }));
    }
    let (verb, freed) = verbs(dry_run);
    for (run, PlannedStep { step, .. }) in &plan.removed {
        output::line(format!("{verb} {run}@{step}"));
    }
    let gone = output::count(plan.removed.len() as u64, "checkpoint");
    output::line(format!("{freed} {} of {gone}", output::bytes(plan.bytes)));
    let of_runs = plan.runs.iter().flat_map(|plan| &plan.notes);
    of_runs.chain(&plan.notes).for_each(|note| output::line(format!("note: {note}")));
    Ok(())
}

/// Computes a plan with progress, or carries it out.
fn planned<P>(work: impl FnOnce(&(dyn Fn(u64, u64) + Sync)) -> Result<P>) -> Result<P> {
    let bar = output::progress("checking what stays");
    let told = |done, total| {
        bar.set_length(total);
        bar.set_position(done);
    };
    let plan = work(&told)?;
    bar.finish_and_clear();
    Ok(plan)
}

/// Words for what a plan does, or would do.
fn verbs(dry_run: bool) -> (&'static str, &'static str) {
    match dry_run {
        true => ("would remove", "would free"),
        false => ("removed", "freed"),
    }
}

/// Computes a plan with progress, or carries it out, and shows it.
fn carry_out(
    dry_run: bool,
    json: bool,
    work: impl FnOnce(&(dyn Fn(u64, u64) + Sync)) -> Result<PrunePlan>,
) -> Result<()> {
    let plan = planned(work)?;
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
    let (verb, freed) = verbs(dry_run);
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
            let what = format!("{} is not a folder", node.display());
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
        (false, true) => format!("the request to stop {run} is withdrawn"),
        (false, false) => format!("{run} has no stop request"),
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

#[derive(clap::Args)]
pub struct CopyArguments {
    /// STORE#RUN, or STORE#RUN@STEP for one checkpoint.
    from: String,
    /// STORE#NEW; STORE alone keeps the name of the run. A store that does not exist is created.
    to: String,
    /// Copy only the checkpoints of this step; may be given several times. Default: all steps.
    #[arg(long = "step", value_name = "STEP")]
    steps: Vec<u64>,
    /// Only print what would be copied.
    #[arg(long)]
    dry_run: bool,
}

pub fn copy(arguments: &CopyArguments, json: bool) -> Result<()> {
    let (library, place) = open(&arguments.from)?;
    let run = run_of(&place)?;
    let target = match Path::new(&arguments.to).is_dir() {
        true => Place { store: (&arguments.to).into(), run: None, step: None },
        false => Place::parse(&arguments.to)?,
    };
    no_step(&target)?;
    let new = target.run.as_deref().unwrap_or(run);
    let steps: Vec<u64> = place.step.iter().chain(&arguments.steps).copied().collect();
    let (to, dry_run) = (Library::directory(&target.store), arguments.dry_run);
    let bar = output::progress("copying");
    let told = |done, total| {
        bar.set_length(total);
        bar.set_position(done);
    };
    let copied = match dry_run {
        true => library.plan_copy(run, &steps, &to, new)?,
        false => library.copy_run(run, &steps, &to, new, &told)?,
    };
    bar.finish_and_clear();
    if json {
        return output::json(&json!({ "dry_run": dry_run, "copied": copied }));
    }
    let verb = if dry_run { "would copy" } else { "copied" };
    output::line(format!("{verb} {}", told_of(&copied)));
    Ok(())
}

pub fn rename(place: &str, new: &str, json: bool) -> Result<()> {
    let (library, place) = open(place)?;
    no_step(&place)?;
    let run = run_of(&place)?;
    let bar = output::progress("renaming");
    let told = |done, total| {
        bar.set_length(total);
        bar.set_position(done);
    };
    let renamed = library.rename_run(run, new, &told)?;
    bar.finish_and_clear();
    if json {
        return output::json(&json!({ "renamed": renamed }));
    }
    output::line(format!("renamed {}", told_of(&renamed)));
    Ok(())
}

fn told_of(copied: &CopiedRun) -> String {
    format!(
        "run {} to {}: {} in {}, {}",
        copied.run,
        copied.new,
        output::count(copied.steps.len() as u64, "checkpoint"),
        output::count(copied.packs, "pack"),
        output::bytes(copied.bytes),
    )
}
