//! k-means (Lloyd 1982) on many ranks, which survives their deaths with replicas in memory: the first experiment of
//! the ReStore paper (Hübner et al. 2022, Section VI-C).
//!
//! The way of the data: [`points`] come from a seed, `nearest` finds the centre of each point, `sums` adds up the
//! points of all ranks, [`Clustering`] is one rank's end of it, [`SurvivingClustering`] makes it a program that
//! survives deaths, and [`Failures`] tells which ranks die at random.
//!
//! The law: the centres after an iteration are a function of the settings and the iteration alone, bit for bit.
//! The number of ranks does not count, nor who has died when.
//!
//! ```
//! use kmeans::{Clustering, Settings};
//! use treering::Alone;
//!
//! let settings = Settings { points: 1000, dimensions: 4, centres: 5, ..Settings::default() };
//! let mut clustering = Clustering::new(&settings);
//! clustering.make_room(0, 1)?;
//! clustering.make_points();
//! clustering.iterate(&Alone::new())?;
//! let first = clustering.inertia();
//! clustering.iterate(&Alone::new())?;
//! assert!(clustering.inertia() < first);
//! # Ok::<(), treering::Error>(())
//! ```

mod clustering;
mod failures;
mod nearest;
pub mod points;
mod settings;
mod sums;
mod surviving;

pub use clustering::Clustering;
pub use failures::Failures;
pub use settings::Settings;
pub use surviving::SurvivingClustering;
