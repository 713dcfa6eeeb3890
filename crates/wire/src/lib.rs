//! What a packet says: typed views of headers over `&[u8]` and `&mut [u8]`.
//!
//! Every protocol has one file with the same parts:
//!
//! * a view such as [`Ipv4<T>`](Ipv4): `new_checked(buffer)` checks lengths once; then fields are read by name,
//!   and written by `set_…` where `T: AsMut<[u8]>`;
//! * a value such as [`Ipv4Header`]: `parse(&view)` reads it, `emit(&mut buffer)` writes it and returns the
//!   bytes written; checksums over the payload are filled in afterwards by the view (`fill_checksum`).
//!
//! [`five_tuple::parse`] reads a whole frame in one pass for the packet path.
//!
//! No bytes make any of this panic. A field that is not there (possible only when a setter or the buffer itself
//! changed a length after `new_checked`) reads as zero, and a write to it does nothing.
//!
//! Nothing here allocates, does I/O or depends on another crate.
#![forbid(unsafe_code)]

#[macro_use]
mod view;

pub mod address;
pub mod ah;
pub mod arp;
pub mod checksum;
pub mod esp;
pub mod ethernet;
pub mod five_tuple;
#[doc(hidden)]
pub mod fuzz;
pub mod icmpv4;
pub mod icmpv6;
pub mod ipv4;
pub mod ipv6;
pub mod ipv6_extension;
pub mod tcp;
pub mod udp;
pub mod vlan;

pub use address::{IpAddress, MacAddress, NotAMacAddress};
pub use ah::{Ah, AhHeader};
pub use arp::{Arp, ArpHeader};
pub use checksum::Checksum;
pub use esp::{Esp, EspHeader, EspTrailer};
pub use ethernet::{Ethernet, EthernetHeader, ethertype};
pub use five_tuple::{FiveTuple, Parsed, parse};
pub use icmpv4::{Icmpv4, Icmpv4Header};
pub use icmpv6::{Icmpv6, Icmpv6Header};
pub use ipv4::{Ipv4, Ipv4Header, protocol};
pub use ipv6::{Ipv6, Ipv6Header};
pub use ipv6_extension::{Extension, Extensions, FragmentHeader};
pub use tcp::{Tcp, TcpHeader};
pub use udp::{Udp, UdpHeader};
pub use vlan::{Vlan, VlanHeader};

/// What is wrong with a header. Small, so that callers can count by kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Error {
    /// The buffer ends before the header, or before the length that the header states.
    /// On `emit`: the buffer is too small.
    Truncated,
    /// A field has a value that its standard forbids. On `emit`: a value does not fit its field.
    Malformed,
    /// A checksum does not match.
    Checksum,
    /// More IPv6 extension headers than [`ipv6_extension::HEADERS_MAX`].
    TooDeep,
}

impl Error {
    /// Number of kinds, for tables of counters.
    pub const COUNT: usize = 4;

    /// A number below [`Error::COUNT`], for tables of counters.
    pub const fn index(self) -> usize {
        self as usize
    }

    /// The kind in one word, for names of counters.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Truncated => "truncated",
            Self::Malformed => "malformed",
            Self::Checksum => "checksum",
            Self::TooDeep => "too_deep",
        }
    }
}

impl core::fmt::Display for Error {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Self::Truncated => "the buffer ends before the header or the length it states",
            Self::Malformed => "a header field has a value that its standard forbids",
            Self::Checksum => "the checksum does not match",
            Self::TooDeep => "too many IPv6 extension headers",
        })
    }
}

impl core::error::Error for Error {}
