//! The enumeration of the subgraphs of one root (ESU, Wernicke 2006).
//!
//! A subgraph grows vertex by vertex: root, a, b, c, d. The vertices that may still join
//! lie on one stack. Taking the i-th of them leaves those after it as candidates, and
//! appends the neighbours of the taken vertex that touch no earlier member; so the
//! candidates of each level are one contiguous part of the stack, nothing is copied, and
//! each subgraph appears once. `touches[u]` has bit p set when u touches the member at
//! position p: not zero means that u is a member, a candidate or passed over, and at the
//! end it is the mask that completes the adjacency code.
//!
//! The fifth vertex is not put on the stack. Vertices that touch only the fourth always make
//! the same graphlet, so the four members get them in bulk; and whether a candidate touches
//! the fourth is told by a stamp, which, other than a bit, need not be taken back. The
//! loops over fifth vertices have no branch that depends on the graph, except their end.

use std::ops::Range;

use super::Counter;
use super::graphlets::{OrbitTables, TABLES};
use super::neighbourhood::Neighbourhood;
use super::rows::Rows;

/// The memory of a walk, kept from root to root.
#[derive(Default)]
pub(super) struct Walk {
    touches: Vec<u8>,
    candidates: Vec<u32>,
    /// The stamp of the last fourth member that each vertex touches.
    touches_fourth: Vec<u32>,
    stamp: u32,
}

impl Walk {
    /// Counts the subgraphs of `root`, which has just been removed from its neighbourhood,
    /// whose second vertex is among the `seconds` neighbours of the root.
    pub fn subgraphs_of<T: Counter>(&mut self, root: u32, seconds: Range<usize>, rows: Rows<T>) {
        let members = rows.near.vertices().len();
        if self.touches.len() < members {
            self.touches.resize(members, 0);
            self.touches_fourth.resize(members, 0);
        }
        let mut steps = Steps { walk: self, near: rows.near, rows, tables: &TABLES };
        steps.root(root, seconds);
    }

    fn next_stamp(&mut self) -> u32 {
        if self.stamp == u32::MAX {
            self.touches_fourth.fill(0);
            self.stamp = 0;
        }
        self.stamp += 1;
        self.stamp
    }
}

/// A walk under way.
struct Steps<'a, T: Counter> {
    walk: &'a mut Walk,
    near: &'a Neighbourhood,
    rows: Rows<'a, T>,
    tables: &'static OrbitTables,
}

impl<T: Counter> Steps<'_, T> {
    fn root(&mut self, root: u32, seconds: Range<usize>) {
        let before = self.enter::<0>(root);
        for i in seconds {
            let a = self.walk.candidates[i];
            self.pair([root, a], i + 1);
        }
        self.leave::<0>(root, before);
    }

    /// Counts two members and what grows from them, with candidates from `rest` on.
    fn pair(&mut self, [v, a]: [u32; 2], rest: usize) {
        self.add([v, a], &[0, 0], 1);
        let before = self.enter::<1>(a);
        for i in rest..self.walk.candidates.len() {
            let b = self.walk.candidates[i];
            self.triple([v, a, b], i + 1);
        }
        self.leave::<1>(a, before);
    }

    fn triple(&mut self, [v, a, b]: [u32; 3], rest: usize) {
        let code = 1 | usize::from(self.walk.touches[b as usize]) << 1;
        self.add([v, a, b], &self.tables.three[code], 1);
        let before = self.enter::<2>(b);
        for i in rest..self.walk.candidates.len() {
            let c = self.walk.candidates[i];
            self.quadruple([v, a, b, c], code, i + 1);
        }
        self.leave::<2>(b, before);
    }

    fn quadruple(&mut self, [v, a, b, c]: [u32; 4], code: usize, rest: usize) {
        let code = code | usize::from(self.walk.touches[c as usize]) << 3;
        self.add([v, a, b, c], &self.tables.four[code], 1);
        let stamp = self.walk.next_stamp();
        self.new_fifths([v, a, b, c], code, stamp);
        self.candidate_fifths([v, a, b, c], code, stamp, rest);
    }

    /// Adds the fifth vertices that only the fourth touches, and stamps all that it touches.
    fn new_fifths(&mut self, members: [u32; 4], code: usize, stamp: u32) {
        let orbits = &self.tables.five[code][1 << 3];
        let touches = self.walk.touches.as_slice();
        let touches_fourth = self.walk.touches_fourth.as_mut_slice();
        let mut rows = self.rows.lend();
        let mut new = 0;
        for &d in self.near.neighbours(members[3]) {
            let is_new = u32::from(touches[d as usize] == 0);
            touches_fourth[d as usize] = stamp;
            rows.add(d, orbits[4], is_new);
            new += is_new;
        }
        self.add(members, orbits, new);
    }

    /// Adds the fifth vertices that are candidates since an earlier level.
    fn candidate_fifths(&mut self, members: [u32; 4], code: usize, stamp: u32, rest: usize) {
        let by_mask = &self.tables.five[code];
        let touches = self.walk.touches.as_slice();
        let touches_fourth = self.walk.touches_fourth.as_slice();
        let mut rows = self.rows.lend();
        for &d in &self.walk.candidates[rest..] {
            let fourth = u8::from(touches_fourth[d as usize] == stamp);
            let mask = touches[d as usize] & 7 | fourth << 3;
            let orbits = &by_mask[usize::from(mask)];
            for (member, &orbit) in members.iter().zip(orbits) {
                rows.add(*member, orbit, 1);
            }
            rows.add(d, orbits[4], 1);
        }
    }

    fn add<const K: usize>(&mut self, members: [u32; K], orbits: &[u8], amount: u32) {
        for (member, &orbit) in members.iter().zip(orbits) {
            self.rows.add(*member, orbit, amount);
        }
    }

    /// Puts `x` at position `P`; returns how many candidates there were before.
    fn enter<const P: u8>(&mut self, x: u32) -> usize {
        let before = self.walk.candidates.len();
        for &u in self.near.neighbours(x) {
            let mask = &mut self.walk.touches[u as usize];
            if *mask == 0 {
                self.walk.candidates.push(u);
            }
            *mask |= 1 << P;
        }
        before
    }

    /// Takes `x` back from position `P`, with the candidates that it brought.
    fn leave<const P: u8>(&mut self, x: u32, before: usize) {
        for &u in self.near.neighbours(x) {
            self.walk.touches[u as usize] &= !(1 << P);
        }
        self.walk.candidates.truncate(before);
    }
}

#[cfg(test)]
mod tests {
    use super::super::rows::PrivateRows;
    use super::super::table::SharedTable;
    use super::*;
    use crate::{Counts, make};

    fn counted(stamp: u32) -> Counts<u32> {
        let graph = make::delaunay(60, 2).unwrap();
        let mut counts = Counts::new(60);
        let table = SharedTable::new(&mut counts);
        let (mut near, mut private) = (Neighbourhood::default(), PrivateRows::new());
        let mut walk = Walk { stamp, ..Walk::default() };
        assert!(near.fill(&graph, 0..60));
        for root in 0..60 {
            near.remove_root(root);
            let rows = Rows::new(&mut private, &near, &table);
            walk.subgraphs_of(root, 0..near.neighbours(root).len(), rows);
        }
        private.flush(&near, &table);
        assert_eq!(table.finish(), Ok(()));
        counts
    }

    #[test]
    fn stamps_that_run_out_start_again() {
        assert_eq!(counted(u32::MAX - 300), counted(0));
    }
}
