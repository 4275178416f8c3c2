//! The `.npy` format of NumPy, versions 1 to 3: a head in the form of a Python dictionary, then the
//! values. Records, texts and times are bytes to a store, and are compared by what they mean (`numpy_type`).

use super::Extent;
use super::found::{Contents, FoundArray, Placement};
use super::inventory::Inventory;
use super::numpy_type::{self, NpyType, ParsedType, extents, quoted};
use super::parts::ElementType;
use super::undecoded::{StoredBytes, UndecodedArray};
use crate::array::DType;
use crate::error::{Error, ErrorKind, Result};
use crate::store::Blob;
use std::sync::Arc;

pub(super) const MAGIC: &[u8] = b"\x93NUMPY";
/// No head is longer: type and shape fit into much less.
const MAX_HEAD: usize = 1 << 16;
/// A head lies within this number of bytes.
pub(super) const START: u64 = 12 + MAX_HEAD as u64;

/// The content of a head.
pub(super) struct NpyHead {
    pub(super) values: NpyType,
    /// The parts of an element that is more than one number.
    element: Option<Arc<ElementType>>,
    /// The type as the head has it, and what it means beside what its parts show.
    descr: String,
    meaning: Vec<u8>,
    pub(super) fortran: bool,
    pub(super) shape: Vec<u64>,
    /// Where the values begin.
    pub(super) len: u64,
}

/// The content of a file: an array, or something that is not decoded.
pub(super) fn contents(whole: &Extent, name: &str) -> Result<Contents> {
    match find(whole, 0, name) {
        Err(why) if why.kind() == ErrorKind::Usage => {
            let undecoded = vec![UndecodedArray {
                name: name.to_string(),
                description: None,
                why,
                stored: Some(StoredBytes::all(whole)),
                is_group: false,
            }];
            Ok(Contents { undecoded, ..Vec::new().into() })
        }
        found => Ok(vec![found?].into()),
    }
}

/// Adds the type of an array that is more than numbers, from the first bytes of its file.
pub(super) fn add_type(name: &str, start: &[u8], all: &mut Inventory) {
    if let Ok(head) = parse(start)
        && let Some((descr, meaning)) = head.type_beside()
    {
        all.add(format!("type of {name}"), meaning, descr.to_string());
    }
}

/// The array in a file, or in a member of an archive that begins at `start`.
pub(super) fn find(part: &Extent, start: u64, name: &str) -> Result<FoundArray> {
    let mut bytes = vec![0; part.size().min(START) as usize];
    part.read_at(0, &mut bytes)?;
    let head = parse(&bytes)?;
    let found = head.found(name, Placement::Plain { at: start + head.len })?;
    part.part(head.len, found.bytes())?;
    Ok(found)
}

/// Where a file ends, as its head states, or at least where its head does. `None` if the head is not
/// understood.
pub(super) fn end(whole: &Extent) -> Result<Option<u64>> {
    let mut bytes = vec![0; whole.size().min(START) as usize];
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
        let mut shape = self.shape.clone();
        let (dtype, swapped) = match self.values {
            NpyType::Numbers(dtype, swapped) => (dtype, swapped),
            NpyType::Bytes(1) => (DType::Bytes, false),
            // The bytes of one value lie together: along the fastest axis.
            NpyType::Bytes(size) => {
                shape.insert(if self.fortran { 0 } else { shape.len() }, size);
                (DType::Bytes, false)
            }
        };
        let found = FoundArray::new(name, dtype, shape, swapped, place)?;
        Ok(FoundArray { element: self.element.clone(), ..found.ordered(self.fortran) })
    }

    /// The type as text and what it means, if it is more than numbers.
    pub(super) fn type_beside(&self) -> Option<(&str, &[u8])> {
        matches!(self.values, NpyType::Bytes(_)).then_some((&self.descr, &self.meaning))
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
        .map_err(|_| Error::damaged("corrupt .npy file: its header is not text"))?;
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
            "descr" => {
                let (parsed, tail) = numpy_type::parse(rest)?;
                descr = Some((parsed, rest[..rest.len() - tail.len()].to_string()));
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
    let ((parsed, descr), fortran, shape) =
        (descr.ok_or_else(odd)?, fortran.ok_or_else(odd)?, shape.ok_or_else(odd)?);
    let ParsedType { values, parts, meaning } = parsed;
    let element = match values {
        NpyType::Bytes(size) => ElementType::new(size, parts).map(Arc::new),
        NpyType::Numbers(..) => None,
    };
    Ok(NpyHead { values, element, descr, meaning, fortran, shape, len: 0 })
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
        assert_eq!((plain.values, plain.fortran), (NpyType::Numbers(DType::F32, false), false));
        assert_eq!(plain.shape, [3, 4]);
        let other = head("{'shape': (7,), 'fortran_order': True, 'descr': '>c16'}").unwrap();
        assert_eq!((other.values, other.fortran), (NpyType::Numbers(DType::C128, true), true));
        for (descr, size) in [
            ("'<U4'", 16),
            ("'|S7'", 7),
            ("'<M8[ns]'", 8),
            ("'>m8'", 8),
            ("[('a', '<f4')]", 4),
            ("[('a', '<f4'), ('', '|V4'), (('title', 'b'), '<i8', (2, 3))]", 56),
            ("[('a', [('x', '|u1'), ('y', '<U2', (2,)), ]), ('n', '|b1', ())]", 18),
        ] {
            let text = format!("{{'descr': {descr}, 'fortran_order': False, 'shape': (2,)}}");
            let head = head(&text).unwrap();
            assert_eq!(head.values, NpyType::Bytes(size), "{descr}");
            assert_eq!(head.type_beside().unwrap().0, descr);
            let found = head.found("x", Placement::Plain { at: 0 }).unwrap();
            assert_eq!(found.bytes(), 2 * size);
        }
        assert!(head("{'descr':'|b1','fortran_order':False,'shape':()}").unwrap().shape.is_empty());
        for junk in [
            "",
            "{}",
            "{'descr': '<f4', 'fortran_order': False}",
            "{'descr': '<f4', 'fortran_order': Maybe, 'shape': ()}",
            "{'descr': '<f4', 'fortran_order': False, 'shape': (-1,)}",
            "{'descr': '<f4', 'fortran_order': False, 'shape': (1,2}",
            "{'descr': '|O', 'fortran_order': False, 'shape': (1,)}",
            "{'descr': '<f10', 'fortran_order': False, 'shape': (1,)}",
            "{'descr': '<c32', 'fortran_order': False, 'shape': (1,)}",
            "{'descr': '<U', 'fortran_order': False, 'shape': (1,)}",
            "{'descr': [('a', '|O'), ('b', '<f4')], 'fortran_order': False, 'shape': (1,)}",
            "{'descr': [('a', '<f4'), 'fortran_order': False, 'shape': (1,)}",
            "{'descr': [('a', '<f4', (9999999999, 9999999999))], 'fortran_order': False, 'shape': (1,)}",
            "{'descr': '<f4', 'fortran_order': False, 'shape': ()} x",
        ] {
            assert!(head(junk).is_err(), "{junk}");
        }
    }
}
