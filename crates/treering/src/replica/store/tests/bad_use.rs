//! Bad use is one clear error, the same on all ranks.

use super::*;
use crate::array::Variable;
use crate::comm::Alone;

/// The error of every rank, which must be the same, and a store that works afterwards.
fn refused(
    ranks: u32,
    settings: impl Fn(u32) -> ReplicaSettings + Send + Sync + 'static,
    call: impl Fn(&mut ReplicaStore, u32) -> Result<()> + Send + Sync + 'static,
) -> String {
    let ends = run(&ThreadRanks::new(ranks), move |comm| {
        let rank = comm.rank().0;
        let mut store = match ReplicaStore::new(comm, 2, settings(rank)) {
            Ok(store) => store,
            Err(error) => return error.to_string(),
        };
        let error = call(&mut store, rank).unwrap_err();
        submit_even(&mut store, 77, 30).unwrap();
        assert_eq!(store.load(&[0..30]).unwrap().bytes, blocks(77, 0..30, 8));
        error.to_string()
    });
    let texts = survivors(ends);
    assert!(
        texts.len() == ranks as usize && texts.iter().all(|text| *text == texts[0]),
        "{texts:?}"
    );
    texts[0].clone()
}

fn expect(text: String, part: &str) {
    assert!(text.contains(part), "{text:?} does not say {part:?}");
}

#[test]
fn every_bad_use_is_one_sentence_on_all_ranks() {
    let nothing = |_: &mut ReplicaStore, _| Ok(());
    expect(
        refused(
            3,
            |rank| ReplicaSettings { block_size: 8 + u64::from(rank / 2), ..small() },
            nothing,
        ),
        "differ in the settings",
    );
    expect(
        refused(3, |_| ReplicaSettings { block_size: 0, ..small() }, nothing),
        "invalid replicas",
    );
    expect(
        refused(3, |_| ReplicaSettings { domains: vec!["a".into()], ..small() }, nothing),
        "1 failure domains",
    );
    let settings = |_| small();
    expect(
        refused(3, settings, |store, _| store.load(&[0..1]).map(drop)),
        "nothing has been submitted",
    );
    expect(
        refused(3, settings, |store, _| store.load_all(&[]).map(drop)),
        "nothing has been submitted",
    );
    expect(refused(3, settings, |store, _| store.remake().map(drop)), "nothing has been submitted");
    expect(refused(3, settings, |store, _| store.scrub().map(drop)), "nothing has been submitted");
    expect(
        refused(3, settings, |store, _| store.submit_changed(1, &[]).map(drop)),
        "nothing has been submitted",
    );
    // What no checkpoint could hold could not be described to other ranks either.
    let text = refused(3, settings, |store, rank| {
        let name = if rank == 1 { "a\u{7}b" } else { "ab" };
        store.submit_variables(1, &[Variable::new(name, &[1u8; 100])]).map(drop)
    });
    expect(text, "no control characters");
    let text = refused(3, settings, |store, rank| {
        submit_even(store, 1, 30)?;
        let end = 30 + u64::from(rank == 2);
        store.load(&[0..3, 29..end]).map(drop)
    });
    expect(text, "blocks 29..31 were never submitted");
    let text = refused(3, settings, |store, rank| {
        submit_even(store, 1, 30)?;
        store.load_all(&[(Rank(0), 0..1 + u64::from(rank))]).map(drop)
    });
    expect(text, "differ in the list of requests");
    let text = refused(3, settings, |store, rank| {
        submit_even(store, 1, 30)?;
        store.load_into(&[0..3], &mut vec![0; 24 + rank as usize / 2]).map(drop)
    });
    expect(text, "24 bytes, but the memory for them is 25");
    let text = refused(3, settings, |store, _| {
        submit_even(store, 1, 30)?;
        store.load_all(&[(Rank(3), 0..1)]).map(drop)
    });
    expect(text, "there is no rank 3");
    expect(
        refused(3, settings, |store, rank| {
            store.submit(u64::from(rank), &[0; 8], u64::from(rank)).map(drop)
        }),
        "differ in the tag",
    );
    expect(
        refused(3, settings, |store, rank| {
            store.submit(1, &vec![0; 8 + rank as usize], u64::from(rank)).map(drop)
        }),
        "not a whole number of blocks",
    );
    expect(
        refused(3, settings, |store, rank| store.submit(1, &[0; 16], u64::from(rank)).map(drop)),
        "are submitted by rank 0 and by rank 1",
    );
    expect(
        refused(3, settings, |store, rank| {
            store.submit(1, &[0; 16], 3 * u64::from(rank)).map(drop)
        }),
        "blocks 2..3 are submitted by no rank",
    );
    expect(
        refused(
            3,
            |_| ReplicaSettings { keep_own: true, ..small() },
            |store, rank| store.submit(1, &[0; 16], 4 - 2 * u64::from(rank)).map(drop),
        ),
        "shares in the order of ranks",
    );
    let text = refused(3, settings, |store, _| {
        submit_even(store, 1, 30)?;
        store.submit_changed(2, &[(3, &[0; 8])]).map(drop)
    });
    expect(text, "changed twice");
    let text = refused(3, settings, |store, rank| {
        submit_even(store, 1, 30)?;
        store.submit_changed(2, if rank == 1 { &[(29, &[0; 16])] } else { &[] }).map(drop)
    });
    expect(text, "blocks 29..31 were never submitted");
    let text = refused(3, settings, |store, rank| {
        submit_even(store, 1, 30)?;
        match rank {
            0 => store.scrub().map(drop),
            _ => store.load(&[]).map(drop),
        }
    });
    expect(text, "different calls");
}

#[test]
fn a_communicator_that_has_shrunk_since_is_refused_with_advice() {
    let ranks = ThreadRanks::new(4);
    let kill = ranks.clone();
    let ends = run(&ranks, move |comm| {
        let rank = comm.rank();
        let mut store = ReplicaStore::new(comm.clone(), 2, small()).unwrap();
        submit_even(&mut store, 1, 100).unwrap();
        if rank == Rank(3) {
            kill.kill(rank);
        }
        let error = store.load(&[0..100]).unwrap_err();
        let text = error.to_string();
        assert!(
            error.is_death() && (text.contains("go_on_with") || text.contains("go on with")),
            "{text}"
        );
        comm.revoke().unwrap();
        let smaller = comm.shrink().unwrap();
        // Still the old communicator.
        assert!(store.load(&[0..100]).unwrap_err().is_death());
        assert!(store.settle().unwrap_err().is_death());
        assert_eq!(store.go_on_with(smaller).unwrap().dead, [StartRank(3)]);
        assert_eq!(store.load(&[0..100]).unwrap().bytes, blocks(1, 0..100, 8));
        let error = store.load_all(&[(Rank(3), 0..1)]).unwrap_err();
        assert!(error.to_string().contains("there is no rank 3, but only 3"), "{error}");
    });
    assert_eq!(survivors(ends).len(), 3);
}

#[test]
fn one_rank_alone_is_a_store_too() {
    let mut store = ReplicaStore::new(Arc::new(Alone::new()), 4, small()).unwrap();
    submit_even(&mut store, 1, 10).unwrap();
    store.submit_changed(2, &[(3, &blocks(2, 3..5, 8))]).unwrap();
    let expected = [blocks(1, 0..3, 8), blocks(2, 3..5, 8), blocks(1, 5..10, 8)].concat();
    assert_eq!(store.load(&[0..10]).unwrap().bytes, expected);
    assert!(store.remake().unwrap().lost.is_empty() && store.scrub().unwrap().lost.is_empty());
    assert_eq!(store.traffic().messages_sent, 0);
}
