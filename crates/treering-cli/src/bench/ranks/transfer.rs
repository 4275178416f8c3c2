//! mcrEngine's five configurations (Islam et al. 2012, Table 5) and Treering, to a slow store and back, in groups of 32
//! ranks: of sets of files, or of synthetic ranks if there are none.

use super::sizes::steps;
use crate::bench::Options;
use crate::bench::packs::ends::{Bench, End};
use crate::bench::packs::schemes::Scheme;
use crate::bench::packs::{set, tables};
use std::path::Path;
use treering::{Error, Result};

const GROUP: usize = 32;
/// Synthetic ranks, and the values of each of their arrays.
const RANKS: usize = 64;
const VALUES: usize = 1 << 14;
const NAMES: [&str; 4] = ["density", "energy", "pressure", "velocity"];

pub fn run(options: &Options) -> Result<Vec<End>> {
    let place = options.folder()?;
    let folder = match options.folders.first() {
        Some(set) => steps(set)?.swap_remove(0),
        None => {
            let files = place.path().join("files");
            synthetic(&files)?;
            files
        }
    };
    let ranks = set::ranks(&folder, options.rank.as_deref())?;
    let size = |file: &treering::RankFile| {
        std::fs::metadata(&file.path).map(|m| m.len() as usize).map_err(|e| Error::io("no size", e))
    };
    let bytes = ranks.iter().flatten().map(size).sum::<Result<usize>>()?;
    let rate = options.throttle * 1e6;
    let bench = Bench { ranks: &ranks, group: GROUP, rate, folder: place.path(), bytes };
    bench.run(Scheme { by_meaning: true, block: None }, &|_, _| {})
}

/// Files of ranks whose arrays are smooth, alike from rank to rank, and noisy in their lower bits.
fn synthetic(folder: &Path) -> Result<()> {
    let failed = |e| Error::io("cannot write synthetic files", e);
    for rank in 0..RANKS {
        let own = folder.join(format!("rank{rank:03}"));
        std::fs::create_dir_all(&own).map_err(failed)?;
        for (number, name) in NAMES.iter().enumerate() {
            let head =
                format!("{{'descr': '<f8', 'fortran_order': False, 'shape': ({VALUES},), }}");
            let mut file = b"\x93NUMPY\x01\x00".to_vec();
            file.extend((head.len() as u16).to_le_bytes());
            file.extend(head.as_bytes());
            let value = |at: usize| {
                let phase = (rank * VALUES + at) as f64 * 1e-4 * (number + 1) as f64;
                let noise = (at.wrapping_mul(0x9E37_79B9_7F4A_7C15 + rank) >> 44) as f64;
                (phase.sin() + noise * 1e-12).to_le_bytes()
            };
            file.extend((0..VALUES).flat_map(value));
            std::fs::write(own.join(format!("{name}.npy")), &file).map_err(failed)?;
        }
    }
    Ok(())
}

pub fn show(ends: &[End], options: &Options) {
    tables::ends(ends, options.throttle, GROUP);
}
