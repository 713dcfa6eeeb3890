#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| godwit_engine::fuzz::hash_frame(data));
