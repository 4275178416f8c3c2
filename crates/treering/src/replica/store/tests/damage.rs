//! Messages that arrive damaged.

use super::*;
use crate::array::{Variable, VariableMut};

/// A communicator that damages the messages of one exchange on rank 1.
fn damaging(comm: Arc<dyn Comm>, world: &ThreadRanks, call: u64, byte: usize) -> Arc<dyn Comm> {
    let damages = comm.rank() == Rank(1);
    let comm = PartialComm::new(comm, world.clone(), Vec::new());
    Arc::new(if damages { comm.with_damage(call, byte) } else { comm })
}

/// Submits even shares: the first time at once, later in rounds.
fn submit_in(store: &mut ReplicaStore, tag: u64) -> Result<()> {
    if tag == 1 {
        return submit_even(store, tag, 160).map(drop);
    }
    let ids = share(store.link.rank().0, 4, 160);
    store.begin_submit(tag, Arc::new(blocks(tag, ids.clone(), 8)), ids.start)?;
    store.finish()
}

#[test]
fn a_submit_with_damaged_messages_is_refused_on_all_ranks_and_loads_find_other_copies() {
    let mut refused = 0;
    for call in 3..64 {
        for byte in [0, 30, 300, 600, 999] {
            let world = ThreadRanks::new(4);
            let inner = world.clone();
            let ends = run(&world, move |comm| {
                let rank = comm.rank().0;
                let comm = damaging(comm, &inner, call, byte);
                let settings = ReplicaSettings { piece: 300, ..small() };
                let mut store = ReplicaStore::new(comm, 3, settings).unwrap();
                let mut errors = Vec::new();
                for tag in 1..4 {
                    match submit_in(&mut store, tag) {
                        Ok(()) => {}
                        Err(error) => {
                            let kinds = [ErrorKind::Damaged, ErrorKind::Mismatch];
                            assert!(kinds.contains(&error.kind()), "{error}");
                            assert_eq!(store.newest().map_or(0, |info| info.tag), tag - 1);
                            errors.push(error.to_string());
                            submit_even(&mut store, tag, 160).unwrap();
                        }
                    }
                    let loaded = store.load(&[3..150]).unwrap();
                    assert!(loaded.lost.is_empty() && loaded.bytes == blocks(tag, 3..150, 8));
                    let list: Vec<(Rank, Range<u64>)> =
                        (0..4).map(|rank| (Rank(rank), 0..160)).collect();
                    let loaded = store.load_all(&list).unwrap();
                    assert!(loaded.lost.is_empty() && loaded.bytes == blocks(tag, 0..160, 8));
                }
                assert_eq!(store.scrub().unwrap().repaired, [], "rank {rank}");
                errors
            });
            let ends = survivors(ends);
            assert!(ends.len() == 4 && ends.iter().all(|errors| *errors == ends[0]), "{ends:?}");
            refused += ends[0].len();
        }
    }
    // Rounds of submits are among these calls.
    assert!(refused >= 30, "{refused} submits were refused");
}

/// Bytes that a rank has verified travel once more to the ranks whose arrays they fill.
#[test]
fn arrays_are_filled_with_what_was_submitted_or_not_at_all() {
    let mut refused = 0;
    for call in 3..40 {
        for byte in [0, 100, 500, 999] {
            let world = ThreadRanks::new(3);
            let inner = world.clone();
            let ends = run(&world, move |comm| {
                let own = u64::from(comm.rank().0);
                let comm = damaging(comm, &inner, call, byte);
                let mut store = ReplicaStore::new(comm, 2, small()).unwrap();
                let cells: Vec<u64> = (own * 40..own * 40 + 40).collect();
                let cells = Variable::new("cells", &cells).part_of(&[120], &[own * 40]);
                // A submit that is refused is made again.
                let submitted = store.submit_variables(1, std::slice::from_ref(&cells));
                submitted.or_else(|_| store.submit_variables(1, &[cells])).unwrap();
                // Every rank wants the cells of others, too.
                let mut back = vec![7u64; 80];
                let target = VariableMut::new("cells", &mut back).part_of(&[120], &[own * 20]);
                let loaded = store.load_variables(&mut [target]);
                match &loaded {
                    Ok(()) => assert!(back.iter().copied().eq(own * 20..own * 20 + 80)),
                    Err(error) => {
                        let kinds = [ErrorKind::Damaged, ErrorKind::Lost];
                        assert!(kinds.contains(&error.kind()), "{error}");
                    }
                }
                loaded.is_ok()
            });
            let ends = survivors(ends);
            assert!(ends.len() == 3 && ends.iter().all(|well| *well == ends[0]), "{ends:?}");
            refused += usize::from(!ends[0]);
        }
    }
    assert!(refused >= 8, "{refused} loads were refused");
}
