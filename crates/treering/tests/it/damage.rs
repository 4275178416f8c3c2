//! Whatever happens to the bytes of a store, it is found, and no reader panics or returns wrong
//! data.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use treering::{
    ChunkSize, DirectoryStore, Encoding, Library, MemoryStore, Options, Run, Store, Variable,
    VariableMut,
};

const RUNS: [&str; 2] = ["main", "side"];
const BYTES: usize = 640;

/// The state of a step of a run; the two runs part after step 3.
fn state(run: &str, step: u64) -> (Vec<u8>, Vec<u16>) {
    let mut field: Vec<u8> = (0..BYTES as u32).map(|i| (i * i / 5) as u8).collect();
    for past in 1..=step {
        let at = (past as usize * 211) % 590;
        let value = match run == "side" && past > 3 {
            true => 0x80 | past as u8,
            false => past as u8,
        };
        field[at..at + 40].fill(value);
        field.copy_within(0..64, 320);
    }
    (field, vec![step as u16; 40])
}

/// Runs a program from `first` to before `last`; the growth allows two deltas to an epoch.
fn program(folder: &Path, run: &str, first: u64, last: u64, encoding: Encoding) {
    let options = Options::directory(folder, run)
        .chunk(ChunkSize::new(32).unwrap())
        .encoding(encoding)
        .growth(1.5);
    let mut open = Run::open(options).unwrap();
    if first > 0 {
        let (mut field, mut small) = (vec![0u8; BYTES], vec![0u16; 40]);
        let restored = open.restore(&mut [
            VariableMut::new("field", &mut field),
            VariableMut::new("small", &mut small),
        ]);
        assert_eq!(restored.unwrap().unwrap().step, first - 1);
    }
    for step in first..last {
        let (field, small) = state(run, step);
        let variables = [Variable::new("field", &field), Variable::new("small", &small)];
        open.checkpoint(step, &variables).unwrap().durable().unwrap();
    }
    open.finish().unwrap();
}

struct Subject {
    folder: tempfile::TempDir,
    /// The folder, or a copy of it in memory, which is faster to damage.
    store: Arc<dyn Store>,
    in_memory: bool,
    /// Every file but the locks, by its key, with its content.
    files: BTreeMap<String, Vec<u8>>,
}

impl Subject {
    fn new(encoding: Encoding, in_memory: bool) -> Self {
        let folder = tempfile::tempdir().unwrap();
        program(folder.path(), "main", 0, 5, encoding);
        let library = Library::open(folder.path()).unwrap();
        library.branch("main", Some(3), "side").unwrap();
        program(folder.path(), "side", 4, 6, encoding);
        let mut files = BTreeMap::new();
        collect(folder.path(), folder.path(), &mut files);
        let store: Arc<dyn Store> = match in_memory {
            true => Arc::new(MemoryStore::new()),
            false => Arc::new(DirectoryStore::new(folder.path())),
        };
        for (key, bytes) in files.iter().filter(|_| in_memory) {
            assert!(store.commit(key, bytes).unwrap());
        }
        let subject = Subject { folder, store, in_memory, files };
        subject.is_worth_damaging();
        subject
    }

    /// Guards against a store so simple that the tests below would say little.
    fn is_worth_damaging(&self) {
        let total: usize = self.files.values().map(Vec::len).sum();
        assert!(total < 12_000, "{total} bytes take too long");
        let (all, _) = self.library().checkpoints("main").unwrap();
        let epoch = |at: usize| all[at].epoch.sequence;
        assert!(all.len() == 5 && epoch(0) != epoch(4) && epoch(0) == epoch(1));
        assert!(all.iter().any(|c| c.stats.duplicate_bytes > 0));
        assert_eq!(self.library().checkpoints("side").unwrap().0.len(), 3);
        assert!(self.findings() == 0 && self.read_all() == (8, 0));
    }

    fn library(&self) -> Library {
        Library::of(self.store.clone())
    }

    fn write(&self, key: &str, bytes: &[u8]) {
        match self.in_memory {
            true => {
                self.store.delete(&[key.to_string()]).unwrap();
                assert!(self.store.commit(key, bytes).unwrap());
            }
            false => std::fs::write(self.folder.path().join(key), bytes).unwrap(),
        }
    }

    fn heal(&self, key: &str) {
        self.write(key, &self.files[key]);
    }

    fn findings(&self) -> usize {
        let report = self.library().verify(None, true, &|_, _| {}).unwrap();
        report.findings.len()
    }

    /// Reads every checkpoint in every way; returns how many could be read, and how many could not. Data that
    /// can be read must be right.
    fn read_all(&self) -> (usize, usize) {
        let (mut good, mut bad) = (0, 0);
        for run in RUNS {
            let last = if run == "main" { 5 } else { 6 };
            let first = if run == "main" { 0 } else { 3 };
            for step in (first..last).map(Some).chain([None]) {
                match self.read(run, step) {
                    true => good += usize::from(step.is_some()),
                    false => bad += 1,
                }
            }
        }
        (good, bad)
    }

    /// The states that come going backwards, until one cannot be read, must be right as well.
    fn read_backwards(&self) {
        for run in RUNS {
            if let Ok(states) = self.library().backwards(run) {
                for found in states.filter_map(Result::ok) {
                    let (field, small) = state(run, found.step);
                    assert_eq!(found.get::<u8>("field").unwrap(), field);
                    assert_eq!(found.get::<u16>("small").unwrap(), small);
                }
            }
        }
    }

    fn read(&self, run: &str, step: Option<u64>) -> bool {
        let Ok(checkpoint) = self.library().checkpoint(run, step) else {
            return false;
        };
        let (field, small) = state(run, checkpoint.step());
        assert!(step.is_none_or(|s| s == checkpoint.step()));
        let whole = checkpoint.read::<u8>("field");
        let part = checkpoint.read_range::<u8>("field", 100..400);
        let other = checkpoint.read::<u16>("small");
        let complete = whole.is_ok() && part.is_ok() && other.is_ok();
        whole.into_iter().for_each(|got| assert_eq!(got, field));
        part.into_iter().for_each(|got| assert_eq!(got, field[100..400]));
        other.into_iter().for_each(|got| assert_eq!(got, small));
        complete
    }
}

fn collect(root: &Path, folder: &Path, files: &mut BTreeMap<String, Vec<u8>>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => collect(root, &path, files),
            false if path.file_name().unwrap() == "lock" => {}
            false => {
                let key = path.strip_prefix(root).unwrap().to_str().unwrap();
                files.insert(key.to_string(), std::fs::read(&path).unwrap());
            }
        }
    }
}

fn is_pack(key: &str) -> bool {
    key.ends_with(".pack")
}

fn flips(encoding: Encoding, in_memory: bool, every: usize, which: fn(&str) -> bool) {
    let subject = Subject::new(encoding, in_memory);
    for (key, bytes) in subject.files.iter().filter(|(key, _)| which(key)) {
        for at in (0..bytes.len()).step_by(every) {
            let mut changed = bytes.clone();
            changed[at] ^= 1 << (at % 8);
            subject.write(key, &changed);
            assert!(subject.findings() > 0, "byte {at} of {key}");
            subject.read_all();
            if at % 8 == 0 {
                subject.read_backwards();
            }
        }
        subject.heal(key);
    }
    assert_eq!(subject.findings(), 0);
}

#[test]
fn a_flipped_bit_in_any_byte_is_found_raw() {
    flips(Encoding::Raw, true, 1, |_| true);
}

#[test]
fn a_flipped_bit_in_any_byte_is_found_zstd() {
    // The log does not depend on the encoding.
    flips(Encoding::Zstd(1), true, 1, is_pack);
}

#[test]
fn a_flipped_bit_in_a_real_file_is_found() {
    flips(Encoding::Raw, false, 29, |_| true);
}

#[test]
fn a_file_cut_to_any_length_or_grown_is_found() {
    let subject = Subject::new(Encoding::Zstd(1), true);
    for (file, bytes) in &subject.files {
        let near_the_ends = |n: &usize| *n < 24 || *n + 40 > bytes.len() || n.is_multiple_of(17);
        for len in (0..bytes.len()).filter(near_the_ends) {
            subject.write(file, &bytes[..len]);
            assert!(subject.findings() > 0, "{len} bytes of {file}");
            subject.read_all();
        }
        subject.read_backwards();
        for more in [1, 16, 100] {
            let mut grown = bytes.clone();
            grown.resize(bytes.len() + more, 0);
            subject.write(file, &grown);
            assert!(subject.findings() > 0, "{more} more of {file}");
            subject.read_all();
        }
        subject.write(file, &vec![0; bytes.len()]);
        assert!(subject.findings() > 0, "zeros in {file}");
        subject.read_all();
        subject.heal(file);
    }
}

#[test]
fn a_removed_file_never_gives_wrong_data() {
    let subject = Subject::new(Encoding::Raw, false);
    for file in subject.files.keys() {
        std::fs::remove_file(subject.folder.path().join(file)).unwrap();
        let (good, bad) = subject.read_all();
        match is_pack(file) {
            true => assert!(bad > 0 && subject.findings() > 0, "{file}"),
            // A checkpoint without its manifest was pruned, as far as anybody can tell.
            false => assert!(good >= 7 && subject.findings() == 0, "{file}"),
        }
        subject.heal(file);
    }
}

#[test]
fn files_in_each_others_place_are_found() {
    for encoding in [Encoding::Raw, Encoding::Zstd(1)] {
        let subject = Subject::new(encoding, true);
        for (a, first) in &subject.files {
            let later = subject.files.iter().filter(|(b, _)| *b > a);
            // An opening has two copies.
            let others = later.filter(|(_, second)| *second != first);
            for (b, second) in others.filter(|(b, _)| is_pack(a) == is_pack(b)) {
                subject.write(a, second);
                subject.write(b, first);
                assert!(subject.findings() > 0, "{a}, {b}");
                subject.read_all();
                // The same again as a copy: two files that are one.
                subject.write(b, second);
                assert!(subject.findings() > 0, "{b} as {a}");
                subject.read_all();
                subject.read_backwards();
                subject.heal(a);
            }
        }
    }
}

#[test]
fn a_file_of_junk_or_a_folder_in_the_log_stops_nobody() {
    let subject = Subject::new(Encoding::Raw, false);
    let log = subject.folder.path().join("runs/main/log");
    let packs = subject.folder.path().join("runs/main/packs");
    for name in ["junk", "000000000099x", "00000000000", ".hidden"] {
        std::fs::write(log.join(name), "junk").unwrap();
        std::fs::write(packs.join(name), "junk").unwrap();
    }
    assert_eq!((subject.findings(), subject.read_all()), (0, (8, 0)));
    std::fs::create_dir(log.join("000000000098")).unwrap();
    assert!(subject.findings() > 0);
    assert_eq!(subject.read_all(), (8, 0));
}

/// The pack that only the newest checkpoint of `main` needs, or its manifest.
/// Where content repeats, a restore reads packs as a whole; damage in a frame that it does not need costs it nothing.
#[test]
fn damage_costs_only_the_checkpoints_that_need_it_and_verify_names_these() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let mut heat = vec![0.0f64; 20_000];
    let mut states = Vec::new();
    let mut run = Run::open(Options::in_store(store.clone(), "rod")).unwrap();
    for step in 0..24 {
        for at in 1..heat.len() - 1 {
            heat[at] += 0.25 * (heat[at - 1] - 2.0 * heat[at] + heat[at + 1]) + 1e-3;
        }
        run.checkpoint(step, &[Variable::new("heat", &heat)]).unwrap().durable().unwrap();
        states.push(heat.clone());
    }
    run.finish().unwrap();
    let packs: Vec<String> =
        store.list("runs/rod/packs").unwrap().into_iter().map(|p| p.name).collect();
    let (mut spared, mut lost) = (0, 0);
    for pack in packs {
        let key = format!("runs/rod/packs/{pack}");
        let blob = store.open(&key).unwrap();
        let mut sound = vec![0; blob.size() as usize];
        blob.read_at(0, &mut sound).unwrap();
        let mut bytes = sound.clone();
        bytes[40] ^= 1;
        store.delete(std::slice::from_ref(&key)).unwrap();
        assert!(store.commit(&key, &bytes).unwrap());
        let library = Library::of(store.clone());
        let [quick, deep] =
            [false, true].map(|deep| library.verify(None, deep, &|_, _| {}).unwrap());
        assert_eq!(quick.sound, deep.sound, "{pack}: {quick:?}\n{deep:?}");
        let mut restored = 0;
        for (step, state) in states.iter().enumerate() {
            let checkpoint = library.checkpoint("rod", Some(step as u64));
            if let Ok(read) = checkpoint.and_then(|c| c.read::<f64>("heat")) {
                assert!(read == *state, "{pack}: step {step}");
                restored += 1;
            }
        }
        assert_eq!(restored, quick.sound, "{pack}: {quick:?}");
        let later = states.len() as u64 - quick.sound;
        lost += u64::from(later > 0);
        spared += u64::from(quick.sound > 0);
        store.delete(std::slice::from_ref(&key)).unwrap();
        assert!(store.commit(&key, &sound).unwrap());
    }
    assert!(lost > 10 && spared > 10, "{lost} {spared}");
}

fn newest(subject: &Subject, pack: bool) -> String {
    let folder = if pack { "runs/main/packs" } else { "runs/main/log" };
    let of_main = subject.files.keys().filter(|f| f.starts_with(folder));
    of_main.max().unwrap().clone()
}

#[test]
fn a_damaged_newest_checkpoint_falls_back_and_says_so() {
    for pack in [true, false] {
        let subject = Subject::new(Encoding::Raw, false);
        let file = newest(&subject, pack);
        let mut bytes = subject.files[&file].clone();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 4;
        subject.write(&file, &bytes);
        let options = Options::directory(subject.folder.path(), "main")
            .chunk(ChunkSize::new(32).unwrap())
            .growth(1.5);
        let mut run = Run::open(options).unwrap();
        let (mut field, mut small) = (vec![0u8; BYTES], vec![0u16; 40]);
        let mut targets =
            [VariableMut::new("field", &mut field), VariableMut::new("small", &mut small)];
        let restored = run.restore(&mut targets).unwrap().unwrap();
        assert_eq!(restored.step, 3);
        assert!(!restored.notes.is_empty());
        assert_eq!((field, small), state("main", 3));
        // Redone, the step is good again, and the older ones still are.
        let (field, small) = state("main", 4);
        let variables = [Variable::new("field", &field), Variable::new("small", &small)];
        run.checkpoint(4, &variables).unwrap().durable().unwrap();
        drop(run);
        assert_eq!(subject.read_all(), (8, 0));
    }
}

#[test]
fn when_everything_is_damaged_a_restore_fails_and_says_what_to_try() {
    let subject = Subject::new(Encoding::Raw, false);
    for (file, bytes) in subject.files.iter().filter(|(f, _)| is_pack(f)) {
        let mut bytes = bytes.clone();
        let last = bytes.len() - 1;
        bytes[last] ^= 1;
        subject.write(file, &bytes);
    }
    let mut run = Run::open(Options::directory(subject.folder.path(), "main")).unwrap();
    let mut field = vec![0u8; BYTES];
    let error = run.restore(&mut [VariableMut::new("field", &mut field)]);
    let error = error.unwrap_err();
    assert_eq!(error.kind(), treering::ErrorKind::Damaged);
    assert!(error.to_string().contains("treering verify"), "{error}");
}
