//! Errors of the state folder and of claims on keys.

use std::io;
use std::path::PathBuf;

/// Error of the state folder or of a key claim. The operator must act on each variant.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The folder or a file in it cannot be used.
    #[error("state folder {}: {problem}", path.display())]
    Folder {
        /// Path of the folder or the file.
        path: PathBuf,
        /// Problem and remedy.
        problem: String,
    },
    /// An operation on a file failed.
    #[error("state folder: cannot {action}: {source}")]
    Io {
        /// Operation that failed, as an infinitive such as "read the journal".
        action: &'static str,
        /// Error of the operating system.
        source: io::Error,
    },
    /// The journal is damaged before its end, so its sequence numbers may be too small.
    #[error(
        "the journal of sequence numbers is damaged at byte {at}, and numbers before a restart are unknown: configure new \
         keys and remove the state folder"
    )]
    Damaged {
        /// Offset of the first damaged record, in bytes.
        at: usize,
    },
    /// Another function or process uses the key.
    #[error(
        "{owner} uses a key that {other} uses too: repeated nonces or IVs would reveal the plaintext; use another key"
    )]
    Claimed {
        /// User of the key whose claim was refused.
        owner: String,
        /// Function or process that already uses the key.
        other: String,
    },
}

impl Error {
    pub(crate) fn io(action: &'static str) -> impl Fn(io::Error) -> Self {
        move |source| Self::Io { action, source }
    }
}
