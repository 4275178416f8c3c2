//! Arrays that are in C's order on one side and in Fortran's on the other, compared index by index.
//!
//! The values of one side are read in the order of the other one. Trees follow the order of memory, so those of values
//! that are reordered do not serve.

use super::partners::PartnerNames;
use super::side::SideEntry;
use crate::array::{Order, Rank};
use crate::source::Reordered;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// Gives variables of the second side the order of their partners. Without `names`, the only variables of both sides are
/// partners.
pub(super) fn reorder(a: &mut [SideEntry], b: &mut [SideEntry], names: Option<PartnerNames>) {
    let name = |entry: &SideEntry| names.map(|names| names.name(entry).into_owned());
    let mut orders: HashMap<Option<String>, Vec<(Rank, Order)>> = HashMap::new();
    for entry in a.iter().filter(|entry| entry.unread.is_none()) {
        orders.entry(name(entry)).or_default().push((entry.rank, entry.description.order));
    }
    let mut reordered = HashSet::new();
    for entry in b {
        let Some(of_name) = orders.get(&name(entry)) else { continue };
        // Boxes of one array are alike on all ranks.
        let of_rank = of_name.iter().find(|(rank, _)| *rank == entry.rank).or(of_name.first());
        if of_rank.is_some_and(|(_, order)| entry.reorder(*order)) {
            reordered.insert(name(entry));
        }
    }
    // What is reordered is read from front to back.
    let partners = a.iter_mut().filter(|entry| reordered.contains(&name(entry)));
    partners.for_each(|entry| entry.chunk = None);
}

impl SideEntry<'_> {
    /// Presents the values in another order of memory, and returns whether they lie in other places now. Trees alone stay
    /// in theirs.
    pub(super) fn reorder(&mut self, order: Order) -> bool {
        let (from, shape) = (&self.description, &self.description.shape);
        if from.order == order {
            return false;
        }
        let (size, shape) = (from.dtype.size(), shape.clone());
        if shape.0.iter().filter(|extent| **extent > 1).count() < 2 {
            self.description.order = order;
            return false;
        }
        let (None, Some(values)) = (&self.unread, self.values.take()) else { return false };
        self.values = Some(Arc::new(Reordered::new(values, &shape, size, order)));
        self.description.order = order;
        self.trees.clear();
        self.chunk = None;
        true
    }
}
