//! Where the chunks of a dataset lie: the six kinds of indices that libraries have written.
//!
//! A B-tree of version 1 is the old one. Newer files have the address itself (one chunk), chunks one
//! after another (implicit), a fixed array, an extensible array (one axis may grow), or a B-tree of
//! version 2 (several may). All but the B-trees number the chunks by the largest extent of the array.

use super::bytes::{Meta, MetaCursor};
use super::tree;
use crate::error::{Error, Result};
use crate::source::chunks::Stored;
use crate::store::Blob;

/// More chunks than any dataset of a single file has.
const MOST: u64 = 1 << 26;

/// Purpose of an index.
pub(super) struct Array<'a> {
    pub(super) shape: &'a [u64],
    /// The largest extents; all ones for an axis without a limit.
    pub(super) largest: &'a [u64],
    pub(super) chunk: &'a [u64],
    /// The size of a chunk before its filters.
    pub(super) bytes: u64,
}

/// The kind of index of the chunks, and its address.
pub(super) enum Index {
    First,
    Single { len: Option<u64>, left_out: u32 },
    Implicit,
    Fixed,
    Extensible,
    Second,
}

fn wrong() -> Error {
    Error::damaged("corrupt HDF5 file: invalid index of the chunks of an array")
}

impl Array<'_> {
    /// The number of a chunk, if it is in the array.
    fn index(&self, at: &[u64]) -> Option<u64> {
        let mut index = 0u64;
        for (axis, at) in at.iter().enumerate() {
            let count = self.shape[axis].div_ceil(self.chunk[axis]);
            index = index.checked_mul(count)?.checked_add(*at).filter(|_| *at < count)?;
        }
        Some(index)
    }

    /// The axis without a limit, if there is one.
    fn growing(&self) -> Option<usize> {
        self.largest.iter().position(|extent| *extent == u64::MAX)
    }

    /// The chunk with this number among all there can be; the axis that grows counts as the slowest.
    fn coordinates(&self, mut number: u64) -> Vec<u64> {
        let mut axes: Vec<usize> = (0..self.shape.len()).collect();
        if let Some(growing) = self.growing() {
            axes.remove(growing);
            axes.insert(0, growing);
        }
        let mut at = vec![0; axes.len()];
        for &axis in axes[1..].iter().rev() {
            let count = self.largest[axis].div_ceil(self.chunk[axis]).max(1);
            at[axis] = number % count;
            number /= count;
        }
        at[self.growing().unwrap_or(0)] = number;
        at
    }

    fn number(&self, number: u64) -> Option<u64> {
        self.index(&self.coordinates(number))
    }
}

/// The chunks of an array.
pub(super) fn chunks(meta: &Meta, array: &Array, index: &Index, at: u64) -> Result<Vec<Stored>> {
    let mut all = Vec::new();
    let mut add = |index: Option<u64>, at: Option<u64>, len: u64, left_out: u32| {
        if let (Some(index), Some(at)) = (index, at) {
            let at = meta.place(at)?;
            all.push(Stored { index, at, len, left_out });
        }
        if all.len() as u64 > MOST { Err(wrong()) } else { Ok(()) }
    };
    match index {
        Index::First => {
            let axes = array.shape.len();
            tree::first(meta, at, 1, 8 + 8 * (axes + 1), &mut |key, child| {
                let mut rest = meta.cursor(key);
                let (len, left_out) = (u64::from(rest.u32()?), rest.u32()?);
                let mut at = Vec::with_capacity(axes);
                for chunk in array.chunk {
                    let offset = rest.uint(8)?;
                    if offset % chunk != 0 {
                        return Err(wrong());
                    }
                    at.push(offset / chunk);
                }
                // The offset in the element: the library takes chunks with another one for chunks that are not there.
                if rest.uint(8)? != 0 {
                    return Err(wrong());
                }
                add(array.index(&at), Some(child), len, left_out)
            })?;
        }
        Index::Single { len, left_out } => {
            add(Some(0), Some(at), len.unwrap_or(array.bytes), *left_out)?;
        }
        Index::Implicit => {
            let counts = array.largest.iter().zip(array.chunk).map(|(l, c)| l.div_ceil(*c));
            let count = counts.fold(1u64, u64::saturating_mul);
            if count.saturating_mul(array.bytes) > meta.whole.size() {
                return Err(wrong());
            }
            for number in 0..count {
                add(array.number(number), Some(at + number * array.bytes), array.bytes, 0)?;
            }
        }
        Index::Fixed => fixed(meta, array, at, &mut add)?,
        Index::Extensible => extensible(meta, array, at, &mut add)?,
        Index::Second => {
            let axes = array.shape.len();
            tree::second(meta, at, &mut |kind, record| {
                let width = record.len().checked_sub(meta.offsets + 4 + 8 * axes);
                let mut rest = meta.cursor(record);
                let at = rest.address()?;
                let (len, left_out) = match (kind, width) {
                    (10, _) => (array.bytes, 0),
                    (11, Some(width)) => (rest.uint(width)?, rest.u32()?),
                    _ => return Err(wrong()),
                };
                let place: Vec<u64> = (0..axes).map(|_| rest.uint(8)).collect::<Result<_>>()?;
                add(array.index(&place), at, len, left_out)
            })?;
        }
    }
    Ok(all)
}

type Add<'a> = &'a mut dyn FnMut(Option<u64>, Option<u64>, u64, u32) -> Result<()>;

/// The entries of an array of chunks; those that were never set have no address.
struct Entries<'a> {
    meta: &'a Meta<'a>,
    array: &'a Array<'a>,
    filtered: bool,
    width: usize,
}

impl Entries<'_> {
    fn new<'a>(meta: &'a Meta, array: &'a Array, client: u8, width: u8) -> Result<Entries<'a>> {
        let width = usize::from(width);
        let fits = match client {
            0 => width == meta.offsets,
            1 => (meta.offsets + 5..=meta.offsets + 12).contains(&width),
            _ => false,
        };
        match fits {
            true => Ok(Entries { meta, array, filtered: client == 1, width }),
            false => Err(wrong()),
        }
    }

    /// Reads this many entries, the first of which is of chunk `number`.
    fn read(&self, input: &mut MetaCursor, number: u64, count: u64, add: Add) -> Result<()> {
        for number in number..number.checked_add(count).ok_or_else(wrong)? {
            let at = input.address()?;
            let (len, left_out) = match self.filtered {
                true => (input.uint(self.width - self.meta.offsets - 4)?, input.u32()?),
                false => (self.array.bytes, 0),
            };
            if at.is_some() {
                add(self.array.number(number), at, len, left_out)?;
            }
        }
        Ok(())
    }

    /// Pages of entries, each with a checksum; `set` has a bit for each that was written.
    fn pages(
        &self,
        at: u64,
        number: u64,
        count: u64,
        page: u64,
        set: &[u8],
        add: Add,
    ) -> Result<()> {
        for which in 0..count.div_ceil(page) {
            let bit = set.get((which / 8) as usize).ok_or_else(wrong)? & 0x80 >> (which % 8);
            let first = which * page;
            let inside = page.min(count - first);
            if bit != 0 {
                let len = inside.saturating_mul(self.width as u64);
                let before = which.saturating_mul(page * self.width as u64 + 4);
                let at = at.saturating_add(before);
                let bytes = self.meta.checked(at, len)?;
                let number = number.saturating_add(first);
                self.read(&mut self.meta.cursor(&bytes), number, inside, add)?;
            }
        }
        Ok(())
    }
}

fn fixed(meta: &Meta, array: &Array, at: u64, add: Add) -> Result<()> {
    let head = meta.sealed(at, (8 + meta.lengths + meta.offsets) as u64, b"FAHD")?;
    let mut rest = meta.cursor(&head[5..]);
    let (client, width, bits) = (rest.u8()?, rest.u8()?, rest.u8()?);
    let (count, block) = (rest.length()?, rest.address()?);
    let Some(block) = block else { return Ok(()) };
    let entries = Entries::new(meta, array, client, width)?;
    if bits > 32 || count > MOST {
        return Err(wrong());
    }
    let (page, head) = (1u64 << bits, 6 + meta.offsets as u64);
    if count <= page {
        let bytes = meta.sealed(block, head + count * u64::from(width), b"FADB")?;
        return entries.read(&mut meta.cursor(&bytes[head as usize..]), 0, count, add);
    }
    let set = count.div_ceil(page).div_ceil(8);
    let bytes = meta.sealed(block, head + set, b"FADB")?;
    entries.pages(block + head + set + 4, 0, count, page, &bytes[head as usize..], add)
}

fn extensible(meta: &Meta, array: &Array, at: u64, add: Add) -> Result<()> {
    let head = meta.sealed(at, (12 + 6 * meta.lengths + meta.offsets) as u64, b"EAHD")?;
    let mut rest = meta.cursor(&head[5..]);
    let (client, width, bits) = (rest.u8()?, rest.u8()?, rest.u8()?);
    let (direct, least) = (u64::from(rest.u8()?), u64::from(rest.u8()?));
    let (pointers, page_bits) = (u64::from(rest.u8()?), rest.u8()?);
    rest.skip(6 * meta.lengths)?;
    let Some(block) = rest.address()? else { return Ok(()) };
    let entries = Entries::new(meta, array, client, width)?;
    let sane =
        least.is_power_of_two() && pointers.is_power_of_two() && bits <= 64 && page_bits < 32;
    if !sane || u32::from(bits) < least.ilog2() {
        return Err(wrong());
    }
    let (wide, page) = (u64::from(width), 1u64 << page_bits);
    let supers = 1 + u64::from(bits) - u64::from(least.ilog2());
    let inside = (2 * u64::from(pointers.ilog2())).min(supers);
    let (o, offset_bytes) = (meta.offsets as u64, u64::from(bits).div_ceil(8));
    let addresses = 2 * (pointers - 1) + (supers - inside);
    let bytes = meta.sealed(block, 6 + o + direct * wide + addresses * o, b"EAIB")?;
    let mut rest = meta.cursor(&bytes[6 + meta.offsets..]);
    entries.read(&mut rest, 0, direct, add)?;
    let mut number = direct;
    for level in 0..supers {
        // Each super block has twice the blocks, or blocks twice the size, of the one before.
        let count = 1u64 << (level / 2);
        let Some(len) = least.checked_mul(1 << level.div_ceil(2).min(63)) else { break };
        let set = if len > page { len.div_ceil(page).div_ceil(8) } else { 0 };
        let mut sets = Vec::new();
        let mut blocks = Vec::new();
        if level < inside {
            for _ in 0..count {
                blocks.push(rest.address()?);
            }
        } else if let Some(at) = rest.address()? {
            let head = 6 + o + offset_bytes;
            let size = count.checked_mul(set + o).ok_or_else(wrong)?;
            let bytes = meta.sealed(at, head + size, b"EASB")?;
            let mut rest = meta.cursor(&bytes[head as usize..]);
            sets = rest.take((count * set) as usize)?.to_vec();
            for _ in 0..count {
                blocks.push(rest.address()?);
            }
        }
        for (which, block) in blocks.into_iter().enumerate() {
            let Some(block) = block else { continue };
            let number = number.saturating_add((which as u64).saturating_mul(len));
            let head = 6 + o + offset_bytes;
            if len > page {
                let set = sets.get(which * set as usize..).ok_or_else(wrong)?;
                entries.pages(block + head + 4, number, len, page, set, add)?;
            } else {
                let bytes = meta.sealed(block, head + len * wide, b"EADB")?;
                entries.read(&mut meta.cursor(&bytes[head as usize..]), number, len, add)?;
            }
        }
        number = match count.checked_mul(len).and_then(|n| number.checked_add(n)) {
            Some(next) => next,
            None => break,
        };
    }
    Ok(())
}
