//! An array that was found in a file: what it is, and where its values lie.
//!
//! Every format ends here: comparison makes fields of what was found, and a file is taken apart by it.

use super::chunks::{self, Chunks};
use super::filter;
use super::npz::ZipMember;
use super::outside::Outside;
use super::parts::{ElementType, Interpretation};
use super::spread::{Runs, Spread};
use super::undecoded::{StoredBytes, UndecodedArray};
use super::{Extent, Field};
use crate::array::{DType, Description, Labels, MAX_NAME, Marks, Order, Shape};
use crate::error::{Error, ErrorKind, Result};
use crate::merkle::{Digest, digest};
use crate::store::{Blob, read_each};
use flate2::Crc;
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, OnceLock};

/// Bytes that an array may take of which its file has hardly any.
pub(super) const MOST_UNPAID: u64 = 1 << 24;

/// More values that stand for something else than any variable has.
pub(super) const MOST_MARKS: usize = 16;

/// Statements of attributes (of netCDF and others) about the values of an array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ValueAttribute {
    /// A value that stands for something else.
    Mark,
    /// A limit of valid values.
    Limit,
    /// The factor of packed numbers.
    Scale,
    /// A number that is added to packed ones.
    Offset,
    /// Integers of a signed type may be unsigned, or the other way round.
    Unsigned,
}

impl ValueAttribute {
    /// The meaning of a name, if it has one.
    pub(super) fn of(name: &str) -> Option<Self> {
        Some(match name {
            "_FillValue" | "missing_value" => ValueAttribute::Mark,
            "valid_min" | "valid_max" | "valid_range" => ValueAttribute::Limit,
            "scale_factor" => ValueAttribute::Scale,
            "add_offset" => ValueAttribute::Offset,
            "_Unsigned" => ValueAttribute::Unsigned,
            _ => return None,
        })
    }
}

/// Numbers that stand for values: number × scale + offset.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct PackedNumbers {
    pub(crate) dtype: DType,
    pub(crate) scale: f64,
    pub(crate) offset: f64,
    /// The type that they are numbers of; none if the attribute that says so is not understood.
    pub(crate) read_as: Option<DType>,
    /// Numbers that stand for no value, little-endian.
    pub(crate) marks: Vec<Vec<u8>>,
}

/// The meaning of the attribute `_Unsigned` of integers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SignWord {
    Unsigned,
    Signed,
    /// Something else.
    Unknown,
}

impl SignWord {
    /// The meaning of the attribute's text.
    pub(super) fn of(text: &[u8]) -> Self {
        match text.trim_ascii_end().to_ascii_lowercase().as_slice() {
            b"true" => SignWord::Unsigned,
            b"false" => SignWord::Signed,
            _ => SignWord::Unknown,
        }
    }

    /// The type that integers of a type are meant to be of.
    fn applied(self, dtype: DType) -> Option<DType> {
        const PAIRS: [(DType, DType); 4] = [
            (DType::I8, DType::U8),
            (DType::I16, DType::U16),
            (DType::I32, DType::U32),
            (DType::I64, DType::U64),
        ];
        let pair = PAIRS.into_iter().find(|pair| pair.0 == dtype || pair.1 == dtype);
        match (self, pair) {
            (SignWord::Unknown, Some(_)) => None,
            (SignWord::Unsigned, Some((_, unsigned))) => Some(unsigned),
            (SignWord::Signed, Some((signed, _))) => Some(signed),
            (_, None) => Some(dtype),
        }
    }
}

/// The content of a file.
pub(super) struct Contents {
    pub(super) found: Vec<FoundArray>,
    /// Arrays whose values are addresses of others in the file: they can be compared and are never taken apart.
    pub(super) referring: Vec<FoundArray>,
    /// Where what was read to find it lies, if arrays might be claimed to lie there, too.
    pub(super) heads: Vec<(u64, u64)>,
    /// Datasets that are no arrays, and why.
    pub(super) others: Vec<(String, &'static str)>,
    /// Arrays and groups that are not understood, beside those found arrays that cannot be read.
    pub(super) undecoded: Vec<UndecodedArray>,
}

impl Contents {
    /// The first sign that the file is damaged: its arrays can be compared, but the file is not taken apart.
    pub(super) fn damage(&self) -> Option<&Error> {
        let damaged = |error: &&Error| error.kind() == ErrorKind::Damaged;
        self.undecoded.iter().map(|one| &one.why).find(damaged)
    }

    /// All arrays, also those that are not taken apart.
    pub(super) fn arrays(&self) -> impl Iterator<Item = &FoundArray> {
        self.found.iter().chain(&self.referring)
    }
}

impl From<Vec<FoundArray>> for Contents {
    fn from(found: Vec<FoundArray>) -> Self {
        let (heads, others, undecoded) = Default::default();
        Contents { found, referring: Vec::new(), heads, others, undecoded }
    }
}

/// An array of a file.
pub(super) struct FoundArray {
    pub(super) description: Description,
    /// The size of the numbers whose bytes are in the other order, or 0.
    pub(super) swap: u8,
    pub(super) place: Placement,
    /// The part of the file that they lie in, and its CRC-32, if the file tells one.
    pub(super) checksum: Option<(Extent, u32)>,
    /// Whether they lie within a record of the file that may have a checksum of its own.
    pub(super) in_record: bool,
    /// Whether something else of the file lies at the same place.
    pub(super) shared: bool,
    /// Values that stand for something else, and limits, as in [`Field`].
    pub(super) marks: Marks,
    /// Whether it cannot be told which values do.
    pub(super) unmarked: bool,
    /// The parts of its elements, if these are more than one number.
    pub(super) element: Option<Arc<ElementType>>,
    /// Whether values are addresses of others.
    pub(super) refers: bool,
    /// Whether its true extent follows from other datasets, and is not known.
    pub(super) grows: bool,
    /// Where to look for values that lie in other files.
    pub(super) outside: Option<Arc<dyn Outside>>,
    /// Factor and offset of packed numbers, and whether they are said to have a sign.
    pub(super) scale: Option<f64>,
    pub(super) offset: Option<f64>,
    pub(super) sign: Option<SignWord>,
}

/// Where the values of an array lie.
pub(super) enum Placement {
    /// One after another.
    Plain { at: u64 },
    /// In runs.
    Runs(Runs),
    /// In chunks.
    Chunks(Arc<Chunks>),
    /// In a deflated member of an archive.
    Member(Arc<ZipMember>),
    /// Nowhere: this value was never written over.
    Filled(Vec<u8>),
    /// Where they cannot be read, why, and their stored bytes.
    Unreadable(Error, Option<Arc<StoredBytes>>),
}

impl FoundArray {
    /// Checks the description; a name that cannot be one is made one.
    pub(super) fn new(
        name: &str,
        dtype: DType,
        shape: Vec<u64>,
        swapped: bool,
        place: Placement,
    ) -> Result<Self> {
        let mut name: String = name
            .chars()
            .map(|c| if c.is_control() { char::REPLACEMENT_CHARACTER } else { c })
            .collect();
        // There is room for a mark that tells it from others.
        while name.len() > MAX_NAME - 24 {
            name.pop();
        }
        if name.is_empty() {
            name = "array".into();
        }
        let (shape, order, attributes) = (Shape(shape), Order::C, Labels::default());
        let description = Description { name, dtype, shape, order, part: None, attributes };
        description.check()?;
        let swap = filter::swap_size(dtype, swapped);
        Ok(FoundArray {
            description,
            swap,
            place,
            checksum: None,
            in_record: false,
            shared: false,
            marks: Marks::default(),
            unmarked: false,
            element: None,
            refers: false,
            grows: false,
            outside: None,
            scale: None,
            offset: None,
            sign: None,
        })
    }

    /// The same array with its first axis as the fastest, if there are several.
    #[must_use]
    pub(super) fn ordered(mut self, fortran: bool) -> Self {
        if fortran && self.description.shape.0.len() > 1 {
            self.description.order = Order::Fortran;
        }
        self
    }

    /// Notes a value that stands for something else, as it is in the file.
    pub(super) fn mark(&mut self, value: &[u8]) {
        if value.len() as u64 == self.description.dtype.size() {
            let mut value = value.to_vec();
            filter::swap(&mut value, self.swap);
            self.mark_as_stored(value);
        }
    }

    /// Notes a value that stands for something else: a number of any type, its bytes little-endian. Libraries compare
    /// values with it as a number of the array's type.
    pub(super) fn mark_number(&mut self, dtype: DType, value: &[u8]) {
        let own = self.description.dtype;
        match dtype == own {
            true => self.mark_as_stored(value.to_vec()),
            false => match (real(dtype, value), own) {
                (Some(mark), DType::F32) => self.mark_as_stored((mark as f32).to_le_bytes().into()),
                (Some(mark), DType::F64) => self.mark_as_stored(mark.to_le_bytes().into()),
                // Other types are not rounded; their marks show which packed numbers stand for no value.
                (_, own) => whole(dtype, value)
                    .and_then(|mark| stored(own, mark))
                    .into_iter()
                    .for_each(|mark| self.mark_as_stored(mark)),
            },
        }
        // A text, or parts of a number, may be a mark in the eyes of some library.
        self.unmarked |= dtype != own && real(dtype, value).is_none();
    }

    fn mark_as_stored(&mut self, value: Vec<u8>) {
        if self.marks.values.contains(&value) {
            return;
        }
        match self.marks.values.len() < MOST_MARKS {
            true => self.marks.values.push(value),
            false => self.unmarked = true,
        }
    }

    /// Notes a limit of valid values: a number of any type, its bytes little-endian. Libraries compare with it as it
    /// is, or as a number of the array's type.
    pub(super) fn limit(&mut self, dtype: DType, value: &[u8]) {
        let Some(limit) = real(dtype, value) else {
            self.unmarked = true;
            return;
        };
        match self.description.dtype {
            DType::F64 => self.marks.limits.push(limit),
            DType::F32 => self.marks.limits.extend([limit, f64::from(limit as f32)]),
            // Others are not rounded, or have no order.
            _ => {}
        }
        if self.marks.limits.len() > 2 * MOST_MARKS {
            self.marks.limits.truncate(2 * MOST_MARKS);
            self.unmarked = true;
        }
    }

    /// Notes how numbers are packed: a number of any type, its bytes little-endian.
    pub(super) fn packing(&mut self, attribute: ValueAttribute, dtype: DType, value: &[u8]) {
        match attribute {
            ValueAttribute::Scale => self.scale = real(dtype, value),
            ValueAttribute::Offset => self.offset = real(dtype, value),
            ValueAttribute::Unsigned | ValueAttribute::Mark | ValueAttribute::Limit => {}
        }
    }

    /// The way its numbers are packed, if they are.
    pub(super) fn packed(&self) -> Option<PackedNumbers> {
        let dtype = self.description.dtype;
        let read_as = self.sign.map_or(Some(dtype), |sign| sign.applied(dtype));
        let plain = self.scale.or(self.offset).is_none() && read_as == Some(dtype);
        (!plain).then(|| PackedNumbers {
            dtype,
            read_as,
            scale: self.scale.unwrap_or(1.0),
            offset: self.offset.unwrap_or(0.0),
            marks: self.marks.values.clone(),
        })
    }

    /// Where its values lie in the file, as far as that is known.
    pub(super) fn spans(&self) -> Vec<(u64, u64)> {
        match &self.place {
            Placement::Plain { at } => vec![(*at, self.bytes())],
            Placement::Runs(runs) => {
                vec![(runs.at, runs.stride.saturating_mul(runs.count - 1).saturating_add(runs.len))]
            }
            Placement::Chunks(chunks) => {
                chunks.stored.iter().map(|one| (one.at, one.len)).collect()
            }
            Placement::Member(member) => vec![(member.start, member.stored())],
            Placement::Filled(_) | Placement::Unreadable(..) => Vec::new(),
        }
    }

    /// The size of its values.
    pub(super) fn bytes(&self) -> u64 {
        self.description.bytes().unwrap_or(0)
    }

    /// The array as one that is not decoded.
    pub(super) fn undecoded(&self, why: Error, stored: Option<Arc<StoredBytes>>) -> UndecodedArray {
        UndecodedArray {
            name: self.description.name.clone(),
            description: (!self.grows).then(|| self.description.clone()),
            why,
            stored,
            is_group: false,
        }
    }

    /// The array as a field.
    pub(super) fn field(&self, whole: &Extent) -> Result<Field> {
        let size = self.bytes();
        let swapped = |inner: Arc<dyn Blob>| self.swapped(inner);
        let bytes: Arc<dyn Blob> = match &self.place {
            Placement::Plain { at } => {
                let plain = whole.part(*at, size)?;
                match self.checksum.clone() {
                    None => swapped(Arc::new(plain)),
                    Some((part, crc)) => {
                        swapped(Arc::new(Checked { plain, part, crc, sound: OnceLock::new() }))
                    }
                }
            }
            Placement::Runs(runs) => swapped(Arc::new(Spread::new(whole, vec![*runs]))),
            Placement::Chunks(chunks) => chunks.clone(),
            Placement::Member(member) => swapped(member.clone()),
            Placement::Filled(value) => {
                Arc::new(Filled { value: value.clone(), size, name: whole.store().to_string() })
            }
            Placement::Unreadable(why, _) => {
                return Err(why.clone().at(format!(
                    "{} in {}",
                    self.description.name,
                    whole.store()
                )));
            }
        };
        let marks = match &self.place {
            // Values that were never written have no bits to save.
            Placement::Filled(value) if value.len() as u64 == self.description.dtype.size() => {
                Marks { values: vec![value.clone()], limits: Vec::new() }
            }
            _ => self.marks.clone(),
        };
        Ok(Field { marks, ..self.field_of(bytes) })
    }

    /// The array as a field with these bytes, little-endian.
    pub(super) fn field_of(&self, bytes: Arc<dyn Blob>) -> Field {
        let chunk = match &self.place {
            Placement::Chunks(chunks) if chunks.in_order() => Some(chunks.recipe.chunk.clone()),
            _ => None,
        };
        Field {
            description: self.description.clone(),
            bytes,
            fixed: self.fixed(),
            marks: self.marks.clone(),
            rounded: None,
            chunk,
            place: Some(self.place_digest()),
            meaning: Interpretation::default(),
        }
    }

    /// The digest of where the values lie, and in which order their bytes are. A file that describes itself has them where
    /// it says; only of raw files the user tells.
    fn place_digest(&self) -> Digest {
        let at = match &self.place {
            Placement::Plain { at } => *at,
            _ => 0,
        };
        digest(&[&[self.swap][..], &at.to_le_bytes()].concat())
    }

    /// Bytes in the order of the file, made little-endian.
    pub(super) fn swapped(&self, inner: Arc<dyn Blob>) -> Arc<dyn Blob> {
        match self.swap {
            0 => inner,
            component => Arc::new(Swapped { inner, component }),
        }
    }

    /// Why its values cannot take other bits in the file: something else in it depends on them.
    fn fixed(&self) -> Option<&'static str> {
        match &self.place {
            Placement::Member(_) => Some("they are deflated"),
            _ if self.checksum.is_some() => Some("the archive has a checksum of them"),
            _ if self.in_record => Some("they lie in a header that may have a checksum of them"),
            Placement::Chunks(chunks) if chunks.is_filtered() => {
                Some("they are compressed or filtered")
            }
            Placement::Unreadable(..) => Some("they cannot be read"),
            _ if self.unmarked => Some("their attributes cannot be read"),
            _ if self.shared => Some("something else of the file lies at the same place"),
            Placement::Filled(_)
            | Placement::Plain { .. }
            | Placement::Runs(_)
            | Placement::Chunks(_) => None,
        }
    }
}

/// A whole number of any type.
fn whole(dtype: DType, value: &[u8]) -> Option<i128> {
    let mut word = [0; 8];
    word.get_mut(..value.len())?.copy_from_slice(value);
    match dtype {
        DType::I64 => Some(i128::from(i64::from_le_bytes(word))),
        DType::U64 => Some(i128::from(u64::from_le_bytes(word))),
        _ => real(dtype, value).filter(|n| n.fract() == 0.0 && n.abs() < 2e19).map(|n| n as i128),
    }
}

/// A whole number as one of an integer type, little-endian, if it is one.
fn stored(dtype: DType, number: i128) -> Option<Vec<u8>> {
    let size = dtype.size() as u32;
    let range = match dtype {
        DType::I8 | DType::I16 | DType::I32 | DType::I64 => {
            -(1i128 << (8 * size - 1))..1i128 << (8 * size - 1)
        }
        DType::U8 | DType::U16 | DType::U32 | DType::U64 => 0..1i128 << (8 * size),
        _ => return None,
    };
    range.contains(&number).then(|| number.to_le_bytes()[..size as usize].to_vec())
}

/// A real number of any type.
fn real(dtype: DType, value: &[u8]) -> Option<f64> {
    let mut word = [0; 8];
    word.get_mut(..value.len())?.copy_from_slice(value);
    let bits = u64::from_le_bytes(word);
    Some(match dtype {
        DType::F32 => f64::from(f32::from_bits(bits as u32)),
        DType::F64 => f64::from_bits(bits),
        DType::I8 => f64::from(bits as i8),
        DType::I16 => f64::from(bits as i16),
        DType::I32 => f64::from(bits as i32),
        DType::I64 => bits as i64 as f64,
        DType::U8 | DType::U16 | DType::U32 | DType::U64 => bits as f64,
        _ => return None,
    })
}

/// Values in a part of a file with a checksum, which is checked before the first is returned.
struct Checked {
    plain: Extent,
    part: Extent,
    crc: u32,
    sound: OnceLock<Result<()>>,
}

impl Checked {
    fn check(&self) -> Result<()> {
        let mut crc = Crc::new();
        let mut bytes = vec![0; self.part.size().min(1 << 20) as usize];
        let mut at = 0;
        while at < self.part.size() {
            let len = (self.part.size() - at).min(bytes.len() as u64) as usize;
            self.part.read_at(at, &mut bytes[..len])?;
            crc.update(&bytes[..len]);
            at += len as u64;
        }
        match crc.sum() == self.crc {
            true => Ok(()),
            false => Err(Error::damaged("the checksum of a member of this archive does not match")
                .at(self.part.store())),
        }
    }
}

impl Blob for Checked {
    fn store(&self) -> &str {
        self.plain.store()
    }

    fn size(&self) -> u64 {
        self.plain.size()
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        self.sound.get_or_init(|| self.check()).clone()?;
        self.plain.read_at(offset, buffer)
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

/// Two arrays of one name would be one: the later gets a mark.
pub(super) fn name_apart(all: &mut Contents) {
    let mut seen = HashSet::new();
    let mut marks: HashMap<String, u64> = HashMap::new();
    let found = all.found.iter_mut().chain(&mut all.referring);
    let found = found.map(|found| &mut found.description.name);
    for name in found.chain(all.undecoded.iter_mut().map(|one| &mut one.name)) {
        if seen.insert(name.clone()) {
            continue;
        }
        let mark = marks.entry(name.clone()).or_insert(1);
        let apart = loop {
            *mark += 1;
            let apart = format!("{name} ({mark})");
            if seen.insert(apart.clone()) {
                break apart;
            }
        };
        *name = apart;
    }
}

/// Bytes of which each number is in the other order.
struct Swapped {
    inner: Arc<dyn Blob>,
    component: u8,
}

impl Blob for Swapped {
    fn store(&self) -> &str {
        self.inner.store()
    }

    fn size(&self) -> u64 {
        self.inner.size()
    }

    /// Reads are of whole numbers.
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        self.inner.read_at(offset, buffer)?;
        filter::swap(buffer, self.component);
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

/// One value again and again.
struct Filled {
    value: Vec<u8>,
    size: u64,
    name: String,
}

impl Blob for Filled {
    fn store(&self) -> &str {
        &self.name
    }

    fn size(&self) -> u64 {
        self.size
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        chunks::repeat(&self.value, offset, buffer);
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
