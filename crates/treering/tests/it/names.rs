//! Names of variables that are arrays of files: no other file changes them, and arrays find their partners.

use crate::laws::files::{npy, npz};
use std::path::{Path, PathBuf};
use treering::{
    Answer, ArrayExport, ArrayFormat, Bound, CompareSettings, DType, FileRules, Golden, Ingest,
    IngestSettings, LabelTest, Library, Manifest, Options, Outcome, Rank, Run, Side, TreeSettings,
    TreedSide, Variable, VariableMut, compare, export_arrays, open_side, rank_files, record_golden,
};

fn values(from: u64, count: u64) -> Vec<u8> {
    (from..from + count).flat_map(|i| (i as f64 * 0.37).sin().to_le_bytes()).collect()
}

fn array(values: &[u8]) -> Vec<u8> {
    npy(DType::F64, &[values.len() as u64 / 8], false, false, values)
}

/// An archive of arrays, each of which begins with another number.
fn archive(path: &Path, members: &[(&str, u64)]) {
    let members = members.iter().map(|(name, from)| (*name, array(&values(*from, 20_000))));
    npz(path, false, &members.collect::<Vec<_>>());
}

fn ingest_files(store: &Path, run: &str, step: u64, paths: &[PathBuf]) -> Manifest {
    let files = rank_files(paths, &FileRules::default()).unwrap().files;
    let options = Options::directory(store, run).growth(50.0);
    let mut ingest = Ingest::open(options, IngestSettings::default()).unwrap();
    ingest.take(step, &files, &|_, _| {}).unwrap()
}

fn names(store: &Path, run: &str, step: u64) -> Vec<String> {
    let library = Library::open(store).unwrap();
    let checkpoint = library.checkpoint(run, Some(step)).unwrap();
    let mut names: Vec<String> =
        library.variables(&checkpoint).into_iter().map(|v| v.name).collect();
    names.sort();
    names.dedup();
    names
}

fn settled(a: &str, b: &str, settings: &CompareSettings) -> Outcome {
    let [a, b] = [a, b].map(|place| open_side(place, None, true).unwrap());
    compare(a.as_ref(), b.as_ref(), settings, None, &|_, _| {}).unwrap()
}

fn compared(a: &str, b: &str) -> Outcome {
    settled(a, b, &CompareSettings::default())
}

fn text(path: &Path) -> String {
    path.display().to_string()
}

/// Variables without a partner: reason and name.
fn unmatched(outcome: &Outcome) -> Vec<(&str, &str)> {
    let all = outcome.unmatched.iter();
    all.map(|u| (&u.what[..], u.variable.as_deref().unwrap_or_default())).collect()
}

#[test]
fn a_set_that_gains_a_file_stores_only_what_is_new() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let store = at("store");
    for side in ["plain", "more"] {
        std::fs::create_dir(at(side)).unwrap();
        archive(&at(side).join("a.npz"), &[("T", 0), ("g/p", 5)]);
        std::fs::write(at(side).join("x.npy"), array(&values(9, 20_000))).unwrap();
        ingest_files(&store, side, 1, &[at(side)]);
    }
    let before = names(&store, "more", 1);
    assert_eq!(before, ["a.npz/T", "a.npz/g/p", "x.npy"]);
    archive(&at("more").join("b.npz"), &[("T", 77)]);
    std::fs::write(at("more").join("notes"), "a text").unwrap();
    // Another process.
    let manifest = ingest_files(&store, "more", 2, &[at("more")]);
    let plain = ingest_files(&store, "plain", 2, &[at("plain")]);
    assert_eq!(plain.stats.new_bytes, 0, "{:?}", plain.stats);
    // The array of the new file, its text, and the records of two files.
    assert!((160_006..165_000).contains(&manifest.stats.new_bytes), "{:?}", manifest.stats);
    assert!(manifest.stats.same_bytes >= 480_000, "{:?}", manifest.stats);
    let after = names(&store, "more", 2);
    assert_eq!(after, ["a.npz/T", "a.npz/g/p", "b.npz/T", "notes", "x.npy"]);

    // Only the new files have no partners: of runs, of folders, and of a run and a folder.
    let place = |run: &str| format!("{}#{run}", text(&store));
    let [plain, more] = [text(&at("plain")), text(&at("more"))];
    let pairs = [
        (place("plain"), place("more")),
        (plain.clone(), more.clone()),
        (place("plain@2"), more.clone()),
        (plain, place("more@2")),
    ];
    for (a, b) in pairs {
        let outcome = compared(&a, &b);
        let only = [("only in the second", "b.npz/T"), ("only in the second", "notes")];
        assert_eq!(unmatched(&outcome), only, "{a} {b}: {outcome:?}");
        let of_files = outcome.variables.len();
        assert_eq!(of_files, if a.contains("plain@") || !a.contains('#') { 3 } else { 6 });
        assert_eq!(outcome.differences, 0, "{outcome:?}");
        let outcome = compared(&b, &a);
        assert!(unmatched(&outcome).iter().all(|(what, _)| *what == "only in the first"));
    }
    // Without the file, everything is as before.
    std::fs::remove_file(at("more").join("b.npz")).unwrap();
    std::fs::remove_file(at("more").join("notes")).unwrap();
    let manifest = ingest_files(&store, "more", 3, &[at("more")]);
    assert_eq!(manifest.stats.new_bytes, 0, "{:?}", manifest.stats);
    assert_eq!(names(&store, "more", 3), before);
}

/// Two runs, one of which was ingested with a neighbouring file: files whose names differ in more than a number keep
/// their names, and a file that becomes one of ranks still has its partner.
#[test]
fn runs_with_and_without_a_neighbour_have_the_right_partners() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let store = at("store");
    let sets: [(&str, &[&str]); 4] = [
        ("without", &["mesh2.npz", "state_1.npz"]),
        ("ranks", &["mesh2.npz", "state_1.npz", "s_0.npz", "s_1.npz", "s_2.npz"]),
        ("neighbour", &["mesh2.npz", "state_1.npz", "state_2.npz"]),
        ("alone", &["state_1.npz"]),
    ];
    let content = |name: &str| name.bytes().map(u64::from).sum();
    for (run, files) in sets {
        std::fs::create_dir(at(run)).unwrap();
        for name in files {
            archive(&at(run).join(name), &[("T", content(name)), ("p", 7)]);
        }
        ingest_files(&store, run, 1, &[at(run)]);
    }
    let plain = ["mesh2.npz/T", "mesh2.npz/p", "state_1.npz/T", "state_1.npz/p"];
    assert_eq!(names(&store, "without", 1), plain);
    let of_ranks = ["mesh2.npz/T", "mesh2.npz/p", "s_{rank}.npz/T", "s_{rank}.npz/p"];
    assert_eq!(names(&store, "ranks", 1), [&of_ranks[..], &plain[2..]].concat());
    let of_two = ["mesh2.npz/T", "mesh2.npz/p", "state_{rank}.npz/T", "state_{rank}.npz/p"];
    assert_eq!(names(&store, "neighbour", 1), of_two);
    let place = |run: &str| format!("{}#{run}@1", text(&store));
    for (a, b, common, alone) in [
        ("without", "ranks", 4, 6),
        ("without", "neighbour", 4, 2),
        ("ranks", "neighbour", 4, 8),
        ("alone", "neighbour", 2, 4),
        ("alone", "without", 2, 2),
    ] {
        for (a, b) in [(a, b), (b, a)] {
            let outcome = compared(&place(a), &place(b));
            assert_eq!(outcome.differences, 0, "{a} {b}: {outcome:?}");
            let found = (outcome.variables.len(), outcome.unmatched.len());
            assert_eq!(found, (common, alone), "{a} {b}: {outcome:?}");
            // Of a file that one side lacks, other content than arrays could not be compared.
            let files = (outcome.contents.len(), outcome.not_compared.len());
            assert_eq!(files, (0, alone / 2), "{a} {b}: {outcome:?}");
        }
    }
    // A value that differs is found in the file that it is in.
    archive(&at("neighbour").join("state_1.npz"), &[("T", 1), ("p", 7)]);
    ingest_files(&store, "neighbour", 2, &[at("neighbour")]);
    let outcome = compared(&place("without"), &format!("{}#neighbour@2", text(&store)));
    let first = outcome.first.unwrap();
    assert_eq!((&first.variable[..], first.rank), ("state_1.npz/T", Rank(0)));
}

/// A program that puts the step into the names of its files writes the same files at every step.
#[test]
fn files_with_their_step_in_the_name_are_one_lineage() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: String| folder.path().join(name);
    let store = at("store".into());
    for step in [100, 200] {
        let side = at(format!("step_{step}"));
        std::fs::create_dir(&side).unwrap();
        archive(&side.join(format!("out_{step:06}.npz")), &[("T", 0)]);
        archive(&side.join("mesh2.npz"), &[("x", 3)]);
        let manifest = ingest_files(&store, "sim", step, std::slice::from_ref(&side));
        assert_eq!(names(&store, "sim", step), ["mesh2.npz/x", "out_{step}.npz/T"]);
        // The records of files hold their times.
        assert!(step == 100 || manifest.stats.new_bytes < 5000, "{:?}", manifest.stats);
        let place = format!("{}#sim@{step}", text(&store));
        for other in [text(&side), format!("{}#sim@100", text(&store))] {
            let outcome = compared(&place, &other);
            assert_eq!(outcome.verdict, Answer::Equal, "{other}: {outcome:?}");
            assert_eq!((outcome.variables.len(), outcome.not_compared.len()), (2, 0), "{other}");
        }
        let to = at(format!("out-{step}"));
        Library::open(&store).unwrap().export("sim", Some(step), &[], &to).unwrap();
        assert!(to.join(format!("out_{step:06}.npz")).is_file());
    }
}

#[test]
fn arrays_of_one_file_have_partners_whatever_the_file_is_called() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let store = at("store");
    let [a, b] = ["a.npz", "b.npz"].map(at);
    archive(&a, &[("T", 0), ("g/p", 5)]);
    archive(&b, &[("T", 0), ("g/p", 6)]);
    ingest_files(&store, "a", 1, std::slice::from_ref(&a));
    ingest_files(&store, "b", 1, std::slice::from_ref(&b));
    let [t, p] = [values(0, 20_000), values(5, 20_000)];
    let mut run = Run::open(Options::directory(&store, "program")).unwrap();
    let state = [
        Variable::from_bytes("T", DType::F64, &[20_000], &t),
        Variable::from_bytes("g/p", DType::F64, &[20_000], &p),
    ];
    run.checkpoint(1, &state).unwrap().durable().unwrap();
    run.finish().unwrap();
    std::fs::create_dir(at("folder")).unwrap();
    std::fs::copy(&a, at("folder/other.npz")).unwrap();
    let stored = |run: &str| format!("{}#{run}@1", text(&store));
    let same = [text(&a), stored("a"), stored("program"), text(&at("folder"))];
    for x in &same {
        for y in &same {
            let outcome = compared(x, y);
            assert_eq!(outcome.verdict, Answer::Equal, "{x} {y}: {outcome:?}");
            assert_eq!(outcome.variables.len(), 2, "{x} {y}: {outcome:?}");
        }
        for y in [text(&b), stored("b")] {
            let outcome = compared(x, &y);
            assert!(outcome.unmatched.is_empty(), "{x} {y}: {outcome:?}");
            // A name is that of the first side.
            let first = &outcome.first.as_ref().unwrap().variable;
            assert!(first.ends_with("g/p"), "{first}");
            let file = first.strip_suffix("/g/p").unwrap_or_default();
            let expected = match () {
                _ if *x == stored("a") => "a.npz",
                _ if *x == text(&at("folder")) => "other.npz",
                _ => "",
            };
            assert_eq!(file, expected, "{x} {y}");
        }
    }
    // A variable that only one of them has keeps its own name.
    archive(&b, &[("T", 0), ("q", 6)]);
    let outcome = compared(&stored("a"), &text(&b));
    let only = [("only in the first", "a.npz/g/p"), ("only in the second", "q")];
    assert_eq!(unmatched(&outcome), only, "{outcome:?}");
    // Of several files, the one of this name is meant.
    std::fs::copy(&b, at("folder/b.npz")).unwrap();
    let outcome = compared(&text(&at("folder")), &text(&b));
    let only = [("only in the first", "other.npz/T"), ("only in the first", "other.npz/g/p")];
    assert_eq!(unmatched(&outcome), only, "{outcome:?}");
    assert_eq!((outcome.variables.len(), outcome.differences), (2, 0), "{outcome:?}");
}

#[test]
fn files_of_ranks_and_arrays_without_names_have_partners() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: String| folder.path().join(name);
    let store = at("store".into());
    for (run, word) in [("ranks", "rank_"), ("others", "state.rank")] {
        std::fs::create_dir(at(run.into())).unwrap();
        for rank in 0..3 {
            archive(&at(format!("{run}/{word}{rank}.npz")), &[("T", rank), ("p", 7)]);
        }
        ingest_files(&store, run, 1, &[at(run.into())]);
    }
    assert_eq!(names(&store, "ranks", 1), ["rank_{rank}.npz/T", "rank_{rank}.npz/p"]);
    let stored = |run: &str| format!("{}#{run}@1", text(&store));
    let outcome = compared(&stored("ranks"), &stored("others"));
    assert_eq!(outcome.verdict, Answer::Equal, "{outcome:?}");
    assert_eq!((outcome.variables.len(), outcome.not_compared.len()), (6, 0), "{outcome:?}");
    // The folder that they are from has these files, and so has one of them.
    let folder_of = |run: &str| text(&at(run.into()));
    for (a, b) in [(stored("ranks"), folder_of("ranks")), (folder_of("ranks"), stored("ranks"))] {
        let outcome = compared(&a, &b);
        assert_eq!(outcome.verdict, Answer::Equal, "{a} {b}: {outcome:?}");
        assert_eq!((outcome.variables.len(), outcome.not_compared.len()), (6, 0), "{outcome:?}");
    }
    let second = text(&at("ranks/rank_1.npz".into()));
    let outcome = compared(&second, &stored("ranks"));
    assert_eq!((outcome.variables.len(), outcome.differences), (2, 0), "{outcome:?}");
    assert!(outcome.variables.iter().all(|v| v.rank == Rank(1)), "{outcome:?}");
    // Every rank's array can be named without its file.
    let library = Library::open(&store).unwrap();
    let checkpoint = library.checkpoint("ranks", Some(1)).unwrap();
    let second = checkpoint.variable(Rank(1), "T").unwrap();
    assert_eq!(second.description.name, "rank_{rank}.npz/T");

    let [x, y] = ["x.npy", "y.npy"].map(|name| at(name.into()));
    std::fs::write(&x, array(&values(3, 500))).unwrap();
    std::fs::write(&y, array(&values(3, 500))).unwrap();
    ingest_files(&store, "x", 1, std::slice::from_ref(&x));
    ingest_files(&store, "y", 1, std::slice::from_ref(&y));
    assert_eq!(names(&store, "x", 1), ["x.npy"]);
    for (a, b) in [
        (stored("x"), stored("y")),
        (stored("x"), text(&y)),
        (text(&x), stored("y")),
        (text(&x), text(&y)),
    ] {
        let outcome = compared(&a, &b);
        assert_eq!((outcome.verdict, outcome.variables.len()), (Answer::Equal, 1), "{a} {b}");
    }
}

#[test]
fn a_golden_file_of_files_is_checked_against_runs_folders_and_files() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let store = at("store");
    std::fs::create_dir(at("one")).unwrap();
    let a = at("one").join("a.npz");
    archive(&a, &[("T", 0), ("p", 5)]);
    ingest_files(&store, "a", 1, std::slice::from_ref(&a));
    let places = [text(&a), text(&at("one")), format!("{}#a@1", text(&store))];
    let trees = TreeSettings { bounds: vec![Bound::abs(1e-6)], ..TreeSettings::default() };
    for recorded in &places {
        let side = open_side(recorded, None, false).unwrap();
        let file = at("expected.tree");
        record_golden(side.as_ref(), &CompareSettings::default(), &trees, &file, &|_, _| {})
            .unwrap();
        let golden = Golden::open(&file).unwrap();
        for place in &places {
            let side = open_side(place, None, false).unwrap();
            let today = TreedSide::new(side.as_ref(), &golden);
            let settings = CompareSettings { expected: true, ..CompareSettings::default() };
            let outcome = compare(&golden, &today, &settings, None, &|_, _| {}).unwrap();
            assert_eq!(outcome.verdict, Answer::Equal, "{recorded} {place}: {outcome:?}");
            assert_eq!(outcome.variables.len(), 2, "{recorded} {place}");
            let steps = (golden.steps().unwrap().len(), today.steps().unwrap().len());
            assert_eq!(steps, (1, 1));
        }
    }
}

#[test]
fn an_array_may_be_named_without_its_file() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let store = at("store");
    std::fs::create_dir(at("in")).unwrap();
    archive(&at("in").join("a.npz"), &[("T", 0), ("g/p", 5)]);
    archive(&at("in").join("b.npz"), &[("T", 1), ("q", 6)]);
    ingest_files(&store, "sim", 1, &[at("in")]);
    let library = Library::open(&store).unwrap();
    let checkpoint = library.checkpoint("sim", Some(1)).unwrap();
    let numbers = |from: u64| -> Vec<f64> {
        let bytes = values(from, 20_000);
        bytes.chunks(8).map(|v| f64::from_le_bytes(v.try_into().unwrap())).collect()
    };
    for (name, from) in [("g/p", 5), ("a.npz/g/p", 5), ("q", 6), ("a.npz/T", 0), ("b.npz/T", 1)] {
        assert_eq!(checkpoint.read::<f64>(name).unwrap(), numbers(from), "{name}");
        assert_eq!(checkpoint.read_array(name).unwrap().bytes, values(from, 20_000), "{name}");
        let mut back = vec![0.0f64; 20_000];
        checkpoint.read_into(&mut [VariableMut::new(name, &mut back)]).unwrap();
        assert_eq!(back, numbers(from), "{name}");
        let state = library.backwards("sim").unwrap().next().unwrap().unwrap();
        assert_eq!(state.get::<f64>(name).unwrap(), numbers(from), "{name}");
    }
    assert_eq!(checkpoint.read_array("q").unwrap().name, "b.npz/q");
    // Two files have it.
    let mut back = vec![0.0f64; 20_000];
    let errors = [
        checkpoint.read::<f64>("T").map(drop),
        checkpoint.read_array("T").map(drop),
        checkpoint.read_into(&mut [VariableMut::new("T", &mut back)]),
        library.backwards("sim").unwrap().next().unwrap().unwrap().get::<f64>("T").map(drop),
    ];
    for error in errors {
        let error = error.unwrap_err().to_string();
        assert!(error.contains("a.npz/T, b.npz/T"), "{error}");
    }
    // A part of a name is none.
    for name in ["p", "npz/q", "", "/q", "a.npz"] {
        assert!(checkpoint.read::<f64>(name).is_err(), "{name}");
    }
    // Patterns are for all arrays of that name.
    let exported = |pattern: &str| -> Vec<String> {
        let variables = vec![pattern.to_string()];
        let wanted = ArrayExport { format: ArrayFormat::Npy, variables, ranks: vec![] };
        let to = tempfile::tempdir().unwrap();
        let done = export_arrays(&checkpoint, &wanted, to.path(), &|_, _| {}).unwrap();
        done.arrays.into_iter().map(|array| array.name).collect()
    };
    assert_eq!(exported("T"), ["a.npz/T.npy", "b.npz/T.npy"]);
    assert_eq!(exported("g/*"), ["a.npz/g/p.npy"]);
    assert_eq!(exported("b*"), ["b.npz/T.npy", "b.npz/q.npy"]);
    assert!(LabelTest::parse("T:units=K").is_ok());

    let place = format!("{}#sim@1", text(&store));
    let only = |variables: &[&str], exclude: &[&str]| -> Vec<String> {
        let [variables, exclude] = [variables, exclude]
            .map(|all| all.iter().map(|p| p.to_string()).collect::<Vec<String>>());
        let bounds = vec![("a.npz/*".to_string(), Bound::abs(1.0))];
        let bounds = if exclude == ["a.npz/*"] { Vec::new() } else { bounds };
        let settings = CompareSettings { variables, exclude, bounds, ..CompareSettings::default() };
        let outcome = settled(&place, &text(&at("in")), &settings);
        outcome.variables.into_iter().map(|v| v.name).collect()
    };
    assert_eq!(only(&["T"], &[]), ["a.npz/T", "b.npz/T"]);
    assert_eq!(only(&["T", "q"], &["b.npz/T"]), ["a.npz/T", "b.npz/q"]);
    assert_eq!(only(&[], &["T"]), ["a.npz/g/p", "b.npz/q"]);
    assert_eq!(only(&[], &["a.npz/*"]), ["b.npz/T", "b.npz/q"]);
}

/// A bound, a choice or an exclusion that names the file of one side is for its partner on the other side, too.
#[test]
fn patterns_are_for_both_partners() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let store = at("store");
    let [a, b] = ["a.npz", "b.npz"].map(at);
    archive(&a, &[("T", 0), ("p", 5)]);
    archive(&b, &[("T", 1), ("p", 6)]);
    ingest_files(&store, "a", 1, std::slice::from_ref(&a));
    ingest_files(&store, "b", 1, std::slice::from_ref(&b));
    let [a, b] = ["a", "b"].map(|run| format!("{}#{run}@1", text(&store)));
    let large = Bound::abs(1e6);
    for pattern in ["T", "a.npz/T", "b.npz/T", "*T"] {
        let bounds = vec![(pattern.to_string(), large)];
        let outcome = settled(&a, &b, &CompareSettings { bounds, ..CompareSettings::default() });
        let differing = outcome.variables.iter().filter(|v| v.differences > 0);
        let differing: Vec<&str> = differing.map(|v| &v.name[..]).collect();
        assert_eq!(differing, ["a.npz/p"], "{pattern}");
        let exclude = vec![pattern.to_string()];
        let outcome = settled(&a, &b, &CompareSettings { exclude, ..CompareSettings::default() });
        assert_eq!((outcome.variables.len(), outcome.unmatched.len()), (1, 0), "{pattern}");
        let variables = vec![pattern.to_string()];
        let settings = CompareSettings { variables, ..CompareSettings::default() };
        let outcome = settled(&a, &b, &settings);
        assert_eq!((outcome.variables.len(), outcome.unmatched.len()), (1, 0), "{pattern}");
        assert_eq!(outcome.variables[0].name, "a.npz/T");
    }
}

/// `golden/v1-names` has files, and a store that an early release made of them: then the only file of a rank did not stand
/// in the names of its arrays, an `.npy` file lost its extension, and the only array of a file among others its name.
#[test]
fn stores_of_early_names_are_read_compared_and_exported() {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/v1-names");
    let (old, files) = (golden.join("store"), golden.join("files"));
    let folder = tempfile::tempdir().unwrap();
    let new = folder.path().join("store");
    let library = Library::open(&old).unwrap();
    assert!(library.verify(None, true, &|_, _| {}).unwrap().is_sound());
    let early: [(&str, &[&str]); 4] = [
        ("h5", &["T", "g/p", "g/r"]),
        ("npy", &["x"]),
        ("set", &["m.npz/T", "m.npz/p", "one.npz", "u.npy"]),
        ("ranks", &["T", "p"]),
    ];
    for (run, variables) in early {
        assert_eq!(names(&old, run, 1), variables);
        // They come back byte for byte.
        let to = folder.path().join(run);
        for file in library.export(run, Some(1), &[], &to).unwrap() {
            let name = file.path.strip_prefix(&to).unwrap();
            let [a, b] = [file.path.clone(), files.join(run).join(name)];
            assert!(std::fs::read(a).unwrap() == std::fs::read(b).unwrap(), "{}", name.display());
        }
        ingest_files(&new, run, 1, &[files.join(run)]);
        let [old, new] = [&old, &new].map(|store| format!("{}#{run}@1", text(store)));
        let outcome = compared(&old, &old);
        assert_eq!(outcome.verdict, Answer::Equal, "{outcome:?}");
        for (a, b) in [(&old, &new), (&new, &old)] {
            let outcome = compared(a, b);
            match run {
                // Nobody knows any more how the only array of a file was called.
                "set" => {
                    let mut only: Vec<&str> =
                        unmatched(&outcome).into_iter().map(|(_, name)| name).collect();
                    only.sort_unstable();
                    assert_eq!(only, ["one.npz", "one.npz/T"]);
                    assert_eq!((outcome.variables.len(), outcome.differences), (3, 0));
                }
                _ => assert_eq!(outcome.verdict, Answer::Equal, "{a} {b}: {outcome:?}"),
            }
        }
    }
    assert_eq!(names(&new, "h5", 1), ["state.h5/T", "state.h5/g/p", "state.h5/g/r"]);
    assert_eq!(names(&new, "npy", 1), ["x.npy"]);
    assert_eq!(names(&new, "set", 1), ["m.npz/T", "m.npz/p", "one.npz/T", "u.npy"]);
    // Their files match them, too.
    for (run, file) in [("h5", "h5/state.h5"), ("npy", "npy/x.npy"), ("h5", "h5"), ("npy", "npy")] {
        let outcome = compared(&format!("{}#{run}@1", text(&old)), &text(&files.join(file)));
        assert_eq!(outcome.verdict, Answer::Equal, "{file}: {outcome:?}");
    }
    // Arrays of early names are read by them.
    let checkpoint = library.checkpoint("h5", Some(1)).unwrap();
    let of_new = Library::open(&new).unwrap().checkpoint("h5", Some(1)).unwrap();
    assert_eq!(checkpoint.read::<f64>("T").unwrap(), of_new.read::<f64>("T").unwrap());
}

#[test]
fn a_file_in_a_folder_of_its_name_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    for (place, name) in [("one", "state"), ("two", "state/deep")] {
        let path = at(place).join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, "text").unwrap();
    }
    let files = rank_files(&[at("one"), at("two")], &FileRules::default()).unwrap().files;
    let options = Options::directory(at("store"), "sim");
    let mut ingest = Ingest::open(options, IngestSettings::default()).unwrap();
    let error = ingest.take(1, &files, &|_, _| {}).unwrap_err().to_string();
    assert!(error.contains("\"state\"") && error.contains("\"state/deep\""), "{error}");
}
