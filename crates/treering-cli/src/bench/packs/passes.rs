//! One pass of encoding or two, frame by frame, by the chains that packs use.
//!
//! A single pass is a general compressor, or the codec that the paper takes for a type: FPC for f64,
//! prediction in one dimension and a coder (as fpzip has them) for f32, a fast dictionary coder for
//! everything else. A double pass puts a general compressor behind that. Small parts skip the first.

use super::schemes::Kind;
use rayon::prelude::*;
use std::borrow::Cow;
use std::fmt;
use treering::testing::{Chain, Codec, CodecStep, LorenzoGrid, Numbers, Reckoning};
use treering::{DType, Error, Result};

/// Bytes that are encoded at a time.
pub const FRAME: usize = 256 << 10;

/// The coder of what a prediction leaves: level 8, and no prediction of its own.
const CODER: CodecStep = CodecStep::Pco(Numbers::U32, 0x88);

/// Encoding passes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pass {
    Raw,
    /// A general compressor.
    General(CodecStep),
    /// By type.
    Typed,
    /// By type, and a general compressor behind it.
    Double(CodecStep),
}

/// The general compressors: the paper's, and one of today.
pub const DEFLATE: CodecStep = CodecStep::Deflate(6);
pub const ZSTD: CodecStep = CodecStep::Zstd(3);

impl Pass {
    pub const ALL: [Pass; 5] = [
        Pass::General(DEFLATE),
        Pass::General(ZSTD),
        Pass::Typed,
        Pass::Double(DEFLATE),
        Pass::Double(ZSTD),
    ];

    fn chain(self, kind: &Kind) -> Result<Chain> {
        let (typed, behind) = match self {
            Pass::Raw => (false, None),
            Pass::General(step) => (false, Some(step)),
            Pass::Typed => (true, None),
            Pass::Double(step) => (true, Some(step)),
        };
        let mut steps = match kind.dtype {
            _ if !typed || kind.small => vec![],
            DType::F64 | DType::C128 => vec![CodecStep::Fpc(8)],
            DType::F32 | DType::C64 => {
                vec![
                    CodecStep::Lorenzo(LorenzoGrid {
                        size: 4,
                        reckoning: Reckoning::Ordered,
                        row: 0,
                        plane: 0,
                    }),
                    CODER,
                ]
            }
            _ => vec![CodecStep::Lz4],
        };
        steps.extend(behind);
        Chain::new(&steps)
    }
}

impl fmt::Display for Pass {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Pass::Raw => f.write_str("raw"),
            Pass::General(step) => write!(f, "{step}"),
            Pass::Typed => f.write_str("by type"),
            Pass::Double(step) => write!(f, "by type + {step}"),
        }
    }
}

/// An encoded frame, or a raw one if it did not become smaller.
pub struct Frame<'a> {
    raw: bool,
    bytes: Cow<'a, [u8]>,
}

/// Head of a frame: its length, and whether it is raw.
const HEAD: usize = 5;

/// The bytes of frames, heads included.
pub fn size(frames: &[Frame]) -> usize {
    frames.iter().map(|frame| HEAD + frame.bytes.len()).sum()
}

/// Encodes runs on all cores.
pub fn encode<'a>(pass: Pass, runs: &'a [(Kind, Vec<u8>)]) -> Result<Vec<Frame<'a>>> {
    let mut frames = Vec::new();
    for (kind, bytes) in runs {
        let chain = pass.chain(kind)?;
        frames.extend(bytes.chunks(FRAME).map(|bytes| (chain.clone(), bytes)));
    }
    let encode = |(chain, raw): (Chain, &'a [u8])| -> Result<Frame<'a>> {
        if pass == Pass::Raw {
            return Ok(Frame { raw: true, bytes: raw.into() });
        }
        let encoded = chain.encode(raw)?;
        Ok(match encoded.len() < raw.len() {
            true => Frame { raw: false, bytes: encoded.into() },
            false => Frame { raw: true, bytes: raw.into() },
        })
    };
    frames.into_par_iter().map(encode).collect()
}

/// Decodes runs on all cores.
pub fn decode(pass: Pass, kinds: &[Kind], frames: &[Frame]) -> Result<Vec<Vec<u8>>> {
    let short = || Error::damaged("frames are missing");
    let mut runs: Vec<Vec<u8>> = kinds.iter().map(|kind| vec![0; kind.len]).collect();
    let (mut rest, mut jobs) = (frames, Vec::new());
    for (kind, run) in kinds.iter().zip(&mut runs) {
        let chain = pass.chain(kind)?;
        let (own, behind) = rest.split_at_checked(kind.len.div_ceil(FRAME)).ok_or_else(short)?;
        rest = behind;
        let pairs = own.iter().zip(run.chunks_mut(FRAME));
        jobs.extend(pairs.map(|(frame, out)| (chain.clone(), frame, out)));
    }
    jobs.into_par_iter().try_for_each(|(chain, frame, out)| match frame.raw {
        true => Chain::default().decode(&frame.bytes, out),
        false => chain.decode(&frame.bytes, out),
    })?;
    Ok(runs)
}

/// Frames one after another, as they are put into a file of the benchmark.
pub fn write(frames: &[Frame]) -> Vec<u8> {
    let mut out = Vec::with_capacity(size(frames));
    for frame in frames {
        out.push(u8::from(frame.raw));
        out.extend((frame.bytes.len() as u32).to_le_bytes());
        out.extend_from_slice(&frame.bytes);
    }
    out
}

/// The frames of such a file.
pub fn read(mut bytes: &[u8]) -> Result<Vec<Frame<'_>>> {
    let cut = || Error::damaged("a file of the benchmark is cut");
    let mut frames = Vec::new();
    while let Some((raw, rest)) = bytes.split_first() {
        let (len, rest) = rest.split_first_chunk::<4>().ok_or_else(cut)?;
        let len = u32::from_le_bytes(*len) as usize;
        let (own, behind) = rest.split_at_checked(len).ok_or_else(cut)?;
        frames.push(Frame { raw: *raw == 1, bytes: own.into() });
        bytes = behind;
    }
    Ok(frames)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_pass_gives_back_what_it_was_given() {
        let smooth = |at: usize| (at as f64 * 1e-3).sin();
        let wide: Vec<u8> = (0..50_000).flat_map(|at| smooth(at).to_le_bytes()).collect();
        let narrow: Vec<u8> =
            (0..50_001).flat_map(|at| (smooth(at) as f32).to_le_bytes()).collect();
        let run =
            |dtype, small, bytes: &[u8]| (Kind { dtype, small, len: bytes.len() }, bytes.to_vec());
        let runs = [
            run(DType::F64, false, &wide),
            run(DType::F32, false, &narrow),
            run(DType::I32, false, &[3; 1234]),
            run(DType::Bytes, true, b"not much"),
        ];
        let kinds: Vec<Kind> = runs.iter().map(|(kind, _)| *kind).collect();
        let raw: usize = kinds.iter().map(|kind| kind.len).sum();
        for pass in Pass::ALL.into_iter().chain([Pass::Raw]) {
            let frames = encode(pass, &runs).unwrap();
            let file = write(&frames);
            assert_eq!(file.len(), size(&frames));
            assert_eq!(file.len() < raw, pass != Pass::Raw, "{pass}");
            let back = decode(pass, &kinds, &read(&file).unwrap()).unwrap();
            assert!(back.iter().zip(&runs).all(|(back, (_, bytes))| back == bytes), "{pass}");
            assert!(read(&file[..file.len() - 1]).is_err());
        }
    }
}
