//! The laws of bounded hashing: no difference beyond a bound is missed, and none is made up, whatever
//! the values, the bound and the sketch; and the trees are the same however they were made.

use crate::laws::cells::Cells;
use crate::laws::values::{Dice, Maker, akin, bounds};
use crate::laws::{FLOATS, Format, oracle};
use proptest::prelude::*;
use rayon::prelude::*;
use std::sync::atomic::{AtomicU64, Ordering};
use treering::testing::{Builder, Grid, Image, Judge, MAX_PLANES, Recipe, Sketch, Verdict};
use treering::{Bound, DType};

fn is_complex(dtype: DType) -> bool {
    matches!(dtype, DType::C64 | DType::C128)
}

fn build(dtype: DType, recipe: Recipe, data: &[u8]) -> Image {
    Builder::new(dtype, &[recipe]).build(data).unwrap().remove(0)
}

/// The planes of a chunk, the lowest first.
fn planes(image: &Image, chunk: u64, count: u8) -> Vec<&[u8]> {
    let layout = &image.layout;
    let strip = chunk / layout.strip;
    let within = (chunk - layout.chunks_of(strip).start) * layout.stride;
    let plane = |plane: u8| {
        let at = (layout.planes_of(strip, plane..plane + 1).start + within) as usize;
        &image.body()[at..at + layout.stride as usize]
    };
    (0..count).map(plane).collect()
}

/// Whether a chunk is marked to have finite values without a cell.
fn lacks_cells(image: &Image, chunk: u64) -> bool {
    let at = (image.layout.nans.start + 4 * chunk) as usize;
    image.body()[at + 3] & 0x80 != 0
}

fn has_nan(format: Format, data: &[u8]) -> bool {
    (0..data.len() / format.bytes).any(|at| format.is_nan(format.read(data, at)))
}

/// Two arrays, and what they are compared by.
struct Case<'a> {
    dtype: DType,
    recipe: Recipe,
    asked: Bound,
    a: &'a [u8],
    b: &'a [u8],
}

/// Counts of a case, so that tests can see that they tested something.
#[derive(Default, Debug)]
struct Seen {
    /// Chunks with the same leaf and other bytes.
    alike: u64,
    within: u64,
    beyond: u64,
    somewhere: u64,
    open: u64,
}

/// Holds trees and sketches of two arrays against the judge.
fn hold(case: &Case, seen: &mut Seen) {
    let Case { dtype, recipe, asked, a, b } = *case;
    let size = dtype.size() as usize;
    let judge = Judge::new(dtype, asked, true);
    let images = [build(dtype, recipe, a), build(dtype, recipe, b)];
    let reach = recipe.grid.reach(dtype, asked);
    let sketch = Sketch::new(recipe.grid, dtype, asked, recipe.chunk, recipe.planes);
    assert!(sketch.is_none() || reach.is_some());
    for chunk in 0..images[0].layout.chunks {
        let range = images[0].layout.data_of(chunk);
        let (x, y) = (
            &a[range.start as usize..range.end as usize],
            &b[range.start as usize..range.end as usize],
        );
        let pairs = x.chunks(size).zip(y.chunks(size));
        let differing: Vec<usize> =
            pairs.enumerate().filter(|(_, (x, y))| judge.differ(x, y)).map(|(at, _)| at).collect();
        let leaves = (images[0].leaf(chunk), images[1].leaf(chunk));
        let show = || {
            let at = differing.first().copied().unwrap_or(0) * size;
            let (p, q) = (&x[at..at + size], &y[at..at + size]);
            format!(
                "{dtype} {:?} made for {}, asked for {asked}, reach {reach:?}: {p:02x?} {q:02x?}",
                recipe.grid, recipe.bound
            )
        };
        if reach.is_some() && leaves.0 == leaves.1 {
            assert!(differing.is_empty(), "missed: {}", show());
            seen.alike += u64::from(x != y);
        }
        if x == y {
            assert_eq!(leaves.0, leaves.1);
        }
        let Some(sketch) = &sketch else { continue };
        let nan = is_complex(dtype) && [x, y].iter().any(|side| has_nan(Format::of(dtype), side));
        for count in 1..=recipe.planes {
            let (p, q) = (planes(&images[0], chunk, count), planes(&images[1], chunk, count));
            let lacking =
                sketch.may_lack_cells() && images.iter().any(|image| lacks_cells(image, chunk));
            match sketch.judge(leaves, &p, &q, lacking) {
                Verdict::Within => {
                    assert!(differing.is_empty(), "missed by {count} planes: {}", show());
                    seen.within += 1;
                }
                // A complex number with a part that is NaN is NaN, whatever the other part is.
                Verdict::Beyond { .. } | Verdict::Somewhere if nan => {}
                Verdict::Beyond { count: sure, first, open } => {
                    let parts = if is_complex(dtype) { 2 } else { 1 };
                    let first = (first / parts) as usize;
                    assert!(differing.contains(&first), "made up by {count} planes: {}", show());
                    assert!(sure.div_ceil(parts) <= differing.len() as u64);
                    if !open && parts == 1 {
                        assert_eq!(sure, differing.len() as u64, "{}", show());
                        assert_eq!(first, differing[0]);
                    }
                    seen.beyond += 1;
                }
                Verdict::Somewhere => {
                    assert!(!differing.is_empty(), "made up by {count} planes: {}", show());
                    seen.somewhere += 1;
                }
                Verdict::More => assert!(count < recipe.planes),
                Verdict::Open => seen.open += 1,
            }
        }
    }
}

/// The second array: the first with changes of one of many kinds.
fn changed(maker: &Maker, a: &[u8], kind: u64, changes: usize, dice: &mut Dice) -> Vec<u8> {
    let f = maker.format;
    let count = a.len() / f.bytes;
    let mut b = a.to_vec();
    if count == 0 {
        return b;
    }
    let somewhere = |dice: &mut Dice| dice.below(count as u64) as usize;
    let put = |b: &mut Vec<u8>, at: usize, bits: u64| f.write(b, at, bits);
    match kind {
        // Each by itself.
        0..3 => {
            for _ in 0..changes {
                let at = somewhere(dice);
                let bits = maker.partner(f.read(a, at), dice);
                put(&mut b, at, bits);
            }
        }
        // Everywhere, mostly within the cells.
        3..6 => {
            for at in 0..count {
                let bits = maker.jitter(f.read(a, at), dice);
                put(&mut b, at, bits);
            }
        }
        // The amount that is added at one place is taken away at another.
        6 => {
            for _ in 0..changes.min(32) {
                let (i, j) = (somewhere(dice), somewhere(dice));
                let d = f.value(maker.one(dice)).abs().min(1e30);
                let (x, y) = (f.value(f.read(&b, i)), f.value(f.read(&b, j)));
                put(&mut b, i, f.near(x + d));
                put(&mut b, j, f.near(y - d));
            }
        }
        // Signs are flipped in pairs.
        7 => {
            for _ in 0..2 * changes.min(32) {
                let at = somewhere(dice);
                let bits = f.read(&b, at) ^ 1 << f.top;
                put(&mut b, at, bits);
            }
        }
        // Two values change places.
        8 => {
            let (i, j) = (somewhere(dice), somewhere(dice));
            let (x, y) = (f.read(a, i), f.read(a, j));
            put(&mut b, i, y);
            put(&mut b, j, x);
        }
        // All values do.
        _ => {
            let by = somewhere(dice) * f.bytes;
            b.rotate_left(by);
        }
    }
    b
}

fn array(maker: &Maker, count: usize, calm: bool, dice: &mut Dice) -> Vec<u8> {
    let f = maker.format;
    let mut data = vec![0; count * f.bytes];
    for at in 0..count {
        let bits = if calm { f.near(dice.part()) } else { maker.one(dice) };
        f.write(&mut data, at, bits);
    }
    data
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1200))]

    #[test]
    fn no_difference_is_missed_and_none_is_made_up(
        dtype in proptest::sample::select(FLOATS.to_vec()),
        made in any::<proptest::sample::Index>(),
        chunk in proptest::sample::select(vec![512u32, 1024, 4096, 16384, 65536]),
        kept in 0u8..=MAX_PLANES,
        kind in 0u64..10,
        changes in prop_oneof![Just(1usize), 2usize..8, 8usize..=1024],
        calm in any::<bool>(),
        seed in any::<u64>(),
    ) {
        let mut dice = Dice(seed);
        let bounds = bounds(dtype);
        let made = bounds[made.index(bounds.len())];
        let asked = akin(made, &mut dice);
        let recipe = Recipe::new(dtype, made, chunk, kept).unwrap();
        let maker = Maker::new(dtype, recipe.grid, asked);
        let count = 1 + dice.below(3 * chunk as u64 / maker.format.bytes as u64 / maker.format.parts as u64);
        let a = array(&maker, count as usize * maker.format.parts, calm, &mut dice);
        let b = changed(&maker, &a, kind, changes, &mut dice);
        hold(&Case { dtype, recipe, asked, a: &a, b: &b }, &mut Seen::default());
    }

    #[test]
    fn the_judge_is_exact(
        dtype in proptest::sample::select(FLOATS.to_vec()),
        made in any::<proptest::sample::Index>(),
        nan_equal in any::<bool>(),
        seed in any::<u64>(),
    ) {
        let mut dice = Dice(seed);
        let bounds = bounds(dtype);
        let bound = akin(bounds[made.index(bounds.len())], &mut dice);
        let maker = Maker::new(dtype, Grid::choose(dtype, bound), bound);
        let judge = Judge::new(dtype, bound, nan_equal);
        for _ in 0..20 {
            let (a, b) = element_pair(&maker, &mut dice);
            let expected = oracle::differ(dtype, bound, nan_equal, &a, &b);
            prop_assert_eq!(judge.differ(&a, &b), expected, "{} {} {:02x?} {:02x?}", dtype, bound, a, b);
        }
    }
}

/// Pairs whose distance is the bound but for a rounding or two, for bounds that are no round numbers.
#[test]
fn the_judge_is_exact_at_the_bound() {
    let mut dice = Dice(29);
    let (mut differ, mut tried) = (0, 0);
    for dtype in FLOATS {
        let f = Format::of(dtype);
        for _ in 0..4000 {
            let spread = dice.choose(&[2, 20, 200]);
            let mut any = |most: f64| {
                let exponent = dice.part() * spread as f64;
                (dice.part().abs() * 2f64.powf(exponent)).min(most)
            };
            let (abs, rel, size) = (any(1e60), any(2.0), any(1e60));
            let (abs, rel) = dice.choose(&[(abs, rel), (abs, 0.0), (0.0, rel)]);
            let bound = Bound::Within { abs, rel };
            let (mut a, mut b) = (vec![0; f.bytes * f.parts], vec![0; f.bytes * f.parts]);
            for part in 0..f.parts {
                f.write(&mut b, part, f.near(size * dice.part()));
            }
            let parts = |bytes: &[u8]| (0..f.parts).map(|p| f.value(f.read(bytes, p))).collect();
            let from: Vec<f64> = parts(&b);
            let modulus = from.iter().fold(0.0f64, |sum, x| sum.hypot(*x));
            let apart = abs + rel * modulus;
            let angle = if f.parts == 2 { dice.part() * 3.2 } else { 0.0 };
            for (part, along) in [angle.cos(), angle.sin()].into_iter().take(f.parts).enumerate() {
                let sign = dice.choose(&[-1.0, 1.0]);
                let bits = f.near(from[part] + sign * apart * along);
                f.write(&mut a, part, f.step(bits, dice.below(5) as i64 - 2));
            }
            let expected = oracle::differ(dtype, bound, true, &a, &b);
            let found = Judge::new(dtype, bound, true).differ(&a, &b);
            assert_eq!(found, expected, "{dtype} {bound} {a:02x?} {b:02x?}");
            differ += u64::from(found);
            tried += 1;
        }
    }
    assert!(differ > tried / 4 && differ < tried / 4 * 3, "{differ} of {tried}");
}

fn element_pair(maker: &Maker, dice: &mut Dice) -> (Vec<u8>, Vec<u8>) {
    let f = maker.format;
    let (mut a, mut b) = (vec![0; f.bytes * f.parts], vec![0; f.bytes * f.parts]);
    for part in 0..f.parts {
        let x = maker.one(dice);
        f.write(&mut a, part, x);
        f.write(&mut b, part, maker.partner(x, dice));
    }
    (a, b)
}

/// The generators reach every verdict, and equal leaves of unequal bytes.
#[test]
fn every_verdict_is_reached() {
    for dtype in FLOATS {
        let mut seen = Seen::default();
        let mut dice = Dice(7);
        for bound in [Bound::abs(0.25), Bound::abs(1e-3), Bound::Ulp(5), Bound::Ulp(1000)] {
            let recipe = Recipe::new(dtype, bound, 512, 6).unwrap();
            let maker = Maker::new(dtype, recipe.grid, bound);
            for kind in 0..10 {
                for changes in [1, 1, 1, 2, 2, 3, 3, 4] {
                    let a = array(&maker, 512, true, &mut dice);
                    let b = changed(&maker, &a, kind, changes, &mut dice);
                    hold(&Case { dtype, recipe, asked: bound, a: &a, b: &b }, &mut seen);
                }
            }
        }
        let least = [seen.alike, seen.within, seen.beyond, seen.somewhere, seen.open];
        assert!(least.iter().all(|n| *n >= 4), "{dtype}: {seen:?}");
    }
}

/// Integers, booleans and bytes have no bound but equality.
#[test]
fn what_has_no_cells_is_held_to_its_bits() {
    let floats = |dtype: &&DType| !FLOATS.contains(dtype);
    for dtype in DType::ALL.iter().filter(floats) {
        for bound in [Bound::EQUAL, Bound::Bits, Bound::abs(1e9), Bound::rel(1.0), Bound::Ulp(9)] {
            let recipe = Recipe::new(*dtype, bound, 512, 4).unwrap();
            assert_eq!((recipe.grid, recipe.planes), (Grid::Bits, 0));
            assert_eq!(recipe.grid.reach(*dtype, bound), Some(0));
            let mut dice = Dice(dtype.size());
            let a: Vec<u8> = (0..4096).map(|_| dice.word() as u8).collect();
            for at in (0..4096).step_by(61) {
                let mut b = a.clone();
                b[at] ^= 1 << (at % 8);
                let element = at / dtype.size() as usize * dtype.size() as usize;
                assert!(Judge::new(*dtype, bound, true).differ(&a[element..], &b[element..]));
                let (x, y) = (build(*dtype, recipe, &a), build(*dtype, recipe, &b));
                for chunk in 0..8 {
                    assert_eq!(x.leaf(chunk) == y.leaf(chunk), chunk != at as u64 / 512);
                }
                assert_ne!(x.root, y.root);
            }
        }
    }
}

/// A tree serves the bound it was made for.
#[test]
fn a_new_tree_serves_its_own_bound() {
    for dtype in FLOATS {
        for bound in bounds(dtype) {
            let grid = Grid::choose(dtype, bound);
            assert!(grid.fits(dtype), "{dtype} {bound} {grid:?}");
            assert!(grid.reach(dtype, bound).is_some(), "{dtype} {bound} {grid:?}");
        }
    }
}

/// All ways to make a tree give the same bits.
#[test]
fn trees_are_the_same_however_they_were_made() {
    let pool = |threads| rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
    let pools = [pool(1), pool(3)];
    let mut dice = Dice(11);
    for dtype in DType::ALL {
        let floats = FLOATS.contains(dtype);
        let bounds = if floats { bounds(*dtype) } else { vec![Bound::EQUAL] };
        for (number, bound) in bounds.into_iter().enumerate() {
            let chunk = [512, 1024, 4096, 65536][number % 4];
            let recipes: Vec<Recipe> = [bound, Bound::Bits, Bound::EQUAL]
                .iter()
                .zip([number as u8 % 9, 0, 8])
                .map(|(bound, planes)| Recipe::new(*dtype, *bound, chunk, planes).unwrap())
                .collect();
            let count = [0, 1, 700, 9000][dice.below(4) as usize] + dice.below(99) as usize;
            let mut data = match floats {
                true => {
                    let maker = Maker::new(*dtype, recipes[0].grid, bound);
                    array(&maker, count * maker.format.parts, number % 2 == 0, &mut dice)
                }
                false => (0..count * dtype.size() as usize).map(|_| dice.word() as u8).collect(),
            };
            let builder = || Builder::new(*dtype, &recipes).front(64 * (number % 2));
            let whole = builder().build(&data).unwrap();
            assert_eq!(whole, builder().baseline().build(&data).unwrap(), "{dtype} {bound}");
            for pool in &pools {
                assert_eq!(whole, pool.install(|| builder().build(&data)).unwrap());
            }
            for parallel in [false, true] {
                let lent = builder().build_from(data.len() as u64, parallel, |range, work| {
                    work(&data[range.start as usize..range.end as usize]);
                    Ok(())
                });
                assert_eq!(whole, lent.unwrap());
            }
            for (recipe, image) in recipes.iter().zip(&whole) {
                if recipe.grid != Grid::Bits {
                    let cells = Cells::new(*dtype, recipe.grid);
                    for (at, piece) in data.chunks(chunk as usize).enumerate() {
                        assert_eq!(image.leaf(at as u64), cells.leaf(piece), "{dtype} {bound}");
                        let planes = planes(image, at as u64, image.layout.plane_count);
                        assert!(cells.are_in(&planes, piece), "{dtype} {bound}");
                    }
                }
            }
            // Nothing, single bytes, long stretches, everything.
            let mut kept = whole;
            for round in 0..4 {
                let mut dirty = Vec::new();
                let mut at = 0;
                while round > 0 && at < data.len() {
                    at += dice.below(data.len() as u64 / round + 2) as usize;
                    let end = data.len().min(at + [1, 8, 5000, usize::MAX >> 1][round as usize]);
                    if at < end {
                        data[at..end].iter_mut().for_each(|byte| *byte ^= dice.word() as u8);
                        dirty.push(at as u64..end as u64);
                    }
                    at = end;
                }
                builder().update(&mut kept, &data, &dirty);
                assert_eq!(kept, builder().build(&data).unwrap(), "{dtype} {bound} {round}");
            }
        }
    }
}

/// Number of pairs of values that are tried for each type and bound; the long campaign sets this.
fn pairs() -> u64 {
    std::env::var("TREERING_PAIRS").ok().and_then(|n| n.parse().ok()).unwrap_or(250_000)
}

/// Only this type, if the campaign names one.
fn wanted(dtype: DType) -> bool {
    std::env::var("TREERING_TYPE").ok().is_none_or(|name| name == dtype.name())
}

/// Each pair by itself: the leaves are those of cells that are told here, value by value, so that the
/// law of the cells can be compared with the judge for every single pair.
#[test]
fn the_law_of_the_cells_holds_for_every_pair() {
    const BATCH: u64 = 1 << 14;
    for dtype in FLOATS.into_iter().filter(|dtype| wanted(*dtype)) {
        let (tried, alike, sure) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
        for (number, made) in bounds(dtype).into_iter().enumerate() {
            let batches = pairs().div_ceil(BATCH);
            (0..batches).into_par_iter().for_each(|batch| {
                let mut dice = Dice(batch << 16 | (number as u64) << 8 | dtype.size());
                let asked = if batch % 4 == 0 { made } else { akin(made, &mut dice) };
                let found = batch_of_pairs(dtype, made, asked, BATCH as usize, &mut dice);
                tried.fetch_add(BATCH, Ordering::Relaxed);
                alike.fetch_add(found.0, Ordering::Relaxed);
                sure.fetch_add(found.1, Ordering::Relaxed);
            });
        }
        let [tried, alike, sure] = [tried, alike, sure].map(AtomicU64::into_inner);
        println!("{dtype}: {tried} pairs, {alike} within reach, {sure} surely beyond, none wrong");
        assert!(alike > tried / 50 && sure > tried / 500, "{dtype}: {tried} {alike} {sure}");
    }
}

/// Number of pairs within the reach of the cells, and of those surely beyond the bound.
fn batch_of_pairs(
    dtype: DType,
    made: Bound,
    asked: Bound,
    count: usize,
    dice: &mut Dice,
) -> (u64, u64) {
    let recipe = Recipe::new(dtype, made, dice.choose(&[512, 4096, 65536]), 0).unwrap();
    let grid = recipe.grid;
    let maker = Maker::new(dtype, grid, asked);
    let f = maker.format;
    let (mut a, mut b) = (vec![0; count * f.bytes * f.parts], vec![0; count * f.bytes * f.parts]);
    let cells = Cells::new(dtype, grid);
    // Anything; mostly usual numbers; only what has a cell, which takes a way of its own.
    let (usual, celled) = dice.choose(&[(false, false), (true, false), (true, true)]);
    let make = |make: &mut dyn FnMut() -> u64| {
        let mut made = (0..64).map(|_| make());
        let made = if celled { made.find(|bits| cells.cell(*bits).is_some()) } else { made.next() };
        made.unwrap_or(0)
    };
    for at in 0..count * f.parts {
        let x = make(&mut || match usual && dice.below(4) > 0 {
            true => f.near(dice.part()),
            false => maker.one(dice),
        });
        let y = make(&mut || maker.partner(x, dice));
        f.write(&mut a, at, x);
        f.write(&mut b, at, y);
    }
    let builder = Builder::new(dtype, &[recipe]);
    let judge = Judge::new(dtype, asked, true);
    let images = [&a, &b].map(|data| builder.build(data).unwrap().remove(0));
    for (data, image) in [&a, &b].into_iter().zip(&images) {
        for (at, chunk) in data.chunks(recipe.chunk as usize).enumerate() {
            assert_eq!(image.leaf(at as u64), cells.leaf(chunk), "{dtype} {grid:?}");
        }
    }
    let Some(reach) = grid.reach(dtype, asked) else { return (0, 0) };
    // Values that the most planes do not distinguish are this far apart, or have no cell on one side.
    let far = !matches!(grid, Grid::Ordinal { denormals: false, .. })
        && grid.is_beyond(dtype, asked, 1 << (MAX_PLANES - 1));
    let (mut alike, mut sure) = (0, 0);
    for at in 0..count {
        let (mut near, mut beyond, mut nan) = (true, false, false);
        for part in at * f.parts..(at + 1) * f.parts {
            let (x, y) = (f.read(&a, part), f.read(&b, part));
            nan |= f.is_nan(x) || f.is_nan(y);
            match (cells.cell(x), cells.cell(y)) {
                (Some(p), Some(q)) => {
                    let d = p.abs_diff(q);
                    near &= d <= reach as u128;
                    beyond |= grid.is_beyond(dtype, asked, u64::try_from(d).unwrap_or(u64::MAX));
                }
                (None, None) if cells.sole(x) == cells.sole(y) => {}
                _ => {
                    near = false;
                    beyond |= far;
                }
            }
        }
        // A complex number with a part that is NaN is NaN, whatever the other part is.
        beyond &= !(nan && f.parts == 2);
        assert!(!(near && beyond));
        if near || beyond {
            let from = at * f.bytes * f.parts;
            let (x, y) = (&a[from..from + f.bytes * f.parts], &b[from..from + f.bytes * f.parts]);
            let differ = judge.differ(x, y);
            assert_eq!(
                differ, beyond,
                "{dtype} {grid:?} made for {made}, asked for {asked}: {x:02x?} {y:02x?}"
            );
            alike += u64::from(near);
            sure += u64::from(beyond);
        }
    }
    (alike, sure)
}
