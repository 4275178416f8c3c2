//! Arrays in C's order and in Fortran's are compared index by index, wherever they come from.

use crate::laws::files::npy;
use crate::laws::values::Dice;
use proptest::prelude::*;
use std::path::{Path, PathBuf};
use treering::{
    Answer, Bound, CompareSettings, DType, DifferenceList, Ingest, Options, Outcome, Rank,
    RankFile, Run, TreeSettings, TreedSide, Value, Variable, compare, make_trees_beside, open_side,
    record_golden,
};

/// Elements in C's order, in Fortran's.
fn in_fortran(shape: &[u64], size: usize, values: &[u8]) -> Vec<u8> {
    let count = values.len() / size;
    let mut out = vec![0; values.len()];
    for number in 0..count {
        let (mut rest, mut index) = (number as u64, vec![0; shape.len()]);
        for axis in (0..shape.len()).rev() {
            index[axis] = rest % shape[axis];
            rest /= shape[axis];
        }
        let place = (0..shape.len()).rev().fold(0, |at, axis| at * shape[axis] + index[axis]);
        out[place as usize * size..][..size].copy_from_slice(&values[number * size..][..size]);
    }
    out
}

fn floats(values: impl Iterator<Item = f64>) -> Vec<u8> {
    values.flat_map(f64::to_le_bytes).collect()
}

fn outcome(a: &str, b: &str, settings: &CompareSettings) -> Outcome {
    let [a, b] = [a, b].map(|place| open_side(place, None, true).unwrap());
    compare(a.as_ref(), b.as_ref(), settings, None, &|_, _| {}).unwrap()
}

const SHAPE: [u64; 3] = [13, 40, 21];

/// The values in both orders, and with another one at [7, 3, 20].
struct Places {
    _folder: tempfile::TempDir,
    folder: PathBuf,
    /// Values as they are, in both orders.
    same: Vec<String>,
    /// The changed ones, in both orders.
    changed: Vec<String>,
    /// The bytes of those in C's order, called Fortran's.
    mistaken: Vec<String>,
}

fn places() -> Places {
    let holder = tempfile::tempdir().unwrap();
    let folder = holder.path().to_path_buf();
    let count = SHAPE.iter().product::<u64>();
    let mut values: Vec<f64> = (0..count).map(|i| (i as f64).sqrt()).collect();
    let plain = floats(values.iter().copied());
    values[(7 * 40 + 3) * 21 + 20] += 1e-3;
    let changed = floats(values.into_iter());
    let mut places = Places {
        _folder: holder,
        folder: folder.clone(),
        same: Vec::new(),
        changed: Vec::new(),
        mistaken: Vec::new(),
    };
    let turned = |values: &[u8]| in_fortran(&SHAPE, 8, values);
    let cases = [
        ("c", plain.clone(), false),
        ("f", turned(&plain), true),
        ("c-changed", changed.clone(), false),
        ("f-changed", turned(&changed), true),
        ("mistaken", plain.clone(), true),
    ];
    let store = folder.join("store");
    for (name, bytes, fortran) in &cases {
        let path = folder.join(format!("{name}.npy"));
        std::fs::write(&path, npy(DType::F64, &SHAPE, *fortran, false, bytes)).unwrap();
        let mut run = Run::open(Options::directory(&store, name)).unwrap();
        let x = Variable::from_bytes("x", DType::F64, &SHAPE, bytes);
        let x = if *fortran { x.fortran() } else { x };
        run.checkpoint(3, &[x]).unwrap().durable().unwrap();
        run.finish().unwrap();
        let ingested = format!("{name}-file");
        let options = Options::directory(&store, &ingested);
        let mut ingest = Ingest::open(options, Default::default()).unwrap();
        let own = "x.npy".to_string();
        let file = RankFile { rank: Rank(0), path: path.clone(), like: own.clone(), name: own };
        ingest.take(3, &[file], &|_, _| {}).unwrap();
        let list = match name.split_once('-') {
            Some(_) => &mut places.changed,
            None if *name == "mistaken" => &mut places.mistaken,
            None => &mut places.same,
        };
        list.push(path.display().to_string());
        list.push(format!("{}#{name}", store.display()));
        list.push(format!("{}#{ingested}@3", store.display()));
    }
    places
}

#[test]
fn files_and_runs_are_compared_by_index_whatever_their_order() {
    let places = places();
    let bound = CompareSettings::within(Bound::abs(1e-6));
    for a in &places.same {
        for settings in [&CompareSettings::default(), &bound] {
            for b in &places.same {
                let outcome = outcome(a, b, settings);
                assert_eq!(outcome.verdict, Answer::Equal, "{a} {b}: {outcome:?}");
                assert!(outcome.contents.is_empty(), "{a} {b}");
            }
            for b in &places.changed {
                for (x, y) in [(a, b), (b, a)] {
                    let outcome = outcome(x, y, settings);
                    assert_eq!(outcome.differences, 1, "{x} {y}: {outcome:?}");
                    let first = outcome.first.unwrap();
                    assert_eq!(first.index, [7, 3, 20], "{x} {y}");
                    let value = (f64::from((7 * 40 + 3) * 21 + 20)).sqrt();
                    let own = if x == a { first.a } else { first.b };
                    assert_eq!(own, Some(Value::Float(value)), "{x} {y}");
                }
            }
        }
        // The same bytes, and not the same values at the same indices.
        for b in &places.mistaken {
            let outcome = outcome(a, b, &bound);
            assert_eq!(outcome.verdict, Answer::Different, "{a} {b}");
            assert!(outcome.differences > 9000, "{a} {b}: {}", outcome.differences);
        }
    }
    let within = CompareSettings::within(Bound::abs(1e-2));
    for b in &places.changed {
        assert_eq!(outcome(&places.same[0], b, &within).verdict, Answer::Equal, "{b}");
        assert_eq!(outcome(&places.same[3], b, &within).verdict, Answer::Equal, "{b}");
    }
}

/// Trees follow the order of memory: those of another order prove nothing.
#[test]
fn trees_of_another_order_are_not_used() {
    let places = places();
    let bounds = vec![Bound::abs(1e-6)];
    let settings = TreeSettings { bounds, chunk: 512, ..TreeSettings::default() };
    for place in places.same.iter().chain(&places.changed).chain(&places.mistaken) {
        if place.ends_with(".npy") {
            make_trees_beside(Path::new(place), None, &[], &settings, &|_, _| {}).unwrap();
        }
    }
    let within = CompareSettings::within(Bound::abs(1e-6));
    let [c, f] = [&places.same[0], &places.same[3]];
    assert_eq!(outcome(c, f, &within).verdict, Answer::Equal);
    // Roots of these trees are the same.
    assert_eq!(outcome(c, &places.mistaken[0], &within).verdict, Answer::Different);
    for other in [&places.changed[0], &places.changed[3]] {
        assert_eq!(outcome(c, other, &within).differences, 1, "{other}");
        assert_eq!(outcome(f, other, &within).differences, 1, "{other}");
    }
}

/// A golden file has trees alone: those of values in the other order are made in its order.
#[test]
fn golden_files_serve_arrays_in_any_order() {
    let places = places();
    for recorded in [&places.same[0], &places.same[3]] {
        let golden = places.folder.join("golden.tree");
        let bounds = vec![Bound::abs(1e-6)];
        let settings = TreeSettings { bounds, ..TreeSettings::default() };
        let side = open_side(recorded, None, true).unwrap();
        let choice = CompareSettings::default();
        record_golden(side.as_ref(), &choice, &settings, &golden, &|_, _| {}).unwrap();
        let golden = open_side(&golden.display().to_string(), None, true).unwrap();
        let check = |place: &str, treed: bool| {
            let now = open_side(place, None, true).unwrap();
            let made = TreedSide::new(now.as_ref(), golden.as_ref());
            let now = if treed { &made } else { now.as_ref() };
            let settings = CompareSettings { expected: true, ..CompareSettings::default() };
            compare(golden.as_ref(), now, &settings, None, &|_, _| {})
        };
        for (all, answer) in [
            (&places.same, Answer::Equal),
            (&places.changed, Answer::Different),
            (&places.mistaken, Answer::Different),
        ] {
            for place in [&all[0], all.last().unwrap()].into_iter().filter(|p| !p.contains("file"))
            {
                let outcome = check(place, true).unwrap();
                let wrong = place == recorded || !places.mistaken.contains(place);
                let expected = if wrong { answer } else { Answer::Different };
                assert_eq!(outcome.verdict, expected, "{recorded} {place}: {outcome:?}");
            }
        }
        // Without trees in its order, nothing is decided.
        for place in [&places.same[0], &places.same[3], &places.mistaken[0]] {
            match check(place, false) {
                Ok(outcome) => assert_eq!(outcome.verdict, Answer::Undecided, "{place}"),
                Err(error) => assert!(error.to_string().contains("no values"), "{error}"),
            }
        }
    }
}

/// Lists and the first difference are in the order of the first side; bits count, and types may differ in width.
#[test]
fn lists_bits_and_widths_of_other_orders() {
    let folder = tempfile::tempdir().unwrap();
    let shape = [30u64, 50];
    let a: Vec<f64> = (0..1500).map(f64::from).collect();
    let mut b: Vec<f32> = a.iter().map(|v| *v as f32).collect();
    for at in [1499, 50, 7] {
        b[at] += 0.5;
    }
    let narrow: Vec<u8> = b.iter().flat_map(|v| v.to_le_bytes()).collect();
    let write = |name: &str, dtype: DType, fortran: bool, bytes: &[u8]| {
        let path = folder.path().join(name);
        std::fs::write(&path, npy(dtype, &shape, fortran, true, bytes)).unwrap();
        path.display().to_string()
    };
    let c = write("c.npy", DType::F64, false, &floats(a.iter().copied()));
    let f = write("f.npy", DType::F32, true, &in_fortran(&shape, 4, &narrow));
    for (x, y, indices) in [
        (&c, &f, [[0, 7], [1, 0], [29, 49]]),
        // In Fortran's order, the second axis is the slowest.
        (&f, &c, [[1, 0], [0, 7], [29, 49]]),
    ] {
        let path = folder.path().join("list.jsonl");
        let mut list = DifferenceList::create(&path).unwrap();
        let [p, q] = [x, y].map(|place| open_side(place, None, true).unwrap());
        let settings = CompareSettings::default();
        let found =
            compare(p.as_ref(), q.as_ref(), &settings, Some(&mut list), &|_, _| {}).unwrap();
        assert_eq!((found.differences, list.finish().unwrap()), (3, 3));
        let text = std::fs::read_to_string(&path).unwrap();
        let listed = text.lines().map(|line| {
            let line: serde_json::Value = serde_json::from_str(line).unwrap();
            serde_json::from_value::<[u64; 2]>(line["index"].clone()).unwrap()
        });
        assert_eq!(listed.collect::<Vec<_>>(), indices);
        let first = CompareSettings { first: true, ..CompareSettings::default() };
        assert_eq!(outcome(x, y, &first).first.unwrap().index, indices[0]);
    }
    let zeros = |sign: f64| in_fortran(&shape, 8, &floats((0..1500).map(|_| 0.0 * sign)));
    let (plus, minus) = (zeros(1.0), zeros(-1.0));
    let c = write("plus.npy", DType::F64, false, &plus);
    let f = write("minus.npy", DType::F64, true, &minus);
    assert_eq!(outcome(&c, &f, &CompareSettings::default()).verdict, Answer::Equal);
    assert_eq!(outcome(&c, &f, &CompareSettings::within(Bound::Bits)).differences, 1500);
}

/// Boxes of one array, of which the sides have others and in another order.
#[test]
fn boxes_of_ranks_in_other_orders() {
    let folder = tempfile::tempdir().unwrap();
    let (store, global) = (folder.path().join("store"), [12u64, 10]);
    fn value(i: u64, j: u64) -> f64 {
        (i * 10 + j) as f64
    }
    // A box of whole rows, or of whole columns, of each of two ranks.
    let save = |name: &'static str, by_rows: bool, fortran: bool, odd: Option<[u64; 2]>| {
        let store = store.clone();
        let ends = treering::ThreadRanks::new(2).run(move |comm| {
            let rank = u64::from(comm.rank().0);
            let options = Options::directory(&store, name).ranks(comm.clone());
            let mut run = Run::open(options).unwrap();
            let extent = if by_rows { [6, 10] } else { [12, 5] };
            let offset = if by_rows { [6 * rank, 0] } else { [0, 5 * rank] };
            let values = (0..extent[0] * extent[1]).map(|at| {
                let (i, j) = (offset[0] + at / extent[1], offset[1] + at % extent[1]);
                value(i, j) + if odd == Some([i, j]) { 1.0 } else { 0.0 }
            });
            let bytes = floats(values);
            let bytes = if fortran { in_fortran(&extent, 8, &bytes) } else { bytes };
            let x = Variable::from_bytes("x", DType::F64, &extent, &bytes);
            let x = if fortran { x.fortran() } else { x };
            run.checkpoint(1, &[x.part_of(&global, &offset)]).unwrap();
            run.finish().unwrap();
        });
        assert!(ends.into_iter().all(|end| end.done().is_some()), "{name}");
    };
    save("rows", true, false, None);
    save("columns", false, true, None);
    save("same-boxes", true, true, None);
    save("odd", false, true, Some([7, 4]));
    save("odd-rows", true, true, Some([7, 4]));
    let place = |run: &str| format!("{}#{run}", store.display());
    let plain = CompareSettings::default();
    for [a, b] in [["rows", "columns"], ["columns", "rows"], ["rows", "same-boxes"]] {
        let found = outcome(&place(a), &place(b), &plain);
        assert_eq!(found.verdict, Answer::Equal, "{a} {b}: {found:?}");
    }
    for [a, b] in [["rows", "odd"], ["odd", "rows"], ["rows", "odd-rows"], ["odd-rows", "rows"]] {
        let found = outcome(&place(a), &place(b), &plain);
        assert_eq!(found.differences, 1, "{a} {b}: {found:?}");
        assert_eq!(found.first.unwrap().index, [7, 4], "{a} {b}");
    }
    // The whole array in a file.
    for fortran in [false, true] {
        let bytes = floats((0..120).map(|at| value(at / 10, at % 10)));
        let bytes = if fortran { in_fortran(&global, 8, &bytes) } else { bytes };
        let path = folder.path().join("x.npy");
        std::fs::write(&path, npy(DType::F64, &global, fortran, false, &bytes)).unwrap();
        let path = path.display().to_string();
        assert_eq!(outcome(&path, &place("rows"), &plain).verdict, Answer::Equal, "{fortran}");
        assert_eq!(outcome(&place("columns"), &path, &plain).verdict, Answer::Equal, "{fortran}");
        assert_eq!(outcome(&place("odd"), &path, &plain).differences, 1, "{fortran}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// The answer is that of a loop over all indices.
    #[test]
    fn any_shape_is_compared_by_index(
        shape in proptest::collection::vec(1u64..14, 0..5),
        seed: u64,
        changes in 0u64..4,
    ) {
        let folder = tempfile::tempdir().unwrap();
        let count = shape.iter().product::<u64>();
        let mut dice = Dice(seed);
        let a: Vec<u16> = (0..count).map(|_| dice.word() as u16).collect();
        let mut b = a.clone();
        (0..changes).for_each(|_| b[dice.below(count) as usize] ^= 1);
        let differences = a.iter().zip(&b).filter(|(x, y)| x != y).count() as u64;
        let bytes = |all: &[u16]| all.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<u8>>();
        let (x, y) = (folder.path().join("x.npy"), folder.path().join("y.npy"));
        std::fs::write(&x, npy(DType::U16, &shape, false, false, &bytes(&a))).unwrap();
        let turned = in_fortran(&shape, 2, &bytes(&b));
        std::fs::write(&y, npy(DType::U16, &shape, true, false, &turned)).unwrap();
        let [x, y] = [x, y].map(|path| path.display().to_string());
        for (p, q) in [(&x, &y), (&y, &x)] {
            prop_assert_eq!(outcome(p, q, &CompareSettings::default()).differences, differences);
        }
    }
}
