//! Submits and loads without deaths.

use super::*;

#[test]
fn every_rank_loads_every_block_whatever_the_ranks_copies_and_shares() {
    for (ranks, copies) in [(1, 1), (1, 3), (2, 2), (3, 2), (4, 1), (5, 4), (9, 3)] {
        for (seed, keep_own) in [(Some(3), false), (None, false), (Some(4), true)] {
            let ends = run(&ThreadRanks::new(ranks), move |comm| {
                let rank = comm.rank().0;
                let settings = ReplicaSettings { seed, keep_own, ..small() };
                let mut store = ReplicaStore::new(comm, copies, settings).unwrap();
                // Unequal shares; every third rank submits nothing.
                let count = |rank: u32| if rank % 3 == 1 { 0 } else { u64::from(rank) * 5 + 3 };
                let first: u64 = (0..rank).map(count).sum();
                let given = if count(rank) == 0 { u64::MAX } else { first };
                let all: u64 = (0..ranks).map(count).sum();
                for tag in 1..4 {
                    let own = blocks(tag, first..first + count(rank), 8);
                    assert_eq!(store.submit(tag, &own, given).unwrap(), GenerationNumber(tag));
                    let loaded = store.load(&[0..all]).unwrap();
                    assert_eq!(
                        loaded,
                        LoadedBlocks { bytes: blocks(tag, 0..all, 8), ..LoadedBlocks::default() }
                    );
                    let some = store.load(&[all - 1..all, 2..2, 1..all / 2]).unwrap();
                    let expected =
                        [blocks(tag, all - 1..all, 8), blocks(tag, 1..all / 2, 8)].concat();
                    assert_eq!(some.bytes, expected);
                    let mut into = vec![7; expected.len()];
                    let some = store.load_into(&[all - 1..all, 1..all / 2], &mut into).unwrap();
                    assert!(into == expected && some == LoadedBlocks::default());
                    let list: Vec<(Rank, Range<u64>)> = (0..ranks)
                        .flat_map(|rank| [(Rank(rank), 0..all - 1), (Rank(rank), 1..2)])
                        .collect();
                    let known = store.load_all(&list).unwrap();
                    assert_eq!(
                        known.bytes,
                        [blocks(tag, 0..all - 1, 8), blocks(tag, 1..2, 8)].concat()
                    );
                    assert!(known.lost.is_empty() && known.bad_copies == 0);
                }
                let info = store.newest().unwrap();
                assert_eq!((info.tag, info.blocks, info.copies), (3, all, copies.min(ranks)));
            });
            assert_eq!(survivors(ends).len(), ranks as usize);
        }
    }
}

#[test]
fn large_parts_travel_as_they_are() {
    let ends = run(&ThreadRanks::new(3), |comm| {
        let settings = ReplicaSettings {
            block_size: 64,
            range_blocks: 512,
            piece: 150_000,
            ..ReplicaSettings::default()
        };
        let mut store = ReplicaStore::new(comm, 2, settings).unwrap();
        // Shares that cut ranges: parts of both kinds.
        submit_even(&mut store, 1, 10_000).unwrap();
        let sent = store.traffic();
        let loaded = store.load(&[0..10_000]).unwrap();
        assert!(loaded.bytes == blocks(1, 0..10_000, 64) && loaded.lost.is_empty());
        (sent, store.traffic())
    });
    let ends = survivors(ends);
    let sum = |traffic: fn(&ReplicaTraffic) -> u64| {
        (
            ends.iter().map(|(sent, _)| traffic(sent)).sum::<u64>(),
            ends.iter().map(|(_, all)| traffic(all)).sum::<u64>(),
        )
    };
    // Every byte that is sent is received; there are little more than the remote copies: at most two copies of
    // everything.
    assert_eq!(sum(|t| t.bytes_sent), sum(|t| t.bytes_received));
    assert_eq!(sum(|t| t.messages_sent), sum(|t| t.messages_received));
    let (submitted, _) = sum(|t| t.bytes_sent);
    assert!((640_000..1_300_000).contains(&submitted), "{submitted}");
}

#[test]
fn a_list_known_to_all_needs_no_requests() {
    let ends = run(&ThreadRanks::new(4), |comm| {
        let rank = comm.rank();
        let mut store = ReplicaStore::new(comm, 2, small()).unwrap();
        submit_even(&mut store, 1, 400).unwrap();
        let list: Vec<(Rank, Range<u64>)> = (0..4).map(|rank| (Rank(rank), 0..400)).collect();
        let before = store.traffic().messages_sent;
        let known = store.load_all(&list).unwrap();
        let between = store.traffic().messages_sent;
        let asked = store.load(&[0..400]).unwrap();
        assert_eq!(known, asked);
        assert_eq!(known.bytes, blocks(1, 0..400, 8), "{rank}");
        (between - before, store.traffic().messages_sent - between)
    });
    for (known, asked) in survivors(ends) {
        assert!(known < asked, "{known} messages without requests, {asked} with them");
    }
}

#[test]
fn damaged_copies_are_passed_over_and_scrub_replaces_them() {
    let ends = run(&ThreadRanks::new(4), |comm| {
        let rank = comm.rank().0;
        let mut store = ReplicaStore::new(comm, 2, small()).unwrap();
        submit_even(&mut store, 1, 400).unwrap();
        // Ranks 0 and 2 hold the same ranges: never damage a range on both.
        let damaged: Vec<RangeId> = match rank {
            0 => (0..5).filter_map(|nth| damage(&mut store, 2 * nth)).collect(),
            2 => (0..5).filter_map(|nth| damage(&mut store, 2 * nth + 1)).collect(),
            _ => Vec::new(),
        };
        for _ in 0..2 {
            let loaded = store.load(&[3..399]).unwrap();
            assert!(loaded.bytes == blocks(1, 3..399, 8) && loaded.lost.is_empty());
        }
        let list: Vec<(Rank, Range<u64>)> = (0..4).map(|rank| (Rank(rank), 0..400)).collect();
        let loaded = store.load_all(&list).unwrap();
        assert!(loaded.bytes == blocks(1, 0..400, 8) && loaded.lost.is_empty());
        assert!(loaded.bad_copies > 0, "{rank}");
        let scrubbed = store.scrub().unwrap();
        assert!(scrubbed.lost.is_empty());
        let repaired: u64 = scrubbed.repaired.iter().map(|blocks| blocks.end - blocks.start).sum();
        assert_eq!(repaired, 4 * damaged.len() as u64);
        assert_eq!(intact(&store).len() as u64, scrubbed.ranges);
        assert_eq!(store.load(&[0..400]).unwrap().bad_copies, 0);
    });
    assert_eq!(survivors(ends).len(), 4);
}

#[test]
fn blocks_whose_copies_are_all_damaged_are_named() {
    let ends = run(&ThreadRanks::new(2), |comm| {
        let mut store = ReplicaStore::new(comm, 2, small()).unwrap();
        submit_even(&mut store, 1, 40).unwrap();
        let range = damage(&mut store, 3).unwrap();
        let lost = 4 * range.0..4 * range.0 + 4;
        let loaded = store.load(&[0..40]).unwrap();
        assert_eq!(loaded.lost, vec![lost.clone()]);
        let scrubbed = store.scrub().unwrap();
        assert_eq!((scrubbed.repaired, scrubbed.lost), (vec![], vec![lost.clone()]));
        let part = store.load(&[lost.start + 1..lost.start + 2]).unwrap();
        assert_eq!((part.lost, part.bytes), (vec![lost.start + 1..lost.start + 2], vec![0; 8]));
        let fresh = blocks(2, lost.clone(), 8);
        let own = store.link.rank() == Rank(0);
        // A whole range can be replaced, a damaged one cannot be changed in part.
        let (part, whole) = ([(lost.start, &fresh[..8])], [(lost.start, &fresh[..])]);
        let error = store.submit_changed(2, if own { &part } else { &[] }).unwrap_err();
        assert!(
            error.kind() == ErrorKind::Damaged && error.to_string().contains("scrub"),
            "{error}"
        );
        store.submit_changed(2, if own { &whole } else { &[] }).unwrap();
        assert!(store.load(&[0..40]).unwrap().lost.is_empty());
    });
    assert_eq!(survivors(ends).len(), 2);
}

#[test]
fn named_pieces_of_any_size_come_back_by_name() {
    let ends = run(&ThreadRanks::new(5), |comm| {
        let rank = comm.rank().0;
        let mut store = ReplicaStore::new(comm, 2, small()).unwrap();
        let size = |rank: u32, at: u32| (rank * 37 + at * 19) as usize % 130;
        let name = |rank: u32, at: u32| format!("rank {rank} piece {at}");
        for tag in 1..4u8 {
            let names: Vec<String> = (0..rank % 4).map(|at| name(rank, at)).collect();
            let names: Vec<&str> = names.iter().map(|name| &name[..]).collect();
            let mut at = 0;
            let serialise = |_: &str, bytes: &mut Vec<u8>| {
                bytes.resize(bytes.len() + size(rank, at), tag + rank as u8 * 16 + at as u8);
                at += 1;
                Ok(())
            };
            if tag == 1 {
                store.submit_named(tag.into(), &names, serialise).unwrap();
            } else {
                store.begin_submit_named(tag.into(), &names, serialise).unwrap();
                assert_eq!(store.newest().unwrap().tag, u64::from(tag) - 1);
                while store.progress().unwrap().rounds_left > 0 {}
            }
            for other in 0..5 {
                for at in 0..other % 4 {
                    let piece = store.load_named(&[&name(other, at)]).unwrap();
                    let bytes = vec![tag + other as u8 * 16 + at as u8; size(other, at)];
                    assert_eq!(piece, [LoadedPiece { name: name(other, at), bytes: Some(bytes) }]);
                }
            }
        }
        let error = store.load_named(&["nobody"]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound);
        let error = store.submit_named(9, &["twice"], |_, _| Ok(())).unwrap_err();
        assert!(error.to_string().contains("\"twice\" is submitted twice"), "{error}");
        let refuse = |_: &str, _: &mut Vec<u8>| match rank {
            3 => Err(Error::usage("out of ink")),
            _ => Ok(()),
        };
        let error = store.submit_named(9, &[&name(rank, 0)], refuse).unwrap_err();
        assert_eq!(error.to_string(), "out of ink");
        assert_eq!(error.is_repeated(), rank != 3);
    });
    assert_eq!(survivors(ends).len(), 5);
}

#[test]
fn senders_share_the_work_when_a_dead_ranks_blocks_are_loaded_by_all() {
    let world = ThreadRanks::new(8);
    let kill = world.clone();
    let ends = run(&world, move |mut comm| {
        let settings = ReplicaSettings { piece: 1 << 20, ..small() };
        let mut store = ReplicaStore::new(comm.clone(), 4, settings).unwrap();
        submit_even(&mut store, 1, 32_000).unwrap();
        if comm.rank() == Rank(0) {
            kill.kill(Rank(0));
        }
        store.settle().unwrap_err();
        recover(&mut store, &mut comm);
        let rank = comm.rank().0;
        let sent = |store: &ReplicaStore| store.traffic().bytes_sent;
        let mut sums = [0; 2];
        let start = sent(&store);
        // The blocks of the dead rank, evenly.
        let own = share(rank, 7, 4_000);
        let loaded = store.load(std::slice::from_ref(&own)).unwrap();
        assert_eq!(loaded.bytes, blocks(1, own, 8));
        sums[0] = sent(&store) - start;
        let list: Vec<(Rank, Range<u64>)> =
            (0..7).map(|rank| (Rank(rank), share((rank + 3) % 7, 7, 32_000))).collect();
        store.load_all(&list).unwrap();
        sums[1] = sent(&store) - start - sums[0];
        sums
    });
    // Ranks 2, 4, 6 and ranks 1, 3, 5, 7 hold the same ranges: each of these groups shares its work.
    let ends = survivors(ends);
    for group in [&[1, 3, 5][..], &[0, 2, 4, 6]] {
        for at in 0..2 {
            let sent = || group.iter().map(|rank: &usize| ends[*rank][at]);
            let (most, mean) = (sent().max().unwrap(), sent().sum::<u64>() / group.len() as u64);
            assert!(most < mean + mean / 5, "{ends:?}");
        }
    }
}
