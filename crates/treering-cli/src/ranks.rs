//! The ranks that share the work of a command, if `mpirun` has started several.

use std::sync::Arc;
use treering::{Alone, Comm, Result};

/// The ranks of this command. The first one prints the result.
pub struct CommandRanks {
    // Dropped before MPI ends.
    comm: Arc<dyn Comm>,
    #[cfg(feature = "mpi")]
    _mpi: Option<treering_mpi::MpiRanks>,
}

impl CommandRanks {
    #[cfg(feature = "mpi")]
    pub fn start() -> Result<Self> {
        // Without mpirun there is one rank, and no need to start MPI.
        const STARTED: [&str; 3] = ["OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "PMIX_RANK"];
        if STARTED.iter().all(|name| std::env::var_os(name).is_none()) {
            return Ok(CommandRanks { comm: Arc::new(Alone::new()), _mpi: None });
        }
        let mpi = treering_mpi::MpiRanks::init()?;
        let comm = mpi.world()?;
        if comm.rank().0 > 0 {
            crate::output::be_quiet();
        }
        Ok(CommandRanks { comm, _mpi: Some(mpi) })
    }

    #[cfg(not(feature = "mpi"))]
    pub fn start() -> Result<Self> {
        Ok(CommandRanks { comm: Arc::new(Alone::new()) })
    }

    pub fn comm(&self) -> &dyn Comm {
        &*self.comm
    }

    /// Whether this rank writes files and prints.
    pub fn is_first(&self) -> bool {
        self.comm.rank().0 == 0
    }
}
