//! The probability of loss in words and as a table.

use crate::replica::{LossPoint, LossReport};

impl LossReport {
    /// The expected number of failures in a sentence.
    pub fn sentence(&self) -> String {
        let share = percent(self.expected_failures_fraction);
        let (failures, all) = (self.expected_failures, units(self.units.into(), self.unit));
        format!("on average {share} of {all} ({failures:.1}) fail until data is lost for good")
    }

    /// The question, and how it was answered, in a few sentences.
    pub fn explanation(&self) -> Vec<String> {
        let unit = self.unit;
        let mut sentences = vec![format!(
            "{unit}s fail at random, and lost copies are not made again in between; the last failure is the one that \
             loses data"
        )];
        sentences.push(match self.method {
            "exact" => format!("exact: sets of failed {unit}s without loss are counted by integers"),
            "counted" => format!("exact: all sets of failed {unit}s are looked at one by one"),
            "approximate" => {
                "approximate: the probability is at least what is shown and at most the error more, which is proven; \
                 the average is exact"
                    .to_string()
            }
            _ => "there is no formula for nodes of unequal size or for fewer nodes than copies: all figures are \
                  simulated, and the error is the standard error"
                .to_string(),
        });
        if let (Some(mean), Some(error)) =
            (self.simulated_failures_fraction, self.simulated_standard_error)
        {
            let runs = units(self.simulations.into(), "simulation");
            sentences.push(format!(
                "{runs} on the real placement: on average {}, standard error {}",
                percent(mean),
                percent(error)
            ));
        }
        sentences
    }

    /// The probabilities as a table: its head, and its rows.
    pub fn table(&self) -> (Vec<String>, Vec<Vec<String>>) {
        let nodes = self.unit == "node";
        let whole = nodes && self.units.checked_mul(self.ranks_per_node) == Some(self.ranks);
        let exact = matches!(self.method, "exact" | "counted");
        let simulated = self.simulations > 0 && self.method != "simulated";
        let error = if self.method == "simulated" { "standard error" } else { "error at most" };
        let columns = [
            (true, format!("failed {}s", self.unit)),
            (whole, "failed ranks".to_string()),
            (true, "share".to_string()),
            (true, "probability of loss".to_string()),
            (!exact, error.to_string()),
            (simulated, "simulated".to_string()),
            (simulated, "standard error".to_string()),
        ];
        let row = |point: &LossPoint| {
            let cells = [
                point.failures.to_string(),
                (u64::from(point.failures) * u64::from(self.ranks_per_node)).to_string(),
                percent(point.fraction),
                probability(point.probability),
                probability(point.error),
                point.simulated.map_or(String::new(), probability),
                point.simulated_error.map_or(String::new(), probability),
            ];
            let shown = cells.into_iter().zip(&columns).filter(|(_, (shown, _))| *shown);
            shown.map(|(cell, _)| cell).collect()
        };
        let rows = self.probabilities.iter().map(row).collect();
        (columns.into_iter().filter(|(shown, _)| *shown).map(|(_, head)| head).collect(), rows)
    }
}

/// So many ranks or nodes.
pub(super) fn units(count: u64, unit: &str) -> String {
    format!("{count} {unit}{}", if count == 1 { "" } else { "s" })
}

/// A fraction in percent, with three digits that count.
pub(super) fn percent(fraction: f64) -> String {
    let percent = 100.0 * fraction;
    match percent.abs().log10().floor() {
        _ if percent == 0.0 => "0 %".to_string(),
        size if size < -4.0 => format!("{percent:.2e} %"),
        size => format!("{percent:.*} %", (2.0 - size).max(0.0) as usize),
    }
}

/// A probability in a few digits.
fn probability(x: f64) -> String {
    match x {
        0.0 => "0".to_string(),
        1.0 => "1".to_string(),
        _ if x < 1e-3 => format!("{x:.2e}"),
        _ if x > 0.9999 && x < 1.0 => "> 0.9999".to_string(),
        _ => format!("{x:.4}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replica::{LossSettings, loss};

    #[test]
    fn numbers_have_three_digits_that_count() {
        let shown = [0.0, 0.0168, 0.5, 1.0, 0.12345, 1.5e-5, 1e-9].map(percent);
        assert_eq!(shown, ["0 %", "1.68 %", "50.0 %", "100 %", "12.3 %", "0.00150 %", "1.00e-7 %"]);
        let shown = [0.0, 1e-12, 0.0012, 0.5, 0.99999, 1.0].map(probability);
        assert_eq!(shown, ["0", "1.00e-12", "0.0012", "0.5000", "> 0.9999", "1"]);
    }

    #[test]
    fn a_table_has_the_columns_that_there_are_figures_for() {
        let heads = |ranks, replicas, node, simulations| {
            let settings = LossSettings { ranks, replicas, ranks_per_node: node, simulations };
            let (head, rows) = loss(&settings, &|_, _| {}).unwrap().table();
            assert!(rows.iter().all(|row| row.len() == head.len()));
            head.join(", ")
        };
        assert_eq!(heads(64, 2, 1, None), "failed ranks, share, probability of loss");
        assert_eq!(
            heads(64, 2, 4, Some(10)),
            "failed nodes, failed ranks, share, probability of loss, simulated, standard error"
        );
        assert_eq!(heads(65, 2, 4, None), "failed nodes, share, probability of loss");
        assert_eq!(
            heads(165, 2, 4, Some(9)),
            "failed nodes, share, probability of loss, standard error"
        );
        assert_eq!(
            heads(1 << 20, 4, 1, None),
            "failed ranks, share, probability of loss, error at most"
        );
    }
}
