//! Processes: programs that run to their end, and programs in the background.

use std::process::{Child, ChildStderr, ChildStdout, Command, ExitStatus, Output, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// Result of a finished process.
#[derive(Debug)]
pub struct Finished {
    /// Exit code. `None` if a signal killed the process.
    pub code: Option<i32>,
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
}

impl Finished {
    /// Asserts that the exit code is 0, and returns the result.
    #[track_caller]
    pub fn succeeded(self) -> Self {
        assert_eq!(self.code, Some(0), "{self:#?}");
        self
    }
}

impl From<Output> for Finished {
    fn from(output: Output) -> Self {
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("UTF-8");
        Self { code: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) }
    }
}

/// Runs a command to its end. The exit code can have any value.
///
/// # Panics
///
/// Panics if the command does not start, or if its output is not UTF-8.
#[track_caller]
pub fn finish(command: &mut Command) -> Finished {
    command.output().unwrap_or_else(|error| panic!("{command:?}: {error}")).into()
}

/// Process in the background. It is killed when the value is dropped.
#[derive(Debug)]
pub struct Background(Option<Child>);

impl Background {
    /// Starts a command. Its output goes where `command` directs it.
    #[track_caller]
    pub fn start(command: &mut Command) -> Self {
        Self(Some(command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}"))))
    }

    /// Starts a command and discards its output.
    #[track_caller]
    pub fn start_silent(command: &mut Command) -> Self {
        Self::start(command.stdout(Stdio::null()).stderr(Stdio::null()))
    }

    /// Starts a command. [`finish`](Self::finish) returns its output.
    #[track_caller]
    pub fn start_piped(command: &mut Command) -> Self {
        Self::start(command.stdout(Stdio::piped()).stderr(Stdio::piped()))
    }

    /// Returns the process number.
    pub fn id(&self) -> u32 {
        self.child().id()
    }

    /// Sends a signal to the process.
    ///
    /// # Panics
    ///
    /// Panics if the process has ended.
    #[track_caller]
    pub fn signal(&self, signal: Signal) {
        let id = i32::try_from(self.id()).expect("a process number");
        kill(Pid::from_raw(id), signal).expect("the process runs");
    }

    /// Returns whether the process has ended.
    pub fn has_ended(&mut self) -> bool {
        self.child_mut().try_wait().expect("a child").is_some()
    }

    /// Waits until the process ends.
    pub fn wait(&mut self) -> ExitStatus {
        self.child_mut().wait().expect("a child")
    }

    /// Waits until the process ends. The result contains the output of a process that was started
    /// with [`start_piped`](Self::start_piped).
    pub fn finish(mut self) -> Finished {
        let child = self.0.take().expect("only `finish` and `drop` take the child");
        child.wait_with_output().expect("a child").into()
    }

    /// Returns the reading end of standard output.
    ///
    /// # Panics
    ///
    /// Panics if it is not piped, or was taken before.
    pub fn take_stdout(&mut self) -> ChildStdout {
        self.child_mut().stdout.take().expect("standard output is piped")
    }

    /// Returns the reading end of standard error.
    ///
    /// # Panics
    ///
    /// Panics if it is not piped, or was taken before.
    pub fn take_stderr(&mut self) -> ChildStderr {
        self.child_mut().stderr.take().expect("standard error is piped")
    }

    fn child(&self) -> &Child {
        self.0.as_ref().expect("only `finish` and `drop` take the child")
    }

    fn child_mut(&mut self) -> &mut Child {
        self.0.as_mut().expect("only `finish` and `drop` take the child")
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        if let Some(child) = &mut self.0 {
            // Both fail if the process has ended.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
