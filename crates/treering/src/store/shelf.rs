//! The bundles of one run as they were listed, and where each object is in them.

use super::{Blob, Store, read_small};
use crate::error::{Error, ErrorKind, Result};
use crate::format::{BUNDLE_TRAILER, BundleIndex, BundleName, BundledName, Names};
use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::path::Path;
use std::sync::{Arc, Mutex, Weak};

/// The most listings until two in succession must agree.
const LISTINGS: usize = 64;

/// A bundle whose data is there.
#[derive(Clone)]
pub(crate) struct Shelved {
    pub(crate) name: BundleName,
    /// Whether an index file stands beside the data.
    has_index: bool,
    /// Whether its log entries count: the index is there, and is not void.
    pub(crate) published: bool,
    /// Its content; an error if neither index can be read.
    pub(crate) index: Result<Arc<BundleIndex>>,
    /// The data, as long as somebody reads it.
    open: Arc<Mutex<Option<Weak<dyn Blob>>>>,
}

/// The place of an object.
#[derive(Clone, Copy)]
struct ShelfPlace {
    bundle: BundleName,
    offset: u64,
    size: u64,
}

/// All bundles of a run.
#[derive(Default)]
pub(crate) struct Shelf {
    pub(crate) bundles: BTreeMap<BundleName, Shelved>,
    places: HashMap<BundledName, Vec<ShelfPlace>>,
}

impl Shelf {
    /// Lists the bundles of a run until a listing brings nothing new and everything in it is still there: while a
    /// listing goes on, a bundle may be removed that has been copied into another one, and the listing may show
    /// neither, or only the one that goes.
    pub(super) fn list(store: &dyn Store, run: &str, known: Arc<Shelf>) -> Result<Arc<Shelf>> {
        let names = Names::new(run);
        let mut shelf = known;
        for _ in 0..LISTINGS {
            // Whether there is data, and an index.
            let mut now: BTreeMap<BundleName, (bool, bool)> = BTreeMap::new();
            for item in store.list(&names.bundles())? {
                if let Some((name, is_index)) = Names::parse_bundle(&item.name) {
                    let found = now.entry(name).or_default();
                    *(if is_index { &mut found.1 } else { &mut found.0 }) = true;
                }
            }
            now.retain(|_, (data, _)| *data);
            let is_known = |(name, (_, has_index)): (&BundleName, &(bool, bool))| {
                let held = shelf.bundles.get(name);
                held.is_some_and(|held| held.has_index == *has_index && held.index.is_ok())
            };
            if now.len() == shelf.bundles.len() && now.iter().all(is_known) {
                return Ok(shelf);
            }
            let listed = now.len();
            let mut bundles = BTreeMap::new();
            for (name, (_, has_index)) in &now {
                let held = shelf.bundles.get(name);
                let held = held.filter(|b| b.has_index == *has_index && b.index.is_ok());
                let bundle = held.cloned().map_or_else(
                    || load(store, &names, run, *name, *has_index),
                    |held| Ok(Some(held)),
                )?;
                bundles.extend(bundle.map(|bundle| (*name, bundle)));
            }
            // One that cannot be read stays so until the next time.
            let same = bundles.len() == listed
                && listed == shelf.bundles.len()
                && bundles.iter().all(|(name, bundle)| {
                    let before = shelf.bundles.get(name);
                    before.is_some_and(|before| before.has_index == bundle.has_index)
                });
            shelf = Arc::new(Shelf::of(bundles));
            if same {
                return Ok(shelf);
            }
        }
        Err(Error::new(ErrorKind::Busy, "bundles of the run keep changing").at(names.bundles()))
    }

    fn of(bundles: BTreeMap<BundleName, Shelved>) -> Shelf {
        let mut places: HashMap<BundledName, Vec<ShelfPlace>> = HashMap::new();
        for bundle in bundles.values() {
            let Ok(index) = &bundle.index else { continue };
            for (offset, object) in index.places() {
                let place = ShelfPlace { bundle: bundle.name, offset, size: object.size };
                if bundle.published || matches!(object.name, BundledName::Pack(_)) {
                    places.entry(object.name).or_default().push(place);
                }
            }
        }
        Shelf { bundles, places }
    }

    /// The names and sizes of all log entries or all packs.
    pub(super) fn items(&self, entries: bool) -> impl Iterator<Item = (BundledName, u64)> {
        let of_kind = move |name: &BundledName| matches!(name, BundledName::Entry(_)) == entries;
        let known = self.places.iter().filter(move |(name, _)| of_kind(name));
        known.filter_map(|(name, places)| Some((*name, places.last()?.size)))
    }

    /// Bundles that cannot be read.
    pub(super) fn unreadable(&self) -> impl Iterator<Item = (&Shelved, &Error)> {
        self.bundles.values().filter_map(|bundle| Some((bundle, bundle.index.as_ref().err()?)))
    }

    /// The copies of an object, the oldest first; bundles that are gone are left out.
    pub(super) fn copies(
        &self,
        store: &dyn Store,
        run: &str,
        object: &BundledName,
    ) -> Vec<Result<Box<dyn Blob>>> {
        let places = self.places.get(object).into_iter().flatten();
        let copies = places.filter_map(|place| match self.data(store, run, place.bundle) {
            Ok(data) => {
                let ShelfPlace { offset, size, .. } = *place;
                Some(Ok(Box::new(Slice { data, offset, size }) as Box<dyn Blob>))
            }
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            Err(error) => Some(Err(error)),
        });
        copies.collect()
    }

    /// The data of a bundle; all who read it share one open file.
    fn data(&self, store: &dyn Store, run: &str, name: BundleName) -> Result<Arc<dyn Blob>> {
        let missing = || Error::new(ErrorKind::NotFound, "a bundle is gone");
        let bundle = self.bundles.get(&name).ok_or_else(missing)?;
        let mut open = bundle.open.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if let Some(data) = open.as_ref().and_then(Weak::upgrade) {
            return Ok(data);
        }
        let data: Arc<dyn Blob> = store.open(&Names::new(run).bundle(name))?.into();
        *open = Some(Arc::downgrade(&data));
        Ok(data)
    }
}

/// Reads the index of a bundle: the file, or the copy in the data. `None` if it is gone.
fn load(
    store: &dyn Store,
    names: &Names,
    run: &str,
    name: BundleName,
    has_index: bool,
) -> Result<Option<Shelved>> {
    let belongs = |index: &BundleIndex| index.run == run && index.name == name;
    let elsewhere = || Error::damaged("this index belongs to another bundle");
    let parse = |bytes: Vec<u8>| {
        let index = BundleIndex::parse(&bytes)?;
        if belongs(&index) { Ok(index) } else { Err(elsewhere()) }
    };
    let own = || -> Result<BundleIndex> {
        let data = store.open(&names.bundle(name))?;
        parse(read_tail(data.as_ref())?)
    };
    let beside = match has_index {
        true => {
            let key = names.bundle_index(name);
            let read = store.open(&key).and_then(|blob| read_small(blob.as_ref()));
            Some(read.and_then(parse).map_err(|error| error.at(&key)))
        }
        false => None,
    };
    let (index, published) = match beside {
        Some(Ok(index)) if !index.is_void() => (Ok(index), true),
        Some(Ok(_)) | None => (own(), false),
        // It was taken back a moment ago.
        Some(Err(error)) if error.kind() == ErrorKind::NotFound => return Ok(None),
        // The bundle has a copy; what cannot be read at all may hold anything.
        Some(Err(error)) => (own().map_err(|_| error), true),
    };
    let index = match index {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        index => index.map(Arc::new).map_err(|error| error.at(names.bundle(name))),
    };
    Ok(Some(Shelved { name, has_index, published, index, open: Arc::default() }))
}

/// The copy of the index in the data of a bundle.
pub(crate) fn read_tail(data: &dyn Blob) -> Result<Vec<u8>> {
    let short = || Error::damaged("a bundle is cut off");
    let at = data.size().checked_sub(BUNDLE_TRAILER).ok_or_else(short)?;
    let mut trailer = [0; BUNDLE_TRAILER as usize];
    data.read_at(at, &mut trailer)?;
    let len = BundleIndex::tail_len(&trailer, data.size())?;
    let mut bytes = crate::memory::zeroed(len)?;
    data.read_at(at - len, &mut bytes)?;
    Ok(bytes)
}

/// An object in a bundle.
struct Slice {
    data: Arc<dyn Blob>,
    offset: u64,
    size: u64,
}

impl Blob for Slice {
    fn store(&self) -> &str {
        self.data.store()
    }

    fn size(&self) -> u64 {
        self.size
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        let end = offset.checked_add(buffer.len() as u64);
        match end.is_some_and(|end| end <= self.size) {
            true => self.data.read_at(self.offset + offset, buffer),
            false => Err(Error::damaged("an object in a bundle is shorter than it should be")),
        }
    }

    fn read_many(&self, ranges: &mut [(u64, &mut [u8])]) -> Result<()> {
        let inside = |(offset, buffer): &(u64, &mut [u8])| {
            offset.checked_add(buffer.len() as u64).is_some_and(|end| end <= self.size)
        };
        if !ranges.iter().all(inside) {
            return Err(Error::damaged("an object in a bundle is shorter than it should be"));
        }
        ranges.iter_mut().for_each(|(offset, _)| *offset += self.offset);
        self.data.read_many(ranges)
    }

    fn file(&self) -> Option<(&File, &Path, u64)> {
        let (file, path, offset) = self.data.file()?;
        Some((file, path, offset + self.offset))
    }

    fn in_order(&self) -> bool {
        self.data.in_order()
    }
}
