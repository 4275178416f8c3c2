//! The findings of all ranks, each of which compared its share of a checkpoint with a reference run, joined to one
//! answer.
//!
//! Everything here is pure. Shares are merged in any order, so merging is associative and commutative.

use crate::array::{Order, Rank, Variable};
use crate::comm::{Voting, Wire, wire};
use crate::compare::{
    Answer, ContentDifference, First, NOT_IN_SHARE, NotCompared, Outcome, Timings, Unmatched, Value,
};
use crate::error::Result;
use std::collections::{BTreeMap, BTreeSet};

/// Findings of one rank, or of several, at a step.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ReferenceShare {
    step: u64,
    differences: u64,
    undecided: u64,
    bytes: (u64, u64),
    first: Option<FirstLetter>,
    /// Variables that do not fit together: rank and name, in which way, and more of it.
    unlike: BTreeSet<(u32, String, String, String)>,
    /// Attributes that differ: rank and name of the variable, the attribute, and both values.
    contents: BTreeSet<(u32, String, String, String)>,
    /// Variables of the reference that none of these ranks has, and the rank that had each there.
    lacking: Option<BTreeMap<String, u32>>,
    /// Items that were not compared, and why, by rank.
    open: BTreeSet<(Option<u32>, Option<String>, String)>,
}

wire! {
    struct ReferenceShare { step, differences, undecided, bytes, first, unlike, contents, lacking, open }
}

/// A first difference on its way to other ranks. The first fields decide which of two is first.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct FirstLetter {
    variable: String,
    /// The rank, unless it is a global array, and the index with the slowest axis first.
    order: (Option<u32>, Vec<u64>),
    rank: u32,
    index: Vec<u64>,
    until: Option<Vec<u64>>,
    values: [Option<ValueLetter>; 2],
}

wire! { struct FirstLetter { variable, order, rank, index, until, values } }

/// A value with all its bits.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum ValueLetter {
    /// The high and the low half.
    Int(i64, u64),
    Float(u64),
    Complex(u64, u64),
    Text(String),
}

wire! {
    enum ValueLetter { 0 Int(high, low), 1 Float(bits), 2 Complex(real, imaginary), 3 Text(text) }
}

impl ValueLetter {
    fn of(value: Value) -> ValueLetter {
        match value {
            Value::Int(x) => ValueLetter::Int((x >> 64) as i64, x as u64),
            Value::Float(x) => ValueLetter::Float(x.to_bits()),
            Value::Complex(x, y) => ValueLetter::Complex(x.to_bits(), y.to_bits()),
            Value::Text(text) => ValueLetter::Text(text),
        }
    }

    fn value(&self) -> Value {
        match self {
            ValueLetter::Int(high, low) => Value::Int(i128::from(*high) << 64 | i128::from(*low)),
            ValueLetter::Float(x) => Value::Float(f64::from_bits(*x)),
            ValueLetter::Complex(x, y) => Value::Complex(f64::from_bits(*x), f64::from_bits(*y)),
            ValueLetter::Text(text) => Value::Text(text.clone()),
        }
    }
}

impl FirstLetter {
    fn of(first: &First, order: Order) -> FirstLetter {
        let mut slowest_first = first.index.clone();
        if order == Order::Fortran {
            slowest_first.reverse();
        }
        FirstLetter {
            variable: first.variable.clone(),
            order: ((!first.global).then_some(first.rank.0), slowest_first),
            rank: first.rank.0,
            index: first.index.clone(),
            until: first.until.clone(),
            values: [first.a.clone(), first.b.clone()].map(|value| value.map(ValueLetter::of)),
        }
    }

    fn first(&self, step: u64) -> First {
        let [a, b] = self.values.each_ref().map(|v| v.as_ref().map(ValueLetter::value));
        First {
            step: Some(step),
            rank: Rank(self.rank),
            variable: self.variable.clone(),
            index: self.index.clone(),
            until: self.until.clone(),
            global: self.order.0.is_none(),
            a,
            b,
        }
    }
}

impl ReferenceShare {
    /// Findings of a rank in its variables.
    pub(super) fn of(step: u64, outcome: &Outcome, variables: &[Variable]) -> ReferenceShare {
        let mut share = ReferenceShare {
            step,
            differences: outcome.differences,
            undecided: outcome.variables.iter().map(|v| v.undecided).sum(),
            bytes: (outcome.bytes_total, outcome.bytes_read),
            lacking: Some(BTreeMap::new()),
            ..ReferenceShare::default()
        };
        let order = |name: &str| {
            let named = variables.iter().find(|v| v.description().name == name);
            named.map_or(Order::C, |variable| variable.description().order)
        };
        share.first = outcome.first.as_ref().map(|f| FirstLetter::of(f, order(&f.variable)));
        for other in &outcome.unmatched {
            let rank = other.rank.unwrap_or_default().0;
            let Some(name) = other.variable.clone() else { continue };
            match (other.what == NOT_IN_SHARE, &mut share.lacking) {
                (true, Some(lacking)) => drop(lacking.insert(name, rank)),
                _ => {
                    let unlike = (rank, name, other.what.clone(), other.detail.clone());
                    share.unlike.insert(unlike);
                }
            }
        }
        for other in &outcome.contents {
            let (rank, of) = (other.rank.0, other.of().to_string());
            share.contents.insert((rank, of, other.item.clone(), other.detail.clone()));
        }
        for other in &outcome.not_compared {
            let rank = other.rank.map(|rank| rank.0);
            share.open.insert((rank, other.variable.clone(), other.why.clone()));
        }
        share
    }

    /// The share of a rank that has nothing to compare.
    pub(super) fn nothing(step: u64) -> ReferenceShare {
        ReferenceShare { step, ..ReferenceShare::default() }
    }

    /// The share of a rank that could not compare anything.
    pub(super) fn failed(step: u64, rank: Rank, why: String) -> ReferenceShare {
        let open = BTreeSet::from([(Some(rank.0), None, why)]);
        ReferenceShare { step, open, ..ReferenceShare::default() }
    }

    fn merge(&mut self, other: ReferenceShare) {
        self.differences = self.differences.saturating_add(other.differences);
        self.undecided = self.undecided.saturating_add(other.undecided);
        self.bytes.0 = self.bytes.0.saturating_add(other.bytes.0);
        self.bytes.1 = self.bytes.1.saturating_add(other.bytes.1);
        self.first = [self.first.take(), other.first].into_iter().flatten().min();
        self.unlike.extend(other.unlike);
        self.contents.extend(other.contents);
        self.open.extend(other.open);
        self.lacking = match (self.lacking.take(), other.lacking) {
            (Some(mut own), Some(other)) => {
                own.retain(|name, _| other.contains_key(name));
                Some(own)
            }
            // A rank that could not look has nothing to say about what is missing; nor have all together.
            _ => None,
        };
    }

    /// The answer of all ranks.
    pub(super) fn verdict(&self) -> Answer {
        let lacking = self.lacking.as_ref().is_some_and(|lacking| !lacking.is_empty());
        match () {
            _ if self.differences > 0 || !self.unlike.is_empty() || lacking => Answer::Different,
            _ if !self.contents.is_empty() => Answer::Different,
            _ if self.undecided > 0 || !self.open.is_empty() => Answer::Undecided,
            _ => Answer::Equal,
        }
    }

    /// Items that were not compared, with the reasons.
    pub(super) fn not_compared(&self) -> Vec<NotCompared> {
        let step = Some(self.step);
        let note = |rank: Option<u32>, variable: Option<String>, why: String| NotCompared {
            step,
            rank: rank.map(Rank),
            variable,
            why,
        };
        let mut all: Vec<NotCompared> =
            self.open.iter().map(|(r, v, why)| note(*r, v.clone(), why.clone())).collect();
        if self.undecided > 0 {
            let why = format!("{} chunks could not be decided without values", self.undecided);
            all.push(note(None, None, why));
        }
        all
    }

    /// The outcome of all ranks; `own` is what this rank found, of which its variables are kept.
    pub(super) fn outcome(&self, own: Option<Outcome>, reference: &str) -> Outcome {
        let own = own.unwrap_or_else(|| Outcome {
            a: "this run".to_string(),
            b: reference.to_string(),
            equal: false,
            verdict: Answer::Undecided,
            differences: 0,
            bytes_total: 0,
            bytes_read: 0,
            first: None,
            variables: Vec::new(),
            unmatched: Vec::new(),
            contents: Vec::new(),
            not_compared: Vec::new(),
            excluded: 0,
            unreadable: 0,
            stopped: false,
            notes: Vec::new(),
            timings: Timings::default(),
        });
        let unmatched = |rank: u32, name: &str, what: &str, detail: &str| Unmatched {
            what: what.to_string(),
            step: Some(self.step),
            rank: Some(Rank(rank)),
            variable: Some(name.to_string()),
            detail: detail.to_string(),
        };
        let unlike = self.unlike.iter();
        let mut others: Vec<Unmatched> =
            unlike.map(|(rank, name, what, more)| unmatched(*rank, name, what, more)).collect();
        let lacking = self.lacking.iter().flatten();
        others.extend(lacking.map(|(name, rank)| unmatched(*rank, name, "only in the second", "")));
        let contents = self.contents.iter().map(|(rank, of, item, detail)| ContentDifference {
            step: Some(self.step),
            rank: Rank(*rank),
            file: None,
            variable: Some(of.clone()),
            item: item.clone(),
            detail: detail.clone(),
        });
        Outcome {
            contents: contents.collect(),
            verdict: self.verdict(),
            equal: self.verdict() == Answer::Equal,
            differences: self.differences,
            bytes_total: self.bytes.0,
            bytes_read: self.bytes.1,
            first: self.first.as_ref().map(|first| first.first(self.step)),
            unmatched: others,
            not_compared: self.not_compared(),
            ..own
        }
    }

    pub(super) fn step(&self) -> u64 {
        self.step
    }
}

/// What a rank says of a step, or several of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ShareBallot {
    pub(super) share: ReferenceShare,
    /// An earlier divergence, for ranks that have not heard of it.
    pub(super) known: Option<ReferenceShare>,
}

wire! { struct ShareBallot { share, known } }

impl ShareBallot {
    fn merge(&mut self, other: ShareBallot) {
        self.share.merge(other.share);
        let known = [self.known.take(), other.known].into_iter().flatten();
        self.known = known.min_by_key(|known| known.step);
    }
}

/// The agreement of all ranks on what was found at a step.
pub(super) struct ShareVoting;

impl Voting for ShareVoting {
    fn merge(&self, votes: &mut Vec<u8>, others: &[u8]) -> Result<()> {
        let mut ballot = ShareBallot::from_letter(votes)?;
        ballot.merge(ShareBallot::from_letter(others)?);
        *votes = ballot.to_letter();
        Ok(())
    }

    fn decide(&mut self, votes: &[u8]) -> Result<Vec<u8>> {
        Ok(votes.to_vec())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn any_first() -> impl Strategy<Value = FirstLetter> {
        (0u32..3, prop::collection::vec(0u64..4, 2), any::<bool>(), any::<f64>(), any::<i64>())
            .prop_map(|(rank, index, global, x, y)| {
                let (step, until) = (Some(4), None);
                let (a, b) = (Some(Value::Float(x)), Some(Value::Int(i128::from(y) * 3)));
                let variable = if global { "g" } else { "own" }.to_string();
                let rank = Rank(rank);
                let first = First { step, rank, variable, index, until, global, a, b };
                FirstLetter::of(&first, if global { Order::Fortran } else { Order::C })
            })
    }

    fn any_ballot() -> impl Strategy<Value = ShareBallot> {
        let open = prop::option::of(("[ab]", "why").prop_map(|(v, why)| (Some(1), Some(v), why)));
        let names = || prop::collection::btree_map("[abc]", 0u32..2, 0..3);
        let known = prop::option::of(0u64..3);
        (0u64..3, prop::option::of(any_first()), open, prop::option::of(names()), known).prop_map(
            |(differences, first, open, lacking, known)| ShareBallot {
                share: ReferenceShare {
                    step: 4,
                    differences,
                    first: first.filter(|_| differences > 0),
                    unlike: lacking
                        .iter()
                        .flatten()
                        .map(|(n, r)| (*r, n.clone(), n.clone(), n.clone()))
                        .collect(),
                    lacking: lacking.map(|all| all.into_keys().map(|name| (name, 0)).collect()),
                    open: open.into_iter().collect(),
                    ..ReferenceShare::default()
                },
                known: known.map(ReferenceShare::nothing),
            },
        )
    }

    proptest! {
        #[test]
        fn shares_are_merged_in_any_order(all in prop::collection::vec(any_ballot(), 1..6), turn: usize) {
            let merged = |all: &[ShareBallot]| {
                let mut votes = all[0].to_letter();
                for other in &all[1..] {
                    ShareVoting.merge(&mut votes, &other.to_letter()).unwrap();
                }
                ShareBallot::from_letter(&votes).unwrap()
            };
            let forwards = merged(&all);
            let mut other: Vec<_> = all.iter().rev().cloned().collect();
            prop_assert_eq!(&merged(&other), &forwards);
            other.rotate_left(turn % all.len());
            prop_assert_eq!(&merged(&other), &forwards);
            let (left, right) = all.split_at(turn % all.len());
            if !left.is_empty() {
                prop_assert_eq!(merged(&[merged(left), merged(right)]), forwards.clone());
            }
            let (forwards, all) = (forwards.share, all.into_iter().map(|ballot| ballot.share));
            let all: Vec<ReferenceShare> = all.collect();
            prop_assert_eq!(forwards.differences, all.iter().map(|s| s.differences).sum::<u64>());
            // Never equal if one of them is not; and a difference that one has found stays one.
            let equal = all.iter().all(|share| share.verdict() == Answer::Equal);
            prop_assert!(forwards.verdict() != Answer::Equal || equal || all.iter().any(|s| s.lacking.is_some()));
            let found = all.iter().any(|s| s.differences > 0 || !s.unlike.is_empty());
            prop_assert!(!found || forwards.verdict() == Answer::Different);
        }

        #[test]
        fn a_first_difference_arrives_as_it_was(first in any_first()) {
            let share = ReferenceShare { step: 4, first: Some(first.clone()), ..Default::default() };
            let back = ReferenceShare::from_letter(&share.to_letter()).unwrap();
            prop_assert_eq!(&back, &share);
            let shown = first.first(4);
            let order = if shown.global { Order::Fortran } else { Order::C };
            prop_assert_eq!(FirstLetter::of(&shown, order), first);
        }
    }
}
