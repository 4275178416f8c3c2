//! Variables within a bound: the rounded values are stored, compared and restored, and no
//! value is further from the program's own than the bound says. Nothing is rounded without one.

use crate::laws::files::{npy, npz};
use crate::laws::oracle;
use crate::support::memory;
use proptest::prelude::*;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use treering::testing::{Field, Rounding, TREE_PREFIX, open_file};
use treering::{
    Aim, Answer, Bound, ChunkSize, CompareSettings, DType, Encoding, Ingest, IngestSettings,
    Library, Method, Options, RankFile, Run, Store, StoredSide, Variable, VariableMut, compare,
};

const ROUNDED: [DType; 4] = [DType::F32, DType::F64, DType::C64, DType::C128];

fn rounded(bound: Bound, dtype: DType, bytes: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    Rounding::new(bound, dtype).unwrap().round(&mut bytes);
    bytes
}

/// Bounds of all sizes, and such as people give.
fn bounds() -> Vec<Bound> {
    let abs = [5e-324, 1e-310, 1e-300, 1e-45, 1e-20, 1e-6, 0.001, 0.5, 3.0, 1e9, 1e38, 1e300];
    let rel = [5e-324, 1e-300, 1e-20, 2e-16, 1e-7, 1e-4, 0.001, 0.25, 0.5, 0.99];
    let all = abs.into_iter().map(Bound::abs).chain(rel.into_iter().map(Bound::rel));
    all.chain([Bound::abs(f64::MAX), Bound::rel(1.0 - f64::EPSILON)]).collect()
}

fn bound() -> impl Strategy<Value = Bound> {
    prop_oneof![
        proptest::sample::select(bounds()),
        any::<f64>().prop_filter_map("a bound", |x| {
            (x.is_finite() && x != 0.0).then(|| Bound::abs(x.abs()))
        }),
        (1e-9f64..1.0).prop_map(Bound::abs),
        (-60f64..0.0).prop_map(|e| Bound::rel(e.exp2().min(0.999))),
    ]
}

/// Any bits, small whole numbers, and numbers next to the middle between two multiples.
fn number(bound: Bound) -> impl Strategy<Value = f64> {
    let spacing = Rounding::new(bound, DType::F64).unwrap().spacing().map_or(0.25, |s| s.get());
    let near = (0u32..52).prop_flat_map(|bits| 0u64..1 << bits);
    prop_oneof![
        any::<u64>().prop_map(f64::from_bits),
        (-5i32..5).prop_map(f64::from),
        (near, any::<bool>(), -3i64..=3).prop_map(move |(k, negative, ulps)| {
            let middle = (k as f64 + 0.5) * spacing;
            let value = f64::from_bits(middle.to_bits().wrapping_add_signed(ulps));
            if negative { -value } else { value }
        }),
    ]
}

/// The laws, for one element.
fn holds(bound: Bound, dtype: DType, element: &[u8]) {
    let there = rounded(bound, dtype, element);
    let shown = || format!("{dtype} {bound}: {element:?} became {there:?}");
    assert!(!oracle::differ(dtype, bound, true, &there, element), "{}", shown());
    assert_eq!(rounded(bound, dtype, &there), there, "{}", shown());
    let part = if matches!(dtype, DType::F32 | DType::C64) { 4 } else { 8 };
    for (new, old) in there.chunks(part).zip(element.chunks(part)) {
        let read = |bytes: &[u8]| match part {
            4 => f64::from(f32::from_le_bytes(bytes.try_into().unwrap())),
            _ => f64::from_le_bytes(bytes.try_into().unwrap()),
        };
        let (new_value, old_value) = (read(new), read(old));
        if old_value.is_finite() {
            assert!(new_value.is_finite(), "{}", shown());
            assert!(new_value == 0.0 || new_value.signum() == old_value.signum(), "{}", shown());
        } else {
            assert_eq!(new, old, "{}", shown());
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]
    #[test]
    fn rounding_keeps_its_laws((bound, a, b) in bound().prop_flat_map(|b| (Just(b), number(b), number(b)))) {
        holds(bound, DType::F64, &a.to_le_bytes());
        holds(bound, DType::F32, &(a as f32).to_le_bytes());
        holds(bound, DType::F32, &(a.to_bits() as u32).to_le_bytes());
        holds(bound, DType::C128, &[a.to_le_bytes(), b.to_le_bytes()].concat());
        holds(bound, DType::C64, &[(a as f32).to_le_bytes(), (b as f32).to_le_bytes()].concat());
    }
}

#[test]
fn rounding_keeps_its_laws_over_all_bit_patterns() {
    for bound in bounds() {
        for bits in (0..=u32::MAX).step_by(2_000_003) {
            holds(bound, DType::F32, &bits.to_le_bytes());
            let wide = u64::from(bits) << 32 | u64::from(bits.reverse_bits());
            holds(bound, DType::F64, &wide.to_le_bytes());
        }
    }
}

/// A field that moves a little each step, with values that stay as they are.
fn field(step: u64, count: usize) -> Vec<f64> {
    let mut values: Vec<f64> = (0..count)
        .map(|i| {
            let moving = if i < count / 3 { step as f64 * 0.01 } else { 0.0 };
            (i as f64 * 0.01 + moving).sin() * 30.0 + (i as f64 * 7.7).sin() * 1e-5
        })
        .collect();
    for (at, special) in [f64::NAN, f64::INFINITY, -0.0, 1e300, 5e-324].into_iter().enumerate() {
        values[at * 17] = special;
    }
    values
}

fn bytes_as(dtype: DType, values: &[f64]) -> Vec<u8> {
    match dtype {
        DType::F32 | DType::C64 => values.iter().flat_map(|v| (*v as f32).to_le_bytes()).collect(),
        _ => values.iter().flat_map(|v| v.to_le_bytes()).collect(),
    }
}

fn variable<'a>(dtype: DType, bytes: &'a [u8]) -> Variable<'a> {
    let shape = [bytes.len() as u64 / dtype.size()];
    Variable::from_bytes("x", dtype, &shape, bytes)
}

/// The bytes of a variable of a stored step.
fn stored(store: &Arc<dyn Store>, run: &str, step: u64, dtype: DType, len: usize) -> Vec<u8> {
    stored_as("x", store, run, step, dtype, len)
}

fn stored_as(
    name: &str,
    store: &Arc<dyn Store>,
    run: &str,
    step: u64,
    dtype: DType,
    len: usize,
) -> Vec<u8> {
    let mut bytes = vec![0; len];
    let checkpoint = Library::of(store.clone()).checkpoint(run, Some(step)).unwrap();
    let shape = [len as u64 / dtype.size()];
    let mut target = [VariableMut::from_bytes(name, dtype, &shape, &mut bytes)];
    checkpoint.read_into(&mut target).unwrap();
    bytes
}

fn bound_of(store: &Arc<dyn Store>, run: &str, step: u64) -> Option<Bound> {
    let library = Library::of(store.clone());
    let checkpoint = library.checkpoint(run, Some(step)).unwrap();
    let shown = library.variables(&checkpoint);
    let entry = checkpoint.variable(treering::Rank(0), "x").unwrap();
    assert_eq!(shown[0].error_bound, entry.rounded.map(|rounding| rounding.bound()));
    shown[0].error_bound
}

fn sound(store: &Arc<dyn Store>) {
    assert!(Library::of(store.clone()).verify(None, true, &|_, _| {}).unwrap().is_sound());
}

#[test]
fn runs_store_values_within_their_bounds() {
    const STEPS: u64 = 12;
    for dtype in ROUNDED {
        for bound in [Bound::abs(1e-3), Bound::rel(1e-4)] {
            for method in [Method::Tree, Method::Full] {
                let store = memory();
                let options = |run: &str| {
                    let options = Options::in_store(store.clone(), run);
                    options.method(method).chunk(ChunkSize::new(128).unwrap())
                };
                let mut within = Run::open(options("within")).unwrap();
                let mut exact = Run::open(options("exact")).unwrap();
                for step in 0..STEPS {
                    let bytes = bytes_as(dtype, &field(step, 40_000));
                    let before = bytes.clone();
                    let handed = variable(dtype, &bytes).error_bound(bound);
                    within.checkpoint(step, &[handed]).unwrap();
                    // The program's own values are not touched.
                    assert!(bytes == before);
                    exact.checkpoint(step, &[variable(dtype, &bytes)]).unwrap();
                }
                within.finish().unwrap();
                exact.finish().unwrap();
                sound(&store);
                for step in 0..STEPS {
                    let bytes = bytes_as(dtype, &field(step, 40_000));
                    let back = stored(&store, "within", step, dtype, bytes.len());
                    assert!(back == rounded(bound, dtype, &bytes) && back != bytes);
                    assert!(stored(&store, "exact", step, dtype, bytes.len()) == bytes);
                    assert_eq!(bound_of(&store, "within", step), Some(bound));
                    assert_eq!(bound_of(&store, "exact", step), None);
                }
                let side = |run| StoredSide::open(store.clone(), run, None).unwrap();
                let equal_within = |bound| {
                    let settings =
                        CompareSettings { bound: Some(bound), ..CompareSettings::default() };
                    compare(&side("within"), &side("exact"), &settings, None, &|_, _| {}).unwrap()
                };
                assert!(equal_within(bound).equal);
                assert!(!equal_within(Bound::Bits).equal);
                let library = Library::of(store.clone());
                let size = |run: &str| library.runs().unwrap().into_iter().find(|r| r.name == run);
                let (small, large) = (size("within").unwrap(), size("exact").unwrap());
                assert!(small.stored_bytes * 4 < large.stored_bytes * 3, "{dtype} {bound}");
            }
        }
    }
}

#[test]
fn changes_below_the_bound_are_no_changes_and_restored_states_go_on() {
    let store = memory();
    let options = || Options::in_store(store.clone(), "r");
    let mut values: Vec<f64> = (0..50_000).map(|i| (i as f64 * 0.01).sin()).collect();
    let mut run = Run::open(options()).unwrap();
    let save = |run: &mut Run, step, values: &[f64]| {
        let x = Variable::new("x", values).error_bound(Bound::abs(0.25));
        run.checkpoint(step, &[x]).unwrap().durable().unwrap();
    };
    save(&mut run, 0, &values);
    // Towards the multiple that each was rounded to.
    let there = stored(&store, "r", 0, DType::F64, 400_000);
    let there: Vec<f64> = bytemuck::pod_collect_to_vec(&there);
    values.iter_mut().zip(&there).for_each(|(v, to)| *v += 0.5 * (to - *v));
    save(&mut run, 1, &values);
    drop(run);
    let mut run = Run::open(options()).unwrap();
    let mut back = vec![0.0f64; 50_000];
    run.restore(&mut [VariableMut::new("x", &mut back)]).unwrap().unwrap();
    assert!(back == there);
    save(&mut run, 2, &back);
    drop(run);
    let library = Library::of(store.clone());
    let (checkpoints, _) = library.checkpoints("r").unwrap();
    let new: Vec<u64> = checkpoints.iter().map(|c| c.stats.new_bytes).collect();
    assert!(new[0] > 0 && new[1..] == [0, 0], "{new:?}");
    sound(&store);
}

/// The bound of a checkpoint is that of all its values, whatever the ones before it had: what is
/// found to be unchanged is so in its rounded form.
#[test]
fn bounds_may_change_from_checkpoint_to_checkpoint() {
    let bounds = [
        None,
        Some(Bound::abs(0.25)),
        Some(Bound::abs(1e-6)),
        Some(Bound::rel(1e-3)),
        Some(Bound::abs(0.25)),
        None,
        Some(Bound::abs(0.5)),
        Some(Bound::rel(0.5)),
    ];
    for moves in [false, true] {
        let store = memory();
        let trees =
            |name: &str| Options::in_store(store.clone(), name).bound("x", Bound::abs(1e-4));
        let mut run = Run::open(trees("r")).unwrap();
        let mut plain = Run::open(trees("plain")).unwrap();
        let state = |step: usize| field(if moves { step as u64 } else { 0 }, 30_000);
        let expected = |step: usize| {
            let bytes = bytes_as(DType::F64, &state(step));
            bounds[step].map_or(bytes.clone(), |bound| rounded(bound, DType::F64, &bytes))
        };
        for (step, bound) in bounds.iter().enumerate() {
            let values = state(step);
            let mut x = Variable::new("x", &values);
            if let Some(bound) = bound {
                x = x.error_bound(*bound);
            }
            run.checkpoint(step as u64, &[x]).unwrap();
            // The same values, rounded by the program itself.
            let own = expected(step);
            plain.checkpoint(step as u64, &[variable(DType::F64, &own)]).unwrap();
        }
        run.finish().unwrap();
        plain.finish().unwrap();
        sound(&store);
        let library = Library::of(store.clone());
        for (step, bound) in bounds.iter().enumerate() {
            let back = stored(&store, "r", step as u64, DType::F64, 240_000);
            assert!(back == expected(step), "step {step}");
            assert_eq!(bound_of(&store, "r", step as u64), *bound);
            // Trees are those of the values that are stored.
            let trees = |run: &str| -> Vec<Vec<u8>> {
                let checkpoint = library.checkpoint(run, Some(step as u64)).unwrap();
                let all = checkpoint.variables().filter(|v| v.name.starts_with(TREE_PREFIX));
                let read = |tree: &treering::Description| {
                    let (shape, mut bytes) =
                        (&tree.shape.0, vec![0; tree.bytes().unwrap() as usize]);
                    let target = VariableMut::from_bytes(&tree.name, tree.dtype, shape, &mut bytes);
                    checkpoint.read_into(&mut [target]).unwrap();
                    bytes
                };
                all.map(read).collect()
            };
            assert!(trees("r").len() == 1 && trees("r") == trees("plain"), "step {step}");
        }
    }
}

#[test]
fn trees_and_references_see_the_rounded_values() {
    let store = memory();
    let bound = Bound::abs(0.01);
    let bits = CompareSettings { bound: Some(Bound::Bits), ..CompareSettings::default() };
    let same = CompareSettings { bound: Some(Bound::abs(1e-9)), ..CompareSettings::default() };
    let mut first =
        Run::open(Options::in_store(store.clone(), "first").bound("*", Bound::abs(1e-9))).unwrap();
    for step in 0..4 {
        let values = field(step, 20_000);
        first.checkpoint(step, &[Variable::new("x", &values).error_bound(bound)]).unwrap();
    }
    first.finish().unwrap();
    for (run, settings) in [("bits", bits), ("same", same)] {
        let options = Options::in_store(store.clone(), run).bound("*", Bound::abs(1e-9)).reference(
            store.clone(),
            "first",
            settings,
        );
        let mut second = Run::open(options).unwrap();
        for step in 0..4 {
            let values = field(step, 20_000);
            second.checkpoint(step, &[Variable::new("x", &values).error_bound(bound)]).unwrap();
            assert!(second.divergence().is_none(), "step {step}");
        }
        // Without the bound, it parts.
        let values = field(3, 20_000);
        second.checkpoint(3, &[Variable::new("x", &values)]).unwrap();
        assert!(second.divergence().is_some());
        second.finish().unwrap();
    }
    let side = |run| StoredSide::open(store.clone(), run, Some(treering::Step(2))).unwrap();
    for trees in [true, false] {
        let settings =
            CompareSettings { trees, bound: Some(Bound::abs(1e-9)), ..CompareSettings::default() };
        let outcome = compare(&side("first"), &side("same"), &settings, None, &|_, _| {}).unwrap();
        assert_eq!(outcome.verdict, Answer::Equal);
    }
}

#[test]
fn bounds_that_make_no_sense_are_refused_before_anything_is_touched() {
    let store = memory();
    let mut run = Run::open(Options::in_store(store.clone(), "r")).unwrap();
    let (whole, real) = ([1i32; 100], [1.0f32; 100]);
    let cases = [
        (Variable::new("n", &whole).error_bound(Bound::abs(1.0)), "type i32 cannot be rounded"),
        (Variable::new("x", &real).error_bound(Bound::abs(0.0)), "greater than 0"),
        (Variable::new("x", &real).error_bound(Bound::abs(f64::NAN)), "finite"),
        (Variable::new("x", &real).error_bound(Bound::rel(1.0)), "less than 1"),
        (Variable::new("x", &real).error_bound(Bound::Ulp(3)), "not a distance"),
        (
            Variable::new("x", &real).error_bound(Bound::Within { abs: 1.0, rel: 0.1 }),
            "there are two",
        ),
    ];
    for (variable, sentence) in cases {
        let error = run.checkpoint(0, &[variable]).err().unwrap().to_string();
        assert!(error.contains(sentence) && error.contains("variable"), "{error}");
    }
    let x = Variable::new("x", &real).error_bound(Bound::abs(0.1));
    run.checkpoint(0, &[x, Variable::new("n", &whole)]).unwrap().durable().unwrap();
    run.finish().unwrap();
    sound(&store);
}

fn file(path: &Path) -> RankFile {
    let name = path.file_name().unwrap().to_str().unwrap().to_string();
    RankFile { rank: treering::Rank(0), path: path.into(), like: name.clone(), name }
}

/// The variable of an array of a file; that of an `.npy` file has no name.
fn named(path: &Path, array: &str) -> String {
    let file = path.file_name().unwrap().to_str().unwrap();
    match file.ends_with(".npy") {
        true => file.to_string(),
        false => format!("{file}/{array}"),
    }
}

/// Takes a file in with bounds, and gives it back.
fn through(path: &Path, within: &[(&str, Bound)]) -> Result<PathBuf, String> {
    let store = memory();
    let within = within.iter().map(|(name, bound)| (name.to_string(), *bound)).collect();
    let settings = IngestSettings { error_bounds: within, ..IngestSettings::default() };
    let options = Options::in_store(store.clone(), "sim").encoding(Encoding::Best(Aim::Balanced));
    let mut ingest = Ingest::open(options, settings).map_err(|e| e.to_string())?;
    let manifest = ingest.take(0, &[file(path)], &|_, _| {}).map_err(|e| e.to_string())?;
    drop(ingest);
    sound(&store);
    let to = path.with_extension(format!(
        "out-{}",
        std::fs::read_dir(path.parent().unwrap()).unwrap().count()
    ));
    let library = Library::of(store);
    let written = library.export("sim", None, &[], &to).unwrap();
    assert_eq!(written[0].rounded, manifest.rounded);
    Ok(to.join(path.file_name().unwrap()))
}

fn bytes_of(field: &Field) -> treering::Result<Vec<u8>> {
    let mut bytes = vec![0; field.bytes.size() as usize];
    field.bytes.read_at(0, &mut bytes).map(|()| bytes)
}

/// The exported file has the values of one field rounded, and nothing else changed.
fn only_values_changed(path: &Path, back: &Path, name: &str, bound: Bound) {
    let (old, new) = (open_file(path, None).unwrap(), open_file(back, None).unwrap());
    let apart = |a: &[u8], b: &[u8]| a.iter().zip(b).filter(|(a, b)| a != b).count();
    let mut changes = 0;
    for (a, b) in old.iter().zip(&new) {
        assert_eq!(a.description, b.description);
        // Values that lie elsewhere cannot be read.
        let Ok(own) = bytes_of(a) else { continue };
        // A virtual dataset of these files has no values of its own: it shows the array `of_named`.
        let shows = name == "of_named" && a.description.name == "virtual";
        let expected = match shows || a.description.name == name {
            true => rounded(bound, a.description.dtype, &own),
            false => own.clone(),
        };
        assert!(bytes_of(b).unwrap() == expected, "{name} in {}", path.display());
        changes += if shows { 0 } else { apart(&expected, &own) };
    }
    let (old, new) = (std::fs::read(path).unwrap(), std::fs::read(back).unwrap());
    assert_eq!(old.len(), new.len());
    assert_eq!(apart(&old, &new), changes, "{name} in {}", path.display());
    // Taken in again, nothing is left to be rounded.
    let again = through(back, &[(&named(back, name), bound)]).unwrap();
    assert!(std::fs::read(again).unwrap() == new);
}

#[test]
fn arrays_in_files_are_rounded_where_they_are() {
    let folder = tempfile::tempdir().unwrap();
    let values = field(1, 6000);
    for dtype in ROUNDED {
        for (big, fortran) in [(false, false), (true, false), (false, true)] {
            for bound in [Bound::abs(1e-3), Bound::rel(1e-4)] {
                let bytes = bytes_as(dtype, &values);
                let shape = [10, bytes.len() as u64 / dtype.size() / 10];
                let path = folder.path().join(format!("{dtype}-{big}-{fortran}-{bound}.npy"));
                std::fs::write(&path, npy(dtype, &shape, fortran, big, &bytes)).unwrap();
                let exact = through(&path, &[]).unwrap();
                assert!(std::fs::read(exact).unwrap() == std::fs::read(&path).unwrap());
                let back = through(&path, &[("*", bound)]).unwrap();
                let name = open_file(&path, None).unwrap()[0].description.name.clone();
                only_values_changed(&path, &back, &name, bound);
            }
        }
    }
}

/// A safetensors file of two arrays.
fn safetensors(values: &[f64]) -> Vec<u8> {
    let bytes = bytes_as(DType::F32, values);
    let (len, end) = (bytes.len(), bytes.len() + 8);
    let head = format!(
        r#"{{"w":{{"dtype":"F32","shape":[{}],"data_offsets":[0,{len}]}},"n":{{"dtype":"I32","shape":[2],"data_offsets":[{len},{end}]}}}}"#,
        values.len()
    );
    let mut out = (head.len() as u64).to_le_bytes().to_vec();
    out.extend(head.as_bytes());
    out.extend(bytes);
    out.extend([1, 0, 0, 0, 2, 0, 0, 0]);
    out
}

#[test]
fn what_cannot_be_rounded_in_a_file_is_refused_with_a_sentence() {
    let folder = tempfile::tempdir().unwrap();
    let values = field(1, 1000);
    let array = npy(DType::F64, &[1000], false, false, &bytes_as(DType::F64, &values));
    let refused = |path: &Path, within: &[(&str, Bound)], sentences: &[&str]| {
        let error = through(path, within).unwrap_err();
        assert!(sentences.iter().all(|s| error.contains(s)), "{error}");
    };
    for (deflated, why) in [(false, "checksum"), (true, "deflated")] {
        let path = folder.path().join(format!("{why}.npz"));
        npz(&path, deflated, &[("p", array.clone())]);
        refused(&path, &[("p", Bound::abs(1e-3))], &[why, "/p\"", &path.display().to_string()]);
        through(&path, &[]).unwrap();
    }
    let path = folder.path().join("x.safetensors");
    std::fs::write(&path, safetensors(&values)).unwrap();
    let bound = Bound::abs(1e-3);
    // Names are matched as a whole, types are checked, and the first that matches counts.
    refused(
        &path,
        &[("ww", bound)],
        &["no variable", "\"ww\"", "x.safetensors/n, x.safetensors/w"],
    );
    refused(&path, &[("", bound)], &["no variable"]);
    refused(&path, &[("w", bound), ("y*", bound)], &["no variable", "y*"]);
    refused(&path, &[("*", bound)], &["type i32", "\"x.safetensors/n\"", "x.safetensors"]);
    refused(&path, &[("w", Bound::Ulp(2))], &["not a distance"]);
    refused(&path, &[("w", Bound::abs(0.0))], &["greater than 0"]);
    let back = through(&path, &[("w*", bound), ("?", Bound::rel(0.5))]);
    assert!(back.unwrap_err().contains("i32"));
    let back = through(&path, &[("w", bound), ("w*", Bound::rel(0.5))]).unwrap();
    only_values_changed(&path, &back, "w", bound);
    let back = through(&path, &[("n", Bound::Bits), ("*", bound)]).unwrap();
    only_values_changed(&path, &back, "w", bound);
    // A file that is not understood has no values.
    let path = folder.path().join("notes.txt");
    std::fs::write(&path, "no numbers").unwrap();
    refused(&path, &[("*", bound)], &["type bytes"]);
}

/// A classic netCDF file of one variable of f64 with attributes, and of its values.
fn netcdf(attributes: &[(&str, f64)], values: &[f64]) -> Vec<u8> {
    let lists: Vec<(&str, Vec<f64>)> = attributes.iter().map(|(n, v)| (*n, vec![*v])).collect();
    netcdf_with(&lists, values)
}

/// The same with attributes of several values.
fn netcdf_with(attributes: &[(&str, Vec<f64>)], values: &[f64]) -> Vec<u8> {
    let name = |out: &mut Vec<u8>, name: &str| {
        out.extend((name.len() as u32).to_be_bytes());
        out.extend(name.bytes());
        out.resize(out.len().next_multiple_of(4), 0);
    };
    let number = |out: &mut Vec<u8>, number: u32| out.extend(number.to_be_bytes());
    let mut out = b"CDF\x01\0\0\0\0".to_vec();
    [10, 1].into_iter().for_each(|n| number(&mut out, n));
    name(&mut out, "x");
    [values.len() as u32, 0, 0, 11, 1].into_iter().for_each(|n| number(&mut out, n));
    name(&mut out, "t");
    [1, 0, if attributes.is_empty() { 0 } else { 12 }, attributes.len() as u32]
        .into_iter()
        .for_each(|n| number(&mut out, n));
    for (own, list) in attributes {
        name(&mut out, own);
        [6, list.len() as u32].into_iter().for_each(|n| number(&mut out, n));
        out.extend(list.iter().flat_map(|value| value.to_be_bytes()));
    }
    let begin = out.len() as u32 + 12;
    [6, 8 * values.len() as u32, begin].into_iter().for_each(|n| number(&mut out, n));
    out.extend(values.iter().flat_map(|value| value.to_be_bytes()));
    out
}

/// A value that stands for none is still one that does, and no other became one.
#[test]
fn marks_stay_and_nothing_becomes_one() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ocean.nc");
    let land = |marks: &[f64]| {
        let mut values = field(1, 3000);
        // Close to a mark, and some that rounding would turn into one.
        values.extend((0..600).map(|i| -9999.0 + f64::from(i - 300) / 3e4));
        for (at, mark) in marks.iter().cycle().take(900).enumerate() {
            values[at * 4] = *mark;
        }
        values
    };
    let usual = 9.969_209_968_386_869e36;
    for (attributes, marks) in [
        (vec![("_FillValue", -9999.0)], vec![-9999.0]),
        (vec![("_FillValue", -999.99), ("missing_value", 1e20)], vec![-999.99, 1e20]),
        (vec![("units", 1.0)], vec![usual]),
        (vec![], vec![usual]),
    ] {
        let values = land(&marks);
        std::fs::write(&path, netcdf(&attributes, &values)).unwrap();
        for bound in [Bound::abs(0.01), Bound::rel(1e-4), Bound::rel(1e-3)] {
            let back = through(&path, &[("t", bound)]).unwrap();
            let fields = open_file(&back, None).unwrap();
            let new = bytes_of(&fields[0]).unwrap();
            let plain = rounded(bound, DType::F64, &bytes_as(DType::F64, &values));
            let mut changed = 0;
            for ((old, new), plain) in values.iter().zip(new.chunks(8)).zip(plain.chunks(8)) {
                let [new, plain] =
                    [new, plain].map(|bytes| f64::from_le_bytes(bytes.try_into().unwrap()));
                let is_mark = |value: f64| marks.contains(&value);
                assert_eq!(is_mark(*old), is_mark(new), "{old} became {new} within {bound}");
                assert!(new == plain || new == *old && (is_mark(*old) || is_mark(plain)));
                changed += u64::from(new != *old);
            }
            assert!(changed > 1000);
            let again = through(&back, &[("t", bound)]).unwrap();
            assert!(std::fs::read(again).unwrap() == std::fs::read(back).unwrap());
        }
    }
}

/// Where nobody can tell which values stand for none, nothing is rounded.
#[test]
fn more_marks_than_are_known_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ocean.nc");
    let values = field(1, 3000);
    let marks = |count: i32| (0..count).map(f64::from).collect::<Vec<f64>>();
    std::fs::write(&path, netcdf_with(&[("missing_value", marks(15))], &values)).unwrap();
    through(&path, &[("t", Bound::abs(0.01))]).unwrap();
    std::fs::write(&path, netcdf_with(&[("missing_value", marks(17))], &values)).unwrap();
    let error = through(&path, &[("t", Bound::abs(0.01))]).unwrap_err();
    assert!(error.contains("attributes"), "{error}");
}

/// A value that is valid stays valid, and no other becomes valid: masks of readers stay as they are.
#[test]
fn no_value_passes_a_limit_of_valid_ones() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ocean.nc");
    // Close to the limits, on both sides of them and on them.
    let near = |limit: f64| (0..600).map(move |i| limit + f64::from(i - 300) / 3e4);
    let values: Vec<f64> = near(0.004).chain(near(99.996)).chain(field(1, 3000)).collect();
    for attributes in [
        vec![("valid_min", vec![0.004])],
        vec![("valid_max", vec![99.996]), ("_FillValue", vec![50.0])],
        vec![("valid_min", vec![0.004]), ("valid_max", vec![99.996])],
        vec![("valid_range", vec![0.004, 99.996])],
        vec![("_FillValue", vec![50.0]), ("valid_range", vec![0.004, 99.996])],
    ] {
        std::fs::write(&path, netcdf_with(&attributes, &values)).unwrap();
        let limit = |name: &str, at: usize| {
            let named = |name: &str| attributes.iter().find(|own| own.0 == name);
            let range = named("valid_range").map(|own| own.1[at]);
            named(name).map(|own| own.1[0]).or(range)
        };
        let valid = |value: f64| {
            limit("valid_min", 0).is_none_or(|least| value >= least)
                && limit("valid_max", 1).is_none_or(|most| value <= most)
        };
        for bound in [Bound::abs(0.01), Bound::rel(1e-3)] {
            let back = through(&path, &[("t", bound)]).unwrap();
            let new = bytes_of(&open_file(&back, None).unwrap()[0]).unwrap();
            let plain = rounded(bound, DType::F64, &bytes_as(DType::F64, &values));
            let (mut changed, mut kept) = (0, 0);
            for ((old, new), plain) in values.iter().zip(new.chunks(8)).zip(plain.chunks(8)) {
                let [new, plain] =
                    [new, plain].map(|bytes| f64::from_le_bytes(bytes.try_into().unwrap()));
                assert_eq!(valid(*old), valid(new), "{old} became {new} within {bound}");
                changed += u64::from(new != *old);
                kept += u64::from(valid(*old) != valid(plain));
            }
            assert!(changed > 1000 && kept > 0, "{attributes:?} {bound}: {changed} {kept}");
            let again = through(&back, &[("t", bound)]).unwrap();
            assert!(std::fs::read(again).unwrap() == std::fs::read(back).unwrap());
        }
    }
}

/// In a damaged file, values may lie where something else does: they are not touched.
#[test]
fn what_lies_over_something_else_is_not_rounded() {
    let folder = tempfile::tempdir().unwrap();
    let values = field(1, 1000);
    let mut bytes = netcdf(&[], &values);
    let begin = bytes.len() - 8000;
    bytes[begin - 4..begin].copy_from_slice(&(begin as u32 - 8).to_be_bytes());
    let path = folder.path().join("shifted.nc");
    std::fs::write(&path, &bytes).unwrap();
    let refused = through(&path, &[("t", Bound::abs(0.1))]).unwrap_err();
    assert!(refused.contains("same place") && refused.contains("'shifted.nc/t=bits'"), "{refused}");
    assert!(std::fs::read(through(&path, &[]).unwrap()).unwrap() == bytes);
    // Two tensors over each other.
    let head = r#"{"a":{"dtype":"F32","shape":[500],"data_offsets":[0,2000]},"b":{"dtype":"F32","shape":[500],"data_offsets":[1000,3000]}}"#;
    let mut bytes = (head.len() as u64).to_le_bytes().to_vec();
    bytes.extend(head.as_bytes());
    bytes.extend(bytes_as(DType::F32, &values[..750]));
    let path = folder.path().join("over.safetensors");
    std::fs::write(&path, &bytes).unwrap();
    let refused = through(&path, &[("*", Bound::abs(0.1))]).unwrap_err();
    assert!(refused.contains("same place"), "{refused}");
    assert!(std::fs::read(through(&path, &[]).unwrap()).unwrap() == bytes);
}

/// Rounds every array of a file that can be; tells how many were, and how many were refused.
fn each_array(path: &Path) -> (usize, usize) {
    let (mut taken, mut refused) = (0, 0);
    let bound = Bound::rel(0.01);
    for field in open_file(path, None).unwrap() {
        let name = field.description.name.clone();
        if !ROUNDED.contains(&field.description.dtype) {
            continue;
        }
        let variable = named(path, &name);
        match through(path, &[(&variable, bound)]) {
            Ok(back) => {
                only_values_changed(path, &back, &name, bound);
                taken += 1;
            }
            Err(error) => {
                assert!(error.contains(&format!("{variable:?}")), "{error}");
                refused += 1;
            }
        }
    }
    (taken, refused)
}

/// Files of HDF5 that are kept for the fuzzers: plain arrays are rounded, packed ones refused.
#[test]
fn hdf5_is_rounded_where_nothing_depends_on_the_values() {
    let kept = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/anatomy");
    let folder = tempfile::tempdir().unwrap();
    let of = |name: &str| {
        let path = folder.path().join(name);
        std::fs::copy(kept.join(name), &path).unwrap();
        each_array(&path)
    };
    for age in ["earliest", "latest"] {
        let (plain, chunks) = (of(&format!("hdf5-{age}-plain")), of(&format!("hdf5-{age}-chunks")));
        assert!(plain.0 > 0 && chunks.1 > 0, "{age}: {plain:?} {chunks:?}");
    }
}

/// The damaged head of a file is not believed: its bytes are all that is known.
#[test]
fn hdf5_whose_sums_do_not_match_is_bytes() {
    let kept = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/anatomy");
    let folder = tempfile::tempdir().unwrap();
    let sound = std::fs::read(kept.join("hdf5-latest-chunks")).unwrap();
    let mut damaged = 0;
    for signature in [&b"\x89HDF"[..], b"OHDR", b"FAHD", b"FADB", b"EAHD", b"BTHD", b"BTLF"] {
        let Some(at) = sound.windows(4).position(|four| four == signature) else { continue };
        let mut bytes = sound.clone();
        // Behind signatures and versions, whose damage is noticed without a sum.
        bytes[at + 24] ^= 0x40;
        let path = folder.path().join(format!("{at}.h5"));
        std::fs::write(&path, &bytes).unwrap();
        let error = open_file(&path, None).err().unwrap().to_string();
        assert!(error.contains("HDF5"), "{error}");
        let refused = through(&path, &[("*", Bound::abs(0.1))]).unwrap_err();
        assert!(refused.contains("type bytes"), "{refused}");
        assert!(std::fs::read(through(&path, &[]).unwrap()).unwrap() == bytes);
        damaged += 1;
    }
    assert!(damaged >= 3, "{damaged}");
}

/// The same for the files of real libraries, as in `source.rs`.
#[test]
#[ignore = "its files are made by `make test`"]
fn files_of_real_libraries() {
    let folder = std::env::var("TREERING_FILES").expect("`make test` makes the files");
    let listed = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let listed = Mutex::new(listed.filter(|path| path.extension().is_some_and(|e| e == "json")));
    let some_files = || {
        let scratch = tempfile::tempdir().unwrap();
        let (mut taken, mut refused) = (0, 0);
        loop {
            let next = listed.lock().unwrap().next();
            let Some(listed) = next else { return (taken, refused) };
            let path = scratch.path().join(listed.file_stem().unwrap());
            std::fs::copy(listed.with_extension(""), &path).unwrap();
            let found = each_array(&path);
            (taken, refused) = (taken + found.0, refused + found.1);
        }
    };
    // Most of these files are too small for more than one thread.
    let (taken, refused) = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(some_files)).collect();
        let found = threads.into_iter().map(|thread| thread.join().unwrap());
        found.fold((0, 0), |all, found| (all.0 + found.0, all.1 + found.1))
    });
    assert!(taken > 20 && refused > 20, "{taken} {refused}");
}

#[test]
#[ignore = "its files are made by `make test`"]
fn marks_of_real_libraries_stay() {
    let folder = std::env::var("TREERING_FILES").expect("`make test` makes the files");
    let scratch = tempfile::tempdir().unwrap();
    let mut files = 0;
    for entry in std::fs::read_dir(Path::new(&folder).join("masked")).unwrap() {
        let listed = entry.unwrap().path();
        let path = scratch.path().join(listed.file_name().unwrap());
        std::fs::copy(&listed, &path).unwrap();
        let values = |path: &Path| -> Vec<f64> {
            let field =
                open_file(path, None).unwrap().into_iter().find(|f| f.description.name == "t");
            let field = field.unwrap();
            let bytes = bytes_of(&field).unwrap();
            match field.description.dtype {
                DType::F32 => bytes
                    .chunks(4)
                    .map(|b| f64::from(f32::from_le_bytes(b.try_into().unwrap())))
                    .collect(),
                _ => bytes.chunks(8).map(|b| f64::from_le_bytes(b.try_into().unwrap())).collect(),
            }
        };
        let old = values(&path);
        let is_mark = |value: f64| value == -9999.0 || value > 9e19;
        assert!(old.iter().filter(|value| is_mark(**value)).count() > 1000);
        for bound in [Bound::abs(0.01), Bound::rel(1e-3)] {
            let new = values(&through(&path, &[("t", bound)]).unwrap());
            for (old, new) in old.iter().zip(&new) {
                assert!(old == new || !is_mark(*old) && !is_mark(*new), "{old} {new}: {listed:?}");
            }
            assert!(old != new);
        }
        files += 1;
    }
    assert_eq!(files, 9);
}

#[test]
fn a_later_process_goes_on_with_rounded_files() {
    let folder = tempfile::tempdir().unwrap();
    let store = memory();
    let bound = Bound::abs(1e-3);
    let name = "x.npy".to_string();
    for step in 0..6 {
        let bytes = bytes_as(DType::F64, &field(step, 20_000));
        let path = folder.path().join("x.npy");
        std::fs::write(&path, npy(DType::F64, &[20_000], false, false, &bytes)).unwrap();
        let within = vec![(name.clone(), bound)];
        let settings = IngestSettings { error_bounds: within, ..IngestSettings::default() };
        let mut ingest =
            Ingest::open(Options::in_store(store.clone(), "sim").growth(20.0), settings).unwrap();
        let manifest = ingest.take(step, &[file(&path)], &|_, _| {}).unwrap();
        assert!(step == 0 || manifest.stats.same_bytes > manifest.stats.new_bytes);
        drop(ingest);
        let back = stored_as(&name, &store, "sim", step, DType::F64, 160_000);
        assert!(back == rounded(bound, DType::F64, &bytes));
    }
    sound(&store);
}
