//! Arrays of a checkpoint as files that other programs read: `.npy`, HDF5, Zarr v3.
//!
//! A plan says which arrays are written and what they are called. Values are read in windows, each frame verified, so
//! that an array may be larger than memory. Indices stay as the program wrote them. `.npy` and Zarr keep arrays in
//! Fortran order as they are. HDF5 has only C order: there the elements of such an array are put into that order, block
//! by block. All of the output appears at once, when it is whole and durable: a file `RUN-STEP.h5`, or a folder
//! `RUN-STEP` of `.npy` files or `RUN-STEP.zarr`. Nothing that is there is replaced.

mod hdf5;
mod npy;
mod plan;
mod tiles;
mod unfinished;
mod zarr;

use self::plan::{OutputArray, OutputGroup, StoredVariable};
use self::tiles::{Tiles, into_c_order};
use self::unfinished::{UnfinishedOutput, failed};
use super::export::{NotTakenApart, records};
use crate::array::{DType, IndexBox, Order, Rank, Shape, VariableKey};
use crate::codec::zstd_encode;
use crate::compare::{Progress, matches};
use crate::error::{Error, ErrorKind, Result};
use crate::format::{FileRecord, Manifest, VariableEntry};
use crate::memory::{Scratch, zeroed};
use crate::restore::Checkpoint;
use crate::source::has_rest;
use crate::store::{Disk, OsDisk};
use rayon::prelude::*;
use std::collections::HashSet;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// A format of exported arrays. [`ArrayExport`] has an example.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ArrayFormat {
    /// A folder of `.npy` files, one for each array.
    Npy,
    /// One HDF5 file.
    Hdf5,
    /// A group of Zarr v3.
    Zarr,
}

impl ArrayFormat {
    /// The end of the name of an export.
    fn suffix(self) -> &'static str {
        match self {
            ArrayFormat::Npy => "",
            ArrayFormat::Hdf5 => ".h5",
            ArrayFormat::Zarr => ".zarr",
        }
    }

    /// The end of the name of an array.
    fn array_suffix(self) -> &'static str {
        match self {
            ArrayFormat::Npy => ".npy",
            ArrayFormat::Hdf5 | ArrayFormat::Zarr => "",
        }
    }

    /// The type that values have in the file. `.npy` and Zarr have no bf16, and no format has bytes: these are
    /// unsigned integers of their size.
    fn written_as(self, dtype: DType) -> DType {
        match dtype {
            DType::Bytes => DType::U8,
            DType::BF16 if self != ArrayFormat::Hdf5 => DType::U16,
            _ => dtype,
        }
    }
}

/// The arrays to export, and the format.
///
/// ```
/// use treering::{ArrayExport, ArrayFormat, Library, Options, Run, Variable, export_arrays};
/// # let folder = tempfile::tempdir().unwrap();
/// # let (store, arrays) = (folder.path().join("store"), folder.path().join("arrays"));
/// let mut run = Run::open(Options::directory(&store, "rod"))?;
/// let (heat, count) = ([293.15f64; 10], [10u64]);
/// run.checkpoint(1, &[Variable::new("heat", &heat), Variable::new("count", &count)])?;
/// run.finish()?;
/// let checkpoint = Library::open(&store)?.checkpoint("rod", Some(1))?;
/// let wanted = ArrayExport {
///     format: ArrayFormat::Npy,
///     variables: vec!["heat*".to_string()],
///     ranks: Vec::new(), // all of them
/// };
/// let exported = export_arrays(&checkpoint, &wanted, &arrays, &|_, _| {})?;
/// assert!(exported.path.join("heat.npy").is_file());
/// # assert_eq!(exported.arrays.len(), 1);
/// # Ok::<(), treering::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct ArrayExport {
    /// The format.
    pub format: ArrayFormat,
    /// Only variables that match one of these patterns, in which `*` and `?` stand for anything, as a whole or without
    /// the name of their file. Empty: all.
    pub variables: Vec<String>,
    /// Only arrays of these ranks, as the ranks saved them: boxes with their ghost cells, and rows, by themselves.
    /// Empty: all ranks, with boxes and rows put together to the arrays that they are parts of.
    pub ranks: Vec<Rank>,
}

/// The result of an export of arrays. Returned by [`export_arrays`], which has an example.
#[derive(Clone, Debug, serde::Serialize)]
pub struct ExportedArrays {
    /// The file or folder that was written.
    pub path: PathBuf,
    /// The format.
    pub format: ArrayFormat,
    /// The size of all values.
    pub bytes: u64,
    /// Its arrays, sorted by their names.
    pub arrays: Vec<ExportedArray>,
    /// Datasets of ingested files that are stored as bytes of their files, and were not exported.
    pub not_taken_apart: Vec<NotTakenApart>,
}

/// An array of an export: one of [`ExportedArrays::arrays`]. [`export_arrays`] has an example.
#[derive(Clone, Debug, serde::Serialize)]
pub struct ExportedArray {
    /// The variable.
    pub variable: String,
    /// The rank that saved it; `None` for the array that all ranks have parts of.
    pub rank: Option<Rank>,
    /// Its name in the output: a path of groups, or of folders.
    pub name: String,
    /// The type of the variable.
    pub dtype: DType,
    /// The type of the values in the output.
    pub written_as: DType,
    /// The extent along each axis.
    pub shape: Shape,
    /// The size of its values.
    pub bytes: u64,
    /// Whether its values were rounded within a bound before they were stored.
    pub rounded: bool,
}

/// Limits of what is in memory at a time.
#[derive(Clone, Copy)]
struct OutputLimits {
    /// Elements of a slab.
    slab: u64,
    /// Bytes of a block that is put into another order.
    block: u64,
    /// Bytes of a chunk of Zarr.
    chunk: u64,
}

const LIMITS: OutputLimits = OutputLimits { slab: 2 << 20, block: 64 << 20, chunk: 2 << 20 };
/// Elements of a block. Like those of a slab, they bound the number of runs that ranks' boxes can cut it into.
const MOST_ELEMENTS: u64 = 8 << 20;
/// Arrays up to this size are written in parallel.
const SMALL: u64 = 1 << 20;

/// Writes arrays of a checkpoint below the folder `to`: a file `RUN-STEP.h5`, a folder `RUN-STEP` of `.npy` files, or a
/// folder `RUN-STEP.zarr`.
///
/// The output appears at once, when it is durable. An existing file or folder is never replaced, and after an error there is
/// no output. Every frame is verified before a value of it is written. Arrays may be larger than memory. `progress` is
/// called with the bytes that are written and those of all arrays.
///
/// ```
/// # use treering::{ArrayExport, ArrayFormat, Library, Options, Run, Variable, export_arrays};
/// # let folder = tempfile::tempdir().unwrap();
/// # let store = folder.path().join("store");
/// let grid: Vec<f64> = (0..600).map(f64::from).collect();
/// let mut run = Run::open(Options::directory(&store, "grids"))?;
/// run.checkpoint(7, &[Variable::new("grid", &grid).shaped(&[20, 30])])?;
/// run.finish()?;
/// let checkpoint = Library::open(&store)?.checkpoint("grids", Some(7))?;
/// let wanted = ArrayExport { format: ArrayFormat::Hdf5, variables: vec![], ranks: vec![] };
/// let exported = export_arrays(&checkpoint, &wanted, folder.path(), &|_, _| {})?;
/// assert!(exported.path.ends_with("grids-7.h5") && exported.path.is_file());
/// # Ok::<(), treering::Error>(())
/// ```
pub fn export_arrays(
    checkpoint: &Checkpoint,
    wanted: &ArrayExport,
    to: &Path,
    progress: Progress,
) -> Result<ExportedArrays> {
    export_within(checkpoint, wanted, to, progress, LIMITS)
}

fn export_within(
    checkpoint: &Checkpoint,
    wanted: &ArrayExport,
    to: &Path,
    progress: Progress,
    limits: OutputLimits,
) -> Result<ExportedArrays> {
    let (run, step) = (&checkpoint.manifest().run, checkpoint.step());
    let (rests, not_taken_apart) = beside_arrays(checkpoint, wanted)?;
    let rest = |entry: &VariableEntry| rests.contains(&entry.key());
    let entries = checkpoint.entries().iter().filter(|e| !e.is_hidden() && !rest(e));
    let with_file = |entry| StoredVariable { entry, origin: checkpoint.origin(entry) };
    let entries: Vec<StoredVariable> = entries.map(with_file).collect();
    let arrays = plan::plan(&entries, checkpoint.manifest().ranks, wanted)?;
    if arrays.is_empty() {
        let what = format!("{run}@{step} holds no arrays of these ranks");
        return Err(Error::new(ErrorKind::NotFound, what)
            .hint("`treering show` lists the variables of a checkpoint"));
    }
    let path = to.join(format!("{run}-{step}{}", wanted.format.suffix()));
    let bytes = arrays.iter().fold(0u64, |all, array| all.saturating_add(array.bytes()));
    let done = AtomicU64::new(0);
    let job = ExportJob { checkpoint, limits, total: bytes, done, progress };
    match wanted.format {
        ArrayFormat::Npy => job.npy(&arrays, &path)?,
        ArrayFormat::Hdf5 => job.hdf5(&arrays, &path)?,
        ArrayFormat::Zarr => job.zarr(&arrays, &path)?,
    }
    let exported = |array: &OutputArray| ExportedArray {
        variable: array.variable.to_string(),
        rank: array.rank,
        name: array.file_name(wanted.format),
        dtype: array.dtype,
        written_as: wanted.format.written_as(array.dtype),
        shape: array.shape().clone(),
        bytes: array.bytes(),
        rounded: array.values.is_rounded(),
    };
    let arrays = arrays.iter().map(exported).collect();
    Ok(ExportedArrays { path, format: wanted.format, bytes, arrays, not_taken_apart })
}

/// The variables that hold what is no value of ingested files, and the wanted datasets that are no variables.
fn beside_arrays(
    checkpoint: &Checkpoint,
    wanted: &ArrayExport,
) -> Result<(HashSet<VariableKey>, Vec<NotTakenApart>)> {
    let (mut rests, mut whole) = (HashSet::new(), Vec::new());
    for (rank, record) in records(checkpoint, &[])? {
        let FileRecord { name: file, format, fields, in_skeleton, skeleton, .. } = record;
        let last = fields.last().map(String::as_str);
        let rest = last.filter(|_| has_rest(&skeleton, &format, last));
        rests.extend(rest.map(|name| VariableKey::new(rank, name)));
        for dataset in in_skeleton {
            let named = |p: &String| matches(p, &dataset.variable) || matches(p, &dataset.name);
            let asked = wanted.variables.is_empty() || wanted.variables.iter().any(named);
            if asked && (wanted.ranks.is_empty() || wanted.ranks.contains(&rank)) {
                whole.push(NotTakenApart { rank, file: file.clone(), dataset });
            }
        }
    }
    Ok((rests, whole))
}

/// An export that is carried out.
struct ExportJob<'j> {
    checkpoint: &'j Checkpoint,
    limits: OutputLimits,
    total: u64,
    done: AtomicU64,
    progress: Progress<'j>,
}

impl ExportJob<'_> {
    fn tell(&self, bytes: u64) {
        let done = self.done.fetch_add(bytes, Ordering::Relaxed).saturating_add(bytes);
        (self.progress)(done, self.total);
    }

    /// Writes a folder of `.npy` files.
    fn npy(&self, arrays: &[OutputArray], path: &Path) -> Result<()> {
        let output = UnfinishedOutput::folder(path)?;
        let root = &output.temporary;
        let folders = make_folders(root, OutputGroup::root(arrays).paths())?;
        self.each(arrays, &|_, array| {
            let path = root.join(array.file_name(ArrayFormat::Npy));
            let order = array.values.order;
            let head = npy::head(array.dtype, array.shape(), order)?;
            write_file(&path, |file| {
                file.write_all_at(&head, 0).map_err(|e| failed(&path, e))?;
                self.write_values(array, order, (file, &path), head.len() as u64)
            })
        })?;
        sync_folders(&folders)?;
        output.finish()
    }

    /// Writes one HDF5 file.
    fn hdf5(&self, arrays: &[OutputArray], path: &Path) -> Result<()> {
        let layout = hdf5::lay_out(arrays, self.checkpoint.manifest())?;
        let (output, file) = UnfinishedOutput::file(path)?;
        self.each(arrays, &|number, array| {
            self.write_values(array, Order::C, (&file, path), layout.starts[number])
        })?;
        let (start, tail) = &layout.tail;
        let write =
            |bytes: &[u8], at: u64| file.write_all_at(bytes, at).map_err(|e| failed(path, e));
        write(tail, *start)?;
        write(&layout.superblock, 0)?;
        file.sync_all().map_err(|e| failed(path, e))?;
        output.finish()
    }

    /// Writes a group of Zarr.
    fn zarr(&self, arrays: &[OutputArray], path: &Path) -> Result<()> {
        let output = UnfinishedOutput::folder(path)?;
        let root = &output.temporary;
        let Manifest { run, step, labels, .. } = self.checkpoint.manifest();
        let mut about = serde_json::json!(labels);
        (about["run"], about["step"]) = (run.as_str().into(), step.0.into());
        let groups = OutputGroup::root(arrays).paths();
        let own = arrays.iter().map(|array| array.path.join("/"));
        let folders = make_folders(root, groups.iter().cloned().chain(own))?;
        write_json(root, &zarr::group(&about))?;
        for group in &groups {
            write_json(&root.join(group), &zarr::group(&serde_json::json!({})))?;
        }
        arrays.par_iter().try_for_each(|array| {
            let folder = root.join(array.path.join("/"));
            let most = self.limits.chunk / array.dtype.size();
            let chunks = Tiles::slabs(&array.shape().0, array.values.order, most);
            write_json(&folder, &zarr::array(array, &chunks))?;
            let write = |number| self.write_chunk(array, &chunks, &chunks.index(number), &folder);
            (0..chunks.count()).into_par_iter().try_for_each(write)
        })?;
        sync_folders(&folders)?;
        output.finish()
    }

    /// Writes a chunk of Zarr: a slab, with zeros behind it if the array ends before the chunk does.
    fn write_chunk(
        &self,
        array: &OutputArray,
        chunks: &Tiles,
        index: &[u64],
        folder: &Path,
    ) -> Result<()> {
        let tile = chunks.at(index);
        let used = tile.elements().unwrap_or(0) * array.dtype.size();
        let all = chunks.tile.iter().product::<u64>() * array.dtype.size();
        let mut bytes: Vec<u8> = zeroed(all)?;
        self.read(array, &tile, &mut bytes[..used as usize])?;
        let path = folder.join(zarr::chunk_name(index));
        let packed = zstd_encode(&bytes, zarr::LEVEL).map_err(|e| e.at(path.display()))?;
        write_file(&path, |file| file.write_all_at(&packed, 0).map_err(|e| failed(&path, e)))?;
        self.tell(used);
        Ok(())
    }

    /// Writes every array: small ones in parallel, then large ones, each of which is read in parallel.
    fn each(
        &self,
        arrays: &[OutputArray],
        write: &(dyn Fn(usize, &OutputArray) -> Result<()> + Sync),
    ) -> Result<()> {
        let small = |array: &OutputArray| array.bytes() <= SMALL;
        let numbered = arrays.par_iter().enumerate();
        numbered.filter(|(_, array)| small(array)).try_for_each(|(at, array)| write(at, array))?;
        let mut numbered = arrays.iter().enumerate();
        numbered.try_for_each(|(at, array)| if small(array) { Ok(()) } else { write(at, array) })
    }

    /// Writes the values of an array to a file from `start` on, in C order or in the order that they are stored in.
    fn write_values(
        &self,
        array: &OutputArray,
        order: Order,
        (file, path): (&File, &Path),
        start: u64,
    ) -> Result<()> {
        let (size, shape) = (array.dtype.size(), &array.shape().0);
        let turned = order != array.values.order && shape.len() > 1;
        let tiles = match turned {
            true => Tiles::blocks(shape, (self.limits.block / size).min(MOST_ELEMENTS)),
            false => Tiles::slabs(shape, order, self.limits.slab),
        };
        let whole = IndexBox { offset: vec![0; shape.len()], extent: shape.clone() };
        for number in 0..tiles.count() {
            let tile = tiles.at(&tiles.index(number));
            let bytes = (tile.elements().unwrap_or(0) * size) as usize;
            let mut values = Scratch::new(bytes)?;
            self.read(array, &tile, &mut values)?;
            if turned {
                let mut other = Scratch::new(bytes)?;
                into_c_order(&tile.extent, size, &values, &mut other);
                values = other;
            }
            for run in tile.runs_of(&tile, &whole, order) {
                let part = &values[(run.from * size) as usize..][..(run.len * size) as usize];
                let written = file.write_all_at(part, start + run.to * size);
                written.map_err(|e| failed(path, e))?;
            }
            self.tell(bytes as u64);
        }
        Ok(())
    }

    fn read(&self, array: &OutputArray, tile: &IndexBox, out: &mut [u8]) -> Result<()> {
        let read = self.checkpoint.read_sources(&array.values, tile, out);
        read.map_err(|e| e.at(format!("variable {:?}", array.variable)))
    }
}

/// Makes folders below a new one, outer ones first. Returns all of them.
fn make_folders(root: &Path, below: impl IntoIterator<Item = String>) -> Result<Vec<PathBuf>> {
    let mut folders = vec![root.to_path_buf()];
    for path in below {
        let folder = root.join(path);
        std::fs::create_dir(&folder).map_err(|e| failed(&folder, e))?;
        folders.push(folder);
    }
    Ok(folders)
}

/// Makes the names in folders durable.
fn sync_folders(folders: &[PathBuf]) -> Result<()> {
    folders
        .par_iter()
        .try_for_each(|folder| OsDisk.sync_folder(folder).map_err(|e| failed(folder, e)))
}

/// Writes a new file and makes it durable.
fn write_file(path: &Path, fill: impl FnOnce(&File) -> Result<()>) -> Result<()> {
    let file = File::create_new(path).map_err(|e| failed(path, e))?;
    fill(&file)?;
    file.sync_all().map_err(|e| failed(path, e))
}

/// Writes the metadata of a group or an array of Zarr.
fn write_json(folder: &Path, value: &serde_json::Value) -> Result<()> {
    let path = folder.join("zarr.json");
    let text = format!("{value:#}\n");
    write_file(&path, |file| file.write_all_at(text.as_bytes(), 0).map_err(|e| failed(&path, e)))
}

#[cfg(test)]
mod tests;
