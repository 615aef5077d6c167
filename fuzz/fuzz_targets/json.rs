#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| segue::fuzzing::json(input));
