//! Draining: checkpoints that only the stores of nodes hold are copied to the shared store, after the job that wrote them has
//! died. Also the request that a running program stop.
//!
//! Every section that a node holds and that is newer than the shared log is brought over with its packs, verified; then
//! everything is completed whose sections are all there. So it can be run once with all nodes, or once for each: sections
//! wait in the shared store until the last one comes, or until a program opens the run, which removes what is not complete.
//! The data of lost nodes is rebuilt first, as far as the parity files of these nodes suffice. Nothing that nodes hold
//! is changed otherwise, and a second time finds nothing to do.
//!
//! Of a program of one rank, the checkpoints are those that the next opener would take over (`save/leftovers.rs`). They keep
//! their numbers, unless somebody has opened the run since and died before anything came of it: then they are published under
//! an opening of the drain's own.

use super::{Library, Progress};
use crate::array::{Rank, Sequence};
use crate::comm::ThreadRanks;
use crate::error::{Error, ErrorKind, Result};
use crate::format::{BranchName, Manifest, Names, Opening, ParityName, WriterId};
use crate::log::{FullManifest, Log};
use crate::redundancy::{NodeRanks, PIECE, Rebuilt, Redundancy, rebuild};
use crate::retention::PlannedStep;
use crate::save::{
    Fence, Leftovers, LogWriter, NodeParts, OnNodes, PackPath, StagedPart, TakenOver, Tiers,
    announce, bring_section, completed, lock_run, on_nodes, random, section_packs, what_waits,
};
use crate::store::Store;
use serde::Serialize;
use std::collections::BTreeSet;
use std::sync::Arc;

/// A part of a checkpoint that a node's store holds: one of [`DrainPlan::parts`]. [`Library::drain`] has an example.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DrainedPart {
    /// The step of the checkpoint.
    pub step: u64,
    /// Its number in the log.
    pub sequence: Sequence,
    /// The group of ranks whose part it is; `None`: all of them.
    pub group: Option<u32>,
    /// The store that holds it.
    pub store: String,
    /// The bytes of packs that the shared store lacks.
    pub bytes: u64,
}

/// Plan of a drain: what it copies from the stores of nodes. Returned by [`Library::plan_drain`] and [`Library::drain`],
/// which has an example.
#[derive(Clone, Debug, Default, Serialize)]
pub struct DrainPlan {
    /// The run.
    pub run: String,
    /// The parts that are brought to the shared store.
    pub parts: Vec<DrainedPart>,
    /// The checkpoints that are complete then.
    pub completed: Vec<PlannedStep>,
    /// The checkpoints that still lack a part.
    pub incomplete: Vec<PlannedStep>,
    /// The bytes to be copied.
    pub bytes: u64,
    /// Notes for people.
    pub notes: Vec<String>,
}

/// The stores of nodes as they are now.
struct DrainSurvey {
    plan: DrainPlan,
    /// Sections to be brought, and the node's number.
    sections: Vec<(usize, BranchName, u64)>,
    /// Checkpoints of programs of one rank, the oldest first, under the numbers that they get.
    manifests: Vec<(usize, Manifest, u64)>,
    writer: Option<DrainWriter>,
}

/// The writer whose checkpoints are published.
enum DrainWriter {
    /// That which has left them: they keep their numbers.
    Newest(Opening),
    /// One of our own, which has to be announced before: somebody has opened the run since, and made nothing.
    Own(WriterId),
}

impl Library {
    /// Plans a drain: the parts of checkpoints that it copies from the stores of nodes to this store. Writes nothing.
    pub fn plan_drain(&self, run: &str, nodes: &[Arc<dyn Store>]) -> Result<DrainPlan> {
        self.refuse_tier(run)?;
        let log = self.log(run)?;
        let mut plan = self.survey_nodes(run, nodes, &log)?.plan;
        let keeps = |node: &Arc<dyn Store>| node.list(&ParityName::folder(run));
        if nodes.iter().any(|node| keeps(node).is_ok_and(|files| !files.is_empty())) {
            plan.notes
                .push("data of lost nodes is rebuilt first, as far as these nodes can".into());
        }
        Ok(plan)
    }

    /// Makes the objects of lost nodes again, each store being a rank that is a thread; what a person should know.
    fn rebuild_on(&self, run: &str, nodes: &[Arc<dyn Store>]) -> Result<Vec<String>> {
        let (waits, stores) = (what_waits(&self.last, run)?, nodes.to_vec());
        let (run, names) = (run.to_string(), nodes.iter().enumerate());
        let names: Vec<String> = names.map(|(at, node)| format!("{at} {}", node.name())).collect();
        let ends = ThreadRanks::on_nodes(&names).run(move |comm| {
            let store = stores[comm.rank().0 as usize].clone();
            let ranks = NodeRanks::meet(comm, None, Redundancy::None)?;
            rebuild(&ranks, store.as_ref(), &run, &waits, PIECE)
        });
        let failed = || {
            Error::new(
                ErrorKind::Io,
                "rebuilding lost parts ended in an internal error; please report it",
            )
        };
        let mut all = Vec::new();
        for end in ends {
            all.push(end.done().unwrap_or_else(|| Err(failed()))?);
        }
        Ok(all.into_iter().next().map_or_else(Vec::new, Rebuilt::sentences))
    }

    /// Copies the checkpoints that only the stores of nodes hold to this store, verified, after lost parts are rebuilt from
    /// parity as far as these nodes can. Returns the plan that was carried out; its notes name damaged parts.
    ///
    /// **Waiting**: takes the run's lock, for which it waits up to two seconds; while a program has the run open, the error
    /// is of kind [`ErrorKind::Busy`]. Where the store has no locks, nothing keeps a program from opening the run meanwhile.
    /// **Errors**: data on the nodes is never removed. After an error or an interruption, checkpoints of which all parts
    /// have arrived are complete; calling this again copies the rest.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use treering::{DirectoryStore, Library, Options, Run, Store, Variable};
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let (store, ssd) = (folder.path().join("store"), folder.path().join("ssd"));
    /// let node: Arc<dyn Store> = Arc::new(DirectoryStore::new(&ssd));
    /// let options = Options::directory(&store, "rod").node(node.clone()).shared_every(10);
    /// let mut run = Run::open(options)?;
    /// run.checkpoint_shared(0, &[Variable::new("heat", &[0.0f64; 100])])?.durable()?;
    /// run.checkpoint(1, &[Variable::new("heat", &[1.0f64; 100])])?.staged()?; // on the node only
    /// drop(run); // as if the job had died
    /// let library = Library::open(&store)?;
    /// let plan = library.plan_drain("rod", &[node.clone()])?; // writes nothing
    /// let parts: Vec<u64> = plan.parts.iter().map(|part| part.step).collect();
    /// assert_eq!(parts, [1]);
    /// library.drain("rod", &[node], &|_done, _of| {})?;
    /// assert_eq!(library.checkpoint("rod", None)?.step(), 1);
    /// # Ok::<(), treering::Error>(())
    /// ```
    pub fn drain(
        &self,
        run: &str,
        nodes: &[Arc<dyn Store>],
        progress: Progress,
    ) -> Result<DrainPlan> {
        self.refuse_tier(run)?;
        self.log(run)?;
        let tiers = Tiers { near: Vec::new(), last: self.last.clone() };
        let _lock = lock_run(&tiers, run, None).map_err(|error| match error.kind() {
            ErrorKind::Busy => {
                error.hint("the program that has it open moves its checkpoints itself")
            }
            _ => error,
        })?;
        let before = completed(&self.last, run)?;
        let rebuilt = self.rebuild_on(run, nodes)?;
        let DrainSurvey { mut plan, sections, manifests, writer } =
            self.survey_nodes(run, nodes, &before)?;
        plan.notes.extend(rebuilt);
        let (total, mut done) = (plan.bytes, 0);
        progress(0, total);
        let mut paths: Vec<PackPath> =
            nodes.iter().map(|node| PackPath::new(node.clone(), self.last.clone())).collect();
        for (node, name, bytes) in sections {
            let brought = bring_section(&mut paths[node], &Names::new(run), name);
            note_useless(&mut plan, brought.map(drop), &nodes[node].name())?;
            done += bytes;
            progress(done.min(total), total);
        }
        let mut log = match writer.filter(|_| !manifests.is_empty()) {
            Some(writer) => Some(self.log_of(run, writer)?),
            None => None,
        };
        for (node, manifest, bytes) in manifests {
            let brought = bring_manifest(&mut paths[node], log.as_mut(), &manifest);
            note_useless(&mut plan, brought, &nodes[node].name())?;
            done += bytes;
            progress(done.min(total), total);
        }
        progress(total, total);
        let after = completed(&self.last, run)?;
        let all: BTreeSet<PlannedStep> =
            plan.completed.iter().chain(&plan.incomplete).copied().collect();
        let is_there = |planned: &PlannedStep| {
            let there = after.sequences.binary_search(&planned.sequence).is_ok();
            there && matches!(after.manifest(planned.sequence), Ok(Some(_)))
        };
        (plan.completed, plan.incomplete) = all.into_iter().partition(is_there);
        Ok(plan)
    }

    /// The log of the writer whose checkpoints are published.
    fn log_of(&self, run: &str, writer: DrainWriter) -> Result<LogWriter> {
        let opening = match writer {
            DrainWriter::Newest(opening) => opening,
            DrainWriter::Own(writer) => announce(self.last.as_ref(), run, writer)?
                .ok_or_else(|| Error::new(ErrorKind::Busy, "another process has taken this run"))?,
        };
        let mut log = LogWriter::new(self.last.clone(), opening, true, Fence::default());
        log.catch_up()?;
        Ok(log)
    }

    fn survey_nodes(&self, run: &str, nodes: &[Arc<dyn Store>], log: &Log) -> Result<DrainSurvey> {
        let mut plan = DrainPlan { run: run.to_string(), ..DrainPlan::default() };
        let opening = log.newest_opening()?;
        let writer = opening.as_ref().map(|opening| opening.writer);
        let mut parts = Vec::new();
        for (number, node) in nodes.iter().enumerate() {
            let held = NodeParts::on_node(node, run)?;
            if held.parts.is_empty() && held.alone.is_empty() {
                plan.notes.push(format!("{} holds nothing of run {run:?}", node.name()));
            }
            plan.notes.extend(held.notes);
            let rank = Rank(number as u32);
            parts.extend(held.parts.into_iter().map(|part| (Some(rank), part)));
        }
        let held = parts.clone();
        let shared = NodeParts::in_shared(self.last.as_ref(), run, log.newest())?;
        let known: BTreeSet<StagedPart> = shared.parts.iter().cloned().collect();
        parts.extend(shared.parts.into_iter().map(|part| (None, part)));
        let found = on_nodes(&parts, log.newest(), &log.openings, &BTreeSet::new());
        for OnNodes { sequence, step, missing, .. } in
            found.iter().rev().filter(|found| Some(found.writer) == writer)
        {
            let planned = PlannedStep { step: step.0, sequence: *sequence };
            match missing {
                None => plan.completed.push(planned),
                Some(group) => {
                    plan.notes.push(format!("step {step} still lacks the part of group {group}"));
                    plan.incomplete.push(planned);
                }
            }
        }
        let mut sections = Vec::new();
        let mut seen = BTreeSet::new();
        for (holder, part) in held {
            let counts = Sequence(part.sequence) > log.newest() && Some(part.writer()) == writer;
            let Some(Rank(number)) = holder.filter(|_| counts && !known.contains(&part)) else {
                continue;
            };
            if !seen.insert(part.clone()) {
                continue;
            }
            let (node, name) = (number as usize, name_of(&part));
            let bytes =
                self.lacks(nodes[node].as_ref(), section_packs(&nodes[node], run, name)?)?;
            sections.push((node, name, bytes));
            let (step, sequence) = (part.step, Sequence(part.sequence));
            let store = nodes[node].name();
            plan.parts.push(DrainedPart { step, sequence, group: Some(part.index), store, bytes });
        }
        let (writer, waiting) = self.waiting(run, nodes, (log, opening), &mut plan)?;
        let mut manifests = Vec::new();
        for TakenOver { manifest, places } in waiting {
            let Some(node) = places.first().copied() else { continue };
            let full = FullManifest::read(nodes[node].as_ref(), manifest.clone())?;
            let names = Names::new(run);
            let keys = full.packs().filter(|(of, _)| of == run).map(|(_, pack)| names.pack(pack));
            let bytes = self.lacks(nodes[node].as_ref(), keys.collect())?;
            let (step, sequence) = (manifest.step.0, manifest.sequence);
            let store = nodes[node].name();
            plan.parts.push(DrainedPart { step, sequence, group: None, store, bytes });
            plan.completed.push(PlannedStep { step, sequence });
            manifests.push((node, manifest, bytes));
        }
        plan.bytes = plan.parts.iter().map(|part| part.bytes).sum();
        Ok(DrainSurvey { plan, sections, manifests, writer })
    }

    /// The checkpoints that programs of one rank have left complete on nodes, and the writer whose they become.
    fn waiting(
        &self,
        run: &str,
        nodes: &[Arc<dyn Store>],
        (log, opening): (&Log, Option<Opening>),
        plan: &mut DrainPlan,
    ) -> Result<(Option<DrainWriter>, Vec<TakenOver>)> {
        let tiers = Tiers { near: nodes.to_vec(), last: self.last.clone() };
        let left = Leftovers::find(&tiers, run, log)?;
        plan.notes.extend(left.notes.iter().cloned());
        let waiting: Vec<TakenOver> = left.waiting().collect();
        let goes_on = |taken: &TakenOver, opening: &Opening| {
            taken.manifest.sequence > log.newest() && taken.manifest.writer == opening.writer
        };
        match opening {
            Some(opening) if waiting.iter().all(|taken| goes_on(taken, &opening)) => {
                Ok((Some(DrainWriter::Newest(opening)), waiting))
            }
            Some(_) => {
                let writer = WriterId { opening: log.newest().next(), nonce: random() };
                let taken = left.taken_over(writer.opening, writer);
                Ok((Some(DrainWriter::Own(writer)), taken))
            }
            None => Ok((None, Vec::new())),
        }
    }

    /// The bytes of packs that a node has and the shared store lacks.
    fn lacks(&self, node: &dyn Store, keys: Vec<String>) -> Result<u64> {
        let mut bytes = 0;
        for key in keys {
            match self.seen.open(&key) {
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::NotFound => {
                    bytes += node.open(&key).map_or(0, |blob| blob.size());
                }
                Err(error) => return Err(error),
            }
        }
        Ok(bytes)
    }

    /// Asks the program that has a run open, or the next one that opens it, to stop at its next checkpoint; false if
    /// that was asked already. See [`Save::halts`](crate::Save::halts).
    pub fn halt(&self, run: &str) -> Result<bool> {
        self.refuse_tier(run)?;
        self.log(run)?;
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        let who = format!("process {} on {host}", std::process::id());
        self.last.commit(&Names::new(run).halt(), who.as_bytes())
    }

    /// Withdraws the request to stop; false if there was none.
    pub fn cancel_halt(&self, run: &str) -> Result<bool> {
        self.refuse_tier(run)?;
        self.log(run)?;
        let key = Names::new(run).halt();
        match self.last.open(&key) {
            Ok(_) => self.last.delete(&[key]).map(|()| true),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }
}

/// Brings a checkpoint over that a program of one rank left complete on its node.
fn bring_manifest(
    path: &mut PackPath,
    log: Option<&mut LogWriter>,
    manifest: &Manifest,
) -> Result<()> {
    let Some(log) = log else { return Ok(()) };
    let full = FullManifest::read(path.from.as_ref(), manifest.clone())?;
    path.bring_all(full.packs())?;
    log.commit(manifest)
}

fn name_of(part: &StagedPart) -> BranchName {
    let writer: WriterId = part.writer();
    BranchName { sequence: Sequence(part.sequence), writer, level: part.level, index: part.index }
}

/// A part that is damaged is noted; everything else that can fail may pass, and ends the draining.
fn note_useless(plan: &mut DrainPlan, brought: Result<()>, store: &str) -> Result<()> {
    match brought {
        Err(error) if matches!(error.kind(), ErrorKind::Damaged | ErrorKind::NotFound) => {
            plan.notes.push(format!("a part in {store} cannot be used: {error}"));
            Ok(())
        }
        brought => brought,
    }
}
