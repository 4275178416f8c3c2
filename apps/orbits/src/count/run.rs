//! One parallel count over a range of roots: how it is cut, and who counts what.

use std::ops::Range;
use std::sync::{Mutex, PoisonError};

use rayon::iter::{IntoParallelIterator, ParallelIterator};

use super::neighbourhood::Neighbourhood;
use super::rows::{MAX_MEMBERS, PrivateRows, Rows};
use super::table::SharedTable;
use super::walk::Walk;
use super::{CountError, Counter, Counts};
use crate::Graph;

/// Roots that share a neighbourhood: enough that its copying is repaid, few enough that
/// threads rarely wait for the last run.
const ROOTS_PER_RUN: usize = 512;

/// Into how many parts the subgraphs of a far-reaching root are cut.
const PARTS_PER_THREAD: usize = 8;

/// Memory of a thread that counts runs, kept from run to run.
struct Desk {
    near: Neighbourhood,
    walk: Walk,
    rows: PrivateRows,
}

pub(super) struct Run<'a, T: Counter> {
    graph: &'a Graph,
    table: SharedTable<'a, T>,
    desks: Mutex<Vec<Desk>>,
}

impl<'a, T: Counter> Run<'a, T> {
    pub fn new(graph: &'a Graph, counts: &'a mut Counts<T>) -> Self {
        Self { graph, table: SharedTable::new(counts), desks: Mutex::new(Vec::new()) }
    }

    pub fn count(self, roots: Range<u32>) -> Result<(), CountError> {
        if !roots.is_empty() {
            self.split(roots);
        }
        self.table.finish()
    }

    fn split(&self, roots: Range<u32>) {
        if self.table.has_overflowed() {
            return;
        }
        if roots.len() > ROOTS_PER_RUN || !self.count_together(roots.clone()) {
            let middle = roots.start + (roots.end - roots.start) / 2;
            rayon::join(|| self.split(roots.start..middle), || self.split(middle..roots.end));
        }
    }

    /// Counts a run in one piece; false, with nothing counted, if it reaches too far.
    fn count_together(&self, roots: Range<u32>) -> bool {
        let mut desk = self.take_desk();
        let fits = desk.near.fill(self.graph, roots.clone());
        if fits && desk.near.vertices().len() <= MAX_MEMBERS {
            self.count_run(&mut desk, roots.len() as u32);
        } else if fits {
            self.count_far_reaching(&mut desk.near);
        }
        self.return_desk(desk);
        fits
    }

    fn count_run(&self, desk: &mut Desk, roots: u32) {
        for root in 0..roots {
            desk.near.remove_root(root);
            let seconds = 0..desk.near.neighbours(root).len();
            let rows = Rows::new(&mut desk.rows, &desk.near, &self.table);
            desk.walk.subgraphs_of(root, seconds, rows);
        }
        desk.rows.flush(&desk.near, &self.table);
    }

    /// Counts the subgraphs of a single root with all threads.
    fn count_far_reaching(&self, near: &mut Neighbourhood) {
        near.remove_root(0);
        let near = &*near;
        let seconds = near.neighbours(0).len();
        let parts = seconds.min(PARTS_PER_THREAD * rayon::current_num_threads());
        (0..parts).into_par_iter().for_each(|part| {
            let mut desk = self.take_desk();
            let share = seconds * part / parts..seconds * (part + 1) / parts;
            let rows = Rows::new(&mut desk.rows, near, &self.table);
            desk.walk.subgraphs_of(0, share, rows);
            desk.rows.flush(near, &self.table);
            self.return_desk(desk);
        });
    }

    fn take_desk(&self) -> Desk {
        let mut desks = self.desks.lock().unwrap_or_else(PoisonError::into_inner);
        desks.pop().unwrap_or_else(|| Desk {
            near: Neighbourhood::default(),
            walk: Walk::default(),
            rows: PrivateRows::new(),
        })
    }

    fn return_desk(&self, desk: Desk) {
        let mut desks = self.desks.lock().unwrap_or_else(PoisonError::into_inner);
        desks.push(desk);
    }
}
