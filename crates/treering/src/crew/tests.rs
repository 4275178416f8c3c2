use super::*;
use crate::comm::{End, ThreadRanks};
use crate::store::{MemoryStore, Store};

/// Counts steps, far longer than the test lasts.
struct Counter([u64; 1]);

impl Steps for Counter {
    fn begin(&mut self, _: &Crew) -> Result<()> {
        self.0 = [0];
        Ok(())
    }

    fn state(&self) -> Vec<Variable<'_>> {
        vec![Variable::new("count", &self.0).same()]
    }

    fn arrays(&mut self) -> Vec<VariableMut<'_>> {
        vec![VariableMut::new("count", &mut self.0)]
    }

    fn is_done(&self, step: u64) -> bool {
        step == 100_000
    }

    fn step(&mut self, _: &Crew, _: u64) -> Result<()> {
        self.0[0] += 1;
        std::thread::sleep(Duration::from_millis(1));
        Ok(())
    }
}

/// A signal that only a spare gets is one for all.
#[test]
fn a_spare_passes_on_what_signals_ask_for() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let shared = store.clone();
    let ends = ThreadRanks::new(4).run(move |comm| {
        let told = comm.rank() == Rank(3);
        let asked = move || if told { Due::Last } else { Due::No };
        let options = Options::in_store(shared.clone(), "r").ranks(comm).spares(2).on_signals();
        let pace = Pace { replicas: 0, checkpoints: 0 };
        let mut process = Process::new(options, pace, Box::new(asked)).unwrap();
        let mut counter = Counter([0]);
        process.live(&mut counter).unwrap();
        let Survival { role, step, halted, .. } = process.leave().unwrap();
        (role, step, halted, counter.0[0])
    });
    let ends: Vec<_> = ends.into_iter().filter_map(End::done).collect();
    let (_, last, ..) = ends[0];
    assert!(last < 100_000);
    assert_eq!(ends[..2], [(Role::Initial, last, true, last); 2]);
    assert_eq!(ends[2..], [(Role::Spare, 0, false, 0); 2]);
    // The state is there for the next job.
    let mut run = Run::open(Options::in_store(store, "r")).unwrap();
    let mut count = Counter([0]);
    assert_eq!(run.restore(&mut count.arrays()).unwrap().map(|r| r.step), Some(last));
    assert_eq!(count.0, [last]);
}
