//! Runs every bench with small workloads. The tests check the form of the rows, not the rates.

use std::collections::BTreeSet;
use std::io::Write as _;
use std::time::Duration;

use godwit_bench::definition::definitions;
use godwit_bench::{Error, Manifest, Mode, Record, Request, Row, Size, run};

/// Returns a request for brief runs.
fn brief(milliseconds: u64) -> Request {
    Request { time: Some(Duration::from_millis(milliseconds)), ..Request::default() }
}

fn on(device: &str, request: Request) -> Request {
    Request { devices: device.split(',').map(str::to_owned).collect(), ..request }
}

fn at(sizes: &[Size], request: Request) -> Request {
    Request { sizes: sizes.to_vec(), ..request }
}

fn rows(name: &str, request: &Request) -> Vec<Row> {
    run(name, request, &mut |_| {}).unwrap_or_else(|error| panic!("{name} with {request:?}: {error}"))
}

fn error(name: &str, request: &Request) -> Error {
    run(name, request, &mut |_| {}).unwrap_err()
}

/// Returns a detail as a number.
fn number(row: &Row, name: &str) -> Option<f64> {
    row.details.get(name)?.number()
}

/// Returns a detail as a text.
fn text(row: &Row, name: &str) -> String {
    row.details.get(name).map(ToString::to_string).unwrap_or_default()
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

#[test]
fn every_definition_on_the_cpu_runs() {
    for definition in definitions() {
        // Other tests run the benches that need a device, and the figures. Large tables take long
        // to build.
        let needs_device = definition.devices.iter().all(|device| device != "cpu");
        if needs_device || definition.subject == "ipsec-figure" || definition.name.ends_with("-large") {
            continue;
        }
        let request = Request { peers: false, ..brief(5) };
        let found = rows(&definition.name, &request);
        assert!(!found.is_empty(), "{}", definition.name);
        for row in found {
            assert_eq!(row.bench, definition.name);
            // `chain` on the CPU has no latencies.
            assert!(row.mpps > 0.0 && (row.p50_us > 0.0 || row.bench == "chain"), "{row:?}");
            assert!(row.p99_us >= row.p50_us && !row.peer, "{row:?}");
        }
    }
}

#[test]
fn functions_run_through_lanes_and_are_compared_with_ref() {
    for (device, mode) in lanes() {
        for (layout, names) in [("dense", &["echo", "ipv6", "l2", "ndn", "ipsec", "dpi"][..]), ("slots", &["ipsec"])] {
            // The patterns take long to build, so one mode suffices.
            let names = names.iter().filter(|name| **name != "dpi" || mode == Mode::Launch);
            for name in names {
                // Three chunks of full and partial bins.
                let request = at(&[Size::Imix], on(&device, brief(1)))
                    .with("mode", mode.name())
                    .with("layout", layout)
                    .with("batch", 100)
                    .with("bin", 32)
                    .with("packets", 300)
                    .with("in-flight", 2);
                let rows = rows(name, &request);
                assert_eq!(rows.len(), 1, "{name} on {device}");
                for row in rows {
                    assert_eq!((row.bench.as_str(), row.device.as_str(), row.batch), (*name, device.as_str(), 100));
                    assert!(["launch", "persistent"].contains(&row.mode.as_str()), "{row:?}");
                    assert!(row.mpps > 0.0 && row.gbps > 0.0 && row.p99_us >= row.p50_us && row.p50_us > 0.0);
                    assert_eq!(number(&row, "verified"), Some(300.0), "{row:?}");
                }
            }
        }
    }
}

#[test]
fn several_threads_feed_a_device() {
    let request = |device: &str, workers: &[usize], packets: usize| {
        let request = at(&[Size::Imix], on(device, brief(1))).with("mode", "launch").with("batch", 32).with("bin", 32);
        let request = request.with("packets", packets).with("in-flight", 2);
        workers.iter().fold(request, |request, workers| request.with("workers", workers))
    };
    for device in ["cpu", "cpu,opencl:0"] {
        assert!(error("echo", &request(device, &[2], 1024)).to_string().contains("--workers 2"), "{device}");
    }
    for (device, _) in lanes().into_iter().filter(|(device, mode)| device != "cpu" && *mode == Mode::Launch) {
        assert!(error("echo", &request(&device, &[4097], 1024)).to_string().contains("--workers 4097"));
        if cores() == 1 {
            continue;
        }
        let few = error("echo", &request(&device, &[2], 511)).to_string();
        assert!(few.contains("--packets 512"), "{few}");
        for name in ["echo", "ipsec"] {
            let request = request(&device, &[1, 2], 1024);
            let rows = rows(name, &if name == "ipsec" { request.with("sas", 64) } else { request });
            assert_eq!(rows.len(), 2, "{rows:#?}");
            for row in &rows {
                assert_eq!((row.bench.as_str(), row.device.as_str(), row.batch), (name, device.as_str(), 32));
                assert!(row.mpps > 0.0 && row.gbps > 0.0 && row.p99_us >= row.p50_us && row.p50_us > 0.0, "{row:?}");
                assert_eq!(number(row, "verified"), Some(1024.0), "{row:?}");
                assert_eq!((text(row, "layout").as_str(), number(row, "in_flight")), ("dense", Some(2.0)));
            }
            let threads = rows.iter().map(|row| (number(row, "threads"), number(row, "arena_packets")));
            assert_eq!(threads.collect::<Vec<_>>(), [(Some(1.0), Some(1024.0)), (Some(2.0), Some(512.0))]);
        }
    }
}

#[test]
fn ipsec_is_measured_with_any_suite_in_both_directions() {
    for (suite, decrypt) in [("mix", false), ("mix", true), ("cbc256_sha256", true), ("ah_gmac128", false)] {
        let request = at(&[Size::Imix], brief(1)).with("mode", "launch").with("suite", suite).with("sas", 10);
        let request = request.with("packets", 300);
        let rows = rows("ipsec", &if decrypt { request.with("decrypt", true) } else { request });
        assert!(rows.len() == 1 && rows[0].mpps > 0.0, "{rows:#?}");
        assert_eq!(number(&rows[0], "verified"), Some(300.0), "{rows:#?}");
        assert_eq!(text(&rows[0], "direction"), if decrypt { "decrypt" } else { "encrypt" });
    }
    let unknown = error("ipsec", &brief(1).with("suite", "des"));
    assert!(matches!(&unknown, Error::Unknown { what: "suite", name, .. } if name == "des"), "{unknown:?}");
}

/// Nothing is dropped, so sequence numbers differ. The peer, if it was built, produces the same
/// data and ICVs.
#[test]
fn ipsec_is_measured_with_its_host_half_in_both_directions() {
    for suite in ["cbc128_sha1", "cbc256_sha256", "ctr128_sha1", "gcm128", "gmac256", "chacha20_poly1305", "null_sha1"]
    {
        for direction in ["encrypt", "decrypt"] {
            let request = at(&[Size::Bytes(64), Size::Imix], brief(1)).with("suite", suite);
            let request = if direction == "decrypt" { request.with("decrypt", true) } else { request };
            let rows = rows("ipsec", &request);
            let ours: Vec<_> = rows.iter().filter(|row| !row.peer).collect();
            assert!(ours.len() == 2 && ours.iter().all(|row| row.mpps > 0.0), "{rows:#?}");
            assert!(rows.iter().all(|row| text(row, "direction") == direction && text(row, "suite") == suite));
        }
    }
    assert!(matches!(error("ipsec", &brief(1).with("suite", "ah_sha1").with("decrypt", true)), Error::Setup(_)));
}

#[test]
fn figures_are_measured_on_every_device() {
    let request = |sizes: &[Size]| {
        let request = at(sizes, Request { peers: false, ..brief(1) });
        request.with("packets", 256).with("sas", 16).with("workers", 1)
    };
    let sizes = [Size::Bytes(64), Size::ImixPipsea];
    let [pipsea_8, pipsea_12, apunet] =
        ["ipsec-pipsea-8", "ipsec-pipsea-12", "ipsec-apunet-9a"].map(|name| rows(name, &request(&sizes)));
    let count = |rows: &[Row], device: &str| {
        let found = rows.iter().filter(|row| row.device == device);
        found.inspect(|row| assert!(row.mpps > 0.0 && row.gbps > 0.0, "{row:#?}")).count()
    };
    let devices: BTreeSet<String> = lanes().into_iter().map(|(device, _)| device).collect();
    for device in &devices {
        let forms = if device == "cpu" { 2 } else { 1 };
        // This figure has payloads of a fixed size only.
        assert_eq!(count(&pipsea_8, device), 6 * forms, "{device}");
        // Six combinations and their mix in memory, and three encryptions port to port.
        assert_eq!(count(&pipsea_12, device), (7 + 3) * 2 * forms, "{device}");
        assert_eq!(count(&apunet, device), 2 * forms, "{device}");
    }
    for combination in ["Mix", "AES-CBC ENC", "HMAC-SHA1 DEC"] {
        let found = pipsea_12.iter().filter(|row| text(row, "combination") == combination && row.mode == "launch");
        assert!(found.clone().count() > 0 && found.clone().all(|row| number(row, "verified") > Some(0.0)));
    }
    let payload = &pipsea_8[0];
    assert_eq!((payload.size, text(payload, "gbps_of").as_str()), (Some(Size::Bytes(64)), "payload"));
    assert!((payload.gbps - payload.mpps * 64.0 * 8.0 / 1e3).abs() < 1e-9, "{payload:#?}");
    let sas = error("ipsec-apunet-9a", &at(&sizes, brief(1)).with("sas", 100));
    assert!(sas.to_string().contains("--sas 100"), "{sas}");
    assert!(error("ipsec-pipsea-8", &request(&[Size::Imix])).to_string().contains("--size"));
}

#[test]
fn gateway_runs_on_cpu_and_device_together() {
    let request = |device: &str| at(&[Size::Bytes(60)], on(device, brief(50))).with("workers", 1).with("sas", 64);
    assert!(error("gateway-together", &request("cpu")).is_users());
    for (device, _) in
        lanes().into_iter().filter(|(device, mode)| device != "cpu" && *mode == Mode::Launch && cores() > 1)
    {
        let rows = rows("gateway-together", &request(&device));
        let devices: Vec<_> = rows.iter().map(|row| row.device.clone()).collect();
        assert_eq!(devices, ["cpu".to_owned(), device.clone(), format!("{device}+cpu")]);
        assert!(rows.iter().all(|row| row.mpps > 0.0 && row.gbps > 0.0), "{rows:#?}");
    }
}

#[test]
fn ipsec_runs_on_cpu_and_device_together() {
    let request = |device: &str, workers: usize| {
        let request = at(&[Size::Imix], on(device, brief(1))).with("bin", 32).with("packets", 600);
        request.with("in-flight", 2).with("workers", workers).with("sas", 64)
    };
    let refused = |device: &str, workers| error("ipsec-together", &request(device, workers)).to_string();
    assert!(refused("cpu", 1).contains("--device"));
    assert!(refused("opencl:0,opencl:1", 1).contains("opencl:0,opencl:1"));
    let cores = cores();
    for (device, _) in
        lanes().into_iter().filter(|(device, mode)| device != "cpu" && *mode == Mode::Launch && cores > 1)
    {
        let rows = rows("ipsec-together", &request(&device, cores - 1));
        let devices: Vec<_> = rows.iter().map(|row| (row.device.as_str(), row.peer)).collect();
        let (both, with_peer) = (format!("{device}+cpu"), format!("{device}+ipsec-mb"));
        let ours = [("cpu", false), (device.as_str(), false), (both.as_str(), false)];
        let peers = [("ipsec-mb", true), (with_peer.as_str(), true)];
        assert!(devices == ours || devices == [&ours[..], &peers].concat(), "{devices:?}");
        assert!(rows.iter().all(|row| row.mpps > 0.0 && row.gbps > 0.0), "{rows:#?}");
        assert_eq!(number(&rows[0], "verified"), Some((600 * cores) as f64));
        assert_eq!(number(&rows[1], "verified"), Some((600 / (cores - 1) * (cores - 1)) as f64));
        assert!(rows.iter().all(|row| number(row, "cores") == Some(cores as f64)), "{rows:#?}");
        assert!(refused(&device, cores).contains("more cores"));
    }
}

/// Every row was conserved, encrypted and compared with `ref`; otherwise the bench returns an
/// error.
#[test]
fn gateway_runs_on_every_device() {
    for (device, mode) in lanes() {
        let request = at(&[Size::Imix], on(&device, brief(5)))
            .with("mode", mode.name())
            .with("layout", if mode == Mode::Launch { "dense" } else { "slots" })
            .with("batch", 128)
            .with("in-flight", 2)
            .with("workers", 1)
            .with("workers", 2);
        let rows = rows("gateway", &request);
        assert_eq!(rows.len(), 2, "{rows:#?}");
        for (row, workers) in rows.iter().zip([1.0, 2.0]) {
            assert_eq!((row.bench.as_str(), row.device.as_str(), row.batch), ("gateway", device.as_str(), 128));
            assert_eq!((row.mode.as_str(), row.size), ("engine", Some(Size::Imix)));
            assert!(row.mpps > 0.0 && row.gbps > 0.0 && row.p50_us > 0.0 && row.p99_us >= row.p50_us, "{row:?}");
            assert_eq!((number(row, "workers"), number(row, "dropped")), (Some(workers), None), "{row:?}");
            assert!(number(row, "busy_cores") > Some(0.0), "{row:?}");
        }
    }
}

#[test]
fn chain_is_measured_in_every_variant() {
    let found = godwit_device::opencl::probe().found.into_iter().filter(|found| found.usable.is_ok());
    for found in found.filter(|found| found.chain_lacks.is_none()).take(1) {
        let request = at(&[Size::Bytes(128)], on(&found.capabilities.id, brief(1)))
            .with("batch", 64)
            .with("bin", 32)
            .with("packets", 512)
            .with("in-flight", 2)
            .with("workers", 2);
        let rows = rows("chain", &request);
        let variants: Vec<_> = rows.iter().map(|row| (row.implementation.as_str(), row.mode.as_str())).collect();
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
        assert_eq!(variants, expected);
        assert!(rows.iter().all(|row| row.mpps > 0.0 && number(row, "gbps_per_core") > Some(0.0)), "{rows:#?}");
        assert!(rows.iter().all(|row| number(row, "verified") > Some(0.0)), "{rows:#?}");
    }
}

#[test]
fn functions_and_threads_share_a_device() {
    for (device, mode) in lanes() {
        let request = at(&[Size::Bytes(128)], on(&device, brief(1)))
            .with("mode", mode.name())
            .with("batch", 64)
            .with("bin", 32)
            .with("packets", 1024)
            .with("in-flight", 2)
            .with("workers", 1)
            .with("workers", 2)
            .with("sas", 64);
        let rows = rows("sharing", &request);
        let names: Vec<&str> = rows.iter().map(|row| row.implementation.as_str()).collect();
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
            assert!(split.iter().all(|row| number(row, "groups_several_functions") == Some(0.0)), "{split:#?}");
        }
        assert!(names == expected || mode == Mode::Persistent && names.is_empty(), "{device}: {names:?}");
        assert!(rows.iter().all(|row| row.mpps > 0.0 && row.p50_us > 0.0), "{rows:#?}");
    }
}

#[test]
fn several_devices_are_measured_alone_and_at_once() {
    let others = lanes().into_iter().filter(|(device, mode)| device != "cpu" && *mode == Mode::Launch);
    for (device, _) in others.take(1) {
        let both = format!("{device},cpu");
        let together = format!("{device}+cpu");
        for (name, forms) in [("several", &["esp", "dpi", "chain"][..]), ("ipsec", &[""]), ("gateway", &[""])] {
            let request = at(&[Size::Bytes(128)], on(&both, brief(1)))
                .with("batch", 64)
                .with("bin", 32)
                .with("packets", 1024)
                .with("in-flight", 2);
            let request = match name {
                // Workers of the engine.
                "gateway" => request.with("workers", 2).with("sas", 64),
                "ipsec" => request.with("sas", 64),
                _ => request,
            };
            let rows = rows(name, &request);
            let devices: Vec<_> = rows.iter().map(|row| row.device.as_str()).collect();
            assert_eq!(devices, [device.as_str(), "cpu", together.as_str()].repeat(forms.len()), "{rows:#?}");
            for (rows, form) in rows.chunks(3).zip(forms) {
                assert!(rows.iter().all(|row| row.mpps > 0.0 && row.gbps > 0.0 && row.bench == name), "{rows:#?}");
                assert!(rows.iter().all(|row| row.implementation == *form || form.is_empty()), "{rows:#?}");
                assert!(number(&rows[2], "share_of_alone") > Some(0.0), "{rows:#?}");
                assert!(name == "gateway" || number(&rows[2], "ratio_to_one") > Some(0.0), "{rows:#?}");
            }
        }
        let rows = rows("devices", &on(&both, brief(1)));
        let at_once = rows.iter().filter(|row| row.device == together && row.implementation.ends_with(", at once"));
        assert_eq!(at_once.filter(|row| row.gbps > 0.0).count(), 3, "{rows:#?}");
    }
}

#[test]
fn settings_batches_and_limits_are_measured_on_every_device() {
    for (device, mode) in lanes() {
        for name in ["scheduling", "latency", "devices"] {
            let request = at(&[Size::Random], on(&device, brief(1)));
            let rows = rows(name, &if name == "devices" { request } else { request.with("mode", mode.name()) });
            assert!(!rows.is_empty() || mode == Mode::Persistent, "{name} on {device}");
            assert!(rows.iter().all(|row| row.bench == name && row.device == device && row.mpps > 0.0), "{rows:#?}");
            if name == "scheduling" {
                let count = |figure: &str| rows.iter().filter(|row| text(row, "figure") == figure).count();
                assert_eq!([count("9 and 17"), count("11")], [4, 4]);
                assert!(count("10") >= 4 && rows.iter().all(|row| number(row, "verified") > Some(0.0)));
            }
        }
    }
}

/// Returns the CPU, and every usable OpenCL device in each mode. A device falls back from a mode
/// that it does not support.
fn lanes() -> Vec<(String, Mode)> {
    let found = godwit_device::opencl::probe().found.into_iter().filter(|found| found.usable.is_ok());
    let others: Vec<String> = found.map(|found| found.capabilities.id).collect();
    if others.is_empty() {
        // The test harness hides the output of tests that pass, so this writes to the file
        // descriptor.
        std::io::stderr().write_all(b"skipped: no OpenCL device here can be used\n").unwrap();
    }
    let others = others.into_iter().flat_map(|id| [(id.clone(), Mode::Launch), (id, Mode::Persistent)]);
    std::iter::once(("cpu".to_owned(), Mode::Launch)).chain(others).collect()
}

/// All forms and the peer return the results of the plain loop; otherwise the bench returns an
/// error.
#[test]
fn forms_that_hide_latency_return_equal_results() {
    let rows_of_gopt = rows("gopt", &brief(5));
    for kind in ["cuckoo", "pointer chase", "ipv6"] {
        let count =
            |form: &str| rows_of_gopt.iter().filter(|row| row.implementation == format!("{kind} {form}")).count();
        assert_eq!(count("hand"), 9, "{kind}");
        assert!(count("plain") >= 1, "{kind}");
    }
    assert!(rows_of_gopt.iter().all(|row| number(row, "ratio_to_plain") > Some(0.0)), "{rows_of_gopt:#?}");
    let hand = Request { implementation: Some("hand".to_owned()), peers: false, ..brief(5) }.with("batch", 16);
    let found: Vec<_> = rows("memaccess", &hand);
    let found: Vec<_> = found.iter().map(|row| (row.implementation.as_str(), row.batch)).collect();
    assert_eq!(found, [("plain", 1), ("hand", 16), ("plain", 1), ("hand", 16)]);
    assert!(error("gopt", &brief(5).with("batch", 7)).to_string().contains("--batch"));
    let native = Request { implementation: Some("native".to_owned()), ..brief(5) };
    assert!(matches!(error("gopt", &native), Error::Unknown { what: "implementation", .. }));
}

#[test]
fn implementations_and_sizes_can_be_chosen() {
    let request = Request { peers: false, implementation: Some("ref".to_owned()), ..brief(5) };
    let rows = rows("echo", &at(&[Size::Bytes(300), Size::Imix], request));
    let found: Vec<_> = rows.iter().map(|row| (row.implementation.as_str(), row.size)).collect();
    assert_eq!(found, [("ref", Some(Size::Bytes(300))), ("ref", Some(Size::Imix))]);
}

#[test]
fn refuses_unknown_names_devices_and_options() {
    let unknown = error("ipv5", &brief(1));
    assert!(
        matches!(&unknown, Error::Unknown { what: "bench", known, .. } if known.contains(&"ipv4-lookup".to_owned()))
    );
    assert!(error("echo", &on("cuda:7", brief(1))).to_string().contains("cuda:7"));
    for (name, devices, part) in [
        ("ipv4-load", "opencl:0", "on the CPU only"),
        ("echo", "cpu,cpu", "`cpu` is named twice"),
        ("echo", "cpu,gpu", "device `gpu`"),
        ("latency", "cpu,opencl:0", "one device at a time"),
        ("apps", "cpu,", "device ``"),
    ] {
        let refused = error(name, &on(devices, brief(1))).to_string();
        assert!(refused.contains(part), "{name} {devices}: {refused}");
    }
    let implementation = Request { implementation: Some("vectorised".to_owned()), ..brief(1) };
    assert!(matches!(error("echo", &implementation), Error::Unknown { what: "implementation", .. }));
    match error("echo", &brief(1).with("suite", "gcm128")) {
        Error::Option { bench, option, accepted } => {
            assert_eq!((bench.as_str(), option.as_str()), ("echo", "suite"));
            assert!(["device", "size", "batch"].iter().all(|name| accepted.iter().any(|option| option == name)));
        }
        other => panic!("{other:?}"),
    }
    assert!(error("echo", &brief(1).with("batch", "many")).to_string().contains("--batch"));
}

#[test]
fn records_keep_the_rows_of_other_benches() {
    let rows_of = |name: &str| rows(name, &at(&[Size::Bytes(60)], Request { peers: false, ..brief(1) }));
    let manifest = Manifest::of_this_machine(Some("test"));
    let older = [rows_of("echo"), rows_of("template")].concat();
    let older = Record::new(manifest.clone(), &older);
    let newer = rows_of("echo");
    let record = Record::new(manifest, &newer).merged_with(older);
    let names: Vec<_> = record.rows.iter().map(|row| row.definition.as_str()).collect();
    assert_eq!(names, ["template", "echo"]);
    assert_eq!(record.rows[1].row.mpps.to_bits(), newer[0].mpps.to_bits());
    assert!(record.path(std::path::Path::new("results")).starts_with("results/test"));
}
