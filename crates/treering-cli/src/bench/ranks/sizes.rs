//! Packs that ranks share against those of `ingest`, of the same variables: the typed arrays of a set's files, and
//! what else the files hold, saved step by step from ranks as one run.

use super::restart::{on_ranks, pack_bytes, patient};
use crate::bench::Options;
use crate::bench::packs::set::{self, Files};
use crate::output;
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use treering::{
    DType, DirectoryStore, Error, Ingest, IngestSettings, Order, Result, Run, Shape, Store,
    Variable, VariableMut,
};

/// The limit of a shared pack's size over that of an ingested one.
const LIMIT: f64 = 1.02;

/// One set of files.
#[derive(Serialize)]
pub struct Sizes {
    set: String,
    ranks: usize,
    steps: usize,
    ingested_bytes: u64,
    shared_bytes: u64,
    ratio: f64,
    limit: f64,
}

/// An array of a file.
#[derive(Clone, PartialEq)]
pub struct Field {
    name: String,
    dtype: DType,
    shape: Shape,
    order: Order,
    pub bytes: Vec<u8>,
}

pub fn run(options: &Options) -> Result<Vec<Sizes>> {
    options.folders.iter().map(|folder| of_set(folder, options)).collect()
}

/// The folders of a set's steps; the set itself if it has none.
pub fn steps(folder: &Path) -> Result<Vec<PathBuf>> {
    let failed = |e| Error::io(format!("cannot read {}", folder.display()), e);
    let mut steps = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        if path.is_dir()
            && path.file_name().is_some_and(|n| n.to_string_lossy().starts_with("step"))
        {
            steps.push(path);
        }
    }
    steps.sort();
    Ok(if steps.is_empty() { vec![folder.to_path_buf()] } else { steps })
}

fn of_set(folder: &Path, options: &Options) -> Result<Sizes> {
    let steps = steps(folder)?;
    let sets: Vec<Vec<Files>> = steps
        .iter()
        .map(|step| set::ranks(step, options.rank_pattern.as_deref()))
        .collect::<Result<_>>()?;
    let ranks = sets[0].len();
    if sets.iter().any(|set| set.len() != ranks) {
        return Err(Error::usage(format!(
            "{} has steps of several numbers of ranks",
            folder.display()
        )));
    }
    let place = options.folder()?;
    let stores = ["ingested", "shared"]
        .map(|name| Arc::new(DirectoryStore::new(place.path().join(name))) as Arc<dyn Store>);
    let ingest = treering::Options::in_store(stores[0].clone(), "r").compact(None);
    let mut ingest = Ingest::open(ingest, IngestSettings::default())?;
    for (step, set) in sets.iter().enumerate() {
        let files: Files = set.iter().flatten().cloned().collect();
        ingest.take(step as u64, &files, &|_, _| {})?;
    }
    drop(ingest);
    let (shared, sets) = (stores[1].clone(), Arc::new(sets));
    let count = sets.len();
    on_ranks(ranks as u32, move |comm| {
        let mut run = Run::open(patient(shared.clone(), &comm).compact(None))?;
        for (step, set) in sets.iter().enumerate() {
            let fields = fields(&set[comm.rank().0 as usize])?;
            let variables: Vec<Variable> = fields.iter().map(variable).collect();
            run.checkpoint(step as u64, &variables)?;
        }
        run.finish()
    })?;
    let [ingested_bytes, shared_bytes] = [0, 1].map(|at: usize| pack_bytes(stores[at].as_ref()));
    let (ingested_bytes, shared_bytes) = (ingested_bytes?, shared_bytes?);
    Ok(Sizes {
        set: folder.file_name().unwrap_or(folder.as_os_str()).to_string_lossy().into_owned(),
        ranks,
        steps: count,
        ingested_bytes,
        shared_bytes,
        ratio: shared_bytes as f64 / ingested_bytes as f64,
        limit: LIMIT,
    })
}

/// Everything that the files of a rank hold.
pub fn fields(files: &Files) -> Result<Vec<Field>> {
    let mut all = Vec::new();
    for file in files {
        let (anatomy, record) = set::record(file)?;
        all.push(Field {
            name: format!("{} file", file.like),
            dtype: DType::Bytes,
            shape: Shape(vec![record.len() as u64]),
            order: Order::C,
            bytes: record,
        });
        for field in &anatomy.fields {
            let description = &field.description;
            let Some(size) = description.bytes() else { continue };
            let mut bytes = vec![0; size as usize];
            field.bytes.read_at(0, &mut bytes)?;
            all.push(Field {
                name: format!("{} {}", file.like, description.name),
                dtype: description.dtype,
                shape: description.shape.clone(),
                order: description.order,
                bytes,
            });
        }
    }
    Ok(all)
}

pub fn variable(field: &Field) -> Variable<'_> {
    let variable = Variable::from_bytes(&field.name, field.dtype, &field.shape.0, &field.bytes);
    match field.order {
        Order::Fortran => variable.fortran(),
        Order::C => variable,
    }
}

/// The same array, to be filled.
pub fn target(field: &mut Field) -> VariableMut<'_> {
    let Field { name, dtype, shape, order, bytes } = field;
    let target = VariableMut::from_bytes(name, *dtype, &shape.0, bytes);
    match order {
        Order::Fortran => target.fortran(),
        Order::C => target,
    }
}

pub fn show(rows: &[Sizes]) {
    if rows.is_empty() {
        output::line("\nSizes of packs: give folders of sets (`make corpus` makes some).");
        return;
    }
    output::line("\nPacks that ranks share over packs that `ingest` makes of the same variables");
    let cells = |row: &Sizes| {
        vec![
            row.set.clone(),
            row.ranks.to_string(),
            row.steps.to_string(),
            output::bytes(row.ingested_bytes),
            output::bytes(row.shared_bytes),
            format!("{:.3}", row.ratio),
            row.limit.to_string(),
        ]
    };
    let header = ["set", "ranks", "steps", "ingested", "shared", "ratio", "limit"];
    output::line(output::table(&header, &[], rows.iter().map(cells)));
}
