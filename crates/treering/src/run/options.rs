//! Everything that can be chosen about a run, checked once.

use super::aggregate::{Aggregation, AggregatorLink, no_node_store};
use super::reference::Reference;
use super::schedule::Every;
use crate::array::{DType, Labels};
use crate::capture::{CaptureSettings, ProgressCall};
use crate::codec::Encoding;
use crate::comm::Comm;
use crate::compact::Compaction;
#[cfg(feature = "tools")]
use crate::compare::CompareSettings;
use crate::compare::TreeSettings;
use crate::error::{Error, Result};
use crate::format::check_run_name;
use crate::lineage::{ChunkSize, Method};
use crate::merkle::bounded::{Bound, Recipe};
use crate::merkle::checksum;
use crate::redundancy::Redundancy;
use crate::replica::ReplicaSettings;
use crate::retention::Keep;
use crate::save::{Growth, Tiers, WriterSettings};
use crate::store::{DirectoryStore, Store};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// The least memory for staged data.
pub(super) const LEAST_STAGING: u64 = 1 << 20;
/// The least memory of an aggregator.
const LEAST_AGGREGATOR: u64 = 8 << 20;

/// Reaction of a checkpoint to full staging memory.
///
/// ```
/// use treering::{Options, Overload, Run, Variable};
/// # let folder = tempfile::tempdir().unwrap();
/// # let store = folder.path().join("store");
/// let mut run = Run::open(Options::directory(&store, "rod").overload(Overload::Skip))?;
/// let save = run.checkpoint(0, &[Variable::new("heat", &[1.0f64; 100])])?;
/// if save.is_skipped() {
///     eprintln!("the store is slow: step 0 was not saved");
/// }
/// # Ok::<(), treering::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Overload {
    /// Block the program until there is room.
    #[default]
    Wait,
    /// Skip this checkpoint, unless nothing else is staged. The last one ([`Due::Last`](crate::Due::Last)) is never skipped.
    Skip,
}

/// Options of a run. Every option has a default; only the store and the name of the run must be given.
///
/// ```
/// use treering::{Bound, Every, Options, Overload, Run};
/// # let folder = tempfile::tempdir().unwrap();
/// # let store = folder.path().join("store");
/// let options = Options::directory(&store, "rod")
///     .every(Every::Steps(100)) // `Run::due` asks for a checkpoint every 100 steps
///     .staging(64 << 20) // memory for copies that wait to be written
///     .overload(Overload::Skip) // skip a checkpoint rather than wait for memory
///     .bound("*", Bound::abs(1e-6)); // trees, so that runs can be compared within this bound
/// let run = Run::open(options)?; // invalid options are refused here, and nothing is written
/// # run.finish()?;
/// # Ok::<(), treering::Error>(())
/// ```
#[derive(Clone)]
pub struct Options {
    pub(crate) writer: WriterSettings,
    pub(crate) keep: Option<Keep>,
    pub(crate) progress: Option<ProgressCall>,
    pub(crate) save_progress: Option<ProgressCall>,
    pub(crate) staging: u64,
    pub(crate) overload: Overload,
    pub(crate) bounds: Vec<(String, Bound)>,
    pub(crate) trees: TreeSettings,
    pub(crate) trees_only: bool,
    pub(crate) reference: Option<Reference>,
    pub(crate) ranks: Option<Arc<dyn Comm>>,
    pub(crate) patience: Duration,
    pub(crate) ranks_per_pack: u32,
    pub(crate) shared_every: u32,
    pub(crate) redundancy: Redundancy,
    pub(crate) domain: Option<String>,
    pub(crate) aggregator: Option<Arc<AggregatorLink>>,
    pub(crate) aggregator_memory: u64,
    pub(crate) replicas: u32,
    pub(crate) replica_settings: ReplicaSettings,
    pub(crate) spares: u32,
    pub(crate) every: Option<Every>,
    pub(crate) deadline: Option<SystemTime>,
    pub(crate) signals: bool,
    pub(crate) labels: Labels,
}

impl Options {
    /// Options of a run in a store that is a folder; the folder is created if need be.
    pub fn directory(folder: impl AsRef<Path>, run: &str) -> Self {
        Self::in_store(Arc::new(DirectoryStore::new(folder.as_ref())), run)
    }

    /// Options of a run in any store.
    pub fn in_store(store: Arc<dyn Store>, run: &str) -> Self {
        Options {
            writer: WriterSettings {
                run: run.to_string(),
                tiers: Tiers { near: Vec::new(), last: store },
                chunk: ChunkSize::default(),
                method: Method::Tree,
                encoding: Encoding::default(),
                record: 1 << 30,
                growth: Growth::default(),
                compaction: Some(Compaction::default()),
                together: 4 << 20,
            },
            keep: None,
            progress: None,
            save_progress: None,
            staging: 1 << 30,
            overload: Overload::Wait,
            bounds: Vec::new(),
            trees: TreeSettings::default(),
            trees_only: false,
            reference: None,
            ranks: None,
            patience: Duration::from_secs(600),
            ranks_per_pack: 32,
            shared_every: 1,
            redundancy: Redundancy::None,
            domain: None,
            aggregator: None,
            aggregator_memory: 64 << 20,
            replicas: 0,
            replica_settings: ReplicaSettings::default(),
            spares: 0,
            every: None,
            deadline: None,
            signals: false,
            labels: Labels::default(),
        }
    }

    /// Opens the run together with other ranks of a parallel program: every checkpoint is of all ranks, or of none.
    ///
    /// [`Run::open`](crate::Run::open), `checkpoint`, `restore`, `restore_step` and `finish` are collective then: all
    /// ranks call them in the same order. Each rank passes its own variables. Boxes of a global array
    /// ([`Variable::part_of`](crate::Variable::part_of)), rows and variables that are equal on all ranks can be restored on
    /// any number of ranks; every other variable needs the same number.
    #[must_use]
    pub fn ranks(mut self, comm: Arc<dyn Comm>) -> Self {
        self.ranks = Some(comm);
        self
    }

    /// Time for which ranks wait for each other in a collective call before an error of kind
    /// [`ErrorKind::Late`](crate::ErrorKind::Late) names those that are missing. Votes travel along a tree with eight
    /// branches, so the error may come after a multiple of this time: at most twice with up to 9 ranks, three times with up
    /// to 73, and so on. [`Save::durable`](crate::Save::durable) also waits no longer than this for the parts of other ranks.
    /// Default: 10 minutes.
    #[must_use]
    pub fn patience(mut self, limit: Duration) -> Self {
        self.patience = limit;
        self
    }

    /// The most ranks of a node that share a pack. One of them writes it, behind its program; each of the others
    /// encodes its own large variables and hands them over in memory. 1: every rank writes a pack of its own.
    /// Default: 32.
    #[must_use]
    pub fn ranks_per_pack(mut self, ranks: u32) -> Self {
        self.ranks_per_pack = ranks;
        self
    }

    /// Bytes of each rank that the writing rank of a pack encodes together with the data of the other ranks; variables below
    /// 256 KiB always are. Larger values make packs smaller where values repeat from rank to rank, and use fewer cores for
    /// encoding. Default: 4 MiB.
    #[must_use]
    pub fn pack_together(mut self, bytes: u64) -> Self {
        self.writer.together = bytes;
        self
    }

    /// Opens the run together with the other compute ranks of an [`Aggregation`], instead of [`Options::ranks`]. This
    /// rank then encodes nothing: changed data is copied to memory that its aggregator reads. A rank that has no
    /// aggregator on its node encodes and writes as usual.
    ///
    /// **Caution**: the copy takes memory in addition to the staging memory, as much as has changed since the last
    /// checkpoint, until the aggregator has packed it.
    #[must_use]
    pub fn aggregated(mut self, aggregation: &Aggregation) -> Self {
        (self.ranks, self.aggregator) = (Some(aggregation.comm()), aggregation.link());
        self
    }

    /// Memory of an aggregator for data on its way from ranks to packs. Default: 64 MiB. Descriptions of variables and of
    /// their changes come on top, as does the record of stored chunks ([`Options::record`]).
    #[must_use]
    pub fn aggregator_memory(mut self, bytes: u64) -> Self {
        self.aggregator_memory = bytes;
        self
    }

    /// Puts a node's own store in front: checkpoints are staged there before they move to the shared store. Called again,
    /// this puts another store in front of that one.
    ///
    /// With several ranks, every rank gives the store of its own node, once; ranks of one node
    /// ([`Comm::node`](crate::Comm::node)) give the same folder.
    #[must_use]
    pub fn node(mut self, store: Arc<dyn Store>) -> Self {
        self.writer.tiers.near.insert(0, store);
        self
    }

    /// Interval, in checkpoints, at which one goes to the shared store; the others stay in the stores of the nodes
    /// ([`Options::node`]), where the two newest complete ones are kept.
    /// [`Run::checkpoint_shared`](crate::Run::checkpoint_shared) brings one there on request, and
    /// [`Run::finish`](crate::Run::finish) the last one. Default: 1, every checkpoint. Where ranks differ, the least counts.
    ///
    /// **Caution**: a checkpoint that is only on nodes is lost if one of them is, unless they protect each other
    /// ([`Options::redundancy`]).
    #[must_use]
    pub fn shared_every(mut self, checkpoints: u32) -> Self {
        self.shared_every = checkpoints;
        self
    }

    /// Redundancy between nodes for checkpoints that are not in the shared store yet; the same on all ranks. Default:
    /// [`Redundancy::None`].
    ///
    /// The data is sent between nodes on the program's thread, at the first call after a checkpoint: the next
    /// [`checkpoint`](crate::Run::checkpoint), or an earlier [`Run::make_redundant`](crate::Run::make_redundant). If a node is lost after
    /// that, the next [`Run::open`](crate::Run::open) or `treering drain` rebuilds its part. If a node has no room for the
    /// data of others, [`Run::notes`](crate::Run::notes) reports it and the run continues.
    #[must_use]
    pub fn redundancy(mut self, redundancy: Redundancy) -> Self {
        self.redundancy = redundancy;
        self
    }

    /// Number of copies of every state in the memory of the ranks, at most one of them on the rank that it comes from:
    /// after deaths the survivors restore the newest state without any store. Every
    /// [`checkpoint`](crate::Run::checkpoint) also updates these copies, and [`Run::replicate`](crate::Run::replicate) does
    /// nothing else. A rank that is alone keeps its states in its own memory. The same on all ranks. Default: 0, none.
    ///
    /// Two generations are held for a moment, so memory for twice as many copies of the state is needed; see
    /// [`ReplicaSettings::budget`].
    #[must_use]
    pub fn replicas(mut self, copies: u32) -> Self {
        self.replicas = copies;
        self
    }

    /// Settings of replicas; the same on all ranks. [`Options::domain`] names the ranks that may fail together.
    #[must_use]
    pub fn replica_settings(mut self, settings: ReplicaSettings) -> Self {
        self.replica_settings = settings;
        self
    }

    /// Number of ranks, the last ones, that wait as spares and take the places of ranks that die; for
    /// [`survive`](crate::survive) only. Default: 0.
    #[must_use]
    pub fn spares(mut self, ranks: u32) -> Self {
        self.spares = ranks;
        self
    }

    /// Failure domain of this rank's node, for example the name of a switch or a power supply. Nodes are protected by nodes
    /// of other domains where there are enough of them; [`Run::notes`](crate::Run::notes) reports otherwise. Default: every
    /// node is its own domain.
    #[must_use]
    pub fn domain(mut self, name: &str) -> Self {
        self.domain = Some(name.to_string());
        self
    }

    /// Size of the chunks by which changes are found. Default: 512 bytes.
    #[must_use]
    pub fn chunk(mut self, chunk: ChunkSize) -> Self {
        self.writer.chunk = chunk;
        self
    }

    /// Method by which checkpoints are reduced to new data. Default: [`Method::Tree`].
    #[must_use]
    pub fn method(mut self, method: Method) -> Self {
        self.writer.method = method;
        self
    }

    /// Encoding of new data. Default: chosen by sampling each variable, with [`Aim::Balanced`](crate::Aim).
    #[must_use]
    pub fn encoding(mut self, encoding: Encoding) -> Self {
        self.writer.encoding = encoding;
        self
    }

    /// Memory for copies that wait to be written. Default: 1 GiB. The ranks of a node share it evenly.
    ///
    /// A checkpoint of which more has changed streams through it and blocks the program meanwhile.
    /// However small they are, at most 16 checkpoints are under way at a time.
    #[must_use]
    pub fn staging(mut self, bytes: u64) -> Self {
        self.staging = bytes;
        self
    }

    /// Memory for the record of stored chunks (29 to 57 bytes for each). Default: 1 GiB. The ranks of a node share it
    /// evenly. When it is full, repeated content is found only where it is in the record already.
    #[must_use]
    pub fn record(mut self, bytes: u64) -> Self {
        self.writer.record = bytes;
        self
    }

    /// Reaction to full staging memory. Default: [`Overload::Wait`].
    #[must_use]
    pub fn overload(mut self, overload: Overload) -> Self {
        self.overload = overload;
        self
    }

    /// Permitted extra cost of a restore, as a part of that of its epoch's first checkpoint, which holds everything.
    /// When the deltas come to that, a whole checkpoint begins the next epoch: small values restore faster,
    /// large ones store less. Default: 1.0, but at least the equivalent of reading 64 MiB, so that small states
    /// are not written whole again and again; a value given here counts alone.
    #[must_use]
    pub fn growth(mut self, part: f64) -> Self {
        self.writer.growth = Growth::of(part);
        self
    }

    /// Compacts closed epochs of small packs behind the program: their manifests and packs become a few files
    /// in the last tier. Default: when 128 files would go, of epochs whose packs have 256 KiB or less on
    /// average. `None`: never. `treering compact` does the same at any time.
    #[must_use]
    pub fn compact(mut self, rule: Option<Compaction>) -> Self {
        self.writer.compaction = rule;
        self
    }

    /// Removes old checkpoints behind the program, when a newer one has reached the last tier: the newest `last` stay, and
    /// also those whose step is a multiple of `every`. Default: all stay.
    ///
    /// The plan of `treering prune` chooses the checkpoints: never the newest one, nor the newest that was verified, nor the
    /// newest of a second epoch, nor one that is not in the last tier yet. More than `last` may therefore stay. The newest
    /// checkpoint is verified by reading its packs back; with several groups of ranks only by their footers. With several
    /// ranks the first one removes checkpoints, by its own options. [`Run::upkeep_notes`](crate::Run::upkeep_notes) reports
    /// failures.
    ///
    /// ```
    /// use treering::Options;
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let store = folder.path();
    /// let options = Options::directory(store, "rod").keep(3, Some(1000)); // the newest 3, and every 1000th step
    /// ```
    #[must_use]
    pub fn keep(mut self, last: u64, every: Option<u64>) -> Self {
        self.keep = Some(Keep { last, every, ..self.kept() });
        self
    }

    /// Limit, in bytes, of the run's size in the last tier: the oldest checkpoints are removed behind the program, as by
    /// [`Options::keep`], until the run takes no more. Default: no limit.
    ///
    /// The removal follows the save, so the run takes more for a moment: by the size of the newest checkpoint. The newest
    /// checkpoint and one of a second epoch always stay, with the packs that they build on. With the default
    /// [`growth`](Options::growth) these take up to about four times the size of a whole checkpoint. If that is more than the
    /// limit, [`Run::upkeep_notes`](crate::Run::upkeep_notes) reports the size of the run and what to try.
    #[must_use]
    pub fn limit(mut self, bytes: u64) -> Self {
        self.keep = Some(Keep { limit: Some(bytes), ..self.kept() });
        self
    }

    /// Limit, in bytes, of the size of all runs of the store together in the last tier: the oldest checkpoints of this run are
    /// removed until they take no more. Default: no limit.
    ///
    /// Checkpoints of other runs stay: programs that share a store each set the same limit, or the whole store is pruned
    /// with `treering prune STORE --store-limit SIZE`. Everything else is as with [`Options::limit`]; if both are given, both hold.
    #[must_use]
    pub fn store_limit(mut self, bytes: u64) -> Self {
        self.keep = Some(Keep { store_limit: Some(bytes), ..self.kept() });
        self
    }

    fn kept(&self) -> Keep {
        self.keep.unwrap_or(Keep::newest(u64::MAX))
    }

    /// Makes a tree of every variable whose name matches the pattern (`*` and `?`), so that runs can
    /// be compared within this bound, and larger ones, without reading their data. Several bounds for
    /// a variable make several trees, in one pass over it.
    #[must_use]
    pub fn bound(mut self, pattern: &str, bound: Bound) -> Self {
        self.bounds.push((pattern.to_string(), bound));
        self
    }

    /// Size of the chunks of trees (default: 4 KiB) and number of planes of their sketches (default: 4; 0: no sketches).
    #[must_use]
    pub fn tree(mut self, chunk: u32, planes: u8) -> Self {
        self.trees = TreeSettings { chunk, planes, ..self.trees };
        self
    }

    /// Keeps only the trees of the variables, and not their data.
    ///
    /// **Caution**: the run can then be compared, but not restored.
    #[must_use]
    pub fn trees_only(mut self) -> Self {
        self.trees_only = true;
        self
    }

    /// Compares every checkpoint, as it is captured, with that step of another run; see
    /// [`Run::divergence`](crate::Run::divergence) and
    /// [`Run::reference_report`](crate::Run::reference_report). The reference run must exist when this run
    /// is opened. Both need trees within the same bound to be fast;
    /// a bound of the settings that the trees do not serve reads the reference's data.
    ///
    /// With several ranks, all of them set it. Each compares its own variables and boxes, also if the reference has other
    /// boxes, and one more small vote joins the results.
    #[cfg(feature = "tools")]
    #[must_use]
    pub fn reference(
        mut self,
        store: Arc<dyn Store>,
        run: &str,
        settings: CompareSettings,
    ) -> Self {
        self.reference = Some(Reference { store, run: run.to_string(), settings });
        self
    }

    /// Interval at which [`Run::due`](crate::Run::due) asks for a checkpoint. Default: none.
    ///
    /// ```
    /// use std::time::Duration;
    /// use treering::{Every, Options};
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let store = folder.path();
    /// let day = Duration::from_secs(86_400);
    /// let options = Options::directory(store, "rod").every(Every::Optimum { between_failures: day });
    /// ```
    #[must_use]
    pub fn every(mut self, every: Every) -> Self {
        self.every = Some(every);
        self
    }

    /// Time at which the program will be ended. [`Run::due`](crate::Run::due) asks for the last checkpoint while there is
    /// time for it. Default: the end of a Slurm job (`SLURM_JOB_END_TIME`), otherwise none.
    #[must_use]
    pub fn deadline(mut self, deadline: SystemTime) -> Self {
        self.deadline = Some(deadline);
        self
    }

    /// Lets signals ask for checkpoints, which [`Run::due`](crate::Run::due) reports: SIGUSR1 for one, SIGTERM for the last
    /// one. A second SIGTERM ends the process. Default: signals are not handled.
    #[cfg(feature = "signals")]
    #[must_use]
    pub fn on_signals(mut self) -> Self {
        self.signals = true;
        self
    }

    /// Adds a label to every checkpoint of this run: a text under a key, such as a git commit or a parameter. `treering show`
    /// prints labels, and `treering ls --where` finds checkpoints by them; [`Run::label`](crate::Run::label) labels one
    /// checkpoint. With several ranks, all of them give the same. Keys have 1 to 64 bytes, values up to 1,024; a checkpoint
    /// has at most 64, of 4,096 bytes together.
    ///
    /// ```
    /// use treering::{Library, Options, Run, Variable};
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let store = folder.path().join("store");
    /// let heat = vec![293.15f64; 1000];
    /// let options = Options::directory(&store, "rod").label("git", "4542149").label("cells", heat.len());
    /// let mut run = Run::open(options)?;
    /// run.checkpoint(1, &[Variable::new("heat", &heat).attribute("units", "K")])?;
    /// run.finish()?;
    /// let checkpoint = Library::open(&store)?.checkpoint("rod", None)?;
    /// assert_eq!(checkpoint.labels().get("cells"), Some("1000"));
    /// # Ok::<(), treering::Error>(())
    /// ```
    #[must_use]
    pub fn label(mut self, key: &str, value: impl std::fmt::Display) -> Self {
        self.labels.set(key, value);
        self
    }

    /// Calls a function during restores with two numbers: the bytes that are filled so far, and the bytes of all arrays that
    /// are to be filled. At the end both are the same. The function is called from several threads, so it should return soon.
    /// A restore from the memory of ranks ([`Options::replicas`]) does not call it. Saves have a
    /// [function of their own](Options::on_save_progress).
    ///
    /// ```
    /// use treering::Options;
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let store = folder.path();
    /// let options = Options::directory(store, "rod").on_progress(|done, all| eprint!("\r{done} of {all} B"));
    /// ```
    #[must_use]
    pub fn on_progress(mut self, told: impl Fn(u64, u64) + Send + Sync + 'static) -> Self {
        self.progress = Some(Arc::new(told));
        self
    }

    /// Calls a function while checkpoints are saved, also while [`Run::finish`](crate::Run::finish) waits for them, with two
    /// numbers: the bytes of changed data that are packed so far, and those that were captured. Checkpoints that are under way
    /// together count together. Both are the same when nothing is under way any more; all checkpoints for the last tier are
    /// then durable, and the numbers begin anew. A save that fails is still under way until
    /// [`Run::failures`](crate::Run::failures) has told of it. With several ranks, each hears of its own data.
    ///
    /// The function is called from several threads, one call at a time. It should return soon and must not call the run. It
    /// is not called for checkpoints of which nothing has changed.
    ///
    /// ```
    /// use treering::Options;
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let store = folder.path();
    /// let options = Options::directory(store, "rod").on_save_progress(|done, all| eprint!("\r{done} of {all} B"));
    /// ```
    #[must_use]
    pub fn on_save_progress(mut self, told: impl Fn(u64, u64) + Send + Sync + 'static) -> Self {
        self.save_progress = Some(Arc::new(told));
        self
    }

    /// When checkpoints are due, as one number: ranks that differ in it would wait for each other.
    pub(super) fn due_digest(&self) -> u64 {
        let (kind, number) = match self.every {
            None => (0, 0),
            Some(Every::Steps(steps)) => (1, steps),
            Some(Every::Time(_)) => (2, 0),
            Some(Every::Optimum { .. }) => (3, 0),
        };
        let asked = u64::from(self.signals) + 2 * u64::from(self.end().is_some());
        checksum(&[kind, number, asked].map(u64::to_le_bytes).concat())
    }

    /// The deadline that was given, or Slurm's.
    pub(super) fn end(&self) -> Option<SystemTime> {
        self.deadline.or_else(|| {
            let seconds = std::env::var("SLURM_JOB_END_TIME").ok()?.parse().ok()?;
            SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(seconds))
        })
    }

    pub(crate) fn capture(&self) -> CaptureSettings {
        CaptureSettings {
            chunk: self.writer.chunk,
            method: self.writer.method,
            bounds: self.bounds.clone(),
            trees: self.trees.clone(),
            trees_only: self.trees_only,
        }
    }

    pub(crate) fn check(&self) -> Result<()> {
        check_run_name(&self.writer.run)?;
        self.labels.check()?;
        for (_, bound) in &self.bounds {
            Recipe::new(DType::F64, *bound, self.trees.chunk, self.trees.planes)?;
        }
        if self.trees_only && self.bounds.is_empty() {
            return Err(Error::usage("a run that keeps trees only has no bound to make them for")
                .hint("give Options::bound"));
        }
        let several = self.ranks.as_ref().is_some_and(|comm| comm.size() > 1);
        let near = self.writer.tiers.near.len();
        if several && near > 1 {
            return Err(Error::usage("with several ranks, Options::node can be given once")
                .hint("put one store of the node in front of the shared one"));
        }
        if self.aggregator.is_some() && near > 0 {
            return Err(Error::usage("Options::node cannot be combined with aggregators")
                .hint("let ranks write themselves, or leave the node's store out"));
        }
        if self.shared_every == 0 || self.shared_every > 1 && near == 0 {
            let what = format!("invalid shared_every({})", self.shared_every);
            return Err(
                Error::usage(what).hint("give 1 or more, and Options::node for more than 1")
            );
        }
        self.redundancy.check()?;
        if self.spares > 0 {
            return Err(Error::usage("spares were given for a run without `survive`")
                .hint("survive(…) lets spares wait, or leave Options::spares out"));
        }
        if self.replicas > 0 {
            let ranks = self.ranks.as_ref().map(|comm| comm.size()).ok_or_else(|| {
                Error::usage("replicas need ranks, and none were given").hint("give Options::ranks")
            })?;
            self.replica_settings.check(ranks, self.replicas)?;
            if !self.replica_settings.domains.is_empty() {
                return Err(Error::usage("the failure domains of a run's replicas are its own")
                    .hint("give Options::domain on every rank"));
            }
        }
        if self.redundancy != Redundancy::None && near == 0 {
            return Err(Error::usage("redundancy needs the stores of nodes, and none were given")
                .hint("give Options::node"));
        }
        if let Some(reference) = &self.reference {
            reference.check()?;
        }
        self.writer.encoding.check()?;
        if let Some(keep) = &self.keep {
            keep.check()?;
        }
        if self.aggregator.is_some() && !self.writer.tiers.near.is_empty() {
            return Err(no_node_store());
        }
        if self.aggregator_memory < LEAST_AGGREGATOR {
            let what = format!("{} bytes are too few for an aggregator", self.aggregator_memory);
            return Err(Error::usage(what).hint("give it 8 MiB at least"));
        }
        if self.every == Some(Every::Steps(0)) {
            return Err(
                Error::usage("invalid interval: 0 steps").hint("give Every::Steps 1 or more")
            );
        }
        if self.ranks_per_pack == 0 {
            return Err(Error::usage("a pack needs one rank at least"));
        }
        if self.staging < LEAST_STAGING {
            return Err(Error::usage(format!(
                "{} bytes of staging memory are too few",
                self.staging
            ))
            .hint("give it 1 MiB at least"));
        }
        if self.writer.compaction.is_some_and(|rule| rule.files < 3) {
            return Err(Error::usage("a compaction must free 3 files at least")
                .hint("a bundle takes two files itself"));
        }
        let growth = self.writer.growth.part;
        if growth.is_nan() || growth < 0.0 {
            return Err(Error::usage(format!("invalid growth {growth}: expected a number ≥ 0"))
                .hint("1.0 lets restores cost twice as much as that of a whole checkpoint"));
        }
        Ok(())
    }
}
