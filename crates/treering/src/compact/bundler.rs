//! Writing, publishing and removing bundles.

use super::plan::{CompactPlan, Compaction, HeldBundle, PlannedBundle, RunObjects, plan};
use crate::array::Sequence;
use crate::error::{Error, ErrorKind, Result};
use crate::format::{
    BundleIndex, BundleName, BundledName, BundledObject, LogEntry, Names, PackName,
};
use crate::log::Log;
use crate::merkle::{Digest, Digester};
use crate::store::{Blob, BundledStore, Put, Shelved, Store, read_small, read_tail};
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::Arc;

/// The piece in which objects are copied.
const PIECE: usize = 1 << 20;

/// The bundles of one run.
pub(crate) struct Bundler {
    pub(super) store: Arc<dyn Store>,
    pub(super) view: BundledStore,
    pub(super) run: String,
    pub(super) names: Names,
}

impl Bundler {
    pub(crate) fn new(store: Arc<dyn Store>, run: &str) -> Self {
        let view = BundledStore::new(store.clone());
        Bundler { store, view, run: run.to_string(), names: Names::new(run) }
    }

    /// Computes what to do.
    pub(crate) fn plan(&self, rule: Compaction) -> Result<CompactPlan> {
        Ok(plan(&self.run, rule, &self.holding()?))
    }

    /// Carries a plan out; `told` hears of bytes that are in bundles.
    pub(crate) fn compact(&self, plan: &CompactPlan, told: &dyn Fn(u64)) -> Result<()> {
        // Files come before bundles in every listing, so they may go in any order.
        self.delete_files(plan.leftovers.iter().cloned())?;
        plan.bundles.iter().try_for_each(|bundle| self.make(bundle, told))
    }

    fn holding(&self) -> Result<RunObjects> {
        let log = Log::read(self.store.clone(), &self.run)?;
        let mut survey = log.survey();
        let readable = survey.unreadable.len();
        let manifests = survey.take_full(self.store.as_ref());
        let mut holding = RunObjects { manifests, ..RunObjects::default() };
        for (_, error) in &survey.unreadable[readable..] {
            holding.notes.push(format!("a checkpoint stays as it is: {error}"));
        }
        for sequence in log.sequences.iter().copied() {
            match log.entry(sequence) {
                Ok(LogEntry::Mark(_)) => holding.marks.push(sequence),
                Ok(LogEntry::Manifest(_) | LogEntry::Opening(_)) => {}
                // It was pruned or compacted meanwhile.
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Err(error) => holding.notes.push(format!("an entry stays as it is: {error}")),
            }
        }
        let numbers = holding.manifests.iter().map(|m| m.manifest.sequence);
        let movable: HashSet<Sequence> = numbers.chain(holding.marks.iter().copied()).collect();
        let (entries, packs) = (self.names.log(), self.names.packs());
        let mut sizes = Vec::new();
        for item in self.store.list(&entries)? {
            holding.files += 1;
            let number = Names::parse_entry(&item.name).filter(|number| movable.contains(number));
            sizes.extend(number.map(|number| (BundledName::Entry(number), item.size)));
        }
        for item in self.store.list(&packs)? {
            holding.files += 1;
            let pack = Names::parse_pack(&item.name);
            sizes.extend(pack.map(|pack| (BundledName::Pack(pack), item.size)));
        }
        holding.sizes = sizes.into_iter().collect();
        holding.files += self.store.list(&self.names.bundles())?.len() as u64;
        for bundle in self.view.shelf(&self.run)?.bundles.values() {
            match &bundle.index {
                Ok(index) => holding.bundles.push(HeldBundle {
                    name: bundle.name,
                    published: bundle.published,
                    index: index.clone(),
                }),
                Err(error) => holding.notes.push(format!("a bundle stays as it is: {error}")),
            }
        }
        Ok(holding)
    }

    /// Writes a bundle of the plan, and removes what it replaces.
    fn make(&self, planned: &PlannedBundle, told: &dyn Fn(u64)) -> Result<()> {
        let mut objects: BTreeMap<BundledName, Option<Digest>> =
            planned.objects.iter().map(|name| (*name, None)).collect();
        for bundle in self.published(&planned.bundles)? {
            let known = bundle.index.objects.iter().map(|o| (o.name, Some(o.digest)));
            objects.extend(known);
        }
        let files = self.files_of(&planned.objects)?;
        let before_index = || {
            self.published(&planned.bundles)?;
            match self.files_of(&planned.objects)? == files {
                true => Ok(()),
                false => Err(changed()),
            }
        };
        self.write(&objects, before_index, told)?;
        self.delete_files(files.into_iter())?;
        self.unpublish(&planned.bundles)?;
        self.delete_data(&planned.bundles)
    }

    /// The keys of those objects that are files at this moment.
    fn files_of(&self, objects: &BTreeSet<BundledName>) -> Result<BTreeSet<String>> {
        let mut files = BTreeSet::new();
        for folder in [self.names.log(), self.names.packs()] {
            let items = self.store.list(&folder)?;
            files.extend(items.into_iter().map(|item| format!("{folder}/{}", item.name)));
        }
        let keys = objects.iter().map(|object| object.key(&self.names));
        Ok(keys.filter(|key| files.contains(key)).collect())
    }

    /// These bundles, if all of them are published now.
    pub(crate) fn published(&self, bundles: &BTreeSet<BundleName>) -> Result<Vec<HeldBundle>> {
        let shelf = self.view.shelf(&self.run)?;
        let find = |name: &BundleName| {
            let bundle = shelf.bundles.get(name).filter(|bundle| bundle.published);
            let index = bundle.ok_or_else(changed)?.index.clone()?;
            Ok(HeldBundle { name: *name, published: true, index })
        };
        bundles.iter().map(find).collect()
    }

    /// Writes a bundle of a later generation than all others, checks it, and publishes it.
    ///
    /// With a digest, the copy of an object is taken that has it; if none has, the damage is copied with the
    /// digest, so that it is still found.
    pub(crate) fn write(
        &self,
        objects: &BTreeMap<BundledName, Option<Digest>>,
        before_index: impl FnOnce() -> Result<()>,
        told: &dyn Fn(u64),
    ) -> Result<BundleName> {
        let numbers = objects.keys().filter_map(|object| match object {
            BundledName::Entry(number) => Some(*number),
            BundledName::Pack(_) => None,
        });
        let (first, last) = (numbers.clone().min(), numbers.max());
        let newest = self.view.shelf(&self.run)?.bundles.keys().map(|name| name.generation).max();
        let name = BundleName {
            generation: newest.unwrap_or(0) + 1,
            nonce: RandomState::new().build_hasher().finish(),
            first: first.unwrap_or_default(),
            last: last.unwrap_or_default(),
        };
        let written = self.write_data(name, objects, told).and_then(|(index, digests)| {
            self.check(&index, &digests)?;
            before_index()?;
            Ok(index)
        });
        let index = match written {
            Ok(index) => index,
            Err(error) => {
                // It was never published. If it cannot be removed now, the next opening does.
                let _ = self.store.delete(&[self.names.bundle(name)]);
                return Err(error);
            }
        };
        if !self.store.commit(&self.names.bundle_index(name), &index.write())? {
            // Somebody has taken it for the rest of a crash.
            return Err(changed());
        }
        match self.store.open(&self.names.bundle(name)) {
            Ok(_) => Ok(name),
            Err(error) if error.kind() == ErrorKind::NotFound => {
                self.store.delete(&[self.names.bundle_index(name)])?;
                Err(changed())
            }
            Err(error) => Err(error),
        }
    }

    fn write_data(
        &self,
        name: BundleName,
        objects: &BTreeMap<BundledName, Option<Digest>>,
        told: &dyn Fn(u64),
    ) -> Result<(BundleIndex, Vec<Digest>)> {
        let mut put = self.store.put(&self.names.bundle(name))?;
        let mut index = BundleIndex { run: self.run.clone(), name, objects: Vec::new() };
        let mut digests = Vec::new();
        for (object, known) in objects {
            let source = self.source(object, *known)?;
            let digest = copy(source.as_ref(), put.as_mut())?;
            told(source.size());
            digests.push(digest);
            let (size, digest) = (source.size(), known.unwrap_or(digest));
            index.objects.push(BundledObject { name: *object, size, digest });
        }
        put.append(&index.write_tail())?;
        put.finish()?;
        Ok((index, digests))
    }

    /// The copy of an object with this digest, or any that can be opened.
    fn source(&self, object: &BundledName, known: Option<Digest>) -> Result<Box<dyn Blob>> {
        let key = object.key(&self.names);
        let mut copies = self.view.copies(&key);
        if copies.is_empty() {
            return Err(changed().at(key));
        }
        let sound = known.and_then(|known| {
            let is_sound = |copy: &Result<Box<dyn Blob>>| {
                copy.as_ref().is_ok_and(|copy| digest_of(copy.as_ref()).is_ok_and(|d| d == known))
            };
            copies.iter().position(is_sound)
        });
        let opened = sound.or_else(|| copies.iter().position(Result::is_ok)).unwrap_or(0);
        copies.swap_remove(opened)
    }

    /// Reads a bundle back.
    fn check(&self, index: &BundleIndex, digests: &[Digest]) -> Result<()> {
        let key = self.names.bundle(index.name);
        let data = self.store.open(&key)?;
        let wrong = || Error::damaged("a bundle was not read back as it was written").at(&key);
        for ((offset, object), digest) in index.places().zip(digests) {
            if digest_at(data.as_ref(), offset, object.size)? != *digest {
                return Err(wrong());
            }
        }
        match read_tail(data.as_ref())? == index.write() {
            true => Ok(()),
            false => Err(wrong()),
        }
    }

    /// Takes the log entries of bundles back.
    pub(crate) fn unpublish(&self, bundles: &BTreeSet<BundleName>) -> Result<()> {
        let keys: Vec<_> = bundles.iter().map(|name| self.names.bundle_index(*name)).collect();
        if keys.is_empty() { Ok(()) } else { self.store.delete(&keys) }
    }

    fn delete_data(&self, bundles: &BTreeSet<BundleName>) -> Result<()> {
        let keys: Vec<_> = bundles.iter().map(|name| self.names.bundle(*name)).collect();
        if keys.is_empty() { Ok(()) } else { self.store.delete(&keys) }
    }

    fn delete_files(&self, keys: impl Iterator<Item = String>) -> Result<()> {
        let (entries, packs): (Vec<_>, Vec<_>) =
            keys.partition(|key| key.starts_with(&self.names.log()));
        for keys in [entries, packs].iter().filter(|keys| !keys.is_empty()) {
            self.store.delete(keys)?;
        }
        Ok(())
    }

    /// All bundles; one that cannot be read is an error, unless its entries are given up.
    pub(crate) fn held(&self, given_up: &[Sequence]) -> Result<Vec<HeldBundle>> {
        let shelf = self.view.shelf(&self.run)?;
        let known = shelf.bundles.values().filter(|bundle| !is_given_up(bundle, given_up));
        let held = known.map(|bundle| {
            let (name, published) = (bundle.name, bundle.published);
            Ok(HeldBundle { name, published, index: bundle.index.clone()? })
        });
        held.collect()
    }

    /// Takes bundles back that are damaged so that nothing of them can be read, if their entries are given up.
    pub(crate) fn forget(&self, given_up: &[Sequence]) -> Result<BTreeSet<BundleName>> {
        let shelf = self.view.shelf(&self.run)?;
        let lost = shelf.bundles.values().filter(|bundle| is_given_up(bundle, given_up));
        let lost: BTreeSet<BundleName> = lost.map(|bundle| bundle.name).collect();
        self.unpublish(&lost)?;
        self.delete_data(&lost)?;
        Ok(lost)
    }

    /// Removes bundles that are not published, if what is needed of them is elsewhere, and indexes without
    /// a bundle. `unpublished` are those whose index the caller has removed.
    pub(crate) fn tidy(
        &self,
        needed: &dyn Fn() -> Result<HashSet<PackName>>,
        unpublished: &BTreeSet<BundleName>,
    ) -> Result<()> {
        let listed = self.store.list(&self.names.bundles())?;
        if listed.is_empty() {
            return Ok(());
        }
        self.remove_lone_indexes(listed.iter().map(|item| item.name.as_str()))?;
        for name in self.spare(needed)? {
            let void = BundleIndex::void(&self.run, name).write();
            let index = self.names.bundle_index(name);
            if !unpublished.contains(&name) && !self.store.commit(&index, &void)? {
                let there = self.store.open(&index).and_then(|blob| read_small(blob.as_ref()));
                if there.is_ok_and(|there| there != void) {
                    continue;
                }
            }
            self.store.delete(&[self.names.bundle(name)])?;
            self.store.delete(&[index])?;
        }
        Ok(())
    }

    /// Bundles that are not published and of which nothing is needed that is not elsewhere.
    pub(crate) fn spare(
        &self,
        needed: &dyn Fn() -> Result<HashSet<PackName>>,
    ) -> Result<Vec<BundleName>> {
        let shelf = self.view.shelf(&self.run)?;
        if shelf.bundles.values().all(|bundle| bundle.published) {
            return Ok(Vec::new());
        }
        let needed = needed()?;
        let files = self.store.list(&self.names.packs())?;
        let mut elsewhere: HashSet<PackName> =
            files.iter().filter_map(|item| Names::parse_pack(&item.name)).collect();
        let published = shelf.bundles.values().filter(|bundle| bundle.published);
        for index in published.filter_map(|bundle| bundle.index.as_ref().ok()) {
            elsewhere.extend(packs(index));
        }
        let is_spare = |index: &BundleIndex| {
            packs(index).all(|pack| !needed.contains(&pack) || elsewhere.contains(&pack))
        };
        // One that cannot be read may be the last copy of something.
        let spare = shelf.bundles.values().filter(|bundle| {
            !bundle.published && bundle.index.as_ref().is_ok_and(|index| is_spare(index))
        });
        Ok(spare.map(|bundle| bundle.name).collect())
    }

    /// An index is committed behind its data and removed before it.
    fn remove_lone_indexes<'a>(&self, files: impl Iterator<Item = &'a str> + Clone) -> Result<()> {
        let parsed = files.filter_map(Names::parse_bundle);
        let data: HashSet<BundleName> =
            parsed.clone().filter(|(_, is_index)| !is_index).map(|(name, _)| name).collect();
        let lone = parsed.filter(|(name, is_index)| *is_index && !data.contains(name));
        for (name, _) in lone {
            // The listing may have begun before the data was there.
            let opened = self.store.open(&self.names.bundle(name)).err();
            if opened.is_some_and(|error| error.kind() == ErrorKind::NotFound) {
                self.store.delete(&[self.names.bundle_index(name)])?;
            }
        }
        Ok(())
    }
}

/// Whether a bundle cannot be read at all, and its first and last entries are given up.
fn is_given_up(bundle: &Shelved, given_up: &[Sequence]) -> bool {
    let damaged = bundle.index.as_ref().is_err_and(|error| error.kind() == ErrorKind::Damaged);
    damaged && [bundle.name.first, bundle.name.last].iter().all(|end| given_up.contains(end))
}

/// The packs of a bundle.
fn packs(index: &BundleIndex) -> impl Iterator<Item = PackName> {
    index.objects.iter().filter_map(|object| match object.name {
        BundledName::Pack(pack) => Some(pack),
        BundledName::Entry(_) => None,
    })
}

fn changed() -> Error {
    Error::new(ErrorKind::Busy, "another process has compacted or pruned the run meanwhile")
        .hint("try again")
}

/// Copies an object; the digest of its bytes.
fn copy(from: &dyn Blob, to: &mut dyn Put) -> Result<Digest> {
    pieces(from, 0, from.size(), |piece| to.append(piece))
}

fn digest_of(blob: &dyn Blob) -> Result<Digest> {
    digest_at(blob, 0, blob.size())
}

/// The digest of some bytes.
pub(super) fn digest_at(blob: &dyn Blob, offset: u64, size: u64) -> Result<Digest> {
    pieces(blob, offset, size, |_| Ok(()))
}

fn pieces(
    blob: &dyn Blob,
    offset: u64,
    size: u64,
    mut take: impl FnMut(&[u8]) -> Result<()>,
) -> Result<Digest> {
    let mut digester = Digester::new();
    let mut buffer = vec![0; PIECE.min(usize::try_from(size).unwrap_or(PIECE))];
    let mut done = 0;
    while done < size {
        let piece = &mut buffer[..(size - done).min(PIECE as u64) as usize];
        blob.read_at(offset + done, piece)?;
        digester.update(piece);
        take(piece)?;
        done += piece.len() as u64;
    }
    Ok(digester.finish())
}
