//! Other runs of the program query and change a running Godwit.

mod common;

use std::fs;
use std::io::{PipeReader, Read, Write};
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use common::running::Running;
use common::{Finished, godwit, run};
use godwit_test_support::ConfigText;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

#[test]
fn status_reports_counters_and_errors_are_one_sentence() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    fs::write(path("echo.toml"), echo()).unwrap();
    let control = path("control");
    let status = || {
        let mut command = godwit();
        command.arg("status").arg("--control").arg(&control);
        command
    };
    let printed = run(&mut status());
    assert!(printed.refused().contains("no godwit answers at"), "{printed:?}");
    let running = Running::start(&path("echo.toml"), &control);
    let printed = run(status().args(["--json", "-"])).succeeded();
    let report: Value = serde_json::from_str(&printed.stdout).unwrap();
    assert_eq!(report["functions"][0]["name"], "back");
    let printed = run(status().arg("--all")).succeeded();
    for part in ["received ", "back ", "engine_received"] {
        assert!(printed.stdout.contains(part), "{printed:?}");
    }
    let printed = run(godwit().arg("run").arg(path("echo.toml")).arg("--control").arg(&control));
    assert!(printed.refused().contains("another process listens there"), "{printed:?}");

    let key = "000102030405060708090a0b0c0d0e0f";
    for (file, text, expected) in [
        ("none.toml", "", "none.toml: the file contains no [[sa]]"),
        ("key.toml", &format!("[[sa]]\nname = \"a\"\nencryption_key = {key}\n"), "key.toml:3: "),
        ("other.toml", "[[policy]]\naction = \"discard\"\n", "unknown key `policy`"),
        (
            "good.toml",
            &format!("[[function.sa]]\nname = \"a\"\nencryption_key = \"{key}\"\n"),
            "is of kind `echo`: this command is for functions of kind `ipsec`",
        ),
    ] {
        fs::write(path(file), text).unwrap();
        for command in ["add", "replace"] {
            let mut sa = godwit();
            sa.args(["sa", command, "--function", "back", "--control"]).arg(&control).arg("--file").arg(path(file));
            let printed = run(&mut sa);
            assert!(printed.refused().contains(expected) && !printed.stderr.contains(key), "{printed:?}");
        }
    }
    for words in [&["delete", "a"][..], &["list"]] {
        let mut sa = godwit();
        let printed = run(sa.arg("sa").args(words).args(["--function", "bakc", "--control"]).arg(&control));
        assert!(printed.refused().contains("back"), "{printed:?}");
    }
    let report = running.stop();
    assert!(report["conservation"]["received"].as_u64() > Some(0));
    assert!(!control.exists());
}

fn echo() -> String {
    ConfigText::new().echo().to_string()
}

/// Router with packets for its route.
fn router() -> String {
    let keys = "rate = \"200kpps\"\nsource = \"198.51.100.0/24\"\ndestination = \"10.0.0.0/16\"";
    ConfigText::new()
        .router("in", "out", keys, "[[function.next_hop]]\nname = \"nowhere\"\nblackhole = true")
        .to_string()
}

#[test]
fn routes_change_while_packets_flow() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    fs::write(path("router.toml"), router()).unwrap();
    fs::write(path("more.txt"), "# hosts\n10.0.0.7 nowhere\n10.0.1.0/24\tnowhere ; a net\n").unwrap();
    let control = path("control");
    let route = |words: &[&str]| {
        let mut command = godwit();
        command.arg("route").args(words).args(["--function", "route", "--control"]).arg(&control);
        run(&mut command)
    };
    let counter = |name: &str| {
        let printed = run(godwit().args(["status", "--json", "-", "--control"]).arg(&control)).succeeded();
        let report: Value = serde_json::from_str(&printed.stdout).unwrap();
        report["counters"][name].as_u64().unwrap_or(0)
    };
    let running = Running::start(&path("router.toml"), &control);
    assert_eq!(counter("ipv4_dropped_blackhole{function=\"route\"}"), 0);
    let printed = route(&["add", "10.0.0.0/15", "nowhere"]).succeeded();
    assert_eq!(printed.stdout, "1 route added\n");
    // All packets use this chain, so a change affects them soon.
    while counter("ipv4_dropped_blackhole{function=\"route\"}") == 0 {
        std::thread::sleep(Duration::from_millis(5));
    }
    route(&["add", "--file", path("more.txt").to_str().unwrap()]).succeeded();
    let printed = route(&["list"]).succeeded();
    let prefixes: Vec<_> = printed.stdout.lines().filter_map(|line| line.split_whitespace().next()).collect();
    assert_eq!(prefixes, ["route", "10.0.0.0/8", "10.0.0.0/15", "10.0.0.7/32", "10.0.1.0/24"]);
    let listed = route(&["list", "--address", "10.0.1.9"]).succeeded().stdout;
    assert!(listed.lines().count() == 2 && listed.contains("  10.0.1.0/24  "), "{listed}");
    assert!(route(&["add", "10.0.0.0/9", "west"]).refused().contains("it has east, nowhere"));
    assert!(route(&["delete", "10.2.0.0/16"]).refused().contains("no route for 10.2.0.0/16"));
    route(&["delete", "10.0.0.0/15", "10.0.0.7", "10.0.1.0/24"]).succeeded();
    let sent = counter("engine_sent");
    while counter("engine_sent") == sent {
        std::thread::sleep(Duration::from_millis(5));
    }
    running.stop();
}

const SWITCH: &str = r#"
[[port]]
name = "left"
kind = "synthetic"
rate = "10kpps"

[[port]]
name = "right"
kind = "synthetic"

[[function]]
name = "switch"
kind = "l2"

[[chain]]
from = "left"
to = "switch"

[[chain]]
from = "switch"
verdict = "forward"
to = "egress"

[[chain]]
from = "switch"
verdict = "flood"
to = "egress"
"#;

#[test]
fn addresses_of_a_switch_are_listed_added_deleted_and_flushed() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    fs::write(path("switch.toml"), SWITCH).unwrap();
    let control = path("control");
    let mac = |command: &str, arguments: &[&str]| {
        let mut asked = godwit();
        asked.args(["mac", command, "--control"]).arg(&control).args(["--function", "switch"]).args(arguments);
        run(&mut asked)
    };
    let running = Running::start(&path("switch.toml"), &control);
    // The switch learns the source address of the generated packets.
    while !mac("list", &[]).succeeded().stdout.contains("1 02:00:00:00:00:01 left  # silent") {
        std::thread::sleep(Duration::from_millis(5));
    }
    let added = mac("add", &["--port", "right", "02:00:00:00:00:07", "02-00-00-00-00-08"]).succeeded();
    assert_eq!(added.stdout, "2 added\n");
    let listed = mac("list", &["--port", "right"]).succeeded().stdout;
    assert_eq!(listed, "1 02:00:00:00:00:07 right  # static\n1 02:00:00:00:00:08 right  # static\n");
    let json = mac("list", &["--port", "right", "--json", "-"]).succeeded().stdout;
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["mac"][1]["mac"], "02:00:00:00:00:08");
    for (arguments, part) in [
        (&["--port", "middle", "02:00:00:00:00:09"][..], "no port named \"middle\""),
        (&["--port", "left", "--vlan", "7", "02:00:00:00:00:09"], "does not belong to VLAN 7"),
        (&["--port", "left", "ff:ff:ff:ff:ff:ff"], "ff:ff:ff:ff:ff:ff"),
        (&["--port", "left", "02:00:00:00:00:07"], "already"),
    ] {
        let printed = mac("add", arguments);
        assert_eq!(printed.code, Some(2));
        assert!(printed.stderr.contains(part), "{}", printed.stderr);
    }
    assert_eq!(mac("delete", &["02:00:00:00:00:07"]).succeeded().stdout, "1 deleted\n");
    assert_eq!(mac("delete", &["02:00:00:00:00:07"]).code, Some(2));
    assert_eq!(mac("flush", &["--port", "right"]).succeeded().stdout, "0 flushed\n");
    assert_eq!(mac("flush", &["--port", "right", "--static"]).succeeded().stdout, "1 flushed\n");
    running.stop();
}

const FORK: &str = r#"
[[port]]
name = "in"
kind = "synthetic"
rate = "100kpps"
size = 100
probe = true

[[function]]
name = "left"
kind = "echo"
ports = 1

[[function]]
name = "right"
kind = "echo"
ports = 1
"#;

/// Packets go through one function and back.
fn by(function: &str) -> String {
    format!("[[chain]]\nfrom = \"in\"\nto = \"{function}\"\n\n[[chain]]\nfrom = \"{function}\"\nto = \"in\"\n")
}

/// The chain comes from a file, from the configuration on a reload, and from SIGHUP. Other changes
/// are named in the answer, and no packet is lost.
#[test]
fn the_chain_changes_while_packets_flow() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let (config, control) = (path("fork.toml"), path("control"));
    fs::write(&config, FORK.to_owned() + &by("left")).unwrap();
    let running = Running::start(&config, &control);
    let printed = |words: &[&str]| run(godwit().args(words).arg("--control").arg(&control).current_dir(folder.path()));
    let count = |function: usize| {
        let report: Value = serde_json::from_str(&printed(&["status", "--json", "-"]).succeeded().stdout).unwrap();
        report["functions"][function]["packets"].as_u64().unwrap()
    };
    // From now on, packets use only this function.
    let goes_by = |function: usize| {
        let before = [0, 1].map(count);
        while count(function) < before[function] + 100 {
            std::thread::sleep(Duration::from_millis(5));
        }
        assert_eq!(count(1 - function), before[1 - function]);
    };
    goes_by(0);
    fs::write(path("right.toml"), by("right")).unwrap();
    assert!(printed(&["chain", "right.toml"]).succeeded().stdout.contains("new packets take the new chain"));
    goes_by(1);
    // A relative path in a file with three columns starts at the folder of that file.
    fs::write(path("left.csv"), "*, in, left\n*, left, in\n").unwrap();
    fs::write(path("columns.toml"), "[[chain]]\nfile = \"left.csv\"\n").unwrap();
    let warned = printed(&["chain", "columns.toml"]).succeeded().stderr;
    assert!(warned.contains("`right` is never used"), "{warned}");
    goes_by(0);
    fs::write(path("bad.toml"), by("rihgt")).unwrap();
    let refused = printed(&["chain", "bad.toml"]);
    assert!(refused.refused().contains("bad.toml:3: ") && refused.refused().contains("`right`"), "{refused:?}");
    assert!(printed(&["chain", "none.toml"]).refused().contains("cannot read none.toml"));

    // Comments, spaces and the order of keys do not matter.
    let moved = FORK.replace("name = \"left\"\nkind = \"echo\"", "kind   = \"echo\"  # here\nname = \"left\"");
    fs::write(&config, by("right") + &moved).unwrap();
    printed(&["reload"]).succeeded();
    goes_by(1);
    for (text, expected) in [
        (FORK.replacen("ports = 1", "ports = 2", 1), "fork.toml:12: `ports` of function `left` was changed"),
        (FORK.replacen("ports = 1\n", "", 1), "`ports` of function `left`"),
        (FORK.replace("100kpps", "200kpps"), "fork.toml:5: `rate` of port `in`"),
        (FORK.replace("\"right\"", "\"wrong\""), "function `wrong` was added"),
        (
            FORK.replace("name = \"left\"", "name = \"l\"").replace("name = \"right\"", "name = \"left\""),
            "`l` was added",
        ),
        (FORK.split("[[function]]\nname = \"right\"").next().unwrap().to_owned(), "function `right` was removed"),
        (FORK.to_owned() + "[engine]\nworkers = 1\n", "[engine] was added"),
        (FORK.to_owned() + "[[function]]\nname = \"left\"\nkind = \"echo\"\n", "function `left` was moved"),
        (FORK.to_owned() + "[[class]]\nname = \"x\"\nsource_ports = \"1-\"\n", "fork.toml:"),
        (FORK.to_owned() + "[[function\n", "fork.toml:"),
    ] {
        fs::write(&config, text + &by("left")).unwrap();
        let refused = printed(&["reload"]);
        assert!(refused.refused().contains(expected), "{expected}: {refused:?}");
    }
    goes_by(1);

    let process = Pid::from_raw(running.id() as i32);
    fs::write(&config, FORK.to_owned() + &by("left")).unwrap();
    kill(process, Signal::SIGHUP).unwrap();
    let before = count(0);
    while count(0) == before {
        std::thread::sleep(Duration::from_millis(5));
    }
    goes_by(0);
    // A refused change does not end the run.
    fs::remove_file(&config).unwrap();
    kill(process, Signal::SIGHUP).unwrap();
    assert!(printed(&["reload"]).refused().contains("fork.toml: No such file"));
    goes_by(0);

    let report = running.stop();
    let flow = &report["conservation"];
    assert_eq!((&flow["dropped"], &flow["sent"]), (&0.into(), &flow["received"]));
    let probes = &report["ports"][0]["probes"];
    assert_eq!((&probes["received"], &probes["reordered"]), (&flow["received"], &0.into()), "{probes}");
}

/// A command and SIGUSR1 change the policy. Both appear in the status and in the events.
#[test]
fn the_policy_changes_by_command_and_by_signal() {
    let folder = tempfile::tempdir().unwrap();
    let [config, control] = ["placed.toml", "control"].map(|name| folder.path().join(name));
    let placement = "[placement]\nprofile = \"placed.profile.toml\"\npolicy = \"energy\"\n";
    fs::write(&config, format!("{placement}{FORK}{}", by("left"))).unwrap();
    fs::write(folder.path().join("placed.profile.toml"), common::profile(&config)).unwrap();
    let running = Running::start(&config, &control);
    let policy = |arguments: &[&str]| run(godwit().arg("policy").arg("--control").arg(&control).args(arguments));
    let name = || policy(&[]).succeeded().stdout.lines().next().unwrap().to_owned();
    assert_eq!(name(), "policy energy");
    let set = policy(&["latency-bound", "--under", "300us"]).succeeded().stdout;
    assert!(set.starts_with("policy latency-bound under 300us\nplacement ") && set.contains("left=cpu"), "{set}");
    let json: Value = serde_json::from_str(&policy(&["--json", "-"]).succeeded().stdout).unwrap();
    assert_eq!((&json["policy"], &json["under"]), (&"latency-bound".into(), &"300us".into()));
    for (arguments, part) in [
        (&["fast"][..], "fast"),
        (&["energy", "--under", "300W"], "policy `energy` has no limit"),
        (&["latency-bound"], "needs a limit"),
        (&["power-cap", "--under", "300W"], "policy `power-cap` needs a power meter"),
        (&["hold", "left=cuda:0"], "function `left` cannot run on `cuda:0`"),
        (&["--under", "300W"], "<POLICY>"),
    ] {
        let refused = policy(arguments);
        assert!(refused.refused().contains(part), "{part}: {refused:?}");
    }
    // The next policies are energy, hold and throughput, because nothing measures power.
    for expected in ["policy energy", "policy hold", "policy throughput"] {
        kill(Pid::from_raw(running.id() as i32), Signal::SIGUSR1).unwrap();
        while name() != expected {
            std::thread::sleep(Duration::from_millis(5));
        }
    }
    let status = run(godwit().arg("status").arg("--control").arg(&control)).succeeded().stdout;
    assert!(status.contains("policy throughput\nplacement ") && status.contains("predicted "), "{status}");
    let mut stream = UnixStream::connect(&control).unwrap();
    stream.write_all(b"{\"command\":\"stop\"}\n").unwrap();
    let (report, events) = running.finish_with_events();
    let flow = &report["conservation"];
    assert_eq!((&flow["dropped"], &flow["sent"]), (&0.into(), &flow["received"]));
    for event in
        ["event=policy_changed policy=latency-bound", "event=policy_changed policy=hold", "event=placement_changed"]
    {
        assert!(events.iter().any(|line| line.contains(event)), "{event}: {events:#?}");
    }
}

/// Without a placement, a command is refused, and the signal has no effect.
#[test]
fn without_a_placement_there_is_no_policy() {
    let folder = tempfile::tempdir().unwrap();
    let [config, control] = ["echo.toml", "control"].map(|name| folder.path().join(name));
    fs::write(&config, echo()).unwrap();
    let running = Running::start(&config, &control);
    let refused = run(godwit().args(["policy", "energy", "--control"]).arg(&control));
    assert!(refused.refused().contains("add [placement]"), "{refused:?}");
    kill(Pid::from_raw(running.id() as i32), Signal::SIGUSR1).unwrap();
    let mut stream = UnixStream::connect(&control).unwrap();
    // The signal is handled before the answer, because the watch loop answers.
    stream.write_all(b"{\"command\":\"status\"}\n{\"command\":\"stop\"}\n").unwrap();
    let (_, events) = running.finish_with_events();
    assert!(events.iter().any(|line| line.contains("event=policy_refused")), "{events:#?}");
}

/// Starts a run whose standard error is a full pipe that nothing reads. Returns the read end too.
fn with_full_stderr(command: &mut Command) -> (Child, PipeReader) {
    let (reader, mut writer) = std::io::pipe().unwrap();
    let flags = OFlag::from_bits_truncate(fcntl(&writer, FcntlArg::F_GETFL).unwrap());
    fcntl(&writer, FcntlArg::F_SETFL(flags | OFlag::O_NONBLOCK)).unwrap();
    while writer.write(&[b'.'; 512]).is_ok() {}
    while writer.write(b".").is_ok() {}
    // The program inherits the pipe, which blocks it as a terminal that is paused does.
    fcntl(&writer, FcntlArg::F_SETFL(flags)).unwrap();
    (command.stdout(Stdio::piped()).stderr(writer).spawn().unwrap(), reader)
}

#[test]
fn a_full_standard_error_stops_neither_status_nor_sigterm() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    fs::write(path("echo.toml"), echo()).unwrap();
    let control = path("control");
    let mut command = godwit();
    command.arg("run").arg(path("echo.toml")).arg("--control").arg(&control);
    let (mut child, reader) = with_full_stderr(&mut command);
    let status = || run(godwit().arg("status").arg("--control").arg(&control).args(["--json", "-"]));
    // Longer than a second, after which the first progress line is due.
    let begin = Instant::now();
    let mut answers = 0;
    while begin.elapsed() < Duration::from_secs(3) {
        answers += u32::from(status().code == Some(0));
    }
    assert!(answers > 3, "{answers}");
    kill(Pid::from_raw(child.id() as i32), Signal::SIGTERM).unwrap();
    let ended = Instant::now();
    assert_eq!(child.wait().unwrap().code(), Some(0));
    println!("ended {} ms after SIGTERM", ended.elapsed().as_millis());
    drop(reader);
}

#[test]
fn a_client_that_does_not_read_does_not_delay_the_end() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    fs::write(path("echo.toml"), echo()).unwrap();
    let running = Running::start(&path("echo.toml"), &path("control"));
    let mut client = UnixStream::connect(path("control")).unwrap();
    client.write_all("{\"command\":\"status\"}\n".repeat(2000).as_bytes()).unwrap();
    // It reads a little from time to time, so that no single write takes long.
    let mut slow = client.try_clone().unwrap();
    let reader = std::thread::spawn(move || {
        let mut part = [0; 2048];
        let mut total = 0;
        while let Ok(bytes @ 1..) = slow.read(&mut part) {
            total += bytes;
            std::thread::sleep(Duration::from_millis(100));
        }
        total
    });
    std::thread::sleep(Duration::from_millis(500));
    kill(Pid::from_raw(running.id() as i32), Signal::SIGTERM).unwrap();
    let ended = Instant::now();
    running.finish();
    println!("ended {} ms after SIGTERM", ended.elapsed().as_millis());
    // The server closed the connection long before it had answered all requests.
    assert!(reader.join().unwrap() < 2000 * 1000);
}

/// A worker hangs in a write to a pipe whose reader does not read.
#[test]
fn a_worker_that_hangs_is_reported_and_does_not_feed_the_watchdog() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let pipe = path("pipe");
    nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRUSR | nix::sys::stat::Mode::S_IWUSR).unwrap();
    let config = echo().replacen(
        "[[function]]",
        "[[port]]\nname = \"out\"\nkind = \"pcap\"\nwrite = \"pipe\"\n\n[[function]]",
        1,
    );
    let at = config.rfind("to = \"in\"").unwrap();
    fs::write(path("hang.toml"), format!("{}to = \"out\"\n", &config[..at])).unwrap();
    let _reader = fs::File::options().read(true).write(true).open(&pipe).unwrap();
    let supervisor = UnixDatagram::bind(path("notify")).unwrap();
    supervisor.set_read_timeout(Some(Duration::from_millis(2500))).unwrap();
    let message = || {
        let mut bytes = [0; 64];
        supervisor.recv(&mut bytes).ok().map(|count| String::from_utf8_lossy(&bytes[..count]).into_owned())
    };
    let mut command = godwit();
    command.arg("run").arg(path("hang.toml")).arg("--control").arg(path("control"));
    command.env("NOTIFY_SOCKET", path("notify")).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().unwrap();
    supervisor.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    assert_eq!(message().as_deref(), Some("READY=1"));
    supervisor.set_read_timeout(Some(Duration::from_millis(2500))).unwrap();
    let status = || {
        let printed = run(godwit().arg("status").arg("--control").arg(path("control")).args(["--json", "-"]));
        let report: Option<Value> = serde_json::from_str(&printed.stdout).ok();
        report.is_some_and(|report| report["health"]["hung_workers"] == serde_json::json!([0]))
    };
    let mut fed = 0;
    while !status() {
        supervisor.set_nonblocking(true).unwrap();
        fed += std::iter::from_fn(message).filter(|message| message == "WATCHDOG=1").count();
        std::thread::sleep(Duration::from_millis(50));
    }
    assert!(fed > 0, "the watchdog must be fed before the worker hangs");
    while message().is_some() {}
    supervisor.set_nonblocking(false).unwrap();
    assert_eq!(message(), None, "the watchdog must not be fed while a worker hangs");
    kill(Pid::from_raw(child.id() as i32), Signal::SIGTERM).unwrap();
    let printed = Finished::from_output(child.wait_with_output().unwrap());
    assert_eq!(printed.code, Some(1), "{printed:#?}");
    for part in ["worker 0 hangs: its packets wait", "godwit: worker 0 hangs: the run ended without it"] {
        assert!(printed.stderr.contains(part), "{printed:#?}");
    }
}
