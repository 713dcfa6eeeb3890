//! A running godwit is asked and told things by other runs of the program.

mod common;

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::Duration;

use common::{Said, conserved, godwit, run};
use serde_json::Value;

/// A running godwit, stopped when dropped.
struct Running(Option<Child>);

impl Running {
    fn start(config: &Path, control: &Path) -> Self {
        let mut command = godwit();
        command.arg("run").arg(config).arg("--control").arg(control).args(["--seconds", "120", "--json", "-"]);
        let child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let running = Self(Some(child));
        // It answers once packets flow.
        while run(godwit().arg("status").arg("--control").arg(control)).code != Some(0) {
            std::thread::sleep(Duration::from_millis(5));
        }
        running
    }

    /// Its report, once it was told to stop.
    fn finish(mut self) -> Value {
        let said = Said::of(self.0.take().unwrap().wait_with_output().unwrap()).succeeded();
        conserved(&said.stdout)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(child) = &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Says one line to the socket itself.
fn tell(control: &Path, line: &str) {
    let mut stream = std::os::unix::net::UnixStream::connect(control).unwrap();
    stream.write_all(line.as_bytes()).unwrap();
    stream.write_all(b"\n").unwrap();
    std::io::Read::read(&mut stream, &mut [0; 4096]).unwrap();
}

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

#[test]
fn status_says_how_it_goes_and_what_is_wrong_is_a_sentence() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    fs::write(path("echo.toml"), ECHO).unwrap();
    let control = path("control");
    let status = || {
        let mut command = godwit();
        command.arg("status").arg("--control").arg(&control);
        command
    };
    let said = run(&mut status());
    assert!(said.refused().contains("nobody answers at"), "{said:?}");
    let running = Running::start(&path("echo.toml"), &control);
    let said = run(status().args(["--json", "-"])).succeeded();
    let report: Value = serde_json::from_str(&said.stdout).unwrap();
    assert_eq!(report["functions"][0]["name"], "back");
    let said = run(&mut status()).succeeded();
    for part in ["received ", "back ", "engine_received"] {
        assert!(said.stdout.contains(part), "{said:?}");
    }
    let said = run(godwit().arg("run").arg(path("echo.toml")).arg("--control").arg(&control));
    assert!(said.refused().contains("another process listens there"), "{said:?}");

    let key = "000102030405060708090a0b0c0d0e0f";
    for (file, text, expected) in [
        ("none.toml", "", "there is no [[sa]] in it"),
        ("key.toml", &format!("[[sa]]\nname = \"a\"\nencryption_key = {key}\n"), "key.toml:3: this is not TOML"),
        ("other.toml", "[[policy]]\naction = \"discard\"\n", "unknown key `policy`"),
        ("good.toml", &format!("[[function.sa]]\nname = \"a\"\nencryption_key = \"{key}\"\n"), "takes no commands"),
    ] {
        fs::write(path(file), text).unwrap();
        for command in ["add", "replace"] {
            let mut sa = godwit();
            sa.args(["sa", command, "--function", "back", "--control"]).arg(&control).arg("--file").arg(path(file));
            let said = run(&mut sa);
            assert!(said.refused().contains(expected) && !said.stderr.contains(key), "{said:?}");
        }
    }
    for words in [&["delete", "a"][..], &["list"]] {
        let mut sa = godwit();
        let said = run(sa.arg("sa").args(words).args(["--function", "bakc", "--control"]).arg(&control));
        assert!(said.refused().contains("back"), "{said:?}");
    }
    tell(&control, "{\"command\":\"stop\"}");
    let report = running.finish();
    assert!(report["conservation"]["received"].as_u64() > Some(0));
    assert!(!control.exists());
}
