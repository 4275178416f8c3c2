//! The skeleton of a foreign file: how its bytes are made of the values of fields and of others.
//!
//! Pieces stand in the order of the file and fill it without a gap. A piece is literal bytes, values
//! of a field, a chunk of a field with the filters it went through, or a deflated stream of values.
//! A parsed skeleton is consistent: the pieces make up the size, they use up the literals, and no piece
//! refers to a recipe that is not there.

use super::bytes::{Reader, Writer};
use crate::array::MAX_AXES;
use crate::error::{Error, Result};
use crate::merkle::Digest;

const MAGIC: &[u8; 8] = b"TREESKEL";
/// No chunk is larger before its filters.
pub const MAX_CHUNK: u64 = 1 << 28;
const MAX_ELEMENT: u64 = 1 << 20;
/// Largest expansion of one byte by inflation: 258 bytes for every two bits.
pub(crate) const MOST_INFLATED: u64 = 1032;

/// The skeleton of a file: everything that is not values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Skeleton {
    /// The size of the file.
    pub size: u64,
    /// The digest of the file.
    pub digest: Digest,
    /// The recipes of the chunks of each chunked field.
    pub recipes: Vec<ChunkRecipe>,
    /// The pieces of the file, in order.
    pub pieces: Vec<Piece>,
    /// The bytes that pieces take from here, one after another.
    pub literals: Vec<u8>,
}

/// A part of a file; offsets and lengths of fields are in bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Piece {
    /// The next bytes of the literals.
    Literal {
        /// Number of bytes.
        len: u64,
    },
    /// Bytes of a field.
    Values(Values),
    /// Literals and values that come again and again, the values going on where they ended.
    Repeat {
        /// Number of repetitions.
        count: u64,
        /// The pieces of one repetition.
        cycle: Vec<Piece>,
    },
    /// A chunk of a field.
    Chunk(Chunk),
    /// Values between literals, deflated in one stream without a head.
    Stream {
        /// The values.
        values: Values,
        /// Number of literal bytes before them.
        head: u64,
        /// Number of literal bytes after them.
        tail: u64,
        /// The level of zlib.
        level: u8,
        /// The length of the stream.
        stored: u64,
    },
}

/// Bytes of a field as they stand in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Values {
    /// The field's number.
    pub field: u64,
    /// Offset of the first byte in the field.
    pub offset: u64,
    /// Number of bytes.
    pub len: u64,
    /// The size of the numbers whose bytes are turned round; 0 or 1 if none are.
    pub swap: u8,
}

/// A chunk of a field: a box of it, padded, and filtered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chunk {
    /// The field's number.
    pub field: u64,
    /// The recipe's number.
    pub recipe: u64,
    /// Number of the chunk, in row-major order.
    pub index: u64,
    /// The filters that were left out: bit i for filter i.
    pub left_out: u32,
    /// Its length in the file.
    pub stored: u64,
}

/// Recipe of the chunks of a field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChunkRecipe {
    /// The extent of the field.
    pub shape: Vec<u64>,
    /// The extent of a chunk.
    pub chunk: Vec<u64>,
    /// The size of the numbers whose bytes are turned round; 0 or 1 if none are.
    pub swap: u8,
    /// Padding where a chunk reaches beyond the field: one element, as in the file.
    pub padding: Vec<u8>,
    /// The filters, in the order of writing.
    pub filters: Vec<Filter>,
}

/// A filter of chunks, such as compression.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Filter {
    /// A zlib stream of this level.
    Deflate(u8),
    /// First bytes first, for elements of this size.
    Shuffle(u32),
    /// A checksum of four bytes behind them.
    Fletcher32,
}

impl Piece {
    /// Number of bytes of the file that the piece covers; `None` beyond 2^64.
    pub fn bytes(&self) -> Option<u64> {
        match self {
            Piece::Literal { len } => Some(*len),
            Piece::Values(values) => Some(values.len),
            Piece::Repeat { count, cycle } => {
                total(cycle.iter().map(Piece::bytes))?.checked_mul(*count)
            }
            Piece::Chunk(chunk) => Some(chunk.stored),
            Piece::Stream { stored, .. } => Some(*stored),
        }
    }

    /// Number of literal bytes that the piece uses.
    pub fn literals(&self) -> Option<u64> {
        match self {
            Piece::Literal { len } => Some(*len),
            Piece::Values(_) | Piece::Chunk(_) => Some(0),
            Piece::Repeat { count, cycle } => {
                total(cycle.iter().map(Piece::literals))?.checked_mul(*count)
            }
            Piece::Stream { head, tail, .. } => head.checked_add(*tail),
        }
    }
}

fn total(mut lengths: impl Iterator<Item = Option<u64>>) -> Option<u64> {
    lengths.try_fold(0u64, |sum, len| sum.checked_add(len?))
}

impl ChunkRecipe {
    /// The bytes of a chunk before its filters.
    pub fn chunk_bytes(&self) -> u64 {
        self.chunk.iter().product::<u64>() * self.padding.len() as u64
    }

    /// Refuses what no chunk can be made by.
    pub fn check(&self) -> Result<()> {
        let wrong = || Error::damaged("corrupt skeleton: invalid recipe of a chunk");
        let element = self.padding.len() as u64;
        let size = self.chunk.iter().try_fold(element, |n, &c| n.checked_mul(c));
        let all = self.shape.iter().try_fold(element, |n, &c| n.checked_mul(c.max(1)));
        let fits = !self.chunk.is_empty()
            && self.chunk.len() <= MAX_AXES
            && self.shape.len() == self.chunk.len()
            && (1..=MAX_ELEMENT).contains(&element)
            && size.is_some_and(|size| (1..=MAX_CHUNK).contains(&size))
            && all.is_some()
            && (self.swap < 2 || element.is_multiple_of(u64::from(self.swap)))
            && self.filters.len() <= 32;
        if fits { Ok(()) } else { Err(wrong()) }
    }
}

impl Skeleton {
    /// The bytes of a skeleton.
    pub fn write(&self) -> Vec<u8> {
        let mut out = Writer::file(MAGIC);
        out.int(self.size);
        out.digest(self.digest);
        out.int(self.recipes.len() as u64);
        self.recipes.iter().for_each(|recipe| write_recipe(&mut out, recipe));
        out.int(self.pieces.len() as u64);
        let mut next = 0;
        self.pieces.iter().for_each(|piece| write_piece(&mut out, piece, &mut next));
        out.bytes(&self.literals);
        out.sealed()
    }

    /// Reads what [`Skeleton::write`] wrote.
    pub fn parse(bytes: &[u8]) -> Result<Skeleton> {
        let mut input = Reader::file(bytes, MAGIC, "skeleton of a file")?;
        let (size, digest) = (input.int()?, input.digest()?);
        let count = input.count()?;
        let recipes: Vec<ChunkRecipe> =
            (0..count).map(|_| read_recipe(&mut input)).collect::<Result<_>>()?;
        let count = input.count()?;
        let mut next = 0;
        let pieces: Vec<Piece> = (0..count)
            .map(|_| read_piece(&mut input, &mut next, recipes.len() as u64, true))
            .collect::<Result<_>>()?;
        let literals = input.bytes()?.to_vec();
        input.end()?;
        let skeleton = Skeleton { size, digest, recipes, pieces, literals };
        // The stored bytes bound the bytes that are made before the filters.
        let paid = |piece: &Piece| match piece {
            Piece::Chunk(chunk) => skeleton.recipes.get(chunk.recipe as usize).is_some_and(|r| {
                r.chunk_bytes() <= MOST_INFLATED.saturating_mul(chunk.stored.saturating_add(64))
            }),
            _ => true,
        };
        let filled = total(skeleton.pieces.iter().map(Piece::bytes)) == Some(size);
        if filled && !skeleton.pieces.iter().all(paid) {
            return Err(Error::damaged("a chunk of a skeleton is larger than it can be"));
        }
        let used = total(skeleton.pieces.iter().map(Piece::literals));
        match filled && used == Some(skeleton.literals.len() as u64) {
            true => Ok(skeleton),
            false => Err(Error::damaged("the pieces of a skeleton do not make up the file")),
        }
    }
}

fn write_recipe(out: &mut Writer, recipe: &ChunkRecipe) {
    out.ints(&recipe.shape);
    out.ints(&recipe.chunk);
    out.byte(recipe.swap);
    out.bytes(&recipe.padding);
    out.int(recipe.filters.len() as u64);
    for filter in &recipe.filters {
        match *filter {
            Filter::Deflate(level) => out.raw(&[1, level]),
            Filter::Shuffle(element) => {
                out.byte(2);
                out.int(u64::from(element));
            }
            Filter::Fletcher32 => out.byte(3),
        }
    }
}

fn read_recipe(input: &mut Reader) -> Result<ChunkRecipe> {
    let (shape, chunk) = (input.ints()?, input.ints()?);
    let (swap, padding) = (input.byte()?, input.bytes()?.to_vec());
    let count = input.count()?;
    let filter = |input: &mut Reader| match input.byte()? {
        1 => match input.byte()? {
            level @ 0..=9 => Ok(Filter::Deflate(level)),
            _ => Err(Error::damaged("zlib has levels up to 9")),
        },
        2 => Ok(Filter::Shuffle(input.u32()?)),
        3 => Ok(Filter::Fletcher32),
        _ => Err(Error::damaged("a filter of a chunk is not known")),
    };
    let filters = (0..count).map(|_| filter(input)).collect::<Result<_>>()?;
    let recipe = ChunkRecipe { shape, chunk, swap, padding, filters };
    recipe.check()?;
    Ok(recipe)
}

fn write_values(out: &mut Writer, values: &Values) {
    out.int(values.field);
    out.int(values.offset);
    out.int(values.len);
    out.byte(values.swap);
}

fn read_values(input: &mut Reader) -> Result<Values> {
    let (field, offset, len) = (input.int()?, input.int()?, input.int()?);
    let swap = input.byte()?;
    let whole = swap < 2 || [offset, len].iter().all(|n| n % u64::from(swap) == 0);
    match whole && offset.checked_add(len).is_some() {
        true => Ok(Values { field, offset, len, swap }),
        false => Err(Error::damaged("a piece of a skeleton cuts through numbers")),
    }
}

/// `next` is the index that follows the chunk before: most chunks lie in order.
fn write_piece(out: &mut Writer, piece: &Piece, next: &mut u64) {
    match piece {
        Piece::Literal { len } => {
            out.byte(0);
            out.int(*len);
        }
        Piece::Values(values) => {
            out.byte(1);
            write_values(out, values);
        }
        Piece::Repeat { count, cycle } => {
            out.byte(2);
            out.int(*count);
            out.int(cycle.len() as u64);
            cycle.iter().for_each(|piece| write_piece(out, piece, next));
        }
        Piece::Chunk(chunk) => {
            out.byte(3);
            out.int(chunk.field);
            out.int(chunk.recipe);
            out.signed(chunk.index.wrapping_sub(*next) as i64);
            out.int(u64::from(chunk.left_out));
            out.int(chunk.stored);
            *next = chunk.index.wrapping_add(1);
        }
        Piece::Stream { values, head, tail, level, stored } => {
            out.byte(4);
            write_values(out, values);
            out.int(*head);
            out.int(*tail);
            out.byte(*level);
            out.int(*stored);
        }
    }
}

fn read_piece(input: &mut Reader, next: &mut u64, recipes: u64, outer: bool) -> Result<Piece> {
    let wrong = || Error::damaged("corrupt skeleton: invalid piece");
    Ok(match input.byte()? {
        0 => Piece::Literal { len: input.int()? },
        1 => Piece::Values(read_values(input)?),
        2 if outer => {
            let (count, len) = (input.int()?, input.count()?);
            let cycle: Vec<Piece> =
                (0..len).map(|_| read_piece(input, next, recipes, false)).collect::<Result<_>>()?;
            let reach = |piece: &Piece| match piece {
                Piece::Values(v) => {
                    v.len.checked_mul(count).and_then(|len| v.offset.checked_add(len)).is_some()
                }
                _ => true,
            };
            // Cycles that make no bytes would only take time.
            if !cycle.iter().all(reach) || cycle.iter().all(|piece| piece.bytes() == Some(0)) {
                return Err(wrong());
            }
            Piece::Repeat { count, cycle }
        }
        3 if outer => {
            let (field, recipe) = (input.int()?, input.int()?);
            let index = next.wrapping_add(input.signed()? as u64);
            let (left_out, stored) = (input.u32()?, input.int()?);
            *next = index.wrapping_add(1);
            if recipe >= recipes {
                return Err(wrong());
            }
            Piece::Chunk(Chunk { field, recipe, index, left_out, stored })
        }
        4 if outer => {
            let values = read_values(input)?;
            let (head, tail, level) = (input.int()?, input.int()?, input.byte()?);
            if level > 9 {
                return Err(wrong());
            }
            Piece::Stream { values, head, tail, level, stored: input.int()? }
        }
        _ => return Err(wrong()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::merkle::digest;
    use proptest::prelude::*;

    fn example() -> Skeleton {
        let values = |field, offset, len, swap| Values { field, offset, len, swap };
        let recipe = ChunkRecipe {
            shape: vec![10, 7],
            chunk: vec![4, 4],
            swap: 8,
            padding: vec![0; 8],
            filters: vec![Filter::Shuffle(8), Filter::Deflate(4), Filter::Fletcher32],
        };
        let chunk = |index| Chunk { field: 2, recipe: 0, index, left_out: 1, stored: 50 };
        Skeleton {
            size: 3 + 80 + 5 * 9 + 100 + 30,
            digest: digest(b"x"),
            recipes: vec![recipe],
            pieces: vec![
                Piece::Literal { len: 3 },
                Piece::Values(values(0, 8, 80, 8)),
                Piece::Repeat {
                    count: 5,
                    cycle: vec![Piece::Literal { len: 1 }, Piece::Values(values(1, 0, 8, 4))],
                },
                Piece::Chunk(chunk(3)),
                Piece::Chunk(chunk(0)),
                Piece::Stream {
                    values: values(3, 0, 40, 0),
                    head: 2,
                    tail: 1,
                    level: 6,
                    stored: 30,
                },
            ],
            literals: vec![7; 3 + 5 + 3],
        }
    }

    #[test]
    fn skeletons_return() {
        let skeleton = example();
        assert_eq!(Skeleton::parse(&skeleton.write()).unwrap(), skeleton);
        assert!(Skeleton::parse(&Skeleton { size: 7, ..skeleton.clone() }.write()).is_err());
        assert!(Skeleton::parse(&Skeleton { literals: vec![], ..skeleton }.write()).is_err());
    }

    proptest! {
        #[test]
        fn damage_is_refused_or_harmless(at in 10usize..150, value in any::<u8>()) {
            let mut bytes = example().write();
            bytes.truncate(bytes.len() - 16);
            let at = at % bytes.len();
            bytes[at] = value;
            let seal = digest(&bytes).to_bytes();
            bytes.extend(seal);
            if let Ok(skeleton) = Skeleton::parse(&bytes) {
                prop_assert_eq!(Skeleton::parse(&skeleton.write()).unwrap(), skeleton);
            }
        }
    }
}
