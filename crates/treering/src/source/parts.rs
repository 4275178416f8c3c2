//! Arrays whose elements are more than one number: records, texts, references. Each part of an element that is a
//! number becomes an array of its own for comparison, so that bounds apply to it. A part of another kind becomes an
//! array of 64-bit digests of what the values mean; their texts are read when they are shown.
//!
//! Only comparison sees parts. Ingested files keep the elements as they are in the file.

use super::unusual::{FloatLayout, QuadNumbers};
use super::{Field, Reordered, filter};
use crate::array::{DType, Description, Labels, MAX_AXES, MAX_NAME, Marks, Order, Shape};
use crate::error::Result;
use crate::store::{Blob, read_each};
use std::collections::BTreeMap;
use std::sync::Arc;

/// More parts than the elements of any array have.
const MOST_PARTS: usize = 1 << 12;
/// The most values that a part has in one element.
const MOST_VALUES: u64 = 1 << 20;
/// Bytes of elements that are read at a time.
const AT_ONCE: u64 = 1 << 20;
/// The size of a digest, and of a number of 128 bits.
const DIGEST: u64 = 8;
const QUAD: u64 = 16;

/// The type of elements that are more than one number.
pub(crate) struct ElementType {
    /// The size of an element.
    pub(super) size: u64,
    pub(super) parts: Vec<ElementPart>,
}

/// A part of an element, itself an array if it has axes.
pub(super) struct ElementPart {
    /// The names that lead to it, each with a dot before it; empty for the element itself.
    pub(super) suffix: String,
    pub(super) offset: u64,
    /// Extent and distance in bytes along each axis.
    pub(super) axes: Vec<(u64, u64)>,
    pub(super) kind: PartKind,
}

/// The values of a part.
#[derive(Clone)]
pub(super) enum PartKind {
    /// Numbers, and the size of those whose bytes are in the other order, or 0.
    Numbers(DType, u8),
    /// Numbers that have names.
    Named(DType, u8, Arc<BTreeMap<Vec<u8>, String>>),
    /// Real numbers of another layout, of a size, which are given out with 128 bits.
    Quads(u64, FloatLayout),
    /// Other values, of a size.
    Other(u64, Arc<dyn Meaning>),
}

/// The meaning of values that are no numbers.
pub(super) trait Meaning: Send + Sync {
    /// The kind of the values in a word, such as "text".
    fn kind(&self) -> &'static str;

    /// Digests of values, one after another: two are the same if and only if the values mean the same, but for a
    /// collision.
    fn digests(&self, values: &[u8], size: usize) -> Result<Vec<u64>>;

    /// A value as a message shows it.
    fn text(&self, value: &[u8]) -> Result<String>;
}

impl PartKind {
    /// Numbers, of which the bytes may be in the other order.
    pub(super) fn numbers(dtype: DType, swapped: bool) -> Self {
        PartKind::Numbers(dtype, filter::swap_size(dtype, swapped))
    }
}

/// Adds bytes and their number, so that later bytes cannot be taken for some of them.
pub(super) fn word(bytes: &[u8], out: &mut Vec<u8>) {
    out.extend((bytes.len() as u64).to_le_bytes());
    out.extend(bytes);
}

/// The longest text of a value; longer ones are cut.
pub(super) const LONGEST_TEXT: usize = 120;

/// Adds text in quotes; a long one is cut.
pub(super) fn quote(text: &[u8], out: &mut String) {
    let text = String::from_utf8_lossy(text);
    let short: String = text.chars().take(LONGEST_TEXT).collect();
    let more = if short.len() < text.len() { "…" } else { "" };
    out.push_str(&format!("{short:?}{more}"));
}

/// Adds bytes as digits; long ones are cut.
pub(super) fn hexadecimal(bytes: &[u8], out: &mut String) {
    out.push_str("0x");
    let few = &bytes[..bytes.len().min(LONGEST_TEXT / 2)];
    few.iter().for_each(|byte| out.push_str(&format!("{byte:02x}")));
    out.push_str(if few.len() < bytes.len() { "…" } else { "" });
}

/// Meaning of the values of a field, beside their type.
#[derive(Clone, Default)]
pub struct Interpretation {
    /// The array that the field is a part of.
    pub(crate) array: Option<String>,
    /// Whether a person has named this very array, so that it can be compared with one of any name.
    pub(crate) chosen: bool,
    /// The kind of values of which the field has digests, or numbers of 128 bits.
    pub(crate) kind: Option<&'static str>,
    /// Whether values are real numbers of 128 bits, for which there is no [`DType`]: C128 has their size.
    pub(crate) quads: Option<QuadNumbers>,
    /// Texts of values.
    pub(crate) words: Option<Arc<dyn Words>>,
}

impl Interpretation {
    /// Whether values are digests of what is no number.
    pub(crate) fn is_of_digests(&self) -> bool {
        self.kind.is_some() && self.quads.is_none()
    }
}

/// Values as messages show them.
pub trait Words: Send + Sync {
    /// The value at a place in memory.
    fn word(&self, place: u64) -> Result<String>;
}

impl ElementType {
    /// Checks the parts; none if they are too many, or do not lie within an element.
    pub(super) fn new(size: u64, parts: Vec<ElementPart>) -> Option<Self> {
        let fits = |part: &ElementPart| {
            let end = part.axes.iter().try_fold(part.value_size(), |end, (extent, distance)| {
                extent.checked_sub(1)?.checked_mul(*distance)?.checked_add(end)
            });
            let end = end.and_then(|end| end.checked_add(part.offset));
            let values = part.values();
            end.is_some_and(|end| end <= size) && values.is_some_and(|v| v <= MOST_VALUES)
        };
        let few = !parts.is_empty() && parts.len() <= MOST_PARTS;
        (size > 0 && few && parts.iter().all(fits)).then_some(ElementType { size, parts })
    }

    /// The parts of an array as fields: `whole` describes it as bytes with the size of an element as the last axis, or
    /// as the numbers that its elements are. None if one of them cannot be described.
    pub(crate) fn fields(&self, whole: &Description, bytes: &Arc<dyn Blob>) -> Option<Vec<Field>> {
        let elements = bytes.size() / self.size;
        let outer = self.outer(whole)?;
        let mut bytes = bytes.clone();
        // An element has axes of its own, behind those of the array.
        if whole.order == Order::Fortran && outer.iter().filter(|extent| **extent > 1).count() > 1 {
            let shape = Shape(outer.to_vec());
            bytes = Arc::new(Reordered::new(bytes, &shape, self.size, Order::C));
        }
        let field = |part: &ElementPart| part.field(self.size, elements, outer, whole, &bytes);
        self.parts.iter().map(field).collect()
    }

    /// The extents of the array of elements.
    fn outer<'d>(&self, whole: &'d Description) -> Option<&'d [u64]> {
        let shape = &whole.shape.0[..];
        match whole.dtype {
            DType::Bytes if self.size > 1 => {
                // The bytes of an element lie together: along the fastest axis.
                let (fastest, outer) = match whole.order {
                    Order::C => shape.split_last()?,
                    Order::Fortran => shape.split_first()?,
                };
                (*fastest == self.size).then_some(outer)
            }
            _ => (whole.dtype.size() == self.size).then_some(shape),
        }
    }
}

impl ElementPart {
    /// All of an element.
    pub(super) fn whole(kind: PartKind) -> Self {
        ElementPart { suffix: String::new(), offset: 0, axes: Vec::new(), kind }
    }

    /// The size of a value in the file.
    fn value_size(&self) -> u64 {
        match &self.kind {
            PartKind::Numbers(dtype, _) | PartKind::Named(dtype, ..) => dtype.size(),
            PartKind::Quads(size, _) | PartKind::Other(size, _) => *size,
        }
    }

    /// Number of values of an element.
    fn values(&self) -> Option<u64> {
        self.axes.iter().try_fold(1u64, |n, (extent, _)| n.checked_mul(*extent)).filter(|n| *n > 0)
    }

    /// Where the values of an element lie in it: pieces without gaps.
    fn pieces(&self) -> Vec<(u64, u64)> {
        let size = self.value_size();
        let mut places = vec![self.offset];
        for (extent, distance) in &self.axes {
            let along = |at: &u64| (0..*extent).map(move |i| at + i * distance).collect::<Vec<_>>();
            places = places.iter().flat_map(along).collect();
        }
        let mut pieces: Vec<(u64, u64)> = Vec::new();
        for at in places {
            match pieces.last_mut() {
                Some((start, len)) if *start + *len == at => *len += size,
                _ => pieces.push((at, size)),
            }
        }
        pieces
    }

    fn field(
        &self,
        element: u64,
        elements: u64,
        outer: &[u64],
        whole: &Description,
        bytes: &Arc<dyn Blob>,
    ) -> Option<Field> {
        let shape: Vec<u64> =
            outer.iter().copied().chain(self.axes.iter().map(|(extent, _)| *extent)).collect();
        let name = format!("{}{}", whole.name, self.suffix);
        if shape.len() > MAX_AXES || name.len() > MAX_NAME - 24 {
            return None;
        }
        let dtype = match &self.kind {
            PartKind::Numbers(dtype, _) | PartKind::Named(dtype, ..) => *dtype,
            PartKind::Quads(..) => DType::C128,
            PartKind::Other(..) => DType::U64,
        };
        let (shape, order) = (Shape(shape), Order::C);
        let description =
            Description { name, dtype, shape, order, part: None, attributes: Labels::default() };
        description.check().ok()?;
        let values = Arc::new(PartBlob {
            inner: bytes.clone(),
            element,
            elements,
            pieces: self.pieces(),
            values: self.values()?,
            size: self.value_size(),
            kind: self.kind.clone(),
        });
        let (kind, words): (_, Option<Arc<dyn Words>>) = match &self.kind {
            PartKind::Numbers(..) => (None, None),
            PartKind::Named(..) => (None, Some(values.clone())),
            PartKind::Quads(..) => (Some("real number"), Some(values.clone())),
            PartKind::Other(_, meaning) => (Some(meaning.kind()), Some(values.clone())),
        };
        let quads = match &self.kind {
            PartKind::Quads(_, layout) => layout.quads(),
            _ => None,
        };
        let array = (!self.suffix.is_empty()).then(|| whole.name.clone());
        Some(Field {
            description,
            bytes: values,
            fixed: Some("they are parts of larger values"),
            marks: Marks::default(),
            rounded: None,
            chunk: None,
            place: None,
            meaning: Interpretation { array, kind, quads, words, chosen: false },
        })
    }
}

/// The values of one part of all elements of an array.
struct PartBlob {
    /// The elements.
    inner: Arc<dyn Blob>,
    /// The size of an element.
    element: u64,
    elements: u64,
    /// Pieces of an element, and the number of values in them.
    pieces: Vec<(u64, u64)>,
    values: u64,
    /// The size of a value in the file.
    size: u64,
    kind: PartKind,
}

impl PartBlob {
    /// The size of a value as it is given out.
    fn given(&self) -> u64 {
        match &self.kind {
            PartKind::Other(..) => DIGEST,
            PartKind::Quads(..) => QUAD,
            _ => self.size,
        }
    }

    /// The values of these elements, as they are in the file.
    fn gather(&self, first: u64, count: u64) -> Result<Vec<u8>> {
        let mut elements = crate::memory::zeroed(count * self.element)?;
        self.inner.read_at(first * self.element, &mut elements)?;
        let mut out = Vec::with_capacity((count * self.values * self.size) as usize);
        for element in elements.chunks_exact(self.element as usize) {
            for (at, len) in &self.pieces {
                out.extend_from_slice(&element[*at as usize..][..*len as usize]);
            }
        }
        Ok(out)
    }

    /// The same as they are given out.
    fn given_out(&self, mut values: Vec<u8>) -> Result<Vec<u8>> {
        match &self.kind {
            PartKind::Numbers(_, swap) | PartKind::Named(_, swap, _) => {
                filter::swap(&mut values, *swap);
                Ok(values)
            }
            PartKind::Quads(size, layout) => {
                let mut quads = Vec::with_capacity(values.len() / *size as usize * QUAD as usize);
                for value in values.chunks_exact(*size as usize) {
                    quads.extend(layout.quad(value)?.to_le_bytes());
                }
                Ok(quads)
            }
            PartKind::Other(size, meaning) => {
                let digests = meaning.digests(&values, *size as usize)?;
                Ok(digests.iter().flat_map(|digest| digest.to_le_bytes()).collect())
            }
        }
    }
}

impl Blob for PartBlob {
    fn store(&self) -> &str {
        self.inner.store()
    }

    fn size(&self) -> u64 {
        self.elements * self.values * self.given()
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        let of_element = self.values * self.given();
        let end = offset + buffer.len() as u64;
        let at_once = (AT_ONCE / self.element).max(1);
        let (mut first, last) = (offset / of_element, end.div_ceil(of_element));
        while first < last {
            let count = at_once.min(last - first);
            let values = self.given_out(self.gather(first, count)?)?;
            let start = first * of_element;
            let from = offset.max(start);
            let to = end.min(start + count * of_element);
            buffer[(from - offset) as usize..(to - offset) as usize]
                .copy_from_slice(&values[(from - start) as usize..(to - start) as usize]);
            first += count;
        }
        Ok(())
    }

    fn read_many(&self, ranges: &mut [(u64, &mut [u8])]) -> Result<()> {
        read_each(self, ranges)
    }

    fn in_order(&self) -> bool {
        self.inner.in_order()
    }

    fn file(&self) -> Option<(&std::fs::File, &std::path::Path, u64)> {
        None
    }
}

impl Words for PartBlob {
    fn word(&self, place: u64) -> Result<String> {
        let values = self.gather(place / self.values, 1)?;
        let at = (place % self.values * self.size) as usize;
        let value = &values[at..at + self.size as usize];
        match &self.kind {
            PartKind::Other(_, meaning) => meaning.text(value),
            PartKind::Quads(_, layout) => Ok(layout.text(value)),
            PartKind::Named(dtype, swap, names) => {
                let mut value = value.to_vec();
                filter::swap(&mut value, *swap);
                let number = super::inventory::shown(*dtype, &value);
                Ok(match names.get(&value) {
                    Some(name) => format!("{} ({number})", super::printable(name)),
                    None => number,
                })
            }
            PartKind::Numbers(dtype, swap) => {
                let mut value = value.to_vec();
                filter::swap(&mut value, *swap);
                Ok(super::inventory::shown(*dtype, &value))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::Extent;

    /// Bytes that are elements.
    struct Held(Vec<u8>);

    impl Blob for Held {
        fn store(&self) -> &str {
            "memory"
        }

        fn size(&self) -> u64 {
            self.0.len() as u64
        }

        fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
            buffer.copy_from_slice(&self.0[offset as usize..][..buffer.len()]);
            Ok(())
        }

        fn read_many(&self, ranges: &mut [(u64, &mut [u8])]) -> Result<()> {
            read_each(self, ranges)
        }

        fn file(&self) -> Option<(&std::fs::File, &std::path::Path, u64)> {
            None
        }

        fn in_order(&self) -> bool {
            false
        }
    }

    fn part(offset: u64, axes: &[(u64, u64)], dtype: DType, swap: u8) -> ElementPart {
        let kind = PartKind::Numbers(dtype, swap);
        ElementPart { suffix: ".x".into(), offset, axes: axes.into(), kind }
    }

    /// Every value of a part is found where it lies, whatever range is read.
    #[test]
    fn parts_are_read_in_any_ranges() {
        let (size, count) = (24u64, 7u64);
        let bytes: Vec<u8> = (0..size * count).map(|i| (i * 37 % 251) as u8).collect();
        let whole: Arc<dyn Blob> = Arc::new(Extent::of(Arc::new(Held(bytes.clone())), "held"));
        let description = Description {
            name: "a".into(),
            dtype: DType::Bytes,
            shape: Shape(vec![count, size]),
            order: Order::C,
            part: None,
            attributes: Labels::default(),
        };
        for (offset, axes, swap) in
            [(4, vec![], 0), (2, vec![], 2), (0, vec![(3, 8), (2, 4)], 0), (4, vec![(3, 2)], 2)]
        {
            let element = ElementType::new(size, vec![part(offset, &axes, DType::U16, swap)]);
            let fields = element.unwrap().fields(&description, &whole).unwrap();
            let extents: Vec<u64> = axes.iter().map(|axis| axis.0).collect();
            assert_eq!(fields[0].description.shape.0, [vec![count], extents].concat());
            let mut expected = Vec::new();
            for element in bytes.chunks_exact(size as usize) {
                let (outer, inner) = match axes[..] {
                    [] => ((1, 0), (1, 0)),
                    [one] => ((1, 0), one),
                    [one, two, ..] => (one, two),
                };
                for i in 0..outer.0 {
                    for j in 0..inner.0 {
                        let at = (offset + i * outer.1 + j * inner.1) as usize;
                        let mut value = element[at..at + 2].to_vec();
                        if swap > 0 {
                            value.reverse();
                        }
                        expected.extend(value);
                    }
                }
            }
            let values = &fields[0].bytes;
            assert_eq!(values.size(), expected.len() as u64);
            for from in 0..expected.len() {
                for to in from..=expected.len() {
                    let mut read = vec![0; to - from];
                    values.read_at(from as u64, &mut read).unwrap();
                    assert_eq!(read, expected[from..to]);
                }
            }
        }
        // A part lies inside of an element.
        for (offset, axes) in
            [(23, vec![]), (0, vec![(13, 2)]), (0, vec![(0, 2)]), (u64::MAX, vec![])]
        {
            assert!(ElementType::new(size, vec![part(offset, &axes, DType::U16, 0)]).is_none());
        }
        assert!(ElementType::new(size, Vec::new()).is_none());
    }
}
