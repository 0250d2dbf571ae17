#![no_main]
//! Any bytes through one check; the same check is a property test in the crate that owns it.

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| (coordinator::fuzz::STORE.check)(bytes));
