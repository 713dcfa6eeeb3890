#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| godwit_nids::fuzz::nids_rules(data));
