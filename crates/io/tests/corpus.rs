//! Fuzz corpus of the pcap reader, replayed as it is, truncated, and damaged.

use std::path::Path;

#[test]
fn the_corpus_of_pcap_read_is_replayed() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/pcap_read");
    let mut inputs = 0;
    for entry in std::fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display())) {
        let path = entry.unwrap().path();
        println!("{}", path.display());
        let input = std::fs::read(path).unwrap();
        godwit_io::fuzz::pcap_read(&input);
        for at in 0..input.len().min(96) {
            godwit_io::fuzz::pcap_read(&input[..at]);
            for value in [0, 0x7f, 0xff, input[at] ^ 1] {
                let mut damaged = input.clone();
                damaged[at] = value;
                godwit_io::fuzz::pcap_read(&damaged);
            }
        }
        inputs += 1;
    }
    assert!(inputs > 0, "{} is empty", folder.display());
}
