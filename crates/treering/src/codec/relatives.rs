//! Which values of a row, or of the row above, tell most about those of a column.

use super::columns::{CLASSES, LEADS, TableShape, class, lead, token};
use super::word::Word;

/// Distances, in values, of the relatives of a column's values: in the same row, or in the one above.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Relatives {
    /// That by which the first symbol is coded.
    pub(super) first: u8,
    /// That by which the bits behind the first one are coded.
    pub(super) lead: u8,
    /// The second one for the first symbol; 0 if there is none.
    pub(super) second: u8,
}

impl Relatives {
    /// Relatives of a column that needs none.
    pub(super) const NONE: Relatives = Relatives { first: 0, lead: 0, second: 0 };

    pub(super) fn are_none(self) -> bool {
        self == Relatives::NONE
    }

    /// Whether they are nowhere but in the row or the one above.
    pub(super) fn are_near(self, row: usize) -> bool {
        let near = |back: u8| (1..=row + 1).contains(&back.into());
        near(self.first) && near(self.lead) && (self.second == 0 || near(self.second))
    }
}

/// Rows that are looked at: one of every few, and the least and the largest number of them.
const EVERY: usize = 16;
const ROWS: (usize, usize) = (96, 512);
/// For each value of the table this many symbols are looked at, and if all distances would take more, these
/// nearest ones only, and those around the value above.
const LOOKS: usize = 8;
const NEAREST: usize = 16;
/// Cost of a symbol that is new in a context, beside its share, in bits.
const NEW: u64 = 4;

/// Symbols, classes and leads of the values of sampled rows and of those before them, place by place: a
/// row is as long as twice the table's, and ends with the sampled one.
struct RowSample {
    count: usize,
    tokens: Vec<u8>,
    classes: Vec<u8>,
    leads: Vec<u8>,
}

impl RowSample {
    /// Values begin behind a row of zeros and one more.
    fn new<W: Word>(values: &[W], row: usize) -> RowSample {
        let rows = (values.len() - row - 1) / row;
        let count = (rows / EVERY).clamp(ROWS.0, ROWS.1).min(rows);
        let places = (2 * row + 1) * count;
        let mut sample = RowSample {
            count,
            tokens: vec![0; places],
            classes: vec![0; places],
            leads: vec![0; places],
        };
        for at in 0..count {
            let start = row + 1 + at * rows / count * row;
            for (place, value) in values[start - row - 1..start + row].iter().enumerate() {
                let value = value.wide();
                sample.tokens[place * count + at] = token(value) as u8;
                sample.classes[place * count + at] = class(value) as u8;
                sample.leads[place * count + at] = lead(value) as u8;
            }
        }
        sample
    }

    fn place<'s>(&self, of: &'s [u8], place: usize) -> &'s [u8] {
        &of[place * self.count..(place + 1) * self.count]
    }
}

/// Costs of symbols in contexts, in units of 2^-16 bits, counted while they come.
struct Cost {
    counts: Vec<u16>,
    totals: Vec<u16>,
    symbols: usize,
}

/// Differences of n log2(n) between n + 1 and n, for n up to the number of sampled rows; beside each, the same less the cost
/// of a new symbol where n is 0.
struct Logs(Vec<(u64, u64)>);

impl Logs {
    fn new() -> Logs {
        let of = |n: u64| n * log2(n);
        let step = |n: u64| of(n + 1) - of(n);
        let new = |n: u64| if n == 0 { NEW << 16 } else { 0 };
        Logs((0..=ROWS.1 as u64).map(|n| (step(n), step(n).wrapping_sub(new(n)))).collect())
    }
}

/// The logarithm in units of 2^-16, by squaring: the same on every machine.
fn log2(n: u64) -> u64 {
    let Some(whole) = n.checked_ilog2() else { return 0 };
    let (mut part, mut log) = ((n << 32) >> whole, u64::from(whole));
    for _ in 0..16 {
        part = (part * (part >> 16)) >> 16;
        log <<= 1;
        if part >> 33 > 0 {
            part >>= 1;
            log |= 1;
        }
    }
    log
}

impl Cost {
    fn new(contexts: usize, symbols: usize) -> Cost {
        Cost { counts: vec![0; contexts * symbols], totals: vec![0; contexts], symbols }
    }

    /// Costs of symbols in their contexts, nothing having been seen before.
    fn of(&mut self, logs: &Logs, pairs: impl Iterator<Item = (usize, u8)>) -> u64 {
        self.counts.fill(0);
        self.totals.fill(0);
        let mut cost = 0u64;
        for (context, symbol) in pairs {
            let total = &mut self.totals[context];
            let count = &mut self.counts[context * self.symbols + symbol as usize];
            // The entropy of a context is its total's n log n less those of its counts.
            let (of_total, of_count) =
                (logs.0[usize::from(*total)].0, logs.0[usize::from(*count)].1);
            cost = cost.wrapping_add(of_total).wrapping_sub(of_count);
            *total += 1;
            *count += 1;
        }
        cost
    }
}

/// The relatives of all columns. Values begin behind a row of zeros and one more.
pub(super) fn found<W: Word>(values: &[W], row: usize, thorough: bool) -> Vec<Relatives> {
    let none = Relatives { first: row as u8, lead: row as u8, second: 0 };
    let sample = RowSample::new(values, row);
    let logs = Logs::new();
    let (mut firsts, mut leads) = (Cost::new(CLASSES, 16), Cost::new(LEADS, LEADS));
    let mut seconds = Cost::new(if thorough { 256 } else { 0 }, 16);
    let all = row * (row + 1) * sample.count <= LOOKS * values.len();
    let tried = |back: &usize| all || *back <= NEAREST || *back + 1 >= row;
    let least = |cost: &mut dyn FnMut(usize) -> u64| {
        (1..=row + 1).filter(tried).min_by_key(|back| cost(*back)).unwrap_or(row) as u8
    };
    let of_column = |column: usize| {
        let place = row + 1 + column;
        let tokens = sample.place(&sample.tokens, place);
        if tokens.iter().all(|token| *token == tokens[0]) && tokens.first() < Some(&8) {
            return none;
        }
        let first = least(&mut |back| {
            let classes = sample.place(&sample.classes, place - back);
            firsts
                .of(&logs, classes.iter().map(|class| *class as usize).zip(tokens.iter().copied()))
        });
        let mine = sample.place(&sample.leads, place);
        let lead = match mine.iter().any(|lead| *lead > 0) {
            true => least(&mut |back| {
                let theirs = sample.place(&sample.leads, place - back);
                let pairs = theirs.iter().zip(mine).filter(|(_, mine)| **mine > 0);
                leads.of(&logs, pairs.map(|(theirs, mine)| (*theirs as usize, *mine)))
            }),
            false => first,
        };
        let second = match thorough {
            true => {
                let nearest = sample.place(&sample.tokens, place - first as usize);
                let mut with = |back: usize| {
                    let other = sample.place(&sample.tokens, place - back);
                    let contexts = nearest.iter().zip(other);
                    let contexts =
                        contexts.map(|(near, other)| (*near as usize) << 4 | *other as usize);
                    seconds.of(&logs, contexts.zip(tokens.iter().copied()))
                };
                let alone = with(first.into());
                let second = least(&mut with);
                if with(second.into()) < alone { second } else { 0 }
            }
            false => 0,
        };
        Relatives { first, lead, second }
    };
    (0..row).map(of_column).collect()
}

/// At how many places rows are looked for, and how many more of a hundred have to agree than in lines.
const PLACES: usize = 2048;
const AGREE: usize = 5;

/// The length of rows of which no shape is known: values of one column are of a size more often than
/// neighbours are. 1 if there are none.
pub(super) fn row_found(raw: &[u8], size: u8) -> u8 {
    let tokens: Vec<u8> = match size {
        1 => tokens::<u8>(raw),
        2 => tokens::<u16>(raw),
        4 => tokens::<u32>(raw),
        _ => tokens::<u64>(raw),
    };
    let longest = usize::from(TableShape::LONGEST).min(tokens.len() / 8);
    if longest < 2 {
        return 1;
    }
    let step = ((tokens.len() - longest) / PLACES).max(1);
    // Steps that share no factor with a row see all its columns.
    let places = || (longest..tokens.len()).step_by(step | 1).filter(|at| tokens[*at] > 0);
    let agree = |row: usize| places().filter(|at| tokens[*at] == tokens[*at - row]).count();
    let line = agree(1);
    let best = (2..=longest).map(agree).max().unwrap_or(0);
    if best * 100 < line * 100 + AGREE * places().count() {
        return 1;
    }
    // A multiple of a row is as good, or better by chance.
    let good = line + (best - line) * 9 / 10;
    (2..=longest).find(|row| agree(*row) >= good).unwrap_or(1) as u8
}

fn tokens<W: Word>(raw: &[u8]) -> Vec<u8> {
    raw.chunks_exact(W::BYTES).map(|value| token(W::read(value).wide()) as u8).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_found() {
        let mut state = 3u64;
        let mut random = |below: u64| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 33) % below
        };
        for row in [2u64, 7, 73, 200] {
            let mut most: Vec<u64> = (0..row).map(|_| 1 << random(10)).collect();
            (most[0], most[1]) = (1, 512);
            let table = (0..40_000).flat_map(|at| {
                let most = most[(at % row) as usize];
                ((most + random(most)) as u32).to_le_bytes()
            });
            assert_eq!(row_found(&table.collect::<Vec<u8>>(), 4), row as u8);
        }
        let line: Vec<u8> = (0..40_000u32).flat_map(|at| (at / 7).to_le_bytes()).collect();
        assert_eq!(row_found(&line, 4), 1);
        for len in 0..40 {
            assert_eq!(row_found(&line[..len], 8), 1);
            assert_eq!(row_found(&vec![7; len], 1 << (len % 4)), 1);
        }
    }

    #[test]
    fn logarithms_are_right_to_a_thousandth() {
        for n in 1..5000u64 {
            let exact = (n as f64).log2() * 65536.0;
            assert!((log2(n) as f64 - exact).abs() < 65.0, "{n}");
        }
    }

    /// Of ten columns, one is noise, one tells another, two tell a third together, and one goes on from the row above.
    #[test]
    fn columns_that_tell_of_others_are_found() {
        let mut state = 7u64;
        let mut random = |below: u64| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 33) % below
        };
        let row = 10;
        let mut values = vec![0u32; row + 1];
        for _ in 0..800 {
            let (a, b, c) = (random(8), random(4), random(1000));
            let slow = u64::from(values[values.len() - 4]);
            let slow = if random(4) == 0 { random(1000) } else { slow };
            let this = [a, b, c, random(8), random(8), 3 * a, slow, random(8), a + b, 2 * c];
            values.extend(this.map(|value| value as u32));
        }
        let thorough = found(&values, row, true);
        let fast = found(&values, row, false);
        assert_eq!((thorough[5].first, fast[5].first), (5, 5));
        assert_eq!(thorough[6].first, 10);
        let both = [thorough[8].first, thorough[8].second];
        assert!(both == [8, 7] || both == [7, 8] || both == [3, 7] || both == [7, 3], "{both:?}");
        assert_eq!((thorough[9].first, thorough[9].lead), (7, 7));
        assert!(fast.iter().all(|of| of.second == 0 && of.are_near(row)));
        assert!(thorough.iter().all(|of| of.are_near(row)));
        assert!(!Relatives { first: 12, lead: 1, second: 0 }.are_near(row));
        assert!(!Relatives { first: 1, lead: 0, second: 0 }.are_near(row));
    }
}
