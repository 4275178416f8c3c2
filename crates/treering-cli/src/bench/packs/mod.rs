//! The study of mcrEngine (Islam et al. 2012) on any set of checkpoint files: how the order of bytes in
//! a pack, the number of ranks that share it and the passes of encoding change its size and speed, and
//! what becomes of that when the store is slow.

pub mod aims;
pub mod ends;
mod passes;
pub mod schemes;
pub mod set;
mod study;
pub mod tables;
pub mod throttle;

use self::ends::Bench;
use self::schemes::Scheme;
use self::study::{Moment, Row, Study, four, gains};
use super::Options;
use crate::output;
use serde_json::json;
use std::path::Path;
use treering::{Error, Result};

pub fn run(options: &Options, json: bool) -> Result<()> {
    let [folder, later @ ..] = &options.folders[..] else {
        return Err(Error::usage("bench packs needs a folder")
            .hint("give a folder of the checkpoint files of one step"));
    };
    let rate = options.throttle * 1e6;
    if !rate.is_finite() || rate <= 0.0 {
        return Err(Error::usage(format!("a store of {} MB/s is of no use", options.throttle))
            .hint("give a number above 0"));
    }
    let ranks = set::ranks(folder, options.rank_pattern.as_deref())?;
    let study = Study::new(&ranks)?;
    let bar = output::progress("measuring");
    let told = |done, total| {
        bar.set_length(total);
        bar.set_position(done);
    };
    let blocks = study.blocks(&told)?;
    let schemes = four(&blocks);
    let sizes = study.sizes(&schemes, &told)?;
    let gains = gains(&sizes);
    let moments = moments(folder, later, &schemes, options)?;
    let place = options.folder()?;
    let group = study.largest();
    let bench = Bench { ranks: &ranks, group, rate, folder: place.path(), bytes: study.bytes };
    let ends = bench.run(better(&schemes, &sizes, group), &told)?;
    let aims = aims::run(&ranks, group, study.bytes, &told)?;
    bar.finish_and_clear();
    let files: usize = ranks.iter().map(Vec::len).sum();
    if json {
        let types = study.types();
        let types = types.iter().map(|(name, variables, bytes)| {
            json!({ "type": name, "variables": variables, "bytes": bytes })
        });
        return output::json(&json!({
            "set": {
                "ranks": ranks.len(), "files": files, "bytes": study.bytes,
                "types": types.collect::<Vec<_>>(),
            },
            "limits": {
                "threads": rayon::current_num_threads(), "memcpy_mb_s": study.memcpy / 1e6,
                "throttle_mb_s": options.throttle, "latency_s": throttle::LATENCY,
            },
            "frame_bytes": passes::FRAME,
            "groups": sizes, "blocks": blocks, "gains": gains, "steps": moments, "ends": ends,
            "aims": aims,
        }));
    }
    output::line(format!(
        "{} of {}, {}; {} threads, frames of {}; a memcpy makes {:.1} GB/s.",
        output::count(files as u64, "file"),
        output::count(ranks.len() as u64, "rank"),
        output::bytes(study.bytes as u64),
        rayon::current_num_threads(),
        output::bytes(passes::FRAME as u64),
        study.memcpy / 1e9,
    ));
    tables::types(&study);
    tables::groups(&sizes);
    tables::speeds(&sizes, group);
    tables::gains(&gains);
    tables::blocks(&blocks, group);
    tables::moments(&moments, &schemes);
    tables::ends(&ends, options.throttle, group);
    tables::aims(&aims);
    Ok(())
}

/// The better of the schemes by meaning, by the paper's passes in groups of this size.
fn better(schemes: &[Scheme; 4], rows: &[Row], group: usize) -> Scheme {
    let pass = study::papers_pass(true).to_string();
    let ratio = |scheme: Scheme| {
        let name = scheme.to_string();
        let fits = |row: &&Row| row.scheme == name && row.pass == pass && row.group == group;
        rows.iter().find(fits).map_or(0.0, |row| row.ratio)
    };
    if ratio(schemes[1]) > ratio(schemes[0]) { schemes[1] } else { schemes[0] }
}

/// The ratios of all folders, if there are several.
fn moments(
    first: &Path,
    later: &[std::path::PathBuf],
    schemes: &[Scheme; 4],
    options: &Options,
) -> Result<Vec<Moment>> {
    if later.is_empty() {
        return Ok(Vec::new());
    }
    let folders = std::iter::once(first).chain(later.iter().map(|folder| folder.as_path()));
    let moment = |folder: &Path| {
        let study = Study::new(&set::ranks(folder, options.rank_pattern.as_deref())?)?;
        let name = folder.file_name().unwrap_or(folder.as_os_str());
        study.moment(treering::testing::name_of(name), schemes)
    };
    folders.map(moment).collect()
}
