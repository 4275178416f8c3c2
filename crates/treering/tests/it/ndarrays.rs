//! Arrays of the crate `ndarray`: any strides, saved and filled without a copy of the array.

use crate::support::memory;
use ndarray::{Array1, Array2, Array3, ArrayD, Axis, IxDyn, ShapeBuilder, Slice, s};
use proptest::prelude::*;
use std::sync::Arc;
use treering::{DType, ErrorKind, Library, Options, Order, Run, Store, Variable, VariableMut};

fn save(store: &Arc<dyn Store>, variables: &[Variable]) {
    let mut run = Run::open(Options::in_store(store.clone(), "r")).unwrap();
    run.checkpoint(0, variables).unwrap();
    run.finish().unwrap();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    /// The elements are stored by their indices, and a restore changes these and nothing else.
    #[test]
    fn any_view_is_saved_and_filled(
        axes in prop::collection::vec((1usize..6, -3isize..4, 0usize..3), 0..4),
        fortran: bool,
        turned: bool,
    ) {
        let shape: Vec<usize> = axes.iter().map(|axis| axis.0).collect();
        let numbers: Vec<u32> = (0..shape.iter().product::<usize>() as u32).collect();
        let shaped = IxDyn(&shape).set_f(fortran);
        let array = ArrayD::from_shape_vec(shaped, numbers).unwrap();
        let slices: Vec<Slice> = axes.iter().map(|(extent, step, first)| {
            let step = if *step == 0 { 1 } else { *step };
            Slice::new((*first.min(extent)) as isize, None, step)
        }).collect();
        let mut view = array.view();
        view.slice_each_axis_inplace(|axis| slices[axis.axis.index()]);
        if turned {
            view = view.reversed_axes();
        }
        let store = memory();
        save(&store, &[Variable::from_ndarray("x", view.view()).unwrap()]);
        let stored = Library::of(store.clone()).checkpoint("r", None).unwrap();
        let in_c: Vec<u32> = view.iter().copied().collect();
        let expected: Vec<u64> = view.shape().iter().map(|extent| *extent as u64).collect();
        let found = stored.read_array("x").unwrap();
        prop_assert_eq!(&found.shape.0, &expected);
        let read: Vec<u32> = stored.read("x").unwrap();
        let in_memory: Vec<u32> = match found.order {
            Order::C => in_c.clone(),
            Order::Fortran => view.t().iter().copied().collect(),
        };
        prop_assert_eq!(read, in_memory);
        // Restored into an array of the same layout that holds something else.
        let mut target = array.mapv(|value| value + 1000);
        let mut run = Run::open(Options::in_store(store, "r")).unwrap();
        {
            let mut into = target.view_mut();
            into.slice_each_axis_inplace(|axis| slices[axis.axis.index()]);
            let into = if turned { into.reversed_axes() } else { into };
            run.restore(&mut [VariableMut::from_ndarray("x", into).unwrap()]).unwrap().unwrap();
        }
        let mut outside = array.mapv(|value| value + 1000);
        let mut inside = outside.view_mut();
        inside.slice_each_axis_inplace(|axis| slices[axis.axis.index()]);
        let mut back = array.view();
        back.slice_each_axis_inplace(|axis| slices[axis.axis.index()]);
        inside.assign(&back);
        prop_assert_eq!(target, outside);
    }
}

#[test]
fn orders_elements_and_mistakes() {
    let store = memory();
    let c = Array2::from_shape_fn((3, 4), |(row, column)| (row * 10 + column) as f64);
    let mut f = Array2::zeros((3, 4).f());
    f.assign(&c);
    let positions = Array1::from_elem(5, [1.5f32, 2.5, 3.5]);
    let flags = Array2::from_shape_fn((4, 4), |(a, b)| a > b);
    let cube = Array3::from_shape_fn((4, 5, 6), |(a, b, c)| (a * 100 + b * 10 + c) as i16);
    save(
        &store,
        &[
            Variable::from_ndarray("c", c.view()).unwrap(),
            Variable::from_ndarray("f", f.view()).unwrap(),
            Variable::from_ndarray("positions", positions.slice(s![..;-2])).unwrap(),
            Variable::from_ndarray("flags", flags.slice(s![.., 1..3])).unwrap(),
            Variable::from_ndarray("plane", cube.index_axis(Axis(1), 3)).unwrap(),
        ],
    );
    let stored = Library::of(store.clone()).checkpoint("r", None).unwrap();
    let order = |name: &str| stored.read_array(name).unwrap().order;
    assert_eq!((order("c"), order("f"), order("plane")), (Order::C, Order::Fortran, Order::C));
    assert_eq!(stored.read_array("positions").unwrap().shape.0, [3, 3]);
    assert_eq!(stored.read_array("flags").unwrap().dtype, DType::Bool);
    assert_eq!(stored.read::<i16>("plane").unwrap()[7], 131);
    // Into views of other arrays, with other strides.
    let mut run = Run::open(Options::in_store(store, "r")).unwrap();
    let mut wide = Array2::from_elem((6, 4), -1.0);
    let mut plane = Array2::<i16>::zeros((6, 4));
    let into = plane.slice_mut(s![..;-1, ..]).reversed_axes();
    run.restore(&mut [VariableMut::from_ndarray("plane", into).unwrap()]).unwrap();
    assert_eq!(plane.slice(s![..;-1, ..]).t(), cube.index_axis(Axis(1), 3));
    run.restore(&mut [VariableMut::from_ndarray("c", wide.slice_mut(s![..;2, ..])).unwrap()])
        .unwrap();
    assert_eq!(wide.slice(s![..;2, ..]), c);
    assert!(wide.slice(s![1..;2, ..]).iter().all(|value| *value == -1.0));
    let mut grid = Array2::from_elem((4, 7), true);
    run.restore(&mut [VariableMut::from_ndarray("flags", grid.slice_mut(s![.., ..;6])).unwrap()])
        .unwrap();
    assert_eq!(grid.slice(s![.., ..;6]), flags.slice(s![.., 1..3]));
    // The order is one of the things that must agree.
    let mut other = Array2::<f64>::zeros((3, 4));
    let error = run.restore(&mut [VariableMut::from_ndarray("f", other.view_mut()).unwrap()]);
    assert_eq!(error.unwrap_err().kind(), ErrorKind::Mismatch);
}

#[test]
fn arrays_can_be_protected() {
    let store = memory();
    let program = |value: f64| {
        let mut run = Run::open(Options::in_store(store.clone(), "r")).unwrap();
        let grid = run.protect("grid", Array2::<f64>::zeros((3, 4).f())).unwrap();
        let before = run.restore_protected().unwrap().map(|_| grid.read()[[2, 3]]);
        grid.write()[[2, 3]] = value;
        run.checkpoint_protected(0).unwrap();
        run.finish().unwrap();
        before
    };
    assert_eq!((program(1.5), program(2.5), program(3.5)), (None, Some(1.5), Some(2.5)));
}
