//! Bounds as people give them.

use super::DType;
use crate::error::{Error, Result};
use std::fmt;

/// The permitted difference between two values.
///
/// ```
/// use treering::Bound;
/// assert_eq!(Bound::parse("abs:1e-6")?, Bound::abs(1e-6));
/// assert_eq!(Bound::parse("abs:1e-8,rel:1e-5")?, Bound::Within { abs: 1e-8, rel: 1e-5 }); // as numpy.allclose
/// assert_eq!(Bound::parse("ulp:4")?, Bound::Ulp(4));
/// assert!(Bound::abs(-1.0).check().is_err());
/// # Ok::<(), treering::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Bound {
    /// The same bits, for values of any type. Integers, booleans and bytes are always compared so.
    Bits,
    /// |a − b| ≤ abs + rel·|b|, where b is the second side; both 0 takes −0 for +0.
    Within {
        /// The absolute part.
        abs: f64,
        /// The part relative to the second side.
        rel: f64,
    },
    /// The largest permitted distance, in representable values.
    Ulp(u64),
}

impl Bound {
    /// Equal values: −0 is +0.
    pub const EQUAL: Bound = Bound::Within { abs: 0.0, rel: 0.0 };

    /// An absolute bound.
    pub fn abs(abs: f64) -> Self {
        Bound::Within { abs, rel: 0.0 }
    }

    /// A bound relative to the second side.
    pub fn rel(rel: f64) -> Self {
        Bound::Within { abs: 0.0, rel }
    }

    /// Returns an error for bounds that are negative, infinite or NaN.
    pub fn check(self) -> Result<Self> {
        let Bound::Within { abs, rel } = self else { return Ok(self) };
        for (name, value) in [("absolute", abs), ("relative", rel)] {
            if !value.is_finite() || value < 0.0 {
                return Err(Error::usage(format!("invalid {name} bound {value}"))
                    .hint("expected a finite number ≥ 0, for example 1e-6"));
            }
        }
        Ok(self)
    }

    /// The bound that applies to a type: only floating-point numbers can be nearly equal.
    pub fn of_type(self, dtype: DType) -> Self {
        match dtype {
            DType::F16 | DType::BF16 | DType::F32 | DType::F64 | DType::C64 | DType::C128 => self,
            _ => Bound::Bits,
        }
    }

    /// Whether only equal values are within it.
    #[cfg(feature = "tools")]
    pub(crate) fn is_exact(self) -> bool {
        self == Bound::EQUAL || matches!(self, Bound::Bits | Bound::Ulp(0))
    }

    /// Reads `abs:1e-6`, `rel:1e-5`, `abs:1e-8,rel:1e-5`, `ulp:4` or `bits`.
    pub fn parse(text: &str) -> Result<Self> {
        let wrong = || {
            Error::usage(format!("invalid bound {text:?}"))
                .hint("write abs:1e-6, rel:1e-5, abs:1e-8,rel:1e-5, ulp:4 or bits")
        };
        if text == "bits" {
            return Ok(Bound::Bits);
        }
        if let Some(count) = text.strip_prefix("ulp:") {
            return count.parse().map(Bound::Ulp).map_err(|_| wrong());
        }
        let (mut abs, mut rel) = (None, None);
        for part in text.split(',') {
            let (kind, number) = part.split_once(':').ok_or_else(wrong)?;
            let place = match kind {
                "abs" => &mut abs,
                "rel" => &mut rel,
                _ => return Err(wrong()),
            };
            let number: f64 = number.parse().map_err(|_| wrong())?;
            if place.replace(number).is_some() {
                return Err(wrong());
            }
        }
        Bound::Within { abs: abs.unwrap_or(0.0), rel: rel.unwrap_or(0.0) }.check()
    }
}

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Bound::Bits => f.write_str("bits"),
            Bound::Ulp(count) => write!(f, "ulp:{count}"),
            Bound::Within { abs, rel: 0.0 } => write!(f, "abs:{abs:?}"),
            Bound::Within { abs: 0.0, rel } => write!(f, "rel:{rel:?}"),
            Bound::Within { abs, rel } => write!(f, "abs:{abs:?},rel:{rel:?}"),
        }
    }
}

#[cfg(feature = "tools")]
impl serde::Serialize for Bound {
    fn serialize<S: serde::Serializer>(&self, s: S) -> std::result::Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_return_and_junk_is_refused() {
        for text in ["bits", "ulp:4", "abs:1e-6", "rel:0.001", "abs:1e-8,rel:1e-5", "abs:0.0"] {
            let bound = Bound::parse(text).unwrap();
            assert_eq!(Bound::parse(&bound.to_string()).unwrap(), bound);
        }
        for junk in [
            "",
            "abs",
            "abs:",
            "abs:x",
            "abs:-1",
            "abs:NaN",
            "rel:inf",
            "ulp:-1",
            "ulp:1.5",
            "abs:1,abs:2",
            "x:1",
            "abs:1,ulp:2",
        ] {
            assert!(Bound::parse(junk).is_err(), "{junk}");
        }
    }
}
