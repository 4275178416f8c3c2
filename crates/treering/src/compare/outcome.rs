//! What a comparison found, as data.

use super::judge::{Number, Value};
use super::tally::{Classes, Tally};
use crate::array::{DType, Description, Order, Rank, Shape};
use crate::merkle::bounded::Bound;
use serde::Serialize;

/// The answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Answer {
    /// Nothing differs beyond the bounds.
    Equal,
    /// Something does, or variables, types or shapes do not agree.
    Different,
    /// Nothing surely differs, but not everything could be compared: chunks without values could not be
    /// decided, or something could not be read.
    Undecided,
}

/// What a comparison found.
#[derive(Clone, Debug, Serialize)]
pub struct Outcome {
    /// The first side.
    pub a: String,
    /// The second side, to which relative bounds refer.
    pub b: String,
    /// Whether nothing differs.
    pub equal: bool,
    /// The answer in a word.
    pub verdict: Answer,
    /// How many values differ beyond their bounds.
    pub differences: u64,
    /// The bytes of data of both sides.
    pub bytes_total: u64,
    /// How many of these, of sketches and of trees were read.
    pub bytes_read: u64,
    /// The first difference: lowest step, then rank, then variable, then index.
    pub first: Option<First>,
    /// Every variable of every step and rank that both sides have.
    pub variables: Vec<VariableOutcome>,
    /// What only one side has, or what does not fit together.
    pub unmatched: Vec<Unmatched>,
    /// Content of files beside their arrays that differs: attributes, links, texts.
    pub contents: Vec<ContentDifference>,
    /// Steps, variables and files that were not compared, and why.
    pub not_compared: Vec<NotCompared>,
    /// Number of variables, and items of files that belong to them, that patterns exclude; each step and rank counts.
    pub excluded: u64,
    /// Number of checkpoints of the two runs whose manifests cannot be read: these were not compared.
    pub unreadable: u64,
    /// Whether it stopped at the first difference: counts are of what was looked at until then.
    pub stopped: bool,
    /// What a person should know, such as trees that could not be used.
    pub notes: Vec<String>,
    /// Where the time went, in seconds.
    pub timings: Timings,
}

/// The first difference.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct First {
    /// The step, if there are steps.
    pub step: Option<u64>,
    /// The rank; of a global array, the one whose box of the first side holds the index.
    pub rank: Rank,
    /// The variable.
    pub variable: String,
    /// The index along each axis; of a global array, in the whole array.
    pub index: Vec<u64>,
    /// The last index at which it may be, where only sketches tell.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<Vec<u64>>,
    /// Whether the index is that of a global array, of which ranks have boxes.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub global: bool,
    /// The value of the first side, if it was read.
    pub a: Option<Value>,
    /// The value of the second side, if it was read.
    pub b: Option<Value>,
}

/// A variable of a step and rank.
#[derive(Clone, Debug, Serialize)]
pub struct VariableOutcome {
    /// Its name.
    pub name: String,
    /// The step, if there are steps.
    pub step: Option<u64>,
    /// The rank; of a global array, that of the first of its boxes on the first side, the same at every step.
    pub rank: Rank,
    /// The type.
    pub dtype: DType,
    /// The extent; of a global array, the whole of it.
    pub shape: Shape,
    /// Number of boxes on each side, if it was compared as a global array. Indices are those of the whole
    /// array, and the first difference is the first in its order of memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub boxes: Option<[u64; 2]>,
    /// The bound it was held to.
    pub bound: Bound,
    /// How many values it has.
    pub values: u64,
    /// How many differ beyond the bound.
    pub differences: u64,
    /// How many chunks could not be decided.
    pub undecided: u64,
    /// How many differences have a NaN on one side, or, if so wished, on both.
    pub nan_differences: u64,
    /// The largest difference among those beyond the bound.
    pub max_difference: Number,
    /// The root of the mean square of the finite ones of these.
    pub rms: Number,
    /// The index of the first.
    pub first_index: Option<Vec<u64>>,
    /// The last index at which the first may be, where only sketches tell.
    pub first_until: Option<Vec<u64>>,
    /// Whether there may be more differences than were counted, of unknown size: only trees and
    /// sketches were there, or some values could not be read.
    pub at_least: bool,
    /// Whether some of its values could not be read: `not_compared` of the outcome has the reason.
    pub incomplete: bool,
    /// How many values are NaN on each side, where that is known.
    pub nans: Option<[u64; 2]>,
    /// How many chunks there are, differ in their leaves, and had their values read.
    pub chunks: u64,
    /// Those of which the leaves differ; all, without trees.
    pub mismatched_chunks: u64,
    /// Those of which the values were read.
    pub read_chunks: u64,
    /// How many differences have which size; empty if there are none.
    pub classes: Classes,
    /// Where the differences are.
    pub pictures: Vec<Picture>,
    /// The first of its differences, as many as were asked for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub examples: Vec<ValueDifference>,
    /// Reason why its values were not decoded. It is equal because the stored bytes of both sides are the same.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub undecoded: Option<String>,
}

/// A difference between two values.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ValueDifference {
    /// The index along each axis; of a global array, in the whole array.
    pub index: Vec<u64>,
    /// The value of the first side.
    pub a: Value,
    /// The value of the second side.
    pub b: Value,
}

/// Something that one side only has.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Unmatched {
    /// In a few words.
    pub what: String,
    /// The step.
    pub step: Option<u64>,
    /// The rank.
    pub rank: Option<Rank>,
    /// The variable.
    pub variable: Option<String>,
    /// More of it.
    pub detail: String,
}

/// Content of a file beside its arrays that differs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ContentDifference {
    /// The step.
    pub step: Option<u64>,
    /// The rank.
    pub rank: Rank,
    /// The file.
    pub file: String,
    /// The attribute, link, type or text.
    pub item: String,
    /// Both values where they are short, or the side that has it.
    pub detail: String,
}

/// Something that was not compared.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct NotCompared {
    /// The step.
    pub step: Option<u64>,
    /// The rank; none if it is the whole step.
    pub rank: Option<Rank>,
    /// The variable or file; none if it is the whole step.
    pub variable: Option<String>,
    /// The reason, as a sentence.
    pub why: String,
}

/// Where the time went, in seconds; the stages overlap, so they are shares of all threads' time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Timings {
    /// Opening, listing and pairing.
    pub setup: f64,
    /// Reading the nodes of trees.
    pub trees: f64,
    /// Walking: leaves read and held against each other.
    pub walking: f64,
    /// Reading and judging sketches.
    pub sketches: f64,
    /// Reading values, and waiting for them.
    pub reading: f64,
    /// Comparing values.
    pub comparing: f64,
    /// From the beginning to the end.
    pub total: f64,
}

/// A picture of where differences are: the largest in each cell of a plane.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Picture {
    /// The axes that are shown, the vertical one first.
    pub axes: Vec<usize>,
    /// The extent of the array along these.
    pub extent: Vec<u64>,
    /// How many cells there are along each.
    pub size: Vec<u64>,
    /// The largest difference in each cell, row by row.
    pub cells: Vec<Number>,
}

/// Cells of a picture of one axis, and along each of two.
const PROFILE: u64 = 256;
const SIDE: u64 = 64;

impl Picture {
    /// The pictures of an array: a profile, a plane, or the three projections of a box. More axes are
    /// shown by their last three.
    pub(super) fn of(shape: &[u64]) -> Vec<Picture> {
        let axes = shape.len();
        let planes: Vec<Vec<usize>> = match axes {
            0 => Vec::new(),
            1 => vec![vec![0]],
            2 => vec![vec![0, 1]],
            _ => vec![vec![axes - 2, axes - 1], vec![axes - 3, axes - 1], vec![axes - 3, axes - 2]],
        };
        let blank = |axes: Vec<usize>| {
            let most = if axes.len() == 1 { PROFILE } else { SIDE };
            let extent: Vec<u64> = axes.iter().map(|axis| shape[*axis]).collect();
            let size: Vec<u64> = extent.iter().map(|e| (*e).clamp(1, most)).collect();
            let cells = vec![Number(0.0); size.iter().product::<u64>() as usize];
            Picture { axes, extent, size, cells }
        };
        planes.into_iter().map(blank).collect()
    }

    pub(super) fn add(&mut self, index: &[u64], difference: f64) {
        let place = |i: usize| {
            (index[self.axes[i]] as u128 * self.size[i] as u128 / self.extent[i].max(1) as u128)
                as u64
        };
        let cell = (0..self.axes.len()).fold(0, |cell, i| cell * self.size[i] + place(i));
        // Something that has no size is still there.
        let difference = if difference.is_nan() { f64::INFINITY } else { difference };
        let cell = &mut self.cells[cell as usize];
        cell.0 = cell.0.max(difference);
    }

    pub(super) fn merge(&mut self, other: &Picture) {
        self.cells.iter_mut().zip(&other.cells).for_each(|(a, b)| a.0 = a.0.max(b.0));
    }
}

/// The index along each axis of the element at a place in memory.
pub(super) fn index_of(array: &Description, mut place: u64) -> Vec<u64> {
    let shape = &array.shape;
    let mut index = vec![0; shape.0.len()];
    let mut axes: Vec<usize> = (0..shape.0.len()).collect();
    if array.order == Order::C {
        axes.reverse();
    }
    for axis in axes {
        let extent = shape.0[axis].max(1);
        index[axis] = place % extent;
        place /= extent;
    }
    index
}

impl VariableOutcome {
    pub(super) fn fill(&mut self, tally: &Tally) {
        if tally.differences > 0 && tally.first.is_none() {
            (self.at_least, self.differences) = (true, tally.differences);
            (self.max_difference, self.rms) = (Number(f64::NAN), Number(f64::NAN));
            return;
        }
        self.differences = tally.differences;
        self.nan_differences = tally.nan_differences;
        self.max_difference = Number(tally.largest);
        self.rms = Number(tally.root_mean_square());
        self.classes = tally.classes.clone();
    }
}
