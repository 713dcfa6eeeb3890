//! Errors of the command line.

use std::io;
use std::path::PathBuf;

/// Error that ends the command.
#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    /// A file cannot be read or written.
    #[error("{}: {source}", path.display())]
    File { path: PathBuf, source: io::Error },
    /// The system provides no folder for temporary files.
    #[error("a temporary folder: {0}")]
    Temporary(io::Error),
    /// The compiler does not start.
    #[error("{program}: {source}")]
    Start { program: String, source: io::Error },
    /// The text is refused.
    #[error(transparent)]
    Transform(#[from] gopt::Error),
    /// The database of commands is no JSON.
    #[error("{}: {source}", path.display())]
    Json { path: PathBuf, source: serde_json::Error },
    /// The database of commands has another form.
    #[error("{}: the file is no list of commands", .0.display())]
    NotCommands(PathBuf),
    /// An entry of the database has neither `arguments` nor `command`.
    #[error("{}: the entry of {} has no command", path.display(), file.display())]
    WithoutCommand { path: PathBuf, file: PathBuf },
    /// An entry of the database has an empty command.
    #[error("{}: an empty command", .0.display())]
    EmptyCommand(PathBuf),
    /// The database does not contain the file.
    #[error("{} has no entry for {}: build it once with this database", path.display(), file.display())]
    WithoutEntry { path: PathBuf, file: PathBuf },
    /// No access in the file is worth a marker.
    #[error("{0}: no access in a loop that can be transformed has an address that depends on another access")]
    NothingToMark(String),
}

impl Error {
    /// Returns a function that adds a file path to an operating system error.
    pub(super) fn file(path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        |source| Self::File { path, source }
    }
}
