//! Files that are mapped, so that what the page cache holds is compared without a copy.
//!
//! Mapping has one danger: a page that is gone when it is touched, because the file became shorter
//! meanwhile or the disk could not give it, ends the process with SIGBUS. So a handler stands by: a
//! fault inside a mapped file puts a page of zeros there and marks the file as torn, and whoever
//! compares asks [`Mapped::is_torn`] before it believes what it saw. Faults elsewhere go to the handler
//! that was there before. A handler belongs to the whole process, which is why a program has to allow
//! it: `CompareSettings::mapped`.

use libc::{c_int, c_void, siginfo_t};
use memmap2::{Advice, Mmap, MmapOptions, UncheckedAdvice};
use std::fs::File;
use std::mem::MaybeUninit;
use std::ops::Range;
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

/// A part of a file, mapped and watched.
pub(crate) struct Mapped {
    map: Mmap,
    watch: &'static WatchedRange,
    /// Pages before this were released.
    kept_from: AtomicU64,
}

/// A range of addresses that the handler looks after.
struct WatchedRange {
    taken: AtomicBool,
    start: AtomicUsize,
    end: AtomicUsize,
    torn: AtomicBool,
}

/// Size of the part of a file that stays mapped, at least and at most twice.
const KEPT: u64 = 32 << 20;

/// As many files as can be mapped at a time; those beyond are read.
static WATCHES: [WatchedRange; 256] = [const {
    WatchedRange {
        taken: AtomicBool::new(false),
        start: AtomicUsize::new(0),
        end: AtomicUsize::new(0),
        torn: AtomicBool::new(false),
    }
}; 256];

/// The handler of SIGBUS before; `None` if the handler could not be installed.
static BEFORE: OnceLock<Option<libc::sigaction>> = OnceLock::new();
static PAGE: AtomicUsize = AtomicUsize::new(4096);

impl Mapped {
    /// Maps `len` bytes of a file, if the system and the handler can.
    pub(crate) fn new(file: &File, offset: u64, len: u64) -> Option<Mapped> {
        BEFORE.get_or_init(install).as_ref()?;
        let len = usize::try_from(len).ok().filter(|len| *len > 0)?;
        let watch = WATCHES.iter().find(|watch| !watch.taken.swap(true, Ordering::Acquire))?;
        // SAFETY: pages that go away are replaced by the handler. Values that another process changes
        // meanwhile are only ever compared: every bit pattern is a value, and none is an address.
        let map = unsafe { MmapOptions::new().offset(offset).len(len).map(file) };
        let Ok(map) = map else {
            watch.taken.store(false, Ordering::Release);
            return None;
        };
        let page = PAGE.load(Ordering::Relaxed);
        let start = map.as_ptr() as usize;
        watch.torn.store(false, Ordering::Relaxed);
        watch.start.store(start / page * page, Ordering::Relaxed);
        watch.end.store((start + len).next_multiple_of(page), Ordering::Release);
        Some(Mapped { map, watch, kept_from: AtomicU64::new(0) })
    }

    /// Makes the pages of a range ready at once.
    pub(crate) fn ready(&self, range: Range<u64>) {
        let len = (range.end - range.start) as usize;
        // Whether the system can changes nothing but the time.
        let _ = self.map.advise_range(Advice::PopulateRead, range.start as usize, len);
    }

    /// Gives pages back that lie so far before a place that nobody uses them any more: what is mapped
    /// at a time stays small. Pages that are used after all are mapped again.
    pub(crate) fn passed(&self, at: u64) {
        let start = self.kept_from.load(Ordering::Relaxed);
        let end = (at.saturating_sub(KEPT) / KEPT) * KEPT;
        let mine = |start| {
            let (done, failed) = (Ordering::Relaxed, Ordering::Relaxed);
            self.kept_from.compare_exchange(start, end, done, failed).is_ok()
        };
        if start < end && mine(start) {
            let (start, len) = (start as usize, (end - start) as usize);
            // SAFETY: nothing was written to the pages; they come back from the file when touched.
            let _ =
                unsafe { self.map.unchecked_advise_range(UncheckedAdvice::DontNeed, start, len) };
        }
    }

    pub(crate) fn bytes(&self, range: Range<u64>) -> &[u8] {
        &self.map[range.start as usize..range.end as usize]
    }

    /// Whether some of the bytes that were seen are not the file's.
    pub(crate) fn is_torn(&self) -> bool {
        self.watch.torn.load(Ordering::Acquire)
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // The addresses may be given to somebody else as soon as the map is gone, which is after this:
        // nobody can touch it any more.
        self.watch.end.store(0, Ordering::Release);
        self.watch.start.store(0, Ordering::Release);
        self.watch.taken.store(false, Ordering::Release);
    }
}

fn install() -> Option<libc::sigaction> {
    // SAFETY: plain calls of the system; all that is passed is initialised as they ask.
    unsafe {
        let page = libc::sysconf(libc::_SC_PAGESIZE);
        PAGE.store(usize::try_from(page).ok()?, Ordering::Relaxed);
        let mut action: libc::sigaction = MaybeUninit::zeroed().assume_init();
        action.sa_sigaction = on_fault as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
        libc::sigemptyset(&mut action.sa_mask);
        let mut before = MaybeUninit::zeroed();
        match libc::sigaction(libc::SIGBUS, &action, before.as_mut_ptr()) {
            0 => Some(before.assume_init()),
            _ => None,
        }
    }
}

/// Runs where the fault was: it may only do what is allowed inside a signal handler.
extern "C" fn on_fault(signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    // SAFETY: the system passes a valid description of the fault.
    let address = unsafe { (*info).si_addr() } as usize;
    let watch = WATCHES.iter().find(|watch| {
        let end = watch.end.load(Ordering::Acquire);
        watch.start.load(Ordering::Relaxed) <= address && address < end
    });
    match watch {
        Some(watch) if put_zeros(address) => watch.torn.store(true, Ordering::Release),
        _ => pass_on(signal, info, context),
    }
}

/// Puts a page of zeros where a page is gone.
fn put_zeros(address: usize) -> bool {
    let page = PAGE.load(Ordering::Relaxed);
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
    // SAFETY: the page belongs to a map of ours, which is unmapped as a whole; errno is as before.
    unsafe {
        let errno = *libc::__errno_location();
        let at = (address / page * page) as *mut c_void;
        let got = libc::mmap(at, page, libc::PROT_READ, flags, -1, 0);
        *libc::__errno_location() = errno;
        got == at
    }
}

/// Does what would have been done without this handler.
fn pass_on(signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    let before = BEFORE.get().and_then(Option::as_ref);
    // SAFETY: what was installed before is called as it asked to be called.
    unsafe {
        match before {
            Some(action)
                if action.sa_sigaction != libc::SIG_DFL && action.sa_sigaction != libc::SIG_IGN =>
            {
                if action.sa_flags & libc::SA_SIGINFO != 0 {
                    let handler: extern "C" fn(c_int, *mut siginfo_t, *mut c_void) =
                        std::mem::transmute(action.sa_sigaction);
                    handler(signal, info, context);
                } else {
                    let handler: extern "C" fn(c_int) = std::mem::transmute(action.sa_sigaction);
                    handler(signal);
                }
            }
            _ => {
                // The instruction is tried again, and ends the process as it would have.
                let mut action: libc::sigaction = MaybeUninit::zeroed().assume_init();
                action.sa_sigaction = libc::SIG_DFL;
                libc::sigaction(libc::SIGBUS, &action, ptr::null_mut());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn what_is_gone_reads_as_zeros_and_is_told() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&[7; 3 * 4096]).unwrap();
        let mapped = Mapped::new(&file, 100, 3 * 4096 - 100).unwrap();
        assert_eq!(mapped.bytes(0..4), [7; 4]);
        assert!(!mapped.is_torn());
        file.set_len(4096).unwrap();
        assert!(mapped.bytes(0..3996).iter().all(|byte| *byte == 7));
        assert!(!mapped.is_torn());
        mapped.ready(0..3 * 4096 - 100);
        assert!(mapped.bytes(3996..3 * 4096 - 100).iter().all(|byte| *byte == 0));
        assert!(mapped.is_torn());
        drop(mapped);
        // Its place is free again, and another file is not blamed.
        let again = Mapped::new(&file, 0, 4096).unwrap();
        assert_eq!(again.bytes(4000..4004), [7; 4]);
        assert!(!again.is_torn());
    }
}
