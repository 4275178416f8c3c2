//! Against "Scalable Incremental Checkpointing using GPU-Accelerated De-Duplication" (ICPP 2023):
//! its Algorithm 1, written down plainly, never needs fewer regions than a delta of ours, and both
//! store the same new bytes.

use proptest::prelude::*;
use std::collections::HashMap;
use std::sync::Arc;
use treering::testing::{Digest, Footer, Seal};
use treering::{ChunkSize, Encoding, Library, MemoryStore, Method, Options, Run, Store, Variable};

const CHUNK: usize = 32;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Label {
    Same,
    First,
    Shifted,
}

/// The paper's tree: level 0 has the chunks, node j of level L covers chunks j·2^L up to
/// (j+1)·2^L. A node's hash is the content itself, so nothing can collide.
#[derive(Default)]
struct Paper {
    /// Where a content, of one chunk or of a whole node, was stored first: node and checkpoint.
    record: HashMap<Vec<u8>, (usize, usize)>,
    leaves: Vec<Vec<u8>>,
    checkpoint: usize,
}

struct Counted {
    regions: usize,
    new_bytes: usize,
}

impl Paper {
    fn save(&mut self, data: &[u8]) -> Counted {
        let chunks: Vec<Vec<u8>> = data.chunks(CHUNK).map(<[u8]>::to_vec).collect();
        let mut levels = vec![self.label_leaves(&chunks)];
        let new = chunks.iter().zip(&levels[0]);
        let new_bytes =
            new.filter(|(_, label)| **label == Label::First).map(|(chunk, _)| chunk.len()).sum();
        while levels[levels.len() - 1].len() > 1 {
            let level = levels.len();
            let joined = self.join_first(&levels[level - 1], level, &chunks);
            levels.push(joined);
        }
        // New regions of all levels are in the record before the first moved one is looked up.
        let mut regions = 0;
        let mut below: Vec<Option<Label>> = levels[0].iter().copied().map(Some).collect();
        for (level, first) in levels.iter().enumerate().skip(1) {
            let pairs = below.chunks(2).enumerate();
            let made: Vec<Option<Label>> = pairs
                .map(|(node, pair)| {
                    let label = self.join(pair, first[node], level, node, &chunks);
                    if label.is_none() {
                        regions += pair.iter().filter(|l| is_root(**l)).count();
                    }
                    label
                })
                .collect();
            below = made;
        }
        regions += below.iter().filter(|l| is_root(**l)).count();
        self.leaves = chunks;
        self.checkpoint += 1;
        Counted { regions, new_bytes }
    }

    /// Lines 1 to 23; in ascending order, so that the first occurrence is the lowest position.
    fn label_leaves(&mut self, chunks: &[Vec<u8>]) -> Vec<Label> {
        let mut labels = Vec::new();
        for (leaf, chunk) in chunks.iter().enumerate() {
            let same = self.leaves.get(leaf) == Some(chunk);
            labels.push(match (same, self.record.get(chunk)) {
                (true, _) => Label::Same,
                (false, Some(_)) => Label::Shifted,
                (false, None) => {
                    let place = (leaf, self.checkpoint);
                    self.record.insert(chunk.clone(), place);
                    Label::First
                }
            });
        }
        labels
    }

    /// Lines 24 to 32: two new siblings are one new region, which enters the record.
    fn join_first(&mut self, below: &[Label], level: usize, chunks: &[Vec<u8>]) -> Vec<Label> {
        let mut labels = Vec::new();
        for (node, pair) in below.chunks(2).enumerate() {
            if pair.iter().all(|label| *label == Label::First) {
                let content = content(chunks, level, node);
                let place = (node, self.checkpoint);
                self.record.entry(content).or_insert(place);
                labels.push(Label::First);
            } else {
                // Not new as a whole; what else it is, the second pass finds out.
                labels.push(Label::Same);
            }
        }
        labels
    }

    /// Lines 33 to 46: the label of a node, or `None` if its children are roots.
    fn join(
        &self,
        pair: &[Option<Label>],
        first: Label,
        level: usize,
        node: usize,
        chunks: &[Vec<u8>],
    ) -> Option<Label> {
        match pair {
            [Some(Label::First), Some(Label::First)] => {
                assert_eq!(first, Label::First);
                Some(Label::First)
            }
            [Some(Label::Same), Some(Label::Same)] => Some(Label::Same),
            [Some(Label::Shifted), Some(Label::Shifted)] => {
                let known = self.record.contains_key(&content(chunks, level, node));
                known.then_some(Label::Shifted)
            }
            // An incomplete tree: a node without a sibling stands for itself.
            [alone] => *alone,
            _ => None,
        }
    }
}

/// Whether a node is saved as a region when its parent is none.
fn is_root(label: Option<Label>) -> bool {
    matches!(label, Some(Label::First | Label::Shifted))
}

/// The chunks that a node covers, as one.
fn content(chunks: &[Vec<u8>], level: usize, node: usize) -> Vec<u8> {
    let end = chunks.len().min((node + 1) << level);
    chunks[node << level..end].concat()
}

#[derive(Clone, Debug)]
enum Change {
    Fill { at: usize, chunks: usize, value: u8 },
    Copy { from: usize, to: usize, chunks: usize },
    Count { at: usize, chunks: usize, from: u8 },
}

fn change(chunks: usize) -> impl Strategy<Value = Change> {
    let len = 1usize..12;
    prop_oneof![
        2 => (0..chunks, len.clone(), 0u8..6)
            .prop_map(|(at, chunks, value)| Change::Fill { at, chunks, value }),
        3 => (0..chunks, 0..chunks, prop_oneof![len.clone(), Just(16), Just(32)])
            .prop_map(|(from, to, chunks)| Change::Copy { from, to, chunks }),
        2 => (0..chunks, len, 0u8..200)
            .prop_map(|(at, chunks, from)| Change::Count { at, chunks, from }),
    ]
}

fn apply(data: &mut [u8], change: &Change) {
    let cut = |at: usize, chunks: usize, len: usize| {
        let start = (at * CHUNK).min(len);
        start..len.min(start + chunks * CHUNK)
    };
    let len = data.len();
    match *change {
        Change::Fill { at, chunks, value } => data[cut(at, chunks, len)].fill(value),
        Change::Copy { from, to, chunks } => {
            let room = cut(from.max(to), chunks, len).len();
            if room > 0 {
                data.copy_within(from * CHUNK..from * CHUNK + room, to * CHUNK);
            }
        }
        Change::Count { at, chunks, from } => {
            let target = data[cut(at, chunks, len)].chunks_mut(CHUNK);
            target.zip(from..).for_each(|(chunk, value)| chunk.fill(value));
        }
    }
}

/// Numbers of regions and of new bytes of our packs, checkpoint by checkpoint.
fn ours(states: &[Vec<u8>]) -> Vec<(usize, usize)> {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let options = Options::in_store(store.clone(), "r")
        .method(Method::Tree)
        .encoding(Encoding::Raw)
        .chunk(ChunkSize::new(CHUNK as u64).unwrap())
        .growth(1e6);
    let mut run = Run::open(options).unwrap();
    for (step, data) in states.iter().enumerate() {
        let save = run.checkpoint(step as u64, &[Variable::new("data", data)]);
        save.unwrap().durable().unwrap();
    }
    run.finish().unwrap();
    let library = Library::of(store.clone());
    let (all, _) = library.checkpoints("r").unwrap();
    assert!(all.iter().all(|c| c.epoch == all[0].epoch), "one epoch");
    let packs = store.list("runs/r/packs").unwrap();
    let counted = packs.iter().zip(&all).map(|(item, info)| {
        let blob = store.open(&format!("runs/r/packs/{}", item.name)).unwrap();
        let mut bytes = vec![0; blob.size() as usize];
        blob.read_at(0, &mut bytes).unwrap();
        (regions(&bytes), info.stats.new_bytes as usize)
    });
    counted.collect()
}

/// The regions of a pack's only variable.
fn regions(pack: &[u8]) -> usize {
    let (body, trailer) = pack.split_at(pack.len() - 32);
    let word = |at: usize| u64::from_le_bytes(trailer[at..at + 8].try_into().unwrap());
    let seal =
        Seal { size: pack.len() as u64, footer: word(0), digest: Digest([word(8), word(16)]) };
    let footer = &body[body.len() - seal.footer as usize..];
    let footer = Footer::parse(&pack[..16], footer, &seal, false).unwrap();
    footer.deltas.iter().map(|delta| delta.regions.len()).sum()
}

fn compare(states: &[Vec<u8>]) -> Result<(), TestCaseError> {
    let mut paper = Paper::default();
    for (step, (data, (regions, new_bytes))) in states.iter().zip(ours(states)).enumerate() {
        let theirs = paper.save(data);
        prop_assert_eq!(new_bytes, theirs.new_bytes, "new bytes of step {}", step);
        prop_assert!(
            regions <= theirs.regions,
            "step {}: {} regions, the paper has {}",
            step,
            regions,
            theirs.regions
        );
    }
    Ok(())
}

/// Chunks named by a letter each.
fn letters(text: &str) -> Vec<u8> {
    text.bytes().flat_map(|letter| [letter; CHUNK]).collect()
}

/// The example of the paper's figure 2: seven entries become three.
#[test]
fn the_example_of_the_paper() {
    let states = [letters("ABCDEFGH"), letters("IJKLEAIJ")];
    let mut paper = Paper::default();
    assert_eq!(paper.save(&states[0]).regions, 1);
    let second = paper.save(&states[1]);
    assert_eq!((second.regions, second.new_bytes), (3, 4 * CHUNK));
    assert_eq!(ours(&states), [(1, 8 * CHUNK), (3, 4 * CHUNK)]);
}

/// Where the tree's alignment gets in the way of the paper, it does not in ours.
#[test]
fn a_shift_by_one_chunk_is_one_region() {
    let states = [letters("ABCDEFGHIJKLMNOP"), letters("xABCDEFGHIJKLMNO")];
    let mut paper = Paper::default();
    paper.save(&states[0]);
    assert!(paper.save(&states[1]).regions > 8);
    assert_eq!(ours(&states)[1], (2, CHUNK));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]
    #[test]
    fn never_more_regions_than_the_paper(
        len in prop_oneof![1usize..200, Just(64 * CHUNK), 1000usize..4000],
        steps in proptest::collection::vec(proptest::collection::vec(change(100), 0..8), 1..8),
    ) {
        let mut data: Vec<u8> = (0..len).map(|i| (i / CHUNK / 3) as u8).collect();
        let mut states = vec![data.clone()];
        for changes in &steps {
            changes.iter().for_each(|change| apply(&mut data, change));
            states.push(data.clone());
        }
        compare(&states)?;
    }
}
