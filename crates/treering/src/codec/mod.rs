//! Encoders of frames, behind one trait, and the choice between them.
//!
//! The law: decode(encode(x)) = x for every x, and decode never panics, never returns more than it
//! was asked for and never allocates much more, whatever bytes it is given. A frame that an encoder
//! does not make smaller is stored raw, so no codec can make a pack grow.
//!
//! A frame is encoded by a [`Chain`] of steps: such that make bytes more alike (shuffles, predictors)
//! and one or two that make them fewer. No chain wins everywhere, so a [`Chooser`] tries some on a
//! sample of every kind of frame and keeps the best while it holds (after mcrEngine, which chooses by
//! type, and its own remark that it should rather sample).

mod candidates;
mod chain;
mod choice;
mod columns;
mod difference;
mod fpc;
mod general;
mod lorenzo;
mod multiples;
mod nature;
mod nibbles;
mod numbers;
mod relatives;
mod repeats;
mod rows;
mod shuffle;
mod word;

pub use chain::{Chain, CodecStep};
pub use choice::Aim;
pub(crate) use choice::{Chooser, StripRest};
#[cfg(any(test, feature = "testing"))]
pub use columns::TableShape;
pub(crate) use general::zstd_encode;
#[cfg(any(test, feature = "testing"))]
pub use lorenzo::{LorenzoGrid, Reckoning};
pub use nature::Nature;
#[cfg(any(test, feature = "testing"))]
pub use numbers::Numbers;
pub(crate) use repeats::between as values_between;

use crate::error::{Error, Result};

/// An encoder and its decoder.
pub trait Codec: Send + Sync {
    /// The encoded bytes.
    fn encode(&self, raw: &[u8]) -> Result<Vec<u8>>;
    /// Fills `raw`, whose length is known from the format.
    fn decode(&self, encoded: &[u8], raw: &mut [u8]) -> Result<()>;
}

/// Encoding of the frames of a run.
///
/// ```
/// use treering::{Aim, Encoding, Options};
/// # let folder = tempfile::tempdir().unwrap();
/// # let store = folder.path();
/// assert_eq!(Encoding::default(), Encoding::Best(Aim::Balanced));
/// let small = Options::directory(store, "archive").encoding(Encoding::Best(Aim::Smallest));
/// let zstd = Options::directory(store, "rod").encoding(Encoding::Zstd(3));
/// assert!(Encoding::Zstd(40).check().is_err()); // levels are 1 to 19
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encoding {
    /// Bytes as they are.
    Raw,
    /// Zstandard at a level from 1 (fast) to 19 (small), for data of any type.
    Zstd(i32),
    /// Chosen by sampling each variable.
    Best(Aim),
}

impl Default for Encoding {
    fn default() -> Self {
        Encoding::Best(Aim::Balanced)
    }
}

impl Encoding {
    /// Refuses levels that do not exist.
    pub fn check(self) -> Result<()> {
        match self {
            Encoding::Zstd(level) if !(1..=19).contains(&level) => {
                Err(Error::usage(format!("zstd has no level {level}")).hint("choose 1 to 19"))
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::difference::{Difference, DifferenceKind};
    use super::*;
    use crate::array::{Bound, DType, Description, Rounding, Shape, Spacing};
    use proptest::prelude::*;

    fn steps() -> Vec<CodecStep> {
        let mut all =
            vec![CodecStep::Lz4, CodecStep::Zstd(1), CodecStep::Zstd(19), CodecStep::Deflate(6)];
        for size in [2, 3, 4, 8, 16] {
            all.push(CodecStep::Shuffle(size));
            all.push(CodecStep::BitShuffle(size));
            all.push(CodecStep::Split(size, 3));
        }
        all.extend([CodecStep::BitShuffle(1), CodecStep::Fpc(4), CodecStep::Fpc(8)]);
        all.extend([
            CodecStep::Repeats(2),
            CodecStep::Repeats(4),
            CodecStep::Repeats(8 | repeats::THOROUGH),
        ]);
        for size in [4, 8] {
            for spacing in [0.01f64, 1e-300, 1e300, 3.0] {
                let spacing = Spacing::from_bits(spacing.to_bits()).unwrap();
                all.push(CodecStep::Multiples(size, spacing));
            }
        }
        for size in [1, 2, 4, 8] {
            for (row, plane) in [(0, 0), (1, 0), (7, 0), (7, 35), (5, 5)] {
                for reckoning in Reckoning::ALL {
                    let grid = LorenzoGrid { size, reckoning, row, plane };
                    all.push(CodecStep::Lorenzo(grid));
                    all.push(CodecStep::News(size, grid));
                    all.push(CodecStep::News(size | repeats::THOROUGH, grid));
                }
            }
        }
        for size in [1, 2, 4, 8] {
            for (row, signed, thorough) in
                [(1, false, false), (1, true, true), (3, false, true), (9, true, false)]
            {
                all.push(CodecStep::Columns(TableShape { size, signed, row, thorough }));
            }
        }
        for size in [1, 2, 4, 8] {
            all.extend([2, 3, 254].map(|row| CodecStep::Rows(size, row)));
            all.push(CodecStep::Rows(size | repeats::THOROUGH, 5));
        }
        let longest = TableShape { size: 2, signed: false, row: 254, thorough: true };
        all.push(CodecStep::Columns(longest));
        for numbers in Numbers::ALL {
            all.push(CodecStep::Pco(numbers, 4));
            all.push(CodecStep::Pco(numbers, 8 | numbers::PREDICTED));
        }
        // Not every combination is a step.
        all.retain(|step| Chain::new(&[*step]).is_ok());
        all
    }

    fn codecs() -> Vec<Chain> {
        let mut all: Vec<Chain> = steps().iter().map(|s| Chain::new(&[*s]).unwrap()).collect();
        all.push(Chain::default());
        let grid = LorenzoGrid { size: 4, reckoning: Reckoning::Ordered, row: 16, plane: 64 };
        let whole = LorenzoGrid { reckoning: Reckoning::Integers, ..grid };
        let hundredths = Spacing::from_bits(0.01f64.to_bits()).unwrap();
        let multiples = |size| CodecStep::Multiples(size, hundredths);
        for chain in [
            &[CodecStep::Fpc(8), CodecStep::Zstd(3)][..],
            &[CodecStep::Fpc(4), CodecStep::Shuffle(4), CodecStep::Lz4, CodecStep::Zstd(3)],
            &[CodecStep::Pco(Numbers::F32, 8), CodecStep::Zstd(3)],
            &[CodecStep::Split(4, 3), CodecStep::Lorenzo(grid), CodecStep::Pco(Numbers::U32, 0x88)],
            &[
                CodecStep::Zstd(1),
                CodecStep::Fpc(4),
                CodecStep::BitShuffle(2),
                CodecStep::Deflate(9),
            ],
            &[
                CodecStep::Split(4, 2),
                multiples(4),
                CodecStep::Lorenzo(whole),
                CodecStep::Pco(Numbers::U32, 0x88),
            ],
            &[multiples(8), CodecStep::Pco(Numbers::I64, 8)],
        ] {
            all.push(Chain::new(chain).unwrap());
        }
        all
    }

    /// Bytes of many kinds: junk, zeros, smooth numbers, special ones.
    fn bytes() -> impl Strategy<Value = Vec<u8>> {
        let smooth = (0usize..600, any::<bool>()).prop_map(|(count, wide)| {
            let value = |i: usize| (i as f64 * 0.01).sin() * 3.0;
            (0..count)
                .flat_map(|i| match wide {
                    true => value(i).to_le_bytes().to_vec(),
                    false => (value(i) as f32).to_le_bytes().to_vec(),
                })
                .collect()
        });
        let special = proptest::collection::vec(
            prop_oneof![
                Just(f64::NAN),
                Just(-0.0),
                Just(f64::INFINITY),
                Just(5e-324),
                any::<f64>()
            ],
            0..100,
        );
        // Rows of a few kinds, with pieces cut out.
        let rows = (1usize..6, 1usize..9, proptest::collection::vec((0u8..4, 0usize..40), 0..200));
        let rows = rows.prop_map(|(size, row, kinds)| {
            let bytes = kinds.iter().flat_map(|(kind, cut)| {
                let of_row = (0..row * size).map(|at| kind.wrapping_mul(at as u8));
                of_row.take(if *cut < 2 { *cut } else { row * size })
            });
            bytes.collect::<Vec<u8>>()
        });
        prop_oneof![
            rows,
            proptest::collection::vec(any::<u8>(), 0..3000),
            proptest::collection::vec(prop_oneof![Just(0u8), any::<u8>()], 0..3000),
            smooth.clone(),
            smooth.prop_map(|mut bytes: Vec<u8>| {
                // Multiples, with an exception here and there.
                Rounding::new(Bound::abs(0.005), DType::F64).unwrap().round(&mut bytes);
                bytes.iter_mut().step_by(271).for_each(|byte| *byte ^= 1);
                bytes
            }),
            special.prop_map(|values| values.iter().flat_map(|v| v.to_le_bytes()).collect()),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]
        #[test]
        fn every_codec_gives_back_what_it_was_given(raw in bytes()) {
            for codec in codecs() {
                let encoded = codec.encode(&raw).unwrap();
                let mut back = vec![1; raw.len()];
                codec.decode(&encoded, &mut back).unwrap();
                prop_assert_eq!(&back, &raw, "{}", codec);
                prop_assert_eq!(&Chain::parse(&codec.write()).unwrap(), &codec);
            }
        }

        #[test]
        fn no_codec_panics_on_junk_or_accepts_a_wrong_length(
            junk in proptest::collection::vec(any::<u8>(), 0..300), len in 0usize..400, at: usize,
        ) {
            for codec in codecs() {
                let mut out = vec![0; len];
                let _ = codec.decode(&junk, &mut out);
                let mut encoded = codec.encode(&junk).unwrap();
                let mut longer = vec![0; junk.len() + 1];
                prop_assert!(codec.decode(&encoded, &mut longer).is_err(), "{}", codec);
                if !encoded.is_empty() {
                    let at = at % encoded.len();
                    encoded[at] ^= 1 << (at % 8);
                    let _ = codec.decode(&encoded, &mut vec![0; junk.len()]);
                    encoded.truncate(at);
                    let _ = codec.decode(&encoded, &mut vec![0; junk.len()]);
                }
            }
        }

        #[test]
        fn differences_give_back_what_they_were_given(
            (raw, before) in (bytes(), bytes()), junk in proptest::collection::vec(any::<u8>(), 0..300),
        ) {
            let mut before = before;
            before.resize(raw.len(), 7);
            for way in [DifferenceKind::Subtract, DifferenceKind::Fold, DifferenceKind::Xor] {
                for (size, float) in [(1, false), (2, true), (4, false), (4, true), (8, true)] {
                    let first = CodecStep::Difference(Difference { way, size, float });
                    for rest in [&[][..], &[CodecStep::Zstd(1)], &[CodecStep::Shuffle(4), CodecStep::Lz4]] {
                        let chain = Chain::new(&[&[first], rest].concat()).unwrap();
                        prop_assert_eq!(&Chain::parse(&chain.write()).unwrap(), &chain);
                        let encoded = chain.encode_beside(&raw, &before).unwrap();
                        let mut back = vec![1; raw.len()];
                        chain.decode_beside(&encoded, &before, &mut back).unwrap();
                        prop_assert_eq!(&back, &raw, "{}", chain);
                        // Without what was before, or with junk, there is no panic and no guess.
                        prop_assert!(chain.decode(&encoded, &mut back).is_err());
                        back.push(0);
                        prop_assert!(chain.decode_beside(&encoded, &before, &mut back).is_err());
                        let _ = chain.decode_beside(&junk, &before, &mut vec![0; raw.len()]);
                    }
                }
            }
        }

        /// Memory that is used again has something in it.
        #[test]
        fn steps_write_every_byte(raw in bytes()) {
            for step in steps().into_iter().filter(|step| step.keeps_length()) {
                let made = |fill: u8| {
                    let mut out = vec![fill; raw.len()];
                    step.transform(&raw, &mut out).unwrap();
                    out
                };
                prop_assert_eq!(made(0xaa), made(0x55));
                let encoded = made(0);
                let back = |fill: u8| {
                    let mut out = vec![fill; raw.len()];
                    step.decode(&encoded, &mut out).unwrap();
                    out
                };
                prop_assert!(back(0xaa) == raw && back(0x55) == raw);
            }
        }

        #[test]
        fn junk_is_no_chain(junk in proptest::collection::vec(0u8..16, 0..30)) {
            if let Ok(chain) = Chain::parse(&junk) {
                prop_assert_eq!(chain.write(), junk);
            }
        }
    }

    #[test]
    fn steps_of_a_newer_release_are_no_damage() {
        use crate::error::ErrorKind;
        let kind = |bytes: &[u8]| Chain::parse(bytes).unwrap_err().kind();
        assert_eq!(kind(&[2, 7, 16]), ErrorKind::Mismatch);
        for damaged in [&[][..], &[1], &[1, 0], &[1, 1, 0], &[1, 7, 7], &[5, 7, 7, 7, 7, 7]] {
            assert_eq!(kind(damaged), ErrorKind::Damaged, "{damaged:?}");
        }
    }

    fn nature(dtype: DType, shape: &[u64]) -> Nature {
        let shape = Shape(shape.to_vec());
        let order = crate::array::Order::C;
        let attributes = Default::default();
        Nature::of(&Description { name: "x".into(), dtype, shape, order, part: None, attributes })
    }

    /// Rows are those of memory, whatever the order of the indices is.
    #[test]
    fn natures_see_the_order_of_memory() {
        let described = |shape: &[u64], order| Description {
            name: "x".into(),
            dtype: DType::F64,
            shape: Shape(shape.to_vec()),
            order,
            part: None,
            attributes: Default::default(),
        };
        use crate::array::Order::{C, Fortran};
        let (c, fortran) = (described(&[30, 40, 50], C), described(&[50, 40, 30], Fortran));
        assert_eq!(Nature::of(&c), Nature::of(&fortran));
        assert_ne!(Nature::of(&c), Nature::of(&described(&[30, 40, 50], Fortran)));
    }

    #[test]
    fn natures_tell_rows_planes_and_records() {
        let of = |shape: &[u64]| {
            let n = nature(DType::F32, shape);
            (n.record, n.row, n.plane)
        };
        assert_eq!(of(&[]), (1, 0, 0));
        assert_eq!(of(&[1000]), (1, 0, 0));
        assert_eq!(of(&[3]), (1, 0, 0));
        assert_eq!(of(&[1000, 3]), (3, 0, 0));
        assert_eq!(of(&[100, 200]), (1, 200, 0));
        assert_eq!(of(&[1, 100, 200]), (1, 200, 0));
        assert_eq!(of(&[50, 100, 200]), (1, 200, 20_000));
        assert_eq!(of(&[50, 100, 200, 3]), (3, 200, 20_000));
        assert_eq!(of(&[1 << 40, 1 << 40]), (1, 0, 0));
    }

    #[test]
    fn smooth_fields_are_predicted_and_noise_stays_raw() {
        // Rough along each axis, and still every value follows from its neighbours.
        let rough = |x: usize| ((x as f64 * 12.9898).sin() * 43758.5453).fract() as f32;
        let field: Vec<u8> = (0..256 * 256)
            .flat_map(|i| {
                let value = 2.0 + rough(i % 256) + rough(1000 + i / 256) + 1e-5 * rough(i);
                value.to_le_bytes()
            })
            .collect();
        let mut chooser = Chooser::new(Encoding::Best(Aim::Balanced));
        let chain =
            chooser.chain("x", nature(DType::F32, &[256, 256]), &[(&field, None)], true).unwrap();
        assert!(chain.to_string().contains("predict 2-D"), "{chain}");
        let mut state = 1u64;
        let noise: Vec<u8> = std::iter::repeat_with(|| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 56) as u8
        })
        .take(100_000)
        .collect();
        assert_eq!(
            chooser.chain("noise", Nature::BYTES, &[(&noise, None)], true).unwrap(),
            Chain::default()
        );
        // Kept while it holds, and tested again when it does not.
        let zeros = vec![0; 100_000];
        assert_eq!(
            chooser.chain("noise", Nature::BYTES, &[(&zeros, None)], true).unwrap(),
            Chain::default()
        );
        chooser.chain("zeros", Nature::BYTES, &[(&zeros, None)], true).unwrap();
        chooser.came_to("zeros", Nature::BYTES, false, 100_000, 99_000);
        chooser.chain("zeros", Nature::BYTES, &[(&noise, None)], true).unwrap();
        assert_eq!(
            chooser.chain("zeros", Nature::BYTES, &[(&noise, None)], true).unwrap(),
            Chain::default()
        );
        // Noise that stays is nothing new; where it does not, differences rest for a while.
        let bits = nature(DType::U8, &[100_000]);
        assert!(chooser.wants_before("noise", bits));
        let chain = chooser.chain("noise", bits, &[(&noise, Some(&noise))], false).unwrap();
        assert!(chain.is_difference(), "{chain}");
        let other = noise.iter().rev().copied().collect::<Vec<u8>>();
        let chain = chooser.chain("other", bits, &[(&noise, Some(&other))], false).unwrap();
        assert_eq!(chain, Chain::default());
        assert!(chooser.wants_before("noise", bits) && !chooser.wants_before("other", bits));
    }

    #[test]
    fn rounded_fields_are_predicted_as_whole_numbers() {
        let noise = |i: usize| (i as f64 * 12.9898).sin() * 43758.5453 % 1.0;
        let value = |i: usize| (i as f64 * 0.003).sin() * 40.0 + (i / 512) as f64 + 1e-3 * noise(i);
        for (dtype, exact) in [
            (DType::F64, (0..65_536).flat_map(|i| value(i).to_le_bytes()).collect::<Vec<u8>>()),
            (DType::F32, (0..65_536).flat_map(|i| (value(i) as f32).to_le_bytes()).collect()),
        ] {
            let rounding = Rounding::new(Bound::abs(1e-3), dtype).unwrap();
            let mut rounded = exact.clone();
            rounding.round(&mut rounded);
            let plain = nature(dtype, &[128, 512]);
            for aim in [Aim::Smallest, Aim::Balanced, Aim::Fastest] {
                let mut chooser = Chooser::new(Encoding::Best(aim));
                let mut size = |nature, bytes: &[u8]| {
                    let chain = chooser.chain("x", nature, &[(bytes, None)], true).unwrap();
                    (chain.encode(bytes).unwrap().len(), chain)
                };
                let (exact, _) = size(plain, &exact);
                let (unknown, _) = size(plain, &rounded);
                let (known, chain) = size(plain.rounded(Some(&rounding)), &rounded);
                assert!(chain.to_string().contains("multiples"), "{chain}");
                assert!(known < unknown && known * 2 < exact, "{known} {unknown} {exact}");
            }
        }
    }

    /// Rows that come again far apart are told by their numbers, also where the rows of a frame begin anywhere.
    #[test]
    fn rows_that_come_again_are_told_by_numbers() {
        let mut state = 1u64;
        let mut random = |below: u64| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 33) % below
        };
        let kinds: Vec<Vec<u8>> = (0..300)
            .map(|_| (0..60).flat_map(|_| (random(1 << 12) as u32).to_le_bytes()).collect())
            .collect();
        let table: Vec<u8> = (0..20_000)
            .flat_map(|_| {
                // Few of the kinds are frequent.
                let most = 1 + random(300);
                kinds[random(most) as usize].clone()
            })
            .collect();
        // The frame begins within a row, and chunks of 512 bytes are missing here and there.
        let cut: Vec<u8> = table[100..]
            .chunks(512)
            .enumerate()
            .filter(|(at, _)| at % 37 != 0)
            .flat_map(|(_, chunk)| chunk.to_vec())
            .collect();
        let chosen = |bytes: &[u8], aim| {
            let nature = nature(DType::U32, &[20_000, 60]);
            let mut chooser = Chooser::new(Encoding::Best(aim));
            chooser.look_far("x", nature, bytes, 256 << 10);
            let chain = chooser.chain("x", nature, &[(bytes, None)], true).unwrap();
            let encoded = chain.encode(bytes).unwrap();
            let mut back = vec![1; bytes.len()];
            chain.decode(&encoded, &mut back).unwrap();
            assert!(back == bytes && chain.to_string().contains("rows 60"), "{chain}");
            encoded.len()
        };
        for aim in [Aim::Balanced, Aim::Smallest] {
            // The kinds have 12 bits a value, and a row has about 8 bits.
            assert!(chosen(&table, aim) < 300 * 60 * 2 + 20_000 * 9 / 8);
            assert!(chosen(&cut, aim) < 4 * chosen(&table, aim));
        }
    }

    /// Counters of a table that tell of each other are coded by that; what tells nothing is not.
    #[test]
    fn tables_are_coded_by_their_columns() {
        let mut state = 1u64;
        let mut random = |below: u64| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            ((state >> 33) % below) as u32
        };
        let mut table = Vec::new();
        for _ in 0..4000 {
            let (a, b) = (random(8), random(8));
            for at in 0..40 {
                let tells = [a * (at / 4 + 1) % 8, b * (at / 4 + 3) % 8, (a + at) % 8 * 300];
                let noise = random(8);
                let value = tells.get(at as usize % 4).copied().unwrap_or(noise);
                table.extend(value.to_le_bytes());
            }
        }
        let junk: Vec<u8> =
            (0..160_000).flat_map(|_| (random(1 << 31) * 2 + random(2)).to_le_bytes()).collect();
        let nature = nature(DType::U32, &[4000, 40]);
        for aim in [Aim::Balanced, Aim::Smallest] {
            let mut chooser = Chooser::new(Encoding::Best(aim));
            let chain = chooser.chain("x", nature, &[(&table, None)], true).unwrap();
            assert!(chain.to_string().contains("columns"), "{chain}");
            let zstd = Chain::new(&[CodecStep::Zstd(19)]).unwrap().encode(&table).unwrap().len();
            let own = chain.encode(&table).unwrap().len();
            assert!(own * 6 < zstd * 5, "{own} {zstd}");
            // A delta is one only if the whole checkpoint is: a restore decodes all deltas.
            let delta = |chooser: &mut Chooser, like: &str| {
                chooser.chain(like, nature, &[(&table, None)], false).unwrap().is_table()
            };
            assert!(delta(&mut chooser, "x"));
            assert_eq!(delta(&mut chooser, "other"), aim == Aim::Smallest);
            let chain = chooser.chain("junk", nature, &[(&junk, None)], true).unwrap();
            assert_eq!(chain, Chain::default());
        }
    }
}
