//! Variables: boxes, rows, what is the same on all ranks; on fewer ranks, in other boxes, and with few changes.

use super::*;
use crate::array::{Variable, VariableMut};
use crate::comm::Reduction;
use crate::replica::permutation::mix;
use crate::replica::store::variables::TURNS;
use proptest::prelude::*;

const ROWS: u64 = 23;
const LENGTH: u64 = 300;

fn cell(at: u64, tag: u64) -> f32 {
    // Few cells change from one tag to the next.
    let moved = if at.is_multiple_of(5000) { tag } else { 0 };
    (at * 3 + moved) as f32
}

fn cells(rows: Range<u64>, tag: u64) -> Vec<f32> {
    (rows.start * LENGTH..rows.end * LENGTH).map(|at| cell(at, tag)).collect()
}

fn submit(store: &mut ReplicaStore, rank: u32, ranks: u32, tag: u64) -> Result<GenerationNumber> {
    let rows = share(rank, ranks, ROWS);
    let (own, names) = (cells(rows.clone(), tag), [rank, tag as u32]);
    let dust: Vec<u64> = (0..u64::from(rank) + 2).map(|at| u64::from(rank) * 100 + at).collect();
    let grid = Variable::new("grid", &own).shaped(&[rows.end - rows.start, LENGTH]);
    let grid = grid.part_of(&[ROWS, LENGTH], &[rows.start, 0]);
    let dust = Variable::new("dust", &dust).rows();
    let clock = [tag; 3];
    let mut all = vec![grid, dust, Variable::new("names", &names)];
    if rank == 0 {
        all.push(Variable::new("clock", &clock).same());
    }
    store.submit_variables(tag, &all)
}

/// Loads the columns of a rank, instead of its rows, and compares everything.
fn check(store: &mut ReplicaStore, comm: &dyn Comm, ranks: u32, tag: u64) -> Result<u64> {
    let columns = share(comm.rank().0, comm.size(), LENGTH);
    let width = columns.end - columns.start;
    let mut grid = vec![0f32; (ROWS * width) as usize];
    let (mut dust, mut clock) = (Vec::<u64>::new(), [0u64; 3]);
    let target = VariableMut::new("grid", &mut grid).shaped(&[ROWS, width]);
    store.load_variables(&mut [
        target.part_of(&[ROWS, LENGTH], &[0, columns.start]),
        VariableMut::growing("dust", &mut dust),
        VariableMut::new("clock", &mut clock),
    ])?;
    let wanted =
        (0..ROWS).flat_map(|row| columns.clone().map(move |at| cell(row * LENGTH + at, tag)));
    assert!(grid == wanted.collect::<Vec<_>>() && clock == [tag; 3]);
    let mut grains = [dust.len() as u64, dust.iter().sum()];
    comm.reduce(Reduction::Sum, &mut grains)?;
    let all = (0..u64::from(ranks)).flat_map(|rank| (0..rank + 2).map(move |at| rank * 100 + at));
    assert_eq!(grains, [all.clone().count() as u64, all.sum()]);
    Ok(grains[0])
}

#[test]
fn variables_come_back_on_fewer_ranks_in_other_boxes() {
    for victim in 0..5 {
        let world = ThreadRanks::new(5);
        let kill = world.clone();
        let ends = run(&world, move |mut comm| {
            let own = comm.rank();
            let mut store = ReplicaStore::new(comm.clone(), 2, small()).unwrap();
            submit(&mut store, own.0, 5, 7).unwrap();
            check(&mut store, &*comm, 5, 7).unwrap();
            if own.0 == victim {
                kill.kill(own);
            }
            let error = store.settle().unwrap_err();
            assert!(error.is_death());
            recover(&mut store, &mut comm);
            check(&mut store, &*comm, 5, 7).unwrap();
            // Variables of one rank come back on the same number of ranks only.
            let mut names = [0u32; 2];
            let alone = store.load_variables(&mut [VariableMut::new("names", &mut names)]);
            assert!(alone.is_err());
            submit(&mut store, comm.rank().0, comm.size(), 8).unwrap();
            check(&mut store, &*comm, 4, 8).unwrap();
            store.load_variables(&mut [VariableMut::new("names", &mut names)]).unwrap();
            assert_eq!(names, [comm.rank().0, 8]);
        });
        assert_eq!(survivors(ends).len(), 4);
    }
}

#[test]
fn few_changes_send_few_bytes_and_other_lengths_everything() {
    let ends = run(&ThreadRanks::new(3), |comm| {
        let own = comm.rank().0;
        let settings = ReplicaSettings { block_size: 8, range_blocks: 64, ..small() };
        let mut store = ReplicaStore::new(comm.clone(), 2, settings).unwrap();
        let mut sent = Vec::new();
        for tag in 1..4 {
            let before = store.traffic().bytes_sent;
            submit(&mut store, own, 3, tag).unwrap();
            sent.push(store.traffic().bytes_sent - before);
            check(&mut store, &*comm, 3, tag).unwrap();
        }
        let mut most = [0; 3];
        most.copy_from_slice(&sent);
        comm.reduce(Reduction::Max, &mut most).unwrap();
        // One more value on one rank moves the streams of the others.
        let longer = vec![5u8; 100 + own as usize];
        store.submit_variables(9, &[Variable::new("longer", &longer)]).unwrap();
        let mut back = vec![0u8; 100 + own as usize];
        store.load_variables(&mut [VariableMut::new("longer", &mut back)]).unwrap();
        assert!(back == longer);
        most
    });
    let sent = survivors(ends)[0];
    assert!(sent[1] < sent[0] / 2 && sent[2] < sent[0] / 2, "{sent:?}");
}

/// Arrays of bytes by their lengths, each with content of its own that does not depend on its length.
fn arrays_of(lengths: &[usize], rank: u32) -> Vec<(String, Vec<u8>)> {
    let array = |(at, length): (usize, &usize)| {
        let seed = u64::from(rank) << 32 | (at as u64) << 16;
        let bytes = (0..*length as u64).map(|byte| mix(seed ^ byte) as u8);
        (format!("array{at}"), bytes.collect())
    };
    lengths.iter().enumerate().map(array).collect()
}

fn submit_arrays(store: &mut ReplicaStore, tag: u64, arrays: &[(String, Vec<u8>)]) -> Result<()> {
    let variables = arrays.iter().map(|(name, bytes)| Variable::new(name, bytes));
    store.submit_variables(tag, &variables.collect::<Vec<_>>()).map(drop)
}

fn check_arrays(store: &mut ReplicaStore, arrays: &[(String, Vec<u8>)]) {
    let mut back: Vec<Vec<u8>> = arrays.iter().map(|(_, bytes)| vec![0; bytes.len()]).collect();
    let targets = arrays.iter().zip(&mut back);
    let mut targets: Vec<VariableMut> =
        targets.map(|((name, _), back)| VariableMut::new(name, back)).collect();
    store.load_variables(&mut targets).unwrap();
    drop(targets);
    for ((name, bytes), back) in arrays.iter().zip(back) {
        assert!(*bytes == back, "{name} of {} bytes", bytes.len());
    }
}

/// The number of blocks is the same, and so is that of chunks, but the array in the middle lies elsewhere.
#[test]
fn an_array_that_is_moved_by_others_is_sent_though_it_is_unchanged() {
    let ends = run(&ThreadRanks::new(3), |comm| {
        let mut store = ReplicaStore::new(comm.clone(), 2, small()).unwrap();
        for (tag, blocks) in [[100, 256, 50], [50, 256, 100]].into_iter().enumerate() {
            let arrays = arrays_of(&blocks.map(|blocks| blocks * 8), comm.rank().0);
            submit_arrays(&mut store, tag as u64, &arrays).unwrap();
            check_arrays(&mut store, &arrays);
        }
    });
    assert_eq!(survivors(ends).len(), 3);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]
    /// Whatever arrays give to each other on some ranks, all come back.
    #[test]
    fn arrays_whose_lengths_shift_come_back(
        first in prop::collection::vec(0usize..600, 2..6),
        shifts in prop::collection::vec((0usize..6, 0usize..6, 0usize..300, 1u8..8, any::<bool>()), 1..6),
    ) {
        let ends = run(&ThreadRanks::new(3), move |comm| {
            let own = comm.rank().0;
            let mut store = ReplicaStore::new(comm.clone(), 2, small()).unwrap();
            let mut blocks = first.clone();
            let mut submit = |tag: u64, blocks: &[usize], cut: usize| {
                let lengths: Vec<usize> =
                    blocks.iter().map(|blocks| (blocks * 8).saturating_sub(cut)).collect();
                let arrays = arrays_of(&lengths, own);
                submit_arrays(&mut store, tag, &arrays).unwrap();
                check_arrays(&mut store, &arrays);
            };
            submit(0, &blocks, 0);
            for (at, (from, to, count, ranks, cut)) in shifts.iter().enumerate() {
                let (from, to) = (from % blocks.len(), to % blocks.len());
                let count = *count.min(&blocks[from]);
                if ranks >> own & 1 == 1 {
                    blocks[from] -= count;
                    blocks[to] += count;
                }
                submit(at as u64 + 1, &blocks, usize::from(*cut));
            }
        });
        prop_assert_eq!(survivors(ends).len(), 3);
    }
}

#[test]
fn lost_variables_are_named_and_blocks_are_no_variables() {
    let world = ThreadRanks::new(4);
    let kill = world.clone();
    let ends = run(&world, move |mut comm| {
        let own = comm.rank();
        let mut store = ReplicaStore::new(comm.clone(), 2, small()).unwrap();
        store.submit(1, &block(1, 3, 64), u64::from(own.0) * 8).unwrap();
        let error = store.load_variables(&mut []).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Usage);
        submit(&mut store, own.0, 4, 2).unwrap();
        // Ranks 1 and 3 are the holders of every second range.
        if own.0 % 2 == 1 {
            kill.kill(own);
        }
        assert!(store.settle().unwrap_err().is_death());
        recover(&mut store, &mut comm);
        let error = check(&mut store, &*comm, 4, 2).unwrap_err();
        (error.kind(), error.to_string())
    });
    let errors = survivors(ends);
    assert_eq!(errors.len(), 2);
    let named = errors.iter().filter(|(_, text)| text.contains("are lost")).count();
    assert!(named > 0 && errors.iter().all(|(kind, _)| *kind != ErrorKind::Usage), "{errors:?}");
}

/// Constant variables are taken as they were while their address is the same, but not for ever if that is wrong.
#[test]
fn constant_variables_are_looked_at_in_turns() {
    let ends = run(&ThreadRanks::new(3), |comm| {
        let own = comm.rank().0;
        let mut store = ReplicaStore::new(comm.clone(), 2, small()).unwrap();
        let mut mesh: Vec<u64> = (0..50_000).map(|at| at * 7 + u64::from(own)).collect();
        let submit = |store: &mut ReplicaStore, mesh: &[u64], tag: u64| {
            let mesh = Variable::new("mesh", mesh).constant();
            store.submit_variables(tag, &[mesh, Variable::new("tag", &[tag])])
        };
        let check = |store: &mut ReplicaStore, mesh: &[u64], tag: u64| {
            let (mut back, mut told) = (vec![0u64; mesh.len()], [0]);
            let targets =
                &mut [VariableMut::new("mesh", &mut back), VariableMut::new("tag", &mut told)];
            store.load_variables(targets).unwrap();
            assert!(back == mesh && told == [tag], "{tag}");
        };
        for tag in 0..3 {
            submit(&mut store, &mesh, tag).unwrap();
            check(&mut store, &mesh, tag);
        }
        // Elsewhere it may be another one.
        let mut moved = mesh.clone();
        moved[777] += 1;
        submit(&mut store, &moved, 3).unwrap();
        check(&mut store, &moved, 3);
        submit(&mut store, &mesh, 4).unwrap();
        check(&mut store, &mesh, 4);
        // A restore may fill it with something else.
        mesh[777] += 5;
        store.look_again();
        submit(&mut store, &mesh, 5).unwrap();
        check(&mut store, &mesh, 5);
        // A rank that breaks the promise gets an error, and so do the others.
        mesh[40_000] += u64::from(own == 1);
        let mut tries = (6..6 + TURNS).map(|tag| submit(&mut store, &mesh, tag));
        let error = tries.find_map(Result::err).expect("every chunk has its turn");
        assert_eq!(error.kind(), ErrorKind::Usage);
        assert!(error.to_string().contains("\"mesh\" is said to be constant"), "{error}");
        error.is_repeated()
    });
    assert_eq!(survivors(ends), [true, false, true]);
}
