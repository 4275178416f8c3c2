//! The regions of a delta, as compact as they get without an entropy coder.
//!
//! A region is the gap to the one before it, a head (its count and what follows), for a new region
//! whose bytes do not lie behind those of the new one before it how many bytes lie between, and for a
//! region of duplicates the way from the end of the one of duplicates before it. Counts and gaps are in chunks; the
//! way is in chunks too where it can be. Most regions take four to six bytes. Long lists are written in parts, each of
//! which can be read without those before it, so that all cores read them. The Basic method's bitmap is the second form.

use super::bytes::{Reader, Writer};
use crate::error::{Error, Result};
use crate::lineage::{Location, Region};
use crate::memory::zeroed;
use rayon::prelude::*;

const MOVED: u64 = 1;
const PERIODIC: u64 = 2;
const OTHER_PACK: u64 = 4;
const IN_BYTES: u64 = 8;
const HEAD_BITS: u32 = 4;

/// Context that regions are checked against when they are read.
#[derive(Clone, Copy)]
pub(super) struct RegionContext {
    /// The position of this pack in its epoch.
    pub(super) ordinal: u32,
    /// The chunk size.
    pub(super) chunk: u64,
    /// Number of chunks of the variable.
    pub(super) chunks: u64,
    /// Offset of this variable's new bytes in the pack.
    pub(super) base: u64,
}

/// Number of regions of a part of a long list.
const PART: usize = 1 << 16;

pub(super) fn write_regions(out: &mut Writer, regions: &[Region], frame: RegionContext) {
    out.int(regions.len() as u64);
    if regions.len() <= PART {
        return write_part(out, regions, frame);
    }
    let part = |regions: &[Region]| {
        let mut out = Writer::default();
        write_part(&mut out, regions, frame);
        out.0
    };
    let parts: Vec<Vec<u8>> = regions.par_chunks(PART).map(part).collect();
    parts.iter().for_each(|part| out.int(part.len() as u64));
    parts.iter().for_each(|part| out.raw(part));
}

fn write_part(out: &mut Writer, regions: &[Region], frame: RegionContext) {
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
    let count = input.count()?;
    let mut regions: Vec<Region> = zeroed(count as u64)?;
    if count <= PART {
        read_part(input, frame, &mut regions)?;
        return Ok(regions);
    }
    let lens = (0..count.div_ceil(PART)).map(|_| input.count()).collect::<Result<Vec<usize>>>()?;
    let parts = lens.iter().map(|len| input.raw(*len)).collect::<Result<Vec<&[u8]>>>()?;
    regions.par_chunks_mut(PART).zip(parts).try_for_each(|(regions, part)| {
        let mut input = Reader::new(part);
        read_part(&mut input, frame, regions)?;
        input.end()
    })?;
    match regions.chunks(PART).zip(regions.chunks(PART).skip(1)).all(|(a, b)| follow(a, b)) {
        true => Ok(regions),
        false => Err(wrong()),
    }
}

fn wrong() -> Error {
    Error::damaged("corrupt delta: invalid region")
}

/// Whether all regions of a part come behind those of the one before it.
fn follow(before: &[Region], part: &[Region]) -> bool {
    before.last().map_or(0, Region::end) <= part.first().map_or(u64::MAX, |region| region.start)
}

fn read_part(input: &mut Reader, frame: RegionContext, regions: &mut [Region]) -> Result<()> {
    let mut end = 0u64;
    let mut fresh = frame.base;
    let mut source = Location { pack: frame.ordinal, offset: frame.base };
    for next in regions {
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
        *next = region;
    }
    Ok(())
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
        #![proptest_config(ProptestConfig::with_cases(24))]

        /// Regions of several parts return, and no part is taken for another.
        #[test]
        fn parts_return(some in regions().prop_filter("none", |some| !some.is_empty()), cut in any::<prop::sample::Index>()) {
            let span = some[some.len() - 1].end();
            let again = |turn: u64| {
                let shifted = some.iter().map(move |r| (turn, r));
                shifted.map(move |(turn, r)| Region { start: r.start + turn * span, fresh: false, ..*r })
            };
            let turns = (2 * PART / some.len() + 2) as u64;
            let regions: Vec<Region> = (0..turns).flat_map(again).collect();
            let chunks = turns * span;
            let mut out = Writer::default();
            write_regions(&mut out, &regions, frame(chunks));
            let mut input = Reader::new(&out.0);
            prop_assert!(read_regions(&mut input, frame(chunks)).unwrap() == regions);
            prop_assert!(input.end().is_ok());
            let cut = cut.index(out.0.len());
            prop_assert!(read_regions(&mut Reader::new(&out.0[..cut]), frame(chunks)).is_err());
            // The first two parts in each other's place.
            let lens = regions.len().div_ceil(PART);
            let mut head = Reader::new(&out.0);
            head.int().unwrap();
            let lens: Vec<usize> = (0..lens).map(|_| head.int().unwrap() as usize).collect();
            let mut turned = Writer::default();
            turned.int(regions.len() as u64);
            let order: Vec<usize> = [1, 0].into_iter().chain(2..lens.len()).collect();
            let parts: Vec<&[u8]> = lens.iter().map(|len| head.raw(*len).unwrap()).collect();
            order.iter().for_each(|at| turned.int(lens[*at] as u64));
            order.iter().for_each(|at| turned.raw(parts[*at]));
            prop_assert!(read_regions(&mut Reader::new(&turned.0), frame(chunks)).is_err());
        }
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
