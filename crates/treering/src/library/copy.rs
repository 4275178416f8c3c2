//! Copying a run to another store or name, and renaming a run.
//!
//! A copy appears at once, when all of it is there and durable. An opening with another random number stands at the
//! number of the copy's writer meanwhile, so that its checkpoints are strays, which nobody lists or uses; its removal is
//! what makes them visible. An interrupted copy leaves a run without checkpoints, which `treering rm` removes. Frames
//! are copied as they are, and each is checked against its checksum; footers are written anew with the name of the copy.
//!
//! Renaming is copying and removing. Before the copy, the run is taken as a program takes it, which keeps every other
//! writer from adding to it; the copy is read back before the original goes.

use super::copy_plan::{BLOCKER, CopyPlan, plan_copy};
use super::{LOCK, Library, PATIENCE, Progress};
use crate::array::{GroupId, Sequence};
use crate::error::{Error, ErrorKind, Result};
use crate::format::{
    Footer, Frame, Group, Groups, HEADER_BYTES, Manifest, Names, Opening, PackName, Seal,
    TREES_RUN, WriterId, check_run_name, header,
};
use crate::log::{EndOfLog, FullManifest, Log, remove_stale_openings};
use crate::memory::Scratch;
use crate::merkle::checksum;
use crate::restore::{check_frames, first_good, read_sealed};
use crate::save::{Tiers, lock_run, now, open_locked, random, with_branches};
use crate::store::{Blob, Lock, Put, lock_patiently};
use serde::Serialize;
use std::collections::{BTreeSet, HashMap};

/// All copies of a pack, those that cannot be opened included.
type PackCopies = Vec<Result<Box<dyn Blob>>>;

/// Frames that are read at once.
const WINDOW: u64 = 8 << 20;

/// A run that was copied or renamed, or would be. Returned by [`Library::copy_run`], which has an example.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct CopiedRun {
    /// The run.
    pub run: String,
    /// The copy's name, or the new name.
    pub new: String,
    /// The steps of its checkpoints, in the order in which they were saved.
    pub steps: Vec<u64>,
    /// Number of its packs.
    pub packs: u64,
    /// Size of these packs in bytes.
    pub bytes: u64,
}

/// A pack that was copied: its seal in the source, and in the copy.
#[derive(Clone, Copy)]
struct CopiedPack {
    was: Seal,
    is: Seal,
}

impl Library {
    /// Plans a copy: what [`Library::copy_run`] would copy. Writes nothing.
    pub fn plan_copy(
        &self,
        run: &str,
        steps: &[u64],
        to: &Library,
        new: &str,
    ) -> Result<CopiedRun> {
        to.refuse_taken(new)?;
        self.planned(run, steps, new, WriterId::default()).map(|(_, copied)| copied)
    }

    /// Copies a run, or the checkpoints of some of its steps, to another store or another name; `steps` is empty for all. A
    /// program may continue the run meanwhile: checkpoints that it saves after the call are not copied. Every byte is
    /// verified on the way, and the copy appears when it is complete, and durable. After an interruption the copy is a run
    /// without checkpoints, which [`Library::remove_run`] removes.
    ///
    /// **Errors**: [`ErrorKind::Usage`] if the new name is taken, [`ErrorKind::NotFound`] without such a run or steps,
    /// [`ErrorKind::Damaged`] if a byte is damaged in every copy. After an error there is no copy, or
    /// only its trees are missing.
    ///
    /// ```
    /// use treering::{Library, Options, Run, Variable};
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let (store, archive) = (folder.path().join("store"), folder.path().join("archive"));
    /// let mut run = Run::open(Options::directory(&store, "rod"))?;
    /// run.checkpoint(1, &[Variable::new("heat", &[293.15f64; 1000])])?;
    /// run.finish()?;
    /// let to = Library::directory(&archive);
    /// let copied = Library::open(&store)?.copy_run("rod", &[], &to, "rod-2026", &|_, _| {})?;
    /// assert_eq!(copied.steps, [1]);
    /// # Ok::<(), treering::Error>(())
    /// ```
    pub fn copy_run(
        &self,
        run: &str,
        steps: &[u64],
        to: &Library,
        new: &str,
        progress: Progress,
    ) -> Result<CopiedRun> {
        let (trees, beside) = (self.trees_beside(run), format!("{new}{TREES_RUN}"));
        if trees.is_some() {
            to.refuse_taken(&beside)?;
        }
        let copied = self.copy_one(run, steps, to, new, progress)?;
        if let Some(trees) = trees {
            self.copy_one(&trees, steps, to, &beside, &|_, _| {}).or_else(nothing_to_copy)?;
        }
        Ok(copied)
    }

    /// Renames a run. Its data is copied within the store, read back, and then removed under the old name: space for a
    /// second copy is needed meanwhile. It is refused while a program has the run open, where the store has locks; elsewhere
    /// such a program stops with an error at its next save. Runs that are branches of it keep it from being renamed.
    ///
    /// **Caution**: checkpoints that an ended program has left on a node are given up, because the run counts as opened
    /// elsewhere since. Bring them to the store first, with `treering drain` or by starting the program there once more.
    pub fn rename_run(&self, run: &str, new: &str, progress: Progress) -> Result<CopiedRun> {
        self.refuse_tier(run)?;
        self.refuse_taken(new)?;
        let pairs: Vec<(String, String)> = [Some(run.to_string()), self.trees_beside(run)]
            .into_iter()
            .flatten()
            .map(|old| (old.clone(), old.replacen(run, new, 1)))
            .collect();
        let mut taken = Vec::new();
        for (old, new) in &pairs {
            self.refuse_taken(new)?;
            self.refuse_shared(old)?;
            self.refuse_staged(old)?;
            taken.push(self.take_over(old)?);
        }
        let copied = self.copy_one(run, &[], self, new, progress)?;
        for (trees, beside) in pairs.iter().skip(1) {
            self.copy_one(trees, &[], self, beside, &|_, _| {}).or_else(nothing_to_copy)?;
        }
        pairs.iter().try_for_each(|(_, new)| self.read_back(new))?;
        let _lock = lock_patiently(self.last.as_ref(), LOCK, PATIENCE)?;
        for (owner, (old, _)) in taken.iter().zip(&pairs) {
            self.refuse_shared(old)?;
            // Nobody has added anything since.
            owner.log(&self.last, true).check()?;
            self.remove_files(old)?;
        }
        Ok(copied)
    }

    /// Refuses a run of which a node holds checkpoints that the last tier does not have.
    fn refuse_staged(&self, run: &str) -> Result<()> {
        let last = Log::read(self.seen.clone(), run)?;
        let end = EndOfLog::of(&last)?;
        for tier in &self.near {
            let log = Log::read(tier.clone(), run)?;
            for sequence in &log.sequences {
                let manifest = log.manifest(*sequence)?;
                if let Some(manifest) = manifest
                    && end.waits(manifest.writer, *sequence)?
                {
                    return Err(Error::usage(format!(
                        "step {} of run {run:?} is only on a node",
                        manifest.step
                    ))
                    .at(tier.name())
                    .hint("`treering drain` brings it to the shared store"));
                }
            }
        }
        Ok(())
    }

    /// The run of trees that were made of a run afterwards.
    fn trees_beside(&self, run: &str) -> Option<String> {
        let trees = format!("{run}{TREES_RUN}");
        self.log(&trees).is_ok().then_some(trees)
    }

    /// Takes a run as a program does: other writers cannot add to it any more.
    fn take_over(&self, run: &str) -> Result<crate::save::Opened> {
        self.log(run)?;
        let tiers = Tiers { near: Vec::new(), last: self.last.clone() };
        let lock = lock_run(&tiers, run, None).map_err(|error| match error.kind() {
            ErrorKind::Busy => error.hint("end the program that has it open first"),
            _ => error,
        })?;
        open_locked(&tiers, run, lock, None)
    }

    /// Refuses a name that a run has, complete or not.
    fn refuse_taken(&self, new: &str) -> Result<()> {
        check_run_name(new)?;
        let log = Log::read(self.seen.clone(), new)?;
        if log.sequences.is_empty() {
            return Ok(());
        }
        let error = Error::usage(format!("there is a run {new:?} already")).at(self.last.name());
        Err(match log.manifests().0.is_empty() {
            false => error.hint("choose another name"),
            true => error.hint(format!(
                "it has no checkpoints: a copy may be under way, or was interrupted; `treering rm STORE#{new} --whole-run` \
                 removes what is left of it"
            )),
        })
    }

    /// Chooses checkpoints and numbers them.
    fn planned(
        &self,
        run: &str,
        steps: &[u64],
        new: &str,
        writer: WriterId,
    ) -> Result<(CopyPlan, CopiedRun)> {
        self.log(run)?;
        let mut survey = Log::read(self.seen.clone(), run)?.survey();
        let chosen = |manifest: &Manifest| steps.is_empty() || steps.contains(&manifest.step.0);
        survey.manifests.retain(chosen);
        let full = survey.take_full(self.seen.as_ref());
        if let Some((_, error)) = survey.unreadable.first().filter(|_| steps.is_empty()) {
            let what = format!("a checkpoint of run {run:?} cannot be read: {error}");
            return Err(Error::new(error.kind(), what).hint("copy the others by their steps"));
        }
        let found: BTreeSet<u64> = full.iter().map(|full| full.manifest.step.0).collect();
        if let Some(step) = steps.iter().find(|step| !found.contains(step)) {
            return Err(no_checkpoint(format!("run {run:?} has no checkpoint of step {step}")));
        }
        if full.is_empty() {
            return Err(no_checkpoint(format!("run {run:?} has no checkpoint yet")));
        }
        let plan = plan_copy(full, new, writer);
        let copied = CopiedRun {
            run: run.to_string(),
            new: new.to_string(),
            steps: plan.checkpoints.iter().map(|(_, copy)| copy.step.0).collect(),
            packs: plan.names.len() as u64,
            bytes: self.bytes_of(plan.names.keys())?,
        };
        Ok((plan, copied))
    }

    /// The bytes of packs.
    fn bytes_of<'p>(&self, packs: impl Iterator<Item = &'p (String, PackName)>) -> Result<u64> {
        let mut sizes: HashMap<&str, HashMap<String, u64>> = HashMap::new();
        let mut all = 0;
        for (run, name) in packs {
            let names = Names::new(run);
            if !sizes.contains_key(run.as_str()) {
                let items = self.seen.list(&names.packs())?;
                let items = items.into_iter().map(|item| (item.name, item.size));
                sizes.insert(run, items.collect());
            }
            let key = names.pack(*name);
            let own = key.rsplit('/').next().and_then(|name| sizes[run.as_str()].get(name));
            all += own.copied().unwrap_or(0);
        }
        Ok(all)
    }

    fn copy_one(
        &self,
        run: &str,
        steps: &[u64],
        to: &Library,
        new: &str,
        progress: Progress,
    ) -> Result<CopiedRun> {
        check_run_name(new)?;
        to.refuse_taken(new)?;
        let writer = WriterId { opening: BLOCKER, nonce: random() };
        // Where nothing can be copied, not even a lock is left behind.
        let (plan, copied) = self.planned(run, steps, new, writer)?;
        let _lock = to.lock_new(new)?;
        to.refuse_taken(new)?;
        let copy = UnfinishedCopy::begin(to, run, new, writer)?;
        let (mut done, total) = (0, copied.bytes);
        progress(0, total);
        let mut tell = |bytes: u64| {
            done += bytes;
            progress(u64::min(done, total), total);
        };
        match self.write_copy(&plan, &copy, &mut tell).and_then(|()| copy.appear(&plan)) {
            Ok(()) => {
                progress(total, total);
                Ok(copied)
            }
            Err(error) => {
                // Files that cannot be removed now are a run without checkpoints.
                let _ = copy.remove(&plan);
                Err(error)
            }
        }
    }

    /// The lock of a run that does not exist yet.
    fn lock_new(&self, new: &str) -> Result<Option<Lock>> {
        self.last.lock(&Names::new(new).lock()).map_err(|error| error.at(format!("run {new:?}")))
    }

    /// Writes all packs and manifests of a copy; nobody sees them yet.
    fn write_copy(
        &self,
        plan: &CopyPlan,
        copy: &UnfinishedCopy,
        tell: &mut dyn FnMut(u64),
    ) -> Result<()> {
        let mut copied: HashMap<(String, PackName), CopiedPack> = HashMap::new();
        for (full, manifest) in &plan.checkpoints {
            let at = |error: Error| error.at(format!("{}@{}", full.manifest.run, manifest.step));
            let mut groups = Vec::with_capacity(full.groups().len());
            for (number, group) in (0..).map(GroupId).zip(full.groups()) {
                self.copy_packs(plan, copy, (group, number), &mut copied, tell).map_err(at)?;
                groups.push(group_of(plan, &manifest.run, (group, number), &copied));
            }
            let manifest = Manifest { groups: Groups::Here(groups), ..manifest.clone() };
            copy.commit(manifest)?;
        }
        Ok(())
    }

    /// Copies the packs of a group that were not copied before, the oldest first.
    fn copy_packs(
        &self,
        plan: &CopyPlan,
        copy: &UnfinishedCopy,
        (group, number): (&Group, GroupId),
        copied: &mut HashMap<(String, PackName), CopiedPack>,
        tell: &mut dyn FnMut(u64),
    ) -> Result<()> {
        let wrong = || Error::damaged("the packs of a checkpoint do not belong together");
        let names: Vec<(String, PackName)> =
            group.names(number).map(|(run, name)| (run.to_string(), name)).collect();
        let (mut missing, mut expected) = (Vec::new(), Some(group.seal));
        for pack in names.into_iter().rev() {
            let seal = expected.ok_or_else(wrong)?;
            if let Some(known) = copied.get(&pack) {
                if known.was != seal {
                    return Err(wrong());
                }
                missing.push((pack, seal));
                break;
            }
            expected = self.source_footer(&pack, &seal, false)?.1.parent;
            missing.push((pack, seal));
        }
        let mut parent = None;
        for (pack, seal) in missing.into_iter().rev() {
            if let Some(known) = copied.get(&pack) {
                parent = Some(known.is);
                continue;
            }
            let is = self.copy_pack(&pack, &seal, plan.names[&pack], copy, (parent, tell))?;
            copied.insert(pack, CopiedPack { was: seal, is });
            parent = Some(is);
        }
        Ok(())
    }

    /// All copies of a pack of the source, and its footer.
    fn source_footer(
        &self,
        (run, name): &(String, PackName),
        seal: &Seal,
        section: bool,
    ) -> Result<(PackCopies, Footer)> {
        let key = Names::new(run).pack(*name);
        let copies = self.seen.copies(&key);
        let read = |copy: &dyn Blob| read_sealed(copy, seal, section);
        let footer = first_good(&copies, read, |_, _| {}).map_err(|error| error.at(&key))?;
        match (&footer.run, &footer.name) == (run, name) {
            true => Ok((copies, footer)),
            false => Err(Error::damaged("this pack belongs elsewhere").at(key)),
        }
    }

    /// Copies a pack under its new name; the seal of the copy.
    fn copy_pack(
        &self,
        pack: &(String, PackName),
        seal: &Seal,
        name: PackName,
        copy: &UnfinishedCopy,
        (parent, tell): (Option<Seal>, &mut dyn FnMut(u64)),
    ) -> Result<Seal> {
        let (copies, mut footer) = self.source_footer(pack, seal, true)?;
        if footer.parent.is_some() != parent.is_some() {
            return Err(Error::damaged("the packs of a checkpoint do not belong together"));
        }
        (footer.run, footer.name, footer.parent) = (copy.new.clone(), name, parent);
        let mut put = copy.to.last.put(&copy.names.pack(name))?;
        put.append(&header())?;
        copy_frames(&copies, &footer.frames, put.as_mut(), tell)
            .map_err(|error| error.at(Names::new(&pack.0).pack(pack.1)))?;
        let (end, is) = footer.write();
        put.append(&end)?;
        put.finish()?;
        tell(seal.footer + HEADER_BYTES);
        Ok(is)
    }

    /// Reads and decodes every frame of a run in its store.
    fn read_back(&self, run: &str) -> Result<()> {
        // A name that is listed late does not appear in any cache: this looks at the store anew.
        let fresh = Library::of(self.last.clone());
        let mut survey = Log::read(fresh.seen.clone(), run)?.survey();
        let full = survey.take_full(fresh.seen.as_ref());
        if let Some((_, error)) = survey.unreadable.into_iter().next() {
            return Err(error);
        }
        let packs: BTreeSet<(String, PackName)> =
            full.iter().flat_map(FullManifest::packs).collect();
        for (run, name) in packs {
            let key = Names::new(&run).pack(name);
            let blob = fresh.seen.open(&key)?;
            let (_, footer) = crate::restore::read_footer(blob.as_ref(), true)?;
            if let Some((_, error)) = check_frames(blob.as_ref(), &footer, &|_| {}).pop() {
                return Err(error.at(key));
            }
        }
        for full in full {
            crate::restore::Checkpoint::load(fresh.seen.clone(), full.manifest)?;
        }
        Ok(())
    }
}

fn no_checkpoint(what: String) -> Error {
    Error::new(ErrorKind::NotFound, what).hint("`treering ls STORE#RUN` lists the checkpoints")
}

/// Trees only save time: a copy is complete without those of steps that have none.
fn nothing_to_copy(error: Error) -> Result<CopiedRun> {
    match error.kind() {
        ErrorKind::NotFound => Ok(CopiedRun::default()),
        _ => Err(error),
    }
}

/// Copies frames as they are, from whichever copy has them whole.
fn copy_frames(
    copies: &[Result<Box<dyn Blob>>],
    frames: &[Frame],
    put: &mut dyn Put,
    tell: &mut dyn FnMut(u64),
) -> Result<()> {
    let mut rest = frames;
    while let [first, ..] = rest {
        let end = |frame: &Frame| frame.position + frame.encoded - first.position;
        let count = rest.iter().take_while(|frame| end(frame) <= WINDOW).count().max(1);
        let (these, behind) = rest.split_at(count);
        let len = end(&these[count - 1]);
        let read = |copy: &dyn Blob| {
            let mut bytes = Scratch::new(len as usize)?;
            copy.read_at(first.position, &mut bytes)?;
            for frame in these {
                let at = (frame.position - first.position) as usize;
                if checksum(&bytes[at..][..frame.encoded as usize]) != frame.checksum {
                    return Err(Error::damaged("the checksum of a frame does not match"));
                }
            }
            Ok(bytes)
        };
        put.append(&first_good(copies, read, |_, _| {})?)?;
        tell(len);
        rest = behind;
    }
    Ok(())
}

/// The packs of a group in the copy.
fn group_of(
    plan: &CopyPlan,
    new: &str,
    (group, number): (&Group, GroupId),
    copied: &HashMap<(String, PackName), CopiedPack>,
) -> Group {
    let mut all = Group { packs: Vec::new(), seal: group.seal };
    for (run, name) in group.names(number) {
        let pack = (run.to_string(), name);
        all.push(new, plan.names[&pack], copied[&pack].is);
    }
    all
}

/// A copy that nobody sees yet.
struct UnfinishedCopy<'l> {
    to: &'l Library,
    new: String,
    names: Names,
    /// The opening that hides the copy.
    blocker: Opening,
    writer: WriterId,
}

impl<'l> UnfinishedCopy<'l> {
    /// Takes the name of the copy.
    fn begin(to: &'l Library, run: &str, new: &str, writer: WriterId) -> Result<Self> {
        let hidden = WriterId { nonce: writer.nonce.wrapping_add(1), ..writer };
        let (new, names) = (new.to_string(), Names::new(new));
        let who = format!("process {} copies run {run:?}", std::process::id());
        let blocker = Opening { run: new.clone(), writer: hidden, time: now(), who };
        remove_stale_openings(to.last.as_ref(), &Log::read(to.last.clone(), &new)?)?;
        match to.last.commit(&names.entry(BLOCKER), &blocker.write())? {
            true => Ok(UnfinishedCopy { to, new, names, blocker, writer }),
            false => Err(Error::usage(format!("there is a run {new:?} already"))
                .at(to.last.name())
                .hint("choose another name")),
        }
    }

    fn commit(&self, manifest: Manifest) -> Result<()> {
        let manifest = with_branches(self.to.last.as_ref(), &self.names, manifest)?;
        match self.to.last.commit(&self.names.entry(manifest.sequence), &manifest.write())? {
            true => Ok(()),
            false => Err(self.taken()),
        }
    }

    fn taken(&self) -> Error {
        Error::new(
            ErrorKind::Busy,
            format!("another process has opened or removed run {:?}", self.new),
        )
        .at(self.to.last.name())
        .hint("choose another name, or copy again")
    }

    /// Makes the copy visible, if everything of it is there and nobody has taken its name.
    fn appear(&self, plan: &CopyPlan) -> Result<()> {
        let last = &self.to.last;
        let key = self.names.entry(BLOCKER);
        let blocker = last.open(&key).and_then(|blob| crate::store::read_small(blob.as_ref()));
        if blocker.map_err(|_| self.taken())? != self.blocker.write() {
            return Err(self.taken());
        }
        let mut expected: Vec<Sequence> =
            plan.checkpoints.iter().map(|(_, copy)| copy.sequence).collect();
        expected.insert(0, BLOCKER);
        self.check(plan, &expected)?;
        last.delete(&[key])?;
        last.settle(&self.names.log())?;
        // Another process that took the name at the same moment may have removed packs.
        self.check(plan, &expected[1..])
    }

    /// Refuses a log of other entries, and packs that are missing.
    fn check(&self, plan: &CopyPlan, expected: &[Sequence]) -> Result<()> {
        let log = Log::read(self.to.last.clone(), &self.new)?;
        let packs = self.to.last.list(&self.names.packs())?;
        let packs: BTreeSet<PackName> =
            packs.iter().filter_map(|item| Names::parse_pack(&item.name)).collect();
        let whole = plan.names.values().all(|name| packs.contains(name));
        match whole && log.sequences == expected && log.openings.is_empty() {
            true => Ok(()),
            false => Err(self.taken()),
        }
    }

    /// Removes what was written, what hides it last.
    fn remove(&self, plan: &CopyPlan) -> Result<()> {
        let last = &self.to.last;
        let own = |key: &String| -> bool {
            let bytes = last.open(key).and_then(|blob| crate::store::read_small(blob.as_ref()));
            let entry = bytes.and_then(|bytes| crate::format::LogEntry::parse(&bytes));
            entry.is_ok_and(|entry| [self.writer, self.blocker.writer].contains(&entry.head().2))
        };
        let entries = plan.checkpoints.iter().map(|(_, copy)| self.names.entry(copy.sequence));
        let entries: Vec<String> = entries.filter(own).collect();
        let branches = last.list(&self.names.branches())?;
        let branches = branches.iter().filter_map(|item| Names::parse_branch(&item.name));
        let branches = branches.filter(|name| name.writer == self.writer);
        let branches: Vec<String> = branches.map(|name| self.names.branch(name)).collect();
        let packs: Vec<String> = plan.names.values().map(|name| self.names.pack(*name)).collect();
        let blocker = Some(self.names.entry(BLOCKER)).filter(own);
        for keys in [entries, branches, packs, blocker.into_iter().collect()] {
            if !keys.is_empty() {
                last.delete(&keys)?;
            }
        }
        last.settle(&self.names.log())
    }
}
