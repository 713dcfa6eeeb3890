//! `godwit profile` with a modelled device, whose costs are known.

mod common;

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use common::{Finished, godwit, run};
use godwit_sched::place::{
    FunctionLoad, FunctionSetup, Goal, Identity, Load, Machine, MachineSetup, Observation, PlaceSet, PlaceSetup,
    Planner, PlannerConfig, Profile,
};
use godwit_test_support::{ConfigText, Folder};

/// Times of each function on the modelled device: per chunk, packet and byte, and until the worker
/// sees the result, in nanoseconds.
const TIMES: [(&str, [f64; 4]); 3] = [
    ("back", [20_000.0, 40.0, 0.25, 100_000.0]),
    ("inspect", [5_000.0, 10.0, 1.5, 200_000.0]),
    ("route", [60_000.0, 150.0, 0.125, 50_000.0]),
];
const MACS: &str = "destination_mac = \"02:00:00:00:01:01\"\nsource_mac = \"02:00:00:00:01:02\"";
/// Longest time of a test on a busy machine.
const LIMIT: Duration = Duration::from_secs(120);

/// Writes a configuration with three functions on the CPU and on a modelled device.
fn write_config(folder: &Folder) {
    folder.write("patterns.txt", "needle\nhaystack\n");
    let times = TIMES.map(|(function, [chunk, packet, byte, trip])| {
        format!("{function} = {{ chunk_ns = {chunk}, packet_ns = {packet}, byte_ns = {byte}, trip_ns = {trip} }}")
    });
    let device = "device = [\"cpu\", \"model:0\"]";
    let text = ConfigText::new()
        .engine("workers = 1\nin_flight_packets = 4096")
        // A long deadline, so that chunks are full on a slow machine too.
        .device("model:0", &format!("chunk_packets = 1024\ndeadline_ns = 50000000\ntimes = {{ {} }}", times.join(", ")))
        .port("lan", "synthetic", "flows = 64")
        .port("wan", "synthetic", "")
        .function("route", "ipv4", device)
        .nested("next_hop", &format!("name = \"east\"\nport = \"wan\"\n{MACS}"))
        .nested("route", "prefix = \"10.0.0.0/8\"\nnext_hop = \"east\"")
        .edge("lan", "route")
        .edge("route", "wan")
        .function("inspect", "dpi", &format!("patterns = \"patterns.txt\"\n{device}"))
        .function("back", "echo", device)
        .class("other", "destination_ports = 80")
        .class("third", "destination_ports = 81")
        .class_edge("lan", "other", "inspect")
        .class_edge("lan", "third", "back")
        .edge("inspect", "wan")
        .edge("back", "lan");
    folder.write("config.toml", text.to_string());
}

/// Returns the command that measures the configuration with few points.
fn profile(folder: &Folder) -> Command {
    let mut command = godwit();
    command.arg("profile").arg(folder.join("config.toml")).arg("-o").arg(folder.join("profile.toml"));
    command.args(["--quick", "--seconds", "0.01"]);
    command
}

fn read(path: &Path) -> Profile {
    Profile::parse_partial(&std::fs::read_to_string(path).expect("a profile")).expect("valid")
}

fn points(profile: &Profile) -> usize {
    profile.curves.iter().map(|curve| curve.points.len()).sum()
}

/// Waits until the program has measured some points, and kills it.
fn kill_after(mut child: Child, path: &Path, wanted: usize) -> Profile {
    let started = Instant::now();
    loop {
        assert!(started.elapsed() < LIMIT, "no points");
        let text = std::fs::read_to_string(path).unwrap_or_default();
        if Profile::parse_partial(&text).is_ok_and(|profile| points(&profile) >= wanted) {
            break;
        }
        assert!(child.try_wait().expect("a child").is_none(), "the program ended early");
        thread::sleep(Duration::from_millis(5));
    }
    child.kill().expect("SIGKILL");
    child.wait().expect("a child");
    read(path)
}

/// Returns the number of new measurements in the last line of the output.
fn new_measurements(finished: &Finished) -> usize {
    let last = finished.stdout.lines().last().expect("a summary");
    last.split_whitespace().rev().nth(2).and_then(|word| word.parse().ok()).unwrap_or_else(|| panic!("{last}"))
}

#[test]
fn killed_profile_continues_and_finds_the_costs_of_the_model() {
    let folder = Folder::new();
    write_config(&folder);
    let path = folder.join("profile.toml");
    let child = profile(&folder).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("the program starts");
    let killed = kill_after(child, &path, 3);
    assert!(Profile::parse(&std::fs::read_to_string(&path).unwrap()).is_err(), "the profile is not complete yet");

    let finished = run(&mut profile(&folder)).succeeded();
    let text = std::fs::read_to_string(&path).unwrap();
    let complete = Profile::parse(&text).unwrap();
    let count =
        |profile: &Profile| profile.receives.len() + points(profile) + profile.pairs.len() + profile.powers.len();
    assert_eq!(new_measurements(&finished), count(&complete) - count(&killed), "{}", finished.stdout);
    // Rates of two measurements of a point would differ.
    assert_eq!(complete.receives[..killed.receives.len()], killed.receives);
    for curve in &killed.curves {
        let all = complete.curve(&curve.function, &curve.device, &curve.mode).expect("the curve is still there");
        assert_eq!(all.points[..curve.points.len()], curve.points);
    }
    check_costs(&complete);
    check_latency(&complete);
    check_pairs(&complete);
    check_planner(&complete);
    assert!(finished.stdout.contains("power of model:0: not measured: "), "{}", finished.stdout);

    // A complete profile is not measured again.
    let again = run(&mut profile(&folder)).succeeded();
    assert_eq!(new_measurements(&again), 0, "{}", again.stdout);
    assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
    check_refusals(&folder, &complete);
}

/// Checks that the costs of the modelled device are those of the configuration. They follow from
/// counts of packets and chunks, and do not depend on the speed of the machine.
fn check_costs(profile: &Profile) {
    for (function, [chunk_ns, packet_ns, byte_ns, _]) in TIMES {
        let curve = profile.curve(function, "model:0", "launch").expect("measured");
        let fit = curve.fit.expect("a fit");
        for (found, expected) in [(fit.chunk_ns, chunk_ns), (fit.packet_ns, packet_ns), (fit.byte_ns, byte_ns)] {
            assert!((found / expected - 1.0).abs() < 0.02, "{function}: {found} instead of {expected}: {curve:?}");
        }
        assert!(fit.error_max < 0.02, "{fit:?}");
        let cpu = profile.curve(function, "cpu", "launch").expect("measured").fit.expect("a fit");
        assert!(cpu.packet_ns + 60.0 * cpu.byte_ns > 0.0 || cpu.floor_ns > 0.0, "{cpu:?}");
    }
    assert!(profile.host.receive_ns > 0.0);
}

/// Checks that no packet returned from the modelled device before its time.
fn check_latency(profile: &Profile) {
    for (function, [.., trip_ns]) in TIMES {
        let curve = profile.curve(function, "model:0", "launch").expect("measured");
        let latencies: Vec<f64> = curve.points.iter().filter_map(|point| point.p50_us).collect();
        assert_eq!(latencies.len(), 2, "{curve:?}");
        assert!(latencies.iter().all(|p50_us| *p50_us >= trip_ns / 1e3), "{function}: {latencies:?}");
    }
}

fn check_pairs(profile: &Profile) {
    for device in ["cpu", "model:0"] {
        let sizes = |functions| {
            let of_device = profile.pairs.iter().filter(|pair| pair.device == device);
            of_device.filter(|pair| pair.functions.len() == functions).count()
        };
        assert_eq!((sizes(2), sizes(3)), (6, 1), "{device}");
    }
    // The modelled device has no interference.
    let of_model = profile.pairs.iter().filter(|pair| pair.device == "model:0");
    assert!(of_model.flat_map(|pair| &pair.mpps).all(|mpps| *mpps > 0.0));
}

/// Checks that a planner accepts the profile and chooses a placement for each function.
fn check_planner(profile: &Profile) {
    let place = |device: &str, chunk_packets| PlaceSetup {
        id: device.to_owned(),
        device: device.to_owned(),
        persistent: false,
        chunk_packets,
        bin_packets: 64,
        deadline_ns: 1_000_000,
        chunks: 4,
    };
    let functions =
        TIMES.map(|(name, _)| FunctionSetup { name: name.to_owned(), places: PlaceSet::of([0, 1]) }).to_vec();
    let setup = MachineSetup { workers: 1, functions, places: vec![place("cpu", 256), place("model:0", 1024)] };
    let machine = Machine::new(profile, &setup).expect("a model");
    let goal = Goal::parse("throughput", None).expect("a goal");
    let mut planner = Planner::new(machine, goal, PlannerConfig::default());
    let load = Load { functions: vec![FunctionLoad::fixed(1e4, 60); TIMES.len()] };
    planner.look(&Observation { now_ns: 10_000_000, load, ..Observation::default() });
    let placement = planner.placement();
    assert_eq!(placement.routes.len(), TIMES.len());
    for route in &placement.routes {
        assert!((route.shares.iter().sum::<f32>() - 1.0).abs() < 1e-3, "{placement:?}");
    }
}

/// Checks that a profile of another machine, configuration or version is refused with one sentence.
fn check_refusals(folder: &Folder, profile: &Profile) {
    let machine = &profile.machine;
    let others = [
        (Identity { cores: machine.cores + 1, ..machine.clone() }, "cores"),
        (Identity { cpu: "another".to_owned(), ..machine.clone() }, "another"),
        (Identity { config: "0".repeat(64), ..machine.clone() }, "config"),
        (Identity { godwit: "0.0.1".to_owned(), ..machine.clone() }, "version 0.0.1"),
    ];
    for (machine, part) in others {
        let text = Profile { machine, ..profile.clone() }.to_text().unwrap();
        folder.write("profile.toml", &text);
        let finished = run(&mut self::profile(folder));
        let sentence = finished.refused();
        assert!(sentence.contains("profile.toml: ") && sentence.contains(part), "{sentence}");
    }
    folder.write("profile.toml", "format = 1\nnoise_cv = ");
    assert!(run(&mut self::profile(folder)).refused().contains("line 2"));
    folder.write("profile.toml", profile.to_text().unwrap());
    // Other times of the modelled device are another device.
    let config = std::fs::read_to_string(folder.join("config.toml")).unwrap();
    folder.write("config.toml", config.replace("byte_ns = 1.5", "byte_ns = 1.6"));
    assert!(run(&mut self::profile(folder)).refused().contains("model:0"));
}
