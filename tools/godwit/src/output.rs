//! Output of results: tables on standard output, and JSON in a file that appears when it is
//! complete.

use std::fs::File;
use std::io::{ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use serde::Serialize;
use tempfile::NamedTempFile;

use crate::failure::Failure;
use crate::log;

/// Writes `text` to standard output.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    // Both outputs may be the same terminal, so earlier log lines come first.
    log::flush();
    let mut stdout = std::io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Err(Failure::OutputClosed),
        Err(error) => Err(Failure::User(format!("cannot write to standard output: {error}"))),
    }
}

/// Prints `text` for people on standard output. If the JSON goes there, uses standard error
/// instead.
pub(crate) fn print_text(json: &Json, text: &str) -> Result<(), Failure> {
    if matches!(json, Json::Stdout) {
        log::write(text);
        return Ok(());
    }
    print(text)
}

/// Destination of the JSON output. It is opened before long work, so that an unwritable path is
/// reported immediately.
pub(crate) enum Json {
    /// No JSON output.
    None,
    /// Standard output, given as `-`.
    Stdout,
    /// A pipe or a device file, which is written directly.
    Special(PathBuf, File),
    /// A temporary file, which gets its final name when it is complete. Dropping it deletes it.
    File(PathBuf, NamedTempFile),
}

impl Json {
    /// Opens the destination `path`, the value of `--json`.
    pub(crate) fn open(path: Option<&Path>) -> Result<Self, Failure> {
        let Some(path) = path else { return Ok(Self::None) };
        if path == Path::new("-") {
            return Ok(Self::Stdout);
        }
        let refuse = |error: std::io::Error| cannot_write(path, &error);
        match std::fs::metadata(path) {
            // For a folder, the operating system reports why it cannot be opened.
            Ok(existing) if !existing.is_file() => {
                let file = File::options().write(true).open(path).map_err(refuse)?;
                Ok(Self::Special(path.to_owned(), file))
            }
            _ => {
                let folder = match path.parent() {
                    Some(folder) if folder != Path::new("") => folder,
                    _ => Path::new("."),
                };
                // The usual file mode: the umask removes permissions.
                let create = |path: &Path| File::options().write(true).create_new(true).mode(0o666).open(path);
                let file = tempfile::Builder::new()
                    .prefix(".godwit-")
                    .suffix(".json.part")
                    .make_in(folder, create)
                    .map_err(refuse)?;
                Ok(Self::File(path.to_owned(), file))
            }
        }
    }

    /// Writes `value` and gives the file its final name.
    pub(crate) fn write(self, value: &impl Serialize) -> Result<(), Failure> {
        if matches!(self, Self::None) {
            return Ok(());
        }
        let mut text = serde_json::to_string_pretty(value)
            .map_err(|error| Failure::Bug(format!("the result cannot be written as JSON: {error}")))?;
        text.push('\n');
        match self {
            Self::None => Ok(()),
            Self::Stdout => print(&text),
            Self::Special(path, mut file) => {
                file.write_all(text.as_bytes()).map_err(|error| cannot_write(&path, &error))
            }
            Self::File(path, mut file) => {
                let written = file.write_all(text.as_bytes()).and_then(|()| file.as_file().sync_all());
                written.map_err(|error| cannot_write(&path, &error))?;
                file.persist(&path).map_err(|error| cannot_write(&path, &error.error))?;
                Ok(())
            }
        }
    }
}

fn cannot_write(path: &Path, error: &std::io::Error) -> Failure {
    Failure::User(format!("cannot write {}: {error}", path.display()))
}
