//! The page of the probability of loss: Figure 3 of ReStore (Hübner et al., 2022) for the machine that was asked for
//! and for others beside it.
//!
//! The figures are drawn here, so that the page shows them without scripts, too.

use super::chart::{Axis, Chart, ChartMark, legend};
use super::loss::{percent, units};
use super::scales::{number, share_axis, size_axis, whole_percent};
use super::{dressed, escaped};
use crate::error::Result;
use crate::replica::{LossCurve, LossMachine, LossReport};
use rayon::prelude::*;

/// The page without its content.
const PAGE: &str = include_str!("loss.html");

/// Where the content goes.
const BODY: &str = "<!--__TREERING_BODY__-->";

/// The largest machine of the paper.
const LARGEST: u32 = 1 << 25;

/// A curve and how it is drawn.
struct DrawnCurve {
    words: String,
    /// Whether it is the one that was asked for.
    own: bool,
    curve: LossCurve,
}

/// Expectation and quantiles of the share of units that fail until data is lost.
struct SurvivedFailures {
    ranks: u32,
    replicas: u32,
    expected: f64,
    low: f64,
    high: f64,
}

impl LossReport {
    /// A page with figures, complete in one file; `created` is the time, as it is to be shown.
    pub fn html(&self, created: &str) -> Result<String> {
        let survivals = survivals(self)?;
        let body = [
            head(self),
            figure_of_curves(self)?,
            figure_of_sizes(self, &survivals),
            own_table(self),
            table_of_sizes(self, &survivals),
            format!(
                "<footer>Made by Treering {}, {}.</footer>",
                env!("CARGO_PKG_VERSION"),
                escaped(created)
            ),
        ];
        Ok(dressed(PAGE).replacen(BODY, &body.concat(), 1))
    }
}

fn head(report: &LossReport) -> String {
    let item = |name: &str, value: String, small: &str| {
        format!("<div><dt>{name}</dt><dd><b>{}</b>{small}</dd></div>", escaped(&value))
    };
    let nodes = match report.unit {
        "node" => item(
            "Nodes",
            number(report.units),
            &(units(report.ranks_per_node.into(), "rank") + " each"),
        ),
        _ => String::new(),
    };
    let simulated = match (report.simulated_failures_fraction, report.simulated_standard_error) {
        (Some(mean), Some(error)) => {
            item("Simulated", percent(mean), &format!("± {}", percent(error)))
        }
        _ => String::new(),
    };
    let [ranks, copies] = [number(report.ranks), report.replicas.to_string()];
    let expected = percent(report.expected_failures_fraction);
    let until = format!("{:.1} {}s until loss", report.expected_failures, report.unit);
    let safe = report.probabilities.first().map_or(0, |point| point.failures);
    format!(
        "<div class=\"verdict\"><p id=\"summary\">{}.</p><p id=\"more\">{}</p></div>\n<dl class=\"key\">{}{}{nodes}{}{}\
         {simulated}</dl>\n",
        escaped(&capital(&report.sentence())),
        escaped(
            &report.explanation().iter().map(|s| capital(s) + ".").collect::<Vec<_>>().join(" ")
        ),
        item("Ranks", ranks, ""),
        item("Replicas", copies, ""),
        item("Fail without any loss", number(safe), &format!("{}s", report.unit)),
        item("Fail on average", expected, &until),
    )
}

/// Probabilities over failures: numbers of replicas on this machine, and this number of replicas on other machines.
fn figure_of_curves(report: &LossReport) -> Result<String> {
    let own = report.machine();
    let machine_curve = |machine: LossMachine, words: String| -> Result<Option<DrawnCurve>> {
        if machine == own {
            return Ok(Some(DrawnCurve { words, own: true, curve: report.curve().clone() }));
        }
        Ok(machine.curve()?.map(|curve| DrawnCurve { words, own: false, curve }))
    };
    let gather = |machines: Vec<(LossMachine, String)>| -> Result<Vec<DrawnCurve>> {
        let curves: Vec<Option<DrawnCurve>> = machines
            .into_par_iter()
            .map(|(machine, words)| machine_curve(machine, words))
            .collect::<Result<_>>()?;
        Ok(curves.into_iter().flatten().collect())
    };
    let copies = replicas_shown(own)
        .into_iter()
        .map(|replicas| (LossMachine { replicas, ..own }, units(replicas.into(), "replica")));
    let mut sizes: Vec<u32> = [8, 12, 16, 20, 25].map(|power| 1 << power).to_vec();
    sizes.retain(|nodes: &u32| {
        let ranks = nodes.checked_mul(own.ranks_per_node);
        *nodes >= 2 * own.replicas && ranks.is_some_and(|ranks| ranks <= LARGEST)
    });
    let mut sizes: Vec<u32> = sizes.into_iter().map(|nodes| nodes * own.ranks_per_node).collect();
    sizes.push(own.ranks);
    sizes.sort_unstable();
    sizes.dedup();
    let sizes =
        sizes.into_iter().map(|ranks| (LossMachine { ranks, ..own }, number(ranks) + " ranks"));
    let (copies, sizes) = (gather(copies.collect())?, gather(sizes.collect())?);
    let dots = match report.simulations {
        0 => "",
        _ => " Dots: simulations on the real placement, with bars of two standard errors.",
    };
    let caption = format!(
        "Probability that data is lost for good, over the share of {}s that have failed. Left: {} ranks with different \
         numbers of replicas. Right: {} on machines of different sizes. The thick line is the machine that was asked \
         for.{dots} As Figure 3 (b) of ReStore (Hübner et al., 2022).",
        report.unit,
        number(report.ranks),
        units(report.replicas.into(), "replica")
    );
    Ok(format!(
        "<section><h2>How likely a loss is</h2><figure><div class=\"panels\">{}{}</div><figcaption><b></b>{}</figcaption>\
         </figure></section>\n",
        panel(report, &copies, "Probability of loss by replicas"),
        panel(report, &sizes, "Probability of loss by ranks"),
        escaped(&caption)
    ))
}

fn panel(report: &LossReport, curves: &[DrawnCurve], name: &str) -> String {
    let first = |drawn: &DrawnCurve| {
        f64::from(drawn.curve.failures_until(0.01)) / f64::from(drawn.curve.units())
    };
    let low = curves.iter().map(first).fold(0.1, f64::min);
    let mut marks: Vec<ChartMark> = curves
        .iter()
        .enumerate()
        .map(|(style, drawn)| ChartMark::Line {
            style,
            strong: drawn.own,
            title: drawn.words.clone(),
            points: rise(&drawn.curve),
        })
        .collect();
    if let Some(style) = curves.iter().position(|drawn| drawn.own) {
        marks.extend(dots(report, style));
    }
    let entries = curves.iter().enumerate().map(|(i, drawn)| (i, drawn.own, drawn.words.clone()));
    let chart = Chart {
        name: name.to_string(),
        width: 500.0,
        height: 330.0,
        x: share_axis(low, format!("failed {}s", report.unit)),
        y: Axis {
            low: 0.0,
            high: 1.0,
            logarithmic: false,
            ticks: (0..=5).map(|i| f64::from(i) / 5.0).map(|p| (p, whole_percent(p))).collect(),
            label: "probability of loss".to_string(),
        },
        marks,
    };
    // Legends do not make panels wider, so that two of them are side by side.
    format!("<div style=\"width:500px;max-width:100%\">{}{}</div>", chart.svg(), legend(entries))
}

/// The part of a curve in which it rises, at up to 120 numbers of failures.
fn rise(curve: &LossCurve) -> Vec<(f64, f64)> {
    let point = |failures: u32| {
        (f64::from(failures) / f64::from(curve.units()), curve.probability(failures).value)
    };
    let inner = spread(curve, 1e-4, 0.9999, 120).into_iter().map(point);
    [(0.0, 0.0)].into_iter().chain(inner).chain([(1.0, 1.0)]).collect()
}

/// Numbers of failures between two probabilities, in equal ratios.
fn spread(curve: &LossCurve, from: f64, to: f64, count: u32) -> Vec<u32> {
    let low = f64::from(curve.failures_until(from).saturating_sub(1).max(1));
    let high = f64::from(curve.failures_until(to)).max(low);
    let at = |i: u32| (low * (high / low).powf(f64::from(i) / f64::from(count))).round() as u32;
    let mut all: Vec<u32> = (0..=count).map(at).collect();
    all.dedup();
    all
}

/// Results of simulations of the machine, where its curve rises.
fn dots(report: &LossReport, style: usize) -> Vec<ChartMark> {
    let dot = |failures: u32| {
        let simulated = report.simulated(failures)?;
        let x = f64::from(failures) / f64::from(report.units);
        let (y, reach) = (simulated.value, 2.0 * simulated.error);
        let title = format!("simulated: {} ± {}", percent(y), percent(simulated.error));
        Some(ChartMark::Dot { style, radius: 3.4, title, x, y, low: y - reach, high: y + reach })
    };
    spread(report.curve(), 0.01, 0.995, 16).into_iter().filter_map(dot).collect()
}

/// The share of failed units until loss over the size of the machine.
fn figure_of_sizes(report: &LossReport, survivals: &[SurvivedFailures]) -> String {
    if survivals.is_empty() {
        return String::new();
    }
    let own = report.machine();
    let replicas = replicas_shown(own);
    let mut marks = Vec::new();
    for (style, replicas) in replicas.iter().enumerate() {
        let mine = || survivals.iter().filter(|survival| survival.replicas == *replicas);
        let ranks = |survival: &SurvivedFailures| f64::from(survival.ranks);
        let band = mine().map(|s| (ranks(s), s.low, s.high)).collect();
        marks.push(ChartMark::Band { style, points: band });
        let points = mine().map(|s| (ranks(s), s.expected)).collect();
        let (strong, title) = (*replicas == own.replicas, units((*replicas).into(), "replica"));
        marks.push(ChartMark::Line { style, strong, title, points });
    }
    let style = replicas.iter().position(|replicas| *replicas == own.replicas).unwrap_or(0);
    let (mean, error) = match (report.simulated_failures_fraction, report.simulated_standard_error)
    {
        (Some(mean), Some(error)) => (mean, error),
        _ => (report.expected_failures_fraction, 0.0),
    };
    marks.push(ChartMark::Dot {
        style,
        radius: 5.5,
        title: format!("{} ranks: {}", number(own.ranks), percent(mean)),
        x: f64::from(own.ranks),
        y: mean,
        low: mean - 2.0 * error,
        high: mean + 2.0 * error,
    });
    let lowest = survivals.iter().map(|survival| survival.low).fold(0.1, f64::min);
    let mut sizes: Vec<u32> = survivals.iter().map(|survival| survival.ranks).collect();
    sizes.push(own.ranks);
    sizes.sort_unstable();
    let chart = Chart {
        name: "Share of failures until loss".to_string(),
        width: 1000.0,
        height: 380.0,
        x: size_axis(sizes[0], sizes[sizes.len() - 1]),
        y: share_axis(lowest, format!("{}s failed until loss", report.unit)),
        marks,
    };
    let entry = |(style, replicas): (usize, &u32)| {
        (style, *replicas == own.replicas, units((*replicas).into(), "replica"))
    };
    let dot = if report.simulations > 0 { "simulated, two standard errors" } else { "computed" };
    format!(
        "<section><h2>How many failures are survived</h2><figure>{}{}<figcaption><b></b>{}</figcaption></figure></section>\n",
        chart.svg(),
        legend(replicas.iter().enumerate().map(entry)),
        escaped(&format!(
            "Share of {}s that fail until data is lost for good, over the size of the machine. Lines: averages. Bands: 90 % \
             of losses happen within them. Dot: the machine that was asked for ({dot}). As Figure 3 (a) \
             of ReStore.",
            report.unit
        ))
    )
}

fn own_table(report: &LossReport) -> String {
    let (head, rows) = report.table();
    let caption = format!(
        "Probability of loss with {} on {} ranks. The first row is the largest number of failures that never loses data.",
        units(report.replicas.into(), "replica"),
        number(report.ranks)
    );
    format!(
        "<section><h2>Figures of this machine</h2>{}</section>\n",
        table(&caption, &head, &rows)
    )
}

fn table_of_sizes(report: &LossReport, survivals: &[SurvivedFailures]) -> String {
    if survivals.is_empty() {
        return String::new();
    }
    let replicas = replicas_shown(report.machine());
    let mut sizes: Vec<u32> = survivals.iter().map(|survival| survival.ranks).collect();
    sizes.sort_unstable();
    sizes.dedup();
    let cell = |ranks: u32, replicas: u32| {
        let found = survivals.iter().find(|s| s.ranks == ranks && s.replicas == replicas);
        found.map_or("–".to_string(), |survival| percent(survival.expected))
    };
    let row = |ranks: &u32| {
        let cells = replicas.iter().map(|replicas| cell(*ranks, *replicas));
        [number(*ranks)].into_iter().chain(cells).collect::<Vec<String>>()
    };
    let rows: Vec<Vec<String>> = sizes.iter().map(row).collect();
    let head: Vec<String> = ["ranks".to_string()]
        .into_iter()
        .chain(replicas.iter().map(|replicas| units((*replicas).into(), "replica")))
        .collect();
    let caption =
        format!("Average share of {}s that fail until data is lost for good.", report.unit);
    format!("<section><h2>Other machines</h2>{}</section>\n", table(&caption, &head, &rows))
}

fn table(caption: &str, head: &[String], rows: &[Vec<String>]) -> String {
    let cells = |tag: &str, cells: &[String]| -> String {
        cells.iter().map(|cell| format!("<{tag} class=\"n\">{}</{tag}>", escaped(cell))).collect()
    };
    let body: String = rows.iter().map(|row| format!("<tr>{}</tr>", cells("td", row))).collect();
    format!(
        "<div class=\"wide\"><table><caption><b></b>{}</caption><thead><tr>{}</tr></thead><tbody>{body}</tbody></table>\
         </div>",
        escaped(caption),
        cells("th", head)
    )
}

/// The number of replicas that was asked for, and those that people choose from.
fn replicas_shown(own: LossMachine) -> Vec<u32> {
    let mut shown: Vec<u32> = [2, 3, 4, own.replicas].to_vec();
    shown.retain(|replicas| *replicas <= own.ranks);
    shown.sort_unstable();
    shown.dedup();
    shown
}

/// Machines of 2^k units, from small ones to the largest of the paper or the one that was asked for.
fn survivals(report: &LossReport) -> Result<Vec<SurvivedFailures>> {
    let own = report.machine();
    let replicas = replicas_shown(own);
    let most = LARGEST.max(own.ranks.checked_next_power_of_two().unwrap_or(u32::MAX));
    let fewest = 2 * replicas.last().copied().unwrap_or(1);
    let sizes = (4..=30).map(|power| 1u32 << power).filter(|nodes| *nodes >= fewest);
    let sizes: Vec<u32> = sizes
        .filter_map(|nodes| nodes.checked_mul(own.ranks_per_node))
        .filter(|ranks| *ranks <= most)
        .collect();
    let machines: Vec<LossMachine> = replicas
        .iter()
        .flat_map(|replicas| {
            sizes.iter().map(|ranks| LossMachine { ranks: *ranks, replicas: *replicas, ..own })
        })
        .collect();
    let survival = |machine: LossMachine| {
        let Some(curve) = machine.curve()? else { return Ok(None) };
        let share =
            |probability| f64::from(curve.failures_until(probability)) / f64::from(curve.units());
        let (low, high) = (share(0.05), share(0.95));
        let expected = curve.expected_failures_fraction();
        let LossMachine { ranks, replicas, .. } = machine;
        Ok(Some(SurvivedFailures { ranks, replicas, expected, low, high }))
    };
    let all: Vec<Option<SurvivedFailures>> =
        machines.into_par_iter().map(survival).collect::<Result<_>>()?;
    Ok(all.into_iter().flatten().collect())
}

fn capital(sentence: &str) -> String {
    let mut rest = sentence.chars();
    rest.next().map_or(String::new(), |first| first.to_uppercase().chain(rest).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replica::{LossSettings, loss};

    fn page(ranks: u64, replicas: u64, node: u64, simulations: Option<u64>) -> String {
        let settings = LossSettings { ranks, replicas, ranks_per_node: node, simulations };
        loss(&settings, &|_, _| {}).unwrap().html("today").unwrap()
    }

    #[test]
    fn sentences_begin_with_a_capital() {
        assert_eq!((capital("on average"), capital("")), ("On average".into(), String::new()));
    }

    #[test]
    fn a_page_has_curves_tables_and_dots_and_no_place_left() {
        let text = page(256, 3, 1, Some(50));
        assert!(!text.contains("__TREERING") && !text.contains("NaN") && !text.contains("http"));
        // Three numbers of replicas twice, and machines of 2^8 to 2^25.
        assert_eq!(text.matches("class=\"curve\"").count(), 3 + 5 + 3);
        assert!(text.matches("class=\"dot\"").count() > 10, "dots");
        assert!(
            text.contains("On average") && text.contains("2²⁵ ranks") && text.contains("today")
        );
    }

    #[test]
    fn every_machine_has_a_page() {
        for (ranks, replicas, node, simulations) in [
            (1, 1, 1, None),
            (2, 2, 2, None),
            (7, 5, 1, None),
            (1000, 32, 1, None),
            (10, 2, 4, None),
            (1001, 2, 4, Some(20)),
            (1 << 25, 2, 1 << 24, None),
            ((1 << 30) / 48 * 48, 4, 48, None),
        ] {
            let text = page(ranks, replicas, node, simulations);
            assert!(
                text.contains("class=\"curve\"") && !text.contains("NaN"),
                "{ranks} {replicas}"
            );
        }
    }
}
