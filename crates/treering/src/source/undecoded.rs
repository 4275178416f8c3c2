//! Content of a file that is not decoded: arrays packed by an unknown filter or of a type that is not understood,
//! values that lie in other files, damaged groups. Everything else of the file is used all the same.
//!
//! Two arrays that are not decoded can still be proved equal: the same bytes, stored in the same way, have the same
//! values, whatever these are. Bytes that differ prove nothing.

use super::Extent;
use crate::array::Description;
use crate::error::{Error, Result};
use crate::merkle::{Digest, Digester};
use crate::store::Blob;
use std::sync::Arc;

/// An array, or a group, whose values are not decoded.
#[derive(Clone)]
pub(crate) struct UndecodedArray {
    /// The name in the file.
    pub(crate) name: String,
    /// Type and extent, if these are understood. Without them it may be a group, with arrays below its name.
    pub(crate) description: Option<Description>,
    /// The reason.
    pub(crate) why: Error,
    pub(crate) stored: Option<Arc<StoredBytes>>,
    /// Whether it may be a group.
    pub(crate) is_group: bool,
}

/// The stored bytes of an array, with everything that the values depend on.
pub(crate) struct StoredBytes {
    whole: Extent,
    /// The way the bytes are stored: type, filters, places of chunks in the array.
    how: String,
    spans: Vec<(u64, u64)>,
    /// Whether values lie in other files, which are found by names relative to the folder of this one.
    elsewhere: bool,
}

impl StoredBytes {
    /// Bytes at these places, stored in this way.
    pub(super) fn at(whole: &Extent, spans: Vec<(u64, u64)>, how: String) -> Arc<Self> {
        Arc::new(StoredBytes { whole: whole.clone(), how, spans, elsewhere: false })
    }

    /// All bytes of a file, of which nobody knows where the values lie.
    pub(crate) fn all(whole: &Extent) -> Arc<Self> {
        StoredBytes::at(whole, vec![(0, whole.size())], String::new())
    }

    /// All bytes of a file whose values lie in others.
    pub(super) fn elsewhere(whole: &Extent) -> Arc<Self> {
        let spans = vec![(0, whole.size())];
        Arc::new(StoredBytes { whole: whole.clone(), how: String::new(), spans, elsewhere: true })
    }

    /// A digest that two arrays have in common only if their values are the same; none if nothing proves that.
    pub(crate) fn digest(&self) -> Result<Option<Digest>> {
        let mut digester = Digester::new();
        digester.update(&(self.how.len() as u64).to_le_bytes());
        digester.update(self.how.as_bytes());
        if self.elsewhere {
            let folder = self.whole.file().and_then(|(_, path, _)| {
                Some(std::fs::canonicalize(path).ok()?.parent()?.to_path_buf())
            });
            let Some(folder) = folder else { return Ok(None) };
            digester.update(folder.as_os_str().as_encoded_bytes());
        }
        add_spans(&mut digester, &self.whole, &self.spans)?;
        Ok(Some(digester.finish()))
    }

    /// The digest of [`all`](Self::all) bytes, which may be anywhere.
    pub(crate) fn digest_of_all(bytes: &dyn Blob) -> Result<Digest> {
        let mut digester = Digester::new();
        digester.update(&0u64.to_le_bytes());
        add_spans(&mut digester, bytes, &[(0, bytes.size())])?;
        Ok(digester.finish())
    }
}

fn add_spans(digester: &mut Digester, whole: &dyn Blob, spans: &[(u64, u64)]) -> Result<()> {
    let mut buffer = vec![0; 1 << 16];
    for (start, len) in spans {
        digester.update(&len.to_le_bytes());
        let end = start.checked_add(*len).filter(|end| *end <= whole.size());
        let end = end.ok_or_else(|| Error::damaged("values lie behind the end of their file"))?;
        let mut at = *start;
        while at < end {
            let bytes = &mut buffer[..(end - at).min(1 << 16) as usize];
            whole.read_at(at, bytes)?;
            digester.update(bytes);
            at += bytes.len() as u64;
        }
    }
    Ok(())
}
