//! Every bench runs, at its smallest, so that none rots. No figure is judged here.

use std::time::Duration;

use godwit_bench::{BENCHES, BenchOptions, Size, run};

#[test]
fn every_bench_runs() {
    let options = BenchOptions { time: Duration::from_millis(5), peers: false, ..BenchOptions::default() };
    for bench in BENCHES {
        let mut said = Vec::new();
        let rows = run(bench.name, &options, &mut |line| said.push(line.to_owned()));
        let rows = rows.unwrap_or_else(|error| panic!("{}: {error}", bench.name));
        assert!(!rows.is_empty(), "{}", bench.name);
        for row in rows {
            assert_eq!(row.bench, bench.name);
            assert!(row.mpps > 0.0 && row.p50_us > 0.0 && row.p99_us >= row.p50_us, "{row:?}");
            assert!(!row.peer);
        }
    }
}

#[test]
fn implementations_and_sizes_can_be_chosen() {
    let options = BenchOptions {
        time: Duration::from_millis(5),
        peers: false,
        implementation: Some("ref".to_owned()),
        sizes: vec![Size::Bytes(300), Size::Imix],
        ..BenchOptions::default()
    };
    let rows = run("echo", &options, &mut |_| {}).unwrap();
    let told: Vec<_> = rows.iter().map(|row| (row.implementation.as_str(), row.size)).collect();
    assert_eq!(told, [("ref", Some(Size::Bytes(300))), ("ref", Some(Size::Imix))]);
}

#[test]
fn what_is_not_there_is_named_with_what_is() {
    let refused = |name: &str, options: BenchOptions| run(name, &options, &mut |_| {}).unwrap_err().to_string();
    assert!(refused("ipv5", BenchOptions::default()).contains("ipv4-lookup"));
    let device = BenchOptions { device: Some("cuda:7".to_owned()), ..BenchOptions::default() };
    let device = refused("echo", device);
    assert!(device.contains("cuda:7") && device.contains("on the CPU only"), "{device}");
    let implementation = BenchOptions { implementation: Some("vectorised".to_owned()), ..BenchOptions::default() };
    assert!(refused("echo", implementation).contains("scalar"));
}
