//! Stores written by earlier versions of the format stay readable, byte for byte.
//!
//! `golden/v1` is never written again. A new version of the format gets a folder of its own, made by
//! running this test with TREERING_NEW_GOLDEN set to that folder.

use std::path::Path;
use treering::{ChunkSize, DType, Encoding, Library, Options, Run, Variable};

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
            let flags_there = checkpoint.variables().any(|v| v.name == "flags");
            assert_eq!(flags_there, step != 3);
        }
    }
    let branch = library.checkpoint("branch", None).unwrap();
    assert_eq!((branch.step(), branch.read::<f64>("field").unwrap()), (4, field(4)));
    let part = branch.variables().next().unwrap().part.clone().unwrap();
    assert_eq!((part.global.0, part.offset), (vec![60, 30], vec![30, 0]));
}
