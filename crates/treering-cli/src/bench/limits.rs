//! Limits of the machine, measured in the same run as the figures that are compared with them.

use rayon::prelude::*;
use std::hint::black_box;
use std::path::Path;
use std::time::Instant;

/// Number of times that each limit is measured; the best counts.
const ROUNDS: usize = 5;

/// The shortest of some rounds, in seconds.
pub fn best_of(rounds: usize, mut work: impl FnMut()) -> f64 {
    let time = |work: &mut dyn FnMut()| {
        let start = Instant::now();
        work();
        start.elapsed().as_secs_f64()
    };
    (0..rounds).map(|_| time(&mut work)).fold(f64::MAX, f64::min)
}

/// The fastest plain read of `data` on all cores, in seconds: the best of several loops.
pub fn memory_read(data: &[u8]) -> f64 {
    let part = data.len().div_ceil(rayon::current_num_threads()).next_multiple_of(4096);
    let loops: [fn(&[u8]) -> u64; 3] = [sum_plain, sum_wide, sum_wide_ahead];
    let time = |sum: fn(&[u8]) -> u64| {
        best_of(ROUNDS, || drop(black_box(data.par_chunks(part).map(sum).collect::<Vec<_>>())))
    };
    loops.map(time).into_iter().fold(f64::MAX, f64::min)
}

/// A copy of `data` to memory that has been touched before, on all cores, in seconds.
pub fn memory_copy(data: &[u8]) -> f64 {
    let mut target = vec![1u8; data.len()];
    let part = data.len().div_ceil(rayon::current_num_threads()).next_multiple_of(4096);
    best_of(ROUNDS, || {
        let parts = target.par_chunks_mut(part).zip(data.par_chunks(part));
        parts.for_each(|(to, from)| to.copy_from_slice(from));
        black_box(&target);
    })
}

/// Writing `data` to a file and syncing it, in seconds.
pub fn file_write(folder: &Path, data: &[u8]) -> std::io::Result<f64> {
    use std::io::Write;
    let path = folder.join("limit");
    let start = Instant::now();
    let mut file = std::fs::File::create(&path)?;
    for piece in data.chunks(1 << 20) {
        file.write_all(piece)?;
    }
    file.sync_all()?;
    Ok(start.elapsed().as_secs_f64())
}

/// Reading this many bytes of a file of the page cache into touched memory, on all cores, in seconds.
pub fn file_read(folder: &Path, data: &[u8]) -> std::io::Result<f64> {
    use std::os::unix::fs::FileExt;
    file_write(folder, data)?;
    let file = std::fs::File::open(folder.join("limit"))?;
    let mut target = vec![1u8; data.len()];
    let part = 1 << 20;
    let mut outcome = Ok(());
    let time = best_of(ROUNDS, || {
        outcome = target
            .par_chunks_mut(part)
            .enumerate()
            .try_for_each(|(at, to)| file.read_exact_at(to, (at * part) as u64));
    });
    outcome.map(|()| time)
}

fn sum_plain(data: &[u8]) -> u64 {
    let words = data.chunks_exact(8);
    words.fold(0u64, |sum, word| match word.try_into() {
        Ok(word) => sum.wrapping_add(u64::from_le_bytes(word)),
        Err(_) => sum,
    })
}

fn sum_wide(data: &[u8]) -> u64 {
    wide::<0>(data)
}

fn sum_wide_ahead(data: &[u8]) -> u64 {
    wide::<2048>(data)
}

#[cfg(target_arch = "x86_64")]
fn wide<const AHEAD: usize>(data: &[u8]) -> u64 {
    match std::is_x86_feature_detected!("avx2") {
        // SAFETY: the processor has the instructions.
        true => unsafe { wide_avx2::<AHEAD>(data) },
        false => sum_plain(data),
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn wide<const AHEAD: usize>(data: &[u8]) -> u64 {
    sum_plain(data)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn wide_avx2<const AHEAD: usize>(data: &[u8]) -> u64 {
    use std::arch::x86_64::*;
    let mut sums = [_mm256_setzero_si256(); 4];
    for line in data.chunks_exact(128) {
        if AHEAD > 0 {
            _mm_prefetch::<_MM_HINT_T0>(line.as_ptr().wrapping_add(AHEAD).cast());
            _mm_prefetch::<_MM_HINT_T0>(line.as_ptr().wrapping_add(AHEAD + 64).cast());
        }
        for (at, sum) in sums.iter_mut().enumerate() {
            // SAFETY: a line holds four such words.
            let word = unsafe { _mm256_loadu_si256(line.as_ptr().add(at * 32).cast()) };
            *sum = _mm256_add_epi64(*sum, word);
        }
    }
    let all =
        _mm256_add_epi64(_mm256_add_epi64(sums[0], sums[1]), _mm256_add_epi64(sums[2], sums[3]));
    let mut out = [0u64; 4];
    // SAFETY: `out` has 32 bytes.
    unsafe { _mm256_storeu_si256(out.as_mut_ptr().cast(), all) };
    out.into_iter().fold(0, u64::wrapping_add)
}
