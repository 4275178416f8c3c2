//! Writing the variables of a group as a pack, to a store or only to learn its size.

use super::feed::{Batch, Prints, read};
use super::inputs::FileVariable;
use super::merge::{self, Merge};
use crate::array::GroupId;
use crate::error::{Error, ErrorKind, Result};
use crate::format::WriterId;
use crate::merkle::{BOUGH, Hasher};
use crate::pack::{Before, Keeper, Learnt, firsts};
use crate::save::{GroupMember, GroupWriter, PackJob, SealedPack, WriterSettings};
use crate::store::Put;
use std::sync::mpsc::{Receiver, sync_channel};

/// Number of batches that wait to be packed.
const AHEAD: usize = 1;
/// Memory of the record of stored chunks for a pack that is only measured.
const MEASURED_RECORD: u64 = 8 << 20;

/// Settings by which a pack is written.
#[derive(Clone, Copy)]
pub(super) struct Packing<'a> {
    pub(super) settings: &'a WriterSettings,
    pub(super) hasher: &'a Hasher,
    pub(super) writer: WriterId,
    /// The number of the checkpoint.
    pub(super) attempt: u64,
    pub(super) merge: Merge,
    pub(super) block: Option<u64>,
    /// The state before, if frames may be differences to it.
    pub(super) before: Option<&'a dyn Before>,
}

impl Packing<'_> {
    /// Writes a pack. The prints become those of this step; `told` hears of bytes that were read.
    pub(super) fn write(
        &self,
        group: &mut GroupWriter,
        inputs: &[&FileVariable],
        (prints, learnt): (&mut Prints, Vec<Learnt>),
        put: &mut dyn Put,
        told: &mut (dyn FnMut(u64) + Send),
    ) -> Result<SealedPack> {
        let members: Vec<GroupMember> =
            inputs.iter().map(|input| input.member(self.merge, self.block)).collect();
        let packed: Vec<_> = members.iter().map(|member| member.packed.clone()).collect();
        let chunk = self.settings.chunk.bytes();
        let block = self.block.map(|block| block.max(1).next_multiple_of((chunk * BOUGH) as u64));
        let firsts = firsts(&packed);
        let turns = merge::turns(inputs, &firsts, block);
        for learnt in learnt {
            learnt.tell(&mut group.keeper.chooser, &packed, &firsts);
        }
        let job = PackJob {
            writer: self.writer,
            attempt: self.attempt,
            members: &members,
            hasher: self.hasher,
            before: self.before,
            turns: block.is_some(),
            pool: None,
        };
        let (sender, batches) = sync_channel(AHEAD);
        let (give_back, spare) = sync_channel(AHEAD + 2);
        let hasher = self.hasher;
        std::thread::scope(|scope| {
            scope.spawn(move || {
                if let Err(error) = read(inputs, &turns, chunk, hasher, prints, &sender, &spare) {
                    let _ = sender.send(Err(error));
                }
            });
            let batches: Receiver<Result<Batch>> = batches;
            group.write(self.settings, job, put, |take| {
                for batch in batches {
                    let batch = batch?;
                    take(&batch.strips, &batch.bytes[..batch.filled])?;
                    told(batch.read);
                    let _ = give_back.try_send(batch.bytes);
                }
                Ok(())
            })
        })
    }

    /// The size of a pack of these variables that begins an epoch.
    pub(super) fn measure(&self, inputs: &[FileVariable], merge: Merge) -> Result<u64> {
        let mut inputs: Vec<&FileVariable> = inputs.iter().collect();
        merge::sort(&mut inputs, merge);
        let keeper = Keeper::new(MEASURED_RECORD, self.settings.encoding);
        let mut group = GroupWriter::new(GroupId(0), keeper);
        let packing = Packing { merge, before: None, ..*self };
        let state = (&mut Prints::new(), Vec::new());
        let sealed = packing.write(&mut group, &inputs, state, &mut Measured, &mut |_| {})?;
        Ok(sealed.seal.size)
    }
}

/// A pack that is only measured.
struct Measured;

impl Put for Measured {
    fn append(&mut self, _: &[u8]) -> Result<()> {
        Ok(())
    }

    fn read_back(&self, _: u64, _: &mut [u8]) -> Result<()> {
        Err(Error::new(ErrorKind::NotFound, "a pack that is only measured is not kept"))
    }

    fn finish(self: Box<Self>) -> Result<()> {
        Ok(())
    }
}
