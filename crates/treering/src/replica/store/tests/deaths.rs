//! Deaths at every call of the communicator, of whole nodes, of all holders of a range.

use super::programs::{Op, Plan, run_plan};
use super::*;
use crate::replica::probing::Probing;

/// One of everything.
fn everything() -> Vec<Op> {
    vec![
        Op::Submit { blocks: 120, skew: 5, later: false },
        Op::Load(3),
        Op::Changed(7),
        Op::Submit { blocks: 90, skew: 6, later: true },
        Op::Progress,
        Op::LoadAll(2),
        Op::Progress,
        Op::Remake,
        Op::Load(0),
        Op::Scrub,
        Op::Submit { blocks: 70, skew: 9, later: false },
        Op::LoadAll(0),
        Op::Remake,
        Op::Load(5),
    ]
}

fn plan(ranks: u8, copies: u32, kills: Vec<(u32, u64)>) -> Plan {
    let settings = ReplicaSettings { piece: 400, ..small() };
    Plan {
        nodes: (0..ranks).collect(),
        per_domain: 1,
        copies,
        settings,
        ops: everything(),
        kills,
        delay: 0,
        partial: Vec::new(),
    }
}

#[test]
fn a_rank_may_die_at_any_call() {
    for rank in [0, 2] {
        for call in 0.. {
            let (living, checked) = run_plan(&plan(4, 2, vec![(rank, call)]));
            assert!(living >= 3, "rank {rank} call {call}");
            if living == 4 {
                // The program ended before this call.
                assert!(call > 45 && checked >= 5, "only {call} calls");
                break;
            }
        }
    }
}

#[test]
fn a_second_rank_may_die_during_recovery() {
    for call in 8..90 {
        for later in [1, 4, 9] {
            run_plan(&plan(5, 3, vec![(1, call), (3, call + later)]));
        }
    }
}

#[test]
fn a_death_that_only_some_notice_is_survived_at_any_call() {
    for call in 3..58 {
        // All, none, one and some of the others miss the result; then a second death during recovery.
        for (victim, blind) in [(0, 0b11110), (2, 0), (0, 0b00010), (1, 0b10001), (4, 0b00101)] {
            let first = PartialDeath { victim, call, blind };
            run_plan(&Plan { partial: vec![first], ..plan(5, 3, Vec::new()) });
            let second = PartialDeath { victim: 3, call: call % 5, blind: blind << 1 };
            run_plan(&Plan { partial: vec![first, second], ..plan(5, 3, Vec::new()) });
        }
    }
}

#[test]
fn copies_made_again_count_if_any_survivor_knows() {
    let ops = vec![
        Op::Submit { blocks: 120, skew: 5, later: false },
        Op::Settle,
        Op::Remake,
        Op::Load(0),
        Op::LoadAll(0),
        Op::Remake,
        Op::Load(0),
    ];
    let never = PartialDeath { victim: 0, call: u64::MAX, blind: 0 };
    for call in 0..24 {
        for (victim, blind) in [(0, 0b111110), (2, 0b000010), (1, 0b010001), (4, 0b001101)] {
            // Rank 5 dies before the remake; then one dies in it, and one after it.
            let second = PartialDeath { victim, call, blind };
            let third = PartialDeath { victim: 3, call: 4 + call % 3, blind: blind << 1 };
            let partial = vec![never, second, third];
            let kills = vec![(5, 12)];
            let plan = Plan { partial, ops: ops.clone(), ..plan(6, 3, kills) };
            assert!(run_plan(&plan).1 > 0);
        }
    }
}

#[test]
fn both_holders_of_a_range_die_at_once_and_their_blocks_are_named() {
    let world = ThreadRanks::new(8);
    let kill = world.clone();
    let ends = run(&world, move |mut comm| {
        let rank = comm.rank();
        let mut store = ReplicaStore::new(comm.clone(), 2, small()).unwrap();
        submit_even(&mut store, 1, 800).unwrap();
        let placement = store.current.as_ref().unwrap().places.placement().clone();
        let holders: Vec<u32> = placement.holders(RangeId(17)).iter().map(|rank| rank.0).collect();
        if holders.contains(&rank.0) {
            kill.kill(rank);
        }
        let mut survived = loop {
            // Both deaths may be noticed one after the other.
            assert!(store.settle().unwrap_err().is_death());
            let survived = recover(&mut store, &mut comm);
            if store.members().len() == 6 {
                break survived;
            }
        };
        survived.dead =
            (0..8).map(StartRank).filter(|rank| !store.members().contains(rank)).collect();
        let mut dead = holders.clone();
        dead.sort_unstable();
        assert!(survived.dead.iter().map(|rank| rank.0).eq(dead));
        let gone = |id: &u64| {
            placement.holders(RangeId(id / 4)).iter().all(|rank| holders.contains(&rank.0))
        };
        let lost: Vec<u64> = (0..800).filter(gone).collect();
        assert!(lost.contains(&68) && lost.len() < 300);
        let loaded = store.load(&[0..800]).unwrap();
        assert_eq!(loaded.lost.iter().cloned().flatten().collect::<Vec<u64>>(), lost);
        for id in (0..800).filter(|id| !gone(id)) {
            assert_eq!(loaded.bytes[id as usize * 8..][..8], block(1, id, 8));
        }
        // Lost blocks stay lost, whatever is made again; a submit of everything is whole.
        let remade = store.remake().unwrap();
        assert_eq!(remade.lost, loaded.lost);
        assert_eq!(store.load(&[0..800]).unwrap().lost, loaded.lost);
        let change = blocks(2, 68..72, 8);
        let change = [(68, &change[..])];
        let own = store.link.rank() == Rank(0);
        let error = store.submit_changed(2, if own { &change } else { &[] }).unwrap_err();
        assert!(error.kind() == ErrorKind::Lost && error.to_string().contains("68..72"), "{error}");
        submit_even(&mut store, 3, 800).unwrap();
        assert!(store.load(&[0..800]).unwrap().lost.is_empty());
    });
    assert_eq!(survivors(ends).len(), 6);
}

/// Ranks die in rounds; copies are made again after each.
fn with_remakes(copies: u32, probing: Probing, rounds: &'static [&'static [u32]]) {
    let world = ThreadRanks::new(8);
    let kill = world.clone();
    let ends = run(&world, move |mut comm| {
        let start = comm.rank();
        let settings = ReplicaSettings { probing, ..small() };
        let mut store = ReplicaStore::new(comm.clone(), copies, settings).unwrap();
        submit_even(&mut store, 1, 400).unwrap();
        let mut left = 8;
        for round in rounds {
            if round.contains(&start.0) {
                kill.kill(start);
            }
            left -= round.len();
            while store.members().len() > left {
                // All have died once the calls fail; some may be noticed later.
                if store.settle().is_err() {
                    recover(&mut store, &mut comm);
                }
            }
            assert!(store.load(&[0..400]).unwrap().lost.is_empty());
            let remade = store.remake().unwrap();
            assert!(remade.lost.is_empty());
            let loaded = store.load(&[0..400]).unwrap();
            assert!(loaded.lost.is_empty() && loaded.bytes == blocks(1, 0..400, 8));
            assert_eq!(store.newest().unwrap().deaths, 0);
        }
        intact(&store)
    });
    let ends = survivors(ends);
    let copies = (copies as usize).min(ends.len());
    for range in (0..100).map(RangeId) {
        assert_eq!(ends.iter().filter(|held| held.contains(&range)).count(), copies, "{range:?}");
    }
}

#[test]
fn with_remakes_between_deaths_nothing_is_lost() {
    for probing in [Probing::DoubleHashing, Probing::Permutation] {
        with_remakes(2, probing, &[&[3], &[0], &[7], &[1], &[2], &[6]]);
        with_remakes(3, probing, &[&[0, 4], &[1, 5], &[7]]);
        with_remakes(4, probing, &[&[0, 2, 4], &[1, 3, 7]]);
    }
}

#[test]
fn a_node_and_a_domain_may_die() {
    // Four nodes of two ranks, two domains of two nodes: two copies are in different domains, three on different nodes.
    for (copies, dead) in [(2, vec![0, 1, 2, 3]), (2, vec![6, 7]), (3, vec![2, 3])] {
        let mut ops = vec![Op::Submit { blocks: 150, skew: 1, later: false }, Op::Die(dead)];
        ops.extend([Op::Load(0), Op::Remake, Op::LoadAll(0), Op::Load(0)]);
        let settings = small();
        let nodes = vec![0, 0, 1, 1, 2, 2, 3, 3];
        let plan = Plan {
            nodes,
            per_domain: 2,
            copies,
            settings,
            ops,
            kills: Vec::new(),
            delay: 0,
            partial: Vec::new(),
        };
        let (_, checked) = run_plan(&plan);
        assert!(checked >= 2);
    }
}
