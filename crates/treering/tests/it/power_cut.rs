//! A power cut, a kill or a failing operation at any point costs nothing that was acknowledged, and
//! nothing is listed that does not restore.
//!
//! Each scenario is played once undisturbed to count its disk operations, and then once for each
//! of them with that one going wrong.

use std::any::Any;
use std::collections::BTreeSet;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use treering::testing::{Disk, DiskFile, PowerCut, SimDisk, SimFault};
use treering::{
    ChunkSize, Compaction, DirectoryStore, Encoding, ErrorKind, Keep, Library, Options, Run, Store,
    Variable, VariableMut,
};

const STEPS: u64 = 7;
const KEEP: Keep = Keep::newest(2);

/// The state of a step: most of it stays, some of it changes, some of it moves.
fn state(step: u64) -> (Vec<u8>, Vec<u64>) {
    let mut field: Vec<u8> = (0..1500u32).map(|i| (i * i / 7) as u8).collect();
    for past in 1..=step {
        let at = (past as usize * 389) % 1400;
        field[at..at + 80].fill(past as u8);
        field.copy_within(0..128, 640);
    }
    (field, vec![step; 20])
}

/// The results that the program got, and so may rely on.
#[derive(Clone, Default)]
struct Witness {
    durable: BTreeSet<(String, u64)>,
    /// Checkpoints that a prune was asked to remove: there or not, but never half.
    removable: BTreeSet<(String, u64)>,
    /// Calls that failed twice although only one operation did.
    stuck: Vec<String>,
    /// Failed saves that the run did not report.
    unreported: Vec<u64>,
}

impl Witness {
    /// Tries again once: a single failing operation must not last.
    fn twice<T>(&mut self, what: &str, mut go: impl FnMut() -> treering::Result<T>) -> Option<T> {
        match go().or_else(|_| go()) {
            Ok(done) => Some(done),
            Err(error) => {
                self.stuck.push(format!("{what}: {error}"));
                None
            }
        }
    }
}

type Scenario = fn(&Arc<dyn Disk>, &mut Witness);

fn store(disk: &Arc<dyn Disk>) -> Arc<dyn Store> {
    Arc::new(DirectoryStore::on(disk.clone(), "/store"))
}

/// Some deltas to an epoch, and three epochs in a run of seven steps.
fn options(disk: &Arc<dyn Disk>, run: &str) -> Options {
    Options::in_store(store(disk), run)
        .chunk(ChunkSize::new(64).unwrap())
        .encoding(Encoding::Zstd(1))
        .growth(1.5)
}

fn restore(run: &mut Run) -> treering::Result<Option<u64>> {
    let (mut field, mut count) = (vec![0xEE; 1500], vec![0; 20]);
    let restored = run.restore(&mut [
        VariableMut::new("field", &mut field),
        VariableMut::new("count", &mut count),
    ])?;
    if let Some(restored) = &restored {
        assert_eq!((field, count), state(restored.step), "restored state");
    }
    Ok(restored.map(|r| r.step))
}

fn save(run: &mut Run, step: u64) -> treering::Result<()> {
    let (field, count) = state(step);
    let variables = [Variable::new("field", &field), Variable::new("count", &count)];
    run.checkpoint(step, &variables).unwrap().durable()
}

/// A program that goes on from where it was until its last step.
fn program(disk: &Arc<dyn Disk>, name: &str, last: u64, witness: &mut Witness) {
    program_with(|| options(disk, name), name, last, witness);
}

fn program_with(options: impl Fn() -> Options, name: &str, last: u64, witness: &mut Witness) {
    let opened = witness.twice("open", || Run::open(options()));
    let Some(mut run) = opened else { return };
    let Some(newest) = witness.twice("restore", || restore(&mut run)) else {
        return;
    };
    let mut failed_before = false;
    for step in newest.map_or(0, |s| s + 1)..last {
        match save(&mut run, step) {
            Ok(()) => {
                witness.durable.insert((name.into(), step));
                failed_before = false;
            }
            Err(error) => {
                if !run.failures().iter().any(|(s, _)| *s == step) {
                    witness.unreported.push(step);
                }
                if failed_before {
                    witness.stuck.push(format!("save {step}: {error}"));
                }
                failed_before = true;
            }
        }
    }
}

fn saving(disk: &Arc<dyn Disk>, witness: &mut Witness) {
    program(disk, "a", STEPS, witness);
}

/// With a node's store in front, which `check` takes to be lost.
fn moving(disk: &Arc<dyn Disk>, witness: &mut Witness) {
    let node = Arc::new(DirectoryStore::on(disk.clone(), "/node"));
    program_with(|| options(disk, "a").node(node.clone()), "a", 4, witness);
}

fn pruning(disk: &Arc<dyn Disk>, witness: &mut Witness) {
    let library = Library::of(store(disk));
    // Twice, because a failing lock makes a plan that is more careful than the prune after it.
    for _ in 0..2 {
        let plan = witness.twice("plan", || library.plan_prune("a", KEEP, &|_, _| {}));
        let removed = plan.map(|plan| plan.removed).unwrap_or_default();
        let goes = removed.iter().map(|gone| ("a".into(), gone.step));
        witness.removable.extend(goes);
    }
    witness.twice("prune", || library.prune("a", KEEP, &|_, _| {}));
}

fn branching(disk: &Arc<dyn Disk>, witness: &mut Witness) {
    let library = Library::of(store(disk));
    let branched = witness.twice("branch", || match library.branch("a", Some(3), "side") {
        // An earlier try may have come through although it was reported as failed.
        Err(_) if library.checkpoint("side", None).is_ok() => Ok(false),
        made => made.map(|_| true),
    });
    match branched {
        Some(true) => drop(witness.durable.insert(("side".into(), 3))),
        Some(false) => {}
        None => return,
    }
    program(disk, "side", 5, witness);
    pruning(disk, witness);
}

/// Copies some steps of the run. The remains of a try that failed are removed.
fn copying(disk: &Arc<dyn Disk>, witness: &mut Witness) {
    let library = Library::of(store(disk));
    let steps = [1, 5];
    let copied = witness.twice("copy", || {
        match library.copy_run("a", &steps, &library, COPY, &|_, _| {}) {
            // It may have come through although it was reported as failed.
            Err(_) if library.checkpoint(COPY, None).is_ok() => Ok(()),
            Err(error) => {
                let _ = library.remove_run(COPY);
                Err(error)
            }
            Ok(_) => Ok(()),
        }
    });
    if copied.is_some() {
        witness.durable.extend(steps.map(|step| (COPY.to_string(), step)));
    }
}

/// The name of a copied run.
const COPY: &str = "copy";

const ALL: Compaction = Compaction { files: 3, pack_bytes: 1 << 20 };

fn compacting(disk: &Arc<dyn Disk>, witness: &mut Witness) {
    let library = Library::of(store(disk));
    witness.twice("compact", || library.compact("a", ALL, &|_, _| {}));
}

/// Out of bundles, and what a bundle keeps is copied into another one.
fn pruning_bundles(disk: &Arc<dyn Disk>, witness: &mut Witness) {
    compacting(disk, witness);
    pruning(disk, witness);
}

/// Everything that must hold of the disk, whatever happened to it.
fn check(disk: SimDisk, witness: &Witness, what: &str) {
    let disk: Arc<dyn Disk> = Arc::new(disk);
    let library = Library::of(store(&disk));
    let mut listed = BTreeSet::new();
    let mut runs = library.run_names().unwrap();
    // A copy is there with all its checkpoints, or has none: then it is removed before anything else.
    let of_copy = library.checkpoints(COPY).map_or(0, |(all, _)| all.len());
    assert!([0, 2].contains(&of_copy), "{what}: {of_copy} checkpoints are copied");
    if of_copy == 0 && runs.iter().any(|run| run == COPY) {
        let removed = library.remove_run(COPY);
        assert!(removed.is_ok() || removed.unwrap_err().kind() == ErrorKind::NotFound, "{what}");
        runs.retain(|run| run != COPY);
    }
    for run in &runs {
        let checkpoints = match library.checkpoints(run) {
            Ok((checkpoints, trouble)) => {
                assert!(trouble.is_empty(), "{what}: {run}: {trouble:?}");
                checkpoints
            }
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::NotFound, "{what}: {error}");
                Vec::new()
            }
        };
        for info in checkpoints {
            let checkpoint = library.checkpoint(run, Some(info.step));
            let checkpoint = checkpoint.unwrap_or_else(|e| panic!("{what}: {run}: {e}"));
            let (field, count) = state(info.step);
            let read = checkpoint.read::<u8>("field");
            assert_eq!(read.unwrap(), field, "{what}: {run}@{}", info.step);
            let read = checkpoint.read::<u64>("count");
            assert_eq!(read.unwrap(), count, "{what}: {run}@{}", info.step);
            listed.insert((run.clone(), info.step));
        }
    }
    for known in &witness.durable {
        let there = listed.contains(known) || witness.removable.contains(known);
        assert!(there, "{what}: {known:?} is gone; there is {listed:?}");
    }
    let report = library.verify(None, true, &|_, _| {}).unwrap();
    assert!(report.is_sound(), "{what}: {:?}", report.findings);
    for name in &runs {
        goes_on(&disk, &library, name, what);
    }
    let report = library.verify(None, false, &|_, _| {}).unwrap();
    assert!(report.is_sound(), "{what}: {:?}", report.findings);
    // Each opening has removed what unfinished saves and prunes of its run left.
    assert_eq!(report.unreferenced, Vec::<String>::new(), "{what}");
}

/// The run opens, gives its newest checkpoint back, and can be written again.
fn goes_on(disk: &Arc<dyn Disk>, library: &Library, name: &str, what: &str) {
    let newest = library.checkpoints(name).ok();
    let newest = newest.and_then(|(all, _)| all.last().map(|c| c.step));
    let mut run = Run::open(options(disk, name)).unwrap_or_else(|e| panic!("{what}: {e}"));
    assert_eq!(restore(&mut run).unwrap(), newest, "{what}: {name}");
    let next = newest.map_or(0, |step| step + 1);
    save(&mut run, next).unwrap_or_else(|e| panic!("{what}: {e}"));
    drop(run);
    let checkpoint = library.checkpoint(name, None).unwrap();
    assert_eq!(checkpoint.step(), next, "{what}: {name}");
    assert_eq!(checkpoint.read::<u8>("field").unwrap(), state(next).0);
}

/// Everything that a power cut may do at this moment.
fn all_cuts(disk: &SimDisk) -> impl Iterator<Item = PowerCut> {
    let outcomes = disk.outcomes();
    assert!(outcomes <= 1024, "too much is unsynced at a time to try every outcome: {outcomes}");
    (0..outcomes).map(PowerCut::Number)
}

/// A disk on which the scenario has not begun yet, and what was acknowledged before it.
struct Start {
    disk: SimDisk,
    witness: Witness,
}

impl Start {
    fn empty() -> Self {
        Start { disk: SimDisk::new(), witness: Witness::default() }
    }

    /// A whole run that has ended well.
    fn after_a_run() -> Self {
        let start = Start::empty();
        let mut witness = Witness::default();
        saving(&(Arc::new(start.disk.clone()) as Arc<dyn Disk>), &mut witness);
        assert_eq!(witness.durable.len() as u64, STEPS);
        Start { disk: start.disk.after_kill(), witness }
    }

    /// The remains of a run that was killed in the middle of a save, first with an unfinished pack
    /// and then with an uncommitted manifest behind it.
    fn after_a_crash(unfinished: fn(&SimDisk) -> bool) -> Self {
        for at in 0.. {
            let disk = SimDisk::new();
            disk.inject(at, SimFault::Cut);
            let mut witness = Witness::default();
            saving(&(Arc::new(disk.clone()) as Arc<dyn Disk>), &mut witness);
            assert!(disk.is_dead(), "no operation leaves that behind");
            let disk = disk.after_kill();
            if witness.durable.len() >= 3 && unfinished(&disk) {
                witness.stuck.clear();
                witness.unreported.clear();
                return Start { disk, witness };
            }
        }
        unreachable!()
    }

    fn copy(&self) -> (SimDisk, Witness) {
        (self.disk.after_kill(), self.witness.clone())
    }

    /// Number of operations of the undisturbed scenario.
    fn operations(&self, scenario: Scenario) -> u64 {
        let (disk, mut witness) = self.copy();
        disk.inject(u64::MAX, SimFault::Cut);
        scenario(&(Arc::new(disk.clone()) as Arc<dyn Disk>), &mut witness);
        let operations = disk.operations();
        assert!(witness.stuck.is_empty(), "{:?}", witness.stuck);
        check(disk.after_cut(PowerCut::Lose), &witness, "undisturbed");
        operations
    }
}

fn an_unnamed_pack(disk: &SimDisk) -> bool {
    let disk: Arc<dyn Disk> = Arc::new(disk.after_kill());
    let report = Library::of(store(&disk)).verify(None, false, &|_, _| {});
    !report.unwrap().unreferenced.is_empty()
}

fn a_temporary_file(disk: &SimDisk) -> bool {
    let names = disk.list(Path::new("/store/runs/a/log")).unwrap();
    names.iter().any(|(name, ..)| name.starts_with('.'))
}

/// The power is cut after every operation.
fn cut_everywhere(start: &Start, scenario: Scenario) {
    for at in 0..start.operations(scenario) {
        let (disk, mut witness) = start.copy();
        disk.inject(at, SimFault::Cut);
        scenario(&(Arc::new(disk.clone()) as Arc<dyn Disk>), &mut witness);
        assert!(disk.is_dead());
        for cut in all_cuts(&disk) {
            let what = format!("cut after operation {at}, {cut:?}");
            check(disk.after_cut(cut), &witness, &what);
        }
    }
}

/// Every operation fails once, the program goes on, and in the end the power is cut.
fn fail_everywhere(start: &Start, scenario: Scenario, fault: SimFault) {
    for at in 0..start.operations(scenario) {
        let (disk, mut witness) = start.copy();
        disk.inject(at, fault);
        scenario(&(Arc::new(disk.clone()) as Arc<dyn Disk>), &mut witness);
        let what = format!("{fault:?} at operation {at}");
        assert!(witness.stuck.is_empty(), "{what}: {:?}", witness.stuck);
        assert_eq!(witness.unreported, Vec::<u64>::new(), "{what}");
        for cut in [PowerCut::Lose, PowerCut::Keep] {
            check(disk.after_cut(cut), &witness, &format!("{what}, {cut:?}"));
        }
    }
}

/// The process is killed before every operation and started again, and in the end the power is cut:
/// what the first process wrote without a sync must not be taken for durable by the second.
fn kill_everywhere(start: &Start, scenario: Scenario) {
    for at in 0..start.operations(scenario) {
        let (disk, mut witness) = start.copy();
        let mortal: Arc<dyn Disk> = Arc::new(Mortal::new(disk.clone(), at));
        scenario(&mortal, &mut witness);
        witness.stuck.clear();
        scenario(&(Arc::new(disk.clone()) as Arc<dyn Disk>), &mut witness);
        let what = format!("killed before operation {at}");
        assert!(witness.stuck.is_empty(), "{what}: {:?}", witness.stuck);
        for cut in [PowerCut::Lose, PowerCut::Keep] {
            check(disk.after_cut(cut), &witness, &format!("{what}, {cut:?}"));
        }
    }
}

/// A disk as a process sees it that is killed: the operations of this one process end.
#[derive(Clone)]
struct Mortal {
    disk: SimDisk,
    left: Arc<AtomicU64>,
}

impl Mortal {
    fn new(disk: SimDisk, operations: u64) -> Self {
        let left = Arc::new(AtomicU64::new(operations));
        Mortal { disk, left }
    }

    fn alive(&self) -> io::Result<()> {
        let took = self.left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |n| n.checked_sub(1));
        took.map(|_| ()).map_err(|_| io::Error::other("killed"))
    }

    fn file(&self, inner: Box<dyn DiskFile>) -> Box<dyn DiskFile> {
        let process = self.clone();
        Box::new(MortalFile { inner, process })
    }
}

impl Disk for Mortal {
    fn create(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        self.alive()?;
        Ok(self.file(self.disk.create(path)?))
    }
    fn open(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        self.alive()?;
        Ok(self.file(self.disk.open(path)?))
    }
    fn rename_new(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.alive()?;
        self.disk.rename_new(from, to)
    }
    fn remove(&self, path: &Path) -> io::Result<()> {
        self.alive()?;
        self.disk.remove(path)
    }
    fn make_folder(&self, path: &Path) -> io::Result<()> {
        self.alive()?;
        self.disk.make_folder(path)
    }
    fn sync_folder(&self, path: &Path) -> io::Result<()> {
        self.alive()?;
        self.disk.sync_folder(path)
    }
    fn list(&self, path: &Path) -> io::Result<Vec<(String, u64, bool)>> {
        self.alive()?;
        self.disk.list(path)
    }
    fn lock(&self, path: &Path, text: &str) -> io::Result<Box<dyn Any + Send + Sync>> {
        self.alive()?;
        self.disk.lock(path, text)
    }
}

struct MortalFile {
    inner: Box<dyn DiskFile>,
    process: Mortal,
}

impl DiskFile for MortalFile {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.process.alive()?;
        self.inner.append(bytes)
    }
    fn truncate(&mut self, len: u64) -> io::Result<()> {
        self.process.alive()?;
        self.inner.truncate(len)
    }
    fn sync(&mut self) -> io::Result<()> {
        self.process.alive()?;
        self.inner.sync()
    }
    fn size(&self) -> io::Result<u64> {
        self.inner.size()
    }
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.process.alive()?;
        self.inner.read_at(offset, buffer)
    }
    fn read_vectored_at(&self, offset: u64, parts: &mut [io::IoSliceMut]) -> io::Result<()> {
        self.process.alive()?;
        self.inner.read_vectored_at(offset, parts)
    }
}

#[test]
fn the_scenarios_have_deltas_and_epochs_and_something_to_prune() {
    let start = Start::after_a_run();
    let disk: Arc<dyn Disk> = Arc::new(start.disk);
    let library = Library::of(store(&disk));
    let (all, _) = library.checkpoints("a").unwrap();
    let epochs: BTreeSet<u64> = all.iter().map(|c| c.epoch.sequence.0).collect();
    assert!(epochs.len() >= 2 && all.len() >= epochs.len() + 3);
    assert!(all.iter().any(|c| c.stats.duplicate_bytes > 0));
    let plan = library.plan_prune("a", KEEP, &|_, _| {}).unwrap();
    assert!(!plan.removed.is_empty() && !plan.packs.is_empty(), "{plan:?}");
}

#[test]
fn a_cut_while_saving() {
    cut_everywhere(&Start::empty(), saving);
}

#[test]
fn a_cut_while_opening_after_a_crash() {
    cut_everywhere(&Start::after_a_crash(an_unnamed_pack), saving);
    cut_everywhere(&Start::after_a_crash(a_temporary_file), saving);
}

#[test]
fn a_cut_while_pruning() {
    cut_everywhere(&Start::after_a_run(), pruning);
}

#[test]
fn a_cut_while_compacting() {
    cut_everywhere(&Start::after_a_run(), compacting);
}

#[test]
fn a_cut_while_pruning_bundles() {
    cut_everywhere(&Start::after_a_run(), pruning_bundles);
}

#[test]
fn a_failure_while_compacting_and_pruning_bundles() {
    fail_everywhere(&Start::after_a_run(), pruning_bundles, SimFault::Fail);
}

#[test]
fn a_torn_write_while_compacting_and_pruning_bundles() {
    fail_everywhere(&Start::after_a_run(), pruning_bundles, SimFault::Tear);
}

#[test]
fn a_kill_while_compacting_and_pruning_bundles_and_a_later_cut() {
    kill_everywhere(&Start::after_a_run(), pruning_bundles);
}

#[test]
fn a_cut_while_branching() {
    cut_everywhere(&Start::after_a_run(), branching);
}

#[test]
fn a_cut_while_copying() {
    cut_everywhere(&Start::after_a_run(), copying);
}

#[test]
fn a_failure_while_copying() {
    fail_everywhere(&Start::after_a_run(), copying, SimFault::Fail);
    fail_everywhere(&Start::after_a_run(), copying, SimFault::Tear);
}

#[test]
fn a_failure_while_saving() {
    fail_everywhere(&Start::empty(), saving, SimFault::Fail);
}

#[test]
fn a_torn_write_while_saving() {
    fail_everywhere(&Start::empty(), saving, SimFault::Tear);
}

#[test]
fn a_torn_write_while_opening_after_a_crash() {
    fail_everywhere(&Start::after_a_crash(an_unnamed_pack), saving, SimFault::Tear);
    fail_everywhere(&Start::after_a_crash(a_temporary_file), saving, SimFault::Tear);
}

#[test]
fn a_torn_write_while_pruning_or_branching() {
    fail_everywhere(&Start::after_a_run(), pruning, SimFault::Tear);
    fail_everywhere(&Start::after_a_run(), branching, SimFault::Tear);
}

#[test]
fn a_failure_while_opening_after_a_crash() {
    fail_everywhere(&Start::after_a_crash(an_unnamed_pack), saving, SimFault::Fail);
    fail_everywhere(&Start::after_a_crash(a_temporary_file), saving, SimFault::Fail);
}

#[test]
fn a_failure_while_pruning() {
    fail_everywhere(&Start::after_a_run(), pruning, SimFault::Fail);
}

#[test]
fn a_failure_while_branching() {
    fail_everywhere(&Start::after_a_run(), branching, SimFault::Fail);
}

#[test]
fn a_kill_while_saving_and_a_later_cut() {
    kill_everywhere(&Start::empty(), saving);
}

#[test]
fn a_kill_while_pruning_and_a_later_cut() {
    kill_everywhere(&Start::after_a_run(), pruning);
}

#[test]
fn a_kill_while_branching_and_a_later_cut() {
    kill_everywhere(&Start::after_a_run(), branching);
}

#[test]
fn a_failure_while_moving() {
    fail_everywhere(&Start::empty(), moving, SimFault::Fail);
}

#[test]
fn a_kill_while_moving_and_a_later_cut() {
    kill_everywhere(&Start::empty(), moving);
}
