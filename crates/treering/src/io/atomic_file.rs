//! Files that appear when they are complete: reports, lists, trees.
//!
//! The older file stays until then, and stays for good if the writing fails. Where something
//! stands that is no ordinary file (a pipe, a terminal, `/dev/null`), the bytes go into it.

use crate::error::{Error, ErrorKind, Result};
use std::fs::File;
use std::io::{BufWriter, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// A file that is being written.
pub(crate) struct AtomicFile {
    shown: String,
    /// Its final path: behind a link, the target.
    path: PathBuf,
    /// Its temporary path; `None` if the target is not an ordinary file.
    temporary: Option<PathBuf>,
    out: BufWriter<File>,
}

/// The name of a hidden file that becomes the file of this name when it is complete.
pub(crate) fn hidden_name(name: &str) -> String {
    /// File systems permit 255 bytes.
    const LONGEST: usize = 200;
    static TRUNCATED: AtomicU64 = AtomicU64::new(0);
    let process = std::process::id();
    match name.len() <= LONGEST {
        true => format!(".{name}.new-{process}"),
        // Names that begin alike are told apart by their number.
        false => {
            let end = (0..=LONGEST).rev().find(|at| name.is_char_boundary(*at)).unwrap_or(0);
            let number = TRUNCATED.fetch_add(1, Ordering::Relaxed);
            format!(".{}.{number}.new-{process}", &name[..end])
        }
    }
}

fn failed(shown: &str, error: std::io::Error) -> Error {
    use std::io::ErrorKind as Os;
    let (kind, hint) = match error.kind() {
        Os::StorageFull | Os::QuotaExceeded | Os::FileTooLarge => {
            (ErrorKind::Full, "free some space, or write it elsewhere")
        }
        Os::NotFound | Os::NotADirectory => (ErrorKind::NotFound, "its folder must be there"),
        _ => (ErrorKind::Io, "choose a place that can be written to"),
    };
    Error::new(kind, format!("cannot write {shown}: {error}")).hint(hint)
}

impl AtomicFile {
    pub(crate) fn create(path: &Path) -> Result<AtomicFile> {
        let shown = path.display().to_string();
        let path = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_path_buf());
        let there = std::fs::metadata(&path).ok();
        if there.as_ref().is_some_and(|meta| meta.is_dir()) {
            return Err(Error::usage(format!("cannot write {shown}: it is a folder"))
                .hint("give the name of a file"));
        }
        let temporary = there.is_none_or(|meta| meta.is_file()).then(|| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            folder_of(&path).join(hidden_name(&name))
        });
        let out = match &temporary {
            Some(temporary) => File::create(temporary),
            None => File::options().write(true).open(&path),
        };
        let out = BufWriter::new(out.map_err(|e| failed(&shown, e))?);
        Ok(AtomicFile { shown, path, temporary, out })
    }

    pub(crate) fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.out.write_all(bytes).map_err(|e| failed(&self.shown, e))
    }

    /// Writes the first bytes again.
    pub(crate) fn rewrite_start(&mut self, bytes: &[u8]) -> Result<()> {
        let again = self.out.seek(SeekFrom::Start(0)).and_then(|_| self.out.write_all(bytes));
        again.map_err(|e| failed(&self.shown, e))
    }

    /// Makes it appear.
    pub(crate) fn finish(mut self) -> Result<()> {
        self.appear().map_err(|e| failed(&self.shown, e))
    }

    fn appear(&mut self) -> std::io::Result<()> {
        self.out.flush()?;
        if let Some(temporary) = &self.temporary {
            self.out.get_ref().sync_all()?;
            std::fs::rename(temporary, &self.path)?;
            self.temporary = None;
            File::open(folder_of(&self.path))?.sync_all()?;
        }
        Ok(())
    }
}

impl Drop for AtomicFile {
    fn drop(&mut self) {
        if let Some(temporary) = &self.temporary {
            // Its remains are hidden, and nothing refers to them.
            let _ = std::fs::remove_file(temporary);
        }
    }
}

fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Writes a file: whole, or not at all. An older file of that name is replaced when the new one is complete and durable,
/// and stays after an error.
///
/// ```
/// # let folder = tempfile::tempdir().unwrap();
/// # let path = folder.path().join("report.html");
/// treering::write_whole(&path, b"<p>equal</p>")?;
/// assert_eq!(std::fs::read(&path).unwrap(), b"<p>equal</p>");
/// # Ok::<(), treering::Error>(())
/// ```
pub fn write_whole(path: &Path, bytes: &[u8]) -> Result<()> {
    let mut whole = AtomicFile::create(path)?;
    whole.write(bytes)?;
    whole.finish()
}
