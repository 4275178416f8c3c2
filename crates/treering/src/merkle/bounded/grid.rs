//! Which cells serve which bound, and how far.

use super::Bound;
use crate::array::DType;

/// Division of values into cells; the head of this module has the law.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Grid {
    /// No cells: the leaf is a digest of the chunk's bytes.
    Bits,
    /// Cells 2^e wide, from 2^(e+m) on 2^-m of their octave; without octaves m is the cells' range.
    Uniform {
        /// The binary logarithm of the width.
        e: i16,
        /// Number of bits of the fraction that count above.
        m: u8,
    },
    /// The bit pattern without its lowest bits.
    Ordinal {
        /// Number of bits that are dropped.
        s: u8,
        /// Whether denormals have cells.
        denormals: bool,
    },
}

/// Width of a relative bound of a new tree in cells of an octave.
const FINE: u64 = 4;
/// At least this many cells fit into an absolute bound of a new tree, and less than twice as many: so
/// jitter of up to two cells is within it (of one cell for complex numbers), and cells that four planes
/// cannot tell are beyond it.
const FIT: f64 = 3.5;
/// No sketch can tell cells that are further apart.
const FURTHEST: u64 = 1 << super::MAX_PLANES;
/// Makes up for the rounding of a handful of operations.
const SLACK: f64 = 1.0 + 1e-12;

/// The numbers that a floating-point element consists of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Component {
    pub(crate) bytes: usize,
    /// Number of bits of its fraction.
    pub(crate) mantissa: u8,
    /// Whether cells have 64 bits.
    pub(crate) wide: bool,
    pub(crate) complex: bool,
}

impl Component {
    /// The components of a type; of integers, booleans and bytes there are none.
    pub(crate) fn of(dtype: DType) -> Option<Component> {
        let make = |bytes, mantissa, complex| {
            Some(Component { bytes, mantissa, wide: mantissa == 52, complex })
        };
        match dtype {
            DType::F16 => make(2, 10, false),
            DType::BF16 => make(2, 7, false),
            DType::F32 => make(4, 23, false),
            DType::F64 => make(8, 52, false),
            DType::C64 => make(4, 23, true),
            DType::C128 => make(8, 52, true),
            _ => None,
        }
    }

    /// The bits of an infinity; those of NaN are above, but for the sign.
    pub(crate) fn infinity(self) -> u64 {
        let top = 8 * self.bytes as u32 - 1;
        ((1 << (top - self.mantissa as u32)) - 1) << self.mantissa
    }

    /// Number of components of some data that are NaN.
    pub(crate) fn nans(self, data: &[u8]) -> u64 {
        let infinity = self.infinity();
        match self.bytes {
            2 => count(data, |raw| u16::from_le_bytes(*raw) & 0x7fff > infinity as u16),
            4 => count(data, |raw| u32::from_le_bytes(*raw) & 0x7fff_ffff > infinity as u32),
            _ => count(data, |raw| u64::from_le_bytes(*raw) & (u64::MAX >> 1) > infinity),
        }
    }

    /// The range of cells without octaves.
    pub(crate) fn range(self) -> u8 {
        if self.wide { 63 } else { 31 }
    }

    /// The exponents that a uniform grid may have: where cells are exact, whatever the mode.
    fn exponents(self) -> (i32, i32) {
        if self.wide { (-1022, 1022) } else { (-126, 126) }
    }

    /// The most bits of a fraction there can be in the format that cells are computed in.
    fn fraction(self) -> u8 {
        if self.wide { 52 } else { 23 }
    }

    /// The absolute bound of one component: two of them make a modulus.
    fn abs(self, abs: f64) -> f64 {
        if self.complex { abs * std::f64::consts::FRAC_1_SQRT_2 / SLACK } else { abs }
    }
}

fn count<const SIZE: usize>(data: &[u8], holds: impl Fn(&[u8; SIZE]) -> bool) -> u64 {
    data.as_chunks::<SIZE>().0.iter().map(|raw| u64::from(holds(raw))).sum()
}

impl Grid {
    /// The grid of a new tree for `bound`.
    pub fn choose(dtype: DType, bound: Bound) -> Grid {
        let Some(component) = Component::of(dtype) else { return Grid::Bits };
        let exact = Grid::Ordinal { s: 0, denormals: true };
        match bound {
            Bound::Bits => Grid::Bits,
            Bound::Ulp(count) => {
                let bits = ((count.saturating_add(1) as f64 / FIT).max(1.0) as u64).ilog2();
                Grid::Ordinal { s: bits.min(component.mantissa as u32) as u8, denormals: true }
            }
            Bound::Within { abs, rel } => {
                let m = octaves(rel);
                match (exponent(component, abs), m) {
                    (None, Some(m)) if m <= component.mantissa => {
                        Grid::Ordinal { s: component.mantissa - m, denormals: false }
                    }
                    (None, _) => exact,
                    (Some(e), None) => Grid::Uniform { e, m: component.range() },
                    // Octaves that are finer than the format's numbers would serve no relative bound.
                    (Some(e), Some(m)) => match m.min(component.fraction()) {
                        m if spread(1, m) <= rel => Grid::Uniform { e, m },
                        _ => Grid::Uniform { e, m: component.range() },
                    },
                }
            }
        }
    }

    /// Whether values of a type can be put into these cells.
    pub fn fits(self, dtype: DType) -> bool {
        let Some(component) = Component::of(dtype) else { return self == Grid::Bits };
        let (least, greatest) = component.exponents();
        match self {
            Grid::Bits => true,
            Grid::Uniform { e, m } => {
                (least..=greatest).contains(&(e as i32))
                    && (m == component.range() || (3..=component.fraction()).contains(&m))
            }
            Grid::Ordinal { s, .. } => s <= component.mantissa,
        }
    }

    /// Largest number of cells between two values that are surely within `bound`; `None` if even values of the same
    /// cell may be beyond it.
    pub fn reach(self, dtype: DType, bound: Bound) -> Option<u64> {
        let Some(component) = Component::of(dtype) else {
            return (self == Grid::Bits).then_some(0);
        };
        let cells = match (self, bound) {
            (Grid::Bits, _) => 1,
            (_, Bound::Bits) => 0,
            (Grid::Ordinal { s, .. }, Bound::Ulp(count)) => {
                count.saturating_add(1).checked_shr(s as u32).unwrap_or(0)
            }
            (Grid::Uniform { .. }, Bound::Ulp(_)) => 0,
            (Grid::Uniform { e, m }, Bound::Within { abs, rel }) => {
                let abs = component.abs(abs);
                let pure = m == component.range();
                most(if pure { FURTHEST } else { 1 << m.min(8) }, |k| {
                    let width = k as f64 * 2f64.powi(e as i32);
                    match pure {
                        true => width <= abs,
                        false => width * (1.0 + spread(k, m)) * SLACK <= abs && spread(k, m) <= rel,
                    }
                })
            }
            (Grid::Ordinal { s, denormals }, Bound::Within { rel, .. }) => {
                let m = component.mantissa.saturating_sub(s);
                let relative = match denormals {
                    true => 0,
                    false => most(1 << m.min(8), |k| spread(k, m) <= rel),
                };
                relative.max(u64::from(s == 0))
            }
        };
        cells.min(FURTHEST).checked_sub(1)
    }

    /// Whether values `d` cells apart are surely beyond `bound`; the head of this module has the proof.
    pub fn is_beyond(self, dtype: DType, bound: Bound, d: u64) -> bool {
        let Some(component) = Component::of(dtype) else { return d > 0 };
        let between = d.saturating_sub(1);
        match (self, bound) {
            (Grid::Ordinal { s, .. }, Bound::Ulp(count)) => between.saturating_mul(1 << s) > count,
            (_, Bound::Ulp(_) | Bound::Bits) | (Grid::Bits, _) => false,
            // A cell is one number.
            (Grid::Ordinal { s: 0, .. }, Bound::Within { abs: 0.0, rel: 0.0 }) => d > 0,
            // A part of a complex number can differ much from its own size and little from the modulus.
            (_, Bound::Within { rel, .. }) if component.complex && rel > 0.0 => false,
            (Grid::Uniform { e, m }, Bound::Within { abs, rel }) if m == component.range() => {
                rel == 0.0 && between as f64 * 2f64.powi(e as i32) > abs
            }
            (Grid::Uniform { e, m }, Bound::Within { abs, rel }) => {
                let cells = abs * 2f64.powi(-(e as i32)) + 2.0 * rel * 2f64.powi(m as i32);
                between.min(1 << m) as f64 > cells * SLACK
            }
            (Grid::Ordinal { s, .. }, Bound::Within { abs, rel }) => {
                let m = component.mantissa.saturating_sub(s);
                let cells = 2.0 * rel * 2f64.powi(m as i32);
                abs == 0.0 && between.min(1 << m) as f64 > cells * SLACK
            }
        }
    }
}

/// The exponent of cells of which [`FIT`] fit into an absolute bound, if there are such.
fn exponent(component: Component, abs: f64) -> Option<i16> {
    let (least, greatest) = component.exponents();
    let width = abs / FIT;
    if width < f64::MIN_POSITIVE {
        return None;
    }
    let e = (width.to_bits() >> 52) as i32 - 1023;
    (e >= least).then_some(e.min(greatest) as i16)
}

/// The fewest bits of a fraction for which [`FINE`] cells stay within a relative bound.
fn octaves(rel: f64) -> Option<u8> {
    (3..=52u8).find(|m| spread(FINE, *m) <= rel)
}

/// η of the law: how far apart k cells of an octave are, relative to the second value.
fn spread(k: u64, m: u8) -> f64 {
    let part = k as f64 * 2f64.powi(-(m as i32));
    part * (1.0 + 2.0 * part) * SLACK
}

/// The greatest k of 1..=limit for which `holds`, or 0; what holds for k holds for less.
fn most(limit: u64, holds: impl Fn(u64) -> bool) -> u64 {
    (1..=limit).take_while(|k| holds(*k)).last().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_tree_serves_its_own_bound() {
        let floats = [DType::F16, DType::BF16, DType::F32, DType::F64, DType::C64, DType::C128];
        let bounds = [
            Bound::EQUAL,
            Bound::Bits,
            Bound::abs(1e-5),
            Bound::abs(1e30),
            Bound::abs(1e300),
            Bound::abs(1e-45),
            Bound::abs(5e-324),
            Bound::rel(1e-5),
            Bound::rel(1e-30),
            Bound::rel(0.9),
            Bound::rel(100.0),
            Bound::Within { abs: 1e-8, rel: 1e-5 },
            Bound::Within { abs: 1e-300, rel: 1e-5 },
            Bound::Ulp(0),
            Bound::Ulp(1),
            Bound::Ulp(1000),
            Bound::Ulp(u64::MAX),
        ];
        for dtype in floats {
            for bound in bounds {
                let grid = Grid::choose(dtype, bound);
                assert!(grid.reach(dtype, bound).is_some(), "{dtype} {bound} {grid:?}");
                assert!(grid.fits(dtype), "{dtype} {bound} {grid:?}");
            }
        }
        assert_eq!(Grid::choose(DType::F32, Bound::abs(1e-5)), Grid::Uniform { e: -19, m: 31 });
        let grid = Grid::choose(DType::F32, Bound::abs(1e-5));
        assert_eq!(grid.reach(DType::F32, Bound::abs(1e-5)), Some(4));
        assert_eq!(grid.reach(DType::F32, Bound::abs(1e-6)), None);
        assert_eq!(Grid::choose(DType::I32, Bound::abs(1.0)), Grid::Bits);
    }
}
