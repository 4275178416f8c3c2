//! The safetensors format: the length of a head, the head in JSON, the values.

use super::Extent;
use super::found::{FoundArray, Placement};
use super::inventory::Inventory;
use crate::array::{DType, MAX_AXES};
use crate::error::{Error, Result};
use crate::store::Blob;
use serde_json::Value;

/// No head is longer.
const MOST_HEAD: u64 = 1 << 25;

/// The tensors of a file, in its order; none if this is no such file.
pub(super) fn find(whole: &Extent, start: &[u8; 9]) -> Result<Option<Vec<FoundArray>>> {
    let len = start.first_chunk::<8>().map_or(0, |len| u64::from_le_bytes(*len));
    if !(2..=MOST_HEAD).contains(&len) || start[8] != b'{' || len + 8 > whole.size() {
        return Ok(None);
    }
    let mut head = vec![0; len as usize];
    whole.read_at(8, &mut head)?;
    let Ok(Value::Object(entries)) = serde_json::from_slice(&head) else { return Ok(None) };
    let mut all = Vec::new();
    for (name, entry) in entries.iter().filter(|(name, _)| *name != "__metadata__") {
        let Some((dtype, shape, from, to)) = tensor(entry) else { return Ok(None) };
        let at = from.checked_add(8 + len);
        let at = at.ok_or_else(|| Error::damaged("a tensor is out of the file"))?;
        let Some(dtype) = dtype else { continue };
        let found = FoundArray::new(name, dtype, shape, false, Placement::Plain { at })?;
        if to.checked_sub(from) != Some(found.bytes()) {
            return Err(
                Error::damaged("a tensor has another size than its shape asks for").at(name)
            );
        }
        whole.part(at, found.bytes())?;
        all.push((at, found));
    }
    all.sort_by_key(|(at, _)| *at);
    Ok(Some(all.into_iter().map(|(_, found)| found).collect()))
}

/// Where a file ends, as its head states; none if this is no such file, or if its head is cut.
pub(super) fn end(whole: &Extent, start: &[u8; 9]) -> Result<Option<u64>> {
    let len = start.first_chunk::<8>().map_or(0, |len| u64::from_le_bytes(*len));
    if !(2..=MOST_HEAD).contains(&len) || start[8] != b'{' || len + 8 > whole.size() {
        return Ok(None);
    }
    let mut head = vec![0; len as usize];
    whole.read_at(8, &mut head)?;
    let Ok(Value::Object(entries)) = serde_json::from_slice(&head) else { return Ok(None) };
    let tensors = entries.iter().filter(|(name, _)| *name != "__metadata__");
    let ends: Option<Vec<u64>> = tensors.map(|(_, entry)| Some(tensor(entry)?.3)).collect();
    let last = ends.and_then(|ends| ends.into_iter().max());
    Ok(last.and_then(|last| last.checked_add(8 + len)))
}

/// Adds the metadata, and tensors whose types have no whole bytes.
pub(super) fn inventory(whole: &Extent, start: &[u8; 9], all: &mut Inventory) -> Result<()> {
    let len = start.first_chunk::<8>().map_or(0, |len| u64::from_le_bytes(*len));
    let mut head = vec![0; len.min(MOST_HEAD).min(whole.size().saturating_sub(8)) as usize];
    whole.read_at(8, &mut head)?;
    let Ok(Value::Object(entries)) = serde_json::from_slice(&head) else { return Ok(()) };
    for (name, entry) in &entries {
        match (name.as_str(), entry, tensor(entry)) {
            ("__metadata__", Value::Object(texts), _) => {
                for (key, text) in texts {
                    let text = text.to_string();
                    all.add(format!("metadata {key}"), text.as_bytes(), text.clone());
                }
            }
            (_, _, Some((None, shape, from, to))) => {
                let at = from.checked_add(8 + len);
                let size = to.checked_sub(from).filter(|size| *size <= whole.size());
                let (Some(at), Some(size)) = (at, size) else { continue };
                let mut bytes = crate::memory::zeroed(size)?;
                whole.part(at, size)?.read_at(0, &mut bytes)?;
                bytes.extend(format!("{shape:?} {}", entry["dtype"]).bytes());
                all.add(format!("tensor {name}"), &bytes, String::new());
            }
            _ => {}
        }
    }
    Ok(())
}

/// Type (none if it has no whole bytes), shape, and where it begins and ends.
fn tensor(entry: &Value) -> Option<(Option<DType>, Vec<u64>, u64, u64)> {
    let dtype = match entry.get("dtype")?.as_str()? {
        "BOOL" => Some(DType::Bool),
        "U8" | "F8_E4M3" | "F8_E5M2" | "F8_E8M0" => Some(DType::U8),
        "I8" => Some(DType::I8),
        "U16" => Some(DType::U16),
        "I16" => Some(DType::I16),
        "U32" => Some(DType::U32),
        "I32" => Some(DType::I32),
        "U64" => Some(DType::U64),
        "I64" => Some(DType::I64),
        "F16" => Some(DType::F16),
        "BF16" => Some(DType::BF16),
        "F32" => Some(DType::F32),
        "F64" => Some(DType::F64),
        "C64" => Some(DType::C64),
        _ => None,
    };
    let numbers = |value: &Value| -> Option<Vec<u64>> {
        value.as_array()?.iter().map(Value::as_u64).collect()
    };
    let shape = numbers(entry.get("shape")?).filter(|shape| shape.len() <= MAX_AXES)?;
    match numbers(entry.get("data_offsets")?)?[..] {
        [from, to] => Some((dtype, shape, from, to)),
        _ => None,
    }
}
