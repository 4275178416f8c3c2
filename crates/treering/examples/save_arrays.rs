//! Saves arrays of every type, shape and order in a store, which `tests/with_exports.py` of the command exports and
//! reads with h5py, numpy and zarr.
//!
//! The element at place k in C order has the value (7 k + 3) mod 251: as it is in integers and bf16, a quarter of it in
//! other floating-point numbers, with the imaginary part one higher in complex ones, and its lowest bit in booleans.

use treering::{DType, Options, Result, Run, ThreadRanks, Variable};

const SHAPES: [&[u64]; 7] = [&[], &[1], &[5], &[0, 3], &[4, 5], &[3, 4, 5], &[2, 3, 4, 5]];

fn bits_of(value: u16, dtype: DType) -> Vec<u8> {
    let quarter = f32::from(value) / 4.0;
    let second = f32::from(value + 1) / 4.0;
    match dtype {
        DType::Bool => vec![(value & 1) as u8],
        DType::F16 => half(quarter).to_le_bytes().to_vec(),
        DType::BF16 => f32::from(value).to_le_bytes()[2..].to_vec(),
        DType::F32 => quarter.to_le_bytes().to_vec(),
        DType::F64 => f64::from(quarter).to_le_bytes().to_vec(),
        DType::C64 => [quarter, second].map(f32::to_le_bytes).concat(),
        DType::C128 => [quarter, second].map(|part| f64::from(part).to_le_bytes()).concat(),
        _ => u64::from(value).to_le_bytes()[..dtype.size() as usize].to_vec(),
    }
}

/// A number that fits into half precision as it is.
fn half(value: f32) -> u16 {
    match value.to_bits() {
        0 => 0,
        bits => ((bits >> 23) as u16 + 15 - 127) << 10 | (bits >> 13 & 0x3ff) as u16,
    }
}

/// The bytes of an array in the order of memory. Its first element has the index `first` in an array of extent `whole`.
fn array(dtype: DType, shape: &[u64], first: &[u64], whole: &[u64], fortran: bool) -> Vec<u8> {
    let mut bytes = Vec::new();
    for mut at in 0..shape.iter().product::<u64>() {
        let mut index = vec![0; shape.len()];
        let axes: Vec<usize> = match fortran {
            true => (0..shape.len()).collect(),
            false => (0..shape.len()).rev().collect(),
        };
        for axis in axes {
            index[axis] = first[axis] + at % shape[axis];
            at /= shape[axis];
        }
        let place = index.iter().zip(whole).fold(0, |place, (at, extent)| place * extent + at);
        bytes.extend(bits_of(((7 * place + 3) % 251) as u16, dtype));
    }
    bytes
}

/// One rank with arrays of every type.
fn save_every_type(store: &str) -> Result<()> {
    let mut all = Vec::new();
    let mut add = |name: String, dtype: DType, shape: &'static [u64], fortran: bool| {
        let bytes = array(dtype, shape, &vec![0; shape.len()], shape, fortran);
        all.push((name, dtype, shape, fortran, bytes));
    };
    for dtype in DType::ALL {
        for (number, shape) in SHAPES.into_iter().enumerate() {
            for (fortran, order) in [(false, "c"), (true, "f")] {
                add(format!("{dtype}/{number}-{order}"), *dtype, shape, fortran);
            }
        }
    }
    // Several chunks and windows.
    add("large-c".into(), DType::F64, &[1201, 1003], false);
    add("large-f".into(), DType::F64, &[1201, 1003], true);
    let variables = all.iter().map(|(name, dtype, shape, fortran, bytes)| {
        let variable = Variable::from_bytes(name, *dtype, shape, bytes);
        let variable = if *fortran { variable.fortran() } else { variable };
        match name.starts_with("large") {
            true => variable
                .attribute("units", "K")
                .attribute("long name", "Größe")
                .attribute("empty", ""),
            false => variable,
        }
    });
    let variables: Vec<Variable> = variables.collect();
    let options = Options::directory(store, "types").label("git", "4542149");
    let mut run = Run::open(options.label("made by", "Zoë\nand others"))?;
    run.checkpoint(7, &variables)?;
    run.finish()
}

/// Three ranks with boxes that have ghost cells, rows, what is the same on all of them, and arrays of their own.
fn save_on_ranks(store: &str) {
    let store = store.to_string();
    let ends = ThreadRanks::new(3).run(move |comm| -> Result<()> {
        let rank = u64::from(comm.rank().0);
        let (low, high) = (u64::from(rank > 0), u64::from(rank < 2));
        let (shape, first) = ([30, 20 + low + high, 4], [0, 20 * rank - low, 0]);
        let [c, f] =
            [false, true].map(|fortran| array(DType::F32, &shape, &first, &[30, 60, 4], fortran));
        let part = |name, bytes| {
            let variable = Variable::from_bytes(name, DType::F32, &shape, bytes);
            let variable = variable.part_of(&[30, 60, 4], &[0, 20 * rank, 0]);
            variable.ghosts(&[0, low, 0], &[0, high, 0])
        };
        let before = 100 * rank + rank * rank.saturating_sub(1) / 2;
        let rows = array(DType::I64, &[100 + rank, 3], &[before, 0], &[303, 3], false);
        let (own, dt) = ([rank; 3], [0.25f64]);
        let state = [
            part("flow/c", &c).attribute("units", "m/s"),
            part("flow/f", &f).fortran(),
            Variable::from_bytes("points", DType::I64, &[100 + rank, 3], &rows).rows(),
            Variable::new("dt", &dt).shaped(&[]).same(),
            Variable::new("seed", &own),
        ];
        let mut run = Run::open(Options::directory(&store, "ranks").ranks(comm))?;
        run.checkpoint(11, &state)?;
        run.finish()
    });
    for end in ends {
        if let Err(error) = end.done().expect("a rank has died") {
            panic!("{error}");
        }
    }
}

fn main() -> Result<()> {
    let store = std::env::args().nth(1).expect("give the folder of a new store");
    save_every_type(&store)?;
    save_on_ranks(&store);
    Ok(())
}
