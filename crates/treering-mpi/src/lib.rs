//! Treering's ranks over MPI.
//!
//! [`MpiRanks::init`] starts MPI, or joins a program that has started it, and provides a communicator for
//! `Options::ranks`. Treering works on a duplicate of the program's communicator, so its messages never meet the
//! program's. Every code that MPI returns is checked. Where the MPI has user-level failure mitigation (ULFM) and it
//! is switched on (`mpirun --with-ft ulfm`), the survivors of a rank's death can go on; everywhere else a death
//! ends the job, as it does without Treering.
//!
//! All calls are made by the thread that called `init`: the MPI needs to provide `MPI_THREAD_FUNNELED`.

mod comm;
mod exchange;
mod outbox;
mod shim;
mod transfer;

pub use comm::MpiComm;

// The chapter of the book about MPI: its examples are tests.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/src/mpi.md")]
struct Mpi;

use shim::{Raw, check};
use std::sync::Arc;
use transfer::Wire;
use treering::{Comm, Error, ErrorKind, Result};

/// The most bytes of one MPI message, by default.
const PIECE: usize = 1 << 29;

/// MPI, for as long as the program needs it.
///
/// Dropped last, it ends MPI if it has started it.
pub struct MpiRanks {
    own: bool,
    survives: bool,
    piece: usize,
}

impl MpiRanks {
    /// Starts MPI, if the program has not done so.
    ///
    /// A panic of a rank ends its process at once from here on, with an abort: some runtimes do not notice a
    /// rank that exits with an error, and the others would wait for it.
    pub fn init() -> Result<MpiRanks> {
        settle_environment();
        let mut own = 0;
        // SAFETY: the pointer is valid for the call.
        check(unsafe { shim::tr_init(&mut own) }, "cannot start MPI")?;
        let ordinary = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            ordinary(panic);
            std::process::abort();
        }));
        // SAFETY: MPI is started.
        let survives = unsafe { shim::tr_survives() } != 0;
        Ok(MpiRanks { own: own != 0, survives, piece: PIECE })
    }

    /// The most bytes of one MPI message, the same on all ranks: longer messages travel in pieces. Default: 2^29.
    pub fn pieces(mut self, bytes: usize) -> Result<MpiRanks> {
        match (1..=i32::MAX as usize).contains(&bytes) {
            true => self.piece = bytes,
            false => {
                return Err(Error::new(
                    ErrorKind::Usage,
                    format!("invalid pieces of {bytes} bytes: expected 1 to 2^31 - 1"),
                ));
            }
        }
        Ok(self)
    }

    /// All ranks of the job.
    pub fn world(&self) -> Result<Arc<dyn Comm>> {
        self.duplicate(true, 0)
    }

    /// The ranks of a communicator of the program, by its Fortran handle (`MPI_Comm_c2f`). Collective.
    pub fn of_handle(&self, handle: i32) -> Result<Arc<dyn Comm>> {
        self.duplicate(false, handle)
    }

    /// Whether the survivors of a rank's death can continue.
    pub fn survives(&self) -> bool {
        self.survives
    }

    fn duplicate(&self, world: bool, handle: i32) -> Result<Arc<dyn Comm>> {
        let mut raw = std::ptr::null_mut();
        // SAFETY: the pointer is valid for the call; a handle that is no communicator is reported by the MPI.
        let code = unsafe { shim::tr_duplicate(world.into(), handle, &mut raw) };
        check(code, "cannot duplicate the communicator")?;
        let comm = MpiComm::new(Wire { raw: Raw(raw), piece: self.piece }, self.survives)?;
        Ok(Arc::new(comm.sharing()?))
    }
}

impl Drop for MpiRanks {
    fn drop(&mut self) {
        if self.own && !std::thread::panicking() {
            // SAFETY: MPI is started. A failure at the very end has nobody to be reported to.
            unsafe { shim::tr_finalize() };
        }
    }
}

/// Settings of Open MPI that a program wants whose ranks may die, unless the user has chosen others: without the
/// first one the survivors may hang at the end.
fn settle_environment() {
    if std::env::var_os("OMPI_MCA_async_mpi_finalize").is_none() {
        // SAFETY: MPI is not started yet, and Treering has no threads yet.
        unsafe { std::env::set_var("OMPI_MCA_async_mpi_finalize", "1") };
    }
}
