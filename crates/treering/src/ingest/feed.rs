//! Variables of files on their way to a pack: read in their turns, compared with the step before, and
//! handed on in batches of what changed.

use super::inputs::FileVariable;
use crate::array::VariableKey;
use crate::codec::Nature;
use crate::error::Result;
use crate::lineage::scan;
use crate::memory::zeroed;
use crate::merkle::{BOUGH, Hasher, Print};
use crate::pack::Strip;
use std::collections::HashMap;
use std::ops::Range;
use std::sync::mpsc::{Receiver, SyncSender};

/// Number of bytes that are read at a time, and that a strip has.
const BATCH: Range<usize> = 4 << 20..32 << 20;
const STRIP: usize = 1 << 20;

/// The prints of the chunks of every variable.
pub(super) type Prints = HashMap<VariableKey, Vec<Print>>;

/// Changes in some strips, and the number of bytes that were read for them.
pub(super) struct Batch {
    pub(super) strips: Vec<Strip>,
    pub(super) bytes: Vec<u8>,
    /// Number of bytes that are filled.
    pub(super) filled: usize,
    pub(super) read: u64,
}

impl Batch {
    /// With memory of an earlier one, if there is some.
    fn new(bytes: Option<Vec<u8>>, len: usize) -> Result<Batch> {
        let bytes = bytes.map_or_else(|| zeroed(len as u64), Ok)?;
        Ok(Batch { strips: Vec::new(), bytes, filled: 0, read: 0 })
    }
}

/// Reads all variables in their turns, in batches of what changed; ends early if nobody takes them. The
/// prints become those of this step, and those of variables that are gone are forgotten.
pub(super) fn read(
    inputs: &[&FileVariable],
    turns: &[(usize, Range<u64>)],
    chunk: usize,
    hasher: &Hasher,
    prints: &mut Prints,
    sender: &SyncSender<Result<Batch>>,
    spare: &Receiver<Vec<u8>>,
) -> Result<()> {
    let mut before = std::mem::take(prints);
    let strip = STRIP.next_multiple_of(chunk * BOUGH);
    let all: u64 = inputs.iter().map(|input| input.len()).sum();
    // Every core has some frames to encode.
    let full = (rayon::current_num_threads() << 21).clamp(BATCH.start, BATCH.end);
    let len = (full + strip).min(all as usize);
    let mut batch = Batch::new(None, len)?;
    let mut data = vec![0; strip];
    // The prints of variables whose turns have begun, and how many are known.
    let mut begun: HashMap<usize, (Vec<Print>, usize)> = HashMap::new();
    let in_blocks = turns.len() > inputs.len();
    for (variable, range) in turns {
        let input = inputs[*variable];
        let key = || VariableKey::new(input.rank, &input.description.name);
        let (own, known) = begun.entry(*variable).or_insert_with(|| {
            let mut own = before.remove(&key()).unwrap_or_default();
            let known = own.len();
            own.resize(input.len().div_ceil(chunk as u64) as usize, Print::default());
            (own, known)
        });
        let shaped = !in_blocks && Nature::of(&input.description).has_rows();
        for at in range.clone().step_by(strip) {
            let data = &mut data[..(range.end - at).min(strip as u64) as usize];
            input.bytes.read_at(at, data).map_err(|e| e.at(&input.description.name))?;
            let (offset, first) = (batch.filled, at as usize / chunk);
            let of_strip = &mut own[first..first + data.len().div_ceil(chunk)];
            let slot = &mut batch.bytes[offset..offset + data.len()];
            let changed = scan(data, chunk, known.saturating_sub(first), of_strip, hasher, slot);
            // The rest of a field may have to stay in its rows and planes.
            let keep = shaped && changed.bytes < data.len() && 2 * changed.bytes >= data.len();
            if keep {
                slot.copy_from_slice(data);
            }
            let whole = keep.then_some(data.len());
            batch.filled += whole.unwrap_or(changed.bytes);
            batch.read += data.len() as u64;
            if changed.bytes > 0 {
                let (variable, first) = (*variable, first as u64);
                let strip = Strip { variable, first, changed, hashed: true, offset, whole };
                batch.strips.push(strip);
            }
            if batch.filled >= full {
                let next = Batch::new(spare.try_recv().ok(), len)?;
                if sender.send(Ok(std::mem::replace(&mut batch, next))).is_err() {
                    return Ok(());
                }
            }
        }
        if range.end == input.len()
            && let Some((own, _)) = begun.remove(variable)
        {
            prints.insert(key(), own);
        }
    }
    let _ = sender.send(Ok(batch));
    Ok(())
}
