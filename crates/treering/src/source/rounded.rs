//! Values that are rounded as they are read.

use crate::array::Rounding;
use crate::error::Result;
use crate::store::Blob;
use std::sync::Arc;

/// The values of a blob, rounded.
pub(crate) struct Rounded<'a> {
    pub(crate) inner: Arc<dyn Blob + 'a>,
    pub(crate) rounding: Rounding,
}

impl Blob for Rounded<'_> {
    fn store(&self) -> &str {
        self.inner.store()
    }

    fn size(&self) -> u64 {
        self.inner.size()
    }

    /// Whoever reads, reads whole numbers.
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        self.inner.read_at(offset, buffer)?;
        self.rounding.round(buffer);
        Ok(())
    }

    fn in_order(&self) -> bool {
        self.inner.in_order()
    }
}
