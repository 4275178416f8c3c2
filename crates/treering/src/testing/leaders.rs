//! The leaders of all groups of a large job, played by one thread.
//!
//! Seats, names, packs, sections, branches and manifests are the real ones, made by the code that ranks run; only the
//! packs are tiny: one variable of 32 bytes for each rank. So it can be counted what a checkpoint of a million ranks
//! costs a store, without a million processes.

use crate::array::{Description, GroupId, Rank, Sequence, Step, Variable};
use crate::error::{Error, Result};
use crate::format::{Branch, Names, Origin};
use crate::lineage::scan;
use crate::merkle::Hasher;
use crate::pack::{Keeper, Strip};
use crate::run::Options;
use crate::save::{
    GroupMember, GroupOf, GroupWriter, LogWriter, Opened, PackJob, SeatWish, Sections,
    WriterSettings, assign, draft, open, seat,
};
use crate::store::Store;
use std::sync::Arc;

/// The memory of a played leader for its record of chunks.
const RECORD: u64 = 1 << 12;
/// The values of a rank.
const VALUES: usize = 4;

/// A run of many ranks.
pub struct PlayedRun {
    settings: WriterSettings,
    opened: Opened,
    hasher: Hasher,
    /// The ranks of each group.
    members: Vec<Vec<Rank>>,
    ranks: u32,
}

impl PlayedRun {
    /// Opens a run of this many ranks, this many on each node and in each group.
    pub fn open(
        store: Arc<dyn Store>,
        run: &str,
        ranks: u32,
        (per_node, per_group): (u32, u32),
    ) -> Result<PlayedRun> {
        let wish = |rank: u32| SeatWish {
            node: format!("node-{:06}", rank / per_node.max(1)).into_bytes(),
            aggregator: None,
        };
        let assigned = assign(&(0..ranks).map(wish).collect::<Vec<_>>(), per_group);
        let none = || Error::usage("a job has at least one rank");
        let first = seat(Rank(0), &assigned).ok_or_else(none)?;
        let mut members = vec![Vec::new(); first.groups as usize];
        for (rank, (group, _)) in (0..).zip(&assigned) {
            members[group.index()].push(Rank(rank));
        }
        let settings = Options::in_store(store, run).writer;
        let opened = open(&settings.tiers, run, None)?;
        let hasher = Hasher::new(opened.seed);
        Ok(PlayedRun { settings, opened, hasher, members, ranks })
    }

    /// The number of groups.
    pub fn groups(&self) -> u32 {
        self.members.len() as u32
    }

    /// The number of the next checkpoint.
    pub fn next(&self) -> Sequence {
        self.opened.newest.next()
    }

    /// The leader of a group, with its own view of the store.
    pub fn leader(&self, group: u32, store: &Arc<dyn Store>) -> PlayedLeader {
        let keeper = Keeper::new(RECORD, self.settings.encoding);
        PlayedLeader {
            log: self.opened.log(store, true),
            sections: Sections::new(store.clone(), &self.settings.run, Arc::default()),
            writer: GroupWriter::new(GroupId(group), keeper),
            own: GroupOf { group: GroupId(group), groups: self.groups() },
            store: store.clone(),
        }
    }
}

/// The leader of a group.
pub struct PlayedLeader {
    store: Arc<dyn Store>,
    log: LogWriter,
    sections: Sections,
    writer: GroupWriter,
    own: GroupOf,
}

impl PlayedLeader {
    /// Writes the pack of the group and publishes its section, as a saver does behind its program. The first
    /// checkpoint is whole, and later ones build on it. Returns the bytes of the section.
    pub fn publish(&mut self, run: &PlayedRun, sequence: Sequence) -> Result<usize> {
        self.log.catch_up()?;
        self.log.check()?;
        let (writer, hasher) = (run.opened.opening.writer, &run.hasher);
        let ranks = &run.members[self.own.group.index()];
        let members: Vec<GroupMember> = ranks
            .iter()
            .map(|rank| GroupMember::own(*rank, &state_of(*rank, sequence).1, None))
            .collect();
        let job = PackJob {
            writer,
            attempt: sequence.0,
            members: &members,
            hasher,
            before: None,
            turns: false,
            pool: None,
        };
        let name = self.writer.name(writer, sequence.0);
        let mut put = self.store.put(&Names::new(&run.settings.run).pack(name))?;
        let chunk = run.settings.chunk.bytes();
        let sealed = self.writer.write(&run.settings, job, put.as_mut(), |take| {
            for (variable, rank) in ranks.iter().enumerate() {
                let (values, _) = state_of(*rank, sequence);
                let data = Variable::new("state", &values).bytes;
                let (mut prints, mut slot) = (vec![0; 1], vec![0; data.len()]);
                let changed = scan(&data.whole(), chunk, 0, &mut prints, hasher, &mut slot);
                let whole = None;
                take(
                    &[Strip { variable, first: 0, changed, hashed: true, offset: 0, whole }],
                    &slot,
                )?;
            }
            Ok(())
        })?;
        put.finish()?;
        let mut manifest = draft(
            &run.settings.run,
            std::slice::from_ref(&self.writer),
            std::slice::from_ref(&sealed),
            run.ranks,
        );
        manifest.sequence = sequence;
        (manifest.writer, manifest.step, manifest.time) = (writer, Step(sequence.0), sequence.0);
        manifest.epoch = Origin { run: None, sequence: run.next() };
        manifest.seed = hasher.seed();
        self.sections.publish(&mut self.log, &manifest, self.own)?;
        self.writer.keep(self.writer.with(&sealed));
        let GroupOf { group, groups: of } = self.own;
        Ok(Branch { of, level: 0, index: group.0, part: manifest }.write().len())
    }
}

/// The state of a rank: its values, and their description.
fn state_of(rank: Rank, sequence: Sequence) -> ([u64; VALUES], Description) {
    let values = [rank.0.into(), sequence.0, 1, 2];
    let description = Variable::new("state", &values).description().clone();
    (values, description)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::library::Library;
    use crate::store::MemoryStore;

    #[test]
    fn played_leaders_make_real_checkpoints() {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
        let run = PlayedRun::open(store.clone(), "r", 130, (4, 2)).unwrap();
        // Nodes of four ranks; the last one has two.
        assert_eq!(run.groups(), 65);
        let mut leaders: Vec<PlayedLeader> =
            (0..run.groups()).map(|group| run.leader(group, &store)).collect();
        for sequence in [run.next(), run.next().next()] {
            for leader in leaders.iter_mut().rev() {
                leader.publish(&run, sequence).unwrap();
            }
        }
        let library = Library::of(store.clone());
        let (checkpoints, trouble) = library.checkpoints("r").unwrap();
        assert!(trouble.is_empty());
        assert_eq!(checkpoints.len(), 2);
        let newest = library.checkpoint("r", None).unwrap();
        assert_eq!(newest.read::<u64>("state").unwrap(), [0, newest.step(), 1, 2]);
        assert_eq!(newest.variables().count(), 130);
        assert!(library.verify(None, true, &|_, _| {}).unwrap().is_sound());
    }
}
