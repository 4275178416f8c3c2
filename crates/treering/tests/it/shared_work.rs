//! Several ranks that share the work of comparing or verifying find what one rank finds; or all of them get an error.

use proptest::prelude::*;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use treering::testing::{Call, HookedStore};
use treering::{
    Bound, CompareSettings, DifferenceList, End, Error, ErrorKind, Library, MemoryStore, Options,
    Outcome, Rank, Result, Run, Side, Store, StoredSide, ThreadRanks, Timings, Variable, compare,
};

/// The content of two runs.
#[derive(Clone, Debug)]
struct Content {
    /// The lengths of their variables.
    lengths: Vec<usize>,
    /// Values of the second run that differ: step, variable, place.
    changes: Vec<(u64, usize, usize)>,
    trees: bool,
    /// A byte that is changed: which file, and where in it.
    damage: Option<(usize, usize)>,
}

fn any_content() -> impl Strategy<Value = Content> {
    let lengths = prop::collection::vec(prop_oneof![0usize..2000, 60_000usize..200_000], 1..5);
    let changes = prop::collection::vec((0u64..3, 0usize..5, any::<usize>()), 0..4);
    let damage = prop::option::of((any::<usize>(), any::<usize>()));
    (lengths, changes, any::<bool>(), damage)
        .prop_map(|(lengths, changes, trees, damage)| Content { lengths, changes, trees, damage })
}

fn write(store: &Arc<dyn Store>, run: &str, content: &Content, changed: bool) {
    let mut options = Options::in_store(store.clone(), run);
    if content.trees {
        options = options.bound("*", Bound::abs(1e-3));
    }
    let mut run = Run::open(options).unwrap();
    for step in 0..3 {
        let values = |variable: usize, length: usize| -> Vec<f32> {
            let value = |i: usize| ((i * 7 + variable) % 1000) as f32 + step as f32;
            let mut values: Vec<f32> = (0..length).map(value).collect();
            for (_, _, at) in content
                .changes
                .iter()
                .filter(|(s, v, _)| changed && length > 0 && (*s, *v) == (step, variable))
            {
                values[at % length] += 1.0 + (at % 5) as f32 / 3.0;
            }
            values
        };
        let arrays: Vec<(String, Vec<f32>)> = content
            .lengths
            .iter()
            .enumerate()
            .map(|(at, length)| (format!("v{at}"), values(at, *length)))
            .collect();
        let variables: Vec<Variable> =
            arrays.iter().map(|(name, values)| Variable::new(name, values)).collect();
        run.checkpoint(step, &variables).unwrap();
    }
    run.finish().unwrap();
}

fn made(content: &Content) -> Arc<dyn Store> {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    write(&store, "a", content, false);
    write(&store, "b", content, true);
    if let Some((file, place)) = content.damage {
        let folders = ["runs/a/packs", "runs/b/packs", "runs/b/log"];
        let keys = folders.iter().flat_map(|folder| {
            let items = store.list(folder).unwrap();
            items.into_iter().map(move |item| format!("{folder}/{}", item.name))
        });
        let keys: Vec<String> = keys.collect();
        let key = &keys[file % keys.len()];
        let blob = store.open(key).unwrap();
        let mut bytes = vec![0; blob.size() as usize];
        blob.read_at(0, &mut bytes).unwrap();
        let at = place % bytes.len();
        bytes[at] ^= 4;
        store.delete(std::slice::from_ref(key)).unwrap();
        assert!(store.commit(key, &bytes).unwrap());
    }
    store
}

fn open(store: &Arc<dyn Store>) -> Result<[StoredSide; 2]> {
    let side = |run: &str| StoredSide::open(store.clone(), run, None);
    Ok([side("a")?, side("b")?])
}

/// Everything but the time that it took; with `first`, how much is read ahead is left open.
fn shown(outcome: Result<Outcome>, first: bool) -> std::result::Result<String, String> {
    let mut outcome = outcome.map_err(|error| error.to_string())?;
    outcome.timings = Timings::default();
    if first {
        outcome.bytes_read = 0;
    }
    Ok(serde_json::to_string_pretty(&outcome).unwrap())
}

fn sides(opened: &Result<[StoredSide; 2]>) -> Result<(&dyn Side, &dyn Side)> {
    match opened {
        Ok([a, b]) => Ok((a, b)),
        Err(error) => Err(error.clone()),
    }
}

fn compared(store: &Arc<dyn Store>, settings: &CompareSettings) -> Result<Outcome> {
    let [a, b] = open(store)?;
    compare(&a, &b, settings, None, &|_, _| {})
}

fn all<T>(ends: Vec<End<T>>) -> Vec<T> {
    ends.into_iter().map(|end| end.done().expect("it lives")).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, ..ProptestConfig::default() })]

    #[test]
    fn ranks_find_what_one_rank_finds(content in any_content(), ranks in 2u32..6, first: bool, bound in 0usize..3) {
        let store = made(&content);
        let bound = [None, Some(Bound::abs(1e-3)), Some(Bound::EQUAL)][bound];
        let settings = CompareSettings { bound, first, pictures: true, ..CompareSettings::default() };
        let alone = shown(compared(&store, &settings), first);
        let (shared, with) = (store.clone(), settings.clone());
        let ends = ThreadRanks::new(ranks).run(move |comm| {
            let opened = open(&shared);
            let outcome = Outcome::of_ranks(&*comm, sides(&opened), &with, None, &|_, _| {});
            shown(outcome, first)
        });
        for found in all(ends) {
            prop_assert_eq!(&found, &alone);
        }
        for deep in [false, true] {
            let alone = Library::of(store.clone()).verify(None, deep, &|_, _| {}).unwrap();
            prop_assert!(content.damage.is_some() || alone.is_sound() && alone.checkpoints == 6);
            let shared = store.clone();
            let ends = ThreadRanks::new(ranks).run(move |comm| {
                let library = Ok(Library::of(shared.clone()));
                Library::verify_with_ranks(&*comm, library, None, deep, &|_, _| {}).unwrap()
            });
            for report in all(ends) {
                prop_assert_eq!(&report, &alone);
            }
        }
    }
}

fn two_runs() -> Arc<dyn Store> {
    let changes = vec![(1, 0, 77), (1, 2, 150_000), (2, 1, 9)];
    let lengths = vec![100_000, 300, 170_000];
    made(&Content { lengths, changes, trees: false, damage: None })
}

#[test]
fn the_list_of_differences_is_that_of_one_rank() {
    let (store, folder) = (two_runs(), tempfile::tempdir().unwrap());
    let settings = CompareSettings::within(Bound::EQUAL);
    let path = |name: &str| folder.path().join(name);
    let [a, b] = open(&store).unwrap();
    let mut list = DifferenceList::create(&path("one.jsonl")).unwrap();
    compare(&a, &b, &settings, Some(&mut list), &|_, _| {}).unwrap();
    assert_eq!(list.finish().unwrap(), 3);
    let several = path("several.jsonl");
    let ends = ThreadRanks::new(3).run(move |comm| {
        let opened = open(&store);
        let create = || DifferenceList::create(&several).unwrap();
        let mut list = (comm.rank() == Rank(0)).then(create);
        let settings = CompareSettings::within(Bound::EQUAL);
        Outcome::of_ranks(&*comm, sides(&opened), &settings, list.as_mut(), &|_, _| {}).unwrap();
        list.map(|list| list.finish().unwrap())
    });
    assert_eq!(all(ends), [Some(3), None, None]);
    let read = |name: &str| std::fs::read(path(name)).unwrap();
    assert_eq!(read("one.jsonl"), read("several.jsonl"));
}

#[test]
fn a_rank_that_cannot_take_part_makes_trouble_of_all() {
    for failing in 0..3 {
        let store = two_runs();
        let ends = ThreadRanks::new(3).run(move |comm| {
            let fails = comm.rank() == Rank(failing);
            let refused = || Error::new(ErrorKind::Io, "the disk is on fire");
            let opened = if fails { Err(refused()) } else { open(&store) };
            let settings = CompareSettings::default();
            let compared = Outcome::of_ranks(&*comm, sides(&opened), &settings, None, &|_, _| {});
            let library = if fails { Err(refused()) } else { Ok(Library::of(store.clone())) };
            let verified = Library::verify_with_ranks(&*comm, library, None, true, &|_, _| {});
            [compared.unwrap_err().to_string(), verified.unwrap_err().to_string()]
        });
        for texts in all(ends) {
            assert!(texts.iter().all(|text| text.contains("the disk is on fire")), "{texts:?}");
        }
    }
}

/// A rank dies at some call of its store: the others say so, or had the whole answer by then.
#[test]
fn a_rank_that_dies_is_never_taken_for_equal() {
    let content =
        Content { lengths: vec![100_000, 300], changes: Vec::new(), trees: false, damage: None };
    let whole = made(&content);
    let mut troubled = [0; 2];
    for call in [0, 1, 2, 5, 10, 20, 40, 60] {
        for verify in [false, true] {
            let ranks = ThreadRanks::new(3);
            let (kill, store) = (ranks.clone(), whole.clone());
            let ends = ranks.run(move |comm| {
                let (rank, kill) = (comm.rank(), kill.clone());
                let calls = AtomicU64::new(0);
                let hook = move |_: Call| {
                    if rank == Rank(1) && calls.fetch_add(1, Ordering::SeqCst) == call {
                        kill.kill(rank);
                    }
                    kill.stop_if_dead(rank)
                };
                let own: Arc<dyn Store> = Arc::new(HookedStore::new(store.clone(), hook));
                match verify {
                    true => {
                        let library = Ok(Library::of(own));
                        Library::verify_with_ranks(&*comm, library, None, true, &|_, _| {})
                            .map(|report| report.is_sound())
                    }
                    false => {
                        let (opened, settings) = (open(&own), CompareSettings::default());
                        Outcome::of_ranks(&*comm, sides(&opened), &settings, None, &|_, _| {})
                            .map(|outcome| outcome.equal)
                    }
                }
            });
            let died = matches!(ends[1], End::Killed);
            for end in ends.into_iter().filter_map(End::done) {
                match end {
                    Ok(right) => assert!(right && !died),
                    Err(error) => {
                        let kinds = [ErrorKind::Dead, ErrorKind::Revoked];
                        assert!(died && kinds.contains(&error.kind()), "{error}");
                    }
                }
            }
            troubled[usize::from(verify)] += u32::from(died);
        }
    }
    assert!(troubled.iter().all(|times| *times > 4), "{troubled:?}");
}
