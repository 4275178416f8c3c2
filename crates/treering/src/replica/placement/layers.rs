//! Layers: the ranks of a layer hold the same number of copies of every range.
//!
//! Ranks take seats in the order of their domains and nodes, so that a failure unit is a run of seats. A layer of q
//! seats that holds k copies deals its seats to G = ⌊q / k⌋ groups in turn: seat x is in group x mod G. Slot x is kept by
//! seat x and the k - 1 seats behind it in its group, cyclically. If k divides q, these are the seats x + i·q/k mod q of
//! the paper, and a group is a set of ranks with equal contents; otherwise some groups have a few members more.
//!
//! Laws: every seat keeps exactly k slots; two seats of one failure unit share a group only if the unit has more than G
//! seats. A unit that is larger than q / k therefore becomes a layer of its own with one copy of everything.

/// Consecutive seats that hold `copies` copies of every range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CopyLayer {
    pub(crate) first: u32,
    pub(crate) seats: u32,
    pub(crate) copies: u32,
    pub(crate) groups: u32,
}

impl CopyLayer {
    /// The layer of some seats. `even_nodes` is the number of seats per node if all nodes have the same number.
    pub(crate) fn new(first: u32, seats: u32, copies: u32, even_nodes: Option<u32>) -> Self {
        let plain = (seats / copies).max(1);
        let groups = even_nodes.and_then(|size| whole_nodes(seats, copies, size)).unwrap_or(plain);
        CopyLayer { first, seats, copies, groups }
    }

    /// The slot of permuted range `y` of `ranges`.
    #[inline]
    pub(crate) fn slot(&self, y: u64, ranges: u64) -> u32 {
        mul_div(y, u64::from(self.seats), ranges) as u32
    }

    /// The permuted ranges of a slot.
    #[inline]
    pub(crate) fn ranges_of_slot(&self, slot: u32, ranges: u64) -> std::ops::Range<u64> {
        let seats = u64::from(self.seats);
        let start = |slot: u32| match ranges.checked_mul(u64::from(slot)) {
            Some(product) => product.div_ceil(seats),
            None => (u128::from(slot) * u128::from(ranges)).div_ceil(u128::from(seats)) as u64,
        };
        start(slot)..start(slot + 1)
    }

    /// The number of members of the group of a seat or slot.
    #[inline]
    pub(crate) fn members(&self, seat: u32) -> u32 {
        (self.seats - seat % self.groups).div_ceil(self.groups)
    }

    /// The seats that keep a slot, relative to the layer.
    #[inline]
    pub(crate) fn seats_of_slot(self, slot: u32) -> impl Iterator<Item = u32> {
        let (column, mut row, rows) = (slot % self.groups, slot / self.groups, self.members(slot));
        (0..self.copies).map(move |_| {
            let seat = column + row * self.groups;
            row = if row + 1 == rows { 0 } else { row + 1 };
            seat
        })
    }

    /// The slots that a seat keeps; the first is its own.
    pub(crate) fn slots_of_seat(self, seat: u32) -> impl Iterator<Item = u32> {
        let (column, row, rows) = (seat % self.groups, seat / self.groups, self.members(seat));
        (0..self.copies).map(move |back| column + (row + rows - back) % rows * self.groups)
    }
}

/// The number of groups if whole nodes are dealt: where a node's seats are all in groups with the same nodes, fewer
/// sets of nodes hold all copies of something. `None` if this would not make them fewer.
fn whole_nodes(seats: u32, copies: u32, node: u32) -> Option<u32> {
    let nodes = seats / node;
    let (columns, left) = (nodes / copies, nodes % copies);
    let sets = u64::from(columns) + u64::from(left) * u64::from(copies);
    (columns > 0 && (left == 0 || sets < u64::from(nodes))).then_some(columns * node)
}

/// a · b / c, rounded down.
#[inline]
fn mul_div(a: u64, b: u64, c: u64) -> u64 {
    match a.checked_mul(b) {
        Some(product) => product / c,
        None => (u128::from(a) * u128::from(b) / u128::from(c)) as u64,
    }
}
