//! The file of expected outcomes, with one line per captured frame.

use std::fs;
use std::path::Path;

use godwit_abi::Outcome;
use godwit_custom::checked::Answer;
use godwit_custom::expect;
use godwit_declare::Contract;

use crate::failure::Failure;

/// Writes outcomes as text, and compares them with a file.
pub(super) struct Expected<'a> {
    pub(super) contract: &'a Contract,
    pub(super) ports: &'a [String],
}

impl Expected<'_> {
    /// Returns an outcome as text.
    pub(super) fn text(&self, outcome: &Outcome) -> String {
        expect::text(self.contract, self.ports, outcome)
    }

    fn line(&self, frame: &[u8], answer: &Answer) -> String {
        expect::line(self.contract, self.ports, frame, answer)
    }

    /// Compares outcomes with the file.
    pub(super) fn compare(&self, path: &Path, frames: &[Vec<u8>], answers: &[Answer]) -> Result<(), Failure> {
        let refuse = |message: String| Err(Failure::User(format!("{}{message}", path.display())));
        let text = match fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) => return refuse(format!(": {error}: `godwit test --write` creates the file")),
        };
        let lines = text.lines().enumerate().map(|(index, line)| (index + 1, line.trim()));
        let lines: Vec<(usize, &str)> = lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#')).collect();
        for (index, (frame, answer)) in frames.iter().zip(answers).enumerate() {
            let found = self.line(frame, answer);
            match lines.get(index) {
                Some((_, line)) if *line == found => {}
                Some((number, line)) => {
                    return refuse(format!(
                        ":{number}: frame {} gives `{found}` instead of `{line}`: correct the function or this line",
                        index + 1
                    ));
                }
                None => return refuse(format!(": there is no line for frame {}, which gives `{found}`", index + 1)),
            }
        }
        match lines.get(answers.len()) {
            Some((number, _)) => refuse(format!(":{number}: the capture has only {} frames", answers.len())),
            None => Ok(()),
        }
    }

    /// Writes the file.
    pub(super) fn write(&self, path: &Path, frames: &[Vec<u8>], answers: &[Answer]) -> Result<(), Failure> {
        let lines: String = frames.iter().zip(answers).map(|(frame, answer)| self.line(frame, answer) + "\n").collect();
        fs::write(path, lines).map_err(|error| Failure::User(format!("cannot write {}: {error}", path.display())))
    }
}

/// Writes one frame as a capture (draft-ietf-opsawg-pcap, section 4).
pub(super) fn write_capture(path: &Path, frame: &[u8]) -> Result<(), Failure> {
    let length = (frame.len() as u32).to_le_bytes();
    let header: [u32; 6] = [0xa1b2_c3d4, 4 << 16 | 2, 0, 0, 65_535, 1];
    let mut bytes: Vec<u8> = header.iter().flat_map(|word| word.to_le_bytes()).collect();
    bytes.extend([0; 8]);
    bytes.extend(length);
    bytes.extend(length);
    bytes.extend(frame);
    fs::write(path, bytes).map_err(|error| Failure::User(format!("cannot write {}: {error}", path.display())))
}
