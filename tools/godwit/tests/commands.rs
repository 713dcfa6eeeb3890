//! Tests each command and each example configuration.

mod common;

use std::fs;
use std::io::{BufReader, Read};
use std::process::{Child, Command, Stdio};

use common::{Finished, conserved, example, godwit, listing, run};
use godwit_test_support::capture::frames;
use godwit_test_support::{absent, repository};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

/// Configuration of `godwit proxy`. `godwit run` runs all other examples.
const PROXY: &str = "07-tls-proxy.toml";

/// Configuration that needs a profile of the machine and an OpenCL device.
const PLACEMENT: &str = "08-placement.toml";

fn examples() -> Vec<String> {
    let names = listing(&repository().join("examples"));
    let configurations: Vec<String> = names.into_iter().filter(|name| name.ends_with(".toml")).collect();
    assert!(configurations.len() >= 8 && configurations.iter().any(|name| name == PROXY), "{configurations:?}");
    configurations
}

/// Returns whether an example belongs to a function that consists of its folder in `kernels/`. Its
/// name is a number and the name of the function.
fn is_of_function(example: &str) -> bool {
    let kind =
        example.trim_end_matches(".toml").trim_start_matches(|letter: char| letter.is_ascii_digit() || letter == '-');
    repository().join("kernels").join(kind).join(format!("{kind}.expect")).exists()
}

#[test]
fn every_example_is_valid_runs_and_conserves_packets() {
    for name in examples().into_iter().filter(|name| name != PROXY && name != PLACEMENT) {
        let printed = run(godwit().arg("check").arg(example(&name))).succeeded();
        assert!(printed.stdout.contains("└─ "), "{name}: {printed:?}");
        let printed =
            run(godwit().arg("run").arg(example(&name)).args(["--seconds", "0.2", "--json", "-"])).succeeded();
        let report = conserved(&printed.stdout);
        assert!(report["conservation"]["sent"].as_u64() > Some(1000), "{name}: {report:#}");
        assert!(printed.stderr.trim_end().ends_with(": conserved"), "{name}: {printed:?}");
    }
}

/// The profile is in a folder of this test instead of /tmp.
#[test]
fn the_example_of_a_placement_runs_with_a_profile() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(PLACEMENT);
    let text = fs::read_to_string(example(PLACEMENT)).unwrap();
    fs::write(&path, text.replace("/tmp/", &format!("{}/", folder.path().display()))).unwrap();
    let check = || run(godwit().arg("check").arg(&path));
    let refused = check();
    assert!(refused.refused().contains("`godwit profile CONFIG -o "), "{refused:?}");
    fs::write(folder.path().join("08-placement.profile.toml"), common::profile(&path)).unwrap();
    assert!(check().succeeded().stdout.contains("└─ "));
    if !godwit_device::opencl::probe().found.iter().any(|found| found.usable.is_ok()) {
        return absent("an OpenCL device");
    }
    let printed = run(godwit().arg("run").arg(&path).args(["--seconds", "0.3", "--json", "-"])).succeeded();
    let report = conserved(&printed.stdout);
    assert!(report["conservation"]["sent"].as_u64() > Some(1000), "{report:#}");
    assert_eq!(report["placement"]["policy"], "throughput", "{report:#}");
    assert!(report["placement"]["number"].as_u64() > Some(0), "{report:#}");
}

/// Runs the command of the comment that generates the certificate. The files are in a folder of
/// this test instead of /tmp.
#[cfg(feature = "tls")]
#[test]
fn the_example_of_a_proxy_is_valid() {
    if Command::new("openssl").arg("version").output().is_err() {
        return absent("openssl");
    }
    let folder = tempfile::tempdir().unwrap();
    let place = |text: &str| text.replace("/tmp/", &format!("{}/", folder.path().display()));
    let config = place(&fs::read_to_string(example(PROXY)).unwrap());
    let comment: String = config.lines().map_while(|line| line.strip_prefix('#')).collect::<Vec<_>>().join("\n");
    let command = comment.split("\n\n").find(|part| part.trim_start().starts_with("openssl ")).expect("a command");
    let generated = Command::new("sh").args(["-c", command]).output().unwrap();
    assert!(generated.status.success(), "{generated:?}");
    let path = folder.path().join(PROXY);
    fs::write(&path, config).unwrap();
    let printed = run(godwit().args(["proxy", "--check"]).arg(&path)).succeeded();
    assert_eq!(printed.stdout, format!("{}: 1 proxy, all keys are valid\n", path.display()));
}

#[test]
fn the_course_names_every_example() {
    let course = fs::read_to_string(repository().join("examples/README.md")).unwrap();
    for name in examples().into_iter().filter(|name| !is_of_function(name)) {
        assert!(course.contains(&format!("({name})")), "{name} is not in examples/README.md");
    }
}

#[test]
fn check_draws_the_chain() {
    let printed = run(godwit().arg("check").arg(example("05-classes.toml"))).succeeded();
    assert_eq!(
        printed.stdout,
        "in\n├─ [voice] → fast\n├─ [web] → inspect (dpi)\n│  ├─ clean → fast\n│  └─ match → drop\n\
         └─ [all else] → swap (template)\n   └─ forward → slow\n"
    );
    let printed = run(godwit().arg("check").arg(example("05-classes.toml")).arg("--graphviz")).succeeded();
    assert!(printed.stdout.starts_with("digraph chain {") && printed.stdout.ends_with("}\n"), "{printed:?}");
}

#[test]
fn check_warns_of_probable_mistakes() {
    let folder = tempfile::tempdir().unwrap();
    let config = fs::read_to_string(example("01-echo.toml")).unwrap();
    let config =
        config.replace("from = \"back\"\nto = \"egress\"", "from = \"left\"\nto = \"right\"\nclass = \"default\"");
    fs::write(folder.path().join("a.toml"), config).unwrap();
    let printed = run(godwit().current_dir(folder.path()).args(["check", "a.toml"])).succeeded();
    assert!(
        printed.stderr.lines().all(|line| line.starts_with("godwit: warning: ")) && !printed.stderr.is_empty(),
        "{printed:?}"
    );
}

/// A check of another machine's configuration opens no socket, no device and no file of the system.
#[test]
fn check_offline_does_not_use_the_machine() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let config = fs::read_to_string(repository().join("examples/topologies/router.toml")).unwrap();
    let config = config.replace("eth1", "no-such-1").replace("eth2", "no-such-2");
    let config = config.replacen("[engine]\n", "[engine]\nuser = \"no-such-user\"\n", 1);
    fs::write(path("router.toml"), &config).unwrap();
    let refused = run(godwit().arg("check").arg(path("router.toml")));
    assert!(refused.refused().contains("the interface does not exist"), "{refused:?}");
    let printed = run(godwit().args(["check", "--offline"]).arg(path("router.toml"))).succeeded();
    assert!(printed.stdout.contains("└─ "), "{printed:?}");
    let skipped = printed.stderr.lines().last().unwrap();
    assert!(skipped.starts_with("godwit: not checked: interface no-such-1 of port `lan`"), "{skipped}");
    assert!(skipped.contains("user `no-such-user`") && skipped.contains("memory"), "{skipped}");
    // Mistakes in the file are errors as without the option.
    fs::write(path("bad.toml"), config.replacen("kind = \"ipv4\"", "kind = \"ipv4\"\nruotes = 1", 1)).unwrap();
    let plain = run(godwit().arg("check").arg(path("bad.toml")));
    let offline = run(godwit().args(["check", "--offline"]).arg(path("bad.toml")));
    assert_eq!(plain.refused(), offline.refused());

    if Command::new("strace").arg("-V").output().is_err() {
        return absent("strace");
    }
    let mut command = Command::new("strace");
    command.args(["-f", "-qq", "-e", "trace=%network,openat,open,bpf,ioctl", "-o"]).arg(path("calls"));
    let printed = run(command.arg(env!("CARGO_BIN_EXE_godwit")).args(["check", "--offline"]).arg(path("router.toml")));
    printed.succeeded();
    let calls = fs::read_to_string(path("calls")).unwrap();
    assert!(calls.contains("router.toml"), "{calls}");
    let is_forbidden = |line: &&str| {
        // The C library asks a daemon for users by a Unix socket.
        let is_socket = line.contains("socket(AF_") && !line.contains("socket(AF_UNIX");
        is_socket || ["bpf(", "\"/dev/", "\"/sys/class", "/net/dev"].iter().any(|part| line.contains(part))
    };
    let forbidden: Vec<&str> = calls.lines().filter(is_forbidden).collect();
    assert!(forbidden.is_empty(), "{forbidden:#?}");
}

#[test]
fn the_demo_ends_with_the_conservation_line() {
    let folder = tempfile::tempdir().unwrap();
    let printed = run(godwit().current_dir(folder.path()).args(["demo", "--seconds", "0.5"])).succeeded();
    for part in ["lan\n└─ inspect (dpi)", "route", "tunnel", "p50 µs", "batch fill"] {
        assert!(printed.stdout.contains(part), "{part:?} is missing: {printed:#?}");
    }
    let last = printed.stdout.lines().last().unwrap();
    assert!(last.starts_with("received ") && last.ends_with(": conserved"), "{last}");
    assert!(listing(folder.path()).is_empty());
}

#[test]
fn devices_lists_the_hardware() {
    let printed = run(godwit().arg("devices")).succeeded();
    for part in ["cpu: ", "levels: ", "power: ", "ipsec", "template"] {
        assert!(printed.stdout.contains(part), "{part:?} is missing: {printed:#?}");
    }
    let printed = run(godwit().args(["devices", "--json"])).succeeded();
    let devices: Value = serde_json::from_str(&printed.stdout).unwrap();
    assert_eq!(devices["devices"][0]["id"], "cpu");
    for device in devices["devices"].as_array().unwrap() {
        // The report holds an energy meter or the reason for its absence.
        let power = &device["power"][0];
        assert!(power["kind"].is_string() != power["meter"].is_string(), "{device:#}");
    }
    let functions = devices["devices"][0]["functions"].as_array().unwrap();
    assert_eq!(functions.len(), 5, "{devices:#}");
    for function in functions {
        assert!(!function["measured"].as_array().unwrap().is_empty(), "{function:#}");
    }
    let kinds: Vec<&str> =
        devices["not_used"].as_array().unwrap().iter().map(|kind| kind["kind"].as_str().unwrap()).collect();
    for kind in ["opencl", "cuda"] {
        let id = format!("{kind}:0");
        let found = devices["devices"].as_array().unwrap().iter().any(|device| device["id"] == id.as_str());
        assert_eq!(kinds.contains(&kind), !found, "either it is here, or it is printed why not");
    }
}

#[test]
fn a_bench_has_rows_in_the_fixed_form() {
    let folder = tempfile::tempdir().unwrap();
    let list = run(godwit().args(["bench", "list", "--json", "-"])).succeeded();
    let list: Value = serde_json::from_str(&list.stdout).unwrap();
    for name in ["engine", "echo", "ipv4", "ipsec", "dpi", "template"] {
        assert!(list.as_array().unwrap().iter().any(|bench| bench["name"] == name), "{name} is not in {list:#}");
    }
    let mut command = godwit();
    command
        .current_dir(folder.path())
        .args("bench template --size 60 --size imix --seconds 0.05 --json rows.json".split(' '));
    let printed = run(&mut command).succeeded();
    assert!(printed.stdout.contains("template"), "{printed:?}");
    assert_eq!(listing(folder.path()), ["rows.json"]);
    let rows: Value = serde_json::from_slice(&fs::read(folder.path().join("rows.json")).unwrap()).unwrap();
    let rows = rows.as_array().unwrap();
    assert!(rows.len() >= 2);
    for row in rows {
        let keys =
            ["bench", "device", "impl", "mode", "size", "batch", "mpps", "gbps", "p50_us", "p99_us", "watts", "peer"];
        for key in keys {
            assert!(row.get(key).is_some(), "{key} is missing in {row:#}");
        }
        assert!(row["mpps"].as_f64() > Some(0.0), "{row:#}");
    }
    assert!(rows.iter().any(|row| row["size"] == 60) && rows.iter().any(|row| row["size"] == "imix"), "{rows:#?}");
}

#[test]
fn a_closed_pipe_ends_the_output() {
    let mut child = godwit().args(["bench", "list"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let printed = Finished::from_output(child.wait_with_output().unwrap());
    assert_eq!((printed.code, printed.stderr.as_str()), (Some(0), ""));
}

/// Starts an endless run that writes a capture. Returns when packets flow.
fn endless(folder: &std::path::Path) -> (Child, BufReader<std::process::ChildStderr>) {
    let config = "
        [engine]
        workers = 2
        [[port]]
        name = \"in\"
        kind = \"synthetic\"
        rate = \"20kpps\"
        [[port]]
        name = \"out\"
        kind = \"pcap\"
        write = \"out.pcap\"
        [[function]]
        name = \"swap\"
        kind = \"template\"
        [[chain]]
        from = \"in\"
        to = \"swap\"
        [[chain]]
        from = \"swap\"
        to = \"out\"
    ";
    fs::write(folder.join("endless.toml"), config).unwrap();
    let mut command = godwit();
    command.current_dir(folder).args(["run", "endless.toml", "--json", "report.json", "--control", "control"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let stderr = BufReader::new(child.stderr.take().unwrap());
    let received = || {
        let printed = run(godwit().current_dir(folder).args(["status", "--control", "control", "--json", "-"]));
        let report: Option<Value> = serde_json::from_str(&printed.stdout).ok();
        report.and_then(|report| report["conservation"]["received"].as_u64()).unwrap_or(0)
    };
    while received() < 2000 {
        assert!(child.try_wait().unwrap().is_none(), "the run ended");
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    (child, stderr)
}

#[test]
fn a_signal_stops_cleanly() {
    for signal in [Signal::SIGINT, Signal::SIGTERM] {
        let folder = tempfile::tempdir().unwrap();
        let (child, mut stderr) = endless(folder.path());
        // The capture appears under its name only when it is complete.
        assert!(!folder.path().join("out.pcap").exists());
        kill(Pid::from_raw(child.id() as i32), signal).unwrap();
        let printed = Finished::from_output(child.wait_with_output().unwrap()).succeeded();
        let mut rest = String::new();
        stderr.read_to_string(&mut rest).unwrap();
        assert_eq!(rest, "", "a run without events is silent where standard error is no terminal");
        assert!(printed.stdout.trim_end().ends_with(": conserved"), "{signal}: {printed:?} {rest}");
        assert_eq!(listing(folder.path()), ["endless.toml", "out.pcap", "report.json"]);
        let report = conserved(&fs::read_to_string(folder.path().join("report.json")).unwrap());
        let written = frames(&folder.path().join("out.pcap")).unwrap();
        assert_eq!(report["conservation"]["sent"].as_u64(), Some(written.len() as u64));
        assert!(written.len() > 1000);
    }
}
