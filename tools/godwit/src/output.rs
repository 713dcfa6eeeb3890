//! Where results go: tables to standard output, JSON to a file that appears when it is complete.

use std::fs::File;
use std::io::{ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use serde::Serialize;
use tempfile::NamedTempFile;

use crate::failure::Failure;

/// Writes `text` to standard output.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    let mut stdout = std::io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Err(Failure::ReaderLeft),
        Err(error) => Err(Failure::User(format!("cannot write to standard output: {error}"))),
    }
}

/// Writes `text` where people read when JSON goes to `json`: standard output, unless the JSON goes there.
pub(crate) fn print_beside(json: &Json, text: &str) -> Result<(), Failure> {
    if matches!(json, Json::Stdout) {
        eprint!("{text}");
        return Ok(());
    }
    print(text)
}

/// Where JSON goes. Opened before long work, so that a place that cannot be written is told at once.
pub(crate) enum Json {
    /// Nobody asked.
    None,
    /// `-`
    Stdout,
    /// A pipe or a device, written in place.
    Special(PathBuf, File),
    /// A file, which gets its name when it is complete. Dropping it removes what there is.
    File(PathBuf, NamedTempFile),
}

impl Json {
    /// `path` as given after `--json`.
    pub(crate) fn open(path: Option<&Path>) -> Result<Self, Failure> {
        let Some(path) = path else { return Ok(Self::None) };
        if path == Path::new("-") {
            return Ok(Self::Stdout);
        }
        let refuse = |error: std::io::Error| cannot_write(path, &error);
        match std::fs::metadata(path) {
            // A folder too: opening it is what the operating system refuses in its own words.
            Ok(existing) if !existing.is_file() => {
                let file = File::options().write(true).open(path).map_err(refuse)?;
                Ok(Self::Special(path.to_owned(), file))
            }
            _ => {
                let folder = match path.parent() {
                    Some(folder) if folder != Path::new("") => folder,
                    _ => Path::new("."),
                };
                // As any program makes files: the umask takes away what is not wanted.
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

    /// Writes `value`, and gives the file its name.
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
