//! Reading and checking every byte of a store, in every tier.
//!
//! Each file of the log is parsed; each bundle is read whole; each pack that a manifest names is read once, whole: header,
//! every frame, footer. Each checkpoint is loaded, so that the chain of seals and every reference
//! is followed; the newest of each run (or every one, on request) is restored and held to its
//! roots.

use super::{Library, Progress};
use crate::compact::Bundler;
use crate::error::Result;
use crate::format::{Manifest, Names, Opening, PackName};
use crate::log::{FullManifest, Log, runs};
use crate::memory::zeroed;
use crate::restore::{Checkpoint, check_frames, read_footer};
use crate::store::read_small;
use serde::Serialize;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::atomic::{AtomicU64, Ordering};

/// Something that is wrong.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// Where: a key of the store, or `run@step`.
    pub place: String,
    /// What.
    pub what: String,
}

/// What a verification found.
#[derive(Clone, Debug, Default, Serialize)]
pub struct VerifyReport {
    /// How many checkpoints were looked at.
    pub checkpoints: u64,
    /// How many of them can be restored.
    pub sound: u64,
    /// How many packs were read.
    pub packs: u64,
    /// How many bytes were read of them.
    pub bytes: u64,
    /// Everything that is wrong.
    pub findings: Vec<Finding>,
    /// Files that nothing refers to; the next opening or pruning of their run removes them.
    pub unreferenced: Vec<String>,
}

impl VerifyReport {
    /// Whether nothing is wrong.
    pub fn is_sound(&self) -> bool {
        self.findings.is_empty()
    }

    fn add(&mut self, place: impl ToString, what: impl ToString) {
        self.findings.push(Finding { place: place.to_string(), what: what.to_string() });
    }
}

impl Library {
    /// Checks one run or all of them; with `deep` every checkpoint is restored, not only the newest.
    pub fn verify(
        &self,
        run: Option<&str>,
        deep: bool,
        progress: Progress,
    ) -> Result<VerifyReport> {
        let mut report = VerifyReport::default();
        let names = match run {
            Some(run) => {
                self.log(run)?;
                vec![run.to_string()]
            }
            None => self.run_names()?,
        };
        let named = self.named()?;
        let mut all = Vec::new();
        for run in &names {
            let mut survey = Log::read(self.store.clone(), run)?.survey();
            let full = survey.take_full(self.store.as_ref());
            let bad = survey.unreadable.iter().map(|(_, error)| error).chain(&survey.others);
            bad.for_each(|error| report.add(format!("run {run}"), error));
            self.check_openings(run, &mut report)?;
            let entry = |sequence| Names::new(run).entry(sequence);
            report.unreferenced.extend(survey.strays.into_iter().map(entry));
            self.find_unreferenced(run, &named, &mut report)?;
            self.find_unreferenced_branches(run, &full, &mut report)?;
            self.check_bundles(run, &named, &mut report)?;
            all.extend(full);
        }
        self.check_log_copies(&all, &mut report);
        let bad = self.check_packs(&all, progress, &mut report);
        for (at, FullManifest { manifest, .. }) in all.iter().enumerate() {
            let newest = all.get(at + 1).is_none_or(|next| next.manifest.run != manifest.run);
            report.checkpoints += 1;
            let sound =
                self.check_checkpoint(manifest.clone(), deep || newest).and_then(|checkpoint| {
                    match bad.is_empty() {
                        true => Ok(()),
                        false => checkpoint.avoids(&bad),
                    }
                });
            match sound {
                Ok(()) => report.sound += 1,
                Err(error) => report.add(format!("{}@{}", manifest.run, manifest.step), error),
            }
        }
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
    ) -> HashMap<String, HashSet<u32>> {
        let named: BTreeSet<_> = manifests.iter().flat_map(FullManifest::packs).collect();
        let keys: Vec<String> =
            named.iter().map(|(run, name)| Names::new(run).pack(*name)).collect();
        for key in &keys {
            let found = self.store.copies(key);
            report.bytes += found.iter().flatten().map(|copy| copy.size()).sum::<u64>();
            if found.is_empty() {
                report.add(key, "the pack is missing");
            }
        }
        let total = report.bytes;
        let done = AtomicU64::new(0);
        let tell = |bytes| {
            let now = done.fetch_add(bytes, Ordering::Relaxed) + bytes;
            progress(now.min(total), total);
        };
        let mut bad = HashMap::new();
        for key in keys {
            let mut everywhere: Option<HashSet<u32>> = None;
            for copy in self.store.copies(&key) {
                let checked = copy.map_err(|error| (key.clone(), error)).and_then(|copy| {
                    report.packs += 1;
                    let place = format!("{key} in {}", copy.store());
                    match read_footer(copy.as_ref(), true) {
                        Ok((_, footer)) => Ok((place, check_frames(copy.as_ref(), &footer, &tell))),
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
            bad.extend(everywhere.filter(|frames| !frames.is_empty()).map(|frames| (key, frames)));
        }
        progress(total, total);
        bad
    }

    /// Every pack that a readable manifest of any run names.
    fn named(&self) -> Result<BTreeSet<(String, PackName)>> {
        let mut named = BTreeSet::new();
        for run in runs(self.store.as_ref())? {
            let mut survey = Log::read(self.store.clone(), &run)?.survey();
            let full = survey.take_full(self.store.as_ref());
            named.extend(full.iter().flat_map(FullManifest::packs));
        }
        Ok(named)
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
