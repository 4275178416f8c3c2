//! The seat of every process: pure, and the same on all of them.
//!
//! A crew has seats 0 to n - 1. A process that has a seat keeps it if the vacant ones can be filled by spares, the
//! first spare taking the first vacant seat. If there are too few spares, those that are left move together, in the
//! order of their seats.
//!
//! Law: the seats of the result are 0 to k - 1, each once, where k is the least of the seats and the processes; no two
//! processes that had seats change their order.

use std::collections::BTreeSet;

/// The seats of processes in a crew of at most `size`; those that have none so far are spares. `None`: it stays a spare.
pub(super) fn assign(seats: &[Option<u32>], size: u32) -> Vec<Option<u32>> {
    let taken: BTreeSet<u32> = seats.iter().flatten().copied().collect();
    let mut vacant = (0..size).filter(|seat| !taken.contains(seat));
    let filled = seats.iter().map(|seat| seat.or_else(|| vacant.next()));
    let filled: Vec<Option<u32>> = filled.collect();
    let order: BTreeSet<u32> = filled.iter().flatten().copied().collect();
    let moved = |seat: u32| order.range(..seat).count() as u32;
    filled.into_iter().map(|seat| seat.map(moved)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn spares_take_vacant_seats_and_the_others_move_together() {
        // Seat 1 is vacant and there is a spare.
        assert_eq!(assign(&[Some(0), Some(2), None], 3), [Some(0), Some(2), Some(1)]);
        // Two are vacant, and one spare is there.
        assert_eq!(assign(&[Some(1), Some(3), None], 4), [Some(1), Some(2), Some(0)]);
        assert_eq!(assign(&[Some(0), None, None], 1), [Some(0), None, None]);
    }

    proptest! {
        #[test]
        fn seats_are_consecutive_and_keep_their_order(
            size in 1u32..12, dead in prop::collection::btree_set(0u32..12, 0..12), spares in 0usize..5,
        ) {
            let mut seats: Vec<Option<u32>> = (0..size).filter(|seat| !dead.contains(seat)).map(Some).collect();
            let kept = seats.len();
            // Spares may stand anywhere among the others.
            (0..spares).for_each(|at| seats.insert((at * 3).min(seats.len()), None));
            let assigned = assign(&seats, size);
            let mut all: Vec<u32> = assigned.iter().flatten().copied().collect();
            let old: Vec<(u32, u32)> = seats.iter().zip(&assigned).filter_map(|(old, new)| old.zip(*new)).collect();
            prop_assert_eq!(old.len(), kept);
            prop_assert!(old.windows(2).all(|pair| pair[0].1 < pair[1].1));
            if kept + spares >= size as usize {
                prop_assert!(old.iter().all(|(old, new)| old == new));
            }
            all.sort_unstable();
            let expected: Vec<u32> = (0..(kept + spares).min(size as usize) as u32).collect();
            prop_assert_eq!(all, expected);
        }
    }
}
