//! Packed integers are compared by the values that they stand for, on request: in files, and in a store.

use std::path::{Path, PathBuf};
use treering::{
    Answer, Bound, CompareSettings, Ingest, IngestSettings, Options, Outcome, RankFile, compare,
    open_side,
};

/// Attributes of a variable: the name, the number of the type in netCDF, the bytes of the values.
type Attributes<'a> = &'a [(&'a str, u32, Vec<u8>)];

/// A classic netCDF file of numbers of 16 bits.
fn netcdf(path: &Path, attributes: Attributes, numbers: &[i16]) {
    let mut out = b"CDF\x01\0\0\0\0".to_vec();
    let int = |out: &mut Vec<u8>, n: usize| out.extend((n as u32).to_be_bytes());
    let text = |out: &mut Vec<u8>, text: &str| {
        int(out, text.len());
        out.extend(text.bytes());
        out.resize(out.len().next_multiple_of(4), 0);
    };
    [10, 1].iter().for_each(|n| int(&mut out, *n));
    text(&mut out, "x");
    [numbers.len(), 0, 0, 11, 1].iter().for_each(|n| int(&mut out, *n));
    text(&mut out, "t");
    [1, 0, 12, attributes.len()].iter().for_each(|n| int(&mut out, *n));
    for (name, kind, bytes) in attributes {
        text(&mut out, name);
        let size = [0, 1, 1, 2, 4, 4, 8][*kind as usize];
        [*kind as usize, bytes.len() / size].iter().for_each(|n| int(&mut out, *n));
        out.extend(bytes);
        out.resize(out.len().next_multiple_of(4), 0);
    }
    let size = (2 * numbers.len()).next_multiple_of(4);
    let begin = out.len() + 12;
    [3, size, begin].iter().for_each(|n| int(&mut out, *n));
    numbers.iter().for_each(|number| out.extend(number.to_be_bytes()));
    out.resize(begin + size, 0);
    std::fs::write(path, out).unwrap();
}

fn packed(scale: f64, offset: f32, fill: i16) -> Vec<(&'static str, u32, Vec<u8>)> {
    vec![
        ("scale_factor", 6, scale.to_be_bytes().to_vec()),
        ("add_offset", 5, offset.to_be_bytes().to_vec()),
        ("_FillValue", 3, fill.to_be_bytes().to_vec()),
        ("units", 2, b"K".to_vec()),
    ]
}

fn compared(a: &str, b: &str, unpack: bool, bound: f64) -> Outcome {
    let [a, b] = [a, b].map(|place| open_side(place, None, true).unwrap());
    let settings = CompareSettings { unpack, ..CompareSettings::within(Bound::abs(bound)) };
    compare(a.as_ref(), b.as_ref(), &settings, None, &|_, _| {}).unwrap()
}

/// Compares two files, as they are and in a store, and one with the other.
fn everywhere(files: [&PathBuf; 2], unpack: bool, bound: f64, check: impl Fn(&Outcome)) {
    let folder = tempfile::tempdir().unwrap();
    let store = folder.path().join("store");
    for (run, path) in ["a", "b"].into_iter().zip(files) {
        let (path, name) = (path.clone(), "t.nc".to_string());
        let file = RankFile { rank: treering::Rank(0), path, like: name.clone(), name };
        let options = Options::directory(&store, run);
        let mut ingest = Ingest::open(options, IngestSettings::default()).unwrap();
        ingest.take(1, &[file], &|_, _| {}).unwrap();
    }
    let [a, b] = files.map(|path| path.display().to_string());
    let stored = |run: &str| format!("{}#{run}@1", store.display());
    for (x, y) in [(a, b.clone()), (stored("a"), stored("b")), (stored("a"), b)] {
        check(&compared(&x, &y, unpack, bound));
    }
}

#[test]
fn bounds_apply_to_unpacked_values() {
    let folder = tempfile::tempdir().unwrap();
    let [a, b] = ["a.nc", "b.nc"].map(|name| folder.path().join(name));
    let numbers: Vec<i16> = (-500..500).collect();
    let mut others = numbers.clone();
    others[700] += 1;
    netcdf(&a, &packed(0.5, 273.0, -500), &numbers);
    netcdf(&b, &packed(0.5, 273.0, -500), &others);
    everywhere([&a, &b], false, 0.6, |outcome| {
        assert_eq!((outcome.verdict, outcome.differences), (Answer::Different, 1), "{outcome:?}");
    });
    everywhere([&a, &b], true, 0.6, |outcome| {
        assert_eq!(outcome.verdict, Answer::Equal, "{outcome:?}");
    });
    everywhere([&a, &b], true, 0.4, |outcome| {
        assert_eq!((outcome.verdict, outcome.differences), (Answer::Different, 1), "{outcome:?}");
        assert_eq!(outcome.variables[0].first_index, Some(vec![700]));
        assert_eq!(outcome.variables[0].max_difference.0, 0.5);
    });
}

#[test]
fn values_packed_in_two_ways_are_the_same_values() {
    let folder = tempfile::tempdir().unwrap();
    let [a, b] = ["a.nc", "b.nc"].map(|name| folder.path().join(name));
    let numbers: Vec<i16> = (0..1000).map(|i| if i % 10 == 3 { -9 } else { i }).collect();
    let others: Vec<i16> =
        (0..1000).map(|i| if i % 10 == 3 { 7777 } else { 2 * i + 100 }).collect();
    netcdf(&a, &packed(0.5, 50.0, -9), &numbers);
    netcdf(&b, &packed(0.25, 25.0, 7777), &others);
    everywhere([&a, &b], true, 1e-9, |outcome| {
        assert_eq!(outcome.verdict, Answer::Equal, "{outcome:?}");
        assert_eq!(outcome.variables[0].nans, Some([100, 100]));
    });
    // A value that is missing on one side only, and an attribute that is no packing.
    let mut others = others;
    others[13] = 2 * 13 + 100;
    let mut attributes = packed(0.25, 25.0, 7777);
    attributes[3].2 = b"C".to_vec();
    netcdf(&b, &attributes, &others);
    everywhere([&a, &b], true, 1e-9, |outcome| {
        assert_eq!((outcome.verdict, outcome.differences), (Answer::Different, 1), "{outcome:?}");
        let items: Vec<&str> = outcome.contents.iter().map(|c| &c.item[..]).collect();
        assert_eq!(items, ["attribute units of t"]);
    });
}

#[test]
fn numbers_that_cannot_be_unpacked_are_not_compared() {
    let folder = tempfile::tempdir().unwrap();
    let [a, b] = ["a.nc", "b.nc"].map(|name| folder.path().join(name));
    let mut attributes = packed(0.5, 0.0, 1);
    attributes.push(("_Unsigned", 2, b"perhaps".to_vec()));
    netcdf(&a, &attributes, &[0, 5]);
    netcdf(&b, &attributes, &[-1, 5]);
    // Nothing else is in the files, so that nothing was compared at all: an error says why.
    let [a, b] = [&a, &b].map(|path| open_side(&path.display().to_string(), None, true).unwrap());
    let settings = CompareSettings { unpack: true, ..CompareSettings::within(Bound::abs(0.6)) };
    let error = compare(a.as_ref(), b.as_ref(), &settings, None, &|_, _| {}).unwrap_err();
    assert!(error.to_string().contains("_Unsigned"), "{error}");
}

/// Pairs of netCDF files as the library writes them, with and without HDF5.
#[test]
#[ignore = "its files are made by `make test`"]
fn packed_variables_of_netcdf() {
    let folder = std::env::var_os("TREERING_FILE_PAIRS").expect("`make test` makes the pairs");
    for (answer, expected) in [("equal", Answer::Equal), ("different", Answer::Different)] {
        let pairs = std::fs::read_dir(Path::new(&folder).join("unpacked").join(answer)).unwrap();
        let pairs: Vec<PathBuf> = pairs.map(|pair| pair.unwrap().path()).collect();
        assert_eq!(pairs.len(), 4);
        for pair in pairs {
            let [a, b] = ["a.nc", "b.nc"].map(|name| pair.join(name));
            everywhere([&a, &b], true, 0.6, |outcome| {
                assert_eq!(outcome.verdict, expected, "{}: {outcome:?}", pair.display());
                let count = u64::from(expected == Answer::Different);
                assert_eq!(outcome.differences, count, "{}", pair.display());
            });
        }
    }
}

/// Integers of a signed type stand for larger values if an attribute says that they have no sign.
#[test]
fn numbers_without_a_sign_stand_for_large_values() {
    let folder = tempfile::tempdir().unwrap();
    let [a, b] = ["a.nc", "b.nc"].map(|name| folder.path().join(name));
    let with = |word: &str, scale: f64, fill: i16| {
        let mut attributes = packed(scale, 1.0, fill);
        attributes.push(("_Unsigned", 2, word.as_bytes().to_vec()));
        attributes
    };
    let (large, fill) = (40_000u16 as i16, 65_000u16 as i16);
    netcdf(&a, &with("true", 0.5, fill), &[large, 5, fill, -1]);
    netcdf(&b, &packed(1.0, 1.0, 777), &[20_000, 2, 777, 32_767]);
    everywhere([&a, &b], true, 0.6, |outcome| {
        assert_eq!(outcome.verdict, Answer::Equal, "{outcome:?}");
        assert_eq!(outcome.variables[0].nans, Some([1, 1]));
    });
    everywhere([&a, &b], true, 0.4, |outcome| {
        assert_eq!((outcome.verdict, outcome.differences), (Answer::Different, 2), "{outcome:?}");
        assert_eq!(outcome.variables[0].first_index, Some(vec![1]));
    });
    netcdf(&b, &with("false", 0.5, fill), &[large, 5, fill, -1]);
    everywhere([&a, &b], true, 0.4, |outcome| {
        assert_eq!((outcome.verdict, outcome.differences), (Answer::Different, 2), "{outcome:?}");
        assert_eq!(outcome.variables[0].max_difference.0, 32_768.0);
    });
}
