//! Floating-point arithmetic as IEEE 754 defines it, whatever the program has set.
//!
//! Rounding, encoding and comparison compute with floating-point numbers, and must come to the same bits
//! every time: a decoder must reproduce what the encoder computed. Programs that are compiled for speed
//! flush denormals to zero, some round upwards, and every thread inherits that. So the control register is
//! set to its default around all of this work, and back.

/// Runs `work` with rounding to nearest, denormals kept, and nothing trapped.
pub(crate) fn plain<T>(work: impl FnOnce() -> T) -> T {
    let _standard = StandardFloats::set();
    within(work)
}

/// Not to be mixed with what is around it.
#[inline(never)]
fn within<T>(work: impl FnOnce() -> T) -> T {
    work()
}

/// The standard environment of this thread, until it is dropped.
pub(crate) struct StandardFloats(Control);

impl StandardFloats {
    pub(crate) fn set() -> Self {
        StandardFloats(exchange(DEFAULT))
    }
}

impl Drop for StandardFloats {
    fn drop(&mut self) {
        exchange(self.0);
    }
}

#[cfg(target_arch = "x86_64")]
type Control = u32;
#[cfg(target_arch = "x86_64")]
const DEFAULT: Control = 0x1f80;

/// Sets the control register and tells what it was.
#[cfg(target_arch = "x86_64")]
fn exchange(new: Control) -> Control {
    let mut old: Control = 0;
    // SAFETY: both are words in memory, and all values given here come from the register or are its
    // default.
    unsafe {
        std::arch::asm!("stmxcsr [{}]", in(reg) std::ptr::addr_of_mut!(old), options(nostack, preserves_flags));
        std::arch::asm!("ldmxcsr [{}]", in(reg) &new, options(nostack, preserves_flags));
    }
    old
}

#[cfg(target_arch = "aarch64")]
type Control = u64;
#[cfg(target_arch = "aarch64")]
const DEFAULT: Control = 0;

/// Sets the control register and tells what it was.
#[cfg(target_arch = "aarch64")]
fn exchange(new: Control) -> Control {
    let old: Control;
    // SAFETY: all values given here come from the register or are its default.
    unsafe {
        std::arch::asm!("mrs {}, fpcr", out(reg) old, options(nostack, preserves_flags));
        std::arch::asm!("msr fpcr, {}", in(reg) new, options(nostack, preserves_flags));
    }
    old
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
type Control = ();
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
const DEFAULT: Control = ();

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn exchange(_: Control) -> Control {}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::*;
    use std::hint::black_box;

    #[inline(never)]
    fn sum(a: f64, b: f64) -> f64 {
        black_box(a) + black_box(b)
    }

    /// Rounding gives the same bits in any environment of the program.
    #[test]
    fn rounding_does_not_depend_on_the_environment() {
        use crate::array::{Bound, DType, Rounding};
        const UP: Control = 0x1f80 | 0x8040 | 0x4000;
        let values: Vec<u8> = (0..4000u32)
            .flat_map(|i| (f64::from(i).sin() * 1e3 + f64::from(i) * 1e-7).to_le_bytes())
            .collect();
        for bound in [Bound::abs(1e-3), Bound::abs(0.3), Bound::rel(1e-5)] {
            let rounded = || {
                let mut bytes = values.clone();
                Rounding::new(bound, DType::F64).unwrap().round(&mut bytes);
                bytes
            };
            let usual = rounded();
            let before = exchange(UP);
            let hurried = rounded();
            exchange(before);
            assert!(usual == hurried, "{bound}");
        }
    }

    #[test]
    fn what_a_program_has_set_is_put_aside_and_set_again() {
        // Upwards, and small numbers become zero.
        const HURRIED: Control = 0x1f80 | 0x8040 | 0x4000;
        let before = exchange(HURRIED);
        let (up, flushed) = (sum(1.0, 1e-30), sum(1e-310, 0.0));
        let inside = plain(|| (sum(1.0, 1e-30), sum(1e-310, 0.0)));
        let (again, still) = (sum(1.0, 1e-30), exchange(before));
        assert!(up > 1.0 && flushed == 0.0 && again > 1.0);
        assert_eq!(inside, (1.0, 1e-310));
        // The flags of what happened are in the same register.
        assert_eq!(still & !0x3f, HURRIED);
    }
}
