//! Settings of a simulation, checked once.

use treering::{Error, Result};

/// Settings of a simulation. All but `threads` must stay the same over a restart.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// Particles along each side of the cube; there are as many as its third power.
    pub particles_per_side: u32,
    /// Cells of the mesh along each side of the cube.
    pub mesh: u32,
    /// The seed of the first state.
    pub seed: u64,
    /// The time that a step takes; the first clumps collapse within a time of about 0.5.
    pub timestep: f32,
    /// The threads to compute with; with one, equal settings give equal bits.
    pub threads: u32,
}

impl Default for Settings {
    fn default() -> Self {
        let cores = std::thread::available_parallelism().map_or(1, |n| n.get().min(1024) as u32);
        Settings { particles_per_side: 32, mesh: 64, seed: 1, timestep: 0.025, threads: cores }
    }
}

impl Settings {
    /// With fewer cells per side the reach of the short-range force would exceed a third of the
    /// cube, and a particle would meet the same neighbour twice.
    pub const COARSEST_MESH: u32 = 24;

    /// Number of particles.
    pub fn particles(&self) -> usize {
        (self.particles_per_side as usize).pow(3)
    }

    /// Refuses what cannot be computed, with a sentence that says what can.
    pub fn check(&self) -> Result<()> {
        within("particles per side", self.particles_per_side, 2, 512)?;
        within("mesh cells per side", self.mesh, Self::COARSEST_MESH, 1024)?;
        within("threads", self.threads, 1, 1024)?;
        match self.timestep > 0.0 && self.timestep <= 1.0 {
            true => Ok(()),
            false => Err(Error::usage(format!(
                "a step takes a time above 0 and up to 1, but {} was asked for",
                self.timestep
            ))),
        }
    }

    /// The numbers that must be the same when a run goes on.
    pub(crate) fn fingerprint(&self) -> [u64; 4] {
        let timestep = u64::from(self.timestep.to_bits());
        [u64::from(self.particles_per_side), u64::from(self.mesh), self.seed, timestep]
    }
}

fn within(what: &str, value: u32, least: u32, most: u32) -> Result<()> {
    match (least..=most).contains(&value) {
        true => Ok(()),
        false => Err(Error::usage(format!(
            "the number of {what} is {least} to {most}, but {value} was asked for"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_computed_is_refused_by_name() {
        let good = Settings::default();
        assert!(good.check().is_ok());
        for (bad, word) in [
            (Settings { particles_per_side: 1, ..good.clone() }, "particles per side"),
            (Settings { mesh: 23, ..good.clone() }, "mesh"),
            (Settings { threads: 0, ..good.clone() }, "threads"),
            (Settings { timestep: 0.0, ..good.clone() }, "time"),
            (Settings { timestep: f32::NAN, ..good.clone() }, "time"),
        ] {
            assert!(bad.check().unwrap_err().to_string().contains(word));
        }
    }

    #[test]
    fn only_the_threads_may_change_over_a_restart() {
        let one = Settings { threads: 1, ..Settings::default() };
        assert_eq!(one.fingerprint(), Settings { threads: 2, ..one.clone() }.fingerprint());
        assert_ne!(one.fingerprint(), Settings { mesh: 48, ..one.clone() }.fingerprint());
        assert_ne!(one.fingerprint(), Settings { seed: 2, ..one.clone() }.fingerprint());
        assert_ne!(one.fingerprint(), Settings { timestep: 0.01, ..one }.fingerprint());
    }
}
