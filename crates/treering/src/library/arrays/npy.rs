//! The head of a `.npy` file, version 1.0: a Python dictionary, then the values.

use crate::array::{DType, Order, Shape};
use crate::error::{Error, ErrorKind, Result};

/// Values begin at a multiple of this.
const ALIGN: usize = 64;

/// The head of a file that holds an array.
pub(super) fn head(dtype: DType, shape: &Shape, order: Order) -> Result<Vec<u8>> {
    let extents: Vec<String> = shape.0.iter().map(|extent| format!("{extent},")).collect();
    // Python writes (), (3,) and (3, 4).
    let extents = match &extents[..] {
        [_, _, ..] => extents.join(" ").trim_end_matches(',').to_string(),
        _ => extents.concat(),
    };
    let fortran = if order == Order::Fortran { "True" } else { "False" };
    let descr = descr(dtype);
    let mut text =
        format!("{{'descr': '{descr}', 'fortran_order': {fortran}, 'shape': ({extents}), }}");
    let before = 10;
    let len = (before + text.len() + 1).next_multiple_of(ALIGN) - before;
    text.extend(std::iter::repeat_n(' ', len - 1 - text.len()));
    text.push('\n');
    let len = u16::try_from(len)
        .map_err(|_| Error::new(ErrorKind::Limit, "the shape is too long for a .npy file"))?;
    Ok([b"\x93NUMPY\x01\x00", &len.to_le_bytes()[..], text.as_bytes()].concat())
}

/// NumPy's word for a type. It has none for bf16 and bytes: these are written as integers of their size.
fn descr(dtype: DType) -> &'static str {
    match dtype {
        DType::Bool => "|b1",
        DType::U8 | DType::Bytes => "|u1",
        DType::I8 => "|i1",
        DType::U16 | DType::BF16 => "<u2",
        DType::I16 => "<i2",
        DType::U32 => "<u4",
        DType::I32 => "<i4",
        DType::U64 => "<u8",
        DType::I64 => "<i8",
        DType::F16 => "<f2",
        DType::F32 => "<f4",
        DType::F64 => "<f8",
        DType::C64 => "<c8",
        DType::C128 => "<c16",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_are_those_of_numpy() {
        let head = |shape: &[u64], order| {
            let bytes = head(DType::F64, &Shape(shape.to_vec()), order).unwrap();
            assert_eq!((bytes.len() % ALIGN, bytes.last()), (0, Some(&b'\n')));
            assert_eq!(usize::from(u16::from_le_bytes([bytes[8], bytes[9]])), bytes.len() - 10);
            String::from_utf8_lossy(&bytes[10..]).trim_end().to_string()
        };
        let plain = "{'descr': '<f8', 'fortran_order': False, 'shape': (3, 4), }";
        assert_eq!(head(&[3, 4], Order::C), plain);
        let plain = "{'descr': '<f8', 'fortran_order': True, 'shape': (0,), }";
        assert_eq!(head(&[0], Order::Fortran), plain);
        assert!(head(&[], Order::C).contains("'shape': (), "));
        assert!(head(&[u64::MAX; 32], Order::C).ends_with("18446744073709551615), }"));
    }
}
