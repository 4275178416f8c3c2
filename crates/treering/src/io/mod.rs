//! Access to files that goes beyond plain reads and writes: many scattered reads at once, mapped files,
//! files that appear only when they are complete, and memory that is handed to other processes.

mod atomic_file;
#[cfg(feature = "tools")]
mod mapped;
mod open;
mod post;
#[cfg(feature = "tools")]
mod reads;

pub use atomic_file::write_whole;
pub(crate) use atomic_file::{AtomicFile, hidden_name};
#[cfg(feature = "tools")]
pub(crate) use mapped::Mapped;
pub(crate) use open::open_file;
pub(crate) use post::{Post, PostOffice, give_back, memory};
#[cfg(feature = "tools")]
pub use reads::Reading;
#[cfg(feature = "tools")]
pub(crate) use reads::{ALIGN, Engine, Read, cached, engine, is_warm, past_the_cache};
