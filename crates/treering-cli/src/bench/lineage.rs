//! `bench lineage`: the studies of the de-duplication paper on graphlet orbits: chunk sizes, methods,
//! numbers of checkpoints, and compressing every checkpoint alone.

use super::{Options, bytes_of, limits};
use crate::output;
use orbits::{Counts, Graph, ORBITS, count_range, gorder, make};
use rayon::prelude::*;
use serde::Serialize;
use serde_json::json;
use std::path::Path;
use std::time::Instant;
use treering::{ChunkSize, Encoding, Error, Library, Method, Result, Run, Variable};

const CHUNKS: [u64; 5] = [32, 64, 128, 256, 512];
const FREQUENCIES: [u32; 3] = [5, 10, 20];
/// The chunk size of the study of frequencies.
const CHUNK: u64 = 128;
/// Bytes that one task compresses.
const BLOCK: usize = 1 << 20;

/// One method on one graph. The first checkpoint is left out, as in the paper.
#[derive(Serialize)]
struct Row {
    graph: &'static str,
    checkpoints: u32,
    method: String,
    chunk_bytes: Option<u64>,
    /// Size of full copies, divided by the stored bytes.
    ratio: f64,
    /// Rate at which the program's wait went through the state, as a fraction of the memory-read rate.
    blocked_of_memory_read: f64,
    /// Rate at which checkpoints became durable, as a fraction of the plain-write rate.
    durable_of_file_write: f64,
}

struct Study<'a> {
    graph: &'static str,
    /// The states after each part of the count.
    states: &'a [Vec<u32>],
    folder: &'a Path,
    /// Seconds to read one state from memory, and to write it to a file.
    read: f64,
    write: f64,
}

pub fn run(options: &Options, json: bool) -> Result<()> {
    let folder = options.folder()?;
    let made: [(&'static str, Maker); 4] = [
        ("message race", make::message_race),
        ("unstructured mesh", make::unstructured_mesh),
        ("road", make::road),
        ("delaunay", make::delaunay),
    ];
    let mut rows = Vec::new();
    let bar = output::progress("measuring");
    bar.set_length(made.len() as u64 * FREQUENCIES.len() as u64);
    for (name, maker) in made {
        let graph = maker(options.vertices, 1).map_err(|e| Error::usage(e.to_string()))?;
        let graph = graph.relabel(&gorder(&graph)).map_err(|e| Error::usage(e.to_string()))?;
        for checkpoints in FREQUENCIES {
            let states = states(&graph, checkpoints)?;
            rows.extend(study(name, &states, folder.path(), checkpoints)?);
            bar.inc(1);
        }
    }
    bar.finish_and_clear();
    match json {
        true => output::json(&json!({ "vertices": options.vertices, "rows": rows })),
        false => {
            print(&rows, options);
            Ok(())
        }
    }
}

type Maker = fn(u32, u64) -> std::result::Result<Graph, orbits::GraphError>;

/// The table of counts after each of `parts` equal parts of the vertices.
pub(super) fn states(graph: &Graph, parts: u32) -> Result<Vec<Vec<u32>>> {
    let vertices = graph.vertices();
    let mut counts = Counts::<u32>::new(vertices);
    let mut states = Vec::new();
    for part in 0..parts {
        let bound = |p: u32| (u64::from(vertices) * u64::from(p) / u64::from(parts)) as u32;
        let counted = count_range(graph, bound(part)..bound(part + 1), &mut counts);
        counted.map_err(|e| Error::usage(e.to_string()))?;
        states.push(counts.as_slice().to_vec());
    }
    Ok(states)
}

fn study(
    name: &'static str,
    states: &[Vec<u32>],
    folder: &Path,
    checkpoints: u32,
) -> Result<Vec<Row>> {
    let bytes = bytes_of(&states[0]);
    let io = |e| Error::io("cannot measure the file system", e);
    let write =
        (0..3).map(|_| limits::file_write(folder, bytes)).collect::<std::io::Result<Vec<f64>>>();
    let write = write.map_err(io)?.into_iter().fold(f64::MAX, f64::min);
    let study = Study { graph: name, states, folder, read: limits::memory_read(bytes), write };
    let mut rows = Vec::new();
    // Chunk sizes are studied at one frequency, frequencies at one chunk size.
    let chunks: &[u64] = if checkpoints == 20 { &CHUNKS } else { &[CHUNK] };
    for method in Method::ALL {
        for chunk in chunks.iter().filter(|c| method != Method::Full || **c == CHUNK) {
            rows.push(study.method(method, *chunk, Encoding::Raw)?);
        }
    }
    rows.push(study.method(Method::Tree, CHUNK, Encoding::Zstd(1))?);
    let lz4 = |raw: &[u8]| lz4_flex::compress(raw).len();
    let zstd = |raw: &[u8]| zstd::bulk::compress(raw, 3).map_or(raw.len(), |c| c.len());
    rows.push(study.compressor("lz4", &lz4));
    rows.push(study.compressor("zstd -3", &zstd));
    rows.push(study.compressor("deflate -6", &deflate));
    Ok(rows)
}

fn deflate(raw: &[u8]) -> usize {
    use std::io::Write;
    let mut encoder =
        flate2::write::DeflateEncoder::new(Vec::new(), flate2::Compression::default());
    let written = encoder.write_all(raw).and_then(|()| encoder.finish());
    written.map_or(raw.len(), |bytes| bytes.len())
}

impl Study<'_> {
    /// Bytes of the measured checkpoints: all but the first.
    fn full_bytes(&self) -> f64 {
        ((self.states.len() - 1) * size_of_val(&self.states[0][..])) as f64
    }

    fn method(&self, method: Method, chunk: u64, encoding: Encoding) -> Result<Row> {
        let name = "study";
        let options = treering::Options::directory(self.folder, name)
            .method(method)
            .chunk(ChunkSize::new(chunk)?)
            .encoding(encoding)
            // The paper's record has one epoch.
            .growth(f64::MAX);
        let mut run = Run::open(options)?;
        let (mut blocked, mut durable) = (0.0, 0.0);
        for (step, state) in (0..).zip(self.states) {
            let start = Instant::now();
            let shape = [state.len() as u64 / ORBITS as u64, ORBITS as u64];
            let save = run.checkpoint(step, &[Variable::new("counts", state).shaped(&shape)])?;
            save.durable()?;
            if step > 0 {
                blocked += save.blocked().as_secs_f64();
                durable += start.elapsed().as_secs_f64();
            }
        }
        run.finish()?;
        let (checkpoints, _) = Library::open(self.folder)?.checkpoints(name)?;
        let stored: u64 = checkpoints[1..].iter().map(|c| c.stored_bytes).sum();
        let removed = std::fs::remove_dir_all(self.folder.join("runs").join(name));
        removed.map_err(|e| Error::io("cannot remove the benchmark's run", e))?;
        let states = (self.states.len() - 1) as f64;
        let suffix = if encoding == Encoding::Raw { "" } else { " + zstd -1" };
        Ok(Row {
            graph: self.graph,
            checkpoints: self.states.len() as u32,
            method: format!("{}{suffix}", method.name()),
            chunk_bytes: Some(chunk),
            ratio: self.full_bytes() / stored as f64,
            blocked_of_memory_read: states * self.read / blocked,
            durable_of_file_write: states * self.write / durable,
        })
    }

    /// Every checkpoint compressed alone, while the program waits.
    fn compressor(&self, name: &str, compress: &(dyn Fn(&[u8]) -> usize + Sync)) -> Row {
        let start = Instant::now();
        let sizes = self.states[1..].iter().map(|state| {
            let blocks = bytes_of(state).par_chunks(BLOCK);
            blocks.map(compress).sum::<usize>()
        });
        let stored: usize = sizes.sum();
        let seconds = start.elapsed().as_secs_f64();
        let states = (self.states.len() - 1) as f64;
        let written = self.write * stored as f64 / self.full_bytes();
        Row {
            graph: self.graph,
            checkpoints: self.states.len() as u32,
            method: name.to_string(),
            chunk_bytes: None,
            ratio: self.full_bytes() / stored as f64,
            blocked_of_memory_read: states * self.read / seconds,
            durable_of_file_write: states * self.write / (seconds + states * written),
        }
    }
}

fn print(rows: &[Row], options: &Options) {
    output::line(format!(
        "Graphlet orbits of graphs with {} vertices, u32, Gorder, {} threads; all but the first checkpoint.",
        options.vertices,
        rayon::current_num_threads()
    ));
    let cells = |row: &Row| {
        vec![
            row.graph.to_string(),
            row.checkpoints.to_string(),
            row.method.clone(),
            row.chunk_bytes.map_or(String::new(), output::bytes),
            format!("{:.1}", row.ratio),
            format!("{:.3}", row.blocked_of_memory_read),
            format!("{:.2}", row.durable_of_file_write),
        ]
    };
    let header = [
        "graph",
        "checkpoints",
        "method",
        "chunk",
        "ratio",
        "blocked, of memory read",
        "durable, of file write",
    ];
    output::line(output::table(&header, &[2], rows.iter().map(cells)));
}
