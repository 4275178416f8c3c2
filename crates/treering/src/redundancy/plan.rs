//! The plan of a rebuild: the objects that can be rebuilt, the nodes that do it, and the lost objects. Pure.
//!
//! The string of a member can be made again if somebody holds every parity file with a lane of it, and every object of
//! the other members in these. Two members of a set that both lack something are lost, therefore. Jobs whose nodes do not
//! overlap are carried out at the same time.

use super::census::{Census, HeldPart, SetRecord};
use crate::comm::wire;
use crate::format::ParityMember;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// The rebuild of objects of one member of a set.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct RebuildJob {
    pub(super) set: usize,
    pub(super) member: usize,
    /// Its objects that are put into the target's store.
    pub(super) objects: Vec<usize>,
    /// The node that gets them.
    pub(super) target: u32,
    /// The giver of each parity file or object.
    pub(super) sources: Vec<(HeldPart, u32)>,
}

/// An object that cannot be rebuilt.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct LostObject {
    /// Its key.
    pub(crate) key: String,
    /// The node that had it.
    pub(crate) node: String,
    /// The reason, as a sentence.
    pub(crate) why: String,
}

wire! { struct LostObject { key, node, why } }

/// Plan of a rebuild: the work, and the losses.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct RebuildPlan {
    /// Jobs that are carried out at the same time, one after another.
    pub(super) waves: Vec<Vec<RebuildJob>>,
    pub(super) lost: Vec<LostObject>,
}

impl RebuildJob {
    /// All nodes that take part.
    pub(super) fn nodes(&self) -> BTreeSet<u32> {
        self.sources.iter().map(|(_, node)| *node).chain([self.target]).collect()
    }

    /// The parts that a node gives.
    pub(super) fn given_by(&self, node: u32) -> impl Iterator<Item = HeldPart> + '_ {
        self.sources.iter().filter(move |(_, of)| *of == node).map(|(part, _)| *part)
    }
}

/// Plans the rebuild of all objects that are wanted and that nobody holds, on this many nodes.
pub(super) fn plan(census: &Census, nodes: u32) -> RebuildPlan {
    let held: BTreeSet<&str> = objects(census)
        .filter(|(at, _)| !at.record().holders.is_empty())
        .map(|(_, key)| key)
        .collect();
    // The chosen job of each object, or the reasons why there is none.
    let mut chosen: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
    let mut lost: BTreeMap<&str, LostObject> = BTreeMap::new();
    let mut jobs: BTreeMap<(usize, usize), RebuildJob> = BTreeMap::new();
    let mut targets = Targets::new(census, nodes);
    for (at, key) in objects(census) {
        if !at.record().wanted || held.contains(key) || chosen.contains_key(key) {
            continue;
        }
        let of = (at.set, at.member);
        let job = match jobs.get(&of) {
            Some(job) => Ok(job.clone()),
            None => sources(census, at.set, at.member).map(|sources| RebuildJob {
                set: at.set,
                member: at.member,
                objects: Vec::new(),
                target: 0,
                sources,
            }),
        };
        let mut job = match job {
            Ok(job) => job,
            Err(why) => {
                let node = at.member().node.clone();
                let object = LostObject { key: key.to_string(), node, why };
                lost.entry(key).or_insert(object);
                continue;
            }
        };
        job.objects.push(at.object);
        chosen.insert(key, of);
        jobs.insert(of, job);
    }
    lost.retain(|key, _| !chosen.contains_key(key));
    let mut lost: Vec<LostObject> = lost.into_values().collect();
    let mut placed = Vec::new();
    for job in jobs.into_values() {
        placed.extend(targets.choose(job, &mut lost));
    }
    lost.sort();
    RebuildPlan { waves: waves(placed), lost }
}

/// An object of a census.
struct ObjectPlace<'c> {
    census: &'c Census,
    set: usize,
    member: usize,
    object: usize,
}

impl<'c> ObjectPlace<'c> {
    fn record(&self) -> &'c super::census::ObjectRecord {
        &self.census.sets[self.set].objects[self.member][self.object]
    }

    fn member(&self) -> &'c ParityMember {
        &self.census.sets[self.set].head.members[self.member]
    }
}

fn objects(census: &Census) -> impl Iterator<Item = (ObjectPlace<'_>, &str)> {
    census.sets.iter().enumerate().flat_map(move |(set, record)| {
        record.head.members.iter().enumerate().flat_map(move |(member, of_member)| {
            of_member
                .objects
                .iter()
                .enumerate()
                .map(move |(object, of)| (ObjectPlace { census, set, member, object }, &of.key[..]))
        })
    })
}

/// The givers of the string of a member, or the reason why it cannot be made.
fn sources(
    census: &Census,
    set: usize,
    member: usize,
) -> std::result::Result<Vec<(HeldPart, u32)>, String> {
    let SetRecord { head, slots, objects } = &census.sets[set];
    let striping = head.striping();
    let mut sources = Vec::new();
    let mut needed: BTreeSet<usize> = BTreeSet::new();
    for slot in (0..striping.lanes()).map(|lane| striping.slot(member, lane)) {
        let Some(node) = slots[slot].first() else {
            return Err(match striping.members {
                1 => "no copy of it is left".to_string(),
                _ => format!("the parity kept by node {} is lost, too", head.members[slot].node),
            });
        };
        sources.push((HeldPart::Slot { set, slot }, *node));
        let others = (0..striping.members).filter(|other| *other != member);
        needed.extend(others.filter(|other| striping.lane(*other, slot).is_some()));
    }
    for other in needed {
        for (object, record) in objects[other].iter().enumerate() {
            // An object without bytes gives nothing.
            if head.members[other].objects[object].size == 0 {
                continue;
            }
            let Some(node) = record.holders.first() else {
                let of = &head.members[other];
                let key = &of.objects[object].key;
                return Err(format!(
                    "{key} of node {}, which its parity needs, is lost, too",
                    of.node
                ));
            };
            sources.push((HeldPart::Object { set, member: other, object }, *node));
        }
    }
    Ok(sources)
}

/// Where rebuilt objects go. All objects that one node has lost come together on one node, as far as names are free
/// there: a section is of use only beside its packs.
struct Targets<'c> {
    census: &'c Census,
    /// The bytes that each node gets.
    load: Vec<u64>,
    /// Number of objects of a node, by its name, that each of the nodes has or gets.
    kin: HashMap<&'c str, Vec<u64>>,
}

impl<'c> Targets<'c> {
    fn new(census: &'c Census, nodes: u32) -> Targets<'c> {
        let mut kin: HashMap<&str, Vec<u64>> = HashMap::new();
        for (at, _) in objects(census) {
            let of_node = kin.entry(&at.member().node).or_insert_with(|| vec![0; nodes as usize]);
            for holder in &at.record().holders {
                of_node.get_mut(*holder as usize).into_iter().for_each(|count| *count += 1);
            }
        }
        Targets { census, load: vec![0; nodes as usize], kin }
    }

    /// Chooses the node that gets the objects of a job: the one with most of the same node, then the one with the least
    /// to do.
    fn choose(&mut self, mut job: RebuildJob, lost: &mut Vec<LostObject>) -> Option<RebuildJob> {
        let record = &self.census.sets[job.set];
        let member = &record.head.members[job.member];
        let of_job = || job.objects.iter().map(|object| &record.objects[job.member][*object]);
        let free = |node: &u32| of_job().all(|object| !object.occupied.contains(node));
        let kin = self.kin.get(&member.node[..]).map_or(&[][..], |kin| &kin[..]);
        let kin_on = |node: &u32| kin.get(*node as usize).copied().unwrap_or(0);
        let nodes = (0..self.load.len() as u32).filter(free);
        let target = nodes.min_by_key(|node| (Reverse(kin_on(node)), self.load[*node as usize]));
        let of_job = job.objects.iter().map(|object| &member.objects[*object]);
        let Some(target) = target else {
            lost.extend(of_job.map(|object| LostObject {
                key: object.key.clone(),
                node: member.node.clone(),
                why: "every node has something else under its name".to_string(),
            }));
            return None;
        };
        self.load[target as usize] += of_job.map(|object| object.size).sum::<u64>();
        if let Some(kin) = self.kin.get_mut(&member.node[..]) {
            kin[target as usize] += job.objects.len() as u64;
        }
        job.target = target;
        Some(job)
    }
}

/// Jobs that share no node go together.
fn waves(jobs: Vec<RebuildJob>) -> Vec<Vec<RebuildJob>> {
    let mut waves: Vec<(BTreeSet<u32>, Vec<RebuildJob>)> = Vec::new();
    for job in jobs {
        let nodes = job.nodes();
        match waves.iter_mut().find(|(busy, _)| busy.is_disjoint(&nodes)) {
            Some((busy, jobs)) => {
                busy.extend(nodes);
                jobs.push(job);
            }
            None => waves.push((nodes, vec![job])),
        }
    }
    waves.into_iter().map(|(_, jobs)| jobs).collect()
}
