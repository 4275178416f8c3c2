//! Checkpoints of many ranks on the stores of their nodes, and every n-th in the shared store: what stays, what
//! moves, and what a restart finds.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use treering::testing::{Call, HookedStore, Locks};
use treering::{
    ChunkSize, Comm, Encoding, End, Error, ErrorKind, Keep, Level, Library, MemoryStore, Options,
    Rank, Redundancy, Result, Run, Save, Store, ThreadRanks, Variable, VariableMut,
};

pub(super) const LONG: Duration = Duration::from_secs(120);
/// The length of the global array.
const LENGTH: u64 = 6000;

/// A store without locks: a rank that is killed as a thread never lets go of one.
pub(super) fn memory() -> Arc<dyn Store> {
    Arc::new(HookedStore::with_locks(Arc::new(MemoryStore::new()), Locks::None))
}

/// The stores of some nodes, and the shared one.
#[derive(Clone)]
pub(super) struct Cluster {
    pub(super) nodes: Vec<Arc<dyn Store>>,
    pub(super) shared: Arc<dyn Store>,
    pub(super) every: u32,
    pub(super) redundancy: Redundancy,
}

impl Cluster {
    pub(super) fn new(nodes: usize, every: u32) -> Cluster {
        let nodes = (0..nodes).map(|_| memory()).collect();
        Cluster { nodes, shared: memory(), every, redundancy: Redundancy::None }
    }

    /// A program of ranks that sit on these nodes.
    pub(super) fn world(&self, on: &[usize]) -> ThreadRanks {
        let names: Vec<String> = on.iter().map(|node| format!("node {node}")).collect();
        ThreadRanks::on_nodes(&names)
    }

    pub(super) fn options(&self, comm: &Arc<dyn Comm>) -> Options {
        let node: usize = comm.node().strip_prefix("node ").unwrap().parse().unwrap();
        self.options_with(comm, self.nodes[node].clone(), self.shared.clone())
    }

    pub(super) fn options_with(
        &self,
        comm: &Arc<dyn Comm>,
        node: Arc<dyn Store>,
        shared: Arc<dyn Store>,
    ) -> Options {
        let options = Options::in_store(shared, "r").node(node).shared_every(self.every);
        let options = options.ranks(comm.clone()).patience(LONG).ranks_per_pack(2);
        let options = options.redundancy(self.redundancy);
        options.chunk(ChunkSize::new(64).unwrap()).encoding(Encoding::Raw)
    }

    /// The steps that the shared store has, each of them sound.
    pub(super) fn steps(&self) -> Vec<u64> {
        let library = Library::of(self.shared.clone());
        let (all, trouble) = library.checkpoints("r").unwrap();
        assert!(trouble.is_empty(), "{trouble:?}");
        let report = library.verify(None, true, &|_, _| {}).unwrap();
        assert!(report.is_sound(), "{:?}", report.findings);
        all.iter().map(|info| info.step).collect()
    }

    pub(super) fn count(&self, node: usize, folder: &str) -> usize {
        self.nodes[node].list(&format!("runs/r/{folder}")).unwrap().len()
    }

    /// Runs ranks that go on from what is there, save some steps more, and end without a word, as if all were killed
    /// at once. Returns the restored state, which is the same on all ranks.
    pub(super) fn go_on(&self, on: &[usize], more: u64, finish: bool) -> Option<u64> {
        let cluster = self.clone();
        let ends = self.world(on).run(move |comm| {
            let mut run = Run::open(cluster.options(&comm)).unwrap();
            let restored = restore(&mut run, &*comm).unwrap();
            let first = restored.map_or(0, |step| step + 1);
            for step in first..first + more {
                checkpoint(&mut run, &*comm, step).unwrap().staged().unwrap();
                run.make_redundant().unwrap();
            }
            match finish {
                true => run.finish().unwrap(),
                false => drop(run),
            }
            restored
        });
        let restored = all_done(ends);
        assert!(restored.iter().all(|step| *step == restored[0]), "{restored:?}");
        restored[0]
    }
}

/// The elements of a rank: where they begin, and how many.
fn part(comm: &dyn Comm) -> (u64, u64) {
    let at = |rank: u32| LENGTH * u64::from(rank) / u64::from(comm.size());
    (at(comm.rank().0), at(comm.rank().0 + 1) - at(comm.rank().0))
}

/// Few elements of the global array change from step to step.
fn values(first: u64, count: u64, step: u64) -> Vec<f64> {
    let value = |at: u64| at as f64 + if at % 97 == step % 97 { step as f64 / 64.0 } else { 0.0 };
    (first..first + count).map(value).collect()
}

pub(super) fn checkpoint(run: &mut Run, comm: &dyn Comm, step: u64) -> Result<Save> {
    let (first, count) = part(comm);
    let values = values(first, count, step);
    run.checkpoint(step, &[Variable::new("x", &values).part_of(&[LENGTH], &[first])])
}

/// Restores the newest checkpoint and compares it with what was saved; its step.
pub(super) fn restore(run: &mut Run, comm: &dyn Comm) -> Result<Option<u64>> {
    let (first, count) = part(comm);
    let mut back = vec![0.0; count as usize];
    let target = VariableMut::new("x", &mut back).part_of(&[LENGTH], &[first]);
    let restored = run.restore(&mut [target])?;
    if let Some(restored) = &restored {
        assert!(back == values(first, count, restored.step), "step {}", restored.step);
    }
    Ok(restored.map(|restored| restored.step))
}

pub(super) fn all_done<T: std::fmt::Debug>(ends: Vec<End<T>>) -> Vec<T> {
    let shown = format!("{ends:?}");
    assert!(!shown.contains("Killed") && !shown.contains("Panicked"), "{shown}");
    ends.into_iter().filter_map(End::done).collect()
}

/// Two ranks on each of two nodes, and a third node with one.
const ON: [usize; 5] = [0, 0, 1, 1, 2];

/// A rank dies, and the others go on: with what their nodes hold together, or, if the rank was the only one of its node,
/// with the newest checkpoint of the shared store.
#[test]
fn survivors_go_on_from_what_their_nodes_hold() {
    for (victim, newest) in [(3, 4), (4, 2), (0, 4)] {
        let cluster = Cluster::new(3, 3);
        let (all, world) = (cluster.clone(), cluster.world(&ON));
        let kills = world.clone();
        let ends = world.run(move |comm| {
            let mut run = Run::open(all.options(&comm)).unwrap();
            for step in 0..5 {
                checkpoint(&mut run, &*comm, step).unwrap().staged().unwrap();
            }
            // All of them have staged the last one.
            comm.reduce(treering::Reduction::Max, &mut [0]).unwrap();
            if comm.rank() == Rank(victim) {
                kills.kill(comm.rank());
            }
            let error = checkpoint(&mut run, &*comm, 5).err().expect("a rank has died");
            assert!(matches!(error.kind(), ErrorKind::Dead | ErrorKind::Revoked), "{error}");
            comm.revoke().unwrap();
            let smaller = comm.shrink().unwrap();
            run.go_on_with(smaller.clone()).unwrap();
            let restored = restore(&mut run, &*smaller).unwrap();
            // Checkpoints that were lost with their node are reported.
            let failed: Vec<u64> = run.failures().iter().map(|(step, _)| *step).collect();
            assert_eq!(failed, if newest == 4 { vec![] } else { vec![3, 4] });
            for step in 10..15 {
                checkpoint(&mut run, &*smaller, step).unwrap().staged().unwrap();
            }
            run.finish().unwrap();
            restored
        });
        let restored: Vec<Option<u64>> = ends.into_iter().filter_map(End::done).collect();
        assert_eq!(restored, [Some(newest); 4], "rank {victim} died");
        let steps = cluster.steps();
        assert!(steps.contains(&2) && steps.contains(&newest) && steps.contains(&14), "{steps:?}");
        assert_eq!(cluster.go_on(&[0, 1], 0, true), Some(14));
    }
}

#[test]
fn every_third_goes_to_the_shared_store_and_finish_brings_the_last() {
    let cluster = Cluster::new(3, 3);
    let all = cluster.clone();
    let ends = cluster.world(&ON).run(move |comm| {
        let mut run = Run::open(all.options(&comm)).unwrap();
        let mut levels = Vec::new();
        for step in 0..7 {
            let save = checkpoint(&mut run, &*comm, step).unwrap();
            save.staged().unwrap();
            match save.level() {
                Level::Shared => save.durable().unwrap(),
                level => {
                    assert_eq!(level, Level::Node);
                    assert_eq!(save.durable().unwrap_err().kind(), ErrorKind::Usage);
                }
            }
            levels.push(save.level() == Level::Shared);
        }
        // The state in between is found by the program itself, too.
        assert_eq!(restore(&mut run, &*comm).unwrap(), Some(6));
        checkpoint(&mut run, &*comm, 7).unwrap();
        assert!(run.failures().is_empty());
        run.finish().unwrap();
        levels
    });
    for levels in all_done(ends) {
        assert_eq!(levels, [false, false, true, false, false, true, false]);
    }
    assert_eq!(cluster.steps(), [2, 5, 6, 7]);
    // The state is small, so packs of nodes move along: one epoch after the first shared checkpoint, which is whole.
    let (all, _) = Library::of(cluster.shared.clone()).checkpoints("r").unwrap();
    let epochs: BTreeSet<_> = all.iter().map(|info| info.epoch.sequence).collect();
    assert_eq!(epochs.len(), 1, "{epochs:?}");
    assert!(cluster.shared.list("runs/r/sections").unwrap().is_empty());
    assert_eq!(cluster.go_on(&ON, 0, true), Some(7));
}

#[test]
fn one_rank_can_ask_for_the_shared_store() {
    let cluster = Cluster::new(3, 100);
    let all = cluster.clone();
    let ends = cluster.world(&ON).run(move |comm| {
        let mut run = Run::open(all.options(&comm)).unwrap();
        for step in 0..4 {
            let (first, count) = part(&*comm);
            let values = values(first, count, step);
            let state = [Variable::new("x", &values).part_of(&[LENGTH], &[first])];
            let save = match step == 2 && comm.rank() == Rank(3) {
                true => run.checkpoint_shared(step, &state),
                false => run.checkpoint(step, &state),
            };
            let save = save.unwrap();
            assert_eq!(save.level() == Level::Shared, step == 2);
            if step == 2 {
                save.durable().unwrap();
            }
        }
        drop(run);
    });
    all_done(ends);
    assert_eq!(cluster.steps(), [2]);
}

#[test]
fn nodes_keep_the_two_newest_complete_ones() {
    let cluster = Cluster::new(3, 100);
    let all = cluster.clone();
    let ends = cluster.world(&ON).run(move |comm| {
        // Every third checkpoint or so is whole.
        let mut run = Run::open(all.options(&comm).growth(0.1)).unwrap();
        for step in 0..40 {
            checkpoint(&mut run, &*comm, step).unwrap().staged().unwrap();
            // When the last vote was, the one before was staged everywhere.
            comm.agree(true).unwrap();
        }
        assert!(run.failures().is_empty());
        drop(run);
    });
    all_done(ends);
    assert!(cluster.steps().is_empty());
    for node in 0..3 {
        let sections = cluster.count(node, "sections");
        assert!((2..=4).contains(&sections), "{sections}");
        let packs = cluster.count(node, "packs");
        assert!(packs < 36, "packs of epochs that are over are gone: {packs}");
    }
}

#[test]
fn a_full_node_is_passed_by() {
    let cluster = Cluster::new(3, 3);
    let all = cluster.clone();
    let ends = cluster.world(&ON).run(move |comm| {
        let node = if comm.rank().0 < 2 { 0 } else { 1 + usize::from(comm.rank().0 == 4) };
        let full: Arc<dyn Store> =
            Arc::new(HookedStore::new(all.nodes[node].clone(), move |call| match call {
                Call::Append(..) | Call::Commit(_) if node == 1 => {
                    Err(Error::new(ErrorKind::Full, "no space left"))
                }
                _ => Ok(()),
            }));
        let mut run = Run::open(all.options_with(&comm, full, all.shared.clone())).unwrap();
        for step in 0..7 {
            let save = checkpoint(&mut run, &*comm, step).unwrap();
            save.staged().unwrap();
            if save.level() == Level::Shared {
                save.durable().unwrap();
            }
        }
        assert!(run.failures().is_empty());
        run.finish().unwrap();
    });
    all_done(ends);
    assert_eq!(cluster.count(1, "packs") + cluster.count(1, "sections"), 0);
    assert_eq!(cluster.steps(), [2, 5, 6]);
    assert_eq!(cluster.go_on(&ON, 1, true), Some(6));
}

/// The program goes on while the shared store takes nothing; what was meant for it arrives when it does.
#[test]
fn a_slow_shared_store_holds_nobody_up() {
    let cluster = Cluster::new(3, 2);
    let closed = Arc::new((Mutex::new(false), std::sync::Condvar::new()));
    let all = cluster.clone();
    let ends = cluster.world(&ON).run(move |comm| {
        let gate = closed.clone();
        let slow: Arc<dyn Store> = Arc::new(HookedStore::new(all.shared.clone(), move |call| {
            if matches!(call, Call::Put(_) | Call::Commit(_)) {
                let held = gate.0.lock().unwrap();
                drop(gate.1.wait_while(held, |closed| *closed).unwrap());
            }
            Ok(())
        }));
        let node: usize = comm.node().strip_prefix("node ").unwrap().parse().unwrap();
        let mut run = Run::open(all.options_with(&comm, all.nodes[node].clone(), slow)).unwrap();
        comm.agree(true).unwrap();
        *closed.0.lock().unwrap() = true;
        comm.agree(true).unwrap();
        let saves: Vec<Save> =
            (0..6).map(|step| checkpoint(&mut run, &*comm, step).unwrap()).collect();
        saves.iter().for_each(|save| save.staged().unwrap());
        assert!(all.steps().is_empty());
        comm.agree(true).unwrap();
        *closed.0.lock().unwrap() = false;
        closed.1.notify_all();
        for save in saves.iter().filter(|save| save.level() == Level::Shared) {
            save.durable().unwrap();
        }
        run.finish().unwrap();
    });
    all_done(ends);
    assert_eq!(cluster.steps(), [1, 3, 5]);
}

#[test]
fn a_node_that_cannot_be_written_to_is_one_sentence() {
    let cluster = Cluster::new(3, 2);
    let all = cluster.clone();
    let ends = cluster.world(&ON).run(move |comm| {
        let node: usize = comm.node().strip_prefix("node ").unwrap().parse().unwrap();
        let store: Arc<dyn Store> =
            Arc::new(HookedStore::new(all.nodes[node].clone(), move |call| match call {
                Call::Put(_) if node == 1 => Err(Error::new(ErrorKind::Io, "permission denied")),
                _ => Ok(()),
            }));
        let error = Run::open(all.options_with(&comm, store, all.shared.clone())).err().unwrap();
        assert_eq!(error.kind(), ErrorKind::Io);
        error.to_string()
    });
    let texts = all_done(ends);
    assert!(texts.iter().all(|text| text == &texts[0]), "{texts:?}");
    assert!(texts[0].contains("store of a node cannot be written to"), "{}", texts[0]);
    // Only some ranks have one.
    let all = cluster.clone();
    let ends = cluster.world(&ON).run(move |comm| {
        let options = Options::in_store(all.shared.clone(), "r").ranks(comm.clone());
        let options = if comm.rank() == Rank(3) { all.options(&comm) } else { options };
        Run::open(options).err().unwrap().to_string()
    });
    let texts = all_done(ends);
    assert!(texts[0].contains("rank 3 has a store of its node and rank 0 has none"), "{texts:?}");
    let options = Options::in_store(cluster.shared.clone(), "r");
    assert!(Run::open(options.clone().shared_every(2)).is_err());
    assert!(Run::open(options.node(cluster.nodes[0].clone()).shared_every(0)).is_err());
}

/// The same with one rank: checkpoints that stay on the node leave it when a later one has replaced them.
#[test]
fn one_rank_brings_every_third_to_the_shared_store() {
    let (node, shared) = (memory(), memory());
    let options = || {
        let options = Options::in_store(shared.clone(), "r").node(node.clone()).shared_every(3);
        options.chunk(ChunkSize::new(64).unwrap()).encoding(Encoding::Raw).growth(0.1)
    };
    let mut run = Run::open(options()).unwrap();
    for step in 0..20 {
        let values = values(0, LENGTH, step);
        let save = run.checkpoint(step, &[Variable::new("x", &values)]).unwrap();
        save.staged().unwrap();
        assert_eq!(save.level() == Level::Shared, step % 3 == 2);
        if save.level() == Level::Shared {
            save.durable().unwrap();
        }
    }
    drop(run);
    let (nodes, redundancy) = (vec![node.clone()], Redundancy::None);
    let cluster = Cluster { nodes, shared: shared.clone(), every: 3, redundancy };
    assert_eq!(cluster.steps(), [2, 5, 8, 11, 14, 17]);
    assert!(cluster.count(0, "packs") < 10, "{}", cluster.count(0, "packs"));
    // Checkpoints that only the node has are brought forward.
    let mut run = Run::open(options()).unwrap();
    let mut back = vec![0.0; LENGTH as usize];
    let restored = run.restore(&mut [VariableMut::new("x", &mut back)]).unwrap().unwrap();
    assert!(restored.step == 19 && back == values(0, LENGTH, 19));
}

/// Everything ends while the newest steps are on the nodes only. The ranks come back on the same nodes, in another order,
/// on another number of ranks, or on one.
#[test]
fn what_only_nodes_hold_is_found_wherever_the_ranks_are() {
    for on in [&ON[..], &[2, 1, 0, 1, 0], &[1, 0, 2], &[2, 2, 0, 0, 1, 1, 1]] {
        let cluster = Cluster::new(3, 4);
        assert_eq!(cluster.go_on(&ON, 7, false), None);
        assert_eq!(cluster.steps(), [3]);
        assert_eq!(cluster.go_on(on, 2, false), Some(6), "{on:?}");
        assert_eq!(cluster.steps(), [3, 6]);
        // Twice: what was brought forward once is not brought again.
        assert_eq!(cluster.go_on(&ON, 0, false), Some(8));
        assert_eq!(cluster.go_on(&ON, 0, false), Some(8));
        assert_eq!(cluster.steps(), [3, 6, 8]);
    }
    let cluster = Cluster::new(1, 100);
    assert_eq!(cluster.go_on(&[0, 0, 0], 3, false), None);
    let options = Options::in_store(cluster.shared.clone(), "r").node(cluster.nodes[0].clone());
    let mut run = Run::open(options).unwrap();
    let mut back = vec![0.0; LENGTH as usize];
    let target = VariableMut::new("x", &mut back).part_of(&[LENGTH], &[0]);
    assert_eq!(run.restore(&mut [target]).unwrap().unwrap().step, 2);
    assert!(back == values(0, LENGTH, 2));
    drop(run);
    assert_eq!(cluster.steps(), [2]);
    assert_eq!(cluster.count(0, "sections"), 0);
}

/// A node is lost with everything on it: the newest step that the others hold together does not exist, and what the
/// shared store has serves.
#[test]
fn a_lost_node_costs_what_was_on_nodes_only() {
    for lost in 0..3 {
        let mut cluster = Cluster::new(3, 4);
        assert_eq!(cluster.go_on(&ON, 7, false), None);
        cluster.nodes[lost] = memory();
        let all = cluster.clone();
        let ends = cluster.world(&ON).run(move |comm| {
            let mut run = Run::open(all.options(&comm)).unwrap();
            let restored = restore(&mut run, &*comm).unwrap();
            checkpoint(&mut run, &*comm, 4).unwrap();
            let notes = run.notes().join("; ");
            run.finish().unwrap();
            (restored, notes)
        });
        for (restored, notes) in all_done(ends) {
            assert_eq!(restored, Some(3));
            assert!(notes.contains("step 6 was on nodes only and is not complete"), "{notes}");
        }
        assert_eq!(cluster.steps(), [3, 4]);
        // The node comes back with its past, which is over.
        assert_eq!(cluster.go_on(&ON, 1, true), Some(4));
        assert_eq!(cluster.steps(), [3, 4, 5]);
    }
}

/// A pack or a section on one node is damaged: the checkpoint before it serves, and the notes tell.
#[test]
fn a_damaged_part_on_a_node_gives_way_to_the_checkpoint_before() {
    for folder in ["packs", "sections"] {
        let cluster = Cluster::new(3, 4);
        assert_eq!(cluster.go_on(&ON, 7, false), None);
        let node = &cluster.nodes[1];
        let newest = node.list(&format!("runs/r/{folder}")).unwrap().pop().unwrap().name;
        let key = format!("runs/r/{folder}/{newest}");
        let blob = node.open(&key).unwrap();
        let mut bytes = vec![0; blob.size() as usize];
        blob.read_at(0, &mut bytes).unwrap();
        drop(blob);
        bytes[20] ^= 1;
        node.delete(std::slice::from_ref(&key)).unwrap();
        assert!(node.commit(&key, &bytes).unwrap());
        let all = cluster.clone();
        let ends = cluster.world(&ON).run(move |comm| {
            let mut run = Run::open(all.options(&comm)).unwrap();
            let restored = restore(&mut run, &*comm).unwrap();
            (restored, run.notes().join("; "))
        });
        for (restored, notes) in all_done(ends) {
            assert_eq!(restored, Some(5), "{folder}: {notes}");
            assert!(notes.contains("damaged") || notes.contains("useless"), "{notes}");
        }
        assert_eq!(cluster.steps(), [3, 5]);
    }
}

/// Ranks die at calls of their stores, the node's and the shared one, while they open, save and move: at every fourth call of
/// a leader that is not the first rank, and at some of the others. Whatever a rank was told is durable is there, nothing is
/// half, and what all nodes hold is found.
#[test]
fn a_rank_that_dies_at_any_call_of_its_stores_leaves_nothing_half() {
    let mut hits = 0;
    let schemes =
        [(Redundancy::None, 4), (Redundancy::Partner, 9), (Redundancy::Xor { set: 2 }, 11)];
    for (victim, (redundancy, pace)) in (0..3).flat_map(|v| schemes.map(|scheme| (v, scheme))) {
        for fuse in (0..).step_by(if victim == 2 { pace } else { 3 * pace + 1 }) {
            let cluster = Cluster { redundancy, ..Cluster::new(2, 2) };
            let on = [0, 0, 1];
            // Step 1 is in the shared store; step 2 is on the nodes only, and complete there.
            cluster.go_on(&on, 3, false);
            let world = cluster.world(&on);
            let left = Arc::new(AtomicI64::new(fuse));
            let durable = Arc::new(Mutex::new(BTreeSet::from([1])));
            let (kill, all, told, fuse_left) =
                (world.clone(), cluster.clone(), durable.clone(), left.clone());
            let ends = world.run(move |comm| {
                let rank = comm.rank();
                let watched = |inner: &Arc<dyn Store>| -> Arc<dyn Store> {
                    let (kill, left) = (kill.clone(), left.clone());
                    Arc::new(HookedStore::new(inner.clone(), move |_| {
                        if rank == Rank(victim) && left.fetch_sub(1, Ordering::SeqCst) == 0 {
                            kill.kill(rank);
                        }
                        kill.stop_if_dead(rank)
                    }))
                };
                let (node, shared) = (&all.nodes[on[rank.0 as usize]], watched(&all.shared));
                let options = all.options_with(&comm, watched(node), shared);
                let program = || -> Result<()> {
                    let mut run = Run::open(options.patience(Duration::from_millis(300)))?;
                    let first = restore(&mut run, &*comm)?.unwrap() + 1;
                    for step in first..first + 3 {
                        let save = checkpoint(&mut run, &*comm, step)?;
                        if save.level() == Level::Shared && save.durable().is_ok() {
                            told.lock().unwrap().insert(step);
                        }
                        run.make_redundant()?;
                    }
                    run.finish()
                };
                let ended = program();
                if ended.is_err() {
                    comm.revoke().unwrap();
                }
                ended
            });
            assert!(ends.iter().all(|end| !matches!(end, End::Panicked(_))), "{ends:?}");
            let found = cluster.go_on(&on, 1, true).unwrap();
            let listed: BTreeSet<u64> = cluster.steps().into_iter().collect();
            let durable = durable.lock().unwrap().clone();
            assert!(durable.is_subset(&listed), "{victim} {fuse}: {durable:?} {listed:?}");
            // Step 2 was complete on the nodes before anybody died, and no node was lost.
            assert!(found >= 2 && found >= *durable.last().unwrap(), "{victim} {fuse}: {found}");
            if fuse_left.load(Ordering::SeqCst) >= 0 {
                break;
            }
            hits += 1;
        }
    }
    assert!(hits > 12, "{hits}");
}

/// The ranks of the nodes that hold packs read them, in whatever order the nodes are; a bad copy gives way to the shared one.
#[test]
fn a_restart_reads_what_nodes_hold_there() {
    for (on, damage) in
        [(&ON[..], false), (&[1, 1, 2, 0, 0], false), (&[2, 0, 1], false), (&[1, 1, 2, 0, 0], true)]
    {
        let cluster = Cluster::new(3, 2);
        cluster.go_on(&ON, 4, true);
        if damage {
            let node = &cluster.nodes[1];
            let pack = node.list("runs/r/packs").unwrap().pop().unwrap().name;
            let key = format!("runs/r/packs/{pack}");
            node.delete(std::slice::from_ref(&key)).unwrap();
            assert!(node.commit(&key, b"no pack at all").unwrap());
        }
        let all = cluster.clone();
        let read = Arc::new(AtomicI64::new(0));
        let bytes = read.clone();
        let ends = cluster.world(on).run(move |comm| {
            let count = bytes.clone();
            let seen: Arc<dyn Store> =
                Arc::new(HookedStore::new(all.shared.clone(), move |call| {
                    if let Call::Read(key, len) = call
                        && key.ends_with(".pack")
                    {
                        count.fetch_add(len as i64, Ordering::SeqCst);
                    }
                    Ok(())
                }));
            let node: usize = comm.node().strip_prefix("node ").unwrap().parse().unwrap();
            let mut run =
                Run::open(all.options_with(&comm, all.nodes[node].clone(), seen)).unwrap();
            comm.agree(true).unwrap();
            bytes.store(0, Ordering::SeqCst);
            comm.agree(true).unwrap();
            assert_eq!(restore(&mut run, &*comm).unwrap(), Some(3));
            comm.agree(true).unwrap();
            let read = bytes.load(Ordering::SeqCst);
            checkpoint(&mut run, &*comm, 4).unwrap();
            run.finish().unwrap();
            read
        });
        for read in all_done(ends) {
            assert_eq!(read > 0, damage, "{on:?}: {read} bytes were read from the shared store");
        }
        assert_eq!(*cluster.steps().last().unwrap(), 4);
    }
}

/// Tools see the shared store as one of any run; what nodes still need is not removed.
#[test]
fn such_runs_are_pruned() {
    let cluster = Cluster::new(3, 2);
    cluster.go_on(&ON, 9, false);
    assert_eq!(cluster.steps(), [1, 3, 5, 7]);
    let keep = Keep::newest(1);
    Library::of(cluster.shared.clone()).prune("r", keep, &|_, _| {}).unwrap();
    assert_eq!(cluster.go_on(&[1, 0, 2], 1, false), Some(8));
    let steps = cluster.steps();
    assert!(steps.len() < 5 && steps.ends_with(&[7, 8]), "{steps:?}");
}

/// A request to stop reaches all ranks with the next checkpoint, which goes to the shared store, and is over then.
#[test]
fn a_request_to_stop_is_honoured_once() {
    let cluster = Cluster::new(3, 100);
    cluster.go_on(&ON, 2, false);
    let library = Library::of(cluster.shared.clone());
    assert!(library.halt("r").unwrap() && !library.halt("r").unwrap());
    assert!(library.cancel_halt("r").unwrap() && !library.cancel_halt("r").unwrap());
    assert!(library.halt("r").unwrap() && library.halt("no such run").is_err());
    let program = || {
        let all = cluster.clone();
        let ends = cluster.world(&ON).run(move |comm| {
            let mut run = Run::open(all.options(&comm)).unwrap();
            let first = restore(&mut run, &*comm).unwrap().unwrap() + 1;
            for step in first..first + 5 {
                let save = checkpoint(&mut run, &*comm, step).unwrap();
                assert_eq!(save.halts(), save.level() == Level::Shared);
                if save.halts() {
                    run.finish().unwrap();
                    return step;
                }
            }
            run.finish().unwrap();
            first + 100
        });
        all_done(ends)
    };
    assert!(program().iter().all(|step| *step == 2));
    assert!(program().iter().all(|step| *step == 103), "the request is gone");
    // With one rank.
    let mut run = Run::open(Options::in_store(cluster.shared.clone(), "alone")).unwrap();
    let save = |run: &mut Run, step| run.checkpoint(step, &[Variable::new("x", &[step])]).unwrap();
    assert!(!save(&mut run, 1).halts());
    assert!(library.halt("alone").unwrap());
    let halting = save(&mut run, 2);
    assert!(halting.halts());
    halting.durable().unwrap();
    assert!(!save(&mut run, 3).halts(), "it was honoured");
    run.finish().unwrap();
}

/// After a job died, its nodes are drained one by one, or all at once; twice does nothing more.
#[test]
fn drained_nodes_complete_what_they_hold_together() {
    for at_once in [true, false] {
        let cluster = Cluster::new(3, 4);
        cluster.go_on(&ON, 7, false);
        let library = Library::of(cluster.shared.clone());
        let plan = library.plan_drain("r", &cluster.nodes).unwrap();
        assert!(plan.incomplete.is_empty() && plan.bytes > 0);
        assert_eq!(plan.completed.last().unwrap().step, 6);
        assert_eq!(cluster.steps(), [3], "a plan changes nothing");
        let nodes: Vec<&[Arc<dyn Store>]> = match at_once {
            true => vec![&cluster.nodes],
            false => cluster.nodes.chunks(1).collect(),
        };
        for (number, node) in nodes.iter().enumerate() {
            let done = library.drain("r", node, &|_, _| {}).unwrap();
            let complete = number + 1 == nodes.len();
            assert_eq!(done.completed.is_empty(), !complete, "{done:?}");
            assert_eq!(cluster.steps().last(), Some(if complete { &6 } else { &3 }));
        }
        let again = library.drain("r", &cluster.nodes, &|_, _| {}).unwrap();
        assert!(again.parts.is_empty() && again.bytes == 0, "{again:?}");
        // The nodes are not needed any more.
        let fresh = Cluster { nodes: (0..3).map(|_| memory()).collect(), ..cluster.clone() };
        assert_eq!(fresh.go_on(&ON, 1, true), Some(6));
    }
    // Nodes that are drained without one of them leave an incomplete checkpoint, which nobody lists.
    let cluster = Cluster::new(3, 4);
    cluster.go_on(&ON, 7, false);
    let done = Library::of(cluster.shared.clone()).drain("r", &cluster.nodes[1..], &|_, _| {});
    let done = done.unwrap();
    assert!(done.completed.is_empty() && done.incomplete.iter().any(|planned| planned.step == 6));
    assert_eq!(cluster.steps(), [3]);
    // A program finds the rest.
    assert_eq!(cluster.go_on(&ON, 0, true), Some(6));
}

/// A drain that fails at any call, or dies there, is made good by the next.
#[test]
fn a_drain_that_fails_anywhere_can_be_repeated() {
    let cluster = Cluster::new(3, 4);
    cluster.go_on(&ON, 7, false);
    for fuse in 0.. {
        let left = AtomicI64::new(fuse);
        let broken = Arc::new(AtomicBool::new(false));
        let seen = broken.clone();
        let store: Arc<dyn Store> = Arc::new(HookedStore::new(cluster.shared.clone(), move |_| {
            match left.fetch_sub(1, Ordering::SeqCst) > 0 {
                true => Ok(()),
                false => {
                    seen.store(true, Ordering::SeqCst);
                    Err(Error::new(ErrorKind::Io, "the store is gone"))
                }
            }
        }));
        let done = Library::of(store).drain("r", &cluster.nodes, &|_, _| {});
        assert_eq!(done.is_ok(), !broken.load(Ordering::SeqCst));
        let steps = cluster.steps();
        assert!(
            steps.ends_with(&[3]) || steps.ends_with(&[5]) || steps.ends_with(&[6]),
            "{steps:?}"
        );
        if done.is_ok() {
            assert!(fuse > 10 && steps.ends_with(&[6]));
            break;
        }
    }
}
