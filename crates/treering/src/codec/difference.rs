//! The difference to the same values one checkpoint before, element by element.
//!
//! Fields change little from step to step: as integers in the order of their values, their differences
//! are small numbers, and where nothing changed they are zeros. The law: for every state before, what
//! was taken away is put back, bit for bit.

use super::word::Word;

/// Kind of the difference between a value and the one before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DifferenceKind {
    /// Less by the value before.
    Subtract,
    /// Subtraction with the sign in the lowest bit: 0, −1, 1, −2 become 0, 1, 2, 3.
    Fold,
    /// The bits that differ.
    Xor,
}

/// Difference to the values of the step before: its kind, and the type of the values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Difference {
    /// The way.
    pub way: DifferenceKind,
    /// Bytes of a value: 1, 2, 4 or 8.
    pub size: u8,
    /// Whether they are floating-point numbers.
    pub float: bool,
}

impl Difference {
    /// Residuals of `raw` relative to `before`, which has the same length.
    pub(super) fn take(self, raw: &[u8], before: &[u8], out: &mut [u8]) {
        match self.size {
            1 => self.each::<u8>(raw, before, out, taken),
            2 => self.each::<u16>(raw, before, out, taken),
            4 => self.each::<u32>(raw, before, out, taken),
            _ => self.each::<u64>(raw, before, out, taken),
        }
    }

    /// The bytes of which `left` is left without `before`.
    pub(super) fn put_back(self, left: &[u8], before: &[u8], out: &mut [u8]) {
        match self.size {
            1 => self.each::<u8>(left, before, out, put_back),
            2 => self.each::<u16>(left, before, out, put_back),
            4 => self.each::<u32>(left, before, out, put_back),
            _ => self.each::<u64>(left, before, out, put_back),
        }
    }

    #[inline(always)]
    fn each<W: Word>(
        self,
        from: &[u8],
        before: &[u8],
        out: &mut [u8],
        one: impl Fn(W, W, DifferenceKind, bool) -> W,
    ) {
        let whole = from.len() / W::BYTES * W::BYTES;
        let values = from[..whole].chunks_exact(W::BYTES).zip(before.chunks_exact(W::BYTES));
        for ((value, old), out) in values.zip(out.chunks_exact_mut(W::BYTES)) {
            one(W::read(value), W::read(old), self.way, self.float).put(out);
        }
        // A value that is cut off stays as it is.
        out[whole..].copy_from_slice(&from[whole..]);
    }
}

#[inline(always)]
fn taken<W: Word>(value: W, old: W, way: DifferenceKind, float: bool) -> W {
    if way == DifferenceKind::Xor {
        return value.xor(old);
    }
    let left = match float {
        true => value.ordered().sub(old.ordered()),
        false => value.sub(old),
    };
    if way == DifferenceKind::Fold { left.fold() } else { left }
}

#[inline(always)]
fn put_back<W: Word>(left: W, old: W, way: DifferenceKind, float: bool) -> W {
    if way == DifferenceKind::Xor {
        return left.xor(old);
    }
    let left = if way == DifferenceKind::Fold { left.unfold() } else { left };
    match float {
        true => left.add(old.ordered()).unordered(),
        false => left.add(old),
    }
}
