//! Giving up some ranks of a node, which write the checkpoints of the others.
//!
//! All ranks of the program make an [`Aggregation`] together. It divides them: the program goes on with the communicator
//! of those that compute, and the others call [`aggregate`], which serves until the program has ended. A compute rank
//! encodes nothing; see [`save`](crate::save) for what passes between the two. Sockets and shared memory connect them, so
//! both are ranks of one node.

use super::Options;
use crate::array::Rank;
use crate::comm::{Comm, Reduction, died};
use crate::error::{Error, ErrorKind, Result};
use crate::io::{Post, PostOffice};
use crate::save::{
    Aggregator, AggregatorLetter, AggregatorTally, HeldBytes, NodeRole, ServedRun, WriterSettings,
    held, random, roles, serve,
};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::{Builder, Scope};
use std::time::Duration;

/// Interval at which an aggregator looks for dead ranks.
const LOOK: Duration = Duration::from_millis(50);
/// The stack of a thread that waits for letters.
const STACK: usize = 256 << 10;

/// The ranks of a program, divided into those that compute and those that write the checkpoints of the others.
///
/// ```no_run
/// # fn main() -> treering::Result<()> {
/// # let all: std::sync::Arc<dyn treering::Comm> = std::sync::Arc::new(treering::Alone::new());
/// use treering::{Aggregation, Options, Run, aggregate};
/// let aggregation = Aggregation::new(all, 1)?; // one rank of each node
/// let options = Options::directory("store", "plate");
/// if aggregation.is_aggregator() {
///     let report = aggregate(options, &aggregation)?; // until the program has ended
///     println!("{} checkpoints, {} failures", report.checkpoints, report.failures.len());
/// } else {
///     let comm = aggregation.comm(); // of the ranks that compute
///     let run = Run::open(options.aggregated(&aggregation))?;
///     // … the program, on `comm`
///     run.finish()?;
/// }
/// # Ok(()) }
/// ```
pub struct Aggregation {
    all: Arc<dyn Comm>,
    comm: Arc<dyn Comm>,
    side: AggregationSide,
}

enum AggregationSide {
    /// A compute rank, and its aggregator if it has one.
    Compute(Option<Arc<AggregatorLink>>),
    /// An aggregator, and the ranks that it serves.
    Aggregator(PostOffice, BTreeSet<Rank>),
}

/// A compute rank's way to its aggregator. The aggregator serves until all ranks have dropped theirs.
pub(crate) struct AggregatorLink {
    all: Arc<dyn Comm>,
    /// The aggregator among all ranks.
    pub(super) aggregator: Rank,
    address: Vec<u8>,
    control: Post,
}

impl AggregatorLink {
    fn new(all: &Arc<dyn Comm>, aggregator: Rank, address: &[u8]) -> Result<AggregatorLink> {
        let control = Post::connect(address)?;
        AggregatorLetter::Hello { rank: all.rank().0 }.send(&control, None)?;
        Ok(AggregatorLink { all: all.clone(), aggregator, address: address.to_vec(), control })
    }

    /// A connection for one run, and the letter that begins it.
    pub(super) fn join(&self, rank: Rank, run: ServedRun) -> Result<(Post, AggregatorLetter)> {
        let letter = AggregatorLetter::Join { of_all: self.all.rank().0, rank: rank.0, run };
        Ok((Post::connect(&self.address)?, letter))
    }

    /// Whether the aggregator takes connections.
    pub(super) fn answers(&self) -> bool {
        !self.is_dead() && Post::connect(&self.address).is_ok()
    }

    /// Whether the aggregator is known to have died.
    pub(super) fn is_dead(&self) -> bool {
        self.all.dead().is_ok_and(|dead| dead.contains(&self.aggregator))
    }
}

impl Drop for AggregatorLink {
    fn drop(&mut self) {
        // An aggregator that is gone needs no letter.
        let _ = AggregatorLetter::Bye.send(&self.control, None);
    }
}

impl Aggregation {
    /// Divides the ranks of a communicator: `per_node` ranks of each node become aggregators, at most half of them.
    /// Nodes of a single rank give up none. Collective.
    pub fn new(all: Arc<dyn Comm>, per_node: u32) -> Result<Aggregation> {
        let nodes = all.gather(Rank(0), all.node().as_bytes())?;
        let number = |role: NodeRole| match role {
            NodeRole::Aggregates => u64::MAX,
            NodeRole::Computes(None) => u64::MAX - 1,
            NodeRole::Computes(Some(rank)) => rank.0.into(),
        };
        let table = roles(&nodes, per_node).into_iter().map(number);
        let mut table: Vec<u8> = table.flat_map(u64::to_le_bytes).collect();
        all.broadcast(Rank(0), &mut table)?;
        let words = table.chunks_exact(8).filter_map(|word| word.try_into().ok());
        let roles: Vec<u64> = words.map(u64::from_le_bytes).collect();
        let own = roles.get(all.rank().0 as usize).copied().unwrap_or(u64::MAX - 1);
        let office = match own == u64::MAX {
            true => PostOffice::open(std::array::from_fn(|_| random())).map(Some),
            false => Ok(None),
        };
        let served = (0..).map(Rank).zip(&roles);
        let served = served.filter(|(_, of)| **of == u64::from(all.rank().0));
        let served: BTreeSet<Rank> = served.map(|(rank, _)| rank).collect();
        let address = office.as_ref().ok().and_then(Option::as_ref).map(PostOffice::address);
        let letters = served.iter().filter_map(|rank| Some((*rank, address?)));
        let letters = all.exchange(&letters.collect::<Vec<_>>())?;
        let link = match letters.first() {
            Some((from, address)) => AggregatorLink::new(&all, *from, address).map(Some),
            None if own < u64::MAX - 1 => Err(unreachable()),
            None => Ok(None),
        };
        let mut works = [u64::from(office.is_ok() && link.is_ok())];
        all.reduce(Reduction::Min, &mut works)?;
        let comm = all.split(u32::from(own == u64::MAX), 0)?;
        let side = match (office?, link?) {
            (Some(office), _) => AggregationSide::Aggregator(office, served),
            (None, link) => AggregationSide::Compute(link.map(Arc::new)),
        };
        match works {
            [1] => Ok(Aggregation { all, comm, side }),
            _ => Err(unreachable()),
        }
    }

    /// Whether this rank writes the checkpoints of others; it calls [`aggregate`].
    pub fn is_aggregator(&self) -> bool {
        matches!(self.side, AggregationSide::Aggregator(..))
    }

    /// The communicator of the ranks that compute, for the program; on aggregators, that of the aggregators.
    pub fn comm(&self) -> Arc<dyn Comm> {
        self.comm.clone()
    }

    pub(super) fn link(&self) -> Option<Arc<AggregatorLink>> {
        match &self.side {
            AggregationSide::Compute(link) => link.clone(),
            AggregationSide::Aggregator(..) => None,
        }
    }
}

/// A store in front of the shared one belongs to the ranks that write to it.
pub(super) fn no_node_store() -> Error {
    Error::usage("Options::node cannot be combined with aggregators")
        .hint("leave out Options::node, or use Options::ranks without an Aggregation")
}

fn unreachable() -> Error {
    Error::new(ErrorKind::Io, "ranks of a node cannot reach their aggregator").hint(
        "use Options::ranks without an Aggregation where ranks of a node do not share its network",
    )
}

/// Work of an aggregator. Returned by [`aggregate`]; the example of [`Aggregation`] shows its use.
#[derive(Clone, Debug, Default)]
pub struct AggregationReport {
    /// The number of checkpoints whose part it has published.
    pub checkpoints: u64,
    /// Checkpoints that failed: their steps and errors. The compute ranks get these errors, too.
    pub failures: Vec<(u64, Error)>,
    /// The most bytes that were on their way from ranks to packs at any time; see [`Options::aggregator_memory`].
    pub most_held: u64,
}

/// Something that happened to an aggregator.
enum AggregatorEvent {
    Arrived(Post, AggregatorLetter),
    /// A rank has ended; whether it said so.
    Left(Rank, bool),
    Broken(Error),
}

/// Writes the checkpoints of the compute ranks of this node, until all of them have ended: when a rank has dropped its
/// run, its options and its [`Aggregation`]. Takes the options that the compute ranks give to [`Run::open`](crate::Run).
///
/// The error names ranks that died. Checkpoints that were complete are published all the same. The example of
/// [`Aggregation`] shows its use.
pub fn aggregate(options: Options, aggregation: &Aggregation) -> Result<AggregationReport> {
    let AggregationSide::Aggregator(office, served) = &aggregation.side else {
        return Err(Error::usage("aggregate is for ranks that are aggregators")
            .hint("ask Aggregation::is_aggregator, and give Options::aggregated on the others"));
    };
    options.check()?;
    if !options.writer.tiers.near.is_empty() {
        return Err(no_node_store());
    }
    let (sender, events) = channel();
    let threads = rayon::current_num_threads();
    let (count, tally) = (HeldBytes::default(), Arc::new(Mutex::new(AggregatorTally::default())));
    let dead = std::thread::scope(|scope| {
        spawn(scope, "treering-office", || accept_all(office, &sender))?;
        let mut service = Service {
            settings: options.writer,
            budget: options.aggregator_memory,
            threads,
            count: count.clone(),
            tally: tally.clone(),
            all: &*aggregation.all,
            here: served.clone(),
            open: Vec::new(),
            waiting: Vec::new(),
        };
        let dead = service.run(scope, &events, &sender);
        // The office closes when it hears from itself.
        service.open.iter().for_each(|(_, post)| post.close());
        let closing = Post::connect(office.address());
        closing.and_then(|post| AggregatorLetter::Bye.send(&post, None))?;
        dead
    })?;
    if !dead.is_empty() {
        return Err(
            died(&dead).hint("checkpoints that they had sent to the aggregator are published")
        );
    }
    let mut tally = held(&tally);
    let failures = std::mem::take(&mut tally.failures);
    Ok(AggregationReport {
        checkpoints: tally.checkpoints,
        failures: failures.into_iter().map(|(step, error)| (step.0, error)).collect(),
        most_held: count.most(),
    })
}

fn spawn<'scope>(
    scope: &'scope Scope<'scope, '_>,
    name: &str,
    work: impl FnOnce() + Send + 'scope,
) -> Result<()> {
    let thread = Builder::new().name(name.into()).stack_size(STACK.max(2 << 20));
    let started = thread.spawn_scoped(scope, work);
    started.map(drop).map_err(|e| Error::io("cannot start the threads of an aggregator", e))
}

/// Passes on whoever comes to the office.
fn accept_all(office: &PostOffice, events: &Sender<AggregatorEvent>) {
    loop {
        let event = match office.accept() {
            Err(error) => AggregatorEvent::Broken(error),
            Ok(post) => match AggregatorLetter::receive(&post) {
                Ok(Some((AggregatorLetter::Bye, _))) => return,
                Ok(Some((letter, _))) => AggregatorEvent::Arrived(post, letter),
                // It died right after it had connected.
                _ => continue,
            },
        };
        let last = matches!(event, AggregatorEvent::Broken(_));
        if events.send(event).is_err() || last {
            return;
        }
    }
}

/// Ranks of a run that have come so far.
struct ArrivingRun {
    run: ServedRun,
    posts: BTreeMap<Rank, Post>,
    /// The same by their numbers among all ranks.
    of_all: BTreeSet<Rank>,
}

struct Service<'a> {
    settings: WriterSettings,
    budget: u64,
    threads: usize,
    count: HeldBytes,
    tally: Arc<Mutex<AggregatorTally>>,
    all: &'a dyn Comm,
    /// The ranks that have not ended.
    here: BTreeSet<Rank>,
    /// All connections, by the rank at the other end.
    open: Vec<(Rank, Post)>,
    waiting: Vec<ArrivingRun>,
}

impl Service<'_> {
    /// Serves until all ranks have ended; those that died.
    fn run<'scope>(
        &mut self,
        scope: &'scope Scope<'scope, '_>,
        events: &Receiver<AggregatorEvent>,
        sender: &Sender<AggregatorEvent>,
    ) -> Result<Vec<Rank>> {
        let mut dead = Vec::new();
        while !self.here.is_empty() {
            match events.recv_timeout(LOOK) {
                Ok(AggregatorEvent::Arrived(post, letter)) => {
                    self.arrived(scope, post, letter, sender)?;
                }
                Ok(AggregatorEvent::Left(rank, said_so)) => {
                    if self.leave(rank) && !said_so {
                        dead.push(rank);
                    }
                }
                Ok(AggregatorEvent::Broken(error)) => return Err(error),
                Err(RecvTimeoutError::Timeout) => {
                    let known = self.all.dead().unwrap_or_default();
                    dead.extend(known.into_iter().filter(|rank| self.leave(*rank)));
                }
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        Ok(dead)
    }

    /// Ends the connections of a rank; whether it was here. Runs that wait for it never begin.
    fn leave(&mut self, rank: Rank) -> bool {
        let was_here = self.here.remove(&rank);
        if was_here {
            let (gone, open) =
                std::mem::take(&mut self.open).into_iter().partition(|(of, _)| *of == rank);
            self.open = open;
            let gone: Vec<(Rank, Post)> = gone;
            gone.iter().for_each(|(_, post)| post.close());
            let lacks = |run: &ArrivingRun| run.of_all.contains(&rank);
            let given_up = self.waiting.iter().filter(|run| lacks(run));
            given_up.flat_map(|run| run.posts.values()).for_each(Post::close);
            self.waiting.retain(|run| !lacks(run));
        }
        was_here
    }

    fn arrived<'scope>(
        &mut self,
        scope: &'scope Scope<'scope, '_>,
        post: Post,
        letter: AggregatorLetter,
        sender: &Sender<AggregatorEvent>,
    ) -> Result<()> {
        match letter {
            AggregatorLetter::Hello { rank } => {
                let (again, sender) = (post.again()?, sender.clone());
                self.open.push((Rank(rank), post));
                spawn(scope, "treering-office", move || {
                    let letter = AggregatorLetter::receive(&again);
                    let said_so = matches!(letter, Ok(Some((AggregatorLetter::Bye, _))));
                    let _ = sender.send(AggregatorEvent::Left(Rank(rank), said_so));
                })
            }
            AggregatorLetter::Join { of_all, rank, run } => {
                self.open.push((Rank(of_all), post.again()?));
                self.join(scope, (Rank(of_all), Rank(rank)), run, post)
            }
            // Nothing else begins a connection.
            _ => Ok(()),
        }
    }

    /// A rank has opened a run; with the last of its group the work begins.
    fn join<'scope>(
        &mut self,
        scope: &'scope Scope<'scope, '_>,
        (of_all, rank): (Rank, Rank),
        run: ServedRun,
        post: Post,
    ) -> Result<()> {
        let at = self.waiting.iter().position(|waiting| waiting.run == run);
        let at = at.unwrap_or_else(|| {
            let (posts, of_all) = (BTreeMap::new(), BTreeSet::new());
            self.waiting.push(ArrivingRun { run, posts, of_all });
            self.waiting.len() - 1
        });
        let waiting = &mut self.waiting[at];
        waiting.posts.insert(rank, post);
        waiting.of_all.insert(of_all);
        if waiting.posts.len() < waiting.run.members.len() {
            return Ok(());
        }
        let ArrivingRun { run, posts, .. } = self.waiting.swap_remove(at);
        let settings = WriterSettings { run: run.run.clone(), ..self.settings.clone() };
        let aggregator = Aggregator::start(posts, self.budget, self.count.clone(), Arc::default())?;
        let (threads, tally) = (self.threads, self.tally.clone());
        spawn(scope, "treering-aggregator", move || {
            if let Err(error) = serve(settings, &run, aggregator, threads, &tally) {
                held(&tally).failures.push((Default::default(), error));
            }
        })
    }
}
