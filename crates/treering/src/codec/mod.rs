//! Encoders of frames, behind one trait.
//!
//! The law: decode(encode(x)) = x for every x, and decode never panics, never returns more than it
//! was asked for and never allocates more, whatever bytes it is given. A frame that an encoder does
//! not make smaller is stored raw, so no codec can make a pack grow.

mod zstd_codec;

use crate::error::{Error, Result};
use std::borrow::Cow;

/// An encoder and its decoder.
pub trait Codec: Send + Sync {
    /// The number that names this codec in the format.
    fn id(&self) -> u8;
    /// The encoded bytes.
    fn encode<'a>(&self, raw: &'a [u8]) -> Result<Cow<'a, [u8]>>;
    /// Fills `raw`, whose length is known from the format.
    fn decode(&self, encoded: &[u8], raw: &mut [u8]) -> Result<()>;
}

/// The number of the raw codec in the format.
pub(crate) const RAW: u8 = 0;
pub(crate) const ZSTD: u8 = 1;

/// Which codec a run uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encoding {
    /// Bytes as they are.
    Raw,
    /// Zstandard at a level from 1 (fast) to 19 (small).
    Zstd(i32),
}

impl Default for Encoding {
    fn default() -> Self {
        Encoding::Zstd(1)
    }
}

impl Encoding {
    /// Refuses levels that do not exist.
    pub fn check(self) -> Result<()> {
        match self {
            Encoding::Zstd(level) if !(1..=19).contains(&level) => {
                Err(Error::usage(format!("zstd has no level {level}")).hint("choose 1 to 19"))
            }
            _ => Ok(()),
        }
    }

    /// The codec itself.
    pub fn codec(self) -> Box<dyn Codec> {
        match self {
            Encoding::Raw => Box::new(Raw),
            Encoding::Zstd(level) => Box::new(zstd_codec::Zstd { level }),
        }
    }
}

/// The codec that a frame names, for decoding.
pub(crate) fn by_id(id: u8) -> Option<&'static dyn Codec> {
    match id {
        RAW => Some(&Raw),
        ZSTD => Some(&zstd_codec::Zstd { level: 1 }),
        _ => None,
    }
}

/// Bytes as they are.
struct Raw;

impl Codec for Raw {
    fn id(&self) -> u8 {
        RAW
    }

    fn encode<'a>(&self, raw: &'a [u8]) -> Result<Cow<'a, [u8]>> {
        Ok(Cow::Borrowed(raw))
    }

    fn decode(&self, encoded: &[u8], raw: &mut [u8]) -> Result<()> {
        if encoded.len() != raw.len() {
            return Err(Error::damaged("a raw frame has the wrong length"));
        }
        raw.copy_from_slice(encoded);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn all() -> Vec<Box<dyn Codec>> {
        [Encoding::Raw, Encoding::Zstd(1), Encoding::Zstd(19)]
            .into_iter()
            .map(Encoding::codec)
            .collect()
    }

    proptest! {
        #[test]
        fn every_codec_gives_back_what_it_was_given(
            raw in proptest::collection::vec(prop_oneof![Just(0u8), any::<u8>()], 0..5000),
        ) {
            for codec in all() {
                let encoded = codec.encode(&raw).unwrap();
                let mut back = vec![1; raw.len()];
                codec.decode(&encoded, &mut back).unwrap();
                prop_assert_eq!(&back, &raw);
                prop_assert_eq!(by_id(codec.id()).unwrap().id(), codec.id());
            }
        }

        #[test]
        fn no_codec_panics_on_junk_or_accepts_a_wrong_length(
            junk in proptest::collection::vec(any::<u8>(), 0..300), len in 0usize..400,
        ) {
            for codec in all() {
                let mut out = vec![0; len];
                let _ = codec.decode(&junk, &mut out);
                let encoded = codec.encode(&junk).unwrap();
                let mut longer = vec![0; junk.len() + 1];
                prop_assert!(codec.decode(&encoded, &mut longer).is_err());
            }
        }
    }
}
