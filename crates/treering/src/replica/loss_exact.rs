//! Exact counts of sets of failed units that lose data.
//!
//! The sets without loss have the generating function Π P_c(x)^(n_c), where n_c groups have c members and P_c counts the
//! sets of members of one group without loss. Its coefficients follow a linear recurrence of constant length (from the
//! logarithmic derivative), in integers of any size: nothing is rounded before the last division, and a curve of 2^14
//! units takes a fraction of a second.
//!
//! Law: equal to counting all sets one by one ([`enumerate`]), which works for any placement on a few units.

use crate::error::{Error, Result};
use crate::replica::placement::{RangeId, ReplicaPlacement, UnitGroups};
use crate::replica::topology::FailureUnit;
use num_bigint::{BigInt, BigUint};
use std::collections::{BTreeSet, VecDeque};

/// The largest number of units whose sets are counted one by one.
pub const MOST_ENUMERATED: u32 = 20;

/// The probabilities of loss after 0, 1, … up to `failures` failures, for at most 63 members in a group.
pub(crate) fn curve(groups: UnitGroups, failures: u32) -> Vec<f64> {
    let UnitGroups { units, groups: columns, copies } = groups;
    let longer = units % columns;
    let kinds = [(units / columns, columns - longer), (units / columns + 1, longer)];
    let kinds: Vec<(Vec<i128>, u32)> = kinds
        .into_iter()
        .filter(|(_, count)| *count > 0)
        .map(|(c, count)| (safe_sets(c, copies), count))
        .collect();
    let mut safe = PowerSeries::new(&kinds);
    let mut all = BigUint::from(1u8);
    let mut curve = Vec::new();
    for f in 0..=failures.min(units) {
        if f > 0 {
            all = all * (units - f + 1) / f;
        }
        let kept = safe.next_coefficient();
        let lost = BigInt::from(all.clone()) - kept;
        let probability = ratio(lost.magnitude(), &all);
        if probability == 1.0 {
            // Rounded to 1, as all that follow: probabilities rise.
            curve.resize(failures.min(units) as usize + 1, 1.0);
            break;
        }
        curve.push(probability);
    }
    curve
}

/// The coefficients of Π P_i(x)^(n_i), where every P_i(0) = 1, one after another.
///
/// With Q = Π P_i and R = Q·Σ n_i P_i'/P_i, the product C has Q·C' = R·C, and thus
/// k·c_k = Σ r_i c_(k-1-i) - Σ_(i≥1) q_i (k-i) c_(k-i).
struct PowerSeries {
    product: Vec<BigInt>,
    derivative: Vec<BigInt>,
    /// The last coefficients, the newest first.
    last: VecDeque<BigInt>,
    next: u32,
}

impl PowerSeries {
    fn new(kinds: &[(Vec<i128>, u32)]) -> Self {
        let mut product = vec![BigInt::from(1)];
        let mut derivative = vec![BigInt::from(0)];
        for (polynomial, power) in kinds {
            let factor: Vec<BigInt> = polynomial.iter().map(|count| BigInt::from(*count)).collect();
            let slope: Vec<BigInt> =
                (1u64..).zip(&factor[1..]).map(|(k, count)| count * k * *power).collect();
            let (left, right) = (multiply(&derivative, &factor), multiply(&product, &slope));
            derivative = vec![BigInt::from(0); left.len().max(right.len())];
            left.into_iter().enumerate().for_each(|(at, term)| derivative[at] += term);
            right.into_iter().enumerate().for_each(|(at, term)| derivative[at] += term);
            product = multiply(&product, &factor);
        }
        PowerSeries { product, derivative, last: VecDeque::new(), next: 0 }
    }

    fn next_coefficient(&mut self) -> BigInt {
        let k = self.next;
        let mut sum = BigInt::from(u8::from(k == 0));
        for (back, before) in (0u32..).zip(&self.last) {
            let mut factor = self.derivative.get(back as usize).cloned().unwrap_or_default();
            if let Some(q) = self.product.get(back as usize + 1) {
                factor -= q * (k - 1 - back);
            }
            sum += before * factor;
        }
        let coefficient = sum / k.max(1);
        self.last.push_front(coefficient.clone());
        self.last.truncate(self.product.len().max(self.derivative.len()));
        self.next += 1;
        coefficient
    }
}

fn multiply(a: &[BigInt], b: &[BigInt]) -> Vec<BigInt> {
    let mut product = vec![BigInt::from(0); (a.len() + b.len()).saturating_sub(1)];
    for (i, x) in a.iter().enumerate() {
        b.iter().enumerate().for_each(|(j, y)| product[i + j] += x * y);
    }
    product
}

/// The number of sets of j of `members` on a circle without `copies` consecutive ones, for every j. A set with z gaps
/// between its members and others is one of `members` / z rotations of z runs of less than `copies` each.
fn safe_sets(members: u32, copies: u32) -> Vec<i128> {
    let size = members as usize + 1;
    let mut safe = vec![0; size];
    let mut runs = vec![0i128; size];
    runs[0] = 1;
    for others in 1..size {
        runs = (0..size)
            .map(|j| {
                (0..copies as usize).filter_map(|run| j.checked_sub(run)).map(|j| runs[j]).sum()
            })
            .collect();
        safe[size - 1 - others] = runs[size - 1 - others] * i128::from(members) / others as i128;
    }
    safe
}

/// The number of sets of j of `members` on a circle with `copies` consecutive ones, for every j.
pub(crate) fn losing_sets(members: u32, copies: u32) -> Vec<u64> {
    let mut all = 1u128;
    let lose = |(j, safe): (u32, i128)| {
        if j > 0 {
            all = all * u128::from(members + 1 - j) / u128::from(j);
        }
        (all as i128 - safe) as u64
    };
    (0..).zip(safe_sets(members, copies)).map(lose).collect()
}

/// The quotient of two large numbers, a at most b, to the precision of `f64`; it never falls when the true one grows.
fn ratio(a: &BigUint, b: &BigUint) -> f64 {
    let shift = 64 + b.bits().saturating_sub(a.bits());
    let digits = ((a << shift) / b)
        .iter_u64_digits()
        .rev()
        .fold(0u128, |high, low| high << 64 | u128::from(low));
    let half = (shift / 2) as i32;
    digits as f64 * 2f64.powi(-half) * 2f64.powi(half - shift as i32)
}

/// The probabilities of loss of any placement on at most 20 units, by counting all sets of failed units.
pub fn enumerate(placement: &ReplicaPlacement, unit: FailureUnit) -> Result<Vec<f64>> {
    let topology = placement.topology();
    let units = topology.count(unit);
    if units > MOST_ENUMERATED {
        return Err(Error::usage(format!(
            "{units} units are too many to count all sets of them: at most {MOST_ENUMERATED}"
        )));
    }
    let set = |id| {
        placement
            .holders(RangeId(id))
            .iter()
            .fold(0u32, |set, rank| set | 1 << topology.unit_of(unit, *rank))
    };
    let sets: BTreeSet<u32> = (0..placement.ranges()).map(set).collect();
    let mut counts = vec![(0f64, 0f64); units as usize + 1];
    for failed in 0u32..1 << units {
        let (lost, all) = &mut counts[failed.count_ones() as usize];
        *all += 1.0;
        *lost += f64::from(u8::from(sets.iter().any(|set| set & !failed == 0)));
    }
    Ok(counts.into_iter().map(|(lost, all)| lost / all).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replica::loss::{LossModel, placement_for_loss};
    use proptest::prelude::*;

    fn exact(ranks: u32, copies: u32, per_node: u32, unit: FailureUnit) -> Option<Vec<f64>> {
        let placement = placement_for_loss(ranks, copies, per_node).unwrap();
        LossModel::new(&placement, unit).unwrap().and_then(|model| model.exact_curve())
    }

    fn same(a: &[f64], b: &[f64]) -> bool {
        a.len() == b.len() && a.iter().zip(b).all(|(a, b)| (a - b).abs() <= 1e-14 * b)
    }

    /// The paper's alternating sum in exact fractions.
    fn inclusion_exclusion(p: u32, r: u32, f: u32) -> f64 {
        let choose = |n: u32, k: u32| (1..=k).fold(BigUint::from(1u8), |c, i| c * (n - k + i) / i);
        let mut lost = BigInt::from(0);
        for j in 1..=(f / r).min(p / r) {
            let term = BigInt::from(choose(p / r, j) * choose(p - j * r, f - j * r));
            if j % 2 == 1 { lost += term } else { lost -= term }
        }
        ratio(lost.magnitude(), &choose(p, f))
    }

    #[test]
    fn every_small_machine_is_equal_to_counting_all_sets() {
        for ranks in 1..=13 {
            for copies in 1..=5 {
                let counted =
                    enumerate(&placement_for_loss(ranks, copies, 1).unwrap(), FailureUnit::Rank)
                        .unwrap();
                assert!(
                    same(&exact(ranks, copies, 1, FailureUnit::Rank).unwrap(), &counted),
                    "{ranks} {copies}"
                );
            }
        }
        for (nodes, per_node, copies) in [(8, 3, 2), (9, 2, 2), (12, 2, 4), (13, 2, 2), (10, 3, 3)]
        {
            let ranks = nodes * per_node;
            let counted =
                enumerate(&placement_for_loss(ranks, copies, per_node).unwrap(), FailureUnit::Node)
                    .unwrap();
            assert!(
                same(&exact(ranks, copies, per_node, FailureUnit::Node).unwrap(), &counted),
                "{nodes} {copies}"
            );
        }
        let large = placement_for_loss(21, 2, 1).unwrap();
        assert!(
            enumerate(&large, FailureUnit::Rank).unwrap_err().to_string().contains("at most 20")
        );
    }

    #[test]
    fn losing_sets_of_small_circles() {
        assert_eq!(losing_sets(4, 4), [0, 0, 0, 0, 1]);
        assert_eq!(losing_sets(5, 4), [0, 0, 0, 0, 5, 1]);
        assert_eq!(losing_sets(5, 2), [0, 0, 5, 10, 5, 1]);
        assert_eq!((losing_sets(1, 1), losing_sets(3, 1)), (vec![0, 1], vec![0, 3, 3, 1]));
        assert_eq!(losing_sets(63, 32).iter().filter(|sets| **sets > 0).count(), 32);
    }

    /// The tiny probabilities at the beginning are not lost to cancellation.
    #[test]
    fn the_largest_exact_machine_begins_with_one_group() {
        let (p, r) = (1u32 << 14, 4);
        let curve = exact(p, r, 1, FailureUnit::Rank).unwrap();
        let fours: f64 = (0..4).map(|i| f64::from(p - i) / f64::from(i + 1)).product();
        assert_eq!(curve[..4], [0.0; 4]);
        assert!((curve[4] * fours / f64::from(p / r) - 1.0).abs() < 1e-14);
        assert!(curve.is_sorted() && curve.last() == Some(&1.0));
        // The most that can fail without a loss: all but one of each group.
        assert!(curve[12_289..].iter().all(|lost| *lost == 1.0));
        for f in [5, 100, 1500] {
            assert!((curve[f as usize] / inclusion_exclusion(p, r, f) - 1.0).abs() < 1e-14, "{f}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]
        #[test]
        fn the_papers_sum_in_exact_arithmetic_is_the_same(groups in 1u32..60, copies in 1u32..6, part in 0.0..1.0) {
            let p = groups * copies;
            let curve = exact(p, copies, 1, FailureUnit::Rank).unwrap();
            let f = (f64::from(p) * part) as u32;
            let paper = inclusion_exclusion(p, copies, f);
            prop_assert!((curve[f as usize] - paper).abs() <= 1e-14 * paper);
        }

        /// Where both numbers of copies divide the ranks. Otherwise larger groups with more sets of holders can outweigh
        /// the additional copy: of 54 ranks, 42 sets of 7 instead of 9 sets of 6.
        #[test]
        fn more_copies_lose_less(factor in 1u32..12, copies in 1u32..5) {
            let ranks = factor * copies * (copies + 1);
            let fewer = exact(ranks, copies, 1, FailureUnit::Rank).unwrap();
            let more = exact(ranks, copies + 1, 1, FailureUnit::Rank).unwrap();
            prop_assert!(more.iter().zip(&fewer).all(|(more, fewer)| more <= fewer));
        }

        #[test]
        fn more_failures_lose_more(ranks in 1u32..300, copies in 1u32..8) {
            let curve = exact(ranks, copies, 1, FailureUnit::Rank).unwrap();
            prop_assert!(curve.is_sorted());
            prop_assert_eq!((curve[0], curve[ranks as usize]), (0.0, 1.0));
        }
    }
}
