//! Entropy coding of symbols from 0 to 15 with models that follow what they see.
//!
//! A model holds where each symbol's share of 2^15 begins, and moves all sixteen borders towards each
//! symbol that comes: fast at first, slowly later. The borders are one or two registers wide, so a
//! symbol costs about as much as a bit does in a binary coder (after Giesen's adaptive models for rANS).
//!
//! The coder is rANS (Duda 2013) with two states that take turns. It writes backwards, so symbols are
//! collected in blocks; a reader meets them in order.

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

/// Four numbers of 16 bits in one word, all the same.
const fn four(number: u64) -> u64 {
    number * 0x0001_0001_0001_0001
}

/// Where borders go when their symbol, or one before it, comes; and where they go when one behind it
/// does. Every symbol keeps a share of one.
const UP: [u64; 4] = {
    let mut up = DOWN;
    let mut at = 0;
    while at < 4 {
        up[at] += four(ONE as u64 - 16);
        at += 1;
    }
    up
};
const DOWN: [u64; 4] = {
    let mut down = [0x0003_0002_0001_0000; 4];
    let mut at = 1;
    while at < 4 {
        down[at] = down[at - 1] + four(4);
        at += 1;
    }
    down
};

/// All bits of the borders that go up when a symbol comes.
const RISING: [[u64; 4]; 16] = {
    let mut rising = [[0; 4]; 16];
    let mut symbol = 0;
    while symbol < 16 {
        let mut at = symbol + 1;
        while at < 16 {
            rising[symbol][at / 4] |= 0xffff << (16 * (at % 4));
            at += 1;
        }
        symbol += 1;
    }
    rising
};

/// The shares of sixteen symbols.
///
/// The law: borders stay in ascending order, the one of symbol k at k or above and 2^15 − 16 + k or
/// below, so no symbol ever loses its share. With c < c' two neighbours and t < t' where they move to,
/// (2^r − 1)c + t and (2^r − 1)c' + t' are at least 2^r apart, so they stay apart when both are divided
/// by 2^r and rounded towards t and t': both up, both down, or only the second one up.
#[derive(Clone, Copy)]
pub(super) struct SymbolModel {
    /// Four borders a word.
    starts: [u64; 4],
    seen: u8,
}

impl SymbolModel {
    /// All symbols are equally likely.
    pub(super) const EVEN: SymbolModel = {
        let mut starts = DOWN;
        let mut at = 0;
        while at < 4 {
            starts[at] <<= BITS - 4;
            at += 1;
        }
        SymbolModel { starts, seen: 0 }
    };

    #[inline(always)]
    fn start(&self, symbol: usize) -> u32 {
        u32::from((self.starts[(symbol / 4) & 3] >> (16 * (symbol % 4))) as u16)
    }

    /// The beginning and the length of a symbol's share.
    #[inline(always)]
    fn share(&self, symbol: usize) -> (u32, u32) {
        let start = self.start(symbol);
        let end = if symbol < 15 { self.start(symbol + 1) } else { ONE };
        (start, end - start)
    }

    /// The symbol in whose share a number below 2^15 lies.
    #[inline(always)]
    fn symbol(&self, number: u32) -> usize {
        // The highest bit of each difference stays where the border is not above the number.
        let number = four(u64::from(number) | 0x8000);
        let reached = self.starts.map(|starts| (number - starts) >> 15 & four(1));
        let sum = reached[0] + reached[1] + reached[2] + reached[3];
        (sum.wrapping_mul(four(1)) >> 48) as usize - 1
    }

    #[inline(always)]
    fn learn(&mut self, symbol: usize) {
        let rate = RATES[self.seen as usize & 127];
        self.seen = (self.seen + 1).min(127);
        let (most, kept) = (four((1 << rate) - 1), four(0xffff >> rate));
        let starts = self.starts;
        self.starts = std::array::from_fn(|at| {
            let (rising, start) = (RISING[symbol & 15][at], starts[at]);
            let way = (UP[at] - start) & rising | (start - DOWN[at]) & !rising;
            let step = (way + most) >> rate & kept;
            start + (step & rising) - (step & !rising)
        });
    }
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
        let mut words: Vec<u16> = Vec::with_capacity(self.block.len() / 2);
        let mut states = [LEAST; 2];
        for (at, (start, len)) in self.block.drain(..).enumerate().rev() {
            let (start, len) = (u32::from(start), u32::from(len));
            let state = &mut states[at & 1];
            if *state >= len << (32 - BITS) {
                words.push(*state as u16);
                *state >>= 16;
            }
            *state = ((*state / len) << BITS) + *state % len + start;
        }
        self.out.extend(states.iter().flat_map(|state| state.to_le_bytes()));
        self.out.extend(words.iter().rev().flat_map(|word| word.to_le_bytes()));
    }
}

impl Coder for SymbolWriter {
    #[inline(always)]
    fn symbol(&mut self, model: &mut SymbolModel, symbol: usize) -> usize {
        let (start, len) = model.share(symbol);
        self.push(start, len);
        model.learn(symbol);
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
        let mut state = len.wrapping_mul(self.states[0] >> BITS).wrapping_add(number - start);
        if state < LEAST {
            let word = match self.bytes.split_first_chunk::<2>() {
                Some((word, rest)) => {
                    self.bytes = rest;
                    u16::from_le_bytes(*word)
                }
                None => {
                    self.sound = false;
                    0
                }
            };
            state = state << 16 | u32::from(word);
        }
        self.states = [self.states[1], state];
    }
}

impl Coder for SymbolReader<'_> {
    #[inline(always)]
    fn symbol(&mut self, model: &mut SymbolModel, _: usize) -> usize {
        let number = self.number();
        let symbol = model.symbol(number);
        let (start, len) = model.share(symbol);
        self.pass(number, start, len);
        model.learn(symbol);
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
        /// Whatever comes, every symbol keeps a share, and shares lie one behind another.
        #[test]
        fn no_symbol_loses_its_share(symbols in proptest::collection::vec(0usize..16, 0..400), often in 0usize..16) {
            let mut model = SymbolModel::EVEN;
            for symbol in symbols.into_iter().chain(std::iter::repeat_n(often, 3000)) {
                model.learn(symbol);
                let mut end = 0;
                for symbol in 0..16 {
                    let (start, len) = model.share(symbol);
                    prop_assert!(start == end && len > 0);
                    prop_assert_eq!(model.symbol(start), symbol);
                    prop_assert_eq!(model.symbol(start + len - 1), symbol);
                    end = start + len;
                }
                prop_assert_eq!(end, ONE);
            }
            // A symbol that comes all the time costs next to nothing.
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
