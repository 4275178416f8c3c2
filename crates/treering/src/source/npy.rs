//! The `.npy` format of NumPy, versions 1 to 3: a head in the form of a Python dictionary, then the
//! values.

use super::Extent;
use super::found::{FoundArray, Placement};
use crate::array::{DType, MAX_AXES};
use crate::error::{Error, Result};
use crate::store::Blob;

pub(super) const MAGIC: &[u8] = b"\x93NUMPY";
/// No head is longer: type and shape fit into much less.
const MAX_HEAD: usize = 1 << 16;

/// What a head says.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct NpyHead {
    pub(super) dtype: DType,
    /// Whether the bytes of a value are in the other order.
    pub(super) swapped: bool,
    pub(super) fortran: bool,
    pub(super) shape: Vec<u64>,
    /// Where the values begin.
    pub(super) len: u64,
}

/// The array in a file, or in a member of an archive that begins at `start`.
pub(super) fn find(part: &Extent, start: u64, name: &str) -> Result<FoundArray> {
    let mut bytes = vec![0; part.size().min(12 + MAX_HEAD as u64) as usize];
    part.read_at(0, &mut bytes)?;
    let head = parse(&bytes)?;
    let found = head.found(name, Placement::Plain { at: start + head.len })?;
    part.part(head.len, found.bytes())?;
    Ok(found)
}

/// Where a file ends, as its head states, or at least where its head does. `None` if the head is not
/// understood.
pub(super) fn end(whole: &Extent) -> Result<Option<u64>> {
    let mut bytes = vec![0; whole.size().min(12 + MAX_HEAD as u64) as usize];
    whole.read_at(0, &mut bytes)?;
    let (from, len) = match bytes[..] {
        [_, _, _, _, _, _, 1, _, a, b, ..] => (10, u64::from(u16::from_le_bytes([a, b]))),
        [_, _, _, _, _, _, 2 | 3, _, a, b, c, d, ..] => {
            (12, u64::from(u32::from_le_bytes([a, b, c, d])))
        }
        _ if bytes.len() < 12 && matches!(bytes.get(6), None | Some(1..=3)) => (12, 0),
        _ => return Ok(None),
    };
    if whole.size() < from + len {
        return Ok(Some(from + len).filter(|_| len <= MAX_HEAD as u64));
    }
    let found = parse(&bytes).and_then(|head| {
        Ok((head.len, head.found("", Placement::Plain { at: head.len })?.bytes()))
    });
    Ok(found.ok().and_then(|(head, values)| head.checked_add(values)))
}

impl NpyHead {
    /// The array whose values lie at a place.
    pub(super) fn found(&self, name: &str, place: Placement) -> Result<FoundArray> {
        let found = FoundArray::new(name, self.dtype, self.shape.clone(), self.swapped, place)?;
        Ok(found.ordered(self.fortran))
    }
}

/// Reads a head; `bytes` may go on behind it.
pub(super) fn parse(bytes: &[u8]) -> Result<NpyHead> {
    let cut = || Error::damaged("the file ends within its head");
    let version = *bytes.get(6).ok_or_else(cut)?;
    let (from, len) = match version {
        1 => {
            let len = bytes.get(8..10).ok_or_else(cut)?;
            (10, u16::from_le_bytes([len[0], len[1]]) as usize)
        }
        2 | 3 => {
            let len = bytes.get(8..12).ok_or_else(cut)?;
            (12, u32::from_le_bytes([len[0], len[1], len[2], len[3]]) as usize)
        }
        _ => return Err(Error::damaged(format!("version {version} of .npy is not known"))),
    };
    if len > MAX_HEAD {
        return Err(Error::damaged("the head of this .npy file is longer than any can be"));
    }
    let text = bytes.get(from..from + len).ok_or_else(cut)?;
    let text = std::str::from_utf8(text)
        .map_err(|_| Error::damaged("the head of this .npy file is no text"))?;
    let mut head = dictionary(text)?;
    head.len = (from + len) as u64;
    Ok(head)
}

fn dictionary(text: &str) -> Result<NpyHead> {
    let odd = || Error::damaged("the head of this .npy file is not understood");
    let mut rest = text.trim().strip_prefix('{').ok_or_else(odd)?;
    let (mut descr, mut fortran, mut shape) = (None, None, None);
    loop {
        rest = rest.trim_start();
        if let Some(end) = rest.strip_prefix('}') {
            if !end.trim().is_empty() {
                return Err(odd());
            }
            break;
        }
        let (key, tail) = quoted(rest).ok_or_else(odd)?;
        rest = tail.trim_start().strip_prefix(':').ok_or_else(odd)?.trim_start();
        match key {
            "descr" if rest.starts_with('[') => {
                return Err(Error::usage("its values are records, not numbers")
                    .hint("save each field as an array of its own"));
            }
            "descr" => {
                let (text, tail) = quoted(rest).ok_or_else(odd)?;
                descr = Some(number_type(text)?);
                rest = tail;
            }
            "fortran_order" => {
                let word = ["True", "False"].into_iter().find(|w| rest.starts_with(w));
                let word = word.ok_or_else(odd)?;
                fortran = Some(word == "True");
                rest = &rest[word.len()..];
            }
            "shape" => {
                let inside = rest.strip_prefix('(').ok_or_else(odd)?;
                let (inside, tail) = inside.split_once(')').ok_or_else(odd)?;
                shape = Some(extents(inside).ok_or_else(odd)?);
                rest = tail;
            }
            _ => return Err(odd()),
        }
        rest = rest.trim_start();
        rest = match rest.strip_prefix(',') {
            Some(tail) => tail,
            None if rest.starts_with('}') => rest,
            None => return Err(odd()),
        };
    }
    let ((dtype, swapped), fortran, shape) =
        (descr.ok_or_else(odd)?, fortran.ok_or_else(odd)?, shape.ok_or_else(odd)?);
    Ok(NpyHead { dtype, swapped, fortran, shape, len: 0 })
}

fn quoted(text: &str) -> Option<(&str, &str)> {
    let quote = text.chars().next().filter(|c| *c == '\'' || *c == '"')?;
    text[1..].split_once(quote)
}

fn extents(text: &str) -> Option<Vec<u64>> {
    let text = text.trim();
    if text.is_empty() {
        return Some(Vec::new());
    }
    let text = text.strip_suffix(',').unwrap_or(text);
    let extents: Option<Vec<u64>> =
        text.split(',').map(|part| part.trim().trim_end_matches('L').parse().ok()).collect();
    extents.filter(|extents| extents.len() <= MAX_AXES)
}

fn number_type(text: &str) -> Result<(DType, bool)> {
    let (order, kind) = match text.chars().next() {
        Some(c @ ('<' | '>' | '|' | '=')) => (c, &text[1..]),
        _ => ('=', text),
    };
    let dtype = match kind {
        "b1" => DType::Bool,
        "u1" => DType::U8,
        "i1" => DType::I8,
        "u2" => DType::U16,
        "i2" => DType::I16,
        "u4" => DType::U32,
        "i4" => DType::I32,
        "u8" => DType::U64,
        "i8" => DType::I64,
        "f2" => DType::F16,
        "f4" => DType::F32,
        "f8" => DType::F64,
        "c8" => DType::C64,
        "c16" => DType::C128,
        _ => {
            return Err(Error::usage(format!("its values have the type {text:?}"))
                .hint("integers, booleans, floating-point and complex numbers are understood"));
        }
    };
    Ok((dtype, order == '>'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(text: &str) -> Result<NpyHead> {
        let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
        bytes.extend((text.len() as u16).to_le_bytes());
        bytes.extend(text.as_bytes());
        parse(&bytes)
    }

    #[test]
    fn heads_are_understood_and_junk_is_refused() {
        let plain =
            head("{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }   \n").unwrap();
        assert_eq!((plain.dtype, plain.swapped, plain.fortran), (DType::F32, false, false));
        assert_eq!(plain.shape, [3, 4]);
        let other = head("{'shape': (7,), 'fortran_order': True, 'descr': '>c16'}").unwrap();
        assert_eq!((other.dtype, other.swapped, other.fortran), (DType::C128, true, true));
        assert!(head("{'descr':'|b1','fortran_order':False,'shape':()}").unwrap().shape.is_empty());
        for junk in [
            "",
            "{}",
            "{'descr': '<f4', 'fortran_order': False}",
            "{'descr': '<f4', 'fortran_order': Maybe, 'shape': ()}",
            "{'descr': '<f4', 'fortran_order': False, 'shape': (-1,)}",
            "{'descr': '<f4', 'fortran_order': False, 'shape': (1,2}",
            "{'descr': '<U4', 'fortran_order': False, 'shape': (1,)}",
            "{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,)}",
            "{'descr': '<f4', 'fortran_order': False, 'shape': ()} x",
        ] {
            assert!(head(junk).is_err(), "{junk}");
        }
    }
}
