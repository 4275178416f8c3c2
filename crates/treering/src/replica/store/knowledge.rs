//! Choice of the generation that counts after deaths: a pure function of what the survivors know.
//!
//! A submit ends with a collective call in which every member says whether it has received and verified everything
//! that it is to hold. A rank that completes this call knows that the generation is whole everywhere: it is *agreed*.
//! A member may die during the call, so that some complete it and others do not. Therefore the rule is:
//! a generation counts if any survivor knows that it was agreed. Survivors tell each other what they know on the
//! communicator that shrinking has made, and all get the same answer. The same rule holds for copies that were made
//! again after deaths: they count if any survivor knows that all have been made.
//!
//! The generation before an agreed one is freed only by ranks that know that all members know; the next collective
//! call carries that knowledge.
//!
//! Laws: the generation that counts is complete on every survivor; it is never older than one that a survivor knows
//! to be agreed; all survivors choose the same one, however often choosing is interrupted by further deaths.
//!
//! The call is a reduction and no `Comm::agree`: that one completes only with every rank that lives, also with one that
//! has met the death in another call and has gone on to `Comm::shrink`. The agreement of the one then meets the shrink
//! of the other, and the survivors end up with different communicators, or wait for ever. A reduction returns `Dead` or
//! `Revoked` in that case.

/// The newest generation that a rank knows to be agreed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Knowledge {
    /// Its number; 0 if there is none.
    pub(crate) agreed: u64,
    /// Number of times that all lost copies are known to have been made again since it was submitted.
    pub(crate) remakes: u64,
}

/// The newest generation that any survivor knows to be agreed, with the copies that any survivor knows
/// to be made again.
pub(crate) fn newest(survivors: &[Knowledge]) -> Knowledge {
    survivors.iter().copied().max().unwrap_or_default()
}

/// Whether generations before `own` can be freed, given the oldest of the generations that the members know to be
/// agreed.
pub(crate) fn all_know(own: Knowledge, oldest_known: u64) -> bool {
    own.agreed > 0 && oldest_known >= own.agreed
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    /// One rank of the protocol, without any data.
    #[derive(Clone, Debug, Default)]
    struct Actor {
        alive: bool,
        known: Knowledge,
        /// Complete generations, also one that is not known to be agreed.
        complete: BTreeSet<u64>,
        /// Remakes of the known generation whose copies are here.
        made: u64,
    }

    /// A collective call in which ranks may die: none complete if one dies before it has contributed; else any may.
    fn meet(actors: &mut [Actor], dying: u16, before: bool, seen: u16) -> Vec<usize> {
        let alive: Vec<usize> = (0..actors.len()).filter(|at| actors[*at].alive).collect();
        let dies = |at: &usize| dying >> at & 1 == 1;
        let any = alive.iter().any(dies);
        alive.iter().filter(|at| dies(at)).for_each(|at| actors[*at].alive = false);
        let completes = |at: &usize| !any || (!before && !dies(at) && seen >> at & 1 == 1);
        alive.into_iter().filter(completes).collect()
    }

    fn recover(actors: &mut [Actor], interruptions: &[(u16, u16)]) {
        for (dying, seen) in interruptions.iter().copied().chain([(0, 0)]) {
            let survivors: Vec<Knowledge> =
                actors.iter().filter(|actor| actor.alive).map(|actor| actor.known).collect();
            let verdict = newest(&survivors);
            for at in meet(actors, dying, false, seen) {
                let actor = &mut actors[at];
                assert!(actor.alive && verdict >= actor.known);
                assert!(
                    verdict.agreed == 0 || actor.complete.contains(&verdict.agreed),
                    "{actor:?}"
                );
                if verdict.agreed != actor.known.agreed {
                    actor.made = 0;
                }
                assert!(actor.made >= verdict.remakes);
                (actor.made, actor.known) = (verdict.remakes, verdict);
                actor.complete.retain(|number| *number <= verdict.agreed);
            }
        }
        let mut known = actors.iter().filter(|actor| actor.alive).map(|actor| actor.known);
        let first = known.next();
        assert!(known.all(|other| Some(other) == first));
    }

    #[derive(Clone, Debug)]
    struct Call {
        remake: bool,
        opening: (u16, bool, u16),
        verified: (u16, bool, u16),
        interruptions: Vec<(u16, u16)>,
    }

    fn calls() -> impl Strategy<Value = Vec<Call>> {
        let deaths = || prop_oneof![3 => Just(0u16), 1 => any::<u16>().prop_map(|n| n & n >> 5)];
        let meeting = move || (deaths(), any::<bool>(), any::<u16>());
        let call = (
            any::<bool>(),
            meeting(),
            meeting(),
            prop::collection::vec((deaths(), any::<u16>()), 0..3),
        );
        prop::collection::vec(
            call.prop_map(|(remake, opening, verified, interruptions)| Call {
                remake,
                opening,
                verified,
                interruptions,
            }),
            1..12,
        )
    }

    proptest! {
        #[test]
        fn survivors_always_share_a_complete_generation(ranks in 1usize..9, calls in calls()) {
            let mut actors = vec![Actor { alive: true, ..Actor::default() }; ranks];
            let mut number = 0;
            for call in calls {
                number += 1;
                let known: Vec<u64> = actors.iter().filter(|a| a.alive).map(|a| a.known.agreed).collect();
                let count = known.len();
                let oldest = known.into_iter().min().unwrap_or(0);
                let (dying, before, seen) = call.opening;
                let opened = meet(&mut actors, dying, before, seen);
                for at in &opened {
                    let actor = &mut actors[*at];
                    if all_know(actor.known, oldest) {
                        actor.complete.retain(|number| *number >= actor.known.agreed);
                    }
                }
                // Only if all have opened the call can it get further.
                let whole = opened.len() == count && actors.iter().filter(|a| a.alive).count() == count;
                if whole {
                    for actor in actors.iter_mut().filter(|actor| actor.alive) {
                        match call.remake {
                            true => actor.made = actor.known.remakes + 1,
                            false => { actor.complete.insert(number); }
                        }
                    }
                    let (dying, before, seen) = call.verified;
                    for at in meet(&mut actors, dying, before, seen) {
                        let actor = &mut actors[at];
                        match call.remake {
                            true => actor.known.remakes += 1,
                            false => {
                                actor.known = Knowledge { agreed: number, remakes: 0 };
                                actor.made = 0;
                            }
                        }
                    }
                }
                let all: Vec<Knowledge> = actors.iter().filter(|a| a.alive).map(|a| a.known).collect();
                let equal = all.windows(2).all(|pair| pair[0] == pair[1]);
                if !whole || !equal || !call.interruptions.is_empty() {
                    recover(&mut actors, &call.interruptions);
                }
            }
        }
    }
}
