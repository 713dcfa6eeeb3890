#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| godwit_function::ipv6::fuzz::ipv6_routes(data));
