//! The number of failures that a machine survives: the question and its answer, by the most exact way there is.
//!
//! | way | where | error |
//! |---|---|---|
//! | exact | up to 2^14 units that are dealt to groups | none but rounding |
//! | counted | any placement on at most 20 units | none but rounding |
//! | approximate | more units that are dealt to groups | a proven bound |
//! | simulated | any placement, on request | the standard error |
//!
//! A unit is a rank, or a node if several ranks fail together.

use super::loss::{LossModel, LossProbability, MOST_COPIES, placement_for_loss};
use super::loss_exact::{self, MOST_ENUMERATED};
use super::loss_simulation::{LossSimulation, simulate};
use super::placement::ReplicaPlacement;
use super::topology::FailureUnit;
use crate::error::{Error, Result};
use serde::Serialize;

/// The largest number of ranks.
const MOST_RANKS: u64 = 1 << 30;

/// The largest number of ranks that are simulated, or are on nodes of unequal size.
const MOST_SIMULATED: u64 = 1 << 25;

const MOST_SIMULATIONS: u64 = 10_000_000;

/// Simulations begin here, so that the same question has the same answer.
const SEED: u64 = 14;

/// The probabilities whose numbers of failures are reported.
const LEVELS: [f64; 8] = [1e-9, 1e-6, 1e-4, 0.01, 0.1, 0.5, 0.9, 0.99];

/// The most numbers of failures that are all reported.
const MOST_ROWS: u32 = 12;

/// The machine and the replicas whose probability of loss [`loss`] computes.
///
/// ```
/// use treering::{LossSettings, loss};
/// let nodes = LossSettings { ranks_per_node: 48, ..LossSettings::new(24_576, 4) };
/// let report = loss(&nodes, &|_, _| {})?;
/// assert_eq!((report.unit, report.units), ("node", 512));
/// # Ok::<(), treering::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LossSettings {
    /// The number of ranks.
    pub ranks: u64,
    /// The number of copies of everything.
    pub replicas: u64,
    /// The number of consecutive ranks on a node, which fail together. Default: 1.
    pub ranks_per_node: u64,
    /// Simulate random failures this many times. Default: no simulation.
    pub simulations: Option<u64>,
}

impl LossSettings {
    /// Ranks that fail one by one.
    pub fn new(ranks: u64, replicas: u64) -> Self {
        LossSettings { ranks, replicas, ranks_per_node: 1, simulations: None }
    }

    fn check(&self) -> Result<LossMachine> {
        let LossSettings { ranks, replicas, ranks_per_node, simulations } = *self;
        let refuse = |what: String| Err(Error::usage(what));
        if ranks == 0 || ranks > MOST_RANKS {
            return refuse(format!("invalid number of ranks {ranks}: expected 1 to {MOST_RANKS}"));
        }
        if replicas == 0 || replicas > u64::from(MOST_COPIES) {
            return refuse(format!(
                "invalid number of replicas {replicas}: expected 1 to {MOST_COPIES}"
            ));
        }
        if replicas > ranks {
            return refuse(format!(
                "{replicas} replicas need as many ranks, and there are only {ranks}"
            ));
        }
        if ranks_per_node == 0 || ranks_per_node > ranks {
            return refuse(format!(
                "invalid number of ranks on a node {ranks_per_node}: expected 1 to {ranks}, the number of ranks"
            ));
        }
        if let Some(count) = simulations.filter(|count| !(2..=MOST_SIMULATIONS).contains(count)) {
            return refuse(format!(
                "invalid number of simulations {count}: expected 2 to {MOST_SIMULATIONS}"
            ));
        }
        let listed = simulations.is_some() || !ranks.is_multiple_of(ranks_per_node);
        if listed && ranks > MOST_SIMULATED {
            return refuse(format!(
                "{ranks} ranks are too many for a simulation or for nodes of unequal size: expected at most \
                 {MOST_SIMULATED}"
            ));
        }
        Ok(LossMachine {
            ranks: ranks as u32,
            replicas: replicas as u32,
            ranks_per_node: ranks_per_node as u32,
        })
    }
}

/// Ranks, copies and nodes of a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LossMachine {
    pub(crate) ranks: u32,
    pub(crate) replicas: u32,
    pub(crate) ranks_per_node: u32,
}

impl LossMachine {
    fn unit(self) -> FailureUnit {
        if self.ranks_per_node > 1 { FailureUnit::Node } else { FailureUnit::Rank }
    }

    fn placement(self) -> Result<ReplicaPlacement> {
        placement_for_loss(self.ranks, self.replicas, self.ranks_per_node)
    }

    /// The probabilities by formula. `None` if there is none, and simulation is the only way.
    pub(crate) fn curve(self) -> Result<Option<LossCurve>> {
        LossCurve::of_placement(&self.placement()?, self.unit())
    }
}

/// Probabilities of loss after any number of failures.
#[derive(Clone, Debug)]
pub(crate) struct LossCurve {
    units: u32,
    expected_failures: f64,
    way: LossWay,
}

#[derive(Clone, Debug)]
enum LossWay {
    Exact(Vec<f64>),
    Counted(Vec<f64>),
    Approximate(LossModel),
    Simulated(LossSimulation),
}

impl LossCurve {
    fn of_placement(placement: &ReplicaPlacement, unit: FailureUnit) -> Result<Option<Self>> {
        let units = placement.topology().count(unit);
        if let Some(model) = LossModel::new(placement, unit)? {
            let expected_failures = model.expected_failures();
            let way = match model.exact_curve() {
                Some(curve) => LossWay::Exact(curve),
                None => LossWay::Approximate(model),
            };
            return Ok(Some(LossCurve { units, expected_failures, way }));
        }
        // Every range is looked at.
        if units > MOST_ENUMERATED || placement.ranges() > 1 << 26 {
            return Ok(None);
        }
        let curve = loss_exact::enumerate(placement, unit)?;
        let expected_failures = curve.iter().map(|lost| 1.0 - lost).sum();
        Ok(Some(LossCurve { units, expected_failures, way: LossWay::Counted(curve) }))
    }

    fn simulated(simulation: LossSimulation) -> Self {
        let units = simulation.units();
        let expected_failures = simulation.expected_failures_fraction() * f64::from(units);
        LossCurve { units, expected_failures, way: LossWay::Simulated(simulation) }
    }

    /// The number of ranks or nodes.
    pub(crate) fn units(&self) -> u32 {
        self.units
    }

    /// The expected share of units that fail up to and including the failure that loses data.
    pub(crate) fn expected_failures_fraction(&self) -> f64 {
        self.expected_failures / f64::from(self.units)
    }

    fn method(&self) -> &'static str {
        match self.way {
            LossWay::Exact(_) => "exact",
            LossWay::Counted(_) => "counted",
            LossWay::Approximate(_) => "approximate",
            LossWay::Simulated(_) => "simulated",
        }
    }

    /// The probability that the first `failures` failures lose data.
    pub(crate) fn probability(&self, failures: u32) -> LossProbability {
        let failures = failures.min(self.units);
        match &self.way {
            LossWay::Exact(curve) | LossWay::Counted(curve) => {
                LossProbability { value: curve[failures as usize], error: 0.0 }
            }
            LossWay::Approximate(model) => model.approximate(failures),
            LossWay::Simulated(simulation) => simulation.probability(failures),
        }
    }

    /// The smallest number of failures that lose data with at least this probability.
    pub(crate) fn failures_until(&self, probability: f64) -> u32 {
        let (mut low, mut high) = (0, self.units);
        while low < high {
            let middle = low + (high - low) / 2;
            if self.probability(middle).value >= probability {
                high = middle;
            } else {
                low = middle + 1;
            }
        }
        low
    }
}

/// The probability that a number of failures loses data: one of [`LossReport::probabilities`]. [`loss`] has an example.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct LossPoint {
    /// The number of failed ranks, or of failed nodes.
    pub failures: u32,
    /// The number of failures as a fraction of all ranks or nodes.
    pub fraction: f64,
    /// The probability of loss.
    pub probability: f64,
    /// 0 if exact. If approximate, the probability is at most `probability + error`. If simulated, the standard error.
    pub error: f64,
    /// The share of simulations that had lost data by then.
    pub simulated: Option<f64>,
    /// The standard error of `simulated`.
    pub simulated_error: Option<f64>,
}

/// The probability of irrecoverable loss on a machine. Returned by [`loss`], which has an example.
#[derive(Clone, Debug, Serialize)]
pub struct LossReport {
    /// The number of ranks.
    pub ranks: u32,
    /// The number of copies of everything.
    pub replicas: u32,
    /// The number of ranks on a node.
    pub ranks_per_node: u32,
    /// Unit of failure: "rank" or "node".
    pub unit: &'static str,
    /// The number of ranks or nodes.
    pub units: u32,
    /// Method of computation: "exact", "counted" (exact, too), "approximate" or "simulated".
    pub method: &'static str,
    /// The expected number of failures up to and including the one that loses data, in units.
    pub expected_failures: f64,
    /// The expected number of failures as a fraction of all ranks or nodes.
    pub expected_failures_fraction: f64,
    /// The number of simulations.
    pub simulations: u32,
    /// The mean fraction of ranks or nodes that failed in simulations until data was lost.
    pub simulated_failures_fraction: Option<f64>,
    /// The standard error of `simulated_failures_fraction`.
    pub simulated_standard_error: Option<f64>,
    /// The probabilities of loss after the numbers of failures at which they matter, in ascending order.
    pub probabilities: Vec<LossPoint>,
    #[serde(skip)]
    curve: LossCurve,
    #[serde(skip)]
    simulation: Option<LossSimulation>,
}

impl LossReport {
    pub(crate) fn machine(&self) -> LossMachine {
        let LossReport { ranks, replicas, ranks_per_node, .. } = *self;
        LossMachine { ranks, replicas, ranks_per_node }
    }

    pub(crate) fn curve(&self) -> &LossCurve {
        &self.curve
    }

    pub(crate) fn simulated(&self, failures: u32) -> Option<LossProbability> {
        self.simulation.as_ref().map(|simulation| simulation.probability(failures))
    }
}

/// Computes the probability that random failures of ranks or nodes destroy all copies of some data, if no lost copy
/// is made again. During simulations, the function `told` is called with the number that are done and the number of
/// all.
///
/// ```
/// let report = treering::loss(&treering::LossSettings::new(1 << 25, 4), &|_, _| {})?;
/// assert_eq!(format!("{:.2} %", 100.0 * report.expected_failures_fraction), "1.68 %");
/// for point in &report.probabilities {
///     println!("after {} failures data is lost with probability {}", point.failures, point.probability);
/// }
/// # Ok::<(), treering::Error>(())
/// ```
pub fn loss(settings: &LossSettings, told: &(dyn Fn(u64, u64) + Sync)) -> Result<LossReport> {
    let machine = settings.check()?;
    let (placement, unit) = (machine.placement()?, machine.unit());
    let formula = LossCurve::of_placement(&placement, unit)?;
    let run = |count| simulate(&placement, unit, count as u32, SEED, told);
    let simulation = settings.simulations.map(run).transpose()?;
    let Some(curve) = formula.or_else(|| simulation.clone().map(LossCurve::simulated)) else {
        return Err(Error::usage(format!(
            "there is no formula for {} replicas on {} ranks with {} on each node",
            machine.replicas, machine.ranks, machine.ranks_per_node
        ))
        .hint("add --simulate 1000, or choose ranks that fill whole nodes"));
    };
    let simulated = simulation.as_ref();
    Ok(LossReport {
        ranks: machine.ranks,
        replicas: machine.replicas,
        ranks_per_node: machine.ranks_per_node,
        unit: if unit == FailureUnit::Node { "node" } else { "rank" },
        units: curve.units,
        method: curve.method(),
        expected_failures: curve.expected_failures,
        expected_failures_fraction: curve.expected_failures_fraction(),
        simulations: simulated.map_or(0, |s| s.failures().len() as u32),
        simulated_failures_fraction: simulated.map(LossSimulation::expected_failures_fraction),
        simulated_standard_error: simulated.map(LossSimulation::standard_error),
        probabilities: points(&curve, simulated),
        curve,
        simulation,
    })
}

/// The last number of failures without any loss, and the first ones at which probabilities reach their levels; all
/// numbers in between if they are few.
fn points(curve: &LossCurve, simulation: Option<&LossSimulation>) -> Vec<LossPoint> {
    let safe = curve.failures_until(f64::MIN_POSITIVE).saturating_sub(1);
    let levels = LEVELS.map(|level| curve.failures_until(level));
    let mut failures: Vec<u32> = match (safe, levels[LEVELS.len() - 1]) {
        (safe, last) if last - safe < MOST_ROWS => (safe..=last).collect(),
        _ => [safe].into_iter().chain(levels).collect(),
    };
    failures.dedup();
    let point = |failures: u32| {
        let LossProbability { value, error } = curve.probability(failures);
        let simulated = simulation.map(|simulation| simulation.probability(failures));
        LossPoint {
            failures,
            fraction: f64::from(failures) / f64::from(curve.units),
            probability: value,
            error,
            simulated: simulated.map(|s| s.value),
            simulated_error: simulated.map(|s| s.error),
        }
    };
    failures.into_iter().map(point).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(ranks: u64, replicas: u64, node: u64, simulations: Option<u64>) -> Result<LossReport> {
        let settings = LossSettings { ranks, replicas, ranks_per_node: node, simulations };
        loss(&settings, &|_, _| {})
    }

    #[test]
    fn every_way_is_taken_where_it_is_the_best() {
        for (ranks, replicas, node, simulations, method, units) in [
            (16_384, 4, 1, None, "exact", 16_384),
            (16_385, 4, 1, None, "approximate", 16_385),
            (1 << 25, 4, 64, None, "approximate", 1 << 19),
            (4096, 4, 16, Some(100), "exact", 256),
            (10, 2, 4, None, "counted", 3),
            (8, 4, 8, None, "counted", 1),
            (1001, 2, 4, Some(200), "simulated", 251),
        ] {
            let report = ask(ranks, replicas, node, simulations).unwrap();
            assert_eq!((report.method, report.units), (method, units));
            let points = &report.probabilities;
            assert!(points.is_sorted_by(|a, b| a.failures < b.failures), "{points:?}");
            assert!(points.is_sorted_by(|a, b| a.probability <= b.probability));
            assert_eq!(points[0].probability, 0.0);
            assert!(points.last().unwrap().probability >= 0.99);
            assert_eq!(
                points.iter().all(|p| p.error == 0.0),
                matches!(method, "exact" | "counted")
            );
            assert_eq!(report.simulations, simulations.unwrap_or(0) as u32);
            assert_eq!(points[0].simulated.is_some(), simulations.is_some());
        }
        let error = ask(1001, 2, 4, None).unwrap_err().to_string();
        assert!(error.contains("no formula") && error.contains("--simulate"), "{error}");
    }

    #[test]
    fn fewer_failures_than_copies_lose_nothing() {
        for replicas in 1..=6 {
            let report = ask(96, replicas, 1, None).unwrap();
            assert_eq!(u64::from(report.probabilities[0].failures), replicas - 1);
        }
    }

    #[test]
    fn bad_questions_are_refused_by_one_sentence() {
        for (ranks, replicas, node, simulations, words) in [
            (0, 1, 1, None, "number of ranks 0"),
            (u64::MAX, 4, 1, None, "number of ranks 18446744073709551615"),
            (8, 0, 1, None, "number of replicas 0"),
            (1000, 33, 1, None, "number of replicas 33"),
            (4, 5, 1, None, "5 replicas need as many ranks"),
            (8, 2, 0, None, "ranks on a node 0"),
            (8, 2, 9, None, "ranks on a node 9"),
            (8, 2, 1, Some(1), "number of simulations 1"),
            (8, 2, 1, Some(u64::MAX), "number of simulations 18446744073709551615"),
            (1 << 26, 2, 1, Some(2), "too many for a simulation"),
            ((1 << 26) + 1, 2, 2, None, "nodes of unequal size"),
        ] {
            let error = ask(ranks, replicas, node, simulations).unwrap_err();
            let text = error.to_string();
            assert!(text.contains(words) && !text.contains('\n'), "{text}");
            assert_eq!(error.kind(), crate::error::ErrorKind::Usage);
        }
    }
}
