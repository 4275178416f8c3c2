//! Which chain a kind of frame is encoded by: the one that does best on a sample.
//!
//! The choice depends on the bytes alone and on no clock, so a state is always stored in the same
//! way. What chains cost is told by penalties, measured once: a slower chain has to be so much
//! smaller.

use super::Encoding;
use super::chain::{Chain, CodecStep};
use super::difference::{Difference, DifferenceKind};
use super::lorenzo::{self, LorenzoGrid, Reckoning};
use super::nature::Nature;
use super::numbers::{Numbers, PREDICTED};
use super::repeats::{self, THOROUGH};
use crate::error::Result;
use rayon::prelude::*;
use std::collections::HashMap;

/// What encoding is to be good at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Aim {
    /// As few bytes as possible, however long it takes.
    Smallest,
    /// Few bytes, at 80 MB/s or more a core.
    #[default]
    Balanced,
    /// As fast as zstd at level 3, or faster.
    Fastest,
}

/// Chains to be tried, each with what it has to be smaller by than those without; the grid predicts
/// best of those that were found by looking.
fn candidates(nature: Nature, aim: Aim, found: Option<LorenzoGrid>) -> Vec<(Vec<CodecStep>, f64)> {
    let size = nature.number();
    let level = |balanced: u8, smallest: u8| if aim == Aim::Smallest { smallest } else { balanced };
    let shuffled = |behind: CodecStep| match size {
        1 => vec![behind],
        _ => vec![CodecStep::Shuffle(size), behind],
    };
    if aim == Aim::Fastest {
        return vec![
            (shuffled(CodecStep::Lz4), 0.0),
            (vec![CodecStep::Lz4], 0.0),
            (shuffled(CodecStep::Zstd(1)), 0.02),
            (vec![CodecStep::Zstd(1)], 0.02),
        ]
        .into_iter()
        .chain(multiples(nature, aim))
        .chain(with_repeats(nature, aim, found))
        .collect();
    }
    let zstd = CodecStep::Zstd(level(3, 19));
    let mut all = vec![(vec![zstd], 0.0)];
    if size > 1 {
        all.push((shuffled(zstd), 0.0));
        all.push((vec![CodecStep::BitShuffle(size), zstd], 0.01));
    }
    let pco = |numbers: Numbers, more: u8| CodecStep::Pco(numbers, level(BALANCED_PCO, 12) | more);
    let numbers = pco(Numbers::of(nature.dtype), 0);
    all.push((vec![numbers], 0.005));
    let left =
        |grid: LorenzoGrid| vec![CodecStep::Lorenzo(grid), pco(Numbers::unsigned(size), PREDICTED)];
    let records = nature.split();
    for grid in nature.grids().into_iter().chain(found.filter(|grid| grid.row > 0)) {
        match records.filter(|_| grid.row > 0) {
            Some(split) => all.push(([vec![split], left(grid)].concat(), 0.01)),
            None => all.push((left(grid), 0.01)),
        }
    }
    let line = CodecStep::Lorenzo(nature.grids()[0]);
    all.push((vec![line, CodecStep::Shuffle(size.max(2)), zstd], 0.01));
    if let Some(split) = records {
        all.push((vec![split, numbers], 0.005));
        all.push(([vec![split], shuffled(zstd)].concat(), 0.005));
    }
    if nature.is_float() && size >= 4 {
        all.push((vec![CodecStep::Fpc(size), zstd], 0.01));
    }
    all.extend(multiples(nature, aim));
    all.extend(with_repeats(nature, aim, found));
    all
}

/// Chains that take rounded values as whole numbers.
fn multiples(nature: Nature, aim: Aim) -> Vec<(Vec<CodecStep>, f64)> {
    let size = nature.number();
    let Some(spacing) = nature.spacing.filter(|_| matches!(size, 4 | 8)) else {
        return Vec::new();
    };
    let first: Vec<CodecStep> =
        nature.split().into_iter().chain([CodecStep::Multiples(size, spacing)]).collect();
    let grids = nature
        .grids()
        .into_iter()
        .map(|grid| LorenzoGrid { reckoning: Reckoning::Integers, ..grid });
    let planes = CodecStep::Shuffle(size);
    let (zstd, pco) = match aim {
        Aim::Smallest => (CodecStep::Zstd(19), 12),
        Aim::Balanced => (CodecStep::Zstd(3), BALANCED_PCO),
        Aim::Fastest => {
            let line = CodecStep::Lorenzo(LorenzoGrid {
                reckoning: Reckoning::Integers,
                ..nature.grids()[0]
            });
            return vec![
                ([&first[..], &[planes, CodecStep::Lz4]].concat(), 0.01),
                ([&first[..], &[line, CodecStep::Zstd(1)]].concat(), 0.03),
            ];
        }
    };
    let mut all =
        vec![([&first[..], &[CodecStep::Pco(Numbers::signed(size), pco)]].concat(), 0.005)];
    for grid in grids {
        let numbers = CodecStep::Pco(Numbers::unsigned(size), pco | PREDICTED);
        all.push(([&first[..], &[CodecStep::Lorenzo(grid), numbers]].concat(), 0.01));
        // Parts of records are split first, and then there is room for two more steps only.
        let ends = match first.len() {
            1 => [CodecStep::Lorenzo(grid), planes, zstd].to_vec(),
            _ => [CodecStep::Lorenzo(grid), zstd].to_vec(),
        };
        all.push(([&first[..], &ends].concat(), 0.01));
    }
    all.push(([&first[..], &[planes, zstd]].concat(), 0.0));
    all
}

/// Chains that take out values that were there before.
fn with_repeats(
    nature: Nature,
    aim: Aim,
    found: Option<LorenzoGrid>,
) -> Vec<(Vec<CodecStep>, f64)> {
    let size = nature.number();
    if !matches!(size, 2 | 4 | 8) {
        return Vec::new();
    }
    let effort = if aim == Aim::Smallest { size | THOROUGH } else { size };
    let first = CodecStep::Repeats(effort);
    let numbers = Numbers::of(nature.dtype);
    let line = nature.grids()[0];
    let left = |level: u8| CodecStep::Pco(Numbers::unsigned(size), level | PREDICTED);
    let grids = found.map_or_else(|| nature.grids_of_records(), |grid| vec![grid]);
    let news = |level: u8, penalty: f64| {
        grids.iter().map(move |grid| (vec![CodecStep::News(effort, *grid), left(level)], penalty))
    };
    let mut all = match aim {
        Aim::Smallest => vec![
            (vec![first, CodecStep::Pco(numbers, 12)], 0.0),
            (vec![first, CodecStep::Shuffle(size), CodecStep::Zstd(19)], 0.0),
            (
                vec![
                    first,
                    CodecStep::Lorenzo(line),
                    CodecStep::Shuffle(size),
                    CodecStep::Zstd(19),
                ],
                0.0,
            ),
        ],
        Aim::Fastest => vec![
            (vec![first, CodecStep::Shuffle(size), CodecStep::Lz4], 0.05),
            (vec![first, CodecStep::Shuffle(size), CodecStep::Zstd(1)], 0.07),
        ],
        Aim::Balanced => vec![
            // What is left is half or less, so there is time for a higher level.
            (vec![first, CodecStep::Pco(numbers, 8)], 0.01),
            (vec![first, CodecStep::Shuffle(size), CodecStep::Zstd(3)], 0.005),
        ],
    };
    let (level, penalty) = match aim {
        Aim::Smallest => (12, 0.0),
        Aim::Balanced => (8, 0.01),
        Aim::Fastest => return all,
    };
    all.extend(news(level, penalty));
    if let Some(spacing) = nature.spacing.filter(|_| size > 2) {
        let whole = CodecStep::Multiples(size, spacing);
        all.push((vec![whole, first, CodecStep::Pco(Numbers::signed(size), level)], penalty));
        all.extend(grids.iter().map(|grid| {
            let grid = LorenzoGrid { reckoning: Reckoning::Integers, ..*grid };
            (vec![whole, CodecStep::News(effort, grid), left(level)], penalty)
        }));
    }
    all
}

/// Chains that begin with the difference to the step before.
fn differences(nature: Nature, aim: Aim) -> Vec<(Vec<CodecStep>, f64)> {
    let size = nature.number();
    if !matches!(size, 1 | 2 | 4 | 8) {
        return Vec::new();
    }
    let by = |way| CodecStep::Difference(Difference { way, size, float: nature.is_float() });
    let planes = CodecStep::Shuffle(size.max(2));
    if aim == Aim::Fastest {
        return vec![
            (vec![by(DifferenceKind::Xor), planes, CodecStep::Lz4], 0.05),
            (vec![by(DifferenceKind::Fold), planes, CodecStep::Zstd(1)], 0.07),
        ];
    }
    let (zstd, pco) = match aim {
        Aim::Smallest => (CodecStep::Zstd(19), 12),
        _ => (CodecStep::Zstd(3), BALANCED_PCO),
    };
    let numbers = CodecStep::Pco(Numbers::unsigned(size), pco | PREDICTED);
    let mut all = vec![
        (vec![by(DifferenceKind::Fold), numbers], DIFFERENCE),
        (vec![by(DifferenceKind::Fold), planes, zstd], DIFFERENCE),
        (vec![by(DifferenceKind::Xor), planes, zstd], DIFFERENCE),
        (vec![by(DifferenceKind::Xor), zstd], DIFFERENCE),
    ];
    // Where a field moves as a whole, its change is smooth as well.
    for grid in nature.grids() {
        let grid = LorenzoGrid { reckoning: Reckoning::Integers, ..grid };
        all.push((
            vec![by(DifferenceKind::Subtract), CodecStep::Lorenzo(grid), numbers],
            DIFFERENCE + 0.01,
        ));
    }
    if let Some(split) = nature.split() {
        all.push((vec![by(DifferenceKind::Fold), split, numbers], DIFFERENCE));
    }
    all
}

/// The level of pco for the balanced aim.
const BALANCED_PCO: u8 = 6;
/// What a difference has to gain: it makes restores read more.
const DIFFERENCE: f64 = 0.02;

/// How many bytes of a frame are tried, first by all candidates and then by the best few, and of how
/// many frames.
const FIRST_SAMPLE: usize = 16 << 10;
const SAMPLE: usize = 96 << 10;
const SAMPLES: usize = 2;
/// How many of the candidates are tried again, and how near they have to be to the first.
const FINALISTS: usize = 4;
const CLOSE: f64 = 1.1;
/// Of frames with repeats that are far apart, more is tried, by few candidates.
const FAR_SAMPLE: usize = 1 << 20;
/// What share of its values have to repeat far apart for a kind to have large frames.
const FAR_GAIN: f64 = 0.08;
/// What a repeated value costs of what another one does.
const REPEATED: f64 = 0.05;
/// After so many frames the choice is tested again.
const HOLDS: u32 = 256;
/// A frame this much larger than the sample promised has the choice tested again.
const WORSE: f64 = 1.2;
/// What is made smaller by less than this stays as it is.
const WORTHWHILE: f64 = 0.98;

/// So many checkpoints pass before differences are tried again where they did not pay.
const REST: u32 = 8;

/// Chooses, and remembers what was chosen for which kind of frame.
pub(crate) struct Chooser {
    encoding: Encoding,
    chosen: HashMap<ChoiceKey, Choice>,
    /// Whether the values of a kind repeat far apart, as far as it was looked at.
    far: HashMap<(String, Nature), bool>,
    /// What strips of a kind come to.
    shares: HashMap<(String, Nature), Shares>,
}

/// Encoded bytes for each byte, of whole strips and of what is left of them.
struct Shares {
    of_whole: f64,
    of_left: f64,
    /// How often they are used until they are tried again.
    left: u32,
}

/// The name of variables that are like each other, what they are, and whether the bytes before are at
/// hand.
type ChoiceKey = (String, Nature, bool);

struct Choice {
    chain: Chain,
    /// Encoded bytes for each byte of the sample.
    share: f64,
    left: u32,
    rest: u32,
}

/// The most kinds of frames that are remembered.
const MAX_KINDS: usize = 1 << 14;

/// A frame, and the bytes before if they are at hand.
pub(crate) type Beside<'f> = (&'f [u8], Option<&'f [u8]>);

impl Chooser {
    pub(crate) fn new(encoding: Encoding) -> Self {
        Chooser { encoding, chosen: HashMap::new(), far: HashMap::new(), shares: HashMap::new() }
    }

    /// Whether the bytes before may serve variables that are like this one; asked once a checkpoint.
    pub(crate) fn wants_before(&mut self, like: &str, nature: Nature) -> bool {
        if !matches!(self.encoding, Encoding::Best(_)) {
            return false;
        }
        match self.chosen.get_mut(&(like.to_string(), nature, true)) {
            Some(choice) if !choice.chain.is_difference() && choice.rest > 0 => {
                choice.rest -= 1;
                false
            }
            _ => true,
        }
    }

    /// Looks at bytes of a kind whether large frames would gain by values that repeat far apart, unless
    /// it has to be fast.
    pub(crate) fn look_far(&mut self, like: &str, nature: Nature, bytes: &[u8], usual: usize) {
        let size = nature.number() as usize;
        let best = matches!(self.encoding, Encoding::Best(aim) if aim != Aim::Fastest);
        let key = (like.to_string(), nature);
        // What was rounded has few digits, and is the same here and there by chance.
        let long = matches!(size, 4 | 8) && nature.spacing.is_none();
        if !best || !long || bytes.len() < 2 * usual || self.far.contains_key(&key) {
            return;
        }
        if self.far.len() >= MAX_KINDS {
            self.far.clear();
        }
        let pays = repeats::between(bytes.chunks(usual), size) > FAR_GAIN;
        self.far.insert(key, pays);
    }

    /// How many bytes the frames of a kind should have, of which it may be known that values repeat far
    /// apart.
    pub(crate) fn frame_len(&self, like: &str, nature: Nature, far: bool, usual: usize) -> usize {
        let far = far || self.far.get(&(like.to_string(), nature)) == Some(&true);
        match self.encoding {
            Encoding::Best(Aim::Smallest) if far => 128 * usual,
            Encoding::Best(_) if far => 32 * usual,
            _ => usual,
        }
    }

    /// Whether it is better to encode a strip of a variable as a whole than what is left of it, so
    /// many bytes, without what is stored already: what is left has lost its rows and planes. So many
    /// bytes of the rest are near enough to be found as repeats, if the kind has large frames.
    pub(crate) fn keeps_whole(
        &mut self,
        like: &str,
        nature: Nature,
        whole: &[u8],
        (len, near): (usize, usize),
        left: impl FnOnce() -> Vec<u8>,
    ) -> Result<bool> {
        let key = (like.to_string(), nature);
        let near = if self.far.get(&key) == Some(&true) { near } else { 0 };
        let best = matches!(self.encoding, Encoding::Best(aim) if aim != Aim::Fastest);
        if !best || len == whole.len() || 2 * (len + near) < whole.len() || len < FIRST_SAMPLE {
            return Ok(false);
        }
        if self.shares.get(&key).is_none_or(|shares| shares.left == 0) {
            let (whole, left) = (rough_share(nature, whole)?, rough_share(nature, &left())?);
            if self.shares.len() >= MAX_KINDS {
                self.shares.clear();
            }
            self.shares.insert(key.clone(), Shares { of_whole: whole, of_left: left, left: HOLDS });
        }
        Ok(self.shares.get_mut(&key).is_some_and(|shares| {
            shares.left -= 1;
            let new = (whole.len() - near) as f64 + REPEATED * near as f64;
            shares.of_whole * new < shares.of_left * len as f64
        }))
    }

    /// The chain for frames of variables that are like this one.
    pub(crate) fn chain(&mut self, like: &str, nature: Nature, frames: &[Beside]) -> Result<Chain> {
        let aim = match self.encoding {
            Encoding::Raw => return Ok(Chain::default()),
            Encoding::Zstd(level) => return Chain::new(&[CodecStep::Zstd(level as u8)]),
            Encoding::Best(aim) => aim,
        };
        let beside = frames.first().is_some_and(|frame| frame.1.is_some());
        let key = (like.to_string(), nature, beside);
        if let Some(choice) = self.chosen.get_mut(&key).filter(|choice| choice.left > 0) {
            choice.left = choice.left.saturating_sub(frames.len() as u32);
            return Ok(choice.chain.clone());
        }
        let far = self.far.get(&(like.to_string(), nature)) == Some(&true)
            || frames.iter().any(|(frame, _)| frame.len() > FAR_SAMPLE);
        let mut candidates = match self.chosen.get(&(like.to_string(), nature, false)) {
            Some(plain) if beside => vec![(plain.chain.steps().to_vec(), 0.0)],
            _ if far => {
                let numbers = foremost(multiples(nature, aim), nature, frames)?;
                with_repeats(nature, aim, found(nature, aim, frames))
                    .into_iter()
                    .chain(numbers)
                    .collect()
            }
            _ => candidates(nature, aim, found(nature, aim, frames)),
        };
        if beside {
            let differences = differences(nature, aim);
            match far {
                true => candidates.extend(foremost(differences, nature, frames)?),
                false => candidates.extend(differences),
            }
        }
        let bytes: usize = frames.iter().map(|(frame, _)| frame.len()).sum();
        let frames = if far && beside { &frames[..1] } else { frames };
        let len = match (far, aim) {
            (true, Aim::Smallest) => bytes,
            (true, _) if beside => bytes / 4 + FIRST_SAMPLE,
            (true, _) => FAR_SAMPLE.min(bytes / 16 + FIRST_SAMPLE),
            _ => SAMPLE.min(bytes / 32 + FIRST_SAMPLE),
        };
        if candidates.len() > FINALISTS {
            // A few planes have to be there for what they predict to show.
            let planes = 4 * nature.plane as usize * nature.number() as usize;
            let planes = (planes * nature.stride() as usize).min(bytes / 16);
            let first = FIRST_SAMPLE.min(bytes / 64 + FIRST_SAMPLE / 4).max(planes).min(SAMPLE);
            let mut samples = sample(nature, frames, first);
            samples.truncate(if first > FIRST_SAMPLE { 1 } else { SAMPLES });
            let ranked = ranked(&candidates, &samples)?;
            let near = ranked.first().map_or(0.0, |(cost, _)| CLOSE * cost);
            let finalists = ranked.into_iter().take_while(|(cost, _)| *cost <= near);
            candidates = finalists.take(FINALISTS).map(|(_, at)| candidates[at].clone()).collect();
        }
        let (chain, share) = best(&candidates, &sample(nature, frames, len))?;
        if self.chosen.len() >= MAX_KINDS {
            self.chosen.clear();
        }
        let choice = Choice { chain: chain.clone(), share, left: HOLDS, rest: REST };
        self.chosen.insert(key, choice);
        Ok(chain)
    }

    /// Goes on with what was chosen before, maybe when differences were tried, too. What this aim would
    /// never choose is chosen anew.
    pub(crate) fn remember(
        &mut self,
        like: &str,
        nature: Nature,
        chain: &Chain,
        share: f64,
        tried: bool,
    ) {
        let Encoding::Best(aim) = self.encoding else { return };
        let (plain, beside) = (candidates(nature, aim, None), differences(nature, aim));
        let known = |steps: &[CodecStep]| {
            let same = |one: &(Vec<CodecStep>, f64)| {
                one.0.len() == steps.len() && one.0.iter().zip(steps).all(|(a, b)| a.is_like(*b))
            };
            plain.iter().chain(&beside).any(same)
        };
        if !chain.steps().is_empty() && !known(chain.steps()) {
            return;
        }
        let difference = chain.is_difference();
        for beside in [difference, difference || tried] {
            let choice = Choice { chain: chain.clone(), share, left: HOLDS, rest: REST };
            self.chosen.entry((like.to_string(), nature, beside)).or_insert(choice);
        }
    }

    /// Is told what became of a frame.
    pub(crate) fn came_to(
        &mut self,
        like: &str,
        nature: Nature,
        beside: bool,
        raw: usize,
        encoded: usize,
    ) {
        if let Some(choice) = self.chosen.get_mut(&(like.to_string(), nature, beside))
            && encoded as f64 > WORSE * choice.share * raw as f64 + 512.0
        {
            choice.left = choice.left.min(1);
        }
    }
}

/// The grid that predicts values of which no shape is known.
fn found(nature: Nature, aim: Aim, frames: &[Beside]) -> Option<LorenzoGrid> {
    let flat = nature.is_float() && matches!(nature.number(), 4 | 8) && nature.row == 0;
    if !flat || nature.stride() > 1 || aim == Aim::Fastest {
        return None;
    }
    let (part, _) = *sample(nature, frames, FAR_SAMPLE).last()?;
    Some(lorenzo::found(part, nature.number()))
}

/// What chains that look along few or many axes make of bytes, for each byte.
fn rough_share(nature: Nature, bytes: &[u8]) -> Result<f64> {
    let size = nature.number();
    let mut tried = vec![Vec::new()];
    if let (4 | 8, Some(grid)) = (size, nature.grids_of_records().first()) {
        tried.push(vec![CodecStep::News(size, *grid)]);
    }
    let sample = sample(nature, &[(bytes, None)], SAMPLE);
    let mut least = f64::MAX;
    for steps in tried {
        let behind = vec![CodecStep::Shuffle(size.max(2)), CodecStep::Zstd(1)];
        least = least.min(share(&Chain::new(&[steps, behind].concat())?, &sample)?);
    }
    Ok(least)
}

/// The candidate that does best on a small sample: repeats that are far apart show in a whole frame
/// only, so few chains are tried on it.
fn foremost(
    candidates: Vec<(Vec<CodecStep>, f64)>,
    nature: Nature,
    frames: &[Beside],
) -> Result<Option<(Vec<CodecStep>, f64)>> {
    let ranked = ranked(&candidates, &sample(nature, frames, FIRST_SAMPLE))?;
    Ok(ranked.first().and_then(|(_, at)| candidates.into_iter().nth(*at)))
}

/// Parts of the first frame and of one in the middle.
fn sample<'f>(nature: Nature, frames: &[Beside<'f>], len: usize) -> Vec<Beside<'f>> {
    let chosen = [0, frames.len() / 2];
    let chosen = &chosen[..SAMPLES.min(frames.len())];
    let unit = nature.number() as usize * nature.stride() as usize;
    let part = |at: &usize| {
        let (frame, before) = frames[*at];
        let start = frame.len().saturating_sub(len) / 2 / unit * unit;
        let range = start..frame.len().min(start + len);
        (&frame[range.clone()], before.map(|before| &before[range]))
    };
    chosen.iter().map(part).collect()
}

/// What a chain makes of samples, for each byte of them.
fn share(chain: &Chain, samples: &[Beside]) -> Result<f64> {
    let raw: usize = samples.iter().map(|(part, _)| part.len()).sum();
    let mut bytes = 0;
    for (part, before) in samples {
        bytes += chain.encode_beside(part, before.unwrap_or_default())?.len();
    }
    Ok(bytes as f64 / raw.max(1) as f64)
}

/// What candidates cost, penalties included, and their places; the least first.
fn ranked(candidates: &[(Vec<CodecStep>, f64)], samples: &[Beside]) -> Result<Vec<(f64, usize)>> {
    let cost = |(at, (steps, penalty)): (usize, &(Vec<CodecStep>, f64))| {
        Ok((share(&Chain::new(steps)?, samples)? * (1.0 + penalty), at))
    };
    let mut costs = candidates.par_iter().enumerate().map(cost).collect::<Result<Vec<_>>>()?;
    costs.sort_by(|a, b| a.0.total_cmp(&b.0));
    Ok(costs)
}

/// The chain with the least bytes, penalties included, and its share of the bytes.
fn best(candidates: &[(Vec<CodecStep>, f64)], samples: &[Beside]) -> Result<(Chain, f64)> {
    let tried = |(steps, penalty): &(Vec<CodecStep>, f64)| {
        let chain = Chain::new(steps)?;
        let share = share(&chain, samples)?;
        Ok((chain, share, share * (1.0 + penalty)))
    };
    let tried = candidates.par_iter().map(tried).collect::<Result<Vec<_>>>()?;
    let none = (Chain::default(), 1.0, WORTHWHILE);
    let best = tried.into_iter().fold(none, |best, one| if one.2 < best.2 { one } else { best });
    Ok((best.0, best.1))
}
