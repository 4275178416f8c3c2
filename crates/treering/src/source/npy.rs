//! The `.npy` format of NumPy, versions 1 to 3: a head in the form of a Python dictionary, then the
//! values.

use super::Extent;
use super::found::{Contents, FoundArray, Placement};
use super::inventory::Inventory;
use super::undecoded::{StoredBytes, UndecodedArray};
use crate::array::{DType, MAX_AXES};
use crate::error::{Error, ErrorKind, Result};
use crate::store::Blob;

pub(super) const MAGIC: &[u8] = b"\x93NUMPY";
/// No head is longer: type and shape fit into much less.
const MAX_HEAD: usize = 1 << 16;
/// A head lies within this number of bytes.
pub(super) const START: u64 = 12 + MAX_HEAD as u64;

/// The content of a head.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct NpyHead {
    pub(super) values: NpyType,
    /// The type as the head has it.
    descr: String,
    pub(super) fortran: bool,
    pub(super) shape: Vec<u64>,
    /// Where the values begin.
    pub(super) len: u64,
}

/// The type of the values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NpyType {
    /// Numbers, and whether the bytes of each are in the other order.
    Numbers(DType, bool),
    /// Texts, times or records: this number of bytes for each, which mean the same wherever they stand.
    Bytes(u64),
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
        && let Some(descr) = head.type_beside()
    {
        all.add(format!("type of {name}"), descr.as_bytes(), descr.to_string());
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
        Ok(found.ordered(self.fortran))
    }

    /// The type as text, if it is more than numbers.
    pub(super) fn type_beside(&self) -> Option<&str> {
        matches!(self.values, NpyType::Bytes(_)).then_some(&self.descr)
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
                let (values, tail) = value_type(rest, 0)?;
                descr = Some((values, rest[..rest.len() - tail.len()].to_string()));
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
    let ((values, descr), fortran, shape) =
        (descr.ok_or_else(odd)?, fortran.ok_or_else(odd)?, shape.ok_or_else(odd)?);
    Ok(NpyHead { values, descr, fortran, shape, len: 0 })
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

/// The deepest record within records.
const DEEPEST: u32 = 16;

/// A type, and the text behind it: a quoted one, or a list of the members of a record.
fn value_type(text: &str, depth: u32) -> Result<(NpyType, &str)> {
    let odd = || Error::damaged("the type of this .npy file is not understood");
    let Some(mut rest) = text.strip_prefix('[') else {
        let (name, rest) = quoted(text).ok_or_else(odd)?;
        return Ok((named_type(name)?, rest));
    };
    if depth > DEEPEST {
        return Err(odd());
    }
    let mut size = 0u64;
    loop {
        rest = rest.trim_start_matches([' ', ',']);
        if let Some(rest) = rest.strip_prefix(']') {
            return Ok((NpyType::Bytes(size), rest));
        }
        let (member, tail) = member(rest, depth)?;
        size = size.checked_add(member).ok_or_else(odd)?;
        rest = tail;
    }
}

/// The size of a member of a record, and the text behind it: name, type and perhaps extents in parentheses.
fn member(text: &str, depth: u32) -> Result<(u64, &str)> {
    let odd = || Error::damaged("the type of this .npy file is not understood");
    let rest = text.strip_prefix('(').ok_or_else(odd)?.trim_start();
    // A name, or a title and a name.
    let rest = match rest.strip_prefix('(') {
        Some(pair) => {
            let (_, rest) = quoted(pair.trim_start()).ok_or_else(odd)?;
            let (_, rest) = quoted(rest.trim_start_matches([' ', ','])).ok_or_else(odd)?;
            rest.trim_start().strip_prefix(')').ok_or_else(odd)?
        }
        None => quoted(rest).ok_or_else(odd)?.1,
    };
    let (values, rest) = value_type(rest.trim_start_matches([' ', ',']), depth + 1)?;
    let size = match values {
        NpyType::Numbers(dtype, _) => dtype.size(),
        NpyType::Bytes(size) => size,
    };
    let rest = rest.trim_start_matches([' ', ',']);
    let (count, rest) = match rest.strip_prefix('(') {
        Some(inside) => {
            let (inside, rest) = inside.split_once(')').ok_or_else(odd)?;
            let extents = extents(inside).ok_or_else(odd)?;
            (extents.into_iter().try_fold(1, u64::checked_mul).ok_or_else(odd)?, rest)
        }
        None => (1, rest),
    };
    let rest = rest.trim_start_matches([' ', ',']).strip_prefix(')').ok_or_else(odd)?;
    Ok((size.checked_mul(count).ok_or_else(odd)?, rest))
}

fn named_type(text: &str) -> Result<NpyType> {
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
        _ => return bytes_type(kind).ok_or_else(|| not_understood(text)),
    };
    Ok(NpyType::Numbers(dtype, order == '>'))
}

/// Texts, bytes, and times with their unit.
fn bytes_type(kind: &str) -> Option<NpyType> {
    let count = |text: &str| text.parse::<u64>().ok();
    let size = match kind.split_at_checked(1)? {
        ("S" | "a" | "V", size) => count(size)?,
        ("U", size) => count(size)?.checked_mul(4)?,
        ("M" | "m", unit) if unit == "8" || unit.starts_with("8[") && unit.ends_with(']') => 8,
        _ => return None,
    };
    Some(NpyType::Bytes(size))
}

fn not_understood(text: &str) -> Error {
    let why = match text.trim_start_matches(['<', '>', '|', '=']).starts_with('O') {
        true => "its values are Python objects".to_string(),
        false => format!("its values have numpy's type {text:?}, which is not understood"),
    };
    Error::usage(why).hint(
        "convert it with numpy's astype; `compare --exclude` leaves it out; understood are integers, floating-point numbers \
         of up to 8 bytes, complex ones of these, texts, times and records",
    )
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
            assert_eq!(head.type_beside(), Some(descr));
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
            "{'descr': '<f16', 'fortran_order': False, 'shape': (1,)}",
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
