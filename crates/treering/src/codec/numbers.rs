//! pcodec: numbers sorted into bins of their distribution, with differences and common multiples
//! taken out where that helps.

use crate::array::DType;
use crate::error::{Error, Result};
use pco::data_types::Number;
use pco::standalone::{simple_compress, simple_decompress_into};
use pco::{ChunkConfig, DeltaSpec, ModeSpec};

/// Kind of the numbers of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum Numbers {
    U8,
    U16,
    U32,
    U64,
    I8,
    I16,
    I32,
    I64,
    F32,
    F64,
}

impl Numbers {
    pub(super) const ALL: [Numbers; 10] = [
        Numbers::U8,
        Numbers::U16,
        Numbers::U32,
        Numbers::U64,
        Numbers::I8,
        Numbers::I16,
        Numbers::I32,
        Numbers::I64,
        Numbers::F32,
        Numbers::F64,
    ];

    /// Numbers of a type; complex numbers are pairs.
    pub(super) fn of(dtype: DType) -> Numbers {
        match dtype {
            DType::U8 | DType::Bool | DType::Bytes => Numbers::U8,
            DType::U16 | DType::F16 | DType::BF16 => Numbers::U16,
            DType::U32 => Numbers::U32,
            DType::U64 => Numbers::U64,
            DType::I8 => Numbers::I8,
            DType::I16 => Numbers::I16,
            DType::I32 => Numbers::I32,
            DType::I64 => Numbers::I64,
            DType::F32 | DType::C64 => Numbers::F32,
            DType::F64 | DType::C128 => Numbers::F64,
        }
    }

    /// Numbers with a sign of this many bytes.
    pub(super) fn signed(size: u8) -> Numbers {
        match size {
            1 => Numbers::I8,
            2 => Numbers::I16,
            4 => Numbers::I32,
            _ => Numbers::I64,
        }
    }

    /// Numbers without sign of this many bytes.
    pub(super) fn unsigned(size: u8) -> Numbers {
        match size {
            1 => Numbers::U8,
            2 => Numbers::U16,
            4 => Numbers::U32,
            _ => Numbers::U64,
        }
    }
}

/// The remainder behind the last whole number goes first, with its length.
pub(super) fn encode(raw: &[u8], numbers: Numbers, level: u8) -> Result<Vec<u8>> {
    match numbers {
        Numbers::U8 => encode_as::<u8>(raw, level),
        Numbers::U16 => encode_as::<u16>(raw, level),
        Numbers::U32 => encode_as::<u32>(raw, level),
        Numbers::U64 => encode_as::<u64>(raw, level),
        Numbers::I8 => encode_as::<i8>(raw, level),
        Numbers::I16 => encode_as::<i16>(raw, level),
        Numbers::I32 => encode_as::<i32>(raw, level),
        Numbers::I64 => encode_as::<i64>(raw, level),
        Numbers::F32 => encode_as::<f32>(raw, level),
        Numbers::F64 => encode_as::<f64>(raw, level),
    }
}

pub(super) fn decode(encoded: &[u8], raw: &mut [u8], numbers: Numbers) -> Result<()> {
    match numbers {
        Numbers::U8 => decode_as::<u8>(encoded, raw),
        Numbers::U16 => decode_as::<u16>(encoded, raw),
        Numbers::U32 => decode_as::<u32>(encoded, raw),
        Numbers::U64 => decode_as::<u64>(encoded, raw),
        Numbers::I8 => decode_as::<i8>(encoded, raw),
        Numbers::I16 => decode_as::<i16>(encoded, raw),
        Numbers::I32 => decode_as::<i32>(encoded, raw),
        Numbers::I64 => decode_as::<i64>(encoded, raw),
        Numbers::F32 => decode_as::<f32>(encoded, raw),
        Numbers::F64 => decode_as::<f64>(encoded, raw),
    }
}

/// A level with this bit leaves differences to the step before.
pub(super) const PREDICTED: u8 = 0x80;

fn encode_as<T: Number + bytemuck::Pod>(raw: &[u8], level: u8) -> Result<Vec<u8>> {
    let (whole, rest) = raw.split_at(raw.len() / size_of::<T>() * size_of::<T>());
    let numbers: Vec<T> = bytemuck::pod_collect_to_vec(whole);
    let mut config = ChunkConfig::default()
        .with_compression_level((level & !PREDICTED) as usize)
        .with_enable_8_bit(true);
    if level & PREDICTED != 0 {
        config = config.with_delta_spec(DeltaSpec::NoOp).with_mode_spec(ModeSpec::Classic);
    }
    let encoded = simple_compress(&numbers, &config)
        .map_err(|e| Error::usage(format!("numbers cannot be encoded: {e}")))?;
    let mut out = Vec::with_capacity(1 + rest.len() + encoded.len());
    out.push(rest.len() as u8);
    out.extend_from_slice(rest);
    out.extend_from_slice(&encoded);
    Ok(out)
}

fn decode_as<T: Number + bytemuck::Pod>(encoded: &[u8], raw: &mut [u8]) -> Result<()> {
    let bad = || Error::damaged("a frame of numbers does not decode");
    let (whole, rest) = raw.split_at_mut(raw.len() / size_of::<T>() * size_of::<T>());
    let (left, encoded) = encoded.split_first().ok_or_else(bad)?;
    let (tail, encoded) = encoded.split_at_checked(*left as usize).ok_or_else(bad)?;
    if tail.len() != rest.len() {
        return Err(bad());
    }
    rest.copy_from_slice(tail);
    let filled = |numbers: &mut [T]| {
        let progress = simple_decompress_into(encoded, numbers).map_err(|_| bad())?;
        match progress.finished && progress.n_processed == numbers.len() {
            true => Ok(()),
            false => Err(bad()),
        }
    };
    match bytemuck::try_cast_slice_mut::<u8, T>(whole) {
        Ok(numbers) => filled(numbers),
        Err(_) => {
            let mut numbers = vec![T::default(); whole.len() / size_of::<T>()];
            filled(&mut numbers)?;
            whole.copy_from_slice(bytemuck::cast_slice(&numbers));
            Ok(())
        }
    }
}
