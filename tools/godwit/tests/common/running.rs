//! A running Godwit that listens on a control socket.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::Duration;

use serde_json::Value;

use super::{Finished, conserved, godwit, run};

/// Process of Godwit. Drop kills it.
pub(crate) struct Running {
    child: Option<Child>,
    control: PathBuf,
}

impl Running {
    /// Starts Godwit, and returns when it answers on the socket. It answers when packets flow.
    pub(crate) fn start(config: &Path, control: &Path) -> Self {
        let mut command = godwit();
        command.arg("run").arg(config).arg("--control").arg(control).args(["--seconds", "120", "--json", "-"]);
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut running = Self { child: Some(child), control: control.to_owned() };
        while run(godwit().arg("status").arg("--control").arg(control)).code != Some(0) {
            if let Some(child) = running.child.take_if(|child| child.try_wait().unwrap().is_some()) {
                let printed = child.wait_with_output().unwrap();
                panic!("it did not start, {}: {}", printed.status, String::from_utf8_lossy(&printed.stderr));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        running
    }

    /// Returns the process ID.
    pub(crate) fn id(&self) -> u32 {
        self.child.as_ref().unwrap().id()
    }

    /// Stops Godwit and returns its report.
    pub(crate) fn stop(self) -> Value {
        let mut stream = BufReader::new(UnixStream::connect(&self.control).unwrap());
        stream.get_mut().write_all(b"{\"command\":\"stop\"}\n").unwrap();
        stream.read_line(&mut String::new()).unwrap();
        self.finish()
    }

    /// Waits for the report after a stop was requested.
    pub(crate) fn finish(self) -> Value {
        self.finish_with_events().0
    }

    /// Waits for the report after a stop was requested. Returns it with the lines of events.
    pub(crate) fn finish_with_events(mut self) -> (Value, Vec<String>) {
        let printed = Finished::from_output(self.child.take().unwrap().wait_with_output().unwrap()).succeeded();
        let events = printed.stderr.lines().filter(|line| line.starts_with("time="));
        (conserved(&printed.stdout), events.map(str::to_owned).collect())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
