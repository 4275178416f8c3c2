//! The command `loss`.

use crate::output;
use std::path::PathBuf;
use treering::{LossReport, LossSettings, Result, loss, write_whole};

#[derive(clap::Args)]
pub struct LossArguments {
    /// Number of ranks.
    #[arg(long, value_name = "P")]
    ranks: u64,
    /// Number of copies of all data, each on another rank: 1 to 32.
    #[arg(long, value_name = "R")]
    replicas: u64,
    /// Number of ranks on each node. With 2 or more, whole nodes fail, and copies are on different nodes.
    #[arg(long, value_name = "N", default_value_t = 1)]
    ranks_per_node: u64,
    /// Also simulate random failures of the real placement N times. Default: no simulation.
    #[arg(long, value_name = "N")]
    simulate: Option<u64>,
    /// Write a report page with figures: one HTML file that needs no network.
    #[arg(long, value_name = "FILE.html")]
    report: Option<PathBuf>,
}

pub fn run(arguments: &LossArguments, json: bool) -> Result<()> {
    let settings = LossSettings {
        ranks: arguments.ranks,
        replicas: arguments.replicas,
        ranks_per_node: arguments.ranks_per_node,
        simulations: arguments.simulate,
    };
    let bar = match arguments.simulate {
        Some(_) => output::counting("simulating failures"),
        None => output::waiting("computing probabilities"),
    };
    let told = |done, total| {
        bar.set_length(total);
        bar.set_position(done);
    };
    let report = loss(&settings, &told)?;
    bar.finish_and_clear();
    if let Some(path) = &arguments.report {
        let bar = output::waiting("drawing figures");
        write_whole(path, report.html(&output::now())?.as_bytes())?;
        bar.finish_and_clear();
    }
    if json {
        return output::json(&report);
    }
    show(&report);
    Ok(())
}

fn show(report: &LossReport) {
    let (head, rows) = report.table();
    let head: Vec<&str> = head.iter().map(String::as_str).collect();
    output::line(output::table(&head, &[], rows));
    output::line(report.sentence());
    report.explanation().iter().for_each(output::line);
}
