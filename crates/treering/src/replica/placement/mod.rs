//! Placement of replicas: which ranks hold which ranges of blocks. Pure arithmetic on original ranks.
//!
//! Blocks `0..n` are grouped into ranges of s blocks. A seeded permutation spreads the ranges of one submitter over many
//! ranks; the permuted index y of a range gives its slot ⌊y·p / m⌋ of p (m ranges), and the slot its r holders
//! (see `layers`). With r a divisor of p and no failure domains this is the placement of ReStore, section IV-B
//! (Hübner et al., 2022): L(x, k) = ⌊π(x)·p / m⌋ + k·p/r mod p.
//!
//! Laws: a range has min(r, p) distinct holders. They are in different failure domains if there are r domains, else on
//! different nodes if there are r nodes. A rank of a layer of q ranks and k copies holds k·⌊m/q⌋ to k·⌈m/q⌉ ranges; there
//! is one layer (q = p, k = r) unless a domain (node) has more than p/r ranks.
//!
//! **Caution**: separation comes before balance. With two domains of 1,000 ranks and 1 rank, and r = 2, the lone rank
//! holds a copy of everything; [`ReplicaPlacement::most_ranges`] reports it.

mod layers;
mod seating;
#[cfg(test)]
mod tests;

use crate::error::{Error, Result};
use crate::replica::permutation::{MOST_PERMUTED, Permutation};
use crate::replica::topology::{FailureUnit, OriginalRank, Topology};
use layers::CopyLayer;
use seating::{Seats, seat, sizes};
use std::ops::Range;

/// The index of a range of blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RangeId(pub u64);

/// The place of a range's first copy.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum FirstCopy {
    /// Where the permutation places it.
    #[default]
    Permuted,
    /// On the rank that submits the range's first block; the others stay where the permutation places them. Rank q
    /// submits the blocks `starts[q]..starts[q + 1]`.
    ///
    /// **Caution**: many more sets of r ranks hold all copies of something, so that loss is more likely.
    Submitter {
        /// The first block of every rank, and the number of blocks at the end.
        starts: Vec<u64>,
    },
}

/// Parameters of a placement, apart from the ranks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplicaLayout {
    /// The number of blocks.
    pub blocks: u64,
    /// The number of blocks in a range.
    pub range_blocks: u64,
    /// The number of copies of every range, at most one of them on the submitter.
    pub copies: u32,
    /// Seed of the permutation. `None`: consecutive ranges stay together.
    pub seed: Option<u64>,
    /// Place of the first copy. Default: permuted.
    pub first_copy: FirstCopy,
}

/// Requested blocks of one range.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RangePart {
    /// The range.
    pub range: RangeId,
    /// The blocks, all of this range.
    pub blocks: Range<u64>,
}

/// Units that are dealt to groups in turn; every group holds data of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnitGroups {
    /// The number of units.
    pub units: u32,
    /// The number of groups.
    pub groups: u32,
    /// The number of copies: data is lost with this many cyclically consecutive members of a group.
    pub copies: u32,
}

/// The holders of every range.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplicaPlacement {
    layout: ReplicaLayout,
    topology: Topology,
    /// Holders of a range are in different units of this kind.
    separate: FailureUnit,
    ranges: u64,
    permutation: Permutation,
    layers: Vec<CopyLayer>,
    /// `None`: seat x is rank x.
    seats: Option<Seats>,
}

impl ReplicaPlacement {
    /// Places the ranges of a layout on ranks.
    pub fn new(layout: ReplicaLayout, topology: Topology) -> Result<Self> {
        check(&layout, topology.ranks())?;
        let copies = layout.copies.min(topology.ranks());
        let separate = topology.separable(copies);
        let ranges = layout.blocks.div_ceil(layout.range_blocks);
        let permutation = Permutation::new(ranges, layout.seed.unwrap_or(0))?;
        let (layers, seats) = match topology.even_blocks() {
            Some(node) => (vec![CopyLayer::new(0, topology.ranks(), copies, Some(node))], None),
            None => seat(&topology, separate, copies),
        };
        Ok(ReplicaPlacement { layout, topology, separate, ranges, permutation, layers, seats })
    }

    /// The number of ranges.
    pub fn ranges(&self) -> u64 {
        self.ranges
    }

    /// The number of copies of every range: as many as asked for, but no more than ranks.
    pub fn copies(&self) -> u32 {
        self.layout.copies.min(self.topology.ranks())
    }

    /// The parameters.
    pub fn layout(&self) -> &ReplicaLayout {
        &self.layout
    }

    /// Nodes and domains of the ranks.
    pub fn topology(&self) -> &Topology {
        &self.topology
    }

    #[cfg(test)]
    /// The kind of unit that never holds two copies of a range.
    pub fn separate(&self) -> FailureUnit {
        self.separate
    }

    /// The blocks of a range; none if there is no such range.
    pub fn blocks_of(&self, range: RangeId) -> Range<u64> {
        let start = range.0.saturating_mul(self.layout.range_blocks).min(self.layout.blocks);
        start..start.saturating_add(self.layout.range_blocks).min(self.layout.blocks)
    }

    /// The rank that submits the first block of a range, if shares are known.
    pub fn submitter(&self, range: RangeId) -> Option<OriginalRank> {
        match &self.layout.first_copy {
            FirstCopy::Submitter { starts } if range.0 < self.ranges => {
                let block = range.0 * self.layout.range_blocks;
                let behind = starts.partition_point(|start| *start <= block);
                Some(OriginalRank(behind.saturating_sub(1) as u32))
            }
            _ => None,
        }
    }

    /// The holders of a range, the first copy first; none if there is no such range.
    pub fn holders(&self, range: RangeId) -> Vec<OriginalRank> {
        let mut holders = Vec::with_capacity(self.copies() as usize);
        self.holders_into(range, &mut holders);
        holders
    }

    /// The holders of a range in a vector that is used again.
    #[inline]
    pub fn holders_into(&self, range: RangeId, holders: &mut Vec<OriginalRank>) {
        holders.clear();
        if range.0 >= self.ranges {
            return;
        }
        self.holders_at(self.permuted(range), holders);
        if let Some(submitter) = self.submitter(range) {
            self.replace_one(submitter, holders);
        }
    }

    /// Puts the submitter first and leaves out the holder of its unit, or else the first one.
    fn replace_one(&self, submitter: OriginalRank, holders: &mut [OriginalRank]) {
        let unit = |rank| self.topology.unit_of(self.separate, rank);
        let same = holders.iter().position(|holder| *holder == submitter);
        let near = || holders.iter().position(|holder| unit(*holder) == unit(submitter));
        let out = same.or_else(near).unwrap_or(0);
        holders[..=out].rotate_right(1);
        holders[0] = submitter;
    }

    /// The holders of the permuted range `y`, behind those in the vector.
    #[inline]
    fn holders_at(&self, y: u64, holders: &mut Vec<OriginalRank>) {
        for layer in &self.layers {
            let seats = layer.seats_of_slot(layer.slot(y, self.ranges));
            holders.extend(seats.map(|seat| self.rank_at(layer.first + seat)));
        }
    }

    /// The ranges that a rank holds, in no particular order, without a look at other ranges.
    pub fn ranges_of(&self, rank: OriginalRank) -> impl Iterator<Item = RangeId> + '_ {
        let placed = self.slots_of(rank).flat_map(|ys| ys.map(|y| self.unpermuted(y)));
        let own = self.submitted_by(rank);
        let submitters = matches!(self.layout.first_copy, FirstCopy::Submitter { .. });
        let (range_ids, mut holders) = (own.clone(), Vec::new());
        let stays = move |range: &RangeId| {
            if !submitters {
                return true;
            }
            self.holders_into(*range, &mut holders);
            !range_ids.contains(&range.0) && holders.contains(&rank)
        };
        own.map(RangeId).chain(placed.filter(stays))
    }

    /// The ranges whose first copy is kept on the rank because it submits them.
    fn submitted_by(&self, rank: OriginalRank) -> Range<u64> {
        let (FirstCopy::Submitter { starts }, at) = (&self.layout.first_copy, rank.0 as usize)
        else {
            return 0..0;
        };
        let range_at =
            |at| starts.get(at).map_or(0, |start: &u64| start.div_ceil(self.layout.range_blocks));
        range_at(at)..range_at(at + 1)
    }

    /// The permuted ranges that are placed on a rank, slot by slot.
    fn slots_of(&self, rank: OriginalRank) -> impl Iterator<Item = Range<u64>> + '_ {
        let seat = self.seat_of(rank);
        let layer = self
            .layers
            .iter()
            .find(|layer| (layer.first..layer.first + layer.seats).contains(&seat));
        let layer = layer.filter(|_| rank.0 < self.topology.ranks());
        layer.into_iter().flat_map(move |layer| {
            let slots = layer.slots_of_seat(seat - layer.first);
            slots.map(|slot| layer.ranges_of_slot(slot, self.ranges))
        })
    }

    /// Whether all holders of some range that this rank holds satisfy `lost`. Sets of holders are looked at once, not
    /// once per range.
    pub fn loses_any(&self, rank: OriginalRank, lost: impl Fn(OriginalRank) -> bool) -> bool {
        if rank.0 >= self.topology.ranks() {
            return false;
        }
        let submitters = self.layout.first_copy != FirstCopy::Permuted;
        match &self.layers[..] {
            [layer] if !submitters && self.ranges >= u64::from(layer.seats) => {
                let seat = self.seat_of(rank);
                // All slots of a group without additional members have the same holders.
                let slots = if layer.members(seat) == layer.copies { 1 } else { usize::MAX };
                let gone = |slot| layer.seats_of_slot(slot).all(|seat| lost(self.rank_at(seat)));
                layer.slots_of_seat(seat).take(slots).any(gone)
            }
            _ if submitters => {
                self.ranges_of(rank).any(|range| self.holders(range).into_iter().all(&lost))
            }
            _ => self.loses_any_slot(rank, lost),
        }
    }

    /// The same where layers have different slots, or not every slot has a range.
    fn loses_any_slot(&self, rank: OriginalRank, lost: impl Fn(OriginalRank) -> bool) -> bool {
        let mut holders = Vec::with_capacity(self.copies() as usize);
        self.slots_of(rank).any(|ys| {
            let mut y = ys.start;
            while y < ys.end {
                holders.clear();
                self.holders_at(y, &mut holders);
                if holders.iter().all(|holder| lost(*holder)) {
                    return true;
                }
                let ends = self
                    .layers
                    .iter()
                    .map(|l| l.ranges_of_slot(l.slot(y, self.ranges), self.ranges).end);
                y = ends.min().unwrap_or(ys.end);
            }
            false
        })
    }

    /// The number of groups of units with equal contents and the number of units, if whole units of one size are dealt
    /// to groups: unit u is in group u mod groups, and the copies of a range are on consecutive members of a group.
    /// `None` if sets of holders overlap in another way.
    pub fn unit_groups(&self, unit: FailureUnit) -> Option<UnitGroups> {
        let [layer] = &self.layers[..] else { return None };
        let even = || {
            let sizes = sizes(&self.topology, unit, &mut (0..self.topology.ranks()));
            sizes.first().copied().filter(|first| sizes.iter().all(|size| size == first))
        };
        let size = match unit {
            FailureUnit::Rank => 1,
            _ => self.topology.even_blocks().or_else(even)?,
        };
        let permuted =
            self.layout.first_copy == FirstCopy::Permuted && self.ranges >= u64::from(layer.seats);
        (permuted && layer.groups.is_multiple_of(size)).then(|| UnitGroups {
            units: layer.seats / size,
            groups: layer.groups / size,
            copies: layer.copies,
        })
    }

    /// The largest number of ranges that a rank holds by the permutation; ranges that it submits itself may add to it.
    pub fn most_ranges(&self) -> u64 {
        let most = |layer: &CopyLayer| {
            u64::from(layer.copies).saturating_mul(self.ranges.div_ceil(u64::from(layer.seats)))
        };
        self.layers.iter().map(most).max().unwrap_or(0)
    }

    /// The parts of ranges that requested blocks consist of, in the order of the requests.
    pub fn parts(&self, requests: &[Range<u64>]) -> Result<Vec<RangePart>> {
        let blocks = self.layout.blocks;
        if let Some(bad) = requests.iter().find(|r| r.start > r.end || r.end > blocks) {
            let Range { start, end } = bad;
            return Err(Error::usage(format!(
                "blocks {start}..{end} were never submitted: expected a part of 0..{blocks}"
            )));
        }
        let size = self.layout.range_blocks;
        let cut = |request: &Range<u64>| {
            let Range { start, end } = *request;
            let ids = if start == end { 0..0 } else { start / size..end.div_ceil(size) };
            ids.map(move |id| {
                let whole = self.blocks_of(RangeId(id));
                RangePart { range: RangeId(id), blocks: whole.start.max(start)..whole.end.min(end) }
            })
        };
        Ok(requests.iter().flat_map(cut).collect())
    }

    #[inline]
    fn permuted(&self, range: RangeId) -> u64 {
        if self.layout.seed.is_some() { self.permutation.apply(range.0) } else { range.0 }
    }

    #[inline]
    fn unpermuted(&self, y: u64) -> RangeId {
        RangeId(if self.layout.seed.is_some() { self.permutation.invert(y) } else { y })
    }

    #[inline]
    fn rank_at(&self, seat: u32) -> OriginalRank {
        OriginalRank(self.seats.as_ref().map_or(seat, |seats| seats.rank_at[seat as usize]))
    }

    #[inline]
    fn seat_of(&self, rank: OriginalRank) -> u32 {
        let listed = |seats: &Seats| seats.seat_of.get(rank.0 as usize).copied().unwrap_or(0);
        self.seats.as_ref().map_or(rank.0.min(self.topology.ranks() - 1), listed)
    }
}

fn check(layout: &ReplicaLayout, ranks: u32) -> Result<()> {
    let ReplicaLayout { blocks, range_blocks, copies, first_copy, .. } = layout;
    if *copies == 0 || *range_blocks == 0 || *blocks > MOST_PERMUTED {
        return Err(Error::usage(format!(
            "invalid replicas: {copies} copies of {blocks} blocks in ranges of {range_blocks}; \
             expected 1 or more copies, 1 or more blocks in a range, at most 2^63 blocks"
        )));
    }
    let FirstCopy::Submitter { starts } = first_copy else { return Ok(()) };
    let whole = starts.first() == Some(&0) && starts.last() == Some(blocks) && starts.is_sorted();
    if starts.len() as u64 != u64::from(ranks) + 1 || !whole {
        return Err(Error::usage(format!(
            "shares of {} ranks do not cover blocks 0..{blocks} of {ranks} ranks one after another",
            starts.len().saturating_sub(1)
        )));
    }
    Ok(())
}
