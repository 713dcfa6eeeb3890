#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| godwit_engine::fuzz::aes_frame(data));
