//! Benchmarks: ratios to limits that are measured in the same run, never bare times.

mod capture;
mod compare;
mod limits;
mod lineage;
mod packs;
mod pattern;
mod ranks;
mod replica;
mod restore;
mod tables;

use crate::output;
use std::path::PathBuf;
use treering::{Error, Result};

/// The smallest useful size.
const LEAST: u64 = 1 << 20;

/// The benchmarks.
#[derive(Clone, Copy, clap::ValueEnum)]
pub enum Name {
    /// Time for which a checkpoint blocks the program, and bytes that it stores.
    Capture,
    /// Speed of restores, early and late in a lineage.
    Restore,
    /// Comparison by trees and sketches against direct comparison of files, for several bounds and chunk sizes.
    Compare,
    /// Methods, chunk sizes and numbers of checkpoints on graphlet orbits, against compressors.
    Lineage,
    /// Order of bytes in packs, group sizes and passes of encoding on a set of checkpoint files, their cost on a slow
    /// store, and the aims on one core.
    Packs,
    /// Objects and bytes of checkpoints of up to 2^20 simulated ranks, bytes that a restart reads, sizes of packs
    /// that ranks share, and transfers to and from a slow store.
    Ranks,
    /// Tables of graphlet orbits under the balanced and the smallest aim, one by one and as lineages, against zstd and xz.
    Tables,
    /// Messages and bytes of replicas at the busiest of up to 24,576 simulated ranks.
    Replica,
}

/// Options of all benchmarks.
#[derive(clap::Args, Clone)]
pub struct Options {
    /// Folders of checkpoint files, one for each step (packs): the first is studied, later ones are
    /// compared with it. For ranks: folders of sets, each with a folder for each step.
    #[arg(value_name = "FOLDER")]
    pub folders: Vec<PathBuf>,
    /// Position of the rank in a file's name, as in `ingest` (packs, ranks).
    #[arg(long, value_name = "REGEX")]
    pub rank_pattern: Option<String>,
    /// Speed of the simulated slow store in MB/s (packs, ranks).
    #[arg(long, value_name = "RATE", default_value_t = 100.0)]
    pub throttle: f64,
    /// Size of the state (capture, restore and ranks), or of each file (compare), as in 1GiB.
    #[arg(long, default_value = "512MiB", value_parser = output::parse_bytes)]
    pub size: u64,
    /// Number of vertices of each graph (lineage, tables).
    #[arg(long, default_value_t = 200_000)]
    pub vertices: u32,
    /// Number of f64 values along each side of the cube of which boxes are read (ranks): 812 are 4 GiB.
    #[arg(long, default_value_t = 812, value_parser = clap::value_parser!(u64).range(8..=4096))]
    pub side: u64,
    /// Folder for the stores, on the disk to be measured. Default: a temporary folder.
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
}

impl Options {
    /// A folder that is removed when the benchmark ends.
    fn folder(&self) -> Result<tempfile::TempDir> {
        let made = match &self.dir {
            Some(dir) => tempfile::tempdir_in(dir),
            None => tempfile::tempdir(),
        };
        made.map_err(|e| Error::io("cannot make a folder for the benchmark", e))
    }
}

pub fn run(name: Name, options: &Options, json: bool) -> Result<()> {
    if !matches!(name, Name::Packs | Name::Ranks) && !options.folders.is_empty() {
        return Err(Error::usage("folders were given to a benchmark that takes none")
            .hint("only `bench packs` and `bench ranks` take folders; --dir sets the folder of the stores"));
    }
    if options.size < LEAST {
        return Err(Error::usage(format!(
            "--size {} is less than {}: too little to measure",
            output::bytes(options.size),
            output::bytes(LEAST)
        )));
    }
    match name {
        Name::Capture => capture::run(options, json),
        Name::Restore => restore::run(options, json),
        Name::Compare => compare::bench(options, json),
        Name::Lineage => lineage::run(options, json),
        Name::Packs => packs::run(options, json),
        Name::Ranks => ranks::run(options, json),
        Name::Tables => tables::run(options, json),
        Name::Replica => replica::run(options, json),
    }
}

/// The bytes of a table of integers.
fn bytes_of<T: treering::Element>(data: &[T]) -> &[u8] {
    // SAFETY: an element has no padding, and any of its bytes may be read.
    unsafe { std::slice::from_raw_parts(data.as_ptr().cast(), size_of_val(data)) }
}
