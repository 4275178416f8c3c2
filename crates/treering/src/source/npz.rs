//! The `.npz` format of NumPy: a zip archive of `.npy` files, stored or deflated.
//!
//! A stored member is a part of the file like any other, but for its checksum. A deflated one can only be read from its
//! beginning: it keeps its place, so that reading on costs nothing, and starts again when somebody
//! goes back. When it has been read to its end in one go, its checksum is compared with that of the archive.

use super::filter::MOST_INFLATED;
use super::found::{Contents, FoundArray, Placement};
use super::inventory::Inventory;
use super::undecoded::{StoredBytes, UndecodedArray};
use super::{Extent, npy};
use crate::error::{Error, ErrorKind, Result};
use crate::merkle::Digester;
use crate::store::{Blob, read_each};
use flate2::{Crc, read::DeflateDecoder};
use std::io::{self, Read, Seek, SeekFrom};
use std::sync::{Arc, Mutex};
use zip::{CompressionMethod, ZipArchive};

pub(super) const MAGIC: &[u8] = b"PK\x03\x04";
pub(super) const EMPTY: &[u8] = b"PK\x05\x06";
/// Length of the record that ends a directory, and of the longest one, with its comment.
const END_RECORD: usize = 22;
const LONGEST_END: u64 = END_RECORD as u64 + 0xffff;
/// More members than any archive of arrays has.
const MAX_MEMBERS: usize = 1 << 20;

/// The arrays of an archive, in its order. Members that are not understood do not stand in the way of others.
pub(super) fn find(whole: &Extent) -> Result<Contents> {
    let broken = |e: zip::result::ZipError| {
        Error::damaged(format!("this archive cannot be read: {e}"))
            .hint("it was cut, or is still being written")
    };
    let mut archive =
        ZipArchive::new(ExtentCursor { extent: whole.clone(), at: 0 }).map_err(broken)?;
    if archive.len() > MAX_MEMBERS {
        return Err(Error::damaged("this archive has more members than any can have"));
    }
    let (mut all, mut undecoded) = (Vec::new(), Vec::new());
    for at in 0..archive.len() {
        let member = archive.by_index_raw(at).map_err(broken)?;
        let name = member.name().map_err(broken)?.to_string();
        let Some(name) = name.strip_suffix(".npy") else { continue };
        let start = member.data_start().ok_or_else(|| Error::damaged("a member has no place"))?;
        let packed = whole.part(start, member.compressed_size())?;
        let found = match member.compression() {
            CompressionMethod::Stored => npy::find(&packed, start, name)
                .map(|found| FoundArray { checksum: Some((packed, member.crc32())), ..found }),
            CompressionMethod::Deflated => {
                deflated(packed, start, member.size(), member.crc32(), name)
            }
            other => Err(Error::usage(format!("a member is compressed by {other}"))
                .hint("write it with numpy.savez or numpy.savez_compressed")),
        };
        match found {
            Ok(found) => all.push(found),
            Err(error) if error.kind() == ErrorKind::Io => return Err(error),
            Err(error) => {
                let spans = vec![(start, member.compressed_size())];
                let how = format!("{:?} {}", member.compression(), member.size());
                undecoded.push(UndecodedArray {
                    name: name.to_string(),
                    description: None,
                    why: error.at(format!("{} in {}", name, whole.store())),
                    stored: Some(StoredBytes::at(whole, spans, how)),
                    is_group: false,
                });
            }
        }
    }
    Ok(Contents { undecoded, ..all.into() })
}

/// Whether an archive has the record that ends its directory. It is written last.
pub(super) fn has_directory(whole: &Extent) -> Result<bool> {
    let len = whole.size().min(LONGEST_END);
    let mut bytes = vec![0; len as usize];
    whole.read_at(whole.size() - len, &mut bytes)?;
    let record = bytes.windows(EMPTY.len()).rposition(|at| at == EMPTY);
    Ok(record.is_some_and(|at| bytes.len() - at >= END_RECORD))
}

/// Adds the members that are no arrays, the types of arrays that are more than numbers, and the comment.
pub(super) fn inventory(whole: &Extent, all: &mut Inventory) -> Result<()> {
    let broken =
        |e: zip::result::ZipError| Error::damaged(format!("this archive cannot be read: {e}"));
    let mut archive =
        ZipArchive::new(ExtentCursor { extent: whole.clone(), at: 0 }).map_err(broken)?;
    if !archive.comment().is_empty() {
        all.add("comment of the archive".into(), archive.comment(), String::new());
    }
    for at in 0..archive.len().min(MAX_MEMBERS) {
        let name = archive.by_index_raw(at).map_err(broken)?.name().map_err(broken)?.to_string();
        let array = name.strip_suffix(".npy");
        let mut member = match (archive.by_index(at), array) {
            (Ok(member), _) => member,
            // It is listed among the arrays.
            (Err(_), Some(_)) => continue,
            (Err(error), None) => {
                all.add_unknown(format!("member {name}"), error);
                continue;
            }
        };
        if let Some(name) = array {
            let mut start = Vec::new();
            let read = member.take(npy::START).read_to_end(&mut start);
            if read.is_ok() {
                npy::add_type(name, &start, all);
            }
            continue;
        }
        let most = member.compressed_size().saturating_mul(MOST_INFLATED);
        let mut digester = Digester::new();
        let mut buffer = vec![0; 1 << 16];
        let mut came = 0u64;
        let read = loop {
            match member.read(&mut buffer) {
                Ok(0) => break Ok(()),
                Ok(len) if came + len as u64 <= most => {
                    digester.update(&buffer[..len]);
                    came += len as u64;
                }
                Ok(_) => break Err("it inflates to more than it can".to_string()),
                Err(error) => break Err(error.to_string()),
            }
        };
        let name = format!("member {name}");
        match read {
            Ok(()) => all.add_digest(name, digester.finish(), String::new()),
            Err(why) => all.add_unknown(name, why),
        }
    }
    Ok(())
}

fn deflated(packed: Extent, start: u64, size: u64, crc: u32, name: &str) -> Result<FoundArray> {
    if size > packed.size().saturating_mul(MOST_INFLATED) {
        return Err(Error::damaged("a member claims more bytes than it can inflate to"));
    }
    let mut member = ZipMember {
        packed,
        start,
        inflated: size,
        crc,
        head: 0,
        values: 0,
        state: Mutex::default(),
    };
    let mut bytes = vec![0; size.min(1 << 17) as usize];
    member.read_inflated(0, &mut bytes)?;
    let head = npy::parse(&bytes)?;
    member.head = head.len;
    let empty = head.found(name, Placement::Plain { at: 0 })?;
    member.values = empty.bytes();
    if head.len.checked_add(member.values).is_none_or(|end| end > size) {
        return Err(Error::damaged(format!(
            "a member has {size} bytes, but its head promises {} after itself",
            member.values
        )));
    }
    Ok(FoundArray { place: Placement::Member(Arc::new(member)), ..empty })
}

/// A deflated member, without its head.
pub(super) struct ZipMember {
    packed: Extent,
    /// Where it begins in the file.
    pub(super) start: u64,
    /// Its size, inflated.
    pub(super) inflated: u64,
    crc: u32,
    /// Where its values begin, inflated.
    pub(super) head: u64,
    values: u64,
    state: Mutex<Option<InflateStream>>,
}

struct InflateStream {
    decoder: DeflateDecoder<ExtentCursor>,
    at: u64,
    crc: Crc,
}

impl ZipMember {
    /// Its size in the file.
    pub(super) fn stored(&self) -> u64 {
        self.packed.size()
    }

    /// Its bytes from `offset` on, its head among them.
    pub(super) fn read_inflated(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        let mut state = self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let mut stream = match state.take() {
            Some(stream) if stream.at <= offset => stream,
            _ => InflateStream {
                decoder: DeflateDecoder::new(ExtentCursor { extent: self.packed.clone(), at: 0 }),
                at: 0,
                crc: Crc::new(),
            },
        };
        let mut skipped = [0u8; 1 << 15];
        while stream.at < offset {
            let step = (offset - stream.at).min(skipped.len() as u64) as usize;
            self.take(&mut stream, &mut skipped[..step])?;
        }
        self.take(&mut stream, buffer)?;
        *state = Some(stream);
        Ok(())
    }

    fn take(&self, stream: &mut InflateStream, buffer: &mut [u8]) -> Result<()> {
        stream.decoder.read_exact(buffer).map_err(|e| {
            Error::damaged(format!("a member of this archive cannot be inflated: {e}"))
                .at(self.packed.store())
        })?;
        stream.crc.update(buffer);
        stream.at += buffer.len() as u64;
        match stream.at == self.inflated && stream.crc.sum() != self.crc {
            true => Err(Error::damaged("the checksum of a member of this archive does not match")
                .at(self.packed.store())),
            false => Ok(()),
        }
    }
}

impl Blob for ZipMember {
    fn store(&self) -> &str {
        self.packed.store()
    }

    fn size(&self) -> u64 {
        self.values
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        self.read_inflated(self.head + offset, buffer)
    }

    fn read_many(&self, ranges: &mut [(u64, &mut [u8])]) -> Result<()> {
        read_each(self, ranges)
    }

    fn in_order(&self) -> bool {
        true
    }

    fn file(&self) -> Option<(&std::fs::File, &std::path::Path, u64)> {
        None
    }
}

/// A part of a file, read from a place that moves.
#[derive(Clone)]
struct ExtentCursor {
    extent: Extent,
    at: u64,
}

impl Read for ExtentCursor {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let len = buffer.len().min(self.extent.size().saturating_sub(self.at) as usize);
        self.extent.read_at(self.at, &mut buffer[..len]).map_err(io::Error::other)?;
        self.at += len as u64;
        Ok(len)
    }
}

impl Seek for ExtentCursor {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let at = match to {
            SeekFrom::Start(at) => Some(at),
            SeekFrom::End(by) => self.extent.size().checked_add_signed(by),
            SeekFrom::Current(by) => self.at.checked_add_signed(by),
        };
        self.at = at.ok_or(io::ErrorKind::InvalidInput)?;
        Ok(self.at)
    }
}
