//! Comparison of runs of several ranks: in any boxes, afterwards and while they run, and with golden files.

use crate::support::lockless_memory as memory;
use std::sync::Arc;
use std::time::Duration;
use treering::testing::{Call, HookedStore};
use treering::{
    Answer, Bound, Comm, CompareSettings, End, Error, ErrorKind, Golden, Options, Outcome, Run,
    Store, StoredSide, ThreadRanks, TreeSettings, TreedSide, Variable, compare, record_golden,
};

const LONG: Duration = Duration::from_secs(120);
const ROWS: u64 = 24;
const LENGTH: u64 = 300;

/// A change to one value of the grid at a step: step, row, column, and by how much.
type Change = Option<(u64, u64, u64, f64)>;

/// Boxes of some number of ranks: slabs of rows, or of columns.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Cut {
    Rows,
    Columns,
}

impl Cut {
    fn place(self, rank: u32, ranks: u32) -> ([u64; 2], [u64; 2]) {
        let all = if self == Cut::Rows { ROWS } else { LENGTH };
        let at = |rank: u32| all * u64::from(rank) / u64::from(ranks);
        let (first, count) = (at(rank), at(rank + 1) - at(rank));
        match self {
            Cut::Rows => ([first, 0], [count, LENGTH]),
            Cut::Columns => ([0, first], [ROWS, count]),
        }
    }
}

fn grid((offset, extent): ([u64; 2], [u64; 2]), step: u64, change: Change) -> Vec<f64> {
    let value = |row: u64, column: u64| {
        let own = (row * 1000 + column) as f64 + step as f64 / 8.0;
        match change {
            Some((at, r, c, by)) if (at, r, c) == (step, row, column) => own + by,
            _ => own,
        }
    };
    let rows = offset[0]..offset[0] + extent[0];
    let columns = offset[1]..offset[1] + extent[1];
    rows.flat_map(|row| columns.clone().map(move |column| value(row, column))).collect()
}

fn all_done<T: std::fmt::Debug>(ends: Vec<End<T>>) -> Vec<T> {
    let shown = format!("{ends:?}");
    let done: Vec<T> = ends.into_iter().filter_map(End::done).collect();
    assert!(!shown.contains("Killed") && !shown.contains("Panicked"), "{shown}");
    done
}

fn save(run: &mut Run, comm: &dyn Comm, cut: Cut, step: u64, change: Change) {
    let place = cut.place(comm.rank().0, comm.size());
    let values = grid(place, step, change);
    let grid = Variable::new("grid", &values).shaped(&place.1);
    run.checkpoint(step, &[grid.part_of(&[ROWS, LENGTH], &place.0)]).unwrap();
}

/// Writes a run of some ranks with trees: steps 0 to 3.
fn write(store: &Arc<dyn Store>, run: &'static str, ranks: u32, cut: Cut, change: Change) {
    let shared = store.clone();
    all_done(ThreadRanks::new(ranks).run(move |comm| {
        let options = Options::in_store(shared.clone(), run).ranks(comm.clone()).patience(LONG);
        let mut run = Run::open(options.bound("*", Bound::abs(1e-3))).unwrap();
        (0..4).for_each(|step| save(&mut run, &*comm, cut, step, change));
        run.finish().unwrap();
    }));
}

fn compared(store: &Arc<dyn Store>, a: &str, b: &str) -> Outcome {
    let [a, b] = [a, b].map(|run| StoredSide::open(store.clone(), run, None).unwrap());
    compare(&a, &b, &CompareSettings::default(), None, &|_, _| {}).unwrap()
}

#[test]
fn runs_of_other_boxes_are_compared_by_global_index() {
    let store = memory();
    write(&store, "rows", 3, Cut::Rows, None);
    write(&store, "again", 3, Cut::Rows, None);
    write(&store, "columns", 2, Cut::Columns, None);
    write(&store, "other", 4, Cut::Columns, Some((2, 17, 201, 0.5)));
    let outcome = compared(&store, "rows", "again");
    assert!(outcome.equal && outcome.variables.iter().all(|v| v.read_chunks == 0), "{outcome:?}");
    let outcome = compared(&store, "rows", "columns");
    assert!(outcome.equal && outcome.variables.len() == 4, "{outcome:?}");
    assert_eq!(outcome.variables[0].boxes, Some([3, 2]));
    assert_eq!(outcome.variables[0].bound, Bound::abs(1e-3));
    let outcome = compared(&store, "rows", "other");
    let first = outcome.first.as_ref().unwrap();
    assert_eq!((first.step, first.rank.0, &first.index[..]), (Some(2), 2, &[17, 201][..]));
    assert_eq!(outcome.differences, 1);
    assert!(outcome.sentence().contains("global index (17, 201)"), "{}", outcome.sentence());
    let outcome = compared(&store, "other", "columns");
    let first = outcome.first.unwrap();
    assert_eq!((first.rank.0, &first.index[..]), (2, &[17, 201][..]));
}

/// Slabs of rows with a row of ghost cells before and behind them, whose content is `ghost` where it is no copy of what
/// the neighbour owns.
fn write_with_ghosts(
    store: &Arc<dyn Store>,
    run: &'static str,
    ranks: u32,
    change: Change,
    ghost: Option<f64>,
) {
    let shared = store.clone();
    all_done(ThreadRanks::new(ranks).run(move |comm| {
        let options = Options::in_store(shared.clone(), run).ranks(comm.clone()).patience(LONG);
        let mut run = Run::open(options.bound("*", Bound::abs(1e-3))).unwrap();
        let (offset, extent) = Cut::Rows.place(comm.rank().0, comm.size());
        for step in 0..4 {
            let row = |row: u64| grid(([row, 0], [1, LENGTH]), step, change);
            let margin =
                |at: u64| ghost.map_or_else(|| row(at), |value| vec![value; LENGTH as usize]);
            let mut values = margin((offset[0] + ROWS - 1) % ROWS);
            values.extend(grid((offset, extent), step, change));
            values.extend(margin((offset[0] + extent[0]) % ROWS));
            let grid = Variable::new("grid", &values).shaped(&[extent[0] + 2, LENGTH]);
            let grid = grid.part_of(&[ROWS, LENGTH], &offset).ghosts(&[1, 0], &[1, 0]);
            run.checkpoint(step, &[grid]).unwrap();
        }
        run.finish().unwrap();
    }));
}

#[test]
fn of_boxes_with_ghost_cells_the_owned_values_are_compared() {
    let store = memory();
    let change = Some((2, 17, 201, 0.5));
    write(&store, "columns", 2, Cut::Columns, None);
    write(&store, "rows", 3, Cut::Rows, None);
    write_with_ghosts(&store, "ghosts", 3, None, None);
    write_with_ghosts(&store, "others", 4, None, Some(-7.0));
    write_with_ghosts(&store, "same-boxes", 3, None, Some(-7.0));
    write_with_ghosts(&store, "changed", 4, change, None);
    for (a, b) in [
        ("ghosts", "columns"),
        ("rows", "ghosts"),
        ("ghosts", "others"),
        ("others", "rows"),
        ("ghosts", "same-boxes"),
    ] {
        let outcome = compared(&store, a, b);
        assert!(outcome.equal && outcome.differences == 0, "{a}, {b}: {outcome:?}");
        assert_eq!(outcome.variables.len(), 4, "{a}, {b}");
    }
    for (a, b) in [("changed", "ghosts"), ("rows", "changed"), ("changed", "columns")] {
        let outcome = compared(&store, a, b);
        let first = outcome.first.as_ref().unwrap();
        assert_eq!((first.step, &first.index[..]), (Some(2), &[17, 201][..]), "{a}, {b}");
        assert_eq!(outcome.differences, 1, "{a}, {b}: a ghost cell is no value of its own");
    }
}

/// The reports of the ranks of a run after every step that is compared with a reference while the run goes on.
fn watched(
    store: &Arc<dyn Store>,
    ranks: u32,
    change: Change,
    seen_by: impl Fn(u32, Arc<dyn Store>) -> Arc<dyn Store> + Send + Sync + 'static,
) -> Vec<String> {
    let (shared, own) = (store.clone(), memory());
    let ends = ThreadRanks::new(ranks).run(move |comm| {
        let options = Options::in_store(own.clone(), "r").ranks(comm.clone()).patience(LONG);
        let seen = seen_by(comm.rank().0, shared.clone());
        let options = options.reference(seen, "reference", CompareSettings::default());
        let mut run = Run::open(options.bound("*", Bound::abs(1e-3))).unwrap();
        let mut reports = Vec::new();
        for step in 0..4 {
            save(&mut run, &*comm, Cut::Rows, step, change);
            let report = run.reference_report().unwrap();
            let parted = report.divergence.as_ref();
            let first = parted.and_then(|o| o.first.as_ref());
            let first = first.map(|f| format!("{:?} {} {:?} {:?}", f.step, f.rank, f.index, f.b));
            let open: Vec<_> = report.not_compared.iter().map(|n| (n.step, n.rank)).collect();
            reports.push(format!(
                "{:?} {open:?} {first:?} {:?} {}",
                report.compared,
                parted.map(|o| o.differences),
                report.after_divergence
            ));
        }
        run.finish().unwrap();
        reports
    });
    let reports = all_done(ends);
    assert!(reports.iter().all(|of_rank| *of_rank == reports[0]), "{reports:?}");
    reports[0].clone()
}

#[test]
fn ranks_hear_together_that_their_run_has_diverged() {
    for (of_reference, cut) in [(3, Cut::Rows), (1, Cut::Rows), (2, Cut::Columns), (4, Cut::Rows)] {
        let store = memory();
        write(&store, "reference", of_reference, cut, None);
        let same = watched(&store, 3, None, |_, store| store);
        assert_eq!(same[3], "[0, 1, 2, 3] [] None None 0", "{of_reference} {cut:?}");
        let other = watched(&store, 3, Some((2, 17, 201, 0.5)), |_, store| store);
        assert_eq!(other[1], "[0, 1] [] None None 0", "{of_reference} {cut:?}");
        let first = "Some(\"Some(2) 2 [17, 201] Some(Float(17201.25))\")";
        assert_eq!(other[2], format!("[0, 1, 2] [] {first} Some(1) 0"));
        assert_eq!(other[3], format!("[0, 1, 2] [] {first} Some(1) 1"));
    }
}

/// A variable that one rank cannot read is compared on none: the report of all says so, and no rank waits.
#[test]
fn a_rank_that_cannot_read_the_reference_stops_nobody() {
    let store = memory();
    write(&store, "reference", 2, Cut::Columns, None);
    let reports = watched(&store, 3, None, |rank, store| match rank {
        1 => Arc::new(HookedStore::new(store, |call| match call {
            Call::Open(key) if key.contains("pack") => Err(Error::new(ErrorKind::Io, "unplugged")),
            _ => Ok(()),
        })),
        _ => store,
    });
    assert!(reports[3].starts_with("[] [(Some(0), Some(Rank(1)))"), "{reports:?}");
    assert!(reports[3].contains("(Some(3), Some(Rank(1)))"), "{reports:?}");
}

#[test]
fn a_reference_that_does_not_exist_is_told_to_all_ranks() {
    let ends = ThreadRanks::new(3).run(move |comm| {
        let options = Options::in_store(memory(), "r").ranks(comm.clone()).patience(LONG);
        let options = options.reference(memory(), "nothing", CompareSettings::default());
        Run::open(options).err().unwrap().to_string()
    });
    let errors = all_done(ends);
    assert!(errors.iter().all(|e| e.contains("\"nothing\" does not exist")), "{errors:?}");
}

/// A golden file of a run of ranks: the same boxes are compared by their trees, whichever ranks have them; others
/// are left undecided.
#[test]
fn golden_files_of_ranks_are_never_equal_to_other_boxes() {
    let folder = tempfile::tempdir().unwrap();
    let store = memory();
    write(&store, "rows", 3, Cut::Rows, None);
    write(&store, "again", 3, Cut::Rows, None);
    write(&store, "other", 3, Cut::Rows, Some((1, 9, 9, 0.5)));
    write(&store, "columns", 3, Cut::Columns, None);
    let path = folder.path().join("golden.tree");
    let settings = TreeSettings { bounds: vec![Bound::abs(1e-3)], ..TreeSettings::default() };
    let side = |run: &str| StoredSide::open(store.clone(), run, None).unwrap();
    record_golden(&side("rows"), &CompareSettings::default(), &settings, &path, &|_, _| {})
        .unwrap();
    let golden = Golden::open(&path).unwrap();
    let check = |run: &str| {
        let (side, settings) = (side(run), CompareSettings::default());
        let settings = CompareSettings { expected: true, ..settings };
        let outcome =
            compare(&golden, &TreedSide::new(&side, &golden), &settings, None, &|_, _| {});
        outcome.map(|outcome| (outcome.verdict, outcome.first))
    };
    assert_eq!(check("again").unwrap().0, Answer::Equal);
    let (verdict, first) = check("other").unwrap();
    assert_eq!(verdict, Answer::Different);
    let first = first.unwrap();
    assert_eq!((first.step, first.rank.0), (Some(1), 1));
    assert!(first.global && first.index <= vec![9, 9]);
    assert_eq!(check("columns").unwrap_err().kind(), ErrorKind::Mismatch);
}
