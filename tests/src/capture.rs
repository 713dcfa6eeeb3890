//! Captures, read by the crate `pcap-file`: Godwit's own reader is what is tested.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use pcap_file::DataLink;
use pcap_file::pcap::PcapReader;
use pcap_file::pcapng::{Block, PcapNgReader};

/// A frame of a capture.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Time of the record, nanoseconds since 1970.
    pub time_ns: u64,
    /// Bytes that the frame had on the wire.
    pub original_bytes: usize,
    /// Bytes of the frame that the capture holds.
    pub data: Vec<u8>,
}

/// All captures of `tests/captures/`, and all below the folder that `GODWIT_CAPTURES` names; sorted.
pub fn captures() -> Vec<PathBuf> {
    let mut found = Vec::new();
    find(&crate::repository().join("tests/captures"), &mut found);
    if let Some(folder) = std::env::var_os("GODWIT_CAPTURES") {
        find(Path::new(&folder), &mut found);
    }
    found.sort();
    found
}

fn find(folder: &Path, found: &mut Vec<PathBuf>) {
    let entries = fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    for entry in entries {
        let path = entry.expect("a folder can be read to its end").path();
        if path.is_dir() {
            find(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "pcap" || extension == "pcapng") {
            found.push(path);
        }
    }
}

/// The frames of an Ethernet capture; `None` where the file is cut off, malformed, or holds another link type.
pub fn frames(path: &Path) -> Option<Vec<Frame>> {
    let file = File::open(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    if path.extension().is_some_and(|extension| extension == "pcapng") { pcapng(file) } else { pcap(file) }
}

fn pcap(file: File) -> Option<Vec<Frame>> {
    let mut reader = PcapReader::new(file).ok()?;
    if reader.header().datalink != DataLink::ETHERNET {
        return None;
    }
    let mut frames = Vec::new();
    while let Some(packet) = reader.next_packet() {
        let packet = packet.ok()?;
        frames.push(Frame {
            time_ns: u64::try_from(packet.timestamp.as_nanos()).ok()?,
            original_bytes: packet.orig_len as usize,
            data: packet.data.into_owned(),
        });
    }
    Some(frames)
}

fn pcapng(file: File) -> Option<Vec<Frame>> {
    let mut reader = PcapNgReader::new(file).ok()?;
    let mut frames = Vec::new();
    while let Some(block) = reader.next_block() {
        match block.ok()? {
            Block::InterfaceDescription(interface) if interface.linktype != DataLink::ETHERNET => return None,
            Block::EnhancedPacket(packet) => frames.push(Frame {
                time_ns: u64::try_from(packet.timestamp.as_nanos()).ok()?,
                original_bytes: packet.original_len as usize,
                data: packet.data.into_owned(),
            }),
            _ => {}
        }
    }
    Some(frames)
}

/// Captures in the format pcap, written by one program, one behind the other in the file `to`.
pub fn concatenate(captures: &[PathBuf], to: &Path) {
    const HEADER_BYTES: usize = 24;
    let mut all = Vec::new();
    for capture in captures {
        let bytes = fs::read(capture).unwrap_or_else(|error| panic!("{}: {error}", capture.display()));
        let header = &bytes[..HEADER_BYTES];
        if all.is_empty() {
            all.extend_from_slice(header);
        }
        assert_eq!(header, &all[..HEADER_BYTES], "{} has another header", capture.display());
        all.extend_from_slice(&bytes[HEADER_BYTES..]);
    }
    fs::write(to, all).unwrap_or_else(|error| panic!("{}: {error}", to.display()));
}

/// The frame up to the end of its IPv4 packet: a tunnel does not carry what Ethernet adds behind that. Other frames whole.
pub fn without_padding(frame: &[u8]) -> &[u8] {
    let word = |at: usize| frame.get(at..at + 2).map(|word| usize::from(word[0]) << 8 | usize::from(word[1]));
    let mut offset = 12;
    // IEEE 802.1Q and 802.1ad tags.
    while matches!(word(offset), Some(0x8100 | 0x88a8)) {
        offset += 4;
    }
    match (word(offset), word(offset + 4)) {
        (Some(0x0800), Some(total_bytes)) => &frame[..frame.len().min(offset + 2 + total_bytes)],
        _ => frame,
    }
}
