//! Places, regions, and the joining of neighbours.

/// A physical place: a byte offset into the stored (not yet encoded) bytes of a pack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Location {
    /// The position of the pack in its epoch.
    pub pack: u32,
    /// The offset in the pack's bytes.
    pub offset: u64,
}

/// The most packs in one epoch.
pub(crate) const MAX_PACKS: u32 = 1 << 20;
const OFFSET_BITS: u32 = 44;
/// A packed place that stands for none.
pub(crate) const NOWHERE: u64 = u64::MAX;

impl Location {
    /// Both numbers in one word, or `None` when they do not fit (16 TiB in one pack).
    pub(crate) fn packed(self) -> Option<u64> {
        let fits = self.pack < MAX_PACKS - 1 && self.offset >> OFFSET_BITS == 0;
        fits.then_some(u64::from(self.pack) << OFFSET_BITS | self.offset)
    }

    pub(crate) fn from_packed(packed: u64) -> Self {
        Location { pack: (packed >> OFFSET_BITS) as u32, offset: packed & ((1 << OFFSET_BITS) - 1) }
    }
}

/// Neighbouring chunks whose bytes are neighbours in a pack, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Region {
    /// The first chunk.
    pub start: u64,
    /// Number of chunks.
    pub count: u64,
    /// Location of the first chunk's bytes.
    pub place: Location,
    /// After how many chunks the bytes repeat; 0 when they do not.
    pub period: u64,
    /// Whether the bytes are new in this checkpoint.
    pub fresh: bool,
}

// SAFETY: zeros are numbers, and false.
unsafe impl bytemuck::Zeroable for Region {}

impl Region {
    /// The chunk after the last.
    pub fn end(&self) -> u64 {
        self.start + self.count
    }

    /// Location of the bytes of chunk `start + at`.
    pub(crate) fn place_of(&self, at: u64, chunk: u64) -> Location {
        let at = at.checked_rem(self.period).unwrap_or(at);
        Location { pack: self.place.pack, offset: self.place.offset + at * chunk }
    }
}

/// Collects chunks in ascending order and joins neighbours.
#[derive(Debug)]
pub struct Regions {
    list: Vec<Region>,
    chunk: u64,
    join: bool,
}

impl Regions {
    /// For chunks of `chunk` bytes; with `join` false every chunk stays a region of its own.
    pub fn new(chunk: usize, join: bool) -> Self {
        Regions { list: Vec::new(), chunk: chunk as u64, join }
    }

    /// Adds chunks `start..start + count` whose bytes lie one after another from `place`.
    pub fn push(&mut self, start: u64, count: u64, place: Location, fresh: bool) {
        if !self.join {
            for at in 0..count {
                let offset = place.offset + at * self.chunk;
                self.list.push(Region {
                    start: start + at,
                    count: 1,
                    place: Location { offset, ..place },
                    period: 0,
                    fresh,
                });
            }
            return;
        }
        if !self.joined(start, count, place, fresh) {
            self.list.push(Region { start, count, place, period: 0, fresh });
        }
    }

    /// Extends the last region, if it can be.
    fn joined(&mut self, start: u64, count: u64, place: Location, fresh: bool) -> bool {
        let Some(last) = self.list.last_mut() else {
            return false;
        };
        if last.end() != start || last.fresh != fresh || last.place.pack != place.pack {
            return false;
        }
        if last.place_of(last.count, self.chunk) == place && (last.period == 0 || count == 1) {
            last.count += count;
            return true;
        }
        if !fresh && last.period == 0 && last.place == place && count == 1 {
            last.period = last.count;
            last.count += 1;
            return true;
        }
        false
    }

    /// The regions, in ascending order.
    pub fn into_vec(self) -> Vec<Region> {
        self.list
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn collect(places: &[(u64, u64, bool)]) -> Vec<Region> {
        let mut regions = Regions::new(10, true);
        for &(start, offset, fresh) in places {
            regions.push(start, 1, Location { pack: 0, offset }, fresh);
        }
        regions.into_vec()
    }

    #[test]
    fn neighbours_join_and_repeats_become_periods() {
        let zeros = collect(&[(0, 0, true), (1, 0, false), (2, 0, false), (3, 0, false)]);
        assert_eq!(zeros.len(), 2);
        assert_eq!((zeros[1].count, zeros[1].period), (3, 1));
        let pattern = collect(&[(5, 10, false), (6, 20, false), (7, 10, false), (8, 20, false)]);
        assert_eq!(pattern.len(), 1);
        assert_eq!((pattern[0].count, pattern[0].period), (4, 2));
        for at in 0..4 {
            assert_eq!(pattern[0].place_of(at, 10).offset, 10 + 10 * (at % 2));
        }
        assert_eq!(collect(&[(0, 0, true), (2, 10, true)]).len(), 2);
        assert_eq!(collect(&[(0, 0, false), (1, 10, true)]).len(), 2);
    }

    #[test]
    fn places_pack_into_a_word() {
        let place = Location { pack: 77, offset: (1 << 44) - 1 };
        assert_eq!(Location::from_packed(place.packed().unwrap()), place);
        assert_eq!(Location { pack: 0, offset: 1 << 44 }.packed(), None);
    }
}
