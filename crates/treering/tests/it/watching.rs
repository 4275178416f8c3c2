//! Reports of a run at work: spans and events of `tracing`, and the progress of restores.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::sync::{Arc, Mutex};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};
use treering::testing::{Call, HookedStore};
use treering::{
    Encoding, Error, ErrorKind, MemoryStore, Options, Run, Store, Variable, VariableMut,
};

/// The fields of a span or an event, as texts.
#[derive(Default)]
struct Fields(BTreeMap<&'static str, String>);

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.0.insert(field.name(), format!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.insert(field.name(), value.to_string());
    }
}

/// The reports of one run: spans by their names, and events.
#[derive(Default)]
struct Heard {
    spans: BTreeSet<&'static str>,
    events: Vec<(Level, BTreeMap<&'static str, String>)>,
}

/// Listens to one run. All threads of the process have the same listener.
#[derive(Clone)]
struct Listener(Arc<Mutex<Heard>>, &'static str);

impl Subscriber for Listener {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "treering"
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        let mut fields = Fields::default();
        span.record(&mut fields);
        if fields.0.get("run").is_some_and(|run| run == self.1) {
            self.0.lock().unwrap().spans.insert(span.metadata().name());
        }
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut fields = Fields::default();
        event.record(&mut fields);
        if fields.0.get("run").is_some_and(|run| run == self.1) {
            self.0.lock().unwrap().events.push((*event.metadata().level(), fields.0));
        }
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

#[test]
fn each_piece_of_work_is_a_span_and_an_event() {
    let heard = Listener(Arc::default(), "watched");
    tracing::subscriber::set_global_default(heard.clone()).unwrap();
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let node: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let options = || Options::in_store(store.clone(), "watched").growth(0.0).keep(1, None);
    let mut run = Run::open(options().node(node.clone())).unwrap();
    let mut data = vec![7u8; 5000];
    for step in 0..5u8 {
        data.fill(step);
        run.checkpoint(u64::from(step), &[Variable::new("x", &data)]).unwrap();
    }
    run.finish().unwrap();
    let mut run = Run::open(options()).unwrap();
    run.restore(&mut [VariableMut::new("x", &mut data)]).unwrap();
    assert!(run.restore_step(77, &mut [VariableMut::new("x", &mut data)]).is_err());
    drop(run);
    let heard = heard.0.lock().unwrap();
    assert_eq!(heard.spans, ["capture", "move", "prune", "restore", "save"].into());
    let of = |name: &str| {
        let named = heard.events.iter().filter(|(_, fields)| fields["message"] == name);
        named.map(|(level, fields)| (*level, fields.clone())).collect::<Vec<_>>()
    };
    for name in ["capture", "save", "move"] {
        let events = of(name);
        let steps: Vec<&str> = events.iter().map(|(_, fields)| &fields["step"][..]).collect();
        assert_eq!(steps, ["0", "1", "2", "3", "4"], "{name}");
        assert!(events.iter().all(|(level, _)| *level == Level::INFO));
        assert!(events.iter().all(|(_, fields)| fields["bytes"] != "0"), "{name}: {events:?}");
        assert!(events.iter().all(|(_, fields)| fields["microseconds"].parse::<u64>().is_ok()));
    }
    assert_eq!(of("capture")[0].1["bytes"], "5000");
    assert!(of("prune").iter().any(|(_, fields)| fields["bytes"] != "0"));
    let restored = of("restore");
    assert_eq!((&restored[0].1["step"][..], &restored[0].1["bytes"][..]), ("4", "5000"));
    let failed = of("restore failed");
    assert_eq!((failed[0].0, &failed[0].1["step"][..]), (Level::WARN, "77"));
    assert!(failed[0].1["error"].contains("no checkpoint of step 77"));
}

#[test]
fn a_restore_tells_how_far_it_is() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let options = || Options::in_store(store.clone(), "r").encoding(Encoding::Raw);
    let mut run = Run::open(options()).unwrap();
    let large: Vec<u64> =
        (0..1_000_000u64).map(|at| at.wrapping_mul(0x9E37_79B9_7F4A_7C15)).collect();
    let small = vec![1.5f32; 10];
    run.checkpoint(0, &[Variable::new("large", &large), Variable::new("small", &small)]).unwrap();
    run.finish().unwrap();
    let told: Arc<Mutex<Vec<(u64, u64)>>> = Arc::default();
    let tell = told.clone();
    let options = options().on_progress(move |done, all| tell.lock().unwrap().push((done, all)));
    let mut run = Run::open(options).unwrap();
    let (mut back, mut other) = (Vec::<u64>::new(), vec![0f32; 10]);
    let arrays =
        &mut [VariableMut::growing("large", &mut back), VariableMut::new("small", &mut other)];
    run.restore(arrays).unwrap().unwrap();
    assert!(back == large && other == small);
    let told = told.lock().unwrap();
    assert!(told.len() > 2, "{told:?}");
    assert!(told.iter().all(|(done, all)| done <= all && *all == 8_000_040), "{told:?}");
    assert_eq!(told.last(), Some(&(8_000_040, 8_000_040)));
    // Without a checkpoint nothing is told, and an error of access is no progress.
    let refused: Arc<dyn Store> = Arc::new(HookedStore::new(store.clone(), |call| match call {
        Call::Read(key, _) if key.contains("/packs/") => Err(Error::new(ErrorKind::Io, "no")),
        _ => Ok(()),
    }));
    drop(run);
    let options = Options::in_store(refused, "r").on_progress(|_, _| panic!("nothing is read"));
    let mut run = Run::open(options).unwrap();
    assert!(run.restore(&mut [VariableMut::growing("large", &mut back)]).is_err());
}

#[test]
fn saves_tell_how_far_they_are() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let told: Arc<Mutex<Vec<(u64, u64)>>> = Arc::default();
    let tell = told.clone();
    let options = Options::in_store(store.clone(), "r").encoding(Encoding::Raw).keep(1, None);
    let options = options.on_save_progress(move |done, all| tell.lock().unwrap().push((done, all)));
    let mut run = Run::open(options).unwrap();
    let mut data: Vec<u64> =
        (0..20_000_000u64).map(|at| at.wrapping_mul(0x9E37_79B9_7F4A_7C15)).collect();
    run.checkpoint(0, &[Variable::new("x", &data)]).unwrap().durable().unwrap();
    // The bell comes right behind that.
    let first = loop {
        let told = std::mem::take(&mut *told.lock().unwrap());
        if told.last().is_some_and(|(done, all)| done == all) {
            break told;
        }
        told.into_iter().for_each(|(done, all)| assert!(done < all));
        std::thread::yield_now();
    };
    assert!(first.last().unwrap().1 >= 160_000_000, "{first:?}");
    // A change is less, and the end is told before `finish` returns.
    data[7] += 1;
    run.checkpoint(1, &[Variable::new("x", &data)]).unwrap();
    run.finish().unwrap();
    let told = told.lock().unwrap();
    let Some((done, all)) = told.last() else { panic!("nothing was told") };
    assert!(done == all && *all > 0 && *all < 1_000_000, "{told:?}");
    assert!(told[..told.len() - 1].iter().all(|(done, all)| done < all), "{told:?}");
}
