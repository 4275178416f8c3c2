//! `compare`, `tree` and `golden` as a person or a script meets them.

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use treering::{Bound, Options, Run, Variable};

fn treering(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_treering")).args(arguments).output().unwrap()
}

fn answer(arguments: &[&str], code: i32) -> Value {
    let output = treering(arguments);
    let trouble = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {trouble}");
    serde_json::from_slice(&output.stdout).unwrap()
}

/// A raw file of f32 values.
fn raw(folder: &Path, name: &str, values: &[f32]) -> String {
    let path = folder.join(name);
    let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
    std::fs::write(&path, bytes).unwrap();
    path.display().to_string()
}

fn wave(moved: f32) -> Vec<f32> {
    (0..50_000).map(|i| (i as f32 / 100.0).sin() + moved).collect()
}

/// Two runs of a plane, the second of which parts at step 3.
fn runs(folder: &Path) -> (String, String) {
    let store = folder.join("store");
    for run in ["one", "two"] {
        let options = Options::directory(&store, run).bound("*", Bound::abs(1e-4));
        let mut run_open = Run::open(options).unwrap();
        for step in 1..=5u64 {
            let mut plane = wave(step as f32);
            if run == "two" && step >= 3 {
                plane[1234] += 0.5 * step as f32;
            }
            let count = [step];
            let plane = Variable::new("plane", &plane).shaped(&[200, 250]);
            run_open.checkpoint(step, &[plane, Variable::new("count", &count)]).unwrap();
        }
        run_open.finish().unwrap();
    }
    let store = store.display();
    (format!("{store}#one"), format!("{store}#two"))
}

/// The files of the book differ in attributes, values and types; with --no-attributes in all but the first.
#[test]
fn attributes_are_left_out_on_request() {
    let book = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/src");
    let [monday, tuesday] =
        ["monday.h5", "tuesday.h5"].map(|name| book.join(name).display().to_string());
    let command = ["compare", &monday, &tuesday, "--json", "--no-trees"];
    let items = |more: &[&str]| -> Vec<String> {
        let found = answer(&[&command[..], more].concat(), 1);
        let items = found["contents"].as_array().unwrap().iter();
        items.map(|item| item["item"].as_str().unwrap().to_string()).collect()
    };
    let (with, without) = (items(&[]), items(&["--no-attributes"]));
    assert!(with.iter().any(|item| item == "attribute model of /"), "{with:?}");
    let others = with.iter().filter(|item| !item.starts_with("attribute "));
    assert!(without.iter().eq(others), "{without:?}");
    // Values that differ are still found; without them, the files are equal.
    let same = ["--abs", "0.5", "--unpack", "--exclude", "ocean/count"];
    answer(&[&command[..], &same].concat(), 1);
    answer(&[&command[..], &same, &["--no-attributes"]].concat(), 0);
}

#[test]
fn runs_part_at_a_step_a_variable_and_an_index() {
    let folder = tempfile::tempdir().unwrap();
    let (one, two) = runs(folder.path());
    let found = answer(&["compare", &one, &two, "--json"], 1);
    assert_eq!(found["equal"], false);
    assert_eq!(found["verdict"], "different");
    assert_eq!(found["differences"], 3);
    assert_eq!(found["first"]["step"], 3);
    assert_eq!(found["first"]["variable"], "plane");
    assert_eq!(found["first"]["index"], serde_json::json!([4, 234]));
    assert_eq!(found["variables"].as_array().unwrap().len(), 10);
    let total = found["bytes_total"].as_u64().unwrap();
    assert_eq!(total, 2 * 5 * (200_000 + 8));
    assert!(found["bytes_read"].as_u64().unwrap() < total / 2);
    let first = answer(&["compare", &one, &two, "--first", "--json"], 1);
    assert_eq!(first["first"], found["first"]);
    assert_eq!(first["stopped"], true);
    let equal = answer(&["compare", &format!("{one}@2"), &format!("{two}@2"), "--json"], 0);
    assert_eq!(equal["equal"], true);
    assert_eq!(equal["first"], Value::Null);
    let wide = answer(&["compare", &one, &two, "--abs", "3", "--json"], 0);
    assert_eq!(wide["differences"], 0);
    let text = treering(&["compare", &one, &two, "--timings"]);
    let text = String::from_utf8_lossy(&text.stdout).into_owned();
    assert!(text.contains("different: 3 of 250005 values"), "{text}");
    assert!(text.contains("step 3, variable plane, index (4, 234)"), "{text}");
    assert!(text.contains("reading trees"), "{text}");
}

#[test]
fn files_get_trees_and_lists() {
    let folder = tempfile::tempdir().unwrap();
    let a = raw(folder.path(), "a.raw", &wave(0.0));
    let mut values = wave(1e-6);
    values[40_000] = f32::NAN;
    let b = raw(folder.path(), "b.raw", &values);
    let direct = ["compare", &a, &b, "--type", "f32", "--abs", "1e-5", "--json"];
    let without = answer(&direct, 1);
    assert!(treering(&["tree", &a, &b, "--type", "f32", "--abs", "1e-5"]).status.success());
    assert!(folder.path().join("a.raw.tree").exists());
    let with = answer(&direct, 1);
    for key in ["differences", "first", "equal"] {
        assert_eq!(with[key], without[key], "{key}");
    }
    assert_eq!(with["first"]["b"], "NaN");
    assert!(with["bytes_read"].as_u64() < without["bytes_read"].as_u64());
    let list = folder.path().join("list.jsonl");
    let mut arguments = direct.to_vec();
    let list_text = list.display().to_string();
    arguments.extend(["--list", &list_text]);
    answer(&arguments, 1);
    let lines = std::fs::read_to_string(&list).unwrap();
    let line: Value = serde_json::from_str(lines.lines().next().unwrap()).unwrap();
    assert_eq!((lines.lines().count(), &line["index"]), (1, &serde_json::json!([40_000])));
    // A file that was written again is not taken for the old one.
    std::thread::sleep(std::time::Duration::from_millis(20));
    raw(folder.path(), "b.raw", &wave(0.5));
    let again = treering(&direct);
    let again: Value = serde_json::from_slice(&again.stdout).unwrap();
    assert_eq!(again["differences"], 50_000);
    assert!(again["notes"].to_string().contains("b.raw.tree"), "{}", again["notes"]);
}

#[test]
fn a_golden_file_tells_equal_different_and_undecided() {
    let folder = tempfile::tempdir().unwrap();
    let expected = raw(folder.path(), "expected.raw", &wave(0.0));
    let golden = folder.path().join("golden.tree").display().to_string();
    let record =
        ["golden", "record", &expected, "-o", &golden, "--type", "f32", "--abs", "1e-5", "--json"];
    let made = answer(&record, 0);
    assert!(made["bytes"].as_u64().unwrap() < 200_000 / 6);
    let check = |name: &str, moved: f32, code: i32| {
        let today = raw(folder.path(), name, &wave(moved));
        let output = treering(&["golden", "check", &golden, &today, "--type", "f32", "--json"]);
        assert_eq!(output.status.code(), Some(code));
        serde_json::from_slice::<Value>(&output.stdout).unwrap()["verdict"].clone()
    };
    assert_eq!(check("same.raw", 0.0, 0), "equal");
    assert_eq!(check("jitter.raw", 1e-6, 0), "equal");
    assert_eq!(check("near.raw", 8e-6, 2), "undecided");
    assert_eq!(check("far.raw", 1e-2, 1), "different");
}

#[test]
fn stored_runs_and_files_get_trees_in_the_store() {
    let folder = tempfile::tempdir().unwrap();
    let store = folder.path().join("store");
    for run in ["one", "two"] {
        let mut open = Run::open(Options::directory(&store, run)).unwrap();
        for step in 0..3 {
            open.checkpoint(step, &[Variable::new("wave", &wave(step as f32))]).unwrap();
        }
        open.finish().unwrap();
    }
    let store = store.display().to_string();
    let place = |run: &str| format!("{store}#{run}");
    let before = answer(&["compare", &place("one"), &place("two"), "--abs", "1e-5", "--json"], 0);
    for run in ["one", "two"] {
        assert!(treering(&["tree", &place(run), "--abs", "1e-5"]).status.success());
    }
    let after = answer(&["compare", &place("one"), &place("two"), "--abs", "1e-5", "--json"], 0);
    assert!(before["bytes_read"].as_u64() > Some(1_000_000));
    assert!(after["bytes_read"].as_u64() < Some(100_000));
    let file = raw(folder.path(), "wave.raw", &wave(1.0));
    let to = format!("{store}#files@1");
    let made = treering(&["tree", &file, "--type", "f32", "--abs", "1e-5", "--into", &to]);
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let held =
        answer(&["compare", &to, &format!("{}@1", place("one")), "--abs", "1e-5", "--json"], 0);
    assert_eq!(held["verdict"], "equal");
}

#[test]
fn bad_input_gets_a_sentence_and_exit_code_two() {
    let folder = tempfile::tempdir().unwrap();
    let good = raw(folder.path(), "good.raw", &wave(0.0));
    let odd = folder.path().join("odd.raw");
    std::fs::write(&odd, [0; 7]).unwrap();
    let fake = folder.path().join("fake.npy");
    std::fs::write(&fake, b"\x93NUMPY\x01\x00\x10\x00{'descr': '<f4'}").unwrap();
    let cut = folder.path().join("cut.npy");
    let mut bytes = b"\x93NUMPY\x01\x00\x76\x00".to_vec();
    bytes.extend(
        format!("{:<117}\n", "{'descr': '<f4', 'fortran_order': False, 'shape': (9,), }").bytes(),
    );
    bytes.extend([0; 8]);
    std::fs::write(&cut, bytes).unwrap();
    let zip = folder.path().join("broken.npz");
    std::fs::write(&zip, b"PK\x03\x04 and nothing else").unwrap();
    let text = |path: &PathBuf| path.display().to_string();
    let missing = text(&folder.path().join("missing.npy"));
    let (odd, fake, cut, zip) = (text(&odd), text(&fake), text(&cut), text(&zip));
    let cases: Vec<(Vec<&str>, &str)> = vec![
        (vec!["compare", &good, &good], "--type"),
        (vec!["compare", &good, &odd, "--type", "f32"], "7 bytes"),
        (vec!["compare", &good, &good, "--type", "f32", "--shape", "3x3"], "3×3"),
        (vec!["compare", &fake, &fake], "not understood"),
        (vec!["compare", &cut, &cut], "promises"),
        (vec!["compare", &zip, &zip], "archive"),
        (vec!["compare", &missing, &good, "--type", "f32"], "there is no"),
        (
            vec!["compare", &good, &good, "--type", "f32", "--abs", "-1"],
            "invalid absolute bound -1",
        ),
        (
            vec!["compare", &good, &good, "--type", "f32", "--rel", "NaN"],
            "invalid relative bound NaN",
        ),
        (vec!["compare", &good, &good, "--type", "f32", "--bound", "x=abs:"], "invalid bound"),
        (vec!["compare", "nowhere#run", &good, "--type", "f32"], "there is no store"),
        (vec!["tree", &good, "--type", "f32"], "none was given"),
        (vec!["tree", &good, "--type", "f32", "--abs", "inf"], "invalid absolute bound inf"),
        (vec!["tree", &good, "--type", "f32", "--abs", "1", "--chunk", "1000"], "power of two"),
        (vec!["golden", "check", &good, &good, "--type", "f32"], "tree file"),
    ];
    for (arguments, sentence) in cases {
        let output = treering(&arguments);
        let trouble = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {trouble}");
        assert!(output.stdout.is_empty(), "{arguments:?}");
        assert_eq!(trouble.trim_end().lines().count(), 1, "{arguments:?}: {trouble}");
        assert!(trouble.contains(sentence), "{arguments:?}: {trouble}");
    }
}

fn sentence(arguments: &[&str], code: i32) -> String {
    let output = treering(arguments);
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {output:?}");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn outputs_never_take_the_place_of_inputs() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).display().to_string();
    let a = raw(folder.path(), "a.raw", &wave(0.0));
    let b = raw(folder.path(), "b.raw", &wave(1.0));
    let link = at("link");
    std::os::unix::fs::symlink(&b, &link).unwrap();
    let hard = at("hard");
    std::fs::hard_link(&a, &hard).unwrap();
    let files = ["compare", &a, &b, "--type", "f32"];
    let own = folder.path().display().to_string();
    for output in [&a, &b, &link, &hard] {
        for option in ["--list", "--report"] {
            let told = sentence(&[&files[..], &[option, output]].concat(), 2);
            assert!(told.contains("is one of the inputs"), "{told}");
        }
        let told =
            sentence(&["golden", "record", &own, "--type", "f32", "--abs", "1", "-o", output], 2);
        assert!(told.contains("is one of the inputs"), "{told}");
    }
    let both = at("both");
    let told = sentence(&[&files[..], &["--list", &both, "--report", &both]].concat(), 2);
    assert!(told.contains("two outputs"), "{told}");
    assert_eq!(std::fs::read(&a).unwrap().len(), 200_000);
    assert_eq!(std::fs::read(&b).unwrap().len(), 200_000);
    // A comparison that fails leaves the older files, and nothing else.
    std::fs::write(&both, "old").unwrap();
    let told = sentence(&["compare", &a, &at("none"), "--type", "f32", "--list", &both], 2);
    assert!(told.contains("there is no"), "{told}");
    assert_eq!(std::fs::read_to_string(&both).unwrap(), "old");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 5);
    assert!(treering(&[&files[..], &["--report", "/dev/null"]].concat()).status.code() == Some(1));
    assert!(!std::fs::metadata("/dev/null").unwrap().is_file());
}

#[test]
fn trees_of_files_that_were_put_there_later_are_not_used() {
    let folder = tempfile::tempdir().unwrap();
    let a = raw(folder.path(), "a.raw", &wave(0.0));
    let b = raw(folder.path(), "b.raw", &wave(0.0));
    assert!(treering(&["tree", &a, &b, "--type", "f32", "--abs", "1e-5"]).status.success());
    let times = std::fs::metadata(&b).unwrap();
    std::thread::sleep(std::time::Duration::from_millis(20));
    let other = raw(folder.path(), "other", &wave(1.0));
    let file = std::fs::File::options().write(true).open(&other).unwrap();
    file.set_modified(times.modified().unwrap()).unwrap();
    std::fs::rename(&other, &b).unwrap();
    let files = ["compare", &a, &b, "--type", "f32", "--abs", "1e-5", "--json"];
    assert_eq!(answer(&files, 1)["differences"], 50_000);
}

/// Files of ranks have other names and ranks in a checkpoint than in their folder.
#[test]
fn golden_files_of_checkpoints_serve_folders_and_those_of_folders_checkpoints() {
    let folder = tempfile::tempdir().unwrap();
    let (out, changed) = (folder.path().join("out"), folder.path().join("changed"));
    for (side, last) in [(&out, 3), (&changed, 4)] {
        std::fs::create_dir(side).unwrap();
        for rank in 0..3 {
            let period = if rank == 2 { last } else { rank + 1 };
            let values: Vec<f32> = (0..999).map(|i| (i % period) as f32).collect();
            let bytes: Vec<u8> = values.iter().flat_map(|x| x.to_le_bytes()).collect();
            std::fs::write(side.join(format!("rank_{rank}.f32")), bytes).unwrap();
        }
    }
    let [out, changed] = [&out, &changed].map(|path| path.display().to_string());
    let checkpoint = format!("{}#a@1", folder.path().join("store").display());
    let kind = ["--type", "f32"];
    assert!(treering(&[&["ingest", &checkpoint, &out][..], &kind].concat()).status.success());
    for recorded in [&checkpoint, &out] {
        let golden = folder.path().join("g.tree").display().to_string();
        let _ = std::fs::remove_file(&golden);
        let record = ["golden", "record", recorded, "-o", &golden, "--abs", "1e-3"];
        assert!(treering(&[&record[..], &kind].concat()).status.success());
        for (now, code) in [(&checkpoint, 0), (&out, 0), (&changed, 1)] {
            let check = ["golden", "check", &golden, now, "--json", "--type", "f32"];
            let found = answer(&check, code);
            assert_eq!(found["variables"].as_array().unwrap().len(), 3, "{recorded} {now}");
            assert_eq!(found["unmatched"].as_array().unwrap().len(), 0, "{recorded} {now}");
            let none = sentence(&[&check[..], &["--vars", "other*"]].concat(), 2);
            assert!(none.contains("no variable matches"), "{none}");
        }
    }
}

#[test]
fn trees_are_made_of_what_was_asked_for_and_never_replaced_by_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let a = raw(folder.path(), "a.raw", &wave(0.0));
    let make = ["tree", &a, "--type", "f32", "--abs", "1e-5"];
    assert!(treering(&make).status.success());
    let beside = folder.path().join("a.raw.tree");
    let before = std::fs::read(&beside).unwrap();
    let told = sentence(&[&make[..], &["--vars", "nomatch"]].concat(), 2);
    assert!(told.contains("no array that matches"), "{told}");
    assert_eq!(std::fs::read(&beside).unwrap(), before);
}

#[test]
fn texts_of_a_folder_are_told_of_in_a_few_notes() {
    let folder = tempfile::tempdir().unwrap();
    let sides = ["one", "two"].map(|side| folder.path().join(side));
    for side in &sides {
        std::fs::create_dir(side).unwrap();
        (0..300).for_each(|i| std::fs::write(side.join(format!("{i}.txt")), "text").unwrap());
    }
    let [a, b] = sides.each_ref().map(|side| side.display().to_string());
    let found = answer(&["compare", &a, &b, "--json"], 0);
    let notes = found["notes"].as_array().unwrap();
    assert!(notes.len() < 25, "{notes:?}");
    assert!(notes.iter().any(|note| note.as_str().unwrap().contains("290 other files")));
}

#[test]
fn nothing_of_a_folder_is_left_out_silently() {
    use std::os::unix::ffi::OsStrExt;
    let folder = tempfile::tempdir().unwrap();
    let odd = |bytes: &[u8]| PathBuf::from(std::ffi::OsStr::from_bytes(bytes));
    let sides = [folder.path().join("one"), folder.path().join("two")];
    let beside = [folder.path().join("s1"), folder.path().join("s2")];
    for (number, (side, beside)) in sides.iter().zip(&beside).enumerate() {
        for folder in [side, beside] {
            std::fs::create_dir(folder).unwrap();
        }
        std::fs::write(side.join("same.txt"), "a text").unwrap();
        // Names that are no text stay apart.
        std::fs::write(side.join(odd(b"\xff\xfd.bin")), [number as u8; 3]).unwrap();
        std::fs::write(side.join(odd(b"\xff\xfe.bin")), [7; 3]).unwrap();
        std::fs::write(side.join("line\nbreak.bin"), [1, 2, number as u8]).unwrap();
        std::fs::write(beside.join("x"), [number as u8]).unwrap();
        std::os::unix::fs::symlink(beside, side.join("linked")).unwrap();
        std::os::unix::fs::symlink(side, side.join("around")).unwrap();
        std::os::unix::fs::symlink("nowhere", side.join("dangling.npy")).unwrap();
    }
    let [one, two] = sides.each_ref().map(|side| side.display().to_string());
    let found = answer(&["compare", &one, &two, "--json"], 1);
    let differing = |v: &&Value| v["differences"] != 0;
    let mut names: Vec<&str> = found["variables"]
        .as_array()
        .unwrap()
        .iter()
        .filter(differing)
        .map(|v| v["name"].as_str().unwrap())
        .collect();
    names.sort_unstable();
    assert_eq!(names, ["\\xff\\xfd.bin", "line\\x0abreak.bin", "linked/x"]);
    assert_eq!(found["variables"].as_array().unwrap().len(), 5);
    let notes = found["notes"].to_string();
    assert!(notes.contains("dangling.npy is left out: it is not a file"), "{notes}");
    assert!(notes.contains("same.txt is compared byte for byte"), "{notes}");
}

#[test]
fn folders_with_what_cannot_be_read_are_not_equal() {
    let folder = tempfile::tempdir().unwrap();
    let sides = ["one", "two"].map(|name| folder.path().join(name));
    for side in &sides {
        std::fs::create_dir(side).unwrap();
        std::fs::write(side.join("same.txt"), "a text").unwrap();
    }
    let [one, two] = sides.each_ref().map(|side| side.display().to_string());
    let link = |side: usize, to: &str| {
        std::os::unix::fs::symlink(to, sides[side].join("link")).unwrap();
    };
    let left_out = |found: &Value| -> Vec<String> {
        let all = found["not_compared"].as_array().unwrap().iter();
        all.map(|left| left["variable"].as_str().unwrap().to_string()).collect()
    };
    let check = |code: i32, names: &[&str]| {
        for [a, b] in [[&one, &two], [&two, &one]] {
            let found = answer(&["compare", a, b, "--json"], code);
            assert_eq!(left_out(&found), names, "{found}");
        }
    };
    check(0, &[]);
    link(0, "nowhere");
    check(2, &["link"]);
    // The same link on both sides is equal, as files of the same bytes are.
    link(1, "nowhere");
    check(0, &[]);
    std::fs::remove_file(sides[1].join("link")).unwrap();
    link(1, "elsewhere");
    check(2, &["link"]);
    assert!(Command::new("mkfifo").arg(sides[0].join("pipe")).status().unwrap().success());
    check(2, &["link", "pipe"]);
    let found = answer(&["compare", &one, &two, "--exclude", "link", "--json"], 2);
    assert_eq!(left_out(&found), ["pipe"]);
    assert_eq!(found["not_compared"][0]["why"], "it is a pipe, a socket or a device");
    // A certain difference decides the answer.
    std::fs::write(sides[1].join("same.txt"), "another text").unwrap();
    check(1, &["link", "pipe"]);
}

#[test]
fn names_in_files_do_nothing_to_a_terminal_and_stay_apart() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, texts: [&str; 2]| {
        let (plain, escape) = ("a\\u{1b}[2J", "a\u{1b}[2J");
        let head = serde_json::json!({
            "__metadata__": { plain: texts[0], escape: texts[1] },
            "x": { "dtype": "F32", "shape": [1], "data_offsets": [0, 4] },
        });
        let head = head.to_string();
        let mut bytes = (head.len() as u64).to_le_bytes().to_vec();
        bytes.extend(head.bytes());
        bytes.extend(1f32.to_le_bytes());
        let path = folder.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        path.display().to_string()
    };
    let one = file("one.safetensors", ["1", "2"]);
    let two = file("two.safetensors", ["3", "4"]);
    let found = answer(&["compare", &one, &two, "--json"], 1);
    let items = found["contents"].as_array().unwrap().iter();
    let items: Vec<&str> = items.map(|item| item["item"].as_str().unwrap()).collect();
    assert_eq!(items, ["metadata a\\u{1b}[2J", "metadata a\\u{5c}u{1b}[2J"]);
    for arguments in [&["show", &one][..], &["compare", &one, &two, "--all"]] {
        let shown = String::from_utf8(treering(arguments).stdout).unwrap();
        assert!(shown.contains("metadata a\\u{1b}[2J"), "{shown}");
        assert!(!shown.contains('\u{1b}'), "{shown:?}");
    }
}

#[test]
fn pipes_do_not_hang_and_bounds_of_nothing_are_told() {
    let folder = tempfile::tempdir().unwrap();
    let a = raw(folder.path(), "a.raw", &wave(0.0));
    let b = raw(folder.path(), "b.raw", &wave(1.0));
    let pipe = folder.path().join("pipe").display().to_string();
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    for arguments in [
        &["compare", &pipe, &a, "--type", "f32"][..],
        &["tree", &pipe, "--abs", "1", "--type", "f32"],
        &["golden", "check", &pipe, &a],
    ] {
        assert!(sentence(arguments, 2).contains("is not a file"));
    }
    let told = sentence(&["compare", &a, &b, "--type", "f32", "--bound", "zz=abs:9"], 2);
    assert!(told.contains("no variable matches the bound of \"zz\""), "{told}");
}

#[test]
fn golden_files_hold_all_their_bounds_and_claim_no_more_than_they_know() {
    let folder = tempfile::tempdir().unwrap();
    let a = raw(folder.path(), "a.raw", &wave(0.0));
    let b = raw(folder.path(), "b.raw", &wave(1.0));
    let file = folder.path().join("g.tree").display().to_string();
    let bounds = ["--abs", "10", "--ulp", "4", "--type", "f32"];
    let record = [&["golden", "record", &a, "-o", &file][..], &bounds].concat();
    assert!(treering(&record).status.success());
    let shown = answer(&["show", &file, "--json"], 0);
    assert_eq!(shown["trees"].as_array().unwrap().len(), 2);
    let found = answer(&["golden", "check", &file, &b, "--type", "f32", "--json"], 1);
    let rows = found["variables"].as_array().unwrap();
    assert_eq!(rows.len(), 2);
    assert_eq!((&rows[0]["differences"], &rows[0]["at_least"]), (&0.into(), &false.into()));
    assert_eq!(rows[1]["at_least"], true);
    assert_eq!(rows[1]["max_difference"], "NaN");
    let text = treering(&["golden", "check", &file, &b, "--type", "f32"]);
    let text = String::from_utf8_lossy(&text.stdout).into_owned();
    assert!(text.contains("different: at least "), "{text}");
    assert!(text.contains("≥ "), "{text}");
}

#[test]
fn unlike_sides_are_reported_as_such() {
    let folder = tempfile::tempdir().unwrap();
    for (side, name, dtype) in [("a", "x", 4), ("a", "only", 4), ("b", "x", 5), ("b", "more", 4)] {
        let path = folder.path().join(side);
        std::fs::create_dir_all(&path).unwrap();
        std::fs::write(path.join(format!("{name}.raw")), vec![0u8; 4 * dtype]).unwrap();
    }
    let side = |name: &str| folder.path().join(name).display().to_string();
    let found = answer(&["compare", &side("a"), &side("b"), "--type", "f32", "--json"], 1);
    let what: Vec<String> =
        found["unmatched"].as_array().unwrap().iter().map(|u| u["what"].to_string()).collect();
    assert_eq!(what, [r#""only in the first""#, r#""shapes differ""#, r#""only in the second""#]);
}

#[test]
fn the_report_opens_in_a_browser() {
    let folder = tempfile::tempdir().unwrap();
    let (one, two) = runs(folder.path());
    let page = folder.path().join("report.html");
    let page_text = page.display().to_string();
    assert_eq!(treering(&["compare", &one, &two, "--report", &page_text]).status.code(), Some(1));
    let html = std::fs::read_to_string(&page).unwrap();
    assert!(!html.contains("http://") || !html.contains("src=\"http"));
    assert!(html.contains("different: 3 of 250005 values"));
    // Another one, of folders: a cube that differs in a corner, and a file that cannot be compared.
    let other = folder.path().join("other.html").display().to_string();
    let sides = ["one", "two"].map(|name| folder.path().join(name));
    for (side, cut) in sides.iter().zip([40, 41]) {
        std::fs::create_dir(side).unwrap();
        let mut cube = vec![0u8; 20 * 30 * 40 * 4];
        if cut == 41 {
            cube.chunks_mut(4).take(25).for_each(|v| v.copy_from_slice(&1.5f32.to_le_bytes()));
        }
        npy(&side.join("cube.npy"), "(20, 30, 40)", &cube);
        npy(&side.join("cut.npy"), "(90,)", &vec![0; cut]);
    }
    let [one, two] = sides.each_ref().map(|side| side.display().to_string());
    let compare = ["compare", &one, &two, "--abs", "1e-3", "--report", &other];
    assert_eq!(treering(&compare).status.code(), Some(1));
    let html = std::fs::read_to_string(&other).unwrap();
    assert!(html.len() < 300_000, "{} bytes", html.len());
    let profile = folder.path().join("profile").display().to_string();
    let shot = folder.path().join("shot.png");
    let arguments = |more: &[&str], page: &str| -> Vec<String> {
        let common = [
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--hide-scrollbars",
            "--virtual-time-budget=5000",
            "--window-size=1100,2400",
        ];
        let mut all: Vec<String> = common.iter().chain(more).map(|s| s.to_string()).collect();
        all.push(format!("--user-data-dir={profile}"));
        all.push(format!("file://{page}"));
        all
    };
    let drawn = |page: &str| {
        let dom = Command::new("chromium").args(arguments(&["--dump-dom"], page)).output().unwrap();
        let dom = String::from_utf8_lossy(&dom.stdout).into_owned();
        assert!(dom.contains("data-ready=\"yes\""), "the page was not drawn");
        // Without the script and its data, only what a reader sees is left.
        dom.split("<script").filter_map(|part| part.split_once("</script>")).map(|p| p.1).collect()
    };
    let dom: String = drawn(&page_text);
    assert!(dom.contains("The runs diverge at step 3"), "the page does not say where");
    assert!(dom.matches("<svg").count() >= 3, "figures are missing");
    assert!(dom.contains("largest |a − b| in units of the bound (abs 10⁻⁴)"), "no legend");
    assert!(dom.contains("index along axis 1 (0 to 249)"), "no axis");
    assert!(dom.contains("Everything that was asked for was compared."), "nothing was left out");
    let dom: String = drawn(&other);
    assert!(dom.contains("in units of the bound (abs 0.001)"), "no legend of the cube");
    for along in ["largest along axis 0", "largest along axis 1", "largest along axis 2"] {
        assert!(dom.contains(along), "no map of the cube {along}");
    }
    assert!(dom.contains("1 item could not be compared; the table has the reasons."), "{dom}");
    assert!(dom.contains("promises"), "no reason");
    let screenshot = format!("--screenshot={}", shot.display());
    let taken = Command::new("chromium").args(arguments(&[&screenshot], &other)).output().unwrap();
    assert!(taken.status.success());
    assert!(std::fs::metadata(&shot).unwrap().len() > 20_000, "the picture is nearly empty");
}

/// An `.npy` file of f32 values, perhaps too short for its shape.
fn npy(path: &Path, shape: &str, data: &[u8]) {
    let mut bytes = b"\x93NUMPY\x01\x00\x76\x00".to_vec();
    let head = format!("{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}");
    bytes.extend(format!("{head:<117}\n").bytes());
    bytes.extend(data);
    std::fs::write(path, bytes).unwrap();
}

/// A file of tensors of f32.
fn tensors(path: &Path, all: &[(&str, &[f32])]) -> String {
    let (mut head, mut data) = (Vec::new(), Vec::new());
    for (name, values) in all {
        let from = data.len();
        data.extend(values.iter().flat_map(|v| v.to_le_bytes()));
        let (len, to) = (values.len(), data.len());
        head.push(format!(
            "{name:?}:{{\"dtype\":\"F32\",\"shape\":[{len}],\"data_offsets\":[{from},{to}]}}"
        ));
    }
    let head = format!("{{{}}}", head.join(","));
    let mut bytes = (head.len() as u64).to_le_bytes().to_vec();
    bytes.extend(head.bytes());
    bytes.extend(data);
    std::fs::write(path, bytes).unwrap();
    path.display().to_string()
}

#[test]
fn variables_are_excluded_by_patterns() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let a = tensors(&at("a.safetensors"), &[("x", &[1.0]), ("time", &[1.0]), ("t2", &[5.0])]);
    let b = tensors(&at("b.safetensors"), &[("x", &[1.0]), ("time", &[2.0]), ("t3", &[5.0])]);
    assert_eq!(answer(&["compare", &a, &b, "--json"], 1)["excluded"], 0);
    let found = answer(&["compare", &a, &b, "--exclude", "t?", "--exclude", "time", "--json"], 0);
    assert_eq!(found["excluded"], 3);
    assert!(found["notes"].to_string().contains("3 items were excluded"), "{found}");
    answer(&["compare", &a, &b, "--exclude", "t?", "--json"], 1);
    let told = sentence(&["compare", &a, &b, "--exclude", "tim"], 2);
    assert!(told.contains("no variable matches the exclusion \"tim\""), "{told}");
    let golden = at("g.tree").display().to_string();
    let record = ["golden", "record", &a, "-o", &golden, "--abs", "1e-3"];
    let told = sentence(&[&record[..], &["--exclude", "nothing"]].concat(), 2);
    assert!(told.contains("nothing"), "{told}");
    assert!(treering(&[&record[..], &["--exclude", "t*"]].concat()).status.success());
    let check = ["golden", "check", &golden, &b, "--json"];
    assert_eq!(answer(&check, 1)["unmatched"].as_array().unwrap().len(), 2);
    assert_eq!(answer(&[&check[..], &["--exclude", "t*"]].concat(), 0)["excluded"], 2);
}

#[test]
fn differences_are_printed_up_to_a_limit() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let values = [0.0; 10];
    let a = tensors(&at("a.safetensors"), &[("x", &values), ("y", &values), ("z", &[1.0])]);
    let b = tensors(&at("b.safetensors"), &[("x", &[0.5; 10]), ("y", &[2.0; 10]), ("z", &[1.0])]);
    let found = answer(&["compare", &a, &b, "--print", "2", "--json"], 1);
    let rows = found["variables"].as_array().unwrap();
    let examples: Vec<usize> =
        rows.iter().map(|v| v["examples"].as_array().map_or(0, Vec::len)).collect();
    assert_eq!(examples, [2, 2, 0]);
    assert_eq!(rows[1]["examples"][1]["index"], serde_json::json!([1]));
    assert_eq!(rows[1]["examples"][1]["b"], 2.0);
    let text = treering(&["compare", &a, &b, "--print", "3", "--rows", "1"]);
    let text = String::from_utf8_lossy(&text.stdout).into_owned();
    assert!(text.contains("  (2): 0.0 and 0.5") && !text.contains("(3)"), "{text}");
    assert!(text.contains("and 1 more") && !text.contains("variable y"), "{text}");
}

#[test]
fn named_objects_are_compared() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let of_a: &[(&str, &[f32])] = &[("g1/x", &[1.0, 2.0]), ("g1/z", &[3.0]), ("w", &[0.0])];
    let of_b: &[(&str, &[f32])] = &[("g2/y", &[1.0, 2.0]), ("g2/x", &[1.0, 9.0]), ("g2/z", &[3.0])];
    let (a, b) = (tensors(&at("a.safetensors"), of_a), tensors(&at("b.safetensors"), of_b));
    let compared = |x: &str, y: &str, code: i32| {
        answer(&["compare", &format!("{a}:{x}"), &format!("{b}:{y}"), "--json"], code)
    };
    assert_eq!(compared("/g1/x", "/g2/y", 0)["variables"][0]["name"], "g1/x");
    let found = compared("g1/x", "/g2/x", 1);
    assert_eq!((&found["differences"], &found["first"]["index"][0]), (&1.into(), &1.into()));
    // Groups by the names in them.
    let found = compared("/g1", "/g2/", 1);
    assert_eq!(found["first"]["variable"], "x");
    assert_eq!(found["unmatched"][0]["variable"], "y");
    assert_eq!(found["unmatched"].as_array().unwrap().len(), 1);
    let told = sentence(&["compare", &format!("{a}:/nothing"), &b], 2);
    assert!(told.contains("no object \"nothing\""), "{told}");
    let told = sentence(&["compare", &format!("{a}:/w"), &b, "--list", &a], 2);
    assert!(told.contains("is one of the inputs"), "{told}");
}

/// A raw file of integers.
fn integers(folder: &Path, name: &str, values: &[i64]) -> String {
    let path = folder.join(name);
    let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
    std::fs::write(&path, bytes).unwrap();
    path.display().to_string()
}

#[test]
fn bounds_hold_for_integers_on_request() {
    let folder = tempfile::tempdir().unwrap();
    let of = |name: &str, values: &[i64]| integers(folder.path(), name, values);
    let (a, b) = (of("a", &[1, 100, -7]), of("b", &[3, 101, -7]));
    let compared = |b: &str, more: &[&str], code: i32| {
        let all = [&["compare", &a, b, "--type", "i64", "--json"], more].concat();
        answer(&all, code)
    };
    assert_eq!(compared(&b, &["--abs", "2"], 1)["differences"], 2);
    assert_eq!(compared(&b, &["--abs", "2", "--integers"], 0)["differences"], 0);
    assert_eq!(compared(&b, &["--abs", "1", "--integers"], 1)["differences"], 1);
    assert_eq!(compared(&b, &["--rel", "0.02", "--integers"], 1)["first"]["index"][0], 0);
    // No f64 equals it, so that nobody can tell.
    let large = of("large", &[1, 100, (1 << 53) + 1]);
    let told = sentence(&["compare", &a, &large, "--type", "i64", "--abs", "2", "--integers"], 2);
    assert!(told.contains("9007199254740993"), "{told}");
    compared(&large, &["--abs", "2"], 1);
}

#[test]
fn a_file_is_listed_without_ingesting_it() {
    let kept = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/anatomy");
    let file = kept.join("hdf5-earliest-records").display().to_string();
    let listed = answer(&["show", &file, "--json"], 0);
    assert_eq!(listed["format"], "hdf5");
    let arrays = listed["arrays"].as_array().unwrap();
    let kind = |name: &str| {
        let array = arrays.iter().find(|array| array["name"] == name);
        array.map_or("none", |array| array["kind"].as_str().unwrap())
    };
    let members = ["r.x", "r.in.y", "r.c.m", "r.s", "r.l", "p.ref", "p.t", "p.v"];
    let kinds = ["f32", "f64", "u8", "text", "real number", "reference", "text", "sequence"];
    assert_eq!(members.map(kind), kinds, "{listed}");
    let contents = listed["contents"].as_array().unwrap();
    assert!(contents.iter().any(|item| item[0] == "link soft" && item[1] == "/r"), "{listed}");
    let object = answer(&["show", &format!("{file}:/soft"), "--json"], 0);
    assert!(object["arrays"].as_array().unwrap().len() < arrays.len(), "{object}");
    assert_eq!(object["arrays"][0]["name"], "r.x");
    let text = treering(&["show", &file]);
    let text = String::from_utf8_lossy(&text.stdout).into_owned();
    assert!(text.contains("hdf5 file of") && text.contains("link soft: /r"), "{text}");
}

#[test]
fn what_is_not_compared_is_listed_with_the_reason() {
    let folder = tempfile::tempdir().unwrap();
    let sides = ["a", "b"].map(|name| folder.path().join(name));
    for (side, cut) in sides.iter().zip([40, 41]) {
        std::fs::create_dir(side).unwrap();
        tensors(&side.join("good.safetensors"), &[("x", &[1.0])]);
        let mut bytes = b"\x93NUMPY\x01\x00\x76\x00".to_vec();
        let head = "{'descr': '<f8', 'fortran_order': False, 'shape': (90,), }";
        bytes.extend(format!("{head:<117}\n").bytes());
        bytes.resize(bytes.len() + cut, 0);
        std::fs::write(side.join("cut.npy"), bytes).unwrap();
    }
    let [a, b] = sides.each_ref().map(|side| side.display().to_string());
    let found = answer(&["compare", &a, &b, "--json"], 2);
    assert_eq!(found["verdict"], "undecided");
    assert_eq!(found["variables"].as_array().unwrap().len(), 1);
    assert_eq!(found["not_compared"][0]["variable"], "cut.npy");
    let page = folder.path().join("report.html");
    let output = treering(&["compare", &a, &b, "--report", &page.display().to_string()]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(2), "{text}");
    assert!(
        text.contains("not compared: variable cut.npy: ") && text.contains("promises"),
        "{text}"
    );
    let page = std::fs::read_to_string(page).unwrap();
    assert!(page.contains("promises"), "the page lists what was not compared");
    std::fs::copy(sides[0].join("cut.npy"), sides[1].join("cut.npy")).unwrap();
    let found = answer(&["compare", &a, &b, "--json"], 0);
    assert!(found["notes"].to_string().contains("same stored bytes: cut.npy"), "{found}");
}

/// The lines that the command prints on a terminal of 80 columns, and the same without colours.
fn on_terminal(arguments: &[&str], code: i32) -> (String, Vec<String>) {
    use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
    use std::io::Read;
    let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&master).unwrap();
    unlockpt(&master).unwrap();
    let name = ptsname(&master, Vec::new()).unwrap().into_string().unwrap();
    let terminal = std::fs::File::options().read(true).write(true).open(name).unwrap();
    let size = rustix::termios::Winsize { ws_row: 24, ws_col: 80, ws_xpixel: 0, ws_ypixel: 0 };
    rustix::termios::tcsetwinsize(&terminal, size).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_treering"));
    command.args(arguments).env("TERM", "xterm").env_remove("NO_COLOR").stdout(terminal);
    let mut child = command.stderr(std::process::Stdio::null()).spawn().unwrap();
    // The command holds the last handle of the terminal's other end.
    drop(command);
    let (mut raw, mut part) = (Vec::new(), [0; 4096]);
    let mut master = std::fs::File::from(master);
    while let Ok(count @ 1..) = master.read(&mut part) {
        raw.extend_from_slice(&part[..count]);
    }
    assert_eq!(child.wait().unwrap().code(), Some(code), "{arguments:?}");
    let raw = String::from_utf8(raw).unwrap().replace('\r', "");
    let mut plain = raw.clone();
    for colour in ["\x1b[1;31m", "\x1b[1;32m", "\x1b[1;33m", "\x1b[0m"] {
        plain = plain.replace(colour, "");
    }
    assert!(!plain.contains('\x1b'), "{plain:?}");
    (raw, plain.lines().map(str::to_string).collect())
}

/// Number of rows that lines take on a terminal of 80 columns.
fn height(lines: &[String]) -> usize {
    lines.iter().map(|line| line.trim_end().chars().count().div_ceil(80).max(1)).sum()
}

#[test]
fn the_first_screen_has_the_verdict_the_first_difference_and_the_worst_variables() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let name = |i: usize| format!("a/rather/deep/group/of/a/file/with/many/variables/v{i:02}");
    let names: Vec<String> = (0..30).map(name).collect();
    let sides = ["a", "b"].map(|side| {
        let mut all: Vec<(&str, Vec<f32>)> = Vec::new();
        for (i, name) in names.iter().enumerate() {
            // The later, the further apart.
            let moved = if side == "b" && i >= 5 { 0.001 * 1.5f32.powi(i as i32) } else { 0.0 };
            all.push((name, vec![1.0, 2.0 + moved, 3.0]));
        }
        all.extend((0..4).map(|i| (["only1", "only2", "only3", side][i], vec![i as f32])));
        if side == "b" {
            all.retain(|(name, _)| !name.starts_with("only"));
        }
        let all: Vec<(&str, &[f32])> = all.iter().map(|(name, v)| (*name, &v[..])).collect();
        tensors(&at(&format!("{side}.safetensors")), &all)
    });
    let compare = ["compare", &sides[0], &sides[1], "--abs", "1e-3"];
    let (raw, lines) = on_terminal(&compare, 1);
    let text = lines.join("\n");
    assert!(raw.starts_with("\x1b[1;31mdifferent\x1b[0m: "), "{raw:?}");
    assert!(
        lines[0].contains("25 of 90 values beyond their bounds, in 25 of 30 variables"),
        "{text}"
    );
    assert!(lines[1].contains(&format!("{}, index (1)", names[5])), "{text}");
    assert!(lines[2].contains("a = 2.0, b = 2.00"), "{text}");
    assert!(lines[3].contains("times the bound (abs:0.001)"), "{text}");
    let row = |part: &str| lines.iter().position(|line| line.contains(part)).unwrap();
    assert!(row("les/v29 ") < row("les/v28 ") && row("les/v28 ") < row("les/v22 "), "{text}");
    assert!(!text.contains("les/v21 ") && text.contains("and 17 more variables (--all)"), "{text}");
    assert!(text.contains("not in both: variable ") && text.contains("more: --all)"), "{text}");
    assert!(text.contains("\nread ") && text.contains("\nmore: --all"), "{text}");
    assert!(height(&lines) <= 23, "{text}");
    // The same in a pipe, where names are whole and nothing is drawn.
    let piped = treering(&compare);
    let piped = String::from_utf8_lossy(&piped.stdout).into_owned();
    assert!(
        piped.starts_with("different: 25 of 90 values") && piped.contains(&names[29]),
        "{piped}"
    );
    assert!(
        !piped.contains('─') && !piped.contains('\x1b') && !piped.contains("\nmore: "),
        "{piped}"
    );
    let all = treering(&[&compare[..], &["--all"]].concat());
    let all = String::from_utf8_lossy(&all.stdout).into_owned();
    assert!(names[5..].iter().all(|name| all.contains(name)) && all.contains("only3"), "{all}");
    let (raw, lines) = on_terminal(&["compare", &sides[0], &sides[0]], 0);
    assert!(raw.starts_with("\x1b[1;32mequal\x1b[0m: all 94 values of 34 variables"), "{raw}");
    assert_eq!(lines.len(), 2, "{raw}");
}
