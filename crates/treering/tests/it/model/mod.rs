//! Random programs over everything that keeps state, against a plain map.
//!
//! A world has a shared store, perhaps a node's and one between them, and processes that open the run, save, go back to an
//! older step, prune, crash at any store call, compact, lose their node, find stores full, down or without room for entries
//! of the log, and overtake each other, with locks that work, that lie, or that are not there. In some worlds checkpoints
//! stay on the node unless it is their turn, and programs remove old ones by number or by bytes. Checkpoints are removed one
//! by one; runs are branched, copied, renamed and removed, and programs go on with these (`sides.rs`). The node serves a run
//! of the same name in another store, too; it is drained; the whole run is removed (`elsewhere.rs`). In some worlds bytes
//! of packs are damaged (`damage.rs`). The laws, whatever happens:
//! - a checkpoint that was reported durable and that nobody has removed is listed in the shared store, and
//!   restores exactly without the node; a save that nobody waits for counts from the moment it says so;
//! - a process that opens the run in fair weather, whatever happened before, gets a state that is not older than the newest
//!   one that was complete on the node, unless that was lost since, and has moved it to the shared store;
//! - every checkpoint that is listed restores to exactly what was handed over at its step, or is reported as damaged if
//!   bytes of its epoch are;
//! - a process that opens the run gets such a state, and none older than the newest durable one without damage;
//! - a branch, a copy or a renamed run has all its checkpoints, or none, and what is done to other runs does not change it;
//! - a removal leaves a checkpoint that can be restored if there was one;
//! - a save fails because of a store, a death or another writer, and never because it misses something;
//! - what a program ended with is in the shared store when it has ended well;
//! - prune leaves the newest checkpoints that it was told to keep, counted in the shared store, and the multiples; so does
//!   retention behind a program, and where every checkpoint is an epoch of its own it leaves exactly these;
//! - nothing goes because of a limit of bytes that was never reached, and when a program has ended nothing more would go;
//! - a run can be opened in fair weather, whatever happened before;
//! - a run of the same name in another store, or before it was removed, has no part in any of this.
//!
//! `TREERING_PROGRAMS=N` runs that many programs (`make model`); `TREERING_SEED=S` runs one.

mod damage;
mod elsewhere;
mod sides;

use crate::support::Dice;
use elsewhere::Elsewhere;
use sides::Side;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use treering::testing::{Call, HookedStore, Locks};
use treering::{
    CheckpointInfo, ChunkSize, Compaction, Encoding, Error, ErrorKind, Keep, Level, Library,
    MemoryStore, Options, Result, Run, Save, Store, Variable, VariableMut,
};

/// The fault of a store at the moment.
#[derive(Clone, Default)]
struct Weather {
    full: Arc<AtomicBool>,
    down: Arc<AtomicBool>,
    /// Packs can be written, and entries of the log cannot.
    log_full: Arc<AtomicBool>,
    /// There is no room for a pack when it is made durable.
    late_full: Arc<AtomicBool>,
}

impl Weather {
    fn flags(&self) -> [(&AtomicBool, &'static str); 4] {
        [
            (&self.full, "full"),
            (&self.down, "down"),
            (&self.log_full, "without room in the log"),
            (&self.late_full, "found full too late"),
        ]
    }

    fn is_bad(&self) -> bool {
        self.flags().into_iter().any(|(flag, _)| flag.load(Ordering::SeqCst))
    }
}

/// A process: when it is dead, nothing that it still does reaches a store.
#[derive(Clone)]
struct Process {
    dead: Arc<AtomicBool>,
    /// The calls that are left until it dies; negative for never.
    fuse: Arc<AtomicI64>,
}

impl Process {
    fn new(fuse: i64) -> Process {
        Process { dead: Arc::default(), fuse: Arc::new(AtomicI64::new(fuse)) }
    }

    fn step(&self) -> Result<()> {
        if self.fuse.load(Ordering::SeqCst) >= 0 && self.fuse.fetch_sub(1, Ordering::SeqCst) == 0 {
            self.dead.store(true, Ordering::SeqCst);
        }
        match self.dead.load(Ordering::SeqCst) {
            true => Err(Error::new(ErrorKind::Io, "the process is dead")),
            false => Ok(()),
        }
    }

    /// A store as this process sees it.
    fn sees(&self, store: &Arc<dyn Store>, weather: &Weather, locks: Locks) -> Arc<dyn Store> {
        let (process, weather) = (self.clone(), weather.clone());
        let hooked = HookedStore::new(store.clone(), move |call| {
            process.step()?;
            if weather.down.load(Ordering::SeqCst) {
                return Err(Error::new(ErrorKind::Io, "the store is down"));
            }
            let writes = matches!(call, Call::Put(_) | Call::Append(..) | Call::Commit(_));
            let entry = matches!(call, Call::Commit(key) if key.contains("/log/"));
            let full = writes && weather.full.load(Ordering::SeqCst);
            let late = matches!(call, Call::Finish(_)) && weather.late_full.load(Ordering::SeqCst);
            match full || late || entry && weather.log_full.load(Ordering::SeqCst) {
                true => Err(Error::new(ErrorKind::Full, "the store is full")),
                false => Ok(()),
            }
        });
        Arc::new(HookedStore::with_locks(Arc::new(hooked), locks))
    }
}

/// The most bytes that were in a store before anything was removed from it: those of the run of the programs, and all.
#[derive(Clone, Default)]
struct Gauge(Arc<[AtomicU64; 2]>);

impl Gauge {
    /// A store that is looked at before each removal.
    fn watch(&self, store: Arc<dyn Store>) -> Arc<dyn Store> {
        let (gauge, inner) = (self.clone(), store.clone());
        Arc::new(HookedStore::new(store, move |call| {
            if matches!(call, Call::Delete(_)) {
                gauge.look(inner.as_ref());
            }
            Ok(())
        }))
    }

    fn look(&self, store: &dyn Store) {
        for (most, folder) in self.0.iter().zip(["runs/r", "runs"]) {
            most.fetch_max(bytes_in(store, folder), Ordering::SeqCst);
        }
    }

    fn get(&self) -> [u64; 2] {
        [0, 1].map(|at| self.0[at].load(Ordering::SeqCst))
    }

    fn reset(&self) {
        self.0.iter().for_each(|most| most.store(0, Ordering::SeqCst));
    }
}

/// The bytes of all objects below a folder.
fn bytes_in(store: &dyn Store, folder: &str) -> u64 {
    let items = store.list(folder).unwrap_or_default().into_iter();
    let bytes = items.map(|item| match item.folder {
        true => bytes_in(store, &format!("{folder}/{}", item.name)),
        false => item.size,
    });
    bytes.sum()
}

/// A program with the run open, and its arrays.
struct Program {
    /// Number of openings of the run until then, tries included.
    opening: u64,
    process: Process,
    run: Option<Run>,
    field: Vec<u8>,
    list: Vec<u32>,
    /// The newest step that it has saved, unless it was told that this failed.
    newest: Option<u64>,
}

type State = (Vec<u8>, Vec<u32>);

struct World {
    seed: u64,
    dice: Dice,
    shared: Arc<dyn Store>,
    /// Stores between a program and the shared one: the node's, and one that outlives it.
    node: Option<Arc<dyn Store>>,
    middle: Option<Arc<dyn Store>>,
    /// Another store, for copies.
    archive: Arc<dyn Store>,
    /// A run of the same name in a third store, whose programs use the same node.
    elsewhere: Elsewhere,
    at_shared: Weather,
    at_node: Weather,
    at_middle: Weather,
    /// Whether no store, no process and no second writer has given anybody trouble so far.
    calm: bool,
    locks: Locks,
    growth: f64,
    compaction: Option<Compaction>,
    /// Checkpoints that programs keep, in some worlds: a number of the newest, and multiples of a step.
    keep: Option<(u64, Option<u64>)>,
    /// The bytes that programs keep their run to, in some worlds.
    limit: Option<u64>,
    /// Every n-th checkpoint leaves the node.
    shared_every: u32,
    next_step: u64,
    /// The arrays that were handed over, by step.
    handed: BTreeMap<u64, State>,
    /// The steps that were reported durable and not removed.
    durable: BTreeSet<u64>,
    /// The saves that nobody has waited for.
    saves: Vec<Save>,
    /// The steps that were reported complete in the first tier, which has not been lost since.
    staged: BTreeSet<u64>,
    /// Number of tries to open the run.
    openings: u64,
    /// The most bytes in the shared store: in the time since the last look at everything, and in that before it.
    gauge: Gauge,
    most_before: [u64; 2],
    /// The steps that prune has removed.
    pruned: BTreeSet<u64>,
    /// Other runs: branches and copies, by name.
    sides: BTreeMap<String, Side>,
    /// Whether bytes may be damaged, and the epochs in which some are: run and sequence number of their first checkpoint.
    may_damage: bool,
    spoiled: BTreeSet<(String, u64)>,
    trace: Vec<String>,
}

const BYTES: usize = 700;

impl World {
    fn new(seed: u64) -> World {
        let mut dice = Dice(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
        let memory = || -> Arc<dyn Store> { Arc::new(MemoryStore::new()) };
        let node = (dice.roll(3) > 0).then(memory);
        let locks = [Locks::Real, Locks::Lying, Locks::None][dice.roll(3) as usize];
        let growth = [0.0, 1.5, 2.5, 1000.0][dice.roll(4) as usize];
        // Behind the program, too, in some worlds.
        let compaction =
            (dice.roll(2) == 0).then_some(Compaction { files: 6, pack_bytes: 1 << 20 });
        let every = (dice.roll(2) == 0).then_some(3);
        let keep = (dice.roll(2) == 0).then_some((1 + dice.roll(4), every));
        let limit = (dice.roll(4) == 0).then(|| 2000 + dice.roll(6000));
        let shared_every = if node.is_some() { [1, 1, 2, 3][dice.roll(4) as usize] } else { 1 };
        let middle = (node.is_some() && dice.roll(3) == 0).then(memory);
        let may_damage = dice.roll(4) == 0;
        let gauge = Gauge::default();
        World {
            seed,
            dice,
            keep,
            limit,
            shared_every,
            shared: gauge.watch(memory()),
            node,
            middle,
            archive: memory(),
            elsewhere: Elsewhere::default(),
            at_shared: Weather::default(),
            at_node: Weather::default(),
            at_middle: Weather::default(),
            calm: true,
            locks,
            growth,
            compaction,
            next_step: 0,
            handed: BTreeMap::new(),
            durable: BTreeSet::new(),
            saves: Vec::new(),
            staged: BTreeSet::new(),
            openings: 0,
            gauge,
            most_before: [0; 2],
            pruned: BTreeSet::new(),
            sides: BTreeMap::new(),
            may_damage,
            spoiled: BTreeSet::new(),
            trace: Vec::new(),
        }
    }

    fn note(&mut self, what: impl Into<String>) {
        self.trace.push(what.into());
    }

    fn fail(&self, what: &str) -> ! {
        panic!(
            "seed {}, locks {:?}, growth {}: {what}\n  {}",
            self.seed,
            self.locks,
            self.growth,
            self.trace.join("\n  ")
        );
    }

    fn options(&self, process: &Process) -> Options {
        let shared = process.sees(&self.shared, &self.at_shared, self.locks);
        let options = Options::in_store(shared, "r")
            .chunk(ChunkSize::new(64).unwrap())
            .encoding(Encoding::Raw)
            .growth(self.growth)
            .compact(self.compaction);
        let options = match self.keep {
            Some((last, every)) => options.keep(last, every),
            None => options,
        };
        let options = match self.limit {
            Some(bytes) if self.seed.is_multiple_of(2) => options.limit(bytes),
            Some(bytes) => options.store_limit(bytes),
            None => options,
        };
        let tiers = self.near(process).into_iter().rev();
        tiers.fold(options.shared_every(self.shared_every), Options::node)
    }

    /// The stores in front of the shared one as a process sees them, the nearest first.
    fn near(&self, process: &Process) -> Vec<Arc<dyn Store>> {
        let tiers = [(&self.node, &self.at_node), (&self.middle, &self.at_middle)];
        let sees = |tier, weather| process.sees(tier, weather, self.locks);
        tiers.iter().filter_map(|(tier, at)| tier.as_ref().map(|tier| sees(tier, at))).collect()
    }

    fn weathers(&self) -> [&Weather; 3] {
        [&self.at_shared, &self.at_node, &self.at_middle]
    }

    fn is_bad(&self) -> bool {
        self.weathers().into_iter().any(Weather::is_bad)
    }

    /// A new process opens the run and restores what there is; `alone` if no other program has it open.
    fn start(&mut self, alone: bool) -> Option<Program> {
        let process = Process::new(-1);
        let (field, list) = (vec![0; BYTES], Vec::new());
        self.ask();
        self.openings += 1;
        let opening = self.openings;
        let mut program = Program { opening, process, run: None, field, list, newest: None };
        let mut run = match Run::open(self.options(&program.process)) {
            Ok(run) => run,
            Err(error) => {
                self.note(format!("open: {error}"));
                if self.calm || alone && !self.is_bad() && self.spoiled.is_empty() {
                    self.fail("it cannot be opened in fair weather");
                }
                return None;
            }
        };
        run.notes().iter().for_each(|note| self.note(format!("note: {note}")));
        let restored = run.restore(&mut [
            VariableMut::new("field", &mut program.field),
            VariableMut::growing("list", &mut program.list),
        ]);
        match restored {
            Ok(Some(restored)) => {
                self.note(format!("opened, restored step {}", restored.step));
                let state = (program.field.clone(), program.list.clone());
                if self.handed.get(&restored.step) != Some(&state) {
                    self.fail("a restored state is not what was handed over");
                }
                if self.newest_sound().is_some_and(|newest| newest > restored.step) {
                    self.fail("an older state than the newest durable one was restored");
                }
                if self.newest_staged() > Some(restored.step) {
                    self.fail("an older state than the newest one on the node was restored");
                }
                // The next opener of the run moves it on at once.
                if alone && self.newest_staged() == Some(restored.step) {
                    self.durable.insert(restored.step);
                }
            }
            Ok(None) => {
                self.note("opened, nothing to restore");
                if !self.durable.is_empty() {
                    self.fail("durable checkpoints are gone");
                }
                if self.newest_staged().is_some() {
                    self.fail("checkpoints on the node are gone");
                }
                (program.field, program.list) = (vec![0; BYTES], Vec::new());
            }
            Err(error) => {
                self.note(format!("opened, cannot restore: {error}"));
                let excused =
                    self.is_bad() || self.is_lost() || program.process.dead.load(Ordering::SeqCst);
                if !excused {
                    self.fail("it cannot be restored");
                }
                return None;
            }
        }
        program.run = Some(run);
        Some(program)
    }

    /// Changes the arrays a little, and saves them; whether that goes to the shared store.
    fn save(&mut self, program: &mut Program) -> bool {
        let Some(run) = &mut program.run else { return false };
        for _ in 0..1 + self.dice.roll(3) {
            let at = self.dice.roll(BYTES as u64 - 20) as usize;
            let value = self.dice.roll(256) as u8;
            program.field[at..at + 20].fill(value);
        }
        match self.dice.roll(4) {
            0 => program.list.push(self.next_step as u32),
            1 => drop(program.list.pop()),
            2 => program.list.extend([7; 40]),
            _ => {}
        }
        let step = self.next_step;
        self.next_step += 1;
        self.handed.insert(step, (program.field.clone(), program.list.clone()));
        let variables =
            [Variable::new("field", &program.field), Variable::new("list", &program.list)];
        let save = match run.checkpoint(step, &variables) {
            Ok(save) => save,
            Err(error) => self.fail(&format!("a checkpoint was refused: {error}")),
        };
        program.newest = Some(step);
        // Half of the saves pile up.
        let level = save.level();
        if self.dice.roll(2) == 0 {
            self.note(format!("save of step {step} to {level:?}, not waited for"));
            self.saves.push(save);
            return level == Level::Shared;
        }
        let far = level == Level::Shared && (self.node.is_none() || self.dice.roll(3) > 0);
        let waited = if far { save.durable() } else { save.staged() };
        match waited {
            Ok(()) if far => {
                self.note(format!("save of step {step}: durable"));
                self.durable.insert(step);
            }
            Ok(()) => {
                self.note(format!("save of step {step}: on the node"));
                // Nobody goes on from what a writer does that was overtaken and has not noticed yet.
                if program.opening == self.openings {
                    self.staged.insert(step);
                }
                self.saves.push(save);
            }
            Err(error) => {
                self.note(format!("save of step {step}: {error}"));
                self.excuse(&error);
                program.newest = None;
            }
        }
        level == Level::Shared
    }

    /// Saves that were not waited for count as soon as they say that they are durable.
    fn ask(&mut self) {
        let (durable, open): (Vec<Save>, Vec<Save>) =
            std::mem::take(&mut self.saves).into_iter().partition(Save::is_durable);
        self.saves = open;
        let durable = durable.iter().map(Save::step).filter(|step| !self.pruned.contains(step));
        self.durable.extend(durable);
    }

    /// The newest step that must be on the node, if it can be read.
    fn newest_staged(&self) -> Option<u64> {
        let readable = self.spoiled.is_empty() && !self.is_bad();
        self.staged.last().copied().filter(|_| readable)
    }

    /// A program goes back to an older state, from where its later checkpoints go on.
    fn go_back(&mut self, program: &mut Program) {
        let Some(run) = &mut program.run else { return };
        if self.handed.is_empty() {
            return;
        }
        let step = self.dice.roll(self.next_step);
        let restored = run.restore_step(
            step,
            &mut [
                VariableMut::new("field", &mut program.field),
                VariableMut::growing("list", &mut program.list),
            ],
        );
        match restored {
            Ok(restored) => {
                self.note(format!("back to step {step}"));
                let state = (program.field.clone(), program.list.clone());
                if restored.step != step || self.handed.get(&step) != Some(&state) {
                    self.fail("an older state is not what was handed over");
                }
            }
            Err(error) => {
                self.note(format!("back to step {step}: {error}"));
                if error.kind() == ErrorKind::Damaged && self.spoiled.is_empty() {
                    self.fail("an older state is damaged");
                }
            }
        }
    }

    /// A program ends: what it saved last is in the shared store, or it is told why not.
    fn end(&mut self, program: Program) {
        let Some(run) = program.run else { return };
        match run.finish() {
            Ok(()) => {
                self.note(format!("the program ends with step {:?}", program.newest));
                // An old program may end long after.
                self.durable.extend(program.newest.filter(|step| !self.pruned.contains(step)));
            }
            Err(error) => {
                self.note(format!("the program ends: {error}"));
                self.excuse(&error);
            }
        }
    }

    /// Nothing that a save needs is missing or damaged, unless bytes were damaged; and nothing fails without a reason.
    fn excuse(&self, error: &Error) {
        if self.calm {
            self.fail("a save failed in fair weather");
        }
        if matches!(error.kind(), ErrorKind::Damaged | ErrorKind::NotFound)
            && self.spoiled.is_empty()
        {
            self.fail("a save found damage");
        }
    }

    fn prune(&mut self, fuse: i64) {
        let process = Process::new(fuse);
        let shared = process.sees(&self.shared, &self.at_shared, self.locks);
        let library = match self.dice.roll(2) {
            0 => {
                let near = self.near(&process);
                Library::of_tiers(near, shared)
            }
            _ => Library::of(shared),
        };
        let last = 1 + self.dice.roll(4);
        let every = (self.dice.roll(3) == 0).then_some(4);
        let limit = (self.dice.roll(4) == 0).then(|| 1 + self.dice.roll(8000));
        let keep = Keep { every, limit, ..Keep::newest(last) };
        // Checkpoints that a program has removed by now were not removed by this one.
        let before = self.listed();
        self.retained(&before);
        let sound = self.sound_steps("r");
        self.most_before = self.most();
        self.gauge.reset();
        let pruned = library.prune("r", keep, &|_, _| {});
        let limited = limit.is_some_and(|limit| self.gauge.get()[0] > limit);
        // Checkpoints that have become durable meanwhile may be gone again.
        self.ask();
        let durable: Vec<u64> = self.durable.iter().copied().collect();
        let before = union(&before, &durable);
        let after = self.listed();
        self.note(format!(
            "prune, keeping {last}: {before:?} to {after:?}, {:?}",
            pruned.as_ref().err()
        ));
        let planned = pruned.as_ref().ok().map(|plan| &plan.removed);
        let planned: Option<BTreeSet<u64>> =
            planned.map(|removed| removed.iter().map(|gone| gone.step).collect());
        for step in before.iter().filter(|step| !after.contains(step)) {
            // A program may remove some meanwhile.
            let of_program = self.may_be_gone(*step, &union(&before, &after));
            // If it was interrupted, any of those that it should not keep may be gone.
            let of_plan = planned.as_ref().is_none_or(|planned| planned.contains(step))
                && may_go(*step, &union(&before, &after), (last, every), limited);
            if !of_program && !of_plan {
                self.fail(&format!("prune has removed step {step}"));
            }
            self.durable.remove(step);
            self.pruned.insert(*step);
        }
        if after.last() < before.last() {
            self.fail("prune has removed the newest checkpoint");
        }
        self.still_sound("r", &sound);
    }

    /// Programs may have removed durable checkpoints: none that as many later ones have not followed, nor a multiple.
    fn retained(&mut self, listed: &[u64]) {
        let gone = self.durable.iter().copied().filter(|step| !listed.contains(step));
        for step in gone.collect::<Vec<u64>>() {
            if !self.may_be_gone(step, listed) {
                self.fail(&format!("step {step} was not to be removed: {listed:?}"));
            }
            self.durable.remove(&step);
        }
    }

    /// Whether a program may have removed a step from the shared store, which has had these.
    fn may_be_gone(&self, step: u64, listed: &[u64]) -> bool {
        let [of_run, of_store] = self.most();
        let bytes = if self.seed.is_multiple_of(2) { of_run } else { of_store };
        let limited = self.limit.is_some_and(|limit| bytes > limit);
        match self.keep {
            Some(keep) => may_go(step, listed, keep, limited),
            None => limited && may_go(step, listed, (1, None), true),
        }
    }

    /// The most bytes of the run and of all runs in the shared store since the look before the last.
    fn most(&self) -> [u64; 2] {
        let now = self.gauge.get();
        [0, 1].map(|at| now[at].max(self.most_before[at]))
    }

    /// When a program has ended, what it was told to keep is there, and nothing else that nobody needs.
    fn check_kept(&self) {
        if self.removes() && self.spoiled.is_empty() {
            let library = Library::of(self.shared.clone());
            let plan = library.plan_prune("r", self.rule(), &|_, _| {}).unwrap();
            if !plan.removed.is_empty() {
                self.fail(&format!("these were to be removed: {:?}", plan.removed));
            }
        }
        let (Some((last, every)), true) = (self.keep, self.growth == 0.0) else { return };
        if self.limit.is_some() || !self.spoiled.is_empty() {
            return;
        }
        let listed = self.listed();
        // With one epoch for each checkpoint, a second epoch is a second checkpoint.
        let newest = listed.len().saturating_sub(last.max(2) as usize);
        let is_kept = |step: &u64| every.is_some_and(|every| step.is_multiple_of(every));
        if let Some(step) = listed[..newest].iter().find(|step| !is_kept(step)) {
            self.fail(&format!("step {step} was to be removed: {listed:?}"));
        }
    }

    /// Closed epochs go into bundles; a process may die meanwhile, and nothing may be different afterwards.
    fn compact(&mut self, fuse: i64) {
        let process = Process::new(fuse);
        let shared = process.sees(&self.shared, &self.at_shared, self.locks);
        let before = self.listed();
        let rule = Compaction { files: 3, pack_bytes: 1 << 20 };
        let compacted = Library::of(shared).compact("r", rule, &|_, _| {});
        let after = self.listed();
        self.note(format!("compact: {:?}", compacted.map(|plan| plan.files_after)));
        let mut gone = before.iter().filter(|step| !after.contains(step));
        if gone.any(|step| !self.may_be_gone(*step, &union(&before, &after))) {
            self.fail(&format!("a compaction has lost something: {before:?} to {after:?}"));
        }
    }

    /// Checkpoints that programs keep.
    fn rule(&self) -> Keep {
        let (last, every) = self.keep.unwrap_or((u64::MAX, None));
        let of_run = self.limit.filter(|_| self.seed.is_multiple_of(2));
        let of_store = self.limit.filter(|_| !self.seed.is_multiple_of(2));
        Keep { every, limit: of_run, store_limit: of_store, ..Keep::newest(last) }
    }

    /// Whether programs remove checkpoints.
    fn removes(&self) -> bool {
        self.keep.is_some() || self.limit.is_some()
    }

    /// The steps in the shared store.
    fn listed(&self) -> Vec<u64> {
        self.checkpoints(&self.shared, "r").iter().map(|info| info.step).collect()
    }

    /// The checkpoints of a run; none if there is no such run.
    fn checkpoints(&self, store: &Arc<dyn Store>, run: &str) -> Vec<CheckpointInfo> {
        let (all, trouble) = match Library::of(store.clone()).checkpoints(run) {
            Ok(listed) => listed,
            Err(_) => return Vec::new(),
        };
        if !trouble.is_empty() {
            self.fail(&format!("entries of {run} cannot be read: {trouble:?}"));
        }
        all
    }

    /// The shared store alone holds everything that is durable, and nothing that is wrong.
    fn check(&mut self) {
        self.ask();
        let listed = self.listed();
        self.retained(&listed);
        self.most_before = self.gauge.get();
        self.gauge.reset();
        for step in &self.durable {
            if !listed.contains(step) {
                self.fail(&format!("durable step {step} is lost: {listed:?}"));
            }
        }
        for info in self.checkpoints(&self.shared, "r") {
            let step = info.step;
            let mut found = read(&self.shared, "r", step);
            // A program may remove it, or write its bundle anew, while it is read.
            for _ in 0..5 {
                if !self.removes() || found.is_ok() || !self.listed().contains(&step) {
                    break;
                }
                found = read(&self.shared, "r", step);
            }
            match found {
                Ok(state) if Some(&state) == self.handed.get(&step) => {}
                Ok(_) => self.fail(&format!("step {step} restores something else")),
                Err(error) if self.is_spoiled("r", &info, &error) => {}
                Err(_) if self.removes() && !self.listed().contains(&step) => {}
                Err(error) => self.fail(&format!("step {step} is listed and incomplete: {error}")),
            }
        }
        self.check_sides();
    }
}

/// The content of a checkpoint.
fn read(store: &Arc<dyn Store>, run: &str, step: u64) -> Result<State> {
    let checkpoint = Library::of(store.clone()).checkpoint(run, Some(step))?;
    Ok((checkpoint.read::<u8>("field")?, checkpoint.read::<u32>("list")?))
}

/// Whether a rule lets a step go, of these and those that are gone: not the newest N, which a limit of bytes does
/// not count, nor a multiple.
pub(crate) fn may_go(
    step: u64,
    listed: &[u64],
    (last, every): (u64, Option<u64>),
    limited: bool,
) -> bool {
    let later = listed.iter().filter(|other| **other > step).count() as u64;
    let is_multiple = every.is_some_and(|every| step.is_multiple_of(every));
    later >= last && !is_multiple || limited && later >= 1
}

fn union(one: &[u64], other: &[u64]) -> Vec<u64> {
    one.iter().chain(other).copied().collect::<BTreeSet<_>>().into_iter().collect()
}

fn play(seed: u64) {
    let mut world = World::new(seed);
    let mut programs: Vec<Program> = Vec::new();
    for _ in 0..6 + world.dice.roll(14) {
        // The newest process is the one that runs; those before it have been overtaken or left behind.
        match world.dice.roll(29) {
            0..=6 if !programs.is_empty() => {
                let mut program = programs.pop().unwrap();
                world.save(&mut program);
                programs.push(program);
            }
            7 if programs.len() > 1 => {
                let mut old = programs.remove(0);
                world.note("the old writer goes on");
                world.save(&mut old);
                programs.insert(0, old);
            }
            8 => {
                let fuse = if world.dice.roll(3) == 0 { world.dice.roll(30) as i64 } else { -1 };
                world.prune(fuse);
            }
            9 => {
                let which = world.dice.roll(4);
                let (place, name) = match world.dice.roll(3) {
                    0 => (world.at_shared.clone(), "shared store"),
                    1 => (world.at_middle.clone(), "middle"),
                    _ => (world.at_node.clone(), "node"),
                };
                world.calm = false;
                let (flag, what) = place.flags()[which as usize];
                let now = !flag.load(Ordering::SeqCst);
                flag.store(now, Ordering::SeqCst);
                world.note(format!("{name} {what}: {now}"));
            }
            16 => {
                let fuse = if world.dice.roll(3) == 0 { world.dice.roll(40) as i64 } else { -1 };
                world.compact(fuse);
            }
            18 => world.remove_one(),
            19 => world.branch(),
            20 => world.copy(),
            21 | 22 => world.visit_side(),
            23 if world.may_damage => {
                world.calm = false;
                world.damage();
            }
            24 => world.visit_elsewhere(),
            25 if programs.is_empty() && world.dice.roll(3) == 0 => {
                let fuse = if world.dice.roll(2) == 0 { world.dice.roll(30) as i64 } else { -1 };
                world.remove_all(fuse);
            }
            26 | 27 if programs.is_empty() => {
                let fuse = if world.dice.roll(3) == 0 { world.dice.roll(40) as i64 } else { -1 };
                world.drain(fuse);
            }
            17 if !programs.is_empty() => {
                let mut program = programs.pop().unwrap();
                world.go_back(&mut program);
                programs.push(program);
            }
            10 if !programs.is_empty() => {
                world.note("crash");
                world.calm = false;
                programs.last().unwrap().process.dead.store(true, Ordering::SeqCst);
                programs.pop();
            }
            11 if !programs.is_empty() => {
                world.note("a crash is coming");
                world.calm = false;
                let fuse = world.dice.roll(40) as i64;
                programs.last().unwrap().process.fuse.store(fuse, Ordering::SeqCst);
            }
            12 if world.node.is_some() => {
                world.note("the node is lost, and its processes with it");
                world.calm = false;
                programs.iter().for_each(|p| p.process.dead.store(true, Ordering::SeqCst));
                programs.clear();
                world.node = Some(Arc::new(MemoryStore::new()));
                world.forget_staged();
            }
            13 if !programs.is_empty() => {
                let program = programs.pop().unwrap();
                world.end(program);
            }
            // Locks that work keep a second writer out, after a while; others let it take the run over.
            _ if programs.is_empty() || world.locks != Locks::Real => {
                world.calm &= programs.is_empty();
                let started = world.start(programs.is_empty());
                programs.extend(started);
            }
            _ => {}
        }
        world.check();
    }
    drop(programs);
    for weather in world.weathers() {
        weather.flags().into_iter().for_each(|(flag, _)| flag.store(false, Ordering::SeqCst));
    }
    world.check();
    // In the end the run goes on, whatever has happened to it.
    let Some(mut program) = world.start(true) else {
        match world.is_lost() {
            true => return,
            false => world.fail("it cannot be opened any more"),
        }
    };
    let mut last = BTreeSet::new();
    for _ in 0..6 {
        let step = world.next_step;
        last.extend(world.save(&mut program).then_some(step));
    }
    last.insert(world.next_step - 1);
    let finished = program.run.take().map(Run::finish);
    if let Some(Err(error)) = finished {
        world.fail(&format!("the last saves failed: {error}"));
    }
    world.durable.append(&mut last);
    world.check();
    world.check_kept();
    let report = Library::of(world.shared.clone()).verify(None, true, &|_, _| {}).unwrap();
    if !report.is_sound() && world.spoiled.is_empty() {
        world.fail(&format!("{:?}", report.findings));
    }
}

#[test]
fn random_programs_never_lose_a_durable_checkpoint() {
    if let Some(seed) = std::env::var("TREERING_SEED").ok().and_then(|text| text.parse().ok()) {
        return play(seed);
    }
    let count = std::env::var("TREERING_PROGRAMS").ok().and_then(|text| text.parse().ok());
    let (next, count) = (AtomicU64::new(0), count.unwrap_or(400));
    // Programs wait for their threads more than they compute, so there are more of them than cores.
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let seeds = std::iter::repeat_with(|| next.fetch_add(1, Ordering::SeqCst));
                seeds.take_while(|seed| *seed < count).for_each(play);
            });
        }
    });
}
