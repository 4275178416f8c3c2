//! Values and pairs of values near everything that could go wrong.

use super::Format;
use treering::testing::Grid;
use treering::{Bound, DType};

/// A small generator of random numbers (splitmix64).
#[derive(Clone)]
pub struct Dice(pub u64);

impl Dice {
    pub fn word(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, sides: u64) -> u64 {
        ((self.word() as u128 * sides as u128) >> 64) as u64
    }

    /// From −1 to 1.
    pub fn part(&mut self) -> f64 {
        (self.word() >> 11) as f64 / (1u64 << 52) as f64 - 1.0
    }

    pub fn choose<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len() as u64) as usize]
    }
}

/// Makes numbers that lie near the borders of cells and at the distance of a bound.
#[derive(Clone, Copy)]
pub struct Maker {
    pub format: Format,
    abs: f64,
    rel: f64,
    ulp: u64,
    /// The width of cells, where they have one.
    width: f64,
}

impl Maker {
    pub fn new(dtype: DType, grid: Grid, bound: Bound) -> Maker {
        let (abs, rel, ulp) = match bound {
            Bound::Within { abs, rel } => (abs, rel, 1),
            Bound::Ulp(count) => (0.0, 0.0, count.min(1 << 40)),
            Bound::Bits => (0.0, 0.0, 1),
        };
        let width = match grid {
            Grid::Uniform { e, .. } => 2f64.powi(e as i32),
            _ => 1.0,
        };
        Maker { format: Format::of(dtype), abs, rel, ulp, width }
    }

    /// A number of any kind.
    pub fn one(&self, dice: &mut Dice) -> u64 {
        let f = self.format;
        let sign = (dice.word() & 1) << f.top;
        match dice.below(16) {
            0..4 => dice.word() & (u64::MAX >> (63 - f.top)),
            4..6 => f.near(dice.part()),
            // Multiples of the width, and all that lies between two of them, also far out.
            6..8 => f.near(self.width * (dice.below(1 << 10) as f64 - 512.0)),
            8..10 => f.near(self.width * dice.part() * 2f64.powi(dice.below(72) as i32)),
            // Powers of two, and their neighbours.
            10 => {
                f.step(f.rest(dice.word()) >> f.mantissa << f.mantissa, dice.below(3) as i64 - 1)
                    | sign
            }
            11 => dice.below(1 << f.mantissa) | sign,
            12 => f.near(self.abs * dice.part() * 8.0),
            13 => {
                f.near(
                    self.width * 2f64.powi(dice.choose(&[10, 22, 23, 24, 30, 31, 52, 53, 62, 63])),
                ) ^ sign
            }
            14 => {
                f.step(
                    dice.choose(&[0, 1 << f.mantissa, f.infinity() - 1]),
                    dice.below(5) as i64 - 2,
                ) ^ sign
            }
            _ => {
                dice.choose(&[
                    0,
                    f.infinity(),
                    f.infinity() | 1,
                    f.infinity() | 1 << (f.mantissa - 1),
                    1,
                ]) | sign
            }
        }
    }

    /// A partner for a number: near it, at the bound, just beyond it, or anywhere.
    pub fn partner(&self, x: u64, dice: &mut Dice) -> u64 {
        let f = self.format;
        let value = f.value(x);
        let (sign, nudge) = (dice.choose(&[-1.0, 1.0]), dice.below(5) as i64 - 2);
        match dice.below(16) {
            0 => x,
            1..4 => f.step(x, dice.below(9) as i64 - 4),
            4..7 => f.step(f.near(value + sign * self.abs), nudge),
            7 => f.step(f.near(value * (1.0 + sign * self.rel)), nudge),
            // a = b ± (abs + rel·|b|), solved for b.
            8 => {
                let b = (value - sign * self.abs) / (1.0 + sign * self.rel);
                f.step(f.near(b), nudge)
            }
            9..11 => f.near(value + dice.part() * self.width * 4.0),
            11 => f.step(f.near(value + sign * self.width * dice.below(24) as f64), nudge),
            12 => f.step(x, sign as i64 * (self.ulp as i64).saturating_add(nudge)),
            13 => f.step(x, (dice.part() * self.ulp as f64 * 2.0) as i64),
            14 => x ^ 1 << f.top,
            _ => self.one(dice),
        }
    }

    /// A small change that mostly stays within the cell.
    pub fn jitter(&self, x: u64, dice: &mut Dice) -> u64 {
        let f = self.format;
        match dice.below(3) {
            0 => f.near(f.value(x) + dice.part() * self.width * 0.01),
            1 => f.near(f.value(x) * (1.0 + dice.part() * self.rel * 0.01)),
            _ => f.step(x, dice.below(3) as i64 - 1),
        }
    }
}

/// Bounds of every kind for a type.
pub fn bounds(dtype: DType) -> Vec<Bound> {
    let mut bounds = vec![
        Bound::EQUAL,
        Bound::abs(1e-3),
        Bound::abs(0.25),
        Bound::abs(3.7),
        Bound::abs(1e-30),
        Bound::abs(1e4),
        Bound::rel(1e-2),
        Bound::rel(1e-6),
        Bound::rel(0.6),
        Bound::Within { abs: 1e-6, rel: 1e-4 },
        Bound::Within { abs: 1e-2, rel: 0.1 },
        Bound::Within { abs: 1e-3, rel: 1e-9 },
        Bound::Ulp(0),
        Bound::Ulp(1),
        Bound::Ulp(5),
        Bound::Ulp(1000),
    ];
    if Format::of(dtype).mantissa == 52 {
        bounds.extend([
            Bound::abs(1e-300),
            Bound::abs(1e300),
            Bound::rel(1e-14),
            Bound::Ulp(1 << 40),
        ]);
    }
    bounds
}

/// A bound near another one of its kind: smaller, the same, or larger.
pub fn akin(bound: Bound, dice: &mut Dice) -> Bound {
    let by = dice
        .choose(&[1.0, 1.0, 1.0, 0.1, 0.249, 0.25, 0.3, 0.5, 0.75, 1.5, 2.0, 7.0, 40.0, 1000.0]);
    match bound {
        Bound::Within { abs, rel } => match dice.below(8) {
            0 => Bound::Within { abs: abs * by, rel: rel.max(1e-9) * 10.0 },
            1 => Bound::Ulp(dice.below(100)),
            _ => Bound::Within { abs: abs * by, rel: rel * by },
        },
        Bound::Ulp(count) => match dice.below(8) {
            0 => Bound::rel(dice.choose(&[1e-7, 1e-3, 0.5])),
            1 => Bound::abs(dice.choose(&[1e-7, 1e-3, 0.5])),
            _ => Bound::Ulp((count as f64 * by) as u64),
        },
        Bound::Bits => Bound::Bits,
    }
}
