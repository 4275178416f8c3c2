//! Two variables that belong together, and by what they will be compared.

use super::boxes::position;
use super::fetch::SideBytes;
use super::judge::{Judge, Value};
use super::outcome::index_of;
use super::side::{Meter, SideEntry, TreeView};
use super::tally::Comparer;
use super::walk::{self, DifferingNode};
use crate::error::{Error, ErrorKind, Result};
use crate::io::past_the_cache;
use crate::merkle::bounded::{Bound, Grid, LACKING, Sketch};
use crate::source::QuadNumbers;
use std::collections::BTreeSet;
use std::fs::File;
use std::sync::OnceLock;

/// Size of a chunk without trees.
const CHUNK: u64 = 4096;
/// Number of chunks of a strip without trees.
const STRIP: u64 = 1024;

/// Two variables to be compared.
pub(super) struct Pair<'a> {
    pub(super) a: &'a SideEntry<'a>,
    pub(super) b: &'a SideEntry<'a>,
    /// The position among the variables of the step that are compared; boxes of one array have the same.
    pub(super) variable: usize,
    pub(super) bound: Bound,
    pub(super) comparer: Comparer,
    pub(super) bytes: u64,
    pub(super) chunk: u64,
    pub(super) strip: u64,
    pub(super) trees: Option<TreePair<'a>>,
    /// The values, if both sides have them.
    pub(super) inputs: Option<[SideBytes<'a>; 2]>,
}

/// Two trees that fit together and serve the bound.
pub(super) struct TreePair<'a> {
    pub(super) views: [&'a TreeView<'a>; 2],
    pub(super) sketch: Option<Sketch>,
    /// The lowest nodes that differ.
    pub(super) nodes: Vec<DifferingNode>,
    /// Chunks that must be looked at because NaN differs from NaN.
    pub(super) with_nan: BTreeSet<u64>,
    /// Chunks that have finite values without a cell.
    pub(super) lacking: BTreeSet<u64>,
    /// The files, read past the page cache.
    direct: [OnceLock<Option<File>>; 2],
}

impl<'a> Pair<'a> {
    pub(super) fn new(
        a: &'a SideEntry<'a>,
        b: &'a SideEntry<'a>,
        bound: Bound,
        nan_equal: bool,
        use_trees: bool,
        notes: &mut Vec<String>,
    ) -> Result<Pair<'a>> {
        let dtype = a.description.dtype;
        let bound = bound.of_type(dtype);
        let inputs = match (&a.values, &b.values) {
            (Some(a), Some(b)) => Some([SideBytes::new(a.as_ref()), SideBytes::new(b.as_ref())]),
            _ => None,
        };
        let views = match use_trees || inputs.is_none() {
            true => fitting(a, b, bound, notes),
            false => None,
        };
        let bytes = a.description.bytes().unwrap_or(0);
        // Nothing differs in what is empty, whatever trees there are.
        if views.is_none() && inputs.is_none() && a.description.bytes() != Some(0) {
            return Err(Error::new(
                ErrorKind::Mismatch,
                format!(
                    "variable {:?} has no values on one side, and no two trees that fit together \
                     and serve {bound}",
                    a.description.name
                ),
            )
            .hint(
                "compare within the bound that the trees were made for; `treering show` prints it",
            ));
        }
        let trees = views.map(|views| {
            let recipe = views[0].entry.recipe;
            let planes = recipe.planes.min(views[1].entry.recipe.planes);
            let sketch = Sketch::new(recipe.grid, dtype, bound, recipe.chunk, planes);
            TreePair {
                views,
                sketch,
                nodes: Vec::new(),
                with_nan: BTreeSet::new(),
                lacking: BTreeSet::new(),
                direct: Default::default(),
            }
        });
        let (chunk, strip) = match &trees {
            Some(trees) => (trees.views[0].layout.chunk, trees.views[0].layout.strip),
            None => (CHUNK, STRIP),
        };
        let mut judge = Judge::new(dtype, bound, nan_equal);
        judge.quads = quads(a, b, bound)?;
        let comparer = Comparer::new(judge);
        let variable = 0;
        Ok(Pair { a, b, variable, bound, comparer, bytes, chunk, strip, trees, inputs })
    }

    /// Two values as they are shown: by their names or texts, if they have some.
    pub(super) fn shown(&self, place: u64, values: (Value, Value)) -> (Value, Value) {
        let of_side = |side: &SideEntry, value: Value| {
            let word = side.meaning.words.as_ref().and_then(|words| words.word(place).ok());
            word.map_or(value, Value::Text)
        };
        (of_side(self.a, values.0), of_side(self.b, values.1))
    }

    /// The size of a difference; none can be told of digests.
    pub(super) fn size_of_difference(&self, x: &Value, y: &Value) -> f64 {
        match self.a.meaning.is_of_digests() || self.b.meaning.is_of_digests() {
            true => 1.0,
            false => x.difference(y),
        }
    }

    /// The index of an element: that in the global array, if this is a box of one.
    pub(super) fn index(&self, place: u64) -> Vec<u64> {
        let mut index = index_of(&self.a.description, place);
        if let Some(part) = self.a.description.global_box() {
            index.iter_mut().zip(&part.offset).for_each(|(i, offset)| *i += offset);
        }
        index
    }

    /// The extent of the array, or of the global one if this is a box of one.
    pub(super) fn extent(&self) -> &[u64] {
        let description = &self.a.description;
        description.global_box().map_or(&description.shape.0, |part| &part.global.0)
    }

    /// The position of an element in the memory of the array, or of the global one.
    pub(super) fn position(&self, place: u64) -> u128 {
        match self.a.description.global_box() {
            Some(_) => position(&self.index(place), self.extent(), self.a.description.order),
            None => place.into(),
        }
    }

    /// The place of the first element of a strip.
    pub(super) fn first_of(&self, strip: u64) -> u64 {
        strip * self.strip * self.chunk / self.a.description.dtype.size()
    }

    /// Walks the trees; the strips that have to be looked at, ascending.
    pub(super) fn strips(
        &mut self,
        nan_equal: bool,
        meter: &Meter,
        notes: &mut Vec<String>,
    ) -> Result<Vec<u64>> {
        let all = self.bytes.div_ceil(self.chunk * self.strip);
        let Some(trees) = &mut self.trees else { return Ok((0..all).collect()) };
        match trees.walk(nan_equal, self.inputs.is_none(), meter) {
            Ok(()) => Ok(self.strips_of_nodes()),
            Err((side, error)) if self.inputs.is_some() => {
                let name = &self.a.description.name;
                let which = ["first", "second"][side];
                notes.push(format!(
                    "the tree of variable {name:?} of the {which} side cannot be used ({error}); \
                     its values are compared"
                ));
                self.give_up_trees();
                self.strips(nan_equal, meter, notes)
            }
            Err((_, error)) => Err(error),
        }
    }

    fn give_up_trees(&mut self) {
        self.trees = None;
        (self.chunk, self.strip) = (CHUNK, STRIP);
    }

    fn strips_of_nodes(&self) -> Vec<u64> {
        let Some(trees) = &self.trees else { return Vec::new() };
        let node = crate::merkle::bounded::NODE;
        let chunks = self.bytes.div_ceil(self.chunk);
        let of_nodes = trees.nodes.iter().flat_map(|n| {
            let end = chunks.min((n.at + 1) * node);
            (n.at * node / self.strip)..end.div_ceil(self.strip)
        });
        let mut strips: BTreeSet<u64> = trees.with_nan.iter().map(|c| c / self.strip).collect();
        strips.extend(of_nodes);
        strips.into_iter().collect()
    }

    pub(super) fn chunks_of(&self, strip: u64) -> std::ops::Range<u64> {
        let chunks = self.bytes.div_ceil(self.chunk);
        strip * self.strip..chunks.min((strip + 1) * self.strip)
    }

    /// Whether values may have to come from below the page cache.
    pub(super) fn is_cold(&self) -> bool {
        let all = 0..self.bytes;
        self.inputs.iter().flatten().any(|input| !input.is_warm(&all))
    }

    /// Whether its bytes can only be read from the front to the back.
    pub(super) fn in_order(&self) -> bool {
        [&self.a.values, &self.b.values].into_iter().flatten().any(|values| values.in_order())
    }
}

impl TreePair<'_> {
    /// Walks down; `alone` says that there are no values to ask.
    fn walk(&mut self, nan_equal: bool, alone: bool, meter: &Meter) -> walk::Blamed<()> {
        let nans = !nan_equal && self.views.iter().any(|view| view.entry.nans > 0);
        let cells = alone && self.sketch.as_ref().is_some_and(Sketch::may_lack_cells);
        if nans || cells {
            for (side, view) in self.views.iter().enumerate() {
                let counts = walk::nans(view, meter).map_err(|e| (side, e))?;
                for (chunk, count) in counts.iter().enumerate() {
                    if nans && count & !LACKING > 0 {
                        self.with_nan.insert(chunk as u64);
                    }
                    if count & LACKING > 0 {
                        self.lacking.insert(chunk as u64);
                    }
                }
            }
        }
        if self.views[0].entry.root != self.views[1].entry.root {
            self.nodes = walk::walk(self.views, meter)?;
        }
        Ok(())
    }

    /// A side's file, to be read past the page cache.
    pub(super) fn past_the_cache(&self, side: usize) -> Option<&File> {
        let open = || self.views[side].file().and_then(|(file, _)| past_the_cache(file));
        self.direct[side].get_or_init(open).as_ref()
    }

    /// Whether leaves are digests of bytes, and bytes are what is compared: then leaves that differ prove a
    /// difference, and leaves that agree prove that there is none.
    pub(super) fn is_exact(&self, bound: Bound) -> bool {
        self.views[0].entry.recipe.grid == Grid::Bits && bound == Bound::Bits
    }

    /// The node above a chunk, if the trees differ there.
    pub(super) fn node_above(&self, chunk: u64) -> Option<&DifferingNode> {
        let at = chunk / crate::merkle::bounded::NODE;
        self.nodes.binary_search_by_key(&at, |node| node.at).ok().map(|i| &self.nodes[i])
    }
}

/// Whether values are numbers of 128 bits, and how many bits at their ends none of them has.
fn quads(a: &SideEntry, b: &SideEntry, bound: Bound) -> Result<Option<u32>> {
    let (Some(p), Some(q)) = (a.meaning.quads, b.meaning.quads) else { return Ok(None) };
    match (p.fraction.zip(q.fraction), bound) {
        (Some((p, q)), _) => Ok(Some(QuadNumbers::FRACTION - p.max(q))),
        (None, Bound::Ulp(1..)) => {
            let what = "numbers of a layout of its own are not compared by representable numbers";
            Err(Error::usage(what).hint("give an absolute or a relative bound"))
        }
        (None, _) => Ok(Some(0)),
    }
}

/// The two trees that serve the bound best, if any do; a sentence if there are trees and none does.
fn fitting<'a>(
    a: &'a SideEntry<'a>,
    b: &'a SideEntry<'a>,
    bound: Bound,
    notes: &mut Vec<String>,
) -> Option<[&'a TreeView<'a>; 2]> {
    let dtype = a.description.dtype;
    let mut best = None;
    for x in &a.trees {
        for y in &b.trees {
            let (p, q) = (&x.entry.recipe, &y.entry.recipe);
            let fit = p.grid == q.grid && p.chunk == q.chunk && x.layout.bytes == y.layout.bytes;
            let Some(reach) = p.grid.reach(dtype, bound).filter(|_| fit) else { continue };
            let rank = (reach.min(7), p.planes.min(q.planes));
            if best.as_ref().is_none_or(|(best, _)| rank > *best) {
                best = Some((rank, [x, y]));
            }
        }
    }
    if best.is_none() && !a.trees.is_empty() && !b.trees.is_empty() {
        let of = |entry: &SideEntry| {
            let recipes = entry.trees.iter().map(|tree| {
                format!("{} with {} B chunks", tree.entry.recipe.bound, tree.entry.recipe.chunk)
            });
            recipes.collect::<Vec<_>>().join(" and ")
        };
        let (name, of_a, of_b) = (&a.description.name, of(a), of(b));
        // Without a given bound there is none that trees could fail to serve.
        notes.push(match bound == Bound::EQUAL && of_a == of_b {
            true => format!(
                "the trees of variable {name:?} were made for {of_a} and do not serve a comparison \
                 without a bound; give one to use them"
            ),
            false => format!(
                "the trees of variable {name:?} do not serve {bound} together: one side has {of_a}, \
                 the other {of_b}"
            ),
        });
    }
    best.map(|(_, views)| views)
}
