//! Rebuilding what was on nodes that are lost, on whatever nodes there are now.
//!
//! Each node says which parity files its store holds, and then which of the objects that these describe. From that a plan
//! is made ([`plan`](super::plan)). Everything that it uses is read and checked against its digest first, and a part
//! that is damaged counts as lost, until the plan needs nothing that is. Then the nodes send what they hold to the
//! target of each job, combined, piece by piece; the target combines that, which yields the lost string from front to
//! back, and puts each object into its store once its digest is right.

use super::census::{ABSENT, Census, HeldPart, OTHER, PRESENT, SetRecord};
use super::nodes::{NodeRanks, garbled, pack_numbers, pack_parts, unpack_numbers, unpack_parts};
use super::plan::{LostObject, RebuildJob, RebuildPlan, plan};
use super::protect::block;
use super::strings::{ObjectString, digest_of_blob, xor};
use crate::array::Rank;
use crate::comm::{Comm, Wire, wire};
use crate::error::{Error, Result};
use crate::format::{PARITY_TRAILER, ParityHead, ParityMember, ParityName, Striping};
use crate::merkle::Digester;
use crate::store::{Blob, Put, Store};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Result of a rebuild: the rebuilt objects, and the lost ones.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Rebuilt {
    /// The keys of objects that were rebuilt: each is in the store of some node now.
    pub(crate) made: Vec<String>,
    /// Objects that are wanted, that no node has, and that cannot be rebuilt.
    pub(crate) lost: Vec<LostObject>,
    /// Parity files and stores that could not be read.
    pub(crate) notes: Vec<String>,
}

wire! { struct Rebuilt { made, lost, notes } }

impl Rebuilt {
    /// Notes for people.
    pub(crate) fn sentences(self) -> Vec<String> {
        /// Objects that are named one by one.
        const NAMED: usize = 4;
        let mut all = self.notes;
        if !self.made.is_empty() {
            all.push(format!(
                "{} lost files of nodes were rebuilt from data that other nodes keep",
                self.made.len()
            ));
        }
        let named = self.lost.iter().take(NAMED);
        all.extend(named.map(|lost| {
            format!("{} of node {} cannot be rebuilt: {}", lost.key, lost.node, lost.why)
        }));
        let more = self.lost.len().saturating_sub(NAMED);
        all.extend((more > 0).then(|| format!("{more} more files cannot be rebuilt")));
        all
    }
}

/// Rebuilds the objects of a run that are wanted, that parity files know and that no node has; collective. Only the first
/// rank is asked what is wanted; all ranks get the same result.
pub(crate) fn rebuild(
    ranks: &NodeRanks,
    store: &dyn Store,
    run: &str,
    wanted: &dyn Fn(&str) -> bool,
    piece: u64,
) -> Result<Rebuilt> {
    let done = ranks.together("take part in rebuilding", Ok(()), |heads, ()| {
        let part = RebuildPart { heads, store, run, piece, node: heads.rank().0 };
        part.work(wanted).map(Ok)
    })?;
    let mut bytes = done.unwrap_or_default().to_letter();
    ranks.comm.broadcast(Rank(0), &mut bytes)?;
    Rebuilt::from_letter(&bytes)
}

/// The parity files that a store holds, and those that cannot be read.
pub(super) fn survey(store: &dyn Store, run: &str) -> (Vec<ParityHead>, Vec<Error>) {
    let (mut heads, mut bad) = (Vec::new(), Vec::new());
    let items = store.list(&ParityName::folder(run)).unwrap_or_else(|error| {
        bad.push(error);
        Vec::new()
    });
    for name in items.iter().filter_map(|item| ParityName::parse(&item.name)) {
        let key = name.key(run);
        match store.open(&key).and_then(|blob| read_head(&*blob)) {
            Ok(head) if head.name == name && head.run == run => heads.push(head),
            Ok(_) => bad.push(Error::damaged("a parity file has the name of another").at(key)),
            Err(error) => bad.push(error.at(key)),
        }
    }
    (heads, bad)
}

fn read_head(blob: &dyn Blob) -> Result<ParityHead> {
    let short = || Error::damaged("a parity file is cut off");
    let at = blob.size().checked_sub(PARITY_TRAILER).ok_or_else(short)?;
    let mut trailer = [0; PARITY_TRAILER as usize];
    blob.read_at(at, &mut trailer)?;
    let len = ParityHead::tail_len(&trailer, blob.size())?;
    let mut bytes = crate::memory::zeroed(len)?;
    blob.read_at(at - len, &mut bytes)?;
    let head = ParityHead::parse(&bytes)?;
    match head.body() == at - len {
        true => Ok(head),
        false => Err(short()),
    }
}

/// One node's part.
struct RebuildPart<'a> {
    heads: &'a dyn Comm,
    store: &'a dyn Store,
    run: &'a str,
    piece: u64,
    node: u32,
}

impl RebuildPart<'_> {
    fn work(&self, wanted: &dyn Fn(&str) -> bool) -> Result<Rebuilt> {
        let (mut census, notes) = self.census(wanted)?;
        let nodes = self.heads.size();
        let mut planned = plan(&census, nodes);
        let mut sound = BTreeSet::new();
        while self.check(&mut census, &planned, &mut sound)? {
            planned = plan(&census, nodes);
        }
        let mut made = Vec::new();
        let mut lost = Vec::new();
        for wave in &planned.waves {
            self.carry_out(&census, wave, &mut made, &mut lost)?;
        }
        self.result(Rebuilt { made, lost, notes }, planned)
    }

    /// Brings something to the first node, lets it be joined there, and hands the result to all.
    fn joined(
        &self,
        own: &[u8],
        join: impl FnOnce(Vec<Vec<u8>>) -> Result<Vec<u8>>,
    ) -> Result<Vec<u8>> {
        let all = self.heads.gather(Rank(0), own)?;
        let mut bytes = match self.node {
            0 => join(all)?,
            _ => Vec::new(),
        };
        self.heads.broadcast(Rank(0), &mut bytes)?;
        Ok(bytes)
    }

    /// Finds everything that is left.
    fn census(&self, wanted: &dyn Fn(&str) -> bool) -> Result<(Census, Vec<String>)> {
        // Remains of an earlier writer are of no use here, and not in the way if they stay.
        let _ = self.store.sweep(&ParityName::folder(self.run));
        let (heads, bad) = survey(self.store, self.run);
        let own: Vec<Vec<u8>> = heads.iter().map(ParityHead::write).collect();
        let bytes = self.joined(&pack_parts(&own), |all| {
            let parse = |bytes: &Vec<u8>| {
                unpack_parts(bytes)?.into_iter().map(ParityHead::parse).collect::<Result<Vec<_>>>()
            };
            let found = all.iter().map(parse).collect::<Result<Vec<_>>>()?;
            Ok(Census::new(&found, wanted).write())
        })?;
        let census = Census::parse(&bytes)?;
        let notes = bad.iter().map(|error| format!("{}: {error}", self.store.name()));
        let notes: Vec<String> = notes.collect();
        let own = pack_parts(&[self.states(&census), pack_parts(&notes)]);
        let bytes = self.joined(&own, |all| {
            let mut census = census.clone();
            let mut notes = Vec::new();
            for (node, bytes) in (0..).zip(&all) {
                let parts = unpack_parts(bytes)?;
                let [states, of_node] = parts[..] else { return Err(garbled()) };
                census.add(node, states);
                notes.extend(unpack_parts(of_node)?.into_iter().map(<[u8]>::to_vec));
            }
            Ok(pack_parts(&[census.write(), pack_parts(&notes)]))
        })?;
        let parts = unpack_parts(&bytes)?;
        let [census, notes] = parts[..] else { return Err(garbled()) };
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Ok((Census::parse(census)?, unpack_parts(notes)?.into_iter().map(text).collect()))
    }

    /// The state of each of the objects on this node. A folder that cannot be listed has none.
    fn states(&self, census: &Census) -> Vec<u8> {
        let mut folders: HashMap<&str, HashMap<String, u64>> = HashMap::new();
        let mut states = Vec::new();
        for (key, size) in census.keys() {
            let (folder, file) = key.rsplit_once('/').unwrap_or(("", key));
            let items = folders.entry(folder).or_insert_with(|| {
                let items = self.store.list(folder).unwrap_or_default();
                let files = items.into_iter().filter(|item| !item.folder);
                files.map(|item| (item.name, item.size)).collect()
            });
            states.push(match items.get(file) {
                None => ABSENT,
                Some(has) if *has == size => PRESENT,
                Some(_) => OTHER,
            });
        }
        states
    }

    /// Reads what a plan uses of this node's store; whether something is damaged, which the census then lacks.
    fn check(
        &self,
        census: &mut Census,
        planned: &RebuildPlan,
        sound: &mut BTreeSet<HeldPart>,
    ) -> Result<bool> {
        let mut damaged = Vec::new();
        let jobs = planned.waves.iter().flatten();
        for part in jobs.flat_map(|job| job.given_by(self.node)) {
            if sound.contains(&part) || damaged.contains(&part) {
                continue;
            }
            match self.is_sound(census, part) {
                true => drop(sound.insert(part)),
                false => damaged.push(part),
            }
        }
        let own = pack_numbers(damaged.iter().flat_map(|part| part.write()));
        let bytes = self.joined(&own, |all| Ok(pack_parts(&all)))?;
        let mut any = false;
        for (node, parts) in (0..).zip(unpack_parts(&bytes)?) {
            for part in unpack_numbers(parts).chunks(4) {
                census.remove(node, HeldPart::parse(part).ok_or_else(garbled)?);
                any = true;
            }
        }
        Ok(any)
    }

    /// Whether a part has its digest. One that cannot be read has not.
    fn is_sound(&self, census: &Census, part: HeldPart) -> bool {
        let checked = match part {
            HeldPart::Slot { set, slot } => {
                let key = slot_key(&census.sets[set], slot);
                self.store.open(&key).and_then(|blob| {
                    let head = read_head(&*blob)?;
                    Ok(digest_of_blob(&*blob, head.body())? == head.digest)
                })
            }
            HeldPart::Object { set, member, object } => {
                let object = &census.sets[set].head.members[member].objects[object];
                self.store
                    .open(&object.key)
                    .and_then(|blob| Ok(digest_of_blob(&*blob, object.size)? == object.digest))
            }
        };
        checked.unwrap_or(false)
    }

    /// Carries out jobs that share no node.
    fn carry_out(
        &self,
        census: &Census,
        jobs: &[RebuildJob],
        made: &mut Vec<String>,
        lost: &mut Vec<LostObject>,
    ) -> Result<()> {
        let size = |job: &RebuildJob| {
            let member = &census.sets[job.set].head.members[job.member];
            member.bytes().div_ceil(self.block(census, job)).max(1)
        };
        let rounds = jobs.iter().map(size).max().unwrap_or(0);
        let own = jobs.iter().find(|job| job.nodes().contains(&self.node));
        let mut giver =
            own.map(|job| Giver::new(self.store, &census.sets[job.set], job, self.node));
        let mut taker = own
            .filter(|job| job.target == self.node)
            .map(|job| Taker::new(self.store, &census.sets[job.set].head.members[job.member], job));
        for round in 0..rounds {
            let mut message = Vec::new();
            let mut target = self.node;
            if let (Some(giver), Some(job)) = (&mut giver, own) {
                let block = self.block(census, job);
                target = job.target;
                message = giver.give(round * block, block);
            }
            let messages = [(Rank(target), &message[..])];
            let elsewhere = target != self.node && !message.is_empty();
            let received = self.heads.exchange(if elsewhere { &messages } else { &[] })?;
            if let (Some(taker), Some(job)) = (&mut taker, own) {
                let others = received.into_iter().map(|(_, bytes)| bytes);
                taker.take(round * self.block(census, job), others.chain([message]));
            }
        }
        if let Some(mut taker) = taker {
            taker.end_all(Error::damaged("not all of it has come"));
            made.extend(taker.made);
            lost.extend(taker.lost);
        }
        Ok(())
    }

    /// The bytes of a lost string that are rebuilt in a round, so that what comes from all nodes at once is bounded.
    fn block(&self, census: &Census, job: &RebuildJob) -> u64 {
        let striping = census.sets[job.set].head.striping();
        block(striping, self.piece / job.nodes().len() as u64)
    }

    /// Joins what all targets have made.
    fn result(&self, own: Rebuilt, planned: RebuildPlan) -> Result<Rebuilt> {
        let Rebuilt { made, lost, notes } = own;
        let own = Rebuilt { made, lost, notes: Vec::new() }.to_letter();
        let all = self.heads.gather(Rank(0), &own)?;
        let mut joined = Rebuilt { made: Vec::new(), lost: planned.lost, notes };
        for bytes in all {
            let of_node = Rebuilt::from_letter(&bytes)?;
            joined.made.extend(of_node.made);
            joined.lost.extend(of_node.lost);
        }
        joined.made.sort();
        joined.lost.sort();
        Ok(joined)
    }
}

fn slot_key(record: &SetRecord, slot: usize) -> String {
    ParityName { slot: slot as u32, ..record.head.name }.key(&record.head.run)
}

/// The part of a node that gives data to a job.
struct Giver<'a> {
    store: &'a dyn Store,
    record: &'a SetRecord,
    job: &'a RebuildJob,
    striping: Striping,
    /// The slots that it holds, opened when they are needed.
    slots: Vec<(usize, Option<Box<dyn Blob>>)>,
    /// The members of whose objects it holds some.
    strings: Vec<(usize, ObjectString<'a>)>,
}

/// The first byte of what a node gives.
const FINE: u8 = 0;
const FAILED: u8 = 1;

impl<'a> Giver<'a> {
    fn new(store: &'a dyn Store, record: &'a SetRecord, job: &'a RebuildJob, node: u32) -> Self {
        let mut slots = Vec::new();
        let mut held: BTreeMap<usize, Vec<bool>> = BTreeMap::new();
        for part in job.given_by(node) {
            match part {
                HeldPart::Slot { slot, .. } => slots.push((slot, None)),
                HeldPart::Object { member, object, .. } => {
                    let none = || vec![false; record.objects[member].len()];
                    held.entry(member).or_insert_with(none)[object] = true;
                }
            }
        }
        let string = |(member, held): (usize, Vec<bool>)| {
            let objects = &record.head.members[member].objects;
            (member, ObjectString::new(store, objects, held))
        };
        let strings = held.into_iter().map(string).collect();
        Giver { store, record, job, striping: record.head.striping(), slots, strings }
    }

    /// Everything that it holds of a piece of the lost string, combined. Nothing if it holds nothing.
    fn give(&mut self, start: u64, block: u64) -> Vec<u8> {
        let lost = self.record.head.members[self.job.member].bytes();
        let len = lost.saturating_sub(start).min(block);
        if len == 0 || (self.slots.is_empty() && self.strings.is_empty()) {
            return Vec::new();
        }
        let rows = len.div_ceil(self.striping.row());
        let mut sum = vec![0; (rows * self.striping.row()) as usize];
        let given =
            self.add_slots(start, &mut sum).and_then(|()| self.add_strings(start, &mut sum));
        sum.truncate(len as usize);
        match given {
            Ok(()) => [&[FINE], &sum[..]].concat(),
            Err(error) => [&[FAILED], error.to_string().as_bytes()].concat(),
        }
    }

    fn add_slots(&mut self, start: u64, sum: &mut [u8]) -> Result<()> {
        let lens: Vec<u64> = self.record.head.members.iter().map(ParityMember::bytes).collect();
        let Striping { stripe, .. } = self.striping;
        let (row, rows) = (self.striping.row(), sum.len() as u64 / self.striping.row());
        for (slot, open) in &mut self.slots {
            let Some(lane) = self.striping.lane(self.job.member, *slot) else { continue };
            let from = start / row * stripe;
            let body = self.striping.slot_len(&lens, *slot);
            let mut part = vec![0; body.saturating_sub(from).min(rows * stripe) as usize];
            let blob = match open {
                Some(blob) => blob,
                None => open.insert(self.store.open(&slot_key(self.record, *slot))?),
            };
            blob.read_at(from, &mut part)?;
            let stripes = part.chunks(stripe as usize);
            for (of_row, bytes) in sum.chunks_mut(row as usize).zip(stripes) {
                xor(&mut of_row[lane * stripe as usize..], bytes);
            }
        }
        Ok(())
    }

    fn add_strings(&mut self, start: u64, sum: &mut [u8]) -> Result<()> {
        let striping = self.striping;
        let (row, stripe) = (striping.row() as usize, striping.stripe as usize);
        let mut piece = vec![0; if self.strings.is_empty() { 0 } else { sum.len() }];
        for (member, string) in &mut self.strings {
            string.read(start, &mut piece, &mut |_, _| {})?;
            for (of_row, from) in sum.chunks_mut(row).zip(piece.chunks(row)) {
                for lane in 0..striping.lanes() {
                    let slot = striping.slot(*member, lane);
                    // The slot of the lost member has nothing of it.
                    if let Some(into) = striping.lane(self.job.member, slot) {
                        xor(&mut of_row[into * stripe..], &from[lane * stripe..][..stripe]);
                    }
                }
            }
        }
        Ok(())
    }
}

/// The target of a job.
struct Taker<'a> {
    store: &'a dyn Store,
    member: &'a ParityMember,
    job: &'a RebuildJob,
    /// The next object, and the place in the string where it begins.
    next: usize,
    begin: u64,
    put: Option<(Box<dyn Put>, Digester)>,
    made: Vec<String>,
    lost: Vec<LostObject>,
}

impl<'a> Taker<'a> {
    fn new(store: &'a dyn Store, member: &'a ParityMember, job: &'a RebuildJob) -> Self {
        let (made, lost) = (Vec::new(), Vec::new());
        Taker { store, member, job, next: 0, begin: 0, put: None, made, lost }
    }

    /// Combines what all nodes have given of a piece.
    fn take(&mut self, start: u64, given: impl Iterator<Item = Vec<u8>>) {
        let mut sum: Vec<u8> = Vec::new();
        let mut failed = None;
        for bytes in given.filter(|bytes| !bytes.is_empty()) {
            match bytes.split_first() {
                Some((&FINE, bytes)) => {
                    sum.resize(sum.len().max(bytes.len()), 0);
                    xor(&mut sum, bytes);
                }
                Some((_, why)) => failed = Some(String::from_utf8_lossy(why).into_owned()),
                None => {}
            }
        }
        match failed {
            None => self.append(start, &sum),
            Some(why) => self.end_all(Error::damaged(why)),
        }
    }

    /// Gives up what has not ended yet.
    fn end_all(&mut self, error: Error) {
        while self.next < self.member.objects.len() {
            self.end(Err(error.clone()));
        }
    }

    /// Divides the string into objects again.
    fn append(&mut self, start: u64, bytes: &[u8]) {
        let end = start + bytes.len() as u64;
        while let Some(object) = self.member.objects.get(self.next) {
            let last = self.begin + object.size;
            let begins = self.begin >= start && (self.begin < end || object.size == 0);
            if begins && self.put.is_none() {
                self.open();
            }
            let (from, to) = (self.begin.max(start), last.min(end));
            if from < to
                && let Some((put, digester)) = &mut self.put
            {
                let part = &bytes[(from - start) as usize..(to - start) as usize];
                digester.update(part);
                if let Err(error) = put.append(part) {
                    self.end(Err(error));
                    continue;
                }
            }
            if last > end {
                return;
            }
            self.end(Ok(()));
        }
    }

    fn is_wanted(&self) -> bool {
        self.job.objects.contains(&self.next)
    }

    fn open(&mut self) {
        if !self.is_wanted() {
            return;
        }
        match self.store.put(&self.member.objects[self.next].key) {
            Ok(put) => self.put = Some((put, Digester::new())),
            Err(error) => self.lose(error),
        }
    }

    /// Ends the next object: it appears if all of it has come and its digest is right.
    fn end(&mut self, so_far: Result<()>) {
        let object = &self.member.objects[self.next];
        if let Some((put, digester)) = self.put.take() {
            let right = digester.finish() == object.digest;
            let done = so_far.and_then(|()| match right {
                true => put.finish(),
                false => Err(Error::damaged("the rebuilt data has another digest")),
            });
            match done {
                Ok(()) => self.made.push(object.key.clone()),
                Err(error) => self.lose(error),
            }
        } else if let Err(error) = so_far
            && self.is_wanted()
        {
            self.lose(error);
        }
        self.begin += object.size;
        self.next += 1;
    }

    fn lose(&mut self, error: Error) {
        let key = self.member.objects[self.next].key.clone();
        let (node, why) = (self.member.node.clone(), error.to_string());
        if !self.lost.iter().any(|lost| lost.key == key) {
            self.lost.push(LostObject { key, node, why });
        }
    }
}
