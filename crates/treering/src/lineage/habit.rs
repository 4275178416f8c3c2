//! Learning, per variable, whether looking for something pays.
//!
//! Looking for unchanged chunks costs a hash that the program waits for; looking for duplicates
//! costs memory and time behind it. A variable for which it did not pay three times in a row is
//! left in peace for a while and then tried again, because programs have phases.

const PATIENCE: u32 = 3;
const REST: u32 = 16;

/// Whether it still pays to look.
#[derive(Clone, Debug, Default)]
pub(crate) struct Habit {
    misses: u32,
    rest: u32,
}

impl Habit {
    /// Whether to look this time; counts the time of rest down.
    pub(crate) fn look(&mut self) -> bool {
        if self.rest > 0 {
            self.rest -= 1;
            return false;
        }
        true
    }

    /// Takes in whether the last look paid.
    pub(crate) fn observe(&mut self, paid: bool) {
        if paid {
            self.misses = 0;
            return;
        }
        self.misses += 1;
        if self.misses >= PATIENCE {
            // One more miss after the rest is enough to rest again.
            self.misses = PATIENCE - 1;
            self.rest = REST;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rests_after_three_misses_and_tries_again() {
        let mut habit = Habit::default();
        for _ in 0..PATIENCE {
            assert!(habit.look());
            habit.observe(false);
        }
        let looks: Vec<bool> = (0..REST + 1).map(|_| habit.look()).collect();
        assert_eq!(looks.iter().filter(|l| **l).count(), 1);
        assert!(looks[REST as usize]);
        habit.observe(true);
        for _ in 0..PATIENCE - 1 {
            habit.observe(false);
            assert!(habit.look());
        }
    }
}
