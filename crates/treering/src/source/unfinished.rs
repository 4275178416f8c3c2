//! Files whose own structure shows that they are not whole.
//!
//! Only proofs count, because a file that looks unfinished is waited for: an end that lies behind the
//! end of the file, an HDF5 file that ends elsewhere than its superblock states, an archive without its directory, HDF5's own mark of a writer. Classic netCDF gives
//! no proof: its libraries may leave the end of a finished file unwritten.

use super::{Extent, OpenFile, hdf5, npy, npz, safetensors};
use crate::error::Result;
use crate::store::Blob;
use std::path::Path;

/// Extensions of files that HDF5 writes.
const HDF5_NAMES: [&str; 5] = ["h5", "hdf5", "he5", "nc", "nc4"];

/// Why a file is not whole, as far as its structure shows; completes a sentence that begins with the
/// file. `None`: it is whole, or its format does not tell.
pub(crate) fn unfinished(path: &Path) -> Result<Option<String>> {
    let file = OpenFile::new(path)?;
    let whole = &file.whole;
    let mut start = [0u8; 9];
    whole.read_at(0, &mut start[..whole.size().min(9) as usize])?;
    if start.starts_with(npy::MAGIC) {
        return Ok(too_short(whole, npy::end(whole)?));
    }
    if start.starts_with(npz::MAGIC) {
        let why = "is an archive whose directory is not written yet";
        return Ok((!npz::has_directory(whole)?).then(|| why.to_string()));
    }
    if let Some(base) = hdf5::base(whole)? {
        return match hdf5::is_marked_open(whole, base)? {
            true => {
                Ok(Some("is marked by HDF5 as open for writing (h5clear removes the mark)".into()))
            }
            // Longer is unfinished, too: closing a file cuts it at its end and states the end last.
            false => Ok(hdf5::end(whole, base)?
                .filter(|end| *end != whole.size())
                .map(|end| format!("has {} bytes, but its superblock states {end}", whole.size()))),
        };
    }
    // HDF5 writes its first bytes last: until then the file begins with a hole.
    let extension = path.extension().and_then(|extension| extension.to_str());
    let named = extension.is_some_and(|own| HDF5_NAMES.iter().any(|e| own.eq_ignore_ascii_case(e)));
    if named && whole.size() > 0 && start[..8] == [0; 8] {
        return Ok(Some("begins with zeros where HDF5 writes its signature last".into()));
    }
    Ok(too_short(whole, safetensors::end(whole, &start)?))
}

fn too_short(whole: &Extent, end: Option<u64>) -> Option<String> {
    let (size, end) = (whole.size(), end?);
    (size < end).then(|| format!("has {size} bytes, but its head promises {end}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every file that is cut anywhere from `first` on is unfinished; the whole one is not.
    fn check(name: &str, bytes: &[u8], first: usize) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(name);
        for len in first..=bytes.len() {
            std::fs::write(&path, &bytes[..len]).unwrap();
            let found = unfinished(&path).unwrap();
            assert_eq!(found.is_some(), len < bytes.len(), "{name} of {len} bytes: {found:?}");
        }
    }

    #[test]
    fn arrays_are_as_long_as_their_heads_promise() {
        let text = "{'descr': '<f8', 'fortran_order': False, 'shape': (5,), }\n";
        let mut npy = b"\x93NUMPY\x01\x00".to_vec();
        npy.extend((text.len() as u16).to_le_bytes());
        npy.extend(text.bytes().chain([7; 40]));
        check("x.npy", &npy, 6);
        let head = r#"{"a":{"dtype":"F32","shape":[3],"data_offsets":[0,12]}}"#;
        let mut tensors = (head.len() as u64).to_le_bytes().to_vec();
        tensors.extend(head.bytes().chain([1; 12]));
        check("x.safetensors", &tensors, 8 + head.len());
        // An unknown format is not judged.
        check("x.npy", b"\x93NUMPY but damaged", 18);
        check("x.raw", &[0; 20], 20);
    }

    #[test]
    fn archives_have_a_directory() {
        let mut zip = zip::ZipWriter::new(std::io::Cursor::new(Vec::new()));
        let stored = zip::write::SimpleFileOptions::default()
            .compression_method(zip::CompressionMethod::Stored);
        zip.start_file("a.npy", stored).unwrap();
        std::io::Write::write_all(&mut zip, &[3; 100]).unwrap();
        let bytes = zip.finish().unwrap().into_inner();
        check("x.npz", &bytes, 4);
    }

    /// A superblock of HDF5, version 0 or 3, of a file with this end.
    fn superblock(version: u8, flags: u8, end: u64) -> Vec<u8> {
        let none = u64::MAX.to_le_bytes();
        let mut bytes = b"\x89HDF\r\n\x1a\n".to_vec();
        let addresses = match version {
            0 => {
                bytes.extend([0, 0, 0, 0, 0, 8, 8, 0, 4, 0, 16, 0, 0, 0, 0, 0]);
                [[0; 8], none, end.to_le_bytes(), none, [0; 8], [96, 0, 0, 0, 0, 0, 0, 0]].concat()
            }
            _ => {
                bytes.extend([version, 8, 8, flags]);
                [[0; 8], none, end.to_le_bytes(), [48, 0, 0, 0, 0, 0, 0, 0]].concat()
            }
        };
        bytes.extend(addresses);
        if version > 1 {
            bytes.extend(hdf5::checksum(&bytes).to_le_bytes());
        }
        bytes.resize(end as usize, 9);
        bytes
    }

    #[test]
    fn hdf5_tells_its_end_and_its_writers() {
        check("x.h5", &superblock(0, 0, 120), 96);
        check("x.h5", &superblock(3, 0, 120), 48);
        // Data that was written since the superblock was.
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.h5");
        std::fs::write(&path, [superblock(0, 0, 120), vec![1; 80]].concat()).unwrap();
        assert!(unfinished(&path).unwrap().is_some());
        let path = folder.path().join("x.nc");
        for (flags, open) in [(0, false), (1, true), (4, true), (5, true)] {
            std::fs::write(&path, superblock(3, flags, 120)).unwrap();
            assert_eq!(unfinished(&path).unwrap().is_some(), open, "{flags}");
        }
        std::fs::write(&path, [0; 4000]).unwrap();
        assert!(unfinished(&path).unwrap().is_some());
        std::fs::write(&path, "").unwrap();
        assert!(unfinished(&path).unwrap().is_none());
    }
}
