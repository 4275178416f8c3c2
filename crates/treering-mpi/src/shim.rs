//! The functions of the shim, and what their codes mean.

use std::ffi::{c_char, c_int, c_void};
use treering::{Error, ErrorKind, Result};

/// A communicator of the shim.
#[repr(C)]
pub(crate) struct TrComm {
    _private: [u8; 0],
}

/// A request of the shim.
#[repr(C)]
pub(crate) struct TrRequest {
    _private: [u8; 0],
}

/// A communicator; it is used by one thread at a time.
#[derive(Clone, Copy)]
pub(crate) struct Raw(pub(crate) *mut TrComm);

// SAFETY: the shim has no state of its own, and MPI handles are not bound to threads; `MpiComm` lets one thread in
// at a time.
unsafe impl Send for Raw {}

unsafe extern "C" {
    pub(crate) fn tr_class(code: c_int) -> c_int;
    pub(crate) fn tr_text(code: c_int, text: *mut c_char, room: c_int);
    pub(crate) fn tr_init(own: *mut c_int) -> c_int;
    pub(crate) fn tr_finalize() -> c_int;
    pub(crate) fn tr_survives() -> c_int;
    pub(crate) fn tr_duplicate(world: c_int, handle: c_int, out: *mut *mut TrComm) -> c_int;
    pub(crate) fn tr_free(comm: *mut TrComm) -> c_int;
    pub(crate) fn tr_forget(comm: *mut TrComm);
    pub(crate) fn tr_rank(comm: *mut TrComm, rank: *mut c_int) -> c_int;
    pub(crate) fn tr_size(comm: *mut TrComm, size: *mut c_int) -> c_int;
    pub(crate) fn tr_isend(
        comm: *mut TrComm,
        to: c_int,
        tag: c_int,
        bytes: *const c_void,
        len: c_int,
        synchronous: c_int,
        out: *mut *mut TrRequest,
    ) -> c_int;
    pub(crate) fn tr_irecv(
        comm: *mut TrComm,
        from: c_int,
        tag: c_int,
        bytes: *mut c_void,
        len: c_int,
        out: *mut *mut TrRequest,
    ) -> c_int;
    pub(crate) fn tr_ibarrier(comm: *mut TrComm, out: *mut *mut TrRequest) -> c_int;
    pub(crate) fn tr_test(request: *mut TrRequest, done: *mut c_int) -> c_int;
    pub(crate) fn tr_test_some(requests: *mut *mut TrRequest, count: c_int) -> c_int;
    pub(crate) fn tr_iprobe(
        comm: *mut TrComm,
        from: c_int,
        tag: c_int,
        found: *mut c_int,
        source: *mut c_int,
        len: *mut c_int,
    ) -> c_int;
    pub(crate) fn tr_recv(
        comm: *mut TrComm,
        from: c_int,
        tag: c_int,
        bytes: *mut c_void,
        len: c_int,
    ) -> c_int;
    pub(crate) fn tr_bcast(comm: *mut TrComm, bytes: *mut c_void, len: c_int, root: c_int)
    -> c_int;
    pub(crate) fn tr_gather(
        comm: *mut TrComm,
        own: *const c_void,
        len: c_int,
        all: *mut c_void,
        root: c_int,
    ) -> c_int;
    pub(crate) fn tr_reduce(comm: *mut TrComm, how: c_int, values: *mut u64, count: c_int)
    -> c_int;
    pub(crate) fn tr_split(
        comm: *mut TrComm,
        color: c_int,
        key: c_int,
        out: *mut *mut TrComm,
    ) -> c_int;
    pub(crate) fn tr_machine(comm: *mut TrComm, out: *mut *mut TrComm) -> c_int;
    pub(crate) fn tr_world_rank(comm: *mut TrComm, rank: c_int, world_rank: *mut c_int) -> c_int;
    pub(crate) fn tr_agree(comm: *mut TrComm, flag: *mut c_int) -> c_int;
    pub(crate) fn tr_revoke(comm: *mut TrComm) -> c_int;
    pub(crate) fn tr_is_revoked(comm: *mut TrComm) -> c_int;
    pub(crate) fn tr_shrink(comm: *mut TrComm, out: *mut *mut TrComm) -> c_int;
    pub(crate) fn tr_dead(comm: *mut TrComm, ranks: *mut c_int, count: *mut c_int) -> c_int;
}

/// Turns a code of MPI into an error that says what could not be done.
pub(crate) fn check(code: c_int, what: &str) -> Result<()> {
    // SAFETY: the function looks at nothing but the number.
    let kind = match unsafe { tr_class(code) } {
        0 => return Ok(()),
        1 => return Err(Error::new(ErrorKind::Dead, format!("{what}: a rank has died"))),
        2 => ErrorKind::Revoked,
        _ => ErrorKind::Io,
    };
    let mut text = [0 as c_char; 512];
    // SAFETY: `text` has as much room as it says, and ends with a zero after the call.
    let text = unsafe {
        tr_text(code, text.as_mut_ptr(), text.len() as c_int);
        std::ffi::CStr::from_ptr(text.as_ptr())
    };
    Err(Error::new(kind, format!("{what}: {}", text.to_string_lossy())))
}
