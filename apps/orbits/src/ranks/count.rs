//! One rank's end of a count: its rows of the table, and the batches that the ranks count together.

use super::garbled;
use crate::Graph;
use crate::count::{CountError, Counter, Counts, ORBITS, count_range};
use rayon::ThreadPool;
use std::ops::Range;
use std::sync::Arc;
use treering::{Comm, Element, Error, Rank, Reduction, Result};

/// A graphlet has at most this many edges between its root and any other vertex.
const REACH: usize = 4;

/// The bytes of a row that travels: the vertex, then its counters.
const ROW: usize = 4 + 8 * ORBITS;

/// A count on several ranks, as one of them sees it.
pub struct RankCount<T> {
    graph: Graph,
    comm: Arc<dyn Comm>,
    threads: ThreadPool,
    /// The first of the roots that are not counted yet.
    pub(super) next: u32,
    /// The rows of this rank.
    pub(super) table: Vec<T>,
}

impl<T: Counter + Element> RankCount<T> {
    /// Begins a count of a graph that is the same on all ranks, with this many threads on each of them.
    pub fn new(graph: Graph, comm: Arc<dyn Comm>, threads: usize) -> Result<Self> {
        let threads = rayon::ThreadPoolBuilder::new().num_threads(threads).build();
        let threads = threads.map_err(|e| Error::usage(format!("cannot start threads: {e}")))?;
        let mut count = RankCount { graph, comm, threads, next: 0, table: Vec::new() };
        count.table = vec![T::default(); count.rows_of(count.comm.rank()).len() * ORBITS];
        Ok(count)
    }

    /// The graph.
    pub fn graph(&self) -> &Graph {
        &self.graph
    }

    /// The ranks.
    pub fn comm(&self) -> &Arc<dyn Comm> {
        &self.comm
    }

    /// The first of the roots that are not counted yet.
    pub fn next(&self) -> u32 {
        self.next
    }

    /// The vertices whose counters a rank has.
    pub(super) fn rows_of(&self, rank: Rank) -> Range<u32> {
        self.share(0..self.graph.vertices(), rank)
    }

    /// The part of some vertices that is a rank's.
    fn share(&self, of: Range<u32>, rank: Rank) -> Range<u32> {
        let (all, ranks) = (of.len() as u64, u64::from(self.comm.size()));
        // At most the length of the range, which is of 32-bit numbers.
        let begin = |rank: u64| of.start + (all * rank / ranks) as u32;
        begin(rank.0.into())..begin(u64::from(rank.0) + 1)
    }

    /// Counts the roots up to `end` and adds them to the rows of all ranks; collective. An error is the same on all
    /// ranks, and the table is not valid afterwards.
    pub fn count_to(&mut self, end: u32) -> Result<()> {
        let end = end.clamp(self.next, self.graph.vertices());
        let roots = self.share(self.next..end, self.comm.rank());
        let counted = self.threads.install(|| count_near(&self.graph, roots));
        let mut overflow = None;
        let messages = match &counted {
            Ok((counts, members)) => self.messages(counts, members),
            Err(error) => {
                overflow = Some(error.clone());
                Vec::new()
            }
        };
        let messages: Vec<(Rank, &[u8])> =
            messages.iter().map(|(rank, bytes)| (*rank, &bytes[..])).collect();
        for (_, bytes) in self.comm.exchange(&messages)? {
            if let Err(error) = self.add(&bytes)? {
                overflow.get_or_insert(error);
            }
        }
        self.next = end;
        self.agree_on(overflow)
    }

    /// The rows that this rank has counted, for those who own them.
    fn messages(&self, counts: &Counts<u64>, members: &[u32]) -> Vec<(Rank, Vec<u8>)> {
        let mut all: Vec<(Rank, Vec<u8>)> = Vec::new();
        let (mut owner, mut rows) = (Rank(0), self.rows_of(Rank(0)));
        for (&vertex, row) in members.iter().zip(counts.as_slice().chunks_exact(ORBITS)) {
            if row.iter().all(|&count| count == 0) {
                continue;
            }
            while vertex >= rows.end {
                owner = Rank(owner.0 + 1);
                rows = self.rows_of(owner);
            }
            if all.last().is_none_or(|(last, _)| *last != owner) {
                all.push((owner, Vec::new()));
            }
            if let Some((_, bytes)) = all.last_mut() {
                bytes.extend_from_slice(&vertex.to_le_bytes());
                row.iter().for_each(|count| bytes.extend_from_slice(&count.to_le_bytes()));
            }
        }
        all
    }

    /// Adds rows that a rank has counted to those of this one.
    fn add(&mut self, bytes: &[u8]) -> Result<std::result::Result<(), CountError>> {
        let own = self.rows_of(self.comm.rank());
        let mut done = Ok(());
        for message in bytes.chunks(ROW) {
            let (vertex, counters) = message.split_first_chunk().ok_or_else(garbled)?;
            let vertex = u32::from_le_bytes(*vertex);
            if message.len() != ROW || !own.contains(&vertex) {
                return Err(garbled());
            }
            let row = (vertex - own.start) as usize * ORBITS;
            let sums = self.table[row..row + ORBITS].iter_mut().zip(counters.chunks_exact(8));
            for (orbit, (sum, amount)) in sums.enumerate() {
                let amount = u64::from_le_bytes(amount.try_into().map_err(|_| garbled())?);
                match sum.plus(amount) {
                    Some(more) => *sum = more,
                    None => {
                        let bits = 8 * size_of::<T>() as u32;
                        done = done.and(Err(CountError::Overflow { vertex, orbit, bits }));
                    }
                }
            }
        }
        Ok(done)
    }

    /// Makes the overflow that some ranks have met the error of all.
    fn agree_on(&self, overflow: Option<CountError>) -> Result<()> {
        const NONE: u64 = u64::MAX;
        let counter = |error: &CountError| match error {
            CountError::Overflow { vertex, orbit, .. } => {
                u64::from(*vertex) * ORBITS as u64 + *orbit as u64
            }
            // The range and the table are made for each other.
            _ => 0,
        };
        let mut first = [overflow.as_ref().map_or(NONE, counter)];
        self.comm.reduce(Reduction::Min, &mut first)?;
        let [first] = first;
        if first == NONE {
            return Ok(());
        }
        let (vertex, orbit) = ((first / ORBITS as u64) as u32, (first % ORBITS as u64) as usize);
        let bits = 8 * size_of::<T>() as u32;
        Err(Error::usage(CountError::Overflow { vertex, orbit, bits }.to_string()))
    }

    /// Brings all rows to rank 0; nothing elsewhere. Collective.
    pub fn gather(&self) -> Result<Option<Counts<u64>>> {
        let own = self.table.iter().flat_map(|count| Into::<u64>::into(*count).to_le_bytes());
        let parts = self.comm.gather(Rank(0), &own.collect::<Vec<u8>>())?;
        if self.comm.rank() != Rank(0) {
            return Ok(None);
        }
        let mut all = Counts::new(self.graph.vertices());
        let bytes = parts.concat();
        if bytes.len() != 8 * all.as_slice().len() {
            return Err(garbled());
        }
        for (count, bytes) in all.as_mut_slice().iter_mut().zip(bytes.chunks_exact(8)) {
            *count = u64::from_le_bytes(bytes.try_into().map_err(|_| garbled())?);
        }
        Ok(Some(all))
    }
}

/// Counts the subgraphs of some roots: the counters of the vertices that these can reach, and their numbers.
fn count_near(
    graph: &Graph,
    roots: Range<u32>,
) -> std::result::Result<(Counts<u64>, Vec<u32>), CountError> {
    let (near, members) = graph.within(roots.clone(), REACH);
    let mut counts = Counts::new(near.vertices());
    match count_range(&near, 0..roots.len() as u32, &mut counts) {
        Ok(()) => Ok((counts, members)),
        Err(CountError::Overflow { vertex, orbit, bits }) => {
            let vertex = members[vertex as usize];
            Err(CountError::Overflow { vertex, orbit, bits })
        }
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use treering::{End, ThreadRanks};

    /// Counters that are almost full stand for a long count: what each rank adds fits, but not the sum.
    #[test]
    fn a_sum_that_does_not_fit_is_the_same_error_on_all_ranks() {
        let ends = ThreadRanks::new(3).run(|comm| {
            let star = Graph::from_edges(7, (0..6).map(|leaf| (6, leaf))).unwrap();
            let mut count = RankCount::<u32>::new(star, comm, 1).unwrap();
            count.table.fill(u32::MAX - 9);
            count.count_to(u32::MAX).unwrap_err().to_string()
        });
        let told: Vec<String> = ends.into_iter().filter_map(End::done).collect();
        assert_eq!(told.len(), 3);
        assert!(told.iter().all(|error| *error == told[0]), "{told:?}");
        assert!(told[0].contains("orbit 6 at vertex 0") && told[0].contains("u64"), "{told:?}");
    }
}
