//! The types of numpy's arrays, in the form that its files have them, and what elements of them mean.
//!
//! The members of records become parts: numbers are compared as such, texts by their letters, however much room there is
//! for them. What has no name is padding.

use super::parts::{ElementPart, Meaning, PartKind, hexadecimal, quote, word};
use super::unusual::FloatLayout;
use crate::array::{DType, MAX_AXES};
use crate::error::{Error, Result};
use crate::merkle::digest;
use std::sync::Arc;

/// The type of the values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NpyType {
    /// Numbers, and whether the bytes of each are in the other order.
    Numbers(DType, bool),
    /// Texts, times or records: this number of bytes for each, which mean the same wherever they stand.
    Bytes(u64),
}

/// A type with the parts of its elements.
pub(super) struct ParsedType {
    pub(super) values: NpyType,
    pub(super) parts: Vec<ElementPart>,
    /// What it means beside what its parts show: names and order of members, their kinds and extents.
    pub(super) meaning: Vec<u8>,
}

impl ParsedType {
    fn size(&self) -> u64 {
        match self.values {
            NpyType::Numbers(dtype, _) => dtype.size(),
            NpyType::Bytes(size) => size,
        }
    }
}

pub(super) fn quoted(text: &str) -> Option<(&str, &str)> {
    let quote = text.chars().next().filter(|c| *c == '\'' || *c == '"')?;
    text[1..].split_once(quote)
}

pub(super) fn extents(text: &str) -> Option<Vec<u64>> {
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
/// More members than any record has.
const MOST_MEMBERS: usize = 1 << 12;

fn odd() -> Error {
    Error::damaged("the type of this .npy file is not understood")
}

/// A type, and the text behind it: a quoted one, or a list of the members of a record.
pub(super) fn parse(text: &str) -> Result<(ParsedType, &str)> {
    value_type(text, 0)
}

fn value_type(text: &str, depth: u32) -> Result<(ParsedType, &str)> {
    let Some(mut rest) = text.strip_prefix('[') else {
        let (name, rest) = quoted(text).ok_or_else(odd)?;
        return Ok((named_type(name)?, rest));
    };
    if depth > DEEPEST {
        return Err(odd());
    }
    let (mut size, mut parts, mut meaning) = (0u64, Vec::new(), vec![b'{']);
    loop {
        rest = rest.trim_start_matches([' ', ',']);
        if let Some(rest) = rest.strip_prefix(']') {
            meaning.push(b'}');
            return Ok((ParsedType { values: NpyType::Bytes(size), parts, meaning }, rest));
        }
        let (member, tail) = member(rest, depth)?;
        for part in member.of.parts.into_iter().filter(|_| !member.name.is_empty()) {
            let name = member.name.replace(char::is_control, "\u{fffd}");
            let offset = size.checked_add(part.offset).ok_or_else(odd)?;
            let axes = [&member.axes[..], &part.axes].concat();
            let suffix = format!(".{name}{}", part.suffix);
            parts.push(ElementPart { suffix, offset, axes, kind: part.kind });
        }
        if parts.len() > MOST_MEMBERS {
            return Err(odd());
        }
        if !member.name.is_empty() {
            word(member.name.as_bytes(), &mut meaning);
            meaning.push(b'[');
            member.axes.iter().for_each(|(extent, _)| meaning.extend(extent.to_le_bytes()));
            meaning.push(b']');
            meaning.extend(member.of.meaning);
        }
        size = size.checked_add(member.size).ok_or_else(odd)?;
        rest = tail;
    }
}

/// A member of a record.
struct RecordMember {
    /// Empty for padding.
    name: String,
    of: ParsedType,
    /// Extent and distance along each axis.
    axes: Vec<(u64, u64)>,
    size: u64,
}

/// A member of a record, and the text behind it: name, type and perhaps extents in parentheses.
fn member(text: &str, depth: u32) -> Result<(RecordMember, &str)> {
    let rest = text.strip_prefix('(').ok_or_else(odd)?.trim_start();
    // A name, or a title and a name.
    let (name, rest) = match rest.strip_prefix('(') {
        Some(pair) => {
            let (_, rest) = quoted(pair.trim_start()).ok_or_else(odd)?;
            let (name, rest) = quoted(rest.trim_start_matches([' ', ','])).ok_or_else(odd)?;
            (name, rest.trim_start().strip_prefix(')').ok_or_else(odd)?)
        }
        None => quoted(rest).ok_or_else(odd)?,
    };
    let (of, rest) = value_type(rest.trim_start_matches([' ', ',']), depth + 1)?;
    let rest = rest.trim_start_matches([' ', ',']);
    let (extents, rest) = match rest.strip_prefix('(') {
        Some(inside) => {
            let (inside, rest) = inside.split_once(')').ok_or_else(odd)?;
            (extents(inside).ok_or_else(odd)?, rest)
        }
        None => (Vec::new(), rest),
    };
    let mut size = of.size();
    let mut axes = Vec::with_capacity(extents.len());
    for extent in extents.into_iter().rev() {
        axes.push((extent, size));
        size = size.checked_mul(extent).ok_or_else(odd)?;
    }
    axes.reverse();
    let rest = rest.trim_start_matches([' ', ',']).strip_prefix(')').ok_or_else(odd)?;
    Ok((RecordMember { name: name.to_string(), of, axes, size }, rest))
}

fn named_type(text: &str) -> Result<ParsedType> {
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
        _ => return bytes_type(kind, order == '>').ok_or_else(|| not_understood(text)),
    };
    let swapped = order == '>';
    let kind = PartKind::numbers(dtype, swapped);
    Ok(ParsedType {
        values: NpyType::Numbers(dtype, swapped),
        parts: vec![ElementPart::whole(kind)],
        meaning: vec![b'n'],
    })
}

/// Texts, bytes, and times with their unit.
fn bytes_type(kind: &str, swapped: bool) -> Option<ParsedType> {
    let count = |text: &str| text.parse::<u64>().ok();
    let mut meaning = Vec::new();
    let (size, kind) = match kind.split_at_checked(1)? {
        ("S" | "a", size) => {
            word(b"text", &mut meaning);
            let size = count(size)?;
            (size, Some(PartKind::Other(size, Arc::new(NumpyText { wide: false, swapped }))))
        }
        ("U", size) => {
            word(b"text", &mut meaning);
            let size = count(size)?.checked_mul(4)?;
            (size, Some(PartKind::Other(size, Arc::new(NumpyText { wide: true, swapped }))))
        }
        ("V", size) => {
            let size = count(size)?;
            word(b"opaque", &mut meaning);
            meaning.extend(size.to_le_bytes());
            (size, Some(PartKind::Other(size, Arc::new(OpaqueBytes))))
        }
        ("f", size @ ("12" | "16")) => {
            word(b"number", &mut meaning);
            let size = count(size)?;
            (size, Some(PartKind::Quads(size, FloatLayout::x87(swapped))))
        }
        ("M" | "m", unit) if unit == "8" || unit.starts_with("8[") && unit.ends_with(']') => {
            word(kind.as_bytes(), &mut meaning);
            (8, Some(PartKind::numbers(DType::I64, swapped)))
        }
        _ => return None,
    };
    let parts = kind.into_iter().filter(|_| size > 0).map(ElementPart::whole).collect();
    Some(ParsedType { values: NpyType::Bytes(size), parts, meaning })
}

fn not_understood(text: &str) -> Error {
    let why = match text.trim_start_matches(['<', '>', '|', '=']).starts_with('O') {
        true => "its values are Python objects".to_string(),
        false => format!("its values have numpy's type {text:?}, which is not understood"),
    };
    Error::usage(why).hint(
        "convert it with numpy's astype; `compare --exclude` leaves it out; understood are integers, floating-point numbers, \
         complex ones of up to 16 bytes, texts, times and records",
    )
}

/// Texts of bytes or of letters, with zeros behind them.
struct NumpyText {
    /// Whether a letter has four bytes, and whether these are in the other order.
    wide: bool,
    swapped: bool,
}

impl NumpyText {
    /// The text in UTF-8; what is no letter becomes bytes that no letter has.
    fn content(&self, value: &[u8]) -> Vec<u8> {
        if !self.wide {
            let end = value.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
            return value[..end].to_vec();
        }
        let letters = value.as_chunks::<4>().0.iter().map(|raw| match self.swapped {
            true => u32::from_be_bytes(*raw),
            false => u32::from_le_bytes(*raw),
        });
        let letters: Vec<u32> = letters.collect();
        let end = letters.iter().rposition(|letter| *letter != 0).map_or(0, |last| last + 1);
        let mut out = Vec::with_capacity(end);
        for letter in &letters[..end] {
            match char::from_u32(*letter) {
                Some(letter) => out.extend(letter.encode_utf8(&mut [0; 4]).bytes()),
                None => {
                    out.push(0xff);
                    out.extend(letter.to_le_bytes());
                }
            }
        }
        out
    }
}

fn digests(values: &[u8], size: usize, content: impl Fn(&[u8]) -> Vec<u8>) -> Vec<u64> {
    let of_one = |value: &[u8]| {
        let mut meaning = Vec::new();
        word(&content(value), &mut meaning);
        digest(&meaning).0[0]
    };
    values.chunks_exact(size.max(1)).map(of_one).collect()
}

impl Meaning for NumpyText {
    fn kind(&self) -> &'static str {
        "text"
    }

    fn digests(&self, values: &[u8], size: usize) -> Result<Vec<u64>> {
        Ok(digests(values, size, |value| self.content(value)))
    }

    fn text(&self, value: &[u8]) -> Result<String> {
        let mut text = String::new();
        quote(&self.content(value), &mut text);
        Ok(text)
    }
}

/// Bytes of which nothing is known.
struct OpaqueBytes;

impl Meaning for OpaqueBytes {
    fn kind(&self) -> &'static str {
        "opaque"
    }

    fn digests(&self, values: &[u8], size: usize) -> Result<Vec<u64>> {
        Ok(digests(values, size, <[u8]>::to_vec))
    }

    fn text(&self, value: &[u8]) -> Result<String> {
        let mut text = String::new();
        hexadecimal(value, &mut text);
        Ok(text)
    }
}
