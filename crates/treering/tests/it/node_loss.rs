//! Nodes that protect each other are lost, one or several at a time, with everything on them: what was protected comes back.

use super::levels::{Cluster, all_done, checkpoint, memory, restore};
use proptest::prelude::*;
use std::collections::BTreeSet;
use std::sync::Arc;
use treering::testing::{Call, HookedStore};
use treering::{Comm, Error, ErrorKind, Library, Rank, Reduction, Redundancy, Result, Run, Store};

/// Two ranks on most of four nodes.
const ON: [usize; 7] = [0, 0, 1, 1, 2, 3, 3];
const SCHEMES: [Redundancy; 3] =
    [Redundancy::Partner, Redundancy::Xor { set: 2 }, Redundancy::Xor { set: 4 }];

fn cluster(redundancy: Redundancy) -> Cluster {
    Cluster { redundancy, ..Cluster::new(4, 4) }
}

fn parity_files(cluster: &Cluster) -> usize {
    (0..cluster.nodes.len()).map(|node| cluster.count(node, "parity")).sum()
}

/// Opens and restores; the step and the notes of the first rank.
fn reopen(cluster: &Cluster, on: &[usize]) -> (Option<u64>, String) {
    let all = cluster.clone();
    let ends = cluster.world(on).run(move |comm| {
        let mut run = Run::open(all.options(&comm)).unwrap();
        let restored = restore(&mut run, &*comm).unwrap();
        let notes = run.notes().join("; ");
        run.finish().unwrap();
        (restored, notes)
    });
    let mut ends = all_done(ends);
    assert!(ends.iter().all(|(step, _)| *step == ends[0].0));
    ends.swap_remove(0)
}

/// Step 3 is in the shared store and steps 4 to 6 are on the nodes. Any node is lost; the ranks come back on the same
/// nodes, one of them empty, on the others only, in another order, or on fewer.
#[test]
fn what_a_lost_node_had_is_made_again() {
    for scheme in SCHEMES {
        for lost in 0..4 {
            let left: Vec<usize> = (0..4).filter(|node| *node != lost).collect();
            let turned: Vec<usize> = left.iter().rev().flat_map(|node| [*node; 2]).collect();
            for on in [&ON[..], &left, &turned] {
                let mut cluster = cluster(scheme);
                assert_eq!(cluster.go_on(&ON, 7, false), None);
                assert_eq!(cluster.steps(), [3]);
                assert!(parity_files(&cluster) >= 4);
                cluster.nodes[lost] = memory();
                let (restored, notes) = reopen(&cluster, on);
                assert_eq!(restored, Some(6), "{scheme:?} without {lost} on {on:?}: {notes}");
                assert!(notes.contains("rebuilt from data that other nodes keep"), "{notes}");
                assert_eq!(cluster.steps(), [3, 6]);
                let used = on.iter().collect::<BTreeSet<_>>();
                assert!(used.iter().all(|node| cluster.count(**node, "parity") == 0));
            }
        }
    }
}

/// A checkpoint is protected at the next call; until then the one before it is what survives a node.
#[test]
fn the_newest_one_is_protected_by_the_next_call() {
    for scheme in SCHEMES {
        let mut cluster = cluster(scheme);
        let all = cluster.clone();
        all_done(cluster.world(&ON).run(move |comm| {
            let mut run = Run::open(all.options(&comm)).unwrap();
            for step in 0..7 {
                checkpoint(&mut run, &*comm, step).unwrap().staged().unwrap();
                comm.reduce(Reduction::Max, &mut [0]).unwrap();
            }
        }));
        cluster.nodes[2] = memory();
        let (restored, notes) = reopen(&cluster, &ON);
        assert_eq!(restored, Some(5), "{notes}");
        assert!(notes.contains("step 6 was on nodes only and is not complete"), "{notes}");
    }
}

/// Of a set with parity one node may be lost; of partners, one of the two. The notes name what is gone.
#[test]
fn what_was_lost_twice_is_named_and_the_shared_store_serves() {
    let cases = [
        (Redundancy::Xor { set: 4 }, [0, 1], false),
        (Redundancy::Partner, [0, 1], false),
        (Redundancy::Partner, [0, 2], true),
        // Sets of two: nodes 0 and 2, nodes 1 and 3.
        (Redundancy::Xor { set: 2 }, [0, 1], true),
        (Redundancy::Xor { set: 2 }, [1, 3], false),
    ];
    for (scheme, lost, survives) in cases {
        let mut cluster = cluster(scheme);
        cluster.go_on(&ON, 7, false);
        lost.iter().for_each(|node| cluster.nodes[*node] = memory());
        let (restored, notes) = reopen(&cluster, &ON);
        assert_eq!(restored, Some(if survives { 6 } else { 3 }), "{scheme:?} {lost:?}: {notes}");
        // Of a set of which nothing is left, nobody knows what it had; but others know which groups there were.
        let nothing = scheme != Redundancy::Xor { set: 4 };
        let named = nothing || notes.contains("cannot be rebuilt");
        let told = named && notes.contains("step 6 was on nodes only and is not complete");
        assert_eq!(told, !survives, "{notes}");
    }
}

/// Nodes 0 and 1 are on one switch, nodes 2 and 3 on another, and a switch takes both of its nodes along.
#[test]
fn a_whole_failure_domain_may_be_lost() {
    for scheme in [Redundancy::Partner, Redundancy::Xor { set: 2 }] {
        for lost in [[0, 1], [2, 3]] {
            let mut cluster = cluster(scheme);
            let all = cluster.clone();
            all_done(cluster.world(&ON).run(move |comm| {
                let switch = if ON[comm.rank().0 as usize] < 2 { "left" } else { "right" };
                let mut run = Run::open(all.options(&comm).domain(switch)).unwrap();
                for step in 0..7 {
                    checkpoint(&mut run, &*comm, step).unwrap();
                    run.make_redundant().unwrap();
                }
                assert!(!run.notes().join("; ").contains("failure domain"), "{:?}", run.notes());
            }));
            lost.iter().for_each(|node| cluster.nodes[*node] = memory());
            assert_eq!(reopen(&cluster, &ON).0, Some(6), "{scheme:?} {lost:?}");
        }
    }
}

/// A node dies with its ranks and its store, and the others go on from the newest checkpoint that was protected.
#[test]
fn survivors_go_on_from_what_was_protected() {
    for scheme in SCHEMES {
        for lost in 0..4 {
            let cluster = cluster(scheme);
            let stores = cluster.nodes.clone();
            let (all, world) = (cluster.clone(), cluster.world(&ON));
            let kills = world.clone();
            let ends = world.run(move |comm| {
                let mut run = Run::open(all.options(&comm)).unwrap();
                for step in 0..7 {
                    checkpoint(&mut run, &*comm, step).unwrap();
                    run.make_redundant().unwrap();
                }
                comm.reduce(Reduction::Max, &mut [0]).unwrap();
                let mut dead = (0..).zip(ON).filter(|(_, node)| *node == lost);
                if dead.any(|(rank, _)| comm.rank() == Rank(rank)) {
                    wipe(&*stores[lost]);
                    kills.kill(comm.rank());
                }
                let error = checkpoint(&mut run, &*comm, 7).err().expect("ranks have died");
                assert!(matches!(error.kind(), ErrorKind::Dead | ErrorKind::Revoked), "{error}");
                comm.revoke().unwrap();
                let mut smaller = comm.shrink().unwrap();
                // The second rank of the node may die while the others go on.
                while let Err(error) = run.go_on_with(smaller.clone()) {
                    assert!(
                        matches!(error.kind(), ErrorKind::Dead | ErrorKind::Revoked),
                        "{error}"
                    );
                    smaller.revoke().unwrap();
                    smaller = smaller.shrink().unwrap();
                }
                let restored = restore(&mut run, &*smaller).unwrap();
                for step in 10..15 {
                    checkpoint(&mut run, &*smaller, step).unwrap();
                    run.make_redundant().unwrap();
                }
                run.finish().unwrap();
                restored
            });
            let restored: Vec<Option<u64>> =
                ends.into_iter().filter_map(|end| end.done()).collect();
            let alive = ON.iter().filter(|node| **node != lost).count();
            assert_eq!(restored, vec![Some(6); alive], "{scheme:?}, node {lost} died");
            assert!(cluster.steps().ends_with(&[14]), "{:?}", cluster.steps());
        }
    }
}

/// A node is gone with all its files.
fn wipe(store: &dyn Store) {
    for folder in ["packs", "sections", "parity"] {
        let folder = format!("runs/r/{folder}");
        let items = store.list(&folder).unwrap();
        let keys: Vec<String> =
            items.iter().map(|item| format!("{folder}/{}", item.name)).collect();
        store.delete(&keys).unwrap();
    }
}

/// A node that has no room for what it keeps for others costs protection, and nothing else.
#[test]
fn a_node_without_room_for_parity_is_told_and_passed_by() {
    let cluster = cluster(Redundancy::Xor { set: 4 });
    let all = cluster.clone();
    let notes = all_done(cluster.world(&ON).run(move |comm| {
        let node = ON[comm.rank().0 as usize];
        let full = HookedStore::new(all.nodes[node].clone(), move |call| match call {
            Call::Put(key) if node == 1 && key.contains("/parity/") => {
                Err(Error::new(ErrorKind::Full, "no room"))
            }
            _ => Ok(()),
        });
        let mut run =
            Run::open(all.options_with(&comm, Arc::new(full), all.shared.clone())).unwrap();
        for step in 0..7 {
            checkpoint(&mut run, &*comm, step).unwrap().staged().unwrap();
            run.make_redundant().unwrap();
        }
        let notes = run.notes().to_vec();
        run.finish().unwrap();
        notes
    }));
    for of_rank in &notes {
        let told = of_rank.iter().filter(|note| note.contains("is not protected"));
        assert_eq!(told.count(), 1, "{of_rank:?}");
    }
    assert_eq!(cluster.steps(), [3, 6]);
}

/// A node that has room for two parity files goes on protecting: what is needed no more goes first.
#[test]
fn a_node_with_little_room_keeps_what_is_needed() {
    let mut cluster = Cluster { every: 100, ..cluster(Redundancy::Xor { set: 4 }) };
    let all = cluster.clone();
    let notes = all_done(cluster.world(&ON).run(move |comm| {
        let node = all.nodes[ON[comm.rank().0 as usize]].clone();
        let inner = node.clone();
        let small = HookedStore::new(node, move |call| match call {
            Call::Put(key) if key.contains("/parity/") => {
                match inner.list("runs/r/parity")?.len() {
                    0 | 1 => Ok(()),
                    _ => Err(Error::new(ErrorKind::Full, "no room")),
                }
            }
            _ => Ok(()),
        });
        let options = all.options_with(&comm, Arc::new(small), all.shared.clone()).growth(0.0);
        let mut run = Run::open(options).unwrap();
        for step in 0..8 {
            checkpoint(&mut run, &*comm, step).unwrap().staged().unwrap();
            run.make_redundant().unwrap();
        }
        run.notes().join("; ")
    }));
    assert!(notes.iter().all(|notes| !notes.contains("is not protected")), "{notes:?}");
    cluster.nodes[3] = memory();
    assert_eq!(reopen(&cluster, &ON).0, Some(7));
}

/// Bad arguments are one sentence, on one rank.
#[test]
fn nodes_that_cannot_protect_each_other_are_one_sentence() {
    let opened = |options: fn(&dyn Comm, treering::Options) -> treering::Options| {
        let cluster = Cluster::new(2, 1);
        let all = cluster.clone();
        all_done(cluster.world(&[0, 1]).run(move |comm| {
            let error = Run::open(options(&*comm, all.options(&comm))).err().unwrap();
            (error.is_repeated(), error.kind(), error.to_string())
        }))
    };
    let different = opened(|comm, options| match comm.rank() {
        Rank(0) => options.redundancy(Redundancy::Partner),
        _ => options,
    });
    let domains = opened(|_, options| options.redundancy(Redundancy::Xor { set: 1 }));
    for (ends, what) in [(different, "rank 1 for None"), (domains, "needs 2 nodes at least")] {
        assert_eq!(ends.iter().filter(|(repeated, ..)| !repeated).count(), 1, "{ends:?}");
        assert!(ends.iter().all(|(_, kind, _)| *kind == ErrorKind::Usage), "{ends:?}");
        assert!(ends.iter().all(|(.., text)| text.contains(what)), "{ends:?}");
    }
    let one = Cluster { redundancy: Redundancy::Partner, ..Cluster::new(1, 1) };
    let (_, notes) = reopen(&one, &[0, 0]);
    assert!(notes.contains("all ranks are on one node"), "{notes}");
    let bare = treering::Options::in_store(memory(), "r").redundancy(Redundancy::Partner);
    assert!(Run::open(bare).err().unwrap().to_string().contains("stores of nodes"));
}

/// After a job died and a node is lost, draining the others makes its part again.
#[test]
fn drained_nodes_make_a_lost_one_again() {
    for scheme in SCHEMES {
        for lost in 0..4 {
            let mut cluster = cluster(scheme);
            cluster.go_on(&ON, 7, false);
            cluster.nodes.remove(lost);
            let library = Library::of(cluster.shared.clone());
            let plan = library.plan_drain("r", &cluster.nodes).unwrap();
            assert!(plan.notes.iter().any(|note| note.contains("rebuilt first")));
            let done = library.drain("r", &cluster.nodes, &|_, _| {}).unwrap();
            assert!(done.completed.iter().any(|planned| planned.step == 6), "{done:?}");
            assert!(cluster.steps().ends_with(&[6]));
            let again = library.drain("r", &cluster.nodes, &|_, _| {}).unwrap();
            assert!(again.parts.is_empty(), "{again:?}");
        }
    }
}

/// One job of a random program.
#[derive(Clone, Debug)]
struct Job {
    on: Vec<usize>,
    steps: u64,
    /// The steps after which the ranks protect what they have, besides the checkpoints.
    protects: u64,
    growth: f64,
    lost: Option<usize>,
    waits: bool,
}

fn jobs(nodes: usize) -> impl Strategy<Value = Vec<Job>> {
    let job = (
        prop::collection::vec(0..nodes, 2..7),
        0u64..9,
        any::<u64>(),
        prop::sample::select(vec![0.0, 1.0, 1000.0]),
        prop::option::of(0..nodes),
        any::<bool>(),
    );
    let job = job.prop_map(|(on, steps, protects, growth, lost, waits)| Job {
        on,
        steps,
        protects,
        growth,
        lost,
        waits,
    });
    prop::collection::vec(job, 1..5)
}

/// Plays a job; the newest step that is protected, or in the shared store, as far as the ranks know.
fn play(cluster: &Cluster, job: &Job, expected: Option<u64>) -> Option<u64> {
    let (all, job_of, world) = (cluster.clone(), job.clone(), cluster.world(&job.on));
    let ends = all_done(world.run(move |comm| -> Result<Option<u64>> {
        let options = all.options(&comm).growth(job_of.growth);
        let mut run = Run::open(options)?;
        let restored = restore(&mut run, &*comm)?;
        assert!(restored >= expected, "{restored:?} instead of {expected:?}: {:?}", run.notes());
        let first = restored.map_or(0, |step| step + 1);
        let (mut safe, mut staged) = (restored, None);
        for step in first..first + job_of.steps {
            let save = checkpoint(&mut run, &*comm, step)?;
            // The vote has found the one before, if all had waited for it.
            safe = safe.max(staged);
            if job_of.waits {
                save.staged()?;
                comm.reduce(Reduction::Max, &mut [0])?;
                staged = Some(step);
            }
            if job_of.protects >> (step % 64) & 1 == 1 {
                run.make_redundant()?;
                safe = Some(step);
            }
        }
        assert!(run.failures().is_empty());
        Ok(safe)
    }));
    ends.into_iter().map(|end| end.unwrap()).max().flatten()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]
    /// Jobs on any of the nodes follow each other, and after each a node may be lost: the next one finds what was
    /// protected, exactly. Only the nodes of a job hold something, and they are all there for the next.
    #[test]
    fn random_jobs_that_lose_a_node_find_what_was_protected(
        jobs in jobs(4), every in 1u32..6, scheme in prop::sample::select(SCHEMES.to_vec()),
    ) {
        let mut cluster = Cluster { redundancy: scheme, ..Cluster::new(4, every) };
        let mut safe = None;
        let mut held: BTreeSet<usize> = BTreeSet::new();
        for mut job in jobs {
            // The job before is found if all nodes that have something of it have a rank.
            job.on.extend(held.difference(&job.on.iter().copied().collect()));
            let used: BTreeSet<usize> = job.on.iter().copied().collect();
            safe = play(&cluster, &job, safe);
            held = used.clone();
            if let Some(lost) = job.lost.filter(|lost| used.contains(lost)) {
                cluster.nodes[lost] = memory();
                if used.len() == 1 {
                    // Nobody else keeps anything: only the shared store is left.
                    safe = cluster.steps().last().copied();
                }
            }
        }
        let all: Vec<usize> = (0..4).collect();
        let (restored, notes) = reopen(&cluster, &all);
        prop_assert!(restored >= safe, "{:?} instead of {:?}: {}", restored, safe, notes);
    }
}
