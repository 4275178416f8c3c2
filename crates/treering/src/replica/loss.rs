//! Probability that random failures destroy all copies of some data, without remaking in between.
//!
//! The placement deals failure units (ranks or nodes) to groups with data of their own. Data is lost when r cyclically
//! consecutive members of a group have failed; if r divides the number of units, groups have r members, and this is
//! section IV-D of ReStore (Hübner et al., 2022). The paper's alternating sum cancels catastrophically in floating
//! point. Here, up to 2^14 units the sets of f failed units without loss are counted by integers (see `loss_exact`).
//! Beyond, the value is a lower bound of the probability P, and the error is its distance to an upper bound. Let I_i be
//! 1 if group i is lost and 0 if not, q_i = E I_i, W = Σ I_i and λ = Σ q_i, so that P = Pr(W > 0).
//!
//! *Coupling.* Let K of the f failures be in group i. The others are the first f - K units of a random order of the
//! other groups' units. Given I_i = 1, K is stochastically larger, because the share of sets of K members that lose data
//! grows with K. With one order for both, the failures of the other groups given I_i = 1 are a subset of what they are
//! without the condition. Let J_j be the I_j under the condition: J_j ≤ I_j for all j ≠ i.
//!
//! *Lower bound.* Let A be the event that none of some other groups is lost. By the coupling Pr(A | I_i = 1) ≥ Pr(A),
//! hence Pr(I_i = 0 | A) ≤ 1 - q_i, and group by group Pr(W = 0) ≤ Π (1 - q_i).
//!
//! *Upper bound* (Chen-Stein). The function h(w + 1) = ∫ v^w e^(-λv) dv over [0, 1] falls, is convex, and by partial
//! integration solves λ h(w + 1) - w h(w) = 1{w = 0} - e^-λ. The expectation of this at W, with
//! E I_i h(W) = q_i E h(1 + Σ J_j), is Pr(W = 0) - e^-λ = Σ q_i E [h(1 + W) - h(1 + Σ J_j)]. Here W ≥ Σ J_j, and h falls
//! by at most h(1) - h(2) = (λ - 1 + e^-λ) / λ² from one number to the next. With E (W - Σ J_j) =
//! q_i + Σ_(j≠i) (q_j - E I_i I_j / q_i) this gives
//!
//! P ≤ 1 - e^-λ + (λ - 1 + e^-λ) / λ² · (Σ q_i² + Σ_(i≠j) (q_i q_j - E I_i I_j)), and P ≤ λ.
//!
//! Apart from the differences q_i q_j - E I_i I_j, which concern the error only, all sums have positive terms.
//!
//! If every rank fails at its own uniform time in [0, 1], then the groups are independent at each time, and the expected
//! time of the first loss times p + 1 is the expected number of failures until then. This makes the expectation an
//! integral of one smooth function for any number of ranks.

use crate::error::{Error, Result};
use crate::replica::loss_exact;
use crate::replica::placement::{FirstCopy, ReplicaLayout, ReplicaPlacement, UnitGroups};
use crate::replica::topology::{FailureUnit, Topology};

/// The largest number of units for which probabilities are exact.
pub const MOST_EXACT: u32 = 1 << 14;

/// The largest number of copies for which probabilities are computed.
pub const MOST_COPIES: u32 = 32;

/// A probability of loss and its accuracy.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LossProbability {
    /// The probability.
    pub value: f64,
    /// 0 if exact. If approximate, a proven bound: the probability is at most value + error. If simulated, the standard
    /// error.
    pub error: f64,
}

/// Groups with the same number of members.
#[derive(Clone, Debug, PartialEq)]
struct GroupKind {
    groups: f64,
    members: u32,
    /// The number of sets of j members that lose data, for every j.
    losing: Vec<f64>,
}

/// The probability of loss of a placement when units fail at random.
#[derive(Clone, Debug, PartialEq)]
pub struct LossModel {
    groups: UnitGroups,
    kinds: Vec<GroupKind>,
}

/// A placement of ranks on nodes of `per_node` consecutive ranks, with data on every rank: the probability of loss
/// depends on the groups of holders only.
pub fn placement_for_loss(ranks: u32, copies: u32, per_node: u32) -> Result<ReplicaPlacement> {
    let layout = ReplicaLayout {
        blocks: 64 * u64::from(ranks),
        range_blocks: 1,
        copies,
        seed: None,
        first_copy: FirstCopy::Permuted,
    };
    ReplicaPlacement::new(layout, Topology::blocks(ranks, per_node)?)
}

impl LossModel {
    /// The model of a placement whose units fail at random. `None` if whole units do not form groups: nodes of unequal
    /// size, domains of more than p/r ranks, first copies on the submitters, fewer ranges than ranks. Simulation and,
    /// up to 20 units, [`loss_exact::enumerate`] work for all of them.
    pub fn new(placement: &ReplicaPlacement, unit: FailureUnit) -> Result<Option<Self>> {
        placement.unit_groups(unit).map(Self::of_groups).transpose()
    }

    /// The model of units that are dealt to groups.
    pub fn of_groups(groups: UnitGroups) -> Result<Self> {
        let UnitGroups { units, groups: columns, copies } = groups;
        if copies == 0 || copies > MOST_COPIES || columns == 0 || columns > units / copies {
            return Err(Error::usage(format!(
                "no probability of loss for {copies} copies in {columns} groups of {units} ranks or nodes: \
                 expected 1 to {MOST_COPIES} copies and as many members in each group"
            )));
        }
        let (rows, longer) = (units / columns, units % columns);
        if rows >= 2 * MOST_COPIES {
            return Err(Error::usage(format!(
                "groups of {rows} are too large for a probability of loss"
            )));
        }
        let kind = |(members, count): (u32, u32)| {
            let losing = loss_exact::losing_sets(members, copies)
                .into_iter()
                .map(|sets| sets as f64)
                .collect();
            (count > 0).then_some(GroupKind { groups: f64::from(count), members, losing })
        };
        let kinds =
            [(rows, columns - longer), (rows + 1, longer)].into_iter().filter_map(kind).collect();
        Ok(LossModel { groups, kinds })
    }

    /// The number of units.
    pub fn units(&self) -> u32 {
        self.groups.units
    }

    /// The exact probabilities for 0, 1, … failures, if there are at most [`MOST_EXACT`] units.
    pub fn exact_curve(&self) -> Option<Vec<f64>> {
        (self.units() <= MOST_EXACT).then(|| loss_exact::curve(self.groups, self.units()))
    }

    /// The probability that the first `failures` failures lose data, with a bound of its error, for any number of units
    /// in constant time.
    pub fn approximate(&self, failures: u32) -> LossProbability {
        let (p, f) = (f64::from(self.units()), f64::from(failures.min(self.units())));
        let alone: Vec<f64> = self.kinds.iter().map(|kind| lost(kind, p, f)).collect();
        let mean: f64 = self.kinds.iter().zip(&alone).map(|(kind, q)| kind.groups * q).sum();
        if mean == 0.0 {
            return LossProbability { value: 0.0, error: 0.0 };
        }
        let none: f64 =
            self.kinds.iter().zip(&alone).map(|(kind, q)| kind.groups * (-q).ln_1p()).sum();
        let value = -none.exp_m1();
        // The mean of W less its variance.
        let mut missing: f64 =
            self.kinds.iter().zip(&alone).map(|(kind, q)| kind.groups * q * q).sum();
        for (i, a) in self.kinds.iter().enumerate() {
            for (j, b) in self.kinds.iter().enumerate() {
                let pairs = a.groups * (b.groups - if i == j { 1.0 } else { 0.0 });
                let together = if pairs > 0.0 { both_lost(a, b, p, f) } else { 0.0 };
                missing += pairs * (alone[i] * alone[j] - together).max(0.0);
            }
        }
        let upper = (-(-mean).exp_m1() + steepest(mean) * missing).min(mean).min(1.0);
        LossProbability { value, error: (upper - value).max(0.0) }
    }

    /// The expected number of failures up to and including the first one that loses data.
    pub fn expected_failures(&self) -> f64 {
        (f64::from(self.units()) + 1.0) * integral_to_zero(|time| self.safe_at(time))
    }

    /// The probability of no loss if every unit has failed with probability `time`, independently.
    fn safe_at(&self, time: f64) -> f64 {
        let safe = |kind: &GroupKind| {
            let term = |(j, sets): (i32, &f64)| {
                sets * time.powi(j) * (1.0 - time).powi(kind.members as i32 - j)
            };
            let lost: f64 = (0..).zip(&kind.losing).map(term).sum();
            kind.groups * (-lost.min(1.0)).ln_1p()
        };
        self.kinds.iter().map(safe).sum::<f64>().exp()
    }
}

/// (λ - 1 + e^-λ) / λ², the largest step of the function of Chen and Stein; at most 1/2, which serves where the
/// difference would cancel.
fn steepest(mean: f64) -> f64 {
    if mean < 0.01 { 0.5 } else { (mean + (-mean).exp_m1()) / (mean * mean) }
}

/// The probability that a group is lost when f of p units have failed.
fn lost(kind: &GroupKind, p: f64, f: f64) -> f64 {
    let term = |(j, sets): (u32, &f64)| {
        if *sets == 0.0 { 0.0 } else { sets * drawn(p, f, j, kind.members - j) }
    };
    (0..).zip(&kind.losing).map(term).sum::<f64>().min(1.0)
}

/// The probability that two groups are lost.
fn both_lost(a: &GroupKind, b: &GroupKind, p: f64, f: f64) -> f64 {
    let mut sum = 0.0;
    for (i, in_a) in (0..).zip(&a.losing).filter(|(_, sets)| **sets > 0.0) {
        for (j, in_b) in (0..).zip(&b.losing).filter(|(_, sets)| **sets > 0.0) {
            sum += in_a * in_b * drawn(p, f, i + j, a.members + b.members - i - j);
        }
    }
    sum
}

/// The probability that `failed` given units have failed and `living` given others have not, if f of p have failed.
fn drawn(p: f64, f: f64, failed: u32, living: u32) -> f64 {
    let failures = (0..failed).map(|i| (f - f64::from(i)).max(0.0) / (p - f64::from(i)));
    let rest = p - f64::from(failed);
    let lives = (0..living).map(|i| (p - f - f64::from(i)).max(0.0) / (rest - f64::from(i)));
    failures.chain(lives).product()
}

/// The integral over [0, 1] of a function that falls from 1 to 0: Gauss-Legendre with 4 points in each of 2,048 parts
/// of the interval in which it is above 1e-20.
fn integral_to_zero(f: impl Fn(f64) -> f64) -> f64 {
    let (mut low, mut high) = (0.0, 1.0);
    for _ in 0..60 {
        let middle = 0.5 * (low + high);
        *(if f(middle) > 1e-20 { &mut low } else { &mut high }) = middle;
    }
    const POINTS: [(f64, f64); 2] = [
        (0.339_981_043_584_856_3, 0.652_145_154_862_546_1),
        (0.861_136_311_594_052_6, 0.347_854_845_137_453_85),
    ];
    let half = high / 4096.0;
    let part = |at: u32| {
        let centre = half * f64::from(2 * at + 1);
        POINTS
            .iter()
            .map(|(x, weight)| weight * (f(centre - half * x) + f(centre + half * x)))
            .sum::<f64>()
    };
    (0..2048).map(part).sum::<f64>() * half
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn model(ranks: u32, copies: u32, per_node: u32, unit: FailureUnit) -> LossModel {
        LossModel::new(&placement_for_loss(ranks, copies, per_node).unwrap(), unit)
            .unwrap()
            .unwrap()
    }

    #[test]
    fn figures_of_the_paper() {
        let largest = model(1 << 25, 4, 1, FailureUnit::Rank);
        let fraction = largest.expected_failures() / f64::from(1 << 25);
        assert_eq!(format!("{:.2} %", 100.0 * fraction), "1.68 %");
        // ∫ (1 - t^r)^g dt = Π i / (i + 1/r) for i up to g.
        let product: f64 = (1..=1 << 23).map(|i| f64::from(i) / (f64::from(i) + 0.25)).product();
        let closed = product * (f64::from(1 << 25) + 1.0) / f64::from(1 << 25);
        assert!((fraction / closed - 1.0).abs() < 1e-9, "{fraction} {closed}");
    }

    #[test]
    fn the_expectation_is_the_sum_over_the_exact_curve() {
        for (ranks, copies) in
            [(1, 1), (2, 2), (5, 2), (7, 4), (12, 3), (100, 4), (1001, 4), (1000, 1), (63, 32)]
        {
            let model = model(ranks, copies, 1, FailureUnit::Rank);
            let curve = model.exact_curve().unwrap();
            let sum: f64 = curve.iter().map(|lost| 1.0 - lost).sum();
            let expected = model.expected_failures();
            assert!((expected / sum - 1.0).abs() < 1e-9, "{ranks} {copies}: {expected} {sum}");
        }
    }

    #[test]
    fn nodes_that_fail_as_a_whole_are_ranks_of_a_smaller_machine() {
        for (nodes, per_node, copies) in [(48, 8, 4), (1025, 48, 4), (7, 3, 2)] {
            let by_node = model(nodes * per_node, copies, per_node, FailureUnit::Node);
            assert_eq!(by_node, model(nodes, copies, 1, FailureUnit::Rank));
            assert!(
                model(nodes * per_node, copies, per_node, FailureUnit::Rank).units()
                    == nodes * per_node
            );
        }
        let uneven = placement_for_loss(10, 2, 4).unwrap();
        assert_eq!(LossModel::new(&uneven, FailureUnit::Node).unwrap(), None);
        let error = LossModel::new(&placement_for_loss(1000, 33, 1).unwrap(), FailureUnit::Rank)
            .unwrap_err();
        assert!(error.to_string().contains("1 to 32 copies"), "{error}");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn the_approximation_keeps_its_bound(ranks in 1u32..700, copies in 1u32..6) {
            let model = model(ranks, copies, 1, FailureUnit::Rank);
            let mut before = 0.0;
            for (f, exact) in (0..).zip(model.exact_curve().unwrap()) {
                let LossProbability { value, error } = model.approximate(f);
                let rounding = 1e-11 * exact;
                prop_assert!(value <= exact + rounding && exact <= value + error + rounding, "{f}: {value} {exact} {error}");
                prop_assert!(value >= before);
                before = value;
            }
        }
    }

    #[test]
    fn the_largest_exact_machines_are_within_narrow_bounds() {
        for (ranks, copies, limit) in [(1 << 14, 4, 0.02), (16_381, 3, 0.02), (16_383, 2, 0.04)] {
            let model = model(ranks, copies, 1, FailureUnit::Rank);
            let mut widest = 0f64;
            for (f, exact) in (0..).zip(model.exact_curve().unwrap()).step_by(5) {
                let LossProbability { value, error } = model.approximate(f);
                let rounding = 1e-11 * exact;
                assert!(
                    value <= exact + rounding && exact <= value + error + rounding,
                    "{ranks} {f}"
                );
                widest = widest.max(error);
            }
            assert!(widest > 0.0 && widest < limit, "{ranks} {copies}: {widest}");
        }
    }

    #[test]
    fn the_bound_is_narrow_for_many_ranks() {
        for (ranks, failures, widest) in
            [(1 << 16, 4_000, 0.01), (1 << 20, 40_000, 0.0015), (1 << 25, 563_000, 2e-4)]
        {
            let model = model(ranks, 4, 1, FailureUnit::Rank);
            let LossProbability { value, error } = model.approximate(failures);
            assert!(
                value > 0.05 && value < 0.95 && error < widest * value,
                "{ranks}: {value} {error}"
            );
        }
        assert_eq!(model(1 << 25, 4, 1, FailureUnit::Rank).approximate(3).value, 0.0);
        assert_eq!(model(1 << 25, 4, 1, FailureUnit::Rank).approximate(1 << 25).value, 1.0);
    }
}
