//! Axes of shares and of numbers of ranks, and numbers as figures show them.

use super::chart::Axis;

/// An axis of shares in percent, from the decade of `low` to all.
pub(super) fn share_axis(low: f64, label: String) -> Axis {
    let first = (low.log10() + 1e-9).floor() as i32;
    let every = if first < -6 { 2 } else { 1 };
    let ticks = (first..=0)
        .filter(|decade| decade % every == 0)
        .map(|decade| (10f64.powi(decade), whole_percent(10f64.powi(decade))));
    Axis { low: 10f64.powi(first), high: 1.0, logarithmic: true, ticks: ticks.collect(), label }
}

/// An axis of numbers of ranks, with powers of two.
pub(super) fn size_axis(low: u32, high: u32) -> Axis {
    let (first, last) = (low.ilog2(), high.ilog2() + u32::from(!high.is_power_of_two()));
    let every = (last - first).div_ceil(10).max(1);
    let ticks = (first..=last)
        .filter(|power| (last - power).is_multiple_of(every))
        .map(|power| (2f64.powi(power as i32), format!("2{}", raised(power))));
    Axis {
        low: 2f64.powi(first as i32),
        high: 2f64.powi(last as i32),
        logarithmic: true,
        ticks: ticks.collect(),
        label: "ranks".to_string(),
    }
}

/// A share in percent without digits that do not count: 20 %, 0.01 %.
pub(super) fn whole_percent(share: f64) -> String {
    let percent = 100.0 * share;
    let digits = (-percent.log10() - 1e-9).ceil().clamp(0.0, 12.0) as usize;
    let digits = if percent == 0.0 { 0 } else { digits };
    match digits {
        5.. => format!("{percent:.0e} %"),
        _ => format!("{percent:.digits$} %"),
    }
}

/// A number of ranks or nodes: as a power of two, or with its digits in groups.
pub(super) fn number(count: u32) -> String {
    if count >= 1 << 10 && count.is_power_of_two() {
        return format!("2{}", raised(count.ilog2()));
    }
    let digits = count.to_string();
    let groups: Vec<&str> =
        digits.as_bytes().rchunks(3).rev().filter_map(|g| std::str::from_utf8(g).ok()).collect();
    if count < 10_000 { digits.clone() } else { groups.join("\u{202f}") }
}

fn raised(number: u32) -> String {
    const DIGITS: [char; 10] = ['⁰', '¹', '²', '³', '⁴', '⁵', '⁶', '⁷', '⁸', '⁹'];
    number.to_string().bytes().map(|digit| DIGITS[usize::from(digit - b'0') % 10]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short() {
        assert_eq!([64, 1 << 25, 16_385, 9999].map(number), ["64", "2²⁵", "16\u{202f}385", "9999"]);
        assert_eq!(
            [0.0, 1e-9, 1e-4, 0.01, 0.2, 1.0].map(whole_percent),
            ["0 %", "1e-7 %", "0.01 %", "1 %", "20 %", "100 %"]
        );
    }

    #[test]
    fn axes_begin_and_end_at_whole_powers() {
        let words =
            |axis: &Axis| axis.ticks.iter().map(|(_, words)| words.clone()).collect::<Vec<_>>();
        let shares = share_axis(0.03, "x".to_string());
        assert_eq!((shares.low, shares.high), (0.01, 1.0));
        assert_eq!(words(&shares), ["1 %", "10 %", "100 %"]);
        let sizes = size_axis(48, 1 << 7);
        assert_eq!((sizes.low, sizes.high), (32.0, 128.0));
        assert_eq!(words(&sizes), ["2⁵", "2⁶", "2⁷"]);
        assert_eq!(words(&size_axis(1, 1)), ["2⁰"]);
    }
}
