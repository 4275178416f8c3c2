//! Arrays of several ranks: the same on all, boxes with ghost cells, rows; restored on any number of ranks, and read
//! once however many these are.

use crate::support::{assert_sound, lockless_memory as memory};
use proptest::prelude::*;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use treering::testing::{Call, HookedStore};
use treering::{
    ChunkSize, Comm, Encoding, End, Error, ErrorKind, Library, Options, Rank, Result, Run, Slab,
    Store, ThreadRanks, Variable, VariableMut, redistribute,
};

fn options(store: &Arc<dyn Store>, comm: &Arc<dyn Comm>) -> Options {
    let patience = Duration::from_secs(120);
    let options = Options::in_store(store.clone(), "r").ranks(comm.clone()).patience(patience);
    options.chunk(ChunkSize::new(64).unwrap()).encoding(Encoding::Raw)
}

fn all_done<T: std::fmt::Debug>(ends: Vec<End<T>>) -> Vec<T> {
    let shown = format!("{ends:?}");
    let done: Vec<T> = ends.into_iter().filter_map(End::done).collect();
    assert!(!shown.contains("Killed") && !shown.contains("Panicked"), "{shown}");
    done
}

/// Runs a program on this many ranks, each with the run open.
fn on<T: std::fmt::Debug + Send + 'static>(
    store: &Arc<dyn Store>,
    ranks: u32,
    program: impl Fn(&mut Run, &Arc<dyn Comm>) -> T + Send + Sync + 'static,
) -> Vec<T> {
    let shared = store.clone();
    all_done(ThreadRanks::new(ranks).run(move |comm| {
        let mut run = Run::open(options(&shared, &comm)).unwrap();
        let made = program(&mut run, &comm);
        run.finish().unwrap();
        made
    }))
}

/// The state of a generator of random numbers at a step.
fn dice(step: u64) -> Vec<u64> {
    (0..300).map(|at| ((at + 1) * 7919) ^ (step * u64::from(at < 5))).collect()
}

#[test]
fn what_is_the_same_on_all_ranks_is_stored_once_and_comes_back_on_every_rank() {
    for saved_by in [1, 3] {
        let store = memory();
        on(&store, saved_by, |run, comm| {
            for step in 0..3 {
                let (dice, own) = (dice(step), [comm.rank().0; 40]);
                let state = [Variable::new("dice", &dice).same(), Variable::new("own", &own)];
                run.checkpoint(step, &state).unwrap();
            }
        });
        let checkpoint = Library::of(store.clone()).checkpoint("r", Some(2)).unwrap();
        assert_eq!(checkpoint.variables().filter(|v| v.name == "dice").count(), 1);
        assert_eq!(checkpoint.read::<u64>("dice").unwrap(), dice(2));
        for ranks in [1, 2, 3, 5] {
            on(&store, ranks, move |run, comm| {
                let mut back = vec![0; 300];
                let mut grown: Vec<u64> = Vec::new();
                let restored = run.restore(&mut [VariableMut::new("dice", &mut back)]).unwrap();
                assert_eq!((restored.unwrap().step, back), (2, dice(2)));
                run.restore_step(1, &mut [VariableMut::growing("dice", &mut grown)]).unwrap();
                assert_eq!(grown, dice(1));
                if ranks == saved_by {
                    let (mut back, mut own) = (vec![0; 300], [9; 40]);
                    let state = VariableMut::new("dice", &mut back);
                    let mut gone = [1u8];
                    let gone = VariableMut::new("gone", &mut gone).optional();
                    let own_state = VariableMut::new("own", &mut own);
                    let restored = run.restore(&mut [own_state, gone, state]).unwrap().unwrap();
                    assert_eq!(restored.missing, ["gone"]);
                    assert_eq!((own, back), ([comm.rank().0; 40], dice(2)));
                }
                // Another length or type is refused on all ranks, and nobody waits for the others.
                let mut short = vec![0u64; 299];
                let error = run.restore(&mut [VariableMut::new("dice", &mut short)]).unwrap_err();
                assert_eq!(error.kind(), ErrorKind::Mismatch, "{error}");
                let error = run.restore(&mut [VariableMut::new("none", &mut short)]).unwrap_err();
                assert!(error.to_string().contains("there is no variable \"none\""), "{error}");
            });
        }
        assert_sound(&store);
    }
}

/// The epoch goes on after a restart, also for what one rank stores for all.
#[test]
fn a_restart_with_what_is_the_same_goes_on_with_its_epoch() {
    let store = memory();
    let save = |run: &mut Run, step: u64| {
        let dice = dice(step);
        run.checkpoint(step, &[Variable::new("dice", &dice).same()]).unwrap();
    };
    on(&store, 3, move |run, _| (0..2).for_each(|step| save(run, step)));
    on(&store, 3, move |run, _| {
        let mut back = vec![0; 300];
        run.restore(&mut [VariableMut::new("dice", &mut back)]).unwrap().unwrap();
        assert_eq!(back, dice(1));
        save(run, 2);
    });
    let (all, _) = Library::of(store.clone()).checkpoints("r").unwrap();
    let epochs: std::collections::BTreeSet<_> =
        all.iter().map(|info| info.epoch.sequence).collect();
    assert_eq!((all.len(), epochs.len()), (3, 1));
}

#[test]
fn what_is_not_the_same_is_an_error_on_all_ranks_and_they_go_on() {
    let store = memory();
    let texts = on(&store, 4, |run, comm| {
        let rank = comm.rank().0;
        let dt = [0.5 + f64::from(rank == 3)];
        let error = run.checkpoint(0, &[Variable::new("dt", &dt).same()]).err().unwrap();
        assert_eq!(error.kind(), ErrorKind::Usage);
        let state = [Variable::new("dt", &dt[..1]).same()];
        let some = if rank == 2 { &state[..0] } else { &state[..] };
        assert!(run.checkpoint(0, some).is_err());
        // From one's own to the same on all, and back.
        for step in 1..6 {
            let (dt, own) = ([step as f64], [f64::from(rank)]);
            let state = match step % 2 {
                0 => Variable::new("dt", &dt).same(),
                _ => Variable::new("dt", &own),
            };
            run.checkpoint(step, &[state]).unwrap().durable().unwrap();
        }
        for step in 1..6 {
            let mut back = [7.0];
            run.restore_step(step, &mut [VariableMut::new("dt", &mut back)]).unwrap();
            let expected = if step % 2 == 0 { step as f64 } else { f64::from(rank) };
            assert_eq!(back, [expected], "rank {rank} @ {step}");
        }
        error.to_string()
    });
    assert!(texts.iter().all(|text| *text == texts[0]), "{texts:?}");
    assert!(texts[0].contains("\"dt\"") && texts[0].contains("and 3 have different values"));
    assert_sound(&store);
}

/// A box of a two-dimensional array with ghost cells.
#[derive(Clone, Debug)]
struct Tile {
    offset: [u64; 2],
    owned: [u64; 2],
    low: [u64; 2],
    high: [u64; 2],
}

const GLOBAL: [u64; 2] = [23, 31];

impl Tile {
    fn shape(&self) -> [u64; 2] {
        [0, 1].map(|axis| self.low[axis] + self.owned[axis] + self.high[axis])
    }

    /// The values: owned cells by their index, ghost cells by `ghost`.
    fn values(&self, ghost: impl Fn(Option<[u64; 2]>) -> f64) -> Vec<f64> {
        let [rows, columns] = self.shape();
        let cells = (0..rows).flat_map(|row| (0..columns).map(move |column| [row, column]));
        let value = |cell: [u64; 2]| {
            let index = |axis: usize| (self.offset[axis] + cell[axis]).checked_sub(self.low[axis]);
            let inside = index(0).zip(index(1)).filter(|(i, j)| *i < GLOBAL[0] && *j < GLOBAL[1]);
            let is_own = (0..2).all(|axis| {
                (self.low[axis]..self.low[axis] + self.owned[axis]).contains(&cell[axis])
            });
            match inside {
                Some((i, j)) if is_own => element(i, j),
                other => ghost(other.map(|(i, j)| [i, j])),
            }
        };
        cells.map(value).collect()
    }
}

fn element(i: u64, j: u64) -> f64 {
    (i * 1000 + j) as f64
}

/// A grid of tiles, one for each rank.
fn tiles(grid: [u64; 2], margins: [[u64; 2]; 2]) -> Vec<Tile> {
    let cut = |axis: usize, at: u64| GLOBAL[axis] * at / grid[axis];
    let places = (0..grid[0]).flat_map(|a| (0..grid[1]).map(move |b| [a, b]));
    let tile = |at: [u64; 2]| Tile {
        offset: [0, 1].map(|axis| cut(axis, at[axis])),
        owned: [0, 1].map(|axis| cut(axis, at[axis] + 1) - cut(axis, at[axis])),
        low: margins[0],
        high: margins[1],
    };
    places.map(tile).collect()
}

fn save_tiles(store: &Arc<dyn Store>, tiles: &[Tile]) {
    let all = tiles.to_vec();
    on(store, tiles.len() as u32, move |run, comm| {
        let tile = &all[comm.rank().0 as usize];
        let data = tile.values(|_| -1.0 - f64::from(comm.rank().0));
        let variable = Variable::new("u", &data).shaped(&tile.shape());
        let variable = variable.part_of(&GLOBAL, &tile.offset).ghosts(&tile.low, &tile.high);
        run.checkpoint(1, &[variable]).unwrap().durable().unwrap();
    });
}

fn restore_tile(run: &mut Run, tile: &Tile) -> Result<Vec<f64>> {
    let shape = tile.shape();
    let mut back = vec![0.25; (shape[0] * shape[1]) as usize];
    let target = VariableMut::new("u", &mut back).shaped(&shape);
    let target = target.part_of(&GLOBAL, &tile.offset).ghosts(&tile.low, &tile.high);
    run.restore(&mut [target])?.unwrap();
    Ok(back)
}

#[test]
fn ghost_cells_come_back_as_they_were_or_from_their_owners() {
    let store = memory();
    let saved = tiles([2, 2], [[1, 2], [1, 0]]);
    save_tiles(&store, &saved);
    let same = saved.clone();
    on(&store, 4, move |run, comm| {
        let tile = &same[comm.rank().0 as usize];
        let expected = tile.values(|_| -1.0 - f64::from(comm.rank().0));
        assert_eq!(restore_tile(run, tile).unwrap(), expected, "bit for bit");
    });
    for (grid, margins) in [
        ([1, 1], [[0, 0], [0, 0]]),
        ([1, 1], [[2, 2], [2, 2]]),
        ([2, 2], [[2, 2], [1, 1]]),
        ([1, 4], [[0, 1], [0, 1]]),
        ([3, 2], [[1, 1], [1, 1]]),
    ] {
        let wanted = tiles(grid, margins);
        on(&store, wanted.len() as u32, move |run, comm| {
            let tile = &wanted[comm.rank().0 as usize];
            let from_owner = |index: Option<[u64; 2]>| index.map_or(0.25, |[i, j]| element(i, j));
            assert_eq!(restore_tile(run, tile).unwrap(), tile.values(from_owner), "{tile:?}");
        });
    }
    let checkpoint = Library::of(store.clone()).checkpoint("r", None).unwrap();
    let all = checkpoint.read_box::<f64>("u", &[0, 0], &GLOBAL).unwrap();
    assert_eq!(all, tiles([1, 1], [[0; 2]; 2])[0].values(|_| 0.0));
    assert_sound(&store);
}

#[test]
fn owned_elements_that_overlap_or_leave_gaps_are_refused() {
    let store = memory();
    let texts = on(&store, 2, |run, comm| {
        let rank = u64::from(comm.rank().0);
        let data = [0u8; 8];
        let mut refused = |low: u64, high: u64| {
            let variable = Variable::new("u", &data).part_of(&[12], &[6 * rank]);
            let saved = run.checkpoint(0, &[variable.ghosts(&[low], &[high])]);
            saved.map(|save| save.durable()).err().map(|error| error.to_string())
        };
        assert_eq!(refused(1, 1), None);
        [refused(0, 0), refused(2, 1), refused(5, 4)].map(Option::unwrap)
    });
    assert!(texts[0][0].contains("reaches beyond") && texts[0] == texts[1], "{texts:?}");
    assert!(texts[0][1].contains("leave gaps: they hold 10 elements of 12"), "{texts:?}");
    assert!(texts[0][2].contains("smaller than its ghost cells"), "{texts:?}");
}

/// The particles of a rank: an identifier each, and three coordinates.
fn particles(rank: u32, step: u64) -> (Vec<u32>, Vec<f32>) {
    let count = 20 + 13 * rank + 5 * step as u32;
    let ids: Vec<u32> = (0..if rank == 1 { 0 } else { count }).map(|at| rank * 1000 + at).collect();
    let places = ids.iter().flat_map(|id| [0.0, 0.25, 0.5].map(|part| *id as f32 + part));
    let places = places.collect();
    (ids, places)
}

fn save_particles(store: &Arc<dyn Store>, ranks: u32, steps: u64) {
    on(store, ranks, move |run, comm| {
        for step in 0..steps {
            let (ids, places) = particles(comm.rank().0, step);
            let shape = [ids.len() as u64, 3];
            let state = [
                Variable::new("id", &ids).rows(),
                Variable::new("x", &places).shaped(&shape).rows(),
            ];
            run.checkpoint(step, &state).unwrap();
        }
    });
}

fn restore_particles(run: &mut Run) -> (Vec<u32>, Vec<f32>) {
    let (mut ids, mut places) = (Vec::new(), Vec::new());
    let state = &mut [VariableMut::growing("x", &mut places), VariableMut::growing("id", &mut ids)];
    assert_eq!(run.restore(state).unwrap().unwrap().step, 2);
    (ids, places)
}

#[test]
fn rows_come_back_to_their_ranks_or_evenly_split_in_order() {
    let store = memory();
    save_particles(&store, 4, 3);
    let all: Vec<u32> = (0..4).flat_map(|rank| particles(rank, 2).0).collect();
    on(&store, 4, |run, comm| {
        assert_eq!(restore_particles(run), particles(comm.rank().0, 2));
    });
    for ranks in [1u32, 2, 3, 6, 9] {
        let parts = on(&store, ranks, |run, _| restore_particles(run));
        let sizes: Vec<usize> = parts.iter().map(|(ids, _)| ids.len()).collect();
        assert!(
            sizes.iter().all(|size| size.abs_diff(all.len() / ranks as usize) <= 1),
            "{sizes:?}"
        );
        let together: Vec<u32> = parts.iter().flat_map(|(ids, _)| ids.clone()).collect();
        assert_eq!(together, all);
        for (ids, places) in parts {
            let of_ids: Vec<f32> =
                ids.iter().flat_map(|id| [0.0, 0.25, 0.5].map(|part| *id as f32 + part)).collect();
            assert_eq!(places, of_ids, "rows of arrays that belong together are split alike");
        }
    }
    let checkpoint = Library::of(store.clone()).checkpoint("r", None).unwrap();
    let read = checkpoint.read_box::<u32>("id", &[3], &[all.len() as u64 - 5]).unwrap();
    assert_eq!(read, all[3..all.len() - 2]);
    assert_sound(&store);
}

#[test]
fn rows_of_two_kinds_are_refused_on_all_ranks() {
    let store = memory();
    let texts = on(&store, 3, |run, comm| {
        let data = [0u8; 12];
        let shape = if comm.rank().0 == 1 { [3, 4] } else { [4, 3] };
        let saved = run.checkpoint(0, &[Variable::new("x", &data).shaped(&shape).rows()]);
        saved.err().unwrap().to_string()
    });
    assert!(texts[0].contains("disagree about the rows of \"x\""), "{texts:?}");
    assert!(texts.iter().all(|text| *text == texts[0]), "{texts:?}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Every row arrives once, where it is wanted, with what belongs to it, in the order of senders.
    #[test]
    fn rows_travel_together_to_whoever_wants_them(
        counts in prop::collection::vec(0usize..40, 1..6),
        salt: u32,
    ) {
        let ranks = counts.len() as u32;
        let wants = move |id: u32| Rank((id ^ salt).wrapping_mul(2_654_435_761) % ranks);
        let rows = counts.clone();
        let ends = ThreadRanks::new(ranks).run(move |comm| {
            let rank = comm.rank().0;
            let mut ids: Vec<u32> =
                (0..rows[rank as usize] as u32).map(|at| rank * 100 + at).collect();
            let mut pairs: Vec<u64> =
                ids.iter().flat_map(|id| [u64::from(*id), u64::from(*id) << 20]).collect();
            let wanted_by: Vec<Rank> = ids.iter().map(|id| wants(*id)).collect();
            let arrays = &mut [
                VariableMut::growing("id", &mut ids),
                VariableMut::growing("pair", &mut pairs),
            ];
            redistribute(&*comm, &wanted_by, arrays).unwrap();
            (ids, pairs)
        });
        let mut arrived = 0;
        for (rank, (ids, pairs)) in all_done(ends).into_iter().enumerate() {
            prop_assert!(ids.is_sorted() && ids.iter().all(|id| wants(*id).0 as usize == rank));
            let of_ids: Vec<u64> =
                ids.iter().flat_map(|id| [u64::from(*id), u64::from(*id) << 20]).collect();
            prop_assert_eq!(pairs, of_ids);
            arrived += ids.len();
        }
        prop_assert_eq!(arrived, counts.iter().sum::<usize>());
    }
}

#[test]
fn a_rank_that_sends_rows_nowhere_is_named_and_nothing_is_touched() {
    let ends = ThreadRanks::new(3).run(|comm| {
        let rank = comm.rank().0;
        let mut data = vec![rank; 6];
        let mut texts = Vec::new();
        let mut wrong = |wanted_by: &[Rank], array: VariableMut| {
            let error = redistribute(&*comm, wanted_by, &mut [array]).unwrap_err();
            texts.push(error.to_string());
        };
        let nowhere = [Rank(if rank == 1 { 3 } else { 0 }); 6];
        wrong(&nowhere, VariableMut::growing("x", &mut data));
        wrong(&[Rank(0); 4][..if rank == 2 { 4 } else { 3 }], VariableMut::growing("x", &mut data));
        wrong(&[Rank(0); 6][..if rank == 2 { 6 } else { 3 }], VariableMut::growing("x", &mut data));
        wrong(&[Rank(0); 6], VariableMut::new("x", &mut data));
        assert_eq!(data, [rank; 6]);
        redistribute(&*comm, &[Rank(2); 6], &mut [VariableMut::growing("x", &mut data)]).unwrap();
        assert_eq!(data.len(), if rank == 2 { 18 } else { 0 });
        texts
    });
    let all = all_done(ends);
    assert!(all[0][0].contains("rank 1 cannot take part"), "{all:?}");
    assert!(all[1][0].contains("there is no rank 3"), "{all:?}");
    assert!(all[2][1].contains("6 elements of array \"x\" are not 4 rows"), "{all:?}");
    assert!(all[2][2].contains("rows of array \"x\" are shorter on rank 2"), "{all:?}");
    assert!(all.iter().all(|texts| texts[3].contains("fixed length")), "{all:?}");
}

/// A store that counts the bytes that are read of packs.
fn counting(inner: &Arc<dyn Store>, read: &Arc<AtomicU64>) -> Arc<dyn Store> {
    let count = read.clone();
    Arc::new(HookedStore::new(inner.clone(), move |call| {
        if let Call::Read(key, bytes) = call
            && key.ends_with(".pack")
        {
            count.fetch_add(bytes as u64, Ordering::SeqCst);
        }
        Ok(())
    }))
}

fn stored(store: &Arc<dyn Store>) -> u64 {
    let items = store.list("runs/r/packs").unwrap();
    items.iter().map(|item| item.size).sum()
}

/// The extent of the cube whose restarts are counted.
const CUBE: [u64; 3] = [96, 128, 128];
/// An array whose planes are longer than frames, as those of large runs are.
const WIDE: [u64; 3] = [8, 1024, 1024];

/// The box of a rank in a cube that is cut into a grid.
fn brick(global: [u64; 3], grid: [u64; 3], rank: u32) -> ([u64; 3], [u64; 3]) {
    let rank = u64::from(rank);
    let at = [rank / (grid[1] * grid[2]), rank / grid[2] % grid[1], rank % grid[2]];
    let cut = |axis: usize, at: u64| global[axis] * at / grid[axis];
    let offset = [0, 1, 2].map(|axis| cut(axis, at[axis]));
    (offset, [0, 1, 2].map(|axis| cut(axis, at[axis] + 1) - offset[axis]))
}

/// The values of a box: all different, so that nothing is stored once for two places.
fn brick_values(offset: [u64; 3], extent: [u64; 3], step: u64) -> Vec<u64> {
    let planes = offset[0]..offset[0] + extent[0];
    planes
        .flat_map(|i| (offset[1]..offset[1] + extent[1]).map(move |j| (i, j)))
        .flat_map(|(i, j)| (offset[2]..offset[2] + extent[2]).map(move |k| (i, j, k)))
        .map(|(i, j, k)| {
            let index = (i << 40) + (j << 20) + k;
            index.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ (step * u64::from(i % 8 == step % 8))
        })
        .collect()
}

fn bricks(store: &Arc<dyn Store>, global: [u64; 3], grid: [u64; 3], steps: u64) {
    let shared = store.clone();
    let ranks = grid.iter().product::<u64>() as u32;
    all_done(ThreadRanks::new(ranks).run(move |comm| {
        let options = Options::in_store(shared.clone(), "r").ranks(comm.clone());
        let mut run = Run::open(options.encoding(Encoding::Raw)).unwrap();
        let (offset, extent) = brick(global, grid, comm.rank().0);
        for step in 0..steps {
            let data = brick_values(offset, extent, step);
            let variable = Variable::new("u", &data).shaped(&extent).part_of(&global, &offset);
            let few = vec![comm.rank().0 as u64; 100];
            let state = [variable, Variable::new("few", &few).rows()];
            run.checkpoint(step, &state).unwrap();
        }
        run.finish().unwrap();
    }));
}

/// A restart reads every frame once, however many ranks restart, in whatever boxes.
#[test]
fn a_restart_reads_what_is_stored_once_whatever_the_ranks() {
    for steps in [1, 4] {
        let store = memory();
        bricks(&store, CUBE, [2, 2, 1], steps);
        let all = stored(&store);
        for grid in [[1, 1, 1], [2, 1, 1], [1, 1, 2], [3, 1, 1], [1, 1, 3], [1, 2, 3], [1, 1, 4]] {
            let read = Arc::new(AtomicU64::new(0));
            let (shared, ranks) = (store.clone(), grid.iter().product::<u64>() as u32);
            let count = read.clone();
            all_done(ThreadRanks::new(ranks).run(move |comm| {
                let seen = counting(&shared, &count);
                let mut run = Run::open(Options::in_store(seen, "r").ranks(comm.clone())).unwrap();
                let before = count.load(Ordering::SeqCst);
                assert_eq!(before, 0, "opening reads no pack");
                comm.agree(true).unwrap();
                let (offset, extent) = brick(CUBE, grid, comm.rank().0);
                let mut back = vec![0u64; extent.iter().product::<u64>() as usize];
                let mut few: Vec<u64> = Vec::new();
                let target = VariableMut::new("u", &mut back).shaped(&extent);
                let target = target.part_of(&CUBE, &offset);
                let few_target = VariableMut::growing("few", &mut few);
                run.restore(&mut [target, few_target]).unwrap().unwrap();
                assert!(back == brick_values(offset, extent, steps - 1), "{grid:?}");
                comm.agree(true).unwrap();
                run.finish().unwrap();
            }));
            let read = read.load(Ordering::SeqCst);
            println!("{steps} steps, {grid:?}: {:.4} of what is stored", read as f64 / all as f64);
            assert!(read as f64 <= 1.05 * all as f64, "{steps}, {grid:?}: {read} of {all}");
        }
    }
}

/// A box costs little more than its own bytes, if it is a slab; a cube that cuts all bricks costs the rows around it.
#[test]
fn a_box_reads_little_more_than_itself() {
    let store = memory();
    bricks(&store, CUBE, [8, 1, 1], 1);
    let cost = |store: &Arc<dyn Store>, offset: [u64; 3], extent: [u64; 3]| {
        let read = Arc::new(AtomicU64::new(0));
        let library = Library::of(counting(store, &read));
        let checkpoint = library.checkpoint("r", None).unwrap();
        let values = checkpoint.read_box::<u64>("u", &offset, &extent).unwrap();
        assert!(values == brick_values(offset, extent, 0));
        read.load(Ordering::SeqCst) as f64 / (extent.iter().product::<u64>() * 8) as f64
    };
    let slab = cost(&store, [5, 0, 0], [24, 128, 128]);
    let cubes = memory();
    bricks(&cubes, WIDE, [2, 2, 2], 1);
    let cube = cost(&cubes, [2, 256, 256], [4, 512, 512]);
    println!("slab {slab:.3}, cube {cube:.3}");
    assert!(slab <= 1.2, "{slab}");
    assert!(cube <= 2.5, "{cube}");
}

/// A slab with strides reads the frames that hold its elements, and no others.
#[test]
fn a_strided_slab_reads_only_the_frames_that_it_needs() {
    // The planes of this array have 8 MiB, its rows 8 KiB.
    const FRAME: u64 = 256 << 10;
    let store = memory();
    bricks(&store, WIDE, [1, 1, 1], 1);
    let all = stored(&store);
    let [_, rows, columns] = WIDE;
    for (offset, extent, stride, frames) in [
        // Two planes.
        ([1, 0, 0], [2, rows, columns], [4, 1, 1], 2 * rows * columns * 8 / FRAME),
        // Two rows of each plane, which lie far apart.
        ([0, 3, 0], [8, 2, columns], [1, 512, 1], 16),
        // Every fourth element of a row of each second plane.
        ([0, 700, 1], [4, 1, 255], [2, 1, 4], 4),
        // One element of each plane.
        ([0, 5, 5], [8, 1, 1], [1, 1, 1], 8),
    ] {
        let read = Arc::new(AtomicU64::new(0));
        let library = Library::of(counting(&store, &read));
        let checkpoint = library.checkpoint("r", None).unwrap();
        // The footer of the pack is read once.
        checkpoint.read_slab::<u64>("u", &Slab::new(&[0, 0, 0], &[1, 1, 1])).unwrap();
        read.store(0, Ordering::SeqCst);
        let slab = Slab::new(&offset, &extent).stride(&stride);
        let values = checkpoint.read_slab::<u64>("u", &slab).unwrap();
        let index = |axis: usize, at: u64| offset[axis] + at * stride[axis];
        let expected = (0..extent[0])
            .flat_map(|i| (0..extent[1]).map(move |j| (i, j)))
            .flat_map(|(i, j)| (0..extent[2]).map(move |k| [i, j, k]))
            .flat_map(|[i, j, k]| brick_values([index(0, i), index(1, j), index(2, k)], [1; 3], 0));
        assert!(values.iter().copied().eq(expected), "{slab:?}");
        let read = read.load(Ordering::SeqCst);
        println!("{slab:?}: {read} of {all} B, {frames} frames");
        assert!(read <= (frames + 2) * (FRAME + FRAME / 64), "{slab:?}: {read} B, {frames} frames");
        // The same without its type.
        let again = Arc::new(AtomicU64::new(0));
        let checkpoint = Library::of(counting(&store, &again)).checkpoint("r", None).unwrap();
        checkpoint.read_array_slab("u", &Slab::new(&[0, 0, 0], &[1, 1, 1])).unwrap();
        again.store(0, Ordering::SeqCst);
        let array = checkpoint.read_array_slab("u", &slab).unwrap();
        assert!(again.load(Ordering::SeqCst) <= read, "{slab:?}: {again:?} B");
        assert_eq!(array.shape.0, extent);
        assert!(array.values::<u64>().unwrap() == values, "{slab:?}");
    }
}

/// Damage, or an error of access, that one rank meets reaches all of them; nobody waits.
#[test]
fn trouble_of_one_reader_is_told_to_all() {
    let store = memory();
    save_particles(&store, 4, 3);
    // The footers of the three packs of a group take seven reads.
    for (kind, ranks, good) in [
        (ErrorKind::Io, 2, 0),
        (ErrorKind::Io, 2, 7),
        (ErrorKind::Io, 6, 7),
        (ErrorKind::Damaged, 3, 0),
        (ErrorKind::Damaged, 3, 7),
    ] {
        let shared = store.clone();
        let texts = all_done(ThreadRanks::new(ranks).run(move |comm| {
            let reads = AtomicU64::new(0);
            let broken = HookedStore::new(shared.clone(), move |call| match call {
                Call::Read(key, _)
                    if key.ends_with("-g0.pack")
                        && reads.fetch_add(1, Ordering::SeqCst) >= good =>
                {
                    Err(Error::new(kind, "the disk is on fire"))
                }
                _ => Ok(()),
            });
            let broken: Arc<dyn Store> = Arc::new(broken);
            let mut run = Run::open(options(&broken, &comm)).unwrap();
            let mut ids: Vec<u32> = Vec::new();
            let error = run.restore(&mut [VariableMut::growing("id", &mut ids)]).unwrap_err();
            run.finish().unwrap();
            (error.kind(), error.to_string())
        }));
        assert!(texts.iter().all(|text| *text == texts[0]), "{texts:?}");
        assert_eq!(texts[0].0, kind, "{texts:?}");
        assert!(kind != ErrorKind::Io || texts[0].1.contains("the disk is on fire"), "{texts:?}");
    }
}
