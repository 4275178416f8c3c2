//! The command as a person or a script meets it: exit codes, sentences, JSON.

use serde_json::Value;
use std::path::Path;
use std::process::{Command, Output};
use treering::{ErrorKind, Options, Run, Variable};

fn treering(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_treering")).args(arguments).output().unwrap()
}

fn json(arguments: &[&str]) -> Value {
    let output = treering(arguments);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(output.stderr.is_empty(), "a pipe must stay quiet");
    serde_json::from_slice(&output.stdout).unwrap()
}

/// A store with a run of ten steps, of which each changes a little.
fn store(folder: &Path) -> String {
    let store = folder.join("store");
    let mut run = Run::open(Options::directory(&store, "waves").growth(100.0)).unwrap();
    let mut data: Vec<f64> = (0..20_000).map(f64::from).collect();
    for step in 0..10 {
        data[step as usize * 100] += 0.5;
        run.checkpoint(step, &[Variable::new("height", &data).shaped(&[100, 200])]).unwrap();
    }
    run.finish().unwrap();
    store.display().to_string()
}

#[test]
fn the_demo_ends_bit_identical() {
    let report = json(&["demo", "--json"]);
    assert_eq!(report["bit_identical"], true);
    assert!(report["checkpoints"].as_u64().unwrap() >= 10);
    assert!(report["stored_bytes"].as_u64().unwrap() < report["full_bytes"].as_u64().unwrap());
    let (blocked, run) = (&report["blocked_seconds"], &report["run_seconds"]);
    assert!(blocked.as_f64().unwrap() > 0.0 && blocked.as_f64() < run.as_f64());
    assert_eq!(report["killed_at"], 860);
    assert_eq!(report["restarted_from"], 800);
}

#[test]
fn stores_are_listed_shown_verified_pruned_and_branched() {
    let folder = tempfile::tempdir().unwrap();
    let store = store(folder.path());
    let run = format!("{store}#waves");
    let runs = json(&["ls", &store, "--json"]);
    assert_eq!(runs["runs"][0]["name"], "waves");
    assert_eq!(runs["runs"][0]["checkpoints"], 10);
    let listed = json(&["ls", &run, "--json"]);
    assert_eq!(listed["checkpoints"][9]["step"], 9);
    assert!(listed["checkpoints"][9]["stored_bytes"].as_u64().unwrap() < 10_000);
    let shown = json(&["show", &format!("{run}@4"), "--json"]);
    assert_eq!(shown["variables"][0]["name"], "height");
    assert_eq!(shown["variables"][0]["dtype"], "f64");
    assert_eq!(shown["variables"][0]["shape"][1], 200);
    let branch = json(&["branch", &format!("{run}@4"), "other", "--json"]);
    assert_eq!(branch["step"], 4);
    let plan = json(&["prune", &run, "--keep-last", "2", "--dry-run", "--json"]);
    assert_eq!(plan["plan"]["removed"].as_array().unwrap().len(), 8);
    assert_eq!(json(&["ls", &run, "--json"])["checkpoints"].as_array().unwrap().len(), 10);
    json(&["prune", &run, "--keep-last", "2", "--json"]);
    assert_eq!(json(&["ls", &run, "--json"])["checkpoints"].as_array().unwrap().len(), 2);
    let verified = json(&["verify", &store, "--deep", "--json"]);
    assert_eq!(verified["sound"], 3);
    // Of the whole store, nothing more may go: at least the newest of each run stays.
    let pruned = json(&["prune", &store, "--store-limit", "1", "--dry-run", "--json"]);
    assert!(pruned["plan"]["removed"].as_array().unwrap().is_empty());
    assert!(pruned["plan"]["excess"].as_u64().unwrap() > 0);
    let output = treering(&["prune", &store, "--store-limit", "1GiB"]);
    assert_eq!(String::from_utf8(output.stdout).unwrap(), "freed 0 B of 0 checkpoints\n");
    for arguments in
        [vec!["ls", &store], vec!["ls", &run], vec!["show", &run], vec!["verify", &store]]
    {
        let output = treering(&arguments);
        assert!(output.status.success() && output.stdout.len() > 50, "{arguments:?}");
    }
}

#[test]
fn compact_tells_its_plan_and_leaves_few_files() {
    let folder = tempfile::tempdir().unwrap();
    let store = folder.path().join("store");
    let mut data: Vec<f64> = (0..500).map(f64::from).collect();
    for step in 0..12 {
        // Each opening begins an epoch.
        let mut run = Run::open(Options::directory(&store, "waves")).unwrap();
        data[step as usize] += 0.5;
        run.checkpoint(step, &[Variable::new("height", &data)]).unwrap();
        run.finish().unwrap();
    }
    let files = || {
        let count = |name: &str| {
            std::fs::read_dir(store.join("runs/waves").join(name)).map_or(0, |d| d.count())
        };
        ["log", "packs", "bundles"].map(count).iter().sum::<usize>() as u64
    };
    let store = store.display().to_string();
    let run = format!("{store}#waves");
    let before = files();
    let plan = json(&["compact", &run, "--dry-run", "--json"]);
    assert_eq!((plan["dry_run"].as_bool(), files()), (Some(true), before));
    let done = json(&["compact", &store, "--json"]);
    assert_eq!(plan["plans"][0]["files_after"], done["plans"][0]["files_after"]);
    assert_eq!(plan["plans"][0]["files_before"], before);
    assert_eq!(done["plans"][0]["files_after"], files());
    // Twelve openings, two files of the open epoch, and two of the bundle.
    assert_eq!(files(), 16);
    let listed = json(&["ls", &run, "--all", "--json"]);
    assert_eq!(listed["checkpoints"].as_array().unwrap().len(), 12);
    let shown = json(&["show", &format!("{run}@3"), "--json"]);
    assert_eq!(shown["variables"][0]["name"], "height");
    assert_eq!(json(&["verify", &store, "--deep", "--json"])["sound"], 12);
    let again = treering(&["compact", &run]);
    assert!(String::from_utf8_lossy(&again.stdout).contains("nothing to compact"));
    assert_eq!(treering(&["compact", &format!("{run}@3")]).status.code(), Some(2));
    // The remains of a run that was removed are no run.
    std::fs::create_dir_all(Path::new(&store).join("runs/gone/log")).unwrap();
    assert_eq!(json(&["compact", &store, "--json"])["plans"].as_array().unwrap().len(), 1);
    let unknown = treering(&["ls", &format!("{store}#absent")]);
    assert!(!String::from_utf8_lossy(&unknown.stderr).contains("gone"));
}

#[test]
fn shells_complete_commands_and_man_pages_tell_of_them() {
    for shell in ["bash", "zsh", "fish"] {
        let script = treering(&["completions", shell]);
        assert_eq!(script.status.code(), Some(0));
        let script = String::from_utf8(script.stdout).unwrap();
        assert!(script.contains("error-bound") && script.contains("whole-run"), "{shell}");
    }
    let folder = tempfile::tempdir().unwrap();
    let pages = folder.path().join("man1");
    assert_eq!(treering(&["man", &pages.display().to_string()]).status.code(), Some(0));
    let page = std::fs::read_to_string(pages.join("treering-ingest.1")).unwrap();
    assert!(page.contains("Lossy") && pages.join("treering.1").is_file());
    let file = folder.path().join("file");
    std::fs::write(&file, "").unwrap();
    assert_eq!(treering(&["man", &file.display().to_string()]).status.code(), Some(2));
}

#[test]
fn rm_removes_a_step_or_a_whole_run_and_never_by_mistake() {
    let folder = tempfile::tempdir().unwrap();
    let store = folder.path().join("store");
    let mut data: Vec<f64> = (0..500).map(f64::from).collect();
    let mut run = Run::open(Options::directory(&store, "waves")).unwrap();
    for step in 0..5 {
        data[step as usize] += 0.5;
        run.checkpoint(step, &[Variable::new("height", &data)]).unwrap();
    }
    run.finish().unwrap();
    let store = store.display().to_string();
    let run = format!("{store}#waves");
    let steps = || {
        let listed = json(&["ls", &run, "--all", "--json"]);
        let checkpoints = listed["checkpoints"].as_array().unwrap().clone();
        checkpoints.iter().map(|c| c["step"].as_u64().unwrap()).collect::<Vec<u64>>()
    };
    let plan = json(&["rm", &format!("{run}@2"), "--dry-run", "--json"]);
    assert_eq!((plan["plan"]["removed"][0]["step"].as_u64(), steps().len()), (Some(2), 5));
    assert_eq!(treering(&["rm", &format!("{run}@2")]).status.code(), Some(0));
    assert_eq!(steps(), [0, 1, 3, 4]);
    for wrong in [
        vec!["rm", &run],
        vec!["rm", &store],
        vec!["rm", &format!("{run}@4")],
        vec!["rm", &format!("{run}@2")],
        vec!["rm", &format!("{run}@1"), "--whole-run"],
    ] {
        let refused = treering(&wrong);
        assert_eq!(refused.status.code(), Some(2), "{wrong:?}");
        assert!(!refused.stderr.is_empty());
    }
    assert_eq!(steps(), [0, 1, 3, 4]);
    let plan = json(&["rm", &run, "--whole-run", "--dry-run", "--json"]);
    assert_eq!((plan["removed"]["checkpoints"].as_u64(), steps().len()), (Some(4), 4));
    assert_eq!(treering(&["rm", &run, "--whole-run"]).status.code(), Some(0));
    assert_eq!(json(&["ls", &store, "--json"])["runs"].as_array().map(Vec::len), Some(0));
}

#[test]
fn bad_input_gets_one_sentence_and_exit_code_2() {
    let folder = tempfile::tempdir().unwrap();
    let store = store(folder.path());
    let run = format!("{store}#waves");
    let nowhere = folder.path().join("nowhere").display().to_string();
    let cases: &[&[&str]] = &[
        &["ls", &nowhere],
        &["ls", "x#"],
        &["show", &store],
        &["show", &format!("{run}@77")],
        &["show", &format!("{store}#absent")],
        &["show", &format!("{run}@x")],
        &["verify", &format!("{run}@1")],
        &["prune", &run, "--keep-last", "0"],
        &["prune", &run, "--keep-last", "1", "--keep-every", "0"],
        &["prune", &run],
        &["prune", &run, "--store-limit", "1GiB"],
        &["prune", &store, "--store-limit", "1GiB", "--keep-every", "2"],
        &["prune", &store, "--store-limit", "0"],
        &["branch", &run, "a/b"],
        &["branch", &run, "waves"],
        &["demo", "--keep", &store],
        &["bench", "capture", "--size", "0"],
    ];
    for arguments in cases {
        let output = treering(arguments);
        let told = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(told.starts_with("treering: ") && told.trim_end().lines().count() == 1, "{told}");
        assert!(output.stdout.is_empty());
        // With --json there is one document on standard output, and the same sentence.
        let output = treering(&[arguments, &["--json"][..]].concat());
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        let failed: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(told.trim_end(), format!("treering: {}", failed["error"].as_str().unwrap()));
        assert_eq!(told, String::from_utf8(output.stderr).unwrap());
        let kind = ErrorKind::from_code(failed["code"].as_u64().unwrap() as u8).unwrap();
        assert_eq!(failed["kind"], format!("{kind:?}"));
        let hint = failed["hint"].as_str();
        assert!(hint.is_none_or(|hint| told.trim_end().ends_with(hint)), "{failed}");
    }
    // Arguments that are wrong by themselves, too.
    for arguments in [&["ls", "--nonsense", "--json"][..], &["--json"], &["rm", "--json"]] {
        let output = treering(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        let failed: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!((&failed["kind"], &failed["code"]), (&"Usage".into(), &1.into()));
        assert!(failed["error"].as_str().is_some_and(|error| !error.is_empty()), "{failed}");
        assert!(!output.stderr.is_empty());
    }
    assert!(treering(&["ls", "--nonsense"]).stdout.is_empty());
}

/// Findings are the answer: the document has them, and there is no second one.
#[test]
fn damage_is_one_document_with_json() {
    let folder = tempfile::tempdir().unwrap();
    let store = store(folder.path());
    let packs = Path::new(&store).join("runs/waves/packs");
    let pack = std::fs::read_dir(packs).unwrap().map(|e| e.unwrap().path()).max().unwrap();
    std::fs::write(&pack, b"no pack").unwrap();
    let output = treering(&["verify", &store, "--json"]);
    assert_eq!(output.status.code(), Some(2));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(!report["findings"].as_array().unwrap().is_empty());
    assert!(!output.stderr.is_empty());
}

#[test]
fn a_tree_has_the_bounds_that_name_its_variable() {
    let folder = tempfile::tempdir().unwrap();
    let store = folder.path().join("store");
    let mut run = Run::open(Options::directory(&store, "waves")).unwrap();
    let data: Vec<f64> = (0..5000).map(f64::from).collect();
    let state = [Variable::new("height", &data), Variable::new("speed", &data)];
    run.checkpoint(0, &state).unwrap();
    run.finish().unwrap();
    let run = format!("{}#waves", store.display());
    let golden = |name: &str, bounds: &[&str]| {
        let file = folder.path().join(name).display().to_string();
        json(&[&["golden", "record", &run, "-o", &file, "--json"], bounds].concat());
        let shown = json(&["show", &file, "--json"]);
        let trees = shown["trees"].as_array().unwrap().clone();
        trees.iter().map(|tree| tree["name"].as_str().unwrap().to_string()).collect::<Vec<_>>()
    };
    assert_eq!(golden("one.tree", &["--bound", "h*=1e-3"]), ["height"]);
    let both = golden("both.tree", &["--bound", "abs:1e-6", "--bound", "speed=1e-3"]);
    assert_eq!(both, ["height", "speed", "speed"]);
    let made = json(&["tree", &run, "--bound", "speed=ulp:4", "--json"]);
    assert!(made["trees"][0].as_str().unwrap().starts_with("1 tree in"), "{made}");
    for wrong in ["nothing=1e-3", "=1e-3", "h*=soon"] {
        assert_eq!(treering(&["tree", &run, "--bound", wrong]).status.code(), Some(2), "{wrong}");
    }
    // A comparison takes a bound without a name as that of all variables.
    let mut other = Run::open(Options::directory(&store, "other")).unwrap();
    let data: Vec<f64> = data.iter().map(|value| value + 0.25).collect();
    other.checkpoint(0, &[Variable::new("height", &data), Variable::new("speed", &data)]).unwrap();
    other.finish().unwrap();
    let other = format!("{}#other", store.display());
    for (bounds, code) in [
        (vec!["--bound", "0.5"], 0),
        (vec!["--bound", "abs:0.1"], 1),
        (vec!["--bound", "speed=0.1", "--bound", "abs:0.5"], 1),
        (vec!["--bound", "*=0.5"], 0),
    ] {
        let output = treering(&[&["compare", &run, &other], &bounds[..]].concat());
        assert_eq!(output.status.code(), Some(code), "{bounds:?}");
    }
}

#[test]
fn damage_is_found_and_named() {
    let folder = tempfile::tempdir().unwrap();
    let store = store(folder.path());
    let packs = Path::new(&store).join("runs/waves/packs");
    let pack = std::fs::read_dir(packs).unwrap().map(|e| e.unwrap().path()).max().unwrap();
    let mut bytes = std::fs::read(&pack).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 4;
    std::fs::write(&pack, bytes).unwrap();
    let output = treering(&["verify", &store]);
    assert_eq!(output.status.code(), Some(2));
    let found = String::from_utf8(output.stdout).unwrap();
    assert!(found.contains(&pack.file_name().unwrap().display().to_string()), "{found}");
}

#[test]
fn a_result_that_cannot_be_written_is_no_success() {
    let folder = tempfile::tempdir().unwrap();
    let store = store(folder.path());
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_treering"));
    let status = command.args(["ls", &store]).stdout(full).status().unwrap();
    assert_eq!(status.code(), Some(2));
}

#[test]
fn a_message_that_cannot_be_written_changes_no_exit_code() {
    let folder = tempfile::tempdir().unwrap();
    let store = store(folder.path());
    for (arguments, code) in [(["ls", "nowhere"], 2), (["verify", &store], 0)] {
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_treering"));
        let output = command.args(arguments).stderr(full).output().unwrap();
        assert_eq!(output.status.code(), Some(code), "{arguments:?}");
    }
}

#[test]
fn a_store_in_a_folder_with_a_hash_in_its_name_is_found() {
    let folder = tempfile::tempdir().unwrap();
    let inner = folder.path().join("a#b");
    std::fs::create_dir(&inner).unwrap();
    let store = store(&inner);
    assert_eq!(json(&["ls", &store, "--json"])["runs"][0]["name"], "waves");
    let run = format!("{store}#waves");
    assert_eq!(json(&["ls", &run, "--json"])["checkpoints"][0]["step"], 0);
}

/// A job of three ranks on two nodes has died; its nodes' folders are drained, one after the other.
#[test]
fn nodes_are_drained_and_programs_are_asked_to_stop() {
    use std::sync::Arc;
    use treering::{DirectoryStore, ThreadRanks};
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let (shared, nodes) = (path("shared"), [path("node 0"), path("node 1")]);
    let names = ["node 0", "node 0", "node 1"].map(String::from);
    let (store, local) = (shared.clone(), nodes.clone());
    let ends = ThreadRanks::on_nodes(&names).run(move |comm| {
        let node = usize::from(comm.node() == "node 1");
        let options = Options::directory(&store, "heat").ranks(comm.clone()).shared_every(9);
        let options = options.node(Arc::new(DirectoryStore::new(&local[node])));
        let mut run = Run::open(options).unwrap();
        let data = vec![f64::from(comm.rank().0); 1000];
        run.checkpoint_shared(0, &[Variable::new("t", &data)]).unwrap().durable().unwrap();
        for step in 1..4 {
            run.checkpoint(step, &[Variable::new("t", &data)]).unwrap().staged().unwrap();
        }
        drop(run);
    });
    assert!(ends.into_iter().all(|end| end.done().is_some()));
    let run = format!("{}#heat", shared.display());
    let [first, second] = nodes.map(|node| node.display().to_string());
    let newest = || json(&["ls", &run, "--json"])["checkpoints"].as_array().unwrap().len();
    assert_eq!(newest(), 1);
    let plan = json(&["drain", &run, &first, &second, "--dry-run", "--json"]);
    assert_eq!((&plan["dry_run"], newest()), (&Value::Bool(true), 1));
    assert!(plan["plan"]["bytes"].as_u64().unwrap() > 0);
    let half = json(&["drain", &run, &first, "--json"]);
    assert!(half["plan"]["completed"].as_array().unwrap().is_empty());
    assert_eq!(newest(), 1);
    let done = json(&["drain", &run, &second, "--json"]);
    let completed = done["plan"]["completed"].as_array().unwrap();
    assert_eq!(completed.last().unwrap()["step"], 3);
    assert_eq!(newest(), 1 + completed.len());
    let again = treering(&["drain", &run, &first, &second]);
    assert!(again.status.success());
    assert!(String::from_utf8_lossy(&again.stdout).contains("brought 0 parts"));
    for wrong in [vec!["drain", &run], vec!["drain", &run, "/no/such/node"]] {
        assert_eq!(treering(&wrong).status.code(), Some(2), "{wrong:?}");
    }
    // Nobody drains a run that a program has open.
    let open = Run::open(Options::directory(&shared, "heat")).unwrap();
    let refused = treering(&["drain", &run, &first]);
    assert_eq!(refused.status.code(), Some(2));
    drop(open);

    assert_eq!(json(&["halt", &run, "--json"])["changed"], true);
    assert_eq!(json(&["halt", &run, "--json"])["changed"], false);
    assert_eq!(json(&["halt", &run, "--cancel", "--json"])["changed"], true);
    assert_eq!(json(&["halt", &run, "--cancel", "--json"])["changed"], false);
    assert_eq!(
        treering(&["halt", &format!("{}#nothing", shared.display())]).status.code(),
        Some(2)
    );
}

#[test]
fn labels_are_shown_and_found() {
    let folder = tempfile::tempdir().unwrap();
    let store = folder.path().join("store").display().to_string();
    for (run, git) in [("one", "4542149"), ("two", "5b71c47")] {
        let mut run = Run::open(Options::directory(&store, run).label("git", git)).unwrap();
        for step in 0..2 {
            run.label("phase", if step == 0 { "cold" } else { "hot" }).unwrap();
            let heat = Variable::new("heat", &[1.5f64; 100]).attribute("units", "K");
            run.checkpoint(step, &[heat]).unwrap();
        }
        run.finish().unwrap();
    }
    let shown = json(&["show", &format!("{store}#one"), "--json"]);
    assert_eq!(shown["labels"], serde_json::json!({ "git": "4542149", "phase": "hot" }));
    assert_eq!(shown["variables"][0]["attributes"]["units"], "K");
    let shown = treering(&["show", &format!("{store}#one")]);
    let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
    assert!(shown.contains("git: 4542149\n") && shown.contains("units=K"), "{shown}");
    let names = |tests: &[&str]| -> Vec<Value> {
        let listed = json(&[&["ls", &store, "--json"], tests].concat());
        listed["runs"].as_array().unwrap().iter().map(|run| run["name"].clone()).collect()
    };
    assert_eq!(names(&["--where", "git=5b*"]), ["two"]);
    assert_eq!(names(&["--where", "git=*", "--where", "phase=hot"]), ["one", "two"]);
    assert_eq!(names(&["--where", "heat:units=C"]), [] as [Value; 0]);
    let listed = json(&["ls", &format!("{store}#two"), "--where", "phase=hot", "--json"]);
    let listed = listed["checkpoints"].as_array().unwrap();
    assert!(listed.len() == 1 && listed[0]["step"] == 1 && listed[0]["labels"]["phase"] == "hot");
    let wrong = treering(&["ls", &store, "--where", "git"]);
    assert_eq!(wrong.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&wrong.stderr).contains("KEY=PATTERN"));
}

/// `ls` shows the size of files as they were; inflated arrays are another number.
#[test]
fn ratios_are_to_what_the_program_has() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ones.npz");
    let zeros = format!("{:?}", path.display().to_string());
    let script = format!(
        "import struct, zlib, zipfile\n\
         head = b\"{{'descr': '<f8', 'fortran_order': False, 'shape': (100000,), }}\"\n\
         head = head.ljust(117) + b'\\n'\n\
         data = b'\\x93NUMPY\\x01\\x00' + struct.pack('<H', len(head)) + head + bytes(800000)\n\
         zipfile.ZipFile({zeros}, 'w', zipfile.ZIP_DEFLATED).writestr('x.npy', data)\n"
    );
    assert!(Command::new("python3").args(["-c", &script]).status().unwrap().success());
    let size = std::fs::metadata(&path).unwrap().len();
    let store = folder.path().join("store").display().to_string();
    let file = path.display().to_string();
    json(&["ingest", &format!("{store}#sim@1"), &file, "--label", "made=here", "--json"]);
    let listed = json(&["ls", &format!("{store}#sim"), "--json"]);
    let checkpoint = &listed["checkpoints"][0];
    assert_eq!(checkpoint["source_bytes"], size);
    assert!(checkpoint["full_bytes"].as_u64().unwrap() >= 800_000, "{checkpoint}");
    assert_eq!(checkpoint["labels"]["made"], "here");
    assert_eq!(json(&["ls", &store, "--json"])["runs"][0]["source_bytes"], size);
    let shown = treering(&["ls", &format!("{store}#sim")]);
    let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
    let stored = checkpoint["stored_bytes"].as_u64().unwrap();
    let ratio = format!("{:.2}×", size as f64 / stored as f64);
    assert!(shown.contains("decoded") && shown.contains(&ratio), "{ratio} in {shown}");
    let wrong = treering(&["ingest", &format!("{store}#sim@2"), &file, "--label", "step=5"]);
    assert_eq!(wrong.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&wrong.stderr).contains("reserved"));
}
