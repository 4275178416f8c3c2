//! The result of a comparison, as data.

use super::judge::{Number, Value};
use super::tally::{Classes, Tally};
use crate::array::{DType, Description, Order, Rank, Shape};
use crate::merkle::bounded::Bound;
use serde::Serialize;
use std::cmp::Ordering;
use std::collections::HashMap;

/// The verdict of a comparison: [`Outcome::verdict`]. [`Outcome`] has an example.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Answer {
    /// All values are within the bounds.
    Equal,
    /// Some value differs beyond its bound, or variables, types or shapes do not agree.
    Different,
    /// No difference was found, but not everything could be compared: chunks without values could not be
    /// decided, or data could not be read.
    Undecided,
}

/// The result of a comparison: verdict, first difference, counts for each variable, and what was not compared. It
/// serializes to JSON; [`Outcome::html`] makes a page of it.
///
/// ```
/// use treering::{Answer, Bound, CompareSettings, Value, compare, open_side};
/// # let folder = tempfile::tempdir().unwrap();
/// # let file = |name: &str, values: [f64; 3]| {
/// #     let path = folder.path().join(name);
/// #     std::fs::write(&path, values.map(f64::to_le_bytes).concat()).unwrap();
/// #     path.display().to_string()
/// # };
/// # let (monday, tuesday) = (file("a.f64", [1.0, 2.0, 3.0]), file("b.f64", [1.0, 2.0, 3.5]));
/// let layout = treering::RawLayout::values(treering::DType::F64, None);
/// let (a, b) = (open_side(&monday, Some(&layout), true)?, open_side(&tuesday, Some(&layout), true)?);
/// let settings = CompareSettings { examples: 10, ..CompareSettings::within(Bound::abs(1e-6)) };
/// let outcome = compare(a.as_ref(), b.as_ref(), &settings, None, &|_done, _of| {})?;
/// assert!(!outcome.equal);
/// assert_eq!(outcome.verdict, Answer::Different);
/// assert_eq!(outcome.first.as_ref().unwrap().index, [2]);
/// assert_eq!(outcome.variables[0].differences, 1);
/// assert_eq!(outcome.variables[0].examples[0].a, Value::Float(3.0));
/// for missing in &outcome.unmatched {
///     println!("{}: {:?} of step {:?}", missing.what, missing.variable, missing.step);
/// }
/// for left_out in &outcome.not_compared {
///     println!("{:?} was not compared: {}", left_out.variable, left_out.why);
/// }
/// for item in &outcome.contents {
///     println!("{} of {} differs: {}", item.item, item.of(), item.detail); // attributes, links, texts
/// }
/// println!("{} bytes read in {} s", outcome.bytes_read, outcome.timings.total);
/// println!("{}", outcome.sentence()); // different: 1 of 3 values beyond their bounds; the first: …
/// # Ok::<(), treering::Error>(())
/// ```
#[derive(Clone, Debug, Serialize)]
pub struct Outcome {
    /// The first side.
    pub a: String,
    /// The second side, to which relative bounds refer.
    pub b: String,
    /// Whether nothing differs.
    pub equal: bool,
    /// The verdict.
    pub verdict: Answer,
    /// Number of values that differ beyond their bounds.
    pub differences: u64,
    /// Bytes of data of both sides.
    pub bytes_total: u64,
    /// Bytes that were read: data, sketches and trees.
    pub bytes_read: u64,
    /// The first difference: lowest step, then rank, then variable, then index.
    pub first: Option<First>,
    /// Every variable of every step and rank that both sides have.
    pub variables: Vec<VariableOutcome>,
    /// Steps, ranks and variables that only one side has, or whose types or shapes differ.
    pub unmatched: Vec<Unmatched>,
    /// Content beside the arrays that differs: attributes, links and texts of files, and attributes of a program's
    /// variables.
    pub contents: Vec<ContentDifference>,
    /// Steps, variables and files that were not compared, and why.
    pub not_compared: Vec<NotCompared>,
    /// Number of variables, and items of files that belong to them, that patterns exclude; each step and rank counts.
    pub excluded: u64,
    /// Number of checkpoints of the two runs whose manifests cannot be read: these were not compared.
    pub unreadable: u64,
    /// Whether it stopped at the first difference: counts are of what was looked at until then.
    pub stopped: bool,
    /// Notes for people, for example about trees that could not be used.
    pub notes: Vec<String>,
    /// Time of each stage, in seconds.
    pub timings: Timings,
}

/// The first difference: [`Outcome::first`]. [`Outcome`] has an example.
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
    /// The last possible index of the difference, where it is known from sketches only.
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

/// The outcome for a variable of a step and rank: one of [`Outcome::variables`]. [`Outcome`] has an example.
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
    /// The kind of values that are not numbers: they are compared by 64-bit digests of what they mean.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// The extent; of a global array, the whole of it.
    pub shape: Shape,
    /// Number of boxes on each side, if it was compared as a global array. Indices are those of the whole
    /// array, and the first difference is the first in its order of memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub boxes: Option<[u64; 2]>,
    /// The bound of the comparison.
    pub bound: Bound,
    /// Number of values.
    pub values: u64,
    /// Number of values that differ beyond the bound.
    pub differences: u64,
    /// Number of chunks that could not be decided.
    pub undecided: u64,
    /// Number of differences with a NaN on one side; with `nan_equal: false`, also on both.
    pub nan_differences: u64,
    /// The largest difference among those beyond the bound.
    pub max_difference: Number,
    /// The largest difference in units of the bound; infinite under a bound of 0, NaN if no values were read.
    pub times_bound: Number,
    /// The root of the mean square of the finite ones of these.
    pub rms: Number,
    /// The index of the first.
    pub first_index: Option<Vec<u64>>,
    /// The last possible index of the first difference, where it is known from sketches only.
    pub first_until: Option<Vec<u64>>,
    /// Whether there may be more differences than were counted, of unknown size: only trees and
    /// sketches were there, or some values could not be read.
    pub at_least: bool,
    /// Whether some of its values could not be read: `not_compared` of the outcome has the reason.
    pub incomplete: bool,
    /// Number of NaN on each side, where that is known.
    pub nans: Option<[u64; 2]>,
    /// Number of chunks.
    pub chunks: u64,
    /// Number of chunks whose leaves differ; all, without trees.
    pub mismatched_chunks: u64,
    /// Number of chunks whose values were read.
    pub read_chunks: u64,
    /// Histogram of the sizes of differences, in half decades from 1e-12; empty if there are none.
    pub classes: Classes,
    /// Maps of where the differences are, for the first difference and the worst variables.
    pub pictures: Vec<Picture>,
    /// The first of its differences, as many as [`CompareSettings::examples`](crate::CompareSettings::examples).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub examples: Vec<ValueDifference>,
    /// Reason why its values were not decoded. It is equal because the stored bytes of both sides are the same.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub undecoded: Option<String>,
}

/// A difference between two values: one of [`VariableOutcome::examples`]. [`Outcome`] has an example.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ValueDifference {
    /// The index along each axis; of a global array, in the whole array.
    pub index: Vec<u64>,
    /// The value of the first side.
    pub a: Value,
    /// The value of the second side.
    pub b: Value,
}

/// A step, rank or variable that only one side has, or whose types or shapes differ: one of [`Outcome::unmatched`].
/// [`Outcome`] has an example.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Unmatched {
    /// Kind of mismatch, for example "only in the first" or "shapes differ".
    pub what: String,
    /// The step.
    pub step: Option<u64>,
    /// The rank.
    pub rank: Option<Rank>,
    /// The variable.
    pub variable: Option<String>,
    /// Both types or shapes, if these differ.
    pub detail: String,
}

/// Content of a file beside its arrays that differs, or an attribute of a program's variable: one of
/// [`Outcome::contents`]. [`Outcome`] has an example.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ContentDifference {
    /// The step.
    pub step: Option<u64>,
    /// The rank.
    pub rank: Rank,
    /// The file; none for a variable of a program.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// The variable of a program that has the attribute; none for files.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub variable: Option<String>,
    /// The attribute, link, type or text.
    pub item: String,
    /// Both values where they are short, or the side that has it.
    pub detail: String,
}

impl ContentDifference {
    /// The name of the file or the variable.
    pub fn of(&self) -> &str {
        self.file.as_deref().or(self.variable.as_deref()).unwrap_or_default()
    }
}

/// A step, variable or file that was not compared, and the reason: one of [`Outcome::not_compared`]. [`Outcome`] has an
/// example.
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

/// Time of each stage, in seconds ([`Outcome::timings`]). Stages overlap, so these are shares of the time of all threads.
/// [`Outcome`] has an example.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Timings {
    /// Opening, listing and pairing.
    pub setup: f64,
    /// Reading the nodes of trees.
    pub trees: f64,
    /// Reading leaves and comparing them.
    pub walking: f64,
    /// Reading and judging sketches.
    pub sketches: f64,
    /// Reading values, and waiting for them.
    pub reading: f64,
    /// Comparing values.
    pub comparing: f64,
    /// Whole comparison, wall-clock time.
    pub total: f64,
}

/// A map of where differences are: the largest in each cell of a plane, in units of the bound; under a bound of 0,
/// the difference itself. A difference without a finite size is infinite.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Picture {
    /// The axes that are shown, the vertical one first.
    pub axes: Vec<usize>,
    /// The extent of the array along these.
    pub extent: Vec<u64>,
    /// Number of cells along each.
    pub size: Vec<u64>,
    /// The largest difference in each cell, row by row.
    pub cells: Vec<Number>,
    /// For a slice, the axis that it is across, and its indices there. `None`: the largest along all other axes.
    pub slice: Option<MapSlice>,
}

/// The indices of a slice across an axis; several where the array has more of them than the map has cells.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct MapSlice {
    /// The axis.
    pub axis: usize,
    /// The first index.
    pub from: u64,
    /// The index behind the last one.
    pub until: u64,
}

/// Cells of a map of one axis, along each side of a plane, and of each of three planes.
const PROFILE: u64 = 256;
const PLANE: u64 = 128;
const PROJECTION: u64 = 64;
/// The most variables, each at one step and rank, that have maps in an outcome, and those of one name among them.
const MOST_MAPPED: usize = 32;
const MOST_OF_NAME: usize = 6;

impl Picture {
    /// The maps of an array: a profile, a plane, or the three projections of a box and the box itself, out of which slices
    /// are cut when it is complete. Axes of extent 1 do not count, and more axes are shown by their last three.
    pub(super) fn of(shape: &[u64]) -> Vec<Picture> {
        let mut long: Vec<usize> = (0..shape.len()).filter(|axis| shape[*axis] > 1).collect();
        if long.is_empty() {
            long.extend((!shape.is_empty()).then_some(0));
        }
        let planes: Vec<Vec<usize>> = match long[..] {
            [] => Vec::new(),
            [x] => vec![vec![x]],
            [y, x] => vec![vec![y, x]],
            [.., z, y, x] => vec![vec![y, x], vec![z, x], vec![z, y], vec![z, y, x]],
        };
        let side = if planes.len() == 1 { PLANE } else { PROJECTION };
        let blank = |axes: Vec<usize>| {
            let most = if axes.len() == 1 { PROFILE } else { side };
            let extent: Vec<u64> = axes.iter().map(|axis| shape[*axis]).collect();
            let size: Vec<u64> = extent.iter().map(|e| (*e).clamp(1, most)).collect();
            let cells = vec![Number(0.0); size.iter().product::<u64>() as usize];
            Picture { axes, extent, size, cells, slice: None }
        };
        planes.into_iter().map(blank).collect()
    }

    /// Cuts the box among complete maps into its three slices through the largest difference.
    pub(super) fn slice(maps: &mut Vec<Picture>) {
        let Some(whole) = maps.pop_if(|map| map.axes.len() == 3) else { return };
        let largest = (0..whole.cells.len()).max_by(|p, q| {
            let (p, q) = (whole.cells[*p].0, whole.cells[*q].0);
            p.total_cmp(&q)
        });
        let Some(at) = largest else { return };
        let [_, rows, columns] = [0, 1, 2].map(|axis| whole.size[axis] as usize);
        let place = [at / (rows * columns), at / columns % rows, at % columns];
        for across in 0..3 {
            let [high, wide] = [[1, 2], [0, 2], [0, 1]][across];
            let cell = |i: u64, j: u64| {
                let mut at = place;
                (at[across], at[high], at[wide]) = (place[across], i as usize, j as usize);
                whole.cells[(at[0] * rows + at[1]) * columns + at[2]]
            };
            let size = vec![whole.size[high], whole.size[wide]];
            let cells = (0..size[0]).flat_map(|i| (0..size[1]).map(move |j| (i, j)));
            let edge = |cell: usize| {
                let all = cell as u128 * u128::from(whole.extent[across]);
                all.div_ceil(u128::from(whole.size[across])) as u64
            };
            let slice = MapSlice {
                axis: whole.axes[across],
                from: edge(place[across]),
                until: edge(place[across] + 1),
            };
            maps.push(Picture {
                axes: vec![whole.axes[high], whole.axes[wide]],
                extent: vec![whole.extent[high], whole.extent[wide]],
                cells: cells.map(|(i, j)| cell(i, j)).collect(),
                size,
                slice: Some(slice),
            });
        }
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

/// The order of severity, worst first: by the largest difference in units of the bound, where NaN on one side counts as
/// infinite and a size that is not known as none, then by the share of values that differ.
#[derive(Clone, Copy)]
pub(crate) struct Severity {
    times: f64,
    share: f64,
}

impl Severity {
    pub(crate) fn of(nan_differences: u64, times_bound: Number, share: f64) -> Severity {
        let times = match (nan_differences, times_bound.0) {
            (0, times) if times.is_nan() => 0.0,
            (0, times) => times,
            _ => f64::INFINITY,
        };
        Severity { times, share }
    }

    pub(crate) fn worst_first(self, other: Severity) -> Ordering {
        let by_times = other.times.total_cmp(&self.times);
        by_times.then(other.share.total_cmp(&self.share))
    }
}

/// Removes maps so that their number stays bounded: those of the first difference and of the worst variables are kept.
pub(super) fn bound_maps(variables: &mut [VariableOutcome], first: Option<usize>) {
    let mut mapped: Vec<usize> =
        (0..variables.len()).filter(|at| !variables[*at].pictures.is_empty()).collect();
    let severity = |v: &VariableOutcome| {
        Severity::of(
            v.nan_differences,
            v.times_bound,
            v.differences as f64 / v.values.max(1) as f64,
        )
    };
    mapped.sort_by(|p, q| {
        let by_severity = severity(&variables[*p]).worst_first(severity(&variables[*q]));
        (first == Some(*q)).cmp(&(first == Some(*p))).then(by_severity)
    });
    let mut of_name: HashMap<String, usize> = HashMap::new();
    let mut kept = 0;
    for at in mapped {
        let count = of_name.entry(variables[at].name.clone()).or_default();
        if kept < MOST_MAPPED && *count < MOST_OF_NAME {
            (kept, *count) = (kept + 1, *count + 1);
        } else {
            variables[at].pictures = Vec::new();
        }
    }
}

impl VariableOutcome {
    pub(super) fn fill(&mut self, tally: &Tally) {
        if tally.differences > 0 && tally.first.is_none() {
            (self.at_least, self.differences) = (true, tally.differences);
            let unknown = Number(f64::NAN);
            (self.max_difference, self.times_bound, self.rms) = (unknown, unknown, unknown);
            return;
        }
        self.differences = tally.differences;
        self.nan_differences = tally.nan_differences;
        self.max_difference = Number(tally.largest);
        self.times_bound = Number(tally.times_bound);
        self.rms = Number(tally.root_mean_square());
        self.classes = tally.classes.clone();
    }
}
