//! Files ingested as checkpoints are exported byte for byte, whatever they are and however many ranks
//! wrote them.

use regex::Regex;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use treering::testing::{Call, Fault, FaultStore, HookedStore};
use treering::{
    ArrayExport, ArrayFormat, DType, FileRules, Ingest, IngestSettings, Library, MemoryStore,
    Merge, Options, Place, Rank, RankFile, RawLayout, Run, Store, Variable, WatchSettings, Watcher,
    export_arrays, rank_files,
};

/// An `.npy` file of f64 values.
fn npy(shape: &[u64], values: &[f64]) -> Vec<u8> {
    let extents: String = shape.iter().map(|len| format!("{len}, ")).collect();
    let mut head = format!("{{'descr': '<f8', 'fortran_order': False, 'shape': ({extents}), }}");
    while (10 + head.len() + 1) % 64 != 0 {
        head.push(' ');
    }
    head.push('\n');
    let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
    bytes.extend((head.len() as u16).to_le_bytes());
    bytes.extend(head.as_bytes());
    bytes.extend(values.iter().flat_map(|v| v.to_le_bytes()));
    bytes
}

/// The files of a step: two of every rank, of sizes that differ, one of them understood.
fn files(folder: &Path, step: u64, ranks: u32) -> Vec<RankFile> {
    std::fs::create_dir_all(folder).unwrap();
    let mut files = Vec::new();
    for rank in 0..ranks {
        let rows = 40 + u64::from(rank);
        let value = |i: u64| (i as f64 * 0.01).sin() + if i < 100 * step { 1.0 } else { 0.0 };
        let field: Vec<f64> = (0..rows * 100).map(value).collect();
        let text = format!("step {step} of rank {rank}\n").repeat(100 * rank as usize);
        let own = [
            (format!("field.{rank}.npy"), "field.{rank}.npy", npy(&[rows, 100], &field)),
            (format!("log.{rank}"), "log.{rank}", text.into_bytes()),
        ];
        for (name, like, bytes) in own {
            let path = folder.join(&name);
            std::fs::write(&path, bytes).unwrap();
            files.push(RankFile { rank: Rank(rank), path, name, like: like.to_string() });
        }
    }
    files
}

fn same(files: &[RankFile], folder: &Path) {
    for file in files {
        let (a, b) = (std::fs::read(&file.path).unwrap(), std::fs::read(folder.join(&file.name)));
        assert!(a == b.unwrap(), "{}", file.name);
    }
    assert_eq!(std::fs::read_dir(folder).unwrap().count(), files.len());
}

fn open(store: &Arc<dyn Store>, ranks_per_pack: u32) -> Ingest {
    let settings = IngestSettings { ranks_per_pack, ..IngestSettings::default() };
    // The files are small, and opening packs would outweigh them.
    Ingest::open(Options::in_store(store.clone(), "sim").growth(20.0), settings).unwrap()
}

fn quiet(_: u64, _: u64) {}

#[test]
fn sets_of_files_come_back_byte_for_byte() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: String| folder.path().join(name);
    for ranks_per_pack in [1, 3, 32] {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
        let mut ingest = open(&store, ranks_per_pack);
        let mut sets = Vec::new();
        for step in 0..4 {
            let set = files(&at(format!("in-{ranks_per_pack}-{step}")), step, 7);
            let manifest = ingest.take(step, &set, &quiet).unwrap();
            assert_eq!(manifest.groups.count(), 7u64.div_ceil(ranks_per_pack.into()));
            assert_eq!(manifest.ranks, 7);
            // What an earlier step held is not stored again.
            assert!(step == 0 || manifest.stats.new_bytes < manifest.stats.same_bytes);
            sets.push(set);
        }
        drop(ingest);
        let library = Library::of(store.clone());
        assert!(library.verify(None, true, &quiet).unwrap().is_sound());
        for (step, set) in sets.iter().enumerate() {
            let to = at(format!("out-{ranks_per_pack}-{step}"));
            let written = library.export("sim", Some(step as u64), &[], &to).unwrap();
            assert_eq!(written.len(), set.len());
            same(set, &to);
        }
        // Restarting: some ranks only.
        let to = at(format!("part-{ranks_per_pack}"));
        let written = library.export("sim", None, &[Rank(2), Rank(5)], &to).unwrap();
        assert_eq!(written.len(), 4);
        let some: Vec<RankFile> =
            sets[3].iter().filter(|f| [Rank(2), Rank(5)].contains(&f.rank)).cloned().collect();
        same(&some, &to);
        // What is there stays.
        let error = library.export("sim", None, &[Rank(2)], &to).unwrap_err().to_string();
        assert!(error.contains("is there already"), "{error}");
        // Fields are variables, with their types and shapes.
        let checkpoint = library.checkpoint("sim", Some(1)).unwrap();
        let field = checkpoint.variables().find(|v| v.name == "field.{rank}.npy").unwrap();
        assert_eq!((field.dtype, field.shape.0[1]), (DType::F64, 100));
    }
}

#[test]
fn a_later_process_goes_on_and_other_ranks_begin_an_epoch() {
    let folder = tempfile::tempdir().unwrap();
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let mut sets = Vec::new();
    for (step, ranks) in [(0, 3), (1, 3), (2, 5), (3, 1)] {
        let set = files(&folder.path().join(format!("in-{step}")), step, ranks);
        open(&store, 2).take(step, &set, &quiet).unwrap();
        sets.push(set);
    }
    let library = Library::of(store);
    for (step, set) in sets.iter().enumerate() {
        let to = folder.path().join(format!("out-{step}"));
        library.export("sim", Some(step as u64), &[], &to).unwrap();
        same(set, &to);
    }
}

#[test]
fn sets_that_cannot_come_back_are_refused_with_a_sentence() {
    let folder = tempfile::tempdir().unwrap();
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let mut ingest = open(&store, 32);
    let good = files(folder.path(), 0, 2);
    let with = |change: &dyn Fn(&mut Vec<RankFile>)| {
        let mut set = good.clone();
        change(&mut set);
        set
    };
    let cases: [(&str, Vec<RankFile>); 6] = [
        ("no files", Vec::new()),
        ("invalid file name", with(&|set| set[0].name = "../x".into())),
        ("invalid file name", with(&|set| set[0].name = "/etc/x".into())),
        ("two files are called", with(&|set| set[1].name = set[0].name.clone())),
        (
            "two files of rank 1",
            with(&|set| {
                set[0].rank = Rank(1);
                set[0].like = set[3].like.clone();
            }),
        ),
        ("there is no", with(&|set| set[0].path = PathBuf::from("nowhere"))),
    ];
    for (sentence, set) in cases {
        let error = ingest.take(0, &set, &quiet).unwrap_err().to_string();
        assert!(error.contains(sentence) || error.contains("two arrays"), "{sentence}: {error}");
    }
    // Nothing of these appeared, and what follows is whole.
    assert!(Library::of(store.clone()).checkpoint("sim", None).is_err());
    ingest.take(0, &good, &quiet).unwrap();
    let to = folder.path().join("out");
    Library::of(store).export("sim", Some(0), &[], &to).unwrap();
    same(&good, &to);
}

#[test]
fn a_failure_anywhere_leaves_the_checkpoints_before() {
    let folder = tempfile::tempdir().unwrap();
    let first = files(&folder.path().join("first"), 0, 3);
    let second = files(&folder.path().join("second"), 1, 3);
    for fault in [Fault::Fail, Fault::FailFrom, Fault::Tear] {
        let mut failed = 0;
        let counting = Arc::new(FaultStore::counting(Arc::new(MemoryStore::new())));
        let counted: Arc<dyn Store> = counting.clone();
        open(&counted, 2).take(1, &second, &quiet).unwrap();
        for call in 0..counting.calls() + 2 {
            let inner: Arc<dyn Store> = Arc::new(MemoryStore::new());
            open(&inner, 2).take(0, &first, &quiet).unwrap();
            let faulty: Arc<dyn Store> = Arc::new(FaultStore::new(inner.clone(), call, fault));
            let settings = IngestSettings { ranks_per_pack: 2, ..IngestSettings::default() };
            let outcome = Ingest::open(Options::in_store(faulty, "sim"), settings)
                .and_then(|mut ingest| ingest.take(1, &second, &quiet));
            let library = Library::of(inner);
            let to = folder.path().join(format!("out-{fault:?}-{call}"));
            library.export("sim", Some(0), &[], &to).unwrap();
            same(&first, &to);
            failed += u32::from(outcome.is_err());
            if outcome.is_ok() {
                let to = folder.path().join(format!("again-{fault:?}-{call}"));
                library.export("sim", Some(1), &[], &to).unwrap();
                same(&second, &to);
            }
        }
        assert!(failed > 3, "{fault:?}: {failed}");
    }
}

/// Raw files of two arrays, the second of which holds the values of the first at other places.
fn twins(folder: &Path, ranks: u32) -> (Vec<RankFile>, RawLayout) {
    let rough = |i: u64| (i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 11) as f64;
    let mut files = Vec::new();
    for rank in 0..ranks {
        let first: Vec<f64> = (0..20_000).map(|i| rough(i + 100_000 * u64::from(rank))).collect();
        let second = first[777..].iter().chain(&first[..777]);
        let bytes = first.iter().chain(second).flat_map(|v| v.to_le_bytes()).collect::<Vec<u8>>();
        let path = folder.join(format!("twins.{rank}"));
        std::fs::write(&path, bytes).unwrap();
        let (name, like) = (format!("twins.{rank}"), "twins.{rank}".to_string());
        files.push(RankFile { rank: Rank(rank), path, name, like });
    }
    let field =
        |name: &str| format!("[[field]]\nname = {name:?}\ntype = \"f64\"\nshape = [20000]\n");
    (files, RawLayout::parse(&(field("a") + &field("b"))).unwrap())
}

#[test]
fn arrays_of_a_rank_stay_together_where_that_pays() {
    let folder = tempfile::tempdir().unwrap();
    let (files, layout) = twins(folder.path(), 4);
    let stored = |merge: Merge, like: &[(Regex, String)]| {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
        let settings = IngestSettings {
            raw: Some(layout.clone()),
            merge,
            like: like.to_vec(),
            ..IngestSettings::default()
        };
        let options = Options::in_store(store.clone(), "sim");
        let manifest = Ingest::open(options, settings).unwrap().take(1, &files, &quiet).unwrap();
        let to = tempfile::tempdir().unwrap();
        Library::of(store).export("sim", None, &[], &to.path().join("out")).unwrap();
        same(&files, &to.path().join("out"));
        manifest.groups.here().unwrap()[0].seal.size
    };
    let (meaning, together) = (stored(Merge::Meaning, &[]), stored(Merge::Ranks, &[]));
    assert!(together * 10 < meaning * 7, "{together} {meaning}");
    assert_eq!(stored(Merge::Auto, &[]), together);
    // Names that a pattern maps together are like each other.
    let one = [(Regex::new("/[ab]$").unwrap(), "/x".to_string())];
    assert!(stored(Merge::Meaning, &one) * 10 < meaning * 9);
}

#[test]
fn a_thousand_damaged_and_random_files_come_back() {
    let folder = tempfile::tempdir().unwrap();
    let seeds = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/anatomy");
    let mut seeds: Vec<PathBuf> =
        std::fs::read_dir(seeds).unwrap().map(|entry| entry.unwrap().path()).collect();
    seeds.sort();
    let seeds: Vec<Vec<u8>> = seeds.iter().map(|path| std::fs::read(path).unwrap()).collect();
    let mut state = 7u64;
    let mut random = move |below: usize| {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 33) as usize % below.max(1)
    };
    let mut files = Vec::new();
    for number in 0..1000 {
        let mut bytes = seeds[number % seeds.len()].clone();
        match number % 4 {
            0 => bytes.truncate(random(bytes.len())),
            1 => bytes = (0..random(5000)).map(|_| random(256) as u8).collect(),
            _ => {
                for _ in 0..1 + random(8) {
                    let at = random(bytes.len());
                    if let Some(byte) = bytes.get_mut(at) {
                        *byte ^= 1 << random(8);
                    }
                }
            }
        }
        let name = format!("file-{number}");
        let path = folder.path().join(&name);
        std::fs::write(&path, bytes).unwrap();
        files.push(RankFile {
            rank: Rank(number as u32 % 8),
            path,
            name: name.clone(),
            like: name,
        });
    }
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    open(&store, 32).take(1, &files, &quiet).unwrap();
    let to = folder.path().join("out");
    Library::of(store).export("sim", None, &[], &to).unwrap();
    same(&files, &to);
}

/// A field of each rank, with one rank that is larger, and a scalar.
fn uneven(folder: &Path, ranks: u32, step: u64) -> Vec<RankFile> {
    let all = 0..ranks;
    all.map(|rank| {
        let count = 30_000 + if rank == 1 { 9_001 } else { 0 };
        let value =
            |i: usize| ((i as u64 * 31 + u64::from(rank)) / 7 + step * (i as u64 % 3)) as f64;
        let bytes: Vec<u8> = (0..count).flat_map(|i| value(i).to_le_bytes()).collect();
        let name = format!("state-{rank:03}.raw");
        let path = folder.join(&name);
        std::fs::write(&path, bytes).unwrap();
        RankFile { rank: Rank(rank), path, name, like: "state.raw".into() }
    })
    .collect()
}

#[test]
fn every_scheme_gives_back_the_same_files_over_a_lineage() {
    let folder = tempfile::tempdir().unwrap();
    let raw = Some(RawLayout::values(DType::F64, None));
    for merge in [Merge::Meaning, Merge::Ranks, Merge::Files] {
        for block in [None, Some(1), Some(4096), Some(100_000), Some(1 << 40)] {
            let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
            let options = || Options::in_store(store.clone(), "sim");
            let settings =
                || IngestSettings { raw: raw.clone(), merge, block, ..IngestSettings::default() };
            let mut ingest = Ingest::open(options(), settings()).unwrap();
            let mut kept = Vec::new();
            for step in 0..4u64 {
                if step == 2 {
                    drop(ingest);
                    ingest = Ingest::open(options(), settings()).unwrap();
                }
                let place = folder.path().join(format!("{step}"));
                std::fs::create_dir_all(&place).unwrap();
                let files = uneven(&place, 3, step);
                let manifest = ingest.take(step, &files, &quiet).unwrap();
                assert_eq!(manifest.groups.count(), 1);
                kept.push(files);
            }
            drop(ingest);
            let library = Library::of(store);
            assert!(library.verify(None, true, &|_, _| ()).unwrap().is_sound());
            for (step, files) in (0..).zip(&kept) {
                let to = tempfile::tempdir().unwrap();
                library.export("sim", Some(step), &[], to.path()).unwrap();
                same(files, to.path());
                let checkpoint = library.checkpoint("sim", Some(step)).unwrap();
                let variables = library.variables(&checkpoint);
                let told: u64 = variables.iter().map(|v| v.new_bytes).sum();
                let stats = checkpoint.manifest().stats;
                assert!(told > 0 && told <= stats.new_bytes, "{merge:?} {block:?} {step}");
                assert!(variables.iter().all(|v| v.encoded_bytes <= v.new_bytes));
            }
        }
    }
}

/// Numbers without a pattern, all below a limit.
fn noise(seed: u64, count: usize, limit: u64) -> Vec<u64> {
    let mix = |n: u64| {
        let n = (n ^ n >> 29).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        (n ^ n >> 32) % limit
    };
    let first = seed.wrapping_mul(1_000_003);
    (0..count as u64).map(|at| mix((first + at).wrapping_mul(0x9E37_79B9_7F4A_7C15))).collect()
}

/// Files of detectors, as HDF5: each has its counts twice, errors made of them, events, and many short logs. That the same
/// values are in several arrays of a file speaks for leaving its arrays together, and packing them says that it does not pay.
#[test]
fn of_many_small_files_the_smaller_pack_decides() {
    let folder = tempfile::tempdir().unwrap();
    let source: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let mut run = Run::open(Options::in_store(source.clone(), "f").staging(64 << 20)).unwrap();
    let count = 8u64;
    for file in 0..count {
        let len = 17_000 + 10 * file as usize;
        let counts: Vec<i32> = noise(file, len, 40).into_iter().map(|n| n as i32).collect();
        let errors: Vec<f64> = counts.iter().map(|n| f64::from(*n).sqrt()).collect();
        let events: Vec<u32> = noise(file + 100, len, 4000).into_iter().map(|n| n as u32).collect();
        let time: Vec<f64> = (0..len).map(|at| at as f64 * 0.1).collect();
        let logs: Vec<(String, Vec<f64>)> = (0..30)
            .map(|log| {
                let values = noise(file * 100 + log, 20, 1000);
                (format!("log/v{log}"), values.into_iter().map(|n| n as f64 / 7.0).collect())
            })
            .collect();
        let mut state = vec![
            Variable::new("data/counts", &counts),
            Variable::new("detector/counts", &counts),
            Variable::new("data/errors", &errors),
            Variable::new("events/id", &events),
            Variable::new("time", &time),
        ];
        state.extend(logs.iter().map(|(name, values)| Variable::new(name, values)));
        run.checkpoint(file, &state).unwrap();
    }
    run.finish().unwrap();
    let files = folder.path().join("files");
    std::fs::create_dir(&files).unwrap();
    let wanted = ArrayExport { format: ArrayFormat::Hdf5, variables: vec![], ranks: vec![] };
    for file in 0..count {
        let checkpoint = Library::of(source.clone()).checkpoint("f", Some(file)).unwrap();
        export_arrays(&checkpoint, &wanted, &files, &quiet).unwrap();
    }
    let rules = FileRules::default().without_ranks();
    let set = rank_files(std::slice::from_ref(&files), &rules).unwrap().files;
    let stored = |merge: Merge, files: &[RankFile]| {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
        let settings = IngestSettings { merge, ..IngestSettings::default() };
        let mut ingest = Ingest::open(Options::in_store(store, "sim"), settings).unwrap();
        ingest.take(0, files, &quiet).unwrap().stored_bytes()
    };
    let [auto, meaning, ranks] =
        [Merge::Auto, Merge::Meaning, Merge::Ranks].map(|merge| stored(merge, &set));
    assert!(100 * meaning < 99 * ranks, "{meaning} {ranks}: the files show nothing");
    assert!(auto <= meaning, "{auto} {meaning} {ranks}");
    let apart: u64 = set.iter().map(|file| stored(Merge::Auto, std::slice::from_ref(file))).sum();
    assert!(auto <= apart, "{auto} {apart}");
}

/// File systems permit names of 255 bytes, and so does an export.
#[test]
fn files_of_the_longest_names_come_back() {
    let folder = tempfile::tempdir().unwrap();
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let files: Vec<RankFile> = [("a", 254), ("b", 254), ("c", 200), ("d", 199)]
        .map(|(end, len)| {
            let name = format!("{}{end}", "L".repeat(len));
            let path = folder.path().join(&name);
            std::fs::write(&path, end.repeat(1000)).unwrap();
            RankFile { rank: Rank(0), like: name.clone(), path, name }
        })
        .into();
    open(&store, 1).take(1, &files, &|_, _| {}).unwrap();
    let back = folder.path().join("back");
    Library::of(store).export("sim", Some(1), &[], &back).unwrap();
    same(&files, &back);
}

/// What changed unnoticed while it was ingested cannot be exported, and is no sound checkpoint.
#[test]
fn files_that_change_unnoticed_while_they_are_ingested_are_found() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("state.npy");
    let values: Vec<f64> = (0..200_000).map(f64::from).collect();
    std::fs::write(&path, npy(&[values.len() as u64], &values)).unwrap();
    let time = std::fs::metadata(&path).unwrap().modified().unwrap();
    // The file is written to between the pass that proves it and the one that stores it, and its time is set back.
    let (changed, inner) = (path.clone(), MemoryStore::new());
    let store: Arc<dyn Store> = Arc::new(HookedStore::new(Arc::new(inner), move |call| {
        if let Call::Append(key, _) = call
            && key.contains("/packs/")
        {
            let file = std::fs::File::options().write(true).open(&changed).unwrap();
            std::os::unix::fs::FileExt::write_all_at(&file, &[1; 8], 1_000_000).unwrap();
            std::os::unix::fs::FileExt::write_all_at(&file, &[1; 8], 200_000).unwrap();
            file.set_modified(time).unwrap();
        }
        Ok(())
    }));
    let name = "state.npy".to_string();
    let file = RankFile { rank: Rank(0), like: name.clone(), path, name };
    if open(&store, 1).take(1, &[file], &|_, _| {}).is_err() {
        return;
    }
    let library = Library::of(store);
    let exported = library.export("sim", Some(1), &[], &folder.path().join("back"));
    let report = library.verify(None, true, &|_, _| {}).unwrap();
    assert_eq!(exported.is_ok(), report.is_sound(), "{exported:?} {report:?}");
}

/// What a run holds: the rank and the name of each variable.
fn ranks_and_names(store: &Path, run: &str, step: u64) -> Vec<(u32, String)> {
    let checkpoint = Library::open(store).unwrap().checkpoint(run, Some(step)).unwrap();
    let entries = checkpoint.entries().iter().filter(|entry| !entry.is_hidden());
    let mut all: Vec<(u32, String)> =
        entries.map(|entry| (entry.rank.0, entry.description.name.clone())).collect();
    all.sort();
    all
}

/// A folder has the same ranks and names, whether a person ingests it or a service watches it.
#[test]
fn a_service_reads_ranks_and_names_as_a_person_who_ingests_the_folder() {
    let array = npy(&[20], &[1.5; 20]);
    for (names, rules, expected) in [
        (
            &["step_100/rank_0.npy", "step_100/rank_1.npy", "step_100/mesh2.npy"][..],
            FileRules::default(),
            &[
                (0, "step_{step}/mesh2.npy"),
                (0, "step_{step}/rank_{rank}.npy"),
                (1, "step_{step}/rank_{rank}.npy"),
            ][..],
        ),
        // A number by which no two files differ is no rank.
        (&["state_0100.0003.npy"], FileRules::default(), &[(0, "state_{step}.0003.npy")]),
        (
            &["state_0100.0003.npy", "state_0100.0012.npy"],
            FileRules::default(),
            &[(3, "state_{step}.{rank}.npy"), (12, "state_{step}.{rank}.npy")],
        ),
        (
            &["proc4/out_0100.npy", "proc5/out_0100.npy"],
            FileRules::new(Some(r"out_(\d+)"), None).unwrap(),
            &[(4, "proc{rank}/out_{step}.npy"), (5, "proc{rank}/out_{step}.npy")],
        ),
        (
            &["proc4/out_0100.npy", "proc5/out_0100.npy"],
            FileRules::new(None, Some(r"proc(\d+)")).unwrap(),
            &[(4, "proc{rank}/out_{step}.npy"), (5, "proc{rank}/out_{step}.npy")],
        ),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let (out, store) = (folder.path().join("out"), folder.path().join("store"));
        for name in names {
            let path = out.join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, &array).unwrap();
        }
        let chosen = rank_files(std::slice::from_ref(&out), &rules).unwrap();
        let mut ingest =
            Ingest::open(Options::directory(&store, "given"), IngestSettings::default()).unwrap();
        ingest.take(100, &chosen.files, &|_, _| {}).unwrap();
        let place = Place { store: store.clone(), run: Some("watched".into()), step: None };
        let settings = WatchSettings {
            rules,
            files: Some(names.len()),
            settle: Duration::ZERO,
            ..WatchSettings::new(place, &out)
        };
        Watcher::open(settings, |_| {}).unwrap().once().unwrap();
        let given = ranks_and_names(&store, "given", 100);
        let found: Vec<(u32, &str)> = given.iter().map(|(r, name)| (*r, &name[..])).collect();
        assert_eq!(found, expected, "{names:?}");
        assert_eq!(ranks_and_names(&store, "watched", 100), given, "{names:?}");
    }
}
