//! Other runs: branches, copies and renamed ones, with what programs add to them.

use super::{BYTES, Process, State, Weather, World, may_go, read, union};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use treering::{
    ChunkSize, Compaction, Encoding, Keep, Library, Options, Run, Store, Variable, VariableMut,
};

/// A run beside the one of the programs.
#[derive(Clone)]
pub(super) struct Side {
    /// Whether it is in the archive.
    pub(super) archived: bool,
    /// The arrays that were handed over, by step.
    states: BTreeMap<u64, State>,
    /// The steps that have to be there.
    durable: BTreeSet<u64>,
}

impl World {
    fn place_of(&self, archived: bool) -> &Arc<dyn Store> {
        if archived { &self.archive } else { &self.shared }
    }

    /// A store as a tool sees it that may die on the way.
    fn tool(&mut self, archived: bool) -> (Process, Library) {
        let fuse = if self.dice.roll(3) == 0 { self.dice.roll(40) as i64 } else { -1 };
        let process = Process::new(fuse);
        (process.clone(), Library::of(self.seen_by(&process, archived)))
    }

    fn seen_by(&self, process: &Process, archived: bool) -> Arc<dyn Store> {
        let fair = Weather::default();
        let weather = if archived { &fair } else { &self.at_shared };
        process.sees(self.place_of(archived), weather, self.locks)
    }

    fn steps_of(&self, archived: bool, run: &str) -> Vec<u64> {
        self.checkpoints(self.place_of(archived), run).iter().map(|info| info.step).collect()
    }

    /// A run and the states that were handed over to it.
    fn any_run(&mut self) -> (String, bool, BTreeMap<u64, State>) {
        let at = self.dice.roll(2 * self.sides.len() as u64 + 3) as usize;
        match self.sides.iter().nth(at) {
            Some((name, side)) => (name.clone(), side.archived, side.states.clone()),
            None => ("r".into(), false, self.handed.clone()),
        }
    }

    fn new_name(&mut self) -> String {
        format!("side-{}", self.trace.len())
    }

    fn any_of(&mut self, steps: &[u64]) -> Option<u64> {
        (!steps.is_empty()).then(|| steps[self.dice.roll(steps.len() as u64) as usize])
    }

    /// A new run begins with a checkpoint of another one.
    pub(super) fn branch(&mut self) {
        let (run, archived, states) = self.any_run();
        let listed = self.steps_of(archived, &run);
        let step = if self.dice.roll(2) == 0 { None } else { self.any_of(&listed) };
        let name = self.new_name();
        let branched = self.tool(archived).1.branch(&run, step, &name);
        let there = self.steps_of(archived, &name);
        self.note(format!(
            "branch {name} of {run}@{step:?}: {there:?}, {:?}",
            branched.as_ref().err()
        ));
        let expected = match &branched {
            Ok(manifest) => vec![manifest.step.0],
            Err(_) if there.len() < 2 => there.clone(),
            Err(_) => self.fail("a branch has several checkpoints"),
        };
        if there != expected || step.is_some_and(|step| there.iter().any(|there| *there != step)) {
            self.fail(&format!("the branch was to have {expected:?}"));
        }
        if !there.is_empty() {
            let durable = there.into_iter().collect();
            self.sides.insert(name, Side { archived, states, durable });
        }
    }

    /// A copy of some or all checkpoints, here or in the archive.
    pub(super) fn copy(&mut self) {
        let (run, archived, states) = self.any_run();
        let listed = self.steps_of(archived, &run);
        let mut steps: Vec<u64> =
            (0..self.dice.roll(3)).filter_map(|_| self.any_of(&listed)).collect();
        steps.sort_unstable();
        steps.dedup();
        let name = self.new_name();
        let to = self.dice.roll(2) == 0;
        let (process, from) = self.tool(archived);
        let target = Library::of(self.seen_by(&process, to));
        let copied = from.copy_run(&run, &steps, &target, &name, &|_, _| {});
        let there = self.steps_of(to, &name);
        self.note(format!(
            "copy {name} of {run}@{steps:?}: {there:?}, {:?}",
            copied.as_ref().err()
        ));
        let wanted = if steps.is_empty() { &listed } else { &steps };
        // A program may have removed some before they were copied.
        let gone = |step: &&u64| run == "r" && self.may_be_gone(**step, &listed);
        let missing = wanted.iter().filter(|step| !there.contains(step));
        if (copied.is_ok() || !there.is_empty()) && missing.filter(|step| !gone(step)).count() > 0 {
            self.fail(&format!("the copy was to have {wanted:?}"));
        }
        if !there.is_empty() {
            let durable = there.into_iter().collect();
            self.sides.insert(name, Side { archived: to, states, durable });
        }
    }

    /// One checkpoint of the run is removed.
    pub(super) fn remove_one(&mut self) {
        let before = self.listed();
        self.retained(&before);
        let Some(step) = self.any_of(&before) else { return };
        let sound = self.sound_steps("r");
        let removed = self.tool(false).1.remove_checkpoint("r", step, &|_, _| {});
        let after = self.listed();
        self.note(format!(
            "remove step {step}: {before:?} to {after:?}, {:?}",
            removed.as_ref().err()
        ));
        let all = union(&before, &after);
        for gone in before.iter().filter(|gone| !after.contains(gone)) {
            // A program may remove some meanwhile.
            if *gone != step && !self.may_be_gone(*gone, &all) {
                self.fail("other checkpoints are gone, too");
            }
            self.durable.remove(gone);
            self.pruned.insert(*gone);
        }
        if after.last() < before.last() {
            self.fail("the newest checkpoint is gone");
        }
        if removed.is_ok() && after.contains(&step) {
            self.fail("it is still there");
        }
        self.still_sound("r", &sound);
    }

    /// Something is done to another run.
    pub(super) fn visit_side(&mut self) {
        let at = self.dice.roll(self.sides.len().max(1) as u64) as usize;
        let Some((name, side)) = self.sides.iter().nth(at).map(|(n, s)| (n.clone(), s.clone()))
        else {
            return;
        };
        match self.dice.roll(8) {
            0 => self.remove_side(&name, side),
            1 => self.rename_side(&name, side),
            2 => self.prune_side(&name, side),
            3 => {
                let rule = Compaction { files: 3, pack_bytes: 1 << 20 };
                let compacted = self.tool(side.archived).1.compact(&name, rule, &|_, _| {});
                self.note(format!("compact {name}: {:?}", compacted.map(|plan| plan.files_after)));
            }
            _ => self.go_on_with_side(&name, side),
        }
    }

    fn remove_side(&mut self, name: &str, mut side: Side) {
        let removed = self.tool(side.archived).1.remove_run(name);
        let there = self.steps_of(side.archived, name);
        self.note(format!("remove {name}: {there:?} are left, {:?}", removed.as_ref().err()));
        if removed.is_ok() && !there.is_empty() {
            self.fail("it is still there");
        }
        side.durable.retain(|step| there.contains(step));
        match there.is_empty() {
            true => drop(self.sides.remove(name)),
            false => drop(self.sides.insert(name.to_string(), side)),
        }
    }

    fn rename_side(&mut self, name: &str, side: Side) {
        let new = self.new_name();
        let before = self.steps_of(side.archived, name);
        let renamed = self.tool(side.archived).1.rename_run(name, &new, &|_, _| {});
        let (old, there) = (self.steps_of(side.archived, name), self.steps_of(side.archived, &new));
        self.note(format!(
            "rename {name} to {new}: {old:?} and {there:?}, {:?}",
            renamed.as_ref().err()
        ));
        if !there.is_empty() && there != before
            || renamed.is_ok() && !(old.is_empty() && there == before)
        {
            self.fail(&format!("it had {before:?}"));
        }
        if there.is_empty() {
            return;
        }
        // The old one goes when the new one is complete.
        let durable = old.iter().copied().filter(|step| side.durable.contains(step)).collect();
        match old.is_empty() {
            true => drop(self.sides.remove(name)),
            false => drop(self.sides.insert(name.to_string(), Side { durable, ..side.clone() })),
        }
        let durable = there.into_iter().collect();
        self.sides.insert(new, Side { durable, ..side });
    }

    fn prune_side(&mut self, name: &str, mut side: Side) {
        let last = 1 + self.dice.roll(2);
        let before = self.steps_of(side.archived, name);
        let sound = if side.archived { Vec::new() } else { self.sound_steps(name) };
        let pruned = self.tool(side.archived).1.prune(name, Keep::newest(last), &|_, _| {});
        let after = self.steps_of(side.archived, name);
        self.note(format!(
            "prune {name}, keeping {last}: {before:?} to {after:?}, {:?}",
            pruned.err()
        ));
        let mut gone = before.iter().filter(|step| !after.contains(step));
        if gone.any(|step| !may_go(*step, &before, (last, None), false)) {
            self.fail("prune has removed too much");
        }
        if !side.archived {
            self.still_sound(name, &sound);
        }
        side.durable.retain(|step| after.contains(step));
        self.sides.insert(name.to_string(), side);
    }

    /// A program goes on with another run for some checkpoints.
    fn go_on_with_side(&mut self, name: &str, mut side: Side) {
        let fuse = if self.dice.roll(3) == 0 { self.dice.roll(60) as i64 } else { -1 };
        let process = Process::new(fuse);
        let options = Options::in_store(self.seen_by(&process, side.archived), name)
            .chunk(ChunkSize::new(64).unwrap())
            .encoding(Encoding::Raw)
            .growth(self.growth);
        let (mut field, mut list) = (vec![0; BYTES], Vec::new());
        let mut run = match Run::open(options) {
            Ok(run) => run,
            Err(error) => {
                self.note(format!("open {name}: {error}"));
                let dead = process.dead.load(Ordering::SeqCst) || self.at_shared.is_bad();
                match dead || !self.spoiled.is_empty() {
                    true => return,
                    false => self.fail("it cannot be opened in fair weather"),
                }
            }
        };
        let mut arrays =
            [VariableMut::new("field", &mut field), VariableMut::growing("list", &mut list)];
        let restored = match run.restore(&mut arrays) {
            Ok(Some(restored)) => restored.step,
            Ok(None) => self.fail(&format!("{name} has lost its checkpoints")),
            Err(error) => {
                self.note(format!("{name} cannot be restored: {error}"));
                let dead = process.dead.load(Ordering::SeqCst) || self.at_shared.is_bad();
                match dead || self.spoiled.iter().any(|_| !side.archived) {
                    true => return,
                    false => self.fail("it cannot be restored"),
                }
            }
        };
        if side.states.get(&restored) != Some(&(field.clone(), list.clone())) {
            self.fail(&format!("{name} restores something else for step {restored}"));
        }
        if self.spoiled.is_empty() && side.durable.last() > Some(&restored) {
            self.fail(&format!("{name} restores step {restored}, which is old"));
        }
        let first = side.states.keys().next_back().map_or(0, |last| last + 1);
        for step in first..first + 1 + self.dice.roll(4) {
            let at = self.dice.roll(BYTES as u64 - 20) as usize;
            field[at..at + 20].fill(self.dice.roll(256) as u8);
            list.push(step as u32);
            side.states.insert(step, (field.clone(), list.clone()));
            let variables = [Variable::new("field", &field), Variable::new("list", &list)];
            let saved = run.checkpoint(step, &variables).and_then(|save| save.durable());
            self.note(format!("{name}: step {step}, {:?}", saved.as_ref().err()));
            if saved.is_ok() {
                side.durable.insert(step);
            }
        }
        let ended = run.finish();
        self.note(format!("{name} ends: {:?}", ended.err()));
        self.sides.insert(name.to_string(), side);
    }

    /// Other runs have what they had.
    pub(super) fn check_sides(&self) {
        for (name, side) in &self.sides {
            let store = self.place_of(side.archived);
            let listed = self.checkpoints(store, name);
            let missing = |step: &&u64| listed.iter().all(|info| info.step != **step);
            if let Some(step) = side.durable.iter().find(missing) {
                self.fail(&format!("step {step} of {name} is lost"));
            }
            for info in &listed {
                match read(store, name, info.step) {
                    Ok(state) if Some(&state) == side.states.get(&info.step) => {}
                    Ok(_) => self.fail(&format!("{name}@{} restores something else", info.step)),
                    Err(error) if self.is_spoiled(name, info, &error) => {}
                    Err(error) => {
                        self.fail(&format!("{name}@{} is incomplete: {error}", info.step))
                    }
                }
            }
        }
    }
}
