//! Letters between the processes of a machine: bytes, and memory that goes along with them.
//!
//! Memory is anonymous (`memfd`), so nothing is left of it when its last holder dies, however that happens. An office
//! has no name in a file system either. Only processes of the same user are let in, and only with the token that the
//! office gave out.

use crate::error::{Error, ErrorKind, Result};
use rustix::fs::FallocateFlags;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use std::fs::File;
use std::io::{IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::net::Shutdown;
use std::os::fd::{AsFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};

/// The longest letter, memory not counted.
const LONGEST: usize = 1 << 20;
const TOKEN: usize = 32;

fn failed(what: &str) -> impl Fn(std::io::Error) -> Error {
    move |error| Error::io(what, error)
}

/// Bytes and memory on their way.
pub(crate) struct Letter {
    pub(crate) bytes: Vec<u8>,
    pub(crate) memory: Option<File>,
}

/// One end of a connection between two processes.
pub(crate) struct Post(UnixStream);

impl Post {
    /// Connects to an office by the address that it gave out.
    pub(crate) fn connect(address: &[u8]) -> Result<Post> {
        let (token, name) = address
            .split_at_checked(TOKEN)
            .ok_or_else(|| Error::new(ErrorKind::Mismatch, "an address is too short"))?;
        let what = failed("cannot reach another rank of this node");
        let name = SocketAddr::from_abstract_name(name).map_err(&what)?;
        let mut stream = UnixStream::connect_addr(&name).map_err(&what)?;
        stream.write_all(token).map_err(&what)?;
        Ok(Post(stream))
    }

    /// Another handle of the same end.
    pub(crate) fn again(&self) -> Result<Post> {
        self.0.try_clone().map(Post).map_err(failed("cannot share a connection"))
    }

    /// Ends the connection for both ends; whoever waits for a letter wakes up.
    pub(crate) fn close(&self) {
        let _ = self.0.shutdown(Shutdown::Both);
    }

    pub(crate) fn send(&self, bytes: &[u8], memory: Option<&File>) -> Result<()> {
        let what = failed("cannot send to another rank of this node");
        let head = (bytes.len() as u32).to_le_bytes();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut along = SendAncillaryBuffer::new(&mut space);
        let memory = memory.map(|file| [file.as_fd()]);
        if let Some(memory) = &memory {
            along.push(SendAncillaryMessage::ScmRights(memory));
        }
        // The memory goes with the first byte; what the call leaves of the head follows.
        let parts = [IoSlice::new(&head)];
        let sent = loop {
            match sendmsg(&self.0, &parts, &mut along, SendFlags::NOSIGNAL) {
                Err(rustix::io::Errno::INTR) => {}
                done => break done.map_err(|error| what(error.into()))?,
            }
        };
        (&self.0).write_all(&head[sent..]).map_err(&what)?;
        (&self.0).write_all(bytes).map_err(&what)
    }

    /// Waits for the next letter; `None` when the other end is gone.
    pub(crate) fn receive(&self) -> Result<Option<Letter>> {
        let what = failed("cannot receive from another rank of this node");
        let mut head = [0; 4];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut along = RecvAncillaryBuffer::new(&mut space);
        let got = loop {
            let mut parts = [IoSliceMut::new(&mut head)];
            match recvmsg(&self.0, &mut parts, &mut along, RecvFlags::CMSG_CLOEXEC) {
                Err(rustix::io::Errno::INTR) => {}
                Err(rustix::io::Errno::CONNRESET) => return Ok(None),
                done => break done.map_err(|error| what(error.into()))?.bytes,
            }
        };
        if got == 0 {
            return Ok(None);
        }
        let memory = along.drain().find_map(|message| match message {
            RecvAncillaryMessage::ScmRights(mut files) => files.next().map(|fd: OwnedFd| fd.into()),
            _ => None,
        });
        let whole = |bytes: &mut [u8]| match (&self.0).read_exact(bytes) {
            Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => Ok(false),
            done => done.map(|()| true).map_err(&what),
        };
        if !whole(&mut head[got..])? {
            return Ok(None);
        }
        let len = u32::from_le_bytes(head) as usize;
        if len > LONGEST {
            return Err(Error::new(ErrorKind::Mismatch, "a letter of another rank is too long"));
        }
        let mut bytes = vec![0; len];
        Ok(whole(&mut bytes)?.then_some(Letter { bytes, memory }))
    }
}

/// Takes connections of processes that know its address.
pub(crate) struct PostOffice {
    listener: UnixListener,
    address: Vec<u8>,
}

impl PostOffice {
    /// Opens an office; `random` is a secret that nobody can guess.
    pub(crate) fn open(random: [u64; 6]) -> Result<PostOffice> {
        let what = failed("cannot open a socket for the ranks of this node");
        let random: Vec<u8> = random.iter().flat_map(|word| word.to_le_bytes()).collect();
        let (token, name) = random.split_at(TOKEN);
        let name = [&b"treering-"[..], name].concat();
        let listener =
            SocketAddr::from_abstract_name(&name).and_then(|name| UnixListener::bind_addr(&name));
        Ok(PostOffice { listener: listener.map_err(&what)?, address: [token, &name[..]].concat() })
    }

    /// The address by which a process connects. It is passed in private.
    pub(crate) fn address(&self) -> &[u8] {
        &self.address
    }

    /// Waits for the next connection; whoever does not belong here is turned away.
    pub(crate) fn accept(&self) -> Result<Post> {
        loop {
            let accepted = self.listener.accept();
            let (mut stream, _) =
                accepted.map_err(failed("cannot take a connection of a rank of this node"))?;
            let peer = rustix::net::sockopt::socket_peercred(&stream);
            let own = rustix::process::geteuid();
            if !peer.is_ok_and(|peer| peer.uid == own) {
                continue;
            }
            let mut token = [0; TOKEN];
            let patience = std::time::Duration::from_secs(10);
            let _ = stream.set_read_timeout(Some(patience));
            if stream.read_exact(&mut token).is_err() || token != self.address[..TOKEN] {
                continue;
            }
            let what = failed("cannot take a connection of a rank of this node");
            stream.set_read_timeout(None).map_err(what)?;
            return Ok(Post(stream));
        }
    }
}

/// Memory that can be sent along with letters.
pub(crate) fn memory() -> Result<File> {
    let flags = rustix::fs::MemfdFlags::CLOEXEC;
    let made = rustix::fs::memfd_create("treering-stage", flags);
    made.map(File::from)
        .map_err(|error| Error::io("cannot get memory that ranks of a node share", error.into()))
}

/// Releases memory of which nothing is needed any more; memory that cannot be released now goes with the rest.
pub(crate) fn give_back(memory: &File, range: std::ops::Range<u64>) {
    let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    if !range.is_empty() {
        let _ = rustix::fs::fallocate(memory, flags, range.start, range.end - range.start);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::FileExt;

    #[test]
    fn letters_and_memory_arrive_in_order_and_strangers_are_turned_away() {
        let office = PostOffice::open([1, 2, 3, 4, 5, u64::from(std::process::id())]).unwrap();
        let address = office.address().to_vec();
        let sender = std::thread::spawn(move || {
            let mut wrong = address.clone();
            wrong[0] ^= 1;
            let stranger = Post::connect(&wrong).unwrap();
            let post = Post::connect(&address).unwrap();
            let stage = memory().unwrap();
            stage.write_all_at(b"staged", 3).unwrap();
            post.send(b"first", Some(&stage)).unwrap();
            post.send(&vec![7; 100_000], None).unwrap();
            post.send(b"", Some(&stage)).unwrap();
            assert!(stranger.receive().unwrap().is_none());
        });
        let post = office.accept().unwrap();
        let first = post.receive().unwrap().unwrap();
        let mut back = [0; 6];
        first.memory.unwrap().read_exact_at(&mut back, 3).unwrap();
        assert_eq!((&first.bytes[..], &back), (&b"first"[..], b"staged"));
        let second = post.receive().unwrap().unwrap();
        assert!(second.bytes == vec![7; 100_000] && second.memory.is_none());
        assert!(post.receive().unwrap().unwrap().memory.is_some());
        assert!(post.receive().unwrap().is_none());
        sender.join().unwrap();
    }

    #[test]
    fn closing_wakes_who_waits() {
        let office = PostOffice::open([9, 8, 7, 6, 5, u64::from(std::process::id())]).unwrap();
        let post = Post::connect(office.address()).unwrap();
        let other = office.accept().unwrap();
        let again = post.again().unwrap();
        let waiting = std::thread::spawn(move || post.receive().unwrap().is_none());
        again.close();
        assert!(waiting.join().unwrap() && other.receive().unwrap().is_none());
    }
}
