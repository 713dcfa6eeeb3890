//! ARP packets (RFC 826). Views support addresses of any length, but `emit` supports only Ethernet
//! and IPv4.
//!
//! The layout of a packet is as follows, with offsets in bytes:
//!
//! ```text
//! 0          2          4      5      6           8
//! | hardware | protocol | hlen | plen | operation | sender hw, proto, target hw, proto
//! ```

use crate::view::{Field, range};
use crate::{Error, MacAddress, ethertype};

/// Length of the fixed part before the addresses, in bytes.
pub const FIXED_BYTES: usize = 8;

/// Length of an ARP packet for Ethernet and IPv4, in bytes.
pub const ETHERNET_IPV4_BYTES: usize = 28;

/// Hardware type of Ethernet (IANA "ARP parameters").
pub const HARDWARE_ETHERNET: u16 = 1;

/// Operation code of a request (RFC 826).
pub const REQUEST: u16 = 1;

/// Operation code of a reply (RFC 826).
pub const REPLY: u16 = 2;

view! {
    /// An ARP packet with addresses of any length.
    Arp, check
}

fn check(bytes: &[u8]) -> Result<(), Error> {
    if bytes.len() < FIXED_BYTES || bytes.len() < length_bytes(bytes) {
        return Err(Error::Truncated);
    }
    Ok(())
}

fn length_bytes(bytes: &[u8]) -> usize {
    FIXED_BYTES + 2 * usize::from(u8::load(bytes, 4)) + 2 * usize::from(u8::load(bytes, 5))
}

fields! { Arp;
    /// Hardware type. The value 1 means Ethernet.
    0 => hardware_type / set_hardware_type: u16,
    /// Protocol type, an ethertype.
    2 => protocol_type / set_protocol_type: u16,
    /// Length of a hardware address, in bytes.
    4 => hardware_bytes / set_hardware_bytes: u8,
    /// Length of a protocol address, in bytes.
    5 => protocol_bytes / set_protocol_bytes: u8,
    /// Operation, such as [`REQUEST`] or [`REPLY`].
    6 => operation / set_operation: u16,
}

impl<T: AsRef<[u8]>> Arp<T> {
    /// Returns the hardware address of the sender.
    pub fn sender_hardware(&self) -> &[u8] {
        self.address(0, 0, self.hardware_bytes())
    }

    /// Returns the protocol address of the sender.
    pub fn sender_protocol(&self) -> &[u8] {
        self.address(1, 0, self.protocol_bytes())
    }

    /// Returns the hardware address of the target.
    pub fn target_hardware(&self) -> &[u8] {
        self.address(1, 1, self.hardware_bytes())
    }

    /// Returns the protocol address of the target.
    pub fn target_protocol(&self) -> &[u8] {
        self.address(2, 1, self.protocol_bytes())
    }

    /// Returns the address that follows `hardware` hardware addresses and `protocol` protocol
    /// addresses.
    fn address(&self, hardware: usize, protocol: usize, length: u8) -> &[u8] {
        let from =
            FIXED_BYTES + hardware * usize::from(self.hardware_bytes()) + protocol * usize::from(self.protocol_bytes());
        range(self.bytes(), from, from + usize::from(length))
    }
}

/// Representation of an ARP packet for Ethernet and IPv4.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArpHeader {
    /// Operation, such as [`REQUEST`] or [`REPLY`].
    pub operation: u16,
    /// Ethernet address of the sender.
    pub sender_hardware: MacAddress,
    /// IPv4 address of the sender.
    pub sender_protocol: [u8; 4],
    /// Ethernet address of the target, which is zero in a request.
    pub target_hardware: MacAddress,
    /// IPv4 address of the target.
    pub target_protocol: [u8; 4],
}

impl ArpHeader {
    /// Parses the packet. Returns [`Error::Malformed`] if the packet is not for Ethernet and IPv4.
    pub fn parse<T: AsRef<[u8]>>(view: &Arp<T>) -> Result<Self, Error> {
        let kind = (view.hardware_type(), view.protocol_type(), view.hardware_bytes(), view.protocol_bytes());
        if kind != (HARDWARE_ETHERNET, ethertype::IPV4, 6, 4) {
            return Err(Error::Malformed);
        }
        Ok(Self {
            operation: view.operation(),
            sender_hardware: Field::load(view.bytes(), 8),
            sender_protocol: Field::load(view.bytes(), 14),
            target_hardware: Field::load(view.bytes(), 18),
            target_protocol: Field::load(view.bytes(), 24),
        })
    }

    /// Writes the packet to the start of `buffer`. Returns the number of bytes written.
    pub fn emit(&self, buffer: &mut [u8]) -> Result<usize, Error> {
        let Some(packet) = buffer.first_chunk_mut::<ETHERNET_IPV4_BYTES>() else {
            return Err(Error::Truncated);
        };
        HARDWARE_ETHERNET.store(packet, 0);
        ethertype::IPV4.store(packet, 2);
        [6u8, 4].store(packet, 4);
        self.operation.store(packet, 6);
        self.sender_hardware.store(packet, 8);
        self.sender_protocol.store(packet, 14);
        self.target_hardware.store(packet, 18);
        self.target_protocol.store(packet, 24);
        Ok(ETHERNET_IPV4_BYTES)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn parses_and_emits_a_known_request() {
        let request = [
            0, 1, 8, 0, 6, 4, 0, 1, // Ethernet, IPv4, request
            2, 0, 0, 0, 0, 1, 192, 0, 2, 1, // sender
            0, 0, 0, 0, 0, 0, 192, 0, 2, 2, // target
        ];
        let view = Arp::new_checked(&request[..]).unwrap();
        assert_eq!(view.sender_hardware(), [2, 0, 0, 0, 0, 1]);
        assert_eq!(view.sender_protocol(), [192, 0, 2, 1]);
        assert_eq!(view.target_hardware(), [0; 6]);
        assert_eq!(view.target_protocol(), [192, 0, 2, 2]);
        let header = ArpHeader::parse(&view).unwrap();
        assert_eq!(header.operation, REQUEST);
        let mut out = [0xff; 28];
        assert_eq!(header.emit(&mut out), Ok(28));
        assert_eq!(out, request);
        assert_eq!(Arp::new_checked(&request[..27]), Err(Error::Truncated));
    }

    proptest! {
        #[test]
        fn emit_then_parse(operation: u16, a: [u8; 6], b: [u8; 4], c: [u8; 6], d: [u8; 4]) {
            let header = ArpHeader {
                operation,
                sender_hardware: MacAddress(a),
                sender_protocol: b,
                target_hardware: MacAddress(c),
                target_protocol: d,
            };
            let mut buffer = [0xff; 40];
            prop_assert_eq!(header.emit(&mut buffer), Ok(28));
            let mut view = Arp::new_checked(&mut buffer).unwrap();
            prop_assert_eq!(ArpHeader::parse(&view), Ok(header));
            view.set_hardware_bytes(255);
            prop_assert_eq!(ArpHeader::parse(&view), Err(Error::Malformed));
            prop_assert!(view.target_protocol().len() <= 4, "the address stays within the buffer");
        }
    }
}
