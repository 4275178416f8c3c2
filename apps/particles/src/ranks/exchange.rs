//! Particles on their way between ranks, as bytes: those that have left a slab, and the places of
//! those that are felt in another one.

use super::simulation::OwnParticles;
use super::slabs::Slabs;
use crate::Particles;
use treering::{Comm, Error, ErrorKind, Rank, Result};

/// The number of a particle and its seven values.
const PARTICLE: usize = 32;
/// Three coordinates.
const PLACE: usize = 12;

/// Hands each particle to the rank whose slab it is in, and puts them in the order of their numbers.
pub(super) fn hand_over(comm: &dyn Comm, slabs: Slabs, own: &mut OwnParticles) -> Result<()> {
    let mut mail = Mail::new(comm.size());
    let mut staying = OwnParticles::default();
    for index in 0..own.len() {
        let home = slabs.home(own.particles.x[index]);
        let (id, values) = own.particle(index);
        match home == comm.rank() {
            true => staying.push(id, values),
            false => mail.add(home, &[id], &values),
        }
    }
    for (from, bytes) in mail.exchange(comm)? {
        for particle in whole(&bytes, PARTICLE, from)? {
            let mut words = words(particle);
            let id = words.next().unwrap_or_default();
            let mut values = [0.0; 7];
            values.iter_mut().zip(words).for_each(|(value, bits)| *value = f32::from_bits(bits));
            staying.push(id, values);
        }
    }
    staying.sort();
    *own = staying;
    Ok(())
}

/// The places of this rank's particles, followed by those of all others within reach of its slab.
pub(super) fn nearby(
    comm: &dyn Comm,
    slabs: Slabs,
    reach: f64,
    own: &Particles,
) -> Result<Particles> {
    let mut mail = Mail::new(comm.size());
    for index in 0..own.len() {
        let place = own.place(index);
        slabs.near(place[0], reach).for_each(|rank| mail.add(rank, &[], &place));
    }
    let (x, y, z) = (own.x.clone(), own.y.clone(), own.z.clone());
    let mut near = Particles { x, y, z, ..Particles::default() };
    for (from, bytes) in mail.exchange(comm)? {
        for place in whole(&bytes, PLACE, from)? {
            let mut coordinates = words(place).map(f32::from_bits);
            for axis in [&mut near.x, &mut near.y, &mut near.z] {
                axis.extend(coordinates.next());
            }
        }
    }
    Ok(near)
}

/// Bytes for each rank.
struct Mail(Vec<Vec<u8>>);

impl Mail {
    fn new(ranks: u32) -> Self {
        Mail(vec![Vec::new(); ranks as usize])
    }

    fn add(&mut self, to: Rank, ids: &[u32], values: &[f32]) {
        let words = ids.iter().copied().chain(values.iter().map(|value| value.to_bits()));
        self.0[to.0 as usize].extend(words.flat_map(u32::to_le_bytes));
    }

    fn exchange(&self, comm: &dyn Comm) -> Result<Vec<treering::Message>> {
        let full = self.0.iter().enumerate().filter(|(_, bytes)| !bytes.is_empty());
        let messages: Vec<(Rank, &[u8])> =
            full.map(|(rank, bytes)| (Rank(rank as u32), bytes.as_slice())).collect();
        comm.exchange(&messages)
    }
}

/// The records of a message, or an error that names its sender.
fn whole(bytes: &[u8], record: usize, from: Rank) -> Result<std::slice::ChunksExact<'_, u8>> {
    match bytes.len().is_multiple_of(record) {
        true => Ok(bytes.chunks_exact(record)),
        false => Err(Error::new(
            ErrorKind::Damaged,
            format!(
                "the message of rank {from} has {} bytes, no multiple of {record}",
                bytes.len()
            ),
        )),
    }
}

fn words(bytes: &[u8]) -> impl Iterator<Item = u32> {
    let word = |bytes: &[u8]| u32::from_le_bytes(bytes.try_into().unwrap_or_default());
    bytes.chunks_exact(4).map(word)
}
