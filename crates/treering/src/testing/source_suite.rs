//! The law of foreign files: taken apart, they come back byte for byte.

use crate::format::Skeleton;
use crate::source::{Anatomy, RawLayout, take_apart};
use std::collections::HashSet;
use std::path::Path;

/// Holds the reading of a file to its law, and panics where it does not: its arrays have names of their own
/// and the sizes that their descriptions ask for, any elements of an array can be read by themselves, and the
/// file is made again from copies of the values and the skeleton's bytes.
pub fn source_suite(path: &Path, raw: Option<&RawLayout>) -> Anatomy {
    let original = std::fs::read(path).expect("the file can be read");
    let anatomy = take_apart(path, raw).expect("every file can be taken apart");
    anatomy.unchanged().expect("the file stays as it is");
    let mut names = HashSet::new();
    let mut values: Vec<Vec<u8>> = Vec::new();
    for field in &anatomy.fields {
        let description = &field.description;
        let mut bytes = vec![0; field.bytes.size() as usize];
        field.bytes.read_at(0, &mut bytes).expect("values can be read");
        assert_eq!(description.check().expect("a description makes sense"), bytes.len() as u64);
        assert!(
            names.insert(description.name.clone()),
            "two arrays are called {:?}",
            description.name
        );
        // Reads of an array are of whole elements.
        let size = description.dtype.size() as usize;
        let elements = bytes.len() / size;
        let (from, to) = (elements / 3 * size, (elements - elements / 4) * size);
        if from < to {
            let mut part = vec![0; to - from];
            field.bytes.read_at(from as u64, &mut part).expect("a part can be read");
            assert!(part == bytes[from..to], "a part of {:?} is different", description.name);
        }
        values.push(bytes);
    }
    let skeleton = Skeleton::parse(&anatomy.skeleton.write()).expect("a skeleton returns");
    assert_eq!(skeleton, anatomy.skeleton);
    let read = |field: usize, offset: u64, buffer: &mut [u8]| {
        buffer.copy_from_slice(&values[field][offset as usize..][..buffer.len()]);
        Ok(())
    };
    let mut rebuilt = Vec::new();
    skeleton.rebuild(&read, &mut rebuilt).expect("a file can be made again");
    assert!(rebuilt == original, "{} comes back different", path.display());
    anatomy
}
