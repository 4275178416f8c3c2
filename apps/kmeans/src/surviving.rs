//! A clustering as a program of steps: its ranks may die, and the others go on with all points.
//!
//! The points never change, so they travel when a crew is formed; afterwards only the centres do. After a death every
//! survivor has a new even share of the points, which comes from the replicas and not from the seed: its room is filled
//! with what is not a number until then.

use crate::clustering::Clustering;
use treering::{Crew, Restored, Result, Role, Steps, Variable, VariableMut};

/// A clustering that survives deaths; for [`treering::survive`].
pub struct SurvivingClustering {
    /// This rank's end of it.
    pub clustering: Clustering,
    /// Called before every iteration, with its number: tests and experiments let a rank die there.
    pub before_iteration: Box<dyn FnMut(u64)>,
}

impl SurvivingClustering {
    /// Lets a clustering survive.
    pub fn new(clustering: Clustering) -> SurvivingClustering {
        SurvivingClustering { clustering, before_iteration: Box::new(|_| {}) }
    }
}

impl Steps for SurvivingClustering {
    fn begin(&mut self, crew: &Crew) -> Result<()> {
        self.clustering.make_room(crew.comm().rank().0, crew.comm().size())?;
        if crew.role() == Role::Initial {
            self.clustering.make_points();
        }
        Ok(())
    }

    fn state(&self) -> Vec<Variable<'_>> {
        self.clustering.variables()
    }

    fn arrays(&mut self) -> Vec<VariableMut<'_>> {
        self.clustering.variables_mut()
    }

    fn resumed(&mut self, crew: &Crew, restored: Option<&Restored>) -> Result<()> {
        if restored.is_some() {
            return self.clustering.check_restored();
        }
        // Somebody died before anything was kept.
        if crew.role() != Role::Initial {
            self.clustering.make_points();
        }
        Ok(())
    }

    fn is_done(&self, step: u64) -> bool {
        step >= self.clustering.settings().iterations
    }

    fn step(&mut self, crew: &Crew, step: u64) -> Result<()> {
        (self.before_iteration)(step);
        self.clustering.iterate(&**crew.comm())
    }
}
