//! Zstandard, through the reference library that is built along.

use super::{Codec, ZSTD};
use crate::error::{Error, ErrorKind, Result};
use std::borrow::Cow;
use std::cell::RefCell;
use zstd::bulk::{Compressor, Decompressor};

pub(super) struct Zstd {
    pub(super) level: i32,
}

thread_local! {
    // Contexts are large; a new one for each frame would cost more than the frame.
    static COMPRESSOR: RefCell<Option<(i32, Compressor<'static>)>> = const { RefCell::new(None) };
    static DECOMPRESSOR: RefCell<Option<Decompressor<'static>>> = const { RefCell::new(None) };
}

impl Codec for Zstd {
    fn id(&self) -> u8 {
        ZSTD
    }

    fn encode<'a>(&self, raw: &'a [u8]) -> Result<Cow<'a, [u8]>> {
        let failed = |e| Error::io("zstd cannot encode a frame", e);
        COMPRESSOR.with_borrow_mut(|slot| {
            if slot.as_ref().is_none_or(|(level, _)| *level != self.level) {
                let new = Compressor::new(self.level).map_err(failed)?;
                *slot = Some((self.level, new));
            }
            let Some((_, compressor)) = slot else {
                return Err(Error::new(ErrorKind::Io, "zstd has no context"));
            };
            compressor.compress(raw).map(Cow::Owned).map_err(failed)
        })
    }

    fn decode(&self, encoded: &[u8], raw: &mut [u8]) -> Result<()> {
        let bad = |_| Error::damaged("a zstd frame does not decode");
        DECOMPRESSOR.with_borrow_mut(|slot| {
            if slot.is_none() {
                *slot = Some(Decompressor::new().map_err(bad)?);
            }
            let Some(decompressor) = slot else {
                return Err(Error::new(ErrorKind::Io, "zstd has no context"));
            };
            match decompressor.decompress_to_buffer(encoded, raw) {
                Ok(len) if len == raw.len() => Ok(()),
                Ok(_) => Err(Error::damaged("a zstd frame has the wrong length")),
                Err(error) => Err(bad(error)),
            }
        })
    }
}
