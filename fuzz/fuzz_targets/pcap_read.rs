#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| godwit_io::fuzz::pcap_read(bytes));
