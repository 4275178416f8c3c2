//! Whole comparisons: the answer is that of a plain loop over the values, whatever helped to find it.

use crate::laws::files::{code, npy, npz};
use crate::laws::values::{Dice, Maker, bounds};
use crate::laws::{FLOATS, Format, oracle};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use treering::testing::{Builder, Grid, Reading, Recipe, TREE_FRONT, TREE_PREFIX};
use treering::{
    Answer, Blob, Bound, CompareSettings, DType, DifferenceList, End, FileView, Library,
    MemoryStore, Options, Outcome, RawLayout, Run, Side, SideEntry, Store, StoredSide, ThreadRanks,
    TreeSettings, TreedSide, Value, Variable, VariableMut, VariableOutcome, compare,
    make_trees_beside, open_side, record_golden, sidecar,
};

/// The findings of a plain loop over two arrays.
#[derive(Debug, PartialEq)]
struct Expected {
    differences: u64,
    nan_differences: u64,
    largest: f64,
    rms: f64,
    first: Option<Vec<u64>>,
}

fn expected(
    dtype: DType,
    bound: Bound,
    nan_equal: bool,
    (shape, fortran): (&[u64], bool),
    a: &[u8],
    b: &[u8],
) -> Expected {
    let size = dtype.size() as usize;
    let mut found =
        Expected { differences: 0, nan_differences: 0, largest: 0.0, rms: 0.0, first: None };
    let (mut squares, mut finite) = (0.0, 0u64);
    for (at, (x, y)) in a.chunks(size).zip(b.chunks(size)).enumerate() {
        if !oracle::differ(dtype, bound, nan_equal, x, y) {
            continue;
        }
        found.differences += 1;
        found.first.get_or_insert_with(|| index(shape, fortran, at as u64));
        let apart = Value::read(dtype, x).difference(&Value::read(dtype, y));
        if apart.is_nan() {
            found.nan_differences += 1;
            continue;
        }
        found.largest = found.largest.max(apart);
        if apart.is_finite() {
            squares += apart * apart;
            finite += 1;
        }
    }
    found.rms = if finite > 0 { (squares / finite as f64).sqrt() } else { 0.0 };
    found
}

fn index(shape: &[u64], fortran: bool, mut place: u64) -> Vec<u64> {
    let mut index = vec![0; shape.len()];
    let axes: Vec<usize> = match fortran {
        true => (0..shape.len()).collect(),
        false => (0..shape.len()).rev().collect(),
    };
    for axis in axes {
        index[axis] = place % shape[axis];
        place /= shape[axis];
    }
    index
}

fn check(found: &VariableOutcome, expected: &Expected, what: &str) {
    assert_eq!(found.differences, expected.differences, "{what}");
    assert_eq!(found.nan_differences, expected.nan_differences, "{what}");
    assert_eq!(found.max_difference.0, expected.largest, "{what}");
    assert_eq!(found.first_index, expected.first, "{what}");
    assert_eq!(found.undecided, 0, "{what}");
    // Sums of squares are added up in another order.
    let (x, y) = (found.rms.0, expected.rms);
    assert!(x == y || (x - y).abs() <= 1e-12 * y.abs(), "{what}: {x} {y}");
}

fn check_answer(outcome: &Outcome, differences: u64, what: &str) {
    let answer = if differences > 0 { Answer::Different } else { Answer::Equal };
    assert_eq!(outcome.verdict, answer, "{what}: {:?}", outcome.notes);
    assert_eq!(outcome.differences, differences, "{what}");
    assert_eq!(outcome.first.is_some(), differences > 0, "{what}");
}

fn run(a: &Path, b: &Path, raw: Option<&RawLayout>, settings: &CompareSettings) -> Outcome {
    let (a, b) = (side(a, raw), side(b, raw));
    compare(a.as_ref(), b.as_ref(), settings, None, &|_, _| {}).unwrap()
}

fn side(path: &Path, raw: Option<&RawLayout>) -> Box<dyn Side> {
    open_side(&path.display().to_string(), raw, true).unwrap()
}

fn tree(path: &Path, raw: Option<&RawLayout>, bound: Bound, chunk: u32, planes: u8) -> PathBuf {
    let settings = TreeSettings { bounds: vec![bound], chunk, planes, ..TreeSettings::default() };
    make_trees_beside(path, raw, &[], &settings, &|_, _| {}).unwrap()
}

/// Two arrays that differ here and there, or only within their cells.
fn arrays(dtype: DType, bound: Bound, count: usize, kind: u64, dice: &mut Dice) -> [Vec<u8>; 2] {
    let size = dtype.size() as usize;
    if !FLOATS.contains(&dtype) {
        let mut word =
            || if dtype == DType::Bool { dice.word() as u8 & 1 } else { dice.word() as u8 };
        let a: Vec<u8> = (0..count * size).map(|_| word()).collect();
        let mut b = a.clone();
        let changes = if count == 0 { 0 } else { kind };
        (0..changes).for_each(|_| b[dice.below((count * size) as u64) as usize] ^= 1);
        return [a, b];
    }
    let maker = Maker::new(dtype, Grid::choose(dtype, bound), bound);
    let f = maker.format;
    let wild = kind.is_multiple_of(2);
    let (mut a, mut b) = (vec![0; count * size], vec![0; count * size]);
    for at in 0..count * f.parts {
        let x = if wild { maker.one(dice) } else { f.near(dice.part()) };
        let y = match kind {
            0 | 1 => x,
            2 | 3 => maker.jitter(x, dice),
            4 | 5 if dice.below(count as u64) < 3 => maker.partner(x, dice),
            6 | 7 => maker.partner(x, dice),
            _ => x,
        };
        f.write(&mut a, at, x);
        f.write(&mut b, at, y);
    }
    [a, b]
}

/// Ways to hand an array over as a file.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Npy,
    BigEndian,
    Fortran,
    Stored,
    Deflated,
    Raw,
}

impl Kind {
    const ALL: [Kind; 6] =
        [Kind::Npy, Kind::BigEndian, Kind::Fortran, Kind::Stored, Kind::Deflated, Kind::Raw];

    fn write(self, folder: &Path, dtype: DType, shape: &[u64], data: &[u8]) -> PathBuf {
        let path = folder.join(match self {
            Kind::Stored | Kind::Deflated => "x.npz",
            Kind::Raw => "x.bin",
            _ => "x.npy",
        });
        match self {
            Kind::Raw => std::fs::write(&path, data).unwrap(),
            Kind::Stored | Kind::Deflated => {
                let inside = npy(dtype, shape, false, false, data);
                npz(&path, self == Kind::Deflated, &[("x", inside)]);
            }
            _ => {
                let (fortran, big) = (self == Kind::Fortran, self == Kind::BigEndian);
                std::fs::write(&path, npy(dtype, shape, fortran, big, data)).unwrap();
            }
        }
        path
    }
}

/// Two folders, and the files in them.
struct Files {
    _folder: tempfile::TempDir,
    a: PathBuf,
    b: PathBuf,
}

fn files(kind: Kind, dtype: DType, shape: &[u64], data: &[Vec<u8>; 2]) -> Files {
    let folder = tempfile::tempdir().unwrap();
    let [a, b] = ["a", "b"].map(|name| folder.path().join(name));
    [&a, &b].iter().for_each(|side| std::fs::create_dir(side).unwrap());
    let (a, b) = (kind.write(&a, dtype, shape, &data[0]), kind.write(&b, dtype, shape, &data[1]));
    Files { _folder: folder, a, b }
}

/// Drops what the page cache has of a file, where the system lets us.
fn cool(path: &Path) {
    let file = std::fs::File::open(path).unwrap();
    let _ = file.sync_all();
    let _ = rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed);
}

#[test]
fn files_give_one_answer_with_and_without_trees() {
    let mut dice = Dice(3);
    let mut cases = 0;
    for (number, dtype) in DType::ALL.iter().cycle().take(96).enumerate() {
        let kind = Kind::ALL[number / DType::ALL.len() % Kind::ALL.len()];
        if kind != Kind::Raw && code(*dtype).is_none() {
            continue;
        }
        let bound = match FLOATS.contains(dtype) {
            true => dice.choose(&bounds(*dtype)),
            false => Bound::EQUAL,
        };
        let count = dice.choose(&[0u64, 1, 5, 700, 3000, 6000, 70_001]);
        let shape = match (count, kind) {
            (1, _) => vec![],
            (6000, _) => vec![20, 3, 100],
            (0, _) => vec![7, 0],
            _ => vec![count],
        };
        let change = dice.below(8);
        let data = arrays(*dtype, bound, count as usize, change, &mut dice);
        let raw = RawLayout::values(*dtype, Some(treering::Shape(shape.clone())));
        let raw = (kind == Kind::Raw).then_some(&raw);
        let files = files(kind, *dtype, &shape, &data);
        let fortran = kind == Kind::Fortran && shape.len() > 1;
        let chunk = dice.choose(&[512u32, 1024, 4096, 65536]);
        for nan_equal in [true, false] {
            let settings = CompareSettings { nan_equal, ..CompareSettings::within(bound) };
            let order = (&shape[..], fortran);
            let truth = expected(*dtype, bound, nan_equal, order, &data[0], &data[1]);
            let what = format!(
                "{dtype} {bound} {kind:?} of {count}, change {change}, chunk {chunk}, {nan_equal}"
            );
            let test = |settings: &CompareSettings, how: &str| {
                let outcome = run(&files.a, &files.b, raw, settings);
                check(&outcome.variables[0], &truth, &format!("{what}: {how}"));
                check_answer(&outcome, truth.differences, &format!("{what}: {how}"));
                assert_eq!(outcome.notes, [] as [String; 0], "{what}: {how}");
            };
            for reading in [Reading::Ring, Reading::Pool] {
                [&files.a, &files.b].into_iter().for_each(|path| cool(path));
                test(&CompareSettings { trees: false, reading, ..settings.clone() }, "values");
            }
            for planes in 0..=4 {
                tree(&files.a, raw, bound, chunk, planes);
                tree(&files.b, raw, bound, chunk, if planes == 3 { 1 } else { planes });
                test(&settings, &format!("{planes} planes"));
            }
            test(&CompareSettings { reading: Reading::Pool, ..settings.clone() }, "pool");
            test(&CompareSettings { trees: false, ..settings.clone() }, "trees left alone");
            test(&CompareSettings { trees: false, mapped: true, ..settings.clone() }, "mapped");
            for other in [Bound::Bits, Bound::abs(0.1), Bound::rel(0.01), Bound::Ulp(3)] {
                tree(&files.a, raw, other, chunk, 2);
                if dice.below(3) > 0 {
                    tree(&files.b, raw, other, chunk, 2);
                }
                // Trees that do not serve are told of; the answer is the same.
                let outcome = run(&files.a, &files.b, raw, &settings);
                let what = format!("{what}: made for {other}");
                check(&outcome.variables[0], &truth, &what);
                check_answer(&outcome, truth.differences, &what);
            }
            for path in [&files.a, &files.b] {
                std::fs::remove_file(sidecar(path)).unwrap();
            }
        }
        cases += 1;
    }
    assert!(cases > 80);
}

/// Trees save reading, and say nothing about the bound of whoever compares: without one, nothing may differ.
#[test]
fn trees_beside_files_do_not_set_the_bound() {
    let values = |first: f64| {
        let all: Vec<u8> = (0..2000).flat_map(|i| (f64::from(i) + first).to_le_bytes()).collect();
        all
    };
    let files = files(Kind::Npy, DType::F64, &[2000], &[values(0.25), values(0.250_001)]);
    for path in [&files.a, &files.b] {
        tree(path, None, Bound::abs(1e-3), 512, 4);
    }
    let outcome = run(&files.a, &files.b, None, &CompareSettings::default());
    check_answer(&outcome, 2000, "no bound");
    let told = "were made for abs:0.001 with 512 B chunks and do not serve a comparison without";
    assert!(outcome.notes.iter().any(|note| note.contains(told)), "{:?}", outcome.notes);
    let outcome = run(&files.a, &files.b, None, &CompareSettings::within(Bound::abs(1e-3)));
    check_answer(&outcome, 0, "the bound of the trees");
}

/// A golden file tells its bound, and there is nothing to tell of arrays without values.
#[test]
fn a_golden_file_sets_the_bound_and_serves_empty_arrays() {
    for count in [0, 2000] {
        let values = |off: f64| {
            let all: Vec<u8> =
                (0..count).flat_map(|i| (f64::from(i) + off).to_le_bytes()).collect();
            all
        };
        let files =
            files(Kind::Npy, DType::F64, &[count as u64], &[values(0.25), values(0.250_001)]);
        let golden = files._folder.path().join("golden.tree");
        let settings = TreeSettings { bounds: vec![Bound::abs(1e-3)], ..TreeSettings::default() };
        let recorded = side(&files.a, None);
        let choice = CompareSettings::default();
        record_golden(recorded.as_ref(), &choice, &settings, &golden, &|_, _| {}).unwrap();
        for path in [&files.a, &files.b] {
            let (now, golden) = (side(path, None), side(&golden, None));
            let now = TreedSide::new(now.as_ref(), golden.as_ref());
            let settings = CompareSettings { expected: true, ..CompareSettings::default() };
            let outcome = compare(golden.as_ref(), &now, &settings, None, &|_, _| {}).unwrap();
            check_answer(&outcome, 0, &format!("{count} values"));
        }
    }
}

/// Trees over bits know where NaN is, for bounds under which it differs from itself.
#[test]
fn nan_that_differs_from_itself_is_found_under_any_tree() {
    for dtype in FLOATS {
        let f = Format::of(dtype);
        let count = 3000;
        let mut a = vec![0; count * dtype.size() as usize];
        f.write(&mut a, 2000 * f.parts, f.infinity() | 1);
        let raw = RawLayout::values(dtype, None);
        let files = files(Kind::Raw, dtype, &[count as u64], &[a.clone(), a]);
        for made in [Bound::Bits, Bound::EQUAL, Bound::abs(0.5), Bound::Ulp(4)] {
            tree(&files.a, Some(&raw), made, 512, 2);
            tree(&files.b, Some(&raw), made, 512, 2);
            for asked in [Bound::EQUAL, Bound::abs(0.5), Bound::rel(0.5), Bound::Ulp(4)] {
                let settings =
                    CompareSettings { nan_equal: false, ..CompareSettings::within(asked) };
                let outcome = run(&files.a, &files.b, Some(&raw), &settings);
                assert_eq!(outcome.differences, 1, "{dtype} made for {made}, asked for {asked}");
                assert_eq!(outcome.variables[0].first_index, Some(vec![2000]));
                let settings = CompareSettings { nan_equal: true, ..settings };
                let outcome = run(&files.a, &files.b, Some(&raw), &settings);
                check_answer(&outcome, 0, "NaN is NaN");
                assert_eq!(outcome.variables[0].nans, Some([1, 1]), "{dtype} {made} {asked}");
            }
        }
    }
}

/// Deflated data is read from front to back, whatever the order of its bytes.
#[test]
fn deflated_arrays_ask_to_be_read_in_order() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.npz");
    let member = |big| npy(DType::F64, &[10], false, big, &[1; 80]);
    for deflated in [false, true] {
        npz(&path, deflated, &[("little", member(false)), ("big", member(true))]);
        let fields = treering::testing::open_file(&path, None).unwrap();
        assert_eq!(fields.len(), 2);
        fields.iter().for_each(|field| assert_eq!(field.bytes.in_order(), deflated));
    }
}

/// Folders: every file is compared with the one of its name.
#[test]
fn folders_are_compared_file_by_file() {
    let folder = tempfile::tempdir().unwrap();
    let [a, b] = ["a", "b"].map(|name| folder.path().join(name));
    for side in [&a, &b] {
        std::fs::create_dir_all(side.join("deep")).unwrap();
        let values: Vec<u8> = (0..4000u32).flat_map(|i| (i as f32).to_le_bytes()).collect();
        let array = npy(DType::F32, &[40, 100], false, false, &values);
        std::fs::write(side.join("u.npy"), &array).unwrap();
        std::fs::write(side.join("deep/u.npy"), &array).unwrap();
        npz(&side.join("many.npz"), true, &[("p", array.clone()), ("q", array)]);
        for rank in 0..4 {
            std::fs::write(side.join(format!("dump.{rank:04}")), &values).unwrap();
        }
    }
    let raw = RawLayout::values(DType::F32, None);
    let settings = CompareSettings::within(Bound::abs(0.5));
    check_answer(&run(&a, &b, Some(&raw), &settings), 0, "the same");
    for name in ["u.npy", "deep/u.npy", "dump.0000", "dump.0002", "dump.0003"] {
        let path = b.join(name);
        let before = std::fs::read(&path).unwrap();
        let mut after = before.clone();
        let end = after.len();
        after[end - 4..].copy_from_slice(&7.0f32.to_le_bytes());
        std::fs::write(&path, after).unwrap();
        check_answer(&run(&a, &b, Some(&raw), &settings), 1, name);
        std::fs::write(&path, before).unwrap();
    }
    std::fs::remove_file(b.join("dump.0001")).unwrap();
    let outcome = run(&a, &b, Some(&raw), &settings);
    assert_eq!((outcome.verdict, outcome.unmatched.len()), (Answer::Different, 1));
}

fn jittery(differ: bool) -> (Files, Vec<Vec<u8>>) {
    let mut dice = Dice(5);
    let a: Vec<f64> = (0..2000).map(|_| dice.part()).collect();
    let mut b: Vec<f64> = a.iter().map(|x| x + dice.part() * 4e-4).collect();
    if differ {
        b[1234] = 2.0;
    }
    let data = [a, b].map(|side| side.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<u8>>());
    let files = files(Kind::Npy, DType::F64, &[2000], &data);
    let trees = [&files.a, &files.b].map(|path| tree(path, None, Bound::abs(1e-3), 512, 2));
    let kept = trees.iter().map(|path| std::fs::read(path).unwrap()).collect();
    (files, kept)
}

/// A tree beside a file that is damaged, cut, gone or out of date changes nothing about the answer.
#[test]
fn damaged_trees_beside_files_change_no_answer() {
    let settings = CompareSettings::within(Bound::abs(1e-3));
    for differ in [false, true] {
        let (files, trees) = jittery(differ);
        let beside = [sidecar(&files.a), sidecar(&files.b)];
        let test = |what: &str| {
            let outcome = run(&files.a, &files.b, None, &settings);
            check_answer(&outcome, u64::from(differ), what);
            outcome
        };
        let sound = test("sound");
        assert!(sound.notes.is_empty());
        for which in 0..2 {
            let used = 500.min(trees[which].len());
            let places = (0..used).step_by(7).chain((4090..trees[which].len()).step_by(11));
            for at in places {
                let mut bytes = trees[which].clone();
                bytes[at] ^= 1 << (at % 8);
                std::fs::write(&beside[which], &bytes).unwrap();
                test(&format!("byte {at} of {which}"));
                if at % 4 == 0 {
                    std::fs::write(&beside[which], &bytes[..at]).unwrap();
                    let cut = test(&format!("cut at {at}"));
                    assert!(!cut.notes.is_empty());
                }
            }
            std::fs::write(&beside[which], &trees[which]).unwrap();
        }
        // The same damage on both sides: all leaves the same.
        for (path, bytes) in beside.iter().zip(&trees) {
            let mut bytes = bytes.clone();
            bytes[4096..].fill(0);
            std::fs::write(path, bytes).unwrap();
        }
        test("no leaves");
        // The tree of the other file.
        for (path, bytes) in beside.iter().rev().zip(&trees) {
            std::fs::write(path, bytes).unwrap();
        }
        test("swapped");
    }
}

#[test]
fn a_file_that_was_rewritten_is_not_taken_for_what_it_was() {
    let (files, _) = jittery(false);
    let settings = CompareSettings::within(Bound::abs(1e-3));
    check_answer(&run(&files.a, &files.b, None, &settings), 0, "fresh");
    let mut bytes = std::fs::read(&files.b).unwrap();
    let end = bytes.len();
    bytes[end - 8..].copy_from_slice(&9.0f64.to_le_bytes());
    std::fs::write(&files.b, bytes).unwrap();
    let outcome = run(&files.a, &files.b, None, &settings);
    check_answer(&outcome, 1, "rewritten");
    assert!(outcome.notes.iter().any(|note| note.contains("made before")), "{:?}", outcome.notes);
    tree(&files.b, None, Bound::abs(1e-3), 512, 2);
    let outcome = run(&files.a, &files.b, None, &settings);
    check_answer(&outcome, 1, "made again");
    assert!(outcome.notes.is_empty());
}

/// A file that takes the place of another one, of the same size and time, has no tree.
#[test]
fn trees_are_of_one_file_and_one_layout() {
    let folder = tempfile::tempdir().unwrap();
    let [a, b, c] = ["a", "b", "c"].map(|name| folder.path().join(format!("{name}.raw")));
    let values: Vec<f64> = (0..20_000).map(f64::from).collect();
    let bytes = |at: usize| {
        let mut values = values.clone();
        values[at] += 1.0;
        values.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<u8>>()
    };
    let time = std::time::SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(1_600_000_000);
    for (path, at) in [(&a, 15_000), (&b, 15_001), (&c, 7)] {
        std::fs::write(path, bytes(at)).unwrap();
        std::fs::File::options().write(true).open(path).unwrap().set_modified(time).unwrap();
    }
    let layout = |offset: u64, big: bool| {
        let text = "[[field]]\nname = \"x\"\ntype = \"f64\"\nshape = [10000]\n";
        RawLayout::parse(&format!("{text}offset = {offset}\nbig_endian = {big}\n")).unwrap()
    };
    let first = layout(0, false);
    let trees = TreeSettings { bounds: vec![Bound::abs(1e-6)], ..TreeSettings::default() };
    for path in [&a, &b] {
        make_trees_beside(path, Some(&first), &[], &trees, &|_, _| {}).unwrap();
    }
    let settings = CompareSettings::within(Bound::abs(1e-6));
    let answer = |raw: &RawLayout| run(&a, &b, Some(raw), &settings);
    let read = |outcome: &Outcome| outcome.bytes_read;
    let same = answer(&first);
    let differences = |outcome: &Outcome| outcome.variables[0].differences;
    // The differences are in the second half.
    assert!(differences(&same) == 0 && read(&same) < 10_000, "{same:?}");
    assert_eq!(differences(&answer(&layout(80_000, false))), 2);
    assert!(read(&answer(&layout(0, true))) > 100_000);
    std::fs::rename(&c, &b).unwrap();
    std::fs::File::options().write(true).open(sidecar(&b)).unwrap().set_modified(time).unwrap();
    let replaced = answer(&first);
    assert_eq!(differences(&replaced), 1);
    assert!(replaced.notes.iter().any(|note| note.contains("made before")), "{:?}", replaced.notes);
}

/// Trees and golden files replace nothing else.
#[test]
fn only_tree_files_are_replaced_by_tree_files() {
    let (files, _) = jittery(false);
    let trees = TreeSettings { bounds: vec![Bound::abs(1e-6)], ..TreeSettings::default() };
    let beside = sidecar(&files.a);
    make_trees_beside(&files.a, None, &[], &trees, &|_, _| {}).unwrap();
    std::fs::write(&beside, "notes").unwrap();
    let refused = make_trees_beside(&files.a, None, &[], &trees, &|_, _| {}).unwrap_err();
    assert!(refused.to_string().contains("not a tree file"), "{refused}");
    assert_eq!(std::fs::read(&beside).unwrap(), b"notes");
}

/// A choice that matches nothing is an error, whatever else matches.
#[test]
fn a_choice_of_variables_that_matches_none_is_an_error() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    for name in ["a", "b"] {
        let mut run = Run::open(Options::in_store(store.clone(), name)).unwrap();
        let data = [1.0f64; 100];
        run.checkpoint(1, &[Variable::new("temp", &data), Variable::new("vel", &data)]).unwrap();
        run.finish().unwrap();
    }
    let side = |name: &str| StoredSide::open(store.clone(), name, None).unwrap();
    let tried = |names: &[&str]| {
        let variables = names.iter().map(ToString::to_string).collect();
        let settings = CompareSettings { variables, ..CompareSettings::default() };
        compare(&side("a"), &side("b"), &settings, None, &|_, _| {})
    };
    assert_eq!(tried(&["temp", "v*"]).unwrap().verdict, Answer::Equal);
    let error = tried(&["temp", "velo"]).unwrap_err();
    assert!(error.to_string().contains("\"velo\""), "{error}");
}

/// A golden file has no values: its answer may be that it cannot tell, but it is never wrong.
#[test]
fn golden_files_are_never_wrong() {
    let mut dice = Dice(17);
    let mut answers = BTreeMap::new();
    for (number, dtype) in FLOATS.iter().cycle().take(180).enumerate() {
        let bound = match number % 3 {
            0 => Bound::abs(dice.choose(&[1e-3, 0.3])),
            1 => Bound::Ulp(dice.choose(&[5, 1000])),
            _ => dice.choose(&bounds(*dtype)),
        };
        let kind = dice.below(8);
        let data = arrays(*dtype, bound, 1500, kind, &mut dice);
        let files = files(Kind::Raw, *dtype, &[1500], &data);
        let raw = RawLayout::values(*dtype, None);
        let golden = files._folder.path().join("golden.tree");
        let settings = TreeSettings {
            bounds: vec![bound],
            chunk: 512,
            planes: number as u8 % 9,
            ..TreeSettings::default()
        };
        record_golden(
            side(&files.b, Some(&raw)).as_ref(),
            &CompareSettings::default(),
            &settings,
            &golden,
            &|_, _| {},
        )
        .unwrap();
        let (now, golden) = (side(&files.a, Some(&raw)), side(&golden, None));
        let now = TreedSide::new(now.as_ref(), golden.as_ref());
        let within = CompareSettings::within(bound);
        let outcome = compare(&now, golden.as_ref(), &within, None, &|_, _| {}).unwrap();
        let truth = expected(*dtype, bound, true, (&[1500], false), &data[0], &data[1]);
        let what = format!("{dtype} {bound} change {kind}: {truth:?} {outcome:?}");
        match outcome.verdict {
            Answer::Equal => assert_eq!(truth.differences, 0, "{what}"),
            Answer::Different => assert!(truth.differences >= outcome.differences, "{what}"),
            Answer::Undecided => {}
        }
        *answers.entry(format!("{:?}", outcome.verdict)).or_insert(0) += 1;
    }
    assert!(answers.len() == 3 && answers.values().all(|n| *n > 10), "{answers:?}");
}

/// Conclusions from sketches of complex numbers hold beside NaN.
#[test]
fn complex_numbers_with_nan_are_not_told_apart_by_their_other_part() {
    let mut a = vec![[0.0f64; 2]; 64];
    let mut b = a.clone();
    a[5] = [f64::NAN, 1.0];
    b[5] = [f64::NAN, 1.04];
    let bytes = |side: &[[f64; 2]]| side.iter().flatten().flat_map(|x| x.to_le_bytes()).collect();
    let data: [Vec<u8>; 2] = [bytes(&a), bytes(&b)];
    let files = files(Kind::Npy, DType::C128, &[64], &data);
    let within = CompareSettings::within(Bound::abs(1e-2));
    check_answer(&run(&files.a, &files.b, None, &within), 0, "values");
    let golden = files._folder.path().join("golden.tree");
    let settings = TreeSettings {
        bounds: vec![Bound::abs(1e-2)],
        chunk: 512,
        planes: 8,
        ..TreeSettings::default()
    };
    record_golden(
        side(&files.b, None).as_ref(),
        &CompareSettings::default(),
        &settings,
        &golden,
        &|_, _| {},
    )
    .unwrap();
    let (now, golden) = (side(&files.a, None), side(&golden, None));
    let now = TreedSide::new(now.as_ref(), golden.as_ref());
    let outcome = compare(&now, golden.as_ref(), &within, None, &|_, _| {}).unwrap();
    assert_eq!(outcome.verdict, Answer::Undecided, "{:?}", outcome.variables);
}

/// A damaged golden file is refused, or its answer is right as far as it goes.
#[test]
fn damaged_golden_files_hide_nothing() {
    for differ in [false, true] {
        let (files, _) = jittery(differ);
        let path = files._folder.path().join("golden.tree");
        let bound = Bound::abs(1e-3);
        let settings =
            TreeSettings { bounds: vec![bound], chunk: 512, planes: 4, ..TreeSettings::default() };
        record_golden(
            side(&files.b, None).as_ref(),
            &CompareSettings::default(),
            &settings,
            &path,
            &|_, _| {},
        )
        .unwrap();
        let sound = std::fs::read(&path).unwrap();
        let within = CompareSettings { trees: true, ..CompareSettings::within(bound) };
        // Levels, leaves and numbers of NaN; behind them, planes.
        let planes = 4096 + 16 + 32 * 16 + 32 * 4;
        let mut answers = BTreeMap::new();
        for at in (0..400).step_by(5).chain((4096..sound.len()).step_by(13)) {
            let mut bytes = sound.clone();
            bytes[at] ^= 1 << (at % 8);
            std::fs::write(&path, &bytes).unwrap();
            let Ok(golden) = open_side(&path.display().to_string(), None, true) else { continue };
            let now = side(&files.a, None);
            let now = TreedSide::new(now.as_ref(), golden.as_ref());
            let outcome = compare(&now, golden.as_ref(), &within, None, &|_, _| {});
            let Ok(outcome) = outcome else { continue };
            *answers.entry(format!("{:?}", outcome.verdict)).or_insert(0) += 1;
            match differ {
                true => assert_ne!(outcome.verdict, Answer::Equal, "byte {at}"),
                // A damaged plane cannot be told from cells that are far apart.
                false if at >= planes => {}
                false => assert_ne!(outcome.verdict, Answer::Different, "byte {at}"),
            }
        }
        assert!(answers.values().sum::<u64>() > 20, "{answers:?}");
    }
}

#[test]
fn the_first_difference_is_the_first() {
    let mut values = vec![0.0f64; 300_000];
    let bytes = |values: &[f64]| values.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<u8>>();
    let a = bytes(&values);
    values[299_999] = 5.0;
    values[123_456] = 3.0;
    values[200_000] = 4.0;
    let data = [a, bytes(&values)];
    for kind in [Kind::Npy, Kind::Fortran, Kind::Deflated] {
        let files = files(kind, DType::F64, &[300, 1000], &data);
        for trees in [false, true] {
            if trees {
                tree(&files.a, None, Bound::EQUAL, 512, 2);
                tree(&files.b, None, Bound::EQUAL, 512, 2);
            }
            let settings = CompareSettings { first: true, ..CompareSettings::within(Bound::EQUAL) };
            let outcome = run(&files.a, &files.b, None, &settings);
            let first = outcome.first.unwrap();
            let index = if kind == Kind::Fortran { vec![156, 411] } else { vec![123, 456] };
            assert_eq!((first.index, first.b), (index, Some(Value::Float(3.0))), "{kind:?}");
            assert_eq!(outcome.verdict, Answer::Different);
            assert!(outcome.stopped);
        }
    }
}

/// Every difference is listed once, in order, with its index and both values.
#[test]
fn lists_have_every_difference() {
    let mut dice = Dice(23);
    for dtype in [DType::F32, DType::C128, DType::U64, DType::I8] {
        let bound = Bound::EQUAL;
        let data = arrays(dtype, bound, 6000, 7, &mut dice);
        let files = files(Kind::Fortran, dtype, &[60, 100], &data);
        let size = dtype.size() as usize;
        let pairs = || data[0].chunks(size).zip(data[1].chunks(size)).enumerate();
        let differ = |x: &[u8], y: &[u8]| oracle::differ(dtype, bound, true, x, y);
        let places: Vec<usize> =
            pairs().filter(|(_, (x, y))| differ(x, y)).map(|(at, _)| at).collect();
        for name in ["list.jsonl", "list.npy"] {
            let path = files._folder.path().join(name);
            let mut list = DifferenceList::create(&path).unwrap();
            let (a, b) = (side(&files.a, None), side(&files.b, None));
            let settings = CompareSettings::within(bound);
            compare(a.as_ref(), b.as_ref(), &settings, Some(&mut list), &|_, _| {}).unwrap();
            assert_eq!(list.finish().unwrap(), places.len() as u64);
            let bytes = std::fs::read(&path).unwrap();
            if name == "list.npy" {
                let head = 10 + u16::from_le_bytes([bytes[8], bytes[9]]) as usize;
                let records = bytes[head..].chunks(56);
                assert_eq!(records.len(), places.len());
                for (record, place) in records.zip(&places) {
                    assert_eq!(record[16..24], (*place as u64).to_le_bytes());
                    assert_eq!(record[..8], (-1i64).to_le_bytes());
                }
                continue;
            }
            let lines: Vec<serde_json::Value> = String::from_utf8(bytes)
                .unwrap()
                .lines()
                .map(|line| serde_json::from_str(line).unwrap())
                .collect();
            assert_eq!(lines.len(), places.len());
            for (line, place) in lines.iter().zip(&places) {
                assert_eq!(line["variable"], "x");
                let index = [place % 60, place / 60];
                assert_eq!(line["index"], serde_json::json!(index));
                if dtype == DType::U64 {
                    let x = &data[0][place * 8..place * 8 + 8];
                    assert_eq!(line["a"], u64::from_le_bytes(x.try_into().unwrap()));
                }
            }
        }
    }
}

/// The states of a small simulation whose runs part.
fn state(step: u64, parted: bool) -> (Vec<f64>, Vec<f32>, Vec<i32>) {
    let mut dice = Dice(step);
    let mut heat: Vec<f64> = (0..5000).map(|_| dice.part()).collect();
    let speed: Vec<f32> = (0..3000).map(|_| dice.part() as f32).collect();
    let mut count: Vec<i32> = (0..700).map(|_| dice.word() as i32).collect();
    if parted {
        heat.iter_mut().for_each(|x| *x += 1e-7 * dice.part());
        if step >= 2 {
            heat[17 * step as usize] += 1.0;
            heat[4000] -= 1.0;
        }
        if step == 3 {
            count[699] += 1;
        }
    }
    (heat, speed, count)
}

fn save(run: &mut Run, steps: std::ops::Range<u64>, parted: bool) {
    for step in steps {
        let (heat, speed, count) = state(step, parted);
        let variables = [
            Variable::new("heat", &heat).shaped(&[50, 100]),
            Variable::new("speed", &speed),
            Variable::new("count", &count),
        ];
        run.checkpoint(step, &variables).unwrap();
    }
}

fn bytes_of(step: u64, parted: bool) -> [(&'static str, DType, Vec<u64>, Vec<u8>); 3] {
    let (heat, speed, count) = state(step, parted);
    [
        ("heat", DType::F64, vec![50, 100], heat.iter().flat_map(|x| x.to_le_bytes()).collect()),
        ("speed", DType::F32, vec![3000], speed.iter().flat_map(|x| x.to_le_bytes()).collect()),
        ("count", DType::I32, vec![700], count.iter().flat_map(|x| x.to_le_bytes()).collect()),
    ]
}

fn check_runs(outcome: &Outcome, bound: Bound, steps: std::ops::Range<u64>, what: &str) {
    let mut differences = 0;
    for step in steps.clone() {
        for (x, y) in bytes_of(step, false).iter().zip(&bytes_of(step, true)) {
            let truth = expected(x.1, bound, true, (&x.2, false), &x.3, &y.3);
            let found = outcome.variables.iter().find(|v| v.name == x.0 && v.step == Some(step));
            check(found.unwrap(), &truth, &format!("{what}: step {step} {}", x.0));
            differences += truth.differences;
        }
    }
    assert_eq!(outcome.variables.len() as u64, 3 * (steps.end - steps.start));
    check_answer(outcome, differences, what);
}

#[test]
fn runs_give_one_answer_with_and_without_trees() {
    let bound = Bound::abs(1e-5);
    let settings = CompareSettings::within(bound);
    for planes in [0, 1, 4] {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
        let options = |name: &str| Options::in_store(store.clone(), name).tree(512, planes);
        let library = Library::of(store.clone());
        for (name, parted) in [("a", false), ("b", true)] {
            for (suffix, options) in [
                ("", options(name)),
                ("-trees", options(&format!("{name}-trees")).bound("*", bound)),
                ("-late", options(&format!("{name}-late"))),
                ("-other", options(&format!("{name}-other")).bound("*", Bound::rel(1e-3))),
                ("-only", options(&format!("{name}-only")).bound("*", bound).trees_only()),
            ] {
                let mut run = Run::open(options).unwrap();
                save(&mut run, 0..4, parted);
                run.finish().unwrap();
                if suffix == "-late" {
                    let trees = TreeSettings {
                        bounds: vec![bound],
                        chunk: 512,
                        planes,
                        ..TreeSettings::default()
                    };
                    let late = format!("{name}-late");
                    library.make_trees(&late, None, &[], &trees, &|_, _| {}).unwrap();
                }
            }
        }
        let side = |name: &str| StoredSide::open(store.clone(), name, None).unwrap();
        let of = |a: &str, b: &str, settings: &CompareSettings| {
            compare(&side(a), &side(b), settings, None, &|_, _| {}).unwrap()
        };
        let whole = ["", "-trees", "-late", "-other"];
        for x in whole {
            for y in whole {
                let (a, b) = (format!("a{x}"), format!("b{y}"));
                check_runs(&of(&a, &b, &settings), bound, 0..4, &format!("{a} {b}"));
                let plain = CompareSettings { trees: false, ..settings.clone() };
                check_runs(&of(&a, &b, &plain), bound, 0..4, &format!("{a} {b} values"));
            }
        }
        // Trees are read, and not much else, where they serve.
        let (with, without) = (of("a-late", "b-trees", &settings), of("a", "b", &settings));
        assert!(planes == 0 || with.bytes_read < without.bytes_read);
        for (a, b) in [("a-only", "b-only"), ("a-only", "b-trees"), ("a-trees", "b-only")] {
            let outcome = of(a, b, &settings);
            for step in 0..4 {
                for (x, y) in bytes_of(step, false).iter().zip(&bytes_of(step, true)) {
                    let truth = expected(x.1, bound, true, (&x.2, false), &x.3, &y.3);
                    let found = |v: &&VariableOutcome| v.name == x.0 && v.step == Some(step);
                    let found = outcome.variables.iter().find(found).unwrap();
                    assert!(found.differences <= truth.differences, "{a} {b} {step} {}", x.0);
                    let silent = found.differences == 0 && found.undecided == 0;
                    assert!(!silent || truth.differences == 0, "{a} {b} {step} {}", x.0);
                }
            }
            assert_ne!(outcome.verdict, Answer::Equal);
            assert_eq!(of(a, "a-only", &settings).verdict, Answer::Equal);
        }
    }
}

/// Trees that were made of one step stay when those of another are made.
#[test]
fn trees_made_step_by_step_stay() {
    let bound = Bound::abs(1e-5);
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let library = Library::of(store.clone());
    let mut run = Run::open(Options::in_store(store.clone(), "a")).unwrap();
    save(&mut run, 0..4, false);
    run.finish().unwrap();
    let trees =
        TreeSettings { bounds: vec![bound], chunk: 512, planes: 2, ..TreeSettings::default() };
    let source = StoredSide::open(store.clone(), "a", None).unwrap();
    for step in [2, 0, 3, 1] {
        library.make_trees("a", Some(step), &[], &trees, &|_, _| {}).unwrap();
        let one = StoredSide::open(store.clone(), "a", Some(treering::Step(step))).unwrap();
        library.keep_trees("kept", step, &[Box::new(one)], &[], &trees, &|_, _| {}).unwrap();
    }
    let side = StoredSide::open(store.clone(), "a", None).unwrap();
    for step in 0..4 {
        for entry in side.entries(Some(treering::Step(step))).unwrap() {
            assert_eq!(entry.trees.len(), 1, "step {step} {}", entry.description.name);
        }
    }
    let kept = StoredSide::open(store, "kept", None).unwrap();
    assert_eq!(kept.steps().unwrap(), source.steps().unwrap());
}

/// Trees that are kept without their data know their ranks, and set no bound.
#[test]
fn kept_trees_of_ranks_are_told_apart() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let library = Library::of(store.clone());
    for (name, differs) in [("a", 9), ("b", 9), ("c", 0), ("d", 1)] {
        let of_run = store.clone();
        let ends = ThreadRanks::new(2).run(move |comm| {
            let (store, rank) = (&of_run, comm.rank());
            let mut run = Run::open(Options::in_store(store.clone(), name).ranks(comm)).unwrap();
            let off = if rank.0 == differs { 1e-4 } else { 0.0 };
            let data: Vec<f64> = (0..3000).map(|i| f64::from(i * 7 % 97) + off).collect();
            run.checkpoint(5, &[Variable::new("x", &data)]).unwrap().durable().unwrap();
            run.finish().unwrap();
        });
        assert!(ends.iter().all(|end| matches!(end, End::Done(()))));
        let trees =
            TreeSettings { bounds: vec![Bound::abs(1e-6)], chunk: 512, ..TreeSettings::default() };
        let one = StoredSide::open(store.clone(), name, None).unwrap();
        let kept = format!("t{name}");
        library.keep_trees(&kept, 5, &[Box::new(one)], &[], &trees, &|_, _| {}).unwrap();
        library.make_trees(name, Some(5), &[], &trees, &|_, _| {}).unwrap();
    }
    let side = |name: &str| StoredSide::open(store.clone(), name, None).unwrap();
    let verdict = |x: &str, y: &str, bound: Option<f64>| {
        let settings =
            CompareSettings { bound: bound.map(Bound::abs), ..CompareSettings::default() };
        compare(&side(x), &side(y), &settings, None, &|_, _| {}).map(|outcome| outcome.verdict)
    };
    for (x, y) in [("ta", "tb"), ("ta", "b"), ("a", "tb")] {
        assert_eq!(verdict(x, y, Some(1e-6)).unwrap(), Answer::Equal, "{x} {y}");
        // Only programs and golden files set bounds.
        assert!(!verdict(x, y, None).is_ok_and(|verdict| verdict == Answer::Different), "{x} {y}");
    }
    for other in ["c", "d"] {
        for (x, y) in
            [("ta".to_string(), format!("t{other}")), ("a".to_string(), format!("t{other}"))]
        {
            assert_ne!(verdict(&x, &y, Some(1e-6)).unwrap(), Answer::Equal, "{x} {y}");
            assert!(!verdict(&x, &y, None).is_ok_and(|verdict| verdict == Answer::Equal));
        }
    }
    // One checkpoint has one step.
    let mut run = Run::open(Options::in_store(store.clone(), "many")).unwrap();
    save(&mut run, 0..2, false);
    run.finish().unwrap();
    let trees =
        TreeSettings { bounds: vec![Bound::abs(1e-6)], chunk: 512, ..TreeSettings::default() };
    let sides: [Box<dyn Side>; 1] = [Box::new(side("many"))];
    let refused = library.keep_trees("tm", 0, &sides, &[], &trees, &|_, _| {}).unwrap_err();
    assert!(refused.to_string().contains("one step"), "{refused}");
}

#[test]
fn what_does_not_fit_together_is_named() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let x = vec![1.0f64; 100];
    let y = vec![1i32; 100];
    for (name, steps, other) in [("a", 0..3u64, false), ("b", 1..5, true)] {
        let options = Options::in_store(store.clone(), name).bound("*", Bound::abs(0.1));
        let mut run = Run::open(options).unwrap();
        for step in steps {
            let shape: &[u64] = if other { &[10, 10] } else { &[100] };
            let mut variables =
                vec![Variable::new("same", &x), Variable::new("shape", &x).shaped(shape)];
            variables.push(match other {
                true => Variable::new("type", &y),
                false => Variable::new("type", &x),
            });
            variables.push(Variable::new(if other { "only b" } else { "only a" }, &y));
            run.checkpoint(step, &variables).unwrap();
        }
        run.finish().unwrap();
    }
    let side = |name: &str| StoredSide::open(store.clone(), name, None).unwrap();
    let settings = CompareSettings::within(Bound::abs(0.1));
    let outcome = compare(&side("a"), &side("b"), &settings, None, &|_, _| {}).unwrap();
    assert_eq!((outcome.verdict, outcome.differences), (Answer::Different, 0));
    assert_eq!(outcome.variables.len(), 2);
    let mut told: Vec<(String, Option<u64>, Option<String>)> =
        outcome.unmatched.iter().map(|u| (u.what.clone(), u.step, u.variable.clone())).collect();
    told.sort();
    let mut expected = vec![
        ("step only in the first".to_string(), Some(0), None),
        ("step only in the second".to_string(), Some(3), None),
        ("step only in the second".to_string(), Some(4), None),
    ];
    for step in 1..3 {
        for (what, name) in [
            ("shapes differ", "shape"),
            ("types differ", "type"),
            ("only in the first", "only a"),
            ("only in the second", "only b"),
        ] {
            expected.push((what.to_string(), Some(step), Some(name.to_string())));
        }
    }
    expected.sort();
    assert_eq!(told, expected);
    let only = CompareSettings { variables: vec!["s*e".into()], ..settings.clone() };
    let outcome = compare(&side("a"), &side("b"), &only, None, &|_, _| {}).unwrap();
    assert_eq!(outcome.verdict, Answer::Different);
    let only = CompareSettings { variables: vec!["same".into()], ..settings };
    let outcome = compare(&side("a"), &side("b"), &only, None, &|_, _| {}).unwrap();
    assert_eq!(outcome.verdict, Answer::Equal);
    let told = "equal in the 2 steps that both have: all 200 values of 1 variable are within their \
                bounds; 1 step is only in the first; 2 steps are only in the second";
    assert_eq!(outcome.verdict_line(), told);
}

/// The stored trees of the newest checkpoint are those of its arrays.
fn check_trees(
    library: &Library,
    step: u64,
    arrays: &BTreeMap<String, Vec<f32>>,
    bounds: &[Bound],
    (chunk, planes): (u32, u8),
) {
    let checkpoint = library.checkpoint("r", Some(step)).unwrap();
    let mut stored: Vec<Vec<u8>> = Vec::new();
    for description in checkpoint.variables().filter(|d| d.name.starts_with(TREE_PREFIX)) {
        let mut bytes = vec![0; description.shape.0[0] as usize];
        let (name, shape) = (&description.name, &description.shape.0);
        let target = VariableMut::from_bytes(name, DType::Bytes, shape, &mut bytes);
        checkpoint.read_into(&mut [target]).unwrap();
        stored.push(bytes.split_off(TREE_FRONT));
    }
    let mut fresh = Vec::new();
    for array in arrays.values() {
        let data: Vec<u8> = array.iter().flat_map(|x| x.to_le_bytes()).collect();
        let recipe = |bound: &Bound| Recipe::new(DType::F32, *bound, chunk, planes).unwrap();
        let recipes: Vec<Recipe> = bounds.iter().map(recipe).collect();
        let images = Builder::new(DType::F32, &recipes).build(&data).unwrap();
        fresh.extend(images.into_iter().map(|image| image.bytes));
    }
    stored.sort();
    fresh.sort();
    assert!(stored == fresh, "the trees of step {step} are not those of its arrays");
}

/// Random programs: whatever changes, grows, goes or is gone back to, trees are those of the arrays.
#[test]
fn trees_follow_the_arrays_from_checkpoint_to_checkpoint() {
    for seed in 0..12 {
        let mut dice = Dice(seed);
        let tree = (dice.choose(&[512, 2048, 16384]), dice.below(5) as u8);
        let bounds = [Bound::abs(1e-3), Bound::Ulp(8), Bound::Bits];
        let bounds = &bounds[..1 + dice.below(3) as usize];
        let fine = treering::ChunkSize::new(dice.choose(&[32, 512, 4096])).unwrap();
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
        let growth = dice.choose(&[0.5, 100.0]);
        let options = || {
            let base = Options::in_store(store.clone(), "r").tree(tree.0, tree.1);
            let base = base.chunk(fine).growth(growth);
            bounds.iter().fold(base, |options, bound| options.bound("*", *bound))
        };
        let library = Library::of(store.clone());
        let mut run = Run::open(options()).unwrap();
        let mut now: BTreeMap<String, Vec<f32>> = BTreeMap::new();
        let mut saved: Vec<BTreeMap<String, Vec<f32>>> = Vec::new();
        for name in ["p", "q", "large"] {
            let count = if name == "large" { 300_000 } else { 4000 };
            now.insert(name.into(), (0..count).map(|_| dice.part() as f32).collect());
        }
        for _ in 0..24 {
            for _ in 0..1 + dice.below(3) {
                let name = dice.choose(&["p", "q", "large"]).to_string();
                let array = now.entry(name.clone()).or_insert_with(|| vec![0.5; 1000]);
                let len = array.len() as u64;
                match dice.below(8) {
                    0..3 if len > 0 => {
                        for _ in 0..1 + dice.below(5) {
                            array[dice.below(len) as usize] = dice.part() as f32;
                        }
                    }
                    3 | 4 => array.iter_mut().for_each(|x| *x += 1e-2),
                    5 => array.resize(dice.below(5000) as usize, 0.25),
                    6 => drop(now.remove(&name)),
                    _ if len > 0 => {
                        let (from, to) = (dice.below(len) as usize, dice.below(len) as usize);
                        array[from.min(to)..from.max(to)].fill(f32::NAN);
                    }
                    _ => {}
                }
            }
            let step = saved.len() as u64;
            let variables: Vec<Variable> =
                now.iter().map(|(name, array)| Variable::new(name, array)).collect();
            run.checkpoint(step, &variables).unwrap().durable().unwrap();
            check_trees(&library, step, &now, bounds, tree);
            saved.push(now.clone());
            let back = match dice.below(6) {
                0 => Some(dice.below(saved.len() as u64)),
                1 => {
                    run.finish().unwrap();
                    run = Run::open(options()).unwrap();
                    Some(saved.len() as u64 - 1)
                }
                _ => None,
            };
            if let Some(back) = back {
                now = saved[back as usize].clone();
                now.values_mut().for_each(|array| array.fill(-1.0));
                let mut targets: Vec<VariableMut> =
                    now.iter_mut().map(|(name, array)| VariableMut::new(name, array)).collect();
                run.restore_step(back, &mut targets).unwrap();
            }
        }
        run.finish().unwrap();
    }
}

/// A run is compared with another while it goes on, also after it went back.
#[test]
fn a_run_notices_when_it_parts_from_its_reference() {
    let bound = Bound::abs(1e-5);
    for (trees, only) in [(true, false), (true, true), (false, false)] {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
        let options = |name: &str| {
            let options = Options::in_store(store.clone(), name).tree(512, 4);
            if trees { options.bound("*", bound) } else { options }
        };
        let reference = if only { options("a").trees_only() } else { options("a") };
        let mut a = Run::open(reference).unwrap();
        save(&mut a, 0..4, false);
        a.finish().unwrap();
        let settings = CompareSettings::within(bound);
        let held = || options("b").reference(store.clone(), "a", settings.clone());
        let mut b = Run::open(held()).unwrap();
        save(&mut b, 0..2, true);
        assert!(b.divergence().is_none(), "{:?}", b.divergence());
        save(&mut b, 2..4, true);
        let parted = b.divergence().expect("it parted").clone();
        let first = parted.first.clone().unwrap();
        assert_eq!((first.step, &first.variable[..]), (Some(2), "heat"), "{trees} {only}");
        // Without values, the place is that of the chunk.
        assert_eq!(first.index, if only { [0, 0] } else { [0, 34] });
        assert!(b.failures().is_empty());
        b.finish().unwrap();
        // Again from before, the way the reference went.
        let mut b = Run::open(held()).unwrap();
        let (mut heat, mut speed, mut count) = state(9, false);
        let mut targets = [
            VariableMut::new("heat", &mut heat).shaped(&[50, 100]),
            VariableMut::new("speed", &mut speed),
            VariableMut::new("count", &mut count),
        ];
        b.restore_step(1, &mut targets).unwrap();
        save(&mut b, 2..6, false);
        assert!(b.divergence().is_none(), "{:?}", b.divergence());
        b.restore_step(1, &mut []).unwrap();
        save(&mut b, 3..4, true);
        let first = b.divergence().and_then(|outcome| outcome.first.clone()).unwrap();
        assert_eq!((first.step, first.index), (Some(3), vec![0, if only { 0 } else { 51 }]));
        b.finish().unwrap();
    }
}

/// A stored member of an archive has a checksum, too: what does not match it is no difference.
#[test]
fn archives_whose_checksum_does_not_match_are_trouble() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.npz");
    for deflated in [false, true] {
        let values: Vec<u8> = (0..40_000u32).flat_map(|i| (i % 251).to_le_bytes()).collect();
        npz(&path, deflated, &[("x", npy(DType::U32, &[40_000], false, false, &values))]);
        let whole = std::fs::read(&path).unwrap();
        let mut bad = whole.clone();
        let middle = bad.len() / 2;
        bad[middle] ^= 1;
        let damaged = folder.path().join("y.npz");
        std::fs::write(&damaged, &bad).unwrap();
        let (a, b) = (
            treering::testing::FileSide::open(&path, None, true),
            treering::testing::FileSide::open(&damaged, None, true),
        );
        let (a, b) = (a.unwrap(), b.unwrap());
        let outcome = compare(&a, &b, &CompareSettings::within(Bound::EQUAL), None, &|_, _| {});
        let error = outcome.unwrap_err().to_string();
        assert!(error.contains("archive"), "{error}");
        // Taken apart, it comes back as it is.
        let anatomy = treering::testing::take_apart(&damaged, None).unwrap();
        let read = |field: usize, offset: u64, out: &mut [u8]| {
            anatomy.fields[field].bytes.read_at(offset, out)
        };
        let mut back = Vec::new();
        anatomy.skeleton.rebuild(&read, &mut back).unwrap();
        assert!(back == bad);
    }
}

/// Values that cannot be read: reading panics, or fails with an error.
struct Bad {
    size: u64,
    panics: bool,
}

impl Blob for Bad {
    fn store(&self) -> &str {
        "bad"
    }

    fn size(&self) -> u64 {
        self.size
    }

    fn read_at(&self, _: u64, _: &mut [u8]) -> treering::Result<()> {
        assert!(!self.panics, "this read panics");
        Err(treering::Error::damaged("this cannot be read"))
    }

    fn read_many(&self, _: &mut [(u64, &mut [u8])]) -> treering::Result<()> {
        self.read_at(0, &mut [])
    }

    fn file(&self) -> Option<(&std::fs::File, &Path, u64)> {
        None
    }

    fn in_order(&self) -> bool {
        false
    }
}

/// A side of which the variable `bad` cannot be read, and `good` can.
struct BadSide {
    good: Option<u8>,
    size: u64,
    panics: bool,
}

impl Side for BadSide {
    fn name(&self) -> String {
        "bad".into()
    }

    fn steps(&self) -> treering::Result<Vec<Option<treering::Step>>> {
        Ok(vec![None])
    }

    fn entries(&self, _: Option<treering::Step>) -> treering::Result<Vec<SideEntry<'_>>> {
        let entry = |name: &str, values: Arc<dyn Blob>| SideEntry {
            rank: treering::Rank(0),
            description: Variable::from_bytes(name, DType::U8, &[values.size()], &[])
                .description()
                .clone(),
            origin: None,
            values: Some(values),
            trees: Vec::new(),
            unread: None,
            meaning: Default::default(),
            chunk: None,
        };
        let mut entries =
            vec![entry("bad", Arc::new(Bad { size: self.size, panics: self.panics }))];
        if let Some(fill) = self.good {
            let store = MemoryStore::new();
            store.commit("good", &[fill; 64])?;
            entries.push(entry("good", store.open("good")?.into()));
        }
        Ok(entries)
    }

    fn files(&self, _: Option<treering::Step>) -> treering::Result<Vec<FileView>> {
        Ok(Vec::new())
    }

    fn unreadable(&self) -> u64 {
        0
    }

    fn notes(&self) -> Vec<String> {
        Vec::new()
    }
}

/// A side of one array in memory that is said to be in chunks.
struct ChunkedSide {
    values: Vec<f64>,
    shape: Vec<u64>,
    chunk: Option<Vec<u64>>,
}

impl Side for ChunkedSide {
    fn name(&self) -> String {
        "chunked".into()
    }

    fn steps(&self) -> treering::Result<Vec<Option<treering::Step>>> {
        Ok(vec![None])
    }

    fn entries(&self, _: Option<treering::Step>) -> treering::Result<Vec<SideEntry<'_>>> {
        let store = MemoryStore::new();
        let bytes: Vec<u8> = self.values.iter().flat_map(|v| v.to_le_bytes()).collect();
        store.commit("v", &bytes)?;
        Ok(vec![SideEntry {
            rank: treering::Rank(0),
            description: Variable::from_bytes("v", DType::F64, &self.shape, &bytes)
                .description()
                .clone(),
            origin: None,
            values: Some(store.open("v")?.into()),
            trees: Vec::new(),
            unread: None,
            chunk: self.chunk.clone(),
            meaning: Default::default(),
        }])
    }

    fn files(&self, _: Option<treering::Step>) -> treering::Result<Vec<FileView>> {
        Ok(Vec::new())
    }

    fn unreadable(&self) -> u64 {
        0
    }

    fn notes(&self) -> Vec<String> {
        Vec::new()
    }
}

proptest! {
    /// The order in which an array is walked changes nothing: whatever its chunks and however little memory there is, every
    /// count, the first difference, examples and pictures are those of a walk from front to back.
    #[test]
    fn tiles_find_what_a_walk_finds(
        axes in proptest::collection::vec((1u64..12, 1u64..6, 1u64..6), 1..4),
        changes in proptest::collection::vec((any::<u16>(), prop_oneof![Just(0.25), Just(f64::NAN), Just(8.0)]), 0..9),
        memory in 16u64..6000,
        one_sided in any::<bool>(),
    ) {
        let shape: Vec<u64> = axes.iter().map(|a| a.0).collect();
        let values: Vec<f64> = (0..shape.iter().product::<u64>()).map(|i| i as f64).collect();
        let mut changed = values.clone();
        for (place, by) in &changes {
            let place = usize::from(*place) % changed.len();
            changed[place] += by;
        }
        let chunks = [axes.iter().map(|a| a.1).collect(), axes.iter().map(|a| a.2).collect()];
        let [a, b]: [Vec<u64>; 2] = chunks;
        let side = |values: &[f64], chunk| ChunkedSide { values: values.to_vec(), shape: shape.clone(), chunk };
        let compared = |a: Option<Vec<u64>>, b: Option<Vec<u64>>| {
            let settings = CompareSettings {
                memory,
                examples: 3,
                pictures: true,
                ..CompareSettings::within(Bound::Within { abs: 0.5, rel: 0.0 })
            };
            compare(&side(&values, a), &side(&changed, b), &settings, None, &|_, _| {}).unwrap()
        };
        let (walked, in_tiles) = (compared(None, None), compared(Some(a), (!one_sided).then_some(b)));
        let seen = |outcome: &treering::Outcome| {
            let mut variables = serde_json::to_value(&outcome.variables).unwrap();
            // A sum of squares depends on the order of its terms.
            let rms = variables[0]["rms"].take().as_f64();
            let first = serde_json::to_value(&outcome.first).unwrap();
            (variables, rms, first, outcome.differences, outcome.bytes_read, outcome.equal)
        };
        let (walked, in_tiles) = (seen(&walked), seen(&in_tiles));
        let near = match (walked.1, in_tiles.1) {
            (Some(x), Some(y)) => (x - y).abs() <= 1e-12 * x.abs(),
            (x, y) => x == y,
        };
        prop_assert!(near, "{:?} {:?}", walked.1, in_tiles.1);
        prop_assert_eq!((walked.0, walked.2, walked.3, walked.4), (in_tiles.0, in_tiles.2, in_tiles.3, in_tiles.4));
    }
}

/// A worker that panics found nothing, and that is not "equal".
#[test]
fn a_worker_that_panics_is_trouble_and_not_equal() {
    for size in [1 << 10, 64 << 20] {
        let sides = [0, 1].map(|_| BadSide { good: None, size, panics: true });
        let outcome = compare(&sides[0], &sides[1], &CompareSettings::default(), None, &|_, _| {});
        let error = outcome.unwrap_err().to_string();
        assert!(error.contains("this read panics"), "{error}");
    }
}

/// Writes a run with two variables in each step.
fn write_run(folder: &Path, name: &str, steps: std::ops::Range<u64>) {
    write_variables(folder, name, steps, 2);
}

/// The same with the first N of them.
fn write_variables(folder: &Path, name: &str, steps: std::ops::Range<u64>, count: usize) {
    let mut run = Run::open(Options::directory(folder, name)).unwrap();
    for step in steps {
        let data: Vec<f64> = (0..3000).map(|i| (i + step) as f64).collect();
        let other: Vec<f64> = (0..3000).map(|i| (i * i + step) as f64).collect();
        let variables = [Variable::new("x", &data), Variable::new("y", &other)];
        run.checkpoint(step, &variables[..count]).unwrap().durable().unwrap();
    }
    run.finish().unwrap();
}

fn check_golden(golden: &Path, folder: &Path, run: &str) -> Outcome {
    let golden = side(golden, None);
    let now = open_side(&format!("{}#{run}", folder.display()), None, false).unwrap();
    let now = TreedSide::new(now.as_ref(), golden.as_ref());
    let settings = CompareSettings { expected: true, ..CompareSettings::default() };
    compare(golden.as_ref(), &now, &settings, None, &|_, _| {}).unwrap()
}

/// A run that ended early, or of which checkpoints cannot be read, does not pass its golden check.
#[test]
fn steps_that_a_golden_file_expects_must_be_there() {
    let folder = tempfile::tempdir().unwrap();
    write_run(folder.path(), "whole", 0..4);
    write_run(folder.path(), "crashed", 0..2);
    let golden = folder.path().join("golden.tree");
    let settings = TreeSettings {
        bounds: vec![Bound::abs(1e-3)],
        chunk: 4096,
        planes: 4,
        ..TreeSettings::default()
    };
    let whole = open_side(&format!("{}#whole", folder.path().display()), None, false).unwrap();
    record_golden(whole.as_ref(), &CompareSettings::default(), &settings, &golden, &|_, _| {})
        .unwrap();
    let outcome = check_golden(&golden, folder.path(), "whole");
    assert_eq!(outcome.verdict, Answer::Equal, "{outcome:?}");
    let outcome = check_golden(&golden, folder.path(), "crashed");
    assert_eq!(outcome.verdict, Answer::Different, "{outcome:?}");
    let missing: Vec<_> = outcome.unmatched.iter().filter_map(|u| u.step).collect();
    assert_eq!(missing, [2, 3]);
    assert!(outcome.sentence().contains("missing"), "{outcome:?}");

    // The same for a variable that the run does not have any more.
    write_variables(folder.path(), "poorer", 0..4, 1);
    let outcome = check_golden(&golden, folder.path(), "poorer");
    assert_eq!(outcome.verdict, Answer::Different, "{outcome:?}");
    let missing: Vec<_> =
        outcome.unmatched.iter().map(|u| (u.step, u.variable.as_deref())).collect();
    let expected: Vec<_> = (0..4).map(|step| (Some(step), Some("y"))).collect();
    assert_eq!(missing, expected, "{outcome:?}");

    let log = folder.path().join("runs/whole/log");
    let mut log: Vec<_> = std::fs::read_dir(&log).unwrap().map(|e| e.unwrap().path()).collect();
    log.sort();
    let mut bytes = std::fs::read(log.last().unwrap()).unwrap();
    bytes[60] ^= 0xff;
    std::fs::write(log.last().unwrap(), bytes).unwrap();
    let outcome = check_golden(&golden, folder.path(), "whole");
    assert_ne!(outcome.verdict, Answer::Equal, "{outcome:?}");
    assert_eq!(outcome.unreadable, 1);
}

/// One damaged pack, or one variable that cannot be read, costs the answer about itself only.
#[test]
fn what_cannot_be_read_is_named_and_everything_else_is_compared() {
    let folder = tempfile::tempdir().unwrap();
    write_run(folder.path(), "a", 0..4);
    write_run(folder.path(), "b", 0..4);
    let open = |run: &str| open_side(&format!("{}#{run}", folder.path().display()), None, true);
    let all = |settings: &CompareSettings| {
        let (a, b) = (open("a").unwrap(), open("b").unwrap());
        compare(a.as_ref(), b.as_ref(), settings, None, &|_, _| {}).unwrap()
    };
    let packs = folder.path().join("runs/b/packs");
    let mut packs: Vec<_> = std::fs::read_dir(packs).unwrap().map(|e| e.unwrap().path()).collect();
    packs.sort();
    std::fs::remove_file(packs.last().unwrap()).unwrap();
    let outcome = all(&CompareSettings::default());
    assert_eq!(outcome.verdict, Answer::Undecided, "{outcome:?}");
    assert_eq!(outcome.variables.iter().filter(|v| !v.incomplete).count(), 6, "{outcome:?}");
    let steps: Vec<_> = outcome.not_compared.iter().map(|left| left.step).collect();
    assert!(!steps.is_empty() && steps.iter().all(|step| *step == Some(3)), "{steps:?}");
    let json = serde_json::to_value(&outcome).unwrap();
    assert_eq!(json["not_compared"][0]["step"], 3);
    let sentence = outcome.sentence();
    assert!(sentence.starts_with("undecided"), "{sentence}");
    assert!(outcome.html("").unwrap().contains("not_compared"));

    for (fill, verdict) in [(1, Answer::Undecided), (2, Answer::Different)] {
        let sides = [1, fill].map(|fill| BadSide { good: Some(fill), size: 99, panics: false });
        let outcome =
            compare(&sides[0], &sides[1], &CompareSettings::default(), None, &|_, _| {}).unwrap();
        assert_eq!(outcome.verdict, verdict, "{outcome:?}");
        assert_eq!(outcome.not_compared[0].variable.as_deref(), Some("bad"));
        assert!(outcome.not_compared[0].why.contains("this cannot be read"));
    }
    let sides = [1, 2].map(|_| BadSide { good: None, size: 99, panics: false });
    let error =
        compare(&sides[0], &sides[1], &CompareSettings::default(), None, &|_, _| {}).unwrap_err();
    assert!(error.to_string().contains("this cannot be read"));
}

/// Golden files tell "different" for every type and bound, and never wrongly. Only complex numbers under
/// a relative bound may stay undecided: their parts do not tell how far apart the numbers are.
#[test]
fn golden_files_prove_differences_of_every_type() {
    let mut dice = Dice(71);
    let (mut proved, mut open) = (0, Vec::new());
    let exact = [DType::I32, DType::U8, DType::Bool, DType::Bytes, DType::I64];
    for (number, dtype) in FLOATS.iter().chain(&exact).cycle().take(660).enumerate() {
        let float = FLOATS.contains(dtype);
        let complex = matches!(dtype, DType::C64 | DType::C128);
        let bound = match dice.below(6) {
            0 => Bound::abs(dice.choose(&[1e-3, 0.3])),
            1 => Bound::rel(dice.choose(&[1e-2, 0.1, 0.3])),
            2 => Bound::Within { abs: dice.choose(&[1e-3, 0.1]), rel: dice.choose(&[1e-2, 0.1]) },
            3 => Bound::Ulp(dice.choose(&[0, 5])),
            4 => Bound::EQUAL,
            _ => Bound::Bits,
        };
        // A few values become 100,000 times larger, or one bit of them changes; or nothing does.
        let size = dtype.size() as usize;
        let format = float.then(|| Format::of(*dtype));
        let mut a = vec![0u8; 1500 * size];
        match format {
            Some(f) => {
                for at in 0..1500 * f.parts {
                    f.write(&mut a, at, f.near(dice.part() * 0.5 + 0.25));
                }
            }
            None => a.iter_mut().for_each(|byte| *byte = dice.word() as u8 & 1),
        }
        let mut b = a.clone();
        for _ in 0..number % 3 {
            let at = dice.below(1500) as usize;
            match format {
                Some(f) => f.write(&mut b, at * f.parts, f.near(30_000.0)),
                None => b[at * size] ^= 1,
            }
        }
        let files = files(Kind::Raw, *dtype, &[1500], &[a.clone(), b.clone()]);
        let raw = RawLayout::values(*dtype, None);
        let golden = files._folder.path().join("golden.tree");
        let settings =
            TreeSettings { bounds: vec![bound], chunk: 512, planes: 4, ..TreeSettings::default() };
        record_golden(
            side(&files.b, Some(&raw)).as_ref(),
            &CompareSettings::default(),
            &settings,
            &golden,
            &|_, _| {},
        )
        .unwrap();
        let (now, golden) = (side(&files.a, Some(&raw)), side(&golden, None));
        let now = TreedSide::new(now.as_ref(), golden.as_ref());
        let outcome = compare(&now, golden.as_ref(), &CompareSettings::default(), None, &|_, _| {});
        let outcome = outcome.unwrap();
        let own = bound.of_type(*dtype);
        let truth = expected(*dtype, own, true, (&[1500], false), &a, &b).differences;
        let what = format!("{dtype} {bound} {truth}: {:?}", outcome.verdict);
        match outcome.verdict {
            Answer::Equal => assert_eq!(truth, 0, "{what}"),
            Answer::Different => {
                assert!(truth >= outcome.differences && truth > 0, "{what}");
                proved += 1;
            }
            Answer::Undecided => {
                let relative = matches!(bound, Bound::Within { rel, .. } if rel > 0.0);
                if truth > 0 && !(complex && relative) {
                    open.push(what);
                }
            }
        }
    }
    assert!(open.is_empty(), "{} proved, but not {open:?}", proved);
    assert!(proved > 300, "{proved}");
}

/// A reference that is not there, a step that it lacks, and a comparison that fails are all told, and none
/// of them is a failed save.
#[test]
fn a_run_tells_what_it_compared_with_its_reference() {
    let folder = tempfile::tempdir().unwrap();
    let store: Arc<dyn Store> = Arc::new(treering::DirectoryStore::new(folder.path()));
    let open = |name: &str, of: &str| {
        let options = Options::in_store(store.clone(), name);
        Run::open(options.reference(store.clone(), of, CompareSettings::default()))
    };
    let Err(error) = open("b", "nobody") else { panic!("there is no such run") };
    assert!(error.to_string().contains("\"nobody\" does not exist"), "{error}");

    write_run(folder.path(), "a", 0..3);
    let mut b = open("b", "a").unwrap();
    // The log was read when the run was opened: steps that are in it need no other look.
    let log = folder.path().join("runs/a/log");
    let away = folder.path().join("log");
    std::fs::rename(&log, &away).unwrap();
    let save = |run: &mut Run, step: u64| {
        let data: Vec<f64> = (0..3000).map(|i| (i + step) as f64).collect();
        let other: Vec<f64> = (0..3000).map(|i| (i * i + step) as f64).collect();
        let variables = [Variable::new("x", &data), Variable::new("y", &other)];
        run.checkpoint(step, &variables).unwrap().durable().unwrap();
    };
    save(&mut b, 0);
    save(&mut b, 1);
    std::fs::rename(&away, &log).unwrap();
    save(&mut b, 7);
    let packs = folder.path().join("runs/a/packs");
    std::fs::remove_dir_all(packs).unwrap();
    save(&mut b, 2);
    let report = b.reference_report().unwrap();
    assert_eq!(report.compared, [0, 1]);
    let left: Vec<_> = report.not_compared.iter().map(|left| left.step).collect();
    assert_eq!(left, [Some(7), Some(2)], "{report:?}");
    assert!(report.not_compared[0].why.contains("has no checkpoint of this step"));
    assert!(b.divergence().is_none());
    assert!(b.failures().is_empty(), "{:?}", b.failures());
    b.finish().unwrap();
}

/// An array in Fortran's order has one shape: in its file, in a store, and for a program.
#[test]
fn arrays_in_fortran_order_keep_their_shape() {
    let folder = tempfile::tempdir().unwrap();
    let (a, b) = (folder.path().join("a.npy"), folder.path().join("b.npy"));
    let values: Vec<u8> = (0..30 * 40).flat_map(|i| f64::from(i).to_le_bytes()).collect();
    let mut changed = values.clone();
    // The element (7, 3): the first axis is the fastest.
    changed[8 * (3 * 30 + 7)..][..8].copy_from_slice(&(-1f64).to_le_bytes());
    std::fs::write(&a, npy(DType::F64, &[30, 40], true, false, &values)).unwrap();
    std::fs::write(&b, npy(DType::F64, &[30, 40], true, false, &changed)).unwrap();
    let store = folder.path().join("store");
    let name = "x.npy".to_string();
    let file =
        treering::RankFile { rank: treering::Rank(0), path: a.clone(), like: name.clone(), name };
    let options = Options::directory(&store, "files");
    let mut ingest = treering::Ingest::open(options, Default::default()).unwrap();
    ingest.take(1, &[file], &|_, _| {}).unwrap();
    drop(ingest);
    let mut run = Run::open(Options::directory(&store, "arrays")).unwrap();
    let array =
        |bytes: &'static [u8]| Variable::from_bytes("x", DType::F64, &[30, 40], bytes).fortran();
    let (values, changed): (&'static [u8], &'static [u8]) = (values.leak(), changed.leak());
    run.checkpoint(1, &[array(values)]).unwrap().durable().unwrap();
    run.checkpoint(2, &[array(changed)]).unwrap().durable().unwrap();
    run.finish().unwrap();
    let stored = |place: &str| format!("{}#{place}", store.display());
    let library = Library::open(&store).unwrap();
    for (run, name) in [("files", "x.npy"), ("arrays", "x")] {
        let checkpoint = library.checkpoint(run, Some(1)).unwrap();
        let x = checkpoint.variables().find(|v| v.name == name).unwrap();
        assert_eq!((&x.shape.0[..], x.order), (&[30, 40][..], treering::Order::Fortran));
    }
    let places = [a.display().to_string(), stored("files@1"), stored("arrays@1")];
    for same in &places {
        let sides = [&places[0], same].map(|place| open_side(place, None, true).unwrap());
        let [x, y] = &sides;
        let settings = CompareSettings::default();
        let outcome = compare(x.as_ref(), y.as_ref(), &settings, None, &|_, _| {}).unwrap();
        assert_eq!(outcome.verdict, Answer::Equal, "{same}: {outcome:?}");
        for other in [b.display().to_string(), stored("arrays@2")] {
            let z = open_side(&other, None, true).unwrap();
            let outcome = compare(y.as_ref(), z.as_ref(), &settings, None, &|_, _| {}).unwrap();
            let first = outcome.first.expect("they differ");
            assert_eq!((first.index, outcome.differences), (vec![7, 3], 1), "{same} {other}");
        }
    }
    // A program that has the same array in another order is told so.
    let mut run = Run::open(Options::directory(&store, "arrays")).unwrap();
    let mut bytes = vec![0; values.len()];
    let target = VariableMut::from_bytes("x", DType::F64, &[30, 40], &mut bytes);
    let error = run.restore_step(1, &mut [target]).unwrap_err();
    assert!(error.to_string().contains("order"), "{error}");
    let target = VariableMut::from_bytes("x", DType::F64, &[30, 40], &mut bytes).fortran();
    run.restore_step(1, &mut [target]).unwrap();
    assert!(bytes == values);
    run.finish().unwrap();
}

/// Types of one kind are compared by value; the narrower values lose nothing.
#[test]
fn widths_of_one_kind_are_compared_by_value() {
    let folder = tempfile::tempdir().unwrap();
    let narrow: Vec<f32> = (0..20_000).map(|i| (i as f32).sin()).collect();
    let mut wide: Vec<f64> = narrow.iter().map(|v| f64::from(*v)).collect();
    let write = |name: &str, dtype: DType, bytes: Vec<u8>| -> PathBuf {
        let path = folder.path().join(name);
        std::fs::write(&path, npy(dtype, &[100, 200], false, false, &bytes)).unwrap();
        path
    };
    let bytes = |values: &[f64]| values.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<u8>>();
    let a = write("a.npy", DType::F32, narrow.iter().flat_map(|v| v.to_le_bytes()).collect());
    let b = write("b.npy", DType::F64, bytes(&wide));
    tree(&a, None, Bound::abs(1e-6), 4096, 4);
    tree(&b, None, Bound::abs(1e-6), 4096, 4);
    for bound in [Bound::abs(1e-6), Bound::EQUAL, Bound::Bits] {
        let outcome = run(&a, &b, None, &CompareSettings::within(bound));
        assert_eq!(outcome.verdict, Answer::Equal, "{outcome:?}");
        assert_eq!(outcome.variables[0].dtype, DType::F64);
        let told = |note: &String| note.contains("f32 in the first and f64 in the second");
        assert!(outcome.notes.iter().any(told), "{:?}", outcome.notes);
    }
    wide[7_777] += 1e-3;
    let c = write("c.npy", DType::F64, bytes(&wide));
    for (x, y) in [(&a, &c), (&c, &a)] {
        let outcome = run(x, y, None, &CompareSettings::within(Bound::abs(1e-6)));
        assert_eq!((outcome.verdict, outcome.differences), (Answer::Different, 1));
        assert_eq!(outcome.first.unwrap().index, [38, 177]);
        let outcome = run(x, y, None, &CompareSettings::within(Bound::abs(1e-2)));
        assert_eq!(outcome.verdict, Answer::Equal);
    }
    let whole = |dtype: DType, bytes: &dyn Fn(i8) -> Vec<u8>| {
        let values = (0..20_000).flat_map(|i| bytes((i % 251 - 125) as i8)).collect();
        write(&format!("{dtype}.npy"), dtype, values)
    };
    let i1 = whole(DType::I8, &|v| vec![v as u8]);
    let i8 = whole(DType::I64, &|v| i64::from(v).to_le_bytes().into());
    let u8 = whole(DType::U64, &|v| i64::from(v).to_le_bytes().into());
    let outcome = run(&i1, &i8, None, &CompareSettings::default());
    assert_eq!(outcome.verdict, Answer::Equal, "{outcome:?}");
    for other in [&u8, &b] {
        let outcome = run(&i1, other, None, &CompareSettings::default());
        assert_eq!(outcome.verdict, Answer::Different);
        assert_eq!(outcome.unmatched[0].what, "types differ");
    }
    // A golden file has no values to widen.
    let golden = folder.path().join("golden.tree");
    let settings = TreeSettings {
        bounds: vec![Bound::abs(1e-6)],
        chunk: 4096,
        planes: 4,
        ..TreeSettings::default()
    };
    let choice = CompareSettings::default();
    record_golden(side(&a, None).as_ref(), &choice, &settings, &golden, &|_, _| {}).unwrap();
    let outcome = run(&golden, &b, None, &CompareSettings::default());
    assert_eq!(outcome.verdict, Answer::Different);
}
