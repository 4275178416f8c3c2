//! Which chain a kind of frame is encoded by: the one that does best on a sample.
//!
//! The choice depends on the bytes alone and on no clock, so a state is always stored in the same
//! way. Penalties, measured once, stand for the cost of chains: a slower chain has to be that much
//! smaller.

use super::Encoding;
use super::candidates::{
    COLUMNS, Candidate, FoundShape, candidates, differences, multiples, tables, with_repeats,
    with_rows,
};
use super::chain::{Chain, CodecStep};
use super::lorenzo;
use super::nature::Nature;
use super::relatives;
use super::repeats;
use crate::error::Result;
use rayon::prelude::*;
use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};

/// Aim of an encoding: size, speed or a balance of both.
///
/// ```
/// use treering::{Aim, Encoding, Options};
/// # let folder = tempfile::tempdir().unwrap();
/// # let store = folder.path();
/// let options = Options::directory(store, "archive").encoding(Encoding::Best(Aim::Smallest));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Aim {
    /// Small size, at 15 MB/s or more a core.
    Smallest,
    /// Few bytes, at 80 MB/s or more a core. Tables of integers that gain by it are decoded at about 130 MB/s a core,
    /// other data several times faster.
    #[default]
    Balanced,
    /// As fast as zstd at level 3, or faster.
    Fastest,
}

/// Number of bytes of a frame that are tried, first by all candidates and then by the best few, and number of frames.
const FIRST_SAMPLE: usize = 16 << 10;
const SAMPLE: usize = 96 << 10;
const SAMPLES: usize = 2;
/// Number of candidates that are tried again, fewer on large samples, and how near they have to be to the first.
const FINALISTS: usize = 4;
const FAR_FINALISTS: usize = 2;
const CLOSE: f64 = 1.1;
/// Of frames with repeats that are far apart, more is tried, by few candidates.
const FAR_SAMPLE: usize = 1 << 20;
/// Minimum share of its values that repeat far apart for a kind to have large frames.
const FAR_GAIN: f64 = 0.08;
/// Cost of a repeated value, relative to that of another one.
const REPEATED: f64 = 0.05;
/// Cost of the location of a region.
const REGION: f64 = 4.5;
/// Where little is left of a strip, regions that cost less than this are not worth a thought.
const LITTLE_TOLD: f64 = 64.0;
/// After this many frames the choice is tested again.
const HOLDS: u32 = 256;
/// A frame this much larger than the sample promised has the choice tested again.
const WORSE: f64 = 1.2;
/// Result of a sample where it tells little of tables.
const TINY: f64 = 0.02;
/// One of this many pairs of values is looked at to see where a frame has its values.
const LIVELY_STEP: usize = 7;
/// Ratio above which encoded data is stored as it is.
const WORTHWHILE: f64 = 0.98;

/// So many checkpoints pass before differences are tried again where they did not pay.
const REST: u32 = 8;

/// Chooses, and remembers what was chosen for which kind of frame.
pub(crate) struct Chooser {
    encoding: Encoding,
    chosen: HashMap<ChoiceKey, Choice>,
    /// Whether the values of a kind repeat far apart, as far as it was looked at.
    far: HashMap<(String, Nature), bool>,
    /// Sizes of the strips of a kind.
    shares: HashMap<(String, Nature), Shares>,
    /// The kinds of which whole checkpoints are coded as tables.
    tables: HashSet<(String, Nature)>,
}

/// Treatment of a strip without the chunks that are stored already.
#[derive(Clone, Copy)]
pub(crate) struct StripRest {
    /// Bytes that are left.
    pub(crate) left: usize,
    /// Number of the others that are near enough to be found as repeats, if the kind has large frames.
    pub(crate) near: usize,
    /// Number of regions that describe its places.
    pub(crate) regions: usize,
}

/// Encoded bytes for each byte, of whole strips and of what is left of them.
struct Shares {
    of_whole: f64,
    of_left: f64,
    /// Number of uses until they are tried again.
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
        let (chosen, far, shares) = (HashMap::new(), HashMap::new(), HashMap::new());
        Chooser { encoding, chosen, far, shares, tables: HashSet::new() }
    }

    /// Whether there is time to weigh ways to encode against each other.
    pub(crate) fn weighs(&self) -> bool {
        matches!(self.encoding, Encoding::Best(aim) if aim != Aim::Fastest)
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
        let key = (like.to_string(), nature);
        // Rounded values have few digits, and repeat by chance.
        let long = matches!(size, 4 | 8) && nature.spacing.is_none();
        if !self.weighs() || !long || bytes.len() < 2 * usual || self.far.contains_key(&key) {
            return;
        }
        if self.far.len() >= MAX_KINDS {
            self.far.clear();
        }
        let pays = repeats::between(bytes.chunks(usual), size) > FAR_GAIN;
        self.far.insert(key, pays);
    }

    /// Bytes that the frames of a kind should have, of which it may be known that values repeat far
    /// apart.
    pub(crate) fn frame_len(&self, like: &str, nature: Nature, far: bool, usual: usize) -> usize {
        let far = far || self.far.get(&(like.to_string(), nature)) == Some(&true);
        match self.encoding {
            Encoding::Best(Aim::Smallest) if far => 128 * usual,
            Encoding::Best(_) if far => 32 * usual,
            _ => usual,
        }
    }

    /// Whether it is better to encode a strip of a variable as a whole than what is left of it without what is stored
    /// already: what is left has lost its rows and planes, and it has to be told where the rest is.
    pub(crate) fn keeps_whole(
        &mut self,
        like: &str,
        nature: Nature,
        whole: &[u8],
        rest: StripRest,
        left: impl FnOnce() -> Vec<u8>,
    ) -> Result<bool> {
        let key = (like.to_string(), nature);
        let near = if self.far.get(&key) == Some(&true) { rest.near } else { 0 };
        let told = REGION * rest.regions as f64;
        let little = rest.left < FIRST_SAMPLE || 2 * (rest.left + near) < whole.len();
        if !self.weighs() || rest.left == whole.len() || little && told < LITTLE_TOLD {
            return Ok(false);
        }
        if self.shares.get(&key).is_none_or(|shares| shares.left == 0) {
            let left = left();
            let of_whole = rough_share(nature, whole)?;
            let of_left = match left.len() < FIRST_SAMPLE {
                true => of_whole,
                false => rough_share(nature, &left)?,
            };
            if self.shares.len() >= MAX_KINDS {
                self.shares.clear();
            }
            self.shares.insert(key.clone(), Shares { of_whole, of_left, left: HOLDS });
        }
        Ok(self.shares.get_mut(&key).is_some_and(|shares| {
            shares.left -= 1;
            let new = (whole.len() - near) as f64 + REPEATED * near as f64;
            shares.of_whole * new < shares.of_left * rest.left as f64 + told
        }))
    }

    /// The chain for frames of variables that are like this one, of a whole checkpoint or of a delta.
    ///
    /// Tables are decoded slowly, and a restore decodes all deltas of an epoch. The extra time beyond that of the whole
    /// checkpoint is bounded by counting bytes, so deltas are coded as tables only where whole checkpoints are.
    pub(crate) fn chain(
        &mut self,
        like: &str,
        nature: Nature,
        frames: &[Beside],
        whole: bool,
    ) -> Result<Chain> {
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
        let found = found(nature, aim, frames);
        let plain = self.chosen.get(&(like.to_string(), nature, false));
        let new = plain.is_none() || !beside;
        let mut candidates = match plain {
            Some(plain) if beside => vec![(plain.chain.steps().to_vec(), 0.0)],
            _ if far => {
                let numbers = foremost(multiples(nature, aim), nature, frames)?;
                with_repeats(nature, aim, found.grid).into_iter().chain(numbers).collect()
            }
            _ => candidates(nature, aim, found),
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
        let len = match far {
            true if beside => bytes / 4 + FIRST_SAMPLE,
            // Rows come again far apart, and the chains for them are few.
            true if nature.rows().is_some() => FAR_SAMPLE.min(bytes / 4 + FIRST_SAMPLE),
            true => FAR_SAMPLE.min(bytes / 16 + FIRST_SAMPLE),
            false => SAMPLE.min(bytes / 32 + FIRST_SAMPLE),
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
            let few = far && (aim == Aim::Smallest || nature.rows().is_some());
            let most = if few { FAR_FINALISTS } else { FINALISTS };
            candidates = finalists.take(most).map(|(_, at)| candidates[at].clone()).collect();
        }
        let kind = (like.to_string(), nature);
        let samples = sample(nature, frames, len);
        let ways = [(false, new), (true, beside)].into_iter().filter(|(_, tried)| *tried);
        for (beside, _) in ways {
            candidates.extend(with_rows(nature, aim, found, beside));
            if whole || aim == Aim::Smallest || self.tables.contains(&kind) {
                for (steps, penalty) in tables(nature, aim, found, beside) {
                    let slow = match aim {
                        Aim::Balanced => COLUMNS * coded_by_columns(&steps, &samples)?,
                        _ => 0.0,
                    };
                    candidates.push((steps, penalty + slow));
                }
            }
        }
        let (mut chain, mut share) = best(&candidates, &samples)?;
        if share < TINY && nature.rows().is_some() {
            // Where next to nothing is left, a sample tells little and trying is fast.
            let shown = |steps: &[CodecStep]| steps == chain.steps();
            let with = |steps: &[CodecStep]| steps.iter().any(|s| matches!(s, CodecStep::Rows(..)));
            candidates.retain(|(steps, _)| shown(steps) || with(steps));
            (chain, share) = best(&candidates, &sample(nature, frames, usize::MAX))?;
        }
        if whole {
            self.note_table(kind, &chain);
        }
        if self.chosen.len() >= MAX_KINDS {
            self.chosen.clear();
        }
        let choice = Choice { chain: chain.clone(), share, left: HOLDS, rest: REST };
        self.chosen.insert(key, choice);
        Ok(chain)
    }

    fn note_table(&mut self, kind: (String, Nature), chain: &Chain) {
        if self.tables.len() >= MAX_KINDS {
            self.tables.clear();
        }
        match chain.is_table() {
            true => self.tables.insert(kind),
            false => self.tables.remove(&kind),
        };
    }

    /// Goes on with what was chosen before, maybe when differences were tried, too. A choice that this aim would
    /// never make is made anew.
    pub(crate) fn remember(
        &mut self,
        like: &str,
        nature: Nature,
        chain: &Chain,
        share: f64,
        tried: bool,
    ) {
        let Encoding::Best(aim) = self.encoding else { return };
        let none = FoundShape::default();
        let (plain, beside) = (candidates(nature, aim, none), differences(nature, aim));
        let tables: Vec<_> = [false, true]
            .into_iter()
            .flat_map(|at| [tables(nature, aim, none, at), with_rows(nature, aim, none, at)])
            .flatten()
            .collect();
        let known = |steps: &[CodecStep]| {
            let same = |one: &Candidate| {
                one.0.len() == steps.len() && one.0.iter().zip(steps).all(|(a, b)| a.is_like(*b))
            };
            plain.iter().chain(&beside).chain(&tables).any(same)
        };
        if !chain.steps().is_empty() && !known(chain.steps()) {
            return;
        }
        let difference = chain.is_difference();
        self.note_table((like.to_string(), nature), chain);
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

/// The shape of values of which none is known.
fn found(nature: Nature, aim: Aim, frames: &[Beside]) -> FoundShape {
    let flat = nature.row == 0 && nature.stride() == 1 && aim != Aim::Fastest;
    let Some((part, _)) = sample(nature, frames, FAR_SAMPLE).last().copied().filter(|_| flat)
    else {
        return FoundShape::default();
    };
    let (size, float) = (nature.number(), nature.is_float());
    FoundShape {
        grid: (float && matches!(size, 4 | 8)).then(|| lorenzo::found(part, size)),
        row: nature.table(false).map(|_| relatives::row_found(part, size)),
    }
}

/// The share of bytes that come to be coded by columns: those of rows that are not as the row above.
fn coded_by_columns(steps: &[CodecStep], samples: &[Beside]) -> Result<f64> {
    let columns = |step: &CodecStep| match step {
        CodecStep::Columns(table) => Some(usize::from(table.size) * usize::from(table.row)),
        _ => None,
    };
    let Some((at, row)) = steps.iter().enumerate().find_map(|(at, s)| Some((at, columns(s)?)))
    else {
        return Ok(0.0);
    };
    let first = Chain::new(&steps[..at])?;
    let (mut coded, mut all) = (0, 0);
    for (part, before) in samples {
        let given = first.encode_beside(part, before.unwrap_or_default())?;
        let above = given.chunks(row).skip(1).zip(given.chunks(row));
        coded += row * (1 + above.filter(|(row, above)| row != above).count());
        all += part.len();
    }
    Ok(coded as f64 / all.max(1) as f64)
}

/// Cost per byte of chains that look along few or many axes.
fn rough_share(nature: Nature, bytes: &[u8]) -> Result<f64> {
    let size = nature.number();
    let mut tried = vec![Vec::new()];
    if let (4 | 8, Some(grid)) = (size, nature.grids_of_records().first()) {
        tried.push(vec![CodecStep::News(size, *grid)]);
    }
    tried.extend(nature.rows().map(|rows| vec![rows]));
    let len = if nature.has_planes() { SAMPLE } else { FAR_SAMPLE / 4 };
    let sample = sample(nature, &[(bytes, None)], len);
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
    candidates: Vec<Candidate>,
    nature: Nature,
    frames: &[Beside],
) -> Result<Option<Candidate>> {
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
        let start = telling(frame, len, nature.number().into()) / unit * unit;
        let range = start..frame.len().min(start + len);
        (&frame[range.clone()], before.map(|before| &before[range]))
    };
    chosen.iter().map(part).collect()
}

/// Where a part of a frame begins that tells what the frame is like: in its middle, unless far more is going on elsewhere.
fn telling(frame: &[u8], len: usize, size: usize) -> usize {
    let room = frame.len().saturating_sub(len);
    let lively = |start: usize| {
        let part = &frame[start..frame.len().min(start + len)];
        let pairs = part.chunks_exact(2 * size).step_by(LIVELY_STEP);
        pairs.filter(|pair| pair[..size] != pair[size..]).count()
    };
    let starts = (0..=4).map(|at| at * room / 4);
    let most = starts.map(|start| (lively(start), Reverse(start))).max().unwrap_or_default();
    if 2 * lively(room / 2) < most.0 { most.1.0 } else { room / 2 }
}

/// Size of samples under a chain, for each byte of them.
fn share(chain: &Chain, samples: &[Beside]) -> Result<f64> {
    let raw: usize = samples.iter().map(|(part, _)| part.len()).sum();
    let mut bytes = 0;
    for (part, before) in samples {
        bytes += chain.encode_beside(part, before.unwrap_or_default())?.len();
    }
    Ok(bytes as f64 / raw.max(1) as f64)
}

/// Costs of candidates, penalties included, and their places; the least first. They are tried with little effort: it
/// gains about as much for all.
fn ranked(candidates: &[Candidate], samples: &[Beside]) -> Result<Vec<(f64, usize)>> {
    let cost = |(at, (steps, penalty)): (usize, &Candidate)| {
        let quick: Vec<CodecStep> = steps.iter().map(|step| step.quick()).collect();
        Ok((share(&Chain::new(&quick)?, samples)? * (1.0 + penalty), at))
    };
    let mut costs = candidates.par_iter().enumerate().map(cost).collect::<Result<Vec<_>>>()?;
    costs.sort_by(|a, b| a.0.total_cmp(&b.0));
    Ok(costs)
}

/// The chain with the least bytes, penalties included, and its share of the bytes.
fn best(candidates: &[Candidate], samples: &[Beside]) -> Result<(Chain, f64)> {
    let tried = |(steps, penalty): &Candidate| {
        let chain = Chain::new(steps)?;
        let share = share(&chain, samples)?;
        Ok((chain, share, share * (1.0 + penalty)))
    };
    let tried = candidates.par_iter().map(tried).collect::<Result<Vec<_>>>()?;
    let none = (Chain::default(), 1.0, WORTHWHILE);
    let best = tried.into_iter().fold(none, |best, one| if one.2 < best.2 { one } else { best });
    Ok((best.0, best.1))
}
