//! The number of calls of a store: every call may be a round trip to a server.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use treering::testing::{Call, HookedStore};
use treering::{Encoding, Library, MemoryStore, Options, Run, Store, Variable, VariableMut};

/// A store that counts its calls, and the number of those that read from packs.
fn counting(inner: Arc<dyn Store>) -> (Arc<dyn Store>, Arc<[AtomicU64; 2]>) {
    let counts: Arc<[AtomicU64; 2]> = Arc::default();
    let counted = counts.clone();
    let store = HookedStore::new(inner, move |call| {
        counted[0].fetch_add(1, Ordering::Relaxed);
        if let Call::Read(key, _) = call
            && key.ends_with(".pack")
        {
            counted[1].fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    });
    (Arc::new(store), counts)
}

fn noise(words: u64) -> Vec<u64> {
    (0..words).map(|i| i.wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(31)).collect()
}

/// A run of one epoch: a whole checkpoint and small deltas.
fn run_of(steps: u64) -> Arc<dyn Store> {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let mut run = Run::open(Options::in_store(store.clone(), "r").growth(1000.0)).unwrap();
    let mut data = noise(1 << 14);
    for step in 0..steps {
        data[step as usize * 8] = step;
        run.checkpoint(step, &[Variable::new("x", &data)]).unwrap();
    }
    run.finish().unwrap();
    store
}

#[test]
fn a_restore_reads_several_frames_in_one_call() {
    let inner: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let data = noise(1 << 20);
    let (raw, encoded) = (Encoding::Raw, Encoding::default());
    for (name, encoding) in [("raw", raw), ("encoded", encoded)] {
        let options = Options::in_store(inner.clone(), name).encoding(encoding);
        let mut run = Run::open(options).unwrap();
        run.checkpoint(0, &[Variable::new("x", &data)]).unwrap();
        run.finish().unwrap();
        let (store, counts) = counting(inner.clone());
        let mut back = vec![0u64; data.len()];
        let checkpoint = Library::of(store).checkpoint(name, None).unwrap();
        checkpoint.read_into(&mut [VariableMut::new("x", &mut back)]).unwrap();
        assert!(back == data);
        // 8 MiB in frames of 256 KiB, and one call for header and footer.
        let reads = counts[1].load(Ordering::Relaxed);
        assert!(reads <= 32 / 4 + 1, "{reads} reads");
    }
}

#[test]
fn looking_at_every_step_takes_calls_in_proportion_to_their_number() {
    let calls = |steps: u64| {
        let (store, counts) = counting(run_of(steps));
        let library = Library::of(store);
        for step in 0..steps {
            let checkpoint = library.checkpoint("r", Some(step)).unwrap();
            assert_eq!(checkpoint.step(), step);
            let before = counts[0].load(Ordering::Relaxed);
            assert_eq!(library.variables(&checkpoint).len(), 1);
            let x: Vec<u64> = checkpoint.read_range("x", step * 8..step * 8 + 1).unwrap();
            assert_eq!(x, [step]);
            assert!(counts[0].load(Ordering::Relaxed) <= before + 4, "variables read little");
        }
        counts[0].load(Ordering::Relaxed)
    };
    let (few, many) = (calls(30), calls(120));
    assert!(many <= 5 * few, "{few} calls for 30 steps, {many} for 120");
}
