//! Encodes packets as records of a pcap or pcapng file. The files are little-endian, have the link
//! type Ethernet, and contain times in nanoseconds.
//!
//! Equal packets produce equal files, because the output contains neither the time nor the machine
//! of its creation.
//!
//! Spec: draft-ietf-opsawg-pcap, draft-ietf-opsawg-pcapng.

use super::Format;
use super::link_type::ETHERNET;

/// Maximum length of a frame in bytes. A packet buffer cannot hold a longer frame.
const SNAP_BYTES: u32 = 65535;

/// Appends the header of a capture file. Interfaces are numbered in the given order. A pcap file
/// contains no interface names.
pub(super) fn emit_header(format: Format, interfaces: &[String], out: &mut Vec<u8>) {
    match format {
        Format::Pcap => {
            out.extend(0xa1b2_3c4d_u32.to_le_bytes());
            out.extend(2u16.to_le_bytes());
            out.extend(4u16.to_le_bytes());
            out.extend([0; 8]);
            out.extend(SNAP_BYTES.to_le_bytes());
            out.extend(u32::from(ETHERNET).to_le_bytes());
        }
        Format::PcapNg => {
            block(0x0a0d_0d0a, out, |out| {
                out.extend(0x1a2b_3c4d_u32.to_le_bytes());
                out.extend(1u16.to_le_bytes());
                out.extend(0u16.to_le_bytes());
                // The length of the section is not specified.
                out.extend(u64::MAX.to_le_bytes());
            });
            interfaces.iter().for_each(|name| emit_interface(name, out));
        }
    }
}

/// Appends the description of an interface to a pcapng file. Interfaces are numbered in the order
/// of their descriptions.
pub(super) fn emit_interface(name: &str, out: &mut Vec<u8>) {
    block(1, out, |out| {
        out.extend(ETHERNET.to_le_bytes());
        out.extend(0u16.to_le_bytes());
        out.extend(SNAP_BYTES.to_le_bytes());
        const IF_NAME: u16 = 2;
        const IF_TSRESOL: u16 = 9;
        option(IF_NAME, name.as_bytes(), out);
        option(IF_TSRESOL, &[9], out);
        option(0, &[], out);
    });
}

/// Appends one packet, whose `frame` has at most [`SNAP_BYTES`] bytes.
pub(super) fn emit_packet(format: Format, interface: u32, time_ns: u64, frame: &[u8], out: &mut Vec<u8>) {
    let frame_bytes = frame.len() as u32;
    match format {
        Format::Pcap => {
            // The format has 32 bits for the seconds, which wrap around in the year 2106.
            out.extend(((time_ns / 1_000_000_000) as u32).to_le_bytes());
            out.extend(((time_ns % 1_000_000_000) as u32).to_le_bytes());
            out.extend(frame_bytes.to_le_bytes());
            out.extend(frame_bytes.to_le_bytes());
            out.extend_from_slice(frame);
        }
        Format::PcapNg => block(6, out, |out| enhanced_packet(interface, time_ns, frame, out)),
    }
}

/// Comment and direction of a packet.
pub(super) struct Notes<'a> {
    pub(super) inbound: bool,
    pub(super) comment: &'a str,
}

/// Appends one packet with its direction and a comment to a pcapng file. `frame` has at most
/// [`SNAP_BYTES`] bytes.
pub(super) fn emit_annotated(interface: u32, time_ns: u64, frame: &[u8], notes: &Notes<'_>, out: &mut Vec<u8>) {
    const COMMENT: u16 = 1;
    const EPB_FLAGS: u16 = 2;
    // Truncate the comment only between two characters.
    let end =
        (0..=notes.comment.len().min(usize::from(u16::MAX))).rev().find(|&end| notes.comment.is_char_boundary(end));
    let comment = &notes.comment.as_bytes()[..end.unwrap_or(0)];
    let direction: u32 = if notes.inbound { 1 } else { 2 };
    block(6, out, |out| {
        enhanced_packet(interface, time_ns, frame, out);
        option(COMMENT, comment, out);
        option(EPB_FLAGS, &direction.to_le_bytes(), out);
        option(0, &[], out);
    });
}

/// Appends the body of an Enhanced Packet Block of pcapng, without options.
fn enhanced_packet(interface: u32, time_ns: u64, frame: &[u8], out: &mut Vec<u8>) {
    let frame_bytes = (frame.len() as u32).to_le_bytes();
    out.extend(interface.to_le_bytes());
    out.extend(((time_ns >> 32) as u32).to_le_bytes());
    out.extend((time_ns as u32).to_le_bytes());
    out.extend(frame_bytes);
    out.extend(frame_bytes);
    out.extend_from_slice(frame);
    pad(out, frame.len());
}

/// Appends a pcapng block: the block type, the length, the content that `body` writes, and the
/// length again.
fn block(kind: u32, out: &mut Vec<u8>, body: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    out.extend(kind.to_le_bytes());
    out.extend([0; 4]);
    body(out);
    let block_bytes = ((out.len() - start + 4) as u32).to_le_bytes();
    out[start + 4..start + 8].copy_from_slice(&block_bytes);
    out.extend(block_bytes);
}

/// Appends a pcapng option. A value that does not fit the 16-bit length field is truncated.
fn option(code: u16, value: &[u8], out: &mut Vec<u8>) {
    let value = &value[..value.len().min(usize::from(u16::MAX))];
    out.extend(code.to_le_bytes());
    out.extend((value.len() as u16).to_le_bytes());
    out.extend_from_slice(value);
    pad(out, value.len());
}

fn pad(out: &mut Vec<u8>, content_bytes: usize) {
    out.resize(out.len() + content_bytes.next_multiple_of(4) - content_bytes, 0);
}
