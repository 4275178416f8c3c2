//! The work of the fuzzers on bytes; the tests replay the kept corpus through the same functions.
//!
//! Digests would keep a fuzzer at the door, so each driver also gives its input a valid one.
#![allow(dead_code)]

use std::path::{Path, PathBuf};
use std::sync::Arc;
use treering::testing::{
    Branch, Builder, BundleIndex, Chain, Codec, FileSide, Footer, GroupId, LogEntry, MemorySide,
    ParityHead, Recipe, Seal, Skeleton, StageHead, TreeFile, TreeOrigin, decode_chunk, digest,
    open_file, read_letters, take_apart,
};
use treering::{
    Answer, Bound, CompareSettings, DType, Library, MemoryStore, Options, Outcome, Place,
    RawLayout, Run, Store, TreeEntry, Variable, compare,
};

/// Manifests and openings: what parses is written back as the same bytes.
pub fn log_entry(data: &[u8]) {
    let _ = LogEntry::parse(data);
    let mut sealed = data.to_vec();
    sealed.extend_from_slice(&digest(data).to_bytes());
    let again = match LogEntry::parse(&sealed) {
        Ok(LogEntry::Opening(opening)) => LogEntry::parse(&opening.write()).map(|_| ()),
        Ok(LogEntry::Mark(mark)) => LogEntry::parse(&mark.write()).map(|_| ()),
        Ok(LogEntry::Manifest(manifest)) => {
            let here = manifest.groups.here().unwrap_or_default();
            for (number, group) in here.iter().enumerate() {
                assert_eq!(
                    group.names(GroupId(number as u32)).take(1000).count() as u64,
                    group.count().min(1000)
                );
            }
            LogEntry::parse(&manifest.write()).map(|_| ())
        }
        Err(_) => return,
    };
    again.expect("what was parsed must parse again");
}

/// Sections and branches: what parses is written back as the same bytes, and can be joined.
pub fn branch(data: &[u8]) {
    let _ = Branch::parse(data);
    let mut sealed = data.to_vec();
    sealed.extend_from_slice(&digest(data).to_bytes());
    let Ok(branch) = Branch::parse(&sealed) else { return };
    let again = Branch::parse(&branch.write()).expect("what was parsed must parse again");
    assert_eq!(again, branch);
    let joined = Branch::join(vec![branch.clone()]).expect("one belongs to itself");
    assert!(branch.level == 0 || joined.groups.count() == branch.part.groups.count());
    assert!(Branch::join(vec![branch.clone(), branch]).is_err());
}

/// Heads of stages: what parses is written back as the same bytes.
pub fn stage(data: &[u8]) {
    let _ = StageHead::parse(data);
    let mut sealed = data.to_vec();
    sealed.extend_from_slice(&digest(data).to_bytes());
    let Ok(head) = StageHead::parse(&sealed) else { return };
    let again = StageHead::parse(&head.write()).expect("what was parsed must parse again");
    assert_eq!(again, head);
    let _ = head.small_bytes();
}

/// Letters of ranks: what is one is written back as it was read.
pub fn letter(data: &[u8]) {
    read_letters(data);
}

/// Heads of parity files: what parses is written back as the same bytes, and every byte of every member is in a slot.
pub fn parity(data: &[u8]) {
    let _ = ParityHead::parse(data);
    let _ = ParityHead::tail_len(data, data.len() as u64);
    let mut sealed = data.to_vec();
    sealed.extend_from_slice(&digest(data).to_bytes());
    let Ok(head) = ParityHead::parse(&sealed) else { return };
    let again = ParityHead::parse(&head.write()).expect("what was parsed must parse again");
    assert_eq!(again, head);
    let striping = head.striping();
    for (number, member) in head.members.iter().enumerate() {
        let lanes = (0..striping.lanes()).map(|lane| striping.lane_len(member.bytes(), lane));
        assert_eq!(lanes.sum::<u64>(), member.bytes());
        if let Some(lane) = striping.lane(number, head.name.slot as usize) {
            assert!(striping.lane_len(member.bytes(), lane) <= head.body());
        }
    }
    let tail = head.write_tail();
    let len = ParityHead::tail_len(&tail[tail.len() - 16..], tail.len() as u64);
    assert_eq!(tail[..len.expect("it was written") as usize], head.write());
}

/// Indexes of bundles: what parses is written back as the same bytes, and its places follow each other.
pub fn bundle(data: &[u8]) {
    let _ = BundleIndex::parse(data);
    let _ = BundleIndex::tail_len(data, data.len() as u64);
    let mut sealed = data.to_vec();
    sealed.extend_from_slice(&digest(data).to_bytes());
    let Ok(index) = BundleIndex::parse(&sealed) else { return };
    let again = BundleIndex::parse(&index.write()).expect("what was parsed must parse again");
    assert_eq!(again, index);
    let end = index.places().last().map_or(0, |(at, object)| at + object.size);
    assert_eq!(end, index.object_bytes());
    let tail = index.write_tail();
    let trailer = &tail[tail.len() - 16..];
    let len = BundleIndex::tail_len(trailer, tail.len() as u64).expect("it was written");
    assert_eq!(tail[..len as usize], index.write());
}

/// Footers, and the deltas in them. The first two bytes say how many bytes of frames lie before it.
pub fn footer(data: &[u8]) {
    let Some((&[a, b], body)) = data.split_first_chunk::<2>() else {
        return;
    };
    let mut head = *b"TREEPACK\x01\0\0\0\0\0\0\0";
    head[15] = 0;
    let mut all = head.to_vec();
    all.extend_from_slice(body);
    let frames = u64::from(u16::from_le_bytes([a, b]));
    let size = 16 + frames + body.len() as u64 + 32;
    let seal = Seal { size, footer: body.len() as u64, digest: digest(&all) };
    if let Ok(footer) = Footer::parse(&head, body, &seal, true) {
        let (written, _) = footer.write();
        assert!(!written.is_empty());
        footer.frame_at(footer.len() / 2);
    }
}

/// Decoders: any chain, any bytes, any length.
pub fn frame(data: &[u8]) {
    let Some((&[a, b, steps], rest)) = data.split_first_chunk::<3>() else {
        return;
    };
    let Some((steps, body)) = rest.split_at_checked(usize::from(steps % 32)) else {
        return;
    };
    let Ok(codec) = Chain::parse(steps) else {
        return;
    };
    let mut out = vec![0; usize::from(u16::from_le_bytes([a, b]))];
    let _ = codec.decode(body, &mut out);
    let encoded = codec.encode(body).expect("everything can be encoded");
    let mut back = vec![0; body.len()];
    codec.decode(&encoded, &mut back).expect("what was encoded decodes");
    assert_eq!(back, body);
}

/// Places: what parses is written back as the same text.
pub fn place(data: &[u8]) {
    if let Ok(text) = std::str::from_utf8(data)
        && let Ok(place) = Place::parse(text)
    {
        assert_eq!(place.to_string().parse_place(), Some(place));
    }
}

trait ParsePlace {
    fn parse_place(&self) -> Option<Place>;
}

impl ParsePlace for String {
    fn parse_place(&self) -> Option<Place> {
        Place::parse(self).ok()
    }
}

/// A small store in which the input changes bytes: three bytes choose a file, a place in it and the
/// new value. Nothing may panic, and whatever is still restored must be right.
pub fn store(data: &[u8]) {
    let store = MemoryStore::new();
    let whole: Arc<dyn Store> = Arc::new(store.clone());
    let options = Options::in_store(whole.clone(), "r").growth(100.0);
    let mut run = Run::open(options).expect("a new store opens");
    let state =
        |step: u64| (0..600u64).map(|i| i / 40 * (1 + (i % 7 == step) as u64)).collect::<Vec<_>>();
    for step in 0..3 {
        run.checkpoint(step, &[Variable::new("x", &state(step))]).expect("it saves");
    }
    run.finish().expect("it finishes");
    let mut keys = Vec::new();
    for folder in ["runs/r/log", "runs/r/packs"] {
        let items = whole.list(folder).expect("it lists");
        keys.extend(items.iter().map(|item| format!("{folder}/{}", item.name)));
    }
    for edit in data.chunks_exact(4) {
        let key = &keys[edit[0] as usize % keys.len()];
        let blob = whole.open(key).expect("it is there");
        let mut bytes = vec![0; blob.size() as usize];
        blob.read_at(0, &mut bytes).expect("it reads");
        let at = usize::from(u16::from_le_bytes([edit[1], edit[2]])) % bytes.len();
        bytes[at] = edit[3];
        whole.delete(std::slice::from_ref(key)).expect("it deletes");
        assert!(whole.commit(key, &bytes).expect("it commits"));
    }
    let library = Library::of(whole);
    let _ = library.verify(None, true, &|_, _| {});
    for step in 0..3 {
        if let Ok(read) = library.checkpoint("r", Some(step)).and_then(|c| c.read::<u64>("x")) {
            assert_eq!(read, state(step));
        }
    }
}

/// The bytes of a tree file with this between its first bytes and its digest.
fn tree_file_of(inside: &[u8]) -> Vec<u8> {
    let mut bytes =
        TreeFile { origin: TreeOrigin::None, entries: Vec::new() }.write().expect("none");
    bytes.truncate(10);
    bytes.extend_from_slice(&(inside.len() as u64).to_le_bytes());
    bytes.extend_from_slice(inside);
    let seal = digest(&bytes).to_bytes();
    bytes.extend_from_slice(&seal);
    bytes
}

/// Heads of tree files: what parses is written back as the same trees; and trees of which only the
/// head is sound are walked.
pub fn tree_head(data: &[u8]) {
    let _ = TreeFile::head_len(data).and_then(|_| TreeFile::parse(data));
    let mut bytes = tree_file_of(data);
    let prefix = &bytes[..TreeFile::PREFIX];
    assert_eq!(TreeFile::head_len(prefix).expect("it is short"), bytes.len() as u64);
    let Ok(file) = TreeFile::parse(&bytes) else { return };
    if file.len().is_ok_and(|len| len < 1 << 40) && file.entries.len() < 100 {
        let mut again = file.clone();
        let head = again.write().expect("it has room");
        let len = TreeFile::head_len(&head).expect("it was written") as usize;
        assert_eq!(TreeFile::parse(&head[..len]).expect("it was written"), again);
    }
    bytes.resize(bytes.len() + (1 << 16), 0);
    for nan_equal in [true, false] {
        let settings = CompareSettings { nan_equal, ..CompareSettings::within(Bound::abs(1.0)) };
        let _ = between(&[], &bytes, &[], &bytes, &settings);
    }
}

type Arrays<'a> = &'a [Variable<'a>];

fn between(
    a: Arrays,
    tree: &[u8],
    b: Arrays,
    other: &[u8],
    settings: &CompareSettings,
) -> treering::Result<Outcome> {
    let a = MemorySide::new(0, a, &[tree])?;
    let b = MemorySide::new(0, b, &[other])?;
    compare(&a, &b, settings, None, &|_, _| {})
}

/// Two arrays of which one value differs beyond the bound and many within it, or none beyond.
fn arrays(differ: bool) -> [Vec<f32>; 2] {
    let a: Vec<f32> = (0..600).map(|i| (i * i % 97) as f32 / 8.0).collect();
    let mut b: Vec<f32> = a.iter().enumerate().map(|(i, x)| x + (i % 5) as f32 / 64.0).collect();
    b[321] += if differ { 3.0 } else { 0.0 };
    [a, b]
}

fn tree_of(array: &[f32], bound: Bound) -> Vec<u8> {
    let bytes: Vec<u8> = array.iter().flat_map(|x| x.to_le_bytes()).collect();
    let recipe = Recipe::new(DType::F32, bound, 512, 3).expect("a recipe");
    let image = Builder::new(DType::F32, &[recipe]).build(&bytes).expect("it is built").remove(0);
    let entry = TreeEntry::new(Variable::new("x", array).description(), &image);
    let mut file = TreeFile { origin: TreeOrigin::None, entries: vec![entry] };
    let mut out = file.write().expect("a head");
    out.extend_from_slice(image.body());
    out
}

/// The tree of a small array in which the input changes bytes: two bytes choose a place, one the new
/// value; the first byte of all says whether the arrays differ. With values the answer is right, and
/// without them no difference is hidden.
pub fn tree(data: &[u8]) {
    let Some((first, edits)) = data.split_first() else { return };
    let differ = first & 1 == 1;
    let bound = Bound::abs(0.125);
    let [a, b] = arrays(differ);
    let (mut tree, other) = (tree_of(&a, bound), tree_of(&b, bound));
    for edit in edits.chunks_exact(3) {
        // The head and the body, without what lies between.
        let at = usize::from(u16::from_le_bytes([edit[0], edit[1]])) % (256 + tree.len() - 4096);
        let at = if at < 256 { at } else { at + 4096 - 256 };
        tree[at] = edit[2];
    }
    let (x, y) = ([Variable::new("x", &a)], [Variable::new("x", &b)]);
    let settings = CompareSettings::within(bound);
    if let Ok(outcome) = between(&x, &tree, &y, &other, &settings) {
        assert_eq!(outcome.differences, u64::from(differ));
    }
    if let Ok(outcome) = between(&[], &tree, &[], &other, &settings) {
        assert!(!differ || outcome.verdict != Answer::Equal);
    }
}

/// A file of its own, gone when dropped.
struct Scratch(PathBuf);

impl Scratch {
    fn new(data: &[u8]) -> Self {
        let name = format!("treering-{}-{:?}", std::process::id(), std::thread::current().id());
        let path = std::env::temp_dir().join(name);
        std::fs::write(&path, data).expect("the folder for temporary files can be written to");
        Scratch(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Foreign files: what opens can be read or says why not, and is what it is.
pub fn foreign(data: &[u8]) {
    let file = Scratch::new(data);
    let raw = RawLayout::values(DType::F32, None);
    let _ = open_file(&file.0, Some(&raw));
    let Ok(fields) = open_file(&file.0, None) else { return };
    for field in &fields {
        assert_eq!(field.description.bytes(), Some(field.bytes.size()));
        let unit = field.description.dtype.size() as usize;
        let mut buffer = vec![0; unit * 1000];
        for at in (0..field.bytes.size().min(1 << 20)).step_by(buffer.len()) {
            let len = (field.bytes.size() - at).min(buffer.len() as u64) as usize;
            if field.bytes.read_at(at, &mut buffer[..len]).is_err() {
                break;
            }
        }
    }
    with_itself(&file.0);
}

/// Any file is taken apart and comes back byte for byte; so does its skeleton.
pub fn anatomy(data: &[u8]) {
    let file = Scratch::new(data);
    let anatomy = take_apart(&file.0, None).expect("every file can be taken apart");
    let read = |field: usize, offset: u64, buffer: &mut [u8]| {
        anatomy.fields[field].bytes.read_at(offset, buffer)
    };
    let skeleton = Skeleton::parse(&anatomy.skeleton.write()).expect("it was written");
    let mut again = Vec::new();
    skeleton.rebuild(&read, &mut again).expect("it comes back");
    assert_eq!(again, data);
}

/// A chunk of HDF5 with everything that is needed to decode it: the type of its numbers and whether their bytes are
/// swapped, its length, filters that are left out, filters with their parameters, the stored bytes.
pub struct FilteredChunk<'a> {
    pub dtype: DType,
    pub swapped: bool,
    pub len: usize,
    left_out: u32,
    filters: Vec<(u16, Vec<u32>)>,
    pub stored: &'a [u8],
}

impl<'a> FilteredChunk<'a> {
    pub fn parse(data: &'a [u8]) -> Option<Self> {
        const TYPES: [DType; 10] = [
            DType::I8,
            DType::U8,
            DType::I16,
            DType::U16,
            DType::I32,
            DType::U32,
            DType::I64,
            DType::U64,
            DType::F32,
            DType::F64,
        ];
        let word = |bytes: &[u8]| bytes.first_chunk::<4>().map(|four| u32::from_le_bytes(*four));
        let (head, mut rest) = data.split_first_chunk::<11>()?;
        let mut filters = Vec::new();
        for _ in 0..head[10].min(8) {
            let (&[low, high, count], after) = rest.split_first_chunk::<3>()?;
            let (values, after) = after.split_at_checked(4 * usize::from(count))?;
            let values = values.chunks_exact(4).filter_map(word).collect();
            filters.push((u16::from_le_bytes([low, high]), values));
            rest = after;
        }
        Some(FilteredChunk {
            dtype: *TYPES.get(usize::from(head[0]))?,
            swapped: head[1] & 1 != 0,
            len: word(&head[2..])?.min(1 << 20) as usize,
            left_out: word(&head[6..])?,
            filters,
            stored: rest,
        })
    }

    pub fn decode(&self) -> treering::Result<Vec<u8>> {
        let numbers = (self.dtype, self.swapped);
        decode_chunk(&self.filters, numbers, self.left_out, self.stored, self.len)
    }
}

/// Chunks of HDF5: what decodes has the length that was asked for.
pub fn filter(data: &[u8]) {
    let Some(chunk) = FilteredChunk::parse(data) else { return };
    if let Ok(bytes) = chunk.decode() {
        assert_eq!(bytes.len(), chunk.len);
    }
}

/// Skeletons: what parses is written back, and makes a file or says why not.
pub fn skeleton(data: &[u8]) {
    let mut bytes = b"TREESKEL\x01\0".to_vec();
    bytes.extend_from_slice(data);
    let seal = digest(&bytes).to_bytes();
    bytes.extend_from_slice(&seal);
    let Ok(skeleton) = Skeleton::parse(&bytes) else { return };
    assert_eq!(Skeleton::parse(&skeleton.write()).expect("it was written"), skeleton);
    if skeleton.size < 1 << 20 {
        let read = |_: usize, _: u64, buffer: &mut [u8]| {
            buffer.fill(1);
            Ok(())
        };
        let _ = skeleton.rebuild(&read, &mut Vec::new());
    }
}

fn with_itself(path: &Path) {
    let settings = CompareSettings::within(Bound::EQUAL);
    let sides =
        FileSide::open(path, None, false).and_then(|a| Ok((a, FileSide::open(path, None, false)?)));
    let Ok((a, b)) = sides else { return };
    if let Ok(outcome) = compare(&a, &b, &settings, None, &|_, _| {}) {
        // A part of it may be unreadable.
        assert_ne!(outcome.verdict, Answer::Different);
    }
}
