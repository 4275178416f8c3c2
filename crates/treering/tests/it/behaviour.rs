//! Guarantees for a program while it runs: bounded memory, waiting or skipping, learning, and
//! results that do not depend on the number of threads.

use crate::support::memory;
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, SystemTime};
use treering::testing::{Call, Digest, Footer, HookedStore, Seal};
use treering::{
    ChunkSize, Due, Encoding, Library, Method, Options, Overload, Run, Store, StoreItem, Variable,
    VariableMut,
};

/// Numbers that do not repeat.
fn noise(words: usize, seed: u64) -> Vec<u64> {
    (0..words as u64)
        .map(|i| (i ^ seed << 32).wrapping_mul(0x9E3779B97F4A7C15).rotate_left(31))
        .collect()
}

/// Lets no pack begin while it is closed.
#[derive(Clone)]
struct Gate(Arc<(Mutex<bool>, Condvar)>);

impl Gate {
    fn before(inner: Arc<dyn Store>) -> (Gate, Arc<dyn Store>) {
        let gate = Gate(Arc::new((Mutex::new(true), Condvar::new())));
        let own = gate.clone();
        let store = HookedStore::new(inner, move |call| {
            if let Call::Put(_) = call {
                let open = own.0.0.lock().unwrap();
                drop(own.0.1.wait_while(open, |open| !*open).unwrap());
            }
            Ok(())
        });
        (gate, Arc::new(store))
    }

    fn set(&self, open: bool) {
        *self.0.0.lock().unwrap() = open;
        self.0.1.notify_all();
    }
}

#[test]
fn a_full_staging_memory_skips_if_told_and_the_next_save_is_complete() {
    let (gate, store) = Gate::before(memory());
    let options = Options::in_store(store.clone(), "r");
    let mut run = Run::open(options.staging(1 << 20).overload(Overload::Skip)).unwrap();
    let data = [noise(1 << 16, 1), noise(1 << 16, 2), noise(1 << 16, 3)];
    gate.set(false);
    let first = run.checkpoint(0, &[Variable::new("x", &data[0])]).unwrap();
    let second = run.checkpoint(1, &[Variable::new("x", &data[1])]).unwrap();
    let third = run.checkpoint(2, &[Variable::new("x", &data[2])]).unwrap();
    assert!(!first.is_skipped());
    assert!(second.is_skipped() || third.is_skipped());
    assert!(third.is_skipped() || third.changed_bytes() > 0);
    gate.set(true);
    first.durable().unwrap();
    let last = run.checkpoint(3, &[Variable::new("x", &data[2])]).unwrap();
    assert!(!last.is_skipped());
    last.durable().unwrap();
    assert!(run.failures().is_empty());
    let library = Library::of(store);
    let newest = library.checkpoint("r", None).unwrap();
    assert_eq!((newest.step(), newest.read::<u64>("x").unwrap()), (3, data[2].clone()));
}

#[test]
fn the_last_checkpoint_is_not_skipped() {
    let (gate, store) = Gate::before(memory());
    let options = Options::in_store(store.clone(), "r").staging(1 << 20).overload(Overload::Skip);
    let mut run = Run::open(options.deadline(SystemTime::now())).unwrap();
    let data = [noise(1 << 16, 1), noise(1 << 16, 2), noise(1 << 16, 3)];
    gate.set(false);
    run.checkpoint(0, &[Variable::new("x", &data[0])]).unwrap();
    let second = run.checkpoint(1, &[Variable::new("x", &data[1])]).unwrap();
    let third = run.checkpoint(2, &[Variable::new("x", &data[2])]).unwrap();
    assert!(second.is_skipped() || third.is_skipped());
    assert_eq!(run.due(3).unwrap(), Due::Last);
    let opener = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(50));
        gate.set(true);
    });
    let last = run.checkpoint(3, &[Variable::new("x", &data[2])]).unwrap();
    assert!(!last.is_skipped());
    opener.join().unwrap();
    run.finish().unwrap();
    let newest = Library::of(store).checkpoint("r", None).unwrap();
    assert_eq!((newest.step(), newest.read::<u64>("x").unwrap()), (3, data[2].clone()));
}

#[test]
fn a_state_larger_than_the_staging_memory_streams_through_it() {
    let store = memory();
    let options = Options::in_store(store.clone(), "r").staging(1 << 20).encoding(Encoding::Raw);
    let mut run = Run::open(options).unwrap();
    // More than one batch of 64 MiB.
    let mut data = noise(9 << 20, 7);
    run.checkpoint(0, &[Variable::new("x", &data)]).unwrap();
    data[8 << 20] ^= 1;
    let save = run.checkpoint(1, &[Variable::new("x", &data)]).unwrap();
    assert_eq!(save.changed_bytes(), 512);
    run.finish().unwrap();
    let mut back = vec![0u64; data.len()];
    let checkpoint = Library::of(store).checkpoint("r", Some(1)).unwrap();
    checkpoint.read_into(&mut [VariableMut::new("x", &mut back)]).unwrap();
    assert!(back == data);
}

#[test]
fn a_variable_that_never_repeats_is_only_copied_until_it_does() {
    let store = memory();
    let mut run = Run::open(Options::in_store(store.clone(), "r")).unwrap();
    let mut data = Vec::new();
    for step in 0..30 {
        data = noise(1 << 15, step);
        run.checkpoint(step, &[Variable::new("x", &data)]).unwrap().durable().unwrap();
    }
    // From now on nothing changes; it is looked at again in time.
    let mut changed = Vec::new();
    for step in 30..70 {
        let save = run.checkpoint(step, &[Variable::new("x", &data)]).unwrap();
        save.durable().unwrap();
        changed.push(save.changed_bytes());
    }
    assert!(changed[0] > 0, "it had not learned anything");
    assert!(changed[25..].iter().filter(|c| **c == 0).count() > 10, "{changed:?}");
    run.finish().unwrap();
    let checkpoint = Library::of(store).checkpoint("r", None).unwrap();
    assert!(checkpoint.read::<u64>("x").unwrap() == data);
}

#[test]
fn a_small_record_costs_space_and_nothing_else() {
    let store = memory();
    let options = Options::in_store(store.clone(), "r").record(1000).encoding(Encoding::Raw);
    let mut run = Run::open(options).unwrap();
    let block = noise(4096, 5);
    let data: Vec<u64> = (0..4).flat_map(|_| block.clone()).collect();
    run.checkpoint(0, &[Variable::new("x", &data)]).unwrap();
    run.finish().unwrap();
    let library = Library::of(store);
    assert!(library.checkpoint("r", None).unwrap().read::<u64>("x").unwrap() == data);
    let stored = library.checkpoints("r").unwrap().0[0].stored_bytes;
    assert!(stored > 3 * 4096 * 8 && stored < 5 * 4096 * 8, "{stored}");
}

/// The frames and the footer of a pack, without the random number of its writer.
fn without_writer(pack: &[u8]) -> (Vec<u8>, Footer) {
    let (body, trailer) = pack.split_at(pack.len() - 32);
    let word = |at: usize| u64::from_le_bytes(trailer[at..at + 8].try_into().unwrap());
    let digest = Digest([word(8), word(16)]);
    let seal = Seal { size: pack.len() as u64, footer: word(0), digest };
    let (frames, footer) = body.split_at(body.len() - seal.footer as usize);
    let mut footer = Footer::parse(&pack[..16], footer, &seal, true).unwrap();
    footer.name.writer.nonce = 0;
    // Prints are seeded anew for each run, and the roots are made of them.
    footer.variables.iter_mut().for_each(|variable| variable.root = Digest::default());
    if let Some(parent) = &mut footer.parent {
        parent.digest = Digest::default();
    }
    (frames.to_vec(), footer)
}

#[test]
fn packs_do_not_depend_on_the_number_of_threads() {
    let packs = |threads: usize, method: Method| {
        let store = memory();
        let chunk = ChunkSize::new(64).unwrap();
        let options =
            Options::in_store(store.clone(), "r").method(method).chunk(chunk).growth(100.0);
        let mut run = Run::open(options).unwrap();
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        let mut data: Vec<u32> = (0..600_000).map(|i| i / 100 % 7).collect();
        for step in 0..5u32 {
            data[(step * 1000) as usize..(step * 1000 + 30_000) as usize].fill(step);
            let save =
                pool.install(|| run.checkpoint(u64::from(step), &[Variable::new("x", &data)]));
            save.unwrap().durable().unwrap();
        }
        run.finish().unwrap();
        let items = store.list("runs/r/packs").unwrap();
        let read = |item: &StoreItem| {
            let blob = store.open(&format!("runs/r/packs/{}", item.name)).unwrap();
            let mut bytes = vec![0; blob.size() as usize];
            blob.read_at(0, &mut bytes).unwrap();
            without_writer(&bytes)
        };
        items.iter().map(read).collect::<Vec<_>>()
    };
    for method in Method::ALL {
        let one = packs(1, method);
        assert_eq!(one.len(), 5);
        assert!(one == packs(4, method), "{method:?}");
    }
}

#[test]
fn more_than_four_gibibytes_in_one_variable() {
    let store = memory();
    let chunk = ChunkSize::new(65536).unwrap();
    let mut run = Run::open(Options::in_store(store.clone(), "r").chunk(chunk)).unwrap();
    // Zeros take no memory until they are written to, and no space in the store.
    let len = (4usize << 30) + (300 << 20) + 3;
    let mut data = vec![0u8; len];
    let far = (4usize << 30) + 12345;
    data[far] = 1;
    run.checkpoint(0, &[Variable::new("x", &data)]).unwrap();
    data[far] = 2;
    data[len - 1] = 3;
    let save = run.checkpoint(1, &[Variable::new("x", &data)]).unwrap();
    assert_eq!(save.changed_bytes(), 65536 + 3);
    run.finish().unwrap();
    let library = Library::of(store);
    assert!(library.checkpoints("r").unwrap().0.iter().all(|c| c.stored_bytes < 10_000));
    for (step, expected, last) in [(0, 1, 0), (1, 2, 3)] {
        let checkpoint = library.checkpoint("r", Some(step)).unwrap();
        let around =
            checkpoint.read_range::<u8>("x", far as u64 - 70_000..far as u64 + 70_000).unwrap();
        assert_eq!(around.iter().map(|b| u64::from(*b)).sum::<u64>(), expected);
        assert_eq!(around[70_000], expected as u8);
        assert_eq!(checkpoint.read_range::<u8>("x", len as u64 - 1..len as u64).unwrap(), [last]);
        assert_eq!(checkpoint.read_range::<u8>("x", 0..5).unwrap(), [0; 5]);
    }
}
