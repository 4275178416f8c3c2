//! From the layers of an epoch to the place of every chunk.
//!
//! A checkpoint's map is not stored: it is its epoch's first map with the regions of each later
//! delta laid over it. The newest layer that covers a chunk wins. Work is done in windows, so that
//! memory stays small whatever the size of the variable, and windows are independent of each other.

use super::region::{Location, NOWHERE, Region};
use crate::error::{Error, Result};
use std::ops::Range;

/// The regions that one checkpoint of the epoch adds to a variable, in ascending order.
pub(crate) type Layer<'a> = &'a [Region];

/// Puts into `places` the packed places of the chunks of `window`, by `layers` from the oldest to
/// the newest.
pub(crate) fn resolve(
    layers: &[Layer],
    chunk: u64,
    window: Range<u64>,
    places: &mut Vec<u64>,
) -> Result<()> {
    places.clear();
    places.resize((window.end - window.start) as usize, NOWHERE);
    for layer in layers {
        let first = layer.partition_point(|r| r.end() <= window.start);
        for region in &layer[first..] {
            if region.start >= window.end {
                break;
            }
            let from = region.start.max(window.start);
            let to = region.end().min(window.end);
            let part = &mut places[(from - window.start) as usize..(to - window.start) as usize];
            fill(part, region, from - region.start, chunk);
        }
    }
    if places.contains(&NOWHERE) {
        return Err(Error::damaged("a chunk has no place in any pack of its epoch"));
    }
    Ok(())
}

/// The packed places of a region's chunks from the `first` on; [`NOWHERE`] if one does not fit.
fn fill(places: &mut [u64], region: &Region, first: u64, chunk: u64) {
    let distinct = if region.period > 0 { region.period } else { region.count };
    let end = region.place_of(distinct - 1, chunk).packed();
    let (Some(start), Some(_)) = (region.place.packed(), end) else {
        return places.fill(NOWHERE);
    };
    if distinct == 1 {
        return places.fill(start);
    }
    // A packed place grows as its offset does.
    if region.period == 0 {
        for (at, place) in (first..).zip(places) {
            *place = start + at * chunk;
        }
        return;
    }
    let mut at = first % distinct;
    for place in places {
        *place = start + at * chunk;
        at = if at + 1 == distinct { 0 } else { at + 1 };
    }
}

/// Joins packed places of neighbouring chunks into runs: first chunk, count, place. Chunks without
/// a place are left out.
pub(crate) fn runs(places: &[u64], chunk: u64) -> impl Iterator<Item = (u64, u64, Location)> {
    let mut at = 0;
    std::iter::from_fn(move || {
        at += places[at..].iter().take_while(|p| **p == NOWHERE).count();
        let first = *places.get(at)?;
        let start = at;
        at += 1;
        while places.get(at) == Some(&(first + (at - start) as u64 * chunk)) {
            at += 1;
        }
        Some((start as u64, (at - start) as u64, Location::from_packed(first)))
    })
}

/// Neighbouring chunks that lie one behind another, or all at one place.
pub(crate) struct PlacedRun {
    /// The first chunk.
    pub(crate) first: u64,
    pub(crate) count: u64,
    /// The place of the first chunk.
    pub(crate) place: Location,
    /// Whether all chunks are at this place.
    pub(crate) repeats: bool,
}

/// Runs as of [`runs`], with repeats of one chunk as one run, for places of which none is missing.
pub(crate) fn runs_and_repeats(places: &[u64], chunk: u64) -> impl Iterator<Item = PlacedRun> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let (start, place) = (at, *places.get(at)?);
        at += 1;
        let repeats = places.get(at) == Some(&place);
        let mut expected = place;
        let step = if repeats { 0 } else { chunk };
        loop {
            expected += step;
            if places.get(at) != Some(&expected) {
                break;
            }
            at += 1;
        }
        let (first, count) = (start as u64, (at - start) as u64);
        Some(PlacedRun { first, count, place: Location::from_packed(place), repeats })
    })
}

/// Whether every one of `chunks` chunks is in some layer; the cost depends on the number of regions,
/// not on that of chunks.
pub(crate) fn covers(layers: &[Layer], chunks: u64) -> bool {
    let mut spans: Vec<(u64, u64)> =
        layers.iter().flat_map(|layer| layer.iter()).map(|r| (r.start, r.end())).collect();
    spans.sort_unstable();
    let mut end = 0;
    for (start, stop) in spans {
        if start > end {
            break;
        }
        end = end.max(stop);
    }
    end >= chunks
}

/// Takes the place from every chunk that `layers` find at the same place.
pub(crate) fn subtract(
    places: &mut [u64],
    layers: &[Layer],
    chunk: u64,
    window: Range<u64>,
) -> Result<()> {
    let mut others = Vec::new();
    resolve(layers, chunk, window, &mut others)?;
    for (place, other) in places.iter_mut().zip(others) {
        if *place == other {
            *place = NOWHERE;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn region(start: u64, count: u64, pack: u32, offset: u64, period: u64) -> Region {
        let place = Location { pack, offset };
        Region { start, count, place, period, fresh: false }
    }

    #[test]
    fn newer_layers_win_and_gaps_are_damage() {
        let base = [region(0, 10, 0, 0, 0)];
        let newer = [region(2, 3, 1, 100, 1), region(7, 1, 0, 0, 0)];
        let mut places = Vec::new();
        resolve(&[&base, &newer], 10, 1..9, &mut places).unwrap();
        let expected: Vec<u64> =
            [(0, 10), (1, 100), (1, 100), (1, 100), (0, 50), (0, 60), (0, 0), (0, 80)]
                .iter()
                .map(|&(pack, offset)| Location { pack, offset }.packed().unwrap())
                .collect();
        assert_eq!(places, expected);
        assert_eq!(runs(&places, 10).count(), 7);
        let joined = runs_and_repeats(&places, 10).map(|r| (r.first, r.count, r.repeats));
        let expected = [(0, 1, false), (1, 3, true), (4, 2, false), (6, 1, false), (7, 1, false)];
        assert_eq!(joined.collect::<Vec<_>>(), expected);
        assert!(resolve(&[&base], 10, 5..11, &mut places).is_err());
        assert!(covers(&[&base], 10) && covers(&[&newer, &base], 10));
        assert!(!covers(&[&base], 11) && !covers(&[&newer], 8));
    }
}
