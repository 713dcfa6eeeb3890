//! Runs the built program `godwit`.

// Each test file uses some of these items.
#![allow(dead_code, reason = "each test file uses a part of it")]

pub(crate) mod running;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

/// Command of the built program, without arguments.
pub(crate) fn godwit() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_godwit"));
    // Sockets of tests do not appear among those of the machine.
    command.env("RUNTIME_DIRECTORY", env!("CARGO_TARGET_TMPDIR")).env_remove("GODWIT_CONTROL");
    command
}

/// Result of a run of the program.
#[derive(Debug)]
pub(crate) struct Finished {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Finished {
    pub(crate) fn from_output(output: Output) -> Self {
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("UTF-8");
        Self { code: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) }
    }

    /// Checks that the exit code is 0.
    #[track_caller]
    pub(crate) fn succeeded(self) -> Self {
        assert_eq!(self.code, Some(0), "{self:#?}");
        self
    }

    /// Checks that the exit code is 2 and that standard error holds one sentence. Returns the
    /// sentence.
    #[track_caller]
    pub(crate) fn refused(&self) -> &str {
        assert_eq!(self.code, Some(2), "{self:#?}");
        assert_eq!(self.stdout, "", "{self:#?}");
        let mut lines = self.stderr.lines().filter(|line| !line.starts_with("godwit: warning: "));
        let sentence = lines.next().expect("a sentence");
        assert_eq!(lines.next(), None, "more than one line: {self:#?}");
        sentence.strip_prefix("godwit: ").expect("the sentence begins with the program's name")
    }
}

pub(crate) fn run(command: &mut Command) -> Finished {
    Finished::from_output(command.output().expect("the program starts"))
}

/// Returns the path of a file in `examples/`.
pub(crate) fn example(name: &str) -> PathBuf {
    godwit_test_support::repository().join("examples").join(name)
}

/// Replays `input` through `config` into `output`. Returns the report.
#[track_caller]
pub(crate) fn replay(config: &Path, input: &Path, output: &Path) -> Value {
    let mut command = godwit();
    command.arg("replay").arg(config).arg("--in").arg(input).arg("--out").arg(output).args(["--json", "-"]);
    let printed = run(&mut command).succeeded();
    conserved(&printed.stdout)
}

/// Returns the JSON report of a run, and checks that packets are conserved.
#[track_caller]
pub(crate) fn conserved(json: &str) -> Value {
    let report: Value = serde_json::from_str(json).unwrap_or_else(|error| panic!("{error} in {json}"));
    let count = |name: &str| report["conservation"][name].as_u64().expect("a number");
    assert_eq!(report["conserved"], true, "{report:#}");
    let gone = count("sent") + count("dropped") + count("merged");
    assert_eq!(count("received") + count("created"), gone, "{report:#}");
    assert_eq!(count("in_flight"), 0, "{report:#}");
    report
}

/// Returns a profile of this machine for a configuration, with invented costs.
pub(crate) fn profile(config: &Path) -> String {
    let config = godwit_engine::config::Config::load(config).expect("the configuration is valid");
    let here = config.identity();
    let mut text = format!(
        "format = 1\n[machine]\ncpu = {:?}\ncores = {}\nconfig = {:?}\ngodwit = {:?}\n",
        here.cpu, here.cores, here.config, here.godwit
    );
    let mut curves = 0;
    for function in &config.functions {
        for device in &function.devices {
            curves += 1;
            let fit = "packet_ns = 100.0, floor_ns = 100.0, trip_ns = 5000.0, error_median = 0.02";
            text += &format!("[[curve]]\nfunction = {:?}\ndevice = {device:?}\nfit = {{ {fit} }}\n", function.name);
        }
    }
    format!("{text}[summary]\ncurves = {curves}\npoints = 0\npairs = 0\n")
}

/// Returns the sorted names of all files in a folder, including hidden ones.
pub(crate) fn listing(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).expect("the folder is there");
    let mut names: Vec<String> =
        entries.map(|entry| entry.expect("readable").file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}
