//! Values that are rounded as they are read.

use crate::array::{Marks, Rounding};
use crate::error::Result;
use crate::store::Blob;
use std::sync::Arc;

/// The values of a blob, rounded.
pub(crate) struct Rounded<'a> {
    pub(crate) inner: Arc<dyn Blob + 'a>,
    pub(crate) rounding: Rounding,
    /// Values that stay, and limits that none passes.
    pub(crate) marks: Marks,
}

impl Blob for Rounded<'_> {
    fn store(&self) -> &str {
        self.inner.store()
    }

    fn size(&self) -> u64 {
        self.inner.size()
    }

    /// Reads are of whole numbers.
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        self.inner.read_at(offset, buffer)?;
        self.rounding.round_but(buffer, &self.marks);
        Ok(())
    }

    fn read_many(&self, ranges: &mut [(u64, &mut [u8])]) -> Result<()> {
        self.inner.read_many(ranges)?;
        ranges.iter_mut().for_each(|(_, buffer)| self.rounding.round_but(buffer, &self.marks));
        Ok(())
    }

    fn in_order(&self) -> bool {
        self.inner.in_order()
    }

    fn file(&self) -> Option<(&std::fs::File, &std::path::Path, u64)> {
        None
    }
}
