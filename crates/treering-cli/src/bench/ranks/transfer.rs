//! mcrEngine's five configurations (Islam et al. 2012, Table 5) and Treering, to a slow store and back, in groups of 32
//! ranks: of sets of files, or of synthetic ranks if there are none. Treering takes the files in, or gets the arrays from the
//! ranks of a program.

use super::restart::{on_ranks, pack_bytes, patient};
use super::sizes::{Field, fields, steps, target, variable};
use crate::bench::Options;
use crate::bench::packs::ends::{Bench, End};
use crate::bench::packs::schemes::Scheme;
use crate::bench::packs::throttle::ThrottledStore;
use crate::bench::packs::{set, tables};
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;
use treering::{DirectoryStore, Error, Result, Run, Store, Variable, VariableMut};

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
    let ranks = set::ranks(&folder, options.rank_pattern.as_deref())?;
    let size = |file: &treering::RankFile| {
        std::fs::metadata(&file.path).map(|m| m.len() as usize).map_err(|e| Error::io("no size", e))
    };
    let bytes = ranks.iter().flatten().map(size).sum::<Result<usize>>()?;
    let rate = options.throttle * 1e6;
    let bench = Bench { ranks: &ranks, group: GROUP, rate, folder: place.path(), bytes };
    let mut ends = bench.run(Scheme { by_meaning: true, block: None }, &|_, _| {})?;
    ends.push(by_ranks(&bench)?);
    Ok(ends)
}

/// The arrays of the files, saved and restored by the ranks of one program.
fn by_ranks(bench: &Bench) -> Result<End> {
    let folder = tempfile::tempdir_in(bench.folder)
        .map_err(|e| Error::io("cannot make a folder for the benchmark", e))?;
    let inner: Arc<dyn Store> = Arc::new(DirectoryStore::new(folder.path()));
    let store = ThrottledStore::new(inner.clone(), bench.rate);
    let state: Vec<Vec<Field>> = bench.ranks.iter().map(fields).collect::<Result<_>>()?;
    let (state, ranks) = (Arc::new(state), bench.ranks.len() as u32);
    let (saved, slow) = (state.clone(), store.clone());
    let start = Instant::now();
    on_ranks(ranks, move |comm| {
        let options = patient(Arc::new(slow.clone()), &comm).ranks_per_pack(GROUP as u32);
        let mut run = Run::open(options)?;
        let own = &saved[comm.rank().0 as usize];
        run.checkpoint(0, &own.iter().map(variable).collect::<Vec<Variable>>())?;
        run.finish()
    })?;
    let (checkpoint_s, write_s) = (start.elapsed().as_secs_f64(), store.busy());
    let (moved, slow) = (store.moved(), store.clone());
    let start = Instant::now();
    on_ranks(ranks, move |comm| {
        let own = &state[comm.rank().0 as usize];
        let mut back = own.clone();
        back.iter_mut().for_each(|field| field.bytes.fill(0));
        let mut run = Run::open(patient(Arc::new(slow.clone()), &comm))?;
        run.restore(&mut back.iter_mut().map(target).collect::<Vec<VariableMut>>())?;
        match back == *own {
            true => Ok(()),
            false => Err(Error::damaged("a restart brought back other values")),
        }
    })?;
    let (restart_s, stored) = (start.elapsed().as_secs_f64(), pack_bytes(inner.as_ref())?);
    let of_rate = |seconds: f64| bench.bytes as f64 / seconds / bench.rate;
    Ok(End {
        name: "treering, by ranks".to_string(),
        files: bench.ranks.len().div_ceil(GROUP) + 1,
        ratio: bench.bytes as f64 / stored as f64,
        write_s,
        checkpoint_s,
        fetched: (store.moved() - moved) as f64 / stored as f64,
        fetch_s: store.busy() - write_s,
        restart_s,
        checkpoint_of_throttle: of_rate(checkpoint_s),
        restart_of_throttle: of_rate(restart_s),
        ..End::default()
    })
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
