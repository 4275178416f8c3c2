//! Clusterings on several ranks: the same bits on any number of them.

use kmeans::points::make_points;
use kmeans::{Clustering, Settings};
use std::sync::Arc;
use treering::{Comm, ThreadRanks};

fn settings() -> Settings {
    Settings { points: 4000, dimensions: 6, centres: 7, ..Settings::default() }
}

/// The centres after some iterations, the inertia of each, and the digest at the end.
fn on_ranks(ranks: u32, settings: &Settings, iterations: u64) -> (Vec<f64>, Vec<f64>, u64) {
    let settings = settings.clone();
    let play = move |comm: Arc<dyn Comm>| {
        let mut clustering = Clustering::new(&settings);
        clustering.make_room(comm.rank().0, comm.size()).unwrap();
        clustering.make_points();
        let mut inertias = Vec::new();
        for _ in 0..iterations {
            clustering.iterate(&*comm).unwrap();
            inertias.push(clustering.inertia());
        }
        let digest = clustering.digest(&*comm).unwrap();
        (clustering.centres().to_vec(), inertias, digest)
    };
    let ends = ThreadRanks::new(ranks).run(play);
    let mut ends = ends.into_iter().map(|end| end.done().unwrap());
    let first = ends.next().unwrap();
    assert!(ends.all(|other| other == first));
    first
}

/// The same by the definition, point by point.
fn plain(settings: &Settings, iterations: u64) -> (Vec<f64>, f64) {
    let Settings { points, dimensions, centres, seed, .. } = *settings;
    let all = make_points(seed, 0, points, dimensions);
    let all: Vec<&[f64]> = all.chunks_exact(dimensions as usize).collect();
    let spread = (points / u64::from(centres)) as usize;
    let mut middle: Vec<Vec<f64>> =
        (0..centres as usize).map(|centre| all[centre * spread].to_vec()).collect();
    let mut inertia = 0.0;
    for _ in 0..iterations {
        let mut sums = vec![(vec![0.0; dimensions as usize], 0.0); centres as usize];
        inertia = 0.0;
        for point in &all {
            let squares = middle.iter().map(|centre| {
                point.iter().zip(centre).map(|(a, b)| (a - b) * (a - b)).sum::<f64>()
            });
            let (nearest, square) =
                squares.enumerate().min_by(|(_, a), (_, b)| a.total_cmp(b)).unwrap();
            sums[nearest].0.iter_mut().zip(*point).for_each(|(sum, x)| *sum += x);
            sums[nearest].1 += 1.0;
            inertia += square;
        }
        for (centre, (sum, count)) in middle.iter_mut().zip(sums).filter(|(_, (_, n))| *n > 0.0) {
            centre.iter_mut().zip(sum).for_each(|(x, sum)| *x = sum / count);
        }
    }
    (middle.concat(), inertia)
}

#[test]
fn centres_are_those_of_the_definition() {
    let (centres, inertias, _) = on_ranks(3, &settings(), 12);
    let (expected, inertia) = plain(&settings(), 12);
    assert!(centres.iter().zip(&expected).all(|(a, b)| (a - b).abs() < 1e-14));
    assert!((inertias[11] - inertia).abs() < 1e-9 * inertia);
    assert!(inertias.windows(2).all(|pair| pair[1] < pair[0]), "{inertias:?}");
}

#[test]
fn any_number_of_ranks_gives_the_same_bits() {
    let one = on_ranks(1, &settings(), 20);
    for ranks in [2, 3, 5, 8] {
        assert_eq!(on_ranks(ranks, &settings(), 20), one, "{ranks} ranks");
    }
    assert_ne!(on_ranks(1, &settings(), 19).2, one.2);
    assert_ne!(on_ranks(1, &Settings { seed: 2, ..settings() }, 20).2, one.2);
}

#[test]
fn ranks_may_have_no_points() {
    let few = Settings { points: 5, centres: 5, ..settings() };
    assert_eq!(on_ranks(8, &few, 3), on_ranks(1, &few, 3));
}
