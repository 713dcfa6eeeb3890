//! Captures. The reader is the crate `pcap-file`, because Godwit's own reader is under test. The
//! writer is a few lines, so that tests control every byte.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use pcap_file::DataLink;
use pcap_file::pcap::PcapReader;
use pcap_file::pcapng::{Block, PcapNgReader};

/// Length of the header of a pcap file, in bytes (draft-ietf-opsawg-pcap, section 4).
pub const FILE_HEADER_BYTES: usize = 24;

/// Time of the first frame of a written capture, in seconds since 1970.
pub const START_SECONDS: u32 = 1_700_000_000;

/// One frame of a capture.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Time of the record, in nanoseconds since 1970.
    pub time_ns: u64,
    /// Length of the frame on the wire, in bytes.
    pub original_bytes: usize,
    /// Bytes of the frame that the capture contains.
    pub data: Vec<u8>,
}

/// Returns the paths of all captures in `tests/captures/` and below the folder `GODWIT_CAPTURES`,
/// sorted.
pub fn captures() -> Vec<PathBuf> {
    let mut paths = Vec::new();
    find(&crate::repository().join("tests/captures"), &mut paths);
    if let Some(folder) = std::env::var_os("GODWIT_CAPTURES") {
        find(Path::new(&folder), &mut paths);
    }
    paths.sort();
    paths
}

fn find(folder: &Path, paths: &mut Vec<PathBuf>) {
    let entries = fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    for entry in entries {
        let path = entry.expect("a readable folder").path();
        if path.is_dir() {
            find(&path, paths);
        } else if path.extension().is_some_and(|extension| extension == "pcap" || extension == "pcapng") {
            paths.push(path);
        }
    }
}

/// Returns the frames of an Ethernet capture, pcap or pcapng. Returns `None` if the file is
/// truncated or malformed, or has another link type.
pub fn frames(path: &Path) -> Option<Vec<Frame>> {
    let file = File::open(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    if path.extension().is_some_and(|extension| extension == "pcapng") { pcapng(file) } else { pcap(file) }
}

/// Returns the bytes of the frames of an Ethernet capture.
///
/// # Panics
///
/// Panics if the file is not a whole Ethernet capture.
#[track_caller]
pub fn read(path: &Path) -> Vec<Vec<u8>> {
    let frames = frames(path).unwrap_or_else(|| panic!("{} is not a whole capture", path.display()));
    frames.into_iter().map(|frame| frame.data).collect()
}

/// Writes frames as a pcap file. The first frame has the time [`START_SECONDS`]. Frames are one
/// microsecond apart.
pub fn write(path: &Path, frames: &[Vec<u8>]) {
    fs::write(path, bytes(frames)).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
}

/// Returns the bytes of the pcap file that [`write()`] writes.
pub fn bytes(frames: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut append = |words: &[u32], data: &[u8]| {
        words.iter().for_each(|word| bytes.extend(word.to_le_bytes()));
        bytes.extend(data);
    };
    // Microseconds, version 2.4, at most 65535 bytes, Ethernet.
    append(&[0xa1b2_c3d4, 0x0004_0002, 0, 0, 65535, 1], &[]);
    for (index, frame) in (0_u32..).zip(frames) {
        let length = frame.len() as u32;
        append(&[START_SECONDS + index / 1_000_000, index % 1_000_000, length, length], frame);
    }
    bytes
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

/// Writes the records of several pcap files to the file `output`.
///
/// # Panics
///
/// Panics if the files have different headers, as files of different programs have.
pub fn concatenate(captures: &[PathBuf], output: &Path) {
    let mut all = Vec::new();
    for capture in captures {
        let bytes = fs::read(capture).unwrap_or_else(|error| panic!("{}: {error}", capture.display()));
        let header = &bytes[..FILE_HEADER_BYTES];
        if all.is_empty() {
            all.extend_from_slice(header);
        }
        assert_eq!(header, &all[..FILE_HEADER_BYTES], "{} has another header", capture.display());
        all.extend_from_slice(&bytes[FILE_HEADER_BYTES..]);
    }
    fs::write(output, all).unwrap_or_else(|error| panic!("{}: {error}", output.display()));
}

/// Returns the frame up to the end of its IPv4 packet, because a tunnel does not carry Ethernet
/// padding. Returns other frames unchanged.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_written_capture_is_read_back() {
        let folder = crate::Folder::new();
        let path = folder.join("a.pcap");
        let frames = [vec![1; 60], vec![2; 1514]];
        write(&path, &frames);
        assert_eq!(read(&path), frames);
    }
}
