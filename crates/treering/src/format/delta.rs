//! The regions of a delta, as compact as they get without an entropy coder.
//!
//! A region is the gap to the one before it, a head (its count and what follows), for a new region
//! whose bytes do not lie behind those of the new one before it how many bytes lie between, and for a
//! moved region the way from the end of the moved region before it. Counts and gaps are in chunks; the
//! way is in chunks too where it can be. Most regions take four to six bytes. The Basic method's
//! bitmap is the second form.

use super::bytes::{Reader, Writer};
use crate::error::{Error, Result};
use crate::lineage::{Location, Region};

const MOVED: u64 = 1;
const PERIODIC: u64 = 2;
const OTHER_PACK: u64 = 4;
const IN_BYTES: u64 = 8;
const HEAD_BITS: u32 = 4;

/// What the reading of regions is checked against.
#[derive(Clone, Copy)]
pub(super) struct RegionContext {
    /// The position of this pack in its epoch.
    pub(super) ordinal: u32,
    /// The chunk size.
    pub(super) chunk: u64,
    /// How many chunks the variable has.
    pub(super) chunks: u64,
    /// Where this variable's new bytes begin in the pack.
    pub(super) base: u64,
}

pub(super) fn write_regions(out: &mut Writer, regions: &[Region], frame: RegionContext) {
    out.int(regions.len() as u64);
    let (mut end, mut fresh) = (0, frame.base);
    let mut source = Location { pack: frame.ordinal, offset: frame.base };
    for region in regions {
        out.int(region.start - end);
        end = region.end();
        if region.fresh {
            let between = region.place.offset - fresh;
            out.int(region.count << HEAD_BITS | if between > 0 { IN_BYTES } else { 0 });
            if between > 0 {
                out.int(between);
            }
            fresh = after(region, frame.chunk).offset;
            continue;
        }
        let way = region.place.offset.wrapping_sub(source.offset) as i64;
        let mut head = region.count << HEAD_BITS | MOVED;
        head |= if region.period > 0 { PERIODIC } else { 0 };
        head |= if region.place.pack != source.pack { OTHER_PACK } else { 0 };
        head |= if way % frame.chunk as i64 != 0 { IN_BYTES } else { 0 };
        out.int(head);
        if region.period > 0 {
            out.int(region.period);
        }
        if head & OTHER_PACK != 0 {
            out.int(u64::from(region.place.pack));
        }
        let unit = if head & IN_BYTES != 0 { 1 } else { frame.chunk as i64 };
        out.signed(way / unit);
        source = after(region, frame.chunk);
    }
}

pub(super) fn read_regions(input: &mut Reader, frame: RegionContext) -> Result<Vec<Region>> {
    let wrong = || Error::damaged("corrupt delta: invalid region");
    let count = input.count()?;
    let mut regions = Vec::with_capacity(count);
    let mut end = 0u64;
    let mut fresh = frame.base;
    let mut source = Location { pack: frame.ordinal, offset: frame.base };
    for _ in 0..count {
        let start = end.checked_add(input.int()?).ok_or_else(wrong)?;
        let head = input.int()?;
        let count = head >> HEAD_BITS;
        end = start.checked_add(count).ok_or_else(wrong)?;
        if count == 0 || end > frame.chunks {
            return Err(wrong());
        }
        let mut region = Region {
            start,
            count,
            place: Location { pack: frame.ordinal, offset: fresh },
            period: 0,
            fresh: head & MOVED == 0,
        };
        if region.fresh {
            if head & IN_BYTES != 0 {
                region.place.offset = fresh.checked_add(input.int()?).ok_or_else(wrong)?;
            }
            let bytes = count.checked_mul(frame.chunk).ok_or_else(wrong)?;
            fresh = region.place.offset.checked_add(bytes).ok_or_else(wrong)?;
        } else {
            if head & PERIODIC != 0 {
                region.period = input.int()?;
            }
            region.place.pack = match head & OTHER_PACK {
                0 => source.pack,
                _ => input.u32()?,
            };
            let unit = if head & IN_BYTES != 0 { 1 } else { frame.chunk as i64 };
            let way = input.signed()?.checked_mul(unit).ok_or_else(wrong)?;
            let offset = source.offset.checked_add_signed(way).ok_or_else(wrong)?;
            region.place.offset = offset;
            let reach = count.checked_mul(frame.chunk).and_then(|b| offset.checked_add(b));
            if region.place.pack > frame.ordinal || region.period >= count || reach.is_none() {
                return Err(wrong());
            }
            source = after(&region, frame.chunk);
        }
        regions.push(region);
    }
    Ok(regions)
}

/// The place behind a region's bytes.
fn after(region: &Region, chunk: u64) -> Location {
    let distinct = if region.period > 0 { region.period } else { region.count };
    Location { pack: region.place.pack, offset: region.place.offset + distinct * chunk }
}

/// The bitmap of changed chunks; all regions must be new.
pub(super) fn write_bitmap(out: &mut Writer, regions: &[Region], chunks: u64) {
    let mut bits = vec![0u8; chunks.div_ceil(8) as usize];
    for at in regions.iter().flat_map(|r| r.start..r.end()) {
        bits[at as usize / 8] |= 1 << (at % 8);
    }
    out.raw(&bits);
}

pub(super) fn read_bitmap(input: &mut Reader, frame: RegionContext) -> Result<Vec<Region>> {
    let bits = match usize::try_from(frame.chunks.div_ceil(8)) {
        Ok(len) => input.raw(len)?,
        Err(_) => return Err(Error::damaged("a bitmap is larger than memory")),
    };
    let mut regions: Vec<Region> = Vec::new();
    let mut offset = frame.base;
    for at in (0..frame.chunks).filter(|at| bits[*at as usize / 8] & 1 << (at % 8) != 0) {
        match regions.last_mut() {
            Some(last) if last.end() == at => last.count += 1,
            _ => regions.push(Region {
                start: at,
                count: 1,
                place: Location { pack: frame.ordinal, offset },
                period: 0,
                fresh: true,
            }),
        }
        offset = offset
            .checked_add(frame.chunk)
            .ok_or_else(|| Error::damaged("a bitmap leads out of its pack"))?;
    }
    Ok(regions)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn regions() -> impl Strategy<Value = Vec<Region>> {
        let one = (0u64..1000, 1u64..500, 0u32..4, 0u64..1 << 43, 0u64..3, any::<bool>());
        proptest::collection::vec(one, 0..60).prop_map(|raw| {
            let (mut at, mut offset) = (0, 640);
            raw.into_iter()
                .map(|(gap, count, pack, source, period, fresh)| {
                    let start = at + gap;
                    at = start + count;
                    let mut region = Region {
                        start,
                        count,
                        place: Location { pack, offset: source },
                        period: if count > period { period } else { 0 },
                        fresh,
                    };
                    if fresh {
                        offset += if source % 3 == 0 { source % 1000 } else { 0 };
                        region.place = Location { pack: 3, offset };
                        region.period = 0;
                        offset += count * 64;
                    }
                    region
                })
                .collect()
        })
    }

    fn frame(chunks: u64) -> RegionContext {
        RegionContext { ordinal: 3, chunk: 64, chunks, base: 640 }
    }

    proptest! {
        #[test]
        fn regions_return(regions in regions()) {
            let chunks = regions.last().map_or(0, Region::end);
            let mut out = Writer::default();
            write_regions(&mut out, &regions, frame(chunks));
            let mut input = Reader::new(&out.0);
            prop_assert_eq!(read_regions(&mut input, frame(chunks)).unwrap(), regions);
            prop_assert!(input.end().is_ok());
        }

        #[test]
        fn junk_never_panics(junk in proptest::collection::vec(any::<u8>(), 0..200), chunks in any::<u64>()) {
            let _ = read_regions(&mut Reader::new(&junk), frame(chunks));
            let _ = read_bitmap(&mut Reader::new(&junk), frame(chunks));
        }

        #[test]
        fn bitmaps_return(mask in proptest::collection::vec(any::<bool>(), 0..300)) {
            let (mut regions, mut offset) = (Vec::<Region>::new(), 640);
            for (at, _) in mask.iter().enumerate().filter(|m| *m.1) {
                let place = Location { pack: 3, offset };
                offset += 64;
                match regions.last_mut() {
                    Some(last) if last.end() == at as u64 => last.count += 1,
                    _ => regions.push(Region { start: at as u64, count: 1, place, period: 0, fresh: true }),
                }
            }
            let frame = frame(mask.len() as u64);
            let mut out = Writer::default();
            write_bitmap(&mut out, &regions, frame.chunks);
            prop_assert_eq!(read_bitmap(&mut Reader::new(&out.0), frame).unwrap(), regions);
        }
    }
}
