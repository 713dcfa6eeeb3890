#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| godwit_engine::fuzz::ipv4_frame(data));
