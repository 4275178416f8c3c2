//! Maps of where values differ: in units of the bound, at the right place, and bounded in number.

use std::sync::Arc;
use treering::{
    Bound, CompareSettings, MemoryStore, Options, Outcome, Run, StoredSide, Variable, compare,
};

const STEPS: u64 = 9;

/// Two runs: a cube that differs more from step to step, in one place, and forty planes at the last step.
fn outcome(bound: Bound) -> Outcome {
    let store = Arc::new(MemoryStore::new());
    for (name, moved) in [("one", 0.0), ("two", 1.0)] {
        let mut run = Run::open(Options::in_store(store.clone(), name)).unwrap();
        for step in 1..=STEPS {
            let mut cube = vec![2.0f64; 4 * 5 * 6];
            cube[5 * 6 + 2 * 6 + 3] += moved * step as f64;
            let names: Vec<String> = (0..40).map(|i| format!("plane{i:02}")).collect();
            let planes: Vec<[f64; 6]> =
                (0..40).map(|i| [0.0, 0.0, 0.0, 0.0, moved * (20.0 + f64::from(i)), 0.0]).collect();
            let mut state = vec![Variable::new("cube", &cube).shaped(&[4, 1, 5, 6])];
            if step == STEPS {
                let of_names = names.iter().zip(&planes);
                state.extend(of_names.map(|(n, p)| Variable::new(n, &p[..]).shaped(&[2, 3])));
            }
            run.checkpoint(step, &state).unwrap();
        }
        run.finish().unwrap();
    }
    let side = |run| StoredSide::open(store.clone(), run, None).unwrap();
    let settings = CompareSettings { pictures: true, ..CompareSettings::within(bound) };
    compare(&side("one"), &side("two"), &settings, None, &|_, _| {}).unwrap()
}

#[test]
fn maps_have_the_largest_difference_at_its_place_in_units_of_the_bound() {
    let outcome = outcome(Bound::Within { abs: 0.05, rel: 0.1 });
    let first = outcome.first_variable().unwrap();
    assert_eq!((first.step, &first.name[..]), (Some(1), "cube"));
    // The bound at b = 3 is 0.05 + 0.3.
    let expected = 1.0 / (0.05 + 0.1 * 3.0);
    assert!((first.times_bound.0 - expected).abs() < 1e-12, "{:?}", first.times_bound);
    // The axis of extent 1 is left out; the other three make three projections and three slices through the difference.
    let axes: Vec<&[usize]> = first.pictures.iter().map(|map| &map.axes[..]).collect();
    assert_eq!(axes, [[2, 3], [0, 3], [0, 2], [2, 3], [0, 3], [0, 2]]);
    let slices: Vec<_> = first.pictures.iter().filter_map(|map| map.slice.as_ref()).collect();
    let slices: Vec<_> = slices.iter().map(|slice| (slice.axis, slice.from, slice.until)).collect();
    assert_eq!(slices, [(0, 1, 2), (2, 2, 3), (3, 3, 4)]);
    for map in &first.pictures {
        let index = [1, 0, 2, 3];
        let at =
            map.axes.iter().zip(&map.size).fold(0, |at, (axis, size)| at * size + index[*axis]);
        let other = |(i, cell): (usize, &f64)| (i as u64 == at) != (*cell == 0.0);
        let cells: Vec<f64> = map.cells.iter().map(|cell| cell.0).collect();
        assert!(cells.iter().enumerate().all(other), "{map:?}");
        assert!((cells[at as usize] - expected).abs() < 1e-12, "{map:?}");
    }
}

/// Slices have what lies in them, the largest of the values of each cell, and nothing of what lies elsewhere.
#[test]
fn slices_show_their_own_indices_alone() {
    let (shape, store) = ([150u64, 70, 9], Arc::new(MemoryStore::new()));
    let at = |z: u64, y: u64, x: u64| ((z * shape[1] + y) * shape[2] + x) as usize;
    let differences = [(140, 33, 4, 50.0), (141, 12, 4, 7.0), (20, 33, 4, 30.0), (20, 33, 8, 20.0)];
    for (name, size) in [("one", 0.0), ("two", 1.0)] {
        let mut data = vec![1.0f64; shape.iter().product::<u64>() as usize];
        differences.iter().for_each(|(z, y, x, by)| data[at(*z, *y, *x)] += size * by);
        let mut run = Run::open(Options::in_store(store.clone(), name)).unwrap();
        run.checkpoint(1, &[Variable::new("t", &data).shaped(&shape)]).unwrap();
        run.finish().unwrap();
    }
    let side = |run| StoredSide::open(store.clone(), run, None).unwrap();
    let settings = CompareSettings { pictures: true, ..CompareSettings::within(Bound::abs(1.0)) };
    let outcome = compare(&side("one"), &side("two"), &settings, None, &|_, _| {}).unwrap();
    let maps = &outcome.variables[0].pictures;
    assert_eq!(maps.len(), 6);
    for map in &maps[3..] {
        let slice = map.slice.as_ref().unwrap();
        let mut expected = vec![0.0f64; map.cells.len()];
        for (z, y, x, by) in differences {
            let index = [z, y, x];
            if (slice.from..slice.until).contains(&index[slice.axis]) {
                let cell = |i: usize| index[map.axes[i]] * map.size[i] / map.extent[i];
                let cell = &mut expected[(cell(0) * map.size[1] + cell(1)) as usize];
                *cell = cell.max(by);
            }
        }
        let found: Vec<f64> = map.cells.iter().map(|cell| cell.0).collect();
        assert_eq!(found, expected, "{slice:?}");
        assert!(found.contains(&50.0));
    }
    let indices = |at: usize| maps[at].slice.as_ref().map(|s| s.from..s.until).unwrap();
    assert!(indices(3).contains(&140) && indices(4) == (33..34) && indices(5) == (4..5));
}

#[test]
fn the_first_difference_and_the_worst_have_maps_and_no_others() {
    let outcome = outcome(Bound::abs(0.5));
    let mapped: Vec<_> = outcome.variables.iter().filter(|v| !v.pictures.is_empty()).collect();
    assert_eq!(mapped.len(), 32);
    let cubes: Vec<u64> =
        mapped.iter().filter(|v| v.name == "cube").filter_map(|v| v.step).collect();
    assert!(cubes.contains(&1) && cubes.len() <= 6, "{cubes:?}");
    // The planes differ more than the cubes: the forty are 20 to 59.
    let planes = mapped.iter().filter(|v| v.name != "cube");
    assert!(planes.clone().all(|v| v.times_bound.0 >= 2.0 * 29.0), "{}", planes.count());
    let mut changed = outcome.clone();
    changed.variables[0].differences = 0;
    let cube = changed.worst().pop().unwrap();
    assert_eq!((cube.name, cube.differences, cube.values), ("cube", STEPS - 1, STEPS * 120));
    let worst: Vec<&str> = outcome.worst().iter().map(|v| v.name).collect();
    assert_eq!((worst[0], worst[39], worst[40]), ("plane39", "plane00", "cube"));
    let page = outcome.html("today").unwrap();
    assert!(page.len() < 400_000, "{}", page.len());
}
