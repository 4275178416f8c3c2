//! Exports of every type, shape and order, of one rank and of many, read back.

use super::*;
use crate::array::Variable;
use crate::comm::{Comm, End, ThreadRanks};
use crate::library::Library;
use crate::run::{Options, Run};
use crate::source::Field;
use crate::store::{MemoryStore, Store};
use crate::testing::{HookedStore, Locks};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

const FORMATS: [ArrayFormat; 3] = [ArrayFormat::Npy, ArrayFormat::Hdf5, ArrayFormat::Zarr];

fn wanted(format: ArrayFormat, variables: &[&str], ranks: &[u32]) -> ArrayExport {
    let variables = variables.iter().map(|name| name.to_string()).collect();
    ArrayExport { format, variables, ranks: ranks.iter().copied().map(Rank).collect() }
}

fn memory() -> Arc<dyn Store> {
    Arc::new(HookedStore::with_locks(Arc::new(MemoryStore::new()), Locks::None))
}

/// The checkpoint of one rank at step 3.
fn saved(variables: &[Variable]) -> Checkpoint {
    let store = memory();
    let mut run = Run::open(Options::in_store(store.clone(), "r")).unwrap();
    run.checkpoint(3, variables).unwrap();
    run.finish().unwrap();
    Library::of(store).checkpoint("r", Some(3)).unwrap()
}

/// The checkpoint of several ranks at step 3.
fn saved_by(ranks: u32, save: impl Fn(&mut Run, u32) + Send + Sync + 'static) -> Checkpoint {
    let store = memory();
    let shared = store.clone();
    let ends = ThreadRanks::new(ranks).run(move |comm: Arc<dyn Comm>| {
        let rank = comm.rank().0;
        let mut run = Run::open(Options::in_store(shared.clone(), "r").ranks(comm)).unwrap();
        save(&mut run, rank);
        run.finish().unwrap();
    });
    assert_eq!(ends.into_iter().filter_map(End::done).count(), ranks as usize);
    Library::of(store).checkpoint("r", Some(3)).unwrap()
}

/// Every index of an array in C order, with its place in memory.
fn places(shape: &[u64], order: Order) -> Vec<usize> {
    let count: u64 = shape.iter().product();
    let place = |mut at: u64| {
        if order == Order::C {
            return at as usize;
        }
        let mut index = vec![0; shape.len()];
        for axis in (0..shape.len()).rev() {
            index[axis] = at % shape[axis];
            at /= shape[axis];
        }
        (0..shape.len()).rev().fold(0, |at, axis| at * shape[axis] + index[axis]) as usize
    };
    (0..count).map(place).collect()
}

/// The elements in C order.
fn in_c_order(bytes: &[u8], shape: &[u64], order: Order, size: u64) -> Vec<u8> {
    let size = size as usize;
    places(shape, order).iter().flat_map(|at| bytes[at * size..][..size].to_vec()).collect()
}

fn bytes_of(field: &Field) -> Vec<u8> {
    let mut bytes = vec![0; field.bytes.size() as usize];
    field.bytes.read_at(0, &mut bytes).unwrap();
    bytes
}

/// An array that was read back: type, shape, and its elements in C order.
type ReadBack = (DType, Vec<u64>, Vec<u8>);

fn read_back(field: &Field) -> ReadBack {
    let (of, shape) = (&field.description, field.description.shape.0.clone());
    (of.dtype, shape.clone(), in_c_order(&bytes_of(field), &shape, of.order, of.dtype.size()))
}

/// An array of Zarr, by what its metadata says.
fn read_zarr(folder: &Path) -> ReadBack {
    let text = std::fs::read_to_string(folder.join("zarr.json")).unwrap();
    let meta: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!((&meta["zarr_format"], &meta["node_type"]), (&3.into(), &"array".into()));
    let numbers =
        |value: &serde_json::Value| -> Vec<u64> { serde_json::from_value(value.clone()).unwrap() };
    let shape = numbers(&meta["shape"]);
    let chunk = numbers(&meta["chunk_grid"]["configuration"]["chunk_shape"]);
    assert!(chunk.len() == shape.len() && chunk.iter().all(|extent| *extent > 0));
    let dtype = match meta["data_type"].as_str().unwrap() {
        "bool" => DType::Bool,
        "complex64" => DType::C64,
        "complex128" => DType::C128,
        name => {
            let short = name.replace("uint", "u").replace("int", "i").replace("float", "f");
            let named = DType::ALL.iter().find(|dtype| dtype.name() == short);
            *named.unwrap_or_else(|| panic!("{name}"))
        }
    };
    let names: Vec<&str> =
        meta["codecs"].as_array().unwrap().iter().map(|c| c["name"].as_str().unwrap()).collect();
    let order = match names[..] {
        ["bytes", "zstd"] => Order::C,
        ["transpose", "bytes", "zstd"] => {
            let order = numbers(&meta["codecs"][0]["configuration"]["order"]);
            assert!(order.into_iter().eq((0..shape.len() as u64).rev()));
            Order::Fortran
        }
        _ => panic!("{names:?}"),
    };
    let size = dtype.size() as usize;
    let in_chunk = places(&chunk, order);
    let mut chunks: BTreeMap<String, Vec<u8>> = BTreeMap::new();
    let mut all = Vec::new();
    for at in 0..shape.iter().product::<u64>() {
        let (mut rest, mut index) = (at, vec![0; shape.len()]);
        for axis in (0..shape.len()).rev() {
            index[axis] = rest % shape[axis];
            rest /= shape[axis];
        }
        let number = |axis: usize| format!(".{}", index[axis] / chunk[axis]);
        let name = "c".to_string() + &(0..shape.len()).map(number).collect::<String>();
        let inside =
            (0..shape.len()).fold(0, |at, axis| at * chunk[axis] + index[axis] % chunk[axis]);
        let bytes = chunks.entry(name.clone()).or_insert_with(|| {
            let packed = std::fs::read(folder.join(name)).unwrap();
            let whole = chunk.iter().product::<u64>() as usize * size;
            let mut bytes = Vec::with_capacity(whole);
            zstd_safe::decompress(&mut bytes, &packed).unwrap();
            assert_eq!(bytes.len(), whole);
            bytes
        });
        all.extend(&bytes[in_chunk[inside as usize] * size..][..size]);
    }
    (dtype, shape, all)
}

/// All arrays of an export, by their names in it.
fn read_all(exported: &ExportedArrays) -> BTreeMap<String, ReadBack> {
    let open = |path: &Path| crate::source::open(path, None).unwrap();
    match exported.format {
        ArrayFormat::Hdf5 => {
            let fields = open(&exported.path);
            fields.iter().map(|f| (f.description.name.clone(), read_back(f))).collect()
        }
        ArrayFormat::Npy => {
            let names = exported.arrays.iter().map(|array| array.name.clone());
            names
                .map(|name| (name.clone(), read_back(&open(&exported.path.join(name))[0])))
                .collect()
        }
        ArrayFormat::Zarr => {
            let names = exported.arrays.iter().map(|array| array.name.clone());
            names.map(|name| (name.clone(), read_zarr(&exported.path.join(name)))).collect()
        }
    }
}

/// Names in a folder.
fn names_in(folder: &Path) -> BTreeSet<String> {
    let entries = std::fs::read_dir(folder).unwrap();
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

#[derive(Clone, Debug)]
struct Made {
    name: String,
    dtype: DType,
    shape: Vec<u64>,
    order: Order,
    bytes: Vec<u8>,
}

fn made() -> impl Strategy<Value = Made> {
    let shapes = prop::collection::vec(0u64..7, 0..5);
    let types = prop::sample::select(DType::ALL);
    (types, shapes, any::<bool>(), any::<u64>()).prop_map(|(dtype, shape, fortran, seed)| {
        let count = shape.iter().product::<u64>() * dtype.size();
        let byte =
            |at: u64| (seed.wrapping_add(at).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56) as u8;
        let bytes = (0..count).map(byte).map(|b| if dtype == DType::Bool { b & 1 } else { b });
        let order = if fortran { Order::Fortran } else { Order::C };
        Made { name: String::new(), dtype, shape, order, bytes: bytes.collect() }
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    /// The values at all indices are those that were saved, whatever the type, the shape, the order, and the number of
    /// elements in memory at a time.
    #[test]
    fn arrays_come_back_in_every_format(
        mut all in prop::collection::vec(made(), 1..5),
        slab in 1u64..80,
        block in 16u64..800,
        chunk in 16u64..800,
    ) {
        for (at, made) in all.iter_mut().enumerate() {
            made.name = ["a", "group/b", "group/inner/ç d", "e"][at].to_string();
        }
        let variables: Vec<Variable> = all.iter().map(|made| {
            let variable = Variable::from_bytes(&made.name, made.dtype, &made.shape, &made.bytes);
            if made.order == Order::Fortran { variable.fortran() } else { variable }
        }).collect();
        let checkpoint = saved(&variables);
        let limits = OutputLimits { slab, block, chunk };
        let folder = tempfile::tempdir().unwrap();
        for format in FORMATS {
            let last = AtomicU64::new(0);
            let progress = |done: u64, total: u64| {
                assert!(done <= total);
                last.fetch_max(done, Ordering::Relaxed);
            };
            let wanted = wanted(format, &[], &[]);
            let exported =
                export_within(&checkpoint, &wanted, folder.path(), &progress, limits).unwrap();
            prop_assert_eq!(last.into_inner(), exported.bytes);
            prop_assert_eq!(exported.arrays.len(), all.len());
            let found = read_all(&exported);
            prop_assert_eq!(found.len(), all.len());
            for made in &all {
                let (dtype, shape, bytes) = &found[&(made.name.clone() + format.array_suffix())];
                // An enumeration is read as the integers that it is made of.
                let written = match (format, made.dtype) {
                    (ArrayFormat::Hdf5, DType::Bool) => DType::I8,
                    _ => format.written_as(made.dtype),
                };
                prop_assert_eq!((*dtype, shape), (written, &made.shape));
                let expected = in_c_order(&made.bytes, &made.shape, made.order, made.dtype.size());
                prop_assert!(*bytes == expected, "{format:?} {made:?} {bytes:?}");
            }
        }
        let names = ["r-3", "r-3.h5", "r-3.zarr"].map(String::from);
        prop_assert_eq!(names_in(folder.path()), BTreeSet::from(names));
    }
}

/// The value of an index of a global array.
fn value(index: [u64; 2]) -> u32 {
    (index[0] * 1000 + index[1]) as u32
}

/// A box of a global array with its ghost cells, in memory.
fn boxed(offset: [u64; 2], extent: [u64; 2], order: Order) -> Vec<u32> {
    let mut values = vec![0; (extent[0] * extent[1]) as usize];
    for (at, place) in places(&extent, order).into_iter().enumerate() {
        let index = [at as u64 / extent[1], at as u64 % extent[1]];
        values[place] = value([offset[0] + index[0], offset[1] + index[1]]);
    }
    values
}

/// Three ranks have columns of 10 × 9 arrays with a column of ghost cells on each side, rows, the same, and their own.
fn of_three_ranks() -> Checkpoint {
    saved_by(3, |run, rank| {
        let first = 3 * u64::from(rank);
        let (low, high) = (u64::from(rank > 0), u64::from(rank < 2));
        let [c, f] = [Order::C, Order::Fortran]
            .map(|order| boxed([0, first - low], [10, 3 + low + high], order));
        let part = |name: &'static str, data| {
            let variable = Variable::new(name, data).shaped(&[10, 3 + low + high]);
            variable.part_of(&[10, 9], &[0, first]).ghosts(&[0, low], &[0, high])
        };
        let rows: Vec<f32> =
            (0..2 * (u64::from(rank) + 1)).map(|at| (at + 10 * first) as f32).collect();
        let (own, dt) = ([rank; 4], [0.5f64]);
        let state = [
            part("flow/c", &c),
            part("flow/f", &f).fortran(),
            Variable::new("points", &rows).shaped(&[u64::from(rank) + 1, 2]).rows(),
            Variable::new("dt", &dt).shaped(&[]).same(),
            Variable::new("seed", &own),
        ];
        run.checkpoint(3, &state).unwrap();
    })
}

fn words(found: &ReadBack) -> Vec<u32> {
    found.2.chunks(4).map(|word| u32::from_le_bytes(word.try_into().unwrap())).collect()
}

#[test]
fn parts_of_ranks_become_the_arrays_that_they_are_parts_of() {
    let checkpoint = of_three_ranks();
    let folder = tempfile::tempdir().unwrap();
    let limits = OutputLimits { slab: 20, block: 100, chunk: 90 };
    for format in FORMATS {
        let to = folder.path().join("all");
        let wanted_all = wanted(format, &[], &[]);
        let exported = export_within(&checkpoint, &wanted_all, &to, &|_, _| {}, limits).unwrap();
        let found = read_all(&exported);
        let at = |name: &str| &found[&(name.to_string() + format.array_suffix())];
        let names = ["dt", "flow/c", "flow/f", "points"].into_iter();
        let own = ["rank-0/seed", "rank-1/seed", "rank-2/seed"];
        let names = names.chain(own).map(|name| name.to_string() + format.array_suffix());
        assert!(found.keys().cloned().eq(names), "{:?}", found.keys());
        for name in ["flow/c", "flow/f"] {
            assert_eq!(at(name).1, [10, 9]);
            assert_eq!(words(at(name)), boxed([0, 0], [10, 9], Order::C));
        }
        assert_eq!((at("points").0, &at("points").1), (DType::F32, &vec![6, 2]));
        let rows: Vec<f32> = words(at("points")).into_iter().map(f32::from_bits).collect();
        assert_eq!(rows, [0., 1., 30., 31., 32., 33., 60., 61., 62., 63., 64., 65.]);
        assert!(at("dt").1.is_empty() && at("dt").2 == 0.5f64.to_le_bytes());
        assert_eq!(words(at("rank-2/seed")), [2; 4]);
        let ranks: Vec<Option<Rank>> = exported.arrays.iter().map(|array| array.rank).collect();
        let three = (0..3).map(|rank| Some(Rank(rank)));
        assert!(ranks.into_iter().eq([None; 4].into_iter().chain(three)));

        // The arrays of one rank, ghost cells included.
        let to = folder.path().join("one");
        let wanted_one = wanted(format, &["flow/*", "points", "dt"], &[1]);
        let exported = export_within(&checkpoint, &wanted_one, &to, &|_, _| {}, limits).unwrap();
        let found = read_all(&exported);
        let at = |name: &str| &found[&(name.to_string() + format.array_suffix())];
        assert_eq!(found.len(), 4);
        assert_eq!(at("rank-1/flow/f").1, [10, 5]);
        assert_eq!(words(at("rank-1/flow/f")), boxed([0, 2], [10, 5], Order::C));
        assert_eq!(at("rank-1/points").1, [2, 2]);
        assert!(found.contains_key(&("dt".to_string() + format.array_suffix())));
    }
}

#[test]
fn names_that_cannot_be_are_refused_and_nothing_is_written() {
    let data = [1u8];
    let folder = tempfile::tempdir().unwrap();
    let refused = |names: &[&str], formats: &[ArrayFormat], why: &str| {
        let variables: Vec<Variable> =
            names.iter().map(|name| Variable::new(name, &data)).collect();
        let checkpoint = saved(&variables);
        for format in FORMATS {
            let to = folder.path().join("out");
            let done = export_arrays(&checkpoint, &wanted(format, &[], &[]), &to, &|_, _| {});
            if formats.contains(&format) {
                let error = done.unwrap_err();
                assert_eq!(error.kind(), ErrorKind::Usage);
                assert!(error.to_string().contains(why), "{error}");
                assert!(!to.exists());
            } else {
                assert_eq!(read_all(&done.unwrap()).len(), names.len(), "{names:?} {format:?}");
                std::fs::remove_dir_all(&to).unwrap();
            }
        }
        assert!(names_in(folder.path()).is_empty());
    };
    let [npy, hdf5, zarr] = FORMATS;
    for name in ["../x", "a/../../x", "..", "a/./b"] {
        refused(&[name], &FORMATS, "its name has a part . or ..");
    }
    for name in ["/etc/x", "a//b", "a/"] {
        refused(&[name], &FORMATS, "is empty");
    }
    refused(
        &["a", "a/b"],
        &[hdf5, zarr],
        "\"a\" of rank 0 and \"a/b\" of rank 0 need the same name",
    );
    refused(&["a", "a.npy/b"], &[npy], "need the same name");
    refused(&["__a", "b"], &[zarr], "reserves");
    refused(&["a/zarr.json"], &[zarr], "no such names");
    refused(&["..."], &[zarr], "no such names");
    refused(&[&"a".repeat(253)], &[npy], "too long");
    refused(&[&"a".repeat(1024)], &[npy, zarr], "too long");
    let checkpoint = saved_by(2, |run, _| {
        let data = [7u8];
        let same = Variable::new("rank-1/x", &data).same();
        run.checkpoint(3, &[same, Variable::new("x", &data)]).unwrap();
    });
    for format in FORMATS {
        let wanted = wanted(format, &[], &[]);
        let error = export_arrays(&checkpoint, &wanted, folder.path(), &|_, _| {}).unwrap_err();
        assert!(error.to_string().contains("\"x\" of rank 1"), "{error}");
    }
    assert!(names_in(folder.path()).is_empty());
}

#[test]
fn bad_requests_get_a_sentence() {
    let data = [1u8; 10];
    let boxes = saved_by(2, move |run, rank| {
        let part = Variable::new("u", &data).part_of(&[20], &[10 * u64::from(rank)]);
        run.checkpoint(3, &[part]).unwrap();
    });
    let folder = tempfile::tempdir().unwrap();
    let refused = |variables: &[&str], ranks: &[u32]| {
        let wanted = wanted(ArrayFormat::Hdf5, variables, ranks);
        let error = export_arrays(&boxes, &wanted, folder.path(), &|_, _| {}).unwrap_err();
        assert!(names_in(folder.path()).is_empty());
        error.to_string()
    };
    assert!(refused(&["u", "v*"], &[]).contains("no variable matches \"v*\""));
    assert!(refused(&[], &[2]).contains("there is no rank 2"));
    // The boxes of other ranks are not there, or two ranks have one.
    let whole = wanted(ArrayFormat::Hdf5, &[], &[]);
    let entries: Vec<&VariableEntry> = boxes.entries().iter().filter(|e| !e.is_hidden()).collect();
    let told = |entries: &[&VariableEntry]| {
        let entries = entries.iter().map(|entry| StoredVariable { entry, origin: None });
        plan::plan(&entries.collect::<Vec<_>>(), 2, &whole).err().unwrap().to_string()
    };
    let gap = told(&entries[..1]);
    assert!(gap.contains("no rank has index [10]") && gap.contains("--rank"), "{gap}");
    let twice = told(&[entries[0], entries[0], entries[1]]);
    assert!(twice.contains("both have index [0]"), "{twice}");
    let wanted = wanted(ArrayFormat::Hdf5, &[], &[0, 1]);
    let exported = export_arrays(&boxes, &wanted, folder.path(), &|_, _| {}).unwrap();
    assert_eq!(read_all(&exported).len(), 2);
}

#[test]
fn nothing_is_replaced_and_damage_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let (store, out) = (folder.path().join("store"), folder.path().join("out"));
    let noise: Vec<u64> = (1..40_000u64).map(|at| at.wrapping_mul(0x9E37_79B9_7F4A_7C15)).collect();
    let mut run = Run::open(Options::directory(&store, "r")).unwrap();
    run.checkpoint(3, &[Variable::new("a", &noise), Variable::new("b", &noise[..7])]).unwrap();
    run.finish().unwrap();
    let export = |format| {
        let checkpoint = Library::open(&store).unwrap().checkpoint("r", None).unwrap();
        export_arrays(&checkpoint, &wanted(format, &[], &[]), &out, &|_, _| {})
    };
    for (format, name) in FORMATS.into_iter().zip(["r-3", "r-3.h5", "r-3.zarr"]) {
        std::fs::create_dir_all(&out).unwrap();
        std::fs::write(out.join(name), "mine").unwrap();
        let error = export(format).unwrap_err();
        assert!(error.to_string().contains("is there already"), "{error}");
        assert_eq!(std::fs::read(out.join(name)).unwrap(), b"mine");
        std::fs::remove_file(out.join(name)).unwrap();
        assert!(names_in(&out).is_empty());
        // An export that was killed has left its hidden name.
        let hidden = format!(".{name}.new-{}-0", std::process::id());
        std::fs::create_dir(out.join(&hidden)).unwrap();
        assert_eq!(read_all(&export(format).unwrap()).len(), 2);
        assert_eq!(names_in(&out), BTreeSet::from([hidden, name.to_string()]));
        std::fs::remove_dir_all(&out).unwrap();
    }
    let packs = store.join("runs/r/packs");
    for name in names_in(&packs) {
        let mut bytes = std::fs::read(packs.join(&name)).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        std::fs::write(packs.join(&name), bytes).unwrap();
    }
    for format in FORMATS {
        let error = export(format).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Damaged, "{error}");
        assert!(names_in(&out).is_empty());
    }
}
