//! Foreign files are taken apart and come back byte for byte, whatever they are.
//!
//! Files of real libraries are made by `make_files.py` into the folder that TREERING_FILES names;
//! `make test` does both. Tests that need them are ignored otherwise.

use proptest::prelude::*;
use std::path::{Path, PathBuf};
use treering::testing::{Field, open_file, source_suite, take_apart};
use treering::{DType, RawLayout, Result, Shape};

fn bytes_of(field: &Field) -> Result<Vec<u8>> {
    let mut bytes = vec![0; field.bytes.size() as usize];
    field.bytes.read_at(0, &mut bytes)?;
    Ok(bytes)
}

/// Holds a file to the suite; its format and its arrays.
fn there_and_back(path: &Path, raw: Option<&RawLayout>) -> (&'static str, Vec<Field>) {
    let anatomy = source_suite(path, raw);
    (anatomy.format, anatomy.fields)
}

fn write(folder: &tempfile::TempDir, name: &str, bytes: &[u8]) -> PathBuf {
    let path = folder.path().join(name);
    std::fs::write(&path, bytes).unwrap();
    path
}

fn npy(descr: &str, shape: &str, values: &[u8]) -> Vec<u8> {
    let head = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}\n");
    let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
    bytes.extend((head.len() as u16).to_le_bytes());
    bytes.extend(head.as_bytes());
    bytes.extend(values);
    bytes
}

/// A classic netCDF file: one fixed variable of i2 and two record variables, of i2 and f8.
fn netcdf(records: u32) -> Vec<u8> {
    let mut out = b"CDF\x01".to_vec();
    let int = |out: &mut Vec<u8>, n: u32| out.extend(n.to_be_bytes());
    int(&mut out, records);
    for n in [10, 2, 1, u32::from_be_bytes(*b"t\0\0\0"), 0, 1, u32::from_be_bytes(*b"x\0\0\0"), 3] {
        int(&mut out, n);
    }
    for n in [0, 0, 11, 3] {
        int(&mut out, n);
    }
    let variables: [(&[u8; 4], &[u32], u32, u32); 3] =
        [(b"a\0\0\0", &[1], 3, 0), (b"b\0\0\0", &[0, 1], 3, 8), (b"c\0\0\0", &[0], 6, 16)];
    let head = out.len() as u32 + variables.iter().map(|v| 32 + 4 * v.1.len() as u32).sum::<u32>();
    for (name, axes, code, at) in variables {
        for n in [1, u32::from_be_bytes(*name), axes.len() as u32] {
            int(&mut out, n);
        }
        axes.iter().for_each(|axis| int(&mut out, *axis));
        for n in [0, 0, code, 8, head + at] {
            int(&mut out, n);
        }
    }
    assert_eq!(out.len() as u32, head);
    out.extend((0..8 + 16 * records).map(|n| (n * 7) as u8));
    out
}

fn safetensors() -> Vec<u8> {
    let head = br#"{"w":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},"b":{"dtype":"BF16","shape":[2],"data_offsets":[24,28]}}"#;
    let mut out = (head.len() as u64).to_le_bytes().to_vec();
    out.extend(head);
    out.extend(0..28u8);
    out
}

#[test]
fn simple_files_have_their_fields() {
    let folder = tempfile::tempdir().unwrap();
    let values: Vec<u8> = (0..240u8).collect();
    let path = write(&folder, "a.npy", &npy(">f8", "(5, 6)", &values));
    let (format, fields) = there_and_back(&path, None);
    assert_eq!((format, fields.len()), ("npy", 1));
    assert_eq!(fields[0].description.shape, Shape(vec![5, 6]));
    assert_eq!(bytes_of(&fields[0]).unwrap()[..8], [7, 6, 5, 4, 3, 2, 1, 0]);

    let path = write(&folder, "a.dat", &values);
    let (format, fields) = there_and_back(&path, Some(&RawLayout::values(DType::F32, None)));
    assert_eq!((format, fields[0].description.dtype), ("raw", DType::F32));
    assert!(take_apart(&path, Some(&RawLayout::values(DType::F32, Some(Shape(vec![7]))))).is_err());
    let (format, fields) = there_and_back(&path, None);
    assert_eq!((format, fields[0].description.dtype), ("bytes", DType::Bytes));

    let path = write(&folder, "empty", &[]);
    assert_eq!(there_and_back(&path, None).0, "bytes");

    let path = write(&folder, "a.safetensors", &safetensors());
    let (format, fields) = there_and_back(&path, None);
    assert_eq!((format, fields.len()), ("safetensors", 2));
    assert_eq!(fields[1].description.dtype, DType::BF16);
}

#[test]
fn records_of_netcdf_are_put_in_order() {
    let folder = tempfile::tempdir().unwrap();
    for records in [0, 1, 2, 5, 2_200_000] {
        let bytes = netcdf(records);
        let path = write(&folder, "a.nc", &bytes);
        let (format, fields) = there_and_back(&path, None);
        // With this many records, their padding is a field of its own.
        assert_eq!((format, fields.len()), ("netcdf", if records > 1000 { 4 } else { 3 }));
        assert_eq!(fields[1].description.shape, Shape(vec![records.into(), 3]));
        let start = bytes.len() - 16 * records as usize;
        let turns = bytes[start..].chunks(16);
        let expected: Vec<u8> = turns.flat_map(|turn| turn[8..].iter().rev().copied()).collect();
        assert!(bytes_of(&fields[2]).unwrap() == expected);
    }
}

#[test]
fn a_file_that_changes_meanwhile_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = write(&folder, "a.npy", &npy("<f8", "(1,)", &[0; 8]));
    let anatomy = take_apart(&path, None).unwrap();
    std::fs::write(&path, npy("<f8", "(2,)", &[0; 16])).unwrap();
    let error = anatomy.unchanged().unwrap_err().to_string();
    assert!(error.contains("changed while it was read"), "{error}");
}

#[test]
fn values_that_are_others_are_noticed() {
    let folder = tempfile::tempdir().unwrap();
    let path = write(&folder, "a.npy", &npy("<f8", "(1,)", &[0; 8]));
    let anatomy = take_apart(&path, None).unwrap();
    let ones = |_: usize, _: u64, buffer: &mut [u8]| {
        buffer.fill(1);
        Ok(())
    };
    assert!(anatomy.skeleton.rebuild(&ones, &mut Vec::new()).is_err());
}

/// Damages a file in a few places.
fn damage(bytes: &mut Vec<u8>, dice: &mut impl FnMut(usize) -> usize) {
    for _ in 0..1 + dice(4) {
        let at = dice(bytes.len() + 1);
        match dice(6) {
            0 => bytes.truncate(at),
            1 => bytes.insert(at, dice(256) as u8),
            2 => {
                let from = dice(bytes.len() + 1);
                let part = bytes[from..bytes.len().min(from + dice(64))].to_vec();
                let end = bytes.len().min(at + part.len());
                bytes.splice(at..end, part);
            }
            _ if at < bytes.len() => bytes[at] = [0, 1, 0x7f, 0x80, 0xff, dice(256) as u8][dice(6)],
            _ => {}
        }
    }
}

fn dice(seed: u64) -> impl FnMut(usize) -> usize {
    let mut random = seed.wrapping_mul(0x9E3779B97F4A7C15);
    move |sides| {
        random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (random >> 33) as usize % sides.max(1)
    }
}

/// A damaged file is taken apart like any other, and what opens for comparison can be read or not.
fn survives(path: &Path) {
    there_and_back(path, None);
    for field in open_file(path, None).into_iter().flatten() {
        let mut part = vec![0; field.bytes.size().min(1 << 20) as usize];
        let _ = field.bytes.read_at(0, &mut part);
    }
}

#[test]
fn damaged_files_come_back_as_they_are() {
    let folder = tempfile::tempdir().unwrap();
    let kept = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/anatomy");
    let mut seeds: Vec<Vec<u8>> =
        vec![npy(">f8", "(5, 6)", &[3; 240]), netcdf(5), safetensors(), vec![9; 1000]];
    let mut paths: Vec<_> = std::fs::read_dir(kept).unwrap().map(|e| e.unwrap().path()).collect();
    paths.sort();
    seeds.extend(paths.iter().map(|path| std::fs::read(path).unwrap()));
    let mut dice = dice(1);
    for seed in &seeds {
        for _ in 0..200usize.div_ceil(seeds.len()).max(20) {
            let mut bytes = seed.clone();
            damage(&mut bytes, &mut dice);
            survives(&write(&folder, "damaged", &bytes));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn random_files_come_back(bytes in proptest::collection::vec(any::<u8>(), 0..2000), magic in 0usize..7) {
        let folder = tempfile::tempdir().unwrap();
        let magic: &[u8] = [b"" as &[u8], b"\x93NUMPY\x01\0", b"PK\x03\x04", b"CDF\x01", b"CDF\x05",
            b"\x89HDF\r\n\x1a\n\0\0\0\0\0\x08\x08\0", b"\x89HDF\r\n\x1a\n\x02\x08\x08\0"][magic];
        survives(&write(&folder, "random", &[magic, &bytes[..]].concat()));
    }

    #[test]
    fn arrays_come_back(values in proptest::collection::vec(any::<u64>(), 0..500), swapped in any::<bool>(), tail in 0usize..20) {
        let folder = tempfile::tempdir().unwrap();
        let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        let shape = format!("({},)", values.len());
        let mut file = npy(if swapped { ">u8" } else { "<u8" }, &shape, &bytes);
        file.extend(vec![1; tail]);
        prop_assert_eq!(there_and_back(&write(&folder, "a.npy", &file), None).0, "npy");
    }
}

fn dtype(name: &str) -> DType {
    let name = match name {
        "i1" | "u1" | "f1" => format!("{}8", &name[..1]),
        "c8" => "c64".into(),
        "c16" => "c128".into(),
        "bytes" => "bytes".into(),
        _ => format!("{}{}", &name[..1], name[1..].parse::<u32>().unwrap() * 8),
    };
    *DType::ALL.iter().find(|d| d.name() == name).unwrap()
}

/// The files of real libraries: every array is found with its values, and the file comes back.
#[test]
#[ignore = "its files are made by `make test`"]
fn files_of_real_libraries() {
    let folder = std::env::var("TREERING_FILES").expect("`make test` makes the files");
    let folder = PathBuf::from(folder);
    let mut files: Vec<_> = std::fs::read_dir(&folder)
        .expect("the folder of TREERING_FILES is missing")
        .map(|e| e.unwrap().path())
        .filter(|path| path.extension().is_some_and(|e| e == "json"))
        .collect();
    files.sort();
    assert!(files.len() >= 30, "the files of TREERING_FILES are missing");
    let mut trouble = Vec::new();
    for listed in files {
        let path = listed.with_extension("");
        let text = std::fs::read_to_string(&listed).unwrap();
        let expected: serde_json::Value = serde_json::from_str(&text).unwrap();
        let (format, fields) = there_and_back(&path, None);
        let shown = path.file_name().unwrap().to_string_lossy().into_owned();
        if format != expected["format"].as_str().unwrap() {
            trouble.push(format!("{shown}: {format}: {:?}", open_file(&path, None).err()));
            continue;
        }
        let opened = open_file(&path, None).unwrap();
        for array in expected["arrays"].as_array().unwrap() {
            let name = array["name"].as_str().unwrap();
            let values = std::fs::read(folder.join(array["raw"].as_str().unwrap())).unwrap();
            let shape: Vec<u64> =
                array["shape"].as_array().unwrap().iter().map(|n| n.as_u64().unwrap()).collect();
            let dtype = dtype(array["dtype"].as_str().unwrap());
            // Elements that are no numbers are compared by digests of what they mean, records by their members; the pairs
            // `some-bits` hold that.
            if shown == "odd_bits_of_types.h5" && dtype == DType::Bytes {
                continue;
            }
            let Some(field) = opened.iter().find(|f| f.description.name == name) else {
                trouble.push(format!("{shown}: {name} is not found"));
                continue;
            };
            if field.description.dtype != dtype || field.description.shape.0 != shape {
                trouble.push(format!("{shown}: {name} is {:?}", field.description));
            } else {
                match bytes_of(field) {
                    Ok(bytes) if bytes == values => {}
                    Ok(_) => trouble.push(format!("{shown}: {name} has other values")),
                    Err(error) => trouble.push(format!("{shown}: {name}: {error}")),
                }
            }
            let stored = fields.iter().any(|f| f.description.name == name);
            let odd = ["odd", "lzf", "padded"].contains(&name) || shown.starts_with("odd_");
            if stored == odd {
                trouble.push(format!(
                    "{shown}: {name} is {}stored inflated",
                    if odd { "" } else { "not " }
                ));
            }
        }
    }
    assert!(trouble.is_empty(), "{}", trouble.join("\n"));
}

/// Damaged files of real libraries.
#[test]
#[ignore = "its files are made by `make test`"]
fn damaged_files_of_real_libraries() {
    let folder = std::env::var("TREERING_FILES").expect("`make test` makes the files");
    let mut files: Vec<_> = std::fs::read_dir(folder)
        .expect("the folder of TREERING_FILES is missing")
        .map(|e| e.unwrap().path())
        .filter(|path| PathBuf::from(format!("{}.json", path.display())).exists())
        .collect();
    files.sort();
    let scratch = tempfile::tempdir().unwrap();
    let mut dice = dice(2);
    for file in files.iter().filter(|f| f.metadata().unwrap().len() < 400_000) {
        let bytes = std::fs::read(file).unwrap();
        for _ in 0..10 {
            let mut bytes = bytes.clone();
            (0..10).for_each(|_| damage(&mut bytes, &mut dice));
            survives(&write(&scratch, "damaged", &bytes));
        }
    }
}

#[test]
fn layouts_tell_what_raw_files_hold() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("state.dat");
    let mut bytes = b"a header of 32 bytes, kept as is".to_vec();
    bytes.extend((0..600).flat_map(|i| (f64::from(i) * 0.5).to_be_bytes()));
    bytes.extend((0..50i32).flat_map(i32::to_le_bytes));
    bytes.extend(b"and an end");
    std::fs::write(&path, &bytes).unwrap();
    let text = "[[field]]\nname = \"density\"\ntype = \"f64\"\nshape = [20, 30]\noffset = 32\n\
                big_endian = true\n[[field]]\nname = \"cells\"\ntype = \"i32\"\nshape = [50]\n";
    let layout = RawLayout::parse(text).unwrap();
    let (format, fields) = there_and_back(&path, Some(&layout));
    assert_eq!((format, fields.len()), ("raw", 2));
    assert_eq!(fields[0].description.name, "density");
    assert_eq!(fields[0].description.shape, Shape(vec![20, 30]));
    let mut values = vec![0; 16];
    fields[0].bytes.read_at(8, &mut values).unwrap();
    assert_eq!(values, [0.5f64.to_le_bytes(), 1.0f64.to_le_bytes()].concat());
    assert_eq!(open_file(&path, Some(&layout)).unwrap()[1].description.dtype, DType::I32);
    let sentence = |text: &str| match RawLayout::parse(text) {
        Err(error) => error.to_string(),
        Ok(layout) => take_apart(&path, Some(&layout)).err().unwrap().to_string(),
    };
    let field = "[[field]]\nname = \"x\"\ntype = \"f32\"\n";
    let other = "[[field]]\nname = \"y\"\ntype = \"f32\"\n";
    for (text, told) in [
        ("", "no [[field]]"),
        ("[[field]]\nname = \"x\"\n", "type"),
        ("[[field]]\nname = \"x\"\ntype = \"f31\"\n", "unknown type"),
        (&format!("{field}colour = 3\n"), "colour"),
        (&format!("{field}shape = [-1]\n"), "-1"),
        (&format!("{field}shape = [1000000]\n"), "the file has"),
        (&format!("{field}offset = 99999999\n"), "the file has"),
        (&format!("{field}shape = [2]\n{other}offset = 4\nshape = [1]\n"), "has not ended"),
        (&format!("{field}shape = [2]\n{field}shape = [1]\n"), "two fields are named \"x\""),
        (&format!("{field}shape = [4294967296, 4294967296, 4294967296]\n"), ""),
    ] {
        let found = sentence(text);
        assert!(found.contains(told), "{text}: {found}");
    }
}
