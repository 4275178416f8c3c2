//! A simulation as a program of steps: its ranks may die, and the others go on with all particles.
//!
//! The state is rows of global arrays, one for each particle, in the order of ranks. Restored on other ranks, the
//! particles come evenly split and are handed to the ranks whose slabs they are in.

use super::run::other_settings;
use super::simulation::{OwnParticles, RankSimulation};
use crate::Settings;
use treering::{Comm, Crew, Restored, Result, Steps, Variable, VariableMut};

/// A simulation that survives deaths; for [`treering::survive`].
pub struct SurvivingSimulation {
    settings: Settings,
    steps: u64,
    /// The numbers of `Settings::fingerprint`, as they were saved.
    saved_settings: Vec<u64>,
    /// Particles that are restored and not yet handed to their ranks.
    brought: OwnParticles,
    simulation: Option<RankSimulation>,
}

impl SurvivingSimulation {
    /// A simulation of this many steps.
    pub fn new(settings: &Settings, steps: u64) -> SurvivingSimulation {
        SurvivingSimulation {
            settings: settings.clone(),
            steps,
            saved_settings: Vec::new(),
            brought: OwnParticles::default(),
            simulation: None,
        }
    }

    /// The simulation, once a crew has begun.
    pub fn simulation(&self) -> Option<&RankSimulation> {
        self.simulation.as_ref()
    }

    /// A digest of the particles of all ranks, see [`RankSimulation::digest`].
    pub fn digest(&self, _: &dyn Comm) -> Result<u64> {
        self.simulation.as_ref().map_or(Ok(0), RankSimulation::digest)
    }
}

impl Steps for SurvivingSimulation {
    fn begin(&mut self, _: &Crew) -> Result<()> {
        (self.simulation, self.brought) = (None, OwnParticles::default());
        self.saved_settings = self.settings.fingerprint().to_vec();
        self.settings.check()
    }

    fn state(&self) -> Vec<Variable<'_>> {
        let own = self.simulation.as_ref().map_or(&self.brought, RankSimulation::own);
        let mut state: Vec<Variable> =
            own.particles.variables().into_iter().map(Variable::rows).collect();
        state.push(Variable::new("id", &own.ids).rows());
        state.push(Variable::new("settings", &self.saved_settings).same());
        state
    }

    fn arrays(&mut self) -> Vec<VariableMut<'_>> {
        let mut arrays = self.brought.variables_mut();
        arrays.push(VariableMut::growing("settings", &mut self.saved_settings));
        arrays
    }

    fn resumed(&mut self, crew: &Crew, restored: Option<&Restored>) -> Result<()> {
        let comm = crew.comm().clone();
        if self.saved_settings != self.settings.fingerprint() {
            return Err(other_settings());
        }
        let brought = std::mem::take(&mut self.brought);
        self.simulation = Some(match restored {
            Some(_) => RankSimulation::with(&self.settings, comm, brought)?,
            None => RankSimulation::new(&self.settings, comm)?,
        });
        Ok(())
    }

    fn is_done(&self, step: u64) -> bool {
        step >= self.steps
    }

    fn step(&mut self, _: &Crew, _: u64) -> Result<()> {
        self.simulation.as_mut().map_or(Ok(()), RankSimulation::step)
    }
}
