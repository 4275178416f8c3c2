//! The access pattern by which de-duplication is measured: a table of counters, of which one row in
//! a hundred is touched between two checkpoints.

const COLUMNS: usize = 72;
const ADJACENT: usize = 64;

/// The pattern in which rows are touched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Touch {
    /// One random row at a time, its counters raised by different amounts.
    Scattered,
    /// 64 adjacent rows at a time, their counters raised by one.
    Runs,
}

impl Touch {
    /// Both, with their names.
    pub const ALL: [(Touch, &'static str); 2] =
        [(Touch::Scattered, "scattered"), (Touch::Runs, "runs")];
}

/// xorshift64*.
pub struct Random(u64);

impl Random {
    /// The seed of the pattern.
    pub fn new() -> Self {
        Random(88172645463325252)
    }

    /// The next number.
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545F4914F6CDD1D)
    }
}

/// The table and the state of its random numbers.
pub struct Pattern {
    /// The counters.
    pub table: Vec<u32>,
    touch: Touch,
    random: Random,
}

impl Pattern {
    /// A table of about `bytes` bytes after five warm-up steps that touch one row in twenty.
    pub fn new(bytes: usize, touch: Touch) -> Self {
        let rows = bytes / (COLUMNS * 4);
        // Written once, so that every page is real memory and not the kernel's one page of zeros.
        let mut table = vec![u32::MAX; rows * COLUMNS];
        table.fill(0);
        let mut pattern = Pattern { table, touch, random: Random::new() };
        for _ in 0..5 {
            pattern.touch_rows(rows / 20);
        }
        pattern
    }

    /// Touches so many rows that nearly all have been touched: from then on, no checkpoint is harder to
    /// store than the one before.
    pub fn settle(&mut self) {
        self.touch_rows(self.table.len() / COLUMNS * 3);
    }

    /// The changes between two checkpoints: one row in a hundred is touched.
    pub fn step(&mut self) {
        self.touch_rows(self.table.len() / COLUMNS / 100);
    }

    fn touch_rows(&mut self, rows: usize) {
        let all = (self.table.len() / COLUMNS) as u64;
        match self.touch {
            Touch::Scattered => {
                for _ in 0..rows {
                    let row = (self.random.next() % all) as usize * COLUMNS;
                    for column in (0..20).step_by(2) {
                        self.table[row + column] += 1 + (self.random.next() & 7) as u32;
                    }
                }
            }
            Touch::Runs => {
                for _ in 0..rows / ADJACENT {
                    let first = (self.random.next() % (all - ADJACENT as u64)) as usize;
                    for row in first..first + ADJACENT {
                        for column in (0..20).step_by(2) {
                            self.table[row * COLUMNS + column] += 1;
                        }
                    }
                }
            }
        }
    }
}
