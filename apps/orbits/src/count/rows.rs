//! Where a walk puts its counts: in rows of its own for the members nearest to the root,
//! which are those found first, and in the shared table for any others.
//!
//! The innermost loop thus touches no memory of other threads, unless a neighbourhood is
//! too large for the cache; and even then a hub or a root, which many subgraphs have in
//! common, is near enough to have a row of its own.

use super::neighbourhood::Neighbourhood;
use super::table::SharedTable;
use super::{Counter, ORBITS};

/// The members that have a private row: all rows together are about a megabyte, which is
/// what the second-level cache of a core holds.
pub(super) const MAX_MEMBERS: usize = 2048;

/// Number of rows by which a row of the table is called into the cache ahead of its turn.
const ROWS_AHEAD: usize = 3;

/// Rows of one thread, by member; wide enough never to overflow.
pub(super) struct PrivateRows {
    counters: Vec<u64>,
}

impl PrivateRows {
    pub fn new() -> Self {
        Self { counters: vec![0; MAX_MEMBERS * ORBITS] }
    }

    /// Moves the counts into the shared table, which leaves these rows zero.
    pub fn flush<T: Counter>(&mut self, near: &Neighbourhood, table: &SharedTable<T>) {
        let vertices = near.vertices();
        let rows = self.counters.chunks_exact_mut(ORBITS);
        for (member, (&vertex, row)) in vertices.iter().zip(rows).enumerate() {
            if let Some(&soon) = vertices.get(member + ROWS_AHEAD) {
                table.prefetch(soon);
            }
            flush_row(row, vertex, table);
        }
    }
}

fn flush_row<T: Counter>(row: &mut [u64], vertex: u32, table: &SharedTable<T>) {
    // Most counters of a sparse graph are zero: look at several at once.
    const TOGETHER: usize = 8;
    for (part, counters) in row.chunks_mut(TOGETHER).enumerate() {
        if counters.iter().fold(0, |any, &counter| any | counter) == 0 {
            continue;
        }
        for (i, counter) in counters.iter_mut().enumerate() {
            if *counter != 0 {
                table.add(vertex, TOGETHER * part + i, *counter);
                *counter = 0;
            }
        }
    }
}

/// Takes the counts of a walk through a neighbourhood.
pub(super) struct Rows<'a, T: Counter> {
    private: &'a mut [u64],
    pub near: &'a Neighbourhood,
    table: &'a SharedTable<'a, T>,
}

impl<'a, T: Counter> Rows<'a, T> {
    pub fn new(
        private: &'a mut PrivateRows,
        near: &'a Neighbourhood,
        table: &'a SharedTable<'a, T>,
    ) -> Self {
        Self { private: &mut private.counters, near, table }
    }

    /// The same rows for the time of a loop, whose compiler then knows that adding to them
    /// does not move them.
    #[inline]
    pub fn lend(&mut self) -> Rows<'_, T> {
        Rows { private: self.private, near: self.near, table: self.table }
    }

    /// Adds `amount` to the counter of a member of the neighbourhood.
    #[inline]
    pub fn add(&mut self, member: u32, orbit: u8, amount: u32) {
        let index = member as usize * ORBITS + usize::from(orbit);
        match self.private.get_mut(index) {
            Some(counter) => *counter += u64::from(amount),
            None => self.add_to_table(member, orbit, amount),
        }
    }

    #[cold]
    fn add_to_table(&self, member: u32, orbit: u8, amount: u32) {
        if amount > 0 {
            let vertex = self.near.vertices()[member as usize];
            self.table.add(vertex, usize::from(orbit), amount.into());
        }
    }
}
