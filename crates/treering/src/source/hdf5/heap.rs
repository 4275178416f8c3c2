//! The fractal heap, which keeps the links of large groups.
//!
//! Objects lie in direct blocks; the blocks stand in rows of a table that doubles: the first two rows
//! have blocks of the starting size, each further row blocks of twice the size before. Blocks beyond
//! the largest direct size are tables of the same kind.

use super::bytes::{Meta, MetaCursor};
use crate::error::{Error, Result};
use std::cell::RefCell;
use std::collections::HashMap;

/// The head of a heap.
pub(super) struct Heap<'a> {
    meta: &'a Meta<'a>,
    width: u64,
    start: u64,
    largest: u64,
    offset_bytes: usize,
    length_bytes: usize,
    root: u64,
    /// Rows of the root; 0 if it is a direct block itself.
    rows: u64,
    /// The children of the tables that were read.
    tables: RefCell<HashMap<u64, Vec<Option<u64>>>>,
}

fn wrong() -> Error {
    Error::damaged("corrupt HDF5 file: invalid heap")
}

impl<'a> Heap<'a> {
    pub(super) fn new(meta: &'a Meta<'a>, at: u64) -> Result<Self> {
        let (o, l) = (meta.offsets as u64, meta.lengths as u64);
        let head = meta.sealed(at, 22 + 12 * l + 3 * o, b"FRHP")?;
        let mut rest = meta.cursor(&head[5..]);
        rest.skip(2)?;
        let (filters, _) = (rest.u16()?, rest.u8()?);
        let most = u64::from(rest.u32()?);
        rest.skip(meta.lengths + meta.offsets + meta.lengths + meta.offsets + 8 * meta.lengths)?;
        let (width, start, largest) = (u64::from(rest.u16()?), rest.length()?, rest.length()?);
        let bits = usize::from(rest.u16()?);
        rest.skip(2)?;
        let (root, rows) = (rest.defined()?, u64::from(rest.u16()?));
        let sane = width.is_power_of_two() && start.is_power_of_two() && largest.is_power_of_two();
        if filters != 0 || !sane || start > largest || largest > 1 << 40 || bits > 64 || rows > 64 {
            return Err(wrong());
        }
        let length = |value: u64| value.checked_ilog2().unwrap_or(0) as usize / 8 + 1;
        let largest_bits = largest.ilog2() as usize;
        Ok(Heap {
            meta,
            width,
            start,
            largest,
            offset_bytes: bits.div_ceil(8),
            length_bytes: largest_bits.div_ceil(8).min(length(most)),
            root,
            rows,
            tables: RefCell::default(),
        })
    }

    /// The object with this identifier.
    pub(super) fn object(&self, id: &[u8]) -> Result<Vec<u8>> {
        let mut rest = self.meta.cursor(id);
        let head = rest.u8()?;
        match head >> 4 & 3 {
            0 => {
                let offset = rest.uint(self.offset_bytes)?;
                let len = rest.uint(self.length_bytes)?;
                let at = self.locate(self.root, self.rows, offset)?;
                self.meta.read(at, len)
            }
            2 => Ok(rest.take(usize::from(head & 15) + 1)?.to_vec()),
            _ => Err(Error::damaged("a heap of this HDF5 file has an object of an unknown kind")),
        }
    }

    fn row_size(&self, row: u64) -> Option<u64> {
        self.start.checked_mul(1u64.checked_shl(row.saturating_sub(1) as u32)?)
    }

    /// The address of a byte of the heap.
    fn locate(&self, mut block: u64, mut rows: u64, mut offset: u64) -> Result<u64> {
        // Each table is in a smaller one than before, so this ends.
        while rows > 0 {
            let (mut row, mut before) = (0, 0u64);
            let size = loop {
                let size = self.row_size(row).filter(|_| row < rows).ok_or_else(wrong)?;
                let all = size.checked_mul(self.width).ok_or_else(wrong)?;
                if offset - before < all {
                    break size;
                }
                before = before.checked_add(all).ok_or_else(wrong)?;
                row += 1;
            };
            offset -= before;
            let number = row * self.width + offset / size;
            offset %= size;
            block = self.child(block, rows, number)?;
            rows = match size <= self.largest {
                true => 0,
                false => {
                    let below =
                        (size / self.start / self.width).checked_ilog2().ok_or_else(wrong)?;
                    match u64::from(below) + 1 {
                        below if below < rows => below,
                        _ => return Err(wrong()),
                    }
                }
            };
        }
        block.checked_add(offset).ok_or_else(wrong)
    }

    fn child(&self, table: u64, rows: u64, number: u64) -> Result<u64> {
        let mut tables = self.tables.borrow_mut();
        if let std::collections::hash_map::Entry::Vacant(free) = tables.entry(table) {
            let head = 5 + self.meta.offsets + self.offset_bytes;
            let children = rows * self.width;
            let len = head as u64 + children * self.meta.offsets as u64;
            let bytes = self.meta.sealed(table, len, b"FHIB")?;
            let mut rest: MetaCursor = self.meta.cursor(&bytes[head..]);
            free.insert((0..children).map(|_| rest.address()).collect::<Result<_>>()?);
        }
        let child = tables.get(&table).and_then(|children| children.get(number as usize));
        child.copied().flatten().ok_or_else(wrong)
    }
}
