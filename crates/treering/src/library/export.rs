//! Giving files back, byte for byte; where variables were rounded, with the rounded values.

use super::Library;
use crate::error::{Error, ErrorKind, Result};
use crate::format::{FILE_PREFIX, FileRecord, VariableEntry};
use crate::restore::Checkpoint;
use rayon::prelude::*;
use std::cell::RefCell;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

/// How many bytes of a field are fetched at a time.
const WINDOW: u64 = 8 << 20;

/// A file that was given back.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Exported {
    /// The rank.
    pub rank: u32,
    /// Where it is now.
    pub path: PathBuf,
    /// Its format.
    pub format: String,
    /// Its size.
    pub bytes: u64,
    /// How many of its arrays hold values within a bound of the original ones.
    pub rounded: u64,
}

impl Library {
    /// Writes the files of a checkpoint to a folder, those of some ranks or all; none is replaced.
    pub fn export(
        &self,
        run: &str,
        step: Option<u64>,
        ranks: &[u32],
        to: &Path,
    ) -> Result<Vec<Exported>> {
        let checkpoint = self.checkpoint(run, step)?;
        let records = records(&checkpoint, ranks)?;
        if records.is_empty() {
            return Err(Error::new(
                ErrorKind::NotFound,
                format!("{run}@{} holds no files of these ranks", checkpoint.step()),
            )
            .hint("only what `treering ingest` took in can be exported"));
        }
        for (_, record) in &records {
            let path = to.join(&record.name);
            if path.symlink_metadata().is_ok() {
                return Err(Error::usage(format!("{} is there already", path.display()))
                    .hint("export to another folder"));
            }
        }
        records.par_iter().map(|(rank, record)| write(&checkpoint, *rank, record, to)).collect()
    }
}

/// The ranks and records of the files of some ranks, or of all.
pub(super) fn records(checkpoint: &Checkpoint, ranks: &[u32]) -> Result<Vec<(u32, FileRecord)>> {
    let all = checkpoint.manifest().variables.iter();
    let records = all.filter(|v| {
        v.description.name.starts_with(FILE_PREFIX) && (ranks.is_empty() || ranks.contains(&v.rank))
    });
    records.map(|v| Ok((v.rank, record(checkpoint, v)?))).collect()
}

/// Makes a file again.
pub(super) fn rebuild(
    checkpoint: &Checkpoint,
    rank: u32,
    record: &FileRecord,
    out: &mut dyn Write,
) -> Result<()> {
    let fields = fields(checkpoint, rank, record)?;
    let window = RefCell::new((usize::MAX, 0, Vec::new()));
    let read = |field: usize, offset: u64, out: &mut [u8]| {
        let entry = fields.get(field).ok_or_else(|| {
            Error::damaged("the record of a file names a field that is not there")
        })?;
        fetch(checkpoint, entry, (field, offset), out, &window)
    };
    record.skeleton.rebuild(&read, out)
}

fn record(checkpoint: &Checkpoint, entry: &VariableEntry) -> Result<FileRecord> {
    let mut bytes = crate::restore::zeroed(entry.description.bytes().unwrap_or(0))?;
    checkpoint.read_bytes(entry, 0..bytes.len() as u64, &mut bytes)?;
    FileRecord::parse(&bytes).map_err(|e| e.at(&entry.description.name))
}

/// Writes one file under another name, and gives it its own when it is whole.
fn write(checkpoint: &Checkpoint, rank: u32, record: &FileRecord, to: &Path) -> Result<Exported> {
    let path = to.join(&record.name);
    let folder = path.parent().unwrap_or(to);
    let failed = |e| Error::io(format!("cannot write {}", path.display()), e);
    std::fs::create_dir_all(folder).map_err(failed)?;
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let temporary = folder.join(format!(".{name}.new-{}", std::process::id()));
    let fill = || -> Result<()> {
        let mut out = BufWriter::with_capacity(1 << 20, File::create(&temporary).map_err(failed)?);
        rebuild(checkpoint, rank, record, &mut out).map_err(|e| e.at(path.display()))?;
        let file = out.into_inner().map_err(|e| failed(e.into_error()))?;
        file.set_permissions(std::fs::Permissions::from_mode(record.mode)).map_err(failed)?;
        let modified = UNIX_EPOCH + Duration::from_nanos(record.modified);
        file.set_modified(modified).map_err(failed)?;
        file.sync_all().map_err(failed)?;
        rustix::fs::renameat_with(
            rustix::fs::CWD,
            &temporary,
            rustix::fs::CWD,
            &path,
            rustix::fs::RenameFlags::NOREPLACE,
        )
        .map_err(|e| failed(e.into()))?;
        File::open(folder).and_then(|folder| folder.sync_all()).map_err(failed)
    };
    let filled = fill();
    if filled.is_err() {
        // What is left of it is hidden, and nobody refers to it.
        let _ = std::fs::remove_file(&temporary);
    }
    filled?;
    let (format, bytes) = (record.format.clone(), record.skeleton.size);
    let fields = fields(checkpoint, rank, record)?;
    let rounded = fields.iter().filter(|field| field.rounded.is_some()).count() as u64;
    Ok(Exported { rank, path, format, bytes, rounded })
}

pub(super) fn fields<'c>(
    checkpoint: &'c Checkpoint,
    rank: u32,
    record: &FileRecord,
) -> Result<Vec<&'c VariableEntry>> {
    record.fields.iter().map(|name| checkpoint.manifest().variable(rank, name)).collect()
}

/// Bytes of a field, out of a window of it that is kept for the next time.
fn fetch(
    checkpoint: &Checkpoint,
    entry: &VariableEntry,
    (field, offset): (usize, u64),
    out: &mut [u8],
    window: &RefCell<(usize, u64, Vec<u8>)>,
) -> Result<()> {
    let size = entry.description.bytes().unwrap_or(0);
    let end = offset.checked_add(out.len() as u64).filter(|end| *end <= size);
    let end =
        end.ok_or_else(|| Error::damaged("the record of a file leads past the end of a field"))?;
    if out.len() as u64 >= WINDOW {
        return checkpoint.read_bytes(entry, offset..end, out);
    }
    let mut window = window.borrow_mut();
    let held = window.1..window.1 + window.2.len() as u64;
    if window.0 != field || offset < held.start || end > held.end {
        let range = offset..size.min(offset + WINDOW);
        let mut bytes = crate::restore::zeroed(range.end - range.start)?;
        checkpoint.read_bytes(entry, range.clone(), &mut bytes)?;
        *window = (field, range.start, bytes);
    }
    let from = (offset - window.1) as usize;
    out.copy_from_slice(&window.2[from..from + out.len()]);
    Ok(())
}
