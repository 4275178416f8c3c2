//! Foreign files, written here.

use std::io::Write;
use std::path::Path;
use treering::DType;

/// NumPy's name of a type, without the order of bytes.
pub fn code(dtype: DType) -> Option<&'static str> {
    Some(match dtype {
        DType::U8 => "u1",
        DType::I8 => "i1",
        DType::U16 => "u2",
        DType::I16 => "i2",
        DType::U32 => "u4",
        DType::I32 => "i4",
        DType::U64 => "u8",
        DType::I64 => "i8",
        DType::F16 => "f2",
        DType::F32 => "f4",
        DType::F64 => "f8",
        DType::C64 => "c8",
        DType::C128 => "c16",
        DType::Bool => "b1",
        _ => return None,
    })
}

/// An array as `.npy`; `big` turns the bytes of every number around.
pub fn npy(dtype: DType, shape: &[u64], fortran: bool, big: bool, data: &[u8]) -> Vec<u8> {
    let extents: String = shape.iter().map(|n| format!("{n}, ")).collect();
    let (order, fortran) = (if big { '>' } else { '<' }, if fortran { "True" } else { "False" });
    let mut text = format!(
        "{{'descr': '{order}{}', 'fortran_order': {fortran}, 'shape': ({extents}), }}",
        code(dtype).unwrap()
    );
    while (text.len() + 11) % 64 != 0 {
        text.push(' ');
    }
    text.push('\n');
    let mut out = b"\x93NUMPY\x01\x00".to_vec();
    out.extend((text.len() as u16).to_le_bytes());
    out.extend(text.as_bytes());
    let size = match dtype {
        DType::C64 | DType::C128 => dtype.size() / 2,
        _ => dtype.size(),
    } as usize;
    let mut data = data.to_vec();
    if big {
        data.chunks_exact_mut(size).for_each(<[u8]>::reverse);
    }
    out.extend(data);
    out
}

/// An archive of such arrays.
pub fn npz(path: &Path, deflated: bool, members: &[(&str, Vec<u8>)]) {
    let method = match deflated {
        true => zip::CompressionMethod::Deflated,
        false => zip::CompressionMethod::Stored,
    };
    let mut archive = zip::ZipWriter::new(std::fs::File::create(path).unwrap());
    let options = zip::write::SimpleFileOptions::default().compression_method(method);
    for (name, bytes) in members {
        archive.start_file(format!("{name}.npy"), options).unwrap();
        archive.write_all(bytes).unwrap();
    }
    archive.finish().unwrap();
}
