//! What can go wrong with a port.

use std::io;
use std::path::{Path, PathBuf};

/// An operation of a port that failed. Bad packets are not here: they are counted.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The operator gave a value that cannot work.
    #[error("{key} = {value}: {reason}")]
    Config {
        /// The key at fault.
        key: &'static str,
        /// Its value.
        value: String,
        /// What is wrong with it, and what would be right.
        reason: String,
    },
    /// The operating system refuses an operation of a port.
    #[error("cannot {what}: {source}")]
    System {
        /// The operation.
        what: String,
        /// What the operating system said.
        source: io::Error,
    },
    /// A port outside of the program cannot do what is asked of it, in one sentence.
    #[error("{0}")]
    Port(String),
    /// The operator left out a key that is needed.
    #[error("{0}")]
    Missing(&'static str),
    /// The operator named a file that cannot be opened or read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the operating system said.
        source: io::Error,
    },
    /// A file cannot be created or written: the disk is full, the folder is missing.
    #[error("cannot write {}: {source}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// What the operating system said.
        source: io::Error,
    },
    /// The file is not a capture.
    #[error("{}: not a pcap or pcapng file: {reason}", path.display())]
    NotCapture {
        /// The file.
        path: PathBuf,
        /// What is there instead.
        reason: String,
    },
    /// The capture holds no Ethernet frames.
    #[error("{}: link type {link_type} ({name}); only Ethernet (1) can be replayed", path.display())]
    LinkType {
        /// The file.
        path: PathBuf,
        /// LINKTYPE_ number.
        link_type: u16,
        /// Its name, where it is a common one.
        name: &'static str,
    },
    /// The capture ends in the middle of a record. All packets before it were delivered.
    #[error("{}: cut off after {packets} whole packets, in the record at byte {offset}", path.display())]
    CutOff {
        /// The file.
        path: PathBuf,
        /// Packets before the cut.
        packets: u64,
        /// Where the record that is cut off begins.
        offset: u64,
    },
    /// A device, or the driver of one, does not do what is needed.
    #[error("{device}: {what}: {reason}")]
    Device {
        /// The device.
        device: String,
        /// What failed.
        what: String,
        /// Why.
        reason: String,
    },
    /// DPDK's environment cannot be set up.
    #[error("DPDK: {reason}")]
    Environment {
        /// Why.
        reason: String,
    },
    /// A record contradicts itself. All packets before it were delivered.
    #[error("{}: malformed record after {packets} packets, at byte {offset}: {reason}", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// Packets before it.
        packets: u64,
        /// Where the record begins.
        offset: u64,
        /// What is wrong.
        reason: String,
    },
}

impl Error {
    pub(crate) fn config(key: &'static str, value: impl ToString, reason: impl Into<String>) -> Self {
        Self::Config { key, value: value.to_string(), reason: reason.into() }
    }

    pub(crate) fn system(what: impl Into<String>, source: io::Error) -> Self {
        Self::System { what: what.into(), source }
    }

    pub(crate) fn read(path: &Path, source: io::Error) -> Self {
        Self::Read { path: path.to_owned(), source }
    }

    pub(crate) fn write(path: &Path, source: io::Error) -> Self {
        Self::Write { path: path.to_owned(), source }
    }
}
