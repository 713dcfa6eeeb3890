//! Commands over the control socket while traffic flows.

#[path = "engine/common.rs"]
mod common;
#[path = "engine/faults.rs"]
mod faults;
#[path = "engine/probe.rs"]
mod probe;
#[path = "engine/socket.rs"]
mod socket;

use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use godwit_device::opencl::{self, OpenClDevice};
use godwit_device::{Device, DeviceOptions, Mode, Program, cuda};
use godwit_engine::config::Config;
use godwit_engine::{Engine, Error, Opener, Options, Report};
use godwit_packet::ArenaHandle;
use godwit_test_support::cuda::emulation_without_driver;
use godwit_test_support::{ConfigText, ControlClient, Folder, skip, wait_for};
use serde_json::{Value, json};

use common::{FAULTY, LIMIT, config, count};
use faults::{Faults, Loss, opener};
use socket::run_with_socket;

/// Returns a configuration with `echo` on a device.
fn text(device: &str, mode: &str, traffic: &str) -> String {
    let mut text = ConfigText::new()
        .engine("workers = 2\nburst_packets = 64\nin_flight_packets = 1024")
        .table("packing", "deadline_ns = 20000");
    if device != "cpu" {
        let keys = format!("mode = \"{mode}\"\nchunk_packets = 64\nbins = 5\nbin_packets = 32\nwatchdog_ms = 2000");
        text = text.device(device, &keys);
    }
    text.port("in", "synthetic", &format!("size = \"imix\"\nseed = 5\n{traffic}"))
        .port("out", "synthetic", "")
        .function("swap", "template", "")
        .function("probe", "echo", &format!("device = \"{device}\""))
        .path(&["in", "swap", "probe", "out"])
        .to_string()
}

const ENDLESS: &str = "flows = 300\nrate = \"200kpps\"";

/// Loads the emulated CUDA driver, unless the machine has a driver. A process probes its devices
/// once, so every test must call this before it creates an engine.
fn load_driver() {
    emulation_without_driver(env!("CARGO_TARGET_TMPDIR"));
}

/// Runs an engine with a probe until `body` returns or stops it.
fn run(
    text: &str,
    ports: u32,
    drops_each: u64,
    opener: Option<Opener>,
    body: impl FnOnce(&Path, &probe::State) + Send,
) -> (Report, Arc<probe::State>) {
    load_driver();
    let mut config = config(text);
    let state = probe::install(&mut config, "probe", ports, drops_each);
    let report = run_with_socket(config, Options { opener, ..Options::default() }, |path| body(path, &state));
    assert_eq!(state.wrong.load(Ordering::SeqCst), 0);
    (report, state)
}

/// Changes the image three times, each time to fewer ports, and stops the engine. Returns the
/// number of older packets that remained after each change.
fn change_thrice(path: &Path, state: &probe::State) -> Vec<Value> {
    let mut client = ControlClient::connect(path);
    let mut left = Vec::new();
    for generation in 0..4 {
        // Each generation has its own packets.
        wait_for("packets of a generation", LIMIT, || state.generation(generation)[1] > 500);
        if generation < 3 {
            left.push(client.result(&json!({ "function": "probe", "command": "fewer" }))["left"].clone());
        }
    }
    client.result(&json!({ "command": "stop" }));
    left
}

fn check_changes(text: &str, opener: Option<Opener>) -> Report {
    let (report, state) = run(text, 4, 0, opener, |path, state| assert_eq!(change_thrice(path, state), [0, 0, 0]));
    let highest: Vec<u64> = (0..4).map(|generation| state.generation(generation)[2]).collect();
    assert_eq!(highest, [3, 2, 1, 0]);
    let [prepared, completed] = state.sum();
    assert_eq!((prepared, completed), (report.conservation.received, report.conservation.received));
    report
}

#[test]
fn a_change_of_an_image_waits_for_older_packets() {
    check_changes(&text("cpu", "launch", ENDLESS), None);
}

#[test]
fn a_change_of_an_image_waits_for_packets_on_a_slow_device() {
    let faults = Faults { delay_polls: 50, fails_each: 0, loss: None };
    check_changes(&text(FAULTY, "launch", ENDLESS), Some(opener(FAULTY, faults)));
}

/// The devices use the memory of the host, copies, or persistent groups.
#[test]
fn an_image_changes_on_opencl() {
    let probe = opencl::probe();
    let usable = probe.found.iter().enumerate().find(|(_, found)| found.usable.is_ok());
    let Some((number, found)) = usable else {
        skip("no usable OpenCL device");
        return;
    };
    let id = found.capabilities.id.clone();
    check_changes(&text(&id, "launch", ENDLESS), None);
    let device_id = id.clone();
    let open =
        move |requested: &str, programs: &[(Arc<dyn Program>, _)], arena: &ArenaHandle, options: &DeviceOptions| {
            (requested == device_id).then(|| {
                let programs = programs.iter().map(|(program, _)| Arc::clone(program)).collect();
                Ok(Arc::new(OpenClDevice::with_own_memory(number, programs, arena, options)?) as Arc<dyn Device>)
            })
        };
    check_changes(&text(&id, "launch", ENDLESS), Some(Opener(Arc::new(open))));
    if found.lacks(Mode::Persistent).is_none() {
        check_changes(&text(&id, "persistent", ENDLESS).replace("workers = 2", "workers = 1"), None);
    }
}

/// Another stream copies the image to the device, while launches or persistent groups run.
#[test]
fn an_image_changes_on_cuda() {
    load_driver();
    let probe = cuda::probe();
    let Some(found) = probe.found.iter().find(|found| found.usable.is_ok()) else {
        skip("no usable CUDA device");
        return;
    };
    for mode in ["launch", "persistent"] {
        let report = check_changes(&text(&found.capabilities.id, mode, ENDLESS), None);
        assert_eq!(report.functions[1].device, found.capabilities.id);
    }
}

#[test]
fn a_change_without_packets_in_flight_does_not_wait() {
    let (_, state) = run(&text("cpu", "launch", "flows = 3\nrate = \"1pps\""), 4, 0, None, |path, _| {
        let mut client = ControlClient::connect(path);
        for _ in 0..3 {
            assert_eq!(client.result(&json!({ "function": "probe", "command": "fewer" }))["left"], 0);
        }
        client.result(&json!({ "command": "stop" }));
    });
    assert!(state.sum()[0] < 100);
}

#[test]
fn a_change_does_not_wait_for_packets_on_a_lost_device() {
    for loss in [Loss::Hangs, Loss::Dies, Loss::Refuses] {
        let faults = Faults { delay_polls: 3, fails_each: 5, loss: Some((loss, 20)) };
        let text = text(FAULTY, "launch", ENDLESS).replace("watchdog_ms = 2000", "watchdog_ms = 50");
        let (report, state) = run(&text, 4, 0, Some(opener(FAULTY, faults)), |path, state| {
            change_thrice(path, state);
        });
        assert_eq!(report.functions[1].device, "cpu");
        let lost = count(&report, "engine_dropped_device") + count(&report, "engine_dropped_device_lost");
        let [prepared, completed] = state.sum();
        assert_eq!((prepared, completed), (report.conservation.received, report.conservation.received - lost));
    }
}

#[test]
fn packets_that_a_host_half_drops_on_completion_are_counted() {
    for opener in [None, Some(opener("cpu", Faults { delay_polls: 2, fails_each: 0, loss: None }))] {
        let traffic = "packets = 20000\nflows = 300";
        let (report, state) = run(&text("cpu", "launch", traffic), 2, 7, opener, |_, state| {
            wait_for("all packets", LIMIT, || state.sum()[1] == 20_000);
        });
        let dropped = state.dropped.load(Ordering::SeqCst);
        assert!(dropped > 2000);
        assert_eq!(count(&report, "echo_dropped_truncated{function=\"probe\"}"), dropped);
        assert_eq!((report.conservation.dropped, report.conservation.sent), (dropped, 20_000 - dropped));
    }
}

#[test]
fn an_invalid_request_is_refused_and_packets_keep_flowing() {
    let (report, state) = run(&text("cpu", "launch", ENDLESS), 4, 0, None, |path, state| {
        let mut client = ControlClient::connect(path);
        let secret = "00112233445566778899aabbccddeeff";
        let bad = [
            ("\n".to_owned(), "invalid JSON"),
            (format!("{{\"command\":\"add\",\"key\":\"{secret}\"\n"), "invalid JSON"),
            (format!("{secret}\n"), "invalid JSON"),
            (format!("\"{secret}\"\n"), "JSON object"),
            ("[1]\n".to_owned(), "JSON object"),
            ("{}\n".to_owned(), "`command`"),
            ("{\"command\":7}\n".to_owned(), "`command`"),
            (format!("{{\"command\":\"{secret}\"}}\n"), "`reload`"),
            ("{\"command\":\"status\",\"x\":1}\n".to_owned(), "unknown key `x`: `status` takes no keys"),
            (
                "{\"command\":\"chain\",\"txt\":\"\"}\n".to_owned(),
                "unknown key `txt`: `chain` takes `text`, `origin`, `dir",
            ),
            ("{\"command\":\"trace\",\"action\":\"read\",\"wait\":1}\n".to_owned(), "unknown key `wait`"),
            ("{\"function\":\"prob\",\"command\":\"x\"}\n".to_owned(), "probe"),
            ("{\"function\":1,\"command\":\"x\"}\n".to_owned(), "name"),
            ("{\"function\":\"swap\",\"command\":\"x\"}\n".to_owned(), "commands"),
            ("{\"function\":\"probe\",\"command\":\"x\"}\n".to_owned(), "unknown command of a probe"),
            ("{\"function\":\"probe\",\"command\":\"bug\"}\n".to_owned(), "bug"),
            ("[".repeat(100_000) + "\n", "invalid JSON"),
        ];
        for (line, expected) in bad {
            let error = client.error_of_line(line.as_bytes());
            assert!(error.contains(expected) && !error.contains(secret), "{error}");
        }
        let error = client.error_of_line(&[0xff, 0xfe, b'\n']);
        assert!(error.contains("invalid JSON"), "{error}");
        // Two requests at once, and a third one in two parts.
        client.send(b"{\"command\":\"status\"}\n{\"command\":\"status\"}\n{\"comm");
        client.send(b"and\":\"status\"}\n");
        for _ in 0..3 {
            assert_eq!(client.receive().unwrap()["ok"], true);
        }
        // A line that is too long: an error, and the server closes the connection.
        let mut long = ControlClient::connect(path);
        let mut sink = long.stream().try_clone().unwrap();
        std::thread::scope(|scope| {
            scope.spawn(move || while sink.write_all(&[b'x'; 4096]).is_ok() {});
            let reply = long.receive();
            assert!(reply.is_none_or(|reply| reply["error"].as_str().unwrap().contains("bytes")));
            assert!(long.receive().is_none());
            let _ = long.stream().shutdown(std::net::Shutdown::Both);
        });
        // The server limits the number of clients. Silent clients count.
        let silent: Vec<ControlClient> = (0..7).map(|_| ControlClient::connect(path)).collect();
        wait_for("the limit of clients", LIMIT, || {
            let mut one_more = ControlClient::connect(path);
            one_more.receive().is_some_and(|reply| reply["error"].as_str().unwrap().contains("clients"))
        });
        drop(silent);
        // The server accepts another client when it has noticed that the others left.
        wait_for("another client", LIMIT, || {
            let mut again = ControlClient::connect(path);
            again.try_send(b"{\"command\":\"status\"}\n") && again.receive().is_some_and(|reply| reply["ok"] == true)
        });
        // A client that leaves within a request has no effect.
        ControlClient::connect(path).try_send(b"{\"command\":");
        let before = state.sum()[1];
        wait_for("more packets", LIMIT, || state.sum()[1] > before + 1000);
        let status = client.result(&json!({ "command": "status" }));
        assert!(status["conservation"]["received"].as_u64().unwrap() > 1000, "{status}");
        assert_eq!(status["functions"][1]["name"], "probe");
        let help = client.result(&json!({ "command": "help" }));
        assert_eq!(help["commands"]["chain"], json!(["text", "origin", "directory"]), "{help}");
        assert_eq!(help["functions"], json!({ "swap": "template", "probe": "echo" }), "{help}");
        assert_eq!(client.result(&json!({ "command": "stop" })), Value::Null);
    });
    let [prepared, completed] = state.sum();
    assert_eq!((prepared, completed), (report.conservation.received, report.conservation.sent));
}

#[test]
fn a_socket_is_private_and_replaces_only_an_abandoned_socket() {
    let folder = Folder::new();
    let open = |path: &PathBuf| {
        load_driver();
        let config = config(&text("cpu", "launch", ENDLESS));
        Engine::new(config, &Options { control: Some(path.clone()), ..Options::default() })
    };
    let error_of = |path: &PathBuf| match open(path) {
        Err(error @ Error::Setup(_)) => error.to_string(),
        Err(error) => panic!("{error:?}"),
        Ok(_) => panic!("{} was replaced", path.display()),
    };
    let path = folder.join("control");
    // No process listens at this socket any more.
    drop(UnixListener::bind(&path).unwrap());
    assert!(path.exists());
    let engine = open(&path).unwrap();
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o7777, 0o600);
    assert!(error_of(&path).contains("another process"));
    assert!(UnixStream::connect(&path).is_ok(), "the socket of another engine must stay");
    drop(engine);
    assert!(!path.exists());
    std::fs::write(&path, "precious").unwrap();
    assert!(error_of(&path).contains("not a socket"));
    assert_eq!(std::fs::read(&path).unwrap(), b"precious");
    let message = error_of(&folder.join("no/such/folder"));
    assert!(message.contains("no/such/folder") && message.contains("No such file"), "{message}");
    assert!(error_of(&folder.join("x".repeat(200))).contains("xxx"));
}

#[test]
fn the_path_of_the_socket_is_relative_to_the_configuration() {
    let folder = Folder::new();
    let text = text("cpu", "launch", ENDLESS).replace("[engine]", "[engine]\ncontrol = \"here\"");
    let config = Config::parse(&text, "test.toml", folder.path()).unwrap();
    load_driver();
    let engine = Engine::new(config, &Options::default()).unwrap();
    assert!(folder.join("here").exists());
    drop(engine);
}
