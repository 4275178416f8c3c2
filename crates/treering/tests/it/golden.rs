//! Stores written by earlier versions of the format stay readable, byte for byte.
//!
//! `golden/v1` is never written again. A new version of the format gets a folder of its own, made by
//! running this test with TREERING_NEW_GOLDEN set to that folder.

use std::path::Path;
use treering::testing::Rounding;
use treering::{Bound, ChunkSize, DType, Encoding, Library, Options, Order, Run, Variable};

const STEPS: u64 = 6;

/// The field at a step: mostly constant, with a front that moves.
fn field(step: u64) -> Vec<f64> {
    (0..900u64).map(|i| if i < 90 * step { (i * i) as f64 / 7.0 } else { 1.0 }).collect()
}

fn flags(step: u64) -> Vec<u8> {
    (0..step * 13).map(|i| (i % 3) as u8).collect()
}

fn write(folder: &Path) {
    for (name, encoding) in [("plain", Encoding::Raw), ("packed", Encoding::Zstd(3))] {
        let options = Options::directory(folder, name).growth(2.0).encoding(encoding);
        let mut run = Run::open(options.chunk(ChunkSize::new(64).unwrap())).unwrap();
        for step in 0..STEPS {
            let (field, flags) = (field(step), flags(step));
            let mut variables = vec![
                Variable::new("field", &field).shaped(&[30, 30]).part_of(&[60, 30], &[30, 0]),
                Variable::new("columns", &field).shaped(&[45, 20]).fortran(),
                Variable::from_bytes("flags", DType::Bool, &[flags.len() as u64], &flags),
            ];
            if step == 3 {
                variables.pop();
            }
            run.checkpoint(step, &variables).unwrap().durable().unwrap();
        }
        run.finish().unwrap();
    }
    Library::open(folder).unwrap().branch("plain", Some(4), "branch").unwrap();
}

#[test]
fn version_1_reads_as_it_was_written() {
    if let Some(folder) = std::env::var_os("TREERING_NEW_GOLDEN") {
        write(Path::new(&folder));
    }
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/v1");
    let library = Library::open(&golden).unwrap();
    let report = library.verify(None, true, &|_, _| {}).unwrap();
    assert!(report.is_sound(), "{:?}", report.findings);
    assert_eq!(report.checkpoints, 2 * STEPS + 1);
    for run in ["plain", "packed"] {
        for step in 0..STEPS {
            let checkpoint = library.checkpoint(run, Some(step)).unwrap();
            assert_eq!(checkpoint.read::<f64>("field").unwrap(), field(step));
            assert_eq!(checkpoint.read::<f64>("columns").unwrap(), field(step));
            let columns = &checkpoint.variable(treering::Rank(0), "columns").unwrap().description;
            assert_eq!((columns.order, &columns.shape.0[..]), (Order::Fortran, &[45, 20][..]));
            let flags_there = checkpoint.variables().any(|v| v.name == "flags");
            assert_eq!(flags_there, step != 3);
        }
    }
    let branch = library.checkpoint("branch", None).unwrap();
    assert_eq!((branch.step(), branch.read::<f64>("field").unwrap()), (4, field(4)));
    let part = branch.variables().next().unwrap().global_box().cloned().unwrap();
    assert_eq!((part.global.0, part.offset), (vec![60, 30], vec![30, 0]));
    assert!(part.ghosts.is_none());
}

/// Bounds, and the values that were rounded within them.
fn within(step: u64) -> ([Bound; 2], Vec<f64>) {
    let value = |i: u64| {
        let t = (i + 5 * step) as f64 / 1000.0;
        t * (t - 3.0) * (t - 7.0) + (i * i % 13) as f64 * 1e-4
    };
    ([Bound::abs(1e-3), Bound::rel(1e-3)], (0..9000).map(value).collect())
}

/// The same for values within a bound; `golden/v1-rounded` is never written again, either.
#[test]
fn rounded_variables_read_as_they_were_written() {
    let write = |folder: &Path| {
        let mut run = Run::open(Options::directory(folder, "rounded")).unwrap();
        for step in 0..3 {
            let ([abs, rel], values) = within(step);
            let narrow: Vec<f32> = values.iter().map(|v| *v as f32).collect();
            let variables = [
                Variable::new("wide", &values).shaped(&[90, 100]).error_bound(abs),
                Variable::new("narrow", &narrow).error_bound(abs),
                Variable::new("relative", &values).error_bound(rel),
            ];
            run.checkpoint(step, &variables).unwrap().durable().unwrap();
        }
        run.finish().unwrap();
    };
    if let Some(folder) = std::env::var_os("TREERING_NEW_GOLDEN") {
        write(Path::new(&folder));
    }
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/v1-rounded");
    let library = Library::open(&golden).unwrap();
    assert!(library.verify(None, true, &|_, _| {}).unwrap().is_sound());
    for step in 0..3 {
        let ([abs, rel], values) = within(step);
        let checkpoint = library.checkpoint("rounded", Some(step)).unwrap();
        let shown = library.variables(&checkpoint);
        let bounds: Vec<Option<Bound>> = shown.iter().map(|v| v.error_bound).collect();
        assert_eq!(bounds, [Some(abs), Some(abs), Some(rel)]);
        assert!(shown[0].codecs.iter().any(|codec| codec.contains("multiples")));
        for (name, bound) in [("wide", abs), ("relative", rel)] {
            let mut bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
            Rounding::new(bound, DType::F64).unwrap().round(&mut bytes);
            let back = checkpoint.read::<f64>(name).unwrap();
            assert!(back.iter().flat_map(|v| v.to_le_bytes()).eq(bytes), "{name}");
        }
        let mut bytes: Vec<u8> = values.iter().flat_map(|v| (*v as f32).to_le_bytes()).collect();
        Rounding::new(abs, DType::F32).unwrap().round(&mut bytes);
        let back = checkpoint.read::<f32>("narrow").unwrap();
        assert!(back.iter().flat_map(|v| v.to_le_bytes()).eq(bytes));
    }
}
