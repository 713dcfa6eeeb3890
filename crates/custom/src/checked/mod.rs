//! Runs a user function with sanitizers in a separate program (`program.c`).
//!
//! The program is a child process without privileges. It reads frames from a pipe, runs the kernel
//! on each frame, and writes the results. It ends at the first problem.

mod build;
mod report;

use std::io::{Read, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Stdio};

use godwit_abi::Outcome;
use godwit_packet::ImageRef;

use crate::sandbox::{self, Task};
use crate::{Compiled, Error};

/// Maximum length of a frame, in bytes.
pub const FRAME_BYTES_MAX: usize = 9216;
/// Time between two frames of a test, in nanoseconds.
pub const FRAME_NS: u64 = 50_000_000;
/// Maximum number of flows in a test.
pub const FLOWS_MAX: u32 = 4096;
/// Maximum number of branches in a kernel run for one packet.
pub const STEPS_MAX: u32 = 1_000_000;

/// Result of the kernel for one frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Outcome of the packet.
    pub outcome: Outcome,
    /// Number of bytes by which the start of the frame moved.
    pub moved: i32,
    /// The frame after the kernel has run.
    pub frame: Vec<u8>,
    /// Parameter of the kernel, or `None` if `miss` returned the outcome and the kernel did not
    /// run.
    pub parameter: Option<u64>,
    /// Whether this frame is the first to take its path through the kernel.
    pub is_new: bool,
}

/// A problem of the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Index of the frame in its batch.
    pub frame: usize,
    /// Line in the user's file, if the problem has one.
    pub line: Option<usize>,
    /// The problem and its remedy, without a full stop.
    pub message: String,
}

/// Reason why a batch has no results.
#[derive(Debug)]
pub enum Stopped {
    /// The kernel has a fault.
    Fault(Fault),
    /// The program did not run.
    Error(Error),
}

/// The running program.
#[derive(Debug)]
pub struct Checked {
    child: Child,
    input: ChildStdin,
    output: ChildStdout,
    program: build::Program,
    /// Number of counters of the function.
    counters: usize,
    text: &'static str,
    file: &'static str,
}

impl Checked {
    /// Compiles a function with sanitizers and starts it. `image` is the table image, and `ports`
    /// is the number of ports.
    ///
    /// # Errors
    /// Returns an error if the C compiler fails or lacks sanitizers, or if the program cannot be
    /// started.
    pub fn start(path: &Path, compiled: &Compiled, image: ImageRef<'_>, ports: usize) -> Result<Self, Error> {
        let text = compiled.kernel.text;
        let counters = compiled.contract.kernel_counters.count;
        let program = build::build(path, &text)?;
        let file_error = |source| Error::File { path: program.path(), source };
        let mut command = sandbox::command(&program.path(), program.folder(), Task::Test);
        command.stdout(Stdio::piped());
        for (name, value) in
            [("ASAN_OPTIONS", "detect_leaks=0:allocator_may_return_null=1"), ("UBSAN_OPTIONS", "abort_on_error=1")]
        {
            command.env(name, value);
        }
        let mut child = command.spawn().map_err(file_error)?;
        let (Some(input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            unreachable!("both ends are pipes");
        };
        let mut checked = Self { child, input, output, program, counters, text: text.text, file: text.file };
        let start = [properties(compiled, image, ports), image.to_vec()].concat();
        // A program that ends early is reported with the first batch.
        let _ = checked.input.write_all(&start);
        Ok(checked)
    }

    /// Runs the kernel on a batch of frames, each with its packet's parameter. Returns one result
    /// per frame, and the counter values.
    ///
    /// # Errors
    /// Returns the first fault of the kernel, or the reason why the program did not run. The
    /// program has then ended.
    pub fn run(&mut self, frames: &[Vec<u8>], parameters: &[u64]) -> Result<(Vec<Answer>, Vec<u64>), Stopped> {
        let bytes: usize = frames.iter().map(|frame| 12 + frame.len()).sum();
        let mut request = Vec::with_capacity(8 + bytes);
        request.extend((frames.len() as u32).to_le_bytes());
        request.extend((bytes as u32).to_le_bytes());
        for (frame, parameter) in frames.iter().zip(parameters) {
            request.extend((frame.len() as u32).to_le_bytes());
            request.extend(parameter.to_le_bytes());
            request.extend(frame);
        }
        match self.exchange(&request, frames.len()) {
            Some(answers) => Ok(answers),
            None => Err(self.stopped()),
        }
    }

    fn exchange(&mut self, request: &[u8], count: usize) -> Option<(Vec<Answer>, Vec<u64>)> {
        self.input.write_all(request).ok()?;
        let mut size = [0; 8];
        self.output.read_exact(&mut size).ok()?;
        let mut reply = vec![0; usize::try_from(u64::from_le_bytes(size)).ok()?];
        self.output.read_exact(&mut reply).ok()?;
        let (reply, counters) = reply.split_at_checked(reply.len().checked_sub(8 * self.counters)?)?;
        let (counters, _) = counters.as_chunks();
        Some((answers(reply, count)?, counters.iter().map(|&bytes| u64::from_le_bytes(bytes)).collect()))
    }

    /// Returns the reason why the program has ended.
    fn stopped(&mut self) -> Stopped {
        let mut messages = Vec::new();
        if let Some(errors) = &mut self.child.stderr {
            // The bytes before an error are enough for the report.
            let _ = errors.read_to_end(&mut messages);
        }
        let status = self.child.wait();
        match report::fault(&String::from_utf8_lossy(&messages), self.file, self.text) {
            Some(fault) => Stopped::Fault(fault),
            None => Stopped::Error(Error::Refused {
                path: self.program.path(),
                message: match status {
                    Ok(status) => format!("the program with sanitizers ended early, with {status}"),
                    Err(error) => format!("the program with sanitizers ended early: {error}"),
                },
            }),
        }
    }
}

impl Drop for Checked {
    fn drop(&mut self) {
        // The program may have ended already, so errors are ignored.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns the struct `properties` of `program.c`.
fn properties(compiled: &Compiled, image: ImageRef<'_>, ports: usize) -> Vec<u8> {
    let contract = compiled.contract;
    let mut bytes = (image.len() as u64).to_le_bytes().to_vec();
    for number in [
        u32::from(contract.reads_bytes),
        u32::from(contract.writes_bytes),
        u32::from(contract.headroom_bytes),
        u32::from(contract.tailroom_bytes),
        contract.verdicts.len() as u32,
        contract.drops.len() as u32,
        ports as u32,
        STEPS_MAX,
        contract.kernel_counters.count as u32,
        compiled.test_flows(),
    ] {
        bytes.extend(number.to_le_bytes());
    }
    bytes.extend(FRAME_NS.to_le_bytes());
    let mut chooses_port = [0; 256];
    for (flag, verdict) in chooses_port.iter_mut().zip(contract.verdicts) {
        *flag = u8::from(verdict.chooses_port);
    }
    bytes.extend(chooses_port);
    bytes
}

/// Size of the struct `answer` of `program.c`, in bytes.
const ANSWER_BYTES: usize = 32;

/// Reads the answers for a batch. Returns `None` if they are incomplete.
fn answers(mut reply: &[u8], count: usize) -> Option<Vec<Answer>> {
    let mut answers = Vec::with_capacity(count);
    for _ in 0..count {
        let (head, rest) = reply.split_at_checked(ANSWER_BYTES)?;
        let word = |at: usize| [head[at], head[at + 1], head[at + 2], head[at + 3]];
        let length = u32::from_le_bytes(word(12)) as usize;
        let (frame, rest) = rest.split_at_checked(length)?;
        reply = rest;
        answers.push(Answer {
            outcome: Outcome {
                verdict: head[0],
                reason: head[1],
                port: u16::from_le_bytes([head[2], head[3]]),
                value: u32::from_le_bytes(word(4)),
            },
            moved: i32::from_le_bytes(word(8)),
            frame: frame.to_vec(),
            parameter: (u32::from_le_bytes(word(20)) == 0)
                .then(|| u64::from(u32::from_le_bytes(word(24))) | u64::from(u32::from_le_bytes(word(28))) << 32),
            is_new: u32::from_le_bytes(word(16)) != 0,
        });
    }
    reply.is_empty().then_some(answers)
}
