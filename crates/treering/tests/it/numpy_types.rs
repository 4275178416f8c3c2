//! Records, texts and long doubles of numpy are compared by what they mean, as files and in a store.

use std::path::Path;
use treering::{
    Answer, Bound, CompareSettings, Ingest, IngestSettings, Options, Outcome, Rank, RankFile,
    TreeSettings, compare, make_trees_beside, open_side, record_golden,
};

/// An `.npy` file of a type and a shape, as Python writes them.
fn npy(descr: &str, fortran: bool, shape: &str, values: &[u8]) -> Vec<u8> {
    let order = if fortran { "True" } else { "False" };
    let head = format!("{{'descr': {descr}, 'fortran_order': {order}, 'shape': {shape}, }}\n");
    let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
    bytes.extend((head.len() as u16).to_le_bytes());
    bytes.extend(head.as_bytes());
    bytes.extend(values);
    bytes
}

/// Compares two files, as they are, in a store, and one with the other.
fn everywhere(a: &[u8], b: &[u8], settings: &CompareSettings, check: impl Fn(&Outcome)) {
    let folder = tempfile::tempdir().unwrap();
    let store = folder.path().join("store");
    let [of_a, of_b] = [("a", a), ("b", b)].map(|(name, bytes)| {
        let path = folder.path().join(format!("{name}.npy"));
        std::fs::write(&path, bytes).unwrap();
        let own = "x.npy".to_string();
        let file = RankFile { rank: Rank(0), path: path.clone(), like: own.clone(), name: own };
        let options = Options::directory(&store, name);
        let mut ingest = Ingest::open(options, IngestSettings::default()).unwrap();
        ingest.take(1, &[file], &|_, _| {}).unwrap();
        path.display().to_string()
    });
    let stored = |run: &str| format!("{}#{run}@1", store.display());
    for (x, y) in [(of_a, of_b.clone()), (stored("a"), stored("b")), (stored("a"), of_b)] {
        let [x, y] = [x, y].map(|place| open_side(&place, None, true).unwrap());
        check(&compare(x.as_ref(), y.as_ref(), settings, None, &|_, _| {}).unwrap());
    }
}

/// Letters of four bytes each, with room for some of them.
fn letters(text: &str, room: usize, big: bool) -> Vec<u8> {
    let mut all: Vec<u32> = text.chars().map(u32::from).collect();
    all.resize(room, 0);
    all.iter().flat_map(|c| if big { c.to_be_bytes() } else { c.to_le_bytes() }).collect()
}

#[derive(Clone)]
struct Particle {
    x: f64,
    n: [i32; 3],
    name: &'static str,
    half: u16,
    when: i64,
}

fn particles(count: usize) -> Vec<Particle> {
    let one = |i: usize| Particle {
        x: i as f64 / 3.0,
        n: [i as i32, -1, 7],
        name: ["ab", "éa", "abc", ""][i % 4],
        // 1.5
        half: 0x3e00,
        when: 1_700_000_000 + i as i64,
    };
    (0..count).map(one).collect()
}

const PLAIN: &str = "[('x', '<f8'), ('n', '<i4', (3,)), ('in', [('name', '<U3'), ('half', '<f2')]), ('when', '<M8[s]')]";
const ALIGNED: &str = "[('x', '>f8'), ('n', '>i4', (3,)), ('', '|V4'), ('in', [('name', '>U5'), ('half', '<f2'), ('', '|V2')]), ('when', '>M8[s]')]";

fn plain(all: &[Particle]) -> Vec<u8> {
    let one = |p: &Particle| {
        let mut out = p.x.to_le_bytes().to_vec();
        p.n.iter().for_each(|n| out.extend(n.to_le_bytes()));
        out.extend(letters(p.name, 3, false));
        out.extend(p.half.to_le_bytes());
        out.extend(p.when.to_le_bytes());
        out
    };
    all.iter().flat_map(one).collect()
}

/// The same with padding, other bytes in it, more room for texts, and another order of bytes.
fn aligned(all: &[Particle]) -> Vec<u8> {
    let one = |p: &Particle| {
        let mut out = p.x.to_be_bytes().to_vec();
        p.n.iter().for_each(|n| out.extend(n.to_be_bytes()));
        out.extend([0xab; 4]);
        out.extend(letters(p.name, 5, true));
        out.extend(p.half.to_le_bytes());
        out.extend([0xcd; 2]);
        out.extend(p.when.to_be_bytes());
        out
    };
    all.iter().flat_map(one).collect()
}

#[test]
fn records_are_compared_member_by_member() {
    let all = particles(3000);
    let bound = CompareSettings::within(Bound::abs(1e-3));
    let a = npy(PLAIN, false, "(3000,)", &plain(&all));
    let mut near = all.clone();
    near.iter_mut().for_each(|p| p.x += 1e-4);
    let b = npy(ALIGNED, false, "(3000,)", &aligned(&near));
    everywhere(&a, &b, &bound, |outcome| {
        assert_eq!(outcome.verdict, Answer::Equal, "{outcome:?}");
        assert_eq!(outcome.variables.len(), 5);
    });
    everywhere(&a, &b, &CompareSettings::default(), |outcome| {
        assert_eq!(outcome.differences, 3000);
        assert!(outcome.first.as_ref().unwrap().variable.ends_with(".x"), "{outcome:?}");
    });
    let changed = |change: &dyn Fn(&mut Particle)| {
        let mut all = all.clone();
        change(&mut all[1234]);
        npy(ALIGNED, false, "(3000,)", &aligned(&all))
    };
    type Case<'c> = (&'c dyn Fn(&mut Particle), &'c str, &'c [u64], &'c str);
    let cases: [Case; 5] = [
        (&|p| p.x += 0.1, ".x", &[1234], ""),
        (&|p| p.n[1] = 5, ".n", &[1234, 1], "5"),
        (&|p| p.name = "other", ".in.name", &[1234], "\"other\""),
        // 1.502
        (&|p| p.half = 0x3e02, ".in.half", &[1234], ""),
        (&|p| p.when += 1, ".when", &[1234], "1700001235"),
    ];
    for (change, name, index, shown) in cases {
        everywhere(&a, &changed(change), &bound, |outcome| {
            assert_eq!(outcome.differences, 1, "{name}: {outcome:?}");
            let first = outcome.first.as_ref().unwrap();
            assert!(first.variable.ends_with(name), "{name}: {outcome:?}");
            assert_eq!(first.index, index, "{name}");
            let b = first.b.as_ref().unwrap().to_string();
            assert!(shown.is_empty() || b == shown, "{name}: {b}");
        });
    }
    // The half-precision member within a bound.
    let wide = CompareSettings::within(Bound::abs(0.01));
    everywhere(&a, &changed(&|p| p.half = 0x3e02), &wide, |outcome| {
        assert_eq!(outcome.verdict, Answer::Equal, "{outcome:?}");
    });
    // A bound for all members of the array.
    let named = CompareSettings {
        bounds: vec![("*".into(), Bound::abs(1e-3))],
        ..CompareSettings::default()
    };
    everywhere(&a, &b, &named, |outcome| {
        assert_eq!(outcome.verdict, Answer::Equal, "{outcome:?}");
    });
}

#[test]
fn other_names_kinds_and_extents_of_members_are_differences() {
    let bytes = [0u8; 24];
    let of = |descr: &str, bytes: &[u8]| npy(descr, false, "(2,)", bytes);
    let one = of("[('a', '<f8'), ('b', '<i4')]", &bytes);
    for (other, len) in [
        ("[('a', '<f8'), ('c', '<i4')]", 24),
        ("[('b', '<i4'), ('a', '<f8')]", 24),
        ("[('a', '<f8'), ('b', '<u4')]", 24),
        ("[('a', '<f8'), ('b', '<i4'), ('c', '|i1')]", 26),
        ("[('a', '<f8'), ('b', '<i4', (1,))]", 24),
        ("[('a', '<f8'), ('b', '|S4')]", 24),
    ] {
        everywhere(&one, &of(other, &[0; 26][..len]), &CompareSettings::default(), |outcome| {
            assert_eq!(outcome.verdict, Answer::Different, "{other}: {outcome:?}");
        });
    }
    let wider = of("[('a', '<f4'), ('b', '<i8')]", &bytes);
    everywhere(&one, &wider, &CompareSettings::default(), |outcome| {
        assert_eq!(outcome.verdict, Answer::Equal, "{outcome:?}");
    });
    // Another unit of time.
    let seconds = npy("'<M8[s]'", false, "(2,)", &[1; 16]);
    let days = npy("'<M8[D]'", false, "(2,)", &[1; 16]);
    let numbers = npy("'<i8'", false, "(2,)", &[1; 16]);
    let chosen = CompareSettings { variables: vec!["*".into()], ..CompareSettings::default() };
    for settings in [&CompareSettings::default(), &chosen] {
        for other in [&days, &numbers] {
            everywhere(&seconds, other, settings, |outcome| {
                assert_eq!(outcome.verdict, Answer::Different, "{outcome:?}");
            });
        }
        everywhere(&seconds, &seconds, settings, |outcome| {
            assert_eq!(outcome.verdict, Answer::Equal, "{outcome:?}");
        });
    }
}

#[test]
fn records_in_fortran_order_are_compared_by_index() {
    let descr = "[('a', '<f4'), ('n', '|u1', (2,))]";
    let value = |i: u64, j: u64| {
        let mut out = ((i * 10 + j) as f32).to_le_bytes().to_vec();
        out.extend([i as u8, j as u8]);
        out
    };
    let c: Vec<u8> = (0..6).flat_map(|i| (0..5).flat_map(move |j| value(i, j))).collect();
    let f: Vec<u8> = (0..5).flat_map(|j| (0..6).flat_map(move |i| value(i, j))).collect();
    let mut changed = f.clone();
    // The second number of [2, 3].
    changed[(3 * 6 + 2) * 6 + 5] = 9;
    let plain = CompareSettings::default();
    let one = npy(descr, false, "(6, 5)", &c);
    everywhere(&one, &npy(descr, true, "(6, 5)", &f), &plain, |outcome| {
        assert_eq!(outcome.verdict, Answer::Equal, "{outcome:?}");
    });
    everywhere(&one, &npy(descr, true, "(6, 5)", &changed), &plain, |outcome| {
        assert_eq!(outcome.differences, 1, "{outcome:?}");
        assert_eq!(outcome.first.as_ref().unwrap().index, [2, 3, 1]);
    });
    everywhere(&one, &npy(descr, true, "(6, 5)", &c), &plain, |outcome| {
        assert_eq!(outcome.verdict, Answer::Different, "{outcome:?}");
    });
}

#[test]
fn texts_are_compared_whatever_room_they_have() {
    let words = ["ab", "", "abc", "a\0b"];
    let wide = |room: usize, big: bool| -> Vec<u8> {
        words.iter().flat_map(|word| letters(word, room, big)).collect()
    };
    let narrow = |room: usize| -> Vec<u8> {
        let one = |word: &&str| {
            let mut bytes = word.as_bytes().to_vec();
            bytes.resize(room, 0);
            bytes
        };
        words.iter().flat_map(one).collect()
    };
    let of = |descr: &str, bytes: &[u8]| npy(descr, false, "(2, 2)", bytes);
    let equal = |a: &[u8], b: &[u8]| {
        everywhere(a, b, &CompareSettings::default(), |outcome| {
            assert_eq!(outcome.verdict, Answer::Equal, "{outcome:?}");
        });
    };
    let three = of("'<U3'", &wide(3, false));
    equal(&three, &of("'<U5'", &wide(5, false)));
    equal(&three, &of("'>U4'", &wide(4, true)));
    equal(&of("'|S3'", &narrow(3)), &of("'|S7'", &narrow(7)));
    let mut other = wide(5, false);
    other[4 * (2 * 5 + 3)] = b'd';
    everywhere(&three, &of("'<U5'", &other), &CompareSettings::default(), |outcome| {
        assert_eq!(outcome.differences, 1, "{outcome:?}");
        let first = outcome.first.as_ref().unwrap();
        assert_eq!(first.index, [1, 0]);
        let shown = [&first.a, &first.b].map(|value| value.as_ref().unwrap().to_string());
        assert_eq!(shown, ["\"abc\"", "\"abcd\""]);
    });
    // Numbers that are no letters are not alike.
    let odd = |last: u8| npy("'<U1'", false, "(1,)", &[0, 0, 0xff, last]);
    everywhere(&odd(1), &odd(2), &CompareSettings::default(), |outcome| {
        assert_eq!(outcome.differences, 1, "{outcome:?}");
    });
}

/// A long double of x86 in 16 bytes: the last bits of its fraction, the exponent, and padding.
fn long_double(last: u64, exponent: i32, padding: u8) -> Vec<u8> {
    let mut bytes = (1 << 63 | last).to_le_bytes().to_vec();
    bytes.extend(((exponent + 16383) as u16).to_le_bytes());
    bytes.extend([padding; 6]);
    bytes
}

#[test]
fn bounds_hold_for_long_doubles() {
    // Numbers from 1 on, apart by less than an f64 can tell.
    let values = |add: u64, padding: u8| -> Vec<u8> {
        (0..500).flat_map(|i| long_double(i + add, 0, padding)).collect()
    };
    let of = |values: &[u8]| npy("'<f16'", false, "(500,)", values);
    let (a, b) = (of(&values(0, 0)), of(&values(1, 0x5a)));
    let least = 2f64.powi(-63);
    for (bound, differences) in [
        (Bound::EQUAL, 500),
        (Bound::Bits, 500),
        (Bound::abs(least), 0),
        (Bound::abs(least * 0.999_999), 500),
        // 1 + i·2^-63 times the bound, which is a little less than it should be.
        (Bound::rel(least * 0.999_999_9), 500),
        (Bound::rel(least), 0),
        (Bound::Ulp(1), 0),
        (Bound::Ulp(0), 500),
    ] {
        everywhere(&a, &b, &CompareSettings::within(bound), |outcome| {
            assert_eq!(outcome.differences, differences, "{bound}: {outcome:?}");
            assert_eq!(outcome.verdict == Answer::Equal, differences == 0, "{bound}");
            if differences > 0 && bound != Bound::Bits {
                assert_eq!(outcome.variables[0].max_difference.0, least, "{bound}");
                let first = outcome.first.as_ref().unwrap();
                let shown = [&first.a, &first.b].map(|value| value.as_ref().unwrap().to_string());
                assert_eq!(shown[0], "1.0");
                assert!(shown[1].starts_with("1.0000000000000000001084"), "{shown:?}");
            }
        });
    }
    // Padding does not count.
    for bound in [Bound::EQUAL, Bound::Bits] {
        everywhere(&a, &of(&values(0, 0x5a)), &CompareSettings::within(bound), |outcome| {
            assert_eq!(outcome.verdict, Answer::Equal, "{outcome:?}");
        });
    }
    let mut nan = values(0, 0);
    nan[16 * 70..16 * 71].copy_from_slice(&long_double(1 << 62, 16384, 0));
    let nan = of(&nan);
    for nan_equal in [true, false] {
        let settings = CompareSettings { nan_equal, ..CompareSettings::default() };
        everywhere(&nan, &nan, &settings, |outcome| {
            assert_eq!(outcome.differences, u64::from(!nan_equal), "{outcome:?}");
        });
    }
    // Beyond all of f64.
    let [huge, other] = [10_000, 10_001].map(|e| npy("'<f16'", false, "()", &long_double(0, e, 0)));
    everywhere(&huge, &other, &CompareSettings::within(Bound::rel(0.4)), |outcome| {
        assert_eq!(outcome.differences, 1, "{outcome:?}");
    });
    everywhere(&huge, &other, &CompareSettings::within(Bound::rel(0.5)), |outcome| {
        assert_eq!(outcome.verdict, Answer::Equal, "{outcome:?}");
    });
}

/// Long doubles of other machines have their bits elsewhere, and nothing in the file tells.
#[test]
fn long_doubles_of_other_machines_are_not_compared() {
    let folder = tempfile::tempdir().unwrap();
    let quad = |number: u128| {
        let path = folder.path().join(format!("{number:x}.npy"));
        std::fs::write(&path, npy("'<f16'", false, "(1,)", &number.to_le_bytes())).unwrap();
        open_side(&path.display().to_string(), None, true).unwrap()
    };
    let (one, two) = (quad(0x3fff << 112), quad(0x4000 << 112));
    for settings in [CompareSettings::default(), CompareSettings::within(Bound::rel(0.9))] {
        match compare(one.as_ref(), two.as_ref(), &settings, None, &|_, _| {}) {
            Ok(outcome) => assert_eq!(outcome.verdict, Answer::Undecided, "{outcome:?}"),
            Err(error) => assert!(error.to_string().contains("x86"), "{error}"),
        }
    }
}

/// Trees are those of numbers of up to eight bytes: none is made that would prove too much.
#[test]
fn long_doubles_get_no_trees() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.npy");
    let values: Vec<u8> = (0..500).flat_map(|i| long_double(i, 0, 0)).collect();
    std::fs::write(&path, npy("'<f16'", false, "(500,)", &values)).unwrap();
    let settings = TreeSettings { bounds: vec![Bound::abs(1e-6)], ..TreeSettings::default() };
    let none = |_, _| {};
    assert!(make_trees_beside(Path::new(&path), None, &[], &settings, &none).is_err());
    let side = open_side(&path.display().to_string(), None, true).unwrap();
    let golden = folder.path().join("golden.tree");
    let choice = CompareSettings::default();
    let error = record_golden(side.as_ref(), &choice, &settings, &golden, &none).unwrap_err();
    assert!(error.to_string().contains("long doubles"), "{error}");
}
