//! Labels of checkpoints and attributes of variables: what programs give is stored, found, and kept by every tool.

use crate::levels::{Cluster, LONG, memory};
use std::sync::Arc;
use treering::{
    Aggregation, Answer, Bound, Compaction, CompareSettings, End, ErrorKind, Golden, Keep,
    LabelTest, Labels, Library, Options, Result, Run, Store, StoredSide, ThreadRanks, TreeSettings,
    TreedSide, Variable, aggregate, compare, record_golden,
};

const ALL: Compaction = Compaction { files: 3, pack_bytes: 1 << 20 };

fn labels(pairs: &[(&str, &str)]) -> Labels {
    pairs.iter().copied().collect()
}

/// Six steps of two epochs, of which odd ones have a label of their own.
fn labelled(store: &Arc<dyn Store>) {
    let options = Options::in_store(store.clone(), "r").compact(None).growth(0.5);
    let mut run = Run::open(options.label("git", "4542149").label("phase", "warm-up")).unwrap();
    for step in 0..6u64 {
        if step % 2 == 1 {
            run.label("phase", "measured").unwrap();
            run.label("step length", 0.25).unwrap();
        }
        let data: Vec<u64> = (0..2000).map(|at| at * (step / 3 + 1)).collect();
        let heat = Variable::new("heat", &data).attribute("units", "K");
        run.checkpoint(step, &[heat, Variable::new("plain", &[step])]).unwrap();
    }
    run.finish().unwrap();
}

fn assert_labelled(store: &Arc<dyn Store>, run: &str, steps: &[u64]) {
    let library = Library::of(store.clone());
    let (all, trouble) = library.checkpoints(run).unwrap();
    assert!(trouble.is_empty(), "{trouble:?}");
    assert_eq!(all.iter().map(|info| info.step).collect::<Vec<_>>(), steps);
    for info in &all {
        let wanted = match info.step % 2 {
            0 => labels(&[("git", "4542149"), ("phase", "warm-up")]),
            _ => labels(&[("git", "4542149"), ("phase", "measured"), ("step length", "0.25")]),
        };
        assert_eq!(info.labels, wanted, "{run}@{}", info.step);
        let checkpoint = library.checkpoint(run, Some(info.step)).unwrap();
        assert_eq!(checkpoint.labels(), &wanted);
        let variables = library.variables(&checkpoint);
        let of = |name: &str| variables.iter().find(|v| v.name == name).unwrap().attributes.clone();
        assert_eq!((of("heat"), of("plain")), (labels(&[("units", "K")]), Labels::default()));
    }
    let report = library.verify(None, true, &|_, _| {}).unwrap();
    assert!(report.is_sound(), "{:?}", report.findings);
}

#[test]
fn labels_and_attributes_survive_every_tool() {
    let store = memory();
    labelled(&store);
    assert_labelled(&store, "r", &[0, 1, 2, 3, 4, 5]);
    let library = Library::of(store.clone());
    library.branch("r", Some(3), "b").unwrap();
    assert_labelled(&store, "b", &[3]);
    let plan = library.compact("r", ALL, &|_, _| {}).unwrap();
    assert!(!plan.bundles.is_empty());
    assert_labelled(&store, "r", &[0, 1, 2, 3, 4, 5]);
    let keep = Keep { every: Some(2), ..Keep::newest(1) };
    let plan = library.prune("r", keep, &|_, _| {}).unwrap();
    assert!(!plan.removed.is_empty());
    let kept: Vec<u64> = plan.kept.iter().map(|kept| kept.step).collect();
    assert_labelled(&store, "r", &kept);
}

#[test]
fn a_node_in_front_hands_them_on() {
    let (node, store) = (memory(), memory());
    let options = Options::in_store(store.clone(), "r").node(node);
    let mut run = Run::open(options.label("git", "4542149").label("phase", "warm-up")).unwrap();
    let heat = Variable::new("heat", &[1.5f64; 1000]).attribute("units", "K");
    run.checkpoint(0, &[heat, Variable::new("plain", &[1u8])]).unwrap().durable().unwrap();
    drop(run);
    assert_labelled(&store, "r", &[0]);
}

#[test]
fn a_label_is_for_the_next_checkpoint_whatever_comes_of_it() {
    let store = memory();
    let mut run = Run::open(Options::in_store(store.clone(), "r")).unwrap();
    let (data, empty): ([u8; 9], [u8; 0]) = ([7; 9], []);
    run.label("phase", "first").unwrap();
    assert!(run.checkpoint(1, &[Variable::new("x", &data).shaped(&[2])]).is_err());
    run.checkpoint(2, &[Variable::new("x", &data)]).unwrap();
    // A refused label changes nothing.
    run.label("phase", "third").unwrap();
    assert_eq!(run.label("phase", "x".repeat(2000)).unwrap_err().kind(), ErrorKind::Usage);
    run.checkpoint(3, &[Variable::new("x", &empty)]).unwrap();
    let unnamed = Variable::new("x", &data).attribute("a=b", 1);
    let error = run.checkpoint(4, &[unnamed]).err().unwrap().to_string();
    assert!(error.contains("\"a=b\"") && error.contains("variable \"x\""), "{error}");
    run.finish().unwrap();
    let (all, _) = Library::of(store.clone()).checkpoints("r").unwrap();
    let found: Vec<(u64, String)> = all.iter().map(|c| (c.step, c.labels.to_string())).collect();
    assert_eq!(found, [(2, String::new()), (3, "phase=third".to_string())]);
    // Too many or too long labels are refused when the run is opened.
    let many = (0..65).fold(Options::in_store(store, "many"), |o, n| o.label(&n.to_string(), n));
    assert!(Run::open(many).err().unwrap().to_string().contains("65 labels"));
}

#[test]
fn checkpoints_are_found_by_labels_and_attributes() {
    let store = memory();
    labelled(&store);
    let library = Library::of(store);
    let (all, _) = library.checkpoints("r").unwrap();
    let found = |tests: &[&str]| -> Vec<u64> {
        let tests: Vec<LabelTest> =
            tests.iter().map(|text| LabelTest::parse(text).unwrap()).collect();
        let passes = |info: &&treering::CheckpointInfo| library.passes("r", info, &tests).unwrap();
        all.iter().filter(passes).map(|info| info.step).collect()
    };
    assert_eq!(found(&[]), [0, 1, 2, 3, 4, 5]);
    assert_eq!(found(&["phase=meas*"]), [1, 3, 5]);
    assert_eq!(found(&["phase=meas*", "git=4542149"]), [1, 3, 5]);
    assert_eq!(found(&["git=4542150"]), [] as [u64; 0]);
    assert_eq!(found(&["step length=0.2?", "h*:units=K"]), [1, 3, 5]);
    assert_eq!(found(&["*:units=K"]), [0, 1, 2, 3, 4, 5]);
    assert_eq!(found(&["plain:units=*"]), [] as [u64; 0]);
    for text in ["", "git", "=x", ":units=K", "heat:=K"] {
        assert_eq!(LabelTest::parse(text).unwrap_err().kind(), ErrorKind::Usage, "{text:?}");
    }
}

/// The results of all ranks for a checkpoint with labels and attributes that depend on the rank.
fn together(
    store: &Arc<dyn Store>,
    ranks: u32,
    state: impl Fn(u32, &mut Run) -> Result<treering::Save> + Send + Sync + 'static,
) -> Vec<Result<()>> {
    let shared = store.clone();
    let ends = ThreadRanks::new(ranks).run(move |comm| -> Result<()> {
        let rank = comm.rank().0;
        let options = Options::in_store(shared.clone(), "r").ranks(comm).patience(LONG);
        let options = options.ranks_per_pack(1).label("git", "4542149");
        let mut run = Run::open(options)?;
        state(rank, &mut run)?;
        run.finish()
    });
    ends.into_iter().map(|end| end.done().unwrap()).collect()
}

#[test]
fn ranks_agree_on_labels_and_attributes_or_none_of_them_saves() {
    let store = memory();
    let save = |run: &mut Run, units: &str, part: u8| {
        let data = [1.5f64; 100];
        let heat = Variable::new("heat", &data);
        let heat = match part {
            0 => heat,
            1 => heat.rows(),
            2 => heat.same(),
            _ => heat.part_of(&[300], &[100 * u64::from(part - 3)]),
        };
        run.checkpoint(1, &[if units.is_empty() { heat } else { heat.attribute("units", units) }])
    };
    let ends = together(&store, 3, move |rank, run| {
        run.label("phase", if rank == 1 { "hot" } else { "cold" })?;
        save(run, "K", 0)
    });
    for end in &ends {
        let error = end.as_ref().unwrap_err().to_string();
        assert!(error.contains("labels") && error.contains("phase=hot"), "{error}");
    }
    for part in 0..4 {
        let ends = together(&store, 3, move |rank, run| {
            let part = if part == 3 { 3 + rank as u8 } else { part };
            save(run, if rank == 2 { "C" } else { "K" }, part)
        });
        for end in &ends {
            let error = end.as_ref().unwrap_err().to_string();
            assert!(error.contains("units=K") && error.contains("units=C"), "{part}: {error}");
        }
    }
    // One rank leaves them out of what all have in common.
    let ends = together(&store, 3, move |rank, run| save(run, if rank == 0 { "" } else { "K" }, 1));
    assert!(ends.iter().all(|end| end.is_err()));
    assert!(Library::of(store.clone()).checkpoints("r").unwrap().0.is_empty());
    let ends = together(&store, 3, move |_, run| save(run, "K", 1));
    assert!(ends.iter().all(|end| end.is_ok()), "{ends:?}");
    let checkpoint = Library::of(store.clone()).checkpoint("r", None).unwrap();
    assert_eq!(checkpoint.labels(), &labels(&[("git", "4542149")]));
    let entries = checkpoint.entries();
    assert!(entries.len() == 3);
    assert!(entries.iter().all(|e| e.description.attributes == labels(&[("units", "K")])));
}

/// As large as labels can be, in a checkpoint of more groups than a manifest can hold.
#[test]
fn manifests_stay_small() {
    let store = memory();
    let ends = together(&store, 70, move |_, run| {
        for number in 0..62 {
            run.label(&format!("{number:02}"), "v".repeat(62))?;
        }
        run.checkpoint(1, &[Variable::new("x", &[1.5f64; 10])])
    });
    assert!(ends.iter().all(|end| end.is_ok()), "{ends:?}");
    let library = Library::of(store.clone());
    let checkpoint = library.checkpoint("r", None).unwrap();
    assert_eq!((checkpoint.labels().iter().len(), checkpoint.manifest().ranks), (63, 70));
    let sizes: Vec<u64> = store.list("runs/r/log").unwrap().iter().map(|item| item.size).collect();
    assert!(sizes.iter().all(|size| *size <= 8192), "{sizes:?}");
    assert!(library.verify(None, true, &|_, _| {}).unwrap().is_sound());
}

#[test]
fn nodes_and_aggregators_hand_them_on() {
    let cluster = Cluster::new(2, 2);
    let ranks = cluster.clone();
    let ends = cluster.world(&[0, 0, 1]).run(move |comm| {
        let mut run = Run::open(ranks.options(&comm).label("git", "4542149")).unwrap();
        for step in 0..4 {
            run.label("at", step).unwrap();
            let data = vec![step; 500];
            run.checkpoint(step, &[Variable::new("x", &data).attribute("units", "m")]).unwrap();
        }
        run.finish().unwrap();
    });
    assert!(ends.into_iter().all(|end| matches!(end, End::Done(()))));
    let shared = memory();
    let store = shared.clone();
    let nodes = vec!["node".to_string(); 3];
    let ends = ThreadRanks::on_nodes(&nodes).run(move |all| {
        let aggregation = Aggregation::new(all, 1).unwrap();
        let options = Options::in_store(store.clone(), "r").patience(LONG);
        let options = options.ranks(aggregation.comm());
        if aggregation.is_aggregator() {
            return drop(aggregate(options, &aggregation).unwrap());
        }
        let options = options.label("git", "4542149").aggregated(&aggregation);
        let mut run = Run::open(options).unwrap();
        run.label("at", 3).unwrap();
        run.checkpoint(3, &[Variable::new("x", &[3u64; 500]).attribute("units", "m")]).unwrap();
        run.finish().unwrap();
    });
    assert!(ends.into_iter().all(|end| matches!(end, End::Done(()))));
    for store in [cluster.shared, shared] {
        let checkpoint = Library::of(store).checkpoint("r", Some(3)).unwrap();
        assert_eq!(checkpoint.labels(), &labels(&[("at", "3"), ("git", "4542149")]));
        let of = |entry: &treering::Description| entry.attributes.get("units") == Some("m");
        assert!(checkpoint.variables().all(of));
    }
}

/// A run of some ranks whose variables have attributes: all the same, or one that differs.
fn attributed(store: &Arc<dyn Store>, run: &'static str, ranks: u32, units: Option<&'static str>) {
    let shared = store.clone();
    let ends = ThreadRanks::new(ranks).run(move |comm| {
        let rank = u64::from(comm.rank().0);
        let options = Options::in_store(shared.clone(), run).ranks(comm).patience(LONG);
        let mut run = Run::open(options.bound("*", Bound::abs(1e-6)))?;
        let (own, part) = ([1.5f64; 100], [2.5f64; 50]);
        let set = |variable: Variable<'static>| match units {
            Some(units) => variable.attribute("units", units),
            None => variable,
        };
        let own: &'static [f64; 100] = Box::leak(Box::new(own));
        let part: &'static [f64; 50] = Box::leak(Box::new(part));
        let own = set(Variable::new("own", own)).attribute("level", 3);
        let grid = Variable::new("grid", part).part_of(&[50 * u64::from(ranks)], &[50 * rank]);
        run.checkpoint(1, &[own, set(grid)])?;
        run.finish()
    });
    ends.into_iter().for_each(|end| end.done().unwrap().unwrap());
}

#[test]
fn runs_are_compared_by_their_attributes_too() {
    let store = memory();
    for (run, units) in [("a", Some("K")), ("b", Some("K")), ("c", Some("C")), ("d", None)] {
        attributed(&store, run, 2, units);
    }
    let compared = |other: &str, settings: &CompareSettings| {
        let side = |run: &str| StoredSide::open(store.clone(), run, None).unwrap();
        compare(&side("a"), &side(other), settings, None, &|_, _| {}).unwrap()
    };
    let usual = CompareSettings::default();
    assert!(compared("b", &usual).equal);
    for (other, detail) in [("c", "K and C"), ("d", "only in the first")] {
        let outcome = compared(other, &usual);
        assert_eq!((outcome.verdict, outcome.differences), (Answer::Different, 0));
        // The global array once, and the arrays of both ranks.
        let mut found: Vec<(u32, &str)> =
            outcome.contents.iter().map(|found| (found.rank.0, found.of())).collect();
        found.sort_unstable();
        assert_eq!(found, [(0, "grid"), (0, "own"), (1, "own")], "{:?}", outcome.contents);
        for found in &outcome.contents {
            assert_eq!((&found.item[..], &found.detail[..]), ("attribute units", detail));
            assert!(found.file.is_none());
        }
        let sentence = outcome.sentence();
        assert!(sentence.contains("variables differ in 3 attributes"), "{sentence}");
        assert!(sentence.contains("the first: attribute units of "), "{sentence}");
        let without = CompareSettings { attributes: false, ..CompareSettings::default() };
        assert!(compared(other, &without).equal);
        // Trees of a golden file have them as well.
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("golden.tree");
        let side = |run: &str| StoredSide::open(store.clone(), run, None).unwrap();
        let trees = TreeSettings { bounds: vec![Bound::abs(1e-6)], ..TreeSettings::default() };
        record_golden(&side("a"), &usual, &trees, &path, &|_, _| {}).unwrap();
        let golden = Golden::open(&path).unwrap();
        let check = |run: &str| {
            let side = side(run);
            compare(&golden, &TreedSide::new(&side, &golden), &usual, None, &|_, _| {}).unwrap()
        };
        assert!(check("b").equal);
        assert_eq!(check(other).contents.len(), 3);
        // What is left out, or not chosen, has no attributes to compare.
        let exclude = vec!["own".to_string()];
        let settings = CompareSettings { exclude, ..CompareSettings::default() };
        assert_eq!(compared(other, &settings).contents.len(), 1);
        let variables = vec!["own".to_string()];
        let settings = CompareSettings { variables, ..CompareSettings::default() };
        assert_eq!(compared(other, &settings).contents.len(), 2);
    }
}

/// A run that is compared with a reference as it goes on, by one rank and by several.
#[test]
fn a_reference_is_compared_by_attributes_too() {
    let store = memory();
    attributed(&store, "golden", 2, Some("K"));
    for (ranks, units, attributes, differs) in [
        (2, "K", true, false),
        (2, "C", true, true),
        (2, "C", false, false),
        (1, "K", true, false),
        (1, "C", true, true),
    ] {
        let shared = store.clone();
        let run = format!("{ranks}{units}{attributes}");
        let ends = ThreadRanks::new(ranks).run(move |comm| {
            let settings =
                CompareSettings { attributes, ..CompareSettings::within(Bound::abs(1e-6)) };
            let share = 100 / u64::from(ranks);
            let offset = [share * u64::from(comm.rank().0)];
            let options = Options::in_store(shared.clone(), &run).ranks(comm).patience(LONG);
            let options = options.reference(shared.clone(), "golden", settings);
            let mut run = Run::open(options).unwrap();
            let (own, part) = ([1.5f64; 100], vec![2.5f64; share as usize]);
            let own = Variable::new("own", &own).attribute("level", 3).attribute("units", units);
            let grid = Variable::new("grid", &part).part_of(&[100], &offset);
            run.checkpoint(1, &[own, grid.attribute("units", units)]).unwrap();
            let found = run.divergence().map(|outcome| outcome.contents.clone());
            run.finish().unwrap();
            found
        });
        for end in ends {
            let found = end.done().unwrap().unwrap_or_default();
            let all = found
                .iter()
                .all(|found| found.item == "attribute units" && found.detail == "C and K");
            assert!(all && found.is_empty() != differs, "{ranks} {units} {attributes}: {found:?}");
        }
    }
}
