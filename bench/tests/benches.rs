//! Every bench runs, at its smallest, so that none rots. No figure is judged here.

use std::collections::BTreeSet;
use std::io::Write as _;
use std::time::Duration;

use godwit_bench::{BENCHES, BenchOptions, Layout, Mode, Size, run};

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
            // `chain` measures no times of a batch.
            assert!(row.mpps > 0.0 && (row.p50_us > 0.0 || bench.name == "chain"), "{row:?}");
            assert!(row.p99_us >= row.p50_us && !row.peer, "{row:?}");
        }
    }
}

/// Through the lane of every device here: what came back was compared with `ref` before it was timed.
#[test]
fn functions_run_through_lanes_and_are_compared() {
    for (device, mode) in lanes() {
        // Large tables take long to build: one of them, once a device, does.
        for (layout, names) in
            [(Layout::Dense, &["echo", "ipv6", "l2", "ndn", "ipsec", "dpi"][..]), (Layout::Slots, &["ipsec"])]
        {
            let names = names.iter().filter(|name| **name != "dpi" || mode == Mode::Launch);
            for name in names {
                let options = BenchOptions {
                    device: Some(device.clone()),
                    mode: Some(mode),
                    layout,
                    // Three chunks of full and not so full bins.
                    batch: Some(100),
                    bin_packets: Some(32),
                    packets: Some(300),
                    in_flight: Some(2),
                    sizes: vec![Size::Imix],
                    time: Duration::from_millis(1),
                    ..BenchOptions::default()
                };
                let rows =
                    run(name, &options, &mut |_| {}).unwrap_or_else(|error| panic!("{name} on {device}: {error}"));
                assert_eq!(rows.len(), 1, "{name} on {device}");
                for row in rows {
                    assert_eq!((row.bench.as_str(), row.device.as_str(), row.batch), (*name, device.as_str(), 100));
                    assert!(["launch", "persistent"].contains(&row.mode), "{row:?}");
                    assert!(
                        row.mpps > 0.0 && row.gbps > 0.0 && row.p99_us >= row.p50_us && row.p50_us > 0.0,
                        "{row:?}"
                    );
                    assert!(row.note.contains(" 300 compared with ref"), "{row:?}");
                }
            }
        }
    }
}

/// A device that several threads feed, each with packets of its own, all compared with `ref`.
#[test]
fn several_threads_feed_a_device() {
    let on = |name: &str, device: &str, workers: &[usize], packets: usize| {
        let options = BenchOptions {
            device: Some(device.to_owned()),
            mode: Some(Mode::Launch),
            batch: Some(32),
            bin_packets: Some(32),
            packets: Some(packets),
            in_flight: Some(2),
            workers: workers.to_vec(),
            sas: Some(64),
            sizes: vec![Size::Imix],
            time: Duration::from_millis(1),
            ..BenchOptions::default()
        };
        run(name, &options, &mut |_| {})
    };
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let refused = |device: &str, workers, packets| on("echo", device, &[workers], packets).unwrap_err().to_string();
    for device in ["cpu", "cpu,opencl:0"] {
        assert!(refused(device, 2, 1024).contains("can feed one device that is not the CPU"), "{device}");
    }
    for (device, _) in lanes().into_iter().filter(|(device, mode)| device != "cpu" && *mode == Mode::Launch) {
        assert!(refused(&device, 4097, 1024).contains("4097 workers that feed a device need a core each: there are"));
        if cores == 1 {
            continue;
        }
        let few = refused(&device, 2, 511);
        assert!(few.contains("2 chunks of 32 packets in flight each need --packets 512 or more"), "{few}");
        for name in ["echo", "ipsec"] {
            let rows = on(name, &device, &[1, 2], 1024).unwrap_or_else(|error| panic!("{name} on {device}: {error}"));
            assert_eq!(rows.len(), 2, "{rows:#?}");
            for row in &rows {
                assert_eq!((row.bench.as_str(), row.device.as_str(), row.batch), (name, device.as_str(), 32));
                assert!(row.mpps > 0.0 && row.gbps > 0.0 && row.p99_us >= row.p50_us && row.p50_us > 0.0, "{row:?}");
                assert!(row.note.contains(" 1024 compared with ref"), "{row:?}");
            }
            assert!(rows[0].note.contains("dense, 2 in flight") && !rows[0].note.contains("fed by"), "{rows:#?}");
            let fed = "fed by 2 threads, each: dense, 2 in flight, bins of 32, arena of 512 packets";
            assert!(rows[1].note.starts_with(fed), "{rows:#?}");
        }
    }
}

/// Both directions of several suites, compared with `ref`.
#[test]
fn ipsec_is_measured_with_any_suite_both_ways() {
    for (suite, decrypt) in [("mix", false), ("mix", true), ("cbc256_sha256", true), ("ah_gmac128", false)] {
        let options = BenchOptions {
            mode: Some(Mode::Launch),
            suite: Some(suite.to_owned()),
            sas: Some(10),
            decrypt,
            packets: Some(300),
            sizes: vec![Size::Imix],
            time: Duration::from_millis(1),
            ..BenchOptions::default()
        };
        let rows = run("ipsec", &options, &mut |_| {}).unwrap_or_else(|error| panic!("{suite}, {decrypt}: {error}"));
        assert!(rows.len() == 1 && rows[0].mpps > 0.0, "{rows:#?}");
        assert!(rows[0].note.contains(" 300 compared with ref"), "{rows:#?}");
    }
    let wrong = BenchOptions { suite: Some("des".to_owned()), ..BenchOptions::default() };
    assert!(run("ipsec", &wrong, &mut |_| {}).unwrap_err().is_users());
}

/// Both directions of the whole function, with the host half: nothing is dropped, so no number comes twice, and the peer, where it
/// is built, leaves the same data and ICVs.
#[test]
fn ipsec_is_measured_as_a_whole_function_both_ways() {
    for suite in ["cbc128_sha1", "cbc256_sha256", "ctr128_sha1", "gcm128", "gmac256", "chacha20_poly1305", "null_sha1"]
    {
        for decrypt in [false, true] {
            let options = BenchOptions {
                suite: Some(suite.to_owned()),
                decrypt,
                sizes: vec![Size::Bytes(64), Size::Imix],
                time: Duration::from_millis(1),
                ..BenchOptions::default()
            };
            let rows = run("ipsec", &options, &mut |_| {});
            let rows = rows.unwrap_or_else(|error| panic!("{suite}, {decrypt}: {error}"));
            let ours: Vec<_> = rows.iter().filter(|row| !row.peer).collect();
            assert!(ours.len() == 2 && ours.iter().all(|row| row.mpps > 0.0), "{rows:#?}");
            assert_eq!(ours.iter().all(|row| row.note.contains(", opened")), decrypt, "{rows:#?}");
        }
    }
    let wrong = BenchOptions { suite: Some("ah_sha1".to_owned()), decrypt: true, ..BenchOptions::default() };
    assert!(run("ipsec", &wrong, &mut |_| {}).is_err());
}

/// PIPSEA's six combinations and their mix, and the gateway, on the CPU and on what else is here.
#[test]
fn ipsec_draws_the_figures() {
    let options = BenchOptions {
        figures: true,
        peers: false,
        packets: Some(256),
        sas: Some(16),
        workers: vec![1],
        sizes: vec![Size::Bytes(64), Size::ImixPipsea],
        time: Duration::from_millis(1),
        ..BenchOptions::default()
    };
    let rows = run("ipsec", &options, &mut |_| {}).unwrap();
    let of = |bench: &str, device: &str| {
        let found = rows.iter().filter(|row| row.bench == bench && row.device == device);
        found.inspect(|row| assert!(row.mpps > 0.0 && row.gbps > 0.0, "{row:#?}")).count()
    };
    let devices: BTreeSet<String> = lanes().into_iter().map(|(device, _)| device).collect();
    for device in &devices {
        let forms = if device == "cpu" { 2 } else { 1 };
        // Of payloads no mix is known.
        assert_eq!(of("ipsec-pipsea-8", device), 6 * forms, "{device}");
        // Six and their mix in memory, and what is encrypted port to port.
        assert_eq!(of("ipsec-pipsea-12", device), (7 + 3) * 2 * forms, "{device}");
        assert_eq!(of("ipsec-apunet-9a", device), 2 * forms, "{device}");
    }
    for combination in ["Mix; ", "AES-CBC ENC; ", "HMAC-SHA1 DEC; "] {
        let of = rows.iter().filter(|row| row.note.starts_with(combination) && row.mode == "launch");
        assert!(
            of.clone().count() > 0 && of.clone().all(|row| row.note.contains(" compared with ref")),
            "{combination}"
        );
    }
    // A payload of 64 bytes is a frame of 78.
    let payload = rows.iter().find(|row| row.bench == "ipsec-pipsea-8").unwrap();
    assert_eq!(payload.size, Some(Size::Bytes(64)));
    assert!((payload.gbps - payload.mpps * 64.0 * 8.0 / 1e3).abs() < 1e-9, "{payload:#?}");
    assert!(run("echo", &options, &mut |_| {}).unwrap_err().to_string().contains("--figures is for the bench ipsec"));
    let wrong = BenchOptions { sas: Some(100), ..options };
    assert!(run("ipsec", &wrong, &mut |_| {}).unwrap_err().to_string().contains("power of two"));
}

/// The CPU beside a device: each alone, and both at once.
#[test]
fn a_gateway_is_measured_with_cpu_and_device_together() {
    let on = |device: &str| {
        let options = BenchOptions {
            device: Some(device.to_owned()),
            together: true,
            workers: vec![1],
            sas: Some(64),
            sizes: vec![Size::Bytes(60)],
            time: Duration::from_millis(50),
            ..BenchOptions::default()
        };
        run("gateway", &options, &mut |_| {})
    };
    assert!(on("cpu").unwrap_err().is_users());
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    for (device, _) in
        lanes().into_iter().filter(|(device, mode)| device != "cpu" && *mode == Mode::Launch && cores > 1)
    {
        let rows = on(&device).unwrap_or_else(|error| panic!("{device}: {error}"));
        let devices: Vec<_> = rows.iter().map(|row| row.device.clone()).collect();
        assert_eq!(devices, ["cpu".to_owned(), device.clone(), format!("{device}+cpu")]);
        assert!(rows.iter().all(|row| row.mpps > 0.0 && row.gbps > 0.0), "{rows:#?}");
    }
}

/// `ipsec` on the CPU's cores beside a device, arena to arena: each alone and both at once, each compared with `ref`; and the peer in
/// place of ours, where it is built.
#[test]
fn ipsec_is_measured_with_cpu_and_device_together() {
    let on = |name: &str, device: &str, workers: usize| {
        let options = BenchOptions {
            device: Some(device.to_owned()),
            together: true,
            bin_packets: Some(32),
            packets: Some(600),
            in_flight: Some(2),
            workers: vec![workers],
            sas: Some(64),
            sizes: vec![Size::Imix],
            time: Duration::from_millis(1),
            ..BenchOptions::default()
        };
        run(name, &options, &mut |_| {})
    };
    let refused = |name: &str, device: &str, workers| on(name, device, workers).unwrap_err().to_string();
    assert!(refused("ipsec", "cpu", 1).contains("a --device that is not the CPU"));
    assert!(refused("ipsec", "opencl:0,opencl:1", 1).contains("one device beside the CPU"));
    assert!(refused("echo", "opencl:0", 1).contains("--together is for the benches ipsec and gateway"));
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    for (device, _) in
        lanes().into_iter().filter(|(device, mode)| device != "cpu" && *mode == Mode::Launch && cores > 1)
    {
        let rows = on("ipsec", &device, cores - 1).unwrap_or_else(|error| panic!("{device}: {error}"));
        let told: Vec<_> = rows.iter().map(|row| (row.device.as_str(), row.peer)).collect();
        let (both, beside) = (format!("{device}+cpu"), format!("{device}+ipsec-mb"));
        let ours = [("cpu", false), (device.as_str(), false), (both.as_str(), false)];
        let peers = [("ipsec-mb", true), (beside.as_str(), true)];
        assert!(told == ours || told == [&ours[..], &peers].concat(), "{told:?}");
        assert!(rows.iter().all(|row| row.bench == "ipsec" && row.mpps > 0.0 && row.gbps > 0.0), "{rows:#?}");
        assert!(rows[0].note.contains(&format!(" {} compared with ref", 600 * cores)), "{rows:#?}");
        let fed = 600 / (cores - 1) * (cores - 1);
        assert!(rows[1].note.contains(&format!(" {fed} compared with ref")), "{rows:#?}");
        assert!(rows[2].note.contains(&format!("of {cores} cores alone")), "{rows:#?}");
        assert!(refused("ipsec", &device, cores).contains("more cores than"));
    }
}

/// Port to port through the engine: conserved, all encrypted, and compared with `ref`, or there would be no row.
#[test]
fn a_gateway_runs_on_every_device() {
    for (device, mode) in lanes() {
        let options = BenchOptions {
            device: Some(device.clone()),
            mode: Some(mode),
            layout: if mode == Mode::Launch { Layout::Dense } else { Layout::Slots },
            batch: Some(128),
            in_flight: Some(2),
            workers: vec![1, 2],
            sizes: vec![Size::Imix],
            time: Duration::from_millis(5),
            ..BenchOptions::default()
        };
        let mut said = Vec::new();
        let rows = run("gateway", &options, &mut |line| said.push(line.to_owned()));
        let rows = rows.unwrap_or_else(|error| panic!("gateway on {device}: {error}"));
        assert_eq!(rows.len(), 2, "{rows:#?}");
        for (row, workers) in rows.iter().zip(["1 workers, ", "2 workers, "]) {
            assert_eq!((row.bench.as_str(), row.device.as_str(), row.batch), ("gateway", device.as_str(), 128));
            assert_eq!((row.mode, row.size), ("engine", Some(Size::Imix)));
            assert!(row.mpps > 0.0 && row.gbps > 0.0 && row.p50_us > 0.0 && row.p99_us >= row.p50_us, "{row:?}");
            assert!(row.note.starts_with(workers) && row.note.contains("cores busy"), "{row:?}");
            assert!(row.note.contains("nothing is copied") || row.note.contains("B a packet to"), "{row:?}");
            assert!(!row.note.contains("DROPPED"), "{row:?}");
        }
        assert_eq!(said.iter().filter(|line| line.contains("4096 packets compared with ref")).count(), 2, "{said:?}");
    }
}

/// A chain in every way, each compared with `ref`, or there would be no rows.
#[test]
fn a_chain_is_measured_in_every_way() {
    let found = godwit_device::opencl::probe().found.into_iter().filter(|found| found.usable.is_ok());
    for found in found.filter(|found| found.chain_lacks.is_none()).take(1) {
        let options = BenchOptions {
            device: Some(found.capabilities.id.clone()),
            batch: Some(64),
            bin_packets: Some(32),
            packets: Some(512),
            in_flight: Some(2),
            workers: vec![2],
            sizes: vec![Size::Bytes(128)],
            time: Duration::from_millis(1),
            ..BenchOptions::default()
        };
        let rows = run("chain", &options, &mut |_| {}).unwrap();
        let told: Vec<_> = rows.iter().map(|row| (row.implementation.as_str(), row.mode)).collect();
        let mut expected: Vec<_> = [
            "esp",
            "chain",
            "chain, a trip for each",
            "chain, verdict only",
            "dynamic 50/50",
            "dynamic 93/7",
            "dynamic by verdict",
            "chain, ipsec on device",
            "chain",
        ]
        .map(|name| (name, "launch"))
        .into();
        if found.lacks(Mode::Persistent).is_none() {
            expected.splice(7..7, [("esp", "persistent"), ("chain", "persistent")]);
        }
        assert_eq!(told, expected);
        assert!(rows.iter().all(|row| row.mpps > 0.0 && row.note.contains("Gbps per core of")), "{rows:#?}");
    }
}

/// Two functions on one device, alone and at once, in every way that the device has; and several threads.
#[test]
fn a_device_is_shared_by_functions_and_by_threads() {
    for (device, mode) in lanes() {
        let options = BenchOptions {
            device: Some(device.clone()),
            mode: Some(mode),
            batch: Some(64),
            bin_packets: Some(32),
            packets: Some(1024),
            in_flight: Some(2),
            workers: vec![1, 2],
            sas: Some(64),
            sizes: vec![Size::Bytes(128)],
            time: Duration::from_millis(1),
            ..BenchOptions::default()
        };
        let rows = run("sharing", &options, &mut |_| {}).unwrap_or_else(|error| panic!("{device}: {error}"));
        let told: Vec<&str> = rows.iter().map(|row| row.implementation.as_str()).collect();
        let mut expected = vec![
            "ipsec alone",
            "dpi alone",
            "ipsec, any group",
            "dpi, any group",
            "ipsec, 1 threads",
            "ipsec, 2 threads",
        ];
        if rows.iter().any(|row| row.implementation.ends_with("split 1:1")) {
            assert_eq!(mode, Mode::Persistent);
            expected.splice(4..4, ["ipsec, split 1:1", "dpi, split 1:1"]);
            let split: Vec<_> = rows.iter().filter(|row| row.implementation.ends_with("split 1:1")).collect();
            assert!(split.iter().all(|row| row.note.contains("served one function alone, 0 both")), "{split:#?}");
        }
        assert!(told == expected || mode == Mode::Persistent && told.is_empty(), "{device}: {told:?}");
        assert!(rows.iter().all(|row| row.mpps > 0.0 && row.p50_us > 0.0), "{rows:#?}");
    }
}

/// Each device alone, and all at once; every one compared with `ref` before, or there would be no rows.
#[test]
fn several_devices_are_measured_alone_and_at_once() {
    let others = lanes().into_iter().filter(|(device, mode)| device != "cpu" && *mode == Mode::Launch);
    for (device, _) in others.take(1) {
        let both = format!("{device},cpu");
        let together = format!("{device}+cpu");
        for (name, impls) in [("chain", &["esp", "chain"][..]), ("ipsec", &[""]), ("gateway", &[""])] {
            let options = BenchOptions {
                device: Some(both.clone()),
                batch: Some(64),
                bin_packets: Some(32),
                packets: Some(1024),
                in_flight: Some(2),
                // The engine's.
                workers: if name == "gateway" { vec![2] } else { Vec::new() },
                sas: Some(64),
                sizes: vec![Size::Bytes(128)],
                time: Duration::from_millis(1),
                ..BenchOptions::default()
            };
            let mut said = Vec::new();
            let rows = run(name, &options, &mut |line| said.push(line.to_owned()));
            let rows = rows.unwrap_or_else(|error| panic!("{name} on {both}: {error}"));
            let on: Vec<_> = rows.iter().map(|row| row.device.as_str()).collect();
            assert_eq!(on, [device.as_str(), "cpu", together.as_str()].repeat(impls.len()), "{rows:#?}");
            for (rows, form) in rows.chunks(3).zip(impls) {
                assert!(rows.iter().all(|row| row.mpps > 0.0 && row.gbps > 0.0 && row.bench == name), "{rows:#?}");
                assert!(rows.iter().all(|row| row.implementation == *form || form.is_empty()), "{rows:#?}");
                assert!(rows[2].note.contains(" x one"), "{rows:#?}");
            }
            let compared = said.iter().filter(|line| line.contains("packets compared with ref")).count();
            assert_eq!(compared, if name == "gateway" { 3 } else { 2 * impls.len() }, "{said:?}");
        }
        let options =
            BenchOptions { device: Some(both.clone()), time: Duration::from_millis(1), ..BenchOptions::default() };
        let rows = run("devices", &options, &mut |_| {}).unwrap();
        let at_once = rows.iter().filter(|row| row.device == together && row.implementation.ends_with(", at once"));
        assert_eq!(at_once.filter(|row| row.gbps > 0.0).count(), 3, "{rows:#?}");
    }
}

#[test]
fn knobs_and_batches_are_measured_on_every_device() {
    for (device, mode) in lanes() {
        for name in ["scheduling", "latency", "devices"] {
            let options = BenchOptions {
                device: Some(device.clone()),
                mode: Some(mode),
                sizes: vec![Size::Random],
                time: Duration::from_millis(1),
                ..BenchOptions::default()
            };
            let rows = run(name, &options, &mut |_| {}).unwrap_or_else(|error| panic!("{name} on {device}: {error}"));
            assert!(!rows.is_empty() || mode == Mode::Persistent, "{name} on {device}");
            assert!(rows.iter().all(|row| row.bench == name && row.device == device && row.mpps > 0.0), "{rows:#?}");
            if name == "scheduling" {
                let figures = |figure: &str| rows.iter().filter(|row| row.note.starts_with(figure)).count();
                assert_eq!([figures("figures 9 and 17"), figures("figure 11")], [4, 4]);
                assert!(figures("figure 10") >= 4 && rows.iter().all(|row| row.note.contains("compared with ref")));
            }
        }
    }
}

/// The CPU, and every OpenCL device that can be used in every mode; a mode that it has not falls back and says so.
fn lanes() -> Vec<(String, Mode)> {
    let found = godwit_device::opencl::probe().found.into_iter().filter(|found| found.usable.is_ok());
    let others: Vec<String> = found.map(|found| found.capabilities.id).collect();
    if others.is_empty() {
        // Past the test harness, which shows nothing of a test that passes.
        std::io::stderr().write_all(b"skipped: no OpenCL device here can be used\n").unwrap();
    }
    let others = others.into_iter().flat_map(|id| [(id.clone(), Mode::Launch), (id, Mode::Persistent)]);
    std::iter::once(("cpu".to_owned(), Mode::Launch)).chain(others).collect()
}

/// Every form gives the answers of the loop as written, or there would be no rows; so does the peer, where it is built.
#[test]
fn forms_that_hide_latency_answer_alike() {
    let options = BenchOptions { time: Duration::from_millis(5), ..BenchOptions::default() };
    let rows = run("gopt", &options, &mut |_| {}).unwrap();
    for kind in ["cuckoo", "pointer chase", "ipv6"] {
        let of = |form: &str| rows.iter().filter(|row| row.implementation == format!("{kind} {form}")).count();
        assert_eq!(of("hand"), 9, "{kind}");
        assert!(of("plain") >= 1, "{kind}");
    }
    assert!(rows.iter().all(|row| row.note.contains(" x plain")), "{rows:#?}");
    let one =
        BenchOptions { batch: Some(16), implementation: Some("hand".to_owned()), peers: false, ..options.clone() };
    let told: Vec<_> = run("memaccess", &one, &mut |_| {}).unwrap();
    let told: Vec<_> = told.iter().map(|row| (row.implementation.as_str(), row.batch)).collect();
    assert_eq!(told, [("plain", 1), ("hand", 16), ("plain", 1), ("hand", 16)]);
    for wrong in [
        BenchOptions { batch: Some(7), ..options.clone() },
        BenchOptions { table_bytes: Some(3 << 20), ..options.clone() },
        BenchOptions { implementation: Some("native".to_owned()), ..options },
    ] {
        assert!(run("gopt", &wrong, &mut |_| {}).unwrap_err().is_users());
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
    assert!(device.contains("cuda:7"), "{device}");
    let device = BenchOptions { device: Some("opencl:0".to_owned()), ..BenchOptions::default() };
    assert!(refused("ipv4-load", device).contains("on the CPU only"));
    for (name, devices, said) in [
        ("echo", "cpu,cpu", "`cpu` is named twice"),
        ("echo", "cpu,gpu", "device `gpu`"),
        ("latency", "cpu,opencl:0", "one device at a time"),
        ("apps", "cpu,", "device ``"),
    ] {
        let device = BenchOptions { device: Some(devices.to_owned()), ..BenchOptions::default() };
        let refused = refused(name, device);
        assert!(refused.contains(said), "{name} {devices}: {refused}");
    }
    let implementation = BenchOptions { implementation: Some("vectorised".to_owned()), ..BenchOptions::default() };
    assert!(refused("echo", implementation).contains("scalar"));
}
