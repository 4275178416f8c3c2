//! Generations: changes, asynchronous submits, memory.

use super::*;

#[test]
fn unchanged_ranges_are_shared_between_generations() {
    let ends = run(&ThreadRanks::new(4), |comm| {
        let rank = comm.rank().0;
        let mut store = ReplicaStore::new(comm, 2, small()).unwrap();
        submit_even(&mut store, 1, 400).unwrap();
        let before = store.memory().now - store.memory().spare;
        let held = store.current.as_ref().unwrap().held.clone();
        // Rank 1 changes range 10 as a whole and range 3 in part, rank 2 another part of range 3.
        let (whole, part, other) =
            (blocks(2, 40..44, 8), blocks(2, 12..13, 8), blocks(2, 14..16, 8));
        let changes: Vec<(u64, &[u8])> = match rank {
            1 => vec![(40, &whole), (12, &part)],
            2 => vec![(14, &other)],
            _ => Vec::new(),
        };
        store.submit_changed(2, &changes).unwrap();
        let mut expected = blocks(1, 0..400, 8);
        for changed in [40..44, 12..13, 14..16] {
            let at = changed.start as usize * 8..changed.end as usize * 8;
            expected[at].copy_from_slice(&blocks(2, changed, 8));
        }
        assert_eq!(store.load(&[0..400]).unwrap().bytes, expected);
        let now = &store.current.as_ref().unwrap().held;
        assert_eq!(now.len(), held.len());
        for (range, copy) in now {
            let same = Arc::ptr_eq(copy, &held[range]);
            assert_eq!(same, ![RangeId(10), RangeId(3)].contains(range), "{range:?}");
        }
        drop(held);
        store.settle().unwrap();
        let memory = store.memory();
        assert_eq!(memory.now - memory.spare, before);
    });
    assert_eq!(survivors(ends).len(), 4);
}

#[test]
fn an_asynchronous_submit_is_done_by_the_next_one_and_loads_see_the_old_one_until_then() {
    for delay in [0, 1] {
        let ranks = ThreadRanks::new(4).delayed(Duration::from_millis(delay), 7);
        let ends = run(&ranks, |comm| {
            let rank = comm.rank().0;
            let mut store = ReplicaStore::new(comm, 2, small()).unwrap();
            submit_even(&mut store, 1, 400).unwrap();
            let begin = |store: &mut ReplicaStore, tag| {
                let ids = share(rank, 4, 400);
                store.begin_submit(tag, Arc::new(blocks(tag, ids.clone(), 8)), ids.start).unwrap();
            };
            begin(&mut store, 2);
            let mut calls = 0;
            let completed = loop {
                assert_eq!(store.load(&[7..300]).unwrap().bytes, blocks(1, 7..300, 8));
                calls += 1;
                let progress = store.progress().unwrap();
                assert_eq!(progress.rounds_left == 0, progress.completed.is_some());
                if progress.completed.is_some() {
                    break progress.completed;
                }
            };
            assert_eq!(completed, store.newest().map(|info| info.number));
            // 800 bytes of a rank, twice, in pieces of 100.
            assert_eq!(calls, 17);
            assert_eq!(store.load(&[7..300]).unwrap().bytes, blocks(2, 7..300, 8));
            assert_eq!(
                store.progress().unwrap(),
                SubmitProgress { rounds_left: 0, completed: None }
            );
            begin(&mut store, 3);
            store.progress().unwrap();
            begin(&mut store, 4);
            assert_eq!(store.newest().unwrap().tag, 3);
            store.remake().unwrap();
            assert_eq!(store.newest().unwrap().tag, 4);
        });
        assert_eq!(survivors(ends).len(), 4);
    }
}

#[test]
fn memory_keeps_to_the_papers_formula_and_allocations_are_used_again() {
    let ends = run(&ThreadRanks::new(4), |comm| {
        let settings = ReplicaSettings {
            block_size: 64,
            range_blocks: 64,
            piece: 1 << 16,
            ..ReplicaSettings::default()
        };
        let mut store = ReplicaStore::new(comm, 2, settings).unwrap();
        let mut seen = Vec::new();
        for tag in 1..6 {
            submit_even(&mut store, tag, 64 * 256).unwrap();
            store.settle().unwrap();
            seen.push(store.memory());
        }
        (seen, store.memory())
    });
    for (seen, memory) in survivors(ends) {
        // The first submit prepares the memory of the second.
        assert!(seen[0].spare >= memory.paper_steady, "{:?}", seen[0]);
        // 1 MiB in all, two copies, four ranks.
        assert_eq!((memory.paper_steady, memory.paper_peak), (512 << 10, 1 << 20));
        for memory in &seen {
            assert_eq!(memory.now - memory.spare, memory.paper_steady);
        }
        assert_eq!(seen[1].spare, seen[4].spare);
        // Two generations, spare buffers, and one piece under way from each of the others.
        let bound = memory.paper_peak + memory.spare + 4 * (1 << 16);
        assert!(memory.peak <= bound, "{memory:?}");
    }
}

#[test]
fn data_that_is_submitted_once_takes_no_more_memory() {
    let ends = run(&ThreadRanks::new(4), |comm| {
        let settings = ReplicaSettings { repeated: false, ..small() };
        let mut store = ReplicaStore::new(comm, 2, settings).unwrap();
        submit_even(&mut store, 1, 400).unwrap();
        (store.memory().now, store.memory().paper_steady)
    });
    assert_eq!(survivors(ends), [(1600, 1600); 4]);
}

#[test]
fn a_submit_beyond_the_budget_is_refused_on_all_ranks_and_changes_nothing() {
    let ends = run(&ThreadRanks::new(4), |comm| {
        let settings = ReplicaSettings { budget: 4_000, ..small() };
        let mut store = ReplicaStore::new(comm, 2, settings).unwrap();
        // 400 blocks are 3,200 bytes and make 1,600 on each rank.
        submit_even(&mut store, 1, 400).unwrap();
        submit_even(&mut store, 2, 400).unwrap();
        let error = submit_even(&mut store, 3, 800).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Limit);
        assert!(error.to_string().contains("the budget is 4000"), "{error}");
        assert_eq!(store.load(&[0..400]).unwrap().bytes, blocks(2, 0..400, 8));
        submit_even(&mut store, 4, 400).unwrap();
        assert!(store.memory().peak <= 4_000, "{:?}", store.memory());
        error.to_string()
    });
    let texts = survivors(ends);
    assert!(texts.len() == 4 && texts.iter().all(|text| *text == texts[0]), "{texts:?}");
}

#[test]
fn changes_and_remakes_keep_to_the_budget_too() {
    let world = ThreadRanks::new(4);
    let kill = world.clone();
    let ends = run(&world, move |mut comm| {
        let settings = ReplicaSettings { budget: 2_000, ..small() };
        let mut store = ReplicaStore::new(comm.clone(), 2, settings).unwrap();
        submit_even(&mut store, 1, 400).unwrap();
        let limited = |result: Result<()>| assert_eq!(result.unwrap_err().kind(), ErrorKind::Limit);
        limited(submit_even(&mut store, 2, 400).map(drop));
        let own = share(comm.rank().0, 4, 400);
        let all = blocks(2, own.clone(), 8);
        limited(store.submit_changed(2, &[(own.start, &all)]).map(drop));
        store.submit_changed(2, &[(own.start, &all[..16])]).unwrap();
        if comm.rank() == Rank(3) {
            kill.kill(Rank(3));
        }
        store.settle().unwrap_err();
        recover(&mut store, &mut comm);
        // A third of the dead rank's 1,600 bytes for each survivor does not fit.
        limited(store.remake().map(drop));
        let loaded = store.load(&[0..400]).unwrap();
        assert!(loaded.lost.is_empty() && loaded.bad_copies == 0);
        assert!(store.memory().peak <= 2_000, "{:?}", store.memory());
    });
    assert_eq!(survivors(ends).len(), 3);
}
