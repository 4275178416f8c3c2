//! Variables whose types differ only in their width, compared by value.
//!
//! The values of the narrower type are widened as they are read. Every value of it is one of the wider type, so nothing
//! is rounded, and the answer is that of the bound in the wider type. Trees of the narrower values do not serve.

use super::partners::PartnerNames;
use super::side::SideEntry;
use crate::array::{DType, Rank};
use crate::source::{Widened, common_type, is_integer};
use crate::store::Blob;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

/// Widens variables that the other side has in a wider type; a note for each name. Without `names`, the only variables of
/// both sides are partners. With `integers`, these become real
/// numbers, to which bounds apply.
pub(super) fn widen<'e>(
    a: &mut [SideEntry<'e>],
    b: &mut [SideEntry<'e>],
    names: Option<PartnerNames>,
    integers: bool,
) -> BTreeSet<String> {
    let types = |side: &[SideEntry]| -> HashMap<(Option<Rank>, String), DType> {
        let of = |e: &SideEntry| (key(e, names), e.description.dtype);
        side.iter().filter(|e| may_be_widened(e)).map(of).collect()
    };
    let (of_a, of_b) = (types(a), types(b));
    let mut notes = BTreeSet::new();
    // Both sides decide by the types as they were.
    for (side, own, others) in [(a, &of_a, &of_b), (b, &of_b, &of_a)] {
        for entry in side.iter_mut().filter(|entry| may_be_widened(entry)) {
            let key = key(entry, names);
            let (Some(p), Some(q)) = (own.get(&key), others.get(&key)) else { continue };
            if integers && is_integer(*p) && is_integer(*q) {
                entry.widen(DType::F64);
                continue;
            }
            let Some(wide) = common_type(*p, *q) else { continue };
            let (first, second) = (of_a[&key], of_b[&key]);
            notes.insert(format!(
                "variable {:?} is {first} in the first and {second} in the second: compared by value",
                entry.description.name
            ));
            entry.widen(wide);
        }
    }
    notes
}

/// Whether type and values are known, or the reason why these are not. Trees alone cannot be widened.
fn may_be_widened(entry: &SideEntry) -> bool {
    let known = entry.is_described() && (entry.values.is_some() || entry.unread.is_some());
    // Digests are no numbers.
    known && entry.meaning.kind.is_none()
}

/// Name and rank by which variables are compared; boxes of one array are alike on all ranks, and the only variables of
/// two sides whatever their names are.
fn key(entry: &SideEntry, names: Option<PartnerNames>) -> (Option<Rank>, String) {
    let Some(names) = names else { return (None, String::new()) };
    let rank = entry.description.global_box().is_none().then_some(entry.rank);
    (rank, names.name(entry).into_owned())
}

impl<'a> SideEntry<'a> {
    /// Converts the variable to a wider type.
    fn widen(&mut self, to: DType) {
        let from = self.description.dtype;
        if from == to {
            return;
        }
        self.description.dtype = to;
        self.trees.clear();
        let widened = |inner| -> Arc<dyn Blob + 'a> { Arc::new(Widened { inner, from, to }) };
        self.values = self.values.take().map(widened);
    }
}
