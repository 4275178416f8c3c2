//! The metadata of Zarr v3: what `zarr.json` says of groups and arrays, and the names of chunks.
//!
//! Chunks are slabs, runs of the array as it was saved. An array in Fortran order keeps its order, by the codec
//! `transpose`. Chunks of one array lie in one folder: with slabs, a folder for each index would hold one file.

use super::plan::OutputArray;
use super::tiles::Tiles;
use crate::array::{DType, Order};
use serde_json::{Value, json};

/// The level of Zstandard.
pub(super) const LEVEL: i32 = 3;

/// Content of `zarr.json` for a group.
pub(super) fn group(attributes: &Value) -> Value {
    json!({ "zarr_format": 3, "node_type": "group", "attributes": attributes })
}

/// Content of `zarr.json` for an array that is cut into chunks.
pub(super) fn array(array: &OutputArray, chunks: &Tiles) -> Value {
    let (data_type, fill) = data_type(array.dtype);
    let mut codecs = Vec::new();
    let axes = array.shape().0.len();
    if array.values.order == Order::Fortran && axes > 1 {
        let order: Vec<usize> = (0..axes).rev().collect();
        codecs.push(json!({ "name": "transpose", "configuration": { "order": order } }));
    }
    codecs.push(match array.dtype.size() {
        1 => json!({ "name": "bytes" }),
        _ => json!({ "name": "bytes", "configuration": { "endian": "little" } }),
    });
    codecs.push(json!({ "name": "zstd", "configuration": { "level": LEVEL, "checksum": false } }));
    let mut attributes = json!(array.attributes);
    if matches!(array.dtype, DType::BF16 | DType::Bytes) {
        attributes["treering_type"] = json!(array.dtype.name());
    }
    json!({
        "zarr_format": 3,
        "node_type": "array",
        "shape": array.shape().0,
        "data_type": data_type,
        "chunk_grid": { "name": "regular", "configuration": { "chunk_shape": chunks.tile } },
        "chunk_key_encoding": { "name": "default", "configuration": { "separator": "." } },
        "fill_value": fill,
        "codecs": codecs,
        "attributes": attributes,
    })
}

/// The name of the chunk at an index.
pub(super) fn chunk_name(index: &[u64]) -> String {
    index.iter().fold("c".to_string(), |name, at| format!("{name}.{at}"))
}

/// The name of a type and a value of it. Zarr has no name for bf16 and bytes: these are integers of their size.
fn data_type(dtype: DType) -> (&'static str, Value) {
    match dtype {
        DType::Bool => ("bool", json!(false)),
        DType::U8 | DType::Bytes => ("uint8", json!(0)),
        DType::I8 => ("int8", json!(0)),
        DType::U16 | DType::BF16 => ("uint16", json!(0)),
        DType::I16 => ("int16", json!(0)),
        DType::U32 => ("uint32", json!(0)),
        DType::I32 => ("int32", json!(0)),
        DType::U64 => ("uint64", json!(0)),
        DType::I64 => ("int64", json!(0)),
        DType::F16 => ("float16", json!(0.0)),
        DType::F32 => ("float32", json!(0.0)),
        DType::F64 => ("float64", json!(0.0)),
        DType::C64 => ("complex64", json!([0.0, 0.0])),
        DType::C128 => ("complex128", json!([0.0, 0.0])),
    }
}
