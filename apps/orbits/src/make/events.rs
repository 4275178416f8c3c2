//! Event graphs of message-passing programs.
//!
//! A vertex is an event of a process: init, send, receive, finish. The events of a process
//! are joined in program order, and each send with its receive; with few processes and
//! many events there are thus about 1.5 edges per vertex, and hardly a triangle. Vertices
//! are numbered process by process in program order, as a tracer would write them.

use super::at_least;
use super::random::Random;
use crate::{Graph, GraphError};

/// As many processes as the traces have that are used to study such graphs.
const MOST_PROCESSES: usize = 128;

/// Neighbours that a process of the mesh seeks, besides those that seek it.
const SOUGHT_NEIGHBOURS: usize = 3;

/// All processes but one send to that one in each iteration, and it receives the messages
/// in the order in which they happen to arrive.
///
/// The graph has at most `n` vertices, and as near to `n` as whole iterations allow.
pub fn message_race(n: u32, seed: u64) -> Result<Graph, GraphError> {
    at_least(8, n, "a message race")?;
    let processes = process_count(n);
    let senders = processes - 1;
    let iterations = (n as usize - 2 * processes) / (2 * senders);
    let mut random = Random::new(seed);
    let mut trace = Trace::new(processes);
    let mut arrivals: Vec<usize> = (1..processes).collect();
    for _ in 0..iterations {
        random.shuffle(&mut arrivals);
        for &sender in &arrivals {
            let send = trace.event(sender);
            trace.receive(0, send);
        }
    }
    trace.into_graph()
}

/// Each process has a fixed set of neighbours; in each iteration it sends to all of them,
/// then receives from all in the order in which the messages happen to arrive.
///
/// The graph has at most `n` vertices, and as near to `n` as whole iterations allow.
pub fn unstructured_mesh(n: u32, seed: u64) -> Result<Graph, GraphError> {
    at_least(8, n, "an unstructured mesh")?;
    let mut random = Random::new(seed);
    let processes = process_count(n);
    let neighbours = random_neighbours(processes, &mut random);
    let messages: usize = neighbours.iter().map(Vec::len).sum();
    let iterations = (n as usize - 2 * processes) / (2 * messages);
    let mut trace = Trace::new(processes);
    for _ in 0..iterations {
        let mut arriving = vec![Vec::new(); processes];
        for (sender, receivers) in neighbours.iter().enumerate() {
            for &receiver in receivers {
                arriving[receiver].push(trace.event(sender));
            }
        }
        for (receiver, sends) in arriving.iter_mut().enumerate() {
            random.shuffle(sends);
            for &send in sends.iter() {
                trace.receive(receiver, send);
            }
        }
    }
    trace.into_graph()
}

/// Few enough processes that there are many iterations.
fn process_count(n: u32) -> usize {
    (f64::from(n).sqrt() as usize / 8).clamp(2, MOST_PROCESSES)
}

/// The partners of each process: who seeks is also sought.
fn random_neighbours(processes: usize, random: &mut Random) -> Vec<Vec<usize>> {
    let mut neighbours = vec![Vec::new(); processes];
    for p in 0..processes {
        for _ in 0..SOUGHT_NEIGHBOURS {
            let q = (p + 1 + random.below(processes - 1)) % processes;
            neighbours[p].push(q);
            neighbours[q].push(p);
        }
    }
    for partners in &mut neighbours {
        partners.sort_unstable();
        partners.dedup();
    }
    neighbours
}

/// An event, before it is known how many events the processes before its own have.
#[derive(Clone, Copy)]
struct Event {
    process: usize,
    index: u32,
}

struct Trace {
    /// Events so far, per process.
    lengths: Vec<u32>,
    messages: Vec<(Event, Event)>,
}

impl Trace {
    /// Begins with the init event of each process.
    fn new(processes: usize) -> Self {
        Self { lengths: vec![1; processes], messages: Vec::new() }
    }

    fn event(&mut self, process: usize) -> Event {
        let index = self.lengths[process];
        self.lengths[process] += 1;
        Event { process, index }
    }

    fn receive(&mut self, process: usize, send: Event) {
        let receive = self.event(process);
        self.messages.push((send, receive));
    }

    /// Ends each process with its finish event, and numbers the events.
    fn into_graph(mut self) -> Result<Graph, GraphError> {
        let mut first = Vec::with_capacity(self.lengths.len());
        let mut vertices = 0;
        for length in &mut self.lengths {
            first.push(vertices);
            *length += 1;
            vertices += *length;
        }
        let program_order = first.iter().zip(&self.lengths).flat_map(|(&first, &length)| {
            (first + 1..first + length).map(|event| (event - 1, event))
        });
        let number = |event: Event| first[event.process] + event.index;
        let messages = self.messages.iter().map(|&(s, r)| (number(s), number(r)));
        Graph::from_edges(vertices, program_order.chain(messages))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_event_has_at_most_one_message() {
        for make in [message_race, unstructured_mesh] {
            let graph = make(5000, 2).unwrap();
            assert!((0..graph.vertices()).all(|v| (1..=3).contains(&graph.degree(v))));
        }
    }

    #[test]
    fn edges_are_program_order_and_messages() {
        let graph = message_race(100_000, 1).unwrap();
        let processes = process_count(100_000);
        let messages = (graph.vertices() as usize - 2 * processes) / 2;
        let program_order = graph.vertices() as usize - processes;
        assert_eq!(graph.edges(), program_order + messages);
    }

    #[test]
    fn partners_are_mutual() {
        let neighbours = random_neighbours(20, &mut Random::new(3));
        for (p, partners) in neighbours.iter().enumerate() {
            assert!(!partners.contains(&p));
            assert!(partners.iter().all(|&q| neighbours[q].contains(&p)));
        }
    }
}
