//! `ingest` and `export` as a person meets them.

use serde_json::Value;
use std::path::Path;
use std::process::{Command, Output};
use treering::{Bound, DType, Options, Run, Variable};

fn treering(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_treering")).args(arguments).output().unwrap()
}

fn sentence(arguments: &[&str]) -> String {
    let output = treering(arguments);
    assert_eq!(output.status.code(), Some(2), "{arguments:?}: {output:?}");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// The state of three ranks as raw f32 values, sizes differing.
fn write(folder: &Path, moved: f32) {
    std::fs::create_dir_all(folder.join("rank2")).unwrap();
    for rank in 0..3usize {
        let values = (0..20_000 + 100 * rank).map(|i| (i as f32 / 50.0).sin() + moved);
        let bytes: Vec<u8> = values.flat_map(|v| v.to_le_bytes()).collect();
        let name = ["state_0.raw", "state_1.raw", "rank2/state.raw"][rank];
        std::fs::write(folder.join(name), bytes).unwrap();
    }
}

#[test]
fn what_is_left_out_of_a_folder_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).display().to_string();
    std::fs::create_dir_all(at("in/step100")).unwrap();
    for (name, text) in [("step100/rank_0.dat", "a"), ("step100/rank_1.dat", "b")] {
        std::fs::write(at(&format!("in/{name}")), text).unwrap();
    }
    // Data that is called as trees are, and a tree.
    std::fs::write(at("in/merger_0.tree"), "of galaxies").unwrap();
    std::fs::write(at("in/values_0.raw"), [0; 4000]).unwrap();
    let values = at("in/values_0.raw");
    assert!(treering(&["tree", &values, "--abs", "1", "--type", "f32"]).status.success());
    std::fs::write(at("in/.hidden"), "c").unwrap();
    // Names that stand before and behind the folder that they lead to.
    for link in ["a_link", "current", "zzz"] {
        std::os::unix::fs::symlink("step100", at(&format!("in/{link}"))).unwrap();
    }
    std::os::unix::fs::symlink("..", at("in/up")).unwrap();
    std::fs::create_dir(at("elsewhere")).unwrap();
    std::fs::write(at("elsewhere/rank_7.dat"), "d").unwrap();
    std::os::unix::fs::symlink(at("elsewhere"), at("in/node7")).unwrap();
    std::os::unix::fs::symlink("nowhere", at("in/broken")).unwrap();
    let place = at("store#sim@1");
    let done = treering(&["ingest", &place, &at("in"), "--json"]);
    let told: Value = serde_json::from_slice(&done.stdout).unwrap();
    let left_out: Vec<String> = serde_json::from_value(told["left_out"].clone()).unwrap();
    let names = [".hidden", "a_link", "broken", "current", "up", "values_0.raw.tree", "zzz"];
    assert_eq!(left_out, names.map(|name| at(&format!("in/{name}"))));
    let done = treering(&["ingest", &at("store#sim@2"), &at("in")]);
    let told = String::from_utf8_lossy(&done.stdout).into_owned();
    assert!(told.contains("current is a link to a folder") && told.contains("2 more"), "{told}");
    assert!(treering(&["export", &place, "--to", &at("out")]).status.success());
    for name in [
        "step100/rank_0.dat",
        "step100/rank_1.dat",
        "merger_0.tree",
        "values_0.raw",
        "node7/rank_7.dat",
    ] {
        let [a, b] =
            [at("in"), at("out")].map(|dir| std::fs::read(format!("{dir}/{name}")).unwrap());
        assert!(a == b, "{name}");
    }
    assert_eq!(std::fs::read_dir(at("out")).unwrap().count(), 4);
    let inside = at("in/store#sim@1");
    assert!(treering(&["ingest", &inside, &at("elsewhere")]).status.success());
    let told = sentence(&["ingest", &inside, &at("in")]);
    assert!(told.contains("belongs to the store"), "{told}");
}

#[test]
fn a_newest_checkpoint_that_is_damaged_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).display().to_string();
    for (step, moved) in [(1, 0.0), (2, 0.5)] {
        write(Path::new(&at("in")), moved);
        let place = at(&format!("store#sim@{step}"));
        assert!(treering(&["ingest", &place, &at("in"), "--type", "f32"]).status.success());
        for copy in ["same", "whole"] {
            let place = at(&format!("{copy}#sim@{step}"));
            assert!(treering(&["ingest", &place, &at("in"), "--type", "f32"]).status.success());
        }
    }
    let mut log: Vec<_> = std::fs::read_dir(at("store/runs/sim/log")).unwrap().flatten().collect();
    log.sort_by_key(|entry| entry.file_name());
    let newest = log.last().unwrap().path();
    let mut bytes = std::fs::read(&newest).unwrap();
    bytes[60] ^= 0xff;
    std::fs::write(&newest, bytes).unwrap();
    let place = at("store#sim");
    let out = at("out");
    let commands: [&[&str]; 4] = [
        &["show", &place],
        &["export", &place, "--to", &out],
        &["branch", &place, "other"],
        &["tree", &place, "--abs", "0.1"],
    ];
    for command in commands {
        let done = treering(command);
        let told = String::from_utf8_lossy(&done.stderr).into_owned();
        assert!(done.status.success() && told.contains("note: "), "{command:?}: {done:?}");
        let shown = String::from_utf8_lossy(&done.stdout).into_owned();
        assert!(command[0] != "export" || shown.contains("sim@1"), "{shown}");
    }
    // The compared part is equal, but that is not everything.
    let told = sentence(&["compare", &place, &at("same#sim")]);
    assert!(told.contains("not everything was compared"), "{told}");
    let compared = treering(&["compare", &place, &at("same#sim"), "--json"]);
    let found: Value = serde_json::from_slice(&compared.stdout).unwrap();
    assert_eq!((&found["verdict"], &found["unreadable"]), (&"undecided".into(), &1.into()));
    assert_eq!(found["equal"], false);
    assert!(treering(&["compare", &at("whole#sim"), &at("same#sim")]).status.success());
}

#[test]
fn folders_of_files_are_taken_in_and_given_back() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).display().to_string();
    let step = |step: u64| format!("{}#sim@{step}", at("store"));
    for (number, moved) in [(1, 0.0), (2, 0.5)] {
        let files = at(&format!("in{number}"));
        write(Path::new(&files), moved);
        let done = treering(&["ingest", &step(number), &files, "--type", "f32", "--json"]);
        assert!(done.status.success(), "{done:?}");
        let told: Value = serde_json::from_slice(&done.stdout).unwrap();
        assert_eq!((&told["files"], &told["packs"]), (&3.into(), &1.into()));
        assert_eq!(told["ranks"], serde_json::json!([0, 1, 2]));
        assert!(told["stored_bytes"].as_u64() < told["bytes"].as_u64());
    }
    for number in [1, 2] {
        let to = at(&format!("out{number}"));
        assert!(treering(&["export", &step(number), "--to", &to]).status.success());
        for name in ["state_0.raw", "state_1.raw", "rank2/state.raw"] {
            let files = [at(&format!("in{number}/{name}")), format!("{to}/{name}")];
            let [a, b] = files.map(|file| std::fs::read(file).unwrap());
            assert!(a == b, "{name}");
        }
    }
    let pruned = treering(&["prune", &at("store#sim"), "--keep-last", "1", "--dry-run", "--json"]);
    let plan: Value = serde_json::from_slice(&pruned.stdout).unwrap();
    // The second step is of the same epoch, and builds on what the first one stored.
    assert_eq!((&plan["plan"]["held"], &plan["plan"]["bytes"]), (&1.into(), &0.into()));
    let compared = treering(&["compare", &step(1), &step(2), "--abs", "0.1", "--json"]);
    let found: Value = serde_json::from_slice(&compared.stdout).unwrap();
    assert_eq!(found["differences"], 60_300);
    let told = sentence(&["export", &step(1), "--to", &at("out1")]);
    assert!(told.contains("is there already"), "{told}");
    let told = sentence(&["export", &step(1), "--to", &at("none"), "--rank", "9"]);
    assert!(told.contains("holds no files"), "{told}");
    let (files, nowhere) = (at("in1"), at("x#r@1"));
    for (arguments, words) in [
        (vec!["ingest", &at("x"), &files], "names no step"),
        (vec!["ingest", &nowhere, "nowhere"], "there is no"),
        (vec!["ingest", &nowhere, &files, "--rank-pattern", "("], "invalid pattern of the rank"),
        (vec!["ingest", &nowhere, &files, "--rank-pattern", "state"], "it has no group"),
        (vec!["ingest", &nowhere, &files, "--rank-pattern", "state_(\\d)"], "does not match"),
        (vec!["ingest", &nowhere, &files, "--rank-pattern", "([a-z])"], "twice"),
        (vec!["ingest", &nowhere, &files, &files], "two files are called"),
    ] {
        let told = sentence(&arguments);
        assert!(told.contains(words), "{arguments:?}: {told}");
    }
}

#[test]
fn variables_are_rounded_when_asked_and_everybody_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).display().to_string();
    let (store, files) = (at("store"), at("in"));
    write(Path::new(&files), 0.0);
    let ingest = |step: u64, more: &[&str]| {
        let place = format!("{store}#sim@{step}");
        let done = treering(&[&["ingest", &place, &files, "--type", "f32"], more].concat());
        assert!(done.status.success(), "{done:?}");
        String::from_utf8(done.stdout).unwrap()
    };
    assert!(!ingest(1, &[]).contains("round"));
    let told = ingest(2, &["--error-bound", "state*=1e-3", "--error-bound", "rank*=rel:0.01"]);
    assert!(told.contains("3 variables rounded") && told.contains("not the bytes"), "{told}");
    let told: Value =
        serde_json::from_str(&ingest(3, &["--error-bound", "*=1e-3", "--json"])).unwrap();
    assert_eq!(told["rounded_variables"], 3);
    let shown = |step: u64| -> Value {
        let done = treering(&["show", &format!("{store}#sim@{step}"), "--json"]);
        let shown: Value = serde_json::from_slice(&done.stdout).unwrap();
        shown["variables"].as_array().unwrap().iter().map(|v| v["error_bound"].clone()).collect()
    };
    assert_eq!(shown(1), serde_json::json!([null, null, null]));
    assert_eq!(shown(2), serde_json::json!(["rel:0.01", "abs:0.001", "abs:0.001"]));
    let table = treering(&["show", &format!("{store}#sim@2")]).stdout;
    let table = String::from_utf8(table).unwrap();
    assert!(table.contains("error bound") && table.contains("abs:0.001"), "{table}");
    for (step, told) in [(1, false), (2, true)] {
        let to = at(&format!("out{step}"));
        let done = treering(&["export", &format!("{store}#sim@{step}"), "--to", &to]);
        let text = String::from_utf8(done.stdout).unwrap();
        assert_eq!(text.contains("3 files with 3 variables rounded"), told, "{text}");
        let same = |name: &str| {
            std::fs::read(format!("{files}/{name}")).unwrap()
                == std::fs::read(format!("{to}/{name}")).unwrap()
        };
        assert_eq!(same("state_0.raw"), !told);
        let bound = ["compare", &to, &files, "--type", "f32", "--abs", "1e-3", "--rel", "0.01"];
        assert!(treering(&bound).status.success());
    }
    let place = format!("{store}#sim@4");
    let told = |within: &str| {
        sentence(&["ingest", &place, &files, "--type", "f32", "--error-bound", within])
    };
    for (within, words) in [
        ("state", "there is no '='"),
        ("state.*=1e-3", "no variable matches the bound of \"state.*\""),
        ("state=1e-3", "no variable matches the bound of \"state\""),
        ("state*=0", "greater than 0"),
        ("state*=-1", "greater than 0"),
        ("state*=much", "invalid bound"),
        ("state*=ulp:3", "not a distance"),
        ("state*=rel:2", "less than 1"),
    ] {
        assert!(told(within).contains(words), "{within}: {}", told(within));
    }
    let bytes = sentence(&["ingest", &place, &files, "--error-bound", "state*=1"]);
    assert!(bytes.contains("type bytes") && bytes.contains("state"), "{bytes}");
    assert!(treering(&["verify", &store, "--deep"]).status.success());
}

#[test]
fn arrays_that_a_program_saved_are_exported() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).display().to_string();
    let values: Vec<f64> = (0..600).map(f64::from).collect();
    let bits = [0u8; 8];
    let mut run = Run::open(Options::directory(at("store"), "sim")).unwrap();
    let state = [
        Variable::new("flow/u", &values).shaped(&[20, 30]).fortran(),
        Variable::new("flow/v", &values).error_bound(Bound::abs(0.5)),
        Variable::from_bytes("weights", DType::BF16, &[4], &bits),
    ];
    run.checkpoint(12, &state).unwrap();
    run.finish().unwrap();
    let (place, out) = (at("store#sim"), at("out"));
    // Without a format there is nothing, and it says what to do.
    let told = sentence(&["export", &place, "--to", &out]);
    assert!(told.contains("holds no files") && told.contains("--as npy"), "{told}");
    let told = sentence(&["export", &place, "--to", &out, "--vars", "flow/*"]);
    assert!(told.contains("--as"), "{told}");
    let told = sentence(&["export", &place, "--to", &out, "--as", "hdf5", "--vars", "w"]);
    assert!(told.contains("no variable matches \"w\"") && told.contains("weights"), "{told}");
    assert!(!Path::new(&out).exists());
    for (format, name, suffix) in
        [("npy", "sim-12", ".npy"), ("hdf5", "sim-12.h5", ""), ("zarr", "sim-12.zarr", "")]
    {
        let done = treering(&["export", &place, "--to", &out, "--as", format, "--json"]);
        assert!(done.status.success(), "{done:?}");
        let told: Value = serde_json::from_slice(&done.stdout).unwrap();
        let path = format!("{out}/{name}");
        assert!(Path::new(&path).exists());
        assert_eq!((&told["path"], &told["format"]), (&path.into(), &format.into()));
        assert_eq!((&told["run"], &told["step"]), (&"sim".into(), &12.into()));
        assert_eq!(told["bytes"], 2 * 4800 + 8);
        let arrays = told["arrays"].as_array().unwrap();
        let names: Vec<&str> = arrays.iter().map(|array| array["name"].as_str().unwrap()).collect();
        assert_eq!(names, ["flow/u", "flow/v", "weights"].map(|name| format!("{name}{suffix}")));
        assert_eq!((&arrays[0]["rounded"], &arrays[1]["rounded"]), (&false.into(), &true.into()));
        assert_eq!(arrays[0]["shape"], serde_json::json!([20, 30]));
        assert_eq!(arrays[2]["written_as"], if format == "hdf5" { "bf16" } else { "u16" });
        // Nothing is replaced.
        let told = sentence(&["export", &place, "--to", &out, "--as", format]);
        assert!(told.contains("is there already"), "{told}");
    }
    let done = treering(&["export", &place, "--to", &at("one"), "--as", "npy", "--rank", "0"]);
    let told = String::from_utf8_lossy(&done.stdout).into_owned();
    assert!(told.starts_with("sim@12: 3 arrays of 9.38 KiB in "), "{told}");
    assert!(
        told.contains("1 array of type bf16") && told.contains("1 array with values"),
        "{told}"
    );
    // The exported files have the content of the run, rounded values included.
    let (stored, file) = (at("store#sim@12"), at("out/sim-12.h5"));
    let vars = ["--vars", "flow/v", "--vars", "weights"];
    let compared =
        treering(&[&["compare", &stored, &file, "--bits", "--json"], &vars[..]].concat());
    let found: Value = serde_json::from_slice(&compared.stdout).unwrap();
    assert_eq!((&found["verdict"], &found["differences"]), (&"equal".into(), &0.into()), "{found}");
}

/// A file of tensors of f32.
fn tensors(path: &str, all: &[(&str, f32)]) {
    let entry = |(at, (name, _)): (usize, &(&str, f32))| {
        let (from, to) = (4 * at, 4 * at + 4);
        format!("{name:?}:{{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[{from},{to}]}}")
    };
    let head: Vec<String> = all.iter().enumerate().map(entry).collect();
    let head = format!("{{{}}}", head.join(","));
    let mut bytes = (head.len() as u64).to_le_bytes().to_vec();
    bytes.extend(head.bytes());
    bytes.extend(all.iter().flat_map(|(_, value)| value.to_le_bytes()));
    std::fs::write(path, bytes).unwrap();
}

#[test]
fn variables_are_named_by_file_and_array() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).display().to_string();
    let json = |arguments: &[&str], code: i32| -> Value {
        let done = treering(&[arguments, &["--json"]].concat());
        assert_eq!(done.status.code(), Some(code), "{arguments:?}: {done:?}");
        serde_json::from_slice(&done.stdout).unwrap()
    };
    let list = |value: &Value, key: &str| -> Vec<String> {
        let all = value.as_array().unwrap().iter();
        all.map(|one| one[key].as_str().unwrap_or_default().to_string()).collect()
    };
    std::fs::create_dir(at("in")).unwrap();
    tensors(&at("in/a.st"), &[("T", 1.0), ("g/p", 2.0)]);
    let step = |step: u64| format!("{}#sim@{step}", at("store"));
    json(&["ingest", &step(1), &at("in")], 0);
    assert_eq!(list(&json(&["show", &step(1)], 0)["variables"], "name"), ["a.st/T", "a.st/g/p"]);
    // A file that is named alone has the names of its arrays.
    assert_eq!(list(&json(&["show", &at("in/a.st")], 0)["arrays"], "name"), ["T", "g/p"]);
    tensors(&at("in/b.st"), &[("T", 3.0)]);
    json(&["ingest", &step(2), &at("in")], 0);
    let shown = json(&["show", &step(2)], 0);
    assert_eq!(list(&shown["variables"], "name"), ["a.st/T", "a.st/g/p", "b.st/T"]);
    let found = json(&["compare", &step(1), &step(2)], 1);
    assert_eq!(list(&found["unmatched"], "variable"), ["b.st/T"]);
    assert_eq!(list(&found["variables"], "name"), ["a.st/T", "a.st/g/p"]);
    // The folder, and one file of it.
    let found = json(&["compare", &step(2), &at("in")], 0);
    assert_eq!(list(&found["variables"], "name"), ["a.st/T", "a.st/g/p", "b.st/T"]);
    let found = json(&["compare", &step(1), &at("in/a.st")], 0);
    assert_eq!(list(&found["variables"], "name"), ["a.st/T", "a.st/g/p"]);
    let found = json(&["compare", &at("in/a.st"), &step(2)], 1);
    assert_eq!(list(&found["unmatched"], "variable"), ["b.st/T"]);
    // Patterns, with and without the file.
    let found = json(&["compare", &step(1), &step(2), "--vars", "g/p"], 0);
    assert_eq!(list(&found["variables"], "name"), ["a.st/g/p"]);
    let found = json(&["compare", &step(1), &step(2), "--exclude", "T"], 2);
    assert_eq!(list(&found["variables"], "name"), ["a.st/g/p"]);
    // The file itself is still there on one side only.
    assert_eq!(list(&found["not_compared"], "variable"), ["b.st"]);
    let found = json(&["compare", &step(1), &step(2), "--exclude", "b.st/*"], 0);
    assert_eq!((list(&found["variables"], "name").len(), &found["excluded"]), (2, &2.into()));
    json(&["compare", &step(1), &step(2), "--exclude", "b.st*", "--bound", "T=abs:1"], 0);
    for (pattern, arrays) in [("T", vec!["a.st/T", "b.st/T"]), ("b.st/*", vec!["b.st/T"])] {
        let to = at(&format!("out-{}", arrays.len()));
        let export = ["export", &step(2), "--as", "hdf5", "--vars", pattern, "--to", &to];
        assert_eq!(list(&json(&export, 0)["arrays"], "name"), arrays);
    }
    let lossy = |pattern: &str, step: &str| {
        json(&["ingest", step, &at("in"), "--error-bound", pattern], 0)["rounded_variables"].clone()
    };
    assert_eq!((lossy("T=0.1", &step(3)), lossy("a.st/T=0.1", &step(4))), (2.into(), 1.into()));
    let told = sentence(&["ingest", &step(5), &at("in"), "--error-bound", "p=0.1"]);
    assert!(told.contains("a.st/T, a.st/g/p, b.st/T"), "{told}");
    // The column of names is as wide as the longest one.
    let table = String::from_utf8(treering(&["show", &step(2)]).stdout).unwrap();
    assert!(table.lines().any(|line| line.trim_start().starts_with("a.st/g/p ")), "{table}");
}
