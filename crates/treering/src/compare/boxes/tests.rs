//! Random decompositions of random arrays, compared with a plain loop over the whole arrays.

use super::*;
use crate::array::{Step, Variable};
use crate::compare::judge::Judge;
use crate::compare::outcome::index_of;
use crate::compare::side::{FileView, Side, read_trees};
use crate::compare::sides::Held;
use crate::compare::tree_settings::put_head;
use crate::compare::trees::build;
use crate::compare::{Answer, CompareSettings, Outcome, Progress, compare};
use crate::format::TREE_FRONT;
use crate::format::TreeOrigin;
use crate::merkle::bounded::{Bound, Recipe};
use proptest::prelude::*;

const QUIET: Progress = &|_, _| {};

/// Variables of ranks at one step.
struct RankedSide(Vec<SideEntry<'static>>);

impl Side for RankedSide {
    fn name(&self) -> String {
        "ranks".into()
    }

    fn steps(&self) -> Result<Vec<Option<Step>>> {
        Ok(vec![Some(Step(3))])
    }

    fn entries(&self, _: Option<Step>) -> Result<Vec<SideEntry<'_>>> {
        Ok(self.0.clone())
    }

    fn files(&self, _: Option<Step>) -> Result<Vec<FileView>> {
        Ok(Vec::new())
    }

    fn unreadable(&self) -> u64 {
        0
    }

    fn notes(&self) -> Vec<String> {
        Vec::new()
    }
}

/// A global array of some type and order.
#[derive(Clone, Debug)]
struct Whole {
    description: Description,
    bytes: Vec<u8>,
}

impl Whole {
    fn new(dtype: DType, shape: &[u64], order: Order, bytes: Vec<u8>) -> Whole {
        let name = "x".to_string();
        let shape = Shape(shape.to_vec());
        let attributes = Default::default();
        let description = Description { name, dtype, shape, order, part: None, attributes };
        Whole { description, bytes }
    }

    /// The bytes of a box, in its order of memory.
    fn cut(&self, place: &IndexBox) -> Vec<u8> {
        let d = &self.description;
        let all = IndexBox { offset: vec![0; d.shape.0.len()], extent: d.shape.0.clone() };
        let size = d.dtype.size() as usize;
        let mut out = vec![0; place.elements().unwrap() as usize * size];
        for run in all.runs_in(place, d.order) {
            let (from, to, len) = (run.from as usize, run.to as usize, run.len as usize);
            out[to * size..(to + len) * size]
                .copy_from_slice(&self.bytes[from * size..(from + len) * size]);
        }
        out
    }

    fn entry(
        &self,
        rank: u32,
        place: Option<&IndexBox>,
        trees: Option<Bound>,
    ) -> SideEntry<'static> {
        let mut description = self.description.clone();
        let mut bytes = self.bytes.clone();
        if let Some(place) = place {
            bytes = self.cut(place);
            let offset = place.offset.clone();
            let global = self.description.shape.clone();
            description.part = Some(Part::Box(GlobalBox { global, offset, ghosts: None }));
            description.shape = Shape(place.extent.clone());
        }
        let mut views = Vec::new();
        for bound in trees.into_iter().filter(|_| !bytes.is_empty()) {
            let recipe = Recipe::new(description.dtype, bound, 512, 4).unwrap();
            let values = Held(bytes.clone());
            let images = build(description.dtype, &[recipe], &values, TREE_FRONT, &|_| {});
            for mut image in images.unwrap() {
                put_head(&description, &mut image, TreeOrigin::None, Default::default()).unwrap();
                views.extend(read_trees(Arc::new(Held(image.bytes)) as Arc<dyn Blob>).unwrap().1);
            }
        }
        views.iter_mut().for_each(|view| view.entry.rank = Rank(rank));
        let values: Arc<dyn Blob> = Arc::new(Held(bytes));
        SideEntry {
            rank: Rank(rank),
            description,
            origin: None,
            values: Some(values),
            trees: views,
            unread: None,
            meaning: Default::default(),
            chunk: None,
        }
    }

    fn in_boxes(&self, boxes: &[IndexBox], trees: Option<Bound>) -> RankedSide {
        let entry = |(rank, place): (usize, &IndexBox)| self.entry(rank as u32, Some(place), trees);
        RankedSide(boxes.iter().enumerate().map(entry).collect())
    }

    fn alone(&self) -> RankedSide {
        RankedSide(vec![self.entry(0, None, None)])
    }

    /// The places that differ, by a plain loop.
    fn differences(&self, other: &Whole, bound: Bound, nan_equal: bool) -> Vec<u64> {
        let dtype = self.description.dtype;
        let judge = Judge::new(dtype, bound.of_type(dtype), nan_equal);
        let size = dtype.size() as usize;
        let pairs = self.bytes.chunks(size).zip(other.bytes.chunks(size)).enumerate();
        pairs.filter(|(_, (x, y))| judge.differ(x, y)).map(|(at, _)| at as u64).collect()
    }
}

/// Cuts of an array: each halves one of the boxes there are, somewhere along an axis.
fn decompose(shape: &[u64], cuts: &[(usize, usize, u64)]) -> Vec<IndexBox> {
    let mut boxes = vec![IndexBox { offset: vec![0; shape.len()], extent: shape.to_vec() }];
    for (which, axis, at) in cuts {
        let (which, axis) = (which % boxes.len(), axis % shape.len());
        let mut rest = boxes[which].clone();
        let at = at % (rest.extent[axis] + 1);
        boxes[which].extent[axis] = at;
        rest.offset[axis] += at;
        rest.extent[axis] -= at;
        boxes.push(rest);
    }
    boxes
}

fn any_cuts() -> impl Strategy<Value = Vec<(usize, usize, u64)>> {
    prop::collection::vec((0usize..64, 0usize..4, 0u64..64), 0..9)
}

/// Two arrays: the second differs in a few places, by little, by much or by a NaN.
fn any_wholes() -> impl Strategy<Value = (Whole, Whole)> {
    let shape = prop::collection::vec(1u64..14, 1..4);
    let changes = prop::collection::vec((0usize..4096, 0u8..4), 0..6);
    let dtype = prop::sample::select(vec![DType::F64, DType::F32, DType::I32, DType::U8]);
    (shape, changes, dtype, any::<bool>(), any::<u64>()).prop_map(
        |(shape, changes, dtype, fortran, seed)| {
            let count = shape.iter().product::<u64>() as usize;
            let value = |at: usize| ((at as u64).wrapping_mul(seed | 1) >> 40) as f64 / 1024.0;
            let mut values: Vec<f64> = (0..count).map(value).collect();
            for (at, _) in changes.iter().filter(|(_, kind)| *kind == 3) {
                values[(at * 7) % count] = f64::NAN;
            }
            let mut others = values.clone();
            for (at, kind) in changes {
                let other = &mut others[at % count];
                *other = match kind {
                    0 => *other + 1e-9,
                    1 => *other + 0.01,
                    2 => *other * 1.5 + 7.0,
                    _ => f64::NAN,
                };
            }
            let order = if fortran { Order::Fortran } else { Order::C };
            let bytes = |values: &[f64]| -> Vec<u8> {
                let one = |x: &f64| match dtype {
                    DType::F64 => x.to_le_bytes().to_vec(),
                    DType::F32 => (*x as f32).to_le_bytes().to_vec(),
                    DType::I32 => (*x as i32).to_le_bytes().to_vec(),
                    _ => vec![*x as u8],
                };
                values.iter().flat_map(one).collect()
            };
            let whole = |values: &[f64]| Whole::new(dtype, &shape, order, bytes(values));
            (whole(&values), whole(&others))
        },
    )
}

fn any_bound() -> impl Strategy<Value = Bound> {
    prop::sample::select(vec![
        Bound::abs(1e-6),
        Bound::abs(0.1),
        Bound::rel(1e-3),
        Bound::Bits,
        Bound::EQUAL,
    ])
}

fn check(outcome: &Outcome, a: &Whole, b: &Whole, bound: Bound, boxes: &[IndexBox], stopped: bool) {
    let expected = a.differences(b, bound, true);
    let [found] = &outcome.variables[..] else { panic!("one array: {outcome:?}") };
    let first = expected.first().map(|place| index_of(&a.description, *place));
    assert_eq!(found.first_index, first);
    assert_eq!(outcome.first.as_ref().map(|first| first.index.clone()), first);
    let answer = if expected.is_empty() { Answer::Equal } else { Answer::Different };
    assert_eq!(outcome.verdict, answer, "{outcome:?}");
    assert_eq!(found.shape, a.description.shape);
    if !stopped {
        assert_eq!(found.differences, expected.len() as u64);
        assert_eq!(found.values, a.description.shape.elements().unwrap());
    }
    if let Some(first) = &outcome.first {
        let place = &boxes[first.rank.0 as usize];
        let own = first.index.iter().zip(&place.offset).zip(&place.extent);
        assert!(own.into_iter().all(|((i, o), e)| o <= i && i - o < *e), "the rank has the index");
        let size = a.description.dtype.size() as usize;
        let read = |whole: &Whole| {
            crate::compare::Value::read(
                whole.description.dtype,
                &whole.bytes[expected[0] as usize * size..],
            )
        };
        let shown = |value| format!("{value:?}");
        assert_eq!(first.a.clone().map(shown), Some(shown(read(a))));
        assert_eq!(first.b.clone().map(shown), Some(shown(read(b))));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn any_two_decompositions_are_compared_as_the_whole_arrays(
        (a, b) in any_wholes(),
        (of_a, of_b, same) in (any_cuts(), any_cuts(), any::<bool>()),
        bound in any_bound(),
        (trees, first) in (any::<[bool; 2]>(), any::<bool>()),
    ) {
        let shape = a.description.shape.0.clone();
        let of_a = decompose(&shape, &of_a);
        let of_b = if same { of_a.iter().rev().cloned().collect() } else { decompose(&shape, &of_b) };
        let tree = |side: usize| trees[side].then_some(bound);
        let settings = CompareSettings { first, ..CompareSettings::within(bound) };
        let whole = [IndexBox { offset: vec![0; shape.len()], extent: shape.clone() }];
        let (x, y) = (a.in_boxes(&of_a, tree(0)), b.in_boxes(&of_b, tree(1)));
        let outcome = compare(&x, &y, &settings, None, QUIET).unwrap();
        check(&outcome, &a, &b, bound, &of_a, first);
        prop_assert_eq!(outcome.variables[0].boxes, Some([of_a.len() as u64, of_b.len() as u64]));
        let outcome = compare(&a.alone(), &y, &settings, None, QUIET).unwrap();
        check(&outcome, &a, &b, bound, &whole, first);
        let outcome = compare(&x, &b.alone(), &settings, None, QUIET).unwrap();
        check(&outcome, &a, &b, bound, &of_a, first);
    }

    /// A box that is missing, or there twice, leaves the answer open, whatever the values are.
    #[test]
    fn gaps_and_overlaps_are_never_equal(
        (a, _) in any_wholes(),
        (of_a, of_b) in (any_cuts(), any_cuts()),
        (which, twice, second) in (any::<usize>(), any::<bool>(), any::<bool>()),
    ) {
        let shape = a.description.shape.0.clone();
        let mut bad = decompose(&shape, &of_a);
        let which = bad.iter().cycle().skip(which % bad.len()).find(|b| b.elements() != Some(0));
        let which = bad.iter().position(|b| Some(b) == which).unwrap();
        match twice {
            true => bad.push(bad[which].clone()),
            false => bad[which].extent = vec![0; shape.len()],
        }
        let (bad, good) = (a.in_boxes(&bad, None), a.in_boxes(&decompose(&shape, &of_b), None));
        let own = Whole::new(DType::U8, &[3], Order::C, vec![1; 3]);
        let own = || {
            let mut own = own.entry(0, None, None);
            own.description.name = "own".into();
            own
        };
        let [bad, good] = [bad, good].map(|mut side| {
            side.0.push(own());
            side
        });
        let (x, y) = if second { (&good, &bad) } else { (&bad, &good) };
        let outcome = compare(x, y, &CompareSettings::default(), None, QUIET).unwrap();
        prop_assert_eq!(outcome.verdict, Answer::Undecided);
        prop_assert_eq!(outcome.not_compared.len(), 1);
    }

    /// A gathered box reads as the box itself, in any order and from any offset.
    #[test]
    fn a_gathered_box_is_the_box(
        (a, _) in any_wholes(),
        (cuts, target) in (any_cuts(), any_cuts()),
        reads in prop::collection::vec((any::<u64>(), any::<u64>()), 1..9),
        window in 1u64..200,
    ) {
        let shape = a.description.shape.0.clone();
        let side = a.in_boxes(&decompose(&shape, &cuts), None);
        let array = SideArray::of(&side.0.iter().collect::<Vec<_>>()).unwrap();
        let target = decompose(&shape, &target).pop().unwrap();
        let (places, expected): (Vec<&IndexBox>, _) =
            (array.boxes.iter().map(|(place, _)| place).collect(), a.cut(&target));
        let mut pieces = Vec::new();
        crossings(&[&target], &places, |_, source, common| {
            pieces.push(BoxPiece {
                values: array.boxes[source].1.values.clone().unwrap(),
                from: BoxStrides::new(&common, places[source], array.order, array.dtype),
                to: BoxStrides::new(&common, &target, array.order, array.dtype),
                window: Mutex::default(),
            });
            ControlFlow::Continue(())
        });
        let mut blob = GatheredBlob::new(pieces, expected.len() as u64);
        blob.window = window;
        for (from, len) in reads {
            let from = from % (expected.len() as u64 + 1);
            let len = len % (expected.len() as u64 - from + 1);
            let mut part = vec![0; len as usize];
            blob.read_at(from, &mut part).unwrap();
            prop_assert_eq!(&part[..], &expected[from as usize..][..len as usize]);
        }
        prop_assert!(blob.read_at(1, &mut vec![0; expected.len()]).is_err());
    }
}

/// Boxes that agree are compared by their trees: no value is read.
#[test]
fn the_same_boxes_are_compared_by_trees_alone() {
    let values: Vec<f64> = (0..4000).map(f64::from).collect();
    let bytes: Vec<u8> = values.iter().flat_map(|x| x.to_le_bytes()).collect();
    let whole = Whole::new(DType::F64, &[40, 100], Order::C, bytes);
    let rows =
        |from: u64, to: u64| IndexBox { offset: vec![from, 0], extent: vec![to - from, 100] };
    let bound = Bound::abs(1e-3);
    let (a, b) =
        ([rows(0, 10), rows(10, 20), rows(20, 40)], [rows(20, 40), rows(0, 10), rows(10, 20)]);
    let (a, b) = (whole.in_boxes(&a, Some(bound)), whole.in_boxes(&b, Some(bound)));
    let outcome = compare(&a, &b, &CompareSettings::default(), None, QUIET).unwrap();
    assert!(outcome.equal && outcome.variables[0].read_chunks == 0, "{outcome:?}");
    assert_eq!(outcome.variables[0].bound, bound);
    // One box that is cut otherwise is compared by values, and the others still by trees.
    let c = whole.in_boxes(&[rows(0, 10), rows(10, 15), rows(15, 20), rows(20, 40)], Some(bound));
    let outcome = compare(&a, &c, &CompareSettings::default(), None, QUIET).unwrap();
    assert!(outcome.equal, "{outcome:?}");
    let read = outcome.variables[0].read_chunks;
    assert_eq!(read, 2 * (5u64 * 100 * 8).div_ceil(4096));
    // Without values, only the same boxes are compared.
    let mut bare = c;
    bare.0.iter_mut().for_each(|entry| entry.values = None);
    let outcome = compare(&a, &bare, &CompareSettings::default(), None, QUIET).unwrap();
    assert_eq!(outcome.verdict, Answer::Undecided);
    assert_eq!(outcome.not_compared.len(), 1, "{:?}", outcome.not_compared);
    assert!(outcome.variables[0].incomplete);
}

/// A file of any name holds all of an array that ranks have boxes of.
#[test]
fn one_variable_matches_the_boxes_of_one_array() {
    let whole = Whole::new(DType::U8, &[6], Order::C, (0..6).collect());
    let halves = [0, 3].map(|at| IndexBox { offset: vec![at], extent: vec![3] });
    let ranks = whole.in_boxes(&halves, None);
    let mut file = whole.alone();
    file.0[0].description.name = "file".into();
    let settings = CompareSettings::default();
    let named = compare(&ranks, &file, &settings, None, QUIET).unwrap();
    assert_eq!(named.verdict, Answer::Different, "checkpoints agree about names");
    let variables = [Variable::from_bytes("x", DType::U8, &[6], &whole.bytes)];
    let memory = crate::compare::MemorySide::new(3, &variables, &[]).unwrap();
    assert!(compare(&ranks, &memory, &settings, None, QUIET).unwrap().equal);
}

/// Differences are listed with their global indices and the ranks of the first side that hold them.
#[test]
fn listed_differences_have_the_ranks_of_the_first_side() {
    let a = Whole::new(DType::U8, &[12], Order::C, (0..12).collect());
    let b = Whole::new(DType::U8, &[12], Order::C, vec![77; 12]);
    let slabs = |count: u64| -> Vec<IndexBox> {
        let len = 12 / count;
        (0..count).map(|at| IndexBox { offset: vec![at * len], extent: vec![len] }).collect()
    };
    for (of_a, of_b) in [(2, 3), (3, 2), (2, 6), (4, 4)] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("list.jsonl");
        let mut list = crate::compare::DifferenceList::create(&path).unwrap();
        let (x, y) = (a.in_boxes(&slabs(of_a), None), b.in_boxes(&slabs(of_b), None));
        compare(&x, &y, &CompareSettings::default(), Some(&mut list), QUIET).unwrap();
        assert_eq!(list.finish().unwrap(), 12);
        let text = std::fs::read_to_string(&path).unwrap();
        for (at, line) in text.lines().enumerate() {
            let rank = at as u64 / (12 / of_a);
            let start =
                format!("{{\"step\":3,\"rank\":{rank},\"variable\":\"x\",\"index\":[{at}],");
            assert!(line.starts_with(&start), "{of_a} {of_b}: {line}");
        }
    }
}
