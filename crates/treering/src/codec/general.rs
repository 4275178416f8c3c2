//! Encoders that know nothing of the bytes: LZ4, Zstandard, deflate. Zstandard is the reference
//! library, built along.

use crate::error::{Error, ErrorKind, Result};
use std::cell::RefCell;
use std::io::{Read, Write};
use zstd_safe::{CCtx, CParameter, DCtx};

thread_local! {
    // Contexts are large; a new one for each frame would cost more than the frame.
    static COMPRESSOR: RefCell<Option<(i32, CCtx<'static>)>> = const { RefCell::new(None) };
    static DECOMPRESSOR: RefCell<Option<DCtx<'static>>> = const { RefCell::new(None) };
}

pub(crate) fn zstd_encode(raw: &[u8], level: i32) -> Result<Vec<u8>> {
    let failed = |code| {
        let why = std::io::Error::other(zstd_safe::get_error_name(code));
        Error::io("zstd cannot encode a frame", why)
    };
    COMPRESSOR.with_borrow_mut(|slot| {
        if slot.as_ref().is_none_or(|(had, _)| *had != level) {
            let mut new = CCtx::try_create().ok_or_else(no_context)?;
            new.set_parameter(CParameter::CompressionLevel(level)).map_err(failed)?;
            *slot = Some((level, new));
        }
        let Some((_, context)) = slot else { return Err(no_context()) };
        let mut encoded = Vec::with_capacity(zstd_safe::compress_bound(raw.len()));
        context.compress2(&mut encoded, raw).map_err(failed)?;
        Ok(encoded)
    })
}

pub(super) fn zstd_decode(encoded: &[u8], raw: &mut [u8]) -> Result<()> {
    DECOMPRESSOR.with_borrow_mut(|slot| {
        let context = match slot {
            Some(kept) => kept,
            None => slot.insert(DCtx::try_create().ok_or_else(no_context)?),
        };
        match context.decompress(raw, encoded) {
            Ok(len) if len == raw.len() => Ok(()),
            Ok(_) => Err(Error::damaged("a zstd frame has the wrong length")),
            Err(_) => Err(Error::damaged("a zstd frame does not decode")),
        }
    })
}

fn no_context() -> Error {
    Error::new(ErrorKind::Io, "zstd has no context")
}

pub(super) fn lz4_decode(encoded: &[u8], raw: &mut [u8]) -> Result<()> {
    match lz4_flex::block::decompress_into(encoded, raw) {
        Ok(len) if len == raw.len() => Ok(()),
        Ok(_) => Err(Error::damaged("an LZ4 frame has the wrong length")),
        Err(_) => Err(Error::damaged("an LZ4 frame does not decode")),
    }
}

#[cfg(feature = "tools")]
pub(super) fn deflate_encode(raw: &[u8], level: u8) -> Result<Vec<u8>> {
    let failed = |e| Error::io("deflate cannot encode a frame", e);
    let level = flate2::Compression::new(u32::from(level));
    let mut encoder = flate2::write::DeflateEncoder::new(Vec::new(), level);
    encoder.write_all(raw).map_err(failed)?;
    encoder.finish().map_err(failed)
}

#[cfg(feature = "tools")]
pub(super) fn deflate_decode(encoded: &[u8], raw: &mut [u8]) -> Result<()> {
    let bad = |_| Error::damaged("a deflate frame does not decode");
    let mut decoder = flate2::read::DeflateDecoder::new(encoded);
    decoder.read_exact(raw).map_err(bad)?;
    match decoder.read(&mut [0]).map_err(bad)? {
        0 => Ok(()),
        _ => Err(Error::damaged("a deflate frame has the wrong length")),
    }
}

#[cfg(not(feature = "tools"))]
pub(super) fn deflate_encode(_: &[u8], _: u8) -> Result<Vec<u8>> {
    Err(no_deflate())
}

#[cfg(not(feature = "tools"))]
pub(super) fn deflate_decode(_: &[u8], _: &mut [u8]) -> Result<()> {
    Err(no_deflate())
}

/// Only files of other programs are encoded so, and only on request.
#[cfg(not(feature = "tools"))]
fn no_deflate() -> Error {
    Error::usage("a deflate frame needs the feature `tools` of treering")
        .hint("build the program with it")
}
