//! A pack that finds room: when the node's store is full, packs that are durable elsewhere leave it; when
//! that does not help, the pack goes to the last tier instead. Some file systems say that they are full only when a pack is
//! to be made durable. It is too late for this one then, and the next ones make a [`Detour`].

use crate::error::{Error, ErrorKind, Result};
use crate::store::{Put, Store};

/// The piece in which bytes are copied from one tier to another.
const PIECE: usize = 1 << 20;

/// Number of the next packs that go past the first tier, because one could not be made durable there for lack of room:
/// 1, and twice as many each time that it happens again.
#[derive(Default)]
pub(crate) struct Detour {
    left: u32,
    len: u32,
}

impl Detour {
    /// The longest way past a full tier.
    const LONGEST: u32 = 64;

    /// Whether the next pack goes past the first tier.
    pub(crate) fn take(&mut self) -> bool {
        let goes_past = self.left > 0;
        self.left -= u32::from(goes_past);
        goes_past
    }

    /// A pack came to the first tier, or found no room there at its end.
    pub(crate) fn came(&mut self, finished: &Result<bool>) {
        match finished {
            Ok(false) => self.len = 0,
            Err(error) if error.kind() == ErrorKind::Full => {
                self.len = (2 * self.len).clamp(1, Self::LONGEST);
                self.left = self.len;
            }
            _ => {}
        }
    }
}

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
        goes_past: bool,
    ) -> Result<Self> {
        let put = match make_room {
            None => Some(first.put(&key)?),
            Some(_) if goes_past => None,
            Some(make_room) => match first.put(&key).map(Some).or_else(full_is_none)? {
                None => {
                    make_room();
                    first.put(&key).map(Some).or_else(full_is_none)?
                }
                put => put,
            },
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

    /// Whether it goes to the last tier.
    pub(crate) fn is_direct(&self) -> bool {
        self.direct
    }

    /// Makes it durable; whether it is in the last tier.
    pub(crate) fn finish(mut self) -> Result<bool> {
        let Some(put) = self.put.take() else { return Err(given_up()) };
        let finished = put.finish().map(|()| self.direct);
        // The bytes are gone, so this pack is, too. There may be room for the next one.
        let is_full = finished.as_ref().is_err_and(|error| error.kind() == ErrorKind::Full);
        let on_node = self.make_room.filter(|_| is_full && !self.direct);
        on_node.into_iter().for_each(|free| free());
        if on_node.is_some() { finished.map_err(Error::on_node) } else { finished }
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
