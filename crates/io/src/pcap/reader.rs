//! Reads a capture file record by record. Supports pcap and pcapng, both byte orders, and every
//! time resolution.
//!
//! The crate `pcap-parser` parses the structures of the formats. Its readers are not used, because
//! they lose read errors and file offsets, and keep the largest block in memory.
//!
//! Spec: draft-ietf-opsawg-pcap and draft-ietf-opsawg-pcapng.

use std::fs::File;
use std::io::Read;
use std::ops::Range;
use std::path::{Path, PathBuf};

use pcap_parser::pcapng as ng;
use pcap_parser::{InterfaceDescriptionBlock, OptionCode};

use super::input::{Input, PIECE_BYTES_MAX};
use super::link_type;
use crate::Error;

/// Type number of the Packet Block of pcapng. This block is obsolete but still in use
/// (draft-ietf-opsawg-pcapng, appendix A).
const OPB_MAGIC: u32 = 2;

/// Maximum number of interfaces in one section of a file. Real capture files have far fewer.
const INTERFACES_MAX: usize = 1 << 16;

/// One record of a capture file. [`Reader::frame`] returns the frame of the record until
/// [`Reader::next`] is called again.
#[derive(Clone, Debug)]
pub(super) struct Record {
    /// Capture time, in nanoseconds since the Unix epoch.
    pub(super) time_ns: u64,
    /// Length of the frame on the wire, in bytes.
    pub(super) original_bytes: usize,
    pub(super) content: Content,
}

/// Content of a record.
#[derive(Clone, Debug)]
pub(super) enum Content {
    /// A complete frame or the beginning of a frame, as a range of the reader's buffer.
    Frame(Range<usize>),
    /// A record that is longer than [`PIECE_BYTES_MAX`]. The reader skips it, because no packet
    /// buffer can hold it.
    TooLong,
    /// A packet of an interface that is not Ethernet.
    OtherLinkType,
}

pub(super) struct Reader {
    path: PathBuf,
    input: Input,
    format: Format,
    /// Length in bytes of the last returned record. The next call to [`Reader::next`] removes it
    /// from the buffer.
    held_bytes: usize,
    /// Number of packets that were read, including skipped packets.
    packets: u64,
}

enum Format {
    Pcap { big_endian: bool, fraction_ns: u64, fcs_bytes: usize },
    PcapNg { big_endian: bool, interfaces: Vec<Interface>, time_ns: u64, ethernet_seen: bool },
}

/// Description of an interface in a pcapng file.
#[derive(Clone, Copy, Debug)]
struct Interface {
    link_type: u16,
    snap_bytes: usize,
    resolution: Resolution,
    offset_s: i64,
}

#[derive(Clone, Copy, Debug)]
enum Resolution {
    /// Time unit of 10^-n seconds.
    Decimal(u32),
    /// Time unit of 2^-n seconds.
    Binary(u32),
}

impl Reader {
    /// Opens a capture file.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read or is not a capture file. Also returns an error
    /// for a pcap file with a link type other than Ethernet.
    pub(super) fn open(path: &Path) -> Result<Self, Error> {
        let file = File::open(path).map_err(|source| Error::read(path, source))?;
        Self::new(path, Box::new(file))
    }

    /// Creates a reader of `source`. `path` is the file name for error messages.
    pub(super) fn new(path: &Path, source: Box<dyn Read + Send>) -> Result<Self, Error> {
        let mut input = Input::new(source);
        let not_capture = |reason: &str| Error::NotCapture { path: path.to_owned(), reason: reason.to_owned() };
        if !input.fill(4).map_err(|source| Error::read(path, source))? {
            return Err(not_capture(if input.data().is_empty() {
                "the file is empty"
            } else {
                "the file is too short"
            }));
        }
        let magic = &input.data()[..4];
        if magic == ng::SHB_MAGIC.to_le_bytes() {
            let format = Format::PcapNg { big_endian: false, interfaces: Vec::new(), time_ns: 0, ethernet_seen: false };
            return Ok(Self { path: path.to_owned(), input, format, held_bytes: 0, packets: 0 });
        }
        let shown = magic.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(" ");
        let reason = format!("it begins with the bytes {shown} (hex)");
        if !input.fill(24).map_err(|source| Error::read(path, source))? {
            return Err(not_capture("the file is too short"));
        }
        let Ok((_, header)) = pcap_parser::parse_pcap_header(input.data()) else {
            return Err(not_capture(&reason));
        };
        if header.is_modified_format() {
            return Err(not_capture("the variant of pcap with modified record headers is not supported"));
        }
        input.consume(header.size());
        // The upper half of the link type field contains the length of the frame check sequence
        // (FCS), if frames include it (draft-ietf-opsawg-pcap, section 4).
        let network = header.network.0 as u32;
        let fcs_bytes = if network & 0x0400_0000 != 0 { 2 * (network >> 28) as usize } else { 0 };
        link_type::check(path, network as u16)?;
        let fraction_ns = if header.is_nanosecond_precision() { 1 } else { 1000 };
        let format = Format::Pcap { big_endian: header.is_bigendian(), fraction_ns, fcs_bytes };
        Ok(Self { path: path.to_owned(), input, format, held_bytes: 0, packets: 0 })
    }

    /// Reads the next record. Returns `None` at the end of the file.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read, is truncated or is malformed. After an error,
    /// the reader must not be used again.
    pub(super) fn next(&mut self) -> Result<Option<Record>, Error> {
        self.input.consume(std::mem::take(&mut self.held_bytes));
        let record = match self.format {
            Format::Pcap { .. } => self.next_pcap()?,
            Format::PcapNg { .. } => self.next_pcapng()?,
        };
        self.packets += u64::from(record.is_some());
        Ok(record)
    }

    /// Returns the frame of the last record.
    pub(super) fn frame(&self, range: &Range<usize>) -> &[u8] {
        &self.input.data()[range.clone()]
    }

    fn next_pcap(&mut self) -> Result<Option<Record>, Error> {
        let Format::Pcap { big_endian, fraction_ns, fcs_bytes } = self.format else { unreachable!("called for pcap") };
        const HEADER_BYTES: usize = 16;
        if !self.fill(1)? {
            return Ok(None);
        }
        let offset = self.input.offset();
        self.need(HEADER_BYTES, offset)?;
        let word = |at| u32_at(self.input.data(), at, big_endian);
        let time_ns = u64::from(word(0)) * 1_000_000_000 + u64::from(word(4)) * fraction_ns;
        let (captured_bytes, original_bytes) = (word(8) as usize, word(12) as usize);
        let content = if captured_bytes > PIECE_BYTES_MAX - HEADER_BYTES {
            self.skip((HEADER_BYTES + captured_bytes) as u64, offset)?;
            Content::TooLong
        } else {
            self.held_bytes = HEADER_BYTES + captured_bytes;
            self.need(self.held_bytes, offset)?;
            // The original length counts the frame check sequence (FCS). The captured bytes include
            // it only if the frame was captured completely.
            let whole = captured_bytes >= original_bytes;
            let frame_bytes = captured_bytes.saturating_sub(if whole { fcs_bytes } else { 0 });
            Content::Frame(HEADER_BYTES..HEADER_BYTES + frame_bytes)
        };
        let original_bytes = original_bytes.saturating_sub(fcs_bytes);
        Ok(Some(Record { time_ns, original_bytes, content }))
    }

    fn next_pcapng(&mut self) -> Result<Option<Record>, Error> {
        loop {
            if !self.fill(1)? {
                return Ok(None);
            }
            let offset = self.input.offset();
            self.need(12, offset)?;
            let Format::PcapNg { big_endian, .. } = &mut self.format else { unreachable!("called for pcapng") };
            let data = self.input.data();
            if data[..4] == ng::SHB_MAGIC.to_le_bytes() {
                *big_endian = data[8..12] == ng::BOM_MAGIC.to_be_bytes();
            }
            let kind = u32_at(data, 0, *big_endian);
            let block_bytes = u32_at(data, 4, *big_endian) as usize;
            if block_bytes < 12 || !block_bytes.is_multiple_of(4) {
                return Err(self.malformed(offset, format!("invalid block length of {block_bytes} bytes")));
            }
            let is_packet = matches!(kind, ng::EPB_MAGIC | ng::SPB_MAGIC | OPB_MAGIC);
            if is_packet && block_bytes > PIECE_BYTES_MAX {
                self.skip(block_bytes as u64, offset)?;
                let Format::PcapNg { time_ns, .. } = &self.format else { unreachable!("called for pcapng") };
                return Ok(Some(Record { time_ns: *time_ns, original_bytes: block_bytes, content: Content::TooLong }));
            }
            if !is_packet && !matches!(kind, ng::SHB_MAGIC | ng::IDB_MAGIC) {
                self.skip(block_bytes as u64, offset)?;
                continue;
            }
            if block_bytes > PIECE_BYTES_MAX {
                return Err(self.malformed(offset, format!("header block too long: {block_bytes} bytes")));
            }
            self.need(block_bytes, offset)?;
            let record = match self.block(kind, block_bytes) {
                Ok(record) => record,
                Err(BlockError::Malformed(reason)) => return Err(self.malformed(offset, reason)),
                Err(BlockError::LinkType(other)) => return Err(link_type::error(&self.path, other)),
            };
            match record {
                Some(record) => {
                    self.held_bytes = block_bytes;
                    return Ok(Some(record));
                }
                None => self.input.consume(block_bytes),
            }
        }
    }

    /// Parses one complete block. Returns a record if the block contains a packet. Stores the
    /// description of a section or an interface.
    fn block(&mut self, kind: u32, block_bytes: usize) -> Result<Option<Record>, BlockError> {
        let Format::PcapNg { big_endian, interfaces, time_ns, ethernet_seen } = &mut self.format else {
            unreachable!("called for pcapng")
        };
        let big_endian = *big_endian;
        let block = &self.input.data()[..block_bytes];
        if u32_at(block, block_bytes - 4, big_endian) as usize != block_bytes {
            return Err(malformed("the two lengths of a block differ"));
        }
        match kind {
            ng::SHB_MAGIC => {
                let (_, header) = ng::parse_sectionheaderblock(block).map_err(|_| malformed("section header"))?;
                if header.major_version != 1 {
                    return Err(BlockError::Malformed(format!(
                        "unsupported version {} of pcapng",
                        header.major_version
                    )));
                }
                interfaces.clear();
                Ok(None)
            }
            ng::IDB_MAGIC => {
                let parse = match big_endian {
                    true => ng::parse_interfacedescriptionblock_be,
                    false => ng::parse_interfacedescriptionblock_le,
                };
                let (_, description) = parse(block).map_err(|_| malformed("interface description"))?;
                let interface = Interface::new(&description, big_endian)?;
                if interfaces.len() == INTERFACES_MAX {
                    return Err(malformed("too many interfaces"));
                }
                *ethernet_seen |= interface.link_type == link_type::ETHERNET;
                interfaces.push(interface);
                Ok(None)
            }
            _ => {
                let packet = Packet::parse(kind, block, big_endian, interfaces)?;
                let interface = interfaces.get(packet.interface).ok_or_else(|| malformed("unknown interface"))?;
                // A capture file without an Ethernet interface is probably the wrong file. In a
                // file with several link types, packets of other link types are skipped.
                if !*ethernet_seen {
                    return Err(BlockError::LinkType(interface.link_type));
                }
                if let Some(time) = packet.time {
                    *time_ns = interface.time_ns(time);
                }
                let content = match interface.link_type {
                    link_type::ETHERNET => Content::Frame(packet.frame),
                    _ => Content::OtherLinkType,
                };
                Ok(Some(Record { time_ns: *time_ns, original_bytes: packet.original_bytes, content }))
            }
        }
    }

    fn fill(&mut self, bytes: usize) -> Result<bool, Error> {
        self.input.fill(bytes).map_err(|source| Error::read(&self.path, source))
    }

    /// Reads from the file until `bytes` bytes of the record at `offset` are available.
    fn need(&mut self, bytes: usize, offset: u64) -> Result<(), Error> {
        if self.fill(bytes)? {
            return Ok(());
        }
        Err(Error::CutOff { path: self.path.clone(), packets: self.packets, offset })
    }

    /// Skips `bytes` bytes that belong to the record at `offset`.
    fn skip(&mut self, bytes: u64, offset: u64) -> Result<(), Error> {
        match self.input.skip(bytes) {
            Ok(true) => Ok(()),
            Ok(false) => Err(Error::CutOff { path: self.path.clone(), packets: self.packets, offset }),
            Err(source) => Err(Error::read(&self.path, source)),
        }
    }

    fn malformed(&self, offset: u64, reason: String) -> Error {
        Error::Malformed { path: self.path.clone(), packets: self.packets, offset, reason }
    }
}

enum BlockError {
    Malformed(String),
    LinkType(u16),
}

fn malformed(reason: &str) -> BlockError {
    BlockError::Malformed(reason.to_owned())
}

/// A packet from a pcapng file, in an Enhanced Packet Block, a Simple Packet Block, or an obsolete
/// Packet Block.
struct Packet {
    interface: usize,
    /// Time of the packet in the interface's time unit, or `None` for a Simple Packet Block.
    time: Option<u64>,
    original_bytes: usize,
    /// Range of the frame in the block.
    frame: Range<usize>,
}

impl Packet {
    fn parse(kind: u32, block: &[u8], big_endian: bool, interfaces: &[Interface]) -> Result<Self, BlockError> {
        let time = |high: u32, low: u32| Some(u64::from(high) << 32 | u64::from(low));
        let packet = match kind {
            ng::EPB_MAGIC => {
                let parse = match big_endian {
                    true => ng::parse_enhancedpacketblock_be,
                    false => ng::parse_enhancedpacketblock_le,
                };
                let (_, packet) = parse(block).map_err(|_| malformed("packet block"))?;
                Self {
                    interface: packet.if_id as usize,
                    time: time(packet.ts_high, packet.ts_low),
                    original_bytes: packet.origlen as usize,
                    frame: 28..28 + packet.caplen as usize,
                }
            }
            ng::SPB_MAGIC => {
                let parse = match big_endian {
                    true => ng::parse_simplepacketblock_be,
                    false => ng::parse_simplepacketblock_le,
                };
                let (_, packet) = parse(block).map_err(|_| malformed("simple packet block"))?;
                // A Simple Packet Block contains only the original length of the packet. The
                // captured length is limited by the snap length (section 4.4).
                let snap_bytes = interfaces.first().map_or(0, |interface| interface.snap_bytes);
                let original_bytes = packet.origlen as usize;
                let captured_bytes = original_bytes.min(if snap_bytes == 0 { usize::MAX } else { snap_bytes });
                Self { interface: 0, time: None, original_bytes, frame: 12..12 + captured_bytes }
            }
            _ if block.len() < 32 => return Err(malformed("packet block too short")),
            _ => {
                let word = |at| u32_at(block, at, big_endian);
                let interface = &block[8..10];
                let interface = [interface[0], interface[1]];
                Self {
                    interface: match big_endian {
                        true => u16::from_be_bytes(interface).into(),
                        false => u16::from_le_bytes(interface).into(),
                    },
                    time: time(word(12), word(16)),
                    original_bytes: word(24) as usize,
                    frame: 28..28 + word(20) as usize,
                }
            }
        };
        // The last four bytes contain the length of the block.
        if packet.frame.end > block.len() - 4 {
            return Err(malformed("the captured length exceeds the block"));
        }
        Ok(packet)
    }
}

impl Interface {
    fn new(description: &InterfaceDescriptionBlock, big_endian: bool) -> Result<Self, BlockError> {
        // The options are parsed here, because pcap-parser reads if_tsoffset as little-endian in
        // every file.
        let mut resolution = Resolution::Decimal(6);
        let mut offset_s = 0;
        for option in &description.options {
            let value = option.value.as_ref();
            match option.code {
                OptionCode::IfTsresol if option.len == 1 && !value.is_empty() => {
                    let exponent = u32::from(value[0] & 0x7f);
                    resolution = match value[0] & 0x80 {
                        0 if exponent <= 27 => Resolution::Decimal(exponent),
                        0 => return Err(malformed("a time resolution finer than 10^-27 s")),
                        _ if exponent <= 63 => Resolution::Binary(exponent),
                        _ => return Err(malformed("a time resolution finer than 2^-63 s")),
                    };
                }
                OptionCode::IfTsoffset if option.len == 8 => {
                    if let Some(bytes) = value.first_chunk::<8>() {
                        offset_s = if big_endian { i64::from_be_bytes(*bytes) } else { i64::from_le_bytes(*bytes) };
                    }
                }
                _ => {}
            }
        }
        Ok(Self {
            link_type: description.linktype.0 as u16,
            snap_bytes: description.snaplen as usize,
            resolution,
            offset_s,
        })
    }

    /// Converts a time of the interface to nanoseconds since the Unix epoch. A time outside the
    /// range of `u64` becomes the nearest value in the range.
    fn time_ns(&self, time: u64) -> u64 {
        let time = i128::from(time);
        let ns = match self.resolution {
            Resolution::Decimal(n @ 0..=9) => time * 10i128.pow(9 - n),
            Resolution::Decimal(n) => time / 10i128.pow(n - 9),
            Resolution::Binary(n) => (time * 1_000_000_000) >> n,
        };
        (ns + i128::from(self.offset_s) * 1_000_000_000).clamp(0, u64::MAX.into()) as u64
    }
}

/// Returns the 32-bit word at byte `at`, which must exist.
fn u32_at(bytes: &[u8], at: usize, big_endian: bool) -> u32 {
    let word = [bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]];
    if big_endian { u32::from_be_bytes(word) } else { u32::from_le_bytes(word) }
}
