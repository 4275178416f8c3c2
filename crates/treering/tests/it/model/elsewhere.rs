//! What happens to a run and its node beside its programs: the node serves another store, too, the whole run is removed, a
//! node is drained.

use super::{Process, State, Weather, World};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use treering::{
    ChunkSize, Encoding, ErrorKind, Library, MemoryStore, Options, Run, Store, Variable,
    VariableMut,
};

/// A run of the same name in another store, whose programs use the same node.
pub(super) struct Elsewhere {
    store: Arc<dyn Store>,
    handed: BTreeMap<u64, State>,
    /// The newest step that is complete in its store, or on the node.
    durable: Option<u64>,
    staged: Option<u64>,
}

impl Default for Elsewhere {
    fn default() -> Self {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
        Elsewhere { store, handed: BTreeMap::new(), durable: None, staged: None }
    }
}

impl World {
    /// The node is another one now.
    pub(super) fn forget_staged(&mut self) {
        self.staged.clear();
        self.elsewhere.staged = None;
    }

    /// A program of the other store opens its run, goes on from its own newest state, and saves; in half of the cases its
    /// store is down meanwhile. Nothing of this run is mistaken for its own, and the other way round.
    pub(super) fn visit_elsewhere(&mut self) {
        let Some(node) = self.node.clone() else { return };
        self.calm = false;
        let (process, weather) = (Process::new(-1), Weather::default());
        let shared = process.sees(&self.elsewhere.store, &weather, self.locks);
        let options = Options::in_store(shared, "r")
            .chunk(ChunkSize::new(64).unwrap())
            .encoding(Encoding::Raw)
            .growth(self.growth)
            .node(process.sees(&node, &self.at_node, self.locks));
        let mut run = match Run::open(options) {
            Ok(run) => run,
            Err(error) => return self.note(format!("elsewhere: open: {error}")),
        };
        let (mut field, mut list) = (vec![0u8; super::BYTES], Vec::<u32>::new());
        let restored = run.restore(&mut [
            VariableMut::new("field", &mut field),
            VariableMut::growing("list", &mut list),
        ]);
        let fair = !self.at_node.is_bad() && self.spoiled.is_empty();
        let newest = self.elsewhere.staged.filter(|_| fair).max(self.elsewhere.durable);
        match restored {
            Ok(restored) => {
                let step = restored.map(|restored| restored.step);
                self.note(format!("elsewhere: restored {step:?}"));
                let state = step.and_then(|step| self.elsewhere.handed.get(&step));
                if step.is_some() && state != Some(&(field.clone(), list.clone())) {
                    self.fail("elsewhere, a restored state is not what was handed over");
                }
                if step < newest {
                    self.fail(&format!("elsewhere, step {newest:?} is lost"));
                }
            }
            Err(error) if fair && newest.is_some() => {
                self.fail(&format!("elsewhere, step {newest:?} is lost: {error}"))
            }
            // The programs of this run remove entries of their own from the node while they are looked at.
            Err(error) => self.note(format!("elsewhere: restore: {error}")),
        }
        let down = self.dice.roll(2) == 0;
        weather.down.store(down, Ordering::SeqCst);
        for _ in 0..1 + self.dice.roll(3) {
            let step = 1_000_000 + self.elsewhere.handed.len() as u64;
            field.fill(step as u8);
            list.push(step as u32);
            self.elsewhere.handed.insert(step, (field.clone(), list.clone()));
            let variables = [Variable::new("field", &field), Variable::new("list", &list)];
            let Ok(save) = run.checkpoint(step, &variables) else {
                self.fail("elsewhere, a checkpoint was refused");
            };
            let saved = if down { save.staged() } else { save.durable() };
            match saved {
                Ok(()) if down => self.elsewhere.staged = Some(step),
                Ok(()) => self.elsewhere.durable = Some(step),
                Err(error) => self.note(format!("elsewhere: save of step {step}: {error}")),
            }
        }
        self.note(format!(
            "elsewhere: on the node {:?}, in the store {:?}",
            self.elsewhere.staged, self.elsewhere.durable
        ));
        process.dead.store(true, Ordering::SeqCst);
    }

    /// The whole run is removed, while no program has it open; or its removal dies on the way. What is listed then is whole,
    /// and nothing of the rest comes back.
    pub(super) fn remove_all(&mut self, fuse: i64) {
        let process = Process::new(fuse);
        let shared = process.sees(&self.shared, &self.at_shared, self.locks);
        let removed = Library::of(shared).remove_run("r");
        let is_gone = removed.is_ok();
        self.note(format!("the run is removed: {:?}", removed.err()));
        let listed = self.listed();
        if self.saves.iter().any(|save| save.is_durable()) {
            self.ask();
        }
        self.saves.clear();
        let gone: Vec<u64> =
            self.handed.keys().copied().filter(|step| !listed.contains(step)).collect();
        // One that was interrupted may have begun or not: what is on the node may come back, or not.
        self.staged.clear();
        if is_gone {
            self.handed.clear();
        }
        for step in gone {
            self.durable.remove(&step);
            self.pruned.insert(step);
        }
    }

    /// The node is drained, while no program has the run open: then what it had is in the shared store.
    pub(super) fn drain(&mut self, fuse: i64) {
        let Some(node) = self.node.clone().filter(|_| self.middle.is_none()) else { return };
        let process = Process::new(fuse);
        let shared = process.sees(&self.shared, &self.at_shared, self.locks);
        let node = process.sees(&node, &self.at_node, self.locks);
        let newest = self.newest_staged();
        let before = self.listed();
        match Library::of(shared).drain("r", &[node], &|_, _| {}) {
            Ok(plan) => {
                let steps: Vec<u64> = plan.completed.iter().map(|planned| planned.step).collect();
                self.note(format!("drained: {steps:?}"));
                let listed = self.listed();
                // A newer one that is in the shared store may have taken its place.
                if newest.is_some() && listed.last().copied() < newest {
                    self.fail(&format!("step {newest:?} was not drained: {listed:?}"));
                }
                self.durable.extend(newest.filter(|newest| listed.contains(newest)));
            }
            Err(error) => {
                self.note(format!("drain: {error}"));
                let no_run = error.kind() == ErrorKind::NotFound && before.is_empty();
                let excused = self.is_bad() || fuse >= 0 || !self.spoiled.is_empty();
                if !no_run && !excused {
                    self.fail("it cannot be drained");
                }
            }
        }
    }
}
