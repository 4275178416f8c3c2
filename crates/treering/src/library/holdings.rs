//! The files that a run holds, step by step, and whether one of them is held byte for byte.
//!
//! The law: `gives` says yes only if the file, made again from what the store holds at this moment,
//! is the same byte for byte. Names, sizes and times are what is compared first; whoever is about to
//! remove an original asks this.

use super::Library;
use super::export::{FileParts, records};
use crate::array::{Bound, Rank, Sequence, Step};
use crate::error::{Error, ErrorKind, Result};
use crate::format::{FileRecord, Manifest, VariableEntry, check_run_name};
use crate::io::open_file;
use crate::log::Log;
use crate::restore::Checkpoint;
use crate::source::{self, RawLayout};
use std::cell::Cell;
use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::Path;

/// The checkpoints of a run that hold files, by step. Returned by [`Library::holdings`], which has an example.
pub struct Holdings {
    library: Library,
    run: String,
    log: Log,
    /// The sequence numbers of each step, ascending.
    steps: HashMap<Step, Vec<Sequence>>,
    newest: Option<usize>,
}

/// The files of one checkpoint. Returned by [`Holdings::of_step`]; the example of [`Library::holdings`] shows its use.
pub struct HeldSet {
    checkpoint: Checkpoint,
    files: Vec<(Rank, FileRecord)>,
}

impl Library {
    /// The files that a run holds, and the errors of entries of its log that cannot be read.
    ///
    /// ```
    /// use treering::{FileRules, Ingest, IngestSettings, Library, Options, rank_files};
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let (file, store) = (folder.path().join("rod.raw"), folder.path().join("store"));
    /// std::fs::write(&file, [7u8; 4096])?;
    /// let files = rank_files(&[file.clone()], &FileRules::default())?.files;
    /// let mut ingest = Ingest::open(Options::directory(&store, "rod"), IngestSettings::default())?;
    /// ingest.take(1, &files, &|_packed, _of| {})?;
    /// let (holdings, errors) = Library::open(&store)?.holdings("rod")?;
    /// let (sets, _) = holdings.of_step(1);
    /// // Whether the file could be removed: its export gives these very bytes.
    /// assert!(errors.is_empty() && sets[0].gives("rod.raw", &file)?);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn holdings(&self, run: &str) -> Result<(Holdings, Vec<Error>)> {
        check_run_name(run)?;
        let log = Log::read(self.store.clone(), run)?;
        let (manifests, trouble) = log.manifests();
        let (library, run) = (self.clone(), run.to_string());
        let mut holdings = Holdings { library, run, log, steps: HashMap::new(), newest: None };
        manifests.iter().for_each(|manifest| holdings.add(manifest));
        Ok((holdings, trouble))
    }
}

impl Holdings {
    /// Reads the holdings again: a commit that was reported as failed may have succeeded.
    pub fn again(&self) -> Result<Holdings> {
        Ok(self.library.holdings(&self.run)?.0)
    }

    /// Takes note of a checkpoint that is newer than all others.
    pub fn add(&mut self, manifest: &Manifest) {
        let files = manifest.files as usize;
        if files > 0 {
            self.steps.entry(manifest.step).or_default().push(manifest.sequence);
            self.newest = Some(files);
        }
    }

    /// Number of files of the newest checkpoint.
    pub fn newest_count(&self) -> Option<usize> {
        self.newest
    }

    /// The sets of a step, the newest first, and the errors of those that cannot be read.
    pub fn of_step(&self, step: u64) -> (Vec<HeldSet>, Vec<Error>) {
        let (mut sets, mut trouble) = (Vec::new(), Vec::new());
        for sequence in self.steps.get(&Step(step)).into_iter().flatten().rev() {
            match self.load(*sequence) {
                Ok(set) => sets.extend(set),
                Err(error) => trouble.push(error),
            }
        }
        (sets, trouble)
    }

    fn load(&self, sequence: Sequence) -> Result<Option<HeldSet>> {
        let manifest = match self.log.manifest(sequence) {
            Ok(Some(manifest)) => manifest,
            Ok(None) => return Ok(None),
            // It was pruned meanwhile.
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let checkpoint = Checkpoint::load(self.library.store.clone(), manifest)?;
        let files = records(&checkpoint, &[])?;
        Ok(Some(HeldSet { checkpoint, files }))
    }
}

impl HeldSet {
    /// Every file's name, size, and when it was written, in nanoseconds since 1970.
    pub fn files(&self) -> impl Iterator<Item = (&str, u64, u64)> {
        self.files.iter().map(|(_, file)| (file.name.as_str(), file.skeleton.size, file.modified))
    }

    /// Whether the file at `path`, ingested again within the same bounds, would be exported as what is exported under
    /// this name; without bounds, whether it [`gives`](Self::gives) the file.
    pub fn took(&self, name: &str, path: &Path, raw: Option<&RawLayout>) -> Result<bool> {
        let Some((rank, record)) = self.files.iter().find(|(_, file)| file.name == name) else {
            return Ok(false);
        };
        let parts = FileParts::new(&self.checkpoint, *rank, record)?;
        let bound = |field: &&VariableEntry| field.rounded.map(|rounding| rounding.bound());
        let bounds: Vec<Option<Bound>> = parts.fields.iter().map(bound).collect();
        if bounds.iter().all(Option::is_none) {
            return self.gives(name, path);
        }
        let mut anatomy = source::take_apart(path, raw)?;
        if anatomy.skeleton.size != record.skeleton.size || anatomy.fields.len() != bounds.len() {
            return Ok(false);
        }
        let names = record.fields.clone();
        anatomy.round(&names, &bounds)?;
        if anatomy.skeleton.digest != record.skeleton.digest {
            return Ok(false);
        }
        parts.stream(&self.checkpoint, &mut io::sink()).map(|()| true)
    }

    /// Whether what is exported under this name is, byte for byte, the file at `path`.
    pub fn gives(&self, name: &str, path: &Path) -> Result<bool> {
        let Some((rank, record)) = self.files.iter().find(|(_, file)| file.name == name) else {
            return Ok(false);
        };
        let failed = |e| Error::io(format!("cannot read {}", path.display()), e);
        let file = open_file(path).map_err(failed)?;
        if file.metadata().map_err(failed)?.len() != record.skeleton.size {
            return Ok(false);
        }
        let differs = Cell::new(false);
        let mut against = Against { file, differs: &differs, buffer: Vec::new() };
        match FileParts::new(&self.checkpoint, *rank, record)
            .and_then(|parts| parts.stream(&self.checkpoint, &mut against))
        {
            Ok(()) => {
                let more = against.file.read(&mut [0]).map_err(failed)?;
                Ok(more == 0)
            }
            Err(_) if differs.get() => Ok(false),
            Err(error) => Err(error.at(path.display())),
        }
    }
}

/// Takes bytes that must be those of a file; the first that differ end it.
struct Against<'a> {
    file: File,
    differs: &'a Cell<bool>,
    buffer: Vec<u8>,
}

impl Write for Against<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.buffer.resize(bytes.len(), 0);
        match self.file.read_exact(&mut self.buffer) {
            Err(error) if error.kind() != io::ErrorKind::UnexpectedEof => Err(error),
            Ok(()) if self.buffer == bytes => Ok(bytes.len()),
            _ => {
                self.differs.set(true);
                Err(io::Error::other("the file differs"))
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
