//! Many reads of files at once: with io_uring, or with a pool of threads where there is none.

use crate::error::{Error, Result};
use rustix::fs::{Mode, OFlags};
use rustix::io::{IoSliceMut, ReadWriteFlags};
use std::collections::VecDeque;
use std::fs::File;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::sync::mpsc;

/// Alignment of reads past the page cache.
pub(crate) const ALIGN: u64 = 4096;
/// Number of threads that are used where there is no io_uring.
const THREADS: usize = 16;

/// Method of reading data that is not in the page cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reading {
    /// With io_uring if the system has it.
    #[default]
    Ring,
    /// With a pool of threads.
    Pool,
}

/// Copies from the page cache, if all of it is there.
pub(crate) fn cached(file: &File, from: u64, buffer: &mut [u8]) -> bool {
    let len = buffer.len();
    let got =
        rustix::io::preadv2(file, &mut [IoSliceMut::new(buffer)], from, ReadWriteFlags::NOWAIT);
    got == Ok(len)
}

/// Whether the page cache holds nearly all of a part of a file. Where the system can tell, asking
/// changes nothing; trying to read, which is the other way, makes it read ahead.
pub(crate) fn is_warm(file: &File, from: u64, len: u64) -> bool {
    const CACHESTAT: libc::c_long = 451;
    let range = [from, len];
    // Pages there, dirty, being written, evicted, and recently evicted.
    let mut counts = [0u64; 5];
    // SAFETY: the call reads a range and fills the counts, which are as it wants them.
    let told = unsafe {
        libc::syscall(CACHESTAT, file.as_raw_fd(), range.as_ptr(), counts.as_mut_ptr(), 0u32)
    };
    match told {
        0 => counts[0] * ALIGN >= len / 10 * 9,
        _ => cached(file, from, &mut [0]),
    }
}

/// Opens the file once more, to be read past the page cache; its reads begin and end at multiples of [`ALIGN`].
pub(crate) fn past_the_cache(file: &File) -> Option<File> {
    let again = format!("/proc/self/fd/{}", file.as_raw_fd());
    let flags = OFlags::RDONLY | OFlags::DIRECT | OFlags::CLOEXEC;
    rustix::fs::open(again, flags, Mode::empty()).ok().map(File::from)
}

/// A read to be carried out; its buffer stays where it is until the read has been waited for.
pub(crate) struct Read {
    pub(crate) id: usize,
    pub(crate) fd: RawFd,
    pub(crate) from: u64,
    pub(crate) buffer: *mut u8,
    pub(crate) len: usize,
}

// SAFETY: the buffer belongs to the read until it has been waited for.
unsafe impl Send for Read {}

/// Carries out reads, many at a time.
pub(crate) trait Engine {
    fn submit(&mut self, read: Read) -> Result<()>;
    /// Gives what was submitted to the system, which else may wait for more to come.
    fn flush(&mut self) {}
    /// Waits for any read: which, and how many bytes it got.
    fn wait(&mut self) -> Result<(usize, std::io::Result<usize>)>;
}

/// For at most `reads` reads under way.
pub(crate) fn engine(reading: Reading, reads: usize) -> Box<dyn Engine> {
    let ring = match reading {
        Reading::Ring => io_uring::IoUring::new(reads as u32).ok(),
        Reading::Pool => None,
    };
    match ring {
        Some(ring) => Box::new(Ring { ring, unsubmitted: 0 }),
        None => Box::new(Pool::new()),
    }
}

struct Ring {
    ring: io_uring::IoUring,
    unsubmitted: usize,
}

/// Number of reads that are given to the system at a time.
const BATCH: usize = 16;

impl Engine for Ring {
    fn submit(&mut self, read: Read) -> Result<()> {
        let fd = io_uring::types::Fd(read.fd);
        let entry = io_uring::opcode::Read::new(fd, read.buffer, read.len as u32)
            .offset(read.from)
            .build()
            .user_data(read.id as u64);
        // SAFETY: the buffer stays until the read has been waited for; there are as many entries as
        // reads can be under way.
        let pushed = unsafe { self.ring.submission().push(&entry) };
        pushed.map_err(|_| Error::usage("more reads are under way than there can be"))?;
        self.unsubmitted += 1;
        if self.unsubmitted >= BATCH {
            self.ring.submit().map_err(|e| Error::io("cannot begin to read", e))?;
            self.unsubmitted = 0;
        }
        Ok(())
    }

    fn flush(&mut self) {
        // A read that fails here is tried again when it is waited for.
        if self.ring.submit().is_ok() {
            self.unsubmitted = 0;
        }
    }

    fn wait(&mut self) -> Result<(usize, std::io::Result<usize>)> {
        loop {
            if let Some(done) = self.ring.completion().next() {
                let outcome = match done.result() {
                    got if got >= 0 => Ok(got as usize),
                    error => Err(std::io::Error::from_raw_os_error(-error)),
                };
                return Ok((done.user_data() as usize, outcome));
            }
            match self.ring.submit_and_wait(1) {
                Ok(_) => self.unsubmitted = 0,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => return Err(Error::io("cannot wait for reads", error)),
            }
        }
    }
}

/// Threads that read; they end when the pool does.
struct Pool {
    jobs: Option<mpsc::Sender<Read>>,
    done: mpsc::Receiver<(usize, std::io::Result<usize>)>,
    threads: Vec<std::thread::JoinHandle<()>>,
    /// Reads of this thread itself, because no other could be started.
    ready: VecDeque<(usize, std::io::Result<usize>)>,
}

impl Pool {
    fn new() -> Self {
        let (jobs, queue) = mpsc::channel::<Read>();
        let (tell, done) = mpsc::channel();
        let queue = std::sync::Arc::new(std::sync::Mutex::new(queue));
        let spawn = |_| {
            let (queue, tell) = (queue.clone(), tell.clone());
            let work = move || {
                loop {
                    let job = queue.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).recv();
                    let Ok(read) = job else { return };
                    if tell.send((read.id, carry_out(&read))).is_err() {
                        return;
                    }
                }
            };
            std::thread::Builder::new().name("treering-read".into()).spawn(work).ok()
        };
        let threads = (0..THREADS).filter_map(spawn).collect();
        Pool { jobs: Some(jobs), done, threads, ready: VecDeque::new() }
    }
}

fn carry_out(read: &Read) -> std::io::Result<usize> {
    // SAFETY: the file is open and the buffer is the read's own until it has been waited for.
    let (file, buffer) = unsafe {
        (BorrowedFd::borrow_raw(read.fd), std::slice::from_raw_parts_mut(read.buffer, read.len))
    };
    Ok(rustix::io::pread(file, buffer, read.from)?)
}

impl Engine for Pool {
    fn submit(&mut self, read: Read) -> Result<()> {
        match &self.jobs {
            Some(jobs) if !self.threads.is_empty() => {
                jobs.send(read).map_err(|_| Error::usage("the threads that read have ended"))
            }
            _ => {
                self.ready.push_back((read.id, carry_out(&read)));
                Ok(())
            }
        }
    }

    fn wait(&mut self) -> Result<(usize, std::io::Result<usize>)> {
        match self.ready.pop_front() {
            Some(done) => Ok(done),
            None => self.done.recv().map_err(|_| Error::usage("the threads that read have ended")),
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        drop(self.jobs.take());
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}
