//! A capture in which packets have comments: pcapng, written by one thread.

use std::path::Path;

use super::Format;
use super::output::Output;
use super::writer::{Notes, emit_annotated, emit_header, emit_interface};
use crate::Error;

/// A pcapng file that appears under its name when it is [finished](Annotated::finish).
#[derive(Debug)]
pub struct Annotated {
    output: Output,
    interfaces: Vec<String>,
}

/// A packet of such a file.
#[derive(Clone, Copy, Debug)]
pub struct Annotation<'a> {
    /// Name of the interface.
    pub interface: &'a str,
    /// Whether it came in by it, and does not leave.
    pub inbound: bool,
    /// Nanoseconds since 1970.
    pub time_ns: u64,
    /// From the first byte of the Ethernet header, without FCS; at most 65535 bytes.
    pub frame: &'a [u8],
    /// UTF-8 of at most 65535 bytes: more is cut off.
    pub comment: &'a str,
}

impl Annotated {
    /// A file at `path`.
    ///
    /// # Errors
    /// It cannot be written there.
    pub fn create(path: &Path) -> Result<Self, Error> {
        let mut output = Output::create(path)?;
        emit_header(Format::PcapNg, &[], output.buffer());
        Ok(Self { output, interfaces: Vec::new() })
    }

    /// Appends a packet.
    ///
    /// # Errors
    /// The disk is full, or whoever reads a pipe has left.
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

    /// Gives the file its name.
    ///
    /// # Errors
    /// The disk is full.
    pub fn finish(self) -> Result<(), Error> {
        self.output.finish().map(|_| ())
    }
}
