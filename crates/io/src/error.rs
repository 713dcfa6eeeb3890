//! Errors of ports.

use std::io;
use std::path::{Path, PathBuf};

/// A failed port operation. A malformed packet is not an error, because the port counts and skips
/// it.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A key of the configuration has an invalid value.
    #[error("{key} = {value}: {reason}")]
    Config {
        /// Name of the key.
        key: &'static str,
        /// Value of the key.
        value: String,
        /// Problem with the value, and the valid values.
        reason: String,
    },
    /// A value in the configuration cannot be parsed. The error contains one sentence. The
    /// configuration parser adds the line number.
    #[error("{0}")]
    Value(String),
    /// The operating system refused an operation.
    #[error("cannot {what}: {source}")]
    System {
        /// The refused operation, as a verb phrase.
        what: String,
        /// Error of the operating system.
        source: io::Error,
    },
    /// The device or network interface cannot do what the configuration requires. The error
    /// contains one sentence.
    #[error("{0}")]
    Port(String),
    /// A required key is missing in the configuration.
    #[error("{0}")]
    Missing(&'static str),
    /// A file cannot be opened or read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// Path of the file.
        path: PathBuf,
        /// Error of the operating system.
        source: io::Error,
    },
    /// A file cannot be created or written, for example because the disk is full.
    #[error("cannot write {}: {source}", path.display())]
    Write {
        /// Path of the file.
        path: PathBuf,
        /// Error of the operating system.
        source: io::Error,
    },
    /// The file is not a load program of a synthetic port.
    #[error("{}: {place}: {reason}", path.display())]
    Load {
        /// Path of the file.
        path: PathBuf,
        /// Line, step or traffic class that contains the error.
        place: String,
        /// Description of the problem, with the valid values.
        reason: String,
    },
    /// The file is not a capture file in the format pcap or pcapng.
    #[error("{}: not a pcap or pcapng file: {reason}", path.display())]
    NotCapture {
        /// Path of the file.
        path: PathBuf,
        /// Content of the file, or how it differs from a capture file.
        reason: String,
    },
    /// The capture file contains no Ethernet frames.
    #[error("{}: link type {link_type} ({name}); only Ethernet (1) can be replayed", path.display())]
    LinkType {
        /// Path of the file.
        path: PathBuf,
        /// Number of the link type (`LINKTYPE_*` of libpcap).
        link_type: u16,
        /// Name of the link type, if it is a common one.
        name: &'static str,
    },
    /// The capture file ends in the middle of a record. The port delivered all packets before this
    /// record.
    #[error("{}: cut off after {packets} whole packets, in the record at byte {offset}", path.display())]
    CutOff {
        /// Path of the file.
        path: PathBuf,
        /// Number of packets before the truncated record.
        packets: u64,
        /// Byte offset of the truncated record in the file.
        offset: u64,
    },
    /// A network device does not support a required operation, or the operation failed.
    #[error("{device}: {what}: {reason}")]
    Device {
        /// Name of the device.
        device: String,
        /// The failed operation.
        what: String,
        /// Reason for the failure.
        reason: String,
    },
    /// The DPDK environment (EAL) cannot be initialized.
    #[error("DPDK: {reason}")]
    Environment {
        /// Reason for the failure.
        reason: String,
    },
    /// A record of the capture file is malformed. The port delivered all packets before this
    /// record.
    #[error("{}: malformed record after {packets} packets, at byte {offset}: {reason}", path.display())]
    Malformed {
        /// Path of the file.
        path: PathBuf,
        /// Number of packets before the malformed record.
        packets: u64,
        /// Byte offset of the malformed record in the file.
        offset: u64,
        /// Problem with the record.
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
