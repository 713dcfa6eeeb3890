//! An operator finds, watches and stops running godwits with as few words as possible.

mod common;

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use common::{Finished, conserved, godwit, run};

const ECHO: &str = r#"
[[port]]
name = "in"
kind = "synthetic"
rate = "100kpps"

[[function]]
name = "back"
kind = "echo"

[[chain]]
from = "in"
to = "back"

[[chain]]
from = "back"
to = "in"
"#;

const ROUTER: &str = r#"
[[port]]
name = "in"
kind = "synthetic"
rate = "200kpps"
source = "198.51.100.0/24"
destination = "10.0.0.0/16"

[[port]]
name = "out"
kind = "synthetic"

[[function]]
name = "route"
kind = "ipv4"

[[function.next_hop]]
name = "east"
port = "out"
destination_mac = "02:00:00:00:01:01"
source_mac = "02:00:00:00:01:02"

[[function.route]]
prefix = "10.0.0.0/8"
next_hop = "east"

[[chain]]
from = "in"
to = "route"

[[chain]]
from = "route"
verdict = "forward"
to = "egress"
"#;

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
    fs::write(path("router.toml"), ROUTER).unwrap();
    fs::write(path("echo.toml"), ECHO).unwrap();
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
    fs::write(&config, ECHO).unwrap();
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
