//! Before a run is taken: the newest checkpoint that only nodes hold comes to the shared store.
//!
//! One rank of each node reports the sections in its store, one rank puts these together with what the shared store has
//! ([`on_nodes`]), and the holders copy the packs, verified, and the sections of the newest complete checkpoint. Then the
//! manifest is completed as after any crash ([`Sections::roll_forward`]). If a part turns out to be useless, another holder
//! of it is asked, then the next older checkpoint; notes say what was given up and why. An error that may pass (no access, no
//! space) ends the opening instead: taking the run would give the checkpoint up. Whatever was copied before a death is found
//! by the next opener, which comes to the same end.

use super::Tiers;
use super::carrier::packs;
use super::gather::{OnNodes, PartHolder, StagedPart, is_overtaken, on_nodes};
use super::mover::{PackPath, is_hopeless};
use super::open::{RunLock, Succession, lock_run};
use super::publish::commit_once;
use super::sections::Sections;
use crate::array::{Rank, Sequence};
use crate::comm::{Comm, Wire, garbled, wire};
use crate::error::{Error, ErrorKind, Result};
use crate::format::{Branch, BranchName, Manifest, Names, WriterId};
use crate::log::{EndOfLog, Log};
use crate::redundancy::{NodeRanks, PIECE, rebuild};
use crate::store::{BundledStore, Store, TieredStore, read_small};
use std::collections::BTreeSet;
use std::sync::Arc;

/// The rounds after which something is wrong: every round but the last finds a part that is useless.
const ROUNDS: usize = 1000;

/// The sections that stores hold, and what is wrong with others.
#[derive(Clone, Debug, Default)]
pub(crate) struct NodeParts {
    pub(crate) parts: Vec<StagedPart>,
    pub(crate) notes: Vec<String>,
    /// The checkpoints of programs of one rank, which have manifests there: number, opening and its random number, step.
    pub(crate) alone: Vec<(u64, u64, u64, u64)>,
}

wire! { struct NodeParts { parts, notes, alone } }

impl NodeParts {
    /// Reads the sections of a run in the store of a node.
    pub(crate) fn on_node(store: &Arc<dyn Store>, run: &str) -> Result<NodeParts> {
        let mut held = NodeParts::default();
        held.read(store.as_ref(), &Names::new(run), &Names::new(run).sections(), Sequence(0))?;
        let (manifests, _) = Log::read(store.clone(), run)?.manifests();
        let of = |m: &Manifest| (m.sequence.0, m.writer.opening.0, m.writer.nonce, m.step.0);
        held.alone = manifests.iter().map(of).collect();
        Ok(held)
    }

    /// Reads the sections and branches behind a number in the shared store.
    pub(crate) fn in_shared(store: &dyn Store, run: &str, newest: Sequence) -> Result<NodeParts> {
        let (mut held, names) = (NodeParts::default(), Names::new(run));
        held.read(store, &names, &names.sections(), newest)?;
        held.read(store, &names, &names.branches(), newest)?;
        Ok(held)
    }

    fn read(
        &mut self,
        store: &dyn Store,
        names: &Names,
        folder: &str,
        newest: Sequence,
    ) -> Result<()> {
        for item in store.list_after(folder, &format!("{:012}", newest.0))? {
            let Some(name) = Names::parse_branch(&item.name) else { continue };
            match read_part(store, names, name) {
                Ok(part) => self.parts.push(StagedPart {
                    sequence: name.sequence.0,
                    opening: name.writer.opening.0,
                    nonce: name.writer.nonce,
                    step: part.part.step.0,
                    level: name.level,
                    index: name.index,
                    of: part.of,
                }),
                Err(error) if may_pass(&error) => return Err(error),
                Err(error) => self.notes.push(format!("a part on a node is useless: {error}")),
            }
        }
        Ok(())
    }
}

/// Whether trying again may help.
fn may_pass(error: &Error) -> bool {
    !is_hopeless(error) && error.kind() != ErrorKind::NotFound
}

fn read_part(store: &dyn Store, names: &Names, name: BranchName) -> Result<Branch> {
    let key = names.branch(name);
    let place = || format!("{key} in {}", store.name());
    let bytes = store.open(&key).and_then(|blob| read_small(blob.as_ref()));
    let part = Branch::parse(&bytes.map_err(|error| error.at(place()))?);
    let part = part.map_err(|error| error.at(place()))?;
    match part.name() == name {
        true => Ok(part),
        false => Err(Error::damaged("a section belongs elsewhere").at(place())),
    }
}

/// Makes the objects again that nodes have lost and that may still become a checkpoint; collective. Returns notes
/// for people.
pub(crate) fn rebuild_lost(nodes: &NodeRanks, tiers: &Tiers, run: &str) -> Result<Vec<String>> {
    let waits = what_waits(&tiers.last, run)?;
    let rebuilt = rebuild(nodes, tiers.first().as_ref(), run, &waits, PIECE)?;
    Ok(rebuilt.sentences())
}

/// Which objects on nodes may still become a checkpoint: those of the newest writer that are newer than the shared log.
pub(crate) fn what_waits(
    last: &Arc<dyn Store>,
    run: &str,
) -> Result<impl Fn(&str) -> bool + use<>> {
    let log = Log::read(Arc::new(BundledStore::new(last.clone())), run)?;
    let newest = log.newest_opening()?.map(|opening| (opening.writer, log.newest()));
    Ok(move |key: &str| {
        let Some((writer, newest)) = newest else { return false };
        let file = key.rsplit('/').next().unwrap_or(key);
        let section = Names::parse_branch(file).map(|name| (name.writer, name.sequence));
        let pack = || Names::parse_pack(file).map(|name| (name.writer, Sequence(name.attempt)));
        section.or_else(pack).is_some_and(|(of, number)| of == writer && number > newest)
    })
}

/// A run that this process may take, and what was found on nodes.
pub(crate) struct Recovered {
    /// On the first rank.
    pub(crate) lock: Option<RunLock>,
    pub(crate) notes: Vec<String>,
}

/// Brings the newest checkpoint that the nodes hold together to the shared store; collective. Ranks that do not `list`
/// have the store of another rank that does.
pub(crate) fn recover(
    comm: &dyn Comm,
    tiers: &Tiers,
    run: &str,
    lists: bool,
    succession: Option<&Succession>,
) -> Result<Recovered> {
    let mut chief = (comm.rank() == Rank(0)).then(|| Chief::new(tiers, run, succession));
    let mut report = match NodeParts::of(tiers, run, lists) {
        Ok(held) => RecoveryReport::Holds(held),
        Err(error) => RecoveryReport::failed(&error),
    };
    loop {
        let reports = comm.gather(Rank(0), &report.to_letter())?;
        let mut order = match &mut chief {
            Some(chief) => chief.order(&reports).to_letter(),
            None => Vec::new(),
        };
        comm.broadcast(Rank(0), &mut order)?;
        match RecoveryOrder::from_letter(&order)? {
            RecoveryOrder::Bring { sequence, opening, nonce, groups } => {
                let writer = WriterId { opening: Sequence(opening), nonce };
                let own = groups.iter().filter(|(_, rank)| *rank == comm.rank().0);
                let own: Vec<u32> = own.map(|(group, _)| *group).collect();
                report = bring(tiers, run, Sequence(sequence), writer, &own);
            }
            RecoveryOrder::Done { notes } => {
                let lock = chief.map(|chief| chief.lock).transpose()?;
                return Ok(Recovered { lock, notes });
            }
            RecoveryOrder::Failed { code, what } => {
                let kind = ErrorKind::from_code(code).unwrap_or(ErrorKind::Io);
                return Err(Error::new(kind, what));
            }
        }
    }
}

/// The answer of a rank.
enum RecoveryReport {
    Holds(NodeParts),
    Brought,
    /// Parts that cannot be used, and why.
    Useless(Vec<(u32, String)>),
    Failed {
        code: u8,
        what: String,
    },
}

wire! {
    enum RecoveryReport { 0 Holds(parts), 1 Brought, 2 Useless(parts), 3 Failed { code, what } }
}

impl RecoveryReport {
    fn failed(error: &Error) -> RecoveryReport {
        RecoveryReport::Failed { code: error.kind().code(), what: error.to_string() }
    }
}

/// The next step of all ranks.
enum RecoveryOrder {
    /// Each rank brings the sections of the groups that stand beside it, with their packs.
    Bring {
        sequence: u64,
        opening: u64,
        nonce: u64,
        groups: Vec<(u32, u32)>,
    },
    Done {
        notes: Vec<String>,
    },
    Failed {
        code: u8,
        what: String,
    },
}

wire! {
    enum RecoveryOrder {
        0 Bring { sequence, opening, nonce, groups },
        1 Done { notes },
        2 Failed { code, what },
    }
}

impl NodeParts {
    fn of(tiers: &Tiers, run: &str, lists: bool) -> Result<NodeParts> {
        let mut all = NodeParts::default();
        for tier in tiers.near.iter().filter(|_| lists) {
            let held = NodeParts::on_node(tier, run)?;
            all.parts.extend(held.parts);
            all.notes.extend(held.notes);
            all.alone.extend(held.alone);
        }
        Ok(all)
    }
}

/// All stores in front as one.
fn in_front(tiers: &Tiers) -> Option<Arc<dyn Store>> {
    match &tiers.near[..] {
        [] => None,
        [one] => Some(one.clone()),
        [near @ .., last] => Some(Arc::new(TieredStore::new(near.to_vec(), last.clone()))),
    }
}

/// Brings sections and their packs to the shared store.
fn bring(
    tiers: &Tiers,
    run: &str,
    sequence: Sequence,
    writer: WriterId,
    groups: &[u32],
) -> RecoveryReport {
    let Some(node) = in_front(tiers).filter(|_| !groups.is_empty()) else {
        return RecoveryReport::Brought;
    };
    let mut path = PackPath::new(node, tiers.last.clone());
    let mut useless = Vec::new();
    for group in groups {
        let name = BranchName { sequence, writer, level: 0, index: *group };
        match bring_section(&mut path, &Names::new(run), name) {
            Ok(_) => {}
            Err(error) if may_pass(&error) => return RecoveryReport::failed(&error),
            Err(error) => useless.push((*group, error.to_string())),
        }
    }
    if useless.is_empty() { RecoveryReport::Brought } else { RecoveryReport::Useless(useless) }
}

/// Brings one section and its packs over; the bytes of packs that were copied.
pub(crate) fn bring_section(path: &mut PackPath, names: &Names, name: BranchName) -> Result<u64> {
    let section = read_part(path.from.as_ref(), names, name)?;
    let bytes = path.bring_all(packs(&section))?;
    commit_once(path.to.as_ref(), names, &section)?;
    Ok(bytes)
}

/// The keys of the packs of a run that a section needs.
pub(crate) fn section_packs(
    store: &Arc<dyn Store>,
    run: &str,
    name: BranchName,
) -> Result<Vec<String>> {
    let names = Names::new(run);
    let section = read_part(store.as_ref(), &names, name)?;
    let own = packs(&section).filter(|(of, _)| of == run).map(|(_, pack)| names.pack(pack));
    Ok(own.collect())
}

/// The rank that finds out what to bring.
struct Chief<'a> {
    tiers: &'a Tiers,
    run: &'a str,
    lock: Result<RunLock>,
    parts: Vec<(PartHolder, StagedPart)>,
    bad: BTreeSet<(Rank, StagedPart)>,
    notes: Vec<String>,
    /// Checkpoints of programs of one rank, and who has them on its node, if there are several ranks now.
    alone: Vec<(Rank, (u64, u64, u64, u64))>,
    /// The last order.
    ordered: Option<OnNodes>,
    rounds: usize,
}

impl<'a> Chief<'a> {
    fn new(tiers: &'a Tiers, run: &'a str, succession: Option<&Succession>) -> Chief<'a> {
        Chief {
            tiers,
            run,
            lock: lock_run(tiers, run, succession),
            parts: Vec::new(),
            bad: BTreeSet::new(),
            notes: Vec::new(),
            alone: Vec::new(),
            ordered: None,
            rounds: 0,
        }
    }

    fn order(&mut self, reports: &[Vec<u8>]) -> RecoveryOrder {
        self.rounds += 1;
        let taken = self.take(reports).and_then(|()| self.next());
        taken.unwrap_or_else(|error| RecoveryOrder::Failed {
            code: error.kind().code(),
            what: error.to_string(),
        })
    }

    /// Takes the reports of all ranks in.
    fn take(&mut self, reports: &[Vec<u8>]) -> Result<()> {
        self.lock.as_ref().map(drop).map_err(Clone::clone)?;
        let ordered = self.ordered.take();
        for (rank, report) in (0..).map(Rank).zip(reports) {
            match RecoveryReport::from_letter(report)? {
                RecoveryReport::Holds(held) => {
                    self.parts.extend(held.parts.into_iter().map(|part| (Some(rank), part)));
                    self.notes.extend(held.notes);
                    let several = reports.len() > 1;
                    let alone = held.alone.into_iter().filter(|_| several);
                    self.alone.extend(alone.map(|found| (rank, found)));
                }
                RecoveryReport::Brought => {}
                RecoveryReport::Useless(groups) => {
                    let Some(ordered) = &ordered else { return Err(garbled()) };
                    for (group, why) in groups {
                        self.give_up(ordered, group, rank, &why);
                    }
                }
                RecoveryReport::Failed { code, what } => {
                    let kind = ErrorKind::from_code(code).unwrap_or(ErrorKind::Io);
                    let what =
                        format!("rank {rank} cannot bring forward what its node holds: {what}");
                    return Err(Error::new(kind, what));
                }
            }
        }
        Ok(())
    }

    /// A section turned out to be useless.
    fn give_up(&mut self, of: &OnNodes, group: u32, rank: Rank, why: &str) {
        let same = |part: &StagedPart| {
            let place = (Sequence(part.sequence), part.writer(), part.index);
            part.level == 0 && place == (of.sequence, of.writer, group)
        };
        let found = self.parts.iter().find(|(holder, part)| *holder == Some(rank) && same(part));
        if let Some((_, part)) = found {
            self.bad.insert((rank, part.clone()));
        }
        let step = of.step;
        self.notes.push(format!("step {step}, group {group} on the node of rank {rank}: {why}"));
    }

    /// Several ranks have no manifests on nodes. Checkpoints that a program of one rank left there must not be given up
    /// for that.
    fn refuse_alone(&self, log: &Log) -> Result<()> {
        let end = EndOfLog::of(log)?;
        let mut waits = None;
        for (rank, (sequence, opening, nonce, step)) in &self.alone {
            let writer = WriterId { opening: Sequence(*opening), nonce: *nonce };
            if waits.is_none() && end.waits(writer, Sequence(*sequence))? {
                waits = Some((rank, step));
            }
        }
        let Some((rank, step)) = waits else { return Ok(()) };
        let what =
            format!("a program of one rank has left step {step} on the node of rank {rank} only");
        Err(Error::usage(what).at(format!("run {:?}", self.run)).hint(
            "`treering drain` brings it to the shared store, as does opening the run with one rank there",
        ))
    }

    fn next(&mut self) -> Result<RecoveryOrder> {
        if self.rounds > ROUNDS {
            return Err(Error::new(ErrorKind::Busy, "the stores of the nodes keep changing"));
        }
        let log = completed(&self.tiers.last, self.run)?;
        self.refuse_alone(&log)?;
        let shared = NodeParts::in_shared(self.tiers.last.as_ref(), self.run, log.newest())?;
        let shared = shared.parts.into_iter().map(|part| (None, part));
        let parts: Vec<_> = self.parts.iter().cloned().chain(shared).collect();
        let newest = log.newest_opening()?.map(|opening| opening.writer);
        let found = on_nodes(&parts, log.newest(), &log.openings, &self.bad);
        for checkpoint in found.into_iter().filter(|found| Some(found.writer) == newest) {
            let OnNodes { sequence, writer, step, bring, missing } = &checkpoint;
            if let Some(group) = missing {
                self.notes.push(format!(
                    "step {step} was on nodes only and is not complete: no node holds the part of group {group}"
                ));
            } else if bring.is_empty() {
                self.notes
                    .push(format!("step {step} cannot be completed: a part of it is damaged"));
            } else {
                let groups = bring.iter().map(|(group, rank)| (*group, rank.0)).collect();
                let (opening, nonce) = (writer.opening.0, writer.nonce);
                let order = RecoveryOrder::Bring { sequence: sequence.0, opening, nonce, groups };
                self.ordered = Some(checkpoint);
                return Ok(order);
            }
        }
        let mut steps: BTreeSet<u64> = BTreeSet::new();
        for (_, part) in self.parts.iter().filter(|(_, part)| is_overtaken(part, &log.openings)) {
            // A node may hold those of another run of this name.
            if log.was_opened_by(part.writer())? {
                steps.insert(part.step);
            }
        }
        if !steps.is_empty() {
            let steps: Vec<String> = steps.iter().map(u64::to_string).collect();
            self.notes.push(format!(
                "checkpoints of steps {} on nodes are given up: the run was opened since, and has continued without them",
                steps.join(", ")
            ));
        }
        // Rounds before this one may have said the same.
        let notes: BTreeSet<String> = self.notes.drain(..).collect();
        Ok(RecoveryOrder::Done { notes: notes.into_iter().collect() })
    }
}

/// The log of a run, when everything is completed whose parts the shared store has.
pub(crate) fn completed(last: &Arc<dyn Store>, run: &str) -> Result<Log> {
    let sections = Sections::new(last.clone(), run, Default::default());
    for _ in 0..ROUNDS {
        let log = Log::read(Arc::new(BundledStore::new(last.clone())), run)?;
        if !sections.roll_forward(&log)? {
            return Ok(log);
        }
    }
    Err(Error::new(ErrorKind::Busy, "other processes keep changing this run"))
}

/// Removes the sections that earlier writers left on nodes: what they could complete is completed.
pub(crate) fn clean_sections(tiers: &Tiers, run: &str, writer: WriterId) -> Result<()> {
    let names = Names::new(run);
    let parse = |file: &str| {
        let section = Names::parse_branch(file)?;
        Some((section.writer, names.branch(section)))
    };
    clean_nodes(tiers, run, writer, &names.sections(), &parse)
}

/// Removes the packs that earlier writers left on nodes before the open epoch. Packs of the open epoch may still serve a
/// restore.
pub(crate) fn clean_packs(
    tiers: &Tiers,
    run: &str,
    writer: WriterId,
    epoch: Option<u64>,
) -> Result<()> {
    let names = Names::new(run);
    let parse = |file: &str| {
        let pack = Names::parse_pack(file)?;
        let is_old = epoch.is_none_or(|epoch| pack.attempt < epoch);
        is_old.then(|| (pack.writer, names.pack(pack)))
    };
    clean_nodes(tiers, run, writer, &names.packs(), &parse)
}

/// Removes what earlier writers of this run have left in a folder of each node. A node may hold what writers of another run
/// of the same name have made, which stays.
fn clean_nodes(
    tiers: &Tiers,
    run: &str,
    writer: WriterId,
    folder: &str,
    parse: &dyn Fn(&str) -> Option<(WriterId, String)>,
) -> Result<()> {
    for tier in &tiers.near {
        let items = tier.list(folder)?;
        let all = items.iter().filter_map(|item| parse(&item.name));
        let earlier: Vec<_> = all.filter(|(of, _)| is_earlier(*of, writer)).collect();
        if earlier.is_empty() {
            continue;
        }
        let log = Log::read(Arc::new(BundledStore::new(tiers.last.clone())), run)?;
        let mut keys = Vec::new();
        for (of, key) in earlier {
            if log.was_opened_by(of)? {
                keys.push(key);
            }
        }
        tier.delete(&keys)?;
    }
    Ok(())
}

/// Whether a writer had the run before another one.
fn is_earlier(other: WriterId, writer: WriterId) -> bool {
    other.opening <= writer.opening && other != writer
}
