//! The layout of raw files, as options.

use std::path::PathBuf;
use treering::{DType, Error, RawLayout, Result, Shape};

/// The layout of files whose format has no description of it.
#[derive(clap::Args)]
pub struct RawOptions {
    /// Type of the values of raw files, little-endian: f16, bf16, f32, f64, c64, c128 (complex), i8, i16, i32, i64, u8,
    /// u16, u32, u64, bool or bytes. Default: a raw file is bytes.
    #[arg(long = "type", value_name = "TYPE", value_parser = parse_type)]
    dtype: Option<DType>,
    /// Shape of the array of a raw file, slowest axis first, as in 100x200. Default: one axis.
    #[arg(long, value_name = "SHAPE", value_parser = parse_shape, requires = "dtype")]
    shape: Option<Shape>,
    /// Fields of raw files: a TOML file of [[field]] tables with name, type and, optionally, shape, offset, big_endian
    /// and fortran.
    #[arg(long, value_name = "FILE", conflicts_with = "dtype")]
    layout: Option<PathBuf>,
}

impl RawOptions {
    pub fn raw(&self) -> Result<Option<RawLayout>> {
        let Some(path) = &self.layout else {
            return Ok(self.dtype.map(|dtype| RawLayout::values(dtype, self.shape.clone())));
        };
        let text = std::fs::read_to_string(path)
            .map_err(|e| Error::io(format!("cannot read {}", path.display()), e))?;
        RawLayout::parse(&text).map(Some).map_err(|e| e.at(path.display()))
    }
}

fn parse_type(text: &str) -> std::result::Result<DType, String> {
    let found = DType::ALL.iter().find(|dtype| dtype.name() == text);
    found.copied().ok_or_else(|| {
        let names: Vec<&str> = DType::ALL.iter().map(|dtype| dtype.name()).collect();
        format!("unknown type {text:?}; the types are {}", names.join(", "))
    })
}

fn parse_shape(text: &str) -> std::result::Result<Shape, String> {
    let extents: std::result::Result<Vec<u64>, _> =
        text.split(['x', '×', ',']).map(|part| part.trim().parse::<u64>()).collect();
    extents.map(Shape).map_err(|_| format!("invalid shape {text:?}: write it as in 100x200"))
}
