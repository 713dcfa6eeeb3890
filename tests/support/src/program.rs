//! Runs of the program `godwit`.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::Duration;

use nix::sys::signal::Signal;
use serde_json::Value;

use crate::process::{Background, Finished, finish};
use crate::{repository, wait_for};

/// Maximum time from the start of the program to its first packet.
const START_LIMIT: Duration = Duration::from_secs(60);

/// The program `godwit`: the path of its executable.
///
/// Only a test of the crate `godwit` knows this path, as `env!("CARGO_BIN_EXE_godwit")`.
#[derive(Clone, Copy, Debug)]
pub struct Godwit(pub &'static str);

impl Godwit {
    /// Returns a command without arguments.
    pub fn command(self) -> Command {
        Command::new(self.0)
    }

    /// Runs the program to its end. Spaces separate the arguments.
    #[track_caller]
    pub fn finish(self, arguments: &str) -> Finished {
        finish(self.command().args(arguments.split_whitespace()))
    }

    /// Replays the capture `input` through a configuration into the capture `output`. Returns the
    /// report.
    #[track_caller]
    pub fn replay(self, config: &Path, input: &Path, output: &Path) -> Value {
        let mut command = self.command();
        command.arg("replay").arg(config).arg("--in").arg(input).arg("--out").arg(output).args(["--json", "-"]);
        conserved_report(&finish(&mut command).succeeded().stdout)
    }

    /// Starts the program with a control socket. Returns when it answers requests.
    #[track_caller]
    pub fn start(self, config: &Path, control: &Path) -> RunningGodwit {
        let mut command = self.command();
        // The limit ends the program even if the test is killed.
        command.arg("run").arg(config).args(["--seconds", "120", "--control"]).arg(control);
        let answers = || finish(self.command().args(["status", "--control"]).arg(control)).code == Some(0);
        RunningGodwit::start(&mut command, config, answers)
    }
}

/// The program `godwit` in the background. It is killed when the value is dropped.
#[derive(Debug)]
pub struct RunningGodwit {
    process: Background,
    report: PathBuf,
    log: PathBuf,
}

impl RunningGodwit {
    /// Starts `command`, which is `godwit run` with arguments, and returns when `is_ready` holds.
    /// The report and the log go to files next to `config`.
    #[track_caller]
    pub fn start(command: &mut Command, config: &Path, mut is_ready: impl FnMut() -> bool) -> Self {
        let (report, log) = (config.with_extension("report.json"), config.with_extension("log"));
        let log_file = File::create(&log).unwrap_or_else(|error| panic!("{}: {error}", log.display()));
        let command = command.arg("--json").arg(&report).stdout(Stdio::null()).stderr(log_file);
        let mut running = Self { process: Background::start(command), report, log };
        wait_for("the start of the program", START_LIMIT, || {
            assert!(!running.process.has_ended(), "{}", running.log());
            is_ready()
        });
        running
    }

    /// Returns the process.
    pub fn process(&self) -> &Background {
        &self.process
    }

    /// Returns the standard error output so far.
    pub fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_else(|error| panic!("{}: {error}", self.log.display()))
    }

    /// Stops the program with SIGTERM and returns its report. The program must succeed and conserve
    /// packets.
    #[track_caller]
    pub fn stop(self) -> Value {
        self.process.signal(Signal::SIGTERM);
        self.finish()
    }

    /// Waits for the end of the program, which something else causes, and returns its report. The
    /// program must succeed and conserve packets.
    #[track_caller]
    pub fn finish(mut self) -> Value {
        let status = self.process.wait();
        assert!(status.success(), "{status}: {}", self.log());
        let report = fs::read_to_string(&self.report);
        conserved_report(&report.unwrap_or_else(|error| panic!("{}: {error}", self.report.display())))
    }

    /// Kills the program, which cannot clean up.
    pub fn kill(&mut self) -> ExitStatus {
        self.process.signal(Signal::SIGKILL);
        self.process.wait()
    }
}

impl Finished {
    /// Asserts that `godwit` refused its arguments or configuration, and returns the error message.
    ///
    /// The exit code must be 2, standard output empty, and standard error one line in addition to
    /// warnings.
    #[track_caller]
    pub fn refusal(&self) -> &str {
        assert_eq!((self.code, &*self.stdout), (Some(2), ""), "{self:#?}");
        let is_error = |line: &&str| !line.starts_with("godwit: warning: ");
        let lines: Vec<&str> = self.stderr.lines().filter(is_error).collect();
        assert_eq!(lines.len(), 1, "{self:#?}");
        lines[0].strip_prefix("godwit: ").expect("the line starts with the name of the program")
    }
}

/// Parses the JSON report of a run, which must conserve packets.
#[track_caller]
pub fn conserved_report(json: &str) -> Value {
    let report: Value = serde_json::from_str(json).unwrap_or_else(|error| panic!("{error}: {json}"));
    let count = |name| conservation(&report, name);
    assert_eq!(report["conserved"], true, "{report:#}");
    assert_eq!(count("received") + count("created"), count("sent") + count("dropped") + count("merged"), "{report:#}");
    assert_eq!(count("in_flight"), 0, "{report:#}");
    report
}

/// Returns a number of the conservation line of a report, such as `sent`.
#[track_caller]
pub fn conservation(report: &Value, name: &str) -> u64 {
    report["conservation"][name].as_u64().unwrap_or_else(|| panic!("{name}: {report:#}"))
}

/// Returns a counter in a report, as the sum over all labels, or 0 if the report does not have it.
pub fn counter(report: &Value, name: &str) -> u64 {
    let counters = report["counters"].as_object().expect("a report has counters");
    let is_counter =
        |key: &str| key.strip_prefix(name).is_some_and(|labels| labels.is_empty() || labels.starts_with('{'));
    counters.iter().filter(|(key, _)| is_counter(key)).filter_map(|(_, count)| count.as_u64()).sum()
}

/// Returns a counter of one port in a report, or 0 if the report does not have it.
pub fn port_counter(report: &Value, port: &str, name: &str) -> u64 {
    report["counters"][format!("port_{name}{{port=\"{port}\"}}")].as_u64().unwrap_or(0)
}

/// Returns the path of a file of `examples/`.
pub fn example(name: &str) -> PathBuf {
    repository().join("examples").join(name)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_counter_is_the_sum_over_its_labels() {
        let report =
            json!({ "counters": { "a": 1, "a{b=\"c\"}": 2, "a{b=\"d\"}": 4, "ab": 8, "port_a{port=\"p\"}": 16 } });
        assert_eq!((counter(&report, "a"), counter(&report, "c"), port_counter(&report, "p", "a")), (7, 0, 16));
    }
}
