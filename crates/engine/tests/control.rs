//! A running engine, told things over its control socket while traffic flows.

#[path = "../../device/tests/emulated/mod.rs"]
mod emulated;
mod faults;
mod probe;

use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use faults::{Faults, Loss, opener};
use godwit_device::opencl::{self, OpenClDevice};
use godwit_device::{Device, DeviceOptions, Mode, Program, cuda};
use godwit_engine::config::Config;
use godwit_engine::{Engine, Error, Opener, Options, Report};
use godwit_packet::ArenaHandle;
use serde_json::{Value, json};

const LIMIT: Duration = Duration::from_secs(120);

/// `echo` on a device, with traffic that ends only when it is told to.
fn text(device: &str, mode: &str, traffic: &str) -> String {
    let stanza = if device == "cpu" {
        String::new()
    } else {
        format!(
            "[[device]]\nname = \"{device}\"\nmode = \"{mode}\"\nchunk_packets = 64\nbins = 5\nbin_packets = 32\nwatchdog_ms = 2000\n"
        )
    };
    format!(
        r#"
        [engine]
        workers = 2
        pin = false
        burst_packets = 64
        in_flight_packets = 1024
        [packing]
        deadline_ns = 20000
        {stanza}
        [[port]]
        name = "in"
        kind = "synthetic"
        size = "imix"
        seed = 5
        {traffic}
        [[port]]
        name = "out"
        kind = "synthetic"
        [[function]]
        name = "swap"
        kind = "template"
        [[function]]
        name = "probe"
        kind = "echo"
        device = "{device}"
        [[chain]]
        from = "in"
        to = "swap"
        [[chain]]
        from = "swap"
        to = "probe"
        [[chain]]
        from = "probe"
        to = "out"
        "#
    )
}

const ENDLESS: &str = "flows = 300\nrate = \"200kpps\"";

/// A connected client.
struct Client(BufReader<UnixStream>);

impl Client {
    fn connect(path: &Path) -> Self {
        let stream = UnixStream::connect(path).unwrap();
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        Self(BufReader::new(stream))
    }

    fn say(&mut self, line: &[u8]) {
        assert!(self.is_heard(line), "the server has closed the connection");
    }

    /// Whether the server has not closed the connection yet.
    fn is_heard(&mut self, line: &[u8]) -> bool {
        self.0.get_mut().write_all(line).is_ok()
    }

    fn hear(&mut self) -> Option<Value> {
        let mut line = String::new();
        let heard = self.0.read_line(&mut line);
        heard.is_ok_and(|bytes| bytes > 0).then(|| serde_json::from_str(&line).unwrap())
    }

    fn ask(&mut self, request: &Value) -> Value {
        self.say(format!("{request}\n").as_bytes());
        self.hear().expect("a reply")
    }

    /// What is asked for; the server must agree.
    fn result(&mut self, request: &Value) -> Value {
        let reply = self.ask(request);
        assert_eq!(reply["ok"], true, "{request}: {reply}");
        reply["result"].clone()
    }

    /// Why it refuses.
    fn refused(&mut self, line: &[u8]) -> String {
        self.say(line);
        let reply = self.hear().expect("a reply");
        assert_eq!(reply["ok"], false, "{reply}");
        reply["error"].as_str().unwrap().to_owned()
    }
}

/// Runs an engine with a probe while `talk` speaks to it, which ends it too.
fn run(
    text: &str,
    ports: u32,
    drops_each: u64,
    opener: Option<Opener>,
    talk: impl FnOnce(&Path, &probe::State) + Send,
) -> (Report, Arc<probe::State>) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("control");
    let mut config = Config::parse(text, "test.toml", Path::new(".")).unwrap();
    let state = probe::put(&mut config, "probe", ports, drops_each);
    let options = Options { control: Some(path.clone()), opener, ..Options::default() };
    // Every engine asks for devices, once a process.
    emulated::unless_there_is_a_driver();
    let engine = Engine::new(config, &options).unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let report = std::thread::scope(|scope| {
        let talking = scope.spawn(|| {
            // Also when it fails.
            let _stop = StopOnDrop(&stop);
            talk(&path, &state);
        });
        let report = engine.run(&stop, Some(LIMIT), &mut |_| {}).unwrap();
        talking.join().unwrap();
        report
    });
    assert!(!path.exists(), "the socket is still there");
    assert!(report.conservation.holds() && report.conservation.in_flight == 0, "{}", report.conservation);
    assert_eq!(state.wrong.load(Ordering::SeqCst), 0);
    (report, state)
}

struct StopOnDrop<'a>(&'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn count(report: &Report, counter: &str) -> u64 {
    report.counters.iter().find(|(name, _)| name == counter).map_or(0, |(_, value)| *value)
}

fn wait_until(done: impl Fn() -> bool) {
    while !done() {
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Fewer and fewer ports; each time what was prepared before is gone, and what comes later sees the new image.
fn change_thrice(path: &Path, state: &probe::State) -> Vec<Value> {
    let mut client = Client::connect(path);
    let mut left = Vec::new();
    for generation in 0..4 {
        // Each generation has packets of its own.
        wait_until(|| state.of(generation)[1] > 500);
        if generation < 3 {
            left.push(client.result(&json!({ "function": "probe", "command": "fewer" }))["left"].clone());
        }
    }
    client.result(&json!({ "command": "stop" }));
    left
}

fn check_changes(text: &str, opener: Option<Opener>) -> Report {
    let (report, state) = run(text, 4, 0, opener, |path, state| assert_eq!(change_thrice(path, state), [0, 0, 0]));
    let highest: Vec<u64> = (0..4).map(|generation| state.of(generation)[2]).collect();
    assert_eq!(highest, [3, 2, 1, 0]);
    let [prepared, completed] = state.sum();
    assert_eq!((prepared, completed), (report.conservation.received, report.conservation.received));
    report
}

#[test]
fn an_image_changes_and_packets_of_before_are_waited_for() {
    check_changes(&text("cpu", "launch", ENDLESS), None);
}

#[test]
fn packets_on_a_slow_device_are_waited_for() {
    let faults = Faults { delay_polls: 50, fails_each: 0, loss: None };
    check_changes(&text("opencl:9", "launch", ENDLESS), Some(opener("opencl:9", faults)));
}

/// OpenCL on the host's memory, with copies, and with groups that stay.
#[test]
fn an_image_changes_on_devices_that_have_a_copy_of_it() {
    let probe = opencl::probe();
    let usable = probe.found.iter().enumerate().find(|(_, found)| found.usable.is_ok());
    let Some((number, found)) = usable else {
        std::io::stderr().write_all(b"skipped: no OpenCL device can be used\n").unwrap();
        return;
    };
    let id = found.capabilities.id.clone();
    check_changes(&text(&id, "launch", ENDLESS), None);
    let wanted = id.clone();
    let open = move |asked: &str, programs: &[(Arc<dyn Program>, _)], arena: &ArenaHandle, options: &DeviceOptions| {
        (asked == wanted).then(|| {
            let programs = programs.iter().map(|(program, _)| Arc::clone(program)).collect();
            Ok(Arc::new(OpenClDevice::with_own_memory(number, programs, arena, options)?) as Arc<dyn Device>)
        })
    };
    check_changes(&text(&id, "launch", ENDLESS), Some(Opener(Arc::new(open))));
    if found.lacks(Mode::Persistent).is_none() {
        check_changes(&text(&id, "persistent", ENDLESS).replace("workers = 2", "workers = 1"), None);
    }
}

/// Copied to the device on a stream of its own, beside launches and beside groups that stay.
#[test]
fn an_image_changes_on_cuda() {
    emulated::unless_there_is_a_driver();
    let probe = cuda::probe();
    let Some(found) = probe.found.iter().find(|found| found.usable.is_ok()) else {
        std::io::stderr().write_all(b"skipped: no CUDA device can be used\n").unwrap();
        return;
    };
    for mode in ["launch", "persistent"] {
        let report = check_changes(&text(&found.capabilities.id, mode, ENDLESS), None);
        assert_eq!(report.functions[1].device, found.capabilities.id);
    }
}

#[test]
fn nothing_in_flight_is_nothing_to_wait_for() {
    let (_, state) = run(&text("cpu", "launch", "flows = 3\nrate = \"1pps\""), 4, 0, None, |path, _| {
        let mut client = Client::connect(path);
        for _ in 0..3 {
            assert_eq!(client.result(&json!({ "function": "probe", "command": "fewer" }))["left"], 0);
        }
        client.result(&json!({ "command": "stop" }));
    });
    assert!(state.sum()[0] < 100);
}

/// What a device took with it is gone, and nobody waits for it for ever.
#[test]
fn a_lost_device_is_not_waited_for() {
    for loss in [Loss::Hangs, Loss::Dies, Loss::Refuses] {
        let faults = Faults { delay_polls: 3, fails_each: 5, loss: Some((loss, 20)) };
        let text = text("opencl:9", "launch", ENDLESS).replace("watchdog_ms = 2000", "watchdog_ms = 50");
        let (report, state) = run(&text, 4, 0, Some(opener("opencl:9", faults)), |path, state| {
            change_thrice(path, state);
        });
        assert_eq!(report.functions[1].device, "cpu");
        let lost = count(&report, "engine_dropped_device") + count(&report, "engine_dropped_device_lost");
        let [prepared, completed] = state.sum();
        assert_eq!((prepared, completed), (report.conservation.received, report.conservation.received - lost));
    }
}

#[test]
fn what_a_host_half_drops_when_it_completes_is_counted() {
    for opener in [None, Some(opener("cpu", Faults { delay_polls: 2, fails_each: 0, loss: None }))] {
        let traffic = "packets = 20000\nflows = 300";
        let (report, state) = run(&text("cpu", "launch", traffic), 2, 7, opener, |_, state| {
            wait_until(|| state.sum()[1] == 20_000);
        });
        let dropped = state.dropped.load(Ordering::SeqCst);
        assert!(dropped > 2000);
        assert_eq!(count(&report, "echo_dropped_truncated{function=\"probe\"}"), dropped);
        assert_eq!((report.conservation.dropped, report.conservation.sent), (dropped, 20_000 - dropped));
    }
}

#[test]
fn bad_requests_are_answered_and_stop_nothing() {
    let (report, state) = run(&text("cpu", "launch", ENDLESS), 4, 0, None, |path, state| {
        let mut client = Client::connect(path);
        let secret = "00112233445566778899aabbccddeeff";
        let bad = [
            ("\n".to_owned(), "invalid JSON"),
            (format!("{{\"command\":\"add\",\"key\":\"{secret}\"\n"), "invalid JSON"),
            (format!("{secret}\n"), "invalid JSON"),
            (format!("\"{secret}\"\n"), "an object"),
            ("[1]\n".to_owned(), "an object"),
            ("{}\n".to_owned(), "`command`"),
            ("{\"command\":7}\n".to_owned(), "`command`"),
            (format!("{{\"command\":\"{secret}\"}}\n"), "`status`, `stop`, `trace`, `chain` and `reload`"),
            ("{\"function\":\"prob\",\"command\":\"x\"}\n".to_owned(), "probe"),
            ("{\"function\":1,\"command\":\"x\"}\n".to_owned(), "name"),
            ("{\"function\":\"swap\",\"command\":\"x\"}\n".to_owned(), "takes no commands"),
            ("{\"function\":\"probe\",\"command\":\"x\"}\n".to_owned(), "no such command of a probe"),
            ("{\"function\":\"probe\",\"command\":\"bug\"}\n".to_owned(), "bug"),
            ("[".repeat(100_000) + "\n", "invalid JSON"),
        ];
        for (line, expected) in bad {
            let sentence = client.refused(line.as_bytes());
            let expected = expected.replace("an object", "a JSON object");
            assert!(sentence.contains(&expected) && !sentence.contains(secret), "{sentence}");
        }
        let sentence = client.refused(&[0xff, 0xfe, b'\n']);
        assert!(sentence.contains("invalid JSON"), "{sentence}");
        // Two at once, and one in parts.
        client.say(b"{\"command\":\"status\"}\n{\"command\":\"status\"}\n{\"comm");
        client.say(b"and\":\"status\"}\n");
        for _ in 0..3 {
            assert_eq!(client.hear().unwrap()["ok"], true);
        }
        // Too long: an answer, and that is the end of it.
        let mut long = Client::connect(path);
        let mut sink = long.0.get_ref().try_clone().unwrap();
        std::thread::scope(|scope| {
            scope.spawn(move || while sink.write_all(&[b'x'; 4096]).is_ok() {});
            let reply = long.hear();
            assert!(reply.is_none_or(|reply| reply["error"].as_str().unwrap().contains("must not exceed")));
            assert!(long.hear().is_none());
            let _ = long.0.get_ref().shutdown(std::net::Shutdown::Both);
        });
        // Others that say nothing keep nobody away, up to a number of them.
        let silent: Vec<Client> = (0..7).map(|_| Client::connect(path)).collect();
        wait_until(|| {
            let mut one_more = Client::connect(path);
            one_more.hear().is_some_and(|reply| reply["error"].as_str().unwrap().contains("clients"))
        });
        drop(silent);
        wait_until(|| {
            let mut again = Client::connect(path);
            // It is one too many until the server has seen that the others left.
            again.is_heard(b"{\"command\":\"status\"}\n") && again.hear().is_some_and(|reply| reply["ok"] == true)
        });
        // Who leaves in the middle is forgotten.
        Client::connect(path).is_heard(b"{\"command\":");
        let before = state.sum()[1];
        wait_until(|| state.sum()[1] > before + 1000);
        let status = client.result(&json!({ "command": "status" }));
        assert!(status["conservation"]["received"].as_u64().unwrap() > 1000, "{status}");
        assert_eq!(status["functions"][1]["name"], "probe");
        assert_eq!(client.result(&json!({ "command": "stop" })), Value::Null);
    });
    let [prepared, completed] = state.sum();
    assert_eq!((prepared, completed), (report.conservation.received, report.conservation.sent));
}

#[test]
fn a_socket_is_the_users_alone_and_replaces_only_what_is_dead() {
    let folder = tempfile::tempdir().unwrap();
    let open = |path: &PathBuf| {
        let config = Config::parse(&text("cpu", "launch", ENDLESS), "test.toml", Path::new(".")).unwrap();
        emulated::unless_there_is_a_driver();
        Engine::new(config, &Options { control: Some(path.clone()), ..Options::default() })
    };
    let refusal = |path: &PathBuf| match open(path) {
        Err(error @ Error::Setup(_)) => error.to_string(),
        Err(error) => panic!("{error:?}"),
        Ok(_) => panic!("{} is taken", path.display()),
    };
    let path = folder.path().join("control");
    // Nobody listens any more.
    drop(UnixListener::bind(&path).unwrap());
    assert!(path.exists());
    let engine = open(&path).unwrap();
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o7777, 0o600);
    assert!(refusal(&path).contains("another process listens"));
    assert!(UnixStream::connect(&path).is_ok(), "it was taken away");
    drop(engine);
    assert!(!path.exists());
    std::fs::write(&path, "precious").unwrap();
    assert!(refusal(&path).contains("not a socket"));
    assert_eq!(std::fs::read(&path).unwrap(), b"precious");
    let message = refusal(&folder.path().join("no/such/folder"));
    assert!(message.contains("no/such/folder") && message.contains("No such file"), "{message}");
    assert!(refusal(&folder.path().join("x".repeat(200))).contains("cannot listen"));
}

/// As the configuration names it: from its own directory.
#[test]
fn the_configuration_names_the_socket() {
    let folder = tempfile::tempdir().unwrap();
    let text = text("cpu", "launch", ENDLESS).replace("[engine]", "[engine]\ncontrol = \"here\"");
    let config = Config::parse(&text, "test.toml", folder.path()).unwrap();
    emulated::unless_there_is_a_driver();
    let engine = Engine::new(config, &Options::default()).unwrap();
    assert!(folder.path().join("here").exists());
    drop(engine);
}
