//! A pack that finds room: when the node's store is full, packs that are durable elsewhere leave it; when
//! that does not help, the pack goes to the last tier instead.

use crate::error::{Error, ErrorKind, Result};
use crate::store::{Put, Store};

/// The piece in which bytes are copied from one tier to another.
const PIECE: usize = 1 << 20;

/// A pack on its way to the first tier that has room for it.
pub(crate) struct RoomyPut<'a> {
    key: String,
    put: Option<Box<dyn Put>>,
    len: u64,
    /// Frees what can go from the first tier. `None`: the first tier is the last one.
    make_room: Option<&'a (dyn Fn() + Sync)>,
    last: &'a dyn Store,
    /// Whether it is in the last tier.
    direct: bool,
}

impl<'a> RoomyPut<'a> {
    pub(crate) fn new(
        first: &dyn Store,
        last: &'a dyn Store,
        key: String,
        make_room: Option<&'a (dyn Fn() + Sync)>,
    ) -> Result<Self> {
        let put = match (first.put(&key), make_room) {
            (Err(error), Some(make_room)) if error.kind() == ErrorKind::Full => {
                make_room();
                first.put(&key).map(Some).or_else(full_is_none)?
            }
            (put, _) => Some(put?),
        };
        let direct = put.is_none();
        let put = match put {
            Some(put) => put,
            None => last.put(&key)?,
        };
        Ok(RoomyPut {
            key,
            put: Some(put),
            len: 0,
            make_room,
            last,
            direct: direct || make_room.is_none(),
        })
    }

    /// Makes it durable; whether it is in the last tier.
    pub(crate) fn finish(mut self) -> Result<bool> {
        match self.put.take() {
            Some(put) => put.finish().map(|()| self.direct),
            None => Err(given_up()),
        }
    }

    /// Copies the bytes so far to the last tier, and goes on there.
    fn go_on_in_last(&mut self, old: Box<dyn Put>) -> Result<Box<dyn Put>> {
        let mut put = self.last.put(&self.key)?;
        let mut buffer = vec![0; PIECE.min(self.len as usize)];
        for at in (0..self.len).step_by(PIECE) {
            let piece = &mut buffer[..(self.len - at).min(PIECE as u64) as usize];
            old.read_back(at, piece)?;
            put.append(piece)?;
        }
        self.direct = true;
        Ok(put)
    }
}

fn full_is_none<T>(error: Error) -> Result<Option<T>> {
    match error.kind() {
        ErrorKind::Full => Ok(None),
        _ => Err(error),
    }
}

fn given_up() -> Error {
    Error::new(ErrorKind::Io, "a pack was given up after an error")
}

impl Put for RoomyPut<'_> {
    fn append(&mut self, bytes: &[u8]) -> Result<()> {
        let Some(mut put) = self.put.take() else { return Err(given_up()) };
        let mut appended = put.append(bytes);
        let is_full = |done: &Result<()>| done.as_ref().is_err_and(|e| e.kind() == ErrorKind::Full);
        if let Some(make_room) = self.make_room.filter(|_| is_full(&appended) && !self.direct) {
            make_room();
            appended = put.append(bytes);
            if is_full(&appended) {
                put = self.go_on_in_last(put)?;
                appended = put.append(bytes);
            }
        }
        appended?;
        self.put = Some(put);
        self.len += bytes.len() as u64;
        Ok(())
    }

    fn read_back(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        self.put.as_ref().map_or_else(|| Err(given_up()), |put| put.read_back(offset, buffer))
    }

    fn finish(self: Box<Self>) -> Result<()> {
        (*self).finish().map(drop)
    }
}
