//! `godwit test`

mod coverage;
mod devices;
mod expect;
mod mutate;
mod parameters;
mod subject;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use godwit_custom::checked::{Answer, Checked, FRAME_BYTES_MAX, Stopped};
use godwit_custom::forms::{self, BIN_PACKETS, Guarded};
use godwit_engine::pcap;

use crate::failure::Failure;
use crate::output;
use crate::progress::Progress;
use crate::table::grouped;

use coverage::Coverage;
use devices::Lanes;
use expect::Expected;
use mutate::Mutator;
use subject::Subject;

/// Test your own function. Runs its frames and mutated frames with sanitizers, compares all forms
/// and devices, and names the verdicts and drop reasons that no frame reaches.
#[derive(Args)]
pub(crate) struct Arguments {
    /// C file of the function.
    source: PathBuf,
    /// Number of mutated frames.
    #[arg(long, default_value_t = 20_000)]
    frames: u64,
    /// Start value of the random numbers.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Do not run the function on OpenCL and CUDA devices.
    #[arg(long)]
    cpu_only: bool,
    /// Write the outcomes of the capture to the file of expected outcomes.
    #[arg(long)]
    write: bool,
    /// Write the frame of a fault to this capture.
    #[arg(long, value_name = "FILE")]
    keep: Option<PathBuf>,
}

pub(crate) fn execute(arguments: &Arguments) -> Result<(), Failure> {
    let mut progress = Progress::new();
    let summary = test(arguments, &mut progress);
    progress.clear();
    output::print(&summary?)
}

/// Runs all frames, and returns the results as text.
fn test(arguments: &Arguments, progress: &mut Progress) -> Result<String, Failure> {
    let subject = Subject::load(&arguments.source)?;
    let mut bench = Bench::new(arguments, &subject, progress)?;
    let captured = match subject.test() {
        Some(test) => {
            pcap::timed_frames(&subject.folder().join(&test.frames), FRAME_BYTES_MAX).map_err(Failure::user)?
        }
        None => Vec::new(),
    };
    let parameters = parameters::captured(&*subject.function, &captured)?;
    let captured: Vec<Vec<u8>> = captured.into_iter().map(|(_, frame)| frame).collect();
    let answers = bench.run(&captured, &parameters, Origin::Capture)?;
    if let Some(test) = subject.test() {
        let path = subject.folder().join(&test.expect);
        let expected = Expected { contract: subject.compiled.contract, ports: &test.ports };
        match arguments.write {
            true => expected.write(&path, &captured, &answers)?,
            false => expected.compare(&path, &captured, &answers)?,
        }
    }
    let mut mutator = Mutator::new(arguments.seed, captured);
    let mut left = arguments.frames;
    while left > 0 {
        let ran = grouped(arguments.frames - left);
        progress.show_on_terminal(&format!("{ran} of {} mutated frames", grouped(arguments.frames)));
        let frames = mutator.frames(left.min(BIN_PACKETS as u64) as usize);
        let first = arguments.frames - left;
        let parameters = parameters::mutated(&*subject.function, first, frames.len());
        let answers = bench.run(&frames, &parameters, Origin::Mutation(first))?;
        left -= frames.len() as u64;
        for (frame, answer) in frames.into_iter().zip(answers) {
            if answer.is_new {
                mutator.learn(frame);
            }
        }
    }
    let unreached = subject.test().map_or(&[][..], |test| &test.unreached);
    bench.coverage.missing(unreached).map_or(Ok(()), |missing| Err(subject.fault(None, &missing)))?;
    Ok(bench.summary(arguments.frames))
}

/// Results of a bin's frames, and the counter values.
type Results<'a> = (&'a [Answer], &'a [u64]);

/// Origin of a batch of frames, for messages.
#[derive(Clone, Copy)]
enum Origin {
    /// The capture that the declaration names.
    Capture,
    /// The mutated frames that begin with this number.
    Mutation(u64),
}

/// Runs a function in all its forms.
struct Bench<'a> {
    subject: &'a Subject,
    keep: Option<&'a Path>,
    checked: Checked,
    forms: Vec<forms::Form>,
    guarded: Guarded,
    lanes: Lanes,
    coverage: Coverage,
}

impl<'a> Bench<'a> {
    fn new(arguments: &'a Arguments, subject: &'a Subject, progress: &mut Progress) -> Result<Self, Failure> {
        let image = subject.function.image();
        progress.show("compiling the program with sanitizers");
        let checked =
            Checked::start(&subject.path, subject.compiled, image, subject.ports().len()).map_err(Failure::user)?;
        let lanes = match arguments.cpu_only {
            true => Lanes::default(),
            false => Lanes::open(&Arc::clone(&subject.function), progress)?,
        };
        Ok(Self {
            subject,
            keep: arguments.keep.as_deref(),
            checked,
            forms: forms::forms(subject.compiled, image).map_err(Failure::user)?,
            guarded: Guarded::new().map_err(Failure::user)?,
            lanes,
            coverage: Coverage::new(subject.compiled.contract),
        })
    }

    /// Runs frames in all forms and on all devices. Returns the results of the program with
    /// sanitizers, with which all others must agree.
    fn run(&mut self, frames: &[Vec<u8>], parameters: &[u64], origin: Origin) -> Result<Vec<Answer>, Failure> {
        let mut all = Vec::with_capacity(frames.len());
        for (index, (bin, parameters)) in frames.chunks(BIN_PACKETS).zip(parameters.chunks(BIN_PACKETS)).enumerate() {
            let first = index * BIN_PACKETS;
            let (answers, counters) = match self.checked.run(bin, parameters) {
                Ok(results) => results,
                Err(Stopped::Fault(fault)) => {
                    let message = self.describe(origin, first + fault.frame, &bin[fault.frame], &fault.message)?;
                    return Err(self.subject.fault(fault.line, &message));
                }
                Err(Stopped::Error(error)) => return Err(Failure::user(error)),
            };
            for form in 0..self.forms.len() {
                let form = &mut self.forms[form];
                let (found, counted) =
                    self.guarded.run(form, self.subject.compiled, self.subject.function.image(), bin, parameters);
                let name = form.to_string();
                if let Some((frame, message)) = self.difference((&answers, &counters), (&found, &counted), &name) {
                    let message = self.describe(origin, first + frame, &bin[frame], &message)?;
                    return Err(self.subject.fault(None, &message));
                }
            }
            for index in 0..self.lanes.len() {
                let (name, found, counted) = self.lanes.run(index, bin, &answers)?;
                if let Some((frame, message)) = self.difference((&answers, &counters), (&found, &counted), &name) {
                    let message = self.describe(origin, first + frame, &bin[frame], &message)?;
                    return Err(self.subject.fault(None, &message));
                }
            }
            answers.iter().for_each(|answer| self.coverage.count(&answer.outcome));
            all.extend(answers);
        }
        Ok(all)
    }

    /// Finds the first frame for which two forms differ, and describes the difference. If only the
    /// counters of a bin differ, returns the first frame of the bin.
    fn difference(&self, expected: Results<'_>, found: Results<'_>, form: &str) -> Option<(usize, String)> {
        let ((answers, counters), (found, counted)) = (expected, found);
        let contract = self.subject.compiled.contract;
        let expected = Expected { contract, ports: self.subject.ports() };
        let mut pairs = answers.iter().zip(found).enumerate();
        let Some((index, (answer, other))) = pairs.find(|(_, (answer, other))| !is_same(answer, other)) else {
            let counter = counters.iter().zip(counted).position(|(counter, other)| counter != other)?;
            let (name, count, other) = (contract.counters[counter].name, counters[counter], counted[counter]);
            let message = format!(
                "{form} counts {other} in `{name}` from this frame on, and the C code without optimisation counts {count}"
            );
            return Some((0, message));
        };
        let (text, other_text) = (expected.text(&answer.outcome), expected.text(&other.outcome));
        let message = match text == other_text {
            true if answer.parameter != other.parameter => {
                format!("{form} gives another result of `update` than the C code without optimisation, with `{text}`")
            }
            true => format!("{form} gives another frame than the C code without optimisation, with `{text}`"),
            false => format!("{form} gives `{other_text}`, and the C code without optimisation gives `{text}`"),
        };
        Some((index, message))
    }

    /// Adds the origin of the frame to a message. Also writes the frame if the user requested it.
    fn describe(&self, origin: Origin, index: usize, frame: &[u8], message: &str) -> Result<String, Failure> {
        if let Some(path) = self.keep {
            expect::write_capture(path, frame)?;
        }
        let frames = self.subject.test().map_or("", |test| test.frames.as_str());
        Ok(match origin {
            Origin::Capture => format!("frame {} of {frames}: {message}", index + 1),
            Origin::Mutation(first) => {
                format!("mutated frame {} with {} bytes: {message}", first + index as u64 + 1, frame.len())
            }
        })
    }

    fn summary(&self, mutated: u64) -> String {
        let forms: Vec<String> = self.forms.iter().map(ToString::to_string).chain(self.lanes.names()).collect();
        let mut text = String::new();
        let captured = self.coverage.total() - mutated;
        let _ = writeln!(
            text,
            "{}: {} frames of the capture and {} mutated frames, no fault",
            self.subject.path.display(),
            grouped(captured),
            grouped(mutated)
        );
        let _ = writeln!(text, "equal: {}", forms.join(", "));
        for notice in self.lanes.notices() {
            let _ = writeln!(text, "not run: {notice}");
        }
        text + &self.coverage.text()
    }
}

/// Returns whether two forms give the same result. Dropped packets may have different frames.
fn is_same(a: &Answer, b: &Answer) -> bool {
    a.outcome == b.outcome
        && a.parameter == b.parameter
        && (a.outcome.verdict == godwit_abi::VERDICT_DROP || (a.moved == b.moved && a.frame == b.frame))
}
