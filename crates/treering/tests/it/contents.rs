//! Content of files beside arrays, and arrays that were not taken apart: two files that differ there are
//! never called equal, and two that differ in their layout only are.
//!
//! The pairs of files come from `make_pairs.py` (`make test`), which sets TREERING_FILE_PAIRS.

use std::path::{Path, PathBuf};
use treering::{
    Answer, Bound, CompareSettings, Ingest, IngestSettings, Library, Options, Outcome, RankFile,
    compare, open_side, open_side_following,
};

fn ingest(store: &Path, run: &str, file: &Path) {
    let name = "out.h5".to_string();
    let file = RankFile { rank: treering::Rank(0), path: file.into(), like: name.clone(), name };
    let options = Options::directory(store, run);
    let mut ingest = Ingest::open(options, IngestSettings::default()).unwrap();
    ingest.take(1, &[file], &|_, _| {}).unwrap();
}

fn tried(a: &str, b: &str) -> treering::Result<Outcome> {
    let [a, b] = [a, b].map(|place| open_side(place, None, true).unwrap());
    let settings = CompareSettings::within(Bound::abs(1e-3));
    compare(a.as_ref(), b.as_ref(), &settings, None, &|_, _| {})
}

fn compared(a: &str, b: &str) -> Outcome {
    tried(a, b).unwrap()
}

/// A safetensors file of one tensor, with metadata in this order.
fn safetensors(path: &Path, metadata: &[(&str, &str)], value: f32) {
    let texts = metadata.iter().map(|(key, text)| format!("{key:?}:{text:?}"));
    let texts = texts.collect::<Vec<_>>().join(",");
    let head = format!(
        "{{\"__metadata__\":{{{texts}}},\"x\":{{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}}}"
    );
    let mut bytes = (head.len() as u64).to_le_bytes().to_vec();
    bytes.extend(head.bytes());
    bytes.extend(value.to_le_bytes());
    std::fs::write(path, bytes).unwrap();
}

/// A comparison that leaves out every array says nothing of values, and reports that.
#[test]
fn nothing_is_equal_if_every_array_is_left_out() {
    let folder = tempfile::tempdir().unwrap();
    let [a, b, other] =
        ["a", "b", "other"].map(|name| folder.path().join(format!("{name}.safetensors")));
    safetensors(&a, &[("epoch", "3")], 1.0);
    safetensors(&b, &[("epoch", "3")], 2.0);
    safetensors(&other, &[("epoch", "4")], 2.0);
    let without_arrays = |b: &Path| {
        let [a, b] =
            [&a, b].map(|path| open_side(&path.display().to_string(), None, true).unwrap());
        let settings = CompareSettings { exclude: vec!["*".into()], ..CompareSettings::default() };
        compare(a.as_ref(), b.as_ref(), &settings, None, &|_, _| {})
    };
    let error = without_arrays(&b).unwrap_err();
    assert!(error.to_string().contains("nothing to compare"), "{error}");
    assert_eq!(without_arrays(&other).unwrap().verdict, Answer::Different);
}

/// Two long doubles that are the same f64 are not the same.
#[test]
#[ignore = "its pairs of files are made by `make test`"]
fn long_doubles_are_compared_exactly_without_a_bound() {
    for (name, differences) in [("long-double-within", 1), ("long-double-with-junk", 0)] {
        let named = |(a, _): &(PathBuf, PathBuf)| a.parent().unwrap().ends_with(name);
        let (a, b) = pairs("equal").into_iter().find(named).unwrap();
        let [a, b] = [a, b].map(|path| open_side(&path.display().to_string(), None, true).unwrap());
        for nan_equal in [true, false] {
            let settings = CompareSettings { nan_equal, ..CompareSettings::default() };
            let outcome = compare(a.as_ref(), b.as_ref(), &settings, None, &|_, _| {}).unwrap();
            assert_eq!(outcome.differences, differences, "{name}: {outcome:?}");
            assert_eq!(outcome.verdict == Answer::Equal, differences == 0, "{name}");
        }
    }
}

/// Metadata of files is compared, in whatever order it stands, on a disk and in a store.
#[test]
fn metadata_is_content_and_its_order_is_not() {
    let one: &[(&str, &str)] = &[("format", "pt"), ("epoch", "3")];
    let turned: &[(&str, &str)] = &[("epoch", "3"), ("format", "pt")];
    let other: &[(&str, &str)] = &[("format", "pt"), ("epoch", "4")];
    for (metadata, value, answer) in [
        (one, 1.0, Answer::Equal),
        (turned, 1.0001, Answer::Equal),
        (other, 1.0001, Answer::Different),
        (&one[..1], 1.0, Answer::Different),
        (turned, 2.0, Answer::Different),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let [a, b] = ["a", "b"].map(|name| folder.path().join(format!("{name}.safetensors")));
        safetensors(&a, one, 1.0);
        safetensors(&b, metadata, value);
        let store = folder.path().join("store");
        ingest(&store, "a", &a);
        ingest(&store, "b", &b);
        let stored = |run: &str| format!("{}#{run}@1", store.display());
        let [of_a, of_b] = [&a, &b].map(|path| path.display().to_string());
        for (x, y) in [(of_a, of_b.clone()), (stored("a"), stored("b")), (stored("a"), of_b)] {
            let outcome = compared(&x, &y);
            assert_eq!(outcome.verdict, answer, "{x} {y} {metadata:?} {value}: {outcome:?}");
            let named = outcome.contents.first().is_some_and(|c| c.item == "metadata epoch");
            assert_eq!(named, metadata != one && metadata != turned, "{outcome:?}");
        }
        // A choice of variables compares variables alone.
        let [a, b] = [stored("a"), stored("b")].map(|place| open_side(&place, None, true).unwrap());
        let bound = Some(Bound::abs(1e-3));
        let settings =
            CompareSettings { bound, variables: vec!["x".into()], ..CompareSettings::default() };
        let outcome = compare(a.as_ref(), b.as_ref(), &settings, None, &|_, _| {}).unwrap();
        assert_eq!(outcome.equal, value < 1.5);
    }
}

/// The pairs of an answer.
fn pairs(answer: &str) -> Vec<(PathBuf, PathBuf)> {
    let folder = std::env::var_os("TREERING_FILE_PAIRS").expect("`make test` makes the pairs");
    let folder = Path::new(&folder).join(answer);
    let mut all = Vec::new();
    for pair in std::fs::read_dir(folder).unwrap() {
        let files = std::fs::read_dir(pair.unwrap().path()).unwrap();
        let mut files: Vec<PathBuf> = files.map(|file| file.unwrap().path()).collect();
        files.sort();
        // Beside the pair there may be what is expected of it.
        all.push((files[0].clone(), files[1].clone()));
    }
    all.sort();
    assert!(!all.is_empty());
    all
}

/// Compares the pairs of an answer as files, in a store, and one against the other.
fn check(answer: &str, right: impl Fn(&Outcome) -> bool) {
    let mut wrong = Vec::new();
    for (a, b) in pairs(answer) {
        let folder = tempfile::tempdir().unwrap();
        let store = folder.path();
        ingest(store, "a", &a);
        ingest(store, "b", &b);
        let stored = |run: &str| format!("{}#{run}@1", store.display());
        let [of_a, of_b] = [&a, &b].map(|path| path.display().to_string());
        for (x, y) in [(of_a, of_b.clone()), (stored("a"), stored("b")), (stored("a"), of_b)] {
            let outcome = compared(&x, &y);
            if !right(&outcome) {
                let sentence = outcome.sentence();
                let why = (&outcome.unmatched, &outcome.contents, &outcome.not_compared);
                wrong.push(format!("{x} and {y}: {sentence}\n  {why:?}"));
            }
        }
        // A file is itself, however it is read.
        for x in [stored("a"), a.display().to_string()] {
            let outcome = compared(&stored("a"), &x);
            // Only the folder of a file tells which others hold its values.
            let elsewhere = a.display().to_string().contains("virtual");
            let same = outcome.verdict == Answer::Equal || elsewhere;
            if !same {
                wrong.push(format!("{x} and itself: {outcome:?}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
#[ignore = "its pairs of files are made by `make test`"]
fn files_that_differ_beside_their_arrays_are_different() {
    check("different", |outcome| outcome.verdict == Answer::Different);
}

#[test]
#[ignore = "its pairs of files are made by `make test`"]
fn files_that_differ_in_their_layout_are_equal() {
    check("equal", |outcome| outcome.verdict == Answer::Equal);
}

#[test]
#[ignore = "its pairs of files are made by `make test`"]
fn files_that_nobody_understands_are_never_equal() {
    check("unknown", |outcome| outcome.verdict != Answer::Equal);
}

/// A difference as a test expects it: variable, index, and both values as they are shown.
type Told = (String, Vec<u64>, String, String);

/// Differences of records, texts, references and other values are told by member, index and value, of files and from
/// a store.
#[test]
#[ignore = "its pairs of files are made by `make test`"]
fn differences_are_told_by_member_and_index() {
    for (a, b) in pairs("reported") {
        let folder = a.parent().unwrap();
        let expected = std::fs::read(folder.join("expected.json")).unwrap();
        let expected: Vec<Told> = serde_json::from_slice(&expected).unwrap();
        let store = tempfile::tempdir().unwrap();
        ingest(store.path(), "a", &a);
        ingest(store.path(), "b", &b);
        let stored = |run: &str| format!("{}#{run}@1", store.path().display());
        let [of_a, of_b] = [&a, &b].map(|path| path.display().to_string());
        for (x, y) in [(of_a, of_b.clone()), (stored("a"), stored("b")), (stored("a"), of_b)] {
            let [p, q] = [&x, &y].map(|place| open_side(place, None, true).unwrap());
            let bound = Some(Bound::abs(1e-3));
            let settings = CompareSettings { bound, examples: 9, ..CompareSettings::default() };
            let outcome = compare(p.as_ref(), q.as_ref(), &settings, None, &|_, _| {}).unwrap();
            // A file that is named alone does not stand in names of variables; one in a store does.
            let own_name = |name: &str| {
                let own = name.strip_prefix("out.h5/");
                assert_eq!(own.is_some(), x == stored("a"), "{name}");
                own.unwrap_or(name).to_string()
            };
            let mut told: Vec<Told> = Vec::new();
            for variable in &outcome.variables {
                assert_eq!(variable.differences, variable.examples.len() as u64);
                told.extend(variable.examples.iter().map(|example| {
                    let values = [&example.a, &example.b].map(|value| value.to_string());
                    let [a, b] = values;
                    (own_name(&variable.name), example.index.clone(), a, b)
                }));
            }
            told.sort();
            assert_eq!(told.len(), expected.len(), "{x} {y}: {told:?} {outcome:?}");
            for (told, expected) in told.iter().zip(&expected) {
                assert_eq!((&told.0, &told.1), (&expected.0, &expected.1), "{x} {y}");
                // Names of numbers are known where types are read anyway; long numbers have more digits.
                let alike = |told: &str, right: &str| {
                    told.starts_with(right) || right.ends_with(&format!("({told})"))
                };
                assert!(alike(&told.2, &expected.2) && alike(&told.3, &expected.3), "{told:?}");
            }
            let first = outcome.first.as_ref().unwrap();
            let first = (own_name(&first.variable), first.index.clone());
            assert!(told.iter().any(|(name, index, ..)| (name, index) == (&first.0, &first.1)));
            assert!(outcome.contents.is_empty() && outcome.unmatched.is_empty(), "{outcome:?}");
        }
    }
}

/// Values in other files are read through; those that are missing are never called equal.
#[test]
#[ignore = "its pairs of files are made by `make test`"]
fn values_in_other_files_are_compared() {
    for (answer, right) in
        [("equal", Answer::Equal), ("different", Answer::Different), ("unknown", Answer::Undecided)]
    {
        let folder = std::env::var_os("TREERING_FILE_PAIRS").expect("`make test` makes the pairs");
        let folder = Path::new(&folder).join("outside").join(answer);
        for pair in std::fs::read_dir(folder).unwrap() {
            let pair = pair.unwrap().path();
            let [a, b] = ["a.h5", "b.h5"].map(|name| pair.join(name).display().to_string());
            for (x, y) in [(&a, &b), (&b, &a)] {
                // Of these files nothing at all can be compared.
                if pair.ends_with("external-gone") {
                    assert!(tried(x, y).unwrap_err().to_string().contains("missing"), "{x} {y}");
                    continue;
                }
                let outcome = compared(x, y);
                assert_eq!(outcome.verdict, right, "{x} {y}: {outcome:?}");
                let whole = [
                    "joined",
                    "joined-both",
                    "narrow",
                    "strided",
                    "named",
                    "external",
                    "linked",
                    "pattern",
                    "pattern-longer",
                    "grown",
                    "grown-longer",
                    "uneven",
                ];
                let whole = whole.iter().any(|name| pair.ends_with(name));
                assert_eq!(outcome.not_compared.is_empty(), whole, "{x} {y}: {outcome:?}");
            }
            // The same bytes in the same folder have the same values, also of files that are missing.
            for place in [&a, &b] {
                assert_eq!(compared(place, place).verdict, Answer::Equal, "{place}");
            }
            // An ingested file has no folder: these values are unknown. If there is nothing else, that is an error.
            let store = tempfile::tempdir().unwrap();
            ingest(store.path(), "b", Path::new(&b));
            let stored = format!("{}#b@1", store.path().display());
            let equal = tried(&stored, &a).is_ok_and(|outcome| outcome.verdict == Answer::Equal);
            assert!(!equal, "{stored} {a}");
        }
    }
}

/// Links are compared by where they lead to, or by what they lead to.
#[test]
#[ignore = "its pairs of files are made by `make test`"]
fn links_are_followed_on_request() {
    let folder = std::env::var_os("TREERING_FILE_PAIRS").expect("`make test` makes the pairs");
    let pair = Path::new(&folder).join("outside/different/linked");
    let [a, b] = ["a.h5", "b.h5"].map(|name| pair.join(name).display().to_string());
    let items = |outcome: &Outcome| -> Vec<String> {
        outcome.contents.iter().map(|content| content.item.clone()).collect()
    };
    let outcome = compared(&a, &b);
    assert_eq!(items(&outcome), ["link away", "link soft", "link soft records"], "{outcome:?}");
    let followed = |file: &str| open_side_following(file, None, true).unwrap();
    let settings = CompareSettings::within(Bound::abs(1e-3));
    let none = |_, _| {};
    let outcome = compare(&*followed(&a), &*followed(&b), &settings, None, &none).unwrap();
    assert_eq!(outcome.verdict, Answer::Equal, "{outcome:?}");
    for name in ["soft", "away/z", "soft records.x", "soft records.in.y"] {
        assert!(outcome.variables.iter().any(|v| v.name == name), "{name}: {outcome:?}");
    }
    let exact = CompareSettings::default();
    let outcome = compare(&*followed(&a), &*followed(&b), &exact, None, &none).unwrap();
    let differing: Vec<&str> =
        outcome.variables.iter().filter(|v| v.differences > 0).map(|v| v.name.as_str()).collect();
    assert_eq!(differing, ["y", "away/z", "soft"], "{outcome:?}");
    // A named object is what its name leads to.
    let outcome = compared(&format!("{a}:/away"), &format!("{b}:/away/"));
    assert_eq!((outcome.verdict, outcome.variables.len()), (Answer::Equal, 1), "{outcome:?}");
    let outcome = compared(&format!("{a}:/soft"), &format!("{b}:/x"));
    assert_eq!((outcome.verdict, outcome.variables.len()), (Answer::Equal, 1), "{outcome:?}");
    assert!(open_side(&format!("{a}:/nowhere"), None, true).is_err());
}

/// Kinds, links, attributes, packing and texts are seen through the same view of a file: all of it, one object, or what links
/// lead to.
#[test]
#[ignore = "its pairs of files are made by `make test`"]
fn objects_and_what_links_lead_to_are_compared_as_a_whole() {
    use Answer::{Different, Equal};
    let folder = std::env::var_os("TREERING_FILE_PAIRS").expect("`make test` makes the pairs");
    let folder = Path::new(&folder).join("objects");
    let answer = |a: &str, b: &str, follow: bool, settings: &CompareSettings| {
        let open = if follow { open_side_following } else { open_side };
        let [a, b] = [a, b].map(|name| open(&folder.join(name).display().to_string(), None, true));
        compare(&*a.unwrap(), &*b.unwrap(), settings, None, &|_, _| {})
    };
    let plain = CompareSettings::default();
    for (a, b, follow, expected) in [
        // A dataset is no group, and arrays of other names are others.
        ("kind-a.h5", "kind-b.h5", false, Different),
        ("lone-a.h5", "lone-b.h5", false, Different),
        ("lone-a.npz", "lone-b.npz", false, Different),
        ("lone-a.h5:p", "lone-b.h5:/q", false, Equal),
        // Links are followed in a named group, too.
        ("links-a.h5:g", "links-b.h5:g", false, Equal),
        ("links-a.h5:g", "links-b.h5:g", true, Different),
        // An object of a group belongs to it, whatever other names it has.
        ("hard-a.h5:g", "hard-b.h5:g", false, Different),
        ("hard-a.h5:g", "hard-a.h5:g", false, Equal),
        // Names of one object, if links are followed, are as good as equal objects.
        ("two-names.h5", "two-objects.h5", false, Different),
        ("two-names.h5", "two-objects.h5", true, Equal),
        ("groups.h5:g1", "groups.h5:g2", false, Equal),
        ("groups.h5", "groups.h5", true, Equal),
        // Attributes behind links, links behind links, and objects without arrays.
        ("away-a.h5", "away-b.h5", false, Different),
        ("away-a.h5", "away-b.h5", true, Different),
        ("away-a.h5", "away-a.h5", true, Equal),
        ("away-a.h5", "real.h5", true, Equal),
        ("away-b.h5", "real.h5", true, Different),
        ("nest-a.h5", "nest-b.h5", true, Different),
        ("nest-a.h5", "nest-a.h5", true, Equal),
        ("empty-a.h5", "empty-b.h5", true, Different),
        // Texts by what they say.
        ("texts-a.h5", "texts-b.h5", false, Equal),
        ("texts-a.h5", "texts-c.h5", false, Equal),
        ("texts-c.h5", "texts-d.h5", false, Different),
    ] {
        let outcome = answer(a, b, follow, &plain).unwrap();
        assert_eq!(outcome.verdict, expected, "{a} {b} {follow}: {outcome:?}");
    }
    // Packed numbers stand for other values, also in a named group and behind links.
    let unpack = CompareSettings { unpack: true, ..CompareSettings::default() };
    for (of, follow) in [("", false), (":g", false), (":g/t", false), (":l", false), ("", true)] {
        let [a, b] = ["a", "b"].map(|side| format!("packed-{side}.h5{of}"));
        for (other, expected) in [(&b, Different), (&a, Equal)] {
            let outcome = answer(&a, other, follow, &unpack).unwrap();
            assert_eq!(outcome.verdict, expected, "{of} {follow}: {outcome:?}");
            assert!(outcome.variables.iter().all(|v| v.differences == 0 || other != &a));
        }
    }
    let wide = CompareSettings { unpack: true, ..CompareSettings::within(Bound::abs(1.0)) };
    let outcome = answer("packed-a.h5:g/t", "packed-b.h5:g/t", false, &wide).unwrap();
    assert_eq!(
        outcome.verdict, Equal,
        "how numbers are packed is part of their values: {outcome:?}"
    );
    // A group is excluded with all that is below it, whether that differs or not.
    for pattern in ["meta", "/meta", "me*a"] {
        let exclude = vec![pattern.to_string()];
        let settings = CompareSettings { exclude, ..CompareSettings::default() };
        for other in ["notes-b.h5", "notes-c.h5"] {
            let outcome = answer("notes-a.h5", other, false, &settings).unwrap();
            assert_eq!(outcome.verdict, Equal, "{pattern} {other}: {outcome:?}");
        }
        assert!(answer("lone-a.h5", "lone-a.h5", false, &settings).is_err());
    }
    let leads_nowhere =
        open_side(&folder.join("links-a.h5:g/soft/x").display().to_string(), None, true);
    assert!(leads_nowhere.is_err());
}

/// Of a named object, attributes and what is below it are compared; its own name is not.
#[test]
#[ignore = "its pairs of files are made by `make test`"]
fn named_objects_are_compared_with_their_attributes() {
    for (change, object, answer) in [
        ("units", "x", Answer::Different),
        ("units", "many", Answer::Equal),
        ("many", "many", Answer::Different),
        ("many", "x", Answer::Equal),
        ("group", "many", Answer::Different),
        ("scale", "hard", Answer::Different),
    ] {
        let all = pairs("different").into_iter();
        let mut all = all
            .filter(|(a, _)| a.parent().unwrap().ends_with(format!("furnished-{change}-latest")));
        let (a, b) = all.next().unwrap();
        let [a, b] = [a, b].map(|path| format!("{}:/{object}", path.display()));
        let outcome = compared(&a, &b);
        assert_eq!(outcome.verdict, answer, "{change} {object}: {outcome:?}");
    }
}

/// A record is an array of its own: it can be named, excluded, and given a bound.
#[test]
#[ignore = "its pairs of files are made by `make test`"]
fn records_are_named_with_their_members() {
    let pair = |name: &str| {
        let all = pairs("reported");
        all.into_iter().find(|(a, _)| a.parent().unwrap().ends_with(name)).unwrap()
    };
    let (a, b) = pair("member-x");
    let [a, b] = [a, b].map(|path| path.display().to_string());
    let outcome = |of: &str, settings: CompareSettings| {
        let [p, q] = [&a, &b].map(|file| open_side(&format!("{file}{of}"), None, true).unwrap());
        compare(p.as_ref(), q.as_ref(), &settings, None, &|_, _| {}).unwrap()
    };
    let named = |pattern: &str| CompareSettings {
        variables: vec![pattern.into()],
        ..CompareSettings::default()
    };
    let without = |pattern: &str| CompareSettings {
        exclude: vec![pattern.into()],
        ..CompareSettings::default()
    };
    assert_eq!(outcome("", named("g/p")).variables.len(), 8);
    assert_eq!(outcome("", named("g/p.in.*")).variables.len(), 2);
    assert_eq!(outcome("", without("g/p")).verdict, Answer::Equal);
    assert_eq!(outcome("", without("g/p.x")).verdict, Answer::Equal);
    assert_eq!(outcome("", without("g/p.id")).verdict, Answer::Different);
    assert_eq!(outcome(":/g/p", CompareSettings::default()).variables.len(), 8);
    let wide = vec![("g/p".to_string(), Bound::abs(100.0))];
    let wide = CompareSettings { bounds: wide, ..CompareSettings::default() };
    assert_eq!(outcome("", wide).verdict, Answer::Equal);
}

#[test]
#[ignore = "its pairs of files are made by `make test`"]
fn datasets_that_were_not_taken_apart_are_listed() {
    let listed = ["foreign-gzip", "lzf", "scale-offset", "texts", "records-with-texts"];
    for (a, _) in pairs("different") {
        let name = a.parent().unwrap().file_name().unwrap().to_string_lossy().into_owned();
        if !listed.contains(&name.as_str()) {
            continue;
        }
        let folder = tempfile::tempdir().unwrap();
        ingest(folder.path(), "a", &a);
        let library = Library::open(folder.path()).unwrap();
        let checkpoint = library.checkpoint("a", Some(1)).unwrap();
        let whole = library.not_taken_apart(&checkpoint).unwrap();
        assert_eq!(whole.len(), 1, "{name}");
        assert_eq!(whole[0].dataset.name, "x", "{name}");
        assert!(!whole[0].dataset.why.is_empty(), "{name}");
    }
}
