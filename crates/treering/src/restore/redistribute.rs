//! Rows that travel to the ranks that want them.

use crate::array::{Rank, VariableMut, settled};
use crate::comm::{Comm, Reduction, check_rank, garbled};
use crate::error::{Error, Result};
use std::collections::BTreeMap;

/// The bytes that a rank sends in one round.
const ROUND: u64 = 64 << 20;

/// Sends rows of arrays to the ranks that want them; collective. `wanted_by[i]` is the rank that wants row i of
/// every array, so that rows of different arrays stay together.
///
/// All arrays are [`VariableMut::growing`], in the same order on all ranks, and have `wanted_by.len()` rows, each of
/// them of as many elements on all ranks. Afterwards each rank has the rows that were sent to it, those of rank 0
/// first, and otherwise in the order that they had. An array of several axes must have its rows one after another in
/// memory, as in C order. If the arguments of one rank are invalid, all ranks get an error and no array is changed.
///
/// Particles that were saved with [`Variable::rows`](crate::Variable::rows) come back evenly split, on any number of
/// ranks; this brings each of them to the rank that owns its place:
///
/// ```
/// use std::sync::Arc;
/// use treering::{MemoryStore, Options, Rank, Run, Store, ThreadRanks, Variable, VariableMut};
///
/// # let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
/// # let shared = store.clone();
/// ThreadRanks::new(2).run(move |comm| {
///     let x: Vec<f64> = (0..50).map(|at| f64::from(at * 37 % 100) / 100.0).collect();
///     let id: Vec<u32> = (0..50).map(|at| at + 50 * comm.rank().0).collect();
///     let mut run = Run::open(Options::in_store(store.clone(), "dust").ranks(comm)).unwrap();
///     let state = [Variable::new("x", &x).rows(), Variable::new("id", &id).rows()];
///     run.checkpoint(1, &state).unwrap();
///     run.finish().unwrap();
/// });
/// # let store = shared;
/// ThreadRanks::new(4).run(move |comm| {
///     let (mut x, mut id) = (Vec::<f64>::new(), Vec::<u32>::new());
///     let mut run = Run::open(Options::in_store(store.clone(), "dust").ranks(comm.clone())).unwrap();
///     let arrays = &mut [VariableMut::growing("x", &mut x), VariableMut::growing("id", &mut id)];
///     run.restore(arrays).unwrap().unwrap();
///     assert_eq!(x.len(), 25);
///     // Rank r owns the places from r/4 up to (r + 1)/4.
///     let wanted_by: Vec<Rank> = x.iter().map(|x| Rank((x * 4.0) as u32)).collect();
///     let arrays = &mut [VariableMut::growing("x", &mut x), VariableMut::growing("id", &mut id)];
///     treering::redistribute(&*comm, &wanted_by, arrays).unwrap();
///     assert!(x.iter().all(|x| (x * 4.0) as u32 == comm.rank().0));
///     assert!(x.iter().zip(&id).all(|(x, id)| *x == f64::from(id % 50 * 37 % 100) / 100.0));
/// })
/// # .into_iter().for_each(|end| end.done().unwrap());
/// ```
pub fn redistribute(comm: &dyn Comm, wanted_by: &[Rank], arrays: &mut [VariableMut]) -> Result<()> {
    settled(move_rows(comm, wanted_by, arrays), arrays)
}

fn move_rows(comm: &dyn Comm, wanted_by: &[Rank], arrays: &mut [VariableMut]) -> Result<()> {
    let widths = agree_on_widths(comm, wanted_by, arrays)?;
    let row: u64 = widths.iter().sum();
    let per_round = (ROUND / row.max(1)).max(1);
    let mut rounds = [(wanted_by.len() as u64).div_ceil(per_round)];
    comm.reduce(Reduction::Max, &mut rounds)?;
    // The rows of each sender, array by array: rounds of one sender follow each other, and senders are in order.
    let mut received: BTreeMap<Rank, Vec<Vec<u8>>> = BTreeMap::new();
    let mut wrong = None;
    for round in 0..rounds[0] {
        let first = (round * per_round).min(wanted_by.len() as u64) as usize;
        let end = ((round + 1) * per_round).min(wanted_by.len() as u64) as usize;
        let messages = letters(&wanted_by[first..end], first, &widths, arrays);
        let messages: Vec<(Rank, &[u8])> = messages.iter().map(|(r, m)| (*r, &m[..])).collect();
        for (sender, message) in comm.exchange(&messages)? {
            let from = received.entry(sender).or_insert_with(|| vec![Vec::new(); widths.len()]);
            if let Err(error) = open_letter(&message, &widths, from) {
                wrong.get_or_insert(error);
            }
        }
    }
    let grown = match wrong {
        Some(error) => Err(error),
        None => grow(&received, arrays),
    };
    all_well(comm, grown)
}

/// The bytes of a row of each array, which are the same on all ranks; an error on all of them if not.
fn agree_on_widths(
    comm: &dyn Comm,
    wanted_by: &[Rank],
    arrays: &mut [VariableMut],
) -> Result<Vec<u64>> {
    let own = own_widths(comm, wanted_by, arrays);
    // A rank without rows does not know how wide they are.
    let mut counts = [arrays.len() as u64, !(arrays.len() as u64)];
    comm.reduce(Reduction::Max, &mut counts)?;
    let own = match counts[0] == !counts[1] {
        true => own,
        false => Err(Error::usage("the ranks give different numbers of arrays")),
    };
    let own = all_well(comm, own)?;
    let mut most: Vec<u64> = own.iter().map(|width| width.unwrap_or(0)).collect();
    comm.reduce(Reduction::Max, &mut most)?;
    let differ = own.iter().zip(&most).position(|(own, most)| own.is_some_and(|own| own != *most));
    let alike = match differ {
        None => Ok(most),
        Some(at) => Err(Error::usage(format!(
            "rows of array {:?} are shorter on rank {} than on another one",
            arrays[at].name(),
            comm.rank()
        ))),
    };
    all_well(comm, alike)
}

fn own_widths(
    comm: &dyn Comm,
    wanted_by: &[Rank],
    arrays: &mut [VariableMut],
) -> Result<Vec<Option<u64>>> {
    wanted_by.iter().try_for_each(|rank| check_rank(comm, *rank))?;
    let rows = wanted_by.len() as u64;
    let width = |array: &mut VariableMut| {
        // An array that cannot grow is refused now, before anything is sent.
        let elements = array.bytes().len() as u64 / array.description().dtype.size();
        array.resize(elements)?;
        let bytes = array.bytes().len() as u64;
        match rows {
            0 if bytes == 0 => Ok(None),
            1.. if elements.is_multiple_of(rows) => Ok(Some(bytes / rows)),
            _ => Err(Error::usage(format!(
                "{elements} elements of array {:?} are not {rows} rows",
                array.name()
            ))),
        }
    };
    arrays.iter_mut().map(width).collect()
}

/// The rows of each receiver: for each array, how many bytes, and the bytes.
fn letters(
    wanted_by: &[Rank],
    first: usize,
    widths: &[u64],
    arrays: &mut [VariableMut],
) -> BTreeMap<Rank, Vec<u8>> {
    let mut counts = BTreeMap::<Rank, u64>::new();
    wanted_by.iter().for_each(|rank| *counts.entry(*rank).or_default() += 1);
    let mut letters: BTreeMap<Rank, Vec<u8>> = BTreeMap::new();
    for (array, width) in arrays.iter_mut().zip(widths) {
        for (rank, count) in &counts {
            let letter = letters.entry(*rank).or_default();
            letter.extend_from_slice(&(count * width).to_le_bytes());
        }
        // Rows of one array go to all receivers before the next array begins.
        let (bytes, width) = (array.bytes(), *width as usize);
        for (at, rank) in wanted_by.iter().enumerate() {
            let row = &bytes[(first + at) * width..][..width];
            letters.entry(*rank).or_default().extend_from_slice(row);
        }
    }
    letters
}

/// Adds the rows of a message to those of its sender.
fn open_letter(message: &[u8], widths: &[u64], arrays: &mut [Vec<u8>]) -> Result<()> {
    let mut rest = message;
    for (array, width) in arrays.iter_mut().zip(widths) {
        let (head, behind) = rest.split_first_chunk::<8>().ok_or_else(garbled)?;
        let len = u64::from_le_bytes(*head);
        let whole = *width > 0 && len.is_multiple_of(*width) || len == 0;
        let bytes = behind.get(..len as usize).filter(|_| whole).ok_or_else(garbled)?;
        array.extend_from_slice(bytes);
        rest = &behind[len as usize..];
    }
    match rest.is_empty() {
        true => Ok(()),
        false => Err(garbled()),
    }
}

/// Puts the rows of all senders into the arrays.
fn grow(received: &BTreeMap<Rank, Vec<Vec<u8>>>, arrays: &mut [VariableMut]) -> Result<()> {
    for (at, array) in arrays.iter_mut().enumerate() {
        let bytes: usize = received.values().map(|from| from[at].len()).sum();
        array.resize(bytes as u64 / array.description().dtype.size())?;
        let mut rest = array.bytes();
        for from in received.values() {
            let (place, behind) = rest.split_at_mut(from[at].len());
            place.copy_from_slice(&from[at]);
            rest = behind;
        }
    }
    Ok(())
}

/// Goes on if all ranks can; an error of one becomes that of all.
fn all_well<T>(comm: &dyn Comm, own: Result<T>) -> Result<T> {
    let failed = |own: &Result<T>| if own.is_err() { u64::from(comm.rank().0) } else { u64::MAX };
    let mut first = [failed(&own)];
    comm.reduce(Reduction::Min, &mut first)?;
    match (own, first) {
        (own @ Err(_), _) | (own, [u64::MAX]) => own,
        (Ok(_), [rank]) => {
            Err(Error::usage(format!("rank {rank} cannot take part; see its error for the reason")))
        }
    }
}
