#![no_main]
#[path = "../drivers.rs"]
mod drivers;
libfuzzer_sys::fuzz_target!(|data: &[u8]| drivers::letter(data));
