//! Exporting files, byte for byte; where variables were rounded, with the rounded values.

use super::Library;
use crate::array::Rank;
use crate::error::{Error, ErrorKind, Result};
use crate::format::{FILE_PREFIX, FileRecord, InSkeleton, VariableEntry};
use crate::io::hidden_name;
use crate::memory::{Scratch, TOGETHER, batches};
use crate::restore::Checkpoint;
use crate::source::FieldValues;
use crate::store::{Disk, OsDisk};
use rayon::prelude::*;
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

/// Number of bytes of a field that are fetched at a time, where a file is too large to be read at once.
const WINDOW: u64 = 8 << 20;
/// Bytes between two rows of chunks that are fetched rather than skipped: they lie in the same frames.
const GAP: u64 = 256 << 10;
/// Number of bytes of chunks that are gathered at a time: each time costs a walk along the field.
const CHUNKS: u64 = 128 << 20;

/// Bytes of a field that were fetched together.
struct Window {
    field: usize,
    from: u64,
    bytes: Scratch,
}

impl Window {
    fn len(&self) -> u64 {
        self.bytes.len() as u64
    }
}

/// A file that was exported. Returned by [`export`], which has an example.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Exported {
    /// The rank.
    pub rank: Rank,
    /// Path of the exported file.
    pub path: PathBuf,
    /// Its format.
    pub format: String,
    /// Its size.
    pub bytes: u64,
    /// Number of its arrays with values within a bound of the original ones.
    pub rounded: u64,
}

/// A dataset of a stored file that was not taken apart. Returned by [`Library::not_taken_apart`], which has an example.
#[derive(Clone, Debug, serde::Serialize)]
pub struct NotTakenApart {
    /// The rank.
    pub rank: Rank,
    /// The file.
    pub file: String,
    /// The dataset, by its name in the file, by the name that `compare` uses, and the reason.
    #[serde(flatten)]
    pub dataset: InSkeleton,
}

impl Library {
    /// Lists the datasets of stored files that were not taken apart: they are stored as the bytes that
    /// they have in their files.
    ///
    /// ```
    /// use treering::Library;
    /// fn show(library: &Library, run: &str) -> treering::Result<()> {
    ///     for kept in library.not_taken_apart(&library.checkpoint(run, None)?)? {
    ///         println!("{} of {}: {}", kept.dataset.name, kept.file, kept.dataset.why);
    ///     }
    ///     Ok(())
    /// }
    /// # let store = tempfile::tempdir().unwrap();
    /// # treering::Run::open(treering::Options::directory(store.path(), "rod"))?
    /// #     .checkpoint(0, &[treering::Variable::scalar("x", &1.0)])?.durable()?;
    /// # show(&Library::open(store.path())?, "rod")?;
    /// # Ok::<(), treering::Error>(())
    /// ```
    pub fn not_taken_apart(&self, checkpoint: &Checkpoint) -> Result<Vec<NotTakenApart>> {
        let files = records(checkpoint, &[])?.into_iter();
        let of_file = |(rank, record): (Rank, FileRecord)| {
            let datasets = record.in_skeleton.into_iter();
            let file = record.name;
            datasets.map(move |dataset| NotTakenApart { rank, file: file.clone(), dataset })
        };
        Ok(files.flat_map(of_file).collect())
    }

    /// Writes the files of a checkpoint to a folder: those of some ranks, or of all if `ranks` is empty. When it returns
    /// they are durable.
    ///
    /// **Errors**: [`ErrorKind::Usage`] before anything is written if a file of one of these names is there: none is
    /// replaced. [`ErrorKind::NotFound`] if the checkpoint holds no files of these ranks. A file gets its name when it is
    /// complete: after another error the files that were complete remain, and a second export needs another folder. A
    /// process that is killed can leave hidden files `.NAME.new-PID`.
    pub fn export(
        &self,
        run: &str,
        step: Option<u64>,
        ranks: &[Rank],
        to: &Path,
    ) -> Result<Vec<Exported>> {
        export(&self.checkpoint(run, step)?, ranks, to)
    }
}

/// Writes the files of a checkpoint to a folder, as [`Library::export`] does.
///
/// ```
/// use treering::{FileRules, Ingest, IngestSettings, Library, Options, export, rank_files};
/// # let folder = tempfile::tempdir().unwrap();
/// # let (file, store, back) = (folder.path().join("rod.raw"), folder.path().join("store"), folder.path().join("back"));
/// std::fs::write(&file, [7u8; 4096])?;
/// let files = rank_files(&[file], &FileRules::default())?.files;
/// let mut ingest = Ingest::open(Options::directory(&store, "rod"), IngestSettings::default())?;
/// ingest.take(1, &files, &|_packed, _of| {})?;
/// let exported = export(&Library::open(&store)?.checkpoint("rod", Some(1))?, &[], &back)?;
/// assert_eq!(exported[0].path, back.join("rod.raw"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn export(checkpoint: &Checkpoint, ranks: &[Rank], to: &Path) -> Result<Vec<Exported>> {
    let records = records(checkpoint, ranks)?;
    if records.is_empty() {
        let (run, step) = (&checkpoint.manifest().run, checkpoint.step());
        return Err(Error::new(
            ErrorKind::NotFound,
            format!("{run}@{step} holds no files of these ranks"),
        )
        .hint(
            "files are those that were ingested; write arrays that a program saved with --as npy, \
             --as hdf5 or --as zarr",
        ));
    }
    for (_, record) in &records {
        let path = to.join(&record.name);
        if path.symlink_metadata().is_ok() {
            return Err(Error::usage(format!("{} is there already", path.display()))
                .hint("export to another folder"));
        }
    }
    let files: Vec<FileParts> = records
        .iter()
        .map(|(rank, record)| FileParts::new(checkpoint, *rank, record))
        .collect::<Result<_>>()?;
    let mut exported = Vec::with_capacity(files.len());
    for files in batches(&files, TOGETHER, |file| file.bytes) {
        let read = match files {
            [file] if file.bytes > TOGETHER => None,
            _ => {
                let fields = files.iter().flat_map(|file| &file.fields).copied();
                Some(checkpoint.read_together(&fields.collect::<Vec<_>>())?)
            }
        };
        let mut starts = Vec::new();
        files.iter().fold(0u64, |start, file| {
            starts.push(start);
            start.saturating_add(file.bytes)
        });
        let read = read.as_deref();
        let files = files.par_iter().zip(starts);
        let wrote = files.map(|(file, start)| {
            write(file, to, &mut |out| match read {
                None => file.stream(checkpoint, out),
                Some(all) => file.rebuild(&all[start as usize..][..file.bytes as usize], out),
            })
        });
        exported.extend(wrote.collect::<Result<Vec<_>>>()?);
    }
    let folders = exported.iter().filter_map(|file| file.path.parent());
    for folder in folders.collect::<BTreeSet<_>>() {
        let synced = OsDisk.sync_folder(folder);
        synced.map_err(|e| Error::io(format!("cannot write to {}", folder.display()), e))?;
    }
    Ok(exported)
}

/// The ranks and records of the files of some ranks, or of all.
pub(super) fn records(checkpoint: &Checkpoint, ranks: &[Rank]) -> Result<Vec<(Rank, FileRecord)>> {
    let all = checkpoint.entries().iter();
    let records = all.filter(|v| {
        v.description.name.starts_with(FILE_PREFIX) && (ranks.is_empty() || ranks.contains(&v.rank))
    });
    records.map(|v| Ok((v.rank, record(checkpoint, v)?))).collect()
}

/// A file as the checkpoint holds it.
pub(super) struct FileParts<'c> {
    rank: Rank,
    record: &'c FileRecord,
    pub(super) fields: Vec<&'c VariableEntry>,
    /// The size of all fields.
    bytes: u64,
}

impl<'c> FileParts<'c> {
    pub(super) fn new(
        checkpoint: &'c Checkpoint,
        rank: Rank,
        record: &'c FileRecord,
    ) -> Result<Self> {
        let field = |name: &String| checkpoint.exact(rank, name);
        let fields: Vec<_> = record.fields.iter().map(field).collect::<Result<_>>()?;
        let bytes = fields.iter().fold(0u64, |all, field| all.saturating_add(size(field)));
        Ok(FileParts { rank, record, fields, bytes })
    }

    /// Makes the file again, of fields that lie one behind another.
    fn rebuild(&self, mut all: &[u8], out: &mut dyn Write) -> Result<()> {
        let mut fields = Vec::with_capacity(self.fields.len());
        for field in &self.fields {
            let (head, rest) = all.split_at(size(field) as usize);
            fields.push(head);
            all = rest;
        }
        let read = |field: usize, offset: u64, out: &mut [u8]| {
            let bytes = fields.get(field).ok_or_else(no_field)?;
            let from = bytes.get(offset.min(bytes.len() as u64) as usize..).unwrap_or_default();
            out.copy_from_slice(from.get(..out.len()).ok_or_else(past_the_end)?);
            Ok(())
        };
        self.record.skeleton.rebuild(&read, out)
    }

    /// Makes the file again; a part of its fields is in memory at a time.
    pub(super) fn stream(&self, checkpoint: &Checkpoint, out: &mut dyn Write) -> Result<()> {
        let window = RefCell::new(None);
        self.record.skeleton.rebuild(&StreamedFields { parts: self, checkpoint, window }, out)
    }
}

/// The fields of a file in the store, of which a window is in memory.
struct StreamedFields<'c> {
    parts: &'c FileParts<'c>,
    checkpoint: &'c Checkpoint,
    window: RefCell<Option<Window>>,
}

impl FieldValues for StreamedFields<'_> {
    fn read(&self, field: usize, offset: u64, out: &mut [u8]) -> Result<()> {
        self.fetch(field, offset, out, WINDOW)
    }

    /// Rows that lie close together are fetched together.
    fn read_rows(&self, field: usize, rows: &mut [(u64, &mut [u8])]) -> Result<()> {
        let mut at = 0;
        while at < rows.len() {
            let start = rows[at].0;
            let mut end = start;
            let mut near = |(offset, row): &(u64, &mut [u8])| {
                let next = offset.saturating_add(row.len() as u64);
                let near =
                    *offset <= end.saturating_add(GAP) && next <= start.saturating_add(WINDOW);
                if near {
                    end = end.max(next);
                }
                near
            };
            let count = rows[at..].iter().map_while(|row| near(row).then_some(())).count().max(1);
            for (offset, row) in &mut rows[at..at + count] {
                self.fetch(field, *offset, row, end - start)?;
            }
            at += count;
        }
        Ok(())
    }

    fn batch(&self) -> u64 {
        CHUNKS
    }
}

impl StreamedFields<'_> {
    /// Bytes of a field, out of a window of it that is kept for the next time.
    fn fetch(&self, field: usize, offset: u64, out: &mut [u8], ahead: u64) -> Result<()> {
        let entry = self.parts.fields.get(field).ok_or_else(no_field)?;
        let size = size(entry);
        let end = offset.checked_add(out.len() as u64).filter(|end| *end <= size);
        let end = end.ok_or_else(past_the_end)?;
        if out.len() as u64 >= WINDOW {
            return self.checkpoint.read_bytes(entry, offset..end, out);
        }
        let mut window = self.window.borrow_mut();
        let holds = |window: &&Window| {
            window.field == field && window.from <= offset && end <= window.from + window.len()
        };
        if window.as_ref().filter(holds).is_none() {
            // Its memory serves the next one.
            drop(window.take());
            let range = offset..size.min(end.max(offset + ahead));
            let mut bytes = Scratch::new((range.end - range.start) as usize)?;
            self.checkpoint.read_bytes(entry, range, &mut bytes)?;
            *window = Some(Window { field, from: offset, bytes });
        }
        if let Some(window) = &*window {
            let from = (offset - window.from) as usize;
            out.copy_from_slice(&window.bytes[from..from + out.len()]);
        }
        Ok(())
    }
}

fn no_field() -> Error {
    Error::damaged("the record of a file names a field that is not there")
}

fn past_the_end() -> Error {
    Error::damaged("the record of a file leads past the end of a field")
}

fn size(field: &VariableEntry) -> u64 {
    field.description.bytes().unwrap_or(0)
}

fn record(checkpoint: &Checkpoint, entry: &VariableEntry) -> Result<FileRecord> {
    let mut bytes = crate::memory::zeroed(entry.description.bytes().unwrap_or(0))?;
    checkpoint.read_bytes(entry, 0..bytes.len() as u64, &mut bytes)?;
    FileRecord::parse(&bytes).map_err(|e| e.at(&entry.description.name))
}

/// Writes one file under another name, and gives it its own when it is whole.
fn write(
    file: &FileParts,
    to: &Path,
    fill: &mut dyn FnMut(&mut dyn Write) -> Result<()>,
) -> Result<Exported> {
    let (rank, record) = (file.rank, file.record);
    let path = to.join(&record.name);
    let folder = path.parent().unwrap_or(to);
    let failed = |e| Error::io(format!("cannot write {}", path.display()), e);
    std::fs::create_dir_all(folder).map_err(failed)?;
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let temporary = folder.join(hidden_name(&name));
    let mut make = || -> Result<()> {
        let mut out = BufWriter::with_capacity(1 << 16, File::create(&temporary).map_err(failed)?);
        fill(&mut out).map_err(|e| e.at(path.display()))?;
        let file = out.into_inner().map_err(|e| failed(e.into_error()))?;
        file.set_permissions(std::fs::Permissions::from_mode(record.mode)).map_err(failed)?;
        let modified = UNIX_EPOCH + Duration::from_nanos(record.modified);
        file.set_modified(modified).map_err(failed)?;
        file.sync_all().map_err(failed)?;
        OsDisk.rename_new(&temporary, &path).map_err(failed)
    };
    let made = make();
    if made.is_err() {
        // Its remains are hidden, and nothing refers to them.
        let _ = std::fs::remove_file(&temporary);
    }
    made?;
    let (format, bytes) = (record.format.clone(), record.skeleton.size);
    let rounded = file.fields.iter().filter(|field| field.rounded.is_some()).count() as u64;
    Ok(Exported { rank, path, format, bytes, rounded })
}
