//! Fixed-point numbers for sums that several ranks or threads add to: integer addition does not
//! depend on the order, so neither do the bits of the sum.

/// The value of one. Pulls within the smallest softening there is reach 2^25; the last bit is
/// 1.5e-11, far below what a 32-bit float resolves of a typical pull.
const ONE: f64 = (1u64 << 36) as f64;

/// The nearest fixed-point number. Opposite values have opposite ones.
pub(crate) fn fixed(value: f64) -> i64 {
    (value * ONE).round() as i64
}

/// The value of a fixed-point number.
pub(crate) fn real(fixed: i64) -> f64 {
    fixed as f64 / ONE
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn opposite_values_have_opposite_numbers() {
        for value in [0.0, 1.0, 1e-11, 0.7, 33.3e6, 7.5 / ONE, 2.5 / ONE] {
            assert_eq!(fixed(-value), -fixed(value));
            assert!((real(fixed(value)) - value).abs() <= 0.5 / ONE + 1e-16 * value);
        }
    }
}
