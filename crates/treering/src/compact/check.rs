//! Whether bundles are as they were written.

use super::bundler::{Bundler, digest_at};
use crate::error::{Error, ErrorKind, Result};
use crate::format::BundleIndex;
use crate::store::{Blob, read_small};

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
