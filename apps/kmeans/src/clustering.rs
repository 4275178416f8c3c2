//! One rank's end of a clustering: its share of the points, and the centres, which all ranks have.

use crate::nearest::{LANES, Lanes, Vectors};
use crate::points::{make_points, push_point};
use crate::settings::Settings;
use crate::sums::{BATCH, Sums};
use treering::{Comm, Error, ErrorKind, Reduction, Result, Variable, VariableMut};
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// A rank's end of Lloyd's algorithm (1982).
pub struct Clustering {
    settings: Settings,
    /// The first point of this rank.
    first: u64,
    /// The points of this rank, one after another.
    points: Vec<f64>,
    centres: Vec<f64>,
    /// The numbers of `Settings::fingerprint`, as they were saved.
    saved_settings: [u64; 4],
    /// The sum of the squares of the distances that the last iteration has found.
    inertia: [f64; 1],
    sums: Sums,
    tile: Vec<Lanes>,
    vectors: Vectors,
}

impl Clustering {
    /// A clustering without any points yet.
    pub fn new(settings: &Settings) -> Clustering {
        Clustering {
            first: 0,
            points: Vec::new(),
            centres: Vec::new(),
            saved_settings: settings.fingerprint(),
            inertia: [0.0],
            sums: Sums::default(),
            tile: Vec::new(),
            vectors: Vectors::widest(),
            settings: settings.clone(),
        }
    }

    /// Checks the settings and makes room for the share of a rank. The coordinates are not numbers until the points are
    /// made or restored.
    pub fn make_room(&mut self, rank: u32, ranks: u32) -> Result<()> {
        self.settings.check()?;
        let (first, count) = self.settings.share(rank, ranks);
        let (dimensions, centres) = (self.dimensions(), self.settings.centres as usize);
        self.first = first;
        self.points = vec![f64::NAN; count as usize * dimensions];
        self.centres = vec![f64::NAN; centres * dimensions];
        (self.inertia, self.saved_settings) = ([0.0], self.settings.fingerprint());
        (self.sums, self.tile) = (Sums::new(&self.settings), vec![[0.0; LANES]; dimensions]);
        Ok(())
    }

    /// Makes the points of this rank, and the first centres: points whose numbers are evenly spread.
    pub fn make_points(&mut self) {
        let Settings { points, dimensions, centres, seed, .. } = self.settings;
        let count = (self.points.len() / self.dimensions()) as u64;
        self.points = make_points(seed, self.first, count, dimensions);
        self.centres.clear();
        for centre in 0..u64::from(centres) {
            let point = centre * (points / u64::from(centres));
            push_point(seed, point, dimensions, &mut self.centres);
        }
    }

    fn dimensions(&self) -> usize {
        self.settings.dimensions as usize
    }

    /// The parameters.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The points of this rank, one after another.
    pub fn points(&self) -> &[f64] {
        &self.points
    }

    /// The number of the first point of this rank.
    pub fn first(&self) -> u64 {
        self.first
    }

    /// The centres, one after another.
    pub fn centres(&self) -> &[f64] {
        &self.centres
    }

    /// The sum of the squares of the distances of all points from their nearest centres, as the last iteration has
    /// found them.
    pub fn inertia(&self) -> f64 {
        self.inertia[0]
    }

    /// Finds the nearest centre of every point and moves each centre to the mean of its points; collective.
    pub fn iterate(&mut self, comm: &dyn Comm) -> Result<()> {
        self.sums.clear();
        let dimensions = self.dimensions();
        for batch in self.points.chunks(BATCH * dimensions) {
            for points in batch.chunks(LANES * dimensions) {
                for (lane, point) in points.chunks_exact(dimensions).enumerate() {
                    self.tile.iter_mut().zip(point).for_each(|(axis, x)| axis[lane] = *x);
                }
                // Lanes behind the last point have old points, which nobody looks at.
                let nearest = self.vectors.nearest(&self.tile, &self.centres);
                for (lane, point) in points.chunks_exact(dimensions).enumerate() {
                    let centre = nearest.centres[lane] as usize;
                    self.sums.add(point, centre, nearest.squares[lane]);
                }
            }
            self.sums.end_batch();
        }
        self.sums.reduce(comm)?;
        self.sums.move_centres(&mut self.centres);
        self.inertia = [self.sums.inertia()];
        Ok(())
    }

    /// The state: points are rows of a global array, everything else is the same on all ranks.
    pub fn variables(&self) -> Vec<Variable<'_>> {
        let Settings { points, dimensions, centres, .. } = self.settings;
        let width = u64::from(dimensions);
        let count = (self.points.len() / self.dimensions()) as u64;
        vec![
            Variable::new("points", &self.points)
                .shaped(&[count, width])
                .part_of(&[points, width], &[self.first, 0])
                .constant(),
            Variable::new("centres", &self.centres).shaped(&[centres.into(), width]).same(),
            Variable::new("inertia", &self.inertia).same(),
            Variable::new("settings", &self.saved_settings).same(),
        ]
    }

    /// The room for the state, to be filled.
    pub fn variables_mut(&mut self) -> Vec<VariableMut<'_>> {
        let Settings { points, dimensions, centres, .. } = self.settings;
        let width = u64::from(dimensions);
        let count = (self.points.len() / self.dimensions()) as u64;
        vec![
            VariableMut::new("points", &mut self.points)
                .shaped(&[count, width])
                .part_of(&[points, width], &[self.first, 0]),
            VariableMut::new("centres", &mut self.centres).shaped(&[centres.into(), width]),
            VariableMut::new("inertia", &mut self.inertia),
            VariableMut::new("settings", &mut self.saved_settings),
        ]
    }

    /// Refuses a state of other parameters; the same on all ranks.
    pub fn check_restored(&self) -> Result<()> {
        match self.saved_settings == self.settings.fingerprint() {
            true => Ok(()),
            false => Err(Error::new(ErrorKind::Mismatch, "the run belongs to other settings")
                .hint("give the settings it was begun with, or another run")),
        }
    }

    /// A digest of the points and the centres that does not depend on how the points are divided; collective.
    pub fn digest(&self, comm: &dyn Comm) -> Result<u64> {
        let mut bytes = Vec::new();
        let mut digest = |row: &[f64], number: u64| {
            bytes.clear();
            row.iter().for_each(|x| bytes.extend_from_slice(&x.to_le_bytes()));
            xxh3_64_with_seed(&bytes, number)
        };
        let points = (self.first..).zip(self.points.chunks_exact(self.dimensions()));
        let mut sum = [points.fold(0u64, |sum, (at, row)| sum.wrapping_add(digest(row, at)))];
        comm.reduce(Reduction::Sum, &mut sum)?;
        Ok(digest(&self.centres, sum[0] ^ self.inertia[0].to_bits()))
    }
}
