//! Table image of the `ipsec` function, which the kernel reads. It contains the SAs and their
//! selectors. `kernels/ipsec/image.h` defines its layout.
//!
//! ```text
//! 0        64                          selector_offset
//! | header | SA 0 | SA 1 | ...         | selector 0 | selector 1 | ... |
//!            576 bytes each              64 bytes each
//! ```

use std::net::IpAddr;
use std::ops::Range;

use godwit_packet::Memory;
use zeroize::Zeroizing;

use super::config::Mode;
use super::key_area::emit_keys;
use super::sa::{Df, Sa};
use super::selector::{Ports, Prefix, Selector};
use super::suite::Authentication;
use crate::Error;

/// Magic number, which is the first word of the image.
const MAGIC: u32 = u32::from_le_bytes(*b"IPSE");
const HEADER_BYTES: usize = 64;
const SA_BYTES: usize = 576;
const SELECTOR_BYTES: usize = 64;
const PROTOCOL_ANY: u16 = 256;

// Offsets of the fields of an SA, in bytes. `image.h` asserts the same values.
const SALT: usize = 8;
const SOURCE: usize = 16;
const DESTINATION: usize = 32;
const UDP_SOURCE: usize = 48;
const SELECTOR_FIRST: usize = 52;
const AUTHENTICATION: usize = 64;

/// Flags of CCM's counter blocks: a counter of 4 bytes (RFC 3610, section 2.3).
const CCM_COUNTER_FLAGS: u8 = 3;

const FLAG_USED: u32 = 0x01;
const FLAG_INBOUND: u32 = 0x02;
const FLAG_TRANSPORT: u32 = 0x04;
const FLAG_OUTER_IPV6: u32 = 0x08;
const FLAG_ESN: u32 = 0x10;
const FLAG_UDP: u32 = 0x20;
const FLAG_DF_CLEAR: u32 = 0x40;
const FLAG_DF_SET: u32 = 0x80;
const FLAG_DSCP_SET: u32 = 0x100;
const FLAG_ECN_IGNORED: u32 = 0x200;

/// Number of SA slots and selector slots in the image.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    pub(super) sas: usize,
    pub(super) selectors: usize,
}

impl Shape {
    pub(super) fn empty(self) -> Result<Memory, Error> {
        let Self { sas, selectors } = self;
        let bytes = self.selectors(0..selectors as u32).end;
        if u32::try_from(bytes).is_err() {
            let message = "the SAs and selectors of an ipsec function need more than 4 GiB: lower sa_capacity or \
                           selector_capacity"
                .to_owned();
            return Err(Error::Value { span: None, message });
        }
        let mut image = Memory::new(bytes, "the SAs of an ipsec function")?;
        // All of these offsets are smaller than the table image, whose size fits into 32 bits.
        let header = [sas, HEADER_BYTES, selectors, self.selectors(0..0).start].map(|number| number as u32);
        put(&mut image, 0, &[MAGIC]);
        put(&mut image, 4, &header);
        Ok(image)
    }

    pub(super) fn sa(self, index: u32) -> Range<usize> {
        let first = HEADER_BYTES + index as usize * SA_BYTES;
        first..first + SA_BYTES
    }

    pub(super) fn selectors(self, indexes: Range<u32>) -> Range<usize> {
        let first = HEADER_BYTES + self.sas * SA_BYTES;
        first + indexes.start as usize * SELECTOR_BYTES..first + indexes.end as usize * SELECTOR_BYTES
    }
}

/// Encodes an SA for the table image. `selectors` contains the image indices of its selectors.
pub(super) fn sa(sa: &Sa, selectors: &Range<u32>) -> Zeroizing<[u8; SA_BYTES]> {
    let mut out = Zeroizing::new([0; SA_BYTES]);
    let flag = |is: bool, flag| if is { flag } else { 0 };
    let flags = FLAG_USED
        | flag(sa.is_inbound(), FLAG_INBOUND)
        | flag(sa.mode == Mode::Transport, FLAG_TRANSPORT)
        | flag(sa.destination.is_ipv6(), FLAG_OUTER_IPV6)
        | flag(sa.esn, FLAG_ESN)
        | flag(sa.udp.is_some(), FLAG_UDP)
        | flag(sa.df == Df::Clear, FLAG_DF_CLEAR)
        | flag(sa.df == Df::Set, FLAG_DF_SET)
        | flag(sa.dscp.is_some(), FLAG_DSCP_SET)
        | flag(!sa.ecn, FLAG_ECN_IGNORED);
    put(&mut *out, 0, &[sa.spi, flags]);
    out[SALT..SALT + 4].copy_from_slice(&nonce_front(sa));
    out[SALT + 4..SOURCE].copy_from_slice(&[sa.suite, sa.icv_bytes, sa.hop_limit, sa.dscp.unwrap_or(0)]);
    put(&mut *out, SOURCE, &words(sa.source));
    put(&mut *out, DESTINATION, &words(sa.destination));
    if let Some(udp) = sa.udp {
        put(&mut *out, UDP_SOURCE, &[u32::from(udp.destination_port) << 16 | u32::from(udp.source_port)]);
    }
    put(&mut *out, SELECTOR_FIRST, &[selectors.start, selectors.end - selectors.start]);
    emit_keys(sa.suite(), sa.is_inbound(), &sa.key, &sa.hmac_key, &mut out[AUTHENTICATION..SA_BYTES]);
    out
}

/// Returns the bytes of a counter block before the IV. They are the salt, or for CCM the flags and
/// a salt of 3 bytes. The flags state a counter of 4 bytes (RFC 3610, section 2.3).
fn nonce_front(sa: &Sa) -> [u8; 4] {
    match (sa.suite().authentication, *sa.salt) {
        (Authentication::Ccm, [first, second, third, _]) => [CCM_COUNTER_FLAGS, first, second, third],
        (_, salt) => salt,
    }
}

/// Encodes a selector for the table image.
pub(super) fn selector(selector: &Selector) -> [u8; SELECTOR_BYTES] {
    let mut out = [0; SELECTOR_BYTES];
    let (mut bits, mut family) = ([0; 2], 0);
    for (end, prefix) in [selector.source, selector.destination].into_iter().enumerate() {
        let address = match prefix {
            Prefix::Any => continue,
            Prefix::Ipv4(prefix) => {
                (bits[end], family) = (prefix.mask.count_ones() as u8, 4);
                IpAddr::V4(prefix.address.into())
            }
            Prefix::Ipv6(prefix) => {
                (bits[end], family) = (prefix.mask.count_ones() as u8, 6);
                IpAddr::V6(prefix.address.into())
            }
        };
        put(&mut out, end * 16, &words(address));
    }
    let source_ports = selector.source_ports.unwrap_or(Ports::ANY);
    let destination_ports = selector.destination_ports.unwrap_or(Ports::ANY);
    let ports_matter = selector.source_ports.is_some() || selector.destination_ports.is_some();
    let halves = [
        u16::from_le_bytes(bits),
        u16::from_le_bytes([family, u8::from(ports_matter)]),
        selector.protocol.map_or(PROTOCOL_ANY, u16::from),
        0,
        source_ports.0,
        source_ports.1,
        destination_ports.0,
        destination_ports.1,
    ];
    for (bytes, half) in out[32..].chunks_exact_mut(2).zip(halves) {
        bytes.copy_from_slice(&half.to_le_bytes());
    }
    out
}

/// Converts an address to 32-bit words in host byte order, most significant word first.
fn words(address: IpAddr) -> [u32; 4] {
    match address {
        IpAddr::V4(address) => [address.into(), 0, 0, 0],
        IpAddr::V6(address) => {
            let bits = u128::from(address);
            [96, 64, 32, 0].map(|shift| (bits >> shift) as u32)
        }
    }
}

fn put(out: &mut [u8], at: usize, words: &[u32]) {
    for (bytes, word) in out[at..].chunks_exact_mut(4).zip(words) {
        bytes.copy_from_slice(&word.to_le_bytes());
    }
}

// These are the same assertions as the `_Static_assert`s in `image.h`.
const _: () = {
    assert!(DESTINATION == SOURCE + 16);
    assert!(UDP_SOURCE == DESTINATION + 16);
    assert!(SELECTOR_FIRST == UDP_SOURCE + 4);
    assert!(AUTHENTICATION == SELECTOR_FIRST + 3 * 4);
    assert!(SA_BYTES == AUTHENTICATION + 4 * 16 + 4 * 60 + 4 * 4 + 4 * 48);
    assert!(super::key_area::KEY_AREA_BYTES == SA_BYTES - AUTHENTICATION);
    assert!(SELECTOR_BYTES == 16 * 2 + 4 + 4 + 8 + 4 * 4);
};
