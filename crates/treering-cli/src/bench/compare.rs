//! Comparison of files by trees and sketches, beside direct comparison and reading alone.
//!
//! Whole processes are timed, as a user would run them. Each file has a tree for a bound of 1e-5 with
//! chunks of 4 KiB, unless the table is about that. "Direct" is the faster of comparing mapped files
//! and comparing what was read; a cold cache is one from which the files' pages were dropped.

use super::limits::{self, best_of};
use super::{Options, bytes_of};
use crate::output;
use rayon::prelude::*;
use rustix::fs::{Advice, fadvise};
use serde_json::{Value, json};
use std::fs::File;
use std::hint::black_box;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;
use treering::testing::{Builder, Recipe};
use treering::{Bound, DType, Error, Result};

const BOUND: f64 = 1e-5;
const ROUNDS: usize = 5;
const COLD_ROUNDS: usize = 5;

/// Files that differ in known ways.
struct Files {
    folder: tempfile::TempDir,
    values: Vec<f32>,
}

/// Differences of the second file from the first.
#[derive(Clone, Copy)]
enum Change {
    /// Not at all.
    None,
    /// One value of this many of a hundred chunks, by a thousand bounds.
    Chunks(u64),
    /// Every value by up to this many hundredths of the bound.
    Jitter(u64),
    /// Every value, in regions of 64 KiB, by up to 1e-9 to 1e-3.
    Regions,
}

impl Change {
    fn name(self) -> String {
        match self {
            Change::None => "nothing changed".into(),
            Change::Chunks(percent) => format!("{percent} % of chunks changed"),
            Change::Jitter(percent) => format!("jitter of {percent} % of the bound"),
            Change::Regions => "differences from 1e-9 to 1e-3".into(),
        }
    }

    fn file(self) -> String {
        match self {
            Change::None => "same".into(),
            Change::Chunks(percent) => format!("chunks{percent}"),
            Change::Jitter(percent) => format!("jitter{percent}"),
            Change::Regions => "regions".into(),
        }
    }

    fn apply(self, values: &[f32]) -> Vec<f32> {
        const CHUNK: usize = 1024;
        let chunk = |(at, part): (usize, &[f32])| -> Vec<f32> {
            let mut part = part.to_vec();
            let mut random = Random(at as u64 + 1);
            match self {
                Change::None => {}
                Change::Chunks(percent) => {
                    if random.next() % 100 < percent {
                        let place = random.next() as usize % part.len();
                        part[place] += 1000.0 * BOUND as f32;
                    }
                }
                Change::Jitter(percent) => part.iter_mut().for_each(|x| {
                    let moved = *x as f64 + random.signed() * BOUND * percent as f64 / 100.0;
                    *x = moved as f32;
                }),
                Change::Regions => {
                    let size = 10f64.powf(-9.0 + 6.0 * Random(at as u64 / 16 + 1).unit());
                    let mut move_by =
                        |x: &mut f32| *x = (*x as f64 + random.signed() * size) as f32;
                    part.iter_mut().for_each(&mut move_by);
                }
            }
            part
        };
        values.par_chunks(CHUNK).enumerate().flat_map_iter(chunk).collect()
    }
}

/// splitmix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    fn signed(&mut self) -> f64 {
        2.0 * self.unit() - 1.0
    }
}

fn failed(what: &str) -> impl Fn(std::io::Error) -> Error {
    let what = format!("cannot {what} a file of the benchmark");
    move |e| Error::io(what.clone(), e)
}

impl Files {
    fn make(options: &Options) -> Result<Files> {
        let count = options.size as usize / 4 / 1024 * 1024;
        let value = |at: usize| Random(at as u64).unit() as f32;
        let values: Vec<f32> = (0..count).into_par_iter().map(value).collect();
        let files = Files { folder: options.folder()?, values };
        files.write("a", &files.values)?;
        Ok(files)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(format!("{name}.npy"))
    }

    fn write(&self, name: &str, values: &[f32]) -> Result<PathBuf> {
        let path = self.path(name);
        let mut file = File::create(&path).map_err(failed("make"))?;
        let mut head =
            format!("{{'descr': '<f4', 'fortran_order': False, 'shape': ({},), }}", values.len());
        while (10 + head.len() + 1) % 64 != 0 {
            head.push(' ');
        }
        head.push('\n');
        let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
        bytes.extend((head.len() as u16).to_le_bytes());
        bytes.extend(head.as_bytes());
        file.write_all(&bytes).map_err(failed("write"))?;
        file.write_all(bytes_of(values)).map_err(failed("write"))?;
        file.sync_all().map_err(failed("write"))?;
        Ok(path)
    }

    fn changed(&self, change: Change) -> Result<PathBuf> {
        self.write(&change.file(), &change.apply(&self.values))
    }

    /// Makes a tree; the seconds it took.
    fn tree(&self, path: &Path, bound: f64, chunk: u64, planes: u8) -> Result<f64> {
        let (bound, chunk, planes) = (bound.to_string(), chunk.to_string(), planes.to_string());
        let place = path.display().to_string();
        let arguments =
            ["tree", &place, "--abs", &bound, "--chunk", &chunk, "--planes", &planes, "--json"];
        Ok(run(&arguments)?.0)
    }

    fn data_bytes(&self) -> f64 {
        2.0 * 4.0 * self.values.len() as f64
    }

    /// Drops files' pages, and their trees', from the cache.
    fn chill_if(&self, cold: bool, paths: &[&Path]) -> Result<()> {
        for path in paths.iter().filter(|_| cold) {
            for path in [path.to_path_buf(), treering::sidecar(path)] {
                if let Ok(file) = File::open(&path) {
                    file.sync_all().map_err(failed("sync"))?;
                    fadvise(&file, 0, None, Advice::DontNeed)
                        .map_err(|e| failed("drop the pages of")(e.into()))?;
                }
            }
        }
        Ok(())
    }
}

/// Runs this program; the seconds it took and what it printed.
fn run(arguments: &[&str]) -> Result<(f64, Value)> {
    let program = std::env::current_exe().map_err(failed("find"))?;
    let start = Instant::now();
    let output = Command::new(program).args(arguments).output().map_err(failed("run"))?;
    let time = start.elapsed().as_secs_f64();
    let text = String::from_utf8_lossy(&output.stdout);
    let json = serde_json::from_str(&text).map_err(|_| {
        let trouble = String::from_utf8_lossy(&output.stderr).into_owned();
        Error::usage(format!("a part of the benchmark failed: {trouble}"))
    })?;
    Ok((time, json))
}

/// Compares two files as a user would: the time, and the answer.
fn compare(a: &Path, b: &Path, more: &[&str]) -> Result<(f64, Value)> {
    let (a, b) = (a.display().to_string(), b.display().to_string());
    run(&[&["compare", &a, &b, "--json"], more].concat())
}

/// The same from a cold cache: the best time, and the last answer.
fn compare_cold(files: &Files, a: &Path, b: &Path, more: &[&str]) -> Result<(f64, Value)> {
    let mut best = (f64::MAX, Value::Null);
    for _ in 0..2 {
        files.chill_if(true, &[a, b])?;
        let (time, answer) = compare(a, b, more)?;
        best = (best.0.min(time), answer);
    }
    Ok(best)
}

/// The mapped files, value by value, on all cores: seconds, the whole process but for its start.
fn direct_mapped(a: &Path, b: &Path) -> Result<f64> {
    let map = |path: &Path| -> Result<memmap2::Mmap> {
        let file = File::open(path).map_err(failed("open"))?;
        // SAFETY: the files are the benchmark's own, and nobody changes them.
        unsafe { memmap2::Mmap::map(&file) }.map_err(failed("map"))
    };
    let start = Instant::now();
    let (a, b) = (map(a)?, map(b)?);
    let part = (a.len() / 8).next_multiple_of(4096).max(4096);
    let far = |(x, y): (&[u8], &[u8])| {
        let pairs = x.as_chunks::<4>().0.iter().zip(y.as_chunks::<4>().0);
        let beyond = pairs.fold(0u64, |count, (x, y)| {
            let apart = (f32::from_le_bytes(*x) - f32::from_le_bytes(*y)).abs();
            count + u64::from(apart > BOUND as f32)
        });
        black_box(beyond)
    };
    let count: u64 = a.par_chunks(part).zip(b.par_chunks(part)).map(far).sum();
    black_box(count);
    drop((a, b));
    Ok(start.elapsed().as_secs_f64())
}

/// As numpy.allclose does it: both arrays in memory, whole arrays of intermediate results, one core.
fn elementwise(a: &Path, b: &Path) -> Result<f64> {
    let start = Instant::now();
    let read = |path: &Path| std::fs::read(path).map_err(failed("read"));
    let (a, b) = (read(a)?, read(b)?);
    let apart: Vec<f32> = a
        .as_chunks::<4>()
        .0
        .iter()
        .zip(b.as_chunks::<4>().0)
        .map(|(x, y)| (f32::from_le_bytes(*x) - f32::from_le_bytes(*y)).abs())
        .collect();
    let near: Vec<bool> = apart.iter().map(|d| *d <= BOUND as f32).collect();
    black_box(near.iter().all(|near| *near));
    Ok(start.elapsed().as_secs_f64())
}

/// Reads both files once on all cores, into memory that is used again.
fn read_both(a: &Path, b: &Path) -> Result<f64> {
    const PART: usize = 128 << 10;
    let open = |path: &Path| File::open(path).map_err(failed("open"));
    let files = [open(a)?, open(b)?];
    let len = files[0].metadata().map_err(failed("look at"))?.len();
    let parts: Vec<u64> = (0..len.div_ceil(PART as u64)).collect();
    let mut outcome = Ok(());
    let time = best_of(ROUNDS, || {
        outcome = parts.par_chunks(64).try_for_each(|some| {
            let mut buffer = vec![0u8; PART];
            for part in some {
                let from = part * PART as u64;
                let size = (len - from).min(PART as u64) as usize;
                files.iter().try_for_each(|f| f.read_exact_at(&mut buffer[..size], from))?;
            }
            black_box(&buffer);
            Ok(())
        });
    });
    outcome.map_err(failed("read")).map(|()| time)
}

fn number(answer: &Value, key: &str) -> f64 {
    answer[key].as_f64().unwrap_or(0.0)
}

pub fn bench(options: &Options, json: bool) -> Result<()> {
    let files = Files::make(options)?;
    let a = files.path("a");
    let mut out = serde_json::Map::new();
    let tree_time = files.tree(&a, BOUND, 4096, 4)?;
    out.insert("building".into(), building(&files, tree_time, json)?);
    out.insert("changes".into(), changes(&files, &a, json)?);
    out.insert("scattered".into(), scattered(&files, &a, json)?);
    // So many pairs are compared that a quarter of the size has to do.
    let quarter = Files::make(&Options { size: options.size / 4, ..options.clone() })?;
    out.insert("sweep".into(), sweep(&quarter, &quarter.path("a"), json)?);
    match json {
        true => output::json(&out),
        false => Ok(()),
    }
}

/// Cost of trees, beside reading memory.
fn building(files: &Files, tree_time: f64, json: bool) -> Result<Value> {
    let data = bytes_of(&files.values);
    let limit = limits::memory_read(data);
    let mut rows = Vec::new();
    let kinds = [(DType::F32, "f32"), (DType::F64, "f64")];
    for (dtype, name) in kinds {
        for (planes, vectors) in [(4, true), (0, true), (4, false)] {
            let recipe = Recipe::new(dtype, Bound::abs(BOUND), 4096, planes)?;
            let builder = Builder::new(dtype, &[recipe]);
            let builder = if vectors { builder } else { builder.baseline() };
            // As in a run: the memory of a tree is used again at every checkpoint.
            let mut images = builder.build(data)?;
            let mut outcome = Ok(());
            // The limit is measured beside each: it is not the same from minute to minute.
            let limit = limits::memory_read(data);
            let time = best_of(ROUNDS, || outcome = builder.rebuild(&mut images, data));
            outcome?;
            let size: usize = images.iter().map(|image| image.body().len()).sum();
            rows.push((name, planes, vectors, limit / time, size as f64 / data.len() as f64));
        }
    }
    let text = format!(
        "Memory read {:.1} GB/s. Making trees of values in memory again, 4 KiB chunks; that of a file of {} took {}.",
        data.len() as f64 / limit / 1e9,
        output::bytes(data.len() as u64),
        output::seconds(tree_time)
    );
    output_line(json, text);
    let row = |r: &(&str, u8, bool, f64, f64)| {
        let instructions = if r.2 { "best there are" } else { "baseline" };
        vec![
            r.0.to_string(),
            r.1.to_string(),
            instructions.to_string(),
            format!("{:.2}", r.3),
            format!("{:.2} %", 100.0 * r.4),
        ]
    };
    let header = ["type", "planes", "instructions", "of memory read", "size of data"];
    output_line(json, output::table(&header, &[2], rows.iter().map(row)));
    let value = |r: &(&str, u8, bool, f64, f64)| json!({ "type": r.0, "planes": r.1, "baseline": !r.2, "of_memory_read": r.3, "size": r.4 });
    Ok(rows.iter().map(value).collect())
}

/// Trees beside direct comparison, for files that differ in several ways.
fn changes(files: &Files, a: &Path, json: bool) -> Result<Value> {
    let kinds = [
        Change::None,
        Change::Chunks(1),
        Change::Chunks(10),
        Change::Chunks(50),
        Change::Jitter(1),
        Change::Jitter(10),
    ];
    let mut rows = Vec::new();
    let mut values = Vec::new();
    for change in kinds {
        let b = files.changed(change)?;
        files.tree(&b, BOUND, 4096, 4)?;
        for cold in [false, true] {
            let reading = if cold { f64::NAN } else { read_both(a, &b)? };
            let bound = ["--abs", "1e-5"];
            let without = [&bound[..], &["--no-trees"]].concat();
            let (mut mapped, mut read, mut trees) = (f64::MAX, f64::MAX, f64::MAX);
            let mut answer = Value::Null;
            // In turns, so that what disturbs the machine disturbs all of them.
            for _ in 0..if cold { COLD_ROUNDS } else { ROUNDS } {
                files.chill_if(cold, &[a, &b])?;
                mapped = mapped.min(direct_mapped(a, &b)?);
                files.chill_if(cold, &[a, &b])?;
                read = read.min(compare(a, &b, &without)?.0);
                files.chill_if(cold, &[a, &b])?;
                let (time, latest) = compare(a, &b, &bound)?;
                (trees, answer) = (trees.min(time), latest);
            }
            let direct = mapped.min(read);
            let share = number(&answer, "bytes_read") / number(&answer, "bytes_total");
            rows.push(vec![
                change.name(),
                if cold { "cold" } else { "warm" }.to_string(),
                output::seconds(trees),
                output::seconds(read),
                output::seconds(mapped),
                format!("{:.1}×", direct / trees),
                if cold { "–".into() } else { format!("{:.2}", reading / read) },
                format!("{:.2} %", 100.0 * share),
                answer["differences"].to_string(),
            ]);
            values.push(json!({
                "change": change.name(), "cold": cold, "trees_seconds": trees, "read_seconds": read,
                "mapped_seconds": mapped, "speedup": direct / trees,
                "direct_of_reading": if cold { None } else { Some(reading / read) },
                "bytes_read_share": share, "differences": answer["differences"],
                "timings": answer["timings"],
            }));
        }
        if let Change::None = change {
            let everything = elementwise(a, &b)?;
            values.push(json!({ "change": change.name(), "elementwise_seconds": everything }));
            let text = output::seconds(everything);
            output_line(json, format!("Value by value in whole arrays, one core: {text}."));
        }
    }
    let header = [
        "second file",
        "cache",
        "trees",
        "direct, read",
        "direct, mapped",
        "trees over direct",
        "reading over direct",
        "read",
        "differences",
    ];
    output_line(json, output::table(&header, &[1], rows));
    Ok(values.into())
}

fn output_line(json: bool, text: String) {
    if !json {
        output::line(text);
    }
}

/// Cold reads of scattered chunks: what comparing changed chunks needs, and how plain readers do.
fn scattered(files: &Files, a: &Path, json: bool) -> Result<Value> {
    let change = Change::Chunks(10);
    let b = files.path(&change.file());
    let mut rows = Vec::new();
    let mut values = Vec::new();
    for chunk in [4096u64, 65536] {
        files.tree(a, BOUND, chunk, 0)?;
        files.tree(&b, BOUND, chunk, 0)?;
        let (_, answer) = compare_cold(files, a, &b, &["--abs", "1e-5"])?;
        let row = &answer["variables"][0];
        let (reads, all) = (number(row, "read_chunks"), number(row, "chunks"));
        let timings = &answer["timings"];
        let ours = number(timings, "reading") + number(timings, "comparing");
        // The same number of chunks at random places.
        let mut random = Random(7);
        let places: Vec<u64> =
            (0..reads as u64).map(|_| 128 + random.next() % (all as u64).max(1) * chunk).collect();
        let pread = plain_reads(files, a, &b, &places, chunk, false)?;
        let mapped = plain_reads(files, a, &b, &places, chunk, true)?;
        let rate = |time: f64| 2.0 * reads / time;
        let best = pread.min(mapped);
        rows.push(vec![
            output::bytes(chunk),
            format!("{:.0} k/s", rate(ours) / 1e3),
            format!("{:.0} k/s", rate(pread) / 1e3),
            format!("{:.0} k/s", rate(mapped) / 1e3),
            format!("{:.1}×", best / ours),
        ]);
        values.push(json!({
            "chunk": chunk, "ours_per_second": rate(ours), "pread_per_second": rate(pread),
            "mapped_per_second": rate(mapped), "speedup": best / ours,
        }));
    }
    let header =
        ["cold reads of", "ours", "pread, a thread a core", "mapped", "ours over the better"];
    output_line(json, output::table(&header, &[], rows));
    Ok(values.into())
}

fn plain_reads(
    files: &Files,
    a: &Path,
    b: &Path,
    places: &[u64],
    chunk: u64,
    mapped: bool,
) -> Result<f64> {
    files.chill_if(true, &[a, b])?;
    let open = |path: &Path| File::open(path).map_err(failed("open"));
    let both = [open(a)?, open(b)?];
    // SAFETY: the files are the benchmark's own, and nobody changes them.
    let map = |file: &File| unsafe { memmap2::Mmap::map(file) }.map_err(failed("map"));
    let maps = [map(&both[0])?, map(&both[1])?];
    let part = places.len().div_ceil(rayon::current_num_threads()).max(1);
    let start = Instant::now();
    let outcome: std::io::Result<()> = places.par_chunks(part).try_for_each(|places| {
        let mut buffer = vec![0u8; chunk as usize];
        for place in places {
            for side in 0..2 {
                let end = (place + chunk).min(maps[side].len() as u64);
                let size = end.saturating_sub(*place) as usize;
                match mapped {
                    true => buffer[..size].copy_from_slice(&maps[side][*place as usize..][..size]),
                    false => both[side].read_exact_at(&mut buffer[..size], *place)?,
                }
            }
            black_box(&buffer);
        }
        Ok(())
    });
    outcome.map_err(failed("read")).map(|()| start.elapsed().as_secs_f64())
}

/// Bounds and chunk sizes: throughput, what is flagged and what is read, with sketches and without.
fn sweep(files: &Files, a: &Path, json: bool) -> Result<Value> {
    let b = files.changed(Change::Regions)?;
    let mut rows = Vec::new();
    let mut values = Vec::new();
    for chunk in [4u64 << 10, 16 << 10, 64 << 10, 256 << 10, 512 << 10] {
        for bound in [1e-3, 1e-4, 1e-5, 1e-6, 1e-7] {
            files.tree(a, bound, chunk, 4)?;
            files.tree(&b, bound, chunk, 4)?;
            let text = bound.to_string();
            let (time, answer) = compare_cold(files, a, &b, &["--abs", &text])?;
            let without = ["--abs", &text, "--no-trees"];
            let direct = compare_cold(files, a, &b, &without)?.0;
            let row = &answer["variables"][0];
            let chunks = number(row, "chunks");
            let (flagged, read) = (number(row, "mismatched_chunks"), number(row, "read_chunks"));
            let beyond = differing_chunks(&files.values, &b, bound, chunk)? as f64;
            let false_positives =
                |count: f64| (count - beyond).max(0.0) / (chunks - beyond).max(1.0);
            let meta = std::fs::metadata(treering::sidecar(a)).map_err(failed("look at"))?;
            let throughput = files.data_bytes() / time / 1e9;
            rows.push(vec![
                output::bytes(chunk),
                format!("{bound:e}"),
                format!("{throughput:.1} GB/s"),
                format!("{:.1}×", direct / time),
                format!("{:.1} %", 100.0 * flagged / chunks),
                format!("{:.1} %", 100.0 * read / chunks),
                format!("{:.1} %", 100.0 * false_positives(flagged)),
                format!("{:.1} %", 100.0 * false_positives(read)),
                format!("{:.1} %", 200.0 * meta.len() as f64 / files.data_bytes()),
            ]);
            values.push(json!({
                "chunk": chunk, "bound": bound, "gigabytes_per_second": throughput,
                "over_direct": direct / time, "flagged": flagged / chunks, "read": read / chunks,
                "false_positives_by_leaves": false_positives(flagged),
                "false_positives_with_sketches": false_positives(read),
                "metadata": 2.0 * meta.len() as f64 / files.data_bytes(),
                "timings": answer["timings"],
            }));
        }
    }
    let header = [
        "chunk",
        "bound",
        "cold",
        "over direct",
        "leaves differ",
        "values read",
        "false, leaves",
        "false, sketches",
        "metadata",
    ];
    output_line(json, format!("{}, cold cache:", Change::Regions.name()));
    output_line(json, output::table(&header, &[], rows));
    Ok(values.into())
}

/// Number of chunks with a value that differs beyond the bound.
fn differing_chunks(values: &[f32], b: &Path, bound: f64, chunk: u64) -> Result<u64> {
    let bytes = std::fs::read(b).map_err(failed("read"))?;
    let others = bytes[bytes.len() - values.len() * 4..].as_chunks::<4>().0;
    let count = chunk as usize / 4;
    let differs = |(a, b): (&[f32], &[[u8; 4]])| {
        let mut pairs = a.iter().zip(b);
        pairs.any(|(x, y)| (*x as f64 - f32::from_le_bytes(*y) as f64).abs() > bound)
    };
    Ok(values.par_chunks(count).zip(others.par_chunks(count)).filter(|p| differs(*p)).count()
        as u64)
}
