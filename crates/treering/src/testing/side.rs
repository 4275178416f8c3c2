//! The conformance suite of [`Side`].

use crate::array::{DType, Rank, Step, Variable};
use crate::compare::{Answer, CompareSettings, FileView, MemorySide, Side, SideEntry, compare};
use crate::error::{Error, Result};
use crate::store::Blob;
use std::collections::HashSet;

/// A step that no side of a test has.
const NO_STEP: Option<Step> = Some(Step(u64::MAX));

/// Checks that a side keeps the rules that comparison relies on.
///
/// # Panics
/// Panics with a sentence if it does not.
pub fn check_side(side: &dyn Side) {
    assert!(!side.name().is_empty(), "a side has a name");
    let steps = side.steps().expect("a side lists its steps");
    assert!(!steps.is_empty(), "a side has at least one step");
    assert!(steps.is_sorted(), "steps ascend: {steps:?}");
    let unique: HashSet<_> = steps.iter().collect();
    assert_eq!(unique.len(), steps.len(), "a step is listed once: {steps:?}");
    assert!(steps == [None] || !steps.contains(&None), "either all have steps or none: {steps:?}");
    for step in &steps {
        check_entries(side, *step);
        check_files(side, *step);
    }
    // A step that is not there has nothing: entries of another step would be compared instead.
    assert!(side.entries(NO_STEP).is_ok_and(|all| all.is_empty()), "an unknown step is empty");
    assert!(side.files(NO_STEP).is_ok_and(|all| all.is_empty()), "an unknown step has no files");
    assert_eq!(side.unreadable(), side.unreadable(), "the number of unreadable checkpoints stays");
    check_with_itself(side);
}

fn check_entries(side: &dyn Side, step: Option<Step>) {
    let entries = side.entries(step).expect("the entries of a listed step");
    let mut names = HashSet::new();
    for entry in &entries {
        let name = &entry.description.name;
        assert!(names.insert((entry.rank, name.clone())), "{name:?} is there once");
        let bytes = entry.description.check().expect("a description makes sense");
        if entry.unread.is_some() {
            continue;
        }
        assert!(
            entry.values.is_some() || !entry.trees.is_empty(),
            "{name:?} has values, trees, or a reason why it has none"
        );
        if let Some(values) = &entry.values {
            assert_eq!(values.size(), bytes, "{name:?} has as many bytes as its shape");
            check_values(name, values.as_ref());
        }
        for tree in &entry.trees {
            assert_eq!(tree.entry.description, entry.description, "a tree of {name:?}");
            assert_eq!(tree.entry.rank, entry.rank, "a tree of {name:?} has its rank");
        }
    }
    let again = side.entries(step).expect("the entries of a listed step, again");
    let shown = |all: &[SideEntry]| -> Vec<_> {
        all.iter().map(|e| (e.rank, e.description.clone(), e.trees.len())).collect()
    };
    assert_eq!(shown(&entries), shown(&again), "entries are the same every time");
}

/// Parts of values are parts of the whole, in any order of reading.
fn check_values(name: &str, values: &dyn Blob) {
    let mut whole = vec![0; values.size() as usize];
    if values.read_at(0, &mut whole).is_err() {
        // Values that cannot be read are an error of the comparison, not of the side.
        return;
    }
    let (size, step) = (whole.len(), (whole.len() / 7).next_multiple_of(16).max(16));
    for from in (0..size).step_by(step).rev() {
        let mut part = vec![0; step.min(size - from)];
        values.read_at(from as u64, &mut part).expect("a part of values that can be read");
        assert!(part == whole[from..from + part.len()], "{name:?}: bytes from {from} on");
    }
}

fn check_files(side: &dyn Side, step: Option<Step>) {
    let files = side.files(step).expect("the files of a listed step");
    let names: HashSet<_> = files.iter().map(|file| (file.rank, file.name.clone())).collect();
    assert_eq!(names.len(), files.len(), "a rank has one file of a name");
}

/// A side is never different from itself, and equal to itself if all of it can be read.
fn check_with_itself(side: &dyn Side) {
    for trees in [true, false] {
        let settings = CompareSettings { trees, ..CompareSettings::default() };
        let outcome = match compare(side, side, &settings, None, &|_, _| {}) {
            Ok(outcome) => outcome,
            Err(_) if side.unreadable() > 0 => continue,
            Err(error) => panic!("a side can be compared with itself: {error}"),
        };
        assert_ne!(outcome.verdict, Answer::Different, "a side is itself: {outcome:?}");
        let whole = outcome.not_compared.is_empty() && side.unreadable() == 0;
        assert_eq!(outcome.equal, whole, "a side is equal to itself if all can be read");
        assert_eq!(outcome.unreadable, 2 * side.unreadable(), "both sides are counted");
    }
}

/// Checks that a wrapper of sides loses nothing of the side that it wraps.
///
/// # Panics
/// Panics with a sentence if it does.
pub fn check_side_wrapper(wrap: impl for<'s> Fn(&'s dyn Side) -> Box<dyn Side + 's>) {
    let inner = Scripted { values: (0..3000u32).flat_map(u32::to_le_bytes).collect() };
    let wrapper = wrap(&inner);
    assert_eq!(wrapper.name(), inner.name(), "a wrapper has the name of its side");
    assert_eq!(wrapper.steps().ok(), inner.steps().ok(), "a wrapper has the steps of its side");
    assert_eq!(wrapper.unreadable(), inner.unreadable(), "unreadable checkpoints are not lost");
    assert_eq!(wrapper.notes(), inner.notes(), "notes are not lost");
    for step in inner.steps().expect("the steps of the inner side") {
        let [of_inner, of_wrapper] = [&inner as &dyn Side, wrapper.as_ref()].map(|side| {
            let entries = side.entries(step).expect("the entries of a listed step");
            let entry = |e: &SideEntry| (e.rank, e.description.clone(), e.unread.is_some());
            entries.iter().map(entry).collect::<Vec<_>>()
        });
        assert_eq!(of_inner, of_wrapper, "variables are not lost, nor why they cannot be read");
        let files = |side: &dyn Side| -> Vec<_> {
            let files = side.files(step).expect("the files of a listed step");
            files.iter().map(|file| (file.rank, file.name.clone())).collect()
        };
        assert_eq!(files(&inner), files(wrapper.as_ref()), "files are not lost");
    }
}

/// A side that has something of everything.
struct Scripted {
    values: Vec<u8>,
}

impl Side for Scripted {
    fn name(&self) -> String {
        "scripted".into()
    }

    fn steps(&self) -> Result<Vec<Option<Step>>> {
        Ok(vec![Some(Step(3)), Some(Step(5))])
    }

    fn entries(&self, step: Option<Step>) -> Result<Vec<SideEntry<'_>>> {
        let step = step.unwrap_or_default();
        let shape = [self.values.len() as u64 / 4];
        let variables = [
            Variable::from_bytes("x", DType::U32, &shape, &self.values),
            Variable::from_bytes("unread", DType::U32, &shape, &self.values),
        ];
        let side = MemorySide::new(step.0, &variables, &[])?;
        let mut entries = side.into_entries();
        entries[1].values = None;
        entries[1].unread = Some(Error::damaged("scripted").into());
        Ok(entries)
    }

    fn files(&self, _: Option<Step>) -> Result<Vec<FileView>> {
        Ok(vec![FileView::of_bytes(Rank(0), "file", &self.values)])
    }

    fn unreadable(&self) -> u64 {
        7
    }

    fn notes(&self) -> Vec<String> {
        vec!["a note".into()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::{FileSide, Golden, StoredSide, TreeSettings, TreedSide, record};
    use crate::ingest::{Ingest, RankFile};
    use crate::merkle::bounded::Bound;
    use crate::run::{Options, Run};
    use crate::store::{DirectoryStore, Store};
    use std::path::Path;
    use std::sync::Arc;

    fn npy(values: &[f64]) -> Vec<u8> {
        let shape = values.len();
        let head = format!("{{'descr': '<f8', 'fortran_order': False, 'shape': ({shape},), }}");
        let mut bytes = b"\x93NUMPY\x01\x00\x76\x00".to_vec();
        bytes.extend(format!("{head:<117}\n").bytes());
        bytes.extend(values.iter().flat_map(|value| value.to_le_bytes()));
        bytes
    }

    fn values(step: u64) -> Vec<f64> {
        (0..5000).map(|i| (i + step) as f64 * 0.37).collect()
    }

    /// A folder of files, a run of arrays with trees, and a run of files, in one store.
    fn fill(folder: &Path) -> Arc<dyn Store> {
        std::fs::create_dir(folder.join("files")).unwrap();
        std::fs::write(folder.join("files/x.npy"), npy(&values(1))).unwrap();
        std::fs::write(folder.join("files/other.txt"), "text").unwrap();
        let store: Arc<dyn Store> = Arc::new(DirectoryStore::new(folder.join("store")));
        let options = Options::in_store(store.clone(), "arrays").bound("*", Bound::abs(1e-3));
        let mut run = Run::open(options).unwrap();
        for step in [1, 4, 9] {
            let x = values(step);
            run.checkpoint(step, &[Variable::new("x", &x)]).unwrap().durable().unwrap();
        }
        run.finish().unwrap();
        let options = Options::in_store(store.clone(), "files");
        let mut ingest = Ingest::open(options, Default::default()).unwrap();
        let files = ["x.npy", "other.txt"].map(|name| RankFile {
            rank: Rank(0),
            path: folder.join("files").join(name),
            name: name.into(),
            like: name.into(),
        });
        ingest.take(2, &files, &|_, _| {}).unwrap();
        store
    }

    #[test]
    fn every_side_keeps_the_rules() {
        let folder = tempfile::tempdir().unwrap();
        let store = fill(folder.path());
        let files = FileSide::open(&folder.path().join("files"), None, true).unwrap();
        check_side(&files);
        check_side(&FileSide::open(&folder.path().join("files/x.npy"), None, true).unwrap());
        let arrays = StoredSide::open(store.clone(), "arrays", None).unwrap();
        check_side(&arrays);
        check_side(&StoredSide::open(store.clone(), "arrays", Some(Step(4))).unwrap());
        check_side(&StoredSide::open(store, "files", None).unwrap());
        let path = folder.path().join("golden.tree");
        let bounds = vec![Bound::abs(1e-3), Bound::rel(1e-3)];
        let settings = TreeSettings { bounds, ..TreeSettings::default() };
        record(&arrays, &CompareSettings::default(), &settings, &path, &|_, _| {}).unwrap();
        let golden = Golden::open(&path).unwrap();
        check_side(&golden);
        check_side(&TreedSide::new(&arrays, &golden));
        let x = values(4);
        let variables = [Variable::new("x", &x), Variable::new("y", &x)];
        let memory = MemorySide::new(4, &variables, &[]).unwrap();
        check_side(&memory);
        check_side(&TreedSide::new(&memory, &golden));
    }

    #[test]
    fn wrappers_lose_nothing() {
        check_side_wrapper(|side| Box::new(TreedSide::new(side, side)));
    }

    #[test]
    #[should_panic(expected = "unreadable checkpoints are not lost")]
    fn a_wrapper_that_loses_something_is_found_out() {
        struct Careless<'s>(&'s dyn Side);
        impl Side for Careless<'_> {
            fn name(&self) -> String {
                self.0.name()
            }
            fn steps(&self) -> Result<Vec<Option<Step>>> {
                self.0.steps()
            }
            fn entries(&self, step: Option<Step>) -> Result<Vec<SideEntry<'_>>> {
                self.0.entries(step)
            }
            fn files(&self, step: Option<Step>) -> Result<Vec<FileView>> {
                self.0.files(step)
            }
            fn unreadable(&self) -> u64 {
                0
            }
            fn notes(&self) -> Vec<String> {
                self.0.notes()
            }
        }
        check_side_wrapper(|side| Box::new(Careless(side)));
    }
}
