//! Whether bundles are as they were written.

use super::bundler::{Bundler, digest_at};
use crate::error::{Error, ErrorKind, Result};
use crate::format::{BundleIndex, BundleName, Names};
use crate::store::{Blob, read_small};
use std::collections::HashSet;

impl Bundler {
    /// Reads the data of every bundle, and both its indexes; the places and errors of what is wrong.
    pub(crate) fn verify(&self) -> Result<Vec<(String, Error)>> {
        let mut wrong = Vec::new();
        for bundle in self.view.shelf(&self.run)?.bundles.values() {
            let key = self.names.bundle(bundle.name);
            match &bundle.index {
                Ok(index) => {
                    let found = self.store.open(&key).map(|data| check_data(data.as_ref(), index));
                    match found {
                        Ok(found) => wrong.extend(found.into_iter().map(|e| (key.clone(), e))),
                        // It was replaced meanwhile.
                        Err(error) if error.kind() == ErrorKind::NotFound => {}
                        Err(error) => wrong.push((key, error)),
                    }
                }
                Err(error) => wrong.push((key, error.clone())),
            }
            if bundle.published {
                let key = self.names.bundle_index(bundle.name);
                let read = self.store.open(&key).and_then(|blob| read_small(blob.as_ref()));
                match read.and_then(|bytes| BundleIndex::parse(&bytes)) {
                    Ok(index) if index.name == bundle.name && index.run == self.run => {}
                    Err(error) if error.kind() == ErrorKind::NotFound => {}
                    Ok(_) => wrong.push((key, Error::damaged("this index belongs elsewhere"))),
                    Err(error) => wrong.push((key, error)),
                }
            }
        }
        wrong.extend(self.without_data()?);
        Ok(wrong)
    }

    /// Indexes whose data is gone. The index goes first when a bundle is removed, unless it is void.
    fn without_data(&self) -> Result<Vec<(String, Error)>> {
        let listed = self.store.list(&self.names.bundles())?;
        let found = listed.iter().filter_map(|item| Names::parse_bundle(&item.name));
        let (indexes, data): (Vec<_>, Vec<_>) = found.partition(|(_, is_index)| *is_index);
        let data: HashSet<BundleName> = data.into_iter().map(|(name, _)| name).collect();
        let mut wrong = Vec::new();
        for (name, _) in indexes.iter().filter(|(name, _)| !data.contains(name)) {
            let key = self.names.bundle_index(*name);
            let read = self.store.open(&key).and_then(|blob| read_small(blob.as_ref()));
            let lost = match read.and_then(|bytes| BundleIndex::parse(&bytes)) {
                Ok(index) if index.is_void() => continue,
                Err(error) if error.kind() == ErrorKind::NotFound => continue,
                Ok(index) => index.objects.iter().filter(|object| object.name.is_entry()).count(),
                Err(_) => 0,
            };
            // It may have been removed since it was listed.
            if self
                .store
                .open(&self.names.bundle(*name))
                .is_err_and(|e| e.kind() == ErrorKind::NotFound)
                && self.store.open(&key).is_ok()
            {
                let what = format!("the bundle with {lost} entries of the log is gone");
                wrong.push((self.names.bundle(*name), Error::damaged(what)));
            }
        }
        Ok(wrong)
    }
}

/// Everything that is wrong with the data of a bundle.
fn check_data(data: &dyn Blob, index: &BundleIndex) -> Vec<Error> {
    let mut wrong = Vec::new();
    for (offset, object) in index.places() {
        match digest_at(data, offset, object.size) {
            Ok(digest) if digest == object.digest => {}
            Ok(_) => wrong.push(Error::damaged(format!("{:?} in it is damaged", object.name))),
            Err(error) => wrong.push(error),
        }
    }
    let tail = index.write_tail();
    let mut there = vec![0; tail.len()];
    let at = index.object_bytes();
    let whole = data.size() == at + tail.len() as u64;
    match data.read_at(at, &mut there) {
        Ok(()) if whole && there == tail => {}
        Ok(()) => wrong.push(Error::damaged("the end of a bundle is damaged")),
        Err(error) => wrong.push(error),
    }
    wrong
}
