//! Gravity between many particles in a periodic cube, by the particle-particle-particle-mesh
//! method (Hockney and Eastwood 1988), with checkpoints.
//!
//! The cube has side 1, all particles together have mass 1, and the constant of gravity is 1. The
//! mean density attracts nobody, as usual in a periodic cube. The state is seven arrays of 32-bit
//! floats: `x`, `y`, `z`, `vx`, `vy`, `vz` and `potential`.
//!
//! The way of the data: [`start`] makes the first state, [`force`] gives the accelerations of a
//! state, [`Simulation`] steps it, and [`run`] steps it with checkpoints and goes on after a crash.
//!
//! Sums that several threads add to depend on the order of the additions, as in most parallel
//! codes: with one thread a run is the same bit for bit every time, with more it is not, and since
//! gravity is chaotic two such runs move apart.
//!
//! On several ranks ([`ranks`]) each has the particles of a slab of the cube. There all sums that
//! ranks or threads share are of fixed-point numbers, so that the state after a step is the same bit
//! for bit on any number of ranks and threads.
//!
//! ```
//! use particles::{Settings, Simulation};
//!
//! let settings = Settings { particles_per_side: 8, mesh: 24, threads: 1, ..Settings::default() };
//! let mut simulation = Simulation::new(&settings)?;
//! let before = simulation.energy();
//! simulation.step();
//! assert!((simulation.energy().total() - before.total()).abs() < 1e-3 * before.potential.abs());
//! # Ok::<(), treering::Error>(())
//! ```

mod fixed;
pub mod force;
mod fourier;
mod particles;
pub mod ranks;
mod run;
mod settings;
mod simulation;
pub mod start;

pub use particles::{NAMES, Particles};
pub use run::{Progress, Schedule, Summary, run};
pub use settings::Settings;
pub use simulation::{Energy, Simulation};
