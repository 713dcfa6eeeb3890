//! Decodes link-layer headers. Each frame yields one packet, and one more for each tunnelled packet
//! and each reassembled datagram.

use super::fragments::Fragments;
use super::{Micros, Origin, Outer, Packet};

/// Link-layer header type of the frames in a capture file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LinkType {
    /// Ethernet.
    Ethernet,
    /// IPv4 or IPv6 without a link header.
    Raw,
    /// Linux cooked capture.
    LinuxCooked,
    /// BSD loopback.
    Null,
    /// PPP.
    Ppp,
}

impl LinkType {
    /// Returns the link type for a capture file's `DLT` or `LINKTYPE` number.
    pub fn from_capture(number: u32) -> Option<Self> {
        Some(match number {
            1 => Self::Ethernet,
            12 | 14 | 101 | 228 | 229 => Self::Raw,
            113 => Self::LinuxCooked,
            0 | 108 => Self::Null,
            9 | 51 => Self::Ppp,
            _ => return None,
        })
    }
}

/// Maximum nesting depth of tunnels.
const DEPTH_MAX: u8 = 8;

/// UDP ports of tunnels.
#[derive(Debug, Clone)]
pub(super) struct TunnelPorts {
    /// VXLAN.
    pub vxlan: Vec<u16>,
    /// Geneve.
    pub geneve: Vec<u16>,
    /// Teredo.
    pub teredo: Vec<u16>,
}

impl Default for TunnelPorts {
    fn default() -> Self {
        Self { vxlan: vec![4789], geneve: vec![6081], teredo: vec![3544] }
    }
}

/// Frame decoder. It also stores fragments for reassembly.
pub struct Decoder {
    pub(super) ports: TunnelPorts,
    pub(super) fragments: Fragments,
    /// Whether the checksums of TCP, UDP and ICMP are checked.
    pub check: bool,
}

/// Bytes to decode, and the results of the earlier steps.
pub(super) struct Step<'p, 'a> {
    pub(super) packet: Packet<'a>,
    pub(super) at: usize,
    pub(super) depth: u8,
    pub(super) sink: &'p mut dyn FnMut(&Packet<'_>),
}

impl Default for Decoder {
    fn default() -> Self {
        Self { ports: TunnelPorts::default(), fragments: Fragments::new(1 << 16, 32 << 20), check: false }
    }
}

impl Decoder {
    /// Returns the fragment store, which also has counters.
    pub fn fragments(&self) -> &Fragments {
        &self.fragments
    }

    /// Decodes a frame and calls `sink` for each packet. Tunnelled packets come before their outer
    /// packet.
    pub fn decode(
        &mut self,
        link: LinkType,
        data: &[u8],
        number: u64,
        time: Micros,
        sink: &mut dyn FnMut(&Packet<'_>),
    ) {
        let packet = Packet::empty(data, number, time);
        self.link(link, Step { packet, at: 0, depth: 0, sink });
    }

    fn link(&mut self, link: LinkType, mut step: Step<'_, '_>) {
        let data = step.packet.data;
        match link {
            LinkType::Ethernet => return self.ethernet(step),
            LinkType::Raw => return self.ip(step),
            LinkType::LinuxCooked if data.len() >= 16 => {
                step.packet.ethertype = u16::from_be_bytes([data[14], data[15]]);
                step.at = 16;
            }
            LinkType::Null if data.len() >= 4 => {
                step.at = 4;
                return self.ip(step);
            }
            LinkType::Ppp if data.len() >= 2 => {
                // PPP frames may omit the address and control bytes (RFC 1662).
                step.at = if data[0] == 0xff { 4 } else { 2 };
                return self.ip(step);
            }
            _ => return (step.sink)(&step.packet),
        }
        self.ethertype(step);
    }

    /// Decodes an Ethernet header at `step.at`.
    pub(super) fn ethernet(&mut self, mut step: Step<'_, '_>) {
        let data = step.packet.data;
        let Some(header) = data.get(step.at..step.at + 14) else { return (step.sink)(&step.packet) };
        step.packet.ethernet = step.at..step.at + 14;
        step.packet.ethertype = u16::from_be_bytes([header[12], header[13]]);
        step.at += 14;
        self.ethertype(step);
    }

    /// Decodes the payload of the link layer.
    pub(super) fn ethertype(&mut self, mut step: Step<'_, '_>) {
        let data = step.packet.data;
        for _ in 0..8 {
            let rest = &data[step.at.min(data.len())..];
            match step.packet.ethertype {
                0x0800 | 0x86dd => return self.ip(step),
                0x8100 | 0x88a8 | 0x9100 if rest.len() >= 4 => {
                    let packet = &mut step.packet;
                    if let Some(slot) = packet.vlans.get_mut(usize::from(packet.vlan_count)) {
                        *slot = u16::from_be_bytes([rest[0], rest[1]]) & 0x0fff;
                        packet.vlan_count += 1;
                    }
                    packet.ethertype = u16::from_be_bytes([rest[2], rest[3]]);
                    step.at += 4;
                }
                0x8847 | 0x8848 if rest.len() >= 4 => {
                    // An IP header follows the last MPLS label, which has the bottom-of-stack bit
                    // (RFC 3032).
                    let bottom = rest[2] & 1 == 1;
                    step.at += 4;
                    if bottom {
                        return self.ip(step);
                    }
                }
                0x8864 if rest.len() >= 8 => {
                    step.at += 8;
                    return self.ip(step);
                }
                0x894f if rest.len() >= 8 => {
                    // The length field of a network service header (NSH) counts units of four bytes
                    // (RFC 8300, section 2.2).
                    let bytes = usize::from(rest[1] & 0x3f) * 4;
                    let next = rest[3];
                    if bytes < 8 || bytes > rest.len() {
                        break;
                    }
                    step.at += bytes;
                    match next {
                        1 | 2 => return self.ip(step),
                        3 => return self.ethernet(step),
                        _ => break,
                    }
                }
                _ => break,
            }
        }
        (step.sink)(&step.packet);
    }

    /// Decodes the tunnelled packet at offset `at`, before the outer packet is reported.
    pub(super) fn inner(
        &mut self,
        step: &mut Step<'_, '_>,
        at: usize,
        origin: Origin,
        protocol: &'static str,
        link: Option<u16>,
    ) {
        if step.depth >= DEPTH_MAX || at >= step.packet.data.len() {
            return;
        }
        let outer = Outer {
            source: step.packet.source,
            destination: step.packet.destination,
            protocol,
            depth: step.packet.outer.map_or(1, |outer| outer.depth + 1),
        };
        let mut packet = Packet::empty(&step.packet.data[at..], step.packet.number, step.packet.time);
        packet.origin = origin;
        packet.outer = Some(outer);
        packet.vlans = step.packet.vlans;
        packet.vlan_count = step.packet.vlan_count;
        let mut inner = Step { packet, at: 0, depth: step.depth + 1, sink: step.sink };
        match link {
            Some(0x6558) => self.ethernet(inner),
            Some(ethertype) => {
                inner.packet.ethertype = ethertype;
                self.ethertype(inner);
            }
            None => self.ip(inner),
        }
    }
}
