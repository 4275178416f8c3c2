//! Calls of programs: saves that are waited for in several ways, checkpoints that are due, elements of all types,
//! slabs and whole arrays, removing what is not wanted any more.

use crate::support::{assert_sound, lockless_memory as memory, steps_of as steps};
use half::{bf16, f16};
use num_complex::Complex;
use std::future::Future;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Condvar, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, SystemTime};
use treering::testing::{Call, HookedStore, Locks};
use treering::{
    Bound, Comm, Compaction, DType, DirectoryStore, Due, End, Error, ErrorKind, Every, Library,
    MemoryStore, Options, Order, Rank, Result, Run, Slab, Store, ThreadRanks, Variable,
    VariableMut,
};

fn directory(folder: &Path) -> Arc<dyn Store> {
    Arc::new(DirectoryStore::new(folder))
}

/// A gate that the store's packs wait at.
#[derive(Clone, Default)]
struct Gate(Arc<(Mutex<bool>, Condvar)>);

impl Gate {
    fn open(&self) {
        *self.0.0.lock().unwrap() = true;
        self.0.1.notify_all();
    }

    fn pass(&self) {
        let _open = self.0.1.wait_while(self.0.0.lock().unwrap(), |open| !*open).unwrap();
    }
}

/// A store that finishes no pack until the gate is open.
fn held_up() -> (Gate, Arc<dyn Store>) {
    let gate = Gate::default();
    let waits = gate.clone();
    let store = HookedStore::new(Arc::new(MemoryStore::new()), move |call| {
        if matches!(call, Call::Finish(_)) {
            waits.pass();
        }
        Ok(())
    });
    (gate, Arc::new(store))
}

fn full(call: Call) -> Result<()> {
    match call {
        Call::Finish(_) => Err(Error::new(ErrorKind::Full, "no space left")),
        _ => Ok(()),
    }
}

/// Waits for a future as a runtime does: it is polled once, and again when it wakes somebody.
fn wait_for<F: Future + Unpin>(mut future: F) -> F::Output {
    struct Bell(Mutex<std::sync::mpsc::Sender<()>>);
    impl Wake for Bell {
        fn wake(self: Arc<Self>) {
            let _ = self.0.lock().unwrap().send(());
        }
    }
    let (ring, rung) = channel();
    let waker = Waker::from(Arc::new(Bell(Mutex::new(ring))));
    loop {
        let mut context = Context::from_waker(&waker);
        match std::pin::Pin::new(&mut future).poll(&mut context) {
            Poll::Ready(output) => return output,
            Poll::Pending => rung.recv().unwrap(),
        }
    }
}

#[test]
fn a_save_can_be_waited_for_in_four_ways() {
    let (gate, store) = held_up();
    let mut run = Run::open(Options::in_store(store, "r")).unwrap();
    let save = run.checkpoint(3, &[Variable::new("x", &[1.5f64; 1000])]).unwrap();
    let (tell, told) = channel();
    save.on_durable(move |outcome| tell.send(outcome).unwrap()).unwrap();
    assert!(!save.is_durable());
    assert!(!save.wait_timeout(Duration::from_millis(20)).unwrap());
    assert!(!save.wait_timeout(Duration::ZERO).unwrap());
    assert!(told.try_recv().is_err());
    gate.open();
    assert!(save.wait_timeout(Duration::MAX).unwrap());
    assert!(save.is_durable());
    told.recv().unwrap().unwrap();
    wait_for(save).unwrap();
    run.finish().unwrap();
}

#[test]
fn a_save_that_fails_says_so_in_every_way_and_asking_whether_it_is_durable_does_not_hide_it() {
    let store: Arc<dyn Store> = Arc::new(HookedStore::new(Arc::new(MemoryStore::new()), full));
    let mut run = Run::open(Options::in_store(store.clone(), "r")).unwrap();
    let data = [1.5f64; 1000];
    let save = run.checkpoint(3, &[Variable::new("x", &data)]).unwrap();
    let (tell, told) = channel();
    save.on_durable(move |outcome| tell.send(outcome).unwrap()).unwrap();
    assert_eq!(told.recv().unwrap().unwrap_err().kind(), ErrorKind::Full);
    assert_eq!(save.wait_timeout(Duration::MAX).unwrap_err().kind(), ErrorKind::Full);
    assert!(!save.is_durable());
    assert_eq!(wait_for(save).unwrap_err().kind(), ErrorKind::Full);
    // Nobody was told of this one, so the end of the run tells.
    let save = run.checkpoint(4, &[Variable::new("x", &data)]).unwrap();
    while run.failures().is_empty() {
        assert!(!save.is_durable());
        std::thread::yield_now();
    }
    let save = run.checkpoint(5, &[Variable::new("x", &data)]).unwrap();
    assert!(!save.is_durable());
    assert_eq!(run.finish().unwrap_err().kind(), ErrorKind::Full);
}

#[test]
fn ranks_wait_for_saves_and_are_told_when_they_are_due_together() {
    let store = memory();
    let ends = ThreadRanks::new(3).run(move |comm: Arc<dyn Comm>| {
        let options = Options::in_store(store.clone(), "r").ranks(comm.clone());
        // Only the last rank has a deadline that is over; all hear of it.
        let far = SystemTime::now() + Duration::from_secs(100_000);
        let over = SystemTime::now() - Duration::from_secs(5);
        let deadline = if comm.rank() == Rank(2) { over } else { far };
        let mut run = Run::open(options.every(Every::Steps(2)).deadline(deadline)).unwrap();
        let data = [f64::from(comm.rank().0); 500];
        assert_eq!(run.due(1).unwrap(), Due::Last);
        let save = run.checkpoint(1, &[Variable::new("x", &data)]).unwrap();
        while !save.wait_timeout(Duration::from_millis(5)).unwrap() {}
        assert!(save.is_durable());
        assert_eq!(run.due(3).unwrap(), Due::No);
        wait_for(save).unwrap();
        run.finish().unwrap();
    });
    assert!(ends.iter().all(|end| matches!(end, End::Done(()))), "{ends:?}");
}

#[test]
fn ranks_that_differ_in_when_checkpoints_are_due_get_an_error_and_do_not_hang() {
    let store = memory();
    let ends = ThreadRanks::new(2).run(move |comm: Arc<dyn Comm>| {
        let options = Options::in_store(store.clone(), "r").ranks(comm.clone());
        let every = if comm.rank() == Rank(0) {
            Every::Steps(2)
        } else {
            Every::Time(Duration::from_secs(1))
        };
        let refused = Run::open(options.every(every)).err().map(|error| error.to_string());
        assert!(refused.as_ref().is_some_and(|error| error.contains("due")), "{refused:?}");
    });
    assert!(ends.iter().all(|end| matches!(end, End::Done(()))), "{ends:?}");
}

#[test]
fn signals_ask_for_checkpoints() {
    let mut run = Run::open(Options::in_store(memory(), "r").on_signals()).unwrap();
    assert_eq!(run.due(1).unwrap(), Due::No);
    let raise = |signal| rustix::process::kill_process(rustix::process::getpid(), signal).unwrap();
    raise(rustix::process::Signal::USR1);
    while run.due(2).unwrap() != Due::Checkpoint {
        std::thread::yield_now();
    }
    assert_eq!(run.due(3).unwrap(), Due::No);
    raise(rustix::process::Signal::TERM);
    while run.due(4).unwrap() != Due::Last {
        std::thread::yield_now();
    }
    assert_eq!(run.due(5).unwrap(), Due::No);
}

/// The variable that tells a child of a test what to do.
const CHILD: &str = "TREERING_CALLERS_CHILD";

/// Runs one test of this program in a process of its own, with variables of the environment.
fn child(test: &str, task: &str, variables: &[(&str, &str)]) -> Output {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", test, "--nocapture"]).env(CHILD, task);
    command.env_remove("SLURM_JOB_END_TIME");
    command.envs(variables.iter().copied()).output().unwrap()
}

#[test]
fn the_end_of_a_slurm_job_is_a_deadline() {
    const TEST: &str = "callers::the_end_of_a_slurm_job_is_a_deadline";
    let far = SystemTime::now() + Duration::from_secs(1_000_000);
    if let Ok(task) = std::env::var(CHILD) {
        let options = Options::in_store(memory(), "r");
        let given = task.starts_with("given");
        let options = if given { options.deadline(far) } else { options };
        let mut run = Run::open(options).unwrap();
        let expected = if task.ends_with("due") { Due::Last } else { Due::No };
        assert_eq!(run.due(1).unwrap(), expected, "{task}");
        return;
    }
    let seconds = |time: SystemTime| time.duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs();
    let (over, far) = (seconds(SystemTime::now()) - 5, seconds(far));
    for (task, end) in [
        ("due", over.to_string()),
        ("waits", far.to_string()),
        // A deadline of the program counts instead.
        ("given waits", over.to_string()),
        // Nothing that Slurm writes: no deadline.
        ("waits", "tomorrow".to_string()),
        ("waits", String::new()),
    ] {
        let done = child(TEST, task, &[("SLURM_JOB_END_TIME", &end)]);
        assert!(done.status.success(), "{task} {end}: {done:?}");
        assert!(String::from_utf8_lossy(&done.stdout).contains("1 passed"), "{done:?}");
    }
}

#[test]
fn a_second_sigterm_ends_the_process_and_so_does_one_after_the_run() {
    const TEST: &str = "callers::a_second_sigterm_ends_the_process_and_so_does_one_after_the_run";
    if let Ok(task) = std::env::var(CHILD) {
        let term = rustix::process::Signal::TERM;
        let raise = || rustix::process::kill_process(rustix::process::getpid(), term).unwrap();
        let mut run = Run::open(Options::in_store(memory(), "r").on_signals()).unwrap();
        if task == "twice" {
            raise();
            while run.due(1).unwrap() != Due::Last {
                std::thread::yield_now();
            }
            println!("asked to end");
        } else if task == "anew" {
            // A run that was closed before this one takes nothing from it.
            run.finish().unwrap();
            let mut run = Run::open(Options::in_store(memory(), "s").on_signals()).unwrap();
            raise();
            while run.due(1).unwrap() != Due::Last {
                std::thread::yield_now();
            }
            println!("asked the second");
        } else {
            run.finish().unwrap();
            println!("closed");
        }
        raise();
        std::thread::sleep(Duration::from_secs(60));
        return;
    }
    let tasks = [("twice", "asked to end"), ("closed", "closed"), ("anew", "asked the second")];
    for (task, said) in tasks {
        let done = child(TEST, task, &[]);
        assert_eq!(done.status.signal(), Some(15), "{task}: {done:?}");
        assert!(String::from_utf8_lossy(&done.stdout).contains(said), "{task}: {done:?}");
    }
}

/// Names, sizes and times of all files of a folder.
fn inventory(folder: &Path) -> Vec<(PathBuf, u64, SystemTime)> {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut all: Vec<_> = entries
        .flat_map(|path| {
            let meta = std::fs::metadata(&path).unwrap();
            let own = (path.clone(), meta.len(), meta.modified().unwrap());
            let below = if path.is_dir() { inventory(&path) } else { Vec::new() };
            [vec![own], below].concat()
        })
        .collect();
    all.sort();
    all
}

/// Everything that reads a library, none of which writes.
fn look_at(library: &Library, data: &[f64]) {
    assert_eq!(library.run_names().unwrap(), ["r"]);
    let checkpoint = library.checkpoint("r", None).unwrap();
    assert_eq!(checkpoint.read::<f64>("x").unwrap(), data);
    let slab = Slab::new(&[5], &[3]).stride(&[10]);
    let expected = [data[5], data[15], data[25]];
    assert_eq!(checkpoint.read_slab::<f64>("x", &slab).unwrap(), expected);
    assert_eq!(library.backwards("r").unwrap().count(), 3);
    assert!(library.verify(None, true, &|_, _| {}).unwrap().is_sound());
}

/// A store with three checkpoints in a folder, and what they hold.
fn written(folder: &Path) -> (PathBuf, Vec<f64>) {
    let data: Vec<f64> = (0..5000).map(|at| f64::from(at).sqrt()).collect();
    let store = folder.join("store");
    let mut run = Run::open(Options::directory(&store, "r")).unwrap();
    for step in 1..=3 {
        run.checkpoint(step, &[Variable::new("x", &data)]).unwrap();
    }
    run.finish().unwrap();
    (store, data)
}

#[test]
fn a_library_reads_a_store_that_nobody_can_write_to() {
    let folder = tempfile::tempdir().unwrap();
    let (store, data) = written(folder.path());
    let before = inventory(&store);
    let refuse = |call: Call| match call {
        Call::Put(_) | Call::Append(..) | Call::Finish(_) | Call::Commit(_) | Call::Delete(_) => {
            Err(Error::io("refused", std::io::ErrorKind::ReadOnlyFilesystem.into()))
        }
        Call::Open(_) | Call::Read(..) | Call::List(_) => Ok(()),
    };
    look_at(&Library::of(Arc::new(HookedStore::new(directory(&store), refuse))), &data);
    look_at(&Library::open(&store).unwrap(), &data);
    // Not even a lock was written.
    assert_eq!(inventory(&store), before);
}

/// The same on a mount that is read-only. Where no such mount can be made, this fails: it is not reported as passed.
#[test]
#[ignore = "it needs a mount in a namespace of its own; `make test` makes it"]
fn a_library_reads_a_store_on_a_read_only_mount() {
    const TEST: &str = "callers::a_library_reads_a_store_on_a_read_only_mount";
    if let Ok(folder) = std::env::var(CHILD) {
        let folder = Path::new(&folder);
        let (store, data) = (folder.join("store"), (0..5000).map(|at| f64::from(at).sqrt()));
        assert!(std::fs::write(store.join("try"), "x").is_err(), "the mount is not read-only");
        look_at(&Library::open(&store).unwrap(), &data.collect::<Vec<_>>());
        let refused = Run::open(Options::directory(&store, "r")).err().unwrap();
        assert_eq!(refused.kind(), ErrorKind::Io, "{refused}");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (store, _) = written(folder.path());
    let before = inventory(&store);
    let shown = folder.path().display().to_string();
    let mount = "mount --bind \"$0\" \"$0\" && mount -o remount,ro,bind \"$0\" && exec \"$@\"";
    let program = std::env::current_exe().unwrap().display().to_string();
    let mut command = Command::new("unshare");
    command.args(["-rm", "sh", "-c", mount, &shown]);
    command.args([&program, "--exact", TEST, "--include-ignored", "--nocapture"]);
    let done = command.env(CHILD, &shown).output().unwrap();
    assert!(done.status.success(), "with `unshare -rm` and `mount`: {done:?}");
    assert!(String::from_utf8_lossy(&done.stdout).contains("1 passed"), "{done:?}");
    assert_eq!(inventory(&store), before);
}

#[test]
fn elements_of_all_types_come_back() {
    let store = memory();
    let mut run = Run::open(Options::in_store(store.clone(), "r")).unwrap();
    let mask: Vec<bool> = (0..1000).map(|at| at % 3 == 0).collect();
    let positions: Vec<[f64; 3]> = (0..500).map(|at| [f64::from(at), 0.5, -1.0]).collect();
    let pairs: Vec<[f64; 2]> = vec![[1.0, 2.0]; 10];
    let tensors = [[[1i32, 2], [3, 4]]; 7];
    let time = 0.125f64;
    let single: Vec<Complex<f32>> = (0..300).map(|at| Complex::new(at as f32, -0.5)).collect();
    let spectrum: Vec<Complex<f64>> =
        (0..300).map(|at| Complex::new(0.25, f64::from(at))).collect();
    // All bit patterns, those of NaNs among them.
    let halves: Vec<f16> = (0..=u16::MAX).map(f16::from_bits).collect();
    let brains: Vec<bf16> = (0..=u16::MAX).map(bf16::from_bits).collect();
    let state = [
        Variable::new("mask", &mask),
        Variable::new("positions", &positions),
        Variable::new("pairs", &pairs),
        Variable::new("fortran", &positions).fortran(),
        Variable::new("tensors", &tensors),
        Variable::scalar("time", &time),
        Variable::new("c64", &single),
        Variable::new("c128", &spectrum),
        Variable::new("f16", &halves),
        Variable::new("bf16", &brains),
    ];
    let described = |at: usize| {
        let of = state[at].description();
        (of.dtype, of.shape.0.clone())
    };
    assert_eq!(described(0), (DType::Bool, vec![1000]));
    assert_eq!(described(1), (DType::F64, vec![500, 3]));
    // Two numbers are two numbers, and not a complex one.
    assert_eq!(described(2), (DType::F64, vec![10, 2]));
    assert_eq!(described(3), (DType::F64, vec![3, 500]));
    assert_eq!(described(4), (DType::I32, vec![7, 2, 2]));
    assert_eq!(described(5), (DType::F64, vec![]));
    assert_eq!(described(6), (DType::C64, vec![300]));
    assert_eq!(described(7), (DType::C128, vec![300]));
    assert_eq!((described(8).0, described(9).0), (DType::F16, DType::BF16));
    run.checkpoint(1, &state).unwrap();
    run.finish().unwrap();

    let mut run = Run::open(Options::in_store(store.clone(), "r")).unwrap();
    let (mut mask_back, mut growing) = (vec![true; 1000], Vec::<bool>::new());
    let (mut back, mut tensors_back, mut time_back) = (Vec::<[f64; 3]>::new(), tensors, 0f64);
    tensors_back.fill([[0; 2]; 2]);
    let mut single_back = vec![Complex::<f32>::ZERO; 300];
    let (mut spectrum_back, mut brains_back) = (Vec::<Complex<f64>>::new(), Vec::<bf16>::new());
    let mut halves_back = vec![f16::ZERO; halves.len()];
    let restored = run.restore(&mut [
        VariableMut::new("mask", &mut mask_back),
        VariableMut::growing("positions", &mut back),
        VariableMut::new("tensors", &mut tensors_back),
        VariableMut::scalar("time", &mut time_back),
        VariableMut::new("c64", &mut single_back),
        VariableMut::growing("c128", &mut spectrum_back),
        VariableMut::new("f16", &mut halves_back),
        VariableMut::growing("bf16", &mut brains_back),
    ]);
    assert_eq!(restored.unwrap().unwrap().step, 1);
    assert!(mask_back == mask && back == positions && tensors_back == tensors);
    assert!(single_back == single && spectrum_back == spectrum);
    let bits = |halves: &[f16]| halves.iter().map(|half| half.to_bits()).collect::<Vec<_>>();
    assert!(bits(&halves_back) == bits(&halves));
    let bits = |brains: &[bf16]| brains.iter().map(|brain| brain.to_bits()).collect::<Vec<_>>();
    assert!(bits(&brains_back) == bits(&brains));
    assert_eq!(time_back.to_bits(), time.to_bits());
    run.restore_step(1, &mut [VariableMut::growing("mask", &mut growing)]).unwrap();
    assert!(growing == mask);
    // Arrays of another length are no elements of this one.
    let mut fours = Vec::<[f64; 4]>::new();
    let refused = run.restore_step(1, &mut [VariableMut::growing("positions", &mut fours)]);
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::Mismatch);

    let checkpoint = Library::of(store).checkpoint("r", Some(1)).unwrap();
    assert!(checkpoint.read::<bool>("mask").unwrap() == mask);
    assert!(checkpoint.read::<Complex<f64>>("c128").unwrap() == spectrum);
    assert!(checkpoint.read_array("c64").unwrap().values::<Complex<f32>>().unwrap() == single);
    assert!(bits(&checkpoint.read::<bf16>("bf16").unwrap()) == bits(&brains));
    assert!(checkpoint.read::<f16>("bf16").is_err());
    assert_eq!(checkpoint.read_range::<[f64; 3]>("positions", 2..4).unwrap(), positions[2..4]);
    assert!(checkpoint.read_range::<[f64; 3]>("positions", 2..501).is_err());
    assert_eq!(checkpoint.read::<[f64; 7]>("pairs").unwrap_err().kind(), ErrorKind::Mismatch);
    let array = checkpoint.read_array("positions").unwrap();
    assert_eq!((array.dtype, array.shape.0.as_slice()), (DType::F64, &[500, 3][..]));
    assert!(array.values::<[f64; 3]>().unwrap() == positions);
    assert!(array.values::<f32>().is_err());
    let all = checkpoint.read_arrays().unwrap();
    assert_eq!(all.len(), 10);
    let fortran = all.iter().find(|array| array.name == "fortran").unwrap();
    assert_eq!(fortran.order, Order::Fortran);
    let scalar = checkpoint.read_array("time").unwrap();
    assert_eq!(scalar.values::<f64>().unwrap(), [time]);
}

#[test]
fn views_are_saved_and_filled_and_what_lies_between_stays() {
    const ROWS: u64 = 600;
    const COLUMNS: u64 = 200;
    let (shape, strides) = ([ROWS / 3, COLUMNS / 2], [3 * COLUMNS as i64, 2]);
    let taken = |grid: &[f64]| -> Vec<f64> {
        let index = |at: u64| at / (COLUMNS / 2) * 3 * COLUMNS + at % (COLUMNS / 2) * 2 + COLUMNS;
        (0..shape[0] * shape[1]).map(|at| grid[index(at) as usize]).collect()
    };
    for bound in [None, Some(Bound::abs(1e-3))] {
        let store = memory();
        let options = || Options::in_store(store.clone(), "r").bound("view", Bound::abs(0.1));
        let mut run = Run::open(options()).unwrap();
        let mut grid: Vec<f64> = (0..ROWS * COLUMNS).map(|at| at as f64 / 7.0).collect();
        let mut states = Vec::new();
        for step in 0..4 {
            // One value of the view, and one between.
            grid[(COLUMNS + 2 * step) as usize] += 1.0;
            grid[(COLUMNS + 2 * step + 1) as usize] += 1.0;
            let view = Variable::strided("view", &grid, COLUMNS, &shape, &strides).unwrap();
            let view = match bound {
                Some(bound) => view.error_bound(bound),
                None => view,
            };
            let save = run.checkpoint(step, &[view]).unwrap();
            assert!(step == 0 || save.changed_bytes() < 10_000, "{}", save.changed_bytes());
            states.push(taken(&grid));
        }
        run.finish().unwrap();
        assert_sound(&store);
        let close = |a: &[f64], b: &[f64]| match bound {
            None => a == b,
            Some(_) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| (a - b).abs() <= 1e-3),
        };
        let mut run = Run::open(options()).unwrap();
        for (step, state) in states.iter().enumerate() {
            let mut back = vec![-1.0f64; grid.len()];
            let view = VariableMut::strided("view", &mut back, COLUMNS, &shape, &strides);
            run.restore_step(step as u64, &mut [view.unwrap()]).unwrap();
            assert!(close(&taken(&back), state));
            assert_eq!(
                back.iter().filter(|value| **value == -1.0).count(),
                back.len() - state.len()
            );
            let library = Library::of(store.clone());
            let whole = library.checkpoint("r", Some(step as u64)).unwrap();
            assert!(close(&whole.read::<f64>("view").unwrap(), state));
        }
    }
    let grid = [0f64; 100];
    assert!(Variable::strided("x", &grid, 0, &[10, 11], &[10, 1]).is_err());
    assert!(Variable::strided("x", &grid, 0, &[10], &[-1]).is_err());
    assert!(Variable::strided("x", &grid, 99, &[10], &[-11]).is_ok());
    assert!(Variable::strided("x", &grid, 0, &[10], &[1, 1]).is_err());
    assert!(Variable::strided("x", &grid, u64::MAX, &[1], &[1]).is_err());
    // Flags, too: every third one comes back, and those between stay.
    let store = memory();
    let mut flags: Vec<bool> = (0..3000).map(|at| at % 7 < 3).collect();
    let mut run = Run::open(Options::in_store(store, "flags")).unwrap();
    run.checkpoint(1, &[Variable::strided("mask", &flags, 1, &[1000], &[3]).unwrap()]).unwrap();
    let expected: Vec<bool> = (0..3000).map(|at| at % 3 != 1 || at % 7 < 3).collect();
    flags.fill(true);
    let view = VariableMut::strided("mask", &mut flags, 1, &[1000], &[3]).unwrap();
    run.restore_step(1, &mut [view]).unwrap();
    assert!(flags == expected);
    run.finish().unwrap();
    let mut none: [bool; 0] = [];
    assert!(VariableMut::strided("x", &mut none, 0, &[0], &[1]).is_ok());
    assert!(VariableMut::strided("x", &mut none, 0, &[1], &[1]).is_err());
    let points = [[1f32, 2.0, 3.0]; 50];
    let every_other = Variable::strided("x", &points, 0, &[25], &[2]).unwrap();
    assert_eq!(every_other.description().shape.0, [25, 3]);
}

#[test]
fn replicas_and_references_know_views() {
    let store = memory();
    let ends = ThreadRanks::new(3).run(move |comm: Arc<dyn Comm>| {
        let grid: Vec<u64> = (0..40_000).map(|at| at * u64::from(comm.rank().0 + 1)).collect();
        let view = || Variable::strided("x", &grid, 39_999, &[20_000], &[-2]).unwrap();
        let expected: Vec<u64> = grid.iter().rev().step_by(2).copied().collect();
        let options = Options::in_store(store.clone(), "r").ranks(comm.clone()).replicas(2);
        let mut run = Run::open(options).unwrap();
        run.checkpoint(1, &[view()]).unwrap().durable().unwrap();
        assert_eq!(run.notes().iter().filter(|note| note.contains("replicas")).count(), 0);
        let mut back = vec![0u64; 20_000];
        let restored = run.restore(&mut [VariableMut::new("x", &mut back)]).unwrap().unwrap();
        assert_eq!(restored.level, treering::Level::Memory);
        assert!(back == expected);
        run.finish().unwrap();
    });
    assert!(ends.iter().all(|end| matches!(end, End::Done(()))), "{ends:?}");
    let store = memory();
    let mut grid: Vec<f64> = (0..20_000).map(f64::from).collect();
    for (name, reference) in [("first", None), ("second", Some("first")), ("third", Some("first"))]
    {
        grid[5001] += f64::from(u8::from(name == "third"));
        let mut options = Options::in_store(store.clone(), name).bound("*", Bound::abs(1e-3));
        if let Some(reference) = reference {
            options = options.reference(store.clone(), reference, Default::default());
        }
        let mut run = Run::open(options).unwrap();
        let view = Variable::strided("x", &grid, 1, &[10_000], &[2]).unwrap();
        run.checkpoint(0, &[view]).unwrap();
        assert_eq!(run.divergence().is_some(), name == "third");
        run.finish().unwrap();
    }
}

#[test]
fn slabs_of_arrays_of_ranks_are_those_of_the_whole() {
    const ROWS: u64 = 40;
    const COLUMNS: u64 = 30;
    let value = |row: u64, column: u64| (row * 1000 + column) as f64;
    for order in [Order::C, Order::Fortran] {
        let store = memory();
        let shared = store.clone();
        let ends = ThreadRanks::new(3).run(move |comm: Arc<dyn Comm>| {
            let own = u64::from(comm.rank().0);
            let (first, end) = (ROWS * own / 3, ROWS * (own + 1) / 3);
            let index = |at: u64| match order {
                Order::C => (first + at / COLUMNS, at % COLUMNS),
                Order::Fortran => (first + at % (end - first), at / (end - first)),
            };
            let values = (0..(end - first) * COLUMNS).map(|at| value(index(at).0, index(at).1));
            let values: Vec<f64> = values.collect();
            let options = Options::in_store(shared.clone(), "r").ranks(comm.clone());
            let mut run = Run::open(options).unwrap();
            let grid = Variable::new("grid", &values).shaped(&[end - first, COLUMNS]);
            let grid = if order == Order::Fortran { grid.fortran() } else { grid };
            run.checkpoint(1, &[grid.part_of(&[ROWS, COLUMNS], &[first, 0])]).unwrap();
            run.finish().unwrap();
        });
        assert!(ends.iter().all(|end| matches!(end, End::Done(()))), "{ends:?}");
        let checkpoint = Library::of(store).checkpoint("r", None).unwrap();
        for (offset, extent, stride) in [
            ([0, 0], [ROWS, COLUMNS], [1, 1]),
            ([1, 2], [20, 10], [2, 3]),
            ([5, 0], [4, COLUMNS], [9, 1]),
            ([0, 7], [ROWS, 1], [1, 1]),
            ([39, 29], [1, 1], [100, 100]),
            ([3, 3], [0, 5], [1, 1]),
        ] {
            let slab = Slab::new(&offset, &extent).stride(&stride);
            let at = |i: u64, j: u64| value(offset[0] + i * stride[0], offset[1] + j * stride[1]);
            let expected: Vec<f64> = match order {
                Order::C => (0..extent[0])
                    .flat_map(|i| (0..extent[1]).map(move |j| (i, j)))
                    .map(|(i, j)| at(i, j))
                    .collect(),
                Order::Fortran => (0..extent[1])
                    .flat_map(|j| (0..extent[0]).map(move |i| (i, j)))
                    .map(|(i, j)| at(i, j))
                    .collect(),
            };
            assert_eq!(checkpoint.read_slab::<f64>("grid", &slab).unwrap(), expected, "{slab:?}");
            let mut into = vec![0f64; expected.len()];
            checkpoint.read_slab_into("grid", &slab, &mut into).unwrap();
            assert_eq!(into, expected);
            let array = checkpoint.read_array_slab("grid", &slab).unwrap();
            assert_eq!((&array.shape.0[..], array.order), (&extent[..], order));
            assert_eq!(array.values::<f64>().unwrap(), expected, "{slab:?}");
        }
        let whole = checkpoint.read_array("grid").unwrap();
        assert_eq!((whole.shape.0.as_slice(), whole.order), (&[ROWS, COLUMNS][..], order));
        for wrong in [
            Slab::new(&[0], &[1]),
            Slab::new(&[0, 0], &[1, 1]).stride(&[0, 1]),
            Slab::new(&[0, 0], &[1]),
            Slab::new(&[0, 0], &[21, 1]).stride(&[2, 1]),
            Slab::new(&[u64::MAX, 0], &[2, 1]),
            Slab::new(&[0, 0], &[u64::MAX, u64::MAX]).stride(&[u64::MAX, 2]),
        ] {
            let refused = checkpoint.read_slab::<f64>("grid", &wrong).unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::Usage, "{wrong:?}");
            let refused = checkpoint.read_array_slab("grid", &wrong).unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::Usage, "{wrong:?}");
        }
        let mut small = [0f64; 3];
        let slab = Slab::new(&[0, 0], &[2, 2]);
        assert!(checkpoint.read_slab_into("grid", &slab, &mut small).is_err());
        assert!(checkpoint.read_slab::<f32>("grid", &slab).is_err());
        assert!(checkpoint.read_array("nothing").is_err());
    }
}

/// Each of three ranks has an array of its own, rows of a global one, and one that only it has.
#[test]
fn what_each_rank_saved_can_be_read() {
    let store = memory();
    let shared = store.clone();
    let ends = ThreadRanks::new(3).run(move |comm: Arc<dyn Comm>| {
        let rank = u64::from(comm.rank().0);
        let own: Vec<u64> = (0..rank + 2).map(|at| 100 * rank + at).collect();
        let rows = [rank as f64; 4];
        let mut run = Run::open(Options::in_store(shared.clone(), "r").ranks(comm)).unwrap();
        let state = [
            Variable::new("own", &own),
            Variable::new("rows", &rows).shaped(&[2, 2]).part_of(&[6, 2], &[2 * rank, 0]),
            Variable::new("last", &own),
        ];
        run.checkpoint(1, &state[..if rank == 2 { 3 } else { 2 }]).unwrap();
        run.finish().unwrap();
    });
    assert!(ends.iter().all(|end| matches!(end, End::Done(()))), "{ends:?}");
    let mut checkpoint = Library::of(store).checkpoint("r", None).unwrap();

    // Without a choice: nobody could tell which is meant, and the sentence says what to call.
    let refused = checkpoint.read_array("own").unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Mismatch);
    assert!(refused.to_string().contains("of_rank"), "{refused}");
    assert_eq!(checkpoint.read::<u64>("own").unwrap(), [0, 1]);
    assert_eq!(checkpoint.read_array("rows").unwrap().shape.0, [6, 2]);

    for rank in [0, 2, 1] {
        checkpoint = checkpoint.of_rank(Rank(rank)).unwrap();
        let own: Vec<u64> = (0..u64::from(rank) + 2).map(|at| 100 * u64::from(rank) + at).collect();
        let last = own.len() as u64 - 1;
        assert_eq!(checkpoint.read::<u64>("own").unwrap(), own);
        assert_eq!(
            checkpoint.read_range::<u64>("own", last..last + 1).unwrap(),
            own[last as usize..]
        );
        let mut filled = Vec::<u64>::new();
        checkpoint.read_into(&mut [VariableMut::growing("own", &mut filled)]).unwrap();
        assert_eq!(filled, own);
        assert_eq!(checkpoint.read_box::<u64>("own", &[last], &[1]).unwrap(), own[last as usize..]);
        let slab = Slab::new(&[0], &[2]).stride(&[last]);
        assert_eq!(
            checkpoint.read_slab::<u64>("own", &slab).unwrap(),
            [own[0], own[last as usize]]
        );
        let mut two = [0u64; 2];
        checkpoint.read_slab_into("own", &slab, &mut two).unwrap();
        assert_eq!(two, [own[0], own[last as usize]]);
        assert_eq!(checkpoint.read_array("own").unwrap().values::<u64>().unwrap(), own);
        // Its box of a global array, by indices of its own.
        let rows = checkpoint.read_array("rows").unwrap();
        assert_eq!(
            (rows.shape.0.as_slice(), rows.values::<f64>().unwrap()),
            (&[2, 2][..], vec![f64::from(rank); 4])
        );
        let row = checkpoint.read_box::<f64>("rows", &[1, 0], &[1, 2]).unwrap();
        assert_eq!(row, [f64::from(rank); 2]);
        assert!(checkpoint.read_box::<f64>("rows", &[2, 0], &[1, 2]).is_err());
        let all = checkpoint.read_arrays().unwrap();
        let names: Vec<&str> = all.iter().map(|array| &array.name[..]).collect();
        assert_eq!(names.len(), if rank == 2 { 3 } else { 2 }, "{names:?}");
        assert_eq!(checkpoint.read::<u64>("last").is_ok(), rank == 2);
        assert_eq!(checkpoint.read_array("last").is_ok(), rank == 2);
    }
    let refused = checkpoint.of_rank(Rank(3)).err().unwrap();
    assert_eq!(refused.kind(), ErrorKind::Usage);
}

fn with_steps(store: &Arc<dyn Store>, run: &str, steps: std::ops::Range<u64>) -> Vec<String> {
    let mut run = Run::open(Options::in_store(store.clone(), run)).unwrap();
    let mut data = vec![0u64; 5000];
    for step in steps {
        data[step as usize * 7 % 5000] = step + 1;
        run.checkpoint(step, &[Variable::new("x", &data)]).unwrap();
    }
    let notes = run.notes().to_vec();
    run.finish().unwrap();
    notes
}

#[test]
fn one_checkpoint_can_be_removed_but_not_the_newest() {
    let store = memory();
    with_steps(&store, "r", 0..6);
    let library = Library::of(store.clone());
    let plan = library.plan_remove_checkpoint("r", 2, &|_, _| {}).unwrap();
    assert_eq!(plan.removed.iter().map(|gone| gone.step).collect::<Vec<_>>(), [2]);
    assert_eq!(steps(&store, "r"), [0, 1, 2, 3, 4, 5]);
    let removed = library.remove_checkpoint("r", 2, &|_, _| {});
    match removed {
        Ok(plan) => {
            assert_eq!(plan.removed.len(), 1);
            assert_eq!(steps(&store, "r"), [0, 1, 3, 4, 5]);
        }
        Err(error) => panic!("{error}"),
    }
    assert_sound(&store);
    assert_eq!(library.remove_checkpoint("r", 5, &|_, _| {}).unwrap_err().kind(), ErrorKind::Usage);
    assert_eq!(
        library.remove_checkpoint("r", 9, &|_, _| {}).unwrap_err().kind(),
        ErrorKind::NotFound
    );
    assert_eq!(
        library.remove_checkpoint("no", 9, &|_, _| {}).unwrap_err().kind(),
        ErrorKind::NotFound
    );
    assert_eq!(steps(&store, "r"), [0, 1, 3, 4, 5]);
}

#[test]
fn a_run_goes_with_everything_unless_others_need_it() {
    let store = memory();
    with_steps(&store, "old", 0..4);
    with_steps(&store, "other", 0..2);
    let library = Library::of(store.clone());
    library.branch("old", Some(3), "new").unwrap();
    let refused = library.remove_run("old").unwrap_err();
    assert!(
        refused.kind() == ErrorKind::Usage && refused.to_string().contains("\"new\""),
        "{refused}"
    );
    assert_eq!(steps(&store, "old"), [0, 1, 2, 3]);
    library.remove_run("new").unwrap();
    let planned = library.plan_remove_run("old").unwrap();
    let removed = library.remove_run("old").unwrap();
    assert_eq!(planned, removed);
    assert!(removed.checkpoints == 4 && removed.files > 4 && removed.bytes > 0, "{removed:?}");
    let library = Library::of(store.clone());
    let left: Vec<String> = library.runs().unwrap().into_iter().map(|run| run.name).collect();
    assert_eq!(left, ["other"]);
    assert_sound(&store);
    assert_eq!(library.remove_run("old").unwrap_err().kind(), ErrorKind::NotFound);
    // The name is free again.
    with_steps(&store, "old", 7..9);
    assert_eq!(steps(&store, "old"), [7, 8]);
    assert_sound(&store);
}

#[test]
fn an_interrupted_removal_leaves_whole_checkpoints_or_none_and_can_begin_again() {
    for dies_at in 0..12 {
        let inner = memory();
        with_steps(&inner, "r", 0..4);
        let left = Mutex::new(dies_at);
        let dying: Arc<dyn Store> = Arc::new(HookedStore::new(inner.clone(), move |call| {
            let mut left = left.lock().unwrap();
            match call {
                Call::Delete(_) if *left == 0 => {
                    Err(Error::new(ErrorKind::Io, "the machine is gone"))
                }
                Call::Delete(_) => {
                    *left -= 1;
                    Ok(())
                }
                _ => Ok(()),
            }
        }));
        let removed = Library::of(dying).remove_run("r");
        assert_sound(&inner);
        match removed {
            Ok(_) => assert!(Library::of(inner.clone()).runs().unwrap().is_empty()),
            Err(_) => {
                let again = Library::of(inner.clone()).remove_run("r");
                assert!(again.is_ok() || again.unwrap_err().kind() == ErrorKind::NotFound);
                assert!(Library::of(inner.clone()).runs().unwrap().is_empty());
            }
        }
    }
}

/// Somebody branches off between the last look at who shares packs and the removal, in a store without locks: the branch keeps
/// what it needs, in packs of their own or in bundles.
#[test]
fn a_branch_made_while_its_source_is_removed_keeps_its_data() {
    for compacted in [false, true] {
        let inner = memory();
        with_steps(&inner, "r", 0..6);
        if compacted {
            let all = Compaction { files: 3, pack_bytes: 1 << 20 };
            Library::of(inner.clone()).compact("r", all, &|_, _| {}).unwrap();
        }
        let expected: Vec<u64> =
            Library::of(inner.clone()).checkpoint("r", Some(4)).unwrap().read("x").unwrap();
        let (branches, made) = (inner.clone(), AtomicBool::new(false));
        let store: Arc<dyn Store> = Arc::new(HookedStore::with_locks(
            Arc::new(HookedStore::new(inner.clone(), move |call| {
                if matches!(call, Call::Delete(_)) && !made.swap(true, Ordering::SeqCst) {
                    Library::of(branches.clone()).branch("r", Some(4), "b").unwrap();
                }
                Ok(())
            })),
            Locks::None,
        ));
        Library::of(store).remove_run("r").unwrap();
        assert_eq!(steps(&inner, "b"), [4]);
        let back: Vec<u64> =
            Library::of(inner.clone()).checkpoint("b", None).unwrap().read("x").unwrap();
        assert_eq!(back, expected);
        assert_sound(&inner);
        // A new run of the name leaves it what it needs, and its removal frees the rest.
        with_steps(&inner, "r", 10..14);
        assert_eq!((steps(&inner, "r"), steps(&inner, "b")), (vec![10, 11, 12, 13], vec![4]));
        Library::of(inner.clone()).remove_run("b").unwrap();
        with_steps(&inner, "r", 20..22);
        assert_sound(&inner);
    }
}

#[test]
fn a_program_whose_run_was_removed_stops_with_an_error() {
    let store = memory();
    let mut run = Run::open(Options::in_store(store.clone(), "r")).unwrap();
    let data = vec![1u64; 1000];
    run.checkpoint(0, &[Variable::new("x", &data)]).unwrap().durable().unwrap();
    Library::of(store.clone()).remove_run("r").unwrap();
    let save = run.checkpoint(1, &[Variable::new("x", &data)]).unwrap();
    assert!(save.durable().is_err());
    drop(run);
    assert!(Library::of(store.clone()).runs().unwrap().is_empty());
}

#[test]
fn who_begins_afresh_is_told_and_who_restores_is_not() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    assert_eq!(with_steps(&store, "r", 0..2), [] as [&str; 0]);
    let notes = with_steps(&store, "r", 0..2);
    assert!(notes.len() == 1 && notes[0].contains("starts over"), "{notes:?}");
    let mut run = Run::open(Options::in_store(store.clone(), "r")).unwrap();
    let mut data = vec![0u64; 5000];
    run.restore(&mut [VariableMut::new("x", &mut data)]).unwrap();
    run.checkpoint(9, &[Variable::new("x", &data)]).unwrap();
    assert_eq!(run.notes(), [] as [&str; 0]);
    // A run that was opened and never had a checkpoint is no old one.
    drop(Run::open(Options::in_store(store.clone(), "empty")).unwrap());
    assert_eq!(with_steps(&store, "empty", 0..2), [] as [&str; 0]);
}

#[test]
fn views_in_fortran_order_keep_every_element_at_its_index() {
    const SHAPE: [u64; 3] = [3, 4, 5];
    // Every other element of the last axis.
    let strides = [40, 10, 2];
    let grid: Vec<u32> = (0..120).collect();
    let place = |at: [u64; 3]| (at[0] * 40 + at[1] * 10 + at[2] * 2) as usize;
    let indices = || {
        let all = (0..SHAPE[0]).flat_map(|a| (0..SHAPE[1]).map(move |b| (a, b)));
        all.flat_map(|(a, b)| (0..SHAPE[2]).map(move |c| [a, b, c]))
    };
    let store = memory();
    let mut run = Run::open(Options::in_store(store.clone(), "r")).unwrap();
    let view = || Variable::strided("x", &grid, 0, &SHAPE, &strides).unwrap();
    run.checkpoint(0, &[view().fortran()]).unwrap();
    // Saying it twice says nothing more.
    run.checkpoint(1, &[view().fortran().fortran()]).unwrap().durable().unwrap();
    let checkpoint = Library::of(store.clone()).checkpoint("r", Some(0)).unwrap();
    let flat = checkpoint.read::<u32>("x").unwrap();
    for [a, b, c] in indices() {
        let at = (a + SHAPE[0] * (b + SHAPE[1] * c)) as usize;
        assert_eq!(flat[at], grid[place([a, b, c])], "{a} {b} {c}");
    }
    // Restored into a view in the same order, and into a plain array in Fortran order.
    for step in [0, 1] {
        let mut back = vec![u32::MAX; 120];
        let view = VariableMut::strided("x", &mut back, 0, &SHAPE, &strides).unwrap();
        run.restore_step(step, &mut [view.fortran()]).unwrap();
        for at in indices() {
            assert_eq!(back[place(at)], grid[place(at)], "{at:?}");
        }
        assert_eq!(back.iter().filter(|value| **value == u32::MAX).count(), 60);
        let mut plain = vec![0u32; 60];
        let whole = VariableMut::new("x", &mut plain).shaped(&SHAPE).fortran();
        run.restore_step(step, &mut [whole]).unwrap();
        assert_eq!(plain, flat);
    }
    // An array in C order is not restored into it: its elements lie elsewhere.
    let mut plain = vec![0u32; 60];
    let in_c = VariableMut::new("x", &mut plain).shaped(&SHAPE);
    assert_eq!(run.restore_step(0, &mut [in_c]).unwrap_err().kind(), ErrorKind::Mismatch);
    run.finish().unwrap();
    // Memory of another language, with strides and without, by the description that it is given.
    let mut run = Run::open(Options::in_store(store.clone(), "raw")).unwrap();
    let (mut strided, mut flags) = (grid.clone(), [true, false, true, true, false, false]);
    // SAFETY: both outlive the run, and nothing else uses them while it is called.
    unsafe {
        let first = strided.as_mut_ptr().cast();
        run.protect_raw("x", DType::U32, &SHAPE, Some(&strides), first).unwrap().describe(fortran);
        let first = flags.as_mut_ptr().cast();
        run.protect_raw("flags", DType::Bool, &[2, 3], None, first).unwrap().describe(fortran);
    }
    run.checkpoint_protected(1).unwrap().durable().unwrap();
    assert_eq!(Library::of(store).checkpoint("raw", None).unwrap().read::<u32>("x").unwrap(), flat);
    strided.fill(7);
    flags.fill(false);
    run.restore_protected().unwrap();
    assert!(indices().all(|at| strided[place(at)] == grid[place(at)]));
    assert_eq!(strided.iter().filter(|value| **value == 7).count(), 60);
    assert_eq!(flags, [true, false, true, true, false, false]);
}

fn fortran(variable: Variable<'_>) -> Variable<'_> {
    variable.fortran()
}
