//! `treering golden`: expected results as a small file of trees.

use super::raw::RawOptions;
use super::screen::{self, ScreenSettings};
use super::trees::TreeOptions;
use super::{answer, keep_inputs, show, write_report};
use crate::output;
use std::path::PathBuf;
use std::process::ExitCode;
use treering::{CompareSettings, Golden, Result, TreedSide, compare, open_side, record_golden};

#[derive(clap::Subcommand)]
pub enum GoldenCommand {
    /// Writes the trees of expected results to a small file.
    ///
    /// Arrays are recorded; attributes and other content of files beside their arrays are not.
    Record {
        /// STORE#RUN, STORE#RUN@STEP, a file, or a folder of files.
        a: String,
        /// Tree file to write.
        #[arg(short, long, value_name = "FILE")]
        output: PathBuf,
        #[command(flatten)]
        options: TreeOptions,
        /// Bits of each value that a sketch keeps. From 4 on, as many are kept as are needed to prove that a
        /// difference is within the bound; with fewer, differences may stay undecided.
        #[arg(long, default_value_t = 4)]
        planes: u8,
        /// Leave out variables that match; * and ? stand for anything. May be given several times. `golden check`
        /// needs the same option.
        #[arg(long, value_name = "GLOB")]
        exclude: Vec<String>,
        #[command(flatten)]
        raw: RawOptions,
    },
    /// Reports whether results agree with a recorded file. Exit code: 0 equal, 1 different, 2 undecided or trouble.
    Check {
        /// Tree file that `golden record` has written.
        file: PathBuf,
        /// STORE#RUN, STORE#RUN@STEP, a file, or a folder of files.
        a: String,
        /// Write a report page with figures: one HTML file that needs no network.
        #[arg(long, value_name = "FILE.html")]
        report: Option<PathBuf>,
        /// Print every variable that differs, at each step and rank, and every item that was not compared.
        #[arg(long)]
        all: bool,
        /// Leave out variables that match; * and ? stand for anything. May be given several times.
        #[arg(long, value_name = "GLOB")]
        exclude: Vec<String>,
        /// Only variables that match; * and ? stand for anything. May be given several times. Default: all.
        #[arg(long, value_name = "GLOB")]
        vars: Vec<String>,
        #[command(flatten)]
        raw: RawOptions,
    },
}

pub fn golden(command: &GoldenCommand, json: bool) -> Result<ExitCode> {
    let bar = output::progress("making trees");
    let told = |done, total| {
        bar.set_length(total);
        bar.set_position(done);
    };
    match command {
        GoldenCommand::Record { a, output: path, options, planes, exclude, raw } => {
            keep_inputs(&[Some(path)], &[a])?;
            let side = open_side(a, raw.raw()?.as_ref(), false)?;
            let settings = options.settings(*planes)?;
            let choice = CompareSettings {
                variables: options.vars.clone(),
                exclude: exclude.clone(),
                ..CompareSettings::default()
            };
            let size = record_golden(side.as_ref(), &choice, &settings, path, &told)?;
            bar.finish_and_clear();
            match json {
                true => output::json(&serde_json::json!({ "file": path, "bytes": size }))?,
                false => output::line(format!("{} has {}", path.display(), output::bytes(size))),
            }
            Ok(ExitCode::SUCCESS)
        }
        GoldenCommand::Check { file, a, report, all, exclude, vars, raw } => {
            keep_inputs(&[report.as_deref()], &[a, &file.to_string_lossy()])?;
            let golden = Golden::open(file)?;
            let side = open_side(a, raw.raw()?.as_ref(), false)?;
            let prepared = TreedSide::new(side.as_ref(), &golden);
            let settings = CompareSettings {
                expected: true,
                variables: vars.clone(),
                exclude: exclude.clone(),
                ..CompareSettings::default()
            };
            let mut outcome = compare(&golden, &prepared, &settings, None, &told)?;
            // To make the trees, too.
            outcome.bytes_read += prepared.bytes_read();
            bar.finish_and_clear();
            if let Some(path) = report {
                write_report(path, &outcome)?;
            }
            show(&outcome, ScreenSettings { all: *all, rows: screen::ROWS, timings: false }, json)?;
            Ok(answer(&outcome))
        }
    }
}
