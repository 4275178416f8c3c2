//! Arrays that a run knows by name: saved and restored together, from any language, on any number of ranks.

use crate::support::lockless_memory as memory;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use treering::{Bound, Comm, DType, ErrorKind, Library, Options, Order, Run, Store, ThreadRanks};

fn open(store: &Arc<dyn Store>) -> Run {
    Run::open(Options::in_store(store.clone(), "r")).unwrap()
}

#[test]
fn what_is_protected_is_saved_and_restored_together() {
    let store = memory();
    let program = |from: Option<u64>, to: u64| {
        let mut run = open(&store);
        let heat = run
            .protect("heat", vec![0.0f64; 600])
            .unwrap()
            .describe(|heat| heat.shaped(&[20, 30]).fortran());
        let particles = run.protect("particles", Vec::<[f32; 3]>::new()).unwrap().growing();
        let time = run.protect("time", 0.0f64).unwrap();
        let mask = run.protect("mask", vec![false; 9]).unwrap();
        let smooth = run.protect("smooth", vec![0.1f64; 100]).unwrap();
        let smooth = smooth.describe(|smooth| smooth.error_bound(Bound::abs(1e-3)));
        let restored = run.restore_protected().unwrap();
        assert_eq!(restored.as_ref().map(|restored| restored.step), from);
        if let Some(step) = from {
            assert_eq!((heat.read()[step as usize], *time.read()), (1.5, step as f64));
            assert_eq!(particles.read().len() as u64, step + 1);
            assert_eq!(particles.read()[2], [2.0; 3]);
            assert_eq!(mask.read().iter().filter(|flag| **flag).count() as u64, step + 1);
            assert!(smooth.read().iter().all(|value| (value - 0.1).abs() <= 1e-3));
        }
        for step in from.map_or(0, |step| step + 1)..=to {
            heat.write()[step as usize] = 1.5;
            particles.write().push([step as f32; 3]);
            *time.write() = step as f64;
            mask.write()[step as usize] = true;
            run.checkpoint_protected(step).unwrap();
        }
        run.finish().unwrap();
    };
    program(None, 3);
    program(Some(3), 5);
    let checkpoint = Library::of(store.clone()).checkpoint("r", None).unwrap();
    let heat = checkpoint.read_array("heat").unwrap();
    assert_eq!((heat.shape.0, heat.order), (vec![20, 30], Order::Fortran));
    assert_eq!(checkpoint.read_array("particles").unwrap().shape.0, [6, 3]);
    assert!(checkpoint.read_array("time").unwrap().shape.0.is_empty());
    // One step back, and what later checkpoints do not have.
    let mut run = open(&store);
    let time = run.protect("time", 9.0f64).unwrap();
    let wind = run.protect("wind", vec![7u8; 3]).unwrap().optional();
    let restored = run.restore_step_protected(4).unwrap();
    assert_eq!((*time.read(), restored.missing), (4.0, vec!["wind".to_string()]));
    assert_eq!(*wind.read(), [7; 3]);
    run.unprotect("time").unwrap();
    run.with_protected(|run, arrays| run.checkpoint_shared(8, arrays)).unwrap().durable().unwrap();
    let arrays = Library::of(store).checkpoint("r", Some(8)).unwrap().read_arrays().unwrap();
    assert_eq!(arrays.iter().map(|array| &array.name[..]).collect::<Vec<_>>(), ["wind"]);
}

#[test]
fn mistakes_are_refused_and_change_nothing() {
    let store = memory();
    let mut run = open(&store);
    assert!(run.restore_protected().unwrap_err().to_string().contains("Run::protect"));
    assert_eq!(run.checkpoint_protected(0).map(drop).unwrap_err().kind(), ErrorKind::Usage);
    let heat = run.protect("heat", vec![1.0f64; 10]).unwrap();
    let twice = run.protect("heat", 5u32).map(drop).unwrap_err();
    assert!(twice.to_string().contains("\"heat\" is protected already"), "{twice}");
    assert!(run.protect("", 5u32).is_err() && run.protect("treering:x", 5u32).is_err());
    assert_eq!(run.unprotect("cold").unwrap_err().kind(), ErrorKind::NotFound);
    // A guard that is held is an error, and no deadlock.
    {
        let reading = heat.read();
        run.checkpoint_protected(0).unwrap();
        assert!(run.restore_protected().unwrap_err().to_string().contains("\"heat\" is in use"));
        assert_eq!(reading.len(), 10);
    }
    let changing = heat.write();
    assert_eq!(run.checkpoint_protected(1).map(drop).unwrap_err().kind(), ErrorKind::Usage);
    drop(changing);
    // Another length: the stored shape is what counts.
    heat.write().push(2.0);
    let error = run.restore_protected().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Mismatch, "{error}");
    heat.write().truncate(10);
    let wrong = heat.clone().describe(|heat| heat.shaped(&[3, 3]));
    assert!(run.checkpoint_protected(1).map(drop).unwrap_err().to_string().contains("3×3"));
    wrong.describe(|heat| heat.shaped(&[2, 5]));
    run.checkpoint_protected(1).unwrap();
    // Half-changed values are not saved.
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        let mut changing = heat.write();
        changing[0] = f64::NAN;
        panic!("in the middle of a change");
    }));
    assert!(panicked.is_err());
    let error = run.checkpoint_protected(2).map(drop).unwrap_err();
    assert!(error.to_string().contains("panic"), "{error}");
    assert_eq!(run.restore_protected().unwrap().unwrap().step, 1);
    assert_eq!(*heat.read(), [1.0; 10]);
    run.checkpoint_protected(3).unwrap();
    run.finish().unwrap();
    // Another type.
    let mut run = open(&store);
    let _heat = run.protect("heat", vec![1.0f32; 10]).unwrap();
    assert_eq!(run.restore_protected().unwrap_err().kind(), ErrorKind::Mismatch);
}

#[test]
fn memory_of_other_languages_is_saved_and_filled_in_place() {
    let store = memory();
    let mut grid: Vec<f64> = (0..600).map(f64::from).collect();
    let mut flags = [1u8, 0, 1, 1];
    let mut empty: [u32; 0] = [];
    let protect = |run: &mut Run, grid: &mut [f64], flags: &mut [u8], empty: &mut [u32]| {
        let (whole, last) = (grid.as_mut_ptr().cast(), &raw mut grid[599]);
        // SAFETY: the arrays outlive the run, and nobody else uses them.
        unsafe {
            // Rows from the last to the first, every third column of each, from the last one on.
            let strides = Some(&[-30i64, -3][..]);
            run.protect_raw("view", DType::F64, &[20, 10], strides, last.cast()).unwrap();
            let whole = run.protect_raw("grid", DType::F64, &[30, 20], None, whole).unwrap();
            whole.describe(|grid| grid.fortran());
            run.protect_raw("flags", DType::Bool, &[2, 2], None, flags.as_mut_ptr()).unwrap();
            let none = std::ptr::null_mut();
            run.protect_raw("none", DType::U32, &[0, 5], None, none).unwrap();
            run.protect_raw("empty", DType::U32, &[0], None, empty.as_mut_ptr().cast()).unwrap();
        }
    };
    let mut run = open(&store);
    protect(&mut run, &mut grid, &mut flags, &mut empty);
    run.checkpoint_protected(7).unwrap();
    run.finish().unwrap();
    let checkpoint = Library::of(store.clone()).checkpoint("r", None).unwrap();
    let view: Vec<f64> = checkpoint.read("view").unwrap();
    assert_eq!((view[0], view[1], view[10], view[199]), (599.0, 596.0, 569.0, 2.0));
    assert_eq!(checkpoint.read_array("grid").unwrap().order, Order::Fortran);
    assert_eq!(checkpoint.read::<bool>("flags").unwrap(), [true, false, true, true]);
    let (saved, mut filled) = (grid.clone(), [0u8; 4]);
    grid.fill(-1.0);
    let mut run = open(&store);
    protect(&mut run, &mut grid, &mut filled, &mut empty);
    run.unprotect("grid").unwrap();
    assert_eq!(run.restore_protected().unwrap().unwrap().step, 7);
    assert_eq!(filled, flags);
    for (at, value) in grid.iter().enumerate() {
        let inside = at % 3 == 2;
        assert_eq!(*value, if inside { saved[at] } else { -1.0 }, "{at}");
    }
    // Impossible memory is refused without a look at it.
    let null = std::ptr::null_mut();
    let one = grid.as_mut_ptr().cast::<u8>();
    let huge = [i64::MAX, 1];
    let bad: [RawParts; 5] = [
        (&[3], None, null),
        (&[u64::MAX, 4], None, one),
        (&[1 << 62], None, one),
        (&[2, 2], Some(&huge), one),
        (&[2, 2], Some(&[1]), one),
    ];
    for (shape, strides, first) in bad {
        // SAFETY: it is refused.
        let refused = unsafe { run.protect_raw("bad", DType::F64, shape, strides, first) };
        assert_eq!(refused.map(drop).unwrap_err().kind(), ErrorKind::Usage, "{shape:?}");
    }
}

/// Shape, strides and address.
type RawParts<'a> = (&'a [u64], Option<&'a [i64]>, *mut u8);

/// Boxes of a global array on three ranks, restored on two; a mistake of one rank is an error of all.
#[test]
fn ranks_protect_their_boxes() {
    let store = memory();
    let run_on = |ranks: u32, step: u64| {
        let store = store.clone();
        let ends = ThreadRanks::new(ranks).run(move |comm: Arc<dyn Comm>| {
            let rank = u64::from(comm.rank().0);
            let options = Options::in_store(store.clone(), "r").ranks(comm.clone());
            let mut run = Run::open(options).unwrap();
            let (first, end) = (60 * rank / u64::from(ranks), 60 * (rank + 1) / u64::from(ranks));
            let grid = run.protect("grid", vec![0.0f64; (end - first) as usize]).unwrap();
            let grid = grid.describe(move |grid| grid.part_of(&[60], &[first]));
            let time = run.protect("time", 0.0f64).unwrap().describe(|time| time.same());
            let restored = run.restore_protected().unwrap();
            if let Some(restored) = &restored {
                assert_eq!(*time.read(), restored.step as f64);
                let expected = (first..end).map(|at| (at * 100 + restored.step) as f64);
                assert_eq!(*grid.read(), expected.collect::<Vec<f64>>());
            }
            grid.write().iter_mut().zip(first..).for_each(|(value, at)| {
                *value = (at * 100 + step) as f64;
            });
            *time.write() = step as f64;
            {
                let _held = (rank == 1).then(|| grid.write());
                let error = run.checkpoint_protected(step).map(drop).unwrap_err();
                assert!(error.to_string().contains("is in use"), "{error}");
            }
            run.checkpoint_protected(step).unwrap();
            run.finish().unwrap();
            restored.map(|restored| restored.step)
        });
        ends.into_iter().map(|end| end.done().unwrap()).collect::<Vec<Option<u64>>>()
    };
    assert_eq!(run_on(3, 4), [None; 3]);
    assert_eq!(run_on(2, 5), [Some(4); 2]);
    assert_eq!(run_on(3, 6), [Some(5); 3]);
}
