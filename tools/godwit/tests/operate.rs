//! An operator finds, watches and stops running godwits with as few words as possible.

mod common;

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use common::{Finished, conserved, godwit, run};
use godwit_test_support::ConfigText;
use serde_json::Value;

fn echo() -> String {
    ConfigText::new().echo().to_string()
}

/// Router with packets for its route.
fn router() -> String {
    let keys = "rate = \"200kpps\"\nsource = \"198.51.100.0/24\"\ndestination = \"10.0.0.0/16\"";
    ConfigText::new().router("in", "out", keys, "").to_string()
}

/// Process of a godwit without a configured socket. Drop kills it.
struct Started(Option<Child>);

impl Started {
    fn new(runtime: &Path, config: &Path) -> Self {
        let mut command = operator(runtime, &["run"]);
        command.arg(config).args(["--seconds", "120", "--json", "-"]).stdout(Stdio::piped()).stderr(Stdio::piped());
        Self(Some(command.spawn().unwrap()))
    }

    fn end(mut self) -> Finished {
        Finished::from_output(self.0.take().unwrap().wait_with_output().unwrap()).succeeded()
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        if let Some(child) = &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn operator(runtime: &Path, words: &[&str]) -> Command {
    let mut command = godwit();
    command.env("RUNTIME_DIRECTORY", runtime).args(words);
    command
}

/// Repeats a command until it succeeds.
fn soon(mut command: impl FnMut() -> Finished) -> Finished {
    let end = Instant::now() + Duration::from_secs(60);
    loop {
        let printed = command();
        if printed.code == Some(0) {
            return printed;
        }
        assert!(Instant::now() < end, "{printed:#?}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn the_only_socket_and_the_only_function_need_no_name() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let runtime = path("run");
    fs::write(path("router.toml"), router()).unwrap();
    fs::write(path("echo.toml"), echo()).unwrap();
    let asked = |words: &[&str]| run(&mut operator(&runtime, words));
    assert!(asked(&["status"]).refused().contains("no godwit answers in"));

    let router = Started::new(&runtime, &path("router.toml"));
    soon(|| asked(&["status"]));
    assert!(asked(&["route", "list"]).succeeded().stdout.contains("10.0.0.0/8"));
    for (words, expected) in [
        (&["sa", "list", "--function", "route"][..], "function `route` is of kind `ipv4`"),
        (&["mac", "list", "--function", "route"], "this command is for functions of kind `l2`"),
        (&["sa", "list"], "no function of kind `ipsec` runs here: the functions are `route` (ipv4)"),
        (&["route", "list", "2001:db8::/32"], "no function of kind `ipv6` runs here"),
        (&["route", "list", "--address", "192.0.2.1"], "no route covers 192.0.2.1"),
        (&["route", "list", "10.0.0.0/9"], "there is no route for 10.0.0.0/9"),
        (&["route", "add", "10.9.0.0/16", "via", "192.0.2.1"], "this function does not follow the kernel"),
        (&["route", "add", "10.9.0.0/16", "west"], "this function has no next hop named \"west\"; it has east"),
    ] {
        let printed = asked(words);
        assert!(printed.refused().contains(expected), "{words:?}: {printed:?}");
    }

    let echo = Started::new(&runtime, &path("echo.toml"));
    let several = loop {
        let printed = asked(&["status"]);
        if printed.code == Some(2) {
            break printed;
        }
        std::thread::sleep(Duration::from_millis(10));
    };
    let sentence = several.refused();
    assert!(sentence.starts_with("2 godwits run: choose one"), "{sentence}");
    let socket_of = |name: &str| {
        let found = sentence.split([' ', ',']).find(|word| word.contains(name) && word.ends_with(".sock"));
        found.expect("the sentence names both sockets").to_owned()
    };
    asked(&["status", "--control", &socket_of("/echo.")]).succeeded();
    run(operator(&runtime, &["route", "list"]).env("GODWIT_CONTROL", socket_of("/router."))).succeeded();

    asked(&["stop", "--control", &socket_of("/router.")]).succeeded();
    conserved(&router.end().stdout);
    asked(&["stop"]).succeeded();
    conserved(&echo.end().stdout);
    assert_eq!(common::listing(&runtime), [""; 0], "a godwit removes its socket at its end");
}

/// A socket of a process that was killed is not offered, and the next start removes it.
#[test]
fn the_socket_of_a_killed_godwit_is_not_in_the_way() {
    let folder = tempfile::tempdir().unwrap();
    let runtime = folder.path().join("run");
    let config = folder.path().join("echo.toml");
    fs::write(&config, echo()).unwrap();
    let asked = |words: &[&str]| run(&mut operator(&runtime, words));
    let killed = Started::new(&runtime, &config);
    soon(|| asked(&["status"]));
    drop(killed);
    assert_eq!(common::listing(&runtime).len(), 1);
    let running = Started::new(&runtime, &config);
    soon(|| asked(&["status"]));
    assert_eq!(common::listing(&runtime).len(), 1);
    asked(&["stop"]).succeeded();
    conserved(&running.end().stdout);
}

/// The status has rates and latencies of the last seconds, also with `--watch`.
#[test]
fn status_shows_the_last_seconds() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let runtime = path("run");
    fs::write(path("router.toml"), router()).unwrap();
    let asked = |words: &[&str]| run(&mut operator(&runtime, words));
    let running = Started::new(&runtime, &path("router.toml"));
    let report: Value = loop {
        let printed = soon(|| asked(&["status", "--json", "-"]));
        let report: Value = serde_json::from_str(&printed.stdout).unwrap();
        if report["recent"][1]["seconds"].as_f64() > Some(1.5) {
            break report;
        }
        std::thread::sleep(Duration::from_millis(100));
    };
    assert_eq!((&report["ports"][0]["is_up"], &report["lost_devices"]), (&Value::Null, &serde_json::json!([])));
    assert_eq!(report["functions"][0]["tables"]["routes"], 1);
    // A counter without packets is present from the start.
    assert_eq!(report["counters"]["ipv4_dropped_blackhole{function=\"route\"}"], 0);
    for period in report["recent"].as_array().unwrap() {
        // The port offers 200,000 packets per second. A busy machine may not reach this rate.
        for rate in [&period["received_pps"], &period["functions"][0]["pps"], &period["ports"][0]["received_pps"]] {
            let rate = rate.as_f64().unwrap();
            assert!((1000.0..250_000.0).contains(&rate), "{period:#}");
        }
        assert!(period["latency"]["p99_ns"].as_u64() > Some(0), "{period:#}");
        let busy = period["worker_busy"][0].as_f64().unwrap();
        assert!(busy > 0.0 && busy <= 1.0, "{period:#}");
    }
    let mut watch = operator(&runtime, &["status", "--watch", "0.1"]).stdout(Stdio::piped()).spawn().unwrap();
    std::thread::sleep(Duration::from_millis(500));
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(watch.id() as i32), nix::sys::signal::Signal::SIGINT).unwrap();
    let mut shown = String::new();
    watch.stdout.take().unwrap().read_to_string(&mut shown).unwrap();
    assert_eq!(watch.wait().unwrap().code(), Some(0));
    assert!(shown.matches("router.toml  up 00:00:").count() > 1 && shown.contains("next hops 1, routes 1"), "{shown}");
    asked(&["stop"]).succeeded();
    let last: Value = conserved(&running.end().stdout);
    assert!(last["latency"]["p99_ns"].as_u64() > Some(0), "{last:#}");
}

/// Sends a GET request and returns the answer.
fn get(mut client: impl Read + Write, path: &str) -> String {
    write!(client, "GET {path} HTTP/1.0\r\nHost: godwit\r\n\r\n").unwrap();
    let mut answer = String::new();
    client.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn metrics_are_served_on_a_unix_socket() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let runtime = path("run");
    fs::write(path("router.toml"), format!("[metrics]\nlisten = \"unix:metrics\"\n{}", router())).unwrap();
    let running = Started::new(&runtime, &path("router.toml"));
    soon(|| run(&mut operator(&runtime, &["status"])));
    let answer = get(UnixStream::connect(path("metrics")).unwrap(), "/metrics");
    for part in [
        "HTTP/1.1 200 OK\r\nContent-Type: application/openmetrics-text; version=1.0.0",
        "godwit_dropped_packets_total{function=\"route\",kind=\"ipv4\",reason=\"blackhole\"} 0\n",
        "godwit_table_entries{function=\"route\",kind=\"ipv4\",table=\"routes\"} 1\n",
        "godwit_latency_seconds_bucket{le=\"+Inf\"} ",
    ] {
        assert!(answer.contains(part), "{part}: {answer}");
    }
    assert!(answer.ends_with("# EOF\n"));
    assert!(get(UnixStream::connect(path("metrics")).unwrap(), "/").starts_with("HTTP/1.1 404"));
    run(&mut operator(&runtime, &["stop"])).succeeded();
    conserved(&running.end().stdout);
    assert!(!path("metrics").exists());
}

/// Prometheus reads every series, and finds the packets of the run.
#[test]
fn prometheus_scrapes_a_running_godwit() {
    if Command::new("prometheus").arg("--version").output().is_err() {
        return godwit_test_support::absent("prometheus");
    }
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let runtime = path("run");
    let free = || std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let (metrics, server) = (free(), free());
    fs::write(path("router.toml"), format!("[metrics]\nlisten = \"{metrics}\"\n{}", router())).unwrap();
    let scrape = format!(
        "scrape_configs:\n- job_name: godwit\n  scrape_interval: 1s\n  static_configs:\n  - targets: [\"{metrics}\"]\n"
    );
    fs::write(path("prometheus.yml"), scrape).unwrap();
    let running = Started::new(&runtime, &path("router.toml"));
    soon(|| run(&mut operator(&runtime, &["status"])));
    let mut prometheus = Command::new("prometheus");
    prometheus.arg(format!("--config.file={}", path("prometheus.yml").display()));
    prometheus.arg(format!("--storage.tsdb.path={}", path("data").display()));
    prometheus.arg(format!("--web.listen-address={server}")).stdout(Stdio::null()).stderr(Stdio::null());
    let _prometheus = Started(Some(prometheus.spawn().unwrap()));
    let query = |query: &str| {
        let answer = get(TcpStream::connect(server).ok()?, &format!("/api/v1/query?query={query}"));
        let body = answer.split_once("\r\n\r\n")?.1.to_owned();
        let answer: Value = serde_json::from_str(&body).ok()?;
        answer["data"]["result"][0]["value"][1].as_str()?.parse::<f64>().ok()
    };
    let end = Instant::now() + Duration::from_secs(60);
    let value = |name: &str| loop {
        match query(name).filter(|value| *value > 0.0) {
            Some(value) => return value,
            None => assert!(Instant::now() < end, "{name} does not appear"),
        }
        std::thread::sleep(Duration::from_millis(100));
    };
    assert_eq!(value("up"), 1.0);
    for name in ["godwit_received_packets_total", "godwit_latency_seconds_count", "godwit_uptime_seconds"] {
        assert!(value(name) > 0.0);
    }
    // Prometheus rejects a scrape with an invalid line as a whole. Otherwise it counts the samples.
    assert!(value("scrape_samples_scraped") > 100.0);
    run(&mut operator(&runtime, &["stop"])).succeeded();
    conserved(&running.end().stdout);
}
