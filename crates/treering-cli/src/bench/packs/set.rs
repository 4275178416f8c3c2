//! A set of checkpoint files in memory: as they are, and taken apart into what has a meaning.

use rayon::prelude::*;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::BufWriter;
use std::path::Path;
use treering::testing::{Anatomy, FileRecord, take_apart};
use treering::{DType, Error, FileRules, Rank, RankFile, Result, rank_files};

/// Bytes with a meaning.
pub struct Part {
    /// Arrays of the same name and type mean the same.
    pub meaning: String,
    pub dtype: DType,
    pub bytes: Vec<u8>,
}

/// The parts of one rank.
pub type Member = Vec<Part>;

/// The files of one rank.
pub type Files = Vec<RankFile>;

/// The files of a folder by rank.
pub fn ranks(folder: &Path, pattern: Option<&str>) -> Result<Vec<Files>> {
    if !folder.is_dir() {
        return Err(Error::usage(format!("{} is not a folder", folder.display()))
            .hint("give a folder of the checkpoint files of one step"));
    }
    let mut ranks: BTreeMap<Rank, Files> = BTreeMap::new();
    for file in rank_files(&[folder.to_path_buf()], &FileRules::new(None, pattern)?)?.files {
        ranks.entry(file.rank).or_default().push(file);
    }
    match ranks.is_empty() {
        true => Err(Error::usage(format!("there are no files in {}", folder.display()))
            .hint("give a folder of the checkpoint files of one step")),
        false => Ok(ranks.into_values().collect()),
    }
}

/// Whether members are made of whole files or of variables.
pub fn load(ranks: &[Files], by_meaning: bool) -> Result<Vec<Member>> {
    let parts = |file: &RankFile| match by_meaning {
        true => apart(file),
        false => Ok(vec![whole(file)?]),
    };
    let member = |files: &Files| -> Result<Member> {
        let parts: Vec<Vec<Part>> = files.par_iter().map(parts).collect::<Result<_>>()?;
        Ok(parts.into_iter().flatten().collect())
    };
    ranks.par_iter().map(member).collect()
}

fn whole(file: &RankFile) -> Result<Part> {
    let bytes = std::fs::read(&file.path)
        .map_err(|e| Error::io(format!("cannot read {}", file.path.display()), e))?;
    Ok(Part { meaning: file.like.clone(), dtype: DType::Bytes, bytes })
}

/// The record of a file, which tells how many fields follow, and its fields.
fn apart(file: &RankFile) -> Result<Vec<Part>> {
    let (anatomy, record) = record(file)?;
    let mut parts = vec![Part { meaning: file.like.clone(), dtype: DType::Bytes, bytes: record }];
    for field in &anatomy.fields {
        let Some(size) = field.description.bytes() else { continue };
        let mut bytes = vec![0; size as usize];
        field.bytes.read_at(0, &mut bytes)?;
        let (name, axes) = (&field.description.name, field.description.shape.0.len());
        let meaning = format!("{} {name} {axes}-D", file.like);
        parts.push(Part { meaning, dtype: field.description.dtype, bytes });
    }
    Ok(parts)
}

/// The fields of a file, and the record of what else it holds.
pub fn record(file: &RankFile) -> Result<(Anatomy, Vec<u8>)> {
    let anatomy = take_apart(&file.path, None)?;
    let fields = anatomy.fields.iter().map(|field| field.description.name.clone()).collect();
    let record = FileRecord {
        name: file.name.clone(),
        format: anatomy.format.to_string(),
        mode: 0o644,
        modified: 0,
        fields,
        in_skeleton: Vec::new(),
        skeleton: anatomy.skeleton.clone(),
    };
    let record = record.write();
    Ok((anatomy, record))
}

/// Writes the files of a rank again, durably.
pub fn give_back(files: &Files, parts: &[Vec<u8>], by_meaning: bool, to: &Path) -> Result<()> {
    let mut parts = parts.iter();
    for file in files {
        let path = to.join(&file.name);
        let failed = |e| Error::io(format!("cannot write {}", path.display()), e);
        std::fs::create_dir_all(path.parent().unwrap_or(to)).map_err(failed)?;
        let mut out = BufWriter::with_capacity(1 << 20, File::create(&path).map_err(failed)?);
        let missing = || Error::damaged("a part of a file is missing");
        let head = parts.next().ok_or_else(missing)?;
        match by_meaning {
            false => std::io::Write::write_all(&mut out, head).map_err(failed)?,
            true => {
                let record = FileRecord::parse(head)?;
                let fields: Vec<&Vec<u8>> = parts.by_ref().take(record.fields.len()).collect();
                let read = |field: usize, offset: u64, out: &mut [u8]| {
                    let bytes = fields.get(field).and_then(|bytes| bytes.get(offset as usize..));
                    out.copy_from_slice(
                        bytes.and_then(|b| b.get(..out.len())).ok_or_else(missing)?,
                    );
                    Ok(())
                };
                record.skeleton.rebuild(&read, &mut out)?;
            }
        }
        let file = out.into_inner().map_err(|e| failed(e.into_error()))?;
        file.sync_all().map_err(failed)?;
    }
    Ok(())
}

/// Refuses what did not come back byte for byte.
pub fn check(ranks: &[Files], folder: &Path) -> Result<()> {
    for file in ranks.iter().flatten() {
        let read = |path: &Path| {
            std::fs::read(path).map_err(|e| Error::io(format!("cannot read {}", path.display()), e))
        };
        if read(&file.path)? != read(&folder.join(&file.name))? {
            return Err(Error::damaged(format!("{} came back different", file.name)));
        }
    }
    Ok(())
}
