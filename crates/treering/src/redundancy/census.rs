//! Everything that is left for rebuilding, as the nodes of a restart have found it together. Pure.

use super::nodes::{garbled, pack_numbers, pack_parts, unpack_numbers, unpack_parts};
use crate::error::Result;
use crate::format::{ParityHead, ParityName};
use std::collections::BTreeMap;

/// The nodes that hold a thing, by their numbers.
pub(super) type HolderList = Vec<u32>;

/// A set whose parity files, or some of them, are there.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct SetRecord {
    /// The head of one of the files.
    pub(super) head: ParityHead,
    /// The nodes that hold each slot.
    pub(super) slots: Vec<HolderList>,
    /// The known objects of each member.
    pub(super) objects: Vec<Vec<ObjectRecord>>,
}

/// An object of a member.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct ObjectRecord {
    pub(super) wanted: bool,
    pub(super) holders: HolderList,
    /// Nodes where something else has its name.
    pub(super) occupied: HolderList,
}

/// Something that a node holds and that is part of a rebuild.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum HeldPart {
    Slot { set: usize, slot: usize },
    Object { set: usize, member: usize, object: usize },
}

/// States of an object on a node.
pub(super) const ABSENT: u8 = 0;
pub(super) const PRESENT: u8 = 1;
pub(super) const OTHER: u8 = 2;

/// All sets of which something is wanted.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Census {
    pub(super) sets: Vec<SetRecord>,
}

impl Census {
    /// Joins the heads that nodes have found.
    pub(super) fn new(found: &[Vec<ParityHead>], wanted: &dyn Fn(&str) -> bool) -> Census {
        let mut by_set: BTreeMap<ParityName, Vec<SetRecord>> = BTreeMap::new();
        for (node, heads) in (0u32..).zip(found) {
            for head in heads {
                let records = by_set.entry(ParityName { slot: 0, ..head.name }).or_default();
                let same = |record: &&mut SetRecord| {
                    (&record.head.members, record.head.stripe) == (&head.members, head.stripe)
                };
                let slot = head.name.slot as usize;
                match records.iter_mut().find(same) {
                    Some(record) => record.slots[slot].push(node),
                    None => {
                        let mut record = SetRecord::new(head.clone(), wanted);
                        record.slots[slot].push(node);
                        records.push(record);
                    }
                }
            }
        }
        let mut sets: Vec<SetRecord> = by_set.into_values().flatten().collect();
        sets.retain(|record| record.objects.iter().flatten().any(|object| object.wanted));
        Census { sets }
    }

    /// The keys and sizes of all objects, in the order in which nodes say what they have.
    pub(super) fn keys(&self) -> impl Iterator<Item = (&str, u64)> {
        let members = self.sets.iter().flat_map(|record| &record.head.members);
        members.flat_map(|member| &member.objects).map(|object| (&object.key[..], object.size))
    }

    /// Takes note of what a node has of all objects.
    pub(super) fn add(&mut self, node: u32, states: &[u8]) {
        let objects = self.sets.iter_mut().flat_map(|record| record.objects.iter_mut().flatten());
        for (object, state) in objects.zip(states) {
            match *state {
                PRESENT => object.holders.push(node),
                OTHER => object.occupied.push(node),
                _ => {}
            }
        }
    }

    /// A part that a node holds is damaged.
    pub(super) fn remove(&mut self, node: u32, part: HeldPart) {
        match part {
            HeldPart::Slot { set, slot } => {
                if let Some(holders) = self.sets.get_mut(set).and_then(|s| s.slots.get_mut(slot)) {
                    holders.retain(|holder| *holder != node);
                }
            }
            HeldPart::Object { set, member, object } => {
                let members = self.sets.get_mut(set).and_then(|s| s.objects.get_mut(member));
                if let Some(object) = members.and_then(|objects| objects.get_mut(object)) {
                    object.holders.retain(|holder| *holder != node);
                    object.occupied.push(node);
                }
            }
        }
    }

    pub(super) fn write(&self) -> Vec<u8> {
        let numbers = |list: &HolderList| pack_numbers(list.iter().copied());
        let record = |record: &SetRecord| {
            let mut parts = vec![record.head.write()];
            parts.extend(record.slots.iter().map(numbers));
            for object in record.objects.iter().flatten() {
                parts.push(vec![u8::from(object.wanted)]);
                parts.extend([&object.holders, &object.occupied].map(numbers));
            }
            pack_parts(&parts)
        };
        pack_parts(&self.sets.iter().map(record).collect::<Vec<_>>())
    }

    pub(super) fn parse(bytes: &[u8]) -> Result<Census> {
        let sets = unpack_parts(bytes)?.into_iter().map(SetRecord::parse).collect::<Result<_>>()?;
        Ok(Census { sets })
    }
}

impl SetRecord {
    fn new(head: ParityHead, wanted: &dyn Fn(&str) -> bool) -> SetRecord {
        let objects = head.members.iter().map(|member| {
            let record = |key: &str| ObjectRecord { wanted: wanted(key), ..Default::default() };
            member.objects.iter().map(|object| record(&object.key)).collect()
        });
        SetRecord {
            objects: objects.collect(),
            slots: vec![Vec::new(); head.striping().slots()],
            head,
        }
    }

    fn parse(bytes: &[u8]) -> Result<SetRecord> {
        let mut parts = unpack_parts(bytes)?.into_iter();
        let mut part = || parts.next().ok_or_else(garbled);
        let mut record = SetRecord::new(ParityHead::parse(part()?)?, &|_| false);
        for slot in &mut record.slots {
            *slot = unpack_numbers(part()?);
        }
        for object in record.objects.iter_mut().flatten() {
            object.wanted = part()? == [1];
            object.holders = unpack_numbers(part()?);
            object.occupied = unpack_numbers(part()?);
        }
        Ok(record)
    }
}

impl HeldPart {
    pub(super) fn write(self) -> [u32; 4] {
        match self {
            HeldPart::Slot { set, slot } => [0, set as u32, slot as u32, 0],
            HeldPart::Object { set, member, object } => {
                [1, set as u32, member as u32, object as u32]
            }
        }
    }

    pub(super) fn parse(numbers: &[u32]) -> Option<HeldPart> {
        match *numbers {
            [0, set, slot, _] => Some(HeldPart::Slot { set: set as usize, slot: slot as usize }),
            [1, set, member, object] => Some(HeldPart::Object {
                set: set as usize,
                member: member as usize,
                object: object as usize,
            }),
            _ => None,
        }
    }
}
