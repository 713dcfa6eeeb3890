//! Writer of captures in which packets have comments. The format is pcapng, and one thread writes
//! the file.

use std::path::Path;

use super::Format;
use super::output::Output;
use super::writer::{Notes, emit_annotated, emit_header, emit_interface};
use crate::Error;

/// A pcapng file with comments. It appears under its name when it is [finished](Annotated::finish).
#[derive(Debug)]
pub struct Annotated {
    output: Output,
    interfaces: Vec<String>,
}

/// A packet with a comment, for [`Annotated::packet`].
#[derive(Clone, Copy, Debug)]
pub struct Annotation<'a> {
    /// Name of the interface that received or sends the packet.
    pub interface: &'a str,
    /// Whether the interface received the packet. Otherwise it sends the packet.
    pub inbound: bool,
    /// Time of the packet, in nanoseconds since the Unix epoch.
    pub time_ns: u64,
    /// Frame from the first byte of the Ethernet header, without FCS, at most 65535 bytes.
    pub frame: &'a [u8],
    /// Comment, at most 65535 bytes of UTF-8. A longer comment is truncated.
    pub comment: &'a str,
}

impl Annotated {
    /// Creates a file at `path`.
    ///
    /// # Errors
    /// Returns an error if the file cannot be created.
    pub fn create(path: &Path) -> Result<Self, Error> {
        let mut output = Output::create(path)?;
        emit_header(Format::PcapNg, &[], output.buffer());
        Ok(Self { output, interfaces: Vec::new() })
    }

    /// Appends a packet.
    ///
    /// # Errors
    /// Returns an error if the disk is full, or if the reader of a pipe has closed it.
    pub fn packet(&mut self, packet: &Annotation<'_>) -> Result<(), Error> {
        let known = self.interfaces.iter().position(|name| name == packet.interface);
        let interface = known.unwrap_or_else(|| {
            emit_interface(packet.interface, self.output.buffer());
            self.interfaces.push(packet.interface.to_owned());
            self.interfaces.len() - 1
        });
        let notes = Notes { inbound: packet.inbound, comment: packet.comment };
        emit_annotated(interface as u32, packet.time_ns, packet.frame, &notes, self.output.buffer());
        self.output.flush_if_full()
    }

    /// Writes the rest and gives the file its name.
    ///
    /// # Errors
    /// Returns an error if the disk is full.
    pub fn finish(self) -> Result<(), Error> {
        self.output.finish().map(|_| ())
    }
}
