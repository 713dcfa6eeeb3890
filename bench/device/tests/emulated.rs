//! Measurements of a CUDA device, on an emulated driver. Their accuracy can be checked only on a
//! GPU.

use std::time::Duration;

use godwit_device_bench::{copy_at_once, lookup, open};
use godwit_test_support::cuda;

#[test]
fn measures_copies_launches_mailboxes_and_reads() {
    let Some(_emulation) = cuda::emulation(env!("CARGO_TARGET_TMPDIR"), 1) else { return };
    let time = Duration::from_millis(5);
    for rates in copy_at_once(&["cuda:0", "cuda:0"], 10_000, time).unwrap() {
        assert!(rates.host_to_device > 0.0 && rates.device_to_host > 0.0 && rates.both > 0.0, "{rates:?}");
    }
    let mut device = open("cuda:0").unwrap();
    for times in [device.launch(20), device.mailbox(20)] {
        let times = times.unwrap().unwrap();
        assert!(times.len() == 20 && times.iter().all(|time| *time > 0.0), "{times:?}");
    }
    assert!(device.random_reads(100_000, 300, time).unwrap() > 0.0);
    let headers: Vec<u32> = (0..300).map(|header: u32| header.wrapping_mul(0x9e37_79b9)).collect();
    for depth in [1, 5] {
        let mut results = headers.clone();
        let times = device.lookups(1 << 16, &mut results, depth, time).unwrap();
        assert!(times.iter().all(|ns| *ns > 0.0), "{times:?}");
        let expected: Vec<u32> = headers.iter().map(|header| lookup(1 << 16, *header, depth)).collect();
        assert_eq!(results, expected, "depth {depth}");
    }
}
