//! The vote of all ranks on a checkpoint: what each says, and what is decided from it.
//!
//! Everything here is pure. Ballots are merged in any order on their way to the rank that decides, so merging is
//! associative and commutative; what cannot be merged (ranks that call different functions, or name different steps
//! or shapes) is an error that all ranks return.

use super::epoch::{Decision, Vote, moves_too_much};
use crate::array::{Description, Labels, Part, Rank, Sequence, Step};
use crate::comm::{Voting, Wire, wire};
use crate::error::{Error, Result};
use crate::merkle::{Digest, checksum};
use std::collections::{BTreeMap, BTreeSet};

/// The call that ranks make together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Together {
    Open,
    Checkpoint,
    Restore,
    Restored,
    Finish,
    GoOn,
    Protect,
    Replicate,
}

wire! {
    enum Together {
        0 Open, 1 Checkpoint, 2 Restore, 3 Restored, 4 Finish, 5 GoOn, 6 Protect, 7 Replicate,
    }
}

/// A global array, of which each rank may have a box.
#[derive(Clone, Debug, PartialEq, Eq)]
struct GlobalArray {
    shape: Vec<u64>,
    dtype: String,
    /// The elements of all boxes.
    elements: u128,
}

wire! { struct GlobalArray { shape, dtype, elements } }

/// A variable that is equal on all ranks, as some of them see it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct SharedVariable {
    /// Type, shape, order.
    form: String,
    digest: [u64; 2],
    /// One of the ranks that say so, and their number.
    rank: u32,
    ranks: u32,
}

wire! { struct SharedVariable { form, digest, rank, ranks } }

/// The statement of a rank, or of some of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Ballot {
    call: Together,
    /// The step and the rank that names it; one that names another one cannot be merged.
    step: (u64, u32),
    state: u64,
    changed: u64,
    whole: bool,
    overloaded: bool,
    shared: bool,
    halt: bool,
    aside: u64,
    /// The checkpoints that every rank's node holds the rank's part of.
    staged: BTreeSet<u64>,
    /// Whether ranks have stores of their nodes, and one of them.
    near: (bool, u32),
    /// Whether the aggregator of a rank is gone, so that the ranks take their seats again.
    regroup: bool,
    /// The newest number that a rank has heard of: the least, and the greatest.
    newest: (u64, u64),
    pub(crate) outcomes: Outcomes,
    arrays: BTreeMap<String, GlobalArray>,
    /// The form of a row of each array of rows, and a rank that has it.
    rows: BTreeMap<String, (String, u32)>,
    same: BTreeMap<String, SharedVariable>,
    /// The attributes of variables that belong to their ranks alone, and a rank that gives them.
    attributes: BTreeMap<String, (String, u32)>,
    /// The labels of the checkpoint, and a rank that gives them.
    labels: (String, u32),
    /// The number of ranks that speak.
    ranks: u32,
    /// Reasons for which what was tried did not work, and something else may.
    pub(crate) doubts: BTreeSet<String>,
}

wire! {
    struct Ballot {
        call, step, state, changed, whole, overloaded, shared, halt, aside, staged, near, regroup, newest, outcomes,
        arrays, rows, same, attributes, labels, ranks, doubts,
    }
}

/// The fates of checkpoints, as far as ranks know.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Outcomes {
    /// Checkpoints that have their manifest.
    pub(crate) committed: BTreeSet<u64>,
    /// Checkpoints that were given up.
    pub(crate) given_up: BTreeSet<u64>,
    /// Checkpoints that stay on nodes and are not expected in the shared store.
    pub(crate) aside: BTreeSet<u64>,
}

wire! { struct Outcomes { committed, given_up, aside } }

impl Outcomes {
    pub(crate) fn add(&mut self, other: &Outcomes) {
        self.committed.extend(&other.committed);
        self.given_up.extend(&other.given_up);
        self.aside.extend(&other.aside);
    }

    /// Whether a checkpoint has its manifest; nothing if that is not known.
    pub(crate) fn of(&self, sequence: Sequence) -> Option<bool> {
        match (self.committed.contains(&sequence.0), self.given_up.contains(&sequence.0)) {
            (true, _) => Some(true),
            (false, true) => Some(false),
            (false, false) => None,
        }
    }

    /// Forgets checkpoints before a number: everybody knows what has become of them.
    pub(crate) fn forget_before(&mut self, sequence: Sequence) {
        // Of numbers before the newest manifest, the log tells.
        let newest = self.committed.last().copied().unwrap_or(0);
        self.aside.retain(|number| *number > newest);
        self.committed = self.committed.split_off(&sequence.0);
        self.given_up = self.given_up.split_off(&sequence.0);
    }
}

/// The decision for all ranks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Agreed {
    sequence: u64,
    step: u64,
    whole: bool,
    skip: bool,
    shared: bool,
    halt: bool,
    /// The checkpoints that are complete on all nodes together.
    pub(crate) on_nodes: BTreeSet<u64>,
    /// Whether the ranks take their seats again before they do anything else.
    pub(crate) regroup: bool,
    /// The time of the checkpoint: the same in every section, so that everybody makes the same manifest of them.
    pub(crate) time: u64,
    pub(crate) outcomes: Outcomes,
    pub(crate) doubts: BTreeSet<String>,
}

wire! {
    struct Agreed {
        sequence, step, whole, skip, shared, halt, on_nodes, regroup, time, outcomes, doubts,
    }
}

impl Agreed {
    pub(crate) fn decision(&self) -> Decision {
        Decision {
            sequence: Sequence(self.sequence),
            step: Step(self.step),
            whole: self.whole,
            skip: self.skip,
            shared: self.shared,
            halt: self.halt,
        }
    }
}

impl Ballot {
    pub(crate) fn new(call: Together, rank: Rank, outcomes: Outcomes, newest: Sequence) -> Ballot {
        Ballot {
            call,
            step: (0, rank.0),
            state: 0,
            changed: 0,
            whole: false,
            overloaded: false,
            shared: false,
            halt: false,
            aside: 0,
            staged: BTreeSet::new(),
            near: (false, rank.0),
            regroup: false,
            newest: (newest.0, newest.0),
            outcomes,
            arrays: BTreeMap::new(),
            rows: BTreeMap::new(),
            same: BTreeMap::new(),
            attributes: BTreeMap::new(),
            labels: (String::new(), rank.0),
            ranks: 1,
            doubts: BTreeSet::new(),
        }
    }

    /// The ballot on a checkpoint.
    pub(crate) fn on(mut self, step: Step, vote: Vote) -> Ballot {
        (self.step.0, self.state, self.changed) = (step.0, vote.state, vote.changed);
        (self.whole, self.overloaded) = (vote.whole, vote.overloaded);
        (self.shared, self.aside, self.halt) = (vote.shared, vote.aside, vote.halt);
        self
    }

    /// Adds the checkpoints that the node of this rank holds its part of.
    pub(crate) fn on_node(mut self, staged: BTreeSet<u64>) -> Ballot {
        (self.near.0, self.staged) = (true, staged);
        self
    }

    /// Says whether the aggregator of this rank is gone.
    pub(crate) fn regrouping(mut self, regroup: bool) -> Ballot {
        self.regroup = regroup;
        self
    }

    /// The ballot on going on with the epoch of a checkpoint that was restored.
    pub(crate) fn going_on(mut self, goes_on: bool) -> Ballot {
        self.whole = !goes_on;
        self
    }

    /// Adds the labels of the checkpoint.
    pub(crate) fn labelled(mut self, labels: &Labels) -> Ballot {
        self.labels.0 = brief(labels);
        self
    }

    /// Adds the boxes of global arrays, whose owned elements are counted, the forms of rows, and attributes.
    pub(crate) fn with<'d>(mut self, variables: impl Iterator<Item = &'d Description>) -> Ballot {
        for variable in variables {
            let name = variable.name.clone();
            match &variable.part {
                Some(Part::Box(part)) => {
                    let array = GlobalArray {
                        shape: part.global.0.clone(),
                        dtype: format!("{}{}", variable.dtype, noted(variable)),
                        elements: part.owned(&variable.shape).elements().unwrap_or(u64::MAX).into(),
                    };
                    self.arrays.insert(name, array);
                }
                Some(Part::Rows) => {
                    let (elements, noted) = (variable.rows().1, noted(variable));
                    let form = format!("{elements} of {}{noted}", variable.dtype);
                    self.rows.insert(name, (form, self.step.1));
                }
                None if !variable.attributes.is_empty() => {
                    self.attributes.insert(name, (brief(&variable.attributes), self.step.1));
                }
                Some(Part::Same) | None => {}
            }
        }
        self
    }

    /// Adds variables that are equal on all ranks, with digests of their content.
    pub(crate) fn sharing<'d>(
        mut self,
        variables: impl Iterator<Item = (&'d Description, Digest)>,
    ) -> Ballot {
        for (variable, digest) in variables {
            let noted = noted(variable);
            let form = format!("{} {} {:?}{noted}", variable.dtype, variable.shape, variable.order);
            let shared = SharedVariable { form, digest: digest.0, rank: self.step.1, ranks: 1 };
            self.same.insert(variable.name.clone(), shared);
        }
        self
    }

    fn merge(&mut self, other: Ballot) -> Result<()> {
        if self.call != other.call {
            return Err(Error::usage(format!(
                "rank {} calls {:?} while rank {} calls {:?}",
                self.step.1, self.call, other.step.1, other.call
            ))
            .hint("all ranks must call checkpoint, restore and finish in the same order"));
        }
        if self.step.0 != other.step.0 {
            return Err(Error::usage(format!(
                "rank {} saves step {} while rank {} saves step {}",
                self.step.1, self.step.0, other.step.1, other.step.0
            )));
        }
        if self.near.0 != other.near.0 {
            let (with, without) = match self.near.0 {
                true => (self.near.1, other.near.1),
                false => (other.near.1, self.near.1),
            };
            return Err(Error::usage(format!(
                "rank {with} has a store of its node and rank {without} has none"
            ))
            .hint("all ranks give Options::node, or none of them"));
        }
        self.near.1 = self.near.1.min(other.near.1);
        self.staged.retain(|number| other.staged.contains(number));
        self.shared |= other.shared;
        self.halt |= other.halt;
        self.aside = self.aside.saturating_add(other.aside);
        self.step.1 = self.step.1.min(other.step.1);
        self.state = self.state.saturating_add(other.state);
        self.changed = self.changed.saturating_add(other.changed);
        self.whole |= other.whole;
        self.overloaded |= other.overloaded;
        self.regroup |= other.regroup;
        self.newest = (self.newest.0.min(other.newest.0), self.newest.1.max(other.newest.1));
        self.outcomes.add(&other.outcomes);
        self.doubts.extend(other.doubts);
        self.ranks += other.ranks;
        self.merge_arrays(other.arrays)?;
        self.merge_rows(other.rows)?;
        self.merge_texts(other.attributes, other.labels)?;
        self.merge_same(other.same)
    }

    fn merge_arrays(&mut self, others: BTreeMap<String, GlobalArray>) -> Result<()> {
        for (name, array) in others {
            let Some(own) = self.arrays.get_mut(&name) else {
                self.arrays.insert(name, array);
                continue;
            };
            if (&own.shape, &own.dtype) != (&array.shape, &array.dtype) {
                return Err(Error::usage(format!(
                    "the ranks disagree about the global array {name:?}: {:?} of {} and {:?} of {}",
                    own.shape, own.dtype, array.shape, array.dtype
                )));
            }
            own.elements = own.elements.saturating_add(array.elements);
        }
        Ok(())
    }

    fn merge_rows(&mut self, others: BTreeMap<String, (String, u32)>) -> Result<()> {
        for (name, (form, rank)) in others {
            let (own, of) = self.rows.entry(name.clone()).or_insert_with(|| (form.clone(), rank));
            if *own != form {
                return Err(Error::usage(format!(
                    "the ranks disagree about the rows of {name:?}: rank {of} has rows of {own}, rank {rank} of {form}"
                )));
            }
            *of = rank.min(*of);
        }
        Ok(())
    }

    fn merge_texts(
        &mut self,
        attributes: BTreeMap<String, (String, u32)>,
        (labels, rank): (String, u32),
    ) -> Result<()> {
        for (name, (text, rank)) in attributes {
            let own = self.attributes.entry(name.clone());
            let (own, of) = own.or_insert_with(|| (text.clone(), rank));
            if *own != text {
                return Err(Error::usage(format!(
                    "the ranks disagree about the attributes of {name:?}: rank {of} has {own}, rank {rank} {text}"
                )));
            }
            *of = rank.min(*of);
        }
        let (own, of) = &mut self.labels;
        if *own != labels {
            let shown = |text: &str| if text.is_empty() { "none".into() } else { text.to_string() };
            return Err(Error::usage(format!(
                "the ranks disagree about the labels of the checkpoint: rank {of} has {}, rank {rank} {}",
                shown(own),
                shown(&labels)
            ))
            .hint("give the same labels on all ranks"));
        }
        *of = rank.min(*of);
        Ok(())
    }

    fn merge_same(&mut self, others: BTreeMap<String, SharedVariable>) -> Result<()> {
        for (name, other) in others {
            let Some(own) = self.same.get_mut(&name) else {
                self.same.insert(name, other);
                continue;
            };
            let (a, b) = (own.rank.min(other.rank), own.rank.max(other.rank));
            if own.form != other.form {
                let (first, second) = match own.rank == a {
                    true => (&own.form, &other.form),
                    false => (&other.form, &own.form),
                };
                return Err(Error::usage(format!(
                    "variable {name:?} should be the same on all ranks, but is {first} on rank {a} and {second} on rank {b}"
                )));
            }
            if own.digest != other.digest {
                return Err(Error::usage(format!(
                    "variable {name:?} should be the same on all ranks, but ranks {a} and {b} have different values"
                ))
                .hint("give all ranks the values of one rank, or do without Variable::same"));
            }
            (own.rank, own.ranks) = (a, own.ranks + other.ranks);
        }
        Ok(())
    }

    /// Refuses global arrays of which boxes are missing, or of which some elements are in two.
    fn check_arrays(&self) -> Result<()> {
        for (name, array) in &self.arrays {
            let all = array.shape.iter().fold(1u128, |n, e| n.saturating_mul((*e).into()));
            if all != array.elements {
                let trouble = if array.elements < all { "leave gaps" } else { "overlap" };
                return Err(Error::usage(format!(
                    "the boxes of the global array {name:?} {trouble}: they hold {} elements of {all}",
                    array.elements
                ))
                .hint("each element is owned by one rank; declare ghost cells with Variable::ghosts"));
            }
        }
        Ok(())
    }

    /// Refuses variables that only some ranks call the same on all, or that are different things on different ranks.
    fn check_shared(&self) -> Result<()> {
        for (name, shared) in &self.same {
            if shared.ranks != self.ranks {
                return Err(Error::usage(format!(
                    "variable {name:?} must be declared as equal on all ranks, but only {} of {} do so, rank {} among them",
                    shared.ranks, self.ranks, shared.rank
                )));
            }
        }
        let mut rows = self.rows.keys();
        match rows.find(|name| self.arrays.contains_key(*name) || self.same.contains_key(*name)) {
            Some(name) => Err(Error::usage(format!(
                "variable {name:?} has rows of a global array on one rank and is something else on another"
            ))),
            None => Ok(()),
        }
    }
}

/// Words by which two sets of texts can be told apart: all of them if they are short.
fn brief(labels: &Labels) -> String {
    let shown = labels.to_string();
    match shown.len() <= 100 {
        true => shown,
        false => format!("{} of digest {:016x}", labels.iter().len(), checksum(shown.as_bytes())),
    }
}

/// The attributes of a variable, behind its form.
fn noted(variable: &Description) -> String {
    match variable.attributes.is_empty() {
        true => String::new(),
        false => format!(" with attributes {}", brief(&variable.attributes)),
    }
}

/// The voting of ranks on ballots, at a moment.
pub(crate) struct BallotVoting {
    /// The clock of the rank that decides.
    pub(crate) time: u64,
}

impl Voting for BallotVoting {
    fn merge(&self, votes: &mut Vec<u8>, others: &[u8]) -> Result<()> {
        let mut ballot = Ballot::from_letter(votes)?;
        ballot.merge(Ballot::from_letter(others)?)?;
        *votes = ballot.to_letter();
        Ok(())
    }

    fn decide(&mut self, votes: &[u8]) -> Result<Vec<u8>> {
        let ballot = Ballot::from_letter(votes)?;
        ballot.check_arrays()?;
        ballot.check_shared()?;
        let shared = ballot.shared || ballot.halt;
        let too_much = shared && moves_too_much(ballot.state, ballot.changed, ballot.aside);
        let verdict = Agreed {
            sequence: ballot.newest.1 + 1,
            step: ballot.step.0,
            // A rank that did not hear of the checkpoint before has nothing that another delta could build on, nor has
            // a new group.
            whole: ballot.whole || too_much || ballot.regroup || ballot.newest.0 != ballot.newest.1,
            skip: ballot.overloaded,
            shared,
            halt: ballot.halt,
            on_nodes: ballot.staged,
            regroup: ballot.regroup,
            time: self.time,
            outcomes: ballot.outcomes,
            doubts: ballot.doubts,
        };
        Ok(verdict.to_letter())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::array::Variable;

    fn ballot(rank: u32, step: u64) -> Ballot {
        let vote = Vote { state: 10, changed: rank.into(), whole: rank == 2, ..Vote::default() };
        let outcomes = Outcomes {
            committed: [rank.into()].into(),
            given_up: [9].into(),
            ..Outcomes::default()
        };
        let ballot = Ballot::new(Together::Checkpoint, Rank(rank), outcomes, Sequence(5));
        ballot.on(Step(step), vote)
    }

    fn decided(ballots: &[Ballot]) -> Result<Agreed> {
        let mut voting = BallotVoting { time: 9 };
        let mut votes = ballots[0].to_letter();
        for other in &ballots[1..] {
            voting.merge(&mut votes, &other.to_letter())?;
        }
        Agreed::from_letter(&voting.decide(&votes)?)
    }

    #[test]
    fn every_order_of_merging_decides_the_same() {
        let all: Vec<Ballot> = (0..4).map(|rank| ballot(rank, 7)).collect();
        let verdict = decided(&all).unwrap();
        let decision = verdict.decision();
        assert_eq!((decision.sequence, decision.step), (Sequence(6), Step(7)));
        assert!(decision.whole && !decision.skip && verdict.time == 9);
        assert_eq!(
            verdict.outcomes,
            Outcomes {
                committed: [0, 1, 2, 3].into(),
                given_up: [9].into(),
                ..Outcomes::default()
            }
        );
        assert_eq!(
            [2, 9, 4].map(|n| verdict.outcomes.of(Sequence(n))),
            [Some(true), Some(false), None]
        );
        let backwards: Vec<Ballot> = all.into_iter().rev().collect();
        assert_eq!(decided(&backwards).unwrap(), verdict);
    }

    #[test]
    fn a_rank_that_missed_a_decision_makes_the_next_one_whole() {
        let mut late = ballot(0, 7);
        assert!(!decided(&[ballot(0, 7), ballot(1, 7)]).unwrap().decision().whole);
        late.newest = (4, 4);
        let decision = decided(&[late, ballot(1, 7)]).unwrap().decision();
        assert!(decision.whole && decision.sequence == Sequence(6));
    }

    #[test]
    fn one_rank_suffices_to_ask_for_the_shared_store_and_all_are_needed_on_nodes() {
        let on = |rank: u32, shared, aside, staged: &[u64]| {
            let vote = Vote { state: 100, changed: 10, shared, aside, ..Vote::default() };
            let ballot = Ballot { outcomes: Outcomes::default(), ..ballot(rank, 1) };
            ballot.on(Step(1), vote).on_node(staged.iter().copied().collect())
        };
        let verdict = decided(&[on(0, false, 0, &[3, 4, 6]), on(1, true, 0, &[3, 5, 6])]).unwrap();
        let decision = verdict.decision();
        assert!(decision.shared && !decision.whole);
        assert_eq!(verdict.on_nodes, [3, 6].into());
        // Together the packs and changes come to more than the state, or just not.
        let whole =
            |a, b| decided(&[on(0, true, a, &[]), on(1, false, b, &[])]).unwrap().decision().whole;
        assert!(whole(181, 0) && whole(100, 81) && !whole(100, 80));
        assert!(!decided(&[on(0, false, 500, &[])]).unwrap().decision().whole);
        // A request to stop is one for the shared store, too.
        let halt = Ballot { halt: true, ..on(1, false, 0, &[]) };
        let decision = decided(&[on(0, false, 0, &[]), halt]).unwrap().decision();
        assert!(decision.halt && decision.shared);
        let error = decided(&[ballot(0, 1), on(1, false, 0, &[]), ballot(3, 1)]).unwrap_err();
        assert!(error.to_string().contains("rank 1 has a store of its node and rank 0"), "{error}");
    }

    #[test]
    fn a_rank_without_its_aggregator_has_all_take_their_seats_again() {
        let plain = [ballot(0, 7), ballot(1, 7)];
        assert!(decided(&plain).is_ok_and(|v| !v.regroup && !v.decision().whole));
        let [first, second] = plain;
        let verdict = decided(&[first, second.regrouping(true)]).unwrap();
        assert!(verdict.regroup && verdict.decision().whole);
    }

    #[test]
    fn ranks_that_disagree_are_named() {
        let error = decided(&[ballot(0, 7), ballot(1, 7), ballot(3, 8)]).unwrap_err();
        assert!(error.to_string().contains("rank 0 saves step 7 while rank 3 saves step 8"));
        let other = Ballot { call: Together::Finish, ..ballot(1, 7) };
        assert!(decided(&[ballot(0, 7), other]).is_err());
    }

    #[test]
    fn boxes_that_leave_gaps_or_overlap_are_refused() {
        let data = [0u8; 6];
        let part = |rank: u32, rows: u64, global: u64, offset: u64| {
            let variable = Variable::new("x", &data[..2 * rows as usize]).shaped(&[rows, 2]);
            let variable = variable.part_of(&[global, 2], &[offset, 0]);
            ballot(rank, 1).with([variable.description()].into_iter())
        };
        assert!(decided(&[part(0, 2, 5, 0), part(1, 3, 5, 2)]).is_ok());
        let error = decided(&[part(0, 2, 5, 0), part(1, 2, 5, 3)]).unwrap_err();
        assert!(error.to_string().contains("leave gaps: they hold 8 elements of 10"), "{error}");
        let error = decided(&[part(0, 3, 5, 0), part(1, 3, 5, 2)]).unwrap_err();
        assert!(error.to_string().contains("overlap"), "{error}");
        let error = decided(&[part(0, 3, 5, 0), part(1, 3, 6, 3)]).unwrap_err();
        assert!(error.to_string().contains("disagree about the global array"), "{error}");
    }

    #[test]
    fn what_is_not_the_same_names_the_variable_and_two_ranks() {
        let shared = |rank: u32, data: &[u32]| {
            let variable = Variable::new("dt", data).same();
            let digest = crate::merkle::digest(&variable.bytes.whole());
            ballot(rank, 1).sharing([(variable.description(), digest)].into_iter())
        };
        let all: Vec<Ballot> = (0..3).map(|rank| shared(rank, &[5, 6])).collect();
        assert!(decided(&all).is_ok());
        let other = [all[0].clone(), all[1].clone(), shared(2, &[5, 7])];
        let error = decided(&other).unwrap_err().to_string();
        assert!(error.contains("\"dt\"") && error.contains("ranks 0 and 2"), "{error}");
        let shorter = [shared(2, &[5]), all[0].clone(), all[1].clone()];
        let error = decided(&shorter).unwrap_err().to_string();
        assert!(error.contains("u32 2 C on rank 0 and u32 1 C on rank 2"), "{error}");
        let error = decided(&[all[0].clone(), all[1].clone(), ballot(2, 1)]).unwrap_err();
        assert!(error.to_string().contains("only 2 of 3"), "{error}");
    }

    #[test]
    fn rows_of_two_kinds_are_refused() {
        let rows = |rank: u32, shape: &[u64], fortran: bool| {
            let data = vec![0u8; shape.iter().product::<u64>() as usize];
            let variable = Variable::new("x", &data).shaped(shape).rows();
            let variable = if fortran { variable.fortran() } else { variable };
            ballot(rank, 1).with([variable.description()].into_iter())
        };
        assert!(decided(&[rows(0, &[4, 3], false), rows(1, &[0, 3], false)]).is_ok());
        assert!(decided(&[rows(0, &[3, 4], true), rows(1, &[7, 3], false)]).is_ok());
        let error = decided(&[rows(0, &[4, 3], false), rows(1, &[4, 2], false)]).unwrap_err();
        assert!(error.to_string().contains("rank 0 has rows of 3 of u8, rank 1 of 2"), "{error}");
    }
}
