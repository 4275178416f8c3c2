//! Entropy coding of symbols from 0 to 15 with models that follow what they see.
//!
//! A model holds where each symbol's share of 2^15 begins, and moves all sixteen borders towards each
//! symbol that comes: fast at first, slowly later. The borders are one or two registers wide, so a
//! symbol costs about as much as a bit does in a binary coder (after Giesen's adaptive models for rANS).
//!
//! The coder is rANS (Duda 2013) with two states that take turns. It writes backwards, so symbols are
//! collected in blocks; a reader meets them in order.

use std::hint::select_unpredictable;

/// All shares together.
const BITS: u32 = 15;
const ONE: u32 = 1 << BITS;
/// States are kept at this or above.
const LEAST: u32 = 1 << 16;
/// Symbols of a block: an even number, so that the states take turns across all of it.
const BLOCK: usize = 1 << 16;

/// Distance that borders move, as a shift, by the number of symbols seen.
const RATES: [u8; 128] = {
    let mut rates = [7; 128];
    let mut at = 0;
    while at < 100 {
        rates[at] = match at {
            0..2 => 2,
            2..6 => 3,
            6..16 => 4,
            16..40 => 5,
            _ => 6,
        };
        at += 1;
    }
    rates
};

/// Number of symbols.
const SYMBOLS: usize = 16;
/// How far apart the lowest and the highest place of a border are.
const SPAN: i16 = (ONE - SYMBOLS as u32) as i16;

/// The shares of sixteen symbols.
///
/// Border k goes up towards 2^15 − 16 + k when a symbol before k comes, else down towards k.
///
/// The law: borders stay in ascending order, the one of symbol k at k or above and 2^15 − 16 + k or
/// below, so no symbol ever loses its share. With c < c' two neighbours and t < t' where they move to,
/// (2^r − 1)c + t and (2^r − 1)c' + t' are at least 2^r apart, so they stay apart when both are divided
/// by 2^r and rounded towards t and t': both up, both down, or only the second one up.
#[derive(Clone, Copy)]
pub(super) struct SymbolModel {
    /// Where shares begin, and where the last one ends.
    borders: [i16; SYMBOLS + 1],
    seen: u8,
}

impl SymbolModel {
    /// All symbols are equally likely.
    pub(super) const EVEN: SymbolModel = {
        let mut borders = [0; SYMBOLS + 1];
        let mut at = 0;
        while at <= SYMBOLS {
            borders[at] = ((at as u32) << (BITS - 4)) as u16 as i16;
            at += 1;
        }
        SymbolModel { borders, seen: 0 }
    };

    /// The symbol in whose share a number below 2^15 lies, and the beginning and the length of its share; then the
    /// model has seen it.
    #[inline(always)]
    fn read(&mut self, number: u32) -> (usize, u32, u32) {
        let above = self.above(number);
        let symbol = last_below(above);
        let (start, len) = self.share(symbol);
        self.learn(above);
        (symbol, start, len)
    }

    /// The beginning and the length of a symbol's share; then the model has seen it.
    #[inline(always)]
    fn write(&mut self, symbol: usize) -> (u32, u32) {
        let (start, len) = self.share(symbol);
        self.learn(self.above(start));
        (start, len)
    }

    #[inline(always)]
    fn share(&self, symbol: usize) -> (u32, u32) {
        let symbol = symbol % SYMBOLS;
        let [start, end] = [symbol, symbol + 1].map(|at| u32::from(self.borders[at] as u16));
        (start, end - start)
    }

    /// For each border −1 if it is above a number, else 0. When the number's symbol comes, those above go up.
    #[inline(always)]
    fn above(&self, number: u32) -> [i16; SYMBOLS] {
        std::array::from_fn(|at| -i16::from(self.borders[at] > number as i16))
    }

    #[inline(always)]
    fn learn(&mut self, above: [i16; SYMBOLS]) {
        let rate = RATES[usize::from(self.seen & 127)];
        self.seen = (self.seen + 1).min(127);
        for (lowest, (above, border)) in (0..).zip(above.iter().zip(&mut self.borders)) {
            // The shift rounds down. To round up, a border that goes up has one less to go and then goes one further.
            let way = (above & (SPAN - 1)) + lowest - *border;
            *border += (way >> rate) - above;
        }
    }
}

/// Index of the last border that is not above a number, given which ones are: the symbol. Border 0 is never above it.
///
/// The compiler vectorizes everything else by itself, but not this search.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn last_below(above: [i16; SYMBOLS]) -> usize {
    use std::arch::x86_64::{__m128i, _mm_movemask_epi8, _mm_packs_epi16};
    let [low, high]: [__m128i; 2] = bytemuck::cast(above);
    // SAFETY: all processors of this architecture have SSE2.
    let bits = unsafe { _mm_movemask_epi8(_mm_packs_epi16(low, high)) };
    ((bits | 1 << SYMBOLS) >> 1).trailing_zeros() as usize
}

#[cfg(not(target_arch = "x86_64"))]
use last_below_by_count as last_below;

/// The same on other processors.
#[cfg(any(test, not(target_arch = "x86_64")))]
#[inline(always)]
fn last_below_by_count(above: [i16; SYMBOLS]) -> usize {
    (SYMBOLS as i16 - 1 + above.iter().sum::<i16>()) as usize
}

/// One side of a coder: the same walk over contexts serves both.
pub(super) trait Coder {
    /// Codes a symbol; a reader takes no notice of the one it is given.
    fn symbol(&mut self, model: &mut SymbolModel, symbol: usize) -> usize;

    /// Codes a symbol of fewer than sixteen; a reader that meets another one is not whole.
    fn symbol_below(&mut self, model: &mut SymbolModel, symbol: usize, count: usize) -> usize;

    /// Codes up to 15 bits, all equally likely.
    fn few_bits(&mut self, bits: u32, count: u32) -> u32;

    /// Codes the lowest bits of a number.
    #[inline(always)]
    fn bits(&mut self, number: u64, count: u32) -> u64 {
        let (mut left, mut found) = (count, 0);
        while left > 0 {
            let few = left.min(BITS);
            left -= few;
            let bits = (number >> left) as u32 & ((1 << few) - 1);
            found = found << few | u64::from(self.few_bits(bits, few));
        }
        found
    }
}

/// Writes symbols.
pub(super) struct SymbolWriter {
    /// Shares of the symbols of a block.
    block: Vec<(u16, u16)>,
    out: Vec<u8>,
}

impl SymbolWriter {
    /// Starts behind some bytes.
    pub(super) fn new(out: Vec<u8>) -> Self {
        SymbolWriter { block: Vec::with_capacity(BLOCK), out }
    }

    pub(super) fn finish(mut self) -> Vec<u8> {
        self.flush();
        self.out
    }

    #[inline(always)]
    fn push(&mut self, start: u32, len: u32) {
        self.block.push((start as u16, len as u16));
        if self.block.len() == BLOCK {
            self.flush();
        }
    }

    /// Codes a block from its end, and turns the words around.
    fn flush(&mut self) {
        if self.block.is_empty() {
            return;
        }
        // At most one for each symbol. No branch: whether there is one is as good as random.
        let (mut words, mut count) = (vec![0u16; self.block.len()], 0);
        let mut states = [LEAST; 2];
        for (at, (start, len)) in self.block.drain(..).enumerate().rev() {
            let (start, len) = (u32::from(start), u32::from(len));
            let state = &mut states[at & 1];
            let full = *state >= len << (32 - BITS);
            words[count] = *state as u16;
            count += usize::from(full);
            *state = select_unpredictable(full, *state >> 16, *state);
            *state = ((*state / len) << BITS) + *state % len + start;
        }
        self.out.extend(states.iter().flat_map(|state| state.to_le_bytes()));
        self.out.extend(words[..count].iter().rev().flat_map(|word| word.to_le_bytes()));
    }
}

impl Coder for SymbolWriter {
    #[inline(always)]
    fn symbol(&mut self, model: &mut SymbolModel, symbol: usize) -> usize {
        let (start, len) = model.write(symbol);
        self.push(start, len);
        symbol
    }

    #[inline(always)]
    fn symbol_below(&mut self, model: &mut SymbolModel, symbol: usize, count: usize) -> usize {
        debug_assert!(symbol < count);
        self.symbol(model, symbol)
    }

    #[inline(always)]
    fn few_bits(&mut self, bits: u32, count: u32) -> u32 {
        self.push(bits << (BITS - count), 1 << (BITS - count));
        bits
    }
}

/// Reads symbols. Behind the end of the bytes it reads zeros; [`SymbolReader::is_whole`] tells.
pub(super) struct SymbolReader<'b> {
    bytes: &'b [u8],
    /// The state of the next symbol, and that of the one behind it.
    states: [u32; 2],
    left: usize,
    sound: bool,
}

impl<'b> SymbolReader<'b> {
    pub(super) fn new(bytes: &'b [u8]) -> Self {
        SymbolReader { bytes, states: [LEAST; 2], left: 0, sound: true }
    }

    /// Whether all bytes were read, no more, and what was read is what a writer writes.
    pub(super) fn is_whole(&self) -> bool {
        self.sound && self.bytes.is_empty() && self.states == [LEAST; 2]
    }

    #[cold]
    fn next_block(&mut self) {
        self.sound &= self.states == [LEAST; 2];
        for state in &mut self.states {
            *state = match self.bytes.split_first_chunk::<4>() {
                Some((bytes, rest)) => {
                    self.bytes = rest;
                    u32::from_le_bytes(*bytes)
                }
                None => {
                    self.sound = false;
                    LEAST
                }
            };
        }
        self.left = BLOCK;
    }

    /// A number below 2^15 in whose share the next symbol is.
    #[inline(always)]
    fn number(&mut self) -> u32 {
        if self.left == 0 {
            self.next_block();
        }
        self.left -= 1;
        self.states[0] & (ONE - 1)
    }

    /// Goes behind a symbol.
    #[inline(always)]
    fn pass(&mut self, number: u32, start: u32, len: u32) {
        let state = len.wrapping_mul(self.states[0] >> BITS).wrapping_add(number - start);
        // No branch: whether a state is short is as good as random.
        let short = state < LEAST;
        let word = match self.bytes.split_first_chunk::<2>() {
            Some((word, rest)) => {
                self.bytes = select_unpredictable(short, rest, self.bytes);
                u16::from_le_bytes(*word)
            }
            None => {
                self.sound &= !short;
                0
            }
        };
        let state = select_unpredictable(short, state << 16 | u32::from(word), state);
        self.states = [self.states[1], state];
    }
}

impl Coder for SymbolReader<'_> {
    #[inline(always)]
    fn symbol(&mut self, model: &mut SymbolModel, _: usize) -> usize {
        let number = self.number();
        let (symbol, start, len) = model.read(number);
        self.pass(number, start, len);
        symbol
    }

    #[inline(always)]
    fn symbol_below(&mut self, model: &mut SymbolModel, symbol: usize, count: usize) -> usize {
        let symbol = self.symbol(model, symbol);
        self.sound &= symbol < count;
        symbol.min(count - 1)
    }

    #[inline(always)]
    fn few_bits(&mut self, _: u32, count: u32) -> u32 {
        let number = self.number();
        let bits = number >> (BITS - count);
        self.pass(number, bits << (BITS - count), 1 << (BITS - count));
        bits
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Whatever comes, every symbol keeps a share, shares lie one behind another, and borders move as the model says.
        #[test]
        fn no_symbol_loses_its_share(symbols in proptest::collection::vec(0usize..16, 0..400), often in 0usize..16) {
            let mut model = SymbolModel::EVEN;
            let coming = symbols.into_iter().chain(std::iter::repeat_n(often, 3000)).chain([0, 15]);
            for (seen, symbol) in coming.enumerate() {
                let before = model;
                model.write(symbol);
                let step = 1 << RATES[seen.min(127)];
                for at in 0..SYMBOLS {
                    let (old, new) = (u32::from(before.borders[at] as u16), u32::from(model.borders[at] as u16));
                    let (lowest, highest) = (at as u32, at as u32 + ONE - 16);
                    prop_assert_eq!(new, match at > symbol {
                        true => old + (highest - old).div_ceil(step),
                        false => old - (old - lowest).div_ceil(step),
                    });
                }
                let mut end = 0;
                for symbol in 0..SYMBOLS {
                    let (start, len) = model.share(symbol);
                    prop_assert!(start == end && len > 0);
                    for number in [start, start + len - 1] {
                        let above = model.above(number);
                        prop_assert_eq!((last_below(above), last_below_by_count(above)), (symbol, symbol));
                        let (mut read, mut written) = (model, model);
                        prop_assert_eq!(read.read(number), (symbol, start, len));
                        prop_assert_eq!(written.write(symbol), (start, len));
                        prop_assert!(read.borders == written.borders && read.seen == written.seen);
                    }
                    end = start + len;
                }
                prop_assert_eq!(end, ONE);
            }
            // A symbol that comes all the time costs next to nothing.
            let mut model = SymbolModel::EVEN;
            for _ in 0..3000 {
                model.write(often);
            }
            prop_assert!(model.share(often).1 >= ONE - 16);
        }

        #[test]
        fn symbols_and_bits_come_back(
            coded in proptest::collection::vec((0usize..16, 0usize..3, any::<u64>(), 0u32..=64), 0..600),
            times in 1usize..300, cut in any::<usize>(),
        ) {
            // More than one block now and then.
            let coded: Vec<_> = coded.iter().cycle().take(coded.len() * times).copied().collect();
            let mut models = [SymbolModel::EVEN; 3];
            let mut writer = SymbolWriter::new(vec![7]);
            for (symbol, model, number, count) in &coded {
                writer.symbol(&mut models[*model], *symbol);
                writer.bits(*number, *count);
            }
            let bytes = writer.finish();
            prop_assert_eq!(bytes[0], 7);
            let read = |bytes: &[u8]| {
                let mut models = [SymbolModel::EVEN; 3];
                let mut reader = SymbolReader::new(bytes);
                let mut right = true;
                for (symbol, model, number, count) in &coded {
                    right &= reader.symbol(&mut models[*model], 0) == *symbol;
                    let mask = if *count == 64 { u64::MAX } else { (1 << count) - 1 };
                    right &= reader.bits(0, *count) == number & mask;
                }
                (right, reader.is_whole())
            };
            prop_assert_eq!(read(&bytes[1..]), (true, true));
            let at = 1 + cut % bytes.len().max(1);
            if at < bytes.len() {
                prop_assert!(!read(&bytes[1..at]).1);
            }
            prop_assert!(!read(&[&bytes[1..], &[0, 0]].concat()).1);
        }
    }
}
