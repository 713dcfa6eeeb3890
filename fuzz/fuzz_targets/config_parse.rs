#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| godwit_engine::config::fuzz::config_parse(data));
