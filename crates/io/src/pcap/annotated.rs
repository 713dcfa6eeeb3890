//! Writes a capture file in the format pcapng with a comment for each packet.

use std::path::Path;

use super::Format;
use super::output::Output;
use super::writer::{Notes, emit_annotated, emit_header, emit_interface};
use crate::Error;

/// A pcapng file whose packets have comments. The file appears under its name only when
/// [`finish`](Annotated::finish) is called.
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
    /// Whether the interface received the packet. Otherwise, the interface sent it.
    pub inbound: bool,
    /// Time of the packet, in nanoseconds since the Unix epoch.
    pub time_ns: u64,
    /// Frame from the first byte of the Ethernet header, without the frame check sequence (FCS). It
    /// has at most 65535 bytes.
    pub frame: &'a [u8],
    /// Comment in UTF-8. A comment is truncated to 65535 bytes.
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

    /// Appends a packet to the file.
    ///
    /// # Errors
    /// Returns an error if the disk is full, or if the file is a pipe that its reader has closed.
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

    /// Writes all remaining data and gives the file its name.
    ///
    /// # Errors
    /// Returns an error if the disk is full.
    pub fn finish(self) -> Result<(), Error> {
        self.output.finish().map(|_| ())
    }
}
