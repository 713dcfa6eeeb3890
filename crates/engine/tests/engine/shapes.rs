//! Synthetic traffic through engines of any shape: conservation, and the same sent packets.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use godwit_engine::{Engine, Error, Options, Replay, Report};
use godwit_test_support::{Folder, skip};
use proptest::prelude::*;

use crate::common::{LIMIT, config, count};

fn run(text: &str) -> Report {
    let engine = Engine::new(config(text), &Options::default()).unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let report = engine.run(&stop, Some(LIMIT), &mut |_| {}).unwrap();
    assert!(report.conservation.holds(), "{}", report.conservation);
    assert_eq!(report.conservation.in_flight, 0);
    report
}

/// Returns the part of a configuration that sets sizes. Traffic and chain are in [`TRAFFIC`].
fn machine(
    workers: usize,
    burst: usize,
    in_flight: usize,
    chunk: usize,
    bin: usize,
    layout: &str,
    grouping: &str,
) -> String {
    format!(
        r#"
        [engine]
        workers = {workers}
        pin = false
        burst_packets = {burst}
        in_flight_packets = {in_flight}
        [arena]
        layout = "{layout}"
        [packing]
        chunk_packets = {chunk}
        bins = 5
        bin_packets = {bin}
        leftover_packets = 16
        grouping = "{grouping}"
        deadline_ns = 20000
        "#
    )
}

/// Returns the same machine with a sender thread for each worker.
fn dual(machine: &str) -> String {
    machine.replacen("[engine]", "[engine]\n        io = \"dual\"", 1)
}

const TRAFFIC: &str = r#"
    [[port]]
    name = "in"
    kind = "synthetic"
    packets = 20000
    flows = 300
    size = "imix"
    seed = 5
    [[port]]
    name = "out"
    kind = "synthetic"
    digest = true
    [[function]]
    name = "swap"
    kind = "template"
    [[function]]
    name = "number"
    kind = "echo"
    [[class]]
    name = "some"
    source_ports = "0-30000"
    [[chain]]
    from = "in"
    to = "number"
    [[chain]]
    from = "in"
    class = "some"
    to = "swap"
    [[chain]]
    from = "swap"
    to = "number"
    [[chain]]
    from = "number"
    to = "out"
"#;

#[test]
fn every_packet_traverses_its_chain() {
    let report = run(&(machine(1, 256, 4096, 256, 256, "slots", "variant") + TRAFFIC));
    let (swap, number) = (&report.functions[0], &report.functions[1]);
    assert_eq!(report.conservation.received, 20_000);
    assert_eq!(number.packets, 20_000);
    assert!(swap.packets > 5_000 && swap.packets < 15_000, "{} of class `some`", swap.packets);
    assert_eq!(report.conservation.sent, 20_000);
    assert_eq!(report.ports[1].sent_packets, 20_000);
    assert_eq!(report.ports[0].received_packets, 20_000);
}

#[test]
fn a_verdict_without_an_edge_is_a_counted_drop() {
    let text = TRAFFIC
        .replace("from = \"number\"\n    to = \"out\"", "from = \"number\"\n    class = \"some\"\n    to = \"out\"");
    let report = run(&(machine(2, 64, 1024, 64, 32, "dense", "none") + &text));
    assert!(report.conservation.dropped > 0);
    assert_eq!(count(&report, "engine_dropped_unrouted"), report.conservation.dropped);
    assert_eq!(report.conservation.sent, report.functions[0].packets);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    /// Workers, sender threads, bursts, rings, chunks, bins and layouts do not change the sent
    /// packets.
    #[test]
    fn the_shape_of_the_machine_does_not_change_the_packets(
        workers in 1usize..5,
        burst in 1usize..300,
        in_flight in 9u32..13,
        chunk in 1usize..600,
        bin in prop::sample::select(vec![1usize, 2, 31, 32, 33, 256]),
        (dense, senders) in any::<(bool, bool)>(),
        grouping in prop::sample::select(vec!["none", "variant", "variant+length"]),
    ) {
        let layout = if dense { "dense" } else { "slots" };
        let machine_of_shape = machine(workers, burst, 1 << in_flight, chunk, bin, layout, grouping);
        let machine_of_shape = if senders { dual(&machine_of_shape) } else { machine_of_shape };
        let report = run(&(machine_of_shape + TRAFFIC));
        let plain = run(&(machine(1, 256, 4096, 256, 256, "slots", "variant") + TRAFFIC));
        prop_assert_eq!(report.conservation, plain.conservation);
        prop_assert_eq!(report.ports[1].digest, plain.ports[1].digest);
        prop_assert!(plain.ports[1].digest.is_some());
        for (function, plain) in report.functions.iter().zip(&plain.functions) {
            prop_assert_eq!((function.packets, &function.verdicts), (plain.packets, &plain.verdicts));
        }
    }
}

/// A chain over two devices gives the result of the CPU alone, with any shape of the machine.
#[test]
fn functions_on_an_opencl_device_give_the_same_packets() {
    let probe = godwit_device::opencl::probe();
    let Some(usable) = probe.found.iter().find(|found| found.usable.is_ok()) else {
        skip("no usable OpenCL device");
        return;
    };
    let plain = run(&(machine(1, 256, 4096, 256, 256, "slots", "variant") + TRAFFIC));
    let device = format!("kind = \"echo\"\n    device = \"{}\"", usable.capabilities.id);
    let traffic = TRAFFIC.replace("kind = \"echo\"", &device);
    let shapes = [(1, 256, 32, "slots", "launch"), (2, 64, 16, "dense", "launch"), (2, 128, 32, "slots", "persistent")];
    for (workers, chunk, bin, layout, mode) in shapes {
        let id = &usable.capabilities.id;
        let stanza = format!("[[device]]\n    name = \"{id}\"\n    mode = \"{mode}\"\n    chunks = 3\n");
        let report = run(&(machine(workers, 128, 4096, chunk, bin, layout, "variant") + &stanza + &traffic));
        let with_senders =
            run(&(dual(&machine(workers, 128, 4096, chunk, bin, layout, "variant")) + &stanza + &traffic));
        assert_eq!(with_senders.ports[1].digest, plain.ports[1].digest);
        assert_eq!(report.conservation, plain.conservation);
        assert_eq!(report.ports[1].digest, plain.ports[1].digest);
        assert_eq!(report.functions[1].device, usable.capabilities.id);
        // A device without persistent mode uses launch mode.
        let has_mode = usable.modes.iter().any(|found| found.mode.name() == mode && found.lacks.is_none());
        assert_eq!(report.functions[1].mode, if has_mode { mode } else { "launch" });
        assert_eq!(report.functions[0].device, "cpu");
        assert_eq!(report.functions[1].packets, plain.functions[1].packets);
    }
}

/// Two classes have different tunnels and SAs. A packet goes to the worker of its class's SA.
#[test]
fn state_of_parallel_branches_is_steered_by_class() {
    let tunnel = |name: &str, spi: u32| {
        format!(
            r#"
            [[function]]
            name = "{name}"
            kind = "ipsec"
            [[function.sa]]
            name = "sa"
            spi = {spi}
            direction = "out"
            source = "192.0.2.1"
            destination = "192.0.2.2"
            encryption = "aes-128-cbc"
            encryption_key = "000102030405060708090a0b0c0d0e0f"
            authentication = "hmac-sha1-96"
            authentication_key = "000102030405060708090a0b0c0d0e0f10111213"
            [[function.policy]]
            action = "protect"
            sa = "sa"
            "#
        )
    };
    let chain = r#"
        [[port]]
        name = "in"
        kind = "synthetic"
        packets = 5000
        flows = 100
        [[port]]
        name = "out"
        kind = "synthetic"
        digest = true
        [[class]]
        name = "some"
        source_ports = "0-30000"
        [[chain]]
        from = "in"
        to = "a"
        [[chain]]
        from = "in"
        class = "some"
        to = "b"
        [[chain]]
        from = "a"
        to = "out"
        [[chain]]
        from = "b"
        to = "out"
    "#;
    // With most of these SPIs, the two SAs belong to different workers.
    for spi in 401..409 {
        let functions = tunnel("a", 400) + &tunnel("b", spi) + chain;
        let one = run(&(machine(1, 64, 1024, 64, 32, "slots", "variant") + &functions));
        let two = run(&(machine(2, 64, 1024, 64, 32, "slots", "variant") + &functions));
        assert_eq!(one.conservation.sent, 5000, "{:?}", one.counters);
        assert_eq!(two.conservation, one.conservation, "{:?}", two.counters);
        assert_eq!(two.ports[1].digest, one.ports[1].digest);
    }
}

/// The number of workers does not change the capture either.
#[test]
fn a_capture_is_the_same_with_and_without_sender_threads() {
    let folder = Folder::new();
    let capture = |path: &Path| {
        let port = format!("name = \"out\"\n    kind = \"pcap\"\n    write = {:?}", path.display().to_string());
        let traffic = TRAFFIC.replace("name = \"out\"\n    kind = \"synthetic\"\n    digest = true", &port);
        traffic.replace("seed = 5", "seed = 5\n    time = \"schedule\"")
    };
    let mut expected: Option<[Vec<u8>; 2]> = None;
    for (workers, senders, layout) in
        [(1, false, "slots"), (1, true, "slots"), (2, true, "dense"), (3, false, "dense"), (3, true, "slots")]
    {
        let (generated, replayed) = (folder.join("generated.pcap"), folder.join("replayed.pcap"));
        let machine = machine(workers, 64, 512, 64, 32, layout, "variant");
        let machine = if senders { dual(&machine) } else { machine };
        run(&(machine.clone() + &capture(&generated)));

        let replay = Replay {
            inputs: vec![(None, generated.clone())],
            outputs: vec![(Some("out".to_owned()), replayed.clone())],
        };
        let options = Options { replay: Some(replay), ..Options::default() };
        let engine = Engine::new(config(&(machine + TRAFFIC)), &options).unwrap();
        let report = engine.run(&Arc::new(AtomicBool::new(false)), None, &mut |_| {}).unwrap();
        assert_eq!((report.conservation.sent, report.conservation.in_flight), (20_000, 0));

        let bytes = [generated, replayed].map(|path| std::fs::read(path).unwrap());
        assert!(
            expected.get_or_insert_with(|| bytes.clone()) == &bytes,
            "{workers} workers, sender threads: {senders}"
        );
    }
}

#[test]
fn sender_threads_send_packets_in_flight_when_the_run_stops() {
    let endless = TRAFFIC.replace("packets = 20000", "packets = 0");
    let text = dual(&machine(2, 64, 1024, 64, 32, "dense", "variant")) + &endless;
    for millis in [0, 1, 20] {
        let engine = Engine::new(config(&text), &Options::default()).unwrap();
        let limit = Some(Duration::from_millis(millis));
        let report = engine.run(&Arc::new(AtomicBool::new(false)), limit, &mut |_| {}).unwrap();
        assert!(report.conservation.holds() && report.conservation.in_flight == 0, "{}", report.conservation);
        assert_eq!(report.conservation.sent, report.ports[1].sent_packets);
    }
}

/// The capture of an incomplete replay would look like that of a complete one.
#[test]
fn an_interrupted_replay_leaves_no_file() {
    let folder = Folder::new();
    let (input, output) = (folder.join("in.pcap"), folder.join("out.pcap"));
    let capture = format!("name = \"out\"\n    kind = \"pcap\"\n    write = {:?}", input.display().to_string());
    let text = TRAFFIC.replace("name = \"out\"\n    kind = \"synthetic\"\n    digest = true", &capture);
    run(&(machine(1, 256, 4096, 256, 256, "slots", "variant") + &text));

    let text = machine(2, 256, 4096, 256, 256, "slots", "variant") + TRAFFIC;
    let replay = Replay { inputs: vec![(None, input)], outputs: vec![(Some("out".to_owned()), output.clone())] };
    let replay_until = |stop: bool| {
        let options = Options { replay: Some(replay.clone()), ..Options::default() };
        let engine = Engine::new(config(&text), &options).unwrap();
        engine.run(&Arc::new(AtomicBool::new(stop)), None, &mut |_| {})
    };
    assert!(matches!(replay_until(true), Err(Error::Interrupted)));
    assert_eq!(folder.names(), ["in.pcap"]);
    let report = replay_until(false).unwrap();
    assert_eq!(report.ports[0].kind, "pcap");
    assert!(output.exists());
}
