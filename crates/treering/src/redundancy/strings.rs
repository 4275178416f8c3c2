//! The objects of a node as one string of bytes, read from front to back.

use crate::error::{Error, Result};
use crate::format::ParityObject;
use crate::merkle::{Digest, Digester};
use crate::store::{Blob, Store};

/// Reads the objects of a member.
pub(super) struct ObjectString<'a> {
    store: &'a dyn Store,
    objects: &'a [ParityObject],
    /// Which of the objects are read here; the others are zeros.
    held: Vec<bool>,
    /// The object that was read last.
    open: Option<(usize, Box<dyn Blob>)>,
}

impl<'a> ObjectString<'a> {
    pub(super) fn new(store: &'a dyn Store, objects: &'a [ParityObject], held: Vec<bool>) -> Self {
        ObjectString { store, objects, held, open: None }
    }

    pub(super) fn whole(store: &'a dyn Store, objects: &'a [ParityObject]) -> Self {
        Self::new(store, objects, vec![true; objects.len()])
    }

    /// Fills `buffer` from a place of the string on; there are zeros behind its end. `seen` is told about the bytes of
    /// every object.
    pub(super) fn read(
        &mut self,
        start: u64,
        buffer: &mut [u8],
        seen: &mut dyn FnMut(usize, &[u8]),
    ) -> Result<()> {
        buffer.fill(0);
        let end = start + buffer.len() as u64;
        let mut at = 0;
        for (number, object) in self.objects.iter().enumerate() {
            let (first, last) = (at.max(start), (at + object.size).min(end));
            if first < last && self.held[number] {
                let blob = open_object(self.store, object, number, &mut self.open)?;
                let part = &mut buffer[(first - start) as usize..(last - start) as usize];
                blob.read_at(first - at, part)?;
                seen(number, part);
            }
            at += object.size;
        }
        Ok(())
    }
}

fn open_object<'o>(
    store: &dyn Store,
    object: &ParityObject,
    number: usize,
    open: &'o mut Option<(usize, Box<dyn Blob>)>,
) -> Result<&'o dyn Blob> {
    if open.as_ref().is_none_or(|(of, _)| *of != number) {
        let blob = store.open(&object.key)?;
        if blob.size() != object.size {
            let what = format!("it has {} bytes instead of {}", blob.size(), object.size);
            return Err(Error::damaged(what).at(&object.key));
        }
        *open = Some((number, blob));
    }
    match open {
        Some((_, blob)) => Ok(&**blob),
        None => Err(Error::damaged("an object could not be opened").at(&object.key)),
    }
}

/// The digest of the first `len` bytes of an object, read in pieces.
pub(super) fn digest_of_blob(blob: &dyn Blob, len: u64) -> Result<Digest> {
    let mut digester = Digester::new();
    let mut buffer = vec![0; len.min(super::PIECE) as usize];
    let mut at = 0;
    while at < len {
        let part = &mut buffer[..(len - at).min(super::PIECE) as usize];
        blob.read_at(at, part)?;
        digester.update(part);
        at += part.len() as u64;
    }
    Ok(digester.finish())
}

/// Combines bytes with others of at most the same length.
pub(super) fn xor(into: &mut [u8], other: &[u8]) {
    into.iter_mut().zip(other).for_each(|(a, b)| *a ^= b);
}
