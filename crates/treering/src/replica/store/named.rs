//! Pieces of any size, known by name: submitted through a serialiser, loaded by name.
//!
//! Each piece begins with a block of its own. All ranks get the directory of all pieces with the submit, so that any
//! rank can load any piece, whoever has died since.
//!
//! Law: a name belongs to one piece; the pieces of a rank are consecutive blocks, in the order of ranks.

use super::ReplicaStore;
use super::coming::Coming;
use super::generation::GenerationNumber;
use super::link::StoreCall;
use super::submit_mail::SubmitData;
use crate::comm::garbled;
use crate::error::{Error, ErrorKind, Result};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

/// A loaded piece. Returned by [`ReplicaStore::load_named`]; the example of [`ReplicaStore::submit_named`] shows its use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoadedPiece {
    /// Its name.
    pub name: String,
    /// Its bytes; `None` if a part of it is lost.
    pub bytes: Option<Vec<u8>>,
}

/// First block and bytes of every piece.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Directory {
    pieces: BTreeMap<String, (u64, u64)>,
}

impl Directory {
    /// The directory of the pieces of all ranks, and the first block of each rank.
    fn new(lists: &[Vec<(String, u64)>], block_size: u64) -> Result<(Directory, Vec<u64>)> {
        let (mut directory, mut starts, mut next) = (Directory::default(), Vec::new(), 0);
        for (rank, pieces) in lists.iter().enumerate() {
            starts.push(next);
            for (name, bytes) in pieces {
                if directory.pieces.insert(name.clone(), (next, *bytes)).is_some() {
                    return Err(Error::usage(format!(
                        "piece {name:?} is submitted twice, the second time by rank {rank}"
                    ))
                    .hint("add the rank to the name"));
                }
                next += bytes.div_ceil(block_size);
            }
        }
        Ok((directory, starts))
    }

    fn get(&self, name: &str) -> Result<(u64, u64)> {
        self.pieces.get(name).copied().ok_or_else(|| {
            Error::new(ErrorKind::NotFound, format!("piece {name:?} was never submitted"))
        })
    }
}

fn write_list(pieces: &[(String, u64)]) -> Vec<u8> {
    let piece = |(name, bytes): &(String, u64)| {
        [&bytes.to_le_bytes()[..], &(name.len() as u64).to_le_bytes(), name.as_bytes()].concat()
    };
    pieces.iter().flat_map(piece).collect()
}

fn read_list(mut bytes: &[u8]) -> Result<Vec<(String, u64)>> {
    let mut pieces = Vec::new();
    while let Some((head, rest)) = bytes.split_first_chunk::<16>() {
        let [len, name] = super::submit::numbers(head)?;
        let (name, rest) = rest.split_at_checked(name as usize).ok_or_else(garbled)?;
        pieces.push((String::from_utf8(name.to_vec()).map_err(|_| garbled())?, len));
        bytes = rest;
    }
    Ok(pieces)
}

impl ReplicaStore {
    /// Submits the pieces of this rank; collective. `serialise` appends the bytes of the piece with a name to a
    /// buffer. An error of it is returned by all ranks.
    ///
    /// ```
    /// use treering::{ReplicaSettings, ReplicaStore, ThreadRanks};
    /// let ends = ThreadRanks::new(2).run(|comm| -> treering::Result<()> {
    ///     let name = format!("tree {}", comm.rank().0);
    ///     let mut store = ReplicaStore::new(comm, 2, ReplicaSettings::default())?;
    ///     store.submit_named(7, &[&name], |name, buffer| {
    ///         buffer.extend_from_slice(name.as_bytes()); // a piece may have any length
    ///         Ok(())
    ///     })?;
    ///     let pieces = store.load_named(&["tree 1"])?; // any rank loads any piece
    ///     assert_eq!(pieces[0].bytes.as_deref(), Some(&b"tree 1"[..])); // None: it is lost
    ///     Ok(())
    /// });
    /// # ends.into_iter().for_each(|end| end.done().unwrap().unwrap());
    /// ```
    pub fn submit_named(
        &mut self,
        tag: u64,
        names: &[&str],
        serialise: impl FnMut(&str, &mut Vec<u8>) -> Result<()>,
    ) -> Result<GenerationNumber> {
        let (coming, bytes) = self.begin_named(tag, names, serialise)?;
        let snapshot = Arc::new(bytes);
        let number = self.submit_at_once(coming, SubmitData::shared(&snapshot))?;
        if let Ok(buffer) = Arc::try_unwrap(snapshot) {
            self.keep_serialised(buffer);
        }
        Ok(number)
    }

    /// Begins to submit the pieces of this rank, which are serialised now and moved by
    /// [`ReplicaStore::progress`]; collective.
    pub fn begin_submit_named(
        &mut self,
        tag: u64,
        names: &[&str],
        serialise: impl FnMut(&str, &mut Vec<u8>) -> Result<()>,
    ) -> Result<()> {
        let (coming, bytes) = self.begin_named(tag, names, serialise)?;
        self.coming = Some((coming, Arc::new(bytes)));
        Ok(())
    }

    /// Keeps the memory of serialised pieces for the next time.
    pub(crate) fn keep_serialised(&mut self, buffer: Vec<u8>) {
        let metered = self.gauge.hold(buffer.capacity() as u64);
        self.serialised = Some((buffer, metered));
    }

    fn begin_named(
        &mut self,
        tag: u64,
        names: &[&str],
        mut serialise: impl FnMut(&str, &mut Vec<u8>) -> Result<()>,
    ) -> Result<(Coming, Vec<u8>)> {
        self.finish()?;
        let size = self.settings.block_size;
        let mut bytes = self.serialised.take().map(|(buffer, _)| buffer).unwrap_or_default();
        bytes.clear();
        let mut piece = |name: &&str| {
            let start = bytes.len();
            serialise(name, &mut bytes)?;
            if bytes.len() < start {
                return Err(Error::usage(format!(
                    "the serialiser of piece {name:?} shortened its buffer"
                )));
            }
            let len = (bytes.len() - start) as u64;
            bytes.resize(start + (len.div_ceil(size) * size) as usize, 0);
            Ok((name.to_string(), len))
        };
        let pieces: Result<Vec<(String, u64)>> = names.iter().map(&mut piece).collect();
        let snapshot = self.gauge.hold(bytes.capacity() as u64);
        let largest = pieces.as_ref().map(|_| [self.last_number + 1, 0]).map_err(Error::clone);
        let opened = self.open(StoreCall::SubmitNamed, (tag, "the tag of a submit"), largest)?;
        let lists = self.link.gather_all(&write_list(&pieces?))?;
        let lists: Vec<Vec<(String, u64)>> =
            lists.iter().map(|list| read_list(list)).collect::<Result<_>>()?;
        let (directory, starts) = Directory::new(&lists, size)?;
        let first = starts.get(self.link.rank().0 as usize).copied().ok_or_else(garbled)?;
        let directory = Some(Arc::new(directory));
        let number = opened.largest[0];
        let coming = self.prepare(number, tag, bytes.len(), first, directory, snapshot)?;
        Ok((coming, bytes))
    }

    /// Loads pieces by name, each rank those that it names; collective.
    pub fn load_named(&mut self, names: &[&str]) -> Result<Vec<LoadedPiece>> {
        let pieces = self.find_pieces(names);
        let size = self.settings.block_size;
        let blocks = |(first, len): &(u64, u64)| *first..*first + len.div_ceil(size);
        let requests: Result<Vec<Range<u64>>> =
            pieces.as_ref().map(|pieces| pieces.iter().map(blocks).collect()).map_err(Error::clone);
        let loaded = self.load_checked(requests)?;
        let mut at = 0;
        let mut piece = |(name, (first, len)): (&&str, (u64, u64))| {
            let blocks = blocks(&(first, len));
            let bytes = &loaded.bytes[at..at + len as usize];
            at += ((blocks.end - blocks.start) * size) as usize;
            let lost =
                loaded.lost.iter().any(|lost| lost.start < blocks.end && blocks.start < lost.end);
            LoadedPiece { name: name.to_string(), bytes: (!lost).then(|| bytes.to_vec()) }
        };
        Ok(names.iter().zip(pieces?).map(&mut piece).collect())
    }

    fn find_pieces(&self, names: &[&str]) -> Result<Vec<(u64, u64)>> {
        let directory = self.submitted()?.directory.as_ref().ok_or_else(|| {
            Error::usage("the blocks were not submitted as named pieces")
                .hint("load them by their ids")
        })?;
        names.iter().map(|name| directory.get(name)).collect()
    }
}
