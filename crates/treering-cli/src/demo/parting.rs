//! The second half of the tour: two runs of the same program on the same input, and where they part.

use crate::{compare, output};
use indicatif::{ProgressBar, ProgressStyle};
use particles::{Progress, Schedule, Settings as Size, Simulation};
use std::io::IsTerminal;
use std::path::Path;
use std::sync::Arc;
use treering::{Bound, CompareSettings, DirectoryStore, Options, Outcome, Result, StoredSide};

/// The bound of each variable: places in parts of the cube, velocities, the potential.
const BOUNDS: [(&str, f64); 5] =
    [("x", 1e-6), ("y", 1e-6), ("z", 1e-6), ("v?", 1e-5), ("potential", 1e-6)];

/// Simulates twice with two threads or more, and compares all checkpoints.
pub fn run(store: &Path, say: impl Fn(String)) -> Result<Outcome> {
    let size = Size { threads: Size::default().threads.max(2), ..Size::default() };
    say(format!(
        "5. Gravity between {} particles with {} threads, twice, on the same input.",
        size.particles(),
        size.threads
    ));
    for name in ["first", "second"] {
        simulate(store, name, &size)?;
    }
    let side = |run| StoredSide::open(Arc::new(DirectoryStore::new(store)), run, None);
    let (a, b) = (side("first")?, side("second")?);
    let settings = CompareSettings { pictures: true, ..CompareSettings::default() };
    let outcome = treering::compare(&a, &b, &settings, None, &|_, _| {})?;
    say(format!("6. Compared within {}: {}.", bounds(), outcome.sentence()));
    say(format!(
        "   {} of {} were read, trees and sketches included ({}).",
        output::bytes(outcome.bytes_read),
        output::bytes(outcome.bytes_total),
        output::seconds(outcome.timings.total)
    ));
    compare::write_report(&store.join("report.html"), &outcome)?;
    Ok(outcome)
}

fn bounds() -> String {
    let each = BOUNDS.map(|(name, bound)| format!("{bound:e} for {name}"));
    each.join(", ")
}

fn simulate(store: &Path, run: &str, size: &Size) -> Result<()> {
    let mut options = Options::directory(store, run);
    for (pattern, bound) in BOUNDS {
        options = options.bound(pattern, Bound::abs(bound));
    }
    let schedule = Schedule::default();
    let bar = match std::io::stderr().is_terminal() {
        true => ProgressBar::new(schedule.steps).with_message(run.to_string()),
        false => ProgressBar::hidden(),
    };
    if let Ok(style) = ProgressStyle::with_template("{msg} {bar:40} step {pos} of {len}") {
        bar.set_style(style);
    }
    let mut simulation = Simulation::new(size)?;
    particles::run(&mut simulation, schedule, Some(options), |progress| {
        if let Progress::Stepped(step) = progress {
            bar.set_position(step);
        }
    })?;
    bar.finish_and_clear();
    Ok(())
}
