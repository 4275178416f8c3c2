//! Random programs of many ranks over everything that keeps state, against a pure function of the step.
//!
//! A world has one store and jobs that follow each other, each on another number of ranks, in other groups and nodes. A job
//! opens the run, restores and saves a box of a global array, rows of changing number, a rounded box and what is the same
//! on all ranks. Meanwhile the run is pruned, compacted and verified, the store is full, down or slow, its listings are
//! late, bytes of packs are damaged, a second writer takes the run, and one or all ranks die at a call of the store
//! or of the communicator; survivors end or go on. The laws are those of `model.rs`:
//! - a checkpoint that a rank was told is durable, and that no prune and no damage has taken, is listed;
//! - every checkpoint that is listed is exactly what was handed over at its step, or is reported as damaged if bytes of its
//!   epoch are;
//! - a prune removes what its rule does not keep, and never the newest checkpoint;
//! - a job that opens the run gets such a state, and none older than the newest durable one;
//! - in the end the run goes on.
//!
//! `TREERING_PROGRAMS=N` runs a fiftieth of that many programs (`make model`); `TREERING_RANK_SEED=S` runs one.

use crate::model::may_go;
use crate::support::Dice;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use treering::testing::{Call, HookedStore, Locks};
use treering::{
    Blob, Bound, CheckpointInfo, ChunkSize, Comm, Compaction, Encoding, End, Error, ErrorKind,
    Keep, Library, Lock, MemoryStore, Options, Overload, Put, Rank, Reduction, Result, Run, Store,
    StoreItem, ThreadRanks, Variable, VariableMut,
};

const ROWS: u64 = 23;
const LENGTH: u64 = 30;
const BOUND: f64 = 0.25;
/// The programs that one process plays: the threads of ranks that were killed stay.
const IN_A_PROCESS: u64 = 150;

/// A store whose listings may be as old as the one before.
struct LateListings {
    inner: Arc<dyn Store>,
    last: Mutex<(BTreeMap<String, Vec<StoreItem>>, Dice)>,
}

impl Store for LateListings {
    fn name(&self) -> String {
        self.inner.name()
    }

    fn put(&self, key: &str) -> Result<Box<dyn Put>> {
        self.inner.put(key)
    }

    fn commit(&self, key: &str, bytes: &[u8]) -> Result<bool> {
        self.inner.commit(key, bytes)
    }

    fn open(&self, key: &str) -> Result<Box<dyn Blob>> {
        self.inner.open(key)
    }

    fn copies(&self, key: &str) -> Vec<Result<Box<dyn Blob>>> {
        self.inner.copies(key)
    }

    fn list(&self, folder: &str) -> Result<Vec<StoreItem>> {
        let fresh = self.inner.list(folder)?;
        let mut last = self.last.lock().unwrap();
        let late = last.1.roll(3) == 0;
        match last.0.get(folder) {
            // Removed checkpoints are gone; only new ones come late.
            Some(old) if late => Ok(old.iter().filter(|i| fresh.contains(i)).cloned().collect()),
            _ => {
                last.0.insert(folder.to_string(), fresh.clone());
                Ok(fresh)
            }
        }
    }

    fn list_after(&self, folder: &str, after: &str) -> Result<Vec<StoreItem>> {
        Ok(self.list(folder)?.into_iter().filter(|item| item.name.as_str() > after).collect())
    }

    fn delete(&self, keys: &[String]) -> Result<()> {
        self.inner.delete(keys)
    }

    fn settle(&self, folder: &str) -> Result<()> {
        self.inner.settle(folder)
    }

    fn sweep(&self, folder: &str) -> Result<()> {
        self.inner.sweep(folder)
    }

    fn lock(&self, key: &str) -> Result<Option<Lock>> {
        self.inner.lock(key)
    }
}

fn grid(first: u64, count: u64, step: u64) -> Vec<f64> {
    let value = |row: u64, at: u64| {
        let moves = if row % 5 == step % 5 { step } else { 0 };
        (row * 1000 + at) as f64 + moves as f64 / 64.0
    };
    (first..first + count).flat_map(|row| (0..LENGTH).map(move |at| value(row, at))).collect()
}

fn warm(first: u64, count: u64, step: u64) -> Vec<f64> {
    grid(first, count, step).iter().map(|value| value * 0.731 + 0.1).collect()
}

/// All rows of the variable whose number changes.
fn list(step: u64) -> Vec<u32> {
    (0..(step % 7) * 40 + 3).map(|at| at as u32 * 3 + (step % 3) as u32).collect()
}

fn share(total: u64, comm: &dyn Comm) -> (u64, u64) {
    let at = |rank: u32| total * u64::from(rank) / u64::from(comm.size());
    (at(comm.rank().0), at(comm.rank().0 + 1) - at(comm.rank().0))
}

/// The next step of a rank; all ranks have the same list.
#[derive(Clone, Copy, Debug)]
enum Deed {
    Save { wait: bool },
    Prune { last: u64, every: Option<u64> },
    Compact,
    Verify,
    Full,
    Down,
    Damage,
    Overtake,
    RestoreAgain,
}

/// Everything that the ranks of all jobs share.
struct World {
    seed: u64,
    store: Arc<dyn Store>,
    locks: Locks,
    full: AtomicBool,
    down: AtomicBool,
    slow: bool,
    late: bool,
    /// The steps that were reported durable; those that a prune or damage has taken.
    durable: Mutex<BTreeSet<u64>>,
    taken: Mutex<BTreeSet<u64>>,
    /// The epochs of which a byte is damaged, by the number of their first checkpoint.
    damaged: Mutex<BTreeSet<u64>>,
    trace: Mutex<Vec<String>>,
}

impl World {
    fn note(&self, what: String) {
        self.trace.lock().unwrap().push(what);
    }

    fn fail(&self, what: &str) -> ! {
        let trace = self.trace.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        panic!("rank seed {}, locks {:?}: {what}\n  {}", self.seed, self.locks, trace.join("\n  "));
    }

    fn is_bad_weather(&self) -> bool {
        self.full.load(Ordering::SeqCst) || self.down.load(Ordering::SeqCst)
    }

    /// The newest step that must be there.
    fn newest_durable(&self) -> Option<u64> {
        let taken = self.taken.lock().unwrap().clone();
        self.durable.lock().unwrap().iter().rev().copied().find(|step| !taken.contains(step))
    }

    /// The newest step that must be there, of an epoch without damage.
    fn newest_sound(&self) -> Option<u64> {
        let bad = self.damaged.lock().unwrap().clone();
        if bad.is_empty() {
            return self.newest_durable();
        }
        let taken = self.taken.lock().unwrap().clone();
        let durable = self.durable.lock().unwrap().clone();
        let is_sound = |info: &&CheckpointInfo| {
            !bad.contains(&info.epoch.sequence.0)
                && durable.contains(&info.step)
                && !taken.contains(&info.step)
        };
        self.checkpoints().iter().filter(is_sound).map(|info| info.step).max()
    }

    fn is_damaged(&self) -> bool {
        !self.damaged.lock().unwrap().is_empty()
    }

    fn checkpoints(&self) -> Vec<CheckpointInfo> {
        let listed = Library::of(self.store.clone()).checkpoints("r");
        listed.map(|(all, _)| all).unwrap_or_default()
    }

    fn listed(&self) -> Vec<u64> {
        self.checkpoints().iter().map(|info| info.step).collect()
    }

    fn prune(&self, last: u64, every: Option<u64>) {
        let before = self.listed();
        let keep = Keep { every, ..Keep::newest(last) };
        let pruned = Library::of(self.store.clone()).prune("r", keep, &|_, _| {});
        let after = self.listed();
        self.note(format!("prune to {last}: {before:?} to {after:?}, {:?}", pruned.as_ref().err()));
        let gone = before.iter().copied().filter(|step| !after.contains(step));
        let planned = pruned.iter().flat_map(|plan| &plan.removed).map(|gone| gone.step);
        let gone: BTreeSet<u64> = gone.chain(planned).collect();
        let all: Vec<u64> = [&before, &after].into_iter().flatten().chain(&gone).copied().collect();
        let all: Vec<u64> = all.into_iter().collect::<BTreeSet<_>>().into_iter().collect();
        // The rule of the plan is not taken on trust.
        if let Some(step) = gone.iter().find(|step| !may_go(**step, &all, (last, every), false)) {
            self.fail(&format!("prune has removed step {step}"));
        }
        if after.last() < before.last() {
            self.fail("prune has removed the newest checkpoint");
        }
        if (after.len() as u64) < last.min(before.len() as u64) {
            self.fail("prune has left too few");
        }
        self.taken.lock().unwrap().extend(gone);
    }

    /// One byte of the newest pack is another one now, if a checkpoint needs it. All of that epoch may be damaged then, also
    /// what will be saved in it.
    fn damage(&self, dice: &mut Dice) {
        let folder = "runs/r/packs";
        let Some(item) = self.store.list(folder).unwrap().pop() else { return };
        let key = format!("{folder}/{}", item.name);
        let missing = key.clone();
        let without: Arc<dyn Store> =
            Arc::new(HookedStore::new(self.store.clone(), move |call| match call {
                Call::Open(key) if key == missing => {
                    Err(Error::new(ErrorKind::NotFound, "it is not there"))
                }
                _ => Ok(()),
            }));
        let needs = |info: &&CheckpointInfo| {
            Library::of(without.clone()).checkpoint("r", Some(info.step)).is_err()
        };
        let needs: BTreeSet<u64> =
            self.checkpoints().iter().filter(needs).map(|info| info.epoch.sequence.0).collect();
        if needs.is_empty() {
            return;
        }
        let Ok(blob) = self.store.open(&key) else { return };
        let mut bytes = vec![0; blob.size() as usize];
        blob.read_at(0, &mut bytes).unwrap();
        let at = dice.roll(bytes.len().max(1) as u64) as usize;
        let Some(byte) = bytes.get_mut(at) else { return };
        *byte ^= 1 << dice.roll(8);
        self.note(format!("byte {at} of {key} is damaged, and with it epochs {needs:?}"));
        self.damaged.lock().unwrap().extend(needs);
        self.store.delete(std::slice::from_ref(&key)).unwrap();
        let mut put = self.store.put(&key).unwrap();
        put.append(&bytes).unwrap();
        put.finish().unwrap();
        self.check();
    }

    /// Everything that is listed is exact, or damaged, and everything durable is listed.
    fn check(&self) {
        let checkpoints = self.checkpoints();
        let listed: Vec<u64> = checkpoints.iter().map(|info| info.step).collect();
        let taken = self.taken.lock().unwrap().clone();
        for step in self.durable.lock().unwrap().iter().filter(|step| !taken.contains(step)) {
            if !listed.contains(step) {
                self.fail(&format!("durable step {step} is lost: {listed:?}"));
            }
        }
        let library = Library::of(self.store.clone());
        for CheckpointInfo { step, epoch, .. } in checkpoints {
            let read = library.checkpoint("r", Some(step)).and_then(|checkpoint| {
                if checkpoint.step() != step {
                    return Err(Error::damaged("an older one serves"));
                }
                let whole = checkpoint.read_box::<f64>("grid", &[0, 0], &[ROWS, LENGTH])?;
                let warm_back = checkpoint.read_box::<f64>("warm", &[0, 0], &[ROWS, LENGTH])?;
                let near = warm_back.iter().zip(warm(0, ROWS, step));
                let near = near.into_iter().all(|(a, b)| (a - b).abs() <= BOUND);
                // The others are told by each rank that has some of them.
                let mut rows = BTreeMap::new();
                for entry in checkpoint.entries() {
                    match &entry.description.name[..] {
                        "list" => {
                            let bytes = checkpoint.read_together(&[entry])?;
                            rows.insert(entry.rank, bytes);
                        }
                        "clock" => drop(checkpoint.read_together(&[entry])?),
                        _ => {}
                    }
                }
                let expected = list(step).into_iter().flat_map(u32::to_le_bytes);
                let listed = rows.into_values().flatten().eq(expected);
                Ok(whole == grid(0, ROWS, step) && near && listed)
            });
            match read {
                Ok(true) => {}
                Ok(false) => self.fail(&format!("step {step} is something else")),
                Err(error)
                    if self.damaged.lock().unwrap().contains(&epoch.sequence.0)
                        && error.kind() == ErrorKind::Damaged =>
                {
                    self.taken.lock().unwrap().insert(step);
                }
                // It was pruned meanwhile, by a job that goes on.
                Err(_) if !self.listed().contains(&step) => {}
                Err(error) => self.fail(&format!("step {step} is listed and incomplete: {error}")),
            }
        }
    }

    fn verify(&self) {
        let report = Library::of(self.store.clone()).verify(None, true, &|_, _| {});
        match report {
            Ok(report) if report.is_sound() => {}
            Ok(_) if self.is_damaged() => {}
            Ok(report) => self.fail(&format!("not sound: {:?}", report.findings)),
            Err(error) => self.note(format!("verify: {error}")),
        }
    }

    /// Whether something happens in a job that excuses failures.
    fn excuses(&self, job: &Job) -> bool {
        let excuse =
            |deed: &Deed| matches!(deed, Deed::Full | Deed::Down | Deed::Damage | Deed::Overtake);
        let dies = job.crash.is_some() || job.comm_crash.is_some();
        let damaged = self.is_damaged();
        dies || self.is_bad_weather() || damaged || job.deeds.iter().any(excuse)
    }

    /// A rank that waits for a checkpoint of which another group's part has failed waits that long.
    fn patience(&self, job: &Job) -> Duration {
        Duration::from_secs(if self.excuses(job) { 2 } else { 120 })
    }

    fn options(&self, job: &Job, store: Arc<dyn Store>, comm: &Arc<dyn Comm>) -> Options {
        Options::in_store(store, "r")
            .ranks(comm.clone())
            .patience(self.patience(job))
            .ranks_per_pack(job.per_pack)
            .chunk(ChunkSize::new(64).unwrap())
            .encoding(Encoding::Raw)
            .growth(job.growth)
            .overload(if self.slow { Overload::Skip } else { Overload::Wait })
    }

    fn save(&self, run: &mut Run, comm: &dyn Comm, step: u64, wait: bool) -> Result<()> {
        let (first, count) = share(ROWS, comm);
        let (box_of, rows) = ([ROWS, LENGTH], list(step));
        let (row, number) = share(rows.len() as u64, comm);
        let (grid, warm, clock) = (grid(first, count, step), warm(first, count, step), [step; 3]);
        let part = |name, data| {
            Variable::new(name, data).shaped(&[count, LENGTH]).part_of(&box_of, &[first, 0])
        };
        let state = [
            part("grid", &grid),
            part("warm", &warm).error_bound(Bound::abs(BOUND)),
            Variable::new("list", &rows[row as usize..(row + number) as usize]).rows(),
            Variable::new("clock", &clock).same(),
        ];
        let save = run.checkpoint(step, &state)?;
        if !wait || save.is_skipped() {
            return Ok(());
        }
        match save.durable() {
            Ok(()) => drop(self.durable.lock().unwrap().insert(step)),
            Err(error) if died(&error) => return Err(error),
            Err(error) => self.note(format!("rank {}: step {step}: {error}", comm.rank())),
        }
        Ok(())
    }

    fn restore(&self, run: &mut Run, comm: &dyn Comm) -> Result<()> {
        let newest = self.newest_sound();
        let (first, count) = share(ROWS, comm);
        let box_of = [ROWS, LENGTH];
        let len = (count * LENGTH) as usize;
        let (mut grid_back, mut warm_back) = (vec![0.0f64; len], vec![0.0f64; len]);
        let (mut rows, mut clock) = (Vec::<u32>::new(), [0u64; 3]);
        let part = |name, data| {
            VariableMut::new(name, data).shaped(&[count, LENGTH]).part_of(&box_of, &[first, 0])
        };
        let restored = run.restore(&mut [
            part("grid", &mut grid_back),
            part("warm", &mut warm_back),
            VariableMut::growing("list", &mut rows),
            VariableMut::new("clock", &mut clock),
        ])?;
        let Some(step) = restored.map(|restored| restored.step) else {
            match newest {
                Some(step) => {
                    self.fail(&format!("nothing is restored, but step {step} is durable"))
                }
                None => return Ok(()),
            }
        };
        let near = warm_back.iter().zip(warm(first, count, step));
        let near = near.into_iter().all(|(a, b)| (a - b).abs() <= BOUND);
        if grid_back != grid(first, count, step) || !near || clock != [step; 3] {
            self.fail(&format!("rank {} restores something else at step {step}", comm.rank()));
        }
        if newest > Some(step) && !self.taken.lock().unwrap().contains(&newest.unwrap_or(0)) {
            self.fail(&format!("step {step} is restored, but {newest:?} is durable"));
        }
        let bytes: Vec<u8> = rows.iter().flat_map(|value| value.to_le_bytes()).collect();
        let all = comm.gather(Rank(0), &bytes)?.concat();
        let expected: Vec<u8> = list(step).iter().flat_map(|value| value.to_le_bytes()).collect();
        if comm.rank() == Rank(0) && all != expected {
            self.fail(&format!("the rows of step {step} are others"));
        }
        Ok(())
    }
}

/// One execution of the program.
#[derive(Clone)]
struct Job {
    number: u64,
    nodes: Vec<String>,
    per_pack: u32,
    growth: f64,
    deeds: Vec<Deed>,
    dice: Dice,
    /// The victim, and the call of its store at which it dies, with all others or alone.
    crash: Option<(u32, i64, bool)>,
    /// The same for a call of its communicators.
    comm_crash: Option<(u32, u64)>,
    goes_on: bool,
    finishes: bool,
}

impl Job {
    fn new(world: &World, number: u64, dice: &mut Dice) -> Job {
        let ranks = 1 + dice.roll(5);
        let nodes = 1 + dice.roll(2);
        // Nobody lets go of a lock that a killed thread holds.
        let may_die = world.locks != Locks::Real;
        let victim = dice.roll(ranks) as u32;
        let deeds = (0..3 + dice.roll(6)).map(|_| match dice.roll(20) {
            0 | 1 => {
                let every = (dice.roll(3) == 0).then_some(4);
                Deed::Prune { last: 1 + dice.roll(3), every }
            }
            2 => Deed::Compact,
            3 => Deed::Verify,
            4 if dice.roll(2) == 0 => Deed::Full,
            5 if dice.roll(3) == 0 => Deed::Down,
            6 if dice.roll(4) == 0 => Deed::Damage,
            7 if may_die && dice.roll(2) == 0 => Deed::Overtake,
            8 => Deed::RestoreAgain,
            roll => Deed::Save { wait: roll % 2 == 0 },
        });
        let deeds = deeds.collect();
        Job {
            number,
            nodes: (0..ranks).map(|rank| format!("node {}", rank % nodes)).collect(),
            per_pack: 1 + dice.roll(4) as u32,
            growth: [0.0, 1.5, 1000.0][dice.roll(3) as usize],
            deeds,
            dice: Dice(dice.roll(1 << 30) * 2 + 1),
            crash: (may_die && dice.roll(3) == 0)
                .then(|| (victim, dice.roll(60) as i64, dice.roll(3) == 0)),
            comm_crash: (may_die && dice.roll(4) == 0).then(|| (victim, dice.roll(60))),
            goes_on: dice.roll(3) > 0,
            finishes: dice.roll(4) > 0,
        }
    }

    /// Plays the job; whether nothing has happened that excuses a failure.
    fn play(&self, world: &Arc<World>) {
        let mut ranks = ThreadRanks::on_nodes(&self.nodes);
        if let Some((victim, call)) = self.comm_crash {
            ranks = ranks.killed_at(Rank(victim), call);
        }
        let deeds = &self.deeds;
        world.note(format!(
            "job {} on {} ranks, {} to a pack: {deeds:?}, crash {:?} {:?}",
            self.number,
            self.nodes.len(),
            self.per_pack,
            self.crash,
            self.comm_crash
        ));
        let excused = world.excuses(self);
        let (job, shared, kills) = (self.clone(), world.clone(), ranks.clone());
        let fuse = Arc::new(AtomicI64::new(self.crash.map_or(-1, |(_, call, _)| call)));
        let ends = ranks.run(move |comm| job.rank(&shared, comm, &kills, &fuse));
        for end in ends {
            match end {
                End::Done(Err(error)) if !excused => {
                    world.fail(&format!("job {}: {error}", self.number));
                }
                End::Panicked(what) => world.fail(&what),
                End::Killed if self.crash.is_none() && self.comm_crash.is_none() => {
                    world.fail("a rank was killed");
                }
                _ => {}
            }
        }
        world.check();
    }

    /// The store as a rank sees it.
    fn sees(
        &self,
        world: &Arc<World>,
        rank: Rank,
        kills: &ThreadRanks,
        fuse: &Arc<AtomicI64>,
    ) -> Arc<dyn Store> {
        let (weather, kills, fuse) = (world.clone(), kills.clone(), fuse.clone());
        let (crash, count) = (self.crash, self.nodes.len() as u32);
        let hooked = HookedStore::new(world.store.clone(), move |call| {
            if let Some((victim, _, all)) = crash
                && victim == rank.0
                && fuse.fetch_sub(1, Ordering::SeqCst) == 0
            {
                let dead = if all { 0..count } else { victim..victim + 1 };
                dead.for_each(|rank| kills.kill(Rank(rank)));
            }
            kills.stop_if_dead(rank)?;
            if weather.down.load(Ordering::SeqCst) {
                return Err(Error::new(ErrorKind::Io, "the store is down"));
            }
            let writes = matches!(call, Call::Put(_) | Call::Append(..) | Call::Commit(_));
            if writes && weather.slow {
                std::thread::sleep(Duration::from_micros(300));
            }
            match writes && weather.full.load(Ordering::SeqCst) {
                true => Err(Error::new(ErrorKind::Full, "the store is full")),
                false => Ok(()),
            }
        });
        let locked: Arc<dyn Store> =
            Arc::new(HookedStore::with_locks(Arc::new(hooked), world.locks));
        match world.late {
            true => Arc::new(LateListings {
                inner: locked,
                last: Mutex::new((BTreeMap::new(), self.dice.clone())),
            }),
            false => locked,
        }
    }

    /// The program of one rank.
    fn rank(
        &self,
        world: &Arc<World>,
        mut comm: Arc<dyn Comm>,
        kills: &ThreadRanks,
        fuse: &Arc<AtomicI64>,
    ) -> Result<()> {
        let own = comm.rank();
        let store = self.sees(world, own, kills, fuse);
        let mut next = 0u64;
        let result = (|| {
            let mut run = Run::open(world.options(self, store.clone(), &comm))?;
            let mut result = self.deeds(world, &mut run, &*comm, &mut next);
            while result.as_ref().is_err_and(died) && self.goes_on {
                comm.revoke()?;
                comm = comm.shrink()?;
                result = run.go_on_with(comm.clone()).and_then(|()| {
                    // Ranks may have come to different deeds.
                    let mut furthest = [next];
                    comm.reduce(Reduction::Max, &mut furthest)?;
                    next = furthest[0];
                    self.deeds(world, &mut run, &*comm, &mut next)
                });
            }
            result?;
            if self.finishes { run.finish() } else { Ok(()) }
        })();
        if let Err(error) = &result {
            comm.revoke()?;
            // To those that go on, a rank that has ended is one that has died.
            if self.crash.is_some() || self.comm_crash.is_some() {
                world.note(format!("a rank ends: {error}"));
                kills.kill(own);
            }
        }
        // A checkpoint that was lost is no failure of the job.
        result.or_else(|error| if error.kind() == ErrorKind::Lost { Ok(()) } else { Err(error) })
    }

    fn deeds(
        &self,
        world: &Arc<World>,
        run: &mut Run,
        comm: &dyn Comm,
        next: &mut u64,
    ) -> Result<()> {
        world.restore(run, comm)?;
        let first = comm.rank() == Rank(0);
        while let Some(deed) = self.deeds.get(*next as usize) {
            let step = self.number * 100 + *next;
            *next += 1;
            match *deed {
                Deed::Save { wait } => world.save(run, comm, step, wait)?,
                Deed::RestoreAgain => world.restore(run, comm)?,
                _ if !first => {}
                Deed::Prune { last, every } => world.prune(last, every),
                Deed::Compact => {
                    let rule = Compaction { files: 3, pack_bytes: 1 << 20 };
                    let done = Library::of(world.store.clone()).compact("r", rule, &|_, _| {});
                    world.note(format!("compact: {:?}", done.map(|plan| plan.files_after)));
                }
                Deed::Verify => world.verify(),
                Deed::Full => drop(world.full.fetch_xor(true, Ordering::SeqCst)),
                Deed::Down => drop(world.down.fetch_xor(true, Ordering::SeqCst)),
                Deed::Damage => world.damage(&mut self.dice.clone()),
                Deed::Overtake => self.overtake(world, step),
            }
        }
        // Nobody leaves before all have come to the end: whoever has left cannot go on with the others.
        comm.reduce(Reduction::Max, &mut [0])
    }

    /// Another program takes the run, and saves.
    fn overtake(&self, world: &Arc<World>, step: u64) {
        let store: Arc<dyn Store> =
            Arc::new(HookedStore::with_locks(world.store.clone(), Locks::None));
        let alone: Arc<dyn Comm> = Arc::new(treering::Alone::new());
        let taken = Run::open(world.options(self, store, &alone)).and_then(|mut run| {
            world.restore(&mut run, &*alone)?;
            world.save(&mut run, &*alone, step, true)?;
            run.finish()
        });
        world.note(format!("step {step} of a second writer: {:?}", taken.err()));
    }
}

fn died(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Dead | ErrorKind::Revoked)
}

fn play(seed: u64) {
    let mut dice = Dice(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
    (0..5).for_each(|_| {
        dice.roll(2);
    });
    let world = Arc::new(World {
        seed,
        store: Arc::new(MemoryStore::new()),
        locks: [Locks::Real, Locks::Lying, Locks::None][dice.roll(3) as usize],
        full: AtomicBool::new(false),
        down: AtomicBool::new(false),
        slow: dice.roll(5) == 0,
        late: dice.roll(3) == 0,
        durable: Mutex::default(),
        taken: Mutex::default(),
        damaged: Mutex::default(),
        trace: Mutex::default(),
    });
    for number in 1..2 + dice.roll(3) {
        Job::new(&world, number, &mut dice).play(&world);
    }
    world.full.store(false, Ordering::SeqCst);
    world.down.store(false, Ordering::SeqCst);
    world.check();
    // In the end the run goes on, whatever has happened to it.
    let mut last = Job::new(&world, 90, &mut dice);
    last.deeds = vec![Deed::Save { wait: true }; 3];
    (last.crash, last.comm_crash, last.finishes) = (None, None, true);
    last.play(&world);
    if !world.is_damaged() {
        let skips = world.slow;
        if !skips && world.newest_durable() != Some(9002) {
            world.fail("the last steps are not durable");
        }
        world.verify();
    }
}

#[test]
fn random_programs_of_ranks_never_lose_a_durable_checkpoint() {
    let number = |name| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    if let Some(seed) = number("TREERING_RANK_SEED") {
        return play(seed);
    }
    if let Some(first) = number("TREERING_RANK_SEEDS_FROM") {
        return (first..first + IN_A_PROCESS).for_each(play);
    }
    let programs = number("TREERING_PROGRAMS").map_or(40, |count| count / 50);
    if programs <= IN_A_PROCESS {
        return (0..programs).for_each(play);
    }
    for first in (0..programs).step_by(IN_A_PROCESS as usize) {
        let own = std::env::current_exe().unwrap();
        let name = "rank_model::random_programs_of_ranks_never_lose_a_durable_checkpoint";
        let mut batch = std::process::Command::new(own);
        batch.args([name, "--exact", "--nocapture"]);
        let done = batch.env("TREERING_RANK_SEEDS_FROM", first.to_string()).status().unwrap();
        assert!(done.success(), "a program of the {IN_A_PROCESS} from seed {first} on failed");
    }
}
