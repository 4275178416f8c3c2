//! What the fuzzers do with bytes; the tests replay the kept corpus through the same functions.
//!
//! Digests would keep a fuzzer at the door, so each driver also gives its input a valid one.
#![allow(dead_code)]

use std::sync::Arc;
use treering::format::{Footer, LogEntry, Seal};
use treering::library::Place;
use treering::merkle::digest;
use treering::store::{MemoryStore, Store};
use treering::{Encoding, Library, Options, Run, Variable};

/// Manifests and openings: what parses is written back as the same bytes.
pub fn log_entry(data: &[u8]) {
    let _ = LogEntry::parse(data);
    let mut sealed = data.to_vec();
    sealed.extend_from_slice(&digest(data).to_bytes());
    let again = match LogEntry::parse(&sealed) {
        Ok(LogEntry::Opening(opening)) => LogEntry::parse(&opening.write()).map(|_| ()),
        Ok(LogEntry::Manifest(manifest)) => {
            for (number, group) in manifest.groups.iter().enumerate() {
                assert_eq!(
                    group.names(number as u32).take(1000).count() as u64,
                    group.count().min(1000)
                );
            }
            LogEntry::parse(&manifest.write()).map(|_| ())
        }
        Err(_) => return,
    };
    again.expect("what was parsed must parse again");
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
    if let Ok(footer) = Footer::parse(&head, body, &seal) {
        let (written, _) = footer.write();
        assert!(!written.is_empty());
        footer.frame_at(footer.len() / 2);
    }
}

/// Decoders: any bytes, any length.
pub fn frame(data: &[u8]) {
    let Some((&[a, b], body)) = data.split_first_chunk::<2>() else {
        return;
    };
    for encoding in [Encoding::Raw, Encoding::Zstd(1)] {
        let codec = encoding.codec();
        let mut out = vec![0; usize::from(u16::from_le_bytes([a, b]))];
        let _ = codec.decode(body, &mut out);
        let encoded = codec.encode(body).expect("everything can be encoded");
        let mut back = vec![0; body.len()];
        codec.decode(&encoded, &mut back).expect("what was encoded decodes");
        assert_eq!(back, body);
    }
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
