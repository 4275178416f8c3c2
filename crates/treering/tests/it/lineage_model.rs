//! Any sequence of changes, saves, restores, reopenings and steps back restores exactly the state that a
//! plain map of copies remembers.

use proptest::prelude::*;
use std::collections::BTreeMap;
use std::sync::Arc;
use treering::{
    ChunkSize, Encoding, Library, MemoryStore, Method, Options, Rank, Run, Store, Variable,
    VariableKey, VariableMut,
};

#[derive(Clone, Debug)]
enum Action {
    /// Sets bytes of a variable from a small alphabet, so that content repeats.
    Write {
        variable: usize,
        at: usize,
        len: usize,
        value: u8,
    },
    /// Copies bytes within a variable, so that chunks move.
    Move {
        variable: usize,
        from: usize,
        to: usize,
        len: usize,
    },
    Resize {
        variable: usize,
        len: usize,
    },
    Vanish {
        variable: usize,
    },
    Save,
    Reopen,
    GoBack {
        index: usize,
    },
}

fn action() -> impl Strategy<Value = Action> {
    let variable = 0usize..3;
    prop_oneof![
        4 => (variable.clone(), 0usize..4000, 1usize..600, 0u8..4)
            .prop_map(|(variable, at, len, value)| Action::Write { variable, at, len, value }),
        2 => (variable.clone(), 0usize..4000, 0usize..4000, 1usize..1500)
            .prop_map(|(variable, from, to, len)| Action::Move { variable, from, to, len }),
        1 => (variable.clone(), prop_oneof![Just(0usize), Just(1), Just(32), Just(256), 0usize..6000])
            .prop_map(|(variable, len)| Action::Resize { variable, len }),
        1 => variable.prop_map(|variable| Action::Vanish { variable }),
        5 => Just(Action::Save),
        1 => Just(Action::Reopen),
        1 => (0usize..100).prop_map(|index| Action::GoBack { index }),
    ]
}

type State = BTreeMap<String, Vec<u8>>;

fn options(store: &Arc<dyn Store>, method: Method, chunk: u64, encoding: Encoding) -> Options {
    Options::in_store(store.clone(), "model")
        .method(method)
        .chunk(ChunkSize::new(chunk).unwrap())
        .encoding(encoding)
        .growth(1000.0)
}

fn restore(run: &mut Run, state: &mut State, step: Option<u64>) -> Option<u64> {
    let mut targets: Vec<VariableMut> =
        state.iter_mut().map(|(name, bytes)| VariableMut::new(name, bytes)).collect();
    match step {
        Some(step) => Some(run.restore_step(step, &mut targets).unwrap().step),
        None => run.restore(&mut targets).unwrap().map(|r| r.step),
    }
}

/// An empty state of the same names and lengths.
fn blank(state: &State) -> State {
    state.iter().map(|(name, bytes)| (name.clone(), vec![0xEE; bytes.len()])).collect()
}

fn play(method: Method, chunk: u64, encoding: Encoding, actions: &[Action]) {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let mut run = Run::open(options(&store, method, chunk, encoding)).unwrap();
    let mut now: State = BTreeMap::new();
    let mut saved: Vec<State> = Vec::new();
    for action in actions {
        match action.clone() {
            Action::Write { variable, at, len, value } => {
                let bytes = now.entry(format!("v{variable}")).or_insert_with(|| vec![0; 3000]);
                let end = bytes.len().min(at + len);
                if at < end {
                    bytes[at..end].fill(value);
                }
            }
            Action::Move { variable, from, to, len } => {
                if let Some(bytes) = now.get_mut(&format!("v{variable}")) {
                    let len = len.min(bytes.len().saturating_sub(from.max(to)));
                    if len > 0 {
                        bytes.copy_within(from..from + len, to);
                    }
                }
            }
            Action::Resize { variable, len } => {
                now.entry(format!("v{variable}")).or_default().resize(len, 9);
            }
            Action::Vanish { variable } => drop(now.remove(&format!("v{variable}"))),
            Action::Save => {
                let variables: Vec<Variable> =
                    now.iter().map(|(name, bytes)| Variable::new(name, bytes)).collect();
                run.checkpoint(saved.len() as u64, &variables).unwrap();
                saved.push(now.clone());
            }
            Action::Reopen => {
                run.finish().unwrap();
                run = Run::open(options(&store, method, chunk, encoding)).unwrap();
                if let Some(last) = saved.last() {
                    let mut state = blank(last);
                    restore(&mut run, &mut state, None);
                    now = last.clone();
                    assert_eq!(state, now);
                }
            }
            Action::GoBack { index } => {
                if !saved.is_empty() {
                    let step = index % saved.len();
                    let mut state = blank(&saved[step]);
                    restore(&mut run, &mut state, Some(step as u64));
                    assert_eq!(state, saved[step]);
                    now = state;
                }
            }
        }
    }
    run.finish().unwrap();
    let library = Library::of(store);
    for (step, state) in saved.iter().enumerate() {
        let checkpoint = library.checkpoint("model", Some(step as u64)).unwrap();
        assert_eq!(checkpoint.variables().count(), state.len());
        for (name, bytes) in state {
            assert_eq!(&checkpoint.read::<u8>(name).unwrap(), bytes);
            let (a, b) = (bytes.len() as u64 / 3, bytes.len() as u64 / 2);
            let range = checkpoint.read_range::<u8>(name, a..b).unwrap();
            assert_eq!(range, bytes[a as usize..b as usize]);
        }
    }
    if !saved.is_empty() {
        let report = library.verify(None, true, &|_, _| {}).unwrap();
        assert!(report.is_sound(), "{:?}", report.findings);
        for state in library.backwards("model").unwrap() {
            let state = state.unwrap();
            let expected = &saved[state.step as usize];
            assert_eq!(state.variables.len(), expected.len());
            for (name, bytes) in expected {
                assert_eq!(&state.variables[&VariableKey::new(Rank(0), name)], bytes);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]
    #[test]
    fn every_state_comes_back(
        actions in proptest::collection::vec(action(), 1..40),
        method in prop_oneof![
            1 => Just(Method::Full), 1 => Just(Method::Basic), 1 => Just(Method::List), 3 => Just(Method::Tree)
        ],
        chunk in prop_oneof![Just(32u64), Just(64), Just(512), Just(65536)],
        encoding in prop_oneof![Just(Encoding::Raw), Just(Encoding::Zstd(1))],
    ) {
        play(method, chunk, encoding, &actions);
    }
}
