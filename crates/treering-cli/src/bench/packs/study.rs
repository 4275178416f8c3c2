//! Size and speed of each scheme: over blocks, group sizes, passes, and steps.

use super::passes::{self, DEFLATE, Pass, ZSTD};
use super::schemes::{Kind, Scheme, arrange, gather};
use super::set::{self, Files, Member};
use crate::bench::limits;
use serde::Serialize;
use std::time::Instant;
use treering::{Error, Result};

const GROUPS: [usize; 6] = [1, 2, 4, 8, 16, 32];
const BLOCKS: [usize; 6] = [1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20];
/// Number of times that everything is encoded and decoded; the best time counts.
const ROUNDS: usize = 2;

/// One scheme and pass.
#[derive(Clone, Serialize)]
pub struct Row {
    pub scheme: String,
    pub block_bytes: Option<usize>,
    pub group: usize,
    pub pass: String,
    /// The bytes of the files, divided by what was stored of them.
    pub ratio: f64,
    pub encode_mb_s: f64,
    pub decode_mb_s: f64,
    /// The same as parts of a memcpy's rate on all cores.
    pub encode_of_memcpy: f64,
    pub decode_of_memcpy: f64,
}

/// By how many percent a scheme is better than whole files with the same general compressor.
#[derive(Serialize)]
pub struct Gain {
    pub scheme: String,
    pub general: String,
    pub best_percent: f64,
    pub best_group: usize,
    pub worst_percent: f64,
    pub worst_group: usize,
}

/// A step of a run, with each scheme's ratio by the paper's passes.
#[derive(Serialize)]
pub struct Moment {
    pub folder: String,
    pub ratios: Vec<f64>,
}

/// A set of files, as whole files and taken apart.
pub struct Study {
    whole: Vec<Member>,
    apart: Vec<Member>,
    /// The bytes of the files.
    pub bytes: usize,
    /// A memcpy on all cores, in bytes a second.
    pub memcpy: f64,
}

impl Study {
    pub fn new(ranks: &[Files]) -> Result<Study> {
        let (whole, apart) = (set::load(ranks, false)?, set::load(ranks, true)?);
        let all: Vec<u8> =
            whole.iter().flatten().flat_map(|part| part.bytes.iter().copied()).collect();
        let memcpy = all.len() as f64 / limits::memory_copy(&all);
        Ok(Study { whole, apart, bytes: all.len(), memcpy })
    }

    /// The largest group size of the study.
    pub fn largest(&self) -> usize {
        self.groups().last().copied().unwrap_or(1)
    }

    fn groups(&self) -> Vec<usize> {
        GROUPS.into_iter().filter(|size| *size <= self.whole.len()).collect()
    }

    /// Variables of each type: type, variables, bytes.
    pub fn types(&self) -> Vec<(&'static str, usize, usize)> {
        let mut types = std::collections::BTreeMap::new();
        for part in self.apart.iter().flatten() {
            let (count, bytes) = types.entry(part.dtype.name()).or_insert((0, 0));
            (*count, *bytes) = (*count + 1, *bytes + part.bytes.len());
        }
        types.into_iter().map(|(name, (count, bytes))| (name, count, bytes)).collect()
    }

    /// The runs of all groups.
    fn runs(&self, scheme: Scheme, group: usize) -> Vec<(Kind, Vec<u8>)> {
        let members = if scheme.by_meaning { &self.apart } else { &self.whole };
        let groups = members.chunks(group);
        let runs = groups.flat_map(|group| {
            arrange(scheme, group).into_iter().map(|run| (run.kind, gather(&run, group)))
        });
        runs.collect()
    }

    fn measure(&self, scheme: Scheme, group: usize, passes: &[Pass]) -> Result<Vec<Row>> {
        let runs = self.runs(scheme, group);
        passes.iter().map(|pass| self.row(scheme, group, *pass, &runs)).collect()
    }

    fn row(
        &self,
        scheme: Scheme,
        group: usize,
        pass: Pass,
        runs: &[(Kind, Vec<u8>)],
    ) -> Result<Row> {
        let kinds: Vec<Kind> = runs.iter().map(|(kind, _)| *kind).collect();
        let bytes: usize = kinds.iter().map(|kind| kind.len).sum();
        let (mut encoding, mut decoding, mut stored) = (f64::MAX, f64::MAX, 0);
        for _ in 0..ROUNDS {
            let start = Instant::now();
            let frames = passes::encode(pass, runs)?;
            encoding = encoding.min(start.elapsed().as_secs_f64());
            stored = passes::size(&frames);
            let start = Instant::now();
            let back = passes::decode(pass, &kinds, &frames)?;
            decoding = decoding.min(start.elapsed().as_secs_f64());
            if back.iter().zip(runs).any(|(back, (_, run))| back != run) {
                return Err(Error::damaged(format!("{pass} does not give back its input")));
            }
        }
        let rate = |seconds: f64| bytes as f64 / seconds;
        Ok(Row {
            scheme: scheme.to_string(),
            block_bytes: scheme.block,
            group,
            pass: pass.to_string(),
            ratio: self.bytes as f64 / stored as f64,
            encode_mb_s: rate(encoding) / 1e6,
            decode_mb_s: rate(decoding) / 1e6,
            encode_of_memcpy: rate(encoding) / self.memcpy,
            decode_of_memcpy: rate(decoding) / self.memcpy,
        })
    }

    /// Every block size of both interleaved schemes, in the largest groups.
    pub fn blocks(&self, told: &dyn Fn(u64, u64)) -> Result<Vec<Row>> {
        let mut rows = Vec::new();
        let total = 2 * BLOCKS.len() as u64;
        for by_meaning in [true, false] {
            for block in BLOCKS {
                let scheme = Scheme { by_meaning, block: Some(block) };
                rows.extend(self.measure(scheme, self.largest(), &Pass::ALL)?);
                told((rows.len() / Pass::ALL.len()) as u64, total);
            }
        }
        Ok(rows)
    }

    /// The four schemes in groups of every size.
    pub fn sizes(&self, schemes: &[Scheme], told: &dyn Fn(u64, u64)) -> Result<Vec<Row>> {
        let mut rows = Vec::new();
        let total = (schemes.len() * self.groups().len()) as u64;
        for scheme in schemes {
            for group in self.groups() {
                rows.extend(self.measure(*scheme, group, &Pass::ALL)?);
                told((rows.len() / Pass::ALL.len()) as u64, total);
            }
        }
        Ok(rows)
    }

    /// The four schemes by the paper's passes, in the largest groups.
    pub fn moment(&self, folder: String, schemes: &[Scheme]) -> Result<Moment> {
        let ratio = |scheme: &Scheme| -> Result<f64> {
            let rows = self.measure(*scheme, self.largest(), &[papers_pass(scheme.by_meaning)])?;
            Ok(rows[0].ratio)
        };
        Ok(Moment { folder, ratios: schemes.iter().map(ratio).collect::<Result<_>>()? })
    }
}

/// The paper's choice: two passes for data of known meaning, one for all other.
pub fn papers_pass(by_meaning: bool) -> Pass {
    if by_meaning { Pass::Double(DEFLATE) } else { Pass::General(DEFLATE) }
}

/// The four schemes, each interleaved one with the block that was best by the paper's passes.
pub fn four(blocks: &[Row]) -> [Scheme; 4] {
    let best = |by_meaning: bool| {
        let any = Scheme { by_meaning, block: Some(0) }.to_string();
        let pass = papers_pass(by_meaning).to_string();
        let rows = blocks.iter().filter(|row| row.scheme == any && row.pass == pass);
        let best = rows.max_by(|a, b| a.ratio.total_cmp(&b.ratio));
        Scheme { by_meaning, block: best.and_then(|row| row.block_bytes) }
    };
    let plain = |by_meaning| Scheme { by_meaning, block: None };
    [plain(true), best(true), plain(false), best(false)]
}

/// The paper's table 4: two passes by meaning beside one pass over whole files.
pub fn gains(rows: &[Row]) -> Vec<Gain> {
    let whole = Scheme { by_meaning: false, block: None }.to_string();
    let mut gains = Vec::new();
    for general in [DEFLATE, ZSTD] {
        for block in [Some(0), None] {
            let scheme = Scheme { by_meaning: true, block }.to_string();
            let (double, single) = (Pass::Double(general), Pass::General(general));
            let ratio = |scheme: &str, pass: Pass, group: usize| {
                let pass = pass.to_string();
                let fits =
                    |row: &&Row| row.scheme == scheme && row.pass == pass && row.group == group;
                rows.iter().find(fits).map(|row| row.ratio)
            };
            let percent = |group: &usize| {
                let (own, other) =
                    (ratio(&scheme, double, *group)?, ratio(&whole, single, *group)?);
                Some(((own / other - 1.0) * 100.0, *group))
            };
            let mut all: Vec<(f64, usize)> = GROUPS.iter().filter_map(percent).collect();
            all.sort_by(|a, b| a.0.total_cmp(&b.0));
            if let (Some(worst), Some(best)) = (all.first(), all.last()) {
                gains.push(Gain {
                    scheme,
                    general: general.to_string(),
                    best_percent: best.0,
                    best_group: best.1,
                    worst_percent: worst.0,
                    worst_group: worst.1,
                });
            }
        }
    }
    gains
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(scheme: Scheme, group: usize, pass: Pass, ratio: f64) -> Row {
        Row {
            scheme: scheme.to_string(),
            block_bytes: scheme.block,
            group,
            pass: pass.to_string(),
            ratio,
            encode_mb_s: 1.0,
            decode_mb_s: 1.0,
            encode_of_memcpy: 1.0,
            decode_of_memcpy: 1.0,
        }
    }

    #[test]
    fn the_best_block_is_taken_for_each_scheme() {
        let of = |by_meaning, block| Scheme { by_meaning, block: Some(block) };
        let aware = papers_pass(true);
        let rows = [
            row(of(true, 1), 8, aware, 1.5),
            row(of(true, 2), 8, aware, 1.7),
            row(of(true, 3), 8, Pass::Typed, 9.0),
            row(of(false, 4), 8, papers_pass(false), 1.2),
        ];
        let four = four(&rows);
        assert_eq!(four.map(|scheme| scheme.block), [None, Some(2), None, Some(4)]);
    }

    #[test]
    fn gains_are_told_by_group() {
        let aware = Scheme { by_meaning: true, block: None };
        let whole = Scheme { by_meaning: false, block: None };
        let rows = [
            row(aware, 1, Pass::Double(ZSTD), 2.0),
            row(aware, 2, Pass::Double(ZSTD), 3.0),
            row(whole, 1, Pass::General(ZSTD), 2.0),
            row(whole, 2, Pass::General(ZSTD), 2.0),
        ];
        let gains = gains(&rows);
        assert_eq!(gains.len(), 1);
        assert_eq!((gains[0].best_percent, gains[0].best_group), (50.0, 2));
        assert_eq!((gains[0].worst_percent, gains[0].worst_group), (0.0, 1));
    }
}
