//! The part of the graph that the subgraphs of a run of roots can reach.
//!
//! A subgraph of 5 vertices reaches at most 4 edges away from its root, through vertices
//! that are larger than the root. A breadth-first search from all roots of the run, blind
//! to vertices before the run, finds these vertices and numbers them as it finds them: the
//! roots come first, in order. The adjacency of the vertices up to 3 edges away is copied
//! with the new numbers; those 4 edges away can only be the last of a subgraph, and whom
//! they touch is known from the other side.
//!
//! As a row lists its roots first and ascending, a root whose turn has come is removed from
//! the neighbourhood by moving the begin of its neighbours' rows on by one. The rest is
//! then exactly the vertices larger than the root, and the walk need not compare numbers.

use std::ops::Range;

use super::rows::MAX_MEMBERS;
use crate::Graph;

/// Largest distance from its root in a subgraph of 5 vertices.
const REACH: usize = 4;

/// A small renumbered copy of the surroundings of some roots.
#[derive(Default)]
pub(super) struct Neighbourhood {
    /// The vertex of the graph that each member stands for.
    vertices: Vec<u32>,
    rows: Vec<Range<usize>>,
    neighbours: Vec<u32>,
    members: MemberMap,
}

impl Neighbourhood {
    /// Fills the neighbourhood with the reach of `roots`; false, with the content
    /// unspecified, if several roots together reach more than [`MAX_MEMBERS`] vertices.
    pub fn fill(&mut self, graph: &Graph, roots: Range<u32>) -> bool {
        self.clear();
        for root in roots.clone() {
            self.member(root);
        }
        let mut level = 0..self.vertices.len();
        for _ in 0..REACH {
            for x in level.clone() {
                self.copy_row(graph, self.vertices[x], roots.start);
                if roots.len() > 1 && self.vertices.len() > MAX_MEMBERS {
                    return false;
                }
            }
            level = level.end..self.vertices.len();
        }
        self.rows.resize(self.vertices.len(), 0..0);
        true
    }

    fn clear(&mut self) {
        self.vertices.clear();
        self.rows.clear();
        self.neighbours.clear();
        self.members.clear();
    }

    fn copy_row(&mut self, graph: &Graph, vertex: u32, first_root: u32) {
        let row = graph.neighbours(vertex);
        let begin = self.neighbours.len();
        for &u in &row[row.partition_point(|&u| u < first_root)..] {
            let member = self.member(u);
            self.neighbours.push(member);
        }
        self.rows.push(begin..self.neighbours.len());
    }

    fn member(&mut self, vertex: u32) -> u32 {
        let next = self.vertices.len() as u32;
        let member = self.members.get_or_insert(vertex, next);
        if member == next {
            self.vertices.push(vertex);
        }
        member
    }

    /// Takes the smallest root that is left out of the rows of its neighbours.
    pub fn remove_root(&mut self, root: u32) {
        for i in self.rows[root as usize].clone() {
            let neighbour = self.neighbours[i];
            self.rows[neighbour as usize].start += 1;
        }
    }

    /// The vertex of the graph that each member stands for, by member.
    pub fn vertices(&self) -> &[u32] {
        &self.vertices
    }

    /// The members that `member` touches, without the roots removed so far.
    #[inline]
    pub fn neighbours(&self, member: u32) -> &[u32] {
        let row = &self.rows[member as usize];
        &self.neighbours[row.start..row.end]
    }
}

/// A hash table from vertex to member; open addressing, at most half full.
#[derive(Default)]
struct MemberMap {
    slots: Vec<(u32, u32)>,
    /// Which slots are in use: once a hub has made the table large, a small run should not
    /// pay for clearing all of it.
    used: Vec<usize>,
}

/// No member has this number: a graph has at most `u32::MAX` vertices.
const FREE: u32 = u32::MAX;

impl MemberMap {
    fn clear(&mut self) {
        for at in self.used.drain(..) {
            self.slots[at].1 = FREE;
        }
    }

    fn get_or_insert(&mut self, vertex: u32, member: u32) -> u32 {
        if 2 * self.used.len() >= self.slots.len() {
            self.grow();
        }
        let at = self.slot(vertex);
        if self.slots[at].1 == FREE {
            self.slots[at] = (vertex, member);
            self.used.push(at);
        }
        self.slots[at].1
    }

    /// Where `vertex` is, or where it would be put.
    fn slot(&self, vertex: u32) -> usize {
        let mask = self.slots.len() - 1;
        // Fibonacci hashing: the high bits of the product are well mixed.
        let mixed = u64::from(vertex).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let mut at = (mixed >> 32) as usize & mask;
        while self.slots[at].1 != FREE && self.slots[at].0 != vertex {
            at = (at + 1) & mask;
        }
        at
    }

    fn grow(&mut self) {
        let larger = vec![(0, FREE); (2 * self.slots.len()).max(64)];
        let smaller = std::mem::replace(&mut self.slots, larger);
        for i in 0..self.used.len() {
            let (vertex, member) = smaller[self.used[i]];
            self.used[i] = self.slot(vertex);
            self.slots[self.used[i]] = (vertex, member);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reached(graph: &Graph, roots: Range<u32>) -> Vec<u32> {
        let mut near = Neighbourhood::default();
        assert!(near.fill(graph, roots));
        near.vertices().to_vec()
    }

    #[test]
    fn the_reach_is_four_edges_through_larger_vertices() {
        let path = Graph::from_edges(9, (0..8).map(|v| (v, v + 1))).unwrap();
        assert_eq!(reached(&path, 2..3), [2, 3, 4, 5, 6]);
        assert_eq!(reached(&path, 2..4), [2, 3, 4, 5, 6, 7]);
        let detour = Graph::from_edges(4, [(1, 0), (0, 2), (1, 3)]).unwrap();
        assert_eq!(reached(&detour, 1..2), [1, 3]);
    }

    #[test]
    fn a_removed_root_is_nobodys_neighbour() {
        let triangle = Graph::from_edges(3, [(0, 1), (1, 2), (0, 2)]).unwrap();
        let mut near = Neighbourhood::default();
        assert!(near.fill(&triangle, 0..2));
        near.remove_root(0);
        assert_eq!(near.neighbours(0), [1, 2]);
        assert_eq!(near.neighbours(1), [2]);
        near.remove_root(1);
        assert!(near.neighbours(2).is_empty());
    }

    #[test]
    fn only_several_roots_are_too_far_reaching() {
        let leaves = MAX_MEMBERS as u32 + 5;
        let star = Graph::from_edges(leaves + 1, (0..leaves).map(|v| (v, leaves))).unwrap();
        let mut near = Neighbourhood::default();
        assert!(!near.fill(&star, 0..2));
        assert!(near.fill(&star, 0..1));
        assert_eq!(near.vertices().len() as u32, leaves + 1);
    }
}
