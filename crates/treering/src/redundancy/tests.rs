//! Nodes with stores of their own lose some of them, at any moment.

use super::*;
use crate::array::{Rank, Sequence};
use crate::comm::{Comm, Mailbox, Message, Reduction, ThreadRanks};
use crate::error::{Error, ErrorKind, Result};
use crate::format::{ParityName, WriterId};
use crate::store::{MemoryStore, Store};
use crate::testing::{Call, HookedStore};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The objects of a node by their keys.
type Objects = BTreeMap<String, Vec<u8>>;
type Stores = Vec<MemoryStore>;

fn random_bytes(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut next = || {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 56) as u8
    };
    (0..len).map(|_| next()).collect()
}

/// Objects of these sizes for each node, in its store.
fn filled(sizes: &[Vec<usize>]) -> (Stores, Vec<Objects>) {
    let (mut stores, mut all) = (Vec::new(), Vec::new());
    for (node, sizes) in sizes.iter().enumerate() {
        let store = MemoryStore::new();
        let mut objects = Objects::new();
        for (number, size) in sizes.iter().enumerate() {
            let folder = ["packs", "sections"][number % 2];
            let key = format!("runs/r/{folder}/{node}-{number}");
            let bytes = random_bytes((node * 100 + number) as u64, *size);
            assert!(store.commit(&key, &bytes).unwrap());
            objects.insert(key, bytes);
        }
        stores.push(store);
        all.push(objects);
    }
    (stores, all)
}

/// A rank for each node, and a second one for every other node.
fn names(nodes: usize) -> Vec<String> {
    let first = (0..nodes).map(|node| format!("n{node}"));
    first.chain((0..nodes).step_by(2).map(|node| format!("n{node}"))).collect()
}

fn node_of(comm: &dyn Comm) -> usize {
    comm.node()[1..].parse().unwrap()
}

fn job(random: u64, objects: &[String]) -> ProtectJob<'_> {
    let writer = WriterId { opening: Sequence(1), nonce: 5 };
    ProtectJob { run: "r", writer, sequence: Sequence(7), random, objects, piece: 700 }
}

/// Protects the objects of all nodes; the ranks of a node name them in turn.
fn protect_all(
    ranks: &ThreadRanks,
    stores: &[Arc<dyn Store>],
    objects: &[Objects],
    scheme: Redundancy,
    wrap: impl Fn(Arc<dyn Comm>) -> Arc<dyn Comm> + Send + Sync + 'static,
) -> Vec<Option<Result<ProtectedBytes>>> {
    let (stores, objects) = (stores.to_vec(), objects.to_vec());
    let ends = ranks.run(move |comm| {
        let node = node_of(&*comm);
        let of_node =
            (0..comm.size() as usize).filter(|rank| names(objects.len())[*rank] == comm.node());
        let of_node: Vec<usize> = of_node.collect();
        let place_of_rank =
            of_node.iter().position(|rank| *rank == comm.rank().0 as usize).unwrap();
        let keys = objects[node].keys().skip(place_of_rank).step_by(of_node.len());
        let keys: Vec<String> = keys.cloned().collect();
        let ranks = NodeRanks::meet(wrap(comm), None, Redundancy::None)?;
        let placement = place(ranks.nodes.clone(), scheme)?;
        protect(&ranks, &placement, &*stores[node], &job(node as u64 + 10, &keys))
    });
    ends.into_iter().map(|end| end.done()).collect()
}

fn shared(stores: &[MemoryStore]) -> Vec<Arc<dyn Store>> {
    stores.iter().map(|store| Arc::new(store.clone()) as Arc<dyn Store>).collect()
}

/// Rebuilds everything on these nodes; all ranks report the same.
fn rebuild_all(stores: &[Arc<dyn Store>]) -> Rebuilt {
    let stores = stores.to_vec();
    let ends = ThreadRanks::on_nodes(&names(stores.len())).run(move |comm| {
        let store = stores[node_of(&*comm)].clone();
        let ranks = NodeRanks::meet(comm, None, Redundancy::None).unwrap();
        rebuild(&ranks, &*store, "r", &|key| !key.contains("unwanted"), 900).unwrap()
    });
    let mut all: Vec<Rebuilt> = ends.into_iter().map(|end| end.done().unwrap()).collect();
    let first = all.remove(0);
    all.iter().for_each(|other| assert_eq!(*other, first));
    first
}

fn contents(stores: &[Arc<dyn Store>]) -> BTreeMap<String, Vec<Vec<u8>>> {
    let mut all: BTreeMap<String, Vec<Vec<u8>>> = BTreeMap::new();
    for store in stores {
        for folder in ["runs/r/packs", "runs/r/sections"] {
            for item in store.list(folder).unwrap() {
                let key = format!("{folder}/{}", item.name);
                let blob = store.open(&key).unwrap();
                let mut bytes = vec![0; blob.size() as usize];
                blob.read_at(0, &mut bytes).unwrap();
                all.entry(key).or_default().push(bytes);
            }
        }
    }
    all
}

fn protected(sizes: &[Vec<usize>], scheme: Redundancy) -> (Vec<Arc<dyn Store>>, Vec<Objects>) {
    let (stores, objects) = filled(sizes);
    let stores = shared(&stores);
    let ranks = ThreadRanks::on_nodes(&names(sizes.len()));
    for end in protect_all(&ranks, &stores, &objects, scheme, |comm| comm) {
        end.unwrap().unwrap();
    }
    (stores, objects)
}

/// The sets that a scheme makes of nodes without common domains, as members and keepers.
fn sets(nodes: usize, scheme: Redundancy) -> Vec<(Vec<usize>, Vec<usize>)> {
    let node = |n: usize| {
        let (name, domain, rank) = (format!("n{n}"), format!("n{n}"), Rank(n as u32));
        super::placement::PlacedNode { name, domain, rank }
    };
    let placed = place((0..nodes).map(node).collect(), scheme).unwrap();
    placed.sets.into_iter().map(|set| (set.members, set.keepers)).collect()
}

/// The nodes whose objects cannot be rebuilt without some nodes.
fn lost_nodes(nodes: usize, scheme: Redundancy, gone: &BTreeSet<usize>) -> BTreeSet<usize> {
    let mut lost = BTreeSet::new();
    for (members, keepers) in sets(nodes, scheme) {
        let missing: Vec<usize> = members.iter().copied().filter(|m| gone.contains(m)).collect();
        let hopeless = match members.len() {
            1 => gone.contains(&keepers[0]),
            _ => missing.len() > 1,
        };
        lost.extend(missing.into_iter().filter(|_| hopeless));
    }
    lost
}

/// Loses nodes, restarts on the others in another order, and holds the outcome to what was there.
fn lose_and_rebuild(sizes: &[Vec<usize>], scheme: Redundancy, gone: &BTreeSet<usize>, turn: usize) {
    let (stores, objects) = protected(sizes, scheme);
    let left = (0..sizes.len()).filter(|node| !gone.contains(node));
    let mut left: Vec<Arc<dyn Store>> = left.map(|node| stores[node].clone()).collect();
    let count = left.len().max(1);
    left.rotate_left(turn % count);
    // A new node with an empty store.
    if turn.is_multiple_of(2) || left.is_empty() {
        left.push(Arc::new(MemoryStore::new()));
    }
    let rebuilt = rebuild_all(&left);
    let lost = lost_nodes(sizes.len(), scheme, gone);
    let keys = |nodes: Vec<&usize>| -> Vec<String> {
        let mut keys: Vec<String> =
            nodes.into_iter().flat_map(|n| objects[*n].keys().cloned()).collect();
        keys.sort();
        keys
    };
    // Of sets that are gone with all their keepers nobody knows anything.
    let unknown = |node: &usize| {
        let set = sets(sizes.len(), scheme).into_iter().find(|(members, _)| members.contains(node));
        set.is_some_and(|(_, keepers)| keepers.iter().all(|keeper| gone.contains(keeper)))
    };
    let named: Vec<String> = rebuilt.lost.iter().map(|lost| lost.key.clone()).collect();
    assert_eq!(named, keys(lost.iter().filter(|node| !unknown(node)).collect()), "{rebuilt:?}");
    assert_eq!(rebuilt.made, keys(gone.difference(&lost).collect()));
    assert!(rebuilt.notes.is_empty(), "{rebuilt:?}");
    let found = contents(&left);
    for (node, objects) in objects.iter().enumerate() {
        for (key, bytes) in objects {
            match lost.contains(&node) {
                true => assert!(!found.contains_key(key)),
                false => assert_eq!(found[key], std::slice::from_ref(bytes), "{key}"),
            }
        }
    }
    // Once more there is nothing to do.
    assert_eq!(rebuild_all(&left).made, Vec::<String>::new());
}

fn any_scheme() -> impl Strategy<Value = Redundancy> {
    prop_oneof![Just(Redundancy::Partner), (2u32..6).prop_map(|set| Redundancy::Xor { set })]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

    #[test]
    fn any_node_of_a_set_can_be_lost_and_what_more_is_lost_is_named(
        sizes in prop::collection::vec(prop::collection::vec(0usize..3000, 0..4), 2..8),
        scheme in any_scheme(), gone in prop::collection::btree_set(0usize..8, 1..3), turn in 0usize..8,
    ) {
        let gone: BTreeSet<usize> = gone.into_iter().map(|node| node % sizes.len()).collect();
        lose_and_rebuild(&sizes, scheme, &gone, turn);
    }
}

#[test]
fn every_node_can_be_lost_and_any_two_of_a_set_are_named() {
    let sizes = [vec![1000, 0, 5], vec![], vec![70_000], vec![1], vec![300, 300]];
    for scheme in [Redundancy::Partner, Redundancy::Xor { set: 5 }, Redundancy::Xor { set: 2 }] {
        for one in 0..5 {
            for two in one..5 {
                lose_and_rebuild(&sizes, scheme, &BTreeSet::from([one, two]), one);
            }
        }
    }
}

#[test]
fn parity_is_as_small_as_the_scheme_promises() {
    let sizes = vec![vec![60_000, 30_000]; 4];
    for (scheme, share) in [(Redundancy::Partner, 1), (Redundancy::Xor { set: 4 }, 3)] {
        let (stores, objects) = filled(&sizes);
        let ranks = ThreadRanks::on_nodes(&names(4));
        let ends = protect_all(&ranks, &shared(&stores), &objects, scheme, |comm| comm);
        for end in ends.iter().take(4) {
            let done = end.as_ref().unwrap().as_ref().unwrap();
            assert_eq!(*done, ProtectedBytes { objects: 2, bytes: 90_000, kept: 90_000 / share });
        }
    }
}

/// Changes a byte of an object.
fn damage(store: &dyn Store, key: &str, at: u64) {
    let blob = store.open(key).unwrap();
    let mut bytes = vec![0; blob.size() as usize];
    blob.read_at(0, &mut bytes).unwrap();
    bytes[at as usize] ^= 16;
    store.delete(&[key.to_string()]).unwrap();
    assert!(store.commit(key, &bytes).unwrap());
}

fn parity_of(store: &dyn Store) -> Vec<String> {
    let items = store.list(&ParityName::folder("r")).unwrap();
    items.iter().map(|item| format!("runs/r/parity/{}", item.name)).collect()
}

#[test]
fn damaged_parity_and_damaged_survivors_are_never_used() {
    let sizes = vec![vec![4000, 100]; 4];
    for scheme in [Redundancy::Partner, Redundancy::Xor { set: 4 }] {
        // A byte of the body, and one of the head.
        for from_end in [false, true] {
            let (stores, objects) = protected(&sizes, scheme);
            for store in &stores[1..] {
                let key = parity_of(&**store).remove(0);
                let size = store.open(&key).unwrap().size();
                damage(&**store, &key, if from_end { size - 30 } else { 40 });
            }
            let rebuilt = rebuild_all(&stores[1..]);
            assert!(rebuilt.made.is_empty());
            // A head that cannot be read says nothing, and that is said.
            match from_end {
                false => assert_eq!(rebuilt.lost.len(), 2, "{rebuilt:?}"),
                true => {
                    assert_eq!((rebuilt.notes.len(), rebuilt.lost.len()), (3, 0), "{rebuilt:?}")
                }
            }
            let found = contents(&stores[1..]);
            assert!(objects[0].keys().all(|key| !found.contains_key(key)));
        }
    }
    // A survivor that is damaged is lost with what needs it, and named.
    let (stores, objects) = protected(&sizes, Redundancy::Xor { set: 4 });
    damage(&*stores[2], "runs/r/packs/2-0", 7);
    let rebuilt = rebuild_all(&[stores[1].clone(), stores[2].clone(), stores[3].clone()]);
    let named: Vec<&str> = rebuilt.lost.iter().map(|lost| &lost.key[..]).collect();
    let expected: Vec<&str> = objects[0].keys().map(|key| &key[..]).collect();
    assert_eq!(named, [expected[0], "runs/r/packs/2-0", expected[1]], "{rebuilt:?}");
    assert!(rebuilt.lost[0].why.contains("runs/r/packs/2-0 of node n2"), "{rebuilt:?}");
    // With a partner, others' copies do not depend on it.
    let (stores, _) = protected(&sizes, Redundancy::Partner);
    damage(&*stores[2], "runs/r/packs/2-0", 7);
    let rebuilt = rebuild_all(&[stores[1].clone(), stores[2].clone(), stores[3].clone()]);
    assert_eq!((rebuilt.made.len(), rebuilt.lost.len()), (2, 0));
}

#[test]
fn what_is_not_wanted_is_not_rebuilt_and_cut_objects_are_rebuilt_elsewhere() {
    let (stores, objects) = filled(&[vec![100], vec![200], vec![300]]);
    stores[0].commit("runs/r/packs/unwanted", b"old").unwrap();
    let mut objects = objects;
    objects[0].insert("runs/r/packs/unwanted".into(), b"old".to_vec());
    let stores = shared(&stores);
    let ranks = ThreadRanks::on_nodes(&names(3));
    for end in protect_all(&ranks, &stores, &objects, Redundancy::Xor { set: 3 }, |comm| comm) {
        end.unwrap().unwrap();
    }
    assert_eq!(rebuild_all(&stores[1..]).made, ["runs/r/packs/0-0"]);
    // Another object stands in its place on the node itself.
    let key = "runs/r/packs/1-0";
    stores[1].delete(&[key.to_string()]).unwrap();
    assert!(stores[1].commit(key, b"cut").unwrap());
    assert_eq!(rebuild_all(&stores).made, [key]);
    assert_eq!(contents(&stores)[key].iter().filter(|bytes| **bytes == objects[1][key]).count(), 1);
}

#[test]
fn a_store_that_fails_is_reported_on_all_ranks_and_leaves_nothing_half() {
    for scheme in [Redundancy::Partner, Redundancy::Xor { set: 3 }] {
        for call in 0..12 {
            let (memory, objects) = filled(&[vec![900, 20], vec![3000], vec![500]]);
            let count = Arc::new(AtomicU64::new(0));
            let hook = move |made: Call| {
                let watched = !matches!(made, Call::List(_));
                match watched && count.fetch_add(1, Ordering::SeqCst) == call {
                    true => Err(Error::new(ErrorKind::Full, "there is no space left")),
                    false => Ok(()),
                }
            };
            let mut stores = shared(&memory);
            stores[1] = Arc::new(HookedStore::new(stores[1].clone(), hook));
            let ranks = ThreadRanks::on_nodes(&names(3));
            let ends = protect_all(&ranks, &stores, &objects, scheme, |comm| comm);
            let errors = ends.iter().filter(|end| end.as_ref().unwrap().is_err()).count();
            assert!(errors == 0 || errors == ends.len(), "{ends:?}");
            if errors > 0 {
                let own = ends[1].clone().unwrap().unwrap_err();
                assert_eq!(own.kind(), ErrorKind::Full, "{own}");
            }
            // Whatever there is can be used, and what cannot be rebuilt is not made up.
            let left = shared(&[memory[0].clone(), memory[2].clone()]);
            let rebuilt = rebuild_all(&left);
            assert!(rebuilt.notes.is_empty() && (errors > 0 || rebuilt.made.len() == 1));
            for (key, copies) in contents(&left) {
                let right = objects.iter().find_map(|objects| objects.get(&key)).unwrap();
                assert!(copies.iter().all(|bytes| bytes == right), "{key}");
            }
        }
    }
}

/// A communicator whose owner is killed before a call of it.
struct Mortal {
    inner: Arc<dyn Comm>,
    ranks: ThreadRanks,
    world: Rank,
    left: Arc<AtomicU64>,
}

impl Mortal {
    fn count(&self) {
        if self.left.fetch_sub(1, Ordering::SeqCst) == 1 {
            self.ranks.kill(self.world);
        }
    }

    fn wrap(&self, inner: Arc<dyn Comm>) -> Arc<dyn Comm> {
        let (ranks, world, left) = (self.ranks.clone(), self.world, self.left.clone());
        Arc::new(Mortal { inner, ranks, world, left })
    }
}

impl Comm for Mortal {
    fn rank(&self) -> Rank {
        self.inner.rank()
    }
    fn size(&self) -> u32 {
        self.inner.size()
    }
    fn node(&self) -> &str {
        self.inner.node()
    }
    fn send(&self, to: Rank, bytes: &[u8]) -> Result<()> {
        self.count();
        self.inner.send(to, bytes)
    }
    fn receive(&self, from: Option<Rank>, patience: Duration) -> Result<Option<Message>> {
        self.count();
        self.inner.receive(from, patience)
    }
    fn broadcast(&self, root: Rank, bytes: &mut Vec<u8>) -> Result<()> {
        self.count();
        self.inner.broadcast(root, bytes)
    }
    fn gather(&self, root: Rank, bytes: &[u8]) -> Result<Vec<Vec<u8>>> {
        self.count();
        self.inner.gather(root, bytes)
    }
    fn reduce(&self, reduction: Reduction, values: &mut [u64]) -> Result<()> {
        self.count();
        self.inner.reduce(reduction, values)
    }
    fn exchange_mail(&self, mail: &mut dyn Mailbox) -> Result<()> {
        self.count();
        self.inner.exchange_mail(mail)
    }
    fn agree(&self, yes: bool) -> Result<bool> {
        self.count();
        self.inner.agree(yes)
    }
    fn split(&self, color: u32, key: u32) -> Result<Arc<dyn Comm>> {
        self.count();
        Ok(self.wrap(self.inner.split(color, key)?))
    }
    fn dead(&self) -> Result<Vec<Rank>> {
        self.inner.dead()
    }
    fn revoke(&self) -> Result<()> {
        self.inner.revoke()
    }
    fn shrink(&self) -> Result<Arc<dyn Comm>> {
        Ok(self.wrap(self.inner.shrink()?))
    }
    fn survives(&self) -> bool {
        self.inner.survives()
    }
}

/// A rank of these is killed before its n-th call; how to wrap the communicators.
fn mortal(
    ranks: &ThreadRanks,
    victim: Rank,
    call: u64,
) -> impl Fn(Arc<dyn Comm>) -> Arc<dyn Comm> + use<> {
    let ranks = ranks.clone();
    move |inner| {
        let left = if inner.rank() == victim { call } else { u64::MAX };
        let world = inner.rank();
        Arc::new(Mortal {
            inner,
            ranks: ranks.clone(),
            world,
            left: Arc::new(AtomicU64::new(left)),
        })
    }
}

#[test]
fn a_rank_that_dies_while_protecting_leaves_nothing_half() {
    let sizes = [vec![900, 20], vec![3000], vec![500]];
    for scheme in [Redundancy::Partner, Redundancy::Xor { set: 3 }] {
        // The first rank of each node, and one that is not.
        for victim in 0..4 {
            for call in 1.. {
                let (memory, objects) = filled(&sizes);
                let ranks = ThreadRanks::on_nodes(&names(3));
                let wrap = mortal(&ranks, Rank(victim), call);
                let ends = protect_all(&ranks, &shared(&memory), &objects, scheme, wrap);
                let died = ends[victim as usize].is_none();
                let mut fine = Vec::new();
                for end in ends.iter().flatten() {
                    if let Err(error) = end {
                        let kinds = [ErrorKind::Dead, ErrorKind::Revoked, ErrorKind::Lost];
                        assert!(kinds.contains(&error.kind()), "{error}");
                    }
                    fine.push(end.is_ok());
                }
                assert!(fine.iter().all(|one| *one == fine[0]), "{ends:?}");
                // The node of the victim is gone with its store.
                let lost = node_of_rank(victim);
                let left: Vec<MemoryStore> =
                    (0..3).filter(|node| *node != lost).map(|node| memory[node].clone()).collect();
                let left = shared(&left);
                let rebuilt = rebuild_all(&left);
                assert!(rebuilt.notes.is_empty());
                if fine[0] {
                    assert_eq!((rebuilt.made.len(), rebuilt.lost.len()), (sizes[lost].len(), 0));
                }
                for (key, copies) in contents(&left) {
                    let right = objects.iter().find_map(|objects| objects.get(&key)).unwrap();
                    assert!(copies.iter().all(|bytes| bytes == right), "{key}");
                }
                if !died {
                    assert!(call > 5 && fine[0]);
                    break;
                }
            }
        }
    }
}

fn node_of_rank(rank: u32) -> usize {
    names(3)[rank as usize][1..].parse().unwrap()
}

#[test]
fn a_rank_that_dies_while_rebuilding_leaves_nothing_half() {
    let sizes = [vec![900, 20], vec![3000], vec![500], vec![10]];
    for scheme in [Redundancy::Partner, Redundancy::Xor { set: 4 }] {
        for victim in 0..4 {
            for call in 1.. {
                let (stores, objects) = protected(&sizes, scheme);
                let left = stores[1..].to_vec();
                let ranks = ThreadRanks::on_nodes(&names(3));
                let (wrap, of_ranks) = (mortal(&ranks, Rank(victim), call), left.clone());
                let ends = ranks.run(move |comm| {
                    let store = of_ranks[node_of(&*comm)].clone();
                    let ranks = NodeRanks::meet(wrap(comm), None, Redundancy::None)?;
                    rebuild(&ranks, &*store, "r", &|_| true, 900)
                });
                let died = matches!(ends[victim as usize], crate::comm::End::Killed);
                // Whatever has been made is right, and those that are left make the rest.
                let rebuilt = rebuild_all(&left);
                assert!(rebuilt.lost.is_empty() && rebuilt.notes.is_empty(), "{rebuilt:?}");
                let found = contents(&left);
                for (key, bytes) in objects.iter().flatten() {
                    assert_eq!(found[key], std::slice::from_ref(bytes), "{key}");
                }
                if !died {
                    assert!(call > 5);
                    break;
                }
            }
        }
    }
}
