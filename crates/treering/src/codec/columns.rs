//! Tables of integers: each value is coded by what others of its row and the row above tell about it.
//!
//! In a table the columns have distributions of their own, and know of each other: where one counter is
//! 0, others are as well, and one is often about twice another. Neither an LZ, which needs whole repeats,
//! nor bins of numbers, which see one value at a time, can use that. Here the first digits of a value are
//! coded by an adaptive model for its column and for the first digits of another value, its *relative*:
//! some values back, so in the same row or in the one above. Which one tells most is found for every
//! column on a sample of rows, as the trees of Chow and Liu (1968) find it, and is written down. With
//! time, a second relative is found.
//!
//! Values up to 7 are one symbol. Above, a symbol tells how many bits a value has, one the four bits
//! behind the first (by the same bits of another relative), one the next four; of the others it is told
//! whether they are those of the value above, or else they are written as they are.
//!
//! Many values of tables are 0, and coding each of them would take most of the time. A column of zeros alone is *empty*
//! and has no symbols. The other columns form groups of eight; where all values of a group are 0 in the row above, one
//! symbol tells whether they still are.
//!
//! Output: the number of values (4 bytes); three bytes for each column, how far back its relatives are (0: no second one;
//! three zeros: it is empty); symbols; what is left over behind the last whole value.

use super::chain::CodecStep;
use super::nibbles::{Coder, SymbolModel, SymbolReader, SymbolWriter};
use super::relatives::{self, Relatives};
use super::repeats::THOROUGH;
use super::word::Word;
use crate::error::{Error, Result};

/// Values of a table, and how they lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TableShape {
    /// Bytes of a value: 1, 2, 4 or 8.
    pub size: u8,
    /// Whether they have a sign.
    pub signed: bool,
    /// Values of a row: 1 to 254.
    pub row: u8,
    /// Whether there is time to look for second relatives.
    pub thorough: bool,
}

impl TableShape {
    /// The longest row.
    pub(super) const LONGEST: u8 = 254;

    /// The fewest bytes of rows that are taken out as a whole: a number has to cost less.
    const LONG_ROW: u32 = 12;

    /// The step that takes rows out, if they are long enough.
    pub(super) fn rows(self) -> Option<CodecStep> {
        let effort = if self.thorough { self.size | THOROUGH } else { self.size };
        let long = u32::from(self.size) * u32::from(self.row) >= Self::LONG_ROW && self.row > 1;
        long.then_some(CodecStep::Rows(effort, self.row))
    }

    pub(super) fn is_valid(self) -> bool {
        matches!(self.size, 1 | 2 | 4 | 8) && (1..=Self::LONGEST).contains(&self.row)
    }
}

/// Values below this are symbols themselves.
const EXACT: usize = 8;
/// The symbol of values with this many bits that it takes two more to tell.
const LONG: usize = 15;
const LONG_BITS: u32 = 11;
/// Rows that are shorter are not compared with the row above as a whole, and have no groups.
const SHORT: usize = 8;
/// So many columns that are not empty have a symbol that tells whether all their values of a row are still 0.
const GROUP: usize = 8;

/// Number of classes of a relative.
pub(super) const CLASSES: usize = 64;
/// Number of kinds of first bits: none, or three bits.
pub(super) const LEADS: usize = 9;
/// Kinds of lengths that have models of their own for the bits behind the first.
const LENGTHS: usize = 16;

/// The symbol of a value.
#[inline(always)]
pub(super) fn token(value: u64) -> usize {
    let bits = u64::BITS - value.leading_zeros();
    match value < EXACT as u64 {
        true => value as usize,
        false => (bits as usize + 4).min(LONG),
    }
}

/// Class of a value by its first digits: itself, or its length and the two bits behind the first.
#[inline(always)]
pub(super) fn class(value: u64) -> usize {
    if value < EXACT as u64 {
        return value as usize;
    }
    let bits = u64::BITS - value.leading_zeros();
    let next = value >> (bits - 3) & 3;
    (EXACT + 4 * (bits as usize - 4) + next as usize).min(CLASSES - 1)
}

/// The three bits behind the first, for values that have them.
#[inline(always)]
pub(super) fn lead(value: u64) -> usize {
    if value < EXACT as u64 {
        return 0;
    }
    let bits = u64::BITS - value.leading_zeros();
    1 + (value >> (bits - 4) & 7) as usize
}

/// The models of one column.
#[derive(Clone)]
struct ColumnModels {
    /// For each class of the relative, and each symbol of the second one if there is one.
    tokens: Vec<SymbolModel>,
    lengths: [SymbolModel; 5],
    /// Empty until a value has bits behind the first: in many columns none does.
    leads: Vec<SymbolModel>,
    nexts: [SymbolModel; LENGTHS],
    above: SymbolModel,
}

impl ColumnModels {
    fn new(relatives: Relatives) -> ColumnModels {
        let seconds = if relatives.second > 0 { 16 } else { 1 };
        ColumnModels {
            tokens: vec![SymbolModel::EVEN; CLASSES * seconds],
            lengths: [SymbolModel::EVEN; 5],
            leads: Vec::new(),
            nexts: [SymbolModel::EVEN; LENGTHS],
            above: SymbolModel::EVEN,
        }
    }
}

/// The values that one is coded by.
#[derive(Clone, Copy, Default)]
struct KnownValues {
    first: u64,
    second: u64,
    lead: u64,
    above: u64,
}

impl ColumnModels {
    /// Codes a value.
    #[inline(always)]
    fn code<C: Coder>(
        &mut self,
        coder: &mut C,
        known: KnownValues,
        value: u64,
        second: bool,
    ) -> u64 {
        let context = match second {
            true => class(known.first) * 16 + token(known.second),
            false => class(known.first),
        };
        let symbol = coder.symbol(&mut self.tokens[context], token(value));
        if symbol < EXACT {
            return symbol as u64;
        }
        let given = u64::BITS - value.leading_zeros();
        let bits = match symbol {
            LONG => self.length(coder, given),
            _ => symbol as u32 - 4,
        };
        // Behind the first bit, which is 1.
        let mut left = bits - 1;
        let kind = (bits as usize - 4).min(LENGTHS - 1);
        let top = left.min(4);
        left -= top;
        let part = |left: u32, count: u32| (value >> left) as usize & ((1 << count) - 1);
        if self.leads.is_empty() {
            self.make_leads();
        }
        let lead = &mut self.leads[kind * LEADS + lead(known.lead)];
        let mut found = 1 << top | coder.symbol_below(lead, part(left, top), 1 << top) as u64;
        if left == 0 {
            return found;
        }
        let next = left.min(4);
        left -= next;
        let model = &mut self.nexts[kind];
        found = found << next | coder.symbol_below(model, part(left, next), 1 << next) as u64;
        if left == 0 {
            return found;
        }
        let mask = (1 << left) - 1;
        let same = usize::from((value ^ known.above) & mask == 0);
        let rest = match coder.symbol_below(&mut self.above, same, 2) {
            0 => coder.bits(value & mask, left),
            _ => known.above & mask,
        };
        found << left | rest
    }

    #[cold]
    fn make_leads(&mut self) {
        self.leads = vec![SymbolModel::EVEN; LEADS * LENGTHS];
    }

    /// Codes how many bits a value has.
    fn length<C: Coder>(&mut self, coder: &mut C, bits: u32) -> u32 {
        let more = bits.saturating_sub(LONG_BITS) as usize;
        let high = coder.symbol_below(&mut self.lengths[0], more >> 4, 4);
        let low = coder.symbol(&mut self.lengths[1 + high], more & 15);
        (LONG_BITS + (high * 16 + low) as u32).min(u64::BITS)
    }
}

/// A column that is not empty.
struct TableColumn {
    /// Its place in the row.
    at: usize,
    relatives: Relatives,
    models: ColumnModels,
}

/// Columns next to each other.
struct ColumnGroup {
    columns: Vec<TableColumn>,
    /// Whether all values are 0 as those above are, by the same of the group before.
    zeros: [SymbolModel; 2],
}

/// A table that is being coded, row by row.
struct Table<W> {
    /// A row of zeros and one more, then the values.
    values: Vec<W>,
    row: usize,
    groups: Vec<ColumnGroup>,
    /// Whether rows are those above, behind a row that is not or is.
    repeats: [SymbolModel; 2],
}

impl<W: Word> Table<W> {
    fn new(values: Vec<W>, row: usize, relatives: &[Relatives]) -> Self {
        let mut columns =
            relatives.iter().enumerate().filter(|(_, of)| !of.are_none()).map(|(at, relatives)| {
                let (relatives, models) = (*relatives, ColumnModels::new(*relatives));
                TableColumn { at, relatives, models }
            });
        let group = || {
            let columns: Vec<TableColumn> = columns.by_ref().take(GROUP).collect();
            let zeros = [SymbolModel::EVEN; 2];
            (!columns.is_empty()).then_some(ColumnGroup { columns, zeros })
        };
        let groups = std::iter::from_fn(group).collect();
        Table { values, row, groups, repeats: [SymbolModel::EVEN; 2] }
    }

    /// Codes all values; a reader puts them in their places.
    fn code<C: Coder>(&mut self, coder: &mut C) {
        let mut repeated = 0;
        for start in (self.row + 1..self.values.len()).step_by(self.row) {
            let len = self.row.min(self.values.len() - start);
            if self.row >= SHORT && len == self.row {
                let (above, behind) = self.values.split_at_mut(start);
                let (above, this) = (&above[start - len..], &mut behind[..len]);
                let same = above.iter().zip(this.iter()).all(|(a, b)| a.xor(*b).bits() == 0);
                repeated = coder.symbol_below(&mut self.repeats[repeated], same.into(), 2);
                if repeated == 1 {
                    this.copy_from_slice(above);
                    continue;
                }
            }
            self.code_row(coder, start, len);
        }
    }

    fn code_row<C: Coder>(&mut self, coder: &mut C, start: usize, len: usize) {
        let (values, row) = (&mut self.values[..], self.row);
        let mut before = false;
        for ColumnGroup { columns, zeros } in &mut self.groups {
            // The last row may be shorter.
            let there = columns.partition_point(|column| column.at < len);
            let columns = &mut columns[..there];
            if row >= SHORT && there > 0 {
                let empty = |values: &[W], start: usize| {
                    columns.iter().all(|column| values[start + column.at].wide() == 0)
                };
                let above = empty(values, start - row);
                let this = usize::from(above && empty(values, start));
                before = above && coder.symbol_below(&mut zeros[usize::from(before)], this, 2) == 1;
                if before {
                    continue;
                }
            }
            for TableColumn { at, relatives, models } in columns {
                code_value(values, start + *at, row, *relatives, models, coder);
            }
        }
    }
}

#[inline(always)]
fn code_value<W: Word, C: Coder>(
    values: &mut [W],
    at: usize,
    row: usize,
    relatives: Relatives,
    models: &mut ColumnModels,
    coder: &mut C,
) {
    let back = |by: u8| values[at - by as usize].wide();
    let second = relatives.second > 0;
    let known = KnownValues {
        first: back(relatives.first),
        second: if second { back(relatives.second) } else { 0 },
        lead: back(relatives.lead),
        above: values[at - row].wide(),
    };
    let value = models.code(coder, known, values[at].wide(), second);
    values[at] = W::of_wide(value);
}

pub(super) fn encode(raw: &[u8], shape: TableShape) -> Vec<u8> {
    match shape.size {
        1 => encode_as::<u8>(raw, shape),
        2 => encode_as::<u16>(raw, shape),
        4 => encode_as::<u32>(raw, shape),
        _ => encode_as::<u64>(raw, shape),
    }
}

pub(super) fn decode(encoded: &[u8], raw: &mut [u8], shape: TableShape) -> Result<()> {
    match shape.size {
        1 => decode_as::<u8>(encoded, raw, shape),
        2 => decode_as::<u16>(encoded, raw, shape),
        4 => decode_as::<u32>(encoded, raw, shape),
        _ => decode_as::<u64>(encoded, raw, shape),
    }
}

/// Room for zeros in front and this many values.
fn room<W: Word>(shape: TableShape, count: usize) -> (Vec<W>, usize) {
    let before = usize::from(shape.row) + 1;
    (vec![W::default(); before + count], before)
}

fn encode_as<W: Word>(raw: &[u8], shape: TableShape) -> Vec<u8> {
    let whole = raw.chunks_exact(W::BYTES);
    let left = whole.remainder();
    let (mut values, before) = room::<W>(shape, whole.len());
    for (value, bytes) in values[before..].iter_mut().zip(whole) {
        let word = W::read(bytes);
        *value = if shape.signed { word.fold() } else { word };
    }
    let row = usize::from(shape.row);
    let mut relatives = relatives::found(&values, row, shape.thorough);
    if row >= SHORT {
        for (column, relatives) in relatives.iter_mut().enumerate() {
            let mut column = values.iter().skip(before + column).step_by(row);
            if column.all(|value| value.wide() == 0) {
                *relatives = Relatives::NONE;
            }
        }
    }
    let mut head = ((values.len() - before) as u32).to_le_bytes().to_vec();
    head.extend(relatives.iter().flat_map(|of| [of.first, of.lead, of.second]));
    let mut writer = SymbolWriter::new(head);
    Table::new(values, shape.row.into(), &relatives).code(&mut writer);
    let mut out = writer.finish();
    out.extend_from_slice(left);
    out
}

fn decode_as<W: Word>(encoded: &[u8], raw: &mut [u8], shape: TableShape) -> Result<()> {
    let bad = || Error::damaged("a frame of a table does not decode");
    let row = usize::from(shape.row);
    let (whole, rest) = raw.split_at_mut(raw.len() / W::BYTES * W::BYTES);
    let (count, encoded) = encoded.split_first_chunk().ok_or_else(bad)?;
    if u32::from_le_bytes(*count) as usize != whole.len() / W::BYTES {
        return Err(bad());
    }
    let (head, symbols) = encoded.split_at_checked(3 * row).ok_or_else(bad)?;
    let end = symbols.len().checked_sub(rest.len()).ok_or_else(bad)?;
    let (symbols, left) = symbols.split_at(end);
    let of = |bytes: &[u8; 3]| Relatives { first: bytes[0], lead: bytes[1], second: bytes[2] };
    let relatives: Vec<Relatives> = head.as_chunks::<3>().0.iter().map(of).collect();
    if !relatives.iter().all(|of| of.are_near(row) || row >= SHORT && of.are_none()) {
        return Err(bad());
    }
    let (values, before) = room::<W>(shape, whole.len() / W::BYTES);
    let mut reader = SymbolReader::new(symbols);
    let mut table = Table::new(values, row, &relatives);
    table.code(&mut reader);
    if !reader.is_whole() {
        return Err(bad());
    }
    for (value, out) in table.values[before..].iter().zip(whole.chunks_exact_mut(W::BYTES)) {
        if shape.signed { value.unfold() } else { *value }.put(out);
    }
    rest.copy_from_slice(left);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Tables come back, whatever columns are empty and wherever groups are 0 for a while; damage is no other table.
        #[test]
        fn sparse_tables_return(
            (row, thorough) in (1u8..40, any::<bool>()),
            values in proptest::collection::vec(0u32..2000, 0..1500),
            (empty, sparse) in (any::<u64>(), any::<u64>()),
            (period, busy) in (1usize..30, 0usize..30),
            cut in any::<prop::sample::Index>(),
        ) {
            let value = |(at, value): (usize, &u32)| {
                let (line, column) = (at / row as usize, at % row as usize);
                let quiet = sparse >> column & 1 == 1 && line % period >= busy;
                if quiet || empty >> column & 1 == 1 { 0 } else { *value }
            };
            let table: Vec<u32> = values.iter().enumerate().map(value).collect();
            let raw: &[u8] = bytemuck::cast_slice(&table);
            let shape = TableShape { size: 4, signed: false, row, thorough };
            let encoded = encode(raw, shape);
            let mut back = vec![7; raw.len()];
            decode(&encoded, &mut back, shape).unwrap();
            prop_assert!(back == raw);
            let cut = cut.index(encoded.len());
            prop_assert!(decode(&encoded[..cut], &mut back, shape).is_err());
        }
    }
}
