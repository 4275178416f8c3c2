//! Changes in a folder: a thread that listens to the kernel (inotify) and reports them in order.
//!
//! A watch is placed on a folder before the folder is listed, so a file that appears in between is
//! reported twice rather than never. Everything is listed again when the kernel's queue overflowed, and
//! every 30 seconds: on a network file system, the kernel does not see what other machines write.
//! Links are not followed; hidden files, temporary names and our own tree files are skipped.

use crate::error::{Error, ErrorKind, Result};
use crate::ingest::names::is_passing;
use crate::source::is_tree;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, Reader, WatchFlags};
use rustix::io::Errno;
use std::collections::{HashMap, HashSet};
use std::ffi::OsString;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

/// Interval at which everything is listed again.
const LOOK_AGAIN: Duration = Duration::from_secs(30);

/// A change that was noticed. Paths are relative to the folder.
pub(super) enum Noticed {
    /// All files that are there; `missed` if signs were lost.
    All { files: Vec<PathBuf>, missed: bool },
    /// A file is there, or was; nothing is known of who writes it.
    Found(PathBuf),
    /// A file was made.
    Made(PathBuf),
    /// A file was written to, and not closed yet.
    Written(PathBuf),
    /// A file was closed after writing, or moved into the folder.
    Finished(PathBuf),
    /// A folder was moved away.
    FolderGone(PathBuf),
    /// A note for people.
    Note(String),
    /// No more changes will be noticed.
    Lost(Error),
    /// The service is asked to end.
    Stop,
}

/// A sign of the kernel.
type KernelSign = (i32, ReadFlags, Option<OsString>);

struct Notice {
    folder: PathBuf,
    inotify: OwnedFd,
    /// The folders that are watched.
    watched: HashMap<i32, PathBuf>,
    /// Files that were told to be written to; they are not told again until they are closed.
    written: HashSet<PathBuf>,
    /// When everything was listed.
    listed: Instant,
    /// Notes that were reported; none is reported twice.
    notes: HashSet<String>,
    events: Sender<Noticed>,
    /// The watcher was dropped.
    unheard: bool,
}

/// Begins to listen; what is there already is told first.
pub(super) fn start(folder: &Path, events: Sender<Noticed>) -> Result<()> {
    let failed = |e: Errno| Error::io("cannot watch folders", e.into());
    let inotify =
        inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC).map_err(|e| match e {
            Errno::MFILE => failed(e).hint("raise fs.inotify.max_user_instances with sysctl"),
            _ => failed(e),
        })?;
    let mut notice = Notice {
        folder: folder.to_path_buf(),
        inotify,
        watched: HashMap::new(),
        written: HashSet::new(),
        listed: Instant::now(),
        notes: HashSet::new(),
        events,
        unheard: false,
    };
    notice.place(Path::new("")).map_err(|e| match e {
        Errno::NOENT => {
            Error::new(ErrorKind::NotFound, format!("there is no folder {}", folder.display()))
                .hint("make it, or give the one that the program writes to")
        }
        e => Error::io(format!("cannot watch {}", folder.display()), e.into()),
    })?;
    let listen = move || {
        if let Err(error) = notice.listen() {
            notice.tell(Noticed::Lost(error));
        }
    };
    let thread = std::thread::Builder::new().name("treering-notice".into());
    thread.spawn(listen).map_err(|e| Error::io("cannot start a thread", e))?;
    Ok(())
}

impl Notice {
    /// A watcher that was dropped ends this thread.
    fn tell(&mut self, event: Noticed) {
        self.unheard |= self.events.send(event).is_err();
    }

    fn note(&mut self, text: String) {
        if self.notes.insert(text.clone()) {
            self.tell(Noticed::Note(text));
        }
    }

    fn listen(&mut self) -> Result<()> {
        self.all(false)?;
        while !self.unheard {
            for sign in self.wait()? {
                self.take(sign)?;
            }
            if self.listed.elapsed() >= LOOK_AGAIN {
                self.all(false)?;
            }
        }
        Ok(())
    }

    /// The next signs; none if it is time to list everything again.
    fn wait(&self) -> Result<Vec<KernelSign>> {
        let failed = |e: Errno| Error::io("cannot listen to the kernel", e.into());
        let rest = LOOK_AGAIN.saturating_sub(self.listed.elapsed());
        let rest = Timespec { tv_sec: rest.as_secs() as i64, tv_nsec: rest.subsec_nanos().into() };
        match poll(&mut [PollFd::new(&self.inotify, PollFlags::IN)], Some(&rest)) {
            Ok(0) | Err(Errno::INTR) => return Ok(Vec::new()),
            Ok(_) => {}
            Err(e) => return Err(failed(e)),
        }
        let mut buffer = [MaybeUninit::uninit(); 1 << 14];
        let mut reader = Reader::new(&self.inotify, &mut buffer);
        let mut signs = Vec::new();
        while signs.is_empty() || !reader.is_buffer_empty() {
            match reader.next() {
                Ok(event) => {
                    let name = event.file_name();
                    let name = name.map(|name| OsString::from_vec(name.to_bytes().to_vec()));
                    signs.push((event.wd(), event.events(), name));
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => break,
                Err(e) => return Err(failed(e)),
            }
        }
        Ok(signs)
    }

    fn take(&mut self, (watch, what, name): KernelSign) -> Result<()> {
        if what.contains(ReadFlags::QUEUE_OVERFLOW) {
            return self.all(true);
        }
        let Some(folder) = self.watched.get(&watch).cloned() else {
            return Ok(());
        };
        let ended = ReadFlags::DELETE_SELF | ReadFlags::MOVE_SELF | ReadFlags::UNMOUNT;
        if folder.as_os_str().is_empty() && what.intersects(ended | ReadFlags::IGNORED) {
            return Err(self.vanished());
        }
        if what.contains(ReadFlags::IGNORED) {
            self.watched.remove(&watch);
            return Ok(());
        }
        let Some(name) = name else {
            return Ok(());
        };
        let path = folder.join(&name);
        if is_passing(&name.to_string_lossy()) || is_tree(&self.folder.join(&path)) {
            return Ok(());
        }
        if what.intersects(ReadFlags::DELETE | ReadFlags::MOVED_FROM) {
            self.forget(&path);
            let folder = what.contains(ReadFlags::ISDIR);
            self.tell(if folder { Noticed::FolderGone(path) } else { Noticed::Found(path) });
        } else if what.contains(ReadFlags::ISDIR) {
            let found = self.list(&path);
            found.into_iter().for_each(|file| self.tell(Noticed::Found(file)));
        } else if what.intersects(ReadFlags::CLOSE_WRITE | ReadFlags::MOVED_TO) {
            self.written.remove(&path);
            self.tell(Noticed::Finished(path));
        } else if what.contains(ReadFlags::MODIFY) {
            if self.written.insert(path.clone()) {
                self.tell(Noticed::Written(path));
            }
        } else if what.contains(ReadFlags::CREATE) {
            self.tell(Noticed::Made(path));
        }
        Ok(())
    }

    fn vanished(&self) -> Error {
        Error::new(ErrorKind::NotFound, format!("{} is gone", self.folder.display()))
            .hint("start again when the folder is back; ingested sets are in the run")
    }

    /// Something that was moved away is no longer watched: its name has changed.
    fn forget(&mut self, path: &Path) {
        self.written.retain(|file| !file.starts_with(path));
        let inotify = &self.inotify;
        self.watched.retain(|watch, folder| {
            let stays = !folder.starts_with(path);
            if !stays {
                // A folder that was removed has lost its watch already.
                let _ = inotify::remove_watch(inotify, *watch);
            }
            stays
        });
    }

    fn all(&mut self, missed: bool) -> Result<()> {
        if missed {
            self.written.clear();
        }
        if !self.folder.is_dir() {
            return Err(self.vanished());
        }
        let files = self.list(Path::new(""));
        self.listed = Instant::now();
        self.tell(Noticed::All { files, missed });
        Ok(())
    }

    fn place(&mut self, folder: &Path) -> std::result::Result<(), Errno> {
        let flags = WatchFlags::CREATE
            | WatchFlags::MODIFY
            | WatchFlags::CLOSE_WRITE
            | WatchFlags::MOVED_TO
            | WatchFlags::MOVED_FROM
            | WatchFlags::DELETE
            | WatchFlags::DELETE_SELF
            | WatchFlags::MOVE_SELF
            | WatchFlags::ONLYDIR;
        let path = self.folder.join(folder);
        let watch = inotify::add_watch(&self.inotify, path, flags)?;
        self.watched.insert(watch, folder.to_path_buf());
        Ok(())
    }

    /// Watches a folder and all below it; tells their files. Files that vanish meanwhile are not reported.
    fn list(&mut self, folder: &Path) -> Vec<PathBuf> {
        let mut files = Vec::new();
        let mut folders = vec![folder.to_path_buf()];
        while let Some(folder) = folders.pop() {
            match self.place(&folder) {
                Ok(()) | Err(Errno::NOENT | Errno::NOTDIR) => {}
                Err(Errno::NOSPC) => self.note(format!(
                    "there are more folders than may be watched; the others are looked at every \
                     {} seconds; raise fs.inotify.max_user_watches with sysctl",
                    LOOK_AGAIN.as_secs()
                )),
                Err(e) => {
                    let folder = self.folder.join(&folder);
                    self.note(format!("cannot watch {}: {e}", folder.display()));
                }
            }
            // A folder that is gone again has no files.
            let Ok(entries) = std::fs::read_dir(self.folder.join(&folder)) else {
                continue;
            };
            for entry in entries.flatten() {
                let path = folder.join(entry.file_name());
                match entry.file_type() {
                    _ if is_passing(&entry.file_name().to_string_lossy()) => {}
                    Ok(kind) if kind.is_dir() => folders.push(path),
                    Ok(kind) if kind.is_file() && !is_tree(&entry.path()) => files.push(path),
                    _ => {}
                }
            }
        }
        files
    }
}
