#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let _ = orbits::read::parse_graph(data);
});
