//! Boxes of arrays that one rank wrote, and of arrays that many did.

use super::*;
use crate::array::{GroupId, Step, Variable};
use crate::capture::Declared;
use crate::format::{Names, Origin};
use crate::lineage::scan;
use crate::merkle::Hasher;
use crate::pack::{Keeper, Strip};
use crate::run::Options;
use crate::save::{GroupMember, GroupWriter, PackJob, draft, open};
use crate::store::{MemoryStore, Store};
use proptest::prelude::*;
use std::sync::Arc;

/// A checkpoint of one variable of each rank, in groups of three ranks.
fn checkpoint_of(variables: &[Variable]) -> Checkpoint {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let settings = Options::in_store(store.clone(), "r").writer;
    let opened = open(&settings.tiers, "r", None).unwrap();
    let (hasher, writer) = (Hasher::new(5), opened.opening.writer);
    let (mut writers, mut sealed) = (Vec::new(), Vec::new());
    for (number, ranks) in variables.chunks(3).enumerate() {
        let keeper = Keeper::new(1 << 20, settings.encoding);
        let mut group = GroupWriter::new(GroupId(number as u32), keeper);
        let declared = Declared::of(ranks).unwrap();
        let members: Vec<GroupMember> = declared
            .iter()
            .enumerate()
            .map(|(at, d)| GroupMember::own(Rank((number * 3 + at) as u32), &d.description, None))
            .collect();
        let job = PackJob {
            writer,
            attempt: 2,
            members: &members,
            hasher: &hasher,
            before: None,
            turns: false,
            pool: None,
        };
        let key = Names::new("r").pack(group.name(writer, 2));
        let mut put = store.put(&key).unwrap();
        let pack = group.write(&settings, job, put.as_mut(), |take| {
            for (variable, data) in ranks.iter().enumerate() {
                let chunk = settings.chunk.bytes();
                let mut prints = vec![0; data.bytes.len().div_ceil(chunk)];
                let mut slot = vec![0; data.bytes.len()];
                let changed = scan(&data.bytes.whole(), chunk, 0, &mut prints, &hasher, &mut slot);
                let whole = None;
                let strip = Strip { variable, first: 0, changed, hashed: true, offset: 0, whole };
                take(&[strip], &slot)?;
            }
            Ok(())
        });
        sealed.push(pack.unwrap());
        put.finish().unwrap();
        writers.push(group);
    }
    let mut manifest = draft("r", &writers, &sealed, variables.len() as u32);
    manifest.sequence = opened.newest.next();
    (manifest.writer, manifest.step, manifest.seed) = (writer, Step(1), hasher.seed());
    manifest.epoch = Origin { run: None, sequence: manifest.sequence };
    Checkpoint::load(store, manifest).unwrap()
}

/// The value of an index of the global array.
fn value(index: &[u64]) -> u32 {
    index.iter().fold(7, |all, at| all * 101 + *at as u32)
}

/// The values of a box, in the order of memory.
fn values(of: &IndexBox, order: Order) -> Vec<u32> {
    let one = IndexBox { offset: of.offset.clone(), extent: vec![1; of.extent.len()] };
    let count = of.elements().unwrap();
    let mut all = vec![0; count as usize];
    let mut index = of.offset.clone();
    for _ in 0..count {
        let here = IndexBox { offset: index.clone(), ..one.clone() };
        let run = here.runs_in(of, order)[0];
        all[run.to as usize] = value(&index);
        for axis in (0..index.len()).rev() {
            index[axis] += 1;
            if index[axis] < of.offset[axis] + of.extent[axis] {
                break;
            }
            index[axis] = of.offset[axis];
        }
    }
    all
}

/// The boxes of a grid that is cut along each axis.
fn cut(cuts: &[Vec<u64>]) -> Vec<IndexBox> {
    let mut boxes = vec![IndexBox { offset: vec![], extent: vec![] }];
    for axis in cuts {
        boxes = boxes
            .into_iter()
            .flat_map(|b| {
                axis.windows(2).map(move |pair| {
                    let mut b = b.clone();
                    b.offset.push(pair[0]);
                    b.extent.push(pair[1] - pair[0]);
                    b
                })
            })
            .collect();
    }
    boxes
}

fn with_boxes(boxes: &[IndexBox], global: &[u64], order: Order) -> Checkpoint {
    let data: Vec<Vec<u32>> = boxes.iter().map(|b| values(b, order)).collect();
    let variables: Vec<Variable> = boxes
        .iter()
        .zip(&data)
        .map(|(b, data)| {
            let variable = Variable::new("x", data).shaped(&b.extent);
            let variable = variable.part_of(global, &b.offset);
            if order == Order::Fortran { variable.fortran() } else { variable }
        })
        .collect();
    checkpoint_of(&variables)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn any_box_is_put_together_from_any_boxes(
        cuts in prop::collection::vec(prop::collection::btree_set(1u64..12, 0..4), 1..4),
        picks in prop::collection::vec((0.0f64..1.0, 0.0f64..1.0), 3),
        fortran: bool,
    ) {
        let cuts: Vec<Vec<u64>> =
            cuts.into_iter().map(|set| [0].into_iter().chain(set).chain([12]).collect()).collect();
        let order = if fortran { Order::Fortran } else { Order::C };
        let global = vec![12; cuts.len()];
        let checkpoint = with_boxes(&cut(&cuts), &global, order);
        let mut wanted = IndexBox { offset: vec![], extent: vec![] };
        for (a, b) in &picks[..cuts.len()] {
            let offset = (a * 12.0) as u64;
            wanted.offset.push(offset);
            wanted.extent.push((b * (13 - offset) as f64) as u64);
        }
        let read = checkpoint.read_box::<u32>("x", &wanted.offset, &wanted.extent).unwrap();
        prop_assert_eq!(read, values(&wanted, order));
    }
}

#[test]
fn gaps_and_overlaps_are_named() {
    let slabs = |bounds: &[(u64, u64)]| -> Vec<IndexBox> {
        let slab = |(start, end): &(u64, u64)| IndexBox {
            offset: vec![*start, 0],
            extent: vec![end - start, 5],
        };
        bounds.iter().map(slab).collect()
    };
    let read = |boxes: &[IndexBox], from: u64, rows: u64| {
        with_boxes(boxes, &[10, 5], Order::C).read_box::<u32>("x", &[from, 0], &[rows, 5])
    };
    let gap = slabs(&[(0, 4), (6, 10)]);
    let error = read(&gap, 0, 10).unwrap_err();
    assert!(error.to_string().contains("no rank has index [4, 0]"), "{error}");
    assert_eq!(read(&gap, 6, 3).unwrap().len(), 15);
    let overlap = slabs(&[(0, 6), (5, 10)]);
    let error = read(&overlap, 2, 8).unwrap_err();
    assert!(error.to_string().contains("ranks 0 and 1 both have index [5, 0]"), "{error}");
    assert_eq!(read(&overlap, 0, 5).unwrap().len(), 25);
    assert_eq!(error.kind(), ErrorKind::Mismatch);
}

#[test]
fn arrays_of_ranks_that_are_no_boxes_and_boxes_outside_are_refused() {
    let data = [1u32, 2, 3, 4];
    let own = [Variable::new("x", &data), Variable::new("x", &data)];
    let error = checkpoint_of(&own).read_box::<u32>("x", &[0], &[1]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Mismatch);
    let alone = checkpoint_of(&own[..1]);
    assert_eq!(alone.read_box::<u32>("x", &[1], &[2]).unwrap(), [2, 3]);
    assert!(alone.read_box::<u32>("x", &[4], &[0]).unwrap().is_empty());
    for (offset, extent) in [(&[2][..], &[3][..]), (&[u64::MAX], &[2]), (&[0, 0], &[1, 1])] {
        let error = alone.read_box::<u32>("x", offset, extent).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Usage);
    }
    assert_eq!(alone.read_box::<f32>("x", &[0], &[1]).unwrap_err().kind(), ErrorKind::Mismatch);
    assert!(alone.read_box::<u32>("y", &[0], &[1]).is_err());
}
