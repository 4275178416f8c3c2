//! PageRank as a program of steps: its ranks may die, and the others go on with the whole graph.
//!
//! The edges never change, so they travel when a crew is formed; afterwards only the scores do. After a death the edges of
//! the dead come from the replicas. The graph is read or made where there is no state yet, and by a program that is
//! started again, to see that the state is one of this graph.

use super::scores::PageRank;
use crate::Graph;
use treering::{
    Comm, Crew, Error, ErrorKind, Restored, Result, Role, Steps, Variable, VariableMut,
};

/// Hands the graph to all ranks; collective.
type BringGraph<'a> = Box<dyn FnMut(&dyn Comm) -> Result<Graph> + 'a>;

/// PageRank that survives deaths; for [`treering::survive`].
pub struct SurvivingPageRank<'a> {
    /// This rank's end of it.
    pub pages: PageRank,
    bring: BringGraph<'a>,
    /// The scores of all vertices, when it has come to the end, on the first rank.
    pub scores: Option<Vec<f64>>,
}

impl<'a> SurvivingPageRank<'a> {
    /// Lets PageRank survive. `bring` hands the graph to all ranks of a communicator, see
    /// [`share_graph`](crate::ranks::share_graph).
    pub fn new(
        pages: PageRank,
        bring: impl FnMut(&dyn Comm) -> Result<Graph> + 'a,
    ) -> SurvivingPageRank<'a> {
        SurvivingPageRank { pages, bring: Box::new(bring), scores: None }
    }
}

impl Steps for SurvivingPageRank<'_> {
    fn begin(&mut self, _: &Crew) -> Result<()> {
        self.pages.clear();
        self.pages.settings().check()
    }

    fn state(&self) -> Vec<Variable<'_>> {
        self.pages.variables()
    }

    fn arrays(&mut self) -> Vec<VariableMut<'_>> {
        self.pages.variables_mut()
    }

    fn resumed(&mut self, crew: &Crew, restored: Option<&Restored>) -> Result<()> {
        let comm = &**crew.comm();
        if restored.is_none() {
            let graph = (self.bring)(comm)?;
            return self.pages.begin(&graph, comm);
        }
        if crew.role() == Role::Initial && !self.pages.is_of(&(self.bring)(comm)?) {
            return Err(Error::new(ErrorKind::Mismatch, "the run belongs to another graph")
                .hint("give the graph that it was begun with, or another run"));
        }
        self.pages.settle(comm)
    }

    fn is_done(&self, step: u64) -> bool {
        step >= self.pages.settings().iterations || self.pages.is_settled()
    }

    fn step(&mut self, crew: &Crew, _: u64) -> Result<()> {
        self.pages.iterate(&**crew.comm())
    }

    fn end(&mut self, crew: &Crew, _: u64) -> Result<()> {
        self.scores = self.pages.gather(&**crew.comm())?;
        Ok(())
    }
}
