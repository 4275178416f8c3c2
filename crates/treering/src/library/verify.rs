//! Reading and checking every byte of a store, in every tier.
//!
//! Each file of the log is parsed; each bundle is read whole; each pack that a manifest names is read once, whole: header,
//! every frame, footer. Each checkpoint is loaded, so that the chain of seals and every reference
//! is followed; the newest of each run (or every one, on request) is restored and checked against its
//! roots, and its files are made again and checked against their digests.

use super::export::{FileParts, records};
use super::{Library, Progress};
use crate::array::Sequence;
use crate::comm::{Comm, WorkShare, wire};
use crate::compact::Bundler;
use crate::error::{Error, ErrorKind, Result};
use crate::format::{Manifest, Names, Opening, PackName};
use crate::log::{self, FullManifest, Log, Survey};
use crate::memory::zeroed;
use crate::restore::{Checkpoint, check_frames, read_footer};
use crate::store::read_small;
use serde::Serialize;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::atomic::{AtomicU64, Ordering};

/// A problem that a verification has found; see [`Library::verify`], which has an example.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// Location: a key of the store, or `run@step`.
    pub place: String,
    /// Description of the problem.
    pub what: String,
}

wire! { struct Finding { place, what } }

/// Result of a verification. Returned by [`Library::verify`], which has an example.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct VerifyReport {
    /// Number of checkpoints that were checked.
    pub checkpoints: u64,
    /// Number of these that can be restored.
    pub sound: u64,
    /// Number of packs that were read.
    pub packs: u64,
    /// Bytes that were read of these.
    pub bytes: u64,
    /// The problems that were found.
    pub findings: Vec<Finding>,
    /// Keys of files that nothing refers to; the next opening or pruning of their run removes them.
    pub unreferenced: Vec<String>,
}

wire! { struct VerifyReport { checkpoints, sound, packs, bytes, findings, unreferenced } }

/// Findings in one pack.
struct CheckedPack {
    copies: u64,
    findings: Vec<Finding>,
    /// The frames that are bad in every copy.
    bad: HashSet<u32>,
}

wire! { struct CheckedPack { copies, findings, bad } }

/// An error on its way to other ranks.
fn letter(error: &Error) -> (u8, String) {
    (error.kind().code(), error.to_string())
}

fn read_letter(code: u8, what: String) -> Error {
    Error::new(ErrorKind::from_code(code).unwrap_or(ErrorKind::Io), what)
}

impl VerifyReport {
    /// Whether nothing is wrong.
    pub fn is_sound(&self) -> bool {
        self.findings.is_empty()
    }

    /// Forgets what was found of checkpoints and runs that were removed meanwhile: that is no damage. Objects that
    /// checkpoints still need are kept.
    fn forget(
        &mut self,
        gone: &[&FullManifest],
        removed: &[&str],
        needed: &BTreeSet<(String, PackName)>,
    ) {
        let mut keys = BTreeSet::new();
        for full in gone {
            keys.insert(Names::new(&full.manifest.run).entry(full.manifest.sequence));
            keys.extend(full.packs().map(|(run, pack)| Names::new(&run).pack(pack)));
        }
        let needed: BTreeSet<String> =
            needed.iter().map(|(run, pack)| Names::new(run).pack(*pack)).collect();
        self.findings.retain(|finding| {
            let is_of = |key: &String| {
                let rest = finding.place.strip_prefix(&key[..]);
                rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(' '))
            };
            let of_run = |run: &&str| {
                let inside = finding.place.starts_with(&format!("runs/{run}/"));
                inside || finding.place == format!("run {run}")
            };
            let is_removed = keys.iter().any(is_of) || removed.iter().any(of_run);
            !is_removed || needed.iter().any(is_of)
        });
    }

    fn add(&mut self, place: impl ToString, what: impl ToString) {
        self.findings.push(Finding { place: place.to_string(), what: what.to_string() });
    }
}

impl Library {
    /// Reads and checks every byte of one run, or of all. With `deep` every checkpoint is restored in memory; otherwise only
    /// the newest of each run.
    ///
    /// Damage is no error: it is in the findings of the report, and [`VerifyReport::is_sound`] is false. **Errors**: no
    /// such run, or every checkpoint vanishes meanwhile ([`ErrorKind::NotFound`]), or a folder cannot be listed. Takes no lock
    /// and changes nothing; checkpoints that are removed meanwhile are not reported.
    ///
    /// ```
    /// use treering::{Library, Options, Run, Variable};
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let store = folder.path().join("store");
    /// let mut run = Run::open(Options::directory(&store, "rod"))?;
    /// run.checkpoint(1, &[Variable::new("heat", &[293.15f64; 1000])])?;
    /// run.finish()?;
    /// let report = Library::open(&store)?.verify(Some("rod"), true, &|_, _| {})?;
    /// report.findings.iter().for_each(|finding| eprintln!("{}: {}", finding.place, finding.what));
    /// assert!(report.is_sound() && report.sound == 1);
    /// # Ok::<(), treering::Error>(())
    /// ```
    pub fn verify(
        &self,
        run: Option<&str>,
        deep: bool,
        progress: Progress,
    ) -> Result<VerifyReport> {
        self.verify_part(run, deep, progress, &WorkShare::alone())
    }

    /// Checks a store as [`verify`](Self::verify) does, together with other ranks, each of which reads a part; collective.
    /// All ranks open the same store. All get the same report, or an error if one of them has died or failed, also if it
    /// could not open the store.
    pub fn verify_with_ranks(
        comm: &dyn Comm,
        library: Result<Library>,
        run: Option<&str>,
        deep: bool,
        progress: Progress,
    ) -> Result<VerifyReport> {
        let share = WorkShare::of(comm);
        let report = library.and_then(|library| library.verify_part(run, deep, progress, &share));
        share.end(report, |report| format!("{report:?}"))
    }

    /// Checks everything that is quick to read, and the part of this rank of everything else.
    fn verify_part(
        &self,
        run: Option<&str>,
        deep: bool,
        progress: Progress,
        share: &WorkShare,
    ) -> Result<VerifyReport> {
        let mut report = VerifyReport::default();
        let names = match run {
            Some(run) => {
                self.log(run)?;
                vec![run.to_string()]
            }
            // Folders without a log, too: what is in them is not needed.
            None => log::runs(self.store.as_ref())?,
        };
        let (named, all_named) = self.named()?;
        let (mut all, mut surveys) = (Vec::new(), Vec::new());
        for run in &names {
            let mut survey = Log::read(self.store.clone(), run)?.survey();
            let full = survey.take_full(self.store.as_ref());
            all.extend(full.iter().cloned());
            surveys.push((survey, full));
        }
        let runs = share.each("runs", &vec![1; names.len()], |at| {
            let (survey, full) = &surveys[at];
            self.check_run(&names[at], survey, full, &named).map_err(|error| letter(&error))
        })?;
        for of_run in runs {
            let of_run = of_run.map_err(|(code, what)| read_letter(code, what))?;
            report.findings.extend(of_run.findings);
            // Nobody knows what an entry needs that cannot be read; a stray in a log is needed by none.
            let is_stray = |key: &String| names.iter().any(|run| is_in_log(run, key));
            let spare = of_run.unreferenced.into_iter().filter(|key| all_named || is_stray(key));
            report.unreferenced.extend(spare);
        }
        self.check_log_copies(&all, &mut report);
        let bad = self.check_packs(&all, progress, &mut report, share)?;
        let is_restored = |at: usize| {
            let next = all.get(at + 1).map(|next: &FullManifest| &next.manifest.run);
            deep || next != Some(&all[at].manifest.run)
        };
        let weight = |at: usize| match is_restored(at) {
            true => all[at].manifest.full_bytes,
            false => 1,
        };
        let weights: Vec<u64> = (0..all.len()).map(weight).collect();
        let wrong = share.each("checkpoints", &weights, |at| {
            let manifest = &all[at].manifest;
            let checkpoint = self.check_checkpoint(manifest.clone(), is_restored(at));
            let sound = checkpoint.and_then(|checkpoint| match bad.is_empty() {
                true => Ok(()),
                false => checkpoint.avoids(&bad),
            });
            let place = format!("{}@{}", manifest.run, manifest.step);
            sound.err().map(|error| Finding { place, what: error.to_string() })
        })?;
        let logs = share.each("logs", &vec![1; names.len()], |at| self.entries_now(&names[at]))?;
        let logs: HashMap<&str, HashSet<u64>> =
            names.iter().map(String::as_str).zip(logs).filter_map(|(n, l)| Some((n, l?))).collect();
        let is_gone = |full: &FullManifest| {
            let log = logs.get(&full.manifest.run[..]);
            log.is_some_and(|log| !log.contains(&full.manifest.sequence.0))
        };
        let (gone, there): (Vec<_>, Vec<_>) =
            all.iter().zip(wrong).partition(|(full, _)| is_gone(full));
        let vanished = !names.is_empty() && log::runs(self.store.as_ref())?.is_empty();
        if vanished || there.is_empty() && !gone.is_empty() {
            return Err(Error::new(
                ErrorKind::NotFound,
                "every checkpoint has vanished while it was verified",
            )
            .at(self.last.name())
            .hint(
                "unless they were removed on purpose, check whether the file system is mounted",
            ));
        }
        if !gone.is_empty() {
            let gone: Vec<&FullManifest> = gone.into_iter().map(|(full, _)| full).collect();
            let mut removed: Vec<&str> = gone.iter().map(|full| &full.manifest.run[..]).collect();
            removed.retain(|run| logs.get(run).is_some_and(HashSet::is_empty));
            report.forget(&gone, &removed, &self.named()?.0);
        }
        report.checkpoints = there.len() as u64;
        report.sound = there.iter().filter(|(_, wrong)| wrong.is_none()).count() as u64;
        report.findings.extend(there.into_iter().filter_map(|(_, wrong)| wrong));
        Ok(report)
    }

    /// The numbers that the log of a run has at this moment, if it can be read.
    fn entries_now(&self, run: &str) -> Option<HashSet<u64>> {
        let log = Log::read(self.store.clone(), run).ok()?;
        Some(log.sequences.iter().map(|sequence| sequence.0).collect())
    }

    /// The files of one run beside its packs and manifests.
    fn check_run(
        &self,
        run: &str,
        survey: &Survey,
        full: &[FullManifest],
        named: &BTreeSet<(String, PackName)>,
    ) -> Result<VerifyReport> {
        let mut report = VerifyReport::default();
        let now = self.entries_now(run);
        let is_gone = |(sequence, error): &(Sequence, Error)| {
            let listed = now.as_ref().is_none_or(|now| now.contains(&sequence.0));
            error.kind() == ErrorKind::NotFound && !listed
        };
        let unreadable = survey.unreadable.iter().filter(|entry| !is_gone(entry));
        let bad = unreadable.map(|(_, error)| error).chain(&survey.others);
        bad.for_each(|error| report.add(format!("run {run}"), error));
        self.check_openings(run, &mut report)?;
        let entry = |sequence: &Sequence| Names::new(run).entry(*sequence);
        report.unreferenced.extend(survey.strays.iter().map(entry));
        self.find_unreferenced(run, named, &mut report)?;
        self.find_unreferenced_branches(run, full, &mut report)?;
        self.check_bundles(run, named, &mut report)?;
        Ok(report)
    }

    /// Restores a checkpoint in memory, variable by variable, and compares the roots.
    pub(super) fn check_checkpoint(&self, manifest: Manifest, restore: bool) -> Result<Checkpoint> {
        let checkpoint = Checkpoint::load(self.store.clone(), manifest)?;
        for entry in checkpoint.entries() {
            checkpoint.check_references(entry)?;
            if restore {
                let bytes = entry.description.bytes().unwrap_or(0);
                let mut out = zeroed(bytes)?;
                checkpoint.read_bytes(entry, 0..bytes, &mut out)?;
            }
        }
        // A file that changed unnoticed while it was ingested has values that are not those of its digest.
        let files = if restore { records(&checkpoint, &[])? } else { Vec::new() };
        for (rank, record) in &files {
            let file = FileParts::new(&checkpoint, *rank, record)?;
            file.stream(&checkpoint, &mut std::io::sink())
                .map_err(|error| error.at(format!("file {}", record.name)))?;
        }
        Ok(checkpoint)
    }

    /// The bundles of a run: every byte of them, and those that an interrupted compaction has left.
    fn check_bundles(
        &self,
        run: &str,
        named: &BTreeSet<(String, PackName)>,
        report: &mut VerifyReport,
    ) -> Result<()> {
        let bundler = Bundler::new(self.last.clone(), run);
        bundler.verify()?.into_iter().for_each(|(key, error)| report.add(key, error));
        let of_run = named.iter().filter(|(of, _)| of == run).map(|(_, pack)| *pack);
        let needed: HashSet<PackName> = of_run.collect();
        let spare = bundler.spare(&|| Ok(needed.clone()))?;
        report.unreferenced.extend(spare.into_iter().map(|name| Names::new(run).bundle(name)));
        Ok(())
    }

    /// The second copies of openings, of which readers use the names only.
    fn check_openings(&self, run: &str, report: &mut VerifyReport) -> Result<()> {
        let names = Names::new(run);
        for sequence in Log::read(self.store.clone(), run)?.openings {
            let key = names.opening(sequence);
            let read = self.store.open(&key).and_then(|blob| read_small(blob.as_ref()));
            match read.and_then(|bytes| Opening::parse(&bytes)) {
                Ok(opening) if opening.run == run && opening.writer.opening == sequence => {}
                Ok(_) => report.add(key, "this opening belongs elsewhere"),
                Err(error) => report.add(key, error),
            }
        }
        Ok(())
    }

    /// The log's readers stop at the first good copy of an entry; here each copy counts.
    fn check_log_copies(&self, manifests: &[FullManifest], report: &mut VerifyReport) {
        for full in manifests {
            let key = Names::new(&full.manifest.run).entry(full.manifest.sequence);
            for copy in self.store.copies(&key) {
                match copy {
                    Ok(copy) => {
                        let read = read_small(copy.as_ref());
                        if !read.is_ok_and(|bytes| is_copy(&bytes, full)) {
                            let place = format!("{key} in {}", copy.store());
                            report.add(place, "this copy of a manifest is damaged");
                        }
                    }
                    Err(error) => report.add(&key, error),
                }
            }
        }
    }

    /// Reads all packs; the frames that are bad in every copy, by the key of their pack.
    fn check_packs(
        &self,
        manifests: &[FullManifest],
        progress: Progress,
        report: &mut VerifyReport,
        share: &WorkShare,
    ) -> Result<HashMap<String, HashSet<u32>>> {
        let named: BTreeSet<_> = manifests.iter().flat_map(FullManifest::packs).collect();
        let keys: Vec<String> =
            named.iter().map(|(run, name)| Names::new(run).pack(*name)).collect();
        let mut sizes = Vec::new();
        for key in &keys {
            let found = self.store.copies(key);
            sizes.push(found.iter().flatten().map(|copy| copy.size()).sum::<u64>());
            if found.is_empty() {
                report.add(key, "the pack is missing");
            }
        }
        report.bytes = sizes.iter().sum();
        let total = report.bytes;
        let done = AtomicU64::new(0);
        let tell = |bytes| {
            let bytes = bytes * share.ranks();
            let now = done.fetch_add(bytes, Ordering::Relaxed) + bytes;
            progress(now.min(total), total);
        };
        let checked = share.each("packs", &sizes, |at| self.check_pack(&keys[at], &tell))?;
        progress(total, total);
        let mut bad = HashMap::new();
        for (key, pack) in keys.into_iter().zip(checked) {
            report.packs += pack.copies;
            report.findings.extend(pack.findings);
            bad.extend((!pack.bad.is_empty()).then_some((key, pack.bad)));
        }
        Ok(bad)
    }

    /// Reads all copies of a pack.
    fn check_pack(&self, key: &str, tell: &(dyn Fn(u64) + Sync)) -> CheckedPack {
        let (mut report, mut everywhere) = (VerifyReport::default(), None::<HashSet<u32>>);
        for copy in self.store.copies(key) {
            let checked = copy.map_err(|error| (key.to_string(), error)).and_then(|copy| {
                report.packs += 1;
                let place = format!("{key} in {}", copy.store());
                match read_footer(copy.as_ref(), true) {
                    Ok((_, footer)) => Ok((place, check_frames(copy.as_ref(), &footer, tell))),
                    Err(error) => Err((place, error)),
                }
            });
            match checked {
                Ok((place, frames)) => {
                    frames.iter().for_each(|(_, error)| report.add(&place, error));
                    let frames: HashSet<u32> = frames.into_iter().map(|(at, _)| at).collect();
                    everywhere = Some(match everywhere {
                        Some(others) => others.intersection(&frames).copied().collect(),
                        None => frames,
                    });
                }
                Err((place, error)) => report.add(place, error),
            }
        }
        let bad = everywhere.unwrap_or_default();
        CheckedPack { copies: report.packs, findings: report.findings, bad }
    }

    /// Every pack that a readable manifest of any run names, and whether all can be read.
    fn named(&self) -> Result<(BTreeSet<(String, PackName)>, bool)> {
        let (mut named, mut all) = (BTreeSet::new(), true);
        for run in log::runs(self.store.as_ref())? {
            let mut survey = Log::read(self.store.clone(), &run)?.survey();
            let full = survey.take_full(self.store.as_ref());
            named.extend(full.iter().flat_map(FullManifest::packs));
            all &= survey.unreadable.is_empty();
        }
        Ok((named, all))
    }

    /// Branches of a run that belong to no manifest.
    fn find_unreferenced_branches(
        &self,
        run: &str,
        manifests: &[FullManifest],
        report: &mut VerifyReport,
    ) -> Result<()> {
        let folder = Names::new(run).branches();
        let manifests = manifests.iter().map(|full| &full.manifest);
        let known: HashSet<_> = manifests.map(|m| (m.sequence, m.writer)).collect();
        for item in self.store.list(&folder)? {
            let name = Names::parse_branch(&item.name);
            if !name.is_some_and(|name| known.contains(&(name.sequence, name.writer))) {
                report.unreferenced.push(format!("{folder}/{}", item.name));
            }
        }
        Ok(())
    }

    /// Packs of a run that no manifest names.
    fn find_unreferenced(
        &self,
        run: &str,
        named: &BTreeSet<(String, PackName)>,
        report: &mut VerifyReport,
    ) -> Result<()> {
        let names = Names::new(run);
        for item in self.store.list(&names.packs())? {
            let known = Names::parse_pack(&item.name)
                .is_some_and(|p| named.contains(&(run.to_string(), p)));
            if !known {
                report.unreferenced.push(format!("{}/{}", names.packs(), item.name));
            }
        }
        Ok(())
    }
}

/// Whether a key is one of the log of a run.
fn is_in_log(run: &str, key: &str) -> bool {
    key.strip_prefix(&Names::new(run).log()).is_some_and(|rest| rest.starts_with('/'))
}

/// Whether this is a copy of a manifest. One in a nearer tier has all groups in it.
fn is_copy(bytes: &[u8], full: &FullManifest) -> bool {
    let is_larger_copy = || {
        Manifest::parse(bytes).is_ok_and(|copy| {
            let same = copy.groups.here() == Some(full.groups());
            same && Manifest { groups: full.manifest.groups.clone(), ..copy } == full.manifest
        })
    };
    bytes == full.manifest.write() || is_larger_copy()
}
